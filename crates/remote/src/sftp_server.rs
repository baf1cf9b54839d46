//! Test support: OpenSSH's own SFTP server, started on pipes, where it is installed.
//!
//! Whoever cannot find it says "SKIPPED" on standard error.

use std::path::Path;

/// Where systems keep it.
const PLACES: [&str; 4] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
];

/// The program; `None`, loudly, where it is not installed.
#[must_use]
pub fn find() -> Option<&'static str> {
    let found = PLACES.into_iter().find(|place| Path::new(place).exists());
    if found.is_none() {
        eprintln!("SKIPPED: SFTP: OpenSSH's sftp-server is not installed");
    }
    found
}
