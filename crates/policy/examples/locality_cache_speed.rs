//! Measures the locality cache: nanoseconds per lookup and bytes per chunk.

use onefold_policy::LocalityCache;
use onefold_types::environment::{Randomness, SeededRandomness};
use onefold_types::{ContainerId, Fingerprint};
use std::hint::black_box;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a measurement of a policy is not a policy")]
use std::time::Instant;

const CHUNKS_PER_CONTAINER: usize = 1000;

fn containers(randomness: &SeededRandomness, count: usize) -> Vec<Arc<[Fingerprint]>> {
    let draw = |_| {
        let mut bytes = [0; 32];
        randomness.fill(&mut bytes);
        Fingerprint(bytes)
    };
    (0..count).map(|_| (0..CHUNKS_PER_CONTAINER).map(draw).collect()).collect()
}

#[expect(clippy::disallowed_types, reason = "a measurement of a policy is not a policy")]
fn time_per_item(what: &str, items: usize, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!("  {what}: {:.1} ns", start.elapsed().as_nanos() as f64 / items as f64);
}

fn main() {
    let randomness = SeededRandomness::new(1);
    for count in [10, 100, 1000, 5000] {
        let arrays = containers(&randomness, count);
        let absent = containers(&randomness, count.min(1000));
        let chunks = count * CHUNKS_PER_CONTAINER;
        let mut cache = LocalityCache::new(chunks * 48 + 65_536);
        println!("{count} containers of {CHUNKS_PER_CONTAINER} chunks");
        time_per_item("insert, per chunk", chunks, || {
            for array in &arrays {
                cache.insert(ContainerId::random(&randomness), Arc::clone(array));
            }
        });
        println!("  memory per chunk: {:.1} B", cache.bytes_used() as f64 / chunks as f64);
        time_per_item("hit in stream order", chunks, || {
            for fingerprint in arrays.iter().flat_map(|array| array.iter()) {
                black_box(cache.lookup(fingerprint));
            }
        });
        time_per_item("hit in random order", chunks, || {
            for _ in 0..chunks {
                let array = &arrays[randomness.below(count as u64) as usize];
                let position = randomness.below(CHUNKS_PER_CONTAINER as u64) as usize;
                black_box(cache.lookup(&array[position]));
            }
        });
        time_per_item("miss", absent.len() * CHUNKS_PER_CONTAINER, || {
            for fingerprint in absent.iter().flat_map(|array| array.iter()) {
                black_box(cache.lookup(fingerprint));
            }
        });
        time_per_item("replace, per chunk", absent.len() * CHUNKS_PER_CONTAINER, || {
            for array in &absent {
                cache.insert(ContainerId::random(&randomness), Arc::clone(array));
            }
        });
    }
}
