//! Containers whose metadata section opens nowhere: neither in themselves nor in any pack.
//!
//! What such a container holds cannot be told, so a collection passes it over: it holds nothing for
//! anybody, and is never condemned. What only such containers are known to hold counts as lost, as
//! if they were missing.
//!
//! # Invariants
//! - All packs are tried, whatever they and the containers are called.
//! - That a section opens nowhere is said only of what reads and is not what was written. What the
//!   device does not give may be sound.

use super::{list, reader};
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::metadata_pack;
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// What to do where something cannot be read.
pub const WAY_OUT: &str = "'onefold check --read-data' says what needs it; bring it back with \
                           'onefold check --heal-from STORE' or by backing up its source again, or \
                           give up the snapshots that need it with 'onefold forget --final'";

/// Those of some containers whose section opens nowhere, and what is wrong with it.
///
/// Errors: `Io`, `Unavailable` and others of the device, if it is the device that does not give a
/// section which no pack has.
pub fn find(
    repository: &Repository,
    some: impl IntoIterator<Item = ContainerId>,
    job: &Job,
) -> Result<BTreeMap<ContainerId, Error>> {
    let mut failed = BTreeMap::new();
    for id in some {
        job.interrupt.check()?;
        match reader::read_section(repository, id) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.is_unreadable() => drop(failed.insert(id, error)),
            Err(error) => return Err(error),
        }
    }
    if !failed.is_empty() {
        drop_packed(repository, &mut failed, job)?;
    }
    let is_of_device = |error: &Error| error.kind() != ErrorKind::Damaged;
    let of_device = failed.iter().find(|(_, error)| is_of_device(error)).map(|(id, _)| *id);
    match of_device.and_then(|id| failed.remove(&id)) {
        Some(error) => Err(error),
        None => Ok(failed),
    }
}

/// Takes out what a pack describes. A pack that cannot be read describes nothing.
fn drop_packed(
    repository: &Repository,
    failed: &mut BTreeMap<ContainerId, Error>,
    job: &Job,
) -> Result<()> {
    for name in list::list_packs(repository).unwrap_or_default() {
        job.interrupt.check()?;
        let Ok(bytes) = repository.store().get(&Key::new(name.as_str())?) else { continue };
        for (id, sealed) in metadata_pack::read(&bytes).unwrap_or_default() {
            if failed.contains_key(&id) {
                match reader::open_section(repository, id, &mut sealed.to_vec()) {
                    Ok(_) => drop(failed.remove(&id)),
                    Err(error) if error.kind() == ErrorKind::KeysChanged => return Err(error),
                    Err(_) => {}
                }
            }
        }
    }
    Ok(())
}
