//! What the streams of a session share while chunks are judged: the index with its helpers, and
//! what is being stored.
//!
//! # Algorithm (S1.24, S2.4)
//! A chunk is *pending* from the moment a stream claims it until the index has it. While its
//! container is open it is fresh: in the active container, which nobody has to read. Once that is
//! closed a chunk costs a read as any other, so rewriting may store it again, once in a session;
//! the new copy is pending in its turn, whatever becomes of the old one.
//!
//! Concurrency: behind the chunk store's lock.

use super::RewriteReport;
use super::prefix_hasher::PrefixHasher;
use super::read_set::ReadSet;
use super::store_port::StorePort;
use crate::container::FrameId;
use onefold_policy::SummaryVector;
use onefold_policy::accelerated_filter::AcceleratedFilter;
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::lookup::Verdict;
use onefold_policy::ports::{IndexPort, Instance};
use onefold_policy::stream::{Chunk, Instances, SessionPort, Status};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::time::Duration;

/// What the streams share.
pub(super) struct Shared {
    pub(super) filter: AcceleratedFilter,
    pub(super) port: StorePort,
    /// Chunks that are stored and not yet in the index, and where those of closed containers are:
    /// they are not in the active container any more (S2.4). Known where something is rewritten.
    pub(super) pending: HashMap<Fingerprint, Option<FrameId>, BuildHasherDefault<PrefixHasher>>,
    /// Whether every chunk is stored, also one that is there already.
    pub(super) stores_all: bool,
    pub(super) read_set: ReadSet,
    pub(super) elapsed: Duration,
    pub(super) explanation: String,
    pub(super) rewriting: RewriteReport,
    /// All cached instances of a duplicate; of interest to rewriting only.
    pub(super) holders: Vec<Instance>,
    /// What this session has stored again; `None` if it rewrites nothing. It may name a chunk too
    /// many, which is then left where it is.
    pub(super) stored_again: Option<SummaryVector>,
}

impl Shared {
    /// Containers were closed that hold these chunks.
    pub(super) fn note_closed(&mut self, chunks: impl Iterator<Item = (Fingerprint, FrameId)>) {
        for (fingerprint, frame) in chunks {
            if let Some(place) = self.pending.get_mut(&fingerprint) {
                *place = Some(frame);
            }
        }
    }

    /// A chunk's copy in this container is in the index; another one may still not be.
    pub(super) fn note_indexed(&mut self, fingerprint: &Fingerprint, container: ContainerId) {
        if let Some(place) = self.pending.get(fingerprint)
            && place.is_none_or(|frame| frame.container == container)
        {
            self.pending.remove(fingerprint);
        }
    }

    /// Makes a duplicate pending that is stored again; `false` if the session has it in an open
    /// container, or has stored it again.
    pub(super) fn claim_again(&mut self, fingerprint: &Fingerprint) -> bool {
        let Some(stored_again) = &mut self.stored_again else {
            return false;
        };
        if stored_again.contains(fingerprint.prefix()) {
            return false;
        }
        match self.pending.entry(*fingerprint) {
            Entry::Occupied(stored) if stored.get().is_none() => return false,
            Entry::Occupied(mut stored) => _ = stored.insert(None),
            Entry::Vacant(absent) => _ = absent.insert(None),
        }
        stored_again.insert(fingerprint.prefix());
        true
    }

    /// Judges a chunk at once, and relies on what was found.
    pub(super) fn is_duplicate(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        let Verdict::Duplicate(instance) = self.filter.judge(&mut self.port, fingerprint)? else {
            return Ok(false);
        };
        self.read_set.note(instance.container, fingerprint);
        Ok(true)
    }

    /// Whether all of these are stored by the session, or duplicates.
    pub(super) fn are_duplicates(&mut self, chunks: &[Fingerprint]) -> Result<bool> {
        for fingerprint in chunks {
            if !self.pending.contains_key(fingerprint) && !self.is_duplicate(fingerprint)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn instances(
        &mut self,
        fingerprint: &Fingerprint,
        known: &Instances<FrameId>,
    ) -> Result<Vec<FrameId>> {
        let Self { filter, port, holders, .. } = self;
        let is_known = |id: ContainerId| known.iter().any(|frame| frame.container == id);
        holders.clear();
        filter.holders(fingerprint, holders);
        holders.retain(|holder| !is_known(holder.container));
        let mut located = Vec::new();
        port.locate(std::slice::from_ref(fingerprint), &mut located, &mut 0)?;
        for container in located.into_iter().flatten() {
            let is_met = holders.iter().any(|holder| holder.container == container);
            if is_known(container) || is_met {
                continue;
            }
            let Some(fingerprints) = port.container_fingerprints(container)? else {
                continue;
            };
            if let Some(position) = fingerprints.iter().position(|one| one == fingerprint) {
                holders.push(Instance { container, position: position as u32 });
            }
            filter.note_container(container, fingerprints);
        }
        let mut frames: Vec<FrameId> = holders.iter().map(|one| port.frame_of(one)).collect();
        frames.sort_unstable_by(|a, b| b.cmp(a));
        Ok(frames)
    }
}

impl SessionPort<[u8], FrameId> for Shared {
    fn index(&mut self) -> Result<(&mut AcceleratedFilter, &mut dyn IndexPort)> {
        Ok((&mut self.filter, &mut self.port))
    }

    /// A chunk of a closed container costs a read as any other: it may be stored again, once.
    fn known(&mut self, chunk: &Chunk<'_, [u8]>) -> Option<Status<FrameId>> {
        if self.stores_all {
            return None;
        }
        let place = *self.pending.get(chunk.fingerprint)?;
        let again = self.stored_again.as_ref();
        let may_again = again.is_some_and(|again| !again.contains(chunk.fingerprint.prefix()));
        Some(match place {
            Some(first) if may_again => DuplicateStatus::Old(Instances::new(first, vec![])),
            place => DuplicateStatus::Fresh(place),
        })
    }

    fn claim(&mut self, chunk: &Chunk<'_, [u8]>) -> bool {
        match self.pending.entry(*chunk.fingerprint) {
            Entry::Occupied(_) => self.stores_all,
            Entry::Vacant(absent) => {
                absent.insert(None);
                true
            }
        }
    }

    /// What the session has stored again is not old any more, or it would be stored a third time.
    fn found(&mut self, chunk: &Chunk<'_, [u8]>, instance: &Instance) -> Status<FrameId> {
        let fingerprint = chunk.fingerprint;
        self.read_set.note(instance.container, fingerprint);
        let first = self.port.frame_of(instance);
        let Some(stored_again) = &self.stored_again else {
            return DuplicateStatus::Old(Instances::new(first, Vec::new()));
        };
        self.holders.clear();
        self.filter.holders(fingerprint, &mut self.holders);
        if stored_again.contains(fingerprint.prefix()) {
            if self.pending.contains_key(fingerprint) {
                return DuplicateStatus::Fresh(None);
            }
            let newest = self.holders.first().map(|newest| self.port.frame_of(newest));
            return DuplicateStatus::Fresh(newest.max(Some(first)));
        }
        self.holders.retain(|other| other.container != instance.container);
        let others: Vec<FrameId> = self.holders.iter().map(|one| self.port.frame_of(one)).collect();
        let rests_on = match others.is_empty() {
            true => self.port.bases.rests_on(instance.container, instance.position),
            false => None,
        };
        DuplicateStatus::Old(Instances { first, others, rests_on })
    }
}
