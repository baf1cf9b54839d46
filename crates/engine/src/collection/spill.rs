//! Sets that are larger than memory: fixed-size records in scratch files, back in order.
//!
//! # Algorithm
//! Distribution sort (Knuth, The Art of Computer Programming, volume 3, section 5.4). Records are
//! collected in a buffer. When it is full it is sorted, what is twice is dropped, and the rest is
//! appended to one file for each of some ranges of values ("partitions"). Read back, a partition
//! is sorted in memory; one that does not fit is distributed again, over the range between its
//! least and its greatest record. Each time the two come into different partitions, so this ends
//! whatever the records are; partitions of a single value need no memory at all.
//!
//! Every record is written once for each time it is distributed: once in all while the set is at
//! most as large as the area times the number of partitions, twice up to the square of that.
//!
//! # Invariants
//! - What goes in comes out, in rising order and once.
//! - Memory is that of the buffer or of the area, and two pieces of a file, whatever goes in. All
//!   of it is counted by the [`Scratch`].
//! - Files have no name, so nothing stays behind, however the process ends. They hold prefixes of
//!   fingerprints and addresses of chunks, never content.
//! - Errors name the directory and are never damage: they say nothing about the store.
//!
//! # Concurrency
//! A set belongs to one thread at a time; several sets may share a [`Scratch`].

use onefold_types::{Error, ErrorKind, Result, bug, invariant};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of a file that are read or written at once, about.
const PIECE_BYTES: usize = 64 << 10;
/// Partitions that a partition is distributed over if it does not fit.
const PARTITIONS: usize = 64;
/// A buffer or an area has room for so many records at least.
const RECORDS_MIN: usize = 16;

/// Where scratch files are, and what they and their buffers take.
#[derive(Clone, Debug)]
pub struct Scratch(Arc<State>);

#[derive(Debug)]
struct State {
    directory: PathBuf,
    spilled_bytes: AtomicU64,
    held_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl Scratch {
    /// Scratch files in a directory, which must exist when the first of them is needed.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self(Arc::new(State {
            directory,
            spilled_bytes: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
        }))
    }

    /// Bytes written so far.
    #[must_use]
    pub fn spilled_bytes(&self) -> u64 {
        self.0.spilled_bytes.load(Ordering::Relaxed)
    }

    /// Memory that all sets took together, at its largest.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }

    /// Counts memory until it is let go of.
    #[must_use]
    pub fn hold(&self, bytes: usize) -> Held {
        let mut held = Held { scratch: self.clone(), bytes: 0 };
        held.set(bytes);
        held
    }

    fn file(&self) -> Result<File> {
        tempfile::tempfile_in(&self.0.directory).map_err(|cause| self.failed(cause))
    }

    /// Nothing that happens to a scratch file is damage of the store.
    fn failed(&self, cause: io::Error) -> Error {
        let directory = self.0.directory.display();
        let error = Error::io(format!("a scratch file in '{directory}'"), cause);
        match error.kind() {
            ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::NotPermitted
            | ErrorKind::Exhausted => error,
            _ => error.with_kind(ErrorKind::Io),
        }
    }
}

/// Memory that is counted.
#[derive(Debug)]
pub struct Held {
    scratch: Scratch,
    bytes: usize,
}

impl Held {
    /// So much it is now.
    pub fn set(&mut self, bytes: usize) {
        let state = &self.scratch.0;
        state.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        let held = state.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        state.peak_bytes.fetch_max(held, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.scratch.0.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Records one after the other in a file, which is there as soon as it has one.
#[derive(Debug)]
pub struct RecordFile<const WORDS: usize> {
    scratch: Scratch,
    file: Option<File>,
    records: u64,
}

impl<const WORDS: usize> RecordFile<WORDS> {
    const RECORD_BYTES: usize = WORDS * size_of::<u64>();
    const RECORDS_PER_PIECE: usize = PIECE_BYTES / Self::RECORD_BYTES;

    /// A file without records.
    #[must_use]
    pub fn new(scratch: &Scratch) -> Self {
        Self { scratch: scratch.clone(), file: None, records: 0 }
    }

    /// Appends records.
    ///
    /// Errors: `NoSpace` and others, naming the directory.
    pub fn append(&mut self, records: &[[u64; WORDS]]) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.scratch.file()?),
        };
        let piece_bytes = records.len().min(Self::RECORDS_PER_PIECE) * Self::RECORD_BYTES;
        let mut bytes = Vec::with_capacity(piece_bytes);
        let _held = self.scratch.hold(bytes.capacity());
        for piece in records.chunks(Self::RECORDS_PER_PIECE) {
            bytes.clear();
            piece.as_flattened().iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            let offset = self.records * Self::RECORD_BYTES as u64;
            file.write_all_at(&bytes, offset).map_err(|cause| self.scratch.failed(cause))?;
            self.records += piece.len() as u64;
            self.scratch.0.spilled_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads the records from one to another in the order in which they were appended.
    #[must_use]
    pub fn read(&self, start: u64, end: u64) -> RecordReader<'_, WORDS> {
        let end = end.min(self.records);
        RecordReader { file: self, next: start, end, bytes: Vec::new(), at: 0, held: None }
    }

    /// Reads all records.
    #[must_use]
    pub fn read_all(&self) -> RecordReader<'_, WORDS> {
        self.read(0, self.records)
    }
}

/// Reads the records of a file.
#[derive(Debug)]
pub struct RecordReader<'a, const WORDS: usize> {
    file: &'a RecordFile<WORDS>,
    next: u64,
    end: u64,
    bytes: Vec<u8>,
    at: usize,
    held: Option<Held>,
}

impl<const WORDS: usize> RecordReader<'_, WORDS> {
    /// The next record.
    pub fn next_record(&mut self) -> Result<Option<[u64; WORDS]>> {
        if self.at == self.bytes.len() && !self.read()? {
            return Ok(None);
        }
        let end = self.at + RecordFile::<WORDS>::RECORD_BYTES;
        // A record made of zeros would mark or free something else.
        let bytes = self.bytes.get(self.at..end).ok_or_else(|| {
            bug!("a scratch file ends within a record", self.at, end, self.bytes.len())
        })?;
        let (words, _) = bytes.as_chunks::<8>();
        let mut record = [0; WORDS];
        for (word, bytes) in record.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.at = end;
        Ok(Some(record))
    }

    fn read(&mut self) -> Result<bool> {
        invariant!(self.next <= self.end, "records are read beyond the end", self.next, self.end);
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let Some(file) = self.file.file.as_ref().filter(|_| left > 0) else {
            return Ok(false);
        };
        let records = left.min(RecordFile::<WORDS>::RECORDS_PER_PIECE);
        let offset = self.next * RecordFile::<WORDS>::RECORD_BYTES as u64;
        self.bytes.resize(records * RecordFile::<WORDS>::RECORD_BYTES, 0);
        let scratch = &self.file.scratch;
        self.held.get_or_insert_with(|| scratch.hold(self.bytes.capacity()));
        file.read_exact_at(&mut self.bytes, offset).map_err(|cause| scratch.failed(cause))?;
        self.next += records as u64;
        self.at = 0;
        Ok(true)
    }
}

/// Which partition a record belongs to: never a lower one than that of a lesser record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    word: usize,
    base: u64,
    shift: u32,
    partitions: usize,
}

impl Split {
    /// By the first word, whose values are below 2^`bits` and about equally frequent. Greater ones
    /// are allowed and come into the last partition.
    #[must_use]
    pub fn evenly(bits: u32, partitions: usize) -> Self {
        let shift = bits.saturating_sub(partitions.max(1).ilog2()).min(63);
        Self { word: 0, base: 0, shift, partitions: partitions.max(1) }
    }

    /// Between a least and a greatest record, which come into different partitions; `None` if they
    /// are equal.
    fn between<const WORDS: usize>(low: &[u64; WORDS], high: &[u64; WORDS]) -> Option<Self> {
        let mut words = low.iter().zip(high).enumerate();
        let (word, (base, end)) = words.find(|(_, (low, high))| low != high)?;
        let bits = u64::BITS - end.saturating_sub(*base).leading_zeros();
        let shift = bits.saturating_sub(PARTITIONS.ilog2());
        Some(Self { word, base: *base, shift, partitions: PARTITIONS })
    }

    fn partition<const WORDS: usize>(&self, record: &[u64; WORDS]) -> usize {
        let word = record.get(self.word).copied().unwrap_or_default();
        let number = word.saturating_sub(self.base) >> self.shift;
        usize::try_from(number).unwrap_or(usize::MAX).min(self.partitions - 1)
    }
}

/// A partition.
#[derive(Debug)]
struct Partition<const WORDS: usize> {
    file: RecordFile<WORDS>,
    low: [u64; WORDS],
    high: [u64; WORDS],
}

/// A set of records, in memory as long as they fit into its buffer.
#[derive(Debug)]
pub struct SpillSet<const WORDS: usize> {
    scratch: Scratch,
    split: Split,
    buffer: Vec<[u64; WORDS]>,
    buffer_max: usize,
    held: Held,
    partitions: Vec<Partition<WORDS>>,
}

impl<const WORDS: usize> SpillSet<WORDS> {
    /// An empty set with a buffer of so many bytes, which is taken as it is needed.
    #[must_use]
    pub fn new(scratch: &Scratch, split: Split, buffer_bytes: usize) -> Self {
        let buffer_max = records_in::<WORDS>(buffer_bytes);
        let (buffer, held) = (Vec::new(), scratch.hold(0));
        let scratch = scratch.clone();
        Self { scratch, split, buffer, buffer_max, held, partitions: Vec::new() }
    }

    /// Whether nothing was put in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.partitions.is_empty()
    }

    /// Puts a record in.
    ///
    /// Errors: `NoSpace` and others, naming the directory.
    pub fn push(&mut self, record: [u64; WORDS]) -> Result<()> {
        if self.buffer.len() >= self.buffer_max {
            self.sort_buffer();
            // Unless many were there more than once.
            if self.buffer.len() > self.buffer_max / 2 {
                self.spill()?;
            }
        }
        if self.buffer.len() == self.buffer.capacity() {
            let capacity = (self.buffer.len() * 2).clamp(RECORDS_MIN, self.buffer_max);
            self.buffer.reserve_exact(capacity - self.buffer.len());
            self.held.set(self.buffer.capacity() * size_of::<[u64; WORDS]>());
        }
        self.buffer.push(record);
        Ok(())
    }

    fn sort_buffer(&mut self) {
        self.buffer.sort_unstable();
        self.buffer.dedup();
    }

    /// Distributes the buffer, which is sorted.
    fn spill(&mut self) -> Result<()> {
        if self.partitions.is_empty() {
            let empty = || Partition {
                file: RecordFile::new(&self.scratch),
                low: [u64::MAX; WORDS],
                high: [0; WORDS],
            };
            self.partitions.extend((0..self.split.partitions).map(|_| empty()));
        }
        let mut rest = self.buffer.as_slice();
        for (number, partition) in self.partitions.iter_mut().enumerate() {
            let count = rest.partition_point(|record| self.split.partition(record) <= number);
            let (these, others) = rest.split_at(count);
            if let (Some(first), Some(last)) = (these.first(), these.last()) {
                partition.file.append(these)?;
                partition.low = partition.low.min(*first);
                partition.high = partition.high.max(*last);
            }
            rest = others;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Calls `each` with all records, in no order, and some of them several times.
    pub fn visit(&self, each: &mut dyn FnMut([u64; WORDS]) -> Result<()>) -> Result<()> {
        for partition in &self.partitions {
            let mut reader = partition.file.read_all();
            while let Some(record) = reader.next_record()? {
                each(record)?;
            }
        }
        self.buffer.iter().try_for_each(|record| each(*record))
    }

    /// The records in rising order and once each, with an area of so many bytes to sort them in.
    /// What is already in memory stays there.
    pub fn into_sorted(mut self, area_bytes: usize) -> Result<Sorted<WORDS>> {
        self.sort_buffer();
        let area_max = records_in::<WORDS>(area_bytes);
        let mut sorted = Sorted {
            area: Vec::new(),
            at: 0,
            area_max,
            held: self.scratch.hold(0),
            scratch: self.scratch.clone(),
            left: Vec::new(),
        };
        if self.partitions.is_empty() {
            sorted.area = std::mem::take(&mut self.buffer);
            sorted.held = self.held;
        } else {
            self.spill()?;
            sorted.left.extend(self.partitions.into_iter().rev());
        }
        Ok(sorted)
    }
}

/// The records of a set in rising order, once each.
#[derive(Debug)]
pub struct Sorted<const WORDS: usize> {
    scratch: Scratch,
    /// A partition, sorted.
    area: Vec<[u64; WORDS]>,
    at: usize,
    area_max: usize,
    held: Held,
    /// The partitions after that, the next one last.
    left: Vec<Partition<WORDS>>,
}

impl<const WORDS: usize> Sorted<WORDS> {
    /// The next record.
    pub fn next_record(&mut self) -> Result<Option<[u64; WORDS]>> {
        loop {
            if let Some(record) = self.area.get(self.at) {
                self.at += 1;
                return Ok(Some(*record));
            }
            let Some(partition) = self.left.pop() else {
                return Ok(None);
            };
            self.load(partition)?;
        }
    }

    /// Appends all records to a file, calling `each` with every one of them.
    pub fn write(
        mut self,
        each: &mut dyn FnMut([u64; WORDS]) -> Result<()>,
    ) -> Result<RecordFile<WORDS>> {
        let mut file = RecordFile::new(&self.scratch);
        let mut piece = Vec::with_capacity(PIECE_BYTES / size_of::<[u64; WORDS]>());
        let _held = self.scratch.hold(PIECE_BYTES);
        while let Some(record) = self.next_record()? {
            if piece.len() == piece.capacity() {
                file.append(&piece)?;
                piece.clear();
            }
            piece.push(record);
            each(record)?;
        }
        if !piece.is_empty() {
            file.append(&piece)?;
        }
        Ok(file)
    }

    /// Makes a partition the area, or distributes it over others.
    fn load(&mut self, partition: Partition<WORDS>) -> Result<()> {
        self.area.clear();
        self.at = 0;
        let count = usize::try_from(partition.file.records).unwrap_or(usize::MAX);
        if count == 0 {
            return Ok(());
        }
        let Some(split) = Split::between(&partition.low, &partition.high) else {
            self.area.push(partition.low);
            return Ok(());
        };
        if count > self.area_max {
            // The buffer takes the place of the area.
            self.area = Vec::new();
            self.held.set(0);
            let area_bytes = self.area_max * size_of::<[u64; WORDS]>();
            let mut finer = SpillSet::new(&self.scratch, split, area_bytes);
            let mut reader = partition.file.read_all();
            while let Some(record) = reader.next_record()? {
                finer.push(record)?;
            }
            finer.sort_buffer();
            finer.spill()?;
            self.left.extend(finer.partitions.into_iter().rev());
            return Ok(());
        }
        if self.area.capacity() < count {
            // With room to spare, so that the next partition fits as well.
            self.area = Vec::new();
            self.area = Vec::with_capacity((count + count / 8).min(self.area_max));
            self.held.set(self.area.capacity() * size_of::<[u64; WORDS]>());
        }
        let mut reader = partition.file.read_all();
        while let Some(record) = reader.next_record()? {
            self.area.push(record);
        }
        self.area.sort_unstable();
        self.area.dedup();
        Ok(())
    }
}

fn records_in<const WORDS: usize>(bytes: usize) -> usize {
    (bytes / size_of::<[u64; WORDS]>()).max(RECORDS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn scratch() -> Scratch {
        Scratch::new(std::env::temp_dir())
    }

    fn all<const WORDS: usize>(mut sorted: Sorted<WORDS>) -> Vec<[u64; WORDS]> {
        std::iter::from_fn(|| sorted.next_record().unwrap()).collect()
    }

    /// Spread evenly, close together, or all the same.
    fn records() -> impl Strategy<Value = Vec<[u64; 2]>> {
        let word = prop_oneof![any::<u64>(), 0..40_u64, Just(7_u64), u64::MAX - 9..=u64::MAX];
        proptest::collection::vec([word.clone(), word], 0..1500)
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_order_and_once(
            records in records(),
            bits in 0..=64_u32,
            partitions in 1..70_usize,
            buffer in 0..2000_usize,
            area in 0..2000_usize,
        ) {
            let scratch = scratch();
            let mut set = SpillSet::new(&scratch, Split::evenly(bits, partitions), buffer);
            for record in &records {
                set.push(*record).unwrap();
            }
            prop_assert_eq!(set.is_empty(), records.is_empty());
            let expected: BTreeSet<[u64; 2]> = records.into_iter().collect();
            let mut visited = BTreeSet::new();
            set.visit(&mut |record| {
                visited.insert(record);
                Ok(())
            }).unwrap();
            prop_assert_eq!(&visited, &expected);
            let sorted = all(set.into_sorted(area).unwrap());
            prop_assert_eq!(sorted, expected.into_iter().collect::<Vec<_>>());
            let least = RECORDS_MIN * 16;
            let pieces = 2 * PIECE_BYTES;
            prop_assert!(scratch.peak_bytes() <= buffer.max(least) + area.max(least) + pieces);
        }
    }

    #[test]
    fn memory_stays_bounded_while_what_is_spilled_grows() {
        let scratch = scratch();
        let mut set = SpillSet::new(&scratch, Split::evenly(64, 4), 4096);
        let value = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in (0..200_000).chain(0..1000) {
            set.push([value(number)]).unwrap();
        }
        let mut expected: Vec<[u64; 1]> = (0..200_000).map(|number| [value(number)]).collect();
        expected.sort_unstable();
        let mut seen = Vec::new();
        let file = set.into_sorted(4096).unwrap().write(&mut |record| {
            seen.push(record);
            Ok(())
        });
        let file = file.unwrap();
        assert_eq!(file.records, 200_000);
        assert!(seen == expected);
        let mut reader = file.read(10, 12);
        assert_eq!(reader.next_record().unwrap(), expected.get(10).copied());
        assert_eq!(reader.next_record().unwrap(), expected.get(11).copied());
        assert_eq!(reader.next_record().unwrap(), None);
        assert!(scratch.peak_bytes() < 4 * PIECE_BYTES, "{}", scratch.peak_bytes());
        // Distributed at least twice more, and written in order.
        assert!(scratch.spilled_bytes() > 4 * 8 * 200_000, "{}", scratch.spilled_bytes());
        drop(reader);
        drop(file);
        assert_eq!(scratch.0.held_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_directory_that_is_missing_is_named_and_no_damage() {
        let scratch = Scratch::new(PathBuf::from("/nonexistent/scratch"));
        let mut set = SpillSet::<1>::new(&scratch, Split::evenly(64, 4), 0);
        let error = (0..100).find_map(|number| set.push([number << 50]).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("'/nonexistent/scratch'"), "{error}");
    }
}
