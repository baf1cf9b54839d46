//! Full comparison of two trees: names, kinds, contents, permissions and modification times.
//!
//! The two top directories themselves are not compared, only what is in them; nor are the times
//! and permissions of symbolic links, which not every file system can set.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const BUFFER_BYTES: usize = 128 << 10;

/// Every difference between the two trees, one line each. Empty if they are equal.
pub fn differences(left: &Path, right: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    compare_directories(left, right, Path::new(""), &mut found)?;
    Ok(found)
}

fn compare_directories(
    left: &Path,
    right: &Path,
    inner: &Path,
    found: &mut Vec<String>,
) -> io::Result<()> {
    let left_names = names(&left.join(inner))?;
    let right_names = names(&right.join(inner))?;
    for name in left_names.union(&right_names) {
        let entry = inner.join(name);
        match (left_names.contains(name), right_names.contains(name)) {
            (true, false) => found.push(format!("{}: missing", entry.display())),
            (false, true) => found.push(format!("{}: extra", entry.display())),
            _ => compare_entries(left, right, &entry, found)?,
        }
    }
    Ok(())
}

fn compare_entries(
    left: &Path,
    right: &Path,
    inner: &Path,
    found: &mut Vec<String>,
) -> io::Result<()> {
    let (left_file, right_file) = (left.join(inner), right.join(inner));
    let (a, b) = (fs::symlink_metadata(&left_file)?, fs::symlink_metadata(&right_file)?);
    let mut note = |what: &str| found.push(format!("{}: {what}", inner.display()));
    if a.file_type() != b.file_type() {
        note("another kind of file");
        return Ok(());
    }
    if a.is_symlink() {
        if fs::read_link(&left_file)? != fs::read_link(&right_file)? {
            note("link target differs");
        }
        return Ok(());
    }
    if a.mode() != b.mode() {
        note(&format!("mode differs ({:o}, {:o})", a.mode() & 0o7777, b.mode() & 0o7777));
    }
    if modified(&a) != modified(&b) {
        note("modification time differs");
    }
    if a.is_file() && (a.len() != b.len() || !same_contents(&left_file, &right_file)?) {
        note("contents differ");
    }
    if a.is_dir() {
        compare_directories(left, right, inner, found)?;
    }
    Ok(())
}

fn names(directory: &Path) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn modified(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

fn same_contents(left: &Path, right: &Path) -> io::Result<bool> {
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    let (mut a, mut b) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let length = fill(&mut left, &mut a)?;
        if length != fill(&mut right, &mut b)? || a[..length] != b[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};
    use tempfile::TempDir;

    fn set_time(path: &Path, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
        File::open(path).unwrap().set_modified(time).unwrap();
    }

    fn tree() -> TempDir {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("d");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("large"), vec![7; 3 * BUFFER_BYTES + 1]).unwrap();
        fs::write(top.path().join("empty"), "").unwrap();
        symlink("large", directory.join("link")).unwrap();
        for name in ["empty", "d/large", "d"] {
            set_time(&top.path().join(name), 1_000_000);
        }
        top
    }

    /// What is found after one change to the second of two equal trees.
    fn after(change: impl FnOnce(&Path)) -> Vec<String> {
        let (left, right) = (tree(), tree());
        change(right.path());
        let directory = right.path().join("d");
        if directory.is_dir() {
            set_time(&directory, 1_000_000);
        }
        differences(left.path(), right.path()).unwrap()
    }

    #[test]
    fn equal_trees_have_no_difference() {
        assert!(after(|_| ()).is_empty());
    }

    #[test]
    fn a_changed_byte_is_found() {
        let found = after(|top| {
            let mut contents = vec![7; 3 * BUFFER_BYTES + 1];
            contents[3 * BUFFER_BYTES] = 8;
            fs::write(top.join("d/large"), contents).unwrap();
            set_time(&top.join("d/large"), 1_000_000);
        });
        assert_eq!(found, ["d/large: contents differ"]);
    }

    #[test]
    fn a_shorter_file_is_found() {
        let found = after(|top| {
            fs::write(top.join("d/large"), vec![7; 3 * BUFFER_BYTES]).unwrap();
            set_time(&top.join("d/large"), 1_000_000);
        });
        assert_eq!(found, ["d/large: contents differ"]);
    }

    #[test]
    fn a_changed_mode_is_found() {
        let found = after(|top| {
            fs::set_permissions(top.join("empty"), Permissions::from_mode(0o600)).unwrap();
        });
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("empty: mode differs"), "{found:?}");
    }

    #[test]
    fn a_changed_time_is_found_on_files_and_directories() {
        assert_eq!(
            after(|top| set_time(&top.join("empty"), 1_000_001)),
            ["empty: modification time differs"]
        );
        let (left, right) = (tree(), tree());
        set_time(&right.path().join("d"), 2);
        let found = differences(left.path(), right.path()).unwrap();
        assert_eq!(found, ["d: modification time differs"]);
    }

    #[test]
    fn missing_and_extra_files_are_found() {
        let found = after(|top| {
            fs::remove_file(top.join("empty")).unwrap();
            fs::write(top.join("d/more"), "x").unwrap();
        });
        assert_eq!(found, ["d/more: extra", "empty: missing"]);
    }

    #[test]
    fn another_kind_and_another_link_target_are_found() {
        let found = after(|top| {
            fs::remove_file(top.join("empty")).unwrap();
            fs::create_dir(top.join("empty")).unwrap();
            fs::remove_file(top.join("d/link")).unwrap();
            symlink("small", top.join("d/link")).unwrap();
        });
        assert_eq!(found, ["d/link: link target differs", "empty: another kind of file"]);
    }
}
