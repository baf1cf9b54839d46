//! Fetches what a window needs: verified bytes to whoever wants them.
//!
//! Algorithm: as many reads of containers as there is room for the deltas of are one part, which
//! has two passes ([`super::visits`]). The first reads frames with deltas, and delivers what lies
//! beside these at once; deltas wait as payloads. The second reads all other frames, delivers what
//! is wanted of them, and makes what waits for them ([`due`]); what could not be made then comes
//! last ([`work`]).
//!
//! A dump asks for the bases alone, keeps what lies beside them, and fetches what it needs in its
//! order then ([`super::kept`]).
//!
//! Invariants: a piece is either delivered or handed back as lost, with the reason, exactly once,
//! unless nobody wants it any more; they are counted. Nothing waits for bases when a part ends.

mod due;
mod work;

use super::bases::{HeldBases, Part, Until};
use super::kept::Kept;
use super::request_costs::{Reach, RequestCosts};
use super::visits::{self, Visits};
use super::window::{Piece, SortedWindow};
use crate::chunks::ChunkReader;
use crate::job::Job;
use due::Due;
use onefold_types::{ErrorKind, Result, invariant};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use work::{Scratch, Waiting, Work};

/// Parts that the work of a pass has for each thread at least, if it can be divided.
const PARTS_A_THREAD: usize = 4;

/// Where verified bytes go. An error is the end of the whole job.
pub trait Sink: Sync {
    /// Whether bytes for this output are still of use.
    fn wants(&self, output: u32) -> bool;
    /// Takes the bytes of a run of pieces, which are neighbours in the frame and in the output.
    fn deliver(&self, output: u32, offset: u64, bytes: &[u8], run: &[Piece]) -> Result<()>;
}

/// A piece that could not be read where it was said to lie.
pub struct Lost {
    /// The piece, as an index into the window.
    pub piece: usize,
    /// Why.
    pub reason: Arc<(ErrorKind, String)>,
}

/// What fetching a window gave.
#[derive(Default)]
pub struct Fetched {
    /// Pieces that were not delivered.
    pub lost: Vec<Lost>,
    /// Stored bytes read.
    pub bytes_read: u64,
    /// Pieces that were delivered, handed back as lost, or not wanted.
    settled: usize,
}

/// What workers keep from one window to the next: working memory, and what requests cost.
#[derive(Default)]
pub struct Workspace {
    scratch: Mutex<Vec<Scratch>>,
    costs: Mutex<RequestCosts>,
    /// How far requests reach, if it is not to be learnt.
    reach: Option<Reach>,
}

impl Workspace {
    /// A workspace whose requests reach so far; as far as pays if nothing is said.
    #[must_use]
    pub fn new(reach: Option<Reach>) -> Self {
        Self { reach, ..Self::default() }
    }

    /// How far a request is to reach just now.
    pub(super) fn reach(&self) -> Reach {
        self.reach.unwrap_or_else(|| lock(&self.costs).reach())
    }

    /// A request was made.
    pub(super) fn note(&self, bytes: usize, took: Duration) {
        lock(&self.costs).note(bytes, took);
    }
}

/// Whoever fetches: the reader of a store's chunks, how, and what may stop it.
#[derive(Clone, Copy)]
pub struct Fetcher<'a> {
    /// Knows where chunks are, and gives bases that are not held.
    pub chunks: &'a ChunkReader,
    /// Threads that read and open frames.
    pub threads: usize,
    /// What they keep.
    pub workspace: &'a Workspace,
    /// Stops them.
    pub job: &'a Job,
}

impl Fetcher<'_> {
    /// Fetches all pieces of a window.
    pub fn fetch<S: Sink>(self, window: &SortedWindow, sink: &S) -> Result<Fetched> {
        let mut fetched = Fetched::default();
        let mut first = 0;
        while first < window.reads.len() {
            let part = Part::next(self.chunks, (window, Until::Open), first)?;
            first = part.reads.end;
            self.part(part, window, sink, &mut fetched)?;
        }
        Ok(fetched)
    }

    fn part<S: Sink>(
        self,
        part: Part,
        window: &SortedWindow,
        sink: &S,
        fetched: &mut Fetched,
    ) -> Result<()> {
        let planned = pieces_of(window, part.reads.clone());
        let passes = Visits::of_part(window, part.reads.clone(), &part.spots, part.room());
        let [first, second] = passes.map(|visits| self.divided(visits));
        let work = Work::first_pass(self, (window, &first), (&part.spots, None), sink);
        work.run()?;
        let (held, waiting) = work.end_of_first_pass(fetched);
        let due = Due::by_frame((window, &waiting), (&second, &part.spots), &held);
        let (spots, bases) = part.holding(held);
        let work =
            Work::second_pass(self, (window, &second), (&bases, &spots), (&waiting, due), sink);
        work.run()?;
        let left = work.end_with_rest(fetched);
        if !left.now.is_empty() {
            // Frames that could not be read: what waited for them may have other bases.
            let none = Visits::default();
            let work =
                Work::second_pass(self, (window, &none), (&bases, &spots), (&waiting, left), sink);
            work.run()?;
            work.end(fetched);
        }
        let settled = std::mem::take(&mut fetched.settled);
        invariant!(
            planned == settled,
            "not every piece was delivered or is lost",
            planned,
            settled
        );
        Ok(())
    }

    /// In so many parts that a thread that is done early finds another one.
    fn divided(&self, visits: Visits) -> Visits {
        match self.threads {
            0 | 1 => visits,
            threads => {
                visits.divided(threads * PARTS_A_THREAD, self.workspace.reach().read_bytes_max)
            }
        }
    }

    /// Reads the bases of as many reads of a window as there is room for, from one on, one at
    /// least, and keeps what these reads want of the frames around them.
    pub fn prepare<S: Sink>(
        self,
        window: &SortedWindow,
        first: usize,
        sink: &S,
    ) -> Result<Prepared> {
        let part = Part::next(self.chunks, (window, Until::End), first)?;
        let reads = part.reads.clone();
        let repository = self.chunks.repository();
        let (visits, kept) = Kept::plan(repository, (window, reads.clone()), &part.spots);
        let visits = self.divided(visits);
        let work = Work::first_pass(self, (window, &visits), (&part.spots, Some(&kept)), sink);
        work.run()?;
        let mut fetched = Fetched::default();
        let (held, _) = work.end_of_first_pass(&mut fetched);
        let ((_, bases), bytes_read) = (part.holding(held), fetched.bytes_read);
        Ok(Prepared { reads, bases, kept, bytes_read })
    }

    /// Fetches all pieces of a window, some of those whose bases were read.
    pub fn fetch_prepared<S: Sink>(
        self,
        prepared: &Prepared,
        window: &SortedWindow,
        sink: &S,
    ) -> Result<Fetched> {
        let planned = pieces_of(window, 0..window.reads.len());
        let (mut waiting, mut visits) = (Vec::new(), Visits::default());
        for frames in &window.reads {
            let mut left = frames.clone().collect::<Vec<_>>();
            left.retain(|&frame| {
                let kept = Waiting::of(&prepared.kept, window, frame);
                let is_left = kept.is_none();
                waiting.extend(kept);
                is_left
            });
            if !left.is_empty() {
                visits.add(visits::of_pieces(window, left), &[], Vec::new());
            }
        }
        let visits = self.divided(visits);
        let bases = (&prepared.bases, &[][..]);
        let due = (&waiting[..], Due::now(&waiting));
        let work = Work::second_pass(self, (window, &visits), bases, due, sink);
        work.run()?;
        let mut fetched = Fetched::default();
        work.end(&mut fetched);
        let settled = fetched.settled;
        invariant!(
            planned == settled,
            "not every piece was delivered or is lost",
            planned,
            settled
        );
        Ok(fetched)
    }
}

/// What some reads of a window are made of, and what was kept of them.
pub struct Prepared {
    /// The reads.
    pub reads: Range<usize>,
    /// Stored bytes read for that.
    pub bytes_read: u64,
    bases: HeldBases,
    kept: Kept,
}

fn pieces_of(window: &SortedWindow, reads: Range<usize>) -> usize {
    let of = |frames: &Range<usize>| window.starts[frames.end] - window.starts[frames.start];
    window.reads[reads].iter().map(of).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
