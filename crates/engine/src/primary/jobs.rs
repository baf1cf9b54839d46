//! The background jobs of a machine's shares: runs what [`job_schedule`] decides.
//!
//! # Algorithm
//! Each job is a thread with an [`Interrupt`] of its own. One more thread, the caller's, looks at
//! what has ended, samples the pressure, asks for orders and carries them out.
//!
//! # Whose pressure it is
//! The kernel tells how long *somebody* stalled, and jobs stall like everybody else: one that reads
//! from a disk does so nearly always. So it is measured while they rest: every few seconds all
//! jobs are asked to wait for a quarter of a second ([`Rhythm`]), and what stalls then are others.
//! While they are paused nothing of theirs has to be set aside.
//!
//! # Pausing, cancelling
//! A job waits, or ends, where it looks whether it was interrupted: between files, chunks,
//! containers, never between a file's stub and its data ([`super::emptying`]). One that is
//! cancelled ends as if by a signal, and all kinds of jobs go on from there when they are run
//! again: chunks that were stored are found, an open collection is finished, a scrub has its
//! cursor.
//!
//! [`job_schedule`]: onefold_policy::primary::job_schedule

pub mod pressure;

use crate::job::{Interrupt, Job};
use crate::memory::MemoryPlan;
use onefold_policy::primary::job_schedule::{
    Budgets, DueJob, JobKind, JobSchedule, Order, Pressure, Reason, Situation,
};
use onefold_types::{Error, ErrorKind, Result, limits};
use pressure::{Gauge, Stalled};
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How often it is looked whether a job has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What a scrub takes: the caches of one reader.
const SCRUB_BYTES: usize = 16 * limits::MIB;

/// The memory that a job counts on. What it takes beyond is what others have left.
#[must_use]
pub fn memory_bytes(kind: JobKind, plan: &MemoryPlan) -> usize {
    match kind {
        JobKind::Optimize => limits::MEMORY_LIMIT_MIN_BYTES,
        JobKind::Scrub => SCRUB_BYTES,
        JobKind::Collect => plan.limit_bytes,
    }
}

/// When pressure is measured.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// How long jobs work between two rests.
    pub work: Duration,
    /// How long they have to come to rest.
    pub settle: Duration,
    /// How long is measured.
    pub sample: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            work: Duration::from_secs(5),
            settle: Duration::from_millis(50),
            sample: Duration::from_millis(250),
        }
    }
}

/// What a run may use.
pub struct RunOptions<'a> {
    /// What all jobs together may use.
    pub budgets: Budgets,
    /// When pressure is measured.
    pub rhythm: Rhythm,
    /// Whether the time to work is over.
    pub is_over: &'a dyn Fn() -> bool,
}

/// What became of a job.
#[derive(Debug)]
pub enum Outcome {
    /// It ran to its end.
    Done,
    /// It failed.
    Failed(Error),
    /// It was cancelled, or not begun.
    Left(Reason),
    /// The run was interrupted before it ended, or began.
    Interrupted,
}

/// What a run tells.
#[derive(Debug)]
pub enum Event<'a> {
    /// A job was started.
    Started(usize),
    /// All jobs wait: others stalled so much.
    Paused(Pressure),
    /// They go on.
    Resumed,
    /// This is what became of a job.
    Ended(usize, &'a Outcome),
    /// The kernel does not tell any more how much others stall.
    Blind(&'a Error),
}

/// What a run did.
#[derive(Debug, Default)]
pub struct RunReport {
    /// What became of each job.
    pub outcomes: Vec<Outcome>,
    /// How often jobs were paused.
    pub pauses: u64,
    /// For how long in all.
    pub paused: Duration,
}

/// What a job does; it is told by its ordinal.
pub type Work<'a> = &'a (dyn Fn(usize, &Job) -> Result<()> + Sync);

/// Runs jobs until all have ended or are left to the next run.
///
/// Without a gauge nothing pauses them. If `job` is interrupted, so are all.
pub fn run<'a>(
    due: &[DueJob],
    options: &'a RunOptions<'a>,
    gauge: Option<&'a mut (dyn Gauge + 'a)>,
    job: &'a Job,
    work: Work<'a>,
    told: &'a mut (dyn FnMut(Event<'_>) + 'a),
) -> RunReport {
    std::thread::scope(|scope| {
        let mut run = Run {
            scope,
            work,
            job,
            options,
            gauge,
            told,
            schedule: JobSchedule::new(due, options.budgets),
            running: Vec::new(),
            outcomes: due.iter().map(|_| None).collect(),
            reasons: vec![None; due.len()],
            last: Instant::now(),
            before: None,
            pause: None,
            report: RunReport::default(),
        };
        run.all();
        run.report()
    })
}

/// A job under way.
struct Running<'scope> {
    ordinal: usize,
    interrupt: Interrupt,
    thread: ScopedJoinHandle<'scope, Result<()>>,
}

struct Run<'scope, 'env, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    work: Work<'env>,
    job: &'a Job,
    options: &'a RunOptions<'a>,
    gauge: Option<&'a mut (dyn Gauge + 'a)>,
    told: &'a mut (dyn FnMut(Event<'_>) + 'a),
    schedule: JobSchedule,
    running: Vec<Running<'scope>>,
    outcomes: Vec<Option<Outcome>>,
    /// Why a job was cancelled.
    reasons: Vec<Option<Reason>>,
    /// When pressure was sampled last.
    last: Instant,
    /// What was told at the beginning of a sample while jobs are paused.
    before: Option<Stalled>,
    pause: Option<Instant>,
    report: RunReport,
}

impl Run<'_, '_, '_> {
    fn all(&mut self) {
        let began = Instant::now();
        // Nothing is begun on a machine that others need.
        let mut pressure = self.rest();
        loop {
            self.reap();
            let is_interrupted = self.job.interrupt.is_requested();
            if is_interrupted {
                self.running.iter().for_each(|running| running.interrupt.request());
                if self.running.is_empty() {
                    return;
                }
            } else {
                let situation = Situation {
                    elapsed: began.elapsed(),
                    is_window_over: (self.options.is_over)(),
                    pressure,
                };
                for order in self.schedule.step(&situation) {
                    self.obey(order, pressure.unwrap_or_default());
                }
                if self.schedule.is_over() {
                    return;
                }
            }
            std::thread::sleep(LOOK);
            pressure = self.sample();
        }
    }

    fn obey(&mut self, order: Order, pressure: Pressure) {
        match order {
            Order::Start(ordinal) => self.start(ordinal),
            Order::Pause => {
                self.set_paused(true);
                self.pause = Some(Instant::now());
                self.report.pauses += 1;
                (self.told)(Event::Paused(pressure));
            }
            Order::Resume => {
                self.end_pause();
                self.set_paused(false);
                (self.told)(Event::Resumed);
            }
            Order::Cancel(ordinal, reason) => {
                self.reasons[ordinal] = Some(reason);
                let of_it = self.running.iter().filter(|running| running.ordinal == ordinal);
                of_it.for_each(|running| running.interrupt.request());
            }
            Order::Leave(ordinal, reason) => self.end(ordinal, Outcome::Left(reason)),
        }
    }

    fn start(&mut self, ordinal: usize) {
        let interrupt = Interrupt::default();
        let job = Job {
            interrupt: interrupt.clone(),
            progress: Arc::default(),
            observer: Arc::clone(&self.job.observer),
        };
        let work = self.work;
        (self.told)(Event::Started(ordinal));
        let thread = Builder::new().name(format!("job {ordinal}"));
        match thread.spawn_scoped(self.scope, move || work(ordinal, &job)) {
            Ok(thread) => self.running.push(Running { ordinal, interrupt, thread }),
            Err(error) => {
                self.schedule.ended(ordinal);
                let error = Error::io("starting a thread", error);
                self.end(ordinal, Outcome::Failed(error));
            }
        }
    }

    /// Takes notice of what has ended.
    fn reap(&mut self) {
        while let Some(at) = self.running.iter().position(|running| running.thread.is_finished()) {
            let Running { ordinal, thread, .. } = self.running.swap_remove(at);
            self.schedule.ended(ordinal);
            let outcome = match thread.join() {
                Ok(Ok(())) => Outcome::Done,
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {
                    self.reasons[ordinal].map_or(Outcome::Interrupted, Outcome::Left)
                }
                Ok(Err(error)) => Outcome::Failed(error),
                Err(panic) => {
                    // The others end before it goes on its way.
                    self.running.iter().for_each(|running| running.interrupt.request());
                    std::panic::resume_unwind(panic)
                }
            };
            self.end(ordinal, outcome);
        }
    }

    fn end(&mut self, ordinal: usize, outcome: Outcome) {
        (self.told)(Event::Ended(ordinal, &outcome));
        self.outcomes[ordinal] = Some(outcome);
    }

    fn set_paused(&self, is_paused: bool) {
        self.running.iter().for_each(|running| running.interrupt.set_paused(is_paused));
    }

    fn end_pause(&mut self) {
        self.before = None;
        let pause = self.pause.take();
        self.report.paused += pause.map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// What others stalled, if it is time to ask.
    fn sample(&mut self) -> Option<Pressure> {
        let rhythm = self.options.rhythm;
        let passed = self.last.elapsed();
        if self.gauge.is_none() {
            // Whoever went blind in a pause must not wait for ever.
            return self.schedule.is_paused().then(Pressure::default);
        }
        if !self.schedule.is_paused() {
            return if passed >= rhythm.work { self.rest() } else { None };
        }
        let Some(before) = self.before else {
            self.begin();
            return None;
        };
        if passed < rhythm.sample {
            return None;
        }
        let now = self.ask()?;
        let pressure = now.since(&before, passed);
        (self.last, self.before) = (Instant::now(), Some(now));
        Some(pressure)
    }

    /// Has all jobs wait for a moment, and tells what others stalled meanwhile.
    fn rest(&mut self) -> Option<Pressure> {
        let rhythm = self.options.rhythm;
        self.gauge.as_ref()?;
        self.set_paused(true);
        if !self.running.is_empty() {
            std::thread::sleep(rhythm.settle);
        }
        let pressure = self.measure();
        self.set_paused(false);
        self.last = Instant::now();
        pressure
    }

    fn measure(&mut self) -> Option<Pressure> {
        let before = self.ask()?;
        let began = Instant::now();
        std::thread::sleep(self.options.rhythm.sample);
        let after = self.ask()?;
        Some(after.since(&before, began.elapsed()))
    }

    fn begin(&mut self) {
        self.before = self.ask();
        self.last = Instant::now();
    }

    /// Asks the gauge; one that fails is not asked again, and nothing stays paused for it.
    fn ask(&mut self) -> Option<Stalled> {
        let asked = self.gauge.as_mut()?.stalled();
        match asked {
            Ok(stalled) => Some(stalled),
            Err(error) => {
                (self.told)(Event::Blind(&error));
                self.gauge = None;
                None
            }
        }
    }

    fn report(mut self) -> RunReport {
        self.end_pause();
        let outcomes = self.outcomes.into_iter();
        self.report.outcomes =
            outcomes.map(|outcome| outcome.unwrap_or(Outcome::Interrupted)).collect();
        self.report
    }
}
