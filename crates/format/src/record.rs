//! Small records: snapshots and what is said about them later, plans, marks, tombstones,
//! quarantine, doubts and checkpoints.
//!
//! All are JSON, because they are few, people look at them (`onefold cat`), and fields are added
//! over time; the engine seals them before they are stored. Unknown fields are kept out: a record
//! with fields this version does not know carries a higher `version` and is refused.

mod checkpoint;

use crate::layout::ChangeName;
use crate::node::{Listing, Reference};
pub use checkpoint::{Checkpoint, KnownChange, KnownSession, KnownSnapshot};
use onefold_types::{
    ContainerId, DoubtId, Error, ErrorKind, Level, PlanId, Result, SessionId, ShareId, StoreId,
    limits,
};
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The version of every record that this module writes.
pub const RECORD_VERSION: u32 = 5;

/// A value that is written as text: names and fingerprints.
mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A list of values that are written as text.
mod texts {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(ToString::to_string))
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let list = Vec::<String>::deserialize(from)?;
        list.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

/// The same of one value that may be missing.
mod optional_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// As text: "fingerprint:level".
impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.fingerprint, self.level.0)
    }
}

impl std::str::FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::damaged(format!("'{text}' is not a reference"));
        let (fingerprint, level) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Self {
            fingerprint: fingerprint.parse()?,
            level: Level(level.parse().map_err(|_| wrong())?),
        })
    }
}

/// How a snapshot came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotKind {
    /// Read from a source.
    Backup,
    /// A copy of another snapshot (FAST'17, section 2.3).
    Fastcopy,
    /// Put together from parts of other snapshots.
    Synthetic,
    /// The optimised files of a share: what keeps the data of its stubs.
    Manifest,
}

/// What a backup found and did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Files in the snapshot.
    pub files: u64,
    /// Directories in the snapshot.
    pub directories: u64,
    /// Links, devices, pipes and sockets in the snapshot.
    pub others: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files not in the parent.
    pub files_new: u64,
    /// Files that differ from the parent's.
    pub files_changed: u64,
    /// Files taken over from the parent unread.
    pub files_unchanged: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
    /// Chunks, tree nodes included.
    pub chunks: u64,
    /// Chunks that were not in the store, tree nodes included.
    pub chunks_new: u64,
    /// Plain bytes of new chunks, tree nodes included.
    pub bytes_new: u64,
    /// Duplicates stored again for locality.
    pub chunks_rewritten: u64,
    /// Their plain bytes.
    pub bytes_rewritten: u64,
    /// Containers that hold the data chunks; 0: not known.
    pub containers: u64,
    /// Reads of containers that restoring everything takes with 32 MiB of memory, about; 0: not
    /// known.
    pub container_reads: u64,
    /// Bytes added to the store's containers.
    pub bytes_stored: u64,
    /// Sources that could not be read.
    pub errors: u64,
}

/// A snapshot: the value of a committed session's outcome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRecord {
    /// The version of the record.
    pub version: u32,
    /// How it came about.
    pub kind: SnapshotKind,
    /// The root directory.
    #[serde(with = "text")]
    pub root: Reference,
    /// When the backup began, in nanoseconds since 1970.
    pub started_ns: i64,
    /// When it was committed.
    pub finished_ns: i64,
    /// The machine.
    pub host: String,
    /// The user.
    pub user: String,
    /// The source paths, absolute, with unprintable bytes escaped.
    pub paths: Vec<String>,
    /// The working directory if all sources were given relative to it, written like `paths`: a
    /// restore into a directory puts what lies below it there, without the directories above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// What the root directory's list of names proves.
    #[serde(default)]
    pub listing: Listing,
    /// Tags.
    pub tags: Vec<String>,
    /// A note.
    pub description: String,
    /// Whether forget must leave it alone.
    pub hold: bool,
    /// The snapshot it was compared with.
    #[serde(with = "optional_text")]
    pub parent: Option<SessionId>,
    /// The newest outcomes known when the session began. Every outcome is reachable from later
    /// ones through these, so an outcome that was removed behind our back is missed (R54).
    #[serde(with = "texts")]
    pub predecessors: Vec<SessionId>,
    /// The program that wrote it.
    pub program: String,
    /// What the backup found and did.
    pub summary: Summary,
    /// Advisory locations of the tree's chunks, if they were recorded.
    #[serde(with = "optional_text")]
    pub placement: Option<Reference>,
    /// The doubts that the writer knew: every chunk of the snapshot was looked up after they were
    /// raised, so they do not concern it.
    #[serde(with = "texts")]
    pub doubts: Vec<DoubtId>,
    /// Containers that were there when no session had an outcome, and that no running session can
    /// have written: then records were lost before this one.
    pub strays: u64,
    /// The share whose files these are; only of manifests.
    #[serde(with = "optional_text", default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareId>,
    /// The snapshot of another store that this is a copy of; only of copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
}

/// A snapshot wherever it was made first: what its copies have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Original {
    /// The store.
    #[serde(with = "text")]
    pub store: StoreId,
    /// Its name there.
    #[serde(with = "text")]
    pub snapshot: SessionId,
}

/// How a session ended, decided once (protocol, W7 and G4).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "snapshot", deny_unknown_fields)]
pub enum Outcome {
    /// The session is a snapshot.
    Committed(Box<SnapshotRecord>),
    /// A collector gave it up; its writer starts over.
    Fenced,
}

/// What a collector will delete, and what it knew.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The condemned containers ("D" in the protocol).
    #[serde(with = "texts")]
    pub condemned: Vec<ContainerId>,
    /// The tombstones seen ("T"): of whatever an earlier plan knew to be forgotten as well.
    #[serde(with = "texts")]
    pub tombstones: Vec<SessionId>,
    /// The sessions that were known to have an outcome. Outcomes are never removed, so one that is
    /// missing is a loss.
    #[serde(with = "texts")]
    pub outcomes: Vec<SessionId>,
    /// The newest change of each snapshot that was not forgotten and had one. Numbers only rise, so
    /// one that is missing is a loss.
    #[serde(with = "texts")]
    pub changes: Vec<ChangeName>,
    /// Stored bytes of containers that are unused once the plan is carried out, about; what is left
    /// alone because a backup may be at it counts, what is damaged does not.
    pub unused_bytes: u64,
    /// Stored bytes of all containers then, about.
    pub stored_bytes: u64,
}

/// The value of an epoch: the plan that won.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// The plan's name.
    #[serde(with = "text")]
    pub plan: PlanId,
}

/// The value of a sweep: which of an epoch's condemned containers are deleted. The others are kept,
/// because a chunk of theirs is needed and could not be copied.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The containers, rising.
    #[serde(with = "texts")]
    pub deleted: Vec<ContainerId>,
}

/// Who announced a session, and when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// When, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The machine and process.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// The value of a tombstone: the snapshot is forgotten for good.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tombstone {
    /// When, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The machine and user.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Whether the session's outcome could not be read any more and was given up: a tombstone is
    /// evidence of an outcome otherwise.
    pub given_up: bool,
}

/// A reversible mark: the snapshot is hidden, unless the mark's fate says that it was taken back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The snapshot.
    #[serde(with = "text")]
    pub snapshot: SessionId,
    /// When, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The machine and user.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// What is said about a snapshot from now on. Each change carries all of it, so that only the
/// newest one counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The machine and user.
    pub by: String,
    /// Whether forget must leave the snapshot alone.
    pub hold: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// A note.
    pub description: String,
    /// Whether it is forgotten for good: the last change. Its tombstone follows.
    pub forgotten: bool,
}

/// What became of a mark, decided once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fate", deny_unknown_fields)]
pub enum Fate {
    /// It was taken back: it hides nothing any more, whoever puts it where again. The braces have
    /// fields refused that this version does not know.
    TakenBack {},
}

/// A doubt: chunks may be missing without anything to name them by. What a snapshot refers to is
/// reused unread only if the snapshot names the doubt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doubt {
    /// When it was raised, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Why.
    pub reason: String,
}

/// Quarantine: the container must not be relied upon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Damage {
    /// When it was found, in nanoseconds since 1970.
    pub time_ns: i64,
    /// What was found.
    pub problem: String,
}

/// A record as bytes, ready for sealing.
///
/// Errors: `LimitExceeded` if no reader would take it.
pub fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>> {
    let bytes = serde_json::to_vec(record)
        .map_err(|error| Error::invalid(format!("cannot write the record: {error}")))?;
    if bytes.len() > limits::RECORD_MAX_BYTES {
        let message = format!("a record of {} bytes is longer than any may be", bytes.len());
        return Err(Error::new(ErrorKind::LimitExceeded, message));
    }
    Ok(bytes)
}

/// Reads a record; `what` names it in errors.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    if bytes.len() > limits::RECORD_MAX_BYTES {
        return Err(Error::damaged(format!("{what}: it is too long")));
    }
    if let Some(version) = newer_version(bytes) {
        return Err(Error::new(
            ErrorKind::NewerFormat,
            format!("{what}: record version {version} is newer than this onefold reads"),
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| Error::damaged(format!("{what}: {error}")))
}

/// Whether a record is of a newer version: whoever does not read it must leave it where it is.
#[must_use]
pub fn is_newer(bytes: &[u8]) -> bool {
    newer_version(bytes).is_some()
}

/// The version that a record claims, if it is above ours (R26: authentic records of a newer version
/// are never damage, nor understood by chance because their fields happen to be ours).
fn newer_version(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Head {
        version: Option<u64>,
        snapshot: Option<Inner>,
    }
    let head: Head = serde_json::from_slice(bytes).ok()?;
    let versions = [head.snapshot.and_then(|inner| inner.0), head.version].into_iter().flatten();
    versions.max().filter(|&version| version > u64::from(RECORD_VERSION))
}

/// The version of a record in another, if what stands there is one. Every record is looked at
/// before it is decoded, so nothing is kept of its other fields.
struct Inner(Option<u64>);

impl<'de> Deserialize<'de> for Inner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(InnerVisitor)
    }
}

struct InnerVisitor;

impl<'de> Visitor<'de> for InnerVisitor {
    type Value = Inner;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Inner, A::Error> {
        let mut version = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == "version" {
                version = map.next_value::<serde_json::Value>()?.as_u64();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Inner(version))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> std::result::Result<Inner, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Inner(None))
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<Inner, E> {
        Ok(Inner(None))
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Inner, E> {
        Ok(Inner(None))
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Inner, E> {
        Ok(Inner(None))
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Inner, E> {
        Ok(Inner(None))
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Inner, E> {
        Ok(Inner(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::Fingerprint;

    fn snapshot() -> SnapshotRecord {
        SnapshotRecord {
            version: RECORD_VERSION,
            kind: SnapshotKind::Backup,
            root: Reference { fingerprint: Fingerprint([1; 32]), level: Level(4) },
            started_ns: 1,
            finished_ns: 2,
            host: "h".into(),
            user: "u".into(),
            paths: vec!["/p".into()],
            base: None,
            listing: Listing::Partial,
            tags: vec!["t".into()],
            description: String::new(),
            hold: false,
            parent: Some(SessionId([2; 16])),
            predecessors: vec![SessionId([3; 16])],
            program: "onefold".into(),
            summary: Summary::default(),
            placement: None,
            doubts: vec![DoubtId([8; 16])],
            strays: 0,
            share: None,
            original: None,
        }
    }

    #[test]
    fn records_round_trip() {
        for outcome in [Outcome::Committed(Box::new(snapshot())), Outcome::Fenced] {
            let bytes = encode(&outcome).unwrap();
            assert_eq!(decode::<Outcome>(&bytes, "outcome").unwrap(), outcome);
        }
        let plan = Plan {
            condemned: vec![ContainerId([4; 16])],
            tombstones: vec![SessionId([5; 16])],
            outcomes: vec![SessionId([5; 16])],
            changes: vec![ChangeName { snapshot: SessionId([5; 16]), number: 2 }],
            unused_bytes: 6,
            stored_bytes: 7,
        };
        assert_eq!(decode::<Plan>(&encode(&plan).unwrap(), "plan").unwrap(), plan);
        let epoch = Epoch { plan: PlanId([6; 16]) };
        assert_eq!(decode::<Epoch>(&encode(&epoch).unwrap(), "epoch").unwrap(), epoch);
        let sweep = Sweep { deleted: vec![ContainerId([7; 16])] };
        assert_eq!(decode::<Sweep>(&encode(&sweep).unwrap(), "sweep").unwrap(), sweep);
        let fate = Fate::TakenBack {};
        assert_eq!(decode::<Fate>(&encode(&fate).unwrap(), "fate").unwrap(), fate);
        let more = br#"{"fate":"taken-back","surprise":true}"#;
        assert_eq!(decode::<Fate>(more, "fate").unwrap_err().kind(), ErrorKind::Damaged);
        let change = Change {
            time_ns: 8,
            by: "u@h".into(),
            hold: true,
            tags: vec!["t".into()],
            description: "d".into(),
            forgotten: false,
        };
        assert_eq!(decode::<Change>(&encode(&change).unwrap(), "change").unwrap(), change);
    }

    #[test]
    fn r57_a_record_that_no_reader_takes_is_not_written() {
        let of = |bytes: usize| Note { time_ns: 1, by: "b".repeat(bytes), reason: String::new() };
        let rest = encode(&of(0)).unwrap().len();
        let largest = encode(&of(limits::RECORD_MAX_BYTES - rest)).unwrap();
        assert_eq!(largest.len(), limits::RECORD_MAX_BYTES);
        decode::<Note>(&largest, "note").unwrap();
        let error = encode(&of(limits::RECORD_MAX_BYTES - rest + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn r26_a_newer_record_is_not_damage() {
        let bytes = encode(&Outcome::Committed(Box::new(snapshot()))).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let version = |version: u32| format!("\"version\":{version}");
        let surprising = |of| {
            text.replace(&version(RECORD_VERSION), &format!("{},\"surprise\":true", version(of)))
        };
        let newer = surprising(RECORD_VERSION + 1);
        let error = decode::<Outcome>(newer.as_bytes(), "outcome").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
        let damaged = surprising(RECORD_VERSION);
        let error = decode::<Outcome>(damaged.as_bytes(), "outcome").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
    }

    #[test]
    fn r26_a_newer_record_may_hold_anything() {
        let anything =
            ["null", "true", "7", "-7", "0.5", "\"a\\\"b\"", "[1, [2]]", "{}", "{\"version\": []}"];
        for inner in anything {
            let record = |version: u32| format!("{{\"snapshot\":{inner},\"version\":{version}}}");
            assert!(is_newer(record(RECORD_VERSION + 1).as_bytes()), "{inner}");
            assert!(!is_newer(record(RECORD_VERSION).as_bytes()), "{inner}");
        }
        let inner = |version: u32| format!("{{\"snapshot\":{{\"a\":[],\"version\":{version}}}}}");
        assert!(is_newer(inner(RECORD_VERSION + 1).as_bytes()));
        assert!(!is_newer(inner(RECORD_VERSION).as_bytes()));
    }
}
