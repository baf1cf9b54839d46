//! Names below a directory, page by page, or from several places at once (`parts.rs`).
//!
//! # Invariants
//! A listing is whole or fails. Names that no key has are foreign, and are not shown.

use super::BucketStore;
use super::parts::{self, PAGE_NAMES};
use futures_util::StreamExt;
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use onefold_store::{Key, Listed};
use onefold_types::Result;

impl BucketStore {
    /// Where the names below a directory are.
    pub(super) fn below(&self, prefix: &str) -> ObjectPath {
        let parts = prefix.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Shows the names below a directory that keys can have, page by page: nothing of the runtime
    /// is held while `each` runs.
    pub(super) fn show(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(Listed) -> Result<()>,
    ) -> Result<()> {
        check_prefix(prefix)?;
        if let Some(page) = self.foreseen_names(prefix) {
            return self.show_page(page, each);
        }
        let below = self.below(prefix);
        let names =
            parts::names(self.objects.clone(), below, self.service.lists_in_parts().then_some(0));
        let mut pages = names.ready_chunks(PAGE_NAMES);
        loop {
            let page = self.wait(0, async {
                let page: Option<object_store::Result<Vec<_>>> =
                    pages.next().await.map(|page| page.into_iter().collect());
                page.transpose()
            });
            let Some(page) = page.map_err(|answer| self.failed("listing", &answer))? else {
                return Ok(());
            };
            self.show_page(page, each)?;
        }
    }

    fn show_page(
        &self,
        page: Vec<ObjectMeta>,
        each: &mut dyn FnMut(Listed) -> Result<()>,
    ) -> Result<()> {
        for found in page {
            let Some(parts) = found.location.prefix_match(&self.prefix) else { continue };
            let name: Vec<_> = parts.collect();
            let name: Vec<&str> = name.iter().map(AsRef::as_ref).collect();
            if let Ok(key) = Key::new(name.join("/")) {
                each(Listed { key, size_bytes: found.size })?;
            }
        }
        Ok(())
    }
}

/// Refuses a prefix that is neither empty nor shaped like a key.
fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.is_empty() { Ok(()) } else { Key::new(prefix).map(drop) }
}
