//! Shares that are not mounted although they were.

use crate::mounted::{Mount, can_mount};
use crate::sharing::{status, with_share};
use std::fs;

#[test]
fn r121_jobs_leave_a_share_alone_that_was_mounted_and_is_not_now() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.arg("share");
    let large = fs::read(sandbox.path("share/large")).unwrap();
    // Whoever has never mounted it knows what he does.
    sandbox.run(&["share", "optimize", &share]).expect(0);
    sandbox.run(&["share", "rehydrate", &share]).expect(0);
    Mount::share(&sandbox, "share").end();
    for job in [&["optimize"][..], &["run", "--pressure", "off"]] {
        let refused = sandbox.run(&[&["share"], job, &[&share]].concat()).expect(1);
        for words in ["was mounted before", "share mount", "--unmounted"] {
            assert!(refused.stderr.contains(words), "{job:?}: {}", refused.stderr);
        }
        assert_eq!(status(&sandbox)["files_optimized"], 0, "{job:?}");
        assert!(fs::read(sandbox.path("share/large")).unwrap() == large);
    }
    sandbox.run(&["share", "optimize", "--dry-run", &share]).expect(0);
    let run = sandbox.run(&["--json", "share", "optimize", "--unmounted", &share]).expect(0);
    assert_eq!(run.message("optimized")["files_optimized"], 4);
    sandbox.run(&["share", "run", "--unmounted", "--pressure", "off", &share]).expect(0);
    // A killed mount is told as one.
    Mount::share(&sandbox, "share").kill();
    let dead = sandbox.run(&["share", "optimize", &share]);
    assert!(dead.code != 0 && dead.stderr.contains("its mount was killed"), "{}", dead.stderr);
    let mount = Mount::share(&sandbox, "share");
    sandbox.run(&["share", "optimize", &share]).expect(0);
    assert!(fs::read(sandbox.path("share/large")).unwrap() == large);
    mount.end();
    sandbox.run(&["share", "rehydrate", &share]).expect(0);
    sandbox.run(&["share", "remove", &share]).expect(0);
    assert!(!sandbox.path("share/.onefold-share").exists());
}
