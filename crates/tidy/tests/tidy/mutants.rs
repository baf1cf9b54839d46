//! The mutants still apply, and the tests that are to notice them exist. Whether they do notice
//! takes building: `cargo run -p onefold-tidy --bin mutants`.

use crate::no_findings;
use onefold_tidy::mutants;
use std::collections::BTreeSet;

#[test]
fn every_mutant_applies_and_its_test_exists() {
    let all = mutants::list().unwrap();
    let mut names = BTreeSet::new();
    let mut findings: Vec<String> = all.iter().flat_map(mutants::Mutant::problems).collect();
    for mutant in &all {
        if !names.insert(&mutant.name) {
            findings.push(format!("{}: there are two", mutant.name));
        }
    }
    no_findings(mutants::LIST, &findings);
}
