//! The hasher of tables whose keys are fingerprints.

use std::hash::{BuildHasherDefault, Hasher};

/// How such tables hash.
pub type ByPrefix = BuildHasherDefault<PrefixHasher>;

/// Fingerprints are uniform already: their first eight bytes are the hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrefixHasher(u64);

impl Hasher for PrefixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(prefix) = bytes.first_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*prefix);
        }
    }

    fn write_u64(&mut self, prefix: u64) {
        self.0 ^= prefix;
    }

    fn write_usize(&mut self, _length: usize) {}
}
