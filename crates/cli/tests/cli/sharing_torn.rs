//! Writes into stubs that a power loss or a job cuts off.

use crate::mounted::{Mount, can_mount};
use crate::sharing::{optimize, with_share};
use crate::sharing_copied::Disk;
use crate::support::Sandbox;
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::time::Duration;

const GRANULE_BYTES: u64 = 64 << 10;
/// What waits longer for something than this waits in vain.
const PATIENCE: Duration = Duration::from_secs(100);

#[test]
fn r119_after_a_power_loss_a_page_is_old_or_new() {
    let sandbox = Sandbox::with_store();
    if !can_mount() {
        return;
    }
    let Some(disk) = Disk::new(&sandbox, "disk") else { return };
    let share = sandbox.path("disk/share");
    let old = [b'O'; 4 * GRANULE_BYTES as usize];
    let header = [&[b'N'; 32][..], &[0; 4064]].concat();
    let trailer = [&[0; 3000][..], &[b'N'; 1096]].concat();
    let counter = 0x0100_u64.to_le_bytes().to_vec();
    let cases = [(GRANULE_BYTES - 4096, header), (GRANULE_BYTES, trailer), (0, counter)];
    fs::create_dir(&share).unwrap();
    for number in 0..cases.len() {
        fs::write(share.join(number.to_string()), old).unwrap();
    }
    sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg("disk/share")]).expect(0);
    std::thread::sleep(Duration::from_millis(100));
    sandbox.run(&["share", "optimize", &sandbox.arg("disk/share")]).expect(0);
    disk.sync();
    let mount = Mount::share(&sandbox, "disk/share");
    for (number, (at, bytes)) in cases.iter().enumerate() {
        let file = File::options().write(true).open(share.join(number.to_string())).unwrap();
        file.write_all_at(bytes, *at).unwrap();
    }
    let image = disk.image_now(&sandbox);
    mount.end();
    disk.replace_by(&image);
    let mount = Mount::share(&sandbox, "disk/share");
    for (number, (at, bytes)) in cases.iter().enumerate() {
        let read = fs::read(share.join(number.to_string())).unwrap();
        let at = *at as usize;
        let page = &read[at..at + bytes.len()];
        assert!(page == bytes || page == &old[..bytes.len()], "{number}: torn");
        assert!(read[..at].iter().chain(&read[at + bytes.len()..]).all(|byte| *byte == b'O'));
    }
    mount.end();
}

#[test]
fn r118_a_write_waits_for_a_job_that_may_still_be_at_the_file_and_others_do_not() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    optimize(&sandbox);
    let below = File::options().read(true).write(true).open(share.join("inner/text")).unwrap();
    let mount = Mount::share(&sandbox, "share");
    // As a job does that lost its lease because it was stalled.
    fcntl_lock(&below, FlockOperation::NonBlockingLockExclusive).unwrap();
    let (done, is_done) = channel();
    let path = share.join("inner/text");
    let writing = std::thread::spawn(move || {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        file.sync_all().unwrap();
        done.send(()).unwrap();
    });
    let other = File::options().write(true).open(share.join("large")).unwrap();
    other.write_all_at(b"other", 0).unwrap();
    other.sync_all().unwrap();
    is_done.recv_timeout(Duration::from_secs(1)).expect_err("it has to wait");
    fcntl_lock(&below, FlockOperation::Unlock).unwrap();
    is_done.recv_timeout(PATIENCE).unwrap();
    writing.join().unwrap();
    assert!(fs::read(share.join("inner/text")).unwrap().starts_with(b"newds and words"));
    mount.end();
}
