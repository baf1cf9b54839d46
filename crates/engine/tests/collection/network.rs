//! A network between an actor and its store, in the model: requests that arrive once more later on,
//! and answers that are lost.
//!
//! Whoever has no answer in time asks again, and cannot take back what it asked before: that may
//! still be on its way, and arrive when nobody thinks of it any more. A put that arrives late makes
//! its object only where there is none, so it can bring back what was deleted since, and a decision
//! that was lost. A deletion that arrives late deletes whatever has the name by then. An answer
//! that is lost for good leaves the one who asked with an error, although all was done.
//!
//! Late requests arrive when it is the turn of an actor that does nothing else ([`delivers`]); what
//! is still on its way at the end arrives then.

use crate::gated::Gated;
use crate::model::{Scenario, in_parallel, runs, world};
use crate::schedule::random_segments;
use crate::steps::key;
use crate::tasks::*;
use crate::world::*;
use onefold_store::{Blobs, Decisions, Key, MemoryStore};
use onefold_types::environment::SeededRandomness;
use onefold_types::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};

/// What an actor looks at to let a late request arrive.
pub const LATE: &str = "late";
/// So many of them arrive at most while others work.
const ARRIVALS: usize = 60;
/// Of requests that write, one in so many arrives again.
const AGAIN: u64 = 3;
/// Of requests that write, the answer to one in so many is lost for good.
const LOST: u64 = 30;

/// A request that arrives once more.
enum Late {
    Put(Key, Vec<u8>),
    Decide(Key, Vec<u8>),
    Delete(Key),
}

struct Way {
    chance: SeededRandomness,
    late: Vec<Late>,
    met: Met,
}

/// What went astray; what never happens tests nothing.
#[derive(Clone, Copy, Default)]
pub struct Met {
    /// Late requests that arrived.
    pub late: u64,
    /// Those of them that brought an object back, and a decision.
    pub objects_brought_back: u64,
    pub decisions_brought_back: u64,
    /// Answers that were lost for good.
    pub answers_lost: u64,
}

/// The network of one run.
#[derive(Clone)]
pub struct Network(Arc<Mutex<Way>>);

impl Network {
    pub fn new(seed: u64) -> Self {
        let chance = SeededRandomness::new(seed ^ 0xfa2);
        Self(Arc::new(Mutex::new(Way { chance, late: Vec::new(), met: Met::default() })))
    }

    fn passes(&self, late: Late) -> Result<()> {
        let mut way = self.0.lock().unwrap();
        if way.chance.below(AGAIN) == 0 {
            way.late.push(late);
        }
        if way.chance.below(LOST) == 0 {
            way.met.answers_lost += 1;
            return Err(Error::new(ErrorKind::Unavailable, "the answer was lost"));
        }
        Ok(())
    }

    /// A put was done.
    pub fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.passes(Late::Put(key.clone(), bytes.to_vec()))
    }

    /// Something was decided, by this request or before it.
    pub fn decide(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.passes(Late::Decide(key.clone(), value.to_vec()))
    }

    /// Something was deleted.
    pub fn delete(&self, key: &Key) -> Result<()> {
        self.passes(Late::Delete(key.clone()))
    }

    /// One of the late requests arrives, if there are any.
    pub fn deliver(&self, store: &MemoryStore) -> bool {
        let mut way = self.0.lock().unwrap();
        let count = way.late.len() as u64;
        if count == 0 {
            return false;
        }
        let next = way.chance.below(count) as usize;
        // What is there is not replaced: the answer says so to somebody who no longer listens.
        match way.late.swap_remove(next) {
            Late::Put(key, bytes) => {
                way.met.objects_brought_back += u64::from(store.put(&key, &bytes).is_ok());
            }
            Late::Decide(key, value) => {
                way.met.decisions_brought_back += u64::from(store.size(&key).is_err());
                store.decide(&key, &value).unwrap();
            }
            Late::Delete(key) => store.delete(&key).unwrap(),
        }
        way.met.late += 1;
        true
    }

    pub fn met(&self) -> Met {
        self.0.lock().unwrap().met
    }
}

impl Gated {
    /// Something late arrives if that is what is looked at.
    pub fn deliver_late(&self, key: &Key) {
        if let (Some(network), LATE) = (&self.network, key.as_str()) {
            network.deliver(&self.store);
        }
    }
}

/// Lets late requests arrive, one whenever it has the turn.
fn delivers() -> Task {
    Arc::new(|_, repository| {
        for _ in 0..ARRIVALS {
            // It is told that there is no such object; or it has crashed.
            if repository.store().size(&key(LATE)).is_err_and(|e| e.kind() != ErrorKind::NotFound) {
                break;
            }
        }
        Ok(())
    })
}

/// Everything holds whatever arrives late; and much does.
fn must_hold(scenario: &Scenario, few: usize) {
    in_parallel(runs(few), |seed| {
        let segments = random_segments(seed as u64, scenario.actors.len());
        let mode = Mode { network: Some(seed as u64), ..Mode::from(seed % 2 == 1) };
        scenario.must_hold(&segments, mode);
    });
    for what in ["late requests", "objects brought back", "answers lost"] {
        let times = scenario.world.counted(what);
        eprintln!("{what}: {times}");
        assert!(times > few as u64 / 10, "{what}: only {times} in {few} schedules");
    }
}

#[test]
fn r96_requests_that_arrive_again_beside_a_backup_and_collections() {
    let tasks = [backs_up("x", "x"), collects(), collects(), delivers()];
    must_hold(&Scenario::new(world(), tasks), 400);
}

#[test]
fn r96_requests_that_arrive_again_beside_everything_at_once() {
    let tasks = [
        backs_up("x", "x"),
        reuses("p", "pq"),
        forgets("k"),
        forgets("pq"),
        collects(),
        collects(),
        restores(),
        delivers(),
    ];
    let scenario = Scenario::new(world(), tasks);
    must_hold(&scenario, 400);
    let decisions = scenario.world.counted("decisions brought back");
    eprintln!("decisions brought back: {decisions}");
    assert!(decisions > 0, "no decision was ever brought back");
}

#[test]
fn r96_requests_that_arrive_again_beside_all_that_may_happen() {
    let Scenario { world, mut actors } = crate::wide::scenario();
    actors.push(Actor::new(delivers()));
    must_hold(&Scenario { world, actors }, 60);
}
