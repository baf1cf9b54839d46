//! Fastcopies and synthetic fulls.

use crate::steps::*;
use onefold_crypto::Purpose;
use onefold_engine::session::SnapshotList;
use onefold_engine::session::outcome;
use onefold_engine::synthesis::{Element, SynthesisOptions, fastcopy, synthesize};
use onefold_engine::tree::TreeReader;
use onefold_engine::tree::directory::{DirectoryBuilder, OwnerNames};
use onefold_engine::{Repository, find, retention};
use onefold_format::layout;
use onefold_format::node::{Entry, EntryKind, Node};
use onefold_format::record::{self, Outcome, SnapshotKind};
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::{ErrorKind, Result, SessionId};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

fn options() -> SynthesisOptions {
    SynthesisOptions {
        user: "somebody".into(),
        program: "test".into(),
        ..SynthesisOptions::default()
    }
}

fn part(snapshot: SessionId, path: &str, to: &str) -> Element {
    Element { snapshot, path: path.into(), to: to.into() }
}

/// Every path below a snapshot's root, with the sizes of files.
fn listing(repository: &Arc<Repository>, id: SessionId) -> Vec<(String, u64)> {
    let mut paths = Vec::new();
    find::walk(repository, root_of(repository, id), &job(), &mut |path, entry| {
        paths.push((String::from_utf8(path.to_vec()).unwrap(), entry.size));
        Ok(true)
    })
    .unwrap();
    paths
}

#[test]
fn a_fastcopy_costs_one_record() {
    let (memory, repository) = create();
    let source = save(&repository, &[file("f", 1, 200_000)]);
    let before = memory.operations();
    let copy = fastcopy(&repository, source, &options(), &job()).unwrap();
    // Announced, ready, outcome and its copy, and the first two deleted again.
    assert_eq!(memory.operations() - before, 6);
    let list = SnapshotList::load(&repository).unwrap();
    let (of_source, of_copy) = (list.get(source).unwrap(), list.get(copy).unwrap());
    assert_eq!(of_copy.record.root, of_source.record.root);
    assert_eq!(of_copy.record.kind, SnapshotKind::Fastcopy);
    assert_eq!(of_copy.record.parent, Some(source));
    assert_eq!(of_copy.record.predecessors, [source]);
    assert_eq!(of_copy.record.started_ns, of_source.record.started_ns);
    assert_eq!(of_copy.record.tags, ["tag"]);
    assert_eq!(of_copy.record.user, "somebody");
    assert_eq!(list.heads, [copy]);
    assert!(names(&memory, "sessions").is_empty());

    let other = SynthesisOptions {
        tags: Some(vec!["x".into()]),
        host: Some("there".into()),
        time_ns: Some(5),
        ..options()
    };
    let copy = fastcopy(&repository, source, &other, &job()).unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    let record = &list.get(copy).unwrap().record;
    assert_eq!((record.started_ns, record.host.as_str()), (5, "there"));
    assert_eq!(record.tags, ["x"]);
    assert!(check_all(&repository).is_clean());
}

#[test]
fn a_forgotten_snapshot_is_not_copied() {
    let (memory, repository) = create();
    let source = save(&repository, &[file("f", 1, 10)]);
    retention::forget_final(&repository, &[source], "me").unwrap();
    for id in [source, SessionId([1; 16])] {
        let error = fastcopy(&repository, id, &options(), &job()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let parts = [part(id, "", "")];
        let error = synthesize(&repository, &parts, &options(), &job()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    assert!(names(&memory, "sessions").is_empty(), "sessions given up are cleaned up");
    assert!(SnapshotList::load(&repository).unwrap().snapshots.is_empty());
}

#[test]
fn parts_are_merged_and_later_ones_win() {
    let (_, repository) = create();
    let first = [
        directory("a", [file("one", 1, 10), file("two", 2, 20)]),
        directory("b", [file("x", 3, 30)]),
        file("c", 4, 40),
    ];
    let second = [
        directory("a", [file("three", 5, 50), file("two", 6, 60)]),
        file("b", 7, 70),
        directory("c", [file("y", 8, 80)]),
    ];
    let (first, second) = (save(&repository, &first), save(&repository, &second));
    let made = |parts: &[Element]| {
        let id = synthesize(&repository, parts, &options(), &job()).unwrap();
        listing(&repository, id)
    };
    let expect = |parts: &[Element], expected: &[(&str, u64)]| {
        let expected: Vec<(String, u64)> =
            expected.iter().map(|(path, size)| ((*path).to_owned(), *size)).collect();
        assert_eq!(made(parts), expected);
    };
    let merged: &[(&str, u64)] = &[
        ("/a", 0),
        ("/a/one", 10),
        ("/a/three", 50),
        ("/a/two", 60),
        ("/b", 70),
        ("/c", 0),
        ("/c/y", 80),
    ];
    expect(&[part(first, "", ""), part(second, "/", "/")], merged);
    expect(
        &[part(second, "", ""), part(first, "", "")],
        &[
            ("/a", 0),
            ("/a/one", 10),
            ("/a/three", 50),
            ("/a/two", 20),
            ("/b", 0),
            ("/b/x", 30),
            ("/c", 40),
        ],
    );
    expect(
        &[part(first, "/a", "/p/q"), part(second, "/a/two", "/p/q/r"), part(first, "/c", "")],
        &[("/c", 40), ("/p", 0), ("/p/q", 0), ("/p/q/one", 10), ("/p/q/r", 60), ("/p/q/two", 20)],
    );
    // A whole snapshot below a name, then a file over one of its directories.
    expect(
        &[part(first, "", "/all"), part(second, "/b", "/all/a")],
        &[("/all", 0), ("/all/a", 70), ("/all/b", 0), ("/all/b/x", 30), ("/all/c", 40)],
    );
    expect(
        &[part(second, "", "/all")],
        &[
            ("/all", 0),
            ("/all/a", 0),
            ("/all/a/three", 50),
            ("/all/a/two", 60),
            ("/all/b", 70),
            ("/all/c", 0),
            ("/all/c/y", 80),
        ],
    );
    // A file that a directory is put below gives way to it.
    expect(&[part(first, "/c", "/c"), part(first, "/a/one", "/c/d")], &[("/c", 0), ("/c/d", 10)]);
    let report = check_all(&repository);
    assert!(report.is_clean(), "totals and levels are right: {report:?}");
}

#[test]
fn impossible_parts_are_refused() {
    let (_, repository) = create();
    let first = save(&repository, &[directory("a", [file("one", 1, 10)]), file("c", 4, 40)]);
    for wrong in [part(first, "/nowhere", "/x"), part(first, "/c/x", "/x")] {
        let error = synthesize(&repository, &[wrong], &options(), &job()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    let error = synthesize(&repository, &[part(first, "/a", "../x")], &options(), &job());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(synthesize(&repository, &[], &options(), &job()).is_err());
}

#[test]
fn a_synthetic_full_stores_new_directories_only() {
    let (_, repository) = create();
    let first = save(&repository, &[directory("a", [file("one", 1, 400_000)])]);
    let second = save(&repository, &[directory("b", [file("two", 2, 400_000)])]);
    let parts = [part(first, "", ""), part(second, "", "")];
    let made = synthesize(&repository, &parts, &options(), &job()).unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    let record = &list.get(made).unwrap().record;
    assert_eq!(record.kind, SnapshotKind::Synthetic);
    assert_eq!(record.summary.chunks_new, 1, "the root and nothing else");
    assert_eq!((record.summary.files, record.summary.directories), (2, 2));
    assert_eq!(record.summary.bytes, 800_000);
    let reader = TreeReader::open(&repository).unwrap();
    let a = reader.resolve(root_of(&repository, first), b"/a").unwrap();
    let taken = reader.resolve(record.root, b"/a").unwrap();
    assert_eq!(a, taken, "an entry that one part provides is taken over as it is");
}

/// Everybody is called the same.
struct Called(&'static [u8]);

impl OwnerNames for Called {
    fn user(&self, _uid: u32) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }

    fn group(&self, _gid: u32) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn names_of_owners_are_taken_along() {
    let (_, repository) = create();
    let of = |name: &'static str, uid: u32, called: &'static [u8]| {
        let root = put_with(&repository, |stream| {
            let mut builder = DirectoryBuilder::default();
            let entry = Entry { uid, ..entry(name, EntryKind::Fifo) };
            builder.push(entry, &Called(called), stream).unwrap();
            builder.finish(&Called(called), stream).unwrap()
        });
        save_root(&repository, root.reference)
    };
    let (first, second) = (of("a", 1, b"alice"), of("b", 2, b"bob"));
    let parts = [part(first, "", ""), part(second, "/b", "/c")];
    let made = synthesize(&repository, &parts, &options(), &job()).unwrap();
    let reader = TreeReader::open(&repository).unwrap();
    let Node::DirectoryLeaf(leaf) = reader.node(root_of(&repository, made)).unwrap() else {
        panic!("the root is a leaf");
    };
    assert_eq!(leaf.users, [(1, b"alice".to_vec()), (2, b"bob".to_vec())]);
    assert!(leaf.groups.is_empty());
}

/// A store in which a collector fences the first sessions that try to commit.
struct Fencing {
    store: MemoryStore,
    left: AtomicU32,
    collector: OnceLock<Arc<Repository>>,
}

impl Blobs for Fencing {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.store.get(key)
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.store.get_range(key, offset, buffer)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.store.get_tail(key, length_bytes)
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.store.size(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.store.list(prefix, each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_names(prefix, each)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.store.delete(key)
    }
}

impl Decisions for Fencing {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let left = self.left.load(Ordering::Relaxed);
        if let (Some(collector), true) = (self.collector.get(), left > 0) {
            self.left.store(left - 1, Ordering::Relaxed);
            let id: SessionId = layout::last_component(key.as_str()).parse().unwrap();
            let fenced = record::encode(&Outcome::Fenced).unwrap();
            let randomness = &*collector.environment().randomness;
            let sealed = collector
                .vault()
                .seal_record(Purpose::Outcome, &id.0, &fenced, randomness)
                .unwrap();
            self.store.decide(key, &sealed)?;
        }
        self.store.decide(key, value)
    }
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.store.decided(key)
    }
    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_decided(prefix, each)
    }
}

impl Store for Fencing {
    fn describe(&self) -> String {
        "a store with a collector".to_owned()
    }
}

#[test]
fn r7_a_fenced_copy_starts_over_a_few_times() {
    let (memory, plain) = create();
    let source = save(&plain, &[file("f", 1, 10)]);
    let fencing = |times: u32| {
        let store = Arc::new(Fencing {
            store: memory.clone(),
            left: AtomicU32::new(times),
            collector: OnceLock::new(),
        });
        assert!(store.collector.set(Arc::clone(&plain)).is_ok());
        open_on(store, 10 + u64::from(times)).unwrap()
    };
    let copy = fastcopy(&fencing(2), source, &options(), &job()).unwrap();
    let list = SnapshotList::load(&plain).unwrap();
    assert_eq!(list.snapshots.len(), 2);
    assert_eq!(list.heads, [copy]);
    let outcomes = names(&memory, "outcomes");
    let fenced = outcomes.iter().filter(|name| {
        let id = layout::last_component(name).parse().unwrap();
        outcome::read_outcome(&plain, id).unwrap() == Some(Outcome::Fenced)
    });
    assert_eq!(fenced.count(), 2);
    let error = fastcopy(&fencing(1000), source, &options(), &job()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}
