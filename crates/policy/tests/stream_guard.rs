//! What keeps rewriting from undoing from version to version what it did, rule by rule; and what
//! several streams share.

use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::lookup::LookupStrategy;
use onefold_policy::rewrite::{
    Before, ContainerUse, Expected, RewriteChoice, RewriteParameters, UnitId, Usage,
};
use onefold_policy::stream::{
    Batch, Chunk, ChunkStream, ContainerPort, Instances, RewriteGuard, RewriteOptions, SessionPort,
    Status, Units,
};
use onefold_policy::{
    AcceleratedFilter, BucketCounts, FilterConfiguration, FilterOrder, IndexPort,
};
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Containers of the previous version: one used well, two used sparsely; all others are unknown.
const WELL: u8 = 10;
const SPARSE: [u8; 2] = [20, 21];
/// What the session writes.
const OWN: u8 = 99;

/// A chunk: the containers that look-up meets, and those that only the index knows.
#[derive(Clone)]
struct One {
    name: u8,
    seen: Vec<u8>,
    elsewhere: Vec<u8>,
    /// Where its base lies, if the first that is met is a difference.
    rests_on: Option<u8>,
}

struct Ones(Vec<(One, Fingerprint)>);

impl Batch for Ones {
    type Payload = One;

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
        1000
    }

    fn payload(&self, position: usize) -> &One {
        &self.0[position].0
    }
}

#[derive(Clone, Default)]
struct ByNumber;

fn unit(number: u8) -> UnitId {
    UnitId([number; 16])
}

impl Units for ByNumber {
    type Address = u8;

    fn unit_of(&self, address: u8) -> UnitId {
        unit(address)
    }
}

/// Knows every chunk, so that the index is never asked anything.
struct Session(AcceleratedFilter, NoIndex);

impl Session {
    fn new() -> Self {
        Self(AcceleratedFilter::new(FilterConfiguration::default(), 1 << 16), NoIndex)
    }
}

struct NoIndex;

impl IndexPort for NoIndex {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        _found: &mut Vec<Vec<ContainerId>>,
        _reads: &mut u64,
    ) -> Result<()> {
        unreachable!("{fingerprints:?} are known")
    }

    fn container_fingerprints(&mut self, id: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        unreachable!("nothing lies in {id:?}")
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        unreachable!("{fingerprint:?} is known")
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts::ONE
    }
}

impl SessionPort<One, u8> for Session {
    fn index(&mut self) -> Result<(&mut AcceleratedFilter, &mut dyn IndexPort)> {
        Ok((&mut self.0, &mut self.1))
    }

    fn known(&mut self, chunk: &Chunk<'_, One>) -> Option<Status<u8>> {
        Some(match chunk.payload.seen.split_first() {
            Some((first, others)) => DuplicateStatus::Old(Instances {
                rests_on: chunk.payload.rests_on,
                ..Instances::new(*first, others.to_vec())
            }),
            None => DuplicateStatus::Unique,
        })
    }

    fn claim(&mut self, _chunk: &Chunk<'_, One>) -> bool {
        true
    }

    fn found(
        &mut self,
        _chunk: &Chunk<'_, One>,
        instance: &onefold_policy::Instance,
    ) -> Status<u8> {
        unreachable!("{instance:?} was not asked for")
    }
}

#[derive(Default)]
struct Containers {
    elsewhere: BTreeMap<Fingerprint, Vec<u8>>,
    again: Vec<u8>,
    places: BTreeMap<u64, Option<u8>>,
    resting: Vec<(u8, u8, u32)>,
}

impl ContainerPort<One, u8> for Containers {
    fn store(&mut self, _chunk: &Chunk<'_, One>) -> Result<Option<u8>> {
        Ok(Some(OWN))
    }

    fn store_again(&mut self, _name: &Fingerprint, one: &One) -> Result<Option<u8>> {
        self.again.push(one.name);
        Ok(Some(OWN))
    }

    fn others(&mut self, name: &Fingerprint, _known: &Instances<u8>) -> Result<Vec<u8>> {
        Ok(self.elsewhere[name].clone())
    }

    fn place(&mut self, ticket: u64, address: Option<u8>) {
        assert!(self.places.insert(ticket, address).is_none(), "chunk {ticket} lies twice");
    }

    fn rest_on(&mut self, of: u8, base: u8, size_bytes: u32) {
        self.resting.push((of, base, size_bytes));
    }
}

/// Neither is carried out by a stream that rewrites nothing.
struct StoresOnce;

impl ContainerPort<One, u8> for StoresOnce {
    fn store(&mut self, _chunk: &Chunk<'_, One>) -> Result<Option<u8>> {
        Ok(None)
    }

    fn place(&mut self, _ticket: u64, _address: Option<u8>) {}
}

fn one(name: u8, seen: &[u8], elsewhere: &[u8]) -> One {
    One { name, seen: seen.to_vec(), elsewhere: elsewhere.to_vec(), rests_on: None }
}

fn options(choice: &str, targets: Option<&[u8]>) -> RewriteOptions<ByNumber> {
    let used = |number, referred_bytes| {
        (unit(number), Usage { referred_bytes, payload_bytes: 8000, spans: 1 })
    };
    let history: ContainerUse =
        [used(WELL, 8000), used(SPARSE[0], 1000), used(SPARSE[1], 1000)].into_iter().collect();
    let history = Some(Arc::new(history));
    let targets =
        targets.map(|targets| Arc::new(targets.iter().map(|number| unit(*number)).collect()));
    RewriteOptions {
        choice: choice.parse().unwrap(),
        parameters: RewriteParameters {
            history: history.clone(),
            candidates_bytes_max: u64::MAX,
            ..RewriteParameters::default()
        },
        unit: ByNumber,
        guard: Some(RewriteGuard { history, targets }),
    }
}

/// Where the chunks lie before anything that waits is decided, and at the end.
struct Outcome {
    at_once: BTreeMap<u64, Option<u8>>,
    places: BTreeMap<u64, Option<u8>>,
    again: Vec<u8>,
    rewritten: u64,
    resting: Vec<(u8, u8, u32)>,
}

fn run(options: RewriteOptions<ByNumber>, ones: &[One]) -> Outcome {
    let lookup = LookupStrategy::Eager(FilterOrder::CacheFirst);
    let mut stream: ChunkStream<Ones, ByNumber> = ChunkStream::new(&lookup, options).unwrap();
    let mut containers = Containers::default();
    let named: Vec<(One, Fingerprint)> =
        ones.iter().map(|one| (one.clone(), Fingerprint([one.name; 32]))).collect();
    for (one, name) in &named {
        containers.elsewhere.insert(*name, one.elsewhere.clone());
    }
    let mut session = Session::new();
    stream.push(Ones(named), &mut session).unwrap();
    stream.judge_below(u64::MAX, &mut session).unwrap();
    stream.release(&mut containers, &mut |_| ()).unwrap();
    let at_once = containers.places.clone();
    stream.finish(&mut containers).unwrap();
    let rewritten = stream.rewrite_counters().rewritten;
    let Containers { places, again, resting, .. } = containers;
    Outcome { at_once, places, again, rewritten, resting }
}

/// What look-up meets, what the index knows besides, what is to be emptied, and where it ends.
type Case = (&'static [u8], &'static [u8], Option<&'static [u8]>, u8);

#[test]
fn a_chunk_is_stored_again_only_if_no_copy_lies_well() {
    const ONLY_CHANGED: &[u8] = &[SPARSE[0], 22];
    let cases: [Case; 10] = [
        // The only copy.
        (&[SPARSE[0]], &[], None, OWN),
        // The previous version used what lies around the other one.
        (&[SPARSE[0]], &[WELL], None, WELL),
        (&[SPARSE[0], WELL], &[], None, WELL),
        (&[SPARSE[0]], &[30, WELL], None, WELL),
        // It did not know it: good enough, if look-up did not happen to meet it.
        (&[SPARSE[0]], &[30], None, 30),
        // There are two copies that lie badly, and nothing is new: the newest.
        (&[SPARSE[0]], &[SPARSE[1]], None, SPARSE[1]),
        (&[SPARSE[1]], &[SPARSE[0]], None, SPARSE[1]),
        (&[SPARSE[0], 30], &[], None, 30),
        // Only certain containers are to be emptied.
        (&[SPARSE[0]], &[23], Some(ONLY_CHANGED), 23),
        (&[SPARSE[0]], &[22], Some(ONLY_CHANGED), 22),
    ];
    for (seen, elsewhere, targets, expected) in cases {
        // A segment may refer to no old container, so the policy wants everything stored again.
        let outcome = run(options("capping,level=0", targets), &[one(1, seen, elsewhere)]);
        assert_eq!(outcome.places[&0], Some(expected), "{seen:?}, {elsewhere:?}, {targets:?}");
        let is_stored = expected == OWN;
        assert_eq!(outcome.again.len(), usize::from(is_stored));
        // What was not carried out uses up nothing.
        assert_eq!(outcome.rewritten, u64::from(is_stored));
    }
}

#[test]
fn no_more_chunks_are_stored_a_third_time_than_the_stream_had_new_ones() {
    let [sparse, sparse_too] = SPARSE;
    for new in 0..4 {
        let mut ones: Vec<One> = (100..100 + new).map(|name| one(name, &[], &[])).collect();
        ones.extend((1..6).map(|name| one(name, &[sparse], &[sparse_too])));
        let outcome = run(options("capping,level=0", None), &ones);
        assert_eq!(outcome.again.len(), usize::from(new), "{new} new ones");
    }
}

#[test]
fn a_copy_that_the_previous_version_did_not_know_is_good_enough_whatever_is_new() {
    let ones = [one(100, &[], &[]), one(1, &[SPARSE[0]], &[30])];
    let outcome = run(options("capping,level=0", None), &ones);
    assert_eq!((outcome.again.len(), outcome.places[&1]), (0, Some(30)));
}

#[test]
fn of_several_copies_the_newest_comes_first() {
    for seen in [[5, 30], [30, 5]] {
        let outcome = run(options("history,loss=50", None), &[one(1, &seen, &[])]);
        assert_eq!(outcome.places[&0], Some(30), "{seen:?}");
    }
}

#[test]
fn what_the_previous_version_used_well_is_kept_at_once() {
    let [sparse, _] = SPARSE;
    // Neighbours of a container and of another one in turn.
    let seen: [&[u8]; 8] =
        [&[WELL], &[WELL], &[sparse], &[sparse], &[WELL], &[sparse, WELL], &[30], &[sparse, 30]];
    let ones: Vec<One> = (1..).zip(seen).map(|(name, seen)| one(name, seen, &[])).collect();
    let kept = |choice, targets| run(options(choice, targets), &ones).at_once;
    let well = |places: &[u64]| places.iter().map(|place| (*place, Some(WELL))).collect();
    for choice in ["auto", "auto,loss=50", "auto,loss=50,reads=1"] {
        assert_eq!(kept(choice, None), well(&[0, 1, 4, 5]), "{choice}");
    }
    // These decide on everything themselves.
    for choice in ["capping", "flexible,loss=50", "window,loss=50", "auto,reads=1"] {
        assert_eq!(kept(choice, None), BTreeMap::new(), "{choice}");
    }
    // Where only certain containers are to be emptied, all others are kept, the newest first.
    let mut expected: BTreeMap<u64, Option<u8>> = well(&[0, 1, 4, 5]);
    expected.extend([(6, Some(30)), (7, Some(30))]);
    // What is to be emptied is stored again, whatever the policy would make of it.
    expected.extend([(2, Some(OWN)), (3, Some(OWN))]);
    assert_eq!(kept("auto,loss=50", Some(&[sparse])), expected);
}

#[test]
fn a_difference_is_stored_whole_where_little_is_needed_beside_its_base() {
    let [sparse, sparse_too] = SPARSE;
    let resting = |name, lies, base, elsewhere: &[u8]| One {
        rests_on: Some(base),
        ..one(name, &[lies], elsewhere)
    };
    let ones = [
        // New ones, which give the policy something to spend.
        one(100, &[], &[]),
        one(101, &[], &[]),
        // Its base is to go, and it would be read for it alone; unless another copy stays.
        resting(1, WELL, sparse, &[]),
        resting(2, WELL, sparse, &[WELL - 1]),
        // Its base is read anyway, or nobody knows.
        resting(3, WELL, WELL, &[]),
        resting(4, WELL, 30, &[]),
        // It is to go itself, whatever it rests on.
        resting(5, sparse_too, WELL, &[]),
    ];
    for (choice, targets) in
        [("history,loss=80", None), ("auto,loss=80", Some(&[sparse, sparse_too][..]))]
    {
        let outcome = run(options(choice, targets), &ones);
        let places: Vec<Option<u8>> = (2..7).map(|place| outcome.places[&place]).collect();
        assert_eq!(places, [OWN, WELL - 1, WELL, WELL, OWN].map(Some), "{choice}");
        assert_eq!(outcome.again, [1, 5], "{choice}");
        // Whoever restores the stream reads what is kept and what it rests on.
        assert_eq!(outcome.resting, [(WELL, WELL, 1000), (WELL, 30, 1000)], "{choice}");
    }
    // Without room to spend it stays what it is.
    let outcome = run(options("history,loss=0.01", None), &ones);
    assert_eq!((outcome.places[&2], outcome.again.len()), (Some(WELL), 0));
    assert!(outcome.resting.contains(&(WELL, sparse, 1000)));
}

#[test]
fn who_shares_a_copy_is_told_where_it_lies() {
    let ones = [one(1, &[SPARSE[0]], &[]), one(1, &[SPARSE[0]], &[])];
    let outcome = run(options("capping,level=0", None), &ones);
    assert_eq!(outcome.again, [1]);
    assert_eq!(outcome.places, BTreeMap::from([(0, Some(OWN)), (1, Some(OWN))]));
}

#[test]
fn several_streams_share_memory_and_what_may_be_lost() {
    let parameters = RewriteParameters {
        expected: Some(Expected { chunks: 1000, unique_chunks: 400 }),
        before: Some(Before { unique_chunks: 1600, rewritten_chunks: 80 }),
        ..RewriteParameters::default()
    };
    let all: RewriteOptions<ByNumber> = RewriteOptions {
        choice: "auto,loss=3".parse().unwrap(),
        parameters,
        ..options("none", None)
    };
    // Streams, memory, the largest chunk; candidates, expected and before of each stream.
    for ((streams, memory_bytes, chunk_bytes), candidates_bytes, expected, before) in [
        ((0, 1000, 50), 950, (1000, 400), (1600, 80)),
        ((1, 1000, 50), 950, (1000, 400), (1600, 80)),
        ((4, 1000, 50), 200, (250, 100), (400, 20)),
        ((4, 1000, 300), 0, (250, 100), (400, 20)),
    ] {
        let shared = all.share(streams, memory_bytes, chunk_bytes);
        let parameters = shared.parameters;
        assert_eq!(shared.choice, all.choice);
        assert_eq!(parameters.candidates_bytes_max, candidates_bytes, "{streams} streams");
        let (chunks, unique_chunks) = expected;
        assert_eq!(parameters.expected, Some(Expected { chunks, unique_chunks }));
        let (unique_chunks, rewritten_chunks) = before;
        assert_eq!(parameters.before, Some(Before { unique_chunks, rewritten_chunks }));
    }
    assert_eq!(RewriteOptions::<ByNumber>::none().choice, RewriteChoice::None);
}

#[test]
fn a_port_that_stores_nothing_again_says_so_and_knows_no_other_copies() {
    let name = Fingerprint([1; 32]);
    let error = StoresOnce.store_again(&name, &one(1, &[], &[])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    let known = Instances::new(1, vec![]);
    assert_eq!(StoresOnce.others(&name, &known).unwrap(), [0u8; 0]);
    assert!(Ones(vec![]).is_empty());
    assert!(!Ones(vec![(one(1, &[], &[]), name)]).is_empty());
}
