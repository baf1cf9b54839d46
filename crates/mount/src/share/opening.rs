//! What has to be open for a request: opened first, entered again, closed last.
//!
//! # Algorithm
//! A file is opened once for all who have it open, for reading, and a stub for writing as well if
//! it may be: what is brought back is written. One that could not be is opened again when somebody
//! comes who may write. What a file's permissions keep its owner from he does all the same
//! ([`permissions`]): the kernel has asked them when the program opened it, and nobody asks twice.
//!
//! # Invariant
//! `Served::enter_now` waits for nobody: not for the store, not for a job that holds a lease, and
//! not for another thread that opens the same file. Nor does who gives himself a right for a
//! moment, whom all others wait for who change permissions: a file under a lease is asked for again
//! later.

use super::Answer;
use super::below::{self, failed};
use super::open_files::{Bytes, Handle, OpenInode};
use super::served::Served;
use fuser::{Errno, FileType};
use onefold_engine::primary::changed_below;
use onefold_engine::stub::stub_file::{Room, has_left_over};
use onefold_engine::stub::{self, StubFile, permissions};
use onefold_engine::user_file;
use onefold_types::Error;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

/// A file that was to be entered without waiting.
pub(super) enum Now {
    /// It is, and has to be left.
    Entered(Arc<OpenInode>),
    /// Somebody has to be waited for.
    Waits,
    /// It is no ordinary file, or not there.
    NoFile,
}

impl Served {
    /// The file of a number, open as long as the caller does not [`Served::leave`] it.
    pub(super) fn enter(&self, number: u64, is_to_write: bool) -> Answer<Arc<OpenInode>> {
        // Whoever is slow at opening must not come back with what the file was before another one
        // opened, changed and closed it.
        let _opening = self.open.opening(number);
        if let Some(open) = self.open.enter_again(number) {
            if is_to_write && let Err(error) = self.make_writable(&open, true) {
                self.open.leave(number);
                return Err(error);
            }
            return Ok(open);
        }
        let item = self.nodes.item(number)?;
        let opened = self.open_inode(number, &item, (is_to_write, true))?;
        Ok(self.open.enter(opened.ok_or(Errno::EAGAIN)?))
    }

    /// Enters the file of a number if nobody has to be waited for.
    pub(super) fn enter_now(&self, number: u64, is_to_write: bool) -> Now {
        let Some(_opening) = self.open.opening_now(number) else { return Now::Waits };
        if let Some(open) = self.open.enter_again(number) {
            if is_to_write && self.make_writable(&open, false).is_err() {
                self.open.leave(number);
                return Now::Waits;
            }
            return Now::Entered(open);
        }
        let Ok(item) = self.nodes.item(number) else { return Now::NoFile };
        let kind = below::status_of(item.as_fd()).map(|status| status.attributes.kind);
        if kind != Ok(FileType::RegularFile) {
            return Now::NoFile;
        }
        match self.open_inode(number, &item, (is_to_write, false)) {
            Ok(Some(opened)) => Now::Entered(self.open.enter(opened)),
            // Whoever may wait hears what is wrong.
            Ok(None) | Err(_) => Now::Waits,
        }
    }

    /// A file that was just made, and is open: it is no stub.
    pub(super) fn enter_made(&self, number: u64, made: &File) -> Answer<Arc<OpenInode>> {
        let _opening = self.open.opening(number);
        if let Some(open) = self.open.enter_again(number) {
            return Ok(open);
        }
        let file = made.try_clone().map_err(Errno::from)?;
        Ok(self.open.enter(OpenInode::new(number, Bytes::Plain(file))))
    }

    /// Opens what a number stands for, and finds out whether it is a stub. `None` if somebody has
    /// to be waited for, and that may not be.
    fn open_inode(
        &self,
        number: u64,
        item: &OwnedFd,
        (is_to_write, may_wait): (bool, bool),
    ) -> Answer<Option<OpenInode>> {
        let path = below::path_of(item.as_fd());
        let open = |flags| {
            let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
            rustix::fs::open(&path, flags, Mode::empty()).map(File::from)
        };
        let look = || {
            let file = open(OFlags::RDONLY)?;
            match rustix::fs::fgetxattr(&file, stub::ATTRIBUTE, &mut [0; 0]) {
                Ok(_) => Ok((file, true)),
                Err(rustix::io::Errno::ACCESS) => Err(rustix::io::Errno::ACCESS),
                Err(_) => Ok((file, false)),
            }
        };
        // It waits while the job makes a stub of it.
        let looked = when_free(may_wait, || permissions::as_owner(item, look));
        let (reading, is_stub) = match looked {
            Err(rustix::io::Errno::WOULDBLOCK) if !may_wait => return Ok(None),
            looked => looked.map_err(failed)?,
        };
        if !is_stub {
            // A job that was too slow for the one who waits may still make a stub of it.
            let wait = if may_wait { self.job_wait } else { Duration::ZERO };
            match stub::wait_for_job(&reading, wait) {
                Err(_) if !may_wait => return Ok(None),
                waited => waited.map_err(|error| self.failed(number, &error))?,
            }
            let is_stub_now = permissions::as_owner(item, || {
                rustix::fs::fgetxattr(&reading, stub::ATTRIBUTE, &mut [0; 0])
            });
            return match is_stub_now {
                Ok(_) => self.open_inode(number, item, (is_to_write, may_wait)),
                Err(_) => Ok(Some(OpenInode::new(number, Bytes::Plain(reading)))),
            };
        }
        // Its data comes back into it whoever writes; who may not, reads.
        let file = open(OFlags::RDWR).unwrap_or(reading);
        let mut stub = self.stub_of(number, file)?;
        let is_left = has_left_over(stub.file(), &stub.stub());
        let is_left = is_left.map_err(|error| self.failed(number, &error))?;
        if is_left && !may_wait {
            return Ok(None);
        }
        // A reader, too, has the mount keep what somebody wrote into it below.
        if (is_to_write || is_left)
            && let Ok(Some(writable)) = self.writable(number, &stub, may_wait)
        {
            stub = writable;
        }
        self.keep_written(number, &stub);
        Ok(Some(OpenInode::new(number, Bytes::Stub(RwLock::new(Arc::new(stub))))))
    }

    /// The stub that an open file is.
    fn stub_of(&self, number: u64, file: File) -> Answer<StubFile> {
        let opened = StubFile::open(&self.tree, file);
        let opened = opened.map_err(|error| self.failed(number, &error))?;
        let stub = opened.ok_or(Errno::EAGAIN)?;
        // Whoever may not write cannot make it longer either.
        let _ = stub.settle_length();
        let room = Arc::clone(&self.reserve) as Arc<dyn Room>;
        Ok(stub.with_room(room).with_job_wait(self.job_wait))
    }

    /// Opens a stub for writing as well that was opened by somebody who might not write. One at a
    /// time.
    fn make_writable(&self, inode: &OpenInode, may_wait: bool) -> Answer<()> {
        let Some(stub) = inode.stub() else { return Ok(()) };
        if let Some(writable) = self.writable(inode.number, &stub, may_wait)? {
            inode.replace_stub(writable);
        }
        Ok(())
    }

    /// A stub once more, opened for writing as well, as its owner if its permissions forbid it;
    /// `None` if it is already.
    fn writable(&self, number: u64, stub: &StubFile, may_wait: bool) -> Answer<Option<StubFile>> {
        if is_writable(stub)? {
            return Ok(None);
        }
        let path = below::path_of(stub.file().as_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = || rustix::fs::open(&path, flags, Mode::empty());
        let file = when_free(may_wait, || permissions::as_owner(stub.file(), open));
        self.stub_of(number, File::from(file.map_err(failed)?)).map(Some)
    }

    /// Keeps what was written into a stub below. What cannot be kept now is kept by the next job.
    fn keep_written(&self, number: u64, stub: &StubFile) {
        if !is_writable(stub).is_ok_and(|is| is) {
            return;
        }
        let shown = || format!("{}: {}", self.nodes.path_of(number), changed_below::WRITTEN);
        match changed_below::keep_alone(stub) {
            Ok(false) => {}
            Ok(true) => {
                self.pages.forget(number);
                self.problems.note(shown());
                // What cannot be written down was told.
                let _ = self.share.note_problem(&shown());
            }
            Err(error) => drop(self.lost(number, &error)),
        }
    }

    /// Nobody needs the file any more that was entered.
    pub(super) fn leave(&self, number: u64) {
        let _opening = self.open.opening(number);
        if let Some(last) = self.open.leave(number) {
            self.ended(&last);
        }
    }

    /// Somebody has closed a file.
    pub(super) fn close(&self, handle: u64) {
        let Some(number) = self.open.handle(handle).map(|handle| handle.inode.number) else {
            return;
        };
        let _opening = self.open.opening(number);
        if let Some(last) = self.open.close(handle) {
            self.ended(&last);
        }
    }

    /// Nobody has it open any more.
    fn ended(&self, inode: &OpenInode) {
        if inode.is_unnamed.load(std::sync::atomic::Ordering::Relaxed) {
            self.remove_unnamed(inode.number);
        } else if let Some(stub) = inode.stub()
            && let Err(error) = stub.end_if_recalled()
        {
            // It stays a stub of which nothing is the store's.
            self.problems.note(format!("inode {}: {error}", inode.number));
        }
    }

    /// A handle of a file as it was asked for. One that the kernel does not read and write itself
    /// is opened at once: whoever may not is told now.
    pub(super) fn handle(
        &self,
        inode: Arc<OpenInode>,
        flags: i32,
        passes_through: bool,
    ) -> Answer<Handle> {
        let handle = Handle { inode, flags, file: Arc::default() };
        if let (Bytes::Plain(plain), false) = (&handle.inode.bytes, passes_through) {
            ordinary(&handle, plain)?;
        }
        Ok(handle)
    }

    /// A handle of a file that was just made, by what it was made with.
    pub(super) fn handle_of_made(inode: Arc<OpenInode>, flags: i32, made: File) -> Handle {
        Handle { inode, flags, file: Arc::new(OnceLock::from(made)) }
    }

    /// Data of a stub cannot be had: said here, and written down for the status.
    pub(super) fn lost(&self, number: u64, error: &Error) -> Errno {
        let (code, is_new) = self.told_of(number, error);
        if is_new {
            // What cannot be written down was told.
            let _ = self.share.note_problem(&format!("{}: {error}", self.nodes.path_of(number)));
        }
        code
    }
}

/// Opens a file without waiting for who has a lease of it, or again and again until he has not.
fn when_free<T>(
    may_wait: bool,
    mut open: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match may_wait {
        true => user_file::ask_again(open, || Ok(true)),
        false => open(),
    }
}

fn is_writable(stub: &StubFile) -> Answer<bool> {
    let flags = rustix::fs::fcntl_getfl(stub.file()).map_err(failed)?;
    Ok(flags & OFlags::ACCMODE == OFlags::RDWR)
}

/// An ordinary file, opened as was asked for.
pub(super) fn ordinary<'a>(handle: &'a Handle, plain: &File) -> Answer<&'a File> {
    if let Some(file) = handle.file.get() {
        return Ok(file);
    }
    let flags = below::open_flags(handle.flags).difference(OFlags::NOFOLLOW);
    let path = below::path_of(plain.as_fd());
    let open = |flags| rustix::fs::open(&path, flags, Mode::empty());
    let opened = match open(flags) {
        // It was opened before its permissions became what they are.
        Err(rustix::io::Errno::ACCESS) => {
            let as_owner = || permissions::as_owner(plain, || open(flags | OFlags::NONBLOCK));
            when_free(true, as_owner)
        }
        opened => opened,
    };
    let opened = opened.map_err(failed)?;
    Ok(handle.file.get_or_init(|| File::from(opened)))
}
