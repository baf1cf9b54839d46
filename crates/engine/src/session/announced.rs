//! The sessions that were announced: which of them have no outcome yet, since when, and whether
//! their processes are gone.
//!
//! What is listed is a moment's view, read until nothing new appears. Time and process names are
//! told by whoever announced a session; nothing rests on them but what is looked at first.

use super::decided::{DecidedName, LISTS_MAX, changes_too_often};
use crate::environment::process_is_gone;
use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout;
use onefold_format::record::{self, Note, Outcome};
use onefold_store::Key;
use onefold_types::{ErrorKind, Result, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The epochs of all names `ready-<epoch>` below a session. Names alone prove nothing: see
/// [`is_ready`].
pub type SaidReady = BTreeSet<u64>;

/// Sessions that are undecided.
pub fn undecided(repository: &Repository) -> Result<BTreeMap<SessionId, SaidReady>> {
    let mut left = BTreeMap::new();
    for (id, ready) in announced(repository)? {
        if !is_decided(repository, id)? {
            left.insert(id, ready);
        }
    }
    Ok(left)
}

/// All sessions that were announced, listed until nothing new appears: one that a list misses would
/// never be waited for.
fn announced(repository: &Repository) -> Result<BTreeMap<SessionId, SaidReady>> {
    let mut sessions: BTreeMap<SessionId, SaidReady> = BTreeMap::new();
    for number in 0..LISTS_MAX {
        let before = sessions.clone();
        repository.store().list_names(layout::SESSIONS, &mut |name| {
            if let Some((id, ready)) = layout::session_of(name) {
                sessions.entry(id).or_default().extend(ready);
            }
            Ok(())
        })?;
        if number > 0 && sessions == before {
            return Ok(sessions);
        }
    }
    Err(changes_too_often(layout::SESSIONS))
}

/// The sessions that are announced, decided or not.
pub fn names(repository: &Repository) -> Result<BTreeSet<SessionId>> {
    announced(repository).map(|sessions| sessions.into_keys().collect())
}

fn is_decided(repository: &Repository, id: SessionId) -> Result<bool> {
    DecidedName::outcome(id).is_decided(repository)
}

/// When the oldest session was announced that may still be running, in nanoseconds since 1970;
/// `None` if there is none that tells. What it is for is preference, not safety.
pub fn oldest_running_ns(repository: &Repository) -> Result<Option<i64>> {
    let mut oldest = None;
    for id in undecided(repository)?.into_keys() {
        let start = match read_announcement(repository, id) {
            Ok(note) if process_is_gone(&note.by) => continue,
            Ok(note) => note.time_ns,
            Err(error) if error.is_lost() => continue,
            Err(error) => return Err(error),
        };
        oldest = Some(oldest.map_or(start, |oldest: i64| oldest.min(start)));
    }
    Ok(oldest)
}

fn read_announcement(repository: &Repository, id: SessionId) -> Result<Note> {
    let sealed = repository.store().get(&Key::new(layout::session_announced(id))?)?;
    let bytes = repository.vault().open_record(Purpose::Session, &id.0, &sealed)?;
    record::decode(&bytes, "session")
}

/// Whether a session has declared itself ready for one of these epochs: the declaration opens under
/// its name, which only holders of the key can have sealed.
pub fn is_ready(
    repository: &Repository,
    id: SessionId,
    said: &SaidReady,
    epochs: RangeInclusive<u64>,
) -> Result<bool> {
    for epoch in said.range(epochs) {
        let read = || -> Result<bool> {
            let sealed = repository.store().get(&Key::new(layout::session_ready(id, *epoch))?)?;
            let name = layout::ready_sealed_as(id, *epoch);
            let opened = repository.vault().open_record(Purpose::Session, &name, &sealed)?;
            // An announcement, which is sealed as number 0, says more.
            Ok(opened.is_empty())
        };
        match read() {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.is_lost() || error.kind() == ErrorKind::NewerFormat => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Whether the process of a session is known to be gone.
pub fn is_abandoned(repository: &Repository, id: SessionId) -> Result<bool> {
    match read_announcement(repository, id) {
        Ok(note) => Ok(process_is_gone(&note.by)),
        // Decided and removed meanwhile, or never whole.
        Err(error) if error.is_lost() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The undecided sessions of processes that are known to be gone.
pub fn abandoned(repository: &Repository) -> Result<Vec<SessionId>> {
    let mut abandoned = Vec::new();
    for id in undecided(repository)?.into_keys() {
        if is_abandoned(repository, id)? {
            abandoned.push(id);
        }
    }
    Ok(abandoned)
}

/// Gives a session up; `false` if it had ended by itself.
pub fn fence(repository: &Repository, id: SessionId) -> Result<bool> {
    let bytes = record::encode(&Outcome::Fenced)?;
    match DecidedName::outcome(id).decide(repository, &bytes) {
        Ok(decision) => Ok(decision.is_own),
        // It is decided, whatever it says: the session cannot commit any more.
        Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends the sessions of processes that are known to be gone, and removes what is left of those that
/// have ended, for whoever has just saved something: what is announced explains containers, which
/// the snapshot just saved may need ([`super::evidence`]). That it cannot be done is no failure of
/// what was saved.
pub fn end_abandoned(repository: &Repository) -> Result<()> {
    let mut is_any = false;
    repository.store().list_names(layout::SESSIONS, &mut |_| {
        is_any = true;
        Ok(())
    })?;
    if !is_any {
        return Ok(());
    }
    for id in abandoned(repository)? {
        fence(repository, id)?;
    }
    remove_decided(repository).map(|_| ())
}

/// Removes the objects of sessions that are decided: nobody needs them any more.
pub fn remove_decided(repository: &Repository) -> Result<u64> {
    let mut names = Vec::new();
    repository.store().list_names(layout::SESSIONS, &mut |name| {
        names.push(name.to_owned());
        Ok(())
    })?;
    let mut removed = 0;
    for name in names {
        let Some((id, _)) = layout::session_of(&name) else { continue };
        if is_decided(repository, id)? {
            repository.store().delete(&Key::new(name)?)?;
            removed += 1;
        }
    }
    Ok(removed)
}
