//! Live chunks in scratch files: exact, and in memory that does not depend on how many there are.
//!
//! While marking, prefixes go into a [`SpillSet`]. Sorted once, they stay in one file. To answer
//! whether chunks are live, the prefixes asked about have to be named beforehand; one pass over the
//! file then answers for all of them. What is marked later is kept apart and looked through as
//! well.
//!
//! # Invariants
//! - Never denies what was marked: a prefix that was not named, or not since something was marked,
//!   counts as live.
//! - Not more prefixes are kept than the memory given allows, and a slice of containers more.

use super::spill::{Held, RecordFile, Scratch, SpillSet, Split};
use onefold_types::Result;

/// Files that live prefixes are distributed over.
const PARTITIONS: usize = 64;

/// Live chunks, by the prefixes of their fingerprints.
#[derive(Debug)]
pub struct SpilledLive {
    scratch: Scratch,
    buffer_bytes: usize,
    /// What is not in `sorted`.
    added: SpillSet<1>,
    /// Rising, each once.
    sorted: RecordFile<1>,
    /// Rising: the prefixes that can be answered for, and a bit for each that is live.
    asked: Vec<u64>,
    live: Vec<u64>,
    held: Held,
}

impl SpilledLive {
    /// Nothing is live yet. The buffer takes so many bytes, and so does what is asked about.
    #[must_use]
    pub fn new(scratch: &Scratch, buffer_bytes: usize) -> Self {
        Self {
            scratch: scratch.clone(),
            buffer_bytes,
            added: empty(scratch, buffer_bytes),
            sorted: RecordFile::new(scratch),
            asked: Vec::new(),
            live: Vec::new(),
            held: scratch.hold(0),
        }
    }

    /// Marks a chunk.
    pub fn insert(&mut self, prefix: u64) -> Result<()> {
        self.asked.clear();
        self.added.push([prefix])
    }

    /// Sorts what was marked, once, and calls `each` with every prefix, rising.
    pub fn sort(
        &mut self,
        area_bytes: usize,
        each: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let none = empty(&self.scratch, self.buffer_bytes);
        let added = std::mem::replace(&mut self.added, none).into_sorted(area_bytes)?;
        self.sorted = added.write(&mut |[prefix]| each(prefix))?;
        Ok(())
    }

    /// How many prefixes can be asked about at once.
    #[must_use]
    pub fn asked_max(&self) -> usize {
        (self.buffer_bytes / size_of::<u64>()).max(1 << 10)
    }

    /// Forgets what was asked about, and hands out the room for it.
    pub fn take_room(&mut self) -> Vec<u64> {
        self.asked.clear();
        std::mem::take(&mut self.asked)
    }

    /// From now on answers about `asked`, in any order.
    pub fn answer(&mut self, mut asked: Vec<u64>) -> Result<()> {
        asked.sort_unstable();
        asked.dedup();
        self.live.clear();
        self.live.resize(asked.len().div_ceil(64), 0);
        self.held.set((asked.capacity() + self.live.capacity()) * size_of::<u64>());
        let live = &mut self.live;
        let mut set = |at: usize| {
            if let Some(word) = live.get_mut(at / 64) {
                *word |= 1 << (at % 64);
            }
        };
        let mut reader = self.sorted.read_all();
        let mut next = 0;
        while let Some([prefix]) = reader.next_record()?
            && next < asked.len()
        {
            while asked.get(next).is_some_and(|wanted| *wanted < prefix) {
                next += 1;
            }
            if asked.get(next) == Some(&prefix) {
                set(next);
            }
        }
        self.added.visit(&mut |[prefix]| {
            if let Ok(at) = asked.binary_search(&prefix) {
                set(at);
            }
            Ok(())
        })?;
        self.asked = asked;
        Ok(())
    }

    /// Whether a chunk is live; one that was not asked about is taken for live.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        match self.asked.binary_search(&prefix) {
            Ok(at) => self.live.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1),
            Err(_) => true,
        }
    }

    /// Memory taken, in bytes, at its largest and with all that shares the scratch directory.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.scratch.peak_bytes()
    }
}

fn empty(scratch: &Scratch, buffer_bytes: usize) -> SpillSet<1> {
    SpillSet::new(scratch, Split::evenly(64, PARTITIONS), buffer_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_about_can_be_denied_and_never_what_was_marked() {
        let scratch = Scratch::new(std::env::temp_dir());
        let mut live = SpilledLive::new(&scratch, 256);
        let value = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..1000).for_each(|number| live.insert(value(number)).unwrap());
        let mut last = None;
        let mut count = 0;
        live.sort(256, &mut |prefix| {
            assert!(last < Some(prefix));
            last = Some(prefix);
            count += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(count, 1000);
        assert!(live.contains(value(5000)), "nobody asked");
        live.answer((900..1100).map(value).collect()).unwrap();
        assert!((0..1000).all(|number| live.contains(value(number))));
        assert!((1000..1100).all(|number| !live.contains(value(number))));
        // Marked later: nothing is denied until it is asked about again.
        live.insert(value(1050)).unwrap();
        assert!(live.contains(value(1051)));
        live.answer((1000..1100).map(value).collect()).unwrap();
        let denied: Vec<u64> =
            (1000..1100).filter(|number| !live.contains(value(*number))).collect();
        assert_eq!(denied.len(), 99);
        assert!(!denied.contains(&1050));
    }
}
