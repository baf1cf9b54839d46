//! Forgetting for good what was given up, or what somebody was stopped at forgetting.

use super::changes::{CLOSED, Changes};
use super::decided::DecidedName;
use super::evidence;
use super::marks;
use super::snapshots::SnapshotList;
use super::tombstones::{self, SnapshotState};
use crate::repository::Repository;
use onefold_format::record::{self, Outcome};
use onefold_types::{Error, Result, SessionId};

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

/// Gives up a session whose outcome cannot be read any more, so that collections go on without it:
/// whatever it may have been is lost then.
///
/// Errors: `Invalid` if its outcome can be read, or if nothing tells that there ever was one.
pub fn give_up(repository: &Repository, id: SessionId, by: &str) -> Result<()> {
    let refused = |why: &str| Err(Error::invalid(format!("snapshot {id} {why}")));
    let outcome = DecidedName::outcome(id);
    let is_missing = match outcome.read(repository) {
        Ok(Some(_)) => {
            return refused("can be read; forget it as any other, with 'onefold forget --final'");
        }
        Ok(None)
            if !SnapshotList::load(repository)?.lost.contains(&id)
                && !evidence::lost_sessions(repository)?.contains(&id) =>
        {
            return refused("is unknown: nothing in the store tells that it ever existed");
        }
        Ok(None) => true,
        Err(error) if error.is_damage() => false,
        Err(error) => return Err(error),
    };
    tombstones::decide(repository, id, by, "its record was lost", true)?;
    if is_missing {
        // What is gone can be decided again: that the session has no snapshot. So nothing is
        // missing any more, also where the tombstone is older and does not say so.
        outcome.decide(repository, &record::encode(&Outcome::Fenced)?)?;
    }
    Ok(())
}

/// Gives up the sessions of which only containers tell. One that runs, whose announcement was lost
/// as well, finds itself fenced and starts over.
pub fn give_up_lost_sessions(repository: &Repository) -> Result<()> {
    for id in evidence::lost_sessions(repository)? {
        tombstones::decide(repository, id, "gc", "its record was lost", true)?;
        DecidedName::outcome(id).decide(repository, &record::encode(&Outcome::Fenced)?)?;
    }
    Ok(())
}
