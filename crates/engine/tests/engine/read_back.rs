//! Stores that acknowledge and keep something else: whatever is written is read back before it
//! counts, so nothing is saved on such a store, and nothing is deleted.

use crate::steps::*;
use onefold_engine::Repository;
use onefold_engine::collection::{CollectOptions, MarkAlgorithm, SpaceGoal, collect};
use onefold_engine::retention;
use onefold_engine::session::{SnapshotList, WriterSession};
use onefold_format::container::{FOOTER_BYTES, HEADER_BYTES};
use onefold_format::layout;
use onefold_store::MemoryStore;
use onefold_store::layers::{Call, Fault, Faulty, Operation};
use onefold_types::{ErrorKind, Result, SessionId};
use std::sync::Arc;
use std::time::Duration;

/// The fault hits every put below a directory.
fn lying(
    memory: &MemoryStore,
    directory: &'static str,
    fault: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
) -> Arc<Repository> {
    let store = Faulty::scripted(memory.clone(), move |call| {
        let is_hit = call.operation == Operation::Put && call.name.starts_with(directory);
        if is_hit { fault(call) } else { Fault::None }
    });
    open_on(Arc::new(store), 7).unwrap()
}

/// What a session does up to its commit.
fn try_to_save(repository: &Arc<Repository>, items: &[Item]) -> Result<SessionId> {
    let session = WriterSession::begin(repository)?;
    let store = chunk_store(repository, &session);
    let mut stream = store.stream()?;
    let root = put_directory(repository, &mut stream, items);
    stream.finish()?;
    store.finish()?;
    Ok(saved(session.commit(record_of(repository, root.reference))?))
}

fn flip(byte: u64) -> Fault {
    Fault::Flip(byte * 8 + 3)
}

#[test]
fn r57_what_the_store_gives_back_otherwise_fails_the_backup() {
    type Lie = fn(&Call<'_>) -> Fault;
    let lies: [(&str, Lie); 10] = [
        // The first and the last byte of a metadata section, near enough.
        (layout::CONTAINERS, |call| flip(call.size_bytes - FOOTER_BYTES as u64 - 1)),
        (layout::CONTAINERS, |call| flip(call.size_bytes - FOOTER_BYTES as u64 - 60)),
        (layout::CONTAINERS, |call| flip(call.size_bytes - 20)),
        (layout::CONTAINERS, |_| Fault::Lose),
        // A page, a piece, the table; and a run that is short or empty.
        (layout::INDEX, |_| flip(30)),
        (layout::INDEX, |_| flip(4096 + 10)),
        (layout::INDEX, |call| flip(call.size_bytes - 60)),
        (layout::INDEX, |call| Fault::Truncate(call.size_bytes as usize - 1)),
        (layout::METADATA, |call| Fault::Truncate(call.size_bytes as usize - 30)),
        (layout::METADATA, |call| flip(call.size_bytes / 2)),
    ];
    for (number, (directory, lie)) in lies.into_iter().enumerate() {
        let (memory, repository) = create();
        let before = save(&repository, &[file("a", 1, 50_000)]);
        let liar = lying(&memory, directory, lie);
        let items = [file("a", 1, 50_000), file("b", 2, 50_000)];
        let error = try_to_save(&liar, &items).unwrap_err();
        assert!(error.is_lost(), "{number}: {error}");
        // Nothing was saved, and an honest store takes it.
        let repository = reopen(&memory, 9);
        let list = SnapshotList::load(&repository).unwrap();
        assert_eq!(list.snapshots.iter().map(|one| one.id).collect::<Vec<_>>(), [before]);
        save(&repository, &items);
        assert!(check_trees_read(&repository), "{number}");
    }
}

/// Whether every chunk of every snapshot can be read.
fn check_trees_read(repository: &Arc<Repository>) -> bool {
    use onefold_engine::collection::enumeration::logical;
    let list = SnapshotList::load(repository).unwrap();
    let roots: Vec<_> = list.snapshots.iter().map(|one| one.record.root).collect();
    let trees = onefold_engine::tree::TreeReader::open(repository).unwrap();
    let mut chunks = Vec::new();
    logical(&trees, &roots, &job(), &mut |chunk| {
        chunks.push(*chunk);
        Ok(())
    })
    .unwrap();
    chunks.iter().all(|chunk| trees.chunks().read(chunk).is_ok())
}

#[test]
fn r58_a_copy_that_reads_back_wrong_is_an_error_and_nothing_is_deleted() {
    type Lie = fn(&Call<'_>) -> Fault;
    let lies: [Lie; 6] = [
        |_| flip(20),
        |_| flip(HEADER_BYTES as u64 + 100),
        |call| flip(call.size_bytes / 2),
        |call| flip(call.size_bytes - FOOTER_BYTES as u64 - 5),
        |call| Fault::Truncate(call.size_bytes as usize / 2),
        |_| Fault::Lose,
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let (memory, repository) = create();
        // Frames that are copied chunk by chunk, and frames that are carried.
        let first = [file("a", 1, 300_000), file("b", 2, 100_000), file("c", 3, 200_000)];
        let forgotten = save(&repository, &first);
        save(&repository, &[file("a", 1, 300_000), file("c", 3, 200_000)]);
        retention::forget_final(&repository, &[forgotten], "me").unwrap();
        let before = containers(&repository);
        let options = CollectOptions {
            goal: SpaceGoal::Everything,
            algorithm: MarkAlgorithm::Exact,
            grace: Duration::ZERO,
            threads: 2,
            ..CollectOptions::default()
        };
        let liar = lying(&memory, layout::CONTAINERS, lie);
        let error = collect(&liar, &options, &job()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound), "{error}");
        let repository = reopen(&memory, 9);
        assert!(containers(&repository).is_superset(&before), "{number}");
        assert!(check_trees_read(&repository), "{number}");
        // The next collection does not take a bad copy for one that holds something.
        let report = collect(&repository, &options, &job()).unwrap();
        assert!(report.deleted_containers > 0, "{number}: {report:?}");
        assert!(check_trees_read(&reopen(&memory, 10)), "{number}");
    }
}
