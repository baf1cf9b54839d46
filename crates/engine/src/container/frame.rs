//! One frame: many chunks compressed and sealed together.
//!
//! Sealing ends with the way back: the sealed bytes are opened, decompressed and every chunk's
//! fingerprint is computed again. Only then does a frame count as stored, so that a fault in the
//! compressor, the cipher or memory is found while the source is still at hand (R37, R38). Deltas
//! are made here ([`super::similar`]) and made whole again; those that came as deltas were verified
//! by whoever copied them, and are compared byte by byte.
//!
//! The bytes that were compressed are still here, and comparing with them would cost less than
//! fingerprints do. It would prove less: they have lain in memory, and were copied, since they were
//! fingerprinted, and a bit that flipped there would be compressed, decoded and found equal. Only
//! the fingerprint of what comes out says that it is what went by that name.
//!
//! Buffers come back ([`PlainFrame`]) and are cleared nowhere: what is in them is written before it
//! is read, and a length counts what was written.

use super::FrameId;
use super::similar::{DeltaMaker, Made, SimilarChunks};
use super::verify;
use onefold_crypto::{Fingerprinter, ObjectSealer, TAG_BYTES};
use onefold_format::codec::{Codec, Compression, Compressor, Decompressor};
use onefold_format::container::{ChunkDescriptor, Delta, SKETCH_BYTES};
use onefold_format::delta::DeltaDecoder;
use onefold_policy::selective_compression::is_worth_compressing;
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, Fingerprint, Level, Result, limits};
use std::sync::Arc;

/// A chunk in a frame that is being filled.
#[derive(Clone, Copy, Debug)]
pub struct FrameChunk {
    /// The chunk's name.
    pub fingerprint: Fingerprint,
    /// Its length.
    pub length: u32,
    /// Its height in the forest.
    pub level: Level,
}

/// Chunks waiting to be sealed together.
#[derive(Debug, Default)]
pub struct PlainFrame {
    /// The chunks' bytes, back to back; of deltas the payload.
    pub bytes: Vec<u8>,
    /// The chunks.
    pub chunks: Vec<FrameChunk>,
    /// Those that are deltas already, by their rising numbers among the chunks.
    pub deltas: Vec<Delta>,
    /// What others are found by to be like chunks of it, if that is known already, in the same way.
    pub sketches: Vec<(u32, [u8; SKETCH_BYTES])>,
    /// Those that are stored whole, whatever is like them, by their rising numbers.
    pub whole: Vec<u32>,
    /// Of some chunks one that stands in its place in an earlier version, by rising numbers.
    pub corresponding: Vec<(u32, Fingerprint)>,
    /// A buffer for the sealed bytes, perhaps one that was used before.
    pub sealed: Vec<u8>,
}

/// A frame as it will stand in the container.
#[derive(Debug)]
pub struct SealedFrame {
    /// Coded, sealed bytes, tag included.
    pub bytes: Vec<u8>,
    /// The object that it was sealed for.
    pub object: [u8; 16],
    /// Its number there.
    pub number: u32,
    /// Length before coding.
    pub plain_length: u32,
    /// How it is coded.
    pub codec: Codec,
    /// The chunks in it.
    pub chunks: Vec<FrameChunk>,
    /// Those that are deltas, by their rising numbers among the chunks.
    pub deltas: Vec<Delta>,
    /// What others are found by to be like chunks of it, in the same way.
    pub sketches: Vec<(u32, [u8; SKETCH_BYTES])>,
    /// The plain buffer, empty, for use in another frame.
    pub spare: Vec<u8>,
}

/// A frame out of another container: authentic, and coded as it was.
#[derive(Debug)]
pub struct CodedFrame {
    /// The coded bytes.
    pub bytes: Vec<u8>,
    /// How they are coded.
    pub codec: Codec,
    /// Length before coding.
    pub plain_length: u32,
    /// The chunks in it, all of them, back to back.
    pub chunks: Vec<FrameChunk>,
    /// Those that are deltas, by their rising numbers among the chunks.
    pub deltas: Vec<Delta>,
    /// What others are found by to be like chunks of it, in the same way.
    pub sketches: Vec<(u32, [u8; SKETCH_BYTES])>,
}

impl CodedFrame {
    /// The same with its bytes sealed, as frame `number`; `spare` is a buffer for another one.
    fn sealed(self, number: u32, sealer: &ObjectSealer, spare: Vec<u8>) -> SealedFrame {
        let Self { bytes, codec, plain_length, chunks, deltas, sketches } = self;
        let object = sealer.object();
        SealedFrame { bytes, object, number, plain_length, codec, chunks, deltas, sketches, spare }
    }
}

/// Seals frames; one for each thread, because it keeps working memory.
pub struct FrameSealer {
    compressor: Compressor,
    /// Whether frames are looked at before they are compressed.
    is_selective: bool,
    opener: FrameOpener,
    /// Makes deltas, if any are made.
    deltas: Option<DeltaMaker>,
    decoder: DeltaDecoder,
    /// What a frame holds that has deltas.
    payload: Vec<u8>,
    /// A delta that was made whole again.
    whole: Vec<u8>,
}

impl FrameSealer {
    /// A sealer that compresses as told, and makes deltas against what is similar.
    pub fn new(compression: Compression, similar: Option<Arc<dyn SimilarChunks>>) -> Result<Self> {
        Ok(Self {
            compressor: Compressor::new(compression)?,
            is_selective: matches!(compression, Compression::SelectiveZstd(_)),
            opener: FrameOpener::new()?,
            deltas: similar.map(|similar| DeltaMaker::new(similar, compression)),
            decoder: DeltaDecoder::default(),
            payload: Vec::new(),
            whole: Vec::new(),
        })
    }

    /// Compresses and seals `frame` as frame `number`, then decodes it again and compares.
    pub fn seal(
        &mut self,
        frame: PlainFrame,
        number: u32,
        sealer: &ObjectSealer,
        fingerprinter: &Fingerprinter,
    ) -> Result<SealedFrame> {
        let mut made = match &mut self.deltas {
            // What holds deltas already is a copy.
            Some(maker) if frame.deltas.is_empty() => {
                let of = FrameId {
                    container: ContainerId(sealer.object()),
                    frame: u16::try_from(number).unwrap_or(u16::MAX),
                };
                maker.make(&frame, of, &mut self.payload)
            }
            _ => Made::default(),
        };
        let PlainFrame { bytes: mut plain, chunks, deltas: copied, sketches: known, .. } = frame;
        let held = if made.deltas.is_empty() { &plain } else { &self.payload };
        let mut bytes = frame.sealed;
        let codec = if self.is_selective && !is_worth_compressing(held) {
            bytes.clear();
            bytes.extend_from_slice(held);
            Codec::Raw
        } else {
            self.compressor.compress(held, &mut bytes)?
        };
        sealer.seal(number, &mut bytes, 0)?;
        let plain_length = held.len();
        let again = self.opener.open_apart(&bytes, number, codec, plain_length, sealer)?;
        let is_copy = made.deltas.is_empty();
        let deltas = if is_copy { copied } else { std::mem::take(&mut made.deltas) };
        let laid_out = laid_out(&chunks, &deltas, number);
        let whole = laid_out.iter().filter(|chunk| !chunk.is_delta()).copied();
        let verified = verify::all(again, whole, fingerprinter).and_then(|()| match is_copy {
            true if deltas.is_empty() || again == *held => Ok(()),
            true => Err(Error::damaged("a delta of it is not what was copied")),
            false => {
                let Self { decoder, whole, .. } = self;
                let of_delta = laid_out.iter().filter(|chunk| chunk.is_delta());
                let mut of_delta = of_delta.zip(&made.bases);
                of_delta.try_for_each(|(chunk, bases)| {
                    whole.clear();
                    let payload = verify::cut(again, chunk).unwrap_or_default();
                    let bases: Vec<&[u8]> = bases.iter().map(|base| (**base).as_ref()).collect();
                    decoder.decode(&bases, payload, chunk.length as usize, whole)?;
                    match fingerprinter.data(whole) == chunk.fingerprint {
                        true => Ok(()),
                        false => Err(verify::wrong(&chunk.fingerprint)),
                    }
                })
            }
        });
        verified.context(|| "a frame read back otherwise than it was written (faulty memory?)")?;
        plain.clear();
        let plain_length = plain_length as u32;
        let sketches = if known.is_empty() { made.sketches } else { known };
        let coded = CodedFrame { bytes, codec, plain_length, chunks, deltas, sketches };
        Ok(coded.sealed(number, sealer, plain))
    }

    /// Seals a frame as frame `number`, as it is coded, then opens it again and compares. What it
    /// holds was verified when it was first sealed, and its tag since says that it is the same.
    pub fn carry(
        &mut self,
        frame: CodedFrame,
        number: u32,
        sealer: &ObjectSealer,
    ) -> Result<SealedFrame> {
        let mut bytes = Vec::with_capacity(frame.bytes.len() + TAG_BYTES);
        bytes.extend_from_slice(&frame.bytes);
        sealer.seal(number, &mut bytes, 0)?;
        sealer.open_into(number, &bytes, &mut self.opener.coded)?;
        if self.opener.coded != frame.bytes {
            return Err(Error::damaged(
                "a frame read back otherwise than it was written (faulty memory?)",
            ));
        }
        Ok(CodedFrame { bytes, ..frame }.sealed(number, sealer, Vec::new()))
    }
}

/// Opens frames; one for each thread, because it keeps working memory.
pub struct FrameOpener {
    decompressor: Decompressor,
    coded: Vec<u8>,
    plain: Vec<u8>,
    /// Lent to whoever reads sealed bytes.
    sealed: Vec<u8>,
    /// Of a frame that nobody keeps any more, to hold the next one.
    spare: Vec<u8>,
}

impl FrameOpener {
    /// An opener for all codecs.
    pub fn new() -> Result<Self> {
        let [coded, plain, sealed, spare] = [const { Vec::new() }; 4];
        Ok(Self { decompressor: Decompressor::new()?, coded, plain, sealed, spare })
    }

    /// Opens and decompresses a frame; the plain bytes stay valid until the next call.
    pub fn open(
        &mut self,
        sealed: &mut [u8],
        number: u32,
        codec: Codec,
        plain_length: usize,
        sealer: &ObjectSealer,
    ) -> Result<&[u8]> {
        let coded_length = sealer.open(number, sealed)?;
        let coded = &sealed[..coded_length];
        self.decompressor.decompress(codec, coded, plain_length, &mut self.plain)?;
        Ok(&self.plain)
    }

    /// Takes the memory of a frame that nobody keeps any more: memory that is asked for anew costs
    /// as much as what is put into it.
    pub fn reuse(&mut self, plain: Vec<u8>) {
        // A large one would make small frames count as large ones in whatever keeps them.
        if plain.capacity() <= 2 * limits::FRAME_PLAIN_TARGET_BYTES {
            self.spare = plain;
        }
    }

    /// A buffer for sealed bytes, perhaps one that was used before.
    #[must_use]
    pub fn sealed_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sealed)
    }

    /// Takes a buffer for sealed bytes back.
    pub fn give_back(&mut self, sealed: Vec<u8>) {
        self.sealed = sealed;
    }

    /// As [`FrameOpener::open`]; `sealed` stays as it is, and the plain bytes are the caller's.
    pub fn open_owned(
        &mut self,
        sealed: &[u8],
        number: u32,
        codec: Codec,
        plain_length: usize,
        sealer: &ObjectSealer,
    ) -> Result<Vec<u8>> {
        has_room(&mut self.coded, sealed.len());
        sealer.open_into(number, sealed, &mut self.coded)?;
        if codec == Codec::Raw && self.coded.len() == plain_length {
            let spare = std::mem::take(&mut self.spare);
            return Ok(std::mem::replace(&mut self.coded, spare));
        }
        let mut plain = std::mem::take(&mut self.spare);
        has_room(&mut plain, plain_length);
        self.decompressor.decompress(codec, &self.coded, plain_length, &mut plain)?;
        Ok(plain)
    }

    /// As [`FrameOpener::open`], and `sealed` stays as it is.
    fn open_apart(
        &mut self,
        sealed: &[u8],
        number: u32,
        codec: Codec,
        plain_length: usize,
        sealer: &ObjectSealer,
    ) -> Result<&[u8]> {
        sealer.open_into(number, sealed, &mut self.coded)?;
        if codec == Codec::Raw && self.coded.len() == plain_length {
            return Ok(&self.coded);
        }
        self.decompressor.decompress(codec, &self.coded, plain_length, &mut self.plain)?;
        Ok(&self.plain)
    }
}

/// Gives a buffer, whose content is of no use any more, as much room as it needs and no more:
/// frames count by the room that they take.
fn has_room(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.capacity() < bytes {
        *buffer = Vec::with_capacity(bytes);
    }
}

/// The chunks of a frame with where each begins: they lie back to back from its beginning.
#[must_use]
pub fn laid_out(chunks: &[FrameChunk], deltas: &[Delta], frame: u32) -> Vec<ChunkDescriptor> {
    let mut deltas = deltas.iter().peekable();
    let descriptors = (0u32..).zip(chunks).scan(0u32, |end, (number, chunk)| {
        let FrameChunk { fingerprint, length, level } = *chunk;
        let delta = deltas.next_if(|delta| delta.chunk == number);
        let payload_length = delta.map_or(length, |delta| delta.payload_length);
        let offset = *end;
        // A frame is submitted long before it could be too long for this.
        *end = offset + payload_length;
        Some(ChunkDescriptor { fingerprint, length, level, frame, offset, payload_length })
    });
    descriptors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_crypto::{HashKind, MasterKey, Purpose, Vault};

    fn frame(fingerprinter: &Fingerprinter) -> PlainFrame {
        let mut frame = PlainFrame::default();
        for n in 0..40u8 {
            let bytes = vec![n; 100 + usize::from(n) * 97];
            let level = Level(u16::from(n % 3 == 0));
            let fingerprint = match level.is_node() {
                true => fingerprinter.node(&bytes),
                false => fingerprinter.data(&bytes),
            };
            frame.chunks.push(FrameChunk { fingerprint, length: bytes.len() as u32, level });
            frame.bytes.extend(bytes);
        }
        frame
    }

    #[test]
    fn frames_round_trip_under_every_compression() {
        let key = MasterKey::from_bytes([1; 32]);
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, Some(&key));
        let sealer = Vault::new(Some(&key)).object(Purpose::Container, &[2; 16]).unwrap();
        let zstd = [Compression::Zstd(3), Compression::SelectiveZstd(3)];
        for compression in [Compression::None, Compression::Lz4].into_iter().chain(zstd) {
            let plain = frame(&fingerprinter);
            let expected = plain.bytes.clone();
            let mut sealed = FrameSealer::new(compression, None)
                .unwrap()
                .seal(plain, 7, &sealer, &fingerprinter)
                .unwrap();
            let mut opener = FrameOpener::new().unwrap();
            let length = expected.len();
            let opened = opener.open(&mut sealed.bytes, 7, sealed.codec, length, &sealer).unwrap();
            assert_eq!(opened, expected);
        }
    }

    #[test]
    fn a_frame_that_is_not_worth_it_is_raw_though_it_would_shrink() {
        use onefold_types::environment::{Randomness, SeededRandomness};
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, None);
        let sealer = Vault::new(None).object(Purpose::Container, &[2; 16]).unwrap();
        // Noise twice: a compressor finds the second one, a look does not.
        let mut bytes = vec![0; 60_000];
        SeededRandomness::new(1).fill(&mut bytes);
        let twice = [&bytes[..], &bytes].concat();
        let even = vec![7; 120_000];
        for (bytes, compression, expected) in [
            (&twice, Compression::Zstd(2), Codec::Zstd),
            (&twice, Compression::SelectiveZstd(2), Codec::Raw),
            (&even, Compression::SelectiveZstd(2), Codec::Zstd),
        ] {
            let (fingerprint, length) = (fingerprinter.data(bytes), bytes.len() as u32);
            let chunks = vec![FrameChunk { fingerprint, length, level: Level(0) }];
            let frame = PlainFrame { bytes: bytes.clone(), chunks, ..PlainFrame::default() };
            let mut frames = FrameSealer::new(compression, None).unwrap();
            let mut sealed = frames.seal(frame, 0, &sealer, &fingerprinter).unwrap();
            assert_eq!(sealed.codec, expected, "{compression}");
            let mut opener = FrameOpener::new().unwrap();
            let opened = opener.open(&mut sealed.bytes, 0, sealed.codec, bytes.len(), &sealer);
            assert_eq!(opened.unwrap(), bytes);
        }
    }

    #[test]
    fn a_frame_that_is_carried_stays_coded_and_moves_to_its_new_place() {
        let key = MasterKey::from_bytes([1; 32]);
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, Some(&key));
        let vault = Vault::new(Some(&key));
        let from = vault.object(Purpose::Container, &[2; 16]).unwrap();
        let to = vault.object(Purpose::Container, &[3; 16]).unwrap();
        let mut sealer = FrameSealer::new(Compression::Zstd(3), None).unwrap();
        let plain = frame(&fingerprinter);
        let (expected, chunks) = (plain.bytes.clone(), plain.chunks.clone());
        let sealed = sealer.seal(plain, 7, &from, &fingerprinter).unwrap();
        let mut coded = Vec::new();
        from.open_into(7, &sealed.bytes, &mut coded).unwrap();
        let (codec, plain_length) = (sealed.codec, sealed.plain_length);
        let (deltas, sketches) = (Vec::new(), Vec::new());
        let moved = CodedFrame { bytes: coded, codec, plain_length, chunks, deltas, sketches };
        let mut carried = sealer.carry(moved, 4, &to).unwrap();
        assert_eq!(carried.bytes.len(), sealed.bytes.len());
        assert!(from.open(7, &mut carried.bytes.clone()).is_err());
        let mut opener = FrameOpener::new().unwrap();
        let opened = opener.open(&mut carried.bytes, 4, codec, expected.len(), &to).unwrap();
        assert_eq!(opened, expected);
        let chunks = laid_out(&carried.chunks, &[], 4);
        verify::all(opened, chunks.into_iter(), &fingerprinter).unwrap();
    }

    #[test]
    fn r38_a_bit_that_flipped_before_compression_is_found() {
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, None);
        let sealer = Vault::new(None).object(Purpose::Container, &[2; 16]).unwrap();
        for position in [0, 100, 5000] {
            let mut plain = frame(&fingerprinter);
            plain.bytes[position] ^= 4;
            let error = FrameSealer::new(Compression::Zstd(1), None)
                .unwrap()
                .seal(plain, 0, &sealer, &fingerprinter)
                .unwrap_err();
            assert_eq!(error.kind(), onefold_types::ErrorKind::Damaged);
        }
    }

    #[test]
    fn r37_a_frame_that_decodes_to_other_bytes_is_found() {
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, None);
        let frame = frame(&fingerprinter);
        let chunks = laid_out(&frame.chunks, &[], 0);
        let verify = |plain: &[u8]| verify::all(plain, chunks.iter().copied(), &fingerprinter);
        verify(&frame.bytes).unwrap();
        let mut other = frame.bytes.clone();
        let last = other.len() - 1;
        other[last] ^= 1;
        assert!(verify(&other).is_err());
        assert!(verify(&other[..last]).is_err());
    }
}
