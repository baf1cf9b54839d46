//! The names of objects: relative paths that mean the same on every backend.
//!
//! Invariant: a key can never leave the store, hit the local store's own files, or be spelt in two
//! ways. Case-insensitive filesystems are safe because upper-case letters are refused.

use onefold_types::{Error, Result};
use std::borrow::Borrow;
use std::fmt;

/// The most components a key may have.
pub const COMPONENTS_MAX: usize = 4;
/// The longest component.
pub const COMPONENT_MAX_BYTES: usize = 200;
/// Top-level names that belong to the local store itself.
pub const RESERVED: [&str; 2] = ["tmp", "reserve"];

/// The name of an object: 1 to 4 components of `[a-z0-9._-]`, such as `containers/3f/3f9a`.
///
/// The components `.` and `..` are refused, and so are the top-level names in [`RESERVED`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// `Invalid` for anything that is not such a path.
    pub fn new(text: impl Into<String>) -> Result<Key> {
        let text = text.into();
        check(&text)?;
        Ok(Key(text))
    }

    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first component.
    #[must_use]
    pub fn top(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// Directory and last component; the directory of a single component is empty.
    pub(crate) fn split(&self) -> (&str, &str) {
        split(&self.0)
    }
}

// Equal and ordered as its text, so that maps can be asked by text.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Directory and last component of a path.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Refuses a prefix that is neither empty nor shaped like a key.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.is_empty() { Ok(()) } else { check(prefix) }
}

/// `directory/name`, or `name` alone where the directory is the store itself.
pub(crate) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Whether `name` can be one component of a key.
pub(crate) fn is_component(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c);
    (1..=COMPONENT_MAX_BYTES).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(allowed)
}

fn check(text: &str) -> Result<()> {
    let mut components = 0;
    for component in text.split('/') {
        components += 1;
        if components > COMPONENTS_MAX || !is_component(component) {
            return Err(refusal(text));
        }
    }
    if RESERVED.contains(&text.split('/').next().unwrap_or_default()) {
        return Err(refusal(text));
    }
    Ok(())
}

fn refusal(text: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::invalid(format!("{shown:?} is not the name of a stored object"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_taken_whole() {
        for text in ["config", "containers/3f/3f9a", "a/b/c/d", ".x", "index/run-1.2_3"] {
            assert_eq!(Key::new(text).unwrap().as_str(), text);
        }
        let key = Key::new("containers/3f/3f9a").unwrap();
        assert_eq!((key.top(), key.split()), ("containers", ("containers/3f", "3f9a")));
        assert_eq!(Key::new("config").unwrap().split(), ("", "config"));
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "a".repeat(COMPONENT_MAX_BYTES + 1);
        let hostile = [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "a/b/c/d/e",
            "A",
            "a b",
            "a\0",
            "é",
            "a\\b",
            "a:b",
            "tmp",
            "tmp/x",
            "reserve",
            "~",
            "a\n",
            &long,
        ];
        for text in hostile {
            assert!(Key::new(text).is_err(), "{text:?}");
            assert_eq!(check_prefix(text).is_ok(), text.is_empty(), "{text:?}");
        }
    }
}
