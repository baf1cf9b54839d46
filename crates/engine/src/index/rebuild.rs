//! Rebuilds the index out of the containers.
//!
//! Recovery in the sense of S1.14: what no run covers is replayed from the metadata sections, first
//! from the metadata packs, which can be read as one sequential scan, then from the containers that
//! no pack has. Used when the index was deleted or damaged, after a crash, and before a reader
//! declares a chunk lost.

use super::fingerprint_index::FingerprintIndex;
use super::run;
use crate::container::reader;
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::container::MetadataSection;
use onefold_format::index_run::IndexKind;
use onefold_format::{layout, metadata_pack};
use onefold_store::Key;
use onefold_types::{ContainerId, ErrorKind, Result};
use std::collections::BTreeSet;

/// Entries of one run that a replay writes: bounds its memory.
const ENTRIES_PER_RUN_MAX: usize = 1 << 18;

/// What a replay did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Containers whose chunks were added to the index.
    pub containers: u64,
    /// Entries added.
    pub entries: u64,
    /// Containers whose metadata section cannot be read.
    pub unreadable: u64,
}

/// The names of all containers in the store, rising, in as little memory as they take.
pub fn container_names(repository: &Repository) -> Result<Vec<ContainerId>> {
    let mut ids = Vec::new();
    repository.store().list_names(layout::CONTAINERS, &mut |name| {
        ids.extend(layout::last_component(name).parse::<ContainerId>());
        Ok(())
    })?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The elements of `all` that are not in `others`; both rise.
pub fn difference(all: &[ContainerId], others: &[ContainerId]) -> Vec<ContainerId> {
    let mut others = others.iter().peekable();
    let mut difference = Vec::new();
    for id in all {
        while others.next_if(|other| *other < id).is_some() {}
        if others.peek() != Some(&id) {
            difference.push(*id);
        }
    }
    difference
}

/// Adds every container that no run covers to the index.
pub fn replay(repository: &Repository, index: &FingerprintIndex, job: &Job) -> Result<Replayed> {
    let present = container_names(repository)?;
    replay_containers(repository, index, &present, index.kind(), job)
}

/// Adds those of these containers, which rise, to the index that no run covers, in runs of this
/// kind.
pub fn replay_containers(
    repository: &Repository,
    index: &FingerprintIndex,
    present: &[ContainerId],
    kind: IndexKind,
    job: &Job,
) -> Result<Replayed> {
    let mut missing: BTreeSet<ContainerId> =
        difference(present, &index.covered()).into_iter().collect();
    let mut replay = Replay { repository, kind, entries: 0, containers: Vec::new() };
    let mut replayed = Replayed::default();
    if missing.is_empty() {
        return Ok(replayed);
    }
    job.progress.set_totals(missing.len() as u64, 0);
    for name in list_packs(repository)? {
        job.interrupt.check()?;
        replay.take_pack(&name, &mut missing, &mut replayed, job)?;
    }
    for id in missing {
        job.interrupt.check()?;
        match reader::read_section(repository, id) {
            Ok(section) => replay.take(id, &section, &mut replayed)?,
            Err(error) if error.is_damage() => replayed.unreadable += 1,
            Err(error) => return Err(error),
        }
        job.progress.add(1, 0);
    }
    replay.flush()?;
    Ok(replayed)
}

/// The names of all metadata packs.
pub fn list_packs(repository: &Repository) -> Result<Vec<String>> {
    let mut names = Vec::new();
    repository.store().list_names(layout::METADATA, &mut |name| {
        names.push(format!("{}/{}", layout::METADATA, layout::last_component(name)));
        Ok(())
    })?;
    names.sort_unstable();
    Ok(names)
}

struct Replay<'a> {
    repository: &'a Repository,
    kind: IndexKind,
    containers: Vec<(ContainerId, Vec<u64>)>,
    entries: usize,
}

impl Replay<'_> {
    fn take_pack(
        &mut self,
        name: &str,
        missing: &mut BTreeSet<ContainerId>,
        replayed: &mut Replayed,
        job: &Job,
    ) -> Result<()> {
        let bytes = match self.repository.store().get(&Key::new(name)?) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        // A damaged pack costs speed, not data: its containers are read one by one.
        for (id, sealed) in metadata_pack::read(&bytes).unwrap_or_default() {
            if !missing.contains(&id) {
                continue;
            }
            let section = reader::open_section(self.repository, id, &mut sealed.to_vec());
            if let Ok(section) = section {
                missing.remove(&id);
                self.take(id, &section, replayed)?;
                job.progress.add(1, 0);
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        id: ContainerId,
        section: &MetadataSection,
        replayed: &mut Replayed,
    ) -> Result<()> {
        let prefixes = section.chunks.iter().map(|chunk| chunk.fingerprint.prefix()).collect();
        self.containers.push((id, prefixes));
        self.entries += section.chunks.len();
        replayed.containers += 1;
        replayed.entries += section.chunks.len() as u64;
        if self.entries >= ENTRIES_PER_RUN_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.containers.is_empty() {
            return Ok(());
        }
        self.entries = 0;
        let containers = std::mem::take(&mut self.containers);
        run::write_run_of(self.repository, Some(self.kind), containers).map(|_| ())
    }
}
