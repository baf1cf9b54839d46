//! Walks sources in the order of names and says what is to be done with each entry.
//!
//! One thread, ahead of the others by a bounded queue. Directories are opened relative to the one
//! above, links are never followed, so a directory that is swapped for a link while we look leads
//! nowhere. A file whose size, times and inode equal the parent snapshot's is kept unread. What
//! patterns leave out is not looked at: it may lie behind a server that is gone (`excluding`).
//! However deep a tree is, few of its directories are open ([`super::levels`]).
//!
//! Small files are collected into batches. A batch's channel enters the queue before its first file
//! does, and the batch is closed before the queue could fill up behind it, so the stage that takes
//! items never waits for a batch that was not handed out. Items travel in bundles, which are
//! sent off before the walk waits for anything.

use super::Selection;
use super::attributes::{self, AttributeSource};
use super::left_out::{Emptied, LeftOut, is_absence, is_gone};
use super::levels::open_levels;
use super::links::Links;
use super::listed::Listed;
use super::mount_points::Mounted;
use super::read::{Message, ReadJob};
use super::scattered::Stretch;
use super::source_tree::{ArrangedSource, is_about_source, other_form};
use super::stubs::{Reading, StubData, refuse_covered};
use crate::environment::open_files_max;
use crate::job::Job;
use crate::repository::Repository;
use crate::stub;
use crate::tree::{TreeReader, path};
use crossbeam_channel::{Receiver, Sender};
use onefold_format::node::{Entry, EntryKind, Reference, Totals};
use onefold_format::record::Summary;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod below;
mod describing;
mod entering;
mod excluding;
mod names;
mod parent;
mod reading;
mod special;

use below::leads_to_source;
use excluding::{Mounts, size_of_matched};
use names::Name;
use parent::{Known, ParentDirectory};
pub use reading::BATCH_FILES_MAX;
use reading::Batch;

/// Items that may wait in the queue.
const ITEMS_MAX: usize = 4096;
/// Items that travel together: waking the next stage for each one would cost more than the item.
const BUNDLE_ITEMS: usize = 64;
/// Bundles that may wait in the queue.
pub const BUNDLES_MAX: usize = ITEMS_MAX / BUNDLE_ITEMS;
/// Items after which an open batch is closed.
const BATCH_ITEMS_MAX: usize = ITEMS_MAX / 4;
/// The part of the files that the process may have open, one in so many, that is for directories
/// in batches.
const BATCHES_SHARE: usize = 4;

/// What is to be done with the next entry.
pub enum Item {
    /// The entries of a directory follow.
    Enter(Entry),
    /// The results of the next files to be read come from here.
    Job(Receiver<Message>),
    /// A file whose chunks come from the current job.
    Read {
        /// Its path, for messages.
        path: Vec<u8>,
        /// Its entry from before it was read; content and attributes are missing.
        entry: Entry,
        /// Whether the parent snapshot has a file of this name.
        known: bool,
    },
    /// A file that is the parent's, and the place of its first chunk in the parent's tree.
    Keep(Entry, u64),
    /// The same, but for chunks that come from the current job.
    Again(Entry, u64),
    /// A stub, whose data is in the store.
    Stored(Entry),
    /// A link, device, pipe or socket.
    Other(Entry),
    /// The directory entered last is complete.
    Leave {
        /// What it had, left out or not; `None` if it was not listed.
        listed: Option<Box<Listed>>,
    },
    /// The source with this number is complete: what follows belongs to the next.
    SourceDone(usize),
    /// The walk cannot go on.
    Failed(Error),
}

/// Whether a file that looks unchanged is the parent's.
pub enum Keeping {
    /// All of it is read: something of the parent's is not there.
    No,
    /// It is, but for stretches that are read to be stored again.
    But(Vec<Stretch>),
}

/// What the walk needs.
pub struct WalkContext<'a> {
    /// The store.
    pub repository: &'a Arc<Repository>,
    /// How to stop, and who listens.
    pub job: &'a Job,
    /// What to leave out.
    pub selection: &'a Selection,
    /// Where items go.
    pub items: Sender<Vec<Item>>,
    /// Where read jobs go.
    pub jobs: Sender<ReadJob>,
    /// One permit a job: bounds what is read ahead.
    pub permits: Receiver<()>,
    /// Counts entries that could not be read.
    pub errors: &'a AtomicU64,
    /// Whether a file of the parent may be kept: tells if all its chunks can be relied upon.
    /// The place of its first chunk in the parent's tree comes with it.
    pub keep: &'a (dyn Fn(&TreeReader, &Entry, u64) -> Keeping + Sync),
    /// What is known of the data of stubs.
    pub stubs: &'a StubData<'a>,
    /// What the parent snapshot has.
    pub parent_summary: Summary,
}

/// The walk over some sources.
pub struct Walk<'a> {
    pub(super) context: WalkContext<'a>,
    parent: Option<TreeReader>,
    bundle: Vec<Item>,
    batch: Option<Batch>,
    batch_directories_max: usize,
    /// The source's uppermost directory, which stands in the place of those that are put aside.
    top: Option<Arc<OwnedFd>>,
    /// How many levels stay open while what is below them is walked.
    levels_open: usize,
    /// Whether a directory was moved while what is below it was walked.
    is_lost: bool,
    links: Arc<Links>,
    device: u64,
    /// Whether times of change tell anything on the device that was asked about last.
    times_of_change: Option<(u64, bool)>,
    /// What is mounted as the device that was asked about last.
    mounted: Option<(u64, Mounted)>,
    /// Whether the directory that is entered next is the source.
    is_at_source: bool,
    left_out: LeftOut,
    /// Names met so far, left out or not.
    met: u64,
    /// Entries that the parent snapshot had in directories that were told of.
    told: u64,
    /// Sources below the one that is walked, by their places, until they are met.
    below: BTreeMap<Vec<u8>, ArrangedSource>,
    /// Whether this is inside of something that is left out, but for such sources.
    is_inside_left_out: bool,
    /// How many directories above are left out, and are looked through for stubs all the same.
    pub(super) left_out_above: usize,
    /// How long the source's path in the tree is.
    source_path_bytes: usize,
    source_on_disk: PathBuf,
    /// What is mounted where, unless this is about a share.
    mounts: Option<Mounts>,
    /// See [`other_form`].
    other_form: Option<(usize, Vec<u8>)>,
}

impl<'a> Walk<'a> {
    /// A walk that compares with trees read through `parent`.
    #[must_use]
    pub fn new(context: WalkContext<'a>, parent: Option<TreeReader>) -> Self {
        let bundle = Vec::with_capacity(BUNDLE_ITEMS);
        let memory = context.repository.memory();
        let batches = memory.read_jobs_max * memory.streams + 1;
        let batch_directories_max = open_files_max() / BATCHES_SHARE / batches;
        let levels_open = open_levels(open_files_max(), memory.streams);
        let left_out = LeftOut::none(context.selection.exclude_if_present.len());
        Self {
            context,
            parent,
            bundle,
            batch: None,
            batch_directories_max,
            top: None,
            levels_open,
            is_lost: false,
            links: Arc::default(),
            device: 0,
            mounted: None,
            times_of_change: None,
            is_at_source: false,
            left_out,
            met: 0,
            told: 0,
            below: BTreeMap::new(),
            is_inside_left_out: false,
            left_out_above: 0,
            source_path_bytes: 0,
            source_on_disk: PathBuf::new(),
            mounts: None,
            other_form: None,
        }
    }

    /// Walks one source. `parent_root` is the root of the parent snapshot.
    pub fn source(
        &mut self,
        number: usize,
        source: &ArrangedSource,
        parent_root: Option<Reference>,
    ) -> Result<()> {
        let above = self.parent_of(parent_root, &source.tree_path);
        self.below = source.below.iter().map(|one| (one.tree_path.clone(), one.clone())).collect();
        match self.top(source, above) {
            Err(error) if is_about_source(&error) => self.problem(&source.tree_path, error)?,
            other => other?,
        }
        self.tell_of_unmet()?;
        self.close_batch()?;
        self.send(Item::SourceDone(number))
    }

    fn top(&mut self, source: &ArrangedSource, above: Option<Known>) -> Result<()> {
        let on_disk = source.path.as_path();
        let stat = rustix::fs::lstat(on_disk)
            .map_err(|errno| Error::io(on_disk.display().to_string(), errno.into()))?;
        self.device = stat.st_dev;
        self.is_at_source = true;
        self.other_form = other_form(source);
        self.source_path_bytes = source.tree_path.len();
        self.source_on_disk.clone_from(&source.path);
        let name = source.tree_path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if self.context.selection.read_special
            && let Some(entry) = special::entry_of(on_disk, name)
        {
            return self.special(source, entry);
        }
        let entry = attributes::entry_of(name.to_vec(), &stat);
        let (directory, file_name) = match (on_disk.parent(), on_disk.file_name()) {
            (Some(directory), Some(file_name)) if entry.kind != EntryKind::Directory => {
                (directory, file_name)
            }
            _ => (on_disk, OsStr::new(".")),
        };
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let handle = open_directory(rustix::fs::CWD, directory.as_os_str(), false)?;
        if entry.kind == EntryKind::Directory {
            let parent = self.parent_directory(above.as_ref());
            // Readers count from the root of the snapshot.
            let depth = path::components(&source.tree_path).count();
            let parent = (parent, above.as_ref().map(|(known, _)| known.totals));
            let handle = &mut Arc::new(handle);
            self.top = Some(Arc::clone(handle));
            // In a share nothing may be passed over: stubs may lie there.
            self.mounts = match self.context.selection.cold {
                None => Mounts::below(source, self.mounts.take()),
                Some(_) => None,
            };
            return self.directory(handle, &source.tree_path, entry, parent, depth);
        }
        let (handle, mut above) = (Arc::new(handle), above);
        self.forget_if_untold(&handle, self.device, &mut above);
        self.entry(&handle, file_name, &source.tree_path, entry, above)
    }

    fn directory(
        &mut self,
        handle: &mut Arc<OwnedFd>,
        tree_path: &[u8],
        mut entry: Entry,
        (mut parent, had): (ParentDirectory, Option<Totals>),
        depth: usize,
    ) -> Result<()> {
        let is_source = std::mem::take(&mut self.is_at_source);
        if depth >= limits::DEPTH_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, "directories are nested too deeply"));
        }
        let marked_before = self.left_out.marked_directories();
        let (names, listed) = match self.names(handle, tree_path) {
            Ok(names) => names,
            // Whoever knows its name looks whether it is there still.
            Err(error) if is_absence(&error) => return Err(error),
            Err(error) => return self.problem(tree_path, error),
        };
        let names = match self.is_this_store(handle, &names) {
            true => {
                let what = "left out: this is the store that it would be saved in";
                self.context.job.observer.warning(&path::display(tree_path), what);
                Vec::new()
            }
            false => names,
        };
        let is_left_out = self.is_inside_left_out;
        let is_marked = self.left_out.marked_directories() > marked_before;
        // What leads to sources is taken there, and nothing else.
        self.is_inside_left_out |= is_marked;
        if is_source && is_marked {
            self.left_out.marked_sources.push(path::display(tree_path));
        }
        let (times, met, told) = (self.left_out.times(), self.met, self.told);
        self.met += listed.count();
        self.put_xattrs(AttributeSource::Open(handle.as_fd()), tree_path, &mut entry)?;
        self.context.job.progress.set_current(&path::display(tree_path));
        self.send(Item::Enter(entry))?;
        for Name { bytes: name, kind, .. } in names {
            self.context.job.interrupt.check()?;
            let child = path::join(tree_path, &name);
            let named = (OsStr::from_bytes(&name), kind);
            match self.child(handle, named, &child, &mut parent, depth) {
                Err(error) if self.is_lost => {
                    self.is_lost = false;
                    self.problem(tree_path, error)?;
                    break;
                }
                Err(error) if is_gone(&error, handle, &name) => self.left_out.gone += 1,
                Err(error) if is_about_source(&error) => self.problem(&child, error)?,
                other => other?,
            }
        }
        self.is_inside_left_out = is_left_out;
        // A source with nothing in it may be a mount point.
        let had = had.or_else(|| is_source.then(Totals::default));
        if let Some(had) = had.filter(|_| self.left_out.times() == times) {
            let entries = had.entries.saturating_sub(self.told - told);
            let (had, of) = (Totals { entries, ..had }, &self.context.parent_summary);
            let emptied = Emptied::of(tree_path, (&had, self.met - met), of, is_source);
            self.told += emptied.as_ref().map_or(0, |emptied| emptied.entries);
            self.left_out.emptied.extend(emptied);
        }
        self.send(Item::Leave { listed: Some(Box::new(listed)) })
    }

    fn child(
        &mut self,
        directory: &mut Arc<OwnedFd>,
        (name, kind): (&OsStr, FileType),
        tree_path: &[u8],
        parent: &mut ParentDirectory,
        depth: usize,
    ) -> Result<()> {
        if let Some(source) = self.below.remove(tree_path) {
            let known = self.known(parent, name.as_bytes());
            return self.source_below(&source, known);
        }
        let leads_on = leads_to_source(&self.below, tree_path);
        let is_matched = match self.is_left_out() {
            true => Some(false),
            false => self.matches_unseen(tree_path, kind),
        };
        if is_matched == Some(true) && !leads_on {
            self.note_matched(tree_path, size_of_matched(directory, name, kind));
            return Ok(());
        }
        let mount = self.left_out_mount(tree_path, kind).filter(|_| !leads_on);
        if let Some(mount) = mount.filter(|mount| !mount.is_local) {
            return self.keep_mount_point(mount.mounted, name, tree_path, parent);
        }
        let stat = match rustix::fs::statat(&**directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => match mount {
                Some(mount) => {
                    return self.keep_mount_point(mount.mounted, name, tree_path, parent);
                }
                None => return Err(Error::io("its status", errno.into())),
            },
        };
        let entry = attributes::entry_of(name.as_bytes().to_vec(), &stat);
        let identity = (stat.st_dev, stat.st_ino);
        let selection = self.context.selection;
        let is_directory = entry.kind == EntryKind::Directory;
        if selection.is_of_other_parts(tree_path, &entry) {
            return Ok(());
        }
        let is_matched = is_matched.unwrap_or_else(|| self.matches(tree_path, is_directory));
        if is_matched && leads_on && is_directory {
            let is_left_out = std::mem::replace(&mut self.is_inside_left_out, true);
            let done = self.chosen((directory, name), tree_path, (entry, identity), parent, depth);
            self.is_inside_left_out = is_left_out;
            return done;
        }
        if is_matched {
            self.note_matched(tree_path, entry.size);
            if selection.cold.is_none() {
                return Ok(());
            }
            self.left_out_above += 1;
            let stubs = self.chosen((directory, name), tree_path, (entry, identity), parent, depth);
            self.left_out_above -= 1;
            return stubs;
        }
        self.chosen((directory, name), tree_path, (entry, identity), parent, depth)
    }

    /// What no pattern leaves out, and stubs wherever they are.
    fn chosen(
        &mut self,
        (directory, name): (&mut Arc<OwnedFd>, &OsStr),
        tree_path: &[u8],
        (entry, identity): (Entry, (u64, u64)),
        parent: &mut ParentDirectory,
        depth: usize,
    ) -> Result<()> {
        let selection = self.context.selection;
        let is_directory = entry.kind == EntryKind::Directory;
        if selection.exclude_larger_than_bytes.is_some_and(|most| entry.size > most) {
            self.left_out.large_files += 1;
            self.left_out.large_bytes += entry.size;
            self.context.job.observer.item(&path::display(tree_path), "excluded");
            return Ok(());
        }
        let may_be_own = is_directory && name == stub::CONTROL && selection.cold.is_none();
        if may_be_own && stub::has_control(&**directory, Path::new("")) {
            // A copy of it would make a second share of a restored directory.
            let what = "left out: it belongs to the share";
            self.context.job.observer.item(&path::display(tree_path), what);
            return Ok(());
        }
        if is_directory && selection.store == Some(identity) {
            self.context.job.observer.item(&path::display(tree_path), "left out: the store");
            return Ok(());
        }
        if selection.cold.is_some() {
            refuse_covered(&**directory, name, self.device)?;
        }
        let mut known = self.known(parent, name.as_bytes());
        if !is_directory {
            self.forget_if_untold(directory, identity.0, &mut known);
            return match self.leaves_out_item(directory, name, tree_path, identity.0) {
                true => Ok(()),
                false => self.entry(directory, name, tree_path, entry, known),
            };
        }
        let leads_on = leads_to_source(&self.below, tree_path);
        if !leads_on && self.leaves_out_mount(identity.0, tree_path) {
            // The mount point itself is kept, empty.
            self.send(Item::Enter(entry))?;
            return self.send(Item::Leave { listed: None });
        }
        self.enter((directory, name), tree_path, (entry, identity.0), known, (depth, leads_on))
    }

    fn entry(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        tree_path: &[u8],
        mut entry: Entry,
        known: Option<Known>,
    ) -> Result<()> {
        if entry.kind != EntryKind::File {
            if self.context.selection.cold.is_some() {
                return Ok(());
            }
            self.other(directory, name, tree_path, &mut entry)?;
            return self.send(Item::Other(entry));
        }
        let selection = self.context.selection;
        // A file that is taken over from the parent has the data that it had, wherever that is.
        let is_known = selection.cold.is_none()
            && known.as_ref().is_some_and(|(known, _)| attributes::is_same_state(known, &entry));
        let reading = match is_known {
            true => Reading::Plain,
            false => {
                let known = known.as_ref().map(|(known, _)| known);
                self.reading(directory, (name, tree_path), &entry, known)?
            }
        };
        if reading == Reading::None {
            return Ok(());
        }
        if let Some((known, place)) = &known
            && attributes::is_same_state(known, &entry)
            && let Keeping::But(again) = self.may_keep(known, *place)
        {
            entry.content = known.content;
            entry.xattrs.clone_from(&known.xattrs);
            entry.sparse = known.sparse;
            entry.chunks = known.chunks;
            if known.lacks_attributes {
                self.put_xattrs_by_path(directory, name, tree_path, &mut entry)?;
            }
            return self.keep((directory, name), entry, *place, again);
        }
        if reading == Reading::Plain && self.is_put_off(directory, name, &entry) {
            self.left_out.put_off += 1;
            return Ok(());
        }
        self.read(directory, name, tree_path, entry, known.as_ref())
    }

    /// Whether a file was met under another name, and is read under that.
    pub(super) fn is_linked(&self, entry: &Entry) -> bool {
        self.links.has(entry)
    }

    pub(super) fn send(&mut self, item: Item) -> Result<()> {
        self.bundle.push(item);
        if self.bundle.len() >= BUNDLE_ITEMS {
            self.flush()?;
        }
        if let Some(batch) = &mut self.batch {
            batch.items += 1;
            if batch.items >= BATCH_ITEMS_MAX {
                self.close_batch()?;
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        if self.bundle.is_empty() {
            return Ok(());
        }
        let bundle = std::mem::replace(&mut self.bundle, Vec::with_capacity(BUNDLE_ITEMS));
        self.context.items.send(bundle).map_err(|_| stopped())
    }

    /// Reports what cannot be saved and goes on; an error if nothing is wrong with it.
    fn problem(&self, tree_path: &[u8], error: Error) -> Result<()> {
        if error.kind() == ErrorKind::Exhausted {
            return Err(error.context(path::display(tree_path)));
        }
        self.context.errors.fetch_add(1, Ordering::Relaxed);
        self.context.job.observer.problem(&path::display(tree_path), &error);
        Ok(())
    }
}

fn open_directory(above: impl AsFd, name: &OsStr, no_follow: bool) -> Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, no_follow);
    rustix::fs::openat(above, name, flags, Mode::empty())
        .map_err(|errno| Error::io("opening the directory", errno.into()))
}

fn listing(errno: rustix::io::Errno) -> Error {
    Error::io("listing the directory", errno.into())
}

/// The error of a stage whose neighbour is gone.
pub fn stopped() -> Error {
    Error::new(ErrorKind::Interrupted, "the backup has stopped")
}

/// Runs a walk over the sources that `next` hands out, and reports how it ended. Returns what was
/// left out.
pub fn run(
    mut walk: Walk<'_>,
    sources: &[ArrangedSource],
    next: &dyn Fn() -> Option<usize>,
    parent_root: Option<Reference>,
) -> LeftOut {
    let items = walk.context.items.clone();
    let mut outcome = Ok(());
    while let Some(number) = next() {
        outcome = sources
            .get(number)
            .ok_or_else(|| Error::invalid("there is no such source"))
            .and_then(|source| walk.source(number, source, parent_root))
            .context(|| "walking the source");
        if outcome.is_err() {
            break;
        }
    }
    let outcome = outcome.and_then(|()| walk.flush());
    if let Err(error) = outcome {
        // Nobody listens any more if the stage behind has failed; then it knows why.
        let _ = items.send(vec![Item::Failed(error)]);
    }
    walk.left_out
}
