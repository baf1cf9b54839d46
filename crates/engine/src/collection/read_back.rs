//! Copies are read back before they count (protocol, G2 and G5).
//!
//! What a collector copied is about to be deleted in its old place, so the new containers are read
//! as a check with all data reads them: from the store, whole, header, checksum and section, and
//! every frame is opened, decompressed and its chunks are fingerprinted again. Only then are the
//! copies indexed, and an epoch may be decided that rests on them (R58).
//!
//! A container that reads back wrong gets a finding: it may be indexed by others, who must not rely
//! on it.

use super::parallel::in_parallel;
use crate::container::frame::{FrameChunk, FrameOpener, verify_chunks};
use crate::container::log::DurableContainer;
use crate::container::reader::{self, FrameReader};
use crate::job::Job;
use crate::repository::Repository;
use crate::session::findings;
use onefold_format::container::{
    self, BodyChecksum, ChunkDescriptor, FOOTER_BYTES, Footer, MetadataSection,
};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Fingerprint, Result, limits};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of containers that are held at once, about.
const HELD_BYTES: usize = 64 * limits::MIB;

/// What was handed in to be copied.
#[derive(Debug, Default)]
pub struct HandedIn {
    /// The chunks that must be held, live ones.
    pub live: Vec<Fingerprint>,
    /// All chunks, those included that came along in their frames.
    pub chunks: usize,
}

/// Fails unless the new containers, read back, hold what was handed in and nothing else.
///
/// Errors: `Damaged` or `NotFound` if a copy does not read back; nothing may rest on it then.
pub fn verify(
    repository: &Repository,
    copies: &[DurableContainer],
    handed_in: &HandedIn,
    threads: usize,
    job: &Job,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let target_bytes = repository.configuration().container_size_bytes;
    let threads = threads.min(HELD_BYTES / target_bytes.max(1)).min(copies.len());
    let results = in_parallel(threads, || {
        let mut opener = FrameOpener::new()?;
        while let Some(copy) = copies.get(next.fetch_add(1, Ordering::Relaxed)) {
            job.interrupt.check()?;
            if let Err(error) = read_back(repository, copy, &mut opener) {
                return Err(distrusted(repository, copy, error));
            }
        }
        Ok(())
    });
    results.into_iter().collect::<Result<()>>()?;
    let held: HashSet<&Fingerprint> = copies.iter().flat_map(|copy| &copy.fingerprints).collect();
    let count: usize = copies.iter().map(|copy| copy.fingerprints.len()).sum();
    if count != handed_in.chunks || !handed_in.live.iter().all(|chunk| held.contains(chunk)) {
        return Err(Error::damaged("the new containers do not hold what was to be copied"));
    }
    Ok(())
}

/// Reads a whole container from the store, and compares it with what was put.
fn read_back(
    repository: &Repository,
    copy: &DurableContainer,
    opener: &mut FrameOpener,
) -> Result<()> {
    let mut bytes = repository.store().get(&Key::new(layout::container(copy.id))?)?;
    let footer = Footer::decode(&bytes, bytes.len() as u64)?;
    let body = bytes.len() - FOOTER_BYTES;
    let mut checksum = BodyChecksum::default();
    checksum.update(&bytes[..body]);
    if checksum.finish() != footer.body_crc || container::decode_header(&bytes)? != copy.id {
        return Err(Error::damaged("its checksum or its header does not hold"));
    }
    let metadata = footer.metadata_offset as usize;
    let mut sealed = bytes[metadata..body].to_vec();
    let section = reader::open_section(repository, copy.id, &mut sealed)?;
    if !section.chunks.iter().map(|chunk| &chunk.fingerprint).eq(&copy.fingerprints) {
        return Err(Error::damaged("its metadata section lists other chunks than were put in"));
    }
    verify_frames(repository, copy, &section, &mut bytes[..metadata], opener)
}

/// Opens every frame and verifies its chunks.
fn verify_frames(
    repository: &Repository,
    copy: &DurableContainer,
    section: &MetadataSection,
    bytes: &mut [u8],
    opener: &mut FrameOpener,
) -> Result<()> {
    let frames = FrameReader::new(repository, copy.id)?;
    let mut by_frame = section.chunks.chunk_by(|one, other| one.frame == other.frame);
    for (part, frame) in (0u32..).zip(&section.frames) {
        let start = usize::try_from(frame.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(frame.stored_length as usize);
        let sealed = bytes
            .get_mut(start..end)
            .ok_or_else(|| Error::damaged("a frame reaches beyond the container"))?;
        let own: Vec<FrameChunk> = by_frame.next().unwrap_or_default().iter().map(chunk).collect();
        let plain = frames.open(opener, part, frame, sealed)?;
        verify_chunks(plain, &own, repository.fingerprinter())
            .context(|| format!("frame {part}"))?;
    }
    Ok(())
}

fn chunk(chunk: &ChunkDescriptor) -> FrameChunk {
    FrameChunk { fingerprint: chunk.fingerprint, length: chunk.length, level: chunk.level }
}

/// Notes that a copy must not be relied upon, and says what is wrong with it.
fn distrusted(repository: &Repository, copy: &DurableContainer, error: Error) -> Error {
    if error.kind() == ErrorKind::Damaged {
        // That it could not be noted is less than what it would note: the collection fails anyway.
        let _ = findings::record(repository, copy.id, &error.to_string(), &mut Vec::new());
    }
    error.context(format!(
        "the copy in container {} reads back otherwise than it was written; nothing was deleted, \
         do not trust this device",
        copy.id
    ))
}
