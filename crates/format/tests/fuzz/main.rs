//! Every decoder of the format under a short, deterministic fuzzer (R81: total decoders).
//!
//! | module | holds |
//! | --- | --- |
//! | [`mutate`] | the fuzzer |
//! | [`targets`] | what is fuzzed |
//!
//! The corpus is the golden files. Memory: the peak of the whole process is bounded, by what the
//! largest structure may take (a section of 64 MiB, once plain), whatever the inputs declare.

mod mutate;
mod targets;

use onefold_format::FORMAT_VERSION;
use std::path::PathBuf;

/// So many inputs for each target: a few seconds for all.
const ROUNDS: u64 = 10_000;
const MEMORY_MAX_BYTES: usize = 192 << 20;

fn corpus(prefixes: &[&str]) -> Vec<Vec<u8>> {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("v{FORMAT_VERSION}"));
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(golden).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    paths.into_iter().filter(is_wanted).map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn r81_no_input_makes_a_decoder_panic_or_take_memory() {
    for (name, prefixes, target) in targets::TARGETS {
        mutate::run(name, &corpus(prefixes), ROUNDS, &target);
    }
    if let Some(peak) = mutate::memory_peak_bytes() {
        assert!(peak < MEMORY_MAX_BYTES, "{} MiB", peak >> 20);
    }
}

#[test]
fn what_panics_is_found_and_shown() {
    let corpus = [b"0123456789".to_vec()];
    let found = std::panic::catch_unwind(|| {
        mutate::run("planted", &corpus, ROUNDS, &|bytes| {
            assert!(bytes.len() < 2 || bytes[1] != 0xff, "planted");
        });
    });
    let message = *found.unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("planted fails on"), "{message}");
}
