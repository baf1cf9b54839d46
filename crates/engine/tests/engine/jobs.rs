//! Background jobs of shares: paused, cancelled, begun again.

use crate::ingest::{open, random_bytes};
use crate::shares::{World, options};
use crate::steps::job;
use onefold_engine::primary::jobs::pressure::{Gauge, Stalled};
use onefold_engine::primary::jobs::{Event, Outcome, Rhythm, RunOptions, RunReport, run};
use onefold_engine::primary::optimize::optimize;
use onefold_engine::primary::scrub::scrub;
use onefold_engine::session::SnapshotList;
use onefold_engine::{Interrupt, Job};
use onefold_policy::primary::job_schedule::{Budgets, DueJob, JobKind, Reason};
use onefold_store::Store;
use onefold_store::layers::{Fault, Faulty};
use onefold_types::{Error, ErrorKind, Result};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const RHYTHM: Rhythm = Rhythm {
    work: Duration::from_millis(30),
    settle: Duration::from_millis(10),
    sample: Duration::from_millis(20),
};
/// Longer than it takes until a job comes to rest, and to be seen working.
const WHILE: Duration = Duration::from_millis(200);

fn due(kind: JobKind, share: usize) -> DueJob {
    DueJob { kind, share, memory_bytes: 1 }
}

fn budgets() -> Budgets {
    Budgets { cores: 2, memory_bytes: 100, pressure_max: Some(0.2) }
}

/// Others stall all the time, or never.
struct Switch<'a> {
    is_on: &'a AtomicBool,
    stalled: Duration,
    asked: Instant,
}

impl<'a> Switch<'a> {
    fn new(is_on: &'a AtomicBool) -> Self {
        Self { is_on, stalled: Duration::ZERO, asked: Instant::now() }
    }
}

impl Gauge for Switch<'_> {
    fn stalled(&mut self) -> Result<Stalled> {
        let now = Instant::now();
        if self.is_on.load(Ordering::Relaxed) {
            self.stalled += now - self.asked;
        }
        self.asked = now;
        Ok(Stalled { io: self.stalled, ..Stalled::default() })
    }
}

/// One unit of work after the other, until somebody says so.
fn toil(units: &AtomicU64, is_enough: &AtomicBool, job: &Job) -> Result<()> {
    while !is_enough.load(Ordering::Relaxed) {
        job.interrupt.check()?;
        units.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[test]
fn paused_jobs_do_nothing_meanwhile_and_go_on_afterwards() {
    let (is_on, is_enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let units = [AtomicU64::new(0), AtomicU64::new(0)];
    let done = || units.each_ref().map(|units| units.load(Ordering::Relaxed));
    let options = RunOptions { budgets: budgets(), rhythm: RHYTHM, is_over: &|| false };
    let mut switch = Switch::new(&is_on);
    let mut told = Vec::new();
    let mut tell = |event: Event<'_>| match event {
        Event::Started(1) => is_on.store(true, Ordering::Relaxed),
        Event::Paused(pressure) => {
            assert!(pressure.io > 0.2 && pressure.cpu == 0.0, "{pressure:?}");
            std::thread::sleep(WHILE);
            let before = done();
            std::thread::sleep(WHILE);
            assert_eq!(before, done());
            told.push("paused");
            is_on.store(false, Ordering::Relaxed);
        }
        Event::Resumed => {
            let before = done();
            std::thread::sleep(WHILE);
            let now = done();
            assert!(now[0] > before[0] && now[1] > before[1], "{before:?} {now:?}");
            told.push("resumed");
            is_enough.store(true, Ordering::Relaxed);
        }
        _ => {}
    };
    let jobs = [due(JobKind::Optimize, 0), due(JobKind::Optimize, 1)];
    let work = |ordinal: usize, job: &Job| toil(&units[ordinal], &is_enough, job);
    let report = run(&jobs, &options, Some(&mut switch), &job(), &work, &mut tell);
    assert_eq!(told, ["paused", "resumed"]);
    assert!(report.outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done)));
    assert!(report.pauses == 1 && report.paused >= 2 * WHILE, "{report:?}");
}

/// Fails after having told once that others stall.
struct GoesBlind(u32);

impl Gauge for GoesBlind {
    fn stalled(&mut self) -> Result<Stalled> {
        self.0 += 1;
        let cpu = Duration::from_secs(self.0.into());
        match self.0 {
            0..=2 => Ok(Stalled { cpu, ..Stalled::default() }),
            _ => Err(Error::new(ErrorKind::NotFound, "gone")),
        }
    }
}

#[test]
fn whoever_goes_blind_in_a_pause_goes_on() {
    let options = RunOptions { budgets: budgets(), rhythm: RHYTHM, is_over: &|| false };
    let mut told = Vec::new();
    let mut tell = |event: Event<'_>| told.push(format!("{event:?}"));
    let jobs = [due(JobKind::Optimize, 0)];
    let report = run(&jobs, &options, Some(&mut GoesBlind(0)), &job(), &|_, _| Ok(()), &mut tell);
    assert!(matches!(report.outcomes[..], [Outcome::Done]));
    let kinds: Vec<&str> = told.iter().map(|told| told.split('(').next().unwrap()).collect();
    assert_eq!(kinds, ["Paused", "Blind", "Resumed", "Started", "Ended"]);
}

fn run_until(
    is_over: &AtomicBool,
    job: &Job,
    work: &(dyn Fn(&Job) -> Result<()> + Sync),
) -> RunReport {
    let options = RunOptions {
        budgets: budgets(),
        rhythm: RHYTHM,
        is_over: &|| is_over.load(Ordering::Relaxed),
    };
    let jobs = [due(JobKind::Optimize, 0), due(JobKind::Scrub, 0)];
    run(&jobs, &options, None, job, &|_, job| work(job), &mut |_| {})
}

#[test]
fn a_failed_job_keeps_no_other_from_running_and_an_interruption_ends_all() {
    let failing = |_: &Job| Err(Error::invalid("it fails"));
    let report = run_until(&AtomicBool::new(false), &job(), &failing);
    assert!(matches!(report.outcomes[..], [Outcome::Failed(_), Outcome::Failed(_)]));
    let interrupted = job();
    let (units, never) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = run_until(&AtomicBool::new(false), &interrupted, &|job| {
        interrupted.interrupt.request();
        toil(&units, &never, job)
    });
    assert!(matches!(report.outcomes[..], [Outcome::Interrupted, Outcome::Interrupted]));
}

#[test]
fn a_window_that_ends_while_a_job_runs_ends_it_in_order_and_the_next_run_goes_on() {
    let Some(world) = World::new() else { return };
    let files: Vec<_> = (0..8).map(|n| (format!("d{n}/f"), random_bytes(n, 50_000))).collect();
    files.iter().for_each(|(name, bytes)| world.write(name, bytes));
    let is_over = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    let (repository, share) = (world.repository(), world.share());
    let optimizing = |job: &Job| {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            // The window ends while it is at work.
            is_over.store(true, Ordering::Relaxed);
            std::thread::sleep(WHILE);
        }
        optimize(&repository, &share, &options(), job).map(drop)
    };
    let report = run_until(&is_over, &job(), &optimizing);
    let [Outcome::Left(Reason::Window), Outcome::Left(Reason::Window)] = report.outcomes[..] else {
        panic!("{report:?}");
    };
    assert_eq!(calls.load(Ordering::Relaxed), 1, "nothing is begun any more");
    is_over.store(false, Ordering::Relaxed);
    let report = run_until(&is_over, &job(), &optimizing);
    assert!(matches!(report.outcomes[..], [Outcome::Done, Outcome::Done]), "{report:?}");
    files.iter().for_each(|(name, bytes)| world.assert_holds(name, bytes));
}

/// Calls of the store: from before the first to behind the last that an optimise makes.
const CANCELLED_AT: [u64; 14] = [0, 3, 6, 10, 14, 18, 22, 26, 31, 36, 42, 50, 70, 1 << 20];

/// Cancels wherever an optimise is in its work.
#[test]
fn a_cancelled_optimise_leaves_every_file_whole_and_the_manifests_right() {
    let Some(world) = World::new() else { return };
    let names = ["a/one", "a/two", "b/three", "four"];
    let bytes = |name: &str, round: u64| random_bytes(round * 100 + name.len() as u64, 30_000);
    for name in names {
        world.write(name, &bytes(name, 0));
    }
    let mut cancelled = 0;
    for call in CANCELLED_AT {
        // What is new in each round.
        let fresh = format!("fresh {call}");
        fs::write(world.path(&fresh), bytes(&fresh, call)).unwrap();
        let interrupt = Interrupt::default();
        let asked = interrupt.clone();
        let script = move |store_call: &onefold_store::layers::Call<'_>| {
            if store_call.number == call {
                asked.request();
            }
            Fault::None
        };
        let inner: Arc<dyn Store> = Arc::clone(&world.store);
        let repository = open(&(Arc::new(Faulty::scripted(inner, script)) as Arc<dyn Store>));
        let one = Job { interrupt, ..job() };
        let result = optimize(&repository, &world.share(), &options(), &one);
        world.collect();
        assert_whole(&world, &fresh, &bytes(&fresh, call));
        names.iter().for_each(|name| assert_whole(&world, name, &bytes(name, 0)));
        match result {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{call}: {error}"),
            Ok(_) => break,
        }
        cancelled += 1;
    }
    assert!(cancelled > 5, "{cancelled}");
    world.optimize();
    world.optimize();
    world.collect();
    names.iter().for_each(|name| world.assert_holds(name, &bytes(name, 0)));
    let list = SnapshotList::load(&world.repository()).unwrap();
    assert_eq!(list.manifests(world.share().id).count(), 1);
}

#[test]
fn an_optimise_that_is_cancelled_among_stubs_leaves_each_file_whole() {
    let Some(world) = World::new() else { return };
    let names: Vec<String> = (0..400).map(|number| format!("f{number:03}")).collect();
    let bytes = |number: usize| random_bytes(number as u64, 2000);
    for (number, name) in names.iter().enumerate() {
        fs::write(world.path(name), bytes(number)).unwrap();
    }
    std::thread::sleep(WHILE);
    let one = job();
    let stubs = || names.iter().filter(|name| is_stub(&world, name)).count();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_stub(&world, "f000") {
                std::thread::sleep(Duration::from_micros(50));
            }
            one.interrupt.request();
        });
        let (repository, share) = (world.repository(), world.share());
        let error = optimize(&repository, &share, &options(), &one).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    });
    assert!((1..400).contains(&stubs()), "{}", stubs());
    let whole = || {
        world.collect();
        names.iter().enumerate().for_each(|(number, name)| {
            assert_whole(&world, name, &bytes(number));
        });
    };
    whole();
    world.optimize();
    assert_eq!(stubs(), 400);
    whole();
}

fn is_stub(world: &World, name: &str) -> bool {
    rustix::fs::getxattr(world.path(name), onefold_engine::stub::ATTRIBUTE, &mut [0u8; 0][..])
        .is_ok()
}

#[track_caller]
fn assert_whole(world: &World, name: &str, bytes: &[u8]) {
    match is_stub(world, name) {
        true => world.assert_holds(name, bytes),
        false => assert!(fs::read(world.path(name)).unwrap() == bytes, "{name}"),
    }
}

#[test]
fn scrubs_read_slice_after_slice_and_begin_anew_at_the_end() {
    let Some(world) = World::new() else { return };
    // More than the smallest slice, in files of several sizes, one of them larger than it.
    let sizes = [("a", 9 << 20), ("b/c", 5 << 20), ("b.d", 3 << 20), ("e", 100)];
    for (number, (name, size)) in sizes.iter().enumerate() {
        world.write(name, &random_bytes(number as u64, *size));
    }
    world.optimize();
    let total: u64 = sizes.iter().map(|(_, size)| *size as u64).sum();
    let slice = || scrub(&world.repository(), &world.share(), 0.01, &job()).unwrap();
    let (mut files, mut bytes) = (0, 0);
    for _ in 0..3 {
        let report = slice();
        assert_eq!((report.bytes_total, report.damaged), (total, 0));
        assert!(report.bytes < (10 << 20), "{report:?}");
        files += report.files;
        bytes += report.bytes;
    }
    assert!(files >= 4 && bytes >= total, "{files} {bytes}");
    let whole = scrub(&world.repository(), &world.share(), 1.0, &job()).unwrap();
    assert!(whole.bytes >= total - (9 << 20), "{whole:?}");
    // One that is interrupted goes on where it was.
    let stopped = job();
    stopped.interrupt.request();
    let before = world.share().scrub_cursor().unwrap();
    let error = scrub(&world.repository(), &world.share(), 1.0, &stopped).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(world.share().scrub_cursor().unwrap(), before);
}

#[test]
fn a_scrub_goes_on_behind_what_the_device_does_not_give() {
    let Some(world) = World::new() else { return };
    for (seed, name) in [(1, "first"), (2, "second"), (3, "third")] {
        world.write(name, &random_bytes(seed, 300_000));
    }
    world.optimize();
    // The first reading of what is in another container than the top of the tree.
    let (tree, has_failed) = (OnceLock::new(), AtomicBool::new(false));
    let faulty = Faulty::scripted(Arc::clone(&world.store), move |call| {
        if !call.name.starts_with("containers/") {
            return Fault::None;
        }
        let is_data = tree.get_or_init(|| call.name.to_owned()) != call.name;
        match is_data && !has_failed.swap(true, Ordering::Relaxed) {
            true => Fault::Before(ErrorKind::Io),
            false => Fault::None,
        }
    });
    let faulty: Arc<dyn Store> = Arc::new(faulty);
    let report = scrub(&open(&faulty), &world.share(), 1.0, &job()).unwrap();
    assert_eq!((report.files, report.unreadable, report.damaged), (2, 1, 0), "{report:?}");
    assert_eq!(report.quarantined, 0, "what is read again is whole");
    let problems = world.share().problems().unwrap();
    assert!(matches!(&problems[..], [one] if one.starts_with("/first: ")), "{problems:?}");
    let report = scrub(&open(&faulty), &world.share(), 1.0, &job()).unwrap();
    assert_eq!((report.files, report.unreadable, report.cleared), (3, 0, 1), "{report:?}");
}
