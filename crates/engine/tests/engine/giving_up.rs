//! What goes on changing, or cannot be had, while somebody looks at it: whoever waits for two lists
//! that agree gives up and says so; nothing counts as lost that was only busy, and what is a copy
//! costs speed.

use crate::steps::*;
use onefold_engine::Repository;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::index::current::CATCH_UPS_MAX;
use onefold_engine::index::rebuild::replay;
use onefold_engine::session::decided::{self, LISTS_MAX};
use onefold_engine::statistics::statistics;
use onefold_format::layout;
use onefold_store::layers::{Call, Fault, Faulty, Operation};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{ContainerId, ErrorKind, Fingerprint};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store that shows another new name in those lists of a directory, counted from 0.
fn growing(
    memory: &MemoryStore,
    directory: &'static str,
    grows: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Arc<Repository> {
    let (inner, counter) = (memory.clone(), AtomicU64::new(0));
    let store = Faulty::scripted(memory.clone(), move |call| {
        let is_list = matches!(
            call.operation,
            Operation::List | Operation::ListNames | Operation::ListDecided
        );
        if is_list && call.name == directory {
            let number = counter.fetch_add(1, Ordering::Relaxed);
            let name = format!("{directory}/{number:032x}");
            let name =
                if directory == layout::SESSIONS { format!("{name}/announced") } else { name };
            if grows(number) {
                inner.put(&key(name), b"new").unwrap();
            }
        }
        Fault::None
    });
    open_on(Arc::new(store), 7).unwrap()
}

/// A store that fails like a bad sector.
fn failing(
    memory: &MemoryStore,
    is_hit: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
) -> Arc<Repository> {
    let store = Faulty::scripted(memory.clone(), move |call| match is_hit(call) {
        true => Fault::Before(ErrorKind::Io),
        false => Fault::None,
    });
    open_on(Arc::new(store), 7).unwrap()
}

#[test]
fn r62_a_directory_that_never_stands_still_is_an_error_and_not_a_short_list() {
    let (memory, repository) = create();
    save(&repository, &[file("a", 1, 20_000)]);
    // The last list that is taken shows nothing new: that is enough.
    let most = LISTS_MAX as u64 - 1;
    let calm = growing(&memory.clone_state(), layout::OUTCOMES, move |list| list < most);
    assert_eq!(decided::all_names(&calm, layout::OUTCOMES).unwrap().len() as u64, 1 + most);
    let busy = growing(&memory, layout::OUTCOMES, move |list| list <= most);
    let error = decided::all_names(&busy, layout::OUTCOMES).unwrap_err();
    let is_busy = error.kind() == ErrorKind::Unavailable;
    assert!(is_busy && error.to_string().contains("try again"), "{error}");
}

#[test]
fn r62_a_collection_that_never_knows_all_sessions_condemns_nothing() {
    let (memory, repository) = create();
    let dead = save(&repository, &[file("a", 1, 20_000)]);
    save(&repository, &[file("b", 2, 20_000)]);
    onefold_engine::retention::forget_final(&repository, &[dead], "me").unwrap();
    let before = containers(&repository);
    let busy = growing(&memory, layout::SESSIONS, |_| true);
    let options = CollectOptions { grace: Duration::ZERO, ..CollectOptions::default() };
    let error = collect(&busy, &options, &job()).unwrap_err();
    assert!(error.to_string().contains("try again"), "{error}");
    assert_eq!(containers(&reopen(&memory, 9)), before);
}

#[test]
fn r69_a_chunk_that_is_missed_while_the_index_changes_is_not_called_lost() {
    let (memory, repository) = create();
    save(&repository, &[file("a", 1, 20_000)]);
    let missing = Fingerprint([7; 32]);
    let changes = |times: u64| {
        // To ask whether there are other runs takes two lists that agree, and so does opening the
        // index at first: it changes each time that it is asked for.
        let grows = move |list| list % 2 == 0 && (1..=times).contains(&(list / 2));
        let repository = growing(&memory.clone_state(), layout::INDEX, grows);
        ChunkReader::open(&repository).unwrap().locate(&missing).unwrap_err()
    };
    for times in [0, CATCH_UPS_MAX as u64 - 1] {
        let lost = changes(times);
        assert!(lost.is_lost(), "{lost}");
    }
    let busy = changes(CATCH_UPS_MAX as u64);
    assert!(
        busy.kind() == ErrorKind::Unavailable && busy.to_string().contains("try again"),
        "{busy}"
    );
}

#[test]
fn r69_an_index_whose_runs_change_all_the_time_is_not_called_damaged() {
    // RETRIES_MAX in index/run_list.rs lists; two that agree are needed.
    let (memory, repository) = create();
    save(&repository, &[file("a", 1, 20_000)]);
    for (changes, is_open) in [(14, true), (15, false)] {
        let grows = move |list| (1..=changes).contains(&list);
        let repository = growing(&memory.clone_state(), layout::INDEX, grows);
        let outcome = onefold_engine::index::run_list::list_runs(&repository);
        let busy = outcome.as_ref().is_err_and(|error| {
            error.kind() == ErrorKind::Unavailable && error.to_string().contains("try again")
        });
        assert_eq!((outcome.is_ok(), busy), (is_open, !is_open), "{changes}: {outcome:?}");
    }
}

#[test]
fn r90_slots_that_vanish_whenever_they_are_read_end_the_opening() {
    // LOOKS_MAX in repository/slots.rs looks: once less than that a slot is gone, and as often.
    for (losses, is_open) in [(3, true), (4, false)] {
        let (memory, _) = create();
        let looks = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&looks);
        let store = Faulty::scripted(memory.clone(), move |call| {
            let is_read = matches!(call.operation, Operation::Get | Operation::GetTail);
            let is_slot = call.name.starts_with("keys/");
            let is_first = !call.name.ends_with(".copy");
            if is_read && is_slot && seen.load(Ordering::Relaxed) < losses {
                // Both copies are read in each look; the second one ends it.
                seen.fetch_add(u64::from(!is_first), Ordering::Relaxed);
                return Fault::Before(ErrorKind::NotFound);
            }
            Fault::None
        });
        let opened = open_on(Arc::new(store), 7).map(|_| ());
        assert_eq!(opened.is_ok(), is_open, "{losses} losses: {opened:?}");
        assert_eq!(looks.load(Ordering::Relaxed), losses);
    }
}

#[test]
fn r88_of_decisions_without_a_second_copy_so_many_are_told() {
    // TOLD_MAX in repository/uncopied.rs, and one more.
    let (memory, _) = create();
    let store = Faulty::scripted(memory.clone(), |call| {
        let is_write = matches!(call.operation, Operation::Put | Operation::Decide);
        match is_write && call.name.starts_with("copies/outcomes/") {
            true => Fault::Before(ErrorKind::Io),
            false => Fault::None,
        }
    });
    let repository = open_on(Arc::new(store), 7).unwrap();
    for (saved, told) in [(15, 15), (1, 1), (16, 16), (17, 16)] {
        for _ in 0..saved {
            save(&repository, &[file("a", 1, 100)]);
        }
        assert_eq!(repository.uncopied().take().len(), told);
    }
}

#[test]
fn r65_packs_that_are_gone_at_once_cost_speed_only() {
    // Once less than TRIES_MAX in index/append.rs, and as often.
    for (losses, is_kept) in [(0, true), (2, true), (3, false)] {
        let (memory, _) = create();
        let puts = AtomicU64::new(0);
        let store = Faulty::scripted(memory.clone(), move |call| {
            let is_pack =
                call.operation == Operation::Put && call.name.starts_with(layout::METADATA);
            match is_pack && puts.fetch_add(1, Ordering::Relaxed) % 4 < losses {
                true => Fault::Lose,
                false => Fault::None,
            }
        });
        let forgetful = open_on(Arc::new(store), 7).unwrap();
        put_with(&forgetful, |stream| {
            put_file(&forgetful, stream, &random_bytes(1, 20_000)).unwrap()
        });
        let packs = names(&memory, layout::METADATA).len();
        assert_eq!(packs > 0, is_kept, "{losses} losses: {packs} packs");
        save(&reopen(&memory, 9), &[file("b", 2, 20_000)]);
        assert!(check_all(&reopen(&memory, 8)).is_clean());
    }
}

#[test]
fn r65_packs_go_only_for_one_that_is_there() {
    let (memory, repository) = create();
    // More small packs than are left alone (PACKS_SMALL_MAX in collection/cleaning.rs).
    for seed in 0..20 {
        save(&repository, &[file("a", seed, 9_000)]);
    }
    let before = names(&memory, layout::METADATA);
    assert!(before.len() > 16, "{} packs", before.len());
    let full = Faulty::scripted(memory.clone(), |call| {
        let is_pack = call.operation == Operation::Put && call.name.starts_with(layout::METADATA);
        if is_pack { Fault::Lose } else { Fault::None }
    });
    collect(&open_on(Arc::new(full), 7).unwrap(), &CollectOptions::default(), &job()).unwrap();
    assert_eq!(names(&memory, layout::METADATA), before, "what was to be replaced is there");
    collect(&reopen(&memory, 8), &CollectOptions::default(), &job()).unwrap();
    assert!(names(&memory, layout::METADATA).len() < before.len());
}

#[test]
fn r65_packs_that_cannot_be_listed_are_named_and_stop_nothing() {
    let (memory, repository) = create();
    save(&repository, &[file("a", 1, 20_000)]);
    let sound = statistics(&repository, &job()).unwrap();
    let failing = failing(&memory, |call| {
        call.operation == Operation::ListNames && call.name == layout::METADATA
    });
    assert_eq!(statistics(&failing, &job()).unwrap(), sound);
    let report = check_all(&failing);
    assert!(report.problems.len() == 1 && report.problems[0].contains("packs"), "{report:?}");
}

#[test]
fn r65_a_container_that_cannot_be_read_does_not_hide_the_others_from_a_replay() {
    let (memory, repository) = create();
    save(&repository, &[file("a", 1, 20_000)]);
    save(&repository, &[file("b", 2, 20_000)]);
    for name in [names(&memory, layout::INDEX), names(&memory, layout::METADATA)].concat() {
        memory.remove(&key(name));
    }
    let bad = containers(&repository).into_iter().next().unwrap();
    let failing = failing(&memory, move |call| call.name == layout::container(bad));
    let index = onefold_engine::index::FingerprintIndex::open(&failing).unwrap();
    let replayed = replay(&failing, &index, &job()).unwrap();
    assert_eq!(replayed.unreadable, 1);
    assert_eq!(replayed.containers, containers(&repository).len() as u64 - 1);
    let missed_in = index.opened().generation();
    assert!(index.catch_up(&failing, missed_in).unwrap());
}

#[test]
fn what_a_check_does_not_list_it_counts() {
    // More than LINES_MAX in check.rs.
    let (memory, repository) = create();
    save(&repository, &[file("a", 1, 20_000)]);
    for number in 0..1003_u64 {
        let name = layout::fate(onefold_types::MarkId(u128::from(number).to_le_bytes()));
        memory.put(&key(layout::copy_of(&name)), b"rot").unwrap();
    }
    let report = check_all(&repository);
    assert_eq!((report.problems.len(), report.problems_more), (1000, 3));
    assert!(!report.is_clean());
}

#[test]
fn i13_a_chunk_that_the_device_does_not_give_is_read_elsewhere_and_is_not_lost() {
    let (memory, repository) = create();
    let bytes = random_bytes(1, 3_000);
    let fingerprint = repository.fingerprinter().data(&bytes);
    for _ in 0..2 {
        let store = chunk_store_avoiding(&repository, containers(&repository));
        let mut stream = store.stream().unwrap();
        put_chunk(&mut stream, fingerprint, &bytes);
        stream.finish().unwrap();
        store.finish().unwrap();
    }
    let refused = Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let names = Arc::clone(&refused);
    let failing =
        failing(&memory, move |call| names.lock().unwrap().iter().any(|name| name == call.name));
    let instances: Vec<_> = containers(&repository).into_iter().collect();
    assert_eq!(instances.len(), 2);
    let refuse = |ids: &[ContainerId]| {
        *refused.lock().unwrap() = ids.iter().map(|id| layout::container(*id)).collect();
    };
    // Knows where both instances are, and has read neither.
    let reader = || {
        refuse(&[]);
        let reader = ChunkReader::apart(&failing).unwrap();
        let known = instances.iter().filter_map(|id| reader.locate_in(*id, &fingerprint).unwrap());
        assert_eq!(known.count(), 2);
        reader
    };
    for id in &instances {
        let reader = reader();
        refuse(&[*id]);
        assert_eq!(*reader.read(&fingerprint).unwrap(), bytes[..]);
    }
    let reader = reader();
    refuse(&instances);
    assert_eq!(reader.read(&fingerprint).unwrap_err().kind(), ErrorKind::Io);
    // It was in the way, not lost, and nobody remembers it.
    refuse(&instances[..1]);
    assert_eq!(*reader.read(&fingerprint).unwrap(), bytes[..]);
}

#[test]
fn i13_of_many_readers_that_want_a_frame_at_once_one_reads_it() {
    const READERS: usize = 8;
    let (memory, repository) = create();
    let bytes = random_bytes(1, 3_000);
    let fingerprint = repository.fingerprinter().data(&bytes);
    put_with(&repository, |stream| put_chunk(stream, fingerprint, &bytes));
    // A device that is slow enough for all of them to ask before the first has an answer.
    let slow = Faulty::scripted(memory.clone(), |call| {
        if call.name.starts_with(layout::CONTAINERS) {
            std::thread::sleep(Duration::from_millis(50));
        }
        Fault::None
    });
    let reader = ChunkReader::open(&open_on(Arc::new(slow), 7).unwrap()).unwrap();
    reader.locate(&fingerprint).unwrap();
    let together = std::sync::Barrier::new(READERS);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                together.wait();
                assert_eq!(*reader.read(&fingerprint).unwrap(), bytes[..]);
            });
        }
    });
    assert_eq!(reader.counters().frames, 1);
}
