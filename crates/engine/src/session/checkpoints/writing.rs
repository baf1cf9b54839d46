//! Writing checkpoints: by whoever has written something anyway, once enough names are in none.
//!
//! # Algorithm
//! What no checkpoint holds goes into a new one. Once [`SMALL_COUNT_MAX`] small ones have come
//! together, they become one, which says what it replaces; so a reader opens fewer than that, and
//! as many as are as long as they may be. What was forgotten since goes into the one of several
//! without its record.
//!
//! # Invariants
//! - A checkpoint is removed only once everything it says was stored again and read back. Whoever
//!   is stopped before that leaves checkpoints that say the same twice, which harms nobody.
//! - One that replaces others is stored after all that says what they say.
//! - Nothing is read from what only a listing shows: what goes in was opened by this process.
//!
//! # Concurrency
//! Names are fresh. Two writers at once store the same twice, and the next one puts it together.
//! Whoever may not delete leaves what is replaced, and nobody reads it.

use super::{CheckpointSet, Checkpoints, Ending, ReadCheckpoint, read, remove};
use crate::repository::Repository;
use crate::session::changes::Changes;
use crate::session::decided;
use crate::session::tombstones::Forgotten;
use onefold_crypto::Purpose;
use onefold_format::layout::{self, ChangeName};
use onefold_format::record::{
    self, Checkpoint, KnownChange, KnownSession, KnownSnapshot, RECORD_VERSION,
};
use onefold_store::Key;
use onefold_types::{CheckpointId, Error, ErrorKind, Result, SessionId, limits};
use std::collections::{BTreeMap, BTreeSet};

/// So many names that no checkpoint holds are worth one.
pub const NEW_NAMES_MIN: usize = 16;
/// So many small checkpoints become one.
pub const SMALL_COUNT_MAX: usize = 8;
/// A checkpoint from so many bytes on is left as it is.
const SMALL_MAX_BYTES: u64 = limits::CHECKPOINT_MAX_BYTES as u64 / 2;
/// Bytes of a record without any entry, with what separates its lists.
const FRAME_BYTES: usize = 256;
/// Bytes of a session's name in a list.
const NAME_BYTES: usize = 35;

/// For whoever has written something and has seen so many names that no checkpoint holds: writes
/// one if it is worth it. What keeps it from that (a full device, a store that takes no more) is no
/// failure of the work that was done: the next one tries again.
pub fn extend_after(repository: &Repository, new_names: usize) {
    if new_names >= NEW_NAMES_MIN {
        let _ = extend(repository, NEW_NAMES_MIN);
    }
}

/// What a collection does about checkpoints at its end; it has collected, whatever becomes of this.
pub fn tidy(repository: &Repository, reseals: bool) {
    if reseals {
        let _ = reseal(repository);
    }
    let _ = extend(repository, NEW_NAMES_MIN);
}

/// Stores what no checkpoint holds, if it is of at least so many names; tells whether it was.
pub fn extend(repository: &Repository, new_names_min: usize) -> Result<bool> {
    let set = CheckpointSet::load(repository)?;
    let known = Checkpoints::of(set.read.iter().map(|checkpoint| checkpoint.record.clone()));
    if count_new(repository, &known)? < new_names_min {
        return Ok(false);
    }
    let (new, forgotten) = new_of(repository, &known)?;
    if new.names() < new_names_min.max(1) {
        return Ok(false);
    }
    drop(known);
    let CheckpointSet { mut read, replaced, .. } = set;
    read.retain(|checkpoint| is_worth_merging(checkpoint, &forgotten));
    if read.len() + 1 < SMALL_COUNT_MAX {
        read.clear();
    }
    put_together(repository, new, read, replaced, &forgotten)?;
    Ok(true)
}

/// Stores everything anew that is in checkpoints under older keys than the newest ones; tells
/// whether there were any.
pub fn reseal(repository: &Repository) -> Result<bool> {
    let CheckpointSet { mut read, replaced, .. } = CheckpointSet::load(repository)?;
    read.retain(|checkpoint| checkpoint.is_of_older_keys);
    if read.is_empty() {
        return Ok(false);
    }
    let forgotten = Forgotten::load(repository)?.ids;
    put_together(repository, Checkpoints::default(), read, replaced, &forgotten)?;
    Ok(true)
}

/// Stores something new, and with it what is in these checkpoints, which are removed then.
fn put_together(
    repository: &Repository,
    mut all: Checkpoints,
    merged: Vec<ReadCheckpoint>,
    replaced: BTreeSet<CheckpointId>,
    forgotten: &BTreeSet<SessionId>,
) -> Result<()> {
    let mut replaces = Vec::new();
    if !merged.is_empty() {
        replaces.extend(merged.iter().map(|checkpoint| checkpoint.id));
        // Whoever says that these are replaced may be among those that go.
        replaces.extend(replaced);
        merged.into_iter().for_each(|checkpoint| all.add(checkpoint.record));
    }
    all.drop_forgotten(forgotten);
    put_all(repository, all, &replaces)?;
    for id in replaces {
        // What cannot be removed is not read any more, and removed by the next one.
        let _ = remove(repository, id);
    }
    Ok(())
}

/// How many outcomes, tombstones and newest changes are in no checkpoint, told by their names.
fn count_new(repository: &Repository, known: &Checkpoints) -> Result<usize> {
    let sessions = |directory: &str| -> Result<BTreeSet<SessionId>> {
        let names = decided::names(repository, directory)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    };
    let (outcomes, forgotten) = (sessions(layout::OUTCOMES)?, sessions(layout::TOMBSTONES)?);
    let mut newest = BTreeMap::new();
    for name in decided::names(repository, layout::CHANGES)? {
        let Ok(ChangeName { snapshot, number }) = name.parse() else { continue };
        if !forgotten.contains(&snapshot) {
            let most: &mut u64 = newest.entry(snapshot).or_default();
            *most = number.max(*most);
        }
    }
    let changes = newest.into_iter().map(|(snapshot, number)| ChangeName { snapshot, number });
    let is_new = |name: &ChangeName| known.change(*name).is_none();
    Ok(outcomes.iter().filter(|id| known.ending(**id).is_none()).count()
        + forgotten.iter().filter(|id| known.tombstone(**id).is_none()).count()
        + changes.filter(is_new).count())
}

/// What is decided and in no checkpoint, and what is forgotten for good.
fn new_of(
    repository: &Repository,
    known: &Checkpoints,
) -> Result<(Checkpoints, BTreeSet<SessionId>)> {
    let mut new = Checkpoints::default();
    let forgotten = Forgotten::load_with(repository, known)?;
    let opened = forgotten.opened.iter().filter(|id| known.tombstone(**id).is_none());
    new.tombstones.extend(opened.map(|id| (*id, forgotten.given_up.contains(id))));
    let names = decided::names(repository, layout::OUTCOMES)?;
    let sessions = names.iter().filter_map(|name| name.parse::<SessionId>().ok());
    let left: Vec<SessionId> = sessions.filter(|id| known.ending(*id).is_none()).collect();
    for (session, ending) in Checkpoints::default().take_endings(repository, left, &|_| true) {
        match ending {
            Ok(Some(ending)) => drop(new.endings.insert(session, ending)),
            Ok(None) => {}
            // It is reported by whoever lists snapshots.
            Err(error) if error.kind() == ErrorKind::Damaged => {}
            Err(error) => return Err(error),
        }
    }
    let changes = Changes::load_with(repository, &forgotten, known)?;
    for (name, change) in changes.newest() {
        if known.change(name).is_none() {
            new.changes.insert(name, change.clone());
        }
    }
    Ok((new, forgotten.ids))
}

/// Whether a checkpoint is small, or most of its records are of what is forgotten.
fn is_worth_merging(checkpoint: &ReadCheckpoint, forgotten: &BTreeSet<SessionId>) -> bool {
    let committed = &checkpoint.record.committed;
    let stale = committed.iter().filter(|known| forgotten.contains(&known.session)).count();
    checkpoint.stored_bytes < SMALL_MAX_BYTES || 2 * stale > committed.len()
}

impl Checkpoints {
    /// Leaves out what nobody needs of snapshots that are forgotten, and records that are too long.
    fn drop_forgotten(&mut self, forgotten: &BTreeSet<SessionId>) {
        for (session, ending) in &mut self.endings {
            let Ending::Committed(record) = ending else { continue };
            let is_long = || length(record::encode(record)) > limits::CHECKPOINT_RECORD_MAX_BYTES;
            if forgotten.contains(session) || is_long() {
                let (predecessors, strays) = (record.predecessors.clone(), record.strays);
                *ending = Ending::WithoutRecord { predecessors, strays };
            }
        }
        self.changes.retain(|name, _| !forgotten.contains(&name.snapshot));
    }
}

/// Stores everything in checkpoints that are no longer than one may be; the last one replaces.
fn put_all(repository: &Repository, all: Checkpoints, replaces: &[CheckpointId]) -> Result<()> {
    let mut filling = Filling { repository, record: empty(), bytes: FRAME_BYTES };
    for (session, given_up) in all.tombstones {
        let record = filling.with_room_for(NAME_BYTES)?;
        let list = if given_up { &mut record.given_up } else { &mut record.tombstones };
        list.push(session);
    }
    for (session, ending) in all.endings {
        match ending {
            Ending::Fenced => filling.with_room_for(NAME_BYTES)?.fenced.push(session),
            Ending::Committed(snapshot) => {
                let known = KnownSnapshot { session, snapshot: *snapshot };
                filling.with_room_for(length(record::encode(&known)))?.committed.push(known);
            }
            Ending::WithoutRecord { predecessors, strays } => {
                let known = KnownSession { session, predecessors, strays };
                let bytes = length(record::encode(&known));
                // What is longer than any checkpoint is read where it is.
                if bytes + FRAME_BYTES <= limits::CHECKPOINT_MAX_BYTES {
                    filling.with_room_for(bytes)?.without_record.push(known);
                }
            }
        }
    }
    for (name, change) in all.changes {
        let known = KnownChange { name, change };
        let bytes = length(record::encode(&known));
        if bytes <= limits::CHECKPOINT_RECORD_MAX_BYTES {
            filling.with_room_for(bytes)?.changes.push(known);
        }
    }
    for id in replaces {
        filling.with_room_for(NAME_BYTES)?.replaces.push(*id);
    }
    filling.flush()
}

fn empty() -> Checkpoint {
    Checkpoint { version: RECORD_VERSION, ..Checkpoint::default() }
}

/// A checkpoint that is being filled.
struct Filling<'r> {
    repository: &'r Repository,
    record: Checkpoint,
    bytes: usize,
}

impl Filling<'_> {
    /// The checkpoint that takes another entry of so many bytes.
    fn with_room_for(&mut self, entry_bytes: usize) -> Result<&mut Checkpoint> {
        // A comma follows.
        let entry_bytes = entry_bytes + 1;
        if self.bytes + entry_bytes > limits::CHECKPOINT_MAX_BYTES {
            self.flush()?;
        }
        self.bytes += entry_bytes;
        Ok(&mut self.record)
    }

    /// Stores the checkpoint, unless there is nothing in it, and reads it back.
    fn flush(&mut self) -> Result<()> {
        let record = std::mem::replace(&mut self.record, empty());
        self.bytes = FRAME_BYTES;
        if record == empty() {
            return Ok(());
        }
        let environment = self.repository.environment();
        let randomness = &*environment.randomness;
        let id = CheckpointId::ordered(environment.clock.now_ns(), randomness);
        let bytes = record::encode(&record)?;
        let vault = self.repository.vault();
        let sealed = vault.seal_record(Purpose::Checkpoint, &id.0, &bytes, randomness)?;
        let name = layout::checkpoint(id);
        self.repository.store().put_fresh(&Key::new(name.as_str())?, &sealed)?;
        if read(self.repository, id, sealed.len() as u64)?.record != record {
            return Err(Error::damaged(format!(
                "the store acknowledged '{name}' but holds something else; do not trust this device"
            )));
        }
        Ok(())
    }
}

/// Bytes of an entry in a checkpoint; what no record may be longer than fits into none.
fn length(encoded: Result<Vec<u8>>) -> usize {
    encoded.map_or(limits::RECORD_MAX_BYTES, |bytes| bytes.len())
}
