//! Merges layers of directories into one tree: the union behind a synthetic full.
//!
//! Each element is a layer: an entry, so many names further down than where the merge stands. A
//! directory is opened, and built anew, only where several layers meet or one of them lies further
//! down; what a single layer provides is taken over as it is, with one entry.
//!
//! The open directories are a stack, so depth costs heap and not the thread's stack; of each source
//! one leaf is held.

use super::{Element, made_directory};
use crate::chunk_store::StreamWriter;
use crate::job::Job;
use crate::session::Snapshot;
use crate::tree::directory::{CollectedNames, Directory, DirectoryBuilder};
use crate::tree::directory_cursor::{DirectoryCursor, Owners, check_depth};
use crate::tree::{TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Listing, Node, Reference, Totals};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use std::sync::Arc;

/// One element somewhere in the new tree: an entry, so many names further down.
#[derive(Clone)]
pub struct Layer {
    /// The names that lead from here to the entry.
    names: std::vec::IntoIter<Vec<u8>>,
    entry: Arc<Entry>,
    /// The names of the entry's user and group.
    owner: Owner,
}

/// The names of an entry's user and group, as its own snapshot has them.
#[derive(Clone, Default)]
struct Owner {
    user: Option<Vec<u8>>,
    group: Option<Vec<u8>>,
}

impl Owner {
    fn of(entry: &Entry, owners: &Owners) -> Self {
        Self {
            user: owners.user(entry.uid).map(<[u8]>::to_vec),
            group: owners.group(entry.gid).map(<[u8]>::to_vec),
        }
    }
}

impl Layer {
    /// Whether this is a directory from here on, be it only because something lies below it.
    fn is_directory(&self) -> bool {
        !self.names.as_slice().is_empty() || self.entry.kind == EntryKind::Directory
    }
}

/// Finds an element in its snapshot.
pub fn layer_of(reader: &TreeReader, snapshot: &Snapshot, element: &Element) -> Result<Layer> {
    let root = snapshot.record.root;
    let mut names: Vec<Vec<u8>> = path::components(&element.to).map(<[u8]>::to_vec).collect();
    if names.iter().any(|name| name == b"..") {
        return Err(Error::invalid("'..' cannot be a place in a snapshot"));
    }
    let wanted: Vec<&[u8]> = path::components(&element.path).collect();
    let in_snapshot = || format!("snapshot {}", element.snapshot.short());
    let mut entry = Entry {
        content: Some(root),
        totals: totals_of(reader, root).context(in_snapshot)?,
        ..made_directory(snapshot.record.started_ns)
    };
    let mut owner = Owner::default();
    if let Some((name, above)) = wanted.split_last() {
        let parent = reader.resolve(root, &above.join(&b'/')).context(in_snapshot)?;
        let mut cursor = match parent.kind {
            EntryKind::Directory => Some(DirectoryCursor::of(reader, &parent)?),
            _ => None,
        };
        let mut is_there = false;
        while let (Some(cursor), false) = (&mut cursor, is_there)
            && let Some(found) = cursor.next(reader)?
        {
            if found.name == *name {
                owner = Owner::of(&found, &cursor.owners);
                entry = found;
                is_there = true;
            }
        }
        if !is_there {
            let shown = path::display(&element.path);
            let problem = format!("{shown} is not in the snapshot");
            return Err(Error::new(ErrorKind::NotFound, problem).context(in_snapshot()));
        }
        if names.is_empty() && entry.kind != EntryKind::Directory {
            names.push(name.to_vec());
        }
    }
    Ok(Layer { names: names.into_iter(), entry: Arc::new(entry), owner })
}

/// The sums over a directory, which its own node tells.
fn totals_of(reader: &TreeReader, directory: Reference) -> Result<Totals> {
    let mut totals = Totals::default();
    match reader.node(directory)? {
        Node::DirectoryLeaf(leaf) => leaf.entries.iter().for_each(|entry| totals.add(entry)),
        Node::DirectoryMap(map) => {
            map.parts.iter().for_each(|part| totals.add_totals(&part.totals));
        }
        _ => return Err(Error::damaged("the root is no directory")),
    }
    Ok(totals)
}

/// A directory that is being merged from several layers.
struct Open {
    path: Vec<u8>,
    /// What the directory's own entry will say, once its content is known.
    entry: Entry,
    owner: Owner,
    /// In the order of the elements: an existing directory, or one name in one that does not exist.
    sources: Vec<OpenLayer>,
    builder: DirectoryBuilder,
    owners: CollectedNames,
}

enum OpenLayer {
    Existing(Box<DirectoryCursor>),
    Below(Option<Layer>),
}

/// A merge and what it works with.
pub struct Merge<'a> {
    /// Reads the layers.
    pub reader: &'a TreeReader,
    /// Takes new nodes.
    pub stream: &'a mut StreamWriter,
    /// How to stop.
    pub job: &'a Job,
    /// The metadata of directories that no layer provides.
    pub made: Entry,
}

impl Merge<'_> {
    /// Merges layers into a root directory. A stack of open directories stands in for recursion.
    pub fn run(&mut self, layers: Vec<Layer>) -> Result<Directory> {
        let root = self.open(Vec::new(), layers)?;
        let mut stack = vec![root];
        loop {
            self.job.interrupt.check()?;
            let Some(open) = stack.last_mut() else {
                return Err(Error::invalid("a merge without a root"));
            };
            if let Some((name, layers)) = self.next_name(open)? {
                let at = path::join(&open.path, &name);
                if let [only] = layers.as_slice()
                    && only.names.as_slice().is_empty()
                {
                    let entry = Entry { name, ..Entry::clone(&only.entry) };
                    self.push(open, entry, only.owner.clone())?;
                } else {
                    check_depth(stack.len(), &at)?;
                    let mut open = self.open(at, layers)?;
                    open.entry.name = name;
                    stack.push(open);
                }
                continue;
            }
            let Some(done) = stack.pop() else {
                continue;
            };
            let directory = done.builder.finish(&done.owners, self.stream)?;
            let Some(above) = stack.last_mut() else {
                return Ok(directory);
            };
            let entry = Entry {
                content: Some(directory.reference),
                totals: directory.totals,
                // No layer knows what the others had beside it.
                listing: Listing::Partial,
                ..done.entry
            };
            self.push(above, entry, done.owner)?;
        }
    }

    fn push(&mut self, open: &mut Open, entry: Entry, owner: Owner) -> Result<()> {
        open.owners.users.extend(owner.user.map(|name| (entry.uid, name)));
        open.owners.groups.extend(owner.group.map(|name| (entry.gid, name)));
        open.builder.push(entry, &open.owners, self.stream)
    }

    /// A directory out of layers that all are directories, in the order of the elements.
    fn open(&mut self, path: Vec<u8>, layers: Vec<Layer>) -> Result<Open> {
        let mut open = Open {
            path,
            entry: self.made.clone(),
            owner: Owner::default(),
            sources: Vec::with_capacity(layers.len()),
            builder: DirectoryBuilder::default(),
            owners: CollectedNames::default(),
        };
        for layer in layers {
            if !layer.names.as_slice().is_empty() {
                open.sources.push(OpenLayer::Below(Some(layer)));
                continue;
            }
            let cursor = DirectoryCursor::of(self.reader, &layer.entry)
                .context(|| path::display(&open.path))?;
            open.sources.push(OpenLayer::Existing(Box::new(cursor)));
            open.entry = Entry::clone(&layer.entry);
            open.owner = layer.owner;
        }
        Ok(open)
    }

    /// The next name and what makes it up: one layer, or several directories to be merged.
    fn next_name(&mut self, open: &mut Open) -> Result<Option<(Vec<u8>, Vec<Layer>)>> {
        let mut next: Option<Vec<u8>> = None;
        for source in &mut open.sources {
            let name = match source {
                OpenLayer::Existing(cursor) => {
                    cursor.peek(self.reader)?.map(|entry| entry.name.as_slice())
                }
                OpenLayer::Below(layer) => layer
                    .as_ref()
                    .and_then(|layer| layer.names.as_slice().first())
                    .map(Vec::as_slice),
            };
            if let Some(name) = name
                && next.as_deref().is_none_or(|next| name < next)
            {
                next = Some(name.to_vec());
            }
        }
        let Some(name) = next else {
            return Ok(None);
        };
        let mut layers: Vec<Layer> = Vec::new();
        for source in &mut open.sources {
            let Some(layer) = self.take(source, &name)? else {
                continue;
            };
            // A directory joins the directories before it; anything else replaces what was there.
            let joins = layer.is_directory() && layers.last().is_some_and(Layer::is_directory);
            if !joins {
                layers.clear();
            }
            layers.push(layer);
        }
        Ok(Some((name, layers)))
    }

    /// What a source has under a name, if it has it next.
    fn take(&mut self, source: &mut OpenLayer, name: &[u8]) -> Result<Option<Layer>> {
        match source {
            OpenLayer::Existing(cursor) => {
                let entry = cursor.peek(self.reader)?;
                if entry.is_none_or(|entry| entry.name != name) {
                    return Ok(None);
                }
                let entry = cursor.next(self.reader)?;
                Ok(entry.map(|entry| Layer {
                    names: Vec::new().into_iter(),
                    owner: Owner::of(&entry, &cursor.owners),
                    entry: Arc::new(entry),
                }))
            }
            OpenLayer::Below(layer) => {
                let is_next = layer.as_ref().is_some_and(|layer| {
                    layer.names.as_slice().first().map(Vec::as_slice) == Some(name)
                });
                let mut taken = if is_next { layer.take() } else { None };
                if let Some(layer) = &mut taken {
                    layer.names.next();
                }
                Ok(taken)
            }
        }
    }
}
