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
//! - What cannot be set costs nothing else: the rest is set all the same. What this file system or
//!   user cannot have at all is told once per name; want of room and faults of the device are told
//!   each time, and count as errors.
//! - Attributes and access control lists that are there, but not in the snapshot, are removed, in
//!   all namespaces but for labels that the kernel keeps; none of an item some of whose
//!   attributes could not be saved.
//!
//! Names are looked up only with privilege: without it owners cannot be given away at all.

use super::Without;
use super::subject::Subject;
use super::target::Directory;
use crate::file_systems::proc_error;
use crate::job::Job;
use crate::stub;
use crate::tree::path;
use onefold_format::node::{Entry, Owner, Time};
use onefold_types::Error;
use rustix::fs::{FileType, Gid, Stat, Uid};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
/// Labels that the kernel gives every item by its own rules.
const LABELS: [&[u8]; 3] = [b"security.selinux", b"security.SMACK64", b"security.apparmor"];
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
    /// Whether it had others that could not be saved.
    pub lacks_some: bool,
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
    errors: AtomicU64,
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
            errors: AtomicU64::new(0),
        }
    }

    /// Whether owners can be given away.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// How often something could not be set for want of room, or because of the device.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Sets everything on an open file or directory.
    pub fn apply(
        &self,
        handle: BorrowedFd<'_>,
        wanted: &Attributes,
        present: Present,
        path: &dyn Fn() -> String,
    ) {
        self.apply_to(&Subject::Open(handle), wanted, present, path);
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
    ) {
        let subject = Subject::named(directory, name, is_symlink);
        self.apply_to(&subject, wanted, present, path);
    }

    fn apply_to(
        &self,
        subject: &Subject<'_>,
        wanted: &Attributes,
        present: Present,
        path: &dyn Fn() -> String,
    ) {
        let (uid, gid) = self.wanted_owner(wanted, present);
        let mut mode = self.wanted_mode(wanted, present);
        if uid.is_some() || gid.is_some() {
            let changed = subject.set_owner(uid, gid);
            if !self.owner_set(changed, path) {
                mode &= !SET_ID_BITS;
            }
        }
        if present.attributes && !wanted.lacks_some {
            self.remove_others(subject, wanted, path);
        }
        for (name, value) in self.wanted_xattrs(wanted) {
            self.set(name, subject.set(name, value), path);
        }
        self.set(b"mode", subject.set_mode(mode), path);
        self.set(b"modification time", subject.set_modified(wanted.modified), path);
    }

    /// Whether setting everything would change anything of an item that is there, as far as this
    /// user can set it.
    pub fn would_change(
        &self,
        directory: BorrowedFd<'_>,
        (name, there): (&[u8], &Stat),
        wanted: &Attributes,
    ) -> bool {
        let is_symlink = FileType::from_raw_mode(there.st_mode).is_symlink();
        let subject = Subject::named(directory, name, is_symlink);
        let present = Present::existing(there);
        let has_other_owner = match self.wanted_owner(wanted, present) {
            (uid, Some(gid)) => uid.is_some() || self.privileged || is_mine(gid),
            (uid, None) => uid.is_some(),
        };
        let mode = self.wanted_mode(wanted, present);
        let modified = (there.st_mtime, u32::try_from(there.st_mtime_nsec).ok());
        has_other_owner
            || (!is_symlink && there.st_mode & MODE_BITS != mode)
            || modified != (wanted.modified.seconds, Some(wanted.modified.nanoseconds))
            || self.would_change_xattrs(&subject, wanted)
    }

    fn would_change_xattrs(&self, subject: &Subject<'_>, wanted: &Attributes) -> bool {
        let differs = |(name, value): (&Vec<u8>, &Vec<u8>)| match subject.get(name) {
            Ok(found) => found != *value,
            // There are none of this kind there.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => false,
            // Without privilege only these can be set.
            Err(_) => self.privileged || name.starts_with(b"user.") || name.starts_with(b"system."),
        };
        let has_others = !wanted.lacks_some
            && subject.names().unwrap_or_default().iter().any(|name| self.is_other(name, wanted));
        has_others || self.wanted_xattrs(wanted).any(differs)
    }

    /// Gives a file that is to take the place of another one the attributes of that which the
    /// snapshot knows nothing of.
    pub fn take_over(
        &self,
        directory: &Directory,
        name: &[u8],
        file: &File,
        wanted: &Attributes,
        path: &dyn Fn() -> String,
    ) {
        let Ok(handle) = directory.handle() else {
            return;
        };
        let (there, file) = (Subject::named(handle.as_fd(), name, false), file.as_fd());
        for name in there.names().unwrap_or_default() {
            if self.is_other(&name, wanted)
                && let Ok(value) = there.get(&name)
            {
                self.set(&name, Subject::Open(file).set(&name, &value), path);
            }
        }
    }

    /// Removes what the snapshot does not have. What makes a file a stub is none of that: without
    /// it the file is zeros, so it only goes once the data is there (see `output`).
    fn remove_others(&self, subject: &Subject<'_>, wanted: &Attributes, path: &dyn Fn() -> String) {
        let names = match subject.names() {
            Ok(names) => names,
            // The file system has none, or this user may not know of them.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => return,
            Err(errno) => return self.set(b"attributes that are there", Err(errno), path),
        };
        for name in names.iter().filter(|name| self.is_other(name, wanted)) {
            let removed = match subject.remove(name) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            };
            let gives_rights = [ACCESS_LIST, DEFAULT_LIST, CAPABILITY].contains(&name.as_slice());
            match removed {
                Err(errno) if gives_rights => self.tell_of_right(name, errno, path),
                // What the kernel keeps there by itself.
                Err(_) if name.starts_with(b"security.") => {}
                removed => self.set(name, removed, path),
            }
        }
    }

    fn is_other(&self, name: &[u8], wanted: &Attributes) -> bool {
        let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        let is_ours = prefixes.iter().any(|prefix| name.starts_with(prefix))
            || name == ACCESS_LIST
            || name == DEFAULT_LIST;
        let stays = name.starts_with(stub::ATTRIBUTE.as_bytes())
            || LABELS.iter().any(|label| name.starts_with(label));
        is_ours && !stays && !self.wanted_xattrs(wanted).any(|(wanted, _)| wanted == name)
    }

    /// Who has more rights than the snapshot gives is told of each time.
    fn tell_of_right(&self, name: &[u8], errno: Errno, path: &dyn Fn() -> String) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let name = crate::tree::path::display(name);
        let what = format!("removing '{name}', which the snapshot does not have");
        self.job.observer.problem(&path(), &Error::io(what, errno.into()));
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
    fn owner_set(&self, changed: rustix::io::Result<()>, path: &dyn Fn() -> String) -> bool {
        if matches!(changed, Err(Errno::PERM | Errno::INVAL)) && !self.privileged {
            return false;
        }
        self.set(b"owner", changed, path);
        changed.is_ok()
    }

    /// Takes the result of setting what `name` says.
    fn set(&self, name: &[u8], result: rustix::io::Result<()>, path: &dyn Fn() -> String) {
        let Err(errno) = result else {
            return;
        };
        let what = path::display(name);
        let is_of_this_item = matches!(
            errno,
            Errno::NOSPC
                | Errno::DQUOT
                | Errno::TOOBIG
                | Errno::RANGE
                | Errno::IO
                | Errno::ROFS
                | Errno::NOENT
                | Errno::LOOP
        );
        let what = match is_of_this_item {
            true => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                format!("setting '{what}'")
            }
            false => {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if !told.insert(name.to_vec()) {
                    return;
                }
                format!("'{what}' cannot be set here (told only once)")
            }
        };
        self.job.observer.problem(&path(), &proc_error(what, errno));
    }
}

/// Whether this process is in a group, so that its user may give his files to it.
pub fn is_mine(group: Gid) -> bool {
    rustix::process::getegid() == group
        || rustix::process::getgroups().unwrap_or_default().contains(&group)
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
            lacks_some: entry.lacks_attributes,
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
