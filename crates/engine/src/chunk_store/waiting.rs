//! Chunks of one stream that wait for their verdict, in stream order.
//!
//! A lazy look-up answers late and out of order (S0.9), but chunks must stand in containers in
//! stream order (S1.16). Whole batches therefore wait here with the buffer that holds their bytes,
//! and leave from the front as far as every chunk is decided; an eager look-up decides a batch at
//! once and it never stays.
//!
//! Invariants: tickets number the chunks of a stream without gaps; a chunk is released once, in
//! order, with its standing; a buffer is given back when its last chunk has been released.
//!
//! Nothing that waits here is promised to anybody: a session commits only after everything has been
//! decided and stored, and a session that dies leaves no trace of it (SX.4). Every ticket gets
//! exactly one verdict, and whoever commits asks first whether the queue is empty: anything else is
//! a defect and ends the session.

use crate::container::FrameId;
use onefold_types::{Fingerprint, Result, bug, invariant};
use std::collections::VecDeque;
use std::ops::Range;

/// Chunks of a stream, in order, with the buffer that holds their bytes.
#[derive(Debug, Default)]
pub struct ChunkBatch {
    /// The bytes of all chunks, and whatever else is in the buffer.
    pub buffer: Vec<u8>,
    /// Where in the buffer each chunk lies.
    pub places: Vec<Range<usize>>,
    /// Their fingerprints.
    pub fingerprints: Vec<Fingerprint>,
}

/// Where a chunk stands, as look-up says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The store does not hold it.
    New,
    /// In a container that this session is writing or has written; where, if that is known.
    Fresh(Option<FrameId>),
    /// In this frame, and in these others as far as is known without asking the device.
    Old(FrameId, Vec<FrameId>),
}

/// A chunk that leaves the queue.
#[derive(Debug)]
pub struct Released<'a> {
    /// Its place in the stream.
    pub ticket: u64,
    /// Its name.
    pub fingerprint: &'a Fingerprint,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Where it stands.
    pub standing: &'a Standing,
}

#[derive(Debug)]
struct Waiting {
    batch: ChunkBatch,
    first_ticket: u64,
    standings: Vec<Option<Standing>>,
    /// Chunks released so far.
    released: usize,
}

/// The queue of one stream.
#[derive(Debug, Default)]
pub struct WaitingChunks {
    batches: VecDeque<Waiting>,
    next_ticket: u64,
    released: u64,
    bytes: usize,
}

impl WaitingChunks {
    /// Appends a batch; returns the tickets of its chunks.
    pub fn push(&mut self, batch: ChunkBatch) -> Result<Range<u64>> {
        let (count, places) = (batch.fingerprints.len(), batch.places.len());
        invariant!(count == places, "a batch has chunks without a name or a place", count, places);
        let bytes = batch.buffer.len();
        let end = batch.places.iter().map(|place| place.end).max();
        invariant!(
            end.is_none_or(|end| end <= bytes),
            "a chunk ends behind its buffer",
            end,
            bytes
        );
        let first_ticket = self.next_ticket;
        self.next_ticket += count as u64;
        self.bytes += batch.buffer.capacity();
        let standings = vec![None; count];
        self.batches.push_back(Waiting { batch, first_ticket, standings, released: 0 });
        Ok(first_ticket..self.next_ticket)
    }

    /// Fails unless everything has left: for whoever commits what has passed here.
    pub fn expect_empty(&self) -> Result<()> {
        let (pushed, released) = (self.next_ticket, self.released);
        invariant!(
            self.batches.is_empty() && pushed == released,
            "chunks still wait for their verdicts at the end of a stream",
            pushed,
            released
        );
        Ok(())
    }

    /// Bytes of the buffers that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ticket below which everything must be decided for the buffers to fit into `bytes_max`.
    #[must_use]
    pub fn ticket_to_fit(&self, bytes_max: usize) -> u64 {
        let mut bytes = self.bytes;
        let mut waiting = self.batches.iter();
        let mut ticket = 0;
        while bytes > bytes_max
            && let Some(oldest) = waiting.next()
        {
            bytes -= oldest.batch.buffer.capacity();
            ticket = oldest.first_ticket + oldest.standings.len() as u64;
        }
        ticket
    }

    /// The fingerprint of a chunk that has not been released.
    #[must_use]
    pub fn fingerprint(&self, ticket: u64) -> Option<&Fingerprint> {
        let (batch, position) = self.place_of(ticket)?;
        self.batches.get(batch)?.batch.fingerprints.get(position)
    }

    /// Says where a chunk stands.
    pub fn decide(&mut self, ticket: u64, standing: Standing) -> Result<()> {
        let found = self.place_of(ticket);
        let waiting = found
            .and_then(|(batch, position)| self.batches.get_mut(batch)?.standings.get_mut(position));
        let place =
            waiting.ok_or_else(|| bug!("a verdict on a chunk that does not wait", ticket))?;
        invariant!(place.is_none(), "a second verdict on a chunk", ticket, place, standing);
        *place = Some(standing);
        Ok(())
    }

    /// Hands every chunk at the front to `take`, up to the first that is not decided, and empty
    /// buffers to `spare`. After an error the queue is not to be used any more.
    pub fn release(
        &mut self,
        mut take: impl FnMut(&Released<'_>) -> Result<()>,
        spare: &mut dyn FnMut(Vec<u8>),
    ) -> Result<()> {
        while let Some(front) = self.batches.front_mut() {
            while let Some(standing) = front.standings.get(front.released) {
                let Some(standing) = standing else {
                    return Ok(());
                };
                take(&Released {
                    ticket: front.first_ticket + front.released as u64,
                    fingerprint: &front.batch.fingerprints[front.released],
                    bytes: &front.batch.buffer[front.batch.places[front.released].clone()],
                    standing,
                })?;
                front.released += 1;
                self.released += 1;
            }
            if let Some(done) = self.batches.pop_front() {
                self.bytes -= done.batch.buffer.capacity();
                spare(done.batch.buffer);
            }
        }
        Ok(())
    }

    fn place_of(&self, ticket: u64) -> Option<(usize, usize)> {
        let after = self.batches.partition_point(|waiting| waiting.first_ticket <= ticket);
        let batch = after.checked_sub(1)?;
        let waiting = self.batches.get(batch)?;
        let position = usize::try_from(ticket - waiting.first_ticket).ok()?;
        (position < waiting.standings.len()).then_some((batch, position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;

    fn batch(names: &[u8]) -> ChunkBatch {
        ChunkBatch {
            buffer: names.to_vec(),
            places: (0..names.len()).map(|at| at..at + 1).collect(),
            fingerprints: names.iter().map(|&name| Fingerprint([name; 32])).collect(),
        }
    }

    fn released(queue: &mut WaitingChunks) -> (Vec<u8>, usize) {
        let (mut stored, mut buffers) = (Vec::new(), 0);
        let take = |chunk: &Released<'_>| {
            assert_eq!(chunk.fingerprint.0[0], chunk.bytes[0]);
            if *chunk.standing == Standing::New {
                stored.extend_from_slice(chunk.bytes);
            }
            Ok(())
        };
        queue.release(take, &mut |_| buffers += 1).unwrap();
        (stored, buffers)
    }

    #[test]
    fn chunks_leave_in_stream_order_whatever_the_order_of_verdicts() {
        let mut queue = WaitingChunks::default();
        assert_eq!(queue.push(batch(b"abc")).unwrap(), 0..3);
        assert_eq!(queue.push(batch(b"")).unwrap(), 3..3);
        assert_eq!(queue.push(batch(b"de")).unwrap(), 3..5);
        queue.decide(4, Standing::New).unwrap();
        queue.decide(2, Standing::New).unwrap();
        assert_eq!(released(&mut queue), (vec![], 0));
        queue.decide(0, Standing::New).unwrap();
        assert_eq!(released(&mut queue), (b"a".to_vec(), 0));
        queue.decide(1, Standing::Fresh(None)).unwrap();
        assert_eq!(released(&mut queue), (b"c".to_vec(), 2));
        assert_eq!(queue.fingerprint(3), Some(&Fingerprint([b'd'; 32])));
        assert_eq!(queue.fingerprint(5), None);
        queue.decide(3, Standing::Fresh(None)).unwrap();
        assert_eq!(released(&mut queue), (b"e".to_vec(), 1));
        assert_eq!(queue.bytes(), 0);
        assert!(queue.expect_empty().is_ok());
    }

    #[test]
    fn verdicts_that_are_lost_doubled_or_on_nothing_are_defects() {
        let mut queue = WaitingChunks::default();
        queue.push(batch(b"ab")).unwrap();
        queue.decide(1, Standing::New).unwrap();
        for refused in [queue.decide(1, Standing::New), queue.decide(2, Standing::New)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Bug);
        }
        assert_eq!(released(&mut queue), (vec![], 0));
        assert_eq!(queue.expect_empty().unwrap_err().kind(), ErrorKind::Bug);
        queue.decide(0, Standing::New).unwrap();
        assert_eq!(queue.decide(0, Standing::New).unwrap_err().kind(), ErrorKind::Bug);
        released(&mut queue);
        assert_eq!(queue.decide(0, Standing::New).unwrap_err().kind(), ErrorKind::Bug);
        assert!(queue.expect_empty().is_ok());
        for wrong in [
            ChunkBatch { places: Vec::new(), ..batch(b"a") },
            ChunkBatch { buffer: Vec::new(), ..batch(b"a") },
        ] {
            assert_eq!(queue.push(wrong).unwrap_err().kind(), ErrorKind::Bug);
        }
    }

    #[test]
    fn buffers_count_until_they_leave() {
        let mut queue = WaitingChunks::default();
        queue.push(batch(b"abcd")).unwrap();
        queue.push(batch(b"ef")).unwrap();
        let all = queue.bytes();
        assert!(all >= 6);
        assert_eq!(queue.ticket_to_fit(all), 0);
        assert_eq!(queue.ticket_to_fit(all - 1), 4);
        assert_eq!(queue.ticket_to_fit(0), 6);
        (0..4).for_each(|ticket| queue.decide(ticket, Standing::Fresh(None)).unwrap());
        released(&mut queue);
        assert!(queue.bytes() >= 2 && queue.bytes() < all);
    }
}
