//! Checkpoints: what decided names say, said again, so that opening a store costs what is new and
//! not what there ever was (rule D10).
//!
//! Outcomes and tombstones are decided for all time and never removed, so a store that was used for
//! years has thousands of them, each a small object. A checkpoint repeats what was read from many;
//! any number of them may lie in a store, and all that open are taken together. They are derived:
//! deleting them costs reading everything once.
//!
//! # Invariants
//! - **Contents, never names.** Which sessions have an outcome, and which are forgotten, is told by
//!   listings alone; a checkpoint stands in for the contents of names that are listed. What is
//!   listed and in no checkpoint is read. So a checkpoint can be as old as it likes, or be missing,
//!   or be put back after it was replaced: nothing is hidden by it.
//! - **Nothing in one becomes stale**, since it repeats what is decided once. A change may be
//!   removed, with all that is said about a snapshot, but then its name is not listed.
//! - **Evidence.** A session that a checkpoint names had an outcome: one that is not listed is
//!   missed (rule D4).
//! - Only what was opened with the store's keys, from a decision that the store says is durable,
//!   gets into one ([`extend`]).
//! - Records of what is forgotten are left out. Whoever does not take a session for forgotten, as a
//!   collector that goes by an older plan, reads its record.
//!
//! A checkpoint that does not open, or is longer than any may be, is passed over, and `check` tells
//! of it. One of a newer version is refused, as every record is.

mod reading;
mod writing;

pub(crate) use reading::read_all;
pub use reading::{Ending, SMALL_READS_ALONE};
pub use writing::{NEW_NAMES_MIN, SMALL_COUNT_MAX, extend, extend_after, reseal, tidy};

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout::{self, ChangeName};
use onefold_format::record::{self, Change, Checkpoint, KnownSession, KnownSnapshot};
use onefold_store::{Asked, Key, foresee};
use onefold_types::error::Context;
use onefold_types::{CheckpointId, Error, ErrorKind, Result, SessionId, limits};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that sealing adds to the longest checkpoint, and some to spare.
const STORED_MAX_BYTES: u64 = limits::CHECKPOINT_MAX_BYTES as u64 + 64;

/// What all checkpoints of a store say together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checkpoints {
    endings: BTreeMap<SessionId, Ending>,
    /// The snapshots that are forgotten for good, and whether they were given up.
    tombstones: BTreeMap<SessionId, bool>,
    changes: BTreeMap<ChangeName, Change>,
    /// The sessions that are known to have an outcome, and to be forgotten for good.
    named: BTreeSet<SessionId>,
    named_forgotten: BTreeSet<SessionId>,
}

/// One checkpoint of a store.
pub(crate) struct ReadCheckpoint {
    pub(crate) id: CheckpointId,
    pub(crate) record: Checkpoint,
    stored_bytes: u64,
    /// Whether it is sealed under older keys than the newest ones.
    is_of_older_keys: bool,
}

/// The checkpoints of a store, one by one.
#[derive(Default)]
pub(crate) struct CheckpointSet {
    /// Those that open, newest first.
    pub(crate) read: Vec<ReadCheckpoint>,
    /// Those that others replace, and that nobody has removed yet.
    replaced: BTreeSet<CheckpointId>,
    /// Those that do not open, and why.
    pub(crate) unreadable: Vec<(CheckpointId, Error)>,
}

impl Checkpoints {
    /// Reads all checkpoints. Names are to be listed afterwards: what is in a checkpoint then was
    /// decided before, and a listing shows it.
    ///
    /// Errors: `NewerFormat`, `KeysChanged`; those of the device.
    pub fn load(repository: &Repository) -> Result<Self> {
        Ok(Self::of(
            CheckpointSet::load(repository)?.read.into_iter().map(|checkpoint| checkpoint.record),
        ))
    }

    /// What these say together.
    pub(crate) fn of(records: impl IntoIterator<Item = Checkpoint>) -> Self {
        let mut all = Self::default();
        for record in records {
            all.add(record);
        }
        all.named = all.endings.keys().copied().collect();
        all.named_forgotten = all.tombstones.keys().copied().collect();
        all
    }

    /// The same without any content: all that is left is evidence.
    #[must_use]
    pub fn without_contents(self) -> Self {
        let Self { named, named_forgotten, .. } = self;
        Self { named, named_forgotten, ..Self::default() }
    }

    fn add(&mut self, record: Checkpoint) {
        for session in record.fenced {
            self.endings.entry(session).or_insert(Ending::Fenced);
        }
        for KnownSession { session, predecessors, strays } in record.without_record {
            self.add_ending(session, Ending::WithoutRecord { predecessors, strays });
        }
        for KnownSnapshot { session, snapshot } in record.committed {
            self.add_ending(session, Ending::Committed(Box::new(snapshot)));
        }
        self.tombstones.extend(record.tombstones.into_iter().map(|session| (session, false)));
        self.tombstones.extend(record.given_up.into_iter().map(|session| (session, true)));
        self.changes.extend(record.changes.into_iter().map(|known| (known.name, known.change)));
    }

    /// Of several that say the same, the one that says most counts.
    fn add_ending(&mut self, session: SessionId, ending: Ending) {
        let known = self.endings.get(&session);
        if !matches!(known, Some(Ending::Committed(_))) {
            self.endings.insert(session, ending);
        }
    }

    /// Takes out how these sessions ended: that is not to be believed.
    pub(crate) fn distrust<'a>(
        &mut self,
        sessions: impl IntoIterator<Item = &'a SessionId>,
    ) -> BTreeMap<SessionId, Ending> {
        let taken = sessions.into_iter().map(|id| Some((*id, self.endings.remove(id)?)));
        taken.flatten().collect()
    }

    /// The sessions that had an outcome.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.named.iter().copied()
    }

    /// The snapshots that are forgotten for good.
    pub fn forgotten(&self) -> impl Iterator<Item = SessionId> {
        self.named_forgotten.iter().copied()
    }

    /// How a session ended.
    #[must_use]
    pub fn ending(&self, session: SessionId) -> Option<&Ending> {
        self.endings.get(&session)
    }

    /// What a tombstone says: whether the session was given up.
    #[must_use]
    pub fn tombstone(&self, session: SessionId) -> Option<bool> {
        self.tombstones.get(&session).copied()
    }

    /// What a change says.
    #[must_use]
    pub fn change(&self, name: ChangeName) -> Option<&Change> {
        self.changes.get(&name)
    }

    /// What changes say.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&ChangeName, &Change)> {
        self.changes.iter()
    }

    /// How many names it knows something of.
    fn names(&self) -> usize {
        self.endings.len() + self.tombstones.len() + self.changes.len()
    }
}

impl CheckpointSet {
    /// Reads the checkpoints, the newest first; those that it replaces are not read.
    pub(crate) fn load(repository: &Repository) -> Result<Self> {
        let mut listed = BTreeMap::new();
        let names = repository.foreseen_at_opening();
        let outcome = repository.store().list(layout::CHECKPOINTS, &mut |found| {
            // Another name is none of ours.
            if let Ok(id) = layout::last_component(found.key.as_str()).parse::<CheckpointId>() {
                listed.insert(id, found.size_bytes);
            }
            Ok(())
        });
        drop(names);
        match outcome {
            // Derived as they are, they cost time where they cannot be had.
            Err(error) if !is_passed_over(&error) => return Err(error),
            _ => {}
        }
        // What they replace is rare, so little is asked for in vain.
        let asked = |(id, stored_bytes): (&CheckpointId, &u64)| {
            let is_long = *stored_bytes > STORED_MAX_BYTES;
            let key = Key::new(layout::checkpoint(*id)).ok().filter(|_| !is_long)?;
            Some(Asked::listed(key, *stored_bytes))
        };
        let asked = listed.iter().rev().filter_map(asked).collect();
        let _foreseen = foresee(repository.store(), asked);
        let mut set = Self::default();
        let mut named = BTreeSet::new();
        for (id, stored_bytes) in listed.into_iter().rev() {
            if named.contains(&id) {
                set.replaced.insert(id);
                continue;
            }
            match read(repository, id, stored_bytes) {
                Ok(checkpoint) => {
                    named.extend(checkpoint.record.replaces.iter().copied());
                    set.read.push(checkpoint);
                }
                // Somebody has replaced it since it was listed; what it said is read elsewhere.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if is_passed_over(&error) => set.unreadable.push((id, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(set)
    }
}

/// Whether an error is about checkpoints alone, which nobody needs.
fn is_passed_over(error: &Error) -> bool {
    error.is_unreadable() || error.kind() == ErrorKind::Invalid
}

/// Reads one checkpoint that was listed with this length.
fn read(repository: &Repository, id: CheckpointId, stored_bytes: u64) -> Result<ReadCheckpoint> {
    let name = layout::checkpoint(id);
    if stored_bytes > STORED_MAX_BYTES {
        return Err(Error::damaged(format!("'{name}' is far too long")));
    }
    let sealed = repository.store().get(&Key::new(name.as_str())?)?;
    let opened = repository.vault().open_record_told(Purpose::Checkpoint, &id.0, &sealed);
    let (bytes, is_of_older_keys) = opened.context(|| format!("'{name}'"))?;
    let record = record::decode(&bytes, "checkpoint").context(|| format!("'{name}'"))?;
    Ok(ReadCheckpoint { id, record, stored_bytes, is_of_older_keys })
}

/// Removes a checkpoint: what it says is read elsewhere from then on.
pub(crate) fn remove(repository: &Repository, id: CheckpointId) -> Result<()> {
    repository.store().delete(&Key::new(layout::checkpoint(id))?)
}
