//! Rebuilds the index out of the containers.
//!
//! Recovery in the sense of S1.14: what no run covers is replayed from the metadata sections, first
//! from the metadata packs, which can be read as one sequential scan, then from the containers that
//! no pack has. Packs are copies and prove nothing: those that this machine has not compared with
//! their containers yet are compared ([`crate::container::packs`]).
//! Used when the index was deleted or damaged, after a crash, and before a reader
//! declares a chunk lost.
//!
//! What is left of the containers names none that is gone. So before an index can be seen that was
//! made anew because runs were lost, a doubt is raised (rule D5), unless nothing was ever saved.
//! That runs were lost shows by their being unreadable, by there being none, or by a metadata pack
//! that describes a container which no run covers: packs are written just before their runs. What a
//! crashed backup left behind has neither.

use super::fingerprint_index::FingerprintIndex;
use super::run_writer;
use crate::container::list::{container_names, difference, list_packs};
use crate::container::packs::{Compared, Pack};
use crate::container::reader;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{decided, doubts};
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
    let mut replay =
        Replay { repository, kind, entries: 0, containers: Vec::new(), has_doubted: false };
    let mut replayed = Replayed::default();
    if missing.is_empty() {
        return Ok(replayed);
    }
    job.progress.set_totals(missing.len() as u64, 0);
    if index.runs().is_empty() || !index.problems().is_empty() {
        replay.doubt()?;
    }
    // Copies: what cannot be listed or read costs speed, and the knowledge of what they describe.
    let packs = match list_packs(repository) {
        Ok(packs) => packs,
        Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
        Err(_) => {
            replay.doubt()?;
            Vec::new()
        }
    };
    for name in packs {
        job.interrupt.check()?;
        replay.take_pack(&name, &mut missing, &mut replayed, job)?;
    }
    for id in missing {
        job.interrupt.check()?;
        match reader::read_section(repository, id) {
            Ok(section) => replay.take(id, &section, &mut replayed)?,
            // One object that cannot be read does not keep the others from being found.
            Err(error) if error.is_unreadable() => {
                replayed.unreadable += 1;
            }
            Err(error) => return Err(error),
        }
        job.progress.add(1, 0);
    }
    replay.flush()?;
    Ok(replayed)
}

struct Replay<'a> {
    repository: &'a Repository,
    kind: IndexKind,
    containers: Vec<(ContainerId, Vec<u64>)>,
    entries: usize,
    has_doubted: bool,
}

impl Replay<'_> {
    fn take_pack(
        &mut self,
        name: &str,
        missing: &mut BTreeSet<ContainerId>,
        replayed: &mut Replayed,
        job: &Job,
    ) -> Result<()> {
        let Ok(bytes) = self.repository.store().get(&Key::new(name)?) else {
            return Ok(());
        };
        let mut records = metadata_pack::read(&bytes).unwrap_or_default();
        records.retain(|(id, _)| missing.contains(id));
        let mut pack = Pack::unknown(self.repository, &bytes);
        let _foreseen = pack.foresee(records.iter().map(|(id, _)| *id));
        for (id, sealed) in records {
            let mut sealed = match pack.compare(id, sealed)? {
                Compared::Same => sealed.to_vec(),
                Compared::Other(own) => own,
                Compared::Unread | Compared::Gone => continue,
            };
            let section = reader::open_section(self.repository, id, &mut sealed);
            if let Ok(section) = section {
                self.doubt()?;
                missing.remove(&id);
                self.take(id, &section, replayed)?;
                job.progress.add(1, 0);
            }
        }
        Ok(())
    }

    /// Raises a doubt, once, if there is anything that it could concern.
    fn doubt(&mut self) -> Result<()> {
        if self.has_doubted {
            return Ok(());
        }
        self.has_doubted = true;
        match decided::names(self.repository, layout::OUTCOMES)?.is_empty() {
            true => Ok(()),
            false => doubts::raise(self.repository, "the index, or a part of it, was made anew"),
        }
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
        run_writer::write_run_of(self.repository, Some(self.kind), containers).map(|_| ())
    }
}
