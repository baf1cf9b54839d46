//! Requests about one object.
//!
//! # Algorithm
//! A body of up to [`WHOLE_MAX_BYTES`] is held whole, with its share of the server's room for
//! bodies, and written at once; a longer one passes through in pieces, as the parts of an upload
//! do. An object is sent in pieces of [`PIECE_BYTES`], each read when the one before it has left.
//!
//! A name that is taken is told with whether the same bytes are there: a client whose answer was
//! lost need not read them, which it may not be allowed to.
//!
//! # Invariants
//! A body that does not arrive whole leaves nothing. A put says `If-None-Match: *`: whoever means
//! to replace something is told that nothing is.

use crate::answers::{ETAG, Failure, MODIFIED_IN_HEADERS};
use crate::asking::{Asking, on_thread};
use crate::bodies::{Arriving, drain, length_of, whole};
use crate::limits::{CLIENT_WRITERS_MAX, WHOLE_MAX_BYTES, WRITERS_MAX};
use crate::pieces::Pieces;
use crate::taken::Taken;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use onefold_store::{Blobs as _, Key, OBJECT_MAX_BYTES};
use onefold_types::ErrorKind;
use serde_json::json;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// What is read, and held, of an object that is sent.
const PIECE_BYTES: usize = 256 << 10;

/// Puts an object whose name is free.
pub async fn put(asking: Asking, key: Key, request: Request<Body>) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let admitted = admitted(&asking, &parts.headers);
    let Admitted { length, taken, writer } = match admitted {
        Ok(admitted) => admitted,
        Err(failure) => {
            drain(body, asking.shared.patience).await;
            return Err(failure);
        }
    };
    if writer.is_none() {
        let (bytes, room) = whole(&asking, body, length).await?;
        let putter = asking.clone();
        // What is put counts, whether or not somebody still waits for the answer.
        on_thread(move || {
            let _room = room;
            let served = &putter.served;
            match served.put(&key, &putter.name, |store| store.put(&key, &bytes)) {
                Ok(()) => taken.keep(),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let is_same = served.holds(&key, &bytes);
                    if is_same {
                        putter.note_own(&key);
                    }
                    return Err(Failure::taken(is_same));
                }
                Err(error) => return Err(error.into()),
            }
            putter.note_own(&key);
            Ok(())
        })
        .await?;
    } else {
        through(&asking, key.clone(), body, length, taken).await?;
        asking.note_own(&key);
    }
    asking.shared.metrics.received(&asking.name, length);
    Ok(([(header::ETAG, ETAG)], StatusCode::OK).into_response())
}

/// A put that may be.
struct Admitted {
    length: u64,
    taken: Taken,
    /// The place of a body that passes through; one that is held whole has none.
    writer: Option<[OwnedSemaphorePermit; 2]>,
}

fn admitted(asking: &Asking, headers: &HeaderMap) -> Result<Admitted, Failure> {
    if headers.get(header::IF_NONE_MATCH).is_none_or(|value| value != "*") {
        let said = "objects are never replaced: a put says 'If-None-Match: *'";
        return Err(Failure::request(said));
    }
    let length = length_of(headers)?;
    if length > OBJECT_MAX_BYTES as u64 {
        let said = format!("an object has at most {OBJECT_MAX_BYTES} bytes");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "EntityTooLarge", said));
    }
    let writer = match length > WHOLE_MAX_BYTES {
        false => None,
        true => Some(writer(asking)?),
    };
    Ok(Admitted { length, taken: asking.take(length)?, writer })
}

/// A place among the client's bodies that pass through, and among all.
fn writer(asking: &Asking) -> Result<[OwnedSemaphorePermit; 2], Failure> {
    let own = asking.shared.share_of(&asking.name).writers.try_acquire_owned().map_err(|_| {
        let client = &asking.name;
        Failure::busy(format!("{CLIENT_WRITERS_MAX} long objects of '{client}' are being written"))
    })?;
    let all = Arc::clone(&asking.shared.writers).try_acquire_owned();
    let busy = |_| Failure::busy(format!("{WRITERS_MAX} long objects are being written"));
    Ok([own, all.map_err(busy)?])
}

/// Writes a body as it arrives.
async fn through(
    asking: &Asking,
    key: Key,
    body: Body,
    length: u64,
    taken: Taken,
) -> Result<(), Failure> {
    let patience = asking.shared.patience;
    let mut pieces =
        Pieces::begin(Arc::clone(&asking.served), asking.name.clone(), key, patience.pause);
    let mut arriving = Arriving::new(body, length, patience.idle);
    let mut taken = Some(taken);
    while let Some(bytes) = arriving.next().await? {
        pieces.add(bytes, taken.take(), None).await?;
    }
    pieces.end().await
}

/// Sends an object, or the part of it that is asked for.
pub async fn read(
    asking: Asking,
    key: Key,
    method: Method,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let (served, name) = (Arc::clone(&asking.served), key.clone());
    let size = on_thread(move || Ok(served.size(&name)?)).await?;
    let said = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let part = said.map(|said| range_of(said, size)).transpose()?;
    let range = part.clone().unwrap_or(0..size);
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_LENGTH, range.end - range.start)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, ETAG)
        .header(header::LAST_MODIFIED, MODIFIED_IN_HEADERS);
    let response = match &part {
        None => response,
        Some(part) => response
            .status(StatusCode::PARTIAL_CONTENT)
            .header(header::CONTENT_RANGE, format!("bytes {}-{}/{size}", part.start, part.end - 1)),
    };
    let body = match method {
        Method::HEAD => Body::empty(),
        _ => {
            asking.shared.metrics.sent(&asking.name, range.end - range.start);
            sent(&asking, key, range)
        }
    };
    response.body(body).map_err(|error| Failure::request(error.to_string()))
}

/// The bytes of a range, each piece read when the one before it has left: whoever reads slowly
/// holds no thread. One that cannot be read ends the connection, which the client notices by the
/// length.
fn sent(asking: &Asking, key: Key, range: Range<u64>) -> Body {
    let from = (Arc::clone(&asking.served), key, range);
    Body::from_stream(stream::unfold(from, |(served, key, range)| async move {
        if range.is_empty() {
            return None;
        }
        let end = range.end.min(range.start + PIECE_BYTES as u64);
        let (store, name, start) = (Arc::clone(&served), key.clone(), range.start);
        let piece = on_thread(move || {
            let mut piece = vec![0; (end - start) as usize];
            store.store.get_range(&name, start, &mut piece)?;
            Ok(Bytes::from(piece))
        });
        let piece = piece.await.map_err(|failure| failure.to_string());
        let rest = if piece.is_ok() { end..range.end } else { range.end..range.end };
        Some((piece, (served, key, rest)))
    }))
}

/// The part of an object of this size that `Range` asks for.
fn range_of(said: &str, size: u64) -> Result<Range<u64>, Failure> {
    let wrong = || Failure::request(format!("the range '{said}' cannot be understood"));
    let (first, last) =
        said.strip_prefix("bytes=").and_then(|range| range.split_once('-')).ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let range = match (first, last) {
        ("", length) => size.saturating_sub(number(length)?)..size,
        (first, "") => number(first)?..size,
        (first, last) => number(first)?..number(last)?.saturating_add(1).min(size),
    };
    match range.is_empty() {
        false => Ok(range),
        true => Err(Failure::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            "InvalidRange",
            format!("the object has {size} bytes"),
        )),
    }
}

/// What the client may, and how much room there is.
pub async fn about(asking: Asking) -> Result<Response, Failure> {
    let text = on_thread(move || {
        let used = asking.shared.usage.all().get(&asking.name).copied().unwrap_or(0);
        let free = asking.served.free_bytes()?;
        let left = asking.client.quota_bytes.map(|quota| quota.saturating_sub(used));
        let said = json!({
            "client": asking.name,
            "rights": asking.client.rights,
            "notices": true,
            "free_bytes": left.into_iter().chain(free).min(),
        });
        Ok(said.to_string())
    });
    let text = text.await?;
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_LENGTH, text.len().to_string()),
        (header::ETAG, ETAG.to_owned()),
        (header::LAST_MODIFIED, MODIFIED_IN_HEADERS.to_owned()),
    ];
    Ok((headers, text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_the_object_or_refused() {
        for (said, range) in [
            ("bytes=0-0", 0..1),
            ("bytes=3-", 3..10),
            ("bytes=3-99", 3..10),
            ("bytes=-4", 6..10),
            ("bytes=-99", 0..10),
            ("bytes=9-18446744073709551615", 9..10),
        ] {
            assert_eq!(range_of(said, 10).unwrap(), range, "{said}");
        }
        for said in ["bytes=10-", "bytes=-0", "bytes=5-4"] {
            let status = range_of(said, 10).unwrap_err().status;
            assert_eq!(status, StatusCode::RANGE_NOT_SATISFIABLE, "{said}");
        }
        for said in ["", "bytes", "bytes=", "bytes=a-b", "bytes=-", "lines=1-2", "bytes=1-2,4-5"] {
            assert_eq!(range_of(said, 10).unwrap_err().status, StatusCode::BAD_REQUEST, "{said}");
        }
    }
}
