//! What others are differences against stays whole when old chunks are packed as differences
//! against newer ones.

use crate::ingest::{content_at, in_memory, open, random_bytes, settle_times};
use crate::rewriting::{containers_of, rewriting, save, unkeyed};
use crate::steps::check_all;
use onefold_engine::Job;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::BackupOptions;
use onefold_format::delta::DeltaChoice;
use std::fs;

const FILE_BYTES: usize = 300_000;

#[test]
fn a_base_is_not_packed_as_a_difference_against_what_is_newer() {
    let directory = tempfile::tempdir().unwrap();
    let (_, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    let file = directory.path().join("f");
    let original = random_bytes(1, FILE_BYTES);
    let mut saved = Vec::new();
    // Whole; differences against that; whole again, and like both: what the newest snapshot needs.
    for (version, delta) in
        [DeltaChoice::Off, DeltaChoice::Depth(1), DeltaChoice::Off].into_iter().enumerate()
    {
        let mut bytes = original.clone();
        bytes.iter_mut().skip(100 * version).step_by(1000).for_each(|byte| *byte ^= version as u8);
        fs::write(&file, &bytes).unwrap();
        settle_times(directory.path());
        let options = BackupOptions { delta: Some(delta), ..rewriting("none") };
        let report = save(&open(&store), directory.path(), &options);
        saved.push((report.snapshot.unwrap(), bytes));
    }
    let sections = || {
        let repository = open(&store);
        let sections =
            containers_of(&repository).into_iter().map(|id| read_section(&repository, id));
        sections.map(Result::unwrap).collect::<Vec<_>>()
    };
    let bases: Vec<_> = sections()
        .iter()
        .flat_map(|section| section.deltas.clone())
        .map(|delta| delta.bases[0].fingerprint)
        .collect();
    assert!(bases.len() > 10, "{}", bases.len());
    let options = CollectOptions { repack_level: Some(3), ..CollectOptions::default() };
    let report = collect(&open(&store), &options, &Job::unattended().0).unwrap();
    assert!(report.repacked_containers > 0, "{report:?}");
    for section in sections() {
        for chunk in section.chunks.iter().filter(|chunk| bases.contains(&chunk.fingerprint)) {
            assert!(!chunk.is_delta(), "{} became a difference", chunk.fingerprint);
        }
    }
    let repository = open(&store);
    for (id, bytes) in &saved {
        assert!(content_at(&repository, *id, &file) == *bytes);
    }
    let checked = check_all(&repository);
    assert!(checked.is_clean() && checked.notes.is_empty(), "{checked:?}");
}
