//! Forgetting snapshots: by policy or by name, reversibly first.
//!
//! `forget` hides a snapshot behind a mark that `undelete` removes; `forget_final` decides its last
//! change and its tombstone, after which its space can be collected and nothing brings it back
//! (F1). Either is checked for all snapshots named before anything is written (R49): one that is on
//! hold or does not exist refuses the whole request. Both may be repeated; what is done already is
//! passed over. Holds and dates come from the records themselves: a checkpoint may be a lie of a
//! client that may only append. A hold that is decided meanwhile, beside a request that has begun,
//! is obeyed: its snapshot stays (R89). `change` is what `hold`, `release`, `tag` and `describe`
//! do.

use crate::repository::Repository;
use crate::session::changes::{self, Attributes, Said};
use crate::session::checkpoints::extend_after;
use crate::session::{Snapshot, SnapshotList, marks, tombstones};
use onefold_policy::retention::Candidate;
use onefold_types::{Error, ErrorKind, Result, SessionId};

/// Names that are decided when a snapshot is forgotten for good: its last change, its tombstone.
const NAMES_OF_FORGETTING: usize = 2;

/// Refuses a request that names a snapshot on hold, or none: for whoever forgets in pieces.
pub fn refuse_held(repository: &Repository, snapshots: &[SessionId]) -> Result<()> {
    let list = SnapshotList::load_unaided(repository)?;
    let mut left = snapshots.to_vec();
    left.retain(|id| list.get(*id).is_some());
    select(&list, &left).map(|_| ())
}

/// Hides snapshots until `undelete` brings them back (a reversible mark).
pub fn forget(repository: &Repository, snapshots: &[SessionId], by: &str) -> Result<()> {
    let list = SnapshotList::load_unaided(repository)?;
    for snapshot in select(&list, snapshots)? {
        if !snapshot.hidden {
            marks::hide(repository, snapshot.id, by, "forget")?;
        }
    }
    Ok(())
}

/// Shows hidden snapshots again; returns how many were hidden.
pub fn undelete(repository: &Repository, snapshots: &[SessionId]) -> Result<u64> {
    let list = SnapshotList::load(repository)?;
    for id in snapshots {
        find(&list, *id)?;
    }
    let mut shown = 0;
    for id in snapshots {
        shown += u64::from(marks::take_back(repository, *id)?);
    }
    Ok(shown)
}

/// Forgets snapshots for good: their space may be collected from now on. Those that are forgotten
/// already are passed over, so that what was stopped in the middle can be repeated.
pub fn forget_final(repository: &Repository, snapshots: &[SessionId], by: &str) -> Result<()> {
    let list = SnapshotList::load_unaided(repository)?;
    let mut left = Vec::with_capacity(snapshots.len());
    for id in snapshots {
        if list.get(*id).is_some() || !tombstones::is_forgotten(repository, *id)? {
            left.push(*id);
        }
    }
    let selected = select(&list, &left)?;
    for snapshot in &selected {
        let known = list.changes.of(snapshot.id);
        if !changes::close(repository, snapshot.id, known, by, &|| Ok(true))? {
            return Err(Error::invalid(format!(
                "snapshot {} was put on hold meanwhile and stays; of those named before it some \
                 may be forgotten",
                snapshot.id.short()
            )));
        }
        tombstones::forget(repository, snapshot.id, by, "forget")?;
    }
    for snapshot in selected.iter().filter(|snapshot| snapshot.hidden) {
        marks::clear(repository, snapshot.id)?;
    }
    extend_after(repository, list.new_names + NAMES_OF_FORGETTING * selected.len());
    Ok(())
}

/// Which of these snapshots are hidden, or forgotten for good: what was done before an error.
///
/// Errors: those of reading the list of snapshots.
pub fn done_of(
    repository: &Repository,
    snapshots: &[SessionId],
    for_good: bool,
) -> Result<Vec<SessionId>> {
    let list = SnapshotList::load(repository)?;
    let is_done = |id: &&SessionId| match list.get(**id) {
        Some(snapshot) => snapshot.hidden && !for_good,
        None => true,
    };
    Ok(snapshots.iter().filter(is_done).copied().collect())
}

/// Forgets for good what was hidden before this moment; returns how many snapshots that were.
/// Those on hold stay, and so do those that somebody brings back or puts on hold meanwhile: marks
/// are looked at again just before the last change is decided ([`marks`]).
pub fn forget_hidden_before(repository: &Repository, moment_ns: i64, by: &str) -> Result<u64> {
    let list = SnapshotList::load_unaided(repository)?;
    let mut forgotten = 0;
    for snapshot in list.snapshots.iter().filter(|one| one.hidden && !one.record.hold) {
        // Hidden before it was saved: a clock was wrong, so its age is unknown.
        if snapshot.record.finished_ns >= moment_ns {
            continue;
        }
        let known = list.changes.of(snapshot.id);
        if marks::make_final(repository, snapshot.id, known, moment_ns, by)? {
            tombstones::forget(repository, snapshot.id, by, "hidden long enough")?;
            marks::clear(repository, snapshot.id)?;
            forgotten += 1;
        }
    }
    extend_after(repository, list.new_names + NAMES_OF_FORGETTING * forgotten as usize);
    Ok(forgotten)
}

/// Changes what is said about snapshots, all of which are looked up before the first is changed.
///
/// Errors: `NotFound` if one of them is forgotten for good.
pub fn change(
    repository: &Repository,
    snapshots: &[SessionId],
    by: &str,
    apply: &dyn Fn(&mut Attributes),
) -> Result<Vec<Said>> {
    let list = SnapshotList::load(repository)?;
    for id in snapshots {
        find(&list, *id)?;
    }
    let edit = |id: &SessionId| changes::edit(repository, *id, list.changes.of(*id), by, apply);
    let said: Vec<Said> = snapshots.iter().map(edit).collect::<Result<_>>()?;
    extend_after(repository, list.new_names + said.len());
    Ok(said)
}

/// A snapshot as retention and selection look at it.
#[must_use]
pub fn candidate(snapshot: &Snapshot) -> Candidate {
    let record = &snapshot.record;
    Candidate {
        id: snapshot.id,
        time_ns: record.started_ns,
        host: record.host.clone(),
        paths: record.paths.clone(),
        tags: record.tags.clone(),
        hold: record.hold,
        sequence: snapshot.sequence,
        is_copy: record.original.is_some(),
        is_empty: record.summary.bytes == 0,
        is_partial: snapshot.is_partial(),
    }
}

/// The snapshots as retention and selection look at them.
#[must_use]
pub fn candidates(list: &SnapshotList, include_hidden: bool) -> Vec<Candidate> {
    list.snapshots
        .iter()
        .filter(|snapshot| !snapshot.is_manifest() && (include_hidden || !snapshot.hidden))
        .map(candidate)
        .collect()
}

/// The snapshots named, each once; refused if one is on hold.
fn select<'a>(list: &'a SnapshotList, ids: &[SessionId]) -> Result<Vec<&'a Snapshot>> {
    let mut selected: Vec<&Snapshot> = Vec::with_capacity(ids.len());
    for id in ids {
        let snapshot = find(list, *id)?;
        if snapshot.record.hold {
            return Err(Error::invalid(format!(
                "snapshot {} is on hold; nothing was forgotten",
                id.short()
            )));
        }
        if !selected.iter().any(|other| other.id == *id) {
            selected.push(snapshot);
        }
    }
    Ok(selected)
}

/// Errors: `Invalid` if it is the manifest of a share, which keeps the data of files.
fn find(list: &SnapshotList, id: SessionId) -> Result<&Snapshot> {
    let snapshot = list.get(id).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no snapshot {}", id.short()))
    })?;
    match snapshot.is_manifest() {
        true => Err(Error::invalid(format!(
            "{} is the manifest of a share and keeps the data of its files; it goes with 'onefold \
             share remove'",
            id.short()
        ))),
        false => Ok(snapshot),
    }
}
