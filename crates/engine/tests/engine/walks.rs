//! Walking, comparing, forgetting and counting.

use crate::rewriting::restore_options;
use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::difference::{Change, DifferenceTotals, difference};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::directory::{DirectoryBuilder, NoNames};
use onefold_engine::{Repository, find, restore, retention, statistics};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_store::MemoryStore;
use onefold_store::layers::{Counting, Operation};
use onefold_types::{ErrorKind, SessionId, limits};
use std::sync::Arc;

fn walked(repository: &Arc<Repository>, root: Reference, skip: &[u8]) -> Vec<String> {
    let mut paths = Vec::new();
    find::walk(repository, root, &job(), &mut |path, entry| {
        paths.push(String::from_utf8(path.to_vec()).unwrap());
        Ok(entry.name != skip)
    })
    .unwrap();
    paths
}

fn compared(
    repository: &Arc<Repository>,
    first: Reference,
    second: Reference,
) -> (Vec<(String, Change)>, DifferenceTotals) {
    let mut changes = Vec::new();
    let totals = difference(repository, first, second, &job(), &mut |path, change| {
        changes.push((String::from_utf8(path.to_vec()).unwrap(), change));
        Ok(())
    })
    .unwrap();
    (changes, totals)
}

fn root(repository: &Arc<Repository>, items: &[Item]) -> Reference {
    put_with(repository, |stream| put_directory(repository, stream, items).reference)
}

#[test]
fn a_walk_meets_parents_first_and_may_pass_over_them() {
    let (_, repository) = create();
    let items =
        [directory("a", [directory("b", [file("c", 1, 10)]), file("d", 2, 10)]), file("e", 3, 10)];
    let root = root(&repository, &items);
    let all = ["/a", "/a/b", "/a/b/c", "/a/d", "/e"];
    assert_eq!(walked(&repository, root, b""), all);
    assert_eq!(walked(&repository, root, b"b"), ["/a", "/a/b", "/a/d", "/e"]);
    assert_eq!(walked(&repository, root, b"a"), ["/a", "/e"]);
}

#[test]
fn a_walk_refuses_to_go_too_deep() {
    let (_, repository) = create();
    let deepest = |depth: usize| {
        put_with(&repository, |stream| {
            let mut directory = DirectoryBuilder::default().finish(&NoNames, stream).unwrap();
            for _ in 0..depth {
                let mut builder = DirectoryBuilder::default();
                let entry = Entry {
                    content: Some(directory.reference),
                    totals: directory.totals,
                    ..entry("d", EntryKind::Directory)
                };
                builder.push(entry, &NoNames, stream).unwrap();
                directory = builder.finish(&NoNames, stream).unwrap();
            }
            directory.reference
        })
    };
    let root = deepest(limits::DEPTH_MAX - 1);
    assert_eq!(walked(&repository, root, b"").len(), limits::DEPTH_MAX - 1);
    let root = deepest(limits::DEPTH_MAX);
    let result = find::walk(&repository, root, &job(), &mut |_, _| Ok(true));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::LimitExceeded);
    let top = Entry { content: Some(root), ..entry("", EntryKind::Directory) };
    let options = restore_options(std::path::Path::new("/nowhere"));
    let result = restore::plan(&repository, &top, &options, &job());
    assert_eq!(result.unwrap_err().kind(), ErrorKind::LimitExceeded);
    // A check goes on where a walk refuses: the tree is sound.
    save_root(&repository, root);
    assert!(check_all(&repository).is_clean());
}

#[test]
fn every_kind_of_difference_is_told_in_the_order_of_paths() {
    let (_, repository) = create();
    let first = [
        directory("a", [file("gone", 1, 10), file("same", 2, 10)]),
        directory("becomes-file", [file("below", 3, 10)]),
        file("changed", 4, 100),
        directory("old", [file("x", 5, 7)]),
    ];
    let second = [
        directory("a", [file("new", 1, 10), file("same", 2, 10)]),
        file("becomes-file", 6, 30),
        file("changed", 7, 101),
        directory("z", [file("x", 5, 7)]),
    ];
    let (first, second) = (root(&repository, &first), root(&repository, &second));
    let (changes, totals) = compared(&repository, first, second);
    let expected = [
        ("/a/gone", Change::Removed),
        ("/a/new", Change::Added),
        ("/becomes-file", Change::Kind),
        ("/becomes-file/below", Change::Removed),
        ("/changed", Change::Modified),
        ("/old", Change::Removed),
        ("/old/x", Change::Removed),
        ("/z", Change::Added),
        ("/z/x", Change::Added),
    ];
    assert_eq!(changes, expected.map(|(path, change)| (path.to_owned(), change)));
    let expected = DifferenceTotals {
        added: 3,
        removed: 4,
        modified: 2,
        metadata: 0,
        bytes_added: 10 + 30 + 101 + 7,
        bytes_removed: 10 + 10 + 100 + 7,
    };
    assert_eq!(totals, expected);
    let (changes, totals) = compared(&repository, second, second);
    assert!(changes.is_empty() && totals == DifferenceTotals::default());
}

#[test]
fn what_a_file_system_sets_by_itself_is_no_difference() {
    let (_, repository) = create();
    let base = entry("f", EntryKind::Fifo);
    let of = |entry: &Entry| {
        put_with(&repository, |stream| {
            let mut builder = DirectoryBuilder::default();
            builder.push(entry.clone(), &NoNames, stream).unwrap();
            builder.finish(&NoNames, stream).unwrap().reference
        })
    };
    let mut noise = base.clone();
    (noise.inode, noise.device, noise.links) = (7, 8, 9);
    noise.changed.seconds = 99;
    noise.sparse = true;
    assert_ne!(of(&base), of(&noise));
    assert_eq!(compared(&repository, of(&base), of(&noise)).0, []);
    let edits: [fn(&mut Entry); 5] = [
        |entry| entry.mode = 0o600,
        |entry| entry.uid = 5,
        |entry| entry.gid = 5,
        |entry| entry.modified.nanoseconds += 1,
        |entry| entry.xattrs = vec![(b"user.a".to_vec(), b"b".to_vec())],
    ];
    for edit in edits {
        let mut other = base.clone();
        edit(&mut other);
        let (changes, totals) = compared(&repository, of(&base), of(&other));
        assert_eq!(changes, [("/f".to_owned(), Change::Metadata)]);
        assert_eq!(totals.metadata, 1);
    }
}

#[test]
fn only_what_changed_inside_a_file_counts_its_bytes() {
    let (_, repository) = create();
    let before = random_bytes(1, 200 * CHUNK_BYTES);
    let mut after = before.clone();
    after[100 * CHUNK_BYTES + 5] ^= 1;
    let first = root(&repository, &[Item::File("f", before)]);
    let second = root(&repository, &[Item::File("f", after)]);
    let (changes, totals) = compared(&repository, first, second);
    assert_eq!(changes, [("/f".to_owned(), Change::Modified)]);
    let one = CHUNK_BYTES as u64;
    assert_eq!((totals.bytes_added, totals.bytes_removed), (one, one));
}

#[test]
fn equal_subtrees_are_not_read() {
    let store = Arc::new(Counting::new(MemoryStore::new()));
    let repository = create_on(Arc::clone(&store) as _, Suite::None);
    // Three hundred directories of forty names each, far more than one frame of nodes.
    let leaf = |number: usize, seed: u64| {
        let names: Vec<Item> = (0..40usize)
            .map(|n| {
                let name: &'static str = format!("{number:03}-{n:02}-{seed}-{:0>180}", n).leak();
                Item::File(name, Vec::new())
            })
            .collect();
        let name: &'static str = format!("d{number:03}").leak();
        directory(name, names)
    };
    let first: Vec<Item> = (0..300).map(|number| leaf(number, 1)).collect();
    let mut second = first.clone();
    second[150] = leaf(150, 2);
    let (first, second) = (root(&repository, &first), root(&repository, &second));
    let reads = |run: &dyn Fn()| {
        store.take();
        run();
        store.take().of("containers", Operation::GetRange).calls
    };
    let of_walk = reads(&|| drop(walked(&repository, first, b"")));
    let of_difference = reads(&|| {
        let (changes, _) = compared(&repository, first, second);
        assert_eq!(changes.len(), 80);
    });
    let of_nothing = reads(&|| assert!(compared(&repository, first, first).0.is_empty()));
    assert_eq!(of_nothing, 0, "equal roots are one comparison");
    // Frames read: two roots and the two directories that differ.
    assert!(of_difference <= 4, "{of_difference} of {of_walk}");
    assert!(of_walk >= 8, "{of_walk}");
}

#[test]
fn equal_leaves_of_a_large_directory_are_not_read() {
    let store = Arc::new(Counting::new(MemoryStore::new()));
    let repository = create_on(Arc::clone(&store) as _, Suite::None);
    let of = |changed: Option<usize>| {
        put_with(&repository, |stream| {
            let mut builder = DirectoryBuilder::default();
            for number in 0..12_000 {
                let mut fifo = entry(&format!("{number:0>200}"), EntryKind::Fifo);
                fifo.uid = u32::from(changed == Some(number));
                builder.push(fifo, &NoNames, stream).unwrap();
            }
            builder.finish(&NoNames, stream).unwrap().reference
        })
    };
    let (first, second) = (of(None), of(Some(6_000)));
    store.take();
    let (changes, _) = compared(&repository, first, second);
    assert_eq!(changes.len(), 1);
    let reads = store.take().of("containers", Operation::GetRange).calls;
    assert!(reads <= 4, "two maps and two leaves, not {reads} frames");
}

fn hidden(repository: &Repository) -> Vec<SessionId> {
    let list = SnapshotList::load(repository).unwrap();
    let hidden = list.snapshots.iter().filter(|snapshot| snapshot.hidden);
    hidden.map(|snapshot| snapshot.id).collect()
}

#[test]
fn r49_forgetting_can_be_undone_until_it_is_final() {
    let (memory, repository) = create();
    let first = save(&repository, &[file("a", 1, 10)]);
    let second = save(&repository, &[file("b", 2, 10)]);
    retention::forget(&repository, &[first, first], "me").unwrap();
    retention::forget(&repository, &[first], "me").unwrap();
    assert_eq!(hidden(&repository), [first]);
    assert_eq!(names(&memory, "marks").len(), 1, "one mark, however often it is asked for");
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(retention::candidates(&list, false).len(), 1);
    assert_eq!(retention::candidates(&list, true).len(), 2);

    assert_eq!(retention::undelete(&repository, &[first, second]).unwrap(), 1);
    assert_eq!(hidden(&repository), []);

    retention::forget(&repository, &[first], "me").unwrap();
    retention::forget_final(&repository, &[first], "me").unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.snapshots.len(), 1);
    assert!(list.problems.is_empty(), "{:?}", list.problems);
    assert_eq!(names(&memory, "marks").len(), 0);
    let error = retention::undelete(&repository, &[first]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn r49_a_hold_or_an_unknown_name_refuses_the_whole_request() {
    let (memory, repository) = create();
    let first = save(&repository, &[file("a", 1, 10)]);
    let session = onefold_engine::session::WriterSession::begin(&repository).unwrap();
    let mut record = record_of(&repository, root_of(&repository, first));
    record.hold = true;
    let held = saved(session.commit(record).unwrap());
    let unknown = SessionId([9; 16]);
    let before = memory.operations();
    for (refused, kind) in [(held, ErrorKind::Invalid), (unknown, ErrorKind::NotFound)] {
        let ids = [first, refused];
        let error = retention::forget(&repository, &ids, "me").unwrap_err();
        assert_eq!(error.kind(), kind);
        let error = retention::forget_final(&repository, &ids, "me").unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    assert_eq!(memory.operations(), before);
}

#[test]
fn statistics_count_everything_once() {
    let (memory, repository) = create();
    save(&repository, &[file("a", 1, 100_000)]);
    save(&repository, &[file("a", 1, 100_000), file("b", 2, 5_000)]);
    let before = memory.operations();
    let figures = statistics::statistics(&repository, &job()).unwrap();
    assert_eq!(memory.operations(), before);
    assert_eq!(figures.snapshots, 2);
    assert_eq!(figures.bytes_data, 105_000);
    assert_eq!(figures.chunks_data, 100_000u64.div_ceil(CHUNK_BYTES as u64) + 1);
    // One file map, two roots.
    assert_eq!(figures.chunks_nodes, 3);
    assert_eq!(figures.index_entries, figures.chunks_data + figures.chunks_nodes);
    assert_eq!((figures.index_runs, figures.containers), (2, 4));
    assert!(figures.bytes_containers > 105_000);
    assert!(figures.bytes_metadata > 0 && figures.bytes_index > 0 && figures.bytes_other > 0);
    assert!(figures.bytes_summary_vectors > 0);
    // The figures do not depend on the packs, which are copies.
    for name in names(&memory, "metadata") {
        memory.remove(&key(name));
    }
    let without = statistics::statistics(&repository, &job()).unwrap();
    assert_eq!(without.bytes_data, figures.bytes_data);
    assert_eq!(without.chunks_nodes, figures.chunks_nodes);
}
