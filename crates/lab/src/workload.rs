//! Traces with the sizes that go with them: cache, containers, buckets, buffer.
//!
//! Generated workloads are smaller than the papers' by a stated factor. What must keep its
//! proportion is kept: the cache to one generation, and the fingerprints of a bucket to those of a
//! container. What is fixed in the papers stays as it is: chunks in a container, bits for a key.

use crate::device::Device;
use crate::simulation::{Collection, IndexSetup, Outcome, Setup};
use crate::source::generator::{Generator, Preset};
use crate::source::tree::{self, Layout};
use crate::trace::Trace;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_policy::FilterOrder;
use onefold_policy::lookup::{
    AutoParameters, DeviceCosts, LazyParameters, LookupStrategy, SampledParameters,
};
use onefold_types::Result;
use std::path::Path;

/// Memory that the locality cache takes for a fingerprint, with room to spare.
const CACHE_BYTES_PER_FINGERPRINT: usize = 64;
/// Fingerprints in an index page.
const PAGE_FINGERPRINTS: usize = 340;

/// A trace and the store that it meets.
pub struct Workload {
    /// The trace.
    pub trace: Box<dyn Trace>,
    /// Chunks of one generation of all streams, nearly.
    pub generation_chunks: usize,
    /// Chunks in a container.
    pub container_chunks: usize,
    /// Fingerprints that the cache holds.
    pub cache_fingerprints: usize,
    /// Fingerprints that may wait for a verdict in one stream.
    pub buffer_max: usize,
    /// Whether generations are deleted.
    pub deletes: bool,
}

impl Workload {
    /// A generated workload; `tiny` ones take part of a second.
    ///
    /// # Errors
    /// The scale is impossible.
    pub fn generated(preset: Preset, tiny: bool) -> Result<Self> {
        let chunks = match (preset, tiny) {
            (Preset::Exchange, false) => 40_000,
            (Preset::Engineering, false) => 100_000,
            (Preset::Mirror, false) => 18_000,
            (Preset::Aged, false) => 12_000,
            (Preset::Primary, false) => 60_000,
            (Preset::Exchange, true) => 800,
            (Preset::Engineering, true) => 2000,
            (Preset::Mirror, true) => 1000,
            (Preset::Aged, true) => 400,
            (Preset::Primary, true) => 3000,
        };
        let generator = Generator::preset(preset, chunks)?;
        let parameters = generator.parameters();
        let lineages = (parameters.lineages * parameters.streams) as usize;
        let generation_chunks = chunks * lineages;
        let group = match preset {
            // S0.8: the prefetched group has 2048 fingerprints.
            Preset::Mirror => 2048,
            _ => 1024,
        };
        Ok(Self {
            deletes: parameters.deletion.is_some(),
            trace: Box::new(generator),
            generation_chunks,
            container_chunks: if tiny { group / 32 } else { group },
            cache_fingerprints: cache_for(preset, generation_chunks),
            buffer_max: buffer_for(generation_chunks),
        })
    }

    /// Real directories, cut into chunks of about `average` bytes.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn real(data: &Path, kind: ChunkerKind, average: usize) -> Result<Self> {
        let parameters = ChunkerParameters::with_average(kind, average)?;
        let versions = tree::versions(data)?;
        let trace = tree::read_versions("real data", &versions, &parameters, Layout::Files)?;
        let generation_chunks = trace.chunk_count() / versions.len().max(1);
        Ok(Self {
            trace: Box::new(trace),
            generation_chunks,
            container_chunks: 1024,
            cache_fingerprints: generation_chunks / 4,
            buffer_max: buffer_for(generation_chunks),
            deletes: false,
        })
    }

    /// The workload's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.trace.name()
    }

    /// The setup that goes with the workload; a cache of another size for others.
    #[must_use]
    pub fn setup(&self, strategy: LookupStrategy) -> Setup {
        let group_pages = self.container_chunks.div_ceil(PAGE_FINGERPRINTS) as u32;
        Setup {
            container_chunks: self.container_chunks,
            pending_max: (self.generation_chunks / 2).max(1 << 12),
            collection: self.deletes.then(Collection::default),
            index: IndexSetup { bucket_pages: Some(group_pages), ..IndexSetup::default() },
            ..Setup::new(strategy, self.cache_bytes(self.cache_fingerprints))
        }
    }

    /// The memory that a cache for so many fingerprints needs; it holds two containers at least.
    #[must_use]
    pub fn cache_bytes(&self, fingerprints: usize) -> usize {
        fingerprints.max(2 * self.container_chunks) * CACHE_BYTES_PER_FINGERPRINT + (1 << 13)
    }

    /// Lazy look-up as S0 has it by default: rings as long as a container (S0.8).
    #[must_use]
    pub fn lazy(&self, bucket_threshold: usize) -> LookupStrategy {
        self.lazy_with(self.container_chunks, bucket_threshold)
    }

    /// Lazy look-up.
    #[must_use]
    pub fn lazy_with(&self, ring_length: usize, bucket_threshold: usize) -> LookupStrategy {
        let buffer_max = self.buffer_max;
        LookupStrategy::Lazy(LazyParameters { ring_length, bucket_threshold, buffer_max })
    }

    /// Look-up by samples, with segments as long as two containers.
    #[must_use]
    pub fn sampled(&self) -> LookupStrategy {
        let segment_length = 2 * self.container_chunks;
        LookupStrategy::Sampled(SampledParameters { segment_length })
    }

    /// Look-up that chooses for this device.
    #[must_use]
    pub fn auto(&self, device: &Device) -> LookupStrategy {
        let costs = DeviceCosts {
            device_read_ns: device.read_ns,
            memory_access_ns: crate::device::DRAM_NS,
        };
        let window = (self.generation_chunks / 8).clamp(256, 4096);
        let parameters = AutoParameters::new(costs, self.buffer_max);
        LookupStrategy::Auto(AutoParameters { window_length: window, ..parameters })
    }

    /// Runs a strategy with the setup that goes with the workload.
    ///
    /// # Errors
    /// Those of the simulation.
    pub fn run(&self, strategy: LookupStrategy) -> Result<Outcome> {
        self.setup(strategy).run(&*self.trace)
    }
}

/// Both orders of eager look-up with their names.
#[must_use]
pub fn eager() -> [(&'static str, LookupStrategy); 2] {
    [
        ("eager, filter first", LookupStrategy::Eager(FilterOrder::FilterFirst)),
        ("eager, cache first", LookupStrategy::Eager(FilterOrder::CacheFirst)),
    ]
}

/// The papers' machines had memory for the fingerprints of about a generation (FAST'08: 8 GB for
/// fulls of 2.4 million chunks; S0: 256 MB for 26 million chunks in all); the aged one has half.
fn cache_for(preset: Preset, generation_chunks: usize) -> usize {
    match preset {
        Preset::Exchange | Preset::Engineering => generation_chunks * 2,
        Preset::Mirror => generation_chunks * 3 / 2,
        Preset::Aged => generation_chunks / 2,
        Preset::Primary => 4096.min(generation_chunks / 8),
    }
}

fn buffer_for(generation_chunks: usize) -> usize {
    (generation_chunks / 3).clamp(256, 1 << 16)
}
