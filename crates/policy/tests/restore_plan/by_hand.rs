//! Recipes small enough to be followed with a pencil.

use crate::support::{plan, reads, recipe};
use onefold_policy::restore_plan::{PlanChunk, RestoreEngine, speed_factor};

/// Three containers in turn, three times; the third time the chunks of the first.
const IN_TURN: &str = "a1 b1 c1 a2 b2 c2 a1 b1 c1";
/// Containers of four bytes, half of which the recipe names.
const SIZES: [u64; 3] = [4; 3];

fn forward(area_bytes: u64) -> RestoreEngine {
    RestoreEngine::ForwardAssembly { area_bytes, rolling: false }
}

fn rolling(area_bytes: u64) -> RestoreEngine {
    RestoreEngine::ForwardAssembly { area_bytes, rolling: true }
}

/// The containers read, as letters.
fn letters(engine: &RestoreEngine, text: &str) -> String {
    let plan = plan(engine, &recipe(text), &SIZES);
    plan.reads.iter().map(|read| char::from(b'a' + read.container as u8)).collect()
}

#[test]
fn nothing_is_read_for_nothing() {
    for engine in RestoreEngine::with_memory(8) {
        let plan = plan(&engine, &[], &[]);
        assert_eq!((plan.reads.len(), plan.ordinals.len(), plan.memory_peak_bytes), (0, 0, 0));
    }
}

#[test]
fn an_unfragmented_recipe_costs_each_container_once() {
    for engine in RestoreEngine::with_memory(8) {
        assert_eq!(letters(&engine, "a1 a2 a3 a4 b1 b2 b3 b4 c1 c2"), "abc", "{engine}");
    }
}

#[test]
fn a_container_cache_for_two_is_useless_for_three_in_turn() {
    let two = RestoreEngine::ContainerCache { memory_bytes: 11 };
    assert_eq!(letters(&two, IN_TURN), "abcabcabc");
    let three = RestoreEngine::ContainerCache { memory_bytes: 12 };
    assert_eq!(letters(&three, IN_TURN), "abc");
    assert_eq!(letters(&two, "a1 b1 a2 c1 a3 b2"), "abcb", "the one used last stays");
}

#[test]
fn the_optimal_cache_gives_up_what_is_needed_last() {
    let two = RestoreEngine::Optimal { memory_bytes: 8 };
    // For c, b leaves (a is needed sooner); for b, a; for a, c.
    assert_eq!(letters(&two, IN_TURN), "abcbac");
}

#[test]
fn a_chunk_cache_holds_what_the_recipe_does_not_name_too() {
    let engine = |memory_bytes| RestoreEngine::ChunkCache { memory_bytes };
    // The two unnamed bytes of a leave for c, and nothing else has to.
    assert_eq!(letters(&engine(10), IN_TURN), "abc");
    assert_eq!(letters(&engine(9), IN_TURN), "abcabcabc");
    // Where nobody says that there are unnamed bytes, six suffice.
    assert_eq!(reads(&engine(6), &recipe(IN_TURN), &[]), 3);
}

#[test]
fn a_container_greater_than_the_chunk_cache_serves_what_it_was_read_for() {
    let engine = RestoreEngine::ChunkCache { memory_bytes: 2 };
    // Of a1 to a3, the cache keeps a3 and what was asked for.
    assert_eq!(letters(&engine, "a1 a2 a3 a1"), "aaa");
    assert_eq!(letters(&engine, "a1 a3 a2 a2"), "aa");
}

#[test]
fn an_area_is_filled_with_each_container_once() {
    assert_eq!(letters(&forward(3), IN_TURN), "abcabcabc");
    assert_eq!(letters(&forward(6), IN_TURN), "abcabc");
    assert_eq!(letters(&forward(9), IN_TURN), "abc");
    let plan = plan(&forward(6), &recipe(IN_TURN), &SIZES);
    assert_eq!(plan.ordinals, [0, 3, 1, 4, 2, 5, 6, 7, 8]);
    // a1, a2; with b1, b2; a1 is written; with c1, c2 five are held.
    assert_eq!(plan.memory_peak_bytes, 4);
}

#[test]
fn a_rolling_area_is_full_length_at_every_read() {
    let text = "c1 c2 c3 a1 a2";
    assert_eq!(letters(&forward(4), text), "caa");
    assert_eq!(letters(&rolling(4), text), "ca");
    assert_eq!(letters(&rolling(6), IN_TURN), "abcabc");
}

#[test]
fn a_rolling_area_takes_a_chunk_from_its_own_other_place() {
    let text = "a1 b1 a1 b2 a1 b3 a1 b4 a1";
    assert_eq!(letters(&rolling(3), text), "abb");
    assert_eq!(letters(&forward(3), text), "abbaab");
}

#[test]
fn looking_ahead_keeps_what_the_area_does_not_reach() {
    let engine =
        RestoreEngine::AdaptiveLookAhead { memory_bytes: 8, look_ahead_bytes: 8, adapts: false };
    // The area of four reads each once; a1, b1 and c1 wait in the cache.
    assert_eq!(letters(&engine, IN_TURN), "abc");
    let blind =
        RestoreEngine::AdaptiveLookAhead { memory_bytes: 4, look_ahead_bytes: 1, adapts: false };
    assert_eq!(letters(&blind, IN_TURN), "abcabcabc");
}

#[test]
fn s2_8_a_look_ahead_that_is_too_short_grows_and_saves_reads() {
    let reads = |adapts| {
        let engine =
            RestoreEngine::AdaptiveLookAhead { memory_bytes: 4, look_ahead_bytes: 1, adapts };
        letters(&engine, IN_TURN)
    };
    assert_eq!((&*reads(false), &*reads(true)), ("abcabcabc", "abcabc"));
}

#[test]
fn a_chunk_that_the_look_ahead_reaches_in_time_stays() {
    let reads = |look_ahead_bytes| {
        let engine =
            RestoreEngine::AdaptiveLookAhead { memory_bytes: 4, look_ahead_bytes, adapts: false };
        letters(&engine, "a1 b1 c1 d1 e1 a1")
    };
    // The cache has two bytes. For c1, one of a1 and b1 leaves: b1 if the second a1, three places
    // behind c1, is in sight, which the area of two and the look-ahead reach; otherwise a1.
    assert_eq!(reads(2), "abcde");
    assert_eq!(reads(1), "abcdea");
}

#[test]
fn a_cache_that_lost_what_is_needed_takes_a_step_from_the_area() {
    let reads = |adapts| {
        let engine =
            RestoreEngine::AdaptiveLookAhead { memory_bytes: 4, look_ahead_bytes: 16, adapts };
        letters(&engine, &["a1 b1 c1"; 5].join(" "))
    };
    // The third a1 leaves the cache of two for c1. With three bytes, which leave one for the area,
    // nothing has to any more; with two, each turn costs a read.
    assert_eq!((&*reads(false), &*reads(true)), ("abcabc", "abca"));
}

/// How far behind the first chunk of a container a second one may stand so that the engine, which
/// adapts, takes both from one read: what the area and the look-ahead reach. Before them, each dot
/// is a chunk in a container of its own, and so is everything between them.
fn reach(memory_bytes: u64, look_ahead_bytes: u64, before: &str) -> usize {
    let engine = RestoreEngine::AdaptiveLookAhead { memory_bytes, look_ahead_bytes, adapts: true };
    let reads = |distance: usize| {
        let text = format!("{before} a1 {}a2", ". ".repeat(distance - 1));
        let words = text.split_whitespace().enumerate();
        let recipe: Vec<PlanChunk> = words
            .map(|(number, word)| match 100 + number as u32 {
                alone if word == "." => PlanChunk { container: alone, chunk: alone, size_bytes: 1 },
                _ => recipe(word)[0],
            })
            .collect();
        plan(&engine, &recipe, &[]).reads.iter().filter(|read| read.container == 0).count()
    };
    (1..100).take_while(|distance| reads(*distance) == 1).count()
}

#[test]
fn the_look_ahead_grows_while_less_than_half_of_the_cache_is_needed() {
    // The area and the cache have four bytes each, a step is one. From the place of a1 they see 14
    // places, the last one 13 behind it.
    assert_eq!(reach(8, 10, ""), 13);
    assert_eq!(reach(8, 10, ". . ."), 13 + 3);
    // One chunk waits in the cache until the area reaches it: less than half, a step for each byte.
    assert_eq!(reach(8, 10, "b1 . . . . . . . . . . b2 ."), 13 + 13);
    // Two are half of it. The place 8 is the first to see the one of them, b2, in the area: five
    // steps from there to a1.
    assert_eq!(reach(8, 10, "b1 . . . . . . . . . . b2 b3"), 13 + 5);
}

#[test]
fn a_look_ahead_of_eight_times_the_memory_gives_the_area_all_but_a_step() {
    // The look-ahead stays at 64 bytes, the area has four at first and may have seven.
    let reaches = [0, 1, 2, 3, 4, 9].map(|before| reach(8, 64, &". ".repeat(before)));
    assert_eq!(reaches, [67, 68, 69, 70, 70, 70]);
    let nearly = [0, 1, 2, 3, 4, 5, 9].map(|before| reach(8, 63, &". ".repeat(before)));
    assert_eq!(nearly, [66, 67, 68, 69, 70, 70, 70]);
}

#[test]
fn optimal_chunks_keeps_the_nearest() {
    let engine = |memory_bytes| RestoreEngine::OptimalChunks { memory_bytes };
    // Three bytes: for b, the second a1 is given up; for c, the second b1 and c2.
    assert_eq!(letters(&engine(3), IN_TURN), "abccab");
    assert_eq!(letters(&engine(4), IN_TURN), "abcab");
    assert_eq!(letters(&engine(5), IN_TURN), "abcb");
    assert_eq!(letters(&engine(6), IN_TURN), "abc");
}

#[test]
fn direct_reads_each_container_once_and_says_what_a_stream_would_hold() {
    assert_eq!(letters(&RestoreEngine::Direct, IN_TURN), "abc");
    let plan = plan(&RestoreEngine::Direct, &recipe(IN_TURN), &SIZES);
    assert_eq!(plan.ordinals, [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    assert_eq!(plan.memory_peak_bytes, 6);
}

#[test]
fn a_place_is_served_by_the_container_it_names() {
    // The chunk 7 is in two containers; the support checks who serves which ordinal.
    let mut recipe = recipe("a1 b1 a2 b2");
    for (ordinal, number) in [(0, 7), (1, 7), (2, 7), (3, 8)] {
        recipe[ordinal].chunk = number;
    }
    for engine in RestoreEngine::with_memory(8) {
        assert_eq!(reads(&engine, &recipe, &SIZES), 2, "{engine}");
    }
}

#[test]
fn the_speed_factor_is_mebibytes_for_each_read() {
    assert_eq!(speed_factor(8 << 20, 2), 4.0);
    assert_eq!(speed_factor(1 << 19, 1), 0.5);
    assert_eq!(speed_factor(0, 0), 0.0);
}
