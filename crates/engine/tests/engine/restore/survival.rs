//! Contents and everything about them come back as they were.

use super::support::{
    CHUNK_BYTES, Item, Part, in_memory, random_bytes, repository_with_memory, store_tree,
    store_tree_avoiding,
};
use super::{data_containers, options, patterns, restore_cleanly};
use onefold_engine::restore::{
    Delete, DumpOptions, FILES_OPEN_MAX, RestoreOptions, Without, dump, restore,
};
use onefold_engine::tree::directory::OwnerNames;
use onefold_engine::{Job, Repository};
use onefold_format::node::{Entry, EntryKind, Time};
use onefold_store::layers::{Counting, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::{ErrorKind, limits};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

#[test]
fn metadata_of_all_kinds_survives() {
    let (_, repository) = in_memory();
    let old = Time { seconds: -5, nanoseconds: 7 };
    let root = store_tree(
        &repository,
        vec![
            Item::directory(
                "sticky",
                vec![Item::file("inside", "x"), Item::directory("empty", vec![])],
            )
            .edit(|entry| {
                entry.mode = 0o1777;
                entry.modified = old;
            }),
            Item::file("setuid", "program").edit(|entry| entry.mode = 0o4755),
            Item::file("unreadable", "secret").edit(|entry| entry.mode = 0),
            Item::file("attributes", "a").edit(|entry| {
                entry.xattrs = vec![(b"user.note".to_vec(), b"\0value".to_vec())];
            }),
            Item::file(b"odd \xff\n name", "odd"),
            Item::file("empty", ""),
            Item::symlink("link", "/nowhere/at all").edit(|entry| entry.modified = old),
            Item::special("pipe", EntryKind::Fifo).edit(|entry| entry.mode = 0o622),
            Item::special("socket", EntryKind::Socket),
        ],
    );
    let target = tempfile::tempdir().unwrap();
    let report = restore_cleanly(&repository, &root, &options(target.path()));
    assert_eq!((report.files, report.directories, report.others), (6, 2, 3));
    let stat = |name: &str| fs::symlink_metadata(target.path().join(name)).unwrap();
    let times = |name: &str| (stat(name).mtime(), stat(name).mtime_nsec());
    assert_eq!(stat("sticky").mode() & 0o7777, 0o1777);
    assert_eq!(times("sticky"), (-5, 7));
    assert!(stat("sticky/empty").is_dir());
    assert_eq!(stat("setuid").mode() & 0o7777, 0o4755);
    assert_eq!(stat("unreadable").mode() & 0o7777, 0);
    assert_eq!(times("setuid"), (1_600_000_000, 123_456_789));
    assert_eq!(stat("empty").len(), 0);
    assert_eq!(times("link"), (-5, 7));
    assert_eq!(fs::read_link(target.path().join("link")).unwrap(), Path::new("/nowhere/at all"));
    assert!(stat("pipe").file_type().is_fifo());
    assert_eq!(stat("pipe").mode() & 0o7777, 0o622);
    assert!(stat("socket").file_type().is_socket());
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\n name");
    assert_eq!(fs::read(target.path().join(odd)).unwrap(), b"odd");
    let mut value = [0; 16];
    let file = target.path().join("attributes");
    // File systems without user attributes tell so, which `restore_cleanly` refuses.
    let length = rustix::fs::lgetxattr(&file, "user.note", &mut value).unwrap();
    assert_eq!(&value[..length], b"\0value");
}

#[test]
fn owners_and_devices_survive_with_privilege() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_, repository) = in_memory();
    let device = rustix::fs::makedev(1, 3);
    let root = store_tree(
        &repository,
        vec![
            Item::file("owned", "x").edit(|entry| {
                (entry.uid, entry.gid, entry.mode) = (1234, 4321, 0o6755);
            }),
            Item::symlink("link", "owned").edit(|entry| (entry.uid, entry.gid) = (5, 6)),
            Item::special("null", EntryKind::CharacterDevice).edit(|entry| {
                entry.device_number = device;
                entry.mode = 0o666;
            }),
        ],
    );
    let target = tempfile::tempdir().unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    let stat = |name: &str| fs::symlink_metadata(target.path().join(name)).unwrap();
    assert_eq!((stat("owned").uid(), stat("owned").gid()), (1234, 4321));
    assert_eq!(stat("owned").mode() & 0o7777, 0o6755);
    assert_eq!((stat("link").uid(), stat("link").gid()), (5, 6));
    assert!(stat("null").file_type().is_char_device());
    assert_eq!(stat("null").rdev(), device);
}

struct RootIsCalled777;

impl OwnerNames for RootIsCalled777 {
    fn user(&self, uid: u32) -> Option<Vec<u8>> {
        (uid == 777).then(|| b"root".to_vec())
    }

    fn group(&self, _gid: u32) -> Option<Vec<u8>> {
        Some(b"no such group here".to_vec())
    }
}

#[test]
fn owners_are_found_by_name_with_privilege() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_, repository) = in_memory();
    let item = Item::file("f", "x").edit(|entry| (entry.uid, entry.gid) = (777, 778));
    let root = store_tree_avoiding(&repository, vec![item], BTreeSet::new(), &RootIsCalled777);
    let target = tempfile::tempdir().unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    let stat = fs::metadata(target.path().join("f")).unwrap();
    assert_eq!((stat.uid(), stat.gid()), (0, 778));
}

struct RootHasAnotherName;

impl OwnerNames for RootHasAnotherName {
    fn user(&self, uid: u32) -> Option<Vec<u8>> {
        (uid == 0).then(|| b"no such user here".to_vec())
    }

    fn group(&self, _gid: u32) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn r109_owners_that_are_others_here_are_told_and_taken_by_number_if_asked() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_, repository) = in_memory();
    let saved = |names: &dyn OwnerNames, uid: u32| {
        let owned = move |item: Item| item.edit(|entry| (entry.uid, entry.gid) = (uid, 778));
        let items = vec![owned(Item::file("f", "x")), owned(Item::file("g", "y"))];
        store_tree_avoiding(&repository, items, BTreeSet::new(), names)
    };
    let root = saved(&RootIsCalled777, 777);
    let other = saved(&RootHasAnotherName, 0);
    for (root, owner_names, uid, said) in [
        (&root, false, 0, "user 'root' was 777 and is 0 here"),
        (&root, true, 777, ""),
        (&other, false, 0, "'no such user here' was 0, is not known here, and 0 is 'root' here"),
    ] {
        let target = tempfile::tempdir().unwrap();
        let without = Without { owner_names, ..Without::default() };
        let options = RestoreOptions { without, ..options(target.path()) };
        let elsewhere = restore_cleanly(&repository, root, &options).owners_elsewhere;
        assert_eq!(fs::metadata(target.path().join("f")).unwrap().uid(), uid);
        assert_eq!(elsewhere.count, u64::from(!said.is_empty()), "{elsewhere:?}");
        assert!(elsewhere.example.contains(said), "{elsewhere:?}");
    }
}

#[test]
fn hard_links_become_one_inode() {
    let (_, repository) = in_memory();
    let linked = |item: Item| {
        item.edit(|entry| {
            (entry.links, entry.inode, entry.device) = (3, 99, 1);
        })
    };
    let bytes = random_bytes(1, 30_000);
    let tree = vec![
        linked(Item::file("a", bytes.clone())),
        Item::directory("d", vec![linked(Item::file("b", bytes.clone()))]),
        linked(Item::file("c", bytes.clone())),
        // The same numbers, but another file: the inode was used again during the backup.
        linked(Item::file("other", "other")),
    ];
    let root = store_tree(&repository, tree);
    let target = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let report = restore_cleanly(&repository, &root, &options(target.path()));
        let inode = |name: &str| fs::metadata(target.path().join(name)).unwrap().ino();
        assert_eq!(inode("a"), inode("d/b"));
        assert_eq!(inode("a"), inode("c"));
        assert_ne!(inode("a"), inode("other"));
        assert_eq!(fs::read(target.path().join("c")).unwrap(), bytes);
        assert_eq!(report.files_unchanged, round * 4);
    }
}

#[test]
fn r126_links_are_made_again_whichever_of_them_are_right() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(1, 30_000);
    let link = |name: &str| {
        Item::file(name, bytes.clone())
            .edit(|entry| (entry.links, entry.inode, entry.device) = (3, 99, 1))
    };
    let root = store_tree(&repository, vec![link("a"), link("b"), link("c")]);
    // What becomes of each name: it stays, goes, is a copy, or another file of the same size.
    for state in 0..64 {
        let target = tempfile::tempdir().unwrap();
        let at = |name: &str| target.path().join(name);
        restore_cleanly(&repository, &root, &options(target.path()));
        for (position, name) in ["a", "b", "c"].into_iter().enumerate() {
            let found = state >> (2 * position) & 3;
            if found > 0 {
                fs::remove_file(at(name)).unwrap();
            }
            match found {
                2 => fs::write(at(name), &bytes).unwrap(),
                3 => fs::write(at(name), random_bytes(2, 30_000)).unwrap(),
                _ => {}
            }
        }
        restore_cleanly(&repository, &root, &options(target.path()));
        let inode = |name: &str| fs::metadata(at(name)).unwrap().ino();
        assert_eq!((inode("a"), inode("a")), (inode("b"), inode("c")), "{state}");
        assert_eq!(fs::read(at("c")).unwrap(), bytes, "{state}");
    }
}

#[test]
fn r23_sparse_files_stay_sparse_and_others_do_not_become_so() {
    let (_, repository) = in_memory();
    let mib = limits::MIB as u64;
    let parts = || {
        vec![
            Part::Hole(mib),
            Part::Bytes(random_bytes(3, 10_000)),
            Part::Hole(3 * mib),
            Part::Bytes(b"end".to_vec()),
            Part::Hole(mib),
        ]
    };
    let tree = vec![
        Item::parts("sparse", parts()).edit(|entry| entry.sparse = true),
        Item::parts("full", parts()),
        Item::parts("nothing", vec![Part::Hole(mib)]).edit(|entry| entry.sparse = true),
    ];
    let root = store_tree(&repository, tree);
    let mut expected = vec![0; mib as usize];
    expected.extend(random_bytes(3, 10_000));
    expected.resize(expected.len() + 3 * mib as usize, 0);
    expected.extend(b"end");
    expected.resize(expected.len() + mib as usize, 0);
    for all_sparse in [false, true] {
        let target = tempfile::tempdir().unwrap();
        let options = RestoreOptions { sparse: all_sparse, verify: true, ..options(target.path()) };
        restore_cleanly(&repository, &root, &options);
        let stat = |name: &str| fs::metadata(target.path().join(name)).unwrap();
        for name in ["sparse", "full"] {
            assert_eq!(fs::read(target.path().join(name)).unwrap(), expected);
        }
        assert!(stat("sparse").blocks() * 512 < mib);
        assert_eq!(stat("full").blocks() * 512 < 5 * mib, all_sparse);
        assert_eq!((stat("nothing").len(), stat("nothing").blocks()), (mib, 0));
    }
}

#[test]
fn deep_and_long_paths_survive() {
    let (_, repository) = in_memory();
    let name = "n".repeat(200);
    let mut item = Item::file("bottom", "deep down");
    for _ in 0..600 {
        item = Item::directory(&name, vec![item]);
    }
    let root = store_tree(&repository, vec![item]);
    let target = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let report = restore_cleanly(&repository, &root, &options(target.path()));
        assert_eq!((report.files, report.directories), (1, 600));
    }
    // Delete it again the way it came: other ways meet limits on path lengths.
    let nothing = store_tree(&repository, vec![]);
    let options = RestoreOptions { delete: Delete::Known, ..options(target.path()) };
    let report = restore_cleanly(&repository, &nothing, &options);
    assert_eq!(report.surplus.deleted, 601);
}

fn content(number: usize, blocks: &[Vec<u8>]) -> Vec<u8> {
    // Every file uses blocks that others use too, in another order.
    (0..number % 7).flat_map(|n| blocks[(number * 13 + n * 5) % blocks.len()].clone()).collect()
}

#[test]
fn r41_each_frame_is_read_once_however_often_it_is_needed() {
    let store = Arc::new(Counting::new(MemoryStore::new()));
    let repository = super::support::repository_on(Arc::clone(&store) as Arc<dyn Store>);
    let blocks: Vec<Vec<u8>> = (0..300).map(|n| random_bytes(n, 8192)).collect();
    let files = (0..500).map(|n| Item::file(format!("f{n:03}"), content(n, &blocks)));
    let root = store_tree(&repository, files.collect());
    let target = tempfile::tempdir().unwrap();
    store.take();
    let report = restore_cleanly(&repository, &root, &options(target.path()));
    let counts = store.counts();
    for number in 0..500 {
        let found = fs::read(target.path().join(format!("f{number:03}"))).unwrap();
        assert_eq!(found, content(number, &blocks), "{number}");
    }
    // 300 blocks of 8 KiB that do not compress, with a little for seals.
    let stored = 300 * 8192;
    assert!(report.bytes_read < stored + stored / 50, "{report:?}");
    assert!(report.bytes > 4 * stored);
    assert_eq!(report.bytes_written, report.bytes);
    let data = data_containers(&*store, &repository).len() as u64;
    assert_eq!(report.containers, data);
    let ranges = counts.of("containers", Operation::GetRange);
    assert!(ranges.calls < 20, "{ranges:?}");
}

#[test]
fn files_larger_than_a_window_survive() {
    let repository = repository_with_memory(Arc::new(MemoryStore::new()), 48 * limits::MIB);
    let window = repository.memory().restore_window_chunks;
    let bytes = random_bytes(5, window * 2 * 256 + 77);
    let tree = vec![
        Item::directory(
            "d",
            vec![
                Item::parts("large", vec![Part::Chunks(bytes.clone(), 256)])
                    .edit(|entry| (entry.links, entry.inode, entry.device) = (2, 7, 7)),
                Item::file("small", "s"),
            ],
        ),
        Item::parts("name", vec![Part::Chunks(bytes.clone(), 256)])
            .edit(|entry| (entry.links, entry.inode, entry.device) = (2, 7, 7)),
    ];
    let root = store_tree(&repository, tree);
    let target = tempfile::tempdir().unwrap();
    let options = RestoreOptions { verify: true, ..options(target.path()) };
    restore_cleanly(&repository, &root, &options);
    assert_eq!(fs::read(target.path().join("d/large")).unwrap(), bytes);
    let stat = |name: &str| fs::metadata(target.path().join(name)).unwrap();
    assert_eq!(stat("d/large").ino(), stat("name").ino());
    assert_eq!(stat("d/large").mtime_nsec(), 123_456_789);
    assert_eq!(stat("d").mtime_nsec(), 123_456_789);
}

#[test]
fn subtrees_files_and_selections_restore_alone() {
    let (_, repository) = in_memory();
    let tree = vec![
        Item::directory(
            "a",
            vec![
                Item::file("x.o", "object"),
                Item::file("x.c", "source"),
                Item::directory("b", vec![Item::file("y.c", "source"), Item::file("z", "z")]),
            ],
        ),
        Item::directory("other", vec![Item::file("z", "z")]),
        Item::file("top", "t"),
    ];
    let root = store_tree(&repository, tree);
    let case = |include: &[&str], exclude: &[&str]| {
        let target = tempfile::tempdir().unwrap();
        let options = RestoreOptions {
            include: patterns(include),
            exclude: patterns(exclude),
            ..options(target.path())
        };
        restore_cleanly(&repository, &root, &options);
        listing(target.path())
    };
    assert_eq!(case(&["*.c"], &[]), ["a", "a/b", "a/b/y.c", "a/x.c"]);
    assert_eq!(case(&["/a/b"], &[]), ["a", "a/b", "a/b/y.c", "a/b/z"]);
    assert_eq!(case(&["/a"], &["b/", "*.o"]), ["a", "a/x.c"]);
    assert_eq!(case(&["z"], &["/a"]), ["other", "other/z"]);
    assert_eq!(case(&["nothing"], &[]), Vec::<String>::new());
    let alone = |wanted: &[u8]| {
        let reader = onefold_engine::tree::TreeReader::open(&repository).unwrap();
        let entry = reader.resolve(root.content.unwrap(), wanted).unwrap();
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("made/for it");
        restore_cleanly(&repository, &entry, &options(&target));
        listing(&target)
    };
    assert_eq!(alone(b"/a/b"), ["y.c", "z"]);
    assert_eq!(alone(b"/a/x.c"), ["x.c"]);
}

/// All paths below `root`, sorted.
fn listing(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            if entry.file_type().unwrap().is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let (_, repository) = in_memory();
    let tree = vec![Item::directory("a", vec![Item::file("f", "12345")])];
    let root = store_tree(&repository, tree);
    let parent = tempfile::tempdir().unwrap();
    for target in [parent.path().join("new"), parent.path().to_path_buf()] {
        let options = RestoreOptions { dry_run: true, delete: Delete::Known, ..options(&target) };
        let report = restore_cleanly(&repository, &root, &options);
        assert_eq!((report.files, report.directories), (1, 1));
        assert_eq!(report.bytes_written, 5);
        assert_eq!(listing(parent.path()), Vec::<String>::new());
    }
}

#[test]
fn a_target_that_is_a_file_is_refused() {
    let (_, repository) = in_memory();
    let root = store_tree(&repository, vec![]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let (job, _) = Job::unattended();
    let error = restore(&repository, &root, &options(file.path()), &job).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

fn dumped(repository: &Arc<Repository>, entry: &Entry, offset: u64, length: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let (job, _) = Job::unattended();
    let options = DumpOptions { offset, length, ..DumpOptions::default() };
    let count = dump(repository, entry, &options, &mut out, &job).unwrap();
    assert_eq!(count, out.len() as u64);
    out
}

#[test]
fn dump_gives_any_range() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(9, 20_000_000);
    let tree = vec![Item::parts(
        "f",
        vec![
            Part::Bytes(bytes[..100_000].to_vec()),
            Part::Hole(1_000_000),
            Part::Bytes(bytes[100_000..].to_vec()),
        ],
    )];
    let root = store_tree(&repository, tree);
    let mut expected = bytes[..100_000].to_vec();
    expected.resize(1_100_000, 0);
    expected.extend(&bytes[100_000..]);
    let reader = onefold_engine::tree::TreeReader::open(&repository).unwrap();
    let entry = reader.resolve(root.content.unwrap(), b"/f").unwrap();
    assert!(dumped(&repository, &entry, 0, u64::MAX) == expected);
    for (offset, length) in [
        (0, 1),
        (8191, 2),
        (99_999, 1_000_002),
        (500_000, 10),
        (1_099_999, 9_000_000),
        (20_999_999, 50),
        (21_000_000, 1),
        (u64::MAX, u64::MAX),
        (5, 0),
    ] {
        let from = (offset as usize).min(expected.len());
        let to = offset.saturating_add(length).min(expected.len() as u64) as usize;
        let found = dumped(&repository, &entry, offset, length);
        assert!(found == expected[from..to], "{offset} {length}");
    }
}

/// The first half of each lies in one container and the second half in another, so all are written
/// to before any is complete.
#[test]
fn more_files_than_are_held_open_come_back_whole() {
    let (_, repository) = in_memory();
    let numbers = 0..=FILES_OPEN_MAX.get();
    let half = |number: usize, which: u64| random_bytes(2 * number as u64 + which, CHUNK_BYTES);
    let whole = |number: usize| [half(number, 0), half(number, 1)].concat();
    let item = |number: usize, bytes| Item::file(format!("{number}"), bytes);
    store_tree(&repository, numbers.clone().map(|number| item(number, half(number, 0))).collect());
    let items = numbers.clone().map(|number| item(number, whole(number))).collect();
    let root = store_tree(&repository, items);
    let target = tempfile::tempdir().unwrap();
    let path = |number: usize| target.path().join(number.to_string());
    for in_place in [false, true] {
        restore_cleanly(&repository, &root, &RestoreOptions { in_place, ..options(target.path()) });
        for number in numbers.clone() {
            assert!(fs::read(path(number)).unwrap() == whole(number), "{number}, {in_place}");
            fs::write(path(number), "another").unwrap();
        }
    }
}
