//! `client audit`: what a client whose token was stolen has put, and what of it is taken away
//! without harm.

use crate::collecting::random_bytes;
use crate::serving::{INIT, Server, client, connect, prepared, run};
use crate::support::{Run, Sandbox, holds};
use onefold_store::{Blobs as _, Key};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of all objects of the store.
fn objects(sandbox: &Sandbox) -> BTreeSet<String> {
    fn below(directory: &Path, above: &str, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let name = format!("{above}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => below(&entry.path(), &format!("{name}/"), names),
                false => drop(names.insert(name)),
            }
        }
    }
    let mut names = BTreeSet::new();
    below(&sandbox.path("store"), "", &mut names);
    names.retain(|name| !name.starts_with("tmp/") && name != "reserve");
    names
}

fn audit(sandbox: &Sandbox, name: &str, more: &[&str]) -> Run {
    let usual = ["--json", "client", "audit", name, "store"];
    sandbox.run(&[&usual[..], more].concat())
}

fn keys(run: &Run) -> BTreeSet<String> {
    run.messages("put").iter().map(|put| put["key"].as_str().unwrap().to_owned()).collect()
}

/// A store that is served, into which a thief has put something.
struct Robbed {
    sandbox: Sandbox,
    server: Server,
    /// What the thief has put.
    put: BTreeSet<String>,
    /// Those of them that lie.
    junk: BTreeSet<String>,
    /// The thief's snapshot.
    stolen: String,
    /// An honest one, which relies on what the thief has put, and what is in it.
    kept: (String, Vec<u8>),
}

fn robbed() -> Robbed {
    let (sandbox, all) = prepared(&["store"]);
    let [honest, thief] =
        ["honest", "thief"].map(|name| client(&sandbox, name, "read,append", &[]));
    let server = Server::with_certificate(&sandbox, &["store"]);
    let store = server.store("store");
    let save = |token: &str, sources: &[&str]| {
        let sources: Vec<String> = sources.iter().map(|name| sandbox.arg(name)).collect();
        let sources = sources.iter().map(String::as_str);
        let arguments: Vec<&str> = ["--json", "backup"].into_iter().chain(sources).collect();
        let saved = run(&sandbox, &store, token, &arguments).expect(0);
        saved.message("summary")["snapshot"].as_str().unwrap().to_owned()
    };
    run(&sandbox, &store, &all, &INIT).expect(0);
    save(&honest, &["source"]);
    let bytes = random_bytes(7, 400_000);
    sandbox.write("planted/file", &bytes);
    let before = objects(&sandbox);
    let stolen = save(&thief, &["planted"]);
    let mut put = &objects(&sandbox) - &before;
    let kept = (save(&honest, &["source", "planted"]), bytes);
    let before = objects(&sandbox);
    let direct = connect(&store, &thief);
    for name in ["metadata", "index"] {
        let key = Key::new(format!("{name}/{}", "f".repeat(32))).unwrap();
        direct.put(&key, b"it lies").unwrap();
    }
    let junk = &objects(&sandbox) - &before;
    assert_eq!(junk.len(), 2);
    put.extend(junk.iter().cloned());
    Robbed { sandbox, server, put, junk, stolen, kept }
}

#[test]
fn what_a_client_has_put_and_is_there_is_listed() {
    let Robbed { sandbox, server, put, junk, .. } = robbed();
    let listed = audit(&sandbox, "thief", &[]).expect(0);
    assert_eq!(keys(&listed), put);
    let own = keys(&audit(&sandbox, "honest", &[]).expect(0));
    assert!(!own.is_empty() && own.is_disjoint(&put), "{own:?}");
    assert!(keys(&audit(&sandbox, "nobody", &[]).expect(0)).is_empty());
    let puts = listed.messages("put");
    assert!(puts.iter().all(|put| put["size_bytes"].is_u64() && put["store"] == "store"));
    assert_eq!(listed.message("summary")["objects"], put.len());
    // What was put since the first of the two that lie.
    let is_first = |put: &&Value| put["key"].as_str().unwrap().starts_with("metadata/ff");
    let since = puts.iter().find(is_first).unwrap()["time"].as_str().unwrap();
    assert_eq!(keys(&audit(&sandbox, "thief", &["--since", since]).expect(0)), junk);
    let shown = sandbox.run(&["client", "audit", "thief", "store"]).expect(0).stdout;
    assert!(shown.contains("forget ID") && shown.contains(junk.first().unwrap()), "{shown}");
    drop(server);
}

#[test]
fn only_what_costs_time_is_removed_and_honest_snapshots_stay_whole() {
    let Robbed { sandbox, server, put, junk, stolen, kept: (kept, bytes) } = robbed();
    let running = audit(&sandbox, "thief", &["--remove"]).expect(13);
    assert!(running.stderr.contains("another server"), "{}", running.stderr);
    drop(server);
    let there = objects(&sandbox);
    audit(&sandbox, "thief", &["--dry-run"]).expect(1);
    let planned = audit(&sandbox, "thief", &["--remove", "--dry-run"]).expect(0);
    assert_eq!(objects(&sandbox), there);
    let costs_time = |name: &&String| {
        let derived = ["metadata/", "index/", "checkpoints/"];
        derived.iter().any(|kind| name.starts_with(kind)) || name.contains("/ready-")
    };
    let going: BTreeSet<String> = put.iter().filter(costs_time).cloned().collect();
    // The run of its own backup is one more than the two that lie.
    assert!(going.len() > junk.len(), "{going:?}");
    assert_eq!(planned.message("summary")["removed"], going.len());
    let removed = audit(&sandbox, "thief", &["--remove"]).expect(0);
    assert_eq!(removed.message("summary")["removed"], going.len());
    assert_eq!(objects(&sandbox), &there - &going);
    let left = audit(&sandbox, "thief", &["--remove"]).expect(0);
    assert_eq!(left.message("summary")["removed"], 0);
    assert_eq!(keys(&left), &put - &going);

    // What honest snapshots rely on is there, before and after the rest is forgotten.
    let whole = |target: &str| {
        sandbox.run(&["check", "--read-data"]).expect(0);
        sandbox.run(&["restore", &kept, "--target", &sandbox.arg(target)]).expect(0);
        let found = restored(&sandbox.path(target), "planted/file");
        assert!(found.is_some_and(|path| holds(&path, &bytes)), "{target}");
    };
    whole("out");
    sandbox.run(&["forget", &stolen, "--final"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    whole("again");
    assert!(!sandbox.ids(&[]).contains(&stolen));
}

/// The file that was restored from a path that ends so.
fn restored(directory: &Path, end: &str) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find_map(|path| match path.is_dir() {
        true => restored(&path, end),
        false => path.ends_with(end).then_some(path),
    })
}

#[test]
fn a_store_without_a_log_and_a_directory_without_a_store_are_told() {
    let sandbox = Sandbox::with_store();
    let run = audit(&sandbox, "laptop", &[]).expect(1);
    assert!(run.stderr.contains("store.puts"), "{}", run.stderr);
    fs::create_dir(sandbox.path("empty")).unwrap();
    sandbox.run(&["client", "audit", "laptop", "empty"]).expect(10);
    assert_eq!(fs::read_dir(sandbox.path("empty")).unwrap().count(), 0);
    sandbox.run(&["client", "audit", "laptop"]).expect(1);
}

/// THREATS says which policies a thief's snapshots push honest ones out of.
#[test]
fn policies_that_keep_by_time_keep_what_others_have_planted_snapshots_beside() {
    let (sandbox, all) = prepared(&["store"]);
    let thief = client(&sandbox, "thief", "read,append", &[]);
    let server = Server::with_certificate(&sandbox, &["store"]);
    let run = |token: &str, arguments: &[&str]| {
        run(&sandbox, &server.store("store"), token, arguments).expect(0)
    };
    run(&all, &INIT);
    let saved = run(&all, &["--json", "backup", "source", "--host", "laptop"]);
    let honest = saved.message("summary")["snapshot"].clone();
    for _ in 0..3 {
        run(&thief, &["backup", "source", "--host", "laptop"]);
    }
    for (policy, is_kept) in [(["--keep-last", "3"], false), (["--keep-within", "90d"], true)] {
        let forget = [&["--json", "forget", "--dry-run"][..], &policy].concat();
        let decisions = run(&all, &forget).messages("decision");
        let decided = decisions.iter().find(|one| one["snapshot"] == honest).unwrap();
        assert_eq!(decided["keep"], is_kept, "{policy:?}");
    }
}
