//! The snapshots as the kernel asks for them.
//!
//! # Algorithm
//! Above is a [`Catalogue`] of names, which is made anew when somebody looks into it after some
//! seconds: new snapshots appear and forgotten ones go while the store is mounted. Below are the
//! trees, which never change: the kernel may keep whatever it has heard of them, names, attributes
//! and bytes, as long as it likes, and need not ask a second time.
//!
//! Nothing is read before it is asked for. A directory is read leaf by leaf ([`Listings`]), a file
//! by a [`FileReader`] that verifies every chunk it gives bytes of. What is damaged is an I/O error
//! where it lies, is told once, and is of no concern to what lies beside it.
//!
//! # Concurrency
//! Requests are served by as many threads as the mount has. Locks are held for moments only, never
//! while something is read.

use crate::attributes;
use crate::buffers::with_buffer;
use crate::catalogue::{CATALOGUE_BIT, Catalogue, Directory, Node, PathLink, ROOT};
use crate::inodes::{Address, Inodes};
use crate::listings::{Listings, entries_of};
use crate::problems::Problems;
use crate::snapshots::Snapshots;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use lru::LruCache;
use onefold_engine::tree::{FileReader, TreeReader, path};
use onefold_format::node::{Entry, EntryKind};
use onefold_types::{Error, ErrorKind, SessionId};
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the kernel need not ask again about what leads to snapshots.
const CATALOGUE_VALID: Duration = Duration::from_secs(1);
/// The same for what is in them.
const TREE_VALID: Duration = Duration::from_secs(24 * 60 * 60);
/// A number never means another file while the kernel knows it.
const GENERATION: Generation = Generation(0);
/// The longest name there can be.
const NAME_MAX_BYTES: u32 = 255;
/// Positions of a listing before the first leaf: the directory itself, and the one above.
const DOTS: u64 = 2;
/// `lseek` to the next data, as the kernel numbers it.
const SEEK_DATA: i32 = 3;
/// `lseek` to the next hole.
const SEEK_HOLE: i32 = 4;

/// Files that can be read on without finding out again where they are.
const FILES_KEPT: NonZeroUsize = NonZeroUsize::new(16).expect("some files");
/// What was there in a catalogue before: the kernel looks its name up again.
const OVER: Errno = Errno::ESTALE;
/// The kernel asks no second time for what it was answered so.
const NEVER: Errno = Errno::ENOSYS;

type Answer<T> = Result<T, Errno>;

/// What is mounted.
pub struct SnapshotFilesystem {
    snapshots: Snapshots,
    listings: Listings,
    inodes: Mutex<Inodes>,
    /// The files that were read last.
    files: Mutex<LruCache<u64, Arc<File>>>,
    problems: Problems,
    shows_xattrs: bool,
    /// Whether files are read without being opened: the kernel knows how, and asks less.
    is_open_needless: bool,
}

struct File {
    reader: FileReader,
    snapshot: SessionId,
    path: Vec<u8>,
}

/// Where a listing goes on behind an entry: 32 bits of the leaf, 32 of the entry in it.
fn position(leaf: u32, index: usize) -> u64 {
    DOTS + (u64::from(leaf) << 32) + index as u64
}

impl SnapshotFilesystem {
    /// Shows these snapshots, with extended attributes or without.
    #[must_use]
    pub fn new(
        snapshots: Snapshots,
        tree: Arc<TreeReader>,
        problems: Problems,
        shows_xattrs: bool,
    ) -> Self {
        Self {
            snapshots,
            listings: Listings::new(tree),
            inodes: Mutex::default(),
            files: Mutex::new(LruCache::new(FILES_KEPT)),
            problems,
            shows_xattrs,
            is_open_needless: false,
        }
    }

    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a program hears of an error, which is told in full to whoever has mounted the store.
    fn failed(&self, snapshot: SessionId, at: &[u8], error: &Error) -> Errno {
        let shown = path::display(at);
        self.problems.note(format!("{}:{shown}: {error}", snapshot.short()));
        match error.kind() {
            ErrorKind::NotPermitted => Errno::EACCES,
            ErrorKind::Unavailable => Errno::EAGAIN,
            _ => Errno::EIO,
        }
    }

    fn failed_in(&self, directory: &Directory, error: &Error) -> Errno {
        self.failed(directory.snapshot, &directory.path, error)
    }

    /// The directory of a snapshot that a number stands for.
    fn directory(&self, number: u64) -> Option<Arc<Directory>> {
        if is_catalogued(number) {
            return match self.snapshots.catalogue().node(number) {
                Some(Node::Snapshot(directory)) => Some(Arc::clone(directory)),
                _ => None,
            };
        }
        self.inodes().directory(number)
    }

    /// The entry of a number, and the directory that it is in.
    fn entry(&self, number: u64) -> Answer<(Arc<Directory>, Entry)> {
        let address = self.inodes().address(number).ok_or(OVER)?;
        match self.listings.entry(&address) {
            Ok(entry) => Ok((address.directory, entry)),
            Err(error) => Err(self.failed_in(&address.directory, &error)),
        }
    }

    fn attributes(&self, number: u64) -> Answer<(FileAttr, Duration)> {
        if is_catalogued(number) {
            let catalogue = self.snapshots.catalogue();
            return of_catalogue(&catalogue, number).map(|known| (known, CATALOGUE_VALID));
        }
        let (_, entry) = self.entry(number)?;
        Ok((attributes::of(&entry, number), TREE_VALID))
    }

    fn look_up(&self, parent: u64, name: &[u8]) -> Answer<(FileAttr, Duration)> {
        if let Some(directory) = self.directory(parent) {
            return match self.listings.find(&directory, name) {
                Ok(Some((address, entry))) => {
                    let number = self.inodes().remember(address, &entry);
                    Ok((attributes::of(&entry, number), TREE_VALID))
                }
                Ok(None) => Err(Errno::ENOENT),
                Err(error) => Err(self.failed_in(&directory, &error)),
            };
        }
        let catalogue = self.snapshots.current(&self.problems);
        let number = catalogue.child(parent, name).ok_or(Errno::ENOENT)?;
        of_catalogue(&catalogue, number).map(|known| (known, CATALOGUE_VALID))
    }

    fn link_target(&self, number: u64) -> Answer<Vec<u8>> {
        if is_catalogued(number) {
            return match self.snapshots.catalogue().node(number) {
                Some(Node::Link(target)) => Ok(target.clone()),
                Some(Node::PathLink(link)) => Ok(self.target_of(link)),
                Some(_) => Err(Errno::EINVAL),
                None => Err(OVER),
            };
        }
        match self.entry(number)?.1 {
            Entry { kind: EntryKind::Symlink, target, .. } => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Where the path is in the snapshot: as it is, or without its first names, which a source that
    /// was named by a relative path does not have in its tree.
    fn target_of(&self, link: &PathLink) -> Vec<u8> {
        let there = (0..link.names.len()).map(|from| &link.names[from..]);
        let found = there.into_iter().find(|names| self.is_there(&link.tree, names));
        let mut target = link.to_snapshot.clone();
        for name in found.unwrap_or_default() {
            target.push(b'/');
            target.extend_from_slice(name);
        }
        target
    }

    fn is_there(&self, tree: &Arc<Directory>, names: &[Vec<u8>]) -> bool {
        let mut above = Arc::clone(tree);
        for (at, name) in names.iter().enumerate() {
            let Ok(Some((_, entry))) = self.listings.find(&above, name) else { return false };
            match (entry.kind, entry.content) {
                (EntryKind::Directory, Some(reference)) => {
                    let Directory { number, parent, snapshot, .. } = **tree;
                    let path = Vec::new();
                    above = Arc::new(Directory { number, parent, reference, snapshot, path });
                }
                _ => return at + 1 == names.len(),
            }
        }
        true
    }

    /// A file, as it is kept or anew.
    fn file(&self, number: u64) -> Answer<Arc<File>> {
        let files = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files().get(&number) {
            return Ok(Arc::clone(file));
        }
        let (directory, entry) = self.entry(number)?;
        let path = path::join(&directory.path, &entry.name);
        let snapshot = directory.snapshot;
        let reader = FileReader::open(Arc::clone(self.listings.tree()), &entry)
            .map_err(|error| self.failed(snapshot, &path, &error))?;
        let file = Arc::new(File { reader, snapshot, path });
        // Whoever was faster has read on already.
        Ok(Arc::clone(files().get_or_insert(number, || file)))
    }

    /// Reads into a buffer; says how much.
    fn read_file(&self, number: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let file = self.file(number)?;
        let read = file.reader.read_at(offset, buffer);
        read.map_err(|error| self.failed(file.snapshot, &file.path, &error))
    }

    fn seek(&self, number: u64, offset: i64, whence: i32) -> Answer<i64> {
        let file = self.file(number)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let found = match whence {
            SEEK_DATA => file.reader.next_data(offset),
            SEEK_HOLE => file.reader.next_hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        match found {
            Ok(Some(found)) => i64::try_from(found).map_err(|_| Errno::EOVERFLOW),
            Ok(None) => Err(Errno::ENXIO),
            Err(error) => Err(self.failed(file.snapshot, &file.path, &error)),
        }
    }

    /// Calls `each` with the names of a directory from a position on, and with the position behind
    /// each, until it says that there is no room.
    fn list(
        &self,
        number: u64,
        from: u64,
        each: &mut dyn FnMut(Listed<'_>, u64) -> bool,
    ) -> Answer<()> {
        let directory = self.directory(number);
        let catalogue = match &directory {
            Some(_) => self.snapshots.catalogue(),
            None => self.snapshots.current(&self.problems),
        };
        let above = match &directory {
            Some(directory) => directory.parent,
            None => catalogue.above(number).ok_or(OVER)?.0,
        };
        for (ordinal, (name, number)) in [(".", number), ("..", above)].into_iter().enumerate() {
            let ordinal = ordinal as u64;
            if ordinal >= from && !each(Listed::Dots(name, number), ordinal + 1) {
                return Ok(());
            }
        }
        let from = from.saturating_sub(DOTS);
        match directory {
            Some(directory) => self.list_tree(&directory, from, each),
            None => list_catalogue(&catalogue, number, from, each),
        }
    }

    fn list_tree(
        &self,
        directory: &Arc<Directory>,
        from: u64,
        each: &mut dyn FnMut(Listed<'_>, u64) -> bool,
    ) -> Answer<()> {
        let (mut leaf, mut index) = ((from >> 32) as u32, (from & u64::from(u32::MAX)) as usize);
        let failed = |error: Error| self.failed_in(directory, &error);
        while let Some(node) = self.listings.leaf(directory, leaf).map_err(failed)? {
            let entries = entries_of(&node).map_err(failed)?;
            for (at, entry) in entries.iter().enumerate().skip(index) {
                let address = Address { directory: Arc::clone(directory), leaf, index: at as u32 };
                let next = match at + 1 == entries.len() {
                    true => position(leaf + 1, 0),
                    false => position(leaf, at + 1),
                };
                if !each(Listed::Entry(address, entry), next) {
                    return Ok(());
                }
            }
            (leaf, index) = (leaf + 1, 0);
        }
        Ok(())
    }
}

fn list_catalogue(
    catalogue: &Catalogue,
    number: u64,
    from: u64,
    each: &mut dyn FnMut(Listed<'_>, u64) -> bool,
) -> Answer<()> {
    let Some(Node::Directory(children)) = catalogue.node(number) else {
        return Err(OVER);
    };
    for (ordinal, (name, number)) in children.iter().enumerate().skip(from as usize) {
        let known = of_catalogue(catalogue, *number)?;
        if !each(Listed::Catalogue(name, known), DOTS + ordinal as u64 + 1) {
            break;
        }
    }
    Ok(())
}

/// One line of a listing.
enum Listed<'a> {
    Dots(&'a str, u64),
    Catalogue(&'a [u8], FileAttr),
    Entry(Address, &'a Entry),
}

fn is_catalogued(number: u64) -> bool {
    number == ROOT || number & CATALOGUE_BIT != 0
}

fn of_catalogue(catalogue: &Catalogue, number: u64) -> Answer<FileAttr> {
    let node = catalogue.node(number).ok_or(OVER)?;
    let (_, time_ns) = catalogue.above(number).ok_or(OVER)?;
    let (kind, size) = match node {
        Node::Link(target) => (FileType::Symlink, target.len() as u64),
        // How long it is in the end is known when it is read.
        Node::PathLink(link) => (FileType::Symlink, link.to_snapshot.len() as u64),
        Node::Directory(_) | Node::Snapshot(_) => (FileType::Directory, 0),
    };
    Ok(attributes::of_catalogue(number, kind, size, time_ns))
}

/// Answers with an attribute, or with how long it is.
fn reply_bytes(reply: ReplyXattr, bytes: &[u8], room: u32) {
    match room {
        0 => reply.size(bytes.len() as u32),
        room if bytes.len() > room as usize => reply.error(Errno::ERANGE),
        _ => reply.data(bytes),
    }
}

impl Filesystem for SnapshotFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What the kernel does not know it does without.
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        self.is_open_needless = config.add_capabilities(InitFlags::FUSE_NO_OPEN_SUPPORT).is_ok();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(parent.0, name.as_bytes()) {
            Ok((attributes, valid)) => reply.entry(&valid, &attributes, GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.inodes().forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number.0) {
            Ok((attributes, valid)) => reply.attr(&valid, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.link_target(number.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.is_open_needless {
            true => reply.error(NEVER),
            // Nothing to flush, and what was read once holds for ever.
            false => reply
                .opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        with_buffer(size, |buffer| match self.read_file(number.0, offset, buffer) {
            Ok(read) => reply.data(&buffer[..read]),
            Err(error) => reply.error(error),
        });
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = match self.directory(number.0) {
            Some(_) => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR,
            None => FopenFlags::empty(),
        };
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.list(number.0, offset, &mut |listed, next| !match listed {
            Listed::Dots(name, number) => {
                reply.add(INodeNo(number), next, FileType::Directory, name)
            }
            Listed::Catalogue(name, known) => {
                reply.add(known.ino, next, known.kind, OsStr::from_bytes(name))
            }
            Listed::Entry(address, entry) => {
                let number = Inodes::number_of(&address, entry);
                let kind = attributes::kind(entry.kind);
                reply.add(INodeNo(number), next, kind, OsStr::from_bytes(&entry.name))
            }
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.list(number.0, offset, &mut |listed, next| !match listed {
            Listed::Dots(name, number) => {
                let known = attributes::of_catalogue(number, FileType::Directory, 0, 0);
                reply.add(INodeNo(number), next, name, &Duration::ZERO, &known, GENERATION)
            }
            Listed::Catalogue(name, known) => {
                let name = OsStr::from_bytes(name);
                reply.add(known.ino, next, name, &CATALOGUE_VALID, &known, GENERATION)
            }
            Listed::Entry(address, entry) => {
                let number = self.inodes().remember(address, entry);
                let known = attributes::of(entry, number);
                let name = OsStr::from_bytes(&entry.name);
                let is_full =
                    reply.add(INodeNo(number), next, name, &TREE_VALID, &known, GENERATION);
                if is_full {
                    self.inodes().forget(number, 1);
                }
                is_full
            }
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, NAME_MAX_BYTES, 4096);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        if !self.shows_xattrs {
            return reply.error(NEVER);
        }
        if !self.inodes().has_xattrs(number.0) {
            return reply.error(Errno::ENODATA);
        }
        match self.entry(number.0) {
            Ok((_, entry)) => {
                let is_it = |one: &&(Vec<u8>, Vec<u8>)| one.0 == name.as_bytes();
                match entry.xattrs.iter().find(is_it) {
                    Some((_, value)) => reply_bytes(reply, value, room),
                    None => reply.error(Errno::ENODATA),
                }
            }
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        if !self.shows_xattrs {
            return reply.error(NEVER);
        }
        if !self.inodes().has_xattrs(number.0) {
            return reply_bytes(reply, &[], room);
        }
        match self.entry(number.0) {
            Ok((_, entry)) => {
                let names = entry.xattrs.iter().flat_map(|(name, _)| [name.as_slice(), &[0]]);
                reply_bytes(reply, &names.collect::<Vec<_>>().concat(), room);
            }
            Err(error) => reply.error(error),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.seek(number.0, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error),
        }
    }
}
