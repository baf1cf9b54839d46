//! Who asks, for what, and whether he may.

use crate::answers::Failure;
use crate::clients::{Client, Clients, Right};
use crate::limits::{
    BODIES_MIN_BYTES, CLIENT_BODIES_PART, CLIENT_REQUESTS_MAX, CLIENT_WRITERS_MAX, LISTINGS_MAX,
    OWN_MAX, Patience, WRITERS_MAX,
};
use crate::metrics::Metrics;
use crate::open_uploads::{Upload, Uploads};
use crate::served::Served;
use crate::taken::Taken;
use crate::usage::Usage;
use axum::http::{HeaderMap, StatusCode, header};
use lru::LruCache;
use onefold_format::layout::{self, Kind};
use onefold_store::Key;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of room for bodies.
pub const ROOM_UNIT_BYTES: u64 = 1024;
/// Where snapshots' data is.
const CONTAINERS: &str = layout::CONTAINERS;

/// What is behind `?`, decoded.
pub type Query = BTreeMap<String, String>;

/// What all requests share.
pub struct Shared {
    pub stores: BTreeMap<String, Arc<Served>>,
    pub clients: RwLock<Arc<Clients>>,
    pub usage: Arc<Usage>,
    pub uploads: Uploads,
    pub metrics: Metrics,
    pub patience: Patience,
    /// KiB of bodies that may be held whole.
    pub room: Arc<Semaphore>,
    /// Bodies that may pass through at once.
    pub writers: Arc<Semaphore>,
    /// Listings that may be made at once.
    pub listings: Semaphore,
    /// What clients have put lately, by client, store and key.
    pub own: Mutex<LruCache<(String, String, Key), ()>>,
    /// What each client may have of that.
    shares: Mutex<BTreeMap<String, Share>>,
    room_units: usize,
}

/// What one client may have, so that it leaves something to the others.
#[derive(Clone)]
pub struct Share {
    /// Requests under way.
    requests: Arc<Semaphore>,
    /// KiB of bodies that are held whole.
    pub room: Arc<Semaphore>,
    /// Bodies that pass through.
    pub writers: Arc<Semaphore>,
}

impl Shared {
    /// What is shared where nobody has asked yet; so much of bodies is held at once.
    pub fn new(
        stores: BTreeMap<String, Arc<Served>>,
        clients: Arc<Clients>,
        usage: Usage,
        bodies_bytes: u64,
        patience: Patience,
    ) -> Self {
        let room_units = (bodies_bytes.max(BODIES_MIN_BYTES) / ROOM_UNIT_BYTES) as usize;
        Self {
            stores,
            clients: RwLock::new(clients),
            usage: Arc::new(usage),
            uploads: Uploads::default(),
            metrics: Metrics::default(),
            patience,
            room: Arc::new(Semaphore::new(room_units)),
            writers: Arc::new(Semaphore::new(WRITERS_MAX)),
            listings: Semaphore::new(LISTINGS_MAX),
            own: Mutex::new(LruCache::new(OWN_MAX)),
            shares: Mutex::default(),
            room_units,
        }
    }

    /// What a client may have.
    pub fn share_of(&self, client: &str) -> Share {
        let mut all = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = all.entry(client.to_owned()).or_insert_with(|| Share {
            requests: Arc::new(Semaphore::new(CLIENT_REQUESTS_MAX)),
            room: Arc::new(Semaphore::new(self.room_units / CLIENT_BODIES_PART as usize)),
            writers: Arc::new(Semaphore::new(CLIENT_WRITERS_MAX)),
        });
        share.clone()
    }

    /// Counts a request of a client, until what is returned is dropped.
    pub fn one_more_of(&self, client: &str) -> Result<OwnedSemaphorePermit, Failure> {
        let said = format!("{CLIENT_REQUESTS_MAX} requests of '{client}' are under way");
        self.share_of(client).requests.try_acquire_owned().map_err(|_| Failure::busy(said))
    }
}

/// Who asks, for what store.
#[derive(Clone)]
pub struct Asking {
    pub shared: Arc<Shared>,
    pub served: Arc<Served>,
    pub name: String,
    pub client: Client,
}

/// Runs on a thread for what touches the disk.
pub async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        let said = "the server failed at it";
        Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", said))
    })
}

/// Refuses a client what it has no right to.
pub fn may(name: &str, client: &Client, right: Right) -> Result<(), Failure> {
    match client.has(right) {
        true => Ok(()),
        false => Err(Failure::denied(format!("the client '{name}' has no right '{right}'"))),
    }
}

impl Asking {
    /// Takes room for an object.
    pub fn take(&self, bytes: u64) -> Result<Taken, Failure> {
        let quota = self.client.quota_bytes;
        Taken::new(&self.served, &self.shared.usage, &self.name, quota, bytes)
    }

    /// An upload of this client.
    pub fn upload(&self, key: &Key, id: &str) -> Result<Arc<Upload>, Failure> {
        self.shared.uploads.find(&self.name, &self.served.name, key, id)
    }

    /// Refuses what the client has no right to.
    pub fn may(&self, right: Right) -> Result<(), Failure> {
        may(&self.name, &self.client, right)
    }

    /// Refuses a put that the client has no right to. A client without the right to collect puts
    /// objects of FORMAT's layout only, none by which others delete, hide or stop, and none of
    /// another client's session.
    pub fn may_put(&self, key: &Key) -> Result<(), Failure> {
        self.may(Right::Append)?;
        let is_own = |id| self.served.puts.is_own(&self.served.store, &self.name, id);
        let is_open = |kind: Kind| !kind.takes_collecting() && kind.of_session().is_none_or(is_own);
        match Kind::of(key.as_str()).is_some_and(is_open) {
            true => Ok(()),
            false => self.may(Right::Collect),
        }
    }

    /// Who may do anything else may see which names there are.
    pub fn may_list(&self) -> Result<(), Failure> {
        match self.client.has(Right::Append) || self.client.has(Right::Collect) {
            true => Ok(()),
            false => self.may(Right::Read),
        }
    }

    /// Who may only append reads what a backup needs that looks nothing up: no container but the
    /// ends of those it has put itself, for in containers is all data, and all names below what was
    /// saved.
    pub fn may_read(&self, key: &Key, headers: &HeaderMap) -> Result<(), Failure> {
        let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        let is_end = range.is_some_and(|range| range.starts_with("bytes=-"));
        let is_open = key.top() != CONTAINERS || (is_end && self.has_put(key));
        match (self.client.has(Right::Append), is_open, self.client.has(Right::Read)) {
            (true, true, _) | (_, _, true) => Ok(()),
            (true, false, false) => Err(Failure::denied(format!(
                "the client '{}' has no right 'read', and without it saves with 'backup --lookup \
                 none --force' only",
                self.name
            ))),
            (false, ..) => self.may(Right::Read),
        }
    }

    /// Notes that the client has the bytes of an object: it put them.
    pub fn note_own(&self, key: &Key) {
        if key.top() == CONTAINERS {
            let mut own = self.shared.own.lock().unwrap_or_else(PoisonError::into_inner);
            own.put((self.name.clone(), self.served.name.clone(), key.clone()), ());
        }
    }

    fn has_put(&self, key: &Key) -> bool {
        let mut own = self.shared.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.get(&(self.name.clone(), self.served.name.clone(), key.clone())).is_some()
    }
}
