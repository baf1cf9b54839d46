//! What a process of this program that was killed has left mounted, and a mount in its place.
//!
//! Programs that look at such a leftover hear of an error. If it were taken away first, they would
//! see the bare directory until something is mounted again, and stubs are zeros there. So a share
//! is mounted *beneath* the leftover, where nobody sees it, and then the leftover is taken away:
//!
//! 1. The directory below is opened by a thread in a mount namespace of its own, a private copy in
//!    which the leftover is taken away and nobody else notices. What is below is cloned, with what
//!    is mounted inside and without; a clone belongs to no namespace and lasts as long as it is
//!    open.
//! 2. The new mount is made without a place, and its requests are served.
//! 3. It is moved beneath the leftover (`MOVE_MOUNT_BENEATH`).
//! 4. The leftover is detached. What was beneath is what is seen now.
//!
//! That takes root, and Linux 6.5 for step 3. Anywhere else the leftover is taken away first.
//!
//! # Concurrency
//! Whoever mounts a share holds its lock before step 2, so that only one mount is made. Killed
//! before step 4, a process leaves two leftovers: the next one takes the upper one away in step 4
//! and lies on the other.

use crate::mounting::{MountOptions, real_of_unseen};
use nix::sched::CloneFlags;
use onefold_engine::primary::handover;
use onefold_engine::primary::mounts::{self, newest_on};
use onefold_engine::primary::share::Covered;
use onefold_types::Result;
use onefold_types::error::Context;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, move_mount, open_tree, unmount,
};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that mounts and unmounts for users other than root.
pub(crate) const HELPER: &str = "fusermount3";
/// The device of the kernel's side.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// What is left on a directory.
pub struct Leftover {
    real: PathBuf,
}

impl Leftover {
    /// What a process of this program has left on a directory when it was killed.
    #[must_use]
    pub fn on(point: &Path) -> Option<Self> {
        let real = real_of_unseen(point).ok()?;
        let newest = newest_on(&real).filter(|newest| newest.is_ours)?;
        // One that hangs is not dead, and holds up whoever looks at it.
        if newest.name.is_some_and(|name| handover::is_there(&name)) {
            return None;
        }
        is_dead(point).then_some(Self { real })
    }

    /// Where it is, without symbolic links.
    #[must_use]
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Opens the directory below. `None` if this user or this kernel cannot.
    #[must_use]
    pub fn below(&self) -> Option<Covered> {
        let real = self.real.clone();
        let looking = std::thread::Builder::new().name("below".to_owned());
        looking.spawn(move || covered(&real)).ok()?.join().ok()?.ok()
    }

    /// Takes it away, whoever uses it.
    pub fn detach(self) -> Result<()> {
        detach(&self.real)
            .context(|| format!("unmounting what is left on '{}'", self.real.display()))
    }

    /// Steps 3 and 4. Where the kernel mounts nothing beneath it, it is taken away first.
    pub(crate) fn replace_by(self, mounted: &Unplaced) -> Result<()> {
        let what = || format!("mounting on '{}'", self.real.display());
        let beneath = MoveMountFlags::MOVE_MOUNT_BENEATH;
        let place = |how| {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | how;
            move_mount(&mounted.0, "", rustix::fs::CWD, &self.real, flags)
        };
        let is_beneath = place(beneath).is_ok();
        detach(&self.real).context(what)?;
        match is_beneath {
            true => Ok(()),
            false => place(MoveMountFlags::empty()).map_err(std::io::Error::from).context(what),
        }
    }
}

/// Whether the kernel says that nobody serves what is mounted on a directory.
fn is_dead(point: &Path) -> bool {
    // What the kernel was told of the directory itself it may remember for a while.
    let read = std::fs::read_dir(point).err().and_then(|error| error.raw_os_error());
    let is_dead = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
    read.is_some_and(|code| is_dead.contains(&code))
}

/// Step 1, by a thread that ends with it.
fn covered(real: &Path) -> std::io::Result<Covered> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    // Before anything is taken away: it would be taken away for all.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let mut is_covered = false;
    // Each process that was killed between steps 3 and 4 has left one more.
    while is_dead(real) {
        unmount(real, UnmountFlags::DETACH)?;
        is_covered = true;
    }
    if !is_covered {
        // Somebody has mounted it again meanwhile.
        return Err(Errno::BUSY.into());
    }
    let clone = |more| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | more;
        open_tree(rustix::fs::CWD, real, flags)
    };
    let as_seen = clone(OpenTreeFlags::AT_RECURSIVE)?;
    Ok(Covered { as_seen, alone: clone(OpenTreeFlags::empty())? })
}

/// Unmounts, whoever uses it.
pub(crate) fn detach(point: &Path) -> std::io::Result<()> {
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

/// What is mounted and has no place yet.
pub(crate) struct Unplaced(OwnedFd);

impl Unplaced {
    /// Step 2: the mount, and the device by which its requests come.
    pub(crate) fn mount(options: &MountOptions) -> Result<(Self, OwnedFd)> {
        let device = File::options().read(true).write(true).open(DEVICE).context(|| DEVICE)?;
        let device = OwnedFd::from(device);
        let mounted = Self::configured(options, &device).map_err(std::io::Error::from);
        Ok((mounted.context(|| "mounting without a place")?, device))
    }

    fn configured(options: &MountOptions, device: &OwnedFd) -> rustix::io::Result<Self> {
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: &str| fsconfig_set_string(&context, key, value);
        set("source", &options.source())?;
        set("subtype", mounts::KIND)?;
        set("fd", &device.as_raw_fd().to_string())?;
        // A directory's, in octal digits.
        set("rootmode", "40000")?;
        set("user_id", &rustix::process::geteuid().as_raw().to_string())?;
        set("group_id", &rustix::process::getegid().as_raw().to_string())?;
        if options.allow_other {
            fsconfig_set_flag(&context, "allow_other")?;
        }
        if options.checks_permissions() {
            fsconfig_set_flag(&context, "default_permissions")?;
        }
        fsconfig_create(&context)?;
        let attributes = match options.is_writable {
            true => MountAttrFlags::empty(),
            false => {
                MountAttrFlags::MOUNT_ATTR_RDONLY
                    | MountAttrFlags::MOUNT_ATTR_NODEV
                    | MountAttrFlags::MOUNT_ATTR_NOSUID
                    | MountAttrFlags::MOUNT_ATTR_NOATIME
            }
        };
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(Self)
    }
}
