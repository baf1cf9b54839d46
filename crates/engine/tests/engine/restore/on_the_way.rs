//! Directories that only lead to sources: links in their place are followed, nothing about them
//! changes.

use super::support::{Item, in_memory, store_tree};
use super::{options, restore_cleanly, restore_with_problems};
use onefold_engine::Repository;
use onefold_engine::restore::{Delete, RestoreOptions};
use onefold_format::node::{Entry, Listing};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::sync::Arc;

/// `home` leads to the source `home/al`, which holds `f`.
fn store_source(repository: &Arc<Repository>) -> Entry {
    let source = Item::directory("al", vec![Item::file("f", "saved")]);
    let above = Item::directory("home", vec![source]).listed(Listing::Above);
    let mut root = store_tree(repository, vec![above]);
    root.listing = Listing::Above;
    root
}

#[test]
fn r105_a_link_above_a_source_is_followed_and_stays() {
    let (_, repository) = in_memory();
    let root = store_source(&repository);
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("disk/home/al")).unwrap();
    fs::create_dir_all(at("target")).unwrap();
    symlink("home", at("disk/again")).unwrap();
    for leads_to in [at("disk/home"), at("disk/again"), "../disk/./again/".into()] {
        symlink(&leads_to, at("target/home")).unwrap();
        fs::write(at("disk/home/al/f"), "other").unwrap();
        fs::write(at("disk/home/al/extra"), "extra").unwrap();
        fs::write(at("disk/home/beside"), "mine").unwrap();
        // Out of the target only where what is restored has its own path.
        let options = RestoreOptions { delete: Delete::Known, ..options(&at("target")) };
        let (report, problems) = restore_with_problems(&repository, &root, &options);
        assert_eq!(report.errors, 1, "{leads_to:?}");
        assert!(problems[0].2.contains("out of the target"), "{problems:?}");
        assert_eq!(fs::read(at("disk/home/al/f")).unwrap(), b"other");
        let options = RestoreOptions { follows_out: true, ..options };
        let surplus = restore_cleanly(&repository, &root, &options).surplus;
        assert_eq!((surplus.deleted, surplus.kept), (1, 0), "{leads_to:?}");
        assert_eq!(fs::read_link(at("target/home")).unwrap(), leads_to);
        assert_eq!(fs::read(at("disk/home/al/f")).unwrap(), b"saved");
        assert!(at("disk/home/beside").exists());
        fs::remove_file(at("target/home")).unwrap();
    }
}

#[test]
fn r105_a_snapshot_that_says_nothing_of_its_directories_follows_links_as_well() {
    let (_, repository) = in_memory();
    let source = Item::directory("al", vec![Item::file("f", "saved")]).listed(Listing::Partial);
    let above = Item::directory("home", vec![source]).listed(Listing::Partial);
    let mut root = store_tree(&repository, vec![above]);
    root.listing = Listing::Partial;
    let target = tempfile::tempdir().unwrap();
    fs::create_dir(target.path().join("disk")).unwrap();
    symlink("disk", target.path().join("home")).unwrap();
    let sources = vec![b"/home/al".to_vec()];
    let options = RestoreOptions { sources: Some(sources), ..options(target.path()) };
    restore_cleanly(&repository, &root, &options);
    assert!(target.path().join("home").is_symlink());
    assert!(target.path().join("disk/al/f").exists());
}

#[test]
fn r105_what_leads_to_no_directory_is_told_and_never_replaced() {
    let (_, repository) = in_memory();
    let root = store_source(&repository);
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("target")).unwrap();
    fs::write(at("file"), "").unwrap();
    for leads_to in ["../missing", "../file", "home", "../file/..", "/", ".."] {
        symlink(leads_to, at("target/home")).unwrap();
        let (report, problems) = restore_with_problems(&repository, &root, &options(&at("target")));
        assert_eq!((report.errors, problems[0].0.as_str()), (1, "/home"), "{leads_to}");
        assert!(problems[0].2.contains("repair or remove the link"), "{problems:?}");
        assert!(at("target/home").is_symlink(), "{leads_to}");
        fs::remove_file(at("target/home")).unwrap();
    }
    fs::write(at("target/home"), "mine").unwrap();
    let (report, problems) = restore_with_problems(&repository, &root, &options(&at("target")));
    assert_eq!((report.errors, problems[0].0.as_str()), (1, "/home"));
    assert_eq!(fs::read(at("target/home")).unwrap(), b"mine");
}

#[test]
fn r105_a_link_of_somebody_else_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_, repository) = in_memory();
    let root = store_source(&repository);
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("target")).unwrap();
    fs::create_dir_all(at("precious")).unwrap();
    symlink("../precious", at("target/planted")).unwrap();
    lchown(at("target/planted"), Some(12_345), None).unwrap();
    // Our own link leads over it.
    for leads_to in ["../precious", "planted"] {
        symlink(leads_to, at("target/home")).unwrap();
        lchown(at("target/home"), (leads_to != "planted").then_some(12_345), None).unwrap();
        let (report, problems) = restore_with_problems(&repository, &root, &options(&at("target")));
        assert_eq!(report.errors, 1, "{leads_to}");
        assert!(problems[0].2.contains("12345"), "{problems:?}");
        assert_eq!(fs::read_dir(at("precious")).unwrap().count(), 0);
        fs::remove_file(at("target/home")).unwrap();
    }
}

#[test]
fn r105_a_way_of_more_links_than_the_system_follows_is_refused() {
    let (_, repository) = in_memory();
    let root = store_source(&repository);
    let target = tempfile::tempdir().unwrap();
    let at = |name: &str| target.path().join(name);
    fs::create_dir(at("0")).unwrap();
    (1..41).for_each(|n| symlink(format!("{}", n - 1), at(&n.to_string())).unwrap());
    // With the link itself as many as LINKS_MAX, and one more.
    for (leads_to, errors) in [("39", 0), ("40", 1)] {
        symlink(leads_to, at("home")).unwrap();
        let (report, _) = restore_with_problems(&repository, &root, &options(target.path()));
        assert_eq!(report.errors, errors, "{leads_to}");
        fs::remove_file(at("home")).unwrap();
    }
}

#[test]
fn r105_a_directory_on_the_way_keeps_what_it_has() {
    let (_, repository) = in_memory();
    let root = store_source(&repository);
    let target = tempfile::tempdir().unwrap();
    let home = target.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::create_dir(home.join("al")).unwrap();
    fs::set_permissions(&home, Permissions::from_mode(0o750)).unwrap();
    let before = fs::metadata(&home).unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    let after = fs::metadata(&home).unwrap();
    assert_eq!((after.mode(), after.mtime_nsec()), (before.mode(), before.mtime_nsec()));
    assert_eq!(fs::metadata(home.join("al")).unwrap().mode() & 0o7777, 0o755);
    // One that is made gets what is known.
    fs::remove_dir_all(&home).unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    assert_eq!(fs::metadata(&home).unwrap().mode() & 0o7777, 0o755);
}
