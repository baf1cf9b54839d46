//! Decisions by somebody else: for stores that replace objects, an arbiter says who was first.
//!
//! Not every object store can be made to keep what was put first, and then nothing in it can be
//! decided. An [`Arbiter`] can: a database, say. It settles who wins and is asked for nothing else.
//! What won is put into the store under the decided name, so that the store stays complete by
//! itself: it is read, copied and restored from without the arbiter.
//!
//! # Algorithm
//! `decide(name, value)`:
//!
//! 1. If the store has an object of that name, its bytes are the decision.
//! 2. The arbiter is given the value, or where that is longer than [`INLINE_MAX_BYTES`] the name of
//!    an object below `proposals/` that holds it, and says which one won.
//! 3. What won is put under the name. Whoever else learns of it puts the same bytes, so it does not
//!    matter who does, how often, or whether the store replaces objects.
//! 4. An own proposal that did not win is deleted. One that won stays: what is put may be lost, and
//!    is decided again then, as the same.
//!
//! `decided(name)` reads the store alone. A value that has won and was not put yet was given to
//! nobody: whoever finds nothing may take the name for undecided, as if it had asked earlier.
//!
//! # Invariants
//! - Only what the arbiter named is ever put under a decided name.
//! - A store has one mechanism for all time ([`DecidedBy`]): its configuration says which.
//! - One arbiter decides at a time: the newest object below `arbiters/` says by which number it
//!   knows the store. Whoever names another one, or one that was replaced, is refused.
//! - An arbiter that has lost everything costs nothing that was returned to anybody. Values that
//!   were on their way then would be decided anew, so nobody may be at work while it is replaced.
//!
//! Concurrency: as all stores. Two that decide one name are told the same.

use crate::{Blobs, Decisions, Key, Store};
use onefold_types::{Error, ErrorKind, Result, StoreId};
use std::sync::{Arc, OnceLock};

/// Longer values are given to an arbiter by the name of an object.
pub const INLINE_MAX_BYTES: usize = 64 << 10;
/// Where values are that are too long to be given to an arbiter.
pub const PROPOSALS: &str = "proposals";
/// Where the numbers are by which arbiters know a store; the last one counts.
pub const ARBITERS: &str = "arbiters";
/// What a value given to an arbiter begins with: the value follows.
const INLINE: u8 = 0;
/// What it begins with otherwise: the name of an object follows.
const PROPOSED: u8 = 1;

/// Who decides the names of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DecidedBy {
    /// The store, which never replaces an object.
    #[default]
    Itself,
    /// A database beside it.
    Database,
    /// Nobody: it was opened for reading only.
    Nobody,
}

/// A number by which the arbiter of a store, and no other, knows it.
pub type Incarnation = [u8; 16];

/// Says who was first.
pub trait Arbiter: Send + Sync {
    /// The store that it decides for; said once, before it is asked.
    ///
    /// # Errors
    ///
    /// `Invalid` if it does not know the store by this number; those of reaching it.
    fn open(&self, store: StoreId, incarnation: &Incarnation) -> Result<()>;

    /// That it decides for a store from now on, which it knows by this number.
    ///
    /// # Errors
    ///
    /// Those of reaching it.
    fn register(&self, store: StoreId, incarnation: &Incarnation) -> Result<()>;

    /// The one value that won under a name of that store, for all time: `value` if nobody was
    /// earlier. At most [`INLINE_MAX_BYTES`] and a byte. It is durable before this returns.
    ///
    /// # Errors
    ///
    /// Those of reaching it: the name may be decided then, and asking again is safe.
    fn decide(&self, store: StoreId, name: &Key, value: &[u8]) -> Result<Vec<u8>>;

    /// It in words, for messages.
    fn describe(&self) -> String;
}

/// A store whose names are decided by an arbiter; see the module.
pub struct Arbitrated<S> {
    store: S,
    arbiter: Arc<dyn Arbiter>,
    opened_as: OnceLock<StoreId>,
}

impl<S: Store> Arbitrated<S> {
    /// A store that may replace objects, and who decides for it.
    pub fn new(store: S, arbiter: Arc<dyn Arbiter>) -> Self {
        Self { store, arbiter, opened_as: OnceLock::new() }
    }

    fn store_id(&self) -> Result<StoreId> {
        let unknown = || Error::invalid("something is decided in a store that was not opened");
        self.opened_as.get().copied().ok_or_else(unknown)
    }

    /// Puts what won, which others may be putting.
    fn put_won(&self, key: &Key, won: &[u8]) -> Result<()> {
        match self.store.put(key, won) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            put => return put,
        }
        match self.store.decided(key)? {
            Some(there) if there == won => Ok(()),
            Some(_) => Err(Error::damaged(format!(
                "'{key}' in {} says something else than what {} decided: another process decides \
                 without it, or it was put back from an older copy; stop all processes that \
                 write to the store, and run 'onefold check'",
                self.store.describe(),
                self.arbiter.describe()
            ))),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "'{key}' in {} is said to be taken and cannot be found; try again",
                    self.store.describe()
                ),
            )),
        }
    }

    /// What the arbiter is given for a value, and the object that was put for that.
    fn proposal(&self, value: &[u8]) -> Result<(Vec<u8>, Option<Key>)> {
        if value.len() <= INLINE_MAX_BYTES {
            return Ok(([&[INLINE], value].concat(), None));
        }
        let number = random()?;
        let key = Key::new(format!("{PROPOSALS}/{:032x}", u128::from_le_bytes(number)))?;
        self.store.put(&key, value)?;
        // Once its name has won, nothing else can.
        if self.store.get(&key)? != value {
            return Err(Error::damaged(format!(
                "the store acknowledged '{key}' but holds other bytes; do not trust this device"
            )));
        }
        Ok(([&[PROPOSED], key.as_str().as_bytes()].concat(), Some(key)))
    }

    /// The value that the arbiter's answer means. Whoever proposed it has deleted it only after it
    /// was put where it belongs.
    fn meant(&self, key: &Key, won: &[u8]) -> Result<Vec<u8>> {
        let strange = || {
            Error::damaged(format!(
                "{} gave an answer about '{key}' that means nothing",
                self.arbiter.describe()
            ))
        };
        match won.split_first() {
            _ if won.len() > INLINE_MAX_BYTES + 1 => Err(strange()),
            Some((&INLINE, value)) => Ok(value.to_vec()),
            Some((&PROPOSED, name)) => {
                let name = std::str::from_utf8(name).map_err(|_| strange())?;
                let proposal = Key::new(name).map_err(|_| strange())?;
                if proposal.top() != PROPOSALS {
                    return Err(strange());
                }
                match self.store.get(&proposal) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        self.store.decided(key)?.ok_or(error)
                    }
                    got => got,
                }
            }
            _ => Err(strange()),
        }
    }
}

fn random() -> Result<[u8; 16]> {
    let mut number = [0; 16];
    let failed = |error| Error::invalid(format!("the system gives no random bytes: {error}"));
    getrandom::fill(&mut number).map_err(failed)?;
    Ok(number)
}

/// Has an arbiter decide for a store from now on, and no other. Nobody may be deciding meanwhile.
///
/// # Errors
///
/// Those of the store and of the arbiter.
pub fn appoint(store: &dyn Blobs, arbiter: &dyn Arbiter, id: StoreId) -> Result<()> {
    let incarnation = random()?;
    let next = last_arbiter(store)?.map_or(1, |last| last.saturating_add(1));
    arbiter.register(id, &incarnation)?;
    store.put(&Key::new(format!("{ARBITERS}/{next}"))?, &incarnation)?;
    match appointed(store)? == incarnation {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Unavailable,
            "another database was made to decide for the store at the same time; try again",
        )),
    }
}

fn last_arbiter(store: &dyn Blobs) -> Result<Option<u32>> {
    let mut last = None;
    store.list_names(ARBITERS, &mut |name| {
        let number = name.rsplit_once('/').and_then(|(_, number)| number.parse().ok());
        last = last.max(number);
        Ok(())
    })?;
    Ok(last)
}

/// The number by which the arbiter of a store knows it.
fn appointed(store: &dyn Blobs) -> Result<Incarnation> {
    let none = || {
        Error::damaged(
            "nothing in the store says which database decides for it: end all processes that \
             write to it, and run 'onefold database register'",
        )
    };
    let last = last_arbiter(store)?.ok_or_else(none)?;
    let bytes = store.get(&Key::new(format!("{ARBITERS}/{last}"))?)?;
    bytes.try_into().map_err(|_| none())
}

impl<S: Store> Decisions for Arbitrated<S> {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        if let Some(there) = self.store.decided(key)? {
            return Ok(there);
        }
        let store_id = self.store_id()?;
        let (given, own) = self.proposal(value)?;
        let decided = self.arbiter.decide(store_id, key, &given).and_then(|won| {
            let value = self.meant(key, &won)?;
            self.put_won(key, &value)?;
            Ok((won, value))
        });
        let (won, value) = decided?;
        if let Some(own) = own.filter(|_| won != given) {
            // Who cannot delete leaves some bytes behind.
            let _ = self.store.delete(&own);
        }
        Ok(value)
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.store.decided(key)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_decided(prefix, each)
    }
}

impl<S: Store> Store for Arbitrated<S> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Database
    }

    fn open_as(&self, id: StoreId, is_new: bool) -> Result<()> {
        if is_new {
            appoint(&self.store, &*self.arbiter, id)?;
        }
        self.arbiter.open(id, &appointed(&self.store)?)?;
        match *self.opened_as.get_or_init(|| id) == id {
            true => Ok(()),
            false => Err(Error::invalid("one store was opened as two")),
        }
    }
}

impl<S: Store> Blobs for Arbitrated<S> {
    crate::pass_blobs_on!(this => this.store);
}

/// Decisions in memory, for tests.
#[cfg(any(test, feature = "testing"))]
#[derive(Default)]
pub struct MemoryArbiter {
    decided: std::sync::Mutex<std::collections::BTreeMap<(StoreId, Key), Vec<u8>>>,
    known: std::sync::Mutex<std::collections::BTreeMap<StoreId, Incarnation>>,
}

#[cfg(any(test, feature = "testing"))]
impl Arbiter for MemoryArbiter {
    fn open(&self, store: StoreId, incarnation: &Incarnation) -> Result<()> {
        let known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match known.get(&store) == Some(incarnation) {
            true => Ok(()),
            false => Err(Error::invalid("the arbiter does not know this store")),
        }
    }

    fn register(&self, store: StoreId, incarnation: &Incarnation) -> Result<()> {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.insert(store, *incarnation);
        Ok(())
    }

    fn decide(&self, store: StoreId, name: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let mut decided = self.decided.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(decided.entry((store, name.clone())).or_insert_with(|| value.to_vec()).clone())
    }

    fn describe(&self) -> String {
        "the arbiter in memory".into()
    }
}
