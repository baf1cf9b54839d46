//! What a command leaves of the device that its store is on, and what it takes of the room set
//! aside there ([`crate::reserve`]).

use super::Context;
use crate::opening::OpenedStore;
use crate::reserve;
use crate::size::human;
use onefold_engine::Repository;
use onefold_store::{Blobs, LocalStore};
use onefold_types::{Error, ErrorKind, Result};
use std::sync::{Arc, PoisonError};

impl Context {
    /// Notes which store is written.
    pub(super) fn note_written(&self, opened: &OpenedStore) {
        if let OpenedStore::Local(store) = opened {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            *written = Some(Arc::clone(store));
        }
    }

    fn written(&self) -> Option<Arc<LocalStore>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the store that is written refuse what would take more of its device than leaves so much.
    fn leave_free(
        &self,
        repository: &Repository,
        bytes: impl Fn(&LocalStore, usize) -> Result<u64>,
    ) -> Result<()> {
        if let Some(store) = self.written() {
            let container_bytes = repository.configuration().container_size_bytes;
            store.leave_free(bytes(&store, container_bytes)?);
        }
        Ok(())
    }

    /// Has a command that adds to the store leave what the room set aside there lacks, and says so
    /// where there is not much more.
    pub fn leave_what_reserve_lacks(&self, repository: &Repository) -> Result<()> {
        self.leave_free(repository, reserve::lacking_bytes)?;
        let Some(store) = self.written() else { return Ok(()) };
        let container_bytes = repository.configuration().container_size_bytes;
        let lacking = reserve::lacking_bytes(&store, container_bytes)?;
        if lacking > 0 && store.free_bytes()?.is_some_and(|free| free / 2 < lacking) {
            self.output.warning(&format!(
                "the room set aside in the store for collecting lacks {}, which is left free on \
                 its device: make room there, or forget snapshots for good and run 'onefold gc'",
                human(lacking)
            ));
        }
        Ok(())
    }

    /// Runs `work`; while the device is full, gives back a piece of the room set aside for that day
    /// and runs it again. For small things that must work at zero bytes free (R28). They leave what
    /// the collection after them needs.
    pub fn with_reserve(
        &self,
        repository: &Repository,
        work: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut pieces = 0;
        loop {
            self.leave_free(repository, reserve::left_by_forgetting)?;
            let done = work();
            self.leave_free(repository, |_, _| Ok(0))?;
            match done {
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    let is_given = self.give_up_reserve(repository, reserve::User::Forgetting)?
                        || (pieces == 0
                            && self
                                .give_up_reserve(repository, reserve::User::ForgettingAtLast)?);
                    if !is_given {
                        return Err(error);
                    }
                    pieces += 1;
                }
                other => return other,
            }
        }
    }

    /// The same for many small things, one by one where inodes are short: a collection needs some,
    /// and must be able to begin after any of them. `check` refuses them all before one is done;
    /// where they are done at once, `work` does that itself.
    pub fn in_pieces<T>(
        &self,
        repository: &Repository,
        all: &[T],
        check: impl FnOnce() -> Result<()>,
        work: impl Fn(&[T]) -> Result<()>,
    ) -> Result<()> {
        let is_short_for = |snapshots: u64| match self.store_directory()? {
            Some(path) => reserve::is_short_of_names(&LocalStore::open(path)?, snapshots),
            None => Ok(false),
        };
        let is_short = is_short_for(all.len() as u64)?;
        if is_short {
            check()?;
        }
        for piece in all.chunks(if is_short { 1 } else { all.len().max(1) }) {
            if is_short
                && is_short_for(0)?
                && !self.give_up_reserve(repository, reserve::User::Forgetting)?
            {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "too few inodes are left on the store's device: run 'onefold gc', which frees \
                     some, then the same again",
                ));
            }
            self.with_reserve(repository, || work(piece))?;
        }
        Ok(())
    }

    /// Gives a piece of the room set aside back to the device; `false` if there is no more.
    pub fn give_up_reserve(&self, repository: &Repository, user: reserve::User) -> Result<bool> {
        match self.store_directory()? {
            Some(path) => reserve::give_up(&LocalStore::open(path)?, repository, user),
            None => Ok(false),
        }
    }
}
