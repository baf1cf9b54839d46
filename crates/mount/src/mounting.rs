//! From a directory to a mount point and back.
//!
//! A mount ends when it is asked to, when somebody unmounts it, or with the process. If the process
//! was killed, its mount stays and answers nothing; the next mount on the same directory takes such
//! a leftover of this program away first.

use crate::leftover::{DEVICE, HELPER, Leftover, Unplaced, detach};
use fuser::{BackgroundSession, Config, Filesystem, MountOption, Notifier, Session, SessionACL};
use onefold_engine::primary::mounts::{self, KIND, is_listed, newest_on};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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
    session: ManuallyDrop<BackgroundSession>,
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
    let is_device = |found: std::fs::Metadata| found.file_type().is_char_device();
    if !Path::new(DEVICE).metadata().is_ok_and(is_device) {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "nothing can be mounted: this system has no device {DEVICE}; load the kernel's \
                 module ('modprobe fuse'), or let the container have the device. 'ls', 'dump' and \
                 'restore' need none"
            ),
        ));
    }
    Ok(())
}

/// Takes away what a process of this program has left on a directory when it was killed; whether
/// there was such a thing.
pub fn clear_leftover(point: &Path) -> Result<bool> {
    match Leftover::on(point) {
        None => Ok(false),
        Some(leftover) => leftover.detach().map(|()| true),
    }
}

/// The path without symbolic links of what cannot be looked at itself: the kernel follows them
/// without asking whoever answers no more.
pub(crate) fn real_of_unseen(point: &Path) -> Result<PathBuf> {
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

impl MountOptions {
    /// What the system is to call it.
    pub(crate) fn source(&self) -> String {
        self.name.as_deref().map_or(KIND.to_owned(), mounts::source_of)
    }

    /// Whether the kernel compares each request with the permissions of the file.
    pub(crate) fn checks_permissions(&self) -> bool {
        self.allow_other || self.is_writable
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName(self.source()), MountOption::Subtype(KIND.to_owned())];
        let only_read =
            [MountOption::RO, MountOption::NoDev, MountOption::NoSuid, MountOption::NoAtime];
        if !self.is_writable {
            config.mount_options.extend(only_read);
        } else if rustix::process::geteuid().is_root() {
            config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
        }
        if self.allow_other {
            config.acl = SessionACL::All;
        }
        if self.checks_permissions() {
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        config.n_threads = Some(self.threads.max(1));
        config.clone_fd = true;
        config
    }
}

/// Mounts a file system on a directory.
pub fn mount(filesystem: impl Filesystem, point: &Path, options: &MountOptions) -> Result<Mounted> {
    let point =
        point.canonicalize().context(|| format!("finding out where '{}' is", point.display()))?;
    let session = Session::new(filesystem, &point, &options.config())
        .and_then(Session::spawn)
        .map_err(|cause| refused(&point, cause))?;
    Mounted::begun(session, point)
}

/// Mounts a file system in the place of what is left on a directory, which is covered all the time.
pub fn mount_instead(
    filesystem: impl Filesystem,
    leftover: Leftover,
    options: &MountOptions,
) -> Result<Mounted> {
    let point = leftover.real().to_owned();
    let (unplaced, device) = Unplaced::mount(options)?;
    let config = options.config();
    let session = Session::from_fd(filesystem, device, config.acl, config)
        .and_then(Session::spawn)
        .map_err(|cause| refused(&point, cause))?;
    let session = ManuallyDrop::new(session);
    leftover.replace_by(&unplaced)?;
    Mounted::begun(ManuallyDrop::into_inner(session), point)
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
    fn begun(session: BackgroundSession, point: PathBuf) -> Result<Self> {
        let session = ManuallyDrop::new(session);
        let status = point.metadata().context(|| format!("looking at '{}'", point.display()))?;
        let (major, minor) = (rustix::fs::major(status.dev()), rustix::fs::minor(status.dev()));
        let device = format!("{major}:{minor}");
        // Who may not do that reads with one thread where he could with several.
        let _ = read_far_ahead(&device);
        Ok(Self { session, point, device })
    }

    /// By whom the kernel is told what it is to forget.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

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
