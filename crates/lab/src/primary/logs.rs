//! The logs of partitions that were each deduplicated for themselves, in memory.

use super::dataset::DataSet;
use onefold_policy::primary::partition::Partitioning;
use onefold_policy::primary::reconcile::{ChunkAddress, PartitionId, PartitionPort};
use onefold_types::{Error, Fingerprint, Result};
use std::collections::HashSet;

/// The logs, and what reconciliation says about them.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    fingerprints: Vec<Vec<Fingerprint>>,
    lengths: Vec<Vec<u32>>,
    /// Duplicates that were found.
    pub duplicates: u64,
    /// Their bytes.
    pub duplicate_bytes: u64,
    /// Accesses of the logs.
    pub reads: u64,
}

impl Logs {
    /// Those of a data set under a division.
    #[must_use]
    pub fn of(set: &DataSet, partitioning: &Partitioning) -> Self {
        let count = partitioning.count();
        let mut logs = Self {
            fingerprints: vec![Vec::new(); count],
            lengths: vec![Vec::new(); count],
            ..Self::default()
        };
        let mut known = HashSet::new();
        for file in &set.files {
            let partition = partitioning.partition_of(file.facts());
            for chunk in &file.chunks {
                if !known.insert((partition, chunk.fingerprint.prefix())) {
                    continue;
                }
                if let Some(log) = logs.fingerprints.get_mut(partition) {
                    log.push(chunk.fingerprint);
                }
                if let Some(lengths) = logs.lengths.get_mut(partition) {
                    lengths.push(chunk.length_bytes);
                }
            }
        }
        logs
    }

    /// The partitions that hold anything.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionId> {
        let numbered = (0..).zip(&self.fingerprints);
        numbered.filter(|(_, log)| !log.is_empty()).map(|(partition, _)| partition).collect()
    }

    /// Chunks in all of them.
    #[must_use]
    pub fn all_chunks(&self) -> u64 {
        self.fingerprints.iter().map(|log| log.len() as u64).sum()
    }

    /// The log of a partition.
    fn log(&self, partition: PartitionId) -> Result<&[Fingerprint]> {
        let log = self.fingerprints.get(partition as usize);
        log.map(Vec::as_slice)
            .ok_or_else(|| Error::invalid(format!("there is no partition {partition}")))
    }
}

impl PartitionPort for Logs {
    fn chunks(&mut self, partition: PartitionId) -> Result<u64> {
        Ok(self.log(partition)?.len() as u64)
    }

    fn fingerprints(
        &mut self,
        first: ChunkAddress,
        limit: usize,
        found: &mut Vec<Fingerprint>,
    ) -> Result<()> {
        self.reads += 1;
        found.extend(self.log(first.partition)?.iter().skip(first.ordinal as usize).take(limit));
        Ok(())
    }

    fn duplicate(&mut self, chunk: ChunkAddress, _original: ChunkAddress) -> Result<()> {
        let lengths = self.lengths.get(chunk.partition as usize);
        let length = lengths.and_then(|lengths| lengths.get(chunk.ordinal as usize)).copied();
        self.duplicates += 1;
        self.duplicate_bytes += u64::from(length.unwrap_or(0));
        Ok(())
    }
}
