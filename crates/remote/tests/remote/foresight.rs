//! What is asked for before it is wanted: given out once, never when it could mislead.

use crate::faulty::Faulty;
use onefold_engine::repository::Preset;
use onefold_engine::session::SnapshotList;
use onefold_engine::{Environment, InitOptions, MemoryPlan, Repository};
use onefold_remote::BucketStore;
use onefold_remote::foreseen::{
    FORESEEN_MAX, LONG_FORESEEN_MAX_BYTES, NAMES_FORESEEN_MAX, OBJECT_FORESEEN_MAX_BYTES,
};
use onefold_store::{Asked, Blobs, Decisions, Key, foresee};
use onefold_types::{ErrorKind, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A store that is watched, and another process that writes to the same one.
struct Two {
    store: BucketStore,
    other: BucketStore,
    objects: Arc<Faulty>,
}

impl Two {
    fn new() -> Self {
        let objects = Arc::new(Faulty::default());
        let store = BucketStore::over(Arc::clone(&objects) as _, "watched", "p").unwrap();
        let below = Arc::clone(&objects.below) as _;
        let other = BucketStore::over(below, "the same", "p").unwrap();
        Self { store, other, objects }
    }

    /// Waits until so many were asked and answered.
    fn settle(&self, number: usize) {
        let done = |counter: &AtomicUsize| counter.load(Ordering::SeqCst) >= number;
        while !done(&self.objects.asked) || !done(&self.objects.answered) {
            thread::sleep(Duration::from_millis(1));
        }
        // What was answered is put away a moment later.
        thread::sleep(Duration::from_millis(20));
    }

    fn asked(&self) -> usize {
        self.objects.asked.load(Ordering::SeqCst)
    }

    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let each = &mut |name: &str| {
            names.push(name.to_owned());
            Ok(())
        };
        self.store.list_names("a", each).unwrap();
        names.sort();
        names
    }
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn names_of(prefix: &str) -> Asked {
    Asked::Names(prefix.to_owned())
}

#[test]
fn what_was_foreseen_is_given_out_once() {
    let two = Two::new();
    two.other.put(&key("a/1"), b"one").unwrap();
    let _foresight = foresee(
        &two.store,
        vec![names_of("a"), Asked::Object(key("a/1")), Asked::Tail(key("a/1"), 2)],
    );
    two.settle(3);
    two.other.put(&key("a/2"), b"two").unwrap();
    two.other.delete(&key("a/1")).unwrap();
    assert_eq!(two.names(), ["a/1"]);
    assert_eq!(two.store.get_tail(&key("a/1"), 2).unwrap(), (3, b"ne".to_vec()));
    assert_eq!(two.store.get(&key("a/1")).unwrap(), b"one");
    assert_eq!(two.asked(), 3);
    assert_eq!(two.names(), ["a/2"]);
    assert_eq!(two.store.get(&key("a/1")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(two.asked(), 5);
}

#[test]
fn what_is_absent_is_foreseen_as_well() {
    let two = Two::new();
    let objects = ["a/1", "a/2", "a/3"];
    let _foresight = foresee(&two.store, objects.map(|name| Asked::Object(key(name))).to_vec());
    two.settle(3);
    assert_eq!(two.store.decided(&key("a/1")).unwrap(), None);
    assert_eq!(two.store.get(&key("a/2")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(two.store.get_tail(&key("a/3"), 9).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(two.asked(), 3);
}

/// Written here, seen by another thread, or after its time: it is asked for anew.
#[test]
fn nothing_older_than_what_it_could_depend_on_is_given_out() {
    let two = Two::new();
    two.other.put(&key("a/1"), b"one").unwrap();
    let all = || vec![names_of("a"), Asked::Object(key("a/2"))];
    let foresight = foresee(&two.store, all());
    two.settle(2);
    two.store.put(&key("a/2"), b"two").unwrap();
    assert_eq!(two.names(), ["a/1", "a/2"]);
    assert_eq!(two.store.get(&key("a/2")).unwrap(), b"two");
    drop(foresight);

    let foresight = foresee(&two.store, all());
    two.settle(6);
    two.store.delete(&key("a/2")).unwrap();
    assert_eq!(two.names(), ["a/1"]);
    assert_eq!(two.store.decided(&key("a/2")).unwrap(), None);
    drop(foresight);

    let foresight = foresee(&two.store, all());
    two.settle(10);
    two.store.decide(&key("a/2"), b"two").unwrap();
    assert_eq!(two.names(), ["a/1", "a/2"]);
    drop(foresight);

    let foresight = foresee(&two.store, vec![names_of("a")]);
    two.settle(12);
    two.other.put(&key("a/3"), b"three").unwrap();
    thread::scope(|scope| {
        let seen = scope.spawn(|| two.names()).join().unwrap();
        assert_eq!(seen, ["a/1", "a/2", "a/3"]);
    });
    drop(foresight);
    assert_eq!(two.names(), ["a/1", "a/2", "a/3"]);
}

#[test]
fn what_fails_beforehand_is_asked_for_again() {
    let two = Two::new();
    two.other.put(&key("a/1"), b"one").unwrap();
    two.objects.failing_gets.store(1, Ordering::SeqCst);
    let _foresight = foresee(&two.store, vec![Asked::Object(key("a/1"))]);
    two.settle(1);
    assert_eq!(two.store.get(&key("a/1")).unwrap(), b"one");
    assert_eq!(two.asked(), 2);
}

/// OBJECT_FORESEEN_MAX_BYTES, NAMES_FORESEEN_MAX and FORESEEN_MAX: what is within them is kept, one
/// more is asked for anew, and right.
#[test]
fn no_more_is_kept_than_may_be() {
    let two = Two::new();
    let most = OBJECT_FORESEEN_MAX_BYTES as usize;
    two.other.put(&key("b/fits"), &vec![1; most]).unwrap();
    two.other.put(&key("b/longer"), &vec![2; most + 1]).unwrap();
    let objects = ["b/fits", "b/longer"].map(|name| Asked::Object(key(name)));
    let tails = [Asked::Tail(key("b/longer"), most), Asked::Tail(key("b/longer"), most + 1)];
    let foresight = foresee(&two.store, tails.to_vec());
    two.settle(1);
    assert_eq!(
        two.store.get_tail(&key("b/longer"), most).unwrap(),
        (most as u64 + 1, vec![2; most])
    );
    assert_eq!(two.asked(), 1, "the longer tail was not asked for");
    drop(foresight);
    let foresight = foresee(&two.store, objects.to_vec());
    two.settle(3);
    assert_eq!(two.store.get(&key("b/fits")).unwrap(), vec![1; most]);
    assert_eq!(two.asked(), 3);
    assert_eq!(two.store.get(&key("b/longer")).unwrap(), vec![2; most + 1]);
    assert_eq!(two.asked(), 4);
    drop(foresight);

    // Names that begin with digits are listed in parts.
    for number in 0..NAMES_FORESEEN_MAX {
        two.other.put(&key(&format!("a/n{number}")), b"").unwrap();
    }
    for (more, again) in [(false, 0), (true, 1)] {
        if more {
            two.other.put(&key("a/more"), b"").unwrap();
        }
        let before = two.asked();
        let _foresight = foresee(&two.store, vec![names_of("a")]);
        while two.asked() == before {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(two.names().len(), NAMES_FORESEEN_MAX + usize::from(more));
        assert_eq!(two.asked(), before + 1 + again);
    }

    let before = two.asked();
    let many = (0..=FORESEEN_MAX).map(|number| Asked::Object(key(&format!("a/n{number}"))));
    let _foresight = foresee(&two.store, many.collect());
    while two.asked() < before + FORESEEN_MAX {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(two.asked(), before + FORESEEN_MAX);
    for number in 0..=FORESEEN_MAX {
        assert_eq!(two.store.get(&key(&format!("a/n{number}"))).unwrap(), b"");
    }
    assert_eq!(two.asked(), before + FORESEEN_MAX + 1, "each was asked for once");
}

#[test]
fn where_many_names_are_expected_they_are_asked_for_in_parts_at_once() {
    let two = Two::new();
    for number in 0..3000 {
        two.other.put(&key(&format!("a/{:04x}", number * 21)), b"").unwrap();
    }
    for asked in [Asked::ManyNames("a".to_owned(), 3000), names_of("a")] {
        let before = two.asked();
        let _foresight = foresee(&two.store, vec![asked]);
        assert_eq!(two.names().len(), 3000);
        // Four parts; or a full first answer, and then three.
        assert_eq!(two.asked(), before + 4);
    }
}

/// LONG_FORESEEN_MAX_BYTES: objects whose lengths are known are kept as long as they fit together.
#[test]
fn long_objects_are_foreseen_if_their_lengths_are_known() {
    let two = Two::new();
    let half = LONG_FORESEEN_MAX_BYTES / 2;
    for (name, bytes) in [("a/1", half), ("a/2", half), ("a/3", 1)] {
        two.other.put(&key(name), &vec![7; bytes as usize]).unwrap();
    }
    let long = |name: &str, bytes| Asked::Long(key(name), bytes);
    let asked = vec![long("a/1", half), long("a/2", half), long("a/3", 1)];
    let _foresight = foresee(&two.store, asked);
    two.settle(2);
    assert_eq!(two.asked(), 2, "one byte more is not asked for");
    assert_eq!(two.store.get(&key("a/1")).unwrap().len() as u64, half);
    assert_eq!(two.store.get(&key("a/2")).unwrap().len() as u64, half);
    assert_eq!(two.asked(), 2);
    assert_eq!(two.store.get(&key("a/3")).unwrap(), [7]);
    assert_eq!(two.asked(), 3);
}

/// Checkpoints that a store has, small and long ones, cost one round trip: none is given before all
/// were asked for.
#[test]
fn all_checkpoints_are_asked_for_at_once() {
    let two = Two::new();
    let Two { store, other, objects } = two;
    let options = InitOptions::of(Preset::default()).unwrap();
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES).unwrap();
    let (store, password) = (Arc::new(store), Some(&b"password"[..]));
    let repository =
        Repository::create(store, &options, password, Environment::system(), memory).unwrap();
    let long = OBJECT_FORESEEN_MAX_BYTES as usize + 1;
    let lengths = [10, long, 10, 10, long, 10, 10];
    for (number, length) in lengths.iter().enumerate() {
        // What does not open is passed over, after it was read.
        let name = format!("checkpoints/{number:032x}");
        other.put(&key(&name), &vec![0; *length]).unwrap();
    }
    objects.together.store(lengths.len(), Ordering::SeqCst);
    let before = objects.asked.load(Ordering::SeqCst);
    SnapshotList::load(&repository).unwrap();
    assert_eq!(objects.alone.load(Ordering::SeqCst), 0);
    assert!(objects.asked.load(Ordering::SeqCst) >= before + lengths.len());
}
