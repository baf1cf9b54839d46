//! Reading ahead: what is asked for, and what is answered from what was kept.

use onefold_engine::restore::request_costs::Reach;
use onefold_remote::ReadAhead;
use onefold_remote::read_ahead::{AHEAD_OF_MAX_BYTES, PartialRanges};
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store, conformance};
use onefold_types::{ErrorKind, Result};
use std::thread;
use std::time::Duration;

/// A store in memory, to each request of which the way takes so long.
struct Far {
    store: Counting<MemoryStore>,
    way: Duration,
}

impl Far {
    fn new(milliseconds: u64) -> Self {
        Self { store: Counting::new(MemoryStore::new()), way: Duration::from_millis(milliseconds) }
    }

    fn ranges(&self) -> u64 {
        let counts = self.store.take();
        let ranges = counts.iter().filter(|(_, operation, _)| *operation == Operation::GetRange);
        ranges.map(|(_, _, count)| count.calls).sum()
    }
}

impl PartialRanges for Far {
    fn get_up_to(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let size = self.store.inner().size(key)?;
        let there = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.get_range(key, offset, &mut buffer[..there])?;
        Ok(there)
    }
}

impl Blobs for Far {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.store.get(key)
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if !self.way.is_zero() {
            // A hundred megabytes a second.
            thread::sleep(self.way + Duration::from_nanos(10 * buffer.len() as u64));
        }
        self.store.get_range(key, offset, buffer)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.store.get_tail(key, length_bytes)
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.store.size(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.store.list(prefix, each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_names(prefix, each)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.store.delete(key)
    }
}

impl Decisions for Far {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.store.decide(key, value)
    }
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.store.decided(key)
    }
    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_decided(prefix, each)
    }
}

impl Store for Far {
    fn describe(&self) -> String {
        "far".to_owned()
    }
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Reads an object to its end, so many bytes at a time, and compares; counts requests.
fn requests(store: &ReadAhead<Far>, name: &Key, whole: &[u8], step: usize) -> u64 {
    store.inner().ranges();
    let mut buffer = vec![0; step];
    for (number, piece) in whole.chunks(step).enumerate() {
        let buffer = &mut buffer[..piece.len()];
        store.get_range(name, (number * step) as u64, buffer).unwrap();
        assert!(buffer == piece, "{number}");
    }
    store.inner().ranges()
}

fn far(bytes_max: usize) -> ReadAhead<Far> {
    ReadAhead::new(Far::new(0), bytes_max).reaching(Reach::FAR)
}

#[test]
fn conforms() {
    conformance::run(&|| Box::new(far(1 << 20))).unwrap();
    conformance::run(&|| Box::new(far(8 << 20))).unwrap();
    conformance::run(&|| Box::new(ReadAhead::new(Far::new(0), 1 << 20))).unwrap();
}

#[test]
fn where_asking_is_dear_neighbours_come_along_and_elsewhere_they_do_not() {
    let whole = pattern(3_000_000);
    let near = ReadAhead::new(Far::new(0), 8 << 20).reaching(Reach::NEAR);
    near.put(&key("a"), &whole).unwrap();
    assert_eq!(requests(&near, &key("a"), &whole, 30_000), 100);
    let far = far(8 << 20);
    far.put(&key("a"), &whole).unwrap();
    // A request brings what was asked for and a MiB behind it.
    assert_eq!(requests(&far, &key("a"), &whole, 30_000), 3);
    assert_eq!(requests(&far, &key("a"), &whole, 30_000), 0, "all is kept");
}

#[test]
fn what_asking_costs_is_learnt() {
    let store = ReadAhead::new(Far::new(20), 8 << 20);
    let whole = pattern(3_000_000);
    store.put(&key("a"), &whole).unwrap();
    for number in 1..16 {
        store.get_range(&key("a"), 0, &mut vec![0; number * 60_000 % 700_000]).unwrap();
    }
    let asked = requests(&store, &key("a"), &whole, 30_000);
    assert!(asked < 60, "{asked} requests");
}

#[test]
fn no_more_is_kept_than_there_is_room_for_and_what_is_deleted_is_gone() {
    let whole = pattern(3_000_000);
    let store = far(1_500_000);
    store.put(&key("a"), &whole).unwrap();
    requests(&store, &key("a"), &whole, 30_000);
    assert!(requests(&store, &key("a"), &whole, 30_000) > 0, "more than there is room for");
    store.delete(&key("a")).unwrap();
    let error = store.get_range(&key("a"), 0, &mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // Without room nothing is read ahead for nothing.
    let store = far(0);
    store.put(&key("a"), &whole).unwrap();
    assert_eq!(requests(&store, &key("a"), &whole, 30_000), 100);
}

#[test]
fn who_asks_for_much_gets_that_and_no_more() {
    let store = far(8 << 20);
    let whole = pattern(3_000_000);
    store.put(&key("a"), &whole).unwrap();
    let step = AHEAD_OF_MAX_BYTES + 1;
    assert_eq!(requests(&store, &key("a"), &whole, step), whole.len().div_ceil(step) as u64);
    let fewer = requests(&store, &key("a"), &whole, AHEAD_OF_MAX_BYTES);
    assert!(fewer < whole.len().div_ceil(AHEAD_OF_MAX_BYTES) as u64, "{fewer}");
}
