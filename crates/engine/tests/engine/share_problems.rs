//! What is written down of problems of a share, up to its bounds and beyond them.

use crate::ingest::{in_memory, random_bytes};
use crate::shares::World;
use onefold_engine::Job;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::primary::problems::{MORE, PATH_MAX_BYTES, PROBLEMS_MAX_BYTES};
use onefold_engine::primary::scrub::{WRITTEN_DOWN_MAX, scrub};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, limits};
use std::collections::BTreeSet;
use std::fs;

/// A file of one chunk, and no map of chunks.
const FILE_BYTES: usize = 1000;

#[test]
fn behind_the_bound_of_problems_it_is_written_down_once_that_there_are_more() {
    let Some(world) = World::new() else { return };
    let share = world.share();
    // A line with its end takes a part of the bound, so that the last one reaches it.
    let line = |number: u64| format!("{number:0width$}", width = 1023);
    let most = PROBLEMS_MAX_BYTES / 1024;
    for number in 0..most - 1 {
        share.note_problem(&line(number)).unwrap();
    }
    assert_eq!(share.problems().unwrap().len() as u64, most - 1, "all of these have room");
    for number in most - 1..most + 3 {
        share.note_problem(&line(number)).unwrap();
    }
    let told = share.problems().unwrap();
    assert_eq!(told.len() as u64, most + 1);
    assert_eq!(told.last().map(String::as_str), Some(MORE));
    // What is taken out makes room, and nobody knows any more whether there are others.
    share.settle_problems(&mut |one| one != line(7), &[]).unwrap();
    let left = share.problems().unwrap();
    assert_eq!(left.len() as u64, most - 1);
    assert!(!left.contains(&MORE.to_owned()) && !left.contains(&line(7)));
    share.settle_problems(&mut |_| true, &[line(7), line(most)]).unwrap();
    let again = share.problems().unwrap();
    assert_eq!((again.len() as u64, again.last().map(String::as_str)), (most + 1, Some(MORE)));
}

#[test]
fn what_is_met_again_is_written_down_once() {
    let Some(world) = World::new() else { return };
    let share = world.share();
    let length = || fs::metadata(world.path(".onefold-share/problems")).unwrap().len();
    let met = ["one".to_owned(), "another".to_owned()];
    share.settle_problems(&mut |_| true, &met).unwrap();
    let once = length();
    share.settle_problems(&mut |_| true, &met).unwrap();
    assert_eq!((once, length()), (12, 12));
}

#[test]
fn one_damaged_file_more_than_a_scrub_writes_down_is_said_to_be_more() {
    let (memory, store) = in_memory();
    let Some(world) = World::over(store) else { return };
    let bytes = |number: usize| random_bytes(number as u64, FILE_BYTES);
    for number in 0..=WRITTEN_DOWN_MAX {
        fs::write(world.path(&format!("{number:04}")), bytes(number)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(world.optimize().emptied.files, WRITTEN_DOWN_MAX as u64 + 1);
    let repository = world.repository();
    let reader = ChunkReader::open(&repository).unwrap();
    let holder = |number| {
        let fingerprint = repository.fingerprinter().data(&bytes(number));
        reader.locate(&fingerprint).unwrap().container
    };
    let holders: BTreeSet<ContainerId> = (0..=WRITTEN_DOWN_MAX).map(holder).collect();
    let spoil = |bytes: &mut Vec<u8>| bytes.iter_mut().skip(100).step_by(500).for_each(|b| *b ^= 1);
    for holder in holders {
        assert!(memory.corrupt(&Key::new(layout::container(holder)).unwrap(), spoil));
    }
    let report = scrub(&world.repository(), &world.share(), 1.0, &Job::unattended().0).unwrap();
    assert_eq!(report.damaged, WRITTEN_DOWN_MAX as u64 + 1);
    let told = world.share().problems().unwrap();
    assert_eq!(told.len(), WRITTEN_DOWN_MAX + 1);
    assert_eq!(told.last().map(String::as_str), Some(MORE));
    // One that is gone leaves as many as are written down.
    fs::remove_file(world.path("0000")).unwrap();
    world.optimize();
    scrub(&world.repository(), &world.share(), 1.0, &Job::unattended().0).unwrap();
    let told = world.share().problems().unwrap();
    assert_eq!((told.len(), told.contains(&MORE.to_owned())), (WRITTEN_DOWN_MAX, false));
}

#[test]
fn a_scrub_goes_on_in_the_deepest_directory_and_what_is_told_of_it_is_not_over() {
    let Some(world) = World::new() else { return };
    let share = world.share();
    let name = "n".repeat(255);
    let path = format!("/{name}").repeat(limits::DEPTH_MAX);
    let cursor = format!("1 {} {}\n{path}", u64::MAX, "ab".repeat(32));
    share.set_scrub_cursor(cursor.as_bytes()).unwrap();
    assert!(share.scrub_cursor().unwrap() == cursor.as_bytes(), "it was cut off");
    // No system call takes its path, so nobody knows whether it is there.
    for (length, is_over) in [(PATH_MAX_BYTES, true), (PATH_MAX_BYTES + 1, false)] {
        // Without the slash in front of it.
        let line = format!("{}: is damaged", &path[..length]);
        assert_eq!(share.is_over(&line), is_over, "{length}");
    }
}
