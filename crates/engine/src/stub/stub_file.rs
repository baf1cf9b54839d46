//! The bytes of a stub: those in the store and those that came back into the file.
//!
//! # Algorithm (ATC'12, "write path to optimized file")
//! A byte is the file's own if the stub says so, else the store's. Whoever writes has the granules
//! that he touches made the file's own first: they are copied out of the store (a *partial
//! recall*), all else of the file stays where it is.
//!
//! # Invariants
//! - **Data before its bit.** A granule's bit is set when its data is durable in the file. Whatever
//!   happens before leaves the store's bytes, which is the file as it was.
//! - **Bit before what is written.** What a program writes goes into granules only whose bits are
//!   durable. So a power loss leaves of an unsynced write what it leaves in any file, and never
//!   what has to be told apart from the store's bytes.
//! - **No job beside a writer.** Who serves programs takes the lock that goes with leases before
//!   the first change, and looks at what the stub says then ([`StubFile::with_job_wait`]).
//! - **Cut before grown.** The stub never holds for more bytes than the file has had since it was
//!   last cut, so what grows again is zeros and not what was cut off.
//! - **Never more room.** A stub that changes keeps its length; data takes room before its bit is
//!   set, so a full disk is an error of that write and leaves the file as it was.
//! - **Nothing is punched unseen.** Data where the bytes are the store's is taken out only once it
//!   is known to be what the store has (`written_below`).
//!
//! # Concurrency
//! Shared by threads. Those that read look at the stub for a moment only. Those that change what is
//! whose do so one after the other; what a reader is given of a range that is written at the same
//! time is the old or the new.

use super::{open, open_copied, remove, times, value, wait_for_job, write};
use crate::repository::Repository;
use crate::tree::{FileReader, TreeReader};
use onefold_format::node::{Entry, EntryKind, Time};
use onefold_format::stub::{Stub, StubOwner};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

mod written_below;

pub use written_below::has_left_over;

/// What is copied out of the store at once.
const COPIED_BYTES: usize = limits::MIB;

/// An open file that is a stub.
pub struct StubFile {
    file: File,
    owner: StubOwner,
    reader: FileReader,
    repository: Arc<Repository>,
    stub: RwLock<Stub>,
    changing: Mutex<()>,
    /// Whether something was found that was written into the file below, and kept.
    was_written_below: AtomicBool,
    /// Whether what was found in it has been compared with the store since it was opened.
    is_compared: AtomicBool,
    /// Who makes room for what comes back before somebody writes.
    room: Option<Arc<dyn Room>>,
    /// How long the first change waits for a job; `None` if it is a job's own.
    job_wait: Option<Duration>,
    /// Whether no job changes the file as long as this is open.
    is_locked: AtomicBool,
}

/// Who has room set aside on the disk.
pub trait Room: Send + Sync {
    /// Gives so many bytes back, or what is left; whether that is anything.
    fn make(&self, bytes: u64) -> bool;
}

/// Bytes of one file that are in one place.
struct Run {
    is_own: bool,
    end: u64,
}

impl StubFile {
    /// The stub that an open file is, for reading, and for writing if the file is open for it.
    /// `None` if it is an ordinary file.
    ///
    /// Errors: `Damaged` if its stub is none of this store or of another file.
    pub fn open(tree: &Arc<TreeReader>, file: File) -> Result<Option<Self>> {
        Self::open_by(tree, file, false)
    }

    /// The same of a file that was copied from a stub without its data; it becomes a stub of its
    /// own when something of it comes back.
    pub fn open_copied(tree: &Arc<TreeReader>, file: File) -> Result<Option<Self>> {
        Self::open_by(tree, file, true)
    }

    fn open_by(tree: &Arc<TreeReader>, file: File, is_copied: bool) -> Result<Option<Self>> {
        let Some(value) = value(&file)? else { return Ok(None) };
        let repository = Arc::clone(tree.chunks().repository());
        let metadata = file.metadata().context(|| "its status")?;
        let (owner, mut stub) = match is_copied {
            true => open_copied(&repository, &value)?,
            false => open(&repository, metadata.ino(), &value)?,
        };
        // Somebody was stopped after he had cut the file and before he had said so.
        stub.valid = stub.valid.min(metadata.len());
        let entry = Entry {
            kind: EntryKind::File,
            size: stub.size,
            content: Some(stub.content),
            chunks: stub.chunks,
            ..Entry::default()
        };
        let reader = FileReader::open(Arc::clone(tree), &entry)?;
        Ok(Some(Self {
            file,
            owner: StubOwner { inode: metadata.ino(), ..owner },
            reader,
            repository,
            stub: RwLock::new(stub),
            changing: Mutex::default(),
            was_written_below: AtomicBool::default(),
            is_compared: AtomicBool::default(),
            room: None,
            job_wait: None,
            is_locked: AtomicBool::default(),
        }))
    }

    /// Lets the first change wait so long for a job that is at the file.
    #[must_use]
    pub fn with_job_wait(self, wait: Duration) -> Self {
        Self { job_wait: Some(wait), ..self }
    }

    /// Lets what comes back before somebody writes take room that is set aside.
    #[must_use]
    pub fn with_room(self, room: Arc<dyn Room>) -> Self {
        Self { room: Some(room), ..self }
    }

    /// The file below.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The stub as it is now.
    #[must_use]
    pub fn stub(&self) -> Stub {
        self.stub.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, offset: u64, limit: u64) -> Run {
        run(&self.stub.read().unwrap_or_else(PoisonError::into_inner), offset, limit)
    }

    /// Reads from an offset on until the buffer is full or the file ends; says how much it read.
    ///
    /// Errors: `Damaged` if a chunk that is asked for cannot be read; other ranges can.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let run = self.run(at, offset + buffer.len() as u64);
            let left = usize::try_from(run.end - at).unwrap_or(usize::MAX);
            let room = left.min(buffer.len() - done);
            let wanted = &mut buffer[done..done + room];
            let read = match run.is_own {
                true => self.file.read_at(wanted, at).context(|| "reading it")?,
                false => self.reader.read_at(at, wanted)?,
            };
            if read == 0 {
                break;
            }
            done += read;
        }
        Ok(done)
    }

    /// The first offset from one on that holds data; `None` if there is none before the end.
    pub fn next_data(&self, mut offset: u64) -> Result<Option<u64>> {
        let size = self.file.metadata().context(|| "its status")?.len();
        while offset < size {
            let run = self.run(offset, size);
            let found = match run.is_own {
                true => own_data(&self.file, offset)?,
                false => self.reader.next_data(offset)?,
            };
            match found {
                Some(found) if found < run.end.min(size) => return Ok(Some(found)),
                _ => offset = run.end,
            }
        }
        Ok(None)
    }

    /// The first offset from one on that lies in a hole, as what is behind the end does; `None`
    /// from the end on.
    pub fn next_hole(&self, mut offset: u64) -> Result<Option<u64>> {
        let size = self.file.metadata().context(|| "its status")?.len();
        if offset >= size {
            return Ok(None);
        }
        while offset < size {
            let run = self.run(offset, size);
            let found = match run.is_own {
                true => own_hole(&self.file, offset)?,
                false => self.reader.next_hole(offset)?.unwrap_or(size),
            };
            if found < run.end.min(size) {
                return Ok(Some(found));
            }
            offset = run.end;
        }
        Ok(Some(size))
    }

    /// What of a range the store has that is no hole, in bytes.
    pub fn stored_data_bytes(&self, range: Range<u64>) -> Result<u64> {
        let (mut bytes, mut at) = (0, range.start);
        while let Some(data) = self.reader.data_within(at..range.end)? {
            at = self.reader.hole_within(data..range.end)?;
            bytes += at - data;
        }
        Ok(bytes)
    }

    /// Writes at an offset; what it touches is the file's own afterwards. Says how much that is,
    /// which is less than all only where the disk is full. It goes from the front on, and what has
    /// to come back for it is written or not as a whole, so that nothing is written behind that.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.keep_jobs_away()?;
        self.take_times()?;
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let done = (at - offset) as usize;
            let run = self.run(at, end);
            let piece = &bytes[done..(run.end.min(end) - offset) as usize];
            let range = at..at + piece.len() as u64;
            let written = match run.is_own {
                true => write_some_at(&self.file, piece, at).context(|| "writing it"),
                false => self.write_first(&range, piece),
            };
            match written {
                Ok(written) => {
                    at += written as u64;
                    if written < piece.len() {
                        break;
                    }
                }
                // What is written is written, and whoever goes on hears of it.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((at - offset) as usize)
    }

    /// Takes the data of a range out of the file: zeros are there afterwards.
    pub fn punch(&self, range: Range<u64>, flags: FallocateFlags) -> Result<()> {
        self.keep_jobs_away()?;
        self.take_times()?;
        let length = range.end - range.start;
        self.make_own(&range, Some(&range))?;
        // Zeros may take room.
        self.with_room_for(length, || {
            rustix::fs::fallocate(&self.file, flags, range.start, length)
                .map_err(std::io::Error::from)
                .context(|| "taking data out of it")
        })
    }

    /// Writes what is the store's so far; says how much. What was a hole there takes room only now.
    fn write_first(&self, range: &Range<u64>, bytes: &[u8]) -> Result<usize> {
        self.make_own(range, None)?;
        let mut done = 0;
        let mut write = || {
            while done < bytes.len() {
                let at = range.start + done as u64;
                match write_some_at(&self.file, &bytes[done..], at).context(|| "writing it")? {
                    0 => break,
                    written => done += written,
                }
            }
            Ok(())
        };
        match self.with_room_for(bytes.len() as u64, &mut write) {
            Err(error) if done == 0 => Err(error),
            // What is written is written, and whoever goes on hears of it.
            _ => Ok(done),
        }
    }

    /// Does something again as long as the disk is full and there is room set aside.
    fn with_room_for<T>(&self, bytes: u64, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match work() {
                Err(error) if error.is_full_disk() && self.makes_room(bytes) => {}
                done => return done,
            }
        }
    }

    /// Makes the granules of a range the file's own, durably: whoever asks is about to change it.
    /// Of what is about to be punched nothing comes back.
    fn make_own(&self, range: &Range<u64>, punched: Option<&Range<u64>>) -> Result<()> {
        if self.touched(range).is_empty() {
            return Ok(());
        }
        let _one = self.changing();
        // Somebody else may have been faster.
        let granules = self.untouched_below(range)?;
        if granules.is_empty() {
            return Ok(());
        }
        let bytes = (granules.len() as u64) << self.stub().granule_log2;
        self.with_room_for(bytes, || self.own(&granules, range, punched))?;
        self.file.sync_all().context(|| "making the stub durable")
    }

    fn makes_room(&self, bytes: u64) -> bool {
        self.room.as_ref().is_some_and(|room| room.make(bytes))
    }

    /// The granules of a range that are the store's.
    fn touched(&self, range: &Range<u64>) -> Vec<u64> {
        let stub = self.stub.read().unwrap_or_else(PoisonError::into_inner);
        let end = range.end.min(stub.valid);
        if range.start >= end {
            return Vec::new();
        }
        let last = stub.granule_at(end - 1);
        let of = stub.granule_at(range.start)..=last;
        of.filter(|granule| !stub.is_recalled(*granule)).collect()
    }

    /// Makes granules the file's own: their data comes out of the store, but for what is about to
    /// be punched, which is taken out; once all of that is durable the stub says so. One at a time.
    /// What the store has lost of a granule that is `changed` as a whole is not missed.
    fn own(
        &self,
        granules: &[u64],
        changed: &Range<u64>,
        punched: Option<&Range<u64>>,
    ) -> Result<()> {
        let mut stub = self.stub();
        for granule in granules {
            let range = stub.range_of(*granule);
            let over = match punched {
                Some(over) => {
                    let start = over.start.clamp(range.start, range.end);
                    start..over.end.clamp(start, range.end)
                }
                None => range.end..range.end,
            };
            if !over.is_empty() {
                self.take_out(&over)?;
            }
            let copied = self.copy(range.start..over.start);
            match copied.and_then(|()| self.copy(over.end..range.end)) {
                Err(error)
                    if error.is_lost()
                        && changed.start <= range.start
                        && range.end <= changed.end => {}
                copied => copied?,
            }
            stub.set_recalled(*granule);
        }
        self.file.sync_data().context(|| "making what came back durable")?;
        self.save(stub)
    }

    /// Takes out what the file holds of a range.
    fn take_out(&self, range: &Range<u64>) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start)
            .map_err(std::io::Error::from)
            .context(|| "making room for what comes back")
    }

    /// Copies bytes out of the store into the file, where the file may hold something else. What is
    /// a hole in the store becomes one in the file.
    fn copy(&self, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.take_out(&range)?;
        let mut at = range.start;
        while let Some(data) = self.reader.data_within(at..range.end)? {
            let hole = self.reader.hole_within(data..range.end)?;
            at = data;
            while at < hole {
                let mut buffer = vec![0; (hole - at).min(COPIED_BYTES as u64) as usize];
                let read = self.reader.read_at(at, &mut buffer)?;
                self.file
                    .write_all_at(&buffer[..read], at)
                    .context(|| "writing what comes back")?;
                at += read.max(1) as u64;
            }
        }
        Ok(())
    }

    fn save(&self, stub: Stub) -> Result<()> {
        write(&self.repository, self.owner, &self.file, &stub)?;
        *self.stub.write().unwrap_or_else(PoisonError::into_inner) = stub;
        Ok(())
    }

    /// Cuts the file or makes it longer.
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.keep_jobs_away()?;
        self.take_times()?;
        let _one = self.changing();
        let mut stub = self.stub();
        self.file.set_len(length).context(|| "changing its length")?;
        if length < stub.valid {
            stub.valid = length;
            self.save(stub)?;
        }
        Ok(())
    }

    /// Waits until no job is at the file, and keeps jobs away as long as this is open.
    ///
    /// Errors: `Unavailable` if that takes too long, or a job made another file of it meanwhile.
    fn keep_jobs_away(&self) -> Result<()> {
        let Some(wait) = self.job_wait.filter(|_| !self.is_locked.load(Ordering::Acquire)) else {
            return Ok(());
        };
        wait_for_job(&self.file, wait)?;
        let _one = self.changing();
        if self.is_locked.load(Ordering::Acquire) {
            return Ok(());
        }
        let moved_on = || {
            let why = "a job has changed what it is since it was opened; open it again";
            Error::new(ErrorKind::Unavailable, why)
        };
        let value = value(&self.file)?.ok_or_else(moved_on)?;
        let (_, mut stored) = open_copied(&self.repository, &value)?;
        if stored.content != self.stub().content {
            return Err(moved_on());
        }
        let length = self.file.metadata().context(|| "its status")?.len();
        stored.valid = stored.valid.min(length);
        *self.stub.write().unwrap_or_else(PoisonError::into_inner) = stored;
        self.is_locked.store(true, Ordering::Release);
        Ok(())
    }

    /// From now on the file's times are what it says: somebody writes to it, or sets them.
    pub fn take_times(&self) -> Result<()> {
        let is_pending = || self.stub.read().unwrap_or_else(PoisonError::into_inner);
        if !is_pending().are_times_pending {
            return Ok(());
        }
        let _one = self.changing();
        let mut stub = self.stub();
        stub.are_times_pending = false;
        self.save(stub)
    }

    /// Says when the file is to have been changed once all of it is brought back; that is known
    /// already if somebody was stopped at it, unless somebody else has set it since.
    pub fn begin_bringing_back(&self, modified: Time, changed: Time) -> Result<Time> {
        let _one = self.changing();
        let mut stub = self.stub();
        if let Some(pending) = times::pending(&stub, modified, changed) {
            return Ok(pending);
        }
        if (stub.are_times_pending, stub.modified) != (true, modified) {
            stub.modified = modified;
            stub.are_times_pending = true;
            self.save(stub)?;
        }
        Ok(modified)
    }

    /// Whether something of a range is the store's, so that whoever wants it may wait.
    #[must_use]
    pub fn needs_store(&self, range: &Range<u64>) -> bool {
        !self.touched(range).is_empty()
    }

    /// Whether whoever writes to a range may wait, for the store or for a job.
    #[must_use]
    pub fn may_wait_to_write(&self, range: &Range<u64>) -> bool {
        let is_locked = self.job_wait.is_none() || self.is_locked.load(Ordering::Acquire);
        !is_locked || self.needs_store(range)
    }

    /// Says how far the stub holds, if somebody was stopped before he had said so. Before the file
    /// is made longer.
    pub fn settle_length(&self) -> Result<()> {
        let _one = self.changing();
        let Some(value) = value(&self.file)? else { return Ok(()) };
        // One that was copied is of this file only once something is written down of it.
        let (_, stored) = open_copied(&self.repository, &value)?;
        let stub = self.stub();
        if stored.valid != stub.valid { self.save(stub) } else { Ok(()) }
    }

    /// Makes a range the file's own again, granule by granule, as long as `may` says so before each
    /// of them; whether it came to the end.
    pub fn recall(&self, range: Range<u64>, may: &dyn Fn() -> Result<bool>) -> Result<bool> {
        let _one = self.changing();
        for granule in self.untouched_below(&range)? {
            if !may()? {
                return Ok(false);
            }
            self.own(&[granule], &(0..0), None)?;
        }
        may()
    }

    /// Whether nothing of the file is the store's any more.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        let stub = self.stub.read().unwrap_or_else(PoisonError::into_inner);
        stub.not_recalled().next().is_none()
    }

    /// Makes a file of which nothing is the store's an ordinary one; says whether it is one now.
    pub fn end_if_recalled(&self) -> Result<bool> {
        let _one = self.changing();
        if !self.is_recalled() {
            return Ok(false);
        }
        self.file.sync_all().context(|| "making it durable")?;
        self.put_pending_time_back()?;
        remove(&self.file)?;
        Ok(true)
    }

    /// Puts a pending time back: nobody knows it any more once the stub is gone.
    fn put_pending_time_back(&self) -> Result<()> {
        let status = self.file.metadata().context(|| "its status")?;
        let time = |seconds, nanoseconds: i64| Time { seconds, nanoseconds: nanoseconds as u32 };
        let modified = time(status.mtime(), status.mtime_nsec());
        let changed = time(status.ctime(), status.ctime_nsec());
        match times::pending(&self.stub(), modified, changed) {
            Some(pending) => times::put_back(&self.file, pending),
            None => Ok(()),
        }
    }
}

/// Writes at an offset as much as the disk takes.
pub fn write_some_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(written) => done += written,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // What is written is written, and whoever goes on hears of it.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Whose the bytes from an offset on are, and how far that goes; looked at up to a limit.
fn run(stub: &Stub, offset: u64, limit: u64) -> Run {
    let is_own = stub.is_own(offset);
    if offset >= stub.valid {
        return Run { is_own, end: u64::MAX };
    }
    let mut granule = stub.granule_at(offset);
    let limit = limit.min(stub.valid);
    while granule << stub.granule_log2 < limit && stub.is_recalled(granule) == is_own {
        granule += 1;
    }
    let end = granule << stub.granule_log2;
    // What the file owns may go on behind the content; the next look tells.
    Run { is_own, end: end.min(stub.valid) }
}

/// The first offset from one on that holds data of the file itself.
pub(crate) fn own_data(file: &File, offset: u64) -> Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(errno) => Err(onefold_types::Error::io("looking for data", errno.into())),
    }
}

/// The first offset from one on that lies in a hole of the file itself, or its end.
fn own_hole(file: &File, offset: u64) -> Result<u64> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(offset))
        .map_err(|errno| onefold_types::Error::io("looking for a hole", errno.into()))
}
