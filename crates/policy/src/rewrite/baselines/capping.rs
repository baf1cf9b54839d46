//! Capping: a segment refers to no more than so many old containers.
//!
//! Algorithm: FAST'19, section 2.2, after Lillibridge et al., FAST'13 (S2.7).
//!
//! 1. The stream is cut into segments of a fixed size.
//! 2. The old containers of a segment are sorted by the number of its chunks that they hold.
//! 3. Duplicates in containers that rank beyond the level are rewritten.
//!
//! A chunk with several instances is counted for the container that the greedy choice gave it,
//! which the publications leave open. Restoring a segment then reads at most the level's number of
//! old containers and the segment's new ones. How much is stored again is not bounded.
//!
//! Invariant: no segment refers to more old containers than the level.

use super::segment::Use;

/// The containers of a segment that rank beyond the level; `uses` are sorted.
pub(in crate::rewrite) fn beyond(level: u32, uses: &[Use]) -> Vec<u32> {
    uses.iter().skip(level as usize).map(|used| used.container).collect()
}
