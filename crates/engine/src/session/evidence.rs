//! Evidence that sessions had an outcome (rule D4).
//!
//! Outcomes are never removed, so whatever names one proves that it must be there: a record that
//! names its predecessors, a tombstone, a mark, the newest plan, which names all that there were. A
//! directory that was lost, or a copy of the store that is not whole, thus differs from a store
//! without snapshots, and a collection does not take the one for the other.
//!
//! Where all records were lost before anything could name them, containers are left: *strays*, if
//! the session that has stored them, which each of them names, is neither announced nor ended. The
//! first session that commits then says in its own record how many there were, so that it hides
//! nothing.

use super::announced;
use super::checkpoints::Ending;
use super::decided::{self, DecidedName};
use super::marks::Marks;
use super::tombstones::Forgotten;
use crate::container::{list, reader};
use crate::repository::Repository;
use onefold_format::layout;
use onefold_types::{ContainerId, Error, Result, SessionId};
use std::collections::BTreeSet;

/// What proves that outcomes existed, apart from the records themselves.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Sessions that had one.
    sessions: BTreeSet<SessionId>,
    /// Those that were given up.
    given_up: BTreeSet<SessionId>,
    /// Those that the newest plan names.
    planned: BTreeSet<SessionId>,
    /// Whether records lost before the first one matter.
    ignores_strays: bool,
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
        let (given_up, planned) = (forgotten.given_up.clone(), forgotten.decided.clone());
        sessions.extend(&planned);
        Self { sessions, given_up, planned, ignores_strays: false }
    }

    /// The same for somebody who takes it that records lost before the first one are of no use.
    #[must_use]
    pub fn without_strays(self) -> Self {
        Self { ignores_strays: true, ..self }
    }

    /// What a record tells: the sessions that its writer knew, and whether records were lost before
    /// it. What a plan names was looked at by somebody.
    pub fn take(&mut self, id: SessionId, ending: &Ending, missing: &mut Missing) {
        self.sessions.extend(ending.predecessors());
        if ending.strays() > 0 && !self.ignores_strays && !self.planned.contains(&id) {
            missing.strays.push((id, ending.strays()));
        }
    }

    /// Whether the newest plan names a session.
    #[must_use]
    pub fn is_planned(&self, id: SessionId) -> bool {
        self.planned.contains(&id)
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
        missing: &mut Missing,
    ) -> Result<()> {
        for id in self.sessions.difference(listed) {
            let is_missing =
                !self.given_up.contains(id) && !DecidedName::outcome(*id).is_decided(repository)?;
            missing.sessions.extend(is_missing.then_some(*id));
        }
        Ok(())
    }
}

/// Strays, if there never was a snapshot as far as is known; else 0. They are counted before the
/// first one is saved.
pub fn strays(repository: &Repository) -> Result<u64> {
    let containers = list::container_names(repository)?;
    // In a new store there is nothing to be asked about.
    match containers.is_empty() || !Forgotten::load(repository)?.ids.is_empty() {
        true => Ok(0),
        false => Ok(unexplained(repository, &containers)?.containers),
    }
}

/// The sessions that are announced or have ended: of every container that was listed before, the
/// session that it names is among them, or its record was lost. An outcome is decided before the
/// announcement goes: whoever ends meanwhile is found as announced or as ended.
pub fn known_sessions(repository: &Repository) -> Result<BTreeSet<SessionId>> {
    let mut sessions = announced::names(repository)?;
    sessions.extend(decided_sessions(repository)?);
    Ok(sessions)
}

/// Containers that no known session explains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unexplained {
    /// How many there are. Those of a collector are of no session: it copies what a session has
    /// stored, whose outcome stays.
    pub containers: u64,
    /// The sessions that they name: their records were lost.
    pub sessions: BTreeSet<SessionId>,
}

/// Those of these containers, which were listed before.
pub fn unexplained<'a>(
    repository: &Repository,
    containers: impl IntoIterator<Item = &'a ContainerId>,
) -> Result<Unexplained> {
    let known = known_sessions(repository)?;
    let mut found = Unexplained::default();
    for id in containers {
        let session = match reader::read_section(repository, *id) {
            Ok(section) => section.session,
            // No collection deletes a container that does not open, so it proves no lost record.
            Err(error) if error.is_lost() => continue,
            Err(error) => return Err(error),
        };
        if session.is_none_or(|id| !known.contains(&id)) {
            found.containers += 1;
            found.sessions.extend(session);
        }
    }
    Ok(found)
}

/// The sentence about a session of which only containers tell.
#[must_use]
pub fn only_containers_tell_of(id: SessionId) -> String {
    format!(
        "session {id} has stored containers, and there is no record of how it ended: if it saved a \
         snapshot, that was lost. Bring '{}' back from a copy of the store, or make snapshots of \
         the trees that 'onefold check' finds ('onefold recover'); then give it up with 'onefold \
         forget --give-up {id}'",
        layout::outcome(id)
    )
}

/// Outcomes that are proved and not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Sessions that are named.
    pub sessions: Vec<SessionId>,
    /// Sessions that found containers without any record, and how many these were.
    pub strays: Vec<(SessionId, u64)>,
}

impl Missing {
    /// A line for each.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let strays = self.strays.iter().map(|(id, count)| {
            format!(
                "when snapshot {} was saved, the store held {count} container(s), and no record of \
                 any snapshot: if the directory '{}' was lost, bring it back from a copy of the \
                 store, or see what 'onefold check' finds of it ('onefold recover'); 'onefold gc \
                 --allow-empty' gives up what is not recovered",
                id.short(),
                layout::OUTCOMES
            )
        });
        self.sessions.iter().map(|id| lost(*id)).chain(strays)
    }

    /// Fails if anything is missing.
    pub fn check(&self) -> Result<()> {
        match self.problems().next() {
            None => Ok(()),
            Some(first) => Err(Error::damaged(first)),
        }
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
