//! What rewriting counts references by: whatever a restore reads as a whole.
//!
//! FAST'19 counts by container; where a restore reads frames, it is the frame that is used well or
//! badly. Policies tell units apart by name only. A container's unit has the container's name; in a
//! frame's the last two bytes, which are random, give way to the frame number, so that names are
//! ordered by age and two frames share one only if 48 random bits do.
//!
//! Invariant: no unit becomes a container again. Its name may name no object of a store, so nobody
//! is to open one.

use onefold_types::ContainerId;
use std::fmt;

/// The name of a unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub [u8; 16]);

impl UnitId {
    /// A whole container.
    #[must_use]
    pub fn of_container(container: ContainerId) -> Self {
        Self(container.0)
    }

    /// One frame of a container.
    #[must_use]
    pub fn of_frame(container: ContainerId, frame: u16) -> Self {
        let mut name = container.0;
        let [.., high, low] = &mut name;
        (*high, *low) = ((frame >> 8) as u8, frame as u8);
        Self(name)
    }
}

impl fmt::Debug for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_names_of_their_own_in_the_order_of_age() {
        let frame = |age: u8, random: u8, frame| {
            let mut container = ContainerId([random; 16]);
            container.0[0] = age;
            UnitId::of_frame(container, frame)
        };
        assert_ne!(frame(1, 9, 0), frame(1, 9, 1));
        assert_ne!(frame(1, 8, 0), frame(1, 9, 0));
        assert!(frame(1, 255, 300) < frame(2, 0, 0));
        let container = ContainerId([3; 16]);
        assert_eq!(UnitId::of_container(container), UnitId::of_frame(container, 0x0303));
    }
}
