//! What a collection frees, what it leaves, and when it must not touch anything.

use crate::steps::*;
use crate::world::*;
use onefold_crypto::Suite;
use onefold_engine::Repository;
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::container::reader;
use onefold_engine::retention;
use onefold_engine::session::SnapshotList;
use onefold_format::layout;
use onefold_store::layers::Faulty;
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{ContainerId, ErrorKind, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A store with snapshots whose bytes are known.
pub struct Saved {
    pub memory: MemoryStore,
    pub repository: Arc<Repository>,
    pub contents: BTreeMap<SessionId, Content>,
}

impl Saved {
    pub fn new(suite: Suite) -> Self {
        let memory = MemoryStore::recording();
        let repository = create_in(&memory, suite);
        Self { memory, repository, contents: BTreeMap::new() }
    }

    /// Saves files with bytes of these seeds.
    pub fn save(&mut self, files: &[(&'static str, u64, usize)]) -> SessionId {
        let items: Vec<Item> =
            files.iter().map(|(name, seed, bytes)| file(name, *seed, *bytes)).collect();
        let id = save(&self.repository, &items);
        let bytes = |(name, seed, bytes): &(&str, u64, usize)| {
            (name.as_bytes().to_vec(), random_bytes(*seed, *bytes))
        };
        self.contents.insert(id, files.iter().map(bytes).collect());
        id
    }

    pub fn forget(&mut self, ids: &[SessionId]) {
        retention::forget_final(&self.repository, ids, "me").unwrap();
        ids.iter().for_each(|id| drop(self.contents.remove(id)));
    }

    /// Adds a container of which little is live, so that there is more to be freed than may stay.
    pub fn save_mostly_dead(&mut self) {
        let files = [("little", 9_002, 10_000), ("much", 9_001, 200_000)];
        let both = self.save(&files);
        self.save(&files[..1]);
        self.forget(&[both]);
    }

    /// All snapshots and no others are there, byte by byte, and nothing is wrong with the store.
    pub fn assert_whole(&self) {
        let repository = reopen(&self.memory, 77);
        let list = SnapshotList::load(&repository).unwrap();
        assert_eq!(list.snapshots.len(), self.contents.len());
        for (id, content) in &self.contents {
            assert_eq!(content_of(&repository, *id).unwrap(), *content);
        }
        let report = check_all(&repository);
        assert!(report.is_clean(), "{report:?}");
    }

    /// Six versions of eight files, of which each version changes two; all but two are forgotten.
    pub fn versions(suite: Suite) -> Self {
        let mut saved = Self::new(suite);
        let mut ids = Vec::new();
        for version in 0..6u64 {
            let changed = |at: u64| if at / 2 < version { 100 + at } else { at };
            let files: Vec<_> =
                (0..8u64).map(|at| (NAMES[at as usize], changed(at), 60_000)).collect();
            ids.push(saved.save(&files));
            let own = [("own", 1000 + version, 150_000)];
            ids.push(saved.save(&own));
        }
        let forgotten: Vec<_> = ids.iter().copied().filter(|id| *id != ids[6]).collect();
        saved.forget(&forgotten[..forgotten.len() - 1]);
        saved
    }
}

pub fn everything() -> CollectOptions {
    collect_options()
}

#[test]
fn what_is_forgotten_is_freed_and_the_rest_stays() {
    for suite in [Suite::Aes256Gcm, Suite::None] {
        let saved = Saved::versions(suite);
        let before = containers(&saved.repository);
        let dead = wholly_dead(&saved.repository);
        assert!(dead.len() > 3 && dead.len() < before.len());
        let report = collect(&saved.repository, &everything(), &job()).unwrap();
        let after = containers(&saved.repository);
        assert!(
            dead.iter().all(|id| !after.contains(id)),
            "what only the forgotten needed is gone"
        );
        assert!(report.deleted_containers as usize >= dead.len());
        assert_eq!(report.deleted_containers as usize, before.difference(&after).count());
        assert!(report.epochs > 0 && report.kept.is_empty());
        saved.assert_whole();

        let operations = saved.memory.operations();
        let again = collect(&saved.repository, &everything(), &job()).unwrap();
        assert_eq!((again.deleted_containers, again.copied_chunks, again.epochs), (0, 0, 0));
        assert_eq!(containers(&saved.repository), after);
        assert_eq!(saved.memory.operations(), operations, "nothing to do, nothing done");
    }
}

#[test]
fn only_what_is_wholly_dead_goes_if_nothing_may_be_copied() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    let before = containers(&saved.repository);
    let dead = wholly_dead(&saved.repository);
    let options = CollectOptions { goal: SpaceGoal::DeadOnly, ..everything() };
    let report = collect(&saved.repository, &options, &job()).unwrap();
    assert_eq!((report.copied_chunks, report.copied_bytes), (0, 0));
    let after = containers(&saved.repository);
    assert!(after.is_subset(&before));
    assert!(dead.iter().all(|id| !after.contains(id)));
    saved.assert_whole();
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_the_run_deletes() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    let operations = saved.memory.operations();
    let planned = dry_run(&saved.repository).unwrap();
    assert_eq!(saved.memory.operations(), operations, "nothing was written");
    assert!(planned.deleted_containers > 0);
    let done = collect(&saved.repository, &everything(), &job()).unwrap();
    assert_eq!(planned.deleted_containers, done.deleted_containers);
    assert_eq!(planned.deleted_bytes, done.deleted_bytes);
}

/// The containers that hold a live node, or live data.
fn live_containers(saved: &Saved, nodes: bool) -> Vec<ContainerId> {
    let dead = wholly_dead(&saved.repository);
    let holds = |id: &ContainerId| {
        let section = reader::read_section(&saved.repository, *id).unwrap();
        section.chunks.iter().all(|chunk| chunk.level.is_node() == nodes)
    };
    containers(&saved.repository).into_iter().filter(|id| !dead.contains(id) && holds(id)).collect()
}

pub fn assert_refused(saved: &Saved, names: &str) {
    let before = containers(&saved.repository);
    let repository = reopen(&saved.memory, 55);
    let error = collect(&repository, &everything(), &job()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(names), "{error} does not name {names}");
    assert_eq!(containers(&saved.repository), before, "nothing was deleted");
    assert!(names_of_epochs(saved).is_empty(), "nothing was condemned");
}

fn names_of_epochs(saved: &Saved) -> Vec<String> {
    names(&saved.memory, layout::EPOCHS)
}

#[test]
fn a_missing_container_stops_a_collection() {
    for nodes in [true, false] {
        let saved = Saved::versions(Suite::Aes256Gcm);
        for id in live_containers(&saved, nodes) {
            let state = saved.memory.clone_state();
            assert!(state.remove(&key(layout::container(id))));
            let repository = reopen(&state, 9);
            let lost = Saved { memory: state, repository, contents: saved.contents.clone() };
            let is_needed = !check_all(&lost.repository).damaged_paths.is_empty();
            if is_needed {
                let named = if nodes { "snapshot" } else { &id.to_string() };
                // Check has noted the damage; a collection finds it out without that, too.
                names(&lost.memory, layout::DAMAGE).into_iter().for_each(|name| {
                    lost.memory.remove(&key(name));
                });
                assert_refused(&lost, named);
            }
        }
    }
}

#[test]
fn a_damaged_node_stops_a_collection() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    let id = live_containers(&saved, true)[0];
    // All of its frames, but not its section.
    saved.memory.corrupt(&key(layout::container(id)), |bytes| {
        let end = bytes.len() / 4;
        bytes[..end].iter_mut().for_each(|byte| *byte ^= 0x55);
    });
    assert_refused(&saved, "snapshot");
}

#[test]
fn a_damaged_or_missing_outcome_stops_a_collection() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    let live = *saved.contents.keys().next().unwrap();
    let outcome = key(layout::outcome(live));
    let copy = key(layout::copy_of(outcome.as_str()));
    let whole = saved.memory.get(&outcome).unwrap();
    // What a checkpoint says would do as well.
    for name in names(&saved.memory, layout::CHECKPOINTS) {
        saved.memory.remove(&key(name));
    }
    saved.memory.corrupt(&outcome, |bytes| bytes[20] ^= 1);
    saved.memory.corrupt(&copy, |bytes| bytes[30] ^= 1);
    assert_refused(&saved, &live.short());
    saved.memory.corrupt(&outcome, |bytes| bytes.clone_from(&whole));
    saved.memory.corrupt(&copy, |bytes| bytes.clone_from(&whole));
    saved.assert_whole();

    // Its record is named by a later one.
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let first = saved.save(&[("a", 1, 50_000)]);
    saved.save(&[("b", 2, 50_000)]);
    saved.memory.remove(&key(layout::outcome(first)));
    saved.memory.remove(&key(layout::copy_of(&layout::outcome(first))));
    assert_refused(&saved, &first.short());
}

#[test]
fn r28_a_full_store_still_frees_what_is_wholly_dead() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    let dead = wholly_dead(&saved.repository);
    let before = containers(&saved.repository);
    // Room for a plan and the decisions, and not for a single copy.
    let full = Arc::new(Faulty::full_after(saved.memory.clone(), 4_000));
    let repository = open_on(full, 8).unwrap();
    collect(&repository, &everything(), &job()).unwrap();
    let after = containers(&saved.repository);
    assert!(dead.iter().all(|id| !after.contains(id)), "the dead are gone");
    assert!(after.len() < before.len());
    saved.assert_whole();
}

#[test]
fn frames_are_carried_and_what_is_dead_in_them_can_be_used_again() {
    for suite in [Suite::None, Suite::Aes256Gcm] {
        let mut saved = Saved::new(suite);
        saved.save_mostly_dead();
        let all = [("a", 1, 60_000), ("b", 2, 60_000), ("c", 3, 60_000), ("d", 4, 80_000)];
        let first = saved.save(&all);
        saved.save(&all[..3]);
        saved.forget(&[first]);
        let before = stored_bytes(&saved);
        // More is dead than is live. The container that is mostly dead frees all that the goal
        // asks for, and what is dead beside the three files may come along.
        let goal = |share| CollectOptions { goal: SpaceGoal::Unused(share), ..collect_options() };
        let left_alone = collect(&saved.repository, &goal(1.7), &job()).unwrap();
        assert_eq!((left_alone.frames_carried, left_alone.copied_chunks), (0, 0));
        let report = collect(&saved.repository, &goal(0.6), &job()).unwrap();
        assert_eq!(report.frames_carried, 1, "{report:?}");
        let freed = before - stored_bytes(&saved);
        assert!((200_000..240_000).contains(&freed), "{freed} bytes");
        saved.assert_whole();
        let carried = stored_bytes(&saved);
        saved.save(&all);
        let again = stored_bytes(&saved) - carried;
        assert!(again < 10_000, "{again} bytes: the fourth file was stored again");
        saved.assert_whole();
        let all = CollectOptions { goal: SpaceGoal::Everything, ..collect_options() };
        let oldest = *saved.contents.keys().next().unwrap();
        saved.forget(&[oldest]);
        collect(&saved.repository, &all, &job()).unwrap();
        saved.assert_whole();
    }
}

fn stored_bytes(saved: &Saved) -> u64 {
    let mut bytes = 0;
    let add = &mut |listed: onefold_store::Listed| {
        bytes += listed.size_bytes;
        Ok(())
    };
    saved.memory.list(layout::CONTAINERS, add).unwrap();
    bytes
}
