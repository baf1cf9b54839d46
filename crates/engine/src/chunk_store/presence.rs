//! Whether a tree can be relied upon: each of its chunks is looked up as rule W5 says.

use super::ChunkStore;
use crate::tree::TreeReader;
use onefold_format::node::{Node, Reference};
use onefold_types::{Fingerprint, Level, Result};
use std::collections::BTreeSet;

/// Whether the chunk and all below it are in containers that may be relied upon.
///
/// Errors: a node that cannot be read.
pub fn tree_present(store: &ChunkStore, reader: &TreeReader, root: Reference) -> Result<bool> {
    let mut seen: BTreeSet<Fingerprint> = BTreeSet::new();
    let mut left = vec![root];
    while let Some(reference) = left.pop() {
        if !store.is_present(&reference.fingerprint)? {
            return Ok(false);
        }
        if reference.level == Level::DATA || !seen.insert(reference.fingerprint) {
            continue;
        }
        let node: Node = reader.node(reference)?;
        node.references(&mut |child| left.push(child));
    }
    Ok(true)
}
