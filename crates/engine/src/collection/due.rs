//! Whether a collection is due: told by what has happened since the last one, not by a clock.

use super::settle;
use crate::repository::Repository;
use crate::session::epoch::{self, Newest};
use crate::session::snapshots;
use onefold_types::Result;
use std::collections::BTreeSet;

/// Why a collection is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// A collection was stopped and has to be finished.
    Unfinished {
        /// Its epoch.
        epoch: u64,
    },
    /// Snapshots were forgotten for good since the last collection.
    Forgotten {
        /// How many.
        snapshots: u64,
    },
    /// Backups have stopped without an end.
    Abandoned {
        /// How many.
        sessions: u64,
    },
}

/// Looks whether a collection is due.
pub fn due(repository: &Repository) -> Result<Option<Due>> {
    let number = match epoch::newest(repository)? {
        Newest::Open(decided) => return Ok(Some(Due::Unfinished { epoch: decided.number })),
        Newest::Finished(number) => number,
    };
    let tombstones = snapshots::tombstones(repository)?;
    // A plan is removed only by the next one; without it nothing is known of the last collection.
    let seen: BTreeSet<_> = match epoch::decided_plan(repository, number) {
        Ok(decided) => decided.plan.tombstones.into_iter().collect(),
        Err(error) if error.is_damage() => BTreeSet::new(),
        Err(error) => return Err(error),
    };
    let forgotten = tombstones.difference(&seen).count() as u64;
    if forgotten > 0 {
        return Ok(Some(Due::Forgotten { snapshots: forgotten }));
    }
    let sessions = settle::abandoned(repository)?.len() as u64;
    Ok((sessions > 0).then_some(Due::Abandoned { sessions }))
}
