//! Which earlier snapshot a backup is compared with.
//!
//! Of several the one that was saved last: dates come from clocks, which may have been wrong.
//!
//! Files that look unchanged are not read, so unless a snapshot is asked for by name it is one that
//! this machine has saved itself: another one of its name and paths may hold anything.

use super::namesakes::Relative;
use super::{BackupOptions, ParentChoice};
use crate::remembered::Remembered;
use crate::session::{Snapshot, SnapshotList};
use onefold_types::{Error, ErrorKind, Result, SessionId};

/// The parent that is asked for; none if there is none of the same host and paths.
pub fn choose(
    options: &BackupOptions,
    (list, remembered): (&SnapshotList, Option<&Remembered>),
    names: &[String],
) -> Result<Option<Snapshot>> {
    let is_own = |id| remembered.is_none_or(|remembered| remembered.has_saved(id));
    match options.parent {
        ParentChoice::None => Ok(None),
        ParentChoice::Snapshot(id) => {
            list.get(id).cloned().map(Some).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("there is no snapshot {id}"))
            })
        }
        ParentChoice::Newest if let Some(share) = options.share => {
            Ok(list.manifests(share).filter(|one| is_own(one.id)).last().cloned())
        }
        ParentChoice::Newest => {
            let same = |snapshot: &&Snapshot| {
                let record = &snapshot.record;
                record.host == options.host && record.paths == names && is_own(snapshot.id)
            };
            let same = list.visible().filter(same);
            Ok(same.max_by_key(|snapshot| snapshot.saved_order()).cloned())
        }
    }
}

/// The parent, or else the snapshot of the host that was saved last.
pub fn relative(host: &str, list: &SnapshotList, parent: Option<&Snapshot>) -> Option<Relative> {
    let of_host = || {
        let of_host = list.visible().filter(|one| one.record.host == host);
        of_host.max_by_key(|snapshot| snapshot.saved_order())
    };
    let one = &parent.or_else(of_host)?.record;
    Some(Relative { root: one.root, files: one.summary.files })
}

/// The snapshot with the latest date of those that a clock dated when they were saved.
pub fn latest_dated(list: &SnapshotList) -> Option<(i64, SessionId)> {
    let dated = list.visible().filter(|one| one.is_dated_by_clock());
    dated.map(|one| (one.record.started_ns, one.id)).max()
}
