//! Epochs: what is condemned, who decided it, and whether it is over (protocol, section 3).
//!
//! A writer reads the newest epoch (W2); a collector decides the next one (G3), then which of its
//! condemned containers are deleted (the sweep, G5), and declares it finished (G8). Decisions are
//! never removed; plans are, once their epoch is over, which is why a vanished plan means that a
//! newer state is to be read.

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

/// The newest epoch as a collector must know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Newest {
    /// It is over, or there was none (0): the next one may be planned.
    Finished(u64),
    /// Somebody has to finish it first (G1).
    Open(DecidedEpoch),
}

/// An epoch that was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecidedEpoch {
    /// Its number.
    pub number: u64,
    /// The plan's name.
    pub plan_id: PlanId,
    /// The plan that won.
    pub plan: record::Plan,
}

/// Reads the newest epoch as a writer does (W2).
pub fn read_newest(repository: &Repository) -> Result<Epoch> {
    Ok(match newest(repository)? {
        Newest::Finished(number) => Epoch { number, avoid: BTreeSet::new() },
        Newest::Open(DecidedEpoch { number, plan, .. }) => {
            Epoch { number, avoid: plan.condemned.into_iter().collect() }
        }
    })
}

/// Reads the newest epoch. A plan that has vanished means that its epoch is over and a newer state
/// is to be read.
pub fn newest(repository: &Repository) -> Result<Newest> {
    for _ in 0..TRIES_MAX {
        let number = newest_number(repository)?;
        if number == 0 || is_finished(repository, number)? {
            return Ok(Newest::Finished(number));
        }
        match decided_plan(repository, number) {
            Ok(decided) => return Ok(Newest::Open(decided)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.context(format!("epoch {number}"))),
        }
    }
    Err(Error::damaged("the newest epoch has no plan; run 'onefold check'"))
}

/// The number of the newest epoch; 0 before the first collection.
pub fn newest_number(repository: &Repository) -> Result<u64> {
    let mut newest = 0;
    repository.store().list_decided(layout::EPOCHS, &mut |name| {
        if let Ok(number) = layout::last_component(name).parse() {
            newest = u64::max(newest, number);
        }
        Ok(())
    })?;
    Ok(newest)
}

/// Whether an epoch was declared finished.
pub fn is_finished(repository: &Repository, number: u64) -> Result<bool> {
    match repository.store().size(&Key::new(layout::finished(number))?) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// An epoch and its plan.
///
/// Errors: `NotFound` if the epoch is not decided, or its plan was removed since.
pub fn decided_plan(repository: &Repository, number: u64) -> Result<DecidedEpoch> {
    let sealed = repository.store().decided(&Key::new(layout::epoch(number))?)?;
    let missing = || Error::new(ErrorKind::NotFound, "the epoch is not decided");
    let plan_id = open_epoch(repository, number, &sealed.ok_or_else(missing)?)?;
    Ok(DecidedEpoch { number, plan_id, plan: read_plan(repository, plan_id)? })
}

fn open_epoch(repository: &Repository, number: u64, sealed: &[u8]) -> Result<PlanId> {
    let bytes = repository.vault().open_record(Purpose::Plan, &epoch_name(number), sealed)?;
    record::decode::<record::Epoch>(&bytes, "epoch").map(|epoch| epoch.plan)
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

/// Puts a plan (G2) and decides the epoch (G3). `None`: another collector's plan won, and this one
/// was dropped entirely.
///
/// `older` are the plans listed *before* the newest epoch was read: whoever put one of them knew no
/// newer epoch, so it was for this one or one before, and once this one is decided nobody needs it.
pub fn publish(
    repository: &Repository,
    number: u64,
    plan: record::Plan,
    older: &[PlanId],
) -> Result<Option<DecidedEpoch>> {
    let plan_id = PlanId::random(&*repository.environment().randomness);
    let key = Key::new(layout::plan(plan_id))?;
    repository.store().put(&key, &seal(repository, &plan_id.0, record::encode(&plan))?)?;
    let epoch = record::encode(&record::Epoch { plan: plan_id });
    let sealed = seal(repository, &epoch_name(number), epoch)?;
    let won = repository.store().decide(&Key::new(layout::epoch(number))?, &sealed)?;
    let won = open_epoch(repository, number, &won)?;
    for id in older.iter().filter(|id| **id != won) {
        repository.store().delete(&Key::new(layout::plan(*id))?)?;
    }
    if won == plan_id {
        return Ok(Some(DecidedEpoch { number, plan_id, plan }));
    }
    repository.store().delete(&key)?;
    Ok(None)
}

/// The names of all plans in the store.
pub fn plan_names(repository: &Repository) -> Result<Vec<PlanId>> {
    let mut ids = Vec::new();
    repository.store().list_names(layout::PLANS, &mut |name| {
        ids.extend(layout::last_component(name).parse::<PlanId>());
        Ok(())
    })?;
    Ok(ids)
}

/// The sweep of an epoch, if it is decided.
pub fn decided_sweep(repository: &Repository, number: u64) -> Result<Option<Vec<ContainerId>>> {
    let sealed = repository.store().decided(&Key::new(layout::sweep(number))?)?;
    sealed.map(|sealed| open_sweep(repository, number, &sealed)).transpose()
}

/// Decides which containers of an epoch are deleted; returns those that were decided, by whomever.
pub fn decide_sweep(
    repository: &Repository,
    number: u64,
    deleted: Vec<ContainerId>,
) -> Result<Vec<ContainerId>> {
    let sealed = seal(repository, &sweep_name(number), record::encode(&record::Sweep { deleted }))?;
    let won = repository.store().decide(&Key::new(layout::sweep(number))?, &sealed)?;
    open_sweep(repository, number, &won)
}

fn open_sweep(repository: &Repository, number: u64, sealed: &[u8]) -> Result<Vec<ContainerId>> {
    let bytes = repository
        .vault()
        .open_record(Purpose::Plan, &sweep_name(number), sealed)
        .context(|| format!("sweep {number}"))?;
    record::decode::<record::Sweep>(&bytes, "sweep").map(|sweep| sweep.deleted)
}

/// Declares an epoch finished (G8): everything of it was deleted and dropped from the index.
pub fn finish(repository: &Repository, number: u64) -> Result<()> {
    match repository.store().put(&Key::new(layout::finished(number))?, &[]) {
        // Another collector did the same work.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn seal(repository: &Repository, name: &[u8; 16], bytes: Result<Vec<u8>>) -> Result<Vec<u8>> {
    let randomness = &*repository.environment().randomness;
    repository.vault().seal_record(Purpose::Plan, name, &bytes?, randomness)
}

/// The name under which the record of an epoch is sealed.
#[must_use]
pub fn epoch_name(number: u64) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&number.to_le_bytes());
    name
}

/// The name under which the record of a sweep is sealed: no epoch's record passes for it.
#[must_use]
pub fn sweep_name(number: u64) -> [u8; 16] {
    let mut name = epoch_name(number);
    name[8] = 1;
    name
}
