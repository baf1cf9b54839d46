//! Nothing outside the target is ever written, whatever is planted in it.

use super::support::{Item, in_memory, store_tree};
use super::{options, restore_cleanly, restore_with_problems};
use crate::steps::put_with;
use onefold_engine::restore::{Delete, Overwrite, RestoreOptions};
use onefold_format::node::{
    DirectoryLeaf, DirectoryMap, DirectoryPart, Entry, EntryKind, Node, Reference, Totals,
};
use onefold_types::{ErrorKind, Level};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

#[test]
fn r54_links_planted_in_the_target_are_replaced_and_not_followed() {
    let (_, repository) = in_memory();
    let root = store_tree(
        &repository,
        vec![
            Item::directory(
                "a",
                vec![
                    Item::directory("b", vec![Item::file("f", "inside")]),
                    Item::file("g", "inside"),
                ],
            ),
            Item::file("h", "inside"),
        ],
    );
    for rule in [Overwrite::IfDifferent, Overwrite::IfChanged] {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("b")).unwrap();
        for name in ["g", "h", "b/f"] {
            fs::write(outside.path().join(name), "outside").unwrap();
        }
        let before = fs::metadata(outside.path()).unwrap();
        let target = tempfile::tempdir().unwrap();
        symlink(outside.path(), target.path().join("a")).unwrap();
        symlink(outside.path().join("h"), target.path().join("h")).unwrap();
        let options =
            RestoreOptions { overwrite: rule, delete: Delete::Known, ..options(target.path()) };
        restore_cleanly(&repository, &root, &options);
        for name in ["g", "h", "b/f"] {
            let found = fs::read_to_string(outside.path().join(name)).unwrap();
            assert_eq!(found, "outside", "{name}");
        }
        let after = fs::metadata(outside.path()).unwrap();
        assert_eq!((before.mode(), before.mtime()), (after.mode(), after.mtime()));
        for name in ["a/g", "h", "a/b/f"] {
            let found = fs::read_to_string(target.path().join(name)).unwrap();
            assert_eq!(found, "inside", "{name}");
        }
        assert!(!target.path().join("a").is_symlink());
    }
}

#[test]
fn r44_a_file_with_other_names_is_not_written_through() {
    let (_, repository) = in_memory();
    let root = store_tree(&repository, vec![Item::file("f", "from the snapshot")]);
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    let target = tempfile::tempdir_in(outside.path()).unwrap();
    fs::hard_link(&precious, target.path().join("f")).unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    let found = fs::read_to_string(target.path().join("f")).unwrap();
    assert_eq!(found, "from the snapshot");
}

#[test]
fn a_pipe_in_the_place_of_a_file_does_not_block() {
    let (_, repository) = in_memory();
    let root = store_tree(&repository, vec![Item::file("f", "x")]);
    let target = tempfile::tempdir().unwrap();
    let mode = rustix::fs::Mode::RWXU;
    let pipe = target.path().join("f");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    assert_eq!(fs::read(&pipe).unwrap(), b"x");
}

#[test]
fn r124_a_name_that_a_directory_has_twice_is_damage() {
    let (_, repository) = in_memory();
    let named = |name: &[u8]| Entry { name: name.to_vec(), mode: 0o600, ..Entry::default() };
    for (second, is_right) in [([b"c", b"d"], true), ([b"b", b"c"], false)] {
        let leaves = [[b"a", b"b"], second];
        let content = put_with(&repository, |stream| {
            let parts = leaves.map(|names| {
                let entries = names.map(|name| named(name)).to_vec();
                let leaf = DirectoryLeaf { entries, ..DirectoryLeaf::default() };
                let bytes = Node::DirectoryLeaf(leaf).encode();
                let fingerprint = stream.put_node(Level(1), &bytes).unwrap();
                let leaf = Reference { fingerprint, level: Level(1) };
                let totals = Totals { entries: 2, ..Totals::default() };
                DirectoryPart { leaf, first_name: names[0].to_vec(), totals }
            });
            let map = Node::DirectoryMap(DirectoryMap { parts: parts.to_vec() });
            let fingerprint = stream.put_node(Level(2), &map.encode()).unwrap();
            Reference { fingerprint, level: Level(2) }
        });
        let totals = Totals { entries: 4, ..Totals::default() };
        let (kind, content) = (EntryKind::Directory, Some(content));
        let root = Entry { kind, mode: 0o700, content, totals, ..Entry::default() };
        let target = tempfile::tempdir().unwrap();
        let (report, problems) = restore_with_problems(&repository, &root, &options(target.path()));
        assert_eq!(report.errors == 0, is_right, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.1 == ErrorKind::Damaged), "{problems:?}");
    }
}
