//! Objects that are written while they arrive.
//!
//! # Algorithm
//! A thread writes to a file without a name; pieces reach it through a channel that holds a few.
//! Only a piece that says so ends the object: a sender that goes away, and one that says nothing
//! for too long, leave nothing.

use crate::answers::Failure;
use crate::served::Served;
use crate::taken::{Room, Taken};
use bytes::Bytes;
use onefold_store::{Blobs as _, Key};
use onefold_types::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pieces between the network and the disk.
const PIECES_WAITING: usize = 2;

enum Piece {
    Bytes { bytes: Bytes, taken: Option<Taken>, room: Option<Room> },
    End,
}

/// An object that is being written.
pub struct Pieces {
    sender: mpsc::Sender<Piece>,
    written: JoinHandle<Result<(), Error>>,
}

impl Pieces {
    /// Begins to write; for each piece it waits so long.
    pub fn begin(served: Arc<Served>, client: String, key: Key, pause: Duration) -> Self {
        let (sender, mut receiver) = mpsc::channel(PIECES_WAITING);
        let runtime = tokio::runtime::Handle::current();
        let written = tokio::task::spawn_blocking(move || {
            let mut all_taken = Vec::new();
            let mut next = |into: &mut Vec<u8>| {
                let next = async { tokio::time::timeout(pause, receiver.recv()).await };
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
            served.put(&key, &client, |store| store.put_pieces(&key, &mut next))?;
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
        room: Option<Room>,
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

    /// Whether it has ended by itself.
    pub fn is_over(&self) -> bool {
        self.sender.is_closed()
    }

    async fn why(&mut self) -> Failure {
        match (&mut self.written).await {
            Ok(Err(error)) => error.into(),
            _ => ended(),
        }
    }
}

/// Writing is over, for a reason that was told already.
pub fn ended() -> Failure {
    Failure::busy("writing has ended: begin again")
}
