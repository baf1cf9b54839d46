//! Copies of shares, shares that were moved, and shares that are lost.
//!
//! Copies block by block take root, loop devices and `mkfs.ext4`. Where one is missing, standard
//! error says so; what needs none of them is tested all the same.

use crate::mounted::{succeeds, wait_until};
use crate::sharing::{assert_seen, seen, with_share, write_files};
use crate::support::{Run, Sandbox};
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in a file, mounted until the test ends.
pub struct Disk {
    image: PathBuf,
    point: PathBuf,
}

impl Disk {
    /// `None` where no file can be mounted; says so.
    pub fn new(sandbox: &Sandbox, name: &str) -> Option<Self> {
        let image = sandbox.path(&format!("{name}.img"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let can_make = succeeds("mkfs.ext4", &["-q", image.to_str().unwrap()]);
        let disk = can_make.then(|| Self::mounted(sandbox, image, name)).flatten();
        if disk.is_none() {
            eprintln!(
                "SKIPPED: copies of file systems were not tested: it takes root, mkfs.ext4 and \
                 loop devices"
            );
        }
        disk
    }

    fn mounted(sandbox: &Sandbox, image: PathBuf, name: &str) -> Option<Self> {
        let disk = Self { image, point: sandbox.path(name) };
        fs::create_dir_all(&disk.point).unwrap();
        disk.mount().then_some(disk)
    }

    fn mount(&self) -> bool {
        let (image, point) = (self.image.to_str().unwrap(), self.point.to_str().unwrap());
        succeeds("mount", &["-o", "loop", image, point])
    }

    fn unmount(&self) {
        assert!(succeeds("umount", &[self.point.to_str().unwrap()]));
    }

    /// Makes all of it durable.
    pub fn sync(&self) {
        rustix::fs::syncfs(fs::File::open(&self.point).unwrap()).unwrap();
    }

    /// What a power loss now would leave, block by block.
    pub fn image_now(&self, sandbox: &Sandbox) -> PathBuf {
        let image = sandbox.path("now.img");
        fs::copy(&self.image, &image).unwrap();
        image
    }

    /// Puts an image in its place.
    pub fn replace_by(&self, image: &Path) {
        self.unmount();
        fs::rename(image, &self.image).unwrap();
        assert!(self.mount());
    }

    /// A copy, block by block, mounted beside it.
    fn copied(&self, sandbox: &Sandbox, name: &str) -> Self {
        self.unmount();
        let image = sandbox.path(&format!("{name}.img"));
        fs::copy(&self.image, &image).unwrap();
        assert!(self.mount());
        Self::mounted(sandbox, image, name).expect("a copy can be mounted as well")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = succeeds("umount", &["-l", self.point.to_str().unwrap()]);
    }
}

fn share_command(sandbox: &Sandbox, command: &str, name: &str) -> Run {
    let mut arguments = vec!["--json", "share", command];
    let directory = sandbox.arg(name);
    arguments.push(&directory);
    if command == "run" {
        arguments.extend(["--pressure", "off"]);
    }
    sandbox.run(&arguments)
}

fn collect(sandbox: &Sandbox) {
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
}

/// What the store has of shares: where, and which manifests.
fn listed(sandbox: &Sandbox) -> Vec<(String, Value)> {
    let run = sandbox.run(&["--json", "share", "list"]).expect(0);
    let shares = run.messages("share").into_iter();
    let path = |share: &Value| share["path"].as_str().unwrap().to_owned();
    shares.map(|share| (path(&share), share["manifests"].clone())).collect()
}

#[track_caller]
fn assert_refused(sandbox: &Sandbox, name: &str, why: &str) {
    for command in ["optimize", "rehydrate", "run", "remove"] {
        let run = share_command(sandbox, command, name).expect(1);
        assert!(run.stderr.contains(why), "{command}: {}", run.stderr);
    }
    if Path::new("/dev/fuse").exists() {
        // One that is mounted after all would not end.
        let command = sandbox.command(&["share", "mount", &sandbox.arg(name)]).spawn();
        let mount = RefCell::new(command.unwrap());
        wait_until("a mount is refused", || mount.borrow_mut().try_wait().unwrap().is_some());
        let said = mount.into_inner().wait_with_output().unwrap();
        assert_eq!(said.status.code(), Some(1));
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains(why), "{said}");
    }
}

/// A disk with a share on it of which all is optimised, and what its files were.
fn disk_with_share(
    sandbox: &Sandbox,
) -> Option<(Disk, std::collections::BTreeMap<PathBuf, Vec<u8>>)> {
    let disk = Disk::new(sandbox, "disk")?;
    let share = sandbox.path("disk/share");
    write_files(&share);
    let before = seen(&share);
    sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg("disk/share")]).expect(0);
    let run = share_command(sandbox, "optimize", "disk/share").expect(0);
    assert_eq!(run.message("optimized")["files_optimized"], 4);
    Some((disk, before))
}

#[test]
fn r46_a_copy_of_a_file_system_takes_nothing_from_the_share_on_it() {
    let sandbox = Sandbox::with_store();
    let Some((disk, before)) = disk_with_share(&sandbox) else { return };
    let _copy = disk.copied(&sandbox, "copy");
    let manifests = listed(&sandbox);
    assert_eq!(manifests.len(), 1);
    assert_refused(&sandbox, "copy/share", "is a share that is used at");
    let run = share_command(&sandbox, "status", "copy/share").expect(3);
    assert_eq!(run.message("share_status")["standing"], "elsewhere");
    assert_eq!(run.message("share_status")["files_optimized"], 4);
    // Nobody can say that it was moved while it is still there.
    let run = share_command(&sandbox, "move", "copy/share").expect(1);
    assert!(run.stderr.contains("the share is still at"), "{}", run.stderr);
    collect(&sandbox);
    assert_eq!(listed(&sandbox), manifests);
    // The copy becomes an ordinary directory, and the original stays what it is.
    let run = share_command(&sandbox, "repair", "copy/share").expect(0);
    assert_eq!(run.message("repaired")["ordinary"], true);
    assert_seen(&before, &sandbox.path("copy/share"));
    assert!(!sandbox.path("copy/share/.onefold-share").exists());
    collect(&sandbox);
    assert_eq!(listed(&sandbox), manifests);
    share_command(&sandbox, "rehydrate", "disk/share").expect(0);
    assert_seen(&before, &sandbox.path("disk/share"));
    assert_eq!(listed(&sandbox), []);
}

#[test]
fn two_directories_that_both_use_a_share_keep_their_data_and_are_told() {
    let sandbox = Sandbox::with_store();
    let Some((disk, before)) = disk_with_share(&sandbox) else { return };
    let copy = disk.copied(&sandbox, "copy");
    disk.unmount();
    share_command(&sandbox, "move", "copy/share").expect(0);
    copy.unmount();
    // It is used all the same, and something is new there.
    assert!(disk.mount());
    let new = crate::collecting::random_bytes(9, 300_000);
    fs::write(sandbox.path("disk/share/new"), &new).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let run = share_command(&sandbox, "optimize", "disk/share").expect(0);
    assert_eq!(run.message("optimized")["files_optimized"], 1);
    let original = listed(&sandbox);
    // The directory that was declared to be moved leaves what was made since.
    assert!(copy.mount());
    for _ in 0..2 {
        let run = share_command(&sandbox, "optimize", "copy/share").expect(0);
        let others = run.message("optimized")["manifests_elsewhere"].clone();
        assert_eq!(others, original[0].1);
    }
    let run = sandbox.run(&["share", "optimize", &sandbox.arg("disk/share")]).expect(0);
    assert!(run.stderr.contains("another directory uses this share"), "{}", run.stderr);
    collect(&sandbox);
    assert_eq!(listed(&sandbox).len(), 2);
    for name in ["disk/share", "copy/share"] {
        share_command(&sandbox, "rehydrate", name).expect(0);
    }
    assert!(fs::read(sandbox.path("disk/share/new")).unwrap() == new);
    fs::remove_file(sandbox.path("disk/share/new")).unwrap();
    assert_seen(&before, &sandbox.path("disk/share"));
    assert_seen(&before, &sandbox.path("copy/share"));
}

#[test]
fn a_share_that_was_moved_is_used_again_once_that_is_said() {
    let sandbox = Sandbox::with_store();
    write_files(&sandbox.path("share"));
    let before = seen(&sandbox.path("share"));
    sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg("share")]).expect(0);
    // The second manifest has stubs where the first one had files.
    for _ in 0..2 {
        share_command(&sandbox, "optimize", "share").expect(0);
    }
    let manifests = listed(&sandbox);
    // The same inodes and times of birth, by another path.
    fs::rename(sandbox.path("share"), sandbox.path("moved")).unwrap();
    assert_refused(&sandbox, "moved", "is a share that is used at");
    collect(&sandbox);
    assert_eq!(listed(&sandbox), manifests);
    // Back where it was it is what it was.
    fs::rename(sandbox.path("moved"), sandbox.path("share")).unwrap();
    share_command(&sandbox, "optimize", "share").expect(0);
    assert_eq!(listed(&sandbox), manifests, "nothing has changed");
    assert_eq!(
        share_command(&sandbox, "status", "share").expect(0).message("share_status")["standing"],
        "own"
    );
    fs::rename(sandbox.path("share"), sandbox.path("moved")).unwrap();
    share_command(&sandbox, "move", "moved").expect(0);
    let known = share_command(&sandbox, "status", "moved").expect(0).message("share_status");
    assert_eq!(known["standing"], "own");
    assert_eq!(known["manifests"], manifests[0].1);
    // The list shows that at once, and nobody takes it for lost.
    let there = sandbox.path("moved").canonicalize().unwrap().to_str().unwrap().to_owned();
    assert_eq!(listed(&sandbox), [(there, manifests[0].1.clone())]);
    let id = known["share"].as_str().unwrap();
    let run = sandbox.run(&["share", "remove", "--lost", id, "--final"]).expect(1);
    assert!(run.stderr.contains("is not lost"), "{}", run.stderr);
    // Nothing has changed, and what keeps the data is made anew: another directory may forget what
    // was made where it was.
    share_command(&sandbox, "run", "moved").expect(0);
    let now = listed(&sandbox);
    assert_eq!(now.len(), 1);
    assert_eq!(now[0].0, sandbox.path("moved").canonicalize().unwrap().to_str().unwrap());
    assert_ne!(now[0].1, manifests[0].1);
    collect(&sandbox);
    share_command(&sandbox, "rehydrate", "moved").expect(0);
    assert_seen(&before, &sandbox.path("moved"));
    share_command(&sandbox, "remove", "moved").expect(0);
}

/// Runs a command with another `/etc/machine-id`.
fn on_another_machine(sandbox: &Sandbox, arguments: &[&str]) -> Run {
    let id = sandbox.path("machine-id");
    fs::write(&id, "0123456789abcdef0123456789abcdef\n").unwrap();
    let inner = sandbox.command(arguments);
    let mut outer = Command::new("unshare");
    outer
        .args(["-m", "sh", "-c", "mount --bind \"$0\" /etc/machine-id && exec \"$@\""])
        .arg(&id)
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(sandbox.path(""))
        .stdin(std::process::Stdio::null());
    sandbox.run_command(outer)
}

#[test]
fn on_another_machine_it_is_another_directory_whatever_its_path() {
    let script = "mount --bind /etc/hostname /etc/machine-id";
    if !succeeds("unshare", &["-m", "sh", "-c", script]) {
        eprintln!("SKIPPED: shares on two machines were not tested: it takes root");
        return;
    }
    let sandbox = with_share();
    let share = sandbox.arg("share");
    let before = fs::read(sandbox.path("share/inner/text")).unwrap();
    share_command(&sandbox, "optimize", "share").expect(0);
    let manifests = listed(&sandbox);
    for command in ["optimize", "rehydrate", "remove"] {
        let run = on_another_machine(&sandbox, &["share", command, &share]).expect(1);
        assert!(run.stderr.contains("is a share that is used at"), "{}", run.stderr);
    }
    assert_eq!(listed(&sandbox), manifests);
    on_another_machine(&sandbox, &["share", "move", &share]).expect(0);
    let run = share_command(&sandbox, "optimize", "share").expect(1);
    assert!(run.stderr.contains("is a share that is used at"), "{}", run.stderr);
    on_another_machine(&sandbox, &["share", "rehydrate", &share]).expect(0);
    assert!(fs::read(sandbox.path("share/inner/text")).unwrap() == before);
}

#[test]
fn another_path_to_a_share_is_no_copy_of_it() {
    let sandbox = with_share();
    let alias = sandbox.arg("alias");
    fs::create_dir(&alias).unwrap();
    if !succeeds("mount", &["--bind", &sandbox.arg("share"), &alias]) {
        eprintln!("SKIPPED: shares by two paths were not tested: it takes root");
        return;
    }
    share_command(&sandbox, "optimize", "share").expect(0);
    for command in ["optimize", "rehydrate", "run", "remove", "move", "repair"] {
        let run = share_command(&sandbox, command, "alias").expect(1);
        assert!(run.stderr.contains("by another path"), "{command}: {}", run.stderr);
    }
    assert!(succeeds("umount", &[&alias]));
    let known = share_command(&sandbox, "status", "share").expect(0).message("share_status");
    assert_eq!(known["files_optimized"], 4);
}

#[test]
fn a_copy_of_files_becomes_an_ordinary_directory_once_all_came_back() {
    let sandbox = Sandbox::with_store();
    write_files(&sandbox.path("share"));
    let text = fs::read(sandbox.path("share/inner/text")).unwrap();
    let large = fs::read(sandbox.path("share/large")).unwrap();
    sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg("share")]).expect(0);
    share_command(&sandbox, "optimize", "share").expect(0);
    let manifests = listed(&sandbox);
    assert!(succeeds("cp", &["-a", &sandbox.arg("share"), &sandbox.arg("copy")]));
    assert_refused(&sandbox, "copy", "is a copy of a share");
    let known = share_command(&sandbox, "status", "copy").expect(3).message("share_status");
    assert_eq!(known["standing"], "copy");
    // One that cannot come back: a stub of nobody.
    let strange = fs::File::create(sandbox.path("copy/strange")).unwrap();
    strange.set_len(1 << 20).unwrap();
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(&strange, "user.onefold.stub", &[1; 60], set).unwrap();
    drop(strange);
    let run = share_command(&sandbox, "repair", "copy").expect(3);
    assert_eq!(run.message("repaired")["ordinary"], false);
    assert!(sandbox.path("copy/.onefold-share/share.json").exists());
    fs::remove_file(sandbox.path("copy/strange")).unwrap();
    let run = share_command(&sandbox, "repair", "copy").expect(0);
    assert_eq!(run.message("repaired")["ordinary"], true);
    assert!(!sandbox.path("copy/.onefold-share").exists());
    collect(&sandbox);
    assert!(fs::read(sandbox.path("copy/inner/text")).unwrap() == text);
    assert!(fs::read(sandbox.path("copy/inner/most/other name")).unwrap() == large);
    assert_eq!(listed(&sandbox), manifests);
    share_command(&sandbox, "rehydrate", "share").expect(0);
    assert!(fs::read(sandbox.path("share/large")).unwrap() == large);
}

#[test]
fn a_share_that_is_lost_is_forgotten_when_somebody_says_so() {
    let sandbox = with_share();
    let created = share_command(&sandbox, "optimize", "share").expect(0);
    assert_eq!(created.message("optimized")["manifests_elsewhere"], serde_json::json!([]));
    let known = sandbox.run(&["--json", "share", "list"]).expect(0).message("share");
    let id = known["share"].as_str().unwrap().to_owned();
    assert_eq!(known["manifests"].as_array().unwrap().len(), 1);
    assert!(known["bytes"].as_u64().unwrap() > 6 << 20, "{known}");
    let lost = |more: &[&str]| {
        sandbox.run(&[&["--json", "share", "remove", "--lost", &id[..8]], more].concat())
    };
    let run = lost(&["--final"]).expect(1);
    assert!(run.stderr.contains("is not lost"), "{}", run.stderr);
    // Nor is one that cannot be looked at.
    let description = sandbox.path("share/.onefold-share/share.json");
    let text = fs::read(&description).unwrap();
    fs::write(&description, b"{").unwrap();
    let run = lost(&["--final"]);
    assert!(run.stderr.contains("cannot be told"), "{}", run.stderr);
    fs::write(&description, text).unwrap();
    fs::remove_dir_all(sandbox.path("share")).unwrap();
    fs::create_dir(sandbox.path("share")).unwrap();
    let manifests = listed(&sandbox);
    // Without more it only says what it would forget.
    let told = lost(&[]).expect(0).message("share_forgotten");
    assert_eq!((&told["manifests"], &told["final"]), (&manifests[0].1, &false.into()));
    assert_eq!(listed(&sandbox), manifests);
    let nowhere = lost(&["--final", "--at", "nowhere:/"]);
    assert!(nowhere.code != 0 && listed(&sandbox) == manifests, "{}", nowhere.stderr);
    let unknown = sandbox.run(&["share", "remove", "--lost", "zz", "--final"]);
    assert!(unknown.stderr.contains("has no data of a share"), "{}", unknown.stderr);
    lost(&["--final"]).expect(0);
    assert_eq!(listed(&sandbox), []);
    collect(&sandbox);
    let left = sandbox.run(&["--json", "stats"]).expect(0).message("statistics");
    assert!(left["bytes_containers"].as_u64().unwrap() < 1 << 20, "{left}");
}

#[test]
fn what_is_left_of_a_share_that_was_half_removed_or_half_made_is_no_obstacle() {
    let sandbox = Sandbox::with_store();
    sandbox.write("share/file", b"file");
    let create = || sandbox.run(&["share", "create", &sandbox.arg("share")]);
    create().expect(0);
    let control = sandbox.path("share/.onefold-share");
    // Somebody else's file keeps it a share.
    fs::write(control.join("strange"), b"").unwrap();
    let run = share_command(&sandbox, "remove", "share").expect(1);
    assert!(run.stderr.contains("'strange'"), "{}", run.stderr);
    share_command(&sandbox, "status", "share").expect(0);
    fs::remove_file(control.join("strange")).unwrap();
    share_command(&sandbox, "remove", "share").expect(0);
    assert!(!control.exists());
    for remains in [&[][..], &["moves", "job.lock"], &["share.json.new", "open/"]] {
        for is_created in [true, false] {
            fs::create_dir(&control).unwrap();
            for name in remains {
                match name.strip_suffix('/') {
                    Some(name) => fs::create_dir(control.join(name)).unwrap(),
                    None => fs::write(control.join(name), b"").unwrap(),
                }
            }
            if is_created {
                create().expect(0);
            }
            share_command(&sandbox, "remove", "share").expect(0);
            assert!(!control.exists(), "{remains:?}");
        }
    }
    // What was deleted while a program had it open may be all that there is of it.
    fs::create_dir_all(control.join("open")).unwrap();
    fs::write(control.join("open/17"), b"").unwrap();
    for run in [create(), share_command(&sandbox, "remove", "share")] {
        assert_eq!(run.code, 1);
        assert!(run.stderr.contains("'open'"), "{}", run.stderr);
    }
    assert!(control.join("open/17").exists());
    assert_eq!(fs::read(sandbox.path("share/file")).unwrap(), b"file");
}
