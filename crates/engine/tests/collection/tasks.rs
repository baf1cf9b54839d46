//! What actors do.

use crate::steps::*;
use crate::world::*;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::ingest::{BackupOptions, ParentChoice, Source, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::session::{SnapshotList, tombstones};
use onefold_engine::synthesis::{Element, SynthesisOptions, fastcopy, synthesize};
use onefold_engine::{Repository, check, retention};
use onefold_types::{ErrorKind, Result, SessionId};
use std::sync::Arc;

/// Backs a source up without looking at what was saved before.
pub fn backs_up(name: &'static str, files: &'static str) -> Task {
    backs_up_from(name, files, ParentChoice::None)
}

/// Backs a source up by reuse of its newest snapshot.
pub fn reuses(name: &'static str, files: &'static str) -> Task {
    backs_up_from(name, files, ParentChoice::Newest)
}

fn backs_up_from(name: &'static str, files: &'static str, parent: ParentChoice) -> Task {
    Arc::new(move |world, repository| {
        let options = described(&world.describe(files), parent);
        let report = backup(repository, paths(&world.path(name)), &options, &job())?;
        report.snapshot.into_iter().for_each(is_saved);
        Ok(())
    })
}

/// Backs a stream up; the bytes are those of one file.
pub fn streams(file: &'static str) -> Task {
    Arc::new(move |world, repository| {
        let options = described(&world.describe(file), ParentChoice::None);
        let letter = file.as_bytes()[0];
        let source = Source::Stream {
            name: vec![letter],
            reader: Box::new(std::io::Cursor::new(random_bytes(u64::from(letter), 20_000))),
            finish: Box::new(|| Ok(())),
        };
        let report = backup(repository, source, &options, &job())?;
        report.snapshot.into_iter().for_each(is_saved);
        Ok(())
    })
}

/// Forgets all snapshots with this description that there are when it looks.
pub fn forgets(files: &'static str) -> Task {
    Arc::new(move |_, repository| {
        let list = SnapshotList::load(repository)?;
        let matching = list.snapshots.iter().filter(|one| one.record.description == files);
        let ids: Vec<SessionId> = matching.map(|one| one.id).collect();
        retention::forget_final(repository, &ids, "me")
    })
}

pub fn forgets_and_collects(files: &'static str) -> Task {
    let (forgets, collects) = (forgets(files), collects());
    Arc::new(move |world, repository| {
        forgets(world, repository)?;
        collects(world, repository)
    })
}

pub fn collects() -> Task {
    collects_with(collect_options())
}

/// Collects, and packs anew what no collection has packed yet.
pub fn repacks() -> Task {
    collects_with(CollectOptions { repack_level: Some(3), ..collect_options() })
}

pub fn collects_with(options: CollectOptions) -> Task {
    Arc::new(move |world, repository| {
        let report = collect(repository, &options, &job())?;
        world.count("frames carried", report.frames_carried);
        world.count("deltas made by packing anew", report.deltas_made);
        world.count("collections of several epochs", u64::from(report.epochs > 1));
        Ok(())
    })
}

/// Reads all snapshots that there are when it begins; one may be forgotten while it reads.
pub fn restores() -> Task {
    Arc::new(move |world, repository| {
        let list = SnapshotList::load(repository)?;
        for snapshot in &list.snapshots {
            match content_of(repository, snapshot.id) {
                Ok(content) => {
                    assert_eq!(world.expected(&snapshot.record.description), Some(content));
                }
                Err(_) if tombstones::is_forgotten(repository, snapshot.id)? => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}

/// Backs the files up as users do by default on a device that seeks, each as a source of its own:
/// the look-up and rewriting choose for themselves, in two streams.
pub fn backs_up_by_default(name: &'static str, files: &'static str) -> Task {
    Arc::new(move |world, repository| {
        let options = BackupOptions {
            lookup: LookupChoice::Auto,
            rewrite: "auto,loss=2".parse()?,
            streams: 2,
            threads: 2,
            ..described(&world.describe(files), ParentChoice::Newest)
        };
        let each = files.chars().map(|letter| world.path(name).join(letter.to_string())).collect();
        let Source::Paths { selection, .. } = paths(&world.path(name)) else { return Ok(()) };
        let source = Source::Paths { paths: each, selection };
        let report = backup(repository, source, &options, &job())?;
        report.snapshot.into_iter().for_each(is_saved);
        Ok(())
    })
}

/// The newest snapshot with this description.
fn newest(repository: &Arc<Repository>, files: &str) -> Result<Option<SessionId>> {
    let list = SnapshotList::load(repository)?;
    let mut matching = list.snapshots.iter().filter(|one| one.record.description == files);
    Ok(matching.next_back().map(|one| one.id))
}

/// A snapshot that is used may be forgotten meanwhile; then there is nothing to be said.
fn unless_forgotten<T>(
    repository: &Arc<Repository>,
    used: &[SessionId],
    result: Result<T>,
) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            for id in used {
                if tombstones::is_forgotten(repository, *id)? {
                    return Ok(None);
                }
            }
            Err(error)
        }
    }
}

/// Makes one snapshot of two, whose files are these.
pub fn synthesizes(first: &'static str, second: &'static str, both: &'static str) -> Task {
    Arc::new(move |world, repository| {
        let (Some(a), Some(b)) = (newest(repository, first)?, newest(repository, second)?) else {
            return Ok(());
        };
        let part = |snapshot, to: &[u8]| Element { snapshot, path: Vec::new(), to: to.to_vec() };
        let options =
            SynthesisOptions { description: world.describe(both), ..SynthesisOptions::default() };
        let parts = [part(a, b"first"), part(b, b"second")];
        let made = synthesize(repository, &parts, &options, &job());
        let made = unless_forgotten(repository, &[a, b], made)?;
        made.into_iter().for_each(is_saved);
        Ok(())
    })
}

/// Gives the newest snapshot of these files another name.
pub fn copies(files: &'static str) -> Task {
    Arc::new(move |world, repository| {
        let Some(id) = newest(repository, files)? else { return Ok(()) };
        let options =
            SynthesisOptions { description: world.describe(files), ..SynthesisOptions::default() };
        let copied = fastcopy(repository, id, &options, &job());
        unless_forgotten(repository, &[id], copied)?.into_iter().for_each(is_saved);
        Ok(())
    })
}

/// Hides the newest snapshot of these files and shows it again.
pub fn hides_and_shows(files: &'static str) -> Task {
    Arc::new(move |_, repository| {
        let Some(id) = newest(repository, files)? else { return Ok(()) };
        let hidden = retention::forget(repository, &[id], "me");
        if unless_forgotten(repository, &[id], hidden)?.is_some() {
            return match retention::undelete(repository, &[id]) {
                // Somebody has made hiding final, and may be about to forget it.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                other => other.map(drop),
            };
        }
        Ok(())
    })
}

/// Hides the newest snapshot of these files, and forgets for good whatever is hidden.
pub fn hides_and_forgets(files: &'static str) -> Task {
    Arc::new(move |_, repository| {
        let Some(id) = newest(repository, files)? else { return Ok(()) };
        let hidden = retention::forget(repository, &[id], "me");
        unless_forgotten(repository, &[id], hidden)?;
        match retention::forget_hidden_before(repository, i64::MAX, "me") {
            // What was hidden has been forgotten by somebody else.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        }
    })
}

/// Makes a new index out of the containers.
pub fn repairs_the_index() -> Task {
    Arc::new(|_, repository| check::repair_index(repository, None, &job()).map(drop))
}
