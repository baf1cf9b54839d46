//! The disk of the operating system.
//!
//! All calls are relative to one open root directory, so that a relative store path survives a
//! change of the working directory, a symbolic link on the way is resolved once, and a long path is
//! no limit (R32). Below the root no link is followed (`below.rs`, R74), and nothing is written to
//! a file that has another name as well.
//!
//! What root makes in a store of another user becomes that user's, who could not read it
//! otherwise: the owner and group of the root directory, before it has its name. What was there
//! stays as it is.
//!
//! Temporary files are locked with `flock` from creation until they are closed, so that a cleaner
//! can tell a stale one from one being written without a clock. Where a filesystem has no locks
//! the cleaner leaves every temporary file alone.

use super::TEMPORARY_DIRECTORY;
use super::below::Below;
use super::disk::{Disk, EntryKind};
use crate::key;
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RawDir, RenameFlags, Uid};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// Paths handed to one call stay below this; the kernel refuses 4096.
const PATH_PIECE_MAX_BYTES: usize = 2048;
const TEMPORARY_ATTEMPTS: usize = 16;
/// The part of a directory's list that is asked for at once.
const LIST_BYTES: usize = 32 << 10;
/// Hexadecimal digits in the name of a temporary file.
pub(super) const TEMPORARY_NAME_BYTES: usize = 32;

pub(super) struct SystemDisk {
    below: Below,
    /// Whose it is to be what is made here, if not of whoever makes it.
    owner: Option<(Uid, Gid)>,
}

impl SystemDisk {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let root = open_directory_of_any_length(path)?;
        Ok(Self { owner: owner_of(root.as_fd())?, below: Below::new(root) })
    }

    /// The same on a kernel that cannot resolve paths without links.
    #[cfg(test)]
    pub(super) fn open_walking(path: &Path) -> io::Result<Self> {
        let root = open_directory_of_any_length(path)?;
        Ok(Self { owner: owner_of(root.as_fd())?, below: Below::walking(root) })
    }

    /// Makes the directory `path`, for its owner only, and its entry durable; an existing one
    /// stays as it is.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        if let Some(name) = path.file_name() {
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let parent = open_directory_of_any_length(parent)?;
            match retry_on_intr(|| rustix::fs::mkdirat(&parent, name, Mode::RWXU)) {
                Ok(()) => sync(parent.as_fd())?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Self::open(path)
    }

    /// Gives what was made to whom the store belongs. Where root may not do that (without the
    /// capability, over NFS, for a user whom a container does not know) it stays root's, as it was
    /// before anything was given.
    fn give(&self, made: BorrowedFd<'_>) -> io::Result<()> {
        let Some((user, group)) = self.owner else { return Ok(()) };
        let given = retry_on_intr(|| rustix::fs::fchown(made, Some(user), Some(group)));
        match given {
            Err(Errno::PERM | Errno::INVAL | Errno::NOTSUP) => Ok(()),
            Err(_) if rustix::fs::fstat(made)?.st_uid == user.as_raw() => Ok(()),
            given => Ok(given?),
        }
    }

    /// Whether a list that fails with "no such file" has ended: that of a directory that was
    /// removed does. Of one that is there it is an error, for what was not listed would count as
    /// not there.
    pub(super) fn end_of_list(&self, path: &str, listed: &OwnedFd) -> io::Result<()> {
        let now = match self.below.directory(path) {
            Err(Errno::NOENT) => return Ok(()),
            now => now?,
        };
        let identity = |open: &OwnedFd| {
            let stat = rustix::fs::fstat(open).ok()?;
            Some((stat.st_dev, stat.st_ino))
        };
        match identity(&now) == identity(listed) {
            true => Err(io::Error::other("its list ends too early, although it is there")),
            false => Ok(()),
        }
    }

    /// Whether the root holds nothing but what a creation that was interrupted, or the
    /// filesystem itself, puts there.
    pub(super) fn is_fresh(&self) -> io::Result<bool> {
        for entry in rustix::fs::Dir::new(self.root()?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let own = key::RESERVED.iter().any(|reserved| reserved.as_bytes() == name);
            if !own && ![b".".as_slice(), b"..", b"lost+found"].contains(&name) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whom a store belongs to that root uses, if that is somebody else.
fn owner_of(root: BorrowedFd<'_>) -> io::Result<Option<(Uid, Gid)>> {
    let stat = retry_on_intr(|| rustix::fs::fstat(root))?;
    let is_others = stat.st_uid != 0 && rustix::process::geteuid().is_root();
    Ok(is_others.then(|| (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))))
}

fn kind_from(kind: FileType, name: &std::ffi::CStr) -> io::Result<EntryKind> {
    match kind {
        FileType::RegularFile => Ok(EntryKind::File),
        FileType::Directory => Ok(EntryKind::Directory),
        FileType::Symlink => Err(io::Error::other(format!(
            "its entry {name:?} is a symbolic link, and none is followed inside a store; remove \
             it, and put what belongs there in its place"
        ))),
        _ => Err(io::Error::other(format!("{name:?} is neither a file nor a directory"))),
    }
}

fn open_directory_at(at: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(at, path, flags, Mode::empty()))
}

/// Walks a path in pieces that the kernel accepts.
fn open_directory_of_any_length(path: &Path) -> io::Result<OwnedFd> {
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }
    let start = if path.is_absolute() { "/" } else { "." };
    let mut directory = open_directory_at(rustix::fs::CWD, Path::new(start))?;
    let mut piece = PathBuf::new();
    for component in path.components() {
        if matches!(component, Component::RootDir | Component::Prefix(_)) {
            continue;
        }
        let added = component.as_os_str().len() + 1;
        if piece.as_os_str().as_bytes().len() + added > PATH_PIECE_MAX_BYTES {
            directory = open_directory_at(directory.as_fd(), &piece)?;
            piece.clear();
        }
        piece.push(component);
    }
    if !piece.as_os_str().is_empty() {
        directory = open_directory_at(directory.as_fd(), &piece)?;
    }
    Ok(directory)
}

/// Some filesystems have no call to sync a directory and say `EINVAL`; they offer nothing better.
fn sync(directory: BorrowedFd<'_>) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::fsync(directory)) {
        Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; TEMPORARY_NAME_BYTES / 2];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Disk for SystemDisk {
    type File = File;
    type Directory = OwnedFd;

    fn root(&self) -> io::Result<OwnedFd> {
        Ok(self.below.directory("")?)
    }

    fn open_directory(&self, above: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        Ok(self.below.directory_at(above.as_fd(), name)?)
    }

    fn make_directory(&self, above: &OwnedFd, name: &str) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::mkdirat(above, name, Mode::RWXU))?;
        if self.owner.is_some() {
            self.give(self.below.directory_at(above.as_fd(), name)?.as_fd())?;
        }
        Ok(())
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.below.parent(path)?;
        Ok(retry_on_intr(|| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR))?)
    }

    fn sync_directory(&self, directory: &OwnedFd) -> io::Result<()> {
        sync(directory.as_fd())
    }

    fn entries(&self, path: &str, each: &mut dyn FnMut(&str, EntryKind) -> bool) -> io::Result<()> {
        let directory = self.below.directory(path)?;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                Err(Errno::NOENT) => return self.end_of_list(path, &directory),
                entry => entry?,
            };
            let Some(name) = entry.file_name().to_str().ok().filter(|n| key::is_component(n))
            else {
                continue;
            };
            let kind = match entry.file_type() {
                // The filesystem does not say.
                FileType::Unknown => match Below::kind_at(directory.as_fd(), entry.file_name()) {
                    // Removed since it was read.
                    Err(Errno::NOENT) => continue,
                    kind => kind?,
                },
                kind => kind,
            };
            if !each(name, kind_from(kind, entry.file_name())?) {
                break;
            }
        }
        Ok(())
    }

    fn create_temporary(&self) -> io::Result<(String, File)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let directory = self.below.directory(TEMPORARY_DIRECTORY)?;
        for _ in 0..TEMPORARY_ATTEMPTS {
            let name = random_name()?;
            let mode = Mode::RUSR | Mode::WUSR;
            let file = match self.below.open_at(directory.as_fd(), &name, flags, mode) {
                Ok(file) => file,
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            };
            // A cleaner may have locked the file first; it is about to remove it, or just did.
            let lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            if retry_on_intr(lock) == Err(Errno::AGAIN) {
                continue;
            }
            if retry_on_intr(|| rustix::fs::fstat(&file))?.st_nlink == 0 {
                continue;
            }
            self.give(file.as_fd())?;
            return Ok((key::join(TEMPORARY_DIRECTORY, &name), File::from(file)));
        }
        Err(io::Error::other("no temporary file could be kept"))
    }

    fn open_or_create(&self, path: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let open = |flags| self.below.open(path, flags, Mode::RUSR | Mode::WUSR);
        let file = match open(flags | OFlags::EXCL) {
            Ok(made) => {
                self.give(made.as_fd())?;
                made
            }
            Err(Errno::EXIST) => open(flags)?,
            Err(error) => return Err(error.into()),
        };
        let stat = retry_on_intr(|| rustix::fs::fstat(&file))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
            return Err(io::Error::other("it is not a file of the store's own; remove that name"));
        }
        Ok(File::from(file))
    }

    fn set_direct(&self, file: &File, direct: bool) -> io::Result<()> {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        Ok(retry_on_intr(|| rustix::fs::fcntl_setfl(file, flags))?)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn allocate(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        let whole = rustix::fs::FallocateFlags::empty();
        Ok(retry_on_intr(|| rustix::fs::fallocate(file, whole, 0, size_bytes))?)
    }

    fn truncate(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(file, size_bytes))?;
        // Filesystems that copy on write give blocks back only when all is written.
        Ok(retry_on_intr(|| rustix::fs::syncfs(file))?)
    }

    fn room(&self) -> io::Result<(u64, u64)> {
        let stat = retry_on_intr(|| rustix::fs::fstatvfs(self.below.root()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok((bytes(stat.f_bavail), bytes(stat.f_blocks)))
    }

    fn names_left(&self) -> io::Result<u64> {
        let stat = retry_on_intr(|| rustix::fs::fstatvfs(self.below.root()))?;
        // File systems that make inodes as they need them tell of none.
        Ok(if stat.f_files == 0 { u64::MAX } else { stat.f_favail })
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
    }

    fn rename_new(&self, temporary: &str, directory: &OwnedFd, name: &str) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        let (parent, temporary) = self.below.parent(temporary)?;
        let rename = || rustix::fs::renameat_with(&parent, temporary, directory, name, flags);
        Ok(retry_on_intr(rename)?)
    }

    fn link_new(
        &self,
        file: &File,
        temporary: &str,
        directory: &OwnedFd,
        name: &str,
    ) -> io::Result<()> {
        let none = AtFlags::empty();
        let (parent, temporary) = self.below.parent(temporary)?;
        let link = || rustix::fs::linkat(&parent, temporary, directory, name, none);
        match retry_on_intr(link) {
            // Over NFS the answer to the first try may be lost and the second finds our own link.
            Err(Errno::EXIST) if rustix::fs::fstat(file)?.st_nlink == 2 => Ok(()),
            result => Ok(result?),
        }
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.below.parent(path)?;
        Ok(retry_on_intr(|| rustix::fs::unlinkat(&parent, name, AtFlags::empty()))?)
    }

    fn remove_unlocked(&self, path: &str) -> io::Result<bool> {
        let (file, _) = self.open(path)?;
        let lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if retry_on_intr(lock).is_err() {
            return Ok(false);
        }
        self.remove(path)?;
        Ok(true)
    }

    fn open(&self, path: &str) -> io::Result<(File, u64)> {
        // Without NONBLOCK a fifo that strayed into the store would hang the reader.
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = self.below.open(path, flags, Mode::empty())?;
        let stat = retry_on_intr(|| rustix::fs::fstat(&file))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NOENT.into());
        }
        Ok((File::from(file), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        let stat = self.below.stat(path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NOENT.into());
        }
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn is_absent(&self, path: &str) -> io::Result<bool> {
        match self.below.stat(path) {
            Err(Errno::NOENT) => Ok(true),
            // A link leads somewhere or nowhere, and a part before that is no directory exists.
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
