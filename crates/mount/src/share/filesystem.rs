//! The kernel's requests, handed to whoever answers them.
//!
//! # Concurrency
//! Requests are served by as many threads as the mount has. Locks are held for moments only; what
//! comes back into a stub is brought back by one thread for each stub. What may wait for the store
//! is answered by some of the threads only ([`AtStore`]); the others answer all else, whatever the
//! store does.
//!
//! # What the kernel keeps
//! Names and attributes for a second, pages of a stub as [`Pages`] says.

use super::Answer;
use super::at_store::AtStore;
use super::below::{self, Status};
use super::data::Change;
use super::directories::Directories;
use super::names::New;
use super::open_files::Data;
use super::opening::Now;
use super::pages::Pages;
use super::replies::{self, VALID};
use super::served::Served;
use crate::buffers::with_buffer;
use crate::problems::Problems;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use onefold_engine::primary::Share;
use onefold_engine::primary::reserve::Reserve;
use onefold_engine::tree::TreeReader;
use onefold_types::Result;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Threads for requests that need no store: one may wait for a job, the others never wait.
pub const FREE_THREADS: usize = 3;
/// Requests that the kernel lets wait which no program waits for: what it reads ahead of stubs is
/// not to keep it from reading other files.
const BACKGROUND_REQUESTS: u16 = 512;

/// A share, mounted.
pub struct ShareFilesystem {
    served: Arc<Served>,
    at_store: Arc<AtStore>,
    /// Requests that wait for jobs at most, and not behind those that wait for the store.
    at_jobs: Arc<AtStore>,
    passes_through: bool,
    directories: Directories,
}

impl ShareFilesystem {
    /// Shows a share, with so many threads at the store at once. Stubs that were deleted while a
    /// mount was killed are taken away.
    pub fn new(
        share: Share,
        tree: Arc<TreeReader>,
        problems: Problems,
        threads_at_store: usize,
    ) -> Result<Self> {
        Ok(Self {
            served: Arc::new(Served::new(share, tree, problems)?),
            at_store: Arc::new(AtStore::new(threads_at_store)),
            at_jobs: Arc::new(AtStore::new(1)),
            passes_through: false,
            directories: Directories::default(),
        })
    }

    /// What the kernel keeps, which is told when it is mounted.
    #[must_use]
    pub fn pages(&self) -> Arc<Pages> {
        Arc::clone(&self.served.pages)
    }

    /// The room that is set aside.
    #[must_use]
    pub fn reserve(&self) -> Arc<Reserve> {
        Arc::clone(&self.served.reserve)
    }

    /// By what this process is asked for the directory below.
    #[must_use]
    pub fn name(&self) -> String {
        self.served.handover.name().to_owned()
    }

    /// Answers what may wait for the store.
    fn at_store(&self, work: impl FnOnce(&Served) + Send + 'static) {
        let served = Arc::clone(&self.served);
        self.at_store.answer(move || work(&served));
    }

    /// Answers what may wait for the store if it does.
    fn answer(&self, may_wait: bool, work: impl FnOnce(&Served) + Send + 'static) {
        match may_wait {
            true => self.at_store(work),
            false => work(&self.served),
        }
    }

    fn reply_entry(&self, answer: Answer<(u64, Status)>, reply: ReplyEntry) {
        match answer {
            Ok((number, status)) => {
                reply.entry(&VALID, &self.served.told(number, &status), status.generation);
            }
            Err(error) => reply.error(error),
        }
    }
}

impl Filesystem for ShareFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        if let Err(error) = self.served.share.note_mounted() {
            self.served.problems.note(error.to_string());
        }
        // What the kernel does not know it does without.
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_background(BACKGROUND_REQUESTS);
        let can_pass = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        self.passes_through = can_pass && config.set_max_stack_depth(1).is_ok();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(self.served.look_up(parent.0, name), reply);
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.served.nodes.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.served.attributes(number.0) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, accessed, modified };
        let of = (number.0, handle.map(|handle| handle.0));
        // What is not open now is waited for, or it is a stub.
        let entered = match change.size.is_some() || change.modified.is_some() {
            true => self.served.enter_now(number.0, change.size.is_some()),
            false => Now::NoFile,
        };
        let may_wait = match &entered {
            Now::Entered(inode) => inode.stub().is_some(),
            Now::Waits => true,
            Now::NoFile => self.served.open.is_opening(number.0),
        };
        self.answer(may_wait, move |served| {
            let changed = served.change(of, &change);
            if matches!(entered, Now::Entered(_)) {
                served.leave(of.0);
            }
            match changed {
                Ok(attributes) => reply.attr(&VALID, &attributes),
                Err(error) => reply.error(error),
            }
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.served.link_target(number.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let new = New::Node(mode, device);
        self.reply_entry(self.served.make(request, (parent.0, name), (mode, mask), &new), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.served.make(request, (parent.0, name), (mode, mask), &New::Directory);
        self.reply_entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (may_wait, name) = (self.served.is_being_opened(parent.0, name), name.to_owned());
        self.answer(may_wait, move |served| {
            replies::empty(served.unlink(parent.0, &name), reply);
        });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        replies::empty(self.served.remove_directory(parent.0, name), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.served.make(request, (parent.0, name), (0o777, 0), &New::Link(target));
        self.reply_entry(made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let may_wait = self.served.is_being_opened(new_parent.0, new_name)
            || self.served.is_being_opened(parent.0, name);
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.answer(may_wait, move |served| {
            let (from, to) = ((parent.0, &*name), (new_parent.0, &*new_name));
            replies::empty(served.rename(from, to, flags), reply);
        });
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(self.served.link(number.0, (parent.0, name)), reply);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (passes_through, flags) = (self.passes_through, flags.0);
        let is_to_write = below::is_to_write(flags);
        match self.served.enter_now(number.0, is_to_write) {
            Now::Entered(inode) => {
                replies::opened(&self.served, passes_through, (Ok(inode), flags), reply);
            }
            _ => self.at_store(move |served| {
                let entered = served.enter(number.0, is_to_write);
                replies::opened(served, passes_through, (entered, flags), reply);
            }),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.served.create(request, (parent.0, name), (mode, mask), flags);
        let (number, status, made) = match created {
            Ok(created) => created,
            Err(error) => return reply.error(error),
        };
        let passes_through = self.passes_through;
        self.answer(made.is_none(), move |served| {
            let handle = match made {
                Some(made) => served
                    .enter_made(number, &made)
                    .map(|inode| Served::handle_of_made(inode, flags, made)),
                None => served
                    .enter(number, below::is_to_write(flags))
                    .and_then(|inode| replies::handle_of(served, passes_through, inode, flags)),
            };
            let handle = match handle {
                Ok(handle) => handle,
                Err(error) => {
                    served.nodes.forget(number, 1);
                    return reply.error(error);
                }
            };
            let inode = Arc::clone(&handle.inode);
            let handle = FileHandle(served.open.handle_for(handle));
            let attributes = served.told(number, &status);
            let generation = status.generation;
            let backing = replies::backing(passes_through, &inode, |file| reply.open_backing(file));
            match backing {
                Some(backing) => reply.created_passthrough(
                    &VALID,
                    &attributes,
                    generation,
                    handle,
                    FopenFlags::empty(),
                    backing,
                ),
                None => {
                    served.pages.settle(&inode);
                    let keeps = FopenFlags::FOPEN_KEEP_CACHE;
                    reply.created(&VALID, &attributes, generation, handle, keeps);
                }
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = offset.saturating_add(size.into());
        let may_wait = self.needs_store(handle.0, &(offset..end));
        self.answer(may_wait, move |served| {
            with_buffer(size, |buffer| match served.read(handle.0, offset, buffer) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(error) => reply.error(error),
            });
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let answer = |written: Answer<usize>| match written {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(error),
        };
        let end = offset.saturating_add(bytes.len() as u64);
        if !self.may_wait_to_write(handle.0, &(offset..end)) {
            return answer(self.served.write(handle.0, offset, bytes));
        }
        let (served, bytes) = (Arc::clone(&self.served), bytes.to_vec());
        let queue = match self.needs_store(handle.0, &(offset..end)) {
            true => &self.at_store,
            false => &self.at_jobs,
        };
        queue.answer(move || answer(served.write(handle.0, offset, &bytes)));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing waits here to be written.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(handle) = self.served.open.handle(handle.0) {
            self.served.pages.note(&handle.inode);
        }
        self.served.close(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        replies::empty(self.served.sync(handle.0, data_only), reply);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if let Err(error) = self.served.nodes.directory(number.0) {
            return reply.error(error);
        }
        reply.opened(FileHandle(self.directories.open()), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.directories.read(&self.served, (number.0, handle.0), offset, reply);
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.directories.read_plus(&self.served, (number.0, handle.0), offset, reply);
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.directories.close(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.served.item(number.0).and_then(|item| {
            let path = below::path_of(item.as_fd());
            std::fs::File::open(path).and_then(|open| open.sync_all()).map_err(Errno::from)
        });
        replies::empty(synced, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::fstatvfs(self.served.nodes.top()) {
            Ok(known) => reply.statfs(
                known.f_blocks,
                known.f_bfree,
                known.f_bavail,
                known.f_files,
                known.f_ffree,
                known.f_bsize as u32,
                known.f_namemax as u32,
                known.f_frsize as u32,
            ),
            Err(errno) => reply.error(below::failed(errno)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.answer(self.served.open.is_opening(number.0), move |served| {
            replies::empty(served.set_attribute(number.0, (&name, &value), flags), reply);
        });
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        replies::bytes(self.served.attribute(number.0, name), room, reply);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        replies::bytes(self.served.attribute_names(number.0), room, reply);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.answer(self.served.open.is_opening(number.0), move |served| {
            replies::empty(served.remove_attribute(number.0, &name), reply);
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let range = offset..offset.saturating_add(length);
        let may_wait = self.may_wait_to_write(handle.0, &range);
        self.answer(may_wait, move |served| {
            replies::empty(served.allocate(handle.0, (offset, length), mode), reply);
        });
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let may_wait = self.needs_store(handle.0, &(0..u64::MAX));
        self.answer(may_wait, move |served| {
            replies::offset(served.seek(handle.0, offset, whence), reply);
        });
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel copies by reading and writing then.
        reply.error(Errno::ENOSYS);
    }
}

impl ShareFilesystem {
    /// Whether something of a range of a file is the store's.
    fn needs_store(&self, handle: u64, range: &Range<u64>) -> bool {
        let handle = self.served.open.handle(handle);
        handle.is_some_and(|handle| match handle.inode.data() {
            Data::Plain(_) => false,
            Data::Stub(stub) => stub.needs_store(range),
        })
    }

    /// Whether whoever writes to a range of a file may wait, for the store or for a job.
    fn may_wait_to_write(&self, handle: u64, range: &Range<u64>) -> bool {
        let handle = self.served.open.handle(handle);
        handle.is_some_and(|handle| match handle.inode.data() {
            Data::Plain(_) => false,
            Data::Stub(stub) => stub.may_wait_to_write(range),
        })
    }
}
