//! Deltas of a frame that is about to be sealed: which of its chunks are stored as differences.
//!
//! # Algorithm
//! For each data chunk a base is asked for ([`SimilarChunks`] knows what there is; stream-informed
//! delta compression, Shilane et al., FAST'12, section 3). A delta is made quickly, and kept
//! - at once if it takes an eighth of the chunk, what names its base included: hardly any chunk is
//!   worth a comparison then, and hardly any such delta becomes shorter at a higher level;
//! - otherwise only below half of what the chunk takes compressed alone. Where frames are
//!   compressed at a higher level and the delta is below `HOPEFUL_PERCENT` of that, it is made
//!   again at that level, also of the chunks beside its base, and compared then
//!   (docs/decisions/0063-levels-of-differences.md).
//!
//! Payloads and whole chunks stand in the frame in stream order, and are compressed and sealed
//! together: deltas are a few hundred bytes each.
//!
//! # Invariants
//! Nothing is relied upon before the delta that needs it is kept, and nothing kept that is not
//! relied upon. What is found here is verified with the frame ([`super::frame`]), like all in it.
//!
//! Concurrency: a [`DeltaMaker`] belongs to one thread; what knows the bases is shared.

use super::FrameId;
use super::delta::BaseBytes;
use super::frame::{FrameChunk, PlainFrame};
use onefold_format::codec::Compression;
use onefold_format::container::{Base, Delta, SKETCH_BYTES};
use onefold_format::delta::DeltaEncoder;
use onefold_types::{Fingerprint, limits};
use std::sync::Arc;

/// Bytes of a section that a delta takes beside its payload, about.
const RECORD_BYTES: usize = 40;
/// Shorter chunks are never stored as differences: there is nothing to be gained.
const CHUNK_MIN_BYTES: usize = 8 * RECORD_BYTES;

/// The level of zstd that all deltas are made at first, and chunks compared at.
const LEVEL: i32 = 1;
/// The highest level that some are made at again.
pub const AGAIN_LEVEL_MAX: i32 = 9;
/// Bases and chunk of those, together: with longer ones each thread's tables would take several MB
/// more.
pub const AGAIN_BYTES_MAX: usize = 256 * limits::KIB;
/// Of what a chunk takes alone: longer deltas are not made again.
const HOPEFUL_PERCENT: usize = 65;

/// With less memory than this, in all, no thread has room for another level's tables, some 5 MiB.
pub const ROOM_MIN_BYTES: usize = 96 * limits::MIB;

/// The level that deltas are made at again in frames that are compressed so. For what a second
/// attempt at levels 2 and 3 spares, it takes too much time.
fn level_again(compression: Compression) -> Option<i32> {
    match compression {
        Compression::Zstd(level) | Compression::SelectiveZstd(level) if level > 3 => {
            Some(level.min(AGAIN_LEVEL_MAX))
        }
        _ => None,
    }
}

/// A chunk of the store that another one may be made of.
pub struct FoundBase {
    /// Its name, and where it is.
    pub base: Base,
    /// The frame that it was found in, if that is known.
    pub frame: Option<FrameId>,
    /// How many instances behind one another are needed to make it.
    pub depth: u8,
    /// Its bytes, verified.
    pub bytes: BaseBytes,
    /// Whether it stands in the chunk's place in an earlier version; otherwise it is like it.
    pub corresponds: bool,
}

/// What is known of a chunk that is to be stored.
#[derive(Default)]
pub struct Similar {
    /// What others are found to be like it by, if that is to be kept.
    pub sketch: Option<[u8; SKETCH_BYTES]>,
    /// What it may be made of.
    pub base: Option<FoundBase>,
}

/// Knows what chunks may be made of.
pub trait SimilarChunks: Send + Sync {
    /// What is like a chunk, and a base for it if one is wanted; `corresponding` is one that stands
    /// in its place in an earlier version.
    fn find(&self, chunk: &[u8], corresponding: Option<&Fingerprint>, wants_base: bool) -> Similar;

    /// A chunk is stored whole in a frame of this object: for whoever need not wait until it can be
    /// read there.
    fn stays_whole(&self, _: &Fingerprint, _: &[u8; SKETCH_BYTES], _object: [u8; 16]) {}

    /// Whether each thread may take some MB more than others need, to make deltas again.
    fn has_room(&self) -> bool {
        true
    }

    /// The whole chunks before and behind a base in its frame: whoever reads the one has read them.
    fn beside(&self, _: &FoundBase) -> Vec<FoundBase> {
        Vec::new()
    }

    /// The session relies on these from now on, for a chunk of so many bytes in this frame, unless
    /// it may not: `false`. The first is the one that was found, the others lie beside it.
    fn rely(&self, found: &[FoundBase], of: (FrameId, usize)) -> bool;
}

/// The deltas of a frame.
#[derive(Default)]
pub struct Made {
    /// How each is made; numbers count the chunks of the frame.
    pub deltas: Vec<Delta>,
    /// The bases of each.
    pub bases: Vec<Vec<BaseBytes>>,
    /// What was kept of chunks to find others by.
    pub sketches: Vec<(u32, [u8; SKETCH_BYTES])>,
}

/// Makes deltas; one for each thread, because it keeps working memory.
pub struct DeltaMaker {
    similar: Arc<dyn SimilarChunks>,
    encoder: DeltaEncoder,
    again: Option<DeltaEncoder>,
}

impl DeltaMaker {
    /// A maker that asks this for bases, for frames that are compressed so.
    #[must_use]
    pub fn new(similar: Arc<dyn SimilarChunks>, compression: Compression) -> Self {
        let again = level_again(compression).map(DeltaEncoder::new);
        Self { similar, encoder: DeltaEncoder::new(LEVEL), again }
    }

    /// Looks for deltas among the chunks of a frame, which will be `of`. If there are any,
    /// `payload` is what it holds then: the chunks, and the payloads of deltas in their places.
    pub fn make(&mut self, frame: &PlainFrame, of: FrameId, payload: &mut Vec<u8>) -> Made {
        let mut made = Made::default();
        payload.clear();
        let mut corresponding = frame.corresponding.iter().peekable();
        let mut whole = frame.whole.iter().peekable();
        let mut end = 0;
        // Up to where the frame's bytes were taken over.
        let mut copied = 0;
        for (number, chunk) in (0u32..).zip(&frame.chunks) {
            let start = end;
            end += chunk.length as usize;
            let hint = corresponding.next_if(|(of, _)| *of == number).map(|(_, hint)| hint);
            let is_whole = whole.next_if_eq(&&number).is_some();
            let Some(bytes) = frame.bytes.get(start..end) else { break };
            if chunk.level.is_node() || bytes.len() < CHUNK_MIN_BYTES {
                continue;
            }
            let Similar { sketch, base } = self.similar.find(bytes, hint, !is_whole);
            // What is stored again although it is there is no difference to itself.
            let base = base.filter(|found| found.base.fingerprint != chunk.fingerprint);
            if let Some(found) = base {
                payload.extend_from_slice(frame.bytes.get(copied..start).unwrap_or_default());
                copied = start;
                if let Some((delta, bases)) =
                    self.keep((number, of), (chunk, bytes), found, payload)
                {
                    copied = end;
                    made.deltas.push(delta);
                    made.bases.push(bases.into_iter().map(|base| base.bytes).collect());
                    continue;
                }
            }
            // What is a delta is no base of others as long as there are better ones.
            if let Some(sketch) = sketch {
                self.similar.stays_whole(&chunk.fingerprint, &sketch, of.container.0);
                made.sketches.push((number, sketch));
            }
        }
        if made.deltas.is_empty() {
            payload.clear();
        } else {
            payload.extend_from_slice(frame.bytes.get(copied..).unwrap_or_default());
        }
        made
    }

    /// Appends a delta's payload, if it is worth it.
    fn keep(
        &mut self,
        (number, of): (u32, FrameId),
        (chunk, bytes): (&FrameChunk, &[u8]),
        found: FoundBase,
        payload: &mut Vec<u8>,
    ) -> Option<(Delta, Vec<FoundBase>)> {
        let before = payload.len();
        let mut bases = vec![found];
        payload.extend_from_slice(self.encoder.encode(&plain(&bases), bytes, bytes.len() / 2)?);
        let quick_bytes = payload.len() - before;
        let mut is_worth_it = quick_bytes + RECORD_BYTES <= bytes.len() / 8;
        if !is_worth_it {
            let alone_bytes = self.encoder.alone_bytes(bytes);
            if quick_bytes * 100 < alone_bytes * HOPEFUL_PERCENT {
                self.make_again((chunk, bytes), &mut bases, (payload, before));
            }
            let taken_bytes = payload.len() - before + bases.len() * RECORD_BYTES;
            is_worth_it = taken_bytes < alone_bytes / 2;
        }
        let payload_length = (payload.len() - before) as u32;
        if is_worth_it && self.similar.rely(&bases, (of, bytes.len())) {
            let depth = 1 + bases.iter().map(|base| base.depth).max().unwrap_or(0);
            let names = bases.iter().map(|base| base.base).collect();
            return Some((Delta { chunk: number, depth, bases: names, payload_length }, bases));
        }
        payload.truncate(before);
        None
    }

    /// Makes a delta again, where that is wanted: at a higher level, then with each chunk beside
    /// its base as well. What takes less room stays in the place of the payload, with its bases.
    fn make_again(
        &mut self,
        (chunk, bytes): (&FrameChunk, &[u8]),
        bases: &mut Vec<FoundBase>,
        (payload, before): (&mut Vec<u8>, usize),
    ) {
        let again = self.again.as_mut().filter(|_| self.similar.has_room());
        let (Some(again), Some(found)) = (again, bases.first()) else { return };
        let beside = match fits(bases, bytes) {
            true => self.similar.beside(found),
            false => return,
        };
        // What is stored again although it is there may lie beside its base: no part of itself.
        let others = beside.into_iter().filter(|one| one.base.fingerprint != chunk.fingerprint);
        for next in std::iter::once(None).chain(others.map(Some)) {
            // What lies beside has to earn what names it.
            let record_bytes = if next.is_some() { RECORD_BYTES } else { 0 };
            let known = bases.len();
            bases.extend(next);
            let below_bytes = (payload.len() - before).saturating_sub(record_bytes);
            let made = match fits(bases, bytes) {
                true => again.encode(&plain(bases), bytes, below_bytes),
                false => None,
            };
            match made {
                Some(made) => {
                    payload.truncate(before);
                    payload.extend_from_slice(made);
                }
                None => bases.truncate(known),
            }
        }
    }
}

/// Whether a delta of these is made again.
fn fits(bases: &[FoundBase], chunk: &[u8]) -> bool {
    let bases_bytes: usize = plain(bases).iter().map(|base| base.len()).sum();
    bases_bytes + chunk.len() <= AGAIN_BYTES_MAX
}

/// The bytes of some bases.
fn plain(bases: &[FoundBase]) -> Vec<&[u8]> {
    bases.iter().map(|base| (*base.bytes).as_ref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::{Randomness, SeededRandomness};
    use onefold_types::{ContainerId, Level};

    /// What the chunk is named by that is stored.
    const CHUNK: u8 = 2;

    /// A base, and what lies beside it.
    struct OneBase(Vec<u8>, Vec<(u8, Vec<u8>)>);

    /// The same where there is no memory to spare.
    struct Cramped(OneBase);

    impl SimilarChunks for Cramped {
        fn find(&self, chunk: &[u8], hint: Option<&Fingerprint>, wants_base: bool) -> Similar {
            self.0.find(chunk, hint, wants_base)
        }

        fn has_room(&self) -> bool {
            false
        }

        fn rely(&self, _: &[FoundBase], _: (FrameId, usize)) -> bool {
            true
        }
    }

    fn base(name: u8, bytes: &[u8]) -> FoundBase {
        let base = Base { fingerprint: Fingerprint([name; 32]), container: None };
        let bytes = Box::new(bytes.to_vec());
        FoundBase { base, frame: None, depth: 0, bytes, corresponds: false }
    }

    impl SimilarChunks for OneBase {
        fn find(&self, _: &[u8], _: Option<&Fingerprint>, _: bool) -> Similar {
            Similar { sketch: None, base: Some(base(1, &self.0)) }
        }

        fn beside(&self, _: &FoundBase) -> Vec<FoundBase> {
            self.1.iter().map(|(name, bytes)| base(*name, bytes)).collect()
        }

        fn rely(&self, _: &[FoundBase], _: (FrameId, usize)) -> bool {
            true
        }
    }

    fn noise(seed: u64, count: usize) -> Vec<u8> {
        let mut noise = vec![0; count];
        SeededRandomness::new(seed).fill(&mut noise);
        noise
    }

    /// What a higher level makes less of.
    fn numbers(count: usize) -> Vec<u8> {
        noise(9, count).iter().flat_map(|number| format!("{number:03} ").into_bytes()).collect()
    }

    fn delta(bases: impl SimilarChunks + 'static, chunk: &[u8], compression: Compression) -> Delta {
        let (fingerprint, length) = (Fingerprint([CHUNK; 32]), chunk.len() as u32);
        let chunks = vec![FrameChunk { fingerprint, length, level: Level(0) }];
        let frame = PlainFrame { bytes: chunk.to_vec(), chunks, ..PlainFrame::default() };
        let of = FrameId { container: ContainerId([0; 16]), frame: 0 };
        let mut maker = DeltaMaker::new(Arc::new(bases), compression);
        let mut made = maker.make(&frame, of, &mut Vec::new());
        assert_eq!(made.deltas[0].bases.len(), made.bases[0].len());
        made.deltas.remove(0)
    }

    fn payload_bytes(base: &[u8], chunk: &[u8], compression: Compression) -> u32 {
        delta(OneBase(base.to_vec(), Vec::new()), chunk, compression).payload_length
    }

    #[test]
    fn differences_that_are_not_short_are_made_again_at_the_level_of_their_frames() {
        let base = noise(1, 30_000);
        let chunk = [&base[15_000..], &numbers(6000)].concat();
        let quick = payload_bytes(&base, &chunk, Compression::Zstd(1));
        assert!(quick as usize > chunk.len() / 8, "{quick} of {}", chunk.len());
        for compression in [Compression::Zstd(3), Compression::Zstd(-7), Compression::Lz4] {
            assert_eq!(payload_bytes(&base, &chunk, compression), quick, "{compression}");
        }
        let best = payload_bytes(&base, &chunk, Compression::Zstd(9));
        assert!(best < quick, "{best} at level 9, {quick} at level 1");
        for compression in [Compression::SelectiveZstd(9), Compression::Zstd(22)] {
            assert_eq!(payload_bytes(&base, &chunk, compression), best, "{compression}");
        }
        let cramped = Cramped(OneBase(base.clone(), Vec::new()));
        assert_eq!(delta(cramped, &chunk, Compression::Zstd(9)).payload_length, quick);
        // Hardly anything new: one attempt is enough.
        let near = [&base[15_000..], &numbers(500)].concat();
        let quick = payload_bytes(&base, &near, Compression::Zstd(1));
        assert!((quick as usize) < near.len() / 8 - RECORD_BYTES);
        assert_eq!(payload_bytes(&base, &near, Compression::Zstd(9)), quick);
    }

    #[test]
    fn what_lies_beside_a_base_is_used_where_it_earns_its_record() {
        let [before, base, behind] = [2, 1, 3].map(|seed| noise(seed, 30_000));
        let chunk = [&before[20_000..], &base[..20_000]].concat();
        let made = |beside: &[(u8, &[u8])], compression| {
            let beside = beside.iter().map(|(name, bytes)| (*name, bytes.to_vec())).collect();
            let delta = delta(OneBase(base.clone(), beside), &chunk, compression);
            (delta.bases.iter().map(|base| base.fingerprint.0[0]).collect(), delta.payload_length)
        };
        let high = Compression::Zstd(9);
        let (names, alone): (Vec<u8>, u32) = made(&[], high);
        assert!(names == [1] && alone >= 10_000, "{names:?} {alone}");
        let (before, behind) = ((10, &before[..]), (11, &behind[..]));
        for beside in [[before, behind], [behind, before]] {
            let (names, with): (Vec<u8>, u32) = made(&beside, high);
            assert_eq!(names, [1, 10]);
            assert!(with < 200, "{with}");
        }
        assert_eq!(made(&[behind], high), (vec![1], alone));
        assert_eq!(made(&[before], Compression::Zstd(3)).0, [1]);
        // It is there already, and is stored again: it is no part of itself.
        assert_eq!(made(&[(CHUNK, &chunk)], high), (vec![1], alone));
    }

    #[test]
    fn what_is_longer_than_again_bytes_max_is_made_once() {
        // What is furthest behind in a base is found at all levels.
        let longer = noise(1, AGAIN_BYTES_MAX - 39_000 + 1);
        let chunk = [&longer[longer.len() - 15_000..], &numbers(6000)].concat();
        assert_eq!(chunk.len(), 39_000);
        let at = |base: &[u8], level| payload_bytes(base, &chunk, Compression::Zstd(level));
        assert!(at(&longer[1..], 9) < at(&longer[1..], 1));
        assert_eq!(at(&longer, 9), at(&longer, 1));
        // What lies beside counts as well.
        let [base, before] = [noise(1, 30_000), noise(2, AGAIN_BYTES_MAX - 60_000 + 1)];
        let chunk = [&before[before.len() - 10_000..], &base[..20_000]].concat();
        for (before, bases) in [(&before[1..], 2), (&before[..], 1)] {
            let beside = OneBase(base.clone(), vec![(10, before.to_vec())]);
            assert_eq!(delta(beside, &chunk, Compression::Zstd(9)).bases.len(), bases);
        }
    }
}
