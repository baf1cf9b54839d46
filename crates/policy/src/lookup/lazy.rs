//! Lazy look-up: chunks wait until many of them can be located with one access of the device.
//!
//! Algorithm: S0, algorithm 2 (after Ma et al., "Lazy Exact Deduplication").
//!
//! 1. A chunk the summary vector does not know is new.
//! 2. Pre-lookup: a chunk in the cache is a duplicate.
//! 3. Any other chunk waits in a bucket: a range of prefixes that is one access of the index
//!    ([`super::division`]). A bucket that reaches its threshold is located with one question. What
//!    the index does not know is new;
//! 4. what it knows is a duplicate, and its container enters the cache. Post-lookup: the waiting
//!    chunks of the same locality ring are looked for in the cache and leave without an access.
//!
//! A ring takes so many stream neighbours that passed the summary vector; each has its rank, the
//! position at which it arrived in the ring. Chunks the summary vector refused have a rank too and
//! are in no ring, and chunks found by the pre-lookup have a place in both, so that ranks tell how
//! far apart two chunks of the stream are (S0.6, S0.7). Post-lookups use that: if the chunk of
//! rank `r` is the `p`-th of the `n` in its container, the container's chunks would have the ranks
//! from `r - p` to `r - p + n - 1`, and only what waits there is looked for, once the container has
//! been read. S0 looks for the whole ring after every hit, which is to be had as well
//! ([`PostLookup`]): it finds what stands elsewhere in the ring, and costs up to a ring of accesses
//! of memory a hit.
//!
//! What S0 leaves open: a second chunk like one that waits joins it and gets its verdict (S0.9);
//! when the buffer is full, the fullest bucket is located as it is. A waiting chunk whose container
//! has entered the cache since it arrived is found there before a container is read for it. S0's
//! index does not grow while chunks wait; where it does, and where buckets do not fill, there are
//! other buckets from then on, into which all that waits is put anew. To wait for a moment at which
//! nothing waits would be to wait for the end of the stream.
//!
//! With a second look, which S0 does not have, the chunks of a bucket are looked for in the cache
//! once more *before* the bucket is located. Chunks that the post-lookups of another ring could not
//! reach then cost one access of memory, where S0 spends one of the device; without it, lazy
//! look-up reads more than eager if rings are short or the index has more buckets than chunks wait.
//!
//! Invariants: a chunk is in one bucket from when it starts to wait until it has its verdict, the
//! one that its prefix falls into; a bucket is located with at most one question, which is one
//! access of each run of the index as it is then; post-lookups never touch the device.

use super::Judge;
use super::buckets::Buckets;
use super::division::Division;
use super::parameters::{LazyParameters, PostLookup};
use super::waiting::{Entry, NO_SLOT, Waiting};
use crate::accelerated_filter::{Found, Verdict};
use onefold_types::{Fingerprint, Result};
use std::ops::RangeInclusive;

/// The lazy look-ups of one stream.
#[derive(Debug)]
pub(super) struct Lazy {
    parameters: LazyParameters,
    second_look: bool,
    waiting: Waiting,
    buckets: Buckets,
    division: Division,
    ring: Ring,
    /// The bucket being resolved, and its fingerprints.
    members: Vec<u32>,
    questions: Vec<Fingerprint>,
}

/// The ring being filled.
#[derive(Debug, Default)]
struct Ring {
    number: u32,
    /// The rank of the next chunk.
    rank: u32,
    /// Chunks in the ring.
    members: usize,
}

impl Ring {
    /// The ranks that are left run out only if almost nothing passes the summary vector.
    fn next_rank(&mut self) -> u32 {
        if self.rank == u32::MAX {
            self.close();
        }
        self.rank += 1;
        self.rank - 1
    }

    fn close(&mut self) {
        *self = Self { number: self.number.wrapping_add(1), ..Self::default() };
    }
}

impl Lazy {
    pub(super) fn new(parameters: &LazyParameters, second_look: bool) -> Self {
        Self {
            parameters: *parameters,
            second_look,
            waiting: Waiting::new(),
            buckets: Buckets::new(),
            division: Division::default(),
            ring: Ring::default(),
            members: Vec::new(),
            questions: Vec::new(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Different fingerprints that wait.
    pub(super) fn distinct_waiting(&self) -> usize {
        self.waiting.distinct()
    }

    pub(super) fn describe(&self) -> String {
        let LazyParameters { ring_length, bucket_threshold, buffer_max, post_lookup } =
            self.parameters;
        let again = match post_lookup {
            PostLookup::WithinReach => "",
            PostLookup::WholeRing => ", all of them looked for again after every hit",
        };
        let second = if self.second_look { ", with a second look into the cache" } else { "" };
        format!(
            "lazily{second}: a chunk that is neither in the cache nor surely new waits until \
             {bucket_threshold} of its bucket can be located together, or {buffer_max} wait in \
             all; rings take {ring_length}{again}"
        )
    }

    pub(super) fn push(
        &mut self,
        judge: &mut Judge<'_>,
        ticket: u64,
        fingerprint: &Fingerprint,
    ) -> Result<()> {
        judge.filter.counters_mut().lookups += 1;
        let rank = self.ring.next_rank();
        if !judge.filter.passes_summary(judge.port, fingerprint)? {
            judge.resolved.push((ticket, Verdict::New));
            return Ok(());
        }
        let ring = self.ring.number;
        self.ring.members += 1;
        if self.ring.members >= self.parameters.ring_length {
            self.ring.close();
        }
        if let Some(instance) = judge.filter.look_in_cache(fingerprint) {
            judge.resolved.push((ticket, Verdict::Duplicate(instance)));
            return Ok(());
        }
        if let Some(slot) = self.waiting.find(fingerprint) {
            judge.filter.counters_mut().repeats += 1;
            self.waiting.join(slot, ticket);
        } else {
            judge.filter.counters_mut().fingerprints_buffered += 1;
            self.divide(judge);
            let slot = self.waiting.push(fingerprint, ticket, ring, rank);
            let count = self.buckets.insert(self.division.bucket_of(fingerprint), slot);
            if count >= self.parameters.bucket_threshold {
                return self.resolve_bucket_of(slot, slot, judge);
            }
        }
        while self.waiting.len() >= self.parameters.buffer_max {
            let Some(slot) = self.buckets.member_of_fullest() else {
                break;
            };
            judge.filter.counters_mut().forced_resolves += 1;
            self.resolve_bucket_of(slot, NO_SLOT, judge)?;
        }
        Ok(())
    }

    /// Resolves at least all chunks with tickets below `ticket`, oldest bucket first.
    pub(super) fn drain_before(&mut self, ticket: u64, judge: &mut Judge<'_>) -> Result<()> {
        while self.waiting.oldest().is_some_and(|oldest| oldest.ticket < ticket) {
            judge.filter.counters_mut().forced_resolves += 1;
            let slot = self.waiting.oldest_slot();
            self.resolve_bucket_of(slot, NO_SLOT, judge)?;
        }
        Ok(())
    }

    /// Puts all that waits into the buckets that there are to be now, if they are others.
    fn divide(&mut self, judge: &Judge<'_>) {
        if !self.division.fit(judge.port.bucket_counts()) {
            return;
        }
        self.buckets = Buckets::new();
        let mut slot = self.waiting.oldest_slot();
        while let Some(entry) = self.waiting.get(slot) {
            self.buckets.insert(self.division.bucket_of(&entry.fingerprint), slot);
            slot = entry.newer;
        }
    }

    /// Step 3: one question for all chunks of the bucket in which `slot` is. The chunk in `fresh`
    /// has just been looked for in the cache.
    fn resolve_bucket_of(&mut self, slot: u32, fresh: u32, judge: &mut Judge<'_>) -> Result<()> {
        self.divide(judge);
        let mut members = std::mem::take(&mut self.members);
        self.buckets.take_bucket_of(slot, &mut members);
        self.division.note_located(members.len(), self.parameters.bucket_threshold);
        if self.second_look {
            members
                .retain(|member| *member == fresh || !self.leaves_on_second_look(*member, judge));
        }
        let located = match members.is_empty() {
            true => Ok(()),
            false => self.locate_all(&members, fresh, judge),
        };
        if located.is_err() {
            self.return_to_buckets(&members);
        }
        self.members = members;
        located
    }

    /// Puts chunks of which no verdict was found back where they waited: whoever goes on asks
    /// again.
    fn return_to_buckets(&mut self, members: &[u32]) {
        for member in members {
            let entry = self.waiting.get(*member).filter(|entry| entry.is_waiting);
            if let Some(fingerprint) = entry.map(|entry| entry.fingerprint) {
                self.buckets.insert(self.division.bucket_of(&fingerprint), *member);
            }
        }
    }

    fn leaves_on_second_look(&mut self, slot: u32, judge: &mut Judge<'_>) -> bool {
        let Some(entry) = self.waiting.get(slot) else {
            return true;
        };
        let hit = judge.filter.look_in_cache_again(&entry.fingerprint);
        if let Some(instance) = hit {
            self.waiting.resolve(slot, Verdict::Duplicate(instance), judge.resolved);
        }
        hit.is_some()
    }

    fn locate_all(&mut self, members: &[u32], fresh: u32, judge: &mut Judge<'_>) -> Result<()> {
        self.questions.clear();
        let entries = members.iter().filter_map(|member| self.waiting.get(*member));
        self.questions.extend(entries.map(|entry| entry.fingerprint));
        let counters = judge.filter.counters_mut();
        counters.buckets_resolved += 1;
        counters.fingerprints_batched += members.len() as u64;
        let located = judge.filter.locate(judge.port, &self.questions)?;
        // A container that is cached already costs nothing, but a chunk is not looked for in the
        // cache twice while that stays the same.
        let mut changed = false;
        for (member, candidates) in members.iter().zip(&located) {
            // A chunk of this bucket may have left through the post-lookup of another.
            let entry = self.waiting.get(*member).copied().filter(|entry| entry.is_waiting);
            let Some(entry) = entry else {
                continue;
            };
            let known_absent = !changed && (self.second_look || *member == fresh);
            let is_cached = !known_absent && judge.filter.has_cached_any(candidates);
            let cached = is_cached.then(|| judge.filter.look_in_cache_again(&entry.fingerprint));
            if let Some(instance) = cached.flatten() {
                if self.parameters.post_lookup == PostLookup::WholeRing {
                    self.look_around(&entry, &(0..=u32::MAX), judge);
                }
                self.waiting.resolve(*member, Verdict::Duplicate(instance), judge.resolved);
                continue;
            }
            match judge.filter.first_holder(judge.port, &entry.fingerprint, candidates)? {
                None => self.waiting.resolve(*member, Verdict::New, judge.resolved),
                Some(found) => {
                    changed |= found.prefetched > 0;
                    if let Some(ranks) = self.reach(&entry, &found) {
                        self.look_around(&entry, &ranks, judge);
                    }
                    let verdict = Verdict::Duplicate(found.instance);
                    self.waiting.resolve(*member, verdict, judge.resolved);
                }
            }
        }
        judge.filter.recycle(located);
        Ok(())
    }

    /// The ranks of the ring that are looked for after this hit, if any.
    fn reach(&self, hit: &Entry, found: &Found) -> Option<RangeInclusive<u32>> {
        if self.parameters.post_lookup == PostLookup::WholeRing {
            return Some(0..=u32::MAX);
        }
        let before = found.instance.position;
        let after = found.prefetched.saturating_sub(before.saturating_add(1));
        let ranks = hit.rank.saturating_sub(before)..=hit.rank.saturating_add(after);
        (found.prefetched > 0).then_some(ranks)
    }

    /// Step 4, post-lookup: what waits in the ring of a hit, within these ranks.
    fn look_around(&mut self, hit: &Entry, ranks: &RangeInclusive<u32>, judge: &mut Judge<'_>) {
        let reached = |waiting: &Waiting, slot| {
            let entry = waiting.get(slot)?;
            (entry.ring == hit.ring && ranks.contains(&entry.rank)).then_some(*entry)
        };
        let mut slot = hit.newer;
        while let Some(entry) = reached(&self.waiting, slot) {
            self.look_again(slot, &entry.fingerprint, judge);
            slot = entry.newer;
        }
        slot = hit.older;
        while let Some(entry) = reached(&self.waiting, slot) {
            self.look_again(slot, &entry.fingerprint, judge);
            slot = entry.older;
        }
    }

    fn look_again(&mut self, slot: u32, fingerprint: &Fingerprint, judge: &mut Judge<'_>) {
        if let Some(instance) = judge.filter.look_in_cache_again(fingerprint) {
            self.buckets.remove(slot);
            self.waiting.resolve(slot, Verdict::Duplicate(instance), judge.resolved);
        }
    }
}
