//! Mark and sweep, as plainly as can be: what deletions leave behind for look-ups.
//!
//! Mark: all fingerprints of all recipes left. Sweep: a container with nothing live goes; one whose
//! live share is below the bound has its live chunks copied forward into new containers, oldest
//! container first, and goes as well; the others stay as they are (FAST'17, section 3.2, the phases
//! of logical collection). Of several instances of a live chunk the newest counts, the older ones
//! are dead (S3.10). The index is then rebuilt from the containers that are left.

use super::containers::{Containers, OpenContainer};
use crate::trace::PrefixSet;
use onefold_types::{ContainerId, Error, Fingerprint, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When and how deleted generations are collected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Collection {
    /// Deletions from one collection to the next.
    pub every_deletions: u32,
    /// A container with a smaller share of live chunks is copied forward.
    pub live_share_min: f64,
}

impl Default for Collection {
    fn default() -> Self {
        Self { every_deletions: 8, live_share_min: 0.5 }
    }
}

/// What a collection did.
#[derive(Debug)]
pub struct Swept {
    /// Containers that are gone.
    pub removed: Vec<ContainerId>,
    /// Containers written.
    pub copied: u64,
    /// Prefixes of all chunks that are stored now.
    pub stored: PrefixSet,
}

impl Collection {
    /// Refuses impossible values.
    ///
    /// # Errors
    /// `Invalid`, with the valid range.
    pub fn validate(&self) -> Result<()> {
        if self.every_deletions == 0 {
            return Err(Error::invalid(
                "a collection after 0 deletions is impossible; it must be at least 1",
            ));
        }
        if !(0.0..=1.0).contains(&self.live_share_min) {
            return Err(Error::invalid(format!(
                "a live share of {} is impossible; it must be 0 to 1",
                self.live_share_min
            )));
        }
        Ok(())
    }

    /// Runs a collection over containers that are all closed.
    pub(super) fn sweep(
        &self,
        recipes: &BTreeMap<(u32, u32), Vec<u64>>,
        containers: &mut Containers,
        container_chunks: usize,
    ) -> Swept {
        let mut live = PrefixSet::default();
        for recipe in recipes.values() {
            live.extend(recipe.iter().copied());
        }
        // Newest first, so that the newest instance of each chunk is the one that stays.
        let mut stored = PrefixSet::default();
        let mut plan: Vec<(ContainerId, Arc<[Fingerprint]>, Vec<Fingerprint>)> = Vec::new();
        for (id, list) in containers.all().into_iter().rev() {
            let is_live = |one: &&Fingerprint| live.contains(&one.prefix());
            let kept = list.iter().filter(is_live).filter(|one| stored.insert(one.prefix()));
            let kept: Vec<Fingerprint> = kept.copied().collect();
            plan.push((id, list, kept));
        }
        let mut open = OpenContainer::new(container_chunks);
        let before = containers.len();
        let mut removed = Vec::new();
        for (id, list, kept) in plan.into_iter().rev() {
            let share = kept.len() as f64 / list.len().max(1) as f64;
            if kept.is_empty() || share < self.live_share_min {
                kept.into_iter().for_each(|one| open.append(one, containers));
                removed.push(id);
            } else {
                // Dead chunks of a container that stays are still there to be found.
                stored.extend(list.iter().map(Fingerprint::prefix));
            }
        }
        open.close(containers);
        let copied = (containers.len() - before) as u64;
        removed.iter().for_each(|id| containers.remove(*id));
        Swept { removed, copied, stored }
    }
}
