//! Names of snapshots.

use crate::support::Sandbox;

#[test]
fn latest_and_the_ones_before_it() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/version", b"1");
    sandbox.backup(&["--host", "a"]);
    sandbox.write("source/version", b"two");
    sandbox.backup(&["--host", "b"]);
    let place = sandbox.arg("source/version");
    let dump = |reference: &str, more: &[&str]| {
        let mut arguments = vec!["dump", reference, &place];
        arguments.extend(more);
        sandbox.run(&arguments)
    };
    assert_eq!(dump("latest", &[]).expect(0).stdout, "two");
    assert_eq!(dump("latest~1", &[]).expect(0).stdout, "1");
    assert_eq!(dump("latest", &["--host", "a"]).expect(0).stdout, "1");
    let run = dump("latest~2", &[]).expect(1);
    assert!(run.stderr.contains("only 2"), "{}", run.stderr);
    dump("latest~", &[]).expect(1);
    dump("LATEST", &[]).expect(1);
}

#[test]
fn beginnings_must_fit_one_snapshot() {
    let sandbox = Sandbox::with_source();
    // Among 17 names two begin with the same digit.
    let ids: Vec<String> = (0..17).map(|_| sandbox.backup(&[])).collect();
    let shared = ids.iter().find(|id| {
        let same = ids.iter().filter(|other| other[..1] == id[..1]);
        same.count() > 1
    });
    let shared = shared.unwrap();
    let run = sandbox.run(&["ls", &shared[..1]]).expect(1);
    assert!(run.stderr.contains("begins the names of"), "{}", run.stderr);
    assert!(run.stderr.contains(shared.as_str()), "{}", run.stderr);
    sandbox.run(&["ls", shared]).expect(0);
    sandbox.run(&["ls", &shared[..16]]).expect(0);
    sandbox.run(&["ls", "ffffffffffffffffffffffffffffffff"]).expect(1);
}

#[test]
fn snapshots_can_be_copied_and_put_together() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.backup(&[]);
    sandbox.run(&["copy-snapshot", "latest", "--tag", "copy"]).expect(0);
    sandbox.run(&["fastcopy", &first]).expect(0);
    assert_eq!(sandbox.ids(&["--tag", "copy"]).len(), 1);
    assert_eq!(sandbox.ids(&[]).len(), 3);
    let part = format!("{first}:{}=/moved", sandbox.arg("source/deep"));
    sandbox.run(&["synthesize", &part, "--tag", "made"]).expect(0);
    let listed = sandbox.run(&["ls", "latest", "--tag", "made"]).expect(0).stdout;
    assert!(listed.contains("/moved/two.txt\n"), "{listed}");
    assert!(!listed.contains("one.txt"), "{listed}");
    sandbox.run(&["check", "--read-data"]).expect(0);
}

/// Of what was put together no directory says which sources it leads to; a source that was not
/// saved is none.
#[test]
fn r104_a_source_that_was_not_saved_makes_none_of_its_directories_one() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.run(&["backup", &sandbox.arg("source"), &sandbox.arg("missing")]);
    assert_eq!(first.expect(3).code, 3);
    sandbox.run(&["synthesize", "latest", "--tag", "made"]).expect(0);
    let target = sandbox.path("target");
    let beside = [target.join("beside"), target.join(&sandbox.arg("beside")[1..])];
    for beside in &beside {
        std::fs::create_dir_all(beside.parent().unwrap()).unwrap();
        std::fs::write(beside, b"mine").unwrap();
    }
    let arguments = ["restore", "latest", "--tag", "made", "--target", target.to_str().unwrap()];
    sandbox.run(&[&arguments[..], &["--delete-unknown"]].concat()).expect(0);
    assert!(beside.iter().all(|beside| beside.exists()));
}
