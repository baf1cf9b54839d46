//! What the parent snapshot has where the walk is. What cannot be read of it only costs time.

use super::{Keeping, Walk};
use crate::file_systems::has_times_of_change;
use crate::tree::tree_reader::DirectoryCursor;
use onefold_format::node::{Entry, EntryKind, Reference};
use std::os::fd::OwnedFd;
use std::sync::Arc;

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

    /// Has a file be read again where its times do not tell whether it has changed.
    pub(super) fn forget_if_untold(
        &mut self,
        directory: &Arc<OwnedFd>,
        device: u64,
        known: &mut Option<Known>,
    ) {
        let is_told = match self.times_of_change {
            Some((of, is_told)) if of == device => is_told,
            _ => has_times_of_change(&**directory),
        };
        self.times_of_change = Some((device, is_told));
        if let Some((known, _)) = known.as_mut().filter(|_| !is_told) {
            // No file has that number.
            known.inode = 0;
        }
    }
}
