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
