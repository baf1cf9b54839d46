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
//! # Generations
//! What is new is sealed under the newest generation of the ring of keys. Nothing stored says under
//! which one it was, so opening tries: a container first with the one that was in use when its name
//! was made, anything else with the newest. A seal of another generation does not open by accident
//! (AES-GCM's tag), and an object's parts are all of one generation, so each object is tried once,
//! and only in stores whose keys were rotated. If nothing fits, somebody may have rotated the keys
//! since this process read them; then the error says so, and not that the bytes are damaged.
//!
//! Suites: AES-256-GCM; or none, where the tag is the first 16 bytes of BLAKE3 over purpose, name,
//! part and bytes. Both bind the bytes to their place, so that a misdirected or exchanged object is
//! detected; only the former detects malice.

use crate::contexts;
use crate::key_ring::KeyRing;
use crate::master_key::{MasterKey, keyed};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use onefold_types::environment::Randomness;
use onefold_types::{ContainerId, Error, ErrorKind, Result};
use std::sync::{Arc, OnceLock};
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
    /// Quarantined containers.
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
    /// Which generation of keys was decided: sealed without a key, because it is read before one is
    /// known.
    Generation = 13,
    /// What decided names say, said again.
    Checkpoint = 14,
    /// Stubs of files whose data is in the store.
    Stub = 15,
}

/// Whether somebody has rotated the keys since they were read; asked when a seal does not hold.
pub type KeysChanged = dyn Fn() -> Result<bool> + Send + Sync;

/// Seals and opens everything in one store.
pub struct Vault {
    keys: Arc<Keys>,
}

struct Keys {
    /// The sealing root of each generation and since when it is used, oldest first; none without
    /// encryption.
    roots: Vec<(i64, Zeroizing<[u8; 32]>)>,
    have_changed: Option<Box<KeysChanged>>,
}

impl Vault {
    /// A vault for a store with this master key, never rotated; without one, a vault that only
    /// checksums.
    #[must_use]
    pub fn new(master_key: Option<&MasterKey>) -> Self {
        let root = |key: &MasterKey| (i64::MIN, key.subkey(contexts::SEALING));
        let roots = master_key.map(root).into_iter().collect();
        Self { keys: Arc::new(Keys { roots, have_changed: None }) }
    }

    /// A vault for a store with this ring; `have_changed` tells whether there is a newer one.
    #[must_use]
    pub fn of_ring(ring: &KeyRing, have_changed: Box<KeysChanged>) -> Self {
        let roots = ring.sealing_roots();
        Self { keys: Arc::new(Keys { roots, have_changed: Some(have_changed) }) }
    }

    /// Whether the keys were ever rotated.
    #[must_use]
    pub fn has_older_generations(&self) -> bool {
        self.keys.roots.len() > 1
    }

    /// Fails if somebody has rotated the keys since they were read: whoever is about to act on what
    /// did not open asks first.
    ///
    /// Errors: `KeysChanged`.
    pub fn refuse_if_stale(&self) -> Result<()> {
        match &self.keys.have_changed {
            Some(have_changed) if have_changed()? => Err(stale()),
            _ => Ok(()),
        }
    }

    /// The sealer for a new object `name`.
    pub fn object(&self, purpose: Purpose, name: &[u8; 16]) -> Result<ObjectSealer> {
        // A store that is not encrypted has no roots.
        let newest = self.keys.roots.len().saturating_sub(1);
        self.sealer(purpose, name, newest, false)
    }

    /// What opens the object `name`, which somebody has stored: of whatever generation it is.
    pub fn stored(&self, purpose: Purpose, name: &[u8; 16]) -> Result<ObjectSealer> {
        let roots = &self.keys.roots;
        let mut guess = roots.len().saturating_sub(1);
        if purpose == Purpose::Container {
            let created_ms = ContainerId(*name).created_ms();
            let was_used = |(since_ns, _): &(i64, _)| *since_ns / 1_000_000 <= created_ms;
            guess = roots.iter().rposition(was_used).unwrap_or(0);
        }
        self.sealer(purpose, name, guess, true)
    }

    fn sealer(
        &self,
        purpose: Purpose,
        name: &[u8; 16],
        generation: usize,
        is_stored: bool,
    ) -> Result<ObjectSealer> {
        let mut place = [0; 17];
        place[0] = purpose as u8;
        place[1..].copy_from_slice(name);
        let key = self.keys.object_key(&place, generation)?;
        let settled = OnceLock::new();
        if !is_stored || self.keys.roots.len() < 2 {
            let _ = settled.set(Settled { generation, key: None });
        }
        let keys = Arc::clone(&self.keys);
        Ok(ObjectSealer { keys, place, is_stored, guess: generation, key, settled })
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
        self.open_record_told(purpose, name, sealed).map(|(body, _)| body)
    }

    /// The same; tells also whether the record is sealed under older keys than the newest ones.
    pub fn open_record_told(
        &self,
        purpose: Purpose,
        name: &[u8; 16],
        sealed: &[u8],
    ) -> Result<(Vec<u8>, bool)> {
        let (nonce, body) = sealed
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or_else(|| Error::damaged("the record is too short"))?;
        let mut body = body.to_vec();
        let sealer = self.stored(purpose, name)?;
        let length = sealer.open_with(*nonce, &mut body)?;
        body.truncate(length);
        Ok((body, sealer.generations_since().is_some_and(|count| count > 0)))
    }
}

impl Keys {
    /// The key of an object under one generation; none without encryption.
    fn object_key(&self, place: &[u8; 17], generation: usize) -> Result<Option<LessSafeKey>> {
        let Some((_, root)) = self.roots.get(generation) else { return Ok(None) };
        let unbound = UnboundKey::new(&AES_256_GCM, &*keyed(root, place))
            .map_err(|_| Error::invalid("cannot set up the sealing key"))?;
        Ok(Some(LessSafeKey::new(unbound)))
    }
}

/// Seals and opens the parts of one object.
pub struct ObjectSealer {
    keys: Arc<Keys>,
    place: [u8; 17],
    is_stored: bool,
    /// The generation that is tried first, and the object's key under it.
    guess: usize,
    key: Option<LessSafeKey>,
    settled: OnceLock<Settled>,
}

/// The generation of an object, once it is known.
struct Settled {
    generation: usize,
    /// The object's key, unless it is that of the guess.
    key: Option<LessSafeKey>,
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
        self.open_apart(part_nonce(part), sealed, plain)
    }

    /// How many generations have come since that of a stored object, once a part of it was opened.
    #[must_use]
    pub fn generations_since(&self) -> Option<usize> {
        let newest = self.keys.roots.len().saturating_sub(1);
        self.settled.get().map(|settled| newest - settled.generation)
    }

    fn open_apart(
        &self,
        nonce: [u8; NONCE_BYTES],
        sealed: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<()> {
        let (coded, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or_else(too_short)?;
        let Some(key) = &self.key else {
            plain.clear();
            plain.extend_from_slice(coded);
            let holds = self.checksum(&nonce, coded) == *tag;
            return if holds { Ok(()) } else { Err(broken()) };
        };
        // What is overwritten below needs no clearing first.
        plain.resize(coded.len(), 0);
        let mut opens = |key: &LessSafeKey| {
            let nonce = Nonce::assume_unique_for_key(nonce);
            key.open_separate_gather(nonce, Aad::from(self.place), coded, tag, plain).is_ok()
        };
        if let Some(settled) = self.settled.get() {
            let holds = opens(settled.key.as_ref().unwrap_or(key));
            return if holds { Ok(()) } else { Err(self.unopened()) };
        }
        if opens(key) {
            let _ = self.settled.set(Settled { generation: self.guess, key: None });
            return Ok(());
        }
        for generation in (0..self.keys.roots.len()).rev().filter(|it| *it != self.guess) {
            let Some(key) = self.keys.object_key(&self.place, generation)? else { continue };
            if opens(&key) {
                let _ = self.settled.set(Settled { generation, key: Some(key) });
                return Ok(());
            }
        }
        Err(self.unopened())
    }

    fn seal_with(&self, nonce: [u8; NONCE_BYTES], plain: &mut [u8]) -> Result<[u8; TAG_BYTES]> {
        let mut tag = [0; TAG_BYTES];
        if self.is_stored {
            // It may be of an old generation; what is new has a new name as well.
            return Err(Error::invalid("an object that is stored is not sealed again"));
        }
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
        let Some(settled) = self.settled.get() else {
            // A try in place would destroy what the next one needs.
            let mut plain = Vec::new();
            self.open_apart(nonce, sealed, &mut plain)?;
            sealed[..length].copy_from_slice(&plain);
            return Ok(length);
        };
        let Some(key) = settled.key.as_ref().or(self.key.as_ref()) else {
            let holds = self.checksum(&nonce, &sealed[..length]) == sealed[length..];
            return if holds { Ok(length) } else { Err(broken()) };
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        match key.open_in_place(nonce, Aad::from(self.place), sealed) {
            Ok(_) => Ok(length),
            Err(_) => Err(self.unopened()),
        }
    }

    /// Why a seal does not hold: the bytes are damaged, or newer than the keys.
    fn unopened(&self) -> Error {
        let have_changed = self.keys.have_changed.as_ref().map_or(Ok(false), |ask| ask());
        match have_changed {
            Ok(false) => broken(),
            Ok(true) => stale(),
            Err(error) => error,
        }
    }

    fn checksum(&self, nonce: &[u8; NONCE_BYTES], bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.place).update(nonce).update(bytes);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
        tag
    }
}

fn stale() -> Error {
    Error::new(
        ErrorKind::KeysChanged,
        "the keys were changed ('onefold key rotate') since this program opened the store; start \
         it again",
    )
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

    fn ring(generations: usize) -> KeyRing {
        let mut ring = KeyRing::new(MasterKey::from_bytes([5; 32]));
        for number in 1..generations {
            let randomness = SeededRandomness::new(number as u64);
            let since_ns = number as i64 * 1_000_000_000;
            ring = ring.rotated(number as u32 + 1, since_ns, &randomness).unwrap();
        }
        ring
    }

    fn vault(generations: usize) -> Vault {
        Vault::of_ring(&ring(generations), Box::new(|| Ok(false)))
    }

    /// The name of a container that was made so many seconds after 1970.
    fn name_at(seconds: u16) -> [u8; 16] {
        ContainerId::ordered(i64::from(seconds) * 1_000_000_000, &SeededRandomness::new(7)).0
    }

    #[test]
    fn r90_parts_and_records_of_every_generation_open_with_a_later_ring() {
        let randomness = SeededRandomness::new(9);
        let now = vault(5);
        for (written, seconds) in (1..=5).flat_map(|written| (0..7).map(move |at| (written, at))) {
            let (old, name) = (vault(written), name_at(seconds));
            for purpose in [Purpose::Container, Purpose::IndexRun] {
                let sealer = old.object(purpose, &name).unwrap();
                let mut parts = [b"first".to_vec(), b"second".to_vec()];
                for (part, bytes) in (0..).zip(&mut parts) {
                    sealer.seal(part, bytes, 0).unwrap();
                }
                let (stored, apart) = (now.stored(purpose, &name), now.stored(purpose, &name));
                let (stored, apart) = (stored.unwrap(), apart.unwrap());
                assert_eq!(stored.generations_since(), None);
                let mut first = parts[0].clone();
                assert_eq!(stored.open(0, &mut first).unwrap(), 5);
                assert_eq!(&first[..5], b"first");
                assert_eq!(stored.generations_since(), Some(5 - written));
                // Of the parts that follow none is tried twice, and damage is still found.
                for bit in 0..parts[1].len() * 8 {
                    let mut flipped = parts[1].clone();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    let error = stored.open(1, &mut flipped.clone()).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Damaged);
                    assert!(apart.open_into(1, &flipped, &mut Vec::new()).is_err());
                }
                let mut second = Vec::new();
                apart.open_into(1, &parts[1], &mut second).unwrap();
                assert_eq!(second, b"second");
                assert_eq!(apart.generations_since(), Some(5 - written));
                assert_eq!(stored.open(1, &mut parts[1]).unwrap(), 6);
                assert!(stored.seal(2, &mut Vec::new(), 0).is_err());
            }
            let sealed = old.seal_record(Purpose::Mark, &name, b"record", &randomness).unwrap();
            assert_eq!(now.open_record(Purpose::Mark, &name, &sealed).unwrap(), b"record");
            assert!(now.open_record(Purpose::Fate, &name, &sealed).is_err());
        }
    }

    #[test]
    fn r90_an_old_ring_opens_nothing_newer_and_says_why() {
        let randomness = SeededRandomness::new(9);
        let record = |vault: &Vault| {
            vault.seal_record(Purpose::Outcome, &[1; 16], b"new", &randomness).unwrap()
        };
        let sealed = record(&vault(2));
        let mut part = b"new".to_vec();
        vault(2).object(Purpose::Container, &[1; 16]).unwrap().seal(0, &mut part, 0).unwrap();
        let io = || Err(Error::new(ErrorKind::Io, "cannot look"));
        let changed: [(Box<KeysChanged>, ErrorKind); 3] = [
            (Box::new(|| Ok(true)), ErrorKind::KeysChanged),
            (Box::new(|| Ok(false)), ErrorKind::Damaged),
            (Box::new(io), ErrorKind::Io),
        ];
        for (have_changed, kind) in changed {
            let old = Vault::of_ring(&ring(1), have_changed);
            let error = old.open_record(Purpose::Outcome, &[1; 16], &sealed).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            let stored = old.stored(Purpose::Container, &[1; 16]).unwrap();
            assert_eq!(stored.open(0, &mut part.clone()).unwrap_err().kind(), kind);
            assert_eq!(stored.open_into(0, &part, &mut Vec::new()).unwrap_err().kind(), kind);
            // What was sealed with the keys there were opens all the same.
            let own = record(&old);
            assert_eq!(old.open_record(Purpose::Outcome, &[1; 16], &own).unwrap(), b"new");
            assert_eq!(
                old.refuse_if_stale().err().map(|error| error.kind()),
                match kind {
                    ErrorKind::Damaged => None,
                    kind => Some(kind),
                }
            );
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
