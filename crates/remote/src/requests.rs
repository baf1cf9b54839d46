//! Requests as they go out: each has a time limit, and a put knows how often it was made.
//!
//! The client of `object_store` repeats what can be repeated. A put that must not replace anything
//! is different: if its answer was lost, the next one is refused because of the first. So it
//! carries [`Attempts`], which is counted up here for every request that goes out.
//!
//! The time limit grows with the length of what is sent, and covers a request until its answer
//! begins; what takes long to arrive is bounded by [`super::bucket`].
//!
//! A page of a listing is read here, whole, before it counts as answered: one that breaks off is
//! asked for again like any other request, with the same patience, by the same token. A listing of
//! many pages so goes on where it was, in whatever order a server gives its names.
//!
//! What no repetition makes better is answered here, as a [`Refusal`]: that the bucket is in
//! another region, that what answers is no server of buckets, that its disk is full, or that the
//! machine has no credentials of its own: where it has some, it can be asked for them.
//!
//! # Invariants
//! Requests, and what they prove their sender by, go to the host that was asked for and to no
//! other: no redirect is followed. What goes to this machine, or asks it for its role, does not go
//! by a proxy, whatever the environment says: it would be sent there in the open.

use crate::failure::{self, NO_SERVER, Refusal};
use crate::service::Service;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, HeaderMap};
use onefold_types::ErrorKind;
use reqwest::{Certificate, Client, redirect};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use url::Url;

/// A line slower than this is taken for one that stands still.
pub const SLOWEST_BYTES_PER_SECOND: u64 = 32 << 10;

/// The longest page of a listing: a thousand names, however they are spelt.
pub const PAGE_MAX_BYTES: usize = 16 << 20;

/// So often the machine is asked for its credentials in vain, and then not again and again.
pub const ROLE_TRIES: u32 = 3;

/// How long the transfer of so many bytes may take.
pub fn transfer_max(bytes: u64) -> Duration {
    Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
}

/// How often a request went out, and what the last answer was.
#[derive(Clone, Debug, Default)]
pub struct Attempts(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    made: AtomicU32,
    status: AtomicU32,
}

impl Attempts {
    /// How often it went out.
    pub fn made(&self) -> u32 {
        self.0.made.load(Ordering::SeqCst)
    }

    /// Whether it was about the request and not about the server that it failed: it was refused, or
    /// never went out over a network.
    pub fn is_about_request(&self) -> bool {
        self.made() == 0 || self.is_refused()
    }

    /// Whether the last answer was a whole object, also where a part was asked for.
    pub fn is_whole(&self) -> bool {
        self.0.status.load(Ordering::SeqCst) == 200
    }

    /// Whether the last answer was that the request itself is wrong: repeating it is of no use.
    pub fn is_refused(&self) -> bool {
        // 408 and 429 mean that it comes at a bad moment.
        let status = self.0.status.load(Ordering::SeqCst);
        (400..500).contains(&status) && !matches!(status, 408 | 429)
    }
}

/// Makes clients that observe their requests.
#[derive(Debug)]
pub struct ObservedConnector {
    answer_max: Duration,
    server: Server,
    trusted: Option<Vec<Certificate>>,
}

/// Where requests go that are about objects; others are about credentials.
#[derive(Clone, Debug)]
pub struct Server {
    /// What it speaks.
    pub service: Service,
    /// What its name ends with.
    pub host: String,
    /// The region that is asked for, where there are any.
    pub region: Option<String>,
    /// Whether it is spoken to in the open.
    pub is_open: bool,
    /// Whether it is this machine.
    pub is_here: bool,
}

impl ObservedConnector {
    /// Whose answers begin within so long.
    pub fn new(answer_max: Duration, server: Server) -> Self {
        Self { answer_max, server, trusted: None }
    }

    /// A connector that trusts servers with one of these certificates, and no others.
    pub fn trusting(self, trusted: Vec<Certificate>) -> Self {
        Self { trusted: Some(trusted), ..self }
    }

    fn client(&self, options: &ClientOptions) -> reqwest::Result<Client> {
        let said = |key: ClientConfigKey| options.get_config_value(&key);
        let is_open = said(ClientConfigKey::AllowHttp).is_some_and(|said| said == "true");
        let mut builder = Client::builder()
            .user_agent(concat!("onefold/", env!("CARGO_PKG_VERSION")))
            .default_headers(options.get_default_headers().cloned().unwrap_or_default())
            .redirect(redirect::Policy::none())
            .https_only(!is_open)
            .http1_only()
            // Lengths are those of objects.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        let connect = said(ClientConfigKey::ConnectTimeout);
        if let Some(limit) = connect.and_then(|said| humantime::parse_duration(&said).ok()) {
            builder = builder.connect_timeout(limit);
        }
        // In the open though the server is not: it is the machine that is asked for its role.
        if self.server.is_here || (is_open && !self.server.is_open) {
            builder = builder.no_proxy();
        }
        if let Some(trusted) = &self.trusted {
            builder = builder.tls_certs_only(trusted.clone());
        }
        builder.build()
    }
}

impl HttpConnector for ObservedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = HttpClient::new(self.client(options).map_err(|error| {
            object_store::Error::Generic { store: "network", source: Box::new(error) }
        })?);
        let (answer_max, server) = (self.answer_max, self.server.clone());
        let role_tries = AtomicU32::default();
        Ok(HttpClient::new(Observed { client, answer_max, server, role_tries }))
    }
}

#[derive(Debug)]
struct Observed {
    client: HttpClient,
    answer_max: Duration,
    server: Server,
    role_tries: AtomicU32,
}

impl Observed {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let attempts = request.extensions().get::<Attempts>().cloned();
        if let Some(attempts) = &attempts {
            attempts.0.made.fetch_add(1, Ordering::SeqCst);
            attempts.0.status.store(0, Ordering::SeqCst);
        }
        let query = request.uri().query().unwrap_or_default();
        let is_listing = query.split('&').any(|pair| matches!(pair, "list-type=2" | "comp=list"));
        let host = request.uri().host().map(str::to_ascii_lowercase);
        let is_about_objects = host.is_some_and(|host| host.ends_with(&self.server.host));
        // Only this machine is asked for anything else in the open.
        let is_for_role = !is_about_objects && request.uri().scheme_str() == Some("http");
        let limit = self.answer_max + transfer_max(request.body().content_length() as u64);
        let answer = match tokio::time::timeout(limit, self.client.execute(request)).await {
            Ok(Err(error)) if is_for_role => return Err(self.no_role(error)),
            Ok(answer) => answer.map_err(hopeless)?,
            Err(_) => return Err(late(limit)),
        };
        if let Some(attempts) = &attempts {
            attempts.0.status.store(answer.status().as_u16().into(), Ordering::SeqCst);
        }
        match is_about_objects {
            true => self.refuse(&answer, is_listing)?,
            false => refuse_moved(&answer, "who gives out credentials", "where they come from")?,
        }
        match is_listing && answer.status().is_success() {
            true => self.page(answer).await,
            false => Ok(answer),
        }
    }

    /// Fails for what no repetition makes better, and of which the client would not tell enough.
    fn refuse(&self, answer: &HttpResponse, is_listing: bool) -> Result<(), HttpError> {
        let status = answer.status().as_u16();
        let header = |name: &str| header(answer.headers(), name);
        let Server { service, region: asked, .. } = &self.server;
        let elsewhere = header("x-amz-bucket-region").zip(asked.as_deref());
        let elsewhere = elsewhere.filter(|(region, asked)| region != asked);
        if let Some((region, asked)) = elsewhere.filter(|_| is_moved(status) || status == 400) {
            return Err(refusal(format!(
                "the bucket is in the region '{region}', and '{asked}' was asked for: give \
                 '?region={region}' (HTTP {status})"
            )));
        }
        let advice = match (service, asked) {
            (Service::Onefold, _) => "the server's name and port",
            (_, Some(_)) => "the bucket's region ('?region=') and the endpoint",
            (_, None) => "the endpoint",
        };
        refuse_moved(answer, "the server", advice)?;
        if status == 507 {
            let full = Refusal::new(ErrorKind::NoSpace, format!("{} (HTTP 507)", service.full()));
            return Err(HttpError::new(HttpErrorKind::Decode, full));
        }
        if status == 501 {
            return Err(refusal(format!(
                "the server says that it cannot do this: a store needs one that speaks {}, and \
                 obeys {} (HTTP {status})",
                service.language(),
                service.condition()
            )));
        }
        if matches!(status, 404 | 409 | 412) {
            refuse_other_meaning(status, header("x-ms-error-code"))?;
        }
        let is_html = header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
        // A busy proxy may say so in words for people, and a stored object is whatever it is.
        let is_final = matches!(status, 400..=407 | 410..=428) || (is_listing && status < 300);
        match is_html && is_final {
            true => Err(self.no_server(&format!("HTTP {status}, a page for people"))),
            false => Ok(()),
        }
    }

    /// Reads a page of a listing; of what breaks off the client asks again.
    async fn page(&self, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (parts, body) = answer.into_parts();
        let (mut bytes, mut arriving) = (BytesMut::new(), body.bytes_stream());
        loop {
            let piece = match tokio::time::timeout(self.answer_max, arriving.next()).await {
                Ok(piece) => piece,
                Err(_) => return Err(late(self.answer_max)),
            };
            match piece {
                Some(Ok(piece)) => bytes.extend_from_slice(&piece),
                Some(Err(error)) => return Err(HttpError::new(HttpErrorKind::Interrupted, error)),
                None => break,
            }
            if bytes.len() > PAGE_MAX_BYTES {
                let why = format!("a page of a listing has more than {PAGE_MAX_BYTES} bytes");
                return Err(self.no_server(&why));
            }
        }
        match state_of(&bytes, self.server.service.page()) {
            Page::Whole => {}
            Page::CutOff => {
                let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "a listing is cut off");
                return Err(HttpError::new(HttpErrorKind::Interrupted, cut));
            }
            Page::Other => return Err(self.no_server("no listing is given")),
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(Bytes::from(bytes))))
    }

    fn no_role(&self, error: HttpError) -> HttpError {
        match self.role_tries.fetch_add(1, Ordering::SeqCst) + 1 < ROLE_TRIES {
            true => error,
            false => {
                let advice = failure::advised(self.server.service, failure::NO_CREDENTIALS);
                let refusal = Refusal::new(ErrorKind::NotPermitted, format!("{advice} ({error})"));
                HttpError::new(HttpErrorKind::Decode, refusal)
            }
        }
    }

    fn no_server(&self, why: &str) -> HttpError {
        refusal(format!("{} ({why})", failure::advised(self.server.service, NO_SERVER)))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn is_moved(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Fails for an answer that sends to another place: that is never asked.
fn refuse_moved(answer: &HttpResponse, who: &str, advice: &str) -> Result<(), HttpError> {
    let status = answer.status().as_u16();
    if !is_moved(status) {
        return Ok(());
    }
    // What else is in a place may be secret.
    let place = header(answer.headers(), "location").map(|place| match Url::parse(place) {
        Ok(url) => format!(", '{}'", url.origin().ascii_serialization()),
        Err(_) => ", on itself".to_owned(),
    });
    let place = place.unwrap_or_default();
    Err(refusal(format!(
        "{who} sends to another place{place}, which is not followed: see {advice} (HTTP {status})"
    )))
}

/// To the client a 404 means that there is no such object, and both others that there is one. Azure
/// says in a header what they mean, also where an answer has no body.
fn refuse_other_meaning(status: u16, code: Option<&str>) -> Result<(), HttpError> {
    let Some(code) = code else { return Ok(()) };
    let (kind, why) = match (status, code) {
        (404, failure::NO_CONTAINER) => (ErrorKind::NoStore, failure::MISSING),
        (404, _) | (_, "BlobAlreadyExists" | "ConditionNotMet" | "TargetConditionNotMet") => {
            return Ok(());
        }
        (_, "ContainerBeingDeleted") => (ErrorKind::NoStore, "the container is being deleted"),
        _ => (ErrorKind::Invalid, "the server does not allow it, whoever asks"),
    };
    let said = format!("{why} ({code}, HTTP {status})");
    Err(HttpError::new(HttpErrorKind::Decode, Refusal::new(kind, said)))
}

/// What arrived as a page of a listing.
enum Page {
    Whole,
    /// It has begun and does not end, or is an error after all.
    CutOff,
    Other,
}

/// The end of a connection may be all that a proxy has to say about a length, and to the client a
/// page for people is a listing without names.
fn state_of(page: &[u8], name: &[u8]) -> Page {
    let has = |part: &[u8]| page.windows(part.len()).any(|window| window == part);
    let ends = page.trim_ascii_end().strip_suffix(b">").is_some_and(|it| it.ends_with(name));
    match has(name) {
        true if ends => Page::Whole,
        false if !has(b"<Error>") => Page::Other,
        _ => Page::CutOff,
    }
}

fn late(limit: Duration) -> HttpError {
    let late = format!("there was no answer within {limit:.0?}");
    HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, late))
}

/// Of this kind errors are not asked about again.
fn refusal(said: String) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, Refusal::new(ErrorKind::Invalid, said))
}

/// A connection that fails for a reason that stays the same is not made again.
fn hopeless(error: HttpError) -> HttpError {
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(said) = cause {
        let text = said.to_string();
        if let Some(advice) = failure::of_connection(&text) {
            return refusal(format!("{advice} ({text})"));
        }
        cause = said.source();
    }
    error
}

#[async_trait]
impl HttpService for Observed {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.send(request).await
    }
}
