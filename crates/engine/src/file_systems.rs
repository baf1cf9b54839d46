//! What can be relied upon on file systems of other programs and machines, by their kinds.

use std::os::fd::AsFd;

/// File systems that make up numbers of files, or have them made up by programs.
const UNTRUSTED_MAGICS: [u64; 8] = [
    0x6573_5546, // FUSE
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0000_517b, // SMB
    0x0102_1997, // 9P
    0x0000_564c, // NCP
    0x786f_4256, // VirtualBox
    0x7375_7245, // Coda
];

/// File systems of other machines whose numbers of files can be trusted.
const FAR_MAGICS: [u64; 5] = [
    0x0000_6969, // NFS
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x5346_414f, // AFS
    0x4750_4653, // GPFS
];

/// Whether numbers of files on this one's file system tell files apart.
#[must_use]
pub fn has_trusted_numbers(file: impl AsFd) -> bool {
    magic_of(file).is_some_and(|magic| !UNTRUSTED_MAGICS.contains(&magic))
}

/// Whether this one's file system is served by a program or another machine: what it could not
/// write, because it is full, say, it tells with single files, and late.
#[must_use]
pub fn is_served(open: impl AsFd) -> bool {
    let all = [&UNTRUSTED_MAGICS[..], &FAR_MAGICS].concat();
    magic_of(open).is_some_and(|magic| all.contains(&magic))
}

fn magic_of(open: impl AsFd) -> Option<u64> {
    // The type is as wide as the machine says.
    let found = rustix::fs::fstatfs(open).ok()?;
    Some(found.f_type as u64 & u64::from(u32::MAX))
}
