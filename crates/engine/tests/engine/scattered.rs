//! Files that have not changed, but lie scattered in frames of which little is needed, are read
//! again and stored together, as far as the loss leaves room.

use crate::ingest::{content_at, in_memory, open, random_bytes};
use crate::placement::assert_places;
use crate::rewriting::{rewriting, sources, unkeyed};
use crate::steps::check_all;
use onefold_chunking::{ChunkerKind, ChunkerParameters, HOLE_BLOCK_BYTES};
use onefold_engine::ingest::links::LinkedName;
use onefold_engine::ingest::read::{Element, FileTask, Message, ReadJob, Work};
use onefold_engine::ingest::scattered::{CHUNKS_AGAIN_MAX, Stretch};
use onefold_engine::ingest::walk::BATCH_FILES_MAX;
use onefold_engine::ingest::{BackupReport, backup};
use onefold_engine::restore::{self, Delete, Overwrite, PlanReport, RestoreOptions, Without};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{InitOptions, Job};
use onefold_format::node::{Entry, Extent};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::Store;
use onefold_types::SessionId;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const FILES: usize = 60;
const FILE_BYTES: usize = 40_000;
/// Every fifth file never changes: about one in each frame of the first version.
const KEPT_EVERY: usize = 5;

fn save(store: &Arc<dyn Store>, path: &Path, choice: &str) -> BackupReport {
    let source = sources(&[path.to_path_buf()]);
    backup(&open(store), source, &rewriting(choice), &Job::unattended().0).unwrap()
}

fn plan(store: &Arc<dyn Store>, id: SessionId) -> PlanReport {
    let repository = open(store);
    let list = SnapshotList::load(&repository).unwrap();
    let record = &list.get(id).unwrap().record;
    let root = TreeReader::open(&repository).unwrap().resolve(record.root, b"/").unwrap();
    let options = RestoreOptions {
        target: std::path::PathBuf::new(),
        overwrite: Overwrite::IfChanged,
        in_place: false,
        saved_within_ns: 0..0,
        delete: Delete::Nothing,
        sparse: false,
        verify: false,
        dry_run: false,
        include: onefold_engine::patterns::Patterns::none(),
        exclude: onefold_engine::patterns::Patterns::none(),
        threads: 1,
        engine: RestoreEngine::Direct,
        placed: None,
        sources: None,
        follows_out: false,
        reach: None,
        without: Without::default(),
        spared: None,
    };
    restore::plan(&repository, &root, &options, &Job::unattended().0).unwrap()
}

/// Versions of a tree; the store, and the reports. In the second and third four of five files
/// change wholly, later it is one file.
fn versions(choice: &str) -> (Arc<dyn Store>, Vec<BackupReport>) {
    let source = tempfile::tempdir().unwrap();
    let (_, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    let mut reports = Vec::new();
    for version in 0..6u64 {
        let changes = |number: usize| match version {
            0 => true,
            1 | 2 => !number.is_multiple_of(KEPT_EVERY),
            _ => number == 1,
        };
        for number in (0..FILES).filter(|number| changes(*number)) {
            let bytes = random_bytes(version * 1000 + number as u64, FILE_BYTES);
            fs::write(source.path().join(format!("f{number:02}")), bytes).unwrap();
        }
        crate::ingest::settle_times(source.path());
        reports.push(save(&store, source.path(), choice));
    }
    assert!(check_all(&open(&store)).is_clean());
    for report in &reports {
        assert_places(&open(&store), report.snapshot.unwrap());
    }
    (store, reports)
}

#[test]
fn files_left_behind_in_frames_of_which_little_is_needed_are_gathered() {
    let (plain_store, plain) = versions("none");
    let (store, reports) = versions("auto,loss=20");
    let (all, kept) = (FILES as u64, (FILES / KEPT_EVERY) as u64);
    let unchanged = |reports: &[BackupReport]| -> Vec<u64> {
        reports.iter().map(|report| report.summary.files_unchanged).collect()
    };
    assert_eq!(unchanged(&plain), [0, kept, kept, all - 1, all - 1, all - 1]);
    assert_eq!(unchanged(&reports), unchanged(&plain));
    // The fourth version is the first of which little is read; after it, those that were left
    // behind are read again, and then left alone.
    let read = |version: usize| reports[version].summary.bytes_read;
    let one = FILE_BYTES as u64;
    assert_eq!([read(3), read(4), read(5)], [one, one + kept * one, one]);
    let rewritten = |version: usize| reports[version].summary.bytes_rewritten;
    assert_eq!(rewritten(4), kept * one);
    assert_eq!((rewritten(3), rewritten(5)), (0, 0));
    let opened = plan(&store, reports[5].snapshot.unwrap()).bytes_opened;
    let opened_plain = plan(&plain_store, plain[5].snapshot.unwrap()).bytes_opened;
    assert!(opened * 4 < opened_plain * 3, "{opened} {opened_plain}");
}

#[test]
fn nothing_is_read_again_without_room_to_store_it_again() {
    for choice in ["auto,loss=0", "history,loss=0", "window,loss=20", "capping,level=2"] {
        let (_, reports) = versions(choice);
        let all = FILES as u64;
        let last = &reports[3..];
        assert!(last.iter().all(|report| report.summary.files_unchanged == all - 1), "{choice}");
    }
}

/// A large file whose chunks are torn out of frames that hold little else that is needed: so many
/// of them are read in one backup, at the right places between holes, and the rest in the next.
#[test]
fn more_chunks_of_a_file_than_one_backup_reads_again_are_left_for_the_next() {
    const PART_BYTES: usize = 512;
    const PARTS: usize = CHUNKS_AGAIN_MAX + 1;
    let (_, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, PART_BYTES).unwrap();
    crate::ingest::create(&store, &InitOptions { chunker, ..unkeyed() });
    let source = tempfile::tempdir().unwrap();
    let large = source.path().join("large");
    let parts = random_bytes(1, PARTS * PART_BYTES);
    let junk = random_bytes(2, 4 * PARTS * PART_BYTES);
    let pairs = parts.chunks(PART_BYTES).zip(junk.chunks(4 * PART_BYTES));
    let first: Vec<u8> = pairs.flat_map(|(part, junk)| [part, junk].concat()).collect();
    // Holes are whole blocks.
    let (before, after) = parts.split_at(HOLE_BLOCK_BYTES);
    let kept = [before, &vec![0; 3 * HOLE_BLOCK_BYTES], after].concat();
    let mut reports = Vec::new();
    for version in 0..7u64 {
        match version {
            0 => fs::write(&large, &first).unwrap(),
            1 => fs::write(&large, &kept).unwrap(),
            _ => {}
        }
        fs::write(source.path().join("small"), random_bytes(10 + version, 300)).unwrap();
        crate::ingest::settle_times(source.path());
        reports.push(save(&store, source.path(), "auto,loss=60"));
    }
    let most = CHUNKS_AGAIN_MAX as u64;
    let again: Vec<u64> = reports.iter().map(|report| report.summary.chunks_rewritten).collect();
    // After a version of which most was read nothing is read again.
    assert_eq!(again, [0, 0, 0, most, 0, 1, 0]);
    let read: Vec<u64> = reports[2..].iter().map(|one| one.summary.bytes_read - 300).collect();
    assert_eq!(
        read,
        again[2..].iter().map(|chunks| chunks * PART_BYTES as u64).collect::<Vec<_>>()
    );
    let repository = open(&store);
    for report in &reports[1..] {
        let id = report.snapshot.unwrap();
        assert_places(&repository, id);
        assert!(content_at(&repository, id, &large) == kept);
    }
    assert!(check_all(&repository).is_clean());
}

/// What the reader of files finds of chunks that are to be read again: what each is taken for.
fn found(task: FileTask) -> Vec<String> {
    let (_, store) = in_memory();
    let repository = crate::ingest::create(&store, &unkeyed());
    let (jobs, taken) = crossbeam_channel::unbounded();
    let (results, messages) = crossbeam_channel::unbounded();
    let (_, spare) = crossbeam_channel::unbounded();
    jobs.send(ReadJob { work: Work::Files(vec![task]), results }).unwrap();
    drop(jobs);
    onefold_engine::ingest::read::run((&repository, None), &taken, &spare, &Job::unattended().0);
    let name = |message: &Message, element: &Element| match element {
        Element::Data { start, length } => {
            let chunk = &message.buffer[*start..*start + *length];
            format!("{}", chunk.escape_ascii())
        }
        Element::Kept { chunks } => format!("kept {chunks}"),
        Element::End(end) => format!("end {}", end.is_ok()),
        Element::Again { .. } | Element::Hole { .. } => "other".to_owned(),
    };
    let of = |message: Message| -> Vec<String> {
        let names = message.elements.iter().map(|element| name(&message, element)).collect();
        assert_eq!(message.ranges().len(), message.fingerprints.len());
        names
    };
    messages.into_iter().flat_map(of).collect()
}

#[test]
fn chunks_that_are_not_what_they_were_or_cannot_be_read_stay_where_they_are() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), b"one-two-three").unwrap();
    let (_, store) = in_memory();
    let repository = crate::ingest::create(&store, &unkeyed());
    let chunk = |bytes: &[u8]| Extent {
        fingerprint: repository.fingerprinter().data(bytes),
        length: bytes.len() as u64,
    };
    let again = vec![
        Stretch { kept: 3, offset: 0, chunks: vec![chunk(b"one-"), chunk(b"TWO-")] },
        Stretch { kept: 7, offset: 8, chunks: vec![chunk(b"three")] },
        Stretch { kept: 0, offset: 10, chunks: vec![chunk(b"beyond the end")] },
    ];
    let task = |name: &str| FileTask {
        directory: Arc::new(fs::File::open(directory.path()).unwrap().into()),
        name: CString::new(name).unwrap(),
        entry: Entry::default(),
        link: LinkedName::Only,
        earlier: None,
        again: again.clone(),
    };
    let all = ["kept 3", "one-", "kept 1", "kept 7", "three", "kept 0", "kept 1", "end true"];
    assert_eq!(found(task("file")), all);
    let none = ["kept 3", "kept 1", "kept 1", "kept 7", "kept 1", "kept 0", "kept 1", "end true"];
    assert_eq!(found(task("gone")), none);
}

/// One file more than a batch holds, each with another name, and all of them left behind in frames
/// of which little else is needed.
#[test]
fn one_file_more_than_are_read_together_is_read_again_once_for_all_its_names() {
    const KEPT: usize = BATCH_FILES_MAX + 1;
    const KEPT_BYTES: usize = 300;
    let (_, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    let source = tempfile::tempdir().unwrap();
    let kept = |number: usize| source.path().join(format!("{number:03}-kept"));
    let mut reports = Vec::new();
    for version in 0..5u64 {
        for number in (0..KEPT).filter(|_| version < 2) {
            let seed = version * 1000 + number as u64;
            let junk = source.path().join(format!("{number:03}-other"));
            fs::write(junk, random_bytes(10_000 + seed, 8_000)).unwrap();
            if version == 0 {
                fs::write(kept(number), random_bytes(number as u64, KEPT_BYTES)).unwrap();
                let name = source.path().join(format!("{number:03}-link"));
                fs::hard_link(kept(number), name).unwrap();
            }
        }
        fs::write(source.path().join("small"), random_bytes(90_000 + version, 300)).unwrap();
        crate::ingest::settle_times(source.path());
        reports.push(save(&store, source.path(), "auto,loss=30"));
    }
    let again: Vec<u64> = reports.iter().map(|report| report.summary.chunks_rewritten).collect();
    assert_eq!(again, [0, 0, 0, KEPT as u64, 0]);
    let read: Vec<u64> = reports[2..].iter().map(|one| one.summary.bytes_read - 300).collect();
    assert_eq!(read, [0, (KEPT * KEPT_BYTES) as u64, 0]);
    let repository = open(&store);
    let id = reports[4].snapshot.unwrap();
    for number in 0..KEPT {
        assert!(content_at(&repository, id, &kept(number)) == fs::read(kept(number)).unwrap());
    }
    assert!(check_all(&repository).is_clean());
}
