//! The list of snapshots as it is now, and the catalogue made of it.
//!
//! Concurrency: one thread looks at the store anew, and the others go on with what there is.

use crate::catalogue::Catalogue;
use crate::problems::Problems;
use jiff::tz::TimeZone;
use onefold_engine::Repository;
use onefold_engine::session::{Snapshot, SnapshotList};
use onefold_types::{Result, SessionId};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How old a list may be.
const VALID: Duration = Duration::from_secs(5);

/// Which snapshots are shown.
pub type Select = Box<dyn Fn(&Snapshot) -> bool + Send + Sync>;

/// The snapshots of a store.
pub struct Snapshots {
    repository: Arc<Repository>,
    select: Select,
    zone: TimeZone,
    shown: Mutex<Shown>,
    /// Held by whoever looks at the store anew.
    loading: Mutex<()>,
}

/// What of a snapshot may change, and whose it is.
type Known = (SessionId, Vec<String>);

struct Shown {
    catalogue: Arc<Catalogue>,
    known: Vec<Known>,
    since: Instant,
}

impl Snapshots {
    /// Those that are there and selected.
    pub fn load(repository: &Arc<Repository>, select: Select, problems: &Problems) -> Result<Self> {
        let zone = TimeZone::system();
        let found = list(repository, &select, problems)?;
        let shown = Mutex::new(Shown::new(&found, &zone));
        let repository = Arc::clone(repository);
        Ok(Self { repository, select, zone, shown, loading: Mutex::default() })
    }

    /// The catalogue as it was last.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.shown.lock().unwrap_or_else(PoisonError::into_inner).catalogue)
    }

    /// The catalogue, made anew if it is old and the store has others by now. One that cannot be
    /// made is a problem, and the last one stays.
    #[must_use]
    pub fn current(&self, problems: &Problems) -> Arc<Catalogue> {
        {
            let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if shown.since.elapsed() < VALID {
                return Arc::clone(&shown.catalogue);
            }
        }
        let _loading = match self.loading.try_lock() {
            Ok(loading) => loading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.catalogue(),
        };
        let found = list(&self.repository, &self.select, problems);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) if known(&found) != shown.known => *shown = Shown::new(&found, &self.zone),
            Ok(_) => shown.since = Instant::now(),
            Err(error) => {
                shown.since = Instant::now();
                problems.note(format!("listing snapshots: {error}"));
            }
        }
        Arc::clone(&shown.catalogue)
    }
}

impl Shown {
    fn new(snapshots: &[Snapshot], zone: &TimeZone) -> Self {
        let catalogue = Arc::new(Catalogue::new(snapshots, zone));
        Self { catalogue, known: known(snapshots), since: Instant::now() }
    }
}

fn known(snapshots: &[Snapshot]) -> Vec<Known> {
    snapshots.iter().map(|one| (one.id, one.record.tags.clone())).collect()
}

/// The snapshots that are shown; tells of records that cannot be read.
fn list(repository: &Repository, select: &Select, problems: &Problems) -> Result<Vec<Snapshot>> {
    let mut list = SnapshotList::load(repository)?;
    for problem in list.problems.drain(..) {
        problems.note(problem);
    }
    list.snapshots.retain(|one| !one.hidden && !one.is_manifest() && select(one));
    Ok(list.snapshots)
}
