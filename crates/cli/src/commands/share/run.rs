//! `share run`: does what is due for shares, while nobody else needs the machine.

use super::creating::refuse_store_in;
use super::job::{self, fields, is_on_disk_of, options};
use super::partitions::PartitionArguments;
use super::window::{PressureMax, Window};
use crate::bounds::{Period, Rate, Share as TimeShare};
use crate::commands::look_up::LookUpArguments;
use crate::commands::{gc, maintain};
use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::size::{counted, human};
use crate::time;
use clap::Args;
use onefold_engine::collection::{self, CollectOptions, CollectReport};
use onefold_engine::primary::jobs::pressure::{Gauge, KernelGauge};
use onefold_engine::primary::jobs::{self, Event, RunOptions, RunReport, memory_bytes};
use onefold_engine::primary::optimize::{self, OptimizeOptions, OptimizeReport};
use onefold_engine::primary::scrub::{self, ScrubReport};
use onefold_engine::primary::{Share, jobs::Outcome as Became};
use onefold_engine::{Job, Repository};
use onefold_policy::primary::job_schedule::{Budgets, DueJob, JobKind, Reason};
use onefold_store::layers::ThrottleLimits;
use onefold_types::{Error, ErrorKind, Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const AFTER_HELP: &str = "\
For each share: moves the data of cold files into the store, as 'optimize' does, then reads a
slice of what is stored back and verifies it; shares run at once as far as processors and memory
allow. In the end the store is collected if that is due. Jobs have the least priority, wait while
others need the machine, and end in order when the time is over; the next run goes on. Made for a
timer: examples/systemd has one.

EXAMPLES
  onefold share run /srv/files
  onefold share run /srv/files /srv/projects --window 22:00-06:00 --pressure 10%
  onefold share run /srv/files --max-duration 2h --max-io 50MiB --no-collect";

/// How long running sessions may take to take notice of a collection.
const WAIT: Duration = Duration::from_secs(600);

/// Arguments of `share run`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct RunArguments {
    /// The shares
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Only work in this time of the day, local time, such as 22:00-06:00
    #[arg(long, value_name = "FROM-TO")]
    window: Option<Window>,
    /// End in order after this time
    #[arg(long, value_name = "DURATION")]
    max_duration: Option<Period>,
    /// Bytes to read from the store and write to it a second, at most
    #[arg(long, value_name = "SIZE")]
    max_io: Option<Rate>,
    /// Share of the time to work, at most, such as 25%
    #[arg(long, value_name = "PERCENT%")]
    max_cpu: Option<TimeShare>,
    /// Wait while others stall for more than this share of the time, or 'off'
    #[arg(long, value_name = "PERCENT%", default_value = "20%")]
    pressure: PressureMax,
    /// Free no space in the store
    #[arg(long)]
    no_collect: bool,
    /// Read nothing back
    #[arg(long)]
    no_scrub: bool,
    /// How much of what is stored of each share to read back
    #[arg(long, value_name = "PERCENT%", default_value = "5%")]
    scrub_share: TimeShare,
    /// Also for shares that were mounted before and are not now
    #[arg(long)]
    unmounted: bool,
    #[command(flatten)]
    partitions: PartitionArguments,
}

/// What a job did, until it is told.
enum Did {
    Optimized(Box<OptimizeReport>),
    Scrubbed(ScrubReport),
    Collected(Box<CollectReport>),
    NotDue,
}

/// What the threads of jobs share.
struct Jobs<'a> {
    context: &'a Context,
    /// The directory that the store is in, if it is in one.
    store: Option<PathBuf>,
    repository: Arc<Repository>,
    shares: Vec<Share>,
    due: Vec<DueJob>,
    optimize: OptimizeOptions,
    /// Files for whose data a disk has no room.
    files_put_off: AtomicU64,
    collect: CollectOptions,
    scrub_share: f64,
    did: Mutex<BTreeMap<usize, Did>>,
    /// Chunks that parts of shares store twice and that are worth reconciling, about.
    chunks_stored_twice: AtomicU64,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &RunArguments) -> Result<Outcome> {
    gc::step_back();
    let began = Instant::now();
    let is_over = || {
        arguments.window.is_some_and(|window| !window.is_open())
            || arguments.max_duration.is_some_and(|Period(most)| began.elapsed() >= most)
    };
    let shares = open_shares(context, arguments)?;
    if is_over() {
        let why = match arguments.window {
            Some(window) if !window.is_open() => "outside the window",
            _ => "--max-duration leaves no time to work",
        };
        context.output.note(&format!("{why}: nothing is begun"))?;
        tell_ran(context, &[], &RunReport::default(), began.elapsed())?;
        return Ok(Outcome::Complete);
    }
    let jobs = prepare(context, arguments, shares)?;
    let mut gauge = match arguments.pressure {
        PressureMax(None) => None,
        PressureMax(Some(_)) => KernelGauge::open().map_err(|error| blind(context, &error)).ok(),
    };
    let running = context.start_job("working on shares")?;
    let budgets = Budgets {
        cores: context.threads,
        memory_bytes: context.memory.limit_bytes,
        pressure_max: arguments.pressure.0,
    };
    let options = RunOptions { budgets, rhythm: jobs::Rhythm::default(), is_over: &is_over };
    let mut told: Result<u64> = Ok(0);
    let report = jobs::run(
        &jobs.due,
        &options,
        gauge.as_mut().map(|gauge| gauge as &mut dyn Gauge),
        &running.job,
        &|ordinal, job| jobs.work(ordinal, job),
        &mut |event| match (&mut told, jobs.tell(&running.job, &event)) {
            (Ok(damaged), Ok(more)) => *damaged += more,
            (Ok(_), Err(error)) => {
                // Nobody hears what is done: it ends where it can go on later.
                running.job.interrupt.request();
                told = Err(error);
            }
            (Err(_), _) => {}
        },
    );
    let problems = running.finish();
    let damaged = told?;
    jobs.summarize(&report, began.elapsed())?;
    let put_off = jobs.files_put_off.load(Ordering::Relaxed);
    outcome_of(context, &report, (damaged, problems + put_off))
}

fn open_shares(context: &Context, arguments: &RunArguments) -> Result<Vec<Share>> {
    let mut shares: Vec<Share> = Vec::new();
    for directory in &arguments.directories {
        let share = Share::open(directory)?;
        refuse_store_in(directory, context.store_directory()?.as_deref())?;
        if !arguments.unmounted {
            share.refuse_unmounted()?;
        }
        if shares.iter().all(|other| other.id != share.id) {
            shares.push(share);
        }
    }
    Ok(shares)
}

fn prepare<'a>(
    context: &'a Context,
    arguments: &RunArguments,
    shares: Vec<Share>,
) -> Result<Jobs<'a>> {
    let partitions = arguments.partitions.partitions()?;
    let limits = ThrottleLimits {
        bytes_per_second: arguments.max_io.map(|Rate(rate)| rate),
        work_share: arguments.max_cpu.map(|TimeShare(share)| share),
    };
    if limits != ThrottleLimits::default() {
        context.expect_sleep()?;
    }
    let repository = context.open_throttled(Access::Write, limits)?;
    let kinds = [(JobKind::Optimize, true), (JobKind::Scrub, !arguments.no_scrub)];
    let mut due = Vec::new();
    for (kind, _) in kinds.iter().filter(|(_, is_wanted)| *is_wanted) {
        for (ordinal, share) in shares.iter().enumerate() {
            share.refuse_other_store(&repository)?;
            let memory_bytes = memory_bytes(*kind, &context.memory);
            due.push(DueJob { kind: *kind, share: ordinal, memory_bytes });
        }
    }
    if !arguments.no_collect {
        let memory_bytes = memory_bytes(JobKind::Collect, &context.memory);
        due.push(DueJob { kind: JobKind::Collect, share: 0, memory_bytes });
    }
    let mut optimize = options(context, &repository, false, &LookUpArguments::default());
    optimize.partitions = partitions;
    let fitting = context.memory.limit_bytes / memory_bytes(JobKind::Optimize, &context.memory);
    let at_once = shares.len().min(context.threads).min(fitting).max(1);
    optimize.backup.threads = (context.threads / at_once).max(1);
    let collect = CollectOptions {
        grace: WAIT,
        threads: context.threads,
        scratch: gc::scratch(),
        ..CollectOptions::default()
    };
    let TimeShare(scrub_share) = arguments.scrub_share;
    let (did, chunks_stored_twice) = (Mutex::default(), AtomicU64::default());
    Ok(Jobs {
        context,
        store: context.store_directory()?,
        repository,
        shares,
        due,
        optimize,
        collect,
        scrub_share,
        did,
        chunks_stored_twice,
        files_put_off: AtomicU64::default(),
    })
}

fn blind(context: &Context, error: &Error) {
    context.output.warning(&format!(
        "the kernel does not tell how much others wait, so jobs do not wait for them: {error}"
    ));
}

fn outcome_of(
    context: &Context,
    report: &RunReport,
    (damaged, problems): (u64, u64),
) -> Result<Outcome> {
    if context.is_interrupted() {
        return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
    }
    let has_failed = report.outcomes.iter().any(|outcome| match outcome {
        Became::Failed(error) => error.kind() != ErrorKind::Unavailable,
        _ => false,
    });
    let is_done = report.outcomes.iter().all(|outcome| matches!(outcome, Became::Done));
    Ok(match (has_failed || damaged > 0, is_done && problems == 0) {
        (true, _) => Outcome::Failed,
        (false, true) => Outcome::Complete,
        (false, false) => Outcome::Partial,
    })
}

impl Jobs<'_> {
    fn did(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Did>> {
        self.did.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a job, in its thread.
    fn work(&self, ordinal: usize, job: &Job) -> Result<()> {
        let due = self.due[ordinal];
        let share = &self.shares[due.share];
        let repository = &self.repository;
        let did = match due.kind {
            JobKind::Optimize => {
                let shares_disk = is_on_disk_of(share, self.store.as_deref());
                let options = OptimizeOptions { shares_disk, ..self.optimize.clone() };
                let report = optimize::optimize(repository, share, &options, job)?;
                // What the last collection has left where it is it would leave again.
                if report.backup.summary.chunks_new > 0 {
                    let twice = report.chunks_stored_twice();
                    self.chunks_stored_twice.fetch_add(twice, Ordering::Relaxed);
                }
                self.files_put_off.fetch_add(report.files_put_off, Ordering::Relaxed);
                Did::Optimized(Box::new(report))
            }
            JobKind::Scrub => {
                Did::Scrubbed(scrub::scrub(repository, share, self.scrub_share, job)?)
            }
            JobKind::Collect => self.collect(job)?,
        };
        self.did().insert(ordinal, did);
        Ok(())
    }

    fn collect(&self, job: &Job) -> Result<Did> {
        let twice = self.chunks_stored_twice.load(Ordering::Relaxed);
        let reason = match collection::due(&self.repository)? {
            Some(due) => maintain::reason(due),
            None if collection::is_worth_for(&self.repository, twice)? => {
                format!("parts of shares store about {} twice", counted(twice, "chunk"))
            }
            None => return Ok(Did::NotDue),
        };
        self.context.output.note(&format!("collection: {reason}"))?;
        let (context, access) = (self.context, Access::Write);
        let report = gc::collect_as(context, &self.repository, access, &self.collect, job)?;
        Ok(Did::Collected(Box::new(report)))
    }

    /// What a job is, for people.
    fn name(&self, ordinal: usize) -> String {
        let due = self.due[ordinal];
        let shown = self.shares[due.share].shown.display();
        match due.kind {
            JobKind::Optimize => format!("{shown}: optimising"),
            JobKind::Scrub => format!("{shown}: reading back"),
            JobKind::Collect => "collecting".to_owned(),
        }
    }

    /// Tells what happens; how much damage it tells of.
    fn tell(&self, job: &Job, event: &Event<'_>) -> Result<u64> {
        let output = &self.context.output;
        match event {
            Event::Started(ordinal) => {
                job.progress.set_current(&self.name(*ordinal));
                Ok(0)
            }
            Event::Paused(pressure) => {
                let percent = |share: f64| (share * 100.0).round();
                output.note(&format!(
                    "waiting: others stall {} % of the time for processors, {} % for devices, \
                     {} % for memory",
                    percent(pressure.cpu),
                    percent(pressure.io),
                    percent(pressure.memory)
                ))?;
                let (cpu, io, memory) = (pressure.cpu, pressure.io, pressure.memory);
                output.message("paused", json!({ "cpu": cpu, "io": io, "memory": memory }))?;
                Ok(0)
            }
            Event::Resumed => {
                output.note("going on")?;
                output.message("resumed", json!({}))?;
                Ok(0)
            }
            Event::Blind(error) => {
                blind(self.context, error);
                Ok(0)
            }
            Event::Ended(ordinal, outcome) => self.tell_outcome(*ordinal, outcome),
        }
    }

    fn tell_outcome(&self, ordinal: usize, outcome: &Became) -> Result<u64> {
        let output = &self.context.output;
        match outcome {
            Became::Done => return self.tell_done(ordinal),
            Became::Failed(error) => output.problem(&self.name(ordinal), error),
            Became::Left(reason) => {
                let why = match reason {
                    Reason::Window => "the time is over",
                    Reason::Pressure => "others needed the machine for too long",
                    Reason::Memory => "others needed the memory",
                };
                output.note(&format!("{}: left to the next run, {why}", self.name(ordinal)))?;
            }
            Became::Interrupted => {}
        }
        Ok(0)
    }

    fn tell_done(&self, ordinal: usize) -> Result<u64> {
        let output = &self.context.output;
        let did = self.did().remove(&ordinal);
        let shown = self.shares[self.due[ordinal].share].shown.display().to_string();
        match did {
            Some(Did::Optimized(report)) => {
                output.note(&format!("{shown}:"))?;
                job::tell(self.context, &report, false)?;
                let mut fields = fields(&report);
                fields["directory"] = json!(shown);
                output.message("optimized", fields)?;
                if !self.shares[self.due[ordinal].share].is_mounted() && report.emptied.files > 0 {
                    output.warning(&job::not_mounted(&shown));
                }
                Ok(0)
            }
            Some(Did::Scrubbed(report)) => {
                self.tell_scrubbed(&shown, &report)?;
                Ok(report.damaged)
            }
            Some(Did::Collected(report)) => {
                gc::summarize(self.context, &report, false)?;
                output.message("collection", gc::fields(&report, false))?;
                Ok(0)
            }
            Some(Did::NotDue) | None => {
                output.note("collection: not due")?;
                Ok(0)
            }
        }
    }

    fn tell_scrubbed(&self, shown: &str, report: &ScrubReport) -> Result<()> {
        let output = &self.context.output;
        let read = format!("{} of {}", human(report.bytes), human(report.bytes_total));
        output.note(&match report.damaged {
            0 if report.unreadable == 0 => format!("{shown}: read back {read}, all whole"),
            damaged => format!(
                "{shown}: read back {read}, {damaged} damaged, {} that the device did not give",
                report.unreadable
            ),
        })?;
        for (count, what) in [(report.quarantined, "into"), (report.healed, "out of")] {
            if count > 0 {
                let containers = counted(count, "container");
                output.note(&format!("{shown}: {containers} put {what} quarantine"))?;
            }
        }
        if report.damaged > 0 {
            output.warning(&format!(
                "{} damaged in the store: 'onefold share status {shown}' names them, 'onefold \
                 check' says why",
                counted(report.damaged, "file")
            ));
        }
        output.message(
            "scrubbed",
            json!({
                "directory": shown,
                "files": report.files,
                "bytes": report.bytes,
                "bytes_total": report.bytes_total,
                "files_damaged": report.damaged,
                "files_unreadable": report.unreadable,
                "problems_cleared": report.cleared,
                "containers_quarantined": report.quarantined,
                "containers_healed": report.healed,
            }),
        )
    }

    fn summarize(&self, report: &RunReport, elapsed: Duration) -> Result<()> {
        let output = &self.context.output;
        let of = |wanted: fn(&Became) -> bool| {
            report.outcomes.iter().filter(|outcome| wanted(outcome)).count() as u64
        };
        let done = of(|outcome| matches!(outcome, Became::Done));
        let waited = match report.pauses {
            0 => String::new(),
            _ => format!(", waited {} for others", time::span(report.paused)),
        };
        output.note(&format!(
            "{} done, {} left{waited}; {}",
            counted(done, "job"),
            report.outcomes.len() as u64 - done,
            time::span(elapsed)
        ))?;
        let jobs = report.outcomes.iter().enumerate().map(|(ordinal, outcome)| {
            let due = self.due[ordinal];
            let shown = self.shares[due.share].shown.display().to_string();
            json!({
                "job": kind_name(due.kind),
                "directory": (due.kind != JobKind::Collect).then_some(shown),
                "outcome": outcome_name(outcome),
            })
        });
        let jobs: Vec<_> = jobs.collect();
        tell_ran(self.context, &jobs, report, elapsed)
    }
}

fn tell_ran(
    context: &Context,
    jobs: &[serde_json::Value],
    report: &RunReport,
    elapsed: Duration,
) -> Result<()> {
    context.output.message(
        "ran",
        json!({
            "jobs": jobs,
            "pauses": report.pauses,
            "seconds_paused": report.paused.as_secs_f64(),
            "seconds": elapsed.as_secs_f64(),
        }),
    )
}

fn kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Optimize => "optimize",
        JobKind::Scrub => "scrub",
        JobKind::Collect => "collect",
    }
}

fn outcome_name(outcome: &Became) -> &'static str {
    match outcome {
        Became::Done => "done",
        Became::Failed(_) => "failed",
        Became::Left(Reason::Window) => "left-window",
        Became::Left(Reason::Pressure) => "left-pressure",
        Became::Left(Reason::Memory) => "left-memory",
        Became::Interrupted => "interrupted",
    }
}
