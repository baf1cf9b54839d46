//! Rewriting in the pipeline: duplicates wait here until a policy has decided whether they are
//! stored again (FAST'19, section 4; [`onefold_policy::rewrite`]).
//!
//! ```text
//! look-up ──chunks in stream order──▶ rewriting ──new and rewritten chunks──▶ open container
//!                                        └─ the bytes of undecided duplicates, one copy of each
//! ```
//!
//! New chunks pass at once. A duplicate's bytes are copied when it has to wait, so buffers of the
//! reading threads go back whatever is undecided. What is decided to be stored again is appended to
//! the stream's open container then, among the new chunks of that moment, as the paper has it.
//!
//! Invariants: a chunk is stored again only if the session has not stored it yet; nothing refers to
//! a decision, because trees name fingerprints only: a session that dies with undecided chunks has
//! lost nothing, and one that ends decides everything first (S2.30).
//!
//! Memory: the copies stay within their share of the limit ([`RewriteParameters`]); the policy
//! decides early rather than exceed it.

use super::waiting;
use crate::placement::{FrameId, Unit};
use onefold_policy::rewrite::{
    ContainerUse, Decided, Decision, Expected, RewriteChoice, RewriteCounters, RewriteParameters,
    Standing, StreamChunk, StreamRewriter,
};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Which duplicates a session stores again.
#[derive(Clone, Debug, Default)]
pub struct RewriteOptions {
    /// The policy.
    pub choice: RewriteChoice,
    /// What it knows and may use; the memory for candidates is set by the chunk store.
    pub parameters: RewriteParameters,
    /// What it counts references by; the history is in the same unit.
    pub unit: Unit,
    /// The frames or containers to be emptied, if the stream is only what has changed: then nothing
    /// else is stored again.
    pub targets: Option<Arc<BTreeSet<ContainerId>>>,
}

impl RewriteOptions {
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

/// What rewriting did in a session.
#[derive(Clone, Debug, Default)]
pub struct RewriteReport {
    /// The policy.
    pub choice: Option<RewriteChoice>,
    /// Its counters, one set for each stream.
    pub streams: Vec<RewriteCounters>,
}

struct Candidate {
    bytes: Vec<u8>,
    /// Undecided places of the stream.
    places: u32,
}

/// The rewriting of one stream.
pub struct Rewriting {
    choice: RewriteChoice,
    rewriter: StreamRewriter,
    candidates: HashMap<Fingerprint, Candidate>,
    undecided: HashMap<u64, Undecided>,
    decided: Vec<Decided>,
    /// The instances of the newest chunk, and their names to the policy.
    instances: Vec<FrameId>,
    names: Vec<ContainerId>,
    unit: Unit,
    /// How the previous version used frames or containers, for policies that go by that.
    history: Option<Arc<ContainerUse>>,
    targets: Option<Arc<BTreeSet<ContainerId>>>,
    /// Whether history keeps what is in the frame last asked about: chunks of a frame come
    /// together.
    last_kept: Option<(FrameId, bool)>,
}

/// A duplicate of which it is not decided whether it is stored again.
struct Undecided {
    fingerprint: Fingerprint,
    instances: Box<[FrameId]>,
}

/// Tells where a chunk of the stream lies now.
type Place<'a> = dyn FnMut(u64, Option<FrameId>) + 'a;
/// Stores a duplicate again; where, unless it has been stored already.
type Store<'a> = dyn FnMut(&Fingerprint, &[u8]) -> Result<Option<FrameId>> + 'a;

impl Rewriting {
    /// Nothing seen yet.
    pub fn new(options: RewriteOptions) -> Result<Self> {
        let history = match options.choice {
            RewriteChoice::Auto(_) | RewriteChoice::History(_) => {
                options.parameters.history.clone()
            }
            _ => None,
        };
        Ok(Self {
            choice: options.choice,
            rewriter: StreamRewriter::new(&options.choice, options.parameters)?,
            candidates: HashMap::new(),
            undecided: HashMap::new(),
            decided: Vec::new(),
            instances: Vec::new(),
            names: Vec::new(),
            unit: options.unit,
            history,
            targets: options.targets,
            last_kept: None,
        })
    }

    /// Takes the next chunk of the stream. What is decided now is told to `place` (ticket and
    /// container, where it is known), and what is to be stored again is handed to `store`.
    pub fn push(
        &mut self,
        chunk: &waiting::Released<'_>,
        place: &mut Place<'_>,
        store: &mut Store<'_>,
    ) -> Result<()> {
        let standing = match chunk.standing {
            waiting::Standing::New => Standing::Unique,
            waiting::Standing::Fresh(frame) => {
                place(chunk.ticket, *frame);
                Standing::Fresh
            }
            waiting::Standing::Old(container, _) if self.choice == RewriteChoice::None => {
                place(chunk.ticket, Some(*container));
                return Ok(());
            }
            waiting::Standing::Old(frame, others)
                if others.is_empty() && self.is_kept_alone(*frame) =>
            {
                place(chunk.ticket, Some(*frame));
                Standing::Fresh
            }
            waiting::Standing::Old(frame, others) => {
                self.instances.clear();
                self.instances.push(*frame);
                self.instances.extend(others);
                let name = |frame: &FrameId| self.unit.name_of(*frame);
                self.instances.sort_unstable_by_key(|frame| std::cmp::Reverse(name(frame)));
                self.names.clear();
                self.names.extend(self.instances.iter().map(name));
                match self.kept_by_history() {
                    Some(frame) => {
                        place(chunk.ticket, Some(frame));
                        Standing::Fresh
                    }
                    // Without an instance that counts, a duplicate is as good as new.
                    None if self.targets.is_some() => Standing::Old(&[]),
                    None => Standing::Old(&self.names),
                }
            }
        };
        if self.choice == RewriteChoice::None {
            return Ok(());
        }
        let is_old = matches!(standing, Standing::Old(_));
        let size_bytes = u32::try_from(chunk.bytes.len()).unwrap_or(u32::MAX);
        let (ticket, fingerprint) = (chunk.ticket, *chunk.fingerprint);
        self.rewriter
            .push(&StreamChunk { ticket, fingerprint, size_bytes, standing }, &mut self.decided);
        if is_old && !self.decided.iter().any(|decided| decided.ticket == ticket) {
            let instances = self.instances.as_slice().into();
            self.undecided.insert(ticket, Undecided { fingerprint, instances });
            let candidate = self
                .candidates
                .entry(fingerprint)
                .or_insert_with(|| Candidate { bytes: chunk.bytes.to_vec(), places: 0 });
            candidate.places += 1;
        }
        self.apply(Some(chunk), place, store)
    }

    /// An instance in a frame or container that the previous version used well, or that is not to
    /// be emptied. It is read whatever becomes of this chunk, for files that are kept unread among
    /// others, so that storing the chunk again would gain nothing.
    fn kept_by_history(&self) -> Option<FrameId> {
        let place = self.names.iter().position(|name| self.stays(name))?;
        self.instances.get(place).copied()
    }

    fn stays(&self, name: &ContainerId) -> bool {
        match (&self.targets, &self.history) {
            (Some(targets), _) => !targets.contains(name),
            (None, Some(history)) => {
                history.get(name).and_then(|usage| usage.is_sparse()) == Some(false)
            }
            (None, None) => false,
        }
    }

    /// The same for the only instance there is.
    fn is_kept_alone(&mut self, frame: FrameId) -> bool {
        match self.last_kept {
            Some((last, kept)) if last == frame => kept,
            _ => {
                let kept = self.stays(&self.unit.name_of(frame));
                self.last_kept = Some((frame, kept));
                kept
            }
        }
    }

    /// Decides everything that waits.
    pub fn finish(&mut self, place: &mut Place<'_>, store: &mut Store<'_>) -> Result<()> {
        self.rewriter.finish(&mut self.decided);
        self.apply(None, place, store)
    }

    /// Adds what was done to a report.
    pub fn report(&self, report: &mut RewriteReport) {
        report.choice = Some(self.choice);
        report.streams.push(*self.rewriter.counters());
    }

    fn apply(
        &mut self,
        current: Option<&waiting::Released<'_>>,
        place: &mut Place<'_>,
        store: &mut Store<'_>,
    ) -> Result<()> {
        let mut decided = std::mem::take(&mut self.decided);
        for Decided { ticket, decision } in decided.drain(..) {
            match decision {
                Decision::Keep(name) => {
                    let instances = match self.undecided.get(&ticket) {
                        Some(undecided) => &*undecided.instances,
                        None => &self.instances,
                    };
                    let kept = instances.iter().find(|frame| self.unit.name_of(**frame) == name);
                    place(ticket, kept.copied());
                }
                Decision::Share => place(ticket, None),
                Decision::Rewrite => {
                    let waiting = self.undecided.get(&ticket);
                    let known =
                        waiting.and_then(|it| self.candidates.get_key_value(&it.fingerprint));
                    let frame = match (known, current) {
                        (Some((name, candidate)), _) => store(name, &candidate.bytes)?,
                        (None, Some(now)) if now.ticket == ticket => {
                            store(now.fingerprint, now.bytes)?
                        }
                        _ => None,
                    };
                    place(ticket, frame);
                }
            }
            self.release(ticket);
        }
        self.decided = decided;
        Ok(())
    }

    /// Lets go of a decided place, and of the bytes with the last place of its chunk.
    fn release(&mut self, ticket: u64) {
        let Some(Undecided { fingerprint, .. }) = self.undecided.remove(&ticket) else {
            return;
        };
        if let Some(candidate) = self.candidates.get_mut(&fingerprint) {
            candidate.places -= 1;
            if candidate.places == 0 {
                self.candidates.remove(&fingerprint);
            }
        }
    }
}
