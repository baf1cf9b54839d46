//! docs/PAPERS.md is complete and true: every item of the checklist has a row, and what is said to
//! work names code and a test that exist. The same for the root causes in docs/TESTING.md.

use crate::no_findings;
use onefold_tidy::{files, markdown};
use std::collections::{BTreeMap, BTreeSet};

/// The items of the checklist: numbers 1 to the given one, for each paper and across them.
const ITEMS: [(&str, usize); 6] =
    [("S0.", 33), ("S1.", 43), ("S2.", 39), ("S3.", 47), ("S4.", 31), ("SX.", 7)];
/// The catalogue of root causes of data loss goes from R1 to this number.
const ROOT_CAUSES: usize = 164;
const STATUSES: [&str; 3] = ["works", "differs", "not yet"];

/// The names of the functions in the source tree that stand first behind some text each.
fn names_behind(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files::rust() {
        for after in file.text().split(text).skip(1) {
            let after = after.split("fn ").nth(usize::from(text != "fn "));
            let name = after.and_then(|after| after.split(|c: char| !is_of_name(c)).next());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The names of all functions in the source tree.
fn function_names() -> BTreeSet<String> {
    names_behind("fn ")
}

/// Those that are run as tests.
fn test_names() -> BTreeSet<String> {
    names_behind("#[test]")
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
    let functions = test_names();
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

/// `| paper | works | differs | not yet |` counts the rows of each paper.
#[test]
fn the_rows_of_each_paper_are_as_many_as_the_table_says() {
    let text = files::read("docs/PAPERS.md");
    let rows = markdown::rows(&text, is_item);
    let count = |paper: &str, status: &str| {
        let is_of = |row: &&Vec<String>| row[0].starts_with(paper) && row[1] == status;
        rows.iter().filter(is_of).count().to_string()
    };
    let papers = ITEMS.iter().map(|(paper, _)| *paper);
    let mut findings = Vec::new();
    for (name, paper) in papers.map(|paper| (&paper[..2], paper)).chain([("all", "S")]) {
        let counts = STATUSES.map(|status| count(paper, status)).join(" | ");
        let line = format!("| {name} | {counts} |");
        if !text.contains(&line) {
            findings.push(format!("the table should say: {line}"));
        }
    }
    no_findings("docs/PAPERS.md", &findings);
}

#[test]
fn every_root_cause_has_a_row() {
    let functions = test_names();
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
