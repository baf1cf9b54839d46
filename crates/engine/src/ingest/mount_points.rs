//! Where file systems are mounted, and which of them are mounts of this program.
//!
//! The kernel's own list says it, so nobody looks at a mount whose server is gone: that takes for
//! ever or fails. A walk that stays on a file system passes over mounts. What is mounted from a
//! disk or from memory is looked at, and keeps its attributes in the snapshot.
//!
//! A mount of snapshots shows all that was ever saved, and is left out of a source. A mounted share
//! shows the files that its directory holds as stubs, and is part of the file system that it lies
//! on.

use rustix::fs::makedev;
use std::collections::HashMap;

/// Where the kernel lists the mounts of this process.
const LIST: &str = "/proc/self/mountinfo";
/// File systems behind which there is no server: to look at them never takes for ever.
const LOCAL: [&str; 28] = [
    "bcachefs",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "ntfs3",
    "overlay",
    "proc",
    "ramfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "vfat",
    "xfs",
    "zfs",
];
/// What the system calls mounts of this program.
pub const KIND: &str = "onefold";

/// What a mount shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mounted {
    /// The snapshots of a store.
    Snapshots,
    /// A share.
    Share,
    /// Anything else.
    Foreign,
}

impl Mounted {
    fn of(kind: &[u8], source: &[u8]) -> Self {
        match source.strip_prefix(KIND.as_bytes()).filter(|_| kind.starts_with(b"fuse")) {
            Some(b"") => Self::Snapshots,
            Some([b':', ..]) => Self::Share,
            _ => Self::Foreign,
        }
    }
}

/// What is mounted somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The device.
    pub device: u64,
    /// What it shows.
    pub mounted: Mounted,
    /// Whether there is no server behind it.
    pub is_local: bool,
}

/// All mounts by their absolute paths.
#[derive(Debug, Default)]
pub struct MountPoints(HashMap<Vec<u8>, Mount>);

impl MountPoints {
    /// Those of this process; none if the kernel does not tell.
    #[must_use]
    pub fn load() -> Self {
        Self::parse(&std::fs::read(LIST).unwrap_or_default())
    }

    fn parse(list: &[u8]) -> Self {
        // Of several at one path the last one is on top.
        Self(list.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
    }

    /// What is mounted as a device.
    #[must_use]
    pub fn mounted(&self, device: u64) -> Mounted {
        let found = self.0.values().find(|mount| mount.device == device);
        found.map_or(Mounted::Foreign, |mount| mount.mounted)
    }

    /// What is mounted at a path.
    #[must_use]
    pub fn at(&self, path: &[u8]) -> Option<Mount> {
        self.0.get(path).copied()
    }
}

/// One line: "36 35 98:0 /root /mount/point options optional... - type source options".
fn parse_line(line: &[u8]) -> Option<(Vec<u8>, Mount)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = makedev(major.parse().ok()?, minor.parse().ok()?);
    let path = unescaped(fields.nth(1)?);
    fields.find(|field| *field == b"-")?;
    let kind = fields.next()?;
    let mounted = Mounted::of(kind, fields.next().unwrap_or_default());
    // A mounted share hangs with its store alone, and counts as what is below.
    let is_local = mounted == Mounted::Share || LOCAL.iter().any(|local| local.as_bytes() == kind);
    Some((path, Mount { device, mounted, is_local }))
}

/// A path as it is: the kernel writes blanks and the like as a backslash and three octal digits.
#[must_use]
pub fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            digits.iter().try_fold(0u32, |sum, digit| {
                let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
                Some(sum * 8 + u32::from(digit))
            })
        };
        let escaped = behind.get(..3).filter(|_| *first == b'\\').and_then(octal);
        match escaped.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                path.push(*first);
                rest = behind;
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r101_mounts_are_known_by_their_paths() {
        let list = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            30 22 0:45 / /mnt/my\\040nas rw,nosuid - nfs4 nas:/x rw\n\
            31 22 0:46 / /mnt/\xff\\134 rw shared:2 master:3 - fuse.sshfs host: rw\n\
            32 22 0:47 / /tmp rw - tmpfs none rw\n\
            33 22 0:48 / /tmp rw - fuse.x none rw\n\
            nonsense\n";
        let mounts = MountPoints::parse(list);
        let at = |path: &[u8]| mounts.at(path).map(|mount| (mount.device, mount.is_local));
        assert_eq!(at(b"/"), Some((makedev(8, 1), true)));
        assert_eq!(at(b"/mnt/my nas"), Some((makedev(0, 45), false)));
        assert_eq!(at(b"/mnt/\xff\\"), Some((makedev(0, 46), false)));
        assert_eq!(at(b"/tmp"), Some((makedev(0, 48), false)));
        assert_eq!(at(b"/mnt"), None);
        assert_eq!(unescaped(b"/a\\9\\0"), b"/a\\9\\0");
        assert!(MountPoints::load().at(b"/proc").is_some_and(|mount| mount.is_local));
    }

    #[test]
    fn r99_mounts_of_this_program_are_told_from_others() {
        let list = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                     40 36 0:45 / /a rw,nosuid shared:7 - fuse.onefold onefold rw,user_id=0\n\
                     41 36 0:46 / /b rw - fuse.onefold onefold:0123456789abcdef rw\n\
                     42 36 0:47 / /c rw - ext4 onefold rw\n\
                     43 36 0:48 / /d rw - fuse.sshfs onefolder rw\n";
        let mounts = MountPoints::parse(list);
        let devices = [(98, 0), (0, 45), (0, 46), (0, 47), (0, 48), (0, 4)];
        let found = devices.map(|(major, minor)| mounts.mounted(makedev(major, minor)));
        let foreign = Mounted::Foreign;
        let expected = [foreign, Mounted::Snapshots, Mounted::Share, foreign, foreign, foreign];
        assert_eq!(found, expected);
    }
}
