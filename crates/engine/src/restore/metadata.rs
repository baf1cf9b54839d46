//! Owners, modes, extended attributes and times.
//!
//! Order matters and is the same for all kinds: owner (which clears set-id bits and capabilities),
//! extended attributes (which need write permission), mode (which an access control list would
//! change), modification time last.
//!
//! - The owner is found by name if the snapshot names it and the name is known here, else by
//!   number; where numbers alone are asked for, always by number.
//! - Without privilege the group is set where the system allows it; set-id bits are dropped if
//!   owner or group could not be had.
//! - An owner, mode, time or attribute that cannot be set here is told once per name and is no
//!   error: file systems differ.
//! - User attributes and access control lists that are there, but not in the snapshot, are removed.
//!
//! Names are looked up only with privilege: without it owners cannot be given away at all.

use super::Without;
use crate::job::Job;
use crate::stub;
use crate::tree::path;
use onefold_format::node::{Entry, Owner, Time};
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
const SET_ID_BITS: u32 = 0o6000;
const MODE_BITS: u32 = 0o7777;

/// What an item is to have.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Permission bits, set-id and sticky bits.
    pub mode: u32,
    /// Owner, as known here.
    pub uid: u32,
    /// Group, as known here.
    pub gid: u32,
    /// Modification time.
    pub modified: Time,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an item has already.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether it may have attributes that are not in the snapshot.
    pub attributes: bool,
}

impl Present {
    /// What `stat` says of an item that was there before.
    #[must_use]
    pub fn existing(stat: &Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid, attributes: true }
    }
}

/// Sets attributes; shared by all workers.
pub struct Applier {
    privileged: bool,
    without: Without,
    job: Job,
    told: Mutex<BTreeSet<Vec<u8>>>,
}

impl Applier {
    /// Problems go to the job's observer.
    #[must_use]
    pub fn new(job: &Job, without: Without) -> Self {
        Self {
            without,
            privileged: rustix::process::geteuid().is_root(),
            job: job.clone(),
            told: Mutex::default(),
        }
    }

    /// Whether owners can be given away.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// Sets everything on an open file or directory.
    pub fn apply(
        &self,
        handle: BorrowedFd<'_>,
        wanted: &Attributes,
        present: Present,
        path: &dyn Fn() -> String,
    ) -> Result<()> {
        let (uid, gid) = self.wanted_owner(wanted, present);
        let mut mode = self.wanted_mode(wanted, present);
        if uid.is_some() || gid.is_some() {
            let changed = rustix::fs::fchown(handle, uid, gid);
            if !self.owner_set(changed, path)? {
                mode &= !SET_ID_BITS;
            }
        }
        if present.attributes {
            remove_others(handle, wanted);
        }
        for (name, value) in self.wanted_xattrs(wanted) {
            let set = rustix::fs::fsetxattr(handle, name.as_slice(), value, XattrFlags::empty());
            self.set(name, set, path)?;
        }
        let set = rustix::fs::fchmod(handle, Mode::from_raw_mode(mode));
        self.set(b"mode", set, path)?;
        let set = rustix::fs::futimens(handle, &timestamps(wanted.modified));
        self.set(b"modification time", set, path)
    }

    /// Sets everything on an item that is not opened: a link, device, pipe or socket.
    pub fn apply_by_name(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        wanted: &Attributes,
        present: Present,
        is_symlink: bool,
        path: &dyn Fn() -> String,
    ) -> Result<()> {
        let (uid, gid) = self.wanted_owner(wanted, present);
        let mut mode = self.wanted_mode(wanted, present);
        if uid.is_some() || gid.is_some() {
            let no_follow = AtFlags::SYMLINK_NOFOLLOW;
            let changed = rustix::fs::chownat(directory, name, uid, gid, no_follow);
            if !self.owner_set(changed, path)? {
                mode &= !SET_ID_BITS;
            }
        }
        // The kernel has no way to set attributes relative to a directory; this path is one.
        let mut descriptor_path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
        descriptor_path.extend_from_slice(name);
        for (attribute, value) in self.wanted_xattrs(wanted) {
            let empty = XattrFlags::empty();
            let set = rustix::fs::lsetxattr(
                descriptor_path.as_slice(),
                attribute.as_slice(),
                value,
                empty,
            );
            self.set(attribute, set, path)?;
        }
        if !is_symlink {
            set_mode_by_name(directory, name, mode)?;
        }
        let times = timestamps(wanted.modified);
        let set = rustix::fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        self.set(b"modification time", set, path)
    }

    fn wanted_owner(&self, wanted: &Attributes, present: Present) -> (Option<Uid>, Option<Gid>) {
        if self.without.owners {
            return (None, None);
        }
        let uid = (self.privileged && present.uid != wanted.uid).then(|| Uid::from_raw(wanted.uid));
        let gid = (present.gid != wanted.gid).then(|| Gid::from_raw(wanted.gid));
        (uid, gid)
    }

    /// Set-id bits are for the owner that the snapshot names, and for nobody else.
    fn wanted_mode(&self, wanted: &Attributes, present: Present) -> u32 {
        let keeps_owner = self.privileged && !self.without.owners || present.uid == wanted.uid;
        match keeps_owner && !self.without.set_ids {
            true => wanted.mode & MODE_BITS,
            false => wanted.mode & MODE_BITS & !SET_ID_BITS,
        }
    }

    fn wanted_xattrs<'a>(
        &self,
        wanted: &'a Attributes,
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> + use<'a> {
        let without = self.without.set_ids;
        let named = wanted.xattrs.iter().map(|(name, value)| (name, value));
        named.filter(move |(name, _)| !(without && name.as_slice() == CAPABILITY))
    }

    /// Whether owner and group are as wanted; what is not allowed without privilege is no error.
    fn owner_set(
        &self,
        changed: rustix::io::Result<()>,
        path: &dyn Fn() -> String,
    ) -> Result<bool> {
        if matches!(changed, Err(Errno::PERM | Errno::INVAL)) && !self.privileged {
            return Ok(false);
        }
        self.set(b"owner", changed, path)?;
        Ok(changed.is_ok())
    }

    /// Takes the result of setting what `name` says. What this file system or user cannot have is
    /// told once; only faults of the device are errors.
    fn set(
        &self,
        name: &[u8],
        result: rustix::io::Result<()>,
        path: &dyn Fn() -> String,
    ) -> Result<()> {
        let Err(errno) = result else {
            return Ok(());
        };
        let what = path::display(name);
        if matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS | Errno::NOENT) {
            return Err(Error::io(format!("setting '{what}'"), errno.into()));
        }
        let first = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_vec());
        if first {
            let what = format!("'{what}' cannot be set here (told only once)");
            self.job.observer.problem(&path(), &Error::io(what, errno.into()));
        }
        Ok(())
    }
}

/// Sets the mode of an item that is neither opened nor followed if it is a link.
fn set_mode_by_name(directory: BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<()> {
    let wrong = |errno: Errno| Error::io("setting the mode", errno.into());
    let flags = rustix::fs::OFlags::PATH
        .union(rustix::fs::OFlags::NOFOLLOW)
        .union(rustix::fs::OFlags::CLOEXEC);
    let item = rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(wrong)?;
    let stat = rustix::fs::fstat(&item).map_err(wrong)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink() {
        return Err(Error::new(
            ErrorKind::Io,
            "the item was replaced by a link during the restore",
        ));
    }
    let descriptor_path = format!("/proc/self/fd/{}", item.as_fd().as_raw_fd());
    rustix::fs::chmod(descriptor_path, Mode::from_raw_mode(mode)).map_err(wrong)
}

/// Removes user attributes and access control lists that the snapshot does not have. What cannot
/// be removed is left: the file system has no such attributes, or the user no right to them. What
/// makes a file a stub is none of these: without it the file is zeros, so it only goes once the
/// data is there (see `output`).
fn remove_others(handle: BorrowedFd<'_>, wanted: &Attributes) {
    let mut list = Vec::new();
    if let Ok(length) = rustix::fs::flistxattr_query(handle) {
        list.resize(length, 0);
    }
    if list.is_empty() {
        return;
    }
    let Ok(length) = rustix::fs::flistxattr(handle, list.as_mut_slice()) else {
        return;
    };
    list.truncate(length);
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let ours = name.starts_with(b"user.") || name == ACCESS_LIST || name == DEFAULT_LIST;
        let known = wanted.xattrs.iter().any(|(wanted, _)| wanted == name);
        if ours && !known && name != stub::ATTRIBUTE.as_bytes() {
            let _ = rustix::fs::fremovexattr(handle, name);
        }
    }
}

fn timestamps(modified: Time) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    }
}

/// Owners and groups whose name and number mean different ones here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnersElsewhere {
    /// How many.
    pub count: u64,
    /// The first of them, in words.
    pub example: String,
}

/// Translates owners of a snapshot into owners here.
#[derive(Default)]
pub struct OwnerMap {
    by_name: bool,
    users: BTreeMap<u32, u32>,
    groups: BTreeMap<u32, u32>,
    known_users: HashMap<Vec<u8>, Option<u32>>,
    known_groups: HashMap<Vec<u8>, Option<u32>>,
    elsewhere: OwnersElsewhere,
}

impl OwnerMap {
    /// A map that looks at names if `by_name`.
    #[must_use]
    pub fn new(by_name: bool) -> Self {
        Self { by_name, ..Self::default() }
    }

    /// Takes over the names of one directory leaf. Numbers mean the same in a whole snapshot.
    pub fn learn(&mut self, users: &[Owner], groups: &[Owner]) {
        if !self.by_name {
            return;
        }
        for (id, name) in users {
            let known = *self.known_users.entry(name.clone()).or_insert_with(|| {
                uzers::get_user_by_name(OsStr::from_bytes(name)).map(|user| user.uid())
            });
            if self.users.insert(*id, known.unwrap_or(*id)).is_none() {
                let here = uzers::get_user_by_uid(*id);
                let here = here.as_ref().map(|user| user.name().as_bytes());
                self.elsewhere.compare("user", (*id, name), known, here);
            }
        }
        for (id, name) in groups {
            let known = *self.known_groups.entry(name.clone()).or_insert_with(|| {
                uzers::get_group_by_name(OsStr::from_bytes(name)).map(|group| group.gid())
            });
            if self.groups.insert(*id, known.unwrap_or(*id)).is_none() {
                let here = uzers::get_group_by_gid(*id);
                let here = here.as_ref().map(|group| group.name().as_bytes());
                self.elsewhere.compare("group", (*id, name), known, here);
            }
        }
    }

    /// The owners and groups that were met and have another number here.
    #[must_use]
    pub fn elsewhere(&self) -> OwnersElsewhere {
        self.elsewhere.clone()
    }

    /// The attributes that `entry` is to have here.
    #[must_use]
    pub fn attributes(&self, entry: &Entry) -> Attributes {
        Attributes {
            mode: entry.mode,
            uid: *self.users.get(&entry.uid).unwrap_or(&entry.uid),
            gid: *self.groups.get(&entry.gid).unwrap_or(&entry.gid),
            modified: entry.modified,
            xattrs: entry.xattrs.clone(),
        }
    }
}

impl OwnersElsewhere {
    /// Notes an owner of the snapshot, by the number that its name has here and the name that its
    /// number has here.
    fn compare(
        &mut self,
        kind: &str,
        (number, name): (u32, &[u8]),
        number_here: Option<u32>,
        name_here: Option<&[u8]>,
    ) {
        let shown = path::display(name);
        let example = match (number_here, name_here) {
            (Some(here), _) if here == number => return,
            (Some(here), _) => {
                format!("{kind} '{shown}' was {number} and is {here} here")
            }
            (None, Some(other)) => format!(
                "{kind} '{shown}' was {number}, is not known here, and {number} is '{}' here",
                path::display(other)
            ),
            (None, None) => return,
        };
        self.count += 1;
        if self.example.is_empty() {
            self.example = example;
        }
    }
}
