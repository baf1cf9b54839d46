//! What somebody has done to stubs without the mount: written into them, moved them here out of
//! another share, given them names elsewhere. Jobs look for that before they begin.
//!
//! # Algorithm
//! Every stub of the share is looked at.
//! 1. One that has data where its bytes are the store's is compared with the store; what is not the
//!    same becomes the file's own ([`StubFile::keep_written`]), and its times stay what they are.
//! 2. One that belongs to another share of the store becomes one of this: the manifests of this
//!    share keep its data from now on, as those of any stub that is met. If it has several names it
//!    may be in both, and stays what it is.
//! 3. One of which somebody was stopped at bringing data back gets its time back.
//! 4. One that has more names than were met has some where no manifest keeps its data.
//!
//! Each of these but 3 is told, and stands among the share's problems until the next run of
//! `optimize` looks again.
//!
//! # Concurrency
//! Called with the lock of the share's jobs. A file is changed under a lease only. Who has it open
//! below may still write into it, and who has it open through the mount does what 1 does
//! ([`keep`]): such are met by the next run.

use super::crawl::{self, Met};
use super::emptying::{self, Privileges};
use super::linked_files::LINKED_FILES_MAX;
use super::problems::MORE;
use super::share::Share;
use crate::ingest::attributes;
use crate::ingest::stubs::{LISTED_MAX, by_handle};
use crate::job::Job;
use crate::repository::Repository;
use crate::stub::times;
use crate::stub::{self, StubFile, permissions, stub_file};
use crate::tree::{TreeReader, path};
use onefold_format::stub::StubOwner;
use onefold_lease::Lease;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What is said of a file that was written into.
pub const WRITTEN: &str = "somebody has written into it without the mount, or was stopped at \
    writing; what was written was kept, and is in the file now: look at it";
/// What is said of one that was moved here.
const MOVED: &str = "it was moved here out of another share without the mount; this share keeps \
    its data from now on, and a job there may have given some up";
/// What is said of one that another share has as well.
const SHARED: &str = "it has names in this share and in another one; each keeps its data as long \
    as its name is there";
/// What is said of one with names elsewhere.
const LINKED: &str = "it has names outside the share; they lose its data once it has none in here";

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct ChangedBelow {
    /// Files that were written into.
    pub written: u64,
    /// Files that were moved here out of another share.
    pub moved: u64,
    lines: Vec<String>,
    /// Names that were met of files that have several, how many those are, and the first of them;
    /// of files beyond the greatest number nothing is told.
    linked: HashMap<u64, (u64, u64, Vec<u8>)>,
}

impl ChangedBelow {
    /// Looks at all stubs of a share, tells what it finds, and writes that down instead of what was
    /// found before.
    pub fn look_anew(repository: &Arc<Repository>, share: &Share, job: &Job) -> Result<Self> {
        let found = Self::found(repository, share, job)?;
        let stays = &mut |line: &str| !Self::is_line(line) && !share.is_over(line);
        share.settle_problems(stays, &found.lines)?;
        Ok(found)
    }

    /// The same, beside what was found before.
    pub fn look(repository: &Arc<Repository>, share: &Share, job: &Job) -> Result<()> {
        let found = Self::found(repository, share, job)?;
        share.settle_problems(&mut |line| !share.is_over(line), &found.lines)
    }

    fn found(repository: &Arc<Repository>, share: &Share, job: &Job) -> Result<Self> {
        let tree = Arc::new(TreeReader::open(repository)?);
        let mut found = Self::default();
        let mut errors = 0;
        crawl::files(
            share.directory(),
            &mut |met| {
                job.interrupt.check()?;
                match found.stub(&tree, share, &met, job) {
                    Err(error) if error.is_about_all() => Err(error),
                    Err(error) => {
                        job.observer.problem(&path::display(met.path), &error);
                        Ok(())
                    }
                    done => done,
                }
            },
            // Whoever looks next tells.
            &mut |_, _| errors += 1,
        )?;
        if errors == 0 {
            let linked = std::mem::take(&mut found.linked).into_values();
            let mut left: Vec<_> = linked.filter(|(met, links, _)| met < links).collect();
            left.sort();
            left.iter().for_each(|(_, _, path)| found.tell(path, LINKED, job));
        }
        Ok(found)
    }

    /// Whether a line says what was done to a stub without the mount.
    #[must_use]
    pub fn is_line(line: &str) -> bool {
        [WRITTEN, MOVED, SHARED, LINKED].iter().any(|end| line.ends_with(end))
    }

    fn tell(&mut self, path: &[u8], what: &str, job: &Job) {
        let shown = path::display(path);
        job.observer.problem(&shown, &Error::new(ErrorKind::Source, what));
        match self.lines.len() {
            ..LISTED_MAX => self.lines.push(format!("{shown}: {what}")),
            LISTED_MAX => self.lines.push(MORE.to_owned()),
            _ => {}
        }
    }

    /// Takes notice of a name of a stub; whether no other one was met.
    fn is_first_name(&mut self, met: &Met<'_>) -> bool {
        let Met { path, entry, .. } = *met;
        let is_first = !self.linked.contains_key(&entry.inode);
        if entry.links > 1 && (!is_first || self.linked.len() < LINKED_FILES_MAX) {
            let first = || (0, entry.links, path.to_vec());
            self.linked.entry(entry.inode).or_insert_with(first).0 += 1;
        }
        is_first
    }

    /// Looks at a file, which may be a stub of this store.
    fn stub(
        &mut self,
        tree: &Arc<TreeReader>,
        share: &Share,
        met: &Met<'_>,
        job: &Job,
    ) -> Result<()> {
        let Met { directory, path, entry } = *met;
        let name = OsStr::from_bytes(&entry.name);
        // What is wrong with a stub is told by whoever needs its data.
        let Ok(Some(value)) = stub::value_at(&by_handle(directory, name)) else { return Ok(()) };
        let opened = stub::open(tree.chunks().repository(), entry.inode, &value);
        let Ok((owner, known)) = opened else { return Ok(()) };
        if !self.is_first_name(met) {
            return Ok(());
        }
        let is_foreign = owner.share != share.id;
        if is_foreign && entry.links > 1 {
            self.tell(path, SHARED, job);
            // That is all there is to be told of it.
            self.linked.entry(entry.inode).and_modify(|(met, links, _)| *met = *links);
        }
        let is_moved = is_foreign && entry.links == 1;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty());
        // Somebody is at it, or it may not be opened: it is met again.
        let Ok(reading) = opened.map(File::from) else { return Ok(()) };
        let is_pending = known.are_times_pending;
        if !is_moved && !is_pending && !stub_file::has_left_over(&reading, &known)? {
            return Ok(());
        }
        drop(reading);
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match permissions::open_at(directory, name, flags) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::TXTBSY | Errno::WOULDBLOCK) => return Ok(()),
            Err(errno) => return Err(Error::io("opening it", errno.into())),
        };
        let Some(lease) = Lease::take(&file)? else { return Ok(()) };
        let again = file.try_clone().context(|| "opening it again")?;
        let Some(stub) = StubFile::open(tree, again)? else { return Ok(()) };
        if keep(&stub, &|| lease.is_held())? {
            self.written += 1;
            self.tell(path, WRITTEN, job);
        }
        if is_pending && lease.is_held()? {
            emptying::put_pending_back(&file, &stub)?;
        }
        if is_moved && lease.is_held()? {
            let owner = StubOwner { share: share.id, ..owner };
            stub::write(tree.chunks().repository(), owner, &file, &stub.stub())?;
            self.moved += 1;
            self.tell(path, MOVED, job);
        }
        Ok(())
    }
}

/// Tells that a file was written into below, and writes that down.
pub fn tell_written(share: &Share, path: &[u8], job: &Job) -> Result<()> {
    let shown = path::display(path);
    job.observer.problem(&shown, &Error::new(ErrorKind::Source, WRITTEN));
    share.note_problem(&format!("{shown}: {WRITTEN}"))
}

/// The same of a file that whoever calls has just opened, if nobody else has it open: who has may
/// be writing, and the next job looks again.
pub fn keep_alone(stub: &StubFile) -> Result<bool> {
    if !stub_file::has_left_over(stub.file(), &stub.stub())? {
        return Ok(false);
    }
    match Lease::take(stub.file())? {
        Some(lease) => keep(stub, &|| lease.is_held()),
        None => Ok(false),
    }
}

/// Keeps what was written into a stub below, as long as `may` says so before each granule; whether
/// there was any. Its times stay what they are.
pub fn keep(stub: &StubFile, may: &dyn Fn() -> Result<bool>) -> Result<bool> {
    if !stub_file::has_left_over(stub.file(), &stub.stub())? {
        return Ok(false);
    }
    let stat = rustix::fs::fstat(stub.file());
    let stat = stat.map_err(|errno| Error::io("its status", errno.into()))?;
    let modified = attributes::entry_of(Vec::new(), &stat).modified;
    let privileges = Privileges::of(stub.file())?;
    let kept = stub.keep_written(may);
    if !matches!(kept, Ok(false)) {
        privileges.put_back(stub.file())?;
        times::put_back(stub.file(), modified)?;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::node::Entry;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_file_with_several_names_beyond_the_greatest_number_is_looked_at_under_each() {
        let directory = OwnedFd::from(File::open("/").unwrap());
        let mut found = ChangedBelow::default();
        let mut is_first = |inode| {
            let entry = Entry { inode, links: 2, ..Entry::default() };
            found.is_first_name(&Met { directory: &directory, path: b"/file", entry: &entry })
        };
        let most = LINKED_FILES_MAX as u64;
        assert!((0..most).all(&mut is_first));
        assert!(!is_first(0) && !is_first(most - 1));
        assert!(is_first(most) && is_first(most));
        assert_eq!(found.linked.len(), LINKED_FILES_MAX);
    }
}
