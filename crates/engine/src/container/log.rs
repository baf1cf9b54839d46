//! The container log: appends finished containers to the store.
//!
//! One thread puts containers, so that streams go on while the device works. Order (protocol, W6;
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
use std::sync::{Arc, Mutex, PoisonError};
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

enum Message {
    Append(FinishedContainer),
    /// Answer once everything before is durable.
    Barrier(Sender<()>),
}

#[derive(Default)]
struct State {
    durable: Vec<DurableContainer>,
    /// Buffers of containers that are stored, for the next ones: buffers of this size, freed by
    /// another thread, are what an allocator keeps most of.
    spare: Vec<Vec<u8>>,
    failure: Option<(ErrorKind, String)>,
}

/// Appends containers in the background.
pub struct ContainerLog {
    messages: Mutex<Option<Sender<Message>>>,
    state: Arc<Mutex<State>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ContainerLog {
    /// Starts the log of one session; so many containers may wait while one is being stored. Each
    /// is told to `stored` once it is durable.
    pub fn start(
        store: Arc<dyn Store>,
        waiting_max: usize,
        stored: impl Fn(&DurableContainer) + Send + 'static,
    ) -> Result<Self> {
        let (messages, inbox) = bounded(waiting_max);
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("container-log".into())
            .spawn(move || run(&*store, &inbox, &shared, &stored))
            .map_err(|cause| Error::io("starting a thread", cause))?;
        Ok(Self { messages: Mutex::new(Some(messages)), state, thread: Mutex::new(Some(thread)) })
    }

    /// An empty buffer, of a container that is stored if there is one.
    #[must_use]
    pub fn buffer(&self, capacity: usize) -> Vec<u8> {
        let spare = lock(&self.state).spare.pop();
        spare.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Hands over a container; waits while one is being stored and as many wait as may.
    pub fn append(&self, container: FinishedContainer) -> Result<()> {
        self.check()?;
        self.send(Message::Append(container))
    }

    /// Waits until everything appended so far is durable, and takes it.
    pub fn settle(&self) -> Result<Vec<DurableContainer>> {
        self.wait()?;
        self.take_durable()
    }

    /// Waits until everything appended so far is durable.
    pub fn wait(&self) -> Result<()> {
        let (done, wait) = bounded(1);
        self.send(Message::Barrier(done))?;
        wait.recv().map_err(|_| stopped())?;
        self.check()
    }

    /// The names of what has become durable of all that was appended, although something else could
    /// not be stored; nothing is taken.
    #[must_use]
    pub fn stored(&self) -> Vec<ContainerId> {
        // What failed is known to the caller; a log that has stopped has nothing under way.
        let _ = self.wait();
        lock(&self.state).durable.iter().map(|container| container.id).collect()
    }

    /// Takes what has become durable so far.
    pub fn take_durable(&self) -> Result<Vec<DurableContainer>> {
        self.check()?;
        Ok(std::mem::take(&mut lock(&self.state).durable))
    }

    /// Fails if a container could not be stored.
    pub fn check(&self) -> Result<()> {
        match &lock(&self.state).failure {
            Some((kind, message)) => Err(Error::new(*kind, message.clone())),
            None => Ok(()),
        }
    }

    fn send(&self, message: Message) -> Result<()> {
        let sender = lock(&self.messages).clone().ok_or_else(stopped)?;
        sender.send(message).map_err(|_| stopped())
    }
}

impl Drop for ContainerLog {
    fn drop(&mut self) {
        lock(&self.messages).take();
        if let Some(thread) = lock(&self.thread).take() {
            // A panicked thread has closed its channel; nothing appended later counted as stored.
            let _ = thread.join();
        }
    }
}

fn run(
    store: &dyn Store,
    inbox: &Receiver<Message>,
    state: &Mutex<State>,
    tell: &dyn Fn(&DurableContainer),
) {
    for message in inbox {
        match message {
            Message::Barrier(done) => {
                let _ = done.send(());
            }
            Message::Append(mut container) => {
                if lock(state).failure.is_some() {
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
                let mut state = lock(state);
                match stored {
                    Ok(durable) => state.durable.push(durable),
                    Err(error) => state.failure = Some((error.kind(), error.to_string())),
                }
                container.bytes.clear();
                state.spare.push(container.bytes);
            }
        }
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
