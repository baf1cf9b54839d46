//! What can be read is saved, and what is left out is not looked at (R101).
//!
//! Some of it takes root, or file systems that are not everywhere. Where they are missing, standard
//! error says so.

use crate::mounted::succeeds;
use crate::sharing_users::{NOBODY, can_change_rights, run_as};
use crate::support::{Run, Sandbox, holds};
use onefold_lease::Lease;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What waits longer for something than this waits in vain.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a command while this process holds a lease of a file; once somebody waits for that, `then`
/// is done with the file and the lease given back.
#[track_caller]
pub fn run_beside_lease(
    sandbox: &Sandbox,
    name: &str,
    arguments: &[&str],
    then: &dyn Fn(&File),
) -> Run {
    let file = File::options().read(true).append(true).open(sandbox.path(name)).unwrap();
    let begun = Instant::now();
    // A process that another test begins has it open as well until it is another program.
    let lease = loop {
        match Lease::take(&file).unwrap() {
            Some(lease) => break lease,
            None => assert!(begun.elapsed() < PATIENCE, "somebody has {name} open"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut child = sandbox.command(arguments).spawn().unwrap();
    let begun = Instant::now();
    while lease.is_held().unwrap() {
        if begun.elapsed() > PATIENCE || child.try_wait().unwrap().is_some() {
            let _ = child.kill();
            panic!("nobody opens {name}: {:?}", Run::of(child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    then(&file);
    drop(lease);
    drop(file);
    Run::of(child.wait_with_output().unwrap())
}

#[test]
fn r101_files_under_a_lease_are_read() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    let command: [&[&str]; 2] = [&["backup", &source, "--force"], &["share", "estimate", &source]];
    for command in command {
        for name in ["source/one.txt", "source/deep/two.txt"] {
            let run = run_beside_lease(&sandbox, name, command, &|_| ()).expect(0);
            assert!(!run.stderr.contains("error"), "{}", run.stderr);
        }
    }
    sandbox.run(&["restore", "latest", "--target", "restored"]).expect(0);
    let restored = sandbox.path("restored").join(source.trim_start_matches('/'));
    assert!(holds(&restored.join("one.txt"), b"one\n"));
    // So is the mark of a cache.
    sandbox.write("source/cache/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55");
    sandbox.write("source/cache/data", b"x");
    let arguments = ["backup", &source, "--exclude-caches"];
    run_beside_lease(&sandbox, "source/cache/CACHEDIR.TAG", &arguments, &|_| ()).expect(0);
    assert!(!sandbox.run(&["ls", "latest"]).expect(0).stdout.contains("cache/data"));
}

#[test]
fn r101_a_share_takes_files_under_a_lease() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    sandbox.run(&["share", "create", "--min-age", "0s", &source]).expect(0);
    let arguments = ["--json", "share", "optimize", &source];
    let run = run_beside_lease(&sandbox, "source/deep/two.txt", &arguments, &|_| ()).expect(0);
    assert!(!run.stderr.contains("two.txt"), "{}", run.stderr);
    assert_eq!(run.message("optimized")["files_open"], 0);
}

/// A directory on a file system that takes many attributes; none if there is none here.
fn with_attributes() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in("/dev/shm").ok()?;
    let root = directory.path();
    fs::create_dir_all(root.join("listed/inner")).unwrap();
    for name in ["large", "long", "listed/inner/file", "first", "sound"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::hard_link(root.join("first"), root.join("second")).unwrap();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(root.join(name), attribute, value, flags).is_ok()
    };
    let values = |name: &str| {
        (0..9).all(|number| set(name, &format!("user.{number}"), &vec![b'v'; 64 << 10]))
    };
    let names = |name: &str| {
        (0..300).all(|number| set(name, &format!("user.{number}{}", "x".repeat(240)), b"1"))
    };
    let all = values("large") && values("first") && names("long") && names("listed");
    let all = all && set("sound", "user.a", b"1");
    if !all {
        eprintln!("SKIPPED: attributes were not tested: /dev/shm does not take many of them");
    }
    all.then_some(directory)
}

#[test]
fn r101_attributes_that_cannot_be_saved_cost_no_data() {
    let sandbox = Sandbox::with_store();
    let Some(directory) = with_attributes() else { return };
    let root = directory.path().to_str().unwrap();
    // Also if nothing changes it is said again.
    for _ in 0..2 {
        let run = sandbox.run(&["backup", root]).expect(3);
        for name in ["large", "long", "listed"] {
            let path = format!("{root}/{name}: ");
            let told = run.stderr.lines().filter(|line| line.contains(&path));
            assert_eq!(told.count(), 1, "{name} in {}", run.stderr);
        }
        assert!(!run.stderr.contains("sound"), "{}", run.stderr);
    }
    let restored = tempfile::tempdir_in("/dev/shm").unwrap();
    let target = restored.path().to_str().unwrap();
    sandbox.run(&["restore", &format!("latest:{root}"), "--target", target]).expect(0);
    for name in ["large", "long", "listed/inner/file", "first", "sound"] {
        assert!(holds(&restored.path().join(name), name.as_bytes()), "{name}");
    }
    assert!(holds(&restored.path().join("second"), b"first"));
    let value = rustix::fs::getxattr(restored.path().join("large"), "user.0", &mut [0; 1 << 17]);
    assert_eq!(value, Ok(64 << 10), "those that can be saved are");
}

/// A mount whose server is gone; none if nothing can be mounted here.
struct DeadMount(PathBuf);

impl DeadMount {
    fn on(point: &Path) -> Option<Self> {
        fs::create_dir_all(point).unwrap();
        let server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let data = CString::new(data).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let mounted = rustix::mount::mount("gone:", point, "fuse.sshfs", flags, &*data);
        if mounted.is_err() {
            eprintln!("SKIPPED: dead mounts were not tested: it takes /dev/fuse and root");
        }
        mounted.ok().map(|()| Self(point.to_owned()))
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn r101_what_is_left_out_is_not_looked_at() {
    let sandbox = Sandbox::with_source();
    let Some(_dead) = DeadMount::on(&sandbox.path("source/dead mount")) else { return };
    let source = sandbox.arg("source");
    let absolute = sandbox.arg("source/dead mount");
    // It is an error if nothing leaves it out.
    let run = sandbox.run(&["backup", &source]).expect(3);
    assert!(run.stderr.contains("dead mount"), "{}", run.stderr);
    let directory = format!("{absolute}/");
    for pattern in ["dead mount", "dead mount/", "dead*", &absolute, &directory] {
        let run = sandbox.run(&["backup", &source, "--exclude", pattern]).expect(0);
        assert!(!run.stderr.contains("matched nothing"), "{pattern}: {}", run.stderr);
        assert!(run.stdout.contains("left out: 1 item by patterns"), "{pattern}: {}", run.stdout);
        sandbox.run(&["backup", &source, "--iexclude", &pattern.to_uppercase()]).expect(0);
        let estimate = ["share", "estimate", &source, "--exclude", pattern];
        sandbox.run(&[&estimate[..], &["--other-file-systems"]].concat()).expect(0);
    }
    // A mount on another file system is none that is to be looked at, and stays a directory.
    let run = sandbox.run(&["backup", &source, "--one-file-system"]).expect(0);
    assert!(run.stdout.contains("left out: 1 mount"), "{}", run.stdout);
    assert!(sandbox.run(&["ls", "latest"]).expect(0).stdout.contains("dead mount"));
    sandbox.run(&["share", "estimate", &source]).expect(0);
    // Also where a link leads to the source.
    std::os::unix::fs::symlink(&source, sandbox.path("link")).unwrap();
    let below = sandbox.arg("link/deep/..");
    sandbox.run(&["backup", &below, "-x"]).expect(0);
}

#[test]
fn r101_patterns_are_any_bytes() {
    let sandbox = Sandbox::with_source();
    let latin = OsString::from_vec(b"caf\xe9.txt".to_vec());
    let source = sandbox.path("source");
    fs::write(source.join(&latin), b"x").unwrap();
    let listed = || sandbox.run(&["ls", "latest"]).expect(0).stdout;
    sandbox.backup(&[]);
    assert!(listed().contains("caf"));
    sandbox.write("patterns", b"# Latin 1\r\ncaf\xe9.*\r\n*.TXT\n");
    let run = sandbox.run(&["backup", "source", "--exclude-file", &sandbox.arg("patterns")]);
    assert!(!run.expect(0).stderr.contains("matched nothing"));
    assert!(!listed().contains("caf") && !listed().contains("Three"), "{}", listed());
    let mut command = sandbox.command(&["backup", "source", "--exclude"]);
    command.arg(&latin);
    let run = Run::of(command.output().unwrap()).expect(0);
    assert!(!listed().contains("caf") && listed().contains("Three"), "{}", run.stdout);
    let mut command = sandbox.command(&["share", "estimate", "source", "--exclude"]);
    let run = Run::of(command.arg(&latin).output().unwrap()).expect(0);
    assert!(!run.stderr.contains("matched nothing"), "{}", run.stderr);
    // One that meets nothing is shown in letters.
    let mut command = sandbox.command(&["backup", "source", "--exclude"]);
    let run = Run::of(command.arg(OsStr::from_bytes(b"\xff\xfe")).output().unwrap());
    assert!(run.expect(0).stderr.contains("'\\xff\\xfe' matched nothing"));
}

/// A directory that may be listed and not entered does not lead back to those above it.
#[test]
fn r101_what_lies_beside_a_deep_directory_that_may_not_be_entered_is_read() {
    if !can_change_rights() {
        return;
    }
    let sandbox = Sandbox::empty().with_password(false);
    let deep = format!("source{}", "/d".repeat(70));
    for level in 1..=70 {
        sandbox.write(&format!("source{}/z", "/d".repeat(level)), b"z");
    }
    fs::create_dir(sandbox.path(&format!("{deep}/closed"))).unwrap();
    let everything = sandbox.arg("");
    assert!(succeeds("chown", &["-R", "65534:65534", &everything]));
    assert!(succeeds("chmod", &["444", &sandbox.arg(&format!("{deep}/closed"))]));
    run_as(&sandbox, &NOBODY, &["init", "--encryption", "none"]).expect(0);
    let source = sandbox.arg("source");
    let run = run_as(&sandbox, &NOBODY, &["--json", "backup", &source]).expect(3);
    let summary = run.message("summary");
    assert_eq!((&summary["files"], &summary["errors"]), (&70.into(), &1.into()), "{}", run.stderr);
    run_as(&sandbox, &NOBODY, &["share", "estimate", &source]).expect(3);
}

#[test]
fn r101_a_tree_is_deeper_than_there_may_be_open_files() {
    let sandbox = Sandbox::with_store();
    let levels = 300;
    let deep = format!("source{}", "/d".repeat(levels));
    for (name, level) in [("top", 0), ("middle", 120), ("deep", levels)] {
        let path = format!("source{}/z-{name}", "/d".repeat(level));
        sandbox.write(&path, name.as_bytes());
    }
    let source = sandbox.arg("source");
    let commands: [&[&str]; 3] =
        [&["backup", &source], &["backup", &source, "--force"], &["share", "estimate", &source]];
    for limit in [64, 1024] {
        for arguments in commands {
            let plain = sandbox.command(arguments);
            let mut command = std::process::Command::new("sh");
            command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
            command.arg(plain.get_program()).args(plain.get_args()).env_clear();
            let environment = plain.get_envs();
            command.envs(environment.filter_map(|(name, value)| Some((name, value?))));
            Run::of(command.current_dir(sandbox.path("")).output().unwrap()).expect(0);
        }
        let whole = format!("latest:{}", source);
        sandbox.run(&["restore", &whole, "--target", &format!("restored-{limit}")]).expect(0);
        let below =
            |path: &str| sandbox.path(&path.replacen("source", &format!("restored-{limit}"), 1));
        assert!(holds(&below(&format!("{deep}/z-deep")), b"deep"));
        assert!(holds(&below(&format!("source{}/z-middle", "/d".repeat(120))), b"middle"));
        assert!(holds(&below("source/z-top"), b"top"));
    }
}

/// The binary where nothing is in /proc.
fn run_without_proc(sandbox: &Sandbox, arguments: &[&str]) -> Run {
    let told = sandbox.command(arguments);
    let mut command = Command::new("unshare");
    let environment = told.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command
        .args(["-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"])
        .arg(told.get_program())
        .args(told.get_args())
        .env_clear()
        .envs(environment)
        .current_dir(sandbox.path(""))
        .stdin(Stdio::null());
    Run::of(command.output().unwrap())
}

#[test]
fn r147_where_there_is_no_proc_it_is_named_with_what_to_do() {
    let sandbox = Sandbox::with_source();
    if !succeeds("unshare", &["-m", "mount", "-t", "tmpfs", "none", "/proc"]) {
        eprintln!("SKIPPED: no /proc was not tested: it takes the right to mount");
        return;
    }
    sandbox.backup(&[]);
    let (source, out) = (sandbox.arg("source"), sandbox.arg("out"));
    let place = format!("latest:{source}");
    let restore = ["restore", &place, "--target", &out];
    sandbox.run(&restore).expect(0);
    sandbox.write("out/one.txt", b"another");
    sandbox.write("source/four", b"four");
    // Into nothing it is not needed.
    let elsewhere = ["restore", &place, "--target", &sandbox.arg("other")];
    run_without_proc(&sandbox, &elsewhere).expect(0);
    assert_eq!(fs::read(sandbox.path("other/one.txt")).unwrap(), b"one\n");
    for arguments in [&restore[..], &["backup", &source]] {
        let run = run_without_proc(&sandbox, arguments).expect(3);
        assert!(run.stderr.contains("mount -t proc proc /proc"), "{}", run.stderr);
        assert!(!run.stderr.contains("No such file"), "{}", run.stderr);
    }
}
