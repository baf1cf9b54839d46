//! Placements: what they say is so, whatever happened to the tree, and they may be lost.

mod advice;
mod cost;

use crate::ingest::{in_memory, open, random_bytes};
use crate::rewriting::{Versions, rewriting, save, save_with, sources, unkeyed};
use crate::steps::chunk_store_avoiding;
use onefold_engine::chunk_store::ChunkBatch;
use onefold_engine::container::FrameId;
use onefold_engine::container::list::container_names;
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::{BackupOptions, BackupReport, backup};
use onefold_engine::job::Observer;
use onefold_engine::placement::{Overview, PlacementReader, PlacementRecorder, Run, Unit};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{InitOptions, Interrupt, Job, Repository};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_format::record::SnapshotRecord;
use onefold_policy::rewrite::{ContainerUse, UnitId};
use onefold_store::Store;
use onefold_types::{ContainerId, Error, Fingerprint, Result, SessionId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

fn record_of(repository: &Arc<Repository>, id: SessionId) -> SnapshotRecord {
    SnapshotList::load(repository).unwrap().get(id).unwrap().record.clone()
}

/// A placement with a reader of its own.
pub struct Placement {
    nodes: TreeReader,
    reader: PlacementReader,
}

impl Placement {
    fn open(repository: &Arc<Repository>, placement: Reference) -> Result<Self> {
        let nodes = TreeReader::open(repository)?;
        let reader = PlacementReader::open(nodes.chunks(), placement)?;
        Ok(Self { nodes, reader })
    }

    fn chunks(&self) -> u64 {
        self.reader.chunks()
    }

    fn run_at(&mut self, place: u64) -> Result<Option<Run>> {
        self.reader.run_at(self.nodes.chunks(), place)
    }

    fn runs(&mut self, place: u64, chunks: u64, each: &mut dyn FnMut(Run)) {
        self.reader.runs(self.nodes.chunks(), place, chunks, each);
    }

    pub fn uses(&mut self, unit: Unit) -> Result<ContainerUse> {
        self.reader.uses(self.nodes.chunks(), unit)
    }
}

pub fn reader_of(repository: &Arc<Repository>, id: SessionId) -> Placement {
    let placement = record_of(repository, id).placement.expect("a placement was recorded");
    Placement::open(repository, placement).unwrap()
}

/// Data chunks of a tree in its order, with their sizes.
struct Walked {
    reader: TreeReader,
    chunks: Vec<(Vec<u8>, Fingerprint, u64)>,
}

impl Walked {
    fn of(repository: &Arc<Repository>, root: Reference) -> Self {
        let reader = TreeReader::open(repository).unwrap();
        let mut walked = Self { reader, chunks: Vec::new() };
        let counted = walked.directory(root, b"");
        assert_eq!(counted, walked.chunks.len() as u64);
        walked
    }

    /// Walks a directory; the chunks that its entries claim to have.
    fn directory(&mut self, directory: Reference, above: &[u8]) -> u64 {
        let mut counted = 0;
        for entry in self.reader.entries(directory).unwrap() {
            let path = [above, b"/", entry.name.as_slice()].concat();
            let before = self.chunks.len();
            match entry.kind {
                EntryKind::Directory => {
                    let below = self.directory(entry.content.unwrap(), &path);
                    assert_eq!(entry.totals.chunks, below, "{}", path.escape_ascii());
                    counted += below;
                }
                EntryKind::File => {
                    self.file(&entry, &path);
                    let found = (self.chunks.len() - before) as u64;
                    assert_eq!(entry.chunks, found, "{}", path.escape_ascii());
                    counted += entry.chunks;
                }
                _ => assert_eq!(entry.chunks, 0),
            }
        }
        counted
    }

    fn file(&mut self, entry: &Entry, path: &[u8]) {
        let Some(content) = entry.content else { return };
        let chunks = &mut self.chunks;
        let mut each = |extent: onefold_format::node::Extent| {
            if !extent.is_hole() {
                chunks.push((path.to_vec(), extent.fingerprint, extent.length));
            }
            Ok(())
        };
        self.reader.extents(content, entry.size, &mut each).unwrap();
    }
}

/// Compares a snapshot's placement with the containers, chunk by chunk; returns how many chunks
/// have a known place and how many have none.
pub fn assert_places(repository: &Arc<Repository>, id: SessionId) -> (u64, u64) {
    let walked = Walked::of(repository, record_of(repository, id).root);
    let mut reader = reader_of(repository, id);
    let total = walked.chunks.len() as u64;
    assert_eq!(reader.chunks(), total, "the runs cover the tree, no more and no less");
    assert_eq!(reader.run_at(total).unwrap(), None);
    let mut places = Vec::new();
    reader.runs(0, total, &mut |run| {
        let place = run.container.map(|container| FrameId { container, frame: run.frame });
        places.extend((0..run.chunks).map(|_| place));
    });
    assert_eq!(places.len() as u64, total);
    let mut sections: BTreeMap<ContainerId, BTreeSet<(Fingerprint, u32)>> = BTreeMap::new();
    let mut frames = BTreeSet::new();
    let (mut known, mut unknown) = (0, 0);
    for (number, ((path, fingerprint, _), place)) in walked.chunks.iter().zip(places).enumerate() {
        // Any place of the tree can be asked for by itself.
        if number % 37 == 0 {
            let run = reader.run_at(number as u64).unwrap().unwrap();
            assert_eq!(run.container, place.map(|place| place.container));
        }
        let Some(FrameId { container, frame }) = place else {
            unknown += 1;
            continue;
        };
        frames.insert(FrameId { container, frame });
        let section = sections.entry(container).or_insert_with(|| {
            let section = read_section(repository, container).unwrap();
            section.chunks.iter().map(|chunk| (chunk.fingerprint, chunk.frame)).collect()
        });
        let path = path.escape_ascii();
        let is_there = section.contains(&(*fingerprint, u32::from(frame)));
        assert!(is_there, "chunk {number}, of {path}, is not in frame {frame} of {container}");
        known += 1;
    }
    let needed = walked.chunks.iter().map(|(_, fingerprint, _)| *fingerprint).collect();
    assert_uses(repository, id, &frames, &needed);
    (known, unknown)
}

/// The frames that differences in some frames are made of: of those among these chunks, and of all.
fn bases_in(
    repository: &Arc<Repository>,
    frames: &BTreeSet<FrameId>,
    needed: &BTreeSet<Fingerprint>,
) -> [BTreeSet<FrameId>; 2] {
    let [mut of_needed, mut of_all] = [BTreeSet::new(), BTreeSet::new()];
    for place in frames {
        let section = read_section(repository, place.container).unwrap();
        for delta in &section.deltas {
            let chunk = &section.chunks[delta.chunk as usize];
            if chunk.frame != u32::from(place.frame) {
                continue;
            }
            let base = delta.bases[0];
            let container = base.container.unwrap();
            let holder = read_section(repository, container).unwrap();
            let found = holder.chunks.iter().find(|one| one.fingerprint == base.fingerprint);
            let base = FrameId { container, frame: found.unwrap().frame as u16 };
            of_all.insert(base);
            if needed.contains(&chunk.fingerprint) {
                of_needed.insert(base);
            }
        }
    }
    [of_needed, of_all]
}

/// The recorded use names the frames of the runs and knows what is in them, and the frames of what
/// these are made of.
fn assert_uses(
    repository: &Arc<Repository>,
    id: SessionId,
    expected: &BTreeSet<FrameId>,
    needed: &BTreeSet<Fingerprint>,
) {
    let uses = reader_of(repository, id).uses(Unit::Frame).unwrap();
    let [of_needed, of_all] = bases_in(repository, expected, needed);
    for base in &of_needed {
        assert!(uses.get(&Unit::Frame.id_of(*base)).is_some(), "{base:?} is read for bases");
    }
    let known: BTreeSet<UnitId> =
        expected.union(&of_all).map(|frame| Unit::Frame.id_of(*frame)).collect();
    assert!(uses.iter().all(|(name, _)| known.contains(&name)), "a frame that nothing needs");
    for place in expected {
        let usage = uses.get(&Unit::Frame.id_of(*place)).expect("a frame of the runs");
        let section = read_section(repository, place.container).unwrap();
        let own = section.chunks.iter().filter(|chunk| chunk.frame == u32::from(place.frame));
        let payload: u64 = own.map(|chunk| u64::from(chunk.length)).sum();
        assert_eq!(usage.payload_bytes, payload, "plain bytes in {place:?}");
        assert!(usage.spans >= 1 && usage.referred_bytes > 0);
    }
    let containers: BTreeSet<UnitId> =
        expected.iter().map(|one| UnitId::of_container(one.container)).collect();
    let by_container = reader_of(repository, id).uses(Unit::Container).unwrap();
    let recorded: BTreeSet<UnitId> = by_container.iter().map(|(id, _)| id).collect();
    let of_bases = |frames: &BTreeSet<FrameId>| -> BTreeSet<UnitId> {
        frames.iter().map(|one| UnitId::of_container(one.container)).collect()
    };
    assert!(recorded.is_superset(&(&containers | &of_bases(&of_needed))));
    assert!(recorded.is_subset(&(&containers | &of_bases(&of_all))));
    let summary = record_of(repository, id).summary;
    let overview = Overview::of(&summary).unwrap();
    assert_eq!(overview.containers, containers.len() as u64);
    assert!(overview.container_reads >= overview.containers);
    assert!(overview.speed_factor() > 0.0);
}

fn save_tree(store: &Arc<dyn Store>, path: &Path) -> (BackupReport, SessionId) {
    let report = save(&open(store), path, &rewriting("auto,loss=2"));
    let id = report.snapshot.unwrap();
    (report, id)
}

/// A store whose containers have about four frames.
fn new_store() -> Arc<dyn Store> {
    let (_, store) = in_memory();
    let options = InitOptions { container_size_bytes: limits::MIB, ..unkeyed() };
    crate::ingest::create(&store, &options);
    store
}

#[test]
fn sx_2_every_chunk_is_where_the_placement_says() {
    for choice in ["none", "capping,level=2", "flexible,loss=7", "window,loss=7", "auto,loss=7"] {
        for lookup in ["eager", "lazy", "lazy,ring=64,bucket=65536"] {
            let mut versions = Versions::new(4, 600_000);
            let store = new_store();
            for _ in 0..4 {
                versions.write_next();
                let options =
                    BackupOptions { lookup: lookup.parse().unwrap(), ..rewriting(choice) };
                let report = save(&open(&store), versions.path(), &options);
                let (known, unknown) = assert_places(&open(&store), report.snapshot.unwrap());
                assert!(known > 200, "{choice} {lookup}: {known}");
                // No chunk stands twice in these trees.
                assert_eq!(unknown, 0, "{choice} {lookup}");
            }
        }
    }
}

#[test]
fn the_runs_of_a_first_backup_hold_the_bytes_of_its_files() {
    let mut versions = Versions::new(3, 500_000);
    versions.write_next();
    let store = new_store();
    let (report, id) = save_tree(&store, versions.path());
    let mut reader = reader_of(&open(&store), id);
    let chunks = reader.chunks();
    let mut bytes = 0;
    reader.runs(0, chunks, &mut |run| bytes += run.bytes);
    assert_eq!(bytes, report.summary.bytes);
    let uses = reader.uses(Unit::Frame).unwrap();
    assert_eq!(uses.iter().map(|(_, one)| one.referred_bytes).sum::<u64>(), bytes);
    assert_eq!(uses.iter().map(|(_, one)| one.payload_bytes).sum::<u64>(), bytes);
}

#[test]
fn an_unchanged_tree_has_the_same_placement_and_adds_no_chunk() {
    let mut versions = Versions::new(4, 600_000);
    let store = new_store();
    for _ in 0..3 {
        versions.write_next();
        save_tree(&store, versions.path());
    }
    let (_, first) = save_tree(&store, versions.path());
    let containers = container_names(&open(&store)).unwrap().len();
    let (report, second) = save_tree(&store, versions.path());
    assert_eq!(report.summary.files_unchanged, 4);
    assert_eq!((report.summary.chunks_new, report.summary.bytes_stored), (0, 0));
    let repository = open(&store);
    assert_eq!(container_names(&repository).unwrap().len(), containers);
    let (first, second) = (record_of(&repository, first), record_of(&repository, second));
    assert_eq!(first.placement, second.placement);
    assert!(second.placement.is_some());
    assert_eq!(first.summary.containers, second.summary.containers);
    assert_eq!(first.summary.container_reads, second.summary.container_reads);
}

/// Many small files and some large ones, in several directories.
fn make_mixed(root: &Path) {
    for directory in 0..4u64 {
        let path = root.join(format!("d{directory}/below"));
        fs::create_dir_all(&path).unwrap();
        for number in 0..25u64 {
            let seed = directory * 100 + number;
            let bytes = random_bytes(5000 + seed, 300 + number as usize * 2500);
            fs::write(path.join(format!("s{number:02}")), bytes).unwrap();
        }
        let large = random_bytes(9000 + directory, 400_000);
        fs::write(root.join(format!("d{directory}/large")), large).unwrap();
        fs::write(root.join(format!("d{directory}/empty")), "").unwrap();
        symlink("nowhere", root.join(format!("d{directory}/link"))).unwrap();
    }
    crate::ingest::settle_times(root);
}

fn change_mixed(root: &Path) {
    for number in [3, 4, 11] {
        let path = root.join(format!("d1/below/s{number:02}"));
        let mut bytes = fs::read(&path).unwrap();
        bytes.splice(100..100, *b"inserted");
        fs::write(&path, bytes).unwrap();
    }
    let path = root.join("d2/large");
    let mut bytes = fs::read(&path).unwrap();
    bytes[200_000..200_010].fill(7);
    fs::write(&path, bytes).unwrap();
    fs::remove_file(root.join("d0/below/s07")).unwrap();
    fs::remove_dir_all(root.join("d3/below")).unwrap();
    fs::write(root.join("d0/below/s07new"), random_bytes(1, 60_000)).unwrap();
    fs::write(root.join("a"), random_bytes(2, 90_000)).unwrap();
    fs::write(root.join("d1/b"), random_bytes(3, 70_000)).unwrap();
    fs::rename(root.join("d0/large"), root.join("d2/moved")).unwrap();
    let mut sparse = vec![0; 600_000];
    sparse[300_000..350_000].copy_from_slice(&random_bytes(4, 50_000));
    fs::write(root.join("d2/sparse"), sparse).unwrap();
    crate::ingest::settle_times(root);
}

/// A backup, another of the changed tree, and a third over the runs that were taken over.
fn assert_places_of_three_backups(links: bool) {
    for choice in ["none", "auto,loss=7", "capping,level=1"] {
        let source = tempfile::tempdir().unwrap();
        make_mixed(source.path());
        let at = |name: &str| source.path().join(name);
        let store = new_store();
        let first = save(&open(&store), source.path(), &rewriting(choice));
        assert_places(&open(&store), first.snapshot.unwrap());
        change_mixed(source.path());
        if links {
            fs::hard_link(at("d1/large"), at("d1/large-twin")).unwrap();
            fs::hard_link(at("d1/b"), at("d2/b-twin")).unwrap();
            crate::ingest::settle_times(source.path());
        }
        let second = save(&open(&store), source.path(), &rewriting(choice));
        assert!(second.summary.files_unchanged > 60, "{:?}", second.summary);
        assert!(second.summary.files_new >= 4 && second.summary.files_changed >= 4);
        let (known, unknown) = assert_places(&open(&store), second.snapshot.unwrap());
        // Unknown are the chunks of further names, and repeats of what the session was writing.
        assert!(known > 3 * unknown, "{choice}: {known} {unknown}");
        fs::write(at("d1/c"), random_bytes(9, 50_000)).unwrap();
        fs::remove_file(at("a")).unwrap();
        crate::ingest::settle_times(source.path());
        let third = save(&open(&store), source.path(), &rewriting(choice));
        let (known, unknown) = assert_places(&open(&store), third.snapshot.unwrap());
        assert!(known > 3 * unknown, "{choice}: {known} {unknown}");
    }
}

#[test]
fn kept_changed_new_and_deleted_files_keep_their_right_places() {
    assert_places_of_three_backups(false);
}

#[test]
fn a_directory_of_several_leaves_keeps_its_places() {
    let source = tempfile::tempdir().unwrap();
    let directory = source.path().join("d");
    fs::create_dir(&directory).unwrap();
    for number in 0..6000u64 {
        let name = format!("a-rather-long-name-so-that-leaves-fill-up-{number:05}");
        fs::write(directory.join(name), number.to_le_bytes()).unwrap();
    }
    crate::ingest::settle_times(source.path());
    let store = new_store();
    let (_, first) = save_tree(&store, source.path());
    assert_eq!(assert_places(&open(&store), first), (6000, 0));
    let name = |number: u64| {
        directory.join(format!("a-rather-long-name-so-that-leaves-fill-up-{number:05}"))
    };
    fs::remove_file(name(17)).unwrap();
    fs::write(name(3333), "changed").unwrap();
    fs::write(directory.join("a-new"), "new").unwrap();
    fs::write(directory.join("z-new"), "new as well").unwrap();
    crate::ingest::settle_times(source.path());
    let (report, second) = save_tree(&store, source.path());
    assert_eq!(report.summary.files_unchanged, 5998);
    assert_eq!(assert_places(&open(&store), second), (6001, 0));
}

#[test]
fn several_sources_and_one_that_cannot_be_read_have_right_places() {
    let source = tempfile::tempdir_in("/tmp").unwrap();
    make_mixed(source.path());
    let store = new_store();
    let at = |name: &str| source.path().join(name);
    // A regular file that opens and cannot be read; it comes first in the tree.
    let unreadable = PathBuf::from("/proc/self/mem");
    let paths = [unreadable, at("d0"), at("d1"), at("d3")];
    let (job, problems) = Job::unattended();
    for _ in 0..2 {
        let options = rewriting("auto,loss=2");
        let report = backup(&open(&store), sources(&paths), &options, &job).unwrap();
        assert_eq!(report.summary.errors, 1);
        assert_eq!(assert_places(&open(&store), report.snapshot.unwrap()).1, 0);
        fs::write(at("d1/new"), random_bytes(6, 100_000)).unwrap();
        fs::write(at("d0/below/s00"), random_bytes(7, 30_000)).unwrap();
        crate::ingest::settle_times(source.path());
    }
    assert_eq!(problems.0.lock().unwrap().len(), 2);
}

/// Removes files as soon as the first has been saved.
struct Remover {
    paths: Vec<PathBuf>,
    problems: Mutex<Vec<String>>,
}

impl Observer for Remover {
    fn problem(&self, item: &str, _error: &Error) {
        self.problems.lock().unwrap().push(item.to_owned());
    }

    fn item(&self, _item: &str, _what: &'static str) {
        self.paths.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

#[test]
fn files_that_vanish_while_others_are_read_leave_those_in_place() {
    let source = tempfile::tempdir().unwrap();
    let file = |number: u64| source.path().join(format!("f{number:02}"));
    for number in 0..16 {
        fs::write(file(number), random_bytes(300 + number, 1_500_000)).unwrap();
    }
    crate::ingest::settle_times(source.path());
    let store = new_store();
    let paths = (4..10).map(file).collect();
    let remover = Arc::new(Remover { paths, problems: Mutex::default() });
    let observer = Arc::clone(&remover) as Arc<dyn Observer>;
    let job = Job { interrupt: Interrupt::default(), progress: Arc::default(), observer };
    let source = sources(&[source.path().to_path_buf()]);
    let report = backup(&open(&store), source, &rewriting("auto,loss=2"), &job).unwrap();
    let problems = remover.problems.lock().unwrap().len();
    assert_eq!((problems, report.summary.errors), (0, 0), "{:?}", report.summary);
    assert!(report.summary.files >= 10 && report.left_out.gone > 0, "{:?}", report.left_out);
    assert_eq!(assert_places(&open(&store), report.snapshot.unwrap()).1, 0);
}

#[test]
fn several_sources_in_the_order_of_the_tree_are_recorded_in_any_order_of_naming() {
    let source = tempfile::tempdir().unwrap();
    make_mixed(source.path());
    let at = |name: &str| source.path().join(name);
    let store = new_store();
    let paths = [at("d0"), at("d1/below"), at("d3")];
    let report = save_with(&open(&store), sources(&paths), &rewriting("auto,loss=2"));
    let id = report.snapshot.unwrap();
    // Shorter places are walked first: "d3" before "d1/below", which is not the tree's order.
    assert_eq!(record_of(&open(&store), id).placement, None);
    for paths in [[at("d0"), at("d1"), at("d3")], [at("d0"), at("d1"), at("d2")]] {
        let report = save_with(&open(&store), sources(&paths), &rewriting("auto,loss=2"));
        let (known, unknown) = assert_places(&open(&store), report.snapshot.unwrap());
        assert!(known > 300, "{known}");
        assert_eq!(unknown, 0);
    }
}

#[test]
fn files_without_permission_in_the_middle_of_a_batch_leave_the_others_in_place() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let source = tempfile::tempdir().unwrap();
    make_mixed(source.path());
    for number in [5, 6, 20] {
        let path = source.path().join(format!("d1/below/s{number:02}"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let store = new_store();
    let (job, _) = Job::unattended();
    let paths = [source.path().to_path_buf()];
    let report = backup(&open(&store), sources(&paths), &rewriting("auto,loss=2"), &job).unwrap();
    assert_eq!(report.summary.errors, 3);
    assert_eq!(assert_places(&open(&store), report.snapshot.unwrap()).1, 0);
}

fn batch(repository: &Repository, seeds: std::ops::Range<u64>) -> (ChunkBatch, Vec<Fingerprint>) {
    let mut batch = ChunkBatch::default();
    for seed in seeds {
        let bytes = random_bytes(seed, 5000);
        batch.ranges.push(batch.buffer.len()..batch.buffer.len() + bytes.len());
        batch.fingerprints.push(repository.fingerprinter().data(&bytes));
        batch.buffer.extend(bytes);
    }
    let fingerprints = batch.fingerprints.clone();
    (batch, fingerprints)
}

#[test]
fn chunks_of_a_file_that_was_left_out_are_not_in_the_placement() {
    let store = new_store();
    let repository = open(&store);
    let store = chunk_store_avoiding(&repository, BTreeSet::new());
    let mut writer = store.stream().unwrap();
    writer.record_placement(PlacementRecorder::new(None));
    let mut kept = Vec::new();
    for number in 0..6u64 {
        let (chunks, fingerprints) = batch(&repository, number * 40..(number + 1) * 40);
        let tickets = writer.put_data(chunks, &mut |_| {}).unwrap();
        // Half of every third batch belongs to a file that broke off.
        if number % 3 == 1 {
            let broken = tickets.start + 10..tickets.start + 30;
            writer.confirm(broken.start).unwrap();
            writer.discard(broken);
            kept.extend_from_slice(&fingerprints[..10]);
            kept.extend_from_slice(&fingerprints[30..]);
        } else {
            kept.extend(fingerprints);
        }
        writer.confirm(tickets.end).unwrap();
        // A further name of a file: its chunks have no place of their own.
        writer.keep(tickets.end, None, 2);
        kept.extend([Fingerprint::ZERO; 2]);
    }
    let recorded = writer.finish().unwrap();
    store.finish().unwrap();
    let placement = recorded.placement.unwrap();
    let mut reader = Placement::open(&repository, placement).unwrap();
    assert_eq!(reader.chunks(), kept.len() as u64);
    let mut places = Vec::new();
    reader.runs(0, kept.len() as u64, &mut |run| {
        places.extend((0..run.chunks).map(|_| run.container));
    });
    for (fingerprint, place) in kept.iter().zip(places) {
        match place {
            None => assert!(fingerprint.is_zero()),
            Some(container) => {
                let section = read_section(&repository, container).unwrap();
                assert!(section.chunks.iter().any(|chunk| chunk.fingerprint == *fingerprint));
            }
        }
    }
}

#[test]
fn a_further_name_of_a_file_does_not_lose_the_places_of_the_files_behind_it() {
    assert_places_of_three_backups(true);
}
