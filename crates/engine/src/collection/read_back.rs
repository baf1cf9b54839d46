//! Copies are read back before they count (protocol, G2 and G5).
//!
//! What a collector copied is about to be deleted in its old place, so the new containers are read
//! as a check with all data reads them: from the store, whole, header, checksum and section, and
//! every frame is opened, decompressed and its chunks are fingerprinted again. Only then are the
//! copies indexed, and an epoch may be decided that rests on them (R58).
//!
//! A container that reads back wrong is put into quarantine: it may be indexed by others, who must
//! not rely on it.

use super::parallel::in_parallel;
use crate::chunk_store::prefix_hasher::ByPrefix;
use crate::chunks::ChunkReader;
use crate::container::log::DurableContainer;
use crate::container::whole::WholeReader;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::quarantine;
use onefold_types::{Error, ErrorKind, Fingerprint, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    repository: &Arc<Repository>,
    copies: &[DurableContainer],
    handed_in: &HandedIn,
    threads: usize,
    job: &Job,
) -> Result<()> {
    // Not out of the caches: what the device holds now is what counts.
    let bases = ChunkReader::apart(repository)?;
    let next = AtomicUsize::new(0);
    let threads = threads.min(copies.len());
    let results = in_parallel(threads, || {
        let mut whole = WholeReader::new()?;
        while let Some(copy) = copies.get(next.fetch_add(1, Ordering::Relaxed)) {
            job.interrupt.check()?;
            match read_back(repository, copy, &mut whole, &bases) {
                Ok(0) => {}
                Ok(_) => return Err(unmade(copy)),
                Err(error) => return Err(distrusted(repository, copy, error)),
            }
        }
        Ok(())
    });
    results.into_iter().collect::<Result<()>>()?;
    let held: HashSet<&Fingerprint, ByPrefix> =
        copies.iter().flat_map(|copy| &copy.fingerprints).collect();
    let count: usize = copies.iter().map(|copy| copy.fingerprints.len()).sum();
    if count != handed_in.chunks || !handed_in.live.iter().all(|chunk| held.contains(chunk)) {
        return Err(Error::damaged("the new containers do not hold what was to be copied"));
    }
    Ok(())
}

/// Reads a whole container from the store, and compares it with what was put; says how many deltas
/// of it cannot be made because a base cannot be read.
fn read_back(
    repository: &Repository,
    copy: &DurableContainer,
    whole: &mut WholeReader,
    bases: &ChunkReader,
) -> Result<u64> {
    let (section, unmade) = whole.sound(repository, copy.id, copy.bytes, bases)?;
    if !section.chunks.iter().map(|chunk| &chunk.fingerprint).eq(&copy.fingerprints) {
        return Err(Error::damaged("its metadata section lists other chunks than were put in"));
    }
    Ok(unmade)
}

/// That is no fault of the copy.
fn unmade(copy: &DurableContainer) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "chunks that were copied to container {} are made of chunks that cannot be read; \
             nothing was deleted, see what 'onefold check --read-data' says",
            copy.id
        ),
    )
}

/// Notes that a copy must not be relied upon, and says what is wrong with it.
fn distrusted(repository: &Repository, copy: &DurableContainer, error: Error) -> Error {
    if error.kind() == ErrorKind::Damaged {
        // That it could not be noted is less than what it would note: the collection fails anyway.
        let _ = quarantine::record(repository, copy.id, &error.to_string(), &mut Vec::new());
    }
    error.context(format!(
        "the copy in container {} reads back otherwise than it was written; nothing was deleted, \
         do not trust this device",
        copy.id
    ))
}
