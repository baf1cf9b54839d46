//! Bodies of requests: how long they are, and that they arrive in time.
//!
//! # Invariants
//! A body that is held has its share of the server's room for bodies, within what its client may
//! have of it: who sends slowly holds up itself only. One that stands still, or
//! comes more slowly than clients allow a line to be, is given up, so that nobody holds room or a
//! thread for ever.

use crate::answers::Failure;
use crate::asking::{Asking, ROOM_UNIT_BYTES};
use crate::limits::Patience;
use crate::taken::Room;
use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A line slower than this is taken for one that stands still, as clients do.
const SLOWEST_BYTES_PER_SECOND: u64 = 32 << 10;

/// How long a body says it is.
pub fn length_of(headers: &HeaderMap) -> Result<u64, Failure> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    said.and_then(|length| length.parse().ok()).ok_or_else(|| {
        let said = "a body says how long it is";
        Failure::new(StatusCode::LENGTH_REQUIRED, "MissingContentLength", said)
    })
}

/// Holds a body of known length, once there is room for it.
pub async fn whole(asking: &Asking, body: Body, length: u64) -> Result<(Bytes, Room), Failure> {
    let units = u32::try_from(length.div_ceil(ROOM_UNIT_BYTES)).unwrap_or(u32::MAX);
    let own = asking.shared.share_of(&asking.name).room;
    let room = Room::of(own, Arc::clone(&asking.shared.room), units);
    let room =
        tokio::time::timeout(asking.shared.patience.idle, room).await.ok().and_then(Result::ok);
    let room = room.ok_or_else(|| Failure::busy("there is no room for the body now"))?;
    let mut bytes = BytesMut::with_capacity(length as usize);
    let mut arriving = Arriving::new(body, length, asking.shared.patience.idle);
    while let Some(piece) = arriving.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes.freeze(), room))
}

/// A body of known length, which has to arrive in time.
pub struct Arriving {
    body: BodyDataStream,
    left: u64,
    idle: Duration,
    last: Instant,
}

impl Arriving {
    /// One of this length.
    pub fn new(body: Body, length: u64, idle: Duration) -> Self {
        let time = idle + Duration::from_secs(length / SLOWEST_BYTES_PER_SECOND);
        let (body, last) = (body.into_data_stream(), Instant::now() + time);
        Self { body, left: length, idle, last }
    }

    /// The next piece; none once all is there.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let time = self.idle.min(self.last.saturating_duration_since(Instant::now()));
        match tokio::time::timeout(time, self.body.next()).await {
            Ok(Some(Ok(piece))) => {
                let left = self.left.checked_sub(piece.len() as u64);
                self.left =
                    left.ok_or_else(|| Failure::request("a body is longer than it says"))?;
                Ok(Some(piece))
            }
            Ok(Some(Err(error))) => {
                Err(Failure::incomplete(format!("the body breaks off: {error}")))
            }
            Ok(None) if self.left > 0 => {
                Err(Failure::incomplete(format!("{} bytes are missing", self.left)))
            }
            Ok(None) => Ok(None),
            Err(_) => Err(Failure::incomplete("the body stands still, or comes too slowly")),
        }
    }
}

/// Takes in what a client sends that was refused already, so that it hears why: one that is cut
/// off while it sends does not.
pub async fn drain(body: Body, patience: Patience) {
    let mut body = body.into_data_stream();
    let reading = async { while let Some(Ok(_)) = body.next().await {} };
    let _ = tokio::time::timeout(patience.drain, reading).await;
}
