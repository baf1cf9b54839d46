//! Which chunks of a file stand in the places of new ones in the parent snapshot's version of it.
//!
//! The reader of a file knows its path's earlier version, and the names of a message's chunks
//! before anybody has looked them up. The summary vectors say which of them are new; only then is
//! the earlier version's list of chunks read, once a file, and what corresponds handed on with the
//! message, as a hint: whoever stores a new chunk tries it as a base
//! ([`crate::chunk_store::bases`]).
//!
//! A file that is not at its path in the parent is sought by its name ([`super::namesakes`]), also
//! where there is no parent.
//!
//! Memory: 40 bytes for each chunk of an earlier version, of which no more than
//! [`CHUNKS_MAX`] are looked at.
//!
//! Concurrency: each reading thread has its own lists; trees and index are shared.

use super::namesakes::{EarlierContent, NAMESAKE_MIN_BYTES, Namesakes, Relative};
use super::read::Element;
use crate::index::ChunkIndex;
use crate::repository::Repository;
use crate::tree::{ExtentWalk, TreeReader};
use onefold_policy::similarity::PreviousVersion;
use onefold_types::{Fingerprint, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Chunks of an earlier version that are looked at.
pub const CHUNKS_MAX: usize = 1 << 16;

/// Finds earlier versions.
pub struct Versions {
    repository: Arc<Repository>,
    index: Arc<dyn ChunkIndex>,
    /// Opened when the first version is read.
    tree: OnceLock<Option<TreeReader>>,
    /// In which files are sought that have no earlier version at their paths.
    relative: Relative,
    /// Bytes of such files so far.
    unmatched_bytes: AtomicU64,
    namesakes: OnceLock<Option<Namesakes>>,
}

/// A file in a message, or in several.
pub struct VersionedFile {
    earlier: EarlierContent,
    /// Its first element in the message.
    first: usize,
    /// Behind its last one; `None` if there are more to come.
    end: Option<usize>,
    /// `None` before anything of it was new.
    version: Option<PreviousVersion>,
    /// Whether it began in an earlier message.
    is_continued: bool,
}

impl VersionedFile {
    /// A file that begins with an element.
    #[must_use]
    pub fn new(earlier: EarlierContent, first: usize) -> Self {
        Self { earlier, first, end: None, version: None, is_continued: false }
    }

    /// It ends before an element.
    pub fn end(&mut self, end: usize) {
        self.end.get_or_insert(end);
    }

    /// What of it belongs to the next message, if anything does.
    #[must_use]
    pub fn continued(self) -> Option<Self> {
        let is_over = self.end.is_some();
        (!is_over).then_some(Self { first: 0, is_continued: true, ..self })
    }
}

impl Versions {
    /// Those of the parent snapshot, and by name those of a relative; what is new is told by an
    /// index.
    #[must_use]
    pub fn new(
        repository: &Arc<Repository>,
        index: &Arc<dyn ChunkIndex>,
        relative: Relative,
    ) -> Self {
        Self {
            repository: Arc::clone(repository),
            index: Arc::clone(index),
            tree: OnceLock::new(),
            relative,
            unmatched_bytes: AtomicU64::new(0),
            namesakes: OnceLock::new(),
        }
    }

    fn tree(&self) -> Option<&TreeReader> {
        self.tree.get_or_init(|| TreeReader::open(&self.repository).ok()).as_ref()
    }

    /// What a file was that has no earlier version at its path, perhaps.
    #[must_use]
    pub fn namesake(&self, name: &[u8], size: u64) -> Option<EarlierContent> {
        if size < NAMESAKE_MIN_BYTES {
            return None;
        }
        let before = self.unmatched_bytes.fetch_add(size, Ordering::Relaxed);
        if before.saturating_add(size) < self.relative.worth_bytes() {
            return None;
        }
        let found = || Some(Namesakes::of(&self.repository, self.tree()?, self.relative.root));
        self.namesakes.get_or_init(found).as_ref()?.find(name, size)
    }

    /// Appends to `corresponding` for each new chunk of a file what stands in its place, by the
    /// chunk's number in the message. What cannot be read gives nothing.
    pub fn find(
        &self,
        file: &mut VersionedFile,
        elements: &[Element],
        fingerprints: &[Fingerprint],
        corresponding: &mut Vec<(u32, Fingerprint)>,
    ) {
        let end = file.end.unwrap_or(elements.len());
        let is_data = |element: &&Element| matches!(element, Element::Data { .. });
        let before = elements.iter().take(file.first).filter(is_data).count();
        let of_file = elements.get(file.first..end).unwrap_or_default();
        let mut names = fingerprints.iter().skip(before);
        let chunk = |element: &Element| match element {
            Element::Data { length, .. } => {
                names.next().map_or((Fingerprint::ZERO, 0), |name| (*name, *length as u64))
            }
            Element::Hole { length } => (Fingerprint::ZERO, *length),
            Element::Again { .. } | Element::Kept { .. } | Element::End(_) => {
                (Fingerprint::ZERO, 0)
            }
        };
        let chunks: Vec<(Fingerprint, u64)> = of_file.iter().map(chunk).collect();
        // Whoever begins in the middle has lost his place: a file of several messages is read
        // from its beginning on, whatever is new in the first.
        if file.version.is_none() && !file.is_continued {
            let is_new = |name: &Fingerprint| {
                !name.is_zero() && !self.index.may_hold(&self.repository, name).unwrap_or(true)
            };
            if file.end.is_none() || chunks.iter().any(|(name, _)| is_new(name)) {
                file.version = self.read(&file.earlier).ok().flatten();
            }
        }
        let Some(version) = &mut file.version else { return };
        let mut found = Vec::with_capacity(chunks.len());
        version.corresponding(&chunks, &mut found);
        let mut number = before as u32;
        for (element, found) in of_file.iter().zip(found) {
            if is_data(&element) {
                corresponding.extend(found.map(|found| (number, found)));
                number += 1;
            }
        }
    }

    fn read(&self, earlier: &EarlierContent) -> Result<Option<PreviousVersion>> {
        let Some(tree) = self.tree() else { return Ok(None) };
        let mut walk = ExtentWalk::new(Some(earlier.content), earlier.size)?;
        let mut chunks = Vec::new();
        while chunks.len() < CHUNKS_MAX
            && let Some((_, extent)) = walk.next(tree)?
        {
            chunks.push(((!extent.is_hole()).then_some(extent.fingerprint), extent.length));
        }
        Ok(Some(PreviousVersion::new(chunks.into_iter())))
    }
}
