//! Which whole chunks containers hold, in few bytes: what shows that bases are there (protocol,
//! W5).
//!
//! The deltas of one section are made of chunks in dozens of containers, and each section that a
//! stream meets has some. Where memory is short, a handful of whole sections fits into it: they
//! were read again and again, on a hard disk for two thirds of a backup's time. A chunk takes 16
//! bytes here instead of a hundred.
//!
//! Two chunks are taken for one if the first 16 bytes of their names are equal, which nobody can
//! bring about with less than 2^64 trials. It would have to lie in the very container that a delta
//! says its base is in.
//!
//! Memory: bounded; what was of use longest ago goes first.

use lru::LruCache;
use onefold_format::container::MetadataSection;
use onefold_types::{ContainerId, Fingerprint};

/// What a container takes beside its chunks, about.
const CONTAINER_BYTES: usize = 128;

/// The whole chunks of some containers.
pub struct WholeChunks {
    /// Rising.
    containers: LruCache<ContainerId, Box<[u128]>>,
    bytes: usize,
    bytes_max: usize,
}

impl WholeChunks {
    /// None so far, and never more than so many bytes, unless one container alone takes more.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { containers: LruCache::unbounded(), bytes: 0, bytes_max }
    }

    /// Remembers a container whose section was read.
    pub fn note(&mut self, container: ContainerId, section: &MetadataSection) {
        if self.containers.contains(&container) {
            return;
        }
        let whole = section.chunks.iter().filter(|chunk| !chunk.is_delta());
        let mut names: Vec<u128> = whole.map(|chunk| name(&chunk.fingerprint)).collect();
        names.sort_unstable();
        self.bytes += taken_bytes(&names);
        self.containers.put(container, names.into());
        while self.bytes > self.bytes_max && self.containers.len() > 1 {
            let Some((_, names)) = self.containers.pop_lru() else { break };
            self.bytes -= taken_bytes(&names);
        }
    }

    /// Whether a container holds a chunk, and not as a delta; `None` if it is not remembered.
    pub fn holds(&mut self, container: ContainerId, fingerprint: &Fingerprint) -> Option<bool> {
        let names = self.containers.get(&container)?;
        Some(names.binary_search(&name(fingerprint)).is_ok())
    }
}

fn name(fingerprint: &Fingerprint) -> u128 {
    let [first, ..] = fingerprint.0.as_chunks::<16>().0 else { return 0 };
    u128::from_le_bytes(*first)
}

fn taken_bytes(names: &[u128]) -> usize {
    size_of_val(names) + CONTAINER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::container::ChunkDescriptor;
    use onefold_types::Level;

    fn section(first: u8, deltas: &[u8]) -> MetadataSection {
        let chunk = |number: u8| ChunkDescriptor {
            fingerprint: Fingerprint([number; 32]),
            length: 100,
            level: Level::DATA,
            frame: 0,
            offset: 0,
            payload_length: if deltas.contains(&number) { 10 } else { 100 },
        };
        let chunks = (first..first + 4).rev().map(chunk).collect();
        MetadataSection { chunks, ..MetadataSection::default() }
    }

    #[test]
    fn whole_chunks_are_told_from_deltas_and_from_what_is_not_there() {
        let mut whole = WholeChunks::new(1 << 20);
        let [one, other] = [1, 2].map(|byte| ContainerId([byte; 16]));
        whole.note(one, &section(10, &[12]));
        let holds = |whole: &mut WholeChunks, id, byte| whole.holds(id, &Fingerprint([byte; 32]));
        for (byte, held) in [(9, false), (10, true), (11, true), (12, false), (13, true)] {
            assert_eq!(holds(&mut whole, one, byte), Some(held), "{byte}");
            assert_eq!(holds(&mut whole, other, byte), None);
        }
    }

    #[test]
    fn what_was_of_use_longest_ago_goes_where_one_more_would_be_too_much() {
        let each = 4 * 16 + CONTAINER_BYTES;
        let mut whole = WholeChunks::new(3 * each);
        let id = |byte| ContainerId([byte; 16]);
        (0..3).for_each(|byte| whole.note(id(byte), &section(byte * 4, &[])));
        assert_eq!(whole.holds(id(0), &Fingerprint([0; 32])), Some(true));
        whole.note(id(3), &section(12, &[]));
        let known = |whole: &mut WholeChunks, byte: u8| {
            whole.holds(id(byte), &Fingerprint([byte * 4; 32])).is_some()
        };
        assert_eq!([0, 1, 2, 3].map(|byte| known(&mut whole, byte)), [true, false, true, true]);
        // One that is larger than all the room is kept alone.
        let mut small = WholeChunks::new(1);
        (0..2).for_each(|byte| small.note(id(byte), &section(byte * 4, &[])));
        assert_eq!([0, 1].map(|byte| known(&mut small, byte)), [false, true]);
    }
}
