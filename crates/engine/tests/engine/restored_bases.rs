//! What a restore reads for chunks that are stored as differences.

use crate::ingest::{backup_options, create, in_memory, open, options, random_bytes};
use crate::rewriting::{restore_options, save};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::ingest::BackupOptions;
use onefold_engine::restore::request_costs::Reach;
use onefold_engine::restore::{RestoreOptions, restore};
use onefold_engine::session::SnapshotList;
use onefold_engine::{InitOptions, Job};
use onefold_format::delta::DeltaChoice;
use onefold_format::node::{Entry, EntryKind};
use onefold_store::layers::{Counting, Operation};
use onefold_types::limits;
use std::fs;
use std::sync::Arc;

const CHUNKS: usize = 1000;

/// Reads of containers, and their bytes, by a restore of a file of which every chunk is a
/// difference against what stood in its place before.
fn reads_of_differences(reach: Reach) -> (u64, u64) {
    let (memory, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, 8 * limits::KIB).unwrap();
    let container_size_bytes = limits::CONTAINER_TARGET_BYTES;
    let repository = create(&store, &InitOptions { chunker, container_size_bytes, ..options() });
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    let mut bytes = random_bytes(1, CHUNKS * 8 * limits::KIB);
    let delta = Some(DeltaChoice::default());
    let rewrite = "none".parse().unwrap();
    let saving = BackupOptions { delta, rewrite, ..backup_options() };
    fs::write(&file, &bytes).unwrap();
    save(&repository, root.path(), &saving);
    bytes.iter_mut().step_by(8 * limits::KIB).for_each(|byte| *byte ^= 1);
    fs::write(&file, &bytes).unwrap();
    let report = save(&repository, root.path(), &saving);
    assert_eq!(report.deltas.chunks, CHUNKS as u64);
    drop(repository);

    let counting = Arc::new(Counting::new(memory));
    let repository = open(&(Arc::clone(&counting) as _));
    let list = SnapshotList::load(&repository).unwrap();
    let content = Some(list.get(report.snapshot.unwrap()).unwrap().record.root);
    let whole = Entry { kind: EntryKind::Directory, content, ..Entry::default() };
    let target = tempfile::tempdir().unwrap();
    let restoring = RestoreOptions { reach: Some(reach), ..restore_options(target.path()) };
    counting.take();
    let restored = restore(&repository, &whole, &restoring, &Job::unattended().0).unwrap();
    assert_eq!(restored.errors, 0);
    let path = target.path().join(file.strip_prefix("/").unwrap());
    assert!(fs::read(path).unwrap() == bytes);
    let reads = counting.counts().of("containers", Operation::GetRange);
    (reads.calls, reads.bytes)
}

/// Frames of bases that lie beside one another come with one request, as far as that pays, and each
/// comes once.
#[test]
fn what_differences_are_made_of_is_read_once_and_with_few_requests() {
    let stored = (CHUNKS * 8 * limits::KIB) as u64;
    for (reach, most) in [(Reach::NEAR, 28), (Reach::FAR, 20)] {
        let (calls, bytes) = reads_of_differences(reach);
        assert!(calls <= most, "{calls} reads");
        assert!(bytes < stored * 11 / 10, "{bytes} bytes of {stored}");
    }
}
