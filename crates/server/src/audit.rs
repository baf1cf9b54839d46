//! What a client has put into a store and what is still there, for an owner whose client was taken
//! over.
//!
//! Invariants: an object is a client's if the last line of the log about it says so. What others
//! may rely on is never removed ([`Kind::costs_time_only`]), and nothing is while a server has the
//! directory: it would not know.

use crate::puts::{self, Line};
use crate::served::{Rules, Served};
use onefold_format::layout::Kind;
use onefold_store::{Blobs as _, Key, LocalStore};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// An object that a client has put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// Its name.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// When that began, by the server's clock, in nanoseconds since 1970.
    pub time_ns: i64,
    /// How long it is.
    pub size_bytes: u64,
}

/// What a client has put into the store in a directory since then and what is still there, in the
/// order of names.
///
/// # Errors
///
/// `NoStore`; `NotFound` if there is no log beside the store; those of the device.
pub fn puts_of(directory: &Path, client: &str, since_ns: Option<i64>) -> Result<Vec<Put>> {
    let shown = directory.display();
    let real = directory.canonicalize().context(|| format!("opening '{shown}'"))?;
    let store = LocalStore::open(&real)?;
    let path = puts::path_of(&real);
    let mut found = BTreeMap::new();
    let mut note = |line: &Line<'_>| {
        let is_asked_for =
            line.client == client && since_ns.is_none_or(|since| line.time_ns >= since);
        match is_asked_for.then(|| there(&store, line)).flatten() {
            Some(put) => drop(found.insert(line.key.to_owned(), put)),
            // Somebody else has put it later, or tried.
            None => drop(found.remove(line.key)),
        }
        Ok(())
    };
    puts::read(&path, &mut note).context(|| {
        format!("reading '{}', which a server writes beside a store that it serves", path.display())
    })?;
    Ok(found.into_values().collect())
}

fn there(store: &LocalStore, line: &Line<'_>) -> Option<Put> {
    let kind = Kind::of(line.key)?;
    let key = Key::new(line.key).ok()?;
    let size_bytes = store.size(&key).ok()?;
    Some(Put { key, kind, time_ns: line.time_ns, size_bytes })
}

/// Removes those of the objects whose loss costs nothing but time.
///
/// # Errors
///
/// `Unavailable` if a server has the directory; those of the device.
pub fn remove(directory: &Path, puts: &[Put]) -> Result<()> {
    let served = Served::open(directory, Rules::default(), Duration::ZERO);
    let served = served.map_err(|error| match error.kind() {
        ErrorKind::Unavailable => Error::new(
            ErrorKind::Unavailable,
            format!("{error}: end it, and start it again when that is removed"),
        ),
        _ => error,
    })?;
    puts.iter().filter(|put| put.kind.costs_time_only()).try_for_each(|put| served.delete(&put.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::puts::Puts;
    use onefold_format::layout;
    use onefold_types::{ContainerId, DoubtId, RunId, SessionId};

    #[test]
    fn what_is_there_of_a_client_is_listed_and_only_what_costs_time_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        let store = LocalStore::create(&directory).unwrap();
        let config = Key::new(layout::CONFIGURATION).unwrap();
        store.put(&config, b"what makes it a store").unwrap();
        let none = puts_of(&directory, "thief", None).unwrap_err();
        assert!(none.kind() == ErrorKind::NotFound && none.to_string().contains("store.puts"));
        let puts = Puts::open(&directory, &store).unwrap();
        let put = |client: &str, name: String, is_there: bool| {
            let key = Key::new(name).unwrap();
            puts.note(client, &key).unwrap();
            if is_there {
                store.put(&key, b"bytes").unwrap();
            }
            key
        };
        let session = SessionId([1; 16]);
        let own = [
            put("thief", layout::container(ContainerId([1; 16])), true),
            put("thief", layout::doubt(DoubtId([1; 16])), true),
            put("thief", layout::index_run(RunId([1; 16])), true),
            put("thief", layout::metadata_pack(ContainerId([1; 16])), true),
            put("thief", layout::outcome(session), true),
            put("thief", layout::session_announced(session), true),
            put("thief", layout::session_ready(session, 3), true),
        ];
        put("thief", layout::index_run(RunId([2; 16])), false);
        put("honest", layout::index_run(RunId([3; 16])), true);
        // The one who tried first has not put it.
        put("thief", layout::index_run(RunId([4; 16])), false);
        put("honest", layout::index_run(RunId([4; 16])), true);

        let all = puts_of(&directory, "thief", None).unwrap();
        assert_eq!(all.iter().map(|put| put.key.clone()).collect::<Vec<_>>(), own);
        assert!(all.iter().all(|put| put.size_bytes == 5));
        let last = all.iter().map(|put| put.time_ns).max().unwrap();
        let late = puts_of(&directory, "thief", Some(last)).unwrap();
        assert!(!late.is_empty() && late.iter().all(|put| put.time_ns == last));
        assert!(puts_of(&directory, "thief", Some(last + 1)).unwrap().is_empty());

        let serving = Served::open(&directory, Rules::default(), Duration::ZERO).unwrap();
        assert_eq!(remove(&directory, &all).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(puts_of(&directory, "thief", None).unwrap(), all);
        drop(serving);
        remove(&directory, &all).unwrap();
        let left = puts_of(&directory, "thief", None).unwrap();
        let left: Vec<Key> = left.into_iter().map(|put| put.key).collect();
        assert_eq!(left, [0, 1, 4, 5].map(|at: usize| own[at].clone()));
        assert_eq!(puts_of(&directory, "honest", None).unwrap().len(), 2);
    }
}
