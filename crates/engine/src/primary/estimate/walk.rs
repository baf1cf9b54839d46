//! Meets the files below a directory, in the order of names, and changes nothing.
//!
//! Directories are opened relative to the one above, links are never followed, and access times
//! stay as they are where the system lets us ask for that. Of the names of one file (hard links)
//! the first is met. What a policy would leave alone is counted and not met; excluded directories
//! and mounts are not looked at, and of a deep tree few directories are open.
//!
//! Memory: the names of a directory are read in rounds if they are too many to be held, each round
//! taking those that come next; a directory inside another has half of what is left for names.
//!
//! Concurrency: one thread.

use crate::environment::open_files_max;
use crate::ingest::levels::{Aside, open_levels};
use crate::ingest::mount_points::{Mount, MountPoints};
use crate::job::Job;
use crate::patterns::Patterns;
use crate::primary::share::CONTROL;
use crate::tree::path;
use crate::user_file;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// What a name takes beside its bytes.
const NAME_OVERHEAD_BYTES: usize = 48;
/// However deep: names that are held of one directory.
const NAMES_MIN_BYTES: usize = 16 << 10;
/// What a linked file takes in the table of those whose names were not all met yet.
const LINK_BYTES: usize = 64;

/// Which files a policy would take, and where the walk goes.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// What matches is left alone.
    pub excludes: Patterns,
    /// If there are any: what does not match, and is not below a directory that matches, is left
    /// alone.
    pub includes: Option<Patterns>,
    /// Files that were modified later than this are left alone.
    pub modified_before_ns: Option<i64>,
    /// Files that are smaller are left alone; empty ones always are.
    pub size_min_bytes: u64,
    /// Whether directories of other file systems are left alone.
    pub one_file_system: bool,
}

/// Files and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Files.
    pub files: u64,
    /// Their lengths.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// What is left alone, and why; of several reasons the first of this order counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftAlone {
    /// By a pattern.
    pub excluded: Count,
    /// Directories by a pattern; what is in them is not looked at.
    pub excluded_directories: u64,
    /// Because no pattern asks for it.
    pub not_included: Count,
    /// Because it is too small, or empty.
    pub small: Count,
    /// Because it was modified too recently.
    pub recent: Count,
    /// Directories of other file systems.
    pub other_file_systems: u64,
    /// Links, devices, pipes and sockets.
    pub others: u64,
}

impl LeftAlone {
    fn add_excluded(&mut self, kind: FileType, size_bytes: u64) {
        match kind {
            FileType::Directory => self.excluded_directories += 1,
            FileType::RegularFile => self.excluded.add(size_bytes),
            _ => self.others += 1,
        }
    }
}

/// What was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Met {
    /// Directories.
    pub directories: u64,
    /// Further names of files that were met by another.
    pub further_names: u64,
    /// Files with several names that could not be remembered, so that each name counts.
    pub links_forgotten: u64,
    /// What is left alone.
    pub left_alone: LeftAlone,
}

/// A file to be read.
pub struct Found<'a> {
    /// The directory it is in.
    pub directory: &'a OwnedFd,
    /// Its name there.
    pub name: &'a OsStr,
    /// Where it is below the root.
    pub path: &'a [u8],
    /// Its state.
    pub stat: Stat,
}

/// The walk.
pub struct Walk<'a> {
    selection: &'a Selection,
    job: &'a Job,
    each: &'a mut dyn FnMut(&Found<'_>) -> Result<()>,
    /// The root as an absolute path, for patterns.
    root: Vec<u8>,
    /// The root without links on the way, as the list of mounts has it.
    real_root: Vec<u8>,
    device: u64,
    /// What is mounted where, if directories of other file systems are left alone.
    mounts: Option<MountPoints>,
    /// What stands in the place of directories that are put aside.
    top: Option<Arc<OwnedFd>>,
    levels_open: usize,
    /// Whether a directory was moved while what is below it was walked.
    is_lost: bool,
    /// For files of which some names are to come: how many.
    linked: HashMap<(u64, u64), u64>,
    linked_max: usize,
    names_budget_bytes: usize,
    met: Met,
    problems: u64,
}

impl<'a> Walk<'a> {
    /// A walk that shows each file it meets and holds no more than this.
    pub fn new(
        selection: &'a Selection,
        job: &'a Job,
        budget_bytes: usize,
        each: &'a mut dyn FnMut(&Found<'_>) -> Result<()>,
    ) -> Self {
        Self {
            selection,
            job,
            each,
            root: Vec::new(),
            real_root: Vec::new(),
            device: 0,
            mounts: selection.one_file_system.then(MountPoints::load),
            top: None,
            levels_open: open_levels(open_files_max(), 1),
            is_lost: false,
            linked: HashMap::new(),
            linked_max: budget_bytes / 2 / LINK_BYTES,
            names_budget_bytes: budget_bytes / 2,
            met: Met::default(),
            problems: 0,
        }
    }

    /// Walks; what was met, and how much of it could not be read.
    pub fn run(mut self, root: &Path) -> Result<(Met, u64)> {
        let what = |errno: Errno| Error::io(root.display().to_string(), errno.into());
        // The root itself may be named by a link.
        let handle = open(rustix::fs::CWD, root.as_os_str(), OFlags::DIRECTORY).map_err(what)?;
        self.real_root = root.canonicalize().unwrap_or_default().into_os_string().into_vec();
        self.device = rustix::fs::fstat(&handle).map_err(what)?.st_dev;
        self.root = root.as_os_str().as_bytes().to_vec();
        let budget = self.names_budget_bytes;
        let mut handle = Arc::new(handle);
        self.top = Some(Arc::clone(&handle));
        self.directory(&mut handle, b"", false, budget, 0)?;
        Ok((self.met, self.problems))
    }

    fn directory(
        &mut self,
        handle: &mut Arc<OwnedFd>,
        path: &[u8],
        is_included: bool,
        budget_bytes: usize,
        depth: usize,
    ) -> Result<()> {
        if depth >= limits::DEPTH_MAX {
            let error = Error::new(ErrorKind::LimitExceeded, "directories are nested too deeply");
            self.problem(path, &error);
            return Ok(());
        }
        self.met.directories += 1;
        self.job.progress.set_current(&path::display(path));
        let mut last: Option<Vec<u8>> = None;
        loop {
            let here_bytes = (budget_bytes / 2).max(NAMES_MIN_BYTES);
            let (mut names, more) = match names_after(handle, last.as_deref(), here_bytes) {
                Ok(read) => read,
                Err(errno) => {
                    self.problem(path, &Error::io("listing it", errno.into()));
                    return Ok(());
                }
            };
            for (name, kind) in &names {
                self.job.interrupt.check()?;
                // What is Onefold's in a share is no data of anybody.
                if path.is_empty() && name == CONTROL.as_bytes() {
                    continue;
                }
                let child = match path {
                    b"" => name.clone(),
                    _ => [path, b"/", name].concat(),
                };
                let rest_bytes = budget_bytes - budget_bytes / 2;
                self.child(handle, (name, *kind), &child, is_included, (rest_bytes, depth))?;
                if std::mem::take(&mut self.is_lost) {
                    return Ok(());
                }
            }
            if !more {
                return Ok(());
            }
            last = names.pop().map(|(name, _)| name);
        }
    }

    fn child(
        &mut self,
        directory: &mut Arc<OwnedFd>,
        (name, kind): (&[u8], FileType),
        path: &[u8],
        is_included: bool,
        (budget_bytes, depth): (usize, usize),
    ) -> Result<()> {
        let name = OsStr::from_bytes(name);
        if self.is_left_unseen(path, kind) {
            return Ok(());
        }
        let stat = match rustix::fs::statat(&**directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It was removed since its directory was listed.
            Err(Errno::NOENT) => return Ok(()),
            Err(_) if self.mount_at(path).is_some() => {
                self.met.left_alone.other_file_systems += 1;
                return Ok(());
            }
            Err(_) if kind != FileType::Unknown && self.is_excluded(path, false) => {
                self.met.left_alone.add_excluded(kind, 0);
                return Ok(());
            }
            Err(errno) => {
                self.problem(path, &Error::io("its state", errno.into()));
                return Ok(());
            }
        };
        self.looked_at((directory, name), path, stat, is_included, (budget_bytes, depth))
    }

    fn looked_at(
        &mut self,
        (directory, name): (&mut Arc<OwnedFd>, &OsStr),
        path: &[u8],
        stat: Stat,
        is_included: bool,
        (budget_bytes, depth): (usize, usize),
    ) -> Result<()> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_directory = kind == FileType::Directory;
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if self.is_excluded(path, is_directory) {
            self.met.left_alone.add_excluded(kind, size_bytes);
            return Ok(());
        }
        let includes = self.selection.includes.as_ref();
        let is_included =
            is_included || includes.is_none_or(|set| self.matches(set, path, is_directory));
        let left = &mut self.met.left_alone;
        if is_directory {
            if self.selection.one_file_system && stat.st_dev != self.device {
                left.other_file_systems += 1;
                return Ok(());
            }
            return match open(&**directory, name, OFlags::DIRECTORY | OFlags::NOFOLLOW) {
                Ok(handle) => {
                    self.below(directory, handle, path, is_included, (budget_bytes, depth))
                }
                Err(errno) => {
                    self.problem(path, &Error::io("opening it", errno.into()));
                    Ok(())
                }
            };
        }
        if kind != FileType::RegularFile {
            left.others += 1;
            return Ok(());
        }
        if self.was_met(&stat) {
            self.met.further_names += 1;
            return Ok(());
        }
        let left = &mut self.met.left_alone;
        let recent = |before: i64| modified_ns(&stat) > before;
        if !is_included {
            left.not_included.add(size_bytes);
        } else if size_bytes < self.selection.size_min_bytes.max(1) {
            left.small.add(size_bytes);
        } else if self.selection.modified_before_ns.is_some_and(recent) {
            left.recent.add(size_bytes);
        } else {
            return (self.each)(&Found { directory, name, path, stat });
        }
        Ok(())
    }

    /// Walks a directory inside another one, which is not held open meanwhile if it lies deep.
    fn below(
        &mut self,
        directory: &mut Arc<OwnedFd>,
        handle: OwnedFd,
        path: &[u8],
        is_included: bool,
        (budget_bytes, depth): (usize, usize),
    ) -> Result<()> {
        let mut handle = Arc::new(handle);
        let Some(top) = self.top.as_ref().filter(|_| depth >= self.levels_open) else {
            return self.directory(&mut handle, path, is_included, budget_bytes, depth + 1);
        };
        let aside = Aside::put(directory, top)?;
        self.directory(&mut handle, path, is_included, budget_bytes, depth + 1)?;
        if let Err(error) = aside.take_back(directory, &handle, path::parent(path)) {
            self.is_lost = true;
            self.problem(path, &error);
        }
        Ok(())
    }

    /// Whether an item is left alone by its name and kind, without a look at it: it may lie behind
    /// a server that is gone.
    fn is_left_unseen(&mut self, path: &[u8], kind: FileType) -> bool {
        if self.mount_at(path).is_some_and(|mount| !mount.is_local) {
            self.met.left_alone.other_file_systems += 1;
            return true;
        }
        // Of files the size counts, and an unknown kind is looked at.
        if kind != FileType::Directory {
            return false;
        }
        let is_excluded = self.is_excluded(path, true);
        if is_excluded {
            self.met.left_alone.add_excluded(kind, 0);
        }
        is_excluded
    }

    fn is_excluded(&self, path: &[u8], is_directory: bool) -> bool {
        self.matches(&self.selection.excludes, path, is_directory)
    }

    fn matches(&self, patterns: &Patterns, path: &[u8], is_directory: bool) -> bool {
        let (below, absolute) = ([b"/", path].concat(), [&self.root, &b"/"[..], path].concat());
        patterns.matches_either(&below, Some(absolute.as_slice()), is_directory)
    }

    /// What another file system is mounted on, if such are left alone.
    fn mount_at(&self, path: &[u8]) -> Option<Mount> {
        let mount = self.mounts.as_ref()?.at(&[&self.real_root, &b"/"[..], path].concat())?;
        (mount.device != self.device).then_some(mount)
    }

    /// Whether another name of the file was met before. Remembers it until all were.
    fn was_met(&mut self, stat: &Stat) -> bool {
        let links = stat.st_nlink;
        if links < 2 {
            return false;
        }
        let key = (stat.st_dev, stat.st_ino);
        if let Some(left) = self.linked.get_mut(&key) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.linked.remove(&key);
            }
            return true;
        }
        match self.linked.len() < self.linked_max {
            true => drop(self.linked.insert(key, links - 1)),
            false => self.met.links_forgotten += 1,
        }
        false
    }

    fn problem(&mut self, path: &[u8], error: &Error) {
        self.problems += 1;
        let path = if path.is_empty() { b"." } else { path };
        self.job.observer.problem(&path::display(path), error);
    }
}

/// The time of modification.
#[must_use]
pub fn modified_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64)
}

/// The time of change.
#[must_use]
pub fn changed_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64)
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Opens for reading, without a trace where the system permits that: only the owner
/// may ask for it.
pub fn open(directory: impl AsFd, name: &OsStr, more: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    user_file::quietly(flags, |flags| rustix::fs::openat(&directory, name, flags, Mode::empty()))
}

/// A name, and what it is a name of if the file system says so.
type Name = (Vec<u8>, FileType);

/// A name that is compared with others by its bytes.
struct Ordered(Name);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.0.cmp(&other.0.0)
    }
}

/// The names of a directory that come after one, in order, as many as this much memory holds; and
/// whether there are more.
fn names_after(
    handle: &OwnedFd,
    last: Option<&[u8]>,
    budget_bytes: usize,
) -> rustix::io::Result<(Vec<Name>, bool)> {
    let mut names: BinaryHeap<Ordered> = BinaryHeap::new();
    let mut held_bytes = 0;
    // The first name that is left to the next round: what comes behind it is left to it as well,
    // even if there should be room.
    let mut left: Option<Vec<u8>> = None;
    for entry in Dir::new(open(handle, OsStr::new("."), OFlags::DIRECTORY)?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let was_met = last.is_some_and(|last| name <= last);
        let is_left = left.as_ref().is_some_and(|left| name >= left.as_slice());
        if matches!(name, b"." | b"..") || was_met || is_left {
            continue;
        }
        held_bytes += name.len() + NAME_OVERHEAD_BYTES;
        names.push(Ordered((name.to_vec(), entry.file_type())));
        // One stays in any case, or there would be no end.
        while held_bytes > budget_bytes && names.len() > 1 {
            let Some(Ordered((largest, _))) = names.pop() else { break };
            held_bytes -= largest.len() + NAME_OVERHEAD_BYTES;
            left = Some(largest);
        }
    }
    let names = names.into_sorted_vec().into_iter();
    let mut names: Vec<Name> = names.map(|Ordered(name)| name).collect();
    // A directory that is changed while it is read may give a name twice.
    names.dedup_by(|a, b| a.0 == b.0);
    Ok((names, left.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_too_many_come_in_rounds() {
        let directory = tempfile::tempdir().unwrap();
        // Long and short ones: where a long name has made way, a short one behind it would fit.
        let name = |number: usize| format!("{number:03}{}", "x".repeat(number * 37 % 90));
        let expected: Vec<Vec<u8>> = (0..500).map(|number| name(number).into_bytes()).collect();
        for name in &expected {
            std::fs::write(directory.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let handle =
            open(rustix::fs::CWD, directory.path().as_os_str(), OFlags::DIRECTORY).unwrap();
        for budget_bytes in [1, 1000, 10_000, 1 << 20] {
            let (mut all, mut rounds): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
            loop {
                let last = all.last().map(Vec::as_slice);
                let (names, more) = names_after(&handle, last, budget_bytes).unwrap();
                assert!(names.len() * 51 <= budget_bytes.max(51));
                assert!(names.is_sorted_by_key(|(name, _)| name));
                all.extend(names.into_iter().map(|(name, _)| name));
                rounds += 1;
                if !more {
                    break;
                }
            }
            assert_eq!(all, expected, "{budget_bytes}");
            assert_eq!(rounds == 1, budget_bytes == 1 << 20, "{rounds} at {budget_bytes}");
        }
    }
}
