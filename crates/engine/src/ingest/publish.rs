//! A snapshot out of a source: its parent, its streams, its record.
//!
//! The session in which that happens is [`super::storing`]. If a collector fenced it meanwhile,
//! files are backed up again under a fresh session, where most of it is found stored already. A
//! stream cannot be read again: its chunks are looked up one by one under the new epoch, and it is
//! saved if all of them are still there.

use super::left_out::LeftOut;
use super::namesakes::Relative;
use super::parents;
use super::rewriting;
use super::scattered::ScatteredFiles;
use super::selecting::{self, Part};
use super::source_tree::{self, ArrangedSource, SourceTree};
use super::storing::{Announced, Ready, StoringSession};
use super::stream::{self, PathsContext, StreamContext, StreamOutcome};
use super::stubs::StubData;
use super::top::{Root, nest, place};
use super::versions::Versions;
use super::walk::Keeping;
use super::{BackupOptions, BackupReport, DeltaReport, Selection, Source};
use crate::chunk_store::presence::tree_present;
use crate::chunk_store::{ChunkStore, ChunkStoreOptions, StreamWriter};
use crate::index::{ChunkIndex, PartitionIndex};
use crate::job::Job;
use crate::look_up::Chosen;
use crate::placement::{EarlierPlacement, PlacementRecorder, RecordedPlacement};
use crate::repository::Repository;
use crate::session::announced;
use crate::session::checkpoints;
use crate::session::doubts::Doubts;
use crate::session::{Commit, Snapshot, SnapshotList, evidence};
use crate::tree::{TreeReader, path};
use onefold_format::node::{Entry, Reference};
use onefold_format::record::{RECORD_VERSION, SnapshotKind, SnapshotRecord, Summary};
use onefold_policy::retention::is_dated_before;
use onefold_types::{Error, ErrorKind, Result, SessionId, words};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Sessions tried before a backup, or a copy, that is fenced again and again gives up.
pub const SESSIONS_MAX: u32 = 16;

/// See [`super::backup`].
pub fn backup(
    repository: &Arc<Repository>,
    source: Source,
    options: &BackupOptions,
    job: &Job,
) -> Result<BackupReport> {
    let started = Instant::now();
    let started_ns = repository.environment().clock.now_ns();
    words::refuse_long_attributes(&options.tags, &options.description)?;
    words::refuse_long_host(&options.host)?;
    let wanted = match &source {
        Source::Paths { paths, .. } => options.streams.min(paths.len()),
        Source::Stream { .. } | Source::Root { .. } => 1,
    };
    let memory = repository.memory().for_streams(wanted, repository.container_target_bytes());
    let more_bytes = memory.fixed_bytes - repository.memory().fixed_bytes;
    let _streams = repository.purse().take(more_bytes);
    let repository = &Arc::new(repository.with_memory(memory));
    let mut backup = Backup { repository, options, job, started_ns, fenced: 0, base: None };
    let mut report = match source {
        Source::Paths { paths, selection } => {
            let name = |path: &PathBuf| Ok(shown(&source_tree::absolute(path)?));
            let names = paths.iter().map(name).collect::<Result<Vec<_>>>()?;
            backup.base = source_tree::base_of(&paths).map(|base| shown(&base));
            backup.paths(source_tree::arrange(&paths)?, &names, &selection)?
        }
        Source::Root { directory, name, selection } => {
            backup.paths(source_tree::as_root(directory), &[name], &selection)?
        }
        Source::Stream { name, reader, finish } => {
            let read = |context: &StreamContext<'_>, writer: &mut StreamWriter| {
                let outcome = stream::run_stream(context, reader, &name, writer)?;
                finish()?;
                Ok(outcome)
            };
            backup.stream(&name, read)?
        }
    };
    report.fenced = backup.fenced;
    report.elapsed = started.elapsed();
    Ok(report)
}

struct Backup<'a> {
    repository: &'a Arc<Repository>,
    options: &'a BackupOptions,
    job: &'a Job,
    started_ns: i64,
    fenced: u32,
    /// What all sources were given relative to.
    base: Option<String>,
}

/// A session with what the snapshot is compared with.
struct Prepared {
    session: StoringSession,
    parent: Option<Snapshot>,
    /// The parent, or else the host's newest snapshot: what there is to be like.
    relative: Option<Relative>,
    /// Roots of the directory's own manifests that may be built upon.
    manifests: Vec<Reference>,
    heads: Vec<SessionId>,
    /// The snapshot with the latest date of those that were there, and its date.
    latest: Option<(i64, SessionId)>,
    /// Names that were decided and in no checkpoint.
    new_names: usize,
    /// Containers that tell of lost records.
    strays: u64,
    /// Known before the first chunk was looked up.
    doubts: Doubts,
    /// Whether the parent's chunks must be looked up one by one.
    distrust_parent: bool,
    /// Which of the parent's files are read again although they have not changed.
    scattered: ScatteredFiles,
    /// The parent's placement, if it has been opened.
    earlier: Option<EarlierPlacement>,
    chosen: Chosen,
    /// Where a part's chunks are looked up.
    part_index: Option<Arc<PartitionIndex>>,
    /// Where chunks are looked up.
    index: Arc<dyn ChunkIndex>,
}

/// A finished tree.
struct Tree {
    root: Root,
    summary: Summary,
    left_out: LeftOut,
    placement: RecordedPlacement,
}

/// What building a tree came to.
type Built = (Root, Summary, LeftOut);

/// Roots of the directory's own manifests that are live now that the epoch is known (W3). None is
/// forgotten meanwhile: that takes the share's lock.
fn manifests(
    session: &Announced,
    list: &SnapshotList,
    selection: Option<&Selection>,
) -> Result<Vec<Reference>> {
    let mut roots = Vec::new();
    for id in selection.map_or(&[][..], |selection| &selection.manifests) {
        if let Some(manifest) = list.get(*id)
            && session.is_live(manifest)?
        {
            roots.push(manifest.record.root);
        }
    }
    Ok(roots)
}

impl Backup<'_> {
    fn paths(
        &mut self,
        (tree, sources): (SourceTree, Vec<ArrangedSource>),
        names: &[String],
        selection: &Selection,
    ) -> Result<BackupReport> {
        loop {
            let mut ready = self.begin(names, Some(selection))?;
            selection.excludes.count_anew();
            let parent_root = ready.parent.as_ref().map(|parent| parent.record.root);
            let parent_summary = ready.parent.as_ref().map(|parent| parent.record.summary);
            let records = source_tree::are_in_tree_order(&sources);
            let store = Arc::clone(&ready.session.store);
            let manifests = std::mem::take(&mut ready.manifests);
            let stubs = StubData::new(self.repository, &store, &manifests);
            let recorder = self.recorder(&mut ready, records);
            let built = self.with_streams(&ready, recorder, |context, writers| {
                let next_source = AtomicUsize::new(0);
                let next = || {
                    let number = next_source.fetch_add(1, Ordering::Relaxed);
                    (number < sources.len()).then_some(number)
                };
                let keep = |reader: &TreeReader, entry: &Entry, place: u64| {
                    let is_there =
                        !ready.distrust_parent || all_present(&ready.session.store, reader, entry);
                    match is_there {
                        true => Keeping::But(ready.scattered.stretches(reader, entry, place)),
                        false => Keeping::No,
                    }
                };
                let paths = PathsContext {
                    sources: &sources,
                    next: &next,
                    selection,
                    parent_root,
                    keep: &keep,
                    stubs: &stubs,
                    parent_summary: parent_summary.unwrap_or_default(),
                };
                let mut outcomes = run_streams(context, &paths, writers)?;
                let root = place(&tree, &mut outcomes.done, &mut writers[0])?.root;
                Ok((root, outcomes.summary, outcomes.left_out))
            });
            if ready.session.was_fenced(&built) {
                ready.session.abandon();
                if selection.read_special {
                    return Err(stream_lost());
                }
                self.fenced += 1;
                continue;
            }
            let (ready, tree) = self.keep_or_abandon(ready, built)?;
            if tree.summary.files + tree.summary.directories + tree.summary.others == 0
                && tree.summary.errors > 0
            {
                ready.session.abandon();
                let message = "none of the sources could be read; nothing was saved";
                return Err(Error::new(ErrorKind::Source, message));
            }
            if let Some(report) = self.publish(ready, &tree, names)? {
                return Ok(BackupReport { damaged_stubs: stubs.damaged(), ..report });
            }
        }
    }

    fn stream(
        &mut self,
        name: &[u8],
        read: impl FnOnce(&StreamContext<'_>, &mut StreamWriter) -> Result<StreamOutcome>,
    ) -> Result<BackupReport> {
        let components: Vec<Vec<u8>> = path::components(name).map(<[u8]>::to_vec).collect();
        if components.is_empty() || components.iter().any(|component| component == b"..") {
            return Err(Error::invalid("the stream needs a file name"));
        }
        let names = vec![format!("/{}", path::display(&components.join(&b'/')))];
        let mut ready = self.begin(&names, None)?;
        let recorder = self.recorder(&mut ready, true);
        let built = self.with_streams(&ready, recorder, |context, writers| {
            let mut outcome = read(context, &mut writers[0])?;
            let entry = outcome.done.pop().and_then(|done| done.entry);
            let entry = entry.ok_or_else(|| {
                Error::new(ErrorKind::Source, "the stream could not be read; nothing was saved")
            })?;
            let root = nest(&components, entry, &mut writers[0])?;
            Ok((root, outcome.summary, LeftOut::default()))
        });
        if ready.session.was_fenced(&built) {
            ready.session.abandon();
            return Err(stream_lost());
        }
        let (mut ready, mut tree) = self.keep_or_abandon(ready, built)?;
        loop {
            if let Some(report) = self.publish(ready, &tree, &names)? {
                return Ok(report);
            }
            // Fenced. The stream is gone; what it stored may have been condemned.
            ready = self.begin(&names, None)?;
            let reader = TreeReader::open(self.repository)?;
            tree.placement = RecordedPlacement::default();
            if !tree_present(&ready.session.store, &reader, tree.root.reference)? {
                ready.session.abandon();
                return Err(stream_lost());
            }
        }
    }

    /// Containers that tell of lost records (rule D4).
    fn strays(&self, list: &SnapshotList) -> Result<u64> {
        match list.snapshots.is_empty() && !self.options.dry_run {
            true => evidence::strays(self.repository),
            false => Ok(0),
        }
    }

    /// The parent, if it may be built upon (W3).
    fn parent(
        &self,
        session: &Announced,
        list: &SnapshotList,
        names: &[String],
    ) -> Result<Option<Snapshot>> {
        let remembered = self.repository.remembered();
        let chosen = parents::choose(self.options, (list, remembered), names)?;
        let is_live = chosen.as_ref().map(|parent| session.is_live(parent)).transpose()?;
        Ok(chosen.filter(|_| is_live == Some(true)))
    }

    /// W1 to W4, and the chunk store of the session. A stream has no selection, and no parent.
    fn begin(&self, names: &[String], selection: Option<&Selection>) -> Result<Prepared> {
        if self.fenced >= SESSIONS_MAX {
            let message = "collectors fenced this backup too often; try again later";
            return Err(Error::new(ErrorKind::Fenced, message));
        }
        let dry_run = self.options.dry_run;
        let session = Announced::begin(self.repository, dry_run)?;
        let list = SnapshotList::load(self.repository)?;
        let strays = self.strays(&list)?;
        let parent = match selection {
            Some(_) => self.parent(&session, &list, names)?,
            None => None,
        };
        let mode = self.options.lookup.index_mode();
        let manifests = manifests(&session, &list, selection)?;
        let part = selection.and_then(|selection| selection.part.as_ref());
        let mut ready = session.ready(mode, self.options.index_kind, self.job)?;
        ready.index.set_asks_pieces(self.options.filter.summary_vector);
        let part_index = self.open_part(&mut ready, part, &list)?;
        let is_doubtful = parent.as_ref().is_some_and(|it| ready.doubts.concern(&it.record));
        let distrust_parent = ready.has_losses || is_doubtful;
        let device_costs = self.options.device_costs;
        let chosen = self.options.lookup.strategy(self.repository, &ready.present, device_costs)?;
        let costs = chosen.costs.or(device_costs);
        let (before, known) = ((names, parent.as_ref()), (costs, &*ready.index));
        let (rewrite, earlier) =
            rewriting::options(self.repository, self.options, &list, before, known);
        let earlier = earlier.filter(|_| parent.is_some());
        let scattered = ScatteredFiles::new(parent.as_ref(), earlier.as_ref(), &rewrite);
        let own_compression = || self.repository.compression();
        let store_options = ChunkStoreOptions {
            compression: self.options.compression.map_or_else(own_compression, Ok)?,
            threads: self.options.threads,
            filter: self.options.filter,
            lookup: chosen.strategy,
            index_kind: self.options.index_kind,
            rewrite,
            delta: self.options.delta.map_or_else(|| self.repository.delta(), Ok)?,
            dry_run,
            session: ready.id(),
        };
        let host = selection.map(|_| &self.options.host);
        let relative = host.and_then(|host| parents::relative(host, &list, parent.as_ref()));
        let (doubts, index) = (ready.doubts.clone(), Arc::clone(&ready.asked));
        let session = ready.store(parent.as_ref().map(|parent| parent.id), store_options)?;
        if let Some(parent) = &parent {
            let totals = &parent.record.summary;
            self.job.progress.set_totals(totals.files, totals.bytes);
        }
        Ok(Prepared {
            session,
            parent,
            relative,
            manifests,
            latest: parents::latest_dated(&list),
            heads: list.heads,
            new_names: list.new_names,
            strays,
            doubts,
            distrust_parent,
            scattered,
            earlier,
            chosen,
            part_index,
            index,
        })
    }

    /// Has a part's chunks looked up among its own.
    fn open_part(
        &self,
        ready: &mut Ready,
        part: Option<&Part>,
        list: &SnapshotList,
    ) -> Result<Option<Arc<PartitionIndex>>> {
        let Some(part) = part else { return Ok(None) };
        let whole = Arc::clone(&ready.asked);
        let index = selecting::open_index(self.repository, whole, part, list, self.job)?;
        let index = Arc::new(index);
        ready.asked = Arc::clone(&index) as Arc<dyn ChunkIndex>;
        Ok(Some(index))
    }

    /// What records the placement of the only stream, if its chunks come in the tree's order.
    fn recorder(&self, ready: &mut Prepared, in_tree_order: bool) -> Option<PlacementRecorder> {
        if self.repository.memory().streams > 1 || !in_tree_order {
            return None;
        }
        let open = || rewriting::placement_of(self.repository, ready.parent.as_ref());
        Some(PlacementRecorder::new(ready.earlier.take().or_else(open)))
    }

    /// Builds the tree; when this returns, it is durable and indexed.
    fn with_streams(
        &self,
        ready: &Prepared,
        recorder: Option<PlacementRecorder>,
        build: impl FnOnce(&StreamContext<'_>, &mut [StreamWriter]) -> Result<Built>,
    ) -> Result<Tree> {
        let streams = self.repository.memory().streams;
        let makes_deltas = ready.session.store.makes_deltas();
        let relative = ready.relative.filter(|_| makes_deltas);
        let versions = relative.map(|it| Versions::new(self.repository, &ready.index, it));
        let context = StreamContext {
            repository: self.repository,
            versions: versions.as_ref(),
            job: self.job,
            threads: self.options.threads.div_ceil(streams),
        };
        let ((root, summary, left_out), placement) =
            ready.session.run(streams, recorder, |writers| build(&context, writers))?;
        Ok(Tree { root, summary, left_out, placement })
    }

    fn keep_or_abandon(&self, ready: Prepared, built: Result<Tree>) -> Result<(Prepared, Tree)> {
        match built {
            Ok(tree) => Ok((ready, tree)),
            Err(error) => {
                ready.session.abandon();
                Err(error)
            }
        }
    }

    /// W7; `None` if the session was fenced and the backup must start over.
    fn publish(
        &mut self,
        ready: Prepared,
        tree: &Tree,
        names: &[String],
    ) -> Result<Option<BackupReport>> {
        let Prepared { session, parent, heads, new_names, strays, doubts, chosen, .. } = ready;
        let started_ns = self.options.time_ns.unwrap_or(self.started_ns);
        let is_later = |latest: &(i64, SessionId)| is_dated_before(started_ns, latest.0);
        let part_index = ready.part_index.map(|index| index.report());
        let store = &session.store;
        let lookup = store.lookup_report();
        let parent_id = parent.as_ref().map(|parent| parent.id);
        let mut report = BackupReport {
            streams: self.repository.memory().streams,
            parent: parent_id,
            strays,
            started_ns,
            dated_later: ready.latest.filter(is_later).map(|(date_ns, id)| (id, date_ns)),
            summary: tree.summary,
            left_out: tree.left_out.clone(),
            lookup,
            rewrite: store.rewrite_report(),
            part_index,
            device_costs: chosen.costs,
            ..BackupReport::default()
        };
        let totals = store.totals();
        let bases = store.base_counts();
        report.deltas = DeltaReport {
            chunks: totals.chunks_delta,
            bytes: totals.bytes_delta,
            payload_bytes: totals.payload_bytes_delta,
            bases_tried: bases.tried,
            chunks_by_place: bases.by_place,
            chunks_by_features: bases.by_features,
        };
        report.summary.chunks = totals.chunks;
        report.summary.chunks_new = totals.chunks_new;
        report.summary.bytes_new = totals.bytes_new;
        report.summary.chunks_rewritten = totals.chunks_rewritten;
        report.summary.bytes_rewritten = totals.bytes_rewritten;
        report.summary.containers = tree.placement.containers;
        report.summary.container_reads = tree.placement.container_reads;
        report.summary.bytes_stored = totals.bytes_stored;
        let says_all = |parent: &Snapshot| {
            parent.record.root == tree.root.reference && self.options.is_said_by(&parent.record)
        };
        if self.options.skip_if_unchanged && parent.as_ref().is_some_and(says_all) {
            session.abandon();
            return Ok(Some(report));
        }
        let decisions = (heads, &doubts, strays);
        let record = || self.record(tree, report.summary, parent_id, decisions, names);
        match session.commit(record)? {
            None => Ok(Some(report)),
            Some(Commit::Saved(id)) => {
                checkpoints::extend_after(self.repository, new_names + 1);
                let _ = announced::end_abandoned(self.repository);
                self.repository.remembered().inspect(|remembered| remembered.note_saved(id));
                report.snapshot = Some(id);
                Ok(Some(report))
            }
            Some(Commit::Fenced) => {
                self.fenced += 1;
                Ok(None)
            }
        }
    }

    fn record(
        &self,
        tree: &Tree,
        summary: Summary,
        parent: Option<SessionId>,
        (predecessors, doubts, strays): (Vec<SessionId>, &Doubts, u64),
        names: &[String],
    ) -> SnapshotRecord {
        let options = self.options;
        SnapshotRecord {
            version: RECORD_VERSION,
            kind: match options.share {
                Some(_) => SnapshotKind::Manifest,
                None => SnapshotKind::Backup,
            },
            root: tree.root.reference,
            started_ns: options.time_ns.unwrap_or(self.started_ns),
            finished_ns: self.repository.environment().clock.now_ns(),
            host: options.host.clone(),
            user: options.user.clone(),
            paths: names.to_vec(),
            base: self.base.clone(),
            listing: tree.root.listing,
            tags: options.tags.clone(),
            description: options.description.clone(),
            hold: options.hold,
            parent,
            predecessors,
            program: options.program.clone(),
            summary,
            placement: tree.placement.placement,
            doubts: doubts.named(),
            strays,
            share: options.share,
            original: None,
        }
    }
}

/// Runs one pipeline for each writer, all at once.
fn run_streams(
    context: &StreamContext<'_>,
    paths: &PathsContext<'_>,
    writers: &mut [StreamWriter],
) -> Result<StreamOutcome> {
    if let [writer] = writers {
        return stream::run_paths(context, paths, writer);
    }
    let outcomes: Vec<Result<StreamOutcome>> = std::thread::scope(|scope| {
        let running: Vec<_> = writers
            .iter_mut()
            .map(|writer| scope.spawn(move || stream::run_paths(context, paths, writer)))
            .collect();
        let stopped = |_| Err(Error::new(ErrorKind::Io, "a stream has stopped"));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(stopped)).collect()
    });
    let mut all = StreamOutcome {
        done: Vec::new(),
        summary: Summary::default(),
        left_out: LeftOut::default(),
    };
    for outcome in outcomes {
        let outcome = outcome?;
        all.done.extend(outcome.done);
        add(&mut all.summary, &outcome.summary);
        all.left_out.add(&outcome.left_out);
    }
    Ok(all)
}

/// Adds what another stream or backup did.
pub fn add(sum: &mut Summary, other: &Summary) {
    sum.files += other.files;
    sum.directories += other.directories;
    sum.others += other.others;
    sum.bytes += other.bytes;
    sum.files_new += other.files_new;
    sum.files_changed += other.files_changed;
    sum.files_unchanged += other.files_unchanged;
    sum.bytes_read += other.bytes_read;
    sum.chunks += other.chunks;
    sum.chunks_new += other.chunks_new;
    sum.bytes_new += other.bytes_new;
    sum.chunks_rewritten += other.chunks_rewritten;
    sum.bytes_rewritten += other.bytes_rewritten;
    sum.containers += other.containers;
    sum.container_reads += other.container_reads;
    sum.bytes_stored += other.bytes_stored;
    sum.errors += other.errors;
}

/// Whether every chunk of a file can be relied upon; anything unreadable means no.
fn all_present(store: &ChunkStore, reader: &TreeReader, entry: &Entry) -> bool {
    let Some(content) = entry.content else {
        return true;
    };
    tree_present(store, reader, content).unwrap_or(false)
}

fn stream_lost() -> Error {
    Error::new(
        ErrorKind::Fenced,
        "a collector removed part of the stream before it was saved, and a stream cannot be read \
         again; nothing was saved, run the backup again",
    )
}

fn shown(path: &Path) -> String {
    path::display(path.as_os_str().as_bytes())
}
