//! Look-ups: from fingerprints to the containers that may hold them.
//!
//! All questions of a batch are put in the order of the index. Each run answers what it can from
//! memory: that it knows nothing, or, if it has signatures, the containers. The pages that are left
//! to be read rise, and what lies between the first and the last of them comes with one request if
//! that is not too long, pieces of the run included: a request costs more than its bytes.
//!
//! So a bucket, a range of prefixes, is one access of each run (S0.5), if there are enough buckets.
//! How many that takes follows from the largest run, in which all ranges are longest: prefixes are
//! uniform, and half of what a request may have leaves room for pages that begin before a range or
//! end behind it and for pieces, which lie unevenly. Were prefixes not uniform, a bucket would be
//! more requests, and its answers the same.
//!
//! A run with a page that cannot be read is passed over from then on: the index is derived, and
//! what the run knew is found again in the containers.

use super::fingerprint_index::{FingerprintIndex, Opened};
use super::run::Run;
use crate::repository::Repository;
use onefold_format::index_run::{Entry, PAGE_STORED_BYTES, is_hook};
use onefold_policy::BucketCounts;
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result, bug, limits};
use std::ops::Range;

/// What one request for pages may have. A hard disk moves that in a third of what an access takes;
/// a flash disk takes as long as for seven accesses, and a bucket of sixteen saves fifteen.
pub const REQUEST_MAX_BYTES: usize = 512 * limits::KIB;
/// What a bucket may have in the largest run, on average.
const BUCKET_MAX_BYTES: u64 = REQUEST_MAX_BYTES as u64 / 2;

/// Which instances of a chunk are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Instances {
    /// All of them.
    All,
    /// Some, the newest among them: enough to know that the chunk is there.
    Newest,
}

/// What all questions of a batch have in common.
struct Ask<'a> {
    repository: &'a Repository,
    opened: &'a Opened,
    instances: Instances,
}

/// Pages that may hold a prefix, and the number of the question.
struct Wanted {
    pages: Range<usize>,
    prefix: u64,
    question: usize,
}

impl FingerprintIndex {
    /// The containers that may hold a prefix, in no order, by the runs that can be read. Others
    /// stay in use: for a check, which has its own way to what they cover.
    pub fn locate_where_readable(
        &self,
        repository: &Repository,
        prefix: u64,
    ) -> Result<Vec<ContainerId>> {
        let mut found = [Vec::new()];
        let opened = self.opened();
        let ask = Ask { repository, opened: &opened, instances: Instances::All };
        for run in opened.runs() {
            match self.ask_run(&ask, run, &[(prefix, 0)], &mut found, &mut 0) {
                Ok(()) => {}
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        let [found] = found;
        Ok(found)
    }

    /// Appends for each fingerprint the containers that may hold it, newest first: all, or at least
    /// the newest. `reads` grows by one for each request for pages.
    pub(super) fn locate_instances(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        instances: Instances,
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        let before = found.len();
        let sampled = self.is_sampled();
        let mut questions: Vec<(u64, usize)> = fingerprints
            .iter()
            .map(Fingerprint::prefix)
            .zip(0..)
            .filter(|(prefix, _)| !sampled || is_hook(*prefix))
            .collect();
        questions.sort_unstable();
        let outcome = self.with_refresh(repository, |opened| {
            found.truncate(before);
            found.resize_with(before + fingerprints.len(), Vec::new);
            let found =
                found.get_mut(before..).ok_or_else(|| bug!("there is no room to answer"))?;
            let ask = Ask { repository, opened, instances };
            for run in opened.runs() {
                match self.ask_run(&ask, run, &questions, found, reads) {
                    Err(error) if error.kind() == ErrorKind::Damaged => {
                        self.reject(run.id, &error);
                    }
                    other => other?,
                }
            }
            Ok(())
        });
        if outcome.is_err() {
            found.truncate(before);
        }
        for containers in found.iter_mut().skip(before).filter(|list| list.len() > 1) {
            containers.sort_unstable_by(|a, b| b.cmp(a));
            containers.dedup();
        }
        outcome
    }

    fn ask_run(
        &self,
        ask: &Ask<'_>,
        run: &Run,
        questions: &[(u64, usize)],
        found: &mut [Vec<ContainerId>],
        reads: &mut u64,
    ) -> Result<()> {
        let wanted = self.ask_memory(ask, run, questions, found)?;
        read_wanted(ask.repository, run, &wanted, found, reads)
    }

    /// Into how many buckets the index may be divided, powers of two: with the fewest one is a
    /// request for each run, with the most it has as many pages as are set, and less than twice as
    /// many.
    #[must_use]
    pub fn bucket_counts(&self) -> BucketCounts {
        let opened = self.opened();
        let Some(largest) = opened.runs().last() else {
            return BucketCounts::ONE;
        };
        let power = |count: u64| count.clamp(1, 1 << 31) as u32;
        let fewest = power(largest.pages_bytes().div_ceil(BUCKET_MAX_BYTES).next_power_of_two());
        let most = largest.table.fences.len() as u64 / u64::from(self.bucket_pages());
        BucketCounts { fewest, most: power(1 << most.max(1).ilog2()).max(fewest) }
    }

    /// Answers from memory what can be, and notes the pages to be read for the rest.
    fn ask_memory(
        &self,
        ask: &Ask<'_>,
        run: &Run,
        questions: &[(u64, usize)],
        found: &mut [Vec<ContainerId>],
    ) -> Result<Vec<Wanted>> {
        let (mut wanted, mut ordinals) = (Vec::new(), Vec::new());
        for &(prefix, question) in questions {
            for piece in run.pieces_for(prefix) {
                if !self.piece_may_contain(ask.repository, ask.opened, run, piece, prefix)? {
                    continue;
                }
                let containers = &mut found[question];
                let has_more = run.instances(piece, prefix, &mut ordinals, containers);
                if has_more.is_none_or(|more| more && ask.instances == Instances::All) {
                    wanted.push(Wanted { pages: run.pages_for(piece, prefix), prefix, question });
                }
            }
        }
        Ok(wanted)
    }
}

/// Reads the wanted pages, which rise, with as few requests as their length allows.
fn read_wanted(
    repository: &Repository,
    run: &Run,
    wanted: &[Wanted],
    found: &mut [Vec<ContainerId>],
    reads: &mut u64,
) -> Result<()> {
    let mut reader =
        PageReader { run, sealed: Vec::new(), read: 0..0, page: None, entries: Vec::new() };
    let mut rest = wanted;
    while let Some(first) = rest.first() {
        let start = first.pages.start;
        let mut end = first.pages.end;
        let mut count = 1;
        for other in &rest[1..] {
            let longer = end.max(other.pages.end);
            if run.span_bytes(&(start..longer)) > REQUEST_MAX_BYTES {
                break;
            }
            (end, count) = (longer, count + 1);
        }
        let (group, others) = rest.split_at(count);
        *reads += 1;
        reader.read(repository, start..end)?;
        for one in group {
            for page in one.pages.clone() {
                reader.find(repository, (page, one.prefix), &mut found[one.question])?;
            }
        }
        rest = others;
    }
    Ok(())
}

/// Pages read with one request, of which those that are wanted are opened, in rising order.
struct PageReader<'a> {
    run: &'a Run,
    /// What was read, and of which pages.
    sealed: Vec<u8>,
    read: Range<usize>,
    page: Option<usize>,
    entries: Vec<Entry>,
}

impl PageReader<'_> {
    fn read(&mut self, repository: &Repository, pages: Range<usize>) -> Result<()> {
        self.page = None;
        self.read = pages.clone();
        self.run.peek_pages(repository, pages, &mut self.sealed)
    }

    /// Opens a page that was read.
    fn open(&mut self, page: usize) -> Result<()> {
        let end = self.run.span_bytes(&(self.read.start..page + 1));
        let start = end.checked_sub(PAGE_STORED_BYTES);
        let sealed = start.and_then(|start| self.sealed.get(start..end));
        let unread = || bug!("a page is asked for that was not read", page, self.read.start);
        let mut sealed = sealed.ok_or_else(unread)?.to_vec();
        self.entries.clear();
        self.page = None;
        self.run.open_page(page, &mut sealed, &mut self.entries)?;
        self.page = Some(page);
        Ok(())
    }

    fn find(
        &mut self,
        repository: &Repository,
        (page, prefix): (usize, u64),
        found: &mut Vec<ContainerId>,
    ) -> Result<()> {
        if self.page != Some(page) {
            match self.open(page) {
                // It may have been kept from a time when it was damaged: all that was read with it.
                Err(error)
                    if error.kind() == ErrorKind::Damaged
                        && repository.store().distrust(self.run.key()) =>
                {
                    self.read(repository, self.read.clone())?;
                    self.open(page)?;
                }
                opened => opened?,
            }
        }
        let start = self.entries.partition_point(|entry| entry.prefix < prefix);
        let instances = self.entries.iter().skip(start);
        for entry in instances.take_while(|entry| entry.prefix == prefix) {
            found.push(self.run.container(*entry)?);
        }
        Ok(())
    }
}
