//! A store that counts what it is asked, and an owner that checks what it is told.

#![allow(clippy::disallowed_types, reason = "an oracle is not a policy")]

use onefold_policy::lookup::{LookupStrategy, StreamLookup};
use onefold_policy::{AcceleratedFilter, FilterConfiguration, FilterCounters};
use onefold_policy::{BucketCounts, IndexPort, Instance, Verdict};
use onefold_types::environment::{Randomness, SeededRandomness};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A store in memory. Locating takes one access for each of the index's fewest buckets that the
/// fingerprints fall into.
pub struct OracleStore {
    pub containers: HashMap<ContainerId, Arc<[Fingerprint]>>,
    pub index: HashMap<Fingerprint, Vec<ContainerId>>,
    pub buckets: BucketCounts,
    /// Of 65536 fingerprints that are not there, so many pass the summary vector.
    pub false_positives: u64,
    /// Whether only hooks are in memory: those of 32 fingerprints whose low bits are zero.
    pub sampled: bool,
    /// The bucket and the number of fingerprints of every question.
    pub located: Vec<Vec<Fingerprint>>,
    pub section_reads: u64,
    pub summary_questions: u64,
    /// After so many questions to the index, the store is gone.
    pub fails_after: usize,
}

impl OracleStore {
    pub fn new(buckets: u32) -> Self {
        Self {
            containers: HashMap::new(),
            index: HashMap::new(),
            buckets: BucketCounts { fewest: buckets, most: buckets },
            false_positives: 0,
            sampled: false,
            located: Vec::new(),
            section_reads: 0,
            summary_questions: 0,
            fails_after: usize::MAX,
        }
    }

    pub fn with(buckets: u32, chunks: &[Fingerprint], chunks_per_container: usize) -> Self {
        let mut store = Self::new(buckets);
        chunks.chunks(chunks_per_container).for_each(|part| {
            store.append(part);
        });
        store
    }

    pub fn append(&mut self, chunks: &[Fingerprint]) -> ContainerId {
        let mut name = [1; 16];
        name[..8].copy_from_slice(&(self.containers.len() as u64).to_le_bytes());
        let name = ContainerId(name);
        for chunk in chunks {
            self.index.entry(*chunk).or_default().insert(0, name);
        }
        self.containers.insert(name, chunks.into());
        name
    }
}

impl IndexPort for OracleStore {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        if self.located.len() >= self.fails_after {
            return Err(Error::new(ErrorKind::Io, "the store is gone"));
        }
        let fewest = u128::from(self.buckets.fewest);
        let bucket_of = |one: &Fingerprint| ((u128::from(one.prefix()) * fewest) >> 64) as u32;
        let mut buckets: Vec<u32> = fingerprints.iter().map(bucket_of).collect();
        buckets.sort_unstable();
        buckets.dedup();
        *reads += buckets.len() as u64;
        self.located.push(fingerprints.to_vec());
        found.extend(
            fingerprints.iter().map(|one| self.index.get(one).cloned().unwrap_or_default()),
        );
        Ok(())
    }

    fn container_fingerprints(&mut self, name: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        self.section_reads += 1;
        Ok(self.containers.get(&name).cloned())
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        self.summary_questions += 1;
        if self.sampled && !fingerprint.prefix().is_multiple_of(32) {
            return Ok(false);
        }
        let chance = fingerprint.prefix().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        Ok(self.index.contains_key(fingerprint) || chance < self.false_positives)
    }

    fn bucket_counts(&self) -> BucketCounts {
        self.buckets
    }
}

/// What the owner knows of a chunk in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// In the store, here.
    Stored(Instance),
    /// To be written.
    New,
    /// Equal to a chunk of this stream that is to be written.
    Repeated,
}

/// One stream with its owner: it keeps the chunks of its open containers, hands in the others, and
/// checks that each gets exactly one verdict, and a true one.
pub struct Owner {
    pub filter: AcceleratedFilter,
    pub lookup: StreamLookup,
    waiting_max: usize,
    open: HashSet<Fingerprint>,
    waiting: BTreeMap<u64, Fingerprint>,
    outcomes: Vec<Option<Outcome>>,
    resolved: Vec<(u64, Verdict)>,
}

impl Owner {
    pub fn new(strategy: LookupStrategy) -> Self {
        Self::with(strategy, FilterConfiguration::default(), 1 << 22)
    }

    pub fn with(
        strategy: LookupStrategy,
        configuration: FilterConfiguration,
        cache_bytes: usize,
    ) -> Self {
        let waiting_max = match strategy {
            LookupStrategy::Eager(_) | LookupStrategy::None => 0,
            LookupStrategy::Lazy(lazy) | LookupStrategy::SecondLook(lazy) => lazy.buffer_max,
            LookupStrategy::Sampled(sampled) => sampled.segment_length,
            LookupStrategy::Auto(auto) => auto.buffer_max,
        };
        Self {
            filter: AcceleratedFilter::new(configuration, cache_bytes),
            lookup: StreamLookup::new(&strategy).unwrap(),
            waiting_max,
            open: HashSet::new(),
            waiting: BTreeMap::new(),
            outcomes: Vec::new(),
            resolved: Vec::new(),
        }
    }

    pub fn push(&mut self, store: &mut OracleStore, fingerprint: &Fingerprint) {
        let ticket = self.outcomes.len() as u64;
        if self.open.contains(fingerprint) {
            self.outcomes.push(Some(Outcome::Repeated));
            return;
        }
        self.outcomes.push(None);
        self.waiting.insert(ticket, *fingerprint);
        let resolved = &mut self.resolved;
        self.lookup.push(&mut self.filter, store, ticket, fingerprint, resolved).unwrap();
        self.settle(store);
    }

    pub fn push_all(&mut self, store: &mut OracleStore, stream: &[Fingerprint]) {
        stream.iter().for_each(|fingerprint| self.push(store, fingerprint));
    }

    pub fn drain(&mut self, store: &mut OracleStore) {
        self.drain_before(store, u64::MAX);
    }

    pub fn drain_before(&mut self, store: &mut OracleStore, ticket: u64) {
        let resolved = &mut self.resolved;
        self.lookup.drain_before(ticket, &mut self.filter, store, resolved).unwrap();
        self.settle(store);
        assert!(self.oldest_waiting().is_none_or(|oldest| oldest >= ticket));
    }

    pub fn oldest_waiting(&self) -> Option<u64> {
        self.waiting.keys().next().copied()
    }

    pub fn outcomes(&self) -> Vec<Outcome> {
        self.outcomes.iter().map(|outcome| outcome.unwrap()).collect()
    }

    pub fn outcome(&self, ticket: usize) -> Option<Outcome> {
        self.outcomes[ticket]
    }

    pub fn counters(&self) -> FilterCounters {
        *self.filter.counters()
    }

    fn settle(&mut self, store: &OracleStore) {
        for (ticket, verdict) in self.resolved.drain(..) {
            let fingerprint = self.waiting.remove(&ticket).expect("one verdict for each chunk");
            let outcome = match verdict {
                Verdict::Duplicate(instance) => {
                    let holder = &store.containers[&instance.container];
                    assert_eq!(holder[instance.position as usize], fingerprint);
                    Outcome::Stored(instance)
                }
                Verdict::New => {
                    assert!(self.open.insert(fingerprint), "a chunk is new once");
                    Outcome::New
                }
                Verdict::Repeated => Outcome::Repeated,
            };
            self.outcomes[ticket as usize] = Some(outcome);
        }
        assert_eq!(self.waiting.len(), self.lookup.waiting());
        assert!(self.waiting.len() <= self.waiting_max, "{}", self.waiting.len());
    }
}

/// Looks a whole stream up and checks that every verdict is the naive oracle's.
pub fn exact(strategy: LookupStrategy, store: &mut OracleStore, stream: &[Fingerprint]) -> Owner {
    let mut owner = Owner::new(strategy);
    owner.push_all(store, stream);
    owner.drain(store);
    check_exact(&owner, store, stream);
    owner
}

/// Whether every verdict is the one that a set of all fingerprints gives.
pub fn check_exact(owner: &Owner, store: &OracleStore, stream: &[Fingerprint]) {
    let mut seen = HashSet::new();
    for (fingerprint, outcome) in stream.iter().zip(owner.outcomes()) {
        let is_first = seen.insert(*fingerprint);
        match outcome {
            Outcome::Stored(_) => assert!(store.index.contains_key(fingerprint)),
            Outcome::New => assert!(!store.index.contains_key(fingerprint) && is_first),
            Outcome::Repeated => assert!(!store.index.contains_key(fingerprint) && !is_first),
        }
    }
}

pub fn chunks(seed: u64, count: usize) -> Vec<Fingerprint> {
    let randomness = SeededRandomness::new(seed);
    let draw = |_| {
        let mut bytes = [0; 32];
        randomness.fill(&mut bytes);
        Fingerprint(bytes)
    };
    (0..count).map(draw).collect()
}

/// The fingerprint that a small number stands for; its prefix is the number.
pub fn numbered(number: u64) -> Fingerprint {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&number.swap_bytes().to_le_bytes());
    Fingerprint(bytes)
}

/// The runs of `length` of `chunks`, in an order drawn by `seed`.
pub fn shuffled(seed: u64, chunks: &[Fingerprint], length: usize) -> Vec<Fingerprint> {
    let randomness = SeededRandomness::new(seed);
    let mut runs: Vec<&[Fingerprint]> = chunks.chunks(length).collect();
    for last in (1..runs.len()).rev() {
        runs.swap(last, randomness.below(last as u64 + 1) as usize);
    }
    runs.concat()
}
