//! What it costs to show that the bases of differences are there (protocol, W5).

use crate::ingest::{PASSWORD, backup_options, create, in_memory, options, random_bytes};
use crate::rewriting::{containers_of, save};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::ingest::{BackupOptions, ParentChoice};
use onefold_engine::repository::Password;
use onefold_engine::{Environment, InitOptions, MemoryPlan, Repository};
use onefold_format::delta::DeltaChoice;
use onefold_store::Store;
use onefold_store::layers::{Counting, Operation};
use onefold_types::limits;
use std::fs;
use std::sync::Arc;

const CHUNKS: usize = 12_000;
const CHUNK_BYTES: usize = limits::KIB;

/// A file whose every chunk is a difference, each container's against chunks of nearly all
/// containers of the version before: with the least memory, of whose sections not half can be kept,
/// a backup reads each of them a few times and not for every container anew.
#[test]
fn sections_of_bases_are_not_read_again_for_every_container_of_differences() {
    let (memory, store) = in_memory();
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

    let counting = Arc::new(Counting::new(memory));
    let password = || Ok(Password::new(PASSWORD.to_vec()));
    let least = MemoryPlan::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
    let store = Arc::clone(&counting) as Arc<dyn Store>;
    let opened = Repository::open(store, password, Environment::system(), least).unwrap();
    counting.take();
    let again = BackupOptions { parent: ParentChoice::None, ..saving };
    let report = save(&Arc::new(opened), root.path(), &again);
    assert_eq!(report.summary.chunks_new, 0);
    let counters = &report.lookup.counters;
    assert_eq!(report.lookup.timing.accesses, counters.device_reads());
    let reads = counting.take().of("containers", Operation::GetTail).calls;
    // Nearly all are of the look-ups, and counted there: the model of their cost rests on it.
    let counted = counters.containers_prefetched + counters.proof_reads;
    assert!(counted <= reads && counted + 4 >= reads, "{counted} of {reads} were counted");
    assert!(reads >= bases, "{reads} sections were read of {containers}");
    assert!(reads <= 2 * containers, "{reads} sections were read of {containers}");
}
