//! Restoring over what is there already, and parts of a snapshot.

use crate::support::{Sandbox, holds};
use std::fs::File;
use std::os::unix::fs::FileExt;

const FILE: &str = "source/deep/two.txt";

/// Other bytes in a file whose size and time stay.
fn damage(sandbox: &Sandbox) {
    let path = sandbox.path(FILE);
    let modified = path.metadata().unwrap().modified().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(b"rot", 25_000).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn r83_a_restore_in_place_compares_content_and_not_times() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let source = sandbox.arg("source");
    let place = format!("latest:{source}");
    let right = vec![b'2'; 50_000];
    for (options, unchanged, is_mended) in [
        (&[][..], 2, true),
        (&["--overwrite", "always"], 2, true),
        (&["--overwrite", "if-different"], 2, true),
        (&["--overwrite", "if-changed", "--verify"], 2, true),
        (&["--overwrite", "if-changed"], 3, false),
        (&["--overwrite", "if-newer"], 0, false),
        (&["--overwrite", "never"], 0, false),
    ] {
        damage(&sandbox);
        let mut arguments = vec!["--json", "restore", &place, "--target", &source];
        arguments.extend(options);
        let summary = sandbox.run(&arguments).expect(0).message("summary");
        assert_eq!(summary["files_unchanged"], unchanged, "{options:?}");
        assert_eq!(holds(&sandbox.path(FILE), &right), is_mended, "{options:?}");
    }
    let arguments = ["restore", &place, "--target", &source, "--overwrite", "if-changed"];
    let told = sandbox.run(&arguments).expect(0).stdout;
    assert!(told.contains("not compared"), "{told}");
}

#[test]
fn r85_a_restore_tells_of_patterns_that_match_nothing() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let restore = |options: &[&str]| {
        let mut arguments = vec!["restore", "latest", "--target", "out"];
        arguments.extend(options);
        sandbox.run(&arguments).expect(0).stderr
    };
    let told = restore(&["--include", "nothing", "--include", "one.txt"]);
    assert!(told.contains("'nothing' matched nothing") && !told.contains("one.txt"), "{told}");
    let told = restore(&["--include", "deep", "--include", "two.txt", "--exclude", "Three*"]);
    assert!(!told.contains("matched nothing"), "{told}");
}

#[test]
fn r85_what_a_listing_shows_can_be_restored() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/source/inner", b"inner");
    let here = sandbox.arg("");
    let here = here.trim_end_matches('/');
    let source = format!("{here}/source");
    for (saved, from) in [("source", here), (".", &source), ("./source/deep", here)] {
        let mut command = sandbox.command(&["backup", saved]);
        command.current_dir(from);
        sandbox.run_command(command).expect(0);
        let shown = sandbox.run(&["--json", "snapshots"]).expect(0);
        let shown = shown.messages("snapshot").pop().unwrap()["paths"][0].clone();
        let place = format!("latest:{}", shown.as_str().unwrap());
        let two = match saved {
            "./source/deep" => "two.txt",
            _ => "deep/two.txt",
        };
        let target = sandbox.arg("out");
        sandbox.run(&["restore", &place, "--target", &target]).expect(0);
        assert!(sandbox.path("out").join(two).exists(), "{saved}");
        std::fs::remove_dir_all(target).unwrap();
        sandbox.run(&["dump", &format!("{place}/{two}")]).expect(0);
    }
    sandbox.run(&["restore", &format!("latest:{here}/elsewhere"), "--target", "out"]).expect(1);
}

#[test]
fn a_plan_counts_the_files_that_the_restore_restores() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/empty", b"");
    let (one, other) = (sandbox.path("source/one.txt"), sandbox.path("source/other-name"));
    std::fs::hard_link(one, other).unwrap();
    sandbox.backup(&[]);
    let restore = ["--json", "restore", "latest", "--target", &sandbox.arg("out")];
    let planned = sandbox.run(&[&restore[..], &["--plan"]].concat()).expect(0).message("summary");
    let restored = sandbox.run(&restore).expect(0).message("summary");
    assert_eq!(planned["files"], restored["files"]);
    assert_eq!(planned["files"], 5);
}
