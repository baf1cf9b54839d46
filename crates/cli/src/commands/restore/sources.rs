//! Where sources lie: in the tree of a snapshot that does not say it, and on this machine.

use crate::reference::{Location, bases};
use onefold_engine::Repository;
use onefold_engine::session::Snapshot;
use onefold_engine::tree::{TreeReader, path};
use onefold_format::node::{Entry, Listing};
use onefold_types::{ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The sources at, above or below what is restored, as paths from there on; `None` if the snapshot
/// says itself which of its directories lead to sources.
///
/// A source stands at the longest end of its listed path that is in the tree: one that was given
/// as a relative path stands without the directories in front of that. One of which nothing is in
/// the tree was not saved; if that is so of all, the root is what was given, as '.'.
pub fn of(
    repository: &Arc<Repository>,
    snapshot: &Snapshot,
    location: &Location,
    root: &Entry,
) -> Result<Option<Vec<Vec<u8>>>> {
    if root.listing != Listing::Partial {
        return Ok(None);
    }
    let reader = TreeReader::open(repository)?;
    let restored: Vec<&[u8]> = path::components(&location.path).collect();
    let (mut sources, mut is_any_there) = (Vec::new(), false);
    for listed in &snapshot.record.paths {
        let names: Vec<&[u8]> = path::components(listed.as_bytes()).collect();
        // Named as it is listed, what is restored lies in the source.
        let source = match restored.starts_with(&names) {
            true => Some(names.as_slice()),
            false => standing(&reader, snapshot, &names)?,
        };
        let Some(source) = source else { continue };
        is_any_there = true;
        if restored.starts_with(source) {
            sources.push(b"/".to_vec());
        } else if let Some(below) = source.strip_prefix(restored.as_slice()) {
            sources.push(joined(below));
        }
    }
    if !is_any_there {
        sources.push(b"/".to_vec());
    }
    Ok(Some(sources))
}

/// The longest end of a path that is in the snapshot's tree.
fn standing<'a>(
    reader: &TreeReader,
    snapshot: &Snapshot,
    names: &'a [&'a [u8]],
) -> Result<Option<&'a [&'a [u8]]>> {
    for start in 0..names.len() {
        let end = names.get(start..).unwrap_or_default();
        match reader.resolve(snapshot.record.root, &joined(end)) {
            Ok(_) => return Ok(Some(end)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether a directory has the path that what is restored has in its snapshot.
#[must_use]
pub fn is_at(snapshot: &Snapshot, location: &Location, target: &Path) -> bool {
    let Ok(target) = target.canonicalize() else {
        return false;
    };
    let target: Vec<&[u8]> = path::components(target.as_os_str().as_bytes()).collect();
    let named: Vec<&[u8]> = path::components(&location.path).collect();
    let is_below = |base: &Vec<u8>| {
        let below_base = path::components(base).chain(named.iter().copied());
        target.iter().copied().eq(below_base)
    };
    target == named || bases(snapshot).iter().any(is_below)
}

fn joined(names: &[&[u8]]) -> Vec<u8> {
    names.iter().fold(b"/".to_vec(), |above, name| path::join(&above, name))
}
