//! Bounds of what is known of bases, each crossed through backups, placements and collections: what
//! is beyond is not counted, or looked at in its turn, and nothing is lost.

use crate::ingest::{backup_options, content_at, create, in_memory, open, options, random_bytes};
use crate::rewriting::{containers_of, save};
use crate::steps::check_all;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::chunk_store::unproved::PREFIXES_MAX;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::ingest::{BackupOptions, ParentChoice};
use onefold_engine::placement::recorder::BASES_IN_NODE_MAX;
use onefold_engine::placement::resting::BASES_MAX;
use onefold_engine::session::SnapshotList;
use onefold_engine::{InitOptions, Job, Repository, retention};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_format::node::{ContainerUses, Node};
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::{ErrorKind, SessionId, limits};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Versions of files in fixed chunks, all saved in one store.
struct Saved {
    objects: MemoryStore,
    store: Arc<dyn Store>,
    root: tempfile::TempDir,
    files: Vec<Vec<u8>>,
    snapshots: Vec<SessionId>,
}

impl Saved {
    fn new(chunk_bytes: usize, container_size_bytes: usize) -> Self {
        let (objects, store) = in_memory();
        let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, chunk_bytes).unwrap();
        create(&store, &InitOptions { chunker, container_size_bytes, ..options() });
        let root = tempfile::tempdir().unwrap();
        Self { objects, store, root, files: Vec::new(), snapshots: Vec::new() }
    }

    fn file(&self, number: usize) -> PathBuf {
        self.root.path().join(number.to_string())
    }

    /// Saves the files as they are; says how many chunks were stored as differences.
    fn save(&mut self, rewrite: &str, parent: ParentChoice) -> u64 {
        for (number, bytes) in self.files.iter().enumerate() {
            fs::write(self.file(number), bytes).unwrap();
        }
        let options = BackupOptions {
            delta: Some(DeltaChoice::default()),
            rewrite: rewrite.parse().unwrap(),
            parent,
            ..backup_options()
        };
        let report = save(&open(&self.store), self.root.path(), &options);
        self.snapshots.extend(report.snapshot);
        report.deltas.chunks
    }

    /// Changes a byte of each chunk.
    fn change(&mut self, chunk_bytes: usize) {
        for bytes in &mut self.files {
            bytes.iter_mut().skip(chunk_bytes / 2).step_by(chunk_bytes).for_each(|byte| *byte ^= 1);
        }
    }

    /// The nodes of the newest placement that say how frames are used, as a reader reads them.
    fn uses(&self) -> Vec<ContainerUses> {
        let repository: Arc<Repository> = open(&self.store);
        let list = SnapshotList::load(&repository).unwrap();
        let newest = list.get(*self.snapshots.last().unwrap()).unwrap();
        let nodes = ChunkReader::open(&repository).unwrap();
        let read = |fingerprint| Node::decode(&nodes.read_advice(&fingerprint).unwrap()).unwrap();
        let map = read(newest.record.placement.unwrap().fingerprint);
        let Node::PlacementMap(map) = map else { panic!("{map:?}") };
        let uses = map.uses.iter().map(|reference| match read(reference.fingerprint) {
            Node::ContainerUses(uses) => uses,
            other => panic!("{other:?}"),
        });
        uses.collect()
    }

    fn assert_restores(&self) {
        let repository = open(&self.store);
        for (number, bytes) in self.files.iter().enumerate() {
            let newest = *self.snapshots.last().unwrap();
            assert!(content_at(&repository, newest, &self.file(number)) == *bytes, "{number}");
        }
        let checked = check_all(&repository);
        assert!(checked.is_clean(), "{checked:?}");
    }
}

/// A frame holds 655 chunks, all of them differences against chunks in 300 frames.
#[test]
fn a_frame_that_rests_on_more_frames_than_are_recorded_is_read_all_the_same() {
    const CHUNK_BYTES: usize = 400;
    const PARTS: usize = 300;
    // 76 frames: a node may also end by chance, once in so few, and one half still has too many.
    const CHUNKS: usize = PARTS * 168;
    let mut saved = Saved::new(CHUNK_BYTES, limits::MIB);
    let parts: Vec<Vec<u8>> =
        (0..PARTS).map(|part| random_bytes(part as u64, CHUNKS / PARTS * CHUNK_BYTES)).collect();
    // Each in a container of its own, and then one chunk of each after the other.
    for part in &parts {
        saved.files = vec![part.clone()];
        saved.save("none", ParentChoice::Newest);
    }
    let chunk = |at: usize| &parts[at % PARTS][at / PARTS * CHUNK_BYTES..][..CHUNK_BYTES];
    saved.files = vec![(0..CHUNKS).flat_map(|at| chunk(at).to_vec()).collect()];
    saved.save("none", ParentChoice::Newest);
    saved.change(CHUNK_BYTES);
    let deltas = saved.save("none", ParentChoice::Newest);
    assert!(deltas > CHUNKS as u64 * 9 / 10, "{deltas}");
    let rests_on = |uses: &ContainerUses| -> Vec<usize> {
        uses.containers.iter().map(|one| one.rests_on.len()).collect()
    };
    let nodes: Vec<Vec<usize>> = saved.uses().iter().map(rests_on).collect();
    let resting: Vec<usize> = nodes.iter().flatten().copied().filter(|bases| *bases > 0).collect();
    let (full, all) = (resting.iter().filter(|bases| **bases == BASES_MAX).count(), resting.len());
    assert!(full * 2 > all && resting.iter().all(|it| *it <= BASES_MAX), "{resting:?}");
    // A node ends with the frame that reaches its bound.
    assert!(resting.iter().sum::<usize>() > BASES_IN_NODE_MAX, "{resting:?}");
    let is_full = |node: &&Vec<usize>| node.iter().sum::<usize>() >= BASES_IN_NODE_MAX;
    assert!(nodes.iter().filter(is_full).count() >= 1 && nodes.len() >= 2);
    for node in nodes.iter().filter_map(|node| node.split_last()) {
        assert!(node.1.iter().sum::<usize>() < BASES_IN_NODE_MAX, "{node:?}");
    }
    saved.assert_restores();
    // What is recorded is counted, what is not is kept.
    saved.save("auto,loss=2", ParentChoice::None);
    saved.assert_restores();
}

#[test]
fn many_differences_do_without_their_lost_bases() {
    const DELTAS_MIN: usize = 1 << 16;
    const CHUNK_BYTES: usize = limits::KIB;
    let mut saved = Saved::new(CHUNK_BYTES, limits::MIB);
    // Only so many chunks of a file are compared with those of an earlier version.
    let half_bytes = (DELTAS_MIN / 2 + 1) * CHUNK_BYTES;
    saved.files = (0..2).map(|seed| random_bytes(seed, half_bytes)).collect();
    saved.save("none", ParentChoice::Newest);
    let bases = containers_of(&open(&saved.store));
    saved.change(CHUNK_BYTES);
    let deltas = saved.save("none", ParentChoice::Newest);
    assert!(deltas > DELTAS_MIN as u64, "{deltas}");
    retention::forget_final(&open(&saved.store), &saved.snapshots[..1], "test").unwrap();
    for id in bases {
        assert!(saved.objects.remove(&Key::new(layout::container(id)).unwrap()));
    }
    assert!(!check_all(&open(&saved.store)).is_clean());
    let collected =
        || collect(&open(&saved.store), &CollectOptions::default(), &Job::unattended().0);
    assert_eq!(collected().unwrap_err().kind(), ErrorKind::Damaged);
    // Stored again, and needing nothing that is lost. More of them cannot be made than a backup
    // remembers; those of the containers met longest ago are forgotten, and not asked for again.
    assert!(deltas > PREFIXES_MAX as u64, "{deltas}");
    let containers = containers_of(&open(&saved.store)).len() as u64;
    let counting = Arc::new(Counting::new(saved.objects.clone()));
    saved.store = Arc::clone(&counting) as Arc<dyn Store>;
    saved.save("none", ParentChoice::None);
    let reads = counting.take().of("containers", Operation::GetTail).calls;
    assert!(reads <= 4 * containers, "{reads} sections were read of {containers}");
    collect(&open(&saved.store), &CollectOptions::default(), &Job::unattended().0).unwrap();
    saved.assert_restores();
}
