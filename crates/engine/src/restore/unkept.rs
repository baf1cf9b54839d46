//! What the target did not keep of what was set, and did not say.
//!
//! FAT, exFAT, NTFS and file systems that programs or servers serve may take a mode, an owner or a
//! time without an error and keep another one. Others cannot hold times outside a range, and put
//! the nearest one that they can. Fractions of a second are not looked at: most file systems of
//! other kinds than the source's round them.

use onefold_format::node::Time;

/// Attributes of one kind that were not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unkept<T> {
    /// How many items.
    pub count: u64,
    /// The first of them: its path, what it has, and what it was to have.
    pub example: Option<(String, T, T)>,
}

impl<T> Default for Unkept<T> {
    fn default() -> Self {
        Self { count: 0, example: None }
    }
}

impl<T> Unkept<T> {
    /// Notes an item.
    pub(super) fn note(&mut self, path: &dyn Fn() -> String, has: T, wanted: T) {
        self.count += 1;
        self.example.get_or_insert_with(|| (path(), has, wanted));
    }
}

/// Everything that was not kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnkeptAttributes {
    /// Permission bits, set-id and sticky bits.
    pub modes: Unkept<u32>,
    /// Owners and groups.
    pub owners: Unkept<(u32, u32)>,
    /// Modification times.
    pub times: Unkept<Time>,
}
