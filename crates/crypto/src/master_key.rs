//! The one secret of an encrypted store.
//!
//! All other keys are derived from it by BLAKE3's key derivation under a context string of their
//! own, so that no key serves two purposes. Memory is wiped when a key is dropped.

use onefold_types::environment::Randomness;
use zeroize::Zeroizing;

/// The master key: 32 random bytes, stored only wrapped (see [`crate::key_slot`]).
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl MasterKey {
    /// A fresh key.
    #[must_use]
    pub fn generate(randomness: &dyn Randomness) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        randomness.fill(&mut *bytes);
        Self(bytes)
    }

    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for wrapping.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key for the purpose that `context` names.
    #[must_use]
    pub fn subkey(&self, context: &str) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key(context, &*self.0))
    }

    /// A tag that only holders of the key can make, over `bytes` and for the purpose `context`.
    #[must_use]
    pub fn authenticate(&self, context: &str, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.subkey(context), bytes).as_bytes()
    }
}
