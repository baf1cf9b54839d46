//! Mounts of this program inside a source: what they show is in a store already.
//!
//! The kernel lists what is mounted, and nobody who serves a mount is asked for it. A mount of
//! snapshots shows all that was ever saved, and is left out. A mounted share shows the files that
//! its directory holds as stubs, and is part of the file system that it lies on.

use rustix::fs::{major, minor};

const LIST: &str = "/proc/self/mountinfo";
/// What the system calls mounts of this program.
pub const KIND: &str = "onefold";

/// What is mounted as a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mounted {
    /// The snapshots of a store.
    Snapshots,
    /// A share.
    Share,
    /// Anything else.
    Foreign,
}

/// What is mounted as this device.
#[must_use]
pub fn mounted(device: u64) -> Mounted {
    let list = std::fs::read(LIST).unwrap_or_default();
    let device = format!("{}:{}", major(device), minor(device));
    listed(&list, device.as_bytes())
}

fn listed(list: &[u8], device: &[u8]) -> Mounted {
    for line in list.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        if fields.nth(2) != Some(device) {
            continue;
        }
        let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
        let is_served = behind.next().is_some_and(|kind| kind.starts_with(b"fuse"));
        let source = behind.next().filter(|_| is_served).unwrap_or_default();
        return match source.strip_prefix(KIND.as_bytes()) {
            Some(b"") => Mounted::Snapshots,
            Some([b':', ..]) => Mounted::Share,
            _ => Mounted::Foreign,
        };
    }
    Mounted::Foreign
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r99_mounts_of_this_program_are_told_from_others() {
        let list = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                     40 36 0:45 / /a rw,nosuid shared:7 - fuse.onefold onefold rw,user_id=0\n\
                     41 36 0:46 / /b rw - fuse.onefold onefold:0123456789abcdef rw\n\
                     42 36 0:47 / /c rw - ext4 onefold rw\n\
                     43 36 0:48 / /d rw - fuse.sshfs onefolder rw\n";
        let found = ["98:0", "0:45", "0:46", "0:47", "0:48", "0:4"]
            .map(|device| listed(list, device.as_bytes()));
        let foreign = Mounted::Foreign;
        let expected = [foreign, Mounted::Snapshots, Mounted::Share, foreign, foreign, foreign];
        assert_eq!(found, expected);
    }
}
