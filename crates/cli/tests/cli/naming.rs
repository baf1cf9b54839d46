//! What is named as a source, and what that gives.

use crate::bounds::{code_within, send, until_it_hears};
use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount, succeeds};
use crate::support::Sandbox;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};

fn listed(sandbox: &Sandbox) -> String {
    sandbox.run(&["ls", "latest"]).expect(0).stdout
}

#[test]
fn r98_a_link_as_a_source_is_told_of_and_followed_where_a_slash_is_behind_it() {
    let sandbox = Sandbox::with_source();
    let link = sandbox.arg("link");
    symlink(sandbox.path("source"), &link).unwrap();
    let run = sandbox.run(&["backup", &link]).expect(3);
    assert!(run.stderr.contains("is a symbolic link"), "{}", run.stderr);
    assert!(!listed(&sandbox).contains("link/"));
    for written in [format!("{link}/"), format!("{link}/."), format!("{link}//")] {
        let run = sandbox.run(&["backup", &written]).expect(0);
        assert_eq!(run.stderr, "");
        assert!(listed(&sandbox).contains("link/one.txt"), "{written}");
    }
}

#[test]
fn r105_a_link_that_a_source_was_named_by_stays_where_it_is_restored() {
    let sandbox = Sandbox::with_source();
    let link = sandbox.arg("link");
    symlink("source", &link).unwrap();
    sandbox.run(&["backup", &format!("{link}/")]).expect(0);
    fs::write(sandbox.path("source/one.txt"), b"other").unwrap();
    sandbox.run(&["restore", "latest", "--target", "/"]).expect(0);
    assert!(sandbox.path("link").is_symlink());
    assert_eq!(fs::read(sandbox.path("source/one.txt")).unwrap(), b"one\n");
}

#[test]
fn r98_what_is_no_file_and_no_directory_is_told_of_as_a_source() {
    let sandbox = Sandbox::with_source();
    let socket = sandbox.arg("socket");
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [("/dev/null", "a character device"), (socket.as_str(), "a socket")] {
        let run = sandbox.run(&["backup", path]).expect(3);
        assert!(run.stderr.contains(kind), "{}", run.stderr);
        sandbox.run(&["backup", path, "--allow-empty"]).expect(0);
        // Beside something else it is told of all the same.
        let run = sandbox.run(&["backup", path, &sandbox.arg("source")]).expect(0);
        assert!(run.stderr.contains(kind), "{}", run.stderr);
    }
}

#[test]
fn r98_what_comes_from_a_pipe_that_is_a_source_is_saved_if_that_is_asked_for() {
    let sandbox = Sandbox::with_source();
    let pipe = sandbox.path("source/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    symlink(&pipe, sandbox.path("link")).unwrap();
    let data = random_bytes(1, 5 << 20);
    let write = |written: Vec<u8>| {
        let pipe = pipe.clone();
        // Opening it waits for the reader.
        std::thread::spawn(move || fs::write(pipe, written).unwrap())
    };
    for name in ["source/pipe", "link"] {
        let source = sandbox.arg(name);
        let writer = write(data.clone());
        let run = sandbox.run(&["backup", "--read-special", &source]).expect(0);
        writer.join().unwrap();
        assert!(run.stderr.is_empty(), "{}", run.stderr);
        let saved = sandbox.run(&["dump", &format!("latest:{source}")]).expect(0);
        assert!(saved.stdout_bytes == data, "{name}");
    }
    for nothing in ["/dev/null", &sandbox.arg("source/pipe")] {
        let writer = (nothing != "/dev/null").then(|| write(Vec::new()));
        let run = sandbox.run(&["backup", "--read-special", nothing]).expect(3);
        assert!(run.stderr.contains("nothing was found"), "{}", run.stderr);
        writer.into_iter().for_each(|writer| writer.join().unwrap());
    }
    // Nothing is saved of what was to be read and was not, because of a signal.
    let before = sandbox.ids(&[]).len();
    let arguments = ["backup", "--read-special", &sandbox.arg("source/pipe"), "/etc/passwd"];
    let mut child = sandbox.command(&arguments).spawn().unwrap();
    until_it_hears(&child);
    let silent = fs::File::options().write(true).open(&pipe).unwrap();
    send("-INT", &child);
    assert_eq!(code_within(&mut child, std::time::Duration::from_secs(60)), Some(130));
    drop(silent);
    assert_eq!(sandbox.ids(&[]).len(), before);
    // One that is met in a directory stays a pipe, and nobody waits for it.
    let source = sandbox.arg("source");
    sandbox.run(&["backup", "--read-special", &source]).expect(0);
    let saved = format!("latest:{source}");
    sandbox.run(&["restore", &saved, "--target", &sandbox.arg("restored")]).expect(0);
    assert!(fs::symlink_metadata(sandbox.path("restored/pipe")).unwrap().file_type().is_fifo());
}

#[test]
fn r98_a_backup_that_finds_nothing_says_so() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    sandbox.run(&["backup", &source]).expect(0);
    fs::rename(&source, sandbox.arg("away")).unwrap();
    fs::create_dir(&source).unwrap();
    let run = sandbox.run(&["backup", &source]).expect(3);
    assert!(run.stderr.contains("is empty, and held"), "{}", run.stderr);
    sandbox.run(&["backup", &source, "--allow-empty"]).expect(0);
    let run = sandbox.run_with_input(&["backup", "--stdin"], b"").expect(3);
    assert!(run.stderr.contains("nothing was found"), "{}", run.stderr);
    sandbox.run_with_input(&["backup", "--stdin", "--allow-empty"], b"").expect(0);
    // Empty snapshots do not push out the one that has something.
    sandbox.run(&["forget", "--keep-last", "1", "--group-by", "paths"]).expect(0);
    let restored = sandbox.run(&["snapshots"]).expect(0);
    assert_eq!(restored.stdout.matches(&source).count(), 2, "{}", restored.stdout);
}

#[test]
fn r98_a_directory_that_lost_much_of_the_last_snapshot_is_told_of() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    sandbox.write("source/disk/large", &[1; 300_000]);
    sandbox.write("source/small/tiny", b"");
    sandbox.run(&["backup", &source]).expect(0);
    for directory in ["source/disk", "source/small"] {
        fs::remove_dir_all(sandbox.path(directory)).unwrap();
        fs::create_dir(sandbox.path(directory)).unwrap();
    }
    let run = sandbox.run(&["backup", &source]).expect(0);
    assert!(run.stderr.contains("source/disk' is empty, and held 1 item"), "{}", run.stderr);
    // Told once: the snapshot before has nothing there any more.
    let run = sandbox.run(&["backup", &source]).expect(0);
    assert_eq!(run.stderr, "");
    // A source that is empty is told of each time.
    let disk = sandbox.arg("source/disk");
    for _ in 0..2 {
        let run = sandbox.run(&["backup", &source, &disk]).expect(0);
        assert!(run.stderr.contains("disk' is empty: is something not"), "{}", run.stderr);
    }
    let meant = sandbox.run(&["backup", &source, &disk, "--allow-empty"]).expect(0);
    assert_eq!(meant.stderr, "");
    sandbox.run(&["backup", &source]).expect(0);
    // A mark that nothing is mounted is no content, and what is above a directory is not told of.
    (0..30).for_each(|number| sandbox.write(&format!("source/disks/1/a/{number}"), b"x"));
    sandbox.run(&["backup", &source]).expect(0);
    fs::remove_dir_all(sandbox.path("source/disks/1/a")).unwrap();
    sandbox.write("source/disks/1/NOT-MOUNTED", b"");
    let excluded = ["backup", &source, "--exclude", "NOT-*", "--dry-run"];
    assert_eq!(sandbox.run(&excluded).expect(0).stderr, "");
    let run = sandbox.run(&["backup", &source]).expect(0);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("source/disks/1' holds 1 item, and held 31"), "{}", run.stderr);
}

#[test]
fn r98_a_mark_in_the_very_source_is_told_of() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    sandbox.write("source/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55");
    let run = sandbox.run(&["backup", &source, "--exclude-caches"]).expect(3);
    assert!(run.stderr.contains("bears a mark itself"), "{}", run.stderr);
    let run = sandbox.run(&["backup", &source, "--exclude-if-present", "one.txt"]).expect(3);
    assert!(run.stderr.contains("bears a mark itself"), "{}", run.stderr);
    sandbox.run(&["backup", &source]).expect(0);
}

#[test]
fn r100_one_directory_is_one_however_it_is_named() {
    let sandbox = Sandbox::with_source();
    let (root, source) = (sandbox.path(""), sandbox.arg("source"));
    let save = |path: &str, from: &str| {
        let mut command = sandbox.command(&["--json", "backup", path]);
        command.current_dir(root.join(from));
        sandbox.run_command(command).expect(0).message("summary")
    };
    // What has just changed is read again next time.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let first = save(&source, "");
    for (path, from) in [
        ("source", ""),
        ("./source/", ""),
        ("source/../source", ""),
        ("../source", "source"),
        (".", "source"),
    ] {
        let found = save(path, from);
        assert_eq!(found["files_unchanged"], first["files"], "{path}");
        let run = sandbox.run(&["diff", "latest~1", "latest"]).expect(0);
        assert!(!run.stdout.contains("one.txt"), "{path}: {}", run.stdout);
    }
    sandbox.run(&["forget", "--keep-last", "1"]).expect(0);
    assert_eq!(sandbox.ids(&[]).len(), 1, "one series");
}

#[test]
fn r100_what_was_named_relatively_is_restored_so_and_found_by_its_path() {
    let sandbox = Sandbox::with_source();
    let mut command = sandbox.command(&["backup", "source"]);
    command.current_dir(sandbox.path(""));
    sandbox.run_command(command).expect(0);
    let real = sandbox.arg("source/one.txt");
    for path in ["source", "/source", &sandbox.arg("source")] {
        let listed = sandbox.run(&["ls", &format!("latest:{path}")]).expect(0);
        assert!(listed.stdout.contains("one.txt"), "{path}: {}", listed.stdout);
    }
    let base = sandbox.arg("");
    let base = base.trim_end_matches('/');
    let above = std::path::Path::new(base).parent().unwrap().to_str().unwrap();
    let globs = [format!("{above}/*/source/one.txt"), format!("{base}/**/one.txt")];
    let named = ["/source/one.txt", &real, base, above, &globs[0], &globs[1]];
    for (number, pattern) in named.iter().enumerate() {
        for (option, is_restored) in [("--include", true), ("--exclude", false)] {
            let target = sandbox.arg(&format!("target {number} {option}"));
            let restored = std::path::Path::new(&target).join("source/one.txt");
            let restore = ["restore", "latest", "--target", &target, option, pattern];
            let run = sandbox.run(&restore).expect(0);
            assert_eq!(restored.exists(), is_restored, "{option} {pattern}");
            assert!(run.stderr.is_empty(), "{pattern}: {}", run.stderr);
        }
    }
}

#[test]
fn r100_a_path_is_asked_for_in_any_spelling() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    sandbox.run(&["backup", &source]).expect(0);
    let (slash, dot) = (format!("{source}/"), format!("{source}/./deep/.."));
    for path in ["source", "./source", "source/", &source, &slash, &dot] {
        let mut command = sandbox.command(&["--json", "snapshots", "--path", path]);
        command.current_dir(sandbox.path(""));
        let listed = sandbox.run_command(command).expect(0).messages("snapshot");
        assert_eq!(listed.len(), 1, "{path}");
    }
}

#[test]
fn r100_a_working_directory_may_have_a_name_that_is_no_text() {
    let sandbox = Sandbox::with_source();
    let base = sandbox.path("").join(OsStr::from_bytes(b"odd \xff\n"));
    fs::create_dir(&base).unwrap();
    fs::rename(sandbox.path("source"), base.join("source")).unwrap();
    let mut command = sandbox.command(&["backup", "source"]);
    command.current_dir(&base);
    sandbox.run_command(command).expect(0);
    sandbox.run(&["restore", "latest", "--target", &sandbox.arg("out")]).expect(0);
    assert_eq!(fs::read(sandbox.path("out/source/one.txt")).unwrap(), b"one\n");
    let listed = sandbox.run(&["ls", "latest:source"]).expect(0).stdout;
    assert!(listed.contains("one.txt"), "{listed}");
}

/// As a mount of another machine's directory shows it: of other numbers, with the same content.
#[test]
fn r99_the_store_is_left_out_by_whatever_way_it_is_met() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/plain/config", b"[core]\n");
    let store = sandbox.arg("store");
    assert!(succeeds("cp", &["-r", &store, &sandbox.arg("source/shown")]));
    let run = sandbox.run(&["backup", &sandbox.arg("source")]).expect(0);
    assert!(run.stderr.contains("source/shown: left out: this is the store"), "{}", run.stderr);
    let listed = listed(&sandbox);
    assert!(!listed.contains("shown/config") && listed.contains("plain/config"), "{listed}");
}

#[test]
fn r99_a_mount_of_snapshots_inside_a_source_is_left_out_and_told() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    let files = sandbox.run(&["--json", "backup", &source]).expect(0).message("summary");
    let point = sandbox.path("source/shown");
    fs::create_dir(&point).unwrap();
    let mut mount = Some(Mount::on(&sandbox, &point, &[]));
    for is_dead in [false, true] {
        if let Some(mount) = mount.take_if(|_| is_dead) {
            mount.kill();
        }
        let run = sandbox.run(&["backup", &source]).expect(0);
        assert!(run.stdout.contains("left out: 1 snapshot mount"), "{}", run.stdout);
        let found = sandbox.run(&["--json", "backup", &source]).expect(0).message("summary");
        assert_eq!(found["files"], files["files"]);
        assert_eq!(found["left_out"]["snapshot_mounts"], 1);
    }
    assert!(succeeds("umount", &["-l", point.to_str().unwrap()]));
}
