//! Real devices that are full: small file systems, mounted for the test.
//!
//! Each needs the right to mount, and its tools. Where something is missing the file system is
//! passed over, and standard error says so.

use crate::collecting::random_bytes;
use crate::support::{Run, Sandbox};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;
const FILE_BYTES: usize = 200_000;

/// A file system that is mounted until this is dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Makes and mounts a file system, or says why it cannot. What follows the kind are options of
    /// what makes it.
    pub fn new(kind: &str, size_bytes: usize, image: &Path, place: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(place).unwrap();
        let place_text = place.to_str().unwrap();
        if kind.starts_with("tmpfs") {
            // What follows the kind are further options.
            let size = format!("size={size_bytes}{}", kind.trim_start_matches("tmpfs"));
            return succeeds("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", place_text])
                .map(|()| Self(place.to_owned()));
        }
        let file = std::fs::File::create(image).unwrap();
        file.set_len(size_bytes as u64).unwrap();
        drop(file);
        let image_text = image.to_str().unwrap();
        let (kind, more) = kind.split_once(' ').unwrap_or((kind, ""));
        let force = if kind == "ext4" { "-F" } else { "-f" };
        let more: Vec<&str> = more.split_whitespace().collect();
        succeeds(&format!("mkfs.{kind}"), &[&["-q", force], &more[..], &[image_text]].concat())?;
        succeeds("mount", &["-t", kind, "-o", "loop", image_text, place_text])?;
        Ok(Self(place.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let place = self.0.to_str().unwrap();
        let _ = succeeds("umount", &[place]).or_else(|_| succeeds("umount", &["-l", place]));
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A store on a device of its own.
struct StoreOnDevice {
    _mounted: Mounted,
    sandbox: Sandbox,
    place: PathBuf,
}

impl StoreOnDevice {
    fn new(kind: &str, size_bytes: usize, options: &[&str]) -> Result<Self, String> {
        let sandbox = Sandbox::empty().with_password(false);
        let place = sandbox.path("device");
        let _mounted = Mounted::new(kind, size_bytes, &sandbox.path("image"), &place)?;
        let device = Self { _mounted, sandbox, place };
        device.run(&[&["init", "--encryption", "none"], options].concat()).expect(0);
        Ok(device)
    }

    /// One that a test is about; says so if there can be none.
    fn try_new(kind: &str, size_bytes: usize, options: &[&str]) -> Option<Self> {
        Self::new(kind, size_bytes, options)
            .inspect_err(|why| eprintln!("SKIPPED: a {kind} that is full was not tested: {why}"))
            .ok()
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let store = self.place.join("store");
        self.sandbox.run(&[&["-r", store.to_str().unwrap()], arguments].concat())
    }
}

/// The source of a generation: half of the files are those of the one before, other ones each time,
/// so that every generation's containers hold some that the last one needs.
fn write_generation(sandbox: &Sandbox, files: usize, generation: usize) {
    let changes =
        |at: usize, at_generation: usize| random_bytes((at * 997 + at_generation) as u64, 1)[0];
    for at in 0..files {
        let age = (1..=generation).filter(|one| changes(at, *one) % 2 == 0).count();
        let seed = (at * 1000 + age + 1) as u64;
        sandbox.write(&format!("source/f{at:03}"), &random_bytes(seed, FILE_BYTES));
    }
}

/// Fills what is left of a device, to the last block. Smaller files would go into the metadata of
/// some file systems, where nothing can be set aside.
pub fn fill(place: &Path) {
    let mut size = MIB;
    for number in 0.. {
        let file = std::fs::File::create(place.join(format!("filler{number}")));
        let written = file.and_then(|mut file| {
            file.write_all(&random_bytes(number, size))?;
            file.sync_all()
        });
        match written {
            Ok(()) => {}
            Err(_) if size > 4096 => size /= 2,
            Err(_) => return,
        }
    }
}

pub fn free_bytes(place: &Path) -> u64 {
    let stat = rustix::fs::statvfs(place).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// Fills a store on the device, forgets all generations but the last one, and collects.
fn collects_from_nothing(kind: &str, size_bytes: usize) -> Result<(), String> {
    let device = StoreOnDevice::new(kind, size_bytes, &[])?;
    let StoreOnDevice { sandbox, place, .. } = &device;
    let files = size_bytes / 8 / FILE_BYTES;
    let source = sandbox.arg("source");
    let mut saved = 0;
    loop {
        write_generation(sandbox, files, saved);
        if device.run(&["backup", &source]).code != 0 {
            break;
        }
        saved += 1;
        assert!(saved < 60, "{kind}: the device does not get full");
    }
    assert!(saved > 2, "{kind}: {saved} generations");
    fill(place);
    let show = |what: &str| eprintln!("{kind}: {what}: {} bytes free", free_bytes(place));
    show("full");
    device.run(&["forget", "--keep-last", "1", "--final"]).expect(0);
    show("forgotten");
    let run = device.run(&["gc"]).expect(0);
    show(run.stdout.trim());
    let run = device.run(&["gc", "--space-goal", "all"]).expect(0);
    show(run.stdout.trim());
    let plan = device.run(&["--json", "gc", "--dry-run", "--space-goal", "all"]).expect(0);
    assert_eq!(plan.message("summary")["deleted_containers"], 0, "{kind}: {}", plan.stdout);
    device.run(&["check", "--read-data"]).expect(0);
    let target = sandbox.arg("out");
    device.run(&["restore", "latest", "--target", &target]).expect(0);
    write_generation(sandbox, files, saved - 1);
    let restored = find(Path::new(&target), "source").expect("the source is restored");
    for at in 0..files {
        let name = format!("f{at:03}");
        let [one, other] = [restored.join(&name), sandbox.path("source").join(&name)]
            .map(|path| std::fs::read(path).unwrap());
        assert!(one == other, "{kind}: {name}");
    }
    write_generation(sandbox, files, saved + 1);
    device.run(&["backup", &source]).expect(0);
    Ok(())
}

#[test]
fn r67_a_device_without_inodes_is_collected() {
    let options = ["--container-size", "64KiB"];
    let Some(device) = StoreOnDevice::try_new("tmpfs,nr_inodes=260", 64 * MIB, &options) else {
        return;
    };
    let StoreOnDevice { sandbox, place, .. } = &device;
    let source = sandbox.arg("source");
    let mut generation = 0;
    loop {
        sandbox.write("source/f", &random_bytes(generation + 1, 150_000));
        let run = device.run(&["backup", &source]);
        if run.code != 0 {
            assert!(run.stderr.contains("it has no inodes left"), "{}", run.stderr);
            break;
        }
        generation += 1;
        assert!(generation < 100, "the device does not run out of inodes");
    }
    assert!(generation > 3, "{generation} generations");
    while std::fs::write(place.join(format!("filler{generation}")), b"").is_ok() {
        generation += 1;
    }
    // There are fewer copies than tombstones to be written, so it takes several turns.
    let mut turns = 0;
    while device.run(&["forget", "--keep-last", "1", "--final"]).code != 0 {
        device.run(&["gc", "--space-goal", "all"]).expect(0);
        turns += 1;
        // Each turn frees some more than the one before.
        assert!(turns < 20, "forgetting and collecting do not help");
    }
    device.run(&["gc", "--space-goal", "all"]).expect(0);
    device.run(&["check", "--read-data"]).expect(0);
    sandbox.write("source/f", &random_bytes(500, 150_000));
    device.run(&["backup", &source]).expect(0);
}

/// The directory of this name somewhere below a place.
fn find(place: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(place).ok()? {
        let path = entry.ok()?.path();
        if path.is_dir() {
            match path.file_name().is_some_and(|last| last == name) {
                true => return Some(path),
                false if find(&path, name).is_some() => return find(&path, name),
                false => {}
            }
        }
    }
    None
}

#[test]
fn r67_a_full_file_system_of_every_kind_is_collected_from_zero_bytes_free() {
    for (kind, size_bytes) in
        [("tmpfs", 16 * MIB), ("ext4", 24 * MIB), ("btrfs", 128 * MIB), ("xfs", 300 * MIB)]
    {
        if let Err(why) = collects_from_nothing(kind, size_bytes) {
            eprintln!("SKIPPED: a full {kind} was not tested: {why}");
        }
    }
}

/// What a collection of the store needs is kept free where the store is, and nowhere else.
#[test]
fn a_share_comes_back_on_a_disk_of_its_own_that_has_room_for_it_and_little_more() {
    let sandbox = Sandbox::with_store();
    let share = sandbox.path("share");
    let made = Mounted::new("ext4", 40 * MIB, &sandbox.path("image"), &share);
    let Ok(_mounted) = made.inspect_err(|error| eprintln!("SKIPPED: a share on ext4: {error}"))
    else {
        return;
    };
    for number in 0..3 {
        std::fs::write(share.join(format!("{number}")), random_bytes(number, 4 * MIB)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let directory = sandbox.arg("share");
    sandbox.run(&["share", "create", "--min-age", "0s", &directory]).expect(0);
    sandbox.run(&["share", "optimize", &directory]).expect(0);
    let leave = |bytes: u64| {
        let filler = std::fs::File::create(share.join("filler")).unwrap();
        let room = free_bytes(&share);
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, room - bytes)
            .unwrap();
    };
    leave(2 * MIB as u64);
    let refused = sandbox.run(&["share", "rehydrate", &directory]).expect(1).stderr;
    assert!(
        refused.contains("its data takes 4096 KiB") && refused.contains("make room"),
        "{refused}"
    );
    assert!(!refused.contains("collection"), "{refused}");
    leave(14 * MIB as u64);
    sandbox.run(&["share", "rehydrate", &directory]).expect(0);
    for number in 0..3 {
        let found = std::fs::read(share.join(format!("{number}"))).unwrap();
        assert!(found == random_bytes(number, 4 * MIB), "{number}");
    }
}

/// A collection has used the room that was set aside; many small backups and a great forgetting
/// follow.
#[test]
fn r113_a_device_that_was_full_is_freed_after_its_reserve_was_used() {
    let options = ["--container-size", "512KiB"];
    let Some(device) = StoreOnDevice::try_new("tmpfs", 12 * MIB, &options) else { return };
    let StoreOnDevice { sandbox, place, .. } = &device;
    let source = sandbox.arg("source");
    let mut saved = 0;
    loop {
        sandbox.write(&format!("source/f{}", saved % 5), &random_bytes(saved + 1, 60_000));
        if device.run(&["backup", &source]).code != 0 {
            break;
        }
        saved += 1;
        assert!(saved < 400, "the device does not get full");
    }
    device.run(&["gc", "--wait", "0s", "--repack"]);
    // What the reserve lacks is not for them, and they say so.
    let mut said = String::new();
    for small in 0..60_u32 {
        sandbox.write("source/small", &small.to_le_bytes());
        let run = device.run(&["backup", &source]);
        said += &run.stderr;
        if run.code != 0 {
            break;
        }
    }
    let reserve = std::fs::metadata(place.join("store/reserve")).map_or(0, |found| found.len());
    assert!(reserve > 256 << 10, "{reserve} bytes are set aside; {said}");
    let mut turns = 0;
    while device.run(&["forget", "--keep-last", "1", "--final"]).code != 0 {
        device.run(&["gc", "--wait", "0s"]).expect(0);
        turns += 1;
        assert!(turns < 20, "forgetting and collecting do not help");
    }
    device.run(&["gc", "--wait", "0s", "--space-goal", "all"]).expect(0);
    assert!(free_bytes(place) > 6 * MIB as u64, "{}", free_bytes(place));
    device.run(&["check", "--read-data"]).expect(0);
    device.run(&["backup", &source]).expect(0);
}

/// A device that promises more than it has: a file system in a sparse file on a smaller one. What
/// does not find room there is noticed only when it is written out.
struct ThinDevice {
    _mounted: Mounted,
    _below: Mounted,
}

impl ThinDevice {
    fn new(sandbox: &Sandbox, place: &Path) -> Result<Self, String> {
        let below = sandbox.path("below");
        let _below = Mounted::new("tmpfs", 10 * MIB, Path::new(""), &below)?;
        let image = below.join("image");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(60 * MIB as u64).unwrap();
        drop(file);
        std::fs::create_dir_all(place).unwrap();
        let [image, place_text] = [image.to_str().unwrap(), place.to_str().unwrap()];
        let options = ["-q", "-F", "-O", "^has_journal", "-E", "nodiscard", image];
        succeeds("mkfs.ext4", &options)?;
        succeeds("mount", &["-o", "loop", image, place_text])?;
        Ok(Self { _mounted: Mounted(place.to_owned()), _below })
    }
}

#[test]
fn r140_what_a_device_could_not_write_of_a_restore_is_told() {
    let sandbox = Sandbox::with_store();
    for number in 0..6 {
        sandbox.write(&format!("source/{number}"), &random_bytes(number, 4 * MIB));
    }
    sandbox.backup(&[]);
    let from = format!("latest:{}", sandbox.arg("source"));
    let target = sandbox.path("target");
    let arguments = ["restore", &from, "--target", target.to_str().unwrap()];
    for options in [&[][..], &["--verify"]] {
        let made = ThinDevice::new(&sandbox, &target);
        let Ok(_device) = made.inspect_err(|error| eprintln!("SKIPPED: a thin device: {error}"))
        else {
            return;
        };
        let run = sandbox.run(&[&arguments, options].concat()).expect(3);
        assert!(run.stderr.contains("could not write all that it was given"), "{}", run.stderr);
        assert!(!run.stdout.contains("\nrestored "), "{}", run.stdout);
        assert!(!run.stdout.starts_with("restored "), "{}", run.stdout);
    }
}
