//! What is left to do once it is decided what goes: delete, forget, tidy up (G6 to G8).
//!
//! Order: containers, then their entries in the index, then the mark that the epoch is finished. A
//! finished epoch is no longer avoided by writers, so nothing of it may be left to delete. Packs of
//! metadata sections and the quarantine of deleted containers are copies and notes; they go last.
//!
//! Every step may be repeated, by any number of collectors at once.

use crate::container::packs::{Compared, Pack};
use crate::container::reader;
use crate::index::{FingerprintIndex, append, merge};
use crate::job::Job;
use crate::repository::Repository;
use crate::session::quarantine;
use onefold_format::wire::Writer;
use onefold_format::{layout, metadata_pack};
use onefold_store::Key;
use onefold_types::{ContainerId, ErrorKind, Result};

/// Tries to rewrite the index while others merge it.
const TRIES_MAX: usize = 8;
/// Bytes after which a rewritten pack is closed.
const PACK_BYTES: usize = 4 << 20;
/// Packs below this size are put together when there are many.
const PACK_SMALL_BYTES: u64 = 1 << 18;
/// So many small packs may be.
const PACKS_SMALL_MAX: usize = 16;

/// Deletes containers (G6).
pub fn delete_containers(
    repository: &Repository,
    condemned: &[ContainerId],
    job: &Job,
) -> Result<()> {
    job.progress.set_current("deleting");
    job.progress.set_totals(condemned.len() as u64, 0);
    for id in condemned {
        job.interrupt.check()?;
        repository.store().delete(&Key::new(layout::container(*id))?)?;
        job.progress.add(1, 0);
    }
    // A container that comes back after a power loss would be garbage that the index does not know.
    repository.store().settle(layout::CONTAINERS)
}

/// Rewrites the index runs that know one of these containers, which rise (G7): what was deleted,
/// and what was missing before.
pub fn purge_index(repository: &Repository, gone: &[ContainerId], job: &Job) -> Result<()> {
    job.progress.set_current("the index");
    for _ in 0..TRIES_MAX {
        job.interrupt.check()?;
        let index = FingerprintIndex::open(repository)?;
        merge::remove_superseded(repository, &index)?;
        let mut stale = index.runs();
        stale.retain(|run| run.table.containers.iter().any(|id| gone.binary_search(id).is_ok()));
        if stale.is_empty() {
            return Ok(());
        }
        match merge::merge_without(repository, None, &stale, gone) {
            Ok(_) => return Ok(()),
            // Another process has merged and deleted one of them.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A run that cannot be read is made anew from the containers that exist.
            Err(error) if error.kind() == ErrorKind::Damaged => {
                crate::check::repair_index(repository, None, job)?;
            }
            Err(error) => return Err(error),
        }
    }
    // Stale entries are hints that nobody trusts; the next collection finds them to be missing.
    Ok(())
}

/// Rewrites packs of which much is of containers that are gone, and puts small ones together.
/// Returns how many packs were replaced. One that cannot be read now stays: what is wrong with it
/// costs speed only. What reads and is not what was written goes, a whole pack or a record of it.
pub fn rewrite_packs(repository: &Repository, present: &[ContainerId], job: &Job) -> Result<u64> {
    job.progress.set_current("metadata packs");
    let mut small = 0;
    let mut packs = Vec::new();
    let listed = repository.store().list(layout::METADATA, &mut |listed| {
        // What has another name than a pack may have is somebody else's.
        let id = layout::last_component(listed.key.as_str()).parse().ok();
        if id.is_some_and(|id| layout::metadata_pack(id) == listed.key.as_str()) {
            small += usize::from(listed.size_bytes < PACK_SMALL_BYTES);
            packs.push((listed.key, listed.size_bytes));
        }
        Ok(())
    });
    if listed.is_err() {
        // Packs are copies, and can wait.
        return Ok(0);
    }
    packs.sort_unstable();
    let mut out = metadata_pack::begin();
    let (mut out_bytes, mut replaced, mut are_proved) = (0, Vec::new(), true);
    let mut count = 0;
    for (key, size_bytes) in packs {
        job.interrupt.check()?;
        let Ok(bytes) = repository.store().get(&key) else { continue };
        let records = match metadata_pack::read(&bytes) {
            Ok(records) => records,
            // What it held is in the containers, and is read from there while it is in the way.
            Err(error) if error.kind() == ErrorKind::Damaged => {
                repository.store().delete(&key)?;
                continue;
            }
            Err(_) => continue,
        };
        let live = |id: &ContainerId| present.binary_search(id).is_ok();
        let (sound, is_proved) = sound_records(repository, &bytes, &records)?;
        are_proved &= is_proved;
        let is_damaged = sound.len() < records.len();
        let kept: Vec<_> = sound.into_iter().filter(|(id, _)| live(id)).collect();
        let is_small = size_bytes < PACK_SMALL_BYTES && small > PACKS_SMALL_MAX;
        // Rewriting a pack for a few dead records would cost more than they do.
        if kept.len() * 4 > records.len() * 3 && !is_small && !is_damaged {
            continue;
        }
        count += 1;
        for (id, section) in kept {
            metadata_pack::append(&mut out, id, section);
            out_bytes += section.len();
        }
        replaced.push(key);
        if out_bytes >= PACK_BYTES {
            put_full(repository, &mut out, &mut replaced, are_proved)?;
            (out_bytes, are_proved) = (0, true);
        }
    }
    match out_bytes {
        0 => replaced.into_iter().try_for_each(|key| repository.store().delete(&key))?,
        _ => put_full(repository, &mut out, &mut replaced, are_proved)?,
    }
    Ok(count)
}

/// Stores a full pack, and removes the packs that it replaces.
fn put_full(
    repository: &Repository,
    out: &mut Writer,
    replaced: &mut Vec<Key>,
    is_proved: bool,
) -> Result<()> {
    let full = std::mem::replace(out, metadata_pack::begin()).into_bytes();
    // Those it replaces tell what the store has held, so they go only for one that is there.
    if !append::put_pack(repository, &full)? {
        replaced.clear();
        return Ok(());
    }
    if let Some(remembered) = repository.remembered().filter(|_| is_proved) {
        remembered.note_pack(repository.fingerprinter().data(&full));
    }
    replaced.drain(..).try_for_each(|key| repository.store().delete(&key))
}

/// A container, and its sealed section.
type PackRecord<'a> = (ContainerId, &'a [u8]);

/// The records of a pack that are what was written, and whether all of these are proved. A pack
/// that was not compared with its containers is compared now.
fn sound_records<'a>(
    repository: &Repository,
    bytes: &[u8],
    records: &[PackRecord<'a>],
) -> Result<(Vec<PackRecord<'a>>, bool)> {
    let (mut sound, mut has_unread) = (Vec::new(), false);
    let mut pack = Pack::of(repository, bytes);
    for (id, section) in records {
        match pack.compare(*id, section)? {
            Compared::Same => {}
            Compared::Unread => has_unread = true,
            Compared::Other(_) | Compared::Gone => continue,
        }
        match reader::open_section(repository, *id, &mut section.to_vec()) {
            Ok(_) => sound.push((*id, *section)),
            Err(error) if error.kind() == ErrorKind::Damaged => {}
            Err(error) => return Err(error),
        }
    }
    // What is left of a pack that lied in places is true.
    Ok((sound, !has_unread))
}

/// Removes the quarantine of containers that are gone.
pub fn remove_findings(repository: &Repository, deleted: &[ContainerId]) -> Result<()> {
    for id in quarantine::load_ids(repository)? {
        if deleted.binary_search(&id).is_ok() && !quarantine::is_newer(repository, id)? {
            repository.store().delete(&Key::new(layout::damage(id))?)?;
        }
    }
    Ok(())
}
