//! Adds up the time that a modelled device would have taken, or takes it.
//!
//! The model charges every call for the operation and for its bytes, as if calls came one at a
//! time. The clock is virtual: two runs on different machines agree to the nanosecond. Where a real
//! clock is to be held against that, each call takes the time that it is charged.

use onefold_store::layers::Operation;
use onefold_store::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a device charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceModel {
    /// For a read of any size: seek, or round trip.
    pub read_ns: u64,
    /// For a write, delete, sync or decision of any size.
    pub write_ns: u64,
    /// For a listing, before its first name.
    pub list_ns: u64,
    /// For every name listed.
    pub list_name_ns: u64,
    /// Bytes read in a second; zero charges nothing.
    pub read_bytes_per_second: u64,
    /// Bytes written in a second; zero charges nothing.
    pub write_bytes_per_second: u64,
}

impl DeviceModel {
    /// A disk that turns: 10 ms to seek, 200 MB/s.
    pub const HARD_DISK: DeviceModel = DeviceModel {
        read_ns: 10_000_000,
        write_ns: 10_000_000,
        list_ns: 10_000_000,
        list_name_ns: 1_000,
        read_bytes_per_second: 200_000_000,
        write_bytes_per_second: 200_000_000,
    };
    /// Object storage over a network: 30 ms a request, 1000 names a page, 100 MB/s.
    pub const OBJECT_STORE: DeviceModel = DeviceModel {
        read_ns: 30_000_000,
        write_ns: 50_000_000,
        list_ns: 50_000_000,
        list_name_ns: 50_000,
        read_bytes_per_second: 100_000_000,
        write_bytes_per_second: 100_000_000,
    };

    fn cost_ns(&self, operation: Operation, amount: u64) -> u64 {
        let transfer = |per_second: u64| {
            let ns = u128::from(amount) * 1_000_000_000;
            ns.checked_div(u128::from(per_second)).map_or(0, |ns| ns as u64)
        };
        match operation {
            o if o.is_listing() => {
                self.list_ns.saturating_add(amount.saturating_mul(self.list_name_ns))
            }
            o if o.is_write() || o == Operation::Settle => {
                self.write_ns.saturating_add(transfer(self.write_bytes_per_second))
            }
            _ => self.read_ns.saturating_add(transfer(self.read_bytes_per_second)),
        }
    }
}

/// A store on a modelled device.
pub struct Latency<S> {
    store: S,
    model: DeviceModel,
    elapsed_ns: AtomicU64,
    /// What puts really took, whatever was charged.
    putting_ns: AtomicU64,
    /// Whether calls take that time.
    sleeps: bool,
}

/// Below this the system's timer is too coarse, so that calls wait busily.
const SLEEP_MIN: Duration = Duration::from_millis(1);

impl<S: Store> Latency<S> {
    /// Charges what `model` says.
    pub fn new(store: S, model: DeviceModel) -> Self {
        let (elapsed_ns, putting_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { store, model, elapsed_ns, putting_ns, sleeps: false }
    }

    /// Takes as long as `model` says.
    pub fn sleeping(store: S, model: DeviceModel) -> Self {
        Self { sleeps: true, ..Self::new(store, model) }
    }

    /// The time charged so far.
    pub fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns.load(Ordering::SeqCst)
    }

    /// The time that puts into the store below really took so far, one after the other; what it
    /// took to make the bytes is not in it.
    pub fn putting(&self) -> Duration {
        Duration::from_nanos(self.putting_ns.load(Ordering::SeqCst))
    }

    fn note_put(&self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.putting_ns.fetch_add(took_ns, Ordering::SeqCst);
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn charge(&self, operation: Operation, amount: u64) {
        let cost_ns = self.model.cost_ns(operation, amount);
        self.elapsed_ns.fetch_add(cost_ns, Ordering::SeqCst);
        if self.sleeps {
            let (began, cost) = (Instant::now(), Duration::from_nanos(cost_ns));
            if cost >= SLEEP_MIN {
                std::thread::sleep(cost);
            }
            while began.elapsed() < cost {
                std::hint::spin_loop();
            }
        }
    }
}

impl<S: Store> Blobs for Latency<S> {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.charge(Operation::Put, bytes.len() as u64);
        let began = Instant::now();
        let result = self.store.put(key, bytes);
        self.note_put(began.elapsed());
        result
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let (mut bytes, mut elsewhere) = (0, Duration::ZERO);
        let began = Instant::now();
        let result = self.store.put_pieces(key, &mut |piece| {
            let asked = Instant::now();
            let more = next(piece)?;
            bytes += piece.len() as u64;
            if !more {
                self.charge(Operation::Put, bytes);
            }
            elsewhere += asked.elapsed();
            Ok(more)
        });
        self.note_put(began.elapsed().saturating_sub(elsewhere));
        result
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        let result = self.store.get(key);
        self.charge(Operation::Get, result.as_ref().map_or(0, |bytes| bytes.len() as u64));
        result
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.charge(Operation::GetRange, buffer.len() as u64);
        self.store.get_range(key, offset, buffer)
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let result = self.store.get_tail(key, length_bytes);
        self.charge(Operation::GetTail, result.as_ref().map_or(0, |(_, tail)| tail.len() as u64));
        result
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.charge(Operation::Size, 0);
        self.store.size(key)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let mut names = 0;
        let result = self.store.list(prefix, &mut |listed| {
            names += 1;
            each(listed)
        });
        self.charge(Operation::List, names);
        result
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut names = 0;
        let result = self.store.list_names(prefix, &mut |name| {
            names += 1;
            each(name)
        });
        self.charge(Operation::ListNames, names);
        result
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.charge(Operation::Delete, 0);
        self.store.delete(key)
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.charge(Operation::Settle, 0);
        self.store.settle(prefix)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.store.free_bytes()
    }
}

impl<S: Store> Decisions for Latency<S> {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.charge(Operation::Decide, value.len() as u64);
        self.store.decide(key, value)
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let result = self.store.decided(key)?;
        self.charge(Operation::Decided, result.as_ref().map_or(0, |value| value.len() as u64));
        Ok(result)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut names = 0;
        let result = self.store.list_decided(prefix, &mut |name| {
            names += 1;
            each(name)
        });
        self.charge(Operation::ListDecided, names);
        result
    }
}

impl<S: Store> Store for Latency<S> {
    fn describe(&self) -> String {
        format!("{}, on a modelled device", self.store.describe())
    }

    onefold_store::pass_identity_on!(this => this.store);
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_store::{MemoryStore, conformance};

    #[test]
    fn conforms() {
        conformance::run(&|| Box::new(Latency::new(MemoryStore::new(), DeviceModel::HARD_DISK)))
            .unwrap();
    }

    #[test]
    fn time_is_that_of_the_model() {
        let store = Latency::new(MemoryStore::new(), DeviceModel::HARD_DISK);
        let key = Key::new("a").unwrap();
        store.put(&key, &[0; 2_000_000]).unwrap();
        assert_eq!(store.elapsed_ns(), 20_000_000);
        // Nothing slept: what a put really takes in memory is another figure.
        assert!(store.putting() > Duration::ZERO && store.putting() < Duration::from_millis(20));
        store.get_range(&key, 0, &mut [0; 1000]).unwrap();
        assert_eq!(store.elapsed_ns(), 30_005_000);
        store.list_names("", &mut |_| Ok(())).unwrap();
        assert_eq!(store.elapsed_ns(), 40_006_000);
        let free = DeviceModel { read_ns: 0, read_bytes_per_second: 0, ..DeviceModel::HARD_DISK };
        let store = Latency::new(store.inner().clone(), free);
        store.get(&key).unwrap();
        assert_eq!(store.elapsed_ns(), 0);
    }

    #[test]
    fn calls_take_the_time_that_they_are_charged() {
        let store = Latency::sleeping(MemoryStore::new(), DeviceModel::HARD_DISK);
        let began = Instant::now();
        let key = Key::new("a").unwrap();
        store.put(&key, b"bytes").unwrap();
        store.get(&key).unwrap();
        assert_eq!(store.elapsed_ns() / 1_000_000, 20);
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
