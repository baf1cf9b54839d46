//! Which changes may say that a snapshot is forgotten for good.
//!
//! A change is decided by anybody who may append: holds, tags and notes are. That a snapshot is
//! forgotten is final, so it takes the right to collect: a store that knows rights refuses this
//! directory to others. The object is put before the change is decided, under the snapshot and the
//! change's number, so whoever sees the change finds it.
//!
//! # Invariants
//! - A change that says `forgotten`, without one of these, says the rest of what it says.
//! - One is removed only with the changes of a snapshot that is forgotten for good.

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout::{self, ChangeName};
use onefold_store::Key;
use onefold_types::{ErrorKind, Result, SessionId};
use std::collections::BTreeSet;

/// Says that a change may be the last one.
pub fn permit(repository: &Repository, name: ChangeName) -> Result<()> {
    let randomness = &*repository.environment().randomness;
    let sealed =
        repository.vault().seal_record(Purpose::Change, &name.sealed_as(), &[], randomness)?;
    match repository.store().put(&Key::new(layout::finality(name))?, &sealed) {
        // Somebody was stopped at that.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        put => put,
    }
}

/// Whether a change may be the last one.
pub fn is_permitted(repository: &Repository, name: ChangeName) -> Result<bool> {
    let opened = repository.store().get(&Key::new(layout::finality(name))?).and_then(|sealed| {
        repository.vault().open_record(Purpose::Change, &name.sealed_as(), &sealed)
    });
    match opened {
        // A change, which is sealed alike, says more.
        Ok(opened) => Ok(opened.is_empty()),
        Err(error) if error.is_lost() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes those of snapshots that are forgotten.
pub fn remove(repository: &Repository, forgotten: &BTreeSet<SessionId>) -> Result<()> {
    let mut names = Vec::new();
    repository.store().list_names(layout::FINALS, &mut |name| {
        names.extend(layout::last_component(name).parse::<ChangeName>());
        Ok(())
    })?;
    for name in names.into_iter().filter(|name| forgotten.contains(&name.snapshot)) {
        repository.store().delete(&Key::new(layout::finality(name))?)?;
    }
    Ok(())
}
