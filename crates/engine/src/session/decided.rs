//! Names that are decided once, and the second copy of what was decided (rules D1 and D4).
//!
//! A decision cannot be made anew, so one flipped bit in it would lose a snapshot. Whoever decides
//! puts the value that won a second time, below `copies/`, in another directory than the first; a
//! reader takes whichever of the two opens. Both hold the same sealed bytes.
//!
//! # Invariants
//! - Only a value that `decide` returned is ever copied, so first and second never say different
//!   things. If the first is gone, the copy's value is decided again and nothing else.
//! - *Absent* means that neither exists. A name that exists and of which neither opens is
//!   *unknown*: an error of kind `Damaged`, never an absence.
//! - Whoever decides gets the opened winner and whether it is its own; what won is read back.
//! - What a newer generation of keys may have sealed is not *unknown*: the error says so.
//! - A copy that cannot be put (a full device, too few open files) does not undo the decision. It
//!   is told ([`Repository::uncopied`]); a check puts it later.

use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout::{self, ChangeName};
use onefold_store::{Asked, DecidedBy, Key, foresee};
use onefold_types::{Error, ErrorKind, MarkId, Result, SessionId};
use std::collections::BTreeSet;

/// Lists taken until two in a row show the same names (rule D3).
pub const LISTS_MAX: usize = 8;

/// A name under which one value wins for all time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecidedName {
    name: String,
    purpose: Purpose,
    sealed_as: [u8; 16],
}

/// What came of deciding a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The record that won, opened.
    pub record: Vec<u8>,
    /// Whether it is the caller's.
    pub is_own: bool,
}

/// How the two copies of a decision stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// It is there and opens.
    Sound,
    /// There is none.
    Missing,
    /// It is there and does not open.
    Unreadable,
}

impl DecidedName {
    /// How a session ended.
    #[must_use]
    pub fn outcome(id: SessionId) -> Self {
        Self { name: layout::outcome(id), purpose: Purpose::Outcome, sealed_as: id.0 }
    }

    /// That a snapshot is forgotten for good.
    #[must_use]
    pub fn tombstone(id: SessionId) -> Self {
        Self { name: layout::tombstone(id), purpose: Purpose::Tombstone, sealed_as: id.0 }
    }

    /// What became of a mark.
    #[must_use]
    pub fn fate(id: MarkId) -> Self {
        Self { name: layout::fate(id), purpose: Purpose::Fate, sealed_as: id.0 }
    }

    /// What is said about a snapshot from now on.
    #[must_use]
    pub fn change(name: ChangeName) -> Self {
        let sealed_as = name.sealed_as();
        Self { name: layout::change(name), purpose: Purpose::Change, sealed_as }
    }

    /// The plan of an epoch.
    #[must_use]
    pub fn epoch(number: u64) -> Self {
        let sealed_as = super::epoch::epoch_name(number);
        Self { name: layout::epoch(number), purpose: Purpose::Plan, sealed_as }
    }

    /// What an epoch deletes.
    #[must_use]
    pub fn sweep(number: u64) -> Self {
        let sealed_as = super::epoch::sweep_name(number);
        Self { name: layout::sweep(number), purpose: Purpose::Plan, sealed_as }
    }

    /// The name in the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the second copy.
    #[must_use]
    pub fn copy_name(&self) -> String {
        layout::copy_of(&self.name)
    }

    /// Decides the name, or learns what was decided before.
    ///
    /// Errors: `Damaged` if what won does not open and has no copy that does, or if the store does
    /// not keep what it acknowledged.
    pub fn decide(&self, repository: &Repository, record: &[u8]) -> Result<Decision> {
        let own = self.seal(repository, record)?;
        // A first copy that is gone must not be decided anew with another value.
        let earlier = self.sealed_copy(repository)?;
        let earlier = match earlier {
            Some(sealed) if self.opened(repository, &sealed)?.is_some() => Some(sealed),
            _ => None,
        };
        let key = Key::new(self.name.as_str())?;
        let store = repository.store();
        let won = store.decide(&key, earlier.as_deref().unwrap_or(&own))?;
        if store.decided(&key)?.as_deref() != Some(won.as_slice()) {
            return Err(Error::damaged(format!(
                "the store acknowledged '{}' but holds other bytes; do not trust this device",
                self.name
            )));
        }
        let Some(record) = self.opened(repository, &won)? else {
            let record = match earlier {
                Some(sealed) => self.opened(repository, &sealed)?,
                None => None,
            };
            let record = record.ok_or_else(|| self.unknown())?;
            return Ok(Decision { record, is_own: false });
        };
        if earlier.is_none() {
            // See the header: the decision stands whether or not there is room for its copy.
            if let Err(error) = self.put_copy(repository, &won) {
                repository.note_uncopied(&self.name, &error);
            }
        }
        Ok(Decision { record, is_own: won == own })
    }

    /// Where the two copies are, for whoever knows that they will be read next.
    pub fn asked(&self) -> Result<[Asked; 2]> {
        let key = |name: &str| Key::new(name).map(Asked::Object);
        Ok([key(&self.name)?, key(&self.copy_name())?])
    }

    /// The record that was decided; `None` if the name was never decided.
    ///
    /// Errors: `Damaged` if it was, and neither copy opens.
    pub fn read(&self, repository: &Repository) -> Result<Option<Vec<u8>>> {
        let first = repository.store().decided(&Key::new(self.name.as_str())?);
        if let Ok(Some(sealed)) = &first
            && let Some(record) = self.opened(repository, sealed)?
        {
            return Ok(Some(record));
        }
        let second = self.sealed_copy(repository);
        if let Ok(Some(sealed)) = &second
            && let Some(record) = self.opened(repository, sealed)?
        {
            return Ok(Some(record));
        }
        match (first, second) {
            (Ok(None), Ok(None)) => Ok(None),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(self.unknown()),
        }
    }

    /// Whether the name was decided, known or not.
    pub fn is_decided(&self, repository: &Repository) -> Result<bool> {
        let first = repository.store().decided(&Key::new(self.name.as_str())?)?;
        Ok(first.is_some() || self.sealed_copy(repository)?.is_some())
    }

    /// How first and second copy stand.
    pub fn states(&self, repository: &Repository) -> Result<[CopyState; 2]> {
        let state = |sealed: Result<Option<Vec<u8>>>| match sealed {
            Ok(None) => Ok(CopyState::Missing),
            Ok(Some(sealed)) => Ok(match self.opened(repository, &sealed)? {
                Some(_) => CopyState::Sound,
                None => CopyState::Unreadable,
            }),
            Err(error) if error.kind() == ErrorKind::Io => Ok(CopyState::Unreadable),
            Err(error) => Err(error),
        };
        let first = repository.store().decided(&Key::new(self.name.as_str())?);
        Ok([state(first)?, state(self.sealed_copy(repository))?])
    }

    /// Makes one copy out of the other where that can be done: a missing one is put, and one that
    /// does not open is replaced. A first one is removed for that: meanwhile readers read the
    /// second, and whoever decides takes its value. One that only cannot be read now is left alone.
    pub fn mend(&self, repository: &Repository) -> Result<()> {
        let key = Key::new(self.name.as_str())?;
        match self.states(repository)? {
            [CopyState::Sound, CopyState::Sound] => Ok(()),
            [CopyState::Sound, second] => {
                if second == CopyState::Unreadable {
                    repository.store().delete(&Key::new(self.copy_name())?)?;
                }
                match repository.store().decided(&key)? {
                    Some(sealed) => self.put_copy(repository, &sealed),
                    None => Ok(()),
                }
            }
            [first, CopyState::Sound] => {
                if repository.store().decided_by() == DecidedBy::Nobody {
                    return Err(Error::new(
                        ErrorKind::ReadOnly,
                        "the store was opened without its database: nothing can be decided again",
                    ));
                }
                if first == CopyState::Unreadable {
                    // It reads, and is not what was written; else this is an error.
                    repository.store().decided(&key)?;
                    repository.store().delete(&key)?;
                }
                match self.sealed_copy(repository)? {
                    Some(sealed) => repository.store().decide(&key, &sealed).map(|_| ()),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Puts a second copy in place of one that does not open. Only for names of which every value
    /// says the same, so that it does not matter which one won.
    pub fn replace_copy(&self, repository: &Repository, record: &[u8]) -> Result<()> {
        let sealed = self.seal(repository, record)?;
        if let Some(copy) = self.sealed_copy(repository)?
            && self.opened(repository, &copy)?.is_none()
        {
            repository.store().delete(&Key::new(self.copy_name())?)?;
        }
        self.put_copy(repository, &sealed)
    }

    /// Removes both copies of what nobody will ever ask for again, the second one last: meanwhile
    /// nobody decides anything else.
    pub fn remove(&self, repository: &Repository) -> Result<()> {
        repository.store().delete(&Key::new(self.name.as_str())?)?;
        repository.store().delete(&Key::new(self.copy_name())?)
    }

    fn put_copy(&self, repository: &Repository, sealed: &[u8]) -> Result<()> {
        match repository.store().put(&Key::new(self.copy_name())?, sealed) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match self.sealed_copy(repository)? {
                    Some(_) => Ok(()),
                    None => Err(in_the_way(&self.copy_name())),
                }
            }
            other => other,
        }
    }

    fn sealed_copy(&self, repository: &Repository) -> Result<Option<Vec<u8>>> {
        match repository.store().get(&Key::new(self.copy_name())?) {
            Ok(sealed) => Ok(Some(sealed)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn seal(&self, repository: &Repository, record: &[u8]) -> Result<Vec<u8>> {
        let randomness = &*repository.environment().randomness;
        repository.vault().seal_record(self.purpose, &self.sealed_as, record, randomness)
    }

    /// The record, if it opens.
    ///
    /// Errors: `KeysChanged` if it may be newer than the keys: nobody may take it for unreadable.
    fn opened(&self, repository: &Repository, sealed: &[u8]) -> Result<Option<Vec<u8>>> {
        match repository.vault().open_record(self.purpose, &self.sealed_as, sealed) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn unknown(&self) -> Error {
        Error::damaged(format!(
            "neither '{}' nor '{}' is what was written: the seal does not hold; bring one of them \
             back from a copy of the store",
            self.name,
            self.copy_name()
        ))
    }
}

/// A name that is taken, and not by an object.
fn in_the_way(name: &str) -> Error {
    let message = format!("'{name}' exists and leads to no object: it has to be removed");
    Error::new(ErrorKind::Io, message)
}

/// What [`names`] will read, for whoever knows that it will be read next.
#[must_use]
pub fn asked_names(directory: &str) -> [Asked; 2] {
    [Asked::Names(directory.to_owned()), Asked::Names(layout::copy_of(directory))]
}

/// The last components of all names decided below a directory, those of which only the copy is left
/// included.
pub fn names(repository: &Repository, directory: &str) -> Result<BTreeSet<String>> {
    names_of(repository, directory, asked_names(directory))
}

/// The same where about so many are expected.
pub fn many_names(
    repository: &Repository,
    directory: &str,
    about: usize,
) -> Result<BTreeSet<String>> {
    let asked = [directory.to_owned(), layout::copy_of(directory)];
    names_of(repository, directory, asked.map(|name| Asked::ManyNames(name, about)))
}

fn names_of(
    repository: &Repository,
    directory: &str,
    asked: [Asked; 2],
) -> Result<BTreeSet<String>> {
    // A name is in both for as long as it is decided, so they may be read in any order.
    let _both = foresee(repository.store(), asked.to_vec());
    let mut names = BTreeSet::new();
    let mut add = |name: &str| {
        names.insert(layout::last_component(name).to_owned());
        Ok(())
    };
    repository.store().list_decided(directory, &mut add)?;
    repository.store().list_names(&layout::copy_of(directory), &mut add)?;
    Ok(names)
}

/// That a directory showed new names in every list.
#[must_use]
pub fn changes_too_often(directory: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "'{directory}' was listed {LISTS_MAX} times and showed new names each time; try again \
             when fewer processes write to the store"
        ),
    )
}

/// As [`names`], listed until nothing new appears: for whoever deletes what no name keeps (rule
/// D3).
///
/// Errors: `Io` if something new appears each time.
pub fn all_names(repository: &Repository, directory: &str) -> Result<BTreeSet<String>> {
    let mut all = names(repository, directory)?;
    for _ in 1..LISTS_MAX {
        let before = all.len();
        all.extend(names(repository, directory)?);
        if all.len() == before {
            return Ok(all);
        }
    }
    Err(changes_too_often(directory))
}
