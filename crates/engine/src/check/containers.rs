//! Verifies containers: their structure always, their data as far as asked for.
//!
//! Structure: header and its name, footer, and the metadata section, opened from the container
//! itself. Data: the object is read, a large one in pieces; its keyless checksum, every seal and
//! every chunk's fingerprint are verified, chunks in batches. A container in quarantine is always
//! read whole, so that a restored file is noticed.
//!
//! Of each container about a hundred bytes are kept: the checksum of its section (to compare packs
//! with) and an order-independent sum over its chunks (to compare the index with).
//!
//! Concurrency: threads take containers one after the other in the order of their names, which is
//! the order of creation. A container that was deleted since it was listed is passed over.

use super::{CheckOptions, CheckReport, ReadData};
use crate::chunks::ChunkReader;
use crate::container::delta::{BaseBytes, BaseSource};
use crate::container::reader;
use crate::container::whole::{Ends, WholeReader, end_of_frames};
use crate::index::verify::PrefixSum;
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::container::{
    self, Base, BodyChecksum, FOOTER_BYTES, HEADER_BYTES, MetadataSection,
};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What is kept of a container whose section can be read.
pub struct Contents {
    /// The checksum of its sealed section.
    pub section_checksum: u64,
    /// The sum over its chunks.
    pub prefixes: PrefixSum,
}

/// What is wrong with a container.
pub struct Damage {
    /// In words.
    pub problem: String,
    /// The frames that cannot be read; `None` if nothing can.
    pub frames: Option<BTreeSet<u32>>,
}

impl Damage {
    fn total(problem: String) -> Self {
        Self { problem, frames: None }
    }

    /// Whether nothing of it can be read.
    pub fn is_total(&self) -> bool {
        self.frames.is_none()
    }

    /// Whether this frame can be read.
    pub fn spares(&self, frame: u32) -> bool {
        self.frames.as_ref().is_some_and(|frames| !frames.contains(&frame))
    }
}

/// The state of all containers.
#[derive(Default)]
pub struct Inventory {
    /// Containers whose section can be read.
    pub contents: BTreeMap<ContainerId, Contents>,
    /// Containers with damage, those of `contents` with bad frames among them.
    pub damaged: BTreeMap<ContainerId, Damage>,
    /// Containers every byte of which was verified.
    pub verified_whole: BTreeSet<ContainerId>,
    /// How many containers name which session; `None`: no session.
    pub sessions: BTreeMap<Option<SessionId>, u64>,
}

impl Inventory {
    /// Whether the container was in the store.
    pub fn exists(&self, id: ContainerId) -> bool {
        self.contents.contains_key(&id) || self.damaged.contains_key(&id)
    }
}

struct Task {
    id: ContainerId,
    bytes: u64,
    whole: bool,
}

/// Verifies every container.
pub fn inventory(
    repository: &Arc<Repository>,
    options: CheckOptions,
    quarantine: &BTreeSet<ContainerId>,
    job: &Job,
    report: &mut CheckReport,
) -> Result<Inventory> {
    let (tasks, sample_end) = list(repository, options.read_data, quarantine)?;
    report.sample_end = sample_end;
    let read_bytes = tasks.iter().filter(|task| task.whole).map(|task| task.bytes);
    job.progress.set_current("containers");
    job.progress.set_totals(tasks.len() as u64, read_bytes.sum());
    let bases = Bases { repository, reader: OnceLock::new() };
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let work = || {
        let done = work((repository, &bases), &tasks, &next, &stop, job);
        if done.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        done
    };
    let results = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..options.threads).map(|_| scope.spawn(work)).collect();
        let mut results = vec![work()];
        for helper in helpers {
            results.push(helper.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Io, "a checking thread has stopped"))
            }));
        }
        results
    });
    let mut inventory = Inventory::default();
    for result in results {
        let partial = result?;
        report.containers += partial.examined;
        report.containers_read += partial.inventory.verified_whole.len() as u64;
        report.chunks_verified += partial.chunks_verified;
        report.bytes_verified += partial.bytes_verified;
        inventory.contents.extend(partial.inventory.contents);
        inventory.damaged.extend(partial.inventory.damaged);
        inventory.verified_whole.extend(partial.inventory.verified_whole);
        for (session, count) in partial.inventory.sessions {
            *inventory.sessions.entry(session).or_default() += count;
        }
    }
    Ok(inventory)
}

fn list(
    repository: &Repository,
    read_data: ReadData,
    quarantine: &BTreeSet<ContainerId>,
) -> Result<(Vec<Task>, Option<ContainerId>)> {
    let mut tasks = Vec::new();
    let store = repository.store();
    store.list(layout::CONTAINERS, &mut |listed| {
        if let Some(id) = layout::container_of(listed.key.as_str()) {
            tasks.push(Task {
                id,
                bytes: listed.size_bytes,
                whole: is_selected(read_data, id) || quarantine.contains(&id),
            });
        }
        Ok(())
    })?;
    tasks.sort_unstable_by_key(|task| task.id);
    let (percent, start) = match read_data {
        ReadData::Sample(percent) => {
            let mut bytes = [0; 8];
            repository.environment().randomness.fill(&mut bytes);
            (percent, u64::from_le_bytes(bytes) as usize)
        }
        ReadData::SampleAfter { percent, after } => {
            (percent, tasks.partition_point(|task| task.id <= after))
        }
        _ => return Ok((tasks, None)),
    };
    let sample_end = select_sample(&mut tasks, percent, start);
    Ok((tasks, sample_end))
}

/// Selects a share of the containers, from an index on and then from the first one on; returns the
/// last one.
fn select_sample(tasks: &mut [Task], percent: f64, start: usize) -> Option<ContainerId> {
    let count = tasks.len();
    let share = (count as f64 * percent / 100.0).ceil() as usize;
    let mut end = None;
    for offset in 0..share.clamp(1, count.max(1)) {
        if let Some(task) = tasks.get_mut((start % count.max(1) + offset) % count.max(1)) {
            task.whole = true;
            end = Some(task.id);
        }
    }
    end
}

fn is_selected(read_data: ReadData, id: ContainerId) -> bool {
    match read_data {
        ReadData::None | ReadData::Sample(_) | ReadData::SampleAfter { .. } => false,
        ReadData::All => true,
        // By the random part of the name, so that the parts stay the same while containers come.
        ReadData::Part { part, of } => {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&id.0[8..]);
            u64::from_le_bytes(bytes) % u64::from(of) == u64::from(part - 1)
        }
    }
}

/// Gives the bases of deltas. The index is opened when the first one is asked for: a store without
/// deltas is looked at without it.
struct Bases<'a> {
    repository: &'a Arc<Repository>,
    reader: OnceLock<Option<ChunkReader>>,
}

impl BaseSource for Bases<'_> {
    fn base(&self, base: &Base, below_depth: u8) -> Result<BaseBytes> {
        let reader = self.reader.get_or_init(|| ChunkReader::apart(self.repository).ok());
        // What is wrong with the index is told by whoever looks at the index.
        let without = || Error::damaged("the index cannot be opened, so bases are not found");
        reader.as_ref().ok_or_else(without)?.base(base, below_depth)
    }
}

/// What one thread found.
struct Worker<'a> {
    repository: &'a Repository,
    bases: &'a Bases<'a>,
    whole: WholeReader,
    inventory: Inventory,
    examined: u64,
    chunks_verified: u64,
    bytes_verified: u64,
}

fn work<'a>(
    (repository, bases): (&'a Repository, &'a Bases<'a>),
    tasks: &[Task],
    next: &AtomicUsize,
    stop: &AtomicBool,
    job: &Job,
) -> Result<Worker<'a>> {
    let mut worker = Worker {
        repository,
        bases,
        whole: WholeReader::new()?,
        inventory: Inventory::default(),
        examined: 0,
        chunks_verified: 0,
        bytes_verified: 0,
    };
    while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
        job.interrupt.check()?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let examined = match task.whole {
            true => worker.read_whole(task.id, task.bytes),
            false => worker.read_structure(task.id, task.bytes),
        };
        worker.examined += 1;
        match examined {
            Ok(()) => {}
            // Deleted since it was listed: a collection is running.
            Err(error) if error.kind() == ErrorKind::NotFound => worker.examined -= 1,
            Err(error) if is_of_one_object(&error) => {
                let damage = Damage::total(error.to_string());
                worker.inventory.damaged.insert(task.id, damage);
            }
            Err(error) => return Err(error),
        }
        job.progress.add(1, if task.whole { task.bytes } else { 0 });
    }
    Ok(worker)
}

impl Worker<'_> {
    fn read_structure(&mut self, id: ContainerId, bytes: u64) -> Result<()> {
        let mut sealed = reader::read_sealed_section(self.repository, id)?;
        let mut header = [0; HEADER_BYTES];
        let key = Key::new(layout::container(id))?;
        self.repository.store().get_range(&key, 0, &mut header)?;
        let opened = unless_stale(self.take_section(id, &mut sealed))?;
        let header_problem = header_problem(&header, id, opened.is_ok())?;
        let metadata_offset = bytes.checked_sub((sealed.len() + FOOTER_BYTES) as u64);
        let section = opened?;
        if let Some(problem) = header_problem {
            self.damage(id, problem, BTreeSet::new());
        }
        if Some(end_of_frames(&section)) != metadata_offset {
            self.inventory.contents.remove(&id);
            return Err(Error::damaged("its frames do not fill it"));
        }
        Ok(())
    }

    fn read_whole(&mut self, id: ContainerId, bytes: u64) -> Result<()> {
        let ends = self.whole.ends(self.repository, id, bytes)?;
        let opened = unless_stale(self.take_section(id, &mut ends.sealed_section.clone()))?;
        let header_problem = header_problem(&ends.header, id, opened.is_ok())?;
        let verified = self.verify_frames(id, &ends, &opened?);
        if verified.is_err() {
            self.inventory.contents.remove(&id);
        }
        let (bad, first, checksum_holds) = verified?;
        let problem = first.or(header_problem).or_else(|| {
            let text = "its checksum does not hold, although all its chunks do";
            (!checksum_holds).then(|| text.to_owned())
        });
        if let Some(problem) = problem {
            self.damage(id, problem, bad);
        }
        self.inventory.verified_whole.insert(id);
        Ok(())
    }

    /// Opens a section and keeps what is compared later.
    fn take_section(&mut self, id: ContainerId, sealed: &mut [u8]) -> Result<MetadataSection> {
        let section_checksum = checksum_of(sealed);
        let section = reader::open_section(self.repository, id, sealed)?;
        let contents = Contents { section_checksum, prefixes: PrefixSum::of(&section) };
        self.inventory.contents.insert(id, contents);
        *self.inventory.sessions.entry(section.session).or_default() += 1;
        Ok(section)
    }

    /// Opens every frame and verifies its chunks; tells which are bad, what is wrong with the first
    /// of them, and whether the checksum of all holds.
    fn verify_frames(
        &mut self,
        id: ContainerId,
        ends: &Ends,
        section: &MetadataSection,
    ) -> Result<(BTreeSet<u32>, Option<String>, bool)> {
        let Self { repository, bases, whole, chunks_verified, bytes_verified, .. } = self;
        let (mut bad, mut first) = (BTreeSet::new(), None);
        let checksum_holds = whole.verify(
            repository,
            id,
            ends,
            (section, *bases),
            &mut |number, _, chunks, verified| {
                match verified {
                    Ok(unmade) => {
                        *chunks_verified += chunks.len() as u64 - unmade;
                        let bytes = chunks.iter().map(|chunk| u64::from(chunk.length));
                        *bytes_verified += bytes.sum::<u64>();
                    }
                    Err(error) if error.kind() == ErrorKind::Damaged => {
                        bad.insert(number);
                        first.get_or_insert_with(|| error.to_string());
                    }
                    Err(error) => return Err(error),
                }
                Ok(())
            },
        )?;
        Ok((bad, first, checksum_holds))
    }

    fn damage(&mut self, id: ContainerId, problem: String, frames: BTreeSet<u32>) {
        let damage = Damage { problem, frames: Some(frames) };
        self.inventory.damaged.insert(id, damage);
    }
}

/// Fails if what was to be opened may be newer than the keys; else hands the result on.
fn unless_stale<T>(opened: Result<T>) -> Result<Result<T>> {
    match opened {
        Err(error) if error.kind() == ErrorKind::KeysChanged => Err(error),
        other => Ok(other),
    }
}

/// Whether an error is about the one object that was read, so that the check can go on.
pub fn is_of_one_object(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Io | ErrorKind::LimitExceeded)
}

/// The checksum by which a section in a pack is compared with the container's own.
pub fn checksum_of(bytes: &[u8]) -> u64 {
    let mut checksum = BodyChecksum::default();
    checksum.update(bytes);
    checksum.finish()
}

/// What is wrong with a header. It carries no seal: a version that is not ours is believed only if
/// the sealed section cannot be opened either (R26).
fn header_problem(header: &[u8], id: ContainerId, section_opens: bool) -> Result<Option<String>> {
    match container::decode_header(header) {
        Ok(named) if named == id => Ok(None),
        Ok(named) => Ok(Some(format!("its header names container {named}"))),
        Err(error) if error.kind() == ErrorKind::NewerFormat && !section_opens => Err(error),
        Err(error) => Ok(Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::container::ChunkDescriptor;
    use onefold_types::{Fingerprint, Level};

    fn section(names: &[u8]) -> MetadataSection {
        let chunk = |name: &u8| ChunkDescriptor {
            fingerprint: Fingerprint([*name; 32]),
            length: 1,
            level: Level::DATA,
            frame: 0,
            offset: 0,
            payload_length: 1,
        };
        MetadataSection { chunks: names.iter().map(chunk).collect(), ..MetadataSection::default() }
    }

    #[test]
    fn r14_a_chunk_that_a_container_holds_twice_counts_once() {
        let sum = |names: &[u8]| PrefixSum::of(&section(names));
        assert_eq!(sum(&[1, 2, 1]), sum(&[2, 1]), "an index holds each entry once");
        let others: [&[u8]; 5] = [&[], &[1], &[2], &[1, 3], &[1, 2, 3]];
        assert!(others.iter().all(|other| sum(other) != sum(&[1, 2])));
    }
}
