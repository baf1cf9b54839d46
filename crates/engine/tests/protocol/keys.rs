//! Key slots that have rotten, and keys that are removed.

use crate::steps::*;
use onefold_crypto::{KdfCost, Suite};
use onefold_engine::Repository;
use onefold_engine::repository::Password;
use onefold_format::layout;
use onefold_store::{Blobs, Key, MemoryStore};
use onefold_types::{ErrorKind, KeyId, Result};
use std::sync::Arc;

pub const CHEAP: KdfCost = KdfCost { memory_kib: 8, passes: 1, lanes: 1 };
pub const OTHER: &[u8] = b"another password";

pub fn open_with(memory: &MemoryStore, password: &[u8], seed: u64) -> Result<Repository> {
    let password = Password::new(password.to_vec());
    Repository::open(Arc::new(memory.clone()), || Ok(password), environment(seed), memory_plan())
}

/// A store with two keys: that of `PASSWORD`, and that of `OTHER`.
pub fn with_two_keys() -> (MemoryStore, KeyId, KeyId) {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    let first = repository.keys().unwrap()[0].id;
    let second = repository.add_key(OTHER, CHEAP, "other").unwrap();
    (memory, first, second)
}

fn key(name: String) -> Key {
    Key::new(name).unwrap()
}

/// Changes every field of both copies that opening needs.
fn rot(memory: &MemoryStore, id: KeyId) {
    for name in [layout::key_slot(id), layout::key_slot_copy(id)] {
        assert!(memory.corrupt(&key(name), |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let at = text.find("\"wrapped\": \"").unwrap() + 14;
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        }));
    }
}

#[test]
fn r64_a_rotten_first_copy_of_a_slot_is_not_a_wrong_password() {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    let id = repository.keys().unwrap()[0].id;
    let first = key(layout::key_slot(id));
    let length = memory.get(&first).unwrap().len();
    for at in 0..length {
        for flipped in [0x01, 0x08, 0x80] {
            let copy = memory.clone_state();
            assert!(copy.corrupt(&first, |bytes| bytes[at] ^= flipped));
            let opened = open_with(&copy, PASSWORD, 2);
            assert!(opened.is_ok(), "byte {at} ^ {flipped}: {:?}", opened.err());
            let wrong = open_with(&copy, b"wrong", 2).err().unwrap();
            assert_eq!(wrong.kind(), ErrorKind::WrongPassword, "byte {at} ^ {flipped}: {wrong}");
        }
    }
    for kept in 0..length {
        let copy = memory.clone_state();
        assert!(copy.corrupt(&first, |bytes| bytes.truncate(kept)));
        assert!(open_with(&copy, PASSWORD, 2).is_ok(), "{kept} bytes");
    }
}

#[test]
fn r64_a_slot_whose_copies_are_both_rotten_is_named_and_can_be_removed() {
    let (memory, first, second) = with_two_keys();
    rot(&memory, first);
    let error = open_with(&memory, PASSWORD, 2).err().unwrap();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::WrongPassword, "{text}");
    assert!(text.contains(&format!("key {first} is damaged (its copy too)")), "{text}");
    let repository = open_with(&memory, OTHER, 3).unwrap();
    let keys = repository.keys().unwrap();
    assert_eq!(keys.iter().filter(|named| named.slot.is_err()).count(), 1);
    repository.remove_key(first).unwrap();
    let left: Vec<KeyId> = repository.keys().unwrap().iter().map(|named| named.id).collect();
    assert_eq!(left, [second]);
    rot(&memory, second);
    let error = open_with(&memory, OTHER, 4).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(&second.to_string()), "{error}");
}

#[test]
fn r64_a_slot_of_which_only_the_checksum_is_rotten_opens() {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    let id = repository.keys().unwrap()[0].id;
    for name in [layout::key_slot(id), layout::key_slot_copy(id)] {
        memory.corrupt(&key(name), |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let at = text.find("\"checksum\": \"").unwrap() + 14;
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        });
    }
    assert!(open_with(&memory, PASSWORD, 2).is_ok());
    assert!(open_with(&memory, b"wrong", 2).is_err());
}

#[test]
fn r64_the_last_key_that_can_be_read_is_not_removed() {
    let (memory, first, second) = with_two_keys();
    let repository = open_with(&memory, PASSWORD, 2).unwrap();
    // The slot that opened the store has rotten since.
    rot(&memory, first);
    let error = repository.remove_key(second).unwrap_err();
    assert!(error.to_string().contains("no other can be read"), "{error}");
    assert!(open_with(&memory, OTHER, 3).is_ok());
    assert_eq!(repository.key_names().unwrap().len(), 2);
    assert!(repository.keys().unwrap().iter().all(|named| !named.being_removed));
}

#[test]
fn r64_a_newer_slot_is_not_damage() {
    let (memory, first, _) = with_two_keys();
    let newer = b"{ \"version\": 3, \"more\": [1], \"kdf\": \"other\" }";
    for name in [layout::key_slot(first), layout::key_slot_copy(first)] {
        memory.corrupt(&key(name), |bytes| *bytes = newer.to_vec());
    }
    let repository = open_with(&memory, OTHER, 2).unwrap();
    let keys = repository.keys().unwrap();
    let problem = keys.iter().find_map(|named| named.slot.as_ref().err()).unwrap();
    assert_eq!(problem.kind(), ErrorKind::NewerFormat);
    let error = open_with(&memory, PASSWORD, 3).err().unwrap();
    assert!(error.to_string().contains("newer"), "{error}");
}

#[test]
fn r64_a_stopped_removal_is_noted_and_finished_by_the_next_one() {
    let (memory, first, second) = with_two_keys();
    memory.put(&key(layout::key_removal(second, first)), &[]).unwrap();
    let repository = Arc::new(open_with(&memory, PASSWORD, 2).unwrap());
    let report = check_all(&repository);
    assert!(report.is_clean(), "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains("removal of key")), "{report:?}");
    // The slot still opens the store, and its owner cannot remove the only other one.
    let other = open_with(&memory, OTHER, 3).unwrap();
    let error = other.remove_key(first).unwrap_err();
    assert!(error.to_string().contains("another removal"), "{error}");
    assert!(other.keys().unwrap().iter().filter(|named| named.being_removed).count() == 1);
    repository.remove_key(second).unwrap();
    assert_eq!(repository.key_names().unwrap(), [first]);
    assert!(check_all(&repository).notes.is_empty());
}
