//! House style, as far as a machine can see it (docs/HACKING.md).

use crate::no_findings;
use onefold_tidy::files::{self, File};
use onefold_tidy::source;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Files that may be longer, each with the reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// Functions that may be longer (file, function), each with the reason.
const LONG_FUNCTIONS: [(&str, &str, &str); 0] = [];

/// Crates in which nothing touches the world, and what that rules out.
const PURE: [&str; 5] = ["types", "chunking", "format", "policy", "crypto"];
const WORLD: [&str; 3] = ["fs", "thread", "net"];
const CLOCKS: [&str; 2] = ["SystemTime", "Instant"];

/// Modules of unit tests: their header is that of the module they test.
fn is_test_module(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name == "tests.rs" || name.starts_with("tests_")
}

#[test]
fn every_file_begins_with_a_header() {
    let findings: Vec<String> = files::rust()
        .iter()
        .filter(|file| !is_test_module(&file.path) && !file.text().starts_with("//! "))
        .map(|file| file.path.clone())
        .collect();
    no_findings("the first line says what the file is for (//! ...)", &findings);
}

#[test]
fn no_file_is_too_long() {
    let findings: Vec<String> = files::rust()
        .iter()
        .map(|file| (file, file.text().lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .filter(|(file, _)| !LONG_FILES.iter().any(|(path, _)| *path == file.path))
        .map(|(file, lines)| format!("{}: {lines} lines", file.path))
        .collect();
    no_findings(&format!("a file has at most {FILE_LINES_MAX} lines"), &findings);
}

#[test]
fn no_function_is_too_long() {
    let mut findings = Vec::new();
    for file in files::rust() {
        for function in source::functions(&source::parts(&file.text()).code) {
            let allowed = LONG_FUNCTIONS
                .iter()
                .any(|(path, name, _)| *path == file.path && *name == function.name);
            if function.lines > FUNCTION_LINES_MAX && !allowed {
                let source::Function { name, line, lines } = function;
                findings.push(format!("{}:{line}: {name} has {lines} lines", file.path));
            }
        }
    }
    no_findings(&format!("a function has at most {FUNCTION_LINES_MAX} lines"), &findings);
}

#[test]
fn no_line_is_too_wide() {
    let mut findings = Vec::new();
    for file in files::rust() {
        for (number, line) in file.text().lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !cannot_be_broken(line) {
                findings.push(format!("{}:{}: {columns} columns", file.path, number + 1));
            }
        }
    }
    no_findings(&format!("a line has at most {COLUMNS_MAX} columns"), &findings);
}

/// Rows of tables in comments; addresses.
fn cannot_be_broken(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//! |") || line.starts_with("/// |") || line.contains("https://")
}

#[test]
fn nothing_is_left_unfinished() {
    let mut findings = Vec::new();
    for file in files::rust() {
        let parts = source::parts(&file.text());
        let mut find = |text: &str, words: &[&str]| {
            for (number, line) in text.lines().enumerate() {
                for word in words.iter().filter(|word| line.contains(**word)) {
                    findings.push(format!("{}:{}: {word}", file.path, number + 1));
                }
            }
        };
        find(&parts.comments, &["TODO", "FIXME", "XXX"]);
        find(&parts.code, &["todo!", "unimplemented!", "dbg!", "#[ignore", "#[should_panic"]);
        find(&parts.code, &["allow(dead_code)", "expect(dead_code)"]);
        // Helpers that several test binaries share say so.
        if !file.path.contains("/tests/") {
            find(&parts.code, &["allow(dead_code,", "expect(dead_code,"]);
        }
    }
    no_findings("what is there is finished and used", &findings);
}

#[test]
fn pure_crates_touch_nothing() {
    let mut findings = Vec::new();
    for file in files::rust() {
        let is_pure = |name: &str| file.path.starts_with(&format!("crates/{name}/src/"));
        if PURE.iter().any(|name| is_pure(name)) && !is_test_module(&file.path) {
            findings.extend(touches(&file));
        }
    }
    no_findings("no files, threads or clocks in a pure crate", &findings);
}

fn touches(file: &File) -> Vec<String> {
    let code = source::parts(&file.text()).code;
    let code = source::without_tests(&code);
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let direct = |module: &&str| line.contains(&format!("std::{module}"));
        let grouped = |module: &&str| {
            line.split_once("std::{").is_some_and(|(_, group)| {
                group.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *module)
            })
        };
        for module in WORLD.iter().filter(|module| direct(module) || grouped(module)) {
            findings.push(format!("{}:{}: std::{module}", file.path, number + 1));
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        for word in line.split(|c| !is_word(c)).filter(|word| CLOCKS.contains(word)) {
            findings.push(format!("{}:{}: {word}", file.path, number + 1));
        }
    }
    findings
}

#[test]
fn every_file_is_part_of_a_crate() {
    let files = files::rust();
    let mut findings = Vec::new();
    for file in &files {
        let parts: Vec<&str> = file.path.split('/').collect();
        let [.., folder, name] = parts.as_slice() else {
            continue;
        };
        let is_root = matches!(*name, "lib.rs" | "main.rs" | "build.rs")
            || *folder == "bin"
            || (parts.len() == 4 && matches!(*folder, "tests" | "examples" | "benches"));
        if is_root {
            continue;
        }
        let (directory, module) = match *name {
            "mod.rs" => (&parts[..parts.len() - 2], *folder),
            name => (&parts[..parts.len() - 1], name.trim_end_matches(".rs")),
        };
        let directory = directory.join("/");
        let declared = format!("mod {module};");
        let is_parent = |path: &str| {
            path == format!("{directory}.rs")
                || ["mod.rs", "lib.rs", "main.rs"]
                    .iter()
                    .any(|name| path == format!("{directory}/{name}"))
                // A file of tests beside its siblings, which may declare it.
                || path.starts_with(&format!("{directory}/"))
        };
        let found =
            files.iter().any(|other| is_parent(&other.path) && other.text().contains(&declared));
        if !found {
            findings.push(file.path.clone());
        }
    }
    no_findings("no 'mod' names these files, so nothing compiles them", &findings);
}
