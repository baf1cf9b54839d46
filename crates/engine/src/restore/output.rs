//! Files while they are written.
//!
//! A file is made with nobody but its owner allowed to open it, filled in any order by any worker,
//! and gets owner, attributes, mode and time when its last piece is there. Where nothing was it has
//! its own name from the beginning. Until it is finished its modification time is the present, and
//! it has a mark (see `unfinished`), so a restore that was killed is noticed by the next one,
//! whatever the file's length is. If a file cannot be completed it is removed.
//!
//! What was there is replaced: the new file has a temporary name beside it, and when it is complete
//! and durable it is renamed over what was there. Until then that stays as it was, and
//! whoever has it open or mapped keeps it. Its other names (hard links) keep it, too.
//!
//! A file that was there is rewritten in place, in the parts that differ, where that is asked for
//! or no other file can be made or put in its place ([`OutputFile::waits_for_another_try`]). If
//! that fails half-way it holds old and new parts; it is left, told about, and its time stays the
//! present. One with other names is never rewritten, because these were not asked for. If
//! it is a stub, what is restored fills its holes, and counts once all of it is there: until the
//! stub goes, the file is what it was.
//!
//! Invariants: `outstanding` counts the pieces not yet written, plus one while the planner may add
//! more; whoever brings it to zero finishes the file; a failed file is never finished, and neither
//! is one whose [`Ledger`] says that something of it is missing or elsewhere.
//!
//! Concurrency: one lock per file around its handle, never held while writing. Few files are open
//! at once; one that was closed is opened again by name and compared with what it was. The way a
//! file comes to be changes only between windows, when no worker has it.

use super::copying;
use super::durable::write_out_file;
use super::fetch::Sink;
use super::ledger::Ledger;
use super::metadata::{Attributes, Present};
use super::shared::Shared;
use super::target::Directory;
use super::way::{Slot, Way, open_in_place, sets_size};
use super::window::Piece;
use crate::job::Interrupt;
use crate::stub;
use onefold_format::node::Reference;
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Fingerprint, Result, invariant};
use rustix::fs::{FallocateFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const OPEN_FLAGS: OFlags =
    OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A file that is to be.
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
    /// Whether its holes are to be holes.
    pub sparse: bool,
    /// How it comes to be.
    pub way: Way,
    /// The file that is rewritten, open.
    pub opened: Option<Arc<File>>,
    /// What the stub says that is rewritten, if it is one.
    pub stub: Option<Vec<u8>>,
}

/// A file that is being written.
pub struct OutputFile {
    /// Its number in this restore.
    pub number: u64,
    directory: Arc<Directory>,
    name: Vec<u8>,
    attributes: Attributes,
    stub: Option<Vec<u8>>,
    /// Its content.
    pub content: Option<Reference>,
    /// Its length.
    pub size: u64,
    /// Whether its holes are to be holes.
    pub sparse: bool,
    in_place: AtomicBool,
    set_size: AtomicBool,
    touched: AtomicBool,
    copied: AtomicBool,
    outstanding: AtomicU64,
    /// Every byte, and every chunk that is to be written.
    pub ledger: Ledger,
    failed: AtomicBool,
    complete: AtomicBool,
    slot: Mutex<Slot>,
}

impl OutputFile {
    /// A file of which nothing is written yet. The planner holds it open until
    /// [`OutputFile::settle`] takes its share of `outstanding`.
    #[must_use]
    pub fn new(plan: Plan) -> Arc<Self> {
        let ledger = Ledger::default();
        ledger.expect_bytes(plan.size);
        Arc::new(Self {
            number: plan.number,
            directory: plan.directory,
            name: plan.name,
            attributes: plan.attributes,
            stub: plan.stub,
            content: plan.content,
            size: plan.size,
            sparse: plan.sparse,
            in_place: AtomicBool::new(matches!(plan.way, Way::InPlace(..))),
            set_size: AtomicBool::new(sets_size(&plan.way, plan.size)),
            touched: AtomicBool::new(false),
            copied: AtomicBool::new(false),
            outstanding: AtomicU64::new(1),
            ledger,
            failed: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            slot: Mutex::new(Slot::new(plan.way, plan.opened)),
        })
    }

    /// Begins anew with a file that waits for another try, when nobody else has it: in place of
    /// what is there, if anything is.
    ///
    /// Errors: why the first try ended, if what is there cannot be rewritten.
    pub fn try_again(&self, interrupt: &Interrupt) -> Result<()> {
        let (way, failure) = {
            let mut slot = lock(&self.slot);
            let failure = slot.failure.take().unwrap_or_else(|| Error::invalid("not tried"));
            self.take_away(&mut slot);
            slot.again = false;
            slot.tried = true;
            (slot.way.clone(), failure)
        };
        let (way, opened) = match way {
            Way::Replace { there, .. } => {
                let opened = open_in_place(&self.directory, &self.name, &there, interrupt);
                let (opened, stat) = opened.map_err(|why| {
                    failure.context(format!("the file that was there was left as it was ({why})"))
                })?;
                (Way::InPlace(stat), Some(opened))
            }
            other => (other, None),
        };
        self.in_place.store(matches!(way, Way::InPlace(..)), Ordering::Relaxed);
        self.set_size.store(sets_size(&way, self.size), Ordering::Relaxed);
        self.touched.store(false, Ordering::Relaxed);
        self.ledger.begin_anew(self.size);
        self.outstanding.store(1, Ordering::Relaxed);
        *lock(&self.slot) = Slot { tried: true, ..Slot::new(way, opened) };
        self.failed.store(false, Ordering::Release);
        Ok(())
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

    /// Whether it is a file of its own, and not one that was there.
    #[must_use]
    pub fn is_new(&self) -> bool {
        !self.is_in_place()
    }

    /// Whether the file that was there is rewritten.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.in_place.load(Ordering::Relaxed)
    }

    /// Whether it failed for want of room, or because no other file could be put in the place of
    /// what is there, and is tried another time when the window is written: in place.
    #[must_use]
    pub fn waits_for_another_try(&self) -> bool {
        lock(&self.slot).again
    }

    /// What is rewritten, while it is open.
    #[must_use]
    pub fn rewritten(&self) -> Option<(Arc<File>, Stat)> {
        let slot = lock(&self.slot);
        match &slot.way {
            Way::InPlace(stat) => slot.handle.clone().map(|file| (file, *stat)),
            Way::New | Way::Replace { .. } => None,
        }
    }

    /// Whether anything of a file that was there had to be written.
    #[must_use]
    pub fn was_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed)
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
            .handle(shared)
            .and_then(|handle| handle.write_all_at(bytes, offset).context(|| "writing the file"));
        match written {
            Ok(()) => {
                let length = bytes.len() as u64;
                shared.bytes_written.fetch_add(length, Ordering::Relaxed);
                shared.job.progress.add(0, length);
                Ok(())
            }
            Err(error) => self.stopped_by(shared, error),
        }
    }

    /// Takes over a range of the file that is replaced, which is as it is to be.
    pub fn copy(self: &Arc<Self>, shared: &Shared, from: &File, range: Range<u64>) -> Result<()> {
        self.copied.store(true, Ordering::Relaxed);
        let copied = self
            .handle(shared)
            .and_then(|handle| copying::copy_range(from, &handle, range, &shared.job.interrupt));
        match copied {
            Ok(()) => {
                self.park_unless_closed(shared);
                Ok(())
            }
            Err(error) => self.stopped_by(shared, error),
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
        if sparse && !self.is_in_place() {
            // What nobody writes is a hole; the end is set when the file is finished.
            self.set_size.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.touched.store(true, Ordering::Relaxed);
        let zeroed = self.handle(shared).and_then(|handle| {
            let mode = match (sparse, self.is_in_place()) {
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
            Err(error) => self.stopped_by(shared, error),
        }
    }

    fn park_unless_closed(self: &Arc<Self>, shared: &Shared) {
        if lock(&self.slot).handle.is_some() {
            shared.park(self);
        }
    }

    /// Ends the job with an error that ends all, and else the file. Want of room ends all only once
    /// no temporary file takes any.
    fn stopped_by(&self, shared: &Shared, error: Error) -> Result<()> {
        let may_have_room =
            error.kind() == ErrorKind::NoSpace && shared.has_temporaries.load(Ordering::Relaxed);
        if self.waits_for_another_try() || (may_have_room && self.wait_for_room()) {
            self.fail(error);
            return Ok(());
        }
        let ends_all = [ErrorKind::NoSpace, ErrorKind::Exhausted, ErrorKind::Interrupted];
        if ends_all.contains(&error.kind()) {
            return Err(error.context(self.display()));
        }
        self.fail(error);
        Ok(())
    }

    /// Gives back what it takes, until it is tried another time; `false` if it was.
    fn wait_for_room(&self) -> bool {
        let mut slot = lock(&self.slot);
        if slot.tried || matches!(slot.way, Way::InPlace(..)) {
            return false;
        }
        slot.again = true;
        self.take_away(&mut slot);
        true
    }

    /// Removes what there is of a file that is tried another time. If it cannot be removed there is
    /// less room, and that try says so.
    fn take_away(&self, slot: &mut Slot) {
        slot.handle = None;
        if std::mem::take(&mut slot.made) {
            let _ = self.directory.unlink(slot.name_now(&self.name));
        }
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
            Err(error) => self.stopped_by(shared, error),
        }
    }

    fn finish(self: &Arc<Self>, shared: &Shared) -> Result<()> {
        self.ledger.expect_settled()?;
        let handle = self.handle(shared)?;
        let way = lock(&self.slot).way.clone();
        let is_replaced = matches!(way, Way::Replace { .. });
        if self.set_size.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
            let written = handle.metadata().context(|| "its status")?.len();
            // A length that is set is on the disk before the data is, and would have a file of
            // zeros look restored after a loss of power.
            if (1..self.size).contains(&written) && !is_replaced {
                handle.sync_data().context(|| "making it durable")?;
            }
            if written != self.size {
                handle.set_len(self.size).context(|| "setting the file's length")?;
            }
        }
        // So would its time a file that had its length before.
        if self.is_in_place() && self.touched.load(Ordering::Relaxed) {
            handle.sync_data().context(|| "making it durable")?;
        }
        self.end_stub(&handle)?;
        let path = || self.display();
        if is_replaced && self.attributes.lacks_some {
            shared.applier.take_over(&self.directory, &self.name, &handle, &self.attributes, &path);
        }
        // The content is whole, so the file stays whatever becomes of these.
        shared.applier.apply(handle.as_fd(), &self.attributes, self.present(&way), &path);
        if let Way::Replace { there, temporary } = &way {
            handle.sync_data().context(|| "making it durable")?;
            self.expect_as_it_was(there)?;
            self.directory.rename(temporary, &self.name).inspect_err(|error| {
                let code = error.os_code().unwrap_or_default();
                lock(&self.slot).is_refused(Errno::from_raw_os_error(code));
            })?;
        } else if self.is_written_by_itself(&way) {
            write_out_file(&handle)?;
        }
        lock(&self.slot).handle = None;
        Ok(())
    }

    /// Whether what could not be written of it is told with this file only.
    fn is_written_by_itself(&self, way: &Way) -> bool {
        let device = match way {
            // It may be what is mounted on that name.
            Way::InPlace(stat) => stat.st_dev,
            Way::New | Way::Replace { .. } => self.directory.identity().0,
        };
        self.directory.is_written_by_file(device)
    }

    /// What the file has before its attributes are set.
    fn present(&self, way: &Way) -> Present {
        match way {
            Way::InPlace(stat) => Present::existing(stat, &self.directory),
            Way::New | Way::Replace { .. } => Present::fresh(&self.directory),
        }
    }

    /// What is there must be what was looked at; and if parts of it were copied, with those bytes.
    fn expect_as_it_was(&self, there: &Stat) -> Result<()> {
        let now = self.directory.stat(&self.name)?;
        let as_it_was = now.is_none_or(|now| {
            let is_same = (now.st_dev, now.st_ino) == (there.st_dev, there.st_ino);
            let times = |stat: &Stat| (stat.st_ctime, stat.st_ctime_nsec, stat.st_size);
            is_same && (!self.copied.load(Ordering::Relaxed) || times(&now) == times(there))
        });
        match as_it_was {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Io,
                "somebody changed the file that was there during the restore; restore it again",
            )),
        }
    }

    /// Makes a stub that was there an ordinary file: from now on its bytes are those in it, which
    /// are durable first.
    fn end_stub(&self, handle: &File) -> Result<()> {
        if !self.is_in_place() {
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
    fn handle(&self, shared: &Shared) -> Result<Arc<File>> {
        let mut slot = lock(&self.slot);
        if let Some(handle) = &slot.handle {
            return Ok(Arc::clone(handle));
        }
        if slot.again {
            return Err(Error::new(ErrorKind::Io, "the file waits for another try"));
        }
        let directory = self.directory.handle()?;
        let name = slot.name_now(&self.name).to_vec();
        let file = if slot.made {
            let opened = rustix::fs::openat(&*directory, &name, OPEN_FLAGS, Mode::empty())
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
            let mode = self.directory.mode_of_new();
            let made = rustix::fs::openat(&*directory, &name, flags, mode);
            let takes_room = matches!(slot.way, Way::Replace { .. }) && made.is_ok();
            shared.has_temporaries.fetch_or(takes_room, Ordering::Relaxed);
            made.map_err(|errno| {
                slot.is_refused(errno);
                Error::io("making the file", errno.into())
            })?
        };
        slot.made = true;
        let handle = Arc::new(File::from(file));
        slot.handle = Some(Arc::clone(&handle));
        Ok(handle)
    }

    /// Closes the handle for now.
    pub fn close(&self) {
        let mut slot = lock(&self.slot);
        let Some(handle) = slot.handle.take() else { return };
        if let Ok(stat) = rustix::fs::fstat(&*handle) {
            slot.identity = Some((stat.st_dev, stat.st_ino));
        }
        let is_by_itself = self.is_written_by_itself(&slot.way);
        drop(slot);
        if is_by_itself && let Err(error) = write_out_file(&handle) {
            self.fail(error);
        }
    }

    /// Removes what there is of a file that will not be completed. Returns why it failed, and what
    /// became of it.
    pub fn abandon(&self) -> Option<Error> {
        let mut slot = lock(&self.slot);
        slot.handle = None;
        let made = std::mem::take(&mut slot.made);
        let failure = slot.failure.take();
        let name = slot.name_now(&self.name).to_vec();
        let replaces = matches!(slot.way, Way::Replace { .. });
        drop(slot);
        if self.is_in_place() {
            return failure.map(|error| match self.was_touched() {
                true => error.context(
                    "the file that was there has been rewritten in part and is not complete",
                ),
                false => error.context("the file that was there was left as it was"),
            });
        }
        let failure = match replaces {
            true => failure.map(|error| error.context("what was there was left as it was")),
            false => failure,
        };
        if made && let Err(left) = self.directory.unlink(&name) {
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
