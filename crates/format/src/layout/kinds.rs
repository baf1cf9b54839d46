//! Which kinds of objects there are, by their names: what a store accepts, and from whom.
//!
//! # Invariants
//! - Each name that this module makes is of one kind, and no other name is of any.
//! - Putting an object by which others delete, hide or stop takes the right to collect
//!   ([`Kind::takes_collecting`]).

use super::{
    CHANGES, CHECKPOINTS, CONFIGURATION, CONFIGURATION_COPY, CONTAINERS, COPIES, ChangeName,
    DAMAGE, DOUBTS, EPOCHS, FATES, FINALS, FINISHED, GENERATIONS, INDEX, KEYS, MARKS, METADATA,
    OUTCOMES, PLANS, SESSIONS, SWEEPS, TOMBSTONES, container_of, mark_of, session_of,
    session_ready,
};
use onefold_types::{CheckpointId, ContainerId, DoubtId, KeyId, MarkId, PlanId, RunId, SessionId};

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Either copy of the configuration.
    Configuration,
    /// A key slot, its second copy, or that it is being removed.
    Key,
    /// Which keys are a generation.
    Generation,
    /// A container.
    Container,
    /// A pack of metadata sections.
    MetadataPack,
    /// An index run.
    IndexRun,
    /// A session exists.
    Announced(SessionId),
    /// It knows an epoch.
    Ready(SessionId),
    /// How it ended.
    Outcome(SessionId),
    /// A snapshot is forgotten for good.
    Tombstone,
    /// A snapshot is hidden.
    Mark,
    /// A mark was taken back.
    Fate,
    /// Hold, tags and note of a snapshot.
    Change,
    /// A change may be the last one.
    Final,
    /// What decided names say.
    Checkpoint,
    /// Quarantine of a container.
    Damage,
    /// A doubt.
    Doubt,
    /// A plan, an epoch, a sweep, or that an epoch is finished.
    Collection,
}

impl Kind {
    /// The kind of a name; `None` for one that no object of a store has.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name.strip_prefix(COPIES).and_then(|rest| rest.strip_prefix('/')) {
            None => Self::of_first(name),
            Some(decision) => Self::of_first(decision).filter(|kind| kind.is_decision(decision)),
        }
    }

    fn of_first(name: &str) -> Option<Self> {
        if [CONFIGURATION, CONFIGURATION_COPY].contains(&name) {
            return Some(Self::Configuration);
        }
        let (directory, rest) = name.split_once('/')?;
        let is_id = |is: bool, kind| is.then_some(kind);
        match directory {
            KEYS => is_id(is_key(rest), Self::Key),
            GENERATIONS => is_id(is_number::<u32>(rest), Self::Generation),
            CONTAINERS => container_of(name).map(|_| Self::Container),
            METADATA => is_id(rest.parse::<ContainerId>().is_ok(), Self::MetadataPack),
            INDEX => is_id(rest.parse::<RunId>().is_ok(), Self::IndexRun),
            SESSIONS => match session_of(name)? {
                (id, None) => is_id(name == super::session_announced(id), Self::Announced(id)),
                (id, Some(epoch)) => is_id(name == session_ready(id, epoch), Self::Ready(id)),
            },
            OUTCOMES => rest.parse().ok().map(Self::Outcome),
            TOMBSTONES => is_id(rest.parse::<SessionId>().is_ok(), Self::Tombstone),
            MARKS => is_id(!rest.contains('/') && mark_of(name).is_ok(), Self::Mark),
            FATES => is_id(rest.parse::<MarkId>().is_ok(), Self::Fate),
            CHANGES => is_id(rest.parse::<ChangeName>().is_ok(), Self::Change),
            FINALS => is_id(rest.parse::<ChangeName>().is_ok(), Self::Final),
            CHECKPOINTS => is_id(rest.parse::<CheckpointId>().is_ok(), Self::Checkpoint),
            DAMAGE => is_id(rest.parse::<ContainerId>().is_ok(), Self::Damage),
            DOUBTS => is_id(rest.parse::<DoubtId>().is_ok(), Self::Doubt),
            PLANS => is_id(rest.parse::<PlanId>().is_ok(), Self::Collection),
            EPOCHS | SWEEPS | FINISHED => is_id(is_number::<u64>(rest), Self::Collection),
            _ => None,
        }
    }

    /// Whether a first copy of this kind has a second one below [`COPIES`].
    fn is_decision(self, name: &str) -> bool {
        match self {
            Self::Generation | Self::Outcome(_) | Self::Tombstone | Self::Fate | Self::Change => {
                true
            }
            Self::Collection => name.starts_with(EPOCHS) || name.starts_with(SWEEPS),
            _ => false,
        }
    }

    /// Whether putting it takes the right to collect.
    #[must_use]
    pub fn takes_collecting(self) -> bool {
        match self {
            Self::Configuration
            | Self::Key
            | Self::Generation
            | Self::Tombstone
            | Self::Final
            | Self::Checkpoint
            | Self::Collection => true,
            Self::Container
            | Self::MetadataPack
            | Self::IndexRun
            | Self::Announced(_)
            | Self::Ready(_)
            | Self::Outcome(_)
            | Self::Mark
            | Self::Fate
            | Self::Change
            | Self::Damage
            | Self::Doubt => false,
        }
    }

    /// As users see it: of one object.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Key => "key slot",
            Self::Generation => "generation of keys",
            Self::Container => "container",
            Self::MetadataPack => "metadata pack",
            Self::IndexRun => "index run",
            Self::Announced(_) => "session",
            Self::Ready(_) => "readiness of a session",
            Self::Outcome(_) => "snapshot",
            Self::Tombstone => "tombstone",
            Self::Mark => "mark",
            Self::Fate => "fate of a mark",
            Self::Change => "change of a snapshot",
            Self::Final => "finality of a change",
            Self::Checkpoint => "checkpoint",
            Self::Damage => "quarantine",
            Self::Doubt => "doubt",
            Self::Collection => "step of a collection",
        }
    }

    /// Whether nobody loses more than time if such an object is gone, whoever put it and whatever
    /// it says (docs/PROTOCOL.md, section 11): it repeats what others prove, or spares a wait.
    ///
    /// Quarantines and doubts are none of these: what they warn of may be so.
    #[must_use]
    pub fn costs_time_only(self) -> bool {
        match self {
            Self::MetadataPack | Self::IndexRun | Self::Ready(_) | Self::Checkpoint => true,
            Self::Configuration
            | Self::Key
            | Self::Generation
            | Self::Container
            | Self::Announced(_)
            | Self::Outcome(_)
            | Self::Tombstone
            | Self::Mark
            | Self::Fate
            | Self::Change
            | Self::Final
            | Self::Damage
            | Self::Doubt
            | Self::Collection => false,
        }
    }

    /// The session that owns the object. Only its client puts it, or one with the right to collect.
    #[must_use]
    pub fn of_session(self) -> Option<SessionId> {
        match self {
            Self::Ready(id) | Self::Outcome(id) => Some(id),
            _ => None,
        }
    }
}

/// Whether this names a key slot, its copy, or its removal.
fn is_key(name: &str) -> bool {
    let (id, rest) = name.split_once('.').unwrap_or((name, ""));
    let is_removal =
        |rest: &str| rest.strip_prefix("removed.").is_some_and(|id| id.parse::<KeyId>().is_ok());
    id.parse::<KeyId>().is_ok() && (!name.contains('.') || rest == "copy" || is_removal(rest))
}

/// Whether this is a number in its only spelling.
fn is_number<N: std::str::FromStr + ToString>(text: &str) -> bool {
    text.parse::<N>().is_ok_and(|number| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    #[test]
    fn each_name_is_of_one_kind_and_no_other_name_is_of_any() {
        let (session, key) = (SessionId([0xab; 16]), KeyId([1; 16]));
        let change = ChangeName { snapshot: session, number: 3 };
        let names = [
            (CONFIGURATION.to_owned(), Kind::Configuration),
            (CONFIGURATION_COPY.to_owned(), Kind::Configuration),
            (key_slot(key), Kind::Key),
            (key_slot_copy(key), Kind::Key),
            (key_removal(key, key), Kind::Key),
            (generation(2), Kind::Generation),
            (container(ContainerId([7; 16])), Kind::Container),
            (metadata_pack(ContainerId([7; 16])), Kind::MetadataPack),
            (index_run(RunId([7; 16])), Kind::IndexRun),
            (session_announced(session), Kind::Announced(session)),
            (session_ready(session, 7), Kind::Ready(session)),
            (outcome(session), Kind::Outcome(session)),
            (tombstone(session), Kind::Tombstone),
            (mark(session, MarkId([7; 16])), Kind::Mark),
            (fate(MarkId([7; 16])), Kind::Fate),
            (super::super::change(change), Kind::Change),
            (finality(change), Kind::Final),
            (checkpoint(CheckpointId([7; 16])), Kind::Checkpoint),
            (damage(ContainerId([7; 16])), Kind::Damage),
            (doubt(DoubtId([7; 16])), Kind::Doubt),
            (plan(PlanId([7; 16])), Kind::Collection),
            (epoch(1), Kind::Collection),
            (sweep(1), Kind::Collection),
            (finished(1), Kind::Collection),
        ];
        let decided = [GENERATIONS, OUTCOMES, TOMBSTONES, FATES, CHANGES, EPOCHS, SWEEPS];
        for (name, kind) in names {
            assert_eq!(Kind::of(&name), Some(kind), "{name}");
            let has_copy = decided.iter().any(|directory| name.starts_with(directory));
            assert_eq!(Kind::of(&copy_of(&name)), has_copy.then_some(kind), "{name}");
            for other in [format!("{name}/x"), format!("{name}x"), format!("x/{name}")] {
                assert_eq!(Kind::of(&other), None, "{other}");
            }
            if let Some((directory, _)) = name.split_once('/') {
                for other in [directory.to_owned(), format!("{directory}/x")] {
                    assert_eq!(Kind::of(&other), None, "{other}");
                }
            }
        }
        let shard = format!("{CONTAINERS}/00/{}", ContainerId([7; 16]));
        for other in ["", "x", "containers/07", &shard, "epochs/01", "generations/4294967296"] {
            assert_eq!(Kind::of(other), None, "{other}");
        }
    }
}
