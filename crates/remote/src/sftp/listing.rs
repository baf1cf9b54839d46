//! Names below a directory.
//!
//! # Algorithm
//! Directories are read [`DIRECTORIES_AT_ONCE`] at a time, each whole and with several requests
//! under way, and shown after that: nothing is held open while names are shown, and what breaks can
//! be read again. So the names of that many directories are in memory together.
//!
//! # Invariants
//! A listing is whole or fails: nothing but what is absent is passed over. Names that no key has
//! are foreign, and are not shown.

use super::SftpStore;
use super::connection::{Connection, Done, Fault};
use super::kind::Kind;
use crate::stopping::Effect;
use onefold_store::Key;
use onefold_store::key::{COMPONENTS_MAX, RESERVED};
use onefold_types::{Error, ErrorKind, Result};
use russh_sftp::protocol::FileAttributes;
use std::sync::Arc;

/// Directories read at once.
const DIRECTORIES_AT_ONCE: usize = 16;
/// Requests for names of one directory that are under way at most.
const PAGES_AT_ONCE: usize = 8;

/// An entry of a directory.
pub struct Entry {
    pub name: String,
    pub attributes: FileAttributes,
}

/// Whether a prefix is one of keys.
pub(super) fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.is_empty() { Ok(()) } else { Key::new(prefix).map(drop) }
}

pub(super) fn below(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Reads a whole directory; `None` if nothing has its name.
pub(super) async fn entries(connection: &Arc<Connection>, path: &str) -> Done<Option<Vec<Entry>>> {
    // Looked at as well, since one code stands for an absence and for a file.
    let opening = connection.open_directory(path);
    let (opened, is_absent) = futures_util::future::join(opening, connection.is_absent(path)).await;
    let open = match opened {
        Ok(open) => open,
        Err(fault) if fault.is_absence() => {
            return match is_absent? {
                true => Ok(None),
                false => Err(Fault::Other(Error::new(
                    ErrorKind::Io,
                    format!("'{path}' is no directory"),
                ))),
            };
        }
        Err(fault) => return Err(fault),
    };
    let (mut all, mut at_once) = (Vec::new(), 2);
    loop {
        let pages: Vec<_> = (0..at_once).map(|_| open.names()).collect();
        let mut is_end = false;
        for page in futures_util::future::join_all(pages).await {
            match page? {
                Some(names) => all
                    .extend(names.into_iter().map(|(name, attributes)| Entry { name, attributes })),
                None => is_end = true,
            }
        }
        if is_end {
            all.retain(|entry| entry.name != "." && entry.name != "..");
            return Ok(Some(all));
        }
        at_once = (2 * at_once).min(PAGES_AT_ONCE);
    }
}

impl SftpStore {
    /// The entries of a directory of the store.
    pub(super) fn names_in(&self, name: &str) -> Result<Option<Vec<Entry>>> {
        let path = self.at(name);
        self.wait(&format!("listing '{name}'"), Effect::Read, async |connection| {
            entries(connection, &path).await
        })
    }

    /// Shows names that keys can have, and sizes where the server tells them.
    pub(super) fn walk(
        &self,
        prefix: &str,
        with_sizes: bool,
        each: &mut dyn FnMut(Key, Option<u64>) -> Result<()>,
    ) -> Result<()> {
        check_prefix(prefix)?;
        if let Some(names) = self.foreseen_names(prefix) {
            return names.into_iter().try_for_each(|(key, size)| each(key, Some(size)));
        }
        let mut waiting = vec![prefix.to_owned()];
        while !waiting.is_empty() {
            let now = waiting.split_off(waiting.len().saturating_sub(DIRECTORIES_AT_ONCE));
            let listed =
                self.wait(&format!("listing '{prefix}'"), Effect::Read, async |connection| {
                    let reading = now.iter().map(async |name| {
                        match entries(connection, &self.at(name)).await {
                            // Something is there that cannot be listed, which is no absence.
                            Err(Fault::Refused(code, said)) => Err(Fault::Other(Error::new(
                                ErrorKind::Io,
                                format!("'{name}' cannot be listed: {code} ({said})"),
                            ))),
                            listed => listed,
                        }
                    });
                    futures_util::future::try_join_all(reading).await
                })?;
            for (directory, found) in now.iter().zip(listed) {
                for entry in found.unwrap_or_default() {
                    self.show(directory, entry, with_sizes, &mut waiting, each)?;
                }
            }
        }
        Ok(())
    }

    fn show(
        &self,
        directory: &str,
        entry: Entry,
        with_sizes: bool,
        waiting: &mut Vec<String>,
        each: &mut dyn FnMut(Key, Option<u64>) -> Result<()>,
    ) -> Result<()> {
        // A name that is none of a key's anywhere is foreign; so are the store's own.
        let is_own = directory.is_empty() && RESERVED.contains(&entry.name.as_str());
        let name = below(directory, &entry.name);
        let Ok(key) = Key::new(name.as_str()) else { return Ok(()) };
        if is_own {
            return Ok(());
        }
        let attributes = match Kind::of(&entry.attributes) {
            Kind::File | Kind::Directory | Kind::Link | Kind::Other => entry.attributes,
            Kind::Unknown => {
                let path = self.at(&name);
                let what = format!("looking at '{name}'");
                self.wait(&what, Effect::Read, async |connection| connection.look_at(&path).await)?
            }
        };
        let kind = Kind::of(&attributes);
        if kind == Kind::Directory {
            if name.split('/').count() < COMPONENTS_MAX {
                waiting.push(name);
            }
            return Ok(());
        }
        if matches!(kind, Kind::Link | Kind::Other) {
            let said = format!(
                "listing '{directory}' in {}: its entry '{}' is a symbolic link or no file; remove \
                 it, and put what belongs there in its place",
                self.name, entry.name
            );
            return Err(Error::new(ErrorKind::Io, said));
        }
        each(key, attributes.size.filter(|_| with_sizes))
    }
}
