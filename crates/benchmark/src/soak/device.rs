//! A small file system for a store that is to run full: in memory, or ext4 in a file.
//!
//! Making one needs the right to mount. Where that is missing, the harness goes on without, and
//! says so.

use super::random::Random;
use rustix::fs::statvfs;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What fills the device beside the store.
const BALLAST: &str = "ballast";

/// A mounted file system. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Device {
    /// Where it is mounted.
    pub path: PathBuf,
}

impl Device {
    /// Makes a file system and mounts it below `work`.
    pub fn mount(work: &Path, name: &str, ext4: bool) -> io::Result<Device> {
        let path = work.join(format!("device-{name}"));
        fs::create_dir_all(&path)?;
        if ext4 {
            let image = work.join(format!("device-{name}.image"));
            File::create(&image)?.set_len(14 << 20)?;
            let image = image.display().to_string();
            run("mkfs.ext4", &["-q", "-F", "-m", "0", &image])?;
            run("mount", &["-o", "loop", &image, &path.display().to_string()])?;
        } else {
            run("mount", &["-t", "tmpfs", "-o", "size=8m", "tmpfs", &path.display().to_string()])?;
        }
        Ok(Device { path })
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        statvfs(&self.path).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Takes or gives back room, by chance, as other users of a device do.
    pub fn shift(&self, random: &mut Random) -> io::Result<()> {
        let ballast = self.path.join(BALLAST);
        if ballast.exists() {
            return fs::remove_file(ballast);
        }
        let leave = random.below(600_000) as u64;
        let length = self.free().saturating_sub(leave);
        // What does not fit is not taken.
        let _what_fits = fs::write(&ballast, vec![1; usize::try_from(length).unwrap_or(0)]);
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _told_by_the_command = run("umount", &["-l", &self.path.display().to_string()]);
    }
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{program} {}: {words}", arguments.join(" "))))
}

/// Copies a directory as it is. Nothing may change it meanwhile.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    run("cp", &["-a", &from.display().to_string(), &to.display().to_string()])
}
