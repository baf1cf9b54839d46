//! Plans files: what is to be written of each, and which are other names of one file.

use super::existing::{Comparison, Wanted};
use super::item::{self, Decision};
use super::metadata::{Attributes, Present};
use super::output::{self, OutputFile, Plan};
use super::target::Directory;
use super::walk::Restorer;
use crate::chunks::Location;
use crate::stub;
use crate::tree::ExtentWalk;
use onefold_format::node::{Entry, EntryKind, Extent, Reference};
use onefold_types::{Error, ErrorKind, Result, bug, limits};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const EXISTING_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Items with several names: the first name restored is the one that others are linked to.
#[derive(Default)]
pub struct Links {
    first: HashMap<(u64, u64), (Arc<First>, u64)>,
    /// Links to be made once the window is written.
    pub(super) deferred: Vec<DeferredLink>,
}

/// The first restored name of an item.
pub struct First {
    directory: Arc<Directory>,
    name: Vec<u8>,
    /// The file, unless it was there already or is none.
    output: Option<Arc<OutputFile>>,
    kind: EntryKind,
    size: u64,
    content: Option<Reference>,
}

/// Another name of an item.
pub struct DeferredLink {
    directory: Arc<Directory>,
    entry: Entry,
    first: Arc<First>,
}

impl Links {
    /// The first name of this entry's item, if there was one. Numbers that were reused while the
    /// source was read are told by content.
    fn first_of(&mut self, entry: &Entry) -> Option<Arc<First>> {
        if entry.links < 2 {
            return None;
        }
        let key = (entry.device, entry.inode);
        let (first, left) = self.first.get_mut(&key)?;
        let found = Arc::clone(first);
        let same =
            found.kind == entry.kind && found.size == entry.size && found.content == entry.content;
        if !same {
            return None;
        }
        *left -= 1;
        if *left == 0 {
            self.first.remove(&key);
        }
        Some(found)
    }

    fn remember(
        &mut self,
        entry: &Entry,
        directory: &Arc<Directory>,
        output: Option<Arc<OutputFile>>,
    ) {
        if entry.links < 2 {
            return;
        }
        let first = First {
            directory: Arc::clone(directory),
            name: entry.name.clone(),
            output,
            kind: entry.kind,
            size: entry.size,
            content: entry.content,
        };
        let key = (entry.device, entry.inode);
        self.first.insert(key, (Arc::new(first), entry.links - 1));
    }
}

impl Restorer<'_> {
    /// Plans a file.
    pub(super) fn file(&mut self, entry: Entry) -> Result<()> {
        self.report.files += 1;
        self.report.bytes += entry.size;
        let Some(directory) = self.directory() else {
            return Ok(());
        };
        let planned = self.plan_file(&directory, entry);
        self.unless_fatal(planned)
    }

    /// Makes a link, device, pipe or socket.
    pub(super) fn other(&mut self, entry: &Entry) -> Result<()> {
        self.report.others += 1;
        let Some(directory) = self.directory() else {
            return Ok(());
        };
        let made = self.make_other(&directory, entry);
        self.unless_fatal(made)?;
        self.job.progress.add(1, 0);
        Ok(())
    }

    fn unless_fatal(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Exhausted) => {
                Err(error.context(self.here()))
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let item = self.here();
                self.problem(&item, &error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn make_other(&mut self, directory: &Arc<Directory>, entry: &Entry) -> Result<()> {
        if let Some(first) = self.links.first_of(entry) {
            self.defer_link(directory, entry, first);
            return Ok(());
        }
        let existing = self.existing(directory, &entry.name)?;
        let mut decision = item::decide(entry, existing.as_ref(), self.options.overwrite);
        if let (Decision::Compare, Some(stat)) = (decision, &existing) {
            decision = match item::is_same(directory, entry, stat)? {
                true => Decision::Keep,
                false => Decision::Replace,
            };
        }
        if self.options.dry_run {
            if !matches!(decision, Decision::Keep | Decision::Skip) {
                self.job.observer.item(&self.here(), "would be made");
            }
            return Ok(());
        }
        let mut kept = None;
        match (decision, existing) {
            (Decision::Skip, _) => return Ok(()),
            (Decision::Keep, stat) => kept = stat,
            (_, Some(stat)) => {
                self.remove_existing(directory, &entry.name, &stat)?;
                item::make(directory, entry)?;
            }
            (_, None) => item::make(directory, entry)?,
        }
        let attributes = self.attributes(entry);
        let applier = &self.shared.applier;
        item::apply(applier, directory, entry, &attributes, kept.as_ref())?;
        self.links.remember(entry, directory, None);
        Ok(())
    }

    fn existing(&self, directory: &Directory, name: &[u8]) -> Result<Option<Stat>> {
        match directory.fresh {
            true => Ok(None),
            false => directory.stat(name),
        }
    }

    fn plan_file(&mut self, directory: &Arc<Directory>, entry: Entry) -> Result<()> {
        if let Some(first) = self.links.first_of(&entry) {
            self.defer_link(directory, &entry, first);
            return Ok(());
        }
        let existing = self.existing(directory, &entry.name)?;
        let decision = item::decide(&entry, existing.as_ref(), self.options.overwrite);
        match (decision, existing) {
            (Decision::Skip, _) => {
                self.report.files_skipped += 1;
                self.job.progress.add(1, entry.size);
                self.job.observer.item(&self.here(), "skipped");
                Ok(())
            }
            (Decision::Keep, Some(stat))
                if !self.options.verify && !is_stub(directory, &entry.name)? =>
            {
                self.keep_file(directory, &entry, &stat)
            }
            (Decision::Keep | Decision::Compare, Some(stat)) => {
                self.compare_file(directory, &entry, &stat)
            }
            (_, Some(stat)) => {
                self.remove_existing(directory, &entry.name, &stat)?;
                self.new_file(directory, &entry)
            }
            (_, None) => self.new_file(directory, &entry),
        }
    }

    /// A file whose content is right: only its attributes are set.
    fn keep_file(&mut self, directory: &Arc<Directory>, entry: &Entry, stat: &Stat) -> Result<()> {
        self.report.files_unchanged += 1;
        self.job.progress.add(1, entry.size);
        if self.options.dry_run {
            return Ok(());
        }
        self.links.remember(entry, directory, None);
        let attributes = self.attributes(entry);
        let flags = EXISTING_FLAGS.union(OFlags::RDONLY);
        let name = entry.name.as_slice();
        let opened = match rustix::fs::openat(&*directory.handle()?, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            // Unreadable by mode: then the attributes are set by name.
            Err(Errno::ACCESS) => {
                let applier = &self.shared.applier;
                return item::apply(applier, directory, entry, &attributes, Some(stat));
            }
            Err(errno) => return Err(Error::io("opening the file that is there", errno.into())),
        };
        let path = || directory.display_of(&entry.name);
        let present = Present::existing(stat);
        self.shared.applier.apply(opened.as_fd(), &attributes, present, &path)
    }

    fn new_file(&mut self, directory: &Arc<Directory>, entry: &Entry) -> Result<()> {
        let wanted = Wanted::All(ExtentWalk::new(entry.content, entry.size)?);
        if self.options.dry_run {
            self.report.bytes_written += entry.size;
            self.job.progress.add(1, entry.size);
            self.job.observer.item(&self.here(), "would be restored");
            return Ok(());
        }
        self.write_file(directory, entry, wanted, None)
    }

    /// A file is there: only what differs is written, unless it cannot or must not be changed in
    /// place.
    fn compare_file(
        &mut self,
        directory: &Arc<Directory>,
        entry: &Entry,
        stat: &Stat,
    ) -> Result<()> {
        let name = entry.name.as_slice();
        let handle = directory.handle()?;
        let open = |flags| {
            let flags = EXISTING_FLAGS.union(flags);
            rustix::fs::openat(&*handle, name, flags, Mode::empty())
        };
        let linked = stat.st_nlink > 1;
        let in_place = match linked || self.options.dry_run {
            true => None,
            false => open(OFlags::RDWR).ok(),
        };
        let writable = in_place.is_some();
        let opened = match in_place {
            Some(opened) => opened,
            None => match open(OFlags::RDONLY) {
                Ok(opened) => opened,
                // It may be what is wanted: it must not be replaced for that.
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                    return Err(Error::io("opening the file that is there", errno.into()));
                }
                Err(_) if self.options.dry_run => return self.new_file(directory, entry),
                Err(_) => {
                    directory.unlink(name)?;
                    return self.new_file(directory, entry);
                }
            },
        };
        let stat = rustix::fs::fstat(&opened)
            .map_err(|errno| Error::io("looking at the file that is there", errno.into()))?;
        let file = Arc::new(File::from(opened));
        let comparison = self.comparison(entry, &file, &stat)?;
        if writable && stat.st_nlink == 1 {
            let wanted = Wanted::Differing(comparison);
            return self.write_file(directory, entry, wanted, Some((file, stat)));
        }
        let differing = self.differing_bytes(comparison)?;
        let is_right = differing == 0 && stat.st_size as u64 == entry.size;
        if is_right && !is_stub(directory, name)? {
            return self.keep_file(directory, entry, &stat);
        }
        if self.options.dry_run {
            self.report.bytes_written += differing;
            self.job.progress.add(1, entry.size);
            self.job.observer.item(&self.here(), "would be rewritten");
            return Ok(());
        }
        directory.unlink(name)?;
        self.new_file(directory, entry)
    }

    fn comparison(&self, entry: &Entry, file: &Arc<File>, stat: &Stat) -> Result<Comparison> {
        let walk = ExtentWalk::new(entry.content, entry.size)?;
        let fingerprinter = self.repository.fingerprinter();
        Ok(Comparison::new(walk, Arc::clone(file), stat.st_size as u64, fingerprinter))
    }

    fn differing_bytes(&mut self, mut comparison: Comparison) -> Result<u64> {
        let mut bytes = 0u64;
        while let Some((_, extent)) = comparison.next(&self.reader)? {
            self.job.interrupt.check()?;
            bytes += extent.length;
        }
        Ok(bytes)
    }

    /// Puts what is to be written of a file into the window; runs the window whenever it is full.
    fn write_file(
        &mut self,
        directory: &Arc<Directory>,
        entry: &Entry,
        mut wanted: Wanted,
        existing: Option<(Arc<File>, Stat)>,
    ) -> Result<()> {
        let in_place = existing.is_some();
        let stub = existing.as_ref().map(|(file, _)| stub::value(file)).transpose()?.flatten();
        self.files_planned += 1;
        let file = OutputFile::new(Plan {
            number: self.files_planned,
            directory: Arc::clone(directory),
            name: entry.name.clone(),
            attributes: self.attributes(entry),
            content: entry.content,
            size: entry.size,
            existing,
            stub,
        });
        if in_place {
            self.shared.park(&file);
        }
        self.links.remember(entry, directory, Some(Arc::clone(&file)));
        let sparse = self.options.sparse || entry.sparse;
        // Only the parts that differ of a file that is there: their places are not known.
        let mut place = matches!(wanted, Wanted::All(_)).then_some(self.place);
        self.current = Some((Arc::clone(&file), None));
        let mut fetched = 0u64;
        while !file.has_failed() {
            self.job.interrupt.check()?;
            match wanted.next(&self.reader) {
                Ok(Some((offset, extent))) if extent.is_hole() => {
                    file.zero(&self.shared, offset, extent.length, sparse)?;
                }
                Ok(Some((offset, extent))) => {
                    fetched += extent.length;
                    self.add_piece(&file, offset, extent, place)?;
                    place = place.map(|place| place + 1);
                }
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(error) => file.fail(error),
            }
        }
        file.ledger.settle_bytes(wanted.equal_bytes());
        self.job.progress.add(0, entry.size.saturating_sub(fetched));
        self.current_number()?;
        self.current = None;
        file.settle(&self.shared, 1)
    }

    fn add_piece(
        &mut self,
        file: &Arc<OutputFile>,
        offset: u64,
        extent: Extent,
        place: Option<u64>,
    ) -> Result<()> {
        let located = match extent.length > limits::CHUNK_SIZE_MAX_BYTES as u64 {
            true => Err(Error::damaged("a chunk is longer than any chunk can be")),
            false => self.locate(&extent, place),
        };
        let number = self.current_number()?;
        let pushed =
            located.and_then(|location| self.window.push(&location, number, offset, extent.length));
        match pushed {
            Ok(()) => file.expect_piece(offset, &extent.fingerprint),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) => file.fail(error),
        }
        match self.is_full() {
            true => self.run_window(),
            false => Ok(()),
        }
    }

    /// The number of the file being planned among the files of the window.
    fn current_number(&mut self) -> Result<u32> {
        let Some((file, number)) = &mut self.current else {
            return Err(bug!("something is planned of no file"));
        };
        Ok(*number.get_or_insert_with(|| {
            self.outputs.push(Arc::clone(file));
            self.outputs.len() as u32 - 1
        }))
    }

    /// Where a chunk is: where the placement says, else where the index says.
    fn locate(&mut self, extent: &Extent, place: Option<u64>) -> Result<Location> {
        let Self { guide, reader, report, .. } = self;
        let located = guide.locate(reader.chunks(), place, &extent.fingerprint);
        match &located {
            Ok((_, true)) => report.chunks_guided += 1,
            _ => report.chunks_looked_up += 1,
        }
        located.map(|(location, _)| location)
    }

    fn defer_link(&mut self, directory: &Arc<Directory>, entry: &Entry, first: Arc<First>) {
        self.job.progress.add(1, entry.size);
        if self.options.dry_run {
            self.job.observer.item(&self.here(), "would be linked");
            return;
        }
        self.links.deferred.push(DeferredLink {
            directory: Arc::clone(directory),
            entry: entry.clone(),
            first,
        });
    }

    /// Makes the links to what the window wrote.
    pub(super) fn make_links(&mut self) -> Result<()> {
        for link in std::mem::take(&mut self.links.deferred) {
            if let Err(error) = self.make_link(&link) {
                if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Exhausted) {
                    return Err(error.context(link.directory.display_of(&link.entry.name)));
                }
                let item = link.directory.display_of(&link.entry.name);
                self.problem(&item, &error);
            }
        }
        Ok(())
    }

    fn make_link(&mut self, link: &DeferredLink) -> Result<()> {
        let (first, name) = (&link.first, link.entry.name.as_slice());
        if let Some(output) = &first.output
            && !output.is_complete()
        {
            return Err(Error::damaged(format!(
                "the file that it is a hard link of, {}, could not be restored",
                output.display()
            )));
        }
        if let Some(stat) = self.existing(&link.directory, name)? {
            let original = first.directory.stat(&first.name)?;
            if original.is_some_and(|it| (it.st_dev, it.st_ino) == (stat.st_dev, stat.st_ino)) {
                self.report.files_unchanged += u64::from(link.entry.kind == EntryKind::File);
                return Ok(());
            }
            if item::decide(&link.entry, Some(&stat), self.options.overwrite) == Decision::Skip {
                self.report.files_skipped += 1;
                return Ok(());
            }
            self.remove_existing(&link.directory, name, &stat)?;
        }
        output::link(&first.directory, &first.name, &link.directory, name)
    }

    fn attributes(&self, entry: &Entry) -> Attributes {
        self.owners.attributes(entry)
    }
}

/// Whether a file that is there is a stub. Its size and times are the file's, its bytes are not: it
/// is never right as it is. One that may not be read is left as it is by whatever becomes of it.
fn is_stub(directory: &Directory, name: &[u8]) -> Result<bool> {
    let path = stub::by_handle(&*directory.handle()?, OsStr::from_bytes(name));
    match stub::value_at(&path) {
        Err(error) if error.kind() == ErrorKind::NotPermitted => Ok(false),
        value => value.map(|value| value.is_some()),
    }
}
