//! Key slots in a store: two copies of each, opened by a password or a key file, removed without a
//! lock.
//!
//! # Reading
//! A copy that has rotten is told by its checksum, and the other one is read. A slot is damaged if
//! both are; it is tried all the same if nothing else opens, for only its checksum may have rotten.
//!
//! Slots that hold the newest generation of keys ([`super::generations`]) are tried first. One that
//! is *ahead* of it is what a rotation has stored that was stopped before it decided: if nothing
//! else opens, the decision is made up for. One that is *outdated* opens nothing: whoever worked
//! with it could not read what others write.
//!
//! A password is tried on slots of passwords, and a key file on those of key files: slots of the
//! other kind, which somebody may have planted, cost no work.
//!
//! # Removing
//! Two removals at once must not take away each other's last key. A removal
//! 1. decides, if the slot is ahead, that there never will be its generation;
//! 2. puts an intent, `keys/<id>.removed.<fresh id>`;
//! 3. lists the intents, then the slots. Those of other keys that no intent speaks of stay;
//! 4. if none of these can be read and is current, withdraws its intent, changes nothing and says
//!    why;
//! 5. else deletes the slot, then its copy, then, when that is durable, all intents about it.
//!
//! # Why no key is lost
//! An intent is there until its slot is gone, or its own removal has withdrawn. Say that removal R
//! went on because key k stays, and that removal Q went on to delete k. Then R saw no intent of Q:
//! as R saw the slot later than it looked for intents, Q had not put its own yet. So Q listed after
//! R had begun to. Of all removals that went on, take the one that listed last: nobody went on to
//! delete the key it relies on. This holds for lists that are read name by name, and it needs fresh
//! names: a removal that took another's intent for its own could withdraw what that one relies on.
//!
//! This holds among the slots of one generation. A newer one becomes current by a decision that
//! needs its slot, and until then nobody deletes that slot: by the first step, the decision would
//! be lost. After it the slot is one that is current, of which the same holds.
//!
//! # Concurrency
//! Any number of removals, changes and readers at once. A slot with an intent still opens the
//! store; the intent of a removal that was stopped stays, and removing the key again finishes it.

use super::generations::{self, KeyStatus, Newest};
use crate::environment::Environment;
use onefold_crypto::{Generation, KDF_WORK_MAX_KIB, KdfCost, KeyRing, KeySlot, Secret, SecretKind};
use onefold_format::layout;
use onefold_store::{Asked, Key, Store, foresee};
use onefold_types::{Error, ErrorKind, KeyId, Result, StoreId, words};
use std::collections::{BTreeMap, BTreeSet};

/// Times that slots are looked for because others have removed some meanwhile.
const LOOKS_MAX: usize = 4;
/// Kibibytes times passes that all slots of a store are tried with: sixteen of the dearest keys
/// that are offered, or some hundreds of the usual ones.
const WORK_MAX_KIB: u64 = 16 * KDF_WORK_MAX_KIB;

/// What lies in `keys`.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Slots of which at least one copy is left.
    pub slots: BTreeSet<KeyId>,
    /// Intents to remove a key, whether or not it still has a slot.
    pub removals: BTreeMap<KeyId, Vec<Key>>,
}

/// Lists slots and intents.
pub(super) fn list(store: &dyn Store) -> Result<Listed> {
    let mut listed = Listed::default();
    store.list_names(layout::KEYS, &mut |name| {
        let last = layout::last_component(name);
        let (id, rest) = last.split_once('.').unwrap_or((last, ""));
        let Ok(id) = id.parse::<KeyId>() else { return Ok(()) };
        match rest.strip_prefix("removed.") {
            Some(_) => listed.removals.entry(id).or_default().push(Key::new(name)?),
            None if matches!(rest, "" | "copy") => drop(listed.slots.insert(id)),
            None => {}
        }
        Ok(())
    })?;
    Ok(listed)
}

/// Stores a new slot, twice.
pub(super) fn put(store: &dyn Store, slot: &KeySlot, environment: &Environment) -> Result<KeyId> {
    words::refuse_long_label(&slot.label)?;
    let id = KeyId::random(&*environment.randomness);
    let bytes = slot.to_bytes()?;
    store.put_fresh(&Key::new(layout::key_slot_copy(id))?, &bytes)?;
    store.put_fresh(&Key::new(layout::key_slot(id))?, &bytes).inspect_err(|_| undo(store, id))?;
    Ok(id)
}

/// Removes a slot that nobody can have opened the store with yet, as far as that is possible.
pub(super) fn undo(store: &dyn Store, id: KeyId) {
    for name in [layout::key_slot(id), layout::key_slot_copy(id)] {
        let _ = Key::new(name).and_then(|key| store.delete(&key));
    }
}

/// The bytes of both copies of a slot.
fn copies(store: &dyn Store, id: KeyId) -> Vec<Result<Vec<u8>>> {
    [layout::key_slot(id), layout::key_slot_copy(id)]
        .into_iter()
        .map(|name| store.get(&Key::new(name)?))
        .collect()
}

/// The copies that are sound, each once; an error if there is none.
fn read_sound(store: &dyn Store, id: KeyId) -> Result<Vec<KeySlot>> {
    let (mut sound, mut errors) = (Vec::<KeySlot>::new(), Vec::new());
    for bytes in copies(store, id) {
        match bytes.and_then(|bytes| KeySlot::from_bytes(&bytes)) {
            Ok(slot) if sound.iter().any(|known| known.wraps_like(&slot)) => {}
            Ok(slot) => sound.push(slot),
            Err(error) => errors.push(error),
        }
    }
    if !sound.is_empty() {
        return Ok(sound);
    }
    let is_missing = errors.iter().any(|error| error.kind() == ErrorKind::NotFound);
    let Some(worst) = errors.into_iter().max_by_key(severity) else {
        return Ok(sound);
    };
    Err(match worst.kind() {
        ErrorKind::Damaged if is_missing => {
            worst.context(format!("key {id} is damaged and has no second copy"))
        }
        ErrorKind::Damaged => worst.context(format!("key {id} is damaged (its copy too)")),
        _ => worst.context(format!("key {id}")),
    })
}

/// Which of two errors about one slot says more: a device that fails may hold a sound slot, a newer
/// copy is one, and that a copy is missing is said beside.
fn severity(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::NotFound => 0,
        ErrorKind::Damaged => 1,
        ErrorKind::NewerFormat => 2,
        _ => 3,
    }
}

/// Reads a slot, from whichever copy is sound.
pub(super) fn read(store: &dyn Store, id: KeyId) -> Result<KeySlot> {
    let mut sound = read_sound(store, id)?.into_iter();
    sound.next().ok_or_else(|| Error::damaged(format!("key {id} cannot be read")))
}

/// The newest generation of keys, and the slots that were asked about with how they stand; those
/// that cannot be read are left out.
pub(super) fn statuses(
    store: &dyn Store,
    ids: impl IntoIterator<Item = KeyId>,
) -> Result<(Newest, BTreeMap<KeyId, KeyStatus>)> {
    let claim = |id| Some((id, read(store, id).and_then(|slot| slot.claimed()).ok()?));
    let claims: Vec<(KeyId, Option<Generation>)> = ids.into_iter().filter_map(claim).collect();
    // Only now: what a slot is worth is told by what is decided after it was seen.
    let newest = generations::newest(store, &|| claimed(store))?;
    let statuses = claims.into_iter().map(|(id, claimed)| (id, newest.status(claimed)));
    Ok((newest, statuses.collect()))
}

/// The generations that slots say they hold.
pub(super) fn claimed(store: &dyn Store) -> Result<Vec<Generation>> {
    let claim = |id: &KeyId| read(store, *id).and_then(|slot| slot.claimed()).ok().flatten();
    Ok(list(store)?.slots.iter().filter_map(claim).collect())
}

/// Opens the ring of keys with the first slot that the secret fits.
pub(super) fn unlock(
    store: &dyn Store,
    secret: Secret<'_>,
    store_id: StoreId,
    memory_bytes: usize,
    environment: &Environment,
) -> Result<(KeyRing, KeyId)> {
    let mut read = read_all(store)?;
    for sound in read.iter_mut().filter_map(|(_, sound)| sound.as_mut().ok()) {
        sound.retain(|slot| slot.takes(secret.kind()));
    }
    let all = read.len();
    read.retain(|(_, sound)| !sound.as_ref().is_ok_and(Vec::is_empty));
    let others = all - read.len();
    let newest = generations::newest(store, &|| claimed(store))?;
    let status = |sound: &[KeySlot]| {
        let of = |slot: &KeySlot| slot.claimed().map(|claimed| newest.status(claimed));
        sound.iter().filter_map(|slot| of(slot).ok()).min().unwrap_or(KeyStatus::Current)
    };
    // Cheap ones first: what somebody has planted costs nothing where the password is right.
    read.sort_by_key(|(id, sound)| {
        let known = sound.as_ref().map(|sound| (status(sound), work_of(sound)));
        (known.unwrap_or((KeyStatus::Current, 0)), *id)
    });
    let (mut refused, mut problems, mut work) = (0, Vec::new(), 0u64);
    for (id, sound) in read {
        let opened = sound.and_then(|sound| {
            // What takes too much memory is not tried, so it is no work either.
            let is_tried = sound.iter().any(|slot| fits(slot, memory_bytes));
            work = work.saturating_add(if is_tried { work_of(&sound) } else { 0 });
            match work > WORK_MAX_KIB {
                true => Err(too_much_work(id)),
                false => open_any(&sound, secret, store_id, memory_bytes),
            }
        });
        match opened.and_then(|ring| made_current(store, ring, id, &newest, environment)) {
            Ok(ring) => return Ok((ring, id)),
            Err(error) if error.kind() == ErrorKind::WrongPassword => refused += 1,
            Err(error) => problems.push((id, error)),
        }
    }
    for (id, _) in problems.iter().filter(|(_, error)| error.kind() == ErrorKind::Damaged) {
        let salvaged = copies(store, *id).into_iter().flatten();
        let salvaged: Vec<KeySlot> =
            salvaged.filter_map(|bytes| KeySlot::salvage(&bytes).ok()).collect();
        let opened = open_any(&salvaged, secret, store_id, memory_bytes);
        if let Ok(ring) =
            opened.and_then(|ring| made_current(store, ring, *id, &newest, environment))
        {
            return Ok((ring, *id));
        }
    }
    let tried = Tried { kind: secret.kind(), refused, others };
    Err(cannot_open(store, &tried, problems))
}

/// Reads all slots. If others remove some meanwhile, as a rotation does, it looks again: what they
/// have put before that is there then.
fn read_all(store: &dyn Store) -> Result<Vec<(KeyId, Result<Vec<KeySlot>>)>> {
    let mut looks = 0;
    loop {
        looks += 1;
        let ids = list(store)?.slots;
        let names = ids.iter().flat_map(|id| [layout::key_slot(*id), layout::key_slot_copy(*id)]);
        let asked = names.filter_map(|name| Key::new(name).ok()).map(Asked::Object);
        let _all = foresee(store, asked.collect());
        let read: Vec<(KeyId, Result<Vec<KeySlot>>)> =
            ids.iter().map(|id| (*id, read_sound(store, *id))).collect();
        let is_gone = |sound: &Result<Vec<KeySlot>>| {
            sound.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        if looks == LOOKS_MAX || !read.iter().any(|(_, sound)| is_gone(sound)) {
            return Ok(read);
        }
    }
}

/// A ring that was opened, if it holds the newest generation, or is to. A rotation that was stopped
/// before it had decided is finished so.
fn made_current(
    store: &dyn Store,
    ring: KeyRing,
    id: KeyId,
    newest: &Newest,
    environment: &Environment,
) -> Result<KeyRing> {
    let own = ring.newest();
    let status = newest.status(Some(own));
    let is_current = match status {
        KeyStatus::Current => true,
        KeyStatus::Outdated => false,
        KeyStatus::Ahead => match generations::decide(store, own, &*environment.randomness) {
            Ok(is_it) => is_it,
            // Where nothing can be written nothing is sealed either.
            Err(error) if error.forbids_writing() => true,
            Err(error) => return Err(error),
        },
    };
    match is_current {
        true => Ok(ring),
        false => Err(Error::new(
            ErrorKind::KeysChanged,
            format!(
                "what was given opens key {id}, which a rotation of the keys has left behind: open \
                 the store with the password or key file that was used for 'onefold key rotate', \
                 and add this one anew with 'onefold key add'. If nobody rotated the keys, \
                 somebody has put '{0}' there: remove that and 'copies/{0}'",
                // What is ahead was decided to be something else just now, or never to be.
                layout::generation(match status {
                    KeyStatus::Ahead => own.number,
                    KeyStatus::Current | KeyStatus::Outdated => newest.number,
                })
            ),
        )),
    }
}

/// Kibibytes times passes that trying these slots takes.
fn work_of(slots: &[KeySlot]) -> u64 {
    let work = |slot: &KeySlot| u64::from(slot.cost().memory_kib) * u64::from(slot.cost().passes);
    slots.iter().map(work).fold(0, u64::saturating_add)
}

fn too_much_work(id: KeyId) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        format!(
            "key {id} was not tried: all keys together ask for more work than any store needs; \
             somebody may have planted some. Remove their files from 'keys'"
        ),
    )
}

/// Whether a slot takes no more memory than allowed, or than a new one.
fn fits(slot: &KeySlot, memory_bytes: usize) -> bool {
    let allowed_kib = (memory_bytes as u64 / 1024).max(u64::from(KdfCost::default().memory_kib));
    u64::from(slot.cost().memory_kib) <= allowed_kib
}

/// Tries slots, in no more memory than allowed, or than a new slot takes.
pub(super) fn open_any(
    slots: &[KeySlot],
    secret: Secret<'_>,
    store_id: StoreId,
    memory_bytes: usize,
) -> Result<KeyRing> {
    let mut result = Err(Error::damaged("the key slot cannot be read"));
    for slot in slots {
        if !fits(slot, memory_bytes) {
            result = Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "a key takes {} MiB of memory to be tried; raise the limit with --memory",
                    slot.cost().memory_kib.div_ceil(1024)
                ),
            ));
            continue;
        }
        result = slot.open(secret, store_id);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// What came of trying all slots.
struct Tried {
    /// What was tried.
    kind: SecretKind,
    /// Slots that it does not open.
    refused: usize,
    /// Slots of the other kind, which were not tried.
    others: usize,
}

impl Tried {
    /// What was given, and that it is not right.
    fn wrong(&self) -> &'static str {
        match self.kind {
            SecretKind::Password => "wrong password",
            SecretKind::KeyFile => "wrong key file",
        }
    }

    /// How the keys are opened that were not tried.
    fn of_others(&self) -> String {
        match (self.others, self.kind) {
            (0, _) => String::new(),
            (others, SecretKind::Password) => {
                format!("; {others} more are opened by key files (--key-file)")
            }
            (others, SecretKind::KeyFile) => format!("; {others} more are opened by passwords"),
        }
    }
}

fn cannot_open(store: &dyn Store, tried: &Tried, mut problems: Vec<(KeyId, Error)>) -> Error {
    // What was given may well be right.
    if let Some(at) = problems.iter().position(|(_, error)| error.kind() == ErrorKind::Exhausted) {
        return problems.swap_remove(at).1;
    }
    if tried.refused == 0 && tried.others == 0 && problems.is_empty() {
        let description = store.describe();
        return Error::damaged(format!(
            "{description}: all key slots are missing, and without one nobody can open the store: \
             put its directory 'keys' back from a copy of the store"
        ));
    }
    let (left_behind, problems): (Vec<Error>, Vec<Error>) = problems
        .into_iter()
        .map(|(_, error)| error)
        .partition(|error| error.kind() == ErrorKind::KeysChanged);
    if let Some(left_behind) = left_behind.into_iter().next() {
        // It is right, and there is no other way in for it.
        return left_behind.with_kind(ErrorKind::WrongPassword);
    }
    let texts: Vec<String> = problems.iter().map(Error::to_string).collect();
    let advice = "copy the files of 'keys' from a copy of the store, or open it with another \
                  password or key file, and remove and add the key";
    let worst = problems.iter().max_by_key(|error| severity(error)).map(Error::kind);
    let (wrong, refused, others) = (tried.wrong(), tried.refused, tried.of_others());
    match (refused + tried.others, worst) {
        (_, None) => Error::new(
            ErrorKind::WrongPassword,
            format!("{wrong}: it opens none of the store's {refused} key(s) of its kind{others}"),
        ),
        (0, Some(ErrorKind::Damaged)) => Error::damaged(format!("{}; {advice}", texts.join("; "))),
        (0, Some(kind)) => Error::new(kind, texts.join("; ")),
        (_, Some(_)) => Error::new(
            ErrorKind::WrongPassword,
            format!(
                "{wrong}: it opens none of the {refused} key(s) of its kind that can be \
                 read{others}; it may belong to one that cannot: {}; {advice}",
                texts.join("; ")
            ),
        ),
    }
}

/// Removes a slot, unless no other would be left (see the module).
pub(super) fn remove(store: &dyn Store, id: KeyId, environment: &Environment) -> Result<()> {
    let there = list(store)?;
    if !there.slots.contains(&id) && !there.removals.contains_key(&id) {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no key {id}")));
    }
    if there.slots.contains(&id) && there.slots.len() == 1 {
        return Err(Error::invalid("the last key cannot be removed: the store would be lost"));
    }
    let (newest, _) = statuses(store, [])?;
    if let Ok(Some(claimed)) = read(store, id).and_then(|slot| slot.claimed())
        && newest.status(Some(claimed)) == KeyStatus::Ahead
    {
        generations::decide_never(store, claimed.number, &*environment.randomness)?;
    }
    let removal = KeyId::random(&*environment.randomness);
    let intent = Key::new(layout::key_removal(id, removal))?;
    store.put_fresh(&intent, &[])?;
    let removals = match may_go(store, id) {
        Ok(removals) => removals,
        Err(error) => {
            store.delete(&intent)?;
            return Err(error);
        }
    };
    store.delete(&Key::new(layout::key_slot(id))?)?;
    store.delete(&Key::new(layout::key_slot_copy(id))?)?;
    // A slot that comes back after a power loss would open the store with what was removed.
    store.settle(layout::KEYS)?;
    store.delete(&intent)?;
    removals.iter().try_for_each(|intent| store.delete(intent))
}

/// Whether a key with an intent may go; returns the intents that are of no use once it is gone,
/// those about keys that are gone already included.
fn may_go(store: &dyn Store, id: KeyId) -> Result<Vec<Key>> {
    let removals = list(store)?.removals;
    let slots = list(store)?.slots;
    let (staying, going): (Vec<KeyId>, Vec<KeyId>) =
        slots.iter().filter(|other| **other != id).partition(|other| !removals.contains_key(other));
    let (_, statuses) = statuses(store, staying.iter().copied())?;
    if statuses.values().any(|status| *status == KeyStatus::Current) {
        let done = removals.into_iter().filter(|(key, _)| *key == id || !slots.contains(key));
        return Ok(done.flat_map(|(_, intents)| intents).collect());
    }
    let names = |ids: &[KeyId]| ids.iter().map(KeyId::to_string).collect::<Vec<_>>().join(", ");
    Err(Error::invalid(match going.is_empty() {
        true => format!(
            "key {id} cannot be removed: no other can be read and holds the newest keys ({}), and \
             the store would be lost; run 'onefold key add' first",
            names(&staying)
        ),
        false => format!(
            "key {id} was not removed: another removal is going on, or was stopped, of {}, and no \
             key would be left. Try again; if nobody is at it, finish that one first ('onefold key \
             remove'), or run 'onefold key add'",
            names(&going)
        ),
    }))
}
