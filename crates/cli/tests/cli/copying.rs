//! `copy`, as a user meets it: another store with another password, the same command again, and
//! what is refused.

use crate::support::Sandbox;

#[test]
fn snapshots_are_copied_into_another_store_once() {
    let sandbox = Sandbox::with_encrypted_store();
    sandbox.write("source/large", &(0..300_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    let first = sandbox.backup(&["--tag", "kept"]);
    sandbox.write("source/two.txt", b"two\n");
    let second = sandbox.backup(&[]);
    sandbox.write("other-password", b"battery staple\n");
    let (to, file) = (sandbox.arg("second"), sandbox.arg("other-password"));
    let kdf = ["--kdf-memory", "8MiB", "--kdf-passes", "1"];
    let init = [&["-r", &to, "--password-file", &file, "init"], &kdf[..]].concat();
    sandbox.run(&init).expect(0);

    let copy = ["--json", "copy", "--to", &to, "--to-password-file", &file];
    // The first store's password is not tried on the other one.
    let untold = sandbox.run(&copy[..4]).expect(1);
    assert!(untold.stderr.contains("ONEFOLD_TO_PASSWORD_FILE"), "{}", untold.stderr);
    assert!(untold.stderr.contains("--to-password-file"), "{}", untold.stderr);
    let told = sandbox.run(&[&copy[..], &["--dry-run"]].concat()).expect(0);
    assert_eq!(told.message("summary")["would_be_copied"], 2);
    let run = sandbox.run(&copy).expect(0);
    let states = run.messages("snapshot");
    assert!(states.iter().all(|line| line["state"] == "copied"), "{states:?}");
    let again = sandbox.run(&copy).expect(0).message("summary");
    assert_eq!((&again["copied"], &again["present"]), (&0.into(), &2.into()));
    assert_eq!((&again["bytes_read"], &again["chunks_new"]), (&0.into(), &0.into()));

    let there = ["-r", &to, "--password-file", &file];
    let list = sandbox.run(&[&there[..], &["--json", "snapshots"]].concat()).expect(0);
    let list = list.messages("snapshot");
    let originals: Vec<&str> =
        list.iter().map(|line| line["original"]["snapshot"].as_str().unwrap()).collect();
    assert_eq!(originals, [&first, &second]);
    assert_eq!(list[0]["tags"][0], "kept");
    let out = sandbox.arg("out");
    sandbox.run(&[&there[..], &["restore", "latest", "--target", &out]].concat()).expect(0);
    for name in ["one.txt", "two.txt", "large"] {
        let source = sandbox.path("source").join(name);
        let restored = sandbox.path("out").join(source.strip_prefix("/").unwrap());
        assert_eq!(std::fs::read(restored).unwrap(), std::fs::read(source).unwrap(), "{name}");
    }
    sandbox.run(&[&there[..], &["check", "--read-data"]].concat()).expect(0);
}

/// What one store refuses keeps the others waiting for nothing.
#[test]
fn a_profile_names_the_stores_to_copy_to() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let nowhere = sandbox.run(&["copy"]).expect(1);
    assert!(nowhere.stderr.contains("[[profile.NAME.copy]]"), "{}", nowhere.stderr);
    sandbox.write("second-password", b"battery staple\n");
    let kdf = ["--kdf-memory", "8MiB", "--kdf-passes", "1"];
    let second = ["-r", &sandbox.arg("second"), "--password-file", &sandbox.arg("second-password")];
    sandbox.run(&[&second[..], &["init"], &kdf[..]].concat()).expect(0);
    let third = ["-r", &sandbox.arg("third")];
    sandbox.run(&[&third[..], &["init", "--encryption", "none"]].concat()).expect(0);
    let targets = "[[profile.default.copy]]\nto = 'second'\npassword-file = 'second-password'\n\
                   [[profile.default.copy]]\nto = 'missing'\n\
                   [[profile.default.copy]]\nto = 'third'\n";
    sandbox.write("config.toml", targets.as_bytes());
    let copy = ["--config", &sandbox.arg("config.toml"), "copy"];
    let run = sandbox.run(&copy).expect(10);
    assert!(run.stderr.contains("missing"), "{}", run.stderr);
    for store in [&second[..], &third[..]] {
        let list = sandbox.run(&[store, &["--json", "snapshots"]].concat()).expect(0);
        assert_eq!(list.messages("snapshot").len(), 1, "{store:?}");
    }
    // A store that is named by hand is the only one.
    let one = sandbox.run(&[&copy[..], &["--to", &sandbox.arg("third")]].concat()).expect(0);
    assert!(one.stdout.contains("1 there already"), "{}", one.stdout);
    let given = ["--to-password-file", &sandbox.arg("second-password")];
    let which = sandbox.run(&[&copy[..], &given[..]].concat()).expect(1);
    assert!(which.stderr.contains("use --to"), "{}", which.stderr);
}

/// A copy that is without what was lost does not count as there.
#[test]
fn copies_in_a_store_that_has_lost_something_are_made_whole() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let to = sandbox.arg("second");
    sandbox.run(&["-r", &to, "init", "--encryption", "none"]).expect(0);
    let copy = ["--json", "copy", "--to", &to];
    sandbox.run(&copy).expect(0);
    let directories = std::fs::read_dir(sandbox.path("second/containers")).unwrap();
    let mut containers =
        directories.flat_map(|directory| std::fs::read_dir(directory.unwrap().path()).unwrap());
    std::fs::remove_file(containers.next().unwrap().unwrap().path()).unwrap();
    sandbox.run(&["-r", &to, "check"]).expect(1);
    let there = ["-r", &to];
    assert_eq!(sandbox.run(&copy).expect(0).message("summary")["copied"], 1);
    sandbox.run(&[&there[..], &["gc", "--wait", "0s"]].concat()).expect(0);
    sandbox.run(&[&there[..], &["check", "--read-data"]].concat()).expect(0);
    assert_eq!(sandbox.run(&copy).expect(0).message("summary")["present"], 1);
}

#[test]
fn what_cannot_be_copied_to_is_refused_in_a_sentence() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let same = sandbox.run(&["copy", "--to", &sandbox.arg("store")]).expect(1);
    assert!(same.stderr.contains("both are store"), "{}", same.stderr);
    let nothing = sandbox.run(&["copy", "--to", &sandbox.arg("nothing")]).expect(10);
    assert!(nothing.stderr.contains("the store to copy to"), "{}", nothing.stderr);
    assert!(nothing.stderr.contains("onefold init"), "{}", nothing.stderr);
    assert!(!sandbox.path("nothing").exists());
    let to = sandbox.arg("second");
    sandbox.run(&["-r", &to, "init", "--encryption", "none"]).expect(0);
    let little = sandbox.run(&["--memory", "95MiB", "copy", "--to", &to]).expect(1);
    assert!(little.stderr.contains("at least 96 MiB"), "{}", little.stderr);
    sandbox.run(&["--memory", "96MiB", "copy", "--to", &to]).expect(0);
}

/// The containers of a store, the largest first.
fn containers(store: &std::path::Path) -> Vec<std::path::PathBuf> {
    let shards = std::fs::read_dir(store.join("containers")).unwrap();
    let files = shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap());
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    files
}

/// A container of the second store was cut, damaged or removed; a check has noted it or not.
#[test]
fn r115_a_copy_that_is_not_whole_does_not_count_as_there() {
    let cut = |path: &std::path::Path| {
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1000).unwrap();
    };
    let damage = |path: &std::path::Path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let remove = |path: &std::path::Path| std::fs::remove_file(path).unwrap();
    type Loses<'a> = &'a dyn Fn(&std::path::Path);
    let losses: [(&str, Loses<'_>, bool); 4] = [
        ("cut", &cut, false),
        ("cut and noted", &cut, true),
        ("removed", &remove, false),
        ("damaged and noted", &damage, true),
    ];
    for (name, lose, is_noted) in losses {
        let sandbox = Sandbox::with_store();
        sandbox.write("source/large", &crate::collecting::random_bytes(1, 400_000));
        sandbox.backup(&[]);
        let to = sandbox.arg("second");
        sandbox.run(&["-r", &to, "init", "--encryption", "none"]).expect(0);
        sandbox.run(&["copy", "--to", &to]).expect(0);
        lose(&containers(&sandbox.path("second"))[0]);
        if is_noted {
            sandbox.run(&["-r", &to, "check", "--read-data"]).expect(1);
        }
        // One that is there already, and one that has most in common with it.
        sandbox.write("source/new.txt", b"new\n");
        sandbox.backup(&[]);
        let run = sandbox.run(&["copy", "--to", &to]);
        assert!(run.code == 0 || run.code == 3, "{name}: {}", run.stderr);
        let list = sandbox.run(&["-r", &to, "--json", "snapshots"]).expect(0);
        for (number, snapshot) in list.messages("snapshot").iter().enumerate() {
            let out = sandbox.arg(&format!("out{number}"));
            let id = snapshot["id"].as_str().unwrap();
            let run = sandbox.run(&["-r", &to, "restore", id, "--target", &out]);
            assert_eq!(run.code, 0, "{name}: {}", run.stderr);
        }
        let check = sandbox.run(&["-r", &to, "check", "--read-data"]);
        assert_eq!(check.code, 0, "{name}: {}{}", check.stdout, check.stderr);
        let again = sandbox.run(&["--json", "copy", "--to", &to]).message("summary");
        assert_eq!((&again["copied"], &again["present"]), (&0.into(), &2.into()), "{name}");
    }
}

/// As it may be cut: by what nobody sees in its length.
#[test]
fn r115_a_container_of_full_size_that_was_cut_does_not_count_as_there() {
    let sandbox = Sandbox::with_store();
    sandbox.write("source/large", &crate::collecting::random_bytes(1, 400_000));
    sandbox.backup(&[]);
    let to = sandbox.arg("second");
    let small = ["-r", &to, "init", "--encryption", "none", "--container-size", "64KiB"];
    sandbox.run(&small).expect(0);
    sandbox.run(&["copy", "--to", &to]).expect(0);
    let mut options = std::fs::File::options();
    let largest = options.write(true).open(&containers(&sandbox.path("second"))[0]).unwrap();
    let whole = largest.metadata().unwrap().len();
    assert!(whole > 64 << 10, "{whole}");
    largest.set_len(whole - 1).unwrap();
    let run = sandbox.run(&["copy", "--to", &to]);
    assert!(run.code == 0 || run.code == 3, "{}", run.stderr);
    sandbox.run(&["-r", &to, "restore", "latest", "--target", &sandbox.arg("out")]).expect(0);
}

/// What is said of a snapshot after it was copied is not copied, and nothing there is brought back.
#[test]
fn r162_copies_that_are_hidden_or_said_otherwise_are_told() {
    let sandbox = Sandbox::with_source();
    let snapshots: Vec<String> = (0..4)
        .map(|number| {
            sandbox.write("source/number", &[number]);
            sandbox.backup(&["--tag", "a,b"])
        })
        .collect();
    let to = sandbox.arg("second");
    let there = ["-r", &to];
    sandbox.run(&[&there[..], &["init", "--encryption", "none"]].concat()).expect(0);
    let copy = ["copy", "--to", &to];
    for _ in 0..2 {
        let told = sandbox.run(&copy).expect(0).stderr;
        assert!(!told.contains("there already"), "{told}");
    }
    let copies: Vec<String> = {
        let list = sandbox.run(&[&there[..], &["--json", "snapshots"]].concat()).expect(0);
        list.messages("snapshot").iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    sandbox.run(&["tag", "--add", "keep", &snapshots[0]]).expect(0);
    sandbox.run(&["describe", &snapshots[1], "a note"]).expect(0);
    sandbox.run(&["hold", &snapshots[2]]).expect(0);
    // The order of tags means nothing.
    sandbox.run(&["tag", "--set", "b,a", &snapshots[3]]).expect(0);
    sandbox.run(&[&there[..], &["forget", &copies[3]]].concat()).expect(0);
    for more in [&[][..], &["--dry-run"]] {
        let told = sandbox.run(&[&copy[..], more].concat()).expect(0);
        for words in ["1 snapshot there already is hidden", "undelete", "3 snapshots", "tag'"] {
            assert!(told.stderr.contains(words), "{words}: {}", told.stderr);
        }
        let json = sandbox.run(&[&["--json"], &copy[..], more].concat()).expect(0);
        let summary = json.message("summary");
        assert_eq!(
            (&summary["present"], &summary["hidden"], &summary["said_otherwise"]),
            (&4.into(), &1.into(), &3.into())
        );
        for line in json.messages("snapshot") {
            let is_last = line["snapshot"] == *snapshots[3];
            assert_eq!(
                (&line["hidden"], &line["said_otherwise"]),
                (&is_last.into(), &(!is_last).into())
            );
        }
    }
    // Nothing there is another than before.
    let list = sandbox.run(&[&there[..], &["--json", "snapshots"]].concat()).expect(0);
    let list = list.messages("snapshot");
    assert_eq!(list.len(), 3);
    assert!(list.iter().all(|it| it["tags"] == serde_json::json!(["a", "b"])), "{list:?}");
}
