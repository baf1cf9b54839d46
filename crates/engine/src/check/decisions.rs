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
use crate::session::checkpoints::{Checkpoints, SMALL_READS_ALONE, read_all};
use crate::session::decided::{self, CopyState, DecidedName};
use crate::session::epoch::{self, Newest};
use crate::session::marks::Marks;
use crate::session::tombstones::{self, Forgotten};
use onefold_format::layout::{self, ChangeName};
use onefold_store::{Key, foresee};
use onefold_types::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Checks everything that was decided. `record`: whether missing copies may be made.
pub fn check(repository: &Repository, record: bool, report: &mut CheckReport) -> Result<()> {
    // What is looked at of each is whether its copies are sound, so the listings need no order.
    let directories = [
        layout::OUTCOMES,
        layout::TOMBSTONES,
        layout::FATES,
        layout::CHANGES,
        layout::EPOCHS,
        layout::SWEEPS,
    ];
    let listings = directories.map(decided::asked_names).concat();
    let foreseen = foresee(repository.store(), listings);
    let names = |directory: &str| decided::names(repository, directory);
    let outcomes = names(layout::OUTCOMES)?;
    check_names(repository, record, report, parsed(&outcomes, DecidedName::outcome))?;
    mend_tombstones(repository, record, report)?;
    let tombstones = names(layout::TOMBSTONES)?;
    check_names(repository, record, report, parsed(&tombstones, DecidedName::tombstone))?;
    let fates = names(layout::FATES)?;
    check_names(repository, record, report, parsed(&fates, DecidedName::fate))?;
    let changes = names(layout::CHANGES)?;
    check_names(repository, record, report, parsed(&changes, DecidedName::change))?;
    let epochs = names(layout::EPOCHS)?;
    check_names(repository, record, report, parsed(&epochs, DecidedName::epoch))?;
    let sweeps = names(layout::SWEEPS)?;
    check_names(repository, record, report, parsed(&sweeps, DecidedName::sweep))?;
    drop(foreseen);
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
    let errors_of = |number: usize| {
        let Some(name) = names.get(number) else { return Ok([None, None]) };
        let first = repository.store().decided(&Key::new(name.name())?).err();
        let copy = Key::new(name.copy_name())?;
        Ok([first, repository.store().decided(&copy).err()])
    };
    for errors in each_in_order(repository, names.len(), &errors_of) {
        for error in errors?.into_iter().flatten() {
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

/// The decisions of these names; another name decides nothing.
fn parsed<T: FromStr>(names: &BTreeSet<String>, decided: fn(T) -> DecidedName) -> Vec<DecidedName> {
    names.iter().filter_map(|name| name.parse().ok().map(decided)).collect()
}

/// What `read` says of each number, several at once where there are many.
fn each_in_order<T: Send>(
    repository: &Repository,
    count: usize,
    read: &(dyn Fn(usize) -> Result<T> + Sync),
) -> impl Iterator<Item = Result<T>> + use<T> {
    let numbers: Vec<usize> = (0..count).collect();
    let mut all = read_all(repository, &numbers, read);
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, read)| read)
}

fn check_names(
    repository: &Repository,
    record: bool,
    report: &mut CheckReport,
    names: Vec<DecidedName>,
) -> Result<()> {
    // Several threads ask for several at once anyway.
    let few = names.iter().filter(|_| names.len() < 2 * SMALL_READS_ALONE);
    let asked = few.filter_map(|name| name.asked().ok()).flatten();
    let _foreseen = foresee(repository.store(), asked.collect());
    let states_of = |number: usize| match names.get(number) {
        Some(name) => name.states(repository),
        None => Ok([CopyState::Sound; 2]),
    };
    let states = each_in_order(repository, names.len(), &states_of);
    names
        .iter()
        .zip(states)
        .try_for_each(|(name, states)| check_name(repository, (name, states?), record, report))
}

fn check_name(
    repository: &Repository,
    (name, states): (&DecidedName, [CopyState; 2]),
    record: bool,
    report: &mut CheckReport,
) -> Result<()> {
    let (first, second) = (name.name().to_owned(), name.copy_name());
    match states {
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
