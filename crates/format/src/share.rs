//! What a share says about itself: a small file in the directory, in JSON, which people may read.
//!
//! It is replaced when the share is used elsewhere, and not sealed: whoever may write into the
//! directory may change its files as well.

use onefold_types::{Error, ErrorKind, Result, ShareId, StoreId};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// The version of this description.
pub const SHARE_VERSION: u32 = 2;
/// What is read of a description, so none is written that is longer.
pub const DESCRIPTION_MAX_BYTES: usize = 1 << 20;
/// What a new description may take, so that any other address fits into it later.
pub const DESCRIPTION_NEW_MAX_BYTES: usize = DESCRIPTION_MAX_BYTES - (64 << 10);
/// Addresses that a share remembers to have been moved from.
pub const MOVED_FROM_MAX: usize = 16;

/// What is optimised.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharePolicy {
    /// Files that were not changed for so many seconds.
    pub age_min_seconds: u64,
    /// Files of as many bytes.
    pub size_min_bytes: u64,
    /// Paths that match are left alone.
    pub excludes: Vec<String>,
}

/// Which share a directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareDescription {
    /// Its name.
    pub share: ShareId,
    /// The store that holds its data.
    pub store: StoreId,
    /// The directory that this lies in: a copy of it elsewhere is no share.
    pub place: SharePlace,
    /// Where it may be used; the first is where it was made, or moved to last.
    pub addresses: Vec<ShareAddress>,
    /// Where it was used before, the last at the end.
    pub moved_from: Vec<FormerAddress>,
    /// What is optimised.
    pub policy: SharePolicy,
}

/// What tells a directory from its copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharePlace {
    /// Its inode.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; 0: the file system does not say.
    pub made_ns: i64,
}

/// Where a share is used: what tells a file system from its copies, block by block.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareAddress {
    /// What tells the machine from others.
    pub machine: String,
    /// What people call it, which may change.
    pub host: String,
    /// The directory there, with escapes.
    pub path: String,
}

/// Where a share was used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormerAddress {
    /// Where.
    pub address: ShareAddress,
    /// Until when, in nanoseconds since 1970.
    pub until_ns: i64,
}

impl ShareAddress {
    /// Whether both are one place, whatever the machine was called.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.machine == other.machine && self.path == other.path
    }
}

impl Display for ShareAddress {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.path)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    share: String,
    store: String,
    place: SharePlace,
    addresses: Vec<ShareAddress>,
    moved_from: Vec<FormerAddress>,
    policy: SharePolicy,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl ShareDescription {
    /// As text.
    ///
    /// Errors: `Invalid` if it is longer than what is read of one.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.encode_within(DESCRIPTION_MAX_BYTES)
    }

    /// The same of one that is new, which has to be shorter.
    pub fn encode_new(&self) -> Result<Vec<u8>> {
        self.encode_within(DESCRIPTION_NEW_MAX_BYTES)
    }

    fn encode_within(&self, most: usize) -> Result<Vec<u8>> {
        let written = Written {
            version: SHARE_VERSION,
            share: self.share.to_string(),
            store: self.store.to_string(),
            place: self.place,
            addresses: self.addresses.clone(),
            moved_from: self.moved_from.clone(),
            policy: self.policy.clone(),
        };
        let text = serde_json::to_vec_pretty(&written)
            .map_err(|error| Error::invalid(error.to_string()))?;
        match text.len() > most {
            true => Err(Error::invalid(format!(
                "the share's description is too long: {} bytes, and no more than {most} are \
                 allowed; give it fewer excludes",
                text.len()
            ))),
            false => Ok(text),
        }
    }

    /// Says that it is used at another address from now on, and not any more where it was. What it
    /// was moved from long ago is dropped if there is no room for it.
    ///
    /// Errors: `Invalid` if it is too long even without that.
    pub fn move_to(&mut self, address: ShareAddress, now_ns: i64) -> Result<()> {
        let left = std::mem::replace(&mut self.addresses, vec![address]);
        for address in left {
            self.moved_from.retain(|one| !one.address.is_same(&address));
            self.moved_from.push(FormerAddress { address, until_ns: now_ns });
        }
        let here = &self.addresses[0];
        self.moved_from.retain(|one| !one.address.is_same(here));
        self.moved_from.drain(..self.moved_from.len().saturating_sub(MOVED_FROM_MAX));
        while !self.moved_from.is_empty() && self.encode().is_err() {
            self.moved_from.remove(0);
        }
        self.encode().map(drop)
    }

    /// Out of text.
    ///
    /// Errors: `NewerFormat` if a later version wrote it, `Invalid` if an earlier one did,
    /// `Damaged` if it is none.
    pub fn decode(text: &[u8]) -> Result<Self> {
        let damaged = |error: serde_json::Error| {
            Error::damaged(format!("the share's description cannot be understood: {error}"))
        };
        let Version { version } = serde_json::from_slice(text).map_err(damaged)?;
        if version > SHARE_VERSION {
            let message = format!("the share is of version {version}, newer than this onefold");
            return Err(Error::new(ErrorKind::NewerFormat, message));
        }
        if version < SHARE_VERSION {
            return Err(Error::invalid(format!(
                "the share is of version {version}, which does not say where it is used; bring its \
                 files back with the onefold that made it, then make it anew"
            )));
        }
        let written: Written = serde_json::from_slice(text).map_err(damaged)?;
        Ok(Self {
            share: written.share.parse()?,
            store: written.store.parse()?,
            place: written.place,
            addresses: written.addresses,
            moved_from: written.moved_from,
            policy: written.policy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(path: &str) -> ShareAddress {
        ShareAddress { machine: "id".into(), host: "h".into(), path: path.into() }
    }

    fn description() -> ShareDescription {
        ShareDescription {
            share: ShareId([1; 16]),
            store: StoreId([2; 16]),
            place: SharePlace { inode: 8, made_ns: -9 },
            addresses: vec![address("/first")],
            moved_from: Vec::new(),
            policy: SharePolicy {
                age_min_seconds: 5,
                size_min_bytes: 6,
                excludes: vec!["*.tmp".into()],
            },
        }
    }

    #[test]
    fn descriptions_are_read_as_written_and_newer_ones_are_not_called_damaged() {
        let description = description();
        let text = description.encode().unwrap();
        assert_eq!(ShareDescription::decode(&text).unwrap(), description);
        let text = String::from_utf8(text).unwrap();
        let newer = text.replace("\"version\": 2,", "\"version\": 3, \"surprise\": 3,");
        let kind = |text: &str| ShareDescription::decode(text.as_bytes()).unwrap_err().kind();
        assert_eq!(kind(&newer), ErrorKind::NewerFormat);
        assert_eq!(kind(&text.replace("\"version\": 2", "\"version\": 1")), ErrorKind::Invalid);
        assert_eq!(kind("{"), ErrorKind::Damaged);
        assert_eq!(kind(&text.replace("policy", "police")), ErrorKind::Damaged);
    }

    #[test]
    fn a_share_that_is_moved_often_remembers_only_the_last_addresses() {
        let mut share = description();
        for number in 0..MOVED_FROM_MAX {
            share.move_to(address(&format!("/{number}")), 5).unwrap();
        }
        assert_eq!(share.moved_from.len(), MOVED_FROM_MAX);
        let first = FormerAddress { address: address("/first"), until_ns: 5 };
        assert_eq!(share.moved_from[0], first);
        share.move_to(address("/one more"), 5).unwrap();
        assert_eq!(share.moved_from.len(), MOVED_FROM_MAX);
        assert_eq!(share.moved_from[0].address, address("/0"));
        assert_eq!(share.addresses, [address("/one more")]);
        // Whoever goes back is there, and was not there before.
        share.move_to(address("/3"), 5).unwrap();
        assert!(share.moved_from.iter().all(|one| one.address != address("/3")));
        assert_eq!(share.moved_from.last().unwrap().address, address("/one more"));
    }

    #[test]
    fn a_description_is_never_longer_than_what_is_read_of_it() {
        let mut share = description();
        let room = DESCRIPTION_MAX_BYTES - share.encode().unwrap().len();
        share.policy.excludes[0].push_str(&"x".repeat(room));
        assert_eq!(share.encode().unwrap().len(), DESCRIPTION_MAX_BYTES);
        // The address that it was moved from does not fit in any more.
        share.move_to(address("/other"), 5).unwrap();
        assert_eq!(share.moved_from, []);
        assert_eq!(share.encode().unwrap().len(), DESCRIPTION_MAX_BYTES);
        let error = share.move_to(address("/other!"), 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(share.encode_new().is_err());
    }
}
