//! Requests about objects that arrive in parts.
//!
//! # Algorithm
//! The parts of an upload follow each other; the last one may come again, from a client that did
//! not hear that it arrived. An upload that is complete is known as such for a while: its client
//! may ask again. What is put counts for its client, whether or not somebody waits for the answer.

use crate::answers::{ETAG, Failure, xml};
use crate::asking::{Asking, on_thread};
use crate::bodies::{drain, length_of, whole};
use crate::limits::PART_MAX_BYTES;
use crate::open_uploads::{Arriving, State, Upload};
use crate::pieces::{Pieces, ended};
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onefold_store::Key;
use std::sync::Arc;
use std::time::Instant;

/// Begins an upload, if its name is free.
pub async fn begin(asking: Asking, key: Key) -> Result<Response, Failure> {
    let (served, name) = (Arc::clone(&asking.served), key.clone());
    on_thread(move || Ok(served.refuse_taken(&name)?)).await?;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Failure::busy(error.to_string()))?;
    let id = hex::encode(random);
    asking.shared.uploads.add(id.clone(), &asking.name, || {
        let (served, client) = (Arc::clone(&asking.served), asking.name.clone());
        let pause = asking.shared.patience.pause;
        let state = State::Open(Pieces::begin(served, client, key.clone(), pause));
        let arriving = Arriving { state, parts: 0, hash: None, changed: Instant::now() };
        Upload {
            client: asking.name.clone(),
            store: asking.served.name.clone(),
            key: key.clone(),
            arriving: arriving.into(),
        }
    })?;
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
    let upload = asking.upload(key, id)?;
    let length = length_of(request.headers())?;
    if length > PART_MAX_BYTES {
        drain(request.into_body(), asking.shared.patience).await;
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
        let taken = asking.take(length)?;
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
    let upload = asking.upload(&key, id)?;
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
    if asking.upload(key, id).is_ok() {
        asking.shared.uploads.remove(id);
    }
}
