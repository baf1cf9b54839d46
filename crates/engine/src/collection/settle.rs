//! Settling an epoch: no session may still commit what it did not know to be condemned (G4).
//!
//! A session without an outcome that has not declared itself ready for the epoch is *old*. A
//! collector waits for old sessions to end or to renew themselves (W8), and fences those that do
//! not in time, or whose process is known to be gone. Time and process names decide only when to
//! fence: a session that is fenced wrongly starts over and loses nothing but time.

use crate::job::Job;
use crate::repository::Repository;
use crate::session::announced::{abandoned, fence, is_abandoned, is_ready, undecided};
use crate::session::epoch::newest_number;
use onefold_types::{Result, SessionId};
use std::time::{Duration, Instant};

/// How long to wait before sessions are listed again.
const PAUSE: Duration = Duration::from_millis(200);

/// What settling did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    /// Sessions that were old at first.
    pub old: u64,
    /// Sessions that had to be fenced.
    pub fenced: u64,
}

/// Returns once no session is old for this epoch. Sessions get `grace` to end or renew.
pub fn settle(repository: &Repository, epoch: u64, grace: Duration, job: &Job) -> Result<Settled> {
    let started = Instant::now();
    let mut settled = Settled::default();
    loop {
        let old = old_sessions(repository, epoch)?;
        settled.old = settled.old.max(old.len() as u64);
        let mut left = 0;
        for id in old {
            match started.elapsed() >= grace || is_abandoned(repository, id)? {
                true => settled.fenced += u64::from(fence(repository, id)?),
                false => left += 1,
            }
        }
        if left == 0 {
            return Ok(settled);
        }
        job.progress.set_current("waiting for running backups");
        job.interrupt.check()?;
        std::thread::sleep(PAUSE.min(grace.saturating_sub(started.elapsed())));
    }
}

fn old_sessions(repository: &Repository, epoch: u64) -> Result<Vec<SessionId>> {
    let undecided = undecided(repository)?;
    // A session is ready for an epoch that was decided, this one or one after it. Never ready is
    // old: it may hold an older epoch than it will declare.
    let decided = epoch..=newest_number(repository)?.max(epoch);
    let mut old = Vec::new();
    for (id, said) in undecided {
        if !is_ready(repository, id, &said, decided.clone())? {
            old.push(id);
        }
    }
    Ok(old)
}

/// Fences the sessions of processes that are known to be gone.
pub fn fence_abandoned(repository: &Repository) -> Result<()> {
    abandoned(repository)?.into_iter().try_for_each(|id| fence(repository, id).map(|_| ()))
}
