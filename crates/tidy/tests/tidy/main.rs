//! The project's own rules, checked on every `cargo test`. docs/HACKING.md says what they are for.

mod documents;
mod format_guard;
mod layers;
mod licences;
mod mutants;
mod papers;
mod style;
mod supply;

/// Fails with one line for each finding.
fn no_findings(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
