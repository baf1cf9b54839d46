//! Reads the files that the walk meets, each once, for all lanes.
//!
//! Holes are asked for and not read. What a file holds is what it held when it was opened: bytes
//! that are appended meanwhile are left for the next time, and a file that was changed is said to
//! have been.
//!
//! The state is saved now and then, not longer than a twentieth of the time, and at the end. What
//! is saved ends with a whole file: of one that was being read nothing is written down.

use super::kind::{self, NO_ENDING};
use super::lane::Feed;
use super::state::{FileRecord, Lists, READ_AGAIN_NS, State};
use super::walk::{Found, Met, Walk, changed_ns, modified_ns};
use super::{Count, Estimate, EstimateOptions};
use crate::job::Job;
use crate::tree::path;
use crate::user_file;
use crossbeam_channel::{Sender, bounded};
use onefold_chunking::HOLE_BLOCK_BYTES;
use onefold_store::layers::Pace;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes read at once.
const BLOCK_BYTES: usize = 512 << 10;
/// Bytes read at once where there is a bound: small enough for its sleeps to be short.
const PACED_BLOCK_BYTES: usize = 64 << 10;
/// Kinds of files that have a row of their own.
const KINDS_MAX: usize = 512;
/// The kind of files of all further kinds.
const OTHER_KINDS: &str = "other endings";
/// Saving takes no more than one part in so many of the time.
const SAVING_PART: u32 = 20;
/// A file that was changed so lately may be changed again within one tick of its clock.
const RECENT_NS: i64 = 50_000_000;

const BLOCK: u64 = HOLE_BLOCK_BYTES as u64;

/// The kinds of files that were met, and how many of each.
#[derive(Default)]
pub struct Kinds {
    all: Vec<(String, u64)>,
    numbers: HashMap<String, usize>,
}

impl Kinds {
    /// Every kind, by its number.
    pub fn all(&self) -> &[(String, u64)] {
        &self.all
    }

    /// The number of the kind of a file, which is counted.
    fn number(&mut self, path: &[u8]) -> usize {
        let name = kind::kind_of(path).unwrap_or_else(|| NO_ENDING.to_owned());
        let is_known = self.numbers.contains_key(&name);
        let name =
            if is_known || self.all.len() + 1 < KINDS_MAX { name } else { OTHER_KINDS.into() };
        let next = self.all.len();
        let number = *self.numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.all.push((name, 0));
        }
        if let Some((_, files)) = self.all.get_mut(number) {
            *files += 1;
        }
        number
    }
}

/// The walk at work.
pub struct Reading<'a> {
    options: &'a EstimateOptions,
    job: &'a Job,
    state: Option<State>,
    lanes: Vec<Sender<Feed>>,
    kinds: Kinds,
    pace: Pace,
    found: Estimate,
    begun: Instant,
    last_save: Instant,
    /// How long the last one took.
    save_took: Duration,
}

impl<'a> Reading<'a> {
    /// Reads for these lanes.
    pub fn new(
        options: &'a EstimateOptions,
        job: &'a Job,
        state: Option<State>,
        lanes: Vec<Sender<Feed>>,
    ) -> Self {
        let now = Instant::now();
        let none = Count::default();
        let found = Estimate {
            counted: none,
            allocated_bytes: 0,
            taken_over: none,
            read_bytes: 0,
            elapsed: Duration::ZERO,
            changed: 0,
            unreadable: 0,
            met: Met::default(),
            sizes: Vec::new(),
        };
        Self {
            options,
            job,
            state,
            lanes,
            kinds: Kinds::default(),
            pace: Pace::new(options.limits),
            found,
            begun: now,
            last_save: now,
            save_took: Duration::ZERO,
        }
    }

    /// Reads everything; what was met, and how much of it could not be read.
    pub fn walk(&mut self, root: &Path, budget_bytes: usize) -> Result<(Met, u64)> {
        let (options, job) = (self.options, self.job);
        let mut each = |found: &Found<'_>| self.file(found);
        Walk::new(&options.selection, job, budget_bytes, &mut each).run(root)
    }

    /// Saves what is known; `is_whole` if everything was met.
    pub fn save_at_end(&mut self, is_whole: bool) -> Result<()> {
        self.save(!is_whole)
    }

    /// What was found, but for what the lanes have; they end.
    pub fn finish(mut self) -> (Estimate, Kinds) {
        self.found.elapsed = self.begun.elapsed();
        (self.found, self.kinds)
    }

    fn tell(&self, feed: &Feed) -> Result<()> {
        let gone = |_| Error::new(ErrorKind::Interrupted, "counting chunks has stopped");
        self.lanes.iter().try_for_each(|lane| lane.send(feed.clone()).map_err(gone))
    }

    fn file(&mut self, found: &Found<'_>) -> Result<()> {
        let mut record = record_of(found.path, &found.stat);
        let earlier = match &mut self.state {
            Some(state) => state.find(&record)?,
            None => None,
        };
        if let Some(ordinal) = earlier {
            let number = self.kinds.number(found.path);
            self.tell(&Feed::Earlier(number, ordinal))?;
            self.found.taken_over.files += 1;
            self.found.taken_over.bytes += record.size_bytes;
            self.job.observer.item(&path::display(found.path), "unchanged");
            return self.count(&record, 0);
        }
        let interrupt = &self.job.interrupt;
        let opened = match user_file::open(found.directory, found.name, OFlags::RDONLY, interrupt) {
            Ok(file) => file,
            // It was removed since its directory was listed.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return self.problem(found.path, "it could not be read", errno),
        };
        let before = match rustix::fs::fstat(&opened) {
            Ok(stat) => stat,
            Err(errno) => return self.problem(found.path, "its state", errno),
        };
        if (before.st_dev, before.st_ino) != (found.stat.st_dev, found.stat.st_ino) {
            return self.problem(found.path, "it was replaced meanwhile", Errno::STALE);
        }
        record = record_of(found.path, &before);
        let number = self.kinds.number(found.path);
        self.tell(&Feed::Begin(number))?;
        let read = match self.contents(&opened, record.size_bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                // If the lanes are gone nothing can be taken back, and nothing is saved.
                let _ = self.tell(&Feed::TakeBack);
                return Err(error);
            }
            read => read,
        };
        self.tell(&Feed::End)?;
        let after = rustix::fs::fstat(&opened).map(|stat| record_of(found.path, &stat));
        let is_steady = after.as_ref().is_ok_and(|after| after.is_same(&record));
        match read {
            Ok(bytes) if is_steady && bytes == record.size_bytes => {}
            Ok(_) => {
                self.found.changed += 1;
                self.job.observer.item(&path::display(found.path), "changed meanwhile");
                record.changed_ns = READ_AGAIN_NS;
            }
            Err(error) => {
                self.found.unreadable += 1;
                self.job.observer.problem(&path::display(found.path), &error);
                record.changed_ns = READ_AGAIN_NS;
            }
        }
        if record.changed_ns > now_ns().saturating_sub(RECENT_NS) {
            record.changed_ns = READ_AGAIN_NS;
        }
        self.count(&record, record.size_bytes)
    }

    fn count(&mut self, record: &FileRecord, read_bytes: u64) -> Result<()> {
        self.found.counted.files += 1;
        self.found.counted.bytes += record.size_bytes;
        self.found.allocated_bytes += record.allocated_bytes;
        self.job.progress.add(1, record.size_bytes - read_bytes);
        let Some(state) = &mut self.state else {
            return Ok(());
        };
        state.add(record)?;
        let since = self.last_save.elapsed();
        match since >= self.options.save_interval.max(self.save_took * SAVING_PART) {
            true => self.save(true),
            false => Ok(()),
        }
    }

    fn problem(&mut self, file: &[u8], what: &str, errno: Errno) -> Result<()> {
        self.found.unreadable += 1;
        self.job.observer.problem(&path::display(file), &Error::io(what, errno.into()));
        Ok(())
    }

    fn save(&mut self, goes_on: bool) -> Result<()> {
        let Some(state) = &mut self.state else {
            return Ok(());
        };
        let begun = Instant::now();
        let gone = || Error::new(ErrorKind::Interrupted, "counting chunks has stopped");
        let mut lists: Vec<Lists> = Vec::new();
        for lane in &self.lanes {
            let (reply, answer) = bounded(1);
            lane.send(Feed::Save(reply)).map_err(|_| gone())?;
            lists.push(answer.recv().map_err(|_| gone())??);
        }
        state.save(lists, goes_on)?;
        (self.last_save, self.save_took) = (Instant::now(), begun.elapsed());
        Ok(())
    }

    /// Shows the lanes what a file of this length holds; how much of it there was.
    fn contents(&mut self, file: &File, size_bytes: u64) -> Result<u64> {
        let mut shown = 0;
        while shown < size_bytes {
            let (data, hole) = next_data(file, shown, size_bytes)?;
            // Only whole blocks are left out: then what is cut is what it were if they were read.
            let data = data / BLOCK * BLOCK;
            if data > shown {
                self.tell(&Feed::Zeros(data - shown))?;
                self.job.progress.add(0, data - shown);
                shown = data;
            }
            let end = hole.div_ceil(BLOCK).saturating_mul(BLOCK).min(size_bytes);
            while shown < end {
                let bytes = self.block(file, shown, end)?;
                if bytes == 0 {
                    return Ok(shown);
                }
                shown += bytes;
            }
        }
        Ok(shown)
    }

    /// Shows the next bytes before `end`; how many there were.
    fn block(&mut self, file: &File, offset: u64, end: u64) -> Result<u64> {
        self.job.interrupt.check()?;
        let is_paced = self.options.limits != onefold_store::layers::ThrottleLimits::default();
        let most = if is_paced { PACED_BLOCK_BYTES } else { BLOCK_BYTES };
        let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(most);
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(Error::io("reading it", cause)),
            }
        }
        bytes.truncate(filled);
        let mut early = self.pace.pay(filled);
        while early {
            self.job.interrupt.check()?;
            early = self.pace.pay(0);
        }
        if filled > 0 {
            self.tell(&Feed::Block(Arc::new(bytes)))?;
        }
        self.found.read_bytes += filled as u64;
        self.job.progress.add(0, filled as u64);
        Ok(filled as u64)
    }
}

fn record_of(path: &[u8], stat: &Stat) -> FileRecord {
    FileRecord {
        path: path.to_vec(),
        inode: stat.st_ino,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        modified_ns: modified_ns(stat),
        changed_ns: changed_ns(stat),
        allocated_bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Where the next data of a file begins, from `offset` on, and where a hole follows it. A hole at
/// the end counts as one up to the last whole block.
fn next_data(file: &File, offset: u64, size_bytes: u64) -> Result<(u64, u64)> {
    let failed = |errno: Errno| Error::io("finding its holes", errno.into());
    let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data.min(size_bytes),
        Err(Errno::NXIO) => size_bytes,
        // A file system without holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((offset, size_bytes)),
        Err(errno) => return Err(failed(errno)),
    };
    if data >= size_bytes {
        return Ok((size_bytes, size_bytes));
    }
    match rustix::fs::seek(file, SeekFrom::Hole(data)) {
        Ok(hole) => Ok((data, hole.min(size_bytes))),
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok((data, size_bytes)),
        Err(errno) => Err(failed(errno)),
    }
}
