//! Chunks that are stored as deltas: made whole out of their bases, and verified.
//!
//! A base is looked for where the delta says first, without the index; then wherever the index
//! knows an instance of it, newest first. An instance counts only if it needs fewer others behind
//! it than the delta, so looking ends whatever a store says.
//!
//! # Invariants
//! What is kept was verified under its name. A base that is lost makes this instance of the chunk
//! unreadable and no other one: whoever asked tries the others.

use super::ChunkReader;
use crate::chunks::{Chunk, ReadFrame};
use crate::container::delta::{BaseBytes, BaseSource, bases_of, delta_of};
use crate::container::verify;
use crate::index::current::{CATCH_UPS_MAX, changes_too_often};
use onefold_format::container::{Base, ChunkDescriptor, Delta, MetadataSection};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl BaseSource for ChunkReader {
    fn base(&self, base: &Base, below_depth: u8) -> Result<BaseBytes> {
        self.read_base(base, below_depth).map(|chunk| Box::new(chunk) as BaseBytes)
    }
}

impl ChunkReader {
    /// Whether all that a delta is made of, down to what is none, is somewhere in the store;
    /// nothing of it is read. `false` is also said of bases whose newest instance is too deep.
    pub fn has_bases(&self, delta: &Delta) -> Result<bool> {
        for base in &delta.bases {
            let location = match self.locate(&base.fingerprint) {
                Ok(location) => location,
                Err(error) if error.is_lost() => return Ok(false),
                Err(error) => return Err(error),
            };
            if location.descriptor().is_delta() {
                let inner = delta_of(&location.section, location.descriptor())?;
                if inner.depth >= delta.depth || !self.has_bases(inner)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads an instance of a chunk that is plain or of a depth below this.
    ///
    /// Errors: `Damaged` if none can be read.
    pub fn read_base(&self, base: &Base, below_depth: u8) -> Result<Chunk> {
        let mut failed = None;
        if let Some(container) = base.container
            && let Some(chunk) =
                self.read_base_in(container, &base.fingerprint, below_depth, &mut failed)?
        {
            return Ok(chunk);
        }
        for _ in 0..CATCH_UPS_MAX {
            let generation = self.index.generation();
            let mut pages = 0;
            let found = self.index.locate(&self.repository, &base.fingerprint, &mut pages);
            self.index_pages.fetch_add(pages, Ordering::Relaxed);
            for container in found? {
                let read =
                    self.read_base_in(container, &base.fingerprint, below_depth, &mut failed)?;
                if let Some(chunk) = read {
                    return Ok(chunk);
                }
            }
            if self.index.catch_up(&self.repository, generation)? {
                self.passed_over().forget_gone();
            } else if !self.passed_over().looks_again() {
                let lost = Error::damaged(format!(
                    "chunk {}, which others are made of, is in no readable container",
                    base.fingerprint
                ));
                return Err(failed.map_or(lost, |error: Error| error));
            }
        }
        Err(changes_too_often(&base.fingerprint))
    }

    /// The chunk out of one container; `None` if it has no instance of it that is readable and
    /// shallow enough.
    fn read_base_in(
        &self,
        container: ContainerId,
        fingerprint: &Fingerprint,
        below_depth: u8,
        failed: &mut Option<Error>,
    ) -> Result<Option<Chunk>> {
        let location = match self.locate_in(container, fingerprint) {
            Ok(Some(location)) => location,
            Ok(None) => return Ok(None),
            Err(error) if error.is_unreadable() => {
                *failed = Some(error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if location.section.depth_at(location.position) >= below_depth {
            return Ok(None);
        }
        match self.read_at(&location) {
            Ok(chunk) => Ok(Some(chunk)),
            Err(error) if error.is_unreadable() => {
                if error.kind() == ErrorKind::NotFound {
                    self.set_unusable(container, error.kind());
                }
                *failed = Some(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Some chunks out of one frame of a section, verified.
    ///
    /// Errors: `Damaged` if one of them is not what it is named by, or a base of it is lost.
    pub fn all_verified(
        &self,
        container: ContainerId,
        section: &MetadataSection,
        chunks: &[ChunkDescriptor],
        plain: &Arc<ReadFrame>,
    ) -> Result<Vec<Chunk>> {
        let fingerprinter = self.repository.fingerprinter();
        if chunks.iter().all(|chunk| !chunk.is_delta()) {
            return Chunk::all_verified(container, chunks, plain, fingerprinter);
        }
        let whole: Vec<ChunkDescriptor> =
            chunks.iter().filter(|chunk| !chunk.is_delta()).copied().collect();
        let mut whole = Chunk::all_verified(container, &whole, plain, fingerprinter)?.into_iter();
        let one = |chunk: &ChunkDescriptor| match chunk.is_delta() {
            true => self.made(container, section, chunk, plain).map(Some),
            false => Ok(whole.next()),
        };
        let read: Vec<Option<Chunk>> = chunks.iter().map(one).collect::<Result<_>>()?;
        Ok(read.into_iter().flatten().collect())
    }

    /// What a chunk takes of its frame, authentic: of a delta that was made before, what it was
    /// made of.
    pub fn payload(
        &self,
        container: ContainerId,
        section: &MetadataSection,
        chunk: &ChunkDescriptor,
    ) -> Result<Vec<u8>> {
        let frame = self.frame(container, section, chunk.frame)?;
        let payload = verify::cut(frame.bytes(), chunk).map(<[u8]>::to_vec);
        payload.ok_or_else(|| Error::damaged("a frame is shorter than its section says"))
    }

    /// A chunk that is stored as a delta, made whole and verified.
    pub(super) fn made(
        &self,
        container: ContainerId,
        section: &MetadataSection,
        chunk: &ChunkDescriptor,
        plain: &ReadFrame,
    ) -> Result<Chunk> {
        if let Some(whole) = self.caches.made(&chunk.fingerprint) {
            return Ok(Chunk::made(container, whole));
        }
        let delta = delta_of(section, chunk)?;
        let bases = bases_of(chunk, delta, self)?;
        let fingerprinter = self.repository.fingerprinter();
        let bytes = self.caches.with_delta_opener(|opener| {
            opener.verified(plain.bytes(), chunk, &bases, fingerprinter).map(<[u8]>::to_vec)
        });
        let whole = Arc::new(ReadFrame::new(bytes?));
        self.caches.keep_made(&chunk.fingerprint, &whole);
        Ok(Chunk::made(container, whole))
    }
}
