//! Records that a newer version put into the store: no command takes them for damage (R81).
//!
//! Each record opens under its seal, so it is authentic; only its version is not ours. Whoever
//! needs it stops and says that a newer program is needed; nobody removes it or what it is about.

use crate::support::Sandbox;
use onefold_crypto::{OsRandomness, Purpose, Vault};
use onefold_format::layout::{self, ChangeName};
use onefold_format::record::{self, Epoch, RECORD_VERSION};
use onefold_types::{CheckpointId, ContainerId, DoubtId, MarkId, PlanId, SessionId};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const COMMANDS: [&[&str]; 6] = [
    &["snapshots", "--all"],
    &["check"],
    &["backup", "source"],
    &["restore", "latest", "--target", "restored"],
    &["gc", "--space-goal=100%"],
    &["maintain"],
];

fn newer_record() -> String {
    format!("{{\"version\":{},\"more\":{{\"of\":\"it\"}}}}", RECORD_VERSION + 1)
}

/// Puts a sealed record at `name`, as nobody but a holder of the key can.
fn put(sandbox: &Sandbox, name: &str, purpose: Purpose, sealed_as: [u8; 16], record: &[u8]) {
    let vault = Vault::new(None);
    let sealed = vault.seal_record(purpose, &sealed_as, record, &OsRandomness).unwrap();
    sandbox.write(&format!("store/{name}"), &sealed);
}

fn put_newer(sandbox: &Sandbox, name: &str, purpose: Purpose, sealed_as: [u8; 16]) {
    put(sandbox, name, purpose, sealed_as, newer_record().as_bytes());
}

fn names(sandbox: &Sandbox, place: &str) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("store").join(place)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All files of the store but its own working space.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() && name != "tmp" {
                directories.push(path);
            } else if path.is_file() && name != "reserve" {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Runs every command on stores to which `prepare` adds something newer: none calls it damaged, and
/// none removes anything. The commands of `refuse` say that it is newer, the others succeed.
fn no_command_takes_it_for_damage(refuse: &[&str], prepare: impl Fn(&Sandbox)) {
    for command in COMMANDS {
        let sandbox = Sandbox::with_source();
        sandbox.backup(&[]);
        prepare(&sandbox);
        let before = files(&sandbox.path("store"));
        let run = sandbox.run(&[&["--json"], command].concat());
        let said = format!("{command:?}: {}\n{}\n{}", run.code, run.stdout, run.stderr);
        assert!(!run.stderr.contains("\"damaged\""), "{said}");
        if refuse.contains(&command[0]) {
            assert_eq!(run.code, 1, "{said}");
            assert!(run.stderr.contains("\"newer-format\""), "{said}");
        } else {
            assert_eq!(run.code, 0, "{said}");
        }
        let after = files(&sandbox.path("store"));
        let lost: Vec<_> = before.keys().filter(|path| !after.contains_key(*path)).collect();
        assert!(lost.is_empty(), "{lost:?} {said}");
    }
}

const EVERY: [&str; 6] = ["snapshots", "check", "backup", "restore", "gc", "maintain"];

fn only_snapshot(sandbox: &Sandbox) -> SessionId {
    sandbox.ids(&[])[0].parse().unwrap()
}

#[test]
fn r81_outcomes_of_a_newer_version() {
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        let id = SessionId([7; 16]);
        put_newer(sandbox, &layout::outcome(id), Purpose::Outcome, id.0);
    });
}

#[test]
fn r81_tombstones_of_a_newer_version_delete_nothing() {
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        let id = only_snapshot(sandbox);
        put_newer(sandbox, &layout::tombstone(id), Purpose::Tombstone, id.0);
    });
}

#[test]
fn r81_marks_and_fates_of_a_newer_version() {
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        let (id, mark) = (only_snapshot(sandbox), MarkId([9; 16]));
        put_newer(sandbox, &layout::mark(id, mark), Purpose::Mark, mark.0);
    });
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        sandbox.run(&["forget", &sandbox.ids(&[])[0]]).expect(0);
        let (_, mark) = layout::mark_of(&names(sandbox, "marks")[0]).unwrap();
        put_newer(sandbox, &layout::fate(mark), Purpose::Fate, mark.0);
    });
}

#[test]
fn r81_changes_of_a_newer_version_forget_and_release_nothing() {
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        let name = ChangeName { snapshot: only_snapshot(sandbox), number: 1 };
        put_newer(sandbox, &layout::change(name), Purpose::Change, name.sealed_as());
    });
}

#[test]
fn r81_checkpoints_of_a_newer_version() {
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        let id = CheckpointId([4; 16]);
        put_newer(sandbox, &layout::checkpoint(id), Purpose::Checkpoint, id.0);
    });
}

#[test]
fn r81_quarantine_and_doubts_of_a_newer_version_stay() {
    no_command_takes_it_for_damage(&[], |sandbox| {
        let container = newest_container(sandbox);
        put_newer(sandbox, &layout::damage(container), Purpose::Damage, container.0);
    });
    no_command_takes_it_for_damage(&[], |sandbox| {
        let id = DoubtId([5; 16]);
        put_newer(sandbox, &layout::doubt(id), Purpose::Doubt, id.0);
    });
}

#[test]
fn r81_sessions_of_a_newer_version_are_waited_for() {
    no_command_takes_it_for_damage(&["gc", "maintain"], |sandbox| {
        let id = SessionId([6; 16]);
        put_newer(sandbox, &layout::session_announced(id), Purpose::Session, id.0);
    });
}

#[test]
fn r81_epochs_and_plans_of_a_newer_version() {
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        put_newer(sandbox, &layout::epoch(1), Purpose::Plan, numbered(1));
    });
    no_command_takes_it_for_damage(&EVERY, |sandbox| {
        let plan = PlanId([8; 16]);
        put_newer(sandbox, &layout::plan(plan), Purpose::Plan, plan.0);
        let epoch = record::encode(&Epoch { plan }).unwrap();
        put(sandbox, &layout::epoch(1), Purpose::Plan, numbered(1), &epoch);
    });
}

fn newest_container(sandbox: &Sandbox) -> ContainerId {
    let directories = names(sandbox, "containers");
    let all = directories.iter().flat_map(|two| names(sandbox, &format!("containers/{two}")));
    all.max().unwrap().parse().unwrap()
}

/// What an epoch of this number is sealed as.
fn numbered(number: u64) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&number.to_le_bytes());
    name
}

#[test]
fn r81_choices_of_a_newer_version_in_the_configuration() {
    for (ours, theirs) in [
        ("\"none\"", "\"aes-512\""),
        ("\"blake3\"", "\"blake9\""),
        ("\"mincdc\"", "\"maxcdc\""),
        ("\"zstd,2\"", "\"brotli,1\""),
    ] {
        let sandbox = Sandbox::with_source();
        sandbox.backup(&[]);
        for name in ["store/config", "store/config.copy"] {
            let text = fs::read_to_string(sandbox.path(name)).unwrap();
            assert_eq!(text.matches(ours).count(), 1, "{ours} in {text}");
            sandbox.write(name, text.replace(ours, theirs).as_bytes());
        }
        let before = files(&sandbox.path("store"));
        for command in COMMANDS {
            let run = sandbox.run(&[&["--json"], command].concat()).expect(1);
            assert!(run.stderr.contains("\"newer-format\""), "{theirs}: {}", run.stderr);
        }
        assert_eq!(files(&sandbox.path("store")), before);
    }
}
