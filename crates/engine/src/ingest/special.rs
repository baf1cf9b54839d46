//! Reads what is behind devices and pipes that are named as sources, if that is asked for.
//!
//! It is saved as a regular file of that length, under the name of the source. Each backup reads it:
//! nothing about a device or pipe tells whether other bytes come from it now.

use super::attributes;
use super::read::{ReadJob, Work};
use super::source_tree::ArrangedSource;
use super::walk::{Item, Walk};
use crate::job::Interrupt;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// How long a read waits before it looks whether it is to stop.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The magic number of the file system of pipes that have no name.
const PIPES: u64 = 0x5049_5045;

/// Reads, and looks now and then whether it is to stop, so that a silent source does not keep a
/// signal from being heard.
pub struct InterruptibleReader<R> {
    from: R,
    interrupt: Interrupt,
    /// Whether nothing is read before there is something.
    waits: bool,
}

impl<R> InterruptibleReader<R> {
    /// Reads from `from` until a stop is asked for.
    pub const fn new(from: R, interrupt: Interrupt) -> Self {
        Self { from, interrupt, waits: true }
    }
}

impl<R: Read + AsFd> Read for InterruptibleReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupt.is_requested() {
                return Err(io::Error::other("interrupted"));
            }
            if !self.waits {
                match self.from.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
            }
            let mut waited = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut waited, Some(&POLL_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if !self.waits => {}
                Ok(_) => return self.from.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The entry of a source that is a device or a pipe, or a link to one: a file, still empty.
pub(super) fn entry_of(on_disk: &Path, name: &[u8]) -> Option<Entry> {
    let stat = rustix::fs::stat(on_disk).ok()?;
    let entry = attributes::entry_of(name.to_vec(), &stat);
    let is_special =
        matches!(entry.kind, EntryKind::BlockDevice | EntryKind::CharacterDevice | EntryKind::Fifo);
    let file = EntryKind::File;
    is_special.then_some(Entry { kind: file, links: 1, inode: 0, device_number: 0, ..entry })
}

impl Walk<'_> {
    /// Has a source read to its end.
    pub(super) fn special(&mut self, source: &ArrangedSource, entry: Entry) -> Result<()> {
        // A pipe that nobody writes to is waited for by the reader.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(&source.path, flags, Mode::empty())
            .map_err(|errno| Error::io("it could not be read", errno.into()))?;
        // A pipe without a name may be over: nobody tells so who opens it again.
        let waits = rustix::fs::fstatfs(&file).is_ok_and(|found| found.f_type as u64 != PIPES);
        let (from, interrupt) = (File::from(file), self.context.job.interrupt.clone());
        let reader = Box::new(InterruptibleReader { from, interrupt, waits });
        self.close_batch()?;
        let results = self.open_job()?;
        self.send(Item::Read { path: source.tree_path.clone(), entry, known: false })?;
        self.submit(ReadJob { work: Work::Stream(reader), results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_reader_stops_though_nothing_comes() {
        let (silent, _writer) = io::pipe().unwrap();
        let interrupt = Interrupt::default();
        interrupt.request();
        let mut reader = InterruptibleReader::new(silent, interrupt);
        assert!(reader.read(&mut [0; 8]).is_err());
    }
}
