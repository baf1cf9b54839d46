//! What a name leads to, by the attributes that a server gives.

use russh_sftp::protocol::FileAttributes;

/// The bits of a mode that say what it is, all of which have to be compared.
const KIND: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// What something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    File,
    Directory,
    Link,
    /// A device, a pipe, a socket.
    Other,
    /// The server does not say.
    Unknown,
}

impl Kind {
    pub fn of(attributes: &FileAttributes) -> Self {
        match attributes.permissions.map(|mode| mode & KIND) {
            Some(FILE) => Self::File,
            Some(DIRECTORY) => Self::Directory,
            Some(LINK) => Self::Link,
            Some(0) | None => Self::Unknown,
            Some(_) => Self::Other,
        }
    }

    pub fn is_directory(attributes: &FileAttributes) -> bool {
        Self::of(attributes) == Self::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_share_bits_and_are_told_apart() {
        for (mode, kind) in [
            (Some(0o100_644), Kind::File),
            (Some(0o040_755), Kind::Directory),
            (Some(0o120_777), Kind::Link),
            (Some(0o060_600), Kind::Other),
            (Some(0o140_600), Kind::Other),
            (Some(0o644), Kind::Unknown),
            (None, Kind::Unknown),
        ] {
            let attributes = FileAttributes { permissions: mode, ..FileAttributes::empty() };
            assert_eq!(Kind::of(&attributes), kind, "{mode:?}");
        }
    }
}
