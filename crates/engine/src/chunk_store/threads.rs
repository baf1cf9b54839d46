//! The threads of a session, and what its open containers need of it.

use super::ChunkStoreOptions;
use super::bases::Bases;
use crate::container::frame_pool::FramePool;
use crate::container::log::{ContainerLog, DurableContainer};
use crate::container::open::{ContainerContext, DeltaCounters, frames_in_flight_max};
use crate::container::similar::SimilarChunks;
use crate::index::ChunkIndex;
use crate::repository::Repository;
use onefold_types::Result;
use std::sync::{Arc, Mutex};

/// Threads that seal for each that would, where most of them wait for a far store.
const WAITING_THREADS: usize = 4;

/// The threads of a session, and what its open containers need.
pub(super) fn context_of(
    repository: &Arc<Repository>,
    options: &ChunkStoreOptions,
    bases: &Arc<Bases>,
    index: &Arc<dyn ChunkIndex>,
) -> Result<ContainerContext> {
    let environment = repository.environment();
    let fingerprinter = repository.fingerprinter();
    let similar = Arc::clone(bases) as Arc<dyn SimilarChunks>;
    let similar = bases.makes_deltas().then_some(&similar);
    // Whoever seals a frame reads what is like its chunks, and waits for that where it is far.
    let waits = similar.is_some() && repository.store().puts_at_once() > 1;
    let waiting = (WAITING_THREADS * options.threads).min(repository.memory().threads_max());
    let threads = if waits { waiting.max(options.threads) } else { options.threads };
    let pool = FramePool::start(threads, options.compression, fingerprinter, similar)?;
    let (noted, told) = (Arc::clone(bases), Arc::clone(index));
    let note = move |stored: &DurableContainer| {
        noted.seen.note_own(stored.id);
        noted.note_sketches(stored.id, &stored.sketches);
        told.note_durable(stored.id, &stored.fingerprints);
    };
    let log = ContainerLog::start(repository, note)?;
    let target_bytes = repository.container_target_bytes();
    Ok(ContainerContext {
        vault: Arc::clone(repository.vault()),
        randomness: Arc::clone(&environment.randomness),
        clock: Arc::clone(&environment.clock),
        pool: Arc::new(pool),
        log: Arc::new(log),
        frames_in_flight_max: frames_in_flight_max(waits.then_some(threads), target_bytes),
        target_bytes,
        frame_bytes: repository.frame_target_bytes(),
        session: options.session,
        repacked_level: 0,
        named: Mutex::default(),
        deltas: DeltaCounters::default(),
    })
}
