//! What only hidden snapshots need: what forgetting them for good and collecting would free (R86).
//!
//! Chunks are marked twice, without error: for all live snapshots, and for those that would stay.
//! Each chunk counts in one container, the same both times, so the difference of what is live there
//! is what the hidden ones alone need, whatever they share with others and with each other. Hidden
//! snapshots on hold stay, and so count among those that are left. What a collection leaves alone,
//! containers that are damaged or not indexed, does not count.
//!
//! Chunks are exact. So are plain bytes if the marks fit into memory; in scratch files they go by a
//! container's share of chunks. Stored bytes go by the share of plain bytes, as a collection
//! reckons: chunks are compressed together, so none has a size of its own.
//!
//! Nothing is written but scratch files, and nothing is decided: what is committed, hidden or
//! forgotten meanwhile does not show.

use super::MarkAlgorithm;
use super::inventory::Inventory;
use super::live_set::EXACT_BYTES_PER_CHUNK;
use super::mark::{MARKS_MIN_BYTES, MarkReport, Marker};
use super::{CollectOptions, roots_of};
use crate::container::unreadable;
use crate::index::FingerprintIndex;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::quarantine;
use crate::session::{Snapshot, SnapshotList};
use onefold_policy::collection::select::ContainerLiveness;
use onefold_types::{Error, ErrorKind, Result};
use std::sync::Arc;

/// What only hidden snapshots need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OnlyHidden {
    /// Snapshots that are hidden and not on hold.
    pub snapshots: u64,
    /// Chunks that no other snapshot needs.
    pub chunks: u64,
    /// Their bytes, before compression.
    pub plain_bytes: u64,
    /// Whether that is exact.
    pub is_exact: bool,
    /// What they take in the store, about.
    pub stored_bytes: u64,
}

/// Finds out what only hidden snapshots need. Of the options, algorithm and goal do not matter.
///
/// Errors: `Damaged` if a record of a snapshot is missing, or a chunk: then nobody knows.
pub fn only_hidden(
    repository: &Arc<Repository>,
    options: &CollectOptions,
    job: &Job,
) -> Result<OnlyHidden> {
    let list = SnapshotList::load(repository)?;
    if !list.lost.is_empty() || list.has_strays {
        return Err(Error::new(
            ErrorKind::Damaged,
            "what only hidden snapshots need cannot be told: records of snapshots are missing, and \
             nobody knows what those need; run 'onefold check'",
        ));
    }
    let goes = |snapshot: &&Snapshot| snapshot.hidden && !snapshot.record.hold;
    let snapshots = list.snapshots.iter().filter(goes).count() as u64;
    if snapshots == 0 {
        return Ok(OnlyHidden { is_exact: true, ..OnlyHidden::default() });
    }
    let index = FingerprintIndex::open(repository)?;
    let mut inventory = Inventory::take(repository, &index.covered())?;
    let quarantine = quarantine::load_ids(repository)?;
    inventory.distrust(&quarantine);
    let unreadable = unreadable::find(repository, quarantine, job)?;
    inventory.pass_over(&unreadable.into_keys().collect());
    inventory.bar(|container| !container.indexed || !container.sound);
    let lease = repository.purse().take(repository.memory().marks_bytes);
    let memory_bytes = options.marks_bytes.unwrap_or(lease.bytes().max(MARKS_MIN_BYTES));
    let fits = index.entries() as usize <= memory_bytes / EXACT_BYTES_PER_CHUNK;
    let algorithm = if fits { MarkAlgorithm::Exact } else { MarkAlgorithm::Partitioned };
    let liveness = |wanted: &dyn Fn(&Snapshot) -> bool| -> Result<Vec<ContainerLiveness>> {
        let mut marker = Marker {
            repository,
            index: &index,
            inventory: &inventory,
            threads: options.threads,
            seed: 0,
            memory_bytes,
            scratch: options.scratch.clone().unwrap_or_else(std::env::temp_dir),
            job,
            report: MarkReport::default(),
        };
        let records = list.snapshots.iter().filter(|snapshot| wanted(snapshot));
        let roots = roots_of(records.map(|snapshot| &snapshot.record));
        marker.run(algorithm, &roots).map(|(_, liveness)| liveness)
    };
    let all = liveness(&|_| true)?;
    let left = liveness(&|snapshot| !goes(&snapshot))?;
    let found = OnlyHidden { snapshots, is_exact: fits, ..OnlyHidden::default() };
    Ok(difference(found, &all, &left))
}

/// Adds what is live with all and not with those that are left. Both rise by container.
fn difference(
    mut found: OnlyHidden,
    all: &[ContainerLiveness],
    left: &[ContainerLiveness],
) -> OnlyHidden {
    for with in all {
        let index = left.binary_search_by_key(&with.container, |one| one.container);
        // One that has vanished meanwhile frees nothing.
        let Some(without) = index.ok().and_then(|at| left.get(at)) else { continue };
        // Both marks take some of the dead for live, and not the same.
        found.chunks += u64::from(with.live_chunks.saturating_sub(without.live_chunks));
        found.plain_bytes += with.live_bytes.saturating_sub(without.live_bytes);
        found.stored_bytes += with.live_bytes_stored().saturating_sub(without.live_bytes_stored());
    }
    found
}
