//! Restoring over what is in use, or may only be rewritten.

use crate::mounted::succeeds;
use crate::readable::run_beside_lease;
use crate::sharing_users::{NOBODY, can_change_rights, run_as};
use crate::support::{Sandbox, holds};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command};

/// A program that runs until this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn r108_a_program_that_runs_is_replaced_and_never_rewritten() {
    let sandbox = Sandbox::with_store();
    let found = ["/bin/sleep", "/usr/bin/sleep"].iter().find_map(|path| fs::read(path).ok());
    let program = found.expect("a program");
    // What is behind a program's end changes nothing of it.
    let [saved, running] = [b"saved  ", b"running"].map(|end| [&program[..], end].concat());
    sandbox.write("source/sleep", &saved);
    let path = sandbox.path("source/sleep");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.backup(&[]);
    fs::write(&path, &running).unwrap();
    let mut child = Running(Command::new(&path).arg("600").spawn().unwrap());
    // It runs from this file when it has begun.
    let inode = path.metadata().unwrap().ino();
    let exe = format!("/proc/{}/exe", child.0.id());
    while fs::metadata(&exe).map(|it| it.ino()).ok() != Some(inode) {
        std::thread::yield_now();
    }
    let (place, target) = (format!("latest:{}", sandbox.arg("source")), sandbox.arg("source"));
    let restore = ["--json", "restore", &place, "--target", &target];
    let told = sandbox.run(&[&restore[..], &["--in-place"]].concat()).expect(3).stdout;
    assert!(holds(&path, &running), "{told}");
    assert_eq!(path.metadata().unwrap().ino(), inode);
    let summary = sandbox.run(&restore).expect(0).message("summary");
    assert_eq!(summary["files_in_place"], 0);
    assert!(holds(&path, &saved));
    assert_ne!(path.metadata().unwrap().ino(), inode);
    assert_eq!(fs::metadata(&exe).unwrap().ino(), inode, "it runs on as it was");
    assert!(child.0.try_wait().unwrap().is_none());
    fs::write(&path, &running).unwrap();
    let now = path.metadata().unwrap().ino();
    let summary = sandbox.run(&[&restore[..], &["--in-place"]].concat()).expect(0);
    assert_eq!(summary.message("summary")["files_in_place"], 1);
    assert!(holds(&path, &saved));
    assert_eq!(path.metadata().unwrap().ino(), now);
}

/// What is there is compared, though somebody holds a lease of it; and a name that looks like one
/// of a restore that is no more is the snapshot's all the same.
#[test]
fn r108_what_is_there_is_compared_whoever_holds_it_and_whatever_it_is_called() {
    let sandbox = Sandbox::with_source();
    let name = "source/.onefold-restoring-999999-5";
    sandbox.write(name, b"mine");
    let source = sandbox.arg("source");
    sandbox.backup(&[]);
    let place = format!("latest:{source}");
    let restore = ["restore", &place, "--target", &source, "--overwrite", "if-changed"];
    for name in [name, "source/one.txt"] {
        for more in [&[][..], &["--verify"]] {
            let arguments = [&restore[..], more].concat();
            run_beside_lease(&sandbox, name, &arguments, &|_| ()).expect(0);
        }
    }
    assert!(
        holds(&sandbox.path(name), b"mine") && holds(&sandbox.path("source/one.txt"), b"one\n")
    );
}

#[test]
fn r108_who_may_write_a_file_and_nothing_beside_it_rewrites_it() {
    if !can_change_rights() {
        return;
    }
    let sandbox = Sandbox::empty().with_password(false);
    let bytes = vec![b'x'; 100_000];
    sandbox.write("source/file", &bytes);
    let everything = sandbox.arg("");
    assert!(succeeds("chown", &["-R", "65534:65534", &everything]));
    assert!(succeeds("chmod", &["755", &everything]));
    assert!(succeeds("chown", &["0:0", &sandbox.arg("source")]));
    let source = sandbox.arg("source");
    let run = |arguments: &[&str]| run_as(&sandbox, &NOBODY, arguments).expect(0);
    run(&["init", "--encryption", "none"]);
    run(&["backup", &source]);
    let path = sandbox.path("source/file");
    fs::write(&path, b"something else").unwrap();
    let before = path.metadata().unwrap().ino();
    let place = format!("latest:{source}");
    let summary = run(&["--json", "restore", &place, "--target", &source]).message("summary");
    assert_eq!(summary["files_in_place"], 1, "{summary}");
    assert!(holds(&path, &bytes));
    assert_eq!(path.metadata().unwrap().ino(), before);
}
