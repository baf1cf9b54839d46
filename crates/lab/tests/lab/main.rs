//! The program as a user runs it.

mod tiny;

use std::path::Path;
use std::process::{Command, Output};

fn lab(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onefold-lab"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two versions of a small tree.
fn versions() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for version in ["v1", "v2"] {
        let root = place.path().join(version);
        std::fs::create_dir_all(root.join("sub")).unwrap();
        let words: String = (0..40_000).map(|number| format!("{number} ")).collect();
        std::fs::write(root.join("sub/words.txt"), &words).unwrap();
        std::fs::write(root.join("version"), version).unwrap();
    }
    place
}

#[test]
fn experiments_are_listed_with_their_claims() {
    let place = tempfile::tempdir().unwrap();
    let output = lab(&["list"], place.path());
    let listed = text(&output.stdout);
    let count = onefold_lab::experiment::Experiment::ALL.len();
    assert!(output.status.success() && listed.lines().count() == count, "{listed}");
    assert!(listed.contains("ring-sweep") && listed.contains("Longer rings"), "{listed}");
}

#[test]
fn an_experiment_reports_where_it_is_told_to() {
    let place = tempfile::tempdir().unwrap();
    let output = lab(&["run", "ring-sweep", "--tiny", "--out", "reports"], place.path());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let reports = place.path().join("reports/ring-sweep");
    let report = std::fs::read_to_string(reports.join("README.md")).unwrap();
    assert!(report.contains("**Claim.**") && report.contains("(best.csv)"), "{report}");
    let svg = std::fs::read_to_string(reports.join("total.svg")).unwrap();
    roxmltree::Document::parse(&svg).expect("well-formed");
    // Nothing of the machine and nothing by chance: the same run gives the same bytes.
    let again = lab(&["run", "ring-sweep", "--tiny", "--out", "again"], place.path());
    assert!(again.status.success());
    for entry in std::fs::read_dir(&reports).unwrap() {
        let name = entry.unwrap().file_name();
        let bytes = |directory: &str| {
            std::fs::read(place.path().join(directory).join("ring-sweep").join(&name)).unwrap()
        };
        assert_eq!(bytes("reports"), bytes("again"), "{name:?}");
    }
}

#[test]
fn traces_are_crawled_analysed_and_replayed() {
    let place = versions();
    for version in ["v1", "v2"] {
        let trace = format!("{version}.hash.anon");
        let arguments = ["crawl", version, &trace, "--average", "4096", "--chunker", "rabin"];
        let output = lab(&arguments, place.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("2 files, "));
    }
    let analysed = lab(&["analyse", "v1.hash.anon", "v2.hash.anon"], place.path());
    let analysis = text(&analysed.stdout);
    assert!(analysed.status.success() && analysis.contains("Duplicates save 50.0"), "{analysis}");
    assert!(analysis.contains("| txt |"), "{analysis}");
    let replayed = lab(&["replay", "v1.hash.anon", "v2.hash.anon"], place.path());
    let replay = text(&replayed.stdout);
    assert!(replayed.status.success() && replay.contains("eager, cache first"), "{replay}");
}

#[test]
fn damaged_traces_are_named_with_the_place() {
    let place = versions();
    assert!(lab(&["crawl", "v1", "t"], place.path()).status.success());
    let bytes = std::fs::read(place.path().join("t")).unwrap();
    std::fs::write(place.path().join("t"), &bytes[..bytes.len() - 1]).unwrap();
    for command in ["analyse", "replay"] {
        let output = lab(&[command, "t"], place.path());
        let message = text(&output.stderr);
        assert!(!output.status.success());
        assert!(message.contains("t: at byte ") && message.contains("expected"), "{message}");
    }
    let again = lab(&["crawl", "v1", "t"], place.path());
    assert!(!again.status.success(), "a trace is never overwritten");
}

#[test]
fn the_memory_of_an_index_is_one_line() {
    let place = tempfile::tempdir().unwrap();
    let arguments = ["index-memory", "--kind", "signature", "--chunks", "50000"];
    let output = lab(&arguments, place.path());
    let line = text(&output.stdout);
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(output.status.success() && numbers.len() == 5, "{line}");
    assert!((100_000..300_000).contains(&numbers[0]), "{line}");
    assert!(!lab(&["index-memory", "--chunks", "0"], place.path()).status.success());
}
