//! What a tree is built into: a port, so that trees know nothing of how chunks are stored.

use onefold_format::node::Node;
use onefold_types::{Fingerprint, Level, Result};

/// Takes the nodes of a tree, children before parents.
pub trait NodeSink {
    /// Stores a node of this level under the fingerprint that it returns.
    fn put_tree_node(&mut self, level: Level, node: &Node) -> Result<Fingerprint>;
}
