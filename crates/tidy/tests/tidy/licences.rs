//! `THIRD-PARTY-LICENSES.txt`: the texts that go with the program, of each package whose code is in
//! it. The program holds the file and prints it (`onefold version --licences`).
//!
//! The texts are those in the sources of the packages, which are there after a build. Of several
//! licences that a package may be had under, the first that `deny.toml` names is taken, and the
//! texts of the others are left out. A text that many packages have is there once, with the title
//! and the copyright that each of them has above it.

use crate::supply::{self, Package};
use onefold_tidy::files;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const FILE: &str = "THIRD-PARTY-LICENSES.txt";
/// What programs are built for. On ARM the packages are these as well.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const HEAD: &str = "\
Licences of what is in the program onefold

The program itself is under Apache-2.0 or MIT, at your choice. It contains code of the packages
below, each under its own licence. Where a package may be had under one of several, the one after
the arrow is taken. The texts follow, each with the packages that it is of.

The program also contains Rust's standard library. Copyright: The Rust Project Developers, The
Crossbeam Project Developers, Alex Crichton, Orson Peters, and others that Rust's own
COPYRIGHT-library.html names. It is taken under Apache-2.0, its tables of Unicode under
Unicode-3.0, and its hash function foldhash under Zlib; these texts are below.
";
/// What the name of a file says about whose text it holds; the first that fits counts.
const NAMES: [(&str, &str); 13] = [
    ("llvm", "LLVM-exception"),
    ("apache", "Apache-2.0"),
    ("_a2", "Apache-2.0"),
    ("mit0", "MIT-0"),
    ("mit-0", "MIT-0"),
    ("mit", "MIT"),
    ("unlicense", "Unlicense"),
    ("cc0", "CC0"),
    ("boost", "BSL"),
    ("zlib", "Zlib"),
    ("bsd", "BSD"),
    ("isc", "ISC"),
    ("lgpl", "LGPL"),
];
/// Words that only the text of a licence has.
const MARKS: [(&str, &str); 6] = [
    ("MIT", "Permission is hereby granted, free of charge, to any person"),
    ("Apache-2.0", "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"),
    ("BSD-3-Clause", "Redistribution and use in source and binary forms"),
    ("ISC", "Permission to use, copy, modify, and/or distribute this software"),
    ("Zlib", "This software is provided 'as-is', without any express or implied"),
    ("Unicode-3.0", "UNICODE LICENSE V3"),
];
/// The licence that gives its text without anybody's name.
const STANDARD: &str = "Apache-2.0";
/// Texts of licences that nobody has to take, though no name says so.
const NOT_TAKEN: [(&str, &str); 1] = [("zstd-sys", "zstd/COPYING")];
const RULE: &str = "\
================================================================================================
";

/// A text, without what stands above it.
struct Body {
    text: String,
    /// What stands above it, with the packages that it is of.
    heads: BTreeMap<String, Vec<String>>,
}

/// The packages whose code is in the program.
fn contained() -> Vec<Package> {
    let arguments = ["tree", "--locked", "--package", "onefold-cli", "--target", TARGET];
    let rest = ["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"];
    let tree = supply::cargo(&[&arguments[..], &rest[..]].concat());
    let mut described: BTreeMap<(String, String), Package> =
        supply::packages(&["--filter-platform", TARGET])
            .into_iter()
            .map(|package| ((package.name.clone(), package.version.clone()), package))
            .collect();
    let mut found: BTreeMap<(String, String), Package> = BTreeMap::new();
    for line in tree.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            let key = (name.to_owned(), version.trim_start_matches('v').to_owned());
            // What is not there a second time, or is the project's own.
            if let Some(package) = described.remove(&key) {
                found.insert(key, package);
            }
        }
    }
    found.into_values().collect()
}

/// The files of a package that may hold texts, by path from its root.
fn texts(package: &Package) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(&package.directory, "", &mut found);
    found.retain(|path, _| !NOT_TAKEN.contains(&(package.name.as_str(), path.as_str())));
    found
}

fn walk(root: &Path, directory: &str, found: &mut BTreeMap<String, String>) {
    let entries = fs::read_dir(root.join(directory))
        .unwrap_or_else(|error| panic!("{}: {error}: run cargo fetch", root.display()));
    for entry in entries.map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{directory}{name}");
        if entry.file_type().unwrap().is_dir() {
            walk(root, &format!("{path}/"), found);
        } else if is_text(directory, &name.to_lowercase()) {
            let bytes = fs::read(entry.path()).unwrap();
            let text =
                String::from_utf8_lossy(&bytes).replace('\u{feff}', "").replace('\t', "    ");
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            found.insert(path, lines.join("\n").trim_matches('\n').to_owned());
        }
    }
}

fn is_text(directory: &str, name: &str) -> bool {
    let begins = ["license", "licence", "copying", "copyright", "notice", "unlicense", "authors"];
    let code = [".rs", ".c", ".h", ".py", ".sh", ".go", ".json", ".toml", ".html"];
    let named = begins.iter().any(|begin| name.starts_with(begin));
    let is_code = code.iter().any(|ending| name.ends_with(ending));
    (named || directory.ends_with("LICENSES/")) && !is_code
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `licence` is among those that `expression` names.
fn names(expression: &str, licence: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "-.".contains(c);
    expression.split(|c| !is_part(c)).any(|word| word.starts_with(licence))
}

/// The licences a package is taken under, and the texts that go with them, if all are there.
fn taken(package: &Package, preferred: &[spdx::Licensee]) -> Result<Taken, Taken> {
    let expression = spdx::Expression::parse_mode(&package.licence, spdx::ParseMode::LAX).unwrap();
    let chosen = expression.minimized_requirements(preferred).unwrap();
    let chosen: Vec<String> = chosen.iter().map(ToString::to_string).collect();
    let licence = chosen.join(" AND ");
    let mut texts = texts(package);
    texts.retain(|path, _| {
        let path = path.to_lowercase();
        let name = NAMES.iter().find(|(part, _)| path.contains(part));
        name.is_none_or(|(_, of)| names(&licence, of) || !names(&package.licence, of))
    });
    let has = |licence: &&String| {
        MARKS.iter().any(|(of, mark)| {
            of == licence && texts.values().any(|text| words(text).contains(&words(mark)))
        })
    };
    let missing = chosen.iter().filter(|licence| !has(licence)).cloned().collect();
    let taken = Taken { licence, texts, missing };
    if taken.missing.is_empty() { Ok(taken) } else { Err(taken) }
}

struct Taken {
    licence: String,
    texts: BTreeMap<String, String>,
    missing: Vec<String>,
}

/// Takes the preferred licence whose text the package has, or else the one whose text is the same
/// everywhere.
fn take(package: &Package, preferred: &[spdx::Licensee]) -> Taken {
    taken(package, preferred).unwrap_or_else(|_| {
        let mut preferred = preferred.to_vec();
        preferred.sort_by_key(|licence| licence.to_string() != STANDARD);
        taken(package, &preferred).unwrap_or_else(|mut taken| {
            let named = format!("{} {}", package.name, package.version);
            assert!(taken.missing == [STANDARD], "{named} holds no text of {:?}", taken.missing);
            let standard = files::read("LICENSE-APACHE").trim_matches('\n').to_owned();
            taken.texts.insert("LICENSE-APACHE".into(), standard);
            taken
        })
    })
}

/// A text taken apart: what stands above, and the rest.
fn parted(text: &str) -> (&str, &str) {
    let begins = ["Permission is hereby granted", "Permission to use", "Redistribution and use"];
    let more = ["This software is provided 'as-is'"];
    let first = begins.iter().chain(&more).filter_map(|begin| text.find(begin)).min().unwrap_or(0);
    let (head, body) = text.split_at(first);
    // What is no list of names is part of the text.
    if head.lines().count() > 12 || !head.ends_with('\n') { ("", text) } else { (head, body) }
}

fn whole() -> String {
    let preferred = supply::allowed();
    let mut list = String::new();
    let mut bodies: BTreeMap<String, Body> = BTreeMap::new();
    for package in contained() {
        let named = format!("{} {}", package.name, package.version);
        let taken = take(&package, &preferred);
        let _ = match taken.licence == package.licence {
            true => writeln!(list, "{named}: {}", package.licence),
            false => writeln!(list, "{named}: {} -> {}", package.licence, taken.licence),
        };
        for text in taken.texts.values() {
            let (head, body) = parted(text);
            let lines = head.lines().map(str::trim).filter(|line| !line.is_empty());
            let head: String = lines.map(|line| format!("    {line}\n")).collect();
            let body = bodies
                .entry(words(body))
                .or_insert_with(|| Body { text: body.to_owned(), heads: BTreeMap::new() });
            let packages = body.heads.entry(head).or_default();
            if packages.last() != Some(&named) {
                packages.push(named.clone());
            }
        }
    }
    let mut text = format!("{HEAD}\n{RULE}\n{list}");
    let mut bodies: Vec<Body> = bodies.into_values().collect();
    // What most packages have comes first.
    bodies.sort_by_key(|body| std::cmp::Reverse(body.heads.values().map(Vec::len).sum::<usize>()));
    for body in bodies {
        let _ = write!(text, "\n{RULE}\n");
        let mut heads: Vec<(String, Vec<String>)> = body.heads.into_iter().collect();
        heads.sort_by(|a, b| a.1.cmp(&b.1));
        for (head, packages) in heads {
            let _ = write!(text, "{}\n{head}", packages.join(", "));
        }
        let _ = writeln!(text, "\n{}", body.text);
    }
    text
}

#[test]
fn the_texts_of_what_is_in_the_program_are_up_to_date() {
    let text = whole();
    let place = files::root().join(FILE);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&place, &text).unwrap();
    }
    let found = fs::read_to_string(&place).unwrap_or_default();
    let differs = found.lines().zip(text.lines()).find(|(found, text)| found != text);
    assert!(
        found == text,
        "{FILE} is not up to date: run this test with UPDATE_EXPECT=1; first: {differs:?}"
    );
}
