//! Shares at their bounds: one less or as much, and one more.

use crate::bounds::{Content, save_files};
use crate::ingest::{in_memory, random_bytes};
use crate::shares::{World, options};
use crate::steps::root_of;
use onefold_engine::Job;
use onefold_engine::primary::hot_chunks::HOT_FILES_MIN;
use onefold_engine::primary::rehydrate::{PASSES_MAX, RehydrateReport, rehydrate};
use onefold_engine::primary::second_copies::{self, FILE_CHUNKS_MAX};
use onefold_engine::primary::turns::{self, FILE_BYTES_MAX, Partitions};
use onefold_engine::stub;
use onefold_format::layout;
use onefold_store::layers::{Fault, Faulty};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Of more than one frame, so that each is read for itself.
const STUB_BYTES: usize = 500_000;

/// Where a stub is once what is above it was moved so often: `m`, beside which `z` is moved to `b`.
fn above(moves: usize) -> PathBuf {
    ["b"].iter().cycle().take(moves).collect()
}

/// Whether what is read back there is an ordinary file.
fn is_ordinary(path: &Path) -> bool {
    stub::value_at(path).unwrap().is_none()
}

/// Brings a share back in which, in each of the first passes, something is moved to where the pass
/// was already.
fn rehydrated_with(moving_passes: usize) -> Option<(World, RehydrateReport)> {
    let mut world = World::over(in_memory().1)?;
    for level in 0..=PASSES_MAX {
        let directory: PathBuf = ["z"].iter().cycle().take(level).collect();
        let name = directory.join("m");
        let path = world.path(name.to_str().unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, random_bytes(level as u64, STUB_BYTES)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(world.optimize().emptied.files, PASSES_MAX as u64 + 1);
    let (top, share, moves) = (world.directory.path().to_owned(), world.share(), Mutex::new(0));
    // Manifests are read first, to see which stubs were lost. The first pass begins at the first
    // stub.
    let before = stub::value_at(&top.join("m")).unwrap();
    let has_begun = move |top: &Path| stub::value_at(&top.join("m")).unwrap() != before;
    world.store = Arc::new(Faulty::scripted(Arc::clone(&world.store), move |call| {
        let mut moves = moves.lock().unwrap();
        let is_back = |level| is_ordinary(&top.join(above(level)).join("m"));
        // Once a pass: when the first bytes of its stub are asked for.
        if call.name.starts_with(layout::CONTAINERS)
            && (*moves > 0 || has_begun(&top))
            && *moves < moving_passes
            && (0..*moves).all(is_back)
        {
            let _held = share.note_move().unwrap();
            let directory = top.join(above(*moves));
            fs::rename(directory.join("z"), directory.join("b")).unwrap();
            *moves += 1;
        }
        Fault::None
    }));
    let (repository, options, job) = (world.repository(), options(), Job::unattended().0);
    let mut collect = || Ok(());
    let report = rehydrate(&repository, &world.share(), &options, &mut collect, &job).unwrap();
    assert_eq!((report.open, report.errors), (0, 0));
    Some((world, report))
}

#[test]
fn what_is_moved_in_every_pass_but_the_last_comes_back_and_in_one_more_keeps_its_data() {
    let all = PASSES_MAX as u64 + 1;
    let Some((_, report)) = rehydrated_with(PASSES_MAX - 1) else { return };
    assert_eq!((report.files, report.manifests_kept), (all, 0));
    let Some((world, report)) = rehydrated_with(PASSES_MAX) else { return };
    assert_eq!((report.files, report.manifests_kept), (all - 1, 1));
    world.collect();
    let left = above(PASSES_MAX).join("m");
    world.assert_holds(left.to_str().unwrap(), &random_bytes(PASSES_MAX as u64, STUB_BYTES));
}

#[test]
fn of_a_large_file_as_many_chunks_count_towards_hot_ones_as_are_looked_at() {
    let most = FILE_CHUNKS_MAX as u32;
    for (last, is_hot) in [(most - 1, true), (most, false)] {
        let Some(world) = World::new() else { return };
        let mut files = vec![("a".to_owned(), Content::Tiny(0..last + 1))];
        let others = (1..HOT_FILES_MIN).map(|number| format!("b{number:03}"));
        files.extend(others.map(|name| (name, Content::Tiny(last..last + 1))));
        let repository = world.repository();
        let root = root_of(&repository, save_files(&repository, &files));
        let (options, job) = (options(), Job::unattended().0);
        let by = (&options.backup, "test");
        let kept = second_copies::keep(&repository, &world.share(), &[root], by, &job).unwrap();
        assert_eq!(kept.chunks, u64::from(is_hot));
    }
}

#[test]
fn a_file_with_a_hole_counts_as_much_as_the_largest_towards_parts_by_path_and_no_more() {
    let Some(world) = World::new() else { return };
    for name in ["b/file", "c/file"] {
        world.write(name, b"");
        File::create(world.path(name)).unwrap().set_len(FILE_BYTES_MAX).unwrap();
    }
    world.write("a", b"");
    // If all of the third counted, the two others would be small enough to stay together.
    let divided = Partitions::Path { share_max: 0.4 };
    for bytes in [FILE_BYTES_MAX, FILE_BYTES_MAX + 1, 8 * FILE_BYTES_MAX] {
        let file = File::create(world.path("a")).unwrap();
        if let Err(error) = file.set_len(bytes) {
            eprintln!("SKIPPED: files of {bytes} bytes were not tested: {error}");
            continue;
        }
        let job = Job::unattended().0;
        let (turns, errors) = turns::plan(&world.share(), divided, &job).unwrap();
        assert_eq!((turns.len(), errors), (3, 0), "{bytes}");
    }
}
