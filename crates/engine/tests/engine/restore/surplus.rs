//! What is deleted that is not in the snapshot, and what is kept because it cannot know.

use super::support::{Item, in_memory, store_tree};
use super::{options, patterns, restore_with_problems};
use onefold_engine::Repository;
use onefold_engine::restore::{Delete, RestoreOptions, SurplusReport};
use onefold_format::node::{Entry, Listing};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory that leads to a source with one directory saved whole and one that was not.
fn store_source(repository: &Arc<Repository>) -> Entry {
    let source = Item::directory(
        "source",
        vec![
            Item::file("f", "x"),
            Item::directory("partial", vec![Item::file("g", "y")]).listed(Listing::Partial),
        ],
    );
    let above = Item::directory("home", vec![source]).listed(Listing::Above);
    let mut root = store_tree(repository, vec![above]);
    root.listing = Listing::Above;
    root
}

/// A target with something extra in each directory.
fn target_with_extras() -> TempDir {
    let target = tempfile::tempdir().unwrap();
    for name in ["beside", "home/beside/f", "home/source/extra", "home/source/partial/extra"] {
        let path = target.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "extra").unwrap();
    }
    target
}

fn surplus_of(
    repository: &Arc<Repository>,
    root: &Entry,
    options: &RestoreOptions,
) -> SurplusReport {
    let (report, problems) = restore_with_problems(repository, root, options);
    assert_eq!((report.errors, problems), (0, Vec::new()));
    report.surplus
}

#[test]
fn r104_only_what_the_snapshot_knows_was_absent_is_deleted() {
    let (_, repository) = in_memory();
    let root = store_source(&repository);
    for (delete, deleted, kept) in
        [(Delete::Nothing, 0, 0), (Delete::Known, 1, 1), (Delete::Unknown, 2, 0)]
    {
        let target = target_with_extras();
        let there = |name: &str| target.path().join(name).exists();
        let options = RestoreOptions { delete, ..options(target.path()) };
        let dry = RestoreOptions { dry_run: true, ..options.clone() };
        let before = surplus_of(&repository, &root, &dry);
        assert!(there("home/source/extra") && there("home/source/partial/extra"));
        let surplus = surplus_of(&repository, &root, &options);
        assert_eq!(before, surplus, "a dry run tells the same");
        assert_eq!((surplus.deleted, surplus.kept), (deleted, kept), "{delete:?}");
        assert!(there("beside") && there("home/beside/f"), "{delete:?}");
        assert_eq!(there("home/source/extra"), deleted == 0, "{delete:?}");
        assert_eq!(there("home/source/partial/extra"), deleted < 2, "{delete:?}");
        assert!(there("home/source/f") && there("home/source/partial/g"));
    }
}

#[test]
fn r104_a_snapshot_that_says_nothing_of_its_directories_is_told_where_its_sources_are() {
    let (_, repository) = in_memory();
    let inner = Item::directory("partial", vec![Item::file("g", "y")]).listed(Listing::Partial);
    let source = Item::directory("source", vec![Item::file("f", "x"), inner]);
    let above = Item::directory("home", vec![source.listed(Listing::Partial)]);
    let mut root = store_tree(&repository, vec![above.listed(Listing::Partial)]);
    root.listing = Listing::Partial;
    for (delete, deleted) in [(Delete::Known, 0), (Delete::Unknown, 2)] {
        let target = target_with_extras();
        let sources = Some(vec![b"/home/source".to_vec(), b"/home/sour".to_vec()]);
        let options = RestoreOptions { delete, sources, ..options(target.path()) };
        let surplus = surplus_of(&repository, &root, &options);
        assert_eq!((surplus.deleted, surplus.kept), (deleted, 2 - deleted), "{delete:?}");
        assert!(target.path().join("beside").exists());
        assert!(target.path().join("home/beside/f").exists());
    }
}

#[test]
fn r104_a_report_names_the_first_twenty_and_counts_the_others() {
    let (_, repository) = in_memory();
    for (listing, shown) in [(Listing::Whole, 0), (Listing::Partial, 20)] {
        let mut root = store_tree(&repository, vec![]);
        root.listing = listing;
        // One beyond SHOWN_MAX.
        let target = tempfile::tempdir().unwrap();
        (0..21).for_each(|n| fs::write(target.path().join(format!("{n:02}")), "").unwrap());
        let options = RestoreOptions { delete: Delete::Known, ..options(target.path()) };
        let surplus = surplus_of(&repository, &root, &options);
        assert_eq!(surplus.kept_paths.paths.len(), shown);
        assert_eq!(surplus.deleted_paths.paths.len(), 20 - shown);
        assert_eq!((surplus.deleted_paths.more, surplus.kept_paths.more).0, u64::from(shown == 0));
        assert_eq!(surplus.kept_paths.more, u64::from(shown > 0));
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), if shown == 0 { 0 } else { 21 });
    }
}

#[test]
fn r104_what_is_left_out_stays_however_deep_it_lies_in_what_goes() {
    let (_, repository) = in_memory();
    let tree = vec![Item::directory("a", vec![]), Item::file("in the way", "x")];
    let root = store_tree(&repository, tree);
    let target = tempfile::tempdir().unwrap();
    let at = |name: &str| target.path().join(name);
    for name in ["a/gone/deep/x.log", "a/gone/deep/x.txt", "a/gone/y.txt", "in the way/x.log"] {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), "").unwrap();
    }
    let options = RestoreOptions {
        delete: Delete::Known,
        exclude: patterns(&["*.log"]),
        ..options(target.path())
    };
    let (report, problems) = restore_with_problems(&repository, &root, &options);
    assert_eq!((report.errors, problems[0].0.as_str()), (1, "/in the way"));
    assert!(at("a/gone/deep/x.log").exists() && at("in the way/x.log").exists());
    assert!(!at("a/gone/deep/x.txt").exists() && !at("a/gone/y.txt").exists());
}

#[test]
fn r104_a_directory_whose_entries_do_not_add_up_loses_nothing() {
    let (_, repository) = in_memory();
    let directory = Item::directory("a", vec![Item::file("f", "x")]);
    let mut root = store_tree(&repository, vec![directory]);
    root.name = b"named".to_vec();
    root.totals.entries += 1;
    let target = tempfile::tempdir().unwrap();
    fs::write(target.path().join("extra"), "").unwrap();
    let options = RestoreOptions { delete: Delete::Known, ..options(target.path()) };
    let (report, _) = restore_with_problems(&repository, &root, &options);
    assert_eq!((report.errors, report.surplus.deleted), (1, 0));
    assert!(target.path().join("extra").exists());
}

/// Mounts until this is dropped.
struct Mounted(Vec<PathBuf>);

impl Mounted {
    /// Mounts on a directory; `false` if that is not allowed here.
    fn mount(&mut self, arguments: &[&str], on: &Path) -> bool {
        let mounted = Command::new("mount").args(arguments).arg(on).output();
        let is_done = mounted.is_ok_and(|output| output.status.success());
        self.0.extend(is_done.then(|| on.to_owned()));
        is_done
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for on in self.0.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(on).status();
        }
    }
}

#[test]
fn r104_nothing_on_another_mount_is_deleted_be_it_of_the_same_file_system() {
    let (_, repository) = in_memory();
    let saved = vec![Item::directory("saved", vec![]), Item::directory("bound", vec![])];
    let root = store_tree(&repository, saved);
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("precious"), "p").unwrap();
    let target = tempfile::tempdir_in(elsewhere.path().parent().unwrap()).unwrap();
    let at = |name: &str| target.path().join(name);
    for name in ["saved", "bound", "gone/deep/mounted", "gone/deep/bound"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["gone/f", "bound file", "extra"] {
        fs::write(at(name), "").unwrap();
    }
    let mut mounted = Mounted(Vec::new());
    let bound = elsewhere.path().to_str().unwrap();
    let file = elsewhere.path().join("precious");
    let tmpfs = ["-t", "tmpfs", "tmpfs"];
    let is_allowed = mounted.mount(&tmpfs, &at("saved"))
        && mounted.mount(&tmpfs, &at("gone/deep/mounted"))
        && mounted.mount(&["--bind", bound], &at("bound"))
        && mounted.mount(&["--bind", bound], &at("gone/deep/bound"))
        && mounted.mount(&["--bind", file.to_str().unwrap()], &at("bound file"));
    if !is_allowed {
        eprintln!("passed over: mounting is not allowed here");
        return;
    }
    for name in ["saved/precious", "gone/deep/mounted/precious"] {
        fs::write(at(name), "p").unwrap();
    }
    for delete in [Delete::Known, Delete::Unknown] {
        let options = RestoreOptions { delete, ..options(target.path()) };
        let surplus = surplus_of(&repository, &root, &options);
        // saved/precious, bound/precious, bound file, gone/deep/mounted, gone/deep/bound
        assert_eq!(surplus.kept, 5, "{surplus:?}");
        let kept = ["saved", "bound", "gone/deep/mounted", "gone/deep/bound"];
        assert!(kept.iter().all(|name| at(name).join("precious").exists()));
        assert!(at("bound file").exists() && !at("gone/f").exists() && !at("extra").exists());
    }
}

/// The source was named by a link, and was empty when it was saved.
#[test]
fn r104_nothing_is_deleted_on_a_mount_that_a_link_at_a_source_leads_to() {
    let (_, repository) = in_memory();
    let mut root = store_tree(&repository, vec![Item::directory("data", vec![])]);
    root.listing = Listing::Above;
    let (target, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(elsewhere.path().join("precious"), "p").unwrap();
    fs::create_dir(target.path().join("disk")).unwrap();
    std::os::unix::fs::symlink("disk", target.path().join("data")).unwrap();
    let mut mounted = Mounted(Vec::new());
    let bound = ["--bind", elsewhere.path().to_str().unwrap()];
    if !mounted.mount(&bound, &target.path().join("disk")) {
        eprintln!("SKIPPED: a link to a mount was not tested: mounting is not allowed here");
        return;
    }
    for delete in [Delete::Known, Delete::Unknown] {
        let options = RestoreOptions { delete, ..options(target.path()) };
        let surplus = surplus_of(&repository, &root, &options);
        assert_eq!((surplus.deleted, surplus.kept), (0, 1));
        assert!(elsewhere.path().join("precious").exists());
    }
}

/// A directory whose names are folded below `place`, if there is one to be had here.
fn folding_directory(mounted: &mut Mounted, place: &Path) -> Option<PathBuf> {
    let (image, on) = (place.join("image"), place.join("mounted"));
    let done = |program: &str, arguments: &[&str]| {
        let ran = Command::new(program).args(arguments).output().ok();
        ran.filter(|output| output.status.success()).map(|_| ())
    };
    fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).unwrap();
    fs::create_dir(&on).unwrap();
    let shown = image.to_str().unwrap();
    done("mkfs.ext4", &["-q", "-F", "-O", "casefold", shown])?;
    mounted.mount(&["-o", "loop", shown], &on).then_some(())?;
    let folding = on.join("folding");
    fs::create_dir(&folding).unwrap();
    done("chattr", &["+F", folding.to_str().unwrap()])?;
    Some(folding)
}

#[test]
fn r104_another_spelling_of_what_was_restored_is_not_deleted() {
    let (_, repository) = in_memory();
    let items = vec![Item::file("readme", "x"), Item::directory("docs", vec![])];
    let root = store_tree(&repository, items);
    let place = tempfile::tempdir().unwrap();
    let mut mounted = Mounted(Vec::new());
    let Some(folding) = folding_directory(&mut mounted, place.path()) else {
        eprintln!("passed over: no file system here folds names");
        return;
    };
    fs::write(folding.join("README"), "mine").unwrap();
    fs::create_dir(folding.join("DOCS")).unwrap();
    fs::write(folding.join("extra"), "").unwrap();
    let options = RestoreOptions { delete: Delete::Known, ..options(&folding) };
    let (report, _) = restore_with_problems(&repository, &root, &options);
    assert!(folding.join("README").exists() && folding.join("DOCS").is_dir());
    assert!(!folding.join("extra").exists());
    assert_eq!((report.surplus.deleted, report.surplus.kept), (1, 0));
}

#[test]
fn r159_what_was_moved_while_the_snapshot_was_saved_is_not_deleted() {
    let (_, repository) = in_memory();
    let root = store_source(&repository);
    for (delete, is_meanwhile, deleted, kept) in
        [(Delete::Known, true, 0, 2), (Delete::Known, false, 1, 1), (Delete::Unknown, true, 2, 0)]
    {
        let target = target_with_extras();
        let extra = target.path().join("home/source/extra");
        let known = fs::metadata(&extra).unwrap();
        let changed_ns = known.ctime() * 1_000_000_000 + known.ctime_nsec();
        let begun_ns = if is_meanwhile { changed_ns - 1 } else { changed_ns + 1 };
        let saved_within_ns = begun_ns..begun_ns + 2;
        let options = RestoreOptions { delete, saved_within_ns, ..options(target.path()) };
        let surplus = surplus_of(&repository, &root, &options);
        assert_eq!((surplus.deleted, surplus.kept), (deleted, kept), "{delete:?}");
        assert_eq!(extra.exists(), deleted == 0, "{delete:?}");
    }
}
