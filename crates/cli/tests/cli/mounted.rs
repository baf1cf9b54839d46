//! A mount that tests look into, and whether there can be any.

use crate::sharing_users::command_as;
use crate::support::Sandbox;
use onefold_engine::primary::share::BELOW_ATTRIBUTE;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What waits longer for something than this waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Whether anything can be mounted here; says so if not.
pub fn can_mount() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let probe = tempfile::tempdir().unwrap();
    let at = probe.path().to_str().unwrap();
    let may = succeeds("mount", &["-t", "tmpfs", "tmpfs", at]) && succeeds("umount", &[at]);
    if device.is_err() || !may {
        eprintln!("SKIPPED: mounts were not tested: it takes /dev/fuse and the right to mount");
    }
    device.is_ok() && may
}

/// A mount that ends with the test.
pub struct Mount {
    pub process: Option<Child>,
    pub point: PathBuf,
    /// What it says on standard error: a pipe that nobody empties would stop it.
    heard: File,
}

impl Mount {
    pub fn new(sandbox: &Sandbox, more: &[&str]) -> Self {
        let point = sandbox.path("mount point");
        // What is left by one that was killed cannot be looked at.
        let _ = fs::create_dir(&point);
        Self::on(sandbox, &point, more)
    }

    pub fn on(sandbox: &Sandbox, point: &Path, more: &[&str]) -> Self {
        let arguments = [&["mount", point.to_str().unwrap()], more].concat();
        // Of what was mounted before the kernel may remember names, and cannot list them.
        Self::start(sandbox, point, &arguments, &|point| fs::read_dir(point.join("ids")).is_ok())
    }

    /// A share on its own directory.
    pub fn share(sandbox: &Sandbox, name: &str) -> Self {
        let point = sandbox.path(name);
        let arguments = ["share", "mount", point.to_str().unwrap()];
        Self::start(sandbox, &point, &arguments, &|point| {
            rustix::fs::getxattr(point, BELOW_ATTRIBUTE, &mut [0; 64]).is_ok()
        })
    }

    /// The same by another user, or with other rights; nobody else may look into it.
    pub fn share_as(sandbox: &Sandbox, name: &str, how: &[&str]) -> Self {
        let point = sandbox.path(name);
        let arguments = ["share", "mount", point.to_str().unwrap()];
        let before = point.metadata().unwrap().dev();
        Self::begin(command_as(sandbox, how, &arguments), &point, &|point| {
            // The process is asked by who may look, and the kernel by others.
            match point.metadata() {
                Ok(now) => now.dev() != before,
                Err(error) => error.kind() == ErrorKind::PermissionDenied,
            }
        })
    }

    fn start(
        sandbox: &Sandbox,
        point: &Path,
        arguments: &[&str],
        is_mounted: &dyn Fn(&Path) -> bool,
    ) -> Self {
        Self::begin(sandbox.command(arguments), point, is_mounted)
    }

    pub fn begin(mut command: Command, point: &Path, is_mounted: &dyn Fn(&Path) -> bool) -> Self {
        let point = point.to_owned();
        let heard = tempfile::tempfile().unwrap();
        let process = command.stderr(heard.try_clone().unwrap()).spawn().unwrap();
        let mut mount = Self { process: Some(process), point, heard };
        let begun = Instant::now();
        while !is_mounted(&mount.point) {
            assert!(begun.elapsed() < PATIENCE, "nothing was mounted");
            if mount.process.as_mut().unwrap().try_wait().unwrap().is_some() {
                panic!("ended: {:?}", mount.ended());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        mount
    }

    /// Kills its process; what is mounted answers no more.
    pub fn kill(mut self) {
        self.signal("-KILL");
        self.process.take().unwrap().wait().unwrap();
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.point.join(path)
    }

    pub fn signal(&self, signal: &str) {
        let process = self.process.as_ref().unwrap().id().to_string();
        assert!(succeeds("kill", &[signal, &process]));
    }

    /// Waits until it has ended; its code, and what it said.
    pub fn ended(&mut self) -> (Option<i32>, String) {
        let status = self.process.take().unwrap().wait().unwrap();
        let mut said = vec![0; self.heard.metadata().unwrap().len() as usize];
        self.heard.read_exact_at(&mut said, 0).unwrap();
        (status.code(), String::from_utf8(said).unwrap())
    }

    /// Asks it to end, which it does in order; what it said.
    pub fn end(mut self) -> String {
        self.signal("-TERM");
        let (code, said) = self.ended();
        assert_eq!(code, Some(0), "{said}");
        said
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
            let _ = succeeds("umount", &["-l", self.point.to_str().unwrap()]);
        }
    }
}

pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
