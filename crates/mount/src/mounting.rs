//! From a directory to a mount point and back.
//!
//! A mount ends when it is asked to, when somebody unmounts it, or with the process. If the process
//! was killed, its mount stays and answers nothing; the next mount on the same directory takes such
//! a leftover of this program away first.

use fuser::{BackgroundSession, Config, Filesystem, MountOption, Session, SessionACL};
use onefold_engine::primary::handover;
use onefold_engine::primary::mounts::{self, KIND, is_listed, newest_on};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The program that mounts and unmounts for users other than root.
const HELPER: &str = "fusermount3";
/// The device of the kernel's side.
const DEVICE: &str = "/dev/fuse";

/// How far the kernel reads ahead: measured, a large file is read in two thirds of the time that it
/// takes with 128.
const READ_AHEAD_KIB: u32 = 2048;

/// How long threads may take to notice that nothing is mounted any more.
const ENDED: Duration = Duration::from_secs(2);
/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Of a share: by what its process is asked for what is below.
    pub name: Option<String>,
    /// Whether other users see it as well; each what the permissions of the files let him.
    pub allow_other: bool,
    /// Requests that are served at once.
    pub threads: usize,
    /// Whether it can be written to, as a share: then devices and set-user-id programs in it are
    /// what they are below as well.
    pub is_writable: bool,
}

/// Something that is mounted.
///
/// The session is never dropped: that would unmount by the name of the directory, whatever is
/// mounted there by then. If nobody ends it, it ends with the process.
pub struct Mounted {
    session: BackgroundSession,
    point: PathBuf,
    /// Its device, as `major:minor`.
    device: String,
}

/// Refuses a directory that nothing can be mounted on.
///
/// Errors: `Invalid` or what keeps it from being read.
pub fn refuse_unusable(point: &Path) -> Result<()> {
    let shown = point.display();
    refuse_without_device()?;
    let what = || format!("looking at '{shown}'");
    if !point.metadata().context(what)?.is_dir() {
        return Err(Error::invalid(format!("'{shown}' is no directory to mount on")));
    }
    if point.read_dir().context(what)?.next().is_some() {
        return Err(Error::invalid(format!(
            "'{shown}' is not empty: what is in it would be hidden; mount on an empty directory"
        )));
    }
    Ok(())
}

/// Refuses a system that mounts nothing.
pub fn refuse_without_device() -> Result<()> {
    if !Path::new(DEVICE).exists() {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "nothing can be mounted: this system has no {DEVICE}; load the kernel's module \
                 ('modprobe fuse'), or let the container have the device. 'ls', 'dump' and \
                 'restore' need none"
            ),
        ));
    }
    Ok(())
}

/// Takes away what a process of this program has left on a directory when it was killed; whether
/// there was such a thing.
pub fn clear_leftover(point: &Path) -> Result<bool> {
    let Some(real) = leftover(point) else { return Ok(false) };
    detach(&real).context(|| format!("unmounting what is left on '{}'", point.display()))?;
    Ok(true)
}

/// Whether there is something that [`clear_leftover`] would take away.
#[must_use]
pub fn has_leftover(point: &Path) -> bool {
    leftover(point).is_some()
}

/// The real path of a directory on which a process of this program has left something.
fn leftover(point: &Path) -> Option<PathBuf> {
    let real = real_of_unseen(point).ok()?;
    let newest = newest_on(&real).filter(|newest| newest.is_ours)?;
    // One that hangs is not dead, and holds up whoever looks at it.
    if newest.name.is_some_and(|name| handover::is_there(&name)) {
        return None;
    }
    // What the kernel was told of the directory itself it may remember for a while.
    let read = std::fs::read_dir(point).err().and_then(|error| error.raw_os_error());
    let is_dead = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
    read.is_some_and(|code| is_dead.contains(&code)).then_some(real)
}

/// The path without symbolic links of what cannot be looked at itself: the kernel follows them
/// without asking whoever answers no more.
fn real_of_unseen(point: &Path) -> Result<PathBuf> {
    let what = || format!("finding out where '{}' is", point.display());
    let opened = rustix::fs::open(point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map_err(std::io::Error::from).context(what)?;
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).context(what)
}

/// Whether a share is mounted on a directory; whoever serves it is not asked.
pub fn is_share(point: &Path) -> Result<bool> {
    Ok(newest_on(&real_of_unseen(point)?).is_some_and(|newest| newest.name.is_some()))
}

/// Unmounts what a process of this program has mounted on a directory, and nothing else.
///
/// Errors: `Invalid` if there is no such thing, `Unavailable` if somebody uses it, `NotPermitted`
/// if neither the kernel nor fusermount3 lets this user unmount it.
pub fn unmount_ours(point: &Path) -> Result<()> {
    let shown = point.display();
    // What cannot be looked at may be unmounted.
    let real = real_of_unseen(point)?;
    if !newest_on(&real).is_some_and(|newest| newest.is_ours) {
        return Err(Error::invalid(format!("'{shown}' is not mounted")));
    }
    unmount_unused(&real).map_err(|errno| match errno {
        Errno::PERM => Error::new(
            ErrorKind::NotPermitted,
            format!(
                "'{shown}' cannot be unmounted by this user; users other than root unmount what \
                 they have mounted themselves, and need the program {HELPER}, of the package fuse3"
            ),
        ),
        _ => Error::new(
            ErrorKind::Unavailable,
            format!("'{shown}' cannot be unmounted: programs have something of it open"),
        ),
    })
}

/// Unmounts, whoever uses it.
fn detach(point: &Path) -> std::io::Result<()> {
    match unmount(point, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {
            let helped = Command::new(HELPER).arg("-uz").arg("--").arg(point).status();
            match helped.map(|status| status.success()) {
                Ok(true) => Ok(()),
                Ok(false) => Err(std::io::Error::other(format!("{HELPER} failed"))),
                Err(error) => Err(std::io::Error::other(format!(
                    "users other than root need the program {HELPER}, of the package fuse3: {error}"
                ))),
            }
        }
        other => other.map_err(Into::into),
    }
}

/// Mounts a file system on a directory.
pub fn mount(filesystem: impl Filesystem, point: &Path, options: MountOptions) -> Result<Mounted> {
    let point =
        point.canonicalize().context(|| format!("finding out where '{}' is", point.display()))?;
    let mut config = Config::default();
    let source = options.name.as_deref().map_or(KIND.to_owned(), mounts::source_of);
    config.mount_options = vec![MountOption::FSName(source), MountOption::Subtype(KIND.to_owned())];
    let only_read =
        [MountOption::RO, MountOption::NoDev, MountOption::NoSuid, MountOption::NoAtime];
    if !options.is_writable {
        config.mount_options.extend(only_read);
    } else if rustix::process::geteuid().is_root() {
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    if options.allow_other {
        config.acl = SessionACL::All;
    }
    if options.allow_other || options.is_writable {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    let session = Session::new(filesystem, &point, &config)
        .and_then(Session::spawn)
        .map_err(|cause| refused(&point, cause))?;
    let device = point.metadata().context(|| format!("looking at '{}'", point.display()))?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    // Who may not do that reads with one thread where he could with several.
    let _ = read_far_ahead(&device);
    Ok(Mounted { session, point, device })
}

/// Lets the kernel ask for more than one request at once on behalf of a program that reads on. The
/// protocol allows for less only.
fn read_far_ahead(device: &str) -> std::io::Result<()> {
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    std::fs::write(setting, READ_AHEAD_KIB.to_string())
}

fn may_open_device() -> bool {
    std::fs::File::options().read(true).write(true).open(DEVICE).is_ok()
}

fn refused(point: &Path, cause: std::io::Error) -> Error {
    let advice = match cause.kind() {
        std::io::ErrorKind::NotFound => {
            "; users other than root need the program fusermount3, of the package fuse3"
        }
        std::io::ErrorKind::PermissionDenied if !may_open_device() => {
            "; this user may not open /dev/fuse, which is open to all (0666) on most systems"
        }
        std::io::ErrorKind::PermissionDenied => {
            "; other users may see it (--allow-other) only if /etc/fuse.conf has a line \
             'user_allow_other'"
        }
        _ => "",
    };
    // A helper program's words end with a line.
    let (shown, cause) = (point.display(), cause.to_string());
    Error::invalid(format!("'{shown}' cannot be mounted on: {}{advice}", cause.trim()))
}

/// How a mount ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Nobody used it.
    Quiet,
    /// Programs had files or directories of it open, which are of no use to them any more.
    InUse,
}

impl Mounted {
    /// Whether somebody else has unmounted it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts. Whoever still uses it does not keep it mounted. What somebody else has mounted on
    /// the same directory stays.
    ///
    /// Errors: `Unavailable` if that lies on top.
    pub fn end(self) -> Result<End> {
        let Self { session, point, device } = self;
        let session = ManuallyDrop::new(session);
        if session.guard.is_finished() {
            return Ok(End::Quiet);
        }
        match newest_on(&point) {
            Some(newest) if newest.device == device => {}
            Some(_) if is_listed(&device) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "something else is mounted on '{0}' by now, and stays: unmount it, and \
                         then what answers no more below it, with 'umount {0}'",
                        point.display()
                    ),
                ));
            }
            // Somebody has unmounted it lazily, and somebody uses it still.
            _ => return Ok(End::InUse),
        }
        if unmount_unused(&point).is_err() {
            detach(&point).context(|| format!("unmounting '{}'", point.display()))?;
            return Ok(End::InUse);
        }
        let asked = Instant::now();
        while !session.guard.is_finished() && asked.elapsed() < ENDED {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(End::Quiet)
    }
}

/// Unmounts what nobody uses.
fn unmount_unused(point: &Path) -> rustix::io::Result<()> {
    match unmount(point, UnmountFlags::empty()) {
        Err(Errno::PERM) => {
            let helped = Command::new(HELPER).arg("-u").arg("--").arg(point).output();
            let Ok(helped) = helped else { return Err(Errno::PERM) };
            match (helped.status.success(), String::from_utf8_lossy(&helped.stderr)) {
                (true, _) => Ok(()),
                (false, said) if said.contains("busy") => Err(Errno::BUSY),
                (false, _) => Err(Errno::PERM),
            }
        }
        done => done,
    }
}
