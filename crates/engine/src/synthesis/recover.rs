//! Snapshots of trees whose records are lost.
//!
//! The new snapshot refers to the tree as it is; nothing is copied. Every chunk of it is looked up
//! as in a backup (W5), so that it is whole and nothing of it is condemned.

use super::{SynthesisOptions, avoided, chunk_store, until_saved};
use crate::chunk_store::presence::tree_present;
use crate::find::walk_with;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::doubts::Doubts;
use crate::session::{SnapshotList, evidence};
use crate::tree::TreeReader;
use onefold_format::node::{EntryKind, Listing, Reference};
use onefold_format::record::{RECORD_VERSION, SnapshotKind, SnapshotRecord, Summary};
use onefold_types::{Error, Fingerprint, Result, SessionId};
use std::sync::Arc;

/// Makes a snapshot of the tree below a directory node.
///
/// Errors: `Damaged` if a part of it is missing, is being deleted, or is no directory.
pub fn recover(
    repository: &Arc<Repository>,
    root: &Fingerprint,
    options: &SynthesisOptions,
    job: &Job,
) -> Result<SessionId> {
    options.refuse_long()?;
    until_saved(repository, job, |session| {
        let list = SnapshotList::load(repository)?;
        let store = chunk_store(repository, avoided(repository, session)?, session.id())?;
        let doubts = Doubts::load(repository)?;
        let reader = TreeReader::open(repository)?;
        let level = reader.chunks().locate(root)?.descriptor().level;
        let root = Reference { fingerprint: *root, level };
        if !tree_present(&store, &reader, root)? {
            return Err(Error::damaged(format!(
                "a part of tree {} is missing, or is just being deleted; nothing was saved",
                root.fingerprint
            )));
        }
        let now_ns = repository.environment().clock.now_ns();
        Ok(SnapshotRecord {
            version: RECORD_VERSION,
            kind: SnapshotKind::Synthetic,
            root,
            started_ns: options.time_ns.unwrap_or(now_ns),
            finished_ns: repository.environment().clock.now_ns(),
            host: options.host.clone().unwrap_or_default(),
            user: options.user.clone(),
            paths: vec!["/".to_owned()],
            base: None,
            listing: Listing::Partial,
            tags: options.tags.clone().unwrap_or_default(),
            description: options.description.clone(),
            hold: false,
            parent: None,
            predecessors: list.heads,
            program: options.program.clone(),
            summary: summary_of(&reader, root, job)?,
            placement: None,
            doubts: doubts.named(),
            strays: evidence::strays(repository)?,
            share: None,
            original: None,
        })
    })
}

fn summary_of(reader: &TreeReader, root: Reference, job: &Job) -> Result<Summary> {
    let mut summary = Summary::default();
    walk_with(reader, root, job, &mut |_, entry| {
        match entry.kind {
            EntryKind::File => summary.files += 1,
            EntryKind::Directory => summary.directories += 1,
            _ => summary.others += 1,
        }
        summary.bytes += entry.size;
        Ok(true)
    })?;
    Ok(summary)
}
