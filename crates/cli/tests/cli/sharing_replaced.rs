//! A mount in the place of one that was killed: programs hear of an error until it answers, and
//! never see the bare directory, where what is optimised is zeros.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing::{assert_seen, optimize, seen, status, with_share};
use crate::sharing_covered::{Covered, cover};
use crate::support::Sandbox;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often a mount is killed and replaced.
const ROUNDS: usize = 6;

/// What programs have seen of a file, which is there and is not empty.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    whole: AtomicU64,
    refused: AtomicU64,
    other: Mutex<Vec<String>>,
}

impl Seen {
    /// Opens it and reads its first bytes until it is told to stop.
    fn look(&self, path: &Path, expected: &[u8]) {
        let mut bytes = vec![0; expected.len()];
        let is_refused = |error: &std::io::Error| {
            let codes = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
            error.raw_os_error().is_some_and(|code| codes.contains(&code))
        };
        while !self.stop.load(Ordering::Relaxed) {
            let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
            match read {
                Ok(()) if bytes == expected => self.whole.fetch_add(1, Ordering::Relaxed),
                Err(error) if is_refused(&error) => self.refused.fetch_add(1, Ordering::Relaxed),
                other => {
                    let told = other.map(|()| &bytes[..8]);
                    self.other.lock().unwrap().push(format!("{told:?}"));
                    0
                }
            };
        }
    }
}

/// Kills the mount of a share and mounts it again, while somebody reads a file of it.
fn replace_while_read(sandbox: &Sandbox, name: &str) {
    let path = sandbox.path("share").join(name);
    let mut mount = Mount::share(sandbox, "share");
    let expected = fs::read(&path).unwrap()[..1000].to_vec();
    assert!(expected.iter().any(|byte| *byte != 0));
    let seen = Seen::default();
    std::thread::scope(|scope| {
        scope.spawn(|| seen.look(&path, &expected));
        for _ in 0..ROUNDS {
            mount.kill();
            std::thread::sleep(Duration::from_millis(50));
            mount = Mount::share(sandbox, "share");
            std::thread::sleep(Duration::from_millis(50));
        }
        seen.stop.store(true, Ordering::Relaxed);
        mount.end();
    });
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert!(of(&seen.whole) > 0 && of(&seen.refused) > 0);
    let other = seen.other.into_inner().unwrap();
    assert!(other.is_empty(), "{} times, first {}", other.len(), other[0]);
}

#[test]
fn nobody_sees_the_bare_directory_when_a_killed_mount_is_replaced() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    optimize(&sandbox);
    replace_while_read(&sandbox, "large");
    // The same where the share is the top of what is mounted there, as a disk of its own is, and
    // where what is mounted in it is mounted elsewhere as well.
    let share = sandbox.arg("share");
    assert!(succeeds("mount", &["--bind", &share, &share]));
    let _disk = Covered(share.clone());
    replace_while_read(&sandbox, "large");
    assert!(succeeds("mount", &["--make-shared", &share]));
    replace_while_read(&sandbox, "large");
}

#[test]
fn a_mount_in_the_place_of_a_killed_one_shows_what_is_mounted_inside_and_jobs_look_below() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    fs::create_dir(share.join("bound")).unwrap();
    for (seed, name) in [(11, "bound/file"), (12, "single")] {
        fs::write(share.join(name), random_bytes(seed, 300_000)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let before = seen(&share);
    optimize(&sandbox);
    let covered = cover(&sandbox);
    Mount::share(&sandbox, "share").kill();
    let mount = Mount::share(&sandbox, "share");
    assert!(fs::read(share.join("single")).unwrap() == b"other");
    assert!(fs::read(share.join("bound/other")).unwrap() == b"other");
    assert_eq!(fs::read_dir(share.join("inner")).unwrap().count(), 0);
    fs::write(share.join("new"), random_bytes(13, 400_000)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let ran = optimize(&sandbox);
    let did = ["files_optimized", "manifests_forgotten", "manifests_kept", "errors"];
    assert_eq!(did.map(|one| ran[one].as_u64().unwrap()), [1, 1, 0, 0], "{ran}");
    assert_eq!(status(&sandbox)["mounted"], true);
    fs::remove_file(share.join("new")).unwrap();
    mount.end();
    drop(covered);
    let mount = Mount::share(&sandbox, "share");
    assert_seen(&before, &share);
    mount.end();
}

#[test]
fn leftovers_that_lie_on_one_another_hide_nothing() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = seen(&share);
    optimize(&sandbox);
    Mount::share(&sandbox, "share").kill();
    // As a process leaves two that is killed when its mount lies beneath a leftover, and others
    // after it.
    for _ in 0..100 {
        rustix::mount::mount_bind(&share, &share).unwrap();
    }
    let mount = Mount::share(&sandbox, "share");
    assert_seen(&before, &share);
    mount.end();
    let dead = sandbox.run(&["share", "status", &sandbox.arg("share")]);
    assert!(dead.stderr.contains("its mount was killed"), "{}", dead.stderr);
    let mount = Mount::share(&sandbox, "share");
    assert_seen(&before, &share);
    mount.end();
    // Each goes as one does.
    for _ in 0..99 {
        sandbox.run(&["share", "unmount", &sandbox.arg("share")]).expect(0);
    }
    assert_eq!(status(&sandbox)["mounted"], false);
}
