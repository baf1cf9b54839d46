//! File systems that tell of errors late, or tell other ones than there are.

use crate::folding::{Folding, UNLISTED, UNWRITTEN};
use crate::full_devices::Mounted;
use crate::mounted::can_mount;
use crate::support::{Sandbox, holds};

#[test]
fn r140_a_served_file_that_could_not_be_written_is_told_and_removed() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    for name in ["one", UNWRITTEN, "zero"] {
        sandbox.write(&format!("source/{name}"), b"bytes");
    }
    sandbox.backup(&[]);
    let _folding = Folding::mount(&sandbox.path("served"));
    let place = format!("latest:{}", sandbox.arg("source"));
    let run = sandbox.run(&["restore", &place, "--target", &sandbox.arg("served")]).expect(3);
    let told = format!("/{UNWRITTEN}: writing the file to its device or server");
    assert!(run.stderr.contains(&told), "{}", run.stderr);
    assert!(!sandbox.path("served").join(UNWRITTEN).exists());
    for name in ["served/one", "served/zero"] {
        assert!(holds(&sandbox.path(name), b"bytes"), "{name}");
    }
}

/// HELD_MAX in restore/durable.rs, and one more.
#[test]
fn r140_what_is_restored_onto_more_file_systems_than_are_held_open_arrives() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let names: Vec<String> = (0..33).map(|number| format!("{number}/file")).collect();
    for name in &names {
        sandbox.write(&format!("source/{name}"), name.as_bytes());
    }
    sandbox.backup(&[]);
    let _mounted: Vec<_> = (0..33)
        .map(|number| {
            let place = sandbox.path(&format!("out/{number}"));
            Mounted::new("tmpfs", 1 << 20, &place, &place).unwrap()
        })
        .collect();
    let place = format!("latest:{}", sandbox.arg("source"));
    let restore = ["restore", &place, "--target", &sandbox.arg("out"), "--verify"];
    sandbox.run(&restore).expect(0);
    for name in &names {
        assert!(holds(&sandbox.path("out").join(name), name.as_bytes()), "{name}");
    }
}

#[test]
fn r141_a_list_that_fails_as_if_its_directory_were_gone_is_a_problem() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let _folding = Folding::mount(&sandbox.path("served"));
    for name in ["deep/a", &format!("deep/{UNLISTED}"), "deep/z", "other"] {
        sandbox.write(&format!("served/{name}"), b"bytes");
    }
    let source = sandbox.arg("served");
    let run = sandbox.run(&["backup", &source]).expect(3);
    assert!(run.stderr.contains("deep: listing the directory"), "{}", run.stderr);
    let snapshots = sandbox.run(&["--json", "snapshots"]).expect(0);
    assert_eq!(snapshots.messages("snapshot")[0]["partial"], true);
    // What was not saved is not taken for what was not there.
    let place = format!("latest:{source}");
    sandbox.run(&["restore", &place, "--target", &source, "--delete"]).expect(3);
    for name in ["deep/a", "deep/z", "other"] {
        assert!(holds(&sandbox.path("served").join(name), b"bytes"), "{name}");
    }
}
