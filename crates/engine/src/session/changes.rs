//! What is said about a snapshot after it was made: its hold, its tags, its note (rule D9).
//!
//! An outcome is immutable, so what is said later is a sequence of decisions, `changes/<s>.<n>`
//! with n = 1, 2, ... Each carries the whole new state, and the highest one that opens counts.
//! Whoever changes something reads the newest, applies its edit, and decides the next number; if
//! another one won that number, it reads again and applies its edit to what won.
//!
//! # Forgetting for good
//! The last change of a snapshot says that it is forgotten; its tombstone follows. So a hold and a
//! forgetting cannot both succeed: each is decided under the number after the state that it was
//! derived from, one wins, and the other one reads what won. A hold after that answers that the
//! snapshot is forgotten; a forgetting after a hold, that it is held. Bringing a hidden snapshot
//! back decides a change as well, so that nobody forgets for good what was hidden before that.
//!
//! A client that may only append can decide changes, so a change is not final by itself: the
//! forgetter first puts a permission that takes the right to collect ([`finals`]).
//!
//! Whoever is stopped between the last change and the tombstone leaves a snapshot that is listed as
//! hidden, and that the next one forgets who touches it: a collection, whoever repeats the
//! forgetting, or whoever tries to change it.
//!
//! # Invariants
//! - A number is decided after the one before was, and never taken back while the snapshot lives. A
//!   collection deletes the changes of a snapshot only once a plan names its tombstone. Whoever
//!   decides a number that was deleted so sees the tombstone afterwards, and does not succeed.
//! - Fail safe: a change that is proved and does not open (those that follow the newest one that
//!   does, or that a plan names) is *lost*, and its snapshot counts as held. The next change makes
//!   up for it. Numbers that follow nothing were not decided by a holder of the key: they are
//!   reported and mean nothing.

use super::checkpoints::Checkpoints;
use super::decided::{self, DecidedName};
use super::outcome::read_outcome;
use super::tombstones::{self, Forgotten, SnapshotState};
use super::{epoch, finals};
use crate::repository::Repository;
use onefold_format::layout::{self, ChangeName};
use onefold_format::record::{self, Change, Outcome, SnapshotRecord};
use onefold_types::{Error, ErrorKind, Result, SessionId, words};
use std::collections::{BTreeMap, BTreeSet};

/// Times that a change is applied again because others were faster.
const TRIES_MAX: usize = 32;
/// Why a snapshot is forgotten that somebody else has begun to forget.
pub(super) const CLOSED: &str = "its last change says so";

/// What can be said about a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Whether forget must leave it alone.
    pub hold: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// A note.
    pub description: String,
}

/// What came of changing what is said about a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The snapshot.
    pub snapshot: SessionId,
    /// What is said about it now.
    pub attributes: Attributes,
    /// Whether that was not said before.
    pub is_new: bool,
}

/// The changes of one snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The highest number that is taken; 0 if none is.
    pub last: u64,
    /// The newest change that opens.
    pub newest: Option<Change>,
    /// Its number; 0 if there is none.
    pub opened: u64,
    /// The highest number that it, or a plan, proves; 0 if neither does.
    pub proved: u64,
    /// Whether there was a newer one, which does not.
    pub is_lost: bool,
}

/// The changes of all snapshots.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    known: BTreeMap<SessionId, Known>,
    /// Files that follow no change and do not open.
    stray: Vec<ChangeName>,
    /// Newest changes that are in no checkpoint.
    pub new_names: usize,
}

impl Known {
    /// Whether the snapshot is forgotten for good, or about to be.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.newest.as_ref().is_some_and(|change| change.forgotten)
    }

    /// Puts into a snapshot's record what is said about it now.
    pub fn apply(&self, record: &mut SnapshotRecord) {
        if let Some(change) = &self.newest {
            record.hold = change.hold;
            record.tags.clone_from(&change.tags);
            record.description.clone_from(&change.description);
        }
        record.hold |= self.is_lost;
    }

    /// Where the next change is decided.
    fn next(&self, snapshot: SessionId) -> Result<(ChangeName, DecidedName)> {
        let number = self.last.checked_add(1).ok_or_else(|| {
            let message = format!("snapshot {} cannot be changed any more", snapshot.short());
            Error::new(ErrorKind::LimitExceeded, message)
        })?;
        let name = ChangeName { snapshot, number };
        Ok((name, DecidedName::change(name)))
    }

    fn attributes(&self, repository: &Repository, id: SessionId) -> Result<Attributes> {
        let Some(Outcome::Committed(mut record)) = read_outcome(repository, id)? else {
            let message = format!("there is no snapshot {}", id.short());
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        self.apply(&mut record);
        let SnapshotRecord { hold, tags, description, .. } = *record;
        Ok(Attributes { hold, tags, description })
    }
}

impl Changes {
    /// All tombstones, and the changes of all snapshots that have none.
    pub fn load_with_tombstones(repository: &Repository) -> Result<(Forgotten, Self)> {
        let known = Checkpoints::load(repository)?;
        let forgotten = Forgotten::load_with(repository, &known)?;
        let changes = Self::load_with(repository, &forgotten, &known)?;
        Ok((forgotten, changes))
    }

    /// Reads the newest change of every snapshot that has no tombstone.
    pub fn load(repository: &Repository) -> Result<Self> {
        Ok(Changes::load_with_tombstones(repository)?.1)
    }

    /// The same for whoever has read tombstones and checkpoints. What checkpoints hold is not read
    /// again, and what was said about snapshots that have a tombstone not at all.
    pub fn load_with(
        repository: &Repository,
        forgotten: &Forgotten,
        known: &Checkpoints,
    ) -> Result<Self> {
        let is_left = |id| !forgotten.opened.contains(&id);
        Self::load_of(repository, &forgotten.changes, known, &is_left)
    }

    /// The changes of one snapshot, read anew.
    pub fn of_one(repository: &Repository, id: SessionId) -> Result<Known> {
        let (planned, known) = (planned(repository)?, Checkpoints::default());
        let changes = Self::load_of(repository, &planned, &known, &|one| one == id)?;
        Ok(changes.of(id))
    }

    fn load_of(
        repository: &Repository,
        planned: &BTreeMap<SessionId, u64>,
        checkpoints: &Checkpoints,
        wanted: &dyn Fn(SessionId) -> bool,
    ) -> Result<Self> {
        let mut numbers: BTreeMap<SessionId, BTreeSet<u64>> = BTreeMap::new();
        for name in decided::names(repository, layout::CHANGES)? {
            if let Ok(ChangeName { snapshot, number }) = name.parse() {
                numbers.entry(snapshot).or_default().insert(number);
            }
        }
        for id in planned.keys() {
            numbers.entry(*id).or_default();
        }
        let mut changes = Self::default();
        for (snapshot, taken) in numbers.into_iter().filter(|(id, _)| wanted(*id)) {
            let planned = planned.get(&snapshot).copied().unwrap_or_default();
            let newest = taken.last().map(|number| ChangeName { snapshot, number: *number });
            let is_new = newest.is_some_and(|name| checkpoints.change(name).is_none());
            changes.new_names += usize::from(is_new);
            let (known, stray) = read(repository, snapshot, &taken, planned, checkpoints)?;
            changes.known.insert(snapshot, known);
            changes.stray.extend(stray.into_iter().map(|number| ChangeName { snapshot, number }));
        }
        Ok(changes)
    }

    /// What is known of one snapshot.
    #[must_use]
    pub fn of(&self, id: SessionId) -> Known {
        self.known.get(&id).cloned().unwrap_or_default()
    }

    /// The newest change of each snapshot that has one that opens.
    pub fn newest(&self) -> impl Iterator<Item = (ChangeName, &Change)> {
        self.known.iter().filter_map(|(snapshot, known)| {
            let change = known.newest.as_ref()?;
            Some((ChangeName { snapshot: *snapshot, number: known.opened }, change))
        })
    }

    /// The snapshots that have an authentic change: each of them had an outcome.
    pub fn proved(&self) -> impl Iterator<Item = SessionId> {
        self.known.iter().filter(|(_, known)| known.newest.is_some()).map(|(id, _)| *id)
    }

    /// The snapshots whose last change says that they are forgotten.
    pub fn forgotten(&self) -> impl Iterator<Item = SessionId> {
        self.known.iter().filter(|(_, known)| known.is_forgotten()).map(|(id, _)| *id)
    }

    /// The newest change of each snapshot that is not among these.
    pub fn newest_but(&self, forgotten: &BTreeSet<SessionId>) -> Vec<ChangeName> {
        let proved =
            self.known.iter().filter(|(id, known)| known.proved > 0 && !forgotten.contains(id));
        proved.map(|(id, known)| ChangeName { snapshot: *id, number: known.proved }).collect()
    }

    /// What is wrong, in words; `is_listed` tells whether a snapshot is in the list, `is_known`
    /// whether anything is known of it.
    pub fn problems(
        &self,
        is_listed: &dyn Fn(SessionId) -> bool,
        is_known: &dyn Fn(SessionId) -> bool,
    ) -> Vec<String> {
        let lost = self.known.iter().filter(|(_, known)| known.is_lost);
        let lost = lost.filter_map(|(id, known)| {
            let name = layout::change(ChangeName { snapshot: *id, number: known.last });
            match (is_listed(*id), is_known(*id)) {
                (true, _) => Some(lost_sentence(*id, &name)),
                (false, true) => None,
                (false, false) => Some(stray_sentence(&name)),
            }
        });
        let stray =
            self.stray.iter().filter(|name| is_listed(name.snapshot) || !is_known(name.snapshot));
        lost.chain(stray.map(|name| stray_sentence(&layout::change(*name)))).collect()
    }
}

/// Changes what is said about a snapshot. When it returns `Ok`, nobody forgets the snapshot for
/// good who has not seen the result. `known` is what a list has shown. `apply` may be asked several
/// times, also about its own result.
///
/// Errors: `NotFound` if the snapshot is forgotten for good; `Fenced` if others change it all the
/// time.
pub fn edit(
    repository: &Repository,
    id: SessionId,
    known: Known,
    by: &str,
    apply: &dyn Fn(&mut Attributes),
) -> Result<Said> {
    append(repository, id, known, by, apply, false)
}

/// Decides a change that says what was said before: whoever has looked at the snapshot has to look
/// again before it forgets it for good.
pub fn confirm(repository: &Repository, id: SessionId, by: &str) -> Result<()> {
    let known = Changes::of_one(repository, id)?;
    append(repository, id, known, by, &|_| {}, true).map(drop)
}

/// Fails if a snapshot is forgotten for good, and sees to it that it is if its last change says so.
pub fn refuse_forgotten(repository: &Repository, id: SessionId, by: &str) -> Result<()> {
    if Changes::of_one(repository, id)?.is_forgotten() {
        tombstones::forget(repository, id, by, CLOSED)?;
        return Err(forgotten_for_good(id));
    }
    refuse_tombstone(repository, id)
}

fn refuse_tombstone(repository: &Repository, id: SessionId) -> Result<()> {
    match tombstones::state_of(repository, id)? {
        SnapshotState::Forgotten => Err(forgotten_for_good(id)),
        SnapshotState::Kept | SnapshotState::Unknown => Ok(()),
    }
}

fn append(
    repository: &Repository,
    id: SessionId,
    mut known: Known,
    by: &str,
    apply: &dyn Fn(&mut Attributes),
    always: bool,
) -> Result<Said> {
    let mut is_new = false;
    for _ in 0..TRIES_MAX {
        if known.is_forgotten() {
            // Whoever decided that may have been stopped before the tombstone.
            tombstones::forget(repository, id, by, CLOSED)?;
            return Err(forgotten_for_good(id));
        }
        let before = known.attributes(repository, id)?;
        let mut after = before.clone();
        apply(&mut after);
        if after != before {
            words::refuse_long_attributes(&after.tags, &after.description)?;
        }
        let is_said = after == before && !known.is_lost && (!always || is_new);
        if !is_said && decide(repository, id, &known, by, after.clone(), false)? {
            (is_new, known.last) = (true, known.last + 1);
        } else if !is_said {
            refuse_tombstone(repository, id)?;
            known = Changes::of_one(repository, id)?;
            continue;
        }
        let is_newest = !known.next(id)?.1.is_decided(repository)?;
        if !is_newest {
            known = Changes::of_one(repository, id)?;
        }
        // What is planted in the place of the next change makes an own one count for nothing; a
        // later one that opens does not, but may have outdone what was only read.
        if is_newest || (is_new && !known.is_lost) {
            // The number may have been free because a collection has removed what was decided.
            refuse_tombstone(repository, id)?;
            return Ok(Said { snapshot: id, attributes: after, is_new });
        }
    }
    Err(changed_all_the_time(id))
}

/// Decides the last change of a snapshot, unless it is on hold or `may` says no; tells whether it
/// is decided, by whomever. Then the snapshot must be forgotten, by whoever called this or by the
/// next one. `may` is asked after the newest change was read, and what it has looked at must not
/// change without a change.
pub fn close(
    repository: &Repository,
    id: SessionId,
    mut known: Known,
    by: &str,
    may: &dyn Fn() -> Result<bool>,
) -> Result<bool> {
    for _ in 0..TRIES_MAX {
        if known.is_forgotten() {
            return Ok(true);
        }
        let attributes = known.attributes(repository, id)?;
        if attributes.hold || !may()? {
            return Ok(false);
        }
        let is_own = decide(repository, id, &known, by, attributes, true)?;
        // Others may have finished this, and a collection removed what was decided.
        if is_own || tombstones::state_of(repository, id)? == SnapshotState::Forgotten {
            return Ok(true);
        }
        known = Changes::of_one(repository, id)?;
    }
    Err(changed_all_the_time(id))
}

/// Deletes the changes of snapshots that the newest plan knows to be forgotten: nobody asks for
/// them any more. Returns how many there were.
pub fn remove_forgotten(repository: &Repository) -> Result<u64> {
    let forgotten = epoch::newest_tombstones(repository)?;
    let mut removed = 0;
    for name in decided::names(repository, layout::CHANGES)? {
        let Ok(name) = name.parse::<ChangeName>() else { continue };
        if forgotten.contains(&name.snapshot) {
            DecidedName::change(name).remove(repository)?;
            removed += 1;
        }
    }
    finals::remove(repository, &forgotten)?;
    Ok(removed)
}

/// Decides the number after the last one; `false` if it was decided before, by whomever.
fn decide(
    repository: &Repository,
    snapshot: SessionId,
    known: &Known,
    by: &str,
    attributes: Attributes,
    forgotten: bool,
) -> Result<bool> {
    let Attributes { hold, tags, description } = attributes;
    let time_ns = repository.environment().clock.now_ns();
    let change = Change { time_ns, by: by.to_owned(), hold, tags, description, forgotten };
    let (name, decided) = known.next(snapshot)?;
    if forgotten {
        finals::permit(repository, name)?;
    }
    match decided.decide(repository, &record::encode(&change)?) {
        Ok(decision) => Ok(decision.is_own),
        Err(error) if error.kind() == ErrorKind::Damaged => {
            // What won does not open: it counts as lost, and the next number is free. Or it was
            // removed before it was read back, because somebody has forgotten the snapshot.
            let is_explained = decided.is_decided(repository)?
                || tombstones::state_of(repository, snapshot)? == SnapshotState::Forgotten;
            if is_explained { Ok(false) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// What is known from these numbers, and those of them that mean nothing.
fn read(
    repository: &Repository,
    snapshot: SessionId,
    taken: &BTreeSet<u64>,
    planned: u64,
    checkpoints: &Checkpoints,
) -> Result<(Known, Vec<u64>)> {
    let (mut newest, mut unreadable) = (None, BTreeSet::new());
    for number in taken.iter().rev() {
        let name = ChangeName { snapshot, number: *number };
        if let Some(change) = checkpoints.change(name) {
            newest = Some((*number, change.clone()));
            break;
        }
        let bytes = DecidedName::change(name).read(repository);
        match bytes
            .and_then(|bytes| bytes.map(|it| record::decode::<Change>(&it, "change")).transpose())
        {
            Ok(Some(change)) => {
                newest = Some((*number, change));
                break;
            }
            // A collection has removed it.
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Damaged => {
                unreadable.insert(*number);
            }
            Err(error) => {
                return Err(error.context(format!("what is said about snapshot {snapshot}")));
            }
        }
    }
    let opened = newest.as_ref().map_or(0, |(number, _)| *number);
    let proved = opened.max(planned);
    let mut last = proved;
    while last.checked_add(1).is_some_and(|next| unreadable.contains(&next)) {
        last += 1;
    }
    let stray = unreadable.into_iter().filter(|number| *number > last).collect();
    let mut newest = newest.map(|(_, change)| change);
    if let Some(change) = newest.as_mut().filter(|change| change.forgotten) {
        let name = ChangeName { snapshot, number: opened };
        change.forgotten = finals::is_permitted(repository, name)?;
    }
    // Nothing follows the last change; and a collection may have removed all of them since the plan
    // that names them was read.
    let is_lost = last > opened
        && !newest.as_ref().is_some_and(|change| change.forgotten)
        && tombstones::state_of(repository, snapshot)? != SnapshotState::Forgotten;
    Ok((Known { last, newest, opened, proved, is_lost }, stray))
}

/// The changes that the newest plan names.
fn planned(repository: &Repository) -> Result<BTreeMap<SessionId, u64>> {
    Ok(epoch::newest_plan(repository)?.map(|plan| epoch::changes_of(&plan)).unwrap_or_default())
}

fn forgotten_for_good(id: SessionId) -> Error {
    let message =
        format!("snapshot {} has been forgotten for good meanwhile, or is about to be", id.short());
    Error::new(ErrorKind::NotFound, message)
}

fn changed_all_the_time(id: SessionId) -> Error {
    let message = format!(
        "snapshot {} is changed by others all the time ({TRIES_MAX} times in a row); try again",
        id.short()
    );
    Error::new(ErrorKind::Unavailable, message)
}

fn lost_sentence(id: SessionId, name: &str) -> String {
    let short = id.short();
    format!(
        "'{name}', the newest change of snapshot {short}, is lost or damaged: where no checkpoint \
         repeats it, the snapshot counts as held, with the tags and the note it had before. Say \
         again what it should be, with \
         'onefold hold {short}' or 'onefold release {short}'"
    )
}

fn stray_sentence(name: &str) -> String {
    format!(
        "'{name}' was not written by a holder of the key, or is damaged: it follows no change of a \
         snapshot, is ignored, and can be removed"
    )
}
