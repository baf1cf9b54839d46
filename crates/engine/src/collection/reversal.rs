//! Differences turned round: what the newest snapshots need is made whole, and what it was made of
//! becomes a difference against it.
//!
//! Backups make the new of the old, because that is what they have, so restores of the newest read
//! old chunks that nobody else needs. When both are packed anew the direction is free
//! (docs/decisions/0066-differences-turned-round.md).
//!
//! # Algorithm
//! A base that no newest snapshot needs has as its *successor* the delta of it that these need
//! first. The successor is stored whole, and the base, and all other deltas of the base, are made
//! of the successor, in the same round or a later one: the newest containers come first. That is
//! done only where all of them are packed anew: a base of which something is made that stays where
//! it is stays what it is, and so do its deltas.
//!
//! # Invariants
//! Nothing that stays is made of what becomes a delta here: a round notes the bases of all its
//! deltas that stay as they are, beside those outside of it, and only what is in neither becomes a
//! difference. In the containers that the round empties things may be made of it until these go.
//! Where a chunk turns out not to be like its successor, or is packed before what is made of it, it
//! stays whole: more is stored then, nothing is lost.
//!
//! Memory: so many successors as were allowed for; then differences stay as they are. Of a round a
//! few entries for each live delta, which counts for them ([`super::collector`], rounds). What the
//! newest need is in a filter: a base that it names by mistake is left alone.

use super::bases::{MadeOf, SomeChunks};
use super::gathered::{Gathered, Link};
use crate::chunk_store::prefix_hasher::ByPrefix;
use onefold_types::{ContainerId, Fingerprint};
use std::collections::{HashMap, HashSet};

/// What becomes of a chunk that is packed anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It stays what it is: whole, or the same delta.
    Stays,
    /// A delta is made whole.
    Whole,
    /// It is stored as a difference against this one, if it is like it.
    Against(Fingerprint),
}

/// What is known before the first round.
pub struct Scope {
    /// What the newest snapshots need.
    pub needed: SomeChunks,
    /// The containers that are emptied, rising.
    pub emptied: Vec<ContainerId>,
    /// What the deltas in all others are made of.
    pub made_of_outside: MadeOf,
}

/// Which differences one collection turns round.
pub struct Reversal {
    scope: Scope,
    /// Of each base.
    successors: HashMap<Fingerprint, Fingerprint, ByPrefix>,
    successors_max: usize,
    /// The containers that successors were packed into.
    packed: HashMap<Fingerprint, ContainerId, ByPrefix>,
    /// Whether no more is made whole: that takes room before it gives some.
    is_short: bool,
    /// The bases that were given successors in this round.
    added: Vec<Fingerprint>,
    /// Deltas of this round that are made whole.
    whole: HashSet<Fingerprint, ByPrefix>,
    against: HashMap<Fingerprint, Fingerprint, ByPrefix>,
}

impl Reversal {
    /// Nothing is turned round yet; so many bytes may be taken for what is.
    #[must_use]
    pub fn with_memory(scope: Scope, bytes: usize) -> Self {
        let entry_bytes = 2 * size_of::<(Fingerprint, Fingerprint, Fingerprint, ContainerId)>();
        Self {
            scope,
            successors: HashMap::default(),
            successors_max: bytes / entry_bytes,
            packed: HashMap::default(),
            is_short: false,
            added: Vec::new(),
            whole: HashSet::default(),
            against: HashMap::default(),
        }
    }

    /// Plans a round. `made_of` knows what deltas outside of it are made of, and then also what
    /// those are made of that stay as they are.
    pub fn begin_round(&mut self, gathered: &Gathered, made_of: &mut MadeOf) {
        self.added.clear();
        self.whole.clear();
        self.against.clear();
        let rank = |chunk: &Fingerprint| gathered.chunks.get(chunk).map(|spot| spot.rank);
        // Of several instances the shallowest is copied.
        let is_delta =
            |chunk: &Fingerprint| gathered.chunks.get(chunk).is_some_and(|spot| spot.depth > 0);
        let links = || gathered.links().filter(|link| is_delta(&link.delta));
        let mut first: Vec<(u32, &Link)> = links()
            .filter_map(|link| Some((rank(&link.delta).filter(|it| *it != u32::MAX)?, link)))
            .collect();
        first.sort_by_key(|(rank, _)| *rank);
        for (_, Link { delta, base, container }) in first {
            // Ranks follow placements, which are advice.
            let is_ranked = rank(base).is_some_and(|rank| rank != u32::MAX);
            let is_needed = is_ranked || self.scope.needed.contains(base);
            let comes_along = rank(base).is_some()
                || container.is_some_and(|id| self.scope.emptied.binary_search(&id).is_ok());
            if !self.is_short
                && !is_needed
                && comes_along
                && !self.scope.made_of_outside.contains(base)
                && !self.successors.contains_key(base)
                && self.successors.len() < self.successors_max
            {
                self.whole.insert(*delta);
                self.successors.insert(*base, *delta);
                self.added.push(*base);
            }
        }
        for (chunk, spot) in &gathered.chunks {
            if spot.rank == u32::MAX
                && !self.whole.contains(chunk)
                && let Some(successor) = self.successors.get(chunk)
            {
                self.against.insert(*chunk, *successor);
            }
        }
        // With greater depths a delta may be a base of others, which stay what they are.
        let of_others: HashSet<Fingerprint, ByPrefix> =
            links().map(|link| link.base).filter(is_delta).collect();
        for Link { delta, base, .. } in links() {
            let stays = of_others.contains(delta) || made_of.contains(delta);
            if let Some(successor) = self.successors.get(base)
                && !stays
                && !self.whole.contains(delta)
            {
                self.against.insert(*delta, *successor);
            }
        }
        for Link { delta, base, .. } in links() {
            if self.turn(delta) == Turn::Stays {
                made_of.insert(base);
            }
        }
    }

    /// What becomes of a chunk.
    #[must_use]
    pub fn turn(&self, chunk: &Fingerprint) -> Turn {
        match self.against.get(chunk) {
            Some(successor) => Turn::Against(*successor),
            None if self.whole.contains(chunk) => Turn::Whole,
            None => Turn::Stays,
        }
    }

    /// A delta was made whole, and goes to this container.
    pub fn note_whole(&mut self, chunk: &Fingerprint, container: ContainerId) {
        self.packed.insert(*chunk, container);
    }

    /// The container that a successor was packed into, once it was.
    #[must_use]
    pub fn packed(&self, successor: &Fingerprint) -> Option<ContainerId> {
        self.packed.get(successor).copied()
    }

    /// Room has become short: what is known stays, and nothing more is made whole.
    pub fn set_short(&mut self) {
        self.is_short = true;
    }

    /// Copying has failed: what was made whole in this round lies nowhere that counts.
    pub fn forget_round(&mut self) {
        for base in self.added.drain(..) {
            self.successors.remove(&base);
        }
        for chunk in self.whole.drain() {
            self.packed.remove(&chunk);
        }
        self.against.clear();
    }
}
