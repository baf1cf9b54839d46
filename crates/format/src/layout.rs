//! The names of all objects in a store.
//!
//! ```text
//! config                          configuration, readable without a key
//! config.copy                     the same bytes again (R30)
//! keys/<key id>                   key slots;  keys/<key id>.copy  the same bytes again
//! keys/<key id>.removed.<id>      somebody is removing the key slot
//! generations/<n>                 decision: which keys are the n-th generation
//! containers/<2 digits>/<id>      containers, sharded by the last byte of their name
//! metadata/<id>                   packs of metadata sections, for sequential scans
//! index/<run id>                  index runs
//! sessions/<s>/announced          a session exists (W1)
//! sessions/<s>/ready-<epoch>      it knows that epoch (W4), sealed as [`ready_sealed_as`]
//! outcomes/<s>                    decision: committed (the snapshot) or fenced
//! tombstones/<s>                  decision: forgotten for good
//! marks/<s>.<id>                  reversible mark: hidden by forget until undelete
//! fates/<mark id>                 decision: the mark was taken back
//! changes/<s>.<n>                 decision: the n-th change of what is said about a snapshot
//! finals/<s>.<n>                  that change may say that the snapshot is forgotten for good
//! checkpoints/<id>                what decided names say, said again to be read at once
//! damage/<container id>           quarantine: do not rely on this container
//! doubts/<id>                     doubt: something may be missing that nothing names
//! plans/<id>  epochs/<n>  sweeps/<n>  finished/<n>     collection (protocol, section 3)
//! copies/<decision>               the value of a decision again, by the decision's own name
//! ```

mod kinds;

pub use kinds::Kind;
use onefold_types::{
    CheckpointId, ContainerId, DoubtId, Error, KeyId, MarkId, PlanId, Result, RunId, SessionId,
};
use std::fmt;
use std::str::FromStr;

/// The configuration.
pub const CONFIGURATION: &str = "config";
/// The configuration's second copy.
pub const CONFIGURATION_COPY: &str = "config.copy";
/// Key slots.
pub const KEYS: &str = "keys";
/// Generations of keys.
pub const GENERATIONS: &str = "generations";
/// Containers.
pub const CONTAINERS: &str = "containers";
/// Packs of metadata sections.
pub const METADATA: &str = "metadata";
/// Index runs.
pub const INDEX: &str = "index";
/// Sessions.
pub const SESSIONS: &str = "sessions";
/// Session outcomes.
pub const OUTCOMES: &str = "outcomes";
/// Tombstones.
pub const TOMBSTONES: &str = "tombstones";
/// Reversible marks on snapshots.
pub const MARKS: &str = "marks";
/// What became of marks.
pub const FATES: &str = "fates";
/// What is said about snapshots after they were made.
pub const CHANGES: &str = "changes";
/// Permissions for changes to forget their snapshots for good.
pub const FINALS: &str = "finals";
/// What decided names say, said again.
pub const CHECKPOINTS: &str = "checkpoints";
/// Quarantined containers.
pub const DAMAGE: &str = "damage";
/// Doubts about what snapshots rely on.
pub const DOUBTS: &str = "doubts";
/// Collector plans.
pub const PLANS: &str = "plans";
/// Decided epochs.
pub const EPOCHS: &str = "epochs";
/// Decided sweeps.
pub const SWEEPS: &str = "sweeps";
/// Finished epochs.
pub const FINISHED: &str = "finished";
/// Second copies of what was decided.
pub const COPIES: &str = "copies";

/// Where a container lies.
#[must_use]
pub fn container(id: ContainerId) -> String {
    format!("{}/{id}", container_directory(id))
}

/// The container that a name is of; what lies elsewhere is none.
#[must_use]
pub fn container_of(name: &str) -> Option<ContainerId> {
    last_component(name).parse().ok().filter(|id| container(*id) == name)
}

/// The directory that a container lies in.
#[must_use]
pub fn container_directory(id: ContainerId) -> String {
    let [.., last] = id.0;
    format!("{CONTAINERS}/{last:02x}")
}

/// Where a pack of metadata sections lies.
#[must_use]
pub fn metadata_pack(id: ContainerId) -> String {
    format!("{METADATA}/{id}")
}

/// Where an index run lies.
#[must_use]
pub fn index_run(id: RunId) -> String {
    format!("{INDEX}/{id}")
}

/// Where a key slot lies.
#[must_use]
pub fn key_slot(id: KeyId) -> String {
    format!("{KEYS}/{id}")
}

/// Where a key slot's second copy lies.
#[must_use]
pub fn key_slot_copy(id: KeyId) -> String {
    format!("{KEYS}/{id}.copy")
}

/// Where somebody says that a key slot is being removed; `removal` makes the name fresh.
#[must_use]
pub fn key_removal(id: KeyId, removal: KeyId) -> String {
    format!("{KEYS}/{id}.removed.{removal}")
}

/// Where a session announces itself.
#[must_use]
pub fn session_announced(id: SessionId) -> String {
    format!("{SESSIONS}/{id}/announced")
}

/// Where a session declares that it knows an epoch.
#[must_use]
pub fn session_ready(id: SessionId, epoch: u64) -> String {
    format!("{SESSIONS}/{id}/ready-{epoch}")
}

/// What a session's declaration that it knows an epoch is sealed as.
#[must_use]
pub fn ready_sealed_as(id: SessionId, epoch: u64) -> [u8; 16] {
    numbered(id, epoch)
}

/// A name that a session and a number make together.
fn numbered(id: SessionId, number: u64) -> [u8; 16] {
    let mut name = id.0;
    for (byte, of_number) in name[8..].iter_mut().zip(number.to_le_bytes()) {
        *byte ^= of_number;
    }
    name
}

/// Where a session's outcome is decided.
#[must_use]
pub fn outcome(id: SessionId) -> String {
    format!("{OUTCOMES}/{id}")
}

/// Where a snapshot's tombstone is decided.
#[must_use]
pub fn tombstone(id: SessionId) -> String {
    format!("{TOMBSTONES}/{id}")
}

/// Where a reversible mark on a snapshot lies.
#[must_use]
pub fn mark(id: SessionId, mark: MarkId) -> String {
    format!("{MARKS}/{id}.{mark}")
}

/// Where it is decided what became of a mark.
#[must_use]
pub fn fate(mark: MarkId) -> String {
    format!("{FATES}/{mark}")
}

/// Which change of what is said about which snapshot; as text `<s>.<n>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChangeName {
    /// The snapshot.
    pub snapshot: SessionId,
    /// The number, from 1.
    pub number: u64,
}

impl ChangeName {
    /// What the record is sealed as: no other change of this or another snapshot passes for it.
    #[must_use]
    pub fn sealed_as(&self) -> [u8; 16] {
        numbered(self.snapshot, self.number)
    }
}

impl fmt::Display for ChangeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.snapshot, self.number)
    }
}

impl FromStr for ChangeName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::damaged(format!("'{text}' is not the name of a change"));
        let (snapshot, digits) = text.split_once('.').ok_or_else(wrong)?;
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        // A number has one spelling.
        match number > 0 && number.to_string() == digits {
            true => Ok(Self { snapshot: snapshot.parse()?, number }),
            false => Err(wrong()),
        }
    }
}

/// Where it is decided what is said about a snapshot from now on.
#[must_use]
pub fn change(name: ChangeName) -> String {
    format!("{CHANGES}/{name}")
}

/// Where the permission for a change to be the last one lies.
#[must_use]
pub fn finality(name: ChangeName) -> String {
    format!("{FINALS}/{name}")
}

/// Where a checkpoint lies.
#[must_use]
pub fn checkpoint(id: CheckpointId) -> String {
    format!("{CHECKPOINTS}/{id}")
}

/// Where a doubt lies.
#[must_use]
pub fn doubt(id: DoubtId) -> String {
    format!("{DOUBTS}/{id}")
}

/// Where it is decided which keys are a generation.
#[must_use]
pub fn generation(number: u32) -> String {
    format!("{GENERATIONS}/{number}")
}

/// Where the second copy of a decision lies, or where those below a directory of decisions do.
#[must_use]
pub fn copy_of(name: &str) -> String {
    format!("{COPIES}/{name}")
}

/// Where the quarantine of a container lies.
#[must_use]
pub fn damage(id: ContainerId) -> String {
    format!("{DAMAGE}/{id}")
}

/// Where a plan lies.
#[must_use]
pub fn plan(id: PlanId) -> String {
    format!("{PLANS}/{id}")
}

/// Where an epoch is decided.
#[must_use]
pub fn epoch(number: u64) -> String {
    format!("{EPOCHS}/{number}")
}

/// Where it is decided which of an epoch's condemned containers are deleted.
#[must_use]
pub fn sweep(number: u64) -> String {
    format!("{SWEEPS}/{number}")
}

/// Where an epoch is declared finished.
#[must_use]
pub fn finished(number: u64) -> String {
    format!("{FINISHED}/{number}")
}

/// The last component of a name.
#[must_use]
pub fn last_component(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The session that the name of one of its objects is about, and the epoch it is ready for, if the
/// object says so.
#[must_use]
pub fn session_of(name: &str) -> Option<(SessionId, Option<u64>)> {
    let mut parts = name.rsplit('/');
    let (last, session) = (parts.next()?, parts.next()?.parse().ok()?);
    let ready = last.strip_prefix("ready-").and_then(|number| number.parse().ok());
    (last == "announced" || ready.is_some()).then_some((session, ready))
}

/// The snapshot that a mark's name is about, and the mark itself.
pub fn mark_of(name: &str) -> Result<(SessionId, MarkId)> {
    let (snapshot, mark) = last_component(name)
        .split_once('.')
        .ok_or_else(|| Error::damaged(format!("'{name}' is not the name of a mark")))?;
    Ok((snapshot.parse()?, mark.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_read_back() {
        let id = SessionId([0xab; 16]);
        let one = MarkId([1; 16]);
        assert_eq!(mark_of(&mark(id, one)).unwrap(), (id, one));
        assert!(mark_of("marks/nonsense").is_err());
        let second = ChangeName { snapshot: id, number: 2 };
        let text = change(second);
        assert_eq!(last_component(&text).parse::<ChangeName>().unwrap(), second);
        assert_ne!(second.sealed_as(), ChangeName { snapshot: id, number: 3 }.sealed_as());
        for number in ["0", "01", "+1", "", "1.2", "18446744073709551616"] {
            assert!(format!("{id}.{number}").parse::<ChangeName>().is_err(), "{number}");
        }
        assert_eq!(copy_of(&outcome(id)), format!("copies/outcomes/{id}"));
        let container_name = container(ContainerId([0xcd; 16]));
        assert!(container_name.starts_with("containers/cd/cdcd"));
        assert_eq!(last_component(&container_name).len(), 32);
        assert_eq!(session_of(&session_ready(id, 7)), Some((id, Some(7))));
        assert_eq!(session_of(&session_announced(id)), Some((id, None)));
        assert_eq!(session_of("sessions/nonsense"), None);
        assert_eq!(session_of(&format!("sessions/{id}/.DS_Store")), None);
        let container_id = ContainerId([0xcd; 16]);
        assert_eq!(container_of(&container_name), Some(container_id));
        for other in ["containers/cd", "containers/@eaDir", "containers/ab"] {
            assert_eq!(container_of(&format!("{other}/._{container_id}")), None);
        }
        assert_eq!(container_of(&format!("containers/@eaDir/{container_id}")), None);
    }
}
