//! The list of snapshots: committed outcomes that no tombstone forgets.
//!
//! Each record is sealed under its session's name, so none can be forged, altered or moved. The
//! *list* is authenticated too (R54): every record names the newest outcomes that its writer knew,
//! so all older outcomes are reachable from the newer ones, and one that was taken away is missed.
//! Only the very newest ones, which nobody has named yet, can be withheld without trace.
//!
//! A snapshot whose record cannot be read is *lost* (rule D1): it is in no list, it is reported,
//! and collections stop until its record is back or somebody gives it up.
//!
//! Dates come from the clocks of writers; in which order snapshots were saved is told by what each
//! of them knew ([`sequences`]).
//!
//! Names are listed, each time; what they say is read once and for all ([`checkpoints`]).
//!
//! [`checkpoints`]: super::checkpoints

use super::changes::Changes;
use super::checkpoints::{Checkpoints, Ending};
use super::decided;
use super::evidence::{Evidence, Missing, decided_sessions};
use super::marks::Marks;
use super::outcome::read_outcome;
use super::sequences;
use super::tombstones::Forgotten;
use crate::repository::Repository;
use onefold_format::layout;
use onefold_format::record::{SnapshotKind, SnapshotRecord};
use onefold_store::{Asked, foresee};
use onefold_types::{ErrorKind, Result, SessionId, ShareId};
use std::collections::{BTreeMap, BTreeSet};

/// A committed session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The session's name, which is the snapshot's.
    pub id: SessionId,
    /// Its record, with what was said about it since.
    pub record: SnapshotRecord,
    /// Whether `forget` has hidden it, or is about to forget it for good.
    pub hidden: bool,
    /// Its place in the order in which snapshots were saved, or copied ([`sequences`]); those that
    /// were saved at the same time may have the same. 0: it was made out of others of the store,
    /// and has a date of theirs.
    pub sequence: u64,
}

impl Snapshot {
    /// What puts snapshots in the order in which they were saved, whatever clocks say.
    #[must_use]
    pub fn saved_order(&self) -> (u64, i64, SessionId) {
        (self.sequence, self.record.started_ns, self.id)
    }

    /// Whether its date is when it was saved.
    #[must_use]
    pub fn is_dated_by_clock(&self) -> bool {
        self.sequence > 0 && self.record.original.is_none()
    }

    /// Whether it holds the optimised files of a share, and is no backup.
    #[must_use]
    pub fn is_manifest(&self) -> bool {
        self.record.kind == SnapshotKind::Manifest
    }

    /// Whether something that was to be saved could not be read.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.record.summary.errors > 0
    }

    /// Whether it holds second copies of chunks of its share, and no files.
    #[must_use]
    pub fn holds_second_copies(&self) -> bool {
        self.is_manifest() && self.record.tags.iter().any(|tag| tag == SECOND_COPIES_TAG)
    }
}

/// What tells second copies of a share's chunks from its manifests.
pub const SECOND_COPIES_TAG: &str = "second-copies";

/// All snapshots of a store, as listed at one moment.
#[derive(Clone, Debug, Default)]
pub struct SnapshotList {
    /// Snapshots that are not forgotten for good, oldest first, hidden ones included.
    pub snapshots: Vec<Snapshot>,
    /// The newest outcomes: those that no other names as its predecessor.
    pub heads: Vec<SessionId>,
    /// Sessions whose outcome is proved and missing, or cannot be read, and was not given up.
    pub lost: BTreeSet<SessionId>,
    /// Whether records were lost before the oldest one that there is.
    pub has_strays: bool,
    /// What was said about snapshots since they were made.
    pub changes: Changes,
    /// Names that are decided and in no checkpoint.
    pub new_names: usize,
    /// What does not add up: missing, damaged or unauthentic records.
    pub problems: Vec<String>,
}

impl SnapshotList {
    /// Lists all snapshots.
    pub fn load(repository: &Repository) -> Result<Self> {
        Self::load_with(repository, Checkpoints::load(repository)?)
    }

    /// The same by what the records themselves say: checkpoints tell only what must be there.
    pub fn load_unaided(repository: &Repository) -> Result<Self> {
        Self::load_with(repository, Checkpoints::load(repository)?.without_contents())
    }

    fn load_with(repository: &Repository, mut checkpoints: Checkpoints) -> Result<Self> {
        let mut list = Self::default();
        // Each of these is evidence of what is listed after it, so only neighbours that are not may
        // be asked for together.
        let first =
            [decided::asked_names(layout::TOMBSTONES), decided::asked_names(layout::EPOCHS)];
        let foreseen = foresee(repository.store(), first.concat());
        let mut forgotten = Forgotten::load_with(repository, &checkpoints)?;
        list.problems.append(&mut forgotten.problems);
        drop(foreseen);
        let mut second = decided::asked_names(layout::CHANGES).to_vec();
        second.push(Asked::Names(layout::MARKS.to_owned()));
        let foreseen = foresee(repository.store(), second);
        list.changes = Changes::load_with(repository, &forgotten, &checkpoints)?;
        let mut marks = Marks::load(repository)?;
        list.problems.append(&mut marks.problems);
        drop(foreseen);
        let known = checkpoints.sessions().count();
        let names = decided::many_names(repository, layout::OUTCOMES, known)?;
        let listed: BTreeSet<SessionId> =
            names.iter().filter_map(|name| name.parse().ok()).collect();
        let known: BTreeSet<SessionId> = checkpoints.sessions().collect();
        list.new_names =
            listed.difference(&known).count() + forgotten.new_names + list.changes.new_names;
        // Of what was lost and given up another outcome may have been decided since.
        checkpoints.distrust(&forgotten.given_up);
        let needs_record = |id| !forgotten.ids.contains(&id);
        let told = checkpoints.take_endings(repository, listed.iter().copied(), &needs_record);
        let mut endings = BTreeMap::new();
        for (id, ending) in told {
            match ending {
                Ok(Some(ending)) => drop(endings.insert(id, ending)),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NewerFormat => return Err(error),
                Err(_) if forgotten.ids.contains(&id) => {}
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    list.lost.insert(id);
                    list.problems.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        list.complete(repository, &mut endings, known.difference(&listed).copied())?;
        list.find_heads(&endings);
        list.find_missing(repository, &endings, (&listed, &known), (&forgotten, &marks))?;
        let sequences = sequences::of(&endings);
        for (id, ending) in endings {
            if let Ending::Committed(mut record) = ending
                && !forgotten.ids.contains(&id)
            {
                let known = list.changes.of(id);
                known.apply(&mut record);
                let hidden = marks.hidden.contains_key(&id) || known.is_forgotten();
                let sequence = match record.kind {
                    SnapshotKind::Backup | SnapshotKind::Manifest => sequences.get(&id).copied(),
                    SnapshotKind::Fastcopy | SnapshotKind::Synthetic => None,
                };
                let sequence = sequence.unwrap_or_default();
                list.snapshots.push(Snapshot { id, record: *record, hidden, sequence });
            }
        }
        list.snapshots.sort_by_key(|snapshot| (snapshot.record.started_ns, snapshot.id));
        let is_listed = |id| list.get(id).is_some();
        let is_known = |id| forgotten.ids.contains(&id) || listed.contains(&id);
        let problems = list.changes.problems(&is_listed, &is_known);
        list.problems.extend(problems);
        Ok(list)
    }

    /// The snapshots that are not hidden, without the manifests of shares.
    pub fn visible(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().filter(|snapshot| !snapshot.hidden && !snapshot.is_manifest())
    }

    /// The manifests of a share, the newest last.
    pub fn manifests(&self, share: ShareId) -> impl Iterator<Item = &Snapshot> {
        self.of_share(share).filter(|snapshot| !snapshot.holds_second_copies())
    }

    /// Second copies of chunks of a share, the newest last.
    pub fn second_copies(&self, share: ShareId) -> impl Iterator<Item = &Snapshot> {
        self.of_share(share).filter(|snapshot| snapshot.holds_second_copies())
    }

    /// Both, in the order in which they were saved.
    pub fn of_share(&self, share: ShareId) -> impl Iterator<Item = &Snapshot> {
        let is_of_share = |snapshot: &&Snapshot| snapshot.record.share == Some(share);
        let mut of_share: Vec<&Snapshot> = self.snapshots.iter().filter(is_of_share).collect();
        of_share.sort_unstable_by_key(|snapshot| snapshot.saved_order());
        of_share.into_iter()
    }

    /// The snapshot of this name.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// Adds what other records and checkpoints name and the list did not show: it may be read name
    /// by name, and show a later record without an earlier one.
    fn complete(
        &mut self,
        repository: &Repository,
        endings: &mut BTreeMap<SessionId, Ending>,
        named: impl Iterator<Item = SessionId>,
    ) -> Result<()> {
        let mut left: Vec<SessionId> = named.collect();
        left.extend(endings.values().flat_map(Ending::predecessors));
        let mut asked = BTreeSet::new();
        while let Some(id) = left.pop() {
            if endings.contains_key(&id) || !asked.insert(id) {
                continue;
            }
            match read_outcome(repository, id) {
                Ok(Some(outcome)) => {
                    let ending = Ending::from(outcome);
                    left.extend(ending.predecessors());
                    endings.insert(id, ending);
                }
                Ok(None) => {}
                // Reported already.
                Err(error) if error.kind() == ErrorKind::Damaged => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn find_heads(&mut self, endings: &BTreeMap<SessionId, Ending>) {
        let named: BTreeSet<&SessionId> = endings.values().flat_map(Ending::predecessors).collect();
        let is_head = |(id, ending): &(&SessionId, &Ending)| {
            !matches!(ending, Ending::Fenced) && !named.contains(id)
        };
        self.heads = endings.iter().filter(is_head).map(|(id, _)| *id).collect();
    }

    /// Looks for outcomes that are proved and not there.
    fn find_missing(
        &mut self,
        repository: &Repository,
        endings: &BTreeMap<SessionId, Ending>,
        (listed, checkpointed): (&BTreeSet<SessionId>, &BTreeSet<SessionId>),
        (forgotten, marks): (&Forgotten, &Marks),
    ) -> Result<()> {
        let mut evidence = Evidence::of(forgotten, marks);
        evidence.extend(self.changes.proved());
        evidence.extend(checkpointed.iter().copied());
        let mut missing = Missing::default();
        for (id, ending) in endings {
            evidence.take(*id, ending, &mut missing);
        }
        let known: BTreeSet<SessionId> = listed.iter().chain(endings.keys()).copied().collect();
        evidence.missing(repository, &known, &mut missing)?;
        self.problems.extend(missing.problems());
        self.has_strays = !missing.strays.is_empty();
        self.lost.extend(missing.sessions);
        Ok(())
    }
}

/// Committed sessions, and how many sessions have an outcome.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    /// The snapshots.
    pub snapshots: Vec<(SessionId, SnapshotRecord)>,
    /// All sessions with an outcome, forgotten and fenced ones included.
    pub outcomes: BTreeSet<SessionId>,
}

/// Every committed session that is not in `forgotten`, hidden or not. Sessions in `known` were read
/// before and are left out; those that were read are added to it, fenced ones too. `evidence` names
/// sessions that must have an outcome. The records themselves say what is live: a checkpoint may be
/// a lie of a client that may only append. Only a record that does not open is taken from one.
///
/// Errors: a record that cannot be read, or one that is proved and missing. What it refers to is
/// unknown, so whoever deletes must not go on.
pub fn committed_but(
    repository: &Repository,
    forgotten: &BTreeSet<SessionId>,
    mut evidence: Evidence,
    known: &mut BTreeSet<SessionId>,
) -> Result<Committed> {
    let mut snapshots = Vec::new();
    let mut checkpoints = Checkpoints::load(repository)?;
    let decided = decided_sessions(repository)?;
    let mut repeated = checkpoints.distrust(decided.difference(forgotten));
    // Outcomes are never removed: what was read before is evidence, too.
    evidence.extend(known.iter().copied());
    evidence.extend(checkpoints.sessions());
    let (before, mut read) = (&*known, Vec::new());
    let mut missing = Missing::default();
    // Of what is forgotten only that is asked which no collection has known yet.
    let is_over = |id: &SessionId| forgotten.contains(id) && evidence.is_planned(*id);
    let left = decided.iter().copied().filter(|id| !before.contains(id) && !is_over(id));
    let left: Vec<SessionId> = left.collect();
    for (id, ending) in checkpoints.take_endings(repository, left, &|_| false) {
        let is_forgotten = forgotten.contains(&id);
        match ending {
            Ok(Some(ending)) => {
                evidence.take(id, &ending, &mut missing);
                match ending {
                    Ending::Committed(record) if !is_forgotten => snapshots.push((id, *record)),
                    _ => {}
                }
            }
            Ok(None) => {}
            Err(error) if is_forgotten && error.kind() == ErrorKind::Damaged => {}
            // Nothing else tells what it needs.
            Err(error) if error.kind() == ErrorKind::Damaged => match repeated.remove(&id) {
                Some(Ending::Committed(record)) => snapshots.push((id, *record)),
                _ => return Err(error),
            },
            Err(error) => return Err(error),
        }
        read.push(id);
    }
    known.extend(read);
    evidence.missing(repository, &decided, &mut missing)?;
    missing.check()?;
    Ok(Committed { snapshots, outcomes: decided })
}
