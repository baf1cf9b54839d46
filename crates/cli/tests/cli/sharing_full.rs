//! Shares on disks that are full, or nearly: small file systems, mounted for the test.
//!
//! They take root, loop devices and `mkfs.ext4`. Where one is missing, standard error says so.

use crate::collecting::random_bytes;
use crate::full_devices::{Mounted, fill, free_bytes};
use crate::mounted::{Mount, can_mount};
use crate::support::{Run, Sandbox};
use onefold_engine::primary::share::BELOW_ATTRIBUTE;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: usize = 1 << 20;
const KIB: u64 = 1 << 10;
/// What is set aside on a disk of 128 MiB: a part in 64, in pieces of 256 KiB, less what the file
/// system takes for itself.
const RESERVE_MAX_BYTES: u64 = 2 << 20;

fn small_disk(sandbox: &Sandbox, mib: usize, name: &str) -> Option<Mounted> {
    let made = Mounted::new("ext4", mib * MIB, &sandbox.path("image"), &sandbox.path(name));
    made.inspect_err(|error| eprintln!("SKIPPED: shares on small disks: {error}")).ok()
}

/// A store and a share on one small disk.
struct OneDisk {
    /// Goes before the directory that it is mounted in.
    _disk: Mounted,
    sandbox: Sandbox,
    store: String,
    share: String,
}

impl OneDisk {
    fn new(mib: usize) -> Option<Self> {
        let sandbox = Sandbox::empty().with_password(false);
        let disk = small_disk(&sandbox, mib, "disk")?;
        let (store, share) = (sandbox.arg("disk/store"), sandbox.arg("disk/share"));
        let made = Self { _disk: disk, sandbox, store, share };
        made.run(&["init", "--encryption", "none"]).expect(0);
        fs::create_dir(&made.share).unwrap();
        Some(made)
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.sandbox.run(&[&["--json", "-r", self.store.as_str()], arguments].concat())
    }

    fn create(&self) {
        std::thread::sleep(Duration::from_millis(100));
        self.run(&["share", "create", "--min-age", "0s", &self.share]).expect(0);
    }

    fn mount(&self) -> Mount {
        let mut command = self.sandbox.command(&["share", "mount", &self.share]);
        command.env("ONEFOLD_REPOSITORY", &self.store);
        Mount::begin(command, Path::new(&self.share), &|point| {
            rustix::fs::getxattr(point, BELOW_ATTRIBUTE, &mut [0; 64]).is_ok()
        })
    }

    /// A file of the share, by number.
    fn path(&self, number: u64) -> PathBuf {
        Path::new(&self.share).join(format!("{number}"))
    }

    #[track_caller]
    fn assert_all(&self, files: u64, data: impl Fn(u64) -> Vec<u8>) {
        for number in 0..files {
            assert!(fs::read(self.path(number)).unwrap() == data(number), "{number}");
        }
    }

    fn write_all(&self, files: u64, data: impl Fn(u64) -> Vec<u8>) {
        for number in 0..files {
            fs::write(self.path(number), data(number)).unwrap();
        }
    }
}

/// A store and its share on one disk, which has room for a part of what the share holds.
#[test]
fn a_share_and_its_store_on_one_small_disk_are_optimised_part_by_part() {
    if !can_mount() {
        return;
    }
    const FILES: u64 = 9;
    let Some(disk) = OneDisk::new(100) else { return };
    let data = |number: u64| random_bytes(number, 5 * MIB + 17);
    disk.write_all(FILES, data);
    // One name of it is outside, whose data would be zeros.
    let outside = disk.sandbox.path("disk/outside");
    fs::hard_link(disk.path(0), &outside).unwrap();
    let room = free_bytes(&disk.sandbox.path("disk"));
    assert!(room < FILES * 5 * MIB as u64, "{room}: all of it has room twice");
    disk.create();
    let did = disk.run(&["share", "optimize", &disk.share]).expect(0).message("optimized");
    let of = |name: &str| did[name].as_u64().unwrap();
    assert_eq!(
        ["files_optimized", "files_put_off", "files_linked", "errors", "manifests_kept"].map(of),
        [FILES - 1, 0, 1, 0, 0],
        "{did}"
    );
    assert!(of("manifests_forgotten") > 0, "it was done in one go: {did}");
    assert!(fs::read(outside).unwrap() == data(0));
    let status = disk.run(&["share", "status", &disk.share]).message("share_status");
    assert_eq!(status["manifests"].as_array().unwrap().len(), 1, "{status}");
    disk.run(&["gc", "--space-goal", "all"]).expect(0);
    disk.run(&["check", "--read-data"]).expect(0);
    let mount = disk.mount();
    disk.assert_all(FILES, data);
    mount.end();
}

/// A share on a disk of its own that is full: a stub that is written to comes back all the same.
#[test]
fn a_write_into_a_stub_on_a_full_disk_takes_the_room_that_is_set_aside() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let Some(_disk) = small_disk(&sandbox, 128, "share") else { return };
    let (share, path) = (sandbox.arg("share"), sandbox.path("share/file"));
    let mut expected = random_bytes(1, 20 * MIB);
    fs::write(&path, &expected).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    sandbox.run(&["share", "create", "--min-age", "0s", &share]).expect(0);
    sandbox.run(&["share", "optimize", &share]).expect(0);
    let mount = Mount::share(&sandbox, "share");
    let little = path.with_file_name("a little");
    fs::write(&little, random_bytes(4, 100_000)).unwrap();
    fill(&sandbox.path("share"));
    let reserve = || path.with_file_name(".onefold-share").join("reserve").metadata();
    let file = File::options().write(true).open(&path).unwrap();
    let write = |expected: &mut Vec<u8>, offset: usize| {
        let done = file.write_all_at(b"ten bytes.", offset as u64);
        if done.is_ok() {
            expected[offset..offset + 10].copy_from_slice(b"ten bytes.");
        }
        done
    };
    write(&mut expected, 5 * MIB).unwrap();
    // Granule by granule, until nothing is left of it.
    let granules = (RESERVE_MAX_BYTES / (64 * KIB)) as usize;
    let offsets = (0..=granules).map(|one| 8 * MIB + one * 64 * KIB as usize);
    let done = offsets.map(|offset| write(&mut expected, offset));
    let refused: Vec<_> = done.filter_map(Result::err).collect();
    assert!(!refused.is_empty() && refused.len() < granules, "{} of {granules}", refused.len());
    assert!(refused.iter().all(|error| error.kind() == std::io::ErrorKind::StorageFull));
    file.sync_all().unwrap();
    assert!(fs::read(&path).unwrap() == expected);
    // What is said to be written is written, and nothing behind it.
    fs::remove_file(&little).unwrap();
    let written = file.write_at(&random_bytes(3, 300_000), expected.len() as u64).unwrap_or(0);
    assert!(written < 300_000, "{written}");
    expected.extend(&random_bytes(3, 300_000)[..written]);
    assert!(fs::read(&path).unwrap() == expected);
    for entry in fs::read_dir(sandbox.path("share")).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("filler") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    // Whoever serves the mount sets it aside again as soon as there is room.
    std::thread::sleep(3 * onefold_store::LET_GO_PERIOD);
    drop(file);
    assert!(fs::read(&path).unwrap() == expected);
    mount.end();
    let set_aside = reserve().unwrap();
    assert!((KIB * KIB..=RESERVE_MAX_BYTES).contains(&set_aside.len()), "{}", set_aside.len());
    assert!(set_aside.blocks() * 512 >= set_aside.len());
    // It is no file of the share, and goes with it.
    sandbox.run(&["share", "rehydrate", &share]).expect(0);
    sandbox.run(&["share", "remove", &share]).expect(0);
    assert!(reserve().is_err());
    assert!(fs::read(&path).unwrap() == expected);
}

/// The job makes room, and needs some for what it writes down before.
#[test]
fn a_job_on_a_full_disk_takes_the_room_that_is_set_aside_and_makes_more() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let Some(_disk) = small_disk(&sandbox, 128, "share") else { return };
    let (share, path) = (sandbox.arg("share"), sandbox.path("share/file"));
    let data = random_bytes(1, 10 * MIB);
    sandbox.run(&["share", "create", "--min-age", "0s", &share]).expect(0);
    let mount = Mount::share(&sandbox, "share");
    fs::write(&path, &data).unwrap();
    fill(&sandbox.path("share"));
    std::thread::sleep(Duration::from_millis(100));
    let run = sandbox.run(&["--json", "share", "optimize", &share]).expect(0);
    let did = run.message("optimized");
    assert!(did["bytes_freed"].as_u64().unwrap() >= data.len() as u64, "{did}");
    assert!(fs::read(&path).unwrap() == data);
    mount.end();
}

/// Of a file with holes only its data needs room, and who finds none keeps nobody else back.
#[test]
fn a_file_larger_than_the_disk_comes_back_with_its_holes_and_holds_up_nobody() {
    if !can_mount() {
        return;
    }
    const HOLLOW_BYTES: u64 = 200 << 20;
    let sandbox = Sandbox::with_store();
    let Some(_disk) = small_disk(&sandbox, 64, "share") else { return };
    let share = sandbox.arg("share");
    let path = |name: &str| sandbox.path("share").join(name);
    let hollow = File::create(path("hollow")).unwrap();
    hollow.set_len(HOLLOW_BYTES).unwrap();
    hollow.write_all_at(b"data", HOLLOW_BYTES / 2).unwrap();
    drop(hollow);
    let (large, small) = (random_bytes(1, 30 * MIB), random_bytes(2, 300_000));
    fs::write(path("large"), &large).unwrap();
    fs::write(path("small"), &small).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    sandbox.run(&["share", "create", "--min-age", "0s", &share]).expect(0);
    sandbox.run(&["share", "optimize", &share]).expect(0);
    let filler = File::create(path("filler")).unwrap();
    let room = free_bytes(&sandbox.path("share")) - 20 * MIB as u64;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, room).unwrap();
    let refused = sandbox.run(&["share", "rehydrate", &share]).expect(1).stderr;
    assert!(refused.contains("large: its data takes"), "{refused}");
    assert!(fs::read(path("small")).unwrap() == small);
    let known = path("hollow").metadata().unwrap();
    assert!(known.len() == HOLLOW_BYTES && known.blocks() < 1000, "{known:?}");
    fs::remove_file(path("filler")).unwrap();
    drop(filler);
    sandbox.run(&["share", "rehydrate", &share]).expect(0);
    assert!(fs::read(path("large")).unwrap() == large);
    let mut data = [0; 4];
    File::open(path("hollow")).unwrap().read_exact_at(&mut data, HOLLOW_BYTES / 2).unwrap();
    assert_eq!(&data, b"data");
}

/// A mounted share with its store on one disk: whoever serves the mount keeps no room from anybody.
#[test]
fn a_mounted_share_comes_back_where_the_room_is_that_its_store_gives_up() {
    if !can_mount() {
        return;
    }
    const FILES: u64 = 300;
    let Some(disk) = OneDisk::new(100) else { return };
    let data = |number: u64| random_bytes(number, 200_000);
    disk.write_all(FILES, data);
    disk.create();
    let mount = disk.mount();
    disk.run(&["share", "optimize", &disk.share]).expect(0);
    disk.assert_all(FILES, data);
    let back = disk.run(&["share", "rehydrate", &disk.share]).expect(0).message("rehydrated");
    assert_eq!(back["files"], FILES, "{back}");
    assert!(back["collections"].as_u64().unwrap() > 0, "there was room for all: {back}");
    disk.assert_all(FILES, data);
    mount.end();
}

/// The job is what makes room: almost nothing of it is enough.
#[test]
fn a_full_disk_with_share_and_store_shrinks_with_what_is_set_aside() {
    if !can_mount() {
        return;
    }
    const FILES: u64 = 60;
    let Some(disk) = OneDisk::new(128) else { return };
    disk.create();
    let mount = disk.mount();
    // Half of it is there twice.
    let data = |number: u64| random_bytes(number % (FILES / 2), 190_000);
    disk.write_all(FILES, data);
    fill(&disk.sandbox.path("disk"));
    std::thread::sleep(Duration::from_millis(100));
    let did = disk.run(&["share", "optimize", &disk.share]).expect(0).message("optimized");
    assert_eq!([&did["files_optimized"], &did["files_put_off"]], [FILES, 0], "{did}");
    disk.assert_all(FILES, data);
    assert!(did["bytes_freed"].as_u64().unwrap() >= FILES * 190_000, "{did}");
    mount.end();
}

/// A write from inside a stub over its end: what is written is what the disk takes, from the front.
#[test]
fn a_write_over_the_end_of_a_stub_on_a_full_disk_is_cut_or_refused_and_tears_nothing() {
    if !can_mount() {
        return;
    }
    const FILES: u64 = 20;
    let Some(disk) = OneDisk::new(80) else { return };
    let data = |number: u64| random_bytes(number, 40_000);
    disk.write_all(FILES, data);
    disk.create();
    let did = disk.run(&["share", "optimize", &disk.share]).expect(0).message("optimized");
    assert_eq!(did["files_optimized"], FILES, "{did}");
    let mount = disk.mount();
    let mut filler = File::create(disk.path(FILES)).unwrap();
    for size_bytes in [MIB, 1 << 16, 1 << 12, 1] {
        while filler.write_all(&random_bytes(7, size_bytes)).is_ok() {}
    }
    let mut expected: Vec<Vec<u8>> = (0..FILES).map(data).collect();
    let (mut refused, mut cut) = (0, 0);
    // At ever other places: it takes certain amounts of room to be left.
    for (number, seed) in (0..30 * FILES).map(|one| (one % FILES, one)) {
        let expected = &mut expected[number as usize];
        let written = random_bytes(1000 + seed, 600_000);
        let offset = (seed * 7919 % expected.len() as u64) as usize;
        let file = File::options().write(true).open(disk.path(number)).unwrap();
        match file.write_at(&written, offset as u64) {
            Ok(done) => {
                let end = (offset + done).max(expected.len());
                expected.resize(end, 0);
                expected[offset..offset + done].copy_from_slice(&written[..done]);
                cut += u64::from(done < written.len());
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                refused += 1;
            }
        }
        drop(file);
        let found = fs::read(disk.path(number)).unwrap();
        assert!(found == *expected, "{number}: {} bytes, not {}", found.len(), expected.len());
    }
    assert!(refused > 0 && cut > 0, "{refused} refused, {cut} cut");
    mount.end();
}
