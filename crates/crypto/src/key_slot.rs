//! A key slot: the ring of keys wrapped by a key that argon2id derives from a password, or HKDF
//! from a key file ([`crate::key_file`]).
//!
//! A store has one slot for each password and each key file. Slots are independent: removing one
//! leaves the others, and the data needs no re-encryption. The slot is JSON, because people must be
//! able to see which costs protect them:
//!
//! ```text
//! { "version": 2, "kdf": "argon2id", "memory_kib": 65536, "passes": 3, "lanes": 4,
//!   "salt": hex(16 bytes), "nonce": hex(12 bytes), "wrapped": hex(ring + 16 bytes tag),
//!   "generation": 1, "generation_id": hex(16 bytes),
//!   "checksum": hex(16 bytes), "label": "user@host", "created_ns": 0 }
//! ```
//!
//! The slot of a key file has `hkdf-sha256` for its `kdf`, and zeros for the costs: 256 random bits
//! are not guessed, so they need no costly derivation.
//!
//! The store's name and the ring's newest generation are authenticated along with the wrapped ring:
//! a slot opens only its own store, and holds the generation that it claims to hold.
//!
//! The checksum tells a slot that has rotten from a wrong password, which look alike otherwise:
//! either way a key is derived that opens nothing. It is the first 16 bytes of BLAKE3 over
//! `version`, `kdf`, `memory_kib`, `passes`, `lanes`, `salt`, `nonce`, `wrapped`, `generation` and
//! `generation_id`: numbers as four bytes, little-endian; everything else (hexadecimal text
//! decoded) as its length in eight bytes, little-endian, and its bytes. Label and time are for
//! display, so they are not covered. The checksum proves nothing about who wrote the slot, and
//! tells nothing about the password.
//!
//! Slots of version 1 have no generation, which is the first one then, and are read as well.

use crate::key_ring::{Generation, KeyRing};
use crate::secret::{KdfCost, Secret, SecretKind};
use aws_lc_rs::aead::{Aad, Nonce};
use onefold_types::environment::Randomness;
use onefold_types::{Error, ErrorKind, Result, StoreId};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const VERSION: u32 = 2;
/// The version whose slots have no generation: they were written before there were rotations.
const VERSION_WITHOUT_GENERATION: u32 = 1;
const KDF: &str = "argon2id";
const KDF_OF_KEY_FILE: &str = "hkdf-sha256";
const CHECKSUM_BYTES: usize = 16;
/// The way to the ring of keys of one password or key file.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation_id: Option<String>,
    checksum: String,
    /// Whom the slot belongs to, for display.
    pub label: String,
    /// When the slot was made, in nanoseconds since 1970.
    pub created_ns: i64,
}

impl KeySlot {
    /// Wraps `ring` with a key derived from `secret`; `cost` is what trying a password takes, and
    /// means nothing for a key file.
    pub fn create<'a>(
        ring: &KeyRing,
        secret: impl Into<Secret<'a>>,
        store: StoreId,
        cost: KdfCost,
        randomness: &dyn Randomness,
    ) -> Result<Self> {
        let secret = secret.into();
        let (kdf, cost) = match secret.kind() {
            SecretKind::Password => (KDF, cost),
            SecretKind::KeyFile => (KDF_OF_KEY_FILE, KdfCost::NONE),
        };
        let (mut salt, mut nonce) = ([0; 16], [0; 12]);
        randomness.fill(&mut salt);
        randomness.fill(&mut nonce);
        let key = secret.wrapping_key(&salt, store, cost)?;
        let newest = ring.newest();
        let mut wrapped = ring.to_bytes();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(place(store, Some(newest))),
            &mut *wrapped,
        )
        .map_err(|_| Error::invalid("cannot wrap the keys"))?;
        let mut slot = Self {
            version: VERSION,
            kdf: kdf.to_owned(),
            memory_kib: cost.memory_kib,
            passes: cost.passes,
            lanes: cost.lanes,
            salt: hex::encode(salt),
            nonce: hex::encode(nonce),
            wrapped: hex::encode(&*wrapped),
            generation: Some(newest.number),
            generation_id: Some(hex::encode(newest.id)),
            checksum: String::new(),
            label: String::new(),
            created_ns: 0,
        };
        slot.checksum = slot.computed_checksum()?;
        Ok(slot)
    }

    /// The ring, if `secret` is the slot's. One of the other kind is not tried.
    pub fn open<'a>(&self, secret: impl Into<Secret<'a>>, store: StoreId) -> Result<KeyRing> {
        let secret = secret.into();
        let wrong = || Error::new(ErrorKind::WrongPassword, "wrong password");
        if !self.takes(secret.kind()) {
            return Err(wrong());
        }
        let claimed = self.claimed()?;
        let salt = decoded(&self.salt)?;
        let nonce = decoded(&self.nonce)?;
        let mut wrapped = Zeroizing::new(decoded(&self.wrapped)?);
        let nonce = Nonce::try_assume_unique_for_key(&nonce)
            .map_err(|_| Error::damaged("the key slot's nonce has the wrong length"))?;
        let key = secret.wrapping_key(&salt, store, self.cost())?;
        let place = Aad::from(place(store, claimed));
        let bytes = key.open_in_place(nonce, place, &mut wrapped).map_err(|_| wrong())?;
        let ring = KeyRing::from_bytes(bytes)?;
        match claimed.is_none_or(|claimed| claimed == ring.newest()) {
            true => Ok(ring),
            false => Err(Error::damaged("the key slot holds other keys than it says")),
        }
    }

    /// Which sort of secret the slot is for; `None` for one that this program does not know.
    #[must_use]
    pub fn kind(&self) -> Option<SecretKind> {
        match self.kdf.as_str() {
            KDF => Some(SecretKind::Password),
            KDF_OF_KEY_FILE => Some(SecretKind::KeyFile),
            _ => None,
        }
    }

    /// Whether such a secret may open the slot: in one that is salvaged, what it is for may be what
    /// has rotten.
    #[must_use]
    pub fn takes(&self, kind: SecretKind) -> bool {
        self.kind().is_none_or(|own| own == kind)
    }

    /// The newest generation in the ring, as the slot says, which only opening it proves; `None`
    /// in a slot older than all rotations.
    pub fn claimed(&self) -> Result<Option<Generation>> {
        let malformed = || Error::damaged("the key slot does not say well which keys it holds");
        match (self.version, self.generation, &self.generation_id) {
            (VERSION_WITHOUT_GENERATION, None, None) => Ok(None),
            (VERSION, Some(number), Some(id)) if number > 0 => {
                let id = decoded(id)?.try_into().map_err(|_| malformed())?;
                Ok(Some(Generation { number, id }))
            }
            _ => Err(malformed()),
        }
    }

    /// What opening the slot costs: nothing for a key file.
    #[must_use]
    pub fn cost(&self) -> KdfCost {
        KdfCost { memory_kib: self.memory_kib, passes: self.passes, lanes: self.lanes }
    }

    /// Whether both hold the same, apart from what is for display.
    #[must_use]
    pub fn wraps_like(&self, other: &Self) -> bool {
        self.checksum == other.checksum
    }

    /// The slot as stored.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::invalid(format!("cannot write the key slot: {error}")))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a stored slot. What has rotten is `Damaged`: a slot that is read and does not open has
    /// another password.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let slot = Self::salvage(bytes)?;
        if slot.checksum != slot.computed_checksum()? {
            return Err(Error::damaged("the key slot's checksum does not hold"));
        }
        let is_well_formed = match slot.kind() {
            None => return Err(newer()),
            Some(SecretKind::Password) => true,
            Some(SecretKind::KeyFile) => slot.version == VERSION && slot.cost() == KdfCost::NONE,
        };
        slot.claimed()?;
        match is_well_formed {
            true => Ok(slot),
            false => Err(Error::damaged("the key slot of a key file asks for work")),
        }
    }

    /// Reads a stored slot although its checksum may not hold: it may still open, if nothing but
    /// the checksum has rotten.
    pub fn salvage(bytes: &[u8]) -> Result<Self> {
        let damaged = |error| Error::damaged(format!("the key slot is not well formed: {error}"));
        // The version comes before the fields: those of a newer slot are unknown.
        let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
        if head.version > u64::from(VERSION) {
            return Err(newer());
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }

    fn computed_checksum(&self) -> Result<String> {
        fn count(hasher: &mut blake3::Hasher, bytes: &[u8]) {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.version.to_le_bytes());
        count(&mut hasher, self.kdf.as_bytes());
        for number in [self.memory_kib, self.passes, self.lanes] {
            hasher.update(&number.to_le_bytes());
        }
        for text in [&self.salt, &self.nonce, &self.wrapped] {
            count(&mut hasher, &decoded(text)?);
        }
        if let (Some(number), Some(id)) = (self.generation, &self.generation_id) {
            hasher.update(&number.to_le_bytes());
            count(&mut hasher, &decoded(id)?);
        }
        let mut checksum = [0; CHECKSUM_BYTES];
        hasher.finalize_xof().fill(&mut checksum);
        Ok(hex::encode(checksum))
    }
}

/// What every version of a slot has.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

fn newer() -> Error {
    Error::new(
        ErrorKind::NewerFormat,
        "the key slot was written by a newer version of onefold; use that version",
    )
}

/// What is authenticated along with a ring: its store, and the generation that the slot claims.
fn place(store: StoreId, claimed: Option<Generation>) -> Vec<u8> {
    let mut place = store.0.to_vec();
    if let Some(Generation { number, id }) = claimed {
        place.extend_from_slice(&number.to_le_bytes());
        place.extend_from_slice(&id);
    }
    place
}

fn decoded(text: &str) -> Result<Vec<u8>> {
    hex::decode(text).map_err(|_| Error::damaged("the key slot is not well formed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_file::KeyFile;
    use crate::master_key::MasterKey;
    use crate::secret::{LANES, LANES_MAX, MEMORY_MAX_KIB, MEMORY_MIN_KIB, PASSES_MAX};
    use onefold_types::environment::SeededRandomness;

    const CHEAP: KdfCost = KdfCost { memory_kib: 64, passes: 1, lanes: 1 };

    fn slot() -> (KeySlot, KeyRing, StoreId) {
        let randomness = SeededRandomness::new(11);
        let ring = KeyRing::new(MasterKey::generate(&randomness));
        let store = StoreId::random(&randomness);
        (KeySlot::create(&ring, b"secret", store, CHEAP, &randomness).unwrap(), ring, store)
    }

    /// The slot as it was before there were rotations.
    fn first_version(ring: &KeyRing, store: StoreId) -> KeySlot {
        let mut slot = slot().0;
        let (salt, nonce) = (decoded(&slot.salt).unwrap(), decoded(&slot.nonce).unwrap());
        let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
        let mut wrapped = ring.to_bytes().to_vec();
        let key = Secret::from(b"secret").wrapping_key(&salt, store, CHEAP).unwrap();
        key.seal_in_place_append_tag(nonce, Aad::from(store.0), &mut wrapped).unwrap();
        slot.wrapped = hex::encode(wrapped);
        (slot.version, slot.generation, slot.generation_id) = (1, None, None);
        slot.checksum = slot.computed_checksum().unwrap();
        slot
    }

    #[test]
    fn r90_a_slot_without_generation_holds_the_first_one() {
        let (_, ring, store) = slot();
        let text = String::from_utf8(first_version(&ring, store).to_bytes().unwrap()).unwrap();
        assert!(!text.contains("generation"), "{text}");
        let slot = KeySlot::from_bytes(text.as_bytes()).unwrap();
        assert_eq!(slot.claimed().unwrap(), None);
        assert_eq!(*slot.open(b"secret", store).unwrap().to_bytes(), *ring.to_bytes());
    }

    #[test]
    fn r90_a_slot_holds_the_generation_that_it_claims() {
        let (_, ring, store) = slot();
        let randomness = SeededRandomness::new(12);
        let rotated = ring.rotated(2, 77, &randomness).unwrap();
        let slot = KeySlot::create(&rotated, b"secret", store, CHEAP, &randomness).unwrap();
        assert_eq!(slot.claimed().unwrap(), Some(rotated.newest()));
        let text = slot.to_bytes().unwrap();
        let slot = KeySlot::from_bytes(&text).unwrap();
        assert_eq!(*slot.open(b"secret", store).unwrap().to_bytes(), *rotated.to_bytes());
        for claimed in [
            Generation { number: 1, ..rotated.newest() },
            Generation { number: 3, ..rotated.newest() },
            ring.newest(),
        ] {
            let mut lying = slot.clone();
            lying.generation = Some(claimed.number);
            lying.generation_id = Some(hex::encode(claimed.id));
            lying.checksum = lying.computed_checksum().unwrap();
            assert!(lying.open(b"secret", store).is_err(), "{claimed}");
        }
        for (version, generation) in [(1, Some(2)), (2, None), (2, Some(0))] {
            let mut odd = slot.clone();
            (odd.version, odd.generation) = (version, generation);
            odd.checksum = odd.computed_checksum().unwrap();
            let read = KeySlot::from_bytes(&odd.to_bytes().unwrap()).unwrap_err();
            assert_eq!(read.kind(), ErrorKind::Damaged);
        }
    }

    #[test]
    fn r76_what_a_slot_may_ask_for_is_bounded_in_each_way() {
        let (_, key, store) = slot();
        let randomness = SeededRandomness::new(12);
        let tried = |cost: KdfCost| KeySlot::create(&key, b"secret", store, cost, &randomness);
        // At LANES_MAX and PASSES_MAX, and one beyond; a lane takes 8 KiB at least.
        let lanes = |lanes: u32| KdfCost { memory_kib: 8 * lanes, passes: 1, lanes };
        let passes = |passes: u32| KdfCost { passes, ..CHEAP };
        assert!(tried(lanes(LANES_MAX)).unwrap().open(b"secret", store).is_ok());
        assert!(tried(passes(PASSES_MAX)).unwrap().open(b"secret", store).is_ok());
        for cost in [
            lanes(LANES_MAX + 1),
            passes(PASSES_MAX + 1),
            KdfCost { memory_kib: MEMORY_MAX_KIB + 1, ..CHEAP },
            KdfCost { memory_kib: MEMORY_MAX_KIB, passes: 5, lanes: 1 },
        ] {
            assert_eq!(tried(cost).unwrap_err().kind(), ErrorKind::Damaged, "{cost:?}");
            assert!(KdfCost::new(cost.memory_kib, cost.passes).is_err(), "{cost:?}");
        }
        assert!(KdfCost::new(MEMORY_MAX_KIB, 4).is_ok() && KdfCost::new(MEMORY_MIN_KIB, 1).is_ok());
        assert!(KdfCost::new(MEMORY_MIN_KIB - 1, 1).is_err());
    }

    /// Where no thread could be started once, the calling one is a pool's only one from then on.
    #[test]
    fn a_thread_that_has_no_others_tries_one_slot_after_another() {
        let (_, key, store) = slot();
        let cost = KdfCost { memory_kib: 8 * LANES, passes: 1, lanes: LANES };
        let randomness = SeededRandomness::new(13);
        let slot = KeySlot::create(&key, b"secret", store, cost, &randomness).unwrap();
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        let alone = alone.build().unwrap();
        assert!(rayon::current_thread_index().is_some());
        assert!(slot.open(b"wrong", store).is_err());
        assert!(slot.open(b"secret", store).is_ok());
        drop(alone);
        assert!(slot.open(b"secret", store).is_ok());
    }

    #[test]
    fn a_slot_opens_with_its_password_in_its_store() {
        let (slot, key, store) = slot();
        let slot = KeySlot::from_bytes(&slot.to_bytes().unwrap()).unwrap();
        assert_eq!(slot.open(b"secret", store).unwrap().newest(), key.newest());
        let wrong = slot.open(b"Secret", store).err().unwrap();
        assert_eq!(wrong.kind(), ErrorKind::WrongPassword);
        assert!(slot.open(b"secret", StoreId([0; 16])).is_err());
    }

    #[test]
    fn hostile_slots_are_refused_before_any_work() {
        let (slot, _, store) = slot();
        let text = String::from_utf8(slot.to_bytes().unwrap()).unwrap();
        let greedy = text.replace("\"memory_kib\": 64", "\"memory_kib\": 4000000000");
        let error = KeySlot::from_bytes(greedy.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        let greedy = KeySlot::salvage(greedy.as_bytes()).unwrap().open(b"secret", store);
        assert_eq!(greedy.err().unwrap().kind(), ErrorKind::Damaged);
        let newer = text.replace("\"version\": 2", "\"version\": 3, \"more\": []");
        assert_eq!(
            KeySlot::from_bytes(newer.as_bytes()).unwrap_err().kind(),
            ErrorKind::NewerFormat
        );
        for length in 0..text.len() - 2 {
            assert!(KeySlot::from_bytes(&text.as_bytes()[..length]).is_err());
        }
    }

    #[test]
    fn a_key_file_opens_its_slots_and_costs_nothing() {
        let (of_password, ring, store) = slot();
        let randomness = SeededRandomness::new(14);
        let [file, other] = [(), ()].map(|()| KeyFile::generate(&randomness));
        let cost = KdfCost::default();
        let slot = KeySlot::create(&ring, &file, store, cost, &randomness).unwrap();
        let slot = KeySlot::from_bytes(&slot.to_bytes().unwrap()).unwrap();
        assert_eq!((slot.kind(), slot.cost()), (Some(SecretKind::KeyFile), KdfCost::NONE));
        assert_eq!(*slot.open(&file, store).unwrap().to_bytes(), *ring.to_bytes());
        // Neither another file, nor the text as a password, nor the file in another store.
        let refused = |opened: Result<KeyRing>| opened.err().unwrap().kind();
        for opened in [
            slot.open(&other, store),
            slot.open(file.to_text().as_bytes(), store),
            slot.open(&file, StoreId([0; 16])),
            of_password.open(&file, store),
        ] {
            assert_eq!(refused(opened), ErrorKind::WrongPassword);
        }
        // One that asks for work is damaged; a kind that is not known is newer.
        for (kdf, passes, kind) in
            [(KDF_OF_KEY_FILE, 1, ErrorKind::Damaged), ("hkdf-sha512", 0, ErrorKind::NewerFormat)]
        {
            let mut odd = slot.clone();
            (odd.kdf, odd.passes) = (kdf.to_owned(), passes);
            odd.checksum = odd.computed_checksum().unwrap();
            assert_eq!(KeySlot::from_bytes(&odd.to_bytes().unwrap()).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn the_checksum_is_over_the_bytes_that_the_format_names() {
        let (slot, _, _) = slot();
        let text = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
        let field = |text: &str| hex::decode(text).unwrap();
        let mut bytes = [2, 0, 0, 0].to_vec();
        bytes.extend(text(b"argon2id"));
        bytes.extend([64, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        for it in [&slot.salt, &slot.nonce, &slot.wrapped] {
            bytes.extend(text(&field(it)));
        }
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(text(&field(slot.generation_id.as_ref().unwrap())));
        assert_eq!(slot.checksum, blake3::hash(&bytes).to_hex()[..32]);
    }

    #[test]
    fn r81_a_newer_key_slot_is_told_from_a_damaged_one() {
        let (slot, key, store) = slot();
        let text = String::from_utf8(slot.to_bytes().unwrap()).unwrap();
        let kind = |text: &str| KeySlot::from_bytes(text.as_bytes()).unwrap_err().kind();
        let more = text.replace("\"version\": 2", "\"version\": 2, \"more\": []");
        assert_eq!(kind(&more), ErrorKind::Damaged);
        // Of a newer slot only the version is known, whatever kind of number it is.
        for version in ["3", "7", "4294967296", "18446744073709551615"] {
            let bare = format!("{{ \"version\": {version} }}");
            assert_eq!(kind(&bare), ErrorKind::NewerFormat);
            let more = format!("\"version\": {version}, \"more\": {{}}");
            assert_eq!(kind(&text.replace("\"version\": 2", &more)), ErrorKind::NewerFormat);
        }
        let mut other = slot.clone();
        other.kdf = "scrypt".into();
        let unsure = String::from_utf8(other.to_bytes().unwrap()).unwrap();
        assert_eq!(kind(&unsure), ErrorKind::Damaged);
        other.checksum = other.computed_checksum().unwrap();
        let sure = String::from_utf8(other.to_bytes().unwrap()).unwrap();
        assert_eq!(kind(&sure), ErrorKind::NewerFormat);
        let rotten = text.replace(&slot.checksum, &"0".repeat(32));
        assert_eq!(kind(&rotten), ErrorKind::Damaged);
        let opened = KeySlot::salvage(rotten.as_bytes()).unwrap().open(b"secret", store);
        assert_eq!(opened.unwrap().newest(), key.newest());
    }

    #[test]
    fn the_default_cost_is_owasps_minimum() {
        let cost = KdfCost::default();
        let minima = [(47_104, 1), (19_456, 2), (12_288, 3), (9_216, 4), (7_168, 5)];
        let reached = |&(memory, passes)| cost.memory_kib >= memory && cost.passes >= passes;
        assert!(minima.iter().any(reached));
    }
}
