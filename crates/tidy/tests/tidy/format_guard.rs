//! The format and its description change together.
//!
//! The last line of docs/FORMAT.md holds a hash over the sources of the format and its golden
//! files: structures and names, what keys and fingerprints are made of, and where streams are cut.
//! Whoever changes one of them reads the document again, corrects it, and refreshes the line with
//! `UPDATE_EXPECT=1 cargo test -p onefold-tidy`.

use crate::no_findings;
use onefold_tidy::files;

const DOCUMENT: &str = "docs/FORMAT.md";
const LABEL: &str = "format sources: ";
const DIRECTORIES: [&str; 3] =
    ["crates/chunking/src", "crates/format/src", "crates/format/tests/golden"];
const FILES: [&str; 8] = [
    "crates/crypto/src/contexts.rs",
    "crates/crypto/src/fingerprinter.rs",
    "crates/crypto/src/key_file.rs",
    "crates/crypto/src/key_ring.rs",
    "crates/crypto/src/key_slot.rs",
    "crates/crypto/src/master_key.rs",
    "crates/crypto/src/seal.rs",
    "crates/crypto/src/secret.rs",
];
/// Crates whose sources are of the format, and those of their files that are not: what they do is
/// held by known answers alone, or decides nothing that is stored.
const CRATES: [&str; 3] = ["crates/chunking/src", "crates/crypto/src", "crates/format/src"];
const OTHERS: [&str; 3] = [
    "crates/crypto/src/blake3_batch.rs",
    "crates/crypto/src/lib.rs",
    "crates/crypto/src/randomness.rs",
];

/// The sources of the format, by path.
fn sources() -> Vec<(String, Vec<u8>)> {
    let below = DIRECTORIES.iter().flat_map(|directory| files::below(directory));
    let files = FILES.iter().map(|path| (path.to_string(), files::read(path).into_bytes()));
    below.map(|file| (file.path, file.bytes)).chain(files).collect()
}

fn hash(sources: &[(String, Vec<u8>)]) -> String {
    let mut hasher = blake3::Hasher::new();
    for (path, bytes) in sources {
        hasher.update(&(path.len() as u64).to_le_bytes()).update(path.as_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[test]
fn no_source_of_the_format_changes_in_silence() {
    let sources = sources();
    let unchanged = hash(&sources);
    let covered = |path: &str| sources.iter().position(|(name, _)| name == path);
    let mut findings = Vec::new();
    for file in CRATES.iter().flat_map(|directory| files::below(directory)) {
        let Some(at) = covered(&file.path) else {
            if !OTHERS.contains(&file.path.as_str()) {
                findings.push(format!("{} is not covered by the hash, nor excepted", file.path));
            }
            continue;
        };
        let mut changed = sources.clone();
        changed[at].1[0] ^= 1;
        if hash(&changed) == unchanged {
            findings.push(format!("a change of {} does not show", file.path));
        }
    }
    no_findings("the guard of the format", &findings);
}

#[test]
fn the_format_and_its_description_change_together() {
    let text = files::read(DOCUMENT);
    let line = format!("{LABEL}{}", hash(&sources()));
    let (before, last) = text.trim_end().rsplit_once('\n').expect("the document has lines");
    assert!(last.starts_with(LABEL), "the last line of {DOCUMENT} must be '{LABEL}<hash>'");
    if last == line {
        return;
    }
    if std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1") {
        std::fs::write(files::root().join(DOCUMENT), format!("{before}\n{line}\n"))
            .expect("the document can be written");
        return;
    }
    panic!(
        "the format's sources or golden files changed since {DOCUMENT} was last looked at.\n\
         1. Does a store written before still open? If not, FORMAT_VERSION must rise.\n   \
         Are keys, fingerprints and cuts the same? If not, the new ones need a code of their own.\n\
         2. Correct {DOCUMENT}, if what it says is no longer so.\n\
         3. UPDATE_EXPECT=1 cargo test -p onefold-tidy\n   (its last line becomes '{line}')"
    );
}

#[test]
fn the_description_names_the_version_and_every_place() {
    let text = files::read(DOCUMENT);
    let mut findings = Vec::new();
    let version =
        constant(&files::read("crates/format/src/lib.rs"), "pub const FORMAT_VERSION: u16");
    let sentence = format!("`FORMAT_VERSION` is {}", version.first().map_or("", String::as_str));
    if !text.contains(&sentence) {
        findings.push(format!("'{sentence}' is missing"));
    }
    for name in constant(&files::read("crates/format/src/layout.rs"), ": &str") {
        let name = name.trim_matches('"');
        if !text.contains(&format!("`{name}`")) && !text.contains(&format!("`{name}/")) {
            findings.push(format!("the place `{name}` is missing"));
        }
    }
    no_findings(DOCUMENT, &findings);
}

/// The values of all public constants whose declaration contains `declaration`.
fn constant(source: &str, declaration: &str) -> Vec<String> {
    source
        .lines()
        .filter(|line| line.starts_with("pub const") && line.contains(declaration))
        .filter_map(|line| line.split_once(" = "))
        .map(|(_, value)| value.trim_end_matches(';').to_owned())
        .collect()
}
