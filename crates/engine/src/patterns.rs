//! Patterns that select paths, with the rules of gitignore files.
//!
//! A pattern without a slash matches names at any depth; one with a slash is anchored at the root;
//! a trailing slash matches directories only; `!` takes a match back; `**` spans directories.
//! Patterns and paths are any bytes.

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
    base: Option<Arc<Base>>,
}

/// The directory that paths begin at which are matched.
#[derive(Debug)]
struct Base {
    path: Vec<u8>,
    /// Whether it, or what it lies in, is matched.
    is_matched: bool,
}

/// Patterns of which the last one that matches decides.
#[derive(Debug)]
struct Set {
    /// Patterns that are text.
    text: Compiled,
    /// Patterns that are not, spelled by [`spelled`].
    bytes: Compiled,
    any_case: bool,
    patterns: Vec<Pattern>,
}

/// Some of a set's patterns.
#[derive(Debug)]
struct Compiled {
    globs: Gitignore,
    /// The last pattern of each spelling.
    ordinals: HashMap<String, usize>,
}

/// One pattern, and what it has met.
#[derive(Debug)]
struct Pattern {
    /// As people are shown it.
    text: String,
    spelling: Spelling,
    matched: AtomicU64,
    alone: OnceLock<Set>,
}

/// A pattern as it is compiled.
#[derive(Clone, Debug)]
enum Spelling {
    Text(String),
    /// Of bytes that are no text.
    Bytes(String),
}

impl Default for Patterns {
    fn default() -> Self {
        Self::none()
    }
}

impl Patterns {
    /// Builds a set from patterns and from patterns whose case does not matter.
    pub fn build<P: AsRef<[u8]>>(exact: &[P], any_case: &[P]) -> Result<Self> {
        Ok(Self {
            exact: Arc::new(Set::build(exact, false)?),
            any_case: Arc::new(Set::build(any_case, true)?),
            base: None,
        })
    }

    /// Patterns for paths that begin at a directory: these match such a path as it is, or with the
    /// directory's own in front of it.
    #[must_use]
    pub fn below(self, base: &[u8]) -> Self {
        let (mut above, mut is_matched) = (Vec::new(), false);
        for name in base.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            above = [&above, name].join(&b'/');
            // A pattern without a slash is about names in the directory.
            is_matched |=
                self.sets().fold(false, |is_any, set| is_any | set.anchored_match(&above));
        }
        Self { base: Some(Arc::new(Base { path: above, is_matched })), ..self }
    }

    /// A set that matches nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { exact: Arc::new(Set::none()), any_case: Arc::new(Set::none()), base: None }
    }

    /// Whether there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets().all(|set| set.patterns.is_empty())
    }

    /// Whether the path is matched.
    #[must_use]
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let Some(base) = &self.base else {
            return self.matches_either(path, None, is_directory);
        };
        let whole = [&base.path, path.strip_prefix(b"/").unwrap_or(path)].join(&b'/');
        self.matches_either(path, Some(&whole), is_directory) || base.is_matched
    }

    /// Whether an item that is known by one or two paths is matched.
    #[must_use]
    pub fn matches_either(&self, path: &[u8], other: Option<&[u8]>, is_directory: bool) -> bool {
        // Both sets are asked, so that both count.
        self.sets().filter(|set| set.matches(path, other, is_directory)).count() > 0
    }

    /// Whether what matches an item depends on its being a directory. Nothing is counted.
    #[must_use]
    pub fn depend_on_kind(&self, path: &[u8], other: Option<&[u8]>) -> bool {
        let of = |set: &Set, is_directory| set.verdict(path, other, is_directory);
        self.sets().any(|set| of(set, true) != of(set, false))
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
    fn none() -> Self {
        let none = || Compiled { globs: Gitignore::empty(), ordinals: HashMap::new() };
        Self { text: none(), bytes: none(), any_case: false, patterns: Vec::new() }
    }

    fn build<P: AsRef<[u8]>>(patterns: &[P], any_case: bool) -> Result<Self> {
        // The rules of gitignore files: notes and empty lines are no patterns.
        let lines = patterns.iter().map(|line| trimmed(line.as_ref()));
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        Self::compile(lines.map(Pattern::new).collect(), any_case)
    }

    fn compile(patterns: Vec<Pattern>, any_case: bool) -> Result<Self> {
        let (mut text, mut bytes) = (Vec::new(), Vec::new());
        for (ordinal, pattern) in patterns.iter().enumerate() {
            match &pattern.spelling {
                Spelling::Text(spelling) => text.push((ordinal, spelling.as_str())),
                Spelling::Bytes(spelling) => bytes.push((ordinal, spelling.as_str())),
            }
        }
        let text = Compiled::build(&text, any_case)?;
        let bytes = Compiled::build(&bytes, any_case)?;
        Ok(Self { text, bytes, any_case, patterns })
    }

    /// Whether a pattern that begins at the root matches a directory. Each that does is counted.
    fn anchored_match(&self, directory: &[u8]) -> bool {
        let mut is_any = false;
        for pattern in self.patterns.iter().filter(|pattern| pattern.text.starts_with('/')) {
            if pattern.matches_alone(directory, None, true, self.any_case) {
                pattern.matched.fetch_add(1, Ordering::Relaxed);
                is_any = true;
            }
        }
        is_any
    }

    fn matches(&self, path: &[u8], other: Option<&[u8]>, is_directory: bool) -> bool {
        let Some((decides, is_match)) = self.verdict(path, other, is_directory) else {
            return false;
        };
        if let Some(pattern) = self.patterns.get(decides) {
            pattern.matched.fetch_add(1, Ordering::Relaxed);
        }
        // An earlier pattern has not been wasted because a later one says the same.
        for pattern in self.patterns.iter().take(decides) {
            if pattern.matched.load(Ordering::Relaxed) == 0
                && pattern.matches_alone(path, other, is_directory, self.any_case)
            {
                pattern.matched.fetch_add(1, Ordering::Relaxed);
            }
        }
        is_match
    }

    /// The pattern that decides on an item that is known by one or two paths, and whether it
    /// matches or takes a match back.
    fn verdict(
        &self,
        path: &[u8],
        other: Option<&[u8]>,
        is_directory: bool,
    ) -> Option<(usize, bool)> {
        let on = |path: &[u8]| {
            let by_text = self.text.verdict(path, is_directory);
            match self.bytes.globs.is_empty() {
                true => by_text,
                false => by_text.max(self.bytes.verdict(spelled(path).as_bytes(), is_directory)),
            }
        };
        on(path).max(other.and_then(on))
    }
}

impl Compiled {
    /// Patterns with their ordinals in the set.
    fn build(patterns: &[(usize, &str)], any_case: bool) -> Result<Self> {
        let wrong =
            |error: ignore::Error| Error::invalid(format!("this pattern cannot be used: {error}"));
        let mut builder = GitignoreBuilder::new("/");
        builder.case_insensitive(any_case).map_err(wrong)?;
        let mut ordinals = HashMap::new();
        for (ordinal, pattern) in patterns {
            refuse_open_class(pattern)?;
            builder.add_line(None, pattern).map_err(wrong)?;
            ordinals.insert((*pattern).to_owned(), *ordinal);
        }
        Ok(Self { globs: builder.build().map_err(wrong)?, ordinals })
    }

    fn verdict(&self, path: &[u8], is_directory: bool) -> Option<(usize, bool)> {
        let found = self.globs.matched(Path::new(OsStr::from_bytes(path)), is_directory);
        let glob = found.inner()?;
        let ordinal = self.ordinals.get(glob.original()).copied().unwrap_or(0);
        Some((ordinal, matches!(found, Match::Ignore(_))))
    }
}

impl Pattern {
    fn new(line: &[u8]) -> Self {
        let (text, spelling) = match std::str::from_utf8(line) {
            Ok(text) => (text.to_owned(), Spelling::Text(text.to_owned())),
            Err(_) => (line.escape_ascii().to_string(), Spelling::Bytes(spelled(line))),
        };
        Self { text, spelling, matched: AtomicU64::new(0), alone: OnceLock::new() }
    }

    fn matches_alone(
        &self,
        path: &[u8],
        other: Option<&[u8]>,
        is_directory: bool,
        any_case: bool,
    ) -> bool {
        let alone = self.alone.get_or_init(|| {
            let (text, spelling) = (String::new(), self.spelling.clone());
            let (matched, alone) = (AtomicU64::new(0), OnceLock::new());
            let pattern = Self { text, spelling, matched, alone };
            // It was compiled with the others before.
            Set::compile(vec![pattern], any_case).unwrap_or_else(|_| Set::none())
        });
        alone.verdict(path, other, is_directory).is_some()
    }
}

/// Bytes as text, one letter for each: patterns are compiled from text. Those above 127 become
/// letters that are no blanks.
fn spelled(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match byte.is_ascii() {
        true => char::from(*byte),
        false => char::from_u32(0x100 + u32::from(*byte)).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    bytes.iter().map(letter).collect()
}

/// The pattern without blanks at its end, as the rules want it.
fn trimmed(line: &[u8]) -> &[u8] {
    match (line.ends_with(b"\\ "), std::str::from_utf8(line)) {
        (true, _) => line,
        (false, Ok(text)) => text.trim_end().as_bytes(),
        (false, Err(_)) => line.trim_ascii_end(),
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
    fn r100_patterns_are_of_paths_from_a_base_or_from_the_root() {
        for (pattern, path, expected) in [
            ("/base", "/f", true),
            ("/base/of", "/f", true),
            ("/base/of/", "/f", true),
            ("/*/of", "/f", true),
            ("/base/of/d/f", "/d/f", true),
            ("/base/**/f", "/d/f", true),
            ("/*/of/d/f", "/d/f", true),
            ("/d/f", "/d/f", true),
            ("f", "/d/f", true),
            ("/bas", "/f", false),
            ("/base/other", "/f", false),
            ("of", "/f", false),
            ("/f", "/d/f", false),
        ] {
            let patterns = Patterns::build(&[pattern], &[]).unwrap().below(b"/base/of");
            assert_eq!(patterns.matches(path.as_bytes(), false), expected, "{pattern} on {path}");
            let is_counted = patterns.counts().all(|(_, count)| count > 0);
            assert_eq!(is_counted, expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn r101_patterns_are_any_bytes() {
        let exact: [&[u8]; 4] =
            [b"lat\xe9in\r", b"/d\xffr/*\xa0", b"\xc3\xa9t\xe9", b"!lat\xe9in.x"];
        let patterns = Patterns::build(&exact, &[b"B\xe9".as_slice()]).unwrap();
        for (path, expected) in [
            (&b"/x/lat\xe9in"[..], true),
            (b"/x/lat\xc3\xa9in", false),
            (b"/d\xffr/some \xa0", true),
            (b"/d\xffr/some", false),
            (b"/\xc3\xa9t\xe9", true),
            (b"/b\xe9", true),
            (b"/b\xc9", false),
        ] {
            assert_eq!(patterns.matches(path, false), expected, "{}", path.escape_ascii());
        }
        let shown: Vec<&str> = patterns.counts().map(|(text, _)| text).collect();
        assert_eq!(shown, ["lat\\xe9in", "/d\\xffr/*\\xa0", "\\xc3\\xa9t\\xe9", "B\\xe9"]);
        // The last one that matches decides, text or not.
        let both: [&[u8]; 3] = [b"*.x", b"!\xe9.x", b"/deep/*"];
        let patterns = Patterns::build(&both, &[]).unwrap();
        assert!(patterns.matches(b"/a.x", false) && !patterns.matches(b"/\xe9.x", false));
        assert!(patterns.matches(b"/deep/\xe9.x", false));
    }

    #[test]
    fn r101_what_depends_on_the_kind_of_an_item_is_known() {
        let patterns = Patterns::build(&["cache/", "*.o", "!keep/", "keep"], &[]).unwrap();
        for (path, expected) in
            [(&b"/cache"[..], true), (b"/a.o", false), (b"/other", false), (b"/keep", false)]
        {
            assert_eq!(patterns.depend_on_kind(path, None), expected);
        }
        assert!(patterns.depend_on_kind(b"/x", Some(b"/y/cache")));
        assert!(patterns.counts().all(|(_, count)| count == 0));
    }

    #[test]
    fn an_impossible_pattern_is_refused() {
        for wrong in ["[z-a]", "[", "a[", "x[!]", "[]", "\\\\[a", "a{b"] {
            assert!(Patterns::build(&[wrong], &[]).is_err(), "{wrong}");
            assert!(Patterns::build(&[], &[wrong]).is_err(), "{wrong}");
        }
        for right in ["\\[", "[[]", "[]]", "[!]a]x", "# [", ""] {
            assert!(Patterns::build(&[right], &[]).is_ok(), "{right}");
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
