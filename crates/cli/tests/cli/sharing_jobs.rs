//! `share run`: what is due for shares, done, left and told.

use crate::collecting::random_bytes;
use crate::sharing::{status, with_share};
use crate::support::{Run, Sandbox};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Machines that run tests are under pressure.
fn share_run(sandbox: &Sandbox, more: &[&str]) -> Run {
    let share = sandbox.arg("share");
    let run = ["--json", "share", "run", &share, "--pressure", "off", "--unmounted"];
    sandbox.run(&[&run, more].concat())
}

fn outcomes(run: &Run) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ran = run.message("ran");
    let jobs = ran["jobs"].as_array().unwrap();
    jobs.iter().map(|job| (text(&job["job"]), text(&job["outcome"]))).collect()
}

#[test]
fn a_run_does_for_all_shares_what_is_due() {
    let sandbox = with_share();
    let other = sandbox.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("same"), random_bytes(1, (3 << 20) + 5)).unwrap();
    fs::write(other.join("more"), random_bytes(7, 200_000)).unwrap();
    let other = sandbox.arg("other");
    sandbox.run(&["share", "create", "--min-age", "0s", &other]).expect(0);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let run = share_run(&sandbox, &[&other]).expect(0);
    let optimized = run.messages("optimized");
    assert_eq!(optimized.len(), 2);
    for (directory, files) in [(sandbox.arg("share"), 4), (other.clone(), 2)] {
        let of = optimized.iter().find(|one| one["directory"] == directory.as_str()).unwrap();
        assert_eq!(of["files_optimized"], files, "{of}");
    }
    let scrubbed = run.messages("scrubbed");
    assert_eq!(scrubbed.len(), 2);
    assert!(scrubbed.iter().all(|one| one["files_damaged"] == 0 && one["bytes"] != 0));
    let kinds: Vec<String> = outcomes(&run).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["optimize", "optimize", "scrub", "scrub", "collect"]);
    assert!(outcomes(&run).iter().all(|(_, outcome)| outcome == "done"));
    // Nothing is new, and nothing is asked for but the first.
    let run = share_run(&sandbox, &["--no-scrub", "--no-collect"]).expect(0);
    assert_eq!(run.message("optimized")["files_optimized"], 0);
    assert_eq!(outcomes(&run), [("optimize".to_owned(), "done".to_owned())]);
    // The manifests of the first run were forgotten, and a collection frees what only they had.
    fs::remove_file(sandbox.path("other/more")).unwrap();
    let run = share_run(&sandbox, &[&other]).expect(0);
    assert_eq!(run.messages("collection").len(), 1);
}

#[test]
fn a_dry_run_says_what_would_be_stored_and_stores_nothing() {
    let sandbox = with_share();
    let share = sandbox.arg("share");
    let dry = ["share", "optimize", "--dry-run", &share];
    let told = sandbox.run(&[&["--json"], &dry[..]].concat()).expect(0).message("optimized");
    let shown = sandbox.run(&dry).expect(0).stdout;
    assert!(shown.contains("would store ") && !shown.contains("optimised"), "{shown}");
    let real = sandbox.run(&["--json", "share", "optimize", &share]).expect(0).message("optimized");
    assert!(told["bytes_new"].as_u64().unwrap() > 3_000_000, "{told}");
    // But for the lengths of times in the tree of either.
    let [would_be, was] = [&told, &real].map(|one| one["bytes_new"].as_u64().unwrap());
    assert!(would_be.abs_diff(was) < 100, "{would_be} {was}");
    assert_eq!((&told["bytes_stored"], &told["files_optimized"]), (&0.into(), &0.into()));
}

#[test]
fn what_the_time_does_not_suffice_for_is_left_and_done_by_the_next_run() {
    let sandbox = with_share();
    let run = share_run(&sandbox, &["--max-duration", "300ms", "--max-io", "100KiB"]).expect(3);
    assert!(run.messages("optimized").is_empty());
    assert!(outcomes(&run).iter().all(|(_, outcome)| outcome == "left-window"), "{run:?}");
    assert_eq!(status(&sandbox)["files_optimized"], 0);
    let run = share_run(&sandbox, &[]).expect(0);
    assert_eq!(run.message("optimized")["files_optimized"], 4);
    let run = sandbox.run(&["share", "run", &sandbox.arg("share"), "--max-duration", "0s"]);
    let run = run.expect(0);
    let said = [run.stdout.as_str(), &run.stderr].concat();
    assert!(said.contains("--max-duration leaves no time to work"), "{said}");
    // Outside the window nothing is begun, which is no failure. One of the two is outside.
    let windows = ["00:00-12:00", "12:00-00:00"];
    let runs = windows.map(|window| share_run(&sandbox, &["--window", window]).expect(0));
    let done = runs.iter().filter(|run| !run.messages("optimized").is_empty()).count();
    assert_eq!(done, 1);
    for odd in [["--window", "22:00"], ["--pressure", "0%"], ["--scrub-share", "0%"]] {
        share_run(&sandbox, &odd).expect(1);
    }
}

fn largest_container(sandbox: &Sandbox) -> PathBuf {
    let shards = fs::read_dir(sandbox.path("store/containers")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    files
        .map(|file| file.unwrap().path())
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap()
}

#[test]
fn a_scrub_names_what_is_damaged_and_clears_it_when_it_is_whole_again() {
    let sandbox = with_share();
    share_run(&sandbox, &["--no-scrub"]).expect(0);
    let container = largest_container(&sandbox);
    let sound = fs::read(&container).unwrap();
    let mut bytes = sound.clone();
    bytes[1_000_000] ^= 1;
    let writable = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&container, writable).unwrap();
    fs::write(&container, &bytes).unwrap();
    let run = share_run(&sandbox, &["--no-collect"]).expect(1);
    assert!(run.message("scrubbed")["files_damaged"].as_u64().unwrap() >= 2, "{run:?}");
    assert_eq!(run.message("scrubbed")["containers_quarantined"], 1);
    let problems = status(&sandbox)["problems"].clone();
    let named = |path: &str| {
        let lines = problems.as_array().unwrap().iter();
        lines.filter(|line| line.as_str().unwrap().starts_with(&format!("{path}: "))).count()
    };
    // The same data under three names.
    let large = ["/large", "/inner/copy of it", "/inner/most/other name"];
    assert_eq!(large.map(named), [1, 1, 1], "{problems}");
    assert_eq!(named("/inner/text"), 0, "{problems}");
    // It is told once, however often it is met.
    let run = share_run(&sandbox, &["--no-collect"]).expect(1);
    assert_eq!(run.message("scrubbed")["containers_quarantined"], 0);
    assert_eq!(status(&sandbox)["problems"], problems);
    fs::write(&container, &sound).unwrap();
    // A slice would do for the first two.
    let run = share_run(&sandbox, &["--no-collect", "--scrub-share", "100%"]).expect(0);
    assert_eq!(run.message("scrubbed")["problems_cleared"], 3);
    assert_eq!(run.message("scrubbed")["containers_healed"], 1);
    assert_eq!(run.message("optimized")["files_damaged"], 0, "what is back can be read");
    assert_eq!(status(&sandbox)["problems"], serde_json::json!([]));
}

#[test]
fn parts_of_a_share_are_deduplicated_one_after_the_other() {
    let sandbox = with_share();
    let large = random_bytes(1, (3 << 20) + 5);
    fs::write(sandbox.path("share/large.jpg"), &large).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let optimize = |more: &[&str]| {
        let share = sandbox.arg("share");
        sandbox.run(&[&["--json", "share", "optimize", &share], more].concat())
    };
    let told = optimize(&["--partitions", "type"]).expect(0).message("optimized");
    assert_eq!(told["files_optimized"], 5, "{told}");
    let parts = told["partitions"].as_array().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part["partition"].as_str().unwrap()).collect();
    assert!(names.contains(&"type:media") && names.contains(&"type:no ending"), "{told}");
    let media = parts.iter().find(|part| part["partition"] == "type:media").unwrap();
    assert!(media["chunks_new"].as_u64().unwrap() > 50, "{told}");
    let common = told["in_common"][0]["chunks"].as_u64().unwrap();
    assert!(common > 50, "{told}");
    // The copy is freed, and nothing of it is lost when the share is divided otherwise.
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    let told = optimize(&["--partitions", "path", "--partition-max-share", "40%"]);
    let told = told.expect(0).message("optimized");
    assert_eq!((&told["bytes_read"], &told["manifests_kept"]), (&0.into(), &0.into()), "{told}");
    let ran = share_run(&sandbox, &["--partitions", "type", "--scrub-share", "100%"]).expect(0);
    assert_eq!(ran.message("optimized")["manifests_kept"], 0);
    let scrubbed = ran.message("scrubbed");
    // One of them has two names.
    assert_eq!((&scrubbed["files"], &scrubbed["files_damaged"]), (&6.into(), &0.into()));
    let told = optimize(&[]).expect(0).message("optimized");
    assert_eq!(told["partitions"].as_array().unwrap().len(), 0);
    assert_eq!(told["manifests_forgotten"], parts.len() as u64);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert!(fs::read(sandbox.path("share/large.jpg")).unwrap() == large);
    assert!(fs::read(sandbox.path("share/large")).unwrap() == large);
    for odd in [["--partitions", "size"], ["--partition-max-share", "0%"]] {
        optimize(&odd).expect(1);
    }
    optimize(&["--partitions", "path", "--partition-max-share", "0.5%"]).expect(1);
    // What goes by nothing is not ignored.
    for how in [&[][..], &["--partitions", "type"]] {
        let more = [how, &["--partition-max-share", "40%"]].concat();
        assert!(optimize(&more).expect(1).stderr.contains("--partitions path"));
        share_run(&sandbox, &more).expect(1);
    }
}

#[test]
fn parts_are_reconciled_by_a_collection_once_if_they_have_enough_in_common() {
    let sandbox = Sandbox::with_store();
    for (directory, seeds) in [("common", [1, 1]), ("apart", [2, 3])] {
        fs::create_dir(sandbox.path(directory)).unwrap();
        for (name, seed) in ["a.txt", "b.jpg"].iter().zip(seeds) {
            let path = sandbox.path(directory).join(name);
            fs::write(path, random_bytes(seed, 24_000_000)).unwrap();
        }
        sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg(directory)]).expect(0);
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let run = |directory: &str| {
        let directory = sandbox.arg(directory);
        let divided = ["--json", "share", "run", &directory, "--pressure", "off", "--no-scrub"];
        sandbox.run(&[&divided[..], &["--partitions", "type"]].concat()).expect(0)
    };
    let apart = run("apart");
    assert_eq!(apart.message("optimized")["chunks_stored_twice"], 0);
    assert!(apart.messages("collection").is_empty());
    // Nothing was forgotten: what is worth it makes the collection due.
    let collected = run("common");
    assert_eq!(collected.messages("collection").len(), 1);
    let first = collected.message("optimized");
    assert_eq!(first["worth_reconciling"], serde_json::json!(["type:text", "type:media"]));
    assert!(first["chunks_stored_twice"].as_u64().unwrap() > 20, "{first}");
    let after = run("common").message("optimized");
    assert_eq!(after["in_common"], first["in_common"]);
    assert_eq!(
        (&after["chunks_stored_twice"], &after["worth_reconciling"]),
        (&0.into(), &serde_json::json!([]))
    );
}

#[test]
fn a_share_is_one_part_by_volume_in_a_job_and_in_a_run_of_all() {
    let sandbox = with_share();
    let share = sandbox.arg("share");
    let volume = ["--partitions", "volume"];
    let optimize = [&["--json", "share", "optimize", &share][..], &volume].concat();
    let report = sandbox.run(&optimize).expect(0).message("optimized");
    assert_eq!(report["files_optimized"], 4);
    let again = share_run(&sandbox, &volume).expect(0).message("optimized");
    for report in [report, again] {
        let parts = report["partitions"].as_array().unwrap();
        assert_eq!((parts.len(), &parts[0]["partition"]), (1, &"volume".into()), "{report}");
        assert_eq!(parts[0]["index_beyond_memory"], false);
    }
}
