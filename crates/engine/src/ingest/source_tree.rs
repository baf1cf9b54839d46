//! Where each source path stands in the snapshot.
//!
//! A source stands below the root as on disk, however it is written: one directory has one path, by
//! which snapshots of it belong together. What leads upwards is resolved. Directories between the
//! root and a source hold only what leads to sources. A source below another source stands in it,
//! and is saved as if it were given alone: what leaves other things out is not asked about it.

use crate::tree::path;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A directory of the snapshot that leads to sources.
#[derive(Debug, Default)]
pub struct SourceTree {
    /// Where it is on disk, for its attributes; `None` for the root.
    pub path: Option<PathBuf>,
    /// The number of the source that stands here, if one does.
    pub source: Option<usize>,
    /// What it holds, by name.
    pub children: BTreeMap<Vec<u8>, SourceTree>,
}

/// One source, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrangedSource {
    /// Where it is on disk.
    pub path: PathBuf,
    /// Where it stands in the snapshot: "/" and the components.
    pub tree_path: Vec<u8>,
    /// The sources below it.
    pub below: Vec<ArrangedSource>,
}

/// Arranges the source paths.
pub fn arrange(paths: &[PathBuf]) -> Result<(SourceTree, Vec<ArrangedSource>)> {
    let mut root = SourceTree::default();
    let mut sources = Vec::new();
    let mut found = Vec::new();
    for path in paths {
        found.push(components_of(path)?);
    }
    // Shorter paths first, so that a source is met before those below it, and those of one place
    // one after the other.
    found.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
    for (components, path) in found {
        insert(&mut root, &components, path, &mut sources);
    }
    Ok((root, sources))
}

/// A directory as the snapshot's root, wherever it is.
#[must_use]
pub fn as_root(directory: PathBuf) -> (SourceTree, Vec<ArrangedSource>) {
    let tree = SourceTree { source: Some(0), ..SourceTree::default() };
    let (tree_path, below) = (b"/".to_vec(), Vec::new());
    (tree, vec![ArrangedSource { path: directory, tree_path, below }])
}

/// Whether the walk meets the sources in the order in which the tree has them.
#[must_use]
pub fn are_in_tree_order(sources: &[ArrangedSource]) -> bool {
    let components = |source: &ArrangedSource| -> Vec<Vec<u8>> {
        path::components(&source.tree_path).map(<[u8]>::to_vec).collect()
    };
    sources.windows(2).all(|pair| components(&pair[0]) < components(&pair[1]))
}

/// Components with the path on disk that each of them stands for, and the source's path.
type SourceComponents = (Vec<(Vec<u8>, PathBuf)>, PathBuf);

fn components_of(path: &Path) -> Result<SourceComponents> {
    let whole = absolute(path)?;
    let mut components = Vec::new();
    let mut prefix = PathBuf::new();
    for component in whole.components() {
        prefix.push(component);
        if let Component::Normal(name) = component {
            components.push((name.as_bytes().to_vec(), prefix.clone()));
        }
    }
    // What is above the working directory may not be open to whoever works in it.
    let mut on_disk = match stays_below(path) {
        true => path.components().filter(|component| *component != Component::CurDir).collect(),
        false => whole,
    };
    // With a slash behind it a link is what it leads to, as everywhere.
    if on_disk.as_os_str().is_empty() || leads_on(path) {
        on_disk.push(".");
    }
    Ok((components, on_disk))
}

/// Whether a path is relative, and leads nowhere up.
fn stays_below(path: &Path) -> bool {
    path.is_relative() && !path.components().any(|component| component == Component::ParentDir)
}

/// The absolute path of a source, without `.` and `..`. A link that is the source stays one.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    let named = || format!("the source {}", path.display());
    let components: Vec<Component<'_>> = path.components().collect();
    let upwards = components.iter().rposition(|component| *component == Component::ParentDir);
    let (above, below) = components.split_at(upwards.map_or(0, |position| position + 1));
    if above.is_empty() {
        let whole = std::path::absolute(path).context(named)?;
        return Ok(whole.components().collect());
    }
    let above = above.iter().collect::<PathBuf>().canonicalize().context(named)?;
    Ok(above.join(below.iter().collect::<PathBuf>()).components().collect())
}

/// The working directory, if all sources are given relative to it.
#[must_use]
pub fn base_of(paths: &[PathBuf]) -> Option<PathBuf> {
    let are_below = !paths.is_empty() && paths.iter().all(|path| stays_below(path));
    std::env::current_dir().ok().filter(|_| are_below)
}

/// Whether a path is written as that of a directory: `link/` and `link/.` are what the link leads
/// to.
#[must_use]
pub fn leads_on(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

fn insert(
    root: &mut SourceTree,
    components: &[(Vec<u8>, PathBuf)],
    on_disk: PathBuf,
    sources: &mut Vec<ArrangedSource>,
) {
    let names = components.iter().map(|(name, _)| name);
    let tree_path = names.fold(b"/".to_vec(), |above, name| path::join(&above, name));
    let source = ArrangedSource { path: on_disk, tree_path, below: Vec::new() };
    let mut node = root;
    for (name, on_disk) in components {
        if let Some(number) = node.source {
            return put(&mut sources[number].below, source);
        }
        node = node.children.entry(name.clone()).or_default();
        node.path = Some(on_disk.clone());
    }
    node.source.get_or_insert(sources.len());
    put(sources, source);
}

/// Adds a source. Of two with one place the one counts that leads on.
fn put(sources: &mut Vec<ArrangedSource>, source: ArrangedSource) {
    // Those of one place follow each other.
    match sources.last_mut().filter(|last| last.tree_path == source.tree_path) {
        Some(last) if leads_on(&source.path) => last.path = source.path,
        Some(_) => {}
        None => sources.push(source),
    }
}

/// What else patterns may mean by a path: how long the beginning of a path in the tree is that
/// stands for another one, and that. Below a relative source it is the working directory, which may
/// be left out; where a directory is the root it is that directory, which may be put before.
#[must_use]
pub fn other_form(source: &ArrangedSource) -> Option<(usize, Vec<u8>)> {
    let tree_path = &source.tree_path;
    if tree_path != b"/" {
        let relative = Some(&source.path).filter(|path| path.is_relative());
        let base = relative.and_then(|_| std::env::current_dir().ok())?;
        let base = base.into_os_string().into_encoded_bytes();
        return tree_path.starts_with(&base).then(|| (base.len(), b"/".to_vec()));
    }
    let absolute = std::path::absolute(&source.path).ok()?;
    let absolute: PathBuf = absolute.components().collect();
    let absolute = absolute.into_os_string().into_encoded_bytes();
    (absolute != *tree_path).then_some((tree_path.len(), absolute))
}

/// Whether an error is about one entry, so that the walk can go on without it.
pub fn is_about_source(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::Io
            | ErrorKind::NotPermitted
            | ErrorKind::Unavailable
            | ErrorKind::Source
            | ErrorKind::LimitExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_paths(paths: &[&str]) -> Vec<String> {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let (_, sources) = arrange(&paths).unwrap();
        sources
            .iter()
            .map(|source| String::from_utf8_lossy(&source.tree_path).into_owned())
            .collect()
    }

    #[test]
    fn r100_one_directory_has_one_place_however_it_is_written() {
        let here = std::env::current_dir().unwrap().display().to_string();
        assert_eq!(tree_paths(&["."]), std::slice::from_ref(&here));
        assert_eq!(tree_paths(&["/"]), ["/"]);
        assert_eq!(tree_paths(&["./a/./b", "/c"]), ["/c".to_owned(), format!("{here}/a/b")]);
        assert_eq!(tree_paths(&["/usr/lib/..//lib"]), ["/usr/lib"]);
        let spellings = ["src", "./src", "src/", "src/../src", &format!("{here}/src")];
        assert_eq!(tree_paths(&spellings), [format!("{here}/src")]);
    }

    #[test]
    fn a_source_below_another_stands_in_it() {
        let here = std::env::current_dir().unwrap().display().to_string();
        assert_eq!(tree_paths(&["/a/b/c", "/a", "/a/b"]), ["/a"]);
        assert_eq!(tree_paths(&["x", ".", "y/z"]), [here]);
        assert_eq!(tree_paths(&["/a", "/a"]), ["/a"]);
        let paths = ["/a/b/c", "/a/b/", "/a", "/a/b", "/a/b/c", "/d", "/a/e"].map(PathBuf::from);
        let (_, sources) = arrange(&paths).unwrap();
        let below: Vec<(&[u8], &Path)> =
            sources[0].below.iter().map(|one| (&*one.tree_path, &*one.path)).collect();
        let expected: [(&[u8], &str); 3] =
            [(b"/a/b", "/a/b/."), (b"/a/e", "/a/e"), (b"/a/b/c", "/a/b/c")];
        assert_eq!(below, expected.map(|(place, path)| (place, Path::new(path))));
        assert_eq!(sources.len(), 2);
    }

    #[test]
    fn directories_on_the_way_are_known() {
        let (root, _) = arrange(&[PathBuf::from("/a/b")]).unwrap();
        let a = &root.children[&b"a"[..]];
        assert_eq!(a.path.as_deref(), Some(Path::new("/a")));
        assert!(a.source.is_none() && root.path.is_none());
        assert_eq!(a.children[&b"b"[..]].source, Some(0));
    }
}
