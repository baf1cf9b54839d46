//! The window's recipe cache, and what is known of the chunks and containers in it.
//!
//! FAST'19, section 4 (S2.17 to S2.19). An entry is a duplicate of the window: a *candidate*, whose
//! decision is open and whose bytes the owner holds, or *kept*, or *moved*, which means that it
//! refers to a copy in the active container. Unique chunks need no entry here: the owner's recipe
//! has them, and no decision depends on them. The window moves by blocks of a container's bytes.
//!
//! Invariants: a container's count (CNRC_lbw) is its kept entries and its candidates; a chunk's
//! bytes count for the candidate cache while one of its entries is a candidate; slots are given
//! back when no entry of the window refers to them. Memory is that of the window.

use super::instances::{Instances, choose};
use super::slots::{ChunkSlots, ContainerSlots};
use super::{Candidate, Decided, Decision, RewriteCounters, StreamChunk, UnitId};
use std::collections::VecDeque;

/// A count above every real one: containers that are read anyway are chosen first.
const READ_ANYWAY: u32 = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Candidate,
    Kept,
    Moved,
}

/// A duplicate of the window.
#[derive(Debug)]
struct Entry {
    ticket: u64,
    /// Its number among all chunks of the stream.
    ordinal: u64,
    chunk: u32,
    size_bytes: u32,
    container: u32,
    instances: Instances,
    state: State,
    /// Its part of the container's `sole_bytes`.
    sole_bytes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Entries of the window.
    entries: u32,
    /// Candidates among them.
    candidates: u32,
    size_bytes: u32,
    /// Stored again while in the window.
    is_moved: bool,
}

#[derive(Debug, Default)]
struct Container {
    /// Entries that name the container as an instance.
    named: u32,
    /// Entries that were decided to refer to it.
    kept: u32,
    /// Positions of its candidates, ascending.
    candidates: VecDeque<u64>,
    /// Of the block being filled, chunks that lie nowhere else and were not stored again.
    pending: u32,
    /// Bytes of the window's chunks that lay nowhere else; each counts once.
    sole_bytes: u64,
}

impl Container {
    fn count(&self) -> u32 {
        self.kept.saturating_add(self.candidates.len() as u32)
    }

    fn sure_use(&self) -> SureUse {
        SureUse { count: self.pending, bytes: self.sole_bytes }
    }
}

/// How much a container of which nothing was kept will be used at least when the block being
/// filled is closed. What lies elsewhere as well may be referred to there, and candidates of
/// earlier blocks may share a copy that was stored again meanwhile: neither is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SureUse {
    /// Chunks.
    pub(super) count: u32,
    /// Bytes; those of earlier blocks are in it, where nothing is stored again meanwhile.
    pub(super) bytes: u64,
}

/// What storing chunks again takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    pub(super) chunks: u64,
    pub(super) bytes: u64,
}

/// The recipe cache.
#[derive(Debug, Default)]
pub(super) struct RecipeCache {
    entries: VecDeque<Entry>,
    /// The position of the first entry; positions rise for ever.
    first_position: u64,
    /// Entries and chunks of each full block, oldest first.
    blocks: VecDeque<Block>,
    /// The block being filled, whose entries have no container yet.
    filling: Block,
    chunk_slots: ChunkSlots,
    container_slots: ContainerSlots,
    chunks: Vec<Chunk>,
    containers: Vec<Container>,
    candidates: u64,
    candidates_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    entries: usize,
    chunks: u64,
    stream_bytes: u64,
}

impl RecipeCache {
    /// A chunk of the stream that is no old duplicate.
    pub(super) fn pass(&mut self, size_bytes: u32) {
        self.filling.chunks += 1;
        self.filling.stream_bytes += u64::from(size_bytes);
    }

    /// A duplicate enters the block being filled. `keeps` says whether a container that is used so
    /// much will keep its chunks whatever else comes.
    pub(super) fn push(
        &mut self,
        chunk: &StreamChunk<'_>,
        instances: &[UnitId],
        keeps: impl FnOnce(SureUse) -> bool,
        counters: &mut RewriteCounters,
    ) -> Candidate {
        let (slot, _) = self.chunk_slots.intern(&chunk.fingerprint);
        self.chunks.resize(self.chunk_slots.count(), Chunk::default());
        let container_slots = &mut self.container_slots;
        let instances =
            Instances::collect(instances.iter().map(|container| container_slots.intern(container)));
        self.containers.resize_with(self.container_slots.count(), Container::default);
        for container in instances.iter() {
            self.containers[container as usize].named += 1;
        }
        let known = &mut self.chunks[slot as usize];
        known.entries += 1;
        known.candidates += 1;
        if known.candidates == 1 {
            known.size_bytes = chunk.size_bytes;
            self.candidates_bytes += u64::from(chunk.size_bytes);
            let peak = &mut counters.candidates_bytes_peak;
            *peak = self.candidates_bytes.max(*peak);
        }
        self.candidates += 1;
        let is_sole = instances.is_single() && !known.is_moved;
        let sole_bytes = if is_sole && known.candidates == 1 { chunk.size_bytes } else { 0 };
        let container = &mut self.containers[instances.first() as usize];
        container.pending += u32::from(is_sole);
        container.sole_bytes += u64::from(sole_bytes);
        let is_kept = is_sole && (container.kept > 0 || keeps(container.sure_use()));
        let is_open = !is_kept && !known.is_moved;
        self.entries.push_back(Entry {
            ticket: chunk.ticket,
            ordinal: counters.chunks,
            chunk: slot,
            size_bytes: chunk.size_bytes,
            container: instances.first(),
            instances,
            state: State::Candidate,
            sole_bytes,
        });
        self.filling.entries += 1;
        self.pass(chunk.size_bytes);
        Candidate { slot, is_open }
    }

    /// Steps 1 and 2 for the block that was filled: every duplicate gets its container, and is kept
    /// if the window has chunks of that container which were kept. Returns the containers that
    /// have new candidates.
    pub(super) fn close_block(
        &mut self,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) -> Vec<u32> {
        let block = std::mem::take(&mut self.filling);
        self.blocks.push_back(block);
        let start = self.entries.len() - block.entries;
        let instances: Vec<&Instances> =
            self.entries.range(start..).map(|entry| &entry.instances).collect();
        let chosen = choose(&instances, self.containers.len(), |slot| {
            let container = &self.containers[slot as usize];
            if container.kept > 0 { READ_ANYWAY } else { container.count() }
        });
        let mut touched = Vec::new();
        for (number, container) in chosen.into_iter().enumerate() {
            let index = start + number;
            let first = self.entries[index].instances.first();
            self.containers[first as usize].pending = 0;
            self.entries[index].container = container;
            let is_moved = self.chunks[self.entries[index].chunk as usize].is_moved;
            let state = &mut self.containers[container as usize];
            if is_moved {
                self.settle(index, Decision::Share, decided, counters);
            } else if state.kept > 0 {
                self.keep(index, decided, counters);
            } else {
                state.candidates.push_back(self.first_position + index as u64);
                touched.push(container);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Decides all candidates of a container: they stay where they are.
    pub(super) fn keep_all(
        &mut self,
        container: u32,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) {
        for position in std::mem::take(&mut self.containers[container as usize].candidates) {
            let index = (position - self.first_position) as usize;
            if self.chunks[self.entries[index].chunk as usize].is_moved {
                self.settle(index, Decision::Share, decided, counters);
            } else {
                self.keep(index, decided, counters);
            }
        }
    }

    /// Decides all candidates of a container: they are stored again.
    pub(super) fn rewrite_all(
        &mut self,
        container: u32,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) {
        for position in std::mem::take(&mut self.containers[container as usize].candidates) {
            let index = (position - self.first_position) as usize;
            let is_moved = &mut self.chunks[self.entries[index].chunk as usize].is_moved;
            let decision =
                if std::mem::replace(is_moved, true) { Decision::Share } else { Decision::Rewrite };
            self.settle(index, decision, decided, counters);
        }
    }

    /// Keeps the candidates of the most used containers until those that are left take no more than
    /// `bytes_max`, and a little less, so that it need not be done for every chunk.
    pub(super) fn keep_most_used(
        &mut self,
        bytes_max: u64,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) {
        let enough = bytes_max - bytes_max / 16;
        let mut ranked: Vec<(u32, u32)> = (0..self.container_count())
            .filter(|container| self.candidates_of(*container) > 0)
            .map(|container| (self.count(container), container))
            .collect();
        ranked.sort_unstable();
        while self.candidates_bytes > enough
            && let Some((_, container)) = ranked.pop()
        {
            self.keep_all(container, decided, counters);
        }
    }

    fn keep(&mut self, index: usize, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        let slot = self.entries[index].container;
        let Some(id) = self.container_slots.id(slot) else {
            return;
        };
        let container = &mut self.containers[slot as usize];
        counters.containers_referred += u64::from(container.kept == 0);
        container.kept += 1;
        self.settle(index, Decision::Keep(id), decided, counters);
    }

    /// The decision is final: the owner may let go of the bytes.
    fn settle(
        &mut self,
        index: usize,
        decision: Decision,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) {
        let entry = &mut self.entries[index];
        entry.state =
            if matches!(decision, Decision::Keep(_)) { State::Kept } else { State::Moved };
        let chunk = &mut self.chunks[entry.chunk as usize];
        chunk.candidates -= 1;
        if chunk.candidates == 0 {
            self.candidates_bytes -= u64::from(chunk.size_bytes);
        }
        self.candidates -= 1;
        counters.note(&decision, entry.size_bytes);
        decided.push(Decided { ticket: entry.ticket, decision });
    }

    /// The container of an entry of the oldest block, if the entry is still a candidate.
    pub(super) fn candidate_of_oldest(&self, index: usize) -> Option<u32> {
        let entry = self.entries.get(index)?;
        (entry.state == State::Candidate).then_some(entry.container)
    }

    /// Entries of the oldest block.
    pub(super) fn oldest_entries(&self) -> usize {
        self.blocks.front().map_or(0, |block| block.entries)
    }

    /// The oldest block, all of whose entries are decided, leaves the window.
    pub(super) fn evict_block(&mut self) {
        let Some(block) = self.blocks.pop_front() else {
            return;
        };
        for _ in 0..block.entries {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.first_position += 1;
            if entry.state == State::Kept {
                self.containers[entry.container as usize].kept -= 1;
            }
            let first = &mut self.containers[entry.instances.first() as usize];
            first.sole_bytes -= u64::from(entry.sole_bytes);
            let chunk = &mut self.chunks[entry.chunk as usize];
            chunk.entries -= 1;
            if chunk.entries == 0 {
                *chunk = Chunk::default();
                self.chunk_slots.release(entry.chunk);
            }
            for slot in entry.instances.iter() {
                let container = &mut self.containers[slot as usize];
                container.named -= 1;
                if container.named == 0 {
                    self.container_slots.release(slot);
                }
            }
        }
    }

    /// What it takes to rewrite a container's candidates: distinct chunks that were not stored
    /// again already.
    pub(super) fn cost(&self, container: u32) -> Cost {
        let candidates = &self.containers[container as usize].candidates;
        let mut chunks: Vec<u32> = candidates
            .iter()
            .map(|position| self.entries[(position - self.first_position) as usize].chunk)
            .filter(|chunk| !self.chunks[*chunk as usize].is_moved)
            .collect();
        chunks.sort_unstable();
        chunks.dedup();
        let size_bytes = |chunk: &u32| u64::from(self.chunks[*chunk as usize].size_bytes);
        Cost { chunks: chunks.len() as u64, bytes: chunks.iter().map(size_bytes).sum() }
    }

    /// How often the window refers to a container (CNRC_lbw).
    pub(super) fn count(&self, container: u32) -> u32 {
        self.containers.get(container as usize).map_or(0, Container::count)
    }

    /// Candidates of a container.
    pub(super) fn candidates_of(&self, container: u32) -> usize {
        self.containers.get(container as usize).map_or(0, |container| container.candidates.len())
    }

    /// Container slots there are, used or not.
    pub(super) fn container_count(&self) -> u32 {
        self.containers.len() as u32
    }

    pub(super) fn container_id(&self, container: u32) -> Option<UnitId> {
        self.container_slots.id(container)
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn filling_bytes(&self) -> u64 {
        self.filling.stream_bytes
    }

    pub(super) fn candidates(&self) -> u64 {
        self.candidates
    }

    pub(super) fn candidates_bytes(&self) -> u64 {
        self.candidates_bytes
    }

    /// Chunks of the full blocks.
    pub(super) fn chunks(&self) -> u64 {
        self.blocks.iter().map(|block| block.chunks).sum()
    }

    /// Referenced chunk closeness (S2.26): how far a container's chunks are from its first one in
    /// the window, on average, as a share of the window. Each chunk counts where it is first.
    pub(super) fn closeness(&self) -> f64 {
        let mut first: Vec<Option<u64>> = vec![None; self.containers.len()];
        let mut is_seen = vec![false; self.chunks.len()];
        let (mut distance, mut pairs) = (0u64, 0u64);
        for entry in self.entries.iter().filter(|entry| entry.state != State::Moved) {
            if std::mem::replace(&mut is_seen[entry.chunk as usize], true) {
                continue;
            }
            match first[entry.container as usize] {
                None => first[entry.container as usize] = Some(entry.ordinal),
                Some(first) => {
                    distance += entry.ordinal - first;
                    pairs += 1;
                }
            }
        }
        distance as f64 / (pairs.max(1) * self.chunks().max(1)) as f64
    }
}
