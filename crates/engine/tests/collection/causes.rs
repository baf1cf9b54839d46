//! Root causes of losses elsewhere, as far as they are about collection (docs/TESTING.md).

use crate::basics::Saved;
use crate::gated::Answer;
use crate::model::{Scenario, world};
use crate::schedule::Segment;
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_crypto::Suite;
use onefold_engine::check::ReadData;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::container::open::OpenContainer;
use onefold_engine::container::reader;
use onefold_engine::index::{FingerprintIndex, append, merge};
use onefold_engine::{Environment, Repository, retention};
use onefold_format::codec::Compression;
use onefold_format::container::{HEADER_BYTES, MetadataSection};
use onefold_format::layout;
use onefold_store::layers::Operation::*;
use onefold_store::{Blobs, MemoryStore};
use onefold_types::ContainerId;
use onefold_types::environment::{Clock, SeededRandomness};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A clock that jumps to and fro by years.
struct LyingClock(SeededRandomness);

impl Clock for LyingClock {
    fn now_ns(&self) -> i64 {
        self.0.below(4_000_000_000_000_000_000) as i64
    }
}

#[test]
fn r2_nothing_is_lost_by_clocks_that_lie() {
    for seed in 0..20 {
        let mut saved = Saved::versions(Suite::None);
        let environment = Environment {
            randomness: Arc::new(SeededRandomness::new(900 + seed)),
            clock: Arc::new(LyingClock(SeededRandomness::new(seed))),
            ..environment(seed)
        };
        let store = Arc::new(saved.memory.clone());
        let password = || unreachable!("the store is not encrypted");
        saved.repository =
            Repository::open(store, password, environment, memory_plan()).map(Arc::new).unwrap();
        let late = saved.save(&[("a", 0, 60_000), ("z", 700, 90_000)]);
        collect(&saved.repository, &collect_options(), &job()).unwrap();
        saved.assert_whole();
        saved.forget(&[late]);
        collect(&saved.repository, &collect_options(), &job()).unwrap();
        saved.assert_whole();
        assert!(wholly_dead(&saved.repository).is_empty());
    }
}

#[test]
fn r4_two_collectors_that_take_each_other_for_themselves() {
    // Names and clocks are the same; whatever is stored under a name stays.
    let scenario = Scenario {
        world: world(),
        actors: vec![Actor::new(collects()).seeded(7), Actor::new(collects()).seeded(7)],
    };
    for step in 0..scenario.steps()[0] {
        let segments = [Segment::Run(0, step), Segment::End(1), Segment::End(0)];
        let mut run = scenario.world.run(&scenario.actors, &segments, false);
        // Either may fail over a name that is taken; nothing may be lost.
        run.problems.retain(|problem| !problem.contains("exists"));
        scenario.world.verify(&mut run);
        assert!(run.problems.is_empty(), "{:?} {segments:?}", run.problems);
    }
}

#[test]
fn r5_a_collector_that_is_frozen_anywhere_changes_nothing_when_it_resumes() {
    let tasks = [collects(), collects(), backs_up("x", "x"), forgets("k"), collects()];
    let scenario = Scenario::new(world(), tasks);
    for step in 0..=scenario.steps()[0] {
        let others = [1, 2, 3, 4].map(Segment::End);
        let segments = [&[Segment::Run(0, step)][..], &others, &[Segment::End(0)]].concat();
        scenario.must_hold(&segments, false);
    }
}

#[test]
fn r3_r7_r9_a_backup_that_is_frozen_anywhere_starts_over_or_is_whole() {
    for task in [backs_up("x", "x"), reuses("p", "pq")] {
        let scenario = Scenario::new(world(), [task, forgets("pq"), collects(), collects()]);
        for step in 0..=scenario.steps()[0] {
            let others = [1, 2, 3].map(Segment::End);
            let segments = [&[Segment::Run(0, step)][..], &others, &[Segment::End(0)]].concat();
            scenario.must_hold(&segments, false);
        }
    }
}

#[test]
fn r10_a_collection_at_any_step_of_a_stream_saves_it_whole_or_says_that_it_is_not_saved() {
    let scenario = Scenario::new(world(), [streams("x"), collects(), collects()]);
    for step in 0..=scenario.steps()[0] {
        let segments = [Segment::Run(0, step), Segment::End(1), Segment::End(2), Segment::End(0)];
        let mut run = scenario.world.run(&scenario.actors, &segments, false);
        // What a stream stored before it was fenced may be gone; it says so and saves nothing.
        run.problems.retain(|problem| {
            !(problem.starts_with("actor 0") && problem.contains("nothing was saved"))
        });
        scenario.world.verify(&mut run);
        assert!(run.problems.is_empty(), "{:?} {segments:?}", run.problems);
    }
}

#[test]
fn r11_an_empty_store_and_the_last_snapshot() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let report = collect(&saved.repository, &collect_options(), &job()).unwrap();
    assert_eq!((report.epochs, report.containers), (0, 0));
    let only = saved.save(&[("a", 1, 100_000)]);
    collect(&saved.repository, &collect_options(), &job()).unwrap();
    saved.assert_whole();
    saved.forget(&[only]);
    collect(&saved.repository, &collect_options(), &job()).unwrap();
    assert!(containers(&saved.repository).is_empty());
    // The same again, from nothing.
    saved.save(&[("a", 1, 100_000)]);
    collect(&saved.repository, &collect_options(), &job()).unwrap();
    saved.assert_whole();
}

#[test]
fn r11_random_walks_of_saving_forgetting_and_collecting() {
    for seed in 0..15 {
        let randomness = SeededRandomness::new(seed);
        let mut saved = Saved::new(Suite::None);
        for _ in 0..25 {
            let ids: Vec<_> = saved.contents.keys().copied().collect();
            match randomness.below(4) {
                0 | 1 => {
                    let of = |name| (name, randomness.below(9), 30_000);
                    saved.save(&["a", "b", "c"].map(of));
                }
                2 if !ids.is_empty() => {
                    let id = ids[randomness.below(ids.len() as u64) as usize];
                    saved.forget(&[id]);
                }
                _ => {
                    collect(&saved.repository, &collect_options(), &job()).unwrap();
                    assert!(wholly_dead(&saved.repository).is_empty());
                }
            }
            saved.assert_whole();
        }
    }
}

#[test]
fn r13_an_index_opened_while_runs_are_merged_is_whole() {
    let world = world();
    let opens: Task = Arc::new(|_, repository| {
        let index = FingerprintIndex::open(repository)?;
        let present: Vec<_> = containers(repository).into_iter().collect();
        assert_eq!(index.covered(), present, "a partial index");
        Ok(())
    });
    // Between listing the runs and reading the first, all of them are merged into one.
    let actor = Actor::new(opens).lying(|| {
        let merged = AtomicBool::new(false);
        Box::new(move |operation, name, store| {
            if operation == GetTail
                && name.starts_with("index")
                && !merged.swap(true, Ordering::Relaxed)
            {
                let other = reopen(store, 31);
                let index = FingerprintIndex::open(&other).unwrap();
                merge::merge(&other, None, &index.runs()).unwrap();
            }
            Answer::Honest
        })
    });
    let run = world.run(&[actor], &[], false);
    assert!(run.problems.is_empty(), "{:?}", run.problems);
}

#[test]
fn r14_a_chunk_that_is_stored_several_times_survives() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    // The same bytes in containers of several sessions that knew nothing of each other.
    let first = saved.save(&[("a", 1, 90_000), ("b", 2, 90_000)]);
    let twice = put_with_nothing_known(&saved.memory, 2, &[("a", 1), ("c", 3)]);
    let thrice = put_with_nothing_known(&saved.memory, 3, &[("a", 1), ("d", 4)]);
    for id in [twice, thrice] {
        let content = content_of(&saved.repository, id).unwrap();
        saved.contents.insert(id, content);
    }
    saved.forget(&[first, thrice]);
    collect(&reopen(&saved.memory, 5), &collect_options(), &job()).unwrap();
    saved.assert_whole();
    let mut seen = std::collections::BTreeMap::new();
    for id in containers(&saved.repository) {
        for chunk in reader::read_section(&saved.repository, id).unwrap().chunks {
            *seen.entry(chunk.fingerprint).or_insert(0) += 1;
        }
    }
    assert!(seen.values().all(|count| *count == 1), "one instance of each is left");
}

#[test]
fn r14_a_chunk_that_a_container_holds_twice_survives() {
    for (goal, carried) in [(SpaceGoal::Everything, 0), (SpaceGoal::Unused(0.6), 1)] {
        let mut saved = Saved::new(Suite::Aes256Gcm);
        let mixed = saved.save(&[("a", 1, 110_000), ("b", 2, 30_000)]);
        saved.save(&[("a", 1, 110_000)]);
        saved.forget(&[mixed]);
        hold_some_twice(&saved);
        saved.save_mostly_dead();
        let options = CollectOptions { goal, ..collect_options() };
        let report = collect(&reopen(&saved.memory, 5), &options, &job()).unwrap();
        assert!(report.deleted_containers > 0 && report.copied_chunks > 0, "{report:?}");
        assert_eq!(report.frames_carried, carried, "{report:?}");
        saved.assert_whole();
        // And once more, from what the first one left.
        collect(&reopen(&saved.memory, 6), &collect_options(), &job()).unwrap();
        saved.assert_whole();
    }
}

/// Puts the chunks of the only data container, the first two twice, into one container instead.
fn hold_some_twice(saved: &Saved) {
    let repository = &saved.repository;
    let sections = containers(repository).into_iter().map(|id| (id, section_of(repository, id)));
    let is_data = |section: &MetadataSection| !section.chunks[0].level.is_node();
    let mut data = sections.filter(|(_, section)| is_data(section));
    let (old, section) = data.next().unwrap();
    assert!(data.next().is_none());
    let context = forging(repository);
    let mut open = OpenContainer::new(Arc::clone(&context));
    let reader = ChunkReader::open(repository).unwrap();
    for (place, chunk) in section.chunks.iter().enumerate() {
        let bytes = reader.read(&chunk.fingerprint).unwrap();
        for _ in 0..if place < 2 { 2 } else { 1 } {
            open.append(chunk.fingerprint, chunk.level, &bytes).unwrap();
        }
    }
    open.finish().unwrap();
    let durable = context.log.settle().unwrap();
    append::append(repository, None, &durable).unwrap();
    saved.memory.remove(&key(layout::container(old)));
}

fn section_of(repository: &Repository, id: ContainerId) -> MetadataSection {
    reader::read_section(repository, id).unwrap()
}

/// Saves files in a session that is told to rely on no container.
fn put_with_nothing_known(
    memory: &MemoryStore,
    seed: u64,
    files: &[(&'static str, u64)],
) -> onefold_types::SessionId {
    let items: Vec<Item> = files.iter().map(|(name, seed)| file(name, *seed, 90_000)).collect();
    put_items_with_nothing_known(memory, seed, &items)
}

fn put_items_with_nothing_known(
    memory: &MemoryStore,
    seed: u64,
    items: &[Item],
) -> onefold_types::SessionId {
    let repository = reopen(memory, seed);
    let store = chunk_store_avoiding(&repository, containers(&repository));
    let mut stream = store.stream().unwrap();
    let root = put_directory(&repository, &mut stream, items);
    stream.finish().unwrap();
    store.finish().unwrap();
    save_root(&repository, root.reference)
}

#[test]
fn r15_copies_of_every_codec_are_the_same_bytes() {
    for suite in [Suite::Aes256Gcm, Suite::None] {
        for from in [Compression::None, Compression::Zstd(3), Compression::Lz4] {
            for to in [Compression::None, Compression::Zstd(3), Compression::Lz4] {
                copies_between(suite, from, to);
            }
        }
    }
}

/// Frames of one codec are copied into frames of another, the store's own one, or carried as they
/// are.
fn copies_between(suite: Suite, from: Compression, to: Compression) {
    // A bit more than half as much is dead as is live, and something else is mostly dead.
    for (goal, carried) in [(SpaceGoal::Everything, 0), (SpaceGoal::Unused(0.8), 1)] {
        copies_toward(goal, carried, suite, from, to);
    }
}

fn copies_toward(goal: SpaceGoal, carried: u64, suite: Suite, from: Compression, to: Compression) {
    let memory = MemoryStore::new();
    let options = onefold_engine::InitOptions {
        container_size_bytes: 128 * 1024,
        compression: to,
        ..init_options(suite)
    };
    let store = Arc::new(memory.clone());
    let repository =
        Repository::create(store, &options, Some(PASSWORD), environment(1), memory_plan())
            .map(Arc::new)
            .unwrap();
    let root = tempfile::tempdir().unwrap();
    let text: Vec<u8> = (0..40_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    std::fs::write(root.path().join("kept"), &text).unwrap();
    std::fs::write(root.path().join("gone"), random_bytes(5, 90_000)).unwrap();
    let save = |what| {
        let parent = onefold_engine::ingest::ParentChoice::None;
        let mut options = described(what, parent);
        options.compression = Some(from);
        let source = paths(root.path());
        onefold_engine::ingest::backup(&repository, source, &options, &job()).unwrap().snapshot
    };
    let both = save("both").unwrap();
    std::fs::remove_file(root.path().join("gone")).unwrap();
    let kept = save("kept").unwrap();
    let files = [file("little", 9_002, 10_000), file("much", 9_001, 200_000)];
    let mostly_dead = crate::steps::save(&repository, &files);
    crate::steps::save(&repository, &files[..1]);
    retention::forget_final(&repository, &[both, mostly_dead], "me").unwrap();
    let options = CollectOptions { goal, ..collect_options() };
    let report = collect(&repository, &options, &job()).unwrap();
    assert!(report.copied_chunks > 0, "{from:?} to {to:?}: {report:?}");
    assert_eq!(report.frames_carried, carried, "{from:?} to {to:?}: {report:?}");
    let content = content_of(&reopen(&memory, 3), kept).unwrap();
    assert!(content[&b"kept"[..]] == text);
    assert!(check_all(&repository).is_clean());
}

#[test]
fn r17_a_reader_that_was_open_before_reads_on_after_a_collection() {
    let scenario = Scenario::new(world(), [restores(), collects(), backs_up("x", "x")]);
    for step in 0..=scenario.steps()[0] {
        let segments = [Segment::Run(0, step), Segment::End(1), Segment::End(2), Segment::End(0)];
        scenario.must_hold(&segments, false);
    }
}

#[test]
fn r19_what_the_index_forgets_or_remembers_in_vain_changes_nothing_that_is_live() {
    let remaining = |spoil: fn(&MemoryStore)| {
        let mut saved = Saved::versions(Suite::None);
        let before = saved.memory.clone_state();
        spoil(&saved.memory);
        saved.repository = reopen(&saved.memory, 5);
        collect(&saved.repository, &collect_options(), &job()).unwrap();
        saved.assert_whole();
        assert!(wholly_dead(&saved.repository).is_empty());
        // Entries of containers that are gone come back, as after a crash before they were dropped.
        for name in names(&before, "index").into_iter().map(key) {
            if saved.memory.size(&name).is_err() {
                saved.memory.put(&name, &before.get(&name).unwrap()).unwrap();
            }
        }
        saved.repository = reopen(&saved.memory, 6);
        let again = collect(&saved.repository, &collect_options(), &job()).unwrap();
        assert_eq!(again.deleted_containers, 0, "{again:?}");
        saved.assert_whole();
        names(&saved.memory, "containers").len()
    };
    let honest = remaining(|_| {});
    let some = |memory: &MemoryStore| {
        let mut every_other = names(memory, "index").into_iter().step_by(2);
        assert!(every_other.all(|name| memory.remove(&key(name))));
    };
    assert_eq!(remaining(some), honest);
    let all = |memory: &MemoryStore| {
        assert!(names(memory, "index").into_iter().all(|name| memory.remove(&key(name))));
    };
    assert_eq!(remaining(all), honest);
}

#[test]
fn r20_a_damaged_container_holds_nothing_for_a_collection() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let first = saved.save(&[("a", 1, 90_000)]);
    // Its data rots, which a check finds out; the next backup stores it again beside other things.
    let rotten = *containers(&saved.repository).iter().next().unwrap();
    for id in containers(&saved.repository) {
        saved.memory.corrupt(&key(layout::container(id)), |bytes| {
            let middle = bytes.len() / 3;
            bytes[middle] ^= 1;
        });
    }
    assert!(!check_with(&saved.repository, ReadData::All).is_clean());
    saved.forget(&[first]);
    let mixed = saved.save(&[("a", 1, 90_000), ("b", 2, 30_000)]);
    let kept = saved.save(&[("a", 1, 90_000)]);
    saved.forget(&[mixed]);
    collect(&saved.repository, &collect_options(), &job()).unwrap();
    let content = content_of(&reopen(&saved.memory, 9), kept).unwrap();
    assert_eq!(content, saved.contents[&kept], "{rotten} was taken for a holder");
}

#[test]
fn an_epoch_that_opens_after_the_look_is_not_overlapped() {
    // The second collector has seen that nothing is open; then the first one decides an epoch,
    // and more is forgotten, so that there is something left to condemn.
    let scenario = Scenario::new(world(), [collects(), collects(), forgets("pq")]);
    scenario.must_hold(
        &[
            Segment::Until(1, ListNames, "plans"),
            Segment::Until(0, Delete, "containers"),
            Segment::End(2),
            Segment::End(1),
            Segment::End(0),
        ],
        false,
    );
}

#[test]
fn a_plan_that_condemns_the_same_and_knows_other_tombstones_is_another_plan() {
    let world = World::new();
    let dead = world.save("x", "x", 2);
    world.save("k", "k", 3);
    world.forget(dead);
    let tasks = [collects(), collects(), backs_up("x", "x"), reuses("x", "x"), forgets("x")];
    // The old session 2 commits in the open epoch; the young session 3 reuses its tree; then it is
    // forgotten, which collector 1 knows and the plan that won does not.
    Scenario::new(world, tasks).must_hold(
        &[
            Segment::Until(2, Decide, "outcomes"),
            Segment::Until(0, Put, "plans"),
            Segment::Until(1, ListDecided, "tombstones"),
            Segment::Run(0, 2),
            Segment::End(2),
            Segment::Until(3, Put, "containers"),
            Segment::End(4),
            Segment::End(1),
            Segment::End(3),
            Segment::End(0),
        ],
        false,
    );
}

#[test]
fn what_a_vanished_session_left_is_freed_by_whoever_grants_no_grace() {
    // No other garbage: no epoch would be decided, and nobody would fence the session.
    let world = World::new();
    world.save("k", "k", 3);
    world.source("x", "x");
    let scenario = Scenario::new(world, [backs_up("x", "x")]);
    for step in 0..=scenario.steps()[0] {
        scenario.must_hold(&[Segment::Run(0, step), Segment::Crash(0)], false);
    }
    let stopped = [Segment::Until(0, Decide, "outcomes"), Segment::Crash(0)];
    let run = scenario.world.run(&scenario.actors, &stopped, false);
    // Whoever has some leaves it alone at first, waits for it without result, and frees it then.
    let grace = std::time::Duration::from_millis(300);
    let patient = CollectOptions { grace, ..collect_options() };
    let began = std::time::Instant::now();
    let report = collect(&reopen(&run.store, 3_000_000), &patient, &job()).unwrap();
    assert!(began.elapsed() >= grace);
    assert_eq!(report.fenced, 1, "{report:?}");
    assert!(report.deleted_containers > 0, "{report:?}");
    assert_eq!(report.containers_in_use, 0, "{report:?}");
}

#[test]
fn r58_a_sound_chunk_does_not_go_because_a_rotten_one_stays() {
    for goal in [SpaceGoal::Everything, SpaceGoal::Unused(0.05), SpaceGoal::DeadOnly] {
        let mut saved = Saved::new(Suite::Aes256Gcm);
        // More than a frame of what is held twice, so that one frame holds nothing else.
        let first = saved.save(&[("a", 1, 400_000), ("b", 2, 90_000)]);
        let items = [file("a", 1, 400_000), file("c", 3, 90_000)];
        let twice = put_items_with_nothing_known(&saved.memory, 2, &items);
        let content = content_of(&saved.repository, twice).unwrap();
        saved.contents.insert(twice, content);
        saved.forget(&[first]);
        let before = containers(&saved.repository);
        let mut rotten = 0;
        for id in &before {
            // A byte of its first frame; nobody has read it since.
            let memory = saved.memory.clone_state();
            assert!(memory.corrupt(&key(layout::container(*id)), |bytes| {
                bytes[HEADER_BYTES + 100] ^= 1;
            }));
            if content_of(&reopen(&memory, 6), twice).is_err() {
                continue;
            }
            let options = CollectOptions { goal, ..collect_options() };
            // It may refuse, if what it was to copy has rotten; it may not lose anything.
            let collected = collect(&reopen(&memory, 7), &options, &job());
            let after = content_of(&reopen(&memory, 8), twice).unwrap();
            assert_eq!(&after, &saved.contents[&twice], "{goal:?}: {collected:?}");
            let quarantine = onefold_engine::session::quarantine::load_ids(&reopen(&memory, 9));
            rotten += usize::from(!quarantine.unwrap().is_empty());
        }
        // The one that was to be relied upon, unless its copy stays anyway.
        assert!(rotten > 0 || goal == SpaceGoal::DeadOnly, "{goal:?}: no rot was met");
    }
}
