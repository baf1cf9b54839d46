//! The names in a directory, and those of them that marks leave.

use super::below::leads_to_source;
use super::{Walk, WalkContext, listing};
use crate::file_systems::list;
use crate::ingest::left_out::{CACHE_TAG, is_cache, is_this_store};
use crate::ingest::listed::Listed;
use crate::tree::path;
use onefold_format::layout;
use onefold_types::{Error, Result};
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A name as its directory's list has it.
pub(super) struct Name {
    pub(super) bytes: Vec<u8>,
    /// What it is a name of, if the file system says so.
    pub(super) kind: FileType,
    /// The number of its file.
    pub(super) inode: u64,
}

impl Walk<'_> {
    /// The names in a directory, sorted; those of a marked cache are left out but for the mark. And
    /// the directory as it was listed.
    pub(super) fn names(
        &mut self,
        handle: &Arc<OwnedFd>,
        tree_path: &[u8],
    ) -> Result<(Vec<Name>, Listed)> {
        let mut names = Vec::new();
        let status =
            rustix::fs::fstat(handle).map_err(|errno| Error::io("its status", errno.into()))?;
        list(handle, |name, kind, inode| names.push(Name { bytes: name.to_vec(), kind, inode }))
            .map_err(listing)?;
        names.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
        // A directory that is changed while it is read may give a name twice.
        names.dedup_by(|a, b| a.bytes == b.bytes);
        let known = names.iter().map(|name| (&*name.bytes, name.inode));
        let listed = Listed::new(self.on_disk(tree_path), &status, known);
        let selection = self.context.selection;
        if let Some((identity, only)) = selection.only
            && (status.st_dev, status.st_ino) == identity
        {
            names.retain(|name| name.bytes == only.as_bytes());
        }
        let leads_on = |name: &[u8]| {
            let place = path::join(tree_path, name);
            self.below.contains_key(&place) || leads_to_source(&self.below, &place)
        };
        if self.is_inside_left_out {
            names.retain(|name| leads_on(&name.bytes));
            return Ok((names, listed));
        }
        let has = |wanted: &[u8]| names.binary_search_by(|name| (*name.bytes).cmp(wanted)).is_ok();
        let marks = selection.exclude_if_present.iter().map(|name| has(name.as_bytes()));
        if self.left_out.count_marks(marks) {
            names.retain(|name| {
                selection.exclude_if_present.iter().any(|kept| kept.as_bytes() == name.bytes)
                    || leads_on(&name.bytes)
            });
        } else if selection.exclude_caches
            && has(CACHE_TAG.as_bytes())
            && is_cache(handle, &self.context.job.interrupt)?
        {
            names.retain(|name| name.bytes == CACHE_TAG.as_bytes() || leads_on(&name.bytes));
            self.left_out.caches += 1;
        }
        Ok((names, listed))
    }

    /// Where what has this path in the tree lies.
    fn on_disk(&self, tree_path: &[u8]) -> PathBuf {
        let below = tree_path.get(self.source_path_bytes..).unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        match below.is_empty() {
            true => self.source_on_disk.clone(),
            false => self.source_on_disk.join(OsStr::from_bytes(below)),
        }
    }

    /// Whether a directory is the store itself, which a mount may show elsewhere.
    pub(super) fn is_this_store(&self, directory: &OwnedFd, names: &[Name]) -> bool {
        let is_description = |name: &Name| (*name.bytes).cmp(layout::CONFIGURATION.as_bytes());
        let WalkContext { selection, repository, job, .. } = &self.context;
        selection.cold.is_none()
            && names.binary_search_by(is_description).is_ok()
            && is_this_store(directory, &repository.store_id().to_string(), &job.interrupt)
    }
}
