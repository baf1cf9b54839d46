//! Which containers to empty, where the stream is only what has changed.
//!
//! An algorithm of this project, after HAR (ATC'14, section 4). If most files are not read because
//! they have not changed, the stream says nothing about who else needs a container; only the
//! history does. A container that is not emptied wholly is read as before, so the loss is best
//! spent on whole containers: the sparsest first, each with everything that the previous version
//! needed of it, until what may be stored again is used up. Who reads the stream then has to read
//! all files that have something there, or something that is a difference against something there.

use super::UnitId;
use super::container_use::{ContainerUse, Usage};
use std::collections::BTreeSet;

/// The sparse containers that can be emptied by storing at most so many bytes again.
#[must_use]
pub fn sparsest(history: &ContainerUse, stored_again_bytes_max: u64) -> BTreeSet<UnitId> {
    let mut sparse: Vec<(UnitId, Usage)> =
        history.iter().filter(|(_, usage)| usage.is_sparse() == Some(true)).collect();
    // Compared as products: a/b < c/d.
    sparse.sort_by(|(a, one), (b, other)| {
        let one_share = u128::from(one.referred_bytes) * u128::from(other.payload_bytes);
        let other_share = u128::from(other.referred_bytes) * u128::from(one.payload_bytes);
        one_share.cmp(&other_share).then(a.cmp(b))
    });
    let mut left_bytes = stored_again_bytes_max;
    let mut targets = BTreeSet::new();
    for (container, usage) in sparse {
        let Some(left) = left_bytes.checked_sub(usage.referred_bytes) else {
            break;
        };
        left_bytes = left;
        targets.insert(container);
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sparsest_are_emptied_first_and_only_whole() {
        let id = |byte| UnitId([byte; 16]);
        let usage =
            |referred_bytes, payload_bytes| Usage { referred_bytes, payload_bytes, spans: 1 };
        let history: ContainerUse = [
            (id(1), usage(40, 100)),
            (id(2), usage(60, 100)),
            (id(3), usage(100, 1000)),
            (id(4), usage(10, 0)),
            (id(5), usage(30, 100)),
        ]
        .into_iter()
        .collect();
        let targets = |bytes| sparsest(&history, bytes).into_iter().collect::<Vec<_>>();
        assert_eq!(targets(99), []);
        assert_eq!(targets(100), [id(3)]);
        assert_eq!(targets(139), [id(3), id(5)]);
        assert_eq!(targets(170), [id(1), id(3), id(5)]);
        assert_eq!(targets(u64::MAX), [id(1), id(3), id(5)]);
    }
}
