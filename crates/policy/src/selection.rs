//! Selection: which snapshot a reference means, and which snapshots a filter passes.
//!
//! References are those of restic: `latest`, `latest~N` for the N-th before it, a whole name, or
//! the beginning of a name that no other snapshot shares; `REFERENCE:PATH` names something inside.
//!
//! Invariants: a reference is never guessed. A beginning that fits two snapshots is an error that
//! lists them. Filters narrow down `latest` and nothing else: whoever gives a name means it.

use crate::retention::{Candidate, is_dated_before};
use crate::tag_list::TagList;
use onefold_types::ids::ID_BYTES;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::fmt;
use std::str::FromStr;

/// Matches listed in the error about an ambiguous name.
const MATCHES_LISTED_MAX: usize = 10;

/// Which snapshots are considered; an empty field lets all pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapshotFilter {
    /// Taken on one of these hosts.
    pub hosts: Vec<String>,
    /// Fits one of these lists.
    pub tags: Vec<TagList>,
    /// Taken of all of these paths, and perhaps others.
    pub paths: Vec<String>,
}

impl SnapshotFilter {
    /// Whether the snapshot passes.
    #[must_use]
    pub fn matches(&self, candidate: &Candidate) -> bool {
        let host = self.hosts.is_empty() || self.hosts.contains(&candidate.host);
        let tags =
            self.tags.is_empty() || self.tags.iter().any(|list| list.matches(&candidate.tags));
        host && tags && self.paths.iter().all(|path| candidate.paths.contains(path))
    }
}

/// How a snapshot is named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotReference {
    /// The newest, or the one that has `back` newer ones.
    Latest {
        /// How many newer ones are passed over.
        back: u32,
    },
    /// A name or its beginning, in lower-case hexadecimal digits.
    Name(String),
}

impl FromStr for SnapshotReference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: &str| Error::invalid(format!("'{text}' names no snapshot: {why}"));
        if text == "latest" {
            return Ok(Self::Latest { back: 0 });
        }
        if let Some(digits) = text.strip_prefix("latest~") {
            let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            return match digits.parse() {
                Ok(back) if whole => Ok(Self::Latest { back }),
                _ => Err(refused("a number must follow 'latest~'")),
            };
        }
        if text.contains('~') {
            return Err(refused("'~' may only follow 'latest'"));
        }
        let hexadecimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if text.is_empty() || text.len() > 2 * ID_BYTES || !hexadecimal {
            return Err(refused("use 'latest', 'latest~N', or a name as the listing shows it"));
        }
        Ok(Self::Name(text.to_owned()))
    }
}

impl fmt::Display for SnapshotReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest { back: 0 } => f.write_str("latest"),
            Self::Latest { back } => write!(f, "latest~{back}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The snapshot that `reference` means; `filter` applies to `latest` only.
///
/// # Errors
/// `NotFound` if there is none, `Invalid` if several share the beginning of a name.
pub fn resolve(
    reference: &SnapshotReference,
    candidates: &[Candidate],
    filter: &SnapshotFilter,
) -> Result<SessionId> {
    match reference {
        SnapshotReference::Latest { back } => resolve_latest(*back, candidates, filter),
        SnapshotReference::Name(name) => resolve_name(name, candidates),
    }
}

fn resolve_latest(
    back: u32,
    candidates: &[Candidate],
    filter: &SnapshotFilter,
) -> Result<SessionId> {
    let passing = candidates.iter().filter(|candidate| filter.matches(candidate));
    let mut left: Vec<&Candidate> = passing.collect();
    let count = left.len();
    for _ in 0..back {
        let Some(newer) = latest(&left) else { break };
        left.retain(|one| one.id != newer);
    }
    latest(&left).ok_or_else(|| {
        let why = match count {
            0 => "no snapshot fits".to_owned(),
            1 => format!("latest~{back} is asked for, but only one snapshot fits"),
            _ => format!("latest~{back} is asked for, but only {count} snapshots fit"),
        };
        Error::new(ErrorKind::NotFound, why)
    })
}

/// The one with the latest date; of those that are about as new, as clocks go, the one that is
/// known to have been saved last.
fn latest(candidates: &[&Candidate]) -> Option<SessionId> {
    let dated = candidates.iter().max_by_key(|one| (one.time_ns, one.sequence, one.id))?;
    let is_in_order = |one: &Candidate| one.sequence > 0 && !one.is_copy;
    let is_later = |one: &&&Candidate| {
        is_in_order(one)
            && one.sequence > dated.sequence
            && !is_dated_before(one.time_ns, dated.time_ns)
    };
    let later = candidates.iter().filter(is_later).filter(|_| is_in_order(dated));
    let later = later.max_by_key(|one| (one.sequence, one.time_ns, one.id));
    later.or(Some(dated)).map(|one| one.id)
}

fn resolve_name(name: &str, candidates: &[Candidate]) -> Result<SessionId> {
    let mut matches: Vec<SessionId> = candidates
        .iter()
        .map(|candidate| candidate.id)
        .filter(|id| id.to_string().starts_with(name))
        .collect();
    matches.sort_unstable();
    matches.dedup();
    match matches.as_slice() {
        [] => Err(Error::new(ErrorKind::NotFound, format!("there is no snapshot '{name}'"))),
        [id] => Ok(*id),
        several => {
            let listed = several.iter().take(MATCHES_LISTED_MAX).map(SessionId::to_string);
            let mut listed: Vec<String> = listed.collect();
            if several.len() > listed.len() {
                listed.push(format!("and {} more", several.len() - listed.len()));
            }
            Err(Error::invalid(format!(
                "'{name}' begins the names of {} snapshots: {}",
                several.len(),
                listed.join(", ")
            )))
        }
    }
}
