//! Sampled look-up: only hooks are located, so the index in memory needs only hooks.
//!
//! Algorithm: after Sparse Indexing (Lillibridge et al., FAST'09). A chunk in the cache is a
//! duplicate. One of a few fingerprints is a hook by its bits, and those are in memory; a hook that
//! may be known is located, and the container that holds it enters the cache. Any other chunk waits
//! for a hook near it to bring its container in: after `segment_length` further chunks it is looked
//! for in the cache once more, and is new if it is not there.
//!
//! What differs: the paper cuts the stream into segments and decides each at its end. Here the
//! segment slides: every chunk waits for as many others, so that a container which begins just
//! before the end of a segment loses nothing. The memory is the same.
//!
//! Invariant: what is called a duplicate was found in a container. The only error is that a known
//! chunk is called new.

use super::Judge;
use super::parameters::SampledParameters;
use super::waiting::Waiting;
use crate::accelerated_filter::Verdict;
use onefold_types::{Fingerprint, Result};

/// The sampled look-ups of one stream.
#[derive(Debug)]
pub(super) struct Sampled {
    segment_length: u64,
    waiting: Waiting,
    /// Chunks handed in.
    pushed: u64,
}

impl Sampled {
    pub(super) fn new(parameters: &SampledParameters) -> Self {
        Self {
            segment_length: parameters.segment_length as u64,
            waiting: Waiting::new(),
            pushed: 0,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "by samples: only hooks are located, and any other chunk waits for {} more to see \
             whether a hook brings its container into the cache",
            self.segment_length
        )
    }

    pub(super) fn push(
        &mut self,
        judge: &mut Judge<'_>,
        ticket: u64,
        fingerprint: &Fingerprint,
    ) -> Result<()> {
        judge.filter.counters_mut().lookups += 1;
        let arrival = self.pushed;
        self.pushed += 1;
        while self.waiting.oldest().is_some_and(|oldest| self.has_waited(oldest.arrival(), arrival))
        {
            self.settle_oldest(judge);
        }
        if let Some(instance) = judge.filter.look_in_cache(fingerprint) {
            judge.resolved.push((ticket, Verdict::Duplicate(instance)));
        } else if let Some(slot) = self.waiting.find(fingerprint) {
            judge.filter.counters_mut().repeats += 1;
            self.waiting.join(slot, ticket);
        } else if judge.filter.passes_summary(judge.port, fingerprint)? {
            let found = judge.filter.look_on_device(judge.port, fingerprint)?;
            let verdict = found.map_or(Verdict::New, |found| Verdict::Duplicate(found.instance));
            judge.resolved.push((ticket, verdict));
        } else {
            judge.filter.counters_mut().fingerprints_buffered += 1;
            self.waiting.push(fingerprint, ticket, (arrival >> 32) as u32, arrival as u32);
        }
        Ok(())
    }

    /// Resolves all chunks with tickets below `ticket`.
    pub(super) fn drain_before(&mut self, ticket: u64, judge: &mut Judge<'_>) {
        while self.waiting.oldest().is_some_and(|oldest| oldest.ticket < ticket) {
            self.settle_oldest(judge);
        }
    }

    fn has_waited(&self, since: u64, now: u64) -> bool {
        now - since >= self.segment_length
    }

    fn settle_oldest(&mut self, judge: &mut Judge<'_>) {
        let Some(oldest) = self.waiting.oldest() else {
            return;
        };
        let found = judge.filter.look_in_cache_again(&oldest.fingerprint);
        let verdict = found.map_or(Verdict::New, Verdict::Duplicate);
        self.waiting.resolve(self.waiting.oldest_slot(), verdict, judge.resolved);
    }
}
