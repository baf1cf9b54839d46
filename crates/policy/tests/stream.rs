//! The machine of a stream on a model: whatever the strategy, the policy, the batches and the
//! moments at which it is pressed, every chunk is stored or referred to once, in stream order.

#![allow(clippy::disallowed_types, reason = "an oracle is not a policy")]

use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::lookup::{LazyParameters, LookupStrategy, SampledParameters};
use onefold_policy::rewrite::{ContainerUse, RewriteParameters, UnitId, Usage};
use onefold_policy::stream::{
    Batch, Chunk, ChunkStream, ContainerPort, Instances, RewriteGuard, RewriteOptions, SessionPort,
    Status, Units,
};
use onefold_policy::{AcceleratedFilter, BucketCounts, FilterConfiguration, FilterOrder};
use onefold_policy::{IndexPort, Instance};
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

const CHUNK_BYTES: u32 = 1000;
/// Chunks that are in the store, in old containers of eight; every fifth is in a second one, too.
const OLD: u64 = 64;

fn fingerprint(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    Fingerprint(bytes)
}

fn container(number: u64) -> ContainerId {
    let mut bytes = [0; 16];
    bytes[7] = number as u8;
    ContainerId(bytes)
}

/// Chunk numbers.
struct Numbers(Vec<(u64, Fingerprint)>);

impl Batch for Numbers {
    type Payload = u64;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn weight(&self) -> usize {
        self.0.len()
    }

    fn fingerprint(&self, position: usize) -> &Fingerprint {
        &self.0[position].1
    }

    fn size_bytes(&self, _position: usize) -> u32 {
        CHUNK_BYTES
    }

    fn payload(&self, position: usize) -> &u64 {
        &self.0[position].0
    }
}

#[derive(Clone, Default)]
struct ByContainer;

impl Units for ByContainer {
    type Address = ContainerId;

    fn unit_of(&self, address: ContainerId) -> UnitId {
        UnitId::of_container(address)
    }
}

/// What the store held before.
struct OldStore {
    containers: BTreeMap<ContainerId, Arc<[Fingerprint]>>,
}

impl OldStore {
    fn new() -> Self {
        let once = (0..OLD / 8).map(|number| (number, number * 8..number * 8 + 8));
        let mut containers: BTreeMap<ContainerId, Arc<[Fingerprint]>> = once
            .map(|(number, chunks)| (container(number), chunks.map(fingerprint).collect()))
            .collect();
        containers.insert(container(100), (0..OLD).step_by(5).map(fingerprint).collect());
        Self { containers }
    }

    fn holders(&self, fingerprint: &Fingerprint) -> Vec<ContainerId> {
        let holds = |(id, list): (&ContainerId, &Arc<[Fingerprint]>)| {
            list.contains(fingerprint).then_some(*id)
        };
        self.containers.iter().rev().filter_map(holds).collect()
    }
}

impl IndexPort for OldStore {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        *reads += 1;
        found.extend(fingerprints.iter().map(|one| self.holders(one)));
        Ok(())
    }

    fn container_fingerprints(&mut self, id: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        Ok(self.containers.get(&id).cloned())
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        Ok(!self.holders(fingerprint).is_empty())
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts { fewest: 4, most: 4 }
    }
}

struct Session {
    filter: AcceleratedFilter,
    store: OldStore,
    pending: HashSet<u64>,
}

impl SessionPort<u64, ContainerId> for Session {
    fn index(&mut self) -> Result<(&mut AcceleratedFilter, &mut dyn IndexPort)> {
        Ok((&mut self.filter, &mut self.store))
    }

    fn known(&mut self, chunk: &Chunk<'_, u64>) -> Option<Status<ContainerId>> {
        self.pending.contains(chunk.payload).then_some(DuplicateStatus::Fresh(None))
    }

    fn claim(&mut self, chunk: &Chunk<'_, u64>) -> bool {
        self.pending.insert(*chunk.payload)
    }

    fn found(&mut self, chunk: &Chunk<'_, u64>, instance: &Instance) -> Status<ContainerId> {
        let mut others = self.store.holders(chunk.fingerprint);
        others.retain(|other| *other != instance.container);
        DuplicateStatus::Old(Instances::new(instance.container, others))
    }
}

/// What was stored, and where each chunk of the stream is said to lie.
#[derive(Default)]
struct Containers {
    unique: Vec<(u64, u64)>,
    again: Vec<u64>,
    places: BTreeMap<u64, Option<ContainerId>>,
}

/// What the session writes.
fn own() -> ContainerId {
    container(200)
}

impl ContainerPort<u64, ContainerId> for Containers {
    fn store(&mut self, chunk: &Chunk<'_, u64>) -> Result<Option<ContainerId>> {
        self.unique.push((chunk.ticket, *chunk.payload));
        Ok(Some(own()))
    }

    fn store_again(&mut self, name: &Fingerprint, number: &u64) -> Result<Option<ContainerId>> {
        assert_eq!(*name, fingerprint(*number));
        if self.again.contains(number) {
            return Ok(None);
        }
        self.again.push(*number);
        Ok(Some(own()))
    }

    fn others(
        &mut self,
        name: &Fingerprint,
        known: &Instances<ContainerId>,
    ) -> Result<Vec<ContainerId>> {
        let mut others = OldStore::new().holders(name);
        others.retain(|other| known.iter().all(|one| one != *other));
        Ok(others)
    }

    fn place(&mut self, ticket: u64, address: Option<ContainerId>) {
        assert!(self.places.insert(ticket, address).is_none(), "chunk {ticket} lies twice");
    }
}

fn strategies() -> Vec<LookupStrategy> {
    let lazy = |ring_length, bucket_threshold, buffer_max| LazyParameters {
        ring_length,
        bucket_threshold,
        buffer_max,
        ..LazyParameters::default()
    };
    vec![
        LookupStrategy::Eager(FilterOrder::CacheFirst),
        LookupStrategy::Lazy(lazy(16, 4, 64)),
        LookupStrategy::SecondLook(lazy(64, 32, 1000)),
        LookupStrategy::Sampled(SampledParameters { segment_length: 20 }),
    ]
}

fn rewrite(choice: &str, targets: Option<u64>) -> RewriteOptions<ByContainer> {
    let mut history = ContainerUse::new();
    for number in 0..OLD / 8 {
        // Every other container was used well.
        let referred_bytes = if number % 2 == 0 { 8000 } else { 1000 };
        let usage = Usage { referred_bytes, payload_bytes: 8000, spans: 1 };
        history.insert(UnitId::of_container(container(number)), usage);
    }
    let history = Some(Arc::new(history));
    let one = |number| Arc::new(BTreeSet::from([UnitId::of_container(container(number))]));
    let targets = targets.map(one);
    RewriteOptions {
        choice: choice.parse().unwrap(),
        parameters: RewriteParameters {
            container_bytes: 8 * u64::from(CHUNK_BYTES),
            candidates_bytes_max: 40 * u64::from(CHUNK_BYTES),
            history: history.clone(),
            ..RewriteParameters::default()
        },
        unit: ByContainer,
        guard: Some(RewriteGuard { history, targets }),
    }
}

struct World {
    stream: ChunkStream<Numbers, ByContainer>,
    session: Session,
    containers: Containers,
    batches: usize,
}

impl World {
    fn new(strategy: &LookupStrategy, rewrite: RewriteOptions<ByContainer>) -> Self {
        let filter = AcceleratedFilter::new(FilterConfiguration::default(), 1 << 16);
        let store = OldStore::new();
        Self {
            stream: ChunkStream::new(strategy, rewrite).unwrap(),
            session: Session { filter, store, pending: HashSet::new() },
            containers: Containers::default(),
            batches: 0,
        }
    }

    /// Hands a batch in; at most `waiting_max` chunks may wait behind it.
    fn push(&mut self, numbers: &[u64], waiting_max: usize) -> Result<()> {
        let batch = Numbers(numbers.iter().map(|one| (*one, fingerprint(*one))).collect());
        self.stream.push(batch, &mut self.session)?;
        let ticket = self.stream.ticket_to_fit(waiting_max);
        if ticket > 0 {
            self.stream.judge_below(ticket, &mut self.session)?;
        }
        self.stream.release(&mut self.containers, &mut |_| self.batches += 1)?;
        assert!(self.stream.waiting() <= waiting_max);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.stream.judge_below(u64::MAX, &mut self.session)?;
        self.stream.finish(&mut self.containers)
    }
}

/// What any run has to come to.
fn check(world: &World, numbers: &[u64], is_exact: bool) {
    let mut first = BTreeMap::new();
    for (ticket, number) in (0..).zip(numbers) {
        first.entry(*number).or_insert(ticket);
    }
    let Containers { unique, again, places, .. } = &world.containers;
    assert!(unique.is_sorted_by_key(|(ticket, _)| *ticket), "containers keep the stream's order");
    let stored: BTreeSet<u64> = unique.iter().map(|(_, number)| *number).collect();
    assert_eq!(stored.len(), unique.len(), "a chunk was stored twice");
    let new: BTreeSet<u64> = first.keys().filter(|number| **number >= OLD).copied().collect();
    assert!(if is_exact { stored == new } else { stored.is_superset(&new) });
    assert_eq!(places.len(), numbers.len(), "a chunk lies nowhere");
    for (ticket, address) in places {
        let number = numbers[*ticket as usize];
        let Some(address) = address else {
            // Unknown, but there.
            assert!(stored.contains(&number) || again.contains(&number) || number < OLD);
            continue;
        };
        let is_own = *address == own() && (stored.contains(&number) || again.contains(&number));
        assert!(is_own || OldStore::new().holders(&fingerprint(number)).contains(address));
    }
    let totals = world.stream.totals();
    assert_eq!((totals.chunks, totals.unique), (numbers.len() as u64, unique.len() as u64));
    assert_eq!(totals.chunks, totals.unique + totals.duplicates);
    assert_eq!(totals.unique_bytes, totals.unique * u64::from(CHUNK_BYTES));
    let counters = world.stream.rewrite_counters();
    assert!(again.len() as u64 <= counters.rewritten);
    assert_eq!(counters.duplicates, counters.kept + counters.rewritten + counters.shared);
}

const CHOICES: [&str; 6] = [
    "none",
    "capping,level=1",
    "flexible,loss=50",
    "window,loss=50",
    "history,loss=50",
    "auto,loss=50",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Old and new chunks, repeated now and then, in batches of any size.
    #[test]
    fn every_chunk_is_stored_or_referred_to_once_in_order(
        batches in prop::collection::vec(prop::collection::vec(0..OLD * 2, 0..30), 0..30),
        strategy in prop::sample::select(strategies()),
        choice in prop::sample::select(CHOICES.to_vec()),
        targets in prop::option::of(0..OLD / 8),
        waiting_max in prop::sample::select(vec![0, 7, 40, 10_000]),
    ) {
        let is_exact = !matches!(strategy, LookupStrategy::Sampled(_));
        let mut world = World::new(&strategy, rewrite(choice, targets));
        batches.iter().for_each(|batch| world.push(batch, waiting_max).unwrap());
        world.finish().unwrap();
        check(&world, &batches.concat(), is_exact);
    }
}

/// A stream of old chunks in an order that wants rewriting.
fn torn() -> Vec<u64> {
    (OLD..OLD + 200).chain((0..OLD).map(|place| place * 13 % OLD)).collect()
}

#[test]
fn what_is_stored_again_is_copied_only_if_it_waits() {
    for (choice, is_empty) in [("none", true), ("history,loss=50", false), ("auto,loss=50", false)]
    {
        let mut world = World::new(&strategies()[0], rewrite(choice, None));
        world.push(&torn(), 0).unwrap();
        assert_eq!(world.batches, 1, "a batch goes back although its duplicates wait");
        world.finish().unwrap();
        check(&world, &torn(), true);
        assert_eq!(world.containers.again.is_empty(), is_empty, "{choice}");
    }
}

#[test]
fn a_stream_that_ends_too_early_or_decides_twice_is_a_defect() {
    let mut world = World::new(&strategies()[2], rewrite("none", None));
    world.push(&[1, 2, 3], 100).unwrap();
    assert_eq!(world.stream.waiting(), 3);
    // Nobody has had it judged.
    let error = world.stream.finish(&mut world.containers).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug, "{error}");
}

#[test]
fn what_several_streams_store_is_stored_by_one() {
    let mut world = World::new(&strategies()[2], rewrite("none", None));
    // The first stream's chunk waits in a bucket, because a filter lets it pass.
    let lazy = &strategies()[2];
    let mut other: ChunkStream<Numbers, ByContainer> =
        ChunkStream::new(lazy, rewrite("none", None)).unwrap();
    let mut containers = Containers::default();
    let numbers = [500, 3, 501];
    let batch = || Numbers(numbers.iter().map(|one| (*one, fingerprint(*one))).collect());
    world.push(&numbers, 100).unwrap();
    other.push(batch(), &mut world.session).unwrap();
    other.judge_below(u64::MAX, &mut world.session).unwrap();
    other.finish(&mut containers).unwrap();
    world.finish().unwrap();
    assert_eq!((world.containers.unique.len(), containers.unique.len()), (2, 0));
    assert_eq!((other.totals().unique, other.totals().duplicates), (0, 3));
}
