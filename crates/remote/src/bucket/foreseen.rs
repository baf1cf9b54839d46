//! What will be read, asked for beforehand (`crate::foreseen`): one request for each.

use super::{BucketStore, get, parts};
use crate::failure::is_absence;
use crate::foreseen::{
    Answered, Entry, Found, NAMES_FORESEEN_MAX, OBJECT_FORESEEN_MAX_BYTES, bytes_max,
};
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use onefold_store::{Asked, Key};
use std::sync::Arc;

impl BucketStore {
    /// Begins to ask for all of these.
    pub(super) fn begin_foreseen(&self, next: Vec<Asked>) -> u64 {
        // A server that does not answer is not asked for what nobody waits for.
        if self.is_in_trouble() {
            return 0;
        }
        let lists_in_parts = self.service.lists_in_parts();
        // More are not kept.
        let is_kept = |asked: &Asked| match asked {
            Asked::ManyNames(_, about) => *about <= NAMES_FORESEEN_MAX,
            _ => true,
        };
        let next = next.into_iter().filter(is_kept).collect();
        self.foreseen.begin(next, |asked| {
            let (objects, path) = (Arc::clone(&self.objects), self.path_of(asked));
            self.runtime.spawn(answer(objects, path, asked.clone(), lists_in_parts))
        })
    }

    fn path_of(&self, asked: &Asked) -> ObjectPath {
        match asked {
            Asked::Names(prefix) | Asked::ManyNames(prefix, _) => self.below(prefix),
            Asked::Object(key) | Asked::Long(key, _) | Asked::Tail(key, _) => self.path(key),
        }
    }

    fn arrived(&self, mut entry: Entry<ObjectMeta>) -> Option<Answered<ObjectMeta>> {
        let bytes = bytes_max(&entry.asked);
        self.wait(bytes, async { Ok(entry.arrive().await) }).ok().flatten()
    }

    /// The names below a directory, if they were foreseen.
    pub(super) fn foreseen_names(&self, prefix: &str) -> Option<Vec<ObjectMeta>> {
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
    objects: Arc<dyn ObjectStore>,
    path: ObjectPath,
    asked: Asked,
    lists_in_parts: bool,
) -> Option<Answered<ObjectMeta>> {
    let most = bytes_max(&asked);
    let range = match asked {
        Asked::Names(_) | Asked::ManyNames(..) => {
            let about = if let Asked::ManyNames(_, about) = asked { about } else { 0 };
            let all = parts::names(objects, path, lists_in_parts.then_some(about));
            return names(all).await.map(Answered::Names);
        }
        Asked::Object(_) | Asked::Long(..) => None,
        Asked::Tail(_, length) if length as u64 <= OBJECT_FORESEEN_MAX_BYTES => {
            Some(GetRange::Suffix(length as u64))
        }
        Asked::Tail(..) => return None,
    };
    let options = GetOptions { range, ..GetOptions::default() };
    let found = match get(&*objects, &path, options).await {
        Ok(found) => found,
        Err(answer) if is_absence(&answer) => return Some(Answered::Object(None)),
        Err(_) => return None,
    };
    let (size, length) = (found.meta.size, found.range.end.checked_sub(found.range.start)?);
    if length > most {
        return None;
    }
    let (mut bytes, mut arriving) = (BytesMut::new(), found.into_stream());
    while let Some(piece) = arriving.next().await {
        bytes.extend_from_slice(&piece.ok()?);
        if bytes.len() as u64 > length {
            return None;
        }
    }
    let is_whole = bytes.len() as u64 == length;
    is_whole.then(|| Answered::Object(Some(Found { size, bytes: bytes.freeze() })))
}

async fn names(
    mut arriving: BoxStream<'_, object_store::Result<ObjectMeta>>,
) -> Option<Vec<ObjectMeta>> {
    let mut names = Vec::new();
    while let Some(name) = arriving.next().await {
        if names.len() >= NAMES_FORESEEN_MAX {
            return None;
        }
        names.push(name.ok()?);
    }
    Some(names)
}
