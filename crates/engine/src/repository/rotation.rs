//! Rotation of the keys: from then on everything new is sealed under a fresh secret.
//!
//! # Steps
//! 1. A ring with one generation more is wrapped by the present password or key file in a new slot,
//!    which is stored twice and read back.
//! 2. It is decided that this is the generation of that number ([`super::generations`]). If
//!    somebody else's was, the slot is removed and nothing has changed.
//! 3. All slots that do not hold it are removed: they open nothing any more.
//!
//! # Crashes
//! Before the second step the store opens as before; the slot that is left over holds what nothing
//! was sealed under. After it the store opens with the present password, and the slots left over
//! are told from the others by what they claim. The next rotation removes them either way, and so
//! does `key remove`.
//!
//! # Concurrency
//! Any number of rotations, of changes of passwords and of everything else at once. Of rotations
//! from the same keys one wins. Who opened the store before keeps sealing under the older
//! generation, which everybody who comes later opens.

use super::generations::{self, KeyStatus};
use super::{Repository, not_encrypted, slots};
use onefold_crypto::{KeyRing, KeySlot, Secret};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{Error, ErrorKind, KeyId, Result};
use std::collections::BTreeSet;

/// What a rotation did.
#[derive(Debug)]
pub struct Rotation {
    /// The slot that holds the new keys.
    pub key: KeyId,
    /// How many generations of keys there are now.
    pub generations: usize,
    /// The slots that were removed.
    pub removed: Vec<KeyId>,
    /// Slots that should have been removed, and why they were not.
    pub left: Vec<(KeyId, Error)>,
}

impl Repository {
    /// Seals everything that is new under fresh keys from now on. `secret` opens the key in use;
    /// all others are lost with the slots that cannot learn the new keys, and are added anew.
    ///
    /// Errors: `Invalid` if there are others and `remove_others` is not given; `KeysChanged` if
    /// somebody else has rotated the keys since this store was opened. Nothing has changed then.
    pub fn rotate_keys<'a>(
        &self,
        secret: impl Into<Secret<'a>>,
        remove_others: bool,
    ) -> Result<Rotation> {
        // Slots are only ever removed by others who rotate, or change passwords, at the same time.
        self.rotate(secret.into(), remove_others).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(
                ErrorKind::KeysChanged,
                format!(
                    "the keys were not rotated: somebody else has rotated or removed keys at the \
                     same time ({error}); look with 'onefold key list', and try again"
                ),
            ),
            _ => error,
        })
    }

    fn rotate(&self, secret: Secret<'_>, remove_others: bool) -> Result<Rotation> {
        let ring = self.ring.as_ref().ok_or_else(not_encrypted)?;
        let current = self.current_key.ok_or_else(not_encrypted)?;
        let store = self.store();
        self.vault.refuse_if_stale()?;
        let in_use = slots::read(store, current)?;
        let seen = slots::list(store)?.slots;
        if !remove_others {
            self.refuse_to_lock_out(secret, current, &seen)?;
        }
        let environment = &self.environment;
        let number =
            generations::next_number(store, ring.newest().number, &|| slots::claimed(store))?;
        let rotated = ring.rotated(number, environment.clock.now_ns(), &*environment.randomness)?;
        let (cost, randomness) = (in_use.cost(), &*environment.randomness);
        let mut slot = KeySlot::create(&rotated, secret, self.store_id, cost, randomness)?;
        slot.label.clone_from(&in_use.label);
        slot.created_ns = environment.clock.now_ns();
        let key = slots::put(store, &slot, environment)?;
        let decided = self.reads_back(key, &slot, &rotated, secret).and_then(|()| {
            let added = slots::list(store)?
                .slots
                .into_iter()
                .find(|id| *id != key && !seen.contains(id) && !remove_others);
            if let Some(added) = added {
                return Err(Error::invalid(format!(
                    "the keys were not rotated: key {added} has been added meanwhile; try again"
                )));
            }
            match generations::decide(store, rotated.newest(), randomness)? {
                true => Ok(()),
                false => Err(Error::new(
                    ErrorKind::KeysChanged,
                    "the keys were not rotated: somebody else has changed them at the same time; \
                     look with 'onefold key list', and try again",
                )),
            }
        });
        if let Err(error) = decided {
            // One that stays holds what nothing is sealed under.
            let _ = slots::remove(store, key, environment);
            return Err(error);
        }
        if let Err(error) = generations::has_copy(store, number) {
            self.note_uncopied(&layout::generation(number), &error);
        }
        let (mut removed, mut left) = (Vec::new(), Vec::new());
        for id in self.without_newest()? {
            match slots::remove(store, id, environment) {
                Ok(()) => removed.push(id),
                // Another removal was faster.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => left.push((id, error)),
            }
        }
        Ok(Rotation { key, generations: rotated.count(), removed, left })
    }

    /// Fails if there are slots that the secret does not open: whoever has theirs would have no way
    /// in any more.
    fn refuse_to_lock_out(
        &self,
        secret: Secret<'_>,
        current: KeyId,
        ids: &BTreeSet<KeyId>,
    ) -> Result<()> {
        let store = self.store();
        let (_, statuses) = slots::statuses(store, ids.iter().copied())?;
        let mut others = Vec::new();
        for id in ids.iter().copied().filter(|id| *id != current) {
            // Nobody opens anything with it as it is.
            if statuses.get(&id) == Some(&KeyStatus::Outdated) {
                continue;
            }
            let slot = slots::read(store, id);
            let opens = |slot: &KeySlot| {
                let (slots, memory_bytes) = (std::slice::from_ref(slot), self.memory.limit_bytes);
                slots::open_any(slots, secret, self.store_id, memory_bytes).is_ok()
            };
            if slot.as_ref().is_ok_and(opens) {
                continue;
            }
            let label = slot.map_or_else(|_| "cannot be read".to_owned(), |slot| slot.label);
            others.push(format!("{} ({label})", id.short()));
        }
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "the store has other keys, which cannot learn the new secret without their \
                 passwords or key files: {}. Give --remove-others to remove them, and add each \
                 anew with 'onefold key add' afterwards",
                others.join(", ")
            ))),
        }
    }

    /// Fails unless both copies of a new slot are what was written, and open.
    fn reads_back(
        &self,
        id: KeyId,
        slot: &KeySlot,
        ring: &KeyRing,
        secret: Secret<'_>,
    ) -> Result<()> {
        let written = slot.to_bytes()?;
        for name in [layout::key_slot(id), layout::key_slot_copy(id)] {
            if self.store().get(&Key::new(name)?)? != written {
                return Err(Error::damaged(format!(
                    "the store acknowledged the new key {id} but holds other bytes; the keys were \
                     not rotated, and this device is not to be trusted"
                )));
            }
        }
        let opened = KeySlot::from_bytes(&written)?.open(secret, self.store_id)?;
        match opened.to_bytes() == ring.to_bytes() {
            true => Ok(()),
            false => Err(Error::damaged(
                "the new key opens otherwise than it was made (faulty memory?); the keys were not \
                 rotated",
            )),
        }
    }

    /// The slots that do not hold the newest keys.
    fn without_newest(&self) -> Result<Vec<KeyId>> {
        let ids = slots::list(self.store())?.slots;
        let (_, statuses) = slots::statuses(self.store(), ids.iter().copied())?;
        let is_current = |id: &KeyId| statuses.get(id) == Some(&KeyStatus::Current);
        Ok(ids.into_iter().filter(|id| !is_current(id)).collect())
    }
}
