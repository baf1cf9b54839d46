//! Checks of whole, damaged and healed stores.

use crate::steps::*;
use onefold_crypto::{Purpose, Suite};
use onefold_engine::Repository;
use onefold_engine::check::{self, CheckOptions, ReadData};
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex};
use onefold_engine::session::{SnapshotList, quarantine};
use onefold_engine::tree::directory::{DirectoryBuilder, NoNames};
use onefold_format::layout;
use onefold_format::node::{DirectoryLeaf, Entry, EntryKind, Node, Reference};
use onefold_format::record::{self, Outcome};
use onefold_store::layers::{Counting, Fault, Faulty, Operation};
use onefold_store::{Blobs, Decisions, MemoryStore};
use onefold_types::{ContainerId, ErrorKind, Level, SessionId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn items() -> Vec<Item> {
    vec![
        directory("a", [file("one", 1, 300_000), file("two", 2, 20_000)]),
        directory("b", [file("three", 3, 400_000)]),
        file("small", 4, 100),
    ]
}

/// The containers that hold the data of a file, by its first chunk.
fn container_of(repository: &Arc<Repository>, bytes: &[u8]) -> ContainerId {
    let chunk = &bytes[..bytes.len().min(CHUNK_BYTES)];
    let fingerprint = repository.fingerprinter().data(chunk);
    let index = FingerprintIndex::open(repository).unwrap();
    index.locate(repository, &fingerprint, &mut 0).unwrap()[0]
}

fn paths_of(report: &check::CheckReport, snapshot: SessionId) -> Vec<&str> {
    let damaged = report.damaged_paths.iter();
    damaged.filter(|path| path.snapshot == snapshot).map(|path| path.path.as_str()).collect()
}

#[test]
fn a_sound_store_is_clean_and_nothing_is_written() {
    for suite in [Suite::None, Suite::Aes256Gcm] {
        let memory = MemoryStore::recording();
        let repository = create_on(Arc::new(memory.clone()), suite);
        save(&repository, &items());
        save(&repository, &items()[..2]);
        let before = memory.operations();
        for read_data in [ReadData::None, ReadData::All] {
            let report = check_with(&repository, read_data);
            assert!(report.is_clean(), "{report:?}");
            assert_eq!(report.notes, [""; 0]);
            assert_eq!(report.snapshots, 2);
            assert_eq!(report.containers, containers(&repository).len() as u64);
        }
        assert_eq!(memory.operations(), before, "a check wrote something");
        let read = check_all(&repository);
        let figures = onefold_engine::statistics::statistics(&repository, &job()).unwrap();
        assert_eq!(read.containers_read, figures.containers);
        assert_eq!(read.chunks_verified, figures.chunks_data + figures.chunks_nodes);
        assert_eq!(read.bytes_verified, figures.bytes_data + figures.bytes_nodes);
        assert!(figures.bytes_data >= 720_100);
    }
}

#[test]
fn data_is_read_with_one_request_a_container() {
    let store = Arc::new(Counting::new(MemoryStore::new()));
    let repository = create_on(Arc::clone(&store) as _, Suite::None);
    save(&repository, &items());
    let containers = containers(&repository).len() as u64;
    let requests = |read_data| {
        store.take();
        check_with(&repository, read_data);
        let counts = store.take();
        let of = |operation| counts.of("containers", operation).calls;
        [Operation::Get, Operation::GetRange, Operation::GetTail].map(of)
    };
    // One instead of two, which are for the header and for the section; trees are read either way.
    let [structure, data] = [ReadData::None, ReadData::All].map(requests);
    assert_eq!(data, [0, structure[1], structure[2] - containers]);
}

#[test]
fn parts_cover_everything_once() {
    let (memory, repository) = create();
    for seed in 0..12 {
        save(&repository, &[file("f", seed, 300_000)]);
    }
    let all = containers(&repository).len() as u64;
    let of = 3;
    let reads: Vec<u64> = (1..=of)
        .map(|part| check_with(&repository, ReadData::Part { part, of }).containers_read)
        .collect();
    assert_eq!(reads.iter().sum::<u64>(), all);
    assert!(reads.iter().all(|&read| read < all), "{reads:?}");
    // Where data is wrong one of the parts finds it, and no other.
    let places = containers(&repository).into_iter().map(|id| key(layout::container(id)));
    let of_data = places.filter(|place| memory.size(place).unwrap() > 200_000);
    for place in of_data.step_by(3) {
        let spoiled = memory.clone_state();
        spoiled.corrupt(&place, |bytes| bytes[100_000] ^= 1);
        let repository = reopen(&spoiled, 3);
        let finds = |part: &u32| {
            let read_data = ReadData::Part { part: *part, of };
            let options = CheckOptions { read_data, threads: 1, record_quarantine: false };
            !check::check(&repository, options, &job()).unwrap().is_clean()
        };
        assert_eq!((1..=of).filter(finds).count(), 1, "{place:?}");
    }
    let sampled = check_with(&repository, ReadData::Sample(100.0));
    assert_eq!(sampled.containers_read, all);
    let sampled = check_with(&repository, ReadData::Sample(50.0));
    assert!(sampled.containers_read > 0 && sampled.containers_read < all);
    for wrong in [
        ReadData::Part { part: 0, of: 3 },
        ReadData::Part { part: 4, of: 3 },
        ReadData::Sample(0.0),
        ReadData::Sample(f64::NAN),
        ReadData::Sample(101.0),
    ] {
        let options = CheckOptions { read_data: wrong, threads: 1, record_quarantine: false };
        let error = check::check(&repository, options, &job()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong:?}");
    }
}

#[test]
fn r20_a_lost_container_is_named_by_path_and_healed_by_the_next_backup() {
    let (memory, repository) = create();
    let first = save(&repository, &items());
    let second = save(&repository, &items()[1..]);
    let lost = container_of(&repository, &random_bytes(3, 400_000));
    assert!(memory.remove(&key(layout::container(lost))));

    let report = check_with(&repository, ReadData::None);
    assert_eq!(report.damaged_containers, [(lost, "it is missing".to_owned())]);
    assert!(paths_of(&report, first).contains(&"/b/three"), "{report:?}");
    assert!(paths_of(&report, second).contains(&"/b/three"));
    assert!(!paths_of(&report, first).contains(&"/b"), "only what is damaged itself");
    assert_eq!(quarantine::load_ids(&repository).unwrap(), BTreeSet::from([lost]));

    // A new process that backs up the same data stores again what was lost.
    let later = reopen(&memory, 9);
    save(&later, &items());
    let report = check_all(&later);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.healed_containers, [lost]);
}

#[test]
fn r20_a_rotten_container_is_avoided_and_healed() {
    let (memory, repository) = create();
    let snapshot = save(&repository, &items());
    let rotten = container_of(&repository, &random_bytes(1, 300_000));
    // A byte of the first frame: the metadata section stays readable.
    assert!(memory.corrupt(&key(layout::container(rotten)), |bytes| bytes[100] ^= 1));

    assert!(check_with(&repository, ReadData::None).is_clean(), "structure is sound");
    let report = check_all(&repository);
    assert_eq!(report.damaged_containers.len(), 1);
    assert_eq!(report.damaged_containers[0].0, rotten);
    let damaged = paths_of(&report, snapshot);
    assert!(damaged.contains(&"/a/one"), "{damaged:?}");
    // Its other frames can be read, so files in those alone are not damaged.
    assert!(!damaged.contains(&"/small"), "{damaged:?}");

    save(&repository, &items());
    let report = check_all(&repository);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.healed_containers, [rotten]);
}

#[test]
fn a_restored_container_leaves_quarantine() {
    let (memory, repository) = create();
    save(&repository, &items());
    let container = container_of(&repository, &random_bytes(1, 300_000));
    let place = key(layout::container(container));
    memory.corrupt(&place, |bytes| bytes[100] ^= 1);
    check_all(&repository);
    assert_eq!(quarantine::load_ids(&repository).unwrap().len(), 1);
    memory.corrupt(&place, |bytes| bytes[100] ^= 1);
    // Even a check of the structure reads it whole, because it is in quarantine.
    let report = check_with(&repository, ReadData::None);
    assert!(report.is_clean());
    assert_eq!((report.containers_read, report.notes.len()), (1, 1));
    assert!(quarantine::load_ids(&repository).unwrap().is_empty());
}

#[test]
fn a_container_under_another_name_is_noticed_without_reading_it() {
    let (memory, repository) = create();
    save(&repository, &items());
    let container = *containers(&repository).first().unwrap();
    let place = key(layout::container(container));
    memory.corrupt(&place, |bytes| bytes[20] ^= 1);
    let report = check_with(&repository, ReadData::None);
    assert_eq!(report.damaged_containers.len(), 1, "{report:?}");
    assert!(report.damaged_paths.is_empty(), "its chunks can be read");
    // A version that is not ours is damage too, because everything sealed opens (R26).
    memory.corrupt(&place, |bytes| (bytes[20], bytes[8]) = (bytes[20] ^ 1, 9));
    let report = check_with(&repository, ReadData::None);
    assert_eq!(report.damaged_containers.len(), 1, "{report:?}");
}

#[test]
fn quarantine_is_recorded_only_if_asked_for() {
    let (memory, repository) = create();
    save(&repository, &items());
    let container = *containers(&repository).first().unwrap();
    memory.corrupt(&key(layout::container(container)), |bytes| bytes.truncate(200));
    let before = memory.operations();
    let options = CheckOptions { read_data: ReadData::None, threads: 1, record_quarantine: false };
    let report = check::check(&repository, options, &job()).unwrap();
    assert!(!report.is_clean());
    assert_eq!(memory.operations(), before);
}

#[test]
fn a_forged_quarantine_counts_for_nothing() {
    let (memory, repository) = create();
    save(&repository, &items());
    let container = *containers(&repository).first().unwrap();
    memory.put(&key(layout::damage(container)), &[7; 80]).unwrap();
    assert!(quarantine::load_ids(&repository).unwrap().is_empty());
    assert_eq!(check_all(&repository).problems.len(), 1);
}

/// Bytes that carry nothing, so that nobody needs to notice a change.
fn is_idle(name: &str, position: usize, length: usize) -> bool {
    let from_end = length - position;
    match name.split('/').next().unwrap() {
        "metadata" => (10..16).contains(&position),
        "index" => (9..=14).contains(&from_end),
        // In front of the footer's magic.
        "containers" => (9..=12).contains(&from_end),
        _ => false,
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let (memory, repository) = create();
    save(&repository, &[file("f", 1, 30_000), file("g", 2, 10)]);
    save(&repository, &[file("h", 3, 10)]);
    for name in names(&memory, "") {
        let place = key(name.as_str());
        let length = memory.get(&place).unwrap().len();
        let step = (length / 24).max(1);
        for position in (0..length).step_by(step).chain(length.saturating_sub(44)..length) {
            if is_idle(&name, position, length) {
                continue;
            }
            let copy = memory.clone_state();
            copy.corrupt(&place, |bytes| bytes[position] ^= 0x20);
            let opened = open_on(Arc::new(copy), 5);
            let noticed = match opened {
                Err(_) => true,
                Ok(repository) => {
                    let options = CheckOptions {
                        read_data: ReadData::All,
                        threads: 1,
                        record_quarantine: false,
                    };
                    let report = check::check(&repository, options, &job());
                    report.is_err() || report.is_ok_and(|report| !report.is_clean())
                }
            };
            assert!(noticed, "byte {position} of {length} in {name}");
        }
    }
}

#[test]
fn r30_a_truncated_copy_is_named() {
    for (name, half) in [("config", true), ("config.copy", true), ("config.copy", false)] {
        let (memory, _) = create();
        if half {
            memory.corrupt(&key(name), |bytes| bytes.truncate(bytes.len() / 2));
        } else {
            memory.remove(&key(name));
        }
        let report = check_all(&reopen(&memory, 2));
        assert_eq!(report.problems.len(), 1, "{name}: {report:?}");
        assert!(report.problems[0].contains(name));
    }
    let (memory, _) = create();
    let slot = names(&memory, "keys").pop().unwrap();
    memory.corrupt(&key(slot.as_str()), |bytes| bytes.clear());
    let report = check_all(&reopen(&memory, 2));
    assert!(report.problems[0].contains(&slot), "{report:?}");
}

#[test]
fn r26_what_is_newer_is_not_damage() {
    // A tree node of a kind that this version does not know.
    let (memory, repository) = create();
    let level = Level(1);
    let fingerprint = put_with(&repository, |stream| stream.put_node(level, &[1, 9, 0]).unwrap());
    save_root(&repository, Reference { fingerprint, level });
    let options = CheckOptions { read_data: ReadData::All, threads: 2, record_quarantine: true };
    let before = memory.operations();
    let error = check::check(&repository, options, &job()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
    assert_eq!(memory.operations(), before);

    // A snapshot record of a newer version, beside a container that is truly damaged.
    let (memory, repository) = create();
    let snapshot = save(&repository, &items());
    let container = *containers(&repository).first().unwrap();
    memory.remove(&key(layout::container(container)));
    let mut newer = record_of(&repository, root_of(&repository, snapshot));
    newer.version = record::RECORD_VERSION + 1;
    let text = String::from_utf8(record::encode(&Outcome::Committed(Box::new(newer))).unwrap());
    let text = text.unwrap().replace("\"host\"", "\"machine\"");
    let id = SessionId([3; 16]);
    let randomness = &*repository.environment().randomness;
    let sealed = repository
        .vault()
        .seal_record(Purpose::Outcome, &id.0, text.as_bytes(), randomness)
        .unwrap();
    memory.decide(&key(layout::outcome(id)), &sealed).unwrap();
    let before = memory.operations();
    let error = check::check(&repository, options, &job()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
    assert_eq!(memory.operations(), before);
}

/// Commits a root directory of one leaf with the given entries at the given level.
fn save_leaf(repository: &Arc<Repository>, entries: Vec<Entry>, level: Level) -> SessionId {
    let node = Node::DirectoryLeaf(DirectoryLeaf { entries, ..DirectoryLeaf::default() });
    let bytes = node.encode();
    let fingerprint = put_with(repository, |stream| stream.put_node(level, &bytes).unwrap());
    save_root(repository, Reference { fingerprint, level })
}

#[test]
fn sizes_totals_and_levels_must_add_up() {
    let (_, repository) = create();
    let bytes = random_bytes(1, 1_000_000);
    let (content, below) = put_with(&repository, |stream| {
        let content = put_file(&repository, stream, &bytes).unwrap();
        (content, put_directory(&repository, stream, &items()))
    });
    let file_of = |size: u64| Entry { content: Some(content), size, ..entry("f", EntryKind::File) };
    let mut totals = below.totals;
    let directory_of = |totals| Entry {
        content: Some(below.reference),
        totals,
        ..entry("d", EntryKind::Directory)
    };
    let level = content.level.max(below.reference.level).parent().unwrap();
    let good = vec![directory_of(totals), file_of(1_000_000)];
    save_leaf(&repository, good, level);
    assert!(check_all(&repository).is_clean());

    totals.bytes += 1;
    let bad = vec![directory_of(totals), file_of(1_000_001)];
    let snapshot = save_leaf(&repository, bad, level);
    let report = check_all(&repository);
    assert_eq!(paths_of(&report, snapshot), ["/d", "/f"]);
    assert_eq!(report.damaged_paths.len(), 2, "{report:?}");

    let (_, repository) = create();
    let snapshot = save_leaf(&repository, Vec::new(), Level(2));
    let report = check_all(&repository);
    assert_eq!(paths_of(&report, snapshot), ["/"]);
}

#[test]
fn a_wrong_chunk_length_is_noticed() {
    let (_, repository) = create();
    let content = put_with(&repository, |stream| {
        put_file(&repository, stream, &random_bytes(1, 100)).unwrap()
    });
    let file = Entry { content: Some(content), size: 99, ..entry("f", EntryKind::File) };
    let snapshot = save_leaf(&repository, vec![file], Level(1));
    assert_eq!(paths_of(&check_all(&repository), snapshot), ["/f"]);
}

#[test]
fn a_subtree_is_walked_once_however_often_it_is_used() {
    let (_, repository) = create();
    // Every directory holds the one below it twice: a million million paths, forty nodes.
    let root = put_with(&repository, |stream| {
        let mut below = put_directory(&repository, stream, &[file("f", 1, 10)]);
        for _ in 0..40 {
            let mut builder = DirectoryBuilder::default();
            for name in ["a", "b"] {
                let directory = Entry {
                    content: Some(below.reference),
                    totals: below.totals,
                    ..entry(name, EntryKind::Directory)
                };
                builder.push(directory, &NoNames, stream).unwrap();
            }
            below = builder.finish(&NoNames, stream).unwrap();
        }
        below.reference
    });
    save_root(&repository, root);
    assert!(check_all(&repository).is_clean());
}

#[test]
fn r76_equal_directories_in_any_number_of_places_are_counted_once() {
    let (memory, repository) = create();
    let content = random_bytes(1, 100);
    let root = put_with(&repository, |stream| {
        let file = Entry {
            content: put_file(&repository, stream, &content),
            size: 100,
            ..entry("lost", EntryKind::File)
        };
        let mut builder = DirectoryBuilder::default();
        builder.push(file, &NoNames, stream).unwrap();
        let mut below = builder.finish(&NoNames, stream).unwrap();
        for _ in 0..30 {
            let mut builder = DirectoryBuilder::default();
            for number in 0..16 {
                let directory = Entry {
                    content: Some(below.reference),
                    totals: below.totals,
                    ..entry(&format!("{number:02}"), EntryKind::Directory)
                };
                builder.push(directory, &NoNames, stream).unwrap();
            }
            below = builder.finish(&NoNames, stream).unwrap();
        }
        below.reference
    });
    save_root(&repository, root);
    memory.remove(&key(layout::container(container_of(&repository, &content))));
    let report = check_all(&repository);
    assert_eq!(report.damaged_paths.len(), 1000);
    assert_eq!(report.damaged_paths_more, u64::MAX - 1000, "16 to the 30th");
    // Whoever lists them can be stopped.
    let stopped = job();
    stopped.interrupt.request();
    let options = CheckOptions { read_data: ReadData::None, threads: 1, record_quarantine: true };
    let error = check::check(&repository, options, &stopped).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}

#[test]
fn many_damaged_paths_are_counted() {
    let (memory, repository) = create();
    let root = put_with(&repository, |stream| {
        let content = put_file(&repository, stream, &random_bytes(1, 100));
        let mut builder = DirectoryBuilder::default();
        for number in 0..1500 {
            let file =
                Entry { content, size: 100, ..entry(&format!("{number:04}"), EntryKind::File) };
            builder.push(file, &NoNames, stream).unwrap();
        }
        builder.finish(&NoNames, stream).unwrap()
    });
    assert!(root.reference.level > Level(1), "the directory has several leaves");
    save_root(&repository, root.reference);
    assert!(check_all(&repository).is_clean());
    let lost = container_of(&repository, &random_bytes(1, 100));
    memory.remove(&key(layout::container(lost)));
    let report = check_all(&repository);
    assert_eq!(report.damaged_paths.len(), 1000);
    assert_eq!(report.damaged_paths_more, 500);
    assert_eq!(report.damaged_paths[0].path, "/0000");
}

#[test]
fn an_interrupted_check_stops() {
    let (memory, repository) = create();
    save(&repository, &items());
    let container = *containers(&repository).first().unwrap();
    memory.remove(&key(layout::container(container)));
    let before = memory.operations();
    let job = job();
    job.interrupt.request();
    let options = CheckOptions { read_data: ReadData::All, threads: 2, record_quarantine: true };
    let error = check::check(&repository, options, &job).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(memory.operations(), before);
}

#[test]
fn little_memory_costs_time_and_finds_the_same() {
    let (memory, repository) = create();
    let snapshot = save(&repository, &items());
    let lost = container_of(&repository, &random_bytes(3, 400_000));
    memory.remove(&key(layout::container(lost)));
    let mut plan = memory_plan();
    plan.restore_window_chunks = 0;
    plan.section_cache_bytes = 0;
    plan.locality_cache_bytes = 0;
    plan.summary_vector_bytes = 0;
    let password = || Ok(onefold_engine::repository::Password::new(PASSWORD.to_vec()));
    let small = Repository::open(Arc::new(memory.clone()), password, environment(3), plan);
    let few = check_all(&Arc::new(small.unwrap()));
    let usual = check_all(&repository);
    assert_eq!(paths_of(&few, snapshot), paths_of(&usual, snapshot));
    assert!(!few.damaged_paths.is_empty());
}

#[test]
fn what_may_not_be_read_or_is_busy_is_no_damage() {
    let (memory, repository) = create();
    let id = save(&repository, &[file("a", 1, 300_000)]);
    for kind in [ErrorKind::NotPermitted, ErrorKind::Unavailable] {
        for top in ["containers/", "outcomes/"] {
            let before = names(&memory, "");
            let refusing = Faulty::scripted(memory.clone(), move |call| {
                let is_read = matches!(
                    call.operation,
                    Operation::Get | Operation::GetRange | Operation::GetTail | Operation::Decided
                );
                match is_read && call.name.starts_with(top) {
                    true => Fault::Before(kind),
                    false => Fault::None,
                }
            });
            let repository = open_on(Arc::new(refusing), 9).unwrap();
            for read_data in [ReadData::None, ReadData::All] {
                let options = CheckOptions { read_data, threads: 1, record_quarantine: true };
                let error = check::check(&repository, options, &job()).unwrap_err();
                assert_eq!(error.kind(), kind, "{top}: {error}");
            }
            assert_eq!(names(&memory, ""), before, "{top}: nothing was written");
        }
    }
    assert!(check_all(&reopen(&memory, 10)).is_clean());
    assert!(SnapshotList::load(&repository).unwrap().get(id).is_some());
}

#[test]
fn a_container_that_goes_while_a_check_walks_is_no_damage() {
    let (memory, repository) = create();
    let root = root_of(&repository, save(&repository, &items()));
    let holder = |repository: &Arc<Repository>| {
        let index = FingerprintIndex::open(repository).unwrap();
        index.locate(repository, &root.fingerprint, &mut 0).unwrap()[0]
    };
    // What it holds is stored a second time, as a collection does before it deletes.
    let old = holder(&repository);
    memory.corrupt(&key(layout::container(old)), |bytes| bytes[100] ^= 1);
    check_all(&repository);
    let later = reopen(&memory, 9);
    save(&later, &items());
    memory.corrupt(&key(layout::container(old)), |bytes| bytes[100] ^= 1);
    assert!(check_all(&later).is_clean());
    let new = holder(&later);
    assert_ne!(new, old, "the newest is asked first");
    // Elsewhere something is damaged indeed, so that nothing is excused as forgotten.
    let other = container_of(&later, &random_bytes(3, 400_000));
    assert!(![old, new].contains(&other));
    assert!(memory.remove(&key(layout::container(other))));

    let (name, is_gone) = (layout::container(new), AtomicBool::new(false));
    let vanishing = Faulty::scripted(memory.clone(), move |call| {
        // Its header and its section are read first, and then a frame.
        let is_frame = call.operation == Operation::GetRange
            && call.size_bytes != onefold_format::container::HEADER_BYTES as u64;
        match call.name == name && (is_frame || is_gone.load(Ordering::Relaxed)) {
            true => {
                is_gone.store(true, Ordering::Relaxed);
                Fault::Before(ErrorKind::NotFound)
            }
            false => Fault::None,
        }
    });
    let report = check_with(&open_on(Arc::new(vanishing), 11).unwrap(), ReadData::None);
    assert_eq!(report.damaged_containers, [(other, "it is missing".to_owned())]);
    assert_eq!(quarantine::load_ids(&later).unwrap(), BTreeSet::from([other]));
}
