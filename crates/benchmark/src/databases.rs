//! How many entries a second a database beside a store takes and gives, as sessions ask it.
//!
//! One client, some threads; prefixes are spread evenly, as fingerprints are. Entries are added as
//! sorted batches, which is how an index is filled; look-ups ask for as many prefixes at once as
//! sessions do with a lazy look-up, half of them known. Everything lies in a store that is new to
//! the database, and stays there.

use clap::Args;
use onefold_crypto::OsRandomness;
use onefold_database::engine::{Engine, Generation};
use onefold_database::{Database, DatabaseLocation, Settings};
use onefold_types::environment::SeededRandomness;
use onefold_types::{ContainerId, Error, Result, StoreId};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Entries that are added at once.
const ADDED_AT_ONCE: usize = 16_384;
/// Containers that entries name.
const CONTAINERS: u64 = 4096;

/// What is asked of which database.
#[derive(Args)]
pub struct DatabasesArgs {
    /// The database: postgres://USER@HOST:PORT/DATABASE or cassandra://HOST:PORT/KEYSPACE
    url: String,
    /// Entries
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Prefixes that are looked up at once
    #[arg(long, default_value_t = 4096)]
    batch: usize,
    /// Threads that ask
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Fills a database and asks it; returns a table.
pub fn run(args: &DatabasesArgs) -> Result<String> {
    let location = DatabaseLocation::parse(&args.url)?;
    let home = std::env::home_dir();
    let variable = |name: &str| std::env::var(name).ok();
    let settings = Settings::find(&location, &variable, home.as_deref())?;
    let database = Database::new(&location, settings)?;
    let store = StoreId::random(&OsRandomness);
    let engine = database.engine();
    engine.register(store, &[0; 16])?;
    let generation = Generation::FIRST.next_for(args.entries, 0);
    let randomness = SeededRandomness::new(1);
    let mut entries: Vec<(u64, ContainerId)> = (0..args.entries)
        .map(|number| (randomness.next_u64(), container(number % CONTAINERS)))
        .collect();
    entries.sort_unstable();
    let batches: Vec<&[(u64, ContainerId)]> = entries.chunks(ADDED_AT_ONCE).collect();
    let added = timed(args.threads, &batches, |batch| {
        engine.insert(store, generation, batch).map(|()| batch.len() as u64)
    })?;
    // Every other one is known, in the order of a stream: none.
    let mut asked: Vec<u64> = entries.iter().map(|(prefix, _)| *prefix).collect();
    shuffle(&mut asked, &randomness);
    asked.iter_mut().skip(1).step_by(2).for_each(|prefix| *prefix = randomness.next_u64());
    let batches: Vec<&[u64]> = asked.chunks(args.batch.max(1)).collect();
    let found = AtomicU64::new(0);
    let located = timed(args.threads, &batches, |batch| {
        let answers = look_up(engine, store, generation, batch)?;
        found.fetch_add(answers, Ordering::Relaxed);
        Ok(batch.len() as u64)
    })?;
    let expected = args.entries.div_ceil(2);
    let found = found.into_inner();
    if found < expected {
        return Err(Error::damaged(format!("{found} of {expected} entries were found")));
    }
    let mut table = format!(
        "{location}, {} entries, {} threads, {} bits of buckets\n\n| what | a second | seconds |\n\
         | --- | ---: | ---: |\n",
        args.entries, args.threads, generation.bucket_bits
    );
    for (what, (count, seconds)) in
        [("added", added), (format!("looked up, {} at once", args.batch).as_str(), located)]
    {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {what} | {:.0} | {seconds:.2} |", count as f64 / seconds);
    }
    Ok(table)
}

fn container(number: u64) -> ContainerId {
    ContainerId((u128::from(number) + 1).to_le_bytes())
}

fn look_up(
    engine: &dyn Engine,
    store: StoreId,
    generation: Generation,
    batch: &[u64],
) -> Result<u64> {
    let mut sorted = batch.to_vec();
    sorted.sort_unstable();
    engine.locate(store, generation, &sorted).map(|found| found.len() as u64)
}

/// How many were done, and in how many seconds, by so many threads.
fn timed<T: Sync + ?Sized>(
    threads: usize,
    batches: &[&T],
    work: impl Fn(&T) -> Result<u64> + Sync,
) -> Result<(u64, f64)> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let started = Instant::now();
    let run = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(batch) = batches.get(number) else { return Ok(()) };
            done.fetch_add(work(batch)?, Ordering::Relaxed);
        }
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for outcome in outcomes {
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok((done.into_inner(), started.elapsed().as_secs_f64()))
}

fn shuffle(all: &mut [u64], randomness: &SeededRandomness) {
    for last in (1..all.len()).rev() {
        all.swap(last, randomness.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_each_done_once_whoever_does_them() {
        let numbers: Vec<u64> = (0..1000).collect();
        let batches: Vec<&[u64]> = numbers.chunks(7).collect();
        let sum = AtomicU64::new(0);
        let (done, seconds) = timed(3, &batches, |batch| {
            sum.fetch_add(batch.iter().sum(), Ordering::Relaxed);
            Ok(batch.len() as u64)
        })
        .unwrap();
        assert_eq!((done, sum.into_inner()), (1000, 999 * 500));
        assert!(seconds > 0.0);
        let failing = timed(2, &batches, |_| Err(Error::invalid("no")));
        assert!(failing.is_err());
    }
}
