//! Power losses, in the model: what was reported saved is whole afterwards, and a collection has
//! deleted nothing for the sake of what vanished. Visible is not yet durable here: a container that
//! another backup is putting can be found, relied upon, and be gone after the loss.

use crate::device::Loss;
use crate::gated::{Answer, Lie};
use crate::model::{Scenario, in_parallel, world};
use crate::schedule::{Segment, random_segments};
use crate::steps::{key, names};
use crate::tasks::*;
use crate::world::*;
use onefold_store::layers::Operation::*;

/// Whatever is not durable vanishes.
fn losing() -> Mode {
    Mode { loss: Some(Loss::All), ..Mode::default() }
}

#[test]
fn r29_what_a_backup_found_of_another_is_durable_before_it_is_saved() {
    let world = World::new();
    world.save("k", "k", 2);
    world.source("x", "x");
    let scenario = Scenario::new(world, [backs_up("x", "x"), backs_up("x", "x")]);
    let steps = scenario.steps_in(losing())[0];
    in_parallel(steps + 1, |step| {
        // The first one stops in the midst of storing; the second one finds what there is.
        let segments = [Segment::Run(0, step), Segment::End(1), Segment::PowerLoss];
        scenario.must_hold(&segments, losing());
    });
}

/// The index and all containers are hidden, so that all is stored once more.
fn knows_nothing() -> Lie {
    Box::new(|operation, name, store| match name {
        "index" | "containers" if !operation.is_write() => {
            Answer::By(crate::canaries::without(store, name, |_| true))
        }
        _ => Answer::Honest,
    })
}

#[test]
fn r29_a_collection_relies_on_no_copy_that_a_power_loss_takes_away() {
    let world = World::new();
    let mixed = world.save("mixed", "kx", 2);
    world.save("k", "k", 3);
    world.forget(mixed);
    // Without copies of the sections the newest instance is what counts, whoever has just put it.
    for name in names(world.base(), "metadata") {
        assert!(world.base().remove(&key(name)));
    }
    let again = Actor::new(backs_up("k", "k")).lying(knows_nothing);
    let scenario = Scenario { world, actors: vec![again, Actor::new(collects())] };
    let steps = scenario.steps_in(losing())[1];
    // A copy of `k` is visible and not durable; the collector gets as far as it gets.
    let copied = [Segment::Until(0, Put, "containers"), Segment::Run(0, 1)];
    let any = (0..steps).map(|step| vec![Segment::Run(1, step)]);
    let deleting =
        (0..4).map(|step| vec![Segment::Until(1, Delete, "containers"), Segment::Run(1, step)]);
    let all: Vec<Vec<Segment>> = any.chain(deleting).collect();
    in_parallel(all.len(), |number| {
        let segments = [&copied[..], &all[number], &[Segment::PowerLoss]].concat();
        scenario.must_hold(&segments, losing());
    });
}

#[test]
fn r29_a_power_loss_at_any_moment_of_everything_at_once() {
    let tasks = [
        backs_up("x", "x"),
        reuses("p", "pq"),
        forgets("k"),
        forgets("pq"),
        collects(),
        collects(),
    ];
    let scenario = Scenario::new(world(), tasks);
    in_parallel(100, |seed| {
        let mut segments = random_segments(seed as u64, scenario.actors.len());
        segments.insert(seed * 7 % segments.len(), Segment::PowerLoss);
        let loss = if seed % 2 == 0 { Loss::All } else { Loss::Some(seed as u64) };
        let mode = Mode { splits_lists: seed % 4 > 1, loss: Some(loss), ..Mode::default() };
        scenario.must_hold(&segments, mode);
    });
}
