//! What is marked: which chunks live snapshots need, as far as memory allows to know.
//!
//! Every form answers by a fingerprint's eight-byte prefix, never denies what was marked, and may
//! take a dead chunk for a live one: an exact set once in 2^64 pairs, a filter by its false
//! positives (S3.9), a perfect hash where two fingerprints share a prefix or one was not there when
//! the hash was made (S3.22), a filter that was told to attend to some chunks only for all others
//! (S3.15), and marks in scratch files for all that was not asked about beforehand
//! ([`Marks::prepare`]).

use super::inventory::{Inventory, InventoryItem};
use super::losses::Losses;
use super::spilled_live::SpilledLive;
use crate::chunk_store::prefix_hasher::ByPrefix;
use crate::job::Job;
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_policy::collection::focus::{CandidateFilter, Focus};
use onefold_policy::collection::live_filter::LiveFilter;
use onefold_policy::collection::mark_vector::MarkVector;
use onefold_policy::collection::perfect_hash::PerfectHash;
use onefold_types::{ContainerId, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes that an exact set takes for each chunk, room to grow included.
pub const EXACT_BYTES_PER_CHUNK: usize = 36;
/// Containers whose chunks are asked about before the room for more is looked at.
pub const CONTAINERS_PER_QUESTION: usize = 256;

/// Which chunks are attended to; all others count as live without being noted.
pub enum Attention {
    /// All.
    Whole,
    /// A sample, to choose candidates by (S3.15).
    Sample(Focus),
    /// Those of the candidate containers (S3.15).
    Candidates(CandidateFilter),
}

impl Attention {
    /// Whether the chunk is attended to.
    #[must_use]
    pub fn admits(&self, prefix: u64) -> bool {
        match self {
            Self::Whole => true,
            Self::Sample(focus) => focus.admits(prefix),
            Self::Candidates(filter) => filter.admits(prefix),
        }
    }
}

/// The marked chunks.
pub enum LiveSet {
    /// Every prefix, while all of them fit into memory; and which were met by the selection.
    Exact(HashMap<u64, bool, ByPrefix>),
    /// LGC and PGC: the Live Bloom filter.
    Filter {
        /// The filter.
        filter: LiveFilter,
        /// What it is about.
        attention: Attention,
    },
    /// PGC+: a bit for each fingerprint of the index.
    Perfect {
        /// From prefixes to positions.
        hash: PerfectHash,
        /// A bit for each position.
        bits: MarkVector,
    },
    /// Every prefix, in scratch files.
    Partitioned(Box<SpilledLive>),
}

impl LiveSet {
    /// Marks a chunk.
    ///
    /// Errors: those of scratch files, if there are any.
    pub fn insert(&mut self, prefix: u64) -> Result<()> {
        match self {
            Self::Partitioned(live) => return live.insert(prefix),
            Self::Exact(prefixes) => {
                prefixes.entry(prefix).or_default();
            }
            Self::Filter { filter, attention } => {
                if attention.admits(prefix) {
                    filter.insert(prefix);
                }
            }
            // A chunk that came after the hash was made is in no container that it is asked about.
            Self::Perfect { hash, bits } => {
                if let Some(position) = hash.position(prefix) {
                    bits.set(position);
                }
            }
        }
        Ok(())
    }

    /// Whether the chunk may be needed; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        match self {
            Self::Exact(prefixes) => prefixes.contains_key(&prefix),
            Self::Filter { filter, attention } => {
                !attention.admits(prefix) || filter.contains(prefix)
            }
            Self::Perfect { hash, bits } => {
                hash.position(prefix).is_some_and(|position| bits.get(position))
            }
            Self::Partitioned(live) => live.contains(prefix),
        }
    }

    /// Frees the candidate filter once everything is marked, so that two filters are in memory at
    /// once and no more (S3.15). From then on only chunks of candidates may be asked about.
    pub fn drop_candidates(&mut self) {
        if let Self::Filter { attention, .. } = self
            && matches!(attention, Attention::Candidates(_))
        {
            *attention = Attention::Whole;
        }
    }

    /// Memory taken, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        match self {
            Self::Exact(prefixes) => prefixes.capacity() * EXACT_BYTES_PER_CHUNK / 2,
            Self::Filter { filter, attention } => {
                let candidates = match attention {
                    Attention::Candidates(candidates) => candidates.bytes_used(),
                    _ => 0,
                };
                filter.bytes_used() + candidates
            }
            Self::Perfect { hash, bits } => hash.bytes_used() + bits.bytes_used(),
            Self::Partitioned(live) => live.bytes_used(),
        }
    }
}

/// The marked chunks, and those among them that are known to be lost.
pub struct Marks {
    /// The marked chunks.
    pub set: LiveSet,
    losses: Arc<Losses>,
    /// References to those.
    pub lost_references: u64,
    _lease: Option<Lease>,
}

impl Marks {
    /// Nothing is marked yet.
    #[must_use]
    pub fn new(set: LiveSet, losses: &Arc<Losses>) -> Self {
        Self { set, losses: Arc::clone(losses), lost_references: 0, _lease: None }
    }

    /// What was found to be lost when it was looked for last.
    #[must_use]
    pub fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }

    /// From now on this is what is lost.
    pub fn set_losses(&mut self, losses: Losses) {
        self.losses = Arc::new(losses);
    }

    /// The memory that these marks take belongs to them.
    #[must_use]
    pub fn holding(self, lease: Lease) -> Self {
        Self { _lease: Some(lease), ..self }
    }

    /// Marks a chunk.
    ///
    /// Errors: those of scratch files, if there are any.
    pub fn insert(&mut self, prefix: u64) -> Result<()> {
        if self.is_lost(prefix) {
            self.lost_references += 1;
        }
        self.set.insert(prefix)
    }

    /// Whether the chunk cannot be made of what is there.
    #[must_use]
    pub fn is_lost(&self, prefix: u64) -> bool {
        self.losses.is_lost(prefix)
    }

    /// How many chunks can be prepared for.
    #[must_use]
    pub fn prepared_max(&self) -> u64 {
        match &self.set {
            LiveSet::Partitioned(live) => live.asked_max() as u64,
            _ => u64::MAX,
        }
    }

    /// Prepares for questions about the chunks of the first of `containers`, which rise: as many as
    /// there is room for, at least [`CONTAINERS_PER_QUESTION`] and a multiple of them; says how
    /// many. All other chunks count as live afterwards. Only marks in scratch files need it.
    pub fn prepare(
        &mut self,
        repository: &Repository,
        inventory: &Inventory,
        containers: &[ContainerId],
        job: &Job,
    ) -> Result<usize> {
        let LiveSet::Partitioned(live) = &mut self.set else {
            return Ok(containers.len());
        };
        let mut asked = live.take_room();
        let mut prepared = 0;
        for some in containers.chunks(CONTAINERS_PER_QUESTION) {
            if asked.len() >= live.asked_max() {
                break;
            }
            let wanted = |container: &InventoryItem| some.binary_search(&container.id).is_ok();
            inventory.scan(repository, &wanted, job, &mut |_, section| {
                asked.extend(section.chunks.iter().map(|chunk| chunk.fingerprint.prefix()));
                Ok(())
            })?;
            prepared += some.len();
        }
        live.answer(asked)?;
        Ok(prepared)
    }

    /// Prepares for questions about these prefixes, not more than [`Self::prepared_max`]; all
    /// others count as live afterwards. Only marks in scratch files need it.
    pub fn prepare_for(&mut self, prefixes: impl Iterator<Item = u64>) -> Result<()> {
        let LiveSet::Partitioned(live) = &mut self.set else {
            return Ok(());
        };
        let mut asked = live.take_room();
        asked.extend(prefixes);
        live.answer(asked)
    }

    /// Whether the chunk may be needed; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        self.set.contains(prefix)
    }
}
