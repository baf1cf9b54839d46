//! The one error type of the system: what happened, where, and of which kind.
//!
//! The kind decides how a caller goes on (retry, heal, refuse) and which exit code the command line
//! returns; the message is a sentence a person can act on. Context is added from the inside out, so
//! a message reads from the outermost intent to the innermost cause.

use std::fmt;
use std::io;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure this is; see docs/CONFIG.md for the exit code of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A named object does not exist.
    NotFound,
    /// A name is taken already.
    AlreadyExists,
    /// There is no store at the given place.
    NoStore,
    /// The store, or an object in it, was written by a newer version.
    NewerFormat,
    /// No key slot opens with the password given.
    WrongPassword,
    /// The keys were rotated since this process opened the store: what it cannot open may be newer
    /// than its keys, so it is not taken for damaged.
    KeysChanged,
    /// Stored bytes are not what was written: a checksum, seal or structure does not hold.
    Damaged,
    /// What can be changed without the key speaks against what is known of the store.
    Tampered,
    /// The device has no room left.
    NoSpace,
    /// The store or target may not be written by anybody, or was opened so.
    ReadOnly,
    /// This user may not do it. It says nothing about what is stored there.
    NotPermitted,
    /// It cannot be had now, and may be had later: a device, a network or other processes stand in
    /// the way. It says nothing about what is stored there.
    Unavailable,
    /// The request makes no sense: bad argument, pattern, path or combination.
    Invalid,
    /// The user asked to stop.
    Interrupted,
    /// A collector fenced this session; it must start again (protocol, W7).
    Fenced,
    /// The source changed or vanished while it was read.
    Source,
    /// A bound of the system would be exceeded.
    LimitExceeded,
    /// The program contradicts itself: a defect of it, whatever the request and the store.
    Bug,
    /// The process, or the machine, has no more open files or no more memory to give. It says
    /// nothing about what was to be read: no caller may take that for damaged, lost or unreadable.
    Exhausted,
    /// Any other failure of the operating system.
    Io,
}

/// An error with its kind, its message and, where there is one, the operating system's cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    cause: Option<io::Error>,
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None }
    }

    /// An operating-system error met while doing `what`; the kind follows from the cause.
    pub fn io(what: impl Into<String>, cause: io::Error) -> Self {
        Self { kind: kind_of(&cause), message: what.into(), cause: Some(cause) }
    }

    /// Stored bytes that are not what was written.
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, what)
    }

    /// A request that makes no sense.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    /// Something that cannot be; made by [`invariant!`](macro@crate::invariant) and
    /// [`bug!`](macro@crate::bug), which know the file and the line.
    #[must_use]
    pub fn bug(what: &str, values: &[(&str, &dyn fmt::Debug)], file: &str, line: u32) -> Self {
        let values: Vec<String> =
            values.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
        let values = match values.as_slice() {
            [] => String::new(),
            values => format!(" ({})", values.join(", ")),
        };
        Self::new(
            ErrorKind::Bug,
            format!(
                "{what}{values}; this is a defect of the program ({file}:{line}), and it stopped \
                 before anything was promised: please report it"
            ),
        )
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operating system's code, if it has failed.
    #[must_use]
    pub fn os_code(&self) -> Option<i32> {
        let cause = std::error::Error::source(self)?.downcast_ref::<io::Error>()?;
        cause.raw_os_error()
    }

    /// Whether a disk is full, and not what a user may have of it.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        self.kind == ErrorKind::NoSpace && self.os_code() == Some(DEVICE_FULL)
    }

    /// The same error seen from one step further out.
    #[must_use]
    pub fn context(mut self, outer: impl fmt::Display) -> Self {
        self.message = format!("{outer}: {}", self.message);
        self
    }

    /// The same error under another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Whether what was asked for cannot be had from here: it is damaged, or not there, as after it
    /// was deleted. Where the difference decides, the kind is asked for.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.kind, ErrorKind::Damaged | ErrorKind::NotFound)
    }

    /// Whether it concerns more than the one item at which it was met, so that nobody goes on with
    /// the next.
    #[must_use]
    pub fn is_about_all(&self) -> bool {
        matches!(self.kind, ErrorKind::Exhausted | ErrorKind::Interrupted)
    }

    /// Whether this copy of something cannot be read here and now, so that another one is looked
    /// for. It does not say that it is lost.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        let is_in_the_way =
            matches!(self.kind, ErrorKind::Io | ErrorKind::NotPermitted | ErrorKind::Unavailable);
        is_in_the_way || self.is_lost()
    }

    /// Whether nothing may be written there: what would be written for convenience is left out.
    #[must_use]
    pub fn forbids_writing(&self) -> bool {
        matches!(self.kind, ErrorKind::ReadOnly | ErrorKind::NotPermitted)
    }

    /// Whether nothing may be written there, or there is no room for it.
    #[must_use]
    pub fn is_about_writing(&self) -> bool {
        self.forbids_writing() || self.kind == ErrorKind::NoSpace
    }
}

/// ENOSPC: the device is full.
const DEVICE_FULL: i32 = 28;
/// ENFILE: the machine has no open files to give.
const MACHINE_FILES: i32 = 23;
/// EMFILE: the process may open no more files.
const PROCESS_FILES: i32 = 24;

fn kind_of(cause: &io::Error) -> ErrorKind {
    match cause.kind() {
        _ if matches!(cause.raw_os_error(), Some(MACHINE_FILES | PROCESS_FILES)) => {
            ErrorKind::Exhausted
        }
        io::ErrorKind::OutOfMemory => ErrorKind::Exhausted,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        io::ErrorKind::PermissionDenied => ErrorKind::NotPermitted,
        io::ErrorKind::ResourceBusy
        | io::ErrorKind::WouldBlock
        | io::ErrorKind::TimedOut
        | io::ErrorKind::StaleNetworkFileHandle
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::NotConnected
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted => ErrorKind::Unavailable,
        io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
        _ => ErrorKind::Io,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.cause {
            Some(cause) => match cause.raw_os_error() {
                Some(PROCESS_FILES) => {
                    f.write_str(": too many open files: raise the limit (ulimit -n)")
                }
                Some(MACHINE_FILES) => f.write_str(
                    ": too many open files on this machine: end other programs, or raise the \
                     limit (sysctl fs.file-max)",
                ),
                _ => write!(f, ": {cause}"),
            },
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

/// Adds context to a failing result.
pub trait Context<T> {
    /// Names the outer step in which the failure was met; `outer` runs only on failure.
    fn context<D: fmt::Display>(self, outer: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context<D: fmt::Display>(self, outer: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.context(outer()))
    }
}

impl<T> Context<T> for io::Result<T> {
    fn context<D: fmt::Display>(self, outer: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|cause| Error::io(outer().to_string(), cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_reads_from_outside_in() {
        let error: Result<()> = Err(Error::damaged("seal does not hold"));
        let error = error.context(|| "container 12").context(|| "restoring /a/b").unwrap_err();
        assert_eq!(error.to_string(), "restoring /a/b: container 12: seal does not hold");
        assert_eq!(error.kind(), ErrorKind::Damaged);
    }

    #[test]
    fn r88_too_few_open_files_say_what_to_raise_and_are_no_damage() {
        for (raw, remedy) in [(23, "fs.file-max"), (24, "ulimit -n")] {
            let error = Error::io("reading 'x'", io::Error::from_raw_os_error(raw));
            assert_eq!(error.kind(), ErrorKind::Exhausted);
            assert!(!error.is_lost());
            let told = error.context("restoring").to_string();
            assert!(told.starts_with("restoring: reading 'x': too many open files"), "{told}");
            assert!(told.contains(remedy), "{told}");
        }
    }

    #[test]
    fn what_is_forbidden_or_busy_says_nothing_about_what_is_stored() {
        // EPERM, EACCES; EAGAIN, EBUSY, ETIMEDOUT, EHOSTUNREACH, ESTALE; EROFS; EIO, ENOTEMPTY.
        for (numbers, kind, exempt) in [
            (&[1, 13][..], ErrorKind::NotPermitted, [true, true]),
            (&[11, 16, 110, 113, 116], ErrorKind::Unavailable, [true, false]),
            (&[30], ErrorKind::ReadOnly, [false, true]),
            (&[5, 39], ErrorKind::Io, [true, false]),
        ] {
            for number in numbers {
                let error = Error::io("reading", io::Error::from_raw_os_error(*number));
                assert_eq!(error.kind(), kind, "{number}");
                assert!(!error.is_lost());
                assert_eq!([error.is_unreadable(), error.forbids_writing()], exempt, "{number}");
            }
        }
    }

    #[test]
    fn full_disk_and_quota_are_one_kind() {
        for raw in [28, 122] {
            let cause = io::Error::from_raw_os_error(raw);
            assert_eq!(Error::io("writing", cause).kind(), ErrorKind::NoSpace);
        }
    }
}
