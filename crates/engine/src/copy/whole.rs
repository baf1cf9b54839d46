//! Whether copies that the second store has already are whole.
//!
//! A container that was cut short after it was stored is known to nobody until it is read. Before
//! snapshots are copied into a directory of this machine, containers are looked at, by their ends:
//! all that are shorter than a full one, and so many others that each has its turn after some
//! copies; what is found goes into quarantine. Stores elsewhere take objects whole, and asking for
//! each would take long.
//!
//! While anything of the second store is in quarantine or missing, a copy counts as being there
//! only if every chunk of it is in a container that may be relied upon.

use super::CopyOptions;
use crate::chunk_store::presence::tree_present;
use crate::chunk_store::{ChunkStoreOptions, RewriteOptions};
use crate::container::reader;
use crate::ingest::storing::{Announced, StoringSession};
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList, quarantine};
use crate::tree::TreeReader;
use onefold_format::layout;
use onefold_policy::accelerated_filter::FilterConfiguration;
use onefold_types::{ContainerId, ErrorKind, Result, SessionId};
use std::sync::Arc;

/// Containers that are looked at beside those that are shorter than a full one.
const OTHERS_MAX: usize = 1 << 12;

/// Puts the containers of the second store in quarantine that were cut short.
pub(super) fn note_cut(target: &Repository, job: &Job) -> Result<()> {
    if target.store().puts_at_once() > 1 {
        return Ok(());
    }
    let known = quarantine::load_ids(target)?;
    let whole_bytes = target.container_target_bytes() as u64;
    let (mut short, mut others) = (Vec::<ContainerId>::new(), Vec::new());
    target.store().list(layout::CONTAINERS, &mut |listed| {
        let id = layout::container_of(listed.key.as_str()).filter(|id| !known.contains(id));
        match listed.size_bytes < whole_bytes {
            true => short.extend(id),
            false => others.extend(id),
        }
        Ok(())
    })?;
    let mut begin = [0; 8];
    target.environment().randomness.fill(&mut begin);
    short.extend(turn(others, u64::from_le_bytes(begin)));
    for id in short {
        job.interrupt.check()?;
        match reader::read_section(target, id) {
            // A pack may describe it all the same; its chunks are gone.
            Err(error) if error.kind() == ErrorKind::Damaged => {
                quarantine::record(target, id, &error.to_string(), &mut Vec::new())?;
            }
            Err(error) if !error.is_unreadable() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The containers of full size whose turn it is, from a random one on.
fn turn<T>(mut others: Vec<T>, random: u64) -> Vec<T> {
    let begin = random % others.len().max(1) as u64;
    others.rotate_left(begin as usize);
    others.truncate(OTHERS_MAX);
    others
}

/// Looks at copies of a store of which something is lost.
pub(super) struct Whole {
    storing: StoringSession,
    reader: TreeReader,
}

impl Whole {
    /// As the store is now; `None` where nothing of it is known to be lost.
    pub(super) fn of(
        target: &Arc<Repository>,
        options: &CopyOptions,
        job: &Job,
    ) -> Result<Option<Self>> {
        let announced = Announced::begin(target, true)?;
        let ready = announced.ready(options.lookup.index_mode(), None, job)?;
        if !ready.has_losses {
            return Ok(None);
        }
        let chosen = options.lookup.strategy(target, &ready.present, None)?;
        let looking = ChunkStoreOptions {
            compression: target.compression()?,
            threads: options.threads,
            filter: FilterConfiguration::default(),
            lookup: chosen.strategy,
            index_kind: None,
            rewrite: RewriteOptions::none(),
            delta: target.delta()?,
            dry_run: true,
            session: None,
        };
        let storing = ready.store(None, looking)?;
        Ok(Some(Self { storing, reader: TreeReader::open(target)? }))
    }

    /// Whether a snapshot of the store is whole.
    pub(super) fn holds(&self, target: &Repository, id: SessionId) -> Result<bool> {
        let list = SnapshotList::load(target)?;
        let Some(Snapshot { record, .. }) = list.get(id) else { return Ok(false) };
        match tree_present(&self.storing.store, &self.reader, record.root) {
            Err(error) if error.is_lost() => Ok(false),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r115_each_container_of_full_size_has_its_turn() {
        let all: Vec<usize> = (0..=OTHERS_MAX).collect();
        assert!((0..all.len()).all(|one| turn(all.clone(), one as u64).first() == Some(&one)));
        let chosen = turn(all, 1);
        assert_eq!(chosen.len(), OTHERS_MAX);
        assert!(!chosen.contains(&0));
        assert!(turn(Vec::<usize>::new(), 7).is_empty());
    }
}
