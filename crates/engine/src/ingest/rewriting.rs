//! What rewriting may do in a backup, and what it knows of the snapshots before.
//!
//! The loss is that of the whole store (what earlier snapshots did not use up may be used later);
//! the previous version of the stream is the parent (FAST'19, section 3.2; S2.11), whose placement
//! says how much of each frame or container it used.
//!
//! Files that have not changed are not read, so nothing of them could ever be stored again, and a
//! frame of which only they need a little would be read by every restore for ever. Such files are
//! therefore read again, as far as the loss leaves room to store again what they hold there
//! ([`ScatteredFiles`]). An idea of this project.

use crate::chunk_store::RewriteOptions;
use crate::placement::{FrameId, PlacementReader, Unit};
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList};
use onefold_format::node::Entry;
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::rewrite::{
    Before, ContainerUse, Expected, LOSS_DEFAULT, RewriteChoice, RewriteParameters,
};
use std::sync::{Arc, Mutex, PoisonError};

/// A restore into files reads each container once, so a container that is not needed at all any
/// more is worth many that are needed in one place less.
const WHOLE_WORTH: f64 = 1000.0;

/// The placement of a snapshot; one that cannot be read only costs time.
pub fn placement_of(
    repository: &Arc<Repository>,
    snapshot: Option<&Snapshot>,
) -> Option<PlacementReader> {
    PlacementReader::open(repository, snapshot?.record.placement?).ok()
}

/// What rewriting may do, and what it knows of the snapshots before (S2.11).
pub fn options(
    (repository, choice): (&Arc<Repository>, RewriteChoice),
    list: &SnapshotList,
    parent: Option<&Snapshot>,
    costs: Option<DeviceCosts>,
) -> RewriteOptions {
    if choice == RewriteChoice::None {
        return RewriteOptions::none();
    }
    let unit = Unit::for_device(costs.map_or(0, |costs| costs.device_read_ns));
    let history =
        placement_of(repository, parent).and_then(|mut placement| placement.uses(unit).ok());
    let mut before = Before::default();
    for snapshot in list.visible() {
        let summary = &snapshot.record.summary;
        before.unique_chunks += summary.chunks_new;
        before.rewritten_chunks += summary.chunks_rewritten;
    }
    let parameters = RewriteParameters {
        container_bytes: repository.configuration().container_size_bytes as u64,
        expected: parent.map(|parent| Expected {
            chunks: parent.record.summary.chunks,
            unique_chunks: parent.record.summary.chunks_new,
        }),
        before: Some(before),
        history: history.map(Arc::new),
        whole_worth: WHOLE_WORTH,
        ..RewriteParameters::default()
    };
    RewriteOptions { choice, parameters, unit }
}

/// Files of the parent that lie scattered in frames of which little is needed.
pub struct ScatteredFiles(Option<Mutex<Scattered>>);

struct Scattered {
    placement: PlacementReader,
    history: Arc<ContainerUse>,
    unit: Unit,
    /// Bytes that may still be read again.
    bytes_left: u64,
}

impl ScatteredFiles {
    /// The files of a parent, if rewriting goes by history and may store something again.
    #[must_use]
    pub fn new(
        repository: &Arc<Repository>,
        parent: Option<&Snapshot>,
        rewrite: &RewriteOptions,
    ) -> Self {
        Self(Self::of(repository, parent, rewrite).map(Mutex::new))
    }

    fn of(
        repository: &Arc<Repository>,
        parent: Option<&Snapshot>,
        rewrite: &RewriteOptions,
    ) -> Option<Scattered> {
        let by_history =
            matches!(rewrite.choice, RewriteChoice::Auto(_) | RewriteChoice::History(_));
        let history = rewrite.parameters.history.clone().filter(|_| by_history)?;
        let sparse_bytes: u64 = history
            .iter()
            .filter(|(_, usage)| usage.is_sparse() == Some(true))
            .map(|(_, usage)| usage.referred_bytes)
            .sum();
        let loss = rewrite.choice.limits().loss_max.unwrap_or(LOSS_DEFAULT);
        let before = rewrite.parameters.before.unwrap_or_default();
        let allowed = (before.unique_chunks as f64 * loss / (1.0 - loss)) as u64;
        let chunks = allowed.saturating_sub(before.rewritten_chunks);
        let chunk_bytes = repository.chunker().size_avg_bytes() as u64;
        // A file is read whole for the part of it that is scattered: half of it at least.
        let bytes_left = chunks.saturating_mul(chunk_bytes).min(sparse_bytes).saturating_mul(2);
        if bytes_left == 0 {
            return None;
        }
        let placement = placement_of(repository, parent)?;
        Some(Scattered { placement, history, unit: rewrite.unit, bytes_left })
    }

    /// Whether an unchanged file should be read again: most of it lies in frames of which the parent
    /// needs little.
    #[must_use]
    pub fn is_worth_reading(&self, file: &Entry, place: u64) -> bool {
        let Some(scattered) = &self.0 else {
            return false;
        };
        scattered.lock().unwrap_or_else(PoisonError::into_inner).is_worth_reading(file, place)
    }
}

impl Scattered {
    fn is_worth_reading(&mut self, file: &Entry, place: u64) -> bool {
        if file.chunks == 0 || file.size > self.bytes_left {
            return false;
        }
        let Self { placement, history, unit, .. } = self;
        let mut sparse_bytes = 0;
        placement.runs(place, file.chunks, &mut |run| {
            let Some(container) = run.container else {
                return;
            };
            let name = unit.name_of(FrameId { container, frame: run.frame });
            let usage = history.get(&name);
            if usage.and_then(|usage| usage.is_sparse()) == Some(true) {
                sparse_bytes += run.bytes;
            }
        });
        let is_worth_it = sparse_bytes > file.size / 2;
        if is_worth_it {
            self.bytes_left -= file.size;
        }
        is_worth_it
    }
}
