//! The names in a directory, and those of them that marks leave.

use super::below::leads_to_source;
use super::{Walk, WalkContext, listing};
use crate::file_systems::list;
use crate::ingest::left_out::{CACHE_TAG, is_cache, is_this_store};
use crate::tree::path;
use onefold_format::layout;
use onefold_types::Result;
use rustix::fs::FileType;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A name as its directory's list has it.
pub(super) struct Name {
    pub(super) bytes: Vec<u8>,
    /// What it is a name of, if the file system says so.
    pub(super) kind: FileType,
}

impl Walk<'_> {
    /// The names in a directory, sorted; those of a marked cache are left out but for the mark. And
    /// how many it has.
    pub(super) fn names(
        &mut self,
        handle: &Arc<OwnedFd>,
        tree_path: &[u8],
    ) -> Result<(Vec<Name>, u64)> {
        let mut names = Vec::new();
        list(handle, |name, kind, _| names.push(Name { bytes: name.to_vec(), kind }))
            .map_err(listing)?;
        names.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
        // A directory that is changed while it is read may give a name twice.
        names.dedup_by(|a, b| a.bytes == b.bytes);
        let listed = names.len() as u64;
        let selection = self.context.selection;
        if let Some((identity, only)) = selection.only
            && rustix::fs::fstat(handle).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == identity)
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

    /// Whether a directory is the store itself, which a mount may show elsewhere.
    pub(super) fn is_this_store(&self, directory: &OwnedFd, names: &[Name]) -> bool {
        let is_description = |name: &Name| (*name.bytes).cmp(layout::CONFIGURATION.as_bytes());
        let WalkContext { selection, repository, job, .. } = &self.context;
        selection.cold.is_none()
            && names.binary_search_by(is_description).is_ok()
            && is_this_store(directory, &repository.store_id().to_string(), &job.interrupt)
    }
}
