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
    pub fn load(repository: &Arc<Repository>, select: Select) -> Result<Self> {
        let zone = TimeZone::system();
        let shown = read(repository, &select, &zone, None)?;
        let shown = Mutex::new(Shown {
            catalogue: shown.0.unwrap_or_else(|| Arc::new(Catalogue::new([], &zone))),
            known: shown.1,
            since: Instant::now(),
        });
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
        let known = {
            let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if shown.since.elapsed() < VALID {
                return Arc::clone(&shown.catalogue);
            }
            shown.known.clone()
        };
        let _loading = match self.loading.try_lock() {
            Ok(loading) => loading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.catalogue(),
        };
        let found = read(&self.repository, &self.select, &self.zone, Some(&known));
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.since = Instant::now();
        match found {
            Ok((Some(catalogue), known)) => (shown.catalogue, shown.known) = (catalogue, known),
            Ok((None, _)) => {}
            Err(error) => problems.note(format!("listing snapshots: {error}")),
        }
        Arc::clone(&shown.catalogue)
    }
}

/// The catalogue, unless it would be that of what is known, and what is known by it.
fn read(
    repository: &Repository,
    select: &Select,
    zone: &TimeZone,
    but_for: Option<&[Known]>,
) -> Result<(Option<Arc<Catalogue>>, Vec<Known>)> {
    let list = SnapshotList::load(repository)?;
    let snapshots: Vec<&Snapshot> = list.visible().filter(|one| select(one)).collect();
    let known: Vec<Known> = snapshots.iter().map(|one| (one.id, one.record.tags.clone())).collect();
    let is_known = but_for == Some(&known);
    Ok(((!is_known).then(|| Arc::new(Catalogue::new(snapshots, zone))), known))
}
