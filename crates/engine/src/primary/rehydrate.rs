//! The way back: stubs become ordinary files.
//!
//! File by file, each whole before its stub goes, with its times put back: whoever is stopped goes
//! on later. When the disk is full, what the files that came back needed in the store is given up,
//! a collection frees it, and it goes on; so the directory comes back with less free space than all
//! of it takes, if the store is on the same disk.

use super::crawl::{self, Met};
use super::emptying;
use super::optimize::{self, OptimizeOptions};
use super::share::Share;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{SnapshotList, tombstones};
use crate::stub::StubFile;
use crate::tree::{TreeReader, path};
use onefold_lease::Lease;
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::sync::Arc;

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
}

/// Frees what nobody needs in the store.
pub type Collect<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Makes every stub of a share an ordinary file. Once none is left its manifests are forgotten.
pub fn rehydrate(
    repository: &Arc<Repository>,
    share: &Share,
    options: &OptimizeOptions,
    collect: Collect<'_>,
    job: &Job,
) -> Result<RehydrateReport> {
    share.refuse_other_store(repository)?;
    let mut report = RehydrateReport::default();
    loop {
        let files = report.files;
        match pass(repository, share, &mut report, job) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::NoSpace && report.files > files => {}
            Err(error) => return Err(error),
        }
        report.collections += 1;
        let nothing = ColdFiles { modified_before_ns: i64::MIN, size_min_bytes: u64::MAX };
        let options = OptimizeOptions { cold: Some(nothing), ..options.clone() };
        optimize::optimize(repository, share, &options, job)?;
        collect()?;
    }
    if report.open + report.errors == 0 {
        let _lock = share.lock_job()?;
        for manifest in SnapshotList::load(repository)?.manifests(share.id) {
            tombstones::forget(repository, manifest.id, &options.by, "its share has no stubs")?;
        }
    }
    Ok(report)
}

fn pass(
    repository: &Arc<Repository>,
    share: &Share,
    report: &mut RehydrateReport,
    job: &Job,
) -> Result<()> {
    let _lock = share.lock_job()?;
    let tree = Arc::new(TreeReader::open(repository)?);
    (report.open, report.errors) = (0, 0);
    let errors = std::cell::Cell::new(0);
    let told = |path: &[u8], error: &Error| {
        errors.set(errors.get() + 1);
        job.observer.problem(&path::display(path), error);
    };
    crawl::files(
        share.directory(),
        &mut |met| {
            job.interrupt.check()?;
            if !met.entry.sparse && met.entry.size > 0 {
                return Ok(());
            }
            job.progress.set_current(&path::display(met.path));
            match bring_back(&tree, &met) {
                Ok(Some(true)) => {
                    report.files += 1;
                    report.bytes += met.entry.size;
                    job.progress.add(1, met.entry.size);
                }
                Ok(Some(false)) => report.open += 1,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NoSpace => return Err(error),
                Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
                Err(error) => told(met.path, &error),
            }
            Ok(())
        },
        &mut |path, error| told(path, error),
    )?;
    report.errors = errors.get();
    Ok(())
}

/// Makes a stub an ordinary file; `None` if it is one, `false` if somebody has it open.
fn bring_back(tree: &Arc<TreeReader>, met: &Met<'_>) -> Result<Option<bool>> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(met.directory, &*met.entry.name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::TXTBSY | rustix::io::Errno::WOULDBLOCK) => return Ok(Some(false)),
        Err(errno) => return Err(Error::io("opening it", errno.into())),
    };
    let again = file.try_clone().context(|| "opening it again")?;
    let Some(stub) = StubFile::open(tree, again)? else { return Ok(None) };
    let Some(_lease) = Lease::take(&file)? else { return Ok(Some(false)) };
    // What was read before the lease may have changed until then.
    let again = file.try_clone().context(|| "opening it again")?;
    drop(stub);
    let Some(stub) = StubFile::open(tree, again)? else { return Ok(None) };
    let stat = rustix::fs::fstat(&file).map_err(|errno| Error::io("its status", errno.into()))?;
    let state = crate::ingest::attributes::entry_of(Vec::new(), &stat);
    stub.settle_length()?;
    let modified = match stub.stub() {
        known if known.is_being_emptied && known.is_untouched() => known.modified,
        _ => state.modified,
    };
    stub.recall(0..u64::MAX)?;
    stub.end_if_recalled()?;
    emptying::put_back(&file, modified)?;
    Ok(Some(true))
}
