//! The format and its description change together.
//!
//! The last line of docs/FORMAT.md holds a hash over the sources of the format and its golden
//! files. Whoever changes one of them reads the document again, corrects it, and refreshes the
//! line with `UPDATE_EXPECT=1 cargo test -p onefold-tidy`.

use crate::no_findings;
use onefold_tidy::files;

const DOCUMENT: &str = "docs/FORMAT.md";
const LABEL: &str = "format sources: ";
const DIRECTORIES: [&str; 2] = ["crates/format/src", "crates/format/tests/golden"];
const FILES: [&str; 2] = ["crates/crypto/src/key_slot.rs", "crates/crypto/src/seal.rs"];

fn hash() -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |path: &str, bytes: &[u8]| {
        hasher.update(&(path.len() as u64).to_le_bytes()).update(path.as_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    for directory in DIRECTORIES {
        files::below(directory).iter().for_each(|file| add(&file.path, &file.bytes));
    }
    FILES.iter().for_each(|path| add(path, files::read(path).as_bytes()));
    hasher.finalize().to_hex()[..32].to_owned()
}

#[test]
fn the_format_and_its_description_change_together() {
    let text = files::read(DOCUMENT);
    let line = format!("{LABEL}{}", hash());
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
         1. Does a store written before still open? If not, FORMAT_VERSION must rise.\n\
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
