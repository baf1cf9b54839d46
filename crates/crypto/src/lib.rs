//! Fingerprints, seals and keys.
//!
//! | module | holds |
//! | --- | --- |
//! | [`fingerprinter`] | chunk names: BLAKE3 (default), SHA-256, SHA-1; keyed in encrypted stores |
//! | [`blake3_batch`] | the same BLAKE3 digests, computed for many chunks at once |
//! | [`seal`] | authenticated encryption of object parts and of records |
//! | [`master_key`] | the first secret of a store and the subkeys derived from it |
//! | [`key_ring`] | that and the secrets that sealing went over to since |
//! | [`contexts`] | under which contexts those are derived |
//! | [`key_slot`] | the ring wrapped by a password (argon2id) or a key file (HKDF) |
//! | [`secret`] | passwords and key files: what opens a slot, and what trying it costs |
//! | [`key_file`] | 256 random bits as a line of text |
//! | [`randomness`] | the operating system's random numbers |
//!
//! What the keys protect, and from whom, is told in docs/FORMAT.md, section "Encryption".

pub mod blake3_batch;
pub mod contexts;
pub mod fingerprinter;
pub mod key_file;
pub mod key_ring;
pub mod key_slot;
pub mod master_key;
pub mod randomness;
pub mod seal;
pub mod secret;

pub use fingerprinter::{Fingerprinter, HashKind};
pub use key_file::KeyFile;
pub use key_ring::{Generation, KeyRing};
pub use key_slot::KeySlot;
pub use master_key::MasterKey;
pub use randomness::OsRandomness;
pub use seal::{ObjectSealer, Purpose, Suite, TAG_BYTES, Vault};
pub use secret::{KDF_WORK_MAX_KIB, KdfCost, Secret, SecretKind};
