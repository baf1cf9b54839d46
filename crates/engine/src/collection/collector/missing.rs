//! Names in the index of containers that are not there (G7, D7).
//!
//! A backup that was frozen, fenced and collected may resume and index what is deleted; a merge of
//! runs beside G7 may bring names back. Such names make every later backup distrust its parent. A
//! collection drops them, whatever it deletes, unless a session may rely on one of them.
//!
//! Safety: a container that is missing for another reason was lost, and its name in the index is
//! how backups notice that. Dropped are only names that were missing when containers were listed
//! for the mark, which has stopped if a snapshot needs a chunk that only such containers have. A
//! session that was undecided then may have found a chunk in such a container before it was lost:
//! while one of them is undecided, or something was committed that has not been marked, or a second
//! mark has met such a chunk, all names stay for the next collection. What goes missing later stays
//! as well.

use super::{Collector, Marked};
use crate::collection::cleaning;
use crate::collection::inventory::Inventory;
use crate::index::ChunkIndex;
use crate::repository::Repository;
use crate::session::announced;
use crate::session::evidence::Evidence;
use onefold_types::{ContainerId, Result, SessionId};
use std::collections::BTreeSet;

/// What was missing when containers were listed for a mark.
pub(super) struct Missing {
    /// Names that the index knows, rising.
    names: Vec<ContainerId>,
    /// Sessions that may have begun before they were missing, and might still commit.
    sessions: BTreeSet<SessionId>,
}

impl Missing {
    /// What the inventory misses. To be called after it was taken: who is announced later finds
    /// nothing in what is missing.
    pub(super) fn note(
        repository: &Repository,
        index: &dyn ChunkIndex,
        inventory: &Inventory,
    ) -> Result<Self> {
        let names: Vec<ContainerId> = inventory.missing(&index.covered()).into_iter().collect();
        let sessions = match names.is_empty() {
            true => BTreeSet::new(),
            false => announced::undecided(repository)?.into_keys().collect(),
        };
        Ok(Self { names, sessions })
    }
}

impl Collector<'_> {
    /// Drops the names that were missing from the index, unless a session may rely on one of them.
    pub(super) fn drop_missing(&mut self, marked: &Marked) -> Result<()> {
        let Missing { names, sessions } = &marked.missing;
        if names.is_empty() || marked.marks.lost_references > 0 {
            return Ok(());
        }
        // Before outcomes are listed: who is decided by then shows there.
        let undecided = announced::undecided(self.repository)?;
        if undecided.keys().any(|session| sessions.contains(session)) {
            return Ok(());
        }
        let (new, _) =
            self.committed_but(&marked.tombstones, Evidence::default(), &mut marked.known.clone())?;
        if !new.is_empty() {
            return Ok(());
        }
        cleaning::purge_index(self.repository, names, self.job)
    }
}
