//! Trees that no record refers to: what a snapshot whose record is lost may have been.
//!
//! Every directory node of every container is read once. One that no other directory names, and
//! that is the root of no snapshot whose record can be read (forgotten ones included), is the top
//! of a tree of its own. Backups that were stopped leave such tops too, of parts of their trees:
//! the largest come first.
//!
//! Memory: sixteen bytes for each node that is met or named, up to the share of a check; beyond it
//! the search ends with a note.

use super::LostRoot;
use super::resolver::FoundNode;
use super::trees::Trees;
use crate::container::reader;
use crate::repository::Repository;
use crate::session::outcome::read_outcome;
use crate::session::{Snapshot, tombstones::Forgotten};
use onefold_format::node::{Node, Reference, Totals};
use onefold_format::record::Outcome;
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result};
use std::collections::{BTreeSet, HashSet};

/// Tops listed; how many more there are is said.
const ROOTS_MAX: usize = 100;

/// Finds the tops.
pub fn find(
    repository: &Repository,
    snapshots: &[Snapshot],
    trees: &mut Trees<'_>,
) -> Result<Vec<LostRoot>> {
    trees.job.progress.set_current("trees without a record");
    let mut search = Search {
        met: HashSet::new(),
        named: HashSet::new(),
        tops: Vec::new(),
        nodes_max: repository.memory().check_buffer_bytes / (2 * size_of::<u128>()),
    };
    let containers: Vec<ContainerId> = trees.resolver.inventory.contents.keys().copied().collect();
    for id in containers {
        trees.job.interrupt.check()?;
        let section = match reader::read_section(repository, id) {
            Ok(section) => section,
            Err(error) if error.is_lost() => continue,
            Err(error) => return Err(error),
        };
        for chunk in section.chunks.iter().filter(|chunk| chunk.level.is_node()) {
            let reference = Reference { fingerprint: chunk.fingerprint, level: chunk.level };
            if !search.take(trees, reference)? {
                trees.problems.push(
                    "there are too many directories to look for those of lost records within the \
                     memory limit; raise --memory"
                        .to_owned(),
                );
                return Ok(Vec::new());
            }
        }
    }
    let known = known_roots(repository, snapshots)?;
    let Search { mut tops, named, .. } = search;
    tops.retain(|(top, _)| {
        !named.contains(&top.fingerprint.half()) && !known.contains(&top.fingerprint)
    });
    tops.sort_by_key(|(top, totals)| (std::cmp::Reverse(totals.bytes), *top));
    if tops.len() > ROOTS_MAX {
        let more = tops.len() - ROOTS_MAX;
        trees.problems.push(format!("{more} more trees, smaller ones, are in no record, either"));
        tops.truncate(ROOTS_MAX);
    }
    let lost = |(root, totals): (Reference, Totals)| {
        let is_whole = trees.is_whole(root)?;
        Ok(LostRoot { root, totals, is_whole })
    };
    tops.into_iter().map(lost).collect()
}

struct Search {
    met: HashSet<u128>,
    named: HashSet<u128>,
    tops: Vec<(Reference, Totals)>,
    nodes_max: usize,
}

impl Search {
    /// Notes a node and what it names; `false` if there is no room left.
    fn take(&mut self, trees: &mut Trees<'_>, reference: Reference) -> Result<bool> {
        if !self.met.insert(reference.fingerprint.half()) {
            return Ok(true);
        }
        let FoundNode::Node(node, _) = trees.resolver.node(reference)? else {
            return Ok(true);
        };
        let Some(totals) = totals_of(&node) else {
            return Ok(true);
        };
        node.references(&mut |child| {
            if child.level.is_node() {
                self.named.insert(child.fingerprint.half());
            }
        });
        self.tops.push((reference, totals));
        Ok(self.met.len() + self.named.len() <= self.nodes_max)
    }
}

/// What a directory says is below it; `None` for other nodes.
fn totals_of(node: &Node) -> Option<Totals> {
    let mut totals = Totals::default();
    match node {
        Node::DirectoryLeaf(leaf) => leaf.entries.iter().for_each(|entry| totals.add(entry)),
        Node::DirectoryMap(map) => {
            map.parts.iter().for_each(|part| totals.add_totals(&part.totals));
        }
        _ => return None,
    }
    Some(totals)
}

/// The roots of all snapshots whose records can be read, forgotten ones included.
fn known_roots(repository: &Repository, snapshots: &[Snapshot]) -> Result<BTreeSet<Fingerprint>> {
    let mut roots: BTreeSet<Fingerprint> =
        snapshots.iter().map(|snapshot| snapshot.record.root.fingerprint).collect();
    for id in Forgotten::load(repository)?.ids {
        match read_outcome(repository, id) {
            Ok(Some(Outcome::Committed(record))) => drop(roots.insert(record.root.fingerprint)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Damaged => {}
            Err(error) => return Err(error),
        }
    }
    Ok(roots)
}
