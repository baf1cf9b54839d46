//! Commands that look at snapshots and at the store.

use crate::support::{Sandbox, holds};
use std::io::Read;
use std::process::Stdio;

#[test]
fn listings_show_a_part_or_one_level() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let source = sandbox.arg("source");
    let place = format!("latest:{source}");
    let run = sandbox.run(&["ls", &place, "--depth", "1"]).expect(0);
    assert!(run.stdout.contains(&format!("{source}/deep\n")), "{}", run.stdout);
    assert!(!run.stdout.contains("two.txt"), "{}", run.stdout);
    let run = sandbox.run(&["ls", "-l", &place]).expect(0);
    let line = run.stdout.lines().find(|line| line.ends_with("two.txt")).unwrap();
    assert!(line.starts_with("-rw") && line.contains(" 50000 "), "{line}");
    let one = format!("latest:{source}/one.txt");
    assert_eq!(sandbox.run(&["ls", &one]).expect(0).stdout, format!("{source}/one.txt\n"));
    sandbox.run(&["ls", "latest:/nowhere"]).expect(1);
}

#[test]
fn names_are_found_in_all_snapshots() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    sandbox.backup(&[]);
    let run = sandbox.run(&["find", "*.txt"]).expect(0);
    assert_eq!(run.stdout.matches("one.txt").count(), 2, "{}", run.stdout);
    assert!(!run.stdout.contains("Three"), "{}", run.stdout);
    let run = sandbox.run(&["find", "-i", "--snapshot", "latest", "*.txt"]).expect(0);
    assert_eq!(run.stdout.matches("Three.TXT").count(), 1, "{}", run.stdout);
    let run = sandbox.run(&["find", "**/deep/*"]).expect(0);
    assert_eq!(run.stdout.matches("two.txt").count(), 2, "{}", run.stdout);
    assert!(sandbox.run(&["find", "nothing"]).expect(0).stdout.contains("nothing found"));
}

#[test]
fn differences_are_marked() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/gone", b"gone");
    sandbox.write("source/kind", b"file");
    sandbox.backup(&[]);
    std::fs::remove_file(sandbox.path("source/gone")).unwrap();
    std::fs::remove_file(sandbox.path("source/kind")).unwrap();
    std::fs::create_dir(sandbox.path("source/kind")).unwrap();
    sandbox.write("source/new", b"new");
    sandbox.write("source/one.txt", b"changed content");
    sandbox.backup(&[]);
    let run = sandbox.run(&["--json", "diff", "latest~1", "latest"]).expect(0);
    let changes = run.messages("change");
    let modifier = |name: &str| {
        let path = sandbox.arg(name);
        let change = changes.iter().find(|change| change["path"] == path.as_str());
        change.map(|change| change["modifier"].as_str().unwrap().to_owned())
    };
    assert_eq!(modifier("source/gone").as_deref(), Some("-"));
    assert_eq!(modifier("source/new").as_deref(), Some("+"));
    assert_eq!(modifier("source/one.txt").as_deref(), Some("M"));
    assert_eq!(modifier("source/kind").as_deref(), Some("T"));
    assert_eq!(modifier("source/deep/two.txt"), None);
    run.message("statistics");
}

#[test]
fn files_are_dumped_whole_or_in_part() {
    let sandbox = Sandbox::with_store();
    let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    sandbox.write("source/data", &content);
    sandbox.backup(&[]);
    let place = sandbox.arg("source/data");
    let run = sandbox.run(&["dump", "latest", &place]).expect(0);
    assert!(run.stdout_bytes == content);
    let run = sandbox.run(&["dump", "--range", "100000:50KiB", "latest", &place]).expect(0);
    assert!(run.stdout_bytes == content[100_000..151_200]);
    let run = sandbox.run(&["dump", "--range", "399990:", "latest", &place]).expect(0);
    assert!(run.stdout_bytes == content[399_990..]);
    let output = sandbox.arg("dumped");
    sandbox.run(&["dump", "latest", &place, "--output", &output]).expect(0);
    assert!(holds(&sandbox.path("dumped"), &content));
    sandbox.run(&["dump", "latest", &sandbox.arg("source")]).expect(1);
    sandbox.run(&["dump", "latest"]).expect(1);
    let inside = sandbox.arg("store/x");
    sandbox.run(&["dump", "latest", &place, "--output", &inside]).expect(1);
}

#[test]
fn what_is_not_damaged_of_a_file_is_dumped() {
    const STEP: usize = 64 << 10;
    let sandbox = Sandbox::with_store();
    let mut state = 7u64;
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 32) as u32
    };
    let content: Vec<u8> = (0..400_000).map(word).flat_map(u32::to_le_bytes).collect();
    sandbox.write("source/data", &content);
    sandbox.backup(&[]);
    let shards = sandbox.path("store/containers").read_dir().unwrap();
    let files = shards.flat_map(|shard| shard.unwrap().path().read_dir().unwrap());
    let largest =
        files.map(|file| file.unwrap().path()).max_by_key(|path| path.metadata().unwrap().len());
    let mut stored = std::fs::read(largest.as_ref().unwrap()).unwrap();
    let middle = stored.len() / 2;
    stored[middle] ^= 1;
    std::fs::write(largest.unwrap(), stored).unwrap();
    let place = sandbox.arg("source/data");
    let mut lost = 0;
    for start in (0..content.len()).step_by(STEP) {
        let range = format!("{start}:{STEP}");
        let run = sandbox.run(&["dump", "--range", &range, "latest", &place]);
        if run.code == 0 {
            assert!(run.stdout_bytes == content[start..content.len().min(start + STEP)]);
            continue;
        }
        assert!(run.stderr.contains("chunk ") && run.stdout_bytes.is_empty(), "{}", run.stderr);
        lost += 1;
    }
    // A frame is 256 KiB and may begin and end anywhere.
    assert!((1..=6).contains(&lost), "{lost}");
    let run = sandbox.run(&["dump", "latest", &place]).expect(1);
    assert!(run.stderr.contains("chunk "), "{}", run.stderr);
}

#[test]
fn a_reader_who_goes_away_is_no_failure() {
    let sandbox = Sandbox::with_store();
    for number in 0..3000 {
        sandbox.write(&format!("source/a-rather-long-name-{number:05}"), b"");
    }
    sandbox.write("source/large", &vec![1; 1 << 20]);
    sandbox.backup(&[]);
    let large = sandbox.arg("source/large");
    for arguments in [vec!["ls"], vec!["--json", "ls"], vec!["dump", "latest", &large]] {
        let mut child = sandbox.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut beginning = [0; 16];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut beginning).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert_eq!(stderr, "", "{arguments:?}");
    }
}

#[test]
fn a_full_standard_output_is_a_failure() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = sandbox.command(&["ls"]);
    let status = command.stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn figures_add_up() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    sandbox.backup(&["--force"]);
    let found = sandbox.run(&["--json", "stats"]).expect(0).message("statistics");
    assert_eq!(found["snapshots"], 2);
    assert_eq!(found["bytes_logical"], 2 * 50_009);
    assert!(found["ratio_deduplication"].as_f64().unwrap() >= 2.0, "{found}");
    sandbox.run(&["stats"]).expect(0);
}

#[test]
fn objects_can_be_looked_at() {
    let sandbox = Sandbox::with_source();
    let id = sandbox.backup(&[]);
    let record = sandbox.run(&["--json", "cat", "snapshot", &id]).expect(0);
    let record = record.message("snapshot_record");
    let root = record["root"].as_str().unwrap().split(':').next().unwrap().to_owned();
    let node = sandbox.run(&["--json", "cat", "node", &root]).expect(0).message("node");
    assert_eq!(node["kind"], "directory-leaf");
    let mut shards = sandbox.path("store/containers").read_dir().unwrap();
    let shard = shards.next().unwrap().unwrap().path();
    let container = shard.read_dir().unwrap().next().unwrap().unwrap().file_name();
    let container = container.to_str().unwrap();
    let shown = sandbox.run(&["--json", "cat", "container", container]).expect(0);
    assert!(!shown.message("container")["chunks"].as_array().unwrap().is_empty());
    sandbox.run(&["cat", "config"]).expect(0);
    sandbox.run(&["cat", "node", &"0".repeat(64)]).expect(1);
    sandbox.run(&["cat", "container", "zz"]).expect(1);
}

#[test]
fn completion_scripts_are_printed_without_a_store() {
    let sandbox = Sandbox::empty();
    for shell in ["bash", "zsh", "fish"] {
        let run = sandbox.run(&["completion", shell]).expect(0);
        assert!(run.stdout.contains("copy-snapshot"), "{shell}");
    }
}

#[test]
fn r95_without_look_ups_a_backup_adds_the_same_whatever_the_store_knows() {
    let secret = crate::collecting::random_bytes(5, 300_000);
    let sandbox = Sandbox::empty().with_password(false);
    sandbox.write("known/before", &secret);
    sandbox.write("source/guess", &secret);
    sandbox.write("source/other", &[&secret[..], b"twice in the stream"].concat());
    let (source, known) = (sandbox.arg("source"), sandbox.arg("known"));
    let mut added = Vec::new();
    for store in ["blank", "knows"] {
        let on = |arguments: &[&str]| sandbox.run(&[&["--json", "-r", store], arguments].concat());
        on(&["init", "--encryption", "none"]).expect(0);
        if store == "knows" {
            on(&["backup", &known]).expect(0);
        }
        // With look-ups it shows.
        let dry = on(&["backup", "--dry-run", &source]).expect(0).message("summary");
        let shown = dry["bytes_new"].as_u64().unwrap();
        assert_eq!(shown > 300_000, store == "blank", "{shown}");
        let arguments = ["backup", &source, "--lookup", "none", "--force"];
        let summary = on(&arguments).expect(0).message("summary");
        assert_eq!(summary["chunks"], summary["chunks_new"]);
        assert!(summary["bytes_new"].as_u64().unwrap() > 600_000, "{summary}");
        let stored = summary["bytes_stored"].as_u64().unwrap();
        assert!((600_000..620_000).contains(&stored), "{summary}");
        // The same once more: nothing that the store knows by now makes a difference either.
        let again = on(&arguments).expect(0).message("summary");
        for summary in [&summary, &again] {
            let of = |field: &str| summary[field].as_u64().unwrap();
            added.push(["chunks", "chunks_new", "bytes_new", "bytes_stored"].map(of));
        }
        on(&["check", "--read-data"]).expect(0);
        let restored = on(&["dump", &format!("latest:{source}/guess")]).expect(0);
        assert!(restored.stdout_bytes == secret);
        // A collection puts together what is there twice, and takes nothing that is needed.
        on(&["gc", "--space-goal", "all"]).expect(0);
        on(&["check", "--read-data"]).expect(0);
    }
    // The times of the directories above may take some bytes more or less.
    for one in &added {
        assert_eq!(one[..2], added[0][..2], "{added:?}");
        for (bytes, expected) in one[2..].iter().zip(&added[0][2..]) {
            assert!(bytes.abs_diff(*expected) < 256, "{added:?}");
        }
    }
}
