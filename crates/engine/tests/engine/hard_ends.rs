//! What cannot be ends in an error before anything is promised, and never in silence.
//!
//! Each canary of `crates/tidy/mutants.toml` whose rule begins with "hard ends" breaks the program
//! in a way that no input brings about: a verdict that is lost or doubled, a frame that is dropped,
//! a run that is short. This test must then say that the program itself has noticed.

use crate::ingest::{content_at, in_memory};
use crate::rewriting::{Versions, open_with, rewriting, sources, unkeyed};
use crate::steps::check_all;
use onefold_engine::ingest::{BackupOptions, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::{InitOptions, Job, MemoryPlan};
use onefold_types::{Result, limits};

/// Saves versions with one way of looking up and rewriting; all must then be there, whole.
fn save_all(lookup: &str, rewrite: &str, streams: usize) -> Result<()> {
    let mut versions = Versions::new(4, 400_000);
    let (_, store) = in_memory();
    // Containers of several frames, as they are by default.
    let container_size_bytes = limits::CONTAINER_TARGET_BYTES;
    crate::ingest::create(&store, &InitOptions { container_size_bytes, ..unkeyed() });
    let mut saved = Vec::new();
    // More runs than are left unmerged.
    for _ in 0..12 {
        versions.write_next();
        let repository = open_with(&store, MemoryPlan::new(128 << 20)?);
        let lookup: LookupChoice = lookup.parse()?;
        let options = BackupOptions { lookup, streams, ..rewriting(rewrite) };
        let paths: Vec<_> = (0..4).map(|number| versions.file(number)).collect();
        let job = Job::unattended().0;
        let report = backup(&repository, sources(&paths), &options, &job)?;
        saved.push(report.snapshot.unwrap());
    }
    let repository = open_with(&store, MemoryPlan::new(128 << 20)?);
    for (version, id) in saved.iter().enumerate() {
        for (number, bytes) in versions.history[version].iter().enumerate() {
            let read = content_at(&repository, *id, &versions.file(number));
            assert!(read == *bytes, "SILENT: file {number} of version {version} differs");
        }
    }
    let report = check_all(&repository);
    assert!(report.is_clean(), "SILENT: {report:?}");
    Ok(())
}

#[test]
fn i13_what_cannot_be_ends_a_backup_in_an_error_of_its_own() {
    for (lookup, rewrite, streams) in [
        ("eager", "none", 1),
        ("lazy", "window,loss=20", 1),
        ("auto", "auto,loss=20", 1),
        ("lazy,ring=64,bucket=65536", "capping,level=2", 2),
    ] {
        if let Err(error) = save_all(lookup, rewrite, streams) {
            panic!("{lookup}, {rewrite}: ended in {:?}: {error}", error.kind());
        }
    }
}
