//! What restores and dumps take away of what is there: nothing that was not asked for.

use crate::support::{Sandbox, holds};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

fn restore(sandbox: &Sandbox, place: &str, target: &str, options: &[&str], code: i32) -> Value {
    let mut arguments = vec!["--json", "restore", place, "--target", target];
    arguments.extend(options);
    sandbox.run(&arguments).expect(code).message("summary")
}

#[test]
fn r104_what_a_backup_left_out_is_not_deleted_and_what_was_not_there_is() {
    let sandbox = Sandbox::with_source();
    sandbox.write("source/left/out.log", b"log");
    sandbox.backup(&["--exclude", "*.log"]);
    sandbox.write("source/deep/extra", b"extra");
    sandbox.write("source/left/extra", b"extra");
    let source = sandbox.arg("source");
    let place = format!("latest:{source}");
    let arguments = ["restore", &place, "--target", &source, "--delete", "--dry-run"];
    let dry = sandbox.run(&arguments).expect(3);
    assert!(dry.stdout.contains("would delete /deep/extra\n"), "{}", dry.stdout);
    assert!(dry.stdout.contains("kept /left/extra\n"), "{}", dry.stdout);
    assert!(dry.stderr.contains("2 items") && dry.stderr.contains("--delete-unknown"), "{dry:?}");
    let summary = restore(&sandbox, &place, &source, &["--delete"], 3);
    assert_eq!((&summary["deleted"], &summary["kept"]), (&1.into(), &2.into()), "{summary}");
    assert_eq!(summary["errors"], 0);
    assert!(!sandbox.path("source/deep/extra").exists());
    assert!(holds(&sandbox.path("source/left/out.log"), b"log"));
    assert!(holds(&sandbox.path("source/left/extra"), b"extra"));
    let options = ["--delete-unknown", "--exclude", "*.log"];
    let summary = restore(&sandbox, &place, &source, &options, 0);
    assert_eq!((&summary["deleted"], &summary["kept"]), (&1.into(), &0.into()), "{summary}");
    assert!(holds(&sandbox.path("source/left/out.log"), b"log"));
}

#[test]
fn r104_nothing_beside_a_source_is_deleted() {
    let sandbox = Sandbox::with_store();
    sandbox.write("users/al/doc/f", b"1");
    sandbox.run(&["backup", &sandbox.arg("users/al/doc")]).expect(0);
    for name in ["users/al/photos/p", "users/bo/b", "users/al/doc/extra"] {
        sandbox.write(name, b"x");
    }
    for option in ["--delete", "--delete-unknown"] {
        let summary = restore(&sandbox, "latest", "/", &[option], 0);
        assert_eq!(summary["kept"], 0, "{summary}");
        assert!(!sandbox.path("users/al/doc/extra").exists());
        assert!(holds(&sandbox.path("users/al/photos/p"), b"x"));
        assert!(holds(&sandbox.path("users/bo/b"), b"x"));
        sandbox.write("users/al/doc/extra", b"x");
    }
}

#[test]
fn r105_a_restore_in_place_follows_the_links_above_its_sources() {
    let sandbox = Sandbox::with_store();
    sandbox.write("disk/users/al/f", b"1");
    fs::create_dir(sandbox.path("root")).unwrap();
    symlink(sandbox.path("disk/users"), sandbox.path("root/users")).unwrap();
    sandbox.run(&["backup", &sandbox.arg("root/users/al")]).expect(0);
    sandbox.write("disk/users/al/f", b"bad");
    restore(&sandbox, "latest", "/", &[], 0);
    assert!(sandbox.path("root/users").is_symlink());
    assert!(holds(&sandbox.path("disk/users/al/f"), b"1"));
    fs::remove_file(sandbox.path("root/users")).unwrap();
    symlink("nowhere", sandbox.path("root/users")).unwrap();
    let run = sandbox.run(&["restore", "latest", "--target", "/"]).expect(3);
    let named = sandbox.arg("root/users");
    assert!(run.stderr.contains(&named) && run.stderr.contains("link"), "{}", run.stderr);
    assert!(sandbox.path("root/users").is_symlink());
}

/// Two directories of the snapshot are one in the target.
#[test]
fn r105_what_a_link_leads_to_the_place_of_another_item_is_a_problem_each_time() {
    let sandbox = Sandbox::with_store();
    for (name, bytes) in [("lib/x", "LIB"), ("usr/lib/x", "USR"), ("lib/only", "1"), ("usr/f", "2")]
    {
        sandbox.write(&format!("root/{name}"), bytes.as_bytes());
    }
    let paths =
        ["lib/x", "lib/only", "usr/lib/x", "usr/f"].map(|it| sandbox.arg(&format!("root/{it}")));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    sandbox.run(&[&["backup"], &paths[..]].concat()).expect(0);
    fs::remove_dir_all(sandbox.path("root/lib")).unwrap();
    symlink("usr/lib", sandbox.path("root/lib")).unwrap();
    for _ in 0..2 {
        let run = sandbox.run(&["restore", "latest", "--target", "/", "--verify"]).expect(3);
        assert!(run.stderr.contains("leads to the place of"), "{}", run.stderr);
        assert!(holds(&sandbox.path("root/usr/lib/x"), b"USR"));
        assert!(holds(&sandbox.path("root/usr/lib/only"), b"1"));
    }
}

/// What one of the two places lacks may be of the other one, whichever is restored first.
#[test]
fn r104_nothing_is_deleted_in_a_directory_that_is_in_two_places_of_the_snapshot() {
    for name in ["data", "zdata"] {
        let sandbox = Sandbox::with_store();
        let (linked, disk) = (format!("root/{name}"), "root/disk");
        sandbox.write(&format!("{linked}/of-data"), b"1");
        sandbox.write(&format!("{disk}/of-disk"), b"2");
        sandbox.run(&["backup", &sandbox.arg(&linked), &sandbox.arg(disk)]).expect(0);
        fs::remove_dir_all(sandbox.path(&linked)).unwrap();
        symlink("disk", sandbox.path(&linked)).unwrap();
        for _ in 0..2 {
            restore(&sandbox, "latest", "/", &["--delete"], 0);
            assert!(holds(&sandbox.path("root/disk/of-data"), b"1"), "{name}");
            assert!(holds(&sandbox.path("root/disk/of-disk"), b"2"), "{name}");
        }
    }
}

#[test]
fn r109_owners_are_taken_by_number_where_that_is_asked_for() {
    let sandbox = Sandbox::with_source();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // No name here has this number.
        std::os::unix::fs::chown(sandbox.path("source/one.txt"), Some(54_321), None).unwrap();
    }
    sandbox.backup(&[]);
    let place = format!("latest:{}", sandbox.arg("source"));
    restore(&sandbox, &place, &sandbox.arg("out"), &["--numeric-owner"], 0);
    let expected = fs::metadata(sandbox.path("source/one.txt")).unwrap().uid();
    assert_eq!(fs::metadata(sandbox.path("out/one.txt")).unwrap().uid(), expected);
    let both = ["restore", &place, "--target", "out", "--numeric-owner", "--no-owner"];
    sandbox.run(&both).expect(1);
}

#[test]
fn r110_a_dump_replaces_nothing_unless_told_to() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let place = format!("latest:{}", sandbox.arg("source/one.txt"));
    let dump = |name: &str, options: &[&str], code: i32| {
        let output = sandbox.arg(name);
        let mut arguments = vec!["dump", &place, "--output", &output];
        arguments.extend(options);
        sandbox.run(&arguments).expect(code).stderr
    };
    sandbox.write("out/there", b"mine");
    symlink("there", sandbox.path("out/link")).unwrap();
    symlink("missing", sandbox.path("out/dangling")).unwrap();
    dump("out/dangling", &[], 1);
    for name in ["out/there", "out/link"] {
        let told = dump(name, &[], 1);
        assert!(told.contains("there already") && told.contains("--force"), "{told}");
    }
    assert!(holds(&sandbox.path("out/there"), b"mine"));
    fs::set_permissions(sandbox.path("out/there"), PermissionsExt::from_mode(0o640)).unwrap();
    dump("out/link", &["--force"], 0);
    assert!(holds(&sandbox.path("out/there"), b"one\n") && sandbox.path("out/link").is_symlink());
    assert_eq!(fs::metadata(sandbox.path("out/there")).unwrap().mode() & 0o777, 0o640);
    dump("out/new", &[], 0);
    dump("out/forced", &["--force"], 0);
    assert!(holds(&sandbox.path("out/new"), b"one\n"));
    assert!(holds(&sandbox.path("out/forced"), b"one\n"));
    dump("out", &["--force"], 1);
    // What holds nothing is written to as it is.
    sandbox.run(&["dump", &place, "--output", "/dev/null"]).expect(0);
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let log = sandbox.path("log");
        fs::write(&log, b"zero\n").unwrap();
        let mut command = sandbox.command(&["dump", &place, "--output", name]);
        command.stdout(fs::File::options().append(true).open(&log).unwrap());
        assert!(command.status().unwrap().success(), "{name}");
        assert!(holds(&log, b"zero\none\n"), "{name}");
    }
    assert_eq!(fs::read_dir(sandbox.path("out")).unwrap().count(), 5);
}

#[test]
fn r110_a_dump_that_fails_leaves_what_was_there_and_nothing_else() {
    let sandbox = Sandbox::with_store();
    let content: Vec<u8> = (0..300_000u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
    sandbox.write("source/data", &content);
    sandbox.backup(&[]);
    let mut containers: Vec<_> = fs::read_dir(sandbox.path("store/containers")).unwrap().collect();
    while let Some(entry) = containers.pop() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => containers.extend(fs::read_dir(&path).unwrap()),
            false if path.metadata().unwrap().len() > 1_000_000 => {
                let file = fs::File::options().write(true).open(&path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &[7; 400_000], 500_000).unwrap();
            }
            false => {}
        }
    }
    sandbox.write("out/there", b"mine");
    let place = format!("latest:{}", sandbox.arg("source/data"));
    for (name, option) in [("out/there", Some("--force")), ("out/new", None)] {
        let output = sandbox.arg(name);
        let mut arguments = vec!["dump", &place, "--output", &output];
        arguments.extend(option);
        sandbox.run(&arguments).expect(1);
    }
    assert!(holds(&sandbox.path("out/there"), b"mine"));
    assert_eq!(fs::read_dir(sandbox.path("out")).unwrap().count(), 1);
}

#[test]
fn r110_the_predicted_time_is_that_of_what_is_read_and_not_of_holes() {
    let sandbox = Sandbox::with_store();
    sandbox.write("source/image", &vec![b'x'; 100_000]);
    let image = fs::File::options().write(true).open(sandbox.path("source/image")).unwrap();
    image.set_len(64 << 30).unwrap();
    sandbox.backup(&[]);
    let config = sandbox.run(&["--json", "cat", "config"]).expect(0).lines().remove(0);
    let id = ["store_id", "id", "store"].iter().find_map(|name| config[*name].as_str());
    let notes = format!("cache/{}.json", id.unwrap_or_else(|| panic!("{config}")));
    // A second for each MiB.
    sandbox.write(&notes, br#"{"restore_mib_ns": 1000000000}"#);
    let mut command = sandbox.command(&["--json", "snapshots"]);
    command.env("ONEFOLD_CACHE_DIR", sandbox.path("cache"));
    let snapshot = sandbox.run_command(command).expect(0).message("snapshot");
    let seconds = snapshot["predicted_restore_seconds"].as_f64().unwrap();
    assert!(seconds < 100.0, "{seconds} s for 100 KB, and 65536 s with the holes");
}
