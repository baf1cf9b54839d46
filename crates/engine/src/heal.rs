//! Healing: what a store has lost is taken out of another one that holds copies of its snapshots
//! (docs/decisions/0057).
//!
//! | module | holds |
//! | --- | --- |
//! | `presence` | which subtrees are whole, each node looked at once |
//! | `directories` | a damaged tree beside its copy |
//! | `files` | the chunks of a file that are missing, by their offsets |
//! | `rebuilding` | files and directories whose own nodes are lost, built anew |
//!
//! # Algorithm
//! Every snapshot is looked through as rule W5 says: a chunk counts only in a container that is
//! there, not in quarantine and not condemned. Where something is missing the tree is walked beside
//! that of its copy. A file whose map can be read says which bytes are missing and what they are
//! called: these are read out of the copy, whatever chunks they are there, and out of the damaged
//! container itself where that still gives them. Only where a map or a directory is lost is the
//! whole of it built anew out of the copy, as a backup or a copy into this store would build it.
//!
//! # Invariants
//! - A chunk counts as healed only if its bytes have the very name that was lost, under this
//!   store's key. What a lost node refers to has no name before the node is built: it is stored,
//!   and if the node gets another name nothing refers to it, and a collection frees it.
//! - Nothing is written into the other store, and nothing in this one is replaced or deleted.
//! - Chunks are stored whole, never as differences: what these are made of is relied upon by a
//!   commit only, and healing commits nothing.
//!
//! # Concurrency
//! A session that stores and gives itself up at the end. Snapshots that are live need all that it
//! stores, so a collection keeps or copies it like all that they need, whatever became of the
//! session. Stopped at any point, what was stored is indexed and found by the next run.
//!
//! # Memory
//! What a backup of one stream takes, the memo of `presence`, and one message of a backup's length.

mod directories;
mod files;
mod presence;
mod rebuilding;

use crate::chunk_store::{ChunkStore, ChunkStoreOptions, RewriteOptions, StreamWriter};
use crate::copy::{Known, refuse_same};
use crate::ingest::publish::SESSIONS_MAX;
use crate::ingest::storing::{Announced, StoringSession};
use crate::job::Job;
use crate::look_up::LookupChoice;
use crate::repository::Repository;
use crate::restore::request_costs::Reach;
use crate::session::{Snapshot, SnapshotList};
use crate::tree::{TreeReader, path};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_format::node::{Node, Reference};
use onefold_policy::accelerated_filter::{FilterConfiguration, FilterOrder};
use onefold_types::{Error, ErrorKind, Result, SessionId};
use presence::Presence;
use std::sync::Arc;

/// How to heal.
#[derive(Clone, Copy, Debug)]
pub struct HealOptions {
    /// Threads that read, and threads that compress and seal.
    pub threads: usize,
    /// How far requests to the other store reach; `None`: as far as pays.
    pub reach: Option<Reach>,
}

/// What healing did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Healing {
    /// Snapshots that were not whole.
    pub snapshots: u64,
    /// Those of them that the other store has no copy of.
    pub without_copy: Vec<SessionId>,
    /// Files and directories of which something was missing, and nothing is now.
    pub healed: u64,
    /// Those of which something is missing still.
    pub left: u64,
    /// Chunks stored, tree nodes among them.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Stored bytes of the containers written.
    pub bytes_stored: u64,
    /// Plain bytes that were taken from the copy.
    pub bytes_from_copy: u64,
}

/// What of one session goes through one tree after the other.
struct Healer<'a> {
    stores: (&'a Arc<Repository>, &'a Arc<Repository>),
    /// Reads the damaged store, whatever of it can be read.
    own: TreeReader,
    copy: Arc<TreeReader>,
    store: &'a ChunkStore,
    writer: &'a mut StreamWriter,
    presence: Presence,
    options: &'a HealOptions,
    job: &'a Job,
    healing: Healing,
}

/// Takes what snapshots of the first store miss out of the second one.
///
/// What is damaged must be in quarantine, as a check leaves it: nothing else counts as missing but
/// what no container has.
///
/// Errors: `Invalid` if both are the same store; whatever ends a backup; `Unavailable` if the
/// second one cannot be reached. What was healed before stays.
pub fn heal(
    (own, copy): (&Arc<Repository>, &Arc<Repository>),
    options: &HealOptions,
    job: &Job,
) -> Result<Healing> {
    refuse_same(own, copy)?;
    let memory = own.memory().for_streams(1, own.container_target_bytes());
    let _fixed = own.purse().take(memory.fixed_bytes - own.memory().fixed_bytes);
    let own = &Arc::new(own.with_memory(memory));
    for _ in 0..SESSIONS_MAX {
        let session = begin(own, options, job)?;
        let healed = session.run(1, None, |writers| match writers {
            [writer] => heal_all((own, copy), &session.store, writer, (options, job)),
            _ => Err(Error::invalid("healing has one stream")),
        });
        let was_fenced = session.was_fenced(&healed);
        let totals = session.store.totals();
        session.abandon();
        // What was stored is found by its index runs, whose names must survive as well.
        let settled = own.store().settle(layout::INDEX);
        let (healing, _) = match healed {
            Err(_) if was_fenced => continue,
            healed => healed?,
        };
        settled?;
        let (chunks, bytes) = (totals.chunks_new, totals.bytes_new);
        return Ok(Healing { chunks, bytes, bytes_stored: totals.bytes_stored, ..healing });
    }
    Err(Error::new(ErrorKind::Fenced, "collectors fenced this session too often; try again later"))
}

/// W1 to W4.
fn begin(own: &Arc<Repository>, options: &HealOptions, job: &Job) -> Result<StoringSession> {
    // A chunk is missing only if the whole index says so.
    let lookup = LookupChoice::Eager(FilterOrder::CacheFirst);
    let ready = Announced::begin(own, false)?.ready(lookup.index_mode(), None, job)?;
    let options = ChunkStoreOptions {
        compression: own.compression()?,
        threads: options.threads,
        filter: FilterConfiguration::default(),
        lookup: lookup.strategy(own, &ready.present, None)?.strategy,
        index_kind: None,
        rewrite: RewriteOptions::none(),
        delta: DeltaChoice::Off,
        dry_run: false,
        session: ready.id(),
    };
    ready.store(None, options)
}

/// Goes through all snapshots.
fn heal_all(
    (own, copy): (&Arc<Repository>, &Arc<Repository>),
    store: &ChunkStore,
    writer: &mut StreamWriter,
    (options, job): (&HealOptions, &Job),
) -> Result<Healing> {
    let (list, copies) = (SnapshotList::load(own)?, SnapshotList::load(copy)?);
    let known = Known::of(&copies, copy.store_id());
    job.progress.set_current("trees");
    job.progress.set_totals(list.snapshots.len() as u64, 0);
    let mut healer = Healer {
        stores: (own, copy),
        own: TreeReader::open(own)?,
        copy: Arc::new(TreeReader::open(copy)?),
        store,
        writer,
        presence: Presence::new(own.memory().restore_window_chunks),
        options,
        job,
        healing: Healing::default(),
    };
    let name_of = |snapshot: &Snapshot| {
        known.name_of(own.store_id(), snapshot).filter(|_| !snapshot.is_manifest())
    };
    let (copied, others): (Vec<_>, Vec<_>) =
        list.snapshots.iter().partition(|snapshot| name_of(snapshot).is_some());
    for snapshot in copied {
        healer.snapshot(snapshot, name_of(snapshot).and_then(|id| copies.get(id)))?;
    }
    // What they have in common with others is there by now.
    for snapshot in others {
        healer.snapshot(snapshot, None)?;
    }
    Ok(healer.healing)
}

impl Healer<'_> {
    fn snapshot(&mut self, snapshot: &Snapshot, beside: Option<&Snapshot>) -> Result<()> {
        let root = snapshot.record.root;
        self.job.progress.add(1, 0);
        if self.is_whole(root)? {
            return Ok(());
        }
        self.healing.snapshots += 1;
        self.healing.without_copy.extend(beside.is_none().then_some(snapshot.id));
        self.directory(root, beside.map(|copy| copy.record.root))
    }

    fn is_whole(&mut self, reference: Reference) -> Result<bool> {
        self.presence.is_whole(self.store, &self.own, self.job, reference)
    }

    /// A node of the damaged store, if it can be read; where no container may be relied upon for
    /// it, it is stored again as it is.
    fn own_node(&mut self, reference: Reference) -> Result<Option<Node>> {
        let node = match self.own.node(reference) {
            Ok(node) => node,
            Err(error) if is_passed_over(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !self.store.is_present(&reference.fingerprint)? {
            match self.own.chunks().read(&reference.fingerprint) {
                Ok(bytes) => _ = self.writer.put_node(reference.level, &bytes)?,
                Err(error) if is_passed_over(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(node))
    }

    /// Something is healed, or is not; the reason is told if there is one.
    fn settle(&mut self, at: &[u8], is_healed: bool, reason: Option<&Error>) {
        match is_healed {
            true => self.healing.healed += 1,
            false => self.healing.left += 1,
        }
        if let Some(reason) = reason.filter(|_| !is_healed) {
            self.job.observer.problem(&path::display(at), reason);
        }
    }
}

/// Whether only what was to be read is lost. That a store cannot be reached ends everything.
fn is_passed_over(error: &Error) -> bool {
    error.is_unreadable() && error.kind() != ErrorKind::Unavailable
}
