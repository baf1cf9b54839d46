//! Finals: permissions for a change to forget its snapshot for good.
//!
//! A client with the right to append may decide changes: holds, tags, notes. Forgetting is final,
//! so it takes the right to collect, and a server refuses `finals/` to other clients. A forgetter
//! puts the final of a change before it decides the change, so every reader of the change finds it.
//!
//! # Invariants
//! - A change with `forgotten` and without a final forgets nothing; its hold, tags and note count.
//! - A collection removes a final only together with the changes of a forgotten snapshot.

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout::{self, ChangeName};
use onefold_store::Key;
use onefold_types::{ErrorKind, Result, SessionId};
use std::collections::BTreeSet;

/// Permits a change to be the last one.
pub fn permit(repository: &Repository, name: ChangeName) -> Result<()> {
    let randomness = &*repository.environment().randomness;
    let sealed =
        repository.vault().seal_record(Purpose::Change, &name.sealed_as(), &[], randomness)?;
    match repository.store().put(&Key::new(layout::finality(name))?, &sealed) {
        // An earlier forgetter was stopped behind it.
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

/// Removes the finals of forgotten snapshots.
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
