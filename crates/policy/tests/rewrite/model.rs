//! A store in numbers: versions of chunks go in through the real policy, and restores are counted.

use crate::support::{container, container_number, fingerprint};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::UnitId;
use onefold_policy::rewrite::{
    Before, ContainerUse, Decided, Decision, Expected, RewriteChoice, RewriteCounters,
    RewriteParameters, StreamChunk, StreamRewriter,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const CHUNK_BYTES: u32 = 4096;

/// A store with equal chunks of `CHUNK_BYTES`.
pub struct Model {
    container_chunks: u64,
    candidates_bytes_max: u64,
    instances: BTreeMap<u64, Vec<UnitId>>,
    next_container: u64,
    expected: Option<Expected>,
    history: Option<Arc<ContainerUse>>,
    before: Before,
    stored: u64,
    passed: u64,
}

impl Model {
    /// The set-up of S2.32.
    pub fn new(container_chunks: u64) -> Self {
        Self {
            container_chunks,
            candidates_bytes_max: 5 * container_chunks * u64::from(CHUNK_BYTES),
            instances: BTreeMap::new(),
            next_container: 0,
            expected: None,
            history: None,
            before: Before::default(),
            stored: 0,
            passed: 0,
        }
    }

    /// As many candidates may wait as the window covers.
    pub fn with_room(container_chunks: u64) -> Self {
        Self { candidates_bytes_max: u64::MAX, ..Self::new(container_chunks) }
    }

    fn parameters(&self) -> RewriteParameters {
        let container_bytes = self.container_chunks * u64::from(CHUNK_BYTES);
        RewriteParameters {
            container_bytes,
            candidates_bytes_max: self.candidates_bytes_max,
            expected: self.expected,
            before: Some(self.before),
            history: self.history.clone(),
            ..RewriteParameters::default()
        }
    }

    pub fn ingest(&mut self, choice: &RewriteChoice, version: &[u64]) -> Vec<u64> {
        let mut rewriter = StreamRewriter::new(choice, self.parameters()).unwrap();
        let mut recipe = vec![u64::MAX; version.len()];
        let mut fresh: BTreeMap<u64, u64> = BTreeMap::new();
        let mut active = (self.next_container, 0);
        let mut decided = Vec::new();
        let mut shared = Vec::new();
        for (place, chunk) in version.iter().enumerate() {
            let status = if let Some(at) = fresh.get(chunk) {
                recipe[place] = *at;
                DuplicateStatus::Fresh(())
            } else if let Some(instances) = self.instances.get(chunk) {
                DuplicateStatus::Old(instances.as_slice())
            } else {
                recipe[place] = append(&mut active, self.container_chunks);
                fresh.insert(*chunk, recipe[place]);
                DuplicateStatus::Unique
            };
            let chunk = StreamChunk {
                ticket: place as u64,
                fingerprint: fingerprint(*chunk),
                size_bytes: CHUNK_BYTES,
                status,
            };
            rewriter.push(&chunk, &mut decided);
            if place + 1 == version.len() {
                rewriter.finish(&mut decided);
            }
            for Decided { ticket, decision } in decided.drain(..) {
                let place = ticket as usize;
                match decision {
                    Decision::Keep(id) => recipe[place] = container_number(id),
                    Decision::Rewrite => {
                        recipe[place] = append(&mut active, self.container_chunks);
                        assert!(fresh.insert(version[place], recipe[place]).is_none());
                    }
                    Decision::Share => shared.push(place),
                }
            }
        }
        for place in shared {
            recipe[place] = fresh[&version[place]];
        }
        self.close(active, &fresh, version, &recipe, rewriter.counters());
        recipe
    }

    fn close(
        &mut self,
        active: (u64, u64),
        fresh: &BTreeMap<u64, u64>,
        version: &[u64],
        recipe: &[u64],
        counters: &RewriteCounters,
    ) {
        self.next_container = active.0 + 1;
        for (chunk, at) in fresh {
            self.instances.entry(*chunk).or_default().insert(0, container(*at));
        }
        let span = 8 * self.container_chunks * u64::from(CHUNK_BYTES);
        let mut used = ContainerUse::with_span(span);
        let mut seen = BTreeSet::new();
        for (chunk, at) in version.iter().zip(recipe) {
            assert_ne!(*at, u64::MAX);
            used.refer(container(*at), CHUNK_BYTES, seen.insert(*chunk));
        }
        for at in recipe {
            let payload = self.container_chunks * u64::from(CHUNK_BYTES);
            used.set_payload(container(*at), payload);
        }
        self.history = Some(Arc::new(used));
        let unique_chunks = counters.unique;
        self.expected = Some(Expected { chunks: version.len() as u64, unique_chunks });
        self.before.unique_chunks += counters.unique;
        self.before.rewritten_chunks += counters.rewritten;
        self.stored += fresh.len() as u64;
        self.passed += version.len() as u64;
    }

    pub fn ratio(&self) -> f64 {
        self.passed as f64 / self.stored as f64
    }
}

fn append(active: &mut (u64, u64), container_chunks: u64) -> u64 {
    if active.1 == container_chunks {
        *active = (active.0 + 1, 0);
    }
    active.1 += 1;
    active.0
}

/// Container reads of a forward assembly with an area of so many chunks.
pub fn forward_reads(recipe: &[u64], area: usize) -> u64 {
    recipe.chunks(area).map(|part| part.iter().collect::<BTreeSet<_>>().len() as u64).sum()
}

/// Container reads with so many containers cached, the longest unused one leaving first.
pub fn cache_reads(recipe: &[u64], containers: usize) -> u64 {
    let mut cache: VecDeque<u64> = VecDeque::new();
    let mut reads = 0;
    for at in recipe {
        if cache.front() == Some(at) {
            continue;
        }
        match cache.iter().position(|other| other == at) {
            Some(index) => {
                cache.remove(index);
            }
            None => {
                reads += 1;
                cache.truncate(containers - 1);
            }
        }
        cache.push_front(*at);
    }
    reads
}
