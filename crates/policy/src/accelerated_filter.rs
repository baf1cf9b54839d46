//! Accelerated segment filtering: tells duplicates from new chunks with few device reads.
//!
//! Algorithm: FAST'08, section 4.4, in the paper's order.
//!
//! 1. A chunk in the locality cache is a duplicate.
//! 2. Otherwise a chunk the summary vector does not know is new.
//! 3. Otherwise the index is asked. If it names the chunk's container, the chunk is a duplicate and
//!    the container's fingerprints enter the cache; if not, the chunk is new.
//!
//! Both helpers can be switched off, which gives the four configurations of the paper's Table 4.
//!
//! What differs from the paper: the index keeps eight bytes of each fingerprint and may lag behind
//! collections, so its answers are hints. A hit counts only after the whole fingerprint was found
//! in the container's own metadata section; with the cache on, that is the read which fills the
//! cache anyway. A chunk whose hints all fail is new: it costs space, never data.
//!
//! Invariant: `Duplicate` names a place where a container itself listed exactly this fingerprint,
//! either just now or when it entered the cache. The owner must call
//! [`AcceleratedFilter::forget_container`] for every container that may not be used any more.
//!
//! Chunks that the session itself has judged new are not known here until their container is
//! indexed; the writer looks into its open containers first.

use crate::locality_cache::LocalityCache;
use crate::ports::{IndexPort, Instance};
use onefold_types::{ContainerId, Error, Fingerprint, Result};
use std::ops::{Add, AddAssign};
use std::slice;

/// Which of the two helpers are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterConfiguration {
    /// Step 2: the summary vector.
    pub summary_vector: bool,
    /// Step 1: the locality cache.
    pub locality_cache: bool,
}

impl FilterConfiguration {
    /// The four configurations in the order of Table 4: none, vector, cache, both.
    pub const ALL: [Self; 4] = [
        Self { summary_vector: false, locality_cache: false },
        Self { summary_vector: true, locality_cache: false },
        Self { summary_vector: false, locality_cache: true },
        Self { summary_vector: true, locality_cache: true },
    ];
}

impl Default for FilterConfiguration {
    fn default() -> Self {
        Self { summary_vector: true, locality_cache: true }
    }
}

/// The answer for one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The store holds the chunk here.
    Duplicate(Instance),
    /// The store does not hold the chunk as far as it can tell: write it.
    New,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the filter did, and what it cost.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct FilterCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for FilterCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }
    };
}

counters! {
    /// Chunks judged.
    lookups,
    /// Duplicates found in the locality cache (step 1).
    cache_hits,
    /// Chunks the summary vector knew to be new (step 2).
    summary_negatives,
    /// Chunks the summary vector let pass although the index knows nothing of them.
    summary_false_positives,
    /// Chunks for which the index was asked (step 3).
    index_lookups,
    /// Index lookups that led to a verified duplicate.
    index_hits,
    /// Index lookups that did not: the chunk is new, or all its hints failed.
    index_misses,
    /// Index pages read from the device.
    index_page_reads,
    /// Containers whose metadata section was read and entered the cache.
    containers_prefetched,
    /// Fingerprints of those containers.
    fingerprints_prefetched,
    /// Containers asked for their fingerprints only to check a hint: the cache was off or too
    /// small, or the hint failed.
    verification_reads,
    /// Hints that named a container which is gone or may not be used.
    stale_index_hits,
    /// Hints that named a container which does not hold the chunk.
    false_prefix_matches,
    /// Containers dropped from the cache to make room.
    evictions,
}

impl FilterCounters {
    /// Device reads as the paper's Table 4 counts them: index reads and locality prefetches.
    #[must_use]
    pub fn disk_reads(&self) -> u64 {
        self.index_page_reads.saturating_add(self.containers_prefetched)
    }

    /// All device reads, with those that only check a hint: the paper's index stores whole
    /// fingerprints and needs none of them.
    #[must_use]
    pub fn device_reads(&self) -> u64 {
        self.disk_reads().saturating_add(self.verification_reads)
    }
}

impl Add for FilterCounters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// The filter of one stream or of several that share a cache.
#[derive(Debug)]
pub struct AcceleratedFilter {
    configuration: FilterConfiguration,
    cache: LocalityCache,
    counters: FilterCounters,
}

impl AcceleratedFilter {
    /// A filter whose cache takes at most `cache_capacity_bytes`.
    #[must_use]
    pub fn new(configuration: FilterConfiguration, cache_capacity_bytes: usize) -> Self {
        Self {
            configuration,
            cache: LocalityCache::new(cache_capacity_bytes),
            counters: FilterCounters::default(),
        }
    }

    /// Judges one chunk.
    ///
    /// # Errors
    /// The port failed.
    pub fn judge(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
    ) -> Result<Verdict> {
        match self.judge_in_memory(port, fingerprint) {
            Some(verdict) => Ok(verdict),
            None => {
                let found = self.locate(port, slice::from_ref(fingerprint))?;
                let candidates = found.first().map(Vec::as_slice).unwrap_or_default();
                self.judge_candidates(port, fingerprint, candidates)
            }
        }
    }

    /// Judges chunks in stream order and appends one verdict for each.
    ///
    /// With the cache on, the index is asked chunk by chunk: each hit brings in the neighbours that
    /// the next chunks are likely to be, so asking ahead would read pages for nothing. With the
    /// cache off, the index is asked once for the whole batch.
    ///
    /// # Errors
    /// The port failed; `verdicts` is then as it was.
    pub fn judge_batch(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprints: &[Fingerprint],
        verdicts: &mut Vec<Verdict>,
    ) -> Result<()> {
        let before = verdicts.len();
        let outcome = if self.configuration.locality_cache {
            fingerprints.iter().try_for_each(|fingerprint| {
                verdicts.push(self.judge(port, fingerprint)?);
                Ok(())
            })
        } else {
            self.judge_batch_uncached(port, fingerprints, verdicts)
        };
        if outcome.is_err() {
            verdicts.truncate(before);
        }
        outcome
    }

    /// What was done since the filter was made.
    #[must_use]
    pub fn counters(&self) -> &FilterCounters {
        &self.counters
    }

    /// Memory taken by the cache, in bytes.
    #[must_use]
    pub fn cache_bytes_used(&self) -> usize {
        self.cache.bytes_used()
    }

    /// Never again answers with this container from memory; for containers that were deleted,
    /// condemned or found damaged.
    pub fn forget_container(&mut self, container: ContainerId) {
        self.cache.remove(container);
    }

    fn judge_batch_uncached(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprints: &[Fingerprint],
        verdicts: &mut Vec<Verdict>,
    ) -> Result<()> {
        let judged: Vec<_> =
            fingerprints.iter().map(|one| self.judge_in_memory(port, one)).collect();
        let open = fingerprints.iter().zip(&judged).filter(|(_, verdict)| verdict.is_none());
        let open: Vec<Fingerprint> = open.map(|(fingerprint, _)| *fingerprint).collect();
        let mut found = Vec::new();
        if !open.is_empty() {
            found = self.locate(port, &open)?;
        }
        let mut candidates = found.iter();
        for (fingerprint, verdict) in fingerprints.iter().zip(judged) {
            verdicts.push(match verdict {
                Some(verdict) => verdict,
                None => {
                    let candidates = candidates.next().map(Vec::as_slice).unwrap_or_default();
                    self.judge_candidates(port, fingerprint, candidates)?
                }
            });
        }
        Ok(())
    }

    /// Steps 1 and 2.
    fn judge_in_memory(&mut self, port: &dyn IndexPort, one: &Fingerprint) -> Option<Verdict> {
        self.counters.lookups += 1;
        if self.configuration.locality_cache
            && let Some(instance) = self.cache.lookup(one)
        {
            self.counters.cache_hits += 1;
            return Some(Verdict::Duplicate(instance));
        }
        if self.configuration.summary_vector && !port.may_contain(one) {
            self.counters.summary_negatives += 1;
            return Some(Verdict::New);
        }
        None
    }

    /// Step 3, the question to the index.
    fn locate(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprints: &[Fingerprint],
    ) -> Result<Vec<Vec<ContainerId>>> {
        let mut found = Vec::with_capacity(fingerprints.len());
        self.counters.index_lookups += fingerprints.len() as u64;
        port.locate(fingerprints, &mut found, &mut self.counters.index_page_reads)?;
        if found.len() != fingerprints.len() {
            return Err(Error::invalid(format!(
                "the index gave {} answers to {} questions",
                found.len(),
                fingerprints.len()
            )));
        }
        Ok(found)
    }

    /// Step 3, the answer: the first candidate that really holds the chunk.
    fn judge_candidates(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
        candidates: &[ContainerId],
    ) -> Result<Verdict> {
        if candidates.is_empty() && self.configuration.summary_vector {
            self.counters.summary_false_positives += 1;
        }
        for container in candidates {
            if let Some(instance) = self.verify(port, fingerprint, *container)? {
                self.counters.index_hits += 1;
                return Ok(Verdict::Duplicate(instance));
            }
        }
        self.counters.index_misses += 1;
        Ok(Verdict::New)
    }

    /// Whether the container holds the chunk, as its own metadata section says; if so, the section
    /// enters the cache.
    fn verify(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
        container: ContainerId,
    ) -> Result<Option<Instance>> {
        if self.configuration.locality_cache && self.cache.contains_container(container) {
            // All of the container is cached, and step 1 did not find the chunk there.
            self.counters.false_prefix_matches += 1;
            return Ok(None);
        }
        let Some(section) = port.container_fingerprints(container)? else {
            self.counters.verification_reads += 1;
            self.counters.stale_index_hits += 1;
            return Ok(None);
        };
        let position = section.iter().position(|other| other == fingerprint);
        let Some(position) = position.and_then(|position| u32::try_from(position).ok()) else {
            self.counters.verification_reads += 1;
            self.counters.false_prefix_matches += 1;
            return Ok(None);
        };
        let count = section.len() as u64;
        if self.configuration.locality_cache && self.cache.insert(container, section) {
            self.counters.containers_prefetched += 1;
            self.counters.fingerprints_prefetched += count;
            self.counters.evictions = self.cache.evictions();
        } else {
            self.counters.verification_reads += 1;
        }
        Ok(Some(Instance { container, position }))
    }
}
