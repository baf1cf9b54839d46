//! Requests that make, move and remove names.

use super::Answer;
use super::below::{self, Status, failed};
use super::nodes::TOP;
use super::open_files::{OpenInode, Opening};
use super::served::Served;
use fuser::{Errno, FileType, RenameFlags, Request};
use onefold_engine::primary::share::{CONTROL, Held, OPEN, open_directory};
use onefold_engine::stub;
use onefold_types::ErrorKind;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// The bit of a directory whose items get its group.
const SETGID: u32 = 0o2000;
/// What a new item of a directory gets, if there is one.
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// What becomes of a new name.
pub enum New<'a> {
    /// A directory.
    Directory,
    /// A symbolic link to a path.
    Link(&'a Path),
    /// A device, pipe, socket or file, by its mode and number.
    Node(u32, u32),
}

impl Served {
    fn refuse_control(&self, parent: u64, name: &OsStr) -> Answer<()> {
        match parent == TOP && name == CONTROL {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }

    pub(super) fn look_up(&self, parent: u64, name: &OsStr) -> Answer<(u64, Status)> {
        if parent == TOP && name == CONTROL {
            return Err(Errno::ENOENT);
        }
        let directory = self.nodes.directory(parent)?;
        let status = self.timed(
            |status| self.nodes.number_of(status),
            || below::status_at(directory.as_fd(), name),
            || stub::value_at(&below::path_in(directory.as_fd(), name)).ok().flatten(),
        )?;
        Ok((self.nodes.remember(&status, parent, name), status))
    }

    pub(super) fn link_target(&self, number: u64) -> Answer<Vec<u8>> {
        let item = self.nodes.item(number)?;
        let target = rustix::fs::readlinkat(item, "", Vec::new()).map_err(failed)?;
        Ok(target.into_bytes())
    }

    /// The mode of a new item: what the directory says for all of them comes before the program's
    /// own mask.
    fn mode_of_new(&self, directory: &OwnedFd, mode: u32, mask: u32) -> Mode {
        let path = below::path_of(directory.as_fd());
        let has_default = rustix::fs::getxattr(path, DEFAULT_ACL, &mut [0; 0]).is_ok();
        Mode::from_raw_mode(if has_default { mode } else { mode & !mask } & 0o7777)
    }

    /// A new item belongs to whoever asked for it.
    fn give(&self, request: &Request, directory: &OwnedFd, item: BorrowedFd<'_>) -> Answer<()> {
        if !self.may_give {
            return Ok(());
        }
        let above = below::status_of(directory.as_fd())?;
        let gid = match above.mode & SETGID {
            0 => Some(Gid::from_raw(request.gid())),
            _ => None,
        };
        let made = below::status_of(item)?;
        let uid = Some(Uid::from_raw(request.uid()));
        rustix::fs::chownat(item, "", uid, gid, AtFlags::EMPTY_PATH).map_err(failed)?;
        // Giving it away takes these permissions from it.
        if made.mode & 0o6000 != 0 && made.attributes.kind != FileType::Symlink {
            let mode = Mode::from_raw_mode(made.mode & 0o7777);
            let path = below::path_of(item);
            rustix::fs::chmodat(rustix::fs::CWD, path, mode, AtFlags::empty()).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn make(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        (mode, mask): (u32, u32),
        new: &New<'_>,
    ) -> Answer<(u64, Status)> {
        self.refuse_control(parent, name)?;
        let directory = self.nodes.directory(parent)?;
        let permissions = self.mode_of_new(&directory, mode, mask);
        match new {
            New::Directory => rustix::fs::mkdirat(&directory, name, permissions),
            New::Link(target) => rustix::fs::symlinkat(*target, &directory, name),
            New::Node(mode, device) => {
                let kind = rustix::fs::FileType::from_raw_mode(*mode);
                let device = u64::from(*device);
                let device = rustix::fs::makedev((device >> 8 & 0xfff) as u32, minor(device));
                rustix::fs::mknodat(&directory, name, kind, permissions, device)
            }
        }
        .map_err(failed)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let item = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(failed)?;
        self.give(request, &directory, item.as_fd())?;
        self.look_up(parent, name)
    }

    /// Makes a file, or finds the one that is there. One that is made is open: its permissions may
    /// forbid to open it once more.
    pub(super) fn create(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        (mode, mask): (u32, u32),
        flags: i32,
    ) -> Answer<(u64, Status, Option<File>)> {
        self.refuse_control(parent, name)?;
        let directory = self.nodes.directory(parent)?;
        let permissions = self.mode_of_new(&directory, mode, mask);
        let asked = OFlags::from_bits_retain(flags as u32);
        let make = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let synced = asked & (OFlags::SYNC | OFlags::DSYNC);
        match rustix::fs::openat(&directory, name, make | synced, permissions) {
            Ok(made) => {
                self.give(request, &directory, made.as_fd())?;
                let status = below::status_of(made.as_fd())?;
                let number = self.nodes.remember(&status, parent, name);
                Ok((number, status, Some(File::from(made))))
            }
            Err(rustix::io::Errno::EXIST) if !asked.contains(OFlags::EXCL) => {
                self.look_up(parent, name).map(|(number, status)| (number, status, None))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// What has a name now: its number, and whether it is a stub or a directory.
    fn named(&self, directory: &OwnedFd, name: &OsStr) -> Answer<Named> {
        let status = below::status_at(directory.as_fd(), name)?;
        let number = self.nodes.number_of(&status);
        let is_stub = match status.attributes.kind {
            FileType::RegularFile => {
                match stub::value_at(&below::path_in(directory.as_fd(), name)) {
                    // Its owner may do that all the same. What may be a stub is treated as one.
                    Err(error) if error.kind() == ErrorKind::NotPermitted => true,
                    value => value.map_err(|error| self.failed(number, &error))?.is_some(),
                }
            }
            _ => false,
        };
        let is_directory = status.attributes.kind == FileType::Directory;
        Ok(Named { number, is_stub, is_directory, links: status.attributes.nlink })
    }

    /// The same of what is about to lose that name. Nobody opens it first meanwhile, who would not
    /// be seen and would be left without its data.
    fn losing(&self, directory: &OwnedFd, name: &OsStr) -> Answer<(Opening<'_>, Named)> {
        let status = below::status_at(directory.as_fd(), name)?;
        let opening = self.open.opening(self.nodes.number_of(&status));
        let named = self.named(directory, name)?;
        match named.number == self.nodes.number_of(&status) {
            true => Ok((opening, named)),
            // Somebody has put something else there, below the mount.
            false => Err(Errno::ESTALE),
        }
    }

    /// Whether what has a name is being opened or closed just now, which may wait for the store.
    pub(super) fn is_being_opened(&self, parent: u64, name: &OsStr) -> bool {
        let found = self.nodes.directory(parent).and_then(|directory| {
            let status = below::status_at(directory.as_fd(), name)?;
            Ok(self.nodes.number_of(&status))
        });
        found.is_ok_and(|number| self.open.is_opening(number))
    }

    /// Takes the last name of a stub that is open away: its data is needed until it is closed.
    fn hide_if_open(&self, directory: &OwnedFd, name: &OsStr, named: &Named) -> Answer<bool> {
        let Some(open) = self.open_of_last_name(named) else { return Ok(false) };
        // A job that walks the share now may have been here, or there.
        let _moving = self.note_move(named)?;
        let hidden = self.unnamed_directory()?;
        let own = named.number.to_string();
        rustix::fs::renameat(directory, name, &hidden, own.as_str()).map_err(failed)?;
        open.set_unnamed();
        Ok(true)
    }

    /// What is open of a stub that has no other name.
    fn open_of_last_name(&self, named: &Named) -> Option<Arc<OpenInode>> {
        let is_last = named.is_stub && named.links == 1;
        let open = is_last.then(|| self.open.inode(named.number)).flatten();
        open.filter(|open| open.stub().is_some())
    }

    /// Gives a stub that is open another name, before its last one is given to another item.
    fn keep_if_open(&self, named: &Named) -> Answer<Option<Arc<OpenInode>>> {
        let Some(open) = self.open_of_last_name(named) else { return Ok(None) };
        let (hidden, own) = (self.unnamed_directory()?, named.number.to_string());
        let flags = AtFlags::SYMLINK_FOLLOW;
        let linked = open.with_file(|file| {
            let path = below::path_of(file.as_fd());
            rustix::fs::linkat(rustix::fs::CWD, path, &hidden, own.as_str(), flags)
        });
        linked.map_err(failed)?;
        Ok(Some(open))
    }

    fn unnamed_directory(&self) -> Answer<OwnedFd> {
        let control = self.share.control().map_err(|error| self.failed(TOP, &error))?;
        open_directory(&control, Path::new(OPEN)).map_err(|error| self.failed(TOP, &error))
    }

    /// Nobody has a stub open any more whose last name is gone.
    pub(super) fn remove_unnamed(&self, number: u64) {
        let removed = self.unnamed_directory().and_then(|hidden| {
            let own = number.to_string();
            rustix::fs::unlinkat(hidden, own.as_str(), AtFlags::empty()).map_err(failed)
        });
        if let Err(error) = removed {
            let told = format!("inode {number} was deleted and still takes room: {error:?}");
            self.problems.note(told);
        }
    }

    /// Puts a pending time of a stub back before it is named otherwise. `is_kept` says whether
    /// others are kept from opening it.
    fn settle_named(&self, directory: &OwnedFd, name: &OsStr, (named, is_kept): (&Named, bool)) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            named.is_stub.then(|| rustix::fs::openat(directory, name, flags, Mode::empty()));
        match (opened, is_kept) {
            (Some(Ok(item)), true) => self.settle_opened(named.number, item.as_fd()),
            (Some(Ok(item)), false) => self.settle_time(named.number, item.as_fd()),
            _ => {}
        }
    }

    pub(super) fn unlink(&self, parent: u64, name: &OsStr) -> Answer<()> {
        self.refuse_control(parent, name)?;
        let directory = self.nodes.directory(parent)?;
        let (_opening, named) = self.losing(&directory, name)?;
        if named.links > 1 {
            self.settle_named(&directory, name, (&named, true));
        }
        if !self.hide_if_open(&directory, name, &named)? {
            rustix::fs::unlinkat(&directory, name, AtFlags::empty()).map_err(failed)?;
        }
        self.nodes.remove_name(named.number, parent, name);
        Ok(())
    }

    pub(super) fn remove_directory(&self, parent: u64, name: &OsStr) -> Answer<()> {
        self.refuse_control(parent, name)?;
        let directory = self.nodes.directory(parent)?;
        let named = self.named(&directory, name)?;
        rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR).map_err(failed)?;
        self.nodes.remove_name(named.number, parent, name);
        Ok(())
    }

    /// Writes down that a stub or a directory is moved; held until it was.
    fn note_move(&self, named: &Named) -> Answer<Option<Held>> {
        if !named.is_stub && !named.is_directory {
            return Ok(None);
        }
        let noted = self.share.note_move();
        noted.map(Some).map_err(|error| self.failed(named.number, &error))
    }

    pub(super) fn rename(
        &self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: RenameFlags,
    ) -> Answer<()> {
        self.refuse_control(parent, name)?;
        self.refuse_control(new_parent, new_name)?;
        let (from, to) = (self.nodes.directory(parent)?, self.nodes.directory(new_parent)?);
        let moved = self.named(&from, name)?;
        self.settle_named(&from, name, (&moved, false));
        let kernel = rustix::fs::RenameFlags::from_bits(flags.bits()).ok_or(Errno::EINVAL)?;
        let exchanges = flags.contains(RenameFlags::RENAME_EXCHANGE);
        let is_there = match exchanges {
            true => self.named(&to, new_name).map(|there| (None, there)),
            false => self.losing(&to, new_name).map(|(opening, there)| (Some(opening), there)),
        };
        // Before the move is written down, which a job waits for.
        let (_opening, there) = match is_there {
            Ok((opening, there)) => (opening, Some(there)),
            Err(error) if error.code() == Errno::ENOENT.code() => (None, None),
            Err(error) => return Err(error),
        };
        if let Some(there) = &there
            && there.number != moved.number
        {
            self.settle_named(&to, new_name, (there, !exchanges));
        }
        let _moving = self.note_move(&moved)?;
        let (mut _moving_too, mut kept) = (None, None);
        if let Some(there) = &there {
            let is_kept = flags.contains(RenameFlags::RENAME_NOREPLACE);
            if exchanges {
                _moving_too = self.note_move(there)?;
            } else if !is_kept && there.number != moved.number {
                _moving_too = self.note_move(there)?;
                kept = self.keep_if_open(there)?;
            }
        }
        // Nothing is looked up by number until the new names are known.
        let _renaming = self.nodes.begin_renaming();
        let renamed = rustix::fs::renameat_with(&from, name, &to, new_name, kernel);
        match (&renamed, &kept) {
            (Ok(()), Some(open)) => open.set_unnamed(),
            // It has the name that it had.
            (Err(_), Some(open)) => self.remove_unnamed(open.number),
            _ => {}
        }
        renamed.map_err(failed)?;
        let is_same = there.as_ref().is_some_and(|there| there.number == moved.number);
        if is_same {
            // Two names of one file: the system leaves both.
            return Ok(());
        }
        self.nodes.remove_name(moved.number, parent, name);
        if let Some(there) = there {
            self.nodes.remove_name(there.number, new_parent, new_name);
            if exchanges {
                self.nodes.add_name(there.number, parent, name);
            }
        }
        self.nodes.add_name(moved.number, new_parent, new_name);
        Ok(())
    }

    pub(super) fn link(&self, number: u64, (parent, name): (u64, &OsStr)) -> Answer<(u64, Status)> {
        self.refuse_control(parent, name)?;
        let item = self.item(number)?;
        let path = below::path_of(item.as_fd());
        let asked = rustix::fs::getxattr(&path, stub::ATTRIBUTE, &mut [0; 0]);
        let is_stub = matches!(asked, Ok(_) | Err(rustix::io::Errno::ACCESS));
        let _moving = match is_stub {
            true => {
                self.settle_time(number, item.as_fd());
                let noted = self.share.note_move();
                Some(noted.map_err(|error| self.failed(number, &error))?)
            }
            false => None,
        };
        let directory = self.nodes.directory(parent)?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, path, &directory, name, flags).map_err(failed)?;
        self.look_up(parent, name)
    }

    /// The names in a directory, with numbers and kinds, the directory itself and the one above
    /// first.
    pub(super) fn list(&self, number: u64) -> Answer<Vec<Listed>> {
        let item = self.nodes.item(number)?;
        let path = below::path_of(item.as_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let mut listed = Vec::new();
        for entry in rustix::fs::Dir::read_from(&open).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if number == TOP && name == CONTROL.as_bytes() {
                continue;
            }
            let kind = below::kind(entry.file_type().as_raw_mode());
            listed.push(Listed { name: name.to_vec(), inode: entry.ino(), kind });
        }
        Ok(listed)
    }
}

/// What has a name.
struct Named {
    number: u64,
    is_stub: bool,
    is_directory: bool,
    links: u32,
}

/// One name of a directory.
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// Its inode below.
    pub inode: u64,
    /// What it is.
    pub kind: FileType,
}

/// The lower number of a device as the kernel packs both into 32 bits.
fn minor(device: u64) -> u32 {
    ((device & 0xff) | (device >> 12 & 0xfff00)) as u32
}
