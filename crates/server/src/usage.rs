//! How much each client has put, beside the file of clients.
//!
//! # Algorithm
//! Counted in memory and written once a second if anything changed, and at the end: a server that
//! is killed has forgotten the last second.
//!
//! An object counts 4 KiB at least. Bytes are those that were put, whether or not they were deleted
//! since: what a client put may serve others by now, and what a collection copies is put by the
//! collector.

use crate::answers::Failure;
use crate::clients::{FILE_MAX_BYTES, replace_file};
use crate::served::charged;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// What each client has put.
pub struct Usage {
    path: PathBuf,
    counted: Mutex<Counted>,
}

struct Counted {
    bytes: BTreeMap<String, u64>,
    is_written: bool,
}

impl Usage {
    /// Reads what was counted.
    pub fn read(path: PathBuf) -> Result<Self> {
        let shown = path.display();
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Ok(found) if found.len() > FILE_MAX_BYTES => {
                return Err(Error::invalid(format!("'{shown}' is no file of this server")));
            }
            _ => {
                let reading = || format!("reading what clients have put in '{shown}'");
                toml::from_str(&fs::read_to_string(&path).context(reading)?).map_err(|error| {
                    Error::invalid(format!(
                        "'{shown}' cannot be understood: {}; without it all clients begin at zero",
                        error.message()
                    ))
                })?
            }
        };
        Ok(Self { path, counted: Mutex::new(Counted { bytes, is_written: true }) })
    }

    /// Counts an object that is about to be put; refused if it is too much.
    pub fn take(&self, client: &str, bytes: u64, quota: Option<u64>) -> Result<(), Failure> {
        let bytes = charged(bytes);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let used = counted.bytes.get(client).copied().unwrap_or(0);
        let after = used.saturating_add(bytes);
        if let Some(quota) = quota.filter(|quota| after > *quota) {
            return Err(Failure::quota(&format!(
                "the client '{client}' has put {used} bytes and may put {quota}: {bytes} more are \
                 too much; whoever runs the server can give it more"
            )));
        }
        // What files can hold are signed numbers.
        counted.bytes.insert(client.to_owned(), after.min(i64::MAX as u64));
        counted.is_written = false;
        Ok(())
    }

    /// It was not put after all.
    pub fn give_back(&self, client: &str, bytes: u64) {
        let bytes = charged(bytes);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = counted.bytes.get_mut(client) {
            *used = used.saturating_sub(bytes);
            counted.is_written = false;
        }
    }

    /// What each has put.
    pub fn all(&self) -> BTreeMap<String, u64> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    /// Writes what has changed. Whoever counts meanwhile does not wait for the disk.
    pub fn write(&self) -> Result<()> {
        let text = {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            if counted.is_written {
                return Ok(());
            }
            counted.is_written = true;
            toml::to_string(&counted.bytes)
                .map_err(|error| Error::invalid(format!("counts cannot be written: {error}")))?
        };
        let written = replace_file(&self.path, text.as_bytes());
        if written.is_err() {
            self.counted.lock().unwrap_or_else(PoisonError::into_inner).is_written = false;
        }
        written.context(|| format!("writing what clients have put to '{}'", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_puts_what_it_may_and_not_a_byte_more_also_after_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("used");
        let usage = Usage::read(path.clone()).unwrap();
        let page = charged(0);
        usage.take("a", 6 * page, Some(10 * page)).unwrap();
        assert!(usage.take("a", 4 * page + 1, Some(10 * page)).is_err());
        usage.take("b", 100 * page, None).unwrap();
        usage.give_back("b", 40 * page);
        usage.write().unwrap();
        let usage = Usage::read(path).unwrap();
        let all: Vec<_> = usage.all().into_iter().collect();
        assert_eq!(all, [("a".to_owned(), 6 * page), ("b".to_owned(), 60 * page)]);
        usage.take("a", 4 * page, Some(10 * page)).unwrap();
        assert!(usage.take("a", 0, Some(10 * page)).is_err());
    }
}
