//! Where each source path stands in the snapshot.
//!
//! An absolute path stands below the root as on disk, a relative one as it is written; the
//! current directory itself is the snapshot's root. A relative path that leads upwards is made
//! absolute. Directories between the root and a source hold only what leads to sources. A source
//! below another source is part of it.

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
}

/// Arranges the source paths; sources below others are dropped.
pub fn arrange(paths: &[PathBuf]) -> Result<(SourceTree, Vec<ArrangedSource>)> {
    let mut root = SourceTree::default();
    let mut sources = Vec::new();
    let mut found = Vec::new();
    for path in paths {
        found.push(components_of(path)?);
    }
    // Shorter paths first, so that a source is met before those below it.
    found.sort_by_key(|(components, _)| components.len());
    for (components, path) in found {
        insert(&mut root, &components, path, &mut sources)?;
    }
    Ok((root, sources))
}

/// A directory as the snapshot's root, wherever it is.
pub fn as_root(directory: PathBuf) -> Result<(SourceTree, Vec<ArrangedSource>)> {
    let (tree, mut sources) = arrange(&[PathBuf::from(".")])?;
    sources.iter_mut().for_each(|source| source.path.clone_from(&directory));
    Ok((tree, sources))
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
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                let absolute =
                    path.canonicalize().context(|| format!("the source {}", path.display()))?;
                return components_of(&absolute);
            }
            other => clean.push(other),
        }
    }
    let mut components = Vec::new();
    let mut prefix = PathBuf::new();
    for component in clean.components() {
        prefix.push(component);
        if let Component::Normal(name) = component {
            components.push((name.as_bytes().to_vec(), prefix.clone()));
        }
    }
    // With a slash behind it a link is what it leads to, as everywhere.
    if clean.as_os_str().is_empty() || leads_on(path) {
        clean.push(".");
    }
    Ok((components, clean))
}

/// Whether a path is written as that of a directory: `link/` and `link/.` are what the link leads to.
#[must_use]
pub fn leads_on(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

fn insert(
    root: &mut SourceTree,
    components: &[(Vec<u8>, PathBuf)],
    path: PathBuf,
    sources: &mut Vec<ArrangedSource>,
) -> Result<()> {
    let mut node = root;
    let mut tree_path = Vec::new();
    for (name, on_disk) in components {
        if node.source.is_some() {
            return Ok(());
        }
        tree_path.push(b'/');
        tree_path.extend_from_slice(name);
        node = node.children.entry(name.clone()).or_default();
        node.path = Some(on_disk.clone());
    }
    if let Some(number) = node.source {
        let other = &sources[number].path;
        return if *other == path {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{} and {} would stand at the same place in the snapshot; give absolute paths",
                    other.display(),
                    path.display()
                ),
            ))
        };
    }
    if tree_path.is_empty() {
        tree_path.push(b'/');
    }
    node.source = Some(sources.len());
    sources.push(ArrangedSource { path, tree_path });
    Ok(())
}

/// How long a source's path in the tree is, and its absolute path if that is another.
pub fn absolute_form(source: &ArrangedSource) -> Option<(usize, Vec<u8>)> {
    let absolute = std::path::absolute(&source.path).ok()?;
    let absolute: PathBuf = absolute.components().collect();
    let absolute = absolute.into_os_string().into_encoded_bytes();
    (absolute != source.tree_path).then_some((source.tree_path.len(), absolute))
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
    fn sources_keep_their_places() {
        assert_eq!(tree_paths(&["."]), ["/"]);
        assert_eq!(tree_paths(&["/"]), ["/"]);
        assert_eq!(tree_paths(&["./a/./b", "/c"]), ["/c", "/a/b"]);
        assert_eq!(tree_paths(&["/usr/lib/..//lib"]), ["/usr/lib"]);
    }

    #[test]
    fn a_source_below_another_is_part_of_it() {
        assert_eq!(tree_paths(&["/a/b/c", "/a", "/a/b"]), ["/a"]);
        assert_eq!(tree_paths(&["x", ".", "y/z"]), ["/"]);
        assert_eq!(tree_paths(&["/a", "/a"]), ["/a"]);
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
