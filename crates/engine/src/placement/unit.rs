//! What a restore reads as a whole, and what rewriting therefore counts by.
//!
//! FAST'19 counts references by container, because its restores read whole containers. Here a
//! restore reads and opens frames of about 256 KiB, so on a device without long seeks it is the
//! *frame* that is used well or badly: a container of which a restore needs a third may hold frames
//! that it needs whole and others that it need not touch. On a device that seeks, a read of a
//! container costs more than all its frames, and containers are counted; so they are wherever a
//! user has named a number of them.
//!
//! Policies know containers by name only. A frame gets a name of its own, made of its container's:
//! the last two bytes, which are random, give way to the frame's number, so that names are ordered
//! by age as before and two frames share one only if 48 random bits do.

use crate::container::FrameId;
use onefold_policy::rewrite::RewriteChoice;
use onefold_types::ContainerId;

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
    /// The unit for a way of rewriting, on a device on which a read takes so long. A level, a
    /// number of reads and a threshold are what a user says of containers, whatever the device.
    #[must_use]
    pub fn for_rewriting(choice: &RewriteChoice, read_ns: u64) -> Self {
        if choice.counts_containers() || read_ns >= SEEKS_FROM_NS {
            Self::Container
        } else {
            Self::Frame
        }
    }

    /// The name under which a policy knows what holds a chunk.
    #[must_use]
    pub fn name_of(self, place: FrameId) -> ContainerId {
        let mut name = place.container;
        if self == Self::Frame
            && let [.., high, low] = &mut name.0
        {
            (*high, *low) = ((place.frame >> 8) as u8, place.frame as u8);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_names_of_their_own_in_the_order_of_age() {
        let place = |age: u8, random: u8, frame| {
            let mut container = ContainerId([random; 16]);
            container.0[0] = age;
            FrameId { container, frame }
        };
        let name = |place| Unit::Frame.name_of(place);
        assert_ne!(name(place(1, 9, 0)), name(place(1, 9, 1)));
        assert_ne!(name(place(1, 8, 0)), name(place(1, 9, 0)));
        assert!(name(place(1, 255, 300)) < name(place(2, 0, 0)));
        assert_eq!(Unit::Container.name_of(place(3, 7, 5)), place(3, 7, 5).container);
    }

    #[test]
    fn what_a_user_says_in_containers_is_counted_in_containers_on_every_device() {
        let unit = |choice: &str, read_ns| Unit::for_rewriting(&choice.parse().unwrap(), read_ns);
        for choice in ["auto", "auto,loss=5", "history", "window,loss=7", "flexible,loss=7"] {
            assert_eq!(unit(choice, 11_494_000), Unit::Container, "{choice}");
            assert_eq!(unit(choice, 141_000), Unit::Frame, "{choice}");
        }
        for choice in ["capping", "capping,level=2", "flexible", "window", "window,loss=7,reads=20"]
        {
            assert_eq!(unit(choice, 141_000), Unit::Container, "{choice}");
        }
        for choice in ["auto,reads=20", "flexible,threshold=100"] {
            assert_eq!(unit(choice, 141_000), Unit::Container, "{choice}");
        }
    }
}
