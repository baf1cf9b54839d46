//! All secrets of an encrypted store: the master key, and what sealing went over to since.
//!
//! A master key that leaked opens everything that was ever sealed under it, and it cannot be
//! replaced: fingerprints and chunk boundaries come from it, and with others nothing would
//! deduplicate any more. So a rotation replaces what *sealing* rests on. Each adds a *generation*:
//! a fresh secret of 32 random bytes, of which the sealing root is derived as it is of the master
//! key, which is the first generation. New objects are sealed under the newest one; objects are
//! opened by whichever fits.
//!
//! # Bytes
//! A ring is wrapped in key slots as `master key (32) | for each later generation: number (u32) |
//! since (i64, nanoseconds since 1970) | secret (32)`, integers little-endian. One that was never
//! rotated is therefore the master key and nothing else.
//!
//! # Invariants
//! - A ring holds at most [`limits::SEALING_GENERATIONS_MAX`] generations, by rising numbers. The
//!   master key has number 1; numbers are left out where a rotation came to nothing.
//! - `since` is a hint where to begin; no object is believed or refused because of it.
//! - What names a generation in public is derived one way, and tells nothing of the secret.

use crate::contexts;
use crate::master_key::{MasterKey, derived};
use onefold_types::environment::Randomness;
use onefold_types::{Error, ErrorKind, Result, limits};
use std::fmt;
use zeroize::Zeroizing;

const SECRET_BYTES: usize = 32;
const NUMBER_BYTES: usize = 4;
const SINCE_BYTES: usize = 8;
const LATER_BYTES: usize = NUMBER_BYTES + SINCE_BYTES + SECRET_BYTES;
/// The number of the generation that the master key is.
const FIRST: u32 = 1;

/// A generation as it is named in public: by its number, from 1 on, and an id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Generation {
    /// Higher than those of older ones.
    pub number: u32,
    /// What tells it from another of the same number.
    pub id: [u8; 16],
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, hex::encode(&self.id[..4]))
    }
}

/// The master key and all later generations.
#[derive(Clone)]
pub struct KeyRing {
    master_key: MasterKey,
    later: Vec<Later>,
}

#[derive(Clone)]
struct Later {
    number: u32,
    since_ns: i64,
    /// Boxed, so that a list that grows leaves no copy behind.
    secret: Box<Zeroizing<[u8; SECRET_BYTES]>>,
}

impl KeyRing {
    /// The ring of a store whose keys were never rotated.
    #[must_use]
    pub fn new(master_key: MasterKey) -> Self {
        Self { master_key, later: Vec::new() }
    }

    /// The first secret: fingerprints, boundaries and the configuration's tag come from it.
    #[must_use]
    pub fn master_key(&self) -> &MasterKey {
        &self.master_key
    }

    /// The ring with one generation more, of this number and used from `since_ns` on.
    ///
    /// Errors: `LimitExceeded` if it is full.
    pub fn rotated(&self, number: u32, since_ns: i64, randomness: &dyn Randomness) -> Result<Self> {
        if self.count() >= limits::SEALING_GENERATIONS_MAX {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "the keys were rotated {} times, and no ring holds more; make a new store and \
                     back up into that",
                    limits::SEALING_GENERATIONS_MAX - 1
                ),
            ));
        }
        if number <= self.newest_number() {
            return Err(Error::invalid(format!("there was a generation {number} of keys already")));
        }
        let mut secret = Box::new(Zeroizing::new([0; SECRET_BYTES]));
        randomness.fill(&mut secret[..]);
        let mut ring = self.clone();
        ring.later.push(Later { number, since_ns, secret });
        Ok(ring)
    }

    /// How many generations there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.later.len() + 1
    }

    /// The newest generation.
    #[must_use]
    pub fn newest(&self) -> Generation {
        let secret = self.later.last().map_or(self.master_key.as_bytes(), |later| &later.secret);
        let mut id = [0; 16];
        id.copy_from_slice(&derived(contexts::GENERATION, secret)[..16]);
        Generation { number: self.newest_number(), id }
    }

    fn newest_number(&self) -> u32 {
        self.later.last().map_or(FIRST, |later| later.number)
    }

    /// The sealing root of each generation and since when it is used, oldest first.
    #[must_use]
    pub fn sealing_roots(&self) -> Vec<(i64, Zeroizing<[u8; 32]>)> {
        let first = (i64::MIN, self.master_key.subkey(contexts::SEALING));
        let root = |later: &Later| (later.since_ns, derived(contexts::SEALING, &later.secret));
        std::iter::once(first).chain(self.later.iter().map(root)).collect()
    }

    /// The bytes, for wrapping.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let length = SECRET_BYTES + self.later.len() * LATER_BYTES;
        // With room for the tag of the wrapping, so that it moves nowhere.
        let mut bytes = Zeroizing::new(Vec::with_capacity(length + 16));
        bytes.extend_from_slice(self.master_key.as_bytes());
        for later in &self.later {
            bytes.extend_from_slice(&later.number.to_le_bytes());
            bytes.extend_from_slice(&later.since_ns.to_le_bytes());
            bytes.extend_from_slice(&later.secret[..]);
        }
        bytes
    }

    /// The ring with these bytes.
    ///
    /// Errors: `Damaged` if there is no such ring.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::damaged("the key slot holds no ring of keys");
        let (master_key, rest) = bytes.split_first_chunk().ok_or_else(malformed)?;
        let (entries, left_over) = rest.as_chunks::<LATER_BYTES>();
        if !left_over.is_empty() || entries.len() >= limits::SEALING_GENERATIONS_MAX {
            return Err(malformed());
        }
        let mut ring = Self::new(MasterKey::from_bytes(*master_key));
        for entry in entries {
            let (number, rest) = entry.split_first_chunk().ok_or_else(malformed)?;
            let (since, bytes) = rest.split_first_chunk().ok_or_else(malformed)?;
            let (number, since_ns) = (u32::from_le_bytes(*number), i64::from_le_bytes(*since));
            if number <= ring.newest_number() {
                return Err(malformed());
            }
            let mut secret = Box::new(Zeroizing::new([0; SECRET_BYTES]));
            secret.copy_from_slice(bytes);
            ring.later.push(Later { number, since_ns, secret });
        }
        Ok(ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;

    #[test]
    fn r90_a_ring_takes_a_bounded_number_of_generations() {
        let randomness = SeededRandomness::new(3);
        let mut ring = KeyRing::new(MasterKey::generate(&randomness));
        assert_eq!(*ring.to_bytes(), ring.master_key().as_bytes());
        for number in 2..=limits::SEALING_GENERATIONS_MAX as u32 {
            let before = ring.newest();
            ring = ring.rotated(number, i64::from(number), &randomness).unwrap();
            assert_eq!(ring.newest().number, number);
            assert!(ring.rotated(number, 0, &randomness).is_err());
            assert_ne!(ring.newest().id, before.id);
        }
        let error = ring.rotated(99, 0, &randomness).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        let bytes = ring.to_bytes();
        let again = KeyRing::from_bytes(&bytes).unwrap();
        assert_eq!(*again.to_bytes(), *bytes);
        assert_eq!(again.newest(), ring.newest());
        let longer = [bytes.as_slice(), &[0; LATER_BYTES]].concat();
        assert!(KeyRing::from_bytes(&longer).is_err());
        let mut falling = bytes.to_vec();
        falling[SECRET_BYTES + LATER_BYTES] = 2;
        assert!(KeyRing::from_bytes(&falling).is_err());
        for length in (0..bytes.len()).filter(|length| length % LATER_BYTES != SECRET_BYTES) {
            assert!(KeyRing::from_bytes(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn r90_a_new_root_does_not_follow_from_the_old_ones() {
        let key = MasterKey::from_bytes([7; 32]);
        let ring = KeyRing::new(key);
        let [one, other] =
            [1, 2].map(|seed| ring.rotated(2, 5, &SeededRandomness::new(seed)).unwrap());
        let roots = [&ring, &one, &other].map(KeyRing::sealing_roots);
        assert_eq!(roots[0][0], roots[1][0]);
        assert_ne!(roots[1][1].1, roots[1][0].1);
        assert_ne!(roots[1][1].1, roots[2][1].1);
        assert_ne!(one.newest().id, other.newest().id);
    }
}
