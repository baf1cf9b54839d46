//! What a restore reads as a whole, and what rewriting therefore counts by.
//!
//! FAST'19 counts references by container, because its restores read whole containers. Here a
//! restore reads and opens frames of about 256 KiB, so on a device without long seeks it is the
//! *frame* that is used well or badly: a container of which a restore needs a third may hold frames
//! that it needs whole and others that it need not touch. On a device that seeks, a read of a
//! container costs more than all its frames, and containers are counted; so they are wherever a
//! user has named a number of them. By itself rewriting happens on such devices only: elsewhere it
//! earns nothing that is worth its bytes
//! (docs/decisions/0061-no-rewriting-where-reads-are-quick.md).
//!
use crate::container::FrameId;
use onefold_policy::rewrite::{RewriteChoice, UnitId};
use onefold_policy::stream::Units;

/// What rewriting counts references by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Frames.
    #[default]
    Frame,
    /// Whole containers.
    Container,
}

/// A read that takes longer than opening some frames, in nanoseconds.
const SEEKS_FROM_NS: u64 = 2_000_000;

impl Unit {
    /// The unit for a way of rewriting, on a device on which a read takes so long; `None` where
    /// nothing is rewritten, which is what the default does on a device without long seeks. A
    /// level, a number of reads and a threshold are what a user says of containers, whatever the
    /// device.
    #[must_use]
    pub fn for_rewriting(choice: &RewriteChoice, read_ns: u64) -> Option<Self> {
        match choice {
            RewriteChoice::None => None,
            _ if choice.counts_containers() || read_ns >= SEEKS_FROM_NS => Some(Self::Container),
            _ if *choice == RewriteChoice::default() => None,
            _ => Some(Self::Frame),
        }
    }

    /// The unit that a frame belongs to.
    #[must_use]
    pub fn id_of(self, frame: FrameId) -> UnitId {
        match self {
            Self::Frame => UnitId::of_frame(frame.container, frame.frame),
            Self::Container => UnitId::of_container(frame.container),
        }
    }
}

impl Units for Unit {
    type Address = FrameId;

    fn unit_of(&self, address: FrameId) -> UnitId {
        self.id_of(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_says_in_containers_is_counted_in_containers_on_every_device() {
        let unit = |choice: &str, read_ns| Unit::for_rewriting(&choice.parse().unwrap(), read_ns);
        for choice in ["auto,loss=2", "history", "window,loss=7", "flexible,loss=7"] {
            assert_eq!(unit(choice, SEEKS_FROM_NS), Some(Unit::Container), "{choice}");
            assert_eq!(unit(choice, SEEKS_FROM_NS - 1), Some(Unit::Frame), "{choice}");
        }
        for choice in ["capping", "capping,level=2", "flexible", "window", "window,loss=7,reads=20"]
        {
            assert_eq!(unit(choice, 141_000), Some(Unit::Container), "{choice}");
        }
        for choice in ["auto,reads=20", "flexible,threshold=100"] {
            assert_eq!(unit(choice, 141_000), Some(Unit::Container), "{choice}");
        }
    }

    #[test]
    fn by_itself_rewriting_happens_where_a_read_takes_long() {
        let unit = |choice: &RewriteChoice, read_ns| Unit::for_rewriting(choice, read_ns);
        for default in [RewriteChoice::default(), "auto".parse().unwrap()] {
            assert_eq!(unit(&default, SEEKS_FROM_NS), Some(Unit::Container));
            assert_eq!(unit(&default, SEEKS_FROM_NS - 1), None);
            assert_eq!(unit(&default, 0), None);
        }
        assert_eq!(unit(&RewriteChoice::None, SEEKS_FROM_NS), None);
    }
}
