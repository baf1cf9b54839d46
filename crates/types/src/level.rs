//! The level of a chunk: its height in the Merkle forest (FAST'17, section 2.1).
//!
//! Level 0 is file data. A node's level is one more than the highest of its children, so a walk
//! from the top downwards, level by level, meets every parent before its children.

use std::fmt;

/// Height in the Merkle forest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Level(pub u16);

impl Level {
    /// File data.
    pub const DATA: Level = Level(0);

    /// Whether chunks of this level hold fingerprints of others ("Lp" in FAST'17).
    #[must_use]
    pub fn is_node(self) -> bool {
        self.0 > 0
    }

    /// The level of a node whose highest child is `self`; `None` at the top of the range.
    #[must_use]
    pub fn parent(self) -> Option<Level> {
        self.0.checked_add(1).map(Level)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}
