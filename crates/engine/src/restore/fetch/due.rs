//! Deltas that wait for their bases, and when each is made.
//!
//! A pass reads the frames with deltas first and keeps their payloads, which are short; bases are
//! long. So bases come to the deltas: the pass behind it reads every other frame, and when one is
//! open in which all bases of a delta lie, the delta is made there and then, and nothing of the
//! frame is held. What is made of bases that are held already, or lie in several frames, or in
//! none that is known, is made beside that.
//!
//! Invariants: every waiting piece is in exactly one entry.

use super::work::Waiting;
use crate::chunk_store::prefix_hasher::ByPrefix;
use crate::restore::bases::Held;
use crate::restore::visits::{Place, Spot, Visits};
use crate::restore::window::SortedWindow;
use onefold_types::Fingerprint;
use std::collections::HashMap;
use std::ops::Range;

/// Pieces of one frame that wait for the same: whose, and which of them.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub waiting: usize,
    pub pieces: Range<usize>,
}

/// When what waits is made.
#[derive(Default)]
pub(super) struct Due {
    /// At once.
    pub now: Vec<Entry>,
    /// When this frame is open.
    pub then: HashMap<Place, Vec<Entry>>,
}

impl Due {
    /// All of it at once, frame by frame.
    pub fn now(waiting: &[Waiting]) -> Self {
        let whole =
            |(number, it): (usize, &Waiting)| Entry { waiting: number, pieces: 0..it.pieces.len() };
        Self { now: waiting.iter().enumerate().map(whole).collect(), ..Self::default() }
    }

    /// What is made when, if these visits come next: each opens the spots that it names.
    pub fn by_frame(
        (window, waiting): (&SortedWindow, &[Waiting]),
        (visits, spots): (&Visits, &[Spot]),
        held: &Held,
    ) -> Self {
        let mut places = HashMap::<Fingerprint, Place, ByPrefix>::default();
        for spot in visits.frames.iter().flat_map(|visit| &spots[visit.spots.clone()]) {
            places.insert(spot.chunk.fingerprint, spot.place());
        }
        let place_of = |delta: u32| -> Option<Place> {
            let delta = window.deltas.get(delta as usize)?;
            let mut left = delta.bases.iter().filter(|base| !held.contains_key(&base.fingerprint));
            let place = places.get(&left.next()?.fingerprint)?;
            left.all(|base| places.get(&base.fingerprint) == Some(place)).then_some(*place)
        };
        let mut due = Self::default();
        for (number, it) in waiting.iter().enumerate() {
            let mut end = 0;
            for same in it.pieces.chunk_by(|(_, a), (_, b)| a.chunk_offset == b.chunk_offset) {
                let pieces = end..end + same.len();
                end = pieces.end;
                let entry = Entry { waiting: number, pieces };
                match same.first().and_then(|(_, piece)| place_of(piece.delta)) {
                    Some(place) => due.then.entry(place).or_default().push(entry),
                    None => due.now.push(entry),
                }
            }
        }
        due
    }
}
