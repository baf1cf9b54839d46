//! What a job on a share puts back of a file's privileges.

use onefold_engine::primary::emptying::Privileges;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Privileges come back that the system has taken, and none that somebody else has.
#[test]
fn r164_permissions_that_somebody_else_has_set_meanwhile_stay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, b"x").unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mode = || file.metadata().unwrap().mode() & 0o7777;
    let set = |mode| file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    // Before, now, and once they were put back: by root, whose writing takes nothing, and others.
    for (before, now, [by_root, by_others]) in [
        (0o644, 0o600, [0o600, 0o600]),
        (0o600, 0o644, [0o644, 0o644]),
        (0o4755, 0o755, [0o755, 0o4755]),
        (0o4755, 0o700, [0o700, 0o700]),
        (0o755, 0o4755, [0o4755, 0o4755]),
        (0o4755, 0o4755, [0o4755, 0o4755]),
    ] {
        set(before);
        let privileges = Privileges::of(&file).unwrap();
        set(now);
        privileges.put_back(&file).unwrap();
        assert_eq!(mode(), if is_root { by_root } else { by_others }, "{before:o} {now:o}");
    }
    if is_root {
        set(0o4755);
        let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let flags = rustix::fs::XattrFlags::empty();
        let name = "security.capability";
        rustix::fs::fsetxattr(&file, name, &capability, flags).unwrap();
        let privileges = Privileges::of(&file).unwrap();
        std::os::unix::fs::fchown(&file, Some(1234), None).unwrap();
        privileges.put_back(&file).unwrap();
        assert_eq!(mode(), 0o755, "they are the new owner's");
        assert!(rustix::fs::fgetxattr(&file, name, &mut [0u8; 64][..]).is_err());
    }
}
