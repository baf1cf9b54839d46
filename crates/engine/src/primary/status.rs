//! What of a share is optimised, saved, recalled.

use super::crawl;
use super::emptying::BLOCK_BYTES;
use super::linked_files::FirstNames;
use super::lost_stubs::LostStubs;
use super::manifests::{Elsewhere, Manifests};
use super::share::Share;
use crate::ingest::stubs::by_handle;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::SnapshotList;
use crate::stub;
use crate::tree::path;
use onefold_types::{Error, Result, SessionId};
use rustix::fs::AtFlags;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What a share holds.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Whether it is mounted.
    pub is_mounted: bool,
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What they take of the disk, in bytes.
    pub disk_bytes: u64,
    /// Stubs among them.
    pub stubs: u64,
    /// The stubs' bytes.
    pub stub_bytes: u64,
    /// Bytes of stubs that the store holds and the disk does not.
    pub saved_bytes: u64,
    /// Bytes of stubs that came back into their files.
    pub recalled_bytes: u64,
    /// Stubs that belong to another file, share or store, by path.
    pub foreign: Vec<String>,
    /// Stubs that lost their attribute; each was told.
    pub lost: u64,
    /// What could not be read since the last scrub.
    pub problems: Vec<String>,
    /// The manifests that keep the stubs' data, the newest last.
    pub manifests: Vec<SessionId>,
    /// Manifests of the share that another directory has made.
    pub elsewhere: Vec<Elsewhere>,
}

/// Looks at every file of a share.
pub fn status(repository: &Arc<Repository>, share: &Share, job: &Job) -> Result<Status> {
    share.refuse_other_store(repository)?;
    let Manifests { own, elsewhere } = Manifests::of(&SnapshotList::load(repository)?, share);
    let lost = LostStubs::look(repository, share, &own, job)?.files();
    let mut status = Status {
        lost,
        is_mounted: share.is_mounted(),
        problems: share.problems()?,
        manifests: own.iter().map(|one| one.id).collect(),
        elsewhere,
        ..Status::default()
    };
    let mut names = FirstNames::default();
    crawl::files(
        share.directory(),
        &mut |met| {
            job.interrupt.check()?;
            let entry = met.entry;
            if !names.is_first(entry) {
                return Ok(());
            }
            let name = OsStr::from_bytes(&entry.name);
            let stat = rustix::fs::statat(met.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let blocks = stat.map_or(0, |stat| stat.st_blocks.max(0) as u64);
            status.files += 1;
            status.bytes += entry.size;
            status.disk_bytes += blocks * BLOCK_BYTES;
            job.progress.add(1, entry.size);
            let value = match stub::value_at(&by_handle(met.directory, name)) {
                Ok(Some(value)) => value,
                Ok(None) => return Ok(()),
                Err(error) => {
                    job.observer.problem(&path::display(met.path), &error);
                    return Ok(());
                }
            };
            match stub::open(repository, entry.inode, &value) {
                Ok((owner, found)) if owner.share == share.id => {
                    status.stubs += 1;
                    status.stub_bytes += entry.size;
                    let left = found.not_recalled().map(|granule| found.range_of(granule));
                    let left: u64 = left.map(|range| range.end - range.start).sum();
                    status.saved_bytes += left;
                    status.recalled_bytes += entry.size.saturating_sub(left);
                }
                Ok(_) => status.foreign.push(path::display(met.path)),
                Err(error) if error.is_lost() => status.foreign.push(path::display(met.path)),
                Err(error) => return Err(error),
            }
            Ok(())
        },
        &mut |path, error: &Error| job.observer.problem(&path::display(path), error),
    )?;
    Ok(status)
}
