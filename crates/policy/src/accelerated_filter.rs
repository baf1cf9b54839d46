//! Accelerated segment filtering: tells duplicates from new chunks with few device reads.
//!
//! Algorithm: FAST'08, section 4.4, in the paper's order.
//!
//! 1. A chunk in the locality cache is a duplicate.
//! 2. Otherwise a chunk the summary vector does not know is new.
//! 3. Otherwise the index is asked. If it names the chunk's container, the chunk is a duplicate and
//!    the container's fingerprints enter the cache; if not, the chunk is new.
//!
//! S0's eager look-up (its algorithm 1) asks the summary vector before the cache: chunks that are
//! new then cost one question, and duplicates two. [`FilterOrder`] chooses. Both helpers can be
//! switched off, which gives the four configurations of Table 4 of FAST'08.
//!
//! What differs from the papers: the index keeps eight bytes of each fingerprint and may lag behind
//! collections, so its answers are hints. A hit counts only after the whole fingerprint was found
//! in the container's own metadata section; with the cache on, that is the read which fills the
//! cache anyway. A chunk whose hints all fail is new: it costs space, never data.
//!
//! Here one chunk is judged at once. The strategies of [`crate::lookup`] that let chunks wait use
//! the same steps, cache and counters.
//!
//! Invariant: `Duplicate` names an address where a container itself listed exactly this
//! fingerprint, either just now or when it entered the cache. The owner must call
//! [`AcceleratedFilter::forget_container`] for every container that may not be used any more.
//!
//! Chunks that the session itself has judged new are not known here until their container is
//! indexed; the writer looks into its open containers first (S1.24).

pub use crate::filter_counters::FilterCounters;

use crate::locality_cache::LocalityCache;
use crate::ports::{IndexPort, Instance};
use onefold_types::{ContainerId, Error, Fingerprint, Result};
use std::slice;
use std::sync::Arc;

/// Which helper a chunk meets first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum FilterOrder {
    /// Cache, then summary vector (FAST'08): best for duplicates.
    #[default]
    CacheFirst,
    /// Summary vector, then cache (S0): best for new chunks.
    FilterFirst,
}

/// Which of the two helpers are used, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterConfiguration {
    /// The summary vector.
    pub summary_vector: bool,
    /// The locality cache.
    pub locality_cache: bool,
    /// Which comes first, where a strategy leaves it open.
    pub order: FilterOrder,
}

impl FilterConfiguration {
    /// The four configurations in the order of Table 4: none, vector, cache, both.
    pub const ALL: [Self; 4] = [
        Self { summary_vector: false, locality_cache: false, order: FilterOrder::CacheFirst },
        Self { summary_vector: true, locality_cache: false, order: FilterOrder::CacheFirst },
        Self { summary_vector: false, locality_cache: true, order: FilterOrder::CacheFirst },
        Self { summary_vector: true, locality_cache: true, order: FilterOrder::CacheFirst },
    ];
}

impl Default for FilterConfiguration {
    fn default() -> Self {
        Self { summary_vector: true, locality_cache: true, order: FilterOrder::CacheFirst }
    }
}

/// The answer for one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The store holds the chunk here.
    Duplicate(Instance),
    /// The store does not hold the chunk as far as it can tell: write it.
    New,
    /// Equal to a chunk that came earlier in the same buffer and was judged new: write only that
    /// one. A chunk judged at once is never `Repeated`.
    Repeated,
}

/// Where a chunk was found on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) instance: Instance,
    /// Fingerprints of its container if they have just entered the cache; else zero.
    pub(crate) prefetched: u32,
}

/// The filter of one stream or of several that share a cache.
#[derive(Debug)]
pub struct AcceleratedFilter {
    configuration: FilterConfiguration,
    cache: LocalityCache,
    counters: FilterCounters,
    /// Room for answers of the index, kept between questions.
    located: Vec<Vec<ContainerId>>,
}

impl AcceleratedFilter {
    /// A filter whose cache takes at most `cache_capacity_bytes`.
    #[must_use]
    pub fn new(configuration: FilterConfiguration, cache_capacity_bytes: usize) -> Self {
        Self {
            configuration,
            cache: LocalityCache::new(cache_capacity_bytes),
            counters: FilterCounters::default(),
            located: Vec::new(),
        }
    }

    /// Judges one chunk at once, in the configured order.
    ///
    /// # Errors
    /// The port failed.
    pub fn judge(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
    ) -> Result<Verdict> {
        self.judge_in_order(self.configuration.order, port, fingerprint)
    }

    /// Judges one chunk at once, in this order.
    ///
    /// # Errors
    /// The port failed.
    pub fn judge_in_order(
        &mut self,
        order: FilterOrder,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
    ) -> Result<Verdict> {
        self.counters.lookups += 1;
        match order {
            FilterOrder::CacheFirst => {
                if let Some(instance) = self.look_in_cache(fingerprint) {
                    return Ok(Verdict::Duplicate(instance));
                }
                if !self.passes_summary(port, fingerprint)? {
                    return Ok(Verdict::New);
                }
            }
            FilterOrder::FilterFirst => {
                if !self.passes_summary(port, fingerprint)? {
                    return Ok(Verdict::New);
                }
                if let Some(instance) = self.look_in_cache(fingerprint) {
                    return Ok(Verdict::Duplicate(instance));
                }
            }
        }
        let found = self.look_on_device(port, fingerprint)?;
        Ok(found.map_or(Verdict::New, |found| Verdict::Duplicate(found.instance)))
    }

    /// What was done since the filter was made.
    #[must_use]
    pub fn counters(&self) -> &FilterCounters {
        &self.counters
    }

    /// Which helpers are used.
    #[must_use]
    pub fn configuration(&self) -> FilterConfiguration {
        self.configuration
    }

    /// Never again answers with this container from memory; for containers that were deleted,
    /// condemned or found damaged.
    pub fn forget_container(&mut self, container: ContainerId) {
        self.cache.remove(container);
    }

    /// Appends the instances of the chunk in the cache, newest container first.
    pub fn holders(&self, fingerprint: &Fingerprint, found: &mut Vec<Instance>) {
        if self.configuration.locality_cache {
            self.cache.holders(fingerprint, found);
        }
    }

    /// Lets a container into the cache that the owner has just written.
    pub fn note_container(&mut self, container: ContainerId, fingerprints: Arc<[Fingerprint]>) {
        if self.configuration.locality_cache && self.cache.insert(container, fingerprints) {
            self.counters.evictions = self.cache.evictions();
        }
    }

    pub(crate) fn counters_mut(&mut self) -> &mut FilterCounters {
        &mut self.counters
    }

    /// Whether the chunk may be known; always, without a summary vector.
    pub(crate) fn passes_summary(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
    ) -> Result<bool> {
        if !self.configuration.summary_vector {
            return Ok(true);
        }
        self.counters.summary_lookups += 1;
        let passes = port.may_contain(fingerprint)?;
        self.counters.summary_negatives += u64::from(!passes);
        Ok(passes)
    }

    /// Looks for a chunk that has just arrived in the cache.
    pub(crate) fn look_in_cache(&mut self, fingerprint: &Fingerprint) -> Option<Instance> {
        if !self.configuration.locality_cache {
            return None;
        }
        self.counters.cache_lookups += 1;
        let hit = self.cache.lookup(fingerprint);
        self.counters.cache_hits += u64::from(hit.is_some());
        hit
    }

    /// Looks for a chunk that waits in the cache, which has changed since it arrived.
    pub(crate) fn look_in_cache_again(&mut self, fingerprint: &Fingerprint) -> Option<Instance> {
        if !self.configuration.locality_cache {
            return None;
        }
        self.counters.post_lookups += 1;
        let hit = self.cache.lookup(fingerprint);
        self.counters.post_lookup_hits += u64::from(hit.is_some());
        hit
    }

    /// Whether the cache holds one of the containers.
    pub(crate) fn has_cached_any(&self, containers: &[ContainerId]) -> bool {
        self.configuration.locality_cache
            && containers.iter().any(|container| self.cache.contains_container(*container))
    }

    /// Asks the index about one chunk that was just looked for in the cache.
    pub(crate) fn look_on_device(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Found>> {
        let located = self.locate(port, slice::from_ref(fingerprint))?;
        let candidates = located.first().map(Vec::as_slice).unwrap_or_default();
        let found = self.first_holder(port, fingerprint, candidates);
        self.located = located;
        found
    }

    /// Asks the index: one call, one answer for each fingerprint. The list should come back in
    /// [`Self::recycle`].
    pub(crate) fn locate(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprints: &[Fingerprint],
    ) -> Result<Vec<Vec<ContainerId>>> {
        let mut located = std::mem::take(&mut self.located);
        located.clear();
        self.counters.index_lookups += fingerprints.len() as u64;
        port.locate(fingerprints, &mut located, &mut self.counters.index_page_reads)?;
        if located.len() != fingerprints.len() {
            return Err(Error::invalid(format!(
                "the index gave {} answers to {} questions",
                located.len(),
                fingerprints.len()
            )));
        }
        Ok(located)
    }

    /// Takes back what [`Self::locate`] answered, for its memory.
    pub(crate) fn recycle(&mut self, located: Vec<Vec<ContainerId>>) {
        self.located = located;
    }

    /// The first candidate that really holds the chunk, which is not in the cache.
    pub(crate) fn first_holder(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
        candidates: &[ContainerId],
    ) -> Result<Option<Found>> {
        if candidates.is_empty() && self.configuration.summary_vector {
            self.counters.summary_false_positives += 1;
        }
        for container in candidates {
            if let Some(found) = self.verify(port, fingerprint, *container)? {
                self.counters.index_hits += 1;
                return Ok(Some(found));
            }
        }
        self.counters.index_misses += 1;
        Ok(None)
    }

    /// Whether the container holds the chunk, as its own metadata section says; if so, the section
    /// enters the cache.
    fn verify(
        &mut self,
        port: &mut dyn IndexPort,
        fingerprint: &Fingerprint,
        container: ContainerId,
    ) -> Result<Option<Found>> {
        if self.configuration.locality_cache && self.cache.contains_container(container) {
            // All of the container is cached, and the chunk was not found there.
            self.counters.false_prefix_matches += 1;
            return Ok(None);
        }
        let (proofs, kept) = (port.proof_reads(), port.sections_kept());
        let section = port.container_fingerprints(container)?;
        self.counters.proof_reads += port.proof_reads() - proofs;
        self.counters.sections_kept += port.sections_kept() - kept;
        let Some(section) = section else {
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
        let instance = Instance { container, position };
        let count = section.len();
        if self.configuration.locality_cache && self.cache.insert(container, section) {
            self.counters.containers_prefetched += 1;
            self.counters.fingerprints_prefetched += count as u64;
            self.counters.evictions = self.cache.evictions();
            return Ok(Some(Found { instance, prefetched: u32::try_from(count).unwrap_or(0) }));
        }
        self.counters.verification_reads += 1;
        Ok(Some(Found { instance, prefetched: 0 }))
    }
}
