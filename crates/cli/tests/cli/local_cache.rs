//! What a machine keeps of a store that is elsewhere, seen from outside: fewer requests, the same
//! answers, and none of them where a store is verified.

use crate::serving::{INIT, Server, prepared, run};
use crate::support::{HANG, Sandbox, within};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A store with two versions of some directories that a server serves, on a machine of its own.
struct Far {
    sandbox: Sandbox,
    server: Server,
    token: String,
}

impl Far {
    fn new() -> Self {
        let (sandbox, token) = prepared(&["store"]);
        let server = Server::start(&sandbox, &["--listen", "127.0.0.1:0", "--plain", "store"]);
        let far = Self { sandbox, server, token };
        far.run(&INIT, 0);
        for version in 0..2 {
            for number in 0..40 {
                let text = format!("file {number} of version {}", version * (number % 3));
                far.sandbox.write(&format!("source/{number}/file"), text.as_bytes());
            }
            far.run(&["backup", "source"], 0);
        }
        far
    }

    fn run(&self, arguments: &[&str], code: i32) -> String {
        let store = self.server.store("store");
        run(&self.sandbox, &store, &self.token, arguments).expect(code).stdout
    }

    /// Reads that the server has answered.
    fn reads(&self) -> u64 {
        let mut stream = TcpStream::connect(&self.server.address).unwrap();
        let token = &self.token;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let of_reads = text.lines().filter(|line| {
            line.starts_with("onefold_requests_total") && line.contains("kind=\"Get\"")
        });
        of_reads.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
    }

    /// Reads that a command makes.
    fn reads_of(&self, arguments: &[&str]) -> u64 {
        let before = self.reads();
        self.run(arguments, 0);
        self.reads() - before
    }

    fn objects(&self) -> PathBuf {
        self.sandbox.path("home/.cache/onefold/objects")
    }

    fn files(&self) -> Vec<PathBuf> {
        let shards = fs::read_dir(self.objects()).into_iter().flatten().flatten();
        let files = shards.filter_map(|shard| fs::read_dir(shard.path()).ok()).flatten().flatten();
        files.map(|file| file.path()).collect()
    }
}

#[test]
fn what_one_command_read_the_next_one_does_not_ask_for() {
    let far = Far::new();
    let without = far.reads_of(&["--cache-size", "0", "ls", "latest"]);
    let first = far.run(&["ls", "latest"], 0);
    assert!(!far.files().is_empty());
    let again = far.reads_of(&["ls", "latest"]);
    assert!(again + 4 <= without, "{again} reads instead of {without}");
    assert_eq!(far.run(&["ls", "latest"], 0), first);
    // It may go at any time.
    fs::remove_dir_all(far.objects()).unwrap();
    assert_eq!(far.run(&["ls", "latest"], 0), first);
    // And be damaged.
    for file in far.files() {
        fs::write(file, b"nonsense").unwrap();
    }
    assert_eq!(far.run(&["ls", "latest"], 0), first);
    assert!(far.reads_of(&["ls", "latest"]) <= again, "it was mended");
}

#[test]
fn nothing_is_kept_where_nothing_is_to_be_kept() {
    let far = Far::new();
    fs::remove_dir_all(far.objects()).unwrap();
    far.run(&["--cache-size", "0", "ls", "latest"], 0);
    far.run(&["check", "--read-data"], 0);
    far.run(&["gc"], 0);
    assert!(far.files().is_empty());
}

#[test]
fn a_check_sees_what_is_damaged_whatever_was_kept() {
    let far = Far::new();
    far.run(&["ls", "latest"], 0);
    let runs: Vec<_> = fs::read_dir(far.sandbox.path("store/index")).unwrap().flatten().collect();
    assert!(!runs.is_empty());
    for run in runs {
        let mut bytes = fs::read(run.path()).unwrap();
        let last = bytes.len() - 40;
        bytes[last] ^= 1;
        replace(&run.path(), &bytes);
    }
    far.run(&["check"], 1);
}

#[test]
fn what_was_damaged_when_it_was_read_does_no_harm_once_it_is_mended() {
    for directory in ["store/index", "store/containers"] {
        let far = Far::new();
        let listed = far.run(&["ls", "latest"], 0);
        let sound: Vec<_> = walk(&far.sandbox.path(directory))
            .into_iter()
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        // All of it, so that whatever is read is damaged; and nothing is kept from before.
        fs::remove_dir_all(far.objects()).unwrap();
        for (path, bytes) in &sound {
            let damaged: Vec<u8> = bytes
                .iter()
                .enumerate()
                .map(|(at, byte)| if at > 40 && at + 40 < bytes.len() { byte ^ 1 } else { *byte })
                .collect();
            replace(path, &damaged);
        }
        let store = far.server.store("store");
        let failed = run(&far.sandbox, &store, &far.token, &["ls", "latest"]);
        assert!(directory.ends_with("index") || failed.code != 0, "{}", failed.stdout);
        for (path, bytes) in &sound {
            replace(path, bytes);
        }
        assert_eq!(far.run(&["ls", "latest"], 0), listed, "{directory}");
        far.run(&["restore", "latest", "--target", "after"], 0);
    }
}

/// Gives a file other bytes: also for whoever has it open.
fn replace(path: &Path, bytes: &[u8]) {
    let mut permissions = fs::metadata(path).unwrap().permissions();
    #[allow(clippy::permissions_set_readonly_false, reason = "the test owns the file")]
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions).unwrap();
    fs::write(path, bytes).unwrap();
}

/// All files below a directory.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(walk(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files
}

#[test]
fn a_restore_finds_what_a_collection_has_moved_since() {
    let far = Far::new();
    for arguments in [&["ls", "latest"][..], &["restore", "latest", "--target", "before"]] {
        far.run(arguments, 0);
    }
    // Elsewhere, so that nothing is known here of what becomes of it.
    let other = ["--cache-size", "0"];
    let snapshots = far.run(&["--json", "snapshots"], 0);
    assert!(snapshots.lines().count() >= 2);
    far.run(&[&other[..], &["forget", "--keep-last", "1", "--final"]].concat(), 0);
    far.run(&[&other[..], &["gc", "--space-goal", "all", "--wait", "0s"]].concat(), 0);
    far.run(&["restore", "latest", "--target", "after"], 0);
    let read = |name: &str| fs::read(far.sandbox.path(name)).unwrap();
    for number in 0..40 {
        let file = format!("source/{number}/file");
        assert_eq!(read(&format!("after/{file}")), read(&file));
    }
    assert_eq!(read("after/source/large"), read("source/large"));
}

#[test]
fn r138_a_pipe_in_the_place_of_a_file_of_this_machine_holds_nobody_up() {
    let far = Far::new();
    let below = |directory: &str| {
        let entries = fs::read_dir(far.sandbox.path(directory)).unwrap().flatten();
        let paths = entries.map(|entry| entry.path()).filter(|path| path.is_file());
        paths.collect::<Vec<_>>()
    };
    let places = ["home/.cache/onefold", "home/.local/state/onefold/stores"];
    far.run(&["ls", "latest"], 0);
    assert!(!far.files().is_empty() && places.iter().all(|place| !below(place).is_empty()));
    for arguments in [
        &["ls", "latest"][..],
        &["restore", "latest", "--target", "restored"],
        &["backup", "source"],
    ] {
        for file in far.files().into_iter().chain(places.iter().flat_map(|place| below(place))) {
            fs::remove_file(&file).unwrap();
            assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        }
        let mut command = far.sandbox.command(arguments);
        command
            .env("ONEFOLD_REPOSITORY", far.server.store("store"))
            .env("ONEFOLD_TOKEN", &far.token);
        within(HANG, command.spawn().unwrap()).expect(0);
        // What was not asked for again is a pipe still.
        let pipes = far.files().into_iter().filter(|path| !path.is_file());
        pipes.for_each(|pipe| fs::remove_file(pipe).unwrap());
        far.run(&["ls", "latest"], 0);
    }
}
