//! Objects that arrive in pieces: bodies too long to be held, and uploads in parts.
//!
//! # Algorithm
//! A thread writes to a file without a name; pieces reach it through a channel that holds a few.
//! Only a piece that says so ends the object: a sender that goes away, and one that says nothing
//! for ten minutes, leave nothing. The parts of an upload follow each other; the last one may come
//! again, from a client that did not hear that it arrived.
//!
//! An upload that is complete is known as such for a while: its client may ask again.
//!
//! # Invariants
//! At most [`UPLOADS_MAX`] uploads are open, [`CLIENT_UPLOADS_MAX`] of one client, each with a few
//! pieces in memory, whose room goes with them. Whose upload it is stands in it: nobody adds to
//! another client's. What is put counts for its client, whether or not somebody waits for the answer.

use crate::answers::{Failure, xml};
use crate::objects::{ETAG, Taken, WHOLE_MAX_BYTES, length_of, whole};
use crate::requests::Asking;
use crate::served::Served;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use onefold_store::{Blobs as _, Key};
use onefold_types::{Error, ErrorKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

/// Uploads that are open at once.
pub const UPLOADS_MAX: usize = 64;
/// The same of one client.
pub const CLIENT_UPLOADS_MAX: usize = 16;
/// The longest part.
pub const PART_MAX_BYTES: u64 = WHOLE_MAX_BYTES;
/// How long an upload waits for its next part.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Pieces between the network and the disk.
const PIECES_MAX: usize = 2;

enum Piece {
    Bytes { bytes: Bytes, taken: Option<Taken>, room: Option<OwnedSemaphorePermit> },
    End,
}

/// An object that is being written.
pub struct Pieces {
    sender: mpsc::Sender<Piece>,
    written: JoinHandle<Result<(), Error>>,
}

impl Pieces {
    /// Begins to write.
    pub fn begin(served: Arc<Served>, key: Key) -> Self {
        let (sender, mut receiver) = mpsc::channel(PIECES_MAX);
        let runtime = tokio::runtime::Handle::current();
        let written = tokio::task::spawn_blocking(move || {
            let mut all_taken = Vec::new();
            let mut next = |into: &mut Vec<u8>| {
                let next = async { tokio::time::timeout(PAUSE_MAX, receiver.recv()).await };
                match runtime.block_on(next) {
                    Ok(Some(Piece::Bytes { bytes, taken, room: _room })) => {
                        into.extend_from_slice(&bytes);
                        all_taken.extend(taken);
                        Ok(true)
                    }
                    Ok(Some(Piece::End)) => Ok(false),
                    Ok(None) => Err(Error::new(ErrorKind::Unavailable, "it was given up")),
                    Err(_) => Err(Error::new(ErrorKind::Unavailable, "nothing more came")),
                }
            };
            served.put(&key, |store| store.put_pieces(&key, &mut next))?;
            all_taken.into_iter().for_each(Taken::keep);
            Ok(())
        });
        Self { sender, written }
    }

    /// Hands a piece on. Where the disk has failed, that is why this does.
    pub async fn add(
        &mut self,
        bytes: Bytes,
        taken: Option<Taken>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Failure> {
        match self.sender.send(Piece::Bytes { bytes, taken, room }).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.why().await),
        }
    }

    /// Ends the object: it is there and durable afterwards.
    pub async fn end(mut self) -> Result<(), Failure> {
        match self.sender.send(Piece::End).await {
            Ok(()) => {}
            Err(_) => return Err(self.why().await),
        }
        match self.written.await {
            Ok(written) => Ok(written?),
            Err(_) => Err(ended()),
        }
    }

    async fn why(&mut self) -> Failure {
        match (&mut self.written).await {
            Ok(Err(error)) => error.into(),
            _ => ended(),
        }
    }
}

fn ended() -> Failure {
    Failure::busy("writing has ended: begin again")
}

/// All that are open.
#[derive(Default)]
pub struct Uploads(Mutex<HashMap<String, Arc<Upload>>>);

struct Upload {
    client: String,
    store: String,
    key: Key,
    arriving: tokio::sync::Mutex<Arriving>,
}

struct Arriving {
    state: State,
    parts: u32,
    /// Of the last part.
    hash: Option<blake3::Hash>,
    changed: Instant,
}

enum State {
    Open(Pieces),
    Over(Result<(), Failure>),
}

impl Uploads {
    fn add(&self, id: String, upload: Upload) -> Result<(), Failure> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = open.values().filter(|it| it.client == upload.client && it.is_open());
        if of_client.count() >= CLIENT_UPLOADS_MAX {
            let said = format!("'{}' has {CLIENT_UPLOADS_MAX} uploads open", upload.client);
            return Err(Failure::busy(said));
        }
        if open.values().filter(|upload| upload.is_open()).count() >= UPLOADS_MAX {
            return Err(Failure::busy(format!("{UPLOADS_MAX} uploads are open")));
        }
        open.insert(id, Arc::new(upload));
        Ok(())
    }

    /// Forgets those that were over long ago.
    pub fn sweep(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, upload| upload.is_of_use());
    }

    /// Ends those that are open.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn find(&self, asking: &Asking, key: &Key, id: &str) -> Result<Arc<Upload>, Failure> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = open.get(id).filter(|upload| upload.is_of(asking, key));
        found.cloned().ok_or_else(|| {
            Failure::new(StatusCode::NOT_FOUND, "NoSuchUpload", "there is no such upload")
        })
    }

    fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Upload {
    fn is_of(&self, asking: &Asking, key: &Key) -> bool {
        (&*self.client, &*self.store, &self.key) == (&*asking.name, &*asking.served.name, key)
    }

    /// One that is locked is in use.
    fn is_open(&self) -> bool {
        self.arriving.try_lock().map_or(true, |arriving| match &arriving.state {
            State::Open(pieces) => !pieces.sender.is_closed(),
            State::Over(_) => false,
        })
    }

    fn is_of_use(&self) -> bool {
        let is_young = |arriving: &Arriving| arriving.changed.elapsed() < PAUSE_MAX;
        self.is_open() || self.arriving.try_lock().map_or(true, |arriving| is_young(&arriving))
    }
}

/// Begins an upload.
pub async fn begin(asking: Asking, key: Key) -> Result<Response, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Failure::busy(error.to_string()))?;
    let id = hex::encode(random);
    let state = State::Open(Pieces::begin(Arc::clone(&asking.served), key.clone()));
    let arriving = Arriving { state, parts: 0, hash: None, changed: Instant::now() };
    let upload = Upload {
        client: asking.name.clone(),
        store: asking.served.name.clone(),
        key: key.clone(),
        arriving: arriving.into(),
    };
    asking.shared.uploads.add(id.clone(), upload)?;
    Ok(xml(format!(
        "<InitiateMultipartUploadResult><Bucket>{}</Bucket><Key>{key}</Key>\
         <UploadId>{id}</UploadId></InitiateMultipartUploadResult>",
        asking.served.name
    )))
}

/// Takes the next part, or the last one again.
pub async fn part(
    asking: Asking,
    key: &Key,
    id: &str,
    number: u32,
    request: Request<Body>,
) -> Result<Response, Failure> {
    let upload = asking.shared.uploads.find(&asking, key, id)?;
    let length = length_of(request.headers())?;
    if length > PART_MAX_BYTES {
        let said = format!("a part has at most {PART_MAX_BYTES} bytes");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "EntityTooLarge", said));
    }
    let (bytes, room) = whole(&asking, request.into_body(), length).await?;
    let hash = blake3::hash(&bytes);
    let mut arriving = upload.arriving.lock().await;
    let is_again = number == arriving.parts && arriving.hash == Some(hash);
    if !is_again {
        if number != arriving.parts + 1 {
            let said = format!("part {number} does not follow part {}", arriving.parts);
            return Err(Failure::new(StatusCode::BAD_REQUEST, "InvalidPartOrder", said));
        }
        let taken = Taken::new(&asking, length)?;
        let added = match &mut arriving.state {
            State::Open(pieces) => pieces.add(bytes, Some(taken), Some(room)).await,
            State::Over(Err(failure)) => return Err(failure.clone()),
            State::Over(Ok(())) => return Err(ended()),
        };
        arriving.changed = Instant::now();
        if let Err(failure) = added {
            arriving.state = State::Over(Err(failure.clone()));
            return Err(failure);
        }
        arriving.parts = number;
        arriving.hash = Some(hash);
        asking.shared.metrics.received(&asking.name, length);
    }
    Ok(([(header::ETAG, ETAG)], StatusCode::OK).into_response())
}

/// Ends an upload: the object is there. That goes on if the client does not wait for it, and is
/// told to one that asks again.
pub async fn complete(asking: Asking, key: Key, id: &str) -> Result<Response, Failure> {
    let upload = asking.shared.uploads.find(&asking, &key, id)?;
    let ending = tokio::spawn(async move {
        let mut arriving = upload.arriving.lock().await;
        let outcome = match std::mem::replace(&mut arriving.state, State::Over(Err(ended()))) {
            State::Open(pieces) => pieces.end().await,
            State::Over(outcome) => outcome,
        };
        arriving.state = State::Over(outcome.clone());
        arriving.changed = Instant::now();
        outcome
    });
    ending.await.unwrap_or_else(|_| Err(ended()))?;
    Ok(completed(&key))
}

fn completed(key: &Key) -> Response {
    xml(format!(
        "<CompleteMultipartUploadResult><Key>{key}</Key><ETag>{ETAG}</ETag>\
         </CompleteMultipartUploadResult>"
    ))
}

/// Ends an upload without an object.
pub fn give_up(asking: &Asking, key: &Key, id: &str) {
    if asking.shared.uploads.find(asking, key, id).is_ok() {
        asking.shared.uploads.remove(id);
    }
}
