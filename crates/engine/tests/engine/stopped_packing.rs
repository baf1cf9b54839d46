//! Packing anew that is stopped, or meets damage: what was packed is not packed again, and what
//! cannot be copied stays where it is.

use crate::ingest::content_at;
use crate::steps::{
    backup_options, check_all, containers, create_on, environment, job, key, open_in, open_on,
    random_bytes,
};
use onefold_crypto::Suite;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::{BackupOptions, ParentChoice, backup};
use onefold_engine::{MemoryPlan, Repository};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_store::layers::{Call, Fault, Faulty, Operation};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{ContainerId, ErrorKind, SessionId};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn repacking() -> CollectOptions {
    CollectOptions { repack_level: Some(3), ..CollectOptions::default() }
}

fn save(repository: &Arc<Repository>, bytes: &[u8], delta: DeltaChoice) -> SessionId {
    let source = crate::ingest::stream("stream", bytes);
    let parent = ParentChoice::None;
    let options = BackupOptions { delta: Some(delta), parent, ..backup_options() };
    backup(repository, source, &options, &job()).unwrap().snapshot.unwrap()
}

fn is_container(call: &Call<'_>) -> bool {
    call.operation == Operation::Put && call.name.starts_with("containers/")
}

/// A store with a stream in some dozen containers.
fn filled() -> (MemoryStore, Vec<u8>, SessionId) {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    let bytes = random_bytes(1, 24_000_000);
    let snapshot = save(&repository, &bytes, DeltaChoice::default());
    (memory, bytes, snapshot)
}

/// A backup puts its metadata pack between two attempts, newer than what the first one packed.
#[test]
fn packing_that_is_stopped_goes_on_where_it_was() {
    let (memory, bytes, snapshot) = filled();
    let all = containers(&open_on(Arc::new(memory.clone()), 3).unwrap()).len();
    assert!(all > 20, "{all} containers");
    let half = all / 2;
    let stopped_after_half = |seed: u64| {
        let (job, put) = (job(), AtomicUsize::new(0));
        let interrupt = job.interrupt.clone();
        let script = move |call: &Call<'_>| {
            if is_container(call) && put.fetch_add(1, Ordering::SeqCst) + 1 == half {
                interrupt.request();
            }
            Fault::None
        };
        let stopped = Arc::new(Faulty::scripted(memory.clone(), script));
        let repository = open_on(stopped, seed).unwrap();
        let error = collect(&repository, &repacking(), &job).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        containers(&repository).len()
    };
    let left = stopped_after_half(4);
    assert!(left >= all + half, "{left} containers");
    let repository = open_on(Arc::new(memory.clone()), 5).unwrap();
    save(&repository, &random_bytes(2, 1000), DeltaChoice::Off);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let script = move |call: &Call<'_>| {
        counted.fetch_add(usize::from(is_container(call)), Ordering::SeqCst);
        Fault::None
    };
    let counting = Arc::new(Faulty::scripted(memory.clone(), script));
    let repository = open_on(counting, 6).unwrap();
    let report = collect(&repository, &repacking(), &job()).unwrap();
    let put = count.load(Ordering::SeqCst);
    // What was not in a container then, and what the small backup stored.
    assert!(put <= all - half + 4, "{put} containers of {all}: {report:?}");
    assert!(containers(&repository).len() <= all + 4);
    assert!(content_at(&repository, snapshot, Path::new("stream")) == bytes);
    assert!(check_all(&repository).is_clean());
}

/// Flips a byte of a container's first frame.
fn damage(memory: &MemoryStore, id: ContainerId) {
    let name = key(layout::container(id));
    let mut bytes = memory.get(&name).unwrap();
    bytes[100] ^= 0x55;
    memory.delete(&name).unwrap();
    memory.put(&name, &bytes).unwrap();
}

/// The containers with differences that cannot be made stay, with what they are made of, and all
/// others are packed; nothing grows, however often that is tried.
#[test]
fn what_is_made_of_damaged_chunks_stays_where_it_is() {
    let (memory, bytes, _) = filled();
    // Enough to remember what all chunks are like.
    let plan = MemoryPlan::new(512 << 20).unwrap();
    let repository = open_in(Arc::new(memory.clone()), environment(3), plan).unwrap();
    let whole = containers(&repository);
    // Another version, most chunks of which are differences against the first one.
    let mut edited = bytes;
    for (number, piece) in edited.chunks_mut(8 << 10).enumerate() {
        piece[0] ^= u8::from(number % 6 != 0);
    }
    let newest = save(&repository, &edited, DeltaChoice::default());
    let made_of = |base: ContainerId| -> BTreeSet<ContainerId> {
        let in_it: BTreeSet<_> = read_section(&repository, base)
            .unwrap()
            .chunks
            .iter()
            .map(|it| it.fingerprint)
            .collect();
        let rests = |id: &ContainerId| {
            let section = read_section(&repository, *id).unwrap();
            let mut bases = section.deltas.iter().flat_map(|delta| &delta.bases);
            bases.any(|base| in_it.contains(&base.fingerprint))
        };
        containers(&repository).into_iter().filter(rests).collect()
    };
    let base = *whole.iter().nth(whole.len() / 2).unwrap();
    let dependent = made_of(base);
    assert!(!dependent.is_empty() && !dependent.contains(&base));
    damage(&memory, base);
    let before = containers(&repository).len();
    let may_stay = |id: &ContainerId| *id == base || dependent.contains(id);
    let mut counts = Vec::new();
    for seed in [7, 8, 9, 10] {
        let repository = open_on(Arc::new(memory.clone()), seed).unwrap();
        let report = collect(&repository, &repacking(), &job()).unwrap();
        assert!(!report.kept.is_empty(), "{report:?}");
        assert!(report.kept.iter().all(|(id, _)| may_stay(id)), "{report:?}");
        let left = containers(&repository);
        assert!(left.contains(&base) && dependent.iter().any(|id| left.contains(id)));
        counts.push(left.len());
        // The first time nobody knows, and from then on everybody does.
        assert!(!check_all(&repository).is_clean());
    }
    // What stays is beside the copies of what goes.
    let most = before + dependent.len() + 4;
    assert!(counts[0] <= most, "{counts:?} of {before}, {} stay", dependent.len());
    assert!(counts.iter().all(|count| *count <= counts[0]), "{counts:?}");
    // With the bytes back everything is whole.
    damage(&memory, base);
    let repository = open_on(Arc::new(memory.clone()), 13).unwrap();
    assert!(content_at(&repository, newest, Path::new("stream")) == edited);
}
