//! What placements cost and spare: openings of the index, and how plans count by them.

use super::{make_mixed, new_store, record_of, save_tree};
use crate::ingest::{create, open, random_bytes, stream};
use crate::rewriting::{restore_options, rewriting, save, save_with, unkeyed};
use crate::steps::put_with;
use onefold_engine::ingest::{BackupOptions, ParentChoice};
use onefold_engine::patterns::Patterns;
use onefold_engine::placement::PlacedItem;
use onefold_engine::restore::request_costs::Reach;
use onefold_engine::restore::{DumpOptions, PlanReport, RestoreOptions, dump, plan, restore};
use onefold_engine::tree::TreeReader;
use onefold_engine::{InitOptions, Job, Repository};
use onefold_format::layout;
use onefold_format::node::{Entry, EntryKind, Node, PlacementMap, Reference};
use onefold_format::record::SnapshotRecord;
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::{Level, limits};
use std::fs;
use std::sync::Arc;

fn placed(record: &SnapshotRecord) -> Option<PlacedItem> {
    record.placement.map(|placement| PlacedItem { placement, first_chunk: 0 })
}

fn top(root: Reference) -> Entry {
    Entry { kind: EntryKind::Directory, content: Some(root), ..Entry::default() }
}

/// How often the index is listed: twice when it is opened first, once whenever somebody opens it
/// again and it has not changed.
fn listings(counting: &Counting<MemoryStore>, run: &mut dyn FnMut()) -> u64 {
    counting.take();
    run();
    counting.take().of("index", Operation::ListNames).calls
}

#[test]
fn the_index_is_listed_once_for_all_that_a_backup_reads() {
    let source = tempfile::tempdir().unwrap();
    make_mixed(source.path());
    let start = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(start.clone());
    create(&store, &unkeyed());
    save_tree(&store, source.path());
    fs::write(source.path().join("d1/new"), random_bytes(8, 60_000)).unwrap();
    crate::ingest::settle_times(source.path());
    // Always from the same state, so that merges list the index equally often.
    let count = |options: &BackupOptions| {
        let counting = Arc::new(Counting::new(start.clone_state()));
        let store = Arc::clone(&counting) as Arc<dyn Store>;
        let mut unchanged = 0;
        let listings = listings(&counting, &mut || {
            let repository = open(&store);
            unchanged = save(&repository, source.path(), options).summary.files_unchanged;
        });
        (listings, unchanged)
    };
    let alone = BackupOptions { parent: ParentChoice::None, ..rewriting("none") };
    let (without_parent, unchanged) = count(&alone);
    assert_eq!(unchanged, 0);
    // Twice until two listings agree; once before runs are merged; once with the own run.
    assert_eq!(without_parent, 4);
    for choice in ["none", "capping,level=2", "auto", "auto,loss=20", "history,loss=20"] {
        let (listings, unchanged) = count(&rewriting(choice));
        assert!(unchanged > 100, "{choice}: {unchanged}");
        assert_eq!(listings, without_parent, "{choice}");
    }
}

#[test]
fn restores_dumps_and_plans_take_the_index_at_hand_with_a_placement_or_without() {
    let source = tempfile::tempdir().unwrap();
    make_mixed(source.path());
    let counting = Arc::new(Counting::new(MemoryStore::new()));
    let store = Arc::clone(&counting) as Arc<dyn Store>;
    create(&store, &unkeyed());
    let (_, id) = save_tree(&store, source.path());
    let repository = open(&store);
    let record = record_of(&repository, id);
    let path = source.path().join("d1/large");
    let name = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let reader = TreeReader::open(&repository).unwrap();
    let (file, first_chunk) = reader.resolve_place(record.root, name).unwrap();
    let job = Job::unattended().0;
    for is_placed in [false, true] {
        let placed = placed(&record).filter(|_| is_placed);
        let target = tempfile::tempdir().unwrap();
        let options = RestoreOptions { placed, ..restore_options(target.path()) };
        let of_restore = listings(&counting, &mut || {
            let report = restore(&repository, &top(record.root), &options, &job).unwrap();
            assert_eq!(
                (report.chunks_looked_up == 0, report.chunks_guided > 0),
                (is_placed, is_placed)
            );
        });
        let of_plan = listings(&counting, &mut || {
            let report = plan(&repository, &top(record.root), &options, &job).unwrap();
            assert_eq!(report.chunks_guided == report.chunks, is_placed);
        });
        let placed = placed.map(|item| PlacedItem { first_chunk, ..item });
        let options = DumpOptions { placed, ..DumpOptions::default() };
        let of_dump = listings(&counting, &mut || {
            let mut bytes = Vec::new();
            dump(&repository, &file, &options, &mut bytes, &job).unwrap();
            assert_eq!(bytes, fs::read(&path).unwrap());
        });
        assert_eq!((of_restore, of_plan, of_dump), (0, 0, 0));
    }
}

fn planned(
    repository: &Arc<Repository>,
    record: &SnapshotRecord,
    lists: [&[&str]; 2],
) -> PlanReport {
    let patterns = |list: &[&str]| {
        let lines: Vec<String> = list.iter().map(|line| (*line).to_owned()).collect();
        Patterns::build(&lines, &[]).unwrap()
    };
    let options = RestoreOptions {
        placed: placed(record),
        include: patterns(lists[0]),
        exclude: patterns(lists[1]),
        ..restore_options(std::path::Path::new("/nowhere"))
    };
    plan(repository, &top(record.root), &options, &Job::unattended().0).unwrap()
}

#[test]
fn a_plan_counts_the_places_of_what_it_passes_over() {
    let source = tempfile::tempdir().unwrap();
    make_mixed(source.path());
    let store = new_store();
    let (report, id) = save_tree(&store, source.path());
    let repository = open(&store);
    let record = record_of(&repository, id);
    let all = planned(&repository, &record, [&[], &[]]);
    // Four of them are empty, and need no chunk.
    assert_eq!((all.files, all.bytes), (report.summary.files, report.summary.bytes));
    assert_eq!((all.chunks_guided, all.chunks_missing), (all.chunks, 0));
    let containers = all.containers;
    let lists: [[&[&str]; 2]; 5] = [
        [&[], &["s1*"]],
        [&[], &["d1", "large"]],
        [&["s20"], &[]],
        [&["d2"], &["below"]],
        [&["d2", "s03"], &["s0*", "empty"]],
    ];
    for lists in lists {
        let some = planned(&repository, &record, lists);
        assert!(some.chunks > 0 && some.chunks < all.chunks, "{lists:?}: {some:?}");
        // A place that was off would name another container, and the chunk would not be in it.
        assert_eq!(some.chunks_guided, some.chunks, "{lists:?}");
        assert!(some.containers <= containers);
    }
}

#[test]
fn a_damaged_placement_does_not_take_the_nodes_beside_it_away() {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    create(&store, &InitOptions { container_size_bytes: limits::MIB, ..unkeyed() });
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("file"), random_bytes(5, 50_000)).unwrap();
    let (_, id) = save_tree(&store, source.path());
    let repository = open(&store);
    let record = record_of(&repository, id);
    // A tree and a placement in one container, in frames of their own.
    let (root, placement) = put_with(&repository, |stream| {
        let file = TreeReader::open(&repository).unwrap();
        let root = copied_root(file, record.root);
        let put = |stream: &mut onefold_engine::chunk_store::StreamWriter, level, bytes: &[u8]| {
            let fingerprint = stream.put_node(Level(level), bytes).unwrap();
            Reference { fingerprint, level: Level(level) }
        };
        let root = put(stream, root.0.0, &root.1);
        for seed in 0..8 {
            put(stream, 1, &random_bytes(seed, limits::FRAME_PLAIN_TARGET_BYTES / 4));
        }
        let map = Node::PlacementMap(PlacementMap::default());
        (root, put(stream, 2, &map.encode()))
    });
    let reader = TreeReader::open(&repository).unwrap();
    let of_root = reader.chunks().locate(&root.fingerprint).unwrap();
    let of_placement = reader.chunks().locate(&placement.fingerprint).unwrap();
    assert_eq!(of_root.container, of_placement.container);
    let frame = of_placement.descriptor().frame;
    assert_ne!(of_root.descriptor().frame, frame);
    let start = of_placement.section.frames[frame as usize].offset as usize;
    let key = Key::new(layout::container(of_placement.container)).unwrap();
    assert!(memory.corrupt(&key, |bytes| bytes[start + 5] ^= 1));
    let repository = open(&store);
    let placed = Some(PlacedItem { placement, first_chunk: 0 });
    let target = tempfile::tempdir().unwrap();
    let options = RestoreOptions { placed, ..restore_options(target.path()) };
    let report = restore(&repository, &top(root), &options, &Job::unattended().0).unwrap();
    assert_eq!((report.errors, report.files, report.chunks_guided), (0, 1, 0));
}

/// The root of a tree with another time in it, so that it is a node of its own.
fn copied_root(reader: TreeReader, root: Reference) -> (Level, Vec<u8>) {
    let Node::DirectoryLeaf(mut leaf) = reader.node(root).unwrap() else { panic!("a leaf") };
    leaf.entries[0].modified.seconds += 1;
    (root.level, Node::DirectoryLeaf(leaf).encode())
}

#[test]
fn frames_that_lie_close_are_read_with_one_request_where_that_pays() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..24u64 {
        // Half of a byte is random: two frames and a gap fit into one request.
        let bytes: Vec<u8> = random_bytes(number, 200_000).iter().map(|byte| byte & 15).collect();
        fs::write(source.path().join(format!("f{number:02}")), bytes).unwrap();
    }
    let counting = Arc::new(Counting::new(MemoryStore::new()));
    let store = Arc::clone(&counting) as Arc<dyn Store>;
    create(&store, &InitOptions { container_size_bytes: 4 * limits::MIB, ..unkeyed() });
    let (_, id) = save_tree(&store, source.path());
    let repository = open(&store);
    let root = record_of(&repository, id).root;
    let wanted: Vec<String> = (0..24).step_by(4).map(|number| format!("f{number:02}")).collect();
    let cost = |reach| {
        let target = tempfile::tempdir().unwrap();
        let options = RestoreOptions {
            include: Patterns::build(&wanted, &[]).unwrap(),
            reach,
            ..restore_options(target.path())
        };
        counting.take();
        let report = restore(&repository, &top(root), &options, &Job::unattended().0).unwrap();
        let requests = counting.take().of("containers", Operation::GetRange).calls;
        for name in &wanted {
            let bytes = fs::read(source.path().join(name)).unwrap();
            let below = source.path().strip_prefix("/").unwrap().join(name);
            assert!(fs::read(target.path().join(below)).unwrap() == bytes, "{name}");
        }
        (requests, report.bytes_read)
    };
    let (apart, needed) = cost(Some(Reach::NEAR));
    let (together, with_gaps) = cost(Some(Reach::FAR));
    assert!(together * 3 <= apart * 2, "{together} requests instead of {apart}");
    assert!(with_gaps > needed && with_gaps < 24 * 200_000, "{with_gaps} {needed}");
    // What is learnt restores the same; memory does not seek.
    let (learnt, _) = cost(None);
    assert!(learnt <= apart && learnt >= together, "{learnt}");
}

#[test]
fn s2_2_a_container_used_again_a_window_later_is_read_again() {
    let first = random_bytes(1, 256 << 10);
    for (between_bytes, again) in [(31 << 20, 0), (34 << 20, 1)] {
        let bytes = [&first[..], &random_bytes(2, between_bytes), &first].concat();
        let store = new_store();
        save_with(&open(&store), stream("first", &first), &rewriting("none"));
        let report = save_with(&open(&store), stream("torn", &bytes), &rewriting("none"));
        let summary = report.summary;
        assert!(summary.containers > 20, "{summary:?}");
        assert_eq!(summary.container_reads, summary.containers + again, "{between_bytes}");
        // What a plan counts is what a restore then does.
        let repository = open(&store);
        let record = record_of(&repository, report.snapshot.unwrap());
        let plan = planned(&repository, &record, [&[], &[]]);
        let by_rolling = plan.engines.iter().find(|(one, _)| one.to_string().ends_with("rolling"));
        assert_eq!(by_rolling.unwrap().1, summary.container_reads, "as counted while it ran");
        let target = tempfile::tempdir().unwrap();
        let options = RestoreOptions { placed: placed(&record), ..restore_options(target.path()) };
        let done = restore(&repository, &top(record.root), &options, &Job::unattended().0).unwrap();
        assert_eq!(plan.container_reads, done.container_reads);
        assert_eq!((plan.containers, plan.bytes), (summary.containers, summary.bytes));
        let restored_mb = done.bytes as f64 / f64::from(1 << 20);
        assert_eq!(plan.speed_factor(), restored_mb / done.container_reads as f64);
    }
}
