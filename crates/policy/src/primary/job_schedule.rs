//! Which background job of shares starts, waits, goes on or is cancelled (ATC'12, section 4: the
//! scheduler "assigns jobs to cores, allocates memory for each, tracks and cancels them under
//! memory or CPU pressure"; one session for each volume, on one core).
//!
//! # Rules
//! 1. A job starts if a core is free and its memory fits beside that of those which run; a job that
//!    would run alone always fits.
//! 2. Of a share one job runs at a time, in the order given.
//! 3. A collection runs alone, once nothing else is left to run.
//! 4. When the window is over, what runs is cancelled, and nothing starts.
//! 5. If others stall for more than a share of the time, for whatever, all jobs pause, and none
//!    starts. They go on once it was below half of that in some samples running.
//! 6. A pause gives no memory back. If others stall for memory in some samples running, the job
//!    that has most of it is cancelled, of equals the one that started last; then the next.
//! 7. A pause that lasts too long cancels all. Half as long as collections wait for running
//!    sessions, so that no other machine has to end them.
//!
//! Everything that is cancelled or was not begun is left to the next run. Time and pressure are
//! told, orders are given; nothing is done here.

use std::time::Duration;

/// Below which part of what pauses jobs they go on.
const CALM_PART: f64 = 0.5;
/// Samples running that are calm before jobs go on.
const CALM_SAMPLES: u32 = 2;
/// Samples running with stalls for memory before a job is cancelled.
const MEMORY_SAMPLES: u32 = 3;
/// The longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Makes stubs of a share's cold files.
    Optimize,
    /// Reads a share's data back.
    Scrub,
    /// Frees what nobody needs.
    Collect,
}

/// A job that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueJob {
    /// What it does.
    pub kind: JobKind,
    /// The ordinal of its share; of no meaning for a collection.
    pub share: usize,
    /// The memory that it takes, in bytes.
    pub memory_bytes: usize,
}

/// What all jobs together may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budgets {
    /// Jobs at once.
    pub cores: usize,
    /// Their memory, in bytes.
    pub memory_bytes: usize,
    /// The share of the time that others may stall; `None`: whatever it is.
    pub pressure_max: Option<f64>,
}

/// The share of the time that somebody stalled, by what he waited for.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pressure {
    /// For a processor.
    pub cpu: f64,
    /// For a device.
    pub io: f64,
    /// For memory.
    pub memory: f64,
}

impl Pressure {
    /// The largest of the three.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.cpu.max(self.io).max(self.memory)
    }
}

/// What is known when something is to be decided.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Situation {
    /// Since the run began.
    pub elapsed: Duration,
    /// Whether the time to work is over.
    pub is_window_over: bool,
    /// How much others stalled since it was told last; `None`: not sampled.
    pub pressure: Option<Pressure>,
}

/// Why a job was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The time to work is over.
    Window,
    /// Others needed the machine for too long.
    Pressure,
    /// Others needed the memory.
    Memory,
}

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Start the job of this ordinal.
    Start(usize),
    /// All that run stop where they are.
    Pause,
    /// They go on.
    Resume,
    /// End the job of this ordinal, in order.
    Cancel(usize, Reason),
    /// The job of this ordinal is not begun any more.
    Leave(usize, Reason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    Running,
    Ending,
    Over,
}

/// The decisions of one run.
#[derive(Clone, Debug)]
pub struct JobSchedule {
    budgets: Budgets,
    jobs: Vec<(DueJob, State)>,
    /// The order in which those that run were started.
    started: Vec<usize>,
    paused_since: Option<Duration>,
    calm_samples: u32,
    memory_samples: u32,
}

impl JobSchedule {
    /// Nothing is decided yet. Jobs start in the order given, as far as rules allow.
    #[must_use]
    pub fn new(jobs: &[DueJob], budgets: Budgets) -> Self {
        Self {
            budgets,
            jobs: jobs.iter().map(|job| (*job, State::Waiting)).collect(),
            started: Vec::new(),
            paused_since: None,
            calm_samples: 0,
            memory_samples: 0,
        }
    }

    /// Whether nothing runs, and nothing will.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.jobs.iter().all(|(_, state)| *state == State::Over)
    }

    /// Whether jobs stop where they are.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused_since.is_some()
    }

    /// A job that was started has ended, however.
    pub fn ended(&mut self, ordinal: usize) {
        if let Some((_, state)) = self.jobs.get_mut(ordinal) {
            *state = State::Over;
        }
        self.started.retain(|other| *other != ordinal);
    }

    /// What is to be done in this situation.
    pub fn step(&mut self, situation: &Situation) -> Vec<Order> {
        let mut orders = Vec::new();
        if situation.is_window_over {
            self.give_up(Reason::Window, &mut orders);
            return orders;
        }
        if let (Some(pressure), Some(most)) = (situation.pressure, self.budgets.pressure_max) {
            self.meet(pressure, most, situation.elapsed, &mut orders);
        }
        match self.paused_since {
            Some(since) if situation.elapsed.saturating_sub(since) >= PAUSE_MAX => {
                self.give_up(Reason::Pressure, &mut orders);
            }
            Some(_) => {}
            None => self.start(&mut orders),
        }
        orders
    }

    fn meet(&mut self, pressure: Pressure, most: f64, now: Duration, orders: &mut Vec<Order>) {
        if pressure.most() > most {
            self.calm_samples = 0;
            if self.paused_since.is_none() {
                self.paused_since = Some(now);
                orders.push(Order::Pause);
            }
        } else if self.paused_since.is_some() {
            let is_calm = pressure.most() < most * CALM_PART;
            self.calm_samples = if is_calm { self.calm_samples + 1 } else { 0 };
            if self.calm_samples >= CALM_SAMPLES {
                self.paused_since = None;
                self.calm_samples = 0;
                orders.push(Order::Resume);
            }
        }
        let is_short = pressure.memory > most;
        self.memory_samples = if is_short { self.memory_samples + 1 } else { 0 };
        if self.memory_samples >= MEMORY_SAMPLES {
            self.memory_samples = 0;
            let running = self.started.iter().rev().copied();
            let running = running.filter(|ordinal| self.jobs[*ordinal].1 == State::Running);
            let mut largest: Option<usize> = None;
            for ordinal in running {
                let memory = |ordinal: usize| self.jobs[ordinal].0.memory_bytes;
                if largest.is_none_or(|other| memory(ordinal) > memory(other)) {
                    largest = Some(ordinal);
                }
            }
            if let Some(ordinal) = largest {
                self.jobs[ordinal].1 = State::Ending;
                orders.push(Order::Cancel(ordinal, Reason::Memory));
            }
        }
    }

    fn give_up(&mut self, reason: Reason, orders: &mut Vec<Order>) {
        for (ordinal, (_, state)) in self.jobs.iter_mut().enumerate() {
            match state {
                State::Waiting => {
                    *state = State::Over;
                    orders.push(Order::Leave(ordinal, reason));
                }
                State::Running => {
                    *state = State::Ending;
                    orders.push(Order::Cancel(ordinal, reason));
                }
                State::Ending | State::Over => {}
            }
        }
    }

    fn start(&mut self, orders: &mut Vec<Order>) {
        for ordinal in 0..self.jobs.len() {
            if self.jobs[ordinal].1 == State::Waiting && self.may_start(ordinal) {
                self.jobs[ordinal].1 = State::Running;
                self.started.push(ordinal);
                orders.push(Order::Start(ordinal));
            }
        }
    }

    fn may_start(&self, ordinal: usize) -> bool {
        let (job, _) = self.jobs[ordinal];
        if self.started.is_empty() && job.kind != JobKind::Collect {
            return self.is_next_of_share(ordinal);
        }
        let collects = |ordinal: &usize| self.jobs[*ordinal].0.kind == JobKind::Collect;
        if job.kind == JobKind::Collect {
            let others = self.jobs.iter().filter(|(other, _)| other.kind != JobKind::Collect);
            return self.started.is_empty() && others.into_iter().all(|it| it.1 == State::Over);
        }
        let taken: usize = self.started.iter().map(|other| self.jobs[*other].0.memory_bytes).sum();
        self.started.len() < self.budgets.cores
            && taken.saturating_add(job.memory_bytes) <= self.budgets.memory_bytes
            && !self.started.iter().any(collects)
            && self.is_next_of_share(ordinal)
    }

    /// Whether all that comes before it in its share is over.
    fn is_next_of_share(&self, ordinal: usize) -> bool {
        let share = self.jobs[ordinal].0.share;
        let mut earlier = self.jobs[..ordinal].iter();
        earlier.all(|(other, state)| {
            other.share != share || other.kind == JobKind::Collect || *state == State::Over
        })
    }
}

#[cfg(test)]
mod tests {
    use super::JobKind::{Collect, Optimize, Scrub};
    use super::Order::{Cancel, Leave, Pause, Resume, Start};
    use super::*;

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
        assert_eq!(schedule.step(&at(1, cpu(0.21))), [Pause]);
        schedule.ended(0);
        assert_eq!(schedule.step(&at(2, cpu(0.05))), [], "one calm sample is none");
        assert_eq!(schedule.step(&at(3, cpu(0.15))), [], "and calm is below half");
        assert_eq!(schedule.step(&at(4, cpu(0.05))), []);
        assert_eq!(schedule.step(&at(5, None)), [], "what was not sampled says nothing");
        assert_eq!(schedule.step(&at(6, cpu(0.05))), [Resume, Start(1)]);
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
        let short = Some(Pressure { memory: 0.5, ..Pressure::default() });
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
}
