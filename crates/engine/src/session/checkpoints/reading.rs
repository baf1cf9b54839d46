//! How sessions ended, out of checkpoints where these know it, and else out of the outcomes, of
//! which several are read at once.
//!
//! Concurrency: as many threads as the environment says, if there is work for them; each holds one
//! small object. What is read by one thread or by several is the same.

use super::Checkpoints;
use crate::environment::open_files_max;
use crate::repository::Repository;
use crate::session::decided::DecidedName;
use crate::session::outcome::read_outcome;
use onefold_format::record::{Outcome, SnapshotRecord};
use onefold_store::foresee;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many objects are read by one thread alone: starting another would take longer.
pub const SMALL_READS_ALONE: usize = 16;
/// Most of the files that a process may open are for others.
const OPEN_FILES_SHARE: usize = 16;

/// How a session ended, as far as lists need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// A collector gave it up, or it gave up itself.
    Fenced,
    /// It is a snapshot.
    Committed(Box<SnapshotRecord>),
    /// It was committed, and its record is to be read where it is, if anybody needs it.
    WithoutRecord {
        /// The newest outcomes that its writer knew.
        predecessors: Vec<SessionId>,
        /// Containers that it found without any record.
        strays: u64,
    },
}

impl Ending {
    /// The newest outcomes that the session's writer knew.
    #[must_use]
    pub fn predecessors(&self) -> &[SessionId] {
        match self {
            Self::Fenced => &[],
            Self::Committed(record) => &record.predecessors,
            Self::WithoutRecord { predecessors, .. } => predecessors,
        }
    }

    /// Containers that the session found without any record.
    #[must_use]
    pub fn strays(&self) -> u64 {
        match self {
            Self::Fenced => 0,
            Self::Committed(record) => record.strays,
            Self::WithoutRecord { strays, .. } => *strays,
        }
    }
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Committed(record) => Self::Committed(record),
            Outcome::Fenced => Self::Fenced,
        }
    }
}

/// What is told of a session that is listed: its ending, none if it has no outcome after all, or
/// why it cannot be told.
pub type Told = (SessionId, Result<Option<Ending>>);

impl Checkpoints {
    /// How these sessions ended, all of which a listing has shown. The record of a session that
    /// `needs_record` names is there, or the session was fenced.
    pub fn take_endings(
        &mut self,
        repository: &Repository,
        sessions: impl IntoIterator<Item = SessionId>,
        needs_record: &dyn Fn(SessionId) -> bool,
    ) -> Vec<Told> {
        let (mut told, mut left) = (Vec::new(), Vec::new());
        for session in sessions {
            match self.endings.remove(&session) {
                Some(Ending::WithoutRecord { .. }) if needs_record(session) => left.push(session),
                Some(ending) => told.push((session, Ok(Some(ending)))),
                None => left.push(session),
            }
        }
        // Several threads ask for several at once anyway.
        let few = left.iter().filter(|_| left.len() < 2 * SMALL_READS_ALONE);
        let first = |session: &SessionId| DecidedName::outcome(*session).asked().ok();
        let asked = few.filter_map(first).map(|[first, _]| first);
        let _foreseen = foresee(repository.store(), asked.collect());
        told.extend(read_all(repository, &left, &|session| {
            Ok(read_outcome(repository, session)?.map(Ending::from))
        }));
        told
    }
}

/// Reads something of each of these, several at once.
pub(crate) fn read_all<N: Copy + Send + Sync, T: Send>(
    repository: &Repository,
    names: &[N],
    read: &(dyn Fn(N) -> Result<T> + Sync),
) -> Vec<(N, Result<T>)> {
    let most = repository.environment().readers.min(open_files_max() / OPEN_FILES_SHARE);
    let threads = (names.len() / SMALL_READS_ALONE).min(most);
    if threads <= 1 {
        return names.iter().map(|name| (*name, read(*name))).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            results.push((*name, read(*name)));
        }
        results
    };
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        let mut seen = helpers.len();
        for helper in helpers {
            if let Ok(of_helper) = helper.join() {
                results.extend(of_helper);
                seen -= 1;
            }
        }
        // What a thread that has stopped had taken is told by nobody else.
        if seen > 0 {
            results.extend(names.first().map(|name| (*name, Err(stopped()))));
        }
        results
    })
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "a reading thread has stopped")
}
