//! Sources that lie in other ones: each is saved as if it were given alone.

use crate::collecting::random_bytes;
use crate::full_devices::Mounted;
use crate::mounted::{can_mount, succeeds};
use crate::support::{Run, Sandbox, holds};
use std::fs;
use std::os::unix::fs::symlink;

fn save(sandbox: &Sandbox, names: &[&str], options: &[&str], code: i32) -> Run {
    let paths: Vec<String> = names.iter().map(|name| sandbox.arg(name)).collect();
    let mut arguments = vec!["--json", "backup"];
    arguments.extend(paths.iter().map(String::as_str));
    arguments.extend(options);
    sandbox.run(&arguments).expect(code)
}

/// What is in the newest snapshot below the sandbox.
fn listed(sandbox: &Sandbox) -> Vec<String> {
    let below = format!("{}/", sandbox.arg("").trim_end_matches('/'));
    let all = sandbox.run(&["ls", "latest"]).expect(0).stdout;
    all.lines().filter_map(|line| Some(line.strip_prefix(&below)?.to_owned())).collect()
}

fn has(sandbox: &Sandbox, names: &[&str]) {
    let listed = listed(sandbox);
    let mut found: Vec<&str> = listed.iter().map(|name| name.trim_end_matches('/')).collect();
    found.sort_unstable();
    assert_eq!(found, names);
}

#[test]
fn r98_a_source_below_another_is_saved_whatever_is_left_out_there() {
    let sandbox = Sandbox::with_store();
    for name in ["s/f", "s/cache/a", "s/no/.nobackup", "s/no/deep/f", "s/no/deep/g", "s/no/h"] {
        sandbox.write(name, name.as_bytes());
    }
    sandbox.write("s/tag/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55");
    sandbox.write("s/tag/data/one", b"1");
    sandbox.write("s/tag/data/two", b"2");
    let options = ["--exclude", "cache", "--exclude-if-present", ".nobackup", "--exclude-caches"];
    let names = ["s", "s/cache", "s/no/deep/f", "s/tag/data"];
    let saved = [
        "s",
        "s/cache",
        "s/cache/a",
        "s/f",
        "s/no",
        "s/no/.nobackup",
        "s/no/deep",
        "s/no/deep/f",
        "s/tag",
        "s/tag/CACHEDIR.TAG",
        "s/tag/data",
        "s/tag/data/one",
        "s/tag/data/two",
    ];
    for _ in 0..2 {
        save(&sandbox, &names, &options, 0);
        has(&sandbox, &saved);
    }
    // What leads to such a source was not read whole.
    let target = sandbox.arg("target");
    let place = format!("latest:{}", sandbox.arg("s"));
    sandbox.run(&["restore", &place, "--target", &target]).expect(0);
    for (extra, is_kept) in [("no/extra", true), ("no/deep/extra", true), ("cache/extra", false)] {
        sandbox.write(&format!("target/{extra}"), b"x");
        let code = if is_kept { 3 } else { 0 };
        sandbox.run(&["restore", &place, "--target", &target, "--delete"]).expect(code);
        assert_eq!(sandbox.path(&format!("target/{extra}")).exists(), is_kept, "{extra}");
        let _ = fs::remove_file(sandbox.path(&format!("target/{extra}")));
    }
    // A file of its own, and one in another directory: where a pattern leaves all of it out.
    save(&sandbox, &["s", "s/no/deep/g", "s/f"], &["--exclude", "no", "--exclude", "f"], 0);
    let saved = saved.map(|name| if name == "s/no/deep/f" { "s/no/deep/g" } else { name });
    let saved: Vec<&str> = saved.into_iter().filter(|name| *name != "s/no/.nobackup").collect();
    has(&sandbox, &saved);
}

#[test]
fn r98_a_source_below_another_that_is_not_there_is_told() {
    let sandbox = Sandbox::with_source();
    for missing in ["source/missing", "source/one.txt/x", "source/deep/missing/x"] {
        let run = save(&sandbox, &["source", missing], &[], 3);
        assert!(run.stderr.contains(missing), "{}", run.stderr);
    }
    sandbox.write("behind/x", b"x");
    symlink(sandbox.path("behind"), sandbox.path("source/link")).unwrap();
    let run = save(&sandbox, &["source", "source/link/x"], &[], 3);
    assert!(run.stderr.contains("saved as a link"), "{}", run.stderr);
    // Of two spellings of one source the one counts that leads on.
    for names in [["source/link", "source/link/"], ["source/link/", "source/link"]] {
        save(&sandbox, &names, &[], 0);
        assert!(listed(&sandbox).contains(&"source/link/x".to_owned()));
    }
    save(&sandbox, &["source", "source/link/"], &[], 0);
    assert!(listed(&sandbox).contains(&"source/link/x".to_owned()));
    let pipe = sandbox.path("source/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn(move || fs::write(pipe, random_bytes(1, 300_000)).unwrap());
    save(&sandbox, &["source", "source/pipe"], &["--read-special"], 0);
    writer.join().unwrap();
    let saved = sandbox.run(&["dump", &format!("latest:{}", sandbox.arg("source/pipe"))]).expect(0);
    assert!(saved.stdout_bytes == random_bytes(1, 300_000));
}

#[test]
fn r98_a_source_on_a_file_system_of_its_own_stays_on_that() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_source();
    let mut mounts = Vec::new();
    for name in ["source/a", "source/a/inner", "source/b", "source/b/way/c"] {
        let place = sandbox.path(name);
        fs::create_dir_all(&place).unwrap();
        let image = sandbox.path("image");
        mounts.push(Mounted::new("tmpfs", 1 << 20, &image, &place).unwrap());
        sandbox.write(&format!("{name}/f"), name.as_bytes());
    }
    for _ in 0..2 {
        save(&sandbox, &["source", "source/a", "source/b/way/c"], &["-x"], 0);
        let found = listed(&sandbox);
        let has = |name: &str| found.contains(&name.to_owned());
        assert!(has("source/a/f") && has("source/b/way/c/f"), "{found:?}");
        assert!(!has("source/a/inner/f") && !has("source/b/f"), "{found:?}");
        let restored = sandbox.arg("restored");
        let place = format!("latest:{}", sandbox.arg("source/a"));
        sandbox.run(&["restore", &place, "--target", &restored]).expect(0);
        assert!(holds(&sandbox.path("restored/f"), b"source/a"));
    }
    mounts.into_iter().rev().for_each(drop);
}

#[test]
fn r146_a_file_of_another_file_system_in_the_place_of_one_is_left_out() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    for name in ["s/hosts", "s/own", "s/x"] {
        sandbox.write(name, b"below");
    }
    let other = sandbox.path("other");
    let _other = Mounted::new("tmpfs", 1 << 20, &sandbox.path("image"), &other).unwrap();
    for name in ["other/hosts", "here"] {
        sandbox.write(name, b"mounted");
    }
    let [hosts, own] = ["s/hosts", "s/own"].map(|name| sandbox.arg(name));
    // What is mounted from the same file system belongs to it.
    for (from, to) in [("other/hosts", &hosts), ("here", &own)] {
        assert!(succeeds("mount", &["--bind", &sandbox.arg(from), to]));
    }
    let source = sandbox.arg("s");
    let run = sandbox.run(&["--json", "backup", "-x", &source]);
    let all = sandbox.run(&["--json", "backup", &source]);
    for name in [&hosts, &own] {
        assert!(succeeds("umount", &[name]));
    }
    assert_eq!(run.expect(0).message("summary")["left_out"]["mounts"], 1);
    assert_eq!(all.expect(0).message("summary")["left_out"]["mounts"], 0);
    let dump = |place: &str| sandbox.run(&["dump", place, &hosts]);
    dump("latest~1").expect(1);
    assert_eq!(dump("latest").expect(0).stdout, "mounted");
    // What was not saved is not taken for what was not there.
    let place = format!("latest~1:{source}");
    sandbox.run(&["restore", &place, "--target", &source, "--delete"]).expect(3);
    assert!(holds(&sandbox.path("s/hosts"), b"below"));
    assert!(holds(&sandbox.path("s/own"), b"mounted"));
}

#[test]
fn r163_a_source_that_was_a_mount_point_and_is_none_is_told_of_each_time() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    sandbox.write("disk/NOT_MOUNTED", b"stray");
    let mounted = Mounted::new("tmpfs", 1 << 20, &sandbox.path("image"), &sandbox.path("disk"));
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(why) => return eprintln!("SKIPPED: a source that is mounted: {why}"),
    };
    (0..9).for_each(|number| sandbox.write(&format!("disk/{number}"), b"x"));
    let said = |options: &[&str]| {
        sandbox.run(&[&["backup", &sandbox.arg("disk")], options].concat()).expect(0).stderr
    };
    assert_eq!(said(&[]), "");
    drop(mounted);
    for _ in 0..2 {
        assert!(said(&[]).contains("was a mount point"));
    }
    assert_eq!(said(&["--allow-empty"]), "");
    assert_eq!(said(&[]), "", "it was meant");
}

#[test]
fn r163_an_image_with_other_bytes_and_the_same_times_is_read() {
    let sandbox = Sandbox::with_store();
    let image = |content: &[u8]| {
        sandbox.write("made/file", content);
        let file = fs::File::open(sandbox.path("made/file")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let (made, image) = (sandbox.arg("made"), sandbox.arg("image"));
        let _ = fs::remove_file(&image);
        let made = succeeds("mksquashfs", &[&made, &image, "-noappend", "-quiet"]);
        fs::create_dir_all(sandbox.path("disk")).unwrap();
        let place = sandbox.arg("disk");
        made && succeeds("mount", &["-o", "loop,ro", &image, &place])
    };
    for content in [b"version-1", b"version-2"] {
        if !can_mount() {
            return;
        }
        if !image(content) {
            return eprintln!("SKIPPED: an image of squashfs: it cannot be made and mounted");
        }
        sandbox.run(&["backup", &sandbox.arg("disk")]).expect(0);
        assert!(succeeds("umount", &[&sandbox.arg("disk")]));
    }
    let place = format!("latest:{}", sandbox.arg("disk/file"));
    assert_eq!(sandbox.run(&["dump", &place]).expect(0).stdout, "version-2");
}
