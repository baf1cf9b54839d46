//! The modelled store, and a version's way into it.
//!
//! A version is one session with one open container, and the product's machine
//! ([`onefold_policy::stream`]) decides what goes into it: a chunk that is new, and one that is
//! stored again, when that is decided. No look-up is modelled: the session knows every chunk. What
//! lies in the newest containers of the session ([`Sizes::fresh_containers`]) is fresh and never
//! stored again. All others are old, those of the same session too.

use super::Sizes;
use super::policy::Policy;
use super::versions::{Version, Versions};
use crate::single::Single;
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::lookup::LookupStrategy;
use onefold_policy::ports::Instance;
use onefold_policy::restore_plan::PlanChunk;
use onefold_policy::rewrite::{Before, ContainerUse, Expected, RewriteCounters, UnitId};
use onefold_policy::stream::{
    Chunk, ChunkStream, ContainerPort, Instances, RewriteOptions, SessionPort, Status,
    StreamTotals, Units,
};
use onefold_types::{Error, Fingerprint, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A version in the store.
#[derive(Clone, Debug)]
pub struct StoredVersion {
    /// The stream.
    pub stream: u32,
    /// The generation.
    pub generation: u32,
    /// Bytes of the version.
    pub bytes: u64,
    /// Bytes that it added to the store.
    pub stored_bytes: u64,
    /// Which container each place refers to.
    pub recipe: Vec<PlanChunk>,
    /// What passed through the stream.
    pub totals: StreamTotals,
    /// What rewriting did.
    pub counters: RewriteCounters,
}

/// A workload in the store.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The versions.
    pub versions: Vec<StoredVersion>,
    /// For each container its bytes.
    pub container_bytes: Vec<u64>,
}

impl Stored {
    /// Bytes of all versions for each byte stored.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let bytes: u64 = self.versions.iter().map(|version| version.bytes).sum();
        bytes as f64 / self.stored_bytes().max(1) as f64
    }

    /// Bytes of all containers.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.container_bytes.iter().sum()
    }

    /// The share of the deduplication ratio of `none` that this store has lost.
    #[must_use]
    pub fn loss(&self, none: &Self) -> f64 {
        1.0 - self.ratio() / none.ratio()
    }
}

/// Ingests all versions of a workload.
///
/// # Errors
/// The policy's parameters are out of range, or it broke its promises.
pub fn ingest(versions: &Versions, sizes: Sizes, policy: &Policy) -> Result<Stored> {
    let mut ingest = Ingest::new(versions, sizes);
    for version in &versions.versions {
        ingest.write(version, policy)?;
    }
    Ok(ingest.stored)
}

/// What is known of a stream before its next version.
#[derive(Clone)]
struct History {
    /// Of the last version.
    expected: Expected,
    /// Of all versions.
    totals: Before,
    /// How the last version used the containers.
    used: Arc<ContainerUse>,
}

impl Default for History {
    fn default() -> Self {
        let expected = Expected { chunks: 0, unique_chunks: 0 };
        Self { expected, totals: Before::default(), used: Arc::new(ContainerUse::new()) }
    }
}

/// A store that versions are written to one by one, if need be by different policies.
#[derive(Clone)]
pub struct Ingest<'a> {
    versions: &'a Versions,
    sizes: Sizes,
    stored: Stored,
    /// For each chunk the containers that hold it, newest first.
    instances: Vec<Vec<u32>>,
    /// For each stream what is known of its versions so far.
    before: BTreeMap<u32, History>,
    /// The first container of the session.
    session: u32,
    /// Where the chunks of the version lie.
    recipe: Vec<PlanChunk>,
    /// Whether the session knows only the newest copy of each chunk.
    knows_newest_only: bool,
}

impl<'a> Ingest<'a> {
    /// An empty store.
    #[must_use]
    pub fn new(versions: &'a Versions, sizes: Sizes) -> Self {
        Self {
            versions,
            sizes,
            stored: Stored::default(),
            instances: vec![Vec::new(); versions.chunks.len()],
            before: BTreeMap::new(),
            session: 0,
            recipe: Vec::new(),
            knows_newest_only: false,
        }
    }

    /// What is in the store.
    #[must_use]
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Writes a version in a session of its own.
    ///
    /// # Errors
    /// The policy's parameters are out of range, or it broke its promises.
    pub fn write(&mut self, version: &Version, policy: &Policy) -> Result<()> {
        self.knows_newest_only = policy.knows_newest_only;
        let mut parameters = policy.parameters(self.sizes);
        if let Some(History { expected, totals, used }) = self.before.get(&version.stream) {
            parameters.expected = Some(*expected);
            parameters.before = Some(*totals);
            parameters.history = Some(Arc::clone(used));
        }
        let choice = policy.choice;
        let rewrite = RewriteOptions { choice, parameters, unit: ByContainer, guard: None };
        let before_bytes = self.stored.stored_bytes();
        let (totals, counters) = self.pass(version, rewrite)?;
        let recipe = std::mem::take(&mut self.recipe);
        let used = Arc::new(self.used_by(&recipe));
        let before = self.before.entry(version.stream).or_default();
        before.expected = Expected { chunks: totals.chunks, unique_chunks: totals.unique };
        before.totals.unique_chunks += totals.unique;
        before.totals.rewritten_chunks += counters.rewritten;
        before.used = used;
        self.stored.versions.push(StoredVersion {
            stream: version.stream,
            generation: version.generation,
            bytes: self.versions.bytes(version),
            stored_bytes: self.stored.stored_bytes() - before_bytes,
            recipe,
            totals,
            counters,
        });
        Ok(())
    }

    /// Sends a version through a stream of its own.
    fn pass(
        &mut self,
        version: &Version,
        rewrite: RewriteOptions<ByContainer>,
    ) -> Result<(StreamTotals, RewriteCounters)> {
        self.session = self.next_container();
        let mut stream = ChunkStream::new(&LookupStrategy::None, rewrite)?;
        for &number in &version.chunks {
            let chunk = self.versions.chunks.get(number as usize);
            let &(fingerprint, size_bytes) = chunk.ok_or_else(|| broken("no such chunk"))?;
            self.recipe.push(PlanChunk { container: NOWHERE, chunk: number, size_bytes });
            stream.push(Single { fingerprint, size_bytes, payload: number }, self)?;
            stream.release(self, &mut drop)?;
        }
        stream.finish(self)?;
        if self.recipe.iter().any(|place| place.container == NOWHERE) {
            return Err(broken("a chunk lies nowhere"));
        }
        Ok((stream.totals(), *stream.rewrite_counters()))
    }

    fn next_container(&self) -> u32 {
        self.stored.container_bytes.len() as u32
    }

    fn is_fresh(&self, container: u32) -> bool {
        let next = self.next_container();
        container >= self.session && container.saturating_add(self.sizes.fresh_containers) >= next
    }

    /// Appends a chunk to the open container.
    fn append(&mut self, chunk: u32) -> u32 {
        let size_bytes = u64::from(self.versions.size_bytes(chunk));
        let is_first = self.next_container() == self.session;
        let containers = &mut self.stored.container_bytes;
        match containers.last_mut() {
            Some(bytes) if !is_first && *bytes + size_bytes <= self.sizes.container_bytes => {
                *bytes += size_bytes;
            }
            _ => containers.push(size_bytes),
        }
        let container = containers.len() as u32 - 1;
        if let Some(instances) = self.instances.get_mut(chunk as usize) {
            instances.insert(0, container);
        }
        container
    }

    /// How a recipe uses the containers.
    fn used_by(&self, recipe: &[PlanChunk]) -> ContainerUse {
        let mut used = ContainerUse::new();
        let mut seen = vec![false; self.versions.chunks.len()];
        for place in recipe {
            let seen = seen.get_mut(place.chunk as usize);
            let is_first = seen.is_some_and(|seen| !std::mem::replace(seen, true));
            used.refer(name_of(place.container), place.size_bytes, is_first);
        }
        for place in recipe {
            let bytes = self.stored.container_bytes.get(place.container as usize);
            used.set_payload(name_of(place.container), bytes.copied().unwrap_or_default());
        }
        used
    }
}

/// References are counted by container, and a container's number is its address.
#[derive(Clone, Default)]
struct ByContainer;

impl Units for ByContainer {
    type Address = u32;

    fn unit_of(&self, container: u32) -> UnitId {
        name_of(container)
    }
}

impl SessionPort<u32, u32> for Ingest<'_> {
    fn known(&mut self, chunk: &Chunk<'_, u32>) -> Option<Status<u32>> {
        let instances = self.instances.get(*chunk.payload as usize).map(Vec::as_slice);
        Some(match instances.and_then(|instances| instances.split_first()) {
            None => DuplicateStatus::Unique,
            Some((&newest, _)) if self.is_fresh(newest) => DuplicateStatus::Fresh(Some(newest)),
            Some((&first, others)) => {
                let others = if self.knows_newest_only { &[] } else { others };
                DuplicateStatus::Old(Instances::new(first, others.to_vec()))
            }
        })
    }

    fn claim(&mut self, _chunk: &Chunk<'_, u32>) -> bool {
        true
    }

    fn found(&mut self, _chunk: &Chunk<'_, u32>, _instance: &Instance) -> Status<u32> {
        DuplicateStatus::Fresh(None)
    }
}

impl ContainerPort<u32, u32> for Ingest<'_> {
    fn store(&mut self, chunk: &Chunk<'_, u32>) -> Result<Option<u32>> {
        Ok(Some(self.append(*chunk.payload)))
    }

    fn store_again(&mut self, _fingerprint: &Fingerprint, chunk: &u32) -> Result<Option<u32>> {
        Ok(Some(self.append(*chunk)))
    }

    fn place(&mut self, ticket: u64, container: Option<u32>) {
        if let Some(place) = self.recipe.get_mut(ticket as usize) {
            // A copy that is shared is the newest one.
            let newest = || self.instances.get(place.chunk as usize)?.first().copied();
            place.container = container.or_else(newest).unwrap_or(NOWHERE);
        }
    }
}

/// Stands for a container in places that wait for their decision.
const NOWHERE: u32 = u32::MAX;

/// A container's name; names rise with the numbers, as the product's do with time.
fn name_of(container: u32) -> UnitId {
    let mut bytes = [0; 16];
    if let Some(first) = bytes.first_chunk_mut::<4>() {
        *first = container.to_le_bytes();
        first.reverse();
    }
    UnitId(bytes)
}

fn broken(what: &str) -> Error {
    Error::invalid(format!("the stream broke a promise: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewriting::policy::Kind;
    use onefold_policy::rewrite::{RewriteChoice, RewriteLimits};
    use onefold_types::Fingerprint;

    /// A store of four versions of 64 chunks of 4 KiB in containers of eight: the first is new, of
    /// the second every eighth chunk, the third refers to the first, the fourth to both.
    fn versions() -> Versions {
        let chunk = |number: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
            (Fingerprint(bytes), 4096)
        };
        let second = |place: u32| if place.is_multiple_of(8) { 64 + place / 8 } else { place };
        let version = |generation, of: &dyn Fn(u32) -> u32| Version {
            stream: 0,
            generation,
            chunks: (0..64).map(of).collect(),
        };
        Versions {
            name: "t".into(),
            chunks: (0..72).map(chunk).collect(),
            versions: vec![
                version(0, &|place| place),
                version(1, &second),
                version(2, &|place| place),
                version(3, &second),
            ],
        }
    }

    fn sizes() -> Sizes {
        Sizes { container_bytes: 8 * 4096, memory_containers: 2, fresh_containers: 2 }
    }

    fn containers(version: &StoredVersion) -> Vec<u32> {
        version.recipe.iter().map(|place| place.container).collect()
    }

    #[test]
    fn without_rewriting_nothing_is_stored_twice() {
        let stored = ingest(&versions(), sizes(), &Kind::None.with_loss(0.0)).unwrap();
        assert_eq!(stored.container_bytes, [8 * 4096; 9]);
        assert!((stored.ratio() - 4.0 * 64.0 / 72.0).abs() < 1e-9);
        assert_eq!(containers(&stored.versions[0])[..9], [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(containers(&stored.versions[1])[..9], [8, 0, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(stored.versions.iter().map(|one| one.stored_bytes / 4096).sum::<u64>(), 72);
        let totals = stored.versions[1].totals;
        assert_eq!((totals.chunks, totals.unique, totals.duplicates), (64, 8, 56));
    }

    #[test]
    fn what_is_stored_again_is_referred_to() {
        let limits = RewriteLimits { threshold: Some(1000), ..RewriteLimits::default() };
        let everything = Policy::new(RewriteChoice::Window(limits));
        // Room for all candidates, or some would have to be kept.
        let everything = Policy { candidates_containers: 10, ..everything };
        let stored = ingest(&versions(), sizes(), &everything).unwrap();
        assert!((stored.ratio() - 1.0).abs() < 1e-9, "{}", stored.ratio());
        assert_eq!(stored.container_bytes.len(), 32);
        for (number, version) in stored.versions.iter().enumerate() {
            let session = number as u32 * 8..(number as u32 + 1) * 8;
            assert!(containers(version).iter().all(|container| session.contains(container)));
        }
    }

    #[test]
    fn every_policy_leaves_recipes_that_can_be_restored() {
        for kind in Kind::ALL {
            let stored = ingest(&versions(), sizes(), &kind.with_loss(0.07)).unwrap();
            for version in &stored.versions {
                assert_eq!(version.recipe.len(), 64);
                let count = stored.container_bytes.len() as u32;
                assert!(containers(version).iter().all(|container| *container < count));
            }
        }
    }

    #[test]
    fn of_several_copies_only_the_newest_may_be_known() {
        let versions = versions();
        let limits = RewriteLimits { threshold: Some(1000), ..RewriteLimits::default() };
        let everything = Policy::new(RewriteChoice::Window(limits));
        let everything = Policy { candidates_containers: 10, ..everything };
        // The third version has 56 chunks in common with the second, which stored all again; the
        // other eight are in the first version's containers only, which hold the rest as well.
        let first_containers = |knows_newest_only| {
            let mut ingest = Ingest::new(&versions, sizes());
            ingest.write(&versions.versions[0], &Kind::None.with_loss(0.0)).unwrap();
            ingest.write(&versions.versions[1], &everything).unwrap();
            let kept = RewriteChoice::Capping { level: Some(100) };
            let kept = Policy { knows_newest_only, ..Policy::new(kept) };
            ingest.write(&versions.versions[2], &kept).unwrap();
            let third = containers(&ingest.stored().versions[2]);
            third.iter().filter(|container| **container < 8).count()
        };
        assert_eq!((first_containers(true), first_containers(false)), (8, 64));
    }

    #[test]
    fn only_the_open_container_need_be_fresh() {
        let mut versions = versions();
        // The first eight chunks come again at the end, when seven containers have followed.
        versions.versions[0].chunks.extend(0..8);
        let everything = RewriteLimits { threshold: Some(1000), ..RewriteLimits::default() };
        let everything = Policy::new(RewriteChoice::Flexible(everything));
        for (fresh_containers, chunks) in [(1, 72), (7, 72), (8, 64), (u32::MAX, 64)] {
            let mut ingest = Ingest::new(&versions, Sizes { fresh_containers, ..sizes() });
            ingest.write(&versions.versions[0], &everything).unwrap();
            assert_eq!(ingest.stored().stored_bytes() / 4096, chunks, "{fresh_containers}");
        }
    }

    #[test]
    fn a_session_may_have_a_policy_of_its_own() {
        let versions = versions();
        let mut ingest = Ingest::new(&versions, sizes());
        ingest.write(&versions.versions[0], &Kind::None.with_loss(0.0)).unwrap();
        let other = ingest.clone();
        ingest.write(&versions.versions[2], &Kind::None.with_loss(0.0)).unwrap();
        assert_eq!(ingest.stored().versions[1].stored_bytes, 0);
        assert_eq!(other.stored().versions.len(), 1);
    }
}
