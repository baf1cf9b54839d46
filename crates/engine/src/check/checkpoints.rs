//! Checkpoints against what they repeat: every outcome, tombstone and change is read, whatever a
//! checkpoint says of it, and compared.
//!
//! One that does not open is passed over by everybody, and removed where the check may write: it is
//! made anew in time. One that opens and says something else was made from other records than those
//! that are there; nobody can tell why, so it is a problem.

use super::CheckReport;
use crate::repository::Repository;
use crate::session::checkpoints::{
    self, CheckpointSet, Checkpoints, Ending, ReadCheckpoint, read_all,
};
use crate::session::decided::DecidedName;
use crate::session::outcome::read_outcome;
use crate::session::tombstones::Forgotten;
use onefold_format::layout::{self, ChangeName};
use onefold_format::record::{self, Change};
use onefold_types::{CheckpointId, Error, Result, SessionId};

/// Checks all checkpoints. `record`: whether what does not open may be removed.
pub fn check(repository: &Repository, record: bool, report: &mut CheckReport) -> Result<()> {
    let CheckpointSet { read, unreadable, .. } = CheckpointSet::load(repository)?;
    for (id, error) in unreadable {
        report.notes.push(about_unreadable(repository, id, &error, record)?);
    }
    if read.is_empty() {
        return Ok(());
    }
    let forgotten = Forgotten::load_with(repository, &Checkpoints::default())?;
    for checkpoint in read {
        let name = layout::checkpoint(checkpoint.id);
        if let Some(what) = contradiction(repository, checkpoint, &forgotten)? {
            report.problems.push(format!(
                "'{name}' says something else of {what} than the record that it repeats: remove \
                 the file. Everything in it is read elsewhere then, and it is made anew"
            ));
        }
    }
    Ok(())
}

fn about_unreadable(
    repository: &Repository,
    id: CheckpointId,
    error: &Error,
    record: bool,
) -> Result<String> {
    let name = layout::checkpoint(id);
    let what = "was not written by a holder of the key, or is damaged; nothing is lost with it";
    if !record {
        return Ok(format!("'{name}' {what}, and it can be removed ({error})"));
    }
    match checkpoints::remove(repository, id) {
        Ok(()) => Ok(format!("'{name}' {what}: it was removed ({error})")),
        Err(error) if error.is_about_writing() => {
            Ok(format!("'{name}' {what}, and it can be removed ({error})"))
        }
        Err(error) => Err(error),
    }
}

/// The first thing that a checkpoint says and that is not so. What cannot be read is no
/// contradiction, nor is what is gone: others tell of that.
fn contradiction(
    repository: &Repository,
    checkpoint: ReadCheckpoint,
    forgotten: &Forgotten,
) -> Result<Option<String>> {
    let said = Checkpoints::of([checkpoint.record]);
    // Of what was given up another outcome may have been decided.
    let kept = said.sessions().filter(|id| !forgotten.given_up.contains(id));
    let sessions: Vec<SessionId> = kept.collect();
    for (id, outcome) in read_all(repository, &sessions, &|id| read_outcome(repository, id)) {
        let differs = match outcome {
            Ok(Some(outcome)) => said.ending(id).is_some_and(|said| !agrees(said, &outcome.into())),
            Ok(None) => false,
            Err(error) if error.is_lost() => false,
            Err(error) => return Err(error),
        };
        if differs {
            return Ok(Some(format!("snapshot {id}")));
        }
    }
    for id in said.forgotten().filter(|id| forgotten.opened.contains(id)) {
        if said.tombstone(id) != Some(forgotten.given_up.contains(&id)) {
            return Ok(Some(format!("the forgetting of snapshot {id}")));
        }
    }
    let of_live = said.changes().filter(|(name, _)| !forgotten.ids.contains(&name.snapshot));
    for (name, change) in of_live {
        if differs_from(repository, *name, change)? {
            return Ok(Some(format!("change {name}")));
        }
    }
    Ok(None)
}

fn agrees(said: &Ending, read: &Ending) -> bool {
    match (said, read) {
        (Ending::WithoutRecord { .. }, Ending::Fenced) => false,
        (Ending::WithoutRecord { .. }, _) => {
            (said.predecessors(), said.strays()) == (read.predecessors(), read.strays())
        }
        _ => said == read,
    }
}

fn differs_from(repository: &Repository, name: ChangeName, said: &Change) -> Result<bool> {
    match DecidedName::change(name).read(repository) {
        Ok(Some(bytes)) => Ok(record::decode::<Change>(&bytes, "change")? != *said),
        // A collection has removed it.
        Ok(None) => Ok(false),
        Err(error) if error.is_lost() => Ok(false),
        Err(error) => Err(error),
    }
}
