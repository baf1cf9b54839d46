//! Fuzzes the reading of key slots; none is opened, which would only measure argon2id.
#![no_main]

use onefold_crypto::KeySlot;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = KeySlot::salvage(bytes);
    if let Ok(slot) = KeySlot::from_bytes(bytes) {
        assert!(slot.to_bytes().is_ok());
    }
});
