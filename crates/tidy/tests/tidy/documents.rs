//! Documents and files: linked, with links that lead somewhere, and free of places on somebody's
//! machine.

use crate::no_findings;
use onefold_tidy::files::{self, File};
use onefold_tidy::markdown;
use std::collections::BTreeSet;
use std::process::Command;

/// The documents a reader begins with.
const ENTRANCES: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

/// Files that a package manager writes.
const GENERATED: [&str; 1] = ["Cargo.lock"];

fn documents() -> Vec<File> {
    let mut all = files::below("");
    all.retain(|file| file.path.ends_with(".md"));
    all
}

/// The names of all that is under version control, or is not ignored by it; none where there is no
/// version control.
fn controlled() -> Option<BTreeSet<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(files::root())
        .output()
        .ok()
        .filter(|listed| listed.status.success())?;
    Some(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
}

/// The files under version control; all files where there is no version control.
fn tracked() -> Vec<File> {
    let mut all = files::below("");
    if let Some(names) = controlled() {
        all.retain(|file| names.contains(&file.path));
    }
    all
}

#[test]
fn every_document_is_linked_from_an_entrance() {
    let mut linked = BTreeSet::new();
    for entrance in ENTRANCES {
        let links = markdown::links(&files::read(entrance));
        linked.extend(links.iter().filter_map(|link| markdown::target(entrance, link)));
    }
    let findings: Vec<String> = files::below("docs")
        .into_iter()
        .map(|file| file.path)
        .filter(|path| !linked.contains(path))
        .collect();
    no_findings("README.md or ARCHITECTURE.md must link to these", &findings);
}

#[test]
fn every_link_leads_somewhere() {
    let mut findings = Vec::new();
    for document in documents() {
        for link in markdown::links(&document.text()) {
            if let Some(target) = markdown::target(&document.path, &link)
                && !files::exists(&target)
            {
                findings.push(format!("{}: {link}", document.path));
            }
        }
    }
    no_findings("links that lead nowhere", &findings);
}

#[test]
fn no_symbolic_link_leads_out_of_the_tree_or_nowhere() {
    let names = controlled();
    let findings: Vec<String> = files::stray_links(&files::root())
        .into_iter()
        .filter(|(path, _)| names.as_ref().is_none_or(|names| names.contains(path)))
        .map(|(path, target)| format!("{path} -> {}", target.display()))
        .collect();
    no_findings("symbolic links that lead out of the tree or nowhere", &findings);
}

#[test]
fn documents_named_in_the_source_exist() {
    let mut findings = Vec::new();
    for file in files::rust() {
        for word in file.text().split(|c: char| c.is_whitespace() || "()`'\",;:".contains(c)) {
            let word = word.trim_end_matches('.');
            if word.starts_with("docs/") && word.ends_with(".md") && !files::exists(word) {
                findings.push(format!("{}: {word}", file.path));
            }
        }
    }
    no_findings("documents that do not exist", &findings);
}

/// Places that exist on one machine only, and hosts that an installation may not reach. Put
/// together from halves, so that this file does not hold them.
fn unwanted() -> Vec<String> {
    [
        ["/wo", "rk/"],
        ["/data/", "target"],
        ["/ro", "ot/"],
        ["/home/run", "ner"],
        ["/Use", "rs/"],
        ["crates", ".io"],
        ["pypi", ".org"],
        ["registry.npm", "js"],
        ["proxy.gol", "ang.org"],
    ]
    .map(|halves| halves.concat())
    .to_vec()
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    let unwanted = unwanted();
    let mut findings = Vec::new();
    for file in tracked() {
        if GENERATED.contains(&file.path.as_str()) {
            continue;
        }
        for (number, line) in file.text().lines().enumerate() {
            for place in unwanted.iter().filter(|place| line.contains(place.as_str())) {
                findings.push(format!("{}:{}: {place}", file.path, number + 1));
            }
        }
    }
    no_findings("places and hosts that do not belong in the project", &findings);
}
