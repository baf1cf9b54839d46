//! Lists of tags: what a snapshot must carry to pass a filter, or to be kept.

use onefold_types::{Error, Result};
use std::str::FromStr;

/// Tags of which a snapshot must carry all; the empty list fits snapshots without tags only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagList(Vec<String>);

impl TagList {
    /// The tags.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Whether a snapshot with these tags fits.
    #[must_use]
    pub fn matches(&self, tags: &[String]) -> bool {
        if self.0.is_empty() {
            return tags.is_empty();
        }
        self.0.iter().all(|name| tags.contains(name))
    }
}

impl FromStr for TagList {
    type Err = Error;

    /// A comma list; the empty text stands for "no tags".
    fn from_str(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err(Error::invalid(format!("'{text}' contains an empty tag")));
        }
        Ok(Self(names))
    }
}
