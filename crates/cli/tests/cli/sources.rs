//! What is saved: missing sources, lists, patterns, and the store among the sources.

use crate::support::Sandbox;

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
