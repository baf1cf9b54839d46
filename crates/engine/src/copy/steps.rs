//! The steps in which a tree is copied, in the order of the tree.

use crate::tree::directory_cursor::Owners;
use onefold_format::node::{Entry, Extent};
use onefold_types::{Error, Fingerprint};

/// An entry, and what its own snapshot calls its owner.
pub struct NamedEntry {
    /// The entry.
    pub entry: Entry,
    /// The user's name.
    pub user: Option<Vec<u8>>,
    /// The group's name.
    pub group: Option<Vec<u8>>,
}

impl NamedEntry {
    /// An entry of a directory whose owners have these names.
    pub fn new(entry: Entry, owners: &Owners) -> Self {
        let user = owners.user(entry.uid).map(<[u8]>::to_vec);
        let group = owners.group(entry.gid).map(<[u8]>::to_vec);
        Self { entry, user, group }
    }
}

/// One step.
pub enum Step {
    /// A directory begins.
    Enter(Box<NamedEntry>),
    /// The innermost directory ends.
    Leave,
    /// An entry that is taken over as it is.
    Entry(Box<NamedEntry>),
    /// A file begins; its path is for messages.
    File(Box<NamedEntry>, Vec<u8>),
    /// A chunk of the file whose bytes come at this offset of the sequence.
    Chunk {
        /// The offset.
        at: u64,
        /// Its name in the first store.
        fingerprint: Fingerprint,
    },
    /// A chunk that the second store has, under the same name.
    Known(Extent),
    /// Zeros.
    Hole(u64),
    /// The rest of the file cannot be read.
    Lost(Error),
    /// The file ends.
    EndFile,
}
