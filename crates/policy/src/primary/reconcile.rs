//! Reconciliation: duplicates between partitions that were each deduplicated for themselves.
//!
//! ATC'12's second phase. Algorithm: the set of reconciled partitions grows by k unreconciled ones
//! an iteration. Only the chunks of these k are indexed in memory:
//!
//! 1. their logs are read, in order, and each chunk is entered that is not yet there;
//! 2. the logs of all reconciled partitions are read, in order; an entry that one of them has too
//!    is made to point there;
//! 3. the logs of the k are read once more: a chunk whose entry points elsewhere is a duplicate of
//!    what it points to.
//!
//! A small k takes little memory and many passes over what is reconciled, a large one the reverse:
//! with n partitions, n / k iterations read n² / 2k logs in the second step. The paper leaves open
//! what becomes of chains (a duplicate of a duplicate): with the third step there are none, and a
//! caller rewrites one partition after the other, each in its order.
//!
//! Where the table keeps signatures only, an entry is verified in the log; a read brings in a page
//! of neighbours, which are likely to be asked for next (S4.15).
//!
//! Invariants: what is a duplicate of what depends on the order of the partitions and not on k, the
//! form of the table or where it was interrupted between iterations; the original of a chunk is its
//! first instance in that order. The index takes memory for the chunks of k partitions only:
//! [`Reconciler::memory_bytes`] says how much before they are read, all but the stash of the table.

use super::chunk_table::{ChunkTable, TableForm, WHOLE_ENTRY_BYTES};
use onefold_types::{Error, Fingerprint, Result};
use std::collections::BTreeMap;

/// Fingerprints read at once when a log is read in order.
pub(super) const SCAN_CHUNKS: usize = 4096;
/// Fingerprints of a page: what one read of the log brings in to verify an entry.
pub const PAGE_CHUNKS: u32 = 1000;
/// Fingerprints in the cache of pages (S4.15).
pub const CACHED_CHUNKS: usize = 100_000;

/// A partition's number.
pub type PartitionId = u32;

/// A chunk's address: its ordinal in the log of a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChunkAddress {
    /// The partition.
    pub partition: PartitionId,
    /// The ordinal in its log, from zero.
    pub ordinal: u32,
}

/// What reconciliation asks of the world.
pub trait PartitionPort {
    /// How many chunks a partition's log holds. It must not change while partitions are compared.
    ///
    /// # Errors
    /// The partition cannot be opened.
    fn chunks(&mut self, partition: PartitionId) -> Result<u64>;

    /// Appends the fingerprints of `limit` chunks from `first` on, or of as many as there are. One
    /// access of the log.
    ///
    /// # Errors
    /// The log cannot be read.
    fn fingerprints(
        &mut self,
        first: ChunkAddress,
        limit: usize,
        found: &mut Vec<Fingerprint>,
    ) -> Result<()>;

    /// Takes notice that a chunk is a duplicate of another. Called in the order of each partition.
    ///
    /// # Errors
    /// It cannot be noted; the iteration ends, and may be repeated.
    fn duplicate(&mut self, chunk: ChunkAddress, original: ChunkAddress) -> Result<()>;
}

/// When reconciliation is carried out (S4.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// As soon as a partition was deduplicated.
    AtOnce,
    /// When the machine has nothing else to do, but at the latest when more than so many wait.
    Delayed {
        /// Partitions that may wait.
        waiting_max: usize,
    },
}

impl Timing {
    /// Whether an iteration is due while so many partitions wait.
    #[must_use]
    pub fn is_due(self, waiting: usize, off_peak: bool) -> bool {
        match self {
            Self::AtOnce => waiting > 0,
            Self::Delayed { waiting_max } => waiting > waiting_max || waiting > 0 && off_peak,
        }
    }
}

/// What one iteration did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Iteration {
    /// Chunks that were indexed.
    pub chunks_indexed: u64,
    /// Memory of the index at most, without the cache of pages.
    pub memory_bytes: u64,
    /// Fingerprints read in order, in all three steps.
    pub chunks_scanned: u64,
    /// Reads of a page to verify an entry.
    pub page_reads: u64,
    /// Entries that were verified.
    pub verified: u64,
    /// Duplicates found.
    pub duplicates: u64,
}

/// The reconciled set, and how it grows.
#[derive(Debug)]
pub struct Reconciler {
    form: TableForm,
    /// Every partition with the address of its first chunk among all, in rising order.
    bases: Vec<(PartitionId, u32)>,
    addresses: u32,
    reconciled: Vec<PartitionId>,
    pages: Pages,
}

impl Reconciler {
    /// Of these partitions, none is reconciled yet.
    ///
    /// # Errors
    /// A partition cannot be opened or is named twice, or there are too many chunks.
    pub fn new(
        port: &mut dyn PartitionPort,
        partitions: &[PartitionId],
        form: TableForm,
        cached_chunks: usize,
    ) -> Result<Self> {
        let mut bases = Vec::with_capacity(partitions.len());
        let mut next = 0u32;
        for partition in partitions {
            if bases.iter().any(|(other, _)| other == partition) {
                return Err(Error::invalid(format!(
                    "partition {partition} is to be reconciled with itself; name it once"
                )));
            }
            bases.push((*partition, next));
            let chunks = u32::try_from(port.chunks(*partition)?).ok();
            next = chunks.and_then(|chunks| next.checked_add(chunks)).ok_or_else(|| {
                Error::invalid("more than 2^32 chunks cannot be reconciled; use fewer partitions")
            })?;
        }
        let pages = Pages { capacity: cached_chunks, ..Pages::default() };
        Ok(Self { form, bases, addresses: next, reconciled: Vec::new(), pages })
    }

    /// Goes on where another one was after `reconciled`.
    pub fn resume(&mut self, reconciled: &[PartitionId]) {
        self.reconciled = reconciled.to_vec();
    }

    /// The reconciled partitions, in the order in which they became so.
    #[must_use]
    pub fn reconciled(&self) -> &[PartitionId] {
        &self.reconciled
    }

    /// Memory that the index of these partitions takes at most.
    #[must_use]
    pub fn memory_bytes(&self, group: &[PartitionId]) -> u64 {
        let chunks = group.iter().map(|partition| self.chunks(*partition)).sum();
        match self.form {
            TableForm::Whole => chunks * WHOLE_ENTRY_BYTES,
            TableForm::Signatures => {
                ChunkTable::new(self.form, chunks, self.addresses).bytes_used()
            }
        }
    }

    /// How many of the unreconciled partitions, which come in this order, may be taken at once
    /// within a limit of memory: at least one.
    #[must_use]
    pub fn partitions_within(&self, waiting: &[PartitionId], limit_bytes: u64) -> usize {
        let fits = |count: &usize| {
            waiting.get(..*count).is_some_and(|group| self.memory_bytes(group) <= limit_bytes)
        };
        (1..=waiting.len()).take_while(fits).last().unwrap_or(1)
    }

    /// Takes these partitions into the reconciled set.
    ///
    /// # Errors
    /// Those of the port, or a partition is unknown or reconciled already. The set is as before.
    pub fn iterate(
        &mut self,
        port: &mut dyn PartitionPort,
        group: &[PartitionId],
    ) -> Result<Iteration> {
        let known = |partition| self.bases.iter().any(|(one, _)| *one == partition);
        for (number, partition) in group.iter().enumerate() {
            let again = group.iter().take(number).chain(&self.reconciled);
            if !known(*partition) || again.into_iter().any(|other| other == partition) {
                return Err(Error::invalid(format!(
                    "partition {partition} cannot be reconciled: it is unknown, or was before"
                )));
            }
        }
        let chunks = group.iter().map(|partition| self.chunks(*partition)).sum();
        let mut run = Run {
            table: ChunkTable::new(self.form, chunks, self.addresses),
            group: group.to_vec(),
            iteration: Iteration::default(),
            candidates: Vec::new(),
        };
        for partition in group {
            self.scan(port, &mut run, *partition, Self::enter)?;
        }
        run.iteration.chunks_indexed = run.table.chunks();
        run.iteration.memory_bytes = run.table.bytes_used();
        for partition in self.reconciled.clone() {
            self.scan(port, &mut run, partition, Self::point_to_reconciled)?;
        }
        for partition in group {
            self.scan(port, &mut run, *partition, Self::tell)?;
        }
        self.reconciled.extend_from_slice(group);
        Ok(run.iteration)
    }

    /// Step 1.
    fn enter(
        &mut self,
        port: &mut dyn PartitionPort,
        run: &mut Run,
        address: u32,
        fingerprint: &Fingerprint,
    ) -> Result<()> {
        if self.entry(port, run, fingerprint, |_, _, _| true)?.is_none() {
            run.table.insert(fingerprint, address);
        }
        Ok(())
    }

    /// Step 2. Entries that point to a reconciled partition already are of no interest: they point
    /// to an earlier instance of this chunk, or to another chunk.
    fn point_to_reconciled(
        &mut self,
        port: &mut dyn PartitionPort,
        run: &mut Run,
        address: u32,
        fingerprint: &Fingerprint,
    ) -> Result<()> {
        let is_of_group = |me: &Self, group: &[PartitionId], entry| {
            group.contains(&me.chunk_address(entry).partition)
        };
        if let Some(entry) = self.entry(port, run, fingerprint, is_of_group)? {
            run.table.repoint(fingerprint, entry, address);
        }
        Ok(())
    }

    /// Step 3.
    fn tell(
        &mut self,
        port: &mut dyn PartitionPort,
        run: &mut Run,
        address: u32,
        fingerprint: &Fingerprint,
    ) -> Result<()> {
        run.candidates.clear();
        run.table.find(fingerprint, &mut run.candidates);
        // Its own entry needs no proof.
        if run.candidates.contains(&address) {
            return Ok(());
        }
        if let Some(original) = self.entry(port, run, fingerprint, |_, _, _| true)? {
            run.iteration.duplicates += 1;
            port.duplicate(self.chunk_address(address), self.chunk_address(original))?;
        }
        Ok(())
    }

    /// The address under which the table has the chunk, if it is one of those asked for.
    fn entry(
        &mut self,
        port: &mut dyn PartitionPort,
        run: &mut Run,
        fingerprint: &Fingerprint,
        is_wanted: impl Fn(&Self, &[PartitionId], u32) -> bool,
    ) -> Result<Option<u32>> {
        run.candidates.clear();
        let is_certain = run.table.find(fingerprint, &mut run.candidates);
        for candidate in &run.candidates {
            if !is_wanted(self, &run.group, *candidate) {
                continue;
            }
            if is_certain {
                return Ok(Some(*candidate));
            }
            run.iteration.verified += 1;
            let address = self.chunk_address(*candidate);
            let reads = &mut run.iteration.page_reads;
            if self.pages.fingerprint(port, address, reads)? == Some(*fingerprint) {
                return Ok(Some(*candidate));
            }
        }
        Ok(None)
    }

    /// Shows a step every chunk of a partition, in order.
    fn scan(
        &mut self,
        port: &mut dyn PartitionPort,
        run: &mut Run,
        partition: PartitionId,
        mut step: impl FnMut(
            &mut Self,
            &mut dyn PartitionPort,
            &mut Run,
            u32,
            &Fingerprint,
        ) -> Result<()>,
    ) -> Result<()> {
        let base = self.base(partition);
        let chunks = self.chunks(partition) as u32;
        let mut fingerprints = Vec::with_capacity(SCAN_CHUNKS);
        let mut ordinal = 0;
        while ordinal < chunks {
            fingerprints.clear();
            let wanted = SCAN_CHUNKS.min((chunks - ordinal) as usize);
            port.fingerprints(ChunkAddress { partition, ordinal }, wanted, &mut fingerprints)?;
            if fingerprints.len() != wanted {
                return Err(Error::damaged(format!(
                    "the log of partition {partition} ends after {} of {chunks} chunks",
                    ordinal as usize + fingerprints.len()
                )));
            }
            run.iteration.chunks_scanned += wanted as u64;
            for fingerprint in &fingerprints {
                step(self, port, run, base + ordinal, fingerprint)?;
                ordinal += 1;
            }
        }
        Ok(())
    }

    fn base(&self, partition: PartitionId) -> u32 {
        let found = self.bases.iter().find(|(one, _)| *one == partition);
        found.map_or(self.addresses, |(_, base)| *base)
    }

    fn chunks(&self, partition: PartitionId) -> u64 {
        let mut after = self.bases.iter().skip_while(|(one, _)| *one != partition);
        let base = after.next().map_or(self.addresses, |(_, base)| *base);
        u64::from(after.next().map_or(self.addresses, |(_, next)| *next) - base)
    }

    fn chunk_address(&self, address: u32) -> ChunkAddress {
        let after = self.bases.partition_point(|(_, base)| *base <= address);
        let (partition, base) = self.bases.get(after.wrapping_sub(1)).copied().unwrap_or_default();
        ChunkAddress { partition, ordinal: address - base }
    }
}

/// What an iteration works with.
struct Run {
    group: Vec<PartitionId>,
    table: ChunkTable,
    iteration: Iteration,
    candidates: Vec<u32>,
}

/// Pages of logs, those used last.
#[derive(Debug, Default)]
struct Pages {
    capacity: usize,
    /// By partition and number of page: when it was used, and what it holds.
    pages: BTreeMap<(PartitionId, u32), (u64, Vec<Fingerprint>)>,
    by_use: BTreeMap<u64, (PartitionId, u32)>,
    uses: u64,
    held: usize,
}

impl Pages {
    /// The fingerprint at an address, `None` if the log does not reach so far.
    fn fingerprint(
        &mut self,
        port: &mut dyn PartitionPort,
        address: ChunkAddress,
        reads: &mut u64,
    ) -> Result<Option<Fingerprint>> {
        let key = (address.partition, address.ordinal / PAGE_CHUNKS);
        self.uses += 1;
        if let Some((used, _)) = self.pages.get_mut(&key) {
            self.by_use.remove(used);
            *used = self.uses;
        } else {
            let ordinal = key.1 * PAGE_CHUNKS;
            let first = ChunkAddress { ordinal, ..address };
            let mut page = Vec::with_capacity(PAGE_CHUNKS as usize);
            port.fingerprints(first, PAGE_CHUNKS as usize, &mut page)?;
            *reads += 1;
            self.held += page.len();
            self.pages.insert(key, (self.uses, page));
        }
        self.by_use.insert(self.uses, key);
        // The page at hand stays, whatever the limit is.
        while self.held > self.capacity && self.by_use.len() > 1 {
            if let Some((_, (_, page))) =
                self.by_use.pop_first().and_then(|(_, oldest)| self.pages.remove_entry(&oldest))
            {
                self.held -= page.len();
            }
        }
        let page = self.pages.get(&key).map(|(_, page)| page);
        let position = (address.ordinal % PAGE_CHUNKS) as usize;
        Ok(page.and_then(|page| page.get(position)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs of two pages and a half, in which every fingerprint tells its address.
    struct Logs;

    const LOG_CHUNKS: u32 = PAGE_CHUNKS * 5 / 2;

    fn told(partition: PartitionId, ordinal: u32) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&partition.to_le_bytes());
        bytes[4..8].copy_from_slice(&ordinal.to_le_bytes());
        Fingerprint(bytes)
    }

    impl PartitionPort for Logs {
        fn chunks(&mut self, _: PartitionId) -> Result<u64> {
            Ok(u64::from(LOG_CHUNKS))
        }

        fn fingerprints(
            &mut self,
            first: ChunkAddress,
            limit: usize,
            found: &mut Vec<Fingerprint>,
        ) -> Result<()> {
            let ordinals = (first.ordinal..LOG_CHUNKS).take(limit);
            found.extend(ordinals.map(|ordinal| told(first.partition, ordinal)));
            Ok(())
        }

        fn duplicate(&mut self, _: ChunkAddress, _: ChunkAddress) -> Result<()> {
            Ok(())
        }
    }

    /// The pages of partition and number that are read when these are asked for, one after the
    /// other.
    fn read(pages: f64, asked: &[(PartitionId, u32)]) -> Vec<(PartitionId, u32)> {
        let capacity = (pages * f64::from(PAGE_CHUNKS)) as usize;
        let mut cache = Pages { capacity, ..Pages::default() };
        let mut reads = 0;
        let mut is_read = |(partition, page): &(PartitionId, u32)| {
            let before = reads;
            let ordinal = page * PAGE_CHUNKS + 3;
            let address = ChunkAddress { partition: *partition, ordinal };
            let found = cache.fingerprint(&mut Logs, address, &mut reads).unwrap();
            assert_eq!(found, (ordinal < LOG_CHUNKS).then(|| told(*partition, ordinal)));
            assert!(reads <= before + 1);
            reads > before
        };
        asked.iter().filter(|page| is_read(page)).copied().collect()
    }

    #[test]
    fn the_pages_used_last_stay_as_far_as_they_fit() {
        let [a, b, c] = [(7, 0), (7, 1), (8, 0)];
        let asked = [a, b, a, b, a, c, a, c, b, c, a];
        assert_eq!(read(2.0, &asked), [a, b, c, b, a], "c takes the place of b, b that of a");
        assert_eq!(read(3.0, &asked), [a, b, c]);
        // The page at hand stays however small the cache is.
        assert_eq!(read(0.0, &[a, a, b, b, a]), [a, b, a]);
        // The last page of a log is half a page.
        let half = (7, 2);
        assert_eq!(read(2.5, &[a, half, b, a, half, b]), [a, half, b]);
        assert_eq!(read(2.0, &[(7, 3), (7, 3)]), [(7, 3)], "behind the end is nothing");
    }
}
