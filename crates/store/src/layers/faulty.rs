//! Makes a store fail, lie or fill up, as scripted or from a seed.
//!
//! For every call the script sees the [`Call`] and names the [`Fault`]. Calls are numbered from
//! zero in the order they begin, so with one thread a run replays exactly.
//!
//! A full device refuses puts and decisions once their bytes exceed the room given; deleting gives
//! the room of the object back (R28).

use super::Operation;
use crate::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::environment::SeededRandomness;
use onefold_types::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One call, as the script sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// How many calls began earlier.
    pub number: u64,
    /// The operation.
    pub operation: Operation,
    /// The key, or the prefix of a listing.
    pub name: &'a str,
    /// Bytes to be written, or wanted.
    pub size_bytes: u64,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// Fails with this kind and does nothing.
    Before(ErrorKind),
    /// Does its work, then fails with this kind: the acknowledgement is lost.
    After(ErrorKind),
    /// A put stores only the first bytes and is acknowledged; a read is cut short where it can be.
    Truncate(usize),
    /// A put is acknowledged but stores nothing.
    Lose,
    /// One bit of what is written by a put or returned by a read is flipped; the number is taken
    /// modulo the number of bits.
    Flip(u64),
}

type Script = Box<dyn Fn(&Call<'_>) -> Fault + Send + Sync>;

/// A store that fails as told.
pub struct Faulty<S> {
    store: S,
    script: Script,
    calls: AtomicU64,
    armed: AtomicBool,
    /// Bytes that still fit, if the device is bounded.
    room_bytes: Option<Mutex<u64>>,
    /// Whether it does not tell how much that is.
    hides_room: bool,
}

impl<S: Store> Faulty<S> {
    /// Faults as `script` says.
    pub fn scripted(store: S, script: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static) -> Self {
        let armed = AtomicBool::new(true);
        let script = Box::new(script);
        Self { store, script, calls: AtomicU64::new(0), armed, room_bytes: None, hides_room: false }
    }

    /// Fails about `per_thousand` of the calls with one of `kinds`, before or after the work.
    pub fn seeded(store: S, seed: u64, per_thousand: u64, kinds: &'static [ErrorKind]) -> Self {
        let randomness = SeededRandomness::new(seed);
        Self::scripted(store, move |_| {
            let (hit, choice) = (randomness.below(1000) < per_thousand, randomness.next_u64());
            let kind = kinds.get(usize::try_from(choice >> 1).unwrap_or(0) % kinds.len().max(1));
            match kind {
                Some(kind) if hit && choice & 1 == 0 => Fault::Before(*kind),
                Some(kind) if hit => Fault::After(*kind),
                _ => Fault::None,
            }
        })
    }

    /// A device with room for `room_bytes` more.
    pub fn full_after(store: S, room_bytes: u64) -> Self {
        let mut faulty = Self::scripted(store, |_| Fault::None);
        faulty.room_bytes = Some(Mutex::new(room_bytes));
        faulty
    }

    /// The same device, which does not tell how much room is left.
    pub fn hiding_room(self) -> Self {
        Self { hides_room: true, ..self }
    }

    /// Calls begun so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Turns the script on or off; calls are counted all the same. A full device stays full.
    pub fn arm(&self, armed: bool) {
        self.armed.store(armed, Ordering::SeqCst);
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn fault(&self, operation: Operation, name: &str, size_bytes: u64) -> Fault {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        if !self.armed.load(Ordering::SeqCst) {
            return Fault::None;
        }
        (self.script)(&Call { number, operation, name, size_bytes })
    }

    /// Runs `work` under the fault; `Flip` and `Truncate` are for the caller.
    fn run<T>(&self, fault: Fault, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let injected = |kind, when| Error::new(kind, format!("injected {when} '{name}'"));
        match fault {
            Fault::Before(kind) => Err(injected(kind, "before")),
            Fault::After(kind) => work().and(Err(injected(kind, "after"))),
            _ => work(),
        }
    }

    /// Takes room for an object, and gives it back if nothing was stored.
    fn in_room<T>(&self, key: &Key, size: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(room) = &self.room_bytes else {
            return work();
        };
        let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
        let existed = self.store.size(key).is_ok();
        if !existed && *room < size as u64 {
            let message = format!("storing '{key}': no room is left on the modelled device");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        let result = work();
        if !existed && let Ok(stored) = self.store.size(key) {
            *room = room.saturating_sub(stored);
        }
        result
    }

    fn listing(
        &self,
        operation: Operation,
        prefix: &str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.run(self.fault(operation, prefix, 0), prefix, work)
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    let Some(index) = (bit / 8).checked_rem(bytes.len() as u64) else {
        return;
    };
    if let Some(byte) = usize::try_from(index).ok().and_then(|index| bytes.get_mut(index)) {
        *byte ^= 1 << (bit % 8);
    }
}

/// What a read gives or a put stores under the fault.
fn tamper(fault: Fault, bytes: &mut Vec<u8>) {
    match fault {
        Fault::Truncate(keep_bytes) => bytes.truncate(keep_bytes),
        Fault::Flip(bit) => flip(bytes, bit),
        _ => {}
    }
}

impl<S: Store> Blobs for Faulty<S> {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let fault = self.fault(Operation::Put, key.as_str(), bytes.len() as u64);
        self.run(fault, key.as_str(), || match fault {
            Fault::Lose => Ok(()),
            Fault::Truncate(_) | Fault::Flip(_) => {
                let mut stored = bytes.to_vec();
                tamper(fault, &mut stored);
                self.in_room(key, stored.len(), || self.store.put(key, &stored))
            }
            _ => self.in_room(key, bytes.len(), || self.store.put(key, bytes)),
        })
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        let fault = self.fault(Operation::Get, key.as_str(), 0);
        let mut bytes = self.run(fault, key.as_str(), || self.store.get(key))?;
        tamper(fault, &mut bytes);
        Ok(bytes)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let fault = self.fault(Operation::GetRange, key.as_str(), buffer.len() as u64);
        self.run(fault, key.as_str(), || self.store.get_range(key, offset, buffer))?;
        match fault {
            Fault::Flip(bit) => flip(buffer, bit),
            Fault::Truncate(keep) if keep < buffer.len() => {
                return Err(Error::damaged(format!("injected: '{key}' ends early")));
            }
            _ => {}
        }
        Ok(())
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let fault = self.fault(Operation::GetTail, key.as_str(), length_bytes as u64);
        let (size, mut tail) =
            self.run(fault, key.as_str(), || self.store.get_tail(key, length_bytes))?;
        tamper(fault, &mut tail);
        Ok((size, tail))
    }

    fn size(&self, key: &Key) -> Result<u64> {
        let fault = self.fault(Operation::Size, key.as_str(), 0);
        self.run(fault, key.as_str(), || self.store.size(key))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.listing(Operation::List, prefix, || self.store.list(prefix, each))
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.listing(Operation::ListNames, prefix, || self.store.list_names(prefix, each))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        let fault = self.fault(Operation::Delete, key.as_str(), 0);
        self.run(fault, key.as_str(), || {
            if fault == Fault::Lose {
                return Ok(());
            }
            let Some(room) = &self.room_bytes else {
                return self.store.delete(key);
            };
            let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
            let size = self.store.size(key).unwrap_or(0);
            self.store.delete(key)?;
            *room = room.saturating_add(size);
            Ok(())
        })
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.listing(Operation::Settle, prefix, || self.store.settle(prefix))
    }

    crate::pass_hints_on!(this => this.store);

    fn free_bytes(&self) -> Result<Option<u64>> {
        match &self.room_bytes {
            Some(_) if self.hides_room => Ok(None),
            Some(room) => Ok(Some(*room.lock().unwrap_or_else(PoisonError::into_inner))),
            None => self.store.free_bytes(),
        }
    }
}

impl<S: Store> Decisions for Faulty<S> {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let fault = self.fault(Operation::Decide, key.as_str(), value.len() as u64);
        self.run(fault, key.as_str(), || {
            self.in_room(key, value.len(), || self.store.decide(key, value))
        })
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let fault = self.fault(Operation::Decided, key.as_str(), 0);
        let mut value = self.run(fault, key.as_str(), || self.store.decided(key))?;
        if let Some(value) = &mut value {
            tamper(fault, value);
        }
        Ok(value)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.listing(Operation::ListDecided, prefix, || self.store.list_decided(prefix, each))
    }
}

impl<S: Store> Store for Faulty<S> {
    fn describe(&self) -> String {
        format!("{}, faulty", self.store.describe())
    }

    crate::pass_identity_on!(this => this.store);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, conformance};

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    /// The fault given hits puts; reads are sound.
    fn on_put(fault: Fault) -> Faulty<MemoryStore> {
        Faulty::scripted(MemoryStore::new(), move |call| {
            if call.operation == Operation::Put { fault } else { Fault::None }
        })
    }

    #[test]
    fn conforms_while_nothing_fails() {
        let none = || Faulty::scripted(MemoryStore::new(), |_| Fault::None);
        conformance::run(&|| Box::new(none())).unwrap();
        conformance::run(&|| Box::new(Faulty::full_after(MemoryStore::new(), 1 << 30))).unwrap();
    }

    #[test]
    fn the_suite_finds_every_lie() {
        let lies: [fn(&Call<'_>) -> Fault; 5] = [
            |call| {
                if call.size_bytes == 4097 { Fault::Truncate(4096) } else { Fault::None }
            },
            |call| {
                if call.operation == Operation::Get { Fault::Flip(9) } else { Fault::None }
            },
            |call| {
                if call.operation == Operation::Delete { Fault::Lose } else { Fault::None }
            },
            |call| {
                if call.operation == Operation::Decided { Fault::Flip(0) } else { Fault::None }
            },
            |call| {
                if call.size_bytes == 7 { Fault::Lose } else { Fault::None }
            },
        ];
        for lie in lies {
            let made = || -> Box<dyn Store> { Box::new(Faulty::scripted(MemoryStore::new(), lie)) };
            conformance::run(&made).unwrap_err();
        }
    }

    #[test]
    fn r35_a_lying_put_is_acknowledged_and_its_object_is_not_what_was_given() {
        for (fault, left) in [
            (Fault::Truncate(2), Some(b"he".to_vec())),
            (Fault::Flip(8), Some(b"hdllo".to_vec())),
            (Fault::Lose, None),
        ] {
            let store = on_put(fault);
            store.put(&key("a"), b"hello").unwrap();
            assert_eq!(store.get(&key("a")).ok(), left, "{fault:?}");
        }
    }

    #[test]
    fn r27_every_kind_of_error_can_be_injected_before_and_after() {
        for kind in [ErrorKind::NoSpace, ErrorKind::Io, ErrorKind::ReadOnly] {
            let store = on_put(Fault::Before(kind));
            assert_eq!(store.put(&key("a"), b"x").unwrap_err().kind(), kind);
            assert!(store.get(&key("a")).is_err());
            let store = on_put(Fault::After(kind));
            assert_eq!(store.put(&key("a"), b"x").unwrap_err().kind(), kind);
            assert_eq!(store.get(&key("a")).unwrap(), b"x");
            store.arm(false);
            store.put(&key("b"), b"x").unwrap();
            assert_eq!(store.calls(), 3);
        }
    }

    #[test]
    fn r28_a_full_device_takes_nothing_until_something_is_deleted() {
        let store = Faulty::full_after(MemoryStore::new(), 10);
        store.put(&key("a"), &[0; 6]).unwrap();
        assert_eq!(store.put(&key("b"), &[0; 5]).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(store.decide(&key("c"), &[0; 5]).unwrap_err().kind(), ErrorKind::NoSpace);
        store.decide(&key("c"), &[0; 4]).unwrap();
        assert_eq!(store.decide(&key("c"), &[1; 9]).unwrap(), [0; 4]);
        store.delete(&key("a")).unwrap();
        store.put(&key("b"), &[0; 5]).unwrap();
    }

    #[test]
    fn one_seed_is_one_run() {
        let run = |seed| -> Vec<bool> {
            let kinds = &[ErrorKind::Io, ErrorKind::NoSpace];
            let store = Faulty::seeded(MemoryStore::new(), seed, 300, kinds);
            (0..50).map(|n| store.put(&key(&format!("n{n}")), b"x").is_ok()).collect()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(run(1).contains(&true) && run(1).contains(&false));
    }
}
