//! A share: a directory, and what is Onefold's in it.
//!
//! ```text
//! DIR/.onefold-share/
//!   share.json     which share of which store it is, where it is used, what is optimised
//!   moves          a line for each stub or directory that is about to get another name
//!   open/<inode>   stubs that were deleted and that somebody still has open
//!   emptying       files that the job is emptying, or was stopped at
//!   problems       what could not be read, told once each; cleared by a scrub that reads it
//!   scrub          where the last scrub ended
//!   mounted        made when it is mounted first: without a mount no job makes stubs then
//!   reserve        room for when the disk is full ([`super::reserve`])
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

use super::addresses::{self, Standing};
use super::control::{self, EMPTYING, JOB_LOCK, MOUNT_LOCK, MOVES, SCRUB, own};
use crate::ingest::left_out::is_store;
use crate::repository::Repository;
use crate::session::Snapshot;
use onefold_format::share::{
    FormerAddress, ShareAddress, ShareDescription, SharePlace, SharePolicy,
};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, ShareId, StoreId, limits};
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
use crate::stub;
pub use crate::stub::CONTROL;
/// What tells at the top of a mounted share by what its process is asked for the directory below.
pub const BELOW_ATTRIBUTE: &str = "user.onefold.below";
/// What an offset and the name of a content take, and more.
const SCRUB_LINE_MAX_BYTES: u64 = 4 << 10;
/// The same with a path as deep as any, of names as long as file systems let them be.
const SCRUB_MAX_BYTES: u64 = SCRUB_LINE_MAX_BYTES + 256 * limits::DEPTH_MAX as u64;
/// Stubs that were deleted while they were open.
pub const OPEN: &str = control::OPEN;

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
    standing: Standing,
    here: ShareAddress,
    addresses: Vec<ShareAddress>,
    moved_from: Vec<FormerAddress>,
    covered: Option<Covered>,
}

/// The directory of a share that is covered, by whoever found it below: clones of what is mounted
/// there, which are in no namespace and last as long as they are open.
pub struct Covered {
    /// With what is mounted inside.
    pub as_seen: OwnedFd,
    /// Without.
    pub alone: OwnedFd,
}

/// A lock of the kernel, held until it goes.
pub struct Held {
    _file: File,
}

impl Share {
    /// Makes a directory a share.
    ///
    /// Errors: `AlreadyExists` if it is one, or lies in one, or one lies in it; `Invalid` if the
    /// file system below cannot keep stubs, or the policy is too long to be written down.
    pub fn create(repository: &Repository, directory: &Path, policy: SharePolicy) -> Result<Self> {
        let Reached { shown, directory: opened, is_mounted } = reach(directory)?;
        let here = addresses::here(&shown);
        let description = ShareDescription {
            share: ShareId::random(&*repository.environment().randomness),
            store: repository.store_id(),
            // No other one takes as many characters.
            place: SharePlace { inode: u64::MAX, made_ns: i64::MIN },
            addresses: vec![here.clone()],
            moved_from: Vec::new(),
            policy,
        };
        description.encode_new()?;
        if is_mounted {
            return Err(Error::new(ErrorKind::AlreadyExists, already(&shown)));
        }
        control::clear(&opened)?;
        refuse_stores(&shown)?;
        refuse_nested(&shown)?;
        probe(&opened)?;
        let description = control::make(&opened, |control| {
            Ok(ShareDescription { place: place_of(control)?, ..description })
        })?;
        Ok(Self::new(description, (shown, here), (opened, false), Standing::Own))
    }

    fn new(
        description: ShareDescription,
        (shown, here): (PathBuf, ShareAddress),
        (directory, is_mounted): (OwnedFd, bool),
        standing: Standing,
    ) -> Self {
        let ShareDescription { share: id, store, policy, addresses, moved_from, .. } = description;
        Self {
            id,
            policy,
            shown,
            store,
            directory,
            is_mounted,
            standing,
            here,
            addresses,
            moved_from,
            covered: None,
        }
    }

    /// The share that a directory is, below its mount if it is mounted, and below what is mounted
    /// inside.
    ///
    /// Errors: `NotFound` if it is none; `Invalid` if it is a copy, or used elsewhere;
    /// `NotPermitted` if another user has mounted it.
    pub fn open(directory: &Path) -> Result<Self> {
        Self::look_at(directory)?.own()
    }

    /// The same with what is mounted inside, for whoever shows it to users.
    pub fn open_as_seen(directory: &Path) -> Result<Self> {
        Self::find(directory)?.own()
    }

    /// The same of one that may be a copy, or used elsewhere. Nothing of it may be changed but by
    /// those who are about that.
    pub fn look_at(directory: &Path) -> Result<Self> {
        let mut share = Self::find(directory)?;
        share.directory = share.uncovered()?;
        Ok(share)
    }

    /// The same of a directory that is covered by what answers no more.
    pub fn open_covered(shown: &Path, covered: Covered) -> Result<Self> {
        let directory = open_directory(&covered.as_seen, Path::new("."))?;
        let reached = Reached { shown: shown.to_owned(), directory, is_mounted: false };
        Ok(Self { covered: Some(covered), ..Self::described(reached)?.own()? })
    }

    fn find(directory: &Path) -> Result<Self> {
        Self::described(reach(directory)?)
    }

    fn described(reached: Reached) -> Result<Self> {
        let Reached { shown, directory, is_mounted } = reached;
        let (control, description) = control::read(&directory, &shown)?;
        let is_in_place = place_of(&control)? == description.place;
        let is_same_directory = |path: &Path| leads_to(path, &control);
        let here = addresses::here(&shown);
        let standing = Standing::of(&description, &here, is_in_place, is_same_directory);
        Ok(Self::new(description, (shown, here), (directory, is_mounted), standing))
    }

    fn own(self) -> Result<Self> {
        match self.complaint() {
            None => Ok(self),
            Some(complaint) => Err(Error::invalid(complaint)),
        }
    }

    /// What is left of a share that somebody was stopped at making or removing is taken away;
    /// whether there was such a thing.
    pub fn clear(directory: &Path) -> Result<bool> {
        let Reached { directory: seen, is_mounted, .. } = reach(directory)?;
        if is_mounted {
            return Ok(false);
        }
        control::clear(&seen)
    }

    /// Says that it was moved here and is not used any more where it was. Nobody has it mounted or
    /// works on it.
    ///
    /// Errors: `Invalid` if it is a copy, or still there where it was.
    pub fn move_here(self, repository: &Repository) -> Result<Self> {
        self.refuse_other_store(repository)?;
        if !matches!(self.standing, Standing::Own | Standing::Elsewhere) {
            return Err(Error::invalid(self.complaint().unwrap_or_default()));
        }
        let _locks = (self.lock_mount()?, self.lock_job()?);
        let others = self.addresses.iter().filter(|one| one.machine == self.here.machine);
        for address in others.filter(|address| !address.is_same(&self.here)) {
            let there = addresses::directory_of(address);
            let is_share = |there: &Path| Self::look_at(there).is_ok_and(|one| one.id == self.id);
            if is_canonical(&there) && is_share(&there) {
                return Err(Error::invalid(format!(
                    "the share is still at '{0}', so '{1}' is a copy of it; 'onefold share repair \
                     {1}' makes that an ordinary directory",
                    address.path,
                    self.shown.display()
                )));
            }
        }
        let (control, mut description) = control::read(&self.directory, &self.shown)?;
        let now_ns = repository.environment().clock.now_ns();
        description.move_to(self.here.clone(), now_ns)?;
        control::write(&control, &description)?;
        let ShareDescription { addresses, moved_from, .. } = description;
        Ok(Self { standing: Standing::Own, addresses, moved_from, ..self })
    }

    /// Whether it may be used where it was opened.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Why it may not; `None` if it may.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.standing.complaint(&self.shown, &self.addresses)
    }

    /// Where it was opened.
    #[must_use]
    pub fn here(&self) -> &ShareAddress {
        &self.here
    }

    /// Where it may be used.
    #[must_use]
    pub fn addresses(&self) -> &[ShareAddress] {
        &self.addresses
    }

    /// Whether a manifest keeps the data of this directory's stubs, and not of another one that is
    /// a copy of it, or of which it is one.
    #[must_use]
    pub fn has_made(&self, manifest: &Snapshot) -> bool {
        let at = addresses::made_at(manifest);
        let made_ns = manifest.record.started_ns;
        // Whoever has made one there since is another directory, which was not moved.
        let was_there = |one: &FormerAddress| one.address.is_same(&at) && made_ns <= one.until_ns;
        self.has_made_here(manifest) || self.moved_from.iter().any(was_there)
    }

    /// The marks of the addresses that it is and was used at.
    #[must_use]
    pub fn marks(&self) -> Vec<String> {
        let former = self.moved_from.iter().map(|one| &one.address);
        self.addresses.iter().chain(former).map(addresses::mark).collect()
    }

    /// The same, and it was made where the share is used now.
    #[must_use]
    pub fn has_made_here(&self, manifest: &Snapshot) -> bool {
        let at = addresses::made_at(manifest);
        self.addresses.iter().any(|address| address.is_same(&at))
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
        if let Some(covered) = &self.covered {
            return open_directory(&covered.alone, Path::new("."));
        }
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

    /// One of the files that are Onefold's.
    pub(super) fn file(&self, name: &str, flags: OFlags) -> Result<File> {
        control::open_file(&self.control()?, name, flags)
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

    /// Makes it an ordinary directory again. No stub may be left, and the lock of its jobs is held.
    ///
    /// Errors: `Unavailable` if it is mounted.
    pub fn remove(self) -> Result<()> {
        let _mount = self.lock_mount()?;
        let control = self.control()?;
        control::clear_open(&control)?;
        control::remove(&self.directory, &control)
    }
}

fn already(shown: &Path) -> String {
    format!("'{}' is a share already", shown.display())
}

/// Opens a directory, and no link to one.
pub fn open_directory(above: impl AsFd, path: &Path) -> Result<OwnedFd> {
    control::open_directory(above, path)
}

/// Whether nothing on the way to a directory is a link.
fn is_canonical(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|canonical| canonical == path)
}

/// Whether a path leads to the directory that this is Onefold's of, mounted or not.
fn leads_to(path: &Path, control: &OwnedFd) -> bool {
    let identity =
        |control: &OwnedFd| rustix::fs::fstat(control).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    let there = || {
        let below = reach(path)?.directory;
        open_directory(below, Path::new(CONTROL))
    };
    is_canonical(path) && there().is_ok_and(|there| identity(&there) == identity(control))
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
    let code = error.os_code();
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

/// Refuses a store, and a directory in one: what it holds could be read by nobody who opens it.
fn refuse_stores(directory: &Path) -> Result<()> {
    for above in directory.ancestors() {
        // What cannot be opened here is told by whoever needs it.
        if open_directory(rustix::fs::CWD, above).is_ok_and(|open| is_store(&open)) {
            return Err(Error::invalid(format!(
                "'{}' is a store: its own files cannot be moved into one",
                above.display()
            )));
        }
    }
    Ok(())
}

/// Refuses a directory in a share, and one with a share in it.
fn refuse_nested(directory: &Path) -> Result<()> {
    for above in directory.ancestors() {
        if mounts::newest_on(above).is_some_and(|newest| newest.name.is_some()) {
            return Err(Error::new(ErrorKind::AlreadyExists, already(above)));
        }
        if stub::has_control(rustix::fs::CWD, above) {
            return Err(Error::new(ErrorKind::AlreadyExists, already(above)));
        }
    }
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        // What cannot be read cannot be optimised either.
        let Ok(entries) = std::fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            if entry.file_name() == CONTROL && stub::has_control(rustix::fs::CWD, &path) {
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
