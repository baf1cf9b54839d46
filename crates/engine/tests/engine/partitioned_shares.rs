//! Shares that are divided: each partition is deduplicated for itself, and nothing is lost when a
//! file passes from one to another, when a run is stopped, or when the share is divided otherwise.

use crate::ingest::{random_bytes, save};
use crate::rewriting::{open_with, plan};
use crate::shares::{World, options};
use crate::steps::paths;
use onefold_engine::collection::is_worth_for;
use onefold_engine::index::FingerprintIndex;
use onefold_engine::index::partition::chunks_within;
use onefold_engine::primary::optimize::{OptimizeOptions, OptimizeReport, optimize};
use onefold_engine::primary::scrub::scrub;
use onefold_engine::primary::turns::Partitions;
use onefold_engine::session::SnapshotList;
use onefold_engine::statistics::statistics;
use onefold_engine::{Interrupt, Job, MemoryPlan, Observer, Repository};
use onefold_policy::primary::overlap::SAMPLE_BITS;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

const BY_PATH: Partitions = Partitions::Path { share_max: 0.3 };

/// What files hold, by their names.
type Files = BTreeMap<&'static str, Vec<u8>>;

fn divided(world: &World, partitions: Partitions, job: &Job) -> Result<OptimizeReport> {
    let options = OptimizeOptions { partitions, ..options() };
    optimize(&world.repository(), &world.share(), &options, job)
}

fn run(world: &World, partitions: Partitions) -> OptimizeReport {
    let report = divided(world, partitions, &Job::unattended().0).unwrap();
    assert_eq!(report.backup.summary.errors + report.errors, 0);
    report
}

/// Files of several types and directories: three times the same data, and some of its own each.
fn write_files(world: &World) -> Files {
    let common = random_bytes(1, 200_000);
    let names = ["a/one.txt", "a/two.jpg", "b/three.txt", "b/four.zip", "c/five", "c/six.txt"];
    let mut files = Files::new();
    for (seed, name) in (2..).zip(names) {
        let mut data = random_bytes(seed, 150_000);
        if matches!(name, "a/one.txt" | "a/two.jpg" | "c/five") {
            data = [common.as_slice(), &data].concat();
        }
        fs::create_dir_all(world.path(name).parent().unwrap()).unwrap();
        fs::write(world.path(name), &data).unwrap();
        files.insert(name, data);
    }
    // What changed just now is not believed to be what it was.
    std::thread::sleep(Duration::from_millis(100));
    files
}

#[track_caller]
fn assert_whole(world: &World, files: &Files) {
    world.collect();
    for (name, data) in files {
        world.assert_holds(name, data);
    }
}

/// The partitions that the share's manifests name, oldest first.
fn manifests(world: &World) -> Vec<Vec<String>> {
    let list = SnapshotList::load(&world.repository()).unwrap();
    let of = |tags: &[String]| {
        tags.iter().filter(|tag| tag.starts_with("partition=")).cloned().collect()
    };
    list.manifests(world.share().id).map(|one| of(&one.record.tags)).collect()
}

fn names(report: &OptimizeReport) -> Vec<&str> {
    report.turns.iter().map(|turn| turn.name.as_str()).collect()
}

#[test]
fn files_of_all_partitions_are_whole_stubs_and_each_is_in_one_manifest() {
    for partitions in [Partitions::Type, BY_PATH] {
        let Some(world) = World::new() else { return };
        let files = write_files(&world);
        let report = run(&world, partitions);
        assert_eq!(report.emptied.files, files.len() as u64);
        assert_eq!(report.backup.summary.files, files.len() as u64);
        match partitions {
            Partitions::Type => assert_eq!(
                names(&report),
                ["type:text", "type:media", "type:archives", "type:no ending"]
            ),
            _ => assert!(report.turns.len() > 2, "{:?}", names(&report)),
        }
        let bytes: u64 = files.values().map(|data| data.len() as u64).sum();
        if partitions == BY_PATH {
            let most = report.turns.iter().map(|turn| turn.summary.bytes).max().unwrap();
            assert!(most as f64 <= bytes as f64 * 0.3 + 350_000.0, "{most} of {bytes}");
        }
        assert_eq!(manifests(&world).len(), report.turns.len());
        assert_whole(&world, &files);
        // Nothing has changed but that they are stubs: every turn keeps its manifest.
        let report = run(&world, partitions);
        let again = run(&world, partitions);
        assert!(again.turns.iter().all(|turn| {
            report
                .turns
                .iter()
                .any(|before| turn.manifest == before.manifest && turn.name == before.name)
        }));
        assert_eq!((again.backup.summary.bytes_read, again.manifests_forgotten), (0, 0));
        assert_whole(&world, &files);
    }
}

#[test]
fn a_turn_asks_the_index_of_its_partition_only_and_a_collection_drops_second_copies() {
    let Some(world) = World::new() else { return };
    let files = write_files(&world);
    let report = run(&world, Partitions::Type);
    // The text, media and unnamed files with common data: it is stored three times.
    let all: u64 = files.values().map(|data| data.len() as u64).sum();
    let common = 200_000;
    assert!(report.turns.iter().all(|turn| turn.index.asked_whole == 0));
    let stored = || {
        let repository = world.repository();
        statistics(&repository, &Job::unattended().0).unwrap().bytes_data
    };
    assert_eq!(stored(), all);
    assert_whole(&world, &files);
    let after = stored();
    let largest = 64 << 10;
    assert!((all - 2 * common..all - 2 * (common - largest)).contains(&after), "{after} of {all}");
    // What a partition holds is found in it, and only that is in its index.
    let more = [files["a/one.txt"].as_slice(), b"!"].concat();
    world.write("b/more.txt", &more);
    world.write("b/more.zip", &more);
    let report = run(&world, Partitions::Type);
    let new = |name: &str| {
        let turn = report.turns.iter().find(|turn| turn.name == name).unwrap();
        turn.summary.bytes_new
    };
    assert!(new("type:text") < 100_000, "{}", new("type:text"));
    assert!(new("type:archives") > 300_000, "{}", new("type:archives"));
    let whole = stored();
    for turn in &report.turns {
        assert_eq!(turn.index.asked_whole, 0, "{}", turn.name);
        assert!(turn.index.memory_bytes < whole / 100, "{turn:?}");
    }
    let chunks: u64 = report.turns.iter().map(|turn| turn.index.chunks).sum();
    assert!(report.turns.iter().all(|turn| turn.index.chunks < chunks * 2 / 3));
}

#[test]
fn a_stub_that_passes_to_another_partition_keeps_its_data() {
    for partitions in [Partitions::Type, BY_PATH] {
        let Some(world) = World::new() else { return };
        let mut files = write_files(&world);
        run(&world, partitions);
        world.collect();
        for (from, to) in [("a/one.txt", "c/one.zip"), ("c/six.txt", "a/six"), ("c/five", "a/5")] {
            // As whoever serves the mount does.
            drop(world.share().note_move().unwrap());
            fs::rename(world.path(from), world.path(to)).unwrap();
            let data = files.remove(from).unwrap();
            files.insert(to, data);
        }
        let report = run(&world, partitions);
        assert_eq!(report.backup.summary.bytes_read, 0);
        assert_eq!(report.manifests_kept, 0);
        assert!(report.turns.iter().any(|turn| turn.index.asked_whole > 0));
        assert_whole(&world, &files);
    }
}

#[test]
fn a_stub_that_is_moved_between_turns_keeps_its_data() {
    let Some(world) = World::new() else { return };
    let mut files = write_files(&world);
    run(&world, Partitions::Type);
    world.write("b/now.zip", &random_bytes(20, 1000));
    files.insert("b/now.zip", random_bytes(20, 1000));
    // From a partition whose turn is still to come to one whose turn is over.
    let (from, to) = ("c/five", "c/five.txt");
    let (share, old, new) = (world.share(), world.path(from), world.path(to));
    let observer = Arc::new(Once::new("now.zip", move || {
        drop(share.note_move().unwrap());
        fs::rename(&old, &new).unwrap();
    }));
    let job = Job { observer, ..Job::unattended().0 };
    let report = divided(&world, Partitions::Type, &job).unwrap();
    assert_eq!(report.manifests_forgotten, 0);
    assert!(report.manifests_kept > 0);
    let data = files.remove(from).unwrap();
    files.insert(to, data);
    assert_whole(&world, &files);
    let report = run(&world, Partitions::Type);
    assert!(report.manifests_forgotten > 0 && report.manifests_kept == 0, "{report:?}");
    assert_whole(&world, &files);
}

/// Does something once a file is met.
struct Once {
    name: &'static str,
    what: Box<dyn Fn() + Send + Sync>,
}

impl Once {
    fn new(name: &'static str, what: impl Fn() + Send + Sync + 'static) -> Self {
        Self { name, what: Box::new(what) }
    }
}

impl Observer for Once {
    fn problem(&self, item: &str, error: &Error) {
        panic!("{item}: {error}");
    }

    fn item(&self, path: &str, _: &'static str) {
        if path.ends_with(self.name) {
            (self.what)();
        }
    }
}

#[test]
fn a_run_that_is_stopped_between_turns_forgets_nothing_and_the_next_goes_on() {
    for before in [Partitions::None, BY_PATH] {
        let Some(world) = World::new() else { return };
        let mut files = write_files(&world);
        run(&world, before);
        let kept = manifests(&world);
        world.write("b/now.zip", &random_bytes(20, 1000));
        files.insert("b/now.zip", random_bytes(20, 1000));
        let interrupt = Interrupt::default();
        let stop = interrupt.clone();
        let observer = Arc::new(Once::new("now.zip", move || stop.request()));
        let job = Job { observer, interrupt, ..Job::unattended().0 };
        let error = divided(&world, Partitions::Type, &job).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        let now = manifests(&world);
        assert!(now.len() > kept.len() && now.starts_with(&kept), "{now:?}");
        world.collect();
        for name in files.keys().filter(|name| **name != "b/now.zip") {
            world.assert_holds(name, &files[name]);
        }
        let report = run(&world, Partitions::Type);
        assert_eq!(report.manifests_forgotten, kept.len() as u64, "{report:?}");
        assert_whole(&world, &files);
    }
}

#[test]
fn a_share_may_be_divided_otherwise_and_not_at_all_and_nothing_is_read_again() {
    let Some(world) = World::new() else { return };
    let files = write_files(&world);
    let ways = [
        Partitions::None,
        Partitions::Type,
        BY_PATH,
        Partitions::Path { share_max: 0.5 },
        Partitions::Volume,
        BY_PATH,
        Partitions::None,
        BY_PATH,
    ];
    for (number, partitions) in ways.into_iter().enumerate() {
        let report = run(&world, partitions);
        assert_eq!(report.manifests_kept, 0);
        assert_eq!(report.backup.summary.bytes_read > 0, number == 0, "{partitions:?}");
        // They hold all that there is, and no others are left.
        let tags: BTreeSet<_> = manifests(&world).into_iter().collect();
        let told: BTreeSet<_> =
            report.turns.iter().map(|turn| vec![format!("partition={}", turn.name)]).collect();
        match partitions {
            Partitions::None | Partitions::Volume => {
                assert_eq!(tags, BTreeSet::from([Vec::new()]));
            }
            _ => assert_eq!(tags, told),
        }
        assert_whole(&world, &files);
        let job = Job::unattended().0;
        let read = scrub(&world.repository(), &world.share(), 1.0, &job).unwrap();
        let bytes: u64 = files.values().map(|data| data.len() as u64).sum();
        assert_eq!((read.files, read.bytes), (files.len() as u64, bytes), "{partitions:?}");
        assert_eq!((read.bytes_total, read.damaged), (bytes, 0));
    }
}

#[test]
fn stubs_that_were_deleted_while_they_were_open_are_held_by_a_turn() {
    let Some(world) = World::new() else { return };
    let mut files = write_files(&world);
    run(&world, Partitions::Type);
    // As whoever serves the mount does; no other file is of its partition any more.
    let data = files.remove("c/five").unwrap();
    drop(world.share().note_move().unwrap());
    let deleted = ".onefold-share/open/1";
    fs::rename(world.path("c/five"), world.path(deleted)).unwrap();
    for partitions in [Partitions::Type, BY_PATH] {
        let report = run(&world, partitions);
        assert_eq!(report.manifests_kept, 0);
        assert_whole(&world, &files);
        world.assert_holds(deleted, &data);
    }
}

#[test]
fn what_partitions_have_in_common_is_estimated() {
    let Some(world) = World::new() else { return };
    // Fingerprints are random: of 366 chunks a sample has two and more, but once in ten thousand.
    let common = random_bytes(1, 24_000_000);
    for name in ["one.txt", "two.jpg"] {
        fs::write(world.path(name), &common).unwrap();
    }
    world.write("three.zip", &random_bytes(2, 4_000_000));
    let report = run(&world, Partitions::Type);
    let told = report.in_common();
    // The directory is in all of them, and may be in the sample.
    let is_directory = |pair: &&([&str; 2], u64)| pair.1 == 1 << SAMPLE_BITS;
    let pairs: Vec<_> = told.iter().filter(|pair| !is_directory(pair)).collect();
    let [([one, other], chunks)] = pairs.as_slice() else { panic!("{told:?}") };
    assert_eq!([*one, *other], ["type:text", "type:media"]);
    let there = report.turns[0].summary.chunks;
    assert!((there / 3..there * 3).contains(chunks), "{chunks} of {there}");
    // It is stored twice, until a collection keeps one.
    assert_eq!(report.worth_reconciling(), [*one, *other]);
    assert!((*chunks..*chunks + (4 << SAMPLE_BITS)).contains(&report.chunks_stored_twice()));
    let repository = world.repository();
    assert!(is_worth_for(&repository, report.chunks_stored_twice()).unwrap());
    let entries = FingerprintIndex::shared(&repository).unwrap().entries();
    let least = (0..entries).find(|chunks| is_worth_for(&repository, *chunks).unwrap()).unwrap();
    assert!((entries / 25..entries / 15).contains(&least), "{least} of {entries}");
    world.collect();
    let report = run(&world, Partitions::Type);
    assert!(!report.in_common().is_empty());
    assert!(report.worth_reconciling().is_empty());
    assert_eq!(report.chunks_stored_twice(), 0);
    assert!(run(&world, Partitions::None).in_common().is_empty());
}

#[test]
fn a_file_with_names_in_several_partitions_becomes_a_stub_with_the_last_of_them() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(71, 50_000);
    world.write("a.txt", &data);
    world.write("other.zip", &random_bytes(72, 1000));
    std::fs::hard_link(world.path("a.txt"), world.path("b.zip")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let report = run(&world, Partitions::Type);
    assert_eq!((report.emptied.files, report.files_linked), (2, 0), "{report:?}");
    world.collect();
    for name in ["a.txt", "b.zip"] {
        world.assert_holds(name, &data);
    }
    run(&world, Partitions::None);
    world.collect();
    world.assert_holds("b.zip", &data);
}

#[test]
fn by_volume_a_share_is_one_part_apart_from_backups_and_other_shares() {
    let Some(world) = World::new() else { return };
    let (common, own) = (random_bytes(81, 400_000), random_bytes(82, 300_000));
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), &common).unwrap();
    save(&world.repository(), paths(outside.path()));
    for (name, data) in [("a.txt", &common), ("b.jpg", &own), ("c.zip", &own)] {
        world.write(name, data);
    }
    let report = run(&world, Partitions::Volume);
    assert_eq!(names(&report), ["volume"]);
    assert_eq!(report.turns[0].index.asked_whole, 0);
    let stored =
        |world: &World| statistics(&world.repository(), &Job::unattended().0).unwrap().bytes_data;
    assert_eq!(stored(&world), 2 * 400_000 + 300_000);
    // It is the manifest of all files: whoever does not divide goes on with it.
    assert_eq!(manifests(&world), [Vec::<String>::new()]);
    world.collect();
    assert!(stored(&world) < 800_000);
    for (name, data) in [("a.txt", &common), ("b.jpg", &own), ("c.zip", &own)] {
        world.assert_holds(name, data);
    }
    run(&world, Partitions::None);
    let again = run(&world, Partitions::Volume);
    assert_eq!((again.backup.snapshot, again.manifests_forgotten), (None, 0));
    // What the share has is found, wherever it was stored first.
    world.write("more.txt", &common);
    let more = run(&world, Partitions::Volume);
    assert!(more.turns[0].summary.bytes_new < 1000, "{more:?}");
}

/// One run with so much memory for the index of a part.
fn run_within(world: &World, part_index_bytes: usize) -> OptimizeReport {
    let repository = open_with(&world.store, MemoryPlan { part_index_bytes, ..plan() });
    let options = OptimizeOptions { partitions: Partitions::Type, ..options() };
    let report = optimize(&repository, &world.share(), &options, &Job::unattended().0).unwrap();
    assert_eq!(report.backup.summary.errors + report.errors, 0);
    report
}

fn beyond(report: &OptimizeReport) -> Vec<&str> {
    let beyond = report.turns.iter().filter(|turn| turn.index.is_beyond_memory);
    beyond.map(|turn| turn.name.as_str()).collect()
}

#[test]
fn a_part_of_one_chunk_more_than_there_is_memory_for_asks_the_index_of_the_store() {
    let Some(world) = World::new() else { return };
    let mut files = write_files(&world);
    run(&world, Partitions::Type);
    world.collect();
    run(&world, Partitions::Type);
    let report = run(&world, Partitions::Type);
    let largest = report.turns.iter().max_by_key(|turn| turn.index.chunks).unwrap();
    assert_eq!(largest.name, "type:text");
    let chunks = largest.index.chunks as usize;
    let bytes = (0..).find(|bytes| chunks_within(*bytes) == chunks).unwrap();
    assert!(beyond(&run_within(&world, bytes)).is_empty());
    let report = run_within(&world, bytes - 1);
    assert_eq!(beyond(&report), ["type:text"]);
    let text = report.turns.iter().find(|turn| turn.name == "type:text").unwrap();
    assert_eq!((text.index.chunks, text.index.memory_bytes), (0, 0));
    // What a turn adds is beyond as well, and then other parts' chunks are found, too.
    let zip = [files["b/four.zip"].as_slice(), b"!"].concat();
    world.write("new.txt", &random_bytes(90, 1_000_000));
    world.write("new/same.txt", &zip);
    let report = run_within(&world, bytes);
    assert_eq!(beyond(&report), ["type:text"]);
    files.insert("new.txt", random_bytes(90, 1_000_000));
    files.insert("new/same.txt", zip.clone());
    assert_whole(&world, &files);
    world.write("new/again.txt", &zip);
    let report = run_within(&world, 0);
    assert_eq!(beyond(&report).len(), report.turns.len());
    assert!(report.backup.summary.bytes_new < 100_000, "{report:?}");
    files.insert("new/again.txt", zip);
    assert_whole(&world, &files);
}

#[test]
fn a_part_whose_memory_others_have_asks_the_index_of_the_store_and_gives_back_what_it_took() {
    let Some(world) = World::new() else { return };
    let files = write_files(&world);
    run(&world, Partitions::Type);
    let repository = world.repository();
    let left = |repository: &Arc<Repository>| repository.purse().left_bytes();
    let options = OptimizeOptions { partitions: Partitions::Type, ..options() };
    let run = || optimize(&repository, &world.share(), &options, &Job::unattended().0).unwrap();
    run();
    // Smaller parts would not help where others have the memory.
    let blames_others = |report: &OptimizeReport| -> BTreeSet<bool> {
        report.turns.iter().map(|turn| turn.index.is_memory_taken).collect()
    };
    let before = left(&repository);
    let report = run();
    assert!(beyond(&report).is_empty());
    assert_eq!(blames_others(&report), BTreeSet::from([false]));
    assert_eq!(left(&repository), before);
    let all = repository.purse().take(usize::MAX);
    let report = run();
    assert_eq!(beyond(&report).len(), report.turns.len());
    assert_eq!(blames_others(&report), BTreeSet::from([true]));
    drop(all);
    assert_eq!(left(&repository), before);
    assert_whole(&world, &files);
}
