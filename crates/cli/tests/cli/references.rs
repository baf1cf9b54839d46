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
