//! The mark vector: one bit for each position of a perfect hash function (FAST'17, section 3.2:
//! the "perfect hash vector").
//!
//! Several threads mark at once (S3.14): words are atomic, and every operation concerns one word.
//! Orders are relaxed, because a bit says nothing about other memory; whoever reads what other
//! threads marked first waits for those threads, which orders everything. Two bits for each key,
//! such as "walk" and "confirm", are two vectors.
//!
//! Invariants: of all threads that set a clear bit at once, exactly one is told that it was clear;
//! clearing likewise. Positions outside the vector are never set.

use onefold_types::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit for each position.
#[derive(Debug)]
pub struct MarkVector {
    words: Vec<AtomicU64>,
    positions: usize,
}

impl MarkVector {
    /// A vector of this many bits, all clear.
    ///
    /// # Errors
    /// It does not fit into memory (`LimitExceeded`).
    pub fn new(positions: usize) -> Result<Self> {
        let count = positions.div_ceil(64);
        let mut words = Vec::new();
        fits_memory(words.try_reserve_exact(count).ok(), "a mark vector")?;
        words.resize_with(count, AtomicU64::default);
        Ok(Self { words, positions })
    }

    /// Sets the bit; `true` if it was clear before.
    #[inline]
    pub fn set(&self, position: usize) -> bool {
        let bit = 1 << (position % 64);
        self.word(position).is_some_and(|word| {
            // Most marks are there already: then the cache line need not be taken from others.
            word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0
        })
    }

    /// Whether the bit is set.
    #[inline]
    #[must_use]
    pub fn get(&self, position: usize) -> bool {
        self.word(position).is_some_and(|word| word.load(Relaxed) >> (position % 64) & 1 == 1)
    }

    /// How many bits there are.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Memory taken by the bits, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }

    #[inline]
    fn word(&self, position: usize) -> Option<&AtomicU64> {
        if position < self.positions { self.words.get(position / 64) } else { None }
    }
}

/// The value, or the error that says that `what` does not fit into memory.
pub(super) fn fits_memory<T>(value: Option<T>, what: &str) -> Result<T> {
    value.ok_or_else(|| {
        Error::new(ErrorKind::LimitExceeded, format!("{what} does not fit into memory"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn positions_outside_are_never_set() {
        let vector = MarkVector::new(65).unwrap();
        assert!(vector.set(64) && !vector.set(64) && vector.get(64));
        for outside in [65, 66, 127, 128, usize::MAX] {
            assert!(!vector.set(outside) && !vector.get(outside));
        }
        assert_eq!((vector.bytes_used(), vector.positions()), (16, 65));
        let empty = MarkVector::new(0).unwrap();
        assert!(!empty.set(0) && empty.bytes_used() == 0);
        assert_eq!(MarkVector::new(usize::MAX).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    proptest! {
        #[test]
        fn a_vector_is_a_set(steps in prop::collection::vec((0..2_u8, 0..200_usize), 0..300)) {
            let (vector, mut model) = (MarkVector::new(200).unwrap(), BTreeSet::new());
            for (step, position) in steps {
                match step {
                    0 => assert_eq!(vector.set(position), model.insert(position)),
                    _ => assert_eq!(vector.get(position), model.contains(&position)),
                }
            }
            let set = (0..200).filter(|position| vector.get(*position));
            assert_eq!(set.count(), model.len());
        }
    }
}
