//! Files while they are written.
//!
//! A new file is made under its own name with nobody but its owner allowed to open it, filled in
//! any order by any worker, and gets mode, owner, attributes and time when its last piece is there.
//! Until then its modification time is the present, so a restore that was killed is noticed by the
//! next one, whatever the file's length is. If a file cannot be completed it is removed.
//!
//! A file that was there and differs is rewritten in place, in the parts that differ. If that fails
//! half-way it holds old and new parts; it is left, told about, and its time stays the present. It
//! is never rewritten if it has other names (hard links), because these were not asked for. If it
//! is a stub, what is restored fills its holes, and counts once all of it is there: until the stub
//! goes, the file is what it was.
//!
//! Invariants: `outstanding` counts the pieces not yet written, plus one while the planner may add
//! more; whoever brings it to zero finishes the file; a failed file is never finished, and neither
//! is one whose [`Ledger`] says that something of it is missing or elsewhere.
//!
//! Concurrency: one lock per file around its handle, never held while writing. Few files are open
//! at once; one that was closed is opened again by name and compared with what it was.

use super::Without;
use super::fetch::Sink;
use super::ledger::Ledger;
use super::metadata::{Applier, Attributes, Present};
use super::target::Directory;
use super::window::Piece;
use crate::environment::open_files_max;
use crate::job::Job;
use crate::stub;
use lru::LruCache;
use onefold_format::node::Reference;
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Fingerprint, Result, invariant};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const FILES_OPEN_MAX: NonZeroUsize = NonZeroUsize::new(192).unwrap();
/// Nobody else may look at a file before it has its mode.
const PRIVATE: u32 = 0o600;
const OPEN_FLAGS: OFlags =
    OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// What all files of a restore share.
pub struct Shared {
    /// Sets attributes.
    pub applier: Applier,
    /// Interrupts, progress and problems.
    pub job: Job,
    /// Bytes written.
    pub bytes_written: AtomicU64,
    /// Finished files whose attributes could not be set.
    pub errors: AtomicU64,
    open: Mutex<LruCache<u64, Weak<OutputFile>>>,
}

impl Shared {
    /// For one restore.
    #[must_use]
    pub fn new(job: &Job, without: Without) -> Self {
        // Directories and the store take their parts, too.
        let room = NonZeroUsize::new(open_files_max() / 6).unwrap_or(NonZeroUsize::MIN);
        Self {
            applier: Applier::new(job, without),
            job: job.clone(),
            bytes_written: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            open: Mutex::new(LruCache::new(room.min(FILES_OPEN_MAX))),
        }
    }

    /// Remembers that a file is open, and closes the one that was used longest ago.
    pub fn park(&self, file: &Arc<OutputFile>) {
        let evicted = lock(&self.open).push(file.number, Arc::downgrade(file));
        if let Some((number, evicted)) = evicted
            && number != file.number
            && let Some(evicted) = evicted.upgrade()
        {
            evicted.close();
        }
    }
}

/// How a file comes to be.
pub struct Plan {
    /// Its number in this restore.
    pub number: u64,
    /// Where it is.
    pub directory: Arc<Directory>,
    /// Its name there.
    pub name: Vec<u8>,
    /// What it is to have.
    pub attributes: Attributes,
    /// Its content.
    pub content: Option<Reference>,
    /// Its length.
    pub size: u64,
    /// The file that is there and is rewritten in place.
    pub existing: Option<(Arc<File>, rustix::fs::Stat)>,
    /// What that file's stub says, if it is one.
    pub stub: Option<Vec<u8>>,
}

/// A file that is being written.
pub struct OutputFile {
    number: u64,
    directory: Arc<Directory>,
    name: Vec<u8>,
    attributes: Attributes,
    present: Present,
    in_place: bool,
    stub: Option<Vec<u8>>,
    /// Its content.
    pub content: Option<Reference>,
    /// Its length.
    pub size: u64,
    set_size: AtomicBool,
    touched: AtomicBool,
    outstanding: AtomicU64,
    /// Every byte, and every chunk that is to be written.
    pub ledger: Ledger,
    failed: AtomicBool,
    complete: AtomicBool,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    handle: Option<Arc<File>>,
    /// Whether it was made or opened before.
    made: bool,
    identity: Option<(u64, u64)>,
    failure: Option<Error>,
}

impl OutputFile {
    /// A file of which nothing is written yet. The planner holds it open until
    /// [`OutputFile::settle`] takes its share of `outstanding`.
    #[must_use]
    pub fn new(plan: Plan) -> Arc<Self> {
        let fresh = Present {
            uid: rustix::process::geteuid().as_raw(),
            gid: plan.directory.group_of_new,
            attributes: plan.directory.inherits_acl,
        };
        let (mut present, mut slot, mut set_size) = (fresh, Slot::default(), false);
        let in_place = plan.existing.is_some();
        if let Some((file, stat)) = plan.existing {
            present = Present::existing(&stat);
            set_size = stat.st_size as u64 != plan.size;
            slot = Slot {
                handle: Some(file),
                made: true,
                identity: Some((stat.st_dev, stat.st_ino)),
                failure: None,
            };
        }
        let ledger = Ledger::default();
        ledger.expect_bytes(plan.size);
        Arc::new(Self {
            number: plan.number,
            directory: plan.directory,
            name: plan.name,
            attributes: plan.attributes,
            present,
            in_place,
            stub: plan.stub,
            content: plan.content,
            size: plan.size,
            set_size: AtomicBool::new(set_size),
            touched: AtomicBool::new(false),
            outstanding: AtomicU64::new(1),
            ledger,
            failed: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            slot: Mutex::new(slot),
        })
    }

    /// Announces a piece.
    pub fn expect_piece(&self, offset: u64, fingerprint: &Fingerprint) {
        self.ledger.plan(offset, fingerprint);
        self.outstanding.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it could not be restored.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether it is finished.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Whether it was not there before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        !self.in_place
    }

    /// Whether anything of a file that was there had to be written.
    #[must_use]
    pub fn was_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed) || self.set_size.load(Ordering::Relaxed)
    }

    /// Gives it up; only the first reason is kept.
    pub fn fail(&self, error: Error) {
        let mut slot = lock(&self.slot);
        slot.failure.get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    /// Its path, for messages.
    #[must_use]
    pub fn display(&self) -> String {
        self.directory.display_of(&self.name)
    }

    /// Writes bytes; an error is the end of the job, any other trouble the end of the file only.
    fn write(self: &Arc<Self>, shared: &Shared, offset: u64, bytes: &[u8]) -> Result<()> {
        self.touched.store(true, Ordering::Relaxed);
        let written = self
            .handle()
            .and_then(|handle| handle.write_all_at(bytes, offset).context(|| "writing the file"));
        match written {
            Ok(()) => {
                let length = bytes.len() as u64;
                shared.bytes_written.fetch_add(length, Ordering::Relaxed);
                shared.job.progress.add(0, length);
                Ok(())
            }
            Err(error) => self.stopped_by(error),
        }
    }

    /// Makes a range zeros: a hole if `sparse`, else space that is taken.
    pub fn zero(
        self: &Arc<Self>,
        shared: &Shared,
        offset: u64,
        length: u64,
        sparse: bool,
    ) -> Result<()> {
        self.ledger.settle_bytes(length);
        if sparse && !self.in_place {
            // What nobody writes is a hole; the end is set when the file is finished.
            self.set_size.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.touched.store(true, Ordering::Relaxed);
        let zeroed = self.handle().and_then(|handle| {
            let mode = match (sparse, self.in_place) {
                (true, _) => FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE),
                (false, true) => FallocateFlags::ZERO_RANGE,
                (false, false) => FallocateFlags::empty(),
            };
            if sparse {
                self.set_size.store(true, Ordering::Relaxed);
            }
            match rustix::fs::fallocate(&*handle, mode, offset, length) {
                Ok(()) => Ok(()),
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    write_zeros(&handle, shared, offset, length)
                }
                Err(errno) => Err(Error::io("writing the file", errno.into())),
            }
        });
        match zeroed {
            Ok(()) => {
                self.park_unless_closed(shared);
                Ok(())
            }
            Err(error) => self.stopped_by(error),
        }
    }

    fn park_unless_closed(self: &Arc<Self>, shared: &Shared) {
        if lock(&self.slot).handle.is_some() {
            shared.park(self);
        }
    }

    fn stopped_by(&self, error: Error) -> Result<()> {
        let ends_all = [ErrorKind::NoSpace, ErrorKind::Exhausted, ErrorKind::Interrupted];
        if ends_all.contains(&error.kind()) {
            return Err(error.context(self.display()));
        }
        self.fail(error);
        Ok(())
    }

    /// Takes `pieces` off what is outstanding, and finishes the file if nothing is left.
    pub fn settle(self: &Arc<Self>, shared: &Shared, pieces: u64) -> Result<()> {
        let outstanding = self.outstanding.fetch_sub(pieces, Ordering::AcqRel);
        invariant!(outstanding >= pieces, "a file was given too much", outstanding, pieces);
        if outstanding != pieces {
            self.park_unless_closed(shared);
            return Ok(());
        }
        if self.has_failed() {
            return Ok(());
        }
        match self.finish(shared) {
            Ok(()) => {
                self.complete.store(true, Ordering::Release);
                shared.job.progress.add(1, 0);
                Ok(())
            }
            Err(error) => self.stopped_by(error),
        }
    }

    fn finish(self: &Arc<Self>, shared: &Shared) -> Result<()> {
        self.ledger.expect_settled()?;
        let handle = self.handle()?;
        if self.set_size.load(Ordering::Relaxed) {
            handle.set_len(self.size).context(|| "setting the file's length")?;
        }
        self.end_stub(&handle)?;
        let path = || self.display();
        let applied = shared.applier.apply(handle.as_fd(), &self.attributes, self.present, &path);
        if let Err(error) = applied {
            // The content is whole, so the file stays.
            shared.errors.fetch_add(1, Ordering::Relaxed);
            shared.job.observer.problem(&path(), &error);
        }
        lock(&self.slot).handle = None;
        Ok(())
    }

    /// Makes a stub that was there an ordinary file: from now on its bytes are those in it, which
    /// are durable first.
    fn end_stub(&self, handle: &File) -> Result<()> {
        if !self.in_place {
            return Ok(());
        }
        if stub::value(handle)? != self.stub {
            return Err(Error::new(
                ErrorKind::Io,
                "a job of its share has taken its data out during the restore; restore it again",
            ));
        }
        if self.stub.is_some() {
            handle.sync_data().context(|| "making it durable")?;
            stub::remove(handle)?;
        }
        Ok(())
    }

    /// The handle; the file is made, or opened again, if there is none.
    fn handle(&self) -> Result<Arc<File>> {
        let mut slot = lock(&self.slot);
        if let Some(handle) = &slot.handle {
            return Ok(Arc::clone(handle));
        }
        let directory = self.directory.handle()?;
        let name = self.name.as_slice();
        let file = if slot.made {
            let opened = rustix::fs::openat(&*directory, name, OPEN_FLAGS, Mode::empty())
                .map_err(|errno| Error::io("opening the file again", errno.into()))?;
            let stat = rustix::fs::fstat(&opened)
                .map_err(|errno| Error::io("looking at the file", errno.into()))?;
            if slot.identity != Some((stat.st_dev, stat.st_ino)) {
                return Err(Error::new(
                    ErrorKind::Io,
                    "the file was replaced by another one during the restore",
                ));
            }
            opened
        } else {
            let flags = OPEN_FLAGS.union(OFlags::CREATE).union(OFlags::EXCL);
            rustix::fs::openat(&*directory, name, flags, Mode::from_raw_mode(PRIVATE))
                .map_err(|errno| Error::io("making the file", errno.into()))?
        };
        slot.made = true;
        let handle = Arc::new(File::from(file));
        slot.handle = Some(Arc::clone(&handle));
        Ok(handle)
    }

    /// Closes the handle for now.
    fn close(&self) {
        let mut slot = lock(&self.slot);
        if let Some(handle) = slot.handle.take()
            && let Ok(stat) = rustix::fs::fstat(&*handle)
        {
            slot.identity = Some((stat.st_dev, stat.st_ino));
        }
    }

    /// Removes what there is of a file that will not be completed. Returns why it failed, and what
    /// became of it.
    pub fn abandon(&self) -> Option<Error> {
        let mut slot = lock(&self.slot);
        slot.handle = None;
        let made = std::mem::take(&mut slot.made);
        let failure = slot.failure.take();
        drop(slot);
        if self.in_place {
            return failure.map(|error| match self.was_touched() {
                true => error.context(
                    "the file that was there has been rewritten in part and is not complete",
                ),
                false => error.context("the file that was there was left as it was"),
            });
        }
        if made && let Err(left) = self.directory.unlink(&self.name) {
            let what = format!("an incomplete file is left, because removing it failed ({left})");
            return Some(match failure {
                Some(error) => error.context(what),
                None => Error::new(ErrorKind::Io, what),
            });
        }
        failure
    }

    /// Opens the finished file for reading.
    pub fn open_again(&self) -> Result<(Arc<File>, u64)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let directory = self.directory.handle()?;
        let opened = rustix::fs::openat(&*directory, self.name.as_slice(), flags, Mode::empty())
            .map_err(|errno| Error::io("opening the restored file", errno.into()))?;
        let stat = rustix::fs::fstat(&opened)
            .map_err(|errno| Error::io("looking at the restored file", errno.into()))?;
        Ok((Arc::new(File::from(opened)), stat.st_size as u64))
    }
}

/// Makes another name of an item; a symbolic link is not followed.
pub fn link(from: &Directory, old: &[u8], to: &Directory, new: &[u8]) -> Result<()> {
    let (from, to) = (from.handle()?, to.handle()?);
    rustix::fs::linkat(&*from, old, &*to, new, AtFlags::empty())
        .map_err(|errno| Error::io("making the hard link", errno.into()))
}

fn write_zeros(file: &File, shared: &Shared, offset: u64, length: u64) -> Result<()> {
    static ZEROS: [u8; 65536] = [0; 65536];
    let end = offset + length;
    let mut position = offset;
    while position < end {
        shared.job.interrupt.check()?;
        let length = (end - position).min(ZEROS.len() as u64) as usize;
        file.write_all_at(&ZEROS[..length], position).context(|| "writing the file")?;
        position += length as u64;
    }
    Ok(())
}

/// Delivers verified bytes to the files of one window.
pub struct FileSink<'a> {
    /// What files share.
    pub shared: &'a Shared,
    /// The window's files, by number.
    pub files: &'a [Arc<OutputFile>],
}

impl Sink for FileSink<'_> {
    fn wants(&self, output: u32) -> bool {
        !self.files[output as usize].has_failed()
    }

    fn deliver(&self, output: u32, offset: u64, bytes: &[u8], run: &[Piece]) -> Result<()> {
        let file = &self.files[output as usize];
        file.ledger.deliver(offset, bytes, run);
        file.write(self.shared, offset, bytes)?;
        file.settle(self.shared, run.len() as u64)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
