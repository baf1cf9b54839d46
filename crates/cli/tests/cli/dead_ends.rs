//! Damage that is over, as collections meet it: what was stored again stops nothing for ever, and
//! what is still needed is named with the way out.

use crate::collecting::random_bytes;
use crate::support::{Run, Sandbox};
use std::path::PathBuf;

/// Every way to find out what is live.
const MARKS: [&str; 5] = ["exact", "lgc", "partitioned", "pgc", "pgc+"];

/// The containers of the store, the largest first.
fn containers(sandbox: &Sandbox) -> Vec<PathBuf> {
    let shards = std::fs::read_dir(sandbox.path("store/containers")).unwrap();
    let files = shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    files
}

fn cut(path: &PathBuf) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1000).unwrap();
}

/// What the clock of whoever wrote the metadata packs said, in the names of these.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Packs {
    AsTheyAre,
    /// It was set back: containers seem newer.
    Early,
    /// It ran ahead.
    Late,
    /// They are derived, and somebody has deleted them.
    Gone,
}

impl Packs {
    const ALL: [Self; 4] = [Self::AsTheyAre, Self::Early, Self::Late, Self::Gone];

    fn apply(self, sandbox: &Sandbox) {
        let time = match self {
            Self::AsTheyAre => return,
            Self::Early => "000000000000",
            Self::Late => "ffffffffffff",
            Self::Gone => return std::fs::remove_dir_all(sandbox.path("store/metadata")).unwrap(),
        };
        for pack in std::fs::read_dir(sandbox.path("store/metadata")).unwrap() {
            let path = pack.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            std::fs::rename(&path, path.with_file_name(format!("{time}{}", &name[12..]))).unwrap();
        }
    }
}

fn assert_restores(sandbox: &Sandbox, expected: &[u8]) {
    let out = sandbox.arg("out");
    sandbox.run(&["restore", "latest", "--target", &out]).expect(0);
    let source = sandbox.path("source/f");
    let restored = sandbox.path("out").join(source.strip_prefix("/").unwrap());
    assert!(std::fs::read(restored).unwrap() == expected);
}

fn collect(sandbox: &Sandbox, more: &[&str]) -> Run {
    sandbox.run(&[&["gc", "--wait", "0s"], more].concat())
}

#[test]
fn r111_a_cut_container_of_which_all_is_stored_again_stops_no_collection() {
    for packs in Packs::ALL {
        let sandbox = Sandbox::with_store();
        let bytes = random_bytes(1, 300_000);
        sandbox.write("source/f", &bytes);
        let first = sandbox.backup(&[]);
        packs.apply(&sandbox);
        cut(&containers(&sandbox)[0]);
        sandbox.run(&["check", "--read-data"]).expect(1);
        sandbox.backup(&[]);
        sandbox.run(&["forget", "--final", &first]).expect(0);
        sandbox.run(&["check", "--read-data"]).expect(0);
        for mark in MARKS {
            collect(&sandbox, &["--mark-only", "--mark", mark]).expect(0);
        }
        for goal in [&[][..], &["--space-goal", "all"], &["--repack"], &["--space-goal", "dead"]] {
            let run = collect(&sandbox, goal);
            assert_eq!(run.code, 0, "{packs:?} {goal:?}: {}", run.stderr);
        }
        sandbox.run(&["maintain", "--wait", "0s"]).expect(0);
        assert_restores(&sandbox, &bytes);
    }
}

/// Nobody has looked: the collection does, says so once, and goes on.
#[test]
fn r111_a_collection_that_meets_a_cut_container_says_so_once() {
    for packs in Packs::ALL {
        let sandbox = Sandbox::with_store();
        let bytes = random_bytes(1, 300_000);
        sandbox.write("source/f", &bytes);
        let first = sandbox.backup(&[]);
        let old = containers(&sandbox)[0].clone();
        packs.apply(&sandbox);
        sandbox.write("source/f", &random_bytes(2, 300_000));
        sandbox.backup(&[]);
        cut(&old);
        sandbox.run(&["forget", "--final", &first]).expect(0);
        let met = collect(&sandbox, &["--space-goal", "all"]);
        match packs == Packs::Gone {
            true => {
                assert_eq!(met.code, 3, "{packs:?}: {}", met.stderr);
                assert!(met.stderr.contains("it is in quarantine now"), "{}", met.stderr);
                // No snapshot needs it.
                assert!(!met.stderr.contains("--heal-from"), "{}", met.stderr);
            }
            false => assert_eq!(met.code, 0, "{packs:?}: {}", met.stderr),
        }
        collect(&sandbox, &["--space-goal", "all"]).expect(0);
        sandbox.run(&["maintain", "--wait", "0s"]).expect(0);
        assert_restores(&sandbox, &random_bytes(2, 300_000));
    }
}

#[test]
fn r111_what_only_a_cut_container_has_is_named_with_the_way_out() {
    let sandbox = Sandbox::with_store();
    let bytes = random_bytes(1, 300_000);
    sandbox.write("source/f", &bytes);
    sandbox.backup(&[]);
    let needed = containers(&sandbox)[0].clone();
    sandbox.write("source/f", &random_bytes(2, 300_000));
    let second = sandbox.backup(&[]);
    Packs::Gone.apply(&sandbox);
    cut(&needed);
    sandbox.run(&["check"]).expect(1);
    sandbox.run(&["forget", "--final", &second]).expect(0);
    let before = containers(&sandbox);
    for mark in MARKS {
        let refused = collect(&sandbox, &["--mark", mark]);
        let is_told = refused.code == 1 && refused.stderr.contains("--heal-from");
        assert!(is_told && containers(&sandbox) == before, "{mark}: {}", refused.stderr);
    }
    sandbox.write("source/f", &bytes);
    sandbox.backup(&["--force"]);
    collect(&sandbox, &["--space-goal", "all"]).expect(0);
    assert_restores(&sandbox, &bytes);
}

/// Versions of a file, each a difference against the one before; then the first one is lost, and
/// all that is needed is stored again.
fn lose_the_first_of_a_chain(depth: usize, loses: impl Fn(&PathBuf)) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::empty().with_password(false);
    let delta = format!("depth={depth}");
    sandbox.run(&["init", "--encryption", "none", "--delta", &delta]).expect(0);
    let mut bytes = random_bytes(1, 20_000);
    sandbox.write("source/f", &bytes);
    sandbox.backup(&[]);
    let first = containers(&sandbox)[0].clone();
    for version in 0..=depth {
        for edit in 0..3 {
            bytes[(version * 3 + edit) * 997 + 5] ^= 0xff;
        }
        sandbox.write("source/f", &bytes);
        sandbox.backup(&[]);
    }
    sandbox.run(&["forget", "--keep-last", "1", "--final"]).expect(0);
    loses(&first);
    sandbox.run(&["check", "--read-data"]).expect(1);
    sandbox.backup(&["--force"]);
    sandbox.run(&["forget", "--keep-last", "1", "--final"]).expect(0);
    sandbox.run(&["check", "--read-data"]).expect(0);
    (sandbox, bytes)
}

#[test]
fn r112_a_chain_of_differences_without_its_root_stops_no_collection() {
    let remove = |path: &PathBuf| std::fs::remove_file(path).unwrap();
    let damage = |path: &PathBuf| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 3;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    type Loses<'a> = &'a dyn Fn(&PathBuf);
    let losses: [(&str, Loses<'_>); 3] =
        [("removed", &remove), ("damaged", &damage), ("cut", &cut)];
    for (depth, goal) in [(1, "5%"), (2, "all"), (3, "5%"), (4, "all")] {
        for (name, loses) in losses {
            let (sandbox, bytes) = lose_the_first_of_a_chain(depth, loses);
            for mark in MARKS {
                let run = collect(&sandbox, &["--mark-only", "--mark", mark]);
                assert_eq!(run.code, 0, "{depth} {name} {mark}: {}", run.stderr);
            }
            for _ in 0..2 {
                let run = collect(&sandbox, &["--space-goal", goal]);
                assert_eq!(run.code, 0, "{depth} {name}: {}", run.stderr);
            }
            sandbox.run(&["check", "--read-data"]).expect(0);
            assert_restores(&sandbox, &bytes);
        }
    }
}
