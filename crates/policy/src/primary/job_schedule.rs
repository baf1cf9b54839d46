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
