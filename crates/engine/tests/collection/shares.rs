//! Shares, in the model: the job that makes stubs, programs that use the mount, and the way back,
//! beside collections and forgetting. Steps on the store are scheduled; what happens to files
//! happens between them. Whatever stops where: every file holds its bytes, by the store alone, and
//! the job, run once more, leaves one manifest that keeps them all.

use crate::model::{in_parallel, runs};
use crate::schedule::{Segment, random_segments};
use crate::share_actors::*;
use crate::share_files::*;
use crate::tasks::*;
use crate::world::*;
use onefold_store::MemoryStore;
use std::path::Path;
use std::sync::Arc;

/// Random schedules.
const SCHEDULES: usize = 120;

/// Makes the actors of one run, in its share.
type MakeActors = Box<dyn Fn(&Files) -> Vec<Actor> + Sync>;

/// A store that shares use, and who acts in a share of it.
pub struct ShareScenario {
    world: World,
    place: &'static Path,
    actors: MakeActors,
}

impl ShareScenario {
    /// `None` where no share can be.
    pub fn new(actors: impl Fn(&Files) -> Vec<Actor> + Sync + 'static) -> Option<Self> {
        let place = place()?;
        let world = World::new();
        let dead = world.save("x", "x", 2);
        world.save("k", "k", 3);
        world.forget(dead);
        Some(Self { world, place, actors: Box::new(actors) })
    }

    /// The same of tasks.
    pub fn of(tasks: impl Fn(&Files) -> Vec<Task> + Sync + 'static) -> Option<Self> {
        Self::new(move |files| tasks(files).into_iter().map(Actor::new).collect())
    }

    /// Runs one schedule in a share of its own and looks what is left; `is_honest` if all are to
    /// keep to the rules.
    pub fn run(&self, segments: &[Segment], is_honest: bool) -> Run {
        let store: MemoryStore = self.world.base().clone_state();
        let files = Arc::new(SharedFiles::create(self.place, &store));
        let mut actors = (self.actors)(&files);
        if is_honest {
            actors = actors.iter().map(Actor::honest).collect();
        }
        let mode = Mode { gates_reads: true, ..Mode::default() };
        let mut run = self.world.run_on(store, &actors, segments, mode);
        files.verify(&run.store, "after the run", &mut run.problems);
        if run.problems.is_empty() {
            files.repair(&run.store, &mut run.problems);
            self.world.verify(&mut run);
            files.verify(&run.store, "after the last collection", &mut run.problems);
        }
        run
    }

    /// Runs one schedule, which must go well.
    pub fn must_hold(&self, segments: &[Segment]) {
        let run = self.run(segments, true);
        assert!(
            run.problems.is_empty(),
            "{:?}\nschedule: {segments:?}\n{}",
            run.problems,
            run.schedule.trace()
        );
    }

    fn must_hold_all(&self, all: &[Vec<Segment>]) {
        in_parallel(all.len(), |number| self.must_hold(&all[number]));
    }

    /// How many steps an actor makes if all others come later.
    fn steps(&self, actor: usize) -> usize {
        self.run(&[Segment::End(actor)], true).schedule.steps()[actor]
    }

    /// Schedules in which an actor stops after each of its steps, and then this happens.
    fn stops(&self, actor: usize, then: &[Segment]) -> Vec<Vec<Segment>> {
        let stop = |step| [&[Segment::Run(actor, step)], then].concat();
        (0..=self.steps(actor)).map(stop).collect()
    }

    /// What is never met tests nothing.
    fn assert_met(&self, what: &[&str]) {
        for what in what {
            let times = self.world.counted(what);
            eprintln!("{what}: {times}");
            assert!(times > 0, "{what}: never");
        }
    }
}

fn ends<const COUNT: usize>(actors: [usize; COUNT]) -> Vec<Segment> {
    actors.map(Segment::End).to_vec()
}

#[test]
fn a_job_and_a_collection_stopped_anywhere_lose_nothing() {
    let tasks = |files: &Files| vec![optimizes(files), collects(), optimizes(files)];
    let Some(scenario) = ShareScenario::of(tasks) else { return };
    let crash = [&[Segment::Crash(0)], &ends([1, 2])[..]].concat();
    let mut all = scenario.stops(0, &ends([1, 0]));
    all.extend(scenario.stops(0, &crash));
    all.extend(scenario.stops(1, &ends([0, 1])));
    scenario.must_hold_all(&all);
    scenario.assert_met(&["files emptied", "manifests forgotten"]);
}

#[test]
fn what_is_written_anywhere_in_a_job_or_stopped_at_that_is_there() {
    let tasks = |files: &Files| vec![optimizes(files), writes(files), collects()];
    let Some(scenario) = ShareScenario::of(tasks) else { return };
    let mut all = scenario.stops(0, &ends([1, 0, 2]));
    all.extend(scenario.stops(1, &ends([0, 2, 1])));
    all.extend(scenario.stops(1, &[&[Segment::Crash(1)], &ends([0, 2])[..]].concat()));
    scenario.must_hold_all(&all);
}

#[test]
fn what_is_moved_anywhere_in_a_job_keeps_its_data() {
    let tasks = |files: &Files| vec![optimizes(files), moves(files, true), collects()];
    let Some(scenario) = ShareScenario::of(tasks) else { return };
    scenario.must_hold_all(&scenario.stops(0, &ends([1, 0, 2])));
    scenario.assert_met(&["manifests kept"]);
    let tasks = |files: &Files| vec![optimizes(files), rearranges(files), collects()];
    let Some(scenario) = ShareScenario::of(tasks) else { return };
    scenario.must_hold_all(&scenario.stops(0, &ends([1, 0, 2])));
}

#[test]
fn what_is_moved_or_written_anywhere_in_the_way_back_keeps_its_data() {
    let tasks = |files: &Files| {
        vec![rehydrates(files), moves(files, true), writes(files), collects(), optimizes(files)]
    };
    let Some(scenario) = ShareScenario::of(tasks) else { return };
    let mut all = scenario.stops(0, &ends([1, 0, 3]));
    all.extend(scenario.stops(0, &ends([2, 0, 3])));
    all.extend(scenario.stops(0, &[&[Segment::Crash(0)], &ends([3, 2, 4])[..]].concat()));
    scenario.must_hold_all(&all);
    scenario.assert_met(&["files brought back"]);
}

#[test]
fn what_is_read_while_all_else_happens_is_what_it_must_be() {
    let tasks = |files: &Files| {
        vec![recalls(files), rearranges(files), optimizes(files), collects(), rehydrates(files)]
    };
    let Some(scenario) = ShareScenario::of(tasks) else { return };
    let mut all = scenario.stops(0, &ends([1, 2, 3, 0]));
    all.extend(scenario.stops(0, &ends([1, 4, 3, 0])));
    scenario.must_hold_all(&all);
    scenario.assert_met(&["files read"]);
}

fn anything(seed: u64) -> Option<ShareScenario> {
    ShareScenario::of(move |files| {
        vec![
            optimizes(files),
            works(files, seed),
            recalls(files),
            collects(),
            rehydrates(files),
            optimizes_nothing(files),
            forgets("k"),
        ]
    })
}

#[test]
fn all_that_may_happen_to_a_share_at_once() {
    let Some(all) = (0..10).map(anything).collect::<Option<Vec<_>>>() else { return };
    in_parallel(runs(SCHEDULES), |seed| {
        let segments = random_segments(seed as u64, 7);
        all[seed % all.len()].must_hold(&segments);
    });
    for what in ["files emptied", "files brought back", "files read"] {
        let times: u64 = all.iter().map(|one| one.world.counted(what)).sum();
        assert!(times > 0, "{what}: never");
    }
}
