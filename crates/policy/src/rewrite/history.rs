//! HAR: rewrite what lies in containers that the previous version used sparsely.
//!
//! Algorithm: History-Aware Rewriting (Fu et al., ATC'14, section 4.2).
//!
//! 1. A container is sparse if the previous version used less than half of it.
//! 2. The next version inherits sparse containers. They are ordered by what the previous version
//!    used of them, least first, and as many are chosen as the loss allows to rewrite.
//! 3. Duplicates in chosen containers are rewritten at once; no chunk waits.
//!
//! What the publication leaves open: of several instances the newest that is not in a chosen
//! container is taken. The publication limits what is rewritten to a part of the stream; here the
//! limit is the loss, as for the other policies. Containers whose payload is not known are taken
//! to be as large as a container of [`RewriteParameters`]. Without a history nothing is rewritten.
//!
//! Invariant: no more chunks are rewritten than the loss allows in all. Memory: thirty bytes for
//! each sparse container.

use super::bounds::Budget;
use super::parameters::RewriteParameters;
use super::{Decision, RewriteCounters, UnitId};

/// A container of which less than one in so many bytes was used is sparse.
const SPARSE_PART: u64 = 2;

/// The sparse containers of the previous version.
#[derive(Debug)]
pub(super) struct History {
    budget: Budget,
    /// By name.
    sparse: Vec<Sparse>,
}

#[derive(Clone, Copy, Debug)]
struct Sparse {
    container: UnitId,
    /// What rewriting this and all that are used less takes.
    bytes_in_order: u64,
}

impl History {
    pub(super) fn new(parameters: &RewriteParameters) -> Self {
        let mut found: Vec<(u64, UnitId)> = Vec::new();
        for (container, usage) in parameters.history.iter().flat_map(|history| history.iter()) {
            let payload_bytes = match usage.payload_bytes {
                0 => parameters.container_bytes,
                known => known,
            };
            let is_sparse = usage.referred_bytes < payload_bytes / SPARSE_PART;
            if is_sparse && usage.referred_bytes > 0 {
                found.push((usage.referred_bytes, container));
            }
        }
        found.sort_unstable();
        let mut bytes_in_order = 0u64;
        let mut sparse: Vec<Sparse> = found
            .into_iter()
            .map(|(bytes, container)| {
                bytes_in_order = bytes_in_order.saturating_add(bytes);
                Sparse { container, bytes_in_order }
            })
            .collect();
        sparse.sort_unstable_by_key(|sparse| sparse.container);
        Self { budget: Budget::new(parameters).spread(), sparse }
    }

    /// What becomes of a chunk in these containers; `None` if it has none.
    pub(super) fn decide(
        &self,
        instances: &[UnitId],
        counters: &mut RewriteCounters,
    ) -> Option<Decision> {
        let newest = instances.first()?;
        let total = self.budget.total(counters);
        let mean_bytes = counters.chunk_bytes as f64 / counters.chunks.max(1) as f64;
        let total_bytes = (total as f64 * mean_bytes) as u64;
        let dense = instances.iter().find(|container| !self.is_chosen(container, total_bytes));
        Some(match dense {
            Some(container) => Decision::Keep(*container),
            None if counters.rewritten < total => Decision::Rewrite,
            None => {
                counters.kept_by_limit += 1;
                Decision::Keep(*newest)
            }
        })
    }

    fn is_chosen(&self, container: &UnitId, total_bytes: u64) -> bool {
        let found = self.sparse.binary_search_by(|sparse| sparse.container.cmp(container));
        let sparse = found.ok().and_then(|index| self.sparse.get(index));
        sparse.is_some_and(|sparse| sparse.bytes_in_order <= total_bytes)
    }
}
