//! The top of a snapshot's tree: the directories that lead to its sources.

use super::assemble::{Assembled, SystemNames};
use super::attributes;
use super::source_tree::SourceTree;
use crate::chunk_store::StreamWriter;
use crate::tree::directory::DirectoryBuilder;
use onefold_format::node::{Entry, EntryKind, Listing, Reference, Time, Totals};
use onefold_types::{Error, Result};

/// The root of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Its node.
    pub reference: Reference,
    /// What its list of names proves.
    pub listing: Listing,
}

/// A directory that holds sources or leads to some.
pub struct Placed {
    /// Its node, and what its names prove.
    pub root: Root,
    totals: Totals,
    /// The newest time of change in it.
    newest: Time,
}

/// Builds the directories that lead to the sources, and the root.
pub fn place(
    tree: &SourceTree,
    done: &mut Vec<Assembled>,
    writer: &mut StreamWriter,
) -> Result<Placed> {
    // A source at the root is the root, whatever name it has on disk.
    if let Some(Entry { content: Some(reference), modified, totals, listing, .. }) =
        tree.source.and_then(|number| take_source(done, number))
    {
        return Ok(Placed { root: Root { reference, listing }, totals, newest: modified });
    }
    let names = SystemNames::default();
    let mut builder = DirectoryBuilder::default();
    let mut newest = Time::default();
    for (name, child) in &tree.children {
        let entry = match child.source {
            Some(number) => take_source(done, number),
            None => Some(directory_above(child, name, done, writer)?),
        };
        if let Some(entry) = entry {
            newest = newest.max(entry.modified);
            builder.push(entry, &names, writer)?;
        }
    }
    let directory = builder.finish(&names, writer)?;
    let root = Root { reference: directory.reference, listing: Listing::Above };
    Ok(Placed { root, totals: directory.totals, newest })
}

/// A directory that leads to sources. Other things in it change its own time without concerning
/// the snapshot, so it bears that of the newest source: unchanged sources give an unchanged tree.
fn directory_above(
    tree: &SourceTree,
    name: &[u8],
    done: &mut Vec<Assembled>,
    writer: &mut StreamWriter,
) -> Result<Entry> {
    let stat = tree.path.as_ref().and_then(|path| rustix::fs::stat(path).ok());
    let mut entry = match stat {
        Some(stat) => attributes::entry_of(name.to_vec(), &stat),
        None => Entry { name: name.to_vec(), mode: 0o755, links: 1, ..Entry::default() },
    };
    let placed = place(tree, done, writer)?;
    entry.kind = EntryKind::Directory;
    entry.size = 0;
    entry.content = Some(placed.root.reference);
    entry.listing = placed.root.listing;
    entry.totals = placed.totals;
    entry.modified = placed.newest;
    Ok(entry)
}

fn take_source(done: &mut Vec<Assembled>, number: usize) -> Option<Entry> {
    let position = done.iter().position(|assembled| assembled.source == number)?;
    done.swap_remove(position).entry
}

/// Wraps an entry into the directories of its path; returns the root.
pub fn nest(components: &[Vec<u8>], entry: Entry, writer: &mut StreamWriter) -> Result<Root> {
    let names = SystemNames::default();
    let mut entry = entry;
    for (position, name) in components.iter().enumerate().rev() {
        entry.name.clone_from(name);
        let modified = entry.modified;
        let mut builder = DirectoryBuilder::default();
        builder.push(entry, &names, writer)?;
        let directory = builder.finish(&names, writer)?;
        if position == 0 {
            return Ok(Root { reference: directory.reference, listing: Listing::Above });
        }
        entry = Entry {
            kind: EntryKind::Directory,
            mode: 0o700,
            links: 1,
            modified,
            content: Some(directory.reference),
            listing: Listing::Above,
            totals: directory.totals,
            ..Entry::default()
        };
    }
    Err(Error::invalid("the stream needs a file name"))
}
