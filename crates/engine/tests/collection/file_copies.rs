//! Copies of a store, file by file, while it is written to: which are whole.
//!
//! Whoever copies files sees each directory at another moment. Objects never change, and what a
//! decision rests on was there before it. So a copy that reads containers and their metadata last
//! has whatever its snapshots need, unless something was forgotten and collected meanwhile; and it
//! says that containers are there of which no record tells. This is what docs/FILE-COPIES.md says.

use crate::basics::Saved;
use crate::steps::*;
use crate::world::*;
use onefold_crypto::Suite;
use onefold_engine::Repository;
use onefold_engine::collection::collect;
use onefold_engine::index::{FingerprintIndex, merge};
use onefold_engine::session::SnapshotList;
use onefold_format::layout;
use onefold_store::{Blobs, MemoryStore};
use onefold_types::Result;
use std::sync::Arc;

/// What is copied last.
const LAST: [&str; 2] = [layout::CONTAINERS, layout::METADATA];

/// Two backups, the second beside the first one's snapshot, and a merged index; and how many
/// changes had been made when the store was there.
fn history() -> (Saved, usize) {
    let mut saved = Saved::new(Suite::None);
    let made = saved.memory.operations();
    saved.save(&[("a", 1, 60_000), ("b", 2, 60_000)]);
    saved.save(&[("a", 1, 60_000), ("c", 3, 90_000)]);
    let index = FingerprintIndex::open(&saved.repository).unwrap();
    merge::merge(&saved.repository, None, &index.runs()).unwrap();
    saved.save(&[("c", 3, 90_000), ("d", 4, 60_000)]);
    (saved, made)
}

/// Adds objects of a store that a copy has not got yet.
fn add(copy: &MemoryStore, store: &MemoryStore, is_wanted: impl Fn(&str) -> bool) {
    let mut missing = Vec::new();
    store
        .list("", &mut |listed| {
            let top = listed.key.as_str().split('/').next().unwrap_or_default();
            if is_wanted(top) && copy.size(&listed.key).is_err() {
                missing.push(listed.key);
            }
            Ok(())
        })
        .unwrap();
    for key in missing {
        copy.put(&key, &store.get(&key).unwrap()).unwrap();
    }
}

/// A copy of what is last as of one moment, and of all else as of another.
fn copied(history: &MemoryStore, rest_at: usize, last_at: usize) -> MemoryStore {
    let copy = MemoryStore::new();
    add(&copy, &history.state_after(rest_at), |top| !LAST.contains(&top));
    add(&copy, &history.state_after(last_at), |top| LAST.contains(&top));
    copy
}

/// Whether all snapshots that a copy knows can be restored.
fn restores(saved: &Saved, copy: &MemoryStore) -> bool {
    let all = || -> Result<bool> {
        let repository: Arc<Repository> = open_on(Arc::new(copy.clone()), 90)?;
        for snapshot in SnapshotList::load(&repository)?.snapshots {
            let content = content_of(&repository, snapshot.id)?;
            if saved.contents.get(&snapshot.id) != Some(&content) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    all().unwrap_or(false)
}

fn is_clean(copy: &MemoryStore) -> bool {
    check_all(&open_on(Arc::new(copy.clone()), 91).unwrap()).is_clean()
}

/// As of an atomic snapshot of the file system, or while nothing writes.
#[test]
fn a_file_copy_of_one_moment_is_whole() {
    let (saved, made) = history();
    for moment in made..=saved.memory.operations() {
        let copy = copied(&saved.memory, moment, moment);
        assert!(restores(&saved, &copy) && is_clean(&copy), "{moment}");
    }
}

#[test]
fn a_file_copy_that_reads_containers_last_restores_beside_backups_and_is_made_whole_later() {
    let (saved, made) = history();
    let all = saved.memory.operations();
    let (mut with_snapshots, mut unclean) = (0, 0);
    for rest_at in made..=all {
        for last_at in (rest_at..=all).step_by(5).chain([all]) {
            let copy = copied(&saved.memory, rest_at, last_at);
            assert!(restores(&saved, &copy), "{rest_at} and {last_at} of {all}");
            with_snapshots += usize::from(names(&copy, layout::OUTCOMES).len() > 1);
            unclean += usize::from(!is_clean(&copy));
            // What is copied again when nothing writes any more brings what is missing.
            add(&copy, &saved.memory, |_| true);
            assert!(restores(&saved, &copy) && is_clean(&copy), "{rest_at} and {last_at} of {all}");
        }
    }
    assert!(with_snapshots > 10 && unclean > 0, "{with_snapshots}, {unclean}");
}

#[test]
fn a_file_copy_that_reads_containers_first_has_lost_something() {
    let (saved, made) = history();
    let all = saved.memory.operations();
    let torn =
        (made..all).filter(|last_at| !restores(&saved, &copied(&saved.memory, all, *last_at)));
    assert!(torn.count() > 0);
}

#[test]
fn a_file_copy_beside_a_collection_of_what_was_forgotten_has_lost_something_and_says_so() {
    let mut saved = Saved::new(Suite::None);
    saved.save(&[("a", 1, 60_000)]);
    let gone = saved.save(&[("b", 2, 90_000)]);
    let before = saved.memory.operations();
    let content = saved.contents.get(&gone).cloned();
    saved.forget(&[gone]);
    collect(&saved.repository, &collect_options(), &job()).unwrap();
    let after = saved.memory.operations();
    saved.contents.extend(content.map(|content| (gone, content)));
    let torn = copied(&saved.memory, before, after);
    assert!(!restores(&saved, &torn) && !is_clean(&torn));
}
