//! The list of snapshots: committed outcomes that no tombstone forgets.
//!
//! Each record is sealed under its session's name, so none can be forged, altered or moved. The
//! *list* is authenticated too (R54): every record names the newest outcomes that its writer knew,
//! so all older outcomes are reachable from the newer ones, and one that was taken away is missed.
//! Only the very newest ones, which nobody has named yet, can be withheld without trace.
//!
//! Marks are reversible: a snapshot with a mark is hidden until `undelete` removes its marks. A
//! tombstone is final (F1). Marks and tombstones that do not open with the store's key count for
//! nothing and are reported: to forget takes the key.

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout;
use onefold_format::record::{self, Note, Outcome, SnapshotRecord};
use onefold_store::Key;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// A committed session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The session's name, which is the snapshot's.
    pub id: SessionId,
    /// Its record.
    pub record: SnapshotRecord,
    /// Whether `forget` has hidden it.
    pub hidden: bool,
}

/// All snapshots of a store, as listed at one moment.
#[derive(Clone, Debug, Default)]
pub struct SnapshotList {
    /// Snapshots that are not forgotten for good, oldest first, hidden ones included.
    pub snapshots: Vec<Snapshot>,
    /// The newest outcomes: those that no other names as its predecessor.
    pub heads: Vec<SessionId>,
    /// What does not add up: missing, damaged or unauthentic records.
    pub problems: Vec<String>,
}

impl SnapshotList {
    /// Lists all snapshots.
    pub fn load(repository: &Repository) -> Result<Self> {
        let mut list = Self::default();
        let tombstones = authentic_names(repository, Kind::Tombstone, &mut list.problems)?;
        let marks = authentic_names(repository, Kind::Mark, &mut list.problems)?;
        let mut outcomes = BTreeMap::new();
        for id in decided_sessions(repository)? {
            match read_outcome(repository, id) {
                Ok(Some(outcome)) => {
                    outcomes.insert(id, outcome);
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NewerFormat => return Err(error),
                Err(error) if error.is_damage() => list.problems.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        list.complete(repository, &mut outcomes)?;
        list.check_chain(&outcomes);
        for (id, outcome) in outcomes {
            if let Outcome::Committed(record) = outcome
                && !tombstones.contains(&id)
            {
                let hidden = marks.contains(&id);
                list.snapshots.push(Snapshot { id, record: *record, hidden });
            }
        }
        list.snapshots.sort_by_key(|snapshot| (snapshot.record.started_ns, snapshot.id));
        Ok(list)
    }

    /// The snapshots that are not hidden.
    pub fn visible(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().filter(|snapshot| !snapshot.hidden)
    }

    /// The snapshot of this name.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// Adds what other records name and the list did not show: it may be read name by name, and
    /// show a later record without an earlier one.
    fn complete(
        &mut self,
        repository: &Repository,
        outcomes: &mut BTreeMap<SessionId, Outcome>,
    ) -> Result<()> {
        let named = |outcome: &Outcome| match outcome {
            Outcome::Committed(record) => record.predecessors.clone(),
            Outcome::Fenced => Vec::new(),
        };
        let mut left: Vec<SessionId> = outcomes.values().flat_map(named).collect();
        let mut asked = BTreeSet::new();
        while let Some(id) = left.pop() {
            if outcomes.contains_key(&id) || !asked.insert(id) {
                continue;
            }
            match read_outcome(repository, id) {
                Ok(Some(outcome)) => {
                    left.extend(named(&outcome));
                    outcomes.insert(id, outcome);
                }
                Ok(None) => {}
                // Reported already.
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check_chain(&mut self, outcomes: &BTreeMap<SessionId, Outcome>) {
        let mut named = BTreeSet::new();
        for outcome in outcomes.values() {
            if let Outcome::Committed(record) = outcome {
                named.extend(record.predecessors.iter().copied());
            }
        }
        for id in named.iter().filter(|id| !outcomes.contains_key(id)) {
            self.problems.push(format!(
                "snapshot {id} existed and is missing now: its record was removed from the store"
            ));
        }
        self.heads = outcomes
            .iter()
            .filter(|(id, outcome)| matches!(outcome, Outcome::Committed(_)) && !named.contains(id))
            .map(|(id, _)| *id)
            .collect();
    }
}

/// The snapshots that were forgotten for good, by authentic tombstones.
pub fn tombstones(repository: &Repository) -> Result<BTreeSet<SessionId>> {
    authentic_names(repository, Kind::Tombstone, &mut Vec::new())
}

/// Every committed session that is not in `forgotten`, hidden or not. Sessions in `known` were read
/// before and are left out; those that were read are added to it, fenced ones too.
///
/// Errors: a record that cannot be read, or one that others name and that is missing. What it
/// refers to is unknown, so whoever deletes must not go on.
pub fn committed_but(
    repository: &Repository,
    forgotten: &BTreeSet<SessionId>,
    known: &mut BTreeSet<SessionId>,
) -> Result<Vec<(SessionId, SnapshotRecord)>> {
    let (mut committed, mut named) = (Vec::new(), BTreeSet::new());
    let decided: BTreeSet<SessionId> = decided_sessions(repository)?.into_iter().collect();
    let (before, mut read) = (&*known, Vec::new());
    for id in decided.iter().filter(|id| !forgotten.contains(id) && !before.contains(id)) {
        if let Some(Outcome::Committed(record)) = read_outcome(repository, *id)? {
            named.extend(record.predecessors.iter().copied());
            committed.push((*id, *record));
        }
        read.push(*id);
    }
    known.extend(read);
    for id in named.iter().filter(|id| !decided.contains(id)) {
        // A list may be read name by name, and show a later one without an earlier one.
        if read_outcome(repository, *id)?.is_none() {
            return Err(Error::damaged(format!(
                "snapshot {id} existed and is missing now: its record was removed from the store"
            )));
        }
    }
    Ok(committed)
}

/// Reads how a session ended, if it has.
pub fn read_outcome(repository: &Repository, id: SessionId) -> Result<Option<Outcome>> {
    let key = Key::new(layout::outcome(id))?;
    match repository.store().decided(&key)? {
        Some(sealed) => open_outcome(repository, id, &sealed).map(Some),
        None => Ok(None),
    }
}

/// Opens the record of an outcome.
pub fn open_outcome(repository: &Repository, id: SessionId, sealed: &[u8]) -> Result<Outcome> {
    repository
        .vault()
        .open_record(Purpose::Outcome, &id.0, sealed)
        .and_then(|bytes| record::decode(&bytes, "outcome"))
        .map_err(|error| error.context(format!("snapshot {id}")))
}

/// Whether a snapshot has been forgotten for good. An unauthentic tombstone counts for nothing.
pub fn is_forgotten(repository: &Repository, id: SessionId) -> Result<bool> {
    let key = Key::new(layout::tombstone(id))?;
    match repository.store().decided(&key)? {
        Some(sealed) => {
            Ok(repository.vault().open_record(Purpose::Tombstone, &id.0, &sealed).is_ok())
        }
        None => Ok(false),
    }
}

/// Forgets a snapshot for good (F1).
pub fn decide_tombstone(
    repository: &Repository,
    id: SessionId,
    by: &str,
    reason: &str,
) -> Result<()> {
    let sealed = seal_note(repository, Purpose::Tombstone, &id.0, by, reason)?;
    repository.store().decide(&Key::new(layout::tombstone(id))?, &sealed).map(|_| ())
}

/// Hides a snapshot until [`unhide`].
pub fn hide(repository: &Repository, id: SessionId, by: &str, reason: &str) -> Result<()> {
    let mark = SessionId::random(&*repository.environment().randomness);
    let sealed = seal_note(repository, Purpose::Mark, &id.0, by, reason)?;
    repository.store().put(&Key::new(layout::mark(id, mark))?, &sealed)
}

/// Shows a hidden snapshot again; tells whether it was hidden.
pub fn unhide(repository: &Repository, id: SessionId) -> Result<bool> {
    let mut names = Vec::new();
    repository.store().list_names(layout::MARKS, &mut |name| {
        if layout::marked_snapshot(name).is_ok_and(|marked| marked == id) {
            names.push(format!("{}/{}", layout::MARKS, layout::last_component(name)));
        }
        Ok(())
    })?;
    for name in &names {
        repository.store().delete(&Key::new(name.as_str())?)?;
    }
    Ok(!names.is_empty())
}

/// When each hidden snapshot was hidden last, in nanoseconds since 1970. Marks that do not open
/// with the store's key count for nothing.
pub fn hidden_since(repository: &Repository) -> Result<BTreeMap<SessionId, i64>> {
    let mut names = Vec::new();
    repository.store().list_names(layout::MARKS, &mut |name| {
        names.push(name.to_owned());
        Ok(())
    })?;
    let mut since: BTreeMap<SessionId, i64> = BTreeMap::new();
    for name in names {
        let Ok(id) = layout::marked_snapshot(&name) else { continue };
        let sealed = match repository.store().get(&Key::new(name)?) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let note = repository
            .vault()
            .open_record(Purpose::Mark, &id.0, &sealed)
            .and_then(|bytes| record::decode::<Note>(&bytes, "mark"));
        if let Ok(note) = note {
            let newest = since.entry(id).or_insert(note.time_ns);
            *newest = note.time_ns.max(*newest);
        }
    }
    Ok(since)
}

fn seal_note(
    repository: &Repository,
    purpose: Purpose,
    name: &[u8; 16],
    by: &str,
    reason: &str,
) -> Result<Vec<u8>> {
    let environment = repository.environment();
    let note =
        Note { time_ns: environment.clock.now_ns(), by: by.to_owned(), reason: reason.to_owned() };
    let bytes = record::encode(&note)?;
    repository.vault().seal_record(purpose, name, &bytes, &*environment.randomness)
}

fn decided_sessions(repository: &Repository) -> Result<Vec<SessionId>> {
    let mut ids = Vec::new();
    repository.store().list_decided(layout::OUTCOMES, &mut |name| {
        ids.extend(layout::last_component(name).parse::<SessionId>());
        Ok(())
    })?;
    Ok(ids)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tombstone,
    Mark,
}

/// The snapshots that have an authentic tombstone or mark.
fn authentic_names(
    repository: &Repository,
    kind: Kind,
    problems: &mut Vec<String>,
) -> Result<BTreeSet<SessionId>> {
    let store = repository.store();
    let mut found = Vec::new();
    match kind {
        Kind::Tombstone => store.list_decided(layout::TOMBSTONES, &mut |name| {
            let last = layout::last_component(name);
            found.push((format!("{}/{last}", layout::TOMBSTONES), last.parse::<SessionId>()));
            Ok(())
        })?,
        Kind::Mark => store.list_names(layout::MARKS, &mut |name| {
            let last = layout::last_component(name);
            found.push((format!("{}/{last}", layout::MARKS), layout::marked_snapshot(name)));
            Ok(())
        })?,
    }
    let mut ids = BTreeSet::new();
    for (name, id) in found {
        let Ok(id) = id else { continue };
        let key = Key::new(name.as_str())?;
        let (sealed, purpose) = match kind {
            Kind::Tombstone => (store.decided(&key), Purpose::Tombstone),
            Kind::Mark => (store.get(&key).map(Some), Purpose::Mark),
        };
        match sealed {
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(Some(sealed)) => match repository.vault().open_record(purpose, &id.0, &sealed) {
                Ok(_) => {
                    ids.insert(id);
                }
                Err(_) => problems
                    .push(format!("{name} was not written by a holder of the key; it is ignored")),
            },
        }
    }
    Ok(ids)
}

/// An error about a snapshot that cannot be read because it was forgotten meanwhile.
#[must_use]
pub fn forgotten(id: SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("snapshot {} has been forgotten meanwhile", id.short()))
}
