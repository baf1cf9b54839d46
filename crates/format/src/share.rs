//! What a share says about itself: a small file in the directory, in JSON, which people may read.
//!
//! It is written once and not sealed: whoever may write into the directory may change its files as
//! well.

use onefold_types::{Error, ErrorKind, Result, ShareId, StoreId};
use serde::{Deserialize, Serialize};

/// The version of this description.
pub const SHARE_VERSION: u32 = 1;
/// More than any description takes.
pub const DESCRIPTION_MAX_BYTES: usize = 1 << 20;

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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    share: String,
    store: String,
    place: SharePlace,
    policy: SharePolicy,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl ShareDescription {
    /// As text.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let written = Written {
            version: SHARE_VERSION,
            share: self.share.to_string(),
            store: self.store.to_string(),
            place: self.place,
            policy: self.policy.clone(),
        };
        serde_json::to_vec_pretty(&written).map_err(|error| Error::invalid(error.to_string()))
    }

    /// Out of text.
    ///
    /// Errors: `NewerFormat` if a later version wrote it, `Damaged` if it is none.
    pub fn decode(text: &[u8]) -> Result<Self> {
        let damaged = |error: serde_json::Error| {
            Error::damaged(format!("the share's description cannot be understood: {error}"))
        };
        let Version { version } = serde_json::from_slice(text).map_err(damaged)?;
        if version > SHARE_VERSION {
            let message = format!("the share is of version {version}, newer than this onefold");
            return Err(Error::new(ErrorKind::NewerFormat, message));
        }
        let written: Written = serde_json::from_slice(text).map_err(damaged)?;
        Ok(Self {
            share: written.share.parse()?,
            store: written.store.parse()?,
            place: written.place,
            policy: written.policy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_as_written_and_newer_ones_are_not_called_damaged() {
        let policy =
            SharePolicy { age_min_seconds: 5, size_min_bytes: 6, excludes: vec!["*.tmp".into()] };
        let (share, store) = (ShareId([1; 16]), StoreId([2; 16]));
        let place = SharePlace { inode: 8, made_ns: -9 };
        let description = ShareDescription { share, store, place, policy };
        let text = description.encode().unwrap();
        assert_eq!(ShareDescription::decode(&text).unwrap(), description);
        let text = String::from_utf8(text).unwrap();
        let newer = text.replace("\"version\": 1,", "\"version\": 2, \"surprise\": 3,");
        let kind = |text: &str| ShareDescription::decode(text.as_bytes()).unwrap_err().kind();
        assert_eq!(kind(&newer), ErrorKind::NewerFormat);
        assert_eq!(kind("{"), ErrorKind::Damaged);
        assert_eq!(kind(&text.replace("policy", "police")), ErrorKind::Damaged);
    }
}
