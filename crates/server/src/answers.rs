//! Errors as answers: a status, a code that clients know, and a sentence.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onefold_types::{Error, ErrorKind};
use std::fmt;

/// Objects never change, so all of them can have the same.
pub const ETAG: &str = "\"0\"";
/// When they were changed; nobody asks.
pub const MODIFIED: &str = "1970-01-01T00:00:00.000Z";
/// The same as headers have it.
pub const MODIFIED_IN_HEADERS: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// A request that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    pub status: StatusCode,
    code: &'static str,
    said: String,
}

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, said: impl Into<String>) -> Self {
        Self { status, code, said: said.into() }
    }

    /// The request itself is wrong.
    pub fn request(said: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidRequest", said)
    }

    /// The client may not.
    pub fn denied(said: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "AccessDenied", said)
    }

    /// There is a limit, and it is reached.
    pub fn quota(said: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "QuotaExceeded", said)
    }

    /// The name is taken, by the same object or by another one.
    pub fn taken(is_same: bool) -> Self {
        let said = if is_same { "the same object is there" } else { "another object is there" };
        let code = if is_same { "SameObject" } else { "PreconditionFailed" };
        Self::new(StatusCode::PRECONDITION_FAILED, code, said)
    }

    /// It may go well later.
    pub fn busy(said: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "SlowDown", said)
    }

    /// A failure with its text replaced.
    pub fn said_as(mut self, replaced: impl FnOnce(String) -> String) -> Self {
        self.said = replaced(self.said);
        self
    }

    /// Part of the body did not arrive.
    pub fn incomplete(said: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "IncompleteBody", said)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, code) = match error.kind() {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "NoSuchKey"),
            ErrorKind::AlreadyExists => (StatusCode::PRECONDITION_FAILED, "PreconditionFailed"),
            ErrorKind::LimitExceeded => (StatusCode::BAD_REQUEST, "EntityTooLarge"),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "InvalidRequest"),
            ErrorKind::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, "StorageFull"),
            ErrorKind::NotPermitted | ErrorKind::ReadOnly => {
                (StatusCode::FORBIDDEN, "AccessDenied")
            }
            ErrorKind::Unavailable | ErrorKind::Exhausted => {
                (StatusCode::SERVICE_UNAVAILABLE, "SlowDown")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { status, code, said } = self;
        let said = escaped(&said);
        let body = format!("<Error><Code>{code}</Code><Message>{said}</Message></Error>");
        let mut response = (status, xml(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let asked = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, asked);
            // Who has no token holds no connection.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// A body in XML.
pub fn xml(body: String) -> Response {
    let declared = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
    ([(header::CONTENT_TYPE, "application/xml")], Body::from(declared)).into_response()
}

/// Text as it stands in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
