//! What the papers compare can be chosen when the program is run, and is done (SX.6).

use crate::collecting::random_bytes;
use crate::sharing::with_share;
use crate::support::Sandbox;
use serde_json::Value;
use std::fs;

/// A store with two backups of files that have much in common, and room for collections.
fn with_backups() -> Sandbox {
    let sandbox = Sandbox::with_store();
    sandbox.write("source/a", &random_bytes(1, 3_000_000));
    sandbox.write("source/b", &random_bytes(2, 1_000_000));
    sandbox.backup(&["--lookup", "eager"]);
    sandbox
}

fn saved(sandbox: &Sandbox, more: &[&str]) -> Value {
    let source = sandbox.arg("source");
    let arguments = [&["--json", "backup", &source, "--force"], more].concat();
    sandbox.run(&arguments).expect(0).message("summary")
}

#[test]
fn sx_6_the_four_configurations_of_look_ups_can_be_chosen() {
    let sandbox = with_backups();
    for (summary_vector, locality_cache) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        sandbox.write("source/new", &random_bytes(3 + u64::from(summary_vector), 500_000));
        let mut more = vec!["--lookup", "eager"];
        more.extend((!summary_vector).then_some("--no-summary-vector"));
        more.extend((!locality_cache).then_some("--no-locality-cache"));
        let told = saved(&sandbox, &more)["lookups"].clone();
        let is_used = |step: &str| told[step].as_u64().unwrap() > 0;
        let used = (is_used("summary_negatives"), is_used("containers_prefetched"));
        assert_eq!(used, (summary_vector, locality_cache), "{told}");
        // Without the vector every question takes a page at least, also those that have no answer.
        let of = |step: &str| told[step].as_u64().unwrap();
        let (questions, pages) = (of("index_lookups"), of("index_page_reads"));
        assert!(summary_vector || questions > 0 && pages >= questions, "{told}");
    }
}

#[test]
fn sx_6_every_policy_of_rewriting_and_every_engine_of_restores_can_be_chosen() {
    let sandbox = with_backups();
    for policy in ["none", "capping", "flexible", "window", "history", "auto,loss=2"] {
        let told = saved(&sandbox, &["--rewrite", policy])["rewriting"].clone();
        assert!(told["policy"].as_str().unwrap_or("none").starts_with(policy), "{told}");
    }
    let engines = [
        "direct",
        "forward",
        "adaptive",
        "container-cache",
        "chunk-cache",
        "optimal",
        "optimal-chunks",
    ];
    for engine in engines {
        let target = format!("--target={}", sandbox.arg(engine));
        let arguments = ["--json", "restore", "latest", &target, "--engine", engine];
        let planned = sandbox.run(&[&arguments[..], &["--plan"]].concat()).expect(0);
        let planned = planned.message("summary");
        let used = planned["engine"].as_str().unwrap().split(',').next().unwrap();
        assert_eq!(used, engine, "{planned}");
        let restored = sandbox.run(&arguments).expect(0).message("summary");
        assert_eq!(restored["container_reads"], planned["container_reads"], "{engine}");
        let found = sandbox.path(engine).join(sandbox.path("source").strip_prefix("/").unwrap());
        assert!(fs::read(found.join("a")).unwrap() == random_bytes(1, 3_000_000), "{engine}");
    }
}

#[test]
fn sx_6_every_way_of_marking_can_be_chosen() {
    let sandbox = with_backups();
    for way in ["auto", "exact", "lgc", "partitioned", "pgc", "pgc+"] {
        let run = sandbox.run(&["--json", "gc", "--mark", way, "--mark-only"]).expect(0);
        let mark = run.message("summary")["mark"].clone();
        let algorithm = mark["algorithm"].as_str().unwrap().to_owned();
        assert!(way == "auto" || algorithm == way, "{way}: {mark}");
        assert_eq!(mark["rounds"].as_u64(), Some(1), "there is memory enough: {mark}");
    }
}

#[test]
fn each_step_of_looking_chunks_up_is_timed_and_counted() {
    let sandbox = Sandbox::with_store();
    sandbox.write("source/a", &random_bytes(1, 3_000_000));
    let first = saved(&sandbox, &[])["lookups"].clone();
    // Not a single access: nobody knows what this device takes, and nobody says so.
    assert_eq!((&first["device_reads"], &first["device_seconds"]), (&0.into(), &0.0.into()));
    let known = |sandbox: &Sandbox| {
        let notes = fs::read_dir(sandbox.path("home/.cache/onefold")).unwrap();
        let mut notes = notes.map(|entry| fs::read(entry.unwrap().path()).unwrap());
        let text = notes.find_map(|bytes| serde_json::from_slice::<Value>(&bytes).ok()).unwrap();
        text["device_read_ns"].as_u64()
    };
    assert_eq!(known(&sandbox), None);
    sandbox.write("source/b", &random_bytes(2, 3_000_000));
    let told = saved(&sandbox, &["--no-summary-vector", "--lookup", "eager"])["lookups"].clone();
    let seconds = |step: &str| told[step].as_f64().unwrap();
    assert!(seconds("device_seconds") > 0.0 && seconds("device_seconds") <= seconds("seconds"));
    let reads = told["device_reads"].as_u64().unwrap();
    let mean = told["device_read_mean_ns"].as_u64().unwrap();
    assert!(reads > 50, "{told}");
    let sum = mean as f64 * reads as f64 / 1e9;
    assert!((sum / seconds("device_seconds") - 1.0).abs() < 0.05, "{told}");
    assert_eq!(known(&sandbox), Some(mean), "{told}");
}

/// The index of the whole store or of one part, each of either kind.
#[test]
fn sx_6_the_four_configurations_of_shares_can_be_chosen() {
    let mut memory = Vec::new();
    for kind in ["bloom", "signature"] {
        for partitions in ["none", "type"] {
            let sandbox = with_share();
            let share = sandbox.arg("share");
            let how = ["--index", kind, "--partitions", partitions];
            let arguments = [&["--json", "share", "optimize", &share], &how[..]].concat();
            let told = sandbox.run(&arguments).expect(0).message("optimized");
            assert_eq!(told["files_optimized"], 4, "{told}");
            let parts = told["partitions"].as_array().unwrap();
            assert_eq!(parts.is_empty(), partitions == "none", "{told}");
            assert!(told["lookups"]["chunks"].as_u64().unwrap() > 0, "{told}");
            let known = sandbox.run(&["--json", "stats"]).expect(0).message("statistics");
            memory.push(known["index_memory_per_chunk_bytes"].as_f64().unwrap());
        }
    }
    assert_ne!(memory[0], memory[2], "either kind takes as much as the other");
    assert_ne!(memory[1], memory[3], "either kind takes as much as the other");
}
