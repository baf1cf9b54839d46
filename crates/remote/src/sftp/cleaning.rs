//! What processes that are gone have left in `tmp`.
//!
//! # Invariants
//! Nobody can see from here whether a writer lives, so age decides: what was last written more than
//! [`AGE_MAX`] ago, by the clock that also dates a file that is written now, is nobody's. Should
//! its writer be at work nevertheless, its link fails, and nothing is put: an error, never half a
//! file.

use super::connection::Fault;
use super::kind::Kind;
use super::naming::temporary_name;
use super::{SftpStore, TEMPORARY_DIRECTORY};
use crate::stopping::Effect;
use onefold_types::{Error, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No writer rests for so long: a request that is not answered ends it much earlier.
pub const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Whether a name is one that is given here: of a file that is written, or raced for.
fn is_temporary(name: &str) -> bool {
    let number = name.strip_prefix("sftp-").or_else(|| name.strip_prefix("race-"));
    number.is_some_and(|it| it.len() == 32 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl SftpStore {
    /// Removes files that were given up; how many.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub fn remove_stale_temporaries(&self) -> Result<usize> {
        self.refuse_writing()?;
        let found = self.names_in(TEMPORARY_DIRECTORY)?.unwrap_or_default();
        let mut old = Vec::new();
        for entry in found.into_iter().filter(|entry| is_temporary(&entry.name)) {
            let modified = entry.attributes.mtime;
            if let (Kind::File, Some(seconds)) = (Kind::of(&entry.attributes), modified) {
                old.push((entry.name, u64::from(seconds)));
            }
        }
        let since = |now: u64| now.saturating_sub(AGE_MAX.as_secs());
        let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        old.retain(|(_, modified)| *modified < since(here));
        if old.is_empty() {
            return Ok(0);
        }
        // This machine's clock may be wrong.
        let there = self.time_there()?;
        old.retain(|(_, modified)| *modified < since(there));
        for (name, _) in &old {
            let path = self.at(&format!("{TEMPORARY_DIRECTORY}/{name}"));
            self.wait(&format!("removing '{name}'"), Effect::Write, async |connection| {
                match connection.ask(connection.session.remove(&path)).await {
                    Err(fault) if fault.is_absence() => Ok(()),
                    removed => removed.map(drop),
                }
            })?;
        }
        Ok(old.len())
    }

    /// The time that the server gives to a file that is written now.
    fn time_there(&self) -> Result<u64> {
        let name = temporary_name()?;
        self.write_part(&name, 0, b"now")?;
        let path = self.at(&name);
        let looked = self.wait("looking at a new file", Effect::Read, async |connection| {
            connection.look_at(&path).await?.mtime.ok_or_else(|| {
                Fault::Other(Error::invalid("the server does not say when files were written"))
            })
        });
        self.discard(&name);
        looked.map(u64::from)
    }
}
