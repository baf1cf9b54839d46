//! What is live in condemned containers, and in which of their frames (S3.12).
//!
//! Frames are compressed as a whole, so a live chunk that leaves its frame has to be compressed
//! again, with others. A frame of which most is live may be copied as it is instead, and what is
//! dead in it comes along: a copy costs a few passes of the cipher then. Which frames those are
//! follows from how many dead bytes may come along; those that are most live come first.

use crate::chunk_store::prefix_hasher::ByPrefix;
use onefold_format::container::{Base, MetadataSection};
use onefold_types::{ContainerId, Fingerprint, limits};
use std::collections::HashMap;

/// Frames of which less is live are never copied as they are.
const CARRIED_LIVE_SHARE_MIN: f64 = 0.5;
/// Smaller frames are not either: together with others they take less room.
const CARRIED_PLAIN_MIN_BYTES: u32 = (limits::FRAME_PLAIN_TARGET_BYTES / 4) as u32;

/// Where a live chunk of a condemned container lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The container.
    pub container: ContainerId,
    /// The frame in it.
    pub frame: u32,
    /// The chunk's position in the section.
    pub position: u32,
    /// The chunk's length.
    pub length: u32,
    /// What it takes of its frame.
    pub payload_length: u32,
    /// How many instances behind one another are needed to make it: 0 for a whole chunk.
    pub depth: u8,
    /// When the newest snapshots need it; what they do not need comes last.
    pub rank: u32,
}

/// A delta and one of its bases.
#[derive(Clone, Debug)]
pub struct Link {
    /// The delta.
    pub delta: Fingerprint,
    /// The base.
    pub base: Fingerprint,
    /// Where the delta says that the base is.
    pub container: Option<ContainerId>,
}

/// Live chunks of condemned containers.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// The chunks, by full fingerprint.
    pub chunks: HashMap<Fingerprint, Spot, ByPrefix>,
    /// What is known of their frames.
    frames: HashMap<(ContainerId, u32), FrameFacts>,
    /// Deltas among the chunks, and what each is made of.
    links: Vec<Link>,
}

/// What is known of a frame.
#[derive(Clone, Copy, Debug, Default)]
struct FrameFacts {
    stored_bytes: u32,
    plain_bytes: u32,
    deltas: u32,
}

/// A frame with live chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveFrame {
    /// The live chunks, in the order of their positions.
    pub chunks: Vec<(Fingerprint, Spot)>,
    /// Whether it is copied as it is.
    pub carried: bool,
}

impl LiveFrame {
    /// Whether the newest snapshots need nothing of it.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.chunks.iter().all(|(_, spot)| spot.rank == u32::MAX)
    }
}

impl Gathered {
    /// Adds the chunks of a container that `is_live` names; of several instances the shallowest
    /// stays, which whatever is made of it can do with, and of these the one in the newest
    /// container. Whether there was any.
    pub fn add(
        &mut self,
        container: ContainerId,
        section: &MetadataSection,
        is_live: impl Fn(&Fingerprint) -> bool,
    ) -> bool {
        let (mut any, mut noted) = (false, None);
        for (position, chunk) in (0..).zip(&section.chunks) {
            if !is_live(&chunk.fingerprint) {
                continue;
            }
            any = true;
            let (frame, depth) = (chunk.frame, section.depth_at(position));
            let spot = Spot {
                container,
                frame,
                position,
                length: chunk.length,
                payload_length: chunk.payload_length,
                depth,
                rank: u32::MAX,
            };
            let known = self.chunks.entry(chunk.fingerprint).or_insert(spot);
            let is_better = known.depth > depth;
            if is_better || known.depth == depth && known.container < container {
                *known = spot;
            }
            // Once for a frame: its chunks are neighbours.
            if noted.replace(frame) != Some(frame)
                && let Some(extent) = section.frames.get(frame as usize)
            {
                let facts = self.frames.entry((container, frame)).or_default();
                facts.stored_bytes = extent.stored_length;
                facts.plain_bytes = extent.plain_length;
            }
        }
        let deltas =
            section.deltas.iter().filter_map(|delta| section.chunks.get(delta.chunk as usize));
        for chunk in deltas {
            if let Some(facts) = self.frames.get_mut(&(container, chunk.frame)) {
                facts.deltas += 1;
            }
        }
        any
    }

    /// Notes of what the live deltas of a container are made of, for [`Self::links`].
    pub fn note_links(
        &mut self,
        section: &MetadataSection,
        is_live: impl Fn(&Fingerprint) -> bool,
    ) {
        for delta in &section.deltas {
            let Some(chunk) = section.chunks.get(delta.chunk as usize) else { continue };
            if is_live(&chunk.fingerprint) {
                let link = |base: &Base| Link {
                    delta: chunk.fingerprint,
                    base: base.fingerprint,
                    container: base.container,
                };
                self.links.extend(delta.bases.iter().map(link));
            }
        }
    }

    /// The deltas whose makings were noted, with each of their bases.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter()
    }

    /// Whether nothing is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether a frame had a live chunk when its container was looked at.
    #[must_use]
    pub fn has_frame(&self, container: ContainerId, frame: u32) -> bool {
        self.frames.contains_key(&(container, frame))
    }

    /// All by frame, in the order of the lowest ranks: frames that no newest snapshot needs keep
    /// the order in which they lie, and of others what these do not need comes with them. None is
    /// copied as it is.
    #[must_use]
    pub fn into_parts_of_frames(self) -> Vec<LiveFrame> {
        let mut chunks: Vec<(Fingerprint, Spot)> = self.chunks.into_iter().collect();
        let part = |spot: &Spot| (spot.rank == u32::MAX, spot.container, spot.frame);
        chunks.sort_unstable_by_key(|(_, spot)| (part(spot), spot.position));
        let parts = chunks.chunk_by(|(_, one), (_, other)| part(one) == part(other));
        let mut parts: Vec<LiveFrame> =
            parts.map(|chunks| LiveFrame { chunks: chunks.to_vec(), carried: false }).collect();
        parts.sort_by_key(|part| part.chunks.iter().map(|(_, spot)| spot.rank).min());
        parts
    }

    /// All by frame, in the order of the lowest ranks: frames that no newest snapshot needs keep
    /// the order in which they lie. At most `dead_max_bytes` stored bytes come along.
    #[must_use]
    pub fn into_frames(self, dead_max_bytes: u64) -> Vec<LiveFrame> {
        let lengths = self.frames;
        let mut chunks: Vec<(Fingerprint, Spot)> = self.chunks.into_iter().collect();
        chunks.sort_unstable_by_key(|(_, spot)| (spot.container, spot.frame, spot.position));
        let id = |spot: &Spot| (spot.container, spot.frame);
        let mut frames: Vec<LiveFrame> = chunks
            .chunk_by(|(_, one), (_, other)| id(one) == id(other))
            .map(|chunks| LiveFrame { chunks: chunks.to_vec(), carried: false })
            .collect();
        let mut candidates: Vec<(u64, &mut LiveFrame)> = Vec::new();
        for frame in &mut frames {
            // A frame whose length nobody has noted is not carried; its chunks are copied.
            let known = frame.chunks.first().and_then(|(_, spot)| lengths.get(&id(spot)));
            let facts = known.copied().unwrap_or_default();
            let (stored, plain) = (facts.stored_bytes, facts.plain_bytes);
            let live = frame.chunks.iter().map(|(_, spot)| u64::from(spot.payload_length));
            let live: u64 = live.sum();
            let dead = u64::from(plain).saturating_sub(live);
            let is_mostly_live = live as f64 >= f64::from(plain) * CARRIED_LIVE_SHARE_MIN;
            // A dead delta that came along would be one whose base may be gone.
            let live_deltas = frame.chunks.iter().filter(|(_, spot)| spot.depth > 0).count();
            let has_dead_deltas = live_deltas < facts.deltas as usize;
            if plain >= CARRIED_PLAIN_MIN_BYTES && is_mostly_live && !has_dead_deltas {
                let dead_stored = u64::from(stored) * dead / u64::from(plain.max(1));
                candidates.push((dead_stored, frame));
            }
        }
        // Stable: equal ones in the order in which they lie.
        candidates.sort_by_key(|(dead, _)| *dead);
        let mut left = dead_max_bytes;
        for (dead, frame) in candidates {
            let Some(after) = left.checked_sub(dead) else { break };
            left = after;
            frame.carried = true;
        }
        frames.sort_by_key(|frame| frame.chunks.iter().map(|(_, spot)| spot.rank).min());
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::codec::Codec;
    use onefold_format::container::{ChunkDescriptor, FrameDescriptor};
    use onefold_types::Level;

    /// Frames of 100,000 plain bytes in 50,000 stored ones, in chunks of 10,000; numbers name
    /// chunks, and those from 1,000 on are dead.
    fn section(frames: &[[u16; 10]]) -> MetadataSection {
        let mut section = MetadataSection::default();
        for (frame, numbers) in (0..).zip(frames) {
            section.frames.push(FrameDescriptor {
                offset: 0,
                stored_length: 50_000,
                plain_length: 100_000,
                codec: Codec::Zstd,
            });
            for (index, number) in (0..).zip(numbers) {
                let mut fingerprint = [0; 32];
                fingerprint[..2].copy_from_slice(&number.to_le_bytes());
                section.chunks.push(ChunkDescriptor {
                    fingerprint: Fingerprint(fingerprint),
                    length: 10_000,
                    level: Level::DATA,
                    frame,
                    offset: index * 10_000,
                    payload_length: 10_000,
                });
            }
        }
        section
    }

    fn is_live(fingerprint: &Fingerprint) -> bool {
        u16::from_le_bytes([fingerprint.0[0], fingerprint.0[1]]) < 1_000
    }

    /// For each frame: container, frame, live chunks, whether it is carried.
    fn frames(gathered: &Gathered, dead_max_bytes: u64) -> Vec<(u8, u32, usize, bool)> {
        let frames = gathered.clone().into_frames(dead_max_bytes);
        let shown = frames.iter().map(|frame| {
            let spot = frame.chunks[0].1;
            (spot.container.0[0], spot.frame, frame.chunks.len(), frame.carried)
        });
        shown.collect()
    }

    #[test]
    fn the_most_live_frames_are_carried_while_the_dead_in_them_may_come_along() {
        let whole = std::array::from_fn(|at| at as u16);
        let nine = std::array::from_fn(|at| 100 + at as u16 + u16::from(at == 3) * 1_000);
        let seven = std::array::from_fn(|at| 200 + at as u16 + u16::from(at < 3) * 1_000);
        let four = std::array::from_fn(|at| 300 + at as u16 + u16::from(at < 6) * 1_000);
        let mut gathered = Gathered::default();
        assert!(gathered.add(ContainerId([1; 16]), &section(&[four, seven, nine, whole]), is_live));
        let dead = std::array::from_fn(|at| 1_300 + at as u16);
        assert!(!gathered.add(ContainerId([2; 16]), &section(&[dead]), is_live));
        let carried = |most| -> Vec<bool> {
            frames(&gathered, most).iter().map(|(.., carried)| *carried).collect()
        };
        assert_eq!(carried(0), [false, false, false, true]);
        assert_eq!(carried(4_999), [false, false, false, true]);
        assert_eq!(carried(5_000), [false, false, true, true]);
        assert_eq!(carried(19_999), [false, false, true, true]);
        assert_eq!(carried(20_000), [false, true, true, true]);
        // Of the last one less than half is live.
        assert_eq!(carried(u64::MAX), [false, true, true, true]);
    }

    #[test]
    fn of_several_instances_the_newest_counts_and_frames_follow_the_ranks() {
        let one = std::array::from_fn(|at| at as u16);
        let two = std::array::from_fn(|at| 5 + at as u16);
        let mut gathered = Gathered::default();
        assert!(gathered.add(ContainerId([9; 16]), &section(&[one]), is_live));
        assert!(gathered.add(ContainerId([3; 16]), &section(&[two]), is_live));
        // The older one has five of its own: just half of it.
        assert_eq!(frames(&gathered, 25_000), [(3, 0, 5, true), (9, 0, 10, true)]);
        assert_eq!(frames(&gathered, 24_999), [(3, 0, 5, false), (9, 0, 10, true)]);
        let last = section(&[one]).chunks[7].fingerprint;
        gathered.chunks.get_mut(&last).unwrap().rank = 4;
        assert_eq!(frames(&gathered, 0), [(9, 0, 10, true), (3, 0, 5, false)]);
    }
}
