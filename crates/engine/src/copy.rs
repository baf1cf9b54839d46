//! A second copy: snapshots of one store in another (docs/decisions/0056).
//!
//! | module | holds |
//! | --- | --- |
//! | `known` | which snapshots the second store has already |
//! | `walk` | the walk over a tree of the first store |
//! | `steps` | what the walk hands on |
//! | `cutting` | boundaries kept, or made anew |
//! | `assemble` | the tree in the second store |
//! | `transfer` | one session of the second store |
//! | `whole` | whether copies that are there already are whole |
//!
//! # Algorithm
//! Snapshots are copied one by one, the oldest first, each in a session of its own. The tree is
//! walked; chunks are read from the first store as a restore reads them, in the order of a plan
//! (`restore/sequence.rs`), and go into the second as a backup's do. Where both stores give
//! equal bytes equal names, what the second one has is not read. Else bytes are named anew, and cut
//! anew unless both cut alike. What is the same as in an earlier snapshot that was copied is taken
//! over from its copy, whatever the names are.
//!
//! # Invariants
//! - Nothing is written into the first store.
//! - A chunk was compared with its name in the first store before it gets one in the second.
//! - A snapshot of which something cannot be read is not saved in the second store.
//! - A copy names its original; what is there whole is not copied again, and is no copy of a copy.
//!
//! # Concurrency
//! In the second store a copy is a backup: whatever may run beside one may run beside it. In the
//! first one it is a reader.

pub(crate) mod assemble;
pub(crate) mod cutting;
mod known;
mod steps;
mod transfer;
pub(crate) mod walk;
mod whole;

pub use known::Known;

use crate::job::Job;
use crate::look_up::LookupChoice;
use crate::repository::Repository;
use crate::restore::request_costs::Reach;
use crate::session::{Snapshot, SnapshotList, quarantine, tombstones};
use onefold_format::codec::Compression;
use onefold_format::record::Summary;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::collections::BTreeSet;
use std::sync::Arc;
use transfer::Transfer;
use whole::Whole;

/// How to copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Threads that read, and threads that compress and seal.
    pub threads: usize,
    /// What to compress with instead of the second store's default.
    pub compression: Option<Compression>,
    /// How chunks are looked up in the second store.
    pub lookup: LookupChoice,
    /// How far requests to the first store reach; `None`: as far as pays.
    pub reach: Option<Reach>,
    /// The program's name and version for the records.
    pub program: String,
}

/// A snapshot that was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// What it holds, and what storing it took; if it was not saved the latter alone.
    pub summary: Summary,
    /// Stored bytes of data that were read from the first store.
    pub bytes_read: u64,
}

/// What became of a snapshot that was to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is in the second store now, under this name.
    Copied(SessionId, Copied),
    /// It was there already, under this name, whole as far as is known.
    Present(SessionId, Standing),
    /// So many of its files and directories cannot be read; it was not saved. What was read of it,
    /// and stored in vain, all the same.
    Damaged(u64, Copied),
    /// It was forgotten meanwhile.
    Forgotten,
}

/// How a copy that is there already stands to its original: what was said of either since it was
/// made is not copied, and not undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Whether it is hidden, though the original is not.
    pub hidden: bool,
    /// Whether it has other tags.
    pub tags: bool,
    /// Whether it has another note.
    pub description: bool,
    /// Whether only one of the two is held.
    pub hold: bool,
}

impl Standing {
    /// How what has this name in a list stands to `original`.
    #[must_use]
    pub fn of(list: &SnapshotList, copy: SessionId, original: &Snapshot) -> Self {
        let Some(copy) = list.get(copy) else {
            return Self::default();
        };
        let (one, other) = (&copy.record, &original.record);
        let tags = |tags: &[String]| tags.iter().cloned().collect::<BTreeSet<String>>();
        Self {
            hidden: copy.hidden && !original.hidden,
            tags: tags(&one.tags) != tags(&other.tags),
            description: one.description != other.description,
            hold: one.hold != other.hold,
        }
    }

    /// Whether anything said of it is another thing than what is said of the original.
    #[must_use]
    pub fn is_said_otherwise(self) -> bool {
        self.tags || self.description || self.hold
    }
}

/// Refuses to copy a store into itself, or into what a file copy has made of it.
pub fn refuse_same(source: &Repository, target: &Repository) -> Result<()> {
    match source.store_id() == target.store_id() {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "both are store {}: copy snapshots into a store that was made by itself with 'init'",
            source.store_id()
        ))),
    }
}

/// Containers of the second store that are known to be damaged or lost.
pub fn damaged_containers(target: &Repository) -> Result<u64> {
    Ok(quarantine::load_ids(target)?.len() as u64)
}

/// Copies snapshots of a store into another; tells of each what became of it.
///
/// Errors: `Invalid` if both are the same store, or for what is no snapshot; whatever ends a
/// backup; `Unavailable` if the first store cannot be reached. What was copied before stays.
pub fn copy(
    (source, target): (&Arc<Repository>, &Arc<Repository>),
    snapshots: &[SessionId],
    options: &CopyOptions,
    job: &Job,
    each: &mut dyn FnMut(&Snapshot, Fate) -> Result<()>,
) -> Result<()> {
    refuse_same(source, target)?;
    let list = SnapshotList::load(source)?;
    let copies = SnapshotList::load(target)?;
    let mut known = Known::of(&copies, target.store_id());
    let memory = target.memory().for_streams(1, target.container_target_bytes());
    let _fixed = target.purse().take(memory.fixed_bytes - target.memory().fixed_bytes);
    let target = &Arc::new(target.with_memory(memory));
    whole::note_cut(target, job)?;
    let mut whole = Whole::of(target, options, job)?;
    let transfer = Transfer::new((source, target), options, job);
    for id in snapshots {
        if list.get(*id).is_none_or(Snapshot::is_manifest) {
            return Err(Error::invalid(format!(
                "{id} is no snapshot, or belongs to a share, which works in its own store alone"
            )));
        }
    }
    // As they were saved: what keeps the last one, whatever its date, finds it in the copy.
    let wanted = |one: &&Snapshot| snapshots.contains(&one.id);
    let mut wanted: Vec<&Snapshot> = list.snapshots.iter().filter(wanted).collect();
    wanted.sort_by_key(|one| one.saved_order());
    for snapshot in wanted {
        job.interrupt.check()?;
        let original = known::original_of(source.store_id(), snapshot);
        let present = match (known.get(&original), &whole) {
            (Some(id), Some(whole)) => whole.holds(target, id)?.then_some(id),
            (known, _) => known,
        };
        let fate = match present {
            Some(id) => Fate::Present(id, Standing::of(&copies, id, snapshot)),
            None => {
                let earlier = known.earlier(&list, source.store_id(), snapshot);
                match transfer.copy(snapshot, original, &earlier) {
                    Err(error)
                        if error.is_lost() && tombstones::is_forgotten(source, snapshot.id)? =>
                    {
                        Fate::Forgotten
                    }
                    Err(error) if error.kind() == ErrorKind::Damaged => {
                        job.observer.problem(&snapshot.id.short(), &error);
                        Fate::Damaged(1, Copied::default())
                    }
                    fate => fate?,
                }
            }
        };
        if let Fate::Copied(id, _) = fate {
            known.insert(original, id);
            if whole.is_some() {
                // What was stored may make other copies whole.
                whole = Whole::of(target, options, job)?;
            }
        }
        each(snapshot, fate)?;
    }
    Ok(())
}
