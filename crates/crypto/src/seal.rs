//! Seals stored bytes: authenticated encryption, or a checksum where the store is not encrypted.
//!
//! Two forms:
//! - **object parts** (container frames, metadata sections, index pages): the key is derived from
//!   the sealing key, the purpose and the object's name; the nonce is the part's number. Names are
//!   random and never reused and each part is sealed once, so no nonce repeats under a key, and
//!   nothing but the 16-byte tag is added.
//! - **records** (snapshots, marks, plans): as above, with a random 12-byte nonce in front, because
//!   a retried writer may seal another content under the same name.
//!
//! Suites: AES-256-GCM; or none, where the tag is the first 16 bytes of BLAKE3 over purpose, name,
//! part and bytes. Both bind the bytes to their place, so that a misdirected or exchanged object is
//! detected; only the former detects malice.

use crate::contexts;
use crate::master_key::MasterKey;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use onefold_types::environment::Randomness;
use onefold_types::{Error, Result};
use zeroize::Zeroizing;

/// Bytes that sealing adds to an object part.
pub const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
/// Bytes that sealing adds to a record.
pub const RECORD_OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// The sealing algorithm; fixed when a store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Suite {
    /// Checksums only.
    None,
    /// AES-256 in Galois/counter mode.
    #[default]
    Aes256Gcm,
}

/// What an object is, so that no object can stand in for one of another kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// Container frames and metadata sections.
    Container = 1,
    /// Index runs.
    IndexRun = 2,
    /// Session outcomes, which are the snapshots.
    Outcome = 3,
    /// Reversible marks on snapshots.
    Mark = 4,
    /// Tombstones.
    Tombstone = 5,
    /// Collector plans, epochs and sweeps.
    Plan = 6,
    /// Findings about damaged containers.
    Damage = 7,
    /// Session announcements.
    Session = 8,
    /// The configuration's authenticity tag.
    Configuration = 9,
    /// What became of marks.
    Fate = 10,
    /// Doubts about what snapshots rely on.
    Doubt = 11,
    /// What is said about snapshots after they were made.
    Change = 12,
}

/// Seals and opens everything in one store.
pub struct Vault {
    root: Option<Zeroizing<[u8; 32]>>,
}

impl Vault {
    /// A vault for a store with this master key; without one, a vault that only checksums.
    #[must_use]
    pub fn new(master_key: Option<&MasterKey>) -> Self {
        Self { root: master_key.map(|key| key.subkey(contexts::SEALING)) }
    }

    /// The suite in use.
    #[must_use]
    pub fn suite(&self) -> Suite {
        if self.root.is_some() { Suite::Aes256Gcm } else { Suite::None }
    }

    /// The sealer for the object `name`.
    pub fn object(&self, purpose: Purpose, name: &[u8; 16]) -> Result<ObjectSealer> {
        let mut place = [0; 17];
        place[0] = purpose as u8;
        place[1..].copy_from_slice(name);
        let key = match &self.root {
            None => None,
            Some(root) => {
                let object_key = Zeroizing::new(*blake3::keyed_hash(root, &place).as_bytes());
                let unbound = UnboundKey::new(&AES_256_GCM, &*object_key)
                    .map_err(|_| Error::invalid("cannot set up the sealing key"))?;
                Some(LessSafeKey::new(unbound))
            }
        };
        Ok(ObjectSealer { key, place })
    }

    /// Seals a record under a random nonce.
    pub fn seal_record(
        &self,
        purpose: Purpose,
        name: &[u8; 16],
        plain: &[u8],
        randomness: &dyn Randomness,
    ) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        randomness.fill(&mut nonce);
        let mut sealed = Vec::with_capacity(plain.len() + RECORD_OVERHEAD_BYTES);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let sealer = self.object(purpose, name)?;
        let tag = sealer.seal_with(nonce, &mut sealed[NONCE_BYTES..])?;
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// Opens what [`Vault::seal_record`] sealed for the same purpose and name.
    pub fn open_record(&self, purpose: Purpose, name: &[u8; 16], sealed: &[u8]) -> Result<Vec<u8>> {
        let (nonce, body) = sealed
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or_else(|| Error::damaged("the record is too short"))?;
        let mut body = body.to_vec();
        let length = self.object(purpose, name)?.open_with(*nonce, &mut body)?;
        body.truncate(length);
        Ok(body)
    }
}

/// Seals and opens the parts of one object.
pub struct ObjectSealer {
    key: Option<LessSafeKey>,
    place: [u8; 17],
}

impl ObjectSealer {
    /// The id of the object that this seals.
    #[must_use]
    pub fn object(&self) -> [u8; 16] {
        let [_, id @ ..] = self.place;
        id
    }

    /// Seals `buffer[from..]` as part `part` in place and appends the tag.
    pub fn seal(&self, part: u32, buffer: &mut Vec<u8>, from: usize) -> Result<()> {
        let plain = buffer.get_mut(from..).ok_or_else(|| Error::invalid("nothing to seal"))?;
        let tag = self.seal_with(part_nonce(part), plain)?;
        buffer.extend_from_slice(&tag);
        Ok(())
    }

    /// Opens part `part` in place; returns the number of plain bytes at the front of `sealed`.
    pub fn open(&self, part: u32, sealed: &mut [u8]) -> Result<usize> {
        self.open_with(part_nonce(part), sealed)
    }

    /// Opens part `part` into `plain`, whose former content is lost, and leaves `sealed` as it is.
    pub fn open_into(&self, part: u32, sealed: &[u8], plain: &mut Vec<u8>) -> Result<()> {
        let nonce = part_nonce(part);
        let (coded, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or_else(too_short)?;
        let holds = match &self.key {
            None => {
                plain.clear();
                plain.extend_from_slice(coded);
                self.checksum(&nonce, coded) == *tag
            }
            Some(key) => {
                // What is overwritten below needs no clearing first.
                plain.resize(coded.len(), 0);
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_separate_gather(nonce, Aad::from(self.place), coded, tag, plain).is_ok()
            }
        };
        if holds { Ok(()) } else { Err(broken()) }
    }

    fn seal_with(&self, nonce: [u8; NONCE_BYTES], plain: &mut [u8]) -> Result<[u8; TAG_BYTES]> {
        let mut tag = [0; TAG_BYTES];
        match &self.key {
            None => tag = self.checksum(&nonce, plain),
            Some(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let sealed = key
                    .seal_in_place_separate_tag(nonce, Aad::from(self.place), plain)
                    .map_err(|_| Error::invalid("cannot seal: the part is too large"))?;
                tag.copy_from_slice(sealed.as_ref());
            }
        }
        Ok(tag)
    }

    fn open_with(&self, nonce: [u8; NONCE_BYTES], sealed: &mut [u8]) -> Result<usize> {
        let length = sealed.len().checked_sub(TAG_BYTES).ok_or_else(too_short)?;
        let holds = match &self.key {
            None => self.checksum(&nonce, &sealed[..length]) == sealed[length..],
            Some(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, Aad::from(self.place), sealed).is_ok()
            }
        };
        if holds { Ok(length) } else { Err(broken()) }
    }

    fn checksum(&self, nonce: &[u8; NONCE_BYTES], bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.place).update(nonce).update(bytes);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
        tag
    }
}

fn too_short() -> Error {
    Error::damaged("the sealed part is too short")
}

fn broken() -> Error {
    Error::damaged("the seal does not hold: these are not the bytes that were written")
}

fn part_nonce(part: u32) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..4].copy_from_slice(&part.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;

    fn vaults() -> [Vault; 2] {
        [Vault::new(None), Vault::new(Some(&MasterKey::from_bytes([5; 32])))]
    }

    #[test]
    fn parts_open_only_in_their_own_place() {
        for vault in vaults() {
            let sealer = vault.object(Purpose::Container, &[1; 16]).unwrap();
            let mut sealed = b"front|body".to_vec();
            sealer.seal(3, &mut sealed, 6).unwrap();
            assert_eq!(sealed.len(), 10 + TAG_BYTES);
            let opened = |sealer: &ObjectSealer, part| {
                let mut copy = sealed[6..].to_vec();
                let in_place = sealer.open(part, &mut copy).map(|length| copy[..length].to_vec());
                let mut apart = b"what was there before".to_vec();
                let opened = sealer.open_into(part, &sealed[6..], &mut apart);
                assert_eq!(opened.is_ok(), in_place.is_ok());
                assert!(opened.is_err() || in_place.as_ref().is_ok_and(|plain| *plain == apart));
                in_place
            };
            assert_eq!(opened(&sealer, 3).unwrap(), b"body");
            assert!(opened(&sealer, 4).is_err());
            let other_name = vault.object(Purpose::Container, &[2; 16]).unwrap();
            assert!(opened(&other_name, 3).is_err());
            let other_purpose = vault.object(Purpose::IndexRun, &[1; 16]).unwrap();
            assert!(opened(&other_purpose, 3).is_err());
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for vault in vaults() {
            let randomness = SeededRandomness::new(1);
            let sealed =
                vault.seal_record(Purpose::Outcome, &[9; 16], b"record", &randomness).unwrap();
            assert_eq!(vault.open_record(Purpose::Outcome, &[9; 16], &sealed).unwrap(), b"record");
            for bit in 0..sealed.len() * 8 {
                let mut flipped = sealed.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(vault.open_record(Purpose::Outcome, &[9; 16], &flipped).is_err());
            }
            for length in 0..sealed.len() {
                assert!(vault.open_record(Purpose::Outcome, &[9; 16], &sealed[..length]).is_err());
            }
        }
    }

    #[test]
    fn encryption_hides_the_plaintext() {
        let [open, closed] = vaults();
        let seal = |vault: &Vault| {
            let mut bytes = b"attack at dawn".to_vec();
            vault.object(Purpose::Container, &[1; 16]).unwrap().seal(0, &mut bytes, 0).unwrap();
            bytes
        };
        assert!(seal(&open).starts_with(b"attack"));
        assert!(!seal(&closed).starts_with(b"attack"));
    }
}
