//! Patterns that select paths, with the rules of gitignore files.
//!
//! A pattern without a slash matches names at any depth; one with a slash is anchored at the root;
//! a trailing slash matches directories only; `!` takes a match back; `**` spans directories.

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use onefold_types::{Error, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A set of patterns, matched against absolute paths.
#[derive(Clone, Debug)]
pub struct Patterns {
    exact: Gitignore,
    any_case: Gitignore,
}

impl Patterns {
    /// Builds a set from patterns and from patterns whose case does not matter.
    pub fn build(exact: &[String], any_case: &[String]) -> Result<Self> {
        Ok(Self { exact: set(exact, false)?, any_case: set(any_case, true)? })
    }

    /// A set that matches nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { exact: Gitignore::empty(), any_case: Gitignore::empty() }
    }

    /// Whether there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.any_case.is_empty()
    }

    /// Whether the path is matched, by itself or by a directory above it if `with_parents`.
    #[must_use]
    pub fn matches(&self, path: &[u8], is_directory: bool, with_parents: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        [&self.exact, &self.any_case].into_iter().any(|set| {
            let matched = match with_parents {
                true => set.matched_path_or_any_parents(path, is_directory),
                false => set.matched(path, is_directory),
            };
            matched.is_ignore()
        })
    }
}

fn set(patterns: &[String], any_case: bool) -> Result<Gitignore> {
    let wrong =
        |error: ignore::Error| Error::invalid(format!("this pattern cannot be used: {error}"));
    let mut builder = GitignoreBuilder::new("/");
    builder.case_insensitive(any_case).map_err(wrong)?;
    for pattern in patterns {
        builder.add_line(None, pattern).map_err(wrong)?;
    }
    builder.build().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_follow_gitignore() {
        let exact = ["*.o", "/a/b/", "cache/", "!keep.o"].map(String::from);
        let patterns = Patterns::build(&exact, &["*.TMP".to_owned()]).unwrap();
        for (path, is_directory, expected) in [
            ("/x/y.o", false, true),
            ("/x/keep.o", false, false),
            ("/a/b", true, true),
            ("/x/a/b", true, false),
            ("/x/cache", true, true),
            ("/x/cache", false, false),
            ("/q.tmp", false, true),
            ("/q.TMPX", false, false),
        ] {
            assert_eq!(patterns.matches(path.as_bytes(), is_directory, false), expected, "{path}");
        }
        assert!(patterns.matches(b"/a/b/c/d", false, true));
        assert!(Patterns::none().is_empty() && !patterns.is_empty());
    }

    #[test]
    fn an_impossible_pattern_is_refused() {
        assert!(Patterns::build(&["[z-a]".to_owned()], &[]).is_err());
    }
}
