//! Epochs: what is condemned, who decided it, and whether it is over (protocol, section 3).
//!
//! A writer reads the newest epoch (W2); a collector decides the next one (G3), then which of its
//! condemned containers are deleted (the sweep, G5), and declares it finished (G8). Decisions are
//! never removed; plans are, once their epoch is over, which is why a vanished plan means that a
//! newer state is to be read.
//!
//! If nothing newer is to be read, the plan is *lost*, and nobody can tell any more what is
//! condemned. Whoever meets that decides that nothing is deleted (rule D2); every collector of the
//! epoch obeys, and the epoch is over. If a sweep was decided before, that is what is condemned.

use super::decided::{self, DecidedName};
use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::{layout, record};
use onefold_store::Key;
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, ErrorKind, PlanId, Result, SessionId};
use std::collections::{BTreeMap, BTreeSet};

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
    /// It is open, and what it condemns cannot be read any more: [`end_lost`].
    Lost {
        /// Its number.
        number: u64,
        /// What is wrong.
        problem: String,
    },
}

impl Newest {
    /// The number of the newest epoch; 0 if there was none.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            Self::Finished(number) | Self::Lost { number, .. } => *number,
            Self::Open(epoch) => epoch.number,
        }
    }
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

/// Reads the newest epoch as a writer does (W2). One whose plan is lost is ended first, so that no
/// writer waits for anybody.
pub fn read_newest(repository: &Repository) -> Result<Epoch> {
    Ok(match newest(repository)? {
        Newest::Finished(number) => Epoch { number, avoid: BTreeSet::new() },
        Newest::Open(DecidedEpoch { number, plan, .. }) => {
            Epoch { number, avoid: plan.condemned.into_iter().collect() }
        }
        Newest::Lost { number, .. } => {
            Epoch { number, avoid: end_lost(repository, number)?.into_iter().collect() }
        }
    })
}

/// What is condemned now, for whoever writes nothing.
pub fn condemned(repository: &Repository) -> Result<BTreeSet<ContainerId>> {
    Ok(match newest(repository)? {
        Newest::Open(decided) => decided.plan.condemned.into_iter().collect(),
        Newest::Finished(_) | Newest::Lost { .. } => BTreeSet::new(),
    })
}

/// Ends an epoch whose plan is lost: decides that nothing is deleted. Returns what is deleted all
/// the same, because that was decided before; then the epoch stays open until somebody has done it.
pub fn end_lost(repository: &Repository, number: u64) -> Result<Vec<ContainerId>> {
    let deleted = decide_sweep(repository, number, Vec::new())?;
    if deleted.is_empty() {
        finish(repository, number)?;
    }
    Ok(deleted)
}

/// Reads the newest epoch.
pub fn newest(repository: &Repository) -> Result<Newest> {
    let mut missed = None;
    for _ in 0..TRIES_MAX {
        let number = newest_number(repository)?;
        if number == 0 || is_finished(repository, number)? {
            return Ok(Newest::Finished(number));
        }
        match decided_plan(repository, number) {
            Ok(decided) => return Ok(Newest::Open(decided)),
            // A plan is removed only after a later epoch was decided, which the next look shows.
            Err(error) if error.is_lost() && missed != Some(number) => missed = Some(number),
            Err(error) if error.is_lost() => {
                return Ok(Newest::Lost { number, problem: error.to_string() });
            }
            Err(error) => return Err(error.context(format!("epoch {number}"))),
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "collections end one after the other; try again"))
}

/// The number of the newest epoch; 0 before the first collection.
pub fn newest_number(repository: &Repository) -> Result<u64> {
    let names = decided::names(repository, layout::EPOCHS)?;
    // A number has one spelling; another file is no epoch.
    let number = |name: &String| name.parse::<u64>().ok().filter(|n| n.to_string() == *name);
    let mut numbers: BTreeSet<u64> = names.iter().filter_map(number).collect();
    while let Some(newest) = numbers.pop_last() {
        // Epochs follow one another. One that follows none was not decided by a holder of the key,
        // unless it opens and those before it were lost.
        let follows = newest <= 1 || numbers.last() == Some(&(newest - 1));
        if follows {
            return Ok(newest);
        }
        match DecidedName::epoch(newest).read(repository) {
            Ok(Some(_)) => return Ok(newest),
            Err(error) if error.kind() == ErrorKind::KeysChanged => return Err(error),
            Ok(None) | Err(_) => {}
        }
    }
    Ok(0)
}

/// The number of the epoch after this one.
pub fn next_number(number: u64) -> Result<u64> {
    number.checked_add(1).ok_or_else(|| {
        Error::new(ErrorKind::LimitExceeded, format!("there is no epoch after {number}"))
    })
}

/// The plan of the newest epoch, open or finished; `None` if there is none, or it cannot be read.
pub fn newest_plan(repository: &Repository) -> Result<Option<record::Plan>> {
    let number = newest_number(repository)?;
    if number == 0 {
        return Ok(None);
    }
    match decided_plan(repository, number) {
        Ok(decided) => Ok(Some(decided.plan)),
        Err(error) if error.is_lost() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The snapshots that the newest plan knew to be forgotten.
pub fn newest_tombstones(repository: &Repository) -> Result<BTreeSet<SessionId>> {
    let plan = newest_plan(repository)?;
    Ok(plan.map(|plan| plan.tombstones.into_iter().collect()).unwrap_or_default())
}

/// Whether an epoch was declared finished, by a holder of the key: who believes it avoids nothing.
/// What does not open was put there by somebody else, or has rotten; the epoch then counts as open,
/// and whoever ends it says so anew.
pub fn is_finished(repository: &Repository, number: u64) -> Result<bool> {
    let vault = repository.vault();
    match repository.store().get(&Key::new(layout::finished(number))?) {
        Ok(sealed) => match vault.open_record(Purpose::Plan, &finished_name(number), &sealed) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            Err(error) => Err(error),
        },
        Err(error) if error.is_lost() => Ok(false),
        Err(error) => Err(error),
    }
}

/// An epoch and its plan.
///
/// Errors: `NotFound` if the epoch is not decided, or its plan was removed since.
pub fn decided_plan(repository: &Repository, number: u64) -> Result<DecidedEpoch> {
    let missing = || Error::new(ErrorKind::NotFound, "the epoch is not decided");
    let bytes = DecidedName::epoch(number).read(repository)?.ok_or_else(missing)?;
    let plan_id = record::decode::<record::Epoch>(&bytes, "epoch")?.plan;
    Ok(DecidedEpoch { number, plan_id, plan: read_plan(repository, plan_id)? })
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
    let (bytes, randomness) = (record::encode(&plan)?, &*repository.environment().randomness);
    let sealed = repository.vault().seal_record(Purpose::Plan, &plan_id.0, &bytes, randomness)?;
    repository.store().put_fresh(&key, &sealed)?;
    // Nobody could obey a plan that does not read back.
    if read_plan(repository, plan_id)? != plan {
        return Err(Error::damaged(format!(
            "the store acknowledged plan {plan_id} but holds another; do not trust this device"
        )));
    }
    let own = record::encode(&record::Epoch { plan: plan_id })?;
    let decision = DecidedName::epoch(number).decide(repository, &own)?;
    let won = record::decode::<record::Epoch>(&decision.record, "epoch")?.plan;
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
    DecidedName::sweep(number).read(repository)?.map(|bytes| decode_sweep(&bytes)).transpose()
}

/// Decides which containers of an epoch are deleted; returns those that were decided, by whomever.
pub fn decide_sweep(
    repository: &Repository,
    number: u64,
    deleted: Vec<ContainerId>,
) -> Result<Vec<ContainerId>> {
    let own = record::encode(&record::Sweep { deleted })?;
    decode_sweep(&DecidedName::sweep(number).decide(repository, &own)?.record)
}

fn decode_sweep(bytes: &[u8]) -> Result<Vec<ContainerId>> {
    record::decode::<record::Sweep>(bytes, "sweep").map(|sweep| sweep.deleted)
}

/// Declares an epoch finished (G8): everything of it was deleted and dropped from the index.
pub fn finish(repository: &Repository, number: u64) -> Result<()> {
    let key = Key::new(layout::finished(number))?;
    let (vault, randomness) = (repository.vault(), &*repository.environment().randomness);
    let sealed = vault.seal_record(Purpose::Plan, &finished_name(number), b"", randomness)?;
    match repository.store().put(&key, &sealed) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // Another collector did the same work; or it is nothing that anybody believes.
            if is_finished(repository, number)? {
                return Ok(());
            }
            repository.store().delete(&key)?;
            match repository.store().put(&key, &sealed) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                other => other,
            }
        }
        other => other,
    }
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

/// The name under which it is sealed that an epoch is finished.
#[must_use]
pub fn finished_name(number: u64) -> [u8; 16] {
    let mut name = epoch_name(number);
    name[8] = 2;
    name
}

/// The changes that a plan names.
#[must_use]
pub fn changes_of(plan: &record::Plan) -> BTreeMap<SessionId, u64> {
    plan.changes.iter().map(|name| (name.snapshot, name.number)).collect()
}
