//! Commands that may open few files: they work, or say which limit to raise (R88).

use crate::support::{Run, Sandbox};
use std::process::Command;

/// Below this the system cannot even start a program.
const LIMIT_MIN: u32 = 6;
/// From here on everything has to work.
const LIMIT_ENOUGH: u32 = 64;
const DIRECTORIES: usize = 40;

/// Runs a command that may have so many files open.
fn run_within(sandbox: &Sandbox, limit: u32, arguments: &[&str]) -> Run {
    let plain = sandbox.command(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
    command.arg(plain.get_program()).args(plain.get_args()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(sandbox.path(""));
    sandbox.run_command(command)
}

/// It worked, or it named the limit, and nothing else was the matter. Whether it worked.
#[track_caller]
fn is_done(limit: u32, run: &Run) -> bool {
    let told = format!("{limit} files: code {}\n{}{}", run.code, run.stdout, run.stderr);
    if run.code == 0 {
        return true;
    }
    assert!(limit < LIMIT_ENOUGH, "{told}");
    // With 3 single files were not restored.
    assert!(matches!(run.code, 1 | 3), "{told}");
    let remedy = "too many open files: raise the limit (ulimit -n)";
    // Below the program itself the system says it in its own words.
    assert!(run.stderr.contains(remedy) || limit < 8, "{told}");
    for wrong in ["damage", "lost", "missing", "wrong password", "cannot be read", "not whole"] {
        assert!(!run.stderr.contains(wrong) && !run.stdout.contains(wrong), "{wrong}: {told}");
    }
    false
}

/// The store is sound, and nothing in it counts as damaged or is distrusted.
#[track_caller]
fn expect_sound(sandbox: &Sandbox, limit: u32, more: &[&str]) {
    for directory in ["damage", "doubts"] {
        let entries = std::fs::read_dir(sandbox.path("store").join(directory));
        let count = entries.map_or(0, Iterator::count);
        assert_eq!(count, 0, "{directory} after {limit} files");
    }
    let check = sandbox.run(&[&["check"], more].concat());
    assert_eq!(check.code, 0, "{limit} files: {}{}", check.stdout, check.stderr);
    assert!(check.stdout.contains("no problems found"), "{}", check.stdout);
}

/// Bytes that occur once.
fn bytes_of(number: usize, generation: u32) -> Vec<u8> {
    let mut hash = number as u64 * 7919 + u64::from(generation) * 104_729 + 1;
    let mut next = || {
        hash ^= hash << 13;
        hash ^= hash >> 7;
        hash ^= hash << 17;
        hash.to_le_bytes()
    };
    (0..2500).flat_map(|_| next()).collect()
}

/// Files in directories of their own, and below each a further one.
fn write_generation(sandbox: &Sandbox, generation: u32) {
    for number in 0..DIRECTORIES {
        let changes = number % 8 == generation as usize % 8 || generation == 0;
        if changes {
            let bytes = bytes_of(number, generation);
            sandbox.write(&format!("source/{number}/file"), &bytes);
            sandbox.write(&format!("source/{number}/deep/file"), &bytes[..9000]);
        }
    }
}

/// The lowest limit with which all went well.
fn sweep(sandbox: &Sandbox, mut command: impl FnMut(u32) -> Run) -> u32 {
    let mut lowest = LIMIT_ENOUGH;
    for limit in LIMIT_MIN..=LIMIT_ENOUGH {
        let run = command(limit);
        if is_done(limit, &run) {
            lowest = lowest.min(limit);
        } else {
            lowest = LIMIT_ENOUGH;
        }
        if limit % 4 == 0 {
            expect_sound(sandbox, limit, &[]);
        }
    }
    expect_sound(sandbox, LIMIT_ENOUGH, &["--read-data"]);
    lowest
}

/// A store of a dozen containers, and the source of its newest snapshot.
fn store_of_many_containers() -> Sandbox {
    let sandbox = Sandbox::with_store();
    for generation in 0..12 {
        write_generation(&sandbox, generation);
        sandbox.backup(&[]);
    }
    sandbox
}

#[test]
fn r88_a_backup_with_few_open_files_is_whole_or_none() {
    let sandbox = store_of_many_containers();
    let source = sandbox.arg("source");
    let mut saved = sandbox.ids(&[]).len();
    let lowest = sweep(&sandbox, |limit| {
        write_generation(&sandbox, limit + 12);
        let run = run_within(&sandbox, limit, &["backup", &source]);
        let now = sandbox.ids(&[]).len();
        assert_eq!(now - saved, usize::from(run.code == 0), "{limit}: {}", run.stderr);
        saved = now;
        run
    });
    // 21 mostly; with all runs of the index open that there may be, which depends on when they were
    // merged last, and several directories, up to 27.
    assert!(lowest <= 28, "a backup needs {lowest} open files");
    let target = sandbox.arg("target");
    sandbox.run(&["restore", "latest", "--target", &target]).expect(0);
    let restored = format!("{target}{source}");
    let differs = Command::new("diff").args(["-r", &source, &restored]).output().unwrap();
    assert!(differs.status.success(), "{}", String::from_utf8_lossy(&differs.stdout));
}

#[test]
fn r88_a_check_with_few_open_files_finds_no_damage() {
    let sandbox = store_of_many_containers();
    let read = |limit| run_within(&sandbox, limit, &["check", "--read-data"]);
    let lowest = sweep(&sandbox, read);
    assert!(lowest <= 24, "a check needs {lowest} open files");
}

#[test]
fn r88_a_collection_with_few_open_files_loses_nothing() {
    let sandbox = store_of_many_containers();
    let mut generation = 12;
    let lowest = sweep(&sandbox, |limit| {
        generation += 1;
        write_generation(&sandbox, generation);
        sandbox.backup(&[]);
        sandbox.run(&["forget", "--keep-last", "3", "--final"]).expect(0);
        run_within(&sandbox, limit, &["gc", "--space-goal", "all", "--wait", "0s"])
    });
    assert!(lowest <= 24, "a collection needs {lowest} open files");
}

#[test]
fn r88_a_restore_with_few_open_files_takes_nothing_away() {
    let sandbox = store_of_many_containers();
    let source = sandbox.arg("source");
    let from = format!("latest:{source}");
    let target = sandbox.arg("target");
    sandbox.write("target/0/extra.keep", b"mine");
    sandbox.run(&["restore", &from, "--target", &target]).expect(0);
    let lowest = sweep(&sandbox, |limit| {
        // One file differs, one is gone, and one is not in the snapshot.
        sandbox.write("target/3/file", b"other");
        std::fs::remove_file(sandbox.path("target/4/file")).unwrap();
        let mut arguments = vec!["restore", &from, "--target", &target, "--delete"];
        arguments.extend(["--exclude", "*.keep"]);
        let run = run_within(&sandbox, limit, &arguments);
        for number in (0..DIRECTORIES).filter(|number| !matches!(number, 3 | 4)) {
            for name in [format!("{number}/file"), format!("{number}/deep/file")] {
                let read = |top: &str| std::fs::read(sandbox.path(top).join(&name)).unwrap();
                assert!(read("target") == read("source"), "{name} after {limit}");
            }
        }
        assert_eq!(std::fs::read(sandbox.path("target/0/extra.keep")).unwrap(), b"mine");
        sandbox.run(&arguments).expect(0);
        run
    });
    assert!(lowest <= 24, "a restore needs {lowest} open files");
    let fresh = sandbox.arg("fresh");
    let run = run_within(&sandbox, lowest, &["restore", &from, "--target", &fresh]);
    assert!(is_done(lowest, &run) || run.stderr.contains("ulimit -n"), "{}", run.stderr);
}
