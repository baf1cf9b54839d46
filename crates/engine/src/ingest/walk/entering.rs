//! Goes down into directories, and comes back.

use super::parent::Known;
use super::{Walk, open_directory};
use crate::ingest::left_out::{is_replaced, is_store};
use crate::ingest::levels::Aside;
use crate::tree::path;
use onefold_format::node::Entry;
use onefold_types::Result;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Walk<'_> {
    /// Walks a directory that is in the one that is walked.
    pub(super) fn enter(
        &mut self,
        (directory, name): (&mut Arc<OwnedFd>, &OsStr),
        tree_path: &[u8],
        (entry, device): (Entry, u64),
        known: Option<Known>,
        (depth, leads_on): (usize, bool),
    ) -> Result<()> {
        let mut handle = Arc::new(open_directory(&**directory, name, true)?);
        let had = known.as_ref().map(|(known, _)| known.totals);
        let parent = (self.parent_directory(known.as_ref()), had);
        // Whoever opens that store later cannot read stubs, nor can a store keep its own data.
        let interrupt = &self.context.job.interrupt;
        let is_store = self.context.selection.cold.is_some()
            && !self.is_left_out()
            && is_store(&handle, interrupt);
        if is_store {
            self.left_out.stores += 1;
            self.context.job.observer.item(&path::display(tree_path), "left out: a store");
        }
        self.left_out_above += usize::from(is_store);
        let aside = match &self.top {
            Some(top) if depth >= self.levels_open => Some(Aside::put(directory, top)?),
            _ => None,
        };
        let is_left_out = self.is_inside_left_out;
        self.is_inside_left_out |= leads_on && self.is_mount_left_out(device);
        let walked = self.directory(&mut handle, tree_path, entry, parent, depth + 1);
        self.is_inside_left_out = is_left_out;
        self.left_out_above -= usize::from(is_store);
        if let Some(aside) = aside {
            let above = path::parent(tree_path).get(self.source_path_bytes..).unwrap_or_default();
            let back = aside.take_back(directory, &handle, above);
            self.is_lost = back.is_err();
            back?;
        }
        match walked {
            Err(error) if is_replaced(&error, directory, name, &handle) => {
                self.left_out.gone += 1;
                Ok(())
            }
            walked => walked,
        }
    }
}
