//! What is behind devices and pipes that are named as sources, if that is asked for.
//!
//! It is saved as a regular file of that length, under the name of the source. Each backup reads
//! it: nothing about a device or pipe tells whether other bytes come from it now.

use super::{Item, Walk};
use crate::ingest::attributes;
use crate::ingest::interruptible::InterruptibleReader;
use crate::ingest::read::{ReadJob, Work};
use crate::ingest::source_tree::ArrangedSource;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::path::Path;

/// The magic number of the file system of pipes that have no name.
const PIPES: u64 = 0x5049_5045;

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
        // The reader waits for a pipe that has no writer yet.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(&source.path, flags, Mode::empty())
            .map_err(|errno| Error::io("it could not be read", errno.into()))?;
        // The writer of a pipe without a name may be gone, which poll does not say.
        let waits = rustix::fs::fstatfs(&file).is_ok_and(|found| found.f_type as u64 != PIPES);
        let (from, interrupt) = (File::from(file), self.context.job.interrupt.clone());
        let reader = match waits {
            true => InterruptibleReader::new(from, interrupt),
            false => InterruptibleReader::without_waiting(from, interrupt),
        };
        self.close_batch()?;
        let results = self.open_job()?;
        self.send(Item::Read { path: source.tree_path.clone(), entry, known: false })?;
        self.submit(ReadJob { work: Work::Stream(Box::new(reader)), results })
    }
}
