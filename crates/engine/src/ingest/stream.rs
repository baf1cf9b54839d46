//! One pipeline: a walk, reading threads and an assembler, joined by bounded channels.
//!
//! Memory: at most `read_jobs_max` jobs are between the walk and the assembler, each with one
//! message waiting and one being filled; buffers are used again. When any stage fails it drops its
//! ends of the channels, which stops the others; the scope then waits for all of them.

use super::Selection;
use super::assemble::{Assembled, Assembler, Cursor, SystemNames};
use super::left_out::LeftOut;
use super::read::{self, ReadJob, Work};
use super::source_tree::ArrangedSource;
use super::stubs::StubData;
use super::versions::Versions;
use super::walk::{self, BUNDLES_MAX, Item, Keeping, Walk, WalkContext};
use crate::chunk_store::StreamWriter;
use crate::job::Job;
use crate::repository::Repository;
use crate::tree::TreeReader;
use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_format::node::{Entry, EntryKind, Reference, Time};
use onefold_format::record::Summary;
use onefold_types::{Error, Result, limits};
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Scope;

/// Directories may be nested deeply, and the walk recurses.
const WALK_STACK_BYTES: usize = 64 * limits::MIB;

/// What all streams of a backup share.
pub struct StreamContext<'a> {
    /// The store.
    pub repository: &'a Arc<Repository>,
    /// How to stop, and who listens.
    pub job: &'a Job,
    /// Threads that read.
    pub threads: usize,
    /// Finds earlier versions, if chunks are stored as differences against them.
    pub versions: Option<&'a Versions>,
}

/// What the streams of a backup of files share.
pub struct PathsContext<'a> {
    /// The sources.
    pub sources: &'a [ArrangedSource],
    /// Hands out the numbers of sources.
    pub next: &'a (dyn Fn() -> Option<usize> + Sync),
    /// What to leave out.
    pub selection: &'a Selection,
    /// The root of the parent snapshot.
    pub parent_root: Option<Reference>,
    /// Whether a file of the parent may be kept.
    pub keep: &'a (dyn Fn(&TreeReader, &Entry, u64) -> Keeping + Sync),
    /// What is known of the data of stubs.
    pub stubs: &'a StubData<'a>,
    /// What the parent snapshot has.
    pub parent_summary: Summary,
}

/// What one stream did.
pub struct StreamOutcome {
    /// The sources it took.
    pub done: Vec<Assembled>,
    /// What it found and did.
    pub summary: Summary,
    /// What was left out.
    pub left_out: LeftOut,
}

struct Channels {
    jobs: Sender<ReadJob>,
    spare: Sender<Vec<u8>>,
    permits: Sender<()>,
    permits_taken: Receiver<()>,
}

/// Backs up sources until there are none left.
pub fn run_paths(
    context: &StreamContext<'_>,
    paths: &PathsContext<'_>,
    writer: &mut StreamWriter,
) -> Result<StreamOutcome> {
    let errors = AtomicU64::new(0);
    let parent = match paths.parent_root {
        Some(_) => Some(TreeReader::open(context.repository)?),
        None => None,
    };
    let mut outcome = std::thread::scope(|scope| {
        let channels = start_readers(scope, context)?;
        let (items, inbox) = bounded(BUNDLES_MAX);
        let walk = Walk::new(
            WalkContext {
                repository: context.repository,
                job: context.job,
                selection: paths.selection,
                items,
                jobs: channels.jobs,
                permits: channels.permits_taken,
                errors: &errors,
                keep: paths.keep,
                stubs: paths.stubs,
                parent_summary: paths.parent_summary,
            },
            parent,
        );
        let walking = std::thread::Builder::new()
            .name("walk".into())
            .stack_size(WALK_STACK_BYTES)
            .spawn_scoped(scope, move || {
                walk::run(walk, paths.sources, paths.next, paths.parent_root)
            })
            .map_err(|cause| Error::io("starting a thread", cause))?;
        let is_manifest = paths.selection.cold.is_some();
        let ends = (channels.spare, channels.permits);
        let mut outcome = assemble(context, writer, &inbox, ends, is_manifest)?;
        // It has sent its last item, so it ends.
        outcome.left_out.add(&walking.join().map_err(|_| walk::stopped())?);
        Ok(outcome)
    })?;
    outcome.summary.errors += errors.load(Ordering::Relaxed);
    Ok(outcome)
}

/// Backs up one stream of bytes as a file called `name`.
pub fn run_stream(
    context: &StreamContext<'_>,
    reader: Box<dyn Read + Send>,
    name: &[u8],
    writer: &mut StreamWriter,
) -> Result<StreamOutcome> {
    std::thread::scope(|scope| {
        let channels = start_readers(scope, context)?;
        let (items, inbox) = bounded(BUNDLES_MAX);
        let (results, receiver) = bounded(1);
        let now_ns = context.repository.environment().clock.now_ns();
        let entry = Entry {
            name: name.to_vec(),
            kind: EntryKind::File,
            mode: 0o600,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            links: 1,
            modified: Time {
                seconds: now_ns.div_euclid(1_000_000_000),
                nanoseconds: now_ns.rem_euclid(1_000_000_000) as u32,
            },
            ..Entry::default()
        };
        let stopped = |_| Error::invalid("the pipeline has stopped");
        channels
            .jobs
            .send(ReadJob { work: Work::Stream(reader), results })
            .map_err(|_| Error::invalid("the pipeline has stopped"))?;
        drop(channels.jobs);
        let path = [b"/", name].concat();
        let bundle = vec![
            Item::Job(receiver),
            Item::Read { path, entry, known: false },
            Item::SourceDone(0),
        ];
        items.send(bundle).map_err(stopped)?;
        drop(items);
        assemble(context, writer, &inbox, (channels.spare, channels.permits), false)
    })
}

fn start_readers<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    context: &'env StreamContext<'_>,
) -> Result<Channels> {
    let read_jobs_max = context.repository.memory().read_jobs_max;
    let (jobs, jobs_taken) = bounded::<ReadJob>(read_jobs_max);
    let (spare, spare_taken) = bounded(read_jobs_max * 2);
    let (permits, permits_taken) = bounded(read_jobs_max);
    for _ in 0..read_jobs_max {
        // There is room for exactly as many.
        let _ = permits.try_send(());
    }
    for number in 0..context.threads.max(1) {
        let (jobs, spare) = (jobs_taken.clone(), spare_taken.clone());
        let (of_store, job) = ((context.repository, context.versions), context.job);
        std::thread::Builder::new()
            .name(format!("read-{number}"))
            .spawn_scoped(scope, move || read::run(of_store, &jobs, &spare, job))
            .map_err(|cause| Error::io("starting a thread", cause))?;
    }
    Ok(Channels { jobs, spare, permits, permits_taken })
}

/// Assembles on this thread, and drops its ends of the channels when it is done.
fn assemble(
    context: &StreamContext<'_>,
    writer: &mut StreamWriter,
    items: &Receiver<Vec<Item>>,
    (spare, permits): (Sender<Vec<u8>>, Sender<()>),
    is_manifest: bool,
) -> Result<StreamOutcome> {
    let names = SystemNames::default();
    let mut assembler = Assembler {
        stream: writer,
        job: context.job,
        spare,
        permits,
        summary: Summary::default(),
        gone: 0,
        grown: 0,
        is_manifest,
        names: &names,
        cursor: Cursor::default(),
        linked: HashMap::new(),
        taken: 0,
    };
    let mut done = Vec::new();
    assembler.run(items, &mut done)?;
    let (gone, grown) = (assembler.gone, assembler.grown);
    let left_out = LeftOut { gone, grown, ..LeftOut::default() };
    Ok(StreamOutcome { done, summary: assembler.summary, left_out })
}
