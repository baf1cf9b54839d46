//! What is asked of the system in each case of [`crate::sharing_semantics`].

use crate::sharing_semantics::{Seen, granting, listed, sum};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};

/// Something that is done, and its name.
type Case = (&'static str, fn(&mut Seen));

/// What is done and told in each of them, by name.
pub const CASES: [Case; 14] = [
    ("opening", opening),
    ("appending", appending),
    ("cutting", cutting),
    ("renaming", renaming),
    ("removing", removing),
    ("linking", linking),
    ("making", making),
    ("describing", describing),
    ("timing", timing),
    ("allocating", allocating),
    ("copying", copying),
    ("seeking", seeking),
    ("attributing", attributing),
    ("granting", granting),
];

fn opening(seen: &mut Seen) {
    let (read, write, both) = (OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR);
    let make = OFlags::CREATE;
    let (long, too_long) = ("n".repeat(255), "n".repeat(256));
    let far_too_long = "d/".repeat(2100);
    for (name, flags) in [
        ("missing", read),
        ("missing/below", read),
        ("file/below", read),
        ("file/", read),
        ("file", read | OFlags::DIRECTORY),
        ("file", both | make | OFlags::EXCL),
        ("link", both | make | OFlags::EXCL),
        ("dangling", both | make | OFlags::EXCL),
        ("link", read | OFlags::NOFOLLOW),
        ("link", read | OFlags::NOFOLLOW | OFlags::PATH),
        ("loop", read),
        ("loop/below", read),
        ("dangling", read),
        ("directory", write),
        ("directory", both | make),
        ("directory", read | OFlags::TRUNC),
        ("directory", read | make | OFlags::DIRECTORY),
        ("new/", both | make),
        ("", read),
        (&long, both | make),
        (&too_long, both | make),
        (&far_too_long, read),
        ("file", both | OFlags::DIRECT),
        ("file", both | OFlags::SYNC),
        ("file", read | OFlags::NOATIME),
    ] {
        seen.open(name, flags);
    }
    let wrong = seen.open("file", read).unwrap();
    seen.note("write where only reading was asked for", wrong.write_at(b"x", 0));
    seen.note("cut where only reading was asked for", rustix::fs::ftruncate(&wrong, 1));
    let wrong = seen.open("file", write).unwrap();
    seen.note("read where only writing was asked for", wrong.read_at(&mut [0; 10], 0));
    let directory = seen.open("directory", read).unwrap();
    seen.note("read a directory", directory.read_at(&mut [0; 10], 0));
    seen.note("sync a directory", rustix::fs::fsync(&directory));
    seen.open("dangling", both | make);
    seen.status("nowhere");
    // Cutting as one opens, with whatever right.
    seen.open("other", read | OFlags::TRUNC);
    seen.status("other");
    let early = seen.open("linked", read).unwrap();
    seen.open("directory/second", write | OFlags::TRUNC | make);
    seen.note("what was open before", early.read_at(&mut [0; 10], 0));
    seen.status("linked");
    let limits = rustix::fs::statvfs(&seen.directory).map(|known| known.f_namemax);
    seen.note("the longest name", limits);
}

fn appending(seen: &mut Seen) {
    let append = OFlags::RDWR | OFlags::APPEND;
    for name in ["file", "empty"] {
        let (one, two) = (seen.open(name, append).unwrap(), seen.open(name, append).unwrap());
        // Where it is to go is no matter to one that appends.
        seen.note("at 0", one.write_at(b"first", 0));
        seen.note("at the end", two.write_at(b"second", 1 << 40));
        let by_other = seen.open(name, OFlags::WRONLY).unwrap();
        seen.note("cut below it", by_other.set_len(70_000));
        seen.note("behind the cut", io::Write::write(&mut &one, b"third"));
        seen.note("its place", rustix::fs::tell(&one));
        seen.note("no bytes", io::Write::write(&mut &one, b""));
        let many = [io::IoSlice::new(b"of "), io::IoSlice::new(b"many")];
        seen.note("of many", io::Write::write_vectored(&mut &two, &many));
        seen.status(name);
    }
}

fn cutting(seen: &mut Seen) {
    let file = seen.open("file", OFlags::RDWR).unwrap();
    let second = seen.open("file", OFlags::RDONLY).unwrap();
    for size in [199_999, 65_536, 65_537, 65_535, 300_000, 0, 10, 1 << 30, 100_000] {
        seen.note(&format!("to {size}"), rustix::fs::ftruncate(&file, size));
        let mut bytes = [7; 64];
        let read = second.read_at(&mut bytes, size.saturating_sub(32));
        seen.note("around the end", read.map(|read| bytes[..read].to_vec()));
        seen.status("file");
    }
    for size in [u64::MAX, 1 << 63, (1 << 63) - 1] {
        seen.note("to too much", rustix::fs::ftruncate(&file, size));
    }
    seen.note("at too much", file.write_at(b"x", (1 << 63) - 2));
    seen.note("from far behind", file.read_at(&mut [0; 5], 1 << 50));
    seen.note("a gap", file.write_at(b"behind a gap", 250_000));
    let mut gap = vec![1; 250_012];
    let read = file.read_at(&mut gap, 0);
    seen.note("and what is in it", read.map(|_| gap[100_000..250_000].iter().all(|b| *b == 0)));
    for name in ["other", "short", "sparse"] {
        seen.times(name, "cutting to the same", |seen| {
            let file = seen.open(name, OFlags::WRONLY).unwrap();
            let length = file.metadata().unwrap().len();
            seen.note("the same", file.set_len(length));
        });
        seen.times(name, "growing", |seen| {
            let file = seen.open(name, OFlags::WRONLY).unwrap();
            seen.note("more", file.set_len(160_001));
        });
    }
}

fn renaming(seen: &mut Seen) {
    let none = RenameFlags::empty();
    let long = "n".repeat(256);
    let open = seen.open("other", OFlags::RDWR).unwrap();
    for (from, to, flags) in [
        ("missing", "file", none),
        ("file", "missing/below", none),
        ("file", "short/below", none),
        ("file", "directory", none),
        ("directory", "file", none),
        ("hollow", "directory", none),
        ("directory", "directory/inside/itself", none),
        ("directory", "directory", none),
        ("directory/inside", "directory", none),
        ("file", "file", none),
        ("linked", "directory/second", none),
        ("file", "new/", none),
        (".", "elsewhere", none),
        ("directory/..", "elsewhere", none),
        ("file", &long, none),
        ("loop/below", "file", none),
        ("file", "other", RenameFlags::NOREPLACE),
        ("file", "file", RenameFlags::NOREPLACE),
        ("file", "missing", RenameFlags::EXCHANGE),
        ("file", "directory", RenameFlags::EXCHANGE),
        ("directory", "file", RenameFlags::EXCHANGE),
        ("file", "short", RenameFlags::EXCHANGE),
        ("short", "file", RenameFlags::EXCHANGE),
        ("directory/inside", "hollow", none),
        ("hollow", "directory/inside", RenameFlags::NOREPLACE),
        ("file", "other", none),
        ("link", "empty", none),
        ("other", "directory/inside/file", none),
        ("linked", "sparse", none),
    ] {
        seen.rename(from, to, flags);
    }
    seen.note("links of what was replaced", open.metadata().map(|one| one.nlink()));
    let mut bytes = vec![0; 150_000];
    seen.note("and its bytes", open.read_exact_at(&mut bytes, 0).map(|()| sum(&bytes)));
    seen.note("written", open.write_at(b"to what has no name", 100_000));
    seen.note("read", open.read_exact_at(&mut bytes, 0).map(|()| sum(&bytes)));
    seen.times("sparse", "renaming", |seen| {
        seen.rename("sparse", "moved", none);
        seen.rename("moved", "sparse", none);
    });
}

fn removing(seen: &mut Seen) {
    let (file, directory) = (AtFlags::empty(), AtFlags::REMOVEDIR);
    let open = seen.open("file", OFlags::RDWR).unwrap();
    let second = seen.open("linked", OFlags::RDWR).unwrap();
    for (name, flags) in [
        ("missing", file),
        ("directory", file),
        ("file/", file),
        ("file", directory),
        ("directory", directory),
        ("directory/inside/.", directory),
        ("directory/inside/..", directory),
        ("link", directory),
        ("loop", file),
        ("hollow", directory),
        ("file", file),
        ("file", file),
        ("linked", file),
    ] {
        let removed = rustix::fs::unlinkat(CWD, seen.at(name), flags);
        seen.note(&format!("remove {name} {flags:?}"), removed);
    }
    for one in [&open, &second] {
        let mut bytes = vec![0; 80_000];
        seen.note("links", one.metadata().map(|known| known.nlink()));
        seen.note("bytes", one.read_exact_at(&mut bytes, 0).map(|()| sum(&bytes)));
        seen.note("written", one.write_at(b"without a name", 65_530));
        seen.note("bytes", one.read_exact_at(&mut bytes, 0).map(|()| sum(&bytes)));
        seen.note("cut", one.set_len(66_000));
        seen.note("mode", rustix::fs::fchmod(one, 0o600.into()));
        seen.note("length", one.metadata().map(|known| (known.len(), known.mode())));
        seen.note("synced", one.sync_all());
    }
    // A new file of the name has nothing of the old one.
    fs::write(seen.at("file"), b"new").unwrap();
    seen.note("the old one", open.metadata().map(|known| known.len()));
    seen.status("directory/second");
    let listed = fs::read_dir(&seen.directory).map(|names| {
        let mut names: Vec<_> = names.map(|one| one.unwrap().file_name()).collect();
        names.sort();
        names
    });
    seen.note("names", listed);
}

fn linking(seen: &mut Seen) {
    let none = AtFlags::empty();
    let long = "n".repeat(256);
    for (from, to) in [
        ("file", "other"),
        ("file", "file"),
        ("missing", "new"),
        ("directory", "new"),
        ("file", "missing/new"),
        ("file", "short/new"),
        ("file", &long),
        ("loop/below", "new"),
        ("file", "new"),
        ("link", "link too"),
        ("empty", "directory/empty"),
    ] {
        let linked = rustix::fs::linkat(CWD, seen.at(from), CWD, seen.at(to), none);
        seen.note(&format!("link {from} to {to}"), linked);
    }
    for name in ["file", "new", "link", "link too", "linked", "directory/second", "directory"] {
        seen.status(name);
    }
    let same =
        seen.at("file").metadata().unwrap().ino() == seen.at("new").metadata().unwrap().ino();
    seen.lines.push(format!("one inode: {same}"));
    fs::OpenOptions::new().write(true).open(seen.at("new")).unwrap().write_at(b"x", 9).unwrap();
    seen.note("through the other name", fs::read(seen.at("file")).map(|bytes| sum(&bytes)));
    seen.times("linked", "linking", |seen| {
        seen.note("third", fs::hard_link(seen.at("linked"), seen.at("third")));
    });
    for (target, name) in [
        ("anywhere", "file"),
        ("anywhere", "link"),
        ("", "hollow link"),
        (&"t".repeat(4095)[..], "long"),
        (&"t".repeat(4096)[..], "too long"),
        ("file", "directory/inside/../third link"),
    ] {
        seen.note(&format!("link {name}"), symlink(target, seen.at(name)));
    }
    for name in ["file", "directory", "link", "third link"] {
        seen.note("target", fs::read_link(seen.at(name)));
    }
}

fn making(seen: &mut Seen) {
    for (name, kind, mode, device) in [
        ("pipe", FileType::Fifo, 0o640, 0),
        ("socket", FileType::Socket, 0o600, 0),
        ("device", FileType::CharacterDevice, 0o666, rustix::fs::makedev(1, 3)),
        ("disk", FileType::BlockDevice, 0o600, rustix::fs::makedev(300, 70_000)),
        ("plain", FileType::RegularFile, 0o7755, 0),
        ("file", FileType::Fifo, 0o600, 0),
        ("missing/below", FileType::Fifo, 0o600, 0),
    ] {
        let made = rustix::fs::mknodat(CWD, seen.at(name), kind, Mode::from_raw_mode(mode), device);
        seen.note(&format!("make {name}"), made);
        let device = rustix::fs::lstat(seen.at(name)).map(|known| known.st_rdev);
        seen.note("device", device);
    }
    for (name, mode) in [
        ("made", 0o777),
        ("made/deep", 0o1751),
        ("file", 0o777),
        ("link", 0o777),
        ("dangling", 0o777),
        ("file/below", 0o777),
        ("trailing/", 0o2770),
        (".", 0o700),
    ] {
        let made = rustix::fs::mkdirat(CWD, seen.at(name), Mode::from_raw_mode(mode));
        seen.note(&format!("make directory {name}"), made);
    }
    for name in ["made", "made/deep", "trailing", "pipe", "plain", "directory", "."] {
        let known = rustix::fs::lstat(seen.at(name));
        let told = known.map(|one| (format!("{:o}", one.st_mode), one.st_nlink));
        seen.note(name, told);
    }
    // Items of a directory with a group of its own.
    let group = Some(Gid::from_raw(4242));
    seen.note("group", rustix::fs::chown(seen.at("made"), None, group));
    let mode = Mode::from_raw_mode(0o2775);
    seen.note("its own", rustix::fs::chmodat(CWD, seen.at("made"), mode, AtFlags::empty()));
    fs::write(seen.at("made/file"), b"").unwrap();
    fs::create_dir(seen.at("made/inner")).unwrap();
    for name in ["made/file", "made/inner"] {
        let told = rustix::fs::lstat(seen.at(name));
        seen.note(name, told.map(|one| (one.st_gid, format!("{:o}", one.st_mode))));
    }
}

fn describing(seen: &mut Seen) {
    for mode in [0, 0o7777, 0o4755, 0o2644, 0o1644, 0o644] {
        for name in ["file", "empty", "hollow", "link", "dangling", "loop"] {
            let asked = Mode::from_raw_mode(mode);
            let changed = rustix::fs::chmodat(CWD, seen.at(name), asked, AtFlags::empty());
            seen.note(&format!("{mode:o} for {name}"), changed);
        }
        seen.status("file");
        seen.status("hollow");
    }
    let who = [(None, None), (Some(7), None), (None, Some(8)), (Some(0), Some(0))];
    for (mode, (uid, gid)) in [0o6755, 0o6644, 0o2755, 0o4700].into_iter().zip(who) {
        for name in ["file", "empty", "hollow"] {
            let asked = Mode::from_raw_mode(mode);
            rustix::fs::chmodat(CWD, seen.at(name), asked, AtFlags::empty()).unwrap();
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            seen.note("owner", rustix::fs::chown(seen.at(name), uid, gid));
            let known = rustix::fs::lstat(seen.at(name));
            let told = known.map(|one| (one.st_uid, one.st_gid, format!("{:o}", one.st_mode)));
            seen.note(&format!("{name} of {mode:o}"), told);
        }
    }
    let (nobody, follow) = (Some(Uid::from_raw(65534)), AtFlags::SYMLINK_NOFOLLOW);
    seen.note("a link's", rustix::fs::chownat(CWD, seen.at("link"), nobody, None, follow));
    seen.note("is its own", seen.at("link").symlink_metadata().map(|one| one.uid()));
    seen.note("file is another's", seen.at("file").metadata().map(|one| one.uid()));
    for name in ["file", "directory"] {
        seen.times(name, "a mode", |seen| {
            let mode = Mode::from_raw_mode(0o700);
            rustix::fs::chmodat(CWD, seen.at(name), mode, AtFlags::empty()).unwrap();
        });
        seen.times(name, "an owner", |seen| {
            rustix::fs::chown(seen.at(name), Some(Uid::from_raw(3)), None).unwrap();
        });
    }
}

fn timing(seen: &mut Seen) {
    let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let (omit, now) = (at(0, UTIME_OMIT), at(0, UTIME_NOW));
    for (last_access, last_modification) in [
        (at(1_000, 123_456_789), at(2_000_000_000, 999_999_999)),
        (omit, at(5, 0)),
        (at(6, 1), omit),
        (omit, omit),
        (at(-5, 500_000_000), at(-1, 1)),
        (at(3, 1_000_000_000), at(3, 0)),
        (at(1 << 33, 0), at(1 << 40, 0)),
        (at(-1 << 40, 0), at(0, 0)),
    ] {
        for name in ["file", "empty", "directory", "link", "missing"] {
            let times = Timestamps { last_access, last_modification };
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let changed = rustix::fs::utimensat(CWD, seen.at(name), &times, flags);
            seen.note(&format!("times of {name}"), changed);
            let told = seen.at(name).symlink_metadata();
            let of = |one: fs::Metadata| {
                [(one.atime(), one.atime_nsec()), (one.mtime(), one.mtime_nsec())]
            };
            seen.note("are", told.map(of));
        }
    }
    for name in ["file", "other", "short", "sparse", "hollow"] {
        seen.times(name, "now", |seen| {
            let times = Timestamps { last_access: omit, last_modification: now };
            rustix::fs::utimensat(CWD, seen.at(name), &times, AtFlags::empty()).unwrap();
        });
        if name == "hollow" {
            seen.times(name, "a new name", |seen| fs::write(seen.at("hollow/n"), b"").unwrap());
            seen.times(name, "a name less", |seen| fs::remove_file(seen.at("hollow/n")).unwrap());
            continue;
        }
        seen.times(name, "reading", |seen| drop(fs::read(seen.at(name)).unwrap()));
        seen.times(name, "writing", |seen| {
            let file = File::options().write(true).open(seen.at(name)).unwrap();
            file.write_all_at(b"x", 70).unwrap();
        });
        seen.times(name, "opening to write", |seen| {
            drop(File::options().append(true).open(seen.at(name)).unwrap());
        });
        // Whoever writes and then says when, is believed.
        let file = File::options().write(true).open(seen.at(name)).unwrap();
        file.write_all_at(b"y", 75).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(77, 88)).unwrap();
        drop(file);
        let told = seen.at(name).metadata().map(|one| (one.mtime(), one.mtime_nsec()));
        seen.note("as was said", told);
    }
}

fn allocating(seen: &mut Seen) {
    let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE);
    let zero = FallocateFlags::ZERO_RANGE;
    for name in ["file", "short", "sparse"] {
        let file = seen.open(name, OFlags::RDWR).unwrap();
        for (flags, offset, length) in [
            (FallocateFlags::empty(), 0, 0),
            (FallocateFlags::empty(), 0, 1000),
            (punch, 0, 1000),
            (punch | zero | keep, 0, 1000),
            (punch | keep, 10_000, 60_000),
            (punch | keep, 199_000, 1 << 20),
            (punch | keep, 1 << 30, 1000),
            (zero | keep, 90_000, 5),
            (zero, 150_000, 10_000),
            (zero | keep, 199_999, 100_000),
            (zero, 199_990, 100_000),
            (keep, 0, 1 << 20),
            (FallocateFlags::empty(), 300_000, 70_000),
            (FallocateFlags::empty(), 1 << 62, 1 << 62),
            (punch | keep, 1 << 62, 1 << 62),
            (punch | keep, 1 << 63, 10),
        ] {
            let done = rustix::fs::fallocate(&file, flags, offset, length);
            seen.note(&format!("{flags:?} {offset} {length}"), done);
            let bytes = fs::read(seen.at(name)).map(|bytes| (bytes.len(), sum(&bytes)));
            seen.note("bytes", bytes);
        }
        let file = seen.open(name, OFlags::RDONLY).unwrap();
        let done = rustix::fs::fallocate(&file, punch | keep, 0, 10);
        seen.note("where only reading was asked for", done);
        seen.times(name, "punching", |seen| {
            let file = seen.open(name, OFlags::RDWR).unwrap();
            seen.note("done", rustix::fs::fallocate(&file, punch | keep, 7, 70));
        });
    }
    let directory = seen.open("directory", OFlags::RDONLY).unwrap();
    seen.note("a directory", rustix::fs::fallocate(&directory, keep, 0, 10));
}

fn copying(seen: &mut Seen) {
    let from = seen.open("file", OFlags::RDONLY).unwrap();
    let to = seen.open("other", OFlags::RDWR).unwrap();
    let copy = |from: &File, at: u64, to: &File, place: u64, length: usize| {
        let (mut at, mut place) = (at, place);
        rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut place), length)
            .map(|copied| (copied, at, place))
    };
    for (at, place, length) in [
        (0, 0, 1000),
        (60_000, 100_001, 50_000),
        (199_990, 400_000, 100),
        (200_000, 0, 10),
        (1 << 40, 0, 10),
        (0, 0, 0),
        (0, 1 << 20, 200_000),
    ] {
        let copied = copy(&from, at, &to, place, length);
        seen.note(&format!("{length} from {at} to {place}"), copied);
        seen.note("bytes", fs::read(seen.at("other")).map(|bytes| sum(&bytes)));
    }
    seen.note("into what is read", copy(&to, 0, &from, 0, 10));
    let blind = seen.open("short", OFlags::WRONLY).unwrap();
    seen.note("from what is written", copy(&blind, 0, &to, 0, 10));
    let append = seen.open("short", OFlags::WRONLY | OFlags::APPEND).unwrap();
    seen.note("into what is appended to", copy(&from, 0, &append, 0, 10));
    seen.note("over itself", copy(&to, 0, &to, 10, 100));
    seen.note("beside itself", copy(&to, 0, &to, 100_000, 50_000));
    let directory = seen.open("directory", OFlags::RDONLY).unwrap();
    seen.note("a directory", copy(&directory, 0, &to, 0, 10));
    seen.note("a whole file", fs::copy(seen.at("sparse"), seen.at("copied")));
    seen.note("over another", fs::copy(seen.at("file"), seen.at("short")));
}

fn seeking(seen: &mut Seen) {
    for name in ["file", "short", "empty"] {
        let file = seen.open(name, OFlags::RDWR).unwrap();
        let length = file.metadata().unwrap().len();
        for offset in [0, 50, length.saturating_sub(1), length, length + 1, 1 << 40] {
            let (data, hole) = (SeekFrom::Data(offset), SeekFrom::Hole(offset));
            seen.note(&format!("data from {offset}"), rustix::fs::seek(&file, data));
            seen.note(&format!("hole from {offset}"), rustix::fs::seek(&file, hole));
        }
        seen.note("end", rustix::fs::seek(&file, SeekFrom::End(-1)));
        seen.note("before all", rustix::fs::seek(&file, SeekFrom::End(-300_000)));
    }
    // Where the data of a sparse file is, to the granule.
    let file = seen.open("sparse", OFlags::RDWR).unwrap();
    let data = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
    let hole = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap();
    let holds = data <= 1 << 20 && hole >= (1 << 20) + 65_536;
    seen.note("holds its data", Ok::<_, io::Error>(holds));
    seen.note("nothing behind it", rustix::fs::seek(&file, SeekFrom::Data(2 << 20)));
    seen.note("hole behind it", rustix::fs::seek(&file, SeekFrom::Hole(2 << 20)));
    seen.note("end of it", rustix::fs::seek(&file, SeekFrom::Hole(4 << 20)));
}

fn attributing(seen: &mut Seen) {
    let (any, new, old) = (XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE);
    let long = format!("user.{}", "n".repeat(251));
    for (name, attribute, value, flags) in [
        ("file", "user.one", &b"1"[..], any),
        ("file", "user.one", b"2", new),
        ("file", "user.two", b"2", old),
        ("file", "user.one", b"three", old),
        ("file", "user.empty", b"", new),
        ("file", "trusted.two", b"2", any),
        ("file", "user.", b"2", any),
        ("file", "odd.two", b"2", any),
        ("file", &long, b"2", any),
        ("file", "user.large", &[7; 3000], any),
        ("file", "user.too large", &[7; 70_000], any),
        ("directory", "user.one", b"1", any),
        ("link", "user.followed", b"1", any),
        ("missing", "user.one", b"1", any),
        ("short", "security.capability", b"short", any),
    ] {
        let set = rustix::fs::setxattr(seen.at(name), attribute, value, flags);
        let shown = &attribute[..attribute.len().min(30)];
        seen.note(&format!("set {shown} of {name}"), set);
    }
    let on_link = rustix::fs::lsetxattr(seen.at("link"), "user.one", b"1", any);
    seen.note("of a link itself", on_link);
    for (attribute, room) in
        [("user.one", 100), ("user.one", 3), ("user.one", 0), ("user.none", 100), ("user.empty", 9)]
    {
        let mut value = vec![0; room];
        let got = rustix::fs::getxattr(seen.at("file"), attribute, &mut value[..]);
        seen.note(&format!("{attribute} in {room}"), got.map(|length| (length, value.clone())));
    }
    for room in [0, 5, 10_000] {
        let mut names = vec![0; room];
        let got = rustix::fs::listxattr(seen.at("file"), &mut names[..]);
        // How long it is to be is told with what is hidden of it, where nothing is asked for.
        seen.note(&format!("names in {room}"), got.map(|_| listed(&names)));
    }
    for attribute in ["user.one", "user.one", "user.none", "trusted.two"] {
        let removed = rustix::fs::removexattr(seen.at("file"), attribute);
        seen.note(&format!("remove {attribute}"), removed);
    }
    seen.times("other", "an attribute", |seen| {
        rustix::fs::setxattr(seen.at("other"), "user.one", b"1", any).unwrap();
    });
}
