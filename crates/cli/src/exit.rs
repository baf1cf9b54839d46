//! Exit codes: what a script may rely on (docs/CONFIG.md lists them).

use onefold_types::{Error, ErrorKind};
use std::process::ExitCode;

/// The exit code after an interruption.
pub const INTERRUPTED: u8 = 130;

/// How a command that ran to its end went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All was done.
    Complete,
    /// Something was done, but not everything; each item was reported.
    Partial,
    /// All was done, or something, but it could not be told.
    Unheard,
    /// The command ended in order, and its answer is bad: `check` found damage.
    Failed,
}

impl Outcome {
    /// Partial if there were problems with single items.
    #[must_use]
    pub fn with_problems(problems: u64) -> Self {
        match problems {
            0 => Self::Complete,
            _ => Self::Partial,
        }
    }

    /// The exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Failed => 1,
            Self::Partial | Self::Unheard => 3,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.code())
    }
}

/// The exit code of an error.
#[must_use]
pub fn code_of(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::NoStore => 10,
        ErrorKind::ReadOnly | ErrorKind::NotPermitted => 11,
        ErrorKind::WrongPassword => 12,
        ErrorKind::Fenced | ErrorKind::Unavailable => 13,
        ErrorKind::Interrupted => INTERRUPTED,
        _ => 1,
    }
}

/// The kind of an error, as JSON names it.
#[must_use]
pub fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "not-found",
        ErrorKind::AlreadyExists => "already-exists",
        ErrorKind::NoStore => "no-store",
        ErrorKind::NewerFormat => "newer-format",
        ErrorKind::WrongPassword => "wrong-password",
        ErrorKind::KeysChanged => "keys-changed",
        ErrorKind::Damaged => "damaged",
        ErrorKind::Tampered => "tampered",
        ErrorKind::NoSpace => "no-space",
        ErrorKind::ReadOnly => "read-only",
        ErrorKind::NotPermitted => "not-permitted",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Interrupted => "interrupted",
        ErrorKind::Fenced => "fenced",
        ErrorKind::Source => "source",
        ErrorKind::LimitExceeded => "limit-exceeded",
        ErrorKind::Bug => "bug",
        ErrorKind::Exhausted => "exhausted",
        ErrorKind::Io => "io",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
        let code = |kind| code_of(&Error::new(kind, ""));
        assert_eq!(code(ErrorKind::NoStore), 10);
        assert_eq!(code(ErrorKind::ReadOnly), 11);
        assert_eq!(code(ErrorKind::NotPermitted), 11);
        assert_eq!(code(ErrorKind::Fenced), 13);
        assert_eq!(code(ErrorKind::Unavailable), 13);
        assert_eq!(code(ErrorKind::WrongPassword), 12);
        assert_eq!(code(ErrorKind::Interrupted), 130);
        assert_eq!(code(ErrorKind::Damaged), 1);
        assert_eq!(code(ErrorKind::Exhausted), 1);
        assert_eq!(Outcome::with_problems(0).code(), 0);
        assert_eq!(Outcome::with_problems(2).code(), 3);
        assert_eq!(Outcome::Failed.code(), 1);
    }
}
