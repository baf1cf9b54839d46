//! LBW: what is judged is a container's use in a window that slides along the stream.
//!
//! Algorithm: FAST'19, sections 4 and 5 (S2.17 to S2.30). The window covers the last few
//! containers' bytes of the stream. When the newest of them is full, it moves:
//!
//! 1. A duplicate of the newest container is kept if the window has kept chunks of the same old
//!    container: the restore's cache still holds it (the cache-effective range is the window).
//!    Otherwise it is a candidate.
//! 2. Of several instances the one with most chunks in the window is taken ([`super::instances`]).
//! 3. Old containers that the window refers to more often than the threshold keep their candidates.
//! 4. What is still a candidate in the oldest container of the window is rewritten, and with it all
//!    candidates of the same old container: the first one left is its leading chunk, the one that
//!    would trigger the read. Then the oldest container leaves.
//! 5. Once a cycle, after as many moves as the window has containers, the threshold is computed
//!    anew from both [`bounds`](super::bounds) and from closeness (algorithm 1).
//!
//! So each duplicate is judged with a window of past when it comes and with a window of future when
//! it leaves. At the end of the stream the window is drained by the same rules.
//!
//! The bounds of a cycle hold for what the window covers at its end: that is decided in the next.
//!
//! What the publication leaves open: before the window is full for the first time there is no
//! threshold, and what was seen until then gives the first one. The counts of a cycle are those of
//! the window at its end, and those of the containers that were rewritten in it. If the candidates'
//! bytes exceed their limit, the candidates of the most used container are kept (S2.18). If the
//! loss has reached its limit, a container below the threshold is kept as well. Without a limit for
//! reads, algorithm 1 ends at its first line.
//!
//! Invariants: those of [`super`]; no more chunks are rewritten than the loss allows at any time.

use crate::rewrite::bounds::Bounds;
use crate::rewrite::parameters::RewriteParameters;
use crate::rewrite::recipe_cache::{RecipeCache, SureUse};
use crate::rewrite::{Candidate, Decided, DuplicateStatus, RewriteCounters, StreamChunk};

/// The look-back window of one stream.
#[derive(Debug)]
pub(in crate::rewrite) struct LookBackWindow {
    container_bytes: u64,
    window_containers: usize,
    candidates_bytes_max: u64,
    bounds: Bounds,
    threshold: Threshold,
    cache: RecipeCache,
    /// Counts of the containers that were rewritten in this cycle.
    rewritten_counts: Vec<u32>,
    moves_of_cycle: usize,
}

#[derive(Clone, Copy, Debug)]
enum Threshold {
    /// Until the window was full once, nothing is kept for being used often enough.
    Unknown,
    Adapting(f64),
    Fixed(f64),
}

impl Threshold {
    fn keeps(self, count: u32) -> bool {
        match self {
            Self::Unknown => false,
            Self::Adapting(threshold) | Self::Fixed(threshold) => f64::from(count) > threshold,
        }
    }
}

impl LookBackWindow {
    pub(in crate::rewrite) fn new(parameters: &RewriteParameters) -> Self {
        let fixed = parameters.threshold_fixed.map(|count| Threshold::Fixed(f64::from(count)));
        Self {
            container_bytes: parameters.container_bytes,
            window_containers: parameters.window_containers,
            candidates_bytes_max: parameters.candidates_bytes_max,
            bounds: Bounds::new(parameters),
            threshold: fixed.unwrap_or(Threshold::Unknown),
            cache: RecipeCache::default(),
            rewritten_counts: Vec::new(),
            moves_of_cycle: 0,
        }
    }

    pub(in crate::rewrite) fn push(
        &mut self,
        chunk: &StreamChunk<'_>,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) -> Option<Candidate> {
        let candidate = match chunk.status {
            DuplicateStatus::Old(instances) => {
                // The threshold stays as it is until the block is closed.
                let keeps = |used: SureUse| self.threshold.keeps(used.count);
                Some(self.cache.push(chunk, instances, keeps, counters))
            }
            DuplicateStatus::Unique | DuplicateStatus::Fresh(()) => {
                self.cache.pass(chunk.size_bytes);
                None
            }
        };
        if self.cache.filling_bytes() >= self.container_bytes {
            self.advance(decided, counters);
        }
        if self.cache.candidates_bytes() > self.candidates_bytes_max {
            self.make_room(decided, counters);
        }
        candidate
    }

    pub(in crate::rewrite) fn waiting(&self) -> u64 {
        self.cache.candidates()
    }

    /// Drains the window (S2.30).
    pub(in crate::rewrite) fn finish(
        &mut self,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) {
        if self.cache.filling_bytes() > 0 {
            self.close_block(decided, counters);
        }
        while self.cache.blocks() > 0 {
            self.evict_oldest(decided, counters);
        }
    }

    /// The window moves by a container.
    fn advance(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        self.close_block(decided, counters);
        while self.cache.blocks() >= self.window_containers {
            self.evict_oldest(decided, counters);
        }
    }

    /// Steps 1 to 3.
    fn close_block(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        for container in self.cache.close_block(decided, counters) {
            if self.threshold.keeps(self.cache.count(container)) {
                self.cache.keep_all(container, decided, counters);
            }
        }
    }

    /// Steps 4 and 5.
    fn evict_oldest(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        if matches!(self.threshold, Threshold::Unknown) {
            self.end_cycle(decided, counters);
        }
        for index in 0..self.cache.oldest_entries() {
            if let Some(container) = self.cache.candidate_of_oldest(index) {
                self.judge(container, decided, counters);
            }
        }
        self.moves_of_cycle += 1;
        counters.segments += 1;
        if self.moves_of_cycle >= self.window_containers {
            self.end_cycle(decided, counters);
        }
        self.cache.evict_block();
    }

    /// Step 4 for one container, whose leading chunk is about to leave.
    fn judge(
        &mut self,
        container: u32,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) {
        let count = self.cache.count(container);
        if self.threshold.keeps(count) {
            self.cache.keep_all(container, decided, counters);
        } else if self.cache.cost(container).chunks > self.bounds.budget.credit(counters) {
            counters.kept_by_limit += self.cache.candidates_of(container) as u64;
            self.cache.keep_all(container, decided, counters);
        } else {
            self.rewritten_counts.push(count);
            self.cache.rewrite_all(container, decided, counters);
        }
    }

    /// Step 5: algorithm 1.
    fn end_cycle(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        self.moves_of_cycle = 0;
        let mut counts = std::mem::take(&mut self.rewritten_counts);
        let slots = 0..self.cache.container_count();
        counts.extend(slots.map(|slot| self.cache.count(slot)).filter(|count| *count > 0));
        counts.sort_unstable();
        let closeness = self.cache.closeness();
        let previous = match self.threshold {
            Threshold::Unknown => 0.0,
            Threshold::Adapting(threshold) | Threshold::Fixed(threshold) => threshold,
        };
        let pair = self.bounds.pair(&counts, counters);
        let threshold = match self.bounds.between(pair, previous) {
            Err(threshold) => threshold,
            // Chunks that lie closer together than before make reads cheaper.
            Ok(start) if closeness < counters.closeness => (start - 1.0).max(0.0),
            Ok(start) => start + 1.0,
        };
        counters.rewrite_bound = pair.rewrite;
        counters.read_bound = pair.read.unwrap_or(0.0);
        counters.closeness = closeness;
        match self.threshold {
            Threshold::Fixed(fixed) => counters.set_threshold(fixed),
            Threshold::Unknown | Threshold::Adapting(_) => {
                counters.set_threshold(threshold);
                self.threshold = Threshold::Adapting(threshold);
                self.keep_above(decided, counters);
            }
        }
    }

    /// Step 3 for the whole window, because the threshold has changed.
    fn keep_above(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        for container in 0..self.cache.container_count() {
            if self.cache.candidates_of(container) > 0
                && self.threshold.keeps(self.cache.count(container))
            {
                self.cache.keep_all(container, decided, counters);
            }
        }
    }

    /// The candidates' bytes exceed their limit (S2.18).
    fn make_room(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        let before = self.cache.candidates();
        self.cache.keep_most_used(self.candidates_bytes_max, decided, counters);
        if self.cache.candidates_bytes() > self.candidates_bytes_max {
            self.close_block(decided, counters);
            self.cache.keep_most_used(self.candidates_bytes_max, decided, counters);
        }
        counters.forced += before - self.cache.candidates();
    }
}
