//! Recipes as text and at random, and a restore that performs a plan and checks it.

use onefold_policy::restore_plan::{ContainerSizes, Plan, PlanChunk, RestoreEngine};
use std::collections::{BTreeMap, BTreeSet};

/// A recipe of chunks of one byte: a letter names the container, what follows it the chunk.
pub fn recipe(text: &str) -> Vec<PlanChunk> {
    text.split_whitespace()
        .map(|word| {
            let container = u32::from(word.as_bytes()[0] - b'a');
            let chunk = container * 100 + word[1..].parse::<u32>().unwrap();
            PlanChunk { container, chunk, size_bytes: 1 }
        })
        .collect()
}

/// Random numbers that are the same in every run (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (mixed ^ mixed >> 31) >> 32;
        ((drawn * u64::from(bound)) >> 32) as u32
    }
}

/// A recipe that walks through containers of `chunks_per_container` chunks, jumping now and then,
/// and the payload bytes of the containers, which are all equal.
pub fn random_recipe(seed: u64, ordinals: usize) -> (Vec<PlanChunk>, Vec<u64>) {
    let mut random = Random(seed);
    let containers = 2 + random.below(40);
    let chunks_per_container = 1 + random.below(12);
    let jumps = 1 + random.below(8);
    let size_max = 1 + random.below(9);
    let chunks = containers * chunks_per_container;
    let sizes: Vec<u32> = (0..chunks).map(|_| 1 + random.below(size_max)).collect();
    let mut at = 0;
    let recipe = (0..ordinals)
        .map(|_| {
            at = if random.below(jumps) == 0 { random.below(chunks) } else { (at + 1) % chunks };
            let container = at / chunks_per_container;
            PlanChunk { container, chunk: at, size_bytes: sizes[at as usize] }
        })
        .collect();
    let container_bytes = u64::from(chunks_per_container * size_max);
    (recipe, vec![container_bytes; containers as usize])
}

/// Plans, restores by the plan, and checks everything that is promised of every plan.
pub fn plan(engine: &RestoreEngine, recipe: &[PlanChunk], sizes: &[u64]) -> Plan {
    let plan = engine.plan(recipe, ContainerSizes(sizes)).unwrap();
    let mut serving = vec![None; recipe.len()];
    let mut expected_start = 0;
    for (number, read) in plan.reads.iter().enumerate() {
        assert_eq!(read.ordinals.start, expected_start, "{engine}: ordinals are read after read");
        expected_start = read.ordinals.end;
        let ordinals = plan.ordinals_of(read);
        assert!(!ordinals.is_empty(), "{engine}: a read for nothing");
        assert!(ordinals.is_sorted_by(|a, b| a < b), "{engine}: ordinals of a read ascend");
        for &ordinal in ordinals {
            assert_eq!(
                recipe[ordinal as usize].container, read.container,
                "{engine}: ordinal {ordinal}"
            );
            let before = serving[ordinal as usize].replace(number);
            assert_eq!(before, None, "{engine}: ordinal {ordinal} is served twice");
        }
    }
    assert_eq!(expected_start, plan.ordinals.len());
    let serving: Vec<usize> = serving.into_iter().map(Option::unwrap).collect();
    assert_eq!(plan.memory_peak_bytes, peak_bytes(recipe, &serving), "{engine}");
    if engine.is_sequential() {
        let allowed = engine.memory_bytes().max(always_held_bytes(engine, recipe));
        assert!(plan.memory_peak_bytes <= allowed, "{engine}: {}", plan.memory_peak_bytes);
    }
    plan
}

/// The number of reads.
pub fn reads(engine: &RestoreEngine, recipe: &[PlanChunk], sizes: &[u64]) -> usize {
    plan(engine, recipe, sizes).reads.len()
}

/// What an engine holds however little memory it has: a chunk, or what the recipe needs of a
/// container.
fn always_held_bytes(engine: &RestoreEngine, recipe: &[PlanChunk]) -> u64 {
    let by_container =
        matches!(engine, RestoreEngine::ContainerCache { .. } | RestoreEngine::Optimal { .. });
    let chunks: BTreeMap<(u32, u32), u32> =
        recipe.iter().map(|at| ((at.container, at.chunk), at.size_bytes)).collect();
    let mut held: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for ((container, chunk), bytes) in chunks {
        let unit = if by_container { (container, 0) } else { (container, chunk) };
        *held.entry(unit).or_default() += u64::from(bytes);
    }
    held.into_values().max().unwrap_or(0)
}

/// What a restore holds that writes from the beginning to the end and reads when it must, found by
/// looking through the whole recipe after each read.
fn peak_bytes(recipe: &[PlanChunk], serving: &[usize]) -> u64 {
    let reads = serving.iter().max().map_or(0, |last| last + 1);
    let (mut peak, mut written) = (0, 0);
    for done in 0..reads {
        let waiting: BTreeSet<(usize, u32, u32)> = (written..recipe.len())
            .filter(|ordinal| serving[*ordinal] <= done)
            .map(|ordinal| (serving[ordinal], recipe[ordinal].chunk, recipe[ordinal].size_bytes))
            .collect();
        peak = peak.max(waiting.iter().map(|(_, _, bytes)| u64::from(*bytes)).sum());
        while written < recipe.len() && serving[written] <= done {
            written += 1;
        }
    }
    peak
}
