//! What stores are made like by a name alone, and that it does what it says.

use crate::collecting::random_bytes;
use crate::support::Sandbox;
use serde_json::Value;

/// Makes the sandbox's store, and what is said of it.
fn made(sandbox: &Sandbox, more: &[&str]) -> Value {
    let init = [&["--json", "init", "--encryption", "none"], more].concat();
    sandbox.run(&init).expect(0).message("initialized")
}

fn saved(sandbox: &Sandbox, more: &[&str]) -> Value {
    let source = sandbox.arg("source");
    let arguments = [&["--json", "backup", &source], more].concat();
    sandbox.run(&arguments).expect(0).message("summary")
}

#[test]
fn presets_choose_what_no_option_says_otherwise() {
    let choices = |told: &Value| {
        let text = |name: &str| told[name].as_str().unwrap().to_owned();
        (told["chunk_size_bytes"].as_u64().unwrap() >> 10, text("compression"), text("delta"))
    };
    for (arguments, (kib, compression, delta)) in [
        (&[][..], (32, "zstd,2", "on")),
        (&["--preset", "default"], (32, "zstd,2", "on")),
        (&["--preset", "fast"], (16, "zstd,1", "off")),
        (&["--preset", "small"], (32, "zstd,9", "on")),
        (&["--preset", "fast", "--delta", "depth=2"], (16, "zstd,1", "depth=2")),
        (&["--preset", "small", "--chunk-size", "64KiB"], (64, "zstd,9", "on")),
        (&["--preset", "small", "--compression", "lz4"], (32, "lz4", "on")),
        (&["--delta", "off"], (32, "zstd,2", "off")),
    ] {
        let told = made(&Sandbox::empty().with_password(false), arguments);
        assert_eq!(choices(&told), (kib, compression.into(), delta.into()), "{arguments:?}");
    }
    let run = Sandbox::empty().run(&["init", "--preset", "tiny"]).expect(1);
    assert!(run.stderr.contains("fast, default, small"), "{}", run.stderr);
}

#[test]
fn a_backup_stores_differences_as_the_store_says_or_as_it_is_told() {
    for (init, backup, is_delta) in [
        (&["--preset", "default"], &[][..], true),
        (&["--preset", "default"], &["--delta", "off"], false),
        (&["--preset", "fast"], &[], false),
        (&["--preset", "fast"], &["--delta", "on"], true),
        (&["--preset", "small"], &[], true),
        (&["--delta", "off"], &[], false),
    ] {
        let sandbox = Sandbox::empty().with_password(false);
        made(&sandbox, init);
        let mut bytes = random_bytes(1, 400_000);
        sandbox.write("source/a", &bytes);
        saved(&sandbox, &[]);
        // A byte in each chunk, but for some.
        bytes.iter_mut().step_by(20_000).for_each(|byte| *byte ^= 1);
        sandbox.write("source/a", &bytes);
        let told = saved(&sandbox, backup);
        let (new, deltas) = (&told["chunks_new"], &told["deltas"]["chunks"]);
        assert!(new.as_u64().unwrap() > 5, "{told}");
        assert_eq!(deltas.as_u64().unwrap() > 5, is_delta, "{init:?} {backup:?}: {told}");
        let target = sandbox.arg("target");
        sandbox.run(&["restore", "latest", "--target", &target]).expect(0);
        let found = sandbox.path("target").join(&sandbox.arg("source")[1..]).join("a");
        assert!(std::fs::read(found).unwrap() == bytes, "{init:?} {backup:?}");
    }
}
