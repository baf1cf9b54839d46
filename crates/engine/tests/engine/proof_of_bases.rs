//! What it costs to show that the bases of differences are there (protocol, W5).

use crate::ingest::{
    PASSWORD, backup_options, content_at, create, in_memory, options, random_bytes,
};
use crate::rewriting::{containers_of, save};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::chunk_store::bases::Bases;
use onefold_engine::container::reader::read_section;
use onefold_engine::index::{ChunkIndex, FingerprintIndex};
use onefold_engine::ingest::{BackupOptions, ParentChoice};
use onefold_engine::repository::Password;
use onefold_engine::{Environment, InitOptions, MemoryPlan, Repository};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_policy::FilterCounters;
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::limits;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

const CHUNKS: usize = 12_000;
const CHUNK_BYTES: usize = limits::KIB;

/// A store of a file whose every chunk is a difference, each container's against chunks of nearly
/// all containers of the version before.
struct Torn {
    objects: MemoryStore,
    root: tempfile::TempDir,
    /// What the differences are made of.
    before: Vec<u8>,
    saving: BackupOptions,
    /// Containers that hold bases, and all.
    bases: u64,
    containers: u64,
}

fn torn() -> Torn {
    let (objects, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, CHUNK_BYTES).unwrap();
    let container_size_bytes = limits::MIB / 4;
    let repository = create(&store, &InitOptions { chunker, container_size_bytes, ..options() });
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    let mut bytes = random_bytes(1, CHUNKS * CHUNK_BYTES);
    let torn: Vec<u8> = (0..CHUNKS)
        .flat_map(|number| {
            let from = number * 389 % CHUNKS * CHUNK_BYTES;
            bytes[from..from + CHUNK_BYTES].to_vec()
        })
        .collect();
    let rewrite = "none".parse().unwrap();
    let delta = Some(DeltaChoice::default());
    let saving = BackupOptions { delta, rewrite, ..backup_options() };
    for version in [&torn, &bytes] {
        fs::write(&file, version).unwrap();
        save(&repository, root.path(), &saving);
    }
    let bases = containers_of(&repository).len() as u64;
    for chunk in bytes.chunks_mut(CHUNK_BYTES) {
        chunk[700] ^= 1;
    }
    fs::write(&file, &bytes).unwrap();
    let report = save(&repository, root.path(), &saving);
    assert!(report.deltas.chunks > CHUNKS as u64 * 95 / 100, "{:?}", report.deltas);
    let containers = containers_of(&repository).len() as u64;
    assert!(bases > 40 && containers - bases > 2, "{bases} of {containers}");
    Torn { objects, root, before: torn, saving, bases, containers }
}

/// A store whose operations are counted from now on.
fn counted(
    objects: MemoryStore,
    memory: MemoryPlan,
) -> (Arc<Counting<MemoryStore>>, Arc<Repository>) {
    let counting = Arc::new(Counting::new(objects));
    let password = || Ok(Password::new(PASSWORD.to_vec()));
    let store = Arc::clone(&counting) as Arc<dyn Store>;
    let opened = Repository::open(store, password, Environment::system(), memory).unwrap();
    counting.take();
    (counting, Arc::new(opened))
}

fn reopened(objects: &MemoryStore) -> Arc<Repository> {
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
    counted(objects.clone(), memory).1
}

/// With the least memory, of whose sections not half can be kept, a backup reads each of them a few
/// times and not for every container anew.
#[test]
fn sections_of_bases_are_not_read_again_for_every_container_of_differences() {
    let Torn { objects, root, saving, bases, containers, .. } = torn();
    let least = MemoryPlan::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
    let (counting, opened) = counted(objects, least);
    let again = BackupOptions { parent: ParentChoice::None, ..saving };
    let report = save(&opened, root.path(), &again);
    assert_eq!(report.summary.chunks_new, 0);
    let counters = &report.lookup.counters;
    assert_eq!(report.lookup.timing.accesses, counters.device_reads());
    let reads = counting.take().of("containers", Operation::GetTail).calls;
    // Nearly all are of the look-ups, and counted there: the model of their cost rests on it.
    assert_sections_counted(counters, reads);
    assert!(reads >= bases, "{reads} sections were read of {containers}");
    assert!(reads <= 2 * containers, "{reads} sections were read of {containers}");
}

fn assert_sections_counted(counters: &FilterCounters, reads: u64) {
    let asked_for = counters.containers_prefetched + counters.proof_reads;
    let counted = asked_for - counters.sections_kept;
    assert!(counted <= reads && counted + 4 >= reads, "{counted} of {reads} were counted");
}

/// A look-up that finds chunks where bases were shown to be has their sections at hand.
#[test]
fn sections_read_for_bases_are_not_read_again_for_look_ups() {
    let Torn { objects, root, before, saving, bases, containers } = torn();
    fs::write(root.path().join("file, before"), before).unwrap();
    let (counting, opened) = counted(objects, MemoryPlan::new(256 * limits::MIB).unwrap());
    let again = BackupOptions { parent: ParentChoice::None, ..saving };
    let report = save(&opened, root.path(), &again);
    // Nodes of the tree.
    assert!(report.summary.chunks_new < 10, "{:?}", report.summary);
    let counters = &report.lookup.counters;
    assert_eq!(report.lookup.timing.accesses, counters.device_reads());
    assert!(counters.sections_kept >= bases * 9 / 10, "{} of {bases}", counters.sections_kept);
    let reads = counting.take().of("containers", Operation::GetTail).calls;
    assert_sections_counted(counters, reads);
    assert!(reads <= containers + 4, "{reads} sections were read of {containers}");
}

/// Where bases are lost, their differences are stored again, and not every one of them costs
/// another reading of the section that it is listed in and the proof of all that is listed there.
#[test]
fn differences_whose_bases_are_lost_are_looked_for_in_their_containers_once() {
    let Torn { objects, root, saving, containers, .. } = torn();
    // All of them: of a container of which something is left, the section is at hand anyway.
    let repository = reopened(&objects);
    for id in containers_of(&repository) {
        if read_section(&repository, id).unwrap().deltas.is_empty() {
            assert!(objects.remove(&Key::new(layout::container(id)).unwrap()));
        }
    }
    let (counting, opened) = counted(objects, MemoryPlan::new(256 * limits::MIB).unwrap());
    let again = BackupOptions { parent: ParentChoice::None, ..saving };
    let report = save(&opened, root.path(), &again);
    let stored = report.summary.chunks_new;
    assert!(stored > CHUNKS as u64 * 95 / 100, "{:?}", report.summary);
    let reads = counting.take().of("containers", Operation::GetTail).calls;
    assert!(reads <= 2 * containers, "{reads} sections were read of {containers}, {stored} lost");
    // Where the bases are otherwise is asked for all of a section at once.
    let counters = &report.lookup.counters;
    assert!(counters.proof_reads <= 2 * containers, "{counters:?}");
    assert_eq!(report.lookup.timing.accesses, counters.device_reads());
    let file = root.path().join("file");
    let id = report.snapshot.unwrap();
    assert!(content_at(&opened, id, &file) == fs::read(&file).unwrap());
}

/// What is left of the memory goes to the sections that bases are found by, and only then to the
/// names of what containers hold: otherwise the same sections are read for every base.
#[test]
fn sections_of_bases_come_before_the_names_of_what_containers_hold() {
    let Torn { objects, bases: holders, .. } = torn();
    let memory = MemoryPlan::new(256 * limits::MIB).unwrap();
    let memory = MemoryPlan { section_cache_bytes: 16 * limits::MIB, ..memory };
    let (counting, repository) = counted(objects, memory);
    let index: Arc<dyn ChunkIndex> = Arc::new(FingerprintIndex::open(&repository).unwrap());
    let bases = Bases::new(&repository, &index, &BTreeSet::new(), DeltaChoice::default());
    let purse = repository.purse();
    // As much as the sections would like, and the names as well.
    let taken = purse.take(purse.left_bytes() - memory.section_cache_bytes / 4);
    let sections: Vec<_> = containers_of(&repository)
        .into_iter()
        .map(|id| (id, read_section(&repository, id).unwrap()))
        .collect();
    let (id, of_deltas) = sections.iter().find(|(_, section)| section.deltas.len() > 100).unwrap();
    bases.prove(*id, of_deltas).unwrap();
    let whole = sections.iter().filter(|(_, section)| !section.sketches.is_empty());
    let chunks: Vec<_> = whole.map(|(_, section)| section.chunks[0].fingerprint).collect();
    assert!(chunks.len() as u64 >= holders / 2, "{}", chunks.len());
    let reads = || {
        counting.take();
        chunks.iter().for_each(|chunk| assert!(bases.read(*chunk).unwrap().is_some()));
        counting.take().of("containers", Operation::GetTail).calls
    };
    reads();
    assert_eq!(reads(), 0, "sections that were read a moment ago");
    drop(taken);
}
