//! What programs are told by the calls of the system: the same on a share as in a plain directory,
//! error for error, whether a file is a stub or not.
//!
//! Each case is run in three directories of the same files: a plain one, and on the mounted share
//! one of stubs and one of ordinary files. It takes root, the device of FUSE and, for what other
//! users are told, `setpriv`. Where one is missing, standard error says so.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount};
use crate::sharing_calls::CASES;
use crate::sharing_users::can_change_rights;
use crate::support::Sandbox;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a case is run, and what it was told there.
pub struct Seen {
    pub directory: PathBuf,
    pub lines: Vec<String>,
}

impl Seen {
    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Notes an answer; errors by their number.
    pub fn note<T: Debug, E: Into<io::Error>>(&mut self, what: &str, result: Result<T, E>) {
        let told = match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => {
                let error: io::Error = error.into();
                format!("{:?}", error.raw_os_error().map(rustix::io::Errno::from_raw_os_error))
            }
        };
        self.lines.push(format!("{what}: {told}"));
    }

    pub fn open(&mut self, name: &str, flags: OFlags) -> Option<File> {
        let opened = rustix::fs::open(self.at(name), flags | OFlags::CLOEXEC, 0o644.into());
        let name = if name.len() > 40 { "a long name" } else { name };
        self.note(&format!("open {name} {flags:?}"), opened.as_ref().map(|_| ()).map_err(|e| *e));
        opened.ok().map(File::from)
    }

    pub fn rename(&mut self, from: &str, to: &str, flags: RenameFlags) {
        let renamed = rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags);
        self.note(&format!("rename {from} to {to} {flags:?}"), renamed);
    }

    pub fn status(&mut self, name: &str) {
        let known = rustix::fs::lstat(self.at(name));
        let told = known.map(|one| (format!("{:o}", one.st_mode), one.st_nlink, one.st_size));
        self.note(&format!("status of {name}"), told);
    }

    /// Which of the times of last change and of what is said about it an action moves.
    pub fn times(&mut self, name: &str, what: &str, act: impl FnOnce(&mut Self)) {
        let of = |path: &Path| {
            let known = path.symlink_metadata().unwrap();
            let changed = (known.ctime(), known.ctime_nsec());
            ((known.mtime(), known.mtime_nsec()), changed)
        };
        let before = of(&self.at(name));
        // The clock of a file system is as coarse as the kernel's ticks.
        std::thread::sleep(std::time::Duration::from_millis(20));
        act(self);
        let after = of(&self.at(name));
        let moved = (before.0 != after.0, before.1 != after.1);
        self.lines.push(format!("{what} moves the times of {name}: {moved:?}"));
    }
}

/// What every case begins with.
fn prepare(directory: &Path) {
    fs::create_dir_all(directory.join("directory/inside")).unwrap();
    fs::create_dir(directory.join("hollow")).unwrap();
    for (name, seed, length) in [
        ("file", 1, 200_000),
        ("other", 2, 150_000),
        ("directory/inside/file", 3, 100_000),
        ("short", 4, 100),
        ("linked", 5, 80_000),
    ] {
        fs::write(directory.join(name), random_bytes(seed, length)).unwrap();
    }
    fs::write(directory.join("empty"), b"").unwrap();
    fs::hard_link(directory.join("linked"), directory.join("directory/second")).unwrap();
    symlink("file", directory.join("link")).unwrap();
    symlink("loop", directory.join("loop")).unwrap();
    symlink("nowhere", directory.join("dangling")).unwrap();
    let sparse = File::create(directory.join("sparse")).unwrap();
    sparse.set_len(4 << 20).unwrap();
    sparse.write_all_at(&random_bytes(6, 65_536), 1 << 20).unwrap();
}

/// Something that tells bytes apart.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| sum.rotate_left(5).wrapping_mul(31) ^ u64::from(*byte))
}

pub fn listed(names: &[u8]) -> Vec<String> {
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names
}

/// Rights of a user and a group besides the owner's, as the system keeps them.
pub fn rights(user: u32, bits: [u16; 5]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    let [owner, of_user, group, mask, others] = bits;
    for (tag, bits, id) in [
        (1_u16, owner, u32::MAX),
        (2, of_user, user),
        (4, group, u32::MAX),
        (0x10, mask, u32::MAX),
        (0x20, others, u32::MAX),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

pub fn granting(seen: &mut Seen) {
    let set = XattrFlags::empty();
    let (of_all, of_new) = ("system.posix_acl_access", "system.posix_acl_default");
    let granted = rights(65_534, [6, 6, 4, 6, 0]);
    for (name, attribute) in
        [("file", of_all), ("hollow", of_new), ("file", of_new), ("link", of_all)]
    {
        let set = rustix::fs::setxattr(seen.at(name), attribute, &granted, set);
        seen.note(&format!("{attribute} of {name}"), set);
    }
    let odd = rustix::fs::setxattr(seen.at("other"), of_all, &granted[..20], set);
    seen.note("half of one", odd);
    seen.status("file");
    let mode = Mode::from_raw_mode(0o640);
    seen.note("mode", rustix::fs::chmodat(CWD, seen.at("file"), mode, AtFlags::empty()));
    fs::write(seen.at("hollow/file"), b"").unwrap();
    fs::create_dir(seen.at("hollow/below")).unwrap();
    fs::write(seen.at("hollow/below/file"), b"").unwrap();
    for name in ["file", "hollow", "hollow/file", "hollow/below", "hollow/below/file"] {
        seen.status(name);
        for attribute in [of_all, of_new] {
            let mut value = [0; 200];
            let got = rustix::fs::getxattr(seen.at(name), attribute, &mut value[..]);
            seen.note(attribute, got.map(|length| value[..length].to_vec()));
        }
    }
    seen.note("taken", rustix::fs::removexattr(seen.at("file"), of_all));
    seen.status("file");
}

/// The same of other users, who are told by a shell. A line each.
const OF_NOBODY: &[&str] = &[
    "chmod 6777 mine; printf x >> mine; stat -c %a mine",
    "chmod 6777 mine; printf x | dd of=mine conv=notrunc status=none; stat -c %a mine",
    "chmod 2767 mine; printf x >> mine; stat -c %a mine",
    "chmod 4777 mine; truncate -s 100 mine; stat -c %a mine",
    "chmod 4777 mine; fallocate -p -o 0 -l 50 mine; stat -c %a mine",
    "chmod 6777 mine; chgrp 65534 mine; stat -c %a mine",
    "chmod 6777 mine; chown 65534 mine; stat -c %a mine",
    "printf x >> setuid; stat -c %a setuid",
    "printf x >> capable; stat -c %a capable",
    ": > setuid; stat -c '%a %s' setuid",
    "cat private; printf x >> private; truncate -s 0 private; chmod 777 private; rm -f private",
    "cat public | md5sum; printf x >> public; chmod 777 public; chown 65534 public",
    "touch public; touch -d 2001-01-01 public; touch -d 2001-01-01 setuid; touch setuid",
    "touch -d 2001-01-01 mine && stat -c %Y mine",
    "ls closed; cat closed/file; stat closed/file; touch closed/new; mv mine closed/mine",
    "cat shown/file | md5sum; touch shown/new; rm -f shown/file; mv shown/file here",
    "rm -f sticky/theirs; mv sticky/theirs sticky/away; mv mine sticky/theirs; echo $?",
    "touch sticky/own && mv sticky/own sticky/owned && rm sticky/owned && echo gone",
    "ln private hard; ln public hard; ln mine hard && stat -c %h mine; rm -f hard",
    "umask 077; touch fresh; mkdir dir; stat -c '%a %u %g' fresh dir; rmdir dir; rm fresh",
    "umask 0; touch fresh; mkdir dir; stat -c '%a %u %g' fresh dir; rmdir dir; rm fresh",
    "mkdir group/dir; touch group/file; stat -c '%a %g' group/dir group/file",
    "mkfifo pipe; mknod device c 1 3; stat -c '%F %a %u' pipe; rm pipe",
    "ln -s private soft; cat soft; rm soft; readlink soft",
    "chmod 2777 mine; stat -c %a mine; chmod 1777 mine; stat -c %a mine",
    "chmod 0 mine; cat mine; printf x >> mine; chmod 644 mine; md5sum < mine",
    "chmod 755 program; ./program; chmod 644 program; ./program",
    "mv mine moved; rm moved; ls -A | sort",
];

fn prepare_for_nobody(directory: &Path) {
    for name in ["", "closed", "shown", "sticky", "group"] {
        fs::create_dir_all(directory.join(name)).unwrap();
    }
    for name in [
        "mine",
        "private",
        "public",
        "setuid",
        "capable",
        "closed/file",
        "shown/file",
        "sticky/theirs",
    ] {
        fs::write(directory.join(name), random_bytes(name.len() as u64, 120_000)).unwrap();
    }
    let text = format!("#!/bin/sh\necho run\n{}", "# and on\n".repeat(10_000));
    fs::write(directory.join("program"), text).unwrap();
    let nobody = (Some(65_534), Some(65_534));
    for name in ["", "mine", "program"] {
        std::os::unix::fs::chown(directory.join(name), nobody.0, nobody.1).unwrap();
    }
    std::os::unix::fs::chown(directory.join("group"), None, Some(4242)).unwrap();
    for (name, mode) in [
        ("private", 0o600),
        ("public", 0o644),
        ("setuid", 0o6777),
        ("capable", 0o777),
        ("closed", 0o700),
        ("shown", 0o755),
        ("sticky", 0o1777),
        ("group", 0o2777),
    ] {
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(CWD, directory.join(name), mode, AtFlags::empty()).unwrap();
    }
    let mut rights = [0; 20];
    (rights[0], rights[3], rights[5]) = (1, 2, 0x20);
    let name = directory.join("capable");
    rustix::fs::setxattr(&name, "security.capability", &rights, XattrFlags::empty()).unwrap();
}

fn told_to_nobody(directory: &Path, script: &str) -> String {
    let run = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script])
        .current_dir(directory)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let capability =
        rustix::fs::getxattr(directory.join("capable"), "security.capability", &mut [0; 64][..]);
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    format!("{out}{err}{:?} {capability:?}", run.status.code())
}

/// All below a directory, but for times.
pub fn tree(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let known = rustix::fs::lstat(&path).unwrap();
            let what = match FileType::from_raw_mode(known.st_mode) {
                FileType::RegularFile => {
                    let bytes = fs::read(&path).unwrap();
                    format!("{} {}", bytes.len(), sum(&bytes))
                }
                FileType::Symlink => fs::read_link(&path).unwrap().display().to_string(),
                FileType::Directory => {
                    left.push(path.clone());
                    String::new()
                }
                _ => known.st_rdev.to_string(),
            };
            let mut names = vec![0; 10_000];
            let length = rustix::fs::llistxattr(&path, &mut names[..]).unwrap();
            lines.push(format!(
                "{} {:o} {} {} {} {what} {:?}",
                path.strip_prefix(directory).unwrap().display(),
                known.st_mode,
                known.st_nlink,
                known.st_uid,
                known.st_gid,
                listed(&names[..length]),
            ));
        }
    }
    lines.sort();
    lines
}

/// A plain directory and two of a share, the second of which holds no stubs.
const PLACES: [&str; 3] = ["plain", "share/stubs", "share/ordinary"];

#[track_caller]
fn assert_same(case: &str, place: &str, expected: &[String], told: &[String]) {
    let differs = expected.iter().zip(told).find(|(one, other)| one != other);
    assert_eq!(differs, None, "{case} in {place}, and what a plain directory says first");
    assert_eq!(expected.len(), told.len(), "{case} in {place}");
}

fn share_of(sandbox: &Sandbox) -> Mount {
    let share = sandbox.arg("share");
    let policy = ["--min-age", "0s", "--min-size", "1", "--exclude", "/ordinary"];
    sandbox.run(&[&["share", "create", &share][..], &policy].concat()).expect(0);
    // What changed just now is not believed to be what it was.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let report = sandbox.run(&["--json", "share", "optimize", &share]).expect(0);
    assert!(report.message("optimized")["files_optimized"].as_u64() > Some(5), "{report:?}");
    Mount::share(sandbox, "share")
}

/// What is there afterwards is the same, and stays so when it is optimised and the mount is new.
fn assert_same_afterwards(sandbox: &Sandbox, mount: Mount) {
    let expected = tree(&sandbox.path(PLACES[0]));
    let assert_all = |when: &str| {
        for place in &PLACES[1..] {
            assert_same(when, place, &expected, &tree(&sandbox.path(place)));
        }
    };
    assert_all("all afterwards");
    std::thread::sleep(std::time::Duration::from_millis(100));
    sandbox.run(&["share", "optimize", &sandbox.arg("share")]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    assert_all("all when it is optimised again");
    mount.end();
    let mount = Mount::share(sandbox, "share");
    assert_all("all in a new mount");
    mount.end();
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert_all("all when it is brought back");
}

#[test]
fn calls_are_answered_on_a_share_as_in_any_directory() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    for (case, _) in CASES {
        for place in PLACES {
            prepare(&sandbox.path(place).join(case));
        }
    }
    let mount = share_of(&sandbox);
    for (case, run) in CASES {
        let told = PLACES.map(|place| {
            let directory = sandbox.path(place).join(case);
            let mut seen = Seen { directory, lines: Vec::new() };
            run(&mut seen);
            seen.lines
        });
        for (place, lines) in PLACES.iter().zip(&told).skip(1) {
            assert_same(case, place, &told[0], lines);
        }
    }
    assert_same_afterwards(&sandbox, mount);
}

#[test]
fn other_users_may_on_a_share_what_they_may_in_any_directory() {
    if !can_mount() || !can_change_rights() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let mode = Mode::from_raw_mode(0o755);
    rustix::fs::chmodat(CWD, sandbox.path(""), mode, AtFlags::empty()).unwrap();
    for place in PLACES {
        prepare_for_nobody(&sandbox.path(place));
    }
    let mount = share_of(&sandbox);
    for script in OF_NOBODY {
        let [expected, stub, ordinary] =
            PLACES.map(|place| told_to_nobody(&sandbox.path(place), script));
        assert_eq!(stub, expected, "{script}, on stubs");
        assert_eq!(ordinary, expected, "{script}, on ordinary files");
    }
    assert_same_afterwards(&sandbox, mount);
}

#[test]
fn what_a_share_does_not_offer_is_refused_and_changes_nothing() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    for place in PLACES {
        prepare(&sandbox.path(place));
    }
    let mount = share_of(&sandbox);
    let refused = Err(rustix::io::Errno::OPNOTSUPP);
    for place in &PLACES[1..] {
        let at = |name: &str| sandbox.path(place).join(name);
        let unnamed = OFlags::RDWR | OFlags::TMPFILE;
        let made = rustix::fs::open(at("hollow"), unnamed, 0o600.into());
        assert_eq!(made.map(|_| ()), refused, "a file without a name, {place}");
        let open = |name: &str| File::options().read(true).write(true).open(at(name)).unwrap();
        let (file, other) = (open("file"), open("other"));
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            let moved = rustix::fs::fallocate(&file, flags, 65_536, 65_536);
            assert_eq!(moved, refused, "{flags:?}, {place}");
        }
        assert_eq!(rustix::fs::ioctl_ficlone(&other, &file), refused, "shared blocks, {place}");
        for name in ["user.onefold.stub", "user.onefold.anything"] {
            let set = rustix::fs::fsetxattr(&file, name, b"planted", XattrFlags::empty());
            assert_eq!(set, Err(rustix::io::Errno::PERM), "{name}, {place}");
            let got = rustix::fs::fgetxattr(&file, name, &mut [0; 100][..]);
            assert_eq!(got, Err(rustix::io::Errno::NODATA), "{name}, {place}");
        }
    }
    assert_same_afterwards(&sandbox, mount);
}
