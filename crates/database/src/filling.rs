//! The index in common, made anew out of the store's own.
//!
//! For a database that is new, was lost, or remembers many containers that collections have
//! deleted. A new generation is filled beside the old one, gone over to at once, and the old one
//! deleted as a whole. Several processes may fill one generation together ([`together`]), or each a
//! generation of its own, of which one wins.
//! What sessions add meanwhile is known to the generation that they began with only: until the next
//! filling it is found in the runs, as everything the database does not know.
//!
//! Interrupted, it leaves entries that nobody looks at.

pub mod together;

use crate::database::Database;
use crate::engine::{Engine, Generation};
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex};
use onefold_engine::{Job, Repository};
use onefold_types::{ContainerId, Error, ErrorKind, Result, StoreId};

/// Entries that are added at once.
const ENTRIES_AT_ONCE: usize = 16_384;

/// What a filling did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Entries that the database has now.
    pub entries: u64,
    /// What it is called there.
    pub generation: Generation,
}

/// Fills a database with all that the index of an open store knows.
///
/// # Errors
///
/// Those of the store and of the database; `Unavailable` if somebody else filled it meanwhile.
pub fn fill(repository: &Repository, database: &Database, job: &Job) -> Result<Filled> {
    let store = repository.store_id();
    let index = FingerprintIndex::open(repository)?;
    let (engine, earlier) = (database.engine(), current(database, store)?);
    let mut chance = [0; 2];
    repository.environment().randomness.fill(&mut chance);
    let next = earlier.next_for(index.chunks(), u16::from_le_bytes(chance));
    job.progress.set_totals(index.entries(), 0);
    let entries = fill_range(repository, &index, (engine, next), (0, None), job)?;
    if !engine.switch(store, earlier, next)? {
        return Err(overtaken());
    }
    // What is left of it takes room, and nobody looks at it.
    let _ = engine.drop_generation(store, earlier);
    Ok(Filled { entries, generation: next })
}

/// The generation that the database has.
fn current(database: &Database, store: StoreId) -> Result<Generation> {
    let known = database.engine().known(store)?;
    let generation = known.map(|known| known.generation);
    generation.ok_or_else(|| Error::invalid("the database does not know the store"))
}

fn overtaken() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "somebody else has filled the index meanwhile; theirs counts",
    )
}

/// Adds all entries from a prefix on, up to another one, to a generation; how many.
fn fill_range(
    repository: &Repository,
    index: &FingerprintIndex,
    (engine, next): (&dyn Engine, Generation),
    (first, end): (u64, Option<u64>),
    job: &Job,
) -> Result<u64> {
    let containers = index.covered();
    let mut scan = index.scan(repository, &containers, first)?;
    let (mut ordinals, mut waiting): (Vec<u32>, Vec<(u64, ContainerId)>) = Default::default();
    let mut entries = 0;
    loop {
        ordinals.clear();
        let prefix = scan.next_group(repository, end, &mut ordinals)?;
        if waiting.len() >= ENTRIES_AT_ONCE || prefix.is_none() {
            job.interrupt.check()?;
            engine.insert(repository.store_id(), next, &waiting)?;
            job.progress.add(waiting.len() as u64, 0);
            entries += waiting.len() as u64;
            waiting.clear();
        }
        let Some(prefix) = prefix else { return Ok(entries) };
        let named = ordinals.iter().filter_map(|ordinal| containers.get(*ordinal as usize));
        waiting.extend(named.map(|container| (prefix, *container)));
    }
}
