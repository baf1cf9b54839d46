//! Plans files: what is to be written of each, and what becomes of what is there.

use super::existing::{Comparison, Wanted};
use super::item::{self, Decision};
use super::metadata::{Attributes, Present, is_mine};
use super::output::{OutputFile, Plan};
use super::target::{Directory, is_type};
use super::walk::Restorer;
use super::way::{Way, open_in_place};
use crate::chunks::Location;
use crate::stub;
use crate::tree::ExtentWalk;
use crate::user_file;
use onefold_format::node::{Entry, Extent};
use onefold_types::{Error, ErrorKind, Result, bug, invariant, limits};
use rustix::fs::{FileType, Gid, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Restorer<'_> {
    /// Plans a file.
    pub(super) fn file(&mut self, entry: Entry) -> Result<()> {
        self.report.files += 1;
        self.report.bytes += entry.size;
        let Some(directory) = self.directory() else {
            return Ok(());
        };
        let planned = self.plan_file(&directory, entry);
        self.unless_fatal(&self.here(), planned)
    }

    /// Makes a link, device, pipe or socket.
    pub(super) fn other(&mut self, entry: &Entry) -> Result<()> {
        self.report.others += 1;
        let Some(directory) = self.directory() else {
            return Ok(());
        };
        let made = self.make_other(&directory, entry);
        self.unless_fatal(&self.here(), made)?;
        self.job.progress.add(1, 0);
        Ok(())
    }

    /// Tells of an item's error, unless it ends the restore.
    pub(super) fn unless_fatal(&mut self, item: &str, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Exhausted) => {
                Err(error.context(item))
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) => {
                self.problem(item, &error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Counts an item as left alone by the overwrite rule, and says so.
    pub(super) fn skip(&mut self, item: &str) {
        self.report.files_skipped += 1;
        self.job.observer.item(item, "skipped");
    }

    fn make_other(&mut self, directory: &Arc<Directory>, entry: &Entry) -> Result<()> {
        if let Some(first) = self.links.first_of(entry) {
            self.defer_link(directory, entry, first);
            return Ok(());
        }
        self.refuse_second(entry)?;
        let existing = self.existing(directory, &entry.name)?;
        let mut decision = item::decide(entry, existing.as_ref(), self.options.overwrite);
        if let (Decision::Compare, Some(stat)) = (decision, &existing) {
            let stays = item::is_same(directory, entry, stat)?
                && !self.would_change_other_names(directory, entry, stat)?;
            decision = if stays { Decision::Keep } else { Decision::Replace };
        }
        if decision == Decision::Skip {
            self.skip(&self.here());
            return Ok(());
        }
        if self.options.dry_run {
            if decision != Decision::Keep {
                self.job.observer.item(&self.here(), "would be made");
            }
            return Ok(());
        }
        match (decision, existing) {
            (Decision::Keep, Some(stat)) => {
                let attributes = self.attributes(entry);
                let applier = &self.shared.applier;
                let name = &entry.name;
                item::apply(applier, directory, entry, name, &attributes, Some(&stat))?;
            }
            (_, Some(stat)) if !is_type(&stat, FileType::Directory) => {
                let temporary = self.shared.names.next();
                self.make_item(directory, entry, &temporary)?;
                directory.rename_or_remove(&temporary, &entry.name)?;
            }
            (_, existing) => {
                if let Some(stat) = existing {
                    self.remove_existing(directory, &entry.name, &stat)?;
                }
                self.make_item(directory, entry, &entry.name)?;
            }
        }
        self.links.remember(entry, directory, None);
        Ok(())
    }

    /// Makes an item that is no file and no directory, with all its attributes, under a name.
    pub(super) fn make_item(
        &self,
        directory: &Directory,
        entry: &Entry,
        name: &[u8],
    ) -> Result<()> {
        item::make(directory, entry, name)?;
        let attributes = self.attributes(entry);
        item::apply(&self.shared.applier, directory, entry, name, &attributes, None)
    }

    fn plan_file(&mut self, directory: &Arc<Directory>, entry: Entry) -> Result<()> {
        if let Some(first) = self.links.first_of(&entry) {
            self.defer_link(directory, &entry, first);
            return Ok(());
        }
        self.refuse_second(&entry)?;
        let existing = self.existing(directory, &entry.name)?;
        let decision = item::decide(&entry, existing.as_ref(), self.options.overwrite);
        match (decision, existing) {
            (Decision::Skip, _) => {
                self.skip(&self.here());
                self.job.progress.add(1, entry.size);
                Ok(())
            }
            (Decision::Keep | Decision::Compare, Some(stat))
                if self.claims.is_of_another(&entry, &stat) =>
            {
                self.whole_file(directory, &entry, Some(&stat))
            }
            (Decision::Keep, Some(stat))
                if !self.options.verify && !is_stub(directory, &entry.name)? =>
            {
                self.keep_file(directory, &entry, &stat, None)
            }
            (Decision::Keep | Decision::Compare, Some(stat)) => {
                self.compare_file(directory, &entry, &stat)
            }
            (_, Some(stat)) if is_type(&stat, FileType::Directory) => {
                self.remove_existing(directory, &entry.name, &stat)?;
                self.whole_file(directory, &entry, None)
            }
            (_, existing) => self.whole_file(directory, &entry, existing.as_ref()),
        }
    }

    /// A file whose content is right: only its attributes are set. Where those would change under
    /// names that nobody asked to restore, another file takes its place.
    fn keep_file(
        &mut self,
        directory: &Arc<Directory>,
        entry: &Entry,
        stat: &Stat,
        opened: Option<&File>,
    ) -> Result<()> {
        if self.would_change_other_names(directory, entry, stat)? {
            return self.whole_file(directory, entry, Some(stat));
        }
        self.report.files_unchanged += 1;
        self.job.progress.add(1, entry.size);
        if self.options.dry_run {
            return Ok(());
        }
        self.links.remember(entry, directory, None);
        self.claims.take(entry, stat);
        match opened {
            Some(opened) => self.mend_opened(directory, entry, stat, opened),
            None => self.mend_attributes(directory, entry, stat)?,
        }
        self.job.observer.item(&self.here(), "unchanged");
        Ok(())
    }

    /// Whether setting its attributes would change an item under its other names as well. These
    /// may be among the names that are restored: that shows only later.
    pub(super) fn would_change_other_names(
        &self,
        directory: &Directory,
        entry: &Entry,
        there: &Stat,
    ) -> Result<bool> {
        if there.st_nlink < 2 {
            return Ok(false);
        }
        let item = (entry.name.as_slice(), there);
        self.shared.applier.would_change(directory, item, &self.attributes(entry))
    }

    /// Sets the attributes of a file that is there.
    pub(super) fn mend_attributes(
        &self,
        directory: &Directory,
        entry: &Entry,
        stat: &Stat,
    ) -> Result<()> {
        match self.open_existing(directory, &entry.name)? {
            Ok(opened) => {
                self.mend_opened(directory, entry, stat, &opened);
                Ok(())
            }
            // Unreadable by mode: then the attributes are set by name.
            Err(Errno::ACCESS) => {
                let (applier, attributes) = (&self.shared.applier, self.attributes(entry));
                item::apply(applier, directory, entry, &entry.name, &attributes, Some(stat))
            }
            Err(errno) => Err(Error::io("opening the file that is there", errno.into())),
        }
    }

    fn mend_opened(&self, directory: &Directory, entry: &Entry, stat: &Stat, opened: &File) {
        let path = || directory.display_of(&entry.name);
        let (attributes, present) = (self.attributes(entry), Present::existing(stat, directory));
        self.shared.applier.apply(opened.as_fd(), &attributes, present, &path);
    }

    pub(super) fn open_existing(
        &self,
        directory: &Directory,
        name: &[u8],
    ) -> Result<rustix::io::Result<File>> {
        let directory = directory.handle()?;
        Ok(user_file::open(&*directory, name, OFlags::RDONLY, &self.job.interrupt))
    }

    /// Writes all of a file, in the place of what is there if anything is.
    fn whole_file(
        &mut self,
        directory: &Arc<Directory>,
        entry: &Entry,
        there: Option<&Stat>,
    ) -> Result<()> {
        let wanted = Wanted::All(ExtentWalk::new(entry.content, entry.size)?);
        if self.options.dry_run {
            self.report.bytes_written += entry.size;
            self.job.progress.add(1, entry.size);
            self.job.observer.item(&self.here(), "would be restored");
            return Ok(());
        }
        let way = there.map_or(Way::New, |there| self.replacing(there));
        self.write_file(directory, entry, wanted, (way, None))
    }

    fn replacing(&self, there: &Stat) -> Way {
        Way::Replace { there: *there, temporary: self.shared.names.next() }
    }

    /// A file is there: it stays if it is right. Else it is replaced by one that takes over what is
    /// equal, or it is rewritten.
    fn compare_file(
        &mut self,
        directory: &Arc<Directory>,
        entry: &Entry,
        there: &Stat,
    ) -> Result<()> {
        let name = entry.name.as_slice();
        let opened = match self.open_existing(directory, name)? {
            Ok(opened) => opened,
            // It may be what is wanted: it must not be replaced for that.
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                return Err(Error::io("opening the file that is there", errno.into()));
            }
            Err(errno) if self.options.in_place => return Err(left_as_it_was(errno)),
            Err(_) => return self.whole_file(directory, entry, Some(there)),
        };
        let stat = rustix::fs::fstat(&opened)
            .map_err(|errno| Error::io("looking at the file that is there", errno.into()))?;
        if !is_type(&stat, FileType::RegularFile) {
            return Err(Error::new(ErrorKind::Io, "the file that was there is another item now"));
        }
        let file = Arc::new(opened);
        let is_stub = stub::value(&*file)?.is_some();
        let mut comparison = self.comparison(entry, &file, &stat)?;
        let differs = comparison.differs(&self.reader, &self.job.interrupt)?;
        if !differs {
            let equal_bytes = comparison.equal_bytes();
            invariant!(equal_bytes == entry.size, "less is equal than there is", equal_bytes);
        }
        if !differs && stat.st_size as u64 == entry.size && !is_stub {
            return self.keep_file(directory, entry, &stat, Some(&file));
        }
        if self.options.dry_run {
            self.report.bytes_written += self.differing_bytes(comparison)?;
            self.job.progress.add(1, entry.size);
            self.job.observer.item(&self.here(), "would be rewritten");
            return Ok(());
        }
        let wants_in_place = self.options.in_place && stat.st_nlink == 1;
        if wants_in_place
            || self.would_lose_owner(entry, &stat)
            || !self.has_room(directory, &stat, entry)?
        {
            match open_in_place(directory, name, &stat, &self.job.interrupt) {
                Ok((file, stat)) => {
                    let wanted = Wanted::Differing(comparison);
                    let way = Way::InPlace(stat);
                    return self.write_file(directory, entry, wanted, (way, Some(file)));
                }
                Err(error) if wants_in_place => {
                    return Err(error.context("the file that was there was left as it was"));
                }
                Err(_) => {}
            }
        }
        // Of one with other names, or a stub, nothing can be said that lasts until it is copied.
        if stat.st_nlink > 1 || is_stub {
            return self.whole_file(directory, entry, Some(&stat));
        }
        let way = self.replacing(&stat);
        self.write_file(directory, entry, Wanted::Differing(comparison), (way, None))
    }

    /// Whether a new file could not be given the owner or group that the file that is there has and
    /// is to have.
    fn would_lose_owner(&self, entry: &Entry, there: &Stat) -> bool {
        if self.shared.applier.is_privileged() || self.options.without.owners {
            return false;
        }
        let wanted = self.attributes(entry);
        let uid = rustix::process::geteuid().as_raw();
        (wanted.uid == there.st_uid && wanted.uid != uid)
            || (wanted.gid == there.st_gid && !is_mine(Gid::from_raw(wanted.gid)))
    }

    /// Whether there is room for another file beside the one that is there; makes room by finishing
    /// those that are under way.
    fn has_room(&mut self, directory: &Directory, there: &Stat, entry: &Entry) -> Result<bool> {
        let bytes = match self.options.sparse || entry.sparse {
            true => entry.size.min(there.st_blocks as u64 * 512),
            false => entry.size,
        };
        for is_last in [false, true] {
            let promised = self.shared.promised_bytes.load(Ordering::Relaxed);
            let system = rustix::fs::fstatvfs(&*directory.handle()?)
                .map_err(|errno| Error::io("asking for the room that is left", errno.into()))?;
            let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
            // Some file systems do not say how large they are.
            if system.f_blocks == 0 || promised.saturating_add(bytes) <= free_bytes {
                self.shared.promised_bytes.fetch_add(bytes, Ordering::Relaxed);
                return Ok(true);
            }
            if !is_last && promised > 0 {
                self.run_window()?;
            }
        }
        Ok(false)
    }

    pub(super) fn comparison(
        &self,
        entry: &Entry,
        file: &Arc<File>,
        stat: &Stat,
    ) -> Result<Comparison> {
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

    fn write_file(
        &mut self,
        directory: &Arc<Directory>,
        entry: &Entry,
        wanted: Wanted,
        (way, opened): (Way, Option<Arc<File>>),
    ) -> Result<()> {
        let stub = match &way {
            Way::New => None,
            Way::Replace { .. } | Way::InPlace(_) => stub_of(directory, &entry.name)?,
        };
        self.files_planned += 1;
        let file = OutputFile::new(Plan {
            number: self.files_planned,
            directory: Arc::clone(directory),
            name: entry.name.clone(),
            attributes: self.attributes(entry),
            content: entry.content,
            size: entry.size,
            sparse: self.options.sparse || entry.sparse,
            way,
            opened,
            stub,
        });
        if file.is_in_place() {
            self.shared.park(&file);
        }
        self.links.remember(entry, directory, Some(Arc::clone(&file)));
        // Only the parts that differ of a file that is there: their places are not known.
        let place = matches!(wanted, Wanted::All(_)).then_some(self.place);
        self.write_pieces(&file, wanted, place)
    }

    /// Puts what is to be written of a file into the window; runs the window whenever it is full.
    pub(super) fn write_pieces(
        &mut self,
        file: &Arc<OutputFile>,
        mut wanted: Wanted,
        mut place: Option<u64>,
    ) -> Result<()> {
        let sparse = file.sparse;
        self.current = Some((Arc::clone(file), None));
        let mut fetched = 0u64;
        while !file.has_failed() {
            self.job.interrupt.check()?;
            let next = wanted.next(&self.reader);
            if let Some((there, equal)) = wanted.take_equal().filter(|_| file.is_new()) {
                for range in equal {
                    file.copy(&self.shared, there, range)?;
                }
            }
            match next {
                Ok(Some((offset, extent))) if extent.is_hole() => {
                    file.zero(&self.shared, offset, extent.length, sparse)?;
                }
                Ok(Some((offset, extent))) => {
                    fetched += extent.length;
                    self.add_piece(file, offset, extent, place)?;
                    place = place.map(|place| place + 1);
                }
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(error) => file.fail(error),
            }
        }
        file.ledger.settle_bytes(wanted.equal_bytes());
        self.job.progress.add(0, file.size.saturating_sub(fetched));
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

    pub(super) fn attributes(&self, entry: &Entry) -> Attributes {
        self.owners.attributes(entry)
    }
}

/// Whether a file that is there is a stub. Its size and times are the file's, its bytes are not: it
/// is never right as it is.
fn is_stub(directory: &Directory, name: &[u8]) -> Result<bool> {
    stub_of(directory, name).map(|stub| stub.is_some())
}

/// What the stub says that is there. One that may not be read is left as it is by whatever becomes
/// of it.
fn stub_of(directory: &Directory, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let path = stub::by_handle(&*directory.handle()?, OsStr::from_bytes(name));
    match stub::value_at(&path) {
        Err(error) if error.kind() == ErrorKind::NotPermitted => Ok(None),
        value => value,
    }
}

fn left_as_it_was(errno: Errno) -> Error {
    let what = "opening the file that is there, which was left as it was";
    Error::io(what, errno.into())
}
