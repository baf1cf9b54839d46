//! Patterns that select paths, with the rules of gitignore files.
//!
//! A pattern without a slash matches names at any depth; one with a slash is anchored at the root;
//! a trailing slash matches directories only; `!` takes a match back; `**` spans directories.

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use onefold_types::{Error, Result};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A set of patterns, matched against absolute paths. Clones count together.
#[derive(Clone, Debug)]
pub struct Patterns {
    exact: Arc<Set>,
    any_case: Arc<Set>,
}

/// Patterns of which the last one that matches decides.
#[derive(Debug)]
struct Set {
    compiled: Gitignore,
    any_case: bool,
    patterns: Vec<Pattern>,
    /// The last pattern of each spelling.
    ordinals: HashMap<String, usize>,
}

/// One pattern, and what it has met.
#[derive(Debug)]
struct Pattern {
    text: String,
    matched: AtomicU64,
    alone: OnceLock<Gitignore>,
}

impl Default for Patterns {
    fn default() -> Self {
        Self::none()
    }
}

impl Patterns {
    /// Builds a set from patterns and from patterns whose case does not matter.
    pub fn build(exact: &[String], any_case: &[String]) -> Result<Self> {
        Ok(Self {
            exact: Arc::new(Set::build(exact, false)?),
            any_case: Arc::new(Set::build(any_case, true)?),
        })
    }

    /// A set that matches nothing.
    #[must_use]
    pub fn none() -> Self {
        let none = || {
            Arc::new(Set {
                compiled: Gitignore::empty(),
                any_case: false,
                patterns: Vec::new(),
                ordinals: HashMap::new(),
            })
        };
        Self { exact: none(), any_case: none() }
    }

    /// Whether there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets().all(|set| set.compiled.is_empty())
    }

    /// Whether the path is matched.
    #[must_use]
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        self.matches_either(path, None, is_directory)
    }

    /// Whether an item that is known by one or two paths is matched.
    #[must_use]
    pub fn matches_either(&self, path: &[u8], other: Option<&[u8]>, is_directory: bool) -> bool {
        // Both sets are asked, so that both count.
        self.sets().filter(|set| set.matches(path, other, is_directory)).count() > 0
    }

    /// The patterns and how many items each has matched; those that take matches back are left out.
    pub fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sets()
            .flat_map(|set| &set.patterns)
            .filter(|pattern| !pattern.text.starts_with('!'))
            .map(|pattern| (pattern.text.as_str(), pattern.matched.load(Ordering::Relaxed)))
    }

    /// Counts from nothing again: a backup that starts over meets everything once more.
    pub fn count_anew(&self) {
        for pattern in self.sets().flat_map(|set| &set.patterns) {
            pattern.matched.store(0, Ordering::Relaxed);
        }
    }

    fn sets(&self) -> impl Iterator<Item = &Set> {
        [&*self.exact, &*self.any_case].into_iter()
    }
}

impl Set {
    fn build(patterns: &[String], any_case: bool) -> Result<Self> {
        // The rules of gitignore files: notes and empty lines are no patterns.
        let lines = patterns.iter().map(|line| trimmed(line));
        let lines: Vec<&str> =
            lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        for line in &lines {
            refuse_open_class(line)?;
        }
        Ok(Self {
            compiled: compile(&lines, any_case)?,
            any_case,
            ordinals: lines.iter().enumerate().map(|(at, line)| (line.to_string(), at)).collect(),
            patterns: lines
                .into_iter()
                .map(|line| Pattern {
                    text: line.to_owned(),
                    matched: AtomicU64::new(0),
                    alone: OnceLock::new(),
                })
                .collect(),
        })
    }

    fn matches(&self, path: &[u8], other: Option<&[u8]>, is_directory: bool) -> bool {
        let paths = || [Some(path), other].into_iter().flatten();
        let verdict = |path| {
            let found = self.compiled.matched(as_path(path), is_directory);
            let glob = found.inner()?;
            let ordinal = self.ordinals.get(glob.original()).copied().unwrap_or(0);
            Some((ordinal, matches!(found, Match::Ignore(_))))
        };
        let Some((decides, is_match)) = paths().filter_map(verdict).max() else {
            return false;
        };
        if let Some(pattern) = self.patterns.get(decides) {
            pattern.matched.fetch_add(1, Ordering::Relaxed);
        }
        // An earlier pattern has not been wasted because a later one says the same.
        for pattern in self.patterns.iter().take(decides) {
            if pattern.matched.load(Ordering::Relaxed) == 0
                && paths().any(|path| pattern.matches_alone(path, is_directory, self.any_case))
            {
                pattern.matched.fetch_add(1, Ordering::Relaxed);
            }
        }
        is_match
    }
}

impl Pattern {
    fn matches_alone(&self, path: &[u8], is_directory: bool, any_case: bool) -> bool {
        let alone = self.alone.get_or_init(|| {
            // It was compiled with the others before.
            compile(&[&self.text], any_case).unwrap_or_else(|_| Gitignore::empty())
        });
        !alone.matched(as_path(path), is_directory).is_none()
    }
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// The pattern without blanks at its end, as the rules want it.
fn trimmed(line: &str) -> &str {
    match line.ends_with("\\ ") {
        true => line,
        false => line.trim_end(),
    }
}

/// A class that is not closed would be taken for a bracket, which nobody means.
fn refuse_open_class(pattern: &str) -> Result<()> {
    let mut rest = pattern.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => {
                rest.next();
            }
            '[' => {
                rest.next_if(|next| matches!(next, '!' | '^'));
                // As its first letter the closing bracket stands for itself.
                rest.next_if(|next| *next == ']');
                if !rest.by_ref().any(|next| next == ']') {
                    return Err(Error::invalid(format!(
                        "the pattern '{pattern}' cannot be used: '[' is not closed; for a name \
                         with this letter write '\\['"
                    )));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn compile(patterns: &[&str], any_case: bool) -> Result<Gitignore> {
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
            assert_eq!(patterns.matches(path.as_bytes(), is_directory), expected, "{path}");
        }
        assert!(Patterns::none().is_empty() && !patterns.is_empty());
    }

    #[test]
    fn an_impossible_pattern_is_refused() {
        for wrong in ["[z-a]", "[", "a[", "x[!]", "[]", "\\\\[a", "a{b"] {
            assert!(Patterns::build(&[wrong.to_owned()], &[]).is_err(), "{wrong}");
            assert!(Patterns::build(&[], &[wrong.to_owned()]).is_err(), "{wrong}");
        }
        for right in ["\\[", "[[]", "[]]", "[!]a]x", "# [", ""] {
            assert!(Patterns::build(&[right.to_owned()], &[]).is_ok(), "{right}");
        }
    }

    #[test]
    fn r85_every_pattern_counts_what_it_meets() {
        let exact = ["/a/b", "*.o", "b", "nothing", "!keep.o", "/stored/x"].map(String::from);
        let patterns = Patterns::build(&exact, &["B".to_owned(), "zzz ".to_owned()]).unwrap();
        assert!(patterns.matches(b"/a/b", true));
        assert!(!patterns.matches(b"/a/keep.o", false));
        assert!(patterns.matches_either(b"/x", Some(b"/stored/x"), false));
        assert!(!patterns.matches_either(b"/x.o", Some(b"/stored/keep.o"), false));
        let unmatched: Vec<&str> =
            patterns.counts().filter(|(_, count)| *count == 0).map(|(text, _)| text).collect();
        // '/a/b' matched what 'b' decided, '*.o' what was taken back.
        assert_eq!(unmatched, ["nothing", "zzz"]);
    }
}
