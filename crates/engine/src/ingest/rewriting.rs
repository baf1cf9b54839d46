//! What rewriting may do in a backup, and what it knows of the snapshots before.
//!
//! The loss is that of the whole store (what earlier snapshots did not use up may be used later);
//! the previous version of the stream is the parent (FAST'19, section 3.2; S2.11), whose placement
//! says how much of each frame or container it used.
//!
//! Files that have not changed are not read, so nothing of them could ever be stored again, and a
//! frame of which only they need a little would be read by every restore for ever. Where the parent
//! kept most of its files unread, frames to be emptied are therefore chosen beforehand
//! ([`onefold_policy::rewrite::sparsest`]), and files that have something there are read again
//! ([`ScatteredFiles`]). An idea of this project.

use super::BackupOptions;
use crate::chunk_store::RewriteOptions;
use crate::placement::{FrameId, PlacementReader, Unit};
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList};
use onefold_format::node::Entry;
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::rewrite::{
    Before, Expected, LOSS_DEFAULT, RewriteChoice, RewriteParameters, sparsest,
};
use onefold_types::ContainerId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A restore into files reads each container once, so a container that is not needed at all any
/// more is worth many that are needed in one place less.
const WHOLE_WORTH: f64 = 1000.0;
/// Of a snapshot at most this part is read again in one backup, or so many bytes of a small one.
const READ_AGAIN_PART: u64 = 4;
const READ_AGAIN_MIN: u64 = 64 << 20;

/// The placement of a snapshot; one that cannot be read only costs time.
pub fn placement_of(
    repository: &Arc<Repository>,
    snapshot: Option<&Snapshot>,
) -> Option<PlacementReader> {
    PlacementReader::open(repository, snapshot?.record.placement?).ok()
}

/// What rewriting may do, and what it knows of the snapshots before (S2.11).
pub fn options(
    repository: &Arc<Repository>,
    options: &BackupOptions,
    list: &SnapshotList,
    (names, parent): (&[String], Option<&Snapshot>),
    costs: Option<DeviceCosts>,
) -> RewriteOptions {
    let choice = options.rewrite;
    if choice == RewriteChoice::None {
        return RewriteOptions::none();
    }
    let unit = Unit::for_device(costs.map_or(0, |costs| costs.device_read_ns));
    let previous = parent.or_else(|| previous_version(list, &options.host, names));
    let history =
        placement_of(repository, previous).and_then(|mut placement| placement.uses(unit).ok());
    let mut before = Before::default();
    for snapshot in list.visible() {
        let summary = &snapshot.record.summary;
        before.unique_chunks += summary.chunks_new;
        before.rewritten_chunks += summary.chunks_rewritten;
    }
    let parameters = RewriteParameters {
        container_bytes: repository.configuration().container_size_bytes as u64,
        expected: previous.map(|previous| Expected {
            chunks: previous.record.summary.chunks,
            unique_chunks: previous.record.summary.chunks_new,
        }),
        before: Some(before),
        history: history.map(Arc::new),
        whole_worth: WHOLE_WORTH,
        ..RewriteParameters::default()
    };
    let targets = targets(list, choice, &parameters, parent);
    RewriteOptions { choice, parameters, unit, targets: targets.map(Arc::new) }
}

/// What is most likely the version before, where there is no parent: a stream has none, and neither
/// has a tree that has moved.
fn previous_version<'a>(
    list: &'a SnapshotList,
    host: &str,
    names: &[String],
) -> Option<&'a Snapshot> {
    let newest = |is_same: &dyn Fn(&Snapshot) -> bool| {
        let same = |snapshot: &&Snapshot| snapshot.record.host == host && is_same(snapshot);
        list.visible().filter(same).last()
    };
    newest(&|snapshot| snapshot.record.paths == names).or_else(|| newest(&|_| true))
}

/// The frames or containers to be emptied, if the stream will only be what has changed: if the
/// parent's was.
fn targets(
    list: &SnapshotList,
    choice: RewriteChoice,
    parameters: &RewriteParameters,
    parent: Option<&Snapshot>,
) -> Option<BTreeSet<ContainerId>> {
    let by_history = matches!(choice, RewriteChoice::Auto(_) | RewriteChoice::History(_));
    let history = parameters.history.as_ref().filter(|_| by_history)?;
    let summary = &parent?.record.summary;
    if summary.bytes_read > summary.bytes / 2 {
        return None;
    }
    let loss = choice.limits().loss_max.unwrap_or(LOSS_DEFAULT);
    let (mut unique_bytes, mut rewritten_bytes) = (0u64, 0u64);
    for snapshot in list.visible() {
        unique_bytes = unique_bytes.saturating_add(snapshot.record.summary.bytes_new);
        rewritten_bytes = rewritten_bytes.saturating_add(snapshot.record.summary.bytes_rewritten);
    }
    let allowed_bytes = (unique_bytes as f64 * loss / (1.0 - loss)) as u64;
    Some(sparsest(history, allowed_bytes.saturating_sub(rewritten_bytes)))
}

/// Files of the parent that have something in frames or containers that are to be emptied.
pub struct ScatteredFiles(Option<Mutex<Scattered>>);

struct Scattered {
    placement: PlacementReader,
    targets: Arc<BTreeSet<ContainerId>>,
    unit: Unit,
    /// Bytes that may still be read again.
    bytes_left: u64,
}

impl ScatteredFiles {
    /// The files of a parent.
    #[must_use]
    pub fn new(
        repository: &Arc<Repository>,
        parent: Option<&Snapshot>,
        rewrite: &RewriteOptions,
    ) -> Self {
        let of = || {
            let targets = rewrite.targets.clone().filter(|targets| !targets.is_empty())?;
            let bytes_left = (parent?.record.summary.bytes / READ_AGAIN_PART).max(READ_AGAIN_MIN);
            let placement = placement_of(repository, parent)?;
            Some(Mutex::new(Scattered { placement, targets, unit: rewrite.unit, bytes_left }))
        };
        Self(of())
    }

    /// Whether an unchanged file should be read again.
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
        let Self { placement, targets, unit, .. } = self;
        let mut is_in_target = false;
        placement.runs(place, file.chunks, &mut |run| {
            is_in_target |= run.container.is_some_and(|container| {
                targets.contains(&unit.name_of(FrameId { container, frame: run.frame }))
            });
        });
        if is_in_target {
            self.bytes_left -= file.size;
        }
        is_in_target
    }
}
