//! What rewriting may do in a backup, and what it knows of the snapshots before.
//!
//! The loss is that of the whole store (what earlier snapshots did not use up may be used later),
//! whichever of them have been forgotten since;
//! the previous version of the stream is the parent (FAST'19, section 3.2; S2.11), whose placement
//! says how much of each frame or container it used.
//!
//! Files that have not changed are not read, so nothing of them could ever be stored again, and a
//! frame of which only they need a little would be read by every restore for ever. Where the parent
//! kept most of its files unread, frames to be emptied are therefore chosen beforehand
//! ([`onefold_policy::rewrite::sparsest`]), and what of such files lies there, or may be
//! differences against something there, is read again ([`super::scattered`]). An idea of this
//! project.

use super::BackupOptions;
use crate::chunk_store::RewriteOptions;
use crate::index::FingerprintIndex;
use crate::look_up::LookupChoice;
use crate::placement::{EarlierPlacement, Unit};
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList};
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::rewrite::{
    Before, Expected, LOSS_DEFAULT, RewriteChoice, RewriteParameters, UnitId, sparsest,
};
use onefold_policy::stream::RewriteGuard;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A restore into files reads each container once, so a container that is not needed at all any
/// more is worth many that are needed in one place less.
const WHOLE_WORTH: f64 = 1000.0;

/// The placement of a snapshot; one that cannot be read only costs time.
pub fn placement_of(
    repository: &Arc<Repository>,
    snapshot: Option<&Snapshot>,
) -> Option<EarlierPlacement> {
    EarlierPlacement::open(repository, snapshot?.record.placement?).ok()
}

/// What rewriting may do, and what it knows of the snapshots before (S2.11); the placement of the
/// previous version, if it was opened for that.
pub fn options(
    repository: &Arc<Repository>,
    options: &BackupOptions,
    list: &SnapshotList,
    (names, parent): (&[String], Option<&Snapshot>),
    (costs, index): (Option<DeviceCosts>, &FingerprintIndex),
) -> (RewriteOptions, Option<EarlierPlacement>) {
    let choice = options.rewrite;
    let unit = Unit::for_rewriting(&choice, costs.map_or(0, |costs| costs.device_read_ns));
    // Where nothing is looked up there are no duplicates, and no history matters.
    let Some(unit) = unit.filter(|_| options.lookup != LookupChoice::None) else {
        return (RewriteOptions::none(), None);
    };
    let previous = parent.or_else(|| previous_version(list, &options.host, names));
    let mut earlier = placement_of(repository, previous);
    let history = earlier.as_mut().and_then(|earlier| earlier.uses(unit).ok());
    let stored = StoredBefore::of(list, index.chunks());
    let parameters = RewriteParameters {
        container_bytes: repository.container_target_bytes() as u64,
        expected: previous.map(|previous| Expected {
            chunks: previous.record.summary.chunks,
            unique_chunks: previous.record.summary.chunks_new,
        }),
        before: Some(stored.chunks),
        history,
        whole_worth: WHOLE_WORTH,
        ..RewriteParameters::default()
    };
    let targets = targets(&stored, choice, &parameters, parent);
    let history = parameters.history.clone();
    let guard = Some(RewriteGuard { history, targets: targets.map(Arc::new) });
    (RewriteOptions { choice, parameters, unit, guard }, earlier)
}

/// What the store holds, as far as the loss counts it: what its index lists. What forgotten
/// snapshots stored belongs to it, as long as it is there; of what the listed ones stored again it
/// is not known how much a collection has dropped since, so all of it counts as stored twice.
#[derive(Default)]
struct StoredBefore {
    chunks: Before,
    unique_bytes: u64,
    rewritten_bytes: u64,
}

impl StoredBefore {
    fn of(list: &SnapshotList, chunks_indexed: u64) -> Self {
        let mut sum = Self::default();
        for snapshot in &list.snapshots {
            let summary = &snapshot.record.summary;
            let add = |to: &mut u64, more| *to = to.saturating_add(more);
            add(&mut sum.chunks.unique_chunks, summary.chunks_new);
            add(&mut sum.chunks.rewritten_chunks, summary.chunks_rewritten);
            add(&mut sum.unique_bytes, summary.bytes_new);
            add(&mut sum.rewritten_bytes, summary.bytes_rewritten);
        }
        let unique_chunks = chunks_indexed.saturating_sub(sum.chunks.rewritten_chunks);
        let mean_bytes = sum.unique_bytes as f64 / sum.chunks.unique_chunks.max(1) as f64;
        sum.unique_bytes = (unique_chunks as f64 * mean_bytes) as u64;
        sum.chunks.unique_chunks = unique_chunks;
        sum
    }
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
        list.visible().filter(same).max_by_key(|snapshot| snapshot.saved_order())
    };
    newest(&|snapshot| snapshot.record.paths == names).or_else(|| newest(&|_| true))
}

/// The frames or containers to be emptied, if the stream will only be what has changed: if the
/// parent's was.
fn targets(
    stored: &StoredBefore,
    choice: RewriteChoice,
    parameters: &RewriteParameters,
    parent: Option<&Snapshot>,
) -> Option<BTreeSet<UnitId>> {
    let by_history = matches!(choice, RewriteChoice::Auto(_) | RewriteChoice::History(_));
    let history = parameters.history.as_ref().filter(|_| by_history)?;
    let summary = &parent?.record.summary;
    if summary.bytes_read > summary.bytes / 2 {
        return None;
    }
    let loss = choice.limits().loss_max.unwrap_or(LOSS_DEFAULT);
    let allowed_bytes = (stored.unique_bytes as f64 * loss / (1.0 - loss)) as u64;
    Some(sparsest(history, allowed_bytes.saturating_sub(stored.rewritten_bytes)))
}
