//! Programs that everybody uses, on a mounted share whose files are stubs, and the same in a plain
//! directory: what they say and what they leave must be the same. Between their steps what they
//! have written is optimised and the store is collected.
//!
//! It takes root, the device of FUSE and the program in question. Where one is missing, standard
//! error says so.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount, succeeds, wait_until};
use crate::sharing::{optimize, status};
use crate::sharing_semantics::{rights, tree};
use crate::support::Sandbox;
use rustix::fs::{AtFlags, CWD, StatxFlags, XattrFlags};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The plain directory and the share.
const PLACES: [&str; 2] = ["plain", "share"];

/// Whether a program is there that prints its version; says so if not.
fn has(program: &str) -> bool {
    let has = ["--version", "-V"].iter().any(|version| succeeds(program, &[version]));
    if !has {
        eprintln!("SKIPPED: {program} on a share was not tested: it is not there");
    }
    has
}

/// A share and a plain directory of the same files.
struct Twins {
    sandbox: Sandbox,
    mount: Option<Mount>,
}

impl Twins {
    /// `None` if nothing can be mounted here.
    fn new(fill: impl Fn(&Path)) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let sandbox = Sandbox::with_store();
        for place in PLACES {
            fs::create_dir(sandbox.path(place)).unwrap();
            fill(&sandbox.path(place));
        }
        let share = sandbox.arg("share");
        let create = ["share", "create", &share, "--min-age", "0s", "--min-size", "4KiB"];
        sandbox.run(&create).expect(0);
        let mount = Some(Mount::share(&sandbox, "share"));
        Some(Self { sandbox, mount })
    }

    fn command(&self, place: &str, script: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-ec", &format!("exec 2>&1; {script}")])
            .current_dir(self.sandbox.path(place))
            .env("LC_ALL", "C")
            .env("HOME", self.sandbox.path("home"))
            .env("OUT", self.sandbox.path(&format!("{place} out")));
        command
    }

    /// What a shell says that does this in a place.
    #[track_caller]
    fn says(&self, place: &str, script: &str) -> String {
        let out = self.sandbox.path(&format!("{place} out"));
        fs::create_dir_all(out).unwrap();
        let run = self.command(place, script).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{script}: in {place}: {said}");
        said
    }

    /// The same in both, which must say the same; what it is.
    #[track_caller]
    fn both(&self, script: &str) -> String {
        let [expected, said] = PLACES.map(|place| self.says(place, script));
        assert_eq!(said, expected, "{script}: on a share, and in a plain directory");
        said
    }

    /// What is cold and not open becomes stubs, and what nobody needs goes; how many were open.
    #[track_caller]
    fn optimized_as_far_as_closed(&self) -> u64 {
        // What changed just now is not believed to be what it was.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let report = optimize(&self.sandbox);
        assert_eq!(report["errors"], 0, "{report}");
        self.sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
        report["files_open"].as_u64().unwrap()
    }

    /// The same where nobody has anything open; how many stubs there are then.
    #[track_caller]
    fn optimized(&self) -> u64 {
        // The mount hears after a program has ended that its files are closed.
        wait_until("all is closed", || self.optimized_as_far_as_closed() == 0);
        status(&self.sandbox)["files_optimized"].as_u64().unwrap()
    }

    #[track_caller]
    fn is_stub(&self, name: &str) -> bool {
        let path = self.sandbox.path("share").join(name);
        // What the kernel remembers of it may be a second old.
        let (fresh, what) = (AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
        let known = rustix::fs::statx(CWD, &path, fresh, what).unwrap();
        known.stx_blocks * 512 < known.stx_size
    }

    /// Both hold the same, but for times.
    #[track_caller]
    fn assert_alike(&self) {
        for places in [["plain", "share"], ["plain out", "share out"]] {
            let [plain, share] = places.map(|place| {
                let directory = self.sandbox.path(place);
                let mut lines = if directory.exists() { tree(&directory) } else { Vec::new() };
                // It is hidden as long as there is a mount.
                lines.retain(|line| !line.starts_with(".onefold-share"));
                lines
            });
            let differs = plain.iter().zip(&share).find(|(one, other)| one != other);
            assert_eq!(differs, None, "{places:?}");
            assert_eq!(plain.len(), share.len(), "{places:?}");
        }
    }

    /// All is the same in a new mount, and when it was brought back.
    #[track_caller]
    fn end(mut self) {
        self.assert_alike();
        self.mount.take().unwrap().end();
        self.mount = Some(Mount::share(&self.sandbox, "share"));
        self.assert_alike();
        self.mount.take().unwrap().end();
        self.sandbox.run(&["share", "rehydrate", &self.sandbox.arg("share")]).expect(0);
        self.assert_alike();
        self.sandbox.run(&["check"]).expect(0);
    }
}

/// Files of many kinds.
fn write_many(directory: &Path) {
    fs::create_dir_all(directory.join("from/inner")).unwrap();
    let at = |name: &str| directory.join("from").join(name);
    fs::write(at("large"), random_bytes(1, 2_000_003)).unwrap();
    fs::write(at("text"), "words and words\n".repeat(10_000)).unwrap();
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("inner/private"), random_bytes(2, 70_000)).unwrap();
    fs::hard_link(at("large"), at("inner/second name")).unwrap();
    symlink("inner/private", at("link")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    for offset in [1 << 20, (5 << 20) + 77] {
        sparse.write_all_at(&random_bytes(offset, 200_000), offset).unwrap();
    }
    let set = XattrFlags::empty();
    rustix::fs::setxattr(at("text"), "user.kept", b"value", set).unwrap();
    let granted = rights(65_534, [6, 4, 4, 6, 0]);
    rustix::fs::setxattr(at("text"), "system.posix_acl_access", &granted, set).unwrap();
    rustix::fs::setxattr(at("inner"), "system.posix_acl_default", &granted, set).unwrap();
    std::os::unix::fs::chown(at("inner/private"), Some(1234), Some(5678)).unwrap();
    fs::set_permissions(at("inner/private"), fs::Permissions::from_mode(0o4710)).unwrap();
    for (number, name) in ["large", "text", "inner/private", "sparse"].iter().enumerate() {
        let seconds = std::time::Duration::new(1_000_000_000 + number as u64, 123_456_789);
        let file = File::open(at(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + seconds).unwrap();
    }
}

#[test]
fn rsync_copies_out_of_a_share_and_into_it() {
    if !has("rsync") {
        return;
    }
    let Some(twins) = Twins::new(write_many) else { return };
    assert_eq!(twins.optimized(), 4);
    twins.both("rsync -aAXHS from/ \"$OUT\"/copy/");
    twins.assert_alike();
    // Into it, from a plain directory and from stubs beside it.
    twins.both("rsync -aAXHS \"$OUT\"/copy/ into/; rsync -aAXH from/ beside/");
    assert_eq!(twins.optimized(), 12);
    let all = "rsync -aAXH --checksum --delete --dry-run --itemize-changes from/";
    for to in ["into", "beside", "\"$OUT\"/copy"] {
        assert_eq!(twins.both(&format!("{all} {to}/")), "");
    }
    // By times and sizes alone there is nothing to do, whatever has become stubs.
    assert_eq!(twins.both("rsync -aAXHi \"$OUT\"/copy/ into/"), "");
    // What is changed in place: parts of stubs.
    for (offset, byte) in [(1_000_000_usize, "a"), (3, "b")] {
        let change = format!(
            "printf {byte} | dd of=\"$OUT\"/copy/large bs=1 seek={offset} conv=notrunc \
             status=none; \
             rsync -aAXHIi --inplace --no-whole-file \"$OUT\"/copy/ into/ | cut -c 1-3; \
             cmp \"$OUT\"/copy/large into/large"
        );
        assert!(twins.both(&change).contains(">f"));
        twins.optimized();
    }
    twins.both("rm -r from; rsync -aAXH --append-verify --remove-source-files into/ from/");
    twins.end();
}

#[test]
fn cp_keeps_and_makes_holes_in_what_it_copies() {
    if !has("cp") {
        return;
    }
    let Some(twins) = Twins::new(write_many) else { return };
    assert_eq!(twins.optimized(), 4);
    for how in ["always", "auto", "never"] {
        twins.both(&format!(
            "cp -a --sparse={how} from \"$OUT\"/{how}; cp -a --sparse={how} from in-{how}; \
             cp -a --sparse={how} \"$OUT\"/{how} back-{how}; cmp from/sparse back-{how}/sparse"
        ));
    }
    let room = "stat -c '%b %B' \"$OUT\"/always/sparse in-always/sparse | sort -u | wc -l";
    // Holes are made where zeros are, whether they were holes of a stub or not.
    assert_eq!(twins.both(room), "1\n");
    assert_eq!(twins.optimized(), 28);
    twins.both("cp --reflink=auto from/large large; cp from/text from/large; cat from/large");
    twins.both("cp --remove-destination in-auto/large from/large; cp -u in-auto/text from/text");
    twins.both("dd if=in-never/sparse of=from/sparse bs=70001 conv=sparse,notrunc status=none");
    twins.optimized();
    twins.end();
}

#[test]
fn tar_packs_and_unpacks_a_share() {
    if !has("tar") {
        return;
    }
    let Some(twins) = Twins::new(write_many) else { return };
    assert_eq!(twins.optimized(), 4);
    let how = "--sparse --acls --xattrs --xattrs-include='*' --numeric-owner --sort=name";
    twins.both(&format!("tar {how} -cf \"$OUT\"/all.tar from; tar {how} -cf all.tar from"));
    // An archive that is a stub itself, and grows.
    assert_eq!(twins.optimized(), 5);
    twins.both("tar -tvf all.tar | grep -v ' from/$'; cp from/text more; tar -rf all.tar more");
    twins.both(&format!(
        "mkdir into; tar {how} -xpf all.tar -C into; cmp from/large into/from/large"
    ));
    twins.both(&format!("tar {how} -xpf \"$OUT\"/all.tar -C into"));
    assert!(twins.optimized() >= 9);
    assert_eq!(twins.both(&format!("tar {how} -df \"$OUT\"/all.tar")), "");
    assert_eq!(twins.both(&format!("tar {how} -df all.tar -C into")), "");
    // Archives are as their files' times are, and these differ.
    twins.both("rm all.tar \"$OUT\"/all.tar");
    twins.end();
}

/// Commits whose names depend on nothing but what is in them.
const GIT: &str = "export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' \
     GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=5 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=n \
     GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=n@localhost GIT_CONFIG_KEY_2=gc.auto \
     GIT_CONFIG_VALUE_2=0 GIT_CONFIG_KEY_3=safe.directory GIT_CONFIG_VALUE_3='*' \
     GIT_CONFIG_KEY_4=pack.threads GIT_CONFIG_VALUE_4=1;";

/// tar takes a file that has a length and no block for zeros, and does not look.
#[test]
fn r164_a_file_that_takes_no_block_of_the_disk_shows_one() {
    let Some(twins) = Twins::new(|directory| {
        fs::File::create(directory.join("holes")).unwrap().set_len(1 << 20).unwrap();
        fs::write(directory.join("none"), b"").unwrap();
    }) else {
        return;
    };
    assert_eq!(twins.says("share", "stat -c %b holes none"), "1\n0\n");
    twins.end();
}

#[test]
fn git_works_in_a_repository_whose_packs_are_stubs() {
    if !has("git") {
        return;
    }
    let Some(twins) = Twins::new(|directory| {
        for number in 0..16 {
            let name = directory.join(format!("origin/{}/{number}", number % 4));
            fs::create_dir_all(name.parent().unwrap()).unwrap();
            fs::write(name, random_bytes(number, 20_000 + number as usize)).unwrap();
        }
    }) else {
        return;
    };
    let git = |script: &str| twins.both(&format!("{GIT} {script}"));
    git("cd origin; git init -qb main; git add .; git commit -qm one; git gc -q");
    git("git clone -q --no-local origin work; cd work; git gc -q; git rev-parse HEAD");
    assert!(twins.optimized() > 32);
    let packs = twins.says("share", "ls work/.git/objects/pack/*.pack");
    assert!(packs.lines().count() == 1 && twins.is_stub(packs.trim()), "{packs}");
    let look = "git -C work fsck --full --strict; git -C work status --porcelain; \
                git -C work log --stat | md5sum; git -C work rev-parse 'HEAD^{tree}'";
    git(look);
    for round in 0..3 {
        git(&format!(
            "cd work; for n in 1 5 9; do echo changed {round} >> 1/$n; done; mv 2/2 2/n{round}; \
             git status --porcelain; git add -A; git commit -qm {round}; cp 2/n{round} 2/2; \
             git add -A; git commit -qm again; git diff --stat HEAD~1; \
             git push -q origin HEAD:r{round}"
        ));
        twins.optimized();
        git(look);
        git([
            "cd work; git gc -q --prune=now",
            "cd work; git repack -adqf",
            "git -C work reset -q",
        ][round]);
    }
    twins.optimized();
    git("cd work; git checkout -q HEAD~3; git status --porcelain; git checkout -q main");
    git(look);
    git("git clone -q work again; git -C again fsck --full; git -C origin fsck --full; \
         git -C origin for-each-ref");
    git("git -C work bundle create -q \"$OUT\"/bundle --all; \
         git -C work bundle verify -q \"$OUT\"/bundle > \"$OUT\"/said 2>&1");
    // What is left to compare are the files; an index holds times and inodes.
    git("find . \"$OUT\" -name .git -prune -exec rm -r {} + ; rm \"$OUT\"/*");
    twins.end();
}

/// A shell of sqlite3 that stays.
struct Sqlite(Child, BufReader<std::process::ChildStdout>);

impl Sqlite {
    fn on(twins: &Twins, place: &str) -> Self {
        let mut command = twins.command(place, "exec sqlite3 -batch base");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        Self(process, out)
    }

    /// The first line that it answers with.
    fn ask(&mut self, statement: &str) -> String {
        let stdin = self.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{statement}").unwrap();
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        // Its code says that something was refused, as it was to be.
        self.0.wait().unwrap();
    }
}

#[test]
fn sqlite_keeps_its_promises_on_a_database_that_is_a_stub() {
    if !has("sqlite3") {
        return;
    }
    let Some(twins) = Twins::new(|_| {}) else { return };
    let sql = |statements: &str| {
        twins.both(&format!("sqlite3 -batch base \"PRAGMA busy_timeout=0; {statements}\""))
    };
    sql("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB, n TEXT); CREATE INDEX i ON t (n);
         WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<4000)
         INSERT INTO t SELECT x, zeroblob(x % 900), printf('%08d', x*7919 % 10007) FROM c;");
    for (round, journal) in ["wal", "delete", "truncate", "wal", "persist"].iter().enumerate() {
        assert!(twins.optimized() >= 1 && twins.is_stub("base"), "{journal}");
        sql("PRAGMA integrity_check; SELECT count(*), sum(length(v)), max(n) FROM t;");
        sql(&format!(
            "PRAGMA journal_mode={journal}; PRAGMA mmap_size={};
             UPDATE t SET n=printf('%08d', id*{round}) WHERE id % 17={round};
             BEGIN; DELETE FROM t WHERE id % 5=1; ROLLBACK;
             INSERT INTO t SELECT NULL, zeroblob(5000), 'round {round}' FROM t LIMIT 200;
             PRAGMA integrity_check;",
            (round % 2) << 26
        ));
        let [plain, share] = PLACES.map(|place| {
            let (mut one, mut two) = (Sqlite::on(&twins, place), Sqlite::on(&twins, place));
            let mut said = vec![one.ask("BEGIN IMMEDIATE; DELETE FROM t WHERE id=7; SELECT 1;")];
            // Whoever holds the lock, the other one is told, and reads what there was.
            said.push(two.ask("BEGIN IMMEDIATE; "));
            said.push(two.ask("SELECT count(*) FROM t;"));
            said.push(one.ask("COMMIT; SELECT changes();"));
            said.push(two.ask("BEGIN IMMEDIATE; DELETE FROM t WHERE id=9; COMMIT; SELECT 2;"));
            // What is open is left alone.
            if place == "share" {
                twins.optimized_as_far_as_closed();
            }
            said.push(one.ask("SELECT count(*) FROM t;"));
            one.end();
            two.end();
            said
        });
        assert_eq!(share, plain, "{journal}");
        assert!(share[1].contains("locked"), "{share:?}");
        sql("PRAGMA integrity_check; SELECT count(*), sum(length(v)), max(n) FROM t;");
    }
    sql("PRAGMA journal_mode=delete; VACUUM; PRAGMA integrity_check;");
    twins.optimized();
    sql("VACUUM; PRAGMA integrity_check; PRAGMA foreign_key_check;");
    twins.both(
        "sqlite3 base .dump | md5sum; sqlite3 base '.backup copy'; \
              sqlite3 copy .dump | md5sum; rm copy",
    );
    twins.end();
}

#[test]
fn images_of_machines_are_read_written_and_converted_on_a_share() {
    if !has("qemu-img") || !has("qemu-io") {
        return;
    }
    let Some(twins) = Twins::new(|directory| {
        let raw = File::create(directory.join("raw")).unwrap();
        raw.set_len(32 << 20).unwrap();
        for offset in [0, 3 << 20, 20 << 20] {
            raw.write_all_at(&random_bytes(offset, 700_000), offset).unwrap();
        }
    }) else {
        return;
    };
    twins.both("qemu-img convert -f raw -O qcow2 raw disk; qemu-img create -q -f qcow2 new 64M");
    twins.both("qemu-io -c 'write -P 0x5a 1M 2M' -c 'write -P 1 40M 70k' new | grep -c wrote");
    assert_eq!(twins.optimized(), 3);
    let check = "qemu-img check -q disk; qemu-img check -q new; qemu-img compare -f raw raw disk; ";
    twins.both(check);
    twins.both("qemu-io -r -c 'read -P 0x5a 1M 2M' -c 'read -P 0 3M 1M' new | grep -v ops");
    // A few clusters of a stub, one of them given back.
    twins.both(
        "for at in 64k 5M 21M; do for f in disk raw; do
         qemu-io -f $(test $f = raw && echo raw || echo qcow2) -c \"write -P 7 $at 4k\" \
         -c \"discard 3M 64k\" -c flush $f | grep -c wrote; done; done",
    );
    twins.both(check);
    assert_eq!(twins.optimized(), 3);
    twins.both(
        "qemu-img resize -q new +16M; qemu-img resize -q -f raw raw 40M; \
                qemu-img resize -q disk 40M; qemu-img info disk | grep 'virtual size'",
    );
    twins.both(check);
    // A snapshot, and one image on top of another.
    twins.both(
        "qemu-img snapshot -c one disk; qemu-io -c 'write -P 9 1M 1M' disk | grep -c wrote; \
                qemu-img create -q -f qcow2 -b disk -F qcow2 top; \
                qemu-io -c 'write -P 8 2M 1M' top | grep -c wrote",
    );
    assert_eq!(twins.optimized(), 4);
    twins.both(
        "qemu-img commit -q top; qemu-io -r -c 'read -P 8 2M 1M' disk | grep -c read; \
                qemu-img snapshot -a one disk; qemu-img snapshot -d one disk; rm top",
    );
    twins.both(check);
    // Without the pages of the system.
    twins.both(
        "qemu-img convert -t none -T none -O raw disk \"$OUT\"/raw; cmp \"$OUT\"/raw raw; \
                qemu-img convert -c -O qcow2 raw small; qemu-img compare -f raw raw small",
    );
    assert_eq!(twins.optimized(), 4);
    twins.both(
        "qemu-img convert -f qcow2 -O raw small raw; qemu-img convert -O vmdk new \"$OUT\"/v; \
                qemu-img compare \"$OUT\"/v new; rm \"$OUT\"/v",
    );
    twins.both(check);
    twins.end();
}

/// Reads and writes what it maps, as long as others use the file in other ways.
const MAPS: &str = r#"
import hashlib, mmap, os, subprocess, sys
def told(what, data): print(what, hashlib.md5(bytes(data)).hexdigest(), flush=True)
for name in sys.argv[1:]:
    file = os.open(name, os.O_RDWR)
    size = os.fstat(file).st_size
    shared = mmap.mmap(file, size)
    private = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    reads = mmap.mmap(file, size, prot=mmap.PROT_READ)
    told("whole", reads)
    private[100:110] = b"only mine!"
    told("file", os.pread(file, size, 0))
    for at in (0, 4095, 65530, 65536 * 3 + 1, size - 9):
        shared[at:at + 9] = b"by memory"
    told("by a read", os.pread(file, size, 0))
    os.pwrite(file, b"by a write", 70000)
    told("by memory", reads)
    shared.flush()
    told("by others", subprocess.run(["cat", name], capture_output=True).stdout)
    told("private", private[:4096])
    # Beyond the end there is nothing, until there is.
    os.ftruncate(file, 80000)
    told("cut", reads[:80000])
    os.ftruncate(file, size)
    told("grown", reads)
    shared[150000:150003] = b"new"
    del private, reads
    shared.close()
    os.close(file)
    told("closed", open(name, "rb").read())
"#;

#[test]
fn what_is_mapped_into_memory_is_what_is_read_and_written() {
    if !has("python3") {
        return;
    }
    let Some(twins) = Twins::new(|directory| {
        fs::write(directory.join("maps.py"), MAPS).unwrap();
        fs::write(directory.join("file"), random_bytes(1, 1_000_001)).unwrap();
        fs::write(directory.join("other"), random_bytes(2, 262_144)).unwrap();
    }) else {
        return;
    };
    for _ in 0..3 {
        assert!(twins.optimized() >= 2 && twins.is_stub("file"));
        let said = twins.both("python3 maps.py file other");
        assert_eq!(said.lines().count(), 18, "{said}");
        twins.assert_alike();
    }
    twins.end();
}

/// Whether others get a lock of each kind while one is held, and what the job does with the file.
const LOCKS: &str = r#"
import fcntl, os, struct, subprocess, sys
name = sys.argv[1]
other = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
def tried(take):
    try: take(); return "got"
    except OSError as error: return str(error.errno)
print(tried(lambda: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)),
      tried(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)),
      tried(lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)),
      tried(lambda: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 100, 50)),
      tried(lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 100000)), flush=True)
"""
def others(): subprocess.run([sys.executable, "-c", other, name], check=True)
file = os.open(name, os.O_RDWR)
others()
fcntl.flock(file, fcntl.LOCK_SH); others()
fcntl.flock(file, fcntl.LOCK_EX); others()
os.pwrite(file, b"while it is locked", 100)
fcntl.flock(file, fcntl.LOCK_UN); others()
fcntl.lockf(file, fcntl.LOCK_EX, 60, 0); others()
os.close(os.open(name, os.O_RDONLY)); others()
fcntl.lockf(file, fcntl.LOCK_SH, 60, 0); others()
fcntl.lockf(file, fcntl.LOCK_UN, 60, 0); others()
print("ready", flush=True)
fcntl.flock(file, fcntl.LOCK_EX); others()
sys.stdin.readline()
others()
"#;

#[test]
fn locks_hold_on_stubs_as_on_any_file() {
    if !has("python3") || !has("flock") {
        return;
    }
    let Some(twins) = Twins::new(|directory| {
        fs::write(directory.join("locks.py"), LOCKS).unwrap();
        fs::write(directory.join("file"), random_bytes(1, 300_000)).unwrap();
    }) else {
        return;
    };
    for _ in 0..2 {
        assert!(twins.optimized() >= 1 && twins.is_stub("file"));
        twins.both(
            "flock file -c 'flock -n file -c true || echo $?; flock -sn file true || echo $?'",
        );
        let [plain, share] = PLACES.map(|place| {
            let mut command = twins.command(place, "exec python3 locks.py file");
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = command.spawn().unwrap();
            let mut out = BufReader::new(process.stdout.take().unwrap());
            let mut said = Vec::new();
            while said.last().is_none_or(|line: &String| line != "ready\n") {
                let mut line = String::new();
                assert!(out.read_line(&mut line).unwrap() > 0, "{place}: {said:?}");
                said.push(line);
            }
            // The lock is held while the job is at work.
            if place == "share" {
                twins.optimized_as_far_as_closed();
            }
            process.stdin.take().unwrap().write_all(b"\n").unwrap();
            said.extend(out.lines().map(Result::unwrap));
            assert!(process.wait().unwrap().success());
            said
        });
        assert_eq!(share, plain);
        assert!(share.len() == 11 && share.iter().any(|line| line.contains("11")), "{share:?}");
    }
    twins.end();
}
