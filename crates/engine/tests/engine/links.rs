//! Files of several names, and numbers of files that are used again.

use crate::ingest::{content_at, create, entry_at, in_memory, options};
use crate::steps::{backup_options, paths, random_bytes};
use onefold_engine::ingest::{self, BackupReport};
use onefold_engine::patterns::Patterns;
use onefold_engine::{Job, Observer, Repository};
use onefold_types::Error;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Of which a file is so large that it is read at once, by itself.
const LARGE_BYTES: usize = 400_000;
/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// After a change, until a later one must bear another time.
const SETTLED: Duration = Duration::from_millis(120);
/// Files that are made in the hope for a number that was used.
const TRIES: u32 = 400;

/// Does something when `b.told` is left out, which is after `a` was read, and before the walk looks
/// at anything behind.
struct Between {
    is_read: AtomicBool,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Observer for Between {
    fn problem(&self, item: &str, error: &Error) {
        panic!("{item}: {error}");
    }

    fn item(&self, path: &str, what: &'static str) {
        if path.ends_with("/a") {
            self.is_read.store(true, Ordering::SeqCst);
        }
        if path.ends_with("/b.told") {
            assert_eq!(what, "excluded");
            let started = Instant::now();
            while !self.is_read.load(Ordering::SeqCst) {
                assert!(started.elapsed() < PATIENCE, "the first file is not read");
                std::thread::sleep(Duration::from_millis(1));
            }
            (self.act.lock().unwrap().take().unwrap())();
        }
    }
}

fn save_and(
    repository: &Arc<Repository>,
    source: &Path,
    act: impl FnOnce() + Send + 'static,
) -> BackupReport {
    let act: Box<dyn FnOnce() + Send> = Box::new(act);
    let between = Between { is_read: AtomicBool::new(false), act: Mutex::new(Some(act)) };
    let job = Job { observer: Arc::new(between), ..Job::unattended().0 };
    let mut asked = paths(source);
    if let ingest::Source::Paths { selection, .. } = &mut asked {
        selection.excludes = Patterns::build(&["*.told".to_owned()], &[]).unwrap();
    }
    ingest::backup(repository, asked, &backup_options(), &job).unwrap()
}

/// A directory with a file of two names that has settled, and with a mark behind the first.
fn source() -> (tempfile::TempDir, Vec<u8>) {
    let source = tempfile::tempdir().unwrap();
    let bytes = random_bytes(1, LARGE_BYTES);
    fs::write(source.path().join("a"), &bytes).unwrap();
    fs::write(source.path().join("b.told"), b"").unwrap();
    fs::create_dir(source.path().join("z")).unwrap();
    fs::hard_link(source.path().join("a"), source.path().join("z/other")).unwrap();
    std::thread::sleep(SETTLED);
    (source, bytes)
}

#[test]
fn r97_a_name_whose_file_changed_since_its_first_name_was_read_is_read_by_itself() {
    let (source, bytes) = source();
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let other = source.path().join("z/other");
    let changed = other.clone();
    let report = save_and(&repository, source.path(), move || {
        let file = File::options().write(true).open(changed).unwrap();
        file.write_all_at(b"other bytes", 0).unwrap();
    });
    let id = report.snapshot.unwrap();
    assert!(content_at(&repository, id, &source.path().join("a")) == bytes);
    assert!(content_at(&repository, id, &other) == fs::read(&other).unwrap());
}

#[test]
fn r97_a_number_that_is_used_again_gives_no_file_the_bytes_of_another() {
    let (source, _) = source();
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let root: PathBuf = source.path().into();
    let inode = root.join("a").metadata().unwrap().ino();
    let below = root.clone();
    let report = save_and(&repository, &root, move || {
        fs::remove_file(below.join("a")).unwrap();
        fs::remove_file(below.join("z/other")).unwrap();
        let new = below.join("z/new");
        for number in 0..TRIES {
            fs::write(&new, random_bytes(2, LARGE_BYTES)).unwrap();
            if new.metadata().unwrap().ino() == inode {
                break;
            }
            fs::rename(&new, below.join(format!("b.{number}.told"))).unwrap();
        }
        if new.exists() {
            fs::hard_link(&new, below.join("z/newer")).unwrap();
        }
    });
    let id = report.snapshot.unwrap();
    // A file system that gives every number once has nothing to be tried.
    for name in ["z/new", "z/newer"].map(|name| root.join(name)).iter().filter(|it| it.exists()) {
        assert_eq!(name.metadata().unwrap().ino(), inode);
        assert!(content_at(&repository, id, name) == fs::read(name).unwrap());
        assert_eq!(entry_at(&repository, id, name).links, 2);
    }
}

#[test]
fn a_file_of_several_names_that_does_not_change_is_read_once() {
    let (source, bytes) = source();
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let report = save_and(&repository, source.path(), || ());
    let id = report.snapshot.unwrap();
    let entries = ["a", "z/other"].map(|name| entry_at(&repository, id, &source.path().join(name)));
    assert_eq!(report.summary.bytes_read, bytes.len() as u64);
    let [first, other] = entries.each_ref();
    assert_eq!((first.content, first.changed), (other.content, other.changed));
    assert_eq!((first.inode, first.links), (other.inode, other.links));
}
