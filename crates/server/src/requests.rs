//! What a request wants, and whether its client may.

use crate::answers::Failure;
use crate::clients::{Client, Clients, Right};
use crate::metrics::{Kind, Metrics};
use crate::served::Served;
use crate::uploads::Uploads;
use crate::usage::Usage;
use crate::{listing, objects, uploads};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lru::LruCache;
use onefold_format::layout;
use onefold_store::Key;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::form_urlencoded;

/// What is behind `?`, decoded.
pub type Query = BTreeMap<String, String>;

/// Below this name are no objects: what is asked for there is computed.
const ABOUT: &str = "tmp/about";
/// A body that stands still for so long is given up.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// Where snapshots' data is.
const CONTAINERS: &str = layout::CONTAINERS;

/// What only a collector decides: what is condemned, and what is gone for good.
const COLLECTORS: [&str; 5] =
    [layout::TOMBSTONES, layout::PLANS, layout::EPOCHS, layout::SWEEPS, layout::FINISHED];
/// Requests of one client that are under way at once; clients have some thirty.
pub const CLIENT_REQUESTS_MAX: usize = 128;
/// Containers of which it is known who put them: the newest ones.
pub const OWN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("not zero");
/// Listings that are made at once: each walks through a directory.
pub const LISTINGS_MAX: usize = 4;

/// What all requests share.
pub struct Shared {
    pub stores: BTreeMap<String, Arc<Served>>,
    pub clients: RwLock<Arc<Clients>>,
    pub usage: Usage,
    pub uploads: Uploads,
    pub metrics: Metrics,
    /// KiB of bodies that may be held whole.
    pub room: Arc<Semaphore>,
    /// Bodies that may pass through at once.
    pub writers: Semaphore,
    /// Listings that may be made at once.
    pub listings: Semaphore,
    /// What clients have put lately, by client, store and key.
    pub own: Mutex<LruCache<(String, String, Key), ()>>,
    /// Requests that each client may have under way.
    pub under_way: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Shared {
    /// Room for what clients have put lately.
    pub fn no_own() -> Mutex<LruCache<(String, String, Key), ()>> {
        Mutex::new(LruCache::new(OWN_MAX))
    }

    fn one_more_of(&self, client: &str) -> Result<OwnedSemaphorePermit, Failure> {
        let mut all = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(client.to_owned());
        let own = own.or_insert_with(|| Arc::new(Semaphore::new(CLIENT_REQUESTS_MAX)));
        let said = format!("{CLIENT_REQUESTS_MAX} requests of '{client}' are under way");
        Arc::clone(own).try_acquire_owned().map_err(|_| Failure::busy(said))
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

/// Answers one request.
pub async fn answer(shared: Arc<Shared>, request: Request<Body>) -> Response {
    let clients = shared.clients.read().unwrap_or_else(PoisonError::into_inner).clone();
    let Some((name, client)) = who(&clients, request.headers()) else {
        shared.metrics.answered("", Kind::Other, StatusCode::UNAUTHORIZED.as_u16());
        let said = "no client has this token";
        return Failure::new(StatusCode::UNAUTHORIZED, "InvalidToken", said).into_response();
    };
    let kind = match *request.method() {
        Method::PUT | Method::POST => Kind::Put,
        Method::DELETE => Kind::Delete,
        _ if request.uri().query().is_some_and(|query| query.contains("list-type")) => Kind::List,
        Method::GET | Method::HEAD => Kind::Get,
        _ => Kind::Other,
    };
    let answered = match shared.one_more_of(name) {
        Ok(_under_way) => route(&shared, name, client, request).await,
        Err(failure) => Err(failure),
    };
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    shared.metrics.answered(name, kind, response.status().as_u16());
    response
}

fn who<'a>(clients: &'a Clients, headers: &HeaderMap) -> Option<(&'a str, &'a Client)> {
    let said = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = said.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| clients.by_token(token.trim()))?
}

async fn route(
    shared: &Arc<Shared>,
    name: &str,
    client: &Client,
    request: Request<Body>,
) -> Result<Response, Failure> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    if path == "metrics" {
        may(name, client, Right::Metrics)?;
        return counters(shared).await;
    }
    let (store, object) = path.split_once('/').unwrap_or((&path, ""));
    // What a client may not know of is not there.
    let served = shared.stores.get(store).filter(|_| client.knows(store)).ok_or_else(|| {
        let said = format!("no store '{store}' is served to '{name}'");
        Failure::new(StatusCode::NOT_FOUND, "NoSuchBucket", said)
    })?;
    let asking = Asking {
        shared: Arc::clone(shared),
        served: Arc::clone(served),
        name: name.to_owned(),
        client: client.clone(),
    };
    let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    let query: Query = query.into_owned().collect();
    let method = request.method().clone();
    match (&method, object) {
        (&Method::GET, "") if query.get("list-type").is_some_and(|kind| kind == "2") => {
            asking.may_list()?;
            let turn = shared.listings.acquire();
            let turn = tokio::time::timeout(IDLE_MAX, turn).await.ok().and_then(Result::ok);
            let _turn = turn.ok_or_else(|| Failure::busy("too many listings are being made"))?;
            on_thread(move || listing::page(&asking.served, &query)).await
        }
        (_, "") => Err(Failure::request("this server makes, lists and deletes no buckets")),
        (&Method::GET | &Method::HEAD, ABOUT) => objects::about(asking).await,
        (method, object) => {
            let key = Key::new(object)?;
            on_object(asking, method, key, &query, request).await
        }
    }
}

async fn on_object(
    asking: Asking,
    method: &Method,
    key: Key,
    query: &Query,
    request: Request<Body>,
) -> Result<Response, Failure> {
    let upload = query.get("uploadId");
    match (method, upload) {
        (&Method::GET | &Method::HEAD, None) => {
            asking.may_read(&key, request.headers())?;
            objects::read(asking, key, request.method().clone(), request.headers()).await
        }
        (&Method::PUT, None) => match asking.may_put(&key) {
            Ok(()) => objects::put(asking, key, request).await,
            Err(failure) => {
                objects::drain(request.into_body()).await;
                Err(failure)
            }
        },
        (&Method::DELETE, None) => {
            asking.may(Right::Collect)?;
            on_thread(move || Ok(asking.served.delete(&key)?)).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::POST, None) if query.contains_key("uploads") => {
            asking.may_put(&key)?;
            uploads::begin(asking, key).await
        }
        (&Method::PUT, Some(upload)) => {
            asking.may(Right::Append)?;
            let part = query.get("partNumber").and_then(|part| part.parse().ok());
            let part = part.ok_or_else(|| Failure::request("a part has a number"))?;
            uploads::part(asking, &key, upload, part, request).await
        }
        (&Method::POST, Some(upload)) => {
            asking.may(Right::Append)?;
            uploads::complete(asking, key, upload).await
        }
        (&Method::DELETE, Some(upload)) => {
            asking.may(Right::Append)?;
            uploads::give_up(&asking, &key, upload);
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(Failure::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "there is no such request",
        )),
    }
}

fn may(name: &str, client: &Client, right: Right) -> Result<(), Failure> {
    match client.has(right) {
        true => Ok(()),
        false => Err(Failure::denied(format!("the client '{name}' has no right '{right}'"))),
    }
}

impl Asking {
    fn may(&self, right: Right) -> Result<(), Failure> {
        may(&self.name, &self.client, right)
    }

    /// Who may only append decides nothing that makes others delete.
    fn may_put(&self, key: &Key) -> Result<(), Failure> {
        self.may(Right::Append)?;
        match key.as_str().split('/').any(|part| COLLECTORS.contains(&part)) {
            true => self.may(Right::Collect),
            false => Ok(()),
        }
    }

    fn may_list(&self) -> Result<(), Failure> {
        match self.client.has(Right::Append) || self.client.has(Right::Collect) {
            true => Ok(()),
            false => self.may(Right::Read),
        }
    }

    /// Who may only append reads what a backup needs that looks nothing up: no container but the
    /// ends of those it has put itself, for in containers is all data, and all names below what was
    /// saved.
    fn may_read(&self, key: &Key, headers: &HeaderMap) -> Result<(), Failure> {
        let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        let is_end = range.is_some_and(|range| range.starts_with("bytes=-"));
        let is_open = key.top() != CONTAINERS || (is_end && self.has_put(key));
        match self.client.has(Right::Append) && is_open {
            true => Ok(()),
            false => self.may(Right::Read),
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

async fn counters(shared: &Arc<Shared>) -> Result<Response, Failure> {
    let shared = Arc::clone(shared);
    let text = on_thread(move || {
        let mut free = Vec::new();
        for served in shared.stores.values() {
            free.extend(served.free_bytes()?.map(|bytes| (served.name.as_str(), bytes)));
        }
        Ok(shared.metrics.text(shared.usage.all(), free)?)
    });
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text.await?).into_response())
}
