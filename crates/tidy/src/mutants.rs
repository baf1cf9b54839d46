//! Mutants: the code broken on purpose, one place at a time, each with the test that must notice.
//!
//! `crates/tidy/mutants.toml` lists them. A mutant is a text that stands exactly once in a file,
//! what replaces it, and a test: a package, one of its test binaries, and a part of test names.
//! `src/bin/mutants.rs` builds and runs them; here they are read and checked without building.

use crate::files;
use serde::Deserialize;

/// Where the list is.
pub const LIST: &str = "crates/tidy/mutants.toml";
/// Stands for the tests of a library itself.
const LIBRARY: &str = "lib";

/// One way to break the code.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its name.
    pub name: String,
    /// The rule that it breaks, in words.
    pub breaks: String,
    /// The file, by path from the root.
    pub file: String,
    /// What stands there, exactly once.
    pub find: String,
    /// What stands there instead.
    pub replace: String,
    /// The package whose test must fail.
    pub package: String,
    /// The test binary, or `lib`: the library's own tests.
    pub test: String,
    /// What is part of the names of the tests run.
    pub filter: String,
    /// What the failing test must say, if it is not enough that it fails.
    #[serde(default)]
    pub says: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

/// Reads the list.
///
/// # Errors
/// What is wrong with its form, in words.
pub fn list() -> Result<Vec<Mutant>, String> {
    toml::from_str::<List>(&files::read(LIST)).map(|list| list.mutant).map_err(|e| e.to_string())
}

impl Mutant {
    /// The broken text of the file.
    ///
    /// # Errors
    /// Why the mutant does not apply, in words.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 if self.find == self.replace => Err("it changes nothing".to_owned()),
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(format!("its text stands {count} times in {}", self.file)),
        }
    }

    /// The arguments of cargo that run the test.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let words = ["test", "--locked", "-p", &self.package, "--test", &self.test, &self.filter];
        let of_library = ["test", "--locked", "-p", &self.package, "--lib", &self.filter];
        let words = if self.test == LIBRARY { of_library.as_slice() } else { &words };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// What is wrong with it, as far as can be told without building.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match files::exists(&self.file) {
            true => problems.extend(self.apply(&files::read(&self.file)).err()),
            false => problems.push(format!("there is no {}", self.file)),
        }
        let directory = self.package.trim_start_matches("onefold-");
        let place = match self.test.as_str() {
            LIBRARY => format!("crates/{directory}/src"),
            test => format!("crates/{directory}/tests/{test}"),
        };
        let mut sources = files::below(&place);
        if files::exists(&format!("{place}.rs")) {
            sources.extend(files::below(&format!("crates/{directory}/tests")));
        }
        let wanted = self.filter.rsplit("::").next().unwrap_or_default();
        let is_test = |text: &str| {
            let mut after = text.split("#[test]").skip(1);
            after.any(|rest| {
                let name = rest.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
                name.is_some_and(|name| name.contains(wanted))
            })
        };
        if !sources.iter().any(|file| is_test(&file.text())) {
            problems.push(format!("no test of {place} has '{wanted}' in its name"));
        }
        problems.iter().map(|problem| format!("{}: {problem}", self.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(find: &str, replace: &str) -> Mutant {
        Mutant {
            name: "m".into(),
            breaks: String::new(),
            file: "f".into(),
            find: find.into(),
            replace: replace.into(),
            package: String::new(),
            test: String::new(),
            filter: String::new(),
            says: None,
        }
    }

    #[test]
    fn a_mutant_applies_where_its_text_stands_once() {
        assert_eq!(mutant("b", "x").apply("abc").unwrap(), "axc");
        assert!(mutant("b", "x").apply("abcb").unwrap_err().contains("2 times"));
        assert!(mutant("d", "x").apply("abc").unwrap_err().contains("0 times"));
        assert!(mutant("b", "b").apply("abc").unwrap_err().contains("nothing"));
    }
}
