//! Chunks that are stored as differences against others: found, read, checked, collected, and lost
//! with what they are made of and with nothing else.

use crate::ingest::{
    PASSWORD, backup_options, content_at, in_memory, open, options, random_bytes, stream,
};
use crate::rewriting::{Versions, containers_of, restore_options, save, save_with};
use crate::steps::{
    CHUNK_BYTES, Item, check_all, check_with, forging, put_directory, put_with, save_root,
};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::check::ReadData;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::collection::{CollectOptions, MarkAlgorithm, SpaceGoal, collect};
use onefold_engine::container::open::OpenContainer;
use onefold_engine::container::reader::read_section;
use onefold_engine::container::similar::{AGAIN_BYTES_MAX, AGAIN_LEVEL_MAX, ROOM_MIN_BYTES};
use onefold_engine::index::append;
use onefold_engine::ingest::{BackupOptions, BackupReport, ParentChoice};
use onefold_engine::repository::InitOptions;
use onefold_engine::restore::restore;
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::{FileReader, TreeReader};
use onefold_engine::{Environment, Job, MemoryPlan, Repository, retention, statistics};
use onefold_format::codec::Compression;
use onefold_format::container::{
    Base, ChunkDescriptor, DELTA_DEPTH_MAX, Delta, FrameDescriptor, MetadataSection,
};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_format::node::{Entry, EntryKind};
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Level, SessionId};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A store, a directory whose files change a little from version to version, and what was saved.
struct History {
    memory: MemoryStore,
    repository: Arc<Repository>,
    versions: Versions,
    reports: Vec<BackupReport>,
}

fn with_deltas(choice: DeltaChoice) -> BackupOptions {
    BackupOptions { delta: Some(choice), rewrite: "none".parse().unwrap(), ..backup_options() }
}

fn history(choice: DeltaChoice, versions: usize) -> History {
    let (memory, store): (MemoryStore, Arc<dyn Store>) = in_memory();
    let repository = crate::ingest::create(&store, &options());
    let mut history =
        History { memory, repository, versions: Versions::new(4, 300_000), reports: Vec::new() };
    (0..versions).for_each(|_| history.save_next(choice));
    history
}

impl History {
    fn save_next(&mut self, choice: DeltaChoice) {
        self.versions.write_next();
        let report = save(&self.repository, self.versions.path(), &with_deltas(choice));
        self.reports.push(report);
    }

    fn id(&self, version: usize) -> SessionId {
        self.reports[version].snapshot.unwrap()
    }

    /// Reads a version in every way there is, and compares.
    fn assert_readable(&self, version: usize) {
        let target = tempfile::tempdir().unwrap();
        let list = SnapshotList::load(&self.repository).unwrap();
        let root = Entry {
            kind: EntryKind::Directory,
            content: Some(list.get(self.id(version)).unwrap().record.root),
            ..Entry::default()
        };
        let restoring = restore_options(target.path());
        let report = restore(&self.repository, &root, &restoring, &Job::unattended().0).unwrap();
        assert_eq!(report.errors, 0);
        for (number, bytes) in self.versions.history[version].iter().enumerate() {
            let path = self.versions.file(number);
            let restored = target.path().join(path.strip_prefix("/").unwrap());
            assert!(fs::read(restored).unwrap() == *bytes, "restored {number} of {version}");
            let dumped = content_at(&self.repository, self.id(version), &path);
            assert!(dumped == *bytes, "dumped {number} of {version}");
            let entry = crate::ingest::entry_at(&self.repository, self.id(version), &path);
            let tree = Arc::new(TreeReader::open(&self.repository).unwrap());
            let reader = FileReader::open(tree, &entry).unwrap();
            for at in (0..bytes.len()).step_by(70_001) {
                let mut some = [0; 20_000];
                let length = reader.read_at(at as u64, &mut some).unwrap();
                assert_eq!(some[..length], bytes[at..at + length], "read {number} at {at}");
            }
        }
    }

    fn forget(&self, version: usize) {
        retention::forget_final(&self.repository, &[self.id(version)], "test").unwrap();
    }

    fn sections(&self) -> Vec<(ContainerId, MetadataSection)> {
        let containers = containers_of(&self.repository).into_iter();
        containers.map(|id| (id, read_section(&self.repository, id).unwrap())).collect()
    }
}

/// Frees all that can be freed.
fn collect_all(repository: &Arc<Repository>, mark: MarkAlgorithm) {
    let options = CollectOptions {
        algorithm: mark,
        goal: SpaceGoal::Everything,
        ..CollectOptions::default()
    };
    collect(repository, &options, &Job::unattended().0).unwrap();
}

/// The deepest delta of each container, and how many there are.
fn depths(history: &History) -> (u8, usize) {
    let sections = history.sections();
    let deltas = sections.iter().flat_map(|(_, section)| &section.deltas);
    (deltas.clone().map(|delta| delta.depth).max().unwrap_or(0), deltas.count())
}

#[test]
fn versions_of_files_are_stored_as_differences_and_read_back_in_every_way() {
    let with = history(DeltaChoice::default(), 4);
    let without = history(DeltaChoice::Off, 4);
    assert_eq!(with.reports[0].deltas.chunks, 0, "random bytes are like nothing");
    assert_eq!(depths(&without), (0, 0));
    for version in 0..4 {
        with.assert_readable(version);
        without.assert_readable(version);
        let (small, large) = (&with.reports[version].summary, &without.reports[version].summary);
        if version > 0 {
            let found = with.reports[version].deltas;
            assert!(found.chunks >= large.chunks_new / 3, "{found:?} of {}", large.chunks_new);
            assert!(found.payload_bytes * 4 < found.bytes, "{found:?}");
            assert!(small.bytes_stored * 3 < large.bytes_stored * 2, "{small:?} {large:?}");
        }
    }
    let report = check_all(&with.repository);
    assert!(report.is_clean(), "{report:?}");
    let figures = statistics::statistics(&with.repository, &Job::unattended().0).unwrap();
    let sum = |of: fn(&BackupReport) -> u64| with.reports.iter().map(of).sum::<u64>();
    assert_eq!(figures.chunks_delta, sum(|report| report.deltas.chunks));
    assert_eq!(figures.bytes_delta, sum(|report| report.deltas.bytes));
    assert_eq!(figures.payload_bytes_delta, sum(|report| report.deltas.payload_bytes));
    assert_eq!(report.chunks_verified, figures.chunks_data + figures.chunks_nodes);
    assert_eq!(report.bytes_verified, figures.bytes_data + figures.bytes_nodes);
}

#[test]
fn a_file_that_was_renamed_and_a_stream_are_like_what_they_were() {
    let mut history = history(DeltaChoice::default(), 1);
    let mut changed = history.versions.history[0][0].clone();
    (1000..changed.len()).step_by(40_000).for_each(|at| changed[at] ^= 1);
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("elsewhere"), &changed).unwrap();
    let options = with_deltas(DeltaChoice::default());
    let report = save(&history.repository, other.path(), &options);
    // No earlier version is known: the chunks before and behind tell where to look.
    assert!(report.deltas.chunks >= 5, "{:?}", report.deltas);
    let id = report.snapshot.unwrap();
    assert!(content_at(&history.repository, id, &other.path().join("elsewhere")) == changed);
    changed.iter_mut().step_by(30_011).for_each(|byte| *byte ^= 9);
    let report = save_with(&history.repository, stream("s", &changed), &options);
    assert!(report.deltas.chunks >= 5, "{:?}", report.deltas);
    let read = content_at(&history.repository, report.snapshot.unwrap(), Path::new("/s"));
    assert!(read == changed);
    history.save_next(DeltaChoice::default());
    assert!(check_all(&history.repository).is_clean());
}

#[test]
fn a_chunk_across_two_others_is_made_of_both_where_frames_are_compressed_at_high_levels() {
    let first = random_bytes(1, 50 << 13);
    // What stands before moves all chunks by a third of one.
    let second = [&random_bytes(2, 2700)[..], &first].concat();
    let room = ROOM_MIN_BYTES;
    for (level, memory_bytes, bases) in [(2, room, 1), (9, room, 2), (9, room - 1, 1)] {
        let (_, store) = in_memory();
        let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, 8 << 10).unwrap();
        let init = InitOptions { chunker, ..options() };
        let memory = MemoryPlan::new(memory_bytes).unwrap();
        let environment = Environment::system();
        let repository =
            Repository::create(store, &init, Some(PASSWORD), environment, memory).map(Arc::new);
        let repository = repository.unwrap();
        let compression = Some(Compression::Zstd(level));
        let options = BackupOptions { compression, ..with_deltas(DeltaChoice::default()) };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let save_version = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            crate::ingest::settle_times(directory.path());
            save(&repository, directory.path(), &options)
        };
        let [old, new] = [&first, &second].map(|bytes| save_version(bytes));
        let found = &new.deltas;
        assert!(found.chunks > 40, "{found:?}");
        assert_eq!(found.payload_bytes < found.bytes / 10, bases == 2, "level {level}: {found:?}");
        let named = || {
            let containers = containers_of(&repository).into_iter();
            let sections = containers.map(|id| read_section(&repository, id).unwrap());
            let deltas = sections.flat_map(|section| section.deltas);
            deltas.map(|delta| delta.bases.len()).collect::<Vec<_>>()
        };
        assert_eq!(named().into_iter().max(), Some(bases));
        retention::forget_final(&repository, &[old.snapshot.unwrap()], "test").unwrap();
        collect_all(&repository, MarkAlgorithm::Auto);
        assert_eq!(named().into_iter().max(), Some(bases), "copied as they are");
        assert!(content_at(&repository, new.snapshot.unwrap(), &path) == second);
        assert!(check_all(&repository).is_clean());
    }
}

/// The payloads of the differences between two versions whose chunks have this length: half of
/// each is new, and shorter at high levels.
fn payload_bytes(chunk_bytes: usize, level: i32) -> u64 {
    let (_, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, chunk_bytes).unwrap();
    let memory = MemoryPlan::new(ROOM_MIN_BYTES).unwrap();
    let init = InitOptions { chunker, ..options() };
    let environment = Environment::system();
    let repository =
        Repository::create(store, &init, Some(PASSWORD), environment, memory).map(Arc::new);
    let compression = Some(Compression::Zstd(level));
    let options = BackupOptions { compression, ..with_deltas(DeltaChoice::default()) };
    let first = random_bytes(1, 4 * chunk_bytes);
    let mut second = first.clone();
    for (seed, chunk) in (2..).zip(second.chunks_exact_mut(chunk_bytes)) {
        let numbers = random_bytes(seed, chunk_bytes / 8).into_iter();
        let numbers: Vec<u8> = numbers.flat_map(|it| format!("{it:03} ").into_bytes()).collect();
        chunk[..numbers.len()].copy_from_slice(&numbers);
    }
    let directory = tempfile::tempdir().unwrap();
    let saved = [first, second].map(|bytes| {
        fs::write(directory.path().join("file"), &bytes).unwrap();
        crate::ingest::settle_times(directory.path());
        save(repository.as_ref().unwrap(), directory.path(), &options).deltas
    });
    // One of the four may happen to share no feature with what it was.
    assert!(saved[1].chunks >= 3, "{saved:?}");
    saved[1].payload_bytes
}

#[test]
fn differences_are_made_again_up_to_a_level_and_a_length_and_no_further() {
    let longest = AGAIN_BYTES_MAX / 2;
    let quick = payload_bytes(longest, 1);
    let best = payload_bytes(longest, AGAIN_LEVEL_MAX);
    assert!(best < quick, "{best} at the highest level, {quick} at the lowest");
    assert!(payload_bytes(longest, AGAIN_LEVEL_MAX - 3) > best, "a level makes no difference");
    for above in [AGAIN_LEVEL_MAX + 1, 22] {
        assert_eq!(payload_bytes(longest, above), best, "level {above}");
    }
    // Base and chunk are longer than the bound.
    let longer = longest + 1;
    assert_eq!(payload_bytes(longer, AGAIN_LEVEL_MAX), payload_bytes(longer, 1));
}

#[test]
fn deltas_are_as_deep_as_was_said_and_no_deeper() {
    for depth in 1..=DELTA_DEPTH_MAX {
        let choice = DeltaChoice::Depth(depth);
        let mut history = history(choice, 7);
        // Where chunks are cut is the store's secret, so how soon one changes often enough is not
        // known.
        while depths(&history).0 < depth && history.reports.len() < 20 {
            history.save_next(choice);
        }
        let (deepest, deltas) = depths(&history);
        assert_eq!(deepest, depth, "{deltas}");
        let last = history.reports.len() - 1;
        (0..=last).for_each(|version| history.assert_readable(version));
        (0..last).for_each(|version| history.forget(version));
        collect_all(&history.repository, MarkAlgorithm::Auto);
        history.assert_readable(last);
        assert!(check_all(&history.repository).is_clean());
    }
    let said = |text: &str| text.parse::<DeltaChoice>();
    assert_eq!(said("on").unwrap(), DeltaChoice::Depth(1));
    assert_eq!(said("off").unwrap(), DeltaChoice::Off);
    assert_eq!(said(&format!("depth={DELTA_DEPTH_MAX}")).unwrap().to_string(), "depth=4");
    for wrong in ["depth=0".into(), format!("depth={}", DELTA_DEPTH_MAX + 1), "yes".into()] {
        assert_eq!(said(&wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
}

#[test]
fn what_live_deltas_are_made_of_outlives_the_snapshots_that_needed_it() {
    for mark in [
        MarkAlgorithm::Exact,
        MarkAlgorithm::PhysicalPlus,
        MarkAlgorithm::Physical,
        MarkAlgorithm::Logical,
        MarkAlgorithm::Partitioned,
    ] {
        let mut history = history(DeltaChoice::Depth(2), 3);
        // Of the files themselves all may be needed still, for differences.
        let gone = history.versions.path().join("gone");
        fs::write(&gone, random_bytes(99, 50_000)).unwrap();
        history.save_next(DeltaChoice::Depth(2));
        fs::remove_file(&gone).unwrap();
        history.save_next(DeltaChoice::Depth(2));
        let before = statistics::statistics(&history.repository, &Job::unattended().0).unwrap();
        (0..4).for_each(|version| history.forget(version));
        collect_all(&history.repository, mark);
        history.assert_readable(4);
        let report = check_all(&history.repository);
        assert!(report.is_clean(), "{mark:?}: {report:?}");
        let after = statistics::statistics(&history.repository, &Job::unattended().0).unwrap();
        assert!(after.chunks_delta > 0, "{mark:?}: deltas are copied as they are");
        assert!(after.bytes_data < before.bytes_data, "{mark:?}: nothing was freed");
        // Once more: nothing points anywhere that was deleted.
        collect_all(&history.repository, mark);
        history.assert_readable(4);
    }
}

#[test]
fn a_lost_base_loses_the_files_that_need_it_and_is_not_relied_upon() {
    let mut history = history(DeltaChoice::default(), 2);
    let sections = history.sections();
    let lost = sections.iter().find_map(|(_, section)| section.deltas.first()?.bases[0].container);
    let lost = lost.unwrap();
    history.memory.remove(&Key::new(layout::container(lost)).unwrap());
    let repository = open(&(Arc::new(history.memory.clone()) as Arc<dyn Store>));
    history.repository = repository;
    let report = check_with(&history.repository, ReadData::None);
    assert!(!report.is_clean());
    let damaged = |version: usize| {
        let of = history.id(version);
        report.damaged_paths.iter().filter(|path| path.snapshot == of).count()
    };
    assert!(damaged(0) > 0, "files that had the chunk itself: {report:?}");
    assert!(damaged(1) > 0, "files that have a difference against it: {report:?}");
    // What cannot be made counts as not there: a backup stores it again, and is whole.
    let options =
        BackupOptions { parent: ParentChoice::None, ..with_deltas(DeltaChoice::default()) };
    let again = save(&history.repository, history.versions.path(), &options);
    history.reports.push(again);
    history.versions.history.push(history.versions.history[1].clone());
    history.assert_readable(2);
    // The other instances serve the damaged snapshot of the same files as well.
    history.assert_readable(1);
}

#[test]
fn a_delta_whose_base_has_gone_is_not_found() {
    let history = history(DeltaChoice::default(), 2);
    // The deltas of the second version lie in containers that a collection leaves alone, and what
    // they are made of goes, because nothing needs either.
    let sections = history.sections();
    let made_of: BTreeSet<ContainerId> = sections
        .iter()
        .flat_map(|(_, section)| &section.deltas)
        .filter_map(|delta| delta.bases[0].container)
        .collect();
    for id in &made_of {
        history.memory.remove(&Key::new(layout::container(*id)).unwrap());
    }
    let repository = open(&(Arc::new(history.memory.clone()) as Arc<dyn Store>));
    let options =
        BackupOptions { parent: ParentChoice::None, ..with_deltas(DeltaChoice::default()) };
    let report = save(&repository, history.versions.path(), &options);
    for (number, bytes) in history.versions.history[1].iter().enumerate() {
        let path = history.versions.file(number);
        assert!(content_at(&repository, report.snapshot.unwrap(), &path) == *bytes);
    }
}

/// A container of chunks as they are told to lie there, in the store and in the index.
fn forge(
    repository: &Arc<Repository>,
    chunks: &[(ChunkDescriptor, Option<Delta>, Vec<u8>)],
) -> ContainerId {
    let context = forging(repository);
    let mut open = OpenContainer::new(Arc::clone(&context));
    for (chunk, delta, payload) in chunks {
        open.append_copy(chunk, delta.as_ref(), None, payload).unwrap();
    }
    open.finish().unwrap();
    let durable = context.log.settle().unwrap();
    append::append(repository, None, &durable).unwrap();
    durable[0].id
}

fn named(number: u8, length: u32, payload_length: u32) -> ChunkDescriptor {
    let fingerprint = Fingerprint([number; 32]);
    ChunkDescriptor { fingerprint, length, level: Level::DATA, frame: 0, offset: 0, payload_length }
}

fn made_of(depth: u8, bases: &[u8], payload: &[u8]) -> Option<Delta> {
    let base = |number: &u8| Base { fingerprint: Fingerprint([*number; 32]), container: None };
    let bases = bases.iter().map(base).collect();
    Some(Delta { chunk: 0, depth, bases, payload_length: payload.len() as u32 })
}

#[test]
fn circles_and_depths_that_lie_end_as_damage() {
    let (memory, store) = in_memory();
    let repository = crate::ingest::create(&store, &options());
    let payload = vec![1; 20];
    // Each of two is made of the other, both say so at the same depth; a third of itself; a fourth
    // of chunks of every depth, each of which is made of all the others.
    let mut chunks = vec![
        (named(1, 5000, 20), made_of(1, &[2], &payload), payload.clone()),
        (named(2, 5000, 20), made_of(1, &[1], &payload), payload.clone()),
        (named(3, 5000, 20), made_of(DELTA_DEPTH_MAX, &[3], &payload), payload.clone()),
    ];
    for number in 10..16 {
        let bases = [10, 11, 12, 13, 14, 15];
        let depth = DELTA_DEPTH_MAX - (number - 10) % DELTA_DEPTH_MAX;
        chunks.push((named(number, 5000, 20), made_of(depth, &bases, &payload), payload.clone()));
    }
    let id = forge(&repository, &chunks);
    let repository = open(&(Arc::new(memory) as Arc<dyn Store>));
    let reader = ChunkReader::open(&repository).unwrap();
    let section = read_section(&repository, id).unwrap();
    assert_eq!(section.deltas.len(), chunks.len());
    for chunk in &section.chunks {
        let error = reader.read(&chunk.fingerprint).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("chunk"), "{error}");
    }
}

#[test]
fn a_payload_that_makes_another_chunk_is_damage_and_names_it() {
    let (memory, store) = in_memory();
    let repository = crate::ingest::create(&store, &options());
    let base = random_bytes(5, 6000);
    let mut encoder = onefold_format::delta::DeltaEncoder::new(1);
    let payload = encoder.encode(&[&base], &base, usize::MAX).unwrap().to_vec();
    let name = repository.fingerprinter().data(&base);
    let whole = ChunkDescriptor { fingerprint: name, ..named(0, 6000, 6000) };
    let length = payload.len() as u32;
    let delta = |depth| {
        let bases = vec![Base { fingerprint: name, container: None }];
        Some(Delta { chunk: 0, depth, bases, payload_length: length })
    };
    forge(&repository, &[(whole, None, base.clone())]);
    forge(&repository, &[(named(1, 6000, length), delta(1), payload.clone())]);
    let repository = open(&(Arc::new(memory) as Arc<dyn Store>));
    let reader = ChunkReader::open(&repository).unwrap();
    assert_eq!(*reader.read(&name).unwrap(), base);
    let error = reader.read(&Fingerprint([1; 32])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains(&Fingerprint([1; 32]).to_string()), "{error}");
    let report = check_with(&repository, ReadData::All);
    let [(_, problem)] = &report.damaged_containers[..] else { panic!("{report:?}") };
    assert!(problem.contains("does not have its fingerprint"), "{problem}");
    assert_eq!(report.chunks_verified, 1, "the base is what it is named by");
}

#[test]
fn what_another_is_made_of_is_copied_though_a_deeper_instance_stays() {
    for mark in [MarkAlgorithm::Exact, MarkAlgorithm::Physical, MarkAlgorithm::Partitioned] {
        let (_, store) = in_memory();
        let repository = crate::ingest::create(&store, &options());
        let first = random_bytes(5, CHUNK_BYTES);
        let changed = |places: &[usize]| {
            let mut bytes = first.clone();
            places.iter().for_each(|place| bytes[*place] ^= 1);
            bytes
        };
        let (second, third) = (changed(&[100]), changed(&[100, 900]));
        let name = |bytes: &[u8]| repository.fingerprinter().data(bytes);
        let descriptor = |bytes: &[u8], payload: &[u8]| ChunkDescriptor {
            fingerprint: name(bytes),
            ..named(0, bytes.len() as u32, payload.len() as u32)
        };
        let whole = |bytes: &[u8]| (descriptor(bytes, bytes), None, bytes.to_vec());
        let of = |base: &[u8], bytes: &[u8]| {
            let mut encoder = onefold_format::delta::DeltaEncoder::new(1);
            let payload = encoder.encode(&[base], bytes, usize::MAX).unwrap().to_vec();
            let bases = vec![Base { fingerprint: name(base), container: None }];
            let payload_length = payload.len() as u32;
            let delta = Delta { chunk: 0, depth: 1, bases, payload_length };
            (descriptor(bytes, &payload), Some(delta), payload)
        };
        // The second is whole beside what is dead, and what the third is made of. Where it stays it
        // is itself made of another, too deep to make the third of.
        let old = forge(&repository, &[whole(&second), whole(&random_bytes(6, 50_000))]);
        forge(&repository, &[of(&second, &third)]);
        forge(&repository, &[whole(&first), of(&first, &second)]);
        let files = [&first, &second, &third];
        let names = ["first", "second", "third"];
        let items: Vec<_> =
            names.into_iter().zip(files).map(|(name, it)| Item::File(name, it.clone())).collect();
        let root = put_with(&repository, |stream| put_directory(&repository, stream, &items));
        save_root(&repository, root.reference);
        collect_all(&repository, mark);
        assert!(!containers_of(&repository).contains(&old), "{mark:?}");
        let reader = ChunkReader::open(&open(&store)).unwrap();
        for bytes in files {
            assert!(*reader.read(&name(bytes)).unwrap() == *bytes, "{mark:?}");
        }
    }
}

#[test]
fn frames_say_what_their_deltas_take() {
    let history = history(DeltaChoice::default(), 2);
    for (_, section) in history.sections() {
        for (number, frame) in section.frames.iter().enumerate() {
            let FrameDescriptor { plain_length, .. } = *frame;
            let own = section.chunks.iter().filter(|chunk| chunk.frame as usize == number);
            let taken: u32 = own.map(|chunk| chunk.payload_length).sum();
            assert_eq!(taken, plain_length);
        }
    }
}
