//! The store's configuration: what every process must know before it can read anything.
//!
//! JSON, readable without a key, so that a process can say "this store is newer than I am" or "this
//! store is encrypted" before it asks for a password. Fixed when the store is created. In encrypted
//! stores the field `authenticity` is a keyed hash over all others, checked once the key is known.
//!
//! ```text
//! { "format_version": 1, "store_id": "...", "created_ns": 0, "encryption": "aes-256-gcm",
//!   "hash": "blake3", "chunker": { "kind": "mincdc", "size_min_bytes": 4096,
//!   "size_avg_bytes": 8192, "size_max_bytes": 12288, "regression_depth": 0, "tar_aware": true },
//!   "compression": "zstd,2", "container_size_bytes": 4194304, "authenticity": "..." }
//! ```

use onefold_types::{Error, ErrorKind, Result, limits};
use serde::{Deserialize, Serialize};

/// How the store cuts streams into chunks. Names and ranges are the chunking crate's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkerSettings {
    /// The algorithm.
    pub kind: String,
    /// No chunk but a stream's last is smaller.
    pub size_min_bytes: usize,
    /// The size aimed at.
    pub size_avg_bytes: usize,
    /// No chunk is larger.
    pub size_max_bytes: usize,
    /// Relaxed patterns of regression chunking, 0 to 4.
    pub regression_depth: u8,
    /// Whether archives are cut at their members.
    pub tar_aware: bool,
}

/// What a store is made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The version of the format.
    pub format_version: u16,
    /// The store's name.
    pub store_id: String,
    /// When it was created, in nanoseconds since 1970.
    pub created_ns: i64,
    /// "aes-256-gcm" or "none".
    pub encryption: String,
    /// The fingerprint hash.
    pub hash: String,
    /// How streams are cut.
    pub chunker: ChunkerSettings,
    /// What new frames are compressed with unless a run says otherwise.
    pub compression: String,
    /// Stored bytes after which a container is closed.
    pub container_size_bytes: usize,
    /// A keyed hash over the other fields, or empty.
    pub authenticity: String,
}

impl Configuration {
    /// The configuration as stored.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::invalid(format!("cannot write the configuration: {error}")))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a stored configuration.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct VersionOnly {
            format_version: u16,
        }
        let damaged = |error| Error::damaged(format!("the configuration is not readable: {error}"));
        let version: VersionOnly = serde_json::from_slice(bytes).map_err(damaged)?;
        if version.format_version != crate::FORMAT_VERSION {
            return Err(Error::new(
                ErrorKind::NewerFormat,
                format!(
                    "the store has format version {}, this onefold reads version {}; use the \
                     onefold that wrote the store",
                    version.format_version,
                    crate::FORMAT_VERSION
                ),
            ));
        }
        let configuration: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        let size = configuration.container_size_bytes;
        if !(64 * limits::KIB..=limits::CONTAINER_TARGET_MAX_BYTES).contains(&size) {
            return Err(Error::damaged(format!("a container size of {size} bytes is impossible")));
        }
        Ok(configuration)
    }

    /// The bytes that `authenticity` covers.
    pub fn authenticated_bytes(&self) -> Result<Vec<u8>> {
        Self { authenticity: String::new(), ..self.clone() }.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration() -> Configuration {
        Configuration {
            format_version: crate::FORMAT_VERSION,
            store_id: "00".repeat(16),
            created_ns: 5,
            encryption: "none".into(),
            hash: "blake3".into(),
            chunker: ChunkerSettings {
                kind: "mincdc".into(),
                size_min_bytes: 4096,
                size_avg_bytes: 8192,
                size_max_bytes: 12288,
                regression_depth: 0,
                tar_aware: true,
            },
            compression: "zstd,3".into(),
            container_size_bytes: limits::CONTAINER_TARGET_BYTES,
            authenticity: "ff".into(),
        }
    }

    #[test]
    fn round_trips_and_authenticates_all_but_the_tag() {
        let configuration = configuration();
        let bytes = configuration.encode().unwrap();
        assert_eq!(Configuration::decode(&bytes).unwrap(), configuration);
        let mut other = configuration.clone();
        other.authenticity = "00".into();
        assert_eq!(
            other.authenticated_bytes().unwrap(),
            configuration.authenticated_bytes().unwrap()
        );
        other.chunker.size_max_bytes += 1;
        assert_ne!(
            other.authenticated_bytes().unwrap(),
            configuration.authenticated_bytes().unwrap()
        );
    }

    #[test]
    fn a_newer_store_is_named_as_such_even_with_unknown_fields() {
        let text = String::from_utf8(configuration().encode().unwrap()).unwrap();
        let own = format!("\"format_version\": {}", crate::FORMAT_VERSION);
        let newer = text.replace(&own, "\"format_version\": 9, \"new\": 1");
        assert_ne!(newer, text);
        let error = Configuration::decode(newer.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
    }

    #[test]
    fn r30_a_truncated_configuration_is_damage() {
        let bytes = configuration().encode().unwrap();
        for length in 0..bytes.len() - 2 {
            let error = Configuration::decode(&bytes[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
        }
    }
}
