//! Copying forward: what is live in condemned containers, and nowhere else, goes into new ones.
//!
//! # Algorithm
//! 1. *Gather*: the live chunks of the condemned containers, by full fingerprint, as many as memory
//!    allows ([`super::gathered`]).
//! 2. *Drop what is held elsewhere*: the index is asked for all instances; one counts if its
//!    container is in the list read in this step, is indexed, is not condemned, its own section
//!    names the fingerprint, and its bytes, read now, are those of the fingerprint. Duplicates are
//!    thus removed dynamically (S3.25, S3.26), and exactly: what a filter or a hash took for the
//!    kept instance plays no part, and no sound instance goes because a rotten one stays.
//! 3. *Order*: frames come in the order in which the newest snapshots need them, each read once
//!    ([`super::needed`]);
//!    what the newest need goes into other containers than what only older ones need. Restores of
//!    the newest then find together what they need together, instead of what happened to be
//!    condemned together.
//! 4. *Copy*: frames that are nearly all live as they are, opened and sealed again for their new
//!    place; of all others the live chunks, read, verified, compressed, sealed, opened and compared
//!    as any new chunk is.
//! 5. *Read back*: the new containers, once they are durable, are read whole and every chunk in
//!    them is verified ([`super::read_back`]); then they are indexed (protocol, G2 and G5).
//!
//! What is packed anew ([`super::repacking`]) is compressed again, and may become a delta.
//!
//! # Invariants
//! A delta is copied as it lies in its frame, once it was made and verified; what it is made of is
//! live, so that stays. A chunk that could not be copied names its container in [`Rescued::kept`];
//! nobody may delete that. What comes along dead is held by the new container like all else in it:
//! named by its section and the index, and free to be used again.

use super::bases::MadeOf;
use super::gathered::{Gathered, LiveFrame, Spot};
use super::inventory::Inventory;
use super::read_back::{self, HandedIn};
use super::repacking::{self, Repacking};
use super::reversal::Turn;
use crate::chunk_store::prefix_hasher::ByPrefix;
use crate::chunks::{Chunk, ChunkReader, Location};
use crate::container::delta::{bases_of, delta_of};
use crate::container::frame_pool::FramePool;
use crate::container::log::ContainerLog;
use crate::container::open::{
    ContainerContext, DeltaCounters, OpenContainer, frames_in_flight_max,
};
use crate::index::append;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::quarantine;
use onefold_format::container::{ChunkDescriptor, Delta, MetadataSection};
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Level, Result, invariant};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// What copying did.
#[derive(Clone, Debug, Default)]
pub struct Rescued {
    /// Chunks copied.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Bytes of the containers written.
    pub stored_bytes: u64,
    /// Frames copied as they were.
    pub frames_carried: u64,
    /// Tree nodes that were read for the order.
    pub nodes_for_order: u64,
    /// Chunks that could not be read.
    pub unread: u64,
    /// Containers with a live chunk that could not be read, and why.
    pub kept: Vec<(ContainerId, String)>,
    /// The new containers, all read back.
    pub written: Vec<ContainerId>,
}

/// Copies chunks out of condemned containers.
pub struct CopyForward<'a> {
    /// The store.
    pub repository: &'a Arc<Repository>,
    /// The containers there are, read in this step.
    pub inventory: &'a Inventory,
    /// Those that are condemned, rising.
    pub condemned: &'a [ContainerId],
    /// Whether a round that failed has written them, so that all that is live in them was elsewhere
    /// before; what is made of it there was made of something else.
    pub cleans_up: bool,
    /// Those that this collection wrote and read back.
    pub proved: &'a BTreeSet<ContainerId>,
    /// How the copies are packed anew; `None`: they stay as they are.
    pub repacking: Option<&'a Repacking>,
    /// Threads that compress.
    pub threads: usize,
    /// Stops it, and shows how far it is.
    pub job: &'a Job,
}

impl CopyForward<'_> {
    /// Drops the chunks that a container outside the condemned holds; notes those that were to hold
    /// some and have rotten.
    pub fn drop_held_elsewhere(&self, gathered: &mut Gathered) -> Result<()> {
        if gathered.is_empty() {
            return Ok(());
        }
        // What the device holds now is what counts.
        let reader = ChunkReader::alone(self.repository)?;
        let held = self.held_elsewhere(gathered, &reader)?;
        gathered.chunks.retain(|fingerprint, _| !held.contains(fingerprint));
        Ok(())
    }

    /// Copies chunks, frame by frame; at most `dead_max_bytes` stored bytes that are dead come
    /// along. When it returns, copies are durable, were read back and are indexed.
    ///
    /// Errors: `NoSpace` and others of the store, `Damaged` if a copy does not read back; what was
    /// copied is garbage then, or held twice. The containers written are added to `stored` then.
    pub fn run(
        &self,
        gathered: Gathered,
        dead_max_bytes: u64,
        stored: &mut Vec<ContainerId>,
    ) -> Result<Rescued> {
        let mut rescued = Rescued::default();
        if gathered.is_empty() {
            return Ok(rescued);
        }
        let reader = ChunkReader::apart(self.repository)?;
        let context = self.open_log()?;
        let wanted = gathered.chunks.len() as u64;
        let frames = match self.repacking {
            // The old is made of the new, all of which has to be packed for that.
            Some(_) => gathered.into_parts_of_frames(),
            None => gathered.into_frames(dead_max_bytes),
        };
        let handed_in = match self.copy(frames, &context, &reader, &mut rescued) {
            Ok(handed_in) => handed_in,
            Err(error) => {
                stored.extend(context.log.stored());
                return Err(error);
            }
        };
        let (copied, unread) = (rescued.chunks, rescued.unread);
        invariant!(
            copied + unread == wanted,
            "a live chunk was passed over",
            copied,
            unread,
            wanted
        );
        let durable = context.log.settle()?;
        // Its buffers are as large as what is read back beside them.
        drop(context);
        rescued.stored_bytes += durable.iter().map(|container| container.bytes).sum::<u64>();
        read_back::verify(self.repository, &durable, &handed_in, self.threads, self.job)
            .and_then(|()| append::append(self.repository, None, &durable))
            .inspect_err(|_| stored.extend(durable.iter().map(|container| container.id)))?;
        rescued.written = durable.iter().map(|container| container.id).collect();
        Ok(rescued)
    }

    /// Those of the chunks that a container outside the condemned holds.
    fn held_elsewhere(
        &self,
        gathered: &Gathered,
        reader: &ChunkReader,
    ) -> Result<HashSet<Fingerprint, ByPrefix>> {
        let mut fingerprints: Vec<Fingerprint> = gathered.chunks.keys().copied().collect();
        fingerprints.sort_unstable_by_key(Fingerprint::prefix);
        let mut by_container: Vec<(ContainerId, Fingerprint)> = Vec::new();
        let mut found = Vec::new();
        for batch in fingerprints.chunks(1 << 14) {
            self.job.interrupt.check()?;
            found.clear();
            reader.locate_all(batch, &mut found)?;
            for (fingerprint, containers) in batch.iter().zip(&found) {
                let outside = containers.iter().filter(|id| self.is_holder(**id));
                by_container.extend(outside.map(|id| (*id, *fingerprint)));
            }
        }
        // What a check found damaged may have a section that reads well; it holds nothing for sure.
        let damaged = quarantine::load_ids(self.repository)?;
        by_container.retain(|(id, _)| !damaged.contains(id));
        by_container.sort_unstable();
        let mut held = HashSet::<_, ByPrefix>::default();
        let made_of = OnceCell::new();
        for group in by_container.chunk_by(|a, b| a.0 == b.0) {
            let Some((container, _)) = group.first() else { continue };
            let depth_of = |chunk: &Fingerprint| gathered.chunks.get(chunk).map(|spot| spot.depth);
            let wanted: HashMap<Fingerprint, u8, ByPrefix> = group
                .iter()
                .map(|(_, chunk)| chunk)
                .filter(|chunk| !held.contains(*chunk))
                .filter_map(|chunk| Some((*chunk, depth_of(chunk)?)))
                .collect();
            if let Some(section) = reader.section(*container)? {
                held.extend(self.held_in(*container, &section, &wanted, &made_of, reader)?);
            }
        }
        Ok(held)
    }

    /// Those of the wanted chunks that a container holds: its bytes are read, but for containers
    /// that were read back already.
    fn held_in(
        &self,
        container: ContainerId,
        section: &Arc<MetadataSection>,
        wanted: &HashMap<Fingerprint, u8, ByPrefix>,
        made_of: &OnceCell<MadeOf>,
        reader: &ChunkReader,
    ) -> Result<Vec<Fingerprint>> {
        self.job.interrupt.check()?;
        let mut spots: Vec<ChunkDescriptor> = Vec::new();
        for (position, chunk) in (0..).zip(&section.chunks) {
            let Some(depth) = wanted.get(&chunk.fingerprint) else { continue };
            // An instance takes the place of another one only if it is no deeper, or nothing is
            // made of it: what is made of that one must be made of this.
            if section.depth_at(position) <= *depth
                || !self.made_of(made_of)?.contains(&chunk.fingerprint)
            {
                spots.push(*chunk);
            }
        }
        if self.proved.contains(&container) {
            return Ok(spots.iter().map(|chunk| chunk.fingerprint).collect());
        }
        spots.sort_by_key(|chunk| chunk.frame);
        let mut held = Vec::with_capacity(spots.len());
        // Deltas apart: if one cannot be made, that is no fault of those beside it, nor of this
        // container if a base is what is lost.
        let (deltas, whole): (Vec<_>, Vec<_>) =
            spots.into_iter().partition(ChunkDescriptor::is_delta);
        let mut makeable = Vec::with_capacity(deltas.len());
        for chunk in deltas {
            if is_makeable(section, &chunk, reader)? {
                makeable.push(chunk);
            }
        }
        let frames = whole.chunk_by(|one, other| one.frame == other.frame);
        for frame in frames.chain(makeable.chunks(1)) {
            match reader.read_together(container, section, frame) {
                Ok(_) => held.extend(frame.iter().map(|chunk| chunk.fingerprint)),
                // Then what is to go is copied, and the next backup need not rely on it either.
                Err(error) if error.is_unreadable() => {
                    if error.kind() == ErrorKind::Damaged {
                        let problem = error.to_string();
                        quarantine::record(self.repository, container, &problem, &mut Vec::new())?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(held)
    }

    /// What deltas are made of, found out when it is asked for the first time.
    fn made_of<'c>(&self, cell: &'c OnceCell<MadeOf>) -> Result<&'c MadeOf> {
        if let Some(known) = cell.get() {
            return Ok(known);
        }
        let without = if self.cleans_up { self.condemned } else { &[] };
        let all = MadeOf::of_all_but(without, self.repository, self.inventory, self.job)?;
        Ok(cell.get_or_init(|| all))
    }

    /// Whether a container is one that chunks may be left to.
    pub fn is_holder(&self, id: ContainerId) -> bool {
        let known = self.inventory.ordinal(id).and_then(|at| self.inventory.containers.get(at));
        known.is_some_and(|container| container.indexed && container.sound)
            && self.condemned.binary_search(&id).is_err()
    }

    fn copy(
        &self,
        frames: Vec<LiveFrame>,
        context: &Arc<ContainerContext>,
        reader: &ChunkReader,
        rescued: &mut Rescued,
    ) -> Result<HandedIn> {
        let mut open = [(); KINDS].map(|()| OpenContainer::new(Arc::clone(context)));
        if self.repacking.is_some() {
            // Compressing them takes several times their length, in every thread.
            let affordable = self.repository.memory().frame_cache_bytes / 16;
            let cold_bytes = repacking::COLD_FRAME_BYTES.min(affordable).max(context.frame_bytes);
            open[COLD] = OpenContainer::new(Arc::clone(context)).with_frames_of(cold_bytes);
        }
        self.job.progress.set_current("copying");
        self.job.progress.set_totals(frames.iter().map(|frame| frame.chunks.len() as u64).sum(), 0);
        let has_damage = self.inventory.containers.iter().any(|container| !container.sound);
        let mut copies = Copies { open, handed_in: HandedIn::default(), has_damage };
        let mut is_warm = self.repacking.is_some();
        for frame in frames {
            self.job.interrupt.check()?;
            if is_warm && frame.is_cold() {
                copies.open[WARM].finish()?;
                is_warm = false;
            }
            if !(frame.carried && self.carry(&frame, reader, &mut copies, rescued)?) {
                self.copy_chunks(&frame, reader, &mut copies, rescued)?;
            }
        }
        let Copies { mut open, handed_in, .. } = copies;
        open.iter_mut().try_for_each(OpenContainer::finish)?;
        context.log.wait()?;
        Ok(handed_in)
    }

    /// Copies a frame as it is; `false` if it cannot be read: its chunks are copied one by one
    /// then, from wherever they are.
    fn carry(
        &self,
        frame: &LiveFrame,
        reader: &ChunkReader,
        copies: &mut Copies,
        rescued: &mut Rescued,
    ) -> Result<bool> {
        let Some((_, first)) = frame.chunks.first() else {
            return Ok(true);
        };
        let (container, position) = (first.container, first.position);
        let Some(section) = reader.section(container)? else {
            return Ok(false);
        };
        if !are_makeable(&section, first.frame, reader, copies.has_damage)? {
            return Ok(false);
        }
        let location = Location { container, section, position };
        let level = location.descriptor().level;
        let mut coded = match reader.coded_frame(&location) {
            Ok(coded) => coded,
            Err(error) if error.is_lost() => return Ok(false),
            Err(error) => return Err(error),
        };
        coded.deltas.iter_mut().for_each(|delta| self.forget_whereabouts(delta));
        let rank = frame.chunks.iter().map(|(_, spot)| spot.rank).min();
        copies.handed_in.chunks += coded.chunks.len();
        copies.handed_in.live.extend(frame.chunks.iter().map(|(fingerprint, _)| *fingerprint));
        copies.open[kind(level, rank.unwrap_or(u32::MAX))].carry(coded)?;
        rescued.frames_carried += 1;
        self.count(rescued, &frame.chunks);
        Ok(true)
    }

    /// Copies the live chunks of a frame, each of which is read and verified wherever it is.
    fn copy_chunks(
        &self,
        frame: &LiveFrame,
        reader: &ChunkReader,
        copies: &mut Copies,
        rescued: &mut Rescued,
    ) -> Result<()> {
        let whole = self.open_frame(&frame.chunks, reader).unwrap_or_default();
        for (number, wanted) in frame.chunks.iter().enumerate() {
            let (fingerprint, spot) = wanted;
            let read = match whole.get(number) {
                Some(chunk) => Ok(chunk.clone()),
                None => self.read(fingerprint, spot, reader),
            };
            let chunk = match read {
                Ok(chunk) => chunk,
                Err(error) if error.is_lost() => {
                    rescued.unread += 1;
                    if rescued.kept.iter().all(|(kept, _)| *kept != spot.container) {
                        rescued.kept.push((spot.container, error.to_string()));
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.repacking {
                Some(repacking) => self.pack(repacking, wanted, &chunk, reader, copies)?,
                None => {
                    let open = &mut copies.open[kind(chunk.level, spot.rank)];
                    self.append(wanted, &chunk, reader, open)?;
                }
            }
            copies.handed_in.chunks += 1;
            copies.handed_in.live.push(*fingerprint);
            self.count(rescued, std::slice::from_ref(wanted));
        }
        Ok(())
    }

    /// Appends a chunk that is packed anew: turned round, or a delta as it is, or a whole one
    /// perhaps as a difference if it may become one.
    fn pack(
        &self,
        repacking: &Repacking,
        wanted: &(Fingerprint, Spot),
        chunk: &Chunk,
        reader: &ChunkReader,
        copies: &mut Copies,
    ) -> Result<()> {
        let (fingerprint, spot) = wanted;
        let turn = repacking.turn(fingerprint);
        if spot.depth > 0 && turn == Turn::Stays {
            return self.append(wanted, chunk, reader, &mut copies.open[DELTAS]);
        }
        let open = &mut copies.open[kind(chunk.level, spot.rank)];
        let is_new = spot.rank != u32::MAX && spot.depth == 0;
        let stays_whole = is_new || repacking.is_base(fingerprint);
        match (turn, stays_whole && !chunk.level.is_node()) {
            (Turn::Whole, _) => {
                let frame = open.append_again(*fingerprint, chunk)?;
                repacking.note_whole(fingerprint, frame.container);
            }
            (_, true) => {
                open.append_again(*fingerprint, chunk)?;
            }
            (Turn::Against(successor), false) => {
                open.append_version(*fingerprint, chunk, successor)?;
            }
            (Turn::Stays, false) => {
                open.append(*fingerprint, chunk.level, chunk)?;
            }
        }
        Ok(())
    }

    /// Appends a chunk that was read and verified: a delta as it lies in its frame, if it was made
    /// of that.
    fn append(
        &self,
        (fingerprint, spot): &(Fingerprint, Spot),
        chunk: &Chunk,
        reader: &ChunkReader,
        open: &mut OpenContainer,
    ) -> Result<()> {
        let section = match chunk.container() == spot.container {
            true => reader.section(spot.container)?,
            false => None,
        };
        let position = spot.position;
        let Some((section, descriptor)) = section.and_then(|section| {
            let descriptor = *section.chunks.get(position as usize)?;
            (descriptor.fingerprint == *fingerprint).then_some((section, descriptor))
        }) else {
            return open.append(*fingerprint, chunk.level, chunk).map(|_| ());
        };
        let sketch = section.sketch_at(position);
        match section.delta_at(position) {
            None => open.append_copy(&descriptor, None, sketch, chunk)?,
            Some(delta) => {
                let mut delta = delta.clone();
                self.forget_whereabouts(&mut delta);
                let payload = reader.payload(spot.container, &section, &descriptor)?;
                open.append_copy(&descriptor, Some(&delta), sketch, &payload)?
            }
        };
        Ok(())
    }

    /// Nobody is to look for a base where it will not be any more.
    fn forget_whereabouts(&self, delta: &mut Delta) {
        for base in &mut delta.bases {
            base.container = base.container.filter(|id| self.condemned.binary_search(id).is_err());
        }
    }

    fn count(&self, rescued: &mut Rescued, chunks: &[(Fingerprint, Spot)]) {
        let bytes = chunks.iter().map(|(_, spot)| u64::from(spot.length)).sum();
        rescued.chunks += chunks.len() as u64;
        rescued.bytes += bytes;
        self.job.progress.add(chunks.len() as u64, bytes);
    }

    /// Opens a frame and verifies the wanted chunks in it together, which costs a fraction of
    /// verifying them one by one. `None` if anything is wrong with it: they are read one by one
    /// then, wherever they are.
    fn open_frame(
        &self,
        wanted: &[(Fingerprint, Spot)],
        reader: &ChunkReader,
    ) -> Option<Vec<Chunk>> {
        let (_, spot) = wanted.first()?;
        let section = reader.section(spot.container).ok()??;
        let chunk = |(fingerprint, spot): &(Fingerprint, Spot)| {
            let chunk = section.chunks.get(spot.position as usize).copied();
            chunk.filter(|chunk| chunk.fingerprint == *fingerprint)
        };
        let chunks: Vec<ChunkDescriptor> = wanted.iter().map(chunk).collect::<Option<_>>()?;
        reader.read_together(spot.container, &section, &chunks).ok()
    }

    /// Reads a chunk where it was seen, or wherever else it is: another condemned container may
    /// have it, or another collector is ahead.
    fn read(&self, fingerprint: &Fingerprint, spot: &Spot, reader: &ChunkReader) -> Result<Chunk> {
        let (container, position) = (spot.container, spot.position);
        match reader.section(container)? {
            Some(section) => reader.read_from(Location { container, section, position }, &[]),
            None => reader.read(fingerprint),
        }
    }

    fn open_log(&self) -> Result<Arc<ContainerContext>> {
        let environment = self.repository.environment();
        let compression = match self.repacking {
            Some(repacking) => repacking.compression(),
            None => self.repository.compression()?,
        };
        // High levels take megabytes in every thread.
        let affordable = self.repository.memory().limit_bytes / repacking::THREAD_LIMIT_BYTES;
        let threads = match self.repacking {
            Some(_) => self.threads.min(affordable.max(1)),
            None => self.threads,
        };
        let similar = self.repacking.map(Repacking::similar);
        let fingerprinter = self.repository.fingerprinter();
        let target_bytes = self.repository.container_target_bytes();
        Ok(Arc::new(ContainerContext {
            vault: Arc::clone(self.repository.vault()),
            randomness: Arc::clone(&environment.randomness),
            clock: Arc::clone(&environment.clock),
            pool: Arc::new(FramePool::start(
                threads,
                compression,
                fingerprinter,
                similar.as_ref(),
            )?),
            log: Arc::new(ContainerLog::start(self.repository, |_| {})?),
            frames_in_flight_max: frames_in_flight_max(None, target_bytes),
            target_bytes,
            frame_bytes: self.repository.frame_target_bytes(),
            session: None,
            repacked_level: self.repacking.map_or(0, Repacking::level),
            named: Mutex::default(),
            deltas: DeltaCounters::default(),
        }))
    }
}

/// Containers that are filled at once: what the newest snapshots need, what only older ones need,
/// tree nodes, and, where the others are packed anew, deltas that are copied.
const KINDS: usize = 4;
const WARM: usize = 0;
const COLD: usize = 1;
const NODES: usize = 2;
const DELTAS: usize = 3;

/// Containers that are being filled, and what went into them.
struct Copies {
    open: [OpenContainer; KINDS],
    handed_in: HandedIn,
    /// Whether anything in the store is known to be damaged.
    has_damage: bool,
}

/// Whether all differences of a frame can be made, those included that nobody needs: a copy of it
/// could not be read back otherwise. Bases are read only where something is damaged.
fn are_makeable(
    section: &MetadataSection,
    frame: u32,
    reader: &ChunkReader,
    has_damage: bool,
) -> Result<bool> {
    for chunk in section.chunks.iter().filter(|chunk| chunk.frame == frame && chunk.is_delta()) {
        let is_makeable = match has_damage {
            true => is_makeable(section, chunk, reader)?,
            false => reader.has_bases(delta_of(section, chunk)?)?,
        };
        if !is_makeable {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether what a difference is made of can be read.
fn is_makeable(
    section: &MetadataSection,
    chunk: &ChunkDescriptor,
    reader: &ChunkReader,
) -> Result<bool> {
    match bases_of(chunk, delta_of(section, chunk)?, reader) {
        Ok(_) => Ok(true),
        Err(error) if error.is_unreadable() => Ok(false),
        Err(error) => Err(error),
    }
}

fn kind(level: Level, rank: u32) -> usize {
    match (level.is_node(), rank) {
        (true, _) => NODES,
        (false, u32::MAX) => COLD,
        _ => WARM,
    }
}
