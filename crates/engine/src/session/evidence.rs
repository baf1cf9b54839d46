//! Evidence that sessions had an outcome (rule D4).
//!
//! Outcomes are never removed, so whatever names one proves that it must be there: a record that
//! names its predecessors, a tombstone, a mark, the newest plan, which also says how many there
//! were. A directory that was lost, or a copy of the store that is not whole, thus differs from a
//! store without snapshots, and a collection does not take the one for the other.

use super::decided::{self, DecidedName};
use super::marks::Marks;
use super::tombstones::Forgotten;
use crate::repository::Repository;
use onefold_format::layout;
use onefold_types::{Error, Result, SessionId};
use std::collections::BTreeSet;

/// What proves that outcomes existed, apart from the records themselves.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Sessions that had one.
    sessions: BTreeSet<SessionId>,
    /// Those that were given up.
    given_up: BTreeSet<SessionId>,
    /// How many there were when the newest plan was made.
    outcomes_min: u64,
}

impl Evidence {
    /// Gathers it anew.
    pub fn load(repository: &Repository) -> Result<Self> {
        let forgotten = Forgotten::load(repository)?;
        Ok(Self::of(&forgotten, &Marks::load(repository)?))
    }

    /// Gathers it from tombstones and marks that have been read.
    #[must_use]
    pub fn of(forgotten: &Forgotten, marks: &Marks) -> Self {
        let mut sessions: BTreeSet<SessionId> = forgotten.ids.iter().copied().collect();
        sessions.extend(marks.hidden.keys());
        sessions.extend(marks.void.iter().map(|(snapshot, _)| *snapshot));
        let given_up = forgotten.given_up.clone();
        Self { sessions, given_up, outcomes_min: forgotten.outcomes_min }
    }

    /// Adds sessions that another record names.
    pub fn extend(&mut self, sessions: impl IntoIterator<Item = SessionId>) {
        self.sessions.extend(sessions);
    }

    /// What is missing. `listed` are the sessions whose outcomes a list has shown; a list may be
    /// read name by name, so others are looked for by name.
    pub fn missing(
        &self,
        repository: &Repository,
        listed: &BTreeSet<SessionId>,
    ) -> Result<Missing> {
        let mut missing = Missing::default();
        let mut known = listed.len() as u64;
        for id in self.sessions.difference(listed) {
            match DecidedName::outcome(*id).is_decided(repository)? {
                false if !self.given_up.contains(id) => missing.sessions.push(*id),
                _ => known += 1,
            }
        }
        missing.more = self.outcomes_min.saturating_sub(known + missing.sessions.len() as u64);
        Ok(missing)
    }

    /// Fails if anything is missing.
    pub fn check(&self, repository: &Repository, listed: &BTreeSet<SessionId>) -> Result<()> {
        match self.missing(repository, listed)?.problems().next() {
            None => Ok(()),
            Some(first) => Err(Error::damaged(first)),
        }
    }
}

/// Outcomes that are proved and not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Sessions that are named.
    pub sessions: Vec<SessionId>,
    /// How many more there were by the last collection's count.
    pub more: u64,
}

impl Missing {
    /// A line for each.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| {
            format!(
                "the records of {} more session(s) that the last collection knew are missing; \
                 bring the directory '{}' back from a copy of the store",
                self.more,
                layout::OUTCOMES
            )
        });
        self.sessions.iter().map(|id| lost(*id)).chain(more)
    }
}

/// The sessions whose outcomes are decided, those of which only a copy is left included.
pub fn decided_sessions(repository: &Repository) -> Result<BTreeSet<SessionId>> {
    let names = decided::all_names(repository, layout::OUTCOMES)?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The sentence about a record that is gone.
fn lost(id: SessionId) -> String {
    format!(
        "snapshot {id} existed and is missing now: its record was removed from the store. Bring \
         '{}' back from a copy of the store, or give the snapshot up with 'onefold forget \
         --give-up {id}'",
        layout::outcome(id)
    )
}
