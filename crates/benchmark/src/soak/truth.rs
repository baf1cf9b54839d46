//! What a snapshot must hold: its tree, entry by entry, as the harness knows it, and as it is found
//! in a directory.
//!
//! Compared are kinds, contents, targets of links and modification times of files. Times of
//! directories, owners and permissions are what other tests look at.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::{fs, iter};

/// How many differences are told.
const TOLD: usize = 6;

/// A file.
#[derive(Clone, Debug)]
pub struct Content {
    /// Its length.
    pub length: u64,
    /// Its BLAKE3 digest.
    pub digest: [u8; 32],
    /// When it was modified, in seconds; absent if nobody knows.
    pub modified: Option<i64>,
    /// Its bytes; absent if it was found in a directory.
    pub bytes: Option<Arc<Vec<u8>>>,
}

impl Content {
    /// Of bytes that the harness made.
    pub fn new(bytes: Arc<Vec<u8>>, modified: Option<i64>) -> Content {
        let digest = *blake3::hash(&bytes).as_bytes();
        Content { length: bytes.len() as u64, digest, modified, bytes: Some(bytes) }
    }
}

/// What a path leads to.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link, and where it leads.
    Link(String),
}

/// Paths, relative and without a slash at the beginning, and what they lead to.
pub type Tree = BTreeMap<String, Entry>;

/// The tree of a stream that was saved under `name`.
pub fn of_stream(name: &str, bytes: Vec<u8>) -> Tree {
    let content = Content::new(Arc::new(bytes), None);
    iter::once((name.to_owned(), Entry::File(content))).collect()
}

/// What is found below a directory.
pub fn scan(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    if root.exists() {
        scan_into(root, "", &mut tree)?;
    }
    Ok(tree)
}

fn scan_into(directory: &Path, prefix: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        let found = if kind.is_dir() {
            scan_into(&entry.path(), &format!("{path}/"), tree)?;
            Entry::Directory
        } else if kind.is_symlink() {
            Entry::Link(fs::read_link(entry.path())?.to_string_lossy().into_owned())
        } else {
            let bytes = fs::read(entry.path())?;
            let modified = Some(entry.metadata()?.mtime());
            Entry::File(Content { bytes: None, ..Content::new(Arc::new(bytes), modified) })
        };
        tree.insert(path, found);
    }
    Ok(())
}

/// Whether two entries are the same in all that is compared.
pub fn equal(one: &Entry, other: &Entry) -> bool {
    match (one, other) {
        (Entry::Directory, Entry::Directory) => true,
        (Entry::Link(one), Entry::Link(other)) => one == other,
        (Entry::File(one), Entry::File(other)) => {
            let times = one.modified.zip(other.modified);
            one.digest == other.digest && times.is_none_or(|(one, other)| one == other)
        }
        _ => false,
    }
}

/// Whether something is there in the place of a file, but other bytes.
pub fn is_wrong(expected: &Entry, found: &Entry) -> bool {
    match (expected, found) {
        (Entry::File(expected), Entry::File(found)) => expected.digest != found.digest,
        _ => false,
    }
}

/// The first differences, one a line; nothing if there are none.
pub fn differences(expected: &Tree, found: &Tree) -> Option<String> {
    let of = |path: &String, entry: &Entry| match found.get(path) {
        None => Some(format!("{path} is missing")),
        Some(there) if !equal(entry, there) => Some(match (entry, there) {
            (Entry::File(one), Entry::File(two)) if one.digest == two.digest => {
                format!("{path} has the time {:?} instead of {:?}", two.modified, one.modified)
            }
            (Entry::File(one), Entry::File(two)) => {
                format!("{path} has {} other bytes instead of {}", two.length, one.length)
            }
            _ => format!("{path} is of another kind, or leads elsewhere"),
        }),
        Some(_) => None,
    };
    let mut all: Vec<String> =
        expected.iter().filter_map(|(path, entry)| of(path, entry)).collect();
    let unexpected = found.keys().filter(|path| !expected.contains_key(*path));
    all.extend(unexpected.map(|path| format!("{path} does not belong there")));
    let count = all.len();
    all.truncate(TOLD);
    (count > 0).then(|| format!("{count} differences: {}", all.join("; ")))
}

/// The trees of several sources, side by side.
pub fn joined(trees: &[Arc<Tree>]) -> Arc<Tree> {
    match trees {
        [one] => Arc::clone(one),
        several => Arc::new(several.iter().flat_map(|tree| (**tree).clone()).collect()),
    }
}

/// The tree one directory further down.
pub fn below(tree: &Tree, directory: &str) -> Tree {
    let moved = tree.iter().map(|(path, entry)| (format!("{directory}/{path}"), entry.clone()));
    iter::once((directory.to_owned(), Entry::Directory)).chain(moved).collect()
}

/// One tree laid over another: directories are merged, whatever else is replaced.
pub fn laid_over(lower: &Tree, upper: &Tree) -> Tree {
    let mut merged = lower.clone();
    for (path, entry) in upper {
        let merges = matches!(
            (merged.get(path), entry),
            (Some(Entry::Directory), Entry::Directory) | (None, _)
        );
        if !merges {
            let inside = format!("{path}/");
            merged.retain(|other, _| !other.starts_with(&inside));
        }
        merged.insert(path.clone(), entry.clone());
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, Option<&str>)]) -> Tree {
        let entry = |text: &Option<&str>| match text {
            None => Entry::Directory,
            Some(text) => Entry::File(Content::new(Arc::new(text.as_bytes().to_vec()), None)),
        };
        entries.iter().map(|(path, text)| ((*path).to_owned(), entry(text))).collect()
    }

    #[test]
    fn what_differs_is_told() {
        let one = tree(&[("d", None), ("d/a", Some("1")), ("b", Some("2"))]);
        assert_eq!(differences(&one, &one), None);
        let other = tree(&[("d", None), ("d/a", Some("3")), ("c", Some("2"))]);
        let told = differences(&one, &other).unwrap();
        for part in ["3 differences", "b is missing", "d/a has 1 other", "c does not belong"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn what_is_found_is_what_was_written() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("d")).unwrap();
        fs::write(place.path().join("d/a"), "1").unwrap();
        fs::write(place.path().join("b"), "2").unwrap();
        let expected = tree(&[("d", None), ("d/a", Some("1")), ("b", Some("2"))]);
        assert_eq!(differences(&expected, &scan(place.path()).unwrap()), None);
        fs::write(place.path().join("b"), "3").unwrap();
        let found = scan(place.path()).unwrap();
        assert!(differences(&expected, &found).is_some());
        assert!(is_wrong(&expected["b"], &found["b"]));
    }

    #[test]
    fn the_upper_tree_wins() {
        let lower = tree(&[("d", None), ("d/a", Some("1")), ("e", None), ("e/x", Some("2"))]);
        let upper = tree(&[("d", None), ("d/b", Some("3")), ("e", Some("4"))]);
        let expected =
            tree(&[("d", None), ("d/a", Some("1")), ("d/b", Some("3")), ("e", Some("4"))]);
        assert_eq!(differences(&expected, &laid_over(&lower, &upper)), None);
        assert_eq!(below(&upper, "one").len(), 4);
    }
}
