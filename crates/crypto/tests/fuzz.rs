//! Key slots and seals under a short, deterministic fuzzer (R81): nothing that is not what was
//! written opens, and nothing panics.

#[path = "../../format/tests/fuzz/mutate.rs"]
mod mutate;

use onefold_crypto::{KdfCost, KeyFile, KeyRing, KeySlot, MasterKey, Purpose, Vault};
use onefold_types::StoreId;
use onefold_types::environment::SeededRandomness;

const ROUNDS: u64 = 10_000;

#[test]
fn r81_no_bytes_make_reading_a_key_slot_panic() {
    let randomness = SeededRandomness::new(1);
    let cost = KdfCost { memory_kib: 8, passes: 1, lanes: 1 };
    let key = MasterKey::from_bytes([1; 32]);
    let ring = KeyRing::new(key).rotated(2, 5, &randomness).unwrap();
    let slot = KeySlot::create(&ring, b"secret", StoreId([2; 16]), cost, &randomness).unwrap();
    let file = KeyFile::generate(&randomness);
    let of_file = KeySlot::create(&ring, &file, StoreId([2; 16]), cost, &randomness).unwrap();
    let own = [slot, of_file].map(|slot| slot.to_bytes().unwrap());
    let newer = b"{ \"version\": 3, \"more\": [] }".to_vec();
    let corpus: Vec<Vec<u8>> = own.into_iter().chain([newer]).collect();
    mutate::run("key_slot", &corpus, ROUNDS, &|bytes| {
        let _ = KeySlot::salvage(bytes);
        if let Ok(slot) = KeySlot::from_bytes(bytes) {
            let again = KeySlot::from_bytes(&slot.to_bytes().unwrap()).unwrap();
            assert!(slot.wraps_like(&again));
            assert_eq!(slot.cost(), again.cost());
        }
    });
}

#[test]
fn r81_no_bytes_make_reading_a_key_file_panic() {
    let file = KeyFile::generate(&SeededRandomness::new(2)).to_text();
    mutate::run("key_file", &[file.as_bytes().to_vec()], ROUNDS, &|bytes| {
        if let Ok(read) = KeyFile::parse(bytes) {
            assert_eq!(read.to_text().trim().as_bytes(), bytes.trim_ascii());
        }
    });
}

#[test]
fn r81_nothing_but_what_was_sealed_opens() {
    let key = MasterKey::from_bytes([3; 32]);
    for vault in [Vault::new(None), Vault::new(Some(&key))] {
        let sealer = vault.object(Purpose::Container, &[4; 16]).unwrap();
        let mut part = b"a part of a container".to_vec();
        sealer.seal(7, &mut part, 0).unwrap();
        mutate::run("part", std::slice::from_ref(&part), ROUNDS, &|bytes| {
            let opened = sealer.open(7, &mut bytes.to_vec());
            assert_eq!(opened.is_ok(), *bytes == part);
            assert_eq!(sealer.open_into(7, bytes, &mut Vec::new()).is_ok(), *bytes == part);
        });
        let randomness = SeededRandomness::new(5);
        let record = vault.seal_record(Purpose::Mark, &[6; 16], b"{}", &randomness).unwrap();
        mutate::run("record", std::slice::from_ref(&record), ROUNDS, &|bytes| {
            let opened = vault.open_record(Purpose::Mark, &[6; 16], bytes);
            assert_eq!(opened.is_ok(), *bytes == record);
        });
    }
}
