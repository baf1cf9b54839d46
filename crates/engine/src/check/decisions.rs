//! Decided records, plans and what they prove: outcomes, tombstones, epochs, sweeps, fates.
//!
//! Every decision has two copies (see [`crate::session::decided`]). One that is missing is made
//! anew out of the other where the check may write; one that cannot be read is named, with what to
//! do. An epoch that is open and whose plan is lost stops nobody: it is told as a note, because the
//! next backup or collection ends it.

use super::CheckReport;
use crate::repository::Repository;
use crate::session::decided::{self, CopyState, DecidedName};
use crate::session::epoch::{self, Newest};
use onefold_format::layout;
use onefold_types::{ErrorKind, Result};

/// Checks everything that was decided. `record`: whether missing copies may be made.
pub fn check(repository: &Repository, record: bool, report: &mut CheckReport) -> Result<()> {
    let names = |directory: &str| decided::names(repository, directory);
    for name in names(layout::OUTCOMES)? {
        check_name(repository, name.parse().ok().map(DecidedName::outcome), record, report)?;
    }
    for name in names(layout::TOMBSTONES)? {
        check_name(repository, name.parse().ok().map(DecidedName::tombstone), record, report)?;
    }
    for name in names(layout::FATES)? {
        check_name(repository, name.parse().ok().map(DecidedName::fate), record, report)?;
    }
    for name in names(layout::EPOCHS)? {
        check_name(repository, name.parse().ok().map(DecidedName::epoch), record, report)?;
    }
    for name in names(layout::SWEEPS)? {
        check_name(repository, name.parse().ok().map(DecidedName::sweep), record, report)?;
    }
    report.limit_problems();
    match epoch::newest(repository)? {
        Newest::Lost { number, problem } => report.notes.push(format!(
            "what epoch {number} condemned is not known any more ({problem}); the next backup or \
             collection ends it, and nothing is deleted"
        )),
        Newest::Open(_) | Newest::Finished(_) => {}
    }
    Ok(())
}

fn check_name(
    repository: &Repository,
    name: Option<DecidedName>,
    record: bool,
    report: &mut CheckReport,
) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let (first, second) = (name.name().to_owned(), name.copy_name());
    match name.states(repository)? {
        [CopyState::Sound, CopyState::Sound] => return Ok(()),
        [CopyState::Unreadable, CopyState::Sound] => report.problems.push(format!(
            "'{first}' is not what was written, and its copy is: copy '{second}' over it, or it is \
             lost with its last copy"
        )),
        [CopyState::Sound, CopyState::Unreadable] if !record => {
            report.problems.push(format!("'{second}' is not what was written; '{first}' is"));
        }
        [CopyState::Sound, CopyState::Missing] | [CopyState::Missing, CopyState::Sound]
            if !record =>
        {
            report.notes.push(format!("'{first}' has one copy instead of two"));
        }
        [CopyState::Sound, _] | [CopyState::Missing, CopyState::Sound] => {
            match name.mend(repository) {
                Ok(()) => report.notes.push(format!("'{first}' had one copy; it has two again")),
                Err(error) if is_about_writing(error.kind()) => {
                    report.notes.push(format!("'{first}' has one copy instead of two: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        // Records that are lost are named by the list of snapshots, with what follows from it.
        [CopyState::Missing | CopyState::Unreadable, _] => {
            if !first.starts_with(layout::OUTCOMES) && !first.starts_with(layout::TOMBSTONES) {
                report.problems.push(format!(
                    "neither '{first}' nor '{second}' can be read; bring one back from a copy of \
                     the store if there is one"
                ));
            }
        }
    }
    Ok(())
}

fn is_about_writing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ReadOnly | ErrorKind::NoSpace)
}
