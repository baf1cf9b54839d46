//! Shares: files of a live directory whose data is in the store, used by programs as any other.
//!
//! It takes the device of FUSE and the right to mount. Where one is missing, standard error says
//! so.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount};
use crate::support::Sandbox;
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags, fallocate, lsetxattr, seek};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// What a small file is recalled in.
const GRANULE: u64 = 64 * KIB;

/// A share in `share`, with files of several kinds.
pub fn with_share() -> Sandbox {
    let sandbox = Sandbox::with_store();
    write_files(&sandbox.path("share"));
    sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg("share")]).expect(0);
    sandbox
}

pub fn write_files(share: &Path) {
    fs::create_dir_all(share.join("inner/most")).unwrap();
    let large = random_bytes(1, 3 * MIB as usize + 5);
    fs::write(share.join("large"), &large).unwrap();
    fs::write(share.join("inner/copy of it"), &large).unwrap();
    fs::hard_link(share.join("large"), share.join("inner/most/other name")).unwrap();
    fs::write(share.join("inner/text"), "words and words\n".repeat(10_000)).unwrap();
    fs::write(share.join("inner/small"), b"not worth it").unwrap();
    fs::write(share.join("inner/none"), b"").unwrap();
    symlink("large", share.join("link")).unwrap();
    let sparse = File::create(share.join("inner/sparse")).unwrap();
    sparse.set_len(8 * MIB).unwrap();
    sparse.write_all_at(&random_bytes(2, 100_000), 5 * MIB).unwrap();
    let mode = fs::Permissions::from_mode(0o751);
    fs::set_permissions(share.join("inner/text"), mode).unwrap();
    let flags = XattrFlags::empty();
    lsetxattr(share.join("large"), "user.kept", b"value", flags).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000, 77);
    File::open(share.join("large")).unwrap().set_modified(long_ago).unwrap();
    // What changed just now is not believed to be what it was.
    std::thread::sleep(std::time::Duration::from_millis(100));
}

/// What programs see of all files below a directory, by path.
pub fn seen(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let known = path.symlink_metadata().unwrap();
            if path.file_name().unwrap() == ".onefold-share" {
                continue;
            }
            let mut told = format!(
                "{} {:o} {} {} {} {}.{} {}\n",
                known.ino(),
                known.mode(),
                known.uid(),
                known.gid(),
                known.nlink(),
                if known.is_dir() { 0 } else { known.mtime() },
                if known.is_dir() { 0 } else { known.mtime_nsec() },
                if known.is_dir() { 0 } else { known.len() },
            )
            .into_bytes();
            if known.is_symlink() {
                told.extend(fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes());
            } else if known.is_file() {
                let mut value = [0; 100];
                let length = rustix::fs::getxattr(&path, "user.kept", &mut value[..]);
                told.extend(&value[..length.unwrap_or(0)]);
                told.extend(fs::read(&path).unwrap());
            } else {
                left.push(path.clone());
            }
            found.insert(path.strip_prefix(directory).unwrap().to_owned(), told);
        }
    }
    found
}

#[track_caller]
pub fn assert_seen(expected: &BTreeMap<PathBuf, Vec<u8>>, directory: &Path) {
    let now = seen(directory);
    assert_eq!(expected.keys().collect::<Vec<_>>(), now.keys().collect::<Vec<_>>());
    for (path, told) in expected {
        let line = |told: &[u8]| {
            let end = told.iter().position(|byte| *byte == b'\n').unwrap_or(told.len());
            String::from_utf8_lossy(&told[..end]).into_owned()
        };
        assert_eq!(line(told), line(&now[path]), "{}", path.display());
        assert!(told == &now[path], "{}: other bytes", path.display());
    }
}

pub fn optimize(sandbox: &Sandbox) -> serde_json::Value {
    let share = sandbox.arg("share");
    let run = sandbox.run(&["--json", "share", "optimize", "--unmounted", &share]);
    run.expect(0).message("optimized")
}

pub fn status(sandbox: &Sandbox) -> serde_json::Value {
    let run = sandbox.run(&["--json", "share", "status", &sandbox.arg("share")]);
    run.message("share_status")
}

fn blocks(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

#[test]
fn optimised_files_are_what_they_were_and_take_no_room() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = seen(&share);
    let mount = Mount::share(&sandbox, "share");
    assert_seen(&before, &share);
    let report = optimize(&sandbox);
    // Large, its copy, the text and what has holes; what is small or empty stays.
    assert_eq!(report["files_optimized"], 4, "{report}");
    assert_eq!(report["files_open"].as_u64().unwrap() + report["errors"].as_u64().unwrap(), 0);
    assert_seen(&before, &share);
    for name in ["large", "inner/copy of it", "inner/text", "inner/sparse"] {
        assert!(blocks(&share.join(name)) <= 8 * KIB, "{name}: {}", blocks(&share.join(name)));
    }
    let again = optimize(&sandbox);
    assert_eq!((&again["files_optimized"], &again["bytes_read"]), (&0.into(), &0.into()));
    let known = status(&sandbox);
    assert_eq!((&known["files_optimized"], &known["bytes_recalled"]), (&4.into(), &0.into()));
    assert_eq!(known["manifests"].as_array().unwrap().len(), 1, "{known}");

    mount.end();
    // Below the mount the data is gone; with it, all is there.
    assert!(fs::read(share.join("large")).unwrap().iter().all(|byte| *byte == 0));
    let mount = Mount::share(&sandbox, "share");
    assert_seen(&before, &share);
    mount.end();

    let refused = sandbox.run(&["share", "remove", &sandbox.arg("share")]).expect(1);
    assert!(refused.stderr.contains("share rehydrate"), "{}", refused.stderr);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert_seen(&before, &share);
    for name in ["large", "inner/sparse"] {
        let stub = rustix::fs::getxattr(share.join(name), "user.onefold.stub", &mut [0; 0]);
        assert_eq!(stub, Err(rustix::io::Errno::NODATA), "{name}");
    }
    sandbox.run(&["share", "remove", &sandbox.arg("share")]).expect(0);
    assert!(!share.join(".onefold-share").exists());
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    assert_seen(&before, &share);
    sandbox.run(&["check"]).expect(0);
}

#[test]
fn what_is_written_comes_back_granule_by_granule() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let path = sandbox.path("share/large");
    let mut expected = fs::read(&path).unwrap();
    let mount = Mount::share(&sandbox, "share");
    optimize(&sandbox);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let recalled = || status(&sandbox)["bytes_recalled"].as_u64().unwrap();
    let mut write = |offset: u64, bytes: &[u8]| {
        file.write_all_at(bytes, offset).unwrap();
        let end = offset as usize + bytes.len();
        expected.resize(expected.len().max(end), 0);
        expected[offset as usize..end].copy_from_slice(bytes);
    };
    write(GRANULE + 10, &[1; 4096]);
    assert_eq!(recalled(), GRANULE);
    // Across a border, and over a whole granule between two.
    write(4 * GRANULE - 5, &random_bytes(3, GRANULE as usize + 10));
    assert_eq!(recalled(), 4 * GRANULE);
    // Behind the end nothing comes back.
    write(5 * MIB, b"far behind");
    assert_eq!(recalled(), 4 * GRANULE + 5 * MIB + 10 - (3 * MIB + 5));
    file.sync_all().unwrap();
    drop(file);
    assert!(fs::read(&path).unwrap() == expected);
    mount.kill();
    let mount = Mount::share(&sandbox, "share");
    assert!(fs::read(&path).unwrap() == expected);

    // What was written becomes part of the store by a later run, and the rest is not read again.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let again = optimize(&sandbox);
    assert_eq!(again["bytes_optimized"].as_u64(), Some(expected.len() as u64), "{again}");
    assert_eq!(recalled(), 0);
    assert!(fs::read(&path).unwrap() == expected);
    mount.end();
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    let mount = Mount::share(&sandbox, "share");
    assert!(fs::read(&path).unwrap() == expected);
    mount.end();
}

#[test]
fn what_is_cut_off_does_not_come_back() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let path = sandbox.path("share/inner/text");
    let mut expected = fs::read(&path).unwrap();
    let mount = Mount::share(&sandbox, "share");
    optimize(&sandbox);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for (cut, grown) in [(100_000, 150_000), (120_000, 120_001), (70_000, 300_000)] {
        file.set_len(cut).unwrap();
        expected.truncate(cut as usize);
        file.set_len(grown).unwrap();
        expected.resize(grown as usize, 0);
        assert!(fs::read(&path).unwrap() == expected, "{cut} {grown}");
    }
    // Ranges that are taken out are zeros, whoever had them.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, flags, 1000, 70_000).unwrap();
    expected[1000..71_000].fill(0);
    assert!(fs::read(&path).unwrap() == expected);
    drop(file);
    // A file that is made anew is an ordinary one.
    fs::write(sandbox.path("share/inner/sparse"), b"new").unwrap();
    mount.end();
    let mount = Mount::share(&sandbox, "share");
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(fs::read(sandbox.path("share/inner/sparse")).unwrap(), b"new");
    mount.end();
    assert_eq!(fs::read(sandbox.path("share/inner/sparse")).unwrap(), b"new");
}

#[test]
fn holes_are_told_as_they_were() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let mount = Mount::share(&sandbox, "share");
    optimize(&sandbox);
    let file = OpenOptions::new().read(true).write(true).open(sandbox.path("share/inner/sparse"));
    let file = file.unwrap();
    let data = seek(&file, SeekFrom::Data(0)).unwrap();
    assert!((4 * MIB..=5 * MIB).contains(&data), "{data}");
    let hole = seek(&file, SeekFrom::Hole(data)).unwrap();
    assert!((5 * MIB + 100_000..6 * MIB).contains(&hole), "{hole}");
    assert_eq!(seek(&file, SeekFrom::Data(hole)), Err(rustix::io::Errno::NXIO));
    file.write_all_at(b"data", 7 * MIB).unwrap();
    let data = seek(&file, SeekFrom::Data(hole)).unwrap();
    assert!((7 * MIB - GRANULE..=7 * MIB).contains(&data), "{data}");
    mount.end();
}

#[test]
fn names_come_and_go_as_in_any_directory() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    let large = fs::read(share.join("large")).unwrap();
    let text = fs::read(share.join("inner/text")).unwrap();
    let mount = Mount::share(&sandbox, "share");
    optimize(&sandbox);
    // A stub that was deleted is there for whoever has it open, whatever is collected meanwhile.
    let open = File::open(share.join("inner/text")).unwrap();
    fs::remove_file(share.join("inner/text")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert!(!share.join("inner/text").exists());
    let replaced = File::open(share.join("inner/copy of it")).unwrap();
    fs::write(share.join("new"), b"new").unwrap();
    fs::rename(share.join("new"), share.join("inner/copy of it")).unwrap();
    assert_eq!(fs::read(share.join("inner/copy of it")).unwrap(), b"new");
    optimize(&sandbox);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    let mut buffer = vec![0; text.len() + 1];
    assert_eq!(open.read_at(&mut buffer, 0).unwrap(), text.len());
    assert!(buffer[..text.len()] == text);
    drop(open);
    let mut buffer = vec![0; large.len()];
    replaced.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer == large);
    drop(replaced);
    // Directories with stubs in them are moved as a whole.
    fs::rename(share.join("inner"), share.join("outer")).unwrap();
    assert!(fs::read(share.join("outer/most/other name")).unwrap() == large);
    fs::create_dir(share.join("made")).unwrap();
    fs::hard_link(share.join("large"), share.join("made/third name")).unwrap();
    fs::remove_file(share.join("large")).unwrap();
    assert_eq!(share.join("made/third name").metadata().unwrap().nlink(), 2);
    assert!(fs::read(share.join("made/third name")).unwrap() == large);
    assert!(fs::read_dir(&share).unwrap().all(|one| one.unwrap().file_name() != ".onefold-share"));
    assert!(!share.join(".onefold-share").exists());
    mount.end();
    // The two that were open, the directory, and the link.
    assert_eq!(share.join(".onefold-share/moves").metadata().unwrap().len(), 4);
    let hidden = share.join(".onefold-share/open");
    assert_eq!(fs::read_dir(hidden).unwrap().count(), 0, "what nobody has open is gone");
    let mount = Mount::share(&sandbox, "share");
    assert!(fs::read(share.join("outer/most/other name")).unwrap() == large);
    mount.end();
}
