//! Several processes fill one generation, each some parts of it.
//!
//! # Algorithm
//! All that is agreed on is decided in the database, as everything else is there:
//!
//! ```text
//! fillings/<n>/<f>              which generation follows generation n, in its f-th filling, and
//!                               since when, by whoever came first
//! fillings/<n>/<f>/<part>/<k>   who fills a part, in its k-th attempt: 16 random bytes
//! fillings/<n>/<f>/<part>       that it is filled
//! ```
//!
//! One that has begun more than [`FILLING_AGE_MAX`] ago, by whatever clock, was left by all: what
//! it has is old, and another one begins.
//!
//! Prefixes are divided into [`PARTS`] equal parts. Each worker takes parts that nobody has taken,
//! beginning anywhere, and fills them. What others have taken it waits for; if nothing was filled
//! for [`PATIENCE`], by its own clock, it takes one of these over. Once all are filled, whoever
//! sees it first goes over to the generation.
//!
//! # Invariants
//! Adding an entry twice changes nothing, so a worker that was only slow does no harm, and neither
//! does one that is stopped: what it filled stays filled, and whoever comes later goes on with it.

use super::{Filled, fill_range};
use crate::database::Database;
use crate::engine::{BUCKET_BITS, Engine, Generation};
use onefold_engine::index::FingerprintIndex;
use onefold_engine::{Job, Repository};
use onefold_types::{Error, Result, StoreId};
use std::time::{Duration, Instant};

/// Parts of a filling, each filled by one worker at a time.
pub const PARTS: u64 = 16;
/// After so long without news another worker is taken to be gone.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// A filling that began longer ago was left by all.
pub const FILLING_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// So often a generation is begun to be filled.
pub const FILLINGS_MAX: u32 = 1000;
/// How often is looked for news.
const LOOK: Duration = Duration::from_millis(500);
/// What says that a part is filled.
const FILLED: &[u8] = b"filled";

/// A worker among others.
struct Worker<'a> {
    engine: &'a dyn Engine,
    store: StoreId,
    /// What is filled, as its decisions are called.
    filling: String,
    /// What it is called in claims.
    name: [u8; 16],
    patience: Duration,
}

/// What becomes of a part.
#[derive(PartialEq, Eq)]
enum Part {
    Filled,
    /// By others, in this attempt.
    Taken(u64),
    Ours,
}

/// As [`super::fill`], together with all others that do so at the same time: each fills a part of
/// the entries, and all end when everything is filled. Another worker that does not go on for so
/// long is taken to be gone.
///
/// # Errors
///
/// As for [`super::fill`].
pub fn fill_with_others(
    repository: &Repository,
    database: &Database,
    patience: Duration,
    job: &Job,
) -> Result<Filled> {
    let store = repository.store_id();
    let index = FingerprintIndex::open(repository)?;
    let (engine, earlier) = (database.engine(), super::current(database, store)?);
    let mut name = [0; 16];
    repository.environment().randomness.fill(&mut name);
    let chance = u16::from_le_bytes([name[0], name[1]]);
    let now_ms = repository.environment().clock.now_ns() / 1_000_000;
    let proposed = earlier.next_for(index.chunks(), chance);
    let (filling, next) = agree(engine, store, (earlier, proposed), now_ms)?;
    let worker = Worker { engine, store, filling, name, patience };
    job.progress.set_totals(index.entries(), 0);
    let mut entries = 0;
    worker.each_part(u64::from(name[2]), job, &mut |part| {
        let range = range_of(part);
        entries += fill_range(repository, &index, (engine, next), range, job)?;
        Ok(())
    })?;
    // Whoever comes second finds that it was done.
    if engine.switch(store, earlier, next)? {
        let _ = engine.drop_generation(store, earlier);
    } else if super::current(database, store)? != next {
        return Err(super::overtaken());
    }
    Ok(Filled { entries, generation: next })
}

/// The filling that is under way, and the generation that it fills; the proposed one, if there is
/// none.
fn agree(
    engine: &dyn Engine,
    store: StoreId,
    (earlier, proposed): (Generation, Generation),
    now_ms: i64,
) -> Result<(String, Generation)> {
    let strange = || Error::damaged("the database says nonsense of who fills its index");
    let mut value = proposed.number.to_le_bytes().to_vec();
    value.push(proposed.bucket_bits);
    value.extend(now_ms.to_le_bytes());
    for number in 1..=FILLINGS_MAX {
        let filling = format!("fillings/{}/{number}", earlier.number);
        let agreed = engine.decide(store, &filling, &value)?;
        let (number, rest) = agreed.split_first_chunk::<4>().ok_or_else(strange)?;
        let (bits, since) = rest.split_first().ok_or_else(strange)?;
        let since_ms = i64::from_le_bytes(since.try_into().map_err(|_| strange())?);
        let next = Generation { number: i32::from_le_bytes(*number), bucket_bits: *bits };
        if !BUCKET_BITS.contains(bits) || next.number <= earlier.number {
            return Err(strange());
        }
        if now_ms.abs_diff(since_ms) <= FILLING_AGE_MAX.as_millis() as u64 {
            return Ok((filling, next));
        }
    }
    Err(Error::invalid("the index was begun to be filled too often: 'database fill' does it alone"))
}

impl Worker<'_> {
    fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.filling)
    }

    fn is_filled(&self, part: u64) -> Result<bool> {
        let name = self.path(&part.to_string());
        Ok(self.engine.decided(self.store, &name)?.is_some())
    }

    /// Tries to take a part in this attempt.
    fn take(&self, part: u64, attempt: u64) -> Result<Part> {
        if self.is_filled(part)? {
            return Ok(Part::Filled);
        }
        // Others may have taken it over since.
        let mut attempt = attempt;
        while self
            .engine
            .decided(self.store, &self.path(&format!("{part}/{}", attempt + 1)))?
            .is_some()
        {
            attempt += 1;
        }
        let name = self.path(&format!("{part}/{attempt}"));
        let taker = self.engine.decide(self.store, &name, &self.name)?;
        Ok(if taker == self.name { Part::Ours } else { Part::Taken(attempt) })
    }

    /// Fills what others do not, until everything is filled.
    fn each_part(
        &self,
        first: u64,
        job: &Job,
        fill: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        // Parts that others have taken, and in which attempt.
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for part in (0..PARTS).map(|number| (first + number) % PARTS) {
            if let Part::Taken(attempt) = self.fill_unless_taken((part, 1), job, fill)? {
                taken.push((part, attempt));
            }
        }
        let mut since = Instant::now();
        while !taken.is_empty() {
            job.interrupt.check()?;
            let before = taken.len();
            let mut left = Vec::new();
            for (part, attempt) in taken {
                if !self.is_filled(part)? {
                    left.push((part, attempt));
                }
            }
            taken = left;
            if taken.len() < before {
                since = Instant::now();
            } else if since.elapsed() >= self.patience {
                let Some((part, attempt)) = taken.pop() else { break };
                if let Part::Taken(later) =
                    self.fill_unless_taken((part, attempt + 1), job, fill)?
                {
                    taken.insert(0, (part, later));
                    // Somebody else has just taken it over.
                    since = Instant::now();
                }
            } else {
                std::thread::sleep(LOOK.min(self.patience));
            }
        }
        Ok(())
    }

    fn fill_unless_taken(
        &self,
        (part, attempt): (u64, u64),
        job: &Job,
        fill: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Part> {
        job.interrupt.check()?;
        let found = self.take(part, attempt)?;
        if found == Part::Ours {
            fill(part)?;
            self.engine.decide(self.store, &self.path(&part.to_string()), FILLED)?;
        }
        Ok(found)
    }
}

/// The prefixes of a part: the first one, and the first one behind it if there is any.
fn range_of(part: u64) -> (u64, Option<u64>) {
    let step = u64::MAX / PARTS + 1;
    (part * step, (part + 1).checked_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Cursor, Known};
    use onefold_engine::common_index::{Claim, ClaimOrder, NewContainer};
    use onefold_store::arbiter::Incarnation;
    use onefold_types::{ContainerId, SessionId};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Mutex;

    /// A database that decides, and nothing else.
    #[derive(Default)]
    struct Decided(Mutex<BTreeMap<String, Vec<u8>>>);

    impl Engine for Decided {
        fn decide(&self, _: StoreId, name: &str, value: &[u8]) -> Result<Vec<u8>> {
            let mut all = self.0.lock().unwrap();
            Ok(all.entry(name.to_owned()).or_insert_with(|| value.to_vec()).clone())
        }
        fn decided(&self, _: StoreId, name: &str) -> Result<Option<Vec<u8>>> {
            Ok(self.0.lock().unwrap().get(name).cloned())
        }
        fn register(&self, _: StoreId, _: &Incarnation) -> Result<()> {
            unreachable!()
        }
        fn known(&self, _: StoreId) -> Result<Option<Known>> {
            unreachable!()
        }
        fn switch(&self, _: StoreId, _: Generation, _: Generation) -> Result<bool> {
            unreachable!()
        }
        fn drop_generation(&self, _: StoreId, _: Generation) -> Result<()> {
            unreachable!()
        }
        fn insert(&self, _: StoreId, _: Generation, _: &[(u64, ContainerId)]) -> Result<()> {
            unreachable!()
        }
        fn locate(&self, _: StoreId, _: Generation, _: &[u64]) -> Result<Vec<(u64, ContainerId)>> {
            unreachable!()
        }
        fn announce(&self, _: StoreId, _: ContainerId, _: &[u64]) -> Result<()> {
            unreachable!()
        }
        fn news(&self, _: StoreId, _: Cursor) -> Result<(Vec<NewContainer>, Cursor)> {
            unreachable!()
        }
        fn claim(&self, _: StoreId, _: SessionId, _: &[u64]) -> Result<ClaimOrder> {
            unreachable!()
        }
        fn claims(&self, _: StoreId, _: Cursor) -> Result<(Vec<Claim>, Cursor)> {
            unreachable!()
        }
    }

    const STORE: StoreId = StoreId([1; 16]);

    fn worker(engine: &Decided, name: u8, patience: Duration) -> Worker<'_> {
        let filling = "fillings/1/1".to_owned();
        Worker { engine, store: STORE, filling, name: [name; 16], patience }
    }

    /// Parts that a worker fills, each of which takes so long.
    fn filled(worker: &Worker<'_>, first: u64, takes: Duration) -> Vec<u64> {
        let mut filled = Vec::new();
        let each = &mut |part| {
            std::thread::sleep(takes);
            filled.push(part);
            Ok(())
        };
        worker.each_part(first, &Job::unattended().0, each).unwrap();
        filled
    }

    #[test]
    fn parts_are_all_prefixes_once() {
        let mut next = Some(0);
        for part in 0..PARTS {
            let (first, end) = range_of(part);
            assert_eq!(Some(first), next);
            next = end;
        }
        assert_eq!(next, None);
    }

    #[test]
    fn all_agree_on_one_generation_until_it_is_old_and_nonsense_is_told() {
        let engine = Decided::default();
        let first = Generation::FIRST;
        let proposed = |number| Generation { number, bucket_bits: 9 };
        let agreed = |number, now_ms| agree(&engine, STORE, (first, proposed(number)), now_ms);
        let begun = agreed(70_000, 5).unwrap();
        assert_eq!(begun, ("fillings/1/1".to_owned(), proposed(70_000)));
        let age_max = FILLING_AGE_MAX.as_millis() as i64;
        assert_eq!(agreed(5, 5 + age_max).unwrap(), begun);
        let anew = agreed(6, 6 + age_max).unwrap();
        assert_eq!(anew, ("fillings/1/2".to_owned(), proposed(6)));
        assert_eq!(agreed(7, 7 + age_max).unwrap(), anew);
        for nonsense in
            [&b""[..], b"abcd", b"abcd\x09", b"abcd\x0512345678", b"\x01\0\0\0\x0912345678"]
        {
            let engine = Decided::default();
            engine.decide(STORE, "fillings/1/1", nonsense).unwrap();
            assert!(agree(&engine, STORE, (first, proposed(5)), 0).is_err(), "{nonsense:?}");
        }
        let engine = Decided::default();
        for number in 1..=FILLINGS_MAX {
            let old = [&7_i32.to_le_bytes()[..], &[9], &i64::MIN.to_le_bytes()].concat();
            engine.decide(STORE, &format!("fillings/1/{number}"), &old).unwrap();
        }
        let refused = agree(&engine, STORE, (first, proposed(5)), 0).unwrap_err();
        assert!(refused.to_string().contains("too often"), "{refused}");
    }

    #[test]
    fn several_workers_fill_each_part_once_and_end_together() {
        let engine = Decided::default();
        let all: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let workers = (1..=3).map(|name| {
                let worker = worker(&engine, name, PATIENCE);
                scope.spawn(move || {
                    let filled = filled(&worker, u64::from(name), Duration::from_millis(20));
                    assert!((0..PARTS).all(|part| worker.is_filled(part).unwrap()));
                    filled
                })
            });
            let workers: Vec<_> = workers.collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert!(all.iter().all(|parts| !parts.is_empty()), "{all:?}");
        let mut parts = all.concat();
        parts.sort_unstable();
        assert_eq!(parts, (0..PARTS).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_worker_that_is_gone_has_taken_is_taken_over() {
        let engine = Decided::default();
        // One is gone with two parts, one of which another one had taken over and is gone as well.
        for name in ["fillings/1/1/3/1", "fillings/1/1/7/1", "fillings/1/1/7/2"] {
            engine.decide(STORE, name, &[9; 16]).unwrap();
        }
        let worker = worker(&engine, 1, Duration::from_millis(30));
        let began = Instant::now();
        let parts = filled(&worker, 0, Duration::ZERO);
        assert!(began.elapsed() < Duration::from_secs(5), "it waits too long");
        assert_eq!(parts.iter().collect::<BTreeSet<_>>().len() as u64, PARTS);
        assert_eq!(engine.decided(STORE, "fillings/1/1/7/3").unwrap(), Some([1; 16].to_vec()));
        // Whoever comes later finds nothing to do.
        let later = Worker { name: [2; 16], ..worker };
        assert!(filled(&later, 5, Duration::ZERO).is_empty());
    }
}
