//! The directories that lead to the snapshots, made of names only: what is mounted above the trees.
//!
//! ```text
//! latest                      -> ids/0b4c9d2e
//! ids/0b4c9d2e/               the tree of a snapshot
//! snapshots/TIME              -> ../ids/0b4c9d2e
//! hosts/HOST/TIME             -> ../../ids/0b4c9d2e
//! tags/TAG/TIME               -> ../../ids/0b4c9d2e
//! paths/home/alice/TIME       -> ../../../ids/0b4c9d2e/home/alice
//! ```
//! Where a path is in a snapshot is looked up when its link is read: the tree of a source that was
//! named by a relative path begins with that.
//!
//! Beside every list of times stands `latest`. A time is local, as `2026-01-31_18-30-00`; of
//! snapshots of one second the later ones have `_` and their id behind it.
//!
//! # Invariants
//! Pure: made of a list of snapshots, and never changed. A snapshot is a directory once, in `ids`,
//! and everything else leads there: the kernel allows no directory to have two names. The number of
//! a node follows from its path, so that it stays the same from catalogue to catalogue; that of a
//! link also from where it leads, which the kernel keeps. Numbers of catalogues have
//! [`CATALOGUE_BIT`], those of what is in snapshots do not.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use onefold_engine::session::Snapshot;
use onefold_format::node::Reference;
use onefold_types::SessionId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The number of the top directory.
pub const ROOT: u64 = 1;
/// Set in the numbers of all nodes of a catalogue but the top.
pub const CATALOGUE_BIT: u64 = 1 << 62;
/// The longest name that a file system takes.
const NAME_MAX_BYTES: usize = 255;
/// What is left of a name that is longer; its beginning, and some bytes that tell it from others.
const NAME_KEPT_BYTES: usize = 230;

/// A directory of a snapshot.
#[derive(Debug)]
pub struct Directory {
    /// Its number.
    pub number: u64,
    /// That of the directory above.
    pub parent: u64,
    /// Its tree.
    pub reference: Reference,
    /// Whose it is.
    pub snapshot: SessionId,
    /// Where it is in the snapshot.
    pub path: Vec<u8>,
}

/// One name's worth of a catalogue.
#[derive(Debug)]
pub enum Node {
    /// Names, and the numbers behind them.
    Directory(BTreeMap<Vec<u8>, u64>),
    /// A way to a snapshot.
    Link(Vec<u8>),
    /// A way to a path in a snapshot.
    PathLink(PathLink),
    /// The tree of a snapshot.
    Snapshot(Arc<Directory>),
}

/// A way to a path in a snapshot, or to the snapshot if it is not there.
#[derive(Debug)]
pub struct PathLink {
    /// The way to the snapshot.
    pub to_snapshot: Vec<u8>,
    /// The snapshot's tree.
    pub tree: Arc<Directory>,
    /// The names of the source's path, from the root of its machine on.
    pub names: Names,
}

/// The names of a path.
type Names = Vec<Vec<u8>>;

/// What stands above the trees of the snapshots.
#[derive(Debug)]
pub struct Catalogue {
    nodes: HashMap<u64, Placed>,
}

#[derive(Debug)]
struct Placed {
    parent: u64,
    /// When the newest snapshot below was begun.
    time_ns: i64,
    node: Node,
}

impl Catalogue {
    /// The catalogue of some snapshots, oldest first, with times of a zone.
    #[must_use]
    pub fn new<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>, zone: &TimeZone) -> Self {
        let snapshots: Vec<&Snapshot> = snapshots.into_iter().collect();
        let mut catalogue = Self { nodes: HashMap::new() };
        let top = Node::Directory(BTreeMap::new());
        catalogue.nodes.insert(ROOT, Placed { parent: ROOT, time_ns: 0, node: top });
        for top in ["hosts", "ids", "paths", "snapshots", "tags"] {
            catalogue.directory(ROOT, top.as_bytes());
        }
        let shared = shared_beginnings(&snapshots);
        for snapshot in snapshots {
            let short = snapshot.id.short();
            let id = match shared.contains(&short) {
                true => snapshot.id.to_string(),
                false => short,
            };
            catalogue.add(snapshot, &id, &time_name(snapshot.record.started_ns, zone));
        }
        catalogue
    }

    fn add(&mut self, snapshot: &Snapshot, id: &str, time: &str) {
        let record = &snapshot.record;
        let time_ns = record.started_ns;
        let ids = self.directory(ROOT, b"ids");
        let number = number_below(ids, id.as_bytes());
        let directory = Directory {
            number,
            parent: ids,
            reference: record.root,
            snapshot: snapshot.id,
            path: Vec::new(),
        };
        let tree = Arc::new(directory);
        self.place(ids, id.as_bytes(), time_ns, Node::Snapshot(Arc::clone(&tree)));
        self.replace(ROOT, b"latest", time_ns, Node::Link(way(0, id)));

        let mut listed: Vec<(Names, Names)> = vec![
            (vec![b"snapshots".to_vec()], Vec::new()),
            (vec![b"hosts".to_vec(), file_name(record.host.as_bytes())], Vec::new()),
        ];
        for tag in &record.tags {
            listed.push((vec![b"tags".to_vec(), file_name(tag.as_bytes())], Vec::new()));
        }
        for path in &record.paths {
            let components = path.as_bytes().split(|byte| *byte == b'/');
            let components: Vec<&[u8]> = components.filter(|name| !name.is_empty()).collect();
            let mut names = vec![b"paths".to_vec()];
            names.extend(components.iter().map(|name| file_name(name)));
            // Of bytes that are no text a record tells only what they look like. And a link must
            // not lead out of the snapshot, whoever made the record.
            let is_plain = !path.contains('\\') && !components.iter().any(|name| is_dots(name));
            let plain = components.into_iter().filter(|_| is_plain);
            listed.push((names, plain.map(<[u8]>::to_vec).collect()));
        }
        for (names, path) in listed {
            let to_snapshot = way(names.len(), id);
            let link = || match path.is_empty() {
                true => Node::Link(to_snapshot.clone()),
                false => Node::PathLink(PathLink {
                    to_snapshot: to_snapshot.clone(),
                    tree: Arc::clone(&tree),
                    names: path.clone(),
                }),
            };
            let directory =
                names.iter().fold(ROOT, |directory, name| self.directory(directory, name));
            let name = match self.child(directory, time.as_bytes()) {
                None => time.to_owned(),
                Some(_) => format!("{time}_{id}"),
            };
            self.place(directory, name.as_bytes(), time_ns, link());
            self.replace(directory, b"latest", time_ns, link());
        }
    }

    /// The number of a directory of a name, which is made if there is none.
    fn directory(&mut self, parent: u64, name: &[u8]) -> u64 {
        if let Some(number) = self.child(parent, name)
            && matches!(self.node(number), Some(Node::Directory(_)))
        {
            return number;
        }
        // What is called as a time or `latest` is, and is none, gives way to the directory.
        self.replace(parent, name, 0, Node::Directory(BTreeMap::new()))
    }

    /// Gives a name to a node, unless it is taken.
    fn place(&mut self, parent: u64, name: &[u8], time_ns: i64, node: Node) {
        if self.child(parent, name).is_none() {
            self.replace(parent, name, time_ns, node);
        }
    }

    /// Gives a name to a node; directories keep theirs.
    fn replace(&mut self, parent: u64, name: &[u8], time_ns: i64, node: Node) -> u64 {
        let number = match &node {
            Node::Link(to) | Node::PathLink(PathLink { to_snapshot: to, .. }) => {
                number_below(number_below(parent, name), to)
            }
            Node::Directory(_) | Node::Snapshot(_) => number_below(parent, name),
        };
        let mut above = parent;
        while let Some(placed) = self.nodes.get_mut(&above) {
            placed.time_ns = placed.time_ns.max(time_ns);
            if above == ROOT {
                break;
            }
            above = placed.parent;
        }
        let before = self.child(parent, name);
        if let Some(before) = before
            && matches!(self.node(before), Some(Node::Directory(_)))
        {
            return before;
        }
        before.and_then(|before| self.nodes.remove(&before));
        self.nodes.insert(number, Placed { parent, time_ns, node });
        if let Some(Placed { node: Node::Directory(children), .. }) = self.nodes.get_mut(&parent) {
            children.insert(name.to_vec(), number);
        }
        number
    }

    /// The node of a number.
    #[must_use]
    pub fn node(&self, number: u64) -> Option<&Node> {
        self.nodes.get(&number).map(|placed| &placed.node)
    }

    /// The number of the directory above, and when the newest snapshot below was begun.
    #[must_use]
    pub fn above(&self, number: u64) -> Option<(u64, i64)> {
        self.nodes.get(&number).map(|placed| (placed.parent, placed.time_ns))
    }

    /// The number behind a name in a directory.
    #[must_use]
    pub fn child(&self, parent: u64, name: &[u8]) -> Option<u64> {
        match self.node(parent)? {
            Node::Directory(children) => children.get(name).copied(),
            _ => None,
        }
    }
}

/// The number of what has a name in a directory of the catalogue.
fn number_below(parent: u64, name: &[u8]) -> u64 {
    number_of(&[&parent.to_le_bytes(), name]) | CATALOGUE_BIT
}

/// The number that follows from some words, without [`CATALOGUE_BIT`]: the same in every mount, and
/// none that the kernel or a program has a meaning of its own for.
#[must_use]
pub fn number_of(words: &[&[u8]]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for word in words {
        hasher.update(&(word.len() as u64).to_le_bytes());
        hasher.update(word);
    }
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    (u64::from_le_bytes(bytes) & (CATALOGUE_BIT - 1)).max(ROOT + 1)
}

/// The way from so many directories below the top to a snapshot.
fn way(depth: usize, id: &str) -> Vec<u8> {
    let mut way = b"../".repeat(depth);
    way.extend_from_slice(b"ids/");
    way.extend_from_slice(id.as_bytes());
    way
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Beginnings of ids that several snapshots share.
fn shared_beginnings(snapshots: &[&Snapshot]) -> HashSet<String> {
    let mut seen = HashSet::new();
    snapshots.iter().map(|one| one.id.short()).filter(|short| !seen.insert(short.clone())).collect()
}

fn time_name(time_ns: i64, zone: &TimeZone) -> String {
    Timestamp::from_nanosecond(i128::from(time_ns)).map_or_else(
        |_| format!("{time_ns}ns"),
        |moment| moment.to_zoned(zone.clone()).strftime("%Y-%m-%d_%H-%M-%S").to_string(),
    )
}

/// A text as the name of a file: what names may not hold becomes `_`.
fn file_name(text: &[u8]) -> Vec<u8> {
    let is_forbidden = |byte: u8| byte == b'/' || byte == 0;
    let plain = |byte: &u8| if is_forbidden(*byte) { b'_' } else { *byte };
    let mut name: Vec<u8> = text.iter().map(plain).collect();
    if name.is_empty() || is_dots(&name) {
        name.push(b'_');
    }
    if name.len() > NAME_MAX_BYTES {
        name.truncate(NAME_KEPT_BYTES);
        name.extend_from_slice(format!("_{:016x}", number_of(&[text])).as_bytes());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_name() {
        assert_eq!(file_name(b"a/b\0c"), b"a_b_c");
        for (text, name) in [(&b""[..], &b"_"[..]), (b".", b"._"), (b"..", b".._"), (b"x", b"x")] {
            assert_eq!(file_name(text), name);
        }
        let [one, other] =
            [b'1', b'2'].map(|last| [vec![b'x'; NAME_MAX_BYTES], vec![last]].concat());
        assert_eq!(file_name(&one[..NAME_MAX_BYTES]), &one[..NAME_MAX_BYTES]);
        assert!(file_name(&one).len() <= NAME_MAX_BYTES);
        assert_ne!(file_name(&one), file_name(&other));
    }

    #[test]
    fn numbers_are_neither_that_of_the_top_nor_of_the_other_kind() {
        for name in 0..1_000_u32 {
            let name = name.to_string();
            let [catalogued, other] =
                [number_below(7, name.as_bytes()), number_of(&[name.as_bytes()])];
            assert!(catalogued & CATALOGUE_BIT != 0 && other & CATALOGUE_BIT == 0 && other > ROOT);
        }
        assert_ne!(number_of(&[b"ab", b"c"]), number_of(&[b"a", b"bc"]));
    }
}
