//! Where the sources of an older snapshot lie, which does not say what only leads to them.

use crate::reference::Location;
use onefold_engine::Repository;
use onefold_engine::session::Snapshot;
use onefold_engine::tree::{TreeReader, path};
use onefold_format::node::{Entry, Listing};
use onefold_types::{ErrorKind, Result};
use std::sync::Arc;

/// The sources at, above or below what is restored, as paths from there on; none if the snapshot
/// says itself which of its directories lead to sources.
///
/// A source stands at the longest end of its listed path that is in the tree: one that was given
/// as a relative path stands without the directories in front of that.
pub fn of(
    repository: &Arc<Repository>,
    snapshot: &Snapshot,
    location: &Location,
    root: &Entry,
) -> Result<Vec<Vec<u8>>> {
    if root.listing != Listing::Partial {
        return Ok(Vec::new());
    }
    let reader = TreeReader::open(repository)?;
    let restored: Vec<&[u8]> = path::components(&location.path).collect();
    let mut sources = Vec::new();
    for listed in &snapshot.record.paths {
        let names: Vec<&[u8]> = path::components(listed.as_bytes()).collect();
        // Named as it is listed, what is restored lies in the source.
        if restored.starts_with(&names) {
            sources.push(b"/".to_vec());
            continue;
        }
        let source = standing(&reader, snapshot, &names)?;
        if restored.starts_with(source) {
            sources.push(b"/".to_vec());
        } else if let Some(below) = source.strip_prefix(restored.as_slice()) {
            sources.push(joined(below));
        }
    }
    Ok(sources)
}

/// The longest end of a path that is in the snapshot's tree.
fn standing<'a>(
    reader: &TreeReader,
    snapshot: &Snapshot,
    names: &'a [&'a [u8]],
) -> Result<&'a [&'a [u8]]> {
    for start in 0..names.len() {
        let end = names.get(start..).unwrap_or_default();
        match reader.resolve(snapshot.record.root, &joined(end)) {
            Ok(_) => return Ok(end),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&[])
}

fn joined(names: &[&[u8]]) -> Vec<u8> {
    names.iter().fold(b"/".to_vec(), |above, name| path::join(&above, name))
}
