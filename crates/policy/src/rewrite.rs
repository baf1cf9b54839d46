//! Rewriting: which duplicates of a stream are stored again, so that restoring it reads fewer
//! containers.
//!
//! | module | policy | after |
//! | --- | --- | --- |
//! | `combined` | whatever saves most reads for its bytes, by history and window: the default |
//! this project |
//! | `baselines` | four policies of the papers | for comparison, by name only |
//!
//! A [`StreamRewriter`] sees the chunks of one stream, in order, after look-up. It holds no chunk:
//! from the moment a duplicate is pushed until it is decided the owner holds its bytes, one copy of
//! equal chunks (the rewrite-candidate cache of S2.18), and the policy counts them.
//!
//! Invariants: each chunk that stands in old containers gets exactly one decision, at the latest
//! from [`StreamRewriter::finish`]; a chunk is kept only in a container among its own instances;
//! [`Decision::Share`] follows a [`Decision::Rewrite`] of an equal chunk; the same chunks get the
//! same decisions every time. Whatever is decided, the stream can be restored: what a session that
//! dies had not decided, nothing refers to.
//!
//! Memory: what is waiting, some hundred bytes for each chunk of a segment or of the window; for
//! `history` and `combined` also some fifty bytes for each container of the history.

mod baselines;
mod bounds;
mod combined;
mod container_use;
mod counters;
mod instances;
mod parameters;
mod recipe_cache;
mod slots;
mod targets;
mod unit_id;

pub use container_use::{ContainerUse, SPAN_BYTES, Usage};
pub use counters::RewriteCounters;
pub use parameters::{
    Before, Expected, LOSS_DEFAULT, RewriteChoice, RewriteLimits, RewriteParameters,
};
pub use targets::sparsest;
pub use unit_id::UnitId;

use crate::duplicate_status::DuplicateStatus;
use baselines::capping;
use baselines::flexible::Flexible;
use baselines::history::History;
use baselines::look_back_window::LookBackWindow;
use baselines::segment::Segment;
use combined::Combined;
use onefold_types::{Fingerprint, Result};
use parameters::LEVEL_DEFAULT;

/// A chunk of the stream, after look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamChunk<'a> {
    /// The owner's name for this chunk of the stream; tickets rise.
    pub ticket: u64,
    /// The chunk.
    pub fingerprint: Fingerprint,
    /// Its plain size.
    pub size_bytes: u32,
    /// Where it is. Of an old duplicate all known instances, newest first: which one is referred to
    /// is the policy's choice (S2.21). Of none at all the owner has to store it.
    pub status: DuplicateStatus<&'a [UnitId]>,
}

/// A chunk that has to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// A small number that equal chunks share while they wait.
    pub slot: u32,
    /// Whether it may be stored again. If not, it will be kept, or share another one's copy: its
    /// bytes are not asked for.
    pub is_open: bool,
}

/// What becomes of a chunk in old containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Refer to the instance in this old container.
    Keep(UnitId),
    /// Store it again: the owner appends it to the active container now. Exactly one ticket for
    /// each stored copy.
    Rewrite,
    /// An equal chunk of the stream was rewritten: refer to that copy, store nothing.
    Share,
}

/// The decision on one chunk of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decided {
    /// The chunk's ticket.
    pub ticket: u64,
    /// What becomes of its chunk.
    pub decision: Decision,
}

/// The rewriting of one stream.
#[derive(Debug)]
pub struct StreamRewriter {
    kind: Kind,
    counters: RewriteCounters,
}

#[derive(Debug)]
enum Kind {
    None,
    History(Box<History>),
    Segments(Box<Segments>),
    Window(Box<LookBackWindow>),
    Combined(Box<Combined>),
}

impl StreamRewriter {
    /// A stream that starts with nothing waiting. Limits of the choice come before those of the
    /// parameters.
    ///
    /// # Errors
    /// A parameter is out of range (`Invalid`); the message names the range.
    pub fn new(choice: &RewriteChoice, parameters: RewriteParameters) -> Result<Self> {
        let level_asked = parameters.reads_max;
        let parameters = parameters.with(choice);
        parameters.validate()?;
        let kind = match choice {
            RewriteChoice::None => Kind::None,
            RewriteChoice::Capping { level } => {
                let asked = level_asked.map(|reads| reads as u32);
                let level = level.or(asked).unwrap_or(LEVEL_DEFAULT);
                Kind::Segments(Box::new(Segments::new(&parameters, Ranking::Capping(level))))
            }
            RewriteChoice::Flexible(_) => {
                let flexible = Flexible::new(&parameters);
                Kind::Segments(Box::new(Segments::new(&parameters, Ranking::Flexible(flexible))))
            }
            RewriteChoice::Window(_) => Kind::Window(Box::new(LookBackWindow::new(&parameters))),
            RewriteChoice::History(_) => Kind::History(Box::new(History::new(&parameters))),
            RewriteChoice::Auto(_) => Kind::Combined(Box::new(Combined::new(parameters))),
        };
        Ok(Self { kind, counters: RewriteCounters::default() })
    }

    /// Hands in the next chunk of the stream. Decisions that fall now are appended to `decided`,
    /// in any order of their tickets: only chunks that stand in old containers get one.
    ///
    /// A chunk of which no instance is named is stored: [`Decision::Rewrite`]. Returns what is to
    /// be known of a chunk that has to wait, or had to until this call decided on it.
    pub fn push(
        &mut self,
        chunk: &StreamChunk<'_>,
        decided: &mut Vec<Decided>,
    ) -> Option<Candidate> {
        let counters = &mut self.counters;
        counters.see(chunk);
        let at_once = match (&mut self.kind, chunk.status) {
            (_, DuplicateStatus::Old(&[])) => Some(Decision::Rewrite),
            (Kind::None, DuplicateStatus::Old(&[newest, ..])) => Some(Decision::Keep(newest)),
            (Kind::History(history), DuplicateStatus::Old(instances)) => {
                history.decide(instances, counters)
            }
            (
                Kind::None | Kind::History(_),
                DuplicateStatus::Unique | DuplicateStatus::Fresh(()),
            ) => None,
            (Kind::Segments(segments), _) => {
                return segments.push(chunk, decided, counters);
            }
            (Kind::Window(window), _) => {
                return window.push(chunk, decided, counters);
            }
            (Kind::Combined(combined), _) => {
                return combined.push(chunk, decided, counters);
            }
        };
        if let Some(decision) = at_once {
            counters.note(&decision, chunk.size_bytes);
            decided.push(Decided { ticket: chunk.ticket, decision });
        }
        None
    }

    /// Decides everything that waits, by the same rules (S2.30). The stream can go on afterwards.
    pub fn finish(&mut self, decided: &mut Vec<Decided>) {
        let counters = &mut self.counters;
        match &mut self.kind {
            Kind::None | Kind::History(_) => {}
            Kind::Segments(segments) => segments.finish(decided, counters),
            Kind::Window(window) => window.finish(decided, counters),
            Kind::Combined(combined) => combined.finish(decided, counters),
        }
    }

    /// The owner did not carry out a [`Decision::Rewrite`] of a chunk of so many bytes, because it
    /// found another copy: what may be rewritten is not used up by it.
    pub fn take_back(&mut self, size_bytes: u64) {
        self.counters.take_back(size_bytes);
    }

    /// Chunks that wait for a decision.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        match &self.kind {
            Kind::None | Kind::History(_) => 0,
            Kind::Segments(segments) => segments.segment.waiting(),
            Kind::Window(window) => window.waiting(),
            Kind::Combined(combined) => combined.waiting(),
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> &RewriteCounters {
        &self.counters
    }
}

/// A policy that decides segment by segment.
#[derive(Debug)]
struct Segments {
    segment: Segment,
    segment_bytes: u64,
    candidates_bytes_max: u64,
    ranking: Ranking,
}

#[derive(Debug)]
enum Ranking {
    Capping(u32),
    Flexible(Flexible),
}

impl Segments {
    fn new(parameters: &RewriteParameters, ranking: Ranking) -> Self {
        Self {
            segment: Segment::default(),
            segment_bytes: parameters.segment_bytes(),
            candidates_bytes_max: parameters.candidates_bytes_max,
            ranking,
        }
    }

    fn push(
        &mut self,
        chunk: &StreamChunk<'_>,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) -> Option<Candidate> {
        let slot = self.segment.push(chunk, counters);
        if self.segment.stream_bytes() >= self.segment_bytes {
            self.finish(decided, counters);
        } else if self.segment.candidates_bytes() > self.candidates_bytes_max {
            counters.forced += self.segment.waiting();
            self.finish(decided, counters);
        }
        slot.map(|slot| Candidate { slot, is_open: true })
    }

    fn finish(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        if self.segment.stream_bytes() == 0 {
            return;
        }
        let uses = self.segment.rank();
        let rewritten = match &mut self.ranking {
            Ranking::Capping(level) => capping::beyond(*level, &uses),
            Ranking::Flexible(flexible) => flexible.below(&uses, counters),
        };
        self.segment.decide(&rewritten, decided, counters);
    }
}
