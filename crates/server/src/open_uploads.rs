//! Uploads that are open, and those that were completed a moment ago.
//!
//! # Invariants
//! At most [`UPLOADS_MAX`] are open, [`CLIENT_UPLOADS_MAX`] of one client. Of those that are over,
//! however that came, at most [`CLIENT_UPLOADS_OVER_MAX`] of a client are known: one more puts the
//! oldest out. Whose upload it is stands in it: nobody adds to another client's.

use crate::answers::Failure;
use crate::limits::{CLIENT_UPLOADS_MAX, CLIENT_UPLOADS_OVER_MAX, UPLOADS_MAX};
use crate::pieces::Pieces;
use axum::http::StatusCode;
use onefold_store::Key;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// All that are open.
#[derive(Default)]
pub struct Uploads(Mutex<HashMap<String, Arc<Upload>>>);

/// One of them.
pub struct Upload {
    pub client: String,
    pub store: String,
    pub key: Key,
    pub arriving: tokio::sync::Mutex<Arriving>,
}

/// What has arrived of it.
pub struct Arriving {
    pub state: State,
    pub parts: u32,
    /// Of the last part.
    pub hash: Option<blake3::Hash>,
    pub changed: Instant,
}

/// Whether more may come.
pub enum State {
    Open(Pieces),
    Over(Result<(), Failure>),
}

impl Uploads {
    /// Adds one of a client that `begin` begins, if there may be one more.
    pub fn add(
        &self,
        id: String,
        client: &str,
        begin: impl FnOnce() -> Upload,
    ) -> Result<(), Failure> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.values().filter(|upload| upload.is_open());
        let (own, others): (Vec<_>, Vec<_>) = open.partition(|upload| upload.client == client);
        if own.len() >= CLIENT_UPLOADS_MAX {
            let said = format!("'{client}' has {CLIENT_UPLOADS_MAX} uploads open");
            return Err(Failure::busy(said));
        }
        if own.len() + others.len() >= UPLOADS_MAX {
            return Err(Failure::busy(format!("{UPLOADS_MAX} uploads are open")));
        }
        let over = all.iter().filter(|(_, upload)| upload.client == client && !upload.is_open());
        let mut over: Vec<_> = over.map(|(id, upload)| (upload.since(), id.clone())).collect();
        if over.len() >= CLIENT_UPLOADS_OVER_MAX {
            over.sort_unstable();
            let surplus = over.len() + 1 - CLIENT_UPLOADS_OVER_MAX;
            over.into_iter().take(surplus).for_each(|(_, id)| drop(all.remove(&id)));
        }
        all.insert(id, Arc::new(begin()));
        Ok(())
    }

    /// Forgets those that were over long ago.
    pub fn sweep(&self, pause: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, upload| upload.is_of_use(pause));
    }

    /// Ends those that are open.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// That of a client, by its number.
    pub fn find(
        &self,
        client: &str,
        store: &str,
        key: &Key,
        id: &str,
    ) -> Result<Arc<Upload>, Failure> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let whose = (client, store, key);
        let found = open.get(id).filter(|it| (&*it.client, &*it.store, &it.key) == whose);
        found.cloned().ok_or_else(|| {
            Failure::new(StatusCode::NOT_FOUND, "NoSuchUpload", "there is no such upload")
        })
    }

    /// Forgets one.
    pub fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Upload {
    /// One that is locked is in use.
    fn is_open(&self) -> bool {
        self.arriving.try_lock().map_or(true, |arriving| match &arriving.state {
            State::Open(pieces) => !pieces.is_over(),
            State::Over(_) => false,
        })
    }

    /// When something came of it last; of one that is in use, now.
    fn since(&self) -> Instant {
        self.arriving.try_lock().map_or_else(|_| Instant::now(), |arriving| arriving.changed)
    }

    fn is_of_use(&self, pause: Duration) -> bool {
        let is_young = |arriving: &Arriving| arriving.changed.elapsed() < pause;
        self.is_open() || self.arriving.try_lock().map_or(true, |arriving| is_young(&arriving))
    }
}
