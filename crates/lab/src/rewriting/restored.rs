//! Container reads of restores, and the speed factor.

use super::Sizes;
use super::ingest::{Stored, StoredVersion};
use crate::parallel;
use onefold_policy::restore_plan::{ContainerSizes, RestoreEngine};
use onefold_types::Result;

/// The restore of one version.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Restored {
    /// Its stream.
    pub stream: u32,
    /// Its generation.
    pub generation: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Containers read.
    pub reads: u64,
    /// What had to be held.
    pub memory_peak_bytes: u64,
    container_bytes: u64,
}

impl Restored {
    /// MB restored for each read of a container, for containers of 4 MB: 4 where all containers
    /// are read once and nothing in them is wasted.
    #[must_use]
    pub fn speed_factor(&self) -> f64 {
        let containers = self.bytes as f64 / self.container_bytes as f64;
        containers / self.reads.max(1) as f64 * (Sizes::PAPER.container_bytes >> 20) as f64
    }
}

/// Restores every version with an engine.
///
/// # Errors
/// The engine's memory is out of range.
pub fn restore(stored: &Stored, sizes: Sizes, engine: &RestoreEngine) -> Result<Vec<Restored>> {
    parallel::map(&stored.versions, parallel::threads(), |version| {
        restore_version(stored, version, sizes, engine)
    })
}

/// Restores one version.
///
/// # Errors
/// The engine's memory is out of range.
pub fn restore_version(
    stored: &Stored,
    version: &StoredVersion,
    sizes: Sizes,
    engine: &RestoreEngine,
) -> Result<Restored> {
    let plan = engine.plan(&version.recipe, ContainerSizes(&stored.container_bytes))?;
    Ok(Restored {
        stream: version.stream,
        generation: version.generation,
        bytes: version.bytes,
        reads: plan.reads.len() as u64,
        memory_peak_bytes: plan.memory_peak_bytes,
        container_bytes: sizes.container_bytes,
    })
}

/// The mean speed factor of versions, as in Fig. 7.
#[must_use]
pub fn mean_speed_factor(restored: &[Restored]) -> f64 {
    restored.iter().map(Restored::speed_factor).sum::<f64>() / restored.len().max(1) as f64
}

/// The speed factor of the last version.
#[must_use]
pub fn last_speed_factor(restored: &[Restored]) -> f64 {
    restored.last().map_or(0.0, Restored::speed_factor)
}

/// Forward assembly as in FAST'19: an area of eight containers, filled at a time.
#[must_use]
pub fn forward_assembly(sizes: Sizes) -> RestoreEngine {
    RestoreEngine::ForwardAssembly { area_bytes: sizes.memory_bytes(), rolling: false }
}

/// ALACC as in FAST'19: four containers of area, four of cache, eight of look-ahead, for good.
#[must_use]
pub fn papers_adaptive(sizes: Sizes) -> RestoreEngine {
    let memory_bytes = sizes.memory_bytes();
    RestoreEngine::AdaptiveLookAhead { memory_bytes, look_ahead_bytes: memory_bytes, adapts: false }
}

/// ALACC as the product has it: as in FAST'19 to begin with, but the look-ahead may grow to eight
/// times the memory, and area and cache may change places.
#[must_use]
pub fn adaptive(sizes: Sizes) -> RestoreEngine {
    let memory_bytes = sizes.memory_bytes();
    RestoreEngine::AdaptiveLookAhead { memory_bytes, look_ahead_bytes: memory_bytes, adapts: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewriting::ingest::ingest;
    use crate::rewriting::policy::Kind;
    use crate::rewriting::versions::{Version, Versions};
    use onefold_types::Fingerprint;

    fn once(chunks: u32) -> Versions {
        let chunk = |number: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            (Fingerprint(bytes), 4096)
        };
        let version = Version { stream: 0, generation: 0, chunks: (0..chunks).collect() };
        Versions {
            name: "once".into(),
            chunks: (0..chunks).map(chunk).collect(),
            versions: vec![version],
        }
    }

    #[test]
    fn what_is_stored_for_the_first_time_has_a_factor_of_four() {
        let sizes = Sizes::PAPER;
        let stored = ingest(&once(8192), sizes, &Kind::None.with_loss(0.0)).unwrap();
        let engines = [forward_assembly(sizes), adaptive(sizes), papers_adaptive(sizes)];
        for engine in engines.into_iter().chain([RestoreEngine::Direct]) {
            let restored = restore(&stored, sizes, &engine).unwrap();
            assert_eq!((restored.len(), restored[0].reads, restored[0].bytes), (1, 8, 32 << 20));
            assert!((mean_speed_factor(&restored) - 4.0).abs() < 1e-9);
            assert!((last_speed_factor(&restored) - 4.0).abs() < 1e-9);
        }
        assert_eq!((mean_speed_factor(&[]), last_speed_factor(&[])), (0.0, 0.0));
    }

    #[test]
    fn smaller_containers_are_counted_as_if_they_were_of_four_megabytes() {
        let sizes = Sizes { container_bytes: 1 << 20, ..Sizes::PAPER };
        let stored = ingest(&once(2048), sizes, &Kind::None.with_loss(0.0)).unwrap();
        let restored = restore(&stored, sizes, &forward_assembly(sizes)).unwrap();
        assert_eq!(restored[0].reads, 8);
        assert!((last_speed_factor(&restored) - 4.0).abs() < 1e-9);
    }
}
