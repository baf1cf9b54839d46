//! Restoring to where names that differ in case only are one.

use crate::folding::Folding;
use crate::mounted::can_mount;
use crate::support::{Run, Sandbox, holds};
use std::fs;
use std::path::Path;

/// A store with a snapshot of names that differ in case only, and where they are one.
fn folded() -> Option<(Sandbox, Folding)> {
    if !can_mount() {
        return None;
    }
    let sandbox = Sandbox::with_store();
    for (name, bytes) in [
        ("README", "upper"),
        ("readme", "lower"),
        ("Dir/a", "of Dir"),
        ("dir/a", "of dir"),
        ("plain", "plain"),
    ] {
        sandbox.write(&format!("source/{name}"), bytes.as_bytes());
    }
    let [one, other] = ["source/ONE", "source/one"].map(|name| sandbox.path(name));
    fs::write(&one, "linked").unwrap();
    fs::hard_link(one, other).unwrap();
    sandbox.backup(&[]);
    let folding = Folding::mount(&sandbox.path("folding"));
    Some((sandbox, folding))
}

fn restore(sandbox: &Sandbox, more: &[&str]) -> Run {
    let (place, target) = (format!("latest:{}", sandbox.arg("source")), sandbox.arg("folding/out"));
    sandbox.run(&[&["restore", &place, "--target", &target], more].concat())
}

/// The names in a directory as they are spelled there, each with its bytes.
fn seen(directory: &Path) -> Vec<(String, String)> {
    let mut seen: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|one| one.unwrap())
        .map(|one| {
            let bytes = fs::read_to_string(one.path()).unwrap_or_default();
            (one.file_name().into_string().unwrap(), bytes)
        })
        .collect();
    seen.sort();
    seen
}

#[test]
fn r106_names_that_are_one_are_a_problem_each_time() {
    let Some((sandbox, _folding)) = folded() else { return };
    let out = sandbox.path("folding/out");
    let mut first = None;
    for more in [&[][..], &[], &["--overwrite", "if-changed"], &["--in-place"], &["--delete"]] {
        let run = restore(&sandbox, more).expect(3);
        let told = run.stderr.to_lowercase();
        for name in ["/readme", "/dir", "/one"] {
            let lines = told.lines().filter(|line| line.contains(name));
            assert_eq!(lines.count(), 1, "{more:?}: {name} in {told}");
        }
        assert!(holds(&out.join("plain"), b"plain"));
        let now = [seen(&out), seen(&out.join("dir"))];
        assert_eq!(now[0].len(), 4, "{now:?}");
        // Whichever came first stays as it is, and is restored as it is to be.
        let is_one = |name: &str, bytes: &str| now[0].contains(&(name.into(), bytes.into()));
        assert!(is_one("README", "upper") || is_one("readme", "lower"), "{now:?}");
        assert!(is_one("ONE", "linked") || is_one("one", "linked"), "{now:?}");
        let inner = if is_one("Dir", "") { "of Dir" } else { "of dir" };
        assert_eq!(now[1], [("a".into(), inner.into())]);
        assert_eq!(&now, first.get_or_insert_with(|| now.clone()), "{more:?}");
    }
}

#[test]
fn r106_one_name_alone_does_not_take_the_place_of_another() {
    let Some((sandbox, _folding)) = folded() else { return };
    let out = sandbox.path("folding/out");
    fs::create_dir(&out).unwrap();
    fs::create_dir(out.join("DIR")).unwrap();
    for (name, bytes) in [("README", "of somebody"), ("Plain", "of somebody"), ("DIR/a", "x")] {
        fs::write(out.join(name), bytes).unwrap();
    }
    for include in ["/readme", "/plain", "/dir"] {
        for overwrite in ["always", "if-changed", "if-newer", "never"] {
            let options = ["--include", include, "--overwrite", overwrite];
            let told = restore(&sandbox, &options).expect(3).stderr;
            assert!(told.contains(include) && told.contains("does not tell"), "{told}");
        }
        restore(&sandbox, &["--include", include, "--dry-run"]).expect(3);
    }
    assert!(holds(&out.join("README"), b"of somebody"));
    assert!(holds(&out.join("Plain"), b"of somebody"));
    assert!(holds(&out.join("DIR/a"), b"x"));
    // What is spelled so is replaced.
    restore(&sandbox, &["--include", "/README"]).expect(0);
    assert!(holds(&out.join("README"), b"upper"));
}

/// Of what no link can be made there is a copy, where it has a name of its own.
#[test]
fn r107_a_file_system_without_links_gets_copies() {
    let Some((sandbox, _folding)) = folded() else { return };
    let other = sandbox.path("source/another name");
    fs::hard_link(sandbox.path("source/one"), other).unwrap();
    sandbox.backup(&[]);
    let restored = |copied: u64| {
        let options = ["--json", "--include", "/one", "--include", "/another name"];
        let summary = restore(&sandbox, &options).expect(0).message("summary");
        assert_eq!(summary["links_copied"], copied, "{summary}");
        for name in ["one", "another name"] {
            assert!(holds(&sandbox.path("folding/out").join(name), b"linked"), "{name}");
        }
    };
    restored(1);
    restored(0);
}
