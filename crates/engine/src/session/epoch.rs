//! The newest epoch, and what it condemns (protocol, W2).

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::{layout, record};
use onefold_store::Key;
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, ErrorKind, PlanId, Result};
use std::collections::BTreeSet;

/// Tries before an epoch that keeps changing is reported: each means that a collection finished in
/// between, so more than a few in a row are a fault, not a race.
const TRIES_MAX: usize = 100;

/// An epoch as a writer must know it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Epoch {
    /// Its number; 0 before the first collection.
    pub number: u64,
    /// The containers it condemns, if it is still open: a writer avoids them.
    pub avoid: BTreeSet<ContainerId>,
}

/// Reads the newest epoch (W2). A plan that has vanished means that its epoch is over and a newer
/// state is to be read.
pub fn read_newest(repository: &Repository) -> Result<Epoch> {
    for _ in 0..TRIES_MAX {
        let number = newest_number(repository)?;
        if number == 0 || is_finished(repository, number)? {
            return Ok(Epoch { number, avoid: BTreeSet::new() });
        }
        match condemned(repository, number) {
            Ok(avoid) => return Ok(Epoch { number, avoid }),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.context(format!("epoch {number}"))),
        }
    }
    Err(Error::damaged("the newest epoch has no plan; run 'onefold check'"))
}

fn newest_number(repository: &Repository) -> Result<u64> {
    let mut newest = 0;
    repository.store().list_decided(layout::EPOCHS, &mut |name| {
        if let Ok(number) = layout::last_component(name).parse() {
            newest = u64::max(newest, number);
        }
        Ok(())
    })?;
    Ok(newest)
}

fn is_finished(repository: &Repository, number: u64) -> Result<bool> {
    match repository.store().size(&Key::new(layout::finished(number))?) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn condemned(repository: &Repository, number: u64) -> Result<BTreeSet<ContainerId>> {
    let key = Key::new(layout::epoch(number))?;
    let missing = || Error::new(ErrorKind::NotFound, "the epoch is not decided");
    let sealed = repository.store().decided(&key)?.ok_or_else(missing)?;
    let bytes = repository.vault().open_record(Purpose::Plan, &epoch_name(number), &sealed)?;
    let epoch: record::Epoch = record::decode(&bytes, "epoch")?;
    let plan = read_plan(repository, epoch.plan)?;
    Ok(plan.condemned.into_iter().collect())
}

/// Reads a collector's plan.
pub fn read_plan(repository: &Repository, id: PlanId) -> Result<record::Plan> {
    let sealed = repository.store().get(&Key::new(layout::plan(id))?)?;
    let bytes = repository
        .vault()
        .open_record(Purpose::Plan, &id.0, &sealed)
        .context(|| format!("plan {id}"))?;
    record::decode(&bytes, "plan")
}

/// The name under which the record of an epoch is sealed.
#[must_use]
pub fn epoch_name(number: u64) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&number.to_le_bytes());
    name
}
