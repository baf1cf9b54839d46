//! What a store has lost comes back out of copies in another one, whatever keys and chunks either
//! has; nothing else is stored, nothing else is changed, and what is not there is left and told.

use crate::ingest::{content_at, create, in_memory, open, options, random_bytes};
use crate::rewriting::{Versions, containers_of, open_with, save, unkeyed};
use crate::steps::{backup_options, check_all, key};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_crypto::Suite;
use onefold_engine::check::CheckReport;
use onefold_engine::collection::{CollectOptions, MarkAlgorithm, SpaceGoal, collect};
use onefold_engine::container::reader::read_section;
use onefold_engine::copy::{self, CopyOptions, Fate};
use onefold_engine::heal::{self, HealOptions, Healing};
use onefold_engine::ingest::BackupOptions;
use onefold_engine::look_up::LookupChoice;
use onefold_engine::session::SnapshotList;
use onefold_engine::{InitOptions, Job, MemoryPlan, Repository, retention};
use onefold_format::container::MetadataSection;
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{Blobs, MemoryStore, Store};
use onefold_types::{ContainerId, ErrorKind, SessionId, limits};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const HEAL: HealOptions = HealOptions { threads: 2, reach: None };

/// Files of two versions: large and small ones, one with a hole, and a directory of several leaves.
struct Tree {
    directory: tempfile::TempDir,
    versions: Vec<Vec<(PathBuf, Vec<u8>)>>,
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        ["a", "a/b", "many"].iter().for_each(|name| fs::create_dir_all(at(name)).unwrap());
        let mut sparse = random_bytes(7, 100_000);
        sparse.extend(vec![0; 300_000]);
        sparse.extend(random_bytes(8, 50_000));
        let mut files = vec![
            (at("a/b/sparse"), sparse),
            (at("a/large"), random_bytes(1, 1_200_000)),
            (at("a/two"), random_bytes(2, 90_000)),
            (at("z"), b"small".to_vec()),
        ];
        let many =
            (0..1500).map(|it| (at(&format!("many/f{it:04}")), format!("{it}").into_bytes()));
        files.extend(many);
        Self { directory, versions: vec![files] }
    }

    fn write(&self) {
        let newest = self.versions.last().unwrap();
        newest.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }

    /// Changes a part of the large file, and one small one.
    fn change(&mut self) {
        let mut files = self.versions.last().unwrap().clone();
        files[1].1.splice(600_000..600_100, random_bytes(50, 5_000));
        files[3].1 = b"other".to_vec();
        self.versions.push(files);
    }
}

/// A store, another one with copies of what is in it, and what should be in both.
struct Stores {
    tree: Tree,
    own: MemoryStore,
    other: MemoryStore,
    ids: Vec<SessionId>,
}

fn shared(memory: &MemoryStore) -> Arc<dyn Store> {
    Arc::new(memory.clone())
}

impl Stores {
    fn new(own: &InitOptions, other: &InitOptions) -> Self {
        let mut tree = Tree::new();
        let own_memory = MemoryStore::recording();
        let repository = create(&shared(&own_memory), own);
        let mut ids = Vec::new();
        for version in 0..2 {
            if version > 0 {
                tree.change();
            }
            tree.write();
            let report = save(&repository, tree.directory.path(), &backup_options());
            ids.push(report.snapshot.unwrap());
        }
        let other_memory = MemoryStore::recording();
        let copied = create(&shared(&other_memory), other);
        copy_all(&repository, &copied, &ids);
        Self { tree, own: own_memory, other: other_memory, ids }
    }

    /// The same stores as they are now, each to be damaged apart.
    fn again(&self) -> (MemoryStore, MemoryStore) {
        (self.own.clone_state(), self.other.clone_state())
    }

    fn assert_restores(&self, repository: &Arc<Repository>) {
        for (id, files) in self.ids.iter().zip(&self.tree.versions) {
            for (path, bytes) in files.iter().take(20) {
                assert!(content_at(repository, *id, path) == *bytes, "{path:?}");
            }
        }
    }
}

fn copy_all(own: &Arc<Repository>, other: &Arc<Repository>, ids: &[SessionId]) {
    let options = CopyOptions {
        threads: 2,
        compression: None,
        lookup: LookupChoice::Eager(FilterOrder::CacheFirst),
        reach: None,
        program: "healing".into(),
    };
    copy::copy((own, other), ids, &options, &Job::unattended().0, &mut |_, fate| {
        assert!(matches!(fate, Fate::Copied(..)), "{fate:?}");
        Ok(())
    })
    .unwrap();
}

/// As one who has found damage does it, each in a process of its own.
fn heal(own: &MemoryStore, other: &MemoryStore) -> (Healing, Vec<String>) {
    let (job, problems) = Job::unattended();
    let healing = heal::heal((&open(&shared(own)), &open(&shared(other))), &HEAL, &job).unwrap();
    let problems = problems.0.lock().unwrap().iter().map(|(at, ..)| at.clone()).collect();
    (healing, problems)
}

fn checked(memory: &MemoryStore) -> CheckReport {
    check_all(&open(&shared(memory)))
}

fn sections(memory: &MemoryStore) -> Vec<(ContainerId, MetadataSection)> {
    let repository = open(&shared(memory));
    let read = |id| (id, read_section(&repository, id).unwrap());
    containers_of(&repository).into_iter().map(read).collect()
}

fn is_of_nodes(section: &MetadataSection) -> bool {
    section.chunks.iter().all(|chunk| chunk.level.is_node())
}

fn name(id: ContainerId) -> onefold_store::Key {
    key(layout::container(id))
}

/// The data container with the most chunks, and how many these are.
fn largest_of_data(memory: &MemoryStore) -> (ContainerId, u64) {
    let sections = sections(memory).into_iter().filter(|(_, section)| !is_of_nodes(section));
    let largest = sections.max_by_key(|(_, section)| section.chunks.len()).unwrap();
    (largest.0, largest.1.chunks.len() as u64)
}

/// Whether all of so many chunks are to come back, and nothing else, or no more than so many: what
/// tells where chunks lay is not in the copy.
#[derive(Debug)]
enum Lost {
    Just(u64),
    AtMost(u64),
}

fn remove_all(memory: &MemoryStore, wanted: impl Fn(&MetadataSection) -> bool) -> Lost {
    let sections = sections(memory).into_iter().filter(|(_, section)| wanted(section));
    Lost::AtMost(sections.fold(0, |sum, (id, section)| {
        assert!(memory.remove(&name(id)));
        sum + section.chunks.len() as u64
    }))
}

type Damage = (&'static str, fn(&MemoryStore) -> Lost);

/// What is done to a store, and what that costs.
fn damages() -> [Damage; 7] {
    [
        ("a byte", |memory| {
            let (id, chunks) = largest_of_data(memory);
            assert!(memory.corrupt(&name(id), |bytes| bytes[200] ^= 1));
            Lost::Just(chunks)
        }),
        ("a container of data", |memory| {
            let (id, chunks) = largest_of_data(memory);
            assert!(memory.remove(&name(id)));
            Lost::Just(chunks)
        }),
        ("a metadata section", |memory| {
            let (id, chunks) = largest_of_data(memory);
            let destroy = |bytes: &mut Vec<u8>| {
                let end = bytes.len();
                bytes[end - 400..].fill(0);
            };
            assert!(memory.corrupt(&name(id), destroy));
            Lost::Just(chunks)
        }),
        ("the headers of nodes, which can all be read still", |memory| {
            let of_nodes = sections(memory).into_iter().filter(|(_, section)| is_of_nodes(section));
            Lost::AtMost(of_nodes.fold(0, |sum, (id, section)| {
                assert!(memory.corrupt(&name(id), |bytes| bytes[0] ^= 1));
                sum + section.chunks.len() as u64
            }))
        }),
        ("one container of nodes", |memory| {
            let of_nodes = sections(memory).into_iter().find(|(_, section)| is_of_nodes(section));
            let (id, section) = of_nodes.unwrap();
            assert!(memory.remove(&name(id)));
            Lost::AtMost(section.chunks.len() as u64)
        }),
        ("all nodes", |memory| remove_all(memory, is_of_nodes)),
        ("everything", |memory| remove_all(memory, |_| true)),
    ]
}

fn cases() -> [(&'static str, InitOptions, InitOptions); 4] {
    let keyed = || InitOptions { suite: Suite::Aes256Gcm, ..options() };
    let other_chunker = || {
        let chunker = ChunkerParameters::with_average(ChunkerKind::Rabin, 16384);
        InitOptions { chunker: chunker.unwrap(), ..unkeyed() }
    };
    [
        ("the same names and cuts", unkeyed(), unkeyed()),
        ("another chunker", unkeyed(), other_chunker()),
        ("other keys", keyed(), keyed()),
        ("keys on one side", unkeyed(), keyed()),
    ]
}

#[test]
fn what_is_lost_comes_back_whatever_was_damaged_and_whatever_keys_there_are() {
    for (case, of_own, of_other) in cases() {
        let stores = Stores::new(&of_own, &of_other);
        for (damage, inflict) in damages() {
            let at = format!("{case}, {damage}");
            let (own, other) = stores.again();
            let lost = inflict(&own);
            let list = SnapshotList::load(&open(&shared(&own))).unwrap().snapshots.len();
            let found = checked(&own);
            assert!(!found.is_clean(), "{at}");
            let before = other.operations();
            let (healing, problems) = heal(&own, &other);
            assert_eq!(other.operations(), before, "{at}: the other store was written");
            assert_eq!((healing.left, problems.as_slice()), (0, &[][..]), "{at}: {healing:?}");
            assert!(healing.chunks > 0 && healing.snapshots > 0, "{at}: {healing:?}");
            assert_eq!(healing.without_copy, [], "{at}");
            match lost {
                Lost::Just(lost) => assert_eq!(healing.chunks, lost, "{at}: {healing:?}"),
                Lost::AtMost(lost) => assert!(healing.chunks <= lost, "{at}: {lost} {healing:?}"),
            }
            let report = checked(&own);
            assert!(report.is_clean(), "{at}: {report:?}");
            let repository = open(&shared(&own));
            stores.assert_restores(&repository);
            assert_eq!(SnapshotList::load(&repository).unwrap().snapshots.len(), list, "{at}");
            let (again, _) = heal(&own, &other);
            assert_eq!((again.chunks, again.snapshots), (0, 0), "{at}: {again:?}");
            // Not even the loss of what tells where chunks lay stops a collection.
            let all = CollectOptions { goal: SpaceGoal::Everything, ..CollectOptions::default() };
            collect(&repository, &all, &Job::unattended().0).unwrap();
            assert!(checked(&own).is_clean(), "{at}");
        }
    }
}

/// Of a frame that can still be read nothing is taken from the copy.
#[test]
fn what_a_damaged_container_still_gives_is_not_read_elsewhere() {
    let larger = InitOptions { container_size_bytes: 1024 * limits::KIB, ..unkeyed() };
    let stores = Stores::new(&larger, &options());
    let (own, other) = stores.again();
    let (id, chunks) = largest_of_data(&own);
    let section = sections(&own).into_iter().find(|(it, _)| *it == id).unwrap().1;
    assert!(section.frames.len() > 1, "one frame is all of it");
    assert!(own.corrupt(&name(id), |bytes| bytes[200] ^= 1));
    assert!(!checked(&own).is_clean());
    let (healing, _) = heal(&own, &other);
    assert_eq!(healing.chunks, chunks);
    let lost = u64::from(section.frames[0].plain_length);
    assert_eq!(healing.bytes_from_copy, lost, "{healing:?}");
    assert!(checked(&own).is_clean());
    // The same without any copy: what can be read comes away from the damage, the rest stays.
    let (own, _) = stores.again();
    assert!(own.corrupt(&name(id), |bytes| bytes[200] ^= 1));
    assert!(!checked(&own).is_clean());
    let empty = MemoryStore::new();
    create(&shared(&empty), &options());
    let (alone, problems) = heal(&own, &empty);
    assert_eq!(alone.without_copy.len() as u64, alone.snapshots);
    let of_frame = section.chunks.iter().filter(|chunk| chunk.frame == 0).count() as u64;
    assert_eq!((alone.chunks, alone.bytes_from_copy), (chunks - of_frame, 0), "{alone:?}");
    assert!(alone.left > 0 && problems.is_empty(), "{alone:?} {problems:?}");
    assert!(!checked(&own).is_clean());
}

/// What deltas are made of is lost: they come back whole, and no collection misses what nothing
/// but a difference needed. Before, it does.
#[test]
fn chunks_whose_base_is_lost_come_back_whole() {
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    let mut versions = Versions::new(4, 300_000);
    let deltas = BackupOptions {
        delta: Some(DeltaChoice::Depth(3)),
        rewrite: "none".parse().unwrap(),
        ..backup_options()
    };
    let mut ids = Vec::new();
    for _ in 0..4 {
        versions.write_next();
        ids.push(save(&repository, versions.path(), &deltas).snapshot.unwrap());
    }
    let other = MemoryStore::recording();
    copy_all(&repository, &create(&shared(&other), &options()), &ids);
    retention::forget_final(&repository, &ids[..1], "test").unwrap();
    let sections = sections(&memory);
    let bases = sections.iter().flat_map(|(_, section)| &section.deltas);
    let first = bases.filter_map(|delta| delta.bases[0].container).min().unwrap();
    let in_it = sections.iter().find(|(id, _)| *id == first).unwrap().1.chunks.len() as u64;
    for mark in [MarkAlgorithm::Auto, MarkAlgorithm::Exact, MarkAlgorithm::Partitioned] {
        for is_gone in [true, false] {
            let own = memory.clone_state();
            match is_gone {
                true => assert!(own.remove(&name(first))),
                false => assert!(own.corrupt(&name(first), |bytes| bytes[200] ^= 1)),
            }
            assert!(!checked(&own).damaged_paths.is_empty());
            let all = CollectOptions {
                algorithm: mark,
                goal: SpaceGoal::Everything,
                ..CollectOptions::default()
            };
            let collected =
                |own: &MemoryStore| collect(&open(&shared(own)), &all, &Job::unattended().0);
            let before = collected(&own.clone_state());
            assert_eq!(before.is_err(), is_gone, "{mark:?}: {before:?}");
            let (healing, problems) = heal(&own, &other);
            assert_eq!((healing.left, problems.len()), (0, 0), "{healing:?} {problems:?}");
            assert!(healing.chunks > in_it / 2, "{healing:?} {in_it}");
            let new = containers_of(&open(&shared(&own)));
            for id in new.iter().filter(|id| sections.iter().all(|(known, _)| known != *id)) {
                let section = read_section(&open(&shared(&own)), *id).unwrap();
                assert!(section.deltas.is_empty(), "a commit would have to rely on their bases");
            }
            let report = checked(&own);
            assert!(report.is_clean(), "{report:?}");
            let restores = |from: usize| {
                let repository = open(&shared(&own));
                let live = from..4;
                live.for_each(|number| versions.assert_restores(&repository, ids[number], number));
            };
            restores(1);
            // One more goes, so that what was stored again is packed anew.
            retention::forget_final(&open(&shared(&own)), &ids[1..2], "test").unwrap();
            let deleted = collected(&own).unwrap().deleted_containers;
            assert!(deleted > 0, "{mark:?} {is_gone}");
            let report = checked(&own);
            assert!(report.is_clean(), "{mark:?} {is_gone}: {report:?}");
            restores(2);
        }
    }
}

/// The copy has damage of its own: the rest is healed, that is named, and comes later.
#[test]
fn what_is_damaged_in_the_copy_as_well_is_named_and_comes_back_once_that_is_repaired() {
    for (case, of_own, of_other) in cases() {
        let stores = Stores::new(&of_own, &of_other);
        let (own, other) = stores.again();
        remove_all(&own, |section| !is_of_nodes(section));
        assert!(!checked(&own).is_clean());
        let sound = other.clone_state();
        // The first data of the copy: of the files that come first.
        let (id, _) = sections(&other).into_iter().find(|(_, it)| !is_of_nodes(it)).unwrap();
        assert!(other.corrupt(&name(id), |bytes| bytes[200] ^= 1));
        let (healing, problems) = heal(&own, &other);
        assert!(healing.left > 0 && healing.left < 5, "{case}: {healing:?}");
        assert!(healing.healed > 1400, "{case}: {healing:?}");
        assert!(!problems.is_empty() && problems.iter().all(|at| at.contains("/a/")), "{case}");
        let report = checked(&own);
        let told: std::collections::BTreeSet<_> =
            report.damaged_paths.iter().map(|it| it.path.clone()).collect();
        assert_eq!(told, problems.into_iter().collect(), "{case}");
        let (rest, _) = heal(&own, &sound);
        assert_eq!(rest.left, 0, "{case}: {rest:?}");
        assert!(rest.chunks > 0 && rest.chunks < healing.chunks / 4, "{case}: {rest:?}");
        assert!(checked(&own).is_clean(), "{case}");
        stores.assert_restores(&open(&shared(&own)));
    }
}

/// What it has in common with a snapshot that has a copy comes back, the rest is told.
#[test]
fn a_snapshot_without_a_copy_is_healed_as_far_as_it_shares_chunks_with_others() {
    let stores = Stores::new(&options(), &unkeyed());
    let (own, other) = stores.again();
    let copies = open(&shared(&other));
    let list = SnapshotList::load(&copies).unwrap();
    let of_second =
        list.snapshots.iter().find(|it| it.record.original.unwrap().snapshot == stores.ids[1]);
    retention::forget_final(&copies, &[of_second.unwrap().id], "test").unwrap();
    remove_all(&own, |section| !is_of_nodes(section));
    assert!(!checked(&own).is_clean());
    let (healing, problems) = heal(&own, &other);
    assert_eq!((healing.snapshots, healing.without_copy.as_slice()), (2, &stores.ids[1..]));
    // Each content once, whatever snapshots have it.
    assert_eq!(healing.healed as usize, stores.tree.versions[0].len());
    // What was changed in the second: the large file and a small one.
    assert_eq!((healing.left, problems.len()), (2, 0), "{healing:?} {problems:?}");
    let report = checked(&own);
    assert_eq!(report.damaged_paths.len(), 2, "{report:?}");
    assert!(report.damaged_paths.iter().all(|it| it.snapshot == stores.ids[1]));
}

/// Stopped while the third container is stored: nothing of what has arrived is stored again.
#[test]
fn healing_that_was_stopped_goes_on_where_it_was() {
    let stores = Stores::new(&options(), &options());
    let (own, other) = stores.again();
    let Lost::AtMost(lost) = remove_all(&own, |section| !is_of_nodes(section)) else { panic!() };
    assert!(!checked(&own).is_clean());
    for fault in [None, Some(ErrorKind::Io)] {
        let own = own.clone_state();
        let (job, _) = Job::unattended();
        let (stop, stored) = (job.interrupt.clone(), AtomicU64::new(0));
        let stopping = Faulty::scripted(own.clone(), move |call| {
            let is_container =
                call.operation == Operation::Put && call.name.starts_with("containers");
            if is_container && stored.fetch_add(1, Ordering::Relaxed) == 2 {
                match fault {
                    Some(kind) => return Fault::Before(kind),
                    None => stop.request(),
                }
            }
            Fault::None
        });
        let damaged = open(&(Arc::new(stopping) as Arc<dyn Store>));
        let result = heal::heal((&damaged, &open(&shared(&other))), &HEAL, &job);
        assert_eq!(result.unwrap_err().kind(), fault.unwrap_or(ErrorKind::Interrupted));
        let found = checked(&own);
        assert!(!found.is_clean());
        let (healing, _) = heal(&own, &other);
        assert!(healing.chunks > 0 && healing.chunks < lost - 20, "{fault:?}: {lost} {healing:?}");
        assert_eq!(healing.left, 0);
        assert!(checked(&own).is_clean(), "{fault:?}");
        stores.assert_restores(&open(&shared(&own)));
    }
}

/// Whatever healing has written when it ends hard, the store is no worse, and the next run heals.
#[test]
fn healing_may_end_hard_after_any_write() {
    let stores = Stores::new(&unkeyed(), &options());
    let (own, other) = stores.again();
    let (id, _) = largest_of_data(&own);
    own.delete(&name(id)).unwrap();
    let found = checked(&own);
    assert!(!found.is_clean());
    let before = own.operations();
    heal(&own, &other);
    let after = own.operations();
    assert!(after > before + 4);
    for operations in before..after {
        let own = own.state_after(operations);
        let now = checked(&own);
        assert!(now.damaged_paths.len() <= found.damaged_paths.len(), "after {operations}");
        let (healing, _) = heal(&own, &other);
        assert_eq!(healing.left, 0, "after {operations}: {healing:?}");
        let report = checked(&own);
        assert!(report.is_clean(), "after {operations}: {report:?}");
    }
    stores.assert_restores(&open(&shared(&own)));
}

/// The least that two stores take together, with files larger than any share of it.
#[test]
fn healing_keeps_to_the_least_memory_of_two_stores() {
    let tree = tempfile::tempdir().unwrap();
    let large = tree.path().join("large");
    fs::write(&large, random_bytes(9, 24 * limits::MIB)).unwrap();
    let (own, store) = in_memory();
    let repository = create(&store, &options());
    let id = save(&repository, tree.path(), &backup_options()).snapshot.unwrap();
    let (other, second) = in_memory();
    copy_all(&repository, &create(&second, &unkeyed()), &[id]);
    let plan = MemoryPlan::of_each_of_two(96 * limits::MIB).unwrap();
    for is_lost in [|section: &MetadataSection| !is_of_nodes(section), |_: &MetadataSection| true] {
        let own = own.clone_state();
        remove_all(&own, is_lost);
        assert!(!checked(&own).is_clean());
        let (damaged, copies) = (open_with(&shared(&own), plan), open_with(&shared(&other), plan));
        let healing = heal::heal((&damaged, &copies), &HEAL, &Job::unattended().0).unwrap();
        assert_eq!(healing.left, 0, "{healing:?}");
        assert!(checked(&own).is_clean());
        assert!(content_at(&open(&shared(&own)), id, &large) == fs::read(&large).unwrap());
    }
}

#[test]
fn a_store_is_not_healed_from_itself() {
    let (own, store) = in_memory();
    create(&store, &options());
    let both = (&open(&store), &open(&shared(&own)));
    let error = heal::heal(both, &HEAL, &Job::unattended().0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Directories can be read, and the map of a large file in them cannot.
#[test]
fn a_file_whose_map_is_lost_is_built_anew() {
    for (case, of_own, of_other) in cases() {
        let tree = tempfile::tempdir().unwrap();
        let large = tree.path().join("large");
        fs::write(&large, random_bytes(3, 1_500_000)).unwrap();
        let (own, store) = in_memory();
        let repository = create(&store, &of_own);
        let first = save(&repository, tree.path(), &backup_options()).snapshot.unwrap();
        let of_maps = sections(&own).into_iter().filter(|(_, section)| is_of_nodes(section));
        let of_maps: Vec<ContainerId> = of_maps.map(|(id, _)| id).collect();
        fs::write(tree.path().join("small"), b"small").unwrap();
        let second = save(&repository, tree.path(), &backup_options()).snapshot.unwrap();
        let (other, copies) = in_memory();
        copy_all(&repository, &create(&copies, &of_other), &[second]);
        retention::forget_final(&repository, &[first], "test").unwrap();
        of_maps.iter().for_each(|id| assert!(own.remove(&name(*id))));
        let found = checked(&own);
        assert_eq!(found.damaged_paths.len(), 1, "{case}: {found:?}");
        let (healing, problems) = heal(&own, &other);
        assert_eq!((healing.healed, healing.left), (1, 0), "{case}: {healing:?} {problems:?}");
        assert!(healing.chunks < 10, "{case}: nodes and nothing else: {healing:?}");
        assert!(checked(&own).is_clean(), "{case}");
        assert!(content_at(&open(&shared(&own)), second, &large) == fs::read(&large).unwrap());
    }
}

/// Of a store in which nothing but bases is lost: a collection would let go what brings them back.
#[test]
fn a_collection_stops_for_a_lost_base_until_nothing_needs_it() {
    let tree = tempfile::tempdir().unwrap();
    let at = tree.path().join("file");
    let (own, store) = in_memory();
    let repository = create(&store, &options());
    let deltas = BackupOptions {
        delta: Some(DeltaChoice::Depth(1)),
        rewrite: "none".parse().unwrap(),
        ..backup_options()
    };
    let mut bytes = random_bytes(4, 400_000);
    fs::write(&at, &bytes).unwrap();
    let first = save(&repository, tree.path(), &deltas).snapshot.unwrap();
    let bases = containers_of(&repository);
    // Every chunk is another one, and much like what it was.
    bytes.iter_mut().step_by(1_500).for_each(|byte| *byte ^= 1);
    fs::write(&at, &bytes).unwrap();
    let second = save(&repository, tree.path(), &deltas);
    assert!(second.deltas.chunks > 10, "{:?}", second.deltas);
    let id = second.snapshot.unwrap();
    let (other, copies) = in_memory();
    copy_all(&repository, &create(&copies, &options()), &[id]);
    retention::forget_final(&repository, &[first], "test").unwrap();
    bases.iter().for_each(|id| assert!(own.remove(&name(*id))));
    assert!(!checked(&own).is_clean());
    let all = CollectOptions::default();
    let collected = |own| collect(&open(&shared(own)), &all, &Job::unattended().0);
    assert_eq!(collected(&own).unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(heal(&own, &other).0.left, 0);
    collected(&own).unwrap();
    assert!(checked(&own).is_clean());
    assert!(content_at(&open(&shared(&own)), id, &at) == bytes);
}
