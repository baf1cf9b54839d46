//! A directory with a store, a source, and the binary.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const PASSWORD: &str = "correct horse";

/// A temporary directory; the store is in `store`, the home in `home`.
pub struct Sandbox {
    root: TempDir,
    /// Whether commands are given the password.
    has_password: bool,
}

/// What a run said.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub stdout_bytes: Vec<u8>,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            stdout_bytes: output.stdout,
        }
    }

    /// Fails the test unless the run ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The JSON lines of standard output; fails the test if a line is anything else.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        parse_lines(&self.stdout)
    }

    /// The JSON lines of standard error.
    #[track_caller]
    pub fn error_lines(&self) -> Vec<Value> {
        parse_lines(&self.stderr)
    }

    /// The only line of standard output with this type.
    #[track_caller]
    pub fn message(&self, message_type: &str) -> Value {
        let mut lines = self.lines();
        lines.retain(|line| line["message_type"] == message_type);
        assert_eq!(lines.len(), 1, "{message_type} in {}", self.stdout);
        lines.remove(0)
    }

    /// The lines of standard output with this type.
    #[track_caller]
    pub fn messages(&self, message_type: &str) -> Vec<Value> {
        let mut lines = self.lines();
        lines.retain(|line| line["message_type"] == message_type);
        lines
    }
}

#[track_caller]
fn parse_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{error}: not JSON: {line:?}"));
            assert!(value["message_type"].is_string(), "no type: {line}");
            value
        })
        .collect()
}

/// What nothing takes that does not hang.
pub const HANG: Duration = Duration::from_secs(120);

/// What a process said, which must end within so long.
#[track_caller]
pub fn within(limit: Duration, mut process: Child) -> Run {
    let began = Instant::now();
    while process.try_wait().unwrap().is_none() {
        if began.elapsed() > limit {
            let _ = process.kill();
            panic!("it hangs: {:?}", Run::of(process.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Run::of(process.wait_with_output().unwrap())
}

impl Sandbox {
    /// An empty sandbox.
    pub fn empty() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("home")).unwrap();
        Self { root, has_password: true }
    }

    /// A sandbox with an initialised, unencrypted store.
    pub fn with_store() -> Self {
        let sandbox = Self::empty().with_password(false);
        sandbox.run(&["init", "--encryption", "none"]).expect(0);
        sandbox
    }

    /// The same, whose commands are given the password or not.
    pub fn with_password(self, has_password: bool) -> Self {
        Self { has_password, ..self }
    }

    /// A sandbox with an encrypted store and a source.
    pub fn with_encrypted_store() -> Self {
        let sandbox = Self::empty();
        // Each command opens the store, and few tests are about what guessing costs.
        sandbox.run(&["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"]).expect(0);
        sandbox.write("source/one.txt", b"a secret\n");
        sandbox
    }

    /// A sandbox with a store and a source of a few files.
    pub fn with_source() -> Self {
        let sandbox = Self::with_store();
        sandbox.write("source/one.txt", b"one\n");
        sandbox.write("source/deep/two.txt", &vec![b'2'; 50_000]);
        sandbox.write("source/deep/Three.TXT", b"three");
        sandbox
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The path as an argument.
    pub fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// The binary in a clean environment, with store and password set.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("TZ", "UTC")
            .env("ONEFOLD_REPOSITORY", self.path("store"))
            .envs(self.has_password.then_some(("ONEFOLD_PASSWORD", PASSWORD)))
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    pub fn run_command(&self, mut command: Command) -> Run {
        Run::of(command.output().unwrap())
    }

    /// Runs with bytes on standard input.
    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that fails early does not read its input.
        let _ = stdin.write_all(input);
        drop(stdin);
        Run::of(child.wait_with_output().unwrap())
    }

    /// Backs up the source; the new snapshot's id.
    #[track_caller]
    pub fn backup(&self, more: &[&str]) -> String {
        let source = self.arg("source");
        let mut arguments = vec!["--json", "backup", source.as_str()];
        arguments.extend(more);
        let run = self.run(&arguments).expect(0);
        run.message("summary")["snapshot"].as_str().unwrap().to_owned()
    }

    /// The ids that a listing shows.
    #[track_caller]
    pub fn ids(&self, more: &[&str]) -> Vec<String> {
        let mut arguments = vec!["--json", "snapshots"];
        arguments.extend(more);
        let run = self.run(&arguments).expect(0);
        let ids = run.messages("snapshot");
        ids.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// Whether a file's content is this.
pub fn holds(path: &Path, expected: &[u8]) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes == expected)
}
