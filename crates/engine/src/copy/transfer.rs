//! One snapshot into the second store: a session of it (protocol, W1 to W7).
//!
//! A session that a collector fenced starts over; what it had stored is found again, as after a
//! backup that was killed.

use super::assemble::Assembler;
use super::cutting::Cutter;
use super::walk::{Pair, Walk};
use super::{Copied, CopyOptions, Fate};
use crate::chunk_store::{ChunkStoreOptions, RewriteOptions, StoredTotals, StreamWriter};
use crate::ingest::publish::SESSIONS_MAX;
use crate::ingest::storing::{Announced, StoringSession};
use crate::job::Job;
use crate::placement::PlacedItem;
use crate::repository::Repository;
use crate::restore::sequence::{Sequence, SequenceOptions};
use crate::session::doubts::Doubts;
use crate::session::{Commit, Snapshot, SnapshotList, announced, checkpoints, evidence};
use crate::tree::TreeReader;
use onefold_format::node::Reference;
use onefold_format::record::{Original, RECORD_VERSION, SnapshotRecord, Summary};
use onefold_policy::accelerated_filter::FilterConfiguration;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Copies snapshots.
pub struct Transfer<'a> {
    source: &'a Arc<Repository>,
    target: &'a Arc<Repository>,
    options: &'a CopyOptions,
    job: &'a Job,
    same_names: bool,
    same_cuts: bool,
}

/// A session of the second store, and what its record will say.
struct Session {
    storing: StoringSession,
    /// What is the same is taken over from there.
    pair: Option<(Pair, SessionId)>,
    distrusts_pair: bool,
    heads: Vec<SessionId>,
    new_names: usize,
    doubts: Doubts,
    strays: u64,
}

/// A tree that was copied.
struct Tree {
    root: Reference,
    damaged: u64,
    bytes_read: u64,
}

impl<'a> Transfer<'a> {
    /// From one store into another.
    pub fn new(
        (source, target): (&'a Arc<Repository>, &'a Arc<Repository>),
        options: &'a CopyOptions,
        job: &'a Job,
    ) -> Self {
        let (same_names, same_cuts) = (source.names_like(target), source.cuts_like(target));
        let same_names = same_names && same_cuts;
        Self { source, target, options, job, same_names, same_cuts }
    }

    /// Copies one snapshot. `earlier` are some that were copied, the likest first.
    pub fn copy(
        &self,
        snapshot: &Snapshot,
        original: Original,
        earlier: &[(&Snapshot, SessionId)],
    ) -> Result<Fate> {
        let found = &snapshot.record.summary;
        for _ in 0..SESSIONS_MAX {
            self.job.progress.set_totals(found.files, found.bytes);
            let session = self.begin(earlier)?;
            let built = session.storing.run(1, None, |writers| match writers {
                [writer] => self.build(&session, snapshot, writer),
                _ => Err(Error::invalid("a copy has one stream")),
            });
            let was_fenced = session.storing.was_fenced(&built);
            let tree = match built {
                Ok((tree, _)) if tree.damaged == 0 => tree,
                other => {
                    let stored = stored(&session.storing.store.totals());
                    session.storing.abandon();
                    match other {
                        _ if was_fenced => continue,
                        Ok((tree, _)) => {
                            let copied = Copied { summary: stored, bytes_read: tree.bytes_read };
                            return Ok(Fate::Damaged(tree.damaged, copied));
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            if let Some(fate) = self.publish(session, snapshot, original, &tree)? {
                return Ok(fate);
            }
        }
        let message = "collectors fenced this copy too often; try again later";
        Err(Error::new(ErrorKind::Fenced, message))
    }

    /// W1 to W4.
    fn begin(&self, earlier: &[(&Snapshot, SessionId)]) -> Result<Session> {
        let announced = Announced::begin(self.target, false)?;
        let list = SnapshotList::load(self.target)?;
        let strays = match list.snapshots.is_empty() {
            true => evidence::strays(self.target)?,
            false => 0,
        };
        let mut pair = None;
        for (snapshot, copy) in earlier {
            if let Some(copy) = list.get(*copy)
                && announced.is_live(copy)?
            {
                let (source, target) = (snapshot.record.root, copy.record.root);
                pair = Some((Pair { source, target }, copy));
                break;
            }
        }
        let ready = announced.ready(self.options.lookup.index_mode(), None, self.job)?;
        let is_doubtful = pair.as_ref().is_some_and(|(_, copy)| ready.doubts.concern(&copy.record));
        let distrusts_pair = ready.has_losses || is_doubtful;
        let chosen = self.options.lookup.strategy(self.target, &ready.present, None)?;
        let own_compression = || self.target.compression();
        let options = ChunkStoreOptions {
            compression: self.options.compression.map_or_else(own_compression, Ok)?,
            threads: self.options.threads,
            filter: FilterConfiguration::default(),
            lookup: chosen.strategy,
            index_kind: None,
            // What is there is not transferred again, not even to make restores faster.
            rewrite: RewriteOptions::none(),
            delta: self.target.delta()?,
            dry_run: false,
            session: ready.id(),
        };
        let doubts = ready.doubts.clone();
        let parent = pair.as_ref().map(|(_, copy)| copy.id);
        let storing = ready.store(parent, options)?;
        Ok(Session {
            storing,
            pair: pair.map(|(pair, copy)| (pair, copy.id)),
            distrusts_pair,
            heads: list.heads.clone(),
            new_names: list.new_names,
            doubts,
            strays,
        })
    }

    /// Copies the tree; when the session's run returns, it is durable and indexed.
    fn build(
        &self,
        session: &Session,
        snapshot: &Snapshot,
        writer: &mut StreamWriter,
    ) -> Result<Tree> {
        let root = snapshot.record.root;
        let pair = session.pair.map(|(pair, _)| pair);
        if let Some(pair) = pair.filter(|pair| pair.source == root && !session.distrusts_pair) {
            return Ok(Tree { root: pair.target, damaged: 0, bytes_read: 0 });
        }
        let source = TreeReader::open(self.source)?;
        let target = TreeReader::open(self.target)?;
        let memory_bytes = self.source.memory().stash_bytes as u64;
        let placement = snapshot.record.placement;
        let placed = placement.map(|placement| PlacedItem { placement, first_chunk: 0 });
        let how = SequenceOptions {
            engine: RestoreEngine::OptimalChunks { memory_bytes },
            reach: self.options.reach,
            placed,
            place: placed.map(|_| 0),
        };
        let cutter = Cutter::new(self.target, self.same_cuts, self.same_names);
        let mut walk = Walk {
            source: &source,
            target: &target,
            store: &session.storing.store,
            same_names: self.same_names,
            distrusts_pair: session.distrusts_pair,
            sequence: Sequence::new(&source, how, self.options.threads, self.job),
            assembler: Assembler::new(writer, cutter, self.job),
            steps: VecDeque::new(),
            cost: 0,
            at: 0,
            damaged: 0,
            job: self.job,
        };
        walk.run(b"/", root, pair)?;
        let bytes_read = walk.sequence.bytes_read;
        let damaged = walk.damaged + walk.assembler.damaged;
        let root = walk.assembler.finish()?.reference;
        Ok(Tree { root, damaged, bytes_read })
    }

    /// W7; `None` if the session was fenced and must start over.
    fn publish(
        &self,
        session: Session,
        snapshot: &Snapshot,
        original: Original,
        tree: &Tree,
    ) -> Result<Option<Fate>> {
        let Session { storing, pair, heads, new_names, doubts, strays, .. } = session;
        let found = &snapshot.record.summary;
        let summary = Summary {
            files: found.files,
            directories: found.directories,
            others: found.others,
            bytes: found.bytes,
            errors: found.errors,
            ..stored(&storing.store.totals())
        };
        let record = || SnapshotRecord {
            version: RECORD_VERSION,
            root: tree.root,
            finished_ns: self.target.environment().clock.now_ns(),
            // To protect the copy is a decision of its own.
            hold: false,
            parent: pair.map(|(_, copy)| copy),
            predecessors: heads,
            program: self.options.program.clone(),
            summary,
            placement: None,
            doubts: doubts.named(),
            strays,
            share: None,
            original: Some(original),
            ..snapshot.record.clone()
        };
        match storing.commit(record)? {
            Some(Commit::Saved(id)) => {
                checkpoints::extend_after(self.target, new_names + 1);
                let _ = announced::end_abandoned(self.target);
                Ok(Some(Fate::Copied(id, Copied { summary, bytes_read: tree.bytes_read })))
            }
            Some(Commit::Fenced) | None => Ok(None),
        }
    }
}

/// What storing took, of whatever was stored.
fn stored(totals: &StoredTotals) -> Summary {
    Summary {
        chunks: totals.chunks,
        chunks_new: totals.chunks_new,
        bytes_new: totals.bytes_new,
        bytes_stored: totals.bytes_stored,
        ..Summary::default()
    }
}
