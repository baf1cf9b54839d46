//! Options without sense or bound, signals, and output that nobody takes.

use crate::support::Sandbox;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn r88_what_has_no_bound_or_no_sense_is_refused() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    for wrong in [
        // One beyond THREADS_MAX and STREAMS_MAX.
        &["--threads", "1025", "backup", &source][..],
        &["backup", &source, "--streams", "257"],
        &["--threads", "1000000", "backup", &source],
        &["--threads", "0", "backup", &source],
        &["backup", &source, "--streams", "99999999999"],
        &["backup", &source, "--host", ""],
        &["snapshots", "--host", ""],
        &["gc", "--max-io", "0"],
        &["gc", "--max-cpu", "0"],
        &["maintain", "--max-io", "0"],
        &["gc", "--space-goal", "200%"],
        &["--password-command", "yes", "backup", &source],
    ] {
        let begun = Instant::now();
        let run = sandbox.run(wrong).expect(1);
        assert!(begun.elapsed() < Duration::from_secs(10), "{wrong:?}");
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    }
    sandbox.write("profiles.toml", b"[profile.default]\nthreads = 2000\n");
    sandbox.run(&["--config", "profiles.toml", "backup", &source]).expect(1);
    assert!(sandbox.ids(&[]).is_empty());
    sandbox.run(&["--threads", "3", "backup", &source, "--streams", "2"]).expect(0);
    // At both bounds all works: 256 sources, memory for as many streams.
    let sources: Vec<String> = (0..256).map(|number| sandbox.arg(&format!("s{number}"))).collect();
    for number in 0..256 {
        sandbox.write(&format!("s{number}"), format!("{number}").as_bytes());
    }
    let mut most = vec!["--json", "--threads", "1024", "--memory", "8GiB", "backup"];
    most.extend(["--streams", "256"].iter().copied().chain(sources.iter().map(String::as_str)));
    assert_eq!(sandbox.run(&most).expect(0).message("summary")["streams"], 256);
    sandbox.run(&["check", "--read-data"]).expect(0);
}

/// Waits until signals would stop a job at a safe point: before, they end the program at once.
/// (SIGINT may be ignored, as a shell has it for what it starts in the background, and then stays
/// so.)
pub fn until_it_hears(child: &Child) {
    until_there_is("signals", child);
}

/// Waits until the program has a thread of that name.
pub fn until_there_is(thread: &str, child: &Child) {
    let begun = Instant::now();
    let tasks = format!("/proc/{}/task", child.id());
    while begun.elapsed() < Duration::from_secs(60) {
        let all = std::fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path());
        let names = all.filter_map(|task| std::fs::read_to_string(task.join("comm")).ok());
        if names.into_iter().any(|name| name.trim() == thread) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it hears no signals");
}

/// The most memory that a command has held, in bytes; it must succeed.
pub fn peak_bytes(mut command: Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let told = std::fs::read_to_string(&status).unwrap_or_default();
        let line = told.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = kibibytes.unwrap_or(0).max(peak);
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success(), "{ended}");
            return peak * 1024;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn r88_streams_keep_to_the_memory_limit() {
    let sandbox = Sandbox::with_store();
    let mut sources = Vec::new();
    for number in 0..8 {
        let content = crate::collecting::random_bytes(number, 12 << 20);
        sandbox.write(&format!("s{number}"), &content);
        sources.push(sandbox.arg(&format!("s{number}")));
    }
    // What the allocator keeps of buffers that were freed comes on top of the limit.
    let slack_bytes = 12 << 20;
    for (limit, streams) in [("48MiB", "1"), ("48MiB", "8"), ("64MiB", "8"), ("128MiB", "8")] {
        let limit_bytes: u64 = limit.trim_end_matches("MiB").parse::<u64>().unwrap() << 20;
        let arguments = ["--memory", limit, "backup", "-f", "--streams", streams];
        let store = sandbox.arg(&format!("store-{limit}-{streams}"));
        let init = ["-r", &store, "init", "--encryption", "none"];
        sandbox.run(&init).expect(0);
        let mut command = sandbox.command(&["-r", &store]);
        command.args(arguments).args(&sources);
        let peak = peak_bytes(command);
        assert!(peak > 10 << 20, "nothing was measured");
        assert!(peak <= limit_bytes + slack_bytes, "{limit}, {streams} streams: {peak}");
    }
    let store = sandbox.arg("store-stdin");
    sandbox.run(&["-r", &store, "init", "--encryption", "none"]).expect(0);
    let mut command = sandbox.command(&["-r", &store, "--memory", "48MiB", "backup"]);
    command.args(["--stdin-from-command", "--", "cat"]).args(&sources);
    let peak = peak_bytes(command);
    assert!(peak <= (48 << 20) + slack_bytes, "a stream: {peak}");
}

#[test]
fn r88_threads_keep_to_the_memory_limit() {
    let sandbox = Sandbox::with_store();
    sandbox.write("source", &crate::collecting::random_bytes(3, 96 << 20));
    let source = sandbox.arg("source");
    let asked = ["--memory", "48MiB", "--threads", "64"];
    let run = sandbox.run(&[&asked[..], &["backup", &source]].concat()).expect(0);
    assert!(run.stderr.contains("2 threads"), "{}", run.stderr);
    let mut command = sandbox.command(&asked);
    command.args(["check", "--read-data"]);
    let peak = peak_bytes(command);
    assert!(peak <= 64 << 20, "{peak}");
}

#[test]
fn r88_fewer_streams_than_asked_for_are_told() {
    let sandbox = Sandbox::with_source();
    sandbox.write("other", b"other");
    let (source, other) = (sandbox.arg("source"), sandbox.arg("other"));
    let asked = ["--memory", "48MiB", "backup", "--streams", "2", &source, &other];
    let run = sandbox.run(&asked).expect(0);
    assert!(run.stderr.contains("1 stream at a time"), "{}{}", run.stdout, run.stderr);
    let run = sandbox.run(&["backup", "--streams", "9", &source, &other]).expect(0);
    assert!(!run.stderr.contains("at a time"), "{}", run.stderr);
}

#[test]
fn r88_a_password_command_that_never_ends_printing_is_ended() {
    let sandbox = Sandbox::with_encrypted_store().with_password(false);
    let run = sandbox.run(&["--password-command", "yes", "snapshots"]).expect(1);
    assert!(run.stderr.contains("64 KiB"), "{}", run.stderr);
}

#[test]
fn r88_a_snapshot_whose_summary_cannot_be_told_is_saved() {
    let sandbox = Sandbox::with_source();
    for json in [false, true] {
        let source = sandbox.arg("source");
        let mut command = sandbox.command(&["backup", &source]);
        if json {
            command.arg("--json");
        }
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        let run = sandbox.run_command(command).expect(3);
        let id = sandbox.ids(&[]).pop().unwrap();
        let named = format!("snapshot {} is saved", &id[..8]);
        assert!(run.stderr.contains(&named), "{}", run.stderr);
    }
    assert_eq!(sandbox.ids(&[]).len(), 2);
}

/// Runs a command whose standard output is full.
fn unheard(sandbox: &Sandbox, arguments: &[&str]) -> crate::support::Run {
    let mut command = sandbox.command(arguments);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    sandbox.run_command(command)
}

#[test]
fn r88_what_was_done_and_cannot_be_told_is_no_failure() {
    let sandbox = Sandbox::with_encrypted_store();
    let id = sandbox.backup(&[]);
    sandbox.write("source/two.txt", b"two");
    sandbox.backup(&[]);
    let state = || sandbox.run(&["--json", "snapshots"]).messages("snapshot")[0].clone();
    let done = |arguments: &[&str]| {
        let run = unheard(&sandbox, arguments).expect(3);
        assert!(run.stderr.contains("No space left"), "{arguments:?}: {}", run.stderr);
    };
    done(&["hold", &id]);
    assert_eq!(state()["hold"], true);
    done(&["--json", "release", &id]);
    assert_eq!(state()["hold"], false);
    done(&["tag", "--add", "kept", &id]);
    assert_eq!(state()["tags"][0], "kept");
    done(&["describe", &id, "a note"]);
    assert_eq!(state()["description"], "a note");
    done(&["forget", &id]);
    assert_eq!(sandbox.ids(&[]).len(), 1);
    done(&["undelete", &id]);
    assert_eq!(sandbox.ids(&[]).len(), 2);
    done(&["copy-snapshot", &id]);
    assert_eq!(sandbox.ids(&[]).len(), 3);
    done(&["forget", "--final", &id]);
    assert_eq!(sandbox.ids(&["--all"]).len(), 2);
    done(&["gc", "--space-goal", "all"]);
    sandbox.write("password", b"another\n");
    let password = sandbox.arg("password");
    let kdf = ["--kdf-memory", "8MiB", "--kdf-passes", "1"];
    done(&[&["key", "add", "--new-password-file", &password], &kdf[..]].concat());
    sandbox.run(&["--password-file", &password, "snapshots"]).expect(0);
    done(&["key", "rotate", "--remove-others"]);
    sandbox.run(&["--password-file", &password, "snapshots"]).expect(12);
    // What changes nothing, fails or finds damage is a failure as before.
    for arguments in [&["snapshots"][..], &["hold", "latest", "--dry-run"], &["gc", "--dry-run"]] {
        unheard(&sandbox, arguments).expect(1);
    }
    unheard(&sandbox, &["hold", &id]).expect(1);
}

#[test]
fn r88_what_is_said_has_a_bound() {
    let sandbox = Sandbox::with_encrypted_store();
    let source = sandbox.arg("source");
    let text = |bytes: usize| "x".repeat(bytes);
    // TAG_MAX_BYTES, HOST_MAX_BYTES, KEY_LABEL_MAX_BYTES, DESCRIPTION_MAX_BYTES, TAGS_MAX.
    let (word, note) = (text(1024), text(64 << 10));
    let (long_word, long_note) = (text(1025), text((64 << 10) + 1));
    let tags = (0..1024).map(|number| format!("t{number}")).collect::<Vec<_>>().join(",");
    let last = ["--host", &word, "--description", &note, "--tag", &word];
    sandbox.backup(&last);
    sandbox.write("password", b"another\n");
    let password = sandbox.arg("password");
    let add = ["key", "add", "--new-password-file", &password, "--kdf-memory", "8MiB", "--label"];
    for refused in [
        &["backup", &source, "--host", &long_word][..],
        &["backup", &source, "--description", &long_note],
        &["backup", &source, "--tag", &long_word],
        &["backup", &source, "--tag", &format!("{tags},more")],
        &["tag", "--add", &long_word, "latest"],
        &["tag", "--add", &tags, "latest"],
        &["describe", "latest", &long_note],
        &["copy-snapshot", "latest", "--description", &long_note],
        &[&add[..], &[&long_word]].concat(),
    ] {
        let run = sandbox.run(refused).expect(1);
        let told = ["too long", "too many"].iter().any(|told| run.stderr.contains(told));
        assert!(told && run.stderr.len() < 200, "{}: {}", refused[0], run.stderr);
    }
    assert_eq!(sandbox.ids(&[]).len(), 1);
    sandbox.run(&["tag", "--set", &tags, "latest"]).expect(0);
    sandbox.run(&["describe", "latest", &note]).expect(0);
    sandbox.run(&[&add[..], &[&word]].concat()).expect(0);
    let snapshot = sandbox.run(&["--json", "snapshots"]).expect(0).message("snapshot");
    assert_eq!(snapshot["tags"].as_array().unwrap().len(), 1024);
    assert_eq!(snapshot["description"], note.as_str());
    sandbox.run(&["check"]).expect(0);
}

#[test]
fn r88_containers_of_any_size_keep_to_the_memory_limit() {
    let sandbox = Sandbox::empty().with_password(false);
    let init = ["init", "--encryption", "none", "--container-size", "256MiB"];
    let run = sandbox.run(&init).expect(0);
    assert!(run.stdout.contains("3.98 GiB"), "{}", run.stdout);
    for number in 0..4 {
        let content = crate::collecting::random_bytes(number, 24 << 20);
        sandbox.write(&format!("s{number}/file"), &content);
    }
    let largest = || {
        let mut sizes = Vec::new();
        for directory in std::fs::read_dir(sandbox.path("store/containers")).unwrap() {
            for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
                sizes.push(file.unwrap().metadata().unwrap().len());
            }
        }
        sizes.into_iter().max().unwrap()
    };
    let within = |arguments: &[&str]| {
        let mut command = sandbox.command(&["--memory", "48MiB"]);
        command.args(arguments);
        let peak = peak_bytes(command);
        assert!(peak > 10 << 20, "nothing was measured");
        // What the allocator keeps of buffers that were freed comes on top of the limit.
        assert!(peak <= 64 << 20, "{arguments:?}: {peak}");
    };
    within(&["backup", &sandbox.arg("s0")]);
    assert!(largest() < 6 << 20, "{}", largest());
    // A process that may take more fills them, and one that may not can read them all the same.
    let all: Vec<String> = (0..4).map(|number| sandbox.arg(&format!("s{number}"))).collect();
    let mut more = vec!["--memory", "4GiB", "backup"];
    more.extend(all.iter().map(String::as_str));
    sandbox.run(&more).expect(0);
    assert!(largest() > 64 << 20, "{}", largest());
    sandbox.run(&["backup", &all[0]]).expect(0);
    within(&["check", "--read-data"]);
    within(&["restore", "latest", "--target", &sandbox.arg("out")]);
    sandbox.run(&["forget", "--keep-last", "1", "--group-by", "host", "--final"]).expect(0);
    within(&["gc", "--space-goal", "all"]);
    sandbox.run(&["check", "--read-data"]).expect(0);
}

/// Sends a signal as a shell does.
pub fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").arg(signal).arg(child.id().to_string()).status();
    assert!(status.unwrap().success());
}

/// The exit code, if the child ends in time.
pub fn code_within(child: &mut Child, most: Duration) -> Option<i32> {
    let begun = Instant::now();
    while begun.elapsed() < most {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// A limit that a shell has set is no end of the program in the middle of a file.
#[test]
fn r88_a_file_that_is_larger_than_may_be_is_an_error() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/large", &crate::collecting::random_bytes(1, 300_000));
    sandbox.backup(&[]);
    let plain = sandbox.command(&["restore", "latest", "--target", &sandbox.arg("out")]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 100; exec \"$0\" \"$@\""]).arg(plain.get_program());
    limited.args(plain.get_args()).env_clear();
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 3)), "{:?}: {said}", output.status);
    assert!(said.contains("large"), "{said}");
}

#[test]
fn r88_a_signal_is_heard_while_a_command_is_silent() {
    let sandbox = Sandbox::with_store();
    let script = "echo $$ > started; echo hi; exec sleep 60";
    let arguments = ["backup", "--stdin-from-command", "--", "sh", "-c", script];
    let mut child = sandbox.command(&arguments).stdout(Stdio::null()).spawn().unwrap();
    let started = sandbox.path("started");
    while std::fs::read_to_string(&started).map_or(true, |text| !text.ends_with('\n')) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    send("-TERM", &child);
    assert_eq!(code_within(&mut child, Duration::from_secs(20)), Some(130));
    let command = std::fs::read_to_string(&started).unwrap();
    let alive = std::path::Path::new("/proc").join(command.trim());
    assert!(!alive.exists(), "the command is still there");
    assert!(sandbox.ids(&[]).is_empty());
}

#[test]
fn r88_a_signal_that_is_ignored_at_the_start_stays_ignored() {
    let sandbox = Sandbox::with_store();
    let program = env!("CARGO_BIN_EXE_onefold");
    for (signal, expected) in [("-HUP", 0), ("-TERM", 130)] {
        let template = sandbox.command(&[]);
        let mut command = Command::new("sh");
        let script = format!(
            "trap '' HUP; exec '{program}' backup --stdin --stdin-filename x --allow-empty"
        );
        command.arg("-c").arg(script).env_clear();
        command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(sandbox.path("")).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        send(signal, &child);
        std::thread::sleep(Duration::from_millis(600));
        drop(child.stdin.take());
        assert_eq!(code_within(&mut child, Duration::from_secs(10)), Some(expected), "{signal}");
    }
    assert_eq!(sandbox.ids(&[]).len(), 1);
}

#[test]
fn r88_throttled_work_stops_within_a_second() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let mut child = sandbox
        .command(&["--json", "gc", "--max-io", "1", "--space-goal", "all"])
        .stderr(File::create(sandbox.path("told")).unwrap())
        .spawn()
        .unwrap();
    until_it_hears(&child);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "it is not throttled");
    send("-TERM", &child);
    // Unheard, it would wait for days; a second is what it takes on a machine that is idle.
    assert_eq!(code_within(&mut child, Duration::from_secs(20)), Some(130));
    let told = std::fs::read_to_string(sandbox.path("told")).unwrap();
    let last: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&last["message_type"], &last["code"]), (&"exit_error".into(), &130.into()));
    sandbox.run(&["check"]).expect(0);
}
