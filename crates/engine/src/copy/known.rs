//! Which snapshots the second store has, by what they are copies of.

use crate::session::{Snapshot, SnapshotList};
use onefold_format::record::Original;
use onefold_types::{SessionId, StoreId};
use std::collections::BTreeMap;

/// The snapshots of a store, hidden ones included: copies by their originals, others by themselves.
#[derive(Clone, Debug, Default)]
pub struct Known(BTreeMap<Original, SessionId>);

/// What a snapshot of a store is a copy of: itself, if it is none.
pub(super) fn original_of(store: StoreId, snapshot: &Snapshot) -> Original {
    snapshot.record.original.unwrap_or(Original { store, snapshot: snapshot.id })
}

impl Known {
    /// Those of a list.
    #[must_use]
    pub fn of(list: &SnapshotList, store: StoreId) -> Self {
        let snapshots = list.snapshots.iter().filter(|snapshot| !snapshot.is_manifest());
        Self(snapshots.map(|snapshot| (original_of(store, snapshot), snapshot.id)).collect())
    }

    /// The name here of a snapshot of another store.
    #[must_use]
    pub fn name_of(&self, store: StoreId, snapshot: &Snapshot) -> Option<SessionId> {
        self.get(&original_of(store, snapshot))
    }

    pub(super) fn get(&self, original: &Original) -> Option<SessionId> {
        self.0.get(original).copied()
    }

    pub(super) fn insert(&mut self, original: Original, id: SessionId) {
        self.0.insert(original, id);
    }

    /// Snapshots of the same host and paths that are here as well, with their names here: the ones
    /// before, from the nearest on, then the ones after.
    pub(super) fn earlier<'l>(
        &self,
        list: &'l SnapshotList,
        store: StoreId,
        snapshot: &Snapshot,
    ) -> Vec<(&'l Snapshot, SessionId)> {
        let is_alike = |other: &&Snapshot| {
            other.record.host == snapshot.record.host && other.record.paths == snapshot.record.paths
        };
        let known = |other: &'l Snapshot| Some((other, self.name_of(store, other)?));
        let at = list.snapshots.iter().position(|other| other.id == snapshot.id).unwrap_or(0);
        let (before, after) = list.snapshots.split_at(at);
        before.iter().rev().chain(after).filter(is_alike).filter_map(known).collect()
    }
}
