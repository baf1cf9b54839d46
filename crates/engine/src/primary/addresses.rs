//! Where a share is used, so that a copy of it takes nothing from it.
//!
//! A copy of a file system, block by block, has the inodes and times of birth of the original: by
//! itself it is the same share. Its job would make a manifest of the copy's stubs and forget those
//! that keep the original's data. So a share lists the *addresses* where it may be used, which are
//! a machine and a path, and each manifest says at which address it was made.
//!
//! # Invariants
//! - Nothing of a share is changed, and no manifest made, at an address that is not listed, but by
//!   `share move`, which lists it, and by `share repair`, which makes an ordinary directory of it.
//! - A job forgets no manifest but those made at addresses that its share lists, or at others
//!   before it was moved from there, and relies on no other one.
//!
//! # What is not told apart
//! A copy that takes the original's place, on the same path of the same machine, and a machine that
//! was cloned together with its id.

use crate::session::Snapshot;
use crate::tree::path;
use onefold_crypto::{Fingerprinter, HashKind};
use onefold_format::share::{ShareAddress, ShareDescription};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where Linux keeps what tells a machine from others.
const MACHINE_ID: &str = "/etc/machine-id";
/// Characters of that.
const MACHINE_ID_LENGTH: usize = 32;
/// Of the fingerprint that is told instead of it: it must not leave the machine.
const MACHINE_BYTES: usize = 16;
/// How the tag of a manifest begins that says on which machine it was made.
const MACHINE_TAG: &str = "machine=";
/// How a mark begins.
const MARK_TAG: &str = "address=";

/// The address of a directory on this machine, by its canonical path.
#[must_use]
pub fn here(directory: &Path) -> ShareAddress {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    // A backslash begins an escape, so one in a name is escaped itself: no two are shown alike.
    let parts = directory.as_os_str().as_bytes().split(|byte| *byte == b'\\');
    let path = parts.map(path::display).collect::<Vec<_>>().join("\\x5c");
    ShareAddress { machine: machine(id.trim(), &host), host, path }
}

/// The directory at an address.
#[must_use]
pub fn directory_of(address: &ShareAddress) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&path::unescaped(&address.path)))
}

/// What tells a machine from others: by its id, or by its name if it has none.
fn machine(id: &str, host: &str) -> String {
    let is_id = id.len() == MACHINE_ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let told = match is_id {
        true => format!("onefold share on the machine with the id {id}"),
        false => format!("onefold share on the machine of the name {host}"),
    };
    let fingerprint = Fingerprinter::new(HashKind::Blake3, None).data(told.as_bytes());
    hex::encode(&fingerprint.0[..MACHINE_BYTES])
}

/// What a manifest that is made at an address says of it, beside host and path.
#[must_use]
pub fn tag(address: &ShareAddress) -> String {
    format!("{MACHINE_TAG}{}", address.machine)
}

/// What says of a session that has no path where it was made.
#[must_use]
pub fn mark(address: &ShareAddress) -> String {
    let told = format!("{} {}", address.machine, address.path);
    let fingerprint = Fingerprinter::new(HashKind::Blake3, None).data(told.as_bytes());
    format!("{MARK_TAG}{}", hex::encode(&fingerprint.0[..MACHINE_BYTES]))
}

/// Where a manifest was made.
#[must_use]
pub fn made_at(manifest: &Snapshot) -> ShareAddress {
    let record = &manifest.record;
    let machine = record.tags.iter().find_map(|tag| tag.strip_prefix(MACHINE_TAG));
    ShareAddress {
        machine: machine.unwrap_or_default().to_owned(),
        host: record.host.clone(),
        path: record.paths.first().cloned().unwrap_or_default(),
    }
}

/// What a directory is that says it is a share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The share, where it may be used.
    Own,
    /// The directory of a share that is used elsewhere: moved, or copied block by block.
    Elsewhere,
    /// The share, by another path than this one, by which it is used.
    Alias(ShareAddress),
    /// A copy of a share, file by file.
    Copy,
}

impl Standing {
    /// What a directory at an address is, by what it says of itself and whether it lies where that
    /// was written.
    pub fn of(
        description: &ShareDescription,
        here: &ShareAddress,
        is_in_place: bool,
        is_same_directory: impl Fn(&Path) -> bool,
    ) -> Self {
        if !is_in_place {
            return Self::Copy;
        }
        if description.addresses.iter().any(|address| address.is_same(here)) {
            return Self::Own;
        }
        let of_machine = |address: &&ShareAddress| address.machine == here.machine;
        let mut others = description.addresses.iter().filter(of_machine);
        match others.find(|address| is_same_directory(&directory_of(address))) {
            Some(address) => Self::Alias(address.clone()),
            None => Self::Elsewhere,
        }
    }

    /// In a word, for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Elsewhere => "elsewhere",
            Self::Alias(_) => "alias",
            Self::Copy => "copy",
        }
    }

    /// Why nothing is changed there, and what to do about it; `None` if it may be.
    #[must_use]
    pub fn complaint(&self, shown: &Path, addresses: &[ShareAddress]) -> Option<String> {
        let shown = shown.display();
        let used = addresses.first().map_or_else(|| "nowhere".to_owned(), ToString::to_string);
        match self {
            Self::Own => None,
            Self::Elsewhere => Some(format!(
                "'{shown}' is a share that is used at '{used}'; if it was moved here and is not \
                 used there any more, 'onefold share move {shown}' says so; if this is a copy of \
                 it, 'onefold share repair {shown}' makes it an ordinary directory"
            )),
            Self::Alias(address) => Some(format!(
                "'{shown}' is the share '{0}' by another path; use it as '{0}'",
                address.path
            )),
            Self::Copy => Some(format!(
                "'{shown}' is a copy of a share that is used at '{used}', and none itself; \
                 'onefold share repair {shown}' brings the data of its files back and makes it an \
                 ordinary directory"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::share::{SharePlace, SharePolicy};
    use onefold_types::{ShareId, StoreId};

    fn description(addresses: Vec<ShareAddress>) -> ShareDescription {
        ShareDescription {
            share: ShareId([1; 16]),
            store: StoreId([2; 16]),
            place: SharePlace { inode: 1, made_ns: 2 },
            addresses,
            moved_from: Vec::new(),
            policy: SharePolicy { age_min_seconds: 0, size_min_bytes: 0, excludes: Vec::new() },
        }
    }

    #[test]
    fn machines_differ_by_their_ids_and_those_without_one_by_their_names() {
        let (one, other) = ("0".repeat(MACHINE_ID_LENGTH), "f".repeat(MACHINE_ID_LENGTH));
        assert_eq!(machine(&one, "a"), machine(&one, "b"));
        assert_ne!(machine(&one, "a"), machine(&other, "a"));
        for none in ["", "uninitialized", &"x".repeat(MACHINE_ID_LENGTH)] {
            assert_eq!(machine(none, "a"), machine("", "a"));
            assert_ne!(machine(none, "a"), machine(none, "b"));
        }
        assert!(!machine(&one, "a").contains(&one));
    }

    #[test]
    fn paths_that_differ_are_addresses_that_differ_and_lead_back() {
        let odd: [&[u8]; 4] = [b"/a\\x01", b"/a\x01", b"/a\xff", b"/a\\\\"];
        let addresses = odd.map(|path| here(Path::new(OsStr::from_bytes(path))));
        for (at, address) in addresses.iter().enumerate() {
            assert_eq!(directory_of(address).as_os_str().as_bytes(), odd[at]);
            assert!(addresses[..at].iter().all(|other| !other.is_same(address)));
        }
    }

    #[test]
    fn a_share_is_used_where_it_lists_and_nowhere_else() {
        let at = |machine: &str, path: &str| ShareAddress {
            machine: machine.into(),
            host: "h".into(),
            path: path.into(),
        };
        let share = description(vec![at("one", "/first"), at("two", "/second")]);
        let of = |here: &ShareAddress| Standing::of(&share, here, true, |_| false);
        assert_eq!(of(&at("one", "/first")), Standing::Own);
        assert_eq!(of(&at("two", "/second")), Standing::Own);
        assert_eq!(of(&at("one", "/second")), Standing::Elsewhere);
        assert_eq!(of(&at("two", "/first")), Standing::Elsewhere);
        let renamed = ShareAddress { host: "called otherwise".into(), ..at("one", "/first") };
        assert_eq!(of(&renamed), Standing::Own);
        let copied = Standing::of(&share, &renamed, false, |_| false);
        assert_eq!(copied, Standing::Copy);
        let same = |path: &Path| path == Path::new("/first");
        let alias = Standing::of(&share, &at("one", "/third"), true, same);
        assert_eq!(alias, Standing::Alias(at("one", "/first")));
        // What is at that path of another machine is not asked.
        assert_eq!(Standing::of(&share, &at("two", "/third"), true, same), Standing::Elsewhere);
    }
}
