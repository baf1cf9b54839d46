//! Packing anew that is stopped, or meets damage: what was packed is not packed again, and what
//! cannot be copied stays where it is.

use crate::ingest::content_at;
use crate::steps::{
    PASSWORD, backup_options, check_all, containers, create_on, environment, job, key, open_in,
    open_on, random_bytes,
};
use onefold_crypto::Suite;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::{BackupOptions, ParentChoice, backup};
use onefold_engine::look_up::LookupChoice;
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

/// A store with two versions, most chunks of the second of which are differences against the first,
/// and a container of the first that is damaged, with those that rest on it.
struct Damaged {
    memory: MemoryStore,
    base: ContainerId,
    dependent: BTreeSet<ContainerId>,
    before: usize,
    newest: SessionId,
    bytes: Vec<u8>,
}

fn damaged() -> Damaged {
    let (memory, mut bytes, _) = filled();
    // Enough to remember what all chunks are like.
    let plan = MemoryPlan::new(512 << 20).unwrap();
    let repository = open_in(Arc::new(memory.clone()), environment(3), plan).unwrap();
    let whole = containers(&repository);
    let new = random_bytes(2, bytes.len());
    for (piece, new) in bytes.chunks_mut(8 << 10).zip(new.chunks(8 << 10)) {
        let length = piece.len().min(1500);
        piece[..length].copy_from_slice(&new[..length]);
    }
    let newest = save(&repository, &bytes, DeltaChoice::default());
    let base = *whole.iter().nth(whole.len() / 2).unwrap();
    let section = read_section(&repository, base).unwrap();
    let in_it: BTreeSet<_> = section.chunks.iter().map(|chunk| chunk.fingerprint).collect();
    let rests = |id: &ContainerId| {
        let section = read_section(&repository, *id).unwrap();
        let mut bases = section.deltas.iter().flat_map(|delta| &delta.bases);
        bases.any(|base| in_it.contains(&base.fingerprint))
    };
    let all = containers(&repository);
    let (before, dependent) = (all.len(), all.into_iter().filter(rests).collect::<BTreeSet<_>>());
    assert!(!dependent.is_empty() && !dependent.contains(&base));
    damage(&memory, base);
    Damaged { memory, base, dependent, before, newest, bytes }
}

impl Damaged {
    /// Collects four times, with a check after each; what cannot be copied stays, and nothing grows
    /// from the second time on.
    fn collect(&self, options: &CollectOptions) {
        let may_stay = |id: &ContainerId| *id == self.base || self.dependent.contains(id);
        let mut counts = Vec::new();
        for seed in [7, 8, 9, 10] {
            let repository = open_on(Arc::new(self.memory.clone()), seed).unwrap();
            // The first time nobody knows, and from then on everybody does.
            match collect(&repository, options, &job()) {
                Ok(report) => {
                    assert!(!report.kept.is_empty(), "{report:?}");
                    assert!(report.kept.iter().all(|(id, _)| may_stay(id)), "{report:?}");
                }
                Err(error) => assert!(seed == 7, "{error}"),
            }
            let left = containers(&repository);
            assert!(left.contains(&self.base));
            assert!(self.dependent.iter().any(|id| left.contains(id)));
            counts.push(left.len());
            assert!(!check_all(&repository).is_clean());
        }
        // What stays is beside the copies of what goes.
        let most = self.before + self.dependent.len() + 4;
        assert!(counts[1] <= most, "{counts:?} of {}", self.before);
        assert!(counts[3] <= counts[1], "{counts:?}");
        // With the bytes back everything is whole.
        damage(&self.memory, self.base);
        let repository = open_on(Arc::new(self.memory.clone()), 13).unwrap();
        assert!(content_at(&repository, self.newest, Path::new("stream")) == self.bytes);
    }
}

#[test]
fn what_is_made_of_damaged_chunks_stays_where_it_is_when_others_are_packed() {
    damaged().collect(&repacking());
}

#[test]
fn what_is_made_of_damaged_chunks_stays_where_it_is_when_others_are_sealed_anew() {
    let damaged = damaged();
    let repository = open_on(Arc::new(damaged.memory.clone()), 6).unwrap();
    repository.rotate_keys(PASSWORD, true).unwrap();
    damaged.collect(&CollectOptions { reseal: true, ..CollectOptions::default() });
}

/// Of two instances the rotten one is left, and the sound one is not deleted for it.
#[test]
fn a_sound_instance_does_not_go_for_one_that_is_rotten() {
    let (memory, bytes, snapshot) = filled();
    let repository = open_on(Arc::new(memory.clone()), 3).unwrap();
    let first = containers(&repository);
    // Everything once more, in other containers.
    let options = BackupOptions {
        lookup: LookupChoice::None,
        parent: ParentChoice::None,
        ..backup_options()
    };
    backup(&repository, crate::ingest::stream("stream", &bytes), &options, &job()).unwrap();
    // The newest instance counts; half of these have rotten, and nobody knows.
    let second: Vec<ContainerId> =
        containers(&repository).into_iter().filter(|id| !first.contains(id)).collect();
    second.iter().step_by(2).for_each(|id| damage(&memory, *id));
    for (seed, options) in [(7, repacking()), (8, repacking())] {
        let repository = open_on(Arc::new(memory.clone()), seed).unwrap();
        let _ = collect(&repository, &options, &job());
        let repository = open_on(Arc::new(memory.clone()), seed + 10).unwrap();
        assert!(content_at(&repository, snapshot, Path::new("stream")) == bytes);
        check_all(&repository);
    }
}
