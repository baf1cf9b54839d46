//! Reading ahead: what is asked for, and what is answered from what was kept.

use onefold_engine::restore::request_costs::Reach;
use onefold_remote::ReadAhead;
use onefold_remote::read_ahead::AHEAD_OF_MAX_BYTES;
use onefold_store::layers::{Counting, Fault, Faulty, Operation};
use onefold_store::{Blobs, Key, MemoryStore, conformance};
use onefold_types::ErrorKind;
use std::thread;
use std::time::Duration;

/// A store in memory, to each range of which the way takes so long.
type Far = Counting<Faulty<MemoryStore>>;

fn away(way: Duration) -> Far {
    Counting::new(Faulty::scripted(MemoryStore::new(), move |call| {
        if call.operation == Operation::GetRange && !way.is_zero() {
            // A hundred megabytes a second.
            thread::sleep(way + Duration::from_nanos(10 * call.size_bytes));
        }
        Fault::None
    }))
}

fn ranges(store: &Far) -> u64 {
    let counts = store.take();
    let ranges = counts.iter().filter(|(_, operation, _)| *operation == Operation::GetRange);
    ranges.map(|(_, _, count)| count.calls).sum()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Reads an object to its end, so many bytes at a time, and compares; counts requests.
fn requests(store: &ReadAhead<Far>, name: &Key, whole: &[u8], step: usize) -> u64 {
    ranges(store.inner());
    let mut buffer = vec![0; step];
    for (number, piece) in whole.chunks(step).enumerate() {
        let buffer = &mut buffer[..piece.len()];
        store.get_range(name, (number * step) as u64, buffer).unwrap();
        assert!(buffer == piece, "{number}");
    }
    ranges(store.inner())
}

fn far(bytes_max: usize) -> ReadAhead<Far> {
    ReadAhead::new(away(Duration::ZERO), bytes_max).reaching(Reach::FAR)
}

#[test]
fn conforms() {
    conformance::run(&|| Box::new(far(1 << 20))).unwrap();
    conformance::run(&|| Box::new(far(8 << 20))).unwrap();
    conformance::run(&|| Box::new(ReadAhead::new(away(Duration::ZERO), 1 << 20))).unwrap();
}

#[test]
fn where_asking_is_dear_neighbours_come_along_and_elsewhere_they_do_not() {
    let whole = pattern(3_000_000);
    let near = ReadAhead::new(away(Duration::ZERO), 8 << 20).reaching(Reach::NEAR);
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
    let store = ReadAhead::new(away(Duration::from_millis(20)), 8 << 20);
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
