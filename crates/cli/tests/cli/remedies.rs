//! What a message tells the user to do is done to the letter here, and must help: a store that was
//! damaged in some way is not blocked for ever, and nothing is given up that need not be.

use crate::support::Sandbox;
use std::fs;
use std::path::PathBuf;

/// Both copies of a decision.
fn both(sandbox: &Sandbox, name: &str) -> [PathBuf; 2] {
    [sandbox.path(&format!("store/{name}")), sandbox.path(&format!("store/copies/{name}"))]
}

fn remove_both(sandbox: &Sandbox, name: &str) {
    both(sandbox, name).iter().for_each(|path| fs::remove_file(path).unwrap());
}

fn rot_both(sandbox: &Sandbox, name: &str) {
    for path in both(sandbox, name) {
        let mut bytes = fs::read(&path).unwrap();
        bytes[20] ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

fn lose_records(sandbox: &Sandbox) {
    for name in ["outcomes", "copies", "tombstones", "plans", "marks", "epochs", "sweeps"] {
        let _ = fs::remove_dir_all(sandbox.path("store").join(name));
    }
}

fn containers(sandbox: &Sandbox) -> Vec<PathBuf> {
    let shards = fs::read_dir(sandbox.path("store/containers")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

/// Three snapshots, each with a file of its own.
fn three_snapshots() -> (Sandbox, [String; 3]) {
    let sandbox = Sandbox::with_source();
    let ids = [1u8, 2, 3].map(|number| {
        sandbox.write("source/own", &vec![number; 30_000]);
        sandbox.backup(&[])
    });
    (sandbox, ids)
}

/// Collection, check and maintenance go, and the snapshots that are listed can be restored.
fn assert_well(sandbox: &Sandbox) {
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    sandbox.run(&["check", "--read-data"]).expect(0);
    sandbox.run(&["maintain"]).expect(0);
    for (number, id) in sandbox.ids(&[]).iter().enumerate() {
        let target = sandbox.arg(&format!("out-{number}-{id}"));
        sandbox.run(&["restore", id, "--target", &target]).expect(0);
    }
}

#[test]
fn r66_maintenance_mends_packs_that_are_damaged() {
    let emptied: fn(&mut Vec<u8>) = Vec::clear;
    let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() - 1);
    let flipped: fn(&mut Vec<u8>) = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    for damage in [emptied, cut, flipped] {
        let (sandbox, _) = three_snapshots();
        let mut packs = fs::read_dir(sandbox.path("store/metadata")).unwrap();
        let pack = packs.next().unwrap().unwrap().path();
        let mut bytes = fs::read(&pack).unwrap();
        damage(&mut bytes);
        fs::write(&pack, bytes).unwrap();
        sandbox.run(&["check"]).expect(1);
        let said = sandbox.run(&["maintain"]).expect(0).stdout;
        assert!(said.contains("copies of metadata"), "{said}");
        sandbox.run(&["check"]).expect(0);
        assert_well(&sandbox);
    }
}

#[test]
fn r59_a_backup_after_all_records_were_lost_does_not_hide_the_loss() {
    let (sandbox, _) = three_snapshots();
    sandbox.run(&["forget", "latest", "--final"]).expect(0);
    sandbox.run(&["gc"]).expect(0);
    sandbox.backup(&[]);
    let before = containers(&sandbox).len();
    lose_records(&sandbox);
    let run = sandbox.run(&["backup", &sandbox.arg("source")]).expect(0);
    assert!(run.stderr.contains("their records were lost"), "{}", run.stderr);
    let new = sandbox.backup(&[]);
    for command in [&["gc"][..], &["gc", "--space-goal", "all"], &["maintain"], &["check"]] {
        sandbox.run(command).expect(1);
    }
    // Not even if what noticed the loss is forgotten.
    for id in sandbox.ids(&[]) {
        sandbox.run(&["forget", &id, "--final"]).expect(0);
    }
    assert!(!sandbox.ids(&["--all"]).contains(&new));
    let refused = sandbox.run(&["gc", "--space-goal", "all"]).expect(1);
    assert!(refused.stderr.contains("--allow-empty"), "{}", refused.stderr);
    assert!(containers(&sandbox).len() >= before, "nothing was deleted");
    // What a check finds is recovered; what is not is given up.
    let trees = sandbox.run(&["--json", "check"]).expect(1).messages("lost_tree");
    assert!(trees.len() >= 2, "{trees:?}");
    sandbox.run(&["recover", trees[0]["tree"].as_str().unwrap()]).expect(0);
    sandbox.run(&["gc"]).expect(1);
    sandbox.run(&["gc", "--allow-empty", "--space-goal", "all"]).expect(0);
    assert_well(&sandbox);
    assert_eq!(sandbox.ids(&[]).len(), 1);
}

#[test]
fn r59_all_trees_are_found_although_nothing_tells_of_any_record() {
    let (sandbox, ids) = three_snapshots();
    lose_records(&sandbox);
    let trees = sandbox.run(&["--json", "check"]).expect(1).messages("lost_tree");
    assert_eq!(trees.len(), ids.len(), "{trees:?}");
    assert!(trees.iter().all(|tree| tree["whole"] == true));
    for tree in &trees {
        sandbox.run(&["recover", tree["tree"].as_str().unwrap()]).expect(0);
    }
    sandbox.run(&["gc"]).expect(1);
    sandbox.run(&["gc", "--allow-empty"]).expect(0);
    assert_well(&sandbox);
    assert_eq!(sandbox.ids(&[]).len(), 3);
}

#[test]
fn r59_a_record_that_a_plan_knew_is_missed_however_many_come_after() {
    let (sandbox, ids) = three_snapshots();
    sandbox.run(&["forget", &ids[0], "--final"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    remove_both(&sandbox, &format!("outcomes/{}", ids[2]));
    sandbox.backup(&[]);
    sandbox.backup(&["--force"]);
    for command in ["gc", "check"] {
        let run = sandbox.run(&[command]).expect(1);
        let said = [run.stdout, run.stderr].concat();
        assert!(said.contains(&format!("forget --give-up {}", ids[2])), "{said}");
    }
    sandbox.run(&["forget", "--give-up", &ids[2]]).expect(0);
    assert_well(&sandbox);
}

#[test]
fn r66_a_missing_record_of_what_was_forgotten_can_be_given_up() {
    let (sandbox, ids) = three_snapshots();
    sandbox.run(&["forget", &ids[0], "--final"]).expect(0);
    remove_both(&sandbox, &format!("outcomes/{}", ids[0]));
    let run = sandbox.run(&["gc"]).expect(1);
    assert!(run.stderr.contains(&format!("forget --give-up {}", ids[0])), "{}", run.stderr);
    sandbox.run(&["forget", "--give-up", &ids[0]]).expect(0);
    assert_well(&sandbox);
    assert_eq!(sandbox.ids(&[]), ids[1..]);
}

#[test]
fn r61_a_rotten_tombstone_that_a_plan_knew_is_made_anew_by_a_check() {
    let (sandbox, ids) = three_snapshots();
    sandbox.run(&["forget", &ids[0], "--final"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    rot_both(&sandbox, &format!("tombstones/{}", ids[0]));
    let run = sandbox.run(&["check"]).expect(0);
    assert!(run.stdout.contains("tells it again"), "{}", run.stdout);
    assert_well(&sandbox);
    assert_eq!(sandbox.ids(&["--all"]), ids[1..]);
}

#[test]
fn r59_a_rotten_first_copy_is_made_anew_by_a_check() {
    let (sandbox, ids) = three_snapshots();
    sandbox.run(&["forget", &ids[0], "--final"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    let names = ["epochs/1".to_owned(), "sweeps/1".to_owned()];
    let more = [format!("outcomes/{}", ids[1]), format!("tombstones/{}", ids[0])];
    for name in names.iter().chain(&more) {
        let first = sandbox.path(&format!("store/{name}"));
        let sound = fs::read(&first).unwrap();
        fs::write(&first, b"").unwrap();
        sandbox.run(&["--read-only", "check"]).expect(1);
        let run = sandbox.run(&["check"]).expect(0);
        assert!(run.stdout.contains("it has two again"), "{}", run.stdout);
        assert_eq!(fs::read(&first).unwrap(), sound, "{name}");
    }
    assert_well(&sandbox);
}

/// What a damaged snapshot blocks goes on once it is given up, as the message says.
#[test]
fn r20_a_container_that_is_lost_for_good_blocks_collections_only_until_its_snapshots_go() {
    let (sandbox, ids) = three_snapshots();
    sandbox.run(&["forget", &ids[0], "--final"]).expect(0);
    let whole: Vec<PathBuf> = containers(&sandbox);
    for container in whole {
        let moved = sandbox.path("moved");
        fs::rename(&container, &moved).unwrap();
        let run = sandbox.run(&["gc", "--space-goal", "all"]);
        if run.code == 1 && run.stderr.contains("are damaged") {
            let line = run.stderr.lines().find(|line| line.contains("forget --final")).unwrap();
            let named = line.split("forget --final ").nth(1).unwrap().split('\'').next().unwrap();
            for id in named.split(' ') {
                sandbox.run(&["forget", "--final", id]).expect(0);
            }
            sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
            return;
        }
        fs::rename(&moved, &container).unwrap();
    }
    panic!("no container was needed to mark");
}

#[test]
fn r65_copies_and_what_is_over_are_no_reason_to_fail() {
    let (sandbox, ids) = three_snapshots();
    sandbox.run(&["forget", &ids[0], "--final"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    for entry in fs::read_dir(sandbox.path("store/metadata")).unwrap() {
        fs::write(entry.unwrap().path(), b"").unwrap();
    }
    let run = sandbox.run(&["check"]).expect(1);
    assert!(run.stdout.contains("'onefold gc' removes it"), "{}", run.stdout);
    sandbox.run(&["gc"]).expect(0);
    sandbox.run(&["check"]).expect(0);
    for name in ["epochs/1", "sweeps/1"] {
        rot_both(&sandbox, name);
        let run = sandbox.run(&["check"]).expect(0);
        assert!(run.stdout.contains("that epoch is over"), "{}", run.stdout);
    }
    // No pack can be written: a backup goes on without.
    fs::remove_dir_all(sandbox.path("store/metadata")).unwrap();
    fs::write(sandbox.path("store/metadata"), b"in the way").unwrap();
    sandbox.write("source/own", b"new");
    sandbox.backup(&[]);
    fs::remove_file(sandbox.path("store/metadata")).unwrap();
    assert_well(&sandbox);
}

#[test]
fn r65_what_stops_a_command_is_named_by_a_check() {
    for name in ["sessions", "finished", "plans"] {
        let (sandbox, _) = three_snapshots();
        let path = sandbox.path(&format!("store/{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::write(&path, b"in the way").unwrap();
        let run = sandbox.run(&["check"]).expect(1);
        assert!(run.stdout.contains(&format!("'{name}'")), "{}", run.stdout);
        fs::remove_file(&path).unwrap();
        assert_well(&sandbox);
    }
}

#[test]
fn r65_numbers_that_follow_no_epoch_change_nothing() {
    let (sandbox, ids) = three_snapshots();
    for number in ["18446744073709551615", "7", "3"] {
        for directory in ["epochs", "finished"] {
            sandbox.write(&format!("store/{directory}/{number}"), b"");
        }
    }
    sandbox.run(&["forget", &ids[0], "--final"]).expect(0);
    sandbox.backup(&[]);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    assert!(sandbox.path("store/epochs/1").metadata().unwrap().len() > 0, "the first one");
    sandbox.run(&["forget", &ids[1], "--final"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    let run = sandbox.run(&["snapshots"]).expect(0);
    assert!(run.stdout.contains(&ids[2][..8]), "{}", run.stdout);
    // They are named until they are gone: that an epoch is over is not believed either.
    let run = sandbox.run(&["check", "--read-data"]).expect(1);
    for number in ["18446744073709551615", "7", "3"] {
        assert!(run.stdout.contains(&format!("'epochs/{number}'")), "{}", run.stdout);
        for directory in ["epochs", "finished"] {
            fs::remove_file(sandbox.path(&format!("store/{directory}/{number}"))).unwrap();
        }
    }
    sandbox.run(&["check", "--read-data"]).expect(0);
}
