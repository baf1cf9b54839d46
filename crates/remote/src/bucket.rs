//! A store in a bucket of an object store.
//!
//! An object of the store is an object of the bucket, by the same name behind the store's prefix.
//! What the bucket has beside them is foreign: names that no key has are neither shown nor touched.
//!
//! # How the ports are kept
//!
//! | port | request |
//! | --- | --- |
//! | `put`, `decide` | one put that must not replace anything (`If-None-Match: *`; Google's `x-goog-if-generation-match: 0`) |
//! | `put_pieces` | the same, or an upload in parts for what is longer than one: there the name is looked at first, so that of two that upload the same name at once the later one wins; all such names are made of random numbers |
//! | `get`, `get_range`, `get_tail` | one get, of a range if need be; Azure is asked first how long an object is whose tail is wanted |
//! | `size` | one head; also where a range does not exist, to tell why |
//! | `list` | pages of names below `PREFIX/`, of more than one several at once |
//! | `foresee` | what will be read, all at once and once |
//! | `settle` | nothing: what a bucket acknowledges is durable |
//!
//! A put whose answer was lost may have succeeded. If it is refused later because the name is
//! taken, what is there decides: the same bytes are its own.
//!
//! # Invariants
//! Nothing here replaces an object. A name is a directory only because other names begin with it:
//! unlike in a directory it could also be an object, and nobody makes one.
//!
//! # Concurrency
//! Any number of threads; each waits for its own requests. Nothing may be called from within an
//! asynchronous task.

pub mod about;
pub mod capabilities;
mod claiming;
mod deciding;
mod foreseen;
mod listing;
mod notices;
mod parts;
mod upload;
mod waiting;

pub use claiming::PREFIX_PARTS_MAX;
pub use notices::{PAGES_MAX, ServedNotices};
pub use parts::{PART_NAMES, PARTS_MAX};
pub use upload::PART_BYTES;

use crate::conditional::{self, Proof};
use crate::failure::{failed, is_refusal, is_same_object};
use crate::foreseen::Foreseen;
use crate::location::BucketLocation;
use crate::patience::Patience;
use crate::read_ahead::PartialRanges;
use crate::requests::Attempts;
use crate::service::Service;
use crate::settings::{self, Surroundings, Way};
use crate::stopping::{Effect, Stopping};
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{
    Error as Answer, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutOptions, PutPayload,
};
use onefold_engine::Interrupt;
use onefold_store::{Asked, Blobs, DecidedBy, Key, Listed, OBJECT_MAX_BYTES, Store};
use onefold_types::{Error, ErrorKind, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use waiting::Waiting;

/// How often a put is made anew after all of its repetitions.
const PUT_ROUNDS: u32 = 2;
/// How long it waits before that.
const PAUSE: Duration = Duration::from_secs(1);
/// Containers on their way at once: each waits for two answers.
const PUTS_AT_ONCE: usize = 4;
/// Threads that wait for the network.
const WORKERS: usize = 2;

/// A store in a bucket; see the module.
pub struct BucketStore {
    runtime: Runtime,
    objects: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    name: String,
    service: Service,
    is_read_only: bool,
    decided_by: DecidedBy,
    waiting: Waiting,
    foreseen: Foreseen<ObjectMeta>,
    way: Option<Way>,
    /// Whether its server has said that clients can tell each other something through it.
    has_notices: AtomicBool,
}

/// What became of a put that must not replace anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It is there now.
    Made,
    /// The name was taken.
    Taken,
}

impl BucketStore {
    /// The store at a place. Nothing is asked yet; whoever writes calls [`BucketStore::prove`] or,
    /// for a new one, [`BucketStore::claim`] first.
    ///
    /// # Errors
    ///
    /// Those of the settings.
    pub fn connect(
        location: &BucketLocation,
        around: &Surroundings,
        patience: Patience,
    ) -> Result<Self> {
        let (objects, way) = settings::client(location, around, patience)?;
        let store = Self::over(objects, &location.to_string(), &location.prefix)?;
        let (waiting, service) = (Waiting::new(patience), location.service);
        Ok(Self { waiting, service, way: Some(way), ..store })
    }

    /// How it is reached; none for one over another object store.
    #[must_use]
    pub fn way(&self) -> Option<&Way> {
        self.way.as_ref()
    }

    /// The same, which ends what it waits for once this is requested
    /// ([`crate::stopping::STOP_MAX`]).
    #[must_use]
    pub fn stopped_by(mut self, interrupt: Interrupt) -> Self {
        self.waiting.stopping = Stopping::by(interrupt);
        self
    }

    /// The same, for reading only: nothing is written, whatever the server would allow.
    #[must_use]
    pub fn reading_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// The same, whose names somebody else decides, or nobody: it does not decide any.
    #[must_use]
    pub fn deciding_nothing(self) -> Self {
        Self { decided_by: DecidedBy::Nobody, ..self }
    }

    /// The store on any object store; for tests.
    ///
    /// # Errors
    ///
    /// There are no threads to be had.
    pub fn over(objects: Arc<dyn ObjectStore>, name: &str, prefix: &str) -> Result<Self> {
        let prefix = ObjectPath::parse(prefix)
            .map_err(|error| Error::invalid(format!("the prefix '{prefix}': {error}")))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("onefold-network")
            .enable_all()
            .build()
            .map_err(|cause| Error::io("starting threads for the network", cause))?;
        let (name, waiting) = (name.to_owned(), Waiting::new(Patience::USUAL));
        let (is_read_only, foreseen, way) = (false, Foreseen::default(), None);
        let service = Service::default();
        let decided_by = DecidedBy::Itself;
        Ok(Self {
            runtime,
            objects,
            prefix,
            name,
            service,
            is_read_only,
            decided_by,
            waiting,
            foreseen,
            way,
            has_notices: AtomicBool::new(false),
        })
    }

    /// Whose bucket it is.
    pub(crate) fn service(&self) -> Service {
        self.service
    }

    /// Sees for itself that the bucket never replaces an object; of Onefold's own server, that it
    /// is one and that its client may put something ([`about`]).
    ///
    /// # Errors
    ///
    /// `Invalid` if it does, and those of the server.
    pub fn prove(&self, proof: Proof) -> Result<()> {
        match self.about()? {
            Some(about) => self.refuse_unless_appending(&about),
            None => conditional::prove(self, proof),
        }
    }

    /// A put that must not replace anything, of an object beside the store's own.
    pub(crate) fn put_at(&self, name: &str, bytes: Vec<u8>) -> Result<Put> {
        self.put_new(
            &self.prefix.clone().join(conditional::DIRECTORY).join(name),
            Bytes::from(bytes),
        )
    }

    /// The same of bytes that nobody else puts: if they are there, somebody on the way has repeated
    /// the request.
    pub(crate) fn put_own_at(&self, name: &str, bytes: Vec<u8>) -> Result<Put> {
        let path = self.prefix.clone().join(conditional::DIRECTORY).join(name);
        let bytes = Bytes::from(bytes);
        match self.put_new(&path, bytes.clone())? {
            Put::Taken if self.holds(&path, &bytes)? => Ok(Put::Made),
            put => Ok(put),
        }
    }

    /// Deletes an object beside the store's own.
    pub(crate) fn delete_at(&self, name: &str) -> Result<()> {
        self.remove(&self.prefix.clone().join(conditional::DIRECTORY).join(name))
    }

    fn path(&self, key: &Key) -> ObjectPath {
        key.as_str().split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn failed(&self, what: &str, answer: &Answer) -> Error {
        failed(self.service, &format!("{what} in {}", self.name), answer)
    }

    fn absent(&self, path: &ObjectPath) -> Error {
        let answer = Answer::NotFound { path: path.to_string(), source: "there is none".into() };
        self.failed(&format!("reading '{path}'"), &answer)
    }

    fn refuse_writing(&self) -> Result<()> {
        match self.is_read_only {
            true => Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} was opened for reading only", self.name),
            )),
            false => Ok(()),
        }
    }

    fn put_new(&self, path: &ObjectPath, bytes: Bytes) -> Result<Put> {
        self.refuse_writing()?;
        let attempts = Attempts::default();
        let mut round = 1;
        loop {
            let mut options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            options.extensions.insert(attempts.clone());
            let payload = PutPayload::from_bytes(bytes.clone());
            let put = self.objects.put_opts(path, payload, options);
            match self.wait_for(Effect::Write, bytes.len() as u64, put) {
                Ok(_) => return Ok(Put::Made),
                // An earlier attempt may have made it.
                Err(answer @ Answer::AlreadyExists { .. }) => {
                    let is_own = (attempts.made() > 1 || round > 1)
                        && (is_same_object(&answer) || self.holds(path, &bytes)?);
                    return Ok(if is_own { Put::Made } else { Put::Taken });
                }
                Err(answer @ Answer::Generic { .. })
                    if round < PUT_ROUNDS && !attempts.is_refused() && !is_refusal(&answer) =>
                {
                    std::thread::sleep(PAUSE * round);
                    round += 1;
                }
                Err(answer) => return Err(self.failed(&format!("writing '{path}'"), &answer)),
            }
        }
    }

    fn holds(&self, path: &ObjectPath, bytes: &Bytes) -> Result<bool> {
        match self.whole(path) {
            Ok(found) => Ok(found == *bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a whole object.
    fn whole(&self, path: &ObjectPath) -> Result<Vec<u8>> {
        self.whole_told(path).map(|(bytes, _)| bytes)
    }

    /// The same, with what the server calls it in this state.
    fn whole_told(&self, path: &ObjectPath) -> Result<(Vec<u8>, Option<String>)> {
        let what = || format!("reading '{path}'");
        let found = self
            .begin(path, None, &Attempts::default())
            .map_err(|answer| self.failed(&what(), &answer))?;
        if found.meta.size > OBJECT_MAX_BYTES as u64 {
            return Err(too_large(path, found.meta.size));
        }
        let mut bytes = vec![0; found.meta.size as usize];
        let e_tag = found.meta.e_tag.clone();
        self.collect(path, found, &mut bytes)?;
        Ok((bytes, e_tag))
    }

    fn begin(
        &self,
        path: &ObjectPath,
        range: Option<GetRange>,
        attempts: &Attempts,
    ) -> object_store::Result<GetResult> {
        let mut options = GetOptions { range, ..GetOptions::default() };
        options.extensions.insert(attempts.clone());
        self.wait(0, get(&*self.objects, path, options))
    }

    /// Fills the buffer with what arrives, which must be as long.
    fn collect(&self, path: &ObjectPath, found: GetResult, buffer: &mut [u8]) -> Result<()> {
        let wanted = buffer.len();
        let mut arriving = found.into_stream();
        let mut filled = 0;
        let arrived = self.wait(wanted as u64, async {
            while let Some(piece) = arriving.next().await.transpose()? {
                if let Some(room) = buffer.get_mut(filled..filled + piece.len()) {
                    room.copy_from_slice(&piece);
                }
                filled += piece.len();
            }
            Ok(())
        });
        arrived.map_err(|answer| self.failed(&format!("reading '{path}'"), &answer))?;
        match filled == wanted {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "reading '{path}' in {}: {filled} bytes arrived instead of {wanted}",
                    self.name
                ),
            )),
        }
    }

    fn size_at(&self, path: &ObjectPath) -> Result<u64> {
        let head = self.wait(0, self.objects.head(path));
        let head = head.map_err(|answer| self.failed(&format!("looking for '{path}'"), &answer))?;
        Ok(head.size)
    }

    /// Begins to read a range that is not empty, as far as the object goes.
    fn range(&self, path: &ObjectPath, range: Range<u64>) -> Result<GetResult> {
        let attempts = Attempts::default();
        match self.begin(path, Some(GetRange::Bounded(range.clone())), &attempts) {
            Ok(found) => Ok(found),
            Err(answer @ Answer::Generic { .. }) if attempts.is_about_request() => {
                Err(self.why_no_range(path, Some(range.end), &answer))
            }
            Err(answer) => Err(self.failed(&format!("reading '{path}'"), &answer)),
        }
    }

    /// Why a range could not be read: the object ends before it, or something else failed.
    fn why_no_range(&self, path: &ObjectPath, end: Option<u64>, answer: &Answer) -> Error {
        match self.size_at(path) {
            Ok(size) if end.is_none_or(|end| end > size) => {
                Error::damaged(format!("'{path}' in {} has only {size} bytes", self.name))
            }
            Ok(_) => self.failed(&format!("reading '{path}'"), answer),
            Err(error) => error,
        }
    }

    fn remove(&self, path: &ObjectPath) -> Result<()> {
        self.refuse_writing()?;
        match self.wait_for(Effect::Write, 0, self.objects.delete(path)) {
            Ok(()) | Err(Answer::NotFound { .. }) => Ok(()),
            Err(answer) => Err(self.failed(&format!("deleting '{path}'"), &answer)),
        }
    }
}

/// Begins to read. Azure gives no tails: it is told where they begin.
async fn get(
    objects: &dyn ObjectStore,
    path: &ObjectPath,
    options: GetOptions,
) -> object_store::Result<GetResult> {
    let tail = match options.range {
        Some(GetRange::Suffix(length)) => Some((length, options.clone())),
        _ => None,
    };
    match (objects.get_opts(path, options).await, tail) {
        (Err(Answer::NotSupported { .. }), Some((length, options))) => {
            let size = objects.head(path).await?.size;
            let range = Some(GetRange::Bounded(size.saturating_sub(length)..size));
            objects.get_opts(path, GetOptions { range, ..options }).await
        }
        (got, _) => got,
    }
}

fn taken(path: &ObjectPath) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("'{path}' exists already"))
}

fn too_large(path: &ObjectPath, bytes: u64) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        format!("'{path}' has {bytes} bytes; objects of at most {OBJECT_MAX_BYTES} are read whole"),
    )
}

impl fmt::Debug for BucketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Blobs for BucketStore {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.foreseen.forget_about(key);
        let path = self.path(key);
        if bytes.len() > OBJECT_MAX_BYTES {
            return Err(too_large(&path, bytes.len() as u64));
        }
        match self.put_new(&path, Bytes::copy_from_slice(bytes))? {
            Put::Made => Ok(()),
            Put::Taken => Err(taken(&path)),
        }
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let (mut bytes, mut piece) = (Vec::new(), Vec::new());
        loop {
            piece.clear();
            let more = next(&mut piece)?;
            bytes.extend_from_slice(&piece);
            if bytes.len() > PART_BYTES {
                self.refuse_writing()?;
                self.foreseen.forget_about(key);
                return self.upload(&self.path(key), bytes, more.then_some(next));
            }
            if !more {
                return self.put(key, &bytes);
            }
        }
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        match self.foreseen_object(key, None) {
            Some(Some(found)) => Ok(found.bytes.into()),
            Some(None) => Err(self.absent(&self.path(key))),
            None => self.whole(&self.path(key)),
        }
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let path = self.path(key);
        let end = offset.checked_add(buffer.len() as u64);
        let nothing = Answer::NotImplemented {
            operation: "an empty range".to_owned(),
            implementer: self.name.clone(),
        };
        let Some(end) = end.filter(|end| *end > offset) else {
            // There is no such request: only whether the object is long enough can be told.
            return match self.size_at(&path)? {
                size if end.is_some_and(|end| end <= size) => Ok(()),
                _ => Err(self.why_no_range(&path, end, &nothing)),
            };
        };
        let found = self.range(&path, offset..end)?;
        if found.range != (offset..end) {
            return Err(Error::damaged(format!(
                "'{path}' in {} has only {} bytes",
                self.name, found.meta.size
            )));
        }
        self.collect(&path, found, buffer)
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let path = self.path(key);
        match self.foreseen_object(key, Some(length_bytes)) {
            Some(Some(found)) => return Ok((found.size, found.bytes.into())),
            Some(None) => return Err(self.absent(&path)),
            None => {}
        }
        if length_bytes == 0 {
            return Ok((self.size_at(&path)?, Vec::new()));
        }
        let attempts = Attempts::default();
        let suffix = GetRange::Suffix(length_bytes as u64);
        let found = match self.begin(&path, Some(suffix), &attempts) {
            Ok(found) => found,
            // An empty object has no range: some servers refuse it, some give the whole of nothing.
            Err(answer @ Answer::Generic { .. })
                if attempts.is_about_request() || attempts.is_whole() =>
            {
                return match self.size_at(&path)? {
                    0 => Ok((0, Vec::new())),
                    _ => Err(self.failed(&format!("reading '{path}'"), &answer)),
                };
            }
            Err(answer) => return Err(self.failed(&format!("reading '{path}'"), &answer)),
        };
        let (size, length) = (found.meta.size, found.range.end - found.range.start);
        if length > OBJECT_MAX_BYTES as u64 {
            return Err(too_large(&path, size));
        }
        let mut bytes = vec![0; length as usize];
        self.collect(&path, found, &mut bytes)?;
        Ok((size, bytes))
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.size_at(&self.path(key))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.show(prefix, each)
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.show(prefix, &mut |listed| each(listed.key.as_str()))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.foreseen.forget_about(key);
        self.remove(&self.path(key))
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(self.about()?.and_then(|about| about.free_bytes))
    }

    fn puts_at_once(&self) -> usize {
        PUTS_AT_ONCE
    }

    fn foresee(&self, next: Vec<Asked>) -> u64 {
        self.begin_foreseen(next)
    }

    fn forget_foreseen(&self, number: u64) {
        self.foreseen.forget(number);
    }
}

impl PartialRanges for BucketStore {
    fn get_up_to(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let path = self.path(key);
        let end = offset.saturating_add(buffer.len() as u64);
        let found = self.range(&path, offset..end)?;
        let length = usize::try_from(found.range.end - found.range.start).unwrap_or(usize::MAX);
        let beyond =
            || Error::damaged(format!("'{path}': a range of {length} bytes was not asked"));
        let buffer = buffer.get_mut(..length).filter(|_| found.range.start == offset);
        self.collect(&path, found, buffer.ok_or_else(beyond)?)?;
        Ok(length)
    }
}

impl Store for BucketStore {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }
}
