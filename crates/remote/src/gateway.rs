//! Test support: real servers of object stores, where they are installed: `versitygw` speaks S3,
//! `azurite-blob` what Azure does, `fake-gcs-server` a part of what Google does.
//!
//! They keep buckets below a temporary directory, and listen on a free port of this machine.
//! Whoever cannot start one says "SKIPPED" on standard error.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The key that the server accepts.
pub const ACCESS: &str = "onefold-test";
/// Its secret.
pub const SECRET: &str = "onefold-secret";
/// An account that may do what a policy of the bucket says; its secret is the same.
pub const CLIENT: &str = "onefold-client";
/// The bucket that there is.
pub const BUCKET: &str = "bucket";

/// Time for it to begin to listen.
pub const START_MAX: Duration = Duration::from_secs(30);

/// A program that listens, until this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Free a moment ago; nobody else here listens.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts a program and waits until it listens; `None`, loudly, where it is not installed.
fn run(command: &mut Command, port: u16, start_max: Duration) -> io::Result<Option<Running>> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let running = match started {
        Ok(process) => Running(process),
        Err(error) => {
            let program = command.get_program().display();
            eprintln!("SKIPPED: object stores: {program} is not installed ({error})");
            return Ok(None);
        }
    };
    wait_for(port, start_max)?;
    Ok(Some(running))
}

/// Waits until somebody listens.
pub(crate) fn wait_for(port: u16, start_max: Duration) -> io::Result<()> {
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if began.elapsed() > start_max {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not listen"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A server that speaks S3, until it is dropped.
pub struct Gateway {
    _running: Running,
    /// Where it listens.
    pub port: u16,
    place: tempfile::TempDir,
}

impl Gateway {
    /// Starts one; `None`, loudly, where it is not installed.
    ///
    /// # Errors
    ///
    /// It is installed and does not start.
    pub fn start() -> io::Result<Option<Self>> {
        Self::start_program("versitygw", START_MAX)
    }

    /// The same with another program, which has so long to begin to listen.
    ///
    /// # Errors
    ///
    /// It is installed and does not start.
    pub fn start_program(program: &str, start_max: Duration) -> io::Result<Option<Self>> {
        let place = tempfile::tempdir()?;
        fs::create_dir_all(place.path().join("data").join(BUCKET))?;
        fs::create_dir_all(place.path().join("side"))?;
        fs::create_dir_all(place.path().join("accounts"))?;
        let ids = r#""userID":0,"groupID":0,"projectID":0"#;
        let account = format!(r#""access":"{CLIENT}","secret":"{SECRET}","role":"user",{ids}"#);
        let accounts = format!(r#"{{"accessAccounts":{{"{CLIENT}":{{{account}}}}}}}"#);
        fs::write(place.path().join("accounts/users.json"), accounts)?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .args(["--port", &format!("127.0.0.1:{port}"), "--access", ACCESS, "--secret", SECRET])
            .arg("--iam-dir")
            .arg(place.path().join("accounts"))
            .args(["--quiet", "posix", "--sidecar"])
            .args([place.path().join("side"), place.path().join("data")]);
        let running = run(&mut command, port, start_max)?;
        Ok(running.map(|_running| Self { _running, port, place }))
    }

    /// Gives the bucket a policy, which says what [`CLIENT`] may.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn set_policy(&self, policy: &str) -> io::Result<()> {
        let place = self.place.path().join("side").join(BUCKET).join("meta");
        fs::create_dir_all(&place)?;
        fs::write(place.join("policy"), policy)
    }

    /// A store in its bucket, as users name it.
    #[must_use]
    pub fn store(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{}", self.port)
    }

    /// What the bucket holds below a prefix, as files.
    #[must_use]
    pub fn directory(&self, prefix: &str) -> PathBuf {
        self.place.path().join("data").join(BUCKET).join(prefix)
    }
}

/// The account that Azurite has.
pub const AZURITE_ACCOUNT: &str = "devstoreaccount1";
/// Its key, which everybody knows.
pub const AZURITE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZ\
                               FPTOtr/KBHBeksoGMGw==";
/// What that key has signed: a container may be made with this, until the end of the century.
const ACCOUNT_SAS: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&\
                           sig=YKAtmJudHaH98kax9IHOYkiCF9veHhGg4TBHNwluLXo%3D";
/// The same: everything may be done in the container with this. Azurite takes no batch of deletes
/// with the one above.
pub const CONTAINER_SAS: &str = "sv=2019-12-12&sr=c&sp=racwdl&se=2099-01-01T00%3A00%3A00Z&\
                                 sig=ReZpTCNpFyDzEcGn9RIFvNOV%2F3jN2GFK3wP5JGClnGI%3D";
/// The same, but for reading and listing only.
pub const READING_SAS: &str = "sv=2019-12-12&sr=c&sp=rl&se=2099-01-01T00%3A00%3A00Z&\
                                 sig=e3j0dE0iJfhD02C0aYQGtzX2m9gZ8OHGwi1BcwaLNms%3D";

/// A server that speaks what Azure does, until it is dropped.
pub struct Azurite {
    running: Option<Running>,
    /// Where it listens.
    pub port: u16,
    place: tempfile::TempDir,
}

impl Azurite {
    /// Starts one, with one container; `None`, loudly, where it is not installed.
    ///
    /// # Errors
    ///
    /// It is installed and does not start.
    pub fn start() -> io::Result<Option<Self>> {
        let mut azurite = Self { running: None, port: free_port()?, place: tempfile::tempdir()? };
        azurite.start_again()?;
        if azurite.running.is_none() {
            return Ok(None);
        }
        let path = format!("/{AZURITE_ACCOUNT}/{BUCKET}?restype=container&{ACCOUNT_SAS}");
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-ms-version: 2023-11-03\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, azurite.port))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.starts_with("HTTP/1.1 201") {
            true => Ok(Some(azurite)),
            false => Err(io::Error::other(format!("no container was made: {answer}"))),
        }
    }

    /// Ends it as a user does; what it holds stays, which it would not if it were killed.
    pub fn stop(&mut self) {
        if let Some(Running(process)) = &mut self.running {
            let _ = Command::new("kill").arg(process.id().to_string()).status();
            let _ = process.wait();
        }
        self.running = None;
    }

    /// Starts it on what it held.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start_again(&mut self) -> io::Result<()> {
        let mut command = Command::new("azurite-blob");
        command
            .args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"])
            .args(["--blobHost", "127.0.0.1", "--blobPort", &self.port.to_string(), "--location"])
            .arg(self.place.path());
        self.running = run(&mut command, self.port, START_MAX * 2)?;
        Ok(())
    }

    /// A store in its container, as users name it.
    #[must_use]
    pub fn store(&self, prefix: &str) -> String {
        format!(
            "az://{BUCKET}/{prefix}?account={AZURITE_ACCOUNT}&endpoint=http://127.0.0.1:{}/\
             {AZURITE_ACCOUNT}",
            self.port
        )
    }
}

/// A server that speaks a part of what Google does, until it is dropped.
pub struct FakeGoogle {
    _running: Running,
    /// Where it listens.
    pub port: u16,
    _place: tempfile::TempDir,
}

impl FakeGoogle {
    /// Starts one, with one bucket; `None`, loudly, where it is not installed.
    ///
    /// # Errors
    ///
    /// It is installed and does not start.
    pub fn start() -> io::Result<Option<Self>> {
        let (port, place) = (free_port()?, tempfile::tempdir()?);
        fs::create_dir_all(place.path().join(BUCKET))?;
        let mut command = Command::new("fake-gcs-server");
        command
            .args(["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port"])
            .args([&port.to_string(), "-public-host", &format!("127.0.0.1:{port}"), "-data"])
            .arg(place.path());
        let running = run(&mut command, port, START_MAX)?;
        Ok(running.map(|_running| Self { _running, port, _place: place }))
    }
}
