//! Doubts: chunks may be missing that nothing names any more (rule D5).
//!
//! A backup takes over files that have not changed without looking at their chunks. That rests on
//! the index: as long as it names a container that is gone, every backup notices. An index that was
//! made anew from the containers that are left names none of those that are not, and would hide the
//! loss for ever. So whoever makes it anew raises a doubt before the new index can be seen, and so
//! does a check that misses a chunk of which nothing tells where it was.
//!
//! Every snapshot names the doubts that its writer knew when it began. A parent that does not name
//! all doubts there are is *doubtful*: its files are taken over only after all their chunks have
//! been looked up, so what is lost is stored again, and the new snapshot names the doubts. A check
//! that finds every snapshot whole removes the doubts that it found at its start.
//!
//! A doubt that does not open counts as well: to be careful takes no key.

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout;
use onefold_format::record::{self, Doubt, SnapshotRecord};
use onefold_store::Key;
use onefold_types::{DoubtId, ErrorKind, Result};
use std::collections::BTreeSet;

/// Doubts that a snapshot may name. If there are more, no parent is trusted until a check has
/// removed them.
const NAMED_MAX: usize = 1024;

/// The doubts of a store at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doubts(BTreeSet<DoubtId>);

impl Doubts {
    /// Lists the doubts.
    pub fn load(repository: &Repository) -> Result<Self> {
        let mut ids = BTreeSet::new();
        repository.store().list_names(layout::DOUBTS, &mut |name| {
            ids.extend(layout::last_component(name).parse::<DoubtId>());
            Ok(())
        })?;
        Ok(Self(ids))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether the chunks of a snapshot must be looked up before they are relied upon.
    #[must_use]
    pub fn concern(&self, record: &SnapshotRecord) -> bool {
        self.0.len() > NAMED_MAX || self.0.iter().any(|id| !record.doubts.contains(id))
    }

    /// What a snapshot names whose every chunk was looked up, or taken over from a parent that
    /// these do not concern.
    #[must_use]
    pub fn named(&self) -> Vec<DoubtId> {
        self.0.iter().copied().take(NAMED_MAX).collect()
    }

    /// Removes these doubts: every snapshot was found whole. One of a newer version may be about
    /// more than that, and stays.
    pub fn remove(&self, repository: &Repository) -> Result<()> {
        for id in &self.0 {
            let key = Key::new(layout::doubt(*id))?;
            let sealed = match repository.store().get(&key) {
                Ok(sealed) => sealed,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) if error.kind() == ErrorKind::Damaged => Vec::new(),
                Err(error) => return Err(error),
            };
            match repository.vault().open_record(Purpose::Doubt, &id.0, &sealed) {
                Ok(bytes) if record::is_newer(&bytes) => {}
                Err(error) if error.kind() != ErrorKind::Damaged => return Err(error),
                Ok(_) | Err(_) => repository.store().delete(&key)?,
            }
        }
        Ok(())
    }
}

/// Raises a doubt; it is durable when this returns.
///
/// Errors: `KeysChanged` if what did not open may be newer than the keys.
pub fn raise(repository: &Repository, reason: &str) -> Result<()> {
    repository.vault().refuse_if_stale()?;
    let environment = repository.environment();
    let id = DoubtId::random(&*environment.randomness);
    let doubt = Doubt { time_ns: environment.clock.now_ns(), reason: reason.to_owned() };
    let bytes = record::encode(&doubt)?;
    let sealed =
        repository.vault().seal_record(Purpose::Doubt, &id.0, &bytes, &*environment.randomness)?;
    repository.store().put_fresh(&Key::new(layout::doubt(id))?, &sealed)
}
