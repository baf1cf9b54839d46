//! Selective reconciliation: which partitions are worth comparing with each other.
//!
//! ATC'12 names selective reconciliation and leaves open how one selects. Algorithm: of every
//! partition the fingerprints that end in certain zeros are kept, one in 2^bits, as a sampled index
//! keeps hooks. What two partitions have in common among these tells what they have in common at
//! all. There are two ways to select. By worth: a pair is worth it if its common chunks are at
//! least a given share of the smaller one, and enough that it is not chance; then both partitions
//! are selected. By yield: pairs with most in common are taken, both partitions of each, until a
//! given share of what all pairs have in common is among the selected. Either way those with most
//! in common come first, so that the first iterations find most. Worth bounds what an iteration
//! costs for what it finds; yield suits types, of which all have little in common.
//!
//! Invariants: memory is that of the samples; by worth zero or yield one, whatever has anything in
//! common is selected; the answer depends on the samples only.

use super::reconcile::{ChunkAddress, PartitionId, PartitionPort, SCAN_CHUNKS};
use onefold_types::Result;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Bits that are zero in a sampled fingerprint: one chunk in 32, unless the caller says otherwise.
pub const SAMPLE_BITS: u32 = 5;

/// Samples of partitions.
#[derive(Debug, Default)]
pub struct Overlap {
    bits: u32,
    samples: Vec<(PartitionId, BTreeSet<u64>)>,
}

impl Overlap {
    /// Reads the logs of these partitions once.
    ///
    /// # Errors
    /// Those of the port.
    pub fn sample(
        port: &mut dyn PartitionPort,
        partitions: &[PartitionId],
        bits: u32,
    ) -> Result<Self> {
        let mut samples = Vec::with_capacity(partitions.len());
        let mut found = Vec::with_capacity(SCAN_CHUNKS);
        for partition in partitions {
            let chunks = port.chunks(*partition)?;
            let mut sample = BTreeSet::new();
            for first in (0..chunks).step_by(SCAN_CHUNKS) {
                found.clear();
                let ordinal = u32::try_from(first).unwrap_or(u32::MAX);
                let address = ChunkAddress { partition: *partition, ordinal };
                port.fingerprints(address, SCAN_CHUNKS, &mut found)?;
                let prefixes = found.iter().map(|fingerprint| fingerprint.prefix());
                sample.extend(prefixes.filter(|prefix| is_sampled(*prefix, bits)));
            }
            samples.push((*partition, sample));
        }
        Ok(Self { bits, samples })
    }

    /// Of samples that were taken by whoever had the fingerprints at hand: of each partition the
    /// prefixes that [`is_sampled`] says.
    #[must_use]
    pub fn of(bits: u32, samples: Vec<(PartitionId, BTreeSet<u64>)>) -> Self {
        Self { bits, samples }
    }

    /// Chunks that two partitions have in common, estimated.
    #[must_use]
    pub fn common_chunks(&self, one: PartitionId, other: PartitionId) -> u64 {
        let of = |wanted| self.samples.iter().find(|(partition, _)| *partition == wanted);
        let Some(((_, one), (_, other))) = of(one).zip(of(other)) else {
            return 0;
        };
        (common(one, other) as u64) << self.bits.min(63)
    }

    /// The partitions worth reconciling, those with most in common with others first: pairs that
    /// have this share of the smaller one in common, and so many of the sampled chunks.
    #[must_use]
    pub fn select(&self, share_min: f64, sampled_min: usize) -> Vec<PartitionId> {
        let mut worth: Vec<(Reverse<usize>, PartitionId)> = Vec::new();
        for (partition, sample) in &self.samples {
            let (mut sum, mut is_worth) = (0, share_min <= 0.0);
            for (_, others) in self.samples.iter().filter(|(one, _)| one != partition) {
                let common = common(sample, others);
                let smaller = sample.len().min(others.len());
                is_worth |=
                    common >= sampled_min.max(1) && common as f64 >= share_min * smaller as f64;
                sum += common;
            }
            if is_worth {
                worth.push((Reverse(sum), *partition));
            }
        }
        worth.sort_unstable();
        worth.into_iter().map(|(_, partition)| partition).collect()
    }

    /// The fewest partitions, pair by pair, among which a share of all that pairs have in common is
    /// found; those with most in common first.
    #[must_use]
    pub fn select_yield(&self, share: f64) -> Vec<PartitionId> {
        let mut pairs = Vec::new();
        for (number, (one, sample)) in self.samples.iter().enumerate() {
            for (other, others) in self.samples.iter().skip(number + 1) {
                pairs.push((Reverse(common(sample, others)), *one, *other));
            }
        }
        pairs.retain(|(common, _, _)| common.0 > 0);
        pairs.sort_unstable();
        let all: usize = pairs.iter().map(|(common, _, _)| common.0).sum();
        let mut selected = Vec::new();
        for (_, one, other) in &pairs {
            let found = pairs
                .iter()
                .filter(|pair| selected.contains(&pair.1) && selected.contains(&pair.2));
            if found.map(|pair| pair.0.0).sum::<usize>() as f64 >= share * all as f64 {
                break;
            }
            for partition in [*one, *other] {
                if !selected.contains(&partition) {
                    selected.push(partition);
                }
            }
        }
        selected
    }

    /// Fingerprints that are kept, of eight bytes each.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples.iter().map(|(_, sample)| sample.len() as u64).sum()
    }
}

/// Whether a sample has the chunks with this prefix.
#[must_use]
pub fn is_sampled(prefix: u64, bits: u32) -> bool {
    prefix.trailing_zeros() >= bits
}

fn common(one: &BTreeSet<u64>, other: &BTreeSet<u64>) -> usize {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().filter(|prefix| many.contains(prefix)).count()
}
