//! Rewriting counts what is read for bases alone: differences are stored whole where their bases
//! stand among chunks that nobody needs any more.

use crate::ingest::{content_at, in_memory, open, random_bytes, settle_times};
use crate::placement::{assert_places, reader_of};
use crate::rewriting::{containers_of, rewriting, save, unkeyed};
use crate::steps::check_all;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::{BackupOptions, BackupReport, ParentChoice};
use onefold_engine::placement::Unit;
use onefold_engine::{InitOptions, Repository};
use onefold_policy::rewrite::UnitId;
use onefold_store::Store;
use onefold_types::{ContainerId, SessionId, limits};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

const FILES: usize = 100;
const FILE_BYTES: usize = 24_000;
/// One file in so many stays, changed a little everywhere.
const STAYS_ONE_IN: usize = 10;

/// A store with one container of whole chunks, of which the second version needs a tenth: as bases.
struct Torn {
    directory: tempfile::TempDir,
    store: Arc<dyn Store>,
    /// Containers of the first version.
    first: BTreeSet<ContainerId>,
    /// Chunks of the second that need something there: differences, and what has not changed.
    needing: u64,
    /// Containers of the first version that the second needs.
    needed: usize,
}

impl Torn {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (_, store) = in_memory();
        crate::ingest::create(&store, &unkeyed());
        let mut torn = Self { directory, store, first: BTreeSet::new(), needing: 0, needed: 0 };
        for number in 0..FILES {
            torn.write(number, &random_bytes(number as u64, FILE_BYTES));
        }
        torn.save("none", ParentChoice::None);
        torn.first = containers_of(&torn.repository());
        for number in 0..FILES {
            let is_kept = number.is_multiple_of(STAYS_ONE_IN);
            let seed = if is_kept { number } else { FILES + number };
            let mut bytes = random_bytes(seed as u64, FILE_BYTES);
            if is_kept {
                bytes.iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
            }
            torn.write(number, &bytes);
        }
        // What is recorded of the second version is asked by the third.
        let second = torn.save("auto,loss=30", ParentChoice::Newest);
        torn.needed = torn.needed_of_first(second.snapshot.unwrap());
        assert!(torn.needed >= torn.first.len() / 2, "{} of {}", torn.needed, torn.first.len());
        let second = second.summary;
        let repository = torn.repository();
        let later = containers_of(&repository);
        let sections =
            later.difference(&torn.first).map(|id| read_section(&repository, *id).unwrap());
        let deltas: u64 = sections.map(|section| section.deltas.len() as u64).sum();
        assert!(deltas >= (FILES / STAYS_ONE_IN) as u64, "{deltas}");
        torn.needing = deltas + second.chunks - second.chunks_new;
        torn
    }

    fn file(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("f{number:03}"))
    }

    fn write(&self, number: usize, bytes: &[u8]) {
        fs::write(self.file(number), bytes).unwrap();
    }

    fn repository(&self) -> Arc<Repository> {
        open(&self.store)
    }

    fn save(&self, choice: &str, parent: ParentChoice) -> BackupReport {
        settle_times(self.directory.path());
        let options = BackupOptions { parent, ..rewriting(choice) };
        save(&self.repository(), self.directory.path(), &options)
    }

    /// Containers of the first version that a snapshot needs, as it is recorded.
    fn needed_of_first(&self, id: SessionId) -> usize {
        let uses = reader_of(&self.repository(), id).uses(Unit::Container).unwrap();
        let is_needed = |id: &&ContainerId| uses.get(&UnitId::of_container(**id)).is_some();
        self.first.iter().filter(is_needed).count()
    }

    fn assert_sound(&self, id: SessionId) {
        let repository = self.repository();
        for number in 0..FILES {
            let file = self.file(number);
            assert!(content_at(&repository, id, &file) == fs::read(&file).unwrap(), "{number}");
        }
        let checked = check_all(&repository);
        assert!(checked.is_clean() && checked.notes.is_empty(), "{checked:?}");
    }
}

#[test]
fn differences_are_stored_whole_where_only_their_bases_are_needed() {
    let torn = Torn::new();
    let third = torn.save("auto,loss=30", ParentChoice::None);
    assert_eq!(third.summary.chunks_rewritten, torn.needing);
    let id = third.snapshot.unwrap();
    assert_eq!(torn.needed_of_first(id), 0, "nothing of the first version is read any more");
    torn.assert_sound(id);
    // Once: what is whole now needs nothing of them.
    let fourth = torn.save("auto,loss=30", ParentChoice::None);
    assert_eq!(fourth.summary.chunks_rewritten, 0);
    assert_eq!(torn.needed_of_first(fourth.snapshot.unwrap()), 0);
}

#[test]
fn files_are_read_again_whose_differences_need_nothing_else_of_a_container() {
    let torn = Torn::new();
    let mut needed = Vec::new();
    let mut rewritten = 0;
    for version in 0..3 {
        // One small file changes, the others are kept unread.
        torn.write(1, &random_bytes(1000 + version, 500));
        let report = torn.save("auto,loss=30", ParentChoice::Newest);
        assert!(version > 0 || report.summary.bytes_read == 500, "{:?}", report.summary);
        rewritten += report.summary.chunks_rewritten;
        needed.push(torn.needed_of_first(report.snapshot.unwrap()));
        torn.assert_sound(report.snapshot.unwrap());
    }
    // The second version was read whole, so that only the fourth knows that its parent was not.
    // What rests on the first version is known of files that are kept unread as well.
    assert_eq!(needed, [torn.needed, 0, 0]);
    assert_eq!(rewritten, torn.needing);
}

#[test]
fn without_a_loss_to_spend_differences_stay_what_they_are() {
    let torn = Torn::new();
    let third = torn.save("none", ParentChoice::None);
    assert_eq!(third.summary.chunks_rewritten, 0);
    assert_eq!(third.summary.chunks_new, 0);
    torn.assert_sound(third.snapshot.unwrap());
    // And of those that are read and kept it is recorded what they rest on.
    let fourth = torn.save("auto,loss=0.01", ParentChoice::None);
    assert_eq!(fourth.summary.chunks_rewritten, 0);
    assert_eq!(torn.needed_of_first(fourth.snapshot.unwrap()), torn.needed);
}

/// Of a large file of which little lies in what is to be emptied, that little is read.
#[test]
fn only_chunks_that_are_scattered_are_read_again() {
    const PART_BYTES: usize = 8 * limits::KIB;
    const PARTS: usize = 65;
    let (_, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, PART_BYTES).unwrap();
    crate::ingest::create(&store, &InitOptions { chunker, ..unkeyed() });
    let directory = tempfile::tempdir().unwrap();
    let write = |number: u64, bytes: &[u8]| {
        fs::write(directory.path().join(format!("{number:03}")), bytes).unwrap();
    };
    let mut large = random_bytes(1, PARTS * PART_BYTES);
    for version in 0..2 {
        for number in 0..200 {
            write(number, &random_bytes(1000 * (version + 1) + number, PART_BYTES));
        }
        write(200, &large);
        large[PART_BYTES..].copy_from_slice(&random_bytes(2, (PARTS - 1) * PART_BYTES));
        settle_times(directory.path());
        save(&open(&store), directory.path(), &rewriting("auto,loss=30"));
    }
    for version in 0..2 {
        write(0, &random_bytes(5000 + version, 500));
        settle_times(directory.path());
        let report = save(&open(&store), directory.path(), &rewriting("auto,loss=30"));
        let summary = &report.summary;
        assert_eq!(summary.bytes_read, 500 + version * PART_BYTES as u64, "{version}");
        assert_eq!((summary.chunks_rewritten, summary.files_unchanged), (version, 200));
        assert_places(&open(&store), report.snapshot.unwrap());
    }
}
