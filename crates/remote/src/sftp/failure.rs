//! What ssh and SFTP servers say, as errors with advice.

use super::connection::Fault;
use crate::failure::shown;
use onefold_types::{Error, ErrorKind};
use russh_sftp::protocol::StatusCode;

/// What ssh says when there is no connection, what kind of error that is, and what the user can do.
/// All but those that are unavailable stay so, however often it is asked.
const SAID: [(&str, ErrorKind, &str); 9] = [
    (
        "Host key verification failed",
        ErrorKind::NotPermitted,
        "this machine does not know the server's key, or it has changed: log in once by hand with \
         ssh, and compare the key that is shown",
    ),
    (
        "Permission denied",
        ErrorKind::NotPermitted,
        "the server does not accept the login: set up a key that works without a question (ssh is \
         never asked for passwords), as in 'ssh-copy-id', or a key in an agent",
    ),
    (
        "Too many authentication failures",
        ErrorKind::NotPermitted,
        "the server does not accept the login: name the key in ~/.ssh/config (IdentityFile, \
         IdentitiesOnly)",
    ),
    ("subsystem request failed", ErrorKind::Invalid, "the server does not offer SFTP"),
    ("Name or service not known", ErrorKind::Invalid, "there is no machine of that name"),
    ("No such host is known", ErrorKind::Invalid, "there is no machine of that name"),
    ("Bad configuration option", ErrorKind::Invalid, "ssh's configuration is wrong"),
    ("terminating, ", ErrorKind::Invalid, "ssh's configuration is wrong"),
    ("not found", ErrorKind::Invalid, "the command that leads to the server is wrong"),
];

/// What ssh says when no server is there; who has met none yet is not to wait for it.
const NOBODY: [&str; 5] = [
    "Connection refused",
    "No route to host",
    "Network is unreachable",
    "timed out",
    "No such host",
];

/// Whether it is said that nobody is there, and not that somebody is busy.
pub fn is_nobody(error: &Error) -> bool {
    let said = error.to_string();
    NOBODY.iter().any(|text| said.contains(text))
}

/// No connection came about; `said` are the last lines that the program said.
pub fn no_connection(name: &str, why: &str, said: &[String]) -> Error {
    let last = said.last().map_or(why, String::as_str);
    let known = SAID.iter().find(|(text, ..)| said.iter().any(|line| line.contains(text)));
    let (kind, advice) = match known {
        Some((_, kind, advice)) => (*kind, *advice),
        None if said.is_empty() && why.contains("does not speak SFTP") => (
            ErrorKind::Unavailable,
            "what answers does not speak SFTP: a login there may print a text, or end at once",
        ),
        None => (
            ErrorKind::Unavailable,
            "the server cannot be reached now: see that it is on, and try 'ssh' by hand",
        ),
    };
    Error::new(kind, format!("reaching {name}: {advice} ({})", shown(last)))
}

/// A request failed; `what` was tried.
pub fn failed(what: &str, fault: Fault) -> Error {
    let (code, said) = match fault {
        Fault::Other(error) => return error.context(what),
        Fault::Lost(why) => {
            return Error::new(ErrorKind::Unavailable, format!("{what}: {}", shown(&why)));
        }
        Fault::Refused(code, said) => (code, said),
    };
    let (kind, advice) = match code {
        StatusCode::NoSuchFile => (ErrorKind::NotFound, "there is none"),
        StatusCode::PermissionDenied => {
            (ErrorKind::NotPermitted, "the server does not permit it to this login")
        }
        StatusCode::OpUnsupported => (ErrorKind::Invalid, "the server cannot do that"),
        _ => (ErrorKind::Io, "the server could not do it"),
    };
    Error::new(kind, format!("{what}: {advice} ({})", shown(&said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_has_a_kind_and_advice() {
        for (said, kind, word) in [
            ("Host key verification failed.", ErrorKind::NotPermitted, "by hand"),
            ("me@h: Permission denied (publickey).", ErrorKind::NotPermitted, "ssh-copy-id"),
            ("ssh: connect to host h port 22: Connection refused", ErrorKind::Unavailable, "now"),
            (
                "ssh: Could not resolve hostname h: Name or service not known",
                ErrorKind::Invalid,
                "no machine",
            ),
            ("subsystem request failed on channel 0", ErrorKind::Invalid, "not offer SFTP"),
        ] {
            let lines = ["a banner".to_owned(), said.to_owned()];
            let error = no_connection("sftp://h/x", "it does not speak SFTP", &lines);
            assert_eq!(error.kind(), kind, "{error}");
            let text = error.to_string();
            assert!(text.contains(word) && text.contains(said), "{text}");
        }
        let silent = no_connection("sftp://h/x", "it does not speak SFTP", &[]);
        assert!(silent.to_string().contains("may print a text"), "{silent}");
    }
}
