//! Where file systems are mounted, known without a look at any of them.
//!
//! A walk that stays on a file system passes over mounts. To look at one whose server is gone takes
//! for ever or fails, so the kernel's own list says where they are. What is mounted from a disk or
//! from memory is looked at, and keeps its attributes in the snapshot.

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
/// How the source of a mounted share begins.
const SHARE: &[u8] = b"onefold:";

/// What is mounted somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The device.
    pub device: u64,
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
    // A mounted share hangs with its store alone, and counts as what is below.
    let is_share = fields.next().is_some_and(|source| source.starts_with(SHARE));
    let is_local = is_share || LOCAL.iter().any(|local| local.as_bytes() == kind);
    Some((path, Mount { device, is_local }))
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
}
