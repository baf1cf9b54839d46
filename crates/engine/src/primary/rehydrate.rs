//! The way back: stubs become ordinary files.
//!
//! File by file, each whole before its stub goes, with its times put back: whoever is stopped goes
//! on later. When the disk is full, what the files that came back needed in the store is given up,
//! a collection frees it, and it goes on; so the directory comes back with less free space than all
//! of it takes, if the store is on the same disk.
//!
//! # When the manifests may be forgotten
//! Once a pass has met no stub that it could not bring back, and nothing was moved meanwhile: what
//! is moved from a directory ahead to one behind is missed, as by the job ([`super::optimize`]).
//! What was deleted while it is open has no name in the share, and is looked for where it is kept.
//! No job makes stubs between the pass and that: it is all done under one lock.

use super::changed_below;
use super::crawl::{self, Met};
use super::disk::{free_bytes, kept_free_bytes};
use super::emptying::Privileges;
use super::lost_stubs;
use super::manifests::Manifests;
use super::optimize::{self, OptimizeOptions};
use super::second_copies;
use super::share::{OPEN, Share, open_directory};
use crate::ingest::stubs::by_handle;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{SnapshotList, tombstones};
use crate::stub::times;
use crate::stub::{self, StubFile, permissions};
use crate::tree::{TreeReader, path};
use onefold_lease::Lease;
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_store::LET_GO_PERIOD;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Passes over a share in which something is moved all the time.
pub const PASSES_MAX: usize = 8;
/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct RehydrateReport {
    /// Stubs that are ordinary files now.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Stubs that somebody has open.
    pub open: u64,
    /// Stubs of which data could not be read.
    pub errors: u64,
    /// How often the store had to be collected to go on.
    pub collections: u64,
    /// Manifests that stay because something was moved in each of the passes.
    pub manifests_kept: u64,
}

/// Frees what nobody needs in the store.
pub type Collect<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Makes every stub of a share an ordinary file. Once none is left the manifests that it has made
/// are forgotten.
pub fn rehydrate(
    repository: &Arc<Repository>,
    share: &Share,
    options: &OptimizeOptions,
    collect: Collect<'_>,
    job: &Job,
) -> Result<RehydrateReport> {
    share.refuse_other_store(repository)?;
    let mut report = RehydrateReport::default();
    let kept_free_bytes = match options.shares_disk {
        true => kept_free_bytes(share.directory())?,
        false => 0,
    };
    let mut passes = 0;
    loop {
        let lock = share.lock_job()?;
        let own = Manifests::of(&SnapshotList::load(repository)?, share).own;
        let lost = lost_stubs::make_stubs(repository, share, &own, job)?;
        let (files, moves) = (report.files, share.moves()?);
        match pass(repository, share, (StubFile::open, kept_free_bytes), &mut report, job) {
            Ok(()) if report.open + report.errors + lost.failed > 0 => return Ok(report),
            Ok(()) => {
                let is_whole = share.moves()? == moves;
                passes += 1;
                if !is_whole && passes < PASSES_MAX {
                    continue;
                }
                forget(repository, share, &options.by, is_whole, &mut report)?;
                return Ok(report);
            }
            Err(error) if error.kind() == ErrorKind::NoSpace && report.files > files => {}
            Err(error) => return Err(error),
        }
        drop(lock);
        report.collections += 1;
        let nothing = ColdFiles { modified_before_ns: i64::MIN, size_min_bytes: u64::MAX };
        let options =
            OptimizeOptions { cold: Some(nothing), forgets_at_once: true, ..options.clone() };
        optimize::optimize(repository, share, &options, job)?;
        collect()?;
        if share.is_mounted() {
            // Whoever serves the mount has containers open that are gone.
            std::thread::sleep(2 * LET_GO_PERIOD);
        }
    }
}

/// Forgets all manifests of a share that has no stubs, if that is known.
fn forget(
    repository: &Arc<Repository>,
    share: &Share,
    by: &str,
    is_whole: bool,
    report: &mut RehydrateReport,
) -> Result<()> {
    for manifest in Manifests::of(&SnapshotList::load(repository)?, share).own {
        if is_whole {
            tombstones::forget(repository, manifest.id, by, "its share has no stubs")?;
        } else {
            report.manifests_kept += 1;
        }
    }
    match is_whole {
        true => second_copies::forget(repository, share.id, &share.marks(), by),
        false => Ok(()),
    }
}

/// How a file is opened as a stub: of its own, or of whichever it was copied from.
pub(super) type OpenStub = fn(&Arc<TreeReader>, File) -> Result<Option<StubFile>>;

/// Brings all files back that can be, opened so, and leaves so many bytes of the disk free. The
/// lock of the share's jobs is held.
pub(super) fn pass(
    repository: &Arc<Repository>,
    share: &Share,
    how: (OpenStub, u64),
    report: &mut RehydrateReport,
    job: &Job,
) -> Result<()> {
    second_copies::install(repository)?;
    let tree = Arc::new(TreeReader::open(repository)?);
    (report.open, report.errors) = (0, 0);
    let errors = std::cell::Cell::new(0);
    let mut short = None;
    let told = |path: &[u8], error: &Error| {
        errors.set(errors.get() + 1);
        job.observer.problem(&path::display(path), error);
    };
    let mut each = |met: Met<'_>| {
        job.interrupt.check()?;
        job.progress.set_current(&path::display(met.path));
        match bring_back(&tree, how, &met, (share, job)) {
            Ok(Some(true)) => {
                report.files += 1;
                report.bytes += met.entry.size;
                job.progress.add(1, met.entry.size);
            }
            Ok(Some(false)) => report.open += 1,
            Ok(None) => {}
            // There may be room for smaller ones, and for this one after a collection.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                short.get_or_insert_with(|| error.context(path::display(met.path)));
            }
            Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
            Err(error) => told(met.path, &with_way_out(error)),
        }
        Ok(())
    };
    let unnamed = open_directory(share.control()?, Path::new(OPEN))?;
    for directory in [share.directory(), unnamed.as_fd()] {
        crawl::files(directory, &mut each, &mut |path, error| told(path, error))?;
    }
    report.errors = errors.get();
    short.map_or(Ok(()), Err)
}

/// What to do about a file whose data is lost, which keeps this from coming to its end.
pub(super) fn with_way_out(error: Error) -> Error {
    if !error.is_lost() {
        return error;
    }
    let kind = error.kind();
    Error::new(
        kind,
        format!(
            "{error}; if that cannot be mended, delete the file, or restore it from a backup, and \
             run this again"
        ),
    )
}

/// Makes a stub an ordinary file; `None` if it is one, `false` if somebody has it open.
fn bring_back(
    tree: &Arc<TreeReader>,
    (open, kept_free_bytes): (OpenStub, u64),
    met: &Met<'_>,
    (share, job): (&Share, &Job),
) -> Result<Option<bool>> {
    let name = OsStr::from_bytes(&met.entry.name);
    if stub::value_at(&by_handle(met.directory, name))?.is_none() {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match permissions::open_at(met.directory, name, flags) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::TXTBSY | rustix::io::Errno::WOULDBLOCK) => return Ok(Some(false)),
        Err(errno) => return Err(Error::io("opening it", errno.into())),
    };
    let again = file.try_clone().context(|| "opening it again")?;
    let Some(stub) = open(tree, again)? else { return Ok(None) };
    let Some(lease) = Lease::take(&file)? else { return Ok(Some(false)) };
    // What was read before the lease may have changed until then.
    let again = file.try_clone().context(|| "opening it again")?;
    drop(stub);
    let Some(stub) = open(tree, again)? else { return Ok(None) };
    let stat = rustix::fs::fstat(&file).map_err(|errno| Error::io("its status", errno.into()))?;
    let state = crate::ingest::attributes::entry_of(Vec::new(), &stat);
    stub.settle_length()?;
    refuse_without_room(&file, &stub, kept_free_bytes)?;
    if changed_below::keep(&stub, &|| lease.is_held())? {
        changed_below::tell_written(share, met.path, job)?;
    }
    let modified = stub.begin_bringing_back(state.modified, state.changed)?;
    let privileges = Privileges::of(&file)?;
    let recalled = stub.recall(0..u64::MAX, &|| {
        let is_held = lease.is_held()?;
        if is_held {
            // Whoever looks in between, or after a crash, sees no other time.
            times::put_back(&file, modified)?;
        }
        Ok(is_held)
    });
    // Also of a file that only a part of came back of.
    privileges.put_back(&file)?;
    if !lease.is_held()? {
        // Whoever waits for it finds a stub of which something came back, and may change it.
        // Nothing more of it is touched: the next run puts its times back, as the stub says.
        return recalled.map(|_| Some(false));
    }
    times::put_back(&file, modified)?;
    recalled?;
    stub.end_if_recalled()?;
    Ok(Some(true))
}

/// Refuses to fill the disk: if the store is on it, a collection needs some room.
fn refuse_without_room(file: &File, stub: &StubFile, kept_free_bytes: u64) -> Result<()> {
    let free = free_bytes(file)?;
    let known = stub.stub();
    let coming = || known.not_recalled().map(|granule| known.range_of(granule));
    let has_room = |wanted: u64| free >= wanted.saturating_add(kept_free_bytes);
    if has_room(coming().map(|range| range.end - range.start).sum()) {
        return Ok(());
    }
    // Holes take none.
    let of_data = coming().map(|range| stub.stored_data_bytes(range));
    let wanted = of_data.sum::<Result<u64>>()?;
    if has_room(wanted) {
        return Ok(());
    }
    let of_these = match kept_free_bytes {
        0 => String::new(),
        kept => format!(", of which a collection of the store needs {}", kept / 1024),
    };
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "its data takes {} KiB, and the disk has {} KiB free{of_these}; make room and run this \
             again, what came back stays",
            wanted / 1024,
            free / 1024
        ),
    ))
}
