//! What lies beside bases, kept until its turn: for an output that is written from its beginning to
//! its end.
//!
//! What a part of a window is made of is read before the part itself, and the frames with bases
//! hold pieces of the part as well. Read for these again, most containers of an image were read
//! twice: a dump took half as long again on devices that seek. So of each such frame what some read
//! of the part wants is kept, as it lies there: chunks, and payloads of deltas. A file that can be
//! written anywhere needs none of this: it takes at once what lies beside bases.
//!
//! Invariants: nothing of what is kept was verified yet; a frame is given up once all reads of the
//! part that want something of it had it.
//!
//! Memory: what the purse gives, up to the size of a dump's stash. What does not fit is read again.
//!
//! Concurrency: filled by several threads, then asked by one.

use super::visits::{Place, Spot, Visit, Visits, by_frame};
use super::window::{NeededFrame, SortedWindow};
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_types::ContainerId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is wanted of a frame.
#[derive(Default)]
struct Wanted {
    /// Reads of the part that want it.
    reads: u32,
    /// Where chunks and payloads begin in the plain frame, rising, and how long they are.
    chunks: Vec<(u32, u32)>,
}

/// What was kept of a frame.
pub struct KeptFrame {
    /// Chunks and payloads, one behind another.
    pub payloads: Arc<Vec<u8>>,
    /// Where they began in the frame, rising, and where they begin now.
    places: Arc<[(u32, u32)]>,
}

impl KeptFrame {
    /// Where what began there in the frame begins now.
    #[must_use]
    pub fn moved(&self, chunk_offset: u32) -> Option<u32> {
        let found = self.places.binary_search_by_key(&chunk_offset, |(before, _)| *before);
        found.ok().map(|found| self.places[found].1)
    }
}

/// The frames of a part that are read for its bases, and what is kept of them.
pub struct Kept {
    wanted: HashMap<Place, Wanted>,
    frames: Mutex<HashMap<Place, (KeptFrame, u32)>>,
    _lease: Lease,
}

impl Kept {
    /// The visits that read the bases of some reads, with all frames of their containers that these
    /// reads want and for which there is room; and what is to be kept of them.
    #[must_use]
    pub fn plan(
        repository: &Repository,
        (window, reads): (&SortedWindow, Range<usize>),
        spots: &[Spot],
    ) -> (Visits, Self) {
        let mut beside = beside(window, reads, spots);
        let size = |wanted: &Wanted| -> usize {
            wanted.chunks.iter().map(|(_, length)| *length as usize).sum()
        };
        let all_bytes: usize = beside.values().map(|(_, wanted)| size(wanted)).sum();
        let purse = repository.purse();
        let bytes_max = (purse.left_bytes() / 2).min(repository.memory().stash_bytes);
        let lease = purse.take(all_bytes.min(bytes_max));
        let mut left = lease.bytes();
        let mut fit = |wanted: &Wanted| {
            let fits = size(wanted) <= left;
            left -= if fits { size(wanted) } else { 0 };
            fits
        };
        // Frames that hold bases first: the others only come together with these.
        let holding: HashSet<Place> = spots.iter().map(Spot::place).collect();
        let mut fitting = HashSet::new();
        for is_holding in [true, false] {
            let of = beside.iter().filter(|(place, _)| holding.contains(place) == is_holding);
            fitting.extend(of.filter(|(_, (_, wanted))| fit(wanted)).map(|(place, _)| *place));
        }
        beside.retain(|place, _| fitting.contains(place));
        let mut visits = Visits::default();
        let mut end = 0;
        for of_container in spots.chunk_by(|one, other| one.container == other.container) {
            let start = end;
            end += of_container.len();
            let Some(container) = of_container.first().map(|spot| spot.container) else { continue };
            let frames = beside.range((container, 0)..=(container, u32::MAX));
            let visit = |(needed, _): &(NeededFrame, Wanted)| Visit {
                needed: *needed,
                frame: None,
                spots: 0..0,
            };
            let frames = frames.map(|(_, frame)| visit(frame)).collect();
            visits.add(frames, spots, by_frame(spots, start..end));
        }
        let wanted = beside.into_iter().map(|(place, (_, wanted))| (place, wanted)).collect();
        (visits, Self { wanted, frames: Mutex::default(), _lease: lease })
    }

    /// Keeps what is wanted of a frame that was read.
    pub fn note(&self, place: Place, plain: &[u8]) {
        let Some(wanted) = self.wanted.get(&place) else { return };
        let (mut payloads, mut places) = (Vec::new(), Vec::new());
        for &(offset, length) in &wanted.chunks {
            let end = offset as usize + length as usize;
            // What the frame is too short for is lost when its turn comes.
            let Some(bytes) = plain.get(offset as usize..end) else { return };
            places.push((offset, payloads.len() as u32));
            payloads.extend_from_slice(bytes);
        }
        let kept = KeptFrame { payloads: Arc::new(payloads), places: places.into() };
        self.lock().insert(place, (kept, wanted.reads));
    }

    /// What was kept of a frame, for one of the reads that want it.
    #[must_use]
    pub fn take(&self, place: Place) -> Option<KeptFrame> {
        let mut frames = self.lock();
        let (kept, reads) = frames.get_mut(&place)?;
        *reads = reads.saturating_sub(1);
        if *reads == 0 {
            return frames.remove(&place).map(|(kept, _)| kept);
        }
        let KeptFrame { payloads, places } = kept;
        Some(KeptFrame { payloads: Arc::clone(payloads), places: Arc::clone(places) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, (KeptFrame, u32)>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What some reads want of the containers that hold their bases, frame by frame.
fn beside(
    window: &SortedWindow,
    reads: Range<usize>,
    spots: &[Spot],
) -> BTreeMap<Place, (NeededFrame, Wanted)> {
    let mut containers: Vec<ContainerId> = spots.iter().map(|spot| spot.container).collect();
    containers.dedup();
    let mut beside = BTreeMap::new();
    for frame in window.reads[reads].iter().flat_map(Clone::clone) {
        let needed = window.frames[frame];
        if containers.binary_search(&needed.container).is_err() {
            continue;
        }
        let place = (needed.container, needed.number);
        let (_, wanted) = beside.entry(place).or_insert_with(|| (needed, Wanted::default()));
        wanted.reads += 1;
        let pieces = &window.pieces[window.starts[frame]..window.starts[frame + 1]];
        wanted.chunks.extend(pieces.iter().map(|it| (it.chunk_offset, it.payload_length)));
    }
    for (_, wanted) in beside.values_mut() {
        wanted.chunks.sort_unstable();
        wanted.chunks.dedup();
    }
    beside
}
