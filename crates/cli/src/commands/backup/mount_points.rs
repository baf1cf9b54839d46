//! Sources that are mount points, remembered by this machine: one on which nothing is mounted any
//! more is told of at each backup, whatever lies in the directory below.

use crate::context::Context;
use onefold_engine::Repository;
use onefold_engine::ingest::{Source, source_tree};
use onefold_types::Fingerprint;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mount points among the sources of a backup, by the hashes of their paths.
#[derive(Default)]
pub struct MountPoints {
    mounted: BTreeSet<Fingerprint>,
    /// Those that were some when this machine saved them, and are none.
    lost: Vec<(PathBuf, Fingerprint)>,
}

impl MountPoints {
    /// Looks at the sources of a backup.
    pub fn of(source: &Source, repository: &Repository) -> Self {
        let mut found = Self::default();
        let (Source::Paths { paths, .. }, Some(remembered)) = (source, repository.remembered())
        else {
            return found;
        };
        for path in paths {
            let Ok(path) = source_tree::absolute(path) else { continue };
            let hash = repository.fingerprinter().data(path.as_os_str().as_bytes());
            if is_mount_point(&path) {
                found.mounted.insert(hash);
            } else if remembered.was_mount_point(&hash) {
                found.lost.push((path, hash));
            }
        }
        found
    }

    /// Says which are none any more.
    pub fn warn(&self, context: &Context) {
        for (path, _) in &self.lost {
            context.output.warning(&format!(
                "'{}' was a mount point when this machine saved it before, and nothing is mounted \
                 there now: only what lies in the directory is saved; --allow-empty says that this \
                 is meant",
                path.display()
            ));
        }
    }

    /// Remembers them; those that are none any more only until that is meant.
    pub fn note(self, repository: &Repository, is_meant: bool) {
        let lost = self.lost.into_iter().map(|(_, hash)| hash);
        let forgotten = lost.filter(|_| is_meant).collect();
        if let Some(remembered) = repository.remembered() {
            remembered.note_mount_points(&self.mounted, &forgotten);
        }
    }
}

/// Whether another file system is mounted on a directory.
fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev());
    match (device(path), device(&path.join(".."))) {
        (Ok(inside), Ok(outside)) => inside != outside,
        _ => false,
    }
}
