//! The frames that a part of a window is read from, in two passes: those with deltas, and the rest.
//!
//! Deltas can be made once their bases are there, and bases lie in frames that are mostly wanted
//! for pieces as well. Payloads of deltas are short and bases are long, so the frames with deltas
//! come first, and what they hold of these waits for the second pass, which makes each of it while
//! the frame with its bases is open ([`super::fetch`]). So each frame is read once, and little is
//! held: bases that lie in containers with deltas, all of whose frames come first with one visit,
//! as far as there is room. Else only the frames with deltas do, and the bases in these are held;
//! where there is no room for that either the frame comes again. With bases held and payloads read
//! when their turn came a restore of fifty generations opened 591 MB with 256 MiB of memory, of
//! which 265 are needed.
//!
//! A dump cannot take early what lies beside bases: it keeps it ([`super::kept`]).
//!
//! Invariants: every frame of the part's reads is in exactly one pass for its pieces, once for each
//! read that needs it; every base in exactly one pass. Within a read of a container frames rise.
//! Containers that are read for bases alone rise and come before the others of the second pass;
//! these keep the order of the window.

use super::window::{NeededFrame, SortedWindow};
use onefold_format::container::{ChunkDescriptor, FrameDescriptor};
use onefold_types::ContainerId;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What is known of a delta that waits, beside its payload: its piece, where its base is, and when
/// it is made.
const WAITING_BYTES: u64 = 640;

/// A frame: its container, and its number there.
pub type Place = (ContainerId, u32);

/// A base where it lies: a whole chunk.
#[derive(Clone, Copy)]
pub struct Spot {
    pub container: ContainerId,
    pub frame: FrameDescriptor,
    pub chunk: ChunkDescriptor,
    /// Whether something is made of it and of others, so that it is held until all are there.
    pub is_one_of_several: bool,
}

/// Room for what waits, and for bases that are held.
#[derive(Clone, Copy)]
pub struct Room {
    pub waiting_bytes: u64,
    pub held_bytes: u64,
}

impl Spot {
    /// The frame: its container, and its number there.
    pub fn place(&self) -> Place {
        (self.container, self.chunk.frame)
    }
}

/// A frame that is read, and what for.
pub struct Visit {
    pub needed: NeededFrame,
    /// Its pieces, if it has any: the frame's index in the window.
    pub frame: Option<usize>,
    /// The bases in it, as indices into the spots.
    pub spots: Range<usize>,
}

/// The frames of one pass.
#[derive(Default)]
pub struct Visits {
    pub frames: Vec<Visit>,
    /// Those of each read of a container, or of a part of it.
    pub reads: Vec<Range<usize>>,
}

impl Visits {
    /// Both passes for some of a window's reads, and the bases of what they need, in stored order,
    /// of which the first holds no more than there is room for. Of deltas that cannot wait it takes
    /// nothing: they are made when their frame is open, of bases that are read for each.
    pub fn of_part(
        window: &SortedWindow,
        reads: Range<usize>,
        spots: &[Spot],
        room: Room,
    ) -> [Self; 2] {
        let [mut first, mut second] = [Self::default(), Self::default()];
        let container_of = |read: usize| window.frames[window.reads[read].start].container;
        // Of several reads of a container, which no sorted window has, the first serves the bases.
        let mut read_of = HashMap::new();
        for read in reads.clone() {
            read_of.entry(container_of(read)).or_insert(read);
        }
        let mut bases_of = HashMap::new();
        let (mut waiting_bytes, mut held_bytes) = (0, 0);
        let is_held = |of_frame: &Range<usize>, numbers: &HashSet<u32>, held_bytes: &mut u64| {
            let of_frame = &spots[of_frame.clone()];
            let (bytes, number) = (bytes_of(of_frame), of_frame.first().map(|it| it.chunk.frame));
            let one_of_several = of_frame.iter().any(|it| it.is_one_of_several);
            let is_held = (one_of_several || number.is_some_and(|it| numbers.contains(&it)))
                && *held_bytes + bytes <= room.held_bytes;
            *held_bytes += if is_held { bytes } else { 0 };
            is_held
        };
        let mut end = 0;
        for of_container in spots.chunk_by(|one, other| one.container == other.container) {
            let start = end;
            end += of_container.len();
            let Some(container) = of_container.first().map(|spot| spot.container) else { continue };
            match read_of.get(&container) {
                Some(read) => {
                    bases_of.insert(*read, start..end);
                }
                None => {
                    let (held, passed) = by_frame(spots, start..end)
                        .into_iter()
                        .partition(|it| is_held(it, &HashSet::new(), &mut held_bytes));
                    first.add(Vec::new(), spots, held);
                    second.add(Vec::new(), spots, passed);
                }
            }
        }
        for read in reads {
            let mut all_wait = true;
            let (deltas, others): (Vec<usize>, Vec<usize>) =
                window.reads[read].clone().partition(|frame| {
                    let bytes = waiting_bytes_of(window, *frame);
                    let waits = bytes > 0 && waiting_bytes + bytes <= room.waiting_bytes;
                    waiting_bytes += if waits { bytes } else { 0 };
                    all_wait &= waits || bytes == 0;
                    waits
                });
            let numbers: HashSet<u32> =
                deltas.iter().map(|frame| window.frames[*frame].number).collect();
            let bases = bases_of.get(&read).cloned().unwrap_or_default();
            let bases_bytes = bytes_of(&spots[bases.clone()]);
            if !deltas.is_empty() && all_wait && held_bytes + bases_bytes <= room.held_bytes {
                held_bytes += bases_bytes;
                let all = of_pieces(window, window.reads[read].clone());
                first.add(all, spots, by_frame(spots, bases));
                continue;
            }
            let (held, passed) = by_frame(spots, bases)
                .into_iter()
                .partition(|of_frame| is_held(of_frame, &numbers, &mut held_bytes));
            first.add(of_pieces(window, deltas), spots, held);
            second.add(of_pieces(window, others), spots, passed);
        }
        [first, second]
    }

    /// Divides reads of containers, the longest first, until there are so many parts that threads
    /// find something to do to the end. No part has less than `part_min_bytes`: what one request
    /// reads is not divided.
    #[must_use]
    pub fn divided(mut self, parts: usize, part_min_bytes: u64) -> Self {
        let bytes = |visit: &Visit| u64::from(visit.needed.descriptor.stored_length);
        let bytes_of = |range: &Range<usize>| self.frames[range.clone()].iter().map(bytes).sum();
        // Where reads begin that cannot be divided.
        let mut whole = HashSet::new();
        while self.reads.len() < parts {
            let divisible = self.reads.iter().enumerate();
            let divisible = divisible.filter(|(_, range)| !whole.contains(&range.start));
            let lengths = divisible.map(|(read, range)| (read, bytes_of(range)));
            let Some((longest, length)) = lengths.max_by_key(|(_, length): &(usize, u64)| *length)
            else {
                break;
            };
            let range = self.reads[longest].clone();
            let mut before = 0;
            let half = range.clone().find(|frame| {
                before += bytes(&self.frames[*frame]);
                before >= length / 2
            });
            let middle = half.map_or(range.end, |frame| frame + 1);
            if before < part_min_bytes || length - before < part_min_bytes {
                whole.insert(range.start);
                continue;
            }
            self.reads[longest] = range.start..middle;
            self.reads.insert(longest + 1, middle..range.end);
        }
        self
    }

    /// A read of a container: for pieces, in stored order, and for the bases in some frames.
    pub fn add(&mut self, mut pieces: Vec<Visit>, spots: &[Spot], bases: Vec<Range<usize>>) {
        if pieces.is_empty() && bases.is_empty() {
            return;
        }
        let start = self.frames.len();
        for of_frame in bases {
            let Some(spot) = spots.get(of_frame.start) else { continue };
            let number = spot.chunk.frame;
            match pieces.binary_search_by_key(&number, |visit| visit.needed.number) {
                Ok(found) => pieces[found].spots = of_frame,
                Err(_) => {
                    let (container, descriptor) = (spot.container, spot.frame);
                    let needed = NeededFrame { container, number, descriptor };
                    self.frames.push(Visit { needed, frame: None, spots: of_frame });
                }
            }
        }
        self.frames.append(&mut pieces);
        self.frames[start..].sort_unstable_by_key(|visit| visit.needed.number);
        self.reads.push(start..self.frames.len());
    }
}

fn bytes_of(spots: &[Spot]) -> u64 {
    spots.iter().map(|spot| u64::from(spot.chunk.length)).sum()
}

/// What the deltas of a frame take while they wait; 0 if there are none.
pub fn waiting_bytes_of(window: &SortedWindow, frame: usize) -> u64 {
    let pieces = &window.pieces[window.starts[frame]..window.starts[frame + 1]];
    let deltas = pieces.iter().filter(|piece| piece.descriptor().is_delta());
    deltas.map(|piece| u64::from(piece.payload_length) + WAITING_BYTES).sum()
}

/// Bases in stored order, frame by frame.
pub fn by_frame(spots: &[Spot], of: Range<usize>) -> Vec<Range<usize>> {
    let mut end = of.start;
    let frames = spots[of].chunk_by(|one, other| one.place() == other.place());
    frames
        .map(|of_frame| {
            let start = end;
            end += of_frame.len();
            start..end
        })
        .collect()
}

/// Frames that are read for their pieces alone.
pub fn of_pieces(window: &SortedWindow, frames: impl IntoIterator<Item = usize>) -> Vec<Visit> {
    let visit =
        |frame: usize| Visit { needed: window.frames[frame], frame: Some(frame), spots: 0..0 };
    frames.into_iter().map(visit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::Location;
    use crate::restore::window::Window;
    use onefold_format::codec::Codec;
    use onefold_format::container::{Delta, MetadataSection};
    use onefold_types::{Fingerprint, Level};
    use std::sync::Arc;

    /// Frames of so many KiB each, in reads.
    fn visits(reads: &[&[u32]]) -> Visits {
        let mut visits = Visits::default();
        for (container, lengths) in (0..).zip(reads) {
            let start = visits.frames.len();
            for (number, kib) in (0..).zip(*lengths) {
                let stored_length = kib << 10;
                let descriptor = FrameDescriptor {
                    offset: 0,
                    stored_length,
                    plain_length: stored_length,
                    codec: Codec::Zstd,
                };
                let container = ContainerId([container; 16]);
                let needed = NeededFrame { container, number, descriptor };
                visits.frames.push(Visit { needed, frame: None, spots: 0..0 });
            }
            visits.reads.push(start..visits.frames.len());
        }
        visits
    }

    fn divided(reads: &[&[u32]], parts: usize) -> Vec<(usize, usize)> {
        let reads = visits(reads).divided(parts, 512 << 10).reads;
        reads.into_iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn the_longest_reads_are_divided_until_there_is_enough_for_all_threads() {
        let reads: [&[u32]; 2] = [&[512; 8], &[512, 512]];
        assert_eq!(divided(&reads, 2), [(0, 8), (8, 10)]);
        assert_eq!(divided(&reads, 3), [(0, 4), (4, 8), (8, 10)]);
        assert_eq!(divided(&reads, 5), [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]);
        // No part is shorter than a request that pays.
        assert_eq!(divided(&reads, 99).len(), 10);
        assert_eq!(divided(&[&[256, 255]], 8), [(0, 2)]);
        assert_eq!(divided(&[&[2048]], 8), [(0, 1)]);
        assert_eq!(divided(&[&[100, 2048]], 8), [(0, 2)]);
        assert_eq!(divided(&[&[100, 2048], &[512, 512]], 8), [(0, 2), (2, 3), (3, 4)]);
        assert!(divided(&[], 8).is_empty());
    }

    #[test]
    fn bases_beside_deltas_are_held_as_far_as_there_is_room() {
        const KIB: u32 = 1 << 10;
        // One container: frame 0 holds bases, frame 1 a delta and bases, frame 2 a chunk.
        let of = ContainerId([1; 16]);
        let descriptor = |number: u32| FrameDescriptor {
            offset: u64::from(number * 100 * KIB),
            stored_length: 100 * KIB,
            plain_length: 100 * KIB,
            codec: Codec::Zstd,
        };
        let chunk = |name: u8, frame: u32, payload_length: u32| ChunkDescriptor {
            fingerprint: Fingerprint([name; 32]),
            length: 30 * KIB,
            level: Level::DATA,
            frame,
            offset: u32::from(name) * 30 * KIB,
            payload_length,
        };
        let mut window = Window::default();
        let mut section = MetadataSection::default();
        section.frames.extend((0..3).map(descriptor));
        section.chunks.extend([chunk(0, 1, 100), chunk(0, 2, 30 * KIB)]);
        let delta = Delta { chunk: 0, depth: 1, bases: Vec::new(), payload_length: 100 };
        section.deltas.push(delta);
        let section = Arc::new(section);
        for position in 0..2 {
            let location = Location { container: of, section: Arc::clone(&section), position };
            window.push(&location, 0, 0, u64::from(30 * KIB)).unwrap();
        }
        let window = window.sort();
        let spot = |name: u8, frame: u32| {
            let (chunk, frame) = (chunk(name, frame, 30 * KIB), descriptor(frame));
            Spot { container: of, frame, chunk, is_one_of_several: false }
        };
        let spots = [spot(1, 0), spot(2, 0), spot(1, 1), spot(2, 1)];
        let shown = |waiting_bytes: u64, held_bytes: u64, spots: &[Spot]| {
            let room = Room { waiting_bytes, held_bytes };
            let passes = Visits::of_part(&window, 0..1, spots, room);
            passes.map(|pass| {
                let frames = pass.frames.iter();
                frames
                    .map(|it| (it.needed.number, it.frame.is_some(), it.spots.clone()))
                    .collect::<Vec<_>>()
            })
        };
        let [first, second] = shown(740, u64::from(120 * KIB), &spots);
        assert_eq!(first, [(0, false, 0..2), (1, true, 2..4), (2, true, 0..0)]);
        assert!(second.is_empty());
        // One byte too few for all of them: the container comes twice, and each frame once.
        let [first, second] = shown(740, u64::from(120 * KIB) - 1, &spots);
        assert_eq!(first, [(1, true, 2..4)]);
        assert_eq!(second, [(0, false, 0..2), (2, true, 0..0)]);
        let [first, second] = shown(740, u64::from(60 * KIB), &spots);
        assert_eq!(first, [(1, true, 2..4)]);
        assert_eq!(second, [(0, false, 0..2), (2, true, 0..0)]);
        // One byte too few: the frame comes again.
        let [first, second] = shown(740, u64::from(60 * KIB) - 1, &spots);
        assert_eq!(first, [(1, true, 0..0)]);
        assert_eq!(second, [(0, false, 0..2), (1, false, 2..4), (2, true, 0..0)]);
        // No room for the delta and its 100 bytes: it does not wait.
        let [first, second] = shown(739, u64::from(60 * KIB), &spots);
        assert!(first.is_empty());
        assert_eq!(second, [(0, false, 0..2), (1, true, 2..4), (2, true, 0..0)]);
        // What is made of several is held.
        let several = spots.map(|it| Spot { is_one_of_several: true, ..it });
        let [first, second] = shown(740, u64::from(120 * KIB) - 1, &several);
        assert_eq!(first, [(0, false, 0..2), (1, true, 0..0)]);
        assert_eq!(second, [(1, false, 2..4), (2, true, 0..0)]);
    }
}
