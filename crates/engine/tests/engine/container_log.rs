//! The container log: as many at once as it was told, and an end whatever happens to its threads.

use onefold_engine::container::log::{ContainerLog, FinishedContainer};
use onefold_store::MemoryStore;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_types::{ContainerId, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long nothing here takes.
const LONG: Duration = Duration::from_secs(20);

fn container(number: u8) -> FinishedContainer {
    FinishedContainer {
        id: ContainerId([number; 16]),
        bytes: vec![number; 1000],
        sealed_section: vec![number; 100],
        fingerprints: Vec::new(),
        frames: Box::default(),
        sketches: Vec::new(),
    }
}

/// The most puts under way at once, of which each waits for so many a moment.
fn puts_at_once(at_once: usize, wanted: usize) -> usize {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&most);
    let store = Faulty::scripted(MemoryStore::new(), move |call| {
        if call.operation == Operation::Put {
            counted.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let began = Instant::now();
            let moment = if at_once >= wanted { LONG } else { Duration::from_millis(50) };
            while counted.load(Ordering::SeqCst) < wanted && began.elapsed() < moment {
                thread::sleep(Duration::from_millis(1));
            }
            now.fetch_sub(1, Ordering::SeqCst);
        }
        Fault::None
    });
    let log = ContainerLog::start_with(Arc::new(store), at_once, 0, |_| {}).unwrap();
    (0..6).for_each(|number| log.append(container(number)).unwrap());
    let mut stored: Vec<u8> = log.settle().unwrap().iter().map(|one| one.id.0[0]).collect();
    stored.sort_unstable();
    assert_eq!(stored, [0, 1, 2, 3, 4, 5]);
    most.load(Ordering::SeqCst)
}

#[test]
fn as_many_containers_are_put_at_once_as_was_said() {
    assert_eq!(puts_at_once(3, 3), 3);
    assert_eq!(puts_at_once(1, 2), 1);
    assert_eq!(puts_at_once(3, 4), 3);
}

/// A panic fails the log, with what waits behind it, and nobody waits for ever.
#[test]
fn a_panic_is_the_end_of_what_waits_behind_it() {
    let (first, is_stored) = mpsc::channel();
    let (appended, goes_on) = mpsc::channel();
    let goes_on = std::sync::Mutex::new(goes_on);
    let log = ContainerLog::start_with(Arc::new(MemoryStore::new()), 1, 1, move |_| {
        first.send(()).unwrap();
        goes_on.lock().unwrap().recv_timeout(LONG).unwrap();
        panic!("on purpose");
    });
    let log = log.unwrap();
    log.append(container(1)).unwrap();
    is_stored.recv_timeout(LONG).unwrap();
    log.append(container(2)).unwrap();
    appended.send(()).unwrap();
    let (told, ended) = mpsc::channel();
    thread::spawn(move || told.send((log.wait(), log.append(container(3)))));
    let (waited, appended) = ended.recv_timeout(LONG).expect("nobody waits for ever");
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(appended.unwrap_err().kind(), ErrorKind::Io);
}
