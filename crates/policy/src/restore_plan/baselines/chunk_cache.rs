//! Chunk cache: the chunks used last stay in memory.
//!
//! FAST'13, section 5, and FAST'18: a read brings all chunks of its container into the cache, those
//! that nobody will ever ask for too, for the published cache does not look into the recipe. Which
//! these are cannot be seen from a recipe; they are one entry here, of the bytes by which the
//! container exceeds what the recipe names of it, and leave as if they had been used just before
//! their container's other chunks. Those enter in the order of their numbers, the chunk that
//! caused the read last.

use super::recency::Recency;
use crate::restore_plan::layout::Layout;
use crate::restore_plan::served::Served;

/// With a cache of that many bytes; the chunk just read is always held.
pub(in crate::restore_plan) fn serve(layout: &Layout, memory_bytes: u64) -> Served {
    let mut cache = Cache::new(layout, memory_bytes);
    let mut served = Served::new(layout.len());
    let mut reads = vec![0; layout.copy_bytes.len()];
    for (&container, &copy) in layout.containers.iter().zip(&layout.copies) {
        if !cache.cached.contains(copy) {
            let read = served.read(container);
            cache.insert(cache.remainder_of(container));
            for inserted in layout.copies_of(container) {
                // A chunk that is in memory already is served by the read that brought it.
                if !cache.cached.contains(inserted) {
                    reads[inserted as usize] = read;
                }
                cache.insert(inserted);
            }
        }
        // A container greater than the cache may have pushed out what it was read for.
        if !cache.cached.contains(copy) {
            reads[copy as usize] = served.last();
        }
        cache.insert(copy);
        served.serve(reads[copy as usize]);
    }
    served
}

struct Cache<'a> {
    layout: &'a Layout,
    /// Copies, and behind them what else each container holds.
    cached: Recency,
    cached_bytes: u64,
    memory_bytes: u64,
}

impl<'a> Cache<'a> {
    fn new(layout: &'a Layout, memory_bytes: u64) -> Self {
        let entries = layout.copy_bytes.len() + layout.container_numbers.len();
        Self { layout, cached: Recency::new(entries), cached_bytes: 0, memory_bytes }
    }

    fn remainder_of(&self, container: u32) -> u32 {
        self.layout.copy_bytes.len() as u32 + container
    }

    fn bytes_of(&self, entry: u32) -> u64 {
        let copies = self.layout.copy_bytes.len();
        match self.layout.copy_bytes.get(entry as usize) {
            Some(&bytes) => u64::from(bytes),
            None => self.layout.remainder_bytes[entry as usize - copies],
        }
    }

    /// The entry is used; what was used longest ago leaves until it fits.
    fn insert(&mut self, entry: u32) {
        if !self.cached.contains(entry) {
            self.cached_bytes += self.bytes_of(entry);
            while self.cached_bytes > self.memory_bytes {
                let Some(oldest) = self.cached.remove_oldest() else { break };
                self.cached_bytes -= self.bytes_of(oldest);
            }
        }
        self.cached.touch(entry);
    }
}
