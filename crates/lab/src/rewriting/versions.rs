//! A workload as numbers: equal chunks have equal numbers, counted from zero.
//!
//! Replayed once, so that many policies can be tried without hashing anything again. Memory: 36
//! bytes for each distinct chunk and 4 for each place.

use crate::trace::{Event, Trace};
use onefold_types::{Fingerprint, Result};
use std::collections::{BTreeMap, HashMap};

/// One generation of one stream.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// The stream.
    pub stream: u32,
    /// The generation.
    pub generation: u32,
    /// The chunks, in stream order.
    pub chunks: Vec<u32>,
}

/// A workload.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// Its name in tables.
    pub name: String,
    /// For each chunk its fingerprint and its plain bytes.
    pub chunks: Vec<(Fingerprint, u32)>,
    /// The versions in the order in which they began.
    pub versions: Vec<Version>,
}

impl Versions {
    /// Numbers the chunks of a trace. Deletions are left out.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn of(name: &str, trace: &dyn Trace) -> Result<Self> {
        let mut numbers: HashMap<Fingerprint, u32> = HashMap::new();
        let mut all = Self { name: name.to_owned(), ..Self::default() };
        let mut open: BTreeMap<u32, usize> = BTreeMap::new();
        trace.replay(&mut |event| {
            match event {
                Event::Begin { stream, generation } => {
                    open.insert(stream, all.versions.len());
                    all.versions.push(Version { stream, generation, chunks: Vec::new() });
                }
                Event::Chunks { stream, chunks } => {
                    let open = open.get(&stream).copied().unwrap_or_default();
                    let Some(version) = all.versions.get_mut(open) else { return Ok(()) };
                    for chunk in chunks {
                        let next = all.chunks.len() as u32;
                        let number = *numbers.entry(chunk.fingerprint).or_insert(next);
                        if number == next {
                            all.chunks.push((chunk.fingerprint, chunk.length_bytes));
                        }
                        version.chunks.push(number);
                    }
                }
                Event::End { .. } | Event::Delete { .. } => {}
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Bytes of a version.
    #[must_use]
    pub fn bytes(&self, version: &Version) -> u64 {
        version.chunks.iter().map(|chunk| u64::from(self.size_bytes(*chunk))).sum()
    }

    /// Bytes of all versions.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.versions.iter().map(|version| self.bytes(version)).sum()
    }

    /// Bytes of a chunk.
    #[must_use]
    pub fn size_bytes(&self, chunk: u32) -> u32 {
        self.chunks.get(chunk as usize).map_or(0, |(_, size)| *size)
    }

    /// The share of the chunks of all versions but the first that were seen before, in their own
    /// version or an earlier one (S2.33).
    #[must_use]
    pub fn seen_share(&self) -> f64 {
        let mut seen = vec![false; self.chunks.len()];
        let (mut chunks, mut known) = (0_u64, 0_u64);
        for version in &self.versions {
            for chunk in &version.chunks {
                let before = seen.get_mut(*chunk as usize).map(|one| std::mem::replace(one, true));
                if version.generation > 0 {
                    chunks += 1;
                    known += u64::from(before.unwrap_or_default());
                }
            }
        }
        known as f64 / chunks.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Chunk, Recorded};

    #[test]
    fn equal_chunks_get_equal_numbers() {
        let chunk = |number| Chunk {
            fingerprint: Fingerprint([number; 32]),
            length_bytes: 10 * u32::from(number),
        };
        let mut trace = Recorded::new("t");
        trace.push_generation(0, 0, &[chunk(1), chunk(2), chunk(1)]);
        trace.push_generation(0, 1, &[chunk(2), chunk(3), chunk(3), chunk(1)]);
        let versions = Versions::of("named", &trace).unwrap();
        assert_eq!(versions.versions[0].chunks, [0, 1, 0]);
        assert_eq!(versions.versions[1].chunks, [1, 2, 2, 0]);
        assert_eq!((versions.bytes(&versions.versions[1]), versions.total_bytes()), (90, 130));
        assert!((versions.seen_share() - 0.75).abs() < 1e-9);
        assert_eq!(versions.name, "named");
    }
}
