//! What a restore reads as a whole, and what rewriting therefore counts by.
//!
//! FAST'19 counts references by container, because its restores read whole containers. Here a
//! restore reads and opens frames of about 256 KiB, so on a device without long seeks it is the
//! *frame* that is used well or badly: a container of which a restore needs a third may hold frames
//! that it needs whole and others that it need not touch. On a device that seeks, a read of a
//! container costs more than all its frames, and containers are counted.
//!
//! Policies know containers by name only. A frame gets a name of its own, made of its container's:
//! the last two bytes, which are random, give way to the frame's number, so that names are ordered
//! by age as before and two frames share one only if 48 random bits do.

use onefold_types::ContainerId;

/// A frame of a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FrameId {
    /// The container.
    pub container: ContainerId,
    /// The frame's number in it.
    pub frame: u16,
}

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
    /// The unit for a device on which a read takes so long.
    #[must_use]
    pub fn for_device(read_ns: u64) -> Self {
        if read_ns >= SEEKS_FROM_NS { Self::Container } else { Self::Frame }
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
        assert_eq!(Unit::for_device(11_494_000), Unit::Container);
        assert_eq!(Unit::for_device(141_000), Unit::Frame);
    }
}
