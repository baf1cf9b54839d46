//! Copies that were made without the mount: their data is brought back.
//!
//! A program that copies a directory below its mount copies the attribute and the holes. Such a
//! copy is a stub of another file, which nobody opens as it is; and nothing keeps its data for it.
//! So it becomes an ordinary file, and a later run of the job takes it as any other.
//!
//! A copy that was made without attributes shows zeros, and nothing in it says of what. What has
//! the path, size and time of a file that a manifest names is made a stub of that first
//! ([`lost_stubs`]).
//!
//! A directory that is no share may lie where one was, on another disk, or be restored without what
//! is Onefold's in it. Then the manifests that were made at its path tell what its zeros are of.
//!
//! A copy of a whole share, file by file or block by block, becomes an ordinary directory: all its
//! stubs become ordinary files, and once there is none what is Onefold's in it goes. What keeps the
//! data of the original's stubs is not touched.

use super::addresses::{self, Standing};
use super::changed_below::{self, ChangedBelow};
use super::crawl::{self, Met};
use super::disk;
use super::emptying::Privileges;
use super::lost_stubs::{self, Place};
use super::manifests::{self, Manifests};
use super::rehydrate::{self, OpenStub, RehydrateReport};
use super::second_copies;
use super::share::{Share, open_directory};
use crate::ingest::attributes;
use crate::ingest::stubs::by_handle;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList};
use crate::stub::times;
use crate::stub::{self, StubFile};
use crate::tree::{TreeReader, path};
use crate::user_file;
use onefold_format::stub::StubOwner;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{CWD, OFlags};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairReport {
    /// Copies that are ordinary files now.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What became of a copy of a share.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyReport {
    /// What was brought back, and what was not.
    pub files: RehydrateReport,
    /// Whether it is an ordinary directory now.
    pub is_ordinary: bool,
}

/// Makes a copy of a share an ordinary directory. It stays what it is if anything could not be
/// brought back.
///
/// Errors: `Invalid` if it is mounted.
pub fn repair_copy(repository: &Arc<Repository>, copy: Share, job: &Job) -> Result<CopyReport> {
    copy.refuse_other_store(repository)?;
    let mount = copy.lock_mount()?;
    let _lock = copy.lock_job()?;
    let mut report = CopyReport::default();
    let list = SnapshotList::load(repository)?;
    let manifests: Vec<Snapshot> = list.manifests(copy.id).cloned().collect();
    let lost = lost_stubs::make_stubs(repository, &copy, &manifests, job)?;
    let files = &mut report.files;
    loop {
        let before = files.files;
        let kept_free_bytes = disk::kept_free_bytes(copy.directory())?;
        let how: (OpenStub, u64) = (StubFile::open_copied, kept_free_bytes);
        rehydrate::pass(repository, &copy, how, files, job)?;
        if files.open + files.errors + lost.failed > 0 {
            return Ok(report);
        }
        // What was moved past the pass is met by the next one.
        if files.files == before {
            break;
        }
    }
    drop(mount);
    copy.remove()?;
    report.is_ordinary = true;
    Ok(report)
}

/// Brings the data of copied stubs back into them; what could not be brought back is told.
pub fn repair(repository: &Arc<Repository>, share: &Share, job: &Job) -> Result<RepairReport> {
    share.refuse_other_store(repository)?;
    second_copies::install(repository)?;
    let _lock = share.lock_job()?;
    ChangedBelow::look(repository, share, job)?;
    let own = Manifests::of(&SnapshotList::load(repository)?, share).own;
    let lost = lost_stubs::make_stubs(repository, share, &own, job)?;
    let mut report = RepairReport { files: lost.files, bytes: lost.bytes };
    let written = |path: &[u8]| changed_below::tell_written(share, path, job);
    // What was moved here is the share's by now.
    let is_own = |owner: StubOwner, met: &Met<'_>| Ok(owner.inode == met.entry.inode);
    bring_all_back(repository, share.directory(), (&is_own, &written), &mut report, job)?;
    Ok(report)
}

/// Brings copied stubs back in a directory that is no share, such as one that files were copied to.
pub fn repair_copied_files(
    repository: &Arc<Repository>,
    directory: &Path,
    job: &Job,
) -> Result<RepairReport> {
    second_copies::install(repository)?;
    let shown = || directory.display().to_string();
    let directory = directory.canonicalize().context(shown)?;
    let opened = open_directory(rustix::fs::CWD, &directory)?;
    let written = |path: &[u8]| {
        let error = Error::new(ErrorKind::Source, changed_below::WRITTEN);
        job.observer.problem(&path::display(path), &error);
        Ok(())
    };
    // Two files may have the same number by chance. Those of a share stay what they are.
    let is_own = |owner: StubOwner, met: &Met<'_>| {
        Ok(owner.inode == met.entry.inode && is_in_share(&directory, owner, met.path)?)
    };
    let mut report = RepairReport::default();
    let list = SnapshotList::load(repository)?;
    for known in manifests::used_at(&list, &addresses::here(&directory)) {
        let place = Place { directory: opened.as_fd(), share: known.share, is_copy: true };
        let of = known.manifests.iter().filter_map(|id| list.get(*id).cloned());
        lost_stubs::make_stubs(repository, place, &of.collect::<Vec<_>>(), job)?;
    }
    bring_all_back(repository, opened.as_fd(), (&is_own, &written), &mut report, job)?;
    Ok(report)
}

/// Whether a file lies in the directory of the share that its stub is of, where that may be used.
fn is_in_share(directory: &Path, owner: StubOwner, path: &[u8]) -> Result<bool> {
    let below = path.strip_prefix(b"/").unwrap_or(path);
    let file = directory.join(OsStr::from_bytes(below));
    for above in file.ancestors().skip(1).filter(|above| stub::has_control(CWD, above)) {
        let share = Share::look_at(above)?;
        if share.id == owner.share {
            return Ok(matches!(share.standing(), Standing::Own | Standing::Alias(_)));
        }
    }
    Ok(false)
}

/// Whether a stub of this owner is of the file that was met, and no copy.
type IsOwn<'a> = &'a dyn Fn(StubOwner, &Met<'_>) -> Result<bool>;
/// Hears of a file by its path.
type Hears<'a> = &'a dyn Fn(&[u8]) -> Result<()>;

/// Brings the data of all copied stubs of a directory back; `written` hears of those that somebody
/// has written into.
fn bring_all_back(
    repository: &Arc<Repository>,
    directory: BorrowedFd<'_>,
    by: (IsOwn<'_>, Hears<'_>),
    report: &mut RepairReport,
    job: &Job,
) -> Result<()> {
    let tree = Arc::new(TreeReader::open(repository)?);
    let told = |path: &[u8], error: &Error| job.observer.problem(&path::display(path), error);
    crawl::files(
        directory,
        &mut |met| {
            job.interrupt.check()?;
            job.progress.add(1, met.entry.size);
            match bring_back(&tree, &met, by, job) {
                Ok(true) => {
                    report.files += 1;
                    report.bytes += met.entry.size;
                }
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
                Err(error) => told(met.path, &rehydrate::with_way_out(error)),
            }
            Ok(())
        },
        &mut |path, error| told(path, error),
    )
}

/// Makes a copy of a stub an ordinary file; whether it was one.
fn bring_back(
    tree: &Arc<TreeReader>,
    met: &Met<'_>,
    (is_own, written): (IsOwn<'_>, Hears<'_>),
    job: &Job,
) -> Result<bool> {
    let name = OsStr::from_bytes(&met.entry.name);
    let Some(value) = stub::value_at(&by_handle(met.directory, name))? else { return Ok(false) };
    let (owner, _) = stub::open_copied(tree.chunks().repository(), &value)?;
    if is_own(owner, met)? {
        return Ok(false);
    }
    let file = user_file::open(met.directory, name, OFlags::RDWR, &job.interrupt)
        .map_err(|errno| Error::io("opening it", errno.into()))?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| Error::io("its status", errno.into()))?;
    let state = attributes::entry_of(Vec::new(), &stat);
    let again = file.try_clone().context(|| "opening it again")?;
    let Some(stub) = StubFile::open_copied(tree, again)? else { return Ok(false) };
    if changed_below::keep(&stub, &|| Ok(true))? {
        written(met.path)?;
    }
    let modified = stub.begin_bringing_back(state.modified, state.changed)?;
    let privileges = Privileges::of(&file)?;
    stub.recall(0..u64::MAX, &|| Ok(true))?;
    privileges.put_back(&file)?;
    times::put_back(&file, modified)?;
    stub.end_if_recalled()?;
    Ok(true)
}
