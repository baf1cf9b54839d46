//! The program that leads to an SFTP server: the system's own ssh, or another one that is named.
//!
//! # Rules
//! - No shell: the program is started with its words. Host, user and port are words of their own,
//!   behind options that take them or behind `--`; the path is told to the server alone.
//! - ssh asks for nothing (`BatchMode`): who has no key that works is told so. Whatever else the
//!   user's configuration says holds; only forwardings are left out, which nobody asked for.
//! - It is in a process group of its own: an interruption at the terminal is for this program,
//!   which has things to bring to an end. It is given none of this program's own variables.
//! - What it says on standard error is kept, the last lines of it, for the message of an error.

use crate::location::SftpLocation;
use onefold_types::{Error, Result};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// Lines of standard error that are kept.
const LINES_MAX: usize = 16;
/// The longest line of them.
const LINE_MAX_BYTES: u64 = 1024;
/// How long a program may take to end once nobody talks to it.
const END_MAX: Duration = Duration::from_millis(500);

/// Something that leads to an SFTP server.
pub trait Dial: Send + Sync {
    /// Begins a connection; called within a runtime.
    ///
    /// # Errors
    ///
    /// There is no such program, or it cannot be started.
    fn dial(&self) -> io::Result<Line>;
}

/// A connection that has begun.
#[derive(Debug)]
pub struct Line {
    /// Where the server is heard and spoken to.
    pub stream: UnixStream,
    /// The program at the other end, if it is one.
    pub process: Option<Process>,
}

/// A program that was started.
#[derive(Debug)]
pub struct Process {
    child: Child,
    said: Arc<Mutex<VecDeque<String>>>,
}

impl Process {
    /// The last lines of what it said.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Lets it end by itself for a moment.
    pub fn end(&mut self) {
        let began = Instant::now();
        while self.ended().is_none() && began.elapsed() < END_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// ssh, or what is to be started in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program(Vec<String>);

impl Program {
    /// What leads to a place. `command` is started instead of ssh: words, as a shell takes
    /// them apart, without anything else that a shell does.
    ///
    /// # Errors
    ///
    /// `Invalid` for a command without words, or with a quote that is not closed.
    pub fn to(place: &SftpLocation, command: Option<&str>, connect_max: Duration) -> Result<Self> {
        if let Some(command) = command {
            let words = shlex::split(command).filter(|words| !words.is_empty());
            return words.map(Self).ok_or_else(|| {
                Error::invalid(format!(
                    "the command that leads to the SFTP server, '{command}', is none: a quote is \
                     not closed, or there is nothing in it"
                ))
            });
        }
        let mut words: Vec<String> = [
            "ssh",
            "-oBatchMode=yes",
            "-oClearAllForwardings=yes",
            "-oForwardAgent=no",
            "-oForwardX11=no",
            "-oPermitLocalCommand=no",
            "-oServerAliveInterval=30",
        ]
        .map(str::to_owned)
        .into();
        words.push(format!("-oConnectTimeout={}", connect_max.as_secs().max(1)));
        if let Some(port) = place.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &place.user {
            words.extend(["-l".to_owned(), user.clone()]);
        }
        words.extend(["-s", "--", &place.host, "sftp"].map(str::to_owned));
        Ok(Self(words))
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl Dial for Program {
    fn dial(&self) -> io::Result<Line> {
        let (name, arguments) = self.0.split_first().ok_or(io::ErrorKind::NotFound)?;
        let (stream, theirs) = UnixStream::pair()?;
        let (errors, their_errors) = UnixStream::pair()?;
        let mut command = Command::new(name);
        command.args(arguments).process_group(0);
        command.stdin(OwnedFd::from(theirs.try_clone()?)).stdout(OwnedFd::from(theirs));
        command.stderr(OwnedFd::from(their_errors));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ONEFOLD_") {
                command.env_remove(variable);
            }
        }
        let child = command.spawn()?;
        // With it go this process's copies of the other ends.
        drop(command);
        let said = Arc::default();
        errors.set_nonblocking(true)?;
        let errors = tokio::net::UnixStream::from_std(errors)?;
        tokio::spawn(keep_lines(errors, Arc::clone(&said)));
        Ok(Line { stream, process: Some(Process { child, said }) })
    }
}

/// Reads lines as long as there are some. A master of shared connections keeps them open for ever,
/// so nobody waits for the end.
async fn keep_lines(errors: tokio::net::UnixStream, said: Arc<Mutex<VecDeque<String>>>) {
    let mut reader = BufReader::new(errors);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(LINE_MAX_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        if !text.is_empty() {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.len() >= LINES_MAX {
                said.pop_front();
            }
            said.push_back(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Location;
    use std::path::Path;

    fn words(name: &str, command: Option<&str>) -> Vec<String> {
        let Location::Sftp(place) = Location::parse(Path::new(name)).unwrap() else {
            panic!("{name}")
        };
        Program::to(&place, command, Duration::from_secs(10)).unwrap().words().to_vec()
    }

    #[test]
    fn ssh_is_given_host_user_and_port_as_words_of_their_own() {
        let full = words("sftp://me@host:22022/x;rm -rf y", None);
        assert_eq!(full[0], "ssh");
        assert!(full.contains(&"-oBatchMode=yes".to_owned()));
        assert_eq!(full[8..], ["-p", "22022", "-l", "me", "-s", "--", "host", "sftp"]);
        assert_eq!(words("sftp://host/x", None)[8..], ["-s", "--", "host", "sftp"]);
    }

    #[test]
    fn another_command_is_taken_as_it_is() {
        assert_eq!(words("sftp://h/x", Some(" a  -b '$(c) d' ")), ["a", "-b", "$(c) d"]);
        let Location::Sftp(place) = Location::parse(Path::new("sftp://h/x")).unwrap() else {
            panic!()
        };
        for wrong in ["  ", "a 'b"] {
            assert!(Program::to(&place, Some(wrong), Duration::from_secs(1)).is_err());
        }
    }
}
