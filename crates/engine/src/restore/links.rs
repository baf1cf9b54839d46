//! Items with several names: the first name restored is the one that others are linked to.
//!
//! Links are made once the window is written, and only to what is complete. Where the target cannot
//! make a link (another file system is mounted there, it knows none, or the item has as many names
//! as it may) the item is copied, and further names are linked to the copy where that can be.

use super::copying;
use super::item::{self, Decision};
use super::metadata::Present;
use super::output::OutputFile;
use super::target::{Directory, is_type};
use super::walk::Restorer;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many copies of an item further names are tried to be linked to, the newest ones.
const COPIES_MAX: usize = 4;

/// What has several names.
#[derive(Default)]
pub struct Links {
    first: HashMap<(u64, u64), (Arc<First>, u64)>,
    /// Links to be made once the window is written.
    pub(super) deferred: Vec<DeferredLink>,
}

/// A directory and a name in it.
type Place = (Arc<Directory>, Vec<u8>);

/// The first restored name of an item.
pub struct First {
    place: Place,
    /// The file, unless it was there already or is none.
    output: Option<Arc<OutputFile>>,
    /// Its entry, but for what is of a name.
    item: Entry,
    /// Names of copies, the newest first.
    copies: Mutex<VecDeque<Place>>,
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
    pub fn first_of(&mut self, entry: &Entry) -> Option<Arc<First>> {
        if entry.links < 2 {
            return None;
        }
        let key = (entry.device, entry.inode);
        let (first, left) = self.first.get_mut(&key)?;
        let found = Arc::clone(first);
        if !is_same_item(&found.item, entry) {
            return None;
        }
        *left -= 1;
        if *left == 0 {
            self.first.remove(&key);
        }
        Some(found)
    }

    /// Notes the first name of an entry's item.
    pub fn remember(
        &mut self,
        entry: &Entry,
        directory: &Arc<Directory>,
        output: Option<Arc<OutputFile>>,
    ) {
        if entry.links < 2 {
            return;
        }
        let first = First {
            place: (Arc::clone(directory), entry.name.clone()),
            output,
            item: Entry { name: Vec::new(), xattrs: Vec::new(), ..entry.clone() },
            copies: Mutex::default(),
        };
        let key = (entry.device, entry.inode);
        self.first.insert(key, (Arc::new(first), entry.links - 1));
    }
}

/// Whether two names are of one item: numbers may have been used again while the source was read.
fn is_same_item(one: &Entry, other: &Entry) -> bool {
    let rest = |entry: &Entry| (entry.kind, entry.size, entry.content, entry.device_number);
    rest(one) == rest(other) && one.modified == other.modified && one.target == other.target
}

impl First {
    fn copies(&self) -> MutexGuard<'_, VecDeque<Place>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the item that `stat` tells of has one of the names restored.
    fn has(&self, stat: &Stat) -> Result<bool> {
        let copies = self.copies();
        for (directory, name) in copies.iter().chain([&self.place]) {
            let found = directory.stat(name)?;
            if found.is_some_and(|it| (it.st_dev, it.st_ino) == (stat.st_dev, stat.st_ino)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives the item, or a copy of it, another name; `false` if the target cannot.
    fn link(&self, directory: &Directory, name: &[u8]) -> Result<bool> {
        let to = directory.handle()?;
        for (from, old) in self.copies().iter().chain([&self.place]) {
            match rustix::fs::linkat(&*from.handle()?, old, &*to, name, AtFlags::empty()) {
                Ok(()) => return Ok(true),
                Err(errno) if cannot_link(errno) => {}
                Err(errno) => return Err(Error::io("making the hard link", errno.into())),
            }
        }
        Ok(false)
    }

    fn note_copy(&self, place: Place) {
        let mut copies = self.copies();
        copies.push_front(place);
        copies.truncate(COPIES_MAX);
    }
}

/// Whether an error means that there can be no such link, and says nothing against a copy.
fn cannot_link(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL
    )
}

impl Restorer<'_> {
    /// Notes that an entry is another name of what was restored.
    pub(super) fn defer_link(
        &mut self,
        directory: &Arc<Directory>,
        entry: &Entry,
        first: Arc<First>,
    ) {
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
            let made = self.make_link(&link);
            self.unless_fatal(&link.directory.display_of(&link.entry.name), made)?;
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
        let there = self.existing(&link.directory, name)?;
        let Some(stat) = there else {
            return self.link_or_copy(link, name);
        };
        if first.has(&stat)? {
            self.report.files_unchanged += u64::from(link.entry.kind == EntryKind::File);
            return Ok(());
        }
        if item::decide(&link.entry, Some(&stat), self.options.overwrite) == Decision::Skip {
            self.skip(&link.directory.display_of(name));
            return Ok(());
        }
        if is_type(&stat, FileType::Directory) {
            self.remove_existing(&link.directory, name, &stat)?;
            return self.link_or_copy(link, name);
        }
        let temporary = self.shared.names.next();
        if first.link(&link.directory, &temporary)? {
            return link.directory.rename_or_remove(&temporary, name);
        }
        // The copy of an earlier restore may be there.
        if self.is_right(link, &stat)?
            && !self.would_change_other_names(&link.directory, &link.entry, &stat)?
        {
            self.report.files_unchanged += 1;
            first.note_copy((Arc::clone(&link.directory), name.to_vec()));
            return self.mend_attributes(&link.directory, &link.entry, &stat);
        }
        self.copy(link, &temporary)?;
        link.directory.rename_or_remove(&temporary, name)
    }

    /// Whether a file that is there has the bytes that it is to have.
    fn is_right(&self, link: &DeferredLink, there: &Stat) -> Result<bool> {
        let entry = &link.entry;
        match item::decide(entry, Some(there), self.options.overwrite) {
            Decision::Keep if !self.options.verify => return Ok(true),
            Decision::Keep | Decision::Compare if entry.kind == EntryKind::File => {}
            _ => return Ok(false),
        }
        let file = Arc::new(self.open_restored(&link.directory, &entry.name)?);
        let mut comparison = self.comparison(entry, &file, there)?;
        let differs = comparison.differs(&self.reader, &self.job.interrupt)?;
        Ok(!differs
            && there.st_size as u64 == entry.size
            && !self.claims.is_of_another(entry, there))
    }

    /// Gives the item a name that is free: its own, or one for now.
    fn link_or_copy(&mut self, link: &DeferredLink, name: &[u8]) -> Result<()> {
        match link.first.link(&link.directory, name)? {
            true => Ok(()),
            false => self.copy(link, name),
        }
    }

    fn copy(&mut self, link: &DeferredLink, name: &[u8]) -> Result<()> {
        match link.entry.kind {
            EntryKind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mode = link.directory.mode_of_new();
                let made = rustix::fs::openat(&*link.directory.handle()?, name, flags, mode)
                    .map_err(|errno| Error::io("making the file", errno.into()))?;
                self.copy_file(link, name, &File::from(made)).inspect_err(|_| {
                    let _ = link.directory.unlink(name);
                })?;
            }
            _ => self.make_item(&link.directory, &link.entry, name)?,
        }
        let place = (Arc::clone(&link.directory), link.entry.name.clone());
        link.first.note_copy(place);
        self.report.links_copied += 1;
        let item = link.directory.display_of(&link.entry.name);
        self.job.observer.item(&item, "copied, since it cannot be linked here");
        Ok(())
    }

    fn copy_file(&mut self, link: &DeferredLink, name: &[u8], to: &File) -> Result<()> {
        let (directory, old) = &link.first.place;
        let from = self.open_restored(directory, old)?;
        let size = from.metadata().context(|| "looking at the restored file")?.len();
        if size != link.entry.size {
            return Err(Error::new(ErrorKind::Io, "somebody changed the restored file"));
        }
        copying::copy_range(&from, to, 0..size, &self.job.interrupt)?;
        to.set_len(size).context(|| "setting the file's length")?;
        self.shared.bytes_written.fetch_add(size, Ordering::Relaxed);
        let present = Present::fresh(&link.directory);
        let path = || link.directory.display_of(&link.entry.name);
        let attributes = self.attributes(&link.entry);
        self.shared.applier.apply(to.as_fd(), &attributes, present, &path);
        to.sync_data().context(|| "making it durable")?;
        match self.options.verify {
            false => Ok(()),
            true => {
                let copied = Arc::new(self.open_restored(&link.directory, name)?);
                self.read_back(copied, size, (link.entry.content, size))
            }
        }
    }

    fn open_restored(&self, directory: &Directory, name: &[u8]) -> Result<File> {
        let opened = self.open_existing(directory, name)?;
        opened.map_err(|errno| Error::io("opening the restored file", errno.into()))
    }
}
