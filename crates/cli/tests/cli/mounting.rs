//! Snapshots that are mounted, looked into by other programs as any other directory.
//!
//! It takes the device of FUSE and the right to mount. Where one is missing, standard error says
//! so.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount, succeeds, wait_until};
use crate::support::Sandbox;
use onefold_mount::problems::REMEMBERED_MAX;
use rustix::fs::{SeekFrom, XattrFlags, lgetxattr, llistxattr, lsetxattr, seek};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;
/// What programs see of an item, but for its number.
fn seen(path: &Path) -> (u32, u64, u32, u32, i64, i64, u64) {
    let of = path.symlink_metadata().unwrap();
    let device = if of.file_type().is_char_device() { of.rdev() } else { 0 };
    let size = if of.is_dir() { 0 } else { of.size() };
    (of.mode(), size, of.uid(), of.gid(), of.mtime(), of.mtime_nsec(), device)
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// Everything below a directory is as it is below another, names, bytes, links and all.
fn assert_same(expected: &Path, shown: &Path) -> usize {
    let names = |directory: &Path| {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let (mut left, mut items) = (vec![(expected.to_owned(), shown.to_owned())], 0);
    let mut linked = BTreeMap::new();
    while let Some((expected, shown)) = left.pop() {
        items += 1;
        let at = expected.display();
        assert_eq!(seen(&shown), seen(&expected), "{at}");
        assert_eq!(xattrs(&shown), xattrs(&expected), "{at}");
        let of = expected.symlink_metadata().unwrap();
        if of.is_dir() {
            assert_eq!(names(&shown), names(&expected), "{at}");
            left.extend(
                names(&expected).iter().map(|name| (expected.join(name), shown.join(name))),
            );
        } else if of.is_symlink() {
            assert_eq!(fs::read_link(&shown).unwrap(), fs::read_link(&expected).unwrap(), "{at}");
        } else if of.is_file() {
            assert!(fs::read(&shown).unwrap() == fs::read(&expected).unwrap(), "{at}");
        }
        if !of.is_dir() && of.nlink() > 1 {
            let number = shown.symlink_metadata().unwrap().ino();
            assert_eq!(*linked.entry(of.ino()).or_insert(number), number, "{at}");
        }
    }
    items
}

/// A tree with one of everything.
fn write_tree(sandbox: &Sandbox) -> PathBuf {
    let root = sandbox.path("source");
    sandbox.write("source/small", b"small");
    sandbox.write("source/empty", b"");
    sandbox.write("source/large", &random_bytes(1, 5 * MIB + 17));
    sandbox.write("source/a name\nof two lines/\u{e4}", b"odd");
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"no text \xff")), b"bytes").unwrap();
    fs::create_dir(root.join("empty directory")).unwrap();
    fs::hard_link(root.join("large"), root.join("a name\nof two lines/linked")).unwrap();
    symlink("a/target/that/is/not\nthere", root.join("symlink")).unwrap();
    for number in 0..2_000 {
        sandbox.write(&format!("source/many/{number:04} {}", "x".repeat(100)), &[number as u8; 50]);
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"begin", 0).unwrap();
    sparse.write_all_at(&random_bytes(2, MIB), 8 * MIB as u64).unwrap();
    sparse.set_len(32 * MIB as u64).unwrap();
    fs::set_permissions(root.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
    lsetxattr(root.join("small"), "user.colour", b"green", XattrFlags::CREATE).unwrap();
    lsetxattr(root.join("empty directory"), "user.none", b"", XattrFlags::CREATE).unwrap();
    assert!(succeeds("mkfifo", &[root.join("pipe").to_str().unwrap()]));
    let device = root.join("device");
    assert!(succeeds("mknod", &[device.to_str().unwrap(), "c", "259", "74565"]));
    assert!(succeeds("touch", &["-h", "-d", "1901-02-03", root.join("symlink").to_str().unwrap()]));
    root
}

#[test]
fn what_is_mounted_is_what_was_saved() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_encrypted_store();
    let source = write_tree(&sandbox);
    let id = sandbox.backup(&[]);
    let mount = Mount::new(&sandbox, &[]);
    let shown = format!("ids/{}{}", &id[..8], source.display());
    let items = assert_same(&source, &mount.at(&shown));
    assert!(items > 2_010, "{items}");
    // Once more from what the kernel has kept, and once from nothing.
    assert_same(&source, &mount.at(&shown));
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_same(&source, &mount.at(&shown));

    let sparse = File::open(mount.at(&shown).join("sparse")).unwrap();
    let found = |from| seek(&sparse, from).map_err(|error| error.raw_os_error());
    let data = 8 * MIB as u64;
    let hole = found(SeekFrom::Hole(0)).unwrap();
    assert!((5..data).contains(&hole), "{hole}");
    let next = found(SeekFrom::Data(hole)).unwrap();
    assert!(next > MIB as u64 && next <= data, "{next}");
    let hole = found(SeekFrom::Hole(next)).unwrap();
    assert!((9 * MIB as u64..10 * MIB as u64).contains(&hole), "{hole}");
    assert_eq!(found(SeekFrom::Data(hole)), Err(rustix::io::Errno::NXIO.raw_os_error()));
    assert_eq!(found(SeekFrom::Hole(32 * MIB as u64 - 1)), Ok(32 * MIB as u64 - 1));
    assert!(sparse.metadata().unwrap().blocks() < 9 * MIB as u64 / 512);
    drop(sparse);

    let refused = [
        fs::write(mount.at(&shown).join("small"), b"x"),
        fs::write(mount.at("new"), b"x"),
        fs::create_dir(mount.at("ids/new")),
        fs::remove_file(mount.at(&shown).join("small")),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{error}");
    }
    let said = mount.end();
    let problems = said.lines().filter(|line| line.starts_with("warning:"));
    assert_eq!(problems.filter(|line| !line.contains("stopping;")).count(), 0, "{said}");
    assert!(sandbox.path("mount point").read_dir().unwrap().next().is_none(), "unmounted");
}

#[test]
fn names_lead_to_snapshots_also_to_those_that_come_and_go() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    let tree = |path: &Path| fs::canonicalize(path).ok();
    let first = sandbox.backup(&["--host", "web", "--tag", "daily,a/b"]);
    let mount = Mount::new(&sandbox, &[]);
    let root = |id: &str| tree(&mount.at(&format!("ids/{}", &id[..8])));
    let source = sandbox.arg("source");
    let path = format!("paths{source}/latest");
    for name in ["latest", "snapshots/latest", "hosts/web/latest", "tags/daily/latest"] {
        assert_eq!(tree(&mount.at(name)), root(&first), "{name}");
    }
    assert_eq!(tree(&mount.at("tags/a_b/latest")), root(&first));
    assert_eq!(fs::read(mount.at(&path).join("one.txt")).unwrap(), b"one\n");
    let times = fs::read_dir(mount.at("snapshots")).unwrap().count();
    assert_eq!(times, 2, "one time and 'latest'");
    for missing in ["hosts/other", "ids/00000000", "tags/daily/1970-01-01_00-00-00", "x"] {
        let error = fs::metadata(mount.at(missing)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{missing}");
    }

    sandbox.write("source/one.txt", b"changed\n");
    let second = sandbox.backup(&["--host", "mail"]);
    wait_until("the second appears", || {
        root(&second).is_some() && tree(&mount.at("latest")) == root(&second)
    });
    assert_eq!(fs::read(mount.at(&path).join("one.txt")).unwrap(), b"changed\n");
    assert_eq!(tree(&mount.at("hosts/web/latest")), root(&first));

    let mut open = File::open(mount.at(&format!("ids/{}{source}/one.txt", &first[..8]))).unwrap();
    sandbox.run(&["forget", "--final", &first]).expect(0);
    wait_until("the first goes", || !mount.at("hosts/web").exists() && root(&first).is_none());
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"one\n", "whoever has it open reads on while it is there");
    drop(open);
    mount.end();

    let filtered = Mount::new(&sandbox, &["--host", "none", "--no-xattrs"]);
    let unsupported = llistxattr(filtered.at("ids"), &mut [0_u8; 8][..]);
    assert_eq!(unsupported, Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(fs::read_dir(filtered.at("ids")).unwrap().count(), 0);
    assert!(!filtered.at("latest").exists());
    filtered.end();
}

#[test]
fn a_mount_ends_by_signals_by_umount_and_after_it_was_killed() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let mut mount = Mount::new(&sandbox, &[]);
    assert!(succeeds("umount", &[mount.point.to_str().unwrap()]));
    assert_eq!(mount.ended().0, Some(0));

    let mount = Mount::new(&sandbox, &[]);
    let open = File::open(mount.at("ids")).unwrap();
    let said = mount.end();
    assert!(said.contains("was still in use"), "{said}");
    drop(open);

    let mut killed = Mount::new(&sandbox, &[]);
    killed.signal("-KILL");
    killed.process.take().unwrap().wait().unwrap();
    // At once, when the kernel still remembers what it was told.
    let by_link = sandbox.path("link");
    symlink(&killed.point, &by_link).unwrap();
    let mount = Mount::on(&sandbox, &by_link, &[]);
    assert_same(&sandbox.path("source"), &mount.at(&format!("latest{}", sandbox.arg("source"))));
    mount.end();
    std::mem::forget(killed);
}

/// Links that the system follows in a row, and no more.
const LINKS_MAX: usize = 40;

#[test]
fn a_leftover_is_found_behind_as_many_links_as_the_system_follows() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let mut killed = Mount::new(&sandbox, &[]);
    killed.signal("-KILL");
    killed.process.take().unwrap().wait().unwrap();
    let mut last = killed.point.clone();
    let links: Vec<PathBuf> = (0..=LINKS_MAX)
        .map(|number| {
            let link = sandbox.path(&format!("link {number}"));
            // Every other one is relative.
            let target =
                if number % 2 == 0 { last.clone() } else { last.file_name().unwrap().into() };
            symlink(target, &link).unwrap();
            last = link.clone();
            link
        })
        .collect();
    let refused = sandbox.run(&["mount", links[LINKS_MAX].to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("symbolic links"), "{}", refused.stderr);
    let mount = Mount::on(&sandbox, &links[LINKS_MAX - 1], &[]);
    // By one link more, `latest`, it would be too many.
    assert!(killed.point.join("latest").exists());
    mount.end();
    assert!(killed.point.read_dir().unwrap().next().is_none(), "nothing lies below");
}

#[test]
fn a_record_that_cannot_be_read_is_told_and_the_others_are_shown() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    let lost = sandbox.backup(&[]);
    sandbox.write("source/one.txt", b"changed\n");
    let kept = sandbox.backup(&[]);
    for outcomes in ["store/outcomes", "store/copies/outcomes"] {
        let path = sandbox.path(outcomes).join(&lost);
        let mut bytes = fs::read(&path).unwrap();
        bytes[20] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let mount = Mount::new(&sandbox, &[]);
    let shown = fs::read_dir(mount.at("ids")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(shown.collect::<Vec<_>>(), [&kept[..8]]);
    let said = mount.end();
    assert!(said.contains(&lost), "{said}");
}

#[test]
fn what_is_lost_is_told_once_for_as_many_problems_as_are_remembered() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    for number in 0..=REMEMBERED_MAX {
        sandbox.write(&format!("source/{number:05}"), &random_bytes(number as u64, 200));
    }
    sandbox.backup(&[]);
    // The container of the data; that of the nodes is smaller.
    let shards = fs::read_dir(sandbox.path("store/containers")).unwrap();
    let containers = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    let largest = containers.map(|one| one.unwrap().path());
    fs::remove_file(largest.max_by_key(|one| one.metadata().unwrap().len()).unwrap()).unwrap();

    let mount = Mount::new(&sandbox, &[]);
    let shown = mount.at(&format!("latest{}", sandbox.arg("source")));
    // Nothing of the data is needed for that.
    assert_eq!(fs::read_dir(&shown).unwrap().count(), REMEMBERED_MAX + 1);
    for _ in 0..2 {
        for number in 0..=REMEMBERED_MAX {
            assert_eq!(
                fs::read(shown.join(format!("{number:05}"))).unwrap_err().raw_os_error(),
                Some(5)
            );
        }
    }
    let said = mount.end();
    let told = |number: usize| {
        said.lines().filter(|line| line.contains(&format!("source/{number:05}:"))).count()
    };
    for number in [0, 1, REMEMBERED_MAX - 1] {
        assert_eq!(told(number), 1, "{number}");
    }
    assert!(told(REMEMBERED_MAX) > 1, "the first that is not remembered");
}

fn is_tmpfs(point: &Path) -> bool {
    rustix::fs::statfs(point).unwrap().f_type == 0x0102_1994
}

#[test]
fn what_others_have_mounted_stays() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let point = sandbox.path("mount point");
    let tmpfs = ["-t", "tmpfs", "tmpfs", point.to_str().unwrap()];
    fs::create_dir(&point).unwrap();
    // Below.
    assert!(succeeds("mount", &tmpfs));
    let mount = Mount::new(&sandbox, &[]);
    assert!(!is_tmpfs(&point));
    mount.end();
    assert!(is_tmpfs(&point));
    assert!(succeeds("umount", &[point.to_str().unwrap()]));
    // On top.
    let mut mount = Mount::new(&sandbox, &[]);
    assert!(succeeds("mount", &tmpfs));
    mount.signal("-TERM");
    let (code, said) = mount.ended();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("something else is mounted"), "{said}");
    assert!(is_tmpfs(&point));
    for _ in 0..2 {
        assert!(succeeds("umount", &[point.to_str().unwrap()]));
    }
    drop(mount);
    // In the place of one that was unmounted while it was in use.
    let mount = Mount::new(&sandbox, &[]);
    let open = File::open(mount.at("ids")).unwrap();
    assert!(succeeds("umount", &["-l", point.to_str().unwrap()]));
    assert!(succeeds("mount", &tmpfs));
    let said = mount.end();
    assert!(said.contains("still in use"), "{said}");
    assert!(is_tmpfs(&point));
    drop(open);
    assert!(succeeds("umount", &[point.to_str().unwrap()]));
}

#[test]
fn links_lead_to_paths_however_they_were_named_and_never_out_of_the_snapshot() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    fs::write(sandbox.path("live"), b"old").unwrap();
    let outside = format!("{}/deep/{}live", sandbox.arg("source"), "../".repeat(2));
    for sources in
        [&["source"][..], &["./source/deep/../deep"], &[&outside, &sandbox.arg("source")]]
    {
        sandbox.run(&[&["backup"], sources].concat()).expect(0);
    }
    fs::write(sandbox.path("live"), b"live").unwrap();
    let mount = Mount::new(&sandbox, &[]);
    let links = Command::new("find").arg(mount.at("paths")).args(["-type", "l"]).output().unwrap();
    let links = String::from_utf8(links.stdout).unwrap();
    let mount_point = mount.point.canonicalize().unwrap();
    assert!(links.lines().count() >= 6, "{links}");
    for link in links.lines() {
        let target = fs::canonicalize(link).unwrap_or_else(|error| panic!("{link}: {error}"));
        assert!(target.starts_with(&mount_point), "{link} leads to {}", target.display());
    }
    let first = mount.at(&format!("paths{}", sandbox.arg("source")));
    let times = fs::read_dir(first).unwrap().map(|entry| entry.unwrap().path());
    let times: Vec<_> = times.filter(|path| path.is_symlink()).collect();
    assert!(times.iter().all(|time| time.join("one.txt").is_file()), "{times:?}");

    let id = sandbox.ids(&[]).remove(0);
    sandbox.run(&["tag", "--add", "later", &id]).expect(0);
    wait_until("the tag appears", || mount.at("tags/later/latest").exists());
    mount.end();
}

#[test]
fn r52_nothing_is_mounted_into_or_over_the_store_or_over_what_is_there() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let inside = sandbox.arg("store/containers");
    let around = sandbox.arg("");
    let file = sandbox.arg("source/one.txt");
    let missing = sandbox.arg("missing");
    for point in [inside, sandbox.arg("store"), around, sandbox.arg("source"), file, missing] {
        let run = sandbox.run(&["mount", &point]);
        assert_eq!(run.code, 1, "{point}: {}", run.stderr);
        assert!(sandbox.path("source/one.txt").is_file());
    }
    sandbox.run(&["check"]).expect(0);
}

#[test]
fn many_readers_at_once_read_what_was_saved_while_it_is_moved() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    let file = |number: u64| random_bytes(100 + number, 700_000 + 1_000 * number as usize);
    for number in 0..24_u64 {
        sandbox.write(&format!("source/{number}"), &file(number));
        sandbox.write(&format!("source/dead {number}"), &random_bytes(500 + number, 700_000));
    }
    let first = sandbox.backup(&[]);
    for number in 0..24 {
        fs::remove_file(sandbox.path(&format!("source/dead {number}"))).unwrap();
    }
    sandbox.backup(&[]);
    let mount = Mount::new(&sandbox, &["--memory", "48MiB", "--threads", "4"]);
    let shown = mount.at(&format!("latest{}", sandbox.arg("source")));
    fs::metadata(shown.join("0")).unwrap();
    sandbox.run(&["forget", "--final", &first]).expect(0);
    // Whoever reads was told where the chunks were, and must find out where they are.
    let freed = sandbox.run(&["gc", "--space-goal", "all"]).expect(0).stdout;
    assert!(freed.contains("copied"), "{freed}");
    std::thread::scope(|scope| {
        for reader in 0..16_u64 {
            let (shown, file) = (&shown, &file);
            scope.spawn(move || {
                for step in 0..6_u64 {
                    let number = (reader * 5 + step * 7) % 24;
                    let expected = file(number);
                    let opened = File::open(shown.join(number.to_string())).unwrap();
                    let offset = ((reader * 37 + step * 11) * 4_099) as usize % expected.len();
                    let mut part = vec![0; (expected.len() - offset).min(50_000)];
                    opened.read_exact_at(&mut part, offset as u64).unwrap();
                    assert!(part == expected[offset..offset + part.len()], "{number} at {offset}");
                    if step == 0 {
                        assert!(fs::read(shown.join(number.to_string())).unwrap() == expected);
                    }
                }
            });
        }
    });
    let status = format!("/proc/{}/status", mount.process.as_ref().unwrap().id());
    let status = fs::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 72 * 1024, "{peak} KiB with a limit of 48 MiB");
    mount.end();
}

#[test]
fn damage_is_an_error_where_it_lies_and_nowhere_else() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    sandbox.write("source/large", &random_bytes(9, 6 * MIB));
    sandbox.write("source/other", &random_bytes(10, MIB));
    sandbox.backup(&[]);
    let shards = fs::read_dir(sandbox.path("store/containers")).unwrap();
    let containers = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    let largest =
        containers.map(|one| one.unwrap().path()).max_by_key(|one| one.metadata().unwrap().len());
    let damaged = File::options().read(true).write(true).open(largest.unwrap()).unwrap();
    let middle = damaged.metadata().unwrap().len() / 2;
    let mut byte = [0];
    damaged.read_exact_at(&mut byte, middle).unwrap();
    damaged.write_all_at(&[byte[0] ^ 1], middle).unwrap();

    let mount = Mount::new(&sandbox, &[]);
    let shown = mount.at(&format!("latest{}", sandbox.arg("source")));
    let (mut failed, mut read) = (0, 0);
    for name in ["large", "other"] {
        let expected = fs::read(sandbox.path(&format!("source/{name}"))).unwrap();
        let file = File::open(shown.join(name)).unwrap();
        for (number, expected) in expected.chunks(4096).enumerate() {
            let mut part = vec![0; expected.len()];
            match file.read_exact_at(&mut part, number as u64 * 4096) {
                Ok(()) => {
                    assert!(part == expected);
                    read += 1;
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(5), "{error}");
                    failed += 1;
                }
            }
        }
    }
    assert!(failed > 0 && failed < read / 5, "{failed} of {}", failed + read);
    let said = mount.end();
    assert!(said.contains("warning:") && said.contains("source/"), "{said}");
    assert!(said.lines().count() < 200, "{said}");
}
