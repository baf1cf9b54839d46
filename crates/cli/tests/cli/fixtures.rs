//! Whole stores that were written once: every later version must read them.
//!
//! Each fixture in `tests/fixtures/v<FORMAT_VERSION>` is a store in a tar file, with a manifest of
//! what its snapshots hold beside it (see the README there). The manifest is made from the source,
//! not from what was restored. `UPDATE_EXPECT=1` makes those anew that are missing or do not pass;
//! it is for formats that no release has written yet.

use crate::support::Sandbox;
use onefold_format::FORMAT_VERSION;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// No fixture is larger.
const TAR_MAX_BYTES: usize = 128 * 1024;
/// A backup of the same content makes no more new bytes than this: tree nodes, which name inodes.
/// The content has twice as many bytes that occur once.
const NODES_MAX_BYTES: u64 = 7 * 1024;

struct Fixture {
    name: &'static str,
    sealed: bool,
    init: &'static [&'static str],
    index: &'static str,
    /// Whether it has been through `undelete`, `forget --final` of as many as are worth a
    /// checkpoint, `gc` and `hold`.
    collected: bool,
    /// Whether its keys were rotated between its snapshots.
    rotated: bool,
    /// Whether it has larger chunks, and a file whose second version is stored as a difference.
    differs: bool,
    /// Whether a key file opens it as well.
    key_file: bool,
}

/// The key file of fixtures that have one: that of the known answers.
const KEY_FILE: &str = "onefold-key-file-1:\
                        808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f:e773ed1c";

const fn fixture(
    name: &'static str,
    sealed: bool,
    index: &'static str,
    init: &'static [&'static str],
) -> Fixture {
    let (collected, rotated, differs, key_file) = (false, false, false, false);
    Fixture { name, sealed, init, index, collected, rotated, differs, key_file }
}

const FIXTURES: [Fixture; 11] = [
    // Its containers name their sessions; those made before it do not.
    fixture("blake3-sessions", true, "fuse", &["--chunker=mincdc", "--compression=zstd,2"]),
    fixture("blake3-sealed", true, "bloom", &["--chunker=mincdc", "--compression=zstd,2"]),
    fixture("blake3-open", false, "fuse", &["--chunker=fastcdc", "--compression=lz4"]),
    fixture(
        "sha256-sealed",
        true,
        "signature",
        &["--hash=sha256", "--chunker=rabin", "--compression=none"],
    ),
    fixture(
        "sha256-open",
        false,
        "bloom",
        &["--hash=sha256", "--chunker=regression", "--compression=zstd,9"],
    ),
    fixture("sha1-sealed", true, "fuse", &["--hash=sha1", "--chunker=fixed", "--compression=lz4"]),
    fixture(
        "sha1-open",
        false,
        "signature",
        &["--hash=sha1", "--chunker=mincdc", "--compression=none"],
    ),
    Fixture {
        name: "blake3-collected",
        sealed: true,
        init: &["--chunker=mincdc", "--compression=zstd,2"],
        index: "signature",
        collected: true,
        rotated: false,
        differs: false,
        key_file: false,
    },
    Fixture {
        name: "blake3-rotated",
        sealed: true,
        init: &["--chunker=mincdc", "--compression=zstd,2"],
        index: "fuse",
        collected: false,
        rotated: true,
        differs: false,
        key_file: false,
    },
    Fixture {
        name: "blake3-differences",
        sealed: true,
        init: &["--chunker=mincdc", "--compression=zstd,2"],
        index: "fuse",
        collected: false,
        rotated: false,
        differs: true,
        key_file: false,
    },
    Fixture {
        name: "blake3-key-file",
        sealed: true,
        init: &["--chunker=mincdc", "--compression=zstd,2"],
        index: "bloom",
        collected: false,
        rotated: false,
        differs: false,
        key_file: true,
    },
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(format!("v{FORMAT_VERSION}"))
        .join(name)
}

fn noise(name: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(name.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Text of few words, which shrinks well.
fn prose(length: usize) -> Vec<u8> {
    let words = ["one ", "fold ", "many ", "copies\n", "store ", "of ", "the ", "same "];
    let chosen = noise("prose", length);
    let text: String = chosen.iter().map(|byte| words[usize::from(byte % 8)]).collect();
    text.into_bytes()[..length].to_vec()
}

fn archive() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in [("member/one", prose(3000)), ("member/two", noise("two", 700))] {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Makes the first state of the source: all kinds of entries that anybody can make, odd names,
/// hard links, holes, an archive.
fn make_source(root: &Path) {
    let put = |name: &[u8], bytes: &[u8], mode: u32| {
        let path = root.join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    put(b"plain.txt", b"a plain file\n", 0o640);
    put(b"empty", b"", 0o600);
    put(b"program", b"#!/bin/sh\n", 0o755);
    put(b"deep/er/noise.bin", &noise("noise", 3000), 0o644);
    put(b"deep/er/prose.txt", &prose(10_000), 0o444);
    put(b"archive.tar", &archive(), 0o644);
    let odd: [&[u8]; 6] =
        [b"with spaces ", b"new\nline", b"\xff\xfe no text", b"-dash", b"\x1b[31mred", b"\xc3\xbc"];
    odd.into_iter().for_each(|name| put(&[b"odd/", name].concat(), name, 0o644));
    let sparse = File::create(root.join("sparse.img")).unwrap();
    sparse.set_len(200_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 150_000).unwrap();
    put(b"links/first", b"linked twice", 0o644);
    fs::hard_link(root.join("links/first"), root.join("links/second")).unwrap();
    symlink("../deep/er", root.join("links/to-directory")).unwrap();
    symlink("nowhere/at all", root.join("links/dangling")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
    assert!(made.success());
    fs::create_dir(root.join("hollow")).unwrap();
    fs::set_permissions(root.join("hollow"), Permissions::from_mode(0o1777)).unwrap();
    set_times(root);
}

/// Makes the second state of the first.
fn change_source(root: &Path) {
    fs::remove_file(root.join("program")).unwrap();
    fs::write(root.join("added"), noise("added", 900)).unwrap();
    let mut changed = prose(10_000);
    changed.splice(5000..5000, *b"INSERTED");
    fs::remove_file(root.join("deep/er/prose.txt")).unwrap();
    fs::write(root.join("deep/er/prose.txt"), changed).unwrap();
    set_times(root);
}

/// Gives every file and directory a time that follows from its path; one lies before 1970.
fn set_times(root: &Path) {
    for path in below(root).iter().rev() {
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        if kind.is_file() || kind.is_dir() {
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
            let seed = u64::from(blake3::hash(name).as_bytes()[0]);
            let epoch = SystemTime::UNIX_EPOCH;
            let time = match name {
                b"empty" => epoch - Duration::new(1_000, 5),
                _ => epoch + Duration::new(1_600_000_000 + seed * 86_400, 123_456_789),
            };
            File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
        }
    }
}

/// Everything below `root` and `root` itself, by path; directories before what is in them.
fn below(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    found.sort();
    found
}

/// What `root` holds, a line for each entry.
fn manifest(root: &Path) -> String {
    let mut first_names: HashMap<u64, String> = HashMap::new();
    let mut lines = String::new();
    for path in below(root) {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii();
        let name = name.to_string();
        let kind = metadata.file_type();
        let time = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
        let (kind, time, size, content) = if kind.is_dir() {
            ("directory", time, 0, "-".to_owned())
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).unwrap().into_os_string().into_vec();
            ("link", "-".to_owned(), 0, format!("'{}'", target.escape_ascii()))
        } else if kind.is_fifo() {
            ("fifo", "-".to_owned(), 0, "-".to_owned())
        } else if let Some(first) = first_names.get(&metadata.ino()) {
            ("hard-link", time, metadata.len(), format!("'{first}'"))
        } else {
            if metadata.nlink() > 1 {
                first_names.insert(metadata.ino(), name.clone());
            }
            let hash = blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string();
            ("file", time, metadata.len(), hash)
        };
        let mode = metadata.mode() & 0o7777;
        let mode = if kind == "link" { "-".to_owned() } else { format!("{mode:04o}") };
        lines += &format!("{kind} {mode} {time} {size} {content} {name}\n");
    }
    lines
}

/// Hides the first snapshot, or collects; the second one is listed either way.
fn age(fixture: &Fixture, sandbox: &Sandbox, [first, second]: [&str; 2]) {
    if !fixture.collected {
        sandbox.run(&["forget", first]).expect(0);
        return;
    }
    sandbox.run(&["forget", second]).expect(0);
    sandbox.run(&["undelete", second]).expect(0);
    for _ in 0..7 {
        sandbox.run(&["copy-snapshot", second, "--tag=copy"]).expect(0);
    }
    sandbox.run(&["forget", "--final", first]).expect(0);
    let copies = sandbox.ids(&["--tag=copy"]);
    let copies: Vec<&str> = copies.iter().map(String::as_str).collect();
    sandbox.run(&[&["forget", "--final"], &copies[..]].concat()).expect(0);
    sandbox.run(&["gc", "--space-goal=100%"]).expect(0);
    sandbox.run(&["hold", second]).expect(0);
    let places = ["tombstones", "fates", "changes", "epochs", "sweeps", "finished", "checkpoints"];
    for place in places {
        assert!(fs::read_dir(sandbox.path("store").join(place)).unwrap().count() > 0, "{place}");
    }
}

/// Makes the fixture anew.
fn make(fixture: &Fixture) {
    let sandbox = Sandbox::empty().with_password(fixture.sealed);
    let suite = if fixture.sealed { "aes-256-gcm" } else { "none" };
    let chunks = if fixture.differs { "--chunk-size=4KiB" } else { "--chunk-size=512" };
    let common = ["init", "--encryption", suite, chunks, "--container-size=64KiB"];
    sandbox.run(&[&common, fixture.init].concat()).expect(0);
    let source = sandbox.path("source");
    make_source(&source);
    let index = format!("--index={}", fixture.index);
    // A relative path stands at the top of the snapshot under its own name.
    let backup = ["--json", "backup", "source", "--host=fixture", "--tag=frozen", index.as_str()];
    let save = || {
        let summary = sandbox.run(&backup).expect(0).message("summary");
        (summary["snapshot"].as_str().unwrap().to_owned(), manifest(&source))
    };
    let (first, held) = save();
    if fixture.rotated {
        sandbox.run(&["key", "rotate"]).expect(0);
    }
    if fixture.key_file {
        sandbox.write("frozen.key", KEY_FILE.as_bytes());
        sandbox.run(&["key", "add", "--new-key-file", "frozen.key", "--label=fixture"]).expect(0);
    }
    change_source(&source);
    if fixture.differs {
        let mut changed = noise("noise", 3000);
        changed[1500] ^= 1;
        fs::write(source.join("deep/er/noise.bin"), changed).unwrap();
        set_times(&source);
    }
    let (second, holds) = save();
    age(fixture, &sandbox, [&first, &second]);

    let mut text = format!("snapshot {second} listed\n{holds}");
    if !fixture.collected {
        text += &format!("snapshot {first} hidden\n{held}");
    }
    let tar = pack(&sandbox.path("store"));
    fs::create_dir_all(path("")).unwrap();
    fs::write(path(&format!("{}.tar", fixture.name)), tar).unwrap();
    fs::write(path(&format!("{}.manifest", fixture.name)), text).unwrap();
}

/// A store without what holds nothing, in the order of names.
fn pack(store: &Path) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for path in below(store) {
        let name = path.strip_prefix(store).unwrap();
        let top = name.iter().next().unwrap_or_default();
        if path.is_file() && top != "reserve" && top != "tmp" {
            let bytes = fs::read(&path).unwrap();
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
        }
    }
    builder.into_inner().unwrap()
}

/// A sandbox with the fixture's store, and what is expected of each snapshot: id, whether it is
/// hidden, manifest.
fn unpacked(fixture: &Fixture) -> (Sandbox, Vec<(String, bool, String)>) {
    let sandbox = Sandbox::empty().with_password(fixture.sealed);
    let read = |kind: &str| {
        let path = path(&format!("{}.{kind}", fixture.name));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let tar = read("tar");
    assert!(tar.len() <= TAR_MAX_BYTES, "{}: {} bytes", fixture.name, tar.len());
    tar::Archive::new(tar.as_slice()).unpack(sandbox.path("store")).unwrap();
    let text = String::from_utf8(read("manifest")).unwrap();
    let mut expected = Vec::new();
    for part in text.split("snapshot ").skip(1) {
        let (heading, lines) = part.split_once('\n').unwrap();
        let (id, state) = heading.split_once(' ').unwrap();
        expected.push((id.to_owned(), state == "hidden", lines.to_owned()));
    }
    (sandbox, expected)
}

#[track_caller]
fn check(sandbox: &Sandbox) {
    let run = sandbox.run(&["check", "--read-data"]).expect(0);
    assert!(run.stdout.contains("no problems found"), "{}", run.stdout);
}

/// Everything that is expected of a frozen store.
fn verify(fixture: &Fixture) {
    let (sandbox, expected) = unpacked(fixture);
    let listed: Vec<&String> =
        expected.iter().filter(|(_, hidden, _)| !hidden).map(|(id, ..)| id).collect();
    let hidden: Vec<&String> =
        expected.iter().filter(|(_, hidden, _)| *hidden).map(|(id, ..)| id).collect();
    assert_eq!(sandbox.ids(&[]).iter().collect::<Vec<_>>(), listed, "{}", fixture.name);
    check(&sandbox);
    if fixture.rotated {
        let told = sandbox.run(&["--json", "stats"]).expect(0).message("statistics");
        let older = told["containers_of_older_keys"].as_u64().unwrap();
        assert!(older > 0 && older < told["containers"].as_u64().unwrap(), "{told}");
    }
    if fixture.key_file {
        sandbox.write("frozen.key", KEY_FILE.as_bytes());
        let mut command = sandbox.command(&["--json", "--key-file", "frozen.key", "key", "list"]);
        command.env_remove("ONEFOLD_PASSWORD");
        let keys = sandbox.run_command(command).expect(0).messages("key");
        assert!(keys.iter().any(|key| key["current"] == true && key["kind"] == "key-file"));
    }
    if fixture.differs {
        let told = sandbox.run(&["--json", "stats"]).expect(0).message("statistics");
        assert!(told["chunks_delta"].as_u64().unwrap() > 0, "{told}");
    }
    if fixture.collected {
        let run = sandbox.run(&["forget", "--final", listed[0]]).expect(1);
        assert!(run.stderr.contains("on hold"), "{}", run.stderr);
    }
    hidden.iter().for_each(|id| drop(sandbox.run(&["undelete", id]).expect(0)));
    for (id, _, manifest_then) in &expected {
        let target = sandbox.arg(&format!("restored-{id}"));
        sandbox.run(&["restore", id, "--target", &target]).expect(0);
        let restored = Path::new(&target).join("source");
        assert_eq!(&manifest(&restored), manifest_then, "{}: {id}", fixture.name);
    }
    // The same content again: it is found where it is only if it is cut and named as it was then.
    let again = format!("restored-{}/source", listed[0]);
    let run = sandbox.run(&["--json", "backup", "--force", "--rewrite=none", &again]).expect(0);
    let summary = run.message("summary");
    assert!(summary["bytes_new"].as_u64().unwrap() <= NODES_MAX_BYTES, "{summary}");
    check(&sandbox);
    assert_eq!(sandbox.ids(&[]).len(), expected.len() + 1);
}

fn may_write() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1")
}

fn passes_or_is_made_anew(name: &str) {
    let fixture = FIXTURES.iter().find(|fixture| fixture.name == name).unwrap();
    if may_write() && std::panic::catch_unwind(|| verify(fixture)).is_err() {
        make(fixture);
    }
    verify(fixture);
}

#[test]
fn r80_every_store_of_this_version_blake3_sealed() {
    passes_or_is_made_anew("blake3-sealed");
}

#[test]
fn r80_every_store_of_this_version_blake3_open() {
    passes_or_is_made_anew("blake3-open");
}

#[test]
fn r80_every_store_of_this_version_sha256_sealed() {
    passes_or_is_made_anew("sha256-sealed");
}

#[test]
fn r80_every_store_of_this_version_sha256_open() {
    passes_or_is_made_anew("sha256-open");
}

#[test]
fn r80_every_store_of_this_version_sha1_sealed() {
    passes_or_is_made_anew("sha1-sealed");
}

#[test]
fn r80_every_store_of_this_version_sha1_open() {
    passes_or_is_made_anew("sha1-open");
}

#[test]
fn r80_every_store_of_this_version_blake3_collected() {
    passes_or_is_made_anew("blake3-collected");
}

#[test]
fn r80_every_store_of_this_version_blake3_sessions() {
    passes_or_is_made_anew("blake3-sessions");
}

#[test]
fn r80_every_store_of_this_version_blake3_rotated() {
    passes_or_is_made_anew("blake3-rotated");
}

#[test]
fn r80_every_store_of_this_version_blake3_differences() {
    passes_or_is_made_anew("blake3-differences");
}

#[test]
fn r80_every_store_of_this_version_blake3_key_file() {
    passes_or_is_made_anew("blake3-key-file");
}

#[test]
fn r80_every_fixture_that_lies_there_is_tested() {
    if may_write() {
        return;
    }
    let mut names: Vec<String> = fs::read_dir(path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected: Vec<String> = FIXTURES
        .iter()
        .flat_map(|fixture| ["manifest", "tar"].map(|kind| format!("{}.{kind}", fixture.name)))
        .collect();
    expected.sort();
    assert_eq!(names, expected);
}
