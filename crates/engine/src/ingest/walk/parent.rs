//! What the parent snapshot has where the walk is. What cannot be read of it only costs time.

use super::{Keeping, Walk};
use crate::tree::tree_reader::DirectoryCursor;
use onefold_format::node::{Entry, EntryKind, Reference};

/// An entry of the parent, and the place of its first chunk in the parent's tree.
pub(super) type Known = (Entry, u64);

/// The parent's directory at the path being walked, if it has one.
pub(super) type ParentDirectory = Option<DirectoryCursor>;

impl Walk<'_> {
    /// Its entry at a path.
    pub(super) fn parent_of(&mut self, root: Option<Reference>, tree_path: &[u8]) -> Option<Known> {
        self.parent.as_mut()?.resolve_place(root?, tree_path).ok()
    }

    pub(super) fn parent_directory(&mut self, directory: Option<&Known>) -> ParentDirectory {
        let (directory, place) =
            directory.filter(|(entry, _)| entry.kind == EntryKind::Directory)?;
        self.parent.as_mut()?.cursor(directory.content?, *place).ok()
    }

    pub(super) fn known(&mut self, parent: &mut ParentDirectory, name: &[u8]) -> Option<Known> {
        self.parent.as_mut()?.find(parent.as_mut()?, name).ok().flatten()
    }

    pub(super) fn may_keep(&mut self, known: &Entry, place: u64) -> Keeping {
        match &self.parent {
            Some(reader) => (self.context.keep)(reader, known, place),
            None => Keeping::No,
        }
    }
}
