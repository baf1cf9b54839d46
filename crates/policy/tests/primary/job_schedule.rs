//! Every rule by which background jobs start, wait, go on and are cancelled.

use onefold_policy::primary::job_schedule::JobKind::{Collect, Optimize, Scrub};
use onefold_policy::primary::job_schedule::Order::{Cancel, Leave, Pause, Resume, Start};
use onefold_policy::primary::job_schedule::{
    Budgets, DueJob, JobKind, JobSchedule, PAUSE_MAX, Pressure, Reason, Situation,
};
use std::time::Duration;

const BUDGETS: Budgets = Budgets { cores: 2, memory_bytes: 100, pressure_max: Some(0.2) };

fn due(kind: JobKind, share: usize, memory_bytes: usize) -> DueJob {
    DueJob { kind, share, memory_bytes }
}

fn at(seconds: u64, pressure: Option<Pressure>) -> Situation {
    let elapsed = Duration::from_secs(seconds);
    Situation { elapsed, is_window_over: false, pressure }
}

fn cpu(share: f64) -> Option<Pressure> {
    Some(Pressure { cpu: share, ..Pressure::default() })
}

#[test]
fn as_many_jobs_run_as_there_are_cores_and_memory_for() {
    let jobs: Vec<DueJob> = (0..3).map(|share| due(Optimize, share, 40)).collect();
    let mut schedule = JobSchedule::new(&jobs, BUDGETS);
    assert_eq!(schedule.step(&at(0, None)), [Start(0), Start(1)]);
    assert_eq!(schedule.step(&at(1, None)), []);
    schedule.ended(0);
    assert_eq!(schedule.step(&at(2, None)), [Start(2)]);
    let narrow = Budgets { memory_bytes: 79, ..BUDGETS };
    assert_eq!(JobSchedule::new(&jobs, narrow).step(&at(0, None)), [Start(0)]);
    // One alone is bounded by the process's own limit.
    let none = Budgets { memory_bytes: 0, cores: 0, ..BUDGETS };
    assert_eq!(JobSchedule::new(&jobs, none).step(&at(0, None)), [Start(0)]);
}

#[test]
fn a_share_has_one_job_at_a_time_and_a_collection_runs_alone_and_last() {
    let jobs = [due(Optimize, 0, 1), due(Scrub, 0, 1), due(Collect, 0, 1), due(Optimize, 1, 1)];
    let mut schedule = JobSchedule::new(&jobs, Budgets { cores: 8, ..BUDGETS });
    assert_eq!(schedule.step(&at(0, None)), [Start(0), Start(3)]);
    schedule.ended(0);
    assert_eq!(schedule.step(&at(1, None)), [Start(1)]);
    schedule.ended(1);
    assert_eq!(schedule.step(&at(2, None)), []);
    schedule.ended(3);
    assert_eq!(schedule.step(&at(3, None)), [Start(2)]);
    assert!(!schedule.is_over());
    schedule.ended(2);
    assert!(schedule.is_over());
    let jobs = [due(Collect, 0, 1), due(Optimize, 0, 1)];
    assert_eq!(
        JobSchedule::new(&jobs, BUDGETS).step(&at(0, None)),
        [Start(1)],
        "wherever it stands"
    );
}

#[test]
fn a_window_that_ends_cancels_what_runs_and_begins_nothing() {
    let jobs = [due(Optimize, 0, 1), due(Scrub, 0, 1)];
    let mut schedule = JobSchedule::new(&jobs, BUDGETS);
    schedule.step(&at(0, None));
    let over = Situation { is_window_over: true, ..at(1, None) };
    let orders = [Cancel(0, Reason::Window), Leave(1, Reason::Window)];
    assert_eq!(schedule.step(&over), orders);
    assert_eq!(schedule.step(&over), [], "each is told once");
    assert!(!schedule.is_over(), "what was cancelled still has to end");
    schedule.ended(0);
    assert!(schedule.is_over());
    let mut outside = JobSchedule::new(&jobs, BUDGETS);
    let left = [Leave(0, Reason::Window), Leave(1, Reason::Window)];
    assert_eq!(outside.step(&over), left);
}

#[test]
fn jobs_pause_under_pressure_and_go_on_only_after_calm() {
    let jobs = [due(Optimize, 0, 1), due(Optimize, 1, 1)];
    let mut schedule = JobSchedule::new(&jobs, Budgets { cores: 1, ..BUDGETS });
    assert_eq!(schedule.step(&at(0, cpu(0.2))), [Start(0)]);
    assert!(!schedule.is_paused());
    assert_eq!(schedule.step(&at(1, cpu(0.21))), [Pause]);
    assert!(schedule.is_paused());
    schedule.ended(0);
    assert_eq!(schedule.step(&at(2, cpu(0.05))), [], "one calm sample is none");
    assert_eq!(schedule.step(&at(3, cpu(0.1))), [], "and calm is below half");
    assert_eq!(schedule.step(&at(4, cpu(0.05))), []);
    assert_eq!(schedule.step(&at(5, None)), [], "what was not sampled says nothing");
    assert_eq!(schedule.step(&at(6, cpu(0.05))), [Resume, Start(1)]);
    assert!(!schedule.is_paused());
    for kind in [Pressure { io: 0.9, ..Pressure::default() }, cpu(0.9).unwrap()] {
        let mut schedule = JobSchedule::new(&jobs, BUDGETS);
        assert_eq!(schedule.step(&at(0, Some(kind))), [Pause], "nothing starts under pressure");
        let off = Budgets { pressure_max: None, ..BUDGETS };
        let mut schedule = JobSchedule::new(&jobs, off);
        assert_eq!(schedule.step(&at(0, Some(kind))), [Start(0), Start(1)]);
    }
}

#[test]
fn a_pause_that_lasts_ends_the_run() {
    let jobs = [due(Optimize, 0, 1), due(Scrub, 0, 1)];
    let mut schedule = JobSchedule::new(&jobs, BUDGETS);
    schedule.step(&at(0, None));
    assert_eq!(schedule.step(&at(10, cpu(0.5))), [Pause]);
    let end = 10 + PAUSE_MAX.as_secs();
    assert_eq!(schedule.step(&at(end - 1, cpu(0.5))), []);
    let orders = [Cancel(0, Reason::Pressure), Leave(1, Reason::Pressure)];
    assert_eq!(schedule.step(&at(end, cpu(0.5))), orders);
}

#[test]
fn memory_pressure_cancels_the_largest_job_then_the_next() {
    let jobs = [due(Optimize, 0, 30), due(Optimize, 1, 30), due(Scrub, 2, 10)];
    let mut schedule = JobSchedule::new(&jobs, Budgets { cores: 3, ..BUDGETS });
    schedule.step(&at(0, None));
    let memory = |memory| Some(Pressure { memory, ..Pressure::default() });
    let short = memory(0.5);
    for second in 0..5 {
        assert_eq!(schedule.step(&at(second, memory(0.2))), [], "as much as may be");
    }
    assert_eq!(schedule.step(&at(1, short)), [Pause]);
    assert_eq!(schedule.step(&at(2, short)), []);
    assert_eq!(schedule.step(&at(3, short)), [Cancel(1, Reason::Memory)]);
    schedule.ended(1);
    assert_eq!(schedule.step(&at(4, cpu(0.5))), [], "another pressure starts counting anew");
    assert_eq!(schedule.step(&at(5, short)), []);
    assert_eq!(schedule.step(&at(6, short)), []);
    assert_eq!(schedule.step(&at(7, short)), [Cancel(0, Reason::Memory)]);
    assert_eq!(schedule.step(&at(8, cpu(0.0))), []);
    assert_eq!(schedule.step(&at(9, cpu(0.0))), [Resume]);
    schedule.ended(0);
    schedule.ended(2);
    assert!(schedule.is_over());
}
