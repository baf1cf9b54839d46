//! Which generation of keys is the newest: decided once for each number.
//!
//! A rotation stores a slot with a ring that has one generation more, and then decides
//! `generations/<number>`: whoever rotates at the same time loses that decision, and drops its
//! slot. So there is one newest generation at every moment, and everybody can tell whether a slot
//! holds it, or whether his own keys are stale, without any key.
//!
//! # Bytes
//! The value is a record (docs/FORMAT.md, section 6) sealed without a key as purpose 13, under the
//! number as u64 and eight zeros: the 16 bytes of the generation's id, or 16 zeros, which say that
//! there never will be such a generation. It is stored a second time below `copies/`, as all
//! decisions are.
//!
//! # Invariants
//! - The first generation is decided by nobody; it is the newest where no other is.
//! - A ring that wins a number holds every generation before it: of all numbers between, it was
//!   decided that they never will be any, and what is decided stays so.
//! - Nothing is sealed under a generation before it is decided: whoever meets a seal that is newer
//!   than his keys finds the decision there.
//! - A slot of a generation that is not decided is removed only after it was decided that there
//!   never will be one of that number (see [`super::slots`]).
//! - A value that cannot be read still tells that its number was decided. Slots that claim the
//!   number are believed then, and if there are none, it counts as one that never was.

use onefold_crypto::{Generation, Purpose, Vault};
use onefold_format::layout;
use onefold_store::{Asked, Key, Store, foresee};
use onefold_types::environment::Randomness;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

/// The id that says that there is no such generation.
const NEVER: [u8; 16] = [0; 16];
/// The number of the generation that nobody decides.
const FIRST: u32 = 1;

/// What was decided for a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// The id of the generation.
    Is([u8; 16]),
    /// That there never will be one.
    Never,
    /// Something that cannot be read.
    Unknown,
}

/// The newest generation there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Newest {
    /// Its number.
    pub number: u32,
    /// Its id, where it was decided and can be read.
    id: Option<[u8; 16]>,
}

/// How the keys in a slot stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum KeyStatus {
    /// They are the newest there are.
    Current,
    /// They are not decided yet: a rotation goes on, or was stopped.
    Ahead,
    /// A rotation has left them behind.
    Outdated,
}

impl Newest {
    /// How keys stand whose newest generation is said to be this; `None` says the first one.
    pub fn status(&self, claimed: Option<Generation>) -> KeyStatus {
        let Some(claimed) = claimed else {
            return if self.number == FIRST { KeyStatus::Current } else { KeyStatus::Outdated };
        };
        let is_it = claimed.number == self.number && self.id.is_none_or(|id| id == claimed.id);
        match claimed.number > self.number {
            true => KeyStatus::Ahead,
            false if is_it => KeyStatus::Current,
            false => KeyStatus::Outdated,
        }
    }
}

/// Tells the generations that slots say they hold; asked only if it matters.
pub(super) type Claims<'a> = dyn Fn() -> Result<Vec<Generation>> + 'a;

/// The newest generation.
pub(super) fn newest(store: &dyn Store, claims: &Claims<'_>) -> Result<Newest> {
    for number in numbers(store)?.into_iter().rev() {
        match read(store, number)? {
            Value::Is(id) => return Ok(Newest { number, id: Some(id) }),
            Value::Unknown if is_claimed(number, claims)? => {
                return Ok(Newest { number, id: None });
            }
            Value::Unknown | Value::Never => {}
        }
    }
    Ok(Newest { number: FIRST, id: None })
}

/// A newer generation than the one of this number, if there is one.
pub(super) fn newer(store: &dyn Store, number: u32, claims: &Claims<'_>) -> Result<Option<u32>> {
    for newer in numbers(store)?.into_iter().filter(|newer| *newer > number) {
        match read(store, newer)? {
            Value::Is(_) => return Ok(Some(newer)),
            Value::Unknown if is_claimed(newer, claims)? => return Ok(Some(newer)),
            Value::Unknown | Value::Never => {}
        }
    }
    Ok(None)
}

fn is_claimed(number: u32, claims: &Claims<'_>) -> Result<bool> {
    Ok(claims()?.iter().any(|claimed| claimed.number == number))
}

/// The number of the generation after the one of this number: the first that nothing was decided
/// of. Who takes a higher one could win it beside another who wins this one.
///
/// Errors: `KeysChanged` if there is a newer generation already, which its ring would lack.
pub(super) fn next_number(store: &dyn Store, own: u32, claims: &Claims<'_>) -> Result<u32> {
    let decided = numbers(store)?;
    if let Some(newer) = newer(store, own, claims)? {
        return Err(Error::new(
            ErrorKind::KeysChanged,
            format!(
                "somebody else has rotated the keys ('{}'); start again",
                layout::generation(newer)
            ),
        ));
    }
    let mut free = (own.saturating_add(1)..u32::MAX).filter(|number| !decided.contains(number));
    free.next().ok_or_else(|| Error::new(ErrorKind::LimitExceeded, "there are no more keys"))
}

/// Decides what the generation of a number is; tells whether it is this one now.
pub(super) fn decide(
    store: &dyn Store,
    generation: Generation,
    randomness: &dyn Randomness,
) -> Result<bool> {
    decide_id(store, generation.number, generation.id, randomness).map(|id| id == generation.id)
}

/// Decides that there never will be a generation of this number, unless it is decided already.
pub(super) fn decide_never(
    store: &dyn Store,
    number: u32,
    randomness: &dyn Randomness,
) -> Result<()> {
    decide_id(store, number, NEVER, randomness).map(|_| ())
}

/// Looks at both copies of every decision; `record`: whether missing ones may be put. Notes and
/// problems are told in words.
pub(super) fn check(
    store: &dyn Store,
    record: bool,
    notes: &mut Vec<String>,
    problems: &mut Vec<String>,
) -> Result<()> {
    for number in numbers(store)? {
        let (first, second) = (layout::generation(number), copy_key(number)?);
        let copies = [store.decided(&Key::new(first.as_str())?)?, read_copy(store, number)?];
        let [is_first, is_second] =
            copies.each_ref().map(|it| it.as_ref().map(|sealed| opened(number, sealed).is_some()));
        let missing = |what: &str| format!("'{what}' was missing, and is there again");
        match (is_first, is_second, copies) {
            (Some(true), Some(true), _) => {}
            (Some(true), None, [Some(sealed), _]) if record => {
                match store.put(&second, &sealed) {
                    Ok(()) => notes.push(missing(second.as_str())),
                    // A rotation beside this was just about to put it.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                }
            }
            (None, Some(true), [_, Some(sealed)]) if record => {
                store.decide(&Key::new(first.as_str())?, &sealed)?;
                notes.push(missing(&first));
            }
            (Some(true), None, _) | (None, Some(true), _) => {
                notes.push(format!("'{first}' has one copy instead of two"));
            }
            (Some(true), ..) => problems.push(format!(
                "'{second}' is not what was written; remove it, and a check makes it anew from \
                 '{first}'"
            )),
            (_, Some(true), _) => problems.push(format!(
                "'{first}' is not what was written; remove it, and a check makes it anew from \
                 '{second}'"
            )),
            _ => problems.push(format!(
                "neither '{first}' nor '{second}' is what was written; remove both, and the next \
                 command makes them anew from the key slots"
            )),
        }
    }
    Ok(())
}

/// Numbers of which something was decided, those of which only the copy is left included.
fn numbers(store: &dyn Store) -> Result<BTreeSet<u32>> {
    let directories = [layout::GENERATIONS.to_owned(), layout::copy_of(layout::GENERATIONS)];
    let _both = foresee(store, directories.map(Asked::Names).to_vec());
    let mut numbers = BTreeSet::new();
    let mut add = |name: &str| {
        let last = layout::last_component(name);
        // A number has one spelling; another file is no generation.
        numbers.extend(last.parse().ok().filter(|n: &u32| *n > FIRST && n.to_string() == last));
        Ok(())
    };
    store.list_decided(layout::GENERATIONS, &mut add)?;
    store.list_names(&layout::copy_of(layout::GENERATIONS), &mut add)?;
    Ok(numbers)
}

fn sealed_as(number: u32) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&u64::from(number).to_le_bytes());
    name
}

fn opened(number: u32, sealed: &[u8]) -> Option<[u8; 16]> {
    let vault = Vault::new(None);
    let id = vault.open_record(Purpose::Generation, &sealed_as(number), sealed).ok()?;
    id.try_into().ok()
}

fn copy_key(number: u32) -> Result<Key> {
    Key::new(layout::copy_of(&layout::generation(number)))
}

fn read_copy(store: &dyn Store, number: u32) -> Result<Option<Vec<u8>>> {
    match store.get(&copy_key(number)?) {
        Ok(sealed) => Ok(Some(sealed)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(store: &dyn Store, number: u32) -> Result<Value> {
    let first = store.decided(&Key::new(layout::generation(number))?);
    let id = first.as_ref().ok().and_then(|sealed| opened(number, sealed.as_deref()?));
    let id = match id {
        Some(id) => Some(id),
        None => read_copy(store, number)?.and_then(|sealed| opened(number, &sealed)),
    };
    match (id, first) {
        (Some(NEVER), _) => Ok(Value::Never),
        (Some(id), _) => Ok(Value::Is(id)),
        (None, Ok(_)) => Ok(Value::Unknown),
        (None, Err(error)) if error.kind() == ErrorKind::Damaged => Ok(Value::Unknown),
        (None, Err(error)) => Err(error),
    }
}

/// Decides a number; returns the id that won.
fn decide_id(
    store: &dyn Store,
    number: u32,
    id: [u8; 16],
    randomness: &dyn Randomness,
) -> Result<[u8; 16]> {
    let vault = Vault::new(None);
    let own = vault.seal_record(Purpose::Generation, &sealed_as(number), &id, randomness)?;
    // A first copy that is gone must not be decided anew with another value.
    let earlier = read_copy(store, number)?.filter(|sealed| opened(number, sealed).is_some());
    let key = Key::new(layout::generation(number))?;
    let won = store.decide(&key, earlier.as_deref().unwrap_or(&own))?;
    let id = opened(number, &won)
        .or_else(|| earlier.as_deref().and_then(|sealed| opened(number, sealed)))
        .ok_or_else(|| {
            Error::damaged(format!(
                "'{key}' is not what was written; remove it and its copy below 'copies', and try \
                 again"
            ))
        })?;
    // The decision stands whether or not its copy can be put: see [`has_copy`].
    let _ = store.put(&copy_key(number)?, &won);
    Ok(id)
}

/// Fails unless the second copy of a decision is there.
pub(super) fn has_copy(store: &dyn Store, number: u32) -> Result<()> {
    store.size(&copy_key(number)?).map(|_| ())
}
