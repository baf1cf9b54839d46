//! Checks of index runs and metadata packs, and the repair of the index.

use crate::check::items;
use crate::steps::*;
use onefold_crypto::{Purpose, TAG_BYTES};
use onefold_engine::Repository;
use onefold_engine::check::{self, ReadData};
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::container::list;
use onefold_engine::container::reader;
use onefold_engine::index::run::Run;
use onefold_engine::index::run_list::list_runs;
use onefold_engine::index::run_writer::write_run;
use onefold_engine::index::{FingerprintIndex, merge};
use onefold_format::index_run::{Entry, HOOK_PART, IndexKind, PIECE_PART, Piece};
use onefold_format::{layout, metadata_pack};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::ContainerId;
use std::sync::Arc;

/// Replaces the index by one run whose entries `change` has changed.
fn rewrite_index(
    memory: &MemoryStore,
    repository: &Arc<Repository>,
    change: impl FnOnce(&mut Vec<Entry>),
) {
    for name in names(memory, "index") {
        memory.remove(&key(name));
    }
    let containers: Vec<ContainerId> = containers(repository).into_iter().collect();
    let mut entries = Vec::new();
    for (container, id) in (0u32..).zip(&containers) {
        let section = reader::read_section(repository, *id).unwrap();
        entries.extend(
            section
                .chunks
                .iter()
                .map(|chunk| Entry { prefix: chunk.fingerprint.prefix(), container }),
        );
    }
    entries.sort_unstable();
    change(&mut entries);
    entries.sort_unstable();
    let mut entries = entries.into_iter();
    write_run(repository, None, containers, Vec::new(), &mut || Ok(entries.next())).unwrap();
}

#[test]
fn a_filter_that_forgot_entries_is_noticed() {
    for number in [PIECE_PART, HOOK_PART] {
        let (memory, repository) = create();
        save(&repository, &items());
        assert!(check_with(&repository, ReadData::None).is_clean());
        let id = list_runs(&repository).unwrap()[0];
        let table = Run::open(&repository, id).unwrap().table;
        let starts = table.starts();
        let (offset, length) = match number {
            PIECE_PART => (table.piece_offset(&starts, 0), table.piece_lengths[0]),
            _ => (table.hook_offset(&starts, 0), table.hook_lengths[0]),
        };
        // A filter of the same length that knows next to nothing.
        let mut plain = Vec::new();
        let (seed, segment_cells, cells) = (1, 1, vec![0xa5; length as usize - TAG_BYTES - 17]);
        let first_cells = cells.len() as u32 - 2;
        Piece::Fuse { seed, segment_cells, first_cells, cells: &cells }.encode(&mut plain);
        let sealer = repository.vault().object(Purpose::IndexRun, &id.0).unwrap();
        sealer.seal(number, &mut plain, 0).unwrap();
        assert_eq!(plain.len(), length as usize);
        memory.corrupt(&key(layout::index_run(id)), |bytes| {
            bytes[offset as usize..][..plain.len()].copy_from_slice(&plain);
        });
        let report = check_with(&repository, ReadData::None);
        assert_eq!(report.problems.len(), 1, "{report:?}");
        assert!(report.damaged_paths.is_empty(), "no data is lost: {report:?}");
        check::repair_index(&repository, None, &job()).unwrap();
        assert!(check_with(&repository, ReadData::None).is_clean());
    }
}

#[test]
fn an_index_of_any_kind_is_sound_and_its_repair_keeps_the_kind() {
    for kind in IndexKind::ALL {
        let (memory, repository) = create();
        save(&repository, &items());
        let index = FingerprintIndex::open(&repository).unwrap();
        merge::merge(&repository, Some(kind), &index.runs()).unwrap();
        assert!(check_with(&repository, ReadData::None).is_clean(), "{kind}");
        let id = list_runs(&repository).unwrap()[0];
        memory.corrupt(&key(layout::index_run(id)), |bytes| bytes[9] ^= 4);
        assert!(!check_with(&repository, ReadData::None).is_clean(), "{kind}");
        check::repair_index(&repository, None, &job()).unwrap();
        assert!(check_with(&repository, ReadData::None).is_clean(), "{kind}");
        assert_eq!(FingerprintIndex::open(&repository).unwrap().kind(), kind);
    }
}

#[test]
fn a_lost_index_is_a_note_and_can_be_made_anew() {
    let (memory, repository) = create();
    save(&repository, &items());
    for name in names(&memory, "index") {
        memory.remove(&key(name));
    }
    let before = memory.operations();
    let report = check_all(&repository);
    assert!(report.is_clean(), "every chunk is there: {report:?}");
    assert_eq!(report.notes.len(), 1);
    assert_eq!(memory.operations(), before, "a check does not mend the index");
    let repaired = check::repair_index(&repository, None, &job()).unwrap();
    assert_eq!(repaired.containers, containers(&repository).len() as u64);
    // That the index was made anew raised a doubt, which the check has settled.
    assert_eq!(check_all(&repository).notes.len(), 1);
    assert_eq!(check_all(&repository).notes, [""; 0]);
}

#[test]
fn r12_r13_r33_repairing_the_index_is_safe_at_every_step() {
    let (memory, repository) = create();
    for seed in 0..3 {
        save(&repository, &[file("f", seed, 50_000)]);
    }
    let run = names(&memory, "index").remove(1);
    let damage = |memory: &MemoryStore| memory.corrupt(&key(run.as_str()), |b| b[50] ^= 1);
    assert!(damage(&memory));
    let report = check_all(&repository);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.damaged_paths.is_empty(), "no data is lost: {report:?}");

    let plan = check::plan_index_repair(&repository, &job()).unwrap();
    assert_eq!((plan.runs.len(), plan.containers), (3, containers(&repository).len() as u64));
    let before = memory.operations();
    check::execute_index_repair(&repository, &plan, None, &job()).unwrap();
    assert!(check_all(&repository).is_clean());
    for n in before..=memory.operations() {
        let state = memory.state_after(n);
        // The log knows nothing of the damage.
        let _ = damage(&state);
        let report = check_all(&reopen(&state, 7));
        assert!(report.damaged_paths.is_empty(), "after {n}: {report:?}");
        assert!(report.damaged_containers.is_empty(), "after {n}: {report:?}");
    }
}

#[test]
fn r16_an_index_that_differs_from_the_containers_is_noticed() {
    type Edit = fn(&mut Vec<Entry>);
    let edits: [(&str, Edit, bool); 4] = [
        ("as it was", |_| {}, true),
        ("an entry is missing", |entries| entries.truncate(entries.len() - 1), false),
        ("an entry is in the wrong container", |entries| entries[5].container ^= 1, false),
        (
            "an entry is too many",
            |entries| {
                let other = Entry { prefix: 77, ..entries[5] };
                entries.push(other);
            },
            false,
        ),
    ];
    for (what, edit, is_clean) in edits {
        let (memory, repository) = create();
        save(&repository, &items());
        rewrite_index(&memory, &repository, edit);
        let report = check_with(&repository, ReadData::None);
        assert_eq!(report.is_clean(), is_clean, "{what}: {report:?}");
        assert!(report.damaged_paths.is_empty(), "{what}: {report:?}");
        check::repair_index(&repository, None, &job()).unwrap();
        let report = check_with(&repository, ReadData::None);
        assert!(report.is_clean(), "{what}, repaired: {report:?}");
    }
}

#[test]
fn a_pack_that_differs_from_its_container_is_noticed() {
    let (memory, repository) = create();
    save(&repository, &items());
    let pack = list::list_packs(&repository).unwrap().remove(0);
    memory.corrupt(&key(pack.as_str()), |bytes| bytes[60] ^= 1);
    let report = check_with(&repository, ReadData::None);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.problems[0].contains(&pack));
}

/// Whatever byte of a pack is damaged, a collection that has nothing else to do puts it right.
#[test]
fn a_collection_removes_what_is_damaged_of_packs() {
    let (memory, repository) = create();
    save(&repository, &[file("large", 1, 6_000_000)]);
    let pack = list::list_packs(&repository).unwrap().remove(0);
    let bytes = memory.get(&key(pack.as_str())).unwrap();
    // Of so many one that goes is no reason to write the others anew.
    assert!(metadata_pack::read(&bytes).unwrap().len() > 4);
    let length = bytes.len();
    // What a newer version would say of itself is not sealed: it is reported, and stays.
    for at in (0..length).step_by(length / 16).filter(|at| !(8..16).contains(at)) {
        let damaged = memory.clone_state();
        damaged.corrupt(&key(pack.as_str()), |bytes| bytes[at] ^= 1);
        let repository = reopen(&damaged, 31);
        let report = check_with(&repository, ReadData::None);
        assert_eq!(report.problems.len(), 1, "{at}: {report:?}");
        assert!(report.problems[0].contains("'onefold gc' removes it"), "{at}: {report:?}");
        collect(&repository, &CollectOptions::default(), &job()).unwrap();
        let report = check_with(&reopen(&damaged, 32), ReadData::All);
        assert!(report.is_clean(), "{at}: {report:?}");
    }
}
