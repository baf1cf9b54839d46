//! Chunks out of a plain frame: cut as the metadata section says, and verified by name.
//!
//! The one place where stored bytes become chunks: whatever reads, restores, checks or copies goes
//! through it. A frame that was opened is authentic; that a chunk in it is the one that it is named
//! by is known only after this.
//!
//! Deltas are made whole first ([`super::delta`]): as they lie in a frame they are no chunks, and
//! do not hold here.
//!
//! The fingerprints of a frame's chunks are computed in one batch, which costs a fraction of
//! computing them one by one.

use onefold_crypto::Fingerprinter;
use onefold_format::container::ChunkDescriptor;
use onefold_types::{Error, Fingerprint, Result};

/// What a chunk takes of its frame: its bytes, or what a delta is made of; `None` if that would be
/// beyond the end.
#[must_use]
pub fn cut<'a>(plain: &'a [u8], chunk: &ChunkDescriptor) -> Option<&'a [u8]> {
    let start = chunk.offset as usize;
    plain.get(start..start.checked_add(chunk.payload_length as usize)?)
}

/// The bytes of a chunk that is no delta.
fn cut_whole<'a>(plain: &'a [u8], chunk: &ChunkDescriptor) -> Option<&'a [u8]> {
    if chunk.is_delta() { None } else { cut(plain, chunk) }
}

/// The bytes of one chunk, verified.
///
/// Errors: `Damaged` if they are not those that the chunk is named by.
pub fn chunk<'a>(
    plain: &'a [u8],
    chunk: &ChunkDescriptor,
    fingerprinter: &Fingerprinter,
) -> Result<&'a [u8]> {
    let name = |bytes: &&[u8]| match chunk.level.is_node() {
        true => fingerprinter.node(bytes) == chunk.fingerprint,
        false => fingerprinter.data(bytes) == chunk.fingerprint,
    };
    cut_whole(plain, chunk).filter(name).ok_or_else(|| wrong(&chunk.fingerprint))
}

/// Whether each of some chunks of a frame is the one that it is named by, in their order.
pub fn each(
    plain: &[u8],
    chunks: impl Iterator<Item = ChunkDescriptor> + Clone,
    fingerprinter: &Fingerprinter,
) -> Vec<bool> {
    let mut data = Vec::with_capacity(chunks.size_hint().0);
    let is_there = |chunk: ChunkDescriptor| match cut_whole(plain, &chunk) {
        Some(bytes) if chunk.level.is_node() => fingerprinter.node(bytes) == chunk.fingerprint,
        Some(bytes) => {
            data.push(bytes);
            true
        }
        None => false,
    };
    let mut holds: Vec<bool> = chunks.clone().map(is_there).collect();
    let mut computed = Vec::with_capacity(data.len());
    fingerprinter.data_batch(&data, &mut computed);
    let mut computed = computed.iter();
    for (chunk, holds) in chunks.zip(&mut holds) {
        if *holds && !chunk.level.is_node() {
            *holds = computed.next() == Some(&chunk.fingerprint);
        }
    }
    holds
}

/// Fails unless all of some chunks of a frame are those that they are named by.
///
/// Errors: `Damaged`, naming the first that is not.
pub fn all(
    plain: &[u8],
    chunks: impl Iterator<Item = ChunkDescriptor> + Clone,
    fingerprinter: &Fingerprinter,
) -> Result<()> {
    let holds = each(plain, chunks.clone(), fingerprinter);
    match chunks.zip(holds).find(|(_, holds)| !holds) {
        Some((chunk, _)) => Err(wrong(&chunk.fingerprint)),
        None => Ok(()),
    }
}

pub(super) fn wrong(fingerprint: &Fingerprint) -> Error {
    Error::damaged(format!("chunk {fingerprint} does not have its fingerprint"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_crypto::HashKind;
    use onefold_types::Level;

    #[test]
    fn each_wrong_chunk_is_told_and_no_other() {
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, None);
        let mut plain = Vec::new();
        let mut chunks = Vec::new();
        for number in 0..20u8 {
            let bytes = vec![number; 50 + usize::from(number) * 31];
            let level = Level(u16::from(number % 4 == 1));
            let fingerprint = match level.is_node() {
                true => fingerprinter.node(&bytes),
                false => fingerprinter.data(&bytes),
            };
            let (offset, length) = (plain.len() as u32, bytes.len() as u32);
            let payload_length = length;
            chunks.push(ChunkDescriptor {
                fingerprint,
                length,
                level,
                frame: 0,
                offset,
                payload_length,
            });
            plain.extend(bytes);
        }
        let told = |plain: &[u8]| each(plain, chunks.iter().copied(), &fingerprinter);
        assert!(told(&plain).iter().all(|holds| *holds));
        for (wrong, of) in chunks.iter().enumerate() {
            let mut other = plain.clone();
            other[of.offset as usize] ^= 1;
            let expected: Vec<bool> = (0..chunks.len()).map(|number| number != wrong).collect();
            assert_eq!(told(&other), expected);
            let error = all(&other, chunks.iter().copied(), &fingerprinter).unwrap_err();
            assert!(error.to_string().contains(&of.fingerprint.to_string()), "{error}");
            for (number, one) in chunks.iter().enumerate() {
                assert_eq!(chunk(&other, one, &fingerprinter).is_ok(), number != wrong);
            }
            // A frame that ends within the chunk holds those before it alone.
            let expected: Vec<bool> = (0..chunks.len()).map(|number| number < wrong).collect();
            assert_eq!(told(&plain[..(of.offset + of.length - 1) as usize]), expected);
        }
    }
}
