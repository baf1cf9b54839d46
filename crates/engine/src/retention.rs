//! Forgetting snapshots: by policy or by name, reversibly first.

use crate::repository::Repository;
use onefold_types::{Error, Result, SessionId};

/// Hides snapshots until `undelete` brings them back (a reversible mark).
pub fn forget(_repository: &Repository, _snapshots: &[SessionId], _by: &str) -> Result<()> {
    Err(Error::invalid("not built"))
}
