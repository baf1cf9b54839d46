//! A file system that folds names, as NTFS, exFAT and HFS+ do: made for tests, kept in memory.

use crate::mounted::succeeds;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

/// The kernel remembers nothing.
const VALID: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);
/// A list of a directory fails at the item of this name, as if the directory were gone.
pub const UNLISTED: &str = "unlisted";
/// What is written into files of this name never arrives.
pub const UNWRITTEN: &str = "unwritten";

/// Of a file of this name no mode, owner and time is kept, though each is taken.
pub const UNKEPT: &str = "unkept";
/// Of a file of this name no owner is kept.
pub const UNOWNED: &str = "unowned";
/// Times of a file of this name are even numbers of seconds, as on FAT.
pub const COARSE: &str = "coarse";

/// One that is mounted until this is dropped.
pub struct Folding {
    _session: BackgroundSession,
    point: PathBuf,
}

impl Folding {
    pub fn mount(point: &Path) -> Self {
        std::fs::create_dir_all(point).unwrap();
        let session = fuser::spawn_mount(Names::default(), point, &Config::default()).unwrap();
        Self { _session: session, point: point.to_owned() }
    }
}

impl Drop for Folding {
    fn drop(&mut self) {
        succeeds("umount", &["-l", self.point.to_str().unwrap()]);
    }
}

struct Node {
    /// The name that it was made with.
    name: OsString,
    known: FileAttr,
    bytes: Vec<u8>,
    /// By their names without case.
    items: BTreeMap<OsString, (OsString, u64)>,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
}

struct Names(Mutex<State>);

impl Default for Names {
    fn default() -> Self {
        let mut state = State { nodes: HashMap::new(), next: 1 };
        state.make(OsStr::new(""), FileType::Directory, 0o755);
        Self(Mutex::new(state))
    }
}

fn folded(name: &OsStr) -> OsString {
    name.to_ascii_lowercase()
}

type Answer<T> = Result<T, Errno>;

impl State {
    fn make(&mut self, name: &OsStr, kind: FileType, mode: u32) -> u64 {
        let (number, now) = (self.next, SystemTime::now());
        self.next += 1;
        let known = FileAttr {
            ino: INodeNo(number),
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        let name = name.to_owned();
        self.nodes.insert(number, Node { name, known, bytes: Vec::new(), items: BTreeMap::new() });
        number
    }

    fn node(&mut self, number: INodeNo) -> Answer<&mut Node> {
        self.nodes.get_mut(&number.0).ok_or(Errno::ENOENT)
    }

    fn find(&mut self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        let found = self.node(parent)?.items.get(&folded(name)).ok_or(Errno::ENOENT)?.1;
        Ok(self.node(INodeNo(found))?.known)
    }

    fn add(
        &mut self,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        mode: u32,
    ) -> Answer<FileAttr> {
        if self.find(parent, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let number = self.make(name, kind, mode);
        self.node(parent)?.items.insert(folded(name), (name.to_owned(), number));
        Ok(self.node(INodeNo(number))?.known)
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Answer<()> {
        let found = self.find(parent, name)?;
        if !self.node(found.ino)?.items.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.node(parent)?.items.remove(&folded(name));
        Ok(())
    }

    fn rename(&mut self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr)) -> Answer<()> {
        let moved = self.find(from.0, from.1)?.ino.0;
        self.node(from.0)?.items.remove(&folded(from.1));
        let items = &mut self.node(to.0)?.items;
        // What is replaced keeps its spelling.
        let spelled = items.get(&folded(to.1)).map_or_else(|| to.1.to_owned(), |it| it.0.clone());
        items.insert(folded(to.1), (spelled, moved));
        Ok(())
    }
}

impl Names {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn entry(reply: ReplyEntry, answer: Answer<FileAttr>) {
    match answer {
        Ok(known) => reply.entry(&VALID, &known, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

fn empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Names {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.state().find(parent, name));
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().node(number) {
            Ok(node) => reply.attr(&VALID, &node.known),
            Err(errno) => reply.error(errno),
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
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        let node = match state.node(number) {
            Ok(node) => node,
            Err(errno) => return reply.error(errno),
        };
        if let Some(size) = size {
            node.bytes.resize(size as usize, 0);
            node.known.size = size;
        }
        let (known, keeps) = (&mut node.known, node.name != UNKEPT);
        if keeps {
            known.perm = mode.map_or(known.perm, |mode| (mode & 0o7777) as u16);
        }
        if keeps && node.name != UNOWNED {
            (known.uid, known.gid) = (uid.unwrap_or(known.uid), gid.unwrap_or(known.gid));
        }
        known.mtime = match modified {
            Some(TimeOrNow::SpecificTime(time)) if node.name == COARSE => {
                let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
                SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs() / 2 * 2)
            }
            Some(TimeOrNow::SpecificTime(time)) if keeps => time,
            Some(TimeOrNow::Now) => SystemTime::now(),
            _ => known.mtime,
        };
        known.ctime = SystemTime::now();
        reply.attr(&VALID, known);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        entry(reply, self.state().add(parent, name, FileType::Directory, mode));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.state().add(parent, name, FileType::RegularFile, mode) {
            Ok(known) => {
                reply.created(&VALID, &known, GENERATION, FileHandle(0), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.state().remove(parent, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.state().remove(parent, name));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.state().rename((parent, name), (new_parent, new_name)));
    }

    /// As of NTFS by some drivers, and exFAT.
    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
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
        match self.state().node(number) {
            Ok(node) => {
                let from = (offset as usize).min(node.bytes.len());
                let to = (from + size as usize).min(node.bytes.len());
                reply.data(&node.bytes[from..to]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.state().node(number) {
            Ok(node) => {
                let (from, to) = (offset as usize, offset as usize + bytes.len());
                node.bytes.resize(node.bytes.len().max(to), 0);
                node.bytes[from..to].copy_from_slice(bytes);
                node.known.size = node.bytes.len() as u64;
                node.known.mtime = SystemTime::now();
                reply.written(bytes.len() as u32);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let state = self.state();
        let mut named =
            state.nodes.values().filter_map(|node| node.items.get(OsStr::new(UNWRITTEN)));
        let is_lost = named.any(|(_, item)| *item == number.0);
        empty(reply, if is_lost { Err(Errno::EIO) } else { Ok(()) });
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut state = self.state();
        let items: Vec<_> = match state.node(number) {
            Ok(node) => node.items.values().cloned().collect(),
            Err(errno) => return reply.error(errno),
        };
        for (at, (name, item)) in items.into_iter().enumerate().skip(offset as usize) {
            match name == UNLISTED {
                true if at as u64 == offset => return reply.error(Errno::ENOENT),
                true => break,
                false => {}
            }
            let Ok(kind) = state.node(INodeNo(item)).map(|node| node.known.kind) else { continue };
            if reply.add(INodeNo(item), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
