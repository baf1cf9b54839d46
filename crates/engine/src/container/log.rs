//! The container log: appends finished containers to the store.
//!
//! Threads of its own put containers, so that streams go on while the device works: one where the
//! device is near, several where each put waits for a far store. Order (protocol, W6;
//! design, section 4): containers, then packs of their metadata sections, then an index run, then
//! the commit. Nothing is indexed before its container is durable (R21), and a container counts as
//! durable only once the store shows it at its full length and gives the metadata section and the
//! footer back as they were put (R35): without these nothing in it can be used.
//!
//! Invariant: after a failure nothing more is appended and every later call fails, so a session
//! whose container was lost cannot commit (R24, R27).

use super::frame_id::FrameExtent;
use crate::memory::Lease;
use crate::repository::Repository;
use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_format::container::{FOOTER_BYTES, SKETCH_BYTES};
use onefold_format::layout;
use onefold_store::{Key, Store};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A container ready to be stored.
pub struct FinishedContainer {
    /// Its name.
    pub id: ContainerId,
    /// The whole object.
    pub bytes: Vec<u8>,
    /// The metadata section exactly as it stands in the object.
    pub sealed_section: Vec<u8>,
    /// The fingerprints in it, in order.
    pub fingerprints: Vec<Fingerprint>,
    /// Its frames.
    pub frames: Box<[FrameExtent]>,
    /// What others are found by to be like chunks of it, by their positions.
    pub sketches: Vec<(u32, [u8; SKETCH_BYTES])>,
}

/// A container that is durable but not yet in an index run.
pub struct DurableContainer {
    /// Its name.
    pub id: ContainerId,
    /// The fingerprints in it, in order.
    pub fingerprints: Vec<Fingerprint>,
    /// Its frames.
    pub frames: Box<[FrameExtent]>,
    /// Its metadata section, for a metadata pack.
    pub sealed_section: Vec<u8>,
    /// The object's length.
    pub bytes: u64,
    /// What others are found by to be like chunks of it, by their positions.
    pub sketches: Vec<(u32, [u8; SKETCH_BYTES])>,
}

#[derive(Default)]
struct State {
    durable: Vec<DurableContainer>,
    /// Buffers of containers that are stored, for the next ones: buffers of this size, freed by
    /// another thread, are what an allocator keeps most of.
    spare: Vec<Vec<u8>>,
    failure: Option<(ErrorKind, String)>,
    /// How many were appended.
    appended: u64,
    /// Which of them are under way, by their numbers.
    under_way: BTreeSet<u64>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// That one less is under way.
    done: Condvar,
}

/// Appends containers in the background.
pub struct ContainerLog {
    inbox: Mutex<Option<Sender<(UnderWay, FinishedContainer)>>>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The memory of what is put beside one.
    lease: Option<Lease>,
}

impl ContainerLog {
    /// Starts the log of one session, which puts as many containers at once as is best for the
    /// store, if there is memory for it. Each is told to `stored` once it is durable.
    pub fn start(
        repository: &Repository,
        stored: impl Fn(&DurableContainer) + Send + Sync + 'static,
    ) -> Result<Self> {
        let (store, memory) = (repository.shared_store(), repository.memory());
        let more = store.puts_at_once().saturating_sub(1);
        let container_bytes = repository.container_target_bytes().max(1);
        let purse = repository.purse();
        // Most of what is left is for what is kept in memory.
        let lease = purse.take((more * container_bytes).min(purse.left_bytes() / 4));
        let at_once = 1 + lease.bytes() / container_bytes;
        let waiting_max = memory.containers_waiting_max;
        let mut log = Self::start_with(store, at_once, waiting_max, stored)?;
        log.lease = Some(lease);
        Ok(log)
    }

    /// The same for so many at once; so many more may wait meanwhile.
    pub fn start_with(
        store: Arc<dyn Store>,
        at_once: usize,
        waiting_max: usize,
        stored: impl Fn(&DurableContainer) + Send + Sync + 'static,
    ) -> Result<Self> {
        let (sender, inbox) = bounded(waiting_max);
        let stored = Arc::new(stored);
        let start = |_| {
            let (store, inbox, stored) = (Arc::clone(&store), inbox.clone(), Arc::clone(&stored));
            std::thread::Builder::new()
                .name("container-log".into())
                .spawn(move || run(&*store, &inbox, &*stored))
                .map_err(|cause| Error::io("starting a thread", cause))
        };
        let threads = (0..at_once.max(1)).map(start).collect::<Result<_>>()?;
        Ok(Self {
            inbox: Mutex::new(Some(sender)),
            shared: Arc::default(),
            threads: Mutex::new(threads),
            lease: None,
        })
    }

    /// An empty buffer, of a container that is stored if there is one.
    #[must_use]
    pub fn buffer(&self, capacity: usize) -> Vec<u8> {
        let spare = lock(&self.shared.state).spare.pop();
        spare.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Hands over a container; waits while as many are being stored as may be at once, and as many
    /// wait as may.
    pub fn append(&self, container: FinishedContainer) -> Result<()> {
        self.check()?;
        let sender = lock(&self.inbox).clone().ok_or_else(stopped)?;
        let under_way = UnderWay::begin(&self.shared);
        sender.send((under_way, container)).map_err(|_| stopped())
    }

    /// Waits until everything appended so far is durable, and takes it.
    pub fn settle(&self) -> Result<Vec<DurableContainer>> {
        self.wait()?;
        self.take_durable()
    }

    /// Waits until everything appended so far is durable.
    pub fn wait(&self) -> Result<()> {
        let mut state = lock(&self.shared.state);
        let newest = state.appended;
        while state.under_way.first().is_some_and(|oldest| *oldest <= newest) {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.check()
    }

    /// The names of what has become durable of all that was appended, although something else could
    /// not be stored; nothing is taken.
    #[must_use]
    pub fn stored(&self) -> Vec<ContainerId> {
        // What failed is known to the caller; a log that has stopped has nothing under way.
        let _ = self.wait();
        lock(&self.shared.state).durable.iter().map(|container| container.id).collect()
    }

    /// Takes what has become durable so far.
    pub fn take_durable(&self) -> Result<Vec<DurableContainer>> {
        self.check()?;
        Ok(std::mem::take(&mut lock(&self.shared.state).durable))
    }

    /// Fails if a container could not be stored.
    pub fn check(&self) -> Result<()> {
        match &lock(&self.shared.state).failure {
            Some((kind, message)) => Err(Error::new(*kind, message.clone())),
            None => Ok(()),
        }
    }
}

impl Drop for ContainerLog {
    fn drop(&mut self) {
        lock(&self.inbox).take();
        for thread in lock(&self.threads).drain(..) {
            // It ends with its inbox.
            let _ = thread.join();
        }
    }
}

/// A container from when it is appended until it is stored, or never will be.
struct UnderWay {
    shared: Arc<Shared>,
    number: u64,
    is_settled: bool,
}

impl UnderWay {
    fn begin(shared: &Arc<Shared>) -> Self {
        let mut state = lock(&shared.state);
        state.appended += 1;
        let number = state.appended;
        state.under_way.insert(number);
        Self { shared: Arc::clone(shared), number, is_settled: false }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        if !self.is_settled {
            state.failure.get_or_insert_with(|| (ErrorKind::Io, stopped().to_string()));
        }
        state.under_way.remove(&self.number);
        self.shared.done.notify_all();
    }
}

fn run(
    store: &dyn Store,
    inbox: &Receiver<(UnderWay, FinishedContainer)>,
    tell: &(dyn Fn(&DurableContainer) + Sync),
) {
    for (under_way, container) in inbox {
        // A panic fails the log as any error does. The thread goes on: what nobody takes out of the
        // inbox would be under way for ever.
        let settle = || settle(store, tell, under_way, container);
        let _ = catch_unwind(AssertUnwindSafe(settle));
    }
}

/// Stores a container, unless one could not be stored before.
fn settle(
    store: &dyn Store,
    tell: &(dyn Fn(&DurableContainer) + Sync),
    mut under_way: UnderWay,
    mut container: FinishedContainer,
) {
    let shared = Arc::clone(&under_way.shared);
    if lock(&shared.state).failure.is_some() {
        return;
    }
    let stored = store_container(store, &container).map(|()| DurableContainer {
        id: container.id,
        fingerprints: container.fingerprints,
        frames: container.frames,
        sealed_section: container.sealed_section,
        bytes: container.bytes.len() as u64,
        sketches: container.sketches,
    });
    stored.iter().for_each(tell);
    let mut state = lock(&shared.state);
    match stored {
        Ok(durable) => state.durable.push(durable),
        Err(error) => drop(state.failure.get_or_insert((error.kind(), error.to_string()))),
    }
    container.bytes.clear();
    state.spare.push(container.bytes);
    under_way.is_settled = true;
}

fn store_container(store: &dyn Store, container: &FinishedContainer) -> Result<()> {
    let key = Key::new(layout::container(container.id))?;
    store.put_fresh(&key, &container.bytes)?;
    let tail_bytes = container.sealed_section.len() + FOOTER_BYTES;
    let (size, tail) = store.get_tail(&key, tail_bytes)?;
    if size != container.bytes.len() as u64
        || tail.len() != tail_bytes
        || !container.bytes.ends_with(&tail)
    {
        return Err(Error::damaged(format!(
            "the store acknowledged container {} but holds other bytes; do not trust this device",
            container.id
        )));
    }
    store.was_read_back(&key);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "the container log has stopped")
}
