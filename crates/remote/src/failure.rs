//! What an object store answers, as errors of ours: of which kind it is, and what can be done.
//!
//! Servers say more in their words than in their status: codes that differ between wrong
//! credentials, a clock that is wrong and a right that is missing are looked for in the text.

use object_store::Error as Answer;
use onefold_types::{Error, ErrorKind};

/// Of what a server says so much is shown.
const SHOWN_MAX_CHARS: usize = 300;

/// Codes in answers, what kind of error each is, and what the user can do.
const CODES: [(&str, ErrorKind, &str); 16] = [
    // Where Amazon's machines ask for the credentials of their role.
    ("169.254.169.254", ErrorKind::NotPermitted, NO_CREDENTIALS),
    ("NoSuchBucket", ErrorKind::NoStore, "there is no such bucket: make it, or name another one"),
    ("InvalidAccessKeyId", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    // What versitygw says.
    ("XAdminUserNotFound", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("SignatureDoesNotMatch", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("InvalidToken", ErrorKind::NotPermitted, WRONG_CREDENTIALS),
    ("ExpiredToken", ErrorKind::NotPermitted, "the credentials have expired: get new ones"),
    (
        "RequestTimeTooSkewed",
        ErrorKind::Unavailable,
        "this machine's clock and the server's differ too much: set them right",
    ),
    ("PermanentRedirect", ErrorKind::Invalid, WRONG_REGION),
    ("AuthorizationHeaderMalformed", ErrorKind::Invalid, WRONG_REGION),
    ("QuotaExceeded", ErrorKind::NoSpace, "the server gives no more room"),
    ("StorageFull", ErrorKind::NoSpace, "the server has no more room"),
    ("507 Insufficient Storage", ErrorKind::NoSpace, "the server has no more room"),
    (
        "invalid peer certificate",
        ErrorKind::Unavailable,
        "the server's certificate is not one that this machine trusts for that name: give the \
         name that is in it, or add its authority to the system's certificates",
    ),
    // What the client says of a server, or a proxy before it, that takes no ranges.
    (
        "Received non-partial response",
        ErrorKind::Invalid,
        "whole objects are given where parts of them are asked for: a store needs a server, and a \
         way to it, that knows ranges",
    ),
    (
        "InvalidBucketName",
        ErrorKind::Invalid,
        "that is no name of a bucket: most servers want 3 to 63 lower-case letters, digits and \
         hyphens",
    ),
];

const NO_CREDENTIALS: &str = "no credentials are given, and this machine has none of its own: set \
                              AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile";
const WRONG_CREDENTIALS: &str = "the server does not accept the credentials: see \
                                 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or the profile";
const WRONG_REGION: &str = "the bucket is elsewhere: give its region, as in '?region=eu-central-1'";

/// An answer as an error; `what` was tried.
pub fn failed(what: &str, answer: &Answer) -> Error {
    let said = chain(answer);
    let (kind, advice) = match CODES.iter().find(|(code, ..)| said.contains(code)) {
        Some((_, kind, advice)) => (*kind, Some(*advice)),
        None => (kind_of(answer), None),
    };
    let advice = advice.or(match kind {
        ErrorKind::NotPermitted => Some("the server does not permit it with these credentials"),
        ErrorKind::Unavailable => Some("the server does not give it now"),
        _ => None,
    });
    let said = shown(&said);
    Error::new(
        kind,
        match advice {
            Some(advice) => format!("{what}: {advice} ({said})"),
            None => format!("{what}: {said}"),
        },
    )
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
            ("invalid peer certificate: UnknownIssuer", ErrorKind::Unavailable, "certificate"),
            (
                "GET http://169.254.169.254/latest",
                ErrorKind::NotPermitted,
                "no credentials are given",
            ),
            ("tcp connect error", ErrorKind::Unavailable, "does not give it now"),
        ] {
            let error = failed("reading 'x'", &generic(text));
            assert_eq!(error.kind(), kind, "{text}");
            let said = error.to_string();
            assert!(said.starts_with("reading 'x': ") && said.contains(word), "{said}");
        }
    }

    #[test]
    fn what_a_server_says_is_one_short_line() {
        let said = format!("a\u{1b}[2Jb\r\n{}", "x".repeat(2000));
        let error = failed("reading", &generic(&said)).to_string();
        assert!(!error.contains(char::is_control), "{error}");
        assert!(error.chars().count() < 400, "{error}");
    }
}
