//! The names of the runs in a store, which others may be merging meanwhile.

use crate::repository::Repository;
use onefold_format::layout;
use onefold_types::{Error, ErrorKind, Result, RunId};

/// How often runs are looked at again because some vanished while they were asked: each time
/// another process has merged them meanwhile, so more in a row are a fault, not a race.
pub(super) const RETRIES_MAX: usize = 16;

/// The names of all runs in the store, rising: lists them until two listings agree. What was merged
/// while one of them was read, and is missing from it for that, shows in the other.
pub fn list_runs(repository: &Repository) -> Result<Vec<RunId>> {
    list_runs_since(repository, None)
}

/// The same, if an earlier listing counts as one of the two. What was added since may be missing if
/// it was merged while this is read; what the earlier runs hold, which are open, is not.
pub fn list_runs_since(repository: &Repository, earlier: Option<Vec<RunId>>) -> Result<Vec<RunId>> {
    let mut last = earlier;
    for _ in 0..RETRIES_MAX {
        let listed = list_once(repository)?;
        if last.as_ref() == Some(&listed) {
            return Ok(listed);
        }
        last = Some(listed);
    }
    Err(changing())
}

/// One listing: what is merged while it is read may be missing from it.
pub(super) fn list_once(repository: &Repository) -> Result<Vec<RunId>> {
    let mut ids = Vec::new();
    repository.store().list_names(layout::INDEX, &mut |name| {
        ids.extend(layout::last_component(name).parse::<RunId>());
        Ok(())
    })?;
    ids.sort_unstable();
    Ok(ids)
}

/// The error where they change as often as they are looked at.
pub(super) fn changing() -> Error {
    Error::new(ErrorKind::Unavailable, "the runs of the index change all the time; try again")
}
