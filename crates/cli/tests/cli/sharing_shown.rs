//! What a mount shows while others work: times while jobs run or were killed, bytes that were found
//! below, and all that needs no store while the store hangs.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing::{optimize, with_share};
use crate::support::Sandbox;
use onefold_engine::primary::share::BELOW_ATTRIBUTE;
use onefold_engine::stub::ATTRIBUTE;
use rustix::fs::{AtFlags, CWD, StatxFlags, XattrFlags, setxattr};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGE_BYTES: usize = 40 << 20;
/// More than a stub takes.
const SOME_BYTES: u64 = 1 << 20;
const LONG_AGO: Duration = Duration::from_secs(1_000_000_000);

fn modified(path: &Path) -> SystemTime {
    // What the kernel remembers of it may be a second old.
    let (fresh, what) = (AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    let time = rustix::fs::statx(CWD, path, fresh, what).unwrap().stx_mtime;
    UNIX_EPOCH + Duration::new(time.tv_sec as u64, time.tv_nsec)
}

fn set_modified(path: &Path, time: SystemTime) {
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// A share with one large file of long ago.
fn with_large(bytes: usize) -> Sandbox {
    let sandbox = Sandbox::with_store();
    sandbox.write("share/file", &random_bytes(1, bytes));
    set_modified(&sandbox.path("share/file"), UNIX_EPOCH + LONG_AGO);
    let share = sandbox.arg("share");
    sandbox.run(&["share", "create", "--min-age", "0s", &share]).expect(0);
    std::thread::sleep(Duration::from_millis(100));
    sandbox
}

/// Kills a job that brings data back, when some of it is there and not all. It is let run for
/// moments, and looked at while it is stopped.
fn kill_at_bringing_back(sandbox: &Sandbox) {
    let path = sandbox.path("share/file");
    loop {
        let mut job = sandbox.command(&["share", "rehydrate", &sandbox.arg("share")]).spawn();
        let job = job.as_mut().unwrap();
        let process = job.id().to_string();
        while job.try_wait().unwrap().is_none() {
            assert!(succeeds("kill", &["-STOP", &process]));
            if bytes_on_disk(&path) > SOME_BYTES && bytes_on_disk(&path) < LARGE_BYTES as u64 {
                job.kill().unwrap();
                job.wait().unwrap();
                return;
            }
            assert!(succeeds("kill", &["-CONT", &process]));
            std::thread::sleep(Duration::from_millis(1));
        }
        optimize(sandbox);
    }
}

fn bytes_on_disk(path: &Path) -> u64 {
    let (fresh, what) = (AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    rustix::fs::statx(CWD, path, fresh, what).unwrap().stx_blocks * 512
}

#[test]
fn r120_no_job_shows_another_time_and_a_killed_one_leaves_none() {
    if !can_mount() {
        return;
    }
    let sandbox = with_large(LARGE_BYTES);
    let (share, path) = (sandbox.arg("share"), sandbox.path("share/file"));
    let long_ago = UNIX_EPOCH + LONG_AGO;
    let mount = Mount::share(&sandbox, "share");
    for command in ["optimize", "rehydrate", "optimize"] {
        let mut job = sandbox.command(&["share", command, &share]).spawn().unwrap();
        while job.try_wait().unwrap().is_none() {
            assert_eq!(modified(&path), long_ago, "while {command} is at it");
        }
    }
    kill_at_bringing_back(&sandbox);
    assert_eq!(modified(&path), long_ago, "after rehydrate was killed");
    // The next job puts it back, whether the file is cold or not.
    let cold = ["share", "optimize", "--min-age", "30000d", &share];
    sandbox.run(&cold).expect(0);
    mount.end();
    assert_eq!(modified(&path), long_ago, "below, after the next job");
    // Whoever sets a time after that has the last word, through the mount and below.
    for is_mounted in [true, false] {
        optimize(&sandbox);
        kill_at_bringing_back(&sandbox);
        let mount = is_mounted.then(|| Mount::share(&sandbox, "share"));
        let set = UNIX_EPOCH + 2 * LONG_AGO - Duration::from_secs(700_000_000);
        set_modified(&path, set);
        assert_eq!(modified(&path), set);
        sandbox.run(&["share", "rehydrate", &share]).expect(0);
        assert_eq!(modified(&path), set, "mounted: {is_mounted}");
        drop(mount.map(Mount::end));
        assert_eq!(modified(&path), set, "mounted: {is_mounted}");
    }
    assert!(fs::read(&path).unwrap() == random_bytes(1, LARGE_BYTES));
}

#[test]
fn r120_what_else_is_changed_through_the_mount_leaves_no_time_of_a_killed_job() {
    if !can_mount() {
        return;
    }
    let sandbox = with_large(LARGE_BYTES);
    optimize(&sandbox);
    kill_at_bringing_back(&sandbox);
    let (path, other) = (sandbox.path("share/file"), sandbox.path("share/other"));
    let mut left = vec![0; 4096];
    let length = rustix::fs::getxattr(&path, ATTRIBUTE, &mut left[..]).unwrap();
    let changes: [(&str, &dyn Fn()); 6] = [
        ("chmod", &|| fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap()),
        ("chown", &|| std::os::unix::fs::chown(&path, Some(1), None).unwrap()),
        ("setxattr", &|| setxattr(&path, "user.some", b"", XattrFlags::empty()).unwrap()),
        ("touch -a", &|| assert!(succeeds("touch", &["-a", path.to_str().unwrap()]))),
        ("link", &|| fs::hard_link(&path, &other).unwrap()),
        ("rename", &|| fs::rename(&other, path.with_file_name("again")).unwrap()),
    ];
    for (what, change) in changes {
        // The job was killed once more, when it had brought back what is there.
        setxattr(&path, ATTRIBUTE, &left[..length], XattrFlags::empty()).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut first = [0];
        file.read_exact_at(&mut first, 0).unwrap();
        file.write_all_at(&first, 0).unwrap();
        drop(file);
        let mount = Mount::share(&sandbox, "share");
        change();
        assert_eq!(modified(&path), UNIX_EPOCH + LONG_AGO, "{what}");
        mount.end();
        assert_eq!(modified(&path), UNIX_EPOCH + LONG_AGO, "below, after {what}");
    }
}

#[test]
fn r120_bytes_that_were_found_below_are_what_programs_read() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let path = sandbox.path("share/large");
    optimize(&sandbox);
    for (by_job, offset) in [(false, 1_000_000), (true, 2_000_000)] {
        // What a write leaves that a crash cut off; somebody has the file open below.
        let new = if by_job { b"by a job" } else { b"by hand!" };
        let below = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        below.write_all_at(new, offset).unwrap();
        below.sync_all().unwrap();
        let mount = Mount::share(&sandbox, "share");
        let at = |file: &File| {
            let mut read = [0; 8];
            file.read_exact_at(&mut read, offset).unwrap();
            read
        };
        assert_ne!(&at(&File::open(&path).unwrap()), new);
        drop(below);
        if by_job {
            let share = sandbox.arg("share");
            sandbox.run(&["share", "optimize", "--min-age", "30000d", &share]).expect(3);
        }
        for _ in 0..2 {
            assert_eq!(&at(&File::open(&path).unwrap()), new, "by a job: {by_job}");
        }
        mount.end();
    }
}

/// Programs that do all that needs no store, one after the other; how many answered.
fn without_store(share: &Path) -> std::sync::mpsc::Receiver<&'static str> {
    let (share, (done, is_done)) = (share.to_owned(), channel());
    std::thread::spawn(move || {
        let tell = |what| done.send(what).unwrap();
        for entry in fs::read_dir(&share).unwrap() {
            entry.unwrap().metadata().unwrap();
        }
        tell("listed");
        assert_eq!(fs::read(share.join("inner/small")).unwrap(), b"not worth it");
        tell("read a plain file");
        fs::write(share.join("new"), b"new").unwrap();
        set_modified(&share.join("new"), UNIX_EPOCH + LONG_AGO);
        fs::rename(share.join("new"), share.join("newer")).unwrap();
        fs::remove_file(share.join("newer")).unwrap();
        tell("made, dated, renamed and removed a file");
        let own = OpenOptions::new().read(true).write(true).open(share.join("inner/text")).unwrap();
        let mut read = [0; 4];
        own.read_exact_at(&mut read, 0).unwrap();
        own.write_all_at(&read, 0).unwrap();
        assert_eq!(&read, b"mine");
        tell("read and wrote a stub's own data");
    });
    is_done
}

#[test]
fn r120_a_store_that_hangs_hangs_nothing_that_needs_no_store() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    optimize(&sandbox);
    let share = sandbox.path("share");
    let mount = Mount::share(&sandbox, "share");
    let text = OpenOptions::new().write(true).open(share.join("inner/text")).unwrap();
    text.write_all_at(b"mine", 0).unwrap();
    drop(text);
    mount.end();
    // The store lies on a mount of its own that answers no more.
    let outer = Sandbox::with_store();
    outer.write("outer/one", b"");
    let outer_share = outer.arg("outer");
    outer.run(&["share", "create", &outer_share]).expect(0);
    let hanging = Mount::share(&outer, "outer");
    let moved = outer.path("outer/store");
    assert!(succeeds("cp", &["-a", &sandbox.arg("store"), moved.to_str().unwrap()]));
    let mut command = sandbox.command(&["share", "mount", &sandbox.arg("share")]);
    command.env("ONEFOLD_REPOSITORY", &moved);
    let mount = Mount::begin(command, &share, &|point| {
        rustix::fs::getxattr(point, BELOW_ATTRIBUTE, &mut [0; 64]).is_ok()
    });
    hanging.signal("-STOP");
    let (done, answered) = channel();
    for number in 0..12 {
        let (path, done) = (share.join("large"), done.clone());
        std::thread::spawn(move || {
            let mut read = [0; 4096];
            let file = File::open(path).unwrap();
            let _ = done.send(file.read_exact_at(&mut read, number * 200_000).is_ok());
        });
    }
    // Some of them wait for the store by then, or are about to.
    let _ = answered.recv_timeout(Duration::from_millis(500));
    let done = without_store(&share);
    let told: Vec<_> = (0..4).map_while(|_| done.recv_timeout(PATIENCE).ok()).collect();
    hanging.signal("-CONT");
    assert_eq!(told.len(), 4, "{told:?}, and no more while the store hangs");
    for _ in 0..11 {
        answered.recv_timeout(PATIENCE).expect("all that waited are answered");
    }
    assert!(share.join("large").metadata().unwrap().size() > 0);
    mount.end();
    hanging.end();
}
