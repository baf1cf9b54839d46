//! The index as look-up policies see it, with the protocol's rule W5 built in.
//!
//! A hit counts only if the container may be used, was seen to exist in this session
//! ([`super::sections_ahead`]), and its metadata section names the chunk; a delta only if it can be
//! made ([`super::bases`]). Accesses of the device are timed, so that the choice of a strategy
//! rests on what this store's device costs now, caches of the system and of this machine included.

use super::bases::Bases;
use super::sections_ahead::SectionsAhead;
use super::unproved::Unproved;
use crate::container::frame_id::{FrameExtent, FrameId, frames_of};
use crate::device::PROBES_MAX;
use crate::index::ChunkIndex;
use crate::repository::Repository;
use onefold_format::container::{ChunkDescriptor, MetadataSection};
use onefold_policy::ports::{BucketCounts, IndexPort, Instance};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Containers whose frames are remembered; some two hundred bytes each.
const CONTAINERS_MAX: usize = 1 << 15;

/// The index of a session.
pub struct StorePort {
    /// The store.
    pub repository: Arc<Repository>,
    /// Its index.
    pub index: Arc<dyn ChunkIndex>,
    /// Containers that may not be relied upon: condemned, damaged or gone.
    pub avoid: BTreeSet<ContainerId>,
    /// How long the device took.
    pub timing: DeviceTiming,
    /// The frames of the containers read.
    pub frames: HashMap<ContainerId, Box<[FrameExtent]>>,
    /// Shows which deltas can be made.
    pub bases: Arc<Bases>,
    /// Accesses that showed which deltas can be made.
    pub proof_reads: u64,
    /// Containers that were asked for and turned out to be gone or damaged.
    pub unusable: BTreeSet<ContainerId>,
    /// Sections that were asked for and at hand, or not to be read.
    pub sections_kept: u64,
    /// Deltas of containers read that cannot be made.
    pub unproved: Unproved,
    /// Sections that were read beside another one, where each takes long.
    pub ahead: SectionsAhead,
    /// Of the containers read that hold deltas: the containers that these are made of.
    pub made_of: HashMap<ContainerId, Box<[ContainerId]>>,
}

impl StorePort {
    /// The frame that an instance lies in; the first one if that is not known.
    #[must_use]
    pub fn frame_of(&self, instance: &Instance) -> FrameId {
        let container = instance.container;
        let frame = self.frames.get(&container).map_or(0, |frames| {
            frames.partition_point(|frame| frame.first <= instance.position).saturating_sub(1)
        });
        FrameId { container, frame: u16::try_from(frame).unwrap_or(u16::MAX) }
    }

    /// Plain bytes of a frame; 0 if that is not known.
    #[must_use]
    pub fn payload_bytes(&self, frame: &FrameId) -> u64 {
        let frames = self.frames.get(&frame.container);
        let extent = frames.and_then(|frames| frames.get(usize::from(frame.frame)));
        match extent {
            Some(extent) => u64::from(extent.plain_bytes),
            // Read for its bases only.
            None => self.bases.plain_bytes(frame),
        }
    }

    /// Those of some containers, or of all, whose deltas are made of what lies in others of these;
    /// `None` if that is not known of all.
    #[must_use]
    pub fn made_of_any(&self, of: &BTreeSet<ContainerId>) -> Option<BTreeSet<ContainerId>> {
        if self.made_of.len() >= CONTAINERS_MAX {
            return None;
        }
        let is_made = |made_of: &[ContainerId]| made_of.iter().any(|id| of.contains(id));
        Some(self.made_of.iter().filter(|(_, made)| is_made(made)).map(|(id, _)| *id).collect())
    }

    /// A container's section: the one that is kept for bases, or else it is read.
    fn section(&mut self, container: ContainerId) -> Result<Arc<MetadataSection>> {
        if let Some(kept) = self.bases.kept_section(container) {
            self.sections_kept += 1;
            return Ok(kept);
        }
        if let Some(ahead) = self.ahead.take(container) {
            return Ok(ahead);
        }
        let started = Instant::now();
        let is_wanted = |id: &ContainerId| {
            !self.avoid.contains(id) && !self.unusable.contains(id) && !self.frames.contains_key(id)
        };
        let section = self.ahead.read(&self.repository, container, &is_wanted);
        self.timing.add(1, started);
        section
    }

    /// What a section lists that counts as there: of deltas those that can be made. In the place of
    /// the others stands the name of no chunk.
    fn listed(
        &mut self,
        container: ContainerId,
        section: &MetadataSection,
    ) -> Result<Arc<[Fingerprint]>> {
        let started = Instant::now();
        let proved = self.bases.prove(container, section)?;
        self.timing.add(proved.reads, started);
        self.proof_reads += proved.reads;
        self.rest_on(container, proved.made_of);
        let chunk_at = |position: &u32| section.chunks.get(*position as usize);
        let chunks = proved.unproved.iter().filter_map(chunk_at);
        self.unproved.note(container, chunks.map(|chunk| chunk.fingerprint));
        let mut unproved = proved.unproved.into_iter().peekable();
        let name = |(position, chunk): (u32, &ChunkDescriptor)| {
            let is_there = unproved.next_if_eq(&position).is_none();
            if is_there { chunk.fingerprint } else { inverted(&chunk.fingerprint) }
        };
        Ok((0..).zip(&section.chunks).map(name).collect())
    }

    /// Remembers that deltas of a container are made of what lies in others: beside what was
    /// remembered before, on which a hit may rest already.
    pub fn rest_on(
        &mut self,
        container: ContainerId,
        made_of: impl IntoIterator<Item = ContainerId>,
    ) {
        let is_full = self.made_of.len() >= CONTAINERS_MAX;
        let mut more = made_of.into_iter().peekable();
        if more.peek().is_none() || (is_full && !self.made_of.contains_key(&container)) {
            return;
        }
        let known = self.made_of.entry(container).or_default();
        let all: BTreeSet<ContainerId> = known.iter().copied().chain(more).collect();
        *known = all.into_iter().collect();
    }

    /// Remembers the frames of a container.
    pub fn note_frames(&mut self, container: ContainerId, frames: Box<[FrameExtent]>) {
        if self.frames.len() < CONTAINERS_MAX {
            self.frames.insert(container, frames);
        }
    }
}

/// The name of no chunk, in the place of a chunk that does not count as there. All are different,
/// so that tables by name stay quick.
fn inverted(fingerprint: &Fingerprint) -> Fingerprint {
    Fingerprint(fingerprint.0.map(|byte| !byte))
}

/// What accesses of the device cost so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceTiming {
    /// Accesses.
    pub accesses: u64,
    /// The time they took together.
    pub elapsed: Duration,
}

impl DeviceTiming {
    /// The mean, in nanoseconds; `None` before anything was read.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        let mean = self.elapsed.as_nanos().checked_div(u128::from(self.accesses))?;
        u64::try_from(mean).ok()
    }

    /// The mean once enough was seen, as much as a measurement takes.
    #[must_use]
    pub fn believed_ns(&self) -> Option<u64> {
        self.mean_ns().filter(|_| self.accesses >= PROBES_MAX as u64)
    }

    fn add(&mut self, accesses: u64, started: Instant) {
        if accesses > 0 {
            self.accesses += accesses;
            self.elapsed += started.elapsed();
        }
    }
}

impl IndexPort for StorePort {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        let (started, before, already) = (Instant::now(), *reads, found.len());
        self.index.locate_newest(&self.repository, fingerprints, found, reads)?;
        if !self.avoid.is_empty() || !self.unusable.is_empty() {
            let appended = found.iter_mut().skip(already);
            for (fingerprint, containers) in fingerprints.iter().zip(appended) {
                let is_out =
                    |id: &ContainerId| self.avoid.contains(id) || self.unusable.contains(id);
                if !containers.is_empty() && containers.iter().all(is_out) {
                    self.index.locate_instead(&self.repository, fingerprint, containers, reads)?;
                }
            }
        }
        self.timing.add(reads.saturating_sub(before), started);
        if !self.unproved.is_empty() {
            let appended = found.iter_mut().skip(already);
            for (fingerprint, containers) in fingerprints.iter().zip(appended) {
                containers.retain(|container| !self.unproved.holds(*container, fingerprint));
            }
        }
        Ok(())
    }

    fn container_fingerprints(
        &mut self,
        container: ContainerId,
    ) -> Result<Option<Arc<[Fingerprint]>>> {
        if self.avoid.contains(&container) || self.unusable.contains(&container) {
            self.sections_kept += 1;
            return Ok(None);
        }
        match self.section(container) {
            Ok(section) => {
                self.note_frames(container, frames_of(&section));
                self.bases.note_sketches(container, &section.sketches);
                self.listed(container, &section).map(Some)
            }
            // Gone, damaged, or not to be read just now: its chunks are stored again (R20), which
            // is always safe.
            Err(error) if error.is_unreadable() => {
                if error.is_lost() && self.unusable.len() < CONTAINERS_MAX {
                    self.unusable.insert(container);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        self.index.may_hold(&self.repository, fingerprint)
    }

    fn bucket_counts(&self) -> BucketCounts {
        self.index.bucket_counts()
    }

    fn proof_reads(&self) -> u64 {
        self.proof_reads
    }

    fn sections_kept(&self) -> u64 {
        self.sections_kept
    }

    fn device_read_ns(&self) -> Option<u64> {
        self.timing.believed_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_believed_from_as_many_accesses_on_as_a_measurement_takes() {
        let after = |accesses| {
            DeviceTiming { accesses, elapsed: Duration::from_nanos(accesses * 70) }.believed_ns()
        };
        let enough = PROBES_MAX as u64;
        assert_eq!([0, enough - 1].map(after), [None, None]);
        assert_eq!([enough, enough + 1].map(after), [Some(70), Some(70)]);
    }
}
