//! Forgetting for good what was given up, or what somebody was stopped at forgetting.

use super::changes::{CLOSED, Changes};
use super::decided::DecidedName;
use super::evidence;
use super::marks;
use super::snapshots::SnapshotList;
use super::tombstones::{self, SnapshotState};
use crate::container::list;
use crate::repository::Repository;
use onefold_format::record::{self, Outcome};
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::collections::BTreeSet;

/// Why a session is given up.
const LOST: &str = "its record was lost";

/// Forgets the snapshots whose last change says so, and that somebody was stopped before he had
/// forgotten.
pub fn finish_forgetting(repository: &Repository, by: &str) -> Result<()> {
    for id in Changes::load(repository)?.forgotten() {
        if tombstones::state_of(repository, id)? != SnapshotState::Forgotten {
            tombstones::forget(repository, id, by, CLOSED)?;
            marks::clear(repository, id)?;
        }
    }
    Ok(())
}

/// Whether the outcome of a session that is to be given up is missing; `false`: it is there, and
/// cannot be read.
///
/// Errors: `Invalid` if its outcome can be read, or if nothing tells that there ever was one.
pub fn refuse_unless_lost(repository: &Repository, id: SessionId) -> Result<bool> {
    let refused = |why: &str| Err(Error::invalid(format!("snapshot {id} {why}")));
    match DecidedName::outcome(id).read(repository) {
        Ok(Some(_)) => {
            refused("can be read; forget it as any other, with 'onefold forget --final'")
        }
        Ok(None) if SnapshotList::load(repository)?.lost.contains(&id) => Ok(true),
        Ok(None) if lost_sessions(repository)?.contains(&id) => Ok(true),
        Ok(None) => refused("is unknown: nothing in the store tells that it ever existed"),
        Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
        Err(error) => Err(error),
    }
}

/// The sessions of which only containers tell.
fn lost_sessions(repository: &Repository) -> Result<BTreeSet<SessionId>> {
    Ok(evidence::unexplained(repository, &list::container_names(repository)?)?.sessions)
}

/// Gives up a session whose outcome cannot be read any more, so that collections go on without it:
/// whatever it may have been is lost then.
///
/// Errors: those of [`refuse_unless_lost`].
pub fn give_up(repository: &Repository, id: SessionId, by: &str) -> Result<()> {
    let is_missing = refuse_unless_lost(repository, id)?;
    tombstones::decide(repository, id, by, LOST, true)?;
    if is_missing {
        // What is gone can be decided again: that the session has no snapshot. So nothing is
        // missing any more, also where the tombstone is older and does not say so.
        decide_fenced(repository, id)?;
    }
    Ok(())
}

fn decide_fenced(repository: &Repository, id: SessionId) -> Result<()> {
    DecidedName::outcome(id).decide(repository, &record::encode(&Outcome::Fenced)?).map(drop)
}

/// Gives up the sessions of which only containers tell. One that runs, whose announcement was lost
/// as well, finds itself fenced and starts over.
pub fn give_up_lost_sessions(repository: &Repository) -> Result<()> {
    for id in lost_sessions(repository)? {
        tombstones::decide(repository, id, "gc", LOST, true)?;
        decide_fenced(repository, id)?;
    }
    Ok(())
}
