//! What rewriting may do in a backup, and what it knows of the snapshots before.
//!
//! The loss is that of the whole store (what earlier snapshots did not use up may be used later);
//! the previous version of the stream is the parent (FAST'19, section 3.2; S2.11), whose placement
//! says how much of each frame or container it used.

use crate::chunk_store::RewriteOptions;
use crate::placement::{PlacementReader, Unit};
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList};
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::rewrite::{Before, Expected, RewriteChoice, RewriteParameters};
use std::sync::Arc;

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
    repository: &Arc<Repository>,
    choice: RewriteChoice,
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
