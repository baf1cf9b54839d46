//! The port that readers of chunks see the index through: an index that is nothing but a map serves
//! them as well, and tells what the real one must answer.

use crate::ingest::{random_bytes, stream};
use crate::steps::{backup_options, create, file, job, save};
use onefold_engine::chunks::ChunkReader;
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::container::{list, reader};
use onefold_engine::index::partition::Gathered;
use onefold_engine::index::{ChunkIndex, FingerprintIndex, PartitionIndex, PrefixScan};
use onefold_engine::ingest::{BackupOptions, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::tree::TreeReader;
use onefold_engine::{Repository, retention};
use onefold_policy::BucketCounts;
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The oracle: every chunk of every container, in a map.
#[derive(Default)]
struct MapIndex {
    containers: BTreeMap<Fingerprint, Vec<ContainerId>>,
    asked: AtomicU64,
    /// What it was told, and asked beside.
    told: Mutex<Vec<&'static str>>,
}

impl MapIndex {
    fn of(repository: &Repository) -> Self {
        let mut index = Self::default();
        for id in list::container_names(repository).unwrap().into_iter().rev() {
            for chunk in reader::read_section(repository, id).unwrap().chunks {
                index.containers.entry(chunk.fingerprint).or_default().push(id);
            }
        }
        index
    }
}

impl ChunkIndex for MapIndex {
    fn locate_many(
        &self,
        _: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        for fingerprint in fingerprints {
            *reads += 1;
            self.asked.fetch_add(1, Ordering::Relaxed);
            found.push(self.containers.get(fingerprint).cloned().unwrap_or_default());
        }
        Ok(())
    }

    fn may_hold(&self, _: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        Ok(self.containers.contains_key(fingerprint))
    }

    fn locate_instead(
        &self,
        _: &Repository,
        _: &Fingerprint,
        _: &mut Vec<ContainerId>,
        _: &mut u64,
    ) -> Result<()> {
        self.told.lock().unwrap().push("locate instead");
        Ok(())
    }

    fn note_durable(&self, _: ContainerId, _: &[Fingerprint]) {
        self.told.lock().unwrap().push("note durable");
    }

    fn cover(&self, _: &Repository, _: &BTreeSet<ContainerId>) -> Result<()> {
        self.told.lock().unwrap().push("cover");
        Ok(())
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts { fewest: 3, most: 5 }
    }

    fn covered(&self) -> Vec<ContainerId> {
        let mut all: Vec<ContainerId> = self.containers.values().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn entries(&self) -> u64 {
        self.containers.values().map(|containers| containers.len() as u64).sum()
    }

    fn chunks(&self) -> u64 {
        self.containers.len() as u64
    }

    fn scan(
        &self,
        _: &Repository,
        containers: &[ContainerId],
        from: u64,
    ) -> Result<Box<dyn PrefixScan>> {
        let mut groups: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for (fingerprint, held_by) in &self.containers {
            let ordinals = held_by.iter().filter_map(|id| containers.binary_search(id).ok());
            for ordinal in ordinals.filter(|_| fingerprint.prefix() >= from) {
                groups.entry(fingerprint.prefix()).or_default().insert(ordinal as u32);
            }
        }
        Ok(Box::new(MapScan(groups)))
    }

    fn generation(&self) -> u64 {
        0
    }

    fn refresh(&self, _: &Repository) -> Result<bool> {
        Ok(false)
    }

    fn catch_up(&self, _: &Repository, _: u64) -> Result<bool> {
        Ok(false)
    }
}

struct MapScan(BTreeMap<u64, BTreeSet<u32>>);

impl PrefixScan for MapScan {
    fn next_group(
        &mut self,
        _: &Repository,
        end: Option<u64>,
        containers: &mut Vec<u32>,
    ) -> Result<Option<u64>> {
        containers.clear();
        let Some(first) = self.0.first_entry().filter(|one| end.is_none_or(|end| *one.key() < end))
        else {
            return Ok(None);
        };
        let (prefix, ordinals) = first.remove_entry();
        containers.extend(ordinals);
        Ok(Some(prefix))
    }
}

/// All groups of a scan up to an end, and what comes behind that.
fn scanned(
    index: &dyn ChunkIndex,
    repository: &Repository,
    containers: &[ContainerId],
    (from, end): (u64, Option<u64>),
) -> Vec<(u64, Vec<u32>)> {
    let mut scan = index.scan(repository, containers, from).unwrap();
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for end in [end, None] {
        while let Some(prefix) = scan.next_group(repository, end, &mut group).unwrap() {
            groups.push((prefix, group.clone()));
        }
        groups.push((0, Vec::new()));
    }
    groups
}

fn assert_answers_as(index: &dyn ChunkIndex, oracle: &MapIndex, repository: &Repository) {
    let all = oracle.covered();
    assert_eq!(index.covered(), all);
    assert!(index.entries() >= oracle.entries());
    let chunks: Vec<Fingerprint> = oracle.containers.keys().copied().collect();
    let (mut found, mut expected, mut newest) = (Vec::new(), Vec::new(), Vec::new());
    index.locate_many(repository, &chunks, &mut found, &mut 0).unwrap();
    index.locate_newest(repository, &chunks, &mut newest, &mut 0).unwrap();
    oracle.locate_many(repository, &chunks, &mut expected, &mut 0).unwrap();
    assert_eq!(found, expected);
    for ((chunk, newest), expected) in chunks.iter().zip(newest).zip(expected) {
        assert_eq!(newest.first(), expected.first());
        assert!(index.may_hold(repository, chunk).unwrap());
        assert_eq!(index.locate(repository, chunk, &mut 0).unwrap(), expected);
        let mut readable = index.locate_where_readable(repository, chunk).unwrap();
        readable.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(readable, expected);
    }
    let counts = index.bucket_counts();
    assert!((1..=counts.most).contains(&counts.fewest), "{counts:?}");
    let (middle, some) = (chunks[chunks.len() / 2].prefix(), &all[all.len() / 2..]);
    for containers in [all.as_slice(), some, &[]] {
        for range in [(0, None), (middle, None), (0, Some(middle)), (middle, Some(u64::MAX))] {
            let found = scanned(index, repository, containers, range);
            assert_eq!(found, scanned(oracle, repository, containers, range));
        }
    }
}

#[test]
fn i13_the_runs_of_a_store_answer_as_a_map_does() {
    let (_, repository) = create();
    for version in 0..4 {
        save(&repository, &[file("a", version, 300_000), file("b", 99, 200_000)]);
    }
    let oracle = MapIndex::of(&repository);
    let index: Arc<dyn ChunkIndex> = FingerprintIndex::shared(&repository).unwrap();
    assert_answers_as(&*index, &oracle, &repository);
    // A filter may be wrong about what is not there; the pages of the runs are not.
    for number in 0..=u8::MAX {
        let stranger = Fingerprint([number; 32]);
        assert!(!oracle.may_hold(&repository, &stranger).unwrap());
        assert!(index.locate(&repository, &stranger, &mut 0).unwrap().is_empty());
    }
}

#[test]
fn i13_an_index_that_is_refreshed_answers_as_the_store_is_now() {
    let (_, repository) = create();
    save(&repository, &[file("a", 1, 300_000)]);
    let index: Box<dyn ChunkIndex> = Box::new(FingerprintIndex::open(&repository).unwrap());
    let before = MapIndex::of(&repository);
    for version in 2..5 {
        assert!(!index.refresh(&repository).unwrap(), "nothing was added");
        let (generation, old) = (index.generation(), MapIndex::of(&repository));
        save(&repository, &[file("a", version, 300_000), file("b", 99, 200_000)]);
        assert_answers_as(&*index, &old, &repository);
        assert!(index.refresh(&repository).unwrap());
        assert!(index.generation() > generation);
        assert_answers_as(&*index, &MapIndex::of(&repository), &repository);
    }
    assert!(index.covered().len() > before.covered().len());
}

#[test]
fn the_index_of_a_partition_answers_of_its_chunks_as_the_whole_one_does_and_knows_no_others() {
    let (_, repository) = create();
    let options = BackupOptions { lookup: LookupChoice::None, ..backup_options() };
    let save = |seed| {
        let source = stream("stream", &random_bytes(seed, 600_000));
        backup(&repository, source, &options, &job()).unwrap().snapshot.unwrap()
    };
    // Stored each time: chunks of several containers, and of one.
    let all = [save(1), save(2), save(1), save(3)];
    let oracle = MapIndex::of(&repository);
    let chunks: Vec<Fingerprint> = oracle.containers.keys().copied().collect();
    let is_own = |chunk: &Fingerprint| chunk.0[9].is_multiple_of(2);
    let (own, others): (Vec<_>, Vec<_>) = chunks.iter().copied().partition(is_own);
    assert!(own.iter().any(|chunk| oracle.containers[chunk].len() > 1));
    let mut wanted = Gathered::new(&repository);
    own.iter().chain([&Fingerprint([7; 32])]).for_each(|chunk| wanted.note(chunk));
    let whole = FingerprintIndex::shared(&repository).unwrap();
    let index = PartitionIndex::open(&repository, whole, wanted).unwrap();
    let assert_knows = |chunks: &[Fingerprint], oracle: &MapIndex| {
        for chunk in chunks {
            let expected = oracle.containers.get(chunk).cloned().unwrap_or_default();
            let found = index.locate(&repository, chunk, &mut 0).unwrap();
            assert_eq!(found, expected);
            assert_eq!(index.may_hold(&repository, chunk).unwrap(), !expected.is_empty());
        }
    };
    assert_knows(&own, &oracle);
    assert_knows(&others, &MapIndex::default());
    assert_eq!(index.report().asked_whole, 0);
    assert!(!index.take_in(&repository, &Fingerprint([7; 32])).unwrap());
    assert!(index.take_in(&repository, &others[0]).unwrap());
    assert_eq!(index.report().asked_whole, 2);
    let (taken, others) = others.split_at(1);
    // A collection moves what is left to other containers.
    retention::forget_final(&repository, &all[1..2], "test").unwrap();
    let options = CollectOptions { goal: SpaceGoal::Everything, ..CollectOptions::default() };
    collect(&repository, &options, &job()).unwrap();
    let now = MapIndex::of(&repository);
    assert_ne!(now.covered(), oracle.covered());
    index.refresh(&repository).unwrap();
    assert_knows(&own, &now);
    assert_knows(taken, &now);
    assert_knows(others, &MapIndex::default());
}

#[test]
fn a_partition_that_asks_the_whole_index_has_its_buckets() {
    let (_, repository) = create();
    save(&repository, &[file("a", 1, 300_000)]);
    let oracle = MapIndex::of(&repository);
    let chunk = *oracle.containers.keys().next().unwrap();
    let (whole, counts) = (Arc::new(oracle), BucketCounts { fewest: 3, most: 5 });
    let buckets = || {
        let mut wanted = Gathered::new(&repository);
        wanted.note(&chunk);
        let whole: Arc<dyn ChunkIndex> = Arc::clone(&whole) as _;
        PartitionIndex::open(&repository, whole, wanted).unwrap().bucket_counts()
    };
    assert_eq!(buckets(), BucketCounts::ONE, "what is in memory is no access of the device");
    let _all_memory = repository.purse().take(usize::MAX);
    assert_eq!(buckets(), counts);
}

/// A session whose chunks are those of a partition tells others of its containers, and commits
/// nothing that only they know of, as any other.
#[test]
fn a_partition_passes_on_what_the_whole_index_must_be_told() {
    let (_, repository) = create();
    save(&repository, &[file("a", 1, 300_000)]);
    let whole = Arc::new(MapIndex::of(&repository));
    let asked: Arc<dyn ChunkIndex> = Arc::clone(&whole) as _;
    let part = PartitionIndex::open(&repository, asked, Gathered::new(&repository)).unwrap();
    let (container, chunk) = (ContainerId([1; 16]), Fingerprint([2; 32]));
    part.note_durable(container, &[chunk]);
    part.locate_instead(&repository, &chunk, &mut Vec::new(), &mut 0).unwrap();
    part.cover(&repository, &BTreeSet::from([container])).unwrap();
    assert_eq!(*whole.told.lock().unwrap(), ["note durable", "locate instead", "cover"]);
}

#[test]
fn i13_a_reader_of_chunks_stands_on_any_index() {
    let (_, repository) = create();
    let id = save(&repository, &[file("a", 1, 3_000_000)]);
    let record = onefold_engine::session::SnapshotList::load(&repository).unwrap();
    let root = record.get(id).unwrap().record.root;
    let oracle = Arc::new(MapIndex::of(&repository));
    let chunks = ChunkReader::over_index(&repository, Arc::clone(&oracle) as Arc<dyn ChunkIndex>);
    let trees = TreeReader::new(chunks);
    let entries = trees.entries(root).unwrap();
    assert!(!entries.is_empty());
    assert!(oracle.asked.load(Ordering::Relaxed) > 0);
}

#[test]
fn i13_threads_share_one_reader_one_index_and_one_share_of_memory() {
    let (_, repository) = create();
    save(&repository, &[file("a", 1, 4_000_000), file("b", 2, 4_000_000)]);
    let oracle = MapIndex::of(&repository);
    let chunks: Vec<Fingerprint> = oracle.containers.keys().copied().collect();
    let reader = ChunkReader::open(&repository).unwrap();
    reader.read(&chunks[0]).unwrap();
    let left = repository.purse().left_bytes();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (reader, chunks, repository) = (&reader, &chunks, &repository);
            scope.spawn(move || {
                let own = ChunkReader::open(repository).unwrap();
                for number in 0..chunks.len() {
                    let chunk = &chunks[(number * 7 + thread) % chunks.len()];
                    let bytes = reader.read(chunk).unwrap();
                    assert!(*own.read(chunk).unwrap() == *bytes);
                }
            });
        }
    });
    assert_eq!(repository.purse().left_bytes(), left, "readers that come later take nothing");
    let loads = FingerprintIndex::shared(&repository).unwrap().piece_loads();
    assert!(loads <= 2, "each part of the index is loaded once, not {loads} times");
}
