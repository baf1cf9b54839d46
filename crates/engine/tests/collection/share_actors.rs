//! What actors do with a share: the job, whoever uses its mount, and the way back.

use crate::share_files::*;
use crate::steps::*;
use crate::world::*;
use onefold_engine::collection::collect;
use onefold_engine::primary::optimize::{OptimizeOptions, optimize};
use onefold_engine::primary::rehydrate::rehydrate;
use onefold_engine::stub::{self, StubFile};
use onefold_engine::tree::TreeReader;
use onefold_engine::{Job, Observer, Repository};
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_types::environment::SeededRandomness;
use onefold_types::{Error, Result};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// The share of the run.
pub type Files = Arc<SharedFiles>;

/// Makes a step wherever the walk meets a mark.
struct Walking(Arc<Repository>);

impl Observer for Walking {
    // What changes while it is looked at is left for a later run.
    fn problem(&self, _: &str, _: &Error) {}

    fn item(&self, path: &str, what: &'static str) {
        if let (Some(mark), "excluded") = (Path::new(path).file_stem(), what) {
            let _ = pause(&self.0, &format!("walk/{}", mark.to_string_lossy()));
        }
    }
}

/// Runs the job once.
pub fn optimizes(files: &Files) -> Task {
    optimizes_what(files, None)
}

/// Runs the job when no file is cold: stubs that were written to stay what they are.
pub fn optimizes_nothing(files: &Files) -> Task {
    optimizes_what(files, Some(ColdFiles { modified_before_ns: 0, size_min_bytes: 1 }))
}

fn optimizes_what(files: &Files, cold: Option<ColdFiles>) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |world, repository| {
        let job = Job { observer: Arc::new(Walking(Arc::clone(repository))), ..job() };
        let options = OptimizeOptions { cold, ..optimize_options() };
        let report = optimize(repository, &files.share()?, &options, &job)?;
        world.count("files emptied", report.emptied.files);
        world.count("manifests forgotten", report.manifests_forgotten);
        world.count("manifests kept", report.manifests_kept);
        Ok(())
    })
}

/// Brings everything back, as far as nobody has it open.
pub fn rehydrates(files: &Files) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |world, repository| {
        let mut collects = || collect(repository, &collect_options(), &job()).map(drop);
        let (share, options) = (files.share()?, optimize_options());
        let report = rehydrate(repository, &share, &options, &mut collects, &job())?;
        world.count("files brought back", report.files);
        Ok(())
    })
}

/// Reads every file and compares it with what it must hold.
pub fn recalls(files: &Files) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |world, repository| {
        let tree = Arc::new(TreeReader::open(repository)?);
        for name in files.names() {
            let Some(file) = files.enter(&tree, &name, false)? else { continue };
            pause(repository, "recall/open")?;
            match file.read() {
                Ok(true) => world.count("files read", 1),
                Ok(false) => {
                    return Err(Error::damaged(format!("{name} is lost: it has other bytes")));
                }
                Err(error) => return Err(Error::damaged(format!("{name} is lost: {error}"))),
            }
            file.close()?;
        }
        Ok(())
    })
}

/// Opens a file, calls `change`, and closes it, with others between.
fn changes(
    files: &SharedFiles,
    repository: &Arc<Repository>,
    name: &str,
    change: impl FnOnce(&Entered<'_>) -> Result<()>,
) -> Result<()> {
    let tree = Arc::new(TreeReader::open(repository)?);
    pause(repository, "work/enter")?;
    let Some(file) = files.enter(&tree, name, true)? else { return Ok(()) };
    pause(repository, "work/open")?;
    change(&file)?;
    pause(repository, "work/close")?;
    file.close()
}

/// Writes into stubs and files, cuts one and makes it longer again.
pub fn writes(files: &Files) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |_, repository| {
        let change = |name: &str, offset, seed| {
            let bytes = random_bytes(seed, 3000);
            changes(&files, repository, name, |file| file.write(offset, &bytes))
        };
        change("a/cold", 70_000, 1)?;
        changes(&files, repository, "b/tail", |file| {
            file.set_len(30_000)?;
            file.set_len(69_000)
        })?;
        change("c/new", 10_000, 2)?;
        change("b/tail", 69_000, 3)?;
        change("c/same", 0, 4)
    })
}

/// The first granule of a stub comes back; the stub says so before its data is there, unless
/// `keeps_order`.
pub fn recalls_granule(files: &Files, keeps_order: bool) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |_, repository| {
        let failed = |error| Error::io("opening it", error);
        let opened = File::options().read(true).write(true).open(files.path("a/cold"));
        let file = opened.map_err(failed)?;
        let inode = file.metadata().map_err(failed)?.ino();
        let tree = Arc::new(TreeReader::open(repository)?);
        let again = file.try_clone().map_err(failed)?;
        let (Some(value), Some(stub)) = (stub::value(&file)?, StubFile::open(&tree, again)?) else {
            return Ok(());
        };
        let (owner, mut known) = stub::open(repository, inode, &value)?;
        let granule = known.range_of(0);
        if keeps_order {
            stub.recall(granule, &|| Ok(true))?;
            return pause(repository, "work/bit");
        }
        let mut bytes = vec![0; granule.end as usize];
        stub.read_at(0, &mut bytes)?;
        known.set_recalled(0);
        stub::write(repository, owner, &file, &known)?;
        pause(repository, "work/bit")?;
        file.write_all_at(&bytes, 0).map_err(failed)
    })
}

/// Moves a stub to where a walk may have been already.
pub fn moves(files: &Files, is_told: bool) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |_, repository| {
        pause(repository, "work/move")?;
        files.rename(&files.share()?, "b/moved", "a/moved", is_told)
    })
}

/// Moves a directory, replaces a file by another one, and removes one.
pub fn rearranges(files: &Files) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |_, repository| {
        let share = files.share()?;
        pause(repository, "work/move")?;
        files.rename(&share, "c", "a/c", true)?;
        pause(repository, "work/move")?;
        files.rename(&share, "b/moved", "a/cold", true)?;
        pause(repository, "work/remove")?;
        files.remove(&share, "b/tail")?;
        pause(repository, "work/move")?;
        files.rename(&share, "b", "a/b", true)
    })
}

/// Does some of all that programs do, by chance.
pub fn works(files: &Files, seed: u64) -> Task {
    let files = Arc::clone(files);
    Arc::new(move |_, repository| {
        let randomness = SeededRandomness::new(seed ^ 0x0f11e5);
        let share = files.share()?;
        for change in 0..5 {
            pause(repository, "work")?;
            let names = files.names();
            let below = |bound: u64| randomness.below(bound.max(1));
            let name = &names[below(names.len() as u64) as usize];
            let inner = ["a", "b", "c"][below(3) as usize];
            let fresh = format!("{inner}/{seed}-{change}");
            match below(9) {
                0 if names.len() > 3 => files.remove(&share, name)?,
                1 => files.rename(&share, name, &fresh, true)?,
                2 => {
                    files.rename(&share, name, &names[below(names.len() as u64) as usize], true)?
                }
                3 => files.make(&fresh, random_bytes(seed + change, 20_000))?,
                4 => files.link(&share, name, &fresh)?,
                5 => changes(&files, repository, name, |file| {
                    file.set_len(below(file.length()? + 20_000))
                })?,
                _ => changes(&files, repository, name, |file| {
                    let offset = below(file.length()? + 1);
                    file.write(offset, &random_bytes(seed + change, 1 + below(30_000) as usize))
                })?,
            }
        }
        Ok(())
    })
}
