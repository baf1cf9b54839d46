//! Decided records, plans and what they prove: outcomes, tombstones, fates, changes, epochs,
//! sweeps.
//!
//! Every decision has two copies (see [`crate::session::decided`]). One that is missing is made
//! anew out of the other where the check may write; one that cannot be read is named, with what to
//! do. An epoch that is open and whose plan is lost stops nobody: it is told as a note, because the
//! next backup or collection ends it.

use super::CheckReport;
use crate::repository::Repository;
use crate::session::SnapshotList;
use crate::session::checkpoints::Checkpoints;
use crate::session::decided::{self, CopyState, DecidedName};
use crate::session::epoch::{self, Newest};
use crate::session::marks::Marks;
use crate::session::tombstones::{self, Forgotten};
use onefold_format::layout::{self, ChangeName};
use onefold_store::Key;
use onefold_types::{Error, ErrorKind, Result};

/// Checks everything that was decided. `record`: whether missing copies may be made.
pub fn check(repository: &Repository, record: bool, report: &mut CheckReport) -> Result<()> {
    let names = |directory: &str| decided::names(repository, directory);
    for name in names(layout::OUTCOMES)? {
        check_name(repository, name.parse().ok().map(DecidedName::outcome), record, report)?;
    }
    mend_tombstones(repository, record, report)?;
    for name in names(layout::TOMBSTONES)? {
        check_name(repository, name.parse().ok().map(DecidedName::tombstone), record, report)?;
    }
    for name in names(layout::FATES)? {
        check_name(repository, name.parse().ok().map(DecidedName::fate), record, report)?;
    }
    for name in names(layout::CHANGES)? {
        check_name(repository, name.parse().ok().map(DecidedName::change), record, report)?;
    }
    for name in names(layout::EPOCHS)? {
        check_name(repository, name.parse().ok().map(DecidedName::epoch), record, report)?;
    }
    for name in names(layout::SWEEPS)? {
        check_name(repository, name.parse().ok().map(DecidedName::sweep), record, report)?;
    }
    check_free_names(repository, report)?;
    for directory in [layout::SESSIONS, layout::FINISHED, layout::PLANS] {
        check_listing(repository, directory, report)?;
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

/// Looks at the names that the next commands decide: something in the way there that is no object,
/// such as a directory, is in no list, and stops them all the same.
fn check_free_names(repository: &Repository, report: &mut CheckReport) -> Result<()> {
    let list = SnapshotList::load(repository)?;
    let mut names: Vec<DecidedName> = Vec::new();
    for snapshot in &list.snapshots {
        let number = list.changes.of(snapshot.id).last.saturating_add(1);
        names.push(DecidedName::change(ChangeName { snapshot: snapshot.id, number }));
        names.push(DecidedName::tombstone(snapshot.id));
    }
    let marks = Marks::load(repository)?;
    names.extend(marks.hidden.values().flatten().map(|mark| DecidedName::fate(mark.id)));
    if let Ok(number) = epoch::next_number(epoch::newest(repository)?.number()) {
        names.extend([DecidedName::epoch(number), DecidedName::sweep(number)]);
    }
    for name in names {
        let first = repository.store().decided(&Key::new(name.name())?).err();
        let copy = Key::new(name.copy_name())?;
        let second = repository.store().decided(&copy).err();
        for error in [first, second].into_iter().flatten() {
            match is_in_the_way(&error) {
                true => report.problems.push(error.to_string()),
                false => return Err(error),
            }
        }
    }
    Ok(())
}

/// Makes tombstones anew of which neither copy can be read, and of which the newest plan tells that
/// they are true.
fn mend_tombstones(repository: &Repository, record: bool, report: &mut CheckReport) -> Result<()> {
    let forgotten = Forgotten::load_with(repository, &Checkpoints::default())?;
    for id in forgotten.unreadable.intersection(&forgotten.ids) {
        let name = layout::tombstone(*id);
        let mended = match record {
            true => tombstones::forget(repository, *id, "check", "the newest plan names it"),
            false => Err(Error::new(ErrorKind::ReadOnly, "this check changes nothing")),
        };
        report.notes.push(match mended {
            Ok(()) => format!("'{name}' was not what was written; a second copy tells it again"),
            Err(error) if error.is_about_writing() => {
                format!("'{name}' is not what was written, but the newest plan tells the same")
            }
            Err(error) => return Err(error),
        });
    }
    Ok(())
}

/// Checks a directory that holds no decisions: what cannot be listed stops those who need it.
fn check_listing(
    repository: &Repository,
    directory: &str,
    report: &mut CheckReport,
) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let listed = repository.store().list_names(directory, &mut |name| {
        names.push(name.to_owned());
        Ok(())
    });
    match listed {
        Ok(()) => {}
        Err(error) if is_in_the_way(&error) || error.kind() == ErrorKind::Invalid => {
            report.problems.push(format!("'{directory}' cannot be listed: {error}"));
        }
        Err(error) => return Err(error),
    }
    Ok(names)
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
        [CopyState::Unreadable, CopyState::Sound] if !record => report.problems.push(format!(
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
        [CopyState::Sound, _] | [_, CopyState::Sound] => match name.mend(repository) {
            Ok(()) => report.notes.push(format!("'{first}' had one copy; it has two again")),
            Err(error) if error.is_about_writing() => {
                report.notes.push(format!("'{first}' has one copy instead of two: {error}"));
            }
            Err(error) if is_in_the_way(&error) => report.problems.push(format!(
                "'{first}' or '{second}' cannot be read, and the other one can: {error}"
            )),
            Err(error) => return Err(error),
        },
        [CopyState::Missing | CopyState::Unreadable, _] => {
            report_lost(repository, &first, &second, report)?;
        }
    }
    Ok(())
}

/// A decision of which no copy can be read.
fn report_lost(
    repository: &Repository,
    first: &str,
    second: &str,
    report: &mut CheckReport,
) -> Result<()> {
    let directory = first.split('/').next().unwrap_or_default();
    let is_over = match layout::last_component(first).parse::<u64>() {
        Ok(number) => epoch::is_finished(repository, number)?,
        Err(_) => false,
    };
    match directory {
        // Records that are lost are named by the list of snapshots, with what follows from it. A
        // change that a later one has outdone is missed by nobody.
        layout::OUTCOMES | layout::TOMBSTONES | layout::CHANGES => {}
        layout::EPOCHS | layout::SWEEPS if is_over => report.notes.push(format!(
            "neither '{first}' nor '{second}' can be read; that epoch is over, and nothing needs \
             them any more"
        )),
        layout::FATES => report.problems.push(format!(
            "neither '{first}' nor '{second}' can be read: bring one back from a copy of the \
             store, or remove both, and what becomes of the mark is decided anew"
        )),
        _ => report.problems.push(format!(
            "neither '{first}' nor '{second}' can be read; bring one back from a copy of the store \
             if there is one"
        )),
    }
    Ok(())
}

/// Whether something stands in the place of an object: a problem of the store, which a check
/// reports and goes on. What this user may not read ends the check: it can say nothing then.
fn is_in_the_way(error: &Error) -> bool {
    error.kind() == ErrorKind::Io
}
