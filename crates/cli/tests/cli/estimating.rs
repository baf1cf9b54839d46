//! What sharing a directory would give, on data whose savings follow by hand.

use crate::bounds::{code_within, peak_bytes, send, until_it_hears};
use crate::collecting::random_bytes;
use crate::support::{Run, Sandbox};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::time::{Duration, SystemTime};

const KIB: usize = 1 << 10;
const BLOCK: usize = 64 * KIB;

/// Runs an estimate of `data`, from outside any store.
fn estimate(sandbox: &Sandbox, more: &[&str]) -> Run {
    let data = sandbox.arg("data");
    sandbox.run(&[&["--json", "share", "estimate", &data], more].concat())
}

/// The figures of the chunk sizes.
fn sizes(run: &Run) -> Vec<Value> {
    run.messages("size")
}

fn bytes(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// Three files of blocks A to D, one of them compressible:
///
/// | file | blocks of 64 KiB |
/// | --- | --- |
/// | a.bin | A B C |
/// | b.bin | A B D |
/// | sub/c.txt | T A T T |
fn known_data() -> Sandbox {
    let sandbox = Sandbox::empty();
    let [a, b, c, d] = [1, 2, 3, 4].map(|number| random_bytes(number, BLOCK));
    let text: Vec<u8> = b"a line of text\n".iter().copied().cycle().take(BLOCK).collect();
    sandbox.write("data/a.bin", &[&a[..], &b, &c].concat());
    sandbox.write("data/b.bin", &[&a[..], &b, &d].concat());
    sandbox.write("data/sub/c.txt", &[&text[..], &a, &text, &text].concat());
    sandbox
}

#[test]
fn savings_are_those_that_follow_by_hand() {
    let sandbox = known_data();
    let fixed = ["--chunker", "fixed", "--chunk-size", "64KiB,128KiB"];
    let run = estimate(&sandbox, &fixed).expect(0);
    let found = sizes(&run);
    let block = BLOCK as u64;
    let [small, large] = &found[..] else { panic!("{found:?}") };
    assert_eq!(bytes(small, "chunk_size_bytes"), block);
    // A B C D T of ten blocks.
    assert_eq!((bytes(small, "chunks"), bytes(small, "bytes")), (10, 10 * block));
    assert_eq!((bytes(small, "unique_chunks"), bytes(small, "unique_bytes")), (5, 5 * block));
    // Noise stays as it is, and a line that is repeated becomes next to nothing.
    let compressed = bytes(small, "compressed_bytes");
    assert!((4 * block..4 * block + 1000).contains(&compressed), "{compressed}");
    // C and D occur once, B twice, A and T three times: 2, 2 and 6 of 10 blocks; of the five
    // duplicate ones one is B's and two each are A's and T's.
    assert!((small["unique_share"].as_f64().unwrap() - 0.2).abs() < 1e-9);
    let class = |at: usize, name: &str| small["occurrences"][at][name].as_f64().unwrap();
    let expected = [(1.0, 0.2, 0.0), (2.0, 0.2, 0.2), (4.0, 0.6, 0.8)];
    for (at, (most, share, duplicates)) in expected.into_iter().enumerate() {
        assert_eq!(class(at, "most"), most);
        assert!((class(at, "bytes_share") - share).abs() < 1e-9, "{most}");
        assert!((class(at, "duplicates_share") - duplicates).abs() < 1e-9, "{most}");
    }
    // A chunk is unique for the kind in which it comes first.
    let kind = |name: &str| {
        let kinds = small["kinds"].as_array().unwrap();
        let kind = kinds.iter().find(|kind| kind["name"] == name).unwrap().clone();
        ["files", "bytes", "unique_bytes"].map(|field| bytes(&kind, field))
    };
    assert_eq!(kind("bin"), [2, 6 * block, 4 * block]);
    assert_eq!(kind("txt"), [1, 4 * block, block]);
    // At twice the size the files are AB C, AB D, TA TT.
    assert_eq!((bytes(large, "chunks"), bytes(large, "unique_chunks")), (6, 5));
    assert_eq!(bytes(large, "unique_bytes"), 8 * block);
    assert_eq!(bytes(large, "sampled_one_in"), 1);
    let summary = run.message("summary");
    assert_eq!((bytes(&summary, "files"), bytes(&summary, "bytes")), (3, 10 * block));
    assert_eq!(bytes(&summary, "bytes_read"), 10 * block);
    assert_eq!(bytes(&summary, "bytes_to_read"), 20 * block);
    let allocated: u64 = ["a.bin", "b.bin", "sub/c.txt"]
        .map(|name| sandbox.path("data").join(name).metadata().unwrap().blocks() * 512)
        .iter()
        .sum();
    assert_eq!(bytes(&summary, "allocated_bytes"), allocated);
    let gain = small["gain_bytes"].as_i64().unwrap();
    assert_eq!(gain, allocated as i64 - bytes(small, "stored_bytes") as i64);

    let raw = estimate(&sandbox, &[&fixed[..], &["--compression", "none"]].concat()).expect(0);
    assert_eq!(bytes(&sizes(&raw)[0], "compressed_bytes"), 5 * block);
}

#[test]
fn people_are_told_the_same_and_no_store_is_needed() {
    let sandbox = known_data();
    let data = sandbox.arg("data");
    let run = sandbox.run(&["share", "estimate", &data, "--chunker", "fixed"]).expect(0);
    for part in [
        "counted 3 files (640.00 KiB)",
        "64.00 KiB   10      64.00 KiB   50.00          60.00            20.00 ",
        "bin   2      384.00 KiB  ",
        "3 to 4       60.00 / 80.00",
        "1.25 MiB would be read",
        "Freed of the disk",
    ] {
        assert!(run.stdout.contains(part), "'{part}' is not in\n{}", run.stdout);
    }
    assert!(!sandbox.path("store").exists());
    let absent = sandbox.run(&["share", "estimate", &sandbox.arg("absent")]).expect(1);
    assert!(absent.stderr.contains("absent"), "{}", absent.stderr);
    sandbox.run(&["share", "estimate", &sandbox.arg("data/a.bin")]).expect(1);
    let many = (1..=9).map(|n| format!("{n}KiB")).collect::<Vec<_>>().join(",");
    sandbox.run(&["share", "estimate", &data, "--chunk-size", &many]).expect(1);
}

#[test]
fn every_file_counts_once_and_holes_are_not_read() {
    let sandbox = Sandbox::empty();
    let content = random_bytes(1, 3 * BLOCK);
    sandbox.write("data/a", &content);
    fs::create_dir(sandbox.path("data/deep")).unwrap();
    fs::hard_link(sandbox.path("data/a"), sandbox.path("data/deep/b")).unwrap();
    fs::hard_link(sandbox.path("data/a"), sandbox.path("data/z")).unwrap();
    sandbox.write("outside/secret", &random_bytes(9, BLOCK));
    symlink(sandbox.path("outside"), sandbox.path("data/directory")).unwrap();
    symlink(sandbox.path("outside/secret"), sandbox.path("data/file")).unwrap();
    let pipe = sandbox.path("data/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A block at the front, one byte far behind, and 64 GiB of nothing.
    let sparse = File::create(sandbox.path("data/sparse")).unwrap();
    sparse.write_all_at(&random_bytes(2, BLOCK), 0).unwrap();
    sparse.write_all_at(b"x", 64 << 30).unwrap();
    let run = estimate(&sandbox, &["--chunk-size", "64KiB", "--chunker", "fixed"]).expect(0);
    let (summary, size) = (run.message("summary"), sizes(&run).remove(0));
    assert_eq!((bytes(&summary, "files"), bytes(&summary, "further_names")), (2, 2));
    assert_eq!(bytes(&summary["left_alone"], "others"), 3);
    assert_eq!(bytes(&summary, "bytes"), (3 * BLOCK + 1) as u64 + (64 << 30));
    let block = BLOCK as u64;
    assert!(bytes(&summary, "bytes_read") <= 3 * block + 2 * block, "holes were read");
    assert_eq!(bytes(&size, "zero_bytes"), (64 << 30) - block);
    assert_eq!((bytes(&size, "bytes"), bytes(&size, "unique_chunks")), (4 * block + 1, 5));
}

#[test]
fn nothing_is_changed_and_what_cannot_be_read_is_told() {
    let sandbox = Sandbox::empty();
    sandbox.write("data/readable", &random_bytes(1, BLOCK));
    sandbox.write("data/locked", &random_bytes(2, BLOCK));
    sandbox.write("data/closed/inside", &random_bytes(3, BLOCK));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let names = ["data", "data/readable", "data/closed"];
    for name in names {
        let file = File::open(sandbox.path(name)).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(long_ago)).unwrap();
    }
    let state = |name: &&str| {
        let found = sandbox.path(name).symlink_metadata().unwrap();
        (found.atime(), found.mtime(), found.ctime(), found.ctime_nsec(), found.blocks())
    };
    let before = names.each_ref().map(state);
    estimate(&sandbox, &[]).expect(0);
    assert_eq!(names.each_ref().map(state), before);

    for name in ["data/locked", "data/closed"] {
        fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(0o0)).unwrap();
    }
    let data = sandbox.arg("data");
    let mut command = sandbox.command(&["--json", "share", "estimate", &data]);
    if rustix::process::geteuid().is_root() {
        // Nobody may read what root may; the sandbox is for its owner only otherwise.
        fs::set_permissions(sandbox.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(65_534).gid(65_534);
    }
    let run = sandbox.run_command(command);
    for name in ["data/locked", "data/closed"] {
        fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run = run.expect(3);
    let summary = run.message("summary");
    assert_eq!((bytes(&summary, "files"), bytes(&summary, "errors")), (1, 2));
    let mut told: Vec<String> = run
        .error_lines()
        .iter()
        .filter(|line| line["message_type"] == "error")
        .map(|line| line["item"].as_str().unwrap().to_owned())
        .collect();
    told.sort();
    assert_eq!(told, ["closed", "locked"]);
}

#[test]
fn a_policy_leaves_files_alone_and_says_why() {
    let sandbox = Sandbox::empty();
    for (name, length) in [
        ("data/old.iso", 5000),
        ("data/new.iso", 5000),
        ("data/small.iso", 10),
        ("data/other.txt", 5000),
        ("data/empty.iso", 0),
        ("data/scratch/x.iso", 5000),
        ("data/keep/any.thing", 5000),
        ("data/tmp.iso", 5000),
    ] {
        sandbox.write(name, &random_bytes(length, length as usize));
        if !name.contains("new") {
            let old = SystemTime::now() - Duration::from_secs(40 * 86_400);
            let file = File::options().write(true).open(sandbox.path(name)).unwrap();
            file.set_modified(old).unwrap();
        }
    }
    let policy = ["--min-age", "30d", "--min-size", "1KiB", "--exclude", "scratch/"];
    let patterns = ["--exclude", "tmp.*", "--include", "*.iso", "--include", "keep/"];
    let run = estimate(&sandbox, &[&policy[..], &patterns].concat()).expect(0);
    let summary = run.message("summary");
    // 'old.iso' and what is in 'keep'.
    assert_eq!((bytes(&summary, "files"), bytes(&summary, "bytes")), (2, 10_000));
    let left = &summary["left_alone"];
    let of = |name: &str| (bytes(&left[name], "files"), bytes(&left[name], "bytes"));
    assert_eq!(of("recent"), (1, 5000));
    assert_eq!(of("small"), (2, 10));
    assert_eq!(of("not_included"), (1, 5000));
    assert_eq!(of("excluded"), (1, 5000));
    assert_eq!(bytes(left, "excluded_directories"), 1);
}

#[test]
fn within_little_memory_fingerprints_are_sampled_and_that_is_said() {
    let sandbox = Sandbox::empty();
    // 24 MiB of which a quarter comes twice, in many small chunks.
    for number in 0..24 {
        sandbox.write(&format!("data/{number}"), &random_bytes(number, 1 << 20));
        if number % 4 == 0 {
            sandbox.write(&format!("data/{number}.again"), &random_bytes(number, 1 << 20));
        }
    }
    let many = ["--chunk-size", "256,512,1KiB,2KiB"];
    let little = estimate(&sandbox, &[&many[..], &["--memory", "48MiB"]].concat()).expect(0);
    let whole = estimate(&sandbox, &[&many[..], &["--memory", "1GiB"]].concat()).expect(0);
    let rate = |size: &Value| bytes(size, "sampled_one_in");
    assert!(rate(&sizes(&little)[0]) >= 4, "{}", rate(&sizes(&little)[0]));
    let told = little.error_lines();
    let warned = told.iter().any(|line| {
        line["message"].as_str().unwrap().contains("do not fit into the memory limit: one in")
    });
    assert!(warned, "{}", little.stderr);
    for (sampled, exact) in sizes(&little).iter().zip(sizes(&whole)) {
        assert_eq!(rate(&exact), 1);
        for field in ["chunks", "bytes", "zero_bytes", "chunk_size_bytes"] {
            assert_eq!(sampled[field], exact[field]);
        }
        for field in ["unique_bytes", "compressed_bytes", "unique_chunks"] {
            let (guess, truth) = (bytes(sampled, field) as f64, bytes(&exact, field) as f64);
            assert!((guess / truth - 1.0).abs() < 0.05, "{field}: {guess} for {truth}");
        }
    }
    let data = sandbox.arg("data");
    let arguments = [&["share", "estimate", &data, "--memory", "48MiB"][..], &many].concat();
    let peak = peak_bytes(sandbox.command(&arguments));
    assert!(peak < 48 << 20, "{peak} bytes");
}

#[test]
fn an_interrupted_estimate_goes_on_and_comes_to_the_same() {
    let sandbox = Sandbox::empty();
    for number in 0..40 {
        let shared = random_bytes(number % 7, 100 * KIB);
        let own = random_bytes(100 + number, 30 * KIB);
        sandbox.write(&format!("data/{}/{number}.bin", number % 3), &[shared, own].concat());
    }
    // A file is taken as unchanged only if it was not changed just before it was read.
    std::thread::sleep(Duration::from_millis(60));
    let expected = estimate(&sandbox, &[]).expect(0);
    let (state, data) = (sandbox.arg("state"), sandbox.arg("data"));
    let slowly = ["--json", "share", "estimate", &data, "--state", &state, "--max-io", "1MiB"];
    let mut command = sandbox.command(&slowly);
    let mut child = command.stderr(File::create(sandbox.path("told")).unwrap()).spawn().unwrap();
    until_it_hears(&child);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "it is not throttled");
    send("-TERM", &child);
    assert_eq!(code_within(&mut child, Duration::from_secs(20)), Some(130));
    let told = fs::read_to_string(sandbox.path("told")).unwrap();
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&last["message_type"], &last["code"]), (&"exit_error".into(), &130.into()));
    assert!(last["message"].as_str().unwrap().contains("goes on from the state"), "{last}");
    assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o600);

    let with_state = |sandbox: &Sandbox| estimate(sandbox, &["--state", &state]).expect(0);
    let rest = with_state(&sandbox);
    assert_eq!(sizes(&rest), sizes(&expected));
    let (some, all) = (rest.message("summary"), expected.message("summary"));
    assert_eq!((bytes(&some, "files"), bytes(&some, "bytes")), (40, bytes(&all, "bytes")));
    assert!(bytes(&some, "files_unchanged") > 0, "{some}");
    assert_eq!(bytes(&some, "bytes_read"), bytes(&all, "bytes") - bytes(&some, "bytes_unchanged"));

    // All is known now; then one file is changed, one is gone, one is new.
    let again = with_state(&sandbox);
    assert_eq!(sizes(&again), sizes(&expected));
    let summary = again.message("summary");
    assert_eq!((bytes(&summary, "bytes_read"), bytes(&summary, "files_unchanged")), (0, 40));
    assert!(summary["expected_seconds"].is_null());
    sandbox.write("data/1/4.bin", &random_bytes(1, 20 * KIB));
    sandbox.write("data/1/new.txt", &random_bytes(2, 30 * KIB));
    fs::remove_file(sandbox.path("data/0/0.bin")).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    let changed = with_state(&sandbox);
    assert_eq!(sizes(&changed), sizes(&estimate(&sandbox, &[]).expect(0)));
    assert_eq!(bytes(&changed.message("summary"), "bytes_read"), 50 * KIB as u64);
    let beside: Vec<_> = fs::read_dir(sandbox.path("")).unwrap().collect();
    assert_eq!(beside.len(), 4, "{beside:?}");
}

#[test]
fn a_state_that_cannot_be_used_is_refused_and_stays() {
    let sandbox = known_data();
    let state = sandbox.arg("state");
    estimate(&sandbox, &["--state", &state]).expect(0);
    let whole = fs::read(&state).unwrap();
    let refused = |more: &[&str], because: &str| {
        let before = fs::read(&state).unwrap();
        let run = estimate(&sandbox, &[&["--state", &state], more].concat()).expect(1);
        for part in [because, "name another file, or remove it to begin anew"] {
            assert!(run.stderr.contains(part), "'{part}' is not in {}", run.stderr);
        }
        assert!(run.stdout.is_empty());
        assert_eq!(fs::read(&state).unwrap(), before);
    };
    refused(&["--chunk-size", "64KiB"], "of other chunk sizes");
    refused(&["--compression", "none"], "of another compression");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&state, &damaged).unwrap();
    refused(&[], "damaged");
    fs::write(&state, &whole[..whole.len() - 1]).unwrap();
    refused(&[], "damaged");
    fs::write(&state, b"somebody's diary, which is longer than a head").unwrap();
    refused(&[], "it is not the state of an estimate");

    fs::write(&state, &whole).unwrap();
    let elsewhere = sandbox.arg("data/sub");
    let run = sandbox.run(&["share", "estimate", &elsewhere, "--state", &state]).expect(1);
    assert!(run.stderr.contains("of another directory"), "{}", run.stderr);
    let inside = sandbox.arg("data/sub/state");
    let run = estimate(&sandbox, &["--state", &inside]).expect(1);
    assert!(run.stderr.contains("name a file elsewhere"), "{}", run.stderr);
    assert!(!sandbox.path("data/sub/state").exists());
}
