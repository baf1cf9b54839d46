//! The threads that seal frames.
//!
//! Compression is most of the cost of new data, so it runs on all cores. A frame is handed in with
//! a channel of its own for the result; whoever assembles the container waits on these channels in
//! order, so that frames stand in a container in stream order whichever thread sealed them.

use super::frame::{CodedFrame, FrameSealer, PlainFrame, SealedFrame};
use super::similar::SimilarChunks;
use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_crypto::{Fingerprinter, ObjectSealer};
use onefold_format::codec::Compression;
use onefold_types::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::thread::JoinHandle;

enum Work {
    Seal(PlainFrame),
    Carry(CodedFrame),
}

struct Task {
    work: Work,
    number: u32,
    sealer: Arc<ObjectSealer>,
    done: Sender<Result<SealedFrame>>,
}

/// A frame that is being sealed.
pub struct Pending(Receiver<Result<SealedFrame>>);

impl Pending {
    /// Waits for the sealed frame.
    pub fn wait(self) -> Result<SealedFrame> {
        self.0.recv().unwrap_or_else(|_| Err(stopped()))
    }
}

/// The sealing threads of a session. Dropping it ends them once their work is done.
pub struct FramePool {
    tasks: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
}

impl FramePool {
    /// Starts `threads` threads that compress as told, and make deltas against what is similar.
    pub fn start(
        threads: usize,
        compression: Compression,
        fingerprinter: &Arc<Fingerprinter>,
        similar: Option<&Arc<dyn SimilarChunks>>,
    ) -> Result<Self> {
        let (tasks, inbox) = bounded::<Task>(threads);
        let mut handles = Vec::with_capacity(threads);
        for number in 0..threads.max(1) {
            let inbox = inbox.clone();
            let fingerprinter = Arc::clone(fingerprinter);
            let mut sealer = FrameSealer::new(compression, similar.cloned())?;
            let thread = std::thread::Builder::new().name(format!("seal-{number}"));
            let run = move || {
                for task in inbox {
                    let Task { work, number, sealer: object, done } = task;
                    let sealed = match work {
                        Work::Seal(frame) => sealer.seal(frame, number, &object, &fingerprinter),
                        Work::Carry(frame) => sealer.carry(frame, number, &object),
                    };
                    // Nobody waits any more if the session has failed; then nothing is lost.
                    let _ = done.send(sealed);
                }
            };
            let handle =
                thread.spawn(run).map_err(|cause| Error::io("starting a thread", cause))?;
            handles.push(handle);
        }
        Ok(Self { tasks: Some(tasks), threads: handles })
    }

    /// Hands a frame to the threads; waits while all of them are busy.
    pub fn seal(
        &self,
        frame: PlainFrame,
        number: u32,
        sealer: Arc<ObjectSealer>,
    ) -> Result<Pending> {
        self.hand_in(Work::Seal(frame), number, sealer)
    }

    /// Hands a frame that is coded already to the threads; waits while all of them are busy.
    pub fn carry(
        &self,
        frame: CodedFrame,
        number: u32,
        sealer: Arc<ObjectSealer>,
    ) -> Result<Pending> {
        self.hand_in(Work::Carry(frame), number, sealer)
    }

    fn hand_in(&self, work: Work, number: u32, sealer: Arc<ObjectSealer>) -> Result<Pending> {
        let (done, pending) = bounded(1);
        let task = Task { work, number, sealer, done };
        let tasks = self.tasks.as_ref().ok_or_else(stopped)?;
        tasks.send(task).map_err(|_| stopped())?;
        Ok(Pending(pending))
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has dropped its channels; whoever waited got an error.
            let _ = thread.join();
        }
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "a sealing thread has stopped")
}
