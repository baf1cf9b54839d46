//! Restoring over files with holes.

use super::support::{Item, Part, in_memory, random_bytes, store_tree};
use super::{options, restore_cleanly};
use onefold_engine::restore::{Overwrite, RestoreOptions};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Nobody reads as much as that while a test runs.
const HOLE_BYTES: u64 = 4 << 40;

#[test]
fn r110_a_hole_where_there_is_one_is_not_read() {
    let (_, repository) = in_memory();
    let data = random_bytes(1, 100_000);
    let parts = vec![Part::Hole(HOLE_BYTES), Part::Bytes(data.clone()), Part::Hole(HOLE_BYTES)];
    let item = Item::parts("image", parts).edit(|entry| entry.sparse = true);
    let root = store_tree(&repository, vec![item]);
    let target = tempfile::tempdir().unwrap();
    let options = RestoreOptions {
        overwrite: Overwrite::IfDifferent,
        verify: true,
        ..options(target.path())
    };
    let image = target.path().join("image");
    let is_possible = File::create(&image).and_then(|file| file.set_len(2 * HOLE_BYTES + 100_000));
    fs::remove_file(&image).unwrap();
    if is_possible.is_err() {
        eprintln!("passed over: files are not as large here");
        return;
    }
    restore_cleanly(&repository, &root, &options);
    assert_eq!(restore_cleanly(&repository, &root, &options).files_unchanged, 1);
    // What is data and not zero in a hole is seen, wherever it is.
    for place in [0, 1 << 40, HOLE_BYTES - 1, 2 * HOLE_BYTES + 99_999] {
        let file = File::options().write(true).open(&image).unwrap();
        file.write_all_at(b"x", place).unwrap();
        let report = restore_cleanly(&repository, &root, &options);
        assert_eq!(report.files_unchanged, 0, "{place}");
        let mut byte = [1];
        File::open(&image).unwrap().read_exact_at(&mut byte, place).unwrap();
        assert_eq!(byte, [0], "{place}");
    }
    let mut found = vec![0; data.len()];
    File::open(&image).unwrap().read_exact_at(&mut found, HOLE_BYTES).unwrap();
    assert!(found == data && fs::metadata(&image).unwrap().blocks() < 10_000);
}
