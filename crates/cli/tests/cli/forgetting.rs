//! Forgetting by name and by policy, refusals, and the way back.

use crate::collecting::random_bytes;
use crate::support::Sandbox;

/// A store with one snapshot a day, oldest first.
fn with_days(days: u32) -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::with_source();
    let ids = (1..=days).map(|day| {
        let time = format!("2026-03-{day:02}T12:00:00Z");
        sandbox.backup(&["--time", &time])
    });
    let ids = ids.collect();
    (sandbox, ids)
}

#[test]
fn r49_without_names_and_policy_nothing_is_forgotten() {
    let (sandbox, ids) = with_days(2);
    for arguments in [
        vec!["forget"],
        vec!["forget", "--host", "web1"],
        vec!["forget", "--keep-last", "0"],
        vec!["forget", "--keep-within", "0d"],
        vec!["forget", "--keep-last", "-3"],
        vec!["forget", "--keep-dayly", "3"],
        vec!["forget", "--keep-last", "1", &ids[0]],
        vec!["forget", "nonexistent"],
        vec!["forget", &ids[0], "abcdefabcdefabcdef"],
    ] {
        let run = sandbox.run(&arguments);
        assert_eq!(run.code, 1, "{arguments:?}: {}", run.stdout);
        assert_eq!(sandbox.ids(&[]), ids, "{arguments:?}");
    }
}

#[test]
fn r49_a_group_is_never_emptied_unasked() {
    let (sandbox, ids) = with_days(2);
    let policy = ["forget", "--keep-tag", "no-such-tag"];
    let run = sandbox.run(&policy).expect(1);
    assert!(run.stderr.contains("nothing was forgotten"), "{}", run.stderr);
    assert_eq!(sandbox.ids(&[]), ids);
    sandbox.run(&["forget", "--keep-tag", "no-such-tag", "--allow-empty-group"]).expect(0);
    assert!(sandbox.ids(&[]).is_empty());
    let restored: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut arguments = vec!["undelete"];
    arguments.extend(&restored);
    sandbox.run(&arguments).expect(0);
    assert_eq!(sandbox.ids(&[]), ids);
}

#[test]
fn r27_forgetting_that_fails_half_way_says_what_is_forgotten() {
    let (sandbox, ids) = with_days(3);
    let planted = sandbox.path(&format!("store/tombstones/{}", ids[1]));
    std::fs::create_dir_all(&planted).unwrap();
    let run = sandbox.run(&["forget", "--final", &ids[0], &ids[1], &ids[2]]).expect(1);
    let told = format!("1 of 3 snapshots are forgotten for good all the same ({})", &ids[0][..8]);
    assert!(run.stderr.contains(&told), "{}", run.stderr);
    std::fs::remove_dir(planted).unwrap();
    sandbox.run(&["forget", "--final", &ids[0], &ids[1], &ids[2]]).expect(0);
    assert!(sandbox.ids(&[]).is_empty());
}

#[test]
fn policies_keep_with_reasons() {
    let (sandbox, ids) = with_days(5);
    let dry = sandbox.run(&["forget", "--keep-daily", "2", "-n"]).expect(0);
    assert!(dry.stdout.contains("would forget 3 snapshots"), "{}", dry.stdout);
    assert!(dry.stdout.contains("daily"), "{}", dry.stdout);
    assert_eq!(sandbox.ids(&[]), ids);
    let run = sandbox.run(&["--json", "forget", "--keep-daily", "2"]).expect(0);
    let decisions = run.messages("decision");
    assert_eq!(decisions.len(), 5);
    let kept = decisions.iter().filter(|decision| decision["keep"] == true);
    assert!(kept.clone().count() == 2 && kept.clone().all(|d| d["reasons"][0] == "daily snapshot"));
    assert_eq!(run.message("summary")["forgotten"].as_array().unwrap().len(), 3);
    assert_eq!(sandbox.ids(&[]), ids[3..]);
    assert_eq!(sandbox.ids(&["--all"]), ids);
}

#[test]
fn hidden_snapshots_come_back_and_forgotten_ones_do_not() {
    let (sandbox, ids) = with_days(3);
    let run = sandbox.run(&["forget", &ids[0]]).expect(0);
    assert!(run.stdout.contains("undelete"), "{}", run.stdout);
    let run = sandbox.run(&["ls", &ids[0]]).expect(1);
    assert!(run.stderr.contains("undelete"), "{}", run.stderr);
    sandbox.run(&["undelete", &ids[0][..12]]).expect(0);
    sandbox.run(&["ls", &ids[0]]).expect(0);
    let run = sandbox.run(&["undelete", &ids[0]]).expect(3);
    assert!(run.stderr.contains("not hidden"), "{}", run.stderr);
    sandbox.run(&["forget", "--final", &ids[0]]).expect(0);
    sandbox.run(&["undelete", &ids[0]]).expect(1);
    assert_eq!(sandbox.ids(&["--all"]), ids[1..]);
    // What is hidden can still be forgotten for good.
    sandbox.run(&["forget", &ids[1]]).expect(0);
    sandbox.run(&["forget", "--final", &ids[1]]).expect(0);
    assert_eq!(sandbox.ids(&["--all"]), ids[2..]);
}

#[test]
fn a_snapshot_on_hold_stays() {
    let sandbox = Sandbox::with_source();
    let held = sandbox.backup(&["--hold", "--time", "2026-01-01 00:00:00"]);
    let other = sandbox.backup(&[]);
    sandbox.run(&["forget", &held]).expect(1);
    sandbox.run(&["forget", "--keep-last", "1"]).expect(0);
    assert_eq!(sandbox.ids(&[]), [held, other]);
}

/// A store whose snapshots each hold something of their own, and how much its containers take.
fn with_content(count: u32) -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::with_source();
    let ids = (1..=count).map(|number| {
        let mut state = number;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        sandbox.write("source/noise", &noise.take(300_000).collect::<Vec<u8>>());
        sandbox.backup(&["--time", &format!("2026-03-{number:02}T12:00:00Z")])
    });
    let ids = ids.collect();
    (sandbox, ids)
}

fn bytes_stored(sandbox: &Sandbox) -> u64 {
    let run = sandbox.run(&["--json", "stats"]).expect(0);
    run.message("statistics")["bytes_containers"].as_u64().unwrap()
}

#[test]
fn r86_hidden_snapshots_are_told_where_space_is_asked_for() {
    let (sandbox, _) = with_content(3);
    let before = bytes_stored(&sandbox);
    for arguments in [&["gc"][..], &["maintain"], &["stats"]] {
        assert!(!sandbox.run(arguments).expect(0).stdout.contains("hidden"));
    }
    let told = sandbox.run(&["forget", "--keep-last", "1"]).expect(0).stdout;
    assert!(told.contains("--forget-hidden"), "{told}");
    for arguments in [&["gc"][..], &["gc", "--dry-run"], &["maintain"], &["stats"]] {
        let told = sandbox.run(arguments).expect(0).stdout;
        assert!(told.contains("2 snapshots are hidden since 20"), "{arguments:?}: {told}");
        assert!(told.contains("onefold gc --forget-hidden"), "{arguments:?}: {told}");
    }
    for (command, message) in [("gc", "summary"), ("maintain", "summary"), ("stats", "statistics")]
    {
        let hidden = sandbox.run(&["--json", command]).expect(0).message(message)["hidden"].clone();
        assert_eq!(hidden["snapshots"], 2, "{command}");
        assert!(hidden["since"].as_str().unwrap().starts_with("20"), "{hidden}");
        assert!(hidden["bytes_stored"].as_u64().unwrap() > 300_000, "{hidden}");
    }
    // What the message says is what works.
    let told = sandbox.run(&["gc", "--forget-hidden", "0s", "--space-goal", "all"]).expect(0);
    assert!(!told.stdout.contains("are hidden"), "{}", told.stdout);
    assert!(bytes_stored(&sandbox) + 500_000 < before);
}

#[test]
fn r86_what_only_hidden_snapshots_need_is_what_forgetting_them_frees() {
    let sandbox = Sandbox::with_store();
    // Which of three snapshots has which file; the last stays visible.
    let sizes = [("all", 500_000), ("two", 400_000), ("first", 300_000), ("second", 200_000)];
    let of = [&["all", "two", "first"][..], &["all", "two", "second"], &["all"]];
    let mut ids = Vec::new();
    for names in of {
        let _ = std::fs::remove_dir_all(sandbox.path("source"));
        for (seed, (name, length)) in (1..).zip(sizes) {
            if names.contains(&name) {
                sandbox.write(&format!("source/{name}"), &random_bytes(seed, length));
            }
        }
        ids.push(sandbox.backup(&["--compression", "none", "--rewrite", "none"]));
    }
    let only = || {
        let run = sandbox.run(&["--json", "stats", "--hidden"]).expect(0);
        run.message("statistics")["hidden"]["only"].clone()
    };
    assert_eq!(only()["bytes"], 0);
    // Hidden one by one: what both need alone shows when both are hidden.
    sandbox.run(&["forget", &ids[0]]).expect(0);
    let (first, nodes_max) = (only()["bytes"].as_u64().unwrap(), 20_000);
    assert!((300_000..300_000 + nodes_max).contains(&first), "{first}");
    sandbox.run(&["forget", &ids[1]]).expect(0);
    let both = only();
    let needed = both["bytes"].as_u64().unwrap();
    assert!((900_000..900_000 + nodes_max).contains(&needed), "{both}");
    assert_eq!(both["snapshots"], 2);
    let told = sandbox.run(&["stats", "--hidden"]).expect(0).stdout;
    assert!(told.contains("only they need") && told.contains("a collection frees"), "{told}");
    let told = sandbox.run(&["stats"]).expect(0).stdout;
    assert!(told.contains("'onefold stats --hidden'"), "{told}");
    let plain = sandbox.run(&["--json", "stats"]).expect(0).message("statistics");
    assert!(plain["hidden"]["only"].is_null(), "{plain}");
    // On hold it stays, and what both share with it.
    sandbox.run(&["hold", &ids[0]]).expect(0);
    let one = only()["bytes"].as_u64().unwrap();
    assert!((200_000..200_000 + nodes_max).contains(&one), "{one}");
    sandbox.run(&["release", &ids[0]]).expect(0);
    assert_eq!(only(), both);
    let arguments = ["--json", "gc", "--forget-hidden", "0s", "--space-goal", "all"];
    let summary = sandbox.run(&arguments).expect(0).message("summary");
    let freed = summary["freed_bytes"].as_u64().unwrap();
    // Stored bytes go by shares of containers, and each new container has a header of its own.
    let stored = both["bytes_stored"].as_u64().unwrap();
    let containers = summary["deleted_containers"].as_u64().unwrap() + 1;
    assert!(freed.abs_diff(stored) <= containers * 8192, "freed {freed}, foretold {stored}");
    assert!(freed.abs_diff(needed) <= containers * 8192, "freed {freed}, needed {needed}");
    assert_eq!(only()["bytes"], 0);
    sandbox.run(&["check", "--read-data"]).expect(0);
}

#[test]
fn r86_a_final_policy_forgets_what_was_hidden_before() {
    let (sandbox, ids) = with_content(4);
    // The second to last was hidden by hand, and the policy would keep it.
    sandbox.run(&["forget", "--keep-last", "2"]).expect(0);
    sandbox.run(&["forget", &ids[2]]).expect(0);
    let dry = sandbox.run(&["forget", "--keep-last", "2", "--final", "-n"]).expect(0).stdout;
    assert!(dry.contains("would forget 2 snapshots"), "{dry}");
    let run = sandbox.run(&["--json", "forget", "--keep-last", "2", "--final"]).expect(0);
    let forgotten = serde_json::json!([ids[1], ids[0]]);
    assert_eq!(run.message("summary")["forgotten"], forgotten);
    assert_eq!(sandbox.ids(&[]), ids[3..]);
    sandbox.run(&["undelete", &ids[0]]).expect(1);
    sandbox.run(&["undelete", &ids[2]]).expect(0);
    assert_eq!(sandbox.ids(&[]), ids[2..]);
}

#[test]
fn r86_pruning_forgets_and_frees_in_one_command() {
    let (sandbox, ids) = with_content(3);
    let before = bytes_stored(&sandbox);
    sandbox.run(&["forget", "--keep-last", "1", "--prune", "--dry-run"]).expect(0);
    assert_eq!((sandbox.ids(&[]).len(), bytes_stored(&sandbox)), (3, before));
    sandbox.run(&["forget", &ids[0], "--prune"]).expect(0);
    let after_one = bytes_stored(&sandbox);
    assert!(after_one + 250_000 < before, "{after_one} of {before}");
    let run = sandbox.run(&["--json", "forget", "--keep-last", "1", "--prune"]).expect(0);
    assert_eq!(run.message("summary")["final"], true);
    assert!(run.message("collection")["freed_bytes"].as_u64().unwrap() > 250_000);
    assert!(bytes_stored(&sandbox) + 250_000 < after_one);
    sandbox.run(&["check", "--read-data"]).expect(0);
}

#[test]
fn r86_profiles_hold_what_a_timer_needs() {
    let (sandbox, ids) = with_content(3);
    sandbox.write(
        "profiles.toml",
        b"[profile.default.forget]\nkeep-last = 1\nfinal = true\n\
          [profile.default.gc]\nspace-goal = 'all'\nforget-hidden = '0s'\nwait = '1m'\n\
          [profile.default.maintain]\nforget-hidden = '30d'\ncheck-sample = '100%'\n\
          max-duration = '1h'\nmax-cpu = '100%'\n\
          [profile.pruning.forget]\nkeep-last = 1\nprune = true\n",
    );
    let run = |arguments: &[&str]| {
        let mut all = vec!["--config", "profiles.toml"];
        all.extend(arguments);
        sandbox.run(&all).expect(0)
    };
    // Who names a snapshot says whether it is for good.
    run(&["forget", &ids[0]]);
    run(&["undelete", &ids[0]]);
    run(&["forget", &ids[0]]);
    let told = run(&["maintain"]).stdout;
    assert!(told.contains("1 snapshot is hidden") && !told.contains(" 0 of them read"), "{told}");
    let before = bytes_stored(&sandbox);
    run(&["gc"]);
    assert!(bytes_stored(&sandbox) + 250_000 < before);
    let told = run(&["--profile", "pruning", "forget"]).stdout;
    assert!(told.contains("freed"), "{told}");
    sandbox.write("source/noise", b"once more");
    sandbox.backup(&[]);
    let told = run(&["forget"]).stdout;
    assert!(told.contains("for good"), "{told}");
}

#[test]
fn what_is_told_of_hidden_snapshots_and_of_pruning_fits_what_is_done() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.backup(&[]);
    sandbox.write("source/one.txt", b"changed");
    sandbox.backup(&[]);
    sandbox.run(&["forget", &first]).expect(0);
    assert!(sandbox.run(&["gc"]).expect(0).stdout.contains("--forget-hidden 30d"));
    sandbox.run(&["hold", &first]).expect(0);
    // Nothing that 'gc' can be told frees what is on hold.
    let told = sandbox.run(&["gc"]).expect(0).stdout;
    assert!(!told.contains("--forget-hidden") && told.contains("onefold release"), "{told}");
    sandbox.run(&["release", &first]).expect(0);
    let told = sandbox.run(&["forget", &first, "--prune"]).expect(0).stdout;
    assert!(told.contains("for good") && !told.contains("later collection"), "{told}");
    sandbox.backup(&[]);
    let told = sandbox.run(&["forget", "--final", "latest"]).expect(0).stdout;
    assert!(told.contains("a later collection frees the space"), "{told}");
}

#[test]
fn a_mark_that_a_killed_forgetting_left_behind_goes_with_the_next_collection() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.backup(&[]);
    sandbox.write("source/one.txt", b"changed");
    sandbox.backup(&[]);
    sandbox.run(&["forget", &first]).expect(0);
    let marks = sandbox.path("store/marks");
    let files = || std::fs::read_dir(&marks).unwrap().map(|one| one.unwrap().path());
    let mark = files().next().unwrap();
    let bytes = std::fs::read(&mark).unwrap();
    sandbox.run(&["forget", "--final", &first]).expect(0);
    assert_eq!(files().count(), 0);
    // As if it had been killed before it removed the mark.
    std::fs::write(&mark, bytes).unwrap();
    assert_eq!(sandbox.ids(&["--all"]).len(), 1);
    sandbox.run(&["gc"]).expect(0);
    assert_eq!(files().count(), 0);
    sandbox.run(&["check"]).expect(0);
    assert!(sandbox.run(&["maintain"]).expect(0).stdout.contains("not due"));
}

#[test]
fn what_was_forgotten_for_good_in_part_can_be_repeated() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.backup(&[]);
    sandbox.write("source/one.txt", b"changed");
    let second = sandbox.backup(&[]);
    sandbox.run(&["forget", "--final", &first]).expect(0);
    for _ in 0..2 {
        sandbox.run(&["forget", "--final", &first, &second]).expect(0);
        sandbox.run(&["gc"]).expect(0);
        assert!(sandbox.ids(&["--all"]).is_empty());
    }
    // What never was is told, and hides nothing.
    let never = "0".repeat(32);
    sandbox.run(&["forget", "--final", &never]).expect(1);
    sandbox.run(&["forget", &first]).expect(1);
}
