//! Restore planning: which containers are read when, and what each read serves.
//!
//! A recipe is known before the restore begins, so all decisions of a restore can be made at once,
//! without any data: numbers go in, a [`Plan`] comes out. Who restores then performs the reads in
//! the order of the plan, takes from each the chunks at its ordinals, and holds every chunk until
//! the last of its ordinals within that read has been written.
//!
//! | module | engine | after |
//! | --- | --- | --- |
//! | `optimal_chunks` | the chunk that is needed last leaves | ours: Belady for chunks |
//! | `direct` | each container is read once | ours: for outputs that can be written anywhere |
//! | `baselines` | five engines of the papers | for comparison, by name only |
//!
//! Invariants: each ordinal of the recipe is in exactly one read, and that read is of the container
//! that the recipe names there; the ordinals of a read ascend; no read is without ordinals; if the
//! reads are performed in order and the output is written as soon as it can be, the chunks held
//! are [`Plan::memory_peak_bytes`] at most, which is within the engine's memory, except that one
//! chunk (for caches of containers, one container) is always held even if it is greater. The
//! container that is being read comes on top. [`RestoreEngine::Direct`] has no such bound.
//!
//! Memory: some 40 bytes for each entry of the recipe while planning, 4 bytes in the plan. Time is
//! near linear in the entries and in the chunks of the containers read.

mod baselines;
mod direct;
mod engine;
mod layout;
mod optimal_chunks;
mod served;

pub use engine::{ENGINE_MEMORY_RANGE_BYTES, RestoreEngine};

use baselines::{adaptive, chunk_cache, container_cache, forward_assembly, optimal};
use layout::Layout;
use onefold_types::{Error, Result};
use served::Served;
use std::ops::Range;

/// Entries a recipe may have.
pub const RECIPE_LENGTH_MAX: usize = 1 << 30;

/// One entry of a recipe, known by its ordinal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanChunk {
    /// The container that the chunk is to be read from, by any number.
    pub container: u32,
    /// The chunk: equal chunks have equal numbers, different ones different numbers.
    pub chunk: u32,
    /// Plain bytes.
    pub size_bytes: u32,
}

/// How much memory the containers take, for caches that hold more of them than the recipe needs.
///
/// The container `n` has `sizes[n]` plain payload bytes. One that is not listed, or listed with
/// less than what the recipe needs of it, is taken to hold what the recipe needs of it.
#[derive(Clone, Copy, Debug)]
pub struct ContainerSizes<'a>(pub &'a [u64]);

impl ContainerSizes<'_> {
    fn get(&self, container: u32) -> u64 {
        self.0.get(container as usize).copied().unwrap_or(0)
    }
}

/// One read of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedRead {
    /// The container.
    pub container: u32,
    /// What it serves: a range of [`Plan::ordinals`], never empty.
    pub ordinals: Range<usize>,
}

/// What is read, in which order, and what for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The reads, in their order.
    pub reads: Vec<PlannedRead>,
    /// Ordinals of the recipe, read after read and ascending within each; each ordinal once.
    pub ordinals: Vec<u32>,
    /// What has to be held to write the output from its beginning to its end: chunks that were
    /// read and wait for their turn, each counted once for a read.
    pub memory_peak_bytes: u64,
}

impl Plan {
    /// The ordinals of the recipe that a read of this plan serves; none, if it is of another plan.
    #[must_use]
    pub fn ordinals_of(&self, read: &PlannedRead) -> &[u32] {
        self.ordinals.get(read.ordinals.clone()).unwrap_or(&[])
    }
}

impl RestoreEngine {
    /// Plans the restore of a recipe.
    ///
    /// # Errors
    /// The engine's memory is out of range or the recipe has more than [`RECIPE_LENGTH_MAX`]
    /// entries (`Invalid`).
    pub fn plan(&self, recipe: &[PlanChunk], sizes: ContainerSizes<'_>) -> Result<Plan> {
        self.validate()?;
        if recipe.len() > RECIPE_LENGTH_MAX {
            return Err(Error::invalid(format!(
                "the recipe has {} places; it may have {RECIPE_LENGTH_MAX}",
                recipe.len()
            )));
        }
        let layout = Layout::new(recipe, sizes);
        self.served(&layout).into_plan(&layout)
    }

    fn served(&self, layout: &Layout) -> Served {
        match *self {
            Self::ContainerCache { memory_bytes } => container_cache::serve(layout, memory_bytes),
            Self::ForwardAssembly { area_bytes, rolling: false } => {
                forward_assembly::serve_in_fills(layout, area_bytes)
            }
            Self::ForwardAssembly { area_bytes, rolling: true } => {
                forward_assembly::serve_rolling(layout, area_bytes)
            }
            Self::ChunkCache { memory_bytes } => chunk_cache::serve(layout, memory_bytes),
            Self::AdaptiveLookAhead { memory_bytes, look_ahead_bytes, adapts } => {
                adaptive::serve(layout, memory_bytes, look_ahead_bytes, adapts)
            }
            Self::Optimal { memory_bytes } => optimal::serve(layout, memory_bytes),
            Self::OptimalChunks { memory_bytes } => optimal_chunks::serve(layout, memory_bytes),
            Self::Direct => direct::serve(layout),
        }
    }
}

/// MB restored for each container read: the speed factor of FAST'13, which FAST'19 reports too. An
/// empty recipe has none to speak of: zero.
#[must_use]
pub fn speed_factor(recipe_bytes: u64, reads: usize) -> f64 {
    if reads == 0 { 0.0 } else { recipe_bytes as f64 / f64::from(1 << 20) / reads as f64 }
}
