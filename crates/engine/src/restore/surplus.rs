//! What the target holds and the snapshot does not: deleted or kept.
//!
//! A name that is not in a snapshot was absent from its source only if the snapshot can know: its
//! directory lies at or below a source, was read whole, and is no mount point here, and the item
//! was not changed while the snapshot was saved. Such a name is deleted, in directories that were
//! not read whole only where that is asked for. All others are kept, counted and told. A directory
//! that only leads to sources says nothing of what is beside them, so nothing in it is looked at.
//!
//! Algorithm: the names in a directory are listed before anything is restored into it, and each
//! name of the snapshot takes its own off the list. What is left when the directory is done is the
//! surplus. A name of the snapshot that is not on the list and yet is found on disk has another
//! spelling there, because the target folds names: whatever is the same item as that stays.
//!
//! Invariants: nothing is deleted through a symbolic link (a link is removed, what it leads to is
//! not), nothing on another mount, be it of the same file system, nothing that this restore leaves
//! out, nothing of a share's own, and nothing of the store that is read, under whatever path: a
//! directory that holds this store's configuration stays.
//!
//! The walk keeps its own stack of directories, whose handles are opened again as needed, so depth
//! costs neither stack nor handles.

use super::target::{Directory, is_type};
use super::{Delete, RestoreOptions};
use crate::job::Job;
use crate::repository::Repository;
use crate::stub;
use crate::tree::path;
use onefold_format::layout;
use onefold_format::node::{Entry, Listing};
use onefold_store::Key;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// Paths of deleted and of kept items that a report names; the others are counted.
const SHOWN_MAX: usize = 20;

const NOT_READ_WHOLE: &str = "kept: its directory was not saved whole";
const CHANGED_MEANWHILE: &str = "kept: it was changed, or moved, while the snapshot was saved";
const MOUNTED: &str = "kept: it is, or is in, another mount";

/// What became of the surplus.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SurplusReport {
    /// Items deleted, or that would be.
    pub deleted: u64,
    /// Which, without what lies in them.
    pub deleted_paths: Shown,
    /// Items that are kept because the snapshot cannot know whether they were there.
    pub kept: u64,
    /// Which.
    pub kept_paths: Shown,
}

/// The first of several paths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// `SHOWN_MAX` of them at most.
    pub paths: Vec<String>,
    /// How many more there are.
    pub more: u64,
}

impl Shown {
    fn push(&mut self, path: String) {
        match self.paths.len() < SHOWN_MAX {
            true => self.paths.push(path),
            false => self.more += 1,
        }
    }
}

/// The names in one directory that the snapshot has not named yet.
#[derive(Default)]
pub struct Listed {
    names: BTreeSet<Vec<u8>>,
    /// Names of the snapshot that are spelled otherwise on disk, and what they were found to be.
    spelled: Vec<(Vec<u8>, (u64, u64))>,
    /// Why all of them are kept, if they are.
    kept: Option<&'static str>,
}

/// Deletes, and knows what must stay.
pub struct Surplus<'a> {
    options: &'a RestoreOptions,
    job: &'a Job,
    /// The configuration of the store, by which its directory is recognised.
    configuration: Vec<u8>,
    report: SurplusReport,
    problems: Vec<(String, Error)>,
}

/// A directory that is being deleted.
struct Step {
    directory: Arc<Directory>,
    name: Vec<u8>,
    path: Vec<u8>,
    names: Vec<Vec<u8>>,
    /// Whether something in it stays, so that it stays too.
    stays: bool,
}

impl<'a> Surplus<'a> {
    /// The surplus of a restore from `repository` of a root that is listed so.
    ///
    /// Errors: `Invalid` if the target is the root directory and everything in it would be
    /// restored or deleted, or if the target lies in the store.
    pub fn new(
        repository: &Repository,
        root: Listing,
        options: &'a RestoreOptions,
        job: &'a Job,
    ) -> Result<Self> {
        let configuration = match repository.store().get(&Key::new(layout::CONFIGURATION)?) {
            // The store is known by its copy alone; `spared` still names its directory.
            Err(error) if error.is_lost() => Vec::new(),
            configuration => configuration?,
        };
        let (report, problems) = (SurplusReport::default(), Vec::new());
        let surplus = Self { options, job, configuration, report, problems };
        let target = &options.target;
        let target = target
            .canonicalize()
            .context(|| format!("looking at the target '{}'", target.display()))?;
        let is_bounded = !options.include.is_empty() || root == Listing::Above;
        if target.parent().is_none() && !is_bounded {
            return Err(Error::invalid(
                "deleting all that is not in the snapshot is refused where the target is the root \
                 directory: say with --include in which directories",
            ));
        }
        for above in target.ancestors() {
            let found = std::fs::read(above.join(layout::CONFIGURATION));
            match found.context(|| "looking whether the target lies in the store") {
                Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
                Ok(bytes) if surplus.is_ours(&bytes) => {
                    return Err(Error::invalid(format!(
                        "deleting is refused: the target '{}' lies in the store",
                        target.display()
                    )));
                }
                _ => {}
            }
        }
        Ok(surplus)
    }

    /// Lists a directory of which the snapshot has such a listing, and which is, or is in, another
    /// mount than the directory above it or not.
    pub fn list(&mut self, directory: &Directory, listing: Listing, is_mounted: bool) -> Listed {
        if directory.fresh || listing == Listing::Above {
            return Listed::default();
        }
        let knows = listing == Listing::Whole || self.options.delete == Delete::Unknown;
        let kept = match (is_mounted, knows) {
            (true, _) => Some(MOUNTED),
            (false, false) => Some(NOT_READ_WHOLE),
            (false, true) => None,
        };
        let names = directory.names().unwrap_or_else(|error| {
            self.problems.push((directory.display(), error));
            Vec::new()
        });
        Listed { names: names.into_iter().collect(), spelled: Vec::new(), kept }
    }

    /// Deletes or keeps what is left of a list; `path` is the directory's in the snapshot.
    pub fn clear(&mut self, directory: &Arc<Directory>, listed: &Listed, path: &[u8]) {
        for name in &listed.names {
            let item = path::join(path, name);
            match self.clear_one(directory, listed, name, &item) {
                Ok(()) => {}
                // The walk ends where it looks for that itself.
                Err(error) if error.kind() == ErrorKind::Interrupted => return,
                Err(error) => self.problems.push((path::display(&item), error)),
            }
        }
    }

    fn clear_one(
        &mut self,
        directory: &Arc<Directory>,
        listed: &Listed,
        name: &[u8],
        item: &[u8],
    ) -> Result<()> {
        // What it is decides whether it may go.
        let Some(stat) = directory.stat(name)? else {
            return Ok(());
        };
        if listed.is_spelling(directory, &stat)? {
            return Ok(());
        }
        match listed.kept {
            Some(why) if !self.is_passed_over(&stat, item) => {
                self.keep(item, why);
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.remove(directory, name, &stat, item),
        }
    }

    /// Whether an item got its place, or was changed, while the snapshot was saved: it may have
    /// been on its way from a directory that was read later to one that was read before.
    fn is_from_meanwhile(&self, stat: &Stat) -> bool {
        let changed_ns = stat.st_ctime.saturating_mul(1_000_000_000) + stat.st_ctime_nsec as i64;
        let knows_all = self.options.delete == Delete::Unknown;
        !knows_all && self.options.saved_within_ns.contains(&changed_ns)
    }

    /// Removes a directory in the way of something else, as far as it may go.
    pub fn remove_in_the_way(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        stat: &Stat,
        item: &[u8],
    ) -> Result<()> {
        self.remove(directory, name, stat, item)?;
        match self.options.dry_run || directory.stat(name)?.is_none() {
            true => Ok(()),
            false => Err(Error::invalid(
                "what is there could not be removed, or something in it has to stay",
            )),
        }
    }

    /// What became of the surplus so far.
    #[must_use]
    pub fn report(&self) -> SurplusReport {
        self.report.clone()
    }

    /// The problems met since this was called last.
    pub fn take_problems(&mut self) -> Vec<(String, Error)> {
        std::mem::take(&mut self.problems)
    }

    fn keep(&mut self, item: &[u8], why: &'static str) {
        let shown = path::display(item);
        self.job.observer.item(&shown, why);
        self.report.kept += 1;
        self.report.kept_paths.push(shown);
    }

    /// Whether this restore has nothing to do with an item: it leaves it out, or it is the share's
    /// or the store's.
    fn is_passed_over(&self, stat: &Stat, item: &[u8]) -> bool {
        let options = self.options;
        let is_directory = is_type(stat, FileType::Directory);
        if !options.exclude.is_empty() && options.exclude.matches(item, is_directory) {
            return true;
        }
        let plain = [FileType::Directory, FileType::RegularFile, FileType::Symlink];
        if options.without.special && !plain.iter().any(|kind| is_type(stat, *kind)) {
            return true;
        }
        if path::components(item).any(|name| name == stub::CONTROL.as_bytes()) {
            self.job.observer.item(&path::display(item), "left alone: it belongs to the share");
            return true;
        }
        let is_spared = options.spared == Some((stat.st_dev, stat.st_ino));
        if is_spared {
            self.job.observer.item(&path::display(item), "left alone: the store");
        }
        is_spared
    }

    fn is_ours(&self, bytes: &[u8]) -> bool {
        !self.configuration.is_empty() && bytes == self.configuration
    }

    /// Whether the directory is the store's.
    fn is_store(&self, directory: &Directory) -> Result<bool> {
        let name = layout::CONFIGURATION.as_bytes();
        let Some(stat) = directory.stat(name)? else {
            return Ok(false);
        };
        if !is_type(&stat, FileType::RegularFile)
            || stat.st_size as u64 != self.configuration.len() as u64
        {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&*directory.handle()?, name, flags, Mode::empty());
        let mut bytes = Vec::new();
        File::from(opened.map_err(std::io::Error::from).context(|| "reading")?)
            .take(limits::RECORD_MAX_BYTES as u64)
            .read_to_end(&mut bytes)
            .context(|| "reading")?;
        Ok(self.is_ours(&bytes))
    }

    /// Removes `name` from `directory`, with everything below that may go. The walk goes on where
    /// something stays.
    fn remove(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        stat: &Stat,
        item: &[u8],
    ) -> Result<()> {
        let before = self.report.deleted;
        let mut steps = Vec::new();
        match self.step(directory, name, stat, item)? {
            Next::Stays => return Ok(()),
            Next::Gone => {}
            Next::Enter(step) => steps.push(step),
        }
        let mut stays = false;
        while let Some(step) = steps.last_mut() {
            if let Some(name) = step.names.pop() {
                let (directory, item) =
                    (Arc::clone(&step.directory), path::join(&step.path, &name));
                match self.next(&directory, &name, &item, steps.len())? {
                    Next::Enter(deeper) => steps.push(deeper),
                    Next::Stays => steps.iter_mut().for_each(|step| step.stays = true),
                    Next::Gone => {}
                }
            } else if let Some(step) = steps.pop() {
                let above = steps.last().map_or(directory, |above| &above.directory);
                let gone = !step.stays && self.remove_empty(above, &step);
                stays |= !gone;
                if !gone {
                    steps.iter_mut().for_each(|step| step.stays = true);
                }
            }
        }
        self.tell_of_deleted(item, self.report.deleted > before, stays);
        Ok(())
    }

    /// Goes on with an item in a directory that is being deleted at this depth. What cannot be
    /// deleted is a problem, and stays.
    fn next(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        item: &[u8],
        depth: usize,
    ) -> Result<Next> {
        let next = match directory.stat(name) {
            Ok(Some(stat)) => self.step(directory, name, &stat, item),
            Ok(None) => Ok(Next::Gone),
            Err(error) => Err(error),
        };
        let error = match next {
            Ok(Next::Enter(_)) if depth >= limits::DEPTH_MAX => {
                Error::new(ErrorKind::LimitExceeded, "it is nested too deep")
            }
            Err(error) if error.kind() != ErrorKind::Interrupted => error,
            next => return next,
        };
        self.problems.push((path::display(item), error));
        Ok(Next::Stays)
    }

    fn remove_empty(&mut self, above: &Directory, step: &Step) -> bool {
        if !self.options.dry_run
            && let Err(error) = above.remove_directory(&step.name)
        {
            self.problems.push((path::display(&step.path), error));
            return false;
        }
        self.report.deleted += 1;
        true
    }

    fn tell_of_deleted(&mut self, item: &[u8], is_any_gone: bool, stays: bool) {
        if !is_any_gone {
            return;
        }
        let shown = path::display(item);
        let what = match (self.options.dry_run, stays) {
            (true, false) => "would be deleted",
            (true, true) => "would be deleted in part",
            (false, false) => "deleted",
            (false, true) => "deleted in part",
        };
        self.job.observer.item(&shown, what);
        self.report.deleted_paths.push(shown);
    }

    /// Removes an item that is no directory, and enters one that is.
    fn step(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        stat: &Stat,
        item: &[u8],
    ) -> Result<Next> {
        self.job.interrupt.check()?;
        if self.is_passed_over(stat, item) {
            return Ok(Next::Stays);
        }
        if directory.is_mount(name, stat)? {
            self.keep(item, MOUNTED);
            return Ok(Next::Stays);
        }
        if self.is_from_meanwhile(stat) {
            self.keep(item, CHANGED_MEANWHILE);
            return Ok(Next::Stays);
        }
        if is_type(stat, FileType::Directory) {
            let entered = directory.enter(name)?;
            if self.is_store(&entered)? {
                return Err(Error::invalid(
                    "not deleted: this is the store that is being restored from",
                ));
            }
            let (names, name, path) = (entered.names()?, name.to_vec(), item.to_vec());
            let step = Step { directory: entered, name, path, names, stays: false };
            return Ok(Next::Enter(step));
        }
        if !self.options.dry_run {
            directory.unlink(name)?;
        }
        self.report.deleted += 1;
        Ok(Next::Gone)
    }
}

/// What follows from looking at an item.
enum Next {
    Gone,
    Stays,
    Enter(Step),
}

/// What the names in a directory prove. Where a snapshot does not say which directories only lead
/// to sources, those do that are not at or below one.
#[must_use]
pub fn listing_of(directory: &Entry, here: &[u8], options: &RestoreOptions) -> Listing {
    let is_below = |source: &Vec<u8>| {
        let mut names = path::components(here);
        path::components(source).all(|name| names.next() == Some(name))
    };
    match (directory.listing, &options.sources) {
        (Listing::Partial, Some(sources)) if !sources.iter().any(is_below) => Listing::Above,
        (listing, _) => listing,
    }
}

impl Listed {
    /// Takes a name of the snapshot off the list, before anything is restored under it.
    pub fn meet(&mut self, directory: &Directory, name: &[u8]) {
        if self.names.is_empty() || self.names.remove(name) {
            return;
        }
        // A name that cannot be looked at is no other spelling of one that can.
        if let Ok(Some(stat)) = directory.stat(name) {
            self.spelled.push((name.to_vec(), (stat.st_dev, stat.st_ino)));
        }
    }

    /// Whether an item is one of the snapshot's under another spelling, as it was found or as it
    /// was restored. One with several names is taken for it under each of them.
    fn is_spelling(&self, directory: &Directory, stat: &Stat) -> Result<bool> {
        let identity = (stat.st_dev, stat.st_ino);
        for (name, found) in &self.spelled {
            let restored = directory.stat(name)?.map(|stat| (stat.st_dev, stat.st_ino));
            if *found == identity || restored == Some(identity) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
