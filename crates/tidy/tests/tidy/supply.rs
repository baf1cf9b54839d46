//! What the program is built from: licences that go together with its own, no package twice but for
//! those listed, none from anywhere but the registry, and a notice that names them all.

use crate::no_findings;
use onefold_tidy::files;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Licences that ask for no more than a notice.
const LICENCES: [&str; 11] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    // Of a list of authorities, which is data.
    "CDLA-Permissive-2.0",
];
/// Packages that are there in two versions, because others have not moved on yet.
const TWICE: [&str; 16] = [
    "base64",
    "bit-vec",
    "const-oid",
    "crypto-common",
    "digest",
    "getrandom",
    "hashbrown",
    "r-efi",
    "rand",
    "rand_core",
    "rand_pcg",
    "syn",
    "synstructure",
    "untrusted",
    "wasi",
    "windows-sys",
];
const NOTICE: &str = "NOTICE.md";

struct Package {
    name: String,
    version: String,
    licence: String,
    source: String,
}

/// All packages but the project's own.
fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(files::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |package: &Value, name: &str| package[name].as_str().unwrap_or("").to_owned();
    let mut packages: Vec<Package> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| !text(package, "source").is_empty())
        .map(|package| Package {
            name: text(package, "name"),
            version: text(package, "version"),
            licence: text(package, "license"),
            source: text(package, "source"),
        })
        .collect();
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    packages
}

/// Whether one alternative of every part is allowed.
fn is_allowed(licence: &str) -> bool {
    let plain = licence.replace(['(', ')'], " ").replace('/', " OR ");
    plain.split(" AND ").all(|part| {
        part.split(" OR ").map(str::trim).any(|alternative| LICENCES.contains(&alternative))
    })
}

#[test]
fn every_package_may_be_used_and_comes_from_the_registry() {
    let mut findings = Vec::new();
    for package in packages() {
        let named = format!("{} {}", package.name, package.version);
        if !is_allowed(&package.licence) {
            findings.push(format!("{named}: {}", package.licence));
        }
        if !package.source.starts_with("registry+") {
            findings.push(format!("{named}: from {}", package.source));
        }
    }
    no_findings("packages have licences of the list, and come from the registry", &findings);
}

#[test]
fn no_package_is_there_twice_but_for_those_listed() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(package.name).or_default().insert(package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let twice: Vec<&str> = versions.keys().map(String::as_str).collect();
    assert_eq!(twice, TWICE);
}

#[test]
fn the_notice_names_every_package() {
    let mut text = String::from(
        "# Third-party packages\n\nThe program contains code of these packages, each under its own \
         licence. Whoever hands on a\nbinary hands on their notices with it: they are in the files \
         named LICENSE or COPYING of the\nsources that `cargo vendor` fetches.\n\n\
         | package | version | licence |\n| --- | --- | --- |\n",
    );
    for package in packages() {
        text += &format!("| {} | {} | {} |\n", package.name, package.version, package.licence);
    }
    let place = files::root().join(NOTICE);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&place, &text).unwrap();
    }
    let found = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(found == text, "{NOTICE} is not up to date: run this test with UPDATE_EXPECT=1");
}
