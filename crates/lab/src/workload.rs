//! Traces with the sizes that go with them: cache, containers, buckets, buffer.
//!
//! Generated workloads are smaller than the papers' by a stated factor. What must keep its
//! proportion is kept: the cache to one generation, and the fingerprints of a bucket to those of a
//! container. What is fixed in the papers stays as it is: chunks in a container, bits for a key.

use crate::device::Device;
use crate::simulation::{Collection, IndexSetup, Outcome, Setup, index};
use crate::source::generator::{Generator, Parameters, Preset};
use crate::source::tree::{self, Layout};
use crate::trace::{Joined, Summary, Trace};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::MemoryPlan;
use onefold_engine::device::HELD_CHUNK_NS;
use onefold_policy::FilterOrder;
use onefold_policy::lookup::{
    AutoParameters, LazyParameters, LookupStrategy, PostLookup, SampledParameters,
};
use onefold_types::{Result, limits};
use std::path::Path;

/// Memory that the locality cache takes for a fingerprint, with room to spare.
const CACHE_BYTES_PER_FINGERPRINT: usize = 64;
/// Hash functions of the papers' Bloom filters (S1.13).
const PAPERS_HASHES: u32 = 4;
/// Fingerprints in an index page.
const PAGE_FINGERPRINTS: usize = 340;
/// The mean size of chunks that `onefold init` chooses.
const SHIPPED_CHUNK_BYTES: usize = 8 << 10;
/// Chunks in a container of the product's, about: 4 MiB of chunks of 8 KiB, compressed.
const SHIPPED_CONTAINER_CHUNKS: usize = 700;

/// What the rows of the product as it is begin with; they come first in their tables.
pub const SHIPPED: &str = "as shipped";
/// Where it is shown if not on every device: where look-ups wait for the device, and where they
/// hardly do.
const SHIPPED_ON: [&str; 2] = ["HDD", "SATA SSD"];

/// A trace and the store that it meets.
pub struct Workload {
    /// Its name in tables.
    pub name: String,
    /// The trace.
    pub trace: Box<dyn Trace>,
    /// Chunks of one generation of all streams, nearly.
    pub generation_chunks: usize,
    /// Chunks in a container.
    pub container_chunks: usize,
    /// Fingerprints that the cache holds.
    pub cache_fingerprints: usize,
    /// Fingerprints of a bucket that lazy look-up locates together: such that all buckets hold two
    /// or three containers' worth.
    pub bucket_threshold: usize,
    /// Fingerprints that may wait for a verdict in one stream.
    pub buffer_max: usize,
    /// New chunks that are not yet in an index run, at most.
    pub pending_max: usize,
    /// Whether chunks are stored in stream order, as the product does.
    pub ordered: bool,
    /// Whether generations are deleted.
    pub deletes: bool,
    /// The index, if not the product's.
    pub index: IndexSetup,
}

impl Workload {
    /// A generated workload on the product's index; `tiny` ones take part of a second.
    ///
    /// # Errors
    /// The scale is impossible.
    pub fn generated(preset: Preset, tiny: bool) -> Result<Self> {
        let chunks = match (preset, tiny) {
            (Preset::Exchange, false) => 30_000,
            (Preset::Engineering, false) => 100_000,
            (Preset::Mirror, false) => 18_000,
            (Preset::Aged | Preset::Scattered, false) => 10_000,
            (Preset::Primary, false) => 60_000,
            (Preset::Exchange, true) => 2000,
            (Preset::Engineering, true) => 6000,
            (Preset::Mirror, true) => 1500,
            (Preset::Aged | Preset::Scattered, true) => 1500,
            (Preset::Primary, true) => 3000,
        };
        let generator = Generator::preset(preset, chunks)?;
        let parameters = generator.parameters();
        let lineages = (parameters.lineages * parameters.streams) as usize;
        let deletes = parameters.deletion.is_some();
        let generation_chunks = chunks * lineages;
        let container_chunks = match preset {
            // A generation of a stream fills about half a container, in either form.
            Preset::Aged | Preset::Scattered if tiny => 128,
            _ if tiny => 256,
            _ => 1024,
        };
        let cache_fingerprints = match preset {
            // FAST'08's machine had 8 GB for fulls of 2.4 million chunks.
            Preset::Exchange | Preset::Engineering => generation_chunks * 4,
            Preset::Mirror => generation_chunks * 3 / 2,
            Preset::Aged | Preset::Scattered => generation_chunks / 2,
            Preset::Primary => generation_chunks / 8,
        };
        let trace = Box::new(generator);
        Ok(Self::new(trace, generation_chunks, container_chunks, cache_fingerprints, deletes))
    }

    /// The images of S0, looked up as S0 did: in one session, each chunk stored as soon as it has
    /// its verdict, with groups of 2048 fingerprints (S0.8), on an index that is one table, with a
    /// Bloom filter of `bits_per_key` bits for each unique chunk and a cache for a fifth of all
    /// fingerprints (S0.19, S0.20).
    ///
    /// # Errors
    /// The number of bits is impossible.
    pub fn papers_images(tiny: bool, bits_per_key: f64) -> Result<Self> {
        let seed = Generator::preset(Preset::Mirror, 1)?.parameters().seed;
        let size = if tiny { (1500, 256) } else { Self::IMAGES };
        Self::images_of(size, bits_per_key, seed)
    }

    /// The chunks of an image of the papers' and those of a container.
    pub const IMAGES: (usize, usize) = (18_000, 2048);

    /// The same images generated from a seed, with so many chunks each, and in a container.
    ///
    /// # Errors
    /// The number of bits is impossible.
    pub fn images_of(
        (chunks, container_chunks): (usize, usize),
        bits_per_key: f64,
        seed: u64,
    ) -> Result<Self> {
        let parameters = Generator::preset(Preset::Mirror, chunks)?.parameters().clone();
        let lineages = (parameters.lineages * parameters.streams) as usize;
        let trace = Joined(Generator::new(Parameters { seed, ..parameters })?);
        let totals = Summary::of(&trace)?.total();
        let cache = totals.chunks as usize / 5;
        let summary =
            index::Summary { keys: totals.chunks_new, bits_per_key, hashes: PAPERS_HASHES };
        let index = IndexSetup {
            memory_bytes: 0,
            single_run: true,
            summary: Some(summary),
            ..IndexSetup::default()
        };
        let generation = chunks * lineages;
        let workload = Self::new(Box::new(trace), generation, container_chunks, cache, false);
        let name = format!("images, {bits_per_key} bits");
        Ok(Self { name, index, ordered: false, pending_max: 4 * container_chunks, ..workload })
    }

    /// The blocks that one index of all unique chunks of the images has: as many buckets S0 has.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        let keys = self.index.summary.map_or(0, |summary| summary.keys);
        u32::try_from(keys.div_ceil(PAGE_FINGERPRINTS as u64)).unwrap_or(u32::MAX).max(1)
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
        let trace = Box::new(trace);
        Ok(Self::new(trace, generation_chunks, 1024, generation_chunks / 2, false))
    }

    fn new(
        trace: Box<dyn Trace>,
        generation_chunks: usize,
        container_chunks: usize,
        cache_fingerprints: usize,
        deletes: bool,
    ) -> Self {
        Self {
            name: trace.name().to_owned(),
            trace,
            generation_chunks,
            container_chunks,
            cache_fingerprints,
            bucket_threshold: if container_chunks < 1000 { 4 } else { 16 },
            buffer_max: (generation_chunks / 3).clamp(256, 1 << 16),
            pending_max: (generation_chunks / 2).max(1 << 12),
            ordered: true,
            deletes,
            index: IndexSetup::default(),
        }
    }

    /// The name as part of a file's.
    #[must_use]
    pub fn file_name(&self) -> String {
        file_name(&self.name)
    }

    /// The setup that goes with the workload; a cache of another size for others.
    #[must_use]
    pub fn setup(&self, strategy: LookupStrategy) -> Setup {
        let group_pages = self.container_chunks.div_ceil(PAGE_FINGERPRINTS) as u32;
        Setup {
            container_chunks: self.container_chunks,
            pending_max: self.pending_max,
            held_max: self.ordered.then_some(self.buffer_max),
            collection: self.deletes.then(Collection::default),
            index: IndexSetup { bucket_pages: Some(group_pages), ..self.index.clone() },
            ..Setup::new(strategy, self.cache_bytes(self.cache_fingerprints))
        }
    }

    /// The product as it is by default on this device: `auto`, with what 256 MiB give, in stream
    /// order, on its own index.
    ///
    /// # Errors
    /// None that is known: the default limit can be divided.
    pub fn as_shipped(&self, device: &Device) -> Result<Setup> {
        let plan = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
        let waiting = plan.waiting_chunks_bytes / SHIPPED_CHUNK_BYTES;
        let costs = device.costs().holding(HELD_CHUNK_NS);
        let strategy = LookupStrategy::Auto(AutoParameters::new(costs, waiting));
        let index = IndexSetup { memory_bytes: plan.summary_vector_bytes, ..IndexSetup::default() };
        Ok(Setup {
            container_chunks: SHIPPED_CONTAINER_CHUNKS,
            pending_max: plan.pending_chunks_max,
            held_max: Some(waiting),
            collection: self.deletes.then(Collection::default),
            index,
            ..Setup::new(strategy, plan.locality_cache_bytes)
        })
    }

    /// The product as it is on a hard disk and on flash, with the names of its rows, for tables
    /// that count accesses and tell devices apart no further.
    ///
    /// # Errors
    /// None that is known: the default limit can be divided.
    pub fn shipped_rows(&self) -> Result<Vec<(String, Setup)>> {
        let devices = Device::modelled().into_iter();
        let shown = devices.filter(|device| SHIPPED_ON.contains(&device.name.as_str()));
        shown
            .map(|device| Ok((format!("{SHIPPED} on {}", device.name), self.as_shipped(&device)?)))
            .collect()
    }

    /// The memory that a cache for so many fingerprints needs; it holds two containers at least.
    #[must_use]
    pub fn cache_bytes(&self, fingerprints: usize) -> usize {
        fingerprints.max(2 * self.container_chunks) * CACHE_BYTES_PER_FINGERPRINT + (1 << 13)
    }

    /// Lazy look-up as S0 has it by default: rings as long as a container (S0.8).
    #[must_use]
    pub fn lazy(&self) -> LookupStrategy {
        self.lazy_with(self.container_chunks, self.bucket_threshold)
    }

    /// The same with a second look.
    #[must_use]
    pub fn second_look(&self, bucket_threshold: usize) -> LookupStrategy {
        let ring_length = self.container_chunks;
        LookupStrategy::SecondLook(self.lazy_parameters(ring_length, bucket_threshold))
    }

    /// Lazy look-up.
    #[must_use]
    pub fn lazy_with(&self, ring_length: usize, bucket_threshold: usize) -> LookupStrategy {
        LookupStrategy::Lazy(self.lazy_parameters(ring_length, bucket_threshold))
    }

    /// Lazy look-up as S0 publishes it: all of the ring after every hit.
    #[must_use]
    pub fn published(&self, ring_length: usize, bucket_threshold: usize) -> LookupStrategy {
        let parameters = self.lazy_parameters(ring_length, bucket_threshold);
        LookupStrategy::Lazy(LazyParameters { post_lookup: PostLookup::WholeRing, ..parameters })
    }

    fn lazy_parameters(&self, ring_length: usize, bucket_threshold: usize) -> LazyParameters {
        let buffer_max = self.buffer_max;
        LazyParameters { ring_length, bucket_threshold, buffer_max, ..LazyParameters::default() }
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
        let costs = device.costs();
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

/// A name as part of a file's.
#[must_use]
pub fn file_name(name: &str) -> String {
    let mut file = String::new();
    for word in name.split(|c: char| !c.is_alphanumeric() && c != '.') {
        if !word.is_empty() {
            file.push_str(if file.is_empty() { "" } else { "-" });
            file.push_str(word);
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setup_is_possible() {
        for tiny in [true, false] {
            for preset in Preset::ALL {
                let workload = Workload::generated(preset, tiny).unwrap();
                let strategies = [workload.lazy(), workload.second_look(1024), workload.sampled()];
                for strategy in strategies {
                    workload.setup(strategy).validate().unwrap();
                }
                for device in Device::modelled() {
                    workload.setup(workload.auto(&device)).validate().unwrap();
                }
            }
        }
    }

    #[test]
    fn what_is_shipped_has_what_the_default_limit_gives() {
        let workload = Workload::generated(Preset::Aged, true).unwrap();
        let rows = workload.shipped_rows().unwrap();
        let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["as shipped on HDD", "as shipped on SATA SSD"]);
        for (_, setup) in rows {
            setup.validate().unwrap();
            let plan = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES).unwrap();
            assert_eq!(setup.held_max, Some(1728));
            assert_eq!(setup.cache_bytes, plan.locality_cache_bytes);
            assert_eq!(setup.pending_max, plan.pending_chunks_max);
            assert_eq!(setup.index.memory_bytes, plan.summary_vector_bytes);
            assert!(!setup.index.single_run && setup.index.bucket_pages.is_none());
            assert!(setup.collection.is_some(), "what is deleted is collected");
        }
    }

    #[test]
    fn the_images_are_those_of_the_paper() {
        let images = Workload::papers_images(true, 0.7).unwrap();
        let total = Summary::of(&*images.trace).unwrap().total();
        assert!((1.0 - total.new_share() - 0.5638).abs() < 0.05, "{}", total.new_share());
        let summary = images.index.summary.unwrap();
        assert_eq!(summary.keys, total.chunks_new);
        assert!(images.index.single_run && !images.ordered);
        assert!(Workload::papers_images(true, 0.0).unwrap().run(images.lazy()).is_err());
    }

    #[test]
    fn names_become_files() {
        assert_eq!(file_name("images, 0.7 bits"), "images-0.7-bits");
        assert_eq!(file_name("real data"), "real-data");
        assert_eq!(file_name("--"), "");
    }
}
