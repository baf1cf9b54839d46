//! The index of one deduplication session, in both forms of ATC'12, over a real log (S4.13-S4.15).
//!
//! New chunks go into a write buffer, which is appended to the log in one write. The baseline keeps
//! all of every entry in memory. The other form keeps signatures and pointers; what it finds is
//! verified in the log, and the read brings in the next mappings, which stay in a cache. When its
//! table is full, a larger one is filled from the log. Without a cache's mapping and a signature a
//! chunk is new: the log is not asked.

use onefold_engine::chunk_store::prefix_hasher::PrefixHasher;
use onefold_policy::primary::chunk_table::{ChunkTable, TableForm, WHOLE_ENTRY_BYTES};
use onefold_types::error::Context;
use onefold_types::{Error, Fingerprint, Result};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::hash::BuildHasherDefault;
use std::os::unix::fs::FileExt;

/// Bytes of a record of the log: a fingerprint, and room for where its chunk is.
const RECORD_BYTES: usize = 48;
/// Records in the write buffer.
const BUFFER_RECORDS: usize = 256;
/// Chunks that the first table has room for.
const FIRST_CHUNKS: u64 = 64;
/// A table takes a few more than it has to have room for, before it is full.
const SPARE_ADDRESSES: u64 = 8;
/// A table that is full grows by one in so many.
const GROWTH: u64 = 16;

type Map<V> = HashMap<u64, V, BuildHasherDefault<PrefixHasher>>;

/// The log of a session.
pub struct Log {
    file: File,
    records: u32,
    buffer: Vec<Fingerprint>,
}

impl Log {
    fn new() -> Result<Self> {
        let file = tempfile::tempfile().context(|| "making a log")?;
        Ok(Self { file, records: 0, buffer: Vec::new() })
    }

    /// Records in it, buffered ones included.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records + self.buffer.len() as u32
    }

    fn append(&mut self, fingerprint: Fingerprint) -> Result<u32> {
        let address = self.records();
        if address == u32::MAX {
            return Err(Error::invalid("a log of 2^32 chunks is full"));
        }
        self.buffer.push(fingerprint);
        if self.buffer.len() == BUFFER_RECORDS {
            self.flush()?;
        }
        Ok(address)
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        let mut bytes = Vec::with_capacity(self.buffer.len() * RECORD_BYTES);
        for fingerprint in &self.buffer {
            bytes.extend_from_slice(&fingerprint.0);
            bytes.resize(bytes.len().next_multiple_of(RECORD_BYTES), 0);
        }
        let offset = u64::from(self.records) * RECORD_BYTES as u64;
        self.file.write_all_at(&bytes, offset).context(|| "appending to a log")?;
        self.records += self.buffer.len() as u32;
        self.buffer.clear();
        Ok(())
    }

    /// Appends the fingerprints of at most `limit` records from `first` on; one read.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn read(&self, first: u32, limit: usize, found: &mut Vec<Fingerprint>) -> Result<()> {
        let written = limit.min(self.records.saturating_sub(first) as usize);
        let mut bytes = vec![0; written * RECORD_BYTES];
        let offset = u64::from(first) * RECORD_BYTES as u64;
        self.file.read_exact_at(&mut bytes, offset).context(|| "reading a log")?;
        let records = bytes.chunks_exact(RECORD_BYTES).filter_map(|record| record.first_chunk());
        found.extend(records.map(|fingerprint| Fingerprint(*fingerprint)));
        Ok(())
    }
}

/// What look-ups cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexCounters {
    /// Chunks that were looked up.
    pub lookups: u64,
    /// Of those, known ones.
    pub duplicates: u64,
    /// Reads of the log for a look-up.
    pub log_reads: u64,
    /// Look-ups that read it.
    pub lookups_reading: u64,
    /// Tables that were filled anew.
    pub growths: u64,
    /// Memory of the entries at most.
    pub memory_bytes: u64,
}

/// How the cache of mappings is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefetching {
    /// Mappings that one read brings in (S4.15: 100 to 1000).
    pub group: u32,
    /// Mappings in the cache.
    pub cached: usize,
}

/// The index of a session.
pub struct SessionIndex {
    entries: Entries,
    /// Its log.
    pub log: Log,
    /// What it cost so far.
    pub counters: IndexCounters,
}

enum Entries {
    Whole(HashMap<Fingerprint, u32>),
    Signatures { table: ChunkTable, cache: Cache, buffered: Map<u32> },
}

impl SessionIndex {
    /// An empty one.
    ///
    /// # Errors
    /// The log cannot be made.
    pub fn new(form: TableForm, prefetching: Prefetching) -> Result<Self> {
        let entries = match form {
            TableForm::Whole => Entries::Whole(HashMap::new()),
            TableForm::Signatures => Entries::Signatures {
                table: ChunkTable::new(form, FIRST_CHUNKS, (FIRST_CHUNKS + SPARE_ADDRESSES) as u32),
                cache: Cache { prefetching, ..Cache::default() },
                buffered: Map::default(),
            },
        };
        Ok(Self { entries, log: Log::new()?, counters: IndexCounters::default() })
    }

    /// Whether the chunk is a duplicate; if not, it is one from now on.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub fn look_up(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        let Self { entries, log, counters } = self;
        counters.lookups += 1;
        let is_known = match entries {
            Entries::Whole(known) => {
                let is_known = known.contains_key(fingerprint);
                if !is_known {
                    known.insert(*fingerprint, log.append(*fingerprint)?);
                }
                counters.memory_bytes = known.len() as u64 * WHOLE_ENTRY_BYTES;
                is_known
            }
            Entries::Signatures { table, cache, buffered } => {
                let is_known = buffered.contains_key(&fingerprint.prefix())
                    || cache.contains(fingerprint)
                    || verified(table, cache, log, counters, fingerprint)?;
                if !is_known {
                    if table.is_full() {
                        *table = larger(table, log)?;
                        counters.growths += 1;
                    }
                    let address = log.append(*fingerprint)?;
                    table.insert(fingerprint, address);
                    buffered.insert(fingerprint.prefix(), address);
                    if log.buffer.is_empty() {
                        buffered.clear();
                    }
                    counters.memory_bytes = counters.memory_bytes.max(table.bytes_used());
                }
                is_known
            }
        };
        counters.duplicates += u64::from(is_known);
        Ok(is_known)
    }
}

/// Looks signatures up and verifies what is found.
fn verified(
    table: &ChunkTable,
    cache: &mut Cache,
    log: &Log,
    counters: &mut IndexCounters,
    fingerprint: &Fingerprint,
) -> Result<bool> {
    let mut addresses = Vec::new();
    table.find(fingerprint, &mut addresses);
    let before = counters.log_reads;
    let mut is_known = false;
    for address in addresses {
        // What is still buffered was asked before.
        if address >= log.records {
            continue;
        }
        counters.log_reads += 1;
        if cache.prefetch(log, address, fingerprint)? {
            is_known = true;
            break;
        }
    }
    counters.lookups_reading += u64::from(counters.log_reads > before);
    Ok(is_known)
}

/// A table with more room, filled from the log.
fn larger(full: &ChunkTable, log: &Log) -> Result<ChunkTable> {
    let chunks = full.chunks();
    let room = chunks + chunks / GROWTH + 1;
    let addresses = u32::try_from(room + SPARE_ADDRESSES).unwrap_or(u32::MAX);
    let mut table = ChunkTable::new(TableForm::Signatures, room, addresses);
    let mut found = Vec::new();
    let mut first = 0;
    while first < log.records {
        found.clear();
        log.read(first, 8192, &mut found)?;
        for (address, fingerprint) in (first..).zip(&found) {
            table.insert(fingerprint, address);
        }
        first += found.len() as u32;
    }
    for (address, fingerprint) in (first..).zip(&log.buffer) {
        table.insert(fingerprint, address);
    }
    Ok(table)
}

/// Mappings that were read lately, group by group.
struct Cache {
    prefetching: Prefetching,
    known: Map<u32>,
    groups: VecDeque<Vec<Fingerprint>>,
    held: usize,
}

impl Default for Cache {
    fn default() -> Self {
        let prefetching = Prefetching { group: 1000, cached: 100_000 };
        Self { prefetching, known: Map::default(), groups: VecDeque::new(), held: 0 }
    }
}

impl Cache {
    fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.known.contains_key(&fingerprint.prefix())
    }

    /// Reads the mappings from `address` on; tells whether the first one is the chunk. The groups
    /// read first leave first.
    fn prefetch(&mut self, log: &Log, address: u32, wanted: &Fingerprint) -> Result<bool> {
        let mut group = Vec::with_capacity(self.prefetching.group as usize);
        log.read(address, self.prefetching.group as usize, &mut group)?;
        let is_wanted = group.first() == Some(wanted);
        for fingerprint in &group {
            *self.known.entry(fingerprint.prefix()).or_insert(0) += 1;
        }
        self.held += group.len();
        self.groups.push_back(group);
        while self.held > self.prefetching.cached && self.groups.len() > 1 {
            for fingerprint in self.groups.pop_front().into_iter().flatten() {
                self.held -= 1;
                let prefix = fingerprint.prefix();
                let count = self.known.get(&prefix).copied().unwrap_or(1);
                if count <= 1 {
                    self.known.remove(&prefix);
                } else {
                    self.known.insert(prefix, count - 1);
                }
            }
        }
        Ok(is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;
    use std::collections::HashSet;

    fn fingerprint(number: u64) -> Fingerprint {
        let mut fingerprint = Fingerprint::ZERO;
        let prefix = SeededRandomness::new(number).next_u64();
        fingerprint.0[..8].copy_from_slice(&prefix.to_le_bytes());
        fingerprint
    }

    #[test]
    fn both_forms_know_exactly_what_was_there() {
        let randomness = SeededRandomness::new(7);
        // Runs that come again, as files do.
        let runs: Vec<u64> = (0..400).map(|_| randomness.below(150)).collect();
        let stream: Vec<u64> = runs.iter().flat_map(|run| run * 90..run * 90 + 100).collect();
        for (group, cached) in [(100, 300), (1000, 100_000), (1, 1)] {
            for form in [TableForm::Whole, TableForm::Signatures] {
                let prefetching = Prefetching { group, cached };
                let mut index = SessionIndex::new(form, prefetching).unwrap();
                let mut known = HashSet::new();
                for number in &stream {
                    let is_known = !known.insert(*number);
                    assert_eq!(index.look_up(&fingerprint(*number)).unwrap(), is_known);
                }
                assert_eq!(u64::from(index.log.records()), known.len() as u64);
                let counters = index.counters;
                assert_eq!(counters.duplicates, (stream.len() - known.len()) as u64);
                let bytes = counters.memory_bytes as f64 / known.len() as f64;
                if form == TableForm::Signatures {
                    assert!(counters.growths > 5 && bytes < 6.0, "{bytes}");
                    assert!(group > 1 || counters.log_reads * 2 > counters.duplicates);
                    assert!(group < 1000 || counters.log_reads < 100, "{counters:?}");
                } else {
                    assert!((bytes - 48.0).abs() < 1e-9 && counters.log_reads == 0);
                }
            }
        }
    }

    #[test]
    fn the_log_gives_back_what_was_written() {
        let mut log = Log::new().unwrap();
        (0..2500).for_each(|number| {
            assert_eq!(log.append(fingerprint(number)).unwrap(), number as u32);
        });
        let mut found = Vec::new();
        log.read(1990, 100, &mut found).unwrap();
        assert_eq!(found, (1990..2090).map(fingerprint).collect::<Vec<_>>());
        log.flush().unwrap();
        found.clear();
        log.read(0, 9999, &mut found).unwrap();
        assert_eq!(found.len(), 2500);
        log.read(2500, 10, &mut found).unwrap();
        assert_eq!(found.len(), 2500);
    }
}
