//! One segment of a stream: its duplicates wait until all of it was seen.
//!
//! Used by the policies that cut the stream into segments of a few containers (capping, FCRC,
//! history-aware). Counts are CNRCs (S2.5): occurrences of chunks in a container, repeated chunks
//! counted each time.
//!
//! Invariants: every duplicate of the segment gets one decision; of equal chunks that are
//! rewritten the first is stored and the others share it; a chunk is kept only in a container
//! among its own instances. Memory is that of a segment, or of `candidates_bytes_max`.

use crate::rewrite::instances::{Instances, choose};
use crate::rewrite::slots::{ChunkSlots, ContainerSlots};
use crate::rewrite::{Decided, Decision, DuplicateStatus, RewriteCounters, StreamChunk};

/// A duplicate that waits.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    chunk: u32,
    size_bytes: u32,
    instances: Instances,
}

/// What the chunks of a segment use of one old container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::rewrite) struct Use {
    /// The container's slot.
    pub(in crate::rewrite) container: u32,
    /// Occurrences of its chunks (CNRC).
    pub(in crate::rewrite) count: u32,
    /// Distinct chunks: so many are stored if the container is rewritten.
    pub(in crate::rewrite) distinct: u32,
}

/// The segment being filled.
#[derive(Debug, Default)]
pub(in crate::rewrite) struct Segment {
    waiting: Vec<Waiting>,
    chunks: ChunkSlots,
    containers: ContainerSlots,
    stream_bytes: u64,
    candidates_bytes: u64,
    /// The container chosen for each waiting chunk.
    chosen: Vec<u32>,
}

impl Segment {
    /// Adds a chunk of the stream; returns the slot of one that waits.
    pub(in crate::rewrite) fn push(
        &mut self,
        chunk: &StreamChunk<'_>,
        counters: &mut RewriteCounters,
    ) -> Option<u32> {
        self.stream_bytes += u64::from(chunk.size_bytes);
        let DuplicateStatus::Old(instances) = chunk.status else {
            return None;
        };
        let (slot, is_new) = self.chunks.intern(&chunk.fingerprint);
        if is_new {
            self.candidates_bytes += u64::from(chunk.size_bytes);
            let peak = &mut counters.candidates_bytes_peak;
            *peak = self.candidates_bytes.max(*peak);
        }
        let containers = &mut self.containers;
        let slots = instances.iter().map(|container| containers.intern(container));
        self.waiting.push(Waiting {
            ticket: chunk.ticket,
            chunk: slot,
            size_bytes: chunk.size_bytes,
            instances: Instances::collect(slots),
        });
        Some(slot)
    }

    pub(in crate::rewrite) fn stream_bytes(&self) -> u64 {
        self.stream_bytes
    }

    pub(in crate::rewrite) fn candidates_bytes(&self) -> u64 {
        self.candidates_bytes
    }

    pub(in crate::rewrite) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Chooses among instances and counts what is used, most used container first. Containers
    /// with equal counts stand in the order in which the stream met them.
    pub(in crate::rewrite) fn rank(&mut self) -> Vec<Use> {
        let instances: Vec<&Instances> =
            self.waiting.iter().map(|waiting| &waiting.instances).collect();
        self.chosen = choose(&instances, self.containers.count(), |_| 0);
        let mut uses: Vec<Use> = (0..self.containers.count() as u32)
            .map(|container| Use { container, ..Use::default() })
            .collect();
        let mut seen = vec![false; self.chunks.count()];
        for (waiting, container) in self.waiting.iter().zip(&self.chosen) {
            if let Some(used) = uses.get_mut(*container as usize) {
                used.count += 1;
                used.distinct += u32::from(!seen[waiting.chunk as usize]);
            }
            seen[waiting.chunk as usize] = true;
        }
        uses.retain(|used| used.count > 0);
        uses.sort_by(|a, b| b.count.cmp(&a.count).then(a.container.cmp(&b.container)));
        uses
    }

    /// Decides all that waits, after [`Self::rank`]: the chunks of these containers are rewritten.
    /// The next segment starts.
    pub(in crate::rewrite) fn decide(
        &mut self,
        rewritten: &[u32],
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) {
        let mut is_rewritten = vec![false; self.containers.count()];
        for slot in rewritten {
            if let Some(mark) = is_rewritten.get_mut(*slot as usize) {
                *mark = true;
            }
        }
        let is_kept = |slot: u32| is_rewritten.get(slot as usize) == Some(&false);
        let mut is_used = vec![false; self.containers.count()];
        for chosen in &self.chosen {
            if is_kept(*chosen)
                && let Some(used) = is_used.get_mut(*chosen as usize)
            {
                *used = true;
            }
        }
        let mut stored = vec![false; self.chunks.count()];
        for (waiting, chosen) in self.waiting.iter().zip(&self.chosen) {
            // A container that is read anyway serves a chunk whose own container is not.
            let slot = if is_kept(*chosen) {
                Some(*chosen)
            } else {
                waiting.instances.iter().find(|slot| is_used.get(*slot as usize) == Some(&true))
            };
            let decision = match slot.and_then(|slot| self.containers.id(slot)) {
                Some(container) => Decision::Keep(container),
                None if std::mem::replace(&mut stored[waiting.chunk as usize], true) => {
                    Decision::Share
                }
                None => Decision::Rewrite,
            };
            counters.note(&decision, waiting.size_bytes);
            decided.push(Decided { ticket: waiting.ticket, decision });
        }
        counters.segments += 1;
        counters.containers_referred += is_used.iter().filter(|used| **used).count() as u64;
        self.clear();
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.chosen.clear();
        self.chunks.clear();
        self.containers.clear();
        self.stream_bytes = 0;
        self.candidates_bytes = 0;
    }
}
