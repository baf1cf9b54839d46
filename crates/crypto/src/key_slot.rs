//! A key slot: the master key wrapped by a key that argon2id derives from a password.
//!
//! A store has one slot for each password. Slots are independent: removing one leaves the others,
//! and the data needs no re-encryption. The slot is JSON, because people must be able to see which
//! costs protect them:
//!
//! ```text
//! { "version": 1, "kdf": "argon2id", "memory_kib": 12288, "passes": 3, "lanes": 1,
//!   "salt": hex(16 bytes), "nonce": hex(12 bytes), "wrapped": hex(32 bytes + 16 bytes tag),
//!   "label": "user@host", "created_ns": 0 }
//! ```
//!
//! The store's name is authenticated along with the wrapped key: a slot opens only its own store.

use crate::master_key::MasterKey;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use onefold_types::environment::Randomness;
use onefold_types::{Error, ErrorKind, Result, StoreId};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const VERSION: u32 = 1;
/// A slot that asks for more memory than this is refused, so that a hostile slot cannot exhaust us.
const MEMORY_MAX_KIB: u32 = 1 << 20;
const PASSES_MAX: u32 = 64;

/// What deriving a key from a password costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KdfCost {
    /// Memory in kibibytes.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Independent lanes.
    pub lanes: u32,
}

impl Default for KdfCost {
    /// One of OWASP's equivalent minima for argon2id: 12 MiB, three passes, one lane
    /// (docs/decisions/0006-key-derivation.md).
    fn default() -> Self {
        Self { memory_kib: 12 * 1024, passes: 3, lanes: 1 }
    }
}

/// One password's way to the master key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySlot {
    version: u32,
    kdf: String,
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: String,
    nonce: String,
    wrapped: String,
    /// Whom the slot belongs to, for display.
    pub label: String,
    /// When the slot was made, in nanoseconds since 1970.
    pub created_ns: i64,
}

impl KeySlot {
    /// Wraps `master_key` with a key derived from `password`.
    pub fn create(
        master_key: &MasterKey,
        password: &[u8],
        store: StoreId,
        cost: KdfCost,
        randomness: &dyn Randomness,
    ) -> Result<Self> {
        let (mut salt, mut nonce) = ([0; 16], [0; 12]);
        randomness.fill(&mut salt);
        randomness.fill(&mut nonce);
        let key = wrapping_key(password, &salt, cost)?;
        let mut wrapped = master_key.as_bytes().to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(store.0),
            &mut wrapped,
        )
        .map_err(|_| Error::invalid("cannot wrap the master key"))?;
        Ok(Self {
            version: VERSION,
            kdf: "argon2id".to_owned(),
            memory_kib: cost.memory_kib,
            passes: cost.passes,
            lanes: cost.lanes,
            salt: hex::encode(salt),
            nonce: hex::encode(nonce),
            wrapped: hex::encode(wrapped),
            label: String::new(),
            created_ns: 0,
        })
    }

    /// The master key, if `password` is the slot's.
    pub fn open(&self, password: &[u8], store: StoreId) -> Result<MasterKey> {
        let damaged = |_| Error::damaged("the key slot is not well formed");
        let salt: Vec<u8> = hex::decode(&self.salt).map_err(damaged)?;
        let nonce = hex::decode(&self.nonce).map_err(damaged)?;
        let mut wrapped = Zeroizing::new(hex::decode(&self.wrapped).map_err(damaged)?);
        let nonce = Nonce::try_assume_unique_for_key(&nonce)
            .map_err(|_| Error::damaged("the key slot's nonce has the wrong length"))?;
        let key = wrapping_key(password, &salt, self.cost())?;
        let wrong = || Error::new(ErrorKind::WrongPassword, "wrong password");
        let bytes =
            key.open_in_place(nonce, Aad::from(store.0), &mut wrapped).map_err(|_| wrong())?;
        <[u8; 32]>::try_from(&*bytes).map(MasterKey::from_bytes).map_err(|_| wrong())
    }

    /// What opening the slot costs.
    #[must_use]
    pub fn cost(&self) -> KdfCost {
        KdfCost { memory_kib: self.memory_kib, passes: self.passes, lanes: self.lanes }
    }

    /// The slot as stored.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::invalid(format!("cannot write the key slot: {error}")))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a stored slot.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let slot: Self = serde_json::from_slice(bytes)
            .map_err(|error| Error::damaged(format!("the key slot is not well formed: {error}")))?;
        if slot.version > VERSION || slot.kdf != "argon2id" {
            return Err(Error::new(
                ErrorKind::NewerFormat,
                "the key slot was written by a newer version of onefold; use that version",
            ));
        }
        Ok(slot)
    }
}

fn wrapping_key(password: &[u8], salt: &[u8], cost: KdfCost) -> Result<LessSafeKey> {
    if cost.memory_kib > MEMORY_MAX_KIB || cost.passes > PASSES_MAX || cost.lanes > 64 {
        return Err(Error::damaged("the key slot asks for an unreasonable derivation cost"));
    }
    let parameters = argon2::Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32))
        .map_err(|error| Error::damaged(format!("the key derivation cost is invalid: {error}")))?;
    let argon2 =
        argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, parameters);
    let mut key = Zeroizing::new([0; 32]);
    argon2
        .hash_password_into(password, salt, &mut *key)
        .map_err(|error| Error::damaged(format!("cannot derive the key: {error}")))?;
    let unbound = UnboundKey::new(&AES_256_GCM, &*key)
        .map_err(|_| Error::invalid("cannot set up the wrapping key"))?;
    Ok(LessSafeKey::new(unbound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;

    const CHEAP: KdfCost = KdfCost { memory_kib: 64, passes: 1, lanes: 1 };

    fn slot() -> (KeySlot, MasterKey, StoreId) {
        let randomness = SeededRandomness::new(11);
        let key = MasterKey::generate(&randomness);
        let store = StoreId::random(&randomness);
        (KeySlot::create(&key, b"secret", store, CHEAP, &randomness).unwrap(), key, store)
    }

    #[test]
    fn a_slot_opens_with_its_password_in_its_store() {
        let (slot, key, store) = slot();
        let slot = KeySlot::from_bytes(&slot.to_bytes().unwrap()).unwrap();
        assert_eq!(slot.open(b"secret", store).unwrap().as_bytes(), key.as_bytes());
        let wrong = slot.open(b"Secret", store).err().unwrap();
        assert_eq!(wrong.kind(), ErrorKind::WrongPassword);
        assert!(slot.open(b"secret", StoreId([0; 16])).is_err());
    }

    #[test]
    fn hostile_slots_are_refused_before_any_work() {
        let (slot, _, store) = slot();
        let text = String::from_utf8(slot.to_bytes().unwrap()).unwrap();
        let greedy = text.replace("\"memory_kib\": 64", "\"memory_kib\": 4000000000");
        let error = KeySlot::from_bytes(greedy.as_bytes()).unwrap().open(b"secret", store);
        assert_eq!(error.err().unwrap().kind(), ErrorKind::Damaged);
        let newer = text.replace("\"version\": 1", "\"version\": 2");
        assert_eq!(
            KeySlot::from_bytes(newer.as_bytes()).unwrap_err().kind(),
            ErrorKind::NewerFormat
        );
        for length in 0..text.len() - 2 {
            assert!(KeySlot::from_bytes(&text.as_bytes()[..length]).is_err());
        }
    }

    #[test]
    fn the_default_cost_is_owasps_minimum() {
        let cost = KdfCost::default();
        let minima = [(47_104, 1), (19_456, 2), (12_288, 3), (9_216, 4), (7_168, 5)];
        let reached = |&(memory, passes)| cost.memory_kib >= memory && cost.passes >= passes;
        assert!(minima.iter().any(reached));
    }
}
