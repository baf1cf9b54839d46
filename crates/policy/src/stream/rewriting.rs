//! Old duplicates of one stream wait here until a policy has decided whether they are stored again
//! (FAST'19, section 4; [`crate::rewrite`]).
//!
//! New chunks pass at once. A duplicate's bytes are copied when it has to wait, so batches go back
//! whatever is undecided. What is decided to be stored again goes into the stream's open container
//! then, among the new chunks of that moment, as the paper has it.
//!
//! Invariants: a duplicate gets one decision, while it waits; a chunk is stored again only if the
//! session has not stored it yet. Trees name fingerprints only, so nothing refers to a decision: a
//! session that dies with undecided chunks has lost nothing, and one that ends decides everything
//! first (S2.30).
//!
//! Equal candidates share their bytes, under the small number that the policy gives them. What will
//! be kept whatever else comes waits without its bytes.
//!
//! Memory: the copies stay within their share of the limit ([`RewriteParameters`]); the policy
//! decides early rather than exceed it. Besides some hundred bytes for each duplicate from the
//! oldest undecided one on.

use super::guard::{Concern, Guard, RewriteGuard};
use super::ports::{Chunk, ContainerPort, Instances, Status, Units};
use crate::duplicate_status::DuplicateStatus;
use crate::rewrite::{
    Candidate, Decided, Decision, Expected, RewriteChoice, RewriteCounters, RewriteParameters,
    StreamChunk, StreamRewriter, UnitId,
};
use onefold_types::{Error, Fingerprint, Result, bug, invariant};
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Which duplicates a session stores again.
#[derive(Clone, Debug, Default)]
pub struct RewriteOptions<U> {
    /// The policy.
    pub choice: RewriteChoice,
    /// What it knows and may use; the memory for candidates is set by [`Self::share`].
    pub parameters: RewriteParameters,
    /// What it counts references by; the history is in the same unit.
    pub unit: U,
    /// Rules beside those of the policy.
    pub guard: Option<RewriteGuard>,
}

impl<U: Clone + Default> RewriteOptions<U> {
    /// Nothing is stored again.
    #[must_use]
    pub fn none() -> Self {
        Self { choice: RewriteChoice::None, ..Self::default() }
    }

    /// What one of several streams may do: all of them together hold at most
    /// `candidates_bytes_max`.
    #[must_use]
    pub fn share(
        &self,
        streams: usize,
        candidates_bytes_max: usize,
        chunk_bytes_max: usize,
    ) -> Self {
        let streams = streams.max(1) as u64;
        let mut shared = self.clone();
        // A policy makes room once there is too much: by one chunk.
        let room = candidates_bytes_max as u64 / streams;
        shared.parameters.candidates_bytes_max = room.saturating_sub(chunk_bytes_max as u64);
        if let Some(expected) = &mut shared.parameters.expected {
            *expected = Expected {
                chunks: expected.chunks / streams,
                unique_chunks: expected.unique_chunks / streams,
            };
        }
        if let Some(before) = &mut shared.parameters.before {
            before.unique_chunks /= streams;
            before.rewritten_chunks /= streams;
        }
        shared
    }
}

/// An old duplicate of the stream.
struct Waiting<A> {
    ticket: u64,
    fingerprint: Fingerprint,
    size_bytes: u32,
    /// Its candidate, unless it is the newest chunk.
    candidate: Option<u32>,
    /// `None` once it is decided: it leaves when those before it have left.
    instances: Option<Instances<A>>,
}

/// The bytes of undecided duplicates that are equal.
struct Held<T> {
    /// `None` if none of them may be stored again.
    payload: Option<T>,
    /// Their number.
    tickets: u32,
}

/// What waits for a decision, by slots.
struct Candidates<T> {
    by_slot: Vec<Held<T>>,
}

impl<T> Candidates<T> {
    /// Another duplicate waits; `copy` gives the bytes if no equal one has them.
    fn wait(&mut self, candidate: Candidate, copy: impl FnOnce() -> T) {
        let slot = candidate.slot as usize;
        let none = || Held { payload: None, tickets: 0 };
        let lacking = (slot + 1).saturating_sub(self.by_slot.len());
        self.by_slot.extend(std::iter::repeat_with(none).take(lacking));
        if let Some(held) = self.by_slot.get_mut(slot) {
            held.tickets += 1;
            if candidate.is_open {
                held.payload.get_or_insert_with(copy);
            }
        }
    }

    fn payload(&self, slot: u32) -> Option<&T> {
        self.by_slot.get(slot as usize)?.payload.as_ref()
    }

    /// Lets go of the bytes with the last of equal chunks.
    fn let_go(&mut self, slot: u32) {
        if let Some(held) = self.by_slot.get_mut(slot as usize) {
            held.tickets = held.tickets.saturating_sub(1);
            if held.tickets == 0 {
                held.payload = None;
            }
        }
    }

    fn count(&self) -> usize {
        self.by_slot.iter().filter(|held| held.tickets > 0).count()
    }
}

/// The rewriting of one stream.
pub(super) struct Rewriting<P: ToOwned + ?Sized, U: Units> {
    choice: RewriteChoice,
    policy: StreamRewriter,
    /// From the oldest undecided duplicate on, tickets ascending.
    waiting: VecDeque<Waiting<U::Address>>,
    /// Where the one stands that was decided last: mostly the next is decided next.
    cursor: usize,
    candidates: Candidates<P::Owned>,
    decided: Vec<Decided>,
    /// The units of the newest chunk's instances.
    units: Vec<UnitId>,
    unit: U,
    guard: Option<Guard<U::Address>>,
}

impl<P: ToOwned + ?Sized, U: Units> Rewriting<P, U> {
    pub(super) fn new(options: RewriteOptions<U>) -> Result<Self> {
        Ok(Self {
            choice: options.choice,
            guard: options.guard.map(|rules| Guard::new(rules, &options.choice)),
            policy: StreamRewriter::new(&options.choice, options.parameters)?,
            waiting: VecDeque::new(),
            cursor: 0,
            candidates: Candidates { by_slot: Vec::new() },
            decided: Vec::new(),
            units: Vec::new(),
            unit: options.unit,
        })
    }

    pub(super) fn counters(&self) -> &RewriteCounters {
        self.policy.counters()
    }

    /// Takes the next chunk of the stream: stores it, says where it lies, or lets it wait.
    pub(super) fn push(
        &mut self,
        chunk: &Chunk<'_, P>,
        status: Status<U::Address>,
        containers: &mut impl ContainerPort<P, U::Address>,
    ) -> Result<()> {
        let &Chunk { ticket, size_bytes, .. } = chunk;
        let fingerprint = *chunk.fingerprint;
        let mut instances = None;
        let status = match status {
            DuplicateStatus::Unique => {
                let address = containers.store(chunk)?;
                containers.place(ticket, address);
                DuplicateStatus::Unique
            }
            DuplicateStatus::Fresh(address) => {
                containers.place(ticket, address);
                DuplicateStatus::Fresh(())
            }
            DuplicateStatus::Old(old) if self.choice == RewriteChoice::None => {
                place_kept((ticket, size_bytes), old.first, &old, containers);
                return Ok(());
            }
            DuplicateStatus::Old(mut old) => match self.kept(&mut old) {
                Some(address) => {
                    place_kept((ticket, size_bytes), address, &old, containers);
                    DuplicateStatus::Fresh(())
                }
                None => {
                    instances = Some(old);
                    // Without an instance that counts, a duplicate is as good as new.
                    let has_targets = self.guard.as_ref().is_some_and(Guard::has_targets);
                    DuplicateStatus::Old(if has_targets { &[][..] } else { &self.units })
                }
            },
        };
        if self.choice == RewriteChoice::None {
            return Ok(());
        }
        let seen = StreamChunk { ticket, fingerprint, size_bytes, status };
        let candidate = self.policy.push(&seen, &mut self.decided);
        if instances.is_some() {
            let candidate = None;
            self.waiting.push_back(Waiting {
                ticket,
                fingerprint,
                size_bytes,
                candidate,
                instances,
            });
        }
        self.apply(Some(chunk), containers)?;
        // Only now: what is decided at once needs no copy.
        if let Some(last) = self.waiting.back_mut().filter(|last| last.ticket == ticket) {
            let candidate = candidate
                .ok_or_else(|| bug!("rewriting lets a chunk wait without a slot", ticket))?;
            last.candidate = Some(candidate.slot);
            self.candidates.wait(candidate, || chunk.payload.to_owned());
        }
        Ok(())
    }

    /// Decides everything that waits.
    pub(super) fn finish(
        &mut self,
        containers: &mut impl ContainerPort<P, U::Address>,
    ) -> Result<()> {
        self.policy.finish(&mut self.decided);
        self.apply(None, containers)
    }

    /// Fails unless every duplicate has had exactly one decision.
    pub(super) fn expect_empty(&self) -> Result<()> {
        let counters = self.policy.counters();
        let (waiting, candidates) = (self.waiting.len(), self.candidates.count());
        invariant!(
            waiting == 0 && candidates == 0 && self.policy.waiting() == 0,
            "duplicates still wait for a decision at the end of a stream",
            waiting,
            candidates,
            self.policy.waiting()
        );
        invariant!(
            counters.duplicates == counters.kept + counters.rewritten + counters.shared,
            "duplicates and decisions differ in number",
            counters
        );
        Ok(())
    }

    /// An instance that the guard keeps. If there is none, the instances are ordered, newest first,
    /// and their units named for the policy.
    fn kept(&mut self, old: &mut Instances<U::Address>) -> Option<U::Address> {
        let Self { guard, unit, units, .. } = self;
        if !old.others.is_empty() {
            old.others.push(old.first);
            old.others.sort_unstable_by_key(|address| Reverse(unit.unit_of(*address)));
            old.first = old.others.remove(0);
        }
        units.clear();
        match guard.as_mut().map_or(Concern::Instances, |guard| guard.concern(old, unit)) {
            Concern::Kept(address) => return Some(address),
            Concern::Instances => units.extend(old.iter().map(|address| unit.unit_of(address))),
            Concern::Base(base) => units.push(base),
        }
        None
    }

    /// Carries out what the policy has decided. `current` is the newest chunk, whose bytes have not
    /// been copied.
    fn apply(
        &mut self,
        current: Option<&Chunk<'_, P>>,
        containers: &mut impl ContainerPort<P, U::Address>,
    ) -> Result<()> {
        if self.decided.is_empty() {
            return Ok(());
        }
        let mut decided = std::mem::take(&mut self.decided);
        // Where chunks are that others share.
        let mut stored: BTreeMap<Fingerprint, Option<U::Address>> = BTreeMap::new();
        for Decided { ticket, decision } in decided.drain(..) {
            let Waiting { fingerprint, size_bytes, candidate, instances, .. } =
                self.leave(ticket)?;
            let instances = instances.ok_or_else(|| no_longer_waits(ticket))?;
            let current = current.filter(|now| now.ticket == ticket);
            let address = match decision {
                Decision::Keep(unit) => {
                    let kept = self.instance_in(unit, &instances);
                    invariant!(kept.is_some(), "a chunk is kept where it is not", unit, instances);
                    let rests_on = instances.rests_on.filter(|_| kept == Some(instances.first));
                    if let Some(base) = rests_on {
                        containers.rest_on(instances.first, base, size_bytes);
                    }
                    kept
                }
                // What is decided at once is told no address: whoever restores it looks it up.
                Decision::Share if current.is_some() => None,
                Decision::Share => stored.get(&fingerprint).copied().flatten(),
                Decision::Rewrite => {
                    let unique = self.policy.counters().unique;
                    let chunk = (&fingerprint, &instances);
                    let elsewhere = self.guard.as_mut().map_or(Ok(None), |guard| {
                        guard.elsewhere(chunk, unique, &self.unit, containers)
                    })?;
                    let address = match elsewhere {
                        None => {
                            let payload = match current {
                                Some(now) => Some(now.payload),
                                None => candidate
                                    .and_then(|slot| self.candidates.payload(slot))
                                    .map(Borrow::borrow),
                            };
                            store_again(&fingerprint, payload, containers)?
                        }
                        Some(_) => {
                            self.policy.take_back(u64::from(size_bytes));
                            elsewhere
                        }
                    };
                    stored.insert(fingerprint, address);
                    address
                }
            };
            containers.place(ticket, address);
            if let Some(slot) = candidate {
                self.candidates.let_go(slot);
            }
        }
        self.decided = decided;
        Ok(())
    }

    /// The instance that the policy keeps by naming a unit: its own, or that of its base.
    fn instance_in(&self, unit: UnitId, of: &Instances<U::Address>) -> Option<U::Address> {
        let is_meant = |one: &U::Address| self.unit.unit_of(*one) == unit;
        of.iter().find(is_meant).or_else(|| of.rests_on.filter(is_meant).map(|_| of.first))
    }

    /// Takes a duplicate out that is decided.
    fn leave(&mut self, ticket: u64) -> Result<Waiting<U::Address>> {
        let is_next = self.waiting.get(self.cursor).is_some_and(|one| one.ticket == ticket);
        let found = match is_next {
            true => Some(self.cursor),
            false => self.waiting.binary_search_by_key(&ticket, |one| one.ticket).ok(),
        };
        let one = found.and_then(|position| self.waiting.get_mut(position));
        let left = one.and_then(|one| {
            let instances = Some(one.instances.take()?);
            Some(Waiting { instances, ..*one })
        });
        let is_decided = |one: &Waiting<_>| one.instances.is_none();
        self.cursor = found.map_or(0, |position| position + 1);
        while self.waiting.front().is_some_and(is_decided) {
            self.waiting.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
        while self.waiting.back().is_some_and(is_decided) {
            self.waiting.pop_back();
        }
        left.ok_or_else(|| no_longer_waits(ticket))
    }
}

/// Says where a chunk is that is kept, and what it is a difference against there.
fn place_kept<P: ToOwned + ?Sized, A: Copy + PartialEq>(
    (ticket, size_bytes): (u64, u32),
    address: A,
    of: &Instances<A>,
    containers: &mut impl ContainerPort<P, A>,
) {
    containers.place(ticket, Some(address));
    if let Some(base) = of.rests_on.filter(|_| address == of.first) {
        containers.rest_on(address, base, size_bytes);
    }
}

/// Stores a chunk again whose bytes are there.
fn store_again<P: ?Sized, A>(
    fingerprint: &Fingerprint,
    payload: Option<&P>,
    containers: &mut impl ContainerPort<P, A>,
) -> Result<Option<A>> {
    let payload = payload.ok_or_else(|| {
        bug!("the bytes of a chunk that is to be stored again are gone", fingerprint)
    })?;
    containers.store_again(fingerprint, payload)
}

fn no_longer_waits(ticket: u64) -> Error {
    bug!("rewriting decides on a chunk that does not wait", ticket)
}
