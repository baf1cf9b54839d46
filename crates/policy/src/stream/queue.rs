//! Chunks of one stream until they leave in stream order, each with its verdict.
//!
//! A lazy look-up answers late and out of order (S0.9), but chunks must stand in containers in
//! stream order (S1.16). Whole batches therefore wait here with what holds their bytes, and leave
//! from the front as far as every chunk is decided; an eager look-up decides a batch at once, and
//! it never stays.
//!
//! Invariants: tickets number chunks without gaps; a chunk has one verdict, while it waits, and
//! leaves once, in order; a batch is given back when its last chunk has left.

use super::ports::Chunk;
use onefold_types::{Fingerprint, Result, bug, invariant};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;

/// Chunks that come together, with what holds their bytes.
pub trait Batch {
    /// A chunk's bytes, or whatever stands for them.
    type Payload: ToOwned + ?Sized;

    /// Chunks in it.
    fn len(&self) -> usize;

    /// What it counts for while it waits.
    fn weight(&self) -> usize;

    /// The fingerprint of a chunk.
    fn fingerprint(&self, position: usize) -> &Fingerprint;

    /// Its plain size.
    fn size_bytes(&self, position: usize) -> u32;

    /// Its bytes.
    fn payload(&self, position: usize) -> &Self::Payload;

    /// Whether it holds no chunk.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug)]
struct Waiting<B> {
    batch: B,
    first_ticket: u64,
}

impl<B: Batch> Waiting<B> {
    fn end(&self) -> u64 {
        self.first_ticket + self.batch.len() as u64
    }

    fn chunk(&self, ticket: u64) -> Chunk<'_, B::Payload> {
        let position = (ticket - self.first_ticket) as usize;
        Chunk {
            ticket,
            fingerprint: self.batch.fingerprint(position),
            size_bytes: self.batch.size_bytes(position),
            payload: self.batch.payload(position),
        }
    }
}

/// The queue of one stream: `S` is what becomes of a verdict.
#[derive(Debug)]
pub(super) struct Queue<B, S> {
    batches: VecDeque<Waiting<B>>,
    /// Of all chunks that have not left, in order.
    statuses: VecDeque<Option<S>>,
    /// The ticket of the first of them.
    released: u64,
    weight: usize,
}

impl<B, S> Default for Queue<B, S> {
    fn default() -> Self {
        let (batches, statuses) = (VecDeque::new(), VecDeque::new());
        Self { batches, statuses, released: 0, weight: 0 }
    }
}

impl<B: Batch, S: Debug> Queue<B, S> {
    /// Appends a batch; returns the tickets of its chunks.
    pub(super) fn push(&mut self, batch: B) -> Range<u64> {
        let first_ticket = self.released + self.statuses.len() as u64;
        self.statuses.extend((0..batch.len()).map(|_| None));
        self.weight += batch.weight();
        let waiting = Waiting { batch, first_ticket };
        let tickets = first_ticket..waiting.end();
        self.batches.push_back(waiting);
        tickets
    }

    /// Chunks that have not left.
    pub(super) fn len(&self) -> usize {
        self.statuses.len()
    }

    /// Fails unless everything has left.
    pub(super) fn expect_empty(&self) -> Result<()> {
        let waiting = self.len();
        invariant!(
            waiting == 0 && self.batches.is_empty(),
            "chunks still wait for their verdicts at the end of a stream",
            waiting,
            self.released
        );
        Ok(())
    }

    /// The ticket below which everything must be decided for the batches left to weigh at most so
    /// much.
    pub(super) fn ticket_to_fit(&self, weight_max: usize) -> u64 {
        let mut weight = self.weight;
        let mut waiting = self.batches.iter();
        let mut ticket = 0;
        while weight > weight_max
            && let Some(oldest) = waiting.next()
        {
            weight -= oldest.batch.weight();
            ticket = oldest.end();
        }
        ticket
    }

    /// A chunk that has not left.
    pub(super) fn chunk(&self, ticket: u64) -> Option<Chunk<'_, B::Payload>> {
        let is_in = |waiting: &&Waiting<B>| (waiting.first_ticket..waiting.end()).contains(&ticket);
        // Mostly it is of the newest batch.
        let newest = self.batches.back().filter(is_in);
        let found = newest.or_else(|| {
            let after = self.batches.partition_point(|waiting| waiting.first_ticket <= ticket);
            self.batches.get(after.checked_sub(1)?).filter(is_in)
        })?;
        (ticket >= self.released).then(|| found.chunk(ticket))
    }

    /// Says what a chunk is.
    pub(super) fn decide(&mut self, ticket: u64, status: S) -> Result<()> {
        let position = ticket.checked_sub(self.released).map(|position| position as usize);
        let slot = position.and_then(|position| self.statuses.get_mut(position));
        let slot = slot.ok_or_else(|| bug!("a verdict on a chunk that does not wait", ticket))?;
        invariant!(slot.is_none(), "a second verdict on a chunk", ticket, slot, status);
        *slot = Some(status);
        Ok(())
    }

    /// Hands every chunk at the front to `take`, up to the first that is not decided, and batches
    /// that are through to `spare`.
    pub(super) fn release(
        &mut self,
        mut take: impl FnMut(&Chunk<'_, B::Payload>, S) -> Result<()>,
        spare: &mut dyn FnMut(B),
    ) -> Result<()> {
        while let Some(front) = self.batches.front() {
            while self.released < front.end() {
                let Some(status) = self.statuses.front_mut().and_then(Option::take) else {
                    return Ok(());
                };
                take(&front.chunk(self.released), status)?;
                self.statuses.pop_front();
                self.released += 1;
            }
            if let Some(done) = self.batches.pop_front() {
                self.weight -= done.batch.weight();
                spare(done.batch);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;

    /// A chunk for each letter, of the letter's name.
    struct Letters(Vec<Fingerprint>);

    impl Batch for Letters {
        type Payload = u8;

        fn len(&self) -> usize {
            self.0.len()
        }

        fn weight(&self) -> usize {
            self.0.len()
        }

        fn fingerprint(&self, position: usize) -> &Fingerprint {
            &self.0[position]
        }

        fn size_bytes(&self, _position: usize) -> u32 {
            1
        }

        fn payload(&self, position: usize) -> &u8 {
            &self.0[position].0[0]
        }
    }

    fn batch(letters: &[u8]) -> Letters {
        Letters(letters.iter().map(|&letter| Fingerprint([letter; 32])).collect())
    }

    /// The new chunks that leave, and the number of batches.
    fn released(queue: &mut Queue<Letters, bool>) -> (Vec<u8>, usize) {
        let (mut new, mut batches) = (Vec::new(), 0);
        let take = |chunk: &Chunk<'_, u8>, is_new: bool| {
            assert_eq!(chunk.fingerprint.0[0], *chunk.payload);
            new.extend(is_new.then_some(*chunk.payload));
            Ok(())
        };
        queue.release(take, &mut |_| batches += 1).unwrap();
        (new, batches)
    }

    #[test]
    fn chunks_leave_in_stream_order_whatever_the_order_of_verdicts() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(batch(b"abc")), 0..3);
        assert_eq!(queue.push(batch(b"")), 3..3);
        assert_eq!(queue.push(batch(b"de")), 3..5);
        queue.decide(4, true).unwrap();
        queue.decide(2, true).unwrap();
        assert_eq!(released(&mut queue), (vec![], 0));
        queue.decide(0, true).unwrap();
        assert_eq!(released(&mut queue), (b"a".to_vec(), 0));
        queue.decide(1, false).unwrap();
        assert_eq!(released(&mut queue), (b"c".to_vec(), 2));
        assert_eq!(queue.chunk(3).map(|chunk| *chunk.payload), Some(b'd'));
        assert!(queue.chunk(2).is_none() && queue.chunk(5).is_none());
        assert_eq!((queue.len(), queue.push(batch(b"f"))), (2, 5..6));
        assert_eq!(queue.chunk(4).map(|chunk| *chunk.payload), Some(b'e'));
        queue.decide(5, false).unwrap();
        queue.decide(3, false).unwrap();
        assert_eq!(released(&mut queue), (b"e".to_vec(), 2));
        assert!(queue.expect_empty().is_ok());
    }

    #[test]
    fn verdicts_that_are_lost_doubled_or_on_nothing_are_defects() {
        let mut queue = Queue::default();
        queue.push(batch(b"ab"));
        queue.decide(1, true).unwrap();
        for refused in [queue.decide(1, true), queue.decide(2, true)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Bug);
        }
        assert_eq!(released(&mut queue), (vec![], 0));
        assert_eq!(queue.expect_empty().unwrap_err().kind(), ErrorKind::Bug);
        queue.decide(0, true).unwrap();
        assert_eq!(queue.decide(0, true).unwrap_err().kind(), ErrorKind::Bug);
        released(&mut queue);
        assert_eq!(queue.decide(0, true).unwrap_err().kind(), ErrorKind::Bug);
        assert!(queue.expect_empty().is_ok());
    }

    #[test]
    fn batches_count_until_they_leave() {
        let mut queue = Queue::default();
        queue.push(batch(b"abcd"));
        queue.push(batch(b"ef"));
        let fits = |queue: &Queue<Letters, bool>| [6, 5, 2, 1].map(|max| queue.ticket_to_fit(max));
        assert_eq!(fits(&queue), [0, 4, 4, 6]);
        (0..4).for_each(|ticket| queue.decide(ticket, false).unwrap());
        assert_eq!(released(&mut queue), (vec![], 1));
        assert_eq!(fits(&queue), [0, 0, 0, 6]);
    }
}
