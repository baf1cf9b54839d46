//! Test support: a real server of object stores, `versitygw`, where it is installed.
//!
//! It keeps buckets as directories of a temporary one, and listens on a free port of this machine.
//! Whoever cannot start it says "SKIPPED" on standard error.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The key that the server accepts.
pub const ACCESS: &str = "onefold-test";
/// Its secret.
pub const SECRET: &str = "onefold-secret";
/// The bucket that there is.
pub const BUCKET: &str = "bucket";

/// Time for it to begin to listen.
pub const START_MAX: Duration = Duration::from_secs(30);

/// A server, until it is dropped.
pub struct Gateway {
    process: Child,
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
        // Free a moment ago; nobody else here listens.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let started = Command::new(program)
            .args(["--port", &format!("127.0.0.1:{port}"), "--access", ACCESS, "--secret", SECRET])
            .args(["--quiet", "posix", "--sidecar"])
            .args([place.path().join("side"), place.path().join("data")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                eprintln!("SKIPPED: object stores: {program} is not installed ({error})");
                return Ok(None);
            }
        };
        let gateway = Self { process, port, place };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if began.elapsed() > start_max {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not listen"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(gateway))
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

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
