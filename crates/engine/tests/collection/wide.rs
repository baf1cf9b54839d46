//! The whole width of what may happen at once, in the model: collections of several epochs, frames
//! that are carried, backups as users make them by default, merges of the index by writers, its
//! repair, snapshots made of snapshots, hidden, shown again and forgotten.
//!
//! What is to be met is counted, so that it cannot go missing unnoticed.

use crate::model::{Scenario, in_parallel};
use crate::schedule::{Segment, random_segments_with};
use crate::steps::memory_plan;
use crate::tasks::*;
use crate::world::*;
use onefold_engine::MemoryPlan;
use onefold_engine::collection::{CollectOptions, SpaceGoal};
use onefold_store::layers::Operation::{Decide, ListNames};

/// So many random schedules.
const SCHEDULES: usize = 80;

/// `x` is garbage; most of two containers is live, and somewhat less of the smaller one. There are
/// as many runs of the index as a store may have before a backup merges them.
fn world() -> World {
    let world = World::new();
    let dead = world.save("x", "x", 2);
    let small = world.save("small and dead", "abcdy", 3);
    let large = world.save("large and dead", "efghijlorsuv", 4);
    world.save("small", "abcd", 5);
    world.save("large", "efghijlors", 6);
    world.save("p", "pq", 7);
    world.source("both", "px");
    [dead, small, large].into_iter().for_each(|id| world.forget(id));
    world
}

/// Copies so few chunks at once that a collection takes several epochs.
fn little_memory() -> MemoryPlan {
    MemoryPlan { copied_chunks_max: 2, ..memory_plan() }
}

/// More than the smaller container has to give, and much less than both: what is left over may come
/// along.
fn carrying() -> CollectOptions {
    CollectOptions { goal: SpaceGoal::Free(50_000), ..collect_options() }
}

/// Everybody who may be there.
pub fn scenario() -> Scenario {
    let actors = vec![
        Actor::new(backs_up_by_default("both", "px")).renewing(),
        Actor::new(reuses("p", "pq")).renewing(),
        Actor::new(collects()).remembering(little_memory()),
        Actor::new(collects_with(carrying())),
        Actor::new(synthesizes("pq", "abcd", "pqabcd")),
        Actor::new(copies("efghijlors")),
        Actor::new(hides_and_shows("abcd")),
        Actor::new(hides_and_forgets("pq")),
        Actor::new(repairs_the_index()),
    ];
    Scenario { world: world(), actors }
}

#[test]
fn all_that_may_happen_at_once() {
    let scenario = scenario();
    in_parallel(SCHEDULES, |seed| {
        let mut segments = random_segments_with(seed as u64, scenario.actors.len(), &[0, 1]);
        // What others free spares a collection to carry anything.
        if seed % 8 == 0 {
            segments.insert(0, Segment::End(3));
        }
        // A session that is under way when an epoch is decided has to find time to renew itself.
        if seed % 8 == 4 {
            let renewer = scenario.actors.len() + 1;
            let begins = [
                Segment::Run(1, 14 + seed / 3),
                Segment::Until(2, Decide, "epochs"),
                Segment::Run(2, 1),
                Segment::Until(2, ListNames, "sessions"),
                Segment::Run(renewer, 60),
            ];
            segments.splice(0..0, begins);
        }
        let mode = Mode { reads_on: seed % 2 == 1, ..Mode::default() };
        scenario.must_hold(&segments, mode);
    });
    for what in [
        "frames carried",
        "collections of several epochs",
        "renewals",
        "index runs merged by 0",
        "index runs merged by 1",
    ] {
        let times = scenario.world.counted(what);
        eprintln!("{what}: {times}");
        assert!(times > 0, "{what}: never in {SCHEDULES} schedules");
    }
}

#[test]
fn r7_a_synthesis_that_is_fenced_while_it_stores_starts_over() {
    // Whenever it stops, two collections go by: what it has stored by then is gone with them.
    let actors = [synthesizes("pq", "abcd", "pqabcd"), collects(), collects()];
    let scenario = Scenario::new(world(), actors);
    let steps = scenario.steps()[0];
    in_parallel(steps / 2, |half| {
        let ends = [1, 2, 0].map(Segment::End);
        scenario.must_hold(&[&[Segment::Run(0, 2 * half)][..], &ends].concat(), false);
    });
}
