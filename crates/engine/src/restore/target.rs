//! Directories of the target, held by handle.
//!
//! Every operation on an item names it by one component relative to the handle of its directory,
//! and no component is ever followed if it is a symbolic link. What somebody plants inside the
//! target can therefore not lead a restore out of it (R44, R54). Only the target's own path, which
//! the user gave, is resolved as usual, and the user's own links above sources are followed
//! ([`follow`]).
//!
//! Invariant: a directory that is opened again is the one that was opened first (device and inode
//! are compared).
//!
//! Concurrency: directories are shared by all workers. Few handles are open at once; one that was
//! closed is opened again from the nearest open directory above. The lock of the table of handles
//! and that of a directory are never held together.

use super::RestoreOptions;
use super::durable::{FileSystem, FileSystems};
use super::follow;
use super::identity::Spellings;
use super::unfinished;
use crate::environment::open_files_max;
use crate::file_systems;
use crate::tree::path;
use lru::LruCache;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatVfsMountFlags, StatxFlags};
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

const HANDLES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Closes the handles that were opened longest ago.
struct Handles {
    open: Mutex<LruCache<u64, Weak<Directory>>>,
    next: AtomicU64,
    /// The directory that links above sources may not lead out of.
    bound: Option<(u64, u64)>,
    file_systems: FileSystems,
}

impl Handles {
    /// Room for a quarter of the descriptors that the process may open: frames arrive in stored
    /// order, so the files of a window lie in directories all over the target, and each one that
    /// was closed costs an opening of the whole chain above it.
    fn new(bound: Option<(u64, u64)>) -> Self {
        let room = NonZeroUsize::new(open_files_max() / 4).unwrap_or(NonZeroUsize::MIN);
        let open = Mutex::new(LruCache::new(room.min(HANDLES_MAX)));
        Self { open, next: AtomicU64::new(0), bound, file_systems: FileSystems::default() }
    }
}

/// A directory in the target.
pub struct Directory {
    me: Weak<Directory>,
    number: u64,
    parent: Option<Arc<Directory>>,
    name: Vec<u8>,
    identity: (u64, u64),
    /// Whether its name is a link that leads to it.
    is_followed: bool,
    /// What is known of its file system.
    file_system: FileSystem,
    /// Whether this restore made it, so that it holds nothing else.
    pub fresh: bool,
    /// Whether new items inherit an access control list.
    pub inherits_acl: bool,
    /// Its owner and group when it was opened.
    pub owner: (u32, u32),
    /// The group that new items in it get.
    pub group_of_new: u32,
    exists: bool,
    /// The names in it, once anything that is there was met.
    pub(super) spellings: OnceLock<Spellings>,
    handle: Mutex<Option<Arc<OwnedFd>>>,
    handles: Arc<Handles>,
}

impl Directory {
    /// The target itself, which must exist. Links above sources lead out of it only if
    /// `follows_out`.
    pub fn root(target: &Path, fresh: bool, follows_out: bool) -> Result<Arc<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(target, flags, Mode::empty()).map_err(|errno| {
            let what = format!("opening the target '{}'", target.display());
            match errno {
                Errno::NOTDIR => Error::new(
                    ErrorKind::Invalid,
                    format!("the target '{}' is not a directory", target.display()),
                ),
                _ => Error::io(what, errno.into()),
            }
        })?;
        let stat = rustix::fs::fstat(&opened)
            .map_err(|errno| Error::io("looking at the target", errno.into()))?;
        let bound = (!follows_out).then_some((stat.st_dev, stat.st_ino));
        let handles = Arc::new(Handles::new(bound));
        Self::build((None, Vec::new(), false), opened, fresh, handles)
    }

    /// A directory that a dry run would have made.
    #[must_use]
    pub fn imagined(parent: Option<&Arc<Self>>, name: &[u8]) -> Arc<Self> {
        let handles = parent
            .map_or_else(|| Arc::new(Handles::new(None)), |parent| Arc::clone(&parent.handles));
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            number: handles.next.fetch_add(1, Ordering::Relaxed),
            parent: parent.cloned(),
            name: name.to_vec(),
            identity: (0, 0),
            is_followed: false,
            file_system: FileSystem { is_by_file: false, keeps_attributes: true },
            fresh: true,
            inherits_acl: false,
            owner: (0, 0),
            group_of_new: 0,
            exists: false,
            spellings: OnceLock::new(),
            handle: Mutex::new(None),
            handles,
        })
    }

    fn build(
        (parent, name, is_followed): (Option<Arc<Self>>, Vec<u8>, bool),
        opened: OwnedFd,
        fresh: bool,
        handles: Arc<Handles>,
    ) -> Result<Arc<Self>> {
        let stat = rustix::fs::fstat(&opened)
            .map_err(|errno| Error::io("looking at a directory", errno.into()))?;
        let inherits_acl = match (&parent, fresh) {
            (Some(parent), true) => parent.inherits_acl,
            _ => has_default_acl(&opened),
        };
        let sets_group = Mode::from_raw_mode(stat.st_mode).contains(Mode::SGID);
        let group_of_new = match sets_group {
            true => stat.st_gid,
            false => rustix::process::getegid().as_raw(),
        };
        let opened = Arc::new(opened);
        let place = || parent.as_ref().map_or("/".to_owned(), |above| above.display_of(&name));
        let file_system = handles.file_systems.meet(stat.st_dev, &opened, place);
        let directory = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            number: handles.next.fetch_add(1, Ordering::Relaxed),
            parent,
            name,
            identity: (stat.st_dev, stat.st_ino),
            is_followed,
            file_system,
            fresh,
            inherits_acl,
            owner: (stat.st_uid, stat.st_gid),
            group_of_new,
            exists: true,
            spellings: OnceLock::new(),
            handle: Mutex::new(None),
            handles,
        });
        directory.keep(opened);
        Ok(directory)
    }

    /// Makes the directory `name` in this one.
    pub fn make(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
        let handle = self.handle()?;
        let mode = unfinished::directory_mode(self.file_system.keeps_attributes);
        rustix::fs::mkdirat(&*handle, name, mode)
            .map_err(|errno| Error::io("making the directory", errno.into()))?;
        self.open(&handle, name, true, false)
    }

    /// Opens the directory `name` that is in this one already.
    pub fn enter(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
        let handle = self.handle()?;
        self.open(&handle, name, false, false)
    }

    /// Opens the directory `name` that is in this one and only leads to sources: it is the user's,
    /// or what a link of the user leads to, wherever that is.
    pub fn enter_or_follow(self: &Arc<Self>, name: &[u8], stat: &Stat) -> Result<Arc<Self>> {
        let handle = self.handle()?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.open(&handle, name, false, false),
            FileType::Symlink => self.open(&handle, name, false, true),
            _ => Err(Error::invalid(
                "it is no directory, and what is restored lies below it: move it away, or restore \
                 elsewhere",
            )),
        }
    }

    fn open(
        self: &Arc<Self>,
        handle: &OwnedFd,
        name: &[u8],
        fresh: bool,
        is_followed: bool,
    ) -> Result<Arc<Self>> {
        let opened = self.open_directory(handle, name, is_followed)?;
        let handles = Arc::clone(&self.handles);
        let place = (Some(Arc::clone(self)), name.to_vec(), is_followed);
        Self::build(place, opened, fresh, handles)
    }

    fn open_directory(&self, above: &OwnedFd, name: &[u8], is_followed: bool) -> Result<OwnedFd> {
        if is_followed {
            return follow::follow(above, name, DIRECTORY_FLAGS, self.handles.bound);
        }
        rustix::fs::openat(above.as_fd(), name, DIRECTORY_FLAGS, Mode::empty())
            .map_err(|errno| Error::io("opening the directory", errno.into()))
    }

    /// Whether it is there; only a dry run knows others.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// The device and inode.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Syncs the file systems of all directories. Returns the place and the error of each that
    /// failed.
    #[must_use]
    pub fn write_out(&self) -> Vec<(String, Error)> {
        self.handles.file_systems.write_out()
    }

    /// Whether each file in it is to be written out by itself, if it lies on this device.
    #[must_use]
    pub fn is_written_by_file(&self, device: u64) -> bool {
        self.file_system.is_by_file || device != self.identity.0
    }

    /// Whether what lies in it on this device is known to keep attributes as they are set.
    #[must_use]
    pub fn keeps_attributes(&self, device: u64) -> bool {
        self.file_system.keeps_attributes && device == self.identity.0
    }

    /// The mode of what is made in it and is no directory, until it is finished.
    #[must_use]
    pub fn mode_of_new(&self) -> Mode {
        unfinished::file_mode(self.file_system.keeps_attributes)
    }

    /// A handle to it, opened again if it was closed.
    pub fn handle(&self) -> Result<Arc<OwnedFd>> {
        if let Some(handle) = lock(&self.handle).clone() {
            return Ok(handle);
        }
        let mut closed = vec![self];
        let mut lowest = self;
        let mut handle = loop {
            let missing = || Error::new(ErrorKind::NotFound, "the directory was never made");
            let parent = lowest.parent.as_deref().ok_or_else(missing)?;
            if let Some(handle) = lock(&parent.handle).clone() {
                break handle;
            }
            closed.push(parent);
            lowest = parent;
        };
        for directory in closed.into_iter().rev() {
            let opened = self.open_directory(&handle, &directory.name, directory.is_followed)?;
            let stat = rustix::fs::fstat(&opened)
                .map_err(|errno| Error::io("looking at a directory", errno.into()))?;
            if (stat.st_dev, stat.st_ino) != directory.identity {
                return Err(Error::new(
                    ErrorKind::Io,
                    "the directory was replaced by another one during the restore",
                ));
            }
            handle = directory.keep(Arc::new(opened));
        }
        Ok(handle)
    }

    fn keep(&self, handle: Arc<OwnedFd>) -> Arc<OwnedFd> {
        *lock(&self.handle) = Some(Arc::clone(&handle));
        // The target's own handle stays open: all others are found from it.
        if self.parent.is_some() {
            let evicted = lock(&self.handles.open).push(self.number, self.me.clone());
            if let Some((number, directory)) = evicted
                && number != self.number
                && let Some(directory) = directory.upgrade()
            {
                lock(&directory.handle).take();
            }
        }
        handle
    }

    /// What is there under `name`, symbolic links not followed.
    pub fn stat(&self, name: &[u8]) -> Result<Option<Stat>> {
        if !self.exists {
            return Ok(None);
        }
        match rustix::fs::statat(&*self.handle()?, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io("looking at what is there", errno.into())),
        }
    }

    /// Whether something is mounted on `name`, be it a part of the same file system.
    pub fn is_mount(&self, name: &[u8], stat: &Stat) -> Result<bool> {
        if is_type(stat, FileType::Directory) && stat.st_dev != self.identity.0 {
            return Ok(true);
        }
        let handle = self.handle()?;
        Ok(mount_of(&handle, name)? != mount_of(&handle, b"")?)
    }

    /// Whether something is mounted on this directory.
    pub fn is_mounted(&self) -> Result<bool> {
        let handle = self.handle()?;
        Ok(mount_of(&handle, b"..")? != mount_of(&handle, b"")?)
    }

    /// Removes what is there under `name` and is no directory.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        match rustix::fs::unlinkat(&*self.handle()?, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::io("removing what was there", errno.into())),
        }
    }

    /// Gives what has one name in it another one, in the place of what has that.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let handle = self.handle()?;
        rustix::fs::renameat(&*handle, from, &*handle, to)
            .map_err(|errno| Error::io("putting it in the place of what was there", errno.into()))
    }

    /// The same; what cannot be put there is removed.
    pub fn rename_or_remove(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.rename(from, to).inspect_err(|_| {
            let _ = self.unlink(from);
        })
    }

    /// Removes the empty directory `name`.
    pub fn remove_directory(&self, name: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(&*self.handle()?, name, AtFlags::REMOVEDIR)
            .map_err(|errno| Error::io("removing the directory that was there", errno.into()))
    }

    /// The names in it.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.list(&mut |name, _| names.push(name.to_vec()))?;
        Ok(names)
    }

    /// The names in it, with inode numbers.
    pub fn list(&self, each: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        file_systems::list(&*self.handle()?, |name, _, inode| each(name, inode))
            .map_err(|errno| Error::io("listing the directory", errno.into()))
    }

    /// The path of `name` in it, from the target on.
    #[must_use]
    pub fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut names = vec![name];
        let mut directory = Some(self);
        while let Some(this) = directory.filter(|this| this.parent.is_some()) {
            names.push(&this.name);
            directory = this.parent.as_deref();
        }
        let start = vec![b'/'];
        names.into_iter().rev().fold(start, |path, name| path::join(&path, name))
    }

    /// The path of `name` in it, for messages.
    #[must_use]
    pub fn display_of(&self, name: &[u8]) -> String {
        path::display(&self.path_of(name))
    }

    /// Its own path, for messages.
    #[must_use]
    pub fn display(&self) -> String {
        match &self.parent {
            Some(parent) => parent.display_of(&self.name),
            None => "/".to_owned(),
        }
    }
}

/// Opens the target, and makes it if it does not exist.
pub fn open(options: &RestoreOptions) -> Result<(Arc<Directory>, bool)> {
    let target = &options.target;
    let what = || format!("the target '{}'", target.display());
    let existed = match std::fs::metadata(target) {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(Error::invalid(format!("{} is not a directory", what())));
        }
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).context(what),
    };
    if !existed && options.dry_run {
        return Ok((Directory::imagined(None, b""), true));
    }
    if !existed {
        std::fs::create_dir_all(target).context(|| format!("making {}", what()))?;
    }
    let directory = Directory::root(target, !existed, options.follows_out)?;
    let system = rustix::fs::fstatvfs(&*directory.handle()?)
        .map_err(|errno| Error::io(what(), errno.into()))?;
    if system.f_flag.contains(StatVfsMountFlags::RDONLY) && !options.dry_run {
        let message = format!("{} is on a file system mounted read-only", what());
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    Ok((directory, !existed))
}

/// Whether `stat` tells of this type.
#[must_use]
pub fn is_type(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// The number of the mount on which `name` in a directory lies, or with no name that directory.
fn mount_of(above: &OwnedFd, name: &[u8]) -> Result<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let what = || "asking what is mounted there";
    let known = rustix::fs::statx(above, name, flags, StatxFlags::MNT_ID);
    match known {
        Ok(known) if known.stx_mask & StatxFlags::MNT_ID.bits() != 0 => Ok(known.stx_mnt_id),
        Ok(_) | Err(Errno::NOSYS) => listed_mount_of(above, name).context(what),
        Err(errno) => Err(std::io::Error::from(errno)).context(what),
    }
}

/// The same, asked of a kernel before 5.8.
fn listed_mount_of(above: &OwnedFd, name: &[u8]) -> std::io::Result<u64> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = if name.is_empty() { b".".as_slice() } else { name };
    let opened = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()))?;
    let number = told.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| std::io::Error::other("the system does not say"))
}

fn has_default_acl(directory: &OwnedFd) -> bool {
    rustix::fs::fgetxattr_query(directory, c"system.posix_acl_default")
        .is_ok_and(|length| length > 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
