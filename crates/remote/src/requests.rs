//! Requests as they go out: each has a time limit, and a put knows how often it was made.
//!
//! The client of `object_store` repeats what can be repeated. A put that must not replace anything
//! is different: if its answer was lost, the next one is refused because of the first. So it
//! carries [`Attempts`], which is counted up here for every request that goes out.
//!
//! The time limit grows with the length of what is sent, and covers a request until its answer
//! begins; what takes long to arrive is bounded by [`super::bucket`].

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A line slower than this is taken for one that stands still.
pub const SLOWEST_BYTES_PER_SECOND: u64 = 32 << 10;

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
    connector: ReqwestConnector,
    answer_max: Duration,
}

impl ObservedConnector {
    /// Whose answers begin within so long.
    pub fn new(answer_max: Duration) -> Self {
        Self { connector: ReqwestConnector::default(), answer_max }
    }
}

impl HttpConnector for ObservedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.connector.connect(options)?;
        Ok(HttpClient::new(Observed { client, answer_max: self.answer_max }))
    }
}

#[derive(Debug)]
struct Observed {
    client: HttpClient,
    answer_max: Duration,
}

impl Observed {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let attempts = request.extensions().get::<Attempts>().cloned();
        if let Some(attempts) = &attempts {
            attempts.0.made.fetch_add(1, Ordering::SeqCst);
            attempts.0.status.store(0, Ordering::SeqCst);
        }
        let limit = self.answer_max + transfer_max(request.body().content_length() as u64);
        let answer = match tokio::time::timeout(limit, self.client.execute(request)).await {
            Ok(answer) => answer?,
            Err(_) => {
                let late = io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("there was no answer within {limit:.0?}"),
                );
                return Err(HttpError::new(HttpErrorKind::Timeout, late));
            }
        };
        if let Some(attempts) = &attempts {
            attempts.0.status.store(answer.status().as_u16().into(), Ordering::SeqCst);
        }
        Ok(answer)
    }
}

#[async_trait]
impl HttpService for Observed {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.send(request).await
    }
}
