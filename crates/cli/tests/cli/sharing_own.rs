//! A share that a user other than root has mounted himself, and what he does with files whose
//! permissions keep him from opening them once more.
//!
//! It takes root, `setpriv` and a device of FUSE that is open to all. Where one is missing,
//! standard error says so. Nobody but that user may look into his mount, so each test runs itself
//! once more, as him, for what programs do.

use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing_random::{Figures, Operation, Pair, Random, Stops, asked, count, work};
use crate::sharing_users::{NOBODY, can_change_rights, command_as, of_nobody, run_as};
use crate::support::Sandbox;
use onefold_lease::Lease;
use onefold_types::environment::SeededRandomness;
use rustix::fs::{FallocateFlags, Mode, fallocate, fchmod};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the test that runs once more finds what it is about.
const DIRECTORY: &str = "ONEFOLD_TEST_DIRECTORY";
/// He may mount, and no permissions are waived.
const MAY_MOUNT: [&str; 4] = ["--inh-caps", "+sys_admin", "--ambient-caps", "+sys_admin"];
/// Operations, unless somebody asks for more.
const OPERATIONS: u64 = 600;
/// How long a file server keeps a file that somebody waits for.
const LEASED: Duration = Duration::from_secs(4);
/// What is done at once is done by then.
const MOMENT: Duration = Duration::from_millis(500);
/// Files are closed after so many.
const ROUND: u64 = 60;

/// Whether a user may mount here; says so if not.
fn can_users_mount() -> bool {
    let is_open = fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o6 == 0o6);
    if !is_open {
        eprintln!("SKIPPED: mounts of users were not tested: /dev/fuse is not open to all");
    }
    is_open && can_mount() && can_change_rights()
}

fn mounted(sandbox: &Sandbox) -> Mount {
    Mount::share_as(sandbox, "share", &[&NOBODY[..], &MAY_MOUNT].concat())
}

/// What a test does as nobody; `None` if it is to prepare that.
fn directory_of_nobody() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs a test of this module once more, as nobody.
fn run_again_as_nobody(test: &str, directory: &Path) {
    let mut command = Command::new("setpriv");
    command.args(NOBODY).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("sharing_own::{test}"), "--nocapture"]);
    let run = command.env(DIRECTORY, directory).current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let errors = String::from_utf8_lossy(&run.stderr);
    eprint!("{errors}");
    assert!(run.status.success() && said.contains("1 passed"), "{said}\n{errors}");
}

fn made(path: &Path, mode: u32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(mode).open(path).unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// All that a descriptor allows, whatever the permissions have become.
fn use_descriptor(file: &File) {
    let mut expected = file.metadata().unwrap().len() as usize;
    for mode in [None, Some(0o444), Some(0o200), Some(0)] {
        if let Some(mode) = mode {
            fchmod(file, Mode::from_raw_mode(mode)).unwrap();
        }
        file.write_all_at(b"written", 100_000).unwrap();
        expected = expected.max(100_007);
        let mut read = [0; 7];
        file.read_exact_at(&mut read, 100_000).unwrap();
        assert_eq!(&read, b"written", "{mode:?}");
        let keeps = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, keeps, 100_001, 2).unwrap();
        fallocate(file, FallocateFlags::empty(), 0, 10).unwrap();
        file.read_exact_at(&mut read, 100_000).unwrap();
        assert_eq!(&read, b"w\0\0tten", "{mode:?}");
        file.set_len(expected as u64 + 5).unwrap();
        file.set_len(expected as u64).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len() as usize, expected, "{mode:?}");
    }
}

#[test]
fn r117_what_a_user_has_made_or_opened_he_may_use_whatever_its_permissions_are() {
    let test = "r117_what_a_user_has_made_or_opened_he_may_use_whatever_its_permissions_are";
    if let Some(directory) = directory_of_nobody() {
        let share = directory.join("share");
        for mode in [0o644, 0o444, 0o200, 0] {
            let path = share.join(format!("made {mode:o}"));
            use_descriptor(&made(&path, mode));
            // Whoever may not read it moves and removes it all the same.
            set_mode(&path, 0);
            fs::rename(&path, share.join("moved")).unwrap();
            fs::remove_file(share.join("moved")).unwrap();
        }
        let mut write_only = OpenOptions::new();
        write_only.write(true).create_new(true).mode(0o200);
        write_only.open(share.join("drop")).unwrap().write_all_at(b"dropped", 0).unwrap();
        let again = OpenOptions::new().write(true).open(share.join("drop")).unwrap();
        again.write_all_at(b"D", 0).unwrap();
        set_mode(&share.join("drop"), 0o600);
        assert_eq!(fs::read(share.join("drop")).unwrap(), b"Dropped");
        use_stubs(&share);
        return;
    }
    if !can_users_mount() {
        return;
    }
    let sandbox = of_nobody();
    set_mode(&sandbox.path("share/inner/copy of it"), 0o444);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mount = mounted(&sandbox);
    let share = sandbox.arg("share");
    let did = run_as(&sandbox, &NOBODY, &["--json", "share", "optimize", &share]).expect(0);
    assert_eq!(did.message("optimized")["files_optimized"], 4);
    run_again_as_nobody(test, &sandbox.path(""));
    // Nor do they keep his jobs from his files.
    run_as(&sandbox, &NOBODY, &["share", "rehydrate", &share]).expect(0);
    mount.end();
    let known = sandbox.path("share/large").metadata().unwrap();
    assert!(known.mode() & 0o777 == 0o444 && known.blocks() > 0, "{known:?}");
}

/// The same with stubs: `large`, which has two names more, and `inner/text`.
fn use_stubs(share: &Path) {
    let text = share.join("inner/text");
    let before = fs::read(&text).unwrap();
    // Opened by one who may read it, before one who may write it comes.
    set_mode(&text, 0o444);
    let reading = File::open(&text).unwrap();
    set_mode(&text, 0o600);
    let writing = OpenOptions::new().write(true).open(&text).unwrap();
    writing.write_all_at(b"changed", 70_000).unwrap();
    let mut read = [0; 7];
    reading.read_exact_at(&mut read, 70_000).unwrap();
    assert_eq!(&read, b"changed");
    drop((reading, writing));
    let stub = OpenOptions::new().read(true).write(true).open(&text).unwrap();
    use_descriptor(&stub);
    drop(stub);
    set_mode(&text, 0o600);
    let after = fs::read(&text).unwrap();
    assert!(after[..10] == before[..10] && after[120_000..] == before[120_000..]);
    // What may not be read is open, loses its name, and is read.
    let copy = share.join("inner/copy of it");
    let expected = fs::read(&copy).unwrap();
    let open = File::open(&copy).unwrap();
    set_mode(&copy, 0);
    fs::rename(&copy, share.join("elsewhere")).unwrap();
    fs::remove_file(share.join("elsewhere")).unwrap();
    let mut read = vec![0; expected.len()];
    open.read_exact_at(&mut read, 0).unwrap();
    assert!(read == expected);
    let write_only = share.join("large");
    set_mode(&write_only, 0o200);
    OpenOptions::new().write(true).open(&write_only).unwrap().write_all_at(b"blind", 5).unwrap();
    set_mode(&write_only, 0o600);
    assert_eq!(&fs::read(&write_only).unwrap()[5..10], b"blind");
    set_mode(&write_only, 0o444);
}

#[test]
fn r117_programs_that_make_files_read_only_work_in_a_users_own_mount() {
    let test = "r117_programs_that_make_files_read_only_work_in_a_users_own_mount";
    if let Some(directory) = directory_of_nobody() {
        let share = directory.join("share");
        let does = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-ec", script]).current_dir(&share).env("HOME", &share);
            let run = command.output().unwrap();
            assert!(run.status.success(), "{script}: {}", String::from_utf8_lossy(&run.stderr));
        };
        does("umask 022; echo kept > file; chmod 444 file; cp -p file copy; cmp file copy");
        does("test $(stat -c %a copy) = 444; rm -f copy; cp file copy; mv -f copy file");
        if succeeds("tar", &["--version"]) {
            does("tar -cf all.tar file; mkdir out; tar -xpf all.tar -C out; cmp file out/file");
        }
        if succeeds("git", &["--version"]) {
            let git = "git -c user.name=n -c user.email=e@example.com";
            does(&format!(
                "git init -q work; cd work; cp ../file .; git add file; {git} commit -qm 1"
            ));
            does(&format!(
                "cd work; echo more >> file || chmod u+w file; echo more >> file; \
                           {git} commit -qam 2; git gc -q; git fsck --strict; \
                           git clone -q . ../clone; git -C ../clone log --oneline | grep -c ."
            ));
        } else {
            eprintln!("SKIPPED: git in a user's mount was not tested: it is not there");
        }
        return;
    }
    if !can_users_mount() {
        return;
    }
    let sandbox = of_nobody();
    let mount = mounted(&sandbox);
    run_again_as_nobody(test, &sandbox.path(""));
    mount.end();
}

/// Random operations, with names and permissions that change, while jobs run.
fn operate(directory: &Path) {
    let seed = asked("ONEFOLD_SHARE_SEED", 3);
    let random = Random(SeededRandomness::new(seed));
    let never = AtomicBool::new(false);
    let names = ["file 0", "file 1"];
    let mut done = 0;
    while done < asked("ONEFOLD_SHARE_OPERATIONS", OPERATIONS) {
        let pairs = names.map(|name| Pair::open_in(directory, name));
        for _ in 0..ROUND {
            let pair = &pairs[random.below(2) as usize];
            let (path, other) = (directory.join("share").join(&pair.name), "renamed");
            match random.below(8) {
                0 => {
                    let mode = [0o600, 0o444, 0o200, 0][random.below(4) as usize];
                    fchmod(&pair.shared, Mode::from_raw_mode(mode)).unwrap();
                }
                1 => {
                    fs::rename(&path, path.with_file_name(other)).unwrap();
                    fs::rename(path.with_file_name(other), &path).unwrap();
                }
                _ => {
                    let operation = Operation::any(&random, pair.size(), 2_000_000);
                    assert!(pair.step(&operation, &never), "seed {seed}: {operation}");
                }
            }
            done += 1;
        }
        for pair in &pairs {
            pair.compare(&format!("seed {seed}, after {done}"));
            fchmod(&pair.shared, Mode::from_raw_mode(0o600)).unwrap();
        }
    }
    eprintln!("seed {seed}: {done} operations");
}

#[test]
fn r117_what_was_written_below_into_a_read_only_stub_is_what_its_owner_reads() {
    let test = "r117_what_was_written_below_into_a_read_only_stub_is_what_its_owner_reads";
    if let Some(directory) = directory_of_nobody() {
        let read = fs::read(directory.join("share/inner/text")).unwrap();
        assert!(read.starts_with(b"written below"), "{:?}", &read[..13]);
        return;
    }
    if !can_users_mount() {
        return;
    }
    let sandbox = of_nobody();
    let text = sandbox.path("share/inner/text");
    set_mode(&text, 0o444);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let share = sandbox.arg("share");
    let did = run_as(&sandbox, &NOBODY, &["--json", "share", "optimize", &share]).expect(0);
    assert_eq!(did.message("optimized")["files_optimized"], 4);
    let below = OpenOptions::new().write(true).open(&text).unwrap();
    below.write_all_at(b"written below", 0).unwrap();
    below.sync_all().unwrap();
    drop(below);
    let mount = mounted(&sandbox);
    run_again_as_nobody(test, &sandbox.path(""));
    mount.end();
    assert_eq!(text.metadata().unwrap().mode() & 0o7777, 0o444);
}

#[test]
fn r118_a_file_under_a_lease_keeps_nobody_from_changing_permissions_of_others() {
    let test = "r118_a_file_under_a_lease_keeps_nobody_from_changing_permissions_of_others";
    if let Some(directory) = directory_of_nobody() {
        let share = directory.join("share");
        let leased = share.join("inner/small");
        let opening = std::thread::spawn(move || OpenOptions::new().write(true).open(leased));
        std::thread::sleep(MOMENT);
        let begun = Instant::now();
        set_mode(&share.join("large"), 0o600);
        assert!(begun.elapsed() < LEASED / 2, "{:?}", begun.elapsed());
        assert!(!opening.is_finished());
        opening.join().unwrap().unwrap();
        return;
    }
    if !can_users_mount() {
        return;
    }
    let sandbox = of_nobody();
    set_mode(&sandbox.path("share/inner/small"), 0o200);
    let leased = OpenOptions::new().write(true).open(sandbox.path("share/inner/small")).unwrap();
    let mount = mounted(&sandbox);
    let server = std::thread::spawn(move || {
        let lease = Lease::take(&leased).unwrap().unwrap();
        crate::mounted::wait_until("somebody asks for it", || !lease.is_held().unwrap());
        std::thread::sleep(LEASED);
    });
    run_again_as_nobody(test, &sandbox.path(""));
    server.join().unwrap();
    mount.end();
}

#[test]
fn files_of_a_users_own_mount_are_what_plain_files_are_whatever_happens() {
    if let Some(directory) = directory_of_nobody() {
        return operate(&directory);
    }
    if !can_users_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    for (number, bytes) in [(0, 300_000), (1, 2_000_000)] {
        let bytes = crate::collecting::random_bytes(number, bytes);
        for directory in ["share", "plain"] {
            sandbox.write(&format!("{directory}/file {number}"), &bytes);
        }
    }
    assert!(succeeds("chown", &["-R", "65534:65534", &sandbox.arg("")]));
    let share = sandbox.arg("share");
    let create = ["share", "create", "--min-age", "0s", "--min-size", "1", &share];
    run_as(&sandbox, &NOBODY, &create).expect(0);
    let mount = mounted(&sandbox);
    let (stop, figures) = (AtomicBool::new(false), Figures::default());
    std::thread::scope(|scope| {
        let random = Random(SeededRandomness::new(asked("ONEFOLD_SHARE_SEED", 3) + 1));
        let (sandbox, stop, figures) = (&sandbox, &stop, &figures);
        scope.spawn(move || {
            let begin = |arguments: &[&str]| command_as(sandbox, &NOBODY, arguments);
            work(&begin, &sandbox.arg("share"), &random, (stop, figures));
        });
        let _stops = Stops(stop);
        // Jobs have made stubs before anything is done with them.
        crate::mounted::wait_until("files are optimised", || {
            figures.files_optimized.load(Ordering::Relaxed) > 0
        });
        let test = "files_of_a_users_own_mount_are_what_plain_files_are_whatever_happens";
        run_again_as_nobody(test, &sandbox.path(""));
        count(&figures.operations, 1);
    });
    eprintln!("{figures:?}");
    mount.end();
    run_as(&sandbox, &NOBODY, &["share", "rehydrate", &share]).expect(0);
    for name in ["file 0", "file 1"] {
        let read = |directory: &str| fs::read(sandbox.path(directory).join(name)).unwrap();
        assert!(read("share") == read("plain"), "{name} brought back");
    }
}
