//! What must be readable before anything else: configuration and key slots.
//!
//! All of these exist twice, so a damaged one does not stop the check; it is
//! named, because the second copy is all that is left (R30).

use super::CheckReport;
use crate::repository::Repository;
use onefold_crypto::KeySlot;
use onefold_format::layout;
use onefold_store::{Asked, Key, foresee};
use onefold_types::{Error, ErrorKind, KeyId, Result};
use std::collections::BTreeMap;

/// Checks configuration, key slots and generations of keys. `record`: whether missing copies may be
/// made.
pub fn check(repository: &Repository, record: bool, report: &mut CheckReport) -> Result<()> {
    let both = [layout::CONFIGURATION, layout::CONFIGURATION_COPY].map(Key::new);
    let mut asked: Vec<Asked> = both.into_iter().flatten().map(Asked::Object).collect();
    asked.push(Asked::Names(layout::KEYS.to_owned()));
    let _foreseen = foresee(repository.store(), asked);
    check_configuration(repository, report)?;
    check_keys(repository, report)?;
    let (notes, problems) = (&mut report.notes, &mut report.problems);
    match repository.check_generations(record, notes, problems) {
        // The next check puts what is missing.
        Err(error) if error.is_about_writing() => {
            report.notes.push(format!("a generation of keys has one copy instead of two: {error}"));
            Ok(())
        }
        other => other,
    }
}

fn check_configuration(repository: &Repository, report: &mut CheckReport) -> Result<()> {
    let expected = repository.configuration().encode()?;
    for name in [layout::CONFIGURATION, layout::CONFIGURATION_COPY] {
        let other = match name {
            layout::CONFIGURATION => layout::CONFIGURATION_COPY,
            _ => layout::CONFIGURATION,
        };
        let problem = match repository.store().get(&Key::new(name)?) {
            Ok(bytes) if bytes == expected => continue,
            Ok(_) => "is not what was written".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => "is missing".to_owned(),
            Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
            Err(error) => format!("cannot be read ({error})"),
        };
        report.problems.push(format!(
            "'{name}' {problem}; copy '{other}' over it, or the store is lost with its last copy"
        ));
    }
    Ok(())
}

/// Every slot has two names with the same bytes. One alone, or an intent to remove it, is what an
/// interrupted key command leaves; one that cannot be read, or two that differ, is damage.
fn check_keys(repository: &Repository, report: &mut CheckReport) -> Result<()> {
    let keys = repository.keys()?;
    let mut slots: BTreeMap<KeyId, Vec<String>> = BTreeMap::new();
    let mut stray = Vec::new();
    repository.store().list_names(layout::KEYS, &mut |name| {
        let last = layout::last_component(name);
        if let Some((id, _)) = last.split_once(".removed.") {
            stray.push(format!(
                "the removal of key {id} is going on or was stopped; 'onefold key remove' finishes \
                 it"
            ));
            return Ok(());
        }
        match last.strip_suffix(".copy").unwrap_or(last).parse() {
            Ok(id) => {
                let names: &mut Vec<String> = slots.entry(id).or_default();
                names.push(format!("{}/{last}", layout::KEYS));
            }
            Err(_) => stray.push(format!("'{name}' is not the name of a key slot")),
        }
        Ok(())
    })?;
    report.notes.append(&mut stray);
    let asked = slots.values().flatten().filter_map(|name| Key::new(name.as_str()).ok());
    let _foreseen = foresee(repository.store(), asked.map(Asked::Object).collect());
    for (id, names) in slots {
        let (mut copies, mut bad) = (Vec::new(), Vec::new());
        for name in &names {
            match read_slot(repository, name) {
                Ok(bytes) => copies.push(bytes),
                Err(error)
                    if matches!(error.kind(), ErrorKind::NewerFormat | ErrorKind::Exhausted) =>
                {
                    return Err(error);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => bad.push((name, error)),
            }
        }
        for (name, error) in bad {
            let other = names.iter().find(|other| *other != name).filter(|_| !copies.is_empty());
            report.problems.push(match other {
                Some(other) => format!("'{name}': {error}; copy '{other}' over it"),
                None => format!(
                    "'{name}': {error}; bring it back from a copy of the store, or open the store \
                     with another password and remove the key"
                ),
            });
        }
        if names.len() == 1 {
            let note = format!("key {} has one copy instead of two", id.short());
            report.notes.push(note);
        }
        if keys.iter().any(|named| named.id == id && named.has_other_keys) {
            report.notes.push(format!(
                "key {} does not hold the newest keys: a rotation has left it behind, or was \
                 stopped; 'onefold key remove' or the next 'onefold key rotate' removes it",
                id.short()
            ));
        }
        if copies.windows(2).any(|pair| pair[0] != pair[1]) {
            let problem = format!("the two copies of key {} differ", id.short());
            report.problems.push(problem);
        }
    }
    Ok(())
}

fn read_slot(repository: &Repository, name: &str) -> Result<Vec<u8>, Error> {
    let bytes = repository.store().get(&Key::new(name)?)?;
    KeySlot::from_bytes(&bytes)?;
    Ok(bytes)
}
