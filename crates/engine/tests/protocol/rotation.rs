//! Keys that are rotated: what stays readable, what an old key no longer opens, and what a process
//! does that started before (R90).

use crate::keys::{CHEAP, OTHER, open_with, with_two_keys};
use crate::steps::*;
use onefold_crypto::{KeyRing, KeySlot, MasterKey, Purpose, Suite, Vault};
use onefold_engine::check::{self, CheckOptions, ReadData};
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::session::doubts::{self, Doubts};
use onefold_engine::session::epoch;
use onefold_engine::session::marks::{self, Marks};
use onefold_engine::session::tombstones::{self, Forgotten};
use onefold_engine::session::{SnapshotList, WriterSession};
use onefold_engine::statistics::statistics;
use onefold_engine::{Job, Repository};
use onefold_format::layout;
use onefold_store::{Blobs, Key, MemoryStore};
use onefold_types::{ContainerId, ErrorKind, KeyId, Result, SessionId, limits};
use std::sync::Arc;

fn all_names(store: &MemoryStore) -> Vec<String> {
    let mut names = Vec::new();
    store
        .list("", &mut |listed| {
            names.push(listed.key.as_str().to_owned());
            Ok(())
        })
        .unwrap();
    names.sort_unstable();
    names
}

fn slot_of(store: &MemoryStore, id: KeyId) -> Vec<u8> {
    store.get(&Key::new(layout::key_slot(id)).unwrap()).unwrap()
}

fn items(seed: u64) -> Vec<Item> {
    vec![file("file", seed, 300 * limits::KIB)]
}

/// What a thief has who stole the master key when there was one generation.
fn stolen(store: &MemoryStore, repository: &Repository) -> Vault {
    let id = repository.keys().unwrap()[0].id;
    let slot = KeySlot::from_bytes(&slot_of(store, id)).unwrap();
    let ring = slot.open(PASSWORD, repository.store_id()).unwrap();
    assert_eq!(ring.count(), 1);
    Vault::new(Some(&MasterKey::from_bytes(*ring.master_key().as_bytes())))
}

#[test]
fn r90_what_is_sealed_after_a_rotation_does_not_open_with_the_old_master_key() {
    let (memory, before) = create();
    let thief = stolen(&memory, &before);
    let old = save(&before, &items(1));
    let seen = all_names(&memory);
    before.rotate_keys(PASSWORD, false).unwrap();
    let after = reopen(&memory, 2);
    let new = save(&after, &items(2));
    let outcome = |id: SessionId| memory.get(&Key::new(layout::outcome(id)).unwrap()).unwrap();
    assert!(thief.open_record(Purpose::Outcome, &old.0, &outcome(old)).is_ok());
    assert!(thief.open_record(Purpose::Outcome, &new.0, &outcome(new)).is_err());
    let mut containers = 0;
    for name in all_names(&memory).iter().filter(|name| name.starts_with("containers/")) {
        let id = layout::last_component(name).parse().unwrap();
        let mut sealed =
            onefold_engine::container::reader::read_sealed_section(&after, id).unwrap();
        let opener = thief.stored(Purpose::Container, &id.0).unwrap();
        let opens = opener.open(onefold_format::container::METADATA_PART, &mut sealed).is_ok();
        assert_eq!(opens, seen.contains(name), "{name}");
        containers += usize::from(!opens);
    }
    assert!(containers > 0);
    assert!(check_all(&after).is_clean());
    assert_eq!(SnapshotList::load(&after).unwrap().snapshots.len(), 2);
}

#[test]
fn r90_a_store_with_all_the_generations_there_may_be_works_and_takes_no_other() {
    let (memory, mut repository) = create();
    let mut saved = 0;
    // The first one is the master key itself.
    for number in 2..=limits::SEALING_GENERATIONS_MAX as u64 {
        repository.rotate_keys(PASSWORD, false).unwrap();
        repository = reopen(&memory, number);
        if number.is_multiple_of(16) {
            save(&repository, &items(number));
            saved += 1;
        }
    }
    let before = all_names(&memory);
    assert!(repository.rotate_keys(PASSWORD, false).is_err(), "one more than a ring may hold");
    assert_eq!(all_names(&memory), before);
    let again = reopen(&memory, 1000);
    save(&again, &items(1));
    assert!(check_all(&again).is_clean());
    assert_eq!(SnapshotList::load(&again).unwrap().snapshots.len(), saved + 1);
}

#[test]
fn r90_a_rotation_deduplicates_against_what_there_was() {
    let (memory, before) = create();
    save(&before, &items(1));
    let containers = |store: &MemoryStore| {
        all_names(store).iter().filter(|name| name.starts_with("containers/")).count()
    };
    let count = containers(&memory);
    before.rotate_keys(PASSWORD, false).unwrap();
    let after = reopen(&memory, 2);
    save(&after, &items(1));
    assert_eq!(containers(&memory), count, "the same tree needs no new container");
}

#[test]
fn r90_a_rotation_refuses_to_lock_others_out_unless_told() {
    let (memory, first, second) = with_two_keys();
    let repository = open_with(&memory, PASSWORD, 2).unwrap();
    let before = all_names(&memory);
    let error = repository.rotate_keys(PASSWORD, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains(&second.short()) && text.contains("(other)"), "{text}");
    assert!(text.contains("--remove-others") && text.contains("key add"), "{text}");
    assert_eq!(all_names(&memory), before);
    let rotation = repository.rotate_keys(PASSWORD, true).unwrap();
    assert_eq!(rotation.removed.len(), 2);
    assert!(rotation.removed.contains(&first) && rotation.removed.contains(&second));
    assert_eq!(open_with(&memory, OTHER, 3).err().unwrap().kind(), ErrorKind::WrongPassword);
    let repository = open_with(&memory, PASSWORD, 4).unwrap();
    repository.add_key(OTHER, CHEAP, "other").unwrap();
    let other = open_with(&memory, OTHER, 5).unwrap();
    assert!(other.keys().unwrap().iter().all(|named| !named.has_other_keys));
}

/// The changes of a rotation, one after the other: a crash may come after each.
#[test]
fn r90_a_rotation_that_crashes_anywhere_leaves_a_store_that_opens_and_lost_nothing() {
    let (memory, before) = create();
    save(&before, &items(1));
    let start = memory.operations();
    before.rotate_keys(PASSWORD, false).unwrap();
    let end = memory.operations();
    assert!(end - start >= 6, "{} changes", end - start);
    let mut counts = Vec::new();
    for operations in start..=end {
        let state = memory.state_after(operations);
        let repository = reopen(&state, 5);
        assert!(check_all(&repository).is_clean(), "after {operations}");
        save(&repository, &items(2));
        // Whatever is left over, the next one goes through and takes it away.
        let rotation = repository.rotate_keys(PASSWORD, false).unwrap();
        assert!(rotation.left.is_empty());
        counts.push(rotation.generations);
        let repository = reopen(&state, 6);
        save(&repository, &items(3));
        assert_eq!(SnapshotList::load(&repository).unwrap().snapshots.len(), 3);
        let report = check_all(&repository);
        assert!(report.is_clean() && report.notes.is_empty(), "{operations}: {report:?}");
        assert_eq!(repository.keys().unwrap().len(), 1);
    }
    assert!(counts.is_sorted() && counts.first() == Some(&2) && counts.last() == Some(&3));
}

#[test]
fn r90_a_password_that_a_stopped_rotation_left_behind_is_told_so() {
    let memory = MemoryStore::recording();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    repository.add_key(OTHER, CHEAP, "other").unwrap();
    repository.rotate_keys(PASSWORD, true).unwrap();
    let decided = (0..memory.operations())
        .map(|operations| memory.state_after(operations))
        .find(|state| all_names(state).iter().any(|name| name.starts_with("generations/")))
        .unwrap();
    let error = open_with(&decided, OTHER, 2).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::WrongPassword);
    let text = error.to_string();
    assert!(text.contains("left behind") && text.contains("generations/2"), "{text}");
    let opened = open_with(&decided, PASSWORD, 3).unwrap();
    let outdated = opened.keys().unwrap().into_iter().filter(|named| named.has_other_keys);
    assert_eq!(outdated.count(), 2);
    let report = check_all(&Arc::new(opened));
    assert!(report.notes.iter().any(|note| note.contains("does not hold the newest keys")));
}

#[test]
fn r90_a_decision_that_was_lost_or_has_rotten_does_not_lock_anybody_out() {
    let (memory, repository) = create();
    repository.rotate_keys(PASSWORD, false).unwrap();
    let written = save(&reopen(&memory, 2), &items(1));
    let [first, copy] =
        ["generations/2", "copies/generations/2"].map(|name| Key::new(name).unwrap());
    for (rotten, lost) in [
        (vec![&first], vec![]),
        (vec![&copy], vec![]),
        (vec![&first, &copy], vec![]),
        (vec![], vec![&first]),
        (vec![], vec![&first, &copy]),
        (vec![&first], vec![&copy]),
    ] {
        let state = memory.clone_state();
        rotten.iter().for_each(|key| assert!(state.corrupt(key, |bytes| bytes[20] ^= 1)));
        lost.iter().for_each(|key| assert!(state.remove(key)));
        let repository = reopen(&state, 3);
        let list = SnapshotList::load(&repository).unwrap();
        assert_eq!(list.snapshots[0].id, written, "{rotten:?} {lost:?}");
        // A check mends what is lost, and says what to do about what has rotten.
        let report = check_all(&repository);
        assert_eq!(report.is_clean(), rotten.is_empty(), "{rotten:?} {lost:?}: {report:?}");
        if !rotten.is_empty() {
            let mended = state.clone_state();
            rotten.iter().for_each(|key| assert!(mended.remove(key)));
            check_all(&reopen(&mended, 4));
            let report = check_all(&reopen(&mended, 5));
            assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
        }
        // Nobody is led back to sealing under the old generation.
        let thief = Vault::new(Some(&first_master_key(&state, &repository)));
        let again = save(&repository, &items(2));
        let sealed = state.get(&Key::new(layout::outcome(again)).unwrap()).unwrap();
        assert!(thief.open_record(Purpose::Outcome, &again.0, &sealed).is_err());
    }
}

#[test]
fn r90_what_is_planted_as_a_generation_turns_no_damage_into_changed_keys() {
    let (memory, repository) = create();
    let id = save(&repository, &items(1));
    for name in ["generations/2", "copies/generations/3", "generations/4294967295"] {
        memory.put(&Key::new(name).unwrap(), &[0x5a; 44]).unwrap();
    }
    let repository = reopen(&memory, 2);
    let damaged = memory.clone_state();
    for name in [layout::outcome(id), layout::copy_of(&layout::outcome(id))] {
        assert!(damaged.corrupt(&Key::new(name).unwrap(), |bytes| bytes[20] ^= 1));
    }
    assert!(SnapshotList::load(&reopen(&damaged, 3)).unwrap().lost.contains(&id));
    let rotation = repository.rotate_keys(PASSWORD, false).unwrap();
    assert_eq!(rotation.generations, 2);
    let repository = reopen(&memory, 4);
    save(&repository, &items(2));
    assert_eq!(SnapshotList::load(&repository).unwrap().snapshots.len(), 2);
    let report = check_all(&repository);
    assert_eq!(report.problems.len(), 3, "{report:?}");
}

#[test]
fn r90_a_forged_decision_that_a_generation_never_was_is_named() {
    let (memory, repository) = create();
    repository.rotate_keys(PASSWORD, false).unwrap();
    let mut number = [0; 16];
    number[0] = 2;
    // No key seals it, so anybody who can write to the store can forge it.
    let environment = repository.environment();
    let forged = Vault::new(None)
        .seal_record(Purpose::Generation, &number, &[0; 16], &*environment.randomness)
        .unwrap();
    for name in ["generations/2", "copies/generations/2"] {
        let name = Key::new(name).unwrap();
        assert!(memory.remove(&name));
        memory.put(&name, &forged).unwrap();
    }
    let error = open_with(&memory, PASSWORD, 2).err().unwrap().to_string();
    assert!(error.contains("'generations/2'") && !error.contains("generations/1"), "{error}");
    // What the message says is done.
    for name in ["generations/2", "copies/generations/2"] {
        assert!(memory.remove(&Key::new(name).unwrap()));
    }
    save(&Arc::new(open_with(&memory, PASSWORD, 3).unwrap()), &items(1));
}

#[test]
fn r90_who_loses_against_another_rotation_is_told_what_happened() {
    let memory = MemoryStore::recording();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    // Another rotation has removed the slot, and the decision is not seen yet.
    let own = repository.keys().unwrap()[0].id;
    for name in [layout::key_slot(own), layout::key_slot_copy(own)] {
        assert!(memory.remove(&Key::new(name).unwrap()));
    }
    let error = repository.rotate_keys(PASSWORD, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeysChanged);
    let told = error.to_string();
    assert!(told.contains("not rotated") && told.contains("try again"), "{told}");
}

fn first_master_key(store: &MemoryStore, repository: &Repository) -> MasterKey {
    let id = repository.keys().unwrap()[0].id;
    let slot = KeySlot::from_bytes(&slot_of(store, id)).unwrap();
    let ring: KeyRing = slot.open(PASSWORD, repository.store_id()).unwrap();
    ring.master_key().clone()
}

#[test]
fn r90_who_opened_the_store_before_is_told_so_and_damages_nothing() {
    let (memory, stale) = create();
    let old = save(&stale, &items(1));
    let known_doubts = {
        doubts::raise(&stale, "before").unwrap();
        Doubts::load(&stale).unwrap()
    };
    stale.rotate_keys(PASSWORD, false).unwrap();
    let after = reopen(&memory, 2);
    let new = save(&after, &items(2));
    let told = |what: &str, task: &dyn Fn() -> Result<()>| {
        let before = all_names(&memory);
        let error = task().err().unwrap_or_else(|| panic!("{what} went on"));
        assert_eq!(error.kind(), ErrorKind::KeysChanged, "{what}: {error}");
        assert!(error.to_string().contains("start"), "{what}: {error}");
        assert_eq!(all_names(&memory), before, "{what} has changed something");
    };
    let job = Job::unattended().0;
    for read_data in [ReadData::None, ReadData::All] {
        let options = CheckOptions { read_data, threads: 1, record_quarantine: true };
        told("check", &|| check::check(&stale, options, &job).map(drop));
    }
    let options = CollectOptions { goal: SpaceGoal::Everything, ..CollectOptions::default() };
    told("gc", &|| collect(&stale, &options, &job).map(drop));
    let plan = CollectOptions { mark_only: true, ..options.clone() };
    told("gc --dry-run", &|| collect(&stale, &plan, &job).map(drop));
    told("snapshots", &|| SnapshotList::load(&stale).map(drop));
    told("statistics", &|| statistics(&stale, &job).map(drop));
    told("repair", &|| check::repair_index(&stale, None, &job).map(drop));
    told("key add", &|| stale.add_key(OTHER, CHEAP, "").map(drop));
    told("key rotate", &|| stale.rotate_keys(PASSWORD, true).map(drop));
    told("a doubt", &|| doubts::raise(&stale, "after"));
    // What says that data is not to be trusted, is hidden or forgotten, is not passed over.
    marks::hide(&after, old, "by", "reason").unwrap();
    told("marks", &|| Marks::load(&stale).map(drop));
    tombstones::forget(&after, new, "by", "reason").unwrap();
    told("tombstones", &|| Forgotten::load(&stale).map(drop));
    told("forget", &|| tombstones::forget(&stale, new, "by", "reason"));
    doubts::raise(&after, "after").unwrap();
    known_doubts.remove(&stale).unwrap();
    told("doubts", &|| Doubts::load(&stale).unwrap().remove(&stale));
    collect(&after, &options, &job).unwrap();
    told("epochs", &|| epoch::newest_plan(&stale).map(drop));
    assert!(check_all(&reopen(&memory, 9)).is_clean());
    let containers = names(&memory, layout::CONTAINERS);
    let damaged: ContainerId = layout::last_component(containers.last().unwrap()).parse().unwrap();
    let container = Key::new(layout::container(damaged)).unwrap();
    assert!(memory.corrupt(&container, |bytes| bytes[100] ^= 1));
    assert!(!check_all(&reopen(&memory, 10)).is_clean());
    assert!(all_names(&memory).contains(&layout::damage(damaged)));
    told("quarantine", &|| onefold_engine::session::quarantine::load_ids(&stale).map(drop));
}

#[test]
fn r90_what_a_process_writes_that_started_before_stays_readable() {
    let (memory, before) = create();
    let session = WriterSession::begin(&before).unwrap();
    before.rotate_keys(PASSWORD, false).unwrap();
    let tree = put_tree(&before, &session, &items(1));
    let id = saved(commit(&before, session, tree.reference));
    let after = reopen(&memory, 2);
    save(&after, &items(2));
    let report = check_all(&after);
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    assert!(SnapshotList::load(&after).unwrap().snapshots.iter().any(|one| one.id == id));
    // What it had found damaged by then is damaged still.
    let outcome = Key::new(layout::outcome(id)).unwrap();
    assert!(memory.corrupt(&outcome, |bytes| bytes[20] ^= 1));
    assert!(memory.remove(&Key::new(layout::copy_of(&layout::outcome(id))).unwrap()));
    assert!(SnapshotList::load(&after).unwrap().lost.contains(&id));
}
