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
//! lost nothing, and one that ends decides everything first (S2.30). Of data that has not changed
//! no chunk is stored again twice: before one is, the index is asked whether another copy lies
//! where the previous version used it well.
//!
//! Memory: the copies stay within their share of the limit ([`RewriteParameters`]); the policy
//! decides early rather than exceed it.

use super::prefix_hasher::PrefixHasher;
use super::waiting;
use crate::container::FrameId;
use crate::placement::Unit;
use onefold_policy::rewrite::{
    ContainerUse, Decided, Decision, Expected, RewriteChoice, RewriteCounters, RewriteParameters,
    Standing, StreamChunk, StreamRewriter, UnitId,
};
use onefold_types::{Fingerprint, Result, bug, invariant};
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

type ByPrefix = BuildHasherDefault<PrefixHasher>;

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
    pub targets: Option<Arc<BTreeSet<UnitId>>>,
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
    candidates: HashMap<Fingerprint, Candidate, ByPrefix>,
    undecided: HashMap<u64, Undecided>,
    decided: Vec<Decided>,
    /// The instances of the newest chunk, and their names to the policy.
    instances: Vec<FrameId>,
    names: Vec<UnitId>,
    unit: Unit,
    /// How the previous version used frames or containers.
    history: Option<Arc<ContainerUse>>,
    /// Whether what the history keeps is kept even if there is one copy only.
    keeps_by_history: bool,
    targets: Option<Arc<BTreeSet<UnitId>>>,
    /// Chunks stored again of which there were two copies.
    third_copies: u64,
    /// Whether history keeps what is in the frame last asked about: chunks of a frame come
    /// together.
    last_kept: Option<(FrameId, bool)>,
}

/// A duplicate of which it is not decided whether it is stored again.
struct Undecided {
    fingerprint: Fingerprint,
    instances: Box<[FrameId]>,
}

/// Whether there is another copy of a chunk that is to be stored again.
enum Elsewhere {
    /// There is none.
    Nowhere,
    /// There are some, and the previous version used little of what lies around them.
    Torn,
    /// There is one, good enough to refer to.
    In(FrameId),
}

/// The stream that rewriting works for.
pub trait Stream {
    /// Takes note of where a chunk lies now.
    fn place(&mut self, ticket: u64, frame: Option<FrameId>);

    /// Stores a duplicate again; where, unless it has been stored already.
    fn store_again(&mut self, fingerprint: &Fingerprint, bytes: &[u8]) -> Result<Option<FrameId>>;

    /// Further frames that hold a duplicate, newest first, in other containers than the known ones.
    /// Asks the device.
    fn others(&mut self, fingerprint: &Fingerprint, known: &[FrameId]) -> Result<Vec<FrameId>>;
}

impl Rewriting {
    /// Nothing seen yet.
    pub fn new(options: RewriteOptions) -> Result<Self> {
        let limits = options.choice.limits();
        let keeps_by_history = match options.choice {
            RewriteChoice::History(_) => true,
            // A limit of reads alone holds whatever space it takes.
            RewriteChoice::Auto(_) => limits.loss_max.is_some() || limits.reads_max.is_none(),
            _ => false,
        };
        Ok(Self {
            choice: options.choice,
            history: options.parameters.history.clone(),
            keeps_by_history,
            rewriter: StreamRewriter::new(&options.choice, options.parameters)?,
            candidates: HashMap::default(),
            undecided: HashMap::new(),
            decided: Vec::new(),
            instances: Vec::new(),
            names: Vec::new(),
            unit: options.unit,
            targets: options.targets,
            third_copies: 0,
            last_kept: None,
        })
    }

    /// Takes the next chunk of the stream. What is decided now is told to the stream (ticket and
    /// frame, where that is known), and what is to be stored again is handed to it.
    pub fn push(&mut self, chunk: &waiting::Released<'_>, stream: &mut dyn Stream) -> Result<()> {
        let standing = match chunk.standing {
            waiting::Standing::New => Standing::Unique,
            waiting::Standing::Fresh(frame) => {
                stream.place(chunk.ticket, *frame);
                Standing::Fresh
            }
            waiting::Standing::Old(container, _) if self.choice == RewriteChoice::None => {
                stream.place(chunk.ticket, Some(*container));
                return Ok(());
            }
            waiting::Standing::Old(frame, others)
                if others.is_empty() && self.keeps_by_history && self.is_kept_alone(*frame) =>
            {
                stream.place(chunk.ticket, Some(*frame));
                Standing::Fresh
            }
            waiting::Standing::Old(frame, others) => {
                self.instances.clear();
                self.instances.push(*frame);
                self.instances.extend(others);
                let name = |frame: &FrameId| self.unit.id_of(*frame);
                self.instances.sort_unstable_by_key(|frame| std::cmp::Reverse(name(frame)));
                self.names.clear();
                self.names.extend(self.instances.iter().map(name));
                match self.kept_by_history().filter(|_| self.keeps_by_history) {
                    Some(frame) => {
                        stream.place(chunk.ticket, Some(frame));
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
        self.apply(Some(chunk), stream)
    }

    /// An instance in a frame or container that the previous version used well, or that is not to
    /// be emptied. It is read whatever becomes of this chunk, for files that are kept unread among
    /// others, so that storing the chunk again would gain nothing.
    fn kept_by_history(&self) -> Option<FrameId> {
        let place = self.names.iter().position(|name| self.stays(name))?;
        self.instances.get(place).copied()
    }

    fn stays(&self, name: &UnitId) -> bool {
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
                let kept = self.stays(&self.unit.id_of(frame));
                self.last_kept = Some((frame, kept));
                kept
            }
        }
    }

    /// Decides everything that waits.
    pub fn finish(&mut self, stream: &mut dyn Stream) -> Result<()> {
        self.rewriter.finish(&mut self.decided);
        self.apply(None, stream)
    }

    /// Fails unless every duplicate has had exactly one decision: for whoever commits what has
    /// passed here.
    pub fn expect_empty(&self) -> Result<()> {
        let counters = self.rewriter.counters();
        let (undecided, candidates) = (self.undecided.len(), self.candidates.len());
        invariant!(
            undecided == 0 && candidates == 0 && self.rewriter.waiting() == 0,
            "duplicates still wait for a decision at the end of a stream",
            undecided,
            candidates,
            self.rewriter.waiting()
        );
        invariant!(
            counters.duplicates == counters.kept + counters.rewritten + counters.shared,
            "duplicates and decisions differ in number",
            counters
        );
        Ok(())
    }

    /// Adds what was done to a report.
    pub fn report(&self, report: &mut RewriteReport) {
        report.choice = Some(self.choice);
        report.streams.push(*self.rewriter.counters());
    }

    fn apply(
        &mut self,
        current: Option<&waiting::Released<'_>>,
        stream: &mut dyn Stream,
    ) -> Result<()> {
        let mut decided = std::mem::take(&mut self.decided);
        // Where chunks are that others share.
        let mut shared: HashMap<Fingerprint, Option<FrameId>, ByPrefix> = HashMap::default();
        for Decided { ticket, decision } in decided.drain(..) {
            let undecided = self.undecided.get(&ticket);
            let is_current = current.is_some_and(|now| now.ticket == ticket);
            invariant!(
                undecided.is_some() || is_current,
                "rewriting decides on a chunk that does not wait",
                ticket,
                decision
            );
            let instances = undecided.map_or(&*self.instances, |it| &*it.instances);
            match decision {
                Decision::Keep(name) => {
                    let kept = instances.iter().find(|frame| self.unit.id_of(**frame) == name);
                    invariant!(kept.is_some(), "a chunk is kept where it is not", name, instances);
                    stream.place(ticket, kept.copied());
                }
                Decision::Share => {
                    let frame = undecided.and_then(|it| shared.get(&it.fingerprint));
                    stream.place(ticket, frame.copied().flatten());
                }
                Decision::Rewrite => {
                    let waiting =
                        undecided.and_then(|it| self.candidates.get_key_value(&it.fingerprint));
                    let chunk = match (waiting, current) {
                        (Some((name, candidate)), _) => Some((name, candidate.bytes.as_slice())),
                        (None, Some(now)) if is_current => Some((now.fingerprint, now.bytes)),
                        _ => None,
                    };
                    let (fingerprint, bytes) = chunk.ok_or_else(|| {
                        bug!("the bytes of a chunk that is to be stored again are gone", ticket)
                    })?;
                    let elsewhere = self.elsewhere(fingerprint, instances, stream)?;
                    let frame = match elsewhere {
                        Elsewhere::In(frame) => Some(frame),
                        Elsewhere::Nowhere | Elsewhere::Torn => {
                            stream.store_again(fingerprint, bytes)?
                        }
                    };
                    match elsewhere {
                        Elsewhere::In(_) => self.rewriter.take_back(bytes.len() as u64),
                        Elsewhere::Torn => self.third_copies += 1,
                        Elsewhere::Nowhere => {}
                    }
                    shared.insert(*fingerprint, frame);
                    stream.place(ticket, frame);
                }
            }
            self.release(ticket);
        }
        self.decided = decided;
        Ok(())
    }

    /// A copy that makes it needless to store a chunk again, which was stored again before: of the
    /// copies `seen` or of those that the look-up did not happen to meet. One is good enough unless
    /// the previous version used little of what lies around it. Otherwise the chunk is stored a
    /// third time; so are no more chunks than the stream had new ones, or what one version does to
    /// data that do not change the next one might undo for ever.
    fn elsewhere(
        &self,
        fingerprint: &Fingerprint,
        seen: &[FrameId],
        stream: &mut dyn Stream,
    ) -> Result<Elsewhere> {
        let others = stream.others(fingerprint, seen)?;
        if seen.len() + others.len() < 2 {
            return Ok(Elsewhere::Nowhere);
        }
        let newest_first = || others.iter().chain(seen);
        let usage = |frame: &FrameId| self.history.as_ref()?.get(&self.unit.id_of(*frame));
        let is_sparse = |frame: &FrameId| match &self.targets {
            Some(targets) => targets.contains(&self.unit.id_of(*frame)),
            None => usage(frame).and_then(|usage| usage.is_sparse()) == Some(true),
        };
        let stays = newest_first().find(|frame| self.stays(&self.unit.id_of(**frame)));
        let good = stays.or_else(|| others.iter().find(|frame| !is_sparse(frame)));
        if good.is_none() && self.third_copies < self.rewriter.counters().unique {
            return Ok(Elsewhere::Torn);
        }
        let kept = good.or_else(|| newest_first().max());
        Ok(kept.map_or(Elsewhere::Nowhere, |frame| Elsewhere::In(*frame)))
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
