//! Runs one command and tells what it used.
//!
//! The figures are the kernel's, from `wait4`: CPU time of the command and of all descendants it
//! waited for, and the largest resident set any one of them had. A process counts the memory of
//! whoever started it until it has replaced itself by its program, so this program's own few MiB
//! are the least peak that can be measured; it must therefore stay small.

use crate::tools::SCRUBBED_PREFIXES;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use wait4::Wait4;

/// What one command, or several one after another, used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time spent in the program.
    pub user: Duration,
    /// CPU time spent in the kernel.
    pub system: Duration,
    /// Time from start to end.
    pub wall: Duration,
    /// Largest resident set, in bytes.
    pub peak_bytes: u64,
}

impl Usage {
    /// CPU seconds, user and system.
    pub fn cpu_seconds(&self) -> f64 {
        (self.user + self.system).as_secs_f64()
    }

    /// Largest resident set in MiB.
    pub fn peak_mib(&self) -> f64 {
        self.peak_bytes as f64 / f64::from(1 << 20)
    }

    /// Both, one after the other: times add up, the larger peak counts.
    #[must_use]
    pub fn and(self, other: Usage) -> Usage {
        Usage {
            user: self.user + other.user,
            system: self.system + other.system,
            wall: self.wall + other.wall,
            peak_bytes: self.peak_bytes.max(other.peak_bytes),
        }
    }
}

/// One command to be measured.
#[derive(Debug)]
pub struct Invocation {
    /// The program file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that are set, besides the inherited ones.
    pub environment: Vec<(String, String)>,
    /// The directory it runs in.
    pub directory: PathBuf,
    /// Takes its output, of which the end becomes part of the error if it fails.
    pub log: PathBuf,
    /// Its standard input; nothing if absent.
    pub input: Option<ChildStdout>,
}

/// Runs the command to its end. An exit code other than 0 is an error.
pub fn measure(invocation: Invocation) -> io::Result<Usage> {
    let log = File::create(&invocation.log)?;
    let mut command = Command::new(&invocation.program);
    command.args(&invocation.arguments).current_dir(&invocation.directory);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if SCRUBBED_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.envs(invocation.environment);
    command.stdout(log.try_clone()?).stderr(log);
    command.stdin(invocation.input.map_or_else(Stdio::null, Stdio::from));

    let start = Instant::now();
    let child = command.spawn()?;
    // Our end of the input pipe goes, so that its writer learns of an early death of the reader.
    drop(command);
    let result = child.wait4()?;
    let wall = start.elapsed();
    if !result.status.success() {
        let message = format!("{}: {}", result.status, end_of(&invocation.log)?);
        return Err(io::Error::other(message));
    }
    Ok(Usage {
        user: result.rusage.utime,
        system: result.rusage.stime,
        wall,
        peak_bytes: result.rusage.maxrss,
    })
}

/// The last half KiB of a log, on one line.
fn end_of(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(512)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end);
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> Invocation {
        Invocation {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("GREETING".into(), "hello".into())],
            directory: "/".into(),
            log: log.to_path_buf(),
            input: None,
        }
    }

    #[test]
    fn descendants_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let script = format!("sh -c '{busy}'");
        let usage = measure(shell(&script, &place.path().join("log"))).unwrap();
        assert!(usage.cpu_seconds() > 0.02, "{usage:?}");
        assert!(usage.peak_bytes > 100_000, "{usage:?}");
        assert!(usage.wall > Duration::ZERO);
    }

    #[test]
    fn a_failure_tells_the_exit_code_and_the_last_words() {
        let place = tempfile::tempdir().unwrap();
        let error =
            measure(shell("echo $GREETING; exit 3", &place.path().join("log"))).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status: 3") && text.contains("hello"), "{text}");
    }

    #[test]
    fn times_add_up_and_the_larger_peak_counts() {
        let second = Duration::from_secs(1);
        let one = Usage { user: second, system: second, wall: second, peak_bytes: 5 };
        let two = Usage { peak_bytes: 3, ..one };
        let both = one.and(two);
        assert!((both.cpu_seconds() - 4.0).abs() < 1e-9);
        assert_eq!(both.wall, 2 * second);
        assert_eq!(both.peak_bytes, 5);
    }
}
