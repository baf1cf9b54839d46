//! Damaged and vanished containers.

use super::support::{CHUNK_BYTES, Item, in_memory, random_bytes, store_tree, store_tree_avoiding};
use super::{containers, data_containers, options, restore_cleanly, restore_with_problems};
use onefold_engine::Job;
use onefold_engine::container::reader::read_section;
use onefold_engine::restore::{Delete, DumpOptions, Overwrite, RestoreOptions, dump};
use onefold_engine::tree::TreeReader;
use onefold_engine::tree::directory::NoNames;
use onefold_format::container::HEADER_BYTES;
use onefold_format::layout;
use onefold_store::{Key, MemoryStore};
use onefold_types::{ContainerId, ErrorKind};
use std::fs;

fn key(id: ContainerId) -> Key {
    Key::new(layout::container(id)).unwrap()
}

/// Spoils the first frame of a container.
fn spoil(memory: &MemoryStore, id: ContainerId) {
    assert!(memory.corrupt(&key(id), |bytes| bytes[HEADER_BYTES + 99] ^= 1));
}

fn bytes(number: u64) -> Vec<u8> {
    random_bytes(number, 50_000)
}

fn files() -> Vec<Item> {
    (0..40).map(|number| Item::file(format!("f{number:02}"), bytes(number))).collect()
}

#[test]
fn another_instance_is_used_if_a_container_is_damaged_or_gone() {
    for vanish in [false, true] {
        let (memory, repository) = in_memory();
        store_tree(&repository, files());
        let old = data_containers(&memory, &repository);
        let avoid = old.iter().copied().collect();
        let root = store_tree_avoiding(&repository, files(), avoid, &NoNames);
        // The newest instance is the one that is tried first.
        for id in data_containers(&memory, &repository) {
            match vanish {
                _ if old.contains(&id) => {}
                true => assert!(memory.remove(&key(id))),
                false => spoil(&memory, id),
            }
        }
        let target = tempfile::tempdir().unwrap();
        restore_cleanly(&repository, &root, &options(target.path()));
        for number in 0..40 {
            let found = fs::read(target.path().join(format!("f{number:02}"))).unwrap();
            assert!(found == bytes(number), "{number}");
        }
    }
}

#[test]
fn what_cannot_be_restored_is_named_and_not_left_short() {
    let (memory, repository) = in_memory();
    let mut tree = files();
    let linked =
        |item: Item| item.edit(|entry| (entry.links, entry.inode, entry.device) = (2, 5, 5));
    tree[0] = linked(tree[0].clone());
    tree.push(linked(Item::file("link", bytes(0))));
    let root = store_tree(&repository, tree);
    // The first frame holds some of the first files, and no others.
    let first = repository.fingerprinter().data(&bytes(0)[..CHUNK_BYTES]);
    let section_of = |id| read_section(&repository, id).unwrap();
    let damaged = data_containers(&memory, &repository)
        .into_iter()
        .find(|id| section_of(*id).chunks[0].fingerprint == first)
        .unwrap();
    let section = section_of(damaged);
    let lost: u64 = section
        .chunks
        .iter()
        .filter(|chunk| chunk.frame == 0)
        .map(|chunk| u64::from(chunk.length))
        .sum();
    spoil(&memory, damaged);
    let lost_files = lost.div_ceil(50_000) as usize;
    let target = tempfile::tempdir().unwrap();
    let (report, problems) = restore_with_problems(&repository, &root, &options(target.path()));
    assert_eq!(report.errors as usize, lost_files + 1, "{problems:?}");
    assert!(problems.iter().all(|problem| problem.1 == ErrorKind::Damaged));
    for number in 0..40 {
        let name = format!("/f{number:02}");
        let found = fs::read(target.path().join(&name[1..]));
        let told = problems.iter().filter(|problem| problem.0 == name).count();
        match number < lost_files {
            true => assert!(found.is_err() && told == 1, "{name} {problems:?}"),
            false => assert!(found.unwrap() == bytes(number as u64) && told == 0, "{name}"),
        }
    }
    assert!(problems.iter().any(|problem| problem.0 == "/link"));
    assert!(!target.path().join("link").exists());
}

#[test]
fn an_existing_file_that_cannot_be_rewritten_is_told_about() {
    let (memory, repository) = in_memory();
    let root = store_tree(&repository, vec![Item::file("f", bytes(1))]);
    spoil(&memory, data_containers(&memory, &repository)[0]);
    let target = tempfile::tempdir().unwrap();
    let path = target.path().join("f");
    fs::write(&path, "what was there").unwrap();
    let options = RestoreOptions { overwrite: Overwrite::IfDifferent, ..options(target.path()) };
    let (report, problems) = restore_with_problems(&repository, &root, &options);
    assert_eq!((report.errors, problems[0].0.as_str()), (1, "/f"));
    assert!(problems[0].2.contains("was there"), "{problems:?}");
    assert_eq!(fs::read(&path).unwrap(), b"what was there");
}

#[test]
fn a_lost_directory_is_named_and_the_rest_restored() {
    let (memory, repository) = in_memory();
    // The nodes stored first are those of the directory that will be lost.
    store_tree(&repository, vec![Item::directory("lost", files())]);
    let first = containers(&memory);
    let outer =
        vec![Item::file("before", "x"), Item::directory("lost", files()), Item::file("later", "y")];
    let root = store_tree(&repository, outer);
    let data = data_containers(&memory, &repository);
    for id in first.into_iter().filter(|id| !data.contains(id)) {
        spoil(&memory, id);
    }
    let target = tempfile::tempdir().unwrap();
    fs::create_dir(target.path().join("lost")).unwrap();
    fs::write(target.path().join("lost/unknown"), "z").unwrap();
    let options = RestoreOptions { delete: Delete::Known, ..options(target.path()) };
    let (report, problems) = restore_with_problems(&repository, &root, &options);
    assert_eq!((report.errors, problems[0].0.as_str()), (1, "/lost"));
    assert!(target.path().join("before").exists() && target.path().join("later").exists());
    // What is not known to be gone from the snapshot is not deleted.
    assert!(target.path().join("lost/unknown").exists());
}

#[test]
fn dump_uses_other_instances_and_else_fails() {
    let (memory, repository) = in_memory();
    let tree = || vec![Item::file("f", random_bytes(3, 3_000_000))];
    let root = store_tree(&repository, tree());
    let reader = TreeReader::open(&repository).unwrap();
    let entry = reader.resolve(root.content.unwrap(), b"f").unwrap();
    let old = data_containers(&memory, &repository);
    spoil(&memory, old[0]);
    let (job, _) = Job::unattended();
    let mut out = Vec::new();
    let error = dump(&repository, &entry, &DumpOptions::default(), &mut out, &job).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    store_tree_avoiding(&repository, tree(), old.into_iter().collect(), &NoNames);
    let mut out = Vec::new();
    dump(&repository, &entry, &DumpOptions::default(), &mut out, &job).unwrap();
    assert!(out == random_bytes(3, 3_000_000));
}
