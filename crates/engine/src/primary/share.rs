//! A share: a directory, and what is Onefold's in it.
//!
//! ```text
//! DIR/.onefold-share/
//!   share.json     which share of which store it is, and what is optimised; written once
//!   moves          a line for each stub or directory that is about to get another name
//!   open/<inode>   stubs that were deleted and that somebody still has open
//!   emptying       files that the job is emptying, or was stopped at
//!   problems       what could not be read, told once each; cleared by a scrub that reads it
//!   scrub          where the last scrub ended
//! ```
//!
//! The directory may be covered by the share's mount. Then the process that serves the mount, which
//! has the directory below open, hands it over ([`super::handover`]).
//!
//! What others have mounted inside is no part of the share: jobs look below it, where the kernel
//! lets them ([`Share::uncovered`]). Elsewhere what they meet of it counts as what could not be
//! looked at, for stubs may be below.
//!
//! # Concurrency
//! One mount and one job at a time, by locks of the kernel on this directory's files, which end
//! with their process. Nothing that is kept safe depends on them but one another's patience:
//! files are guarded by leases, manifests by the order of [`super::optimize`].

use crate::repository::Repository;
use onefold_format::share::{DESCRIPTION_MAX_BYTES, ShareDescription, SharePlace, SharePolicy};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, ShareId, StoreId};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{handover, mounts};
pub use crate::stub::CONTROL;
/// What tells at the top of a mounted share by what its process is asked for the directory below.
pub const BELOW_ATTRIBUTE: &str = "user.onefold.below";
const DESCRIPTION: &str = "share.json";
const MOVES: &str = "moves";
const PROBLEMS: &str = "problems";
const EMPTYING: &str = "emptying";
const SCRUB: &str = "scrub";
/// More than a path, a name and an offset take.
const SCRUB_MAX_BYTES: u64 = 64 << 10;
/// Stubs that were deleted while they were open.
pub const OPEN: &str = "open";
const MOUNT_LOCK: &str = "mount.lock";
const JOB_LOCK: &str = "job.lock";
/// Problems behind this many bytes are not written down.
const PROBLEMS_MAX_BYTES: u64 = 256 << 10;

/// A share whose directory is open.
pub struct Share {
    /// Its name.
    pub id: ShareId,
    /// What is optimised.
    pub policy: SharePolicy,
    /// The directory as users name it.
    pub shown: PathBuf,
    store: StoreId,
    directory: OwnedFd,
    is_mounted: bool,
}

/// A lock of the kernel, held until it goes.
pub struct Held {
    _file: File,
}

impl Share {
    /// Makes a directory a share.
    ///
    /// Errors: `AlreadyExists` if it is one, or lies in one, or one lies in it; `Invalid` if the
    /// file system below cannot keep stubs.
    pub fn create(repository: &Repository, directory: &Path, policy: SharePolicy) -> Result<Self> {
        let Reached { shown, directory: opened, is_mounted } = reach(directory)?;
        if is_mounted {
            return Err(Error::new(ErrorKind::AlreadyExists, already(&shown)));
        }
        refuse_nested(&shown)?;
        probe(&opened)?;
        let id = ShareId::random(&*repository.environment().randomness);
        let store = repository.store_id();
        let private = Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(&opened, CONTROL, private).map_err(|errno| match errno {
            Errno::EXIST => Error::new(ErrorKind::AlreadyExists, already(&shown)),
            _ => Error::io(format!("making '{CONTROL}'"), errno.into()),
        })?;
        let control = open_directory(&opened, Path::new(CONTROL))?;
        rustix::fs::mkdirat(&control, OPEN, private)
            .map_err(|errno| Error::io(format!("making '{OPEN}'"), errno.into()))?;
        let (place, policy_kept) = (place_of(&control)?, policy.clone());
        let description = ShareDescription { share: id, store, place, policy: policy_kept };
        let encoded = description.encode()?;
        let mut file = create_in(&control, DESCRIPTION)?;
        file.write_all(&encoded).context(|| "describing the share")?;
        file.sync_all().context(|| "describing the share")?;
        for directory in [&control, &opened] {
            rustix::fs::fsync(directory)
                .map_err(|errno| Error::io("making the share durable", errno.into()))?;
        }
        Ok(Self { id, policy, shown, store, directory: opened, is_mounted: false })
    }

    /// The share that a directory is, below its mount if it is mounted, and below what is mounted
    /// inside.
    ///
    /// Errors: `NotFound` if it is none; `NotPermitted` if another user has mounted it.
    pub fn open(directory: &Path) -> Result<Self> {
        let mut share = Self::open_as_seen(directory)?;
        share.directory = share.uncovered()?;
        Ok(share)
    }

    /// The same with what is mounted inside, for whoever shows it to users.
    pub fn open_as_seen(directory: &Path) -> Result<Self> {
        let Reached { shown, directory, is_mounted } = reach(directory)?;
        let description = read_description(&directory, &shown)?;
        let ShareDescription { share: id, store, place, policy } = description;
        let control = open_directory(&directory, Path::new(CONTROL))?;
        if place_of(&control)? != place {
            return Err(Error::invalid(format!(
                "'{0}' is a copy of a share and none itself; if its files are whole, remove \
                 '{0}/{CONTROL}'",
                shown.display()
            )));
        }
        Ok(Self { id, store, policy, shown, directory, is_mounted })
    }

    /// Refuses a store that is not the share's.
    pub fn refuse_other_store(&self, repository: &Repository) -> Result<()> {
        match repository.store_id() == self.store {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "the share '{}' belongs to another store, {}",
                self.shown.display(),
                self.store
            ))),
        }
    }

    /// Whether it was mounted when it was opened.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    /// The directory below the mount.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The directory without what is mounted inside. Where the kernel refuses that, or does not
    /// know it, it is as it is seen.
    pub fn uncovered(&self) -> Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        match rustix::mount::open_tree(&self.directory, "", flags) {
            Ok(alone) => open_directory(&alone, Path::new(".")),
            Err(_) => open_directory(&self.directory, Path::new(".")),
        }
    }

    /// A path that leads to the directory below the mount, for as long as it is open here.
    #[must_use]
    pub fn below(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/.", self.directory.as_raw_fd()))
    }

    /// What is Onefold's in it.
    pub fn control(&self) -> Result<OwnedFd> {
        open_directory(&self.directory, Path::new(CONTROL))
    }

    /// Device and inode of what is Onefold's in it.
    pub fn control_identity(&self) -> Result<(u64, u64)> {
        let stat = rustix::fs::fstat(self.control()?).map_err(|errno| own(CONTROL, errno))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// The lock of whoever mounts it.
    ///
    /// Errors: `Unavailable` if somebody holds it.
    pub fn lock_mount(&self) -> Result<Held> {
        self.lock(MOUNT_LOCK, "is mounted already")
    }

    /// The lock of whoever works on its files.
    ///
    /// Errors: `Unavailable` if somebody holds it.
    pub fn lock_job(&self) -> Result<Held> {
        self.lock(JOB_LOCK, "has a job at work in it already; try again later")
    }

    fn lock(&self, name: &str, taken: &str) -> Result<Held> {
        let file = self.file(name, OFlags::RDWR | OFlags::CREATE)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Held { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the share '{}' {taken}", self.shown.display()),
            )),
            Err(errno) => Err(own(name, errno)),
        }
    }

    fn file(&self, name: &str, flags: OFlags) -> Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::openat(self.control()?, name, flags, mode)
            .map(File::from)
            .map_err(|errno| own(name, errno))
    }

    /// Writes down that a stub or a directory is about to get another name: a job that walks the
    /// share now may miss it. What is returned is held until it has that name, so that a job
    /// begins before this was written down or after it was done.
    pub fn note_move(&self) -> Result<Held> {
        let mut file = self.file(MOVES, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?;
        rustix::fs::flock(&file, FlockOperation::LockShared).map_err(|errno| own(MOVES, errno))?;
        file.write_all(b"\n").context(|| "writing down that something is moved")?;
        Ok(Held { _file: file })
    }

    /// How often [`Share::note_move`] was called; none of these is under way.
    pub fn moves(&self) -> Result<u64> {
        let file = self.file(MOVES, OFlags::RDONLY | OFlags::CREATE)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| own(MOVES, errno))?;
        Ok(file.metadata().context(|| "asking what was moved")?.len())
    }

    /// Writes down which files are about to be emptied, instead of those before.
    pub fn note_emptying<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> Result<()> {
        let mut text = Vec::new();
        for path in paths {
            text.extend_from_slice(path.as_os_str().as_bytes());
            text.push(0);
        }
        let mut file = self.file(EMPTYING, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(&text).context(|| "writing down what is emptied")
    }

    /// The files that somebody is emptying, or was stopped at.
    pub fn emptying(&self) -> Result<Vec<PathBuf>> {
        let mut text = Vec::new();
        let mut file = self.file(EMPTYING, OFlags::RDWR | OFlags::CREATE)?;
        file.read_to_end(&mut text).context(|| "asking what was emptied")?;
        let paths = text.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
    }

    /// Adds a line to what could not be read, unless there are very many.
    pub fn note_problem(&self, problem: &str) -> Result<()> {
        let file = self.file(PROBLEMS, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?;
        // Held for no longer than a line takes to be written.
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| own(PROBLEMS, errno))?;
        append_problem(&file, problem)
    }

    /// Takes lines out of what could not be read, and adds others.
    pub fn settle_problems(
        &self,
        stays: &mut dyn FnMut(&str) -> bool,
        more: &[String],
    ) -> Result<()> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        let mut file = self.file(PROBLEMS, flags)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| own(PROBLEMS, errno))?;
        let lines = problem_lines(&mut file)?;
        let left: Vec<&String> = lines.iter().filter(|line| stays(line)).collect();
        if left.len() == lines.len() && more.is_empty() {
            return Ok(());
        }
        file.set_len(0).context(|| "clearing problems")?;
        left.into_iter().chain(more).try_for_each(|line| append_problem(&file, line))
    }

    /// Where the last scrub ended, as it was written down; nothing if there was none.
    pub fn scrub_cursor(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = self.file(SCRUB, OFlags::RDWR | OFlags::CREATE)?;
        file.take(SCRUB_MAX_BYTES)
            .read_to_end(&mut bytes)
            .context(|| "asking where the last scrub ended")?;
        Ok(bytes)
    }

    /// Writes down where a scrub ends.
    pub fn set_scrub_cursor(&self, cursor: &[u8]) -> Result<()> {
        let mut file = self.file(SCRUB, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(cursor).context(|| "writing down where the scrub ends")
    }

    /// What could not be read, and was not read since.
    pub fn problems(&self) -> Result<Vec<String>> {
        let mut lines = problem_lines(&mut self.file(PROBLEMS, OFlags::RDONLY | OFlags::CREATE)?)?;
        lines.sort();
        lines.dedup();
        Ok(lines)
    }

    /// Makes it an ordinary directory again. No stub may be left.
    pub fn remove(self) -> Result<()> {
        let control = self.control()?;
        for name in [MOVES, PROBLEMS, EMPTYING, SCRUB, JOB_LOCK, MOUNT_LOCK, DESCRIPTION] {
            match rustix::fs::unlinkat(&control, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(own(name, errno)),
            }
        }
        for (above, name) in [(control.as_fd(), OPEN), (self.directory.as_fd(), CONTROL)] {
            rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
                .map_err(|errno| own(name, errno))?;
        }
        Ok(())
    }
}

fn append_problem(mut file: &File, problem: &str) -> Result<()> {
    if file.metadata().context(|| "writing a problem down")?.len() >= PROBLEMS_MAX_BYTES {
        return Ok(());
    }
    let line = problem.replace('\n', " ") + "\n";
    file.write_all(line.as_bytes()).context(|| "writing a problem down")
}

fn problem_lines(file: &mut File) -> Result<Vec<String>> {
    let mut text = Vec::new();
    let most = 2 * PROBLEMS_MAX_BYTES;
    file.take(most).read_to_end(&mut text).context(|| "reading problems")?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

fn own(name: &str, errno: Errno) -> Error {
    Error::io(format!("'{name}' of the share"), errno.into())
}

fn already(shown: &Path) -> String {
    format!("'{}' is a share already", shown.display())
}

/// Opens a directory, and no link to one.
pub fn open_directory(above: impl AsFd, path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, path, flags, Mode::empty())
        .map_err(|errno| Error::io(path.display().to_string(), errno.into()))
}

fn create_in(directory: &OwnedFd, name: &str) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))
        .map(File::from)
        .map_err(|errno| own(name, errno))
}

/// A directory that was found, below what we have mounted on it.
struct Reached {
    shown: PathBuf,
    directory: OwnedFd,
    is_mounted: bool,
}

/// Finds a directory, and asks for what is below if it is a mounted share.
///
/// No request is made of a mount of ours, which may hang. Attributes are not believed, which are
/// their users' to set.
fn reach(directory: &Path) -> Result<Reached> {
    let shown = directory.canonicalize().context(|| directory.display().to_string())?;
    let as_seen = || open_directory(rustix::fs::CWD, &shown);
    let name = mounts::newest_on(&shown).and_then(|newest| newest.name);
    let is_mounted = name.is_some();
    let reached = match name.map(|name| handover::ask(&name)) {
        None => as_seen(),
        // It has ended, or is in another container; then the mount does not hang.
        Some(Err(error)) if error.kind() == ErrorKind::NotFound => match as_seen() {
            Err(dead) if is_dead(&dead) => Err(dead),
            _ => Err(error),
        },
        Some(asked) => asked,
    };
    match reached {
        Ok(directory) => Ok(Reached { shown, directory, is_mounted }),
        Err(error) if is_dead(&error) => Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "'{}': its mount was killed; 'onefold share mount' mounts it again",
                shown.display()
            ),
        )),
        Err(error) if is_mounted => Err(error.context(shown.display())),
        Err(error) => Err(error),
    }
}

/// Whether the kernel says that nobody serves what is mounted.
fn is_dead(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let code = cause.and_then(std::io::Error::raw_os_error);
    [Errno::NOTCONN, Errno::CONNABORTED].iter().any(|dead| code == Some(dead.raw_os_error()))
}

/// What tells a directory from its copies.
fn place_of(directory: &OwnedFd) -> Result<SharePlace> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let known = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, wanted)
        .map_err(|errno| own(CONTROL, errno))?;
    let made = known.stx_btime;
    let made_ns = match known.stx_mask & StatxFlags::BTIME.bits() {
        0 => 0,
        _ => made.tv_sec.saturating_mul(1_000_000_000).saturating_add(made.tv_nsec.into()),
    };
    Ok(SharePlace { inode: known.stx_ino, made_ns })
}

fn read_description(directory: &OwnedFd, shown: &Path) -> Result<ShareDescription> {
    let control = open_directory(directory, Path::new(CONTROL)).map_err(|_| {
        let message =
            format!("'{}' is no share; 'onefold share create' makes it one", shown.display());
        Error::new(ErrorKind::NotFound, message)
    })?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&control, DESCRIPTION, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| own(DESCRIPTION, errno))?;
    let mut text = Vec::new();
    let most = DESCRIPTION_MAX_BYTES as u64;
    file.take(most).read_to_end(&mut text).context(|| DESCRIPTION)?;
    ShareDescription::decode(&text)
}

/// Refuses a directory in a share, and one with a share in it.
fn refuse_nested(directory: &Path) -> Result<()> {
    for above in directory.ancestors() {
        if mounts::newest_on(above).is_some_and(|newest| newest.name.is_some()) {
            return Err(Error::new(ErrorKind::AlreadyExists, already(above)));
        }
        if above.join(CONTROL).symlink_metadata().is_ok() {
            return Err(Error::new(ErrorKind::AlreadyExists, already(above)));
        }
    }
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        // What cannot be read cannot be optimised either.
        let Ok(entries) = std::fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            if entry.file_name() == CONTROL {
                return Err(Error::new(ErrorKind::AlreadyExists, already(&path)));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Refuses a file system that keeps no attributes, leases or holes.
fn probe(directory: &OwnedFd) -> Result<()> {
    let name = format!("{CONTROL}.probe-{}", std::process::id());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &name, flags, Mode::from_raw_mode(0o600))
        .map(File::from)
        .map_err(|errno| Error::io("writing into the directory", errno.into()))?;
    let probed = super::emptying::probe(&file);
    rustix::fs::unlinkat(directory, &name, AtFlags::empty())
        .map_err(|errno| Error::io("taking the probe away", errno.into()))?;
    probed
}
