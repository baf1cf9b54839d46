//! Test support: OpenSSH's own server, where it is installed: sftp-server by itself, on pipes, or
//! behind an sshd that listens on a free port of this machine, with keys of its own.
//!
//! Whoever cannot find them says "SKIPPED" on standard error.

use crate::gateway::{START_MAX, free_port, wait_for};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where systems keep sftp-server.
const PLACES: [&str; 4] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
];
/// It wants to be called by its whole path.
const SSHD: &str = "/usr/sbin/sshd";

/// The program; `None`, loudly, where it is not installed.
#[must_use]
pub fn find() -> Option<&'static str> {
    let found = PLACES.into_iter().find(|place| Path::new(place).exists());
    if found.is_none() {
        eprintln!("SKIPPED: SFTP: OpenSSH's sftp-server is not installed");
    }
    found
}

/// A server, until it is dropped.
pub struct Sshd {
    process: Child,
    /// Where it listens.
    pub port: u16,
    place: tempfile::TempDir,
}

impl Sshd {
    /// Starts one; `None`, loudly, where it is not installed.
    ///
    /// # Errors
    ///
    /// It is installed and does not start.
    pub fn start() -> io::Result<Option<Self>> {
        let Some(sftp) = find() else { return Ok(None) };
        let has = |program| Command::new(program).arg("-V").output().is_ok();
        if !Path::new(SSHD).exists() || !has("ssh") || !has("ssh-keygen") {
            eprintln!("SKIPPED: SFTP over ssh: OpenSSH's client and server are not installed");
            return Ok(None);
        }
        let place = tempfile::tempdir()?;
        let at = |name: &str| place.path().join(name).display().to_string();
        for name in ["host", "key", "stranger"] {
            let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", &at(name)];
            Command::new("ssh-keygen").args(arguments).status()?;
        }
        let port = free_port()?;
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nStrictModes no\n\
             AuthorizedKeysFile {}\nPasswordAuthentication no\nPermitRootLogin yes\nUsePAM no\n\
             MaxStartups 100\nSubsystem sftp {sftp}\n",
            at("host"),
            at("key.pub"),
        );
        fs::write(at("sshd_config"), text)?;
        // What it separates its rights in, as root; others do without.
        let _ = fs::create_dir_all("/run/sshd");
        let process = Command::new(SSHD)
            .args(["-D", "-e", "-f", &at("sshd_config")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(at("log"))?)
            .spawn()?;
        let sshd = Self { process, port, place };
        sshd.trust("host.pub")?;
        sshd.use_key("key")?;
        wait_for(port, START_MAX)?;
        Ok(Some(sshd))
    }

    /// Has its client know the server by this key.
    ///
    /// # Errors
    ///
    /// Those of files.
    pub fn trust(&self, key: &str) -> io::Result<()> {
        let key = fs::read_to_string(self.path(key))?;
        fs::write(self.path("known"), format!("[127.0.0.1]:{} {key}", self.port))
    }

    /// Has its client log in with this key: `key`, or `stranger`, which may not.
    ///
    /// # Errors
    ///
    /// Those of files.
    pub fn use_key(&self, key: &str) -> io::Result<()> {
        fs::create_dir_all(self.path("bin"))?;
        let script = format!(
            "#!/bin/sh\nPATH=${{PATH#*:}}\nexec ssh -F none -i '{}' -oIdentitiesOnly=yes \
             -oIdentityAgent=none -oUserKnownHostsFile='{}' -oStrictHostKeyChecking=yes \"$@\"\n",
            self.path(key).display(),
            self.path("known").display(),
        );
        fs::write(self.path("bin/ssh"), script)?;
        fs::set_permissions(self.path("bin/ssh"), fs::Permissions::from_mode(0o755))
    }

    /// What `PATH` has to begin with, so that ssh is one that knows this server.
    #[must_use]
    pub fn client(&self) -> PathBuf {
        self.path("bin")
    }

    /// A store on it, as users name it.
    #[must_use]
    pub fn store(&self, directory: &Path) -> String {
        format!("sftp://127.0.0.1:{}{}", self.port, directory.display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
