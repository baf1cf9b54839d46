//! What is mounted where, as the kernel lists it. Nobody who serves a mount is asked for that: a
//! request that a hung process has read holds up whoever has made it until that process ends.
//!
//! A mounted share is listed with the name that its process is asked by
//! ([`handover`](super::handover)): `onefold:<name>`.

use super::handover::NAME_DIGITS;
use crate::ingest::mount_points::unescaped;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use crate::ingest::mount_points::KIND;

const LIST: &str = "/proc/self/mountinfo";

/// A mount as the system lists it.
pub struct Listed {
    /// Its device, as `major:minor`.
    pub device: String,
    /// Whether this program, or another process of it, has made it.
    pub is_ours: bool,
    /// By what its process is asked for what is below, if it is a share.
    pub name: Option<String>,
}

/// What the system is to call the mount of a share.
#[must_use]
pub fn source_of(name: &str) -> String {
    format!("{KIND}:{name}")
}

/// The mount on a directory that lies on top of the others there.
#[must_use]
pub fn newest_on(real: &Path) -> Option<Listed> {
    let mounts = std::fs::read(LIST).unwrap_or_default();
    let newest = mounts.split(|byte| *byte == b'\n').rfind(|line| {
        let on = line.split(|byte| *byte == b' ').nth(4).map(unescaped);
        on.is_some_and(|on| on == real.as_os_str().as_bytes())
    })?;
    let fields: Vec<&[u8]> = newest.split(|byte| *byte == b' ').collect();
    let behind = fields.iter().position(|field| *field == b"-").unwrap_or(fields.len());
    let of = |ordinal: usize| fields.get(behind + ordinal).copied().unwrap_or_default();
    // Mounted by the program itself or by fusermount3, which tells of the kind.
    let is_served = of(1).starts_with(b"fuse");
    let source = std::str::from_utf8(of(2)).ok().filter(|_| is_served);
    let rest = source.and_then(|source| source.strip_prefix(KIND));
    // What is shown there of a directory inside is no share.
    let name =
        rest.and_then(|rest| rest.strip_prefix(':')).filter(|_| fields.get(3) == Some(&&b"/"[..]));
    Some(Listed {
        device: String::from_utf8_lossy(fields.get(2)?).into_owned(),
        is_ours: rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':')),
        name: name.filter(|name| is_name(name)).map(str::to_owned),
    })
}

fn is_name(name: &str) -> bool {
    name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a device is mounted anywhere.
#[must_use]
pub fn is_listed(device: &str) -> bool {
    let mounts = std::fs::read_to_string(LIST).unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(2) == Some(device))
}
