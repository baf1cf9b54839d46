//! The job: cold files of a share become stubs (ATC'12, "deduplication pipeline").
//!
//! # Algorithm
//! 1. What was done to stubs without the mount is looked for ([`super::changed_below`]). What is
//!    dirty in memory is written out, so that whatever is changed through a mapping from
//!    now on changes the times of its file.
//! 2. A backup of the cold files, in which stubs are taken over by what they say: the manifest.
//! 3. Every file of the manifest that is no stub yet is emptied ([`emptying`]); one with several
//!    names only if the manifest has them all ([`super::linked_files`]).
//! 4. Earlier manifests are forgotten, if the new one holds every stub there is. One that another
//!    directory has made, a copy of the share, stays ([`super::addresses`]).
//!    What this run has taken the place of stays until the next one if other shares of the machine
//!    are in the store: a stub that somebody moved there without the mount is taken over by a job
//!    there meanwhile.
//! 5. Second copies of the chunks that very many files have are kept ([`super::second_copies`]).
//!
//! Where the share is divided ([`turns`]), 2 and 3 are done for one partition after the other, each
//! with a manifest of its own that is deduplicated among its own chunks only. What partitions have
//! in common is then stored once for each of them, until a collection keeps one. A stub may pass
//! from one partition to another: so 4 comes once all turns are over, for all of them at once.
//!
//! # When an earlier manifest may be forgotten
//! A walk meets every file that keeps its name while it walks. One that is moved from a directory
//! ahead to one behind is missed. So whoever moves a stub or a directory writes that down first
//! ([`Share::note_move`]). A stub that was written to is read, so that the manifest holds what it
//! is now; if it then cannot be emptied, it still needs what it was. If anything was written down
//! since before the walk began, or anything could not be read, or such a stub was left alone, the
//! earlier manifests stay until a later run. (A stub that is open when it is met is not read; one
//! whose data is damaged in the store is in the manifest all the same: [`crate::ingest::stubs`].)
//! Stubs only come from this job, of which one runs at a time, and all that it makes are in its
//! manifest before they are stubs.

use super::addresses;
use super::changed_below::ChangedBelow;
use super::emptying::{self, Emptied, Left, LeftAlone, Prepared};
use super::linked_files::LinkedFiles;
use super::manifests::{self, Elsewhere, Manifests};
use super::problems::MORE;
use super::second_copies;
use super::share::{OPEN, Share, open_directory};
use super::told_once::ToldOnce;
use super::turns::{self, Partitions, Turn};
use crate::index::partition::PartitionIndexReport;
use crate::ingest::stubs::{DamagedStubs, by_handle};
use crate::ingest::{self, BackupOptions, BackupReport, Selection, Source, publish};
use crate::job::{Job, Observer};
use crate::look_up::LookupChoice;
use crate::patterns::Patterns;
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList, tombstones};
use crate::stub;
use crate::tree::{TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_format::record::Summary;
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_policy::primary::overlap::{Overlap, SAMPLE_BITS};
use onefold_types::{Error, ErrorKind, Result, SessionId, limits};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Files that are emptied at once: whoever opens one of them waits for all.
const EMPTIED_AT_ONCE: usize = 64;
/// Partitions are worth reconciling if two store so much of the smaller one twice.
const WORTH_SHARE_MIN: f64 = 0.1;

/// How to optimise.
#[derive(Clone, Debug)]
pub struct OptimizeOptions {
    /// How the manifest is made; what it is of does not count.
    pub backup: BackupOptions,
    /// What is optimised, instead of what the share says.
    pub cold: Option<ColdFiles>,
    /// How the files are divided: each partition is deduplicated for itself, in a turn of its own.
    pub partitions: Partitions,
    /// Who forgets earlier manifests, for their tombstones.
    pub by: String,
    /// Whether they are to be forgotten at once: there is no room for what only they hold.
    pub forgets_at_once: bool,
    /// Whether the store is on the disk of the share, where a collection needs some room.
    pub shares_disk: bool,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct OptimizeReport {
    /// The backup of the cold files; of several turns the last one, with the sums of all.
    pub backup: BackupReport,
    /// The turns, one for each partition; none if the share was not divided.
    pub turns: Vec<TurnReport>,
    /// What became stubs.
    pub emptied: Emptied,
    /// Files that were left alone, by reason.
    pub left: BTreeMap<Left, u64>,
    /// Files that were left alone because a name of theirs is outside the share or left out.
    pub files_linked: u64,
    /// Stubs that were written into without the mount.
    pub written_below: u64,
    /// Stubs that were moved here out of another share without the mount.
    pub moved_here: u64,
    /// Files that could not be emptied.
    pub errors: u64,
    /// Second copies of what very many files have; none if nothing was stored.
    pub second_copies: second_copies::Kept,
    /// Manifests that were forgotten.
    pub manifests_forgotten: u64,
    /// Manifests that stay until a later run because something was moved.
    pub manifests_kept: u64,
    /// Manifests of the share that stay because another directory has made them.
    pub elsewhere: Vec<Elsewhere>,
}

/// What a turn did.
#[derive(Clone, Debug)]
pub struct TurnReport {
    /// The partition.
    pub name: String,
    /// Its manifest; `None` after a dry run that has nothing to compare with.
    pub manifest: Option<SessionId>,
    /// What was backed up.
    pub summary: Summary,
    /// What the index of the partition took.
    pub index: PartitionIndexReport,
}

/// Optimises the cold files of a share.
///
/// Errors: `Unavailable` if another job is at work in it.
pub fn optimize(
    repository: &Arc<Repository>,
    share: &Share,
    options: &OptimizeOptions,
    job: &Job,
) -> Result<OptimizeReport> {
    share.refuse_other_store(repository)?;
    let _lock = share.lock_job()?;
    second_copies::install(repository)?;
    emptying::go_on(repository, share, &mut |path, error| {
        job.observer.problem(&shown(path), error);
    })?;
    let changed = match options.backup.dry_run {
        true => ChangedBelow::default(),
        false => ChangedBelow::look_anew(repository, share, job)?,
    };
    let moves = share.moves()?;
    rustix::fs::syncfs(share.directory())
        .map_err(|errno| Error::io("writing out what is dirty", errno.into()))?;
    let once = Arc::new(ToldOnce::new(&job.observer));
    let job = &Job { observer: Arc::clone(&once) as Arc<dyn Observer>, ..job.clone() };
    let list = SnapshotList::load(repository)?;
    let Manifests { own: earlier, elsewhere } = Manifests::of(&list, share);
    let kept = match !options.forgets_at_once && manifests::has_neighbours(&list, share) {
        true => turns::newest(&earlier),
        false => 0,
    };
    let ChangedBelow { written: written_below, moved: moved_here, .. } = changed;
    let mut report =
        OptimizeReport { elsewhere, written_below, moved_here, ..OptimizeReport::default() };
    let (turns, errors) = turns::plan(share, options.partitions, job)?;
    report.errors += errors;
    let (mut made, mut needs_earlier) = (Vec::new(), errors > 0);
    let (mut is_new, mut linked) = (false, LinkedFiles::default());
    for turn in &turns {
        job.interrupt.check()?;
        let backup = back_up(repository, share, (options, turn), &earlier, job)?;
        let manifest = backup.snapshot.or(backup.parent);
        is_new |= backup.snapshot.is_some();
        report.note(turn, backup);
        let (Some(manifest), false) = (manifest, options.backup.dry_run) else { continue };
        let root = root_of(repository, manifest)?;
        let so_far = (&mut report, &mut linked);
        needs_earlier |= empty_files(repository, share, root, (options, job), so_far)?;
        made.push((manifest, root));
    }
    let could_walk = report.backup.summary.errors == 0;
    report.count_once(once.again());
    if options.backup.dry_run {
        return Ok(report);
    }
    report.files_linked = linked.left();
    note_damaged(share, &report.backup, could_walk)?;
    if made.is_empty() {
        return Ok(report);
    }
    let is_other = |one: &&Snapshot| made.iter().all(|(other, _)| *other != one.id);
    let others = earlier[..earlier.len() - kept].iter().filter(is_other);
    let others: Vec<SessionId> = others.map(|one| one.id).collect();
    let is_whole = could_walk && !needs_earlier && share.moves()? == moves;
    match is_whole {
        true => report.manifests_forgotten = forget(repository, &others, &options.by)?,
        false => report.manifests_kept = others.len() as u64,
    }
    if is_new {
        let roots: Vec<Reference> = made.iter().map(|(_, root)| *root).collect();
        keep_twice(repository, share, &roots, (options, job), &mut report)?;
    }
    Ok(report)
}

/// Keeps second copies of what very many files have.
fn keep_twice(
    repository: &Arc<Repository>,
    share: &Share,
    roots: &[Reference],
    (options, job): (&OptimizeOptions, &Job),
    report: &mut OptimizeReport,
) -> Result<()> {
    let by = (&options.backup, options.by.as_str());
    match second_copies::keep(repository, share, roots, by, job) {
        Ok(kept) => report.second_copies = kept,
        Err(error) if is_about_all(error.kind()) => return Err(error),
        Err(error) => {
            report.errors += 1;
            job.observer.problem("second copies", &error);
        }
    }
    Ok(())
}

/// Forgets manifests; how many.
fn forget(repository: &Repository, manifests: &[SessionId], by: &str) -> Result<u64> {
    for id in manifests {
        tombstones::forget(repository, *id, by, "a later manifest holds all stubs")?;
    }
    Ok(manifests.len() as u64)
}

/// Writes down which stubs are damaged, instead of what an earlier run wrote down of that.
fn note_damaged(share: &Share, backup: &BackupReport, is_whole: bool) -> Result<()> {
    let DamagedStubs { files, mut lines } = backup.damaged_stubs.clone();
    if files > lines.len() as u64 {
        lines.push(MORE.to_owned());
    }
    let is_over = |line: &str| is_whole || lines.iter().any(|other| other == line);
    let stays = &mut |line: &str| !DamagedStubs::is_line(line) || !is_over(line);
    share.settle_problems(stays, &lines)
}

impl OptimizeReport {
    /// Pairs of partitions and how many chunks they have in common, about, most first (S4.18).
    #[must_use]
    pub fn in_common(&self) -> Vec<([&str; 2], u64)> {
        let overlap = self.overlap(|_| true);
        let mut pairs = Vec::new();
        for (number, one) in (0..).zip(&self.turns) {
            for (other_number, other) in (0..).zip(&self.turns).skip(number as usize + 1) {
                let chunks = overlap.common_chunks(number, other_number);
                pairs.push(([one.name.as_str(), other.name.as_str()], chunks));
            }
        }
        pairs.retain(|(_, chunks)| *chunks > 0);
        pairs.sort_by_key(|(names, chunks)| (Reverse(*chunks), *names));
        pairs
    }

    /// Partitions of which so much is stored several times that it is worth reconciling them, those
    /// with most first (S4.18).
    #[must_use]
    pub fn worth_reconciling(&self) -> Vec<&str> {
        self.worth().iter().map(|turn| turn.name.as_str()).collect()
    }

    /// Chunks that these partitions need not hold several times, about.
    #[must_use]
    pub fn chunks_stored_twice(&self) -> u64 {
        let held: BTreeSet<_> = self.worth().iter().flat_map(|turn| &turn.index.sample).collect();
        let chunks: BTreeSet<u64> = held.iter().map(|(prefix, _)| *prefix).collect();
        ((held.len() - chunks.len()) as u64) << SAMPLE_BITS
    }

    fn worth(&self) -> Vec<&TurnReport> {
        let (mut holders, mut stored_twice) = (BTreeMap::new(), BTreeSet::new());
        for (prefix, holder) in self.turns.iter().flat_map(|turn| &turn.index.sample) {
            if holders.insert(*prefix, *holder).is_some_and(|other| other != *holder) {
                stored_twice.insert(*prefix);
            }
        }
        // What is stored once is there for whichever has it first.
        let mut met = BTreeSet::new();
        let overlap = self.overlap(|prefix| stored_twice.contains(prefix) || met.insert(*prefix));
        let selected = overlap.select(WORTH_SHARE_MIN).into_iter();
        selected.filter_map(|number| self.turns.get(number as usize)).collect()
    }

    /// Of the samples of the turns' chunks, as far as they count.
    fn overlap(&self, mut counts: impl FnMut(&u64) -> bool) -> Overlap {
        let mut samples = Vec::with_capacity(self.turns.len());
        for (number, turn) in (0..).zip(&self.turns) {
            let mut sample: BTreeSet<u64> =
                turn.index.sample.iter().map(|(prefix, _)| *prefix).collect();
            sample.retain(&mut counts);
            samples.push((number, sample));
        }
        Overlap::of(SAMPLE_BITS, samples)
    }

    /// Takes off errors that were met again: each was counted where it was told.
    fn count_once(&mut self, again: u64) {
        let errors = &mut self.backup.summary.errors;
        *errors = errors.saturating_sub(again);
    }

    /// Adds what a turn has backed up.
    fn note(&mut self, turn: &Turn, backup: BackupReport) {
        if let Some(name) = &turn.name {
            let manifest = backup.snapshot.or(backup.parent);
            let (name, summary) = (name.clone(), backup.summary);
            let index = backup.part_index.clone().unwrap_or_default();
            self.turns.push(TurnReport { name, manifest, summary, index });
        }
        let before = std::mem::replace(&mut self.backup, backup);
        let sum = &mut self.backup;
        publish::add(&mut sum.summary, &before.summary);
        sum.left_out.add(&before.left_out);
        sum.damaged_stubs.add(before.damaged_stubs);
        sum.fenced += before.fenced;
        sum.strays = sum.strays.max(before.strays);
        sum.elapsed += before.elapsed;
    }
}

fn root_of(repository: &Repository, manifest: SessionId) -> Result<Reference> {
    let list = SnapshotList::load(repository)?;
    let gone = || Error::new(ErrorKind::NotFound, "the manifest was forgotten meanwhile");
    Ok(list.get(manifest).ok_or_else(gone)?.record.root)
}

/// Empties the files of a manifest; whether a stub may need what only earlier ones hold.
fn empty_files(
    repository: &Arc<Repository>,
    share: &Share,
    root: Reference,
    (options, job): (&OptimizeOptions, &Job),
    (report, linked): (&mut OptimizeReport, &mut LinkedFiles),
) -> Result<bool> {
    let tree = Arc::new(TreeReader::open(repository)?);
    let mut run = Run {
        repository,
        share,
        tree,
        job,
        report,
        threads: options.backup.threads,
        waiting: Vec::new(),
        linked,
        needs_earlier: false,
    };
    run.directory(root)?;
    run.empty()?;
    let needs_earlier = run.needs_earlier;
    share.note_emptying(std::iter::empty())?;
    Ok(needs_earlier)
}

fn back_up(
    repository: &Arc<Repository>,
    share: &Share,
    (options, turn): (&OptimizeOptions, &Turn),
    earlier: &[Snapshot],
    job: &Job,
) -> Result<BackupReport> {
    let now_ns = repository.environment().clock.now_ns();
    let age_ns = share.policy.age_min_seconds.saturating_mul(1_000_000_000);
    let of_share = ColdFiles {
        modified_before_ns: now_ns.saturating_sub_unsigned(age_ns),
        size_min_bytes: share.policy.size_min_bytes,
    };
    let selection = Selection {
        excludes: Patterns::build(&share.policy.excludes, &[])?,
        one_file_system: true,
        cold: Some(options.cold.unwrap_or(of_share)),
        only: Some((share.control_identity()?, OPEN)),
        manifests: earlier.iter().map(|one| one.id).collect(),
        part: turn.part(earlier),
        ..Selection::default()
    };
    let source = Source::Root {
        directory: share.below(),
        name: share.here().path.clone(),
        selection: Box::new(selection),
    };
    let (parent, same) = turn.parent(earlier);
    let backup = options.backup.clone();
    let options = BackupOptions {
        share: Some(share.id),
        parent,
        // A manifest that bears another name does not stand for this one; and whoever uses the
        // address that it was made at may forget one that was made elsewhere.
        skip_if_unchanged: same.is_some_and(|one| share.has_made_here(one)),
        tags: std::iter::once(addresses::tag(share.here())).chain(turn.tag()).collect(),
        // An index in memory is asked at once.
        lookup: match turn.name {
            Some(_) => LookupChoice::Eager(FilterOrder::default()),
            None => backup.lookup,
        },
        streams: 1,
        ..backup
    };
    ingest::backup(repository, source, &options, job)
}

/// One run over a manifest.
struct Run<'a> {
    repository: &'a Arc<Repository>,
    share: &'a Share,
    tree: Arc<TreeReader>,
    job: &'a Job,
    report: &'a mut OptimizeReport,
    threads: usize,
    waiting: Vec<Waiting>,
    /// Files of which another name is yet to be met.
    linked: &'a mut LinkedFiles,
    /// Whether a stub may need what only earlier manifests hold.
    needs_earlier: bool,
}

/// A file that is to be emptied.
struct Waiting {
    directory: Arc<OwnedFd>,
    path: Vec<u8>,
    stored: Entry,
}

/// Whether an error concerns more than one file.
fn is_about_all(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Exhausted | ErrorKind::Interrupted)
}

/// A path in the share, for messages.
fn shown(path: &Path) -> String {
    path::display(&path::join(b"/", path.as_os_str().as_bytes()))
}

/// A directory of the manifest and of the share, and what is left of it.
struct Open {
    directory: Arc<OwnedFd>,
    path: Vec<u8>,
    entries: std::vec::IntoIter<Entry>,
}

impl Run<'_> {
    /// Empties all files of a manifest.
    fn directory(&mut self, root: Reference) -> Result<()> {
        let top = open_directory(self.share.directory(), Path::new("."))?;
        let mut open = vec![self.open(top, Vec::new(), root)?];
        loop {
            let is_too_deep = open.len() >= limits::DEPTH_MAX;
            let Some(Open { directory, path, entries }) = open.last_mut() else {
                return Ok(());
            };
            self.job.interrupt.check()?;
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            let path = path::join(path, &entry.name);
            let inner = match (entry.kind, entry.content) {
                (EntryKind::File, _) => {
                    self.file(directory, &path, entry)?;
                    continue;
                }
                (EntryKind::Directory, Some(content)) => content,
                _ => continue,
            };
            let name = Path::new(OsStr::from_bytes(&entry.name));
            match open_directory(&**directory, name) {
                Ok(directory) if !is_too_deep => match self.open(directory, path.clone(), inner) {
                    Ok(next) => open.push(next),
                    Err(error) => self.failed(&path::display(&path), error)?,
                },
                // It was moved meanwhile, and so were its files.
                Ok(_) | Err(_) => {
                    self.left(LeftAlone { why: Left::Changed, needs_earlier: true });
                }
            }
        }
    }

    fn open(&self, directory: OwnedFd, path: Vec<u8>, content: Reference) -> Result<Open> {
        let directory = Arc::new(directory);
        Ok(Open { directory, path, entries: self.tree.entries(content)?.into_iter() })
    }

    fn left(&mut self, left: LeftAlone) {
        *self.report.left.entry(left.why).or_default() += 1;
        self.needs_earlier |= left.needs_earlier;
    }

    /// Tells of what concerns one file or directory, which may need what it needed; anything else
    /// ends the job.
    fn failed(&mut self, shown: &str, error: Error) -> Result<()> {
        if is_about_all(error.kind()) {
            return Err(error);
        }
        self.report.errors += 1;
        self.needs_earlier = true;
        self.job.observer.problem(shown, &error);
        Ok(())
    }

    /// A file waits until there are some, which are read back at once.
    fn file(&mut self, directory: &Arc<OwnedFd>, path: &[u8], stored: Entry) -> Result<()> {
        let is_same = |other: &Waiting| other.stored.inode == stored.inode;
        if self.waiting.iter().any(is_same) {
            // Another name of a file that is about to be emptied, and open for that.
            return Ok(());
        }
        let is_whole = stored.links > 1 && !self.is_stub(directory, &stored);
        if is_whole && !self.linked.is_last(stored.inode, stored.links) {
            return Ok(());
        }
        let directory = Arc::clone(directory);
        self.waiting.push(Waiting { directory, path: path.to_vec(), stored });
        match self.waiting.len() {
            EMPTIED_AT_ONCE.. => self.empty(),
            _ => Ok(()),
        }
    }

    /// Whether a file is a stub already, whoever else has a name of it. One that cannot be looked
    /// at is none.
    fn is_stub(&self, directory: &OwnedFd, stored: &Entry) -> bool {
        let path = by_handle(directory, OsStr::from_bytes(&stored.name));
        stub::value_at(&path).is_ok_and(|value| value.is_some())
    }

    /// Reads files back on several threads, in order of their names on each.
    fn prepare(&self, waiting: &[Waiting]) -> Vec<Result<Result<Prepared, LeftAlone>>> {
        let next = AtomicUsize::new(0);
        let prepared: Vec<OnceLock<_>> = waiting.iter().map(|_| OnceLock::new()).collect();
        let work = || {
            while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed))
                .filter(|at| *at < waiting.len() && self.job.interrupt.check().is_ok())
            {
                let Waiting { directory, path, stored } = &waiting[at];
                let _ = prepared[at].set(emptying::prepare(&self.tree, (directory, path), stored));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(waiting.len()) {
                scope.spawn(work);
            }
            work();
        });
        let stopped = || Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        prepared.into_iter().map(|one| one.into_inner().unwrap_or_else(stopped)).collect()
    }

    fn empty(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut files = Vec::with_capacity(waiting.len());
        for (prepared, Waiting { path, .. }) in self.prepare(&waiting).into_iter().zip(&waiting) {
            self.job.progress.set_current(&path::display(path));
            match prepared {
                Ok(Ok(file)) => files.push(file),
                Ok(Err(left)) => self.left(left),
                Err(error) => self.failed(&path::display(path), error)?,
            }
        }
        let mut told = Vec::new();
        let emptied = emptying::empty(self.repository, self.share, &files, &mut |file, what| {
            told.push((shown(file.path()), what));
        })?;
        for (shown, what) in told {
            match what {
                Ok(left) => self.left(left),
                Err(error) => self.failed(&shown, error)?,
            }
        }
        let sum = &mut self.report.emptied;
        sum.files += emptied.files;
        sum.bytes += emptied.bytes;
        sum.freed_bytes += emptied.freed_bytes;
        Ok(())
    }
}
