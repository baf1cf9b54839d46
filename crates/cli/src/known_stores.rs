//! Which stores this machine has met at which path, and whether they were encrypted.
//!
//! Whoever can write to a store can replace it, or have it say that it is not encrypted; only what
//! is remembered elsewhere speaks against that. So each path has a small JSON file among the
//! user's own, named by a hash of the path:
//!
//! ```text
//! { "place": "/mnt/backup", "stores": [ { "id": "3f9a...", "encrypted": true } ] }
//! ```
//!
//! Rules:
//! - Where an encrypted store was met, one that says it is not encrypted is refused, unless one of
//!   that id was made or met there unencrypted.
//! - Another encrypted store at a known path is told about once: disks that take turns at one
//!   mount point are as usual as a store that was made anew.
//! - `init` notes what it makes.
//!
//! What this machine has done in each store the engine remembers beside that, in `done`.
//!
//! The directory is `$ONEFOLD_STATE_DIR`, else `$XDG_STATE_HOME/onefold`, else
//! `~/.local/state/onefold`. Where there is none, or it cannot be written, nothing is remembered
//! and no command fails.

use crate::output::Output;
use crate::own_files;
use onefold_engine::Repository;
use onefold_engine::repository::Expectation;
use onefold_remote::Location;
use onefold_types::StoreId;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Where stores are remembered instead of the usual place.
pub const VARIABLE: &str = "ONEFOLD_STATE_DIR";
/// Stores remembered for one path, the last ones met.
const STORES_MAX: usize = 32;

/// A store that was met.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct KnownStore {
    id: String,
    encrypted: bool,
}

/// What is remembered of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Memory {
    #[serde(rename = "place")]
    path: String,
    stores: Vec<KnownStore>,
}

impl Memory {
    /// Adds a store; of too many the oldest goes, those without encryption first: that one was
    /// encrypted is what all this is for.
    fn remember(&mut self, met: KnownStore) {
        self.stores.push(met);
        if self.stores.len() > STORES_MAX {
            let open = self.stores.iter().position(|one| !one.encrypted).unwrap_or(0);
            self.stores.remove(open);
        }
    }
}

/// The directory of what this machine remembers; `None` if there is no place for it.
fn directory() -> Option<PathBuf> {
    own_files::directory(VARIABLE, "XDG_STATE_HOME", ".local/state")
}

/// Where the engine remembers what this machine has done in stores.
pub fn remembered_in() -> Option<PathBuf> {
    directory().map(|directory| directory.join("done"))
}

/// A path where stores are met.
#[derive(Debug)]
pub struct KnownPath {
    file: Option<PathBuf>,
    memory: Memory,
    because: String,
    unencrypted: Vec<StoreId>,
}

impl KnownPath {
    /// What this machine knows of the store at a place. A bucket is known by its name, server and
    /// account, a directory elsewhere by machine, user and path.
    pub fn load(location: &Location) -> Self {
        let path = match location {
            Location::Directory(store) => {
                let path = store.canonicalize().unwrap_or_else(|_| store.to_owned());
                path.to_string_lossy().into_owned()
            }
            Location::Bucket(bucket) => {
                let said = [(" at ", &bucket.endpoint), (" of ", &bucket.account)];
                said.iter().fold(bucket.to_string(), |name, (word, value)| match value {
                    Some(value) => format!("{name}{word}{value}"),
                    None => name,
                })
            }
            Location::Sftp(place) => place.to_string(),
        };
        let name = format!("{}.json", &blake3::hash(path.as_bytes()).to_hex()[..32]);
        let file = directory().map(|directory| directory.join("stores").join(name));
        let memory = file.as_deref().and_then(own_files::read).unwrap_or_default();
        Self::new(file, Memory { path, ..memory })
    }

    fn new(file: Option<PathBuf>, memory: Memory) -> Self {
        let because = format!(
            "this machine has met an encrypted one in its place (says '{}')",
            file.as_deref().unwrap_or(Path::new("")).display()
        );
        let unencrypted = memory.stores.iter().filter(|one| !one.encrypted);
        let unencrypted = unencrypted.filter_map(|one| one.id.parse().ok()).collect();
        Self { file, memory, because, unencrypted }
    }

    /// What is to be expected of the store.
    pub fn expectation(&self) -> Expectation<'_> {
        match self.memory.stores.iter().any(|one| one.encrypted) {
            true => Expectation::Encrypted { because: &self.because, but_for: &self.unencrypted },
            false => Expectation::Nothing,
        }
    }

    /// Notes that this store was made here, or opened; says so if it is another one than before.
    pub fn meet(&mut self, repository: &Repository, is_new: bool, output: &Output) {
        let encrypted = repository.configuration().encryption != "none";
        let met = KnownStore { id: repository.store_id().to_string(), encrypted };
        if self.memory.stores.contains(&met) {
            return;
        }
        if !self.memory.stores.is_empty() && !is_new {
            output.warning(&format!(
                "the store in '{}' is {}, which this machine has not met there before. If you did \
                 not make it anew or connect another disk, somebody has replaced it",
                self.memory.path,
                repository.store_id().short()
            ));
        }
        self.memory.remember(met);
        if let Some(file) = &self.file {
            // A path that cannot be remembered is as good as a new one.
            let _ = own_files::write(file, &self.memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_path(stores: &[(u8, bool)]) -> KnownPath {
        let known = |(id, encrypted): &(u8, bool)| KnownStore {
            id: StoreId([*id; 16]).to_string(),
            encrypted: *encrypted,
        };
        let stores = stores.iter().map(known).collect();
        KnownPath::new(None, Memory { path: "/x".into(), stores })
    }

    #[test]
    fn r73_more_stores_than_are_remembered_hide_no_encrypted_one() {
        // STORES_MAX and one more.
        let met =
            |number: u8, encrypted| KnownStore { id: StoreId([number; 16]).to_string(), encrypted };
        let mut memory = Memory::default();
        memory.remember(met(0, true));
        (1..=STORES_MAX as u8).for_each(|number| memory.remember(met(number, false)));
        assert_eq!(memory.stores.len(), STORES_MAX);
        assert_eq!(memory.stores[..2], [met(0, true), met(2, false)]);
        let path = KnownPath::new(None, memory);
        assert!(matches!(path.expectation(), Expectation::Encrypted { .. }));
        // Where all are encrypted, the one met first goes.
        let mut memory = Memory::default();
        (0..=STORES_MAX as u8).for_each(|number| memory.remember(met(number, true)));
        assert_eq!((memory.stores.len(), &memory.stores[0]), (STORES_MAX, &met(1, true)));
    }

    #[test]
    fn r73_an_encrypted_store_is_expected_where_one_was_met() {
        assert_eq!(known_path(&[]).expectation(), Expectation::Nothing);
        assert_eq!(known_path(&[(1, false)]).expectation(), Expectation::Nothing);
        for stores in [vec![(1, true)], vec![(1, true), (2, false)]] {
            let path = known_path(&stores);
            let Expectation::Encrypted { but_for, .. } = path.expectation() else {
                panic!("an encrypted one was met")
            };
            assert_eq!(but_for.contains(&StoreId([2; 16])), stores.len() > 1);
            assert!(!but_for.contains(&StoreId([1; 16])));
        }
    }
}
