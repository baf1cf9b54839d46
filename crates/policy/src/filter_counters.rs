//! What look-ups did and what that cost, counted step by step.
//!
//! One set of counters serves every strategy, so that their costs compare: filter, cache, buffer,
//! device. All terms of inequality (8) of S0 are among them ([`crate::cost_model`]).
//!
//! Invariant: a counter never falls. The difference of two readings is what happened in between.

use std::ops::{Add, AddAssign, Sub};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the look-ups did, and what it cost.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct FilterCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl FilterCounters {
            /// Every counter with its name, in the order of declaration.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }

        impl FilterCounters {
            /// Adds what happened between two readings; cheap enough for every look-up.
            pub(crate) fn add_difference(&mut self, later: &Self, earlier: &Self) {
                $(self.$name =
                    self.$name.wrapping_add(later.$name).wrapping_sub(earlier.$name);)*
            }
        }

        impl AddAssign for FilterCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }

        impl Sub for FilterCounters {
            type Output = Self;

            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Chunks looked up.
    lookups,
    /// Questions to the summary vector.
    summary_lookups,
    /// Chunks the summary vector knew to be new.
    summary_negatives,
    /// Chunks the summary vector let pass although the index knows nothing of them.
    summary_false_positives,
    /// Chunks looked for in the locality cache when they arrived (the pre-lookups of S0).
    cache_lookups,
    /// Duplicates found by that.
    cache_hits,
    /// Chunks looked for in the locality cache again, after a prefetch (F_cache^post of S0).
    post_lookups,
    /// Duplicates found by that.
    post_lookup_hits,
    /// Chunks that had to wait in a buffer for their verdict.
    fingerprints_buffered,
    /// Chunks that came while one of their stream waited, whose owner holds their data until then.
    chunks_held,
    /// Chunks equal to one that waited already.
    repeats,
    /// Chunks for which the index was asked.
    index_lookups,
    /// Index lookups that led to a verified duplicate.
    index_hits,
    /// Index lookups that did not: the chunk is new, or all its hints failed.
    index_misses,
    /// Accesses of the device for the index: one for each request, however many pages it reads.
    index_page_reads,
    /// Containers whose metadata section entered the cache.
    containers_prefetched,
    /// Fingerprints of those containers.
    fingerprints_prefetched,
    /// Containers asked for their fingerprints only to check a hint: the cache was off or too
    /// small, or the hint failed.
    verification_reads,
    /// Accesses of the device that showed, of containers asked for their fingerprints, that what
    /// their differences are made of is there.
    proof_reads,
    /// Containers asked for their fingerprints without an access of the device: the session had
    /// read and kept their section, or knew that they may not be used.
    sections_kept,
    /// Hints that named a container which is gone or may not be used.
    stale_index_hits,
    /// Hints that named a container which does not hold the chunk (false signatures in S4).
    false_prefix_matches,
    /// Containers dropped from the cache to make room.
    evictions,
    /// Buckets of waiting chunks that were located together.
    buckets_resolved,
    /// Chunks in those buckets.
    fingerprints_batched,
    /// Those of the buckets that had not filled up, but had to make room or to end.
    forced_resolves,
    /// Changes of strategy or of its parameters.
    strategy_switches,
    /// Those of them that were made to find out what the other strategy costs.
    probes,
}

impl FilterCounters {
    /// Device reads as the paper's Table 4 counts them: index reads and locality prefetches.
    #[must_use]
    pub fn disk_reads(&self) -> u64 {
        self.index_page_reads.saturating_add(self.containers_prefetched)
    }

    /// All device reads, with those that only check a hint (the paper's index stores whole
    /// fingerprints and needs none of them) and those that differences ask for; a section that was
    /// at hand is none.
    #[must_use]
    pub fn device_reads(&self) -> u64 {
        let sections_and_pages = self.disk_reads().saturating_add(self.verification_reads);
        sections_and_pages.saturating_sub(self.sections_kept).saturating_add(self.proof_reads)
    }

    /// Accesses of memory that miss the processor's caches: one for each question to the summary
    /// vector, for each look-up in the cache, for each chunk put into a buffer, and for each
    /// fingerprint that enters the cache.
    #[must_use]
    pub fn memory_accesses(&self) -> u64 {
        self.summary_lookups
            .saturating_add(self.cache_lookups)
            .saturating_add(self.post_lookups)
            .saturating_add(self.fingerprints_buffered)
            .saturating_add(self.fingerprints_prefetched)
    }

    /// Chunks found to be duplicates of stored ones or of waiting ones (F_Dup of S0).
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.cache_hits
            .saturating_add(self.post_lookup_hits)
            .saturating_add(self.index_hits)
            .saturating_add(self.repeats)
    }
}

impl Add for FilterCounters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}
