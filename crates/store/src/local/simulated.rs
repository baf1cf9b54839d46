//! A disk for tests that can fail, stop and lose power.
//!
//! What was written is visible at once and durable only once synced. After a power loss a file may
//! hold any part of its unsynced writes, torn or out of order, and a directory any subset of its
//! unsynced changes; [`SimulatedDisk::states_after_power_loss`] lists such states. Every handle on
//! the disk stands for one process and can be told to fail, or stop for ever, at its nth call.

use super::TEMPORARY_DIRECTORY;
use super::disk::{Disk, EntryKind};
use onefold_types::environment::SeededRandomness;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOTEMPTY: i32 = 39;

/// States listed for one power loss; beyond it they are drawn at random.
const STATES_MAX: usize = 192;

/// What a power loss leaves: the content of every object.
pub(super) type Survivors = BTreeMap<String, Vec<u8>>;

/// Ways in which a disk may behave, all legal but the lies.
#[derive(Clone, Copy, Default)]
pub(super) struct Behaviour {
    pub(super) no_rename: bool,
    pub(super) no_links: bool,
    pub(super) no_direct: bool,
    pub(super) short_writes: bool,
    pub(super) capacity_bytes: Option<usize>,
    /// Listings do not say what an entry is: each one costs another call.
    pub(super) no_kinds: bool,
    pub(super) lies_about_files: bool,
    pub(super) lies_about_directories: bool,
}

/// What happens at a chosen call of one process.
#[derive(Clone, Copy)]
pub(super) enum Trip {
    /// The process stops: this call and all later ones do nothing and fail.
    Stop,
    /// This call alone fails with the error number and does nothing.
    Fail(i32),
}

#[derive(Default)]
struct FileNode {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
    links: usize,
    locked: bool,
}

#[derive(Default)]
struct DirectoryNode {
    path: String,
    now: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    pending: Vec<(String, Option<usize>)>,
    removed: bool,
}

enum Node {
    File(FileNode),
    Directory(DirectoryNode),
}

struct World {
    nodes: Vec<Node>,
    behaviour: Behaviour,
    log: Vec<String>,
    temporaries: usize,
    writes: usize,
}

/// One process's view of the disk.
pub(super) struct SimulatedDisk {
    world: Arc<Mutex<World>>,
    calls: Mutex<usize>,
    trip: Option<(usize, Trip)>,
    beside: Mutex<Option<Beside>>,
}

/// What another process does just before a call of this one.
struct Beside {
    call: usize,
    work: Box<dyn FnOnce() + Send>,
}

/// An open file; its lock goes when it is dropped.
pub(super) struct OpenFile {
    world: Arc<Mutex<World>>,
    node: usize,
    writer: bool,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.writer
            && let Node::File(file) = &mut self.world.lock().unwrap().nodes[self.node]
        {
            file.locked = false;
        }
    }
}

fn fail<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

fn overwrite(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    bytes.resize(bytes.len().max(offset + new.len()), 0);
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

impl World {
    fn file(&mut self, node: usize) -> &mut FileNode {
        match &mut self.nodes[node] {
            Node::File(file) => file,
            Node::Directory(_) => panic!("a file was expected"),
        }
    }

    fn directory(&mut self, node: usize) -> io::Result<&mut DirectoryNode> {
        match &mut self.nodes[node] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => fail(ENOTDIR),
        }
    }

    fn find(&mut self, path: &str) -> io::Result<usize> {
        let mut node = 0;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match self.directory(node)?.now.get(name) {
                Some(next) => node = *next,
                None => return fail(ENOENT),
            }
        }
        Ok(node)
    }

    fn find_file(&mut self, path: &str) -> io::Result<usize> {
        let node = self.find(path)?;
        if matches!(self.nodes[node], Node::File(_)) { Ok(node) } else { fail(ENOENT) }
    }

    fn change(&mut self, above: usize, name: &str, node: Option<usize>) -> io::Result<()> {
        let directory = self.directory(above)?;
        if directory.removed {
            return fail(ENOENT);
        }
        match node {
            Some(_) if directory.now.contains_key(name) => return fail(EEXIST),
            Some(node) => drop(directory.now.insert(name.to_owned(), node)),
            None => drop(directory.now.remove(name)),
        }
        directory.pending.push((name.to_owned(), node));
        Ok(())
    }

    fn used_bytes(&self) -> usize {
        let size = |node: &Node| match node {
            Node::File(file) if file.links > 0 => file.now.len(),
            _ => 0,
        };
        self.nodes.iter().map(size).sum()
    }

    /// Contents a file may have after a power loss.
    fn file_variants(file: &FileNode) -> Vec<Vec<u8>> {
        let mut variants = BTreeSet::from([file.durable.clone()]);
        let mut growing = file.durable.clone();
        for (offset, bytes) in &file.pending {
            let mut alone = file.durable.clone();
            overwrite(&mut alone, *offset, bytes);
            let mut torn = growing.clone();
            overwrite(&mut torn, *offset, &bytes[..bytes.len() / 2]);
            let mut only_length = growing.clone();
            overwrite(&mut only_length, *offset, &vec![0; bytes.len()]);
            overwrite(&mut growing, *offset, bytes);
            variants.extend([alone, torn, only_length, growing.clone()]);
        }
        variants.into_iter().collect()
    }

    /// Entries a directory may have after a power loss.
    fn directory_variants(directory: &DirectoryNode) -> Vec<BTreeMap<String, usize>> {
        if directory.path == TEMPORARY_DIRECTORY {
            return vec![BTreeMap::new()];
        }
        let apply = |chosen: &dyn Fn(usize) -> bool| {
            let mut entries = directory.durable.clone();
            for (position, (name, node)) in directory.pending.iter().enumerate() {
                match node {
                    _ if !chosen(position) => {}
                    Some(node) => drop(entries.insert(name.clone(), *node)),
                    None => drop(entries.remove(name)),
                }
            }
            entries
        };
        let count = directory.pending.len();
        if count <= 5 {
            return (0..1_usize << count).map(|set| apply(&|p| set >> p & 1 == 1)).collect();
        }
        let prefixes = (0..=count).map(|length| apply(&|p| p < length));
        let alone = (0..count).map(|one| apply(&|p| p == one));
        prefixes.chain(alone).collect()
    }

    fn survivors(&self, pick: &mut dyn FnMut(usize) -> usize) -> Survivors {
        let mut survivors = Survivors::new();
        let mut open = vec![(0, String::new())];
        while let Some((node, path)) = open.pop() {
            match &self.nodes[node] {
                Node::File(file) => {
                    let mut variants = Self::file_variants(file);
                    let chosen = pick(variants.len());
                    survivors.insert(path, variants.swap_remove(chosen));
                }
                Node::Directory(directory) => {
                    let mut variants = Self::directory_variants(directory);
                    let chosen = pick(variants.len());
                    for (name, node) in variants.swap_remove(chosen) {
                        open.push((node, crate::key::join(&path, &name)));
                    }
                }
            }
        }
        survivors
    }
}

impl SimulatedDisk {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        let nodes = vec![Node::Directory(DirectoryNode::default())];
        let world = World { nodes, behaviour, log: Vec::new(), temporaries: 0, writes: 0 };
        Self::of(Arc::new(Mutex::new(world)), None, None)
    }

    /// The same disk as another process sees it.
    pub(super) fn process(&self, trip: Option<(usize, Trip)>) -> Self {
        Self::of(Arc::clone(&self.world), trip, None)
    }

    /// A process beside which another one does some work just before its call of this number.
    pub(super) fn process_beside(&self, call: usize, work: impl FnOnce() + Send + 'static) -> Self {
        Self::of(Arc::clone(&self.world), None, Some(Beside { call, work: Box::new(work) }))
    }

    fn of(world: Arc<Mutex<World>>, trip: Option<(usize, Trip)>, beside: Option<Beside>) -> Self {
        Self { world, calls: Mutex::new(0), trip, beside: Mutex::new(beside) }
    }

    pub(super) fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }

    pub(super) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.world.lock().unwrap().log)
    }

    pub(super) fn temporaries(&self) -> usize {
        let mut world = self.world.lock().unwrap();
        match world.find(TEMPORARY_DIRECTORY) {
            Ok(node) => world.directory(node).unwrap().now.len(),
            Err(_) => 0,
        }
    }

    /// States a power loss at this moment may leave: all, or many if there are too many.
    pub(super) fn states_after_power_loss(&self) -> Vec<Survivors> {
        let world = self.world.lock().unwrap();
        // An odometer over the choices met on the way, the last one turning fastest.
        let mut digits: Vec<(usize, usize)> = Vec::new();
        let mut states = Vec::new();
        while states.len() < STATES_MAX {
            let mut position = 0;
            states.push(world.survivors(&mut |count| {
                if position == digits.len() {
                    digits.push((0, count));
                }
                position += 1;
                digits[position - 1].0
            }));
            digits.truncate(position);
            while digits.last().is_some_and(|(digit, count)| digit + 1 == *count) {
                digits.pop();
            }
            match digits.last_mut() {
                Some((digit, _)) => *digit += 1,
                None => return states,
            }
        }
        let randomness = SeededRandomness::new(states.len() as u64);
        for _ in 0..STATES_MAX {
            states.push(world.survivors(&mut |count| randomness.below(count as u64) as usize));
        }
        states
    }

    fn enter(&self) -> io::Result<MutexGuard<'_, World>> {
        let mut calls = self.calls.lock().unwrap();
        let number = *calls;
        *calls += 1;
        if let Some(beside) = self.beside.lock().unwrap().take_if(|beside| beside.call == number) {
            (beside.work)();
        }
        match self.trip {
            Some((at, Trip::Stop)) if number >= at => fail(EIO),
            Some((at, Trip::Fail(error))) if number == at => fail(error),
            _ => Ok(self.world.lock().unwrap()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn open_file(&self, node: usize, writer: bool) -> OpenFile {
        OpenFile { world: Arc::clone(&self.world), node, writer }
    }
}

impl Disk for SimulatedDisk {
    type File = OpenFile;
    type Directory = usize;

    fn root(&self) -> io::Result<usize> {
        self.enter().map(|_| 0)
    }

    fn open_directory(&self, above: &usize, name: &str) -> io::Result<usize> {
        let mut world = self.enter()?;
        let Some(node) = world.directory(*above)?.now.get(name).copied() else {
            return fail(ENOENT);
        };
        world.directory(node).map(|_| node)
    }

    fn make_directory(&self, above: &usize, name: &str) -> io::Result<()> {
        let mut world = self.enter()?;
        let path = crate::key::join(&world.directory(*above)?.path.clone(), name);
        let node = world.nodes.len();
        world.change(*above, name, Some(node))?;
        world.log.push(format!("make directory {path}"));
        world.nodes.push(Node::Directory(DirectoryNode { path, ..DirectoryNode::default() }));
        Ok(())
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        let mut world = self.enter()?;
        let node = world.find(path)?;
        let directory = world.directory(node)?;
        if !directory.now.is_empty() {
            return fail(ENOTEMPTY);
        }
        directory.removed = true;
        let (above, name) = crate::key::split(path);
        let above = world.find(above)?;
        world.log.push(format!("remove directory {path}"));
        world.change(above, name, None)
    }

    fn sync_directory(&self, directory: &usize) -> io::Result<()> {
        let mut world = self.enter()?;
        let lies = world.behaviour.lies_about_directories;
        let directory = world.directory(*directory)?;
        if !lies {
            directory.durable = directory.now.clone();
            directory.pending.clear();
        }
        let line = format!("sync directory /{}", directory.path);
        world.log.push(line);
        Ok(())
    }

    fn entries(&self, path: &str, each: &mut dyn FnMut(&str, EntryKind) -> bool) -> io::Result<()> {
        let entries: Vec<(String, EntryKind)> = {
            let mut world = self.enter()?;
            let node = world.find(path)?;
            let now = world.directory(node)?.now.clone();
            let kind = |node: usize| match &world.nodes[node] {
                Node::File(_) => EntryKind::File,
                Node::Directory(_) => EntryKind::Directory,
            };
            now.into_iter().map(|(name, node)| (name, kind(node))).collect()
        };
        for (name, kind) in entries {
            if self.lock().behaviour.no_kinds {
                drop(self.enter()?);
            }
            if !each(&name, kind) {
                break;
            }
        }
        Ok(())
    }

    fn create_temporary(&self) -> io::Result<(String, OpenFile)> {
        let mut world = self.enter()?;
        let above = world.find(TEMPORARY_DIRECTORY)?;
        let name = format!("{:032x}", world.temporaries);
        world.temporaries += 1;
        let node = world.nodes.len();
        world.change(above, &name, Some(node))?;
        let file = FileNode { links: 1, locked: true, ..FileNode::default() };
        world.nodes.push(Node::File(file));
        world.log.push("create temporary".to_owned());
        Ok((format!("{TEMPORARY_DIRECTORY}/{name}"), self.open_file(node, true)))
    }

    fn open_or_create(&self, path: &str) -> io::Result<OpenFile> {
        let mut world = self.enter()?;
        if let Ok(node) = world.find_file(path) {
            return Ok(self.open_file(node, true));
        }
        let (above, name) = crate::key::split(path);
        let (above, node) = (world.find(above)?, world.nodes.len());
        world.change(above, name, Some(node))?;
        world.nodes.push(Node::File(FileNode { links: 1, ..FileNode::default() }));
        Ok(self.open_file(node, true))
    }

    fn set_direct(&self, _: &OpenFile, _: bool) -> io::Result<()> {
        let world = self.enter()?;
        if world.behaviour.no_direct { fail(EINVAL) } else { Ok(()) }
    }

    fn write_at(&self, file: &OpenFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut world = self.enter()?;
        world.writes += 1;
        let behaviour = world.behaviour;
        if behaviour.short_writes && world.writes % 3 == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = if behaviour.short_writes { bytes.len().div_ceil(3) } else { bytes.len() };
        let (bytes, offset) = (&bytes[..most], offset as usize);
        let growth = (offset + bytes.len()).saturating_sub(world.file(file.node).now.len());
        if behaviour.capacity_bytes.is_some_and(|most| world.used_bytes() + growth > most) {
            return fail(ENOSPC);
        }
        let node = world.file(file.node);
        overwrite(&mut node.now, offset, bytes);
        node.pending.push((offset, bytes.to_vec()));
        world.log.push("write".to_owned());
        Ok(bytes.len())
    }

    fn allocate(&self, file: &OpenFile, size_bytes: u64) -> io::Result<()> {
        let mut world = self.enter()?;
        if world.behaviour.no_direct {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let growth = (size_bytes as usize).saturating_sub(world.file(file.node).now.len());
        let capacity = world.behaviour.capacity_bytes;
        if capacity.is_some_and(|most| world.used_bytes() + growth > most) {
            return fail(ENOSPC);
        }
        overwrite(&mut world.file(file.node).now, size_bytes as usize, &[]);
        Ok(())
    }

    fn truncate(&self, file: &OpenFile, size_bytes: u64) -> io::Result<()> {
        let mut world = self.enter()?;
        world.file(file.node).now.truncate(size_bytes as usize);
        Ok(())
    }

    fn room(&self) -> io::Result<(u64, u64)> {
        let world = self.enter()?;
        let total = world.behaviour.capacity_bytes.unwrap_or(usize::MAX);
        Ok((total.saturating_sub(world.used_bytes()) as u64, total as u64))
    }

    fn names_left(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn sync_file(&self, file: &OpenFile) -> io::Result<()> {
        let mut world = self.enter()?;
        let lies = world.behaviour.lies_about_files;
        let node = world.file(file.node);
        if !lies {
            node.durable = node.now.clone();
            node.pending.clear();
        }
        world.log.push("sync file".to_owned());
        Ok(())
    }

    fn rename_new(&self, temporary: &str, directory: &usize, name: &str) -> io::Result<()> {
        let mut world = self.enter()?;
        if world.behaviour.no_rename {
            return fail(EINVAL);
        }
        let node = world.find_file(temporary)?;
        world.change(*directory, name, Some(node))?;
        let (above, old) = crate::key::split(temporary);
        let above = world.find(above)?;
        world.change(above, old, None)?;
        world.log.push(format!("rename to {name}"));
        Ok(())
    }

    fn link_new(
        &self,
        file: &OpenFile,
        temporary: &str,
        directory: &usize,
        name: &str,
    ) -> io::Result<()> {
        let mut world = self.enter()?;
        if world.behaviour.no_links {
            return fail(1);
        }
        assert_eq!(world.find_file(temporary)?, file.node);
        world.change(*directory, name, Some(file.node))?;
        world.file(file.node).links += 1;
        world.log.push(format!("link to {name}"));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut world = self.enter()?;
        let node = world.find_file(path)?;
        world.file(node).links -= 1;
        let (above, name) = crate::key::split(path);
        let above = world.find(above)?;
        world.change(above, name, None)?;
        let shown = if path.starts_with(TEMPORARY_DIRECTORY) { "temporary" } else { path };
        world.log.push(format!("remove {shown}"));
        Ok(())
    }

    fn remove_unlocked(&self, path: &str) -> io::Result<bool> {
        {
            let mut world = self.enter()?;
            let node = world.find_file(path)?;
            if world.file(node).locked {
                return Ok(false);
            }
        }
        self.remove(path).map(|()| true)
    }

    fn open(&self, path: &str) -> io::Result<(OpenFile, u64)> {
        let mut world = self.enter()?;
        let node = world.find_file(path)?;
        let size = world.file(node).now.len() as u64;
        Ok((self.open_file(node, false), size))
    }

    fn read_at(&self, file: &OpenFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.enter()?;
        let short = world.behaviour.short_writes;
        let now = &world.file(file.node).now;
        let start = now.len().min(offset as usize);
        let mut count = buffer.len().min(now.len() - start);
        if short {
            count = count.div_ceil(3);
        }
        buffer[..count].copy_from_slice(&now[start..start + count]);
        Ok(count)
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        let mut world = self.enter()?;
        let node = world.find_file(path)?;
        Ok(world.file(node).now.len() as u64)
    }

    fn is_absent(&self, path: &str) -> io::Result<bool> {
        let found = self.enter()?.find(path);
        Ok(found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound))
    }
}
