//! Rules of shares, broken.

use super::*;
use crate::share_actors::*;
use crate::shares::ShareScenario;
use onefold_store::Decisions;

/// This schedule makes the canary lose something, and nobody else.
fn loses(scenario: &ShareScenario, segments: &[Segment]) {
    let run = scenario.run(segments, false);
    let (problems, trace) = (&run.problems, run.schedule.trace());
    assert!(is_loss(problems), "nothing was lost: {problems:?}\n{trace}");
    let problems = scenario.run(segments, true).problems;
    assert!(problems.is_empty(), "without the canary: {problems:?}");
}

#[test]
fn canary_moved_untold_loses_a_chunk() {
    let actors = |files: &Files| {
        let canary = Actor::new(moves(files, false)).instead_of(moves(files, true));
        vec![Actor::new(optimizes(files)), canary, Actor::new(collects())]
    };
    let Some(scenario) = ShareScenario::new(actors) else { return };
    // The walk has seen the names in `a`, and those in `b` it has not.
    let ends = [1, 0, 2].map(Segment::End);
    loses(&scenario, &[&[Segment::Until(0, Size, "walk/a")], &ends[..]].concat());
}

#[test]
fn canary_emptied_before_the_manifest_is_committed_loses_a_chunk() {
    // Only the job itself sees its session committed, which goes on being announced.
    let lies = || -> Lie {
        let own = MemoryStore::new();
        Box::new(move |operation, name, store| match operation {
            Decide | Put if name.starts_with("outcomes") => Answer::By(own.clone()),
            Delete if name.starts_with("sessions") => Answer::Lost,
            _ if name.starts_with("outcomes") => {
                let both = store.clone_state();
                for name in names(&own, "outcomes") {
                    let value = own.decided(&key(name.as_str())).unwrap().unwrap();
                    both.decide(&key(name), &value).unwrap();
                }
                Answer::By(both)
            }
            _ => Answer::Honest,
        })
    };
    let actors =
        move |files: &Files| vec![Actor::new(optimizes(files)).lying(lies), Actor::new(collects())];
    let Some(scenario) = ShareScenario::new(actors) else { return };
    loses(&scenario, &[0, 1].map(Segment::End));
}

#[test]
fn canary_recalled_before_its_data_loses_a_chunk() {
    let actors = |files: &Files| {
        let canary = Actor::new(recalls_granule(files, false));
        vec![canary.instead_of(recalls_granule(files, true)), Actor::new(optimizes(files))]
    };
    let Some(scenario) = ShareScenario::new(actors) else { return };
    loses(&scenario, &[Segment::Until(0, Size, "work/bit"), Segment::Crash(0), Segment::End(1)]);
}
