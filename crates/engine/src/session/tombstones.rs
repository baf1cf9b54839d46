//! Tombstones: snapshots that are forgotten for good (F1), and what is known when one cannot be
//! read.
//!
//! A tombstone that does not open with the store's key forgets nothing (to forget takes the key)
//! and proves nothing either: its snapshot is not trusted as a parent, for it may have been
//! forgotten and collected (rule D1). What the newest plan names as forgotten stays forgotten
//! whatever becomes of the tombstone: its space may be gone, and a later plan names it again.

use super::checkpoints::{Checkpoints, read_all};
use super::decided::{self, DecidedName};
use super::epoch;
use crate::repository::Repository;
use onefold_format::layout;
use onefold_format::record::{self, Tombstone};
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// All that is known of what is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Forgotten {
    /// The sessions that are forgotten for good.
    pub ids: BTreeSet<SessionId>,
    /// Those of them whose outcome was given up: their tombstones are no evidence of one.
    pub given_up: BTreeSet<SessionId>,
    /// The sessions that had an outcome when the newest plan was made.
    pub decided: BTreeSet<SessionId>,
    /// The newest changes of snapshots that were known then.
    pub changes: BTreeMap<SessionId, u64>,
    /// Those whose tombstones are there and open.
    pub opened: BTreeSet<SessionId>,
    /// Tombstones that are in no checkpoint.
    pub new_names: usize,
    /// Those of which neither copy of the tombstone opens.
    pub unreadable: BTreeSet<SessionId>,
    /// Tombstones that do not open, and of which no plan tells that they are true.
    pub problems: Vec<String>,
}

/// What is known of one snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotState {
    /// Nobody has forgotten it.
    Kept,
    /// It is forgotten for good.
    Forgotten,
    /// There is a tombstone that does not open.
    Unknown,
}

impl Forgotten {
    /// Reads all tombstones, and what the newest plan knew of them.
    pub fn load(repository: &Repository) -> Result<Self> {
        Self::load_with(repository, &Checkpoints::load(repository)?)
    }

    /// The same; what is in a checkpoint is not read again. The checkpoints were read before.
    pub fn load_with(repository: &Repository, known: &Checkpoints) -> Result<Self> {
        let mut forgotten = Self::default();
        let (mut listed, mut left) = (BTreeSet::new(), Vec::new());
        for name in decided::names(repository, layout::TOMBSTONES)? {
            let Ok(id) = name.parse::<SessionId>() else { continue };
            listed.insert(id);
            match known.tombstone(id) {
                Some(given_up) => forgotten.add(id, given_up),
                None => left.push(id),
            }
        }
        forgotten.new_names = left.len();
        let read = |id| DecidedName::tombstone(id).read(repository);
        for (id, told) in read_all(repository, &left, &read) {
            match told {
                Ok(Some(bytes)) => forgotten.add(id, is_given_up(&bytes)?),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    forgotten.unreadable.insert(id);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(plan) = epoch::newest_plan(repository)? {
            forgotten.changes = epoch::changes_of(&plan);
            forgotten.ids.extend(plan.tombstones);
            forgotten.decided.extend(plan.outcomes);
        }
        let unknown = forgotten.unreadable.difference(&forgotten.ids).map(|id| {
            format!(
                "'{}' was not written by a holder of the key, or is damaged: it is ignored, and no \
                 backup relies on snapshot {} unread; forget the snapshot again if it was \
                 forgotten for good, else remove the file",
                layout::tombstone(*id),
                id.short()
            )
        });
        forgotten.problems.extend(unknown);
        forgotten.find_missing(repository, known, &listed)?;
        Ok(forgotten)
    }

    fn add(&mut self, id: SessionId, given_up: bool) {
        self.ids.insert(id);
        self.opened.insert(id);
        if given_up {
            self.given_up.insert(id);
        }
    }

    /// Tells of tombstones that a checkpoint knows and that are gone. They forget nothing any more:
    /// what no name keeps is told by names alone.
    fn find_missing(
        &mut self,
        repository: &Repository,
        known: &Checkpoints,
        listed: &BTreeSet<SessionId>,
    ) -> Result<()> {
        let gone = |id: &SessionId| !listed.contains(id) && !self.ids.contains(id);
        let gone: Vec<SessionId> = known.forgotten().filter(gone).collect();
        for id in gone {
            let name = DecidedName::tombstone(id);
            if !name.is_decided(repository)? {
                self.problems.push(format!(
                    "'{}' was there and is gone: snapshot {} may be listed again. Bring the file \
                     back from a copy of the store, or forget the snapshot again with 'onefold \
                     forget --final {id}'",
                    name.name(),
                    id.short()
                ));
            }
        }
        Ok(())
    }
}

/// Whether an authentic tombstone says that it stands for an outcome that was lost.
///
/// Errors: `NewerFormat`, because data is deleted on its word. Else that it opens is enough.
fn is_given_up(bytes: &[u8]) -> Result<bool> {
    match record::decode::<Tombstone>(bytes, "tombstone") {
        Ok(tombstone) => Ok(tombstone.given_up),
        Err(error) if error.kind() == ErrorKind::NewerFormat => Err(error),
        Err(_) => Ok(false),
    }
}

/// What is known of a snapshot.
pub fn state_of(repository: &Repository, id: SessionId) -> Result<SnapshotState> {
    let unknown = match DecidedName::tombstone(id).read(repository) {
        Ok(Some(bytes)) => {
            is_given_up(&bytes)?;
            return Ok(SnapshotState::Forgotten);
        }
        Ok(None) => false,
        Err(error) if error.kind() == ErrorKind::Damaged => true,
        Err(error) => return Err(error),
    };
    if epoch::newest_tombstones(repository)?.contains(&id) {
        return Ok(SnapshotState::Forgotten);
    }
    Ok(if unknown { SnapshotState::Unknown } else { SnapshotState::Kept })
}

/// Whether a snapshot has been forgotten for good, as far as can be told.
pub fn is_forgotten(repository: &Repository, id: SessionId) -> Result<bool> {
    Ok(state_of(repository, id)? == SnapshotState::Forgotten)
}

/// Forgets a snapshot for good (F1), once its last change says so ([`super::changes::close`]).
///
/// Errors: `Damaged` if it could not be made sure that everybody sees it so.
pub fn forget(repository: &Repository, id: SessionId, by: &str, reason: &str) -> Result<()> {
    decide(repository, id, by, reason, false)
}

/// Decides a tombstone, and makes sure that everybody sees it.
pub(super) fn decide(
    repository: &Repository,
    id: SessionId,
    by: &str,
    reason: &str,
    given_up: bool,
) -> Result<()> {
    let time_ns = repository.environment().clock.now_ns();
    let tombstone = Tombstone { time_ns, by: by.to_owned(), reason: reason.to_owned(), given_up };
    let bytes = record::encode(&tombstone)?;
    let name = DecidedName::tombstone(id);
    match name.decide(repository, &bytes) {
        Ok(_) => {}
        // Any tombstone says the same, so one beside the unreadable winner does as well.
        Err(error) if error.kind() == ErrorKind::Damaged => {
            name.replace_copy(repository, &bytes)?;
        }
        Err(error) => return Err(error),
    }
    match name.read(repository)? {
        Some(_) => Ok(()),
        None => Err(Error::damaged(format!("'{}' was decided and is gone", name.name()))),
    }
}
