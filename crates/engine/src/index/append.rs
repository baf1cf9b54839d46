//! Makes durable containers findable: packs of their metadata sections, then an index run (W6).
//!
//! A pack is decoded before it is put, and read back afterwards; so is a run
//! ([`super::read_back`]).

use super::{merge, run_writer};
use crate::container::log::DurableContainer;
use crate::repository::Repository;
use onefold_format::index_run::IndexKind;
use onefold_format::{layout, metadata_pack};
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result, RunId, invariant, limits};

/// Bytes after which a pack is closed: far below the largest object of any store.
const PACK_BYTES: usize = 32 * limits::MIB;
/// Times that a pack is put that another process takes away before it was read back.
const TRIES_MAX: usize = 3;

/// Writes metadata packs and an index run for containers that are durable, and merges runs if that
/// is due; returns the run, which may be merged by then.
pub fn append(
    repository: &Repository,
    kind: Option<IndexKind>,
    durable: &[DurableContainer],
) -> Result<RunId> {
    let mut containers = Vec::with_capacity(durable.len());
    let mut pack = metadata_pack::begin();
    let mut packed = 0;
    for (number, container) in durable.iter().enumerate() {
        metadata_pack::append(&mut pack, container.id, &container.sealed_section);
        let prefixes = container.fingerprints.iter().map(Fingerprint::prefix).collect();
        containers.push((container.id, prefixes));
        if pack.len() >= PACK_BYTES || number + 1 == durable.len() {
            let pack = std::mem::replace(&mut pack, metadata_pack::begin()).into_bytes();
            compare(&pack, &durable[packed..=number])?;
            put_pack(repository, &pack)?;
            packed = number + 1;
        }
    }
    let (named, to_be_indexed) = (containers.len(), durable.len());
    invariant!(
        named == to_be_indexed && packed == to_be_indexed,
        "containers are missing from a pack or an index run",
        named,
        packed,
        to_be_indexed
    );
    let run = run_writer::write_run_of(repository, kind, containers)?;
    match merge::merge_if_due(repository, kind) {
        // Merging saves time later; a full device can do without.
        Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
        _ => Ok(run),
    }
}

/// Fails unless a pack says what went in.
fn compare(pack: &[u8], containers: &[DurableContainer]) -> Result<()> {
    let records = metadata_pack::read(pack)?;
    let expected = containers.iter().map(|one| (one.id, one.sealed_section.as_slice()));
    match records.into_iter().eq(expected) {
        true => Ok(()),
        false => Err(Error::damaged("a metadata pack does not say what went in (faulty memory?)")),
    }
}

/// Puts a metadata pack under a fresh name, and reads it back; tells whether it is there. One that
/// is gone each time, or cannot be put where it belongs, costs speed only: what it holds is in the
/// containers too. That the store keeps nothing at all shows in the runs.
pub fn put_pack(repository: &Repository, pack: &[u8]) -> Result<bool> {
    metadata_pack::read(pack)?;
    let environment = repository.environment();
    for _ in 0..TRIES_MAX {
        let id = ContainerId::ordered(environment.clock.now_ns(), &*environment.randomness);
        let key = Key::new(layout::metadata_pack(id))?;
        match repository.store().put_fresh(&key, pack) {
            Ok(()) => {}
            // The directory is in a bad state.
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Invalid) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        match repository.store().get(&key) {
            Ok(bytes) if bytes == pack => return Ok(true),
            Ok(_) => {
                return Err(Error::damaged(
                    "the store acknowledged a metadata pack but holds other bytes; do not trust \
                     this device",
                ));
            }
            // A collector that puts small packs together was faster; or it was never there.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
