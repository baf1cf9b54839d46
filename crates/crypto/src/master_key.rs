//! The first secret of an encrypted store.
//!
//! All other keys are derived from it by BLAKE3's key derivation under a context string of their
//! own, so that no key serves two purposes; what sealing rests on after a rotation is in
//! [`crate::key_ring`]. Memory is wiped when a key is dropped.

use blake3::Hasher;
use onefold_types::environment::Randomness;
use zeroize::{Zeroize, Zeroizing};

/// The master key: 32 random bytes, stored only wrapped (see [`crate::key_slot`]).
///
/// Boxed, so that moving it leaves no copy behind.
#[derive(Clone)]
pub struct MasterKey(Box<Zeroizing<[u8; 32]>>);

impl MasterKey {
    /// A fresh key.
    #[must_use]
    pub fn generate(randomness: &dyn Randomness) -> Self {
        let mut bytes = Box::new(Zeroizing::new([0; 32]));
        randomness.fill(&mut bytes[..]);
        Self(bytes)
    }

    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Box::new(Zeroizing::new(bytes)))
    }

    /// The bytes, for wrapping.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key for the purpose that `context` names.
    #[must_use]
    pub fn subkey(&self, context: &str) -> Zeroizing<[u8; 32]> {
        derived(context, self.as_bytes())
    }

    /// A tag that only holders of the key can make, over `bytes` and for the purpose `context`.
    #[must_use]
    pub fn authenticate(&self, context: &str, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.subkey(context), bytes).as_bytes()
    }
}

/// What BLAKE3 derives from a secret under a context; what it worked with is wiped.
pub(crate) fn derived(context: &str, secret: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    finished(Hasher::new_derive_key(context), secret)
}

/// The keyed hash of `bytes`, for use as a key; what it was worked out with is wiped.
pub(crate) fn keyed(key: &[u8; 32], bytes: &[u8]) -> Zeroizing<[u8; 32]> {
    finished(Hasher::new_keyed(key), bytes)
}

fn finished(mut hasher: Hasher, bytes: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    hasher.update(bytes);
    let mut output = hasher.finalize_xof();
    output.fill(&mut key[..]);
    output.zeroize();
    hasher.zeroize();
    key
}
