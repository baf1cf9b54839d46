//! What will be read, asked for beforehand (`crate::foreseen`): on a connection that there is, and
//! without trying again.

use super::connection::{Connection, Done};
use super::kind::Kind;
use super::listing::{Entry as Name, below, entries};
use super::reading::{self, Found as Looked};
use super::{SftpStore, at};
use crate::foreseen::{
    Answered, Entry, Found, NAMES_FORESEEN_MAX, OBJECT_FORESEEN_MAX_BYTES, bytes_max,
};
use crate::stopping::Effect;
use futures_util::future::try_join_all;
use onefold_store::key::{COMPONENTS_MAX, RESERVED};
use onefold_store::{Asked, Key};
use std::sync::Arc;

/// A name, and the size of what has it.
pub(super) type Listed = (Key, u64);

impl SftpStore {
    /// Begins to ask for all of these.
    pub(super) fn begin_foreseen(&self, next: Vec<Asked>) -> u64 {
        if self.pool.any().is_none() {
            let connect = self.wait("connecting", Effect::Read, async |_| Ok(()));
            if connect.is_err() {
                return 0;
            }
        }
        let Some(connection) = self.pool.any() else { return 0 };
        self.foreseen.begin(next, |asked| {
            let (connection, root) = (Arc::clone(&connection), self.root.clone());
            self.runtime.spawn(answer(connection, root, asked.clone()))
        })
    }

    fn arrived(&self, mut entry: Entry<Listed>) -> Option<Answered<Listed>> {
        let arriving = self.stopping.unless_stopped(Effect::Read, entry.arrive());
        self.runtime.block_on(arriving).flatten()
    }

    /// The names below a directory, if they were foreseen.
    pub(super) fn foreseen_names(&self, prefix: &str) -> Option<Vec<Listed>> {
        self.foreseen.names(prefix, |entry| self.arrived(entry))
    }

    /// The end of an object, if it was foreseen ([`crate::foreseen::Foreseen::object`]).
    pub(super) fn foreseen_object(
        &self,
        key: &Key,
        tail_bytes: Option<usize>,
    ) -> Option<Option<Found>> {
        self.foreseen.object(key, tail_bytes, |entry| self.arrived(entry))
    }
}

/// Asks; `None` if there is no answer that can be kept.
async fn answer(
    connection: Arc<Connection>,
    root: String,
    asked: Asked,
) -> Option<Answered<Listed>> {
    let most = bytes_max(&asked);
    let (key, tail_bytes) = match asked {
        Asked::Names(prefix) | Asked::ManyNames(prefix, _) => {
            return names(&connection, &root, prefix).await.map(Answered::Names);
        }
        Asked::Object(key) | Asked::Long(key, _) => (key, u64::MAX),
        Asked::Tail(key, length) if length as u64 <= OBJECT_FORESEEN_MAX_BYTES => {
            (key, length as u64)
        }
        Asked::Tail(..) => return None,
    };
    let path = at(&root, key.as_str());
    let object = match reading::open(&connection, key.as_str(), &path).await.ok()? {
        Looked::Object(object) => object,
        Looked::Absent => return Some(Answered::Object(None)),
        Looked::Foreign => return None,
    };
    let (size, length) = (object.size_bytes, object.size_bytes.min(tail_bytes));
    if length > most {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    reading::fill(key.as_str(), &object.file, size - length, &mut bytes).await.ok()?;
    Some(Answered::Object(Some(Found { size, bytes: bytes.into() })))
}

async fn whole_directory(connection: &Arc<Connection>, path: String) -> Done<Option<Vec<Name>>> {
    entries(connection, &path).await
}

/// All names below a directory; `None` if one of them needs a second look.
async fn names(connection: &Arc<Connection>, root: &str, prefix: String) -> Option<Vec<Listed>> {
    let (mut found, mut level) = (Vec::new(), vec![prefix]);
    while !level.is_empty() {
        if level.len() + found.len() > NAMES_FORESEEN_MAX {
            return None;
        }
        let mut reading = Vec::new();
        for name in &level {
            reading.push(whole_directory(connection, at(root, name)));
        }
        let listed = try_join_all(reading).await.ok()?;
        let mut next = Vec::new();
        for (directory, names) in level.iter().zip(listed) {
            for Name { name, attributes } in names.unwrap_or_default() {
                let is_own = directory.is_empty() && RESERVED.contains(&name.as_str());
                let name = below(directory, &name);
                let Some(key) = Key::new(name.as_str()).ok().filter(|_| !is_own) else { continue };
                match Kind::of(&attributes) {
                    Kind::Directory if name.split('/').count() < COMPONENTS_MAX => next.push(name),
                    Kind::Directory => {}
                    Kind::File => found.push((key, attributes.size?)),
                    Kind::Link | Kind::Other | Kind::Unknown => return None,
                }
            }
        }
        level = next;
    }
    (found.len() <= NAMES_FORESEEN_MAX).then_some(found)
}
