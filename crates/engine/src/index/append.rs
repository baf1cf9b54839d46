//! Makes durable containers findable: a pack of their metadata sections, then an index run (W6).

use super::{merge, run};
use crate::container::log::DurableContainer;
use crate::repository::Repository;
use onefold_format::index_run::IndexKind;
use onefold_format::{layout, metadata_pack};
use onefold_store::Key;
use onefold_types::{ContainerId, Fingerprint, Result};

/// Writes a metadata pack and an index run for containers that are durable, and merges runs if that
/// is due.
pub fn append(
    repository: &Repository,
    kind: Option<IndexKind>,
    durable: &[DurableContainer],
) -> Result<()> {
    if durable.is_empty() {
        return Ok(());
    }
    let mut pack = metadata_pack::begin();
    let mut containers = Vec::with_capacity(durable.len());
    for container in durable {
        metadata_pack::append(&mut pack, container.id, &container.sealed_section);
        let prefixes = container.fingerprints.iter().map(Fingerprint::prefix).collect();
        containers.push((container.id, prefixes));
    }
    put_pack(repository, &pack.into_bytes())?;
    run::write_run_of(repository, kind, containers)?;
    merge::merge_if_due(repository, kind)?;
    Ok(())
}

/// Puts a metadata pack under a fresh name.
pub fn put_pack(repository: &Repository, pack: &[u8]) -> Result<()> {
    let environment = repository.environment();
    let id = ContainerId::ordered(environment.clock.now_ns(), &*environment.randomness);
    repository.store().put(&Key::new(layout::metadata_pack(id))?, pack)
}
