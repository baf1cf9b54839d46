//! The ports over object stores in memory: one that keeps its promises, and some that do not.

use crate::faulty::{Fault, Faulty};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use onefold_remote::BucketStore;
use onefold_remote::bucket::PART_BYTES;
use onefold_remote::conditional::Proof;
use onefold_store::{Blobs, Decisions, Key, OBJECT_MAX_BYTES, conformance};
use onefold_types::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn over(objects: impl ObjectStore) -> BucketStore {
    BucketStore::over(Arc::new(objects), "memory", "some/prefix").unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

#[test]
fn conforms() {
    conformance::run_flat(&|| Box::new(over(InMemory::new()))).unwrap();
    let without_prefix = || BucketStore::over(Arc::new(InMemory::new()), "memory", "").unwrap();
    conformance::run_flat(&|| Box::new(without_prefix())).unwrap();
}

#[test]
fn foreign_objects_are_not_shown() {
    let objects = Arc::new(InMemory::new());
    let outer = BucketStore::over(Arc::clone(&objects) as _, "memory", "").unwrap();
    let inner = BucketStore::over(objects, "memory", "hosts").unwrap();
    outer.put(&key("hosts/config"), b"1").unwrap();
    outer.put(&key("hosts-of-others"), b"22").unwrap();
    inner.prove(Proof::First).unwrap();
    let mut names = Vec::new();
    let each = &mut |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    inner.list_names("", each).unwrap();
    assert_eq!(names, ["config"]);
}

#[test]
fn what_is_longer_than_a_part_is_uploaded_in_parts() {
    let store = over(InMemory::new());
    for length in [PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 20_000_001] {
        let whole: Vec<u8> = (0..length).map(|at| (at / 7 + at / 1000) as u8).collect();
        let name = key(&format!("index/{length}"));
        let mut left = whole.as_slice();
        let mut next = |piece: &mut Vec<u8>| {
            let (now, later) = left.split_at(left.len().min(700_001));
            piece.extend_from_slice(now);
            left = later;
            Ok(!later.is_empty())
        };
        store.put_pieces(&name, &mut next).unwrap();
        assert!(store.get(&name).unwrap() == whole, "{length}");
        let mut again = |piece: &mut Vec<u8>| {
            piece.resize(PART_BYTES + 1, 0);
            Ok(false)
        };
        let error = store.put_pieces(&name, &mut again).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let mut endless = |piece: &mut Vec<u8>| {
            piece.resize(PART_BYTES + 1, 0);
            Ok(true)
        };
        let error = store.put_pieces(&name, &mut endless).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    }
}

#[test]
fn an_upload_that_fails_leaves_nothing_visible() {
    let store = over(InMemory::new());
    let mut calls = 0;
    let mut failing = |piece: &mut Vec<u8>| {
        calls += 1;
        piece.resize(PART_BYTES + 1, 0);
        match calls {
            3 => Err(onefold_types::Error::new(ErrorKind::Interrupted, "enough")),
            _ => Ok(true),
        }
    };
    let error = store.put_pieces(&key("index/x"), &mut failing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    store.list_names("", &mut |name| panic!("{name}")).unwrap();
}

#[test]
fn one_byte_more_than_an_object_may_have_is_refused() {
    let store = over(InMemory::new());
    let bytes = vec![0; OBJECT_MAX_BYTES + 1];
    store.put(&key("most"), &bytes[1..]).unwrap();
    assert_eq!(store.get(&key("most")).unwrap().len(), OBJECT_MAX_BYTES);
    store.delete(&key("most")).unwrap();
    let error = store.put(&key("more"), &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    let mut pieces = [1, OBJECT_MAX_BYTES].into_iter();
    let mut next = |piece: &mut Vec<u8>| {
        piece.resize(pieces.next().unwrap(), 0);
        Ok(pieces.len() > 0)
    };
    store.put_pieces(&key("more"), &mut next).unwrap();
    for read in [store.get(&key("more")).map(drop), store.get_tail(&key("more"), 1 << 40).map(drop)]
    {
        assert_eq!(read.unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
    assert_eq!(store.get_tail(&key("more"), 7).unwrap(), (bytes.len() as u64, vec![0; 7]));
}

#[test]
fn a_store_that_replaces_objects_or_lets_two_win_is_refused() {
    for (fault, word) in [(Fault::Replaces, "was replaced"), (Fault::Races, "won a name")] {
        for proof in [Proof::First, Proof::Again] {
            let error = over(Faulty::new(fault)).prove(proof).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let said = error.to_string();
            assert!(said.contains(word) && said.contains("use another server"), "{said}");
        }
    }
}

/// Each promise that is broken is found, and no other.
#[test]
fn what_a_bucket_can_do_is_tried() {
    let all = [
        (Fault::None, ""),
        (Fault::Replaces, "conditional put"),
        (Fault::GivesBeginnings, "ranged reads"),
        (Fault::ListsNothing, "lists at once"),
        (Fault::KeepsAll, "deletes"),
    ];
    for (fault, broken) in all {
        let objects = Arc::new(Faulty::new(fault));
        let store = BucketStore::over(Arc::clone(&objects) as _, "memory", "below").unwrap();
        let found = store.capabilities();
        let trials = [
            ("conditional put", found.conditional_put),
            ("ranged reads", found.ranged_reads),
            ("lists at once", found.lists_at_once),
            ("deletes", found.deletes),
        ];
        let failed = trials.iter().filter(|(_, trial)| trial.is_err()).map(|(name, _)| *name);
        let failed: Vec<&str> = failed.collect();
        assert_eq!(failed.join(", "), broken, "{fault:?}: {trials:?}");
        // Nothing that could be taken for the store's own, and no more than is needed later.
        let mut seen = 0;
        store
            .list("", &mut |_| {
                seen += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, 0);
    }
    // Who may not write knows nothing.
    let objects = Arc::new(Faulty::new(Fault::None));
    let store = BucketStore::over(objects as _, "memory", "").unwrap().reading_only();
    assert_eq!(store.capabilities().deletes.unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_store_that_was_proved_is_asked_once() {
    let objects = Arc::new(Faulty::new(Fault::LosesAnswers(0)));
    let store = BucketStore::over(Arc::clone(&objects) as _, "memory", "").unwrap();
    store.prove(Proof::First).unwrap();
    let before = objects.puts.load(Ordering::SeqCst);
    store.prove(Proof::Again).unwrap();
    assert_eq!(objects.puts.load(Ordering::SeqCst), before + 1);
}

#[test]
fn a_put_whose_answer_was_lost_is_its_own_and_no_others() {
    let store = over(Faulty::new(Fault::LosesAnswers(1)));
    store.put(&key("a"), b"one").unwrap();
    assert_eq!(store.put(&key("a"), b"one").unwrap_err().kind(), ErrorKind::AlreadyExists);
    let store = over(Faulty::new(Fault::LosesAnswers(1)));
    assert_eq!(store.decide(&key("d"), b"one").unwrap(), b"one");
    assert_eq!(store.decide(&key("d"), b"two").unwrap(), b"one");
}

#[test]
fn a_decision_is_asked_for_again_while_its_winner_cannot_be_read() {
    let store = over(Faulty::new(Fault::TakesBeforehand(7)));
    assert_eq!(store.decide(&key("d"), b"one").unwrap(), b"one");
    assert_eq!(store.decide(&key("d"), b"two").unwrap(), b"one");
    // Not for ever.
    let store = over(Faulty::new(Fault::TakesBeforehand(8)));
    let error = store.decide(&key("d"), b"one").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "not 'there is none': {error}");
}

#[test]
fn a_put_that_never_gets_an_answer_fails_in_the_end() {
    let store = over(Faulty::new(Fault::LosesAnswers(99)));
    let error = store.put(&key("a"), b"one").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(store.get(&key("a")).unwrap(), b"one", "an error may mean that it is there");
}
