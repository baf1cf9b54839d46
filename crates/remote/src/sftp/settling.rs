//! Making durable what can be seen: directories, and decisions.
//!
//! A directory is opened as if it were a file and made durable by `fsync@openssh.com`, as a program
//! on that machine would do it. Servers that do not have it, or open no directory so, offer nothing
//! better and are believed.
//!
//! # Invariants
//! After a directory could not be made durable nobody knows what its device holds: the store
//! refuses every further write and decision. A decision among the settled ones has a durable entry.

use super::connection::{Connection, Done, Fault};
use super::kind::Kind;
use super::listing::{check_prefix, entries};
use super::{SftpStore, lock};
use crate::stopping::Effect;
use futures_util::{StreamExt, TryStreamExt, stream};
use onefold_store::Key;
use onefold_store::key::COMPONENTS_MAX;
use onefold_types::{Error, ErrorKind, Result};
use russh_sftp::protocol::{OpenFlags, StatusCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Directories made durable at once.
const AT_ONCE: usize = 16;
/// Names of settled decisions kept.
const SETTLED_MAX: usize = 1 << 16;

/// A directory and all above it, the store's own (the empty name) first.
pub(super) fn parents(directory: &str) -> Vec<String> {
    let ends = directory.match_indices('/').map(|(at, _)| at).chain([directory.len()]);
    let mut all = vec![String::new()];
    all.extend(
        ends.filter(|end| *end > 0).filter_map(|end| Some(directory.get(..end)?.to_owned())),
    );
    all
}

impl SftpStore {
    /// Makes directories durable; one that is absent is no more.
    pub(super) async fn sync_all(
        &self,
        connection: &Arc<Connection>,
        directories: &[String],
    ) -> Done<()> {
        if !connection.can.sync {
            return Ok(());
        }
        stream::iter(directories)
            .map(|name| self.sync_one(connection, name))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await
    }

    async fn sync_one(&self, connection: &Arc<Connection>, name: &str) -> Done<()> {
        let open = match connection.open(&self.at(name), OpenFlags::READ).await {
            Ok(open) => open,
            Err(fault) if fault.is_absence() => return Ok(()),
            // It does not open directories so.
            Err(Fault::Refused(StatusCode::Failure | StatusCode::OpUnsupported, _)) => {
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        match open.sync(0).await {
            Ok(()) => Ok(()),
            // What a device without such a call says, and a server that knows files only.
            Err(Fault::Refused(
                StatusCode::BadMessage | StatusCode::OpUnsupported | StatusCode::NoSuchFile,
                _,
            )) => Ok(()),
            // A server that lets nobody write.
            Err(Fault::Refused(StatusCode::PermissionDenied, _))
                if !self.is_proved.load(Ordering::SeqCst) =>
            {
                Ok(())
            }
            Err(fault @ Fault::Refused(..)) => {
                self.sync_failed.store(true, Ordering::SeqCst);
                Err(fault)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Makes everything below a directory durable, and those above it.
    pub(super) fn settle_below(&self, prefix: &str) -> Result<()> {
        check_prefix(prefix)?;
        let settled =
            self.wait(&format!("making '{prefix}' durable"), Effect::Write, async |connection| {
                if !connection.can.sync {
                    return Ok(());
                }
                let mut level = vec![prefix.to_owned()];
                let mut all = parents(prefix);
                while !level.is_empty() {
                    let below = stream::iter(&level)
                        .map(|name| self.directories_in(connection, name))
                        .buffer_unordered(AT_ONCE)
                        .try_collect::<Vec<_>>()
                        .await?;
                    level = below.into_iter().flatten().collect();
                    all.extend(level.iter().cloned());
                }
                self.sync_all(connection, &all).await
            });
        settled.map_err(|error| match error.kind() {
            // No caller may take it for an absence.
            ErrorKind::NotFound => error.with_kind(ErrorKind::Io),
            _ => error,
        })
    }

    async fn directories_in(&self, connection: &Arc<Connection>, name: &str) -> Done<Vec<String>> {
        if name.split('/').count() >= COMPONENTS_MAX {
            return Ok(Vec::new());
        }
        let found = entries(connection, &self.at(name)).await?.unwrap_or_default();
        let directories = found.into_iter().filter(|entry| Kind::is_directory(&entry.attributes));
        let names = directories.map(|entry| match name {
            "" => entry.name,
            name => format!("{name}/{}", entry.name),
        });
        Ok(names.filter(|name| Key::new(name.as_str()).is_ok()).collect())
    }

    /// Makes a decision that was found durable, and with it all that can be seen beside it.
    pub(super) fn settle_decision(&self, key: &Key) -> Result<()> {
        if lock(&self.settled).contains(key.as_str()) {
            return Ok(());
        }
        let (directory, _) = key.as_str().rsplit_once('/').unwrap_or(("", ""));
        let path = self.at(directory);
        let names =
            self.wait(&format!("making '{key}' durable"), Effect::Read, async |connection| {
                if !connection.can.sync {
                    return Ok(Vec::new());
                }
                // Read before, so that all of these are settled.
                let found = entries(connection, &path).await?.unwrap_or_default();
                self.sync_all(connection, &parents(directory)).await?;
                Ok(found)
            })?;
        if self.sync_failed.load(Ordering::SeqCst) {
            let said = "an earlier sync of the store failed; check its device and start again";
            return Err(Error::new(ErrorKind::Io, format!("{}: {said}", self.name)));
        }
        let names = names.into_iter().map(|entry| match directory {
            "" => entry.name,
            directory => format!("{directory}/{}", entry.name),
        });
        self.remember_settled(names.take(SETTLED_MAX).chain([key.as_str().to_owned()]));
        Ok(())
    }

    pub(super) fn remember_settled(&self, names: impl IntoIterator<Item = String>) {
        let mut settled = lock(&self.settled);
        if settled.len() >= SETTLED_MAX {
            settled.clear();
        }
        settled.extend(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_directories_above_are_named() {
        assert_eq!(parents(""), [""]);
        assert_eq!(parents("a"), ["", "a"]);
        assert_eq!(parents("a/b/c"), ["", "a", "a/b", "a/b/c"]);
    }
}
