//! What is saved: missing sources, lists, patterns, and the store among the sources.

use crate::support::Sandbox;
use std::os::unix::fs::MetadataExt;

fn listed(sandbox: &Sandbox) -> String {
    sandbox.run(&["ls", "latest"]).expect(0).stdout
}

#[test]
fn r50_a_missing_source_is_reported_and_the_rest_saved() {
    let sandbox = Sandbox::with_source();
    let missing = sandbox.arg("missing");
    let run = sandbox.run(&["backup", &sandbox.arg("source"), &missing]).expect(3);
    assert!(run.stderr.contains(&missing), "{}", run.stderr);
    assert!(listed(&sandbox).contains("one.txt"));
}

#[test]
fn r50_nothing_is_saved_if_all_sources_are_missing() {
    let sandbox = Sandbox::with_store();
    let missing = sandbox.arg("missing");
    let run = sandbox.run(&["backup", &missing, "also-missing"]).expect(1);
    assert!(run.stderr.contains("also-missing"), "{}", run.stderr);
    assert!(run.stderr.contains("nothing was saved"), "{}", run.stderr);
    sandbox.run(&["backup"]).expect(1);
    sandbox.run(&["backup", ""]).expect(1);
    assert!(sandbox.ids(&[]).is_empty());
}

#[test]
fn r52_a_source_inside_the_store_is_refused() {
    let sandbox = Sandbox::with_store();
    for inside in ["store", "store/config", "store/../store/config"] {
        let run = sandbox.run(&["backup", &sandbox.arg(inside)]).expect(1);
        assert!(run.stderr.contains("inside the store"), "{}", run.stderr);
    }
    assert!(sandbox.ids(&[]).is_empty());
}

#[test]
fn r52_a_store_inside_a_source_is_left_out() {
    let sandbox = Sandbox::with_source();
    for source in [sandbox.arg("."), ".".to_owned()] {
        let run = sandbox.run(&["backup", &source]).expect(0);
        assert!(run.stderr.contains("left out"), "{}", run.stderr);
        let listed = listed(&sandbox);
        assert!(listed.contains("one.txt"), "{listed}");
        assert!(!listed.contains("store/config"), "{listed}");
    }
}

#[test]
fn r52_restoring_into_or_over_the_store_is_refused() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    for target in ["store", "store/new", "store/../store"] {
        let run = sandbox.run(&["restore", "latest", "--target", &sandbox.arg(target)]);
        assert!(run.expect(1).stderr.contains("inside the store"));
    }
    sandbox.run(&["check"]).expect(0);
}

#[test]
fn patterns_sizes_and_marks_leave_files_out() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/cache/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55");
    sandbox.write("source/cache/data", b"x");
    sandbox.write("source/private/.nobackup", b"");
    sandbox.write("source/private/data", b"x");
    sandbox.write("patterns", b"# a comment\n\nfrom-file\n");
    sandbox.write("source/from-file", b"x");
    let patterns = sandbox.arg("patterns");
    let mut options = vec!["--exclude", "one.*", "--iexclude", "three.txt", "--exclude-caches"];
    options.extend(["--exclude-if-present", ".nobackup", "--exclude-larger-than", "40K"]);
    options.extend(["--exclude-file", &patterns]);
    sandbox.backup(&options);
    let listed = listed(&sandbox);
    for left_out in ["one.txt", "two.txt", "Three", "cache/data", "private/data", "from-file"] {
        assert!(!listed.contains(left_out), "{left_out} in {listed}");
    }
    assert!(listed.contains("/deep"), "{listed}");
    sandbox.run(&["backup", &sandbox.arg("source"), "--exclude", "a{b"]).expect(1);
    sandbox.run(&["backup", &sandbox.arg("source"), "--exclude-file", "missing"]).expect(1);
}

#[test]
fn lists_of_files_are_taken_as_they_are() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/odd *name", b"odd");
    let one = sandbox.arg("source/one.txt");
    let odd = sandbox.arg("source/odd *name");
    sandbox.write("list", format!("{one}\n\n{odd}\r\n").as_bytes());
    sandbox.run(&["backup", "--files-from", &sandbox.arg("list")]).expect(0);
    let shown = listed(&sandbox);
    assert!(shown.contains("one.txt") && shown.contains("odd *name"), "{shown}");
    assert!(!shown.contains("two.txt"), "{shown}");
    let input = format!("{odd}\0");
    sandbox.run_with_input(&["backup", "--files-from0", "-"], input.as_bytes()).expect(0);
    assert!(!listed(&sandbox).contains("one.txt"));
    sandbox.write("empty", b"\n");
    sandbox.run(&["backup", "--files-from", &sandbox.arg("empty")]).expect(1);
}

#[test]
fn r85_absolute_patterns_match_below_relative_sources() {
    let sandbox = Sandbox::with_source();
    let secret = sandbox.arg("source/deep");
    for source in ["source", "./source", ".", &sandbox.arg("source")] {
        sandbox.run(&["backup", source, "--exclude", &secret]).expect(0);
        let listed = listed(&sandbox);
        assert!(listed.contains("one.txt") && !listed.contains("two.txt"), "{source}: {listed}");
    }
    sandbox.run(&["backup", "source", "--exclude", "/source/deep"]).expect(0);
    assert!(!listed(&sandbox).contains("two.txt"));
    // What is taken back by one of the two forms is not left out for the other.
    let kept = format!("!{}/two.txt", sandbox.arg("source/deep"));
    sandbox.run(&["backup", "source", "--exclude", "*.txt", "--exclude", &kept]).expect(0);
    let listed = listed(&sandbox);
    assert!(listed.contains("two.txt") && !listed.contains("one.txt"), "{listed}");
}

#[test]
fn r85_a_tilde_in_patterns_is_the_home_directory() {
    let sandbox = Sandbox::with_store();
    for name in ["docs/secret/key", "docs/own [x]/key", "docs/kept"] {
        sandbox.write(&format!("home/{name}"), b"x");
    }
    sandbox.write(
        "profiles.toml",
        b"[profile.default.backup]\npaths = ['~/docs']\nexclude = ['~/docs/secret']\n\
          iexclude = ['~/DOCS/own \\[x\\]']",
    );
    sandbox.run(&["--config", "profiles.toml", "backup"]).expect(0);
    let listed = listed(&sandbox);
    assert!(listed.contains("docs/kept") && !listed.contains("key"), "{listed}");
}

#[test]
fn r85_a_pattern_that_matches_nothing_is_told() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    let options = ["--exclude", "*.tmp", "--exclude", "one.*", "--iexclude", "NOTHING"];
    let mut arguments = vec!["backup", &source];
    arguments.extend(options);
    let told = sandbox.run(&arguments).expect(0).stderr;
    assert_eq!(told.matches("matched nothing").count(), 1, "{told}");
    assert!(told.contains("'*.tmp', 'NOTHING'") && !told.contains("one.*"), "{told}");
    arguments.insert(0, "--json");
    let run = sandbox.run(&arguments).expect(0);
    let excludes = serde_json::json!([["*.tmp", 0], ["one.*", 1], ["NOTHING", 0]]);
    assert_eq!(run.message("summary")["excludes"], excludes);
    let warnings = run.error_lines();
    assert!(warnings[0]["message"].as_str().unwrap().contains("'*.tmp'"), "{warnings:?}");
    let told = sandbox.run(&["backup", &source, "--exclude", "deep"]).expect(0).stderr;
    assert!(!told.contains("matched nothing"), "{told}");
}

#[test]
fn r85_what_is_left_out_is_counted_and_told() {
    let sandbox = Sandbox::with_source();
    for cache in ["a", "deep/b"] {
        let tag = format!("source/{cache}/CACHEDIR.TAG");
        sandbox.write(&tag, b"Signature: 8a477f597d28d172789f06886806bc55");
        sandbox.write(&format!("source/{cache}/data"), &[7; 3000]);
    }
    sandbox.write("source/no-cache/CACHEDIR.TAG", b"something else");
    sandbox.write("source/private/.nobackup", b"");
    sandbox.write("source/private/nested/.nobackup", b"");
    sandbox.write("source/both/.nobackup", b"");
    sandbox.write("source/both/.skip", b"");
    sandbox.write("source/big.img", &vec![1; 60_000]);
    let source = sandbox.arg("source");
    let mut arguments = vec!["backup", &source, "--exclude", "one.*", "--exclude", "Three.TXT"];
    arguments.extend(["--exclude-caches", "-x", "--exclude-larger-than", "40K"]);
    let marks = [".skip", ".nobackup", ".typo"];
    arguments.extend(marks.iter().flat_map(|name| ["--exclude-if-present", name]));
    let run = sandbox.run(&arguments).expect(0);
    let expected = "left out: 2 items by patterns, 2 caches, 1 directory with '.skip', 1 directory \
                    with '.nobackup', 2 files larger than 40.00 KiB (107.42 KiB)\n";
    assert!(run.stdout.contains(expected), "{}", run.stdout);
    // What lies in a marked directory is not looked at, so the nested mark is not counted.
    assert_eq!(run.stderr.matches("'.typo'").count(), 1, "{}", run.stderr);
    assert!(!run.stderr.contains("'.skip'") && !run.stderr.contains("'.nobackup'"));
    arguments.insert(0, "--json");
    for more in [&["--dry-run"][..], &[]] {
        let run = sandbox.run(&[&arguments, more].concat()).expect(0);
        let expected = serde_json::json!({
            "matched_items": 2, "matched_bytes": 9, "large_files": 2, "large_bytes": 110_000,
            "caches": 2, "marked": [[".skip", 1], [".nobackup", 1], [".typo", 0]], "mounts": 0,
            "snapshot_mounts": 0, "gone": 0, "grown_directories": 0,
        });
        assert_eq!(run.message("summary")["left_out"], expected);
    }
    let nothing = sandbox.run(&["backup", &source]).expect(0);
    assert!(!nothing.stdout.contains("left out"), "{}", nothing.stdout);
    assert_eq!(nothing.stderr, "");
}

#[test]
fn r85_other_file_systems_that_are_left_out_are_counted() {
    let device = |path: &str| std::fs::metadata(path).map(|found| found.dev()).ok();
    if device("/dev") == device("/dev/shm") {
        return;
    }
    let sandbox = Sandbox::with_store();
    let arguments = ["backup", "/dev", "-x", "--exclude", "/dev/*", "--exclude", "!/dev/shm"];
    let run = sandbox.run(&[&arguments[..], &["--allow-empty"]].concat()).expect(0);
    assert!(run.stdout.contains(", 1 mount\n"), "{}", run.stdout);
    assert!(listed(&sandbox).contains("/dev/shm\n"), "the mount point itself is kept");
}

#[test]
fn r85_patterns_that_cannot_be_meant_are_refused() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    sandbox.write("patterns", b"fine\n[\n");
    let patterns = sandbox.arg("patterns");
    for wrong in [
        ["--exclude", "["],
        ["--iexclude", "a[b"],
        ["--exclude-file", &patterns],
        ["--exclude-if-present", "a/b"],
        ["--exclude-if-present", ""],
    ] {
        sandbox.run(&["backup", &source, wrong[0], wrong[1]]).expect(1);
    }
    assert!(sandbox.ids(&[]).is_empty());
    sandbox.backup(&[]);
    for option in ["--include", "--iinclude", "--exclude", "--iexclude"] {
        let run = sandbox.run(&["restore", "latest", "--target", "out", option, "["]).expect(1);
        assert!(run.stderr.contains("not closed"), "{}", run.stderr);
    }
    assert!(!sandbox.path("out").exists());
}
