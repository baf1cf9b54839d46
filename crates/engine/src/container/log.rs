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
use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_format::container::{FOOTER_BYTES, SKETCH_BYTES};
use onefold_format::layout;
use onefold_store::{Key, Store};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::collections::BTreeSet;
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
    inbox: Mutex<Option<Sender<(u64, FinishedContainer)>>>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl ContainerLog {
    /// Starts the log of one session, which puts so many containers at once; so many more may wait
    /// meanwhile. Each is told to `stored` once it is durable.
    pub fn start(
        store: Arc<dyn Store>,
        at_once: usize,
        waiting_max: usize,
        stored: impl Fn(&DurableContainer) + Send + Sync + 'static,
    ) -> Result<Self> {
        let (sender, inbox) = bounded(waiting_max);
        let shared = Arc::<Shared>::default();
        let stored = Arc::new(stored);
        let start = |_| {
            let (store, inbox) = (Arc::clone(&store), inbox.clone());
            let (shared, stored) = (Arc::clone(&shared), Arc::clone(&stored));
            std::thread::Builder::new()
                .name("container-log".into())
                .spawn(move || run(&*store, &inbox, &shared, &*stored))
                .map_err(|cause| Error::io("starting a thread", cause))
        };
        let threads = (0..at_once.max(1)).map(start).collect::<Result<_>>()?;
        Ok(Self { inbox: Mutex::new(Some(sender)), shared, threads: Mutex::new(threads) })
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
        let number = {
            let mut state = lock(&self.shared.state);
            state.appended += 1;
            let number = state.appended;
            state.under_way.insert(number);
            number
        };
        sender.send((number, container)).map_err(|_| {
            self.shared.end(number);
            stopped()
        })
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
            // One that panicked has told nobody that its container is stored.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn end(&self, number: u64) {
        lock(&self.state).under_way.remove(&number);
        self.done.notify_all();
    }
}

/// Ends what is under way, whether or not its thread panics: nobody waits for it for ever.
struct UnderWay<'a> {
    shared: &'a Shared,
    number: u64,
    is_stored: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_stored {
            let mut state = lock(&self.shared.state);
            let stopped = || (ErrorKind::Io, stopped().to_string());
            state.failure.get_or_insert_with(stopped);
        }
        self.shared.end(self.number);
    }
}

fn run(
    store: &dyn Store,
    inbox: &Receiver<(u64, FinishedContainer)>,
    shared: &Shared,
    tell: &(dyn Fn(&DurableContainer) + Sync),
) {
    for (number, mut container) in inbox {
        let mut under_way = UnderWay { shared, number, is_stored: false };
        if lock(&shared.state).failure.is_some() {
            continue;
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
        under_way.is_stored = true;
    }
}

fn store_container(store: &dyn Store, container: &FinishedContainer) -> Result<()> {
    let key = Key::new(layout::container(container.id))?;
    store.put(&key, &container.bytes)?;
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
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "the container log has stopped")
}
