//! Quarantine: sealed notes that a container must not be relied upon (R20).
//!
//! A backup that meets a chunk only in such a container stores it again, which heals the snapshots
//! that need it. Such a note is a blob of its own, written once and removed once the container was
//! read whole without fault, or is gone. One that does not open with the store's key counts for
//! nothing: to declare data damaged takes the key.

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout;
use onefold_format::record;
use onefold_store::Key;
use onefold_types::{ContainerId, ErrorKind, Result};
use std::collections::BTreeSet;

/// The authentic quarantine of a store, and what is wrong with the others.
pub struct Quarantine {
    /// Containers that must not be relied upon.
    pub ids: BTreeSet<ContainerId>,
    /// Notes of it that do not open.
    pub problems: Vec<String>,
}

impl Quarantine {
    /// Reads it.
    pub fn load(repository: &Repository) -> Result<Self> {
        let mut names = Vec::new();
        repository.store().list_names(layout::DAMAGE, &mut |name| {
            names.extend(layout::last_component(name).parse::<ContainerId>());
            Ok(())
        })?;
        let mut quarantine = Self { ids: BTreeSet::new(), problems: Vec::new() };
        for id in names {
            let sealed = match repository.store().get(&Key::new(layout::damage(id))?) {
                Ok(sealed) => sealed,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // That it opens is enough to be careful, of whatever version it is.
            match repository.vault().open_record(Purpose::Damage, &id.0, &sealed) {
                Ok(_) => drop(quarantine.ids.insert(id)),
                Err(error) if error.kind() != ErrorKind::Damaged => return Err(error),
                Err(_) => quarantine.problems.push(format!(
                    "{} was not written by a holder of the key; it is ignored",
                    layout::damage(id)
                )),
            }
        }
        Ok(quarantine)
    }
}

/// The containers that must not be relied upon; only what is authentic counts.
pub fn load_ids(repository: &Repository) -> Result<BTreeSet<ContainerId>> {
    Quarantine::load(repository).map(|quarantine| quarantine.ids)
}

/// Records that a container must not be relied upon. A store that cannot be written is no reason
/// to fail a check: its report says the same.
///
/// Errors: `KeysChanged` if what did not open may be newer than the keys.
pub(crate) fn record(
    repository: &Repository,
    id: ContainerId,
    problem: &str,
    notes: &mut Vec<String>,
) -> Result<()> {
    repository.vault().refuse_if_stale()?;
    let environment = repository.environment();
    let note = record::Damage { time_ns: environment.clock.now_ns(), problem: problem.to_owned() };
    let sealed = repository.vault().seal_record(
        Purpose::Damage,
        &id.0,
        &record::encode(&note)?,
        &*environment.randomness,
    )?;
    let key = Key::new(layout::damage(id))?;
    match repository.store().put(&key, &sealed) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.is_about_writing() => {
            notes.push(format!("the quarantine of container {id} could not be recorded: {error}"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Whether the quarantine of a container is of a newer version: it may say more than this version
/// can find to be mended, so it is obeyed and stays.
pub(crate) fn is_newer(repository: &Repository, id: ContainerId) -> Result<bool> {
    match repository.store().get(&Key::new(layout::damage(id))?) {
        Ok(sealed) => match repository.vault().open_record(Purpose::Damage, &id.0, &sealed) {
            Ok(bytes) => Ok(record::is_newer(&bytes)),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            Err(error) => Err(error),
        },
        // Taken out meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes one out of quarantine.
pub(crate) fn remove(
    repository: &Repository,
    id: ContainerId,
    notes: &mut Vec<String>,
) -> Result<()> {
    if is_newer(repository, id)? {
        notes.push(format!(
            "the quarantine of container {id} is of a newer version; only a newer onefold takes \
             it back"
        ));
        return Ok(());
    }
    match repository.store().delete(&Key::new(layout::damage(id))?) {
        Ok(()) => notes.push(format!(
            "container {id} is whole again, or gone and not needed; its quarantine is over"
        )),
        Err(error) if error.forbids_writing() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
