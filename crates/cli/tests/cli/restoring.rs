//! Restoring over what is there already, and parts of a snapshot.

use crate::support::{Sandbox, holds};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

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

/// What is there in the place of an item that is no file, or of a further name of one, is left
/// alone as a file is.
#[test]
fn r162_whatever_the_overwrite_rule_leaves_alone_is_counted_and_told() {
    let sandbox = Sandbox::with_store();
    let at = |name: &str| sandbox.path(name);
    for name in ["source/file", "source/free"] {
        sandbox.write(name, b"saved");
    }
    std::os::unix::fs::symlink("saved", at("source/link")).unwrap();
    fs::hard_link(at("source/free"), at("source/other name")).unwrap();
    let pipe = at("source/pipe");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    sandbox.backup(&[]);
    for overwrite in ["never", "if-newer"] {
        for name in ["file", "pipe", "other name"] {
            sandbox.write(&format!("{overwrite}/{name}"), b"there");
        }
        std::os::unix::fs::symlink("there", at(overwrite).join("link")).unwrap();
        let (place, target) = (format!("latest:{}", sandbox.arg("source")), sandbox.arg(overwrite));
        let restore = ["restore", &place, "--target", &target, "--overwrite", overwrite];
        // What would be left alone, and what is; a file that was there is left alone again.
        for (more, count) in [(&["--dry-run"][..], 4), (&[], 4), (&[], 5)] {
            let told = sandbox.run(&[&restore[..], more, &["--verbose"]].concat()).expect(0).stdout;
            assert!(told.contains(&format!("{count} left alone")), "{overwrite} {more:?}: {told}");
            assert_eq!(told.matches("skipped").count(), count, "{told}");
            let json = [&["--json"], &restore[..], &["--dry-run"]].concat();
            let summary = sandbox.run(&json).expect(0).message("summary");
            assert_eq!(
                summary["files_skipped"],
                if at(overwrite).join("free").exists() { 5 } else { 4 }
            );
        }
        for name in ["file", "pipe", "other name"] {
            assert!(holds(&at(overwrite).join(name), b"there"), "{overwrite} {name}");
        }
        assert_eq!(fs::read_link(at(overwrite).join("link")).unwrap(), Path::new("there"));
    }
}
