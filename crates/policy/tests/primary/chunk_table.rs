//! Tables of signatures that have more to hold than they have room for.

use onefold_policy::primary::chunk_table::{ChunkTable, TableForm};
use onefold_types::Fingerprint;
use onefold_types::environment::SeededRandomness;

fn fingerprint(number: u64) -> Fingerprint {
    let mut fingerprint = Fingerprint::ZERO;
    let prefix = SeededRandomness::new(number).next_u64();
    fingerprint.0[..8].copy_from_slice(&prefix.to_le_bytes());
    fingerprint
}

fn found(table: &ChunkTable, fingerprint: &Fingerprint) -> Vec<u32> {
    let mut addresses = Vec::new();
    table.find(fingerprint, &mut addresses);
    addresses
}

#[test]
fn a_table_that_is_overfull_still_finds_all() {
    let mut table = ChunkTable::new(TableForm::Signatures, 100, 1000);
    (0..500).for_each(|number| table.insert(&fingerprint(number), number as u32));
    assert!(table.is_full() && table.bytes_used() > 380 * 24);
    for number in 0..500 {
        assert!(found(&table, &fingerprint(number)).contains(&(number as u32)));
        table.repoint(&fingerprint(number), number as u32, 500 + number as u32);
    }
    for number in 0..500 {
        let addresses = found(&table, &fingerprint(number));
        assert!(addresses.contains(&(500 + number as u32)), "{addresses:?}");
        assert!(addresses.iter().all(|address| *address >= 500));
    }
}

#[test]
fn equal_prefixes_that_fill_their_buckets_are_stashed() {
    let same = |number: u64| {
        let mut fingerprint = Fingerprint::ZERO;
        fingerprint.0[8..16].copy_from_slice(&number.to_le_bytes());
        fingerprint
    };
    let mut table = ChunkTable::new(TableForm::Signatures, 1000, 1000);
    (0..50).for_each(|number| table.insert(&same(number), number as u32));
    let mut addresses = found(&table, &same(0));
    addresses.sort_unstable();
    assert_eq!(addresses, (0..50).collect::<Vec<_>>());
}
