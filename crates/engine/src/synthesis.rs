//! Snapshots made from snapshots: fastcopy and synthetic fulls (FAST'17, section 2.3).
//!
//! # Algorithm
//! A fastcopy is one record that names the source's tree: nothing is read or stored. A synthetic
//! full is a union of directories: each element is a layer, layers are merged in the order of
//! names, and new directory nodes are built only where two layers meet; every subtree that one
//! layer alone provides is referenced by its fingerprint and not looked at. File data is never
//! touched. [`recover`] makes a snapshot of a tree that no record refers to any more.
//!
//! # Invariants
//! - Every snapshot used is a parent in the sense of the protocol: it is seen to be live after the
//!   session has read its epoch (W3), in every try anew.
//! - Order of durability: containers and index run of new nodes, then the commit (W6).
//! - A session that a collector fenced starts over with nothing carried over (W7).
//!
//! # Concurrency
//! As for a backup: own session, own containers, own index run.

mod merge;
mod recover;

pub use recover::recover;

use crate::chunk_store::{ChunkStore, ChunkStoreOptions, RewriteOptions};
use crate::find::walk_with;
use crate::index::FingerprintIndex;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::checkpoints;
use crate::session::outcome::read_outcome;
use crate::session::quarantine;
use crate::session::{Commit, SnapshotList, WriterSession};
use crate::tree::directory::Directory;
use crate::tree::{TreeReader, path};
use merge::{Merge, layer_of};
use onefold_format::delta::DeltaChoice;
use onefold_format::node::{Entry, EntryKind, Listing, Time};
use onefold_format::record::{Outcome, RECORD_VERSION, SnapshotKind, SnapshotRecord, Summary};
use onefold_policy::accelerated_filter::{FilterConfiguration, FilterOrder};
use onefold_policy::lookup::LookupStrategy;
use onefold_types::{ContainerId, DoubtId, Error, ErrorKind, Result, SessionId, words};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sessions after which constant fencing is reported: each means that a collection began meanwhile.
const TRIES_MAX: usize = 8;
/// Threads that seal new directory nodes: there are few.
const THREADS: usize = 1;

/// What the new snapshot's record says.
#[derive(Clone, Debug, Default)]
pub struct SynthesisOptions {
    /// Tags; `None` keeps the source's.
    pub tags: Option<Vec<String>>,
    /// A note.
    pub description: String,
    /// The machine's name; `None` keeps the source's.
    pub host: Option<String>,
    /// The user.
    pub user: String,
    /// The time for the record, in nanoseconds since 1970, instead of now (fastcopy: the source's).
    pub time_ns: Option<i64>,
    /// The program's name and version.
    pub program: String,
}

impl SynthesisOptions {
    fn refuse_long(&self) -> Result<()> {
        let tags = self.tags.as_deref().unwrap_or_default();
        words::refuse_long_attributes(tags, &self.description)?;
        words::refuse_long_host(self.host.as_deref().unwrap_or_default())
    }
}

/// One element of a synthetic full.
#[derive(Clone, Debug)]
pub struct Element {
    /// The snapshot it is taken from.
    pub snapshot: SessionId,
    /// The path in that snapshot; empty for all of it.
    pub path: Vec<u8>,
    /// Where it goes in the new snapshot; empty for the root.
    pub to: Vec<u8>,
}

/// Copies a snapshot: a new name for the same tree.
pub fn fastcopy(
    repository: &Arc<Repository>,
    snapshot: SessionId,
    options: &SynthesisOptions,
    job: &Job,
) -> Result<SessionId> {
    options.refuse_long()?;
    until_saved(repository, job, |session| {
        let list = live_after_begin(repository, session, [snapshot])?;
        let source = &list.get(snapshot).ok_or_else(|| not_live(snapshot))?.record;
        let record = SnapshotRecord {
            kind: SnapshotKind::Fastcopy,
            started_ns: options.time_ns.unwrap_or(source.started_ns),
            parent: Some(snapshot),
            summary: Summary { files_unchanged: source.summary.files, ..found(&source.summary) },
            // It is another snapshot than the one that was copied from elsewhere.
            original: None,
            ..source.clone()
        };
        Ok(complete(repository, &list, record, options))
    })
}

/// Puts a new snapshot together from elements of others; a later element goes over an earlier one.
///
/// Where two elements meet in a directory their entries are merged, with the later element's
/// metadata; of two entries that are not both directories the later one stays. An element that is
/// no directory and goes to the root keeps its name.
pub fn synthesize(
    repository: &Arc<Repository>,
    elements: &[Element],
    options: &SynthesisOptions,
    job: &Job,
) -> Result<SessionId> {
    let (Some(first), Some(last)) = (elements.first(), elements.last()) else {
        return Err(Error::invalid("a synthetic snapshot needs at least one part"));
    };
    options.refuse_long()?;
    until_saved(repository, job, |session| {
        let used = elements.iter().map(|element| element.snapshot);
        let list = live_after_begin(repository, session, used)?;
        let find = |id| list.get(id).ok_or_else(|| not_live(id));
        let (root, mut summary) = build(repository, session, &list, elements, options, job)?;
        let newest = &find(last.snapshot)?.record;
        summary.bytes = root.totals.bytes;
        summary.errors = errors_of(&list, elements);
        let record = SnapshotRecord {
            version: RECORD_VERSION,
            kind: SnapshotKind::Synthetic,
            root: root.reference,
            started_ns: match options.time_ns {
                Some(time_ns) => time_ns,
                None => repository.environment().clock.now_ns(),
            },
            paths: paths_of(&list, elements),
            base: None,
            listing: Listing::Partial,
            parent: Some(first.snapshot),
            summary,
            placement: None,
            doubts: doubts_of(&list, elements),
            strays: 0,
            share: None,
            original: None,
            ..newest.clone()
        };
        Ok(complete(repository, &list, record, options))
    })
}

/// Tries until a session is not fenced.
fn until_saved(
    repository: &Arc<Repository>,
    job: &Job,
    mut prepare: impl FnMut(&WriterSession) -> Result<SnapshotRecord>,
) -> Result<SessionId> {
    for _ in 0..TRIES_MAX {
        job.interrupt.check()?;
        let session = WriterSession::begin(repository)?;
        match prepare(&session) {
            Ok(record) => {
                if let Commit::Saved(id) = session.commit(record)? {
                    // It is saved, whatever becomes of a checkpoint.
                    let _ = checkpoints::extend(repository, checkpoints::NEW_NAMES_MIN);
                    return Ok(id);
                }
            }
            Err(error) => {
                // What it had stored went with the epoch that fenced it: it has come too late, as
                // if it had learnt of that at the commit.
                let was_fenced = error.is_lost()
                    && matches!(read_outcome(repository, session.id()), Ok(Some(Outcome::Fenced)));
                session.abandon();
                if !was_fenced {
                    return Err(error);
                }
            }
        }
    }
    Err(Error::new(
        ErrorKind::Fenced,
        format!("a collection interfered {TRIES_MAX} times in a row; try again once it has ended"),
    ))
}

/// Checks that all snapshots used are live (W3), which counts only after the session has read its
/// epoch, and lists the snapshots.
fn live_after_begin(
    repository: &Arc<Repository>,
    session: &WriterSession,
    used: impl IntoIterator<Item = SessionId>,
) -> Result<SnapshotList> {
    for id in used.into_iter().collect::<BTreeSet<_>>() {
        if !session.check_parent(id)? {
            return Err(not_live(id));
        }
    }
    SnapshotList::load(repository)
}

/// The doubts that none of the elements is concerned by: chunks are taken over unseen.
fn doubts_of(list: &SnapshotList, elements: &[Element]) -> Vec<DoubtId> {
    let mut records = elements.iter().filter_map(|element| list.get(element.snapshot));
    let mut named = records.next().map_or(Vec::new(), |first| first.record.doubts.clone());
    records.for_each(|other| named.retain(|id| other.record.doubts.contains(id)));
    named
}

/// What could not be read when the snapshots were saved that elements are of: where it was missing
/// is not known, so it may be missing in the new one.
fn errors_of(list: &SnapshotList, elements: &[Element]) -> u64 {
    let used: BTreeSet<SessionId> = elements.iter().map(|element| element.snapshot).collect();
    used.into_iter().filter_map(|id| list.get(id)).map(|it| it.record.summary.errors).sum()
}

fn not_live(id: SessionId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no snapshot {}, or it was forgotten", id.short()),
    )
}

/// A record with what every such record has in common.
fn complete(
    repository: &Repository,
    list: &SnapshotList,
    record: SnapshotRecord,
    options: &SynthesisOptions,
) -> SnapshotRecord {
    SnapshotRecord {
        finished_ns: repository.environment().clock.now_ns(),
        host: options.host.clone().unwrap_or(record.host),
        user: options.user.clone(),
        tags: options.tags.clone().unwrap_or(record.tags),
        description: options.description.clone(),
        predecessors: list.heads.clone(),
        program: options.program.clone(),
        // To protect the copy is a decision of its own.
        hold: false,
        ..record
    }
}

/// What a snapshot holds, without what storing it took.
fn found(summary: &Summary) -> Summary {
    Summary {
        files: summary.files,
        directories: summary.directories,
        others: summary.others,
        bytes: summary.bytes,
        errors: summary.errors,
        ..Summary::default()
    }
}

/// The source paths of the new snapshot: those of whole snapshots, and the paths of other elements.
fn paths_of(list: &SnapshotList, elements: &[Element]) -> Vec<String> {
    let mut paths = BTreeSet::new();
    for element in elements {
        let is_root = |path: &[u8]| path::components(path).next().is_none();
        match list.get(element.snapshot) {
            Some(snapshot) if is_root(&element.path) && is_root(&element.to) => {
                paths.extend(snapshot.record.paths.iter().cloned());
            }
            _ => {
                let components = path::components(&element.to);
                let to = components.fold(Vec::new(), |at, name| path::join(&at, name));
                paths.insert(if to.is_empty() { "/".to_owned() } else { path::display(&to) });
            }
        }
    }
    paths.into_iter().collect()
}

/// Containers that the session must not rely upon.
fn avoided(repository: &Repository, session: &WriterSession) -> Result<BTreeSet<ContainerId>> {
    let mut avoid = session.avoid().clone();
    avoid.extend(quarantine::load_ids(repository)?);
    Ok(avoid)
}

fn chunk_store(
    repository: &Arc<Repository>,
    avoid: BTreeSet<ContainerId>,
    session: SessionId,
) -> Result<Arc<ChunkStore>> {
    let options = ChunkStoreOptions {
        compression: repository.compression()?,
        threads: THREADS,
        filter: FilterConfiguration::default(),
        lookup: LookupStrategy::Eager(FilterOrder::CacheFirst),
        index_kind: None,
        rewrite: RewriteOptions::none(),
        delta: DeltaChoice::Off,
        dry_run: false,
        session: Some(session),
    };
    ChunkStore::open(repository, FingerprintIndex::shared(repository)?, avoid, options)
}

/// Builds the tree; when this returns, it is durable and indexed.
fn build(
    repository: &Arc<Repository>,
    session: &WriterSession,
    list: &SnapshotList,
    elements: &[Element],
    options: &SynthesisOptions,
    job: &Job,
) -> Result<(Directory, Summary)> {
    let store = chunk_store(repository, avoided(repository, session)?, session.id())?;
    let reader = TreeReader::open(repository)?;
    let mut layers = Vec::with_capacity(elements.len());
    for element in elements {
        let snapshot = list.get(element.snapshot).ok_or_else(|| not_live(element.snapshot))?;
        layers.push(layer_of(&reader, snapshot, element)?);
    }
    let mut stream = store.stream()?;
    let time_ns = match options.time_ns {
        Some(time_ns) => time_ns,
        None => repository.environment().clock.now_ns(),
    };
    let mut merge =
        Merge { reader: &reader, stream: &mut stream, job, made: made_directory(time_ns) };
    let root = merge.run(layers)?;
    stream.finish()?;
    let stored = store.finish()?;

    let mut summary = Summary {
        chunks: stored.chunks,
        chunks_new: stored.chunks_new,
        bytes_new: stored.bytes_new,
        bytes_stored: stored.bytes_stored,
        ..Summary::default()
    };
    // The new nodes are in the index now, which a reader opened before does not know.
    let reader = TreeReader::open(repository)?;
    walk_with(&reader, root.reference, job, &mut |_, entry| {
        match entry.kind {
            EntryKind::File => summary.files += 1,
            EntryKind::Directory => summary.directories += 1,
            _ => summary.others += 1,
        }
        Ok(true)
    })?;
    summary.files_unchanged = summary.files;
    Ok((root, summary))
}

/// The metadata of a directory that no element provides.
fn made_directory(time_ns: i64) -> Entry {
    const SECOND_NS: i64 = 1_000_000_000;
    let time = Time {
        seconds: time_ns.div_euclid(SECOND_NS),
        nanoseconds: time_ns.rem_euclid(SECOND_NS) as u32,
    };
    Entry {
        kind: EntryKind::Directory,
        mode: 0o755,
        links: 1,
        modified: time,
        changed: time,
        ..Entry::default()
    }
}
