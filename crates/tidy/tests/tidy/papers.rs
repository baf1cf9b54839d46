//! docs/PAPERS.md is complete and true: every item of the checklist has a row, and what is said to
//! work names code and a test that exist. The same for the root causes in docs/TESTING.md.

use crate::no_findings;
use onefold_tidy::{files, markdown};
use std::collections::{BTreeMap, BTreeSet};

/// The items of the checklist: numbers 1 to the given one, for each paper and across them.
const ITEMS: [(&str, usize); 6] =
    [("S0.", 33), ("S1.", 43), ("S2.", 39), ("S3.", 47), ("S4.", 31), ("SX.", 7)];
/// The catalogue of root causes of data loss: R1 to R56.
const ROOT_CAUSES: usize = 95;
const STATUSES: [&str; 3] = ["works", "differs", "not yet"];

/// The names of all functions in the source tree.
fn function_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files::rust() {
        for after in file.text().split("fn ").skip(1) {
            let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

fn is_item(text: &str) -> bool {
    let number = |rest: &str| rest.parse::<usize>().is_ok();
    ITEMS.iter().any(|(paper, _)| text.strip_prefix(paper).is_some_and(number))
}

fn items() -> Vec<String> {
    ITEMS
        .iter()
        .flat_map(|(paper, last)| (1..=*last).map(move |number| format!("{paper}{number}")))
        .collect()
}

/// What is wrong with a row: `| id | status | module | test | experiment | note |`.
fn problems(row: &[String], functions: &BTreeSet<String>) -> Vec<String> {
    let [id, status, module, test, experiment, note] = row else {
        return vec![format!("{}: a row has six cells, this one has {}", row[0], row.len())];
    };
    let mut problems = Vec::new();
    if !STATUSES.contains(&status.as_str()) {
        problems.push(format!("{id}: '{status}' is none of {STATUSES:?}"));
    }
    if status != "works" && note.is_empty() {
        problems.push(format!("{id}: '{status}' needs a note that says why"));
    }
    let (modules, tests) = (markdown::quoted(module), markdown::quoted(test));
    if status == "works" && (modules.is_empty() || tests.is_empty()) {
        problems.push(format!("{id}: 'works' needs a module and a test"));
    }
    let experiments = markdown::quoted(experiment);
    for path in modules.iter().chain(&experiments).filter(|path| !files::exists(path)) {
        problems.push(format!("{id}: there is no '{path}'"));
    }
    for name in tests.iter().filter(|name| !functions.contains(*name)) {
        problems.push(format!("{id}: there is no test '{name}'"));
    }
    problems
}

#[test]
fn every_item_of_the_checklist_has_a_true_row() {
    let functions = function_names();
    let rows = markdown::rows(&files::read("docs/PAPERS.md"), is_item);
    let mut findings = Vec::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        *seen.entry(row[0].as_str()).or_default() += 1;
        findings.extend(problems(row, &functions));
    }
    for item in items() {
        match seen.get(item.as_str()) {
            Some(1) => {}
            Some(count) => findings.push(format!("{item}: {count} rows")),
            None => findings.push(format!("{item}: no row")),
        }
    }
    findings.extend(
        seen.keys()
            .filter(|id| !items().iter().any(|item| item == *id))
            .map(|id| format!("{id}: no such item")),
    );
    no_findings("docs/PAPERS.md", &findings);
}

#[test]
fn every_root_cause_has_a_row() {
    let functions = function_names();
    let is_cause =
        |text: &str| text.strip_prefix('R').is_some_and(|number| number.parse::<usize>().is_ok());
    let rows = markdown::rows(&files::read("docs/TESTING.md"), is_cause);
    let mut findings = Vec::new();
    for number in 1..=ROOT_CAUSES {
        let id = format!("R{number}");
        let own: Vec<_> = rows.iter().filter(|row| row[0] == id).collect();
        let [row] = own.as_slice() else {
            findings.push(format!("{id}: {} rows", own.len()));
            continue;
        };
        let tests = row.get(1).map(String::as_str).unwrap_or_default();
        let names = markdown::quoted(tests);
        if names.is_empty() && !tests.starts_with("not yet") {
            findings.push(format!("{id}: neither a test nor 'not yet'"));
        }
        for name in names.iter().filter(|name| !functions.contains(*name)) {
            findings.push(format!("{id}: there is no test '{name}'"));
        }
    }
    no_findings("docs/TESTING.md, root causes", &findings);
}

#[test]
fn tests_named_after_a_root_cause_stand_in_the_catalogue() {
    let text = files::read("docs/TESTING.md");
    let is_named = |name: &&String| {
        name.strip_prefix('r')
            .and_then(|rest| rest.split_once('_'))
            .is_some_and(|(number, _)| number.parse::<usize>().is_ok())
    };
    let findings: Vec<String> = function_names()
        .iter()
        .filter(is_named)
        .filter(|name| !text.contains(&format!("`{name}`")))
        .cloned()
        .collect();
    no_findings("docs/TESTING.md must list these tests", &findings);
}
