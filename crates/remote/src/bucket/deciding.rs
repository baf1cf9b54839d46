//! Names that are decided once, by a put that replaces nothing.

use super::{BucketStore, Put};
use bytes::Bytes;
use onefold_store::{Blobs, DecidedBy, Decisions, Key};
use onefold_types::{Error, ErrorKind, Result};
use std::time::Duration;

/// How often a decision is asked for that is made already and cannot be read.
const DECIDE_ROUNDS: u32 = 8;
/// How long it waits in between, longer each time: three seconds in all.
const DECIDE_PAUSE: Duration = Duration::from_millis(100);

impl Decisions for BucketStore {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        if self.decided_by == DecidedBy::Nobody {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} was opened without its database: nothing is decided", self.name),
            ));
        }
        self.foreseen.forget_about(key);
        let path = self.path(key);
        let mut round = 1;
        loop {
            if self.put_new(&path, Bytes::copy_from_slice(value))? == Put::Made {
                return Ok(value.to_vec());
            }
            match self.whole(&path) {
                // Who loses may be told so before the winner can be read, and before that one has
                // failed: the name is tried again, which only one can win.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if round == DECIDE_ROUNDS {
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            format!(
                                "'{path}' in {} is said to be taken and cannot be found; try \
                                 again",
                                self.name
                            ),
                        ));
                    }
                    std::thread::sleep(DECIDE_PAUSE * round);
                    round += 1;
                }
                found => return found,
            }
        }
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        if let Some(found) = self.foreseen_object(key, None) {
            return Ok(found.map(|found| found.bytes.into()));
        }
        match self.whole(&self.path(key)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.list_names(prefix, each)
    }
}
