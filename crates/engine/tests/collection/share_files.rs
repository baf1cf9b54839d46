//! A share in the model: a directory on a real file system whose store is scheduled, what its files
//! must hold, and who has them open.
//!
//! Actors touch files between two steps on the store. All that is scheduled is those steps, and
//! the walk of the job where it meets a mark: a backup walks, reads and stores in threads of its
//! own, of which one may still look at files when another has made the last step of the turn.
//!
//! Whoever opens, moves and removes files here does it as the mount does (`crates/mount`): what is
//! moved is written down first, a stub that loses its last name while somebody has it open keeps it
//! below `.onefold-share/open`, and whoever closes a stub last ends it if all of it came back. But
//! nobody waits for a lease, for its holder may have to wait for his turn: the file is passed over.
//!
//! # What a file must hold
//! Its versions, the settled one first and then those that somebody is writing, or was stopped at:
//! each byte that is read is one of a version that there was since the file was opened.

use crate::steps::*;
use crate::world::*;
use onefold_engine::Repository;
use onefold_engine::primary::optimize::{OptimizeOptions, OptimizeReport, optimize};
use onefold_engine::primary::share::{CONTROL, Held, OPEN};
use onefold_engine::primary::turns::Partitions;
use onefold_engine::primary::{Share, emptying};
use onefold_engine::stub::{self, StubFile};
use onefold_engine::tree::TreeReader;
use onefold_format::share::SharePolicy;
use onefold_store::MemoryStore;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{Mode as Permissions, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Files that the walk leaves out, and tells of: there it can be stopped.
const MARKS: [&str; 3] = ["a/a.told", "b/b.told", "c/c.told"];
/// What is read at once.
const READ_BYTES: usize = 50_000;
/// Runs of the job until there is nothing more to be done: another test of this process may have
/// started a program, which has all files open for a moment.
const REPAIRS_MAX: usize = 5;

/// The bytes that a file may have.
pub struct Kept(Mutex<History>);

struct History {
    versions: Vec<Vec<u8>>,
    settled: usize,
}

impl Kept {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(History { versions: vec![bytes], settled: 0 })))
    }

    fn settled(&self) -> usize {
        self.0.lock().unwrap().settled
    }

    /// Somebody begins to make these of the bytes that there are.
    fn begin(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut history = self.0.lock().unwrap();
        let mut bytes = history.versions[history.versions.len() - 1].clone();
        change(&mut bytes);
        history.versions.push(bytes);
    }

    /// He has made them. What was in doubt before stays so.
    fn end(&self) {
        let mut history = self.0.lock().unwrap();
        if history.versions.len() == history.settled + 2 {
            history.settled += 1;
        }
    }

    /// Whether these are the bytes of the versions since then.
    fn holds(&self, since: usize, read: &[u8]) -> bool {
        let history = self.0.lock().unwrap();
        let versions = &history.versions[since..];
        let of_some = |(at, byte)| versions.iter().any(|one: &Vec<u8>| one.get(at) == Some(byte));
        versions.iter().any(|one| one == read)
            || (versions.iter().any(|one| one.len() == read.len())
                && read.iter().enumerate().all(of_some))
    }
}

#[derive(Default)]
struct Open {
    count: usize,
    is_unnamed: bool,
}

/// The share of one run.
pub struct SharedFiles {
    directory: tempfile::TempDir,
    files: Mutex<BTreeMap<String, Arc<Kept>>>,
    open: Mutex<BTreeMap<u64, Open>>,
}

/// Where shares can be; in memory if that is a place for them, where nothing waits for a disk.
/// `None`, and loudly, if they cannot be anywhere.
pub fn place() -> Option<&'static Path> {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PLACE.get_or_init(|| {
        let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let mut why = String::new();
        for place in places {
            let probed = tempfile::tempfile_in(&place)
                .map_err(|error| Error::io("making a file", error))
                .and_then(|file| emptying::probe(&file));
            match probed {
                Ok(()) => return Some(place),
                Err(error) => why += &format!("; {}: {error}", place.display()),
            }
        }
        eprintln!("SKIPPED: shares were not tested in the model{why}");
        None
    });
    found.as_deref()
}

pub fn optimize_options() -> OptimizeOptions {
    let backup = described("", onefold_engine::ingest::ParentChoice::Newest);
    OptimizeOptions {
        backup,
        cold: None,
        partitions: Partitions::None,
        by: "me".into(),
        forgets_at_once: false,
        shares_disk: true,
    }
}

/// A step of the actor that is none on the store, so that others may come before it.
pub fn pause(repository: &Repository, what: &str) -> Result<()> {
    match repository.store().size(&key(what)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// The seed of whoever makes and verifies shares.
const APART: u64 = 1_000_700;

impl SharedFiles {
    /// Makes a share of this store: some files are stubs, some are to become stubs.
    pub fn create(place: &Path, store: &MemoryStore) -> Self {
        let directory = tempfile::tempdir_in(place).unwrap();
        let files = Self { directory, files: Mutex::default(), open: Mutex::default() };
        for inner in ["a", "b", "c"] {
            fs::create_dir(files.path(inner)).unwrap();
        }
        for mark in MARKS {
            fs::write(files.path(mark), b"").unwrap();
        }
        files.make("a/cold", random_bytes(1001, 150_000)).unwrap();
        files.make("b/moved", random_bytes(1002, 90_000)).unwrap();
        files.make("b/tail", random_bytes(1003, 70_000)).unwrap();
        let repository = reopen(store, APART);
        let excludes = vec!["*.told".to_owned()];
        let policy = SharePolicy { age_min_seconds: 0, size_min_bytes: 1, excludes };
        Share::create(&repository, files.directory.path(), policy).unwrap();
        let mut emptied = (0..REPAIRS_MAX).map(|_| files.optimize(&repository).unwrap().emptied);
        let mut stubs = 0;
        while stubs < 3 {
            stubs += emptied.next().expect("three files become stubs").files;
        }
        drop(emptied);
        files.make("c/new", random_bytes(1004, 80_000)).unwrap();
        // What a snapshot has that was forgotten.
        files.make("c/same", random_bytes(u64::from(b'x'), 20_000)).unwrap();
        files
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn share(&self) -> Result<Share> {
        Share::open(self.directory.path())
    }

    fn optimize(&self, repository: &Arc<Repository>) -> Result<OptimizeReport> {
        optimize(repository, &self.share()?, &optimize_options(), &job())
    }

    /// The files, in order.
    pub fn names(&self) -> Vec<String> {
        self.files.lock().unwrap().keys().cloned().collect()
    }

    /// Makes a file.
    pub fn make(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let mut files = self.files.lock().unwrap();
        fs::write(self.path(name), &bytes).map_err(|error| Error::io("making a file", error))?;
        files.insert(name.to_owned(), Kept::new(bytes));
        Ok(())
    }

    /// Opens a file as the mount does; `None` if there is none, or somebody has a lease of it.
    pub fn enter(
        &self,
        tree: &Arc<TreeReader>,
        name: &str,
        writes: bool,
    ) -> Result<Option<Entered<'_>>> {
        let files = self.files.lock().unwrap();
        let Some(kept) = files.get(name).map(Arc::clone) else { return Ok(None) };
        let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(self.path(name), flags, Permissions::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(Error::io(format!("{name} is lost"), errno.into())),
        };
        let inode = file.metadata().map_err(|error| Error::io(name, error))?.ino();
        self.open.lock().unwrap().entry(inode).or_default().count += 1;
        let since = kept.settled();
        let again = file.try_clone().map_err(|error| Error::io(name, error))?;
        let mut entered = Entered { files: self, inode, kept, since, file, stub: None };
        drop(files);
        entered.stub = StubFile::open(tree, again)?;
        if let (Some(stub), true) = (&entered.stub, writes) {
            stub.settle_length()?;
        }
        Ok(Some(entered))
    }

    /// What is moved is written down if it is a stub or a directory.
    fn note(&self, share: &Share, path: &Path) -> Result<Option<Held>> {
        let is_noted = path.is_dir() || (path.exists() && stub::value_at(path)?.is_some());
        is_noted.then(|| share.note_move()).transpose()
    }

    /// The name that a stub keeps which is about to lose its last one while it is open.
    fn unnamed(&self, path: &Path) -> Result<Option<PathBuf>> {
        let Ok(metadata) = path.metadata() else { return Ok(None) };
        let mut open = self.open.lock().unwrap();
        let is_last = metadata.is_file() && metadata.nlink() == 1;
        let is_stub = is_last && stub::value_at(path)?.is_some();
        Ok(match open.get_mut(&metadata.ino()) {
            Some(open) if is_stub => {
                open.is_unnamed = true;
                Some(self.hidden(metadata.ino()))
            }
            _ => None,
        })
    }

    fn hidden(&self, inode: u64) -> PathBuf {
        self.path(CONTROL).join(OPEN).join(inode.to_string())
    }

    /// Gives a file or a directory another name, which may be another file's; says so before if
    /// `is_told`.
    pub fn rename(&self, share: &Share, from: &str, to: &str, is_told: bool) -> Result<()> {
        let mut files = self.files.lock().unwrap();
        let (old, new) = (self.path(from), self.path(to));
        let inode = |path: &Path| path.metadata().ok().map(|known| known.ino());
        if inode(&old) == inode(&new) {
            // Two names of one file: the system leaves both.
            return Ok(());
        }
        let _moving = if is_told { self.note(share, &old)? } else { None };
        let _replaced = if is_told { self.note(share, &new)? } else { None };
        let moving = |error| Error::io(format!("moving {from} to {to}"), error);
        if let Some(kept) = self.unnamed(&new)? {
            fs::hard_link(&new, kept).map_err(moving)?;
        }
        fs::rename(old, new).map_err(moving)?;
        let inner = format!("{from}/");
        let moved: Vec<String> = files
            .keys()
            .filter(|name| *name == from || name.starts_with(&inner))
            .cloned()
            .collect();
        for name in moved {
            if let Some(kept) = files.remove(&name) {
                files.insert(format!("{to}{}", &name[from.len()..]), kept);
            }
        }
        Ok(())
    }

    /// Gives a file one more name.
    pub fn link(&self, share: &Share, name: &str, to: &str) -> Result<()> {
        let mut files = self.files.lock().unwrap();
        let (path, fresh) = (self.path(name), self.path(to));
        let _moving = self.note(share, &path)?;
        let linked = fs::hard_link(path, fresh);
        linked.map_err(|error| Error::io(format!("linking {name} to {to}"), error))?;
        if let Some(kept) = files.get(name).map(Arc::clone) {
            files.insert(to.to_owned(), kept);
        }
        Ok(())
    }

    /// Takes a file's name away.
    pub fn remove(&self, share: &Share, name: &str) -> Result<()> {
        let mut files = self.files.lock().unwrap();
        let path = self.path(name);
        let removing = |error| Error::io(format!("removing {name}"), error);
        match self.unnamed(&path)? {
            Some(kept) => {
                let _moving = share.note_move()?;
                fs::rename(path, kept).map_err(removing)?;
            }
            None => fs::remove_file(path).map_err(removing)?,
        }
        files.remove(name);
        Ok(())
    }

    /// Every file holds what it must, by the store alone.
    pub fn verify(&self, store: &MemoryStore, when: &str, problems: &mut Vec<String>) {
        let repository = reopen(store, APART + 1);
        let tree = match TreeReader::open(&repository) {
            Ok(tree) => Arc::new(tree),
            Err(error) => return problems.push(format!("{when}: all is lost: {error}")),
        };
        for name in self.names() {
            match self
                .enter(&tree, &name, false)
                .and_then(|file| file.map(|one| one.read()).transpose())
            {
                Ok(Some(true)) => {}
                Ok(Some(false)) => problems.push(format!("{when}: {name} is lost: other bytes")),
                Ok(None) => problems.push(format!("{when}: somebody has a lease of {name}")),
                Err(error) => problems.push(format!("{when}: {name} is lost: {error}")),
            }
        }
    }

    /// The job alone ends what is left, and then one manifest keeps all there is.
    pub fn repair(&self, store: &MemoryStore, problems: &mut Vec<String>) {
        let mut said = String::new();
        for run in 0..REPAIRS_MAX {
            let repository = reopen(store, APART + 2 + run as u64);
            match self.optimize(&repository) {
                Ok(report) if report.manifests_kept + report.errors == 0 => return,
                Ok(report) => said = format!("{report:?}"),
                Err(error) => said = error.to_string(),
            }
        }
        problems.push(format!("the last optimiser: {said}"));
    }
}

/// An open file of a share.
pub struct Entered<'a> {
    files: &'a SharedFiles,
    inode: u64,
    kept: Arc<Kept>,
    since: usize,
    file: File,
    stub: Option<StubFile>,
}

impl Entered<'_> {
    /// Whether it has what it must have; all of it is read.
    pub fn read(&self) -> Result<bool> {
        let (mut read, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
        loop {
            let length = match &self.stub {
                Some(stub) => stub.read_at(read.len() as u64, &mut buffer)?,
                None => self
                    .file
                    .read_at(&mut buffer, read.len() as u64)
                    .map_err(|error| Error::io("reading", error))?,
            };
            if length == 0 {
                return Ok(self.kept.holds(self.since, &read));
            }
            read.extend_from_slice(&buffer[..length]);
        }
    }

    /// The length that it has.
    pub fn length(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|error| Error::io("its status", error))?.len())
    }

    /// Writes, as whoever uses the mount.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.kept.begin(|known| {
            let (from, to) = (offset as usize, offset as usize + bytes.len());
            known.resize(known.len().max(to), 0);
            known[from..to].copy_from_slice(bytes);
        });
        self.change(|| match &self.stub {
            Some(stub) => stub.write_at(offset, bytes).map(drop),
            None => {
                let written = self.file.write_all_at(bytes, offset);
                written.map_err(|error| Error::io("writing", error))
            }
        })
    }

    /// Cuts it or makes it longer.
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.kept.begin(|known| known.resize(length as usize, 0));
        self.change(|| match &self.stub {
            Some(stub) => stub.set_len(length),
            None => self.file.set_len(length).map_err(|error| Error::io("cutting", error)),
        })
    }

    /// Files are compared by their times, which not every system draws anew at each change: so that
    /// nothing depends on how long a step takes, one waits until they show this one.
    fn change(&self, apply: impl FnOnce() -> Result<()>) -> Result<()> {
        let times = || {
            let known = self.file.metadata().map_err(|error| Error::io("its status", error))?;
            Ok((known.ctime(), known.ctime_nsec()))
        };
        let before: (i64, i64) = times()?;
        apply()?;
        while times()? == before {
            std::thread::sleep(Duration::from_millis(1));
            let same = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            let now =
                Timestamps { last_access: same(UTIME_OMIT), last_modification: same(UTIME_NOW) };
            rustix::fs::futimens(&self.file, &now)
                .map_err(|errno| Error::io("changing its times", errno.into()))?;
        }
        self.kept.end();
        Ok(())
    }

    /// Closes it: whoever is the last ends a stub of which nothing is the store's.
    pub fn close(self) -> Result<()> {
        let is_last = {
            let open = self.files.open.lock().unwrap();
            open.get(&self.inode).is_none_or(|open| open.count == 1 && !open.is_unnamed)
        };
        match &self.stub {
            Some(stub) if is_last => stub.end_if_recalled().map(drop),
            _ => Ok(()),
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut all = self.files.open.lock().unwrap();
        let Some(open) = all.get_mut(&self.inode) else { return };
        open.count -= 1;
        if open.count == 0 {
            if open.is_unnamed {
                let _ = fs::remove_file(self.files.hidden(self.inode));
            }
            all.remove(&self.inode);
        }
    }
}
