//! What opens key slots, and what trying it costs.
//!
//! A password is stretched by argon2id, whose cost stands in the slot: slots lie open to guessing.
//! A key file ([`crate::key_file`]) is not guessed, and is not stretched.
//!
//! Invariant: no slot has this program work more than the bounds below allow.

use crate::key_file::KeyFile;
use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use onefold_types::{Error, ErrorKind, Result, StoreId};
use zeroize::Zeroizing;

/// A slot that asks for more memory than this is refused, so that a hostile slot cannot exhaust us.
pub(crate) const MEMORY_MAX_KIB: u32 = 1 << 20;
pub(crate) const PASSES_MAX: u32 = 64;
pub(crate) const LANES_MAX: u32 = 64;
/// Lanes of new slots: as many threads can try one password.
pub(crate) const LANES: u32 = 4;
/// Kibibytes times passes; beyond that one try takes longer than anybody waits.
pub const KDF_WORK_MAX_KIB: u64 = 4 << 20;
/// No new slot is given less than that.
pub(crate) const MEMORY_MIN_KIB: u32 = 8 * 1024;

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
    /// 64 MiB, three passes, four lanes (docs/decisions/0006-key-derivation.md): key slots lie open
    /// to guessing where nobody counts the tries.
    fn default() -> Self {
        Self { memory_kib: 64 * 1024, passes: 3, lanes: LANES }
    }
}

impl KdfCost {
    /// The usual cost with this memory and so many passes.
    ///
    /// Errors: `Invalid` outside of what slots may ask for.
    pub fn new(memory_kib: u32, passes: u32) -> Result<Self> {
        let cost = Self { memory_kib, passes, lanes: LANES };
        let work = u64::from(memory_kib) * u64::from(passes);
        match memory_kib < MEMORY_MIN_KIB || passes == 0 || cost.is_excessive() {
            true => Err(Error::invalid(format!(
                "a key derivation with {memory_kib} KiB and {passes} passes ({work} KiB in all) is \
                 not offered: at least {} MiB and one pass, at most {} GiB, {PASSES_MAX} passes \
                 and {} GiB in all",
                MEMORY_MIN_KIB / 1024,
                MEMORY_MAX_KIB >> 20,
                KDF_WORK_MAX_KIB >> 20
            ))),
            false => Ok(cost),
        }
    }

    /// The cost that slots of key files state.
    pub(crate) const NONE: Self = Self { memory_kib: 0, passes: 0, lanes: 0 };

    fn is_excessive(self) -> bool {
        let work = u64::from(self.memory_kib) * u64::from(self.passes);
        self.memory_kib > MEMORY_MAX_KIB
            || self.passes > PASSES_MAX
            || self.lanes > LANES_MAX
            || work > KDF_WORK_MAX_KIB
    }
}

/// What opens a slot.
#[derive(Clone, Copy)]
pub enum Secret<'a> {
    /// What a person remembers or a program is told.
    Password(&'a [u8]),
    /// What a key file holds.
    KeyFile(&'a KeyFile),
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Secret<'a> {
    fn from(password: &'a T) -> Self {
        Self::Password(password.as_ref())
    }
}

impl<'a> From<&'a KeyFile> for Secret<'a> {
    fn from(file: &'a KeyFile) -> Self {
        Self::KeyFile(file)
    }
}

/// Which sort of secret opens a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretKind {
    /// A password.
    Password,
    /// A key file.
    KeyFile,
}

impl Secret<'_> {
    /// Which sort of secret it is.
    #[must_use]
    pub fn kind(self) -> SecretKind {
        match self {
            Self::Password(_) => SecretKind::Password,
            Self::KeyFile(_) => SecretKind::KeyFile,
        }
    }

    /// What wraps the ring; only a password's cost anything.
    pub(crate) fn wrapping_key(
        self,
        salt: &[u8],
        store: StoreId,
        cost: KdfCost,
    ) -> Result<LessSafeKey> {
        match self {
            Self::Password(password) => stretched(password, salt, cost),
            Self::KeyFile(file) => file.wrapping_key(salt, store),
        }
    }
}

/// Does something with threads for so many lanes, or in the calling one alone if there can be no
/// others. They are told to end with it: the crate's own would stay, and panic where none can be
/// started.
fn in_lanes<T: Send>(lanes: u32, derive: impl FnOnce() -> T + Send) -> Result<T> {
    // A thread that had to do without others once stays the only one of its pool.
    if rayon::current_thread_index().is_some() {
        return Ok(derive());
    }
    let threads = lanes.clamp(1, LANES) as usize;
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = started
        .or_else(|_| rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build())
        .map_err(|cause| {
            Error::new(ErrorKind::Io, format!("cannot start threads for trying a key: {cause}"))
        })?;
    Ok(pool.install(derive))
}

/// The key that argon2id makes of a password.
fn stretched(password: &[u8], salt: &[u8], cost: KdfCost) -> Result<LessSafeKey> {
    if cost.is_excessive() {
        return Err(Error::damaged("the key slot asks for an unreasonable derivation cost"));
    }
    let parameters = argon2::Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32))
        .map_err(|error| Error::damaged(format!("the key derivation cost is invalid: {error}")))?;
    let argon2 =
        argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, parameters);
    let mut key = Zeroizing::new([0; 32]);
    // In memory of our own, so that it is wiped: who reads its last blocks has the key.
    let count = argon2.params().block_count();
    let mut blocks = Zeroizing::new(Vec::new());
    blocks.try_reserve_exact(count).map_err(|_| {
        Error::new(
            ErrorKind::LimitExceeded,
            format!("there is no memory for trying a key: {} MiB", cost.memory_kib / 1024),
        )
    })?;
    blocks.resize(count, argon2::Block::default());
    let derive =
        || argon2.hash_password_into_with_memory(password, salt, &mut *key, &mut blocks[..]);
    in_lanes(cost.lanes, derive)?
        .map_err(|error| Error::damaged(format!("cannot derive the key: {error}")))?;
    let unbound = UnboundKey::new(&AES_256_GCM, &*key)
        .map_err(|_| Error::invalid("cannot set up the wrapping key"))?;
    Ok(LessSafeKey::new(unbound))
}
