//! What holds for every recipe.

use crate::support::{plan, random_recipe, reads};
use onefold_policy::restore_plan::{PlanChunk, RestoreEngine};
use std::collections::BTreeSet;

const RECIPES: u64 = 300;

/// The memory for a random recipe: from less than a container to many.
fn memory_bytes(seed: u64, sizes: &[u64]) -> u64 {
    1 + sizes[0] * (seed % 7) / 2
}

#[test]
fn every_plan_restores_every_place_within_the_memory() {
    for seed in 0..RECIPES {
        let (recipe, sizes) = random_recipe(seed, 400);
        for engine in RestoreEngine::with_memory(memory_bytes(seed, &sizes)) {
            let first = plan(&engine, &recipe, &sizes);
            assert_eq!(first, plan(&engine, &recipe, &sizes), "{engine}: two plans differ");
        }
    }
}

#[test]
fn the_container_caches_read_what_plain_ones_read() {
    for seed in 0..RECIPES {
        let (recipe, sizes) = random_recipe(seed, 400);
        let containers = 1 + seed as usize % 5;
        let memory_bytes = sizes[0] * containers as u64;
        let recent = reads(&RestoreEngine::ContainerCache { memory_bytes }, &recipe, &sizes);
        assert_eq!(recent, misses(&recipe, containers, false), "recipe {seed}");
        let optimal = reads(&RestoreEngine::Optimal { memory_bytes }, &recipe, &sizes);
        assert_eq!(optimal, misses(&recipe, containers, true), "recipe {seed}");
        assert!(optimal <= recent);
    }
}

/// Misses of a cache of so many containers: the least recently used one leaves, or the one that is
/// needed last.
fn misses(recipe: &[PlanChunk], containers: usize, by_next_use: bool) -> usize {
    let mut cached: Vec<u32> = Vec::new();
    let mut misses = 0;
    for (ordinal, at) in recipe.iter().enumerate() {
        if let Some(found) = cached.iter().position(|held| *held == at.container) {
            cached.remove(found);
        } else {
            misses += 1;
            if cached.len() == containers {
                let next_use = |held: u32| {
                    recipe[ordinal..]
                        .iter()
                        .position(|at| at.container == held)
                        .unwrap_or(usize::MAX)
                };
                let farthest = (0..containers).max_by_key(|held| next_use(cached[*held])).unwrap();
                cached.remove(if by_next_use { farthest } else { 0 });
            }
        }
        cached.push(at.container);
    }
    misses
}

#[test]
fn optimal_never_reads_more_than_the_cache_even_where_sizes_differ() {
    for seed in 0..RECIPES {
        let (recipe, mut sizes) = random_recipe(seed, 400);
        for (number, size) in sizes.iter_mut().enumerate() {
            *size += number as u64 * 3 % 17;
        }
        let memory_bytes = sizes[0] * (1 + seed % 6);
        let recent = reads(&RestoreEngine::ContainerCache { memory_bytes }, &recipe, &sizes);
        assert!(reads(&RestoreEngine::Optimal { memory_bytes }, &recipe, &sizes) <= recent);
    }
}

#[test]
fn forward_assembly_reads_the_distinct_containers_of_each_fill() {
    for seed in 0..RECIPES {
        let (recipe, sizes) = random_recipe(seed, 400);
        let area_bytes = memory_bytes(seed, &sizes);
        let (mut expected, mut start) = (0, 0);
        while start < recipe.len() {
            let mut end = start + 1;
            let bytes = |end: usize| recipe[start..end].iter().map(|at| at.size_bytes).sum::<u32>();
            while end < recipe.len() && u64::from(bytes(end + 1)) <= area_bytes {
                end += 1;
            }
            let containers: BTreeSet<u32> =
                recipe[start..end].iter().map(|at| at.container).collect();
            expected += containers.len();
            start = end;
        }
        let fills = RestoreEngine::ForwardAssembly { area_bytes, rolling: false };
        assert_eq!(reads(&fills, &recipe, &sizes), expected, "recipe {seed}");
        let rolling = RestoreEngine::ForwardAssembly { area_bytes, rolling: true };
        assert!(reads(&rolling, &recipe, &sizes) <= expected, "recipe {seed}");
    }
}

#[test]
fn direct_reads_the_distinct_containers_and_nobody_reads_fewer() {
    for seed in 0..RECIPES {
        let (recipe, sizes) = random_recipe(seed, 400);
        let distinct: BTreeSet<u32> = recipe.iter().map(|at| at.container).collect();
        assert_eq!(reads(&RestoreEngine::Direct, &recipe, &sizes), distinct.len());
        for engine in RestoreEngine::with_memory(1 << 40) {
            assert_eq!(reads(&engine, &recipe, &sizes), distinct.len(), "{engine}");
        }
        for engine in RestoreEngine::with_memory(memory_bytes(seed, &sizes)) {
            assert!(reads(&engine, &recipe, &sizes) >= distinct.len(), "{engine}");
        }
    }
}

#[test]
fn who_knows_more_reads_less_over_all() {
    let mut sums = [0; 8];
    for seed in 0..RECIPES {
        let (recipe, sizes) = random_recipe(seed, 400);
        let engines = RestoreEngine::with_memory(sizes[0] * (1 + seed % 4));
        for (sum, engine) in sums.iter_mut().zip(engines) {
            *sum += reads(&engine, &recipe, &sizes);
        }
    }
    let [containers, chunks, forward, rolling, adaptive, optimal, optimal_chunks, direct] = sums;
    assert!(optimal < containers, "{sums:?}");
    assert!(rolling < forward, "{sums:?}");
    assert!(optimal_chunks < rolling.min(adaptive).min(chunks).min(optimal), "{sums:?}");
    assert!(adaptive < forward, "{sums:?}");
    assert!(direct < optimal_chunks, "{sums:?}");
}

#[test]
fn numbers_may_be_any_and_chunks_empty() {
    let at = |container, chunk, size_bytes| PlanChunk { container, chunk, size_bytes };
    let recipe = [
        at(u32::MAX, u32::MAX, u32::MAX),
        at(0, 0, 0),
        at(u32::MAX, 5, 1),
        at(u32::MAX, u32::MAX, u32::MAX),
        at(7, u32::MAX, u32::MAX),
    ];
    for bytes in [1, 1 << 20, 1 << 44] {
        for engine in RestoreEngine::with_memory(bytes) {
            let read = reads(&engine, &recipe, &[u64::from(u32::MAX); 3]);
            assert!((3..=5).contains(&read), "{engine}: {read}");
        }
    }
}
