//! Which chunk of a file's previous version lies where a new chunk lies now.
//!
//! Algorithm: FAST'12 (Shilane et al., "WAN optimized replication of backup datasets using
//! stream-informed delta compression") finds similar chunks by locality: what stands between the
//! same neighbours is similar. Here the stream is one file and the neighbours, the anchors, are
//! the chunks that both versions have. Between two anchors, positions of the new version are
//! mapped to those of the old one in proportion; where one side of the gap is more than twice as
//! long as the other, something was inserted or deleted, and what is nearer to an anchor is mapped
//! by its distance from it. Behind the last anchor the distance from that counts; in front of the
//! first one, the start of the file is an anchor. Of the old chunks there, the one with most bytes
//! in common positions is taken; where there are none, as in an insertion between two chunks, none.
//!
//! A chunk that the old version has more than once is taken for the occurrence nearest behind the
//! last anchor, and is an anchor itself only if it lies about as far from that as in the new
//! version. Chunks that the old version has in another order lead back to where they lie.
//!
//! Memory: 44 bytes for each chunk of the old version, and 16 for each of the stretch asked for.
//! Time: a binary search for each chunk that does not simply follow the one before it.

use onefold_types::Fingerprint;

/// Old chunks that are compared for one new chunk.
pub const OVERLAPS_MAX: usize = 64;

/// Times that one side of a gap may be as long as the other and still be mapped in proportion.
const STRETCH_MAX: u64 = 2;

/// A chunk of the old version, by where it ends. Holes have the zero fingerprint.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct OldChunk {
    fingerprint: Fingerprint,
    end: u64,
}

/// A position that both versions have.
#[derive(Clone, Copy)]
struct Anchor {
    old: u64,
    new: u64,
}

/// What lies between two anchors, or behind the last one if the end is not known.
struct Gap {
    start: Anchor,
    end: Option<Anchor>,
}

/// The chunks of the old version of a file, and how far its new version has been compared.
pub struct PreviousVersion {
    /// In order of the file.
    chunks: Vec<OldChunk>,
    /// The numbers of the chunks that are no holes, by fingerprint, then by number.
    by_fingerprint: Vec<u32>,
    /// The end of the last chunk that was an anchor.
    anchor: Anchor,
    /// The number of the old chunk that follows it.
    next: usize,
    /// The end of what has been asked for.
    new_end: u64,
}

impl PreviousVersion {
    /// A file of these chunks, in order; `None` is a hole. Chunks after the first 2^32 - 1 are not
    /// looked at.
    #[must_use]
    pub fn new(chunks: impl Iterator<Item = (Option<Fingerprint>, u64)>) -> Self {
        let mut end = 0u64;
        let mut old = Vec::new();
        for (fingerprint, length) in chunks.filter(|chunk| chunk.1 > 0).take(u32::MAX as usize) {
            end = end.saturating_add(length);
            old.push(OldChunk { fingerprint: fingerprint.unwrap_or(Fingerprint::ZERO), end });
        }
        old.shrink_to_fit();
        let is_chunk = |number: &u32| !{ old[*number as usize].fingerprint }.is_zero();
        let mut by_fingerprint: Vec<u32> = (0..old.len() as u32).filter(is_chunk).collect();
        by_fingerprint
            .sort_unstable_by_key(|number| ({ old[*number as usize].fingerprint }, *number));
        by_fingerprint.shrink_to_fit();
        let anchor = Anchor { old: 0, new: 0 };
        Self { chunks: old, by_fingerprint, anchor, next: 0, new_end: 0 }
    }

    /// For the next chunks of the new version in order, by fingerprint and length, puts into
    /// `found` the old chunk that lies where each would have been. `None` for a chunk that the old
    /// version has itself, for a hole (the zero fingerprint), and where the old version has
    /// nothing. The longer the stretch, the more anchors are known.
    pub fn corresponding(
        &mut self,
        chunks: &[(Fingerprint, u64)],
        found: &mut Vec<Option<Fingerprint>>,
    ) {
        found.clear();
        // New chunks since the last anchor, which the old version does not have.
        let mut unknown: Vec<(usize, u64)> = Vec::new();
        for (place, (fingerprint, length)) in chunks.iter().enumerate() {
            found.push(None);
            let start = self.new_end;
            self.new_end = start.saturating_add(*length);
            if fingerprint.is_zero() {
                continue;
            }
            let Some((number, is_only)) = self.find(fingerprint) else {
                unknown.push((place, start));
                continue;
            };
            let end = Anchor { old: self.start_of(number), new: start };
            let gap = Gap { start: self.anchor, end: Some(end) };
            if !is_only && !gap.is_even(*length) {
                continue;
            }
            self.fill(&gap, &unknown, chunks, found);
            unknown.clear();
            self.anchor = Anchor { old: self.chunks[number].end, new: self.new_end };
            self.next = number + 1;
        }
        self.fill(&Gap { start: self.anchor, end: None }, &unknown, chunks, found);
    }

    /// The old chunk of this fingerprint: the one that follows the last anchor most closely, or if
    /// none does, the last one before it; and whether there is only one.
    fn find(&self, fingerprint: &Fingerprint) -> Option<(usize, bool)> {
        let of = |number: &u32| self.chunks[*number as usize].fingerprint;
        let first = self.by_fingerprint.partition_point(|number| of(number) < *fingerprint);
        let equal = self.by_fingerprint.get(first..)?;
        if equal.first().is_none_or(|number| of(number) != *fingerprint) {
            return None;
        }
        let is_only = equal.get(1).is_none_or(|number| of(number) != *fingerprint);
        let behind = equal
            .partition_point(|number| of(number) == *fingerprint && (*number as usize) < self.next);
        let nearest = equal.get(behind).filter(|number| of(number) == *fingerprint);
        let nearest = nearest.or_else(|| equal.get(behind.checked_sub(1)?))?;
        Some((*nearest as usize, is_only))
    }

    fn start_of(&self, number: usize) -> u64 {
        number.checked_sub(1).map_or(0, |before| self.chunks[before].end)
    }

    /// Finds the old chunks for those of a gap.
    fn fill(
        &self,
        gap: &Gap,
        unknown: &[(usize, u64)],
        chunks: &[(Fingerprint, u64)],
        found: &mut [Option<Fingerprint>],
    ) {
        for (place, start) in unknown {
            let end = start.saturating_add(chunks[*place].1);
            let (from, to) = gap.map(*start, end);
            found[*place] = self.largest_overlap(from, to);
        }
    }

    /// The chunk that has most of these bytes of the old version; the first of several.
    fn largest_overlap(&self, from: u64, to: u64) -> Option<Fingerprint> {
        let first = self.chunks.partition_point(|chunk| chunk.end <= from);
        let mut largest = (0, None);
        for number in (first..self.chunks.len()).take(OVERLAPS_MAX) {
            let start = self.start_of(number).max(from);
            if start >= to {
                break;
            }
            let OldChunk { fingerprint, end } = self.chunks[number];
            let overlap = end.min(to) - start;
            if !fingerprint.is_zero() && overlap > largest.0 {
                largest = (overlap, Some(fingerprint));
            }
        }
        largest.1
    }
}

impl Gap {
    /// Bytes of the old and of the new version in the gap; `None` if its end is not known or lies
    /// before its start in the old version.
    fn lengths(&self) -> Option<(u64, u64, Anchor)> {
        let end = self.end?;
        let old = end.old.checked_sub(self.start.old)?;
        Some((old, end.new.saturating_sub(self.start.new), end))
    }

    /// Whether a chunk of this length that ends the gap lies about where it was to be expected:
    /// directly behind the start, or no further than stretched that far.
    fn is_even(&self, length: u64) -> bool {
        self.lengths().is_some_and(|(old, new, _)| {
            let stretched = new.saturating_add(length).saturating_mul(STRETCH_MAX);
            old == 0 || (new > 0 && old <= stretched)
        })
    }

    /// The bytes of the old version that correspond to these of the new one.
    fn map(&self, from: u64, to: u64) -> (u64, u64) {
        let behind_start = |new: u64| (new - self.start.new).saturating_add(self.start.old);
        let Some((old, new, end)) = self.lengths() else {
            return (behind_start(from), behind_start(to));
        };
        let is_proportional = old.div_ceil(STRETCH_MAX) <= new && new.div_ceil(STRETCH_MAX) <= old;
        if is_proportional && new > 0 {
            let scaled = |position: u64| {
                let share = u128::from(position - self.start.new) * u128::from(old);
                self.start.old + (share / u128::from(new)) as u64
            };
            return (scaled(from), scaled(to));
        }
        let before_end = |new: u64| end.old.saturating_sub(end.new - new);
        if from - self.start.new < end.new - to {
            (behind_start(from).min(end.old), behind_start(to).min(end.old))
        } else {
            (before_end(from).max(self.start.old), before_end(to).max(self.start.old))
        }
    }
}

#[cfg(test)]
mod tests;
