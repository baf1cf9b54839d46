//! How much goes into a round: what fits into memory, and what fits on the device.
//!
//! # Algorithm
//! Containers come in the order of their live chunks, fewest first; where they are packed anew the
//! newest come first behind the dead, because the old is made of the new. As long as the device has
//! room for all copies, memory alone bounds a round. When room is short, what is wholly dead goes
//! first, in a round that copies nothing; then each round copies no more than fits beside the
//! records of its epoch. A round frees more than it copies, so there is more room for the next one.
//!
//! How much fits is an estimate, and not every device tells. If copying fails for lack of room all
//! the same, the next round is half as large, down to one container. What the failed round has
//! stored was perhaps found and relied on by others meanwhile, so it is not simply deleted, but
//! condemned in a round of its own, together with what is dead: all that is live in it lies in
//! containers that this round does not condemn, so nothing is copied.
//!
//! # Invariants
//! Every round condemns something, halves the next one, or is the last, so a collection ends.

use super::{Collector, Marked, stored_bytes};
use crate::collection::LeftForLackOfRoom;
use onefold_policy::collection::select::ContainerLiveness;
use onefold_types::{ContainerId, Result};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Stored bytes, about, for each chunk copied beside the chunk itself: a metadata pack and an index
/// run name it.
const BYTES_PER_CHUNK: u64 = 96;
/// Room for the records of an epoch, each stored twice, whatever they name.
const RECORDS_BYTES: u64 = 128 << 10;
/// Bytes of these records for each name: a plan and a sweep, each stored twice, as text.
const BYTES_PER_NAME: u64 = 4 * 40;

/// What bounds the rounds of one collection.
#[derive(Default)]
pub(super) struct Rounds {
    /// So many containers with live chunks may go into a round, once one has failed.
    containers_max: Option<usize>,
    /// Containers that a failed round has stored.
    leavings: Vec<ContainerId>,
    /// Whether not even the smallest round could be copied.
    is_exhausted: bool,
}

/// The containers of a round.
pub(super) struct Taken {
    /// Their names, rising.
    pub condemned: Vec<ContainerId>,
    /// Stored bytes that are live in them, about.
    pub live_bytes: u64,
    /// Whether leavings of a round that failed are among them, and nothing else that is live.
    pub cleans_up: bool,
    /// How many of them have live chunks.
    live_containers: usize,
}

impl Rounds {
    /// Room is or was short: the dead go alone.
    pub(super) fn set_short(&mut self) {
        self.containers_max.get_or_insert(usize::MAX);
    }

    /// Whether room is or was short.
    pub(super) fn is_short(&self) -> bool {
        self.containers_max.is_some()
    }

    /// Whether something is left to be condemned that was never chosen.
    pub(super) fn has_leavings(&self) -> bool {
        !self.leavings.is_empty()
    }

    /// A round was copied: the next one may be larger.
    pub(super) fn succeeded(&mut self, taken: &Taken) {
        if taken.live_containers > 0 {
            self.containers_max = self.containers_max.map(|most| most.saturating_mul(2));
        }
    }

    /// A round could not be copied for lack of room; `stored` is what it has written.
    pub(super) fn failed(&mut self, taken: &Taken, stored: Vec<ContainerId>) {
        if taken.live_containers == 0 {
            // Nothing was to be copied: others are at work, and the next collection knows more.
            self.is_exhausted = true;
            return;
        }
        self.leavings.extend(stored);
        let had_dead = taken.condemned.len() > taken.live_containers;
        self.is_exhausted = taken.live_containers <= 1 && !had_dead;
        self.containers_max = Some((taken.live_containers / 2).max(1));
    }
}

impl Collector<'_> {
    /// Takes the containers of the next round. None if the rest does not fit on the device; that is
    /// reported then.
    pub(super) fn take(&mut self, marked: &mut Marked) -> Result<Taken> {
        let room_bytes = self.room_for_copies(marked)?;
        // What is made whole takes room before what it was made of gives some.
        let copies = if self.repacking.is_some() { 2 } else { 1 };
        if room_bytes.is_some_and(|room| room / copies < marked.live_left_bytes) {
            marked.rounds.set_short();
        }
        let is_short = marked.rounds.containers_max.is_some();
        // What is packed anew takes twice as much again: of what it is made, and is to be.
        let share = if self.repacking.is_some() { 3 } else { 1 };
        let chunks_max = self.repository.memory().copied_chunks_max as u64 / share;
        let asked_max = marked.marks.prepared_max();
        let containers_max = marked.rounds.containers_max.unwrap_or(usize::MAX);
        let (mut chunks, mut asked, mut room_needed) = (0, 0, 0_u64);
        let condemned = std::mem::take(&mut marked.rounds.leavings);
        let cleans_up = !condemned.is_empty();
        let mut taken = Taken { condemned, live_bytes: 0, cleans_up, live_containers: 0 };
        while let Some(id) = marked.chosen.front().copied() {
            let one = marked.liveness.get(&id);
            let live_chunks = one.map_or(0, |one| u64::from(one.live_chunks));
            let live_bytes = one.map_or(0, ContainerLiveness::live_bytes_stored);
            let is_live = live_chunks > 0;
            chunks += live_chunks;
            asked += one.map_or(0, |one| u64::from(one.chunks));
            room_needed += live_bytes + live_chunks * BYTES_PER_CHUNK;
            let fits = room_bytes.is_none_or(|room| room_needed <= room);
            if is_live && (cleans_up || marked.rounds.is_exhausted || is_short && !fits) {
                break;
            }
            let goes_alone = is_short && is_live && taken.live_containers == 0;
            let is_full = chunks > chunks_max
                || asked > asked_max
                || is_live && taken.live_containers >= containers_max;
            if (goes_alone || is_full) && !taken.condemned.is_empty() {
                break;
            }
            marked.chosen.pop_front();
            taken.condemned.push(id);
            taken.live_bytes += live_bytes;
            taken.live_containers += usize::from(is_live);
        }
        if taken.condemned.is_empty() {
            self.leave(marked);
        }
        taken.condemned.sort_unstable();
        Ok(taken)
    }

    /// The order in which rounds take containers.
    pub(super) fn in_order(
        &self,
        mut chosen: Vec<ContainerId>,
        liveness: &BTreeMap<ContainerId, ContainerLiveness>,
    ) -> VecDeque<ContainerId> {
        let live = |id: &ContainerId| liveness.get(id).map_or(0, |one| one.live_chunks);
        match self.repacking.is_some() {
            true => chosen.sort_unstable_by_key(|id| (live(id) > 0, Reverse(*id))),
            false => chosen.sort_unstable_by_key(|id| (live(id), *id)),
        }
        chosen.into()
    }

    /// Puts what a round has taken back, because it could not be copied.
    pub(super) fn put_back(&self, marked: &mut Marked, taken: &Taken, dead_max_bytes: u64) {
        let mut chosen: Vec<ContainerId> = taken.condemned.clone();
        chosen.retain(|id| marked.liveness.contains_key(id));
        chosen.extend(std::mem::take(&mut marked.chosen));
        marked.chosen = self.in_order(chosen, &marked.liveness);
        marked.live_left_bytes += taken.live_bytes;
        marked.dead_left_bytes += dead_max_bytes;
    }

    /// Gives up what does not fit on the device.
    fn leave(&mut self, marked: &mut Marked) {
        let left: Vec<ContainerId> = std::mem::take(&mut marked.chosen).into();
        let dead = |id: &ContainerId| {
            marked.liveness.get(id).map_or(0, ContainerLiveness::dead_bytes_stored)
        };
        let dead_bytes = left.iter().map(dead).sum();
        self.report.left = Some(LeftForLackOfRoom {
            containers: left.len() as u64,
            stored_bytes: stored_bytes(&marked.liveness, &left),
            dead_bytes,
        });
    }

    /// Stored bytes that may be copied so that the records of an epoch fit as well; `None` if the
    /// device does not tell.
    fn room_for_copies(&self, marked: &Marked) -> Result<Option<u64>> {
        let names = (marked.chosen.len() + marked.tombstones.len()) as u64;
        let records = RECORDS_BYTES + names * BYTES_PER_NAME;
        let free = self.repository.store().free_bytes()?;
        Ok(free.map(|free| free.saturating_sub(records)))
    }
}
