//! Who may import whom: a crate imports only from layers below its own (ARCHITECTURE.md).

use crate::no_findings;
use onefold_tidy::files::{self, File};
use onefold_tidy::imports::{Imports, circles};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Every crate and its layer. A new crate is given one here.
const LAYERS: [(&str, u8); 16] = [
    ("onefold-types", 0),
    ("onefold-crypto", 1),
    ("onefold-chunking", 1),
    ("onefold-format", 1),
    ("onefold-policy", 1),
    ("onefold-store", 1),
    ("onefold-engine", 2),
    ("onefold-mount", 3),
    ("onefold-remote", 3),
    ("onefold-server", 3),
    ("onefold-database", 3),
    ("onefold-lease", 1),
    ("onefold-cli", 4),
    ("onefold-benchmark", 4),
    ("onefold-lab", 4),
    ("onefold-tidy", 4),
];

/// The core is synchronous: no crate below the network (layer 3) may bring in a runtime.
const RUNTIMES: [&str; 5] = ["tokio", "async-std", "smol", "futures", "futures-util"];

fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(files::root())
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().cloned().unwrap_or_default()
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(other, _)| *other == name).map(|(_, layer)| *layer)
}

#[test]
fn crates_import_only_from_lower_layers() {
    let mut findings = Vec::new();
    let packages = packages();
    assert!(packages.len() >= LAYERS.len(), "crates are missing from the workspace");
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(own) = layer(name) else {
            findings
                .push(format!("{name} has no layer: add it to crates/tidy/tests/tidy/layers.rs"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
        for dependency in &dependencies {
            let other = dependency["name"].as_str().unwrap_or_default();
            // A crate's own tests may ask for a feature of it.
            if other != name && layer(other).is_some_and(|other| other >= own) {
                findings.push(format!("{name} (layer {own}) imports {other}"));
            }
            if own < 3 && RUNTIMES.contains(&other) {
                findings.push(format!("{name} imports {other}: the core is synchronous"));
            }
        }
        let has_any = dependencies.iter().any(|dependency| dependency["kind"].is_null());
        if own == 0 && has_any {
            findings.push(format!("{name} is the vocabulary and depends on nothing"));
        }
    }
    no_findings("a crate imports only from lower layers", &findings);
}

/// The modules of the engine in the order of their imports: each uses only those on lines above its
/// own. A new module is given a line here.
const ENGINE: [&[&str]; 17] = [
    &["common_index", "environment", "file_systems", "job", "memory", "patterns", "remembered"],
    &["repository"],
    &["container"],
    &["session"],
    &["index"],
    &["chunks"],
    &["tree"],
    &["stub", "user_file"],
    &["placement"],
    &["device"],
    &["look_up"],
    &["chunk_store", "find", "difference", "retention", "statistics"],
    &["ingest", "restore", "check"],
    &["synthesis", "copy"],
    &["heal"],
    &["collection"],
    &["primary"],
];

fn sources(krate: &str) -> (String, Vec<File>) {
    let source = format!("crates/{krate}/src");
    let files = files::below(&source);
    (source, files.into_iter().filter(|file| file.path.ends_with(".rs")).collect())
}

#[test]
fn modules_of_the_engine_import_only_from_below() {
    let (source, files) = sources("engine");
    let imports = Imports::of(&source, &files);
    let module = |path: &str| {
        let inner = path[source.len() + 1..].trim_end_matches(".rs");
        inner.split('/').next().unwrap_or_default().to_owned()
    };
    let floor = |name: &str| ENGINE.iter().position(|floor| floor.contains(&name));
    let mut findings = BTreeSet::new();
    for (from, used) in imports.edges() {
        let from_module = module(from);
        if from_module == "lib" {
            continue;
        }
        let Some(own) = floor(&from_module) else {
            findings.insert(format!("{from_module} has no line in ENGINE (tests/tidy/layers.rs)"));
            continue;
        };
        for to in used.iter().filter(|to| module(to) != from_module) {
            if floor(&module(to)).is_none_or(|other| other >= own) {
                findings.insert(format!("{from} imports {to}"));
            }
        }
    }
    let findings: Vec<String> = findings.into_iter().collect();
    no_findings("a module of the engine imports only from those below it", &findings);
}
#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut findings = Vec::new();
    for krate in std::fs::read_dir(files::root().join("crates")).expect("crates") {
        let krate = krate.expect("an entry").file_name().into_string().expect("a name");
        let (source, files) = sources(&krate);
        let imports = Imports::of(&source, &files);
        for circle in circles(&imports.edges()).iter().filter(|circle| circle.len() > 2) {
            findings.push(format!("{} files: {}", circle.len(), circle.join(", ")));
        }
    }
    no_findings("no more than two files import each other in a circle", &findings);
}
