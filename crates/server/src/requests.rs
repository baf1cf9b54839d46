//! What a request wants, and where that is done.

use crate::answers::Failure;
use crate::asking::{Asking, Query, Shared, may, on_thread};
use crate::bodies::drain;
use crate::clients::{Client, Clients, Right};
use crate::metrics::Kind;
use crate::{listing, objects, telling, uploads};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onefold_store::Key;
use std::sync::{Arc, PoisonError};
use url::form_urlencoded;

/// Below this name are no objects: what is asked for there is computed.
const ABOUT: &str = "tmp/about";
/// And below this one.
const NOTICES: &str = "tmp/notices/";

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
    // Where stores lie on this machine is nothing to clients.
    let hidden = |failure: Failure| {
        failure.said_as(|said| shared.stores.values().fold(said, |said, it| it.hidden_in(said)))
    };
    let response = answered.unwrap_or_else(|failure| hidden(failure).into_response());
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
    if path == "metrics" && request.method() == Method::GET {
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
            let turn =
                tokio::time::timeout(shared.patience.idle, turn).await.ok().and_then(Result::ok);
            let _turn = turn.ok_or_else(|| Failure::busy("too many listings are being made"))?;
            on_thread(move || listing::page(&asking.served, &query)).await
        }
        (_, "") => Err(Failure::request("this server makes, lists and deletes no buckets")),
        (&Method::GET | &Method::HEAD, ABOUT) => objects::about(asking).await,
        (_, object) if object.starts_with(NOTICES) => {
            telling::answer(asking, object.trim_start_matches(NOTICES), request).await
        }
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
                drain(request.into_body(), asking.shared.patience).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{LISTINGS_MAX, OWN_MAX, Patience};
    use crate::served::{Rules, Served};
    use crate::usage::Usage;
    use onefold_store::Blobs as _;
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// A store with one container, and a client with these rights; its token.
    fn serving(rights: Vec<Right>) -> (tempfile::TempDir, Arc<Shared>, String) {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        std::fs::create_dir(&directory).unwrap();
        let served = Served::open(&directory, Rules::default(), Duration::ZERO).unwrap();
        served.store.put(&container(0), b"bytes").unwrap();
        let mut clients = Clients::default();
        let token = clients.add("a", rights, None, None).unwrap();
        let patience = Patience { idle: Duration::from_millis(200), ..Patience::USUAL };
        let stores = BTreeMap::from([("store".to_owned(), Arc::new(served))]);
        let usage = Usage::read(place.path().join("used")).unwrap();
        let shared = Shared::new(stores, Arc::new(clients), usage, 0, patience);
        (place, Arc::new(shared), token)
    }

    fn container(number: usize) -> Key {
        Key::new(format!("containers/00/{number}")).unwrap()
    }

    async fn get(shared: &Arc<Shared>, token: &str, path: &str, range: &str) -> StatusCode {
        let request = Request::builder()
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::RANGE, range)
            .body(Body::empty())
            .unwrap();
        answer(Arc::clone(shared), request).await.status()
    }

    #[tokio::test]
    async fn no_more_listings_are_made_at_once_than_may_be() {
        let (_place, shared, token) = serving(vec![Right::Read]);
        let list = || get(&shared, &token, "/store?list-type=2", "");
        let most = u32::try_from(LISTINGS_MAX).unwrap();
        let others = shared.listings.acquire_many(most - 1).await.unwrap();
        assert_eq!(list().await, StatusCode::OK);
        let last = shared.listings.acquire().await.unwrap();
        assert_eq!(list().await, StatusCode::SERVICE_UNAVAILABLE);
        drop((others, last));
        assert_eq!(list().await, StatusCode::OK);
    }

    #[tokio::test]
    async fn who_may_append_reads_the_ends_of_its_newest_containers_and_no_others() {
        let (_place, shared, token) = serving(vec![Right::Append]);
        let end = || get(&shared, &token, "/store/containers/00/0", "bytes=-2");
        assert_eq!(end().await, StatusCode::FORBIDDEN);
        let clients = shared.clients.read().unwrap().clone();
        let (name, client) = clients.by_token(&token).unwrap();
        let asking = Asking {
            shared: Arc::clone(&shared),
            served: Arc::clone(&shared.stores["store"]),
            name: name.to_owned(),
            client: client.clone(),
        };
        // The oldest one that is known still.
        (0..OWN_MAX.get()).for_each(|number| asking.note_own(&container(number)));
        assert_eq!(shared.own.lock().unwrap().len(), OWN_MAX.get());
        let first = shared.own.lock().unwrap().peek_lru().unwrap().0.2.clone();
        assert_eq!(first, container(0));
        assert_eq!(end().await, StatusCode::PARTIAL_CONTENT);
        let whole = get(&shared, &token, "/store/containers/00/0", "bytes=0-1").await;
        assert_eq!(whole, StatusCode::FORBIDDEN);
        // It was asked for just now; once all of the others are newer, one more puts it out.
        (1..=OWN_MAX.get()).for_each(|number| asking.note_own(&container(number)));
        assert_eq!(end().await, StatusCode::FORBIDDEN);
    }

    async fn put(shared: &Arc<Shared>, token: &str, name: &str) -> StatusCode {
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("/store/{name}"))
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::IF_NONE_MATCH, "*")
            .header(header::CONTENT_LENGTH, 1)
            .body(Body::from("x"))
            .unwrap();
        answer(Arc::clone(shared), request).await.status()
    }

    #[test]
    fn r150_each_kind_is_put_with_its_right_and_nothing_else_is() {
        tokio::runtime::Runtime::new().unwrap().block_on(put_each_kind());
    }

    async fn put_each_kind() {
        let ids = ["11".repeat(16), "22".repeat(16), "33".repeat(16)];
        let [own, others, nobodys] = &ids;
        let open = [
            format!("sessions/{own}/announced"),
            format!("sessions/{own}/ready-1"),
            format!("outcomes/{own}"),
            format!("copies/outcomes/{own}"),
            format!("containers/11/{own}"),
            format!("metadata/{own}"),
            format!("index/{own}"),
            format!("marks/{own}.{own}"),
            format!("fates/{own}"),
            format!("changes/{own}.1"),
            format!("damage/{own}"),
            format!("doubts/{own}"),
        ];
        let closed = [
            "config".to_owned(),
            "config.copy".to_owned(),
            format!("keys/{own}"),
            format!("keys/{own}.copy"),
            "generations/2".to_owned(),
            "copies/generations/2".to_owned(),
            format!("tombstones/{own}"),
            format!("finals/{own}.1"),
            format!("checkpoints/{own}"),
            format!("plans/{own}"),
            "epochs/1".to_owned(),
            "sweeps/1".to_owned(),
            "finished/1".to_owned(),
            format!("sessions/{others}/ready-1"),
            format!("outcomes/{others}"),
            format!("outcomes/{nobodys}"),
            format!("containers/22/{own}"),
            "containers".to_owned(),
            "metadata".to_owned(),
            "anything".to_owned(),
        ];
        for (rights, appends, collects) in [
            (vec![Right::Read, Right::Metrics], false, false),
            (vec![Right::Append], true, false),
            (vec![Right::Read, Right::Append], true, false),
            (vec![Right::Append, Right::Collect], true, true),
        ] {
            let (_place, shared, token) = serving(rights);
            let served = &shared.stores["store"];
            let announced = Key::new(format!("sessions/{others}/announced")).unwrap();
            served.put(&announced, "other", |store| store.put(&announced, b"x")).unwrap();
            for (names, may) in [(&open[..], appends), (&closed[..], collects)] {
                for name in names {
                    let status = put(&shared, &token, name).await;
                    let is_refused = status == StatusCode::FORBIDDEN;
                    assert_eq!(is_refused, !may, "{name}: {status}");
                }
            }
        }
    }
}
