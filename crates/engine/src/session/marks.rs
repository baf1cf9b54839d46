//! Marks: snapshots that are hidden until somebody takes the mark back (rule D8).
//!
//! A mark is an object under a name of its own, sealed under that name, and says which snapshot it
//! hides. `undelete` decides as its *fate* that it was taken back: then it hides nothing any more,
//! whoever puts its file where it was. After that `undelete` decides a change of the snapshot, and
//! whoever forgets for good what has been hidden long looks at the marks before it decides the last
//! one ([`changes`]). Whichever comes first is obeyed by both, so that nothing is brought back and
//! forgotten at once, however slow either is.
//!
//! Marks that do not open with the store's key hide nothing and are reported.

use super::changes::{self, Known};
use super::decided::{self, DecidedName};
use super::epoch;
use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout;
use onefold_format::record::{self, Fate, Mark};
use onefold_store::Key;
use onefold_types::{ErrorKind, MarkId, Result, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// A mark that hides its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveMark {
    /// Its name.
    pub id: MarkId,
    /// When it was put, in nanoseconds since 1970, by its writer's clock.
    pub time_ns: i64,
}

/// All marks of a store.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The hidden snapshots, and the marks that hide each.
    pub hidden: BTreeMap<SessionId, Vec<ActiveMark>>,
    /// Marks that have been taken back and are still there.
    pub void: Vec<(SessionId, MarkId)>,
    /// What is wrong with others.
    pub problems: Vec<String>,
}

impl Marks {
    /// Reads all marks.
    pub fn load(repository: &Repository) -> Result<Self> {
        Self::load_of(repository, &|_| true)
    }

    /// Reads the marks on the snapshots that `wanted` names.
    fn load_of(repository: &Repository, wanted: &dyn Fn(SessionId) -> bool) -> Result<Self> {
        let mut found = Vec::new();
        repository.store().list_names(layout::MARKS, &mut |name| {
            found.extend(layout::mark_of(name).ok().filter(|(snapshot, _)| wanted(*snapshot)));
            Ok(())
        })?;
        let mut marks = Self::default();
        if found.is_empty() {
            return Ok(marks);
        }
        let fates: BTreeSet<MarkId> = decided::names(repository, layout::FATES)?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        for (snapshot, id) in found {
            let Some(mark) = read(repository, snapshot, id, &mut marks.problems)? else {
                continue;
            };
            let fate = match fates.contains(&id) {
                true => read_fate(repository, id),
                false => Ok(None),
            };
            match fate {
                Ok(Some(Fate::TakenBack {})) => marks.void.push((snapshot, id)),
                Ok(None) => marks.add(snapshot, id, mark.time_ns),
                // Hidden is what can still be brought back.
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    marks.problems.push(error.to_string());
                    marks.add(snapshot, id, mark.time_ns);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(marks)
    }

    fn add(&mut self, snapshot: SessionId, id: MarkId, time_ns: i64) {
        self.hidden.entry(snapshot).or_default().push(ActiveMark { id, time_ns });
    }

    /// When a snapshot was hidden last, in nanoseconds since 1970.
    #[must_use]
    pub fn hidden_since(&self, snapshot: SessionId) -> Option<i64> {
        self.hidden.get(&snapshot)?.iter().map(|mark| mark.time_ns).max()
    }
}

/// Hides a snapshot until its marks are taken back.
pub fn hide(repository: &Repository, snapshot: SessionId, by: &str, reason: &str) -> Result<()> {
    let environment = repository.environment();
    let id = MarkId::random(&*environment.randomness);
    let time_ns = environment.clock.now_ns();
    let mark = Mark { snapshot, time_ns, by: by.to_owned(), reason: reason.to_owned() };
    let bytes = record::encode(&mark)?;
    let sealed =
        repository.vault().seal_record(Purpose::Mark, &id.0, &bytes, &*environment.randomness)?;
    repository.store().put_fresh(&Key::new(layout::mark(snapshot, id))?, &sealed)
}

/// Shows a hidden snapshot again; tells whether it was hidden. When it returns `Ok`, no mark that
/// was there before can hide or forget the snapshot any more.
///
/// Errors: `NotFound` if the snapshot has been forgotten for good, or is about to be.
pub fn take_back(repository: &Repository, snapshot: SessionId) -> Result<bool> {
    let marks = Marks::load_of(repository, &|id| id == snapshot)?;
    let hidden = marks.hidden.get(&snapshot).map(Vec::as_slice).unwrap_or_default();
    for mark in hidden {
        let taken_back = record::encode(&Fate::TakenBack {})?;
        DecidedName::fate(mark.id).decide(repository, &taken_back)?;
    }
    // Marks that are void already may be those of somebody who was stopped before this. If there
    // are none, it still has to be told whether the snapshot is forgotten.
    match hidden.is_empty() && marks.void.is_empty() {
        true => changes::refuse_forgotten(repository, snapshot, "undelete")?,
        false => changes::confirm(repository, snapshot, "undelete")?,
    }
    let taken_back = hidden.iter().map(|mark| (snapshot, mark.id));
    for (snapshot, id) in taken_back.chain(marks.void.iter().copied()) {
        repository.store().delete(&Key::new(layout::mark(snapshot, id))?)?;
    }
    Ok(!hidden.is_empty())
}

/// Decides the last change of a snapshot that is still hidden, has been since before `moment_ns`,
/// and is not on hold; tells whether it is decided. The snapshot must be forgotten then, by whoever
/// called this or by the next one.
pub fn make_final(
    repository: &Repository,
    snapshot: SessionId,
    known: Known,
    moment_ns: i64,
    by: &str,
) -> Result<bool> {
    changes::close(repository, snapshot, known, by, &|| {
        let marks = Marks::load_of(repository, &|id| id == snapshot)?;
        Ok(marks.hidden_since(snapshot).is_some_and(|since| since < moment_ns))
    })
}

/// Removes the marks on a snapshot that is forgotten for good: its tombstone says all there is to
/// say.
pub fn clear(repository: &Repository, snapshot: SessionId) -> Result<()> {
    let mut names = Vec::new();
    repository.store().list_names(layout::MARKS, &mut |name| {
        let of = layout::mark_of(name).ok().filter(|(marked, _)| *marked == snapshot);
        names.extend(of);
        Ok(())
    })?;
    let delete = |(snapshot, id)| repository.store().delete(&Key::new(layout::mark(snapshot, id))?);
    names.into_iter().try_for_each(delete)
}

/// Removes the marks on snapshots that the newest plan knows to be forgotten for good: whoever
/// forgot them may have been stopped before [`clear`]. Returns how many there were.
pub fn remove_forgotten(repository: &Repository) -> Result<u64> {
    let forgotten = epoch::newest_tombstones(repository)?;
    let mut names = Vec::new();
    repository.store().list_names(layout::MARKS, &mut |name| {
        let of = layout::mark_of(name).ok().filter(|(marked, _)| forgotten.contains(marked));
        names.extend(of);
        Ok(())
    })?;
    for (snapshot, id) in &names {
        repository.store().delete(&Key::new(layout::mark(*snapshot, *id))?)?;
    }
    Ok(names.len() as u64)
}

fn read_fate(repository: &Repository, id: MarkId) -> Result<Option<Fate>> {
    let bytes = DecidedName::fate(id).read(repository)?;
    bytes.map(|bytes| record::decode(&bytes, "what became of a mark")).transpose()
}

/// An authentic mark; `None` if there is none, and a word about one that is not.
fn read(
    repository: &Repository,
    snapshot: SessionId,
    id: MarkId,
    problems: &mut Vec<String>,
) -> Result<Option<Mark>> {
    let name = layout::mark(snapshot, id);
    let sealed = match repository.store().get(&Key::new(name.as_str())?) {
        Ok(sealed) => sealed,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let opened = repository.vault().open_record(Purpose::Mark, &id.0, &sealed);
    let mark = opened.and_then(|bytes| record::decode::<Mark>(&bytes, "mark"));
    match mark {
        Ok(mark) if mark.snapshot == snapshot => Ok(Some(mark)),
        Err(error) if error.kind() != ErrorKind::Damaged => Err(error),
        _ => {
            problems.push(format!(
                "'{name}' was not written by a holder of the key, or is damaged: it is ignored, \
                 and can be removed"
            ));
            Ok(None)
        }
    }
}
