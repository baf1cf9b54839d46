//! Shares of users other than root, and of services whose rights are bounded.
//!
//! It takes root, the device of FUSE and `setpriv`. Where one is missing, standard error says so.

use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing::{assert_seen, seen, status, with_share};
use crate::support::{Run, Sandbox};
use onefold_lease::Lease;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Nobody: a user who has nothing.
pub const NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
/// What lets a user mount without the help of fusermount3.
const MAY_MOUNT: [&str; 4] =
    ["--inh-caps", "+sys_admin,+dac_override", "--ambient-caps", "+sys_admin,+dac_override"];

/// The binary, run by another user or with other rights.
pub fn command_as(sandbox: &Sandbox, how: &[&str], arguments: &[&str]) -> Command {
    let told = sandbox.command(arguments);
    let mut command = Command::new("setpriv");
    let environment = told.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command
        .args(how)
        .arg(told.get_program())
        .args(told.get_args())
        .env_clear()
        .envs(environment)
        .current_dir(sandbox.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn run_as(sandbox: &Sandbox, how: &[&str], arguments: &[&str]) -> Run {
    sandbox.run_command(command_as(sandbox, how, arguments))
}

/// Whether the binary can be run with other rights here; says so if not.
pub fn can_change_rights() -> bool {
    let sandbox = Sandbox::empty();
    succeeds("chown", &["-R", "65534:65534", &sandbox.arg("")]);
    let can = succeeds("setpriv", &["--version"])
        && run_as(&sandbox, &NOBODY, &["version"]).code == 0
        && succeeds("setpriv", &[&NOBODY[..], &MAY_MOUNT, &["true"]].concat());
    if !can {
        eprintln!("SKIPPED: other users were not tested: it takes root and the program setpriv");
    }
    can
}

/// A share, its store and all that is around them, of nobody.
pub fn of_nobody() -> Sandbox {
    let sandbox = with_share();
    assert!(succeeds("chown", &["-R", "65534:65534", &sandbox.arg("")]));
    // Its owner has changed, and with it the time that counts.
    std::thread::sleep(Duration::from_millis(100));
    sandbox
}

fn read_by_nobody(sandbox: &Sandbox, name: &str) -> Vec<u8> {
    let read = Command::new("setpriv").args(NOBODY).arg("cat").arg(sandbox.path(name)).output();
    read.unwrap().stdout
}

/// Whether a user may mount alone; says so if not.
fn may_mount_alone() -> bool {
    let device = fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o6 == 0o6);
    let may = device && succeeds("fusermount3", &["--version"]);
    if !may {
        eprintln!(
            "SKIPPED: mounting without rights was not tested: it takes fusermount3 and /dev/fuse \
             that is open to all"
        );
    }
    may
}

#[test]
fn users_do_all_with_the_share_that_they_have_mounted_themselves() {
    if !can_mount() || !can_change_rights() {
        return;
    }
    let mut ways = vec![[&NOBODY[..], &MAY_MOUNT].concat()];
    if may_mount_alone() {
        ways.push(NOBODY.to_vec());
    }
    for way in ways {
        let sandbox = of_nobody();
        let share = sandbox.arg("share");
        let large = fs::read(sandbox.path("share/large")).unwrap();
        let run = |arguments: &[&str]| run_as(&sandbox, &NOBODY, arguments);
        let mount = Mount::share_as(&sandbox, "share", &way);
        let optimized = run(&["--json", "share", "optimize", &share]).expect(0);
        assert_eq!(optimized.message("optimized")["files_optimized"], 4);
        let known = run(&["--json", "share", "status", &share]).expect(0).message("share_status");
        assert_eq!((&known["mounted"], &known["files_optimized"]), (&true.into(), &4.into()));
        assert!(read_by_nobody(&sandbox, "share/large") == large);
        // Root cannot look into what a user has mounted for himself; his jobs look below.
        assert!(fs::read(sandbox.path("share/large")).is_err());
        assert_eq!(status(&sandbox)["files_optimized"], 4);
        let scrub = ["share", "run", &share, "--pressure", "off", "--no-collect"];
        run(&scrub).expect(0);
        run(&["share", "rehydrate", &share]).expect(0);
        let known = run(&["--json", "share", "status", &share]).expect(0).message("share_status");
        assert_eq!(known["files_optimized"], 0);
        let again = run(&["share", "mount", &share]);
        assert_eq!(again.code, 13, "{}", again.stderr);
        let unmounted = run(&["share", "unmount", &share]);
        if succeeds("fusermount3", &["--version"]) {
            unmounted.expect(0);
        } else {
            assert!(unmounted.expect(11).stderr.contains("fusermount3"));
            eprintln!("SKIPPED: unmounting without rights was not tested: it takes fusermount3");
            sandbox.run(&["share", "unmount", &share]).expect(0);
        }
        drop(mount);
        assert!(fs::read(sandbox.path("share/large")).unwrap() == large);
    }
}

#[test]
fn a_mount_of_a_user_that_was_killed_says_so_and_is_taken_away() {
    if !can_mount() || !can_change_rights() {
        return;
    }
    let sandbox = of_nobody();
    let share = sandbox.arg("share");
    for way in [&[&NOBODY[..], &MAY_MOUNT].concat()[..], &[]] {
        Mount::share_as(&sandbox, "share", way).kill();
        if !way.is_empty() {
            let dead = run_as(&sandbox, &NOBODY, &["share", "status", &share]);
            assert!(dead.stderr.contains("its mount was killed"), "{}", dead.stderr);
        }
        if succeeds("fusermount3", &["--version"]) && !way.is_empty() {
            run_as(&sandbox, &NOBODY, &["share", "unmount", &share]).expect(0);
        } else {
            sandbox.run(&["share", "unmount", &share]).expect(0);
        }
        assert_eq!(status(&sandbox)["mounted"], false);
    }
}

#[test]
fn nobody_looks_below_the_mount_of_another_user_but_root() {
    if !can_mount() || !can_change_rights() {
        return;
    }
    let sandbox = of_nobody();
    let share = sandbox.arg("share");
    let mount = Mount::share(&sandbox, "share");
    let unmounted = run_as(&sandbox, &NOBODY, &["share", "unmount", &share]);
    assert!(unmounted.stderr.contains("cannot be unmounted by this user"), "{unmounted:?}");
    for command in ["status", "optimize", "rehydrate", "mount"] {
        let refused = run_as(&sandbox, &NOBODY, &["share", command, &share]);
        assert!(refused.code != 0, "{command}");
        assert!(refused.stderr.contains("mounted by user 0"), "{command}: {}", refused.stderr);
    }
    // Looking into the memory of other processes is no right that it takes.
    let bounded = ["--bounding-set", "-sys_ptrace"];
    run_as(&sandbox, &bounded, &["share", "status", &share]).expect(0);
    run_as(&sandbox, &bounded, &["share", "optimize", &share]).expect(0);
    mount.end();
}

#[test]
fn a_mount_that_hangs_is_an_error_and_no_job_that_hangs() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.arg("share");
    let before = seen(&sandbox.path("share"));
    let mount = Mount::share(&sandbox, "share");
    mount.signal("-STOP");
    for command in ["status", "optimize"] {
        let hung = sandbox.run(&["share", command, &share]);
        assert!(hung.stderr.contains("does not answer"), "{command}: {}", hung.stderr);
        assert!(hung.code != 0);
    }
    mount.signal("-CONT");
    sandbox.run(&["share", "status", &share]).expect(0);
    assert_seen(&before, &sandbox.path("share"));
    // Nobody has to answer for it to be taken away.
    mount.signal("-STOP");
    sandbox.run(&["share", "unmount", &share]).expect(0);
    mount.signal("-CONT");
    drop(mount);
    assert_seen(&before, &sandbox.path("share"));
}

/// Whether somebody waits for the lease of an inode.
fn is_awaited(inode: u64) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let of_it = format!(":{inode} ");
    locks.lines().any(|line| line.contains("BREAKING") && line.contains(&of_it))
}

#[test]
fn what_is_being_opened_when_it_loses_its_name_keeps_its_data() {
    if !can_mount() {
        return;
    }
    for is_replaced in [false, true] {
        let sandbox = with_share();
        let share = sandbox.path("share");
        let text = fs::read(share.join("inner/text")).unwrap();
        crate::sharing::optimize(&sandbox);
        let below = File::options().read(true).write(true).open(share.join("inner/text")).unwrap();
        let inode = below.metadata().unwrap().ino();
        let mount = Mount::share(&sandbox, "share");
        fs::write(share.join("new"), b"new").unwrap();
        // Whoever opens the file waits for the lease, half way.
        let lease = Lease::take(&below).unwrap().unwrap();
        let path = share.join("inner/text");
        let opening = std::thread::spawn(move || File::open(path).unwrap());
        crate::mounted::wait_until("the file is being opened", || is_awaited(inode));
        let (done, is_done) = channel();
        let (new, path) = (share.join("new"), share.join("inner/text"));
        let taking = std::thread::spawn(move || {
            match is_replaced {
                true => fs::rename(new, &path).unwrap(),
                false => fs::remove_file(&path).unwrap(),
            }
            done.send(()).unwrap();
        });
        // It has to wait in its turn. If it did not, it would be done by now.
        let _ = is_done.recv_timeout(Duration::from_secs(1));
        drop(lease);
        drop(below);
        let open = opening.join().unwrap();
        taking.join().unwrap();
        assert_eq!(share.join("inner/text").exists(), is_replaced);
        crate::sharing::optimize(&sandbox);
        sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
        let mut read = vec![0; text.len()];
        open.read_exact_at(&mut read, 0).unwrap();
        assert!(read == text);
        drop(open);
        mount.end();
    }
}

#[test]
fn what_cannot_be_read_is_told_once_by_all_turns_of_a_divided_run() {
    if !can_change_rights() {
        return;
    }
    let sandbox = with_share();
    for name in ["a.txt", "b.jpg", "c.zip"] {
        fs::write(sandbox.path("share").join(name), name.repeat(10_000)).unwrap();
    }
    assert!(succeeds("chown", &["-R", "65534:65534", &sandbox.arg("")]));
    let closed = sandbox.path("share/inner/most");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let share = sandbox.arg("share");
    for (how, parts) in [("type", 4), ("path", 3)] {
        let arguments = ["--json", "share", "optimize", &share, "--partitions", how];
        let run = run_as(&sandbox, &NOBODY, &arguments).expect(3);
        let report = run.message("optimized");
        assert!(report["partitions"].as_array().unwrap().len() >= parts, "{report}");
        assert_eq!(report["errors"], 1, "{report}");
        assert_eq!(run.stderr.matches("/inner/most").count(), 1, "{}", run.stderr);
    }
}
