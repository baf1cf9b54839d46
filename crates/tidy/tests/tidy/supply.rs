//! What the project is built from: licences that go together with its own, no package twice without
//! a reason, none from anywhere but cargo's own registry. `deny.toml` says what is allowed, for
//! `cargo deny` and for these tests, which need no other tool.

use crate::no_findings;
use onefold_tidy::files;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// A package as its own manifest describes it.
pub struct Package {
    pub name: String,
    pub version: String,
    pub licence: String,
    /// Where its sources are.
    pub directory: PathBuf,
}

/// A package as Cargo.lock names it.
#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    source: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Deny {
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    package: String,
    reason: String,
}

/// What cargo prints.
pub fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).current_dir(files::root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All packages but the project's own; with more arguments of `cargo metadata`, some of them.
pub fn packages(arguments: &[&str]) -> Vec<Package> {
    let described =
        cargo(&[&["metadata", "--format-version", "1", "--locked"], arguments].concat());
    let metadata: Value = serde_json::from_str(&described).unwrap();
    let text = |package: &Value, name: &str| package[name].as_str().unwrap_or("").to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| !package["source"].is_null())
        .map(|package| Package {
            name: text(package, "name"),
            version: text(package, "version"),
            licence: text(package, "license"),
            directory: PathBuf::from(text(package, "manifest_path")).parent().unwrap().to_owned(),
        })
        .collect()
}

/// The licences that are allowed, the preferred ones first.
pub fn allowed() -> Vec<spdx::Licensee> {
    let allow = deny().licenses.allow;
    allow.iter().map(|licence| spdx::Licensee::parse(licence).unwrap()).collect()
}

fn deny() -> Deny {
    toml::from_str(&files::read("deny.toml")).unwrap()
}

fn locked() -> Vec<Locked> {
    toml::from_str::<Lock>(&files::read("Cargo.lock")).unwrap().package
}

#[test]
fn every_package_may_be_used() {
    let allowed = allowed();
    let mut used = vec![false; allowed.len()];
    let mut findings = Vec::new();
    let packages = packages(&[]);
    for Package { name, version, licence, .. } in &packages {
        let chosen = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX)
            .map_err(|error| error.to_string())
            .and_then(|expression| {
                expression.minimized_requirements(&allowed).map_err(|error| error.to_string())
            });
        match chosen {
            Ok(chosen) => {
                for (used, licence) in used.iter_mut().zip(&allowed) {
                    *used |= chosen.iter().any(|chosen| licence.satisfies(chosen));
                }
            }
            Err(error) => findings.push(format!("{name} {version}, {licence:?}: {error}")),
        }
    }
    let unused = used.iter().zip(&allowed).filter(|(used, _)| !**used);
    findings
        .extend(unused.map(|(_, licence)| format!("{licence:?} is allowed, and nothing has it")));
    assert!(packages.len() > 100, "these are all: {}", packages.len());
    no_findings("packages have licences that deny.toml allows", &findings);
}

#[test]
fn every_package_comes_from_the_registry() {
    // In halves, as a file of the project names no registry.
    let registry = ["registry+https://github.com/rust-lang/crates", ".io-index"].concat();
    let findings: Vec<String> = locked()
        .into_iter()
        .filter(|package| match &package.source {
            Some(source) => *source != registry,
            None => !package.name.starts_with("onefold-"),
        })
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.source))
        .collect();
    no_findings("packages come from cargo's own registry, or are the project's own", &findings);
}

/// A version without what comes after `+`, which tells no two versions apart.
fn plain(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

#[test]
fn every_second_version_of_a_package_has_a_reason() {
    let locked = locked();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &locked {
        versions.entry(&package.name).or_default().push(plain(&package.version));
    }
    let mut reasons: BTreeMap<String, String> =
        deny().bans.skip.into_iter().map(|skip| (skip.package, skip.reason)).collect();
    let mut findings = Vec::new();
    for (name, mut versions) in versions {
        let order = |version: &&str| -> Vec<u64> {
            version.split(['.', '-']).map(|part| part.parse().unwrap_or(0)).collect()
        };
        versions.sort_by_key(order);
        versions.pop();
        for version in versions {
            let named = format!("{name}@{version}");
            let Some(reason) = reasons.remove(&named) else {
                findings.push(format!("{named}: no reason"));
                continue;
            };
            let needs = |package: &&Locked| {
                package.dependencies.iter().any(|dependency| {
                    let mut words = dependency.split(' ');
                    words.next() == Some(name) && words.next().map(plain) == Some(version)
                })
            };
            let mut dependents = locked.iter().filter(needs).map(|package| package.name.as_str());
            let mut words = reason.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c));
            if !dependents.any(|dependent| words.clone().any(|word| word == dependent)) {
                let word = words.next().unwrap_or_default();
                findings.push(format!("{named}: does not depend on it: {word}"));
            }
        }
    }
    findings.extend(reasons.keys().map(|named| format!("{named}: is not there, or is the newest")));
    no_findings("deny.toml names the older of two versions, and who needs it", &findings);
}
