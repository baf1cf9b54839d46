//! A run, compared with the containers that it covers.
//!
//! A run that covers a container holds an entry for each of its chunks and no other. A holder of
//! the password can seal a run that says something else: that it covers everything, and names
//! nothing. So before a chunk is called lost each run is compared with the containers' own sections
//! (docs/PROTOCOL.md, section 11).
//!
//! # Algorithm
//! Pages are read one after the other, and entries are added up by container. The sum must be that
//! of the container's section ([`PrefixSum`]). Pages must be in order and fit their fences, and the
//! pieces must know every entry: otherwise a look-up would miss what is there.
//!
//! Memory: a sum for each container of one run, and a section.

use super::fingerprint_index::FingerprintIndex;
use super::run::Run;
use crate::container::reader;
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::container::MetadataSection;
use onefold_format::index_run::{self, Entry};
use onefold_store::foresee;
use onefold_types::{ContainerId, Error, ErrorKind, Result, RunId};

/// Tails of containers that are announced at once.
const TAILS_AHEAD: usize = 64;

/// An order-independent sum over distinct chunk prefixes: 128 bits, so that two different sets of
/// stored entries do not agree by accident.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrefixSum {
    sums: [u64; 2],
    count: u32,
}

impl PrefixSum {
    /// Adds a prefix that was not added before.
    pub fn add(&mut self, prefix: u64) {
        self.sums[0] = self.sums[0].wrapping_add(mix(prefix ^ 0x6a09_e667_f3bc_c908));
        self.sums[1] = self.sums[1].wrapping_add(mix(prefix ^ 0xbb67_ae85_84ca_a73b));
        self.count = self.count.wrapping_add(1);
    }

    /// The sum over the chunks of a section.
    #[must_use]
    pub fn of(section: &MetadataSection) -> Self {
        let chunks = section.chunks.iter();
        let mut prefixes: Vec<u64> = chunks.map(|chunk| chunk.fingerprint.prefix()).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let mut sum = Self::default();
        prefixes.into_iter().for_each(|prefix| sum.add(prefix));
        sum
    }
}

/// The finalizer of SplitMix64: every bit of the input reaches every bit of the output.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Sums up a run's entries by container, in the order of its table.
///
/// Errors: `Damaged` if a look-up could miss an entry.
pub fn sum_up(repository: &Repository, run: &Run, job: &Job) -> Result<Vec<PrefixSum>> {
    let mut sums = vec![PrefixSum::default(); run.table.containers.len()];
    let mut entries = Vec::new();
    let mut last: Option<Entry> = None;
    for page in 0..run.table.fences.len() {
        if page % 256 == 0 {
            job.interrupt.check()?;
        }
        entries.clear();
        load_pieces(repository, run, page)?;
        run.read_page(repository, page, &mut entries)?;
        let end = last.map(|entry| entry.prefix);
        let fence = entries.first().map(|first| index_run::fence(end, first.prefix));
        if fence != Some(run.table.fences[page]) {
            return Err(wrong(run.id, "a page does not begin where its fence says"));
        }
        for entry in &entries {
            if last >= Some(*entry) {
                return Err(wrong(run.id, "its entries are not in order"));
            }
            last = Some(*entry);
            if !run.knows(page, *entry) {
                return Err(wrong(run.id, "what stands in memory for it does not know an entry"));
            }
            match sums.get_mut(entry.container as usize) {
                Some(sum) => sum.add(entry.prefix),
                None => return Err(wrong(run.id, "an entry is stray")),
            }
        }
    }
    Ok(sums)
}

/// Loads the pieces that stand for a page, in place of those before.
fn load_pieces(repository: &Repository, run: &Run, page: usize) -> Result<()> {
    let piece = page / run.table.pages_per_piece as usize;
    if page == run.table.pages_of(piece).start {
        while run.unload_any() > 0 {}
        run.load(repository, run.piece_for(piece, false))?;
        run.load(repository, run.piece_for(piece, true))?;
    }
    Ok(())
}

/// That a run cannot be relied upon.
#[must_use]
pub fn wrong(id: RunId, problem: &str) -> Error {
    Error::damaged(format!("index run {id}: {problem}"))
}

/// Compares the runs in use, but those of `verified`, with the containers. Returns those that are
/// wrong, and why.
///
/// Errors: those of the device.
pub fn find_wrong(
    repository: &Repository,
    index: &FingerprintIndex,
    verified: &[RunId],
    job: &Job,
) -> Result<Vec<(RunId, Error)>> {
    let mut found = Vec::new();
    for run in index.runs().iter().filter(|run| !verified.contains(&run.id)) {
        match compare(repository, run.id, job) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::Damaged => found.push((run.id, error)),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Fails as `Damaged` if the run says of a container what its section does not.
fn compare(repository: &Repository, id: RunId, job: &Job) -> Result<()> {
    let run = Run::open(repository, id)?;
    let sums = sum_up(repository, &run, job)?;
    for (containers, sums) in run.table.containers.chunks(TAILS_AHEAD).zip(sums.chunks(TAILS_AHEAD))
    {
        job.interrupt.check()?;
        let tails = containers.iter().filter_map(|id| reader::asked_tail(*id).ok());
        let _foreseen = foresee(repository.store(), tails.collect());
        for (container, sum) in containers.iter().zip(sums) {
            match reader::read_section(repository, *container) {
                Ok(section) if PrefixSum::of(&section) == *sum => {}
                Ok(_) => return Err(differs(id, *container, 0)),
                // It is gone, or nothing of it can be read by anybody.
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// That entries are not those of a container, and of so many more.
#[must_use]
pub fn differs(id: RunId, container: ContainerId, more: usize) -> Error {
    wrong(
        id,
        &format!(
            "its entries for container {container} and {more} more are not those of the \
                  container"
        ),
    )
}
