//! Whether a collection is due: told by what has happened since the last one, and by what it has
//! written into its plan about what it left; not by a clock.

use crate::container::list;
use crate::index::FingerprintIndex;
use crate::repository::Repository;
use crate::session::announced;
use crate::session::epoch::{self, Newest};
use crate::session::quarantine;
use crate::session::tombstones::Forgotten;
use onefold_format::record::Plan;
use onefold_policy::collection::select::{UNUSED_SHARE_DEFAULT, excess_bytes};
use onefold_types::{ContainerId, Result};
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
    /// The last collection has left more unused than a collection would.
    Unused {
        /// Stored bytes that are unused, about.
        unused_bytes: u64,
        /// Of how many.
        stored_bytes: u64,
    },
    /// The last collection has kept what it was to delete.
    Kept {
        /// How many containers.
        containers: u64,
    },
    /// Backups have stopped without an end.
    Abandoned {
        /// How many.
        sessions: u64,
    },
    /// What was stopped, or failed, has left containers that no snapshot knows.
    Left {
        /// How many.
        containers: u64,
    },
}

/// Looks whether a collection is due.
pub fn due(repository: &Repository) -> Result<Option<Due>> {
    let number = match epoch::newest(repository)? {
        Newest::Open(decided) => return Ok(Some(Due::Unfinished { epoch: decided.number })),
        Newest::Lost { number, .. } => return Ok(Some(Due::Unfinished { epoch: number })),
        Newest::Finished(number) => number,
    };
    let tombstones = Forgotten::load(repository)?.ids;
    // A plan is removed only by the next one; without it nothing is known of the last collection.
    let newest = match epoch::decided_plan(repository, number) {
        Ok(decided) => decided.plan,
        Err(error) if error.is_lost() => Plan::default(),
        Err(error) => return Err(error),
    };
    let seen: BTreeSet<_> = newest.tombstones.into_iter().collect();
    let forgotten = tombstones.difference(&seen).count() as u64;
    if forgotten > 0 {
        return Ok(Some(Due::Forgotten { snapshots: forgotten }));
    }
    let containers = kept(repository, number, newest.condemned)?;
    if containers > 0 {
        return Ok(Some(Due::Kept { containers }));
    }
    let (unused_bytes, stored_bytes) = (newest.unused_bytes, newest.stored_bytes);
    if exceeds_goal(unused_bytes, stored_bytes) {
        return Ok(Some(Due::Unused { unused_bytes, stored_bytes }));
    }
    let sessions = announced::abandoned(repository)?.len() as u64;
    if sessions > 0 {
        return Ok(Some(Due::Abandoned { sessions }));
    }
    let containers = left(repository)?;
    Ok((containers > 0).then_some(Due::Left { containers }))
}

/// How many containers no run of the index covers, although no session is under way that could
/// still write it. Damaged ones stay where they are, also in a collection.
fn left(repository: &Repository) -> Result<u64> {
    // In this order whoever stored something and is not under way any more has written its run.
    let present = list::container_names(repository)?;
    if !announced::undecided(repository)?.is_empty() {
        return Ok(0);
    }
    let index = FingerprintIndex::shared(repository)?;
    let left = list::difference(&present, &index.covered());
    // What damaged runs covered is not left by anybody.
    if left.is_empty() || !index.problems().is_empty() {
        return Ok(0);
    }
    let damaged = quarantine::load_ids(repository)?;
    Ok(left.iter().filter(|id| !damaged.contains(id)).count() as u64)
}

/// Whether so many chunks are stored twice that a collection with the default goal would free some
/// of them: that is when partitions of shares are reconciled.
pub fn is_worth_for(repository: &Repository, chunks_stored_twice: u64) -> Result<bool> {
    if chunks_stored_twice == 0 {
        return Ok(false);
    }
    let chunks = FingerprintIndex::shared(repository)?.chunks();
    Ok(exceeds_goal(chunks_stored_twice.min(chunks), chunks))
}

/// How many containers were condemned in an epoch and, in the end, not deleted: something was
/// damaged or needed, or room was short.
fn kept(repository: &Repository, number: u64, condemned: Vec<ContainerId>) -> Result<u64> {
    if condemned.is_empty() {
        return Ok(0);
    }
    let swept: BTreeSet<ContainerId> = match epoch::decided_sweep(repository, number) {
        // Without a decided sweep nothing was deleted.
        Ok(swept) => swept.unwrap_or_default().into_iter().collect(),
        // Nobody knows; the next collection looks at everything anyway.
        Err(error) if error.is_lost() => return Ok(0),
        Err(error) => return Err(error),
    };
    let present: BTreeSet<ContainerId> = list::container_names(repository)?.into_iter().collect();
    let kept = condemned.iter().filter(|id| !swept.contains(id) && present.contains(id));
    Ok(kept.count() as u64)
}

/// Whether so much is unused that a collection with the default goal would free some of it.
#[must_use]
pub fn exceeds_goal(unused_bytes: u64, stored_bytes: u64) -> bool {
    let used_bytes = stored_bytes.saturating_sub(unused_bytes);
    excess_bytes(unused_bytes, used_bytes, UNUSED_SHARE_DEFAULT) > 0
}
