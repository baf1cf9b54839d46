//! Who may do what.
//!
//! ```toml
//! [laptop]
//! token = "blake3:3f9a…"          # of its token; the token itself is nowhere
//! rights = ["read", "append"]
//! stores = ["backup"]             # all of them without this line
//! quota-bytes = 500000000000      # no limit without this line
//! ```
//!
//! A token is 32 random bytes, so a plain hash of it tells nothing: there is nothing to guess.
//!
//! Invariants: a file is understood whole or not at all; it is replaced in one step, by one at a
//! time, and stays its owner's, so that a server that reads it again sees all of it or all of what
//! was before.

use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest name of a client.
pub const NAME_MAX_BYTES: usize = 64;
/// The longest file of clients that is read.
pub const FILE_MAX_BYTES: u64 = 16 << 20;
const TOKEN_BYTES: usize = 32;
/// What tokens begin with, so that one is known for what it is where it should not be.
const TOKEN_PREFIX: &str = "onefold-";
const HASH_PREFIX: &str = "blake3:";

/// What a client may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read everything.
    Read,
    /// Put what is not there yet, list, and read what is no container.
    Append,
    /// Delete.
    Collect,
    /// See the server's counters.
    Metrics,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Append, Self::Collect, Self::Metrics];

    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Collect => "collect",
            Self::Metrics => "metrics",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.into_iter().find(|right| right.name() == text);
        found.ok_or_else(|| format!("there is no right '{text}'"))
    }
}

/// One client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Client {
    /// The hash of its token.
    token: String,
    /// What it may do.
    pub rights: Vec<Right>,
    /// In which stores; none: in all that are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stores: Option<Vec<String>>,
    /// How many bytes it may put in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

impl Client {
    /// Whether it may.
    #[must_use]
    pub fn has(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    /// Whether it may do anything in a store.
    #[must_use]
    pub fn knows(&self, store: &str) -> bool {
        self.stores.as_ref().is_none_or(|stores| stores.iter().any(|name| name == store))
    }
}

/// All clients, by name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Clients(BTreeMap<String, Client>);

impl Clients {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none; `Invalid` if it cannot be understood.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let reading = || format!("reading the clients in '{shown}'");
        let size = fs::metadata(path).context(reading)?.len();
        if size > FILE_MAX_BYTES {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("'{shown}' has {size} bytes; clients are read from {FILE_MAX_BYTES}"),
            ));
        }
        let text = fs::read_to_string(path).context(reading)?;
        Self::parse(&text)
            .map_err(|why| Error::invalid(format!("'{shown}' cannot be understood: {why}")))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let found: BTreeMap<String, Client> =
            toml::from_str(text).map_err(|error| error.message().to_owned())?;
        for (name, client) in &found {
            check_name(name)?;
            let hash = client.token.strip_prefix(HASH_PREFIX).unwrap_or_default();
            if hash.len() != 2 * blake3::OUT_LEN || hex::decode(hash).is_err() {
                return Err(format!("the token of '{name}' is not '{HASH_PREFIX}' and 64 digits"));
            }
        }
        Ok(Self(found))
    }

    /// Changes the file, or makes one, which is readable for its owner only. Others who change it
    /// meanwhile wait.
    ///
    /// # Errors
    ///
    /// Those of the change, of reading, and of the device; then nothing has changed.
    pub fn change<T>(path: &Path, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let shown = path.display();
        let writing = || format!("writing the clients to '{shown}'");
        let directory = fs::File::open(directory_of(path)).context(writing)?;
        directory.lock().context(writing)?;
        let mut clients = match Self::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::default(),
            read => read?,
        };
        let changed = change(&mut clients)?;
        let text = toml::to_string(&clients.0)
            .map_err(|error| Error::invalid(format!("clients cannot be written: {error}")))?;
        replace_file(path, text.as_bytes()).context(writing)?;
        Ok(changed)
    }

    /// Adds one, and gives the token that is shown once.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that none may have, `AlreadyExists` for one that is taken.
    pub fn add(
        &mut self,
        name: &str,
        rights: Vec<Right>,
        stores: Option<Vec<String>>,
        quota_bytes: Option<u64>,
    ) -> Result<String> {
        check_name(name).map_err(Error::invalid)?;
        if self.0.contains_key(name) {
            let what = format!("there is a client '{name}': remove it first");
            return Err(Error::new(ErrorKind::AlreadyExists, what));
        }
        let mut random = [0; TOKEN_BYTES];
        getrandom::fill(&mut random).map_err(|error| {
            Error::invalid(format!("the system gives no random bytes: {error}"))
        })?;
        let given = format!("{TOKEN_PREFIX}{}", hex::encode(random));
        let client = Client { token: hash_of(&given), rights, stores, quota_bytes };
        self.0.insert(name.to_owned(), client);
        Ok(given)
    }

    /// Takes one away; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Client)> {
        self.0.iter().map(|(name, client)| (name.as_str(), client))
    }

    /// Whose token it is.
    #[must_use]
    pub fn by_token(&self, token: &str) -> Option<(&str, &Client)> {
        // Compared are hashes: how long that takes says nothing about a token.
        let hash = hash_of(token);
        self.iter().find(|(_, client)| client.token == hash)
    }
}

fn hash_of(token: &str) -> String {
    format!("{HASH_PREFIX}{}", blake3::hash(token.as_bytes()).to_hex())
}

fn check_name(name: &str) -> std::result::Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match (1..=NAME_MAX_BYTES).contains(&name.len()) && name.bytes().all(allowed) {
        true => Ok(()),
        false => Err(format!(
            "'{name}' is no name of a client: it has letters, digits, '-' and '_', at most \
             {NAME_MAX_BYTES} of them"
        )),
    }
}

fn directory_of(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.map_or_else(|| ".".into(), Path::to_owned)
}

/// Puts a file in the place of another one, in one step and durably; it stays the other one's
/// owner's.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    replace_by(path, |file| file.write_all(bytes))
}

/// Puts a file that `write` fills in the place of another one, as [`replace_file`] does.
pub(crate) fn replace_by(
    path: &Path,
    write: impl FnOnce(&mut fs::File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let directory = directory_of(path);
    let mut file = tempfile::NamedTempFile::new_in(&directory)?;
    if let Ok(before) = fs::metadata(path) {
        let own = file.as_file().metadata()?;
        if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
            fchown(file.as_file(), Some(before.uid()), Some(before.gid()))?;
        }
        file.as_file().set_permissions(before.permissions())?;
    }
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    fs::File::open(&directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_and_written_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("clients.toml");
        let add = |name: &str, right, quota| {
            Clients::change(&path, |clients| clients.add(name, vec![right], None, quota)).unwrap()
        };
        let (token, other) =
            (add("laptop", Right::Append, Some(7)), add("server", Right::Read, None));
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&token) && !text.contains(&token[TOKEN_PREFIX.len()..]), "{text}");
        let found = Clients::read(&path).unwrap();
        assert_eq!(found.by_token(&token).unwrap().0, "laptop");
        assert_eq!(found.by_token(&other).unwrap().0, "server");
        assert_eq!(found.by_token(&token).unwrap().1.quota_bytes, Some(7));
        assert!(found.by_token("").is_none() && found.by_token(&token[1..]).is_none());
        let (_, client) = found.iter().next().unwrap();
        assert!(found.by_token(&client.token).is_none(), "a hash is no token");
    }

    #[test]
    fn names_are_taken_once_and_are_bounded() {
        let mut clients = Clients::default();
        clients.add("a", vec![], None, None).unwrap();
        let error = clients.add("a", vec![], None, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(clients.add(&"n".repeat(NAME_MAX_BYTES), vec![], None, None).is_ok());
        for name in ["", "a b", "a/b", "é", &"n".repeat(NAME_MAX_BYTES + 1)] {
            assert!(clients.add(name, vec![], None, None).is_err(), "{name}");
        }
        assert!(clients.remove("a") && !clients.remove("a"));
    }

    #[test]
    fn a_file_that_is_not_understood_gives_no_rights() {
        let hash = hash_of("x");
        for text in [
            "[a]\nrights = [\"read\"]".to_owned(),
            format!("[a]\ntoken = \"{hash}\"\nrights = [\"all\"]"),
            format!("[a]\ntoken = \"{hash}\"\nrights = []\nquota = 5"),
            format!("[\"a b\"]\ntoken = \"{hash}\"\nrights = []"),
            "[a]\ntoken = \"secret\"\nrights = []".to_owned(),
            format!("[a]\ntoken = \"{hash}0\"\nrights = []"),
        ] {
            let said = Clients::parse(&text).unwrap_err();
            assert!(!said.contains("secret"), "{said}");
        }
        assert!(Clients::parse(&format!("[a]\ntoken = \"{hash}\"\nrights = []")).is_ok());
    }
}
