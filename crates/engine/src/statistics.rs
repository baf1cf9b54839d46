//! Figures about a store: how large, how much saved, what the index costs.
//!
//! One listing gives all sizes. Chunks are counted from the metadata packs, which are read as one
//! sequential scan, and from the containers that no pack describes. Nothing is written, and damage
//! is left out of the figures: to find it is the business of a check.

use crate::container::list;
use crate::container::reader::{self, OpenedSection};
use crate::index::FingerprintIndex;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::SnapshotList;
use onefold_format::{layout, metadata_pack};
use onefold_store::Key;
use onefold_types::{ContainerId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Figures about a store.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Statistics {
    /// Snapshots, hidden ones included.
    pub snapshots: u64,
    /// Bytes of all files of all snapshots.
    pub bytes_logical: u64,
    /// Containers.
    pub containers: u64,
    /// Bytes of all containers.
    pub bytes_containers: u64,
    /// Containers sealed under older keys than the newest ones.
    pub containers_of_older_keys: u64,
    /// Bytes of these.
    pub bytes_of_older_keys: u64,
    /// Bytes of metadata packs.
    pub bytes_metadata: u64,
    /// Bytes of index runs.
    pub bytes_index: u64,
    /// Bytes of everything else.
    pub bytes_other: u64,
    /// Data chunks.
    pub chunks_data: u64,
    /// Tree nodes.
    pub chunks_nodes: u64,
    /// Plain bytes of data chunks.
    pub bytes_data: u64,
    /// Plain bytes of tree nodes.
    pub bytes_nodes: u64,
    /// Chunks that are stored as differences against others.
    pub chunks_delta: u64,
    /// Their plain bytes.
    pub bytes_delta: u64,
    /// What stands for them, before compression.
    pub payload_bytes_delta: u64,
    /// Index runs.
    pub index_runs: u64,
    /// Entries in all runs.
    pub index_entries: u64,
    /// Bytes of memory that summary vectors take.
    pub bytes_summary_vectors: u64,
}

/// Counts everything in a store.
pub fn statistics(repository: &Arc<Repository>, job: &Job) -> Result<Statistics> {
    let mut statistics = Statistics::default();
    for snapshot in SnapshotList::load(repository)?.snapshots {
        statistics.snapshots += 1;
        statistics.bytes_logical += snapshot.record.summary.bytes;
    }
    let mut containers = list_objects(repository, &mut statistics)?;
    let index = FingerprintIndex::open(repository)?;
    statistics.index_runs = index.runs().len() as u64;
    statistics.index_entries = index.entries();
    let filters = index.runs();
    statistics.bytes_summary_vectors = filters.iter().map(|run| run.pieces_bytes() as u64).sum();

    job.progress.set_totals(containers.len() as u64, 0);
    // Packs are copies; what none of them describes is asked of its container.
    for name in list::list_packs(repository).unwrap_or_default() {
        job.interrupt.check()?;
        count_pack(repository, &name, &mut containers, &mut statistics, job)?;
    }
    for (id, bytes) in containers {
        job.interrupt.check()?;
        match reader::read_section_told(repository, id) {
            Ok(opened) => count_section(&opened, bytes, &mut statistics),
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(error),
        }
        job.progress.add(1, 0);
    }
    Ok(statistics)
}

/// Adds up the sizes of all objects and returns the containers with theirs.
fn list_objects(
    repository: &Repository,
    statistics: &mut Statistics,
) -> Result<BTreeMap<ContainerId, u64>> {
    let mut containers = BTreeMap::new();
    repository.store().list("", &mut |listed| {
        let sum = match listed.key.top() {
            layout::CONTAINERS => {
                statistics.containers += 1;
                let name = layout::last_component(listed.key.as_str());
                containers.extend(name.parse::<ContainerId>().map(|id| (id, listed.size_bytes)));
                &mut statistics.bytes_containers
            }
            layout::METADATA => &mut statistics.bytes_metadata,
            layout::INDEX => &mut statistics.bytes_index,
            _ => &mut statistics.bytes_other,
        };
        *sum += listed.size_bytes;
        Ok(())
    })?;
    Ok(containers)
}

fn count_pack(
    repository: &Repository,
    name: &str,
    containers: &mut BTreeMap<ContainerId, u64>,
    statistics: &mut Statistics,
    job: &Job,
) -> Result<()> {
    let bytes = match repository.store().get(&Key::new(name)?) {
        Ok(bytes) => bytes,
        Err(error) if error.is_lost() => return Ok(()),
        Err(error) => return Err(error),
    };
    // What a damaged pack does not give is read from the containers.
    for (id, sealed) in metadata_pack::read(&bytes).unwrap_or_default() {
        if let Some(bytes) = containers.get(&id).copied()
            && let Ok(opened) = reader::open_section_told(repository, id, &mut sealed.to_vec())
        {
            containers.remove(&id);
            count_section(&opened, bytes, statistics);
            job.progress.add(1, 0);
        }
    }
    Ok(())
}

fn count_section(opened: &OpenedSection, stored_bytes: u64, statistics: &mut Statistics) {
    if opened.is_of_older_keys {
        statistics.containers_of_older_keys += 1;
        statistics.bytes_of_older_keys += stored_bytes;
    }
    for chunk in &opened.section.chunks {
        let (chunks, bytes) = match chunk.level.is_node() {
            true => (&mut statistics.chunks_nodes, &mut statistics.bytes_nodes),
            false => (&mut statistics.chunks_data, &mut statistics.bytes_data),
        };
        *chunks += 1;
        *bytes += u64::from(chunk.length);
        if chunk.is_delta() {
            statistics.chunks_delta += 1;
            statistics.bytes_delta += u64::from(chunk.length);
            statistics.payload_bytes_delta += u64::from(chunk.payload_length);
        }
    }
}
