//! What an object store answers, as errors of ours: of which kind it is, and what can be done.
//!
//! Servers say more in their words than in their status: codes that differ between wrong
//! credentials, a clock that is wrong and a right that is missing are looked for in the text; then
//! the status counts. What this crate has found out itself is a [`Refusal`] among the causes.
//!
//! Rule: `Unavailable` (try again later) is what may be better later without anybody's doing. A
//! request that the server takes for wrong, or a server that is none, is `Invalid`.

use crate::service::Service;
use object_store::Error as Answer;
use onefold_types::{Error, ErrorKind};
use std::fmt;

/// Of what a server says so much is shown.
const SHOWN_MAX_CHARS: usize = 300;

/// Codes in answers, what kind of error each is, and what the user can do: `{...}` is what the
/// service calls it.
const CODES: [(&str, ErrorKind, &str); 32] = [
    // Where machines ask for the credentials of their role.
    ("169.254.169.254", ErrorKind::NotPermitted, NO_CREDENTIALS),
    ("metadata.google.internal", ErrorKind::NotPermitted, NO_CREDENTIALS),
    (NO_BUCKET[0], ErrorKind::NoStore, MISSING),
    (NO_BUCKET[1], ErrorKind::NoStore, MISSING),
    ("InvalidAccessKeyId", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    // What versitygw says.
    ("XAdminUserNotFound", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("SignatureDoesNotMatch", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("InvalidToken", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("ExpiredToken", ErrorKind::NotPermitted, "the credentials have expired: get new ones"),
    ("RequestTimeTooSkewed", ErrorKind::Unavailable, CLOCK),
    // What Azure says of that, with a code that means all that may be wrong with a key.
    ("Request date header too old", ErrorKind::Unavailable, CLOCK),
    ("<Code>AuthenticationFailed</Code>", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    // What is said where tokens are given out: by Google, by Google and Microsoft, by Microsoft.
    ("invalid_grant", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("invalid_client", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("AADSTS", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("PermanentRedirect", ErrorKind::Invalid, WRONG_REGION),
    ("AuthorizationHeaderMalformed", ErrorKind::Invalid, WRONG_REGION),
    ("QuotaExceeded", ErrorKind::NoSpace, "the server gives no more room"),
    ("StorageFull", ErrorKind::NoSpace, "the server has no more room"),
    // What is said with the status of a wrong request, and is none.
    ("<Code>RequestTimeout</Code>", ErrorKind::Unavailable, NOT_NOW),
    // The server was started anew: what was begun has to be begun again.
    ("<Code>NoSuchUpload</Code>", ErrorKind::Unavailable, NOT_NOW),
    ("<Code>BadDigest</Code>", ErrorKind::Unavailable, GARBLED),
    ("<Code>IncompleteBody</Code>", ErrorKind::Unavailable, GARBLED),
    ("<Code>XAmzContentSHA256Mismatch</Code>", ErrorKind::Unavailable, GARBLED),
    ("Got invalid list response", ErrorKind::Invalid, NO_SERVER),
    // What the client says of a server, or a proxy before it, that takes no ranges.
    (
        "Received non-partial response",
        ErrorKind::Invalid,
        "whole objects are given where parts of them are asked for: a store needs a server that \
         speaks {language}, and a way to it, that knows ranges",
    ),
    // What it says of an answer to a put, or to a get.
    ("Unable to extract metadata from headers", ErrorKind::Invalid, NO_SERVER),
    ("Header missing from response", ErrorKind::Invalid, NO_SERVER),
    ("InvalidBucketName", ErrorKind::Invalid, NO_NAME),
    ("<Code>InvalidResourceName</Code>", ErrorKind::Invalid, NO_NAME),
    ("HTTP header is required for Put", ErrorKind::Invalid, NO_CHECKSUM),
    // Of one object of several that were to be deleted; the status is that of a success.
    ("(code: AccessDenied)", ErrorKind::NotPermitted, NOT_PERMITTED),
];

/// What servers say of a bucket that is not there, with the status of an object that is not.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", NO_CONTAINER];
/// What Azure says.
pub const NO_CONTAINER: &str = "ContainerNotFound";

/// What can be done about a bucket that is not there.
pub const MISSING: &str = "there is no such bucket: make it, or name another one";
const NO_NAME: &str = "that is no name of a bucket: most servers want 3 to 63 lower-case letters, \
                       digits and hyphens";
const NO_CHECKSUM: &str = "the bucket locks what is put into it, and takes nothing without a \
                           checksum: add '?checksum=sha256' to the store's name, or \
                           '&checksum=sha256' behind another option";
const CLOCK: &str = "this machine's clock and the server's differ too much: set them right";
/// What can be done where nobody gives any.
pub const NO_CREDENTIALS: &str =
    "no credentials are given, and this machine has none of its own: {how allowed}";
const WRONG_CREDENTIALS: &str = "the server does not accept the credentials: see {credentials}";
const WRONG_REGION: &str = "the bucket is elsewhere: give its region, as in '?region=eu-central-1'";
const NOT_NOW: &str = "the server does not give it now";
const GARBLED: &str = "it did not arrive as it was sent";
const NOT_PERMITTED: &str = "the server does not permit it with these credentials: see \
                             {credentials}, and what they may do";
const WRONG_REQUEST: &str = "the server takes the request for a wrong one: see {settings}";
/// What answers there.
pub const NO_SERVER: &str = "what answers there is no server of buckets that speaks {language}: \
                             see the endpoint";

/// What connections say that are never made, and what can be done.
const CONNECTIONS: [(&str, &str); 2] = [
    (
        "invalid peer certificate",
        "the server's certificate is not one that this machine trusts for that name: give the \
         name that is in it, or add its authority to the system's certificates",
    ),
    ("InvalidContentType", "the server does not speak TLS there: give the endpoint as 'http://'"),
];

/// What can be done about a connection that is never made.
pub fn of_connection(said: &str) -> Option<&'static str> {
    let found = CONNECTIONS.iter().find(|(text, _)| said.contains(text));
    found.map(|(_, advice)| *advice)
}

/// Something that this crate has found out itself, among the causes of an answer.
#[derive(Debug)]
pub struct Refusal {
    kind: ErrorKind,
    said: String,
}

impl Refusal {
    /// Of a kind, with a sentence that says what to do.
    pub fn new(kind: ErrorKind, said: impl Into<String>) -> Self {
        Self { kind, said: said.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::Generic { store: "network", source: Box::new(refusal) }
    }
}

/// What this crate has found out, if that is the cause.
fn refusal_in(answer: &Answer) -> Option<&Refusal> {
    let mut cause = std::error::Error::source(answer);
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref() {
            return Some(refusal);
        }
        cause = error.source();
    }
    None
}

/// Whether asking again is of no use, because this crate has found out why.
pub fn is_refusal(answer: &Answer) -> bool {
    refusal_in(answer).is_some()
}

/// Whether an answer says that there is no such object, in a bucket that there is.
pub fn is_absence(answer: &Answer) -> bool {
    let is_said = |said: &str| NO_BUCKET.iter().any(|code| said.contains(code));
    matches!(answer, Answer::NotFound { .. }) && !is_said(&chain(answer))
}

/// An advice in the words of a service.
pub fn advised(service: Service, advice: &str) -> String {
    advice
        .replace(MISSING, service.missing())
        .replace("{how allowed}", service.how_allowed())
        .replace("{credentials}", service.credentials())
        .replace("{settings}", service.settings())
        .replace("{language}", service.language())
}

/// An answer of a service as an error; `what` was tried.
pub fn failed(service: Service, what: &str, answer: &Answer) -> Error {
    if let Some(Refusal { kind, said }) = refusal_in(answer) {
        return Error::new(*kind, format!("{what}: {}", shown(said)));
    }
    let said = chain(answer);
    let (kind, advice) = match CODES.iter().find(|(code, ..)| said.contains(code)) {
        Some((_, kind, advice)) => (*kind, Some(*advice)),
        None => of_status(answer, &said),
    };
    let said = shown(message_in(service, &said).unwrap_or(&said));
    Error::new(
        kind,
        match advice {
            Some(advice) => format!("{what}: {} ({said})", advised(service, advice)),
            None => format!("{what}: {said}"),
        },
    )
}

/// Of what our own server says, the sentence.
fn message_in(service: Service, said: &str) -> Option<&str> {
    let (_, message) = said.split_once("<Message>").filter(|_| service == Service::Onefold)?;
    message.split_once("</Message>").map(|(message, _)| message)
}

/// Whether a name is said to be taken by the very object that was put.
pub fn is_same_object(answer: &Answer) -> bool {
    chain(answer).contains("<Code>SameObject</Code>")
}

/// What the status says where no code does.
fn of_status(answer: &Answer, said: &str) -> (ErrorKind, Option<&'static str>) {
    let kind = kind_of(answer);
    match (kind, status_in(said)) {
        (ErrorKind::NotPermitted, _) | (_, Some(401 | 403)) => {
            (ErrorKind::NotPermitted, Some(NOT_PERMITTED))
        }
        (ErrorKind::Unavailable, Some(404 | 405)) => (ErrorKind::Invalid, Some(NO_SERVER)),
        (ErrorKind::Unavailable, Some(408 | 409 | 425 | 429)) => (kind, Some(NOT_NOW)),
        (ErrorKind::Unavailable, Some(400..=499)) => (ErrorKind::Invalid, Some(WRONG_REQUEST)),
        (ErrorKind::Unavailable, _) => (kind, Some(NOT_NOW)),
        _ => (kind, None),
    }
}

/// The status that the client speaks of.
fn status_in(said: &str) -> Option<u16> {
    let (_, rest) = said.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn kind_of(answer: &Answer) -> ErrorKind {
    match answer {
        Answer::NotFound { .. } => ErrorKind::NotFound,
        Answer::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        Answer::PermissionDenied { .. } | Answer::Unauthenticated { .. } => ErrorKind::NotPermitted,
        Answer::InvalidPath { .. } | Answer::UnknownConfigurationKey { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}

/// The answer and its causes, each once.
fn chain(answer: &Answer) -> String {
    let mut said = answer.to_string();
    let mut cause = std::error::Error::source(answer);
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}

/// What a server says is not ours: one line of bounded length, with nothing that a terminal obeys.
pub fn shown(said: &str) -> String {
    let plain = said.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut text: String = plain.take(SHOWN_MAX_CHARS).collect();
    if said.chars().count() > SHOWN_MAX_CHARS {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Answer {
        Answer::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn answers_have_kinds_and_advice() {
        for (text, kind, word) in [
            ("<Code>NoSuchBucket</Code>", ErrorKind::NoStore, "make it"),
            ("<Code>SignatureDoesNotMatch</Code>", ErrorKind::NotPermitted, "credentials"),
            ("<Code>RequestTimeTooSkewed</Code>", ErrorKind::Unavailable, "clock"),
            ("status code: 400 Bad Request: ", ErrorKind::Invalid, "'path-style'"),
            ("status code: 405 Method Not Allowed: ", ErrorKind::Invalid, "no server of buckets"),
            ("status code: 404 Not Found: ", ErrorKind::Invalid, "no server of buckets"),
            ("status code: 403 Forbidden: ", ErrorKind::NotPermitted, "AWS_ACCESS_KEY_ID"),
            ("status code: 429 Too Many Requests: ", ErrorKind::Unavailable, "not give it now"),
            ("status code: 502 Bad Gateway: <html>", ErrorKind::Unavailable, "not give it now"),
            (
                "status code: 400 Bad Request: <Code>RequestTimeout</Code>",
                ErrorKind::Unavailable,
                "not give it now",
            ),
            (
                "GET http://169.254.169.254/latest",
                ErrorKind::NotPermitted,
                "no credentials are given",
            ),
            ("tcp connect error", ErrorKind::Unavailable, "does not give it now"),
        ] {
            let error = failed(Service::S3, "reading 'x'", &generic(text));
            assert_eq!(error.kind(), kind, "{text}");
            let said = error.to_string();
            assert!(said.starts_with("reading 'x': ") && said.contains(word), "{said}");
        }
    }

    /// What users are told is theirs: no variable of another service is in it.
    #[test]
    fn answers_of_google_and_azure_have_kinds_and_advice() {
        const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
        const KEY: &str = "AZURE_STORAGE_ACCOUNT_KEY";
        for (service, text, kind, word) in [
            (
                Service::Google,
                "GET http://metadata.google.internal/x",
                ErrorKind::NotPermitted,
                FILE,
            ),
            (Service::Google, "{\"error\":\"invalid_grant\"}", ErrorKind::NotPermitted, FILE),
            (Service::Google, "status code: 403 Forbidden: ", ErrorKind::NotPermitted, FILE),
            (Service::Google, "status code: 405 No: ", ErrorKind::Invalid, "Google Cloud"),
            (
                Service::Google,
                "Unable to extract metadata from headers: ETag Header missing from response",
                ErrorKind::Invalid,
                "Google Cloud",
            ),
            (Service::Azure, "GET http://169.254.169.254/x", ErrorKind::NotPermitted, KEY),
            (
                Service::Azure,
                "<Code>AuthenticationFailed</Code>",
                ErrorKind::NotPermitted,
                "does not accept",
            ),
            (
                Service::Azure,
                "<Code>AuthenticationFailed</Code> Request date header too old",
                ErrorKind::Unavailable,
                "clock",
            ),
            (Service::Azure, "AADSTS7000215: Invalid", ErrorKind::NotPermitted, KEY),
            (Service::Azure, "<Code>ContainerNotFound</Code>", ErrorKind::NoStore, "make it"),
            (Service::Azure, "<Code>InvalidResourceName</Code>", ErrorKind::Invalid, "no name"),
            (Service::Azure, "status code: 400 Bad: ", ErrorKind::Invalid, "the account"),
        ] {
            let error = failed(service, "reading 'x'", &generic(text));
            assert_eq!(error.kind(), kind, "{text}");
            let said = error.to_string();
            assert!(said.contains(word) && !said.contains("AWS_"), "{said}");
            assert!(!said.contains(['{', '}']) || text.contains('{'), "{said}");
        }
    }

    #[test]
    fn what_a_server_says_is_one_short_line() {
        let said = format!("a\u{1b}[2Jb\r\n{}", "x".repeat(2000));
        let error = failed(Service::S3, "reading", &generic(&said)).to_string();
        assert!(!error.contains(char::is_control), "{error}");
        assert!(error.chars().count() < 400, "{error}");
    }
}
