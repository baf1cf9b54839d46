//! The kernel's requests, handed to whoever answers them.
//!
//! # Concurrency
//! Requests are served by as many threads as the mount has. Locks are held for moments only; what
//! comes back into a stub is brought back by one thread for each stub.
//!
//! # What the kernel keeps
//! Names and attributes for a second. Pages of a stub as long as neither its content nor its time
//! has changed since it was closed last: nobody changes it but through this mount.

use super::below::Status;
use super::data::Change;
use super::names::{Listed, New};
use super::open_files::{Bytes, OpenInode};
use super::served::Served;
use super::{Answer, below};
use crate::buffers::with_buffer;
use crate::problems::Problems;
use fuser::{
    BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use lru::LruCache;
use onefold_engine::primary::Share;
use onefold_engine::primary::reserve::Reserve;
use onefold_engine::tree::TreeReader;
use onefold_types::Result;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel need not ask again.
const VALID: Duration = Duration::from_secs(1);
/// Stubs of which it is known what the kernel's pages are of.
const PAGES_KNOWN: NonZeroUsize = NonZeroUsize::new(4096).expect("some stubs");

/// A share, mounted.
pub struct ShareFilesystem {
    served: Served,
    passes_through: bool,
    listings: Mutex<HashMap<u64, Arc<Vec<Listed>>>>,
    last_listing: AtomicU64,
    /// When each stub had been changed last when it was closed.
    pages: Mutex<LruCache<u64, SystemTime>>,
}

impl ShareFilesystem {
    /// Shows a share. Stubs that were deleted while a mount was killed are taken away.
    pub fn new(share: Share, tree: Arc<TreeReader>, problems: Problems) -> Result<Self> {
        Ok(Self {
            served: Served::new(share, tree, problems)?,
            passes_through: false,
            listings: Mutex::default(),
            last_listing: AtomicU64::new(0),
            pages: Mutex::new(LruCache::new(PAGES_KNOWN)),
        })
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

    fn pages(&self) -> std::sync::MutexGuard<'_, LruCache<u64, SystemTime>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel may go on using what it has of a stub.
    fn keeps_pages(&self, inode: &OpenInode) -> bool {
        let modified = below::status_of(inode.file().as_fd()).map(|one| one.attributes.mtime);
        modified.is_ok_and(|modified| self.pages().get(&inode.number) == Some(&modified))
    }

    fn note_pages(&self, inode: &OpenInode) {
        if inode.stub().is_some()
            && let Ok(status) = below::status_of(inode.file().as_fd())
        {
            self.pages().put(inode.number, status.attributes.mtime);
        }
    }

    /// What the kernel reads and writes itself; `None` if it cannot, or if the file is a stub.
    fn backing<'a>(
        &self,
        inode: &'a OpenInode,
        open: impl FnOnce(&std::fs::File) -> std::io::Result<BackingId>,
    ) -> Option<&'a BackingId> {
        let Bytes::Plain(file) = &inode.bytes else { return None };
        if !self.passes_through {
            return None;
        }
        inode.backing.get_or_init(|| open(file).ok()).as_ref()
    }

    fn listing(&self, handle: u64) -> Option<Arc<Vec<Listed>>> {
        let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        listings.get(&handle).map(Arc::clone)
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

fn reply_empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn reply_bytes(answer: Answer<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match answer {
        Ok(bytes) if room == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > room as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for ShareFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
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
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, accessed, modified };
        match self.served.change(number.0, &change) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(error) => reply.error(error),
        }
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
        reply_empty(self.served.unlink(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.served.remove_directory(parent.0, name), reply);
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
        let to = (new_parent.0, new_name);
        reply_empty(self.served.rename((parent.0, name), to, flags), reply);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(self.served.link(number.0, (parent.0, name)), reply);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let inode = match self.served.enter(number.0) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        let handle = match self.served.handle(Arc::clone(&inode), flags.0, self.passes_through) {
            Ok(handle) => handle,
            Err(error) => {
                self.served.leave(number.0);
                return reply.error(error);
            }
        };
        let handle = FileHandle(self.served.open.handle_for(handle));
        if let Some(backing) = self.backing(&inode, |file| reply.open_backing(file)) {
            return reply.opened_passthrough(handle, FopenFlags::empty(), backing);
        }
        let keeps = inode.stub().is_some() && self.keeps_pages(&inode);
        let flags = if keeps { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        reply.opened(handle, flags);
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
        let (number, status) = match created {
            Ok(created) => created,
            Err(error) => return reply.error(error),
        };
        let opened = self.served.enter(number).and_then(|inode| {
            let handle = self
                .served
                .handle(Arc::clone(&inode), flags, self.passes_through)
                .inspect_err(|_| {
                    self.served.leave(number);
                })?;
            Ok((inode, handle))
        });
        let (inode, handle) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.served.nodes.forget(number, 1);
                return reply.error(error);
            }
        };
        let handle = FileHandle(self.served.open.handle_for(handle));
        let attributes = self.served.told(number, &status);
        let (generation, none) = (status.generation, FopenFlags::empty());
        match self.backing(&inode, |file| reply.open_backing(file)) {
            Some(backing) => {
                reply.created_passthrough(&VALID, &attributes, generation, handle, none, backing)
            }
            None => reply.created(&VALID, &attributes, generation, handle, none),
        }
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
        with_buffer(size, |buffer| match self.served.read(handle.0, offset, buffer) {
            Ok(read) => reply.data(&buffer[..read]),
            Err(error) => reply.error(error),
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
        match self.served.write(handle.0, offset, bytes) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(error),
        }
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
            self.note_pages(&handle.inode);
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
        reply_empty(self.served.sync(handle.0, data_only), reply);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if let Err(error) = self.served.nodes.directory(number.0) {
            return reply.error(error);
        }
        let handle = self.last_listing.fetch_add(1, Ordering::Relaxed) + 1;
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        // It is listed when it is read.
        listings.insert(handle, Arc::default());
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listing = match self.relisted(number.0, handle.0, offset) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error),
        };
        for (at, one) in listing.iter().enumerate().skip(offset as usize) {
            let name = OsStr::from_bytes(&one.name);
            if reply.add(INodeNo(one.inode), at as u64 + 1, one.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listing = match self.relisted(number.0, handle.0, offset) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error),
        };
        for (at, one) in listing.iter().enumerate().skip(offset as usize) {
            let (name, next) = (OsStr::from_bytes(&one.name), at as u64 + 1);
            if matches!(&*one.name, b"." | b"..") {
                // The kernel takes no notice of what these are said to be.
                let Ok(known) = self.served.attributes(number.0) else { continue };
                let known = fuser::FileAttr { ino: INodeNo(one.inode), ..known };
                let none = Duration::ZERO;
                if reply.add(known.ino, next, name, &none, &known, fuser::Generation(0)) {
                    break;
                }
                continue;
            }
            // What has gone meanwhile is left out.
            let Ok((node, status)) = self.served.look_up(number.0, name) else { continue };
            let known = self.served.told(node, &status);
            if reply.add(INodeNo(node), next, name, &VALID, &known, status.generation) {
                self.served.nodes.forget(node, 1);
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.served.item(number.0).and_then(|item| {
            let path = below::path_of(item.as_fd());
            std::fs::File::open(path).and_then(|open| open.sync_all()).map_err(Errno::from)
        });
        reply_empty(synced, reply);
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
        reply_empty(self.served.set_attribute(number.0, (name, value), flags), reply);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        reply_bytes(self.served.attribute(number.0, name), room, reply);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        reply_bytes(self.served.attribute_names(number.0), room, reply);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.served.remove_attribute(number.0, name), reply);
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
        reply_empty(self.served.allocate(handle.0, (offset, length), mode), reply);
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
        match self.served.seek(handle.0, offset, whence) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        }
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
    /// What a directory holds, as it was when it was read from the beginning last.
    fn relisted(&self, number: u64, handle: u64, offset: u64) -> Answer<Arc<Vec<Listed>>> {
        if offset > 0 {
            return self.listing(handle).ok_or(Errno::EBADF);
        }
        let listed = Arc::new(self.served.list(number)?);
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        listings.insert(handle, Arc::clone(&listed));
        Ok(listed)
    }
}
