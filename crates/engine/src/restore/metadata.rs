//! Owners, modes, extended attributes and times.
//!
//! Order matters and is the same for all kinds: owner (which clears set-id bits and capabilities),
//! extended attributes (which need write permission), modification time, mode last (which an access
//! control list would change, and which says that the item is finished).
//!
//! - The owner is found by name if the snapshot names it and the name is known here, else by
//!   number; where numbers alone are asked for, always by number.
//! - Without privilege the group is set where the system allows it; set-id bits and capabilities
//!   are dropped if owner or group could not be had, or were not to be restored.
//! - Where the file system is not known to keep what is set, or a time may be beyond what it can
//!   hold, each item is looked at once more (see `unkept`).
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
use super::unkept::UnkeptAttributes;
use crate::file_systems::proc_error;
use crate::job::Job;
use crate::stub;
use crate::tree::path;
use onefold_format::node::{Entry, EntryKind, Owner, Time};
use onefold_types::{Error, Result};
use rustix::fs::{FileType, Gid, Stat, Uid};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
/// Labels that the kernel gives every item by its own rules.
const LABELS: [&[u8]; 3] = [b"security.selinux", b"security.SMACK64", b"security.apparmor"];
const SET_ID_BITS: u32 = 0o6000;
const SET_GROUP_ID: u32 = 0o2000;
const MODE_BITS: u32 = 0o7777;

/// What an item is to have.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Whether it is a directory.
    pub is_directory: bool,
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
    /// Whether it is known to keep what is set.
    pub keeps: bool,
}

impl Present {
    /// What `stat` says of an item that was there before in a directory.
    #[must_use]
    pub fn existing(stat: &Stat, directory: &Directory) -> Self {
        let keeps = directory.keeps_attributes(stat.st_dev);
        Self { uid: stat.st_uid, gid: stat.st_gid, attributes: true, keeps }
    }

    /// What an item has that was just made in a directory.
    #[must_use]
    pub fn fresh(directory: &Directory) -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: directory.group_of_new,
            attributes: directory.inherits_acl,
            keeps: directory.keeps_attributes(directory.identity().0),
        }
    }
}

/// Whether an item gets what gives power: it has the owner and the group that the snapshot names.
#[derive(Clone, Copy, Default)]
struct Granted {
    owner: bool,
    group: bool,
}

/// Sets attributes; shared by all workers.
pub struct Applier {
    privileged: bool,
    without: Without,
    job: Job,
    told: Mutex<BTreeSet<Vec<u8>>>,
    errors: AtomicU64,
    unkept: Mutex<UnkeptAttributes>,
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
            unkept: Mutex::default(),
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
        let mut granted = self.granted(wanted, present);
        let (uid, gid) = self.wanted_owner(wanted, present);
        if uid.is_some() || gid.is_some() {
            let changed = subject.set_owner(uid, gid);
            if !self.owner_set(changed, path) {
                granted = Granted::default();
            }
        }
        if present.attributes && !wanted.lacks_some {
            self.remove_others(subject, wanted, granted, path);
        }
        for (name, value) in self.wanted_xattrs(wanted, granted) {
            self.set(name, subject.set(name, value), path);
        }
        let has_time = self.set(b"modification time", subject.set_modified(wanted.modified), path);
        // This takes away the mark of what is not finished.
        let mode = self.wanted_mode(wanted, granted);
        let has_mode = self.set(b"mode", subject.set_mode(mode), path);
        if present.keeps && (0..=i64::from(i32::MAX)).contains(&wanted.modified.seconds) {
            return;
        }
        let Ok(stat) = subject.stat() else {
            return;
        };
        if has_time && stat.st_mtime != wanted.modified.seconds {
            let seconds = stat.st_mtime;
            let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
            self.unkept().times.note(path, Time { seconds, nanoseconds }, wanted.modified);
        }
        if !present.keeps {
            self.look_again(subject, wanted, (granted, has_mode.then_some(mode)), &stat, path);
        }
    }

    /// Compares mode and owner with what was set without an error.
    fn look_again(
        &self,
        subject: &Subject<'_>,
        wanted: &Attributes,
        (granted, mode): (Granted, Option<u32>),
        stat: &Stat,
        path: &dyn Fn() -> String,
    ) {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let has = stat.st_mode & MODE_BITS;
        if let Some(mode) = mode.filter(|mode| !kind.is_symlink() && has != *mode) {
            self.unkept().modes.note(path, has, mode);
        }
        let is_others = (granted.owner && stat.st_uid != wanted.uid)
            || (granted.group && stat.st_gid != wanted.gid);
        if !is_others {
            return;
        }
        if !self.without.owners {
            let (has, was) = ((stat.st_uid, stat.st_gid), (wanted.uid, wanted.gid));
            self.unkept().owners.note(path, has, was);
        }
        // What was granted to one owner is not for another one.
        if kind.is_file() && has & SET_ID_BITS != 0 {
            self.set(b"mode", subject.set_mode(has & !SET_ID_BITS), path);
        }
        if wanted.xattrs.iter().any(|(name, _)| name == CAPABILITY) {
            let _ = subject.remove(CAPABILITY);
        }
    }

    /// What the target did not keep, so far.
    pub fn unkept(&self) -> MutexGuard<'_, UnkeptAttributes> {
        self.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether setting everything would change anything of an item that is there, as far as this
    /// user can set it.
    pub fn would_change(
        &self,
        directory: &Directory,
        (name, there): (&[u8], &Stat),
        wanted: &Attributes,
    ) -> Result<bool> {
        let is_symlink = FileType::from_raw_mode(there.st_mode).is_symlink();
        let handle = directory.handle()?;
        let subject = Subject::named(handle.as_fd(), name, is_symlink);
        let present = Present::existing(there, directory);
        let granted = self.granted(wanted, present);
        let has_other_owner = match self.wanted_owner(wanted, present) {
            (uid, Some(gid)) => uid.is_some() || self.privileged || is_mine(gid),
            (uid, None) => uid.is_some(),
        };
        let mode = self.wanted_mode(wanted, granted);
        let modified = (there.st_mtime, u32::try_from(there.st_mtime_nsec).ok());
        Ok(has_other_owner
            || (!is_symlink && there.st_mode & MODE_BITS != mode)
            || modified != (wanted.modified.seconds, Some(wanted.modified.nanoseconds))
            || self.would_change_xattrs(&subject, wanted, granted))
    }

    fn would_change_xattrs(
        &self,
        subject: &Subject<'_>,
        wanted: &Attributes,
        granted: Granted,
    ) -> bool {
        let differs = |(name, value): (&Vec<u8>, &Vec<u8>)| match subject.get(name) {
            Ok(found) => found != *value,
            // There are none of this kind there.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => false,
            // Without privilege only these can be set.
            Err(_) => self.privileged || name.starts_with(b"user.") || name.starts_with(b"system."),
        };
        let is_other = |name: &Vec<u8>| self.is_other(name, wanted, granted);
        let has_others =
            !wanted.lacks_some && subject.names().unwrap_or_default().iter().any(is_other);
        has_others || self.wanted_xattrs(wanted, granted).any(differs)
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
            if self.is_other(&name, wanted, Granted { owner: true, group: true })
                && let Ok(value) = there.get(&name)
            {
                self.set(&name, Subject::Open(file).set(&name, &value), path);
            }
        }
    }

    /// Removes what the snapshot does not have. What makes a file a stub is none of that: without
    /// it the file is zeros, so it only goes once the data is there (see `output`).
    fn remove_others(
        &self,
        subject: &Subject<'_>,
        wanted: &Attributes,
        granted: Granted,
        path: &dyn Fn() -> String,
    ) {
        let names = match subject.names() {
            Ok(names) => names,
            // The file system has none, or this user may not know of them.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => return,
            Err(errno) => {
                self.set(b"attributes that are there", Err(errno), path);
                return;
            }
        };
        for name in names.iter().filter(|name| self.is_other(name, wanted, granted)) {
            let removed = match subject.remove(name) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            };
            let gives_rights = [ACCESS_LIST, DEFAULT_LIST, CAPABILITY].contains(&name.as_slice());
            match removed {
                Err(errno) if gives_rights => self.tell_of_right(name, errno, path),
                // What the kernel keeps there by itself.
                Err(_) if name.starts_with(b"security.") => {}
                removed => {
                    self.set(name, removed, path);
                }
            }
        }
    }

    fn is_other(&self, name: &[u8], wanted: &Attributes, granted: Granted) -> bool {
        let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        let is_ours = prefixes.iter().any(|prefix| name.starts_with(prefix))
            || name == ACCESS_LIST
            || name == DEFAULT_LIST;
        let stays = name.starts_with(stub::ATTRIBUTE.as_bytes())
            || LABELS.iter().any(|label| name.starts_with(label));
        is_ours && !stays && !self.wanted_xattrs(wanted, granted).any(|(wanted, _)| wanted == name)
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

    /// What gives power is for the owner and the group that the snapshot names, and for nobody
    /// else.
    fn granted(&self, wanted: &Attributes, present: Present) -> Granted {
        let sets = !self.without.owners;
        Granted {
            owner: (self.privileged && sets) || present.uid == wanted.uid,
            group: sets || present.gid == wanted.gid,
        }
    }

    /// The mode, without what is not granted. Of a directory the set-group-id bit stays, whatever
    /// its group: it has new items belong to that group, and gives nobody any power.
    fn wanted_mode(&self, wanted: &Attributes, granted: Granted) -> u32 {
        let mut bits = MODE_BITS;
        if !granted.owner {
            bits &= !SET_ID_BITS;
        }
        if !granted.group {
            bits &= !SET_GROUP_ID;
        }
        if wanted.is_directory {
            bits |= SET_GROUP_ID;
        }
        if self.without.set_ids {
            bits &= !SET_ID_BITS;
        }
        wanted.mode & bits
    }

    fn wanted_xattrs<'a>(
        &self,
        wanted: &'a Attributes,
        granted: Granted,
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> + use<'a> {
        let without = self.without.set_ids || !granted.owner;
        let named = wanted.xattrs.iter().map(|(name, value)| (name, value));
        named.filter(move |(name, _)| !(without && name.as_slice() == CAPABILITY))
    }

    /// Whether owner and group are as wanted; what is not allowed without privilege is no error.
    fn owner_set(&self, changed: rustix::io::Result<()>, path: &dyn Fn() -> String) -> bool {
        if matches!(changed, Err(Errno::PERM | Errno::INVAL)) && !self.privileged {
            return false;
        }
        self.set(b"owner", changed, path)
    }

    /// Takes the result of setting what `name` says; tells whether it was set.
    fn set(&self, name: &[u8], result: rustix::io::Result<()>, path: &dyn Fn() -> String) -> bool {
        let Err(errno) = result else {
            return true;
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
                    return false;
                }
                format!("'{what}' cannot be set here (told only once)")
            }
        };
        self.job.observer.problem(&path(), &proc_error(what, errno));
        false
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
            is_directory: entry.kind == EntryKind::Directory,
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
