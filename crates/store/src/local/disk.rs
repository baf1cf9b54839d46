//! The system calls the directory store makes, and nothing more.
//!
//! The trait is narrow so that a simulated disk can stand in: it logs the order of calls, fails any
//! one of them, and yields every state a power loss could leave. Paths are relative to the root of
//! the store and use `/`. The empty path is the root itself. Directories that must stay
//! the same ones from call to call are handed on open, not by path.
//!
//! Rules for implementations: `EINTR` is retried inside, except by `write_at` and `read_at`, whose
//! caller loops anyway; nothing is made durable but by `sync_file` and `sync_directory`.

use std::io;

/// What an entry of a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryKind {
    File,
    Directory,
}

/// The calls; each does what the call of its name does, on paths below one root.
pub(super) trait Disk: Send + Sync {
    /// An open file.
    type File: Send + Sync;
    /// An open directory. While it is held its inode cannot be given to another directory.
    type Directory: Send + Sync;

    /// Opens the root.
    fn root(&self) -> io::Result<Self::Directory>;
    /// Opens an entry of `above`; `ENOENT` if `above` itself has been removed.
    fn open_directory(&self, above: &Self::Directory, name: &str) -> io::Result<Self::Directory>;
    /// Makes an entry of `above`; `ENOENT` if `above` itself has been removed.
    fn make_directory(&self, above: &Self::Directory, name: &str) -> io::Result<()>;
    /// Removes a directory that is empty.
    fn remove_directory(&self, path: &str) -> io::Result<()>;
    /// Makes all entries of a directory durable, additions and removals.
    fn sync_directory(&self, directory: &Self::Directory) -> io::Result<()>;
    /// Shows all entries that a key can name until `each` returns false. One that vanishes
    /// meanwhile is left out; one that cannot be looked at, leads nowhere, or is neither file nor
    /// directory is an error.
    fn entries(&self, path: &str, each: &mut dyn FnMut(&str, EntryKind) -> bool) -> io::Result<()>;

    /// Creates a file of a fresh random name of 32 hexadecimal digits in `tmp/`, locked for as long
    /// as it is open.
    fn create_temporary(&self) -> io::Result<(String, Self::File)>;
    /// Opens or creates a file for writing.
    fn open_or_create(&self, path: &str) -> io::Result<Self::File>;
    /// Turns writes past the page cache on or off. `EINVAL` where that is not offered.
    fn set_direct(&self, file: &Self::File, direct: bool) -> io::Result<()>;
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Reserves room for the first `size_bytes` bytes and makes the file that long at least.
    fn allocate(&self, file: &Self::File, size_bytes: u64) -> io::Result<()>;
    /// Cuts a file to this length; what it held beyond is free.
    fn truncate(&self, file: &Self::File, size_bytes: u64) -> io::Result<()>;
    /// Bytes that are free to users of the device, and bytes of the whole device.
    fn room(&self) -> io::Result<(u64, u64)>;
    /// Files that can still be made; `u64::MAX` where that is not told.
    fn names_left(&self) -> io::Result<u64>;
    /// Makes the content of a file durable.
    fn sync_file(&self, file: &Self::File) -> io::Result<()>;

    /// Gives a temporary file its final name unless that is taken (`EEXIST`), by renaming.
    fn rename_new(
        &self,
        temporary: &str,
        directory: &Self::Directory,
        name: &str,
    ) -> io::Result<()>;
    /// The same by a second, hard link; the temporary name stays. `file` is the open temporary.
    fn link_new(
        &self,
        file: &Self::File,
        temporary: &str,
        directory: &Self::Directory,
        name: &str,
    ) -> io::Result<()>;
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Removes a temporary file unless its writer lives; says whether it did.
    fn remove_unlocked(&self, path: &str) -> io::Result<bool>;

    /// Opens a regular file and gives its size; `ENOENT` for anything else.
    fn open(&self, path: &str) -> io::Result<(Self::File, u64)>;
    fn read_at(&self, file: &Self::File, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The size of a regular file; `ENOENT` for anything else.
    fn size(&self, path: &str) -> io::Result<u64>;
    /// Whether there is no entry of this name. `ENOENT` from other calls does not say so: a name
    /// may exist, or begin with one that exists, and lead nowhere.
    fn is_absent(&self, path: &str) -> io::Result<bool>;
}
