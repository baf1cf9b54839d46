//! Which of a fixed number of entries were used last: a list in an array.
//!
//! Entries are numbers below a bound. All operations take constant time.

const NONE: u32 = u32::MAX;

/// Entries in the order of their use.
#[derive(Debug)]
pub(super) struct Recency {
    /// For each entry the one used just before it and the one used just after it; one entry more
    /// closes the ring. An entry that is not in the list points to [`NONE`].
    neighbours: Vec<(u32, u32)>,
}

impl Recency {
    /// An empty list for entries below `bound`.
    pub fn new(bound: usize) -> Self {
        let mut neighbours = vec![(NONE, NONE); bound + 1];
        neighbours[bound] = (bound as u32, bound as u32);
        Self { neighbours }
    }

    pub fn contains(&self, entry: u32) -> bool {
        self.neighbours[entry as usize].0 != NONE
    }

    /// The entry is the one used last, whether it was in the list or not.
    pub fn touch(&mut self, entry: u32) {
        self.remove(entry);
        let ring = self.neighbours.len() as u32 - 1;
        let newest = self.neighbours[ring as usize].0;
        self.neighbours[entry as usize] = (newest, ring);
        self.neighbours[newest as usize].1 = entry;
        self.neighbours[ring as usize].0 = entry;
    }

    /// Takes the entry out if it is in.
    pub fn remove(&mut self, entry: u32) {
        let (older, newer) = self.neighbours[entry as usize];
        if older != NONE {
            self.neighbours[older as usize].1 = newer;
            self.neighbours[newer as usize].0 = older;
            self.neighbours[entry as usize] = (NONE, NONE);
        }
    }

    /// Takes out the entry whose use is longest ago.
    pub fn remove_oldest(&mut self) -> Option<u32> {
        let ring = self.neighbours.len() - 1;
        let oldest = self.neighbours[ring].1;
        if oldest as usize == ring {
            return None;
        }
        self.remove(oldest);
        Some(oldest)
    }
}
