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
//! If the store is on the disk of the share, 2 takes no more than there is room for, and is done
//! again with 3 after it until nothing is put off: what is emptied makes room for what comes next.
//! Each time there is a manifest of all stubs so far, and the last one takes the place of those
//! before.
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
use super::disk;
use super::emptying::{self, Left, LeftAlone, Prepared};
use super::linked_files::LinkedFiles;
use super::lost_stubs::LostStubs;
use super::manifests::{self, Manifests};
use super::problems::MORE;
use super::reserve::Reserve;
use super::second_copies;
use super::share::{OPEN, Share, open_directory};
use super::told_once::ToldOnce;
use super::turns::{self, Partitions, Turn};
use crate::ingest::left_out::Room;
use crate::ingest::stubs::{DamagedStubs, by_handle};
use crate::ingest::{self, BackupOptions, BackupReport, Selection, Source};
use crate::job::{Job, Observer};
use crate::look_up::LookupChoice;
use crate::patterns::Patterns;
use crate::repository::Repository;
use crate::session::outcome::read_outcome;
use crate::session::{Snapshot, SnapshotList, tombstones};
use crate::stub;
use crate::tree::{TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_format::record::Outcome;
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_types::{Error, ErrorKind, Result, SessionId, limits};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

mod report;

pub use report::{OptimizeReport, TurnReport};

/// Files that are emptied at once: whoever opens one of them waits for all.
const EMPTIED_AT_ONCE: usize = 64;

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
    /// Whether the store is on the disk of the share: what is stored takes room there, and so does
    /// a collection.
    pub shares_disk: bool,
}

impl OptimizeOptions {
    /// Nothing becomes a stub as long as what is a lost one is not known.
    fn beside(&self, lost: &LostStubs) -> Self {
        let nothing = ColdFiles { modified_before_ns: i64::MIN, size_min_bytes: u64::MAX };
        let cold = if lost.may_be_more() { Some(nothing) } else { self.cold };
        Self { cold, ..self.clone() }
    }

    /// What may be stored before something is emptied; `None`: all.
    ///
    /// On one disk with the store everything takes room twice until it is emptied. Half of what is
    /// free leaves some for what is stored beside the data, and for everybody else. If almost
    /// nothing is free, what is set aside is: this is what makes room.
    fn room(&self, share: &Share) -> Result<Option<Room>> {
        if !self.shares_disk || self.backup.dry_run {
            return Ok(None);
        }
        let kept_bytes = disk::kept_free_bytes(share.directory())?;
        let mut free_bytes = disk::usable_bytes(share.directory())?;
        if free_bytes < kept_bytes && Reserve::of(share.control()?).give_all()? {
            free_bytes = disk::usable_bytes(share.directory())?;
        }
        let room_bytes = free_bytes - kept_bytes.min(free_bytes / 2);
        Ok(Some(Room::of(room_bytes / 2, room_bytes)))
    }
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
    let list = SnapshotList::load_unaided(repository)?;
    let Manifests { own: earlier, elsewhere } = Manifests::of(&list, share);
    let kept = match !options.forgets_at_once && manifests::has_neighbours(&list, share) {
        true => turns::newest(&earlier),
        false => 0,
    };
    let ChangedBelow { written: written_below, moved: moved_here, .. } = changed;
    let lost = LostStubs::look(repository, share, &earlier, job)?;
    let options = &options.beside(&lost);
    let mut report =
        OptimizeReport { elsewhere, written_below, moved_here, lost, ..OptimizeReport::default() };
    let (turns, errors) = turns::plan(share, options.partitions, job)?;
    report.errors += errors;
    let mut made = Made {
        needs_earlier: errors + report.lost.files() + report.lost.errors() > 0,
        ..Made::default()
    };
    for turn in &turns {
        take_turn(repository, share, (options, turn), (&mut report, &mut made), job)?;
    }
    let could_walk = report.backup.summary.errors == 0;
    report.count_once(once.again());
    if options.backup.dry_run {
        return Ok(report);
    }
    report.files_linked = made.linked.left();
    note_damaged(share, &report.backup, could_walk)?;
    // What a share without a mount has set aside is set aside again by its next one.
    if options.shares_disk {
        Reserve::of(share.control()?).fill_if_there()?;
    }
    if made.manifests.is_empty() {
        return Ok(report);
    }
    let is_other = |id: &SessionId| made.manifests.iter().all(|(other, _)| other != id);
    let before = earlier[..earlier.len() - kept].iter().map(|one| one.id);
    let passed = made.passed.iter().copied().filter(|_| kept == 0);
    let others: Vec<SessionId> = before.chain(passed).filter(is_other).collect();
    let is_whole = could_walk && !made.needs_earlier && share.moves()? == moves;
    match is_whole {
        true => report.manifests_forgotten = forget(repository, &others, &options.by)?,
        false => report.manifests_kept = others.len() as u64,
    }
    if made.is_new {
        let roots: Vec<Reference> = made.manifests.iter().map(|(_, root)| *root).collect();
        keep_twice(repository, share, &roots, (options, job), &mut report)?;
    }
    Ok(report)
}

/// What the turns so far have made.
#[derive(Default)]
struct Made {
    /// The last manifest of each turn, and its root.
    manifests: Vec<(SessionId, Reference)>,
    /// Those of turns that went on.
    passed: Vec<SessionId>,
    /// Whether any of them was not there before.
    is_new: bool,
    /// Whether a stub may need what only earlier ones hold.
    needs_earlier: bool,
    /// Files of which another name is yet to be met.
    linked: LinkedFiles,
}

/// One turn: what there is room for is stored and emptied, and that again with what was put off,
/// until nothing is.
fn take_turn(
    repository: &Arc<Repository>,
    share: &Share,
    (options, turn): (&OptimizeOptions, &Turn),
    (report, made): (&mut OptimizeReport, &mut Made),
    job: &Job,
) -> Result<()> {
    let mut put_off_before = u64::MAX;
    loop {
        job.interrupt.check()?;
        let earlier = Manifests::of(&SnapshotList::load(repository)?, share).own;
        let backup = back_up(repository, share, (options, turn), (&earlier, &report.lost), job)?;
        let manifest = backup.snapshot.or(backup.parent);
        let (put_off, files) = (backup.left_out.put_off, report.emptied.files);
        made.is_new |= backup.snapshot.is_some();
        // What was moved is met by a later run.
        made.needs_earlier |= backup.left_out.gone > 0;
        let damaged = report.backup.damaged_stubs.clone();
        report.note(turn, backup);
        let (Some(manifest), false) = (manifest, options.backup.dry_run) else { return Ok(()) };
        let root = root_of(repository, manifest)?;
        // What is met now is met again by whoever goes on.
        let (left, linked) = (report.left.clone(), made.linked.clone());
        let so_far = (&mut *report, &mut made.linked);
        made.needs_earlier |= empty_files(repository, share, root, (options, job), so_far)?;
        // What is read each time, because it changes each time, does not keep this from its end.
        let goes_on = report.emptied.files > files || put_off < put_off_before;
        put_off_before = put_off;
        if put_off == 0 || !goes_on {
            report.files_put_off += put_off;
            made.manifests.push((manifest, root));
            return Ok(());
        }
        made.passed.push(manifest);
        (report.left, made.linked) = (left, linked);
        report.backup.damaged_stubs = damaged;
    }
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
        Err(error) if error.is_about_all() => return Err(error),
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

fn root_of(repository: &Repository, manifest: SessionId) -> Result<Reference> {
    match read_outcome(repository, manifest)? {
        Some(Outcome::Committed(record)) => Ok(record.root),
        _ => Err(Error::new(ErrorKind::NotFound, "the manifest was forgotten meanwhile")),
    }
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
    (earlier, lost): (&[Snapshot], &LostStubs),
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
        room: options.room(share)?.map(Arc::new),
        lost: Arc::new(lost.inodes().clone()),
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
        if error.is_about_all() {
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
        if is_whole && !self.linked.is_last(&stored) {
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
                let (file, interrupt) = ((&**directory, &path[..]), &self.job.interrupt);
                let _ = prepared[at].set(emptying::prepare(&self.tree, file, stored, interrupt));
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
