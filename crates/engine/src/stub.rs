//! Stubs: files whose data is in the store, and that are files all the same (ATC'12, "file stub").
//!
//! | module | holds |
//! | --- | --- |
//! | this | the attribute that makes a file a stub: written, read, taken away |
//! | `job_lock` | who writes for programs waits for a job that is at the file |
//! | [`stub_file`] | a stub's bytes: read, recalled, written, cut |
//! | [`times`] | when its file was changed last, while somebody works on it |
//! | [`permissions`] | what its owner does to it whatever its permissions are |
//!
//! The attribute is sealed for one share and one inode. So a copy of it on another file is no stub
//! of that file, and nobody gets at data of others by setting attributes.

use crate::file_systems::proc_error;
use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::stub::{self, Stub, StubOwner};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, StoreId};
use rustix::fs::{AtFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

mod job_lock;
pub mod permissions;
pub mod stub_file;
pub mod times;

pub use job_lock::{JOB_WAIT, wait_for_job};
pub use stub_file::StubFile;

/// What is Onefold's in the directory of a share.
pub const CONTROL: &str = ".onefold-share";
/// What a share says about itself: a directory of that name without it is anybody's.
pub const DESCRIPTION: &str = "share.json";
/// The attribute of a file that is a stub.
pub const ATTRIBUTE: &str = "user.onefold.stub";
/// How the kernel names file systems that programs serve.
const FUSE_MAGIC: u64 = 0x6573_5546;
/// More than any stub takes.
const VALUE_MAX_BYTES: usize = 4096;

/// The stub of an open file, as it is stored; `None` if the file is none.
pub fn value(file: impl AsFd) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; VALUE_MAX_BYTES];
    let ask = || rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut value[..]);
    let read = permissions::as_owner(&file, ask);
    taken(read, value)
}

/// The same of what is open, if only to be looked at.
pub fn value_of_item(item: impl AsFd) -> Result<Option<Vec<u8>>> {
    let path = format!("/proc/self/fd/{}", item.as_fd().as_raw_fd());
    let mut value = vec![0; VALUE_MAX_BYTES];
    let read = rustix::fs::getxattr(path, ATTRIBUTE, &mut value[..]);
    taken(read, value)
}

/// The same of the file at a path, which is not followed if it is a link.
pub fn value_at(path: &Path) -> Result<Option<Vec<u8>>> {
    value_named(path, ATTRIBUTE)
}

/// What the mount of a share of this store says of a stub of which nothing came back into the file.
/// To backups into other stores, and to anybody else, a mounted stub is an ordinary file.
pub fn served_value_at(path: &Path, store: StoreId) -> Result<Option<Vec<u8>>> {
    value_named(path, &served_attribute(store))
}

/// What it says that by.
#[must_use]
pub fn served_attribute(store: StoreId) -> String {
    format!("{ATTRIBUTE}.{store}")
}

/// Whether the directory at a path, from an open one on, has one of a share's own, or one that
/// cannot be told from it.
pub fn has_control(directory: impl AsFd, path: &Path) -> bool {
    let description = path.join(CONTROL).join(DESCRIPTION);
    match rustix::fs::statat(directory, &description, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => true,
        Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR),
    }
}

/// Whether what is open is on a file system that a program serves, such as a mounted share.
pub fn is_served(open: impl AsFd) -> bool {
    rustix::fs::fstatfs(open).is_ok_and(|found| found.f_type as u64 == FUSE_MAGIC)
}

/// The path of a file in an open directory.
#[must_use]
pub fn by_handle(directory: &OwnedFd, name: &OsStr) -> PathBuf {
    let mut path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    path.push(name);
    path
}

fn value_named(path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; VALUE_MAX_BYTES];
    let read = rustix::fs::lgetxattr(path, name, &mut value[..]);
    taken(read, value)
}

fn taken(read: Result<usize, Errno>, mut value: Vec<u8>) -> Result<Option<Vec<u8>>> {
    match read {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        // There is none, none can be here, or it may not be asked for: a device, a foreign link.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::BADF) => Ok(None),
        Err(Errno::RANGE) => Err(Error::damaged("the stub is longer than any can be")),
        Err(errno) => Err(proc_error("it could not be read", errno)),
    }
}

/// Whether a file of so many bytes is what the store has of it and nothing else: nothing came back
/// into it, and nothing was cut off or appended.
#[must_use]
pub fn is_all(stub: &Stub, file_bytes: u64) -> bool {
    stub.is_untouched() && stub.size == file_bytes
}

/// Opens the stub of the file with this inode number.
///
/// Errors: `Damaged` if it is of another file, or of none of this store.
pub fn open(repository: &Repository, inode: u64, value: &[u8]) -> Result<(StubOwner, Stub)> {
    let (owner, stub) = open_copied(repository, value)?;
    if owner.inode != inode {
        return Err(Error::damaged(
            "it is a stub of another file, from which it was copied without its data; 'onefold \
             share repair' of its directory brings the data back",
        ));
    }
    Ok((owner, stub))
}

/// Opens a stub, whichever file of the store's shares it belongs to.
///
/// Errors: `Damaged` if it is none of this store.
pub fn open_copied(repository: &Repository, value: &[u8]) -> Result<(StubOwner, Stub)> {
    let (owner, sealed) = stub::split(value)?;
    let opened = repository.vault().open_record(Purpose::Stub, &name_of(owner), sealed);
    let body = opened.map_err(|error| match error.kind() {
        ErrorKind::Damaged => Error::damaged(
            "it is a stub of another store, and its data is not here; read it where its share is \
             mounted",
        ),
        _ => error,
    })?;
    Ok((owner, Stub::decode(&body)?))
}

/// Makes a file a stub, or changes what its stub says. It has taken effect, and is not durable.
pub fn write(
    repository: &Repository,
    owner: StubOwner,
    file: impl AsFd,
    stub: &Stub,
) -> Result<()> {
    let randomness = &*repository.environment().randomness;
    let vault = repository.vault();
    let sealed = vault.seal_record(Purpose::Stub, &name_of(owner), &stub.encode(), randomness)?;
    let value = stub::join(owner, &sealed);
    let set = || rustix::fs::fsetxattr(&file, ATTRIBUTE, &value, XattrFlags::empty());
    permissions::as_owner(&file, set).map_err(std::io::Error::from).context(|| "writing the stub")
}

/// Makes a stub an ordinary file.
pub fn remove(file: impl AsFd) -> Result<()> {
    match permissions::as_owner(&file, || rustix::fs::fremovexattr(&file, ATTRIBUTE)) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(Error::io("taking the stub away", errno.into())),
    }
}

/// What a stub is sealed for.
fn name_of(owner: StubOwner) -> [u8; 16] {
    let mut name = owner.share.0;
    for (byte, of_inode) in name.iter_mut().zip(owner.inode.to_le_bytes()) {
        *byte ^= of_inode;
    }
    name
}
