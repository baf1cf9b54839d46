//! Sources below the one that is walked: each is saved where it is met, as if it were given alone.
//!
//! Of what is left out otherwise, directories on the way to such a source are walked all the same,
//! and nothing else in them is taken.

use super::parent::Known;
use super::{Walk, is_about_source};
use crate::ingest::source_tree::ArrangedSource;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Whether any of some sources lies in a directory.
pub(super) fn leads_to_source(below: &BTreeMap<Vec<u8>, ArrangedSource>, tree_path: &[u8]) -> bool {
    if below.is_empty() {
        return false;
    }
    let beginning = [tree_path.strip_suffix(b"/").unwrap_or(tree_path), b"/"].concat();
    let mut behind = below.range::<[u8], _>((Bound::Excluded(&*beginning), Bound::Unbounded));
    behind.next().is_some_and(|(place, _)| place.starts_with(&beginning))
}

impl Walk<'_> {
    /// Walks a source that was met below another one.
    pub(super) fn source_below(
        &mut self,
        source: &ArrangedSource,
        known: Option<Known>,
    ) -> Result<()> {
        let (device, bytes) = (self.device, self.source_path_bytes);
        let on_disk = std::mem::take(&mut self.source_on_disk);
        let (form, mounts, top) = (self.other_form.take(), self.mounts.take(), self.top.take());
        let is_left_out = std::mem::take(&mut self.is_inside_left_out);
        let done = self.top(source, known);
        (self.device, self.source_path_bytes, self.source_on_disk) = (device, bytes, on_disk);
        (self.other_form, self.mounts, self.top) = (form, mounts, top);
        (self.is_inside_left_out, self.is_at_source) = (is_left_out, false);
        done
    }

    /// Tells of the sources below the one that was walked which were not met there.
    pub(super) fn tell_of_unmet(&mut self) -> Result<()> {
        for (place, source) in std::mem::take(&mut self.below) {
            let error = match rustix::fs::lstat(&source.path) {
                Err(errno) => Error::io("it cannot be read", errno.into()),
                Ok(_) => Error::new(
                    ErrorKind::Source,
                    "it is not saved: what leads to it is saved as a link, or could not be read; \
                     give the link with a slash behind it, or save this by itself",
                ),
            };
            match is_about_source(&error) {
                true => self.problem(&place, error)?,
                false => return Err(error),
            }
        }
        Ok(())
    }
}
