//! The plan of a restore: what would be read, without reading it.
//!
//! Source: FAST'19, section 6 (speed factor). The tree is walked and every chunk located as a
//! restore does it; windows are then arranged, by the engine asked for and by all others with the
//! memory of S2.32, and counted. What differences are made of counts as it is read; with other
//! engines than the one asked for it does not.
//!
//! The walk has a stack of its own and holds one leaf of each directory on the way, as every walk
//! over a snapshot does (see [`crate::find`]).

use super::RestoreOptions;
use super::bases::{Part, Until};
use super::visits::{Visit, Visits};
use super::window::{Window, WindowShare};
use crate::job::Job;
use crate::patterns::Patterns;
use crate::placement::Guide;
use crate::repository::Repository;
use crate::tree::directory_cursor::{DirectoryCursor, check_depth};
use crate::tree::{ExtentWalk, TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Extent};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::SPAN_BYTES;
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, Result};
use std::collections::HashSet;
use std::sync::Arc;

/// What a restore would read.
#[derive(Clone, Debug, Default)]
pub struct PlanReport {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their data chunks.
    pub chunks: u64,
    /// Containers that hold them, and what those are made of that are stored as differences.
    pub containers: u64,
    /// Reads of containers by the engine asked for.
    pub container_reads: u64,
    /// Frames to be opened.
    pub frames: u64,
    /// Stored bytes to be read.
    pub bytes_read: u64,
    /// Plain bytes in those frames.
    pub bytes_opened: u64,
    /// Reads of containers that each engine would do with [`SPAN_BYTES`] of memory.
    pub engines: Vec<(RestoreEngine, u64)>,
    /// Chunks found where the placement said.
    pub chunks_guided: u64,
    /// Chunks that are in no readable container.
    pub chunks_missing: u64,
}

/// Plans the restore of what lies below `root`.
pub fn plan(
    repository: &Arc<Repository>,
    root: &Entry,
    options: &RestoreOptions,
    job: &Job,
) -> Result<PlanReport> {
    let engines = RestoreEngine::with_memory(SPAN_BYTES).map(|engine| (engine, 0));
    let reader = TreeReader::open(repository)?;
    let guide = Guide::new(reader.chunks(), options.placed);
    let mut planner = Planner {
        reader,
        guide,
        place: options.placed.map_or(0, |placed| placed.first_chunk),
        options,
        job,
        window: Window::default(),
        share: WindowShare::take(repository),
        containers: HashSet::new(),
        report: PlanReport { engines: engines.to_vec(), ..PlanReport::default() },
    };
    job.progress.set_totals(root.totals.entries, root.totals.bytes.max(root.size));
    match root.kind {
        EntryKind::Directory if root.content.is_some() => planner.tree(root)?,
        EntryKind::File if root.content.is_some() => planner.file(root)?,
        _ => {}
    }
    planner.run_window()?;
    planner.report.containers = planner.containers.len() as u64;
    Ok(planner.report)
}

struct Planner<'a> {
    reader: TreeReader,
    guide: Guide,
    place: u64,
    options: &'a RestoreOptions,
    job: &'a Job,
    window: Window,
    share: WindowShare,
    containers: HashSet<ContainerId>,
    report: PlanReport,
}

/// A directory on the way down.
struct Level {
    path: Vec<u8>,
    cursor: DirectoryCursor,
    /// Whether everything in it is selected.
    included: bool,
    /// The place in the snapshot behind its chunks.
    place_end: u64,
}

impl Planner<'_> {
    fn tree(&mut self, root: &Entry) -> Result<()> {
        let mut stack = Vec::new();
        let included = self.options.include.is_empty();
        self.descend(&mut stack, root, (Vec::new(), included, u64::MAX))?;
        while let Some(level) = stack.last_mut() {
            self.job.interrupt.check()?;
            let next = level.cursor.next(&self.reader);
            let Some(entry) = next.context(|| path::display(&level.path))? else {
                self.place = level.place_end;
                stack.pop();
                continue;
            };
            let here = path::join(&level.path, &entry.name);
            let chunks = entry.chunks.saturating_add(entry.totals.chunks);
            let place_end = self.place.saturating_add(chunks);
            let is_directory = entry.kind == EntryKind::Directory;
            let matches =
                |patterns: &Patterns| !patterns.is_empty() && patterns.matches(&here, is_directory);
            let included = matches(&self.options.include) || level.included;
            let is_out = matches(&self.options.exclude) || (!included && !is_directory);
            if is_directory && !is_out && entry.content.is_some() {
                check_depth(stack.len(), &here)?;
                self.descend(&mut stack, &entry, (here, included, place_end))?;
                continue;
            }
            if entry.kind == EntryKind::File && !is_out {
                self.file(&entry)?;
            }
            // What is passed over has its places as well.
            self.place = place_end;
        }
        Ok(())
    }

    fn descend(
        &mut self,
        stack: &mut Vec<Level>,
        directory: &Entry,
        (path, included, place_end): (Vec<u8>, bool, u64),
    ) -> Result<()> {
        let cursor = DirectoryCursor::of(&self.reader, directory);
        let cursor = cursor.context(|| path::display(&path))?;
        stack.push(Level { path, cursor, included, place_end });
        Ok(())
    }

    fn file(&mut self, entry: &Entry) -> Result<()> {
        self.report.files += 1;
        self.report.bytes += entry.size;
        self.job.progress.add(1, entry.size);
        let mut walk = ExtentWalk::new(entry.content, entry.size)?;
        while let Some((offset, extent)) = walk.next(&self.reader)? {
            if !extent.is_hole() {
                self.chunk(offset, &extent)?;
            }
        }
        Ok(())
    }

    fn chunk(&mut self, offset: u64, extent: &Extent) -> Result<()> {
        self.report.chunks += 1;
        let place = Some(self.place);
        self.place += 1;
        let nodes = self.reader.chunks();
        let located = self.guide.locate(nodes, place, &extent.fingerprint);
        let location = match located {
            Ok((location, guided)) => {
                self.report.chunks_guided += u64::from(guided);
                location
            }
            Err(error) if error.is_lost() => {
                self.report.chunks_missing += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.window.push(&location, 0, offset, extent.length)?;
        if self.window.cost() >= self.share.chunks_max {
            self.run_window()?;
        }
        Ok(())
    }

    fn run_window(&mut self) -> Result<()> {
        let window = std::mem::take(&mut self.window);
        window.count_reads(&mut self.report.engines)?;
        let sorted = window.arrange(&self.options.engine)?;
        let mut first = 0;
        while first < sorted.reads.len() {
            let part = Part::next(self.reader.chunks(), (&sorted, Until::Open), first)?;
            first = part.reads.end;
            for pass in Visits::of_part(&sorted, part.reads.clone(), &part.spots, part.room()) {
                self.count(&pass);
            }
        }
        Ok(())
    }

    fn count(&mut self, pass: &Visits) {
        self.report.container_reads += pass.reads.len() as u64;
        self.report.frames += pass.frames.len() as u64;
        for Visit { needed, .. } in &pass.frames {
            self.report.bytes_read += u64::from(needed.descriptor.stored_length);
            self.report.bytes_opened += u64::from(needed.descriptor.plain_length);
            self.containers.insert(needed.container);
        }
    }
}

impl PlanReport {
    /// MB restored for each read of a container.
    #[must_use]
    pub fn speed_factor(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.container_reads.max(1) as f64
    }

    /// An error if something cannot be restored.
    pub fn check(&self) -> Result<()> {
        match self.chunks_missing {
            0 => Ok(()),
            missing => Err(Error::damaged(format!(
                "{missing} chunks are in no readable container; run 'onefold check'"
            ))),
        }
    }
}
