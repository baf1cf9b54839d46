//! The store's configuration: what every process must know before it can read anything.
//!
//! JSON, readable without a key, so that a process can say "this store is newer than I am" or "this
//! store is encrypted" before it asks for a password. Fixed when the store is created. In encrypted
//! stores the field `authenticity` is a keyed hash over all others, checked once the key is known:
//! over lines of text of their own, so that it does not hang on how JSON is printed. That a store
//! is encrypted at all is not proved by this file; see `Repository::open` in the engine.
//!
//! ```text
//! { "format_version": 1, "store_id": "...", "created_ns": 0, "encryption": "aes-256-gcm",
//!   "hash": "blake3", "chunker": { "kind": "mincdc", "size_min_bytes": 4096,
//!   "size_avg_bytes": 8192, "size_max_bytes": 12288, "regression_depth": 0, "tar_aware": true },
//!   "compression": "zstd,2", "container_size_bytes": 4194304, "authenticity": "..." }
//! ```
//!
//! `delta` stands behind `compression` in stores that say something about deltas, and `decisions`
//! behind `container_size_bytes` in stores that do not decide by themselves. Fields that are not
//! known are damage, or of a newer build.

use onefold_types::{Error, ErrorKind, Result, limits};
use serde::{Deserialize, Serialize};

/// No configuration is longer; more is not read.
pub const CONFIGURATION_MAX_BYTES: usize = 64 * limits::KIB;
/// No text in it is longer.
const TEXT_MAX_BYTES: usize = 128;
/// What the authenticated lines begin with.
const AUTHENTICATED_HEADING: &str = "onefold configuration\n";

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
    /// Whether new chunks are stored as differences unless a run says otherwise; empty and not
    /// written in stores that take the usual choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub delta: String,
    /// Stored bytes after which a container is closed.
    pub container_size_bytes: usize,
    /// Who decides its names: "database", or empty and not written in stores that do so themselves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub decisions: String,
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
        if bytes.len() > CONFIGURATION_MAX_BYTES {
            return Err(Error::damaged("the configuration is far too long"));
        }
        #[derive(Deserialize)]
        struct VersionOnly {
            format_version: u64,
        }
        let damaged = |error| {
            Error::damaged(format!(
                "the configuration is not readable: put 'config' back from a copy of the store \
                 ({error})"
            ))
        };
        // A damaged name looks the same, and then the other copy counts.
        let unreadable = |error: serde_json::Error| match error.to_string() {
            unknown if unknown.contains("unknown field") => Error::damaged(format!(
                "the configuration says what this onefold does not know ({error}): it is damaged, \
                 or a newer onefold wrote the store"
            )),
            _ => damaged(error),
        };
        let version: VersionOnly = serde_json::from_slice(bytes).map_err(damaged)?;
        if version.format_version != u64::from(crate::FORMAT_VERSION) {
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
        let configuration: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        configuration.check_texts()?;
        let size = configuration.container_size_bytes;
        if !(64 * limits::KIB..=limits::CONTAINER_TARGET_MAX_BYTES).contains(&size) {
            return Err(Error::damaged(format!("a container size of {size} bytes is impossible")));
        }
        Ok(configuration)
    }

    /// The bytes that `authenticity` covers: a heading, and a line `name=value` for each other
    /// field in the order of the format. Texts are printable ASCII, so no line can hold two.
    #[must_use]
    pub fn authenticated_bytes(&self) -> Vec<u8> {
        let chunker = &self.chunker;
        let lines = [
            ("format_version", self.format_version.to_string()),
            ("store_id", self.store_id.clone()),
            ("created_ns", self.created_ns.to_string()),
            ("encryption", self.encryption.clone()),
            ("hash", self.hash.clone()),
            ("chunker.kind", chunker.kind.clone()),
            ("chunker.size_min_bytes", chunker.size_min_bytes.to_string()),
            ("chunker.size_avg_bytes", chunker.size_avg_bytes.to_string()),
            ("chunker.size_max_bytes", chunker.size_max_bytes.to_string()),
            ("chunker.regression_depth", chunker.regression_depth.to_string()),
            ("chunker.tar_aware", chunker.tar_aware.to_string()),
            ("compression", self.compression.clone()),
            ("delta", self.delta.clone()),
            ("container_size_bytes", self.container_size_bytes.to_string()),
            ("decisions", self.decisions.clone()),
        ];
        let is_there = |(name, value): &(&str, String)| {
            !matches!(*name, "delta" | "decisions") || !value.is_empty()
        };
        let lines = lines.into_iter().filter(is_there);
        let lines: String = lines.map(|(name, value)| format!("{name}={value}\n")).collect();
        [AUTHENTICATED_HEADING, &lines].concat().into_bytes()
    }

    /// Refuses texts that no store is made with: what is no printable ASCII could hide in a
    /// terminal or in the authenticated lines.
    fn check_texts(&self) -> Result<()> {
        let texts = [
            ("store_id", &self.store_id),
            ("encryption", &self.encryption),
            ("hash", &self.hash),
            ("chunker.kind", &self.chunker.kind),
            ("compression", &self.compression),
            ("delta", &self.delta),
            ("decisions", &self.decisions),
            ("authenticity", &self.authenticity),
        ];
        for (name, text) in texts {
            if text.len() > TEXT_MAX_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(Error::damaged(format!("the configuration's {name} is impossible")));
            }
        }
        Ok(())
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
            delta: "depth=2".into(),
            container_size_bytes: limits::CONTAINER_TARGET_BYTES,
            decisions: "database".into(),
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
        assert_eq!(other.authenticated_bytes(), configuration.authenticated_bytes());
        other.chunker.size_max_bytes += 1;
        assert_ne!(other.authenticated_bytes(), configuration.authenticated_bytes());
    }

    #[test]
    fn r73_every_field_but_the_tag_is_authenticated_in_defined_bytes() {
        let configuration = configuration();
        let text = String::from_utf8(configuration.authenticated_bytes()).unwrap();
        let expected = format!(
            "onefold configuration\nformat_version={}\nstore_id={}\ncreated_ns=5\n\
             encryption=none\nhash=blake3\nchunker.kind=mincdc\nchunker.size_min_bytes=4096\n\
             chunker.size_avg_bytes=8192\nchunker.size_max_bytes=12288\n\
             chunker.regression_depth=0\nchunker.tar_aware=true\ncompression=zstd,3\n\
             delta=depth=2\ncontainer_size_bytes=4194304\ndecisions=database\n",
            crate::FORMAT_VERSION,
            "00".repeat(16)
        );
        assert_eq!(text, expected);
        // Each field of the JSON is a line, so none can be added and forgotten here.
        let json: serde_json::Value = serde_json::to_value(&configuration).unwrap();
        let fields = json.as_object().unwrap();
        let nested = fields["chunker"].as_object().unwrap();
        assert_eq!(text.lines().count() - 1, fields.len() - 2 + nested.len());
    }

    #[test]
    fn what_takes_the_usual_choices_is_written_and_authenticated_as_ever() {
        let no_delta = Configuration { delta: String::new(), ..configuration() };
        let no_decisions = Configuration { decisions: String::new(), ..configuration() };
        for (usual, name) in [(no_delta, "delta"), (no_decisions, "decisions")] {
            let bytes = usual.encode().unwrap();
            let named = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(name);
            assert!(!named(&bytes) && !named(&usual.authenticated_bytes()));
            assert_eq!(Configuration::decode(&bytes).unwrap(), usual);
            assert_ne!(usual.authenticated_bytes(), configuration().authenticated_bytes());
        }
    }

    #[test]
    fn r77_texts_that_no_store_is_made_with_are_refused() {
        for text in ["no\u{1b}[2Jne", "none\nhash=x", "", "\u{202e}enon", &"x".repeat(129)] {
            let mut configuration = configuration();
            configuration.encryption = text.to_owned();
            let decoded = Configuration::decode(&configuration.encode().unwrap());
            assert_eq!(decoded.is_err(), !text.is_empty(), "{text:?}");
        }
        let long = [b" ".repeat(CONFIGURATION_MAX_BYTES), configuration().encode().unwrap()];
        let error = Configuration::decode(&long.concat()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
    }

    #[test]
    fn a_newer_store_is_named_as_such_even_with_unknown_fields() {
        let text = String::from_utf8(configuration().encode().unwrap()).unwrap();
        let own = format!("\"format_version\": {}", crate::FORMAT_VERSION);
        let newer = text.replace(&own, "\"format_version\": 9, \"new\": 1");
        assert_ne!(newer, text);
        let error = Configuration::decode(newer.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
        // A field alone may as well be damage, for which there is a copy; it is named.
        let newer = text.replacen('{', "{ \"new\": 1,", 1);
        let error = Configuration::decode(newer.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("`new`"), "{error}");
        assert!(error.to_string().contains("newer onefold"), "{error}");
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
