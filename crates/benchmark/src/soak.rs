//! A soak: thousands of commands on a few stores, many of them at the same time, killed, stopped
//! and resumed at any moment, on devices that run full, and on damaged copies.
//!
//! The harness drives the real program in real processes. It knows what every snapshot must hold
//! (`truth`), what is in doubt while commands that change it run (`store`), and judges each
//! command when it ends (`judge`). From time to time it lets everything come to rest (`quiet`):
//! the list of snapshots then settles what was in doubt, snapshots are restored and compared,
//! collections must leave no garbage, and copies of a store are damaged (`damage`).
//!
//! The seed fixes which commands come and what disturbs them; times are the machine's. Something
//! that must not be is told with the seed and the number of the command; the store and the log are
//! kept.
//!
//! Concurrency: one thread watches all processes. Only slow streams are written by threads.

mod choice;
mod command;
mod damage;
mod device;
mod flood;
mod journal;
mod judge;
mod lease;
mod process;
mod quiet;
mod random;
mod saying;
mod source;
mod store;
mod truth;

use choice::Choice;
use clap::Args;
use command::Plan;
use device::Device;
use journal::Journal;
use process::{Finished, Place, Running, disturbance};
use random::Random;
use source::{Pool, Shape, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io, thread};
use store::{Password, Store};

/// How often processes are looked at.
const TICK: Duration = Duration::from_millis(2);
/// Commands that are stopped at the same time, at most.
const FROZEN: usize = 3;
/// Purposes of sequences of numbers that belong to no command.
const FOR_SOURCES: u64 = 1 << 40;
const FOR_REST: u64 = 2 << 40;
const AT_REST: u64 = 3 << 40;
const FOR_LEASES: u64 = 4 << 40;
/// How many of the sources that a command reads have a file under a lease.
const LEASED_PERCENT: usize = 25;
/// A command waits for it for a part of this time.
const LEASE_SPAN: Duration = Duration::from_millis(500);
/// Lines of the log that are told with something that must not be.
const TOLD: usize = 30;

/// What can be left out.
const PARTS: [&str; 6] = ["damage", "device", "dust", "keys", "signals", "freezing"];

/// The options of `soak`.
#[derive(Args)]
pub struct SoakArgs {
    /// The onefold binary
    #[arg(long, value_name = "FILE")]
    onefold: PathBuf,
    /// Commands to be run [default: 5000, with --tiny 60]
    #[arg(long, value_name = "N")]
    commands: Option<u64>,
    /// What the choices are made from [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Ends after this time, whatever was run
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Where stores, sources and the log are made [default: a new directory among the temporary
    /// ones]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Commands at the same time
    #[arg(long, value_name = "P", default_value_t = 3)]
    parallel: usize,
    /// Runs in seconds: shows that all works, no more
    #[arg(long)]
    tiny: bool,
    /// Ends after so many violations; a store with one is put aside and begun anew
    #[arg(long, value_name = "N", default_value_t = 1)]
    violations: usize,
    /// Leaves out: damage, device, dust, keys, signals, freezing
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    without: Vec<String>,
    /// The longest time a command may take, the time for which it is stopped apart
    #[arg(long, value_name = "S", default_value_t = 120)]
    patience: u64,
}

/// Everything of one run.
struct Soak {
    seed: u64,
    tiny: bool,
    parallel: usize,
    patience: Duration,
    violations_max: usize,
    without: Vec<String>,
    place: Place,
    journal: Journal,
    recent: Vec<String>,
    stores: Vec<Store>,
    sources: Vec<Source>,
    pool: Pool,
    running: Vec<Running>,
    /// Commands that were chosen so far.
    chosen: u64,
    /// Grows with every command, those at rest included.
    number: u64,
    /// Grows whenever a command begins or ends.
    moment: u64,
    /// Commands that have ended.
    ended: u64,
    violations: Vec<String>,
    interrupted: Arc<AtomicBool>,
}

/// Runs a soak. False if something was found.
pub fn run(args: &SoakArgs) -> io::Result<bool> {
    if let Some(part) = args.without.iter().find(|part| !PARTS.contains(&part.as_str())) {
        return Err(io::Error::other(format!("'{part}' is none of {}", PARTS.join(", "))));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or(now.as_secs());
    let work = match &args.work {
        Some(directory) => directory.clone(),
        None => std::env::temp_dir().join(format!("onefold-soak-{seed}-{}", std::process::id())),
    };
    fs::create_dir_all(&work)?;
    let work = work.canonicalize()?;
    if fs::read_dir(&work)?.next().is_some() {
        return Err(io::Error::other(format!("'{}' is not empty", work.display())));
    }
    println!("soak: seed {seed}, in {}", work.display());
    let mut soak = Soak::prepare(args, seed, &work)?;
    let commands = args.commands.unwrap_or(if args.tiny { 60 } else { 5000 });
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let outcome = soak.drive(commands, until);
    soak.running.iter_mut().for_each(Running::kill);
    let statistics = soak.journal.statistics();
    soak.journal.write(&statistics);
    println!("{statistics}");
    outcome?;
    soak.stores.clear();
    for violation in &soak.violations {
        println!("VIOLATION (seed {seed}): {violation}");
    }
    if soak.interrupted.load(Ordering::Relaxed) {
        println!("interrupted: what stands at the end was not looked at");
    }
    match soak.violations.is_empty() {
        true if args.work.is_none() => judge::remove(&work)?,
        true => {}
        false => println!("kept: {}", work.display()),
    }
    Ok(soak.violations.is_empty())
}

impl Soak {
    fn prepare(args: &SoakArgs, seed: u64, work: &Path) -> io::Result<Soak> {
        for name in ["output", "passwords", "restored", "in-place", "sources", "kept", "cache"] {
            fs::create_dir_all(work.join(name))?;
        }
        let onefold = args.onefold.canonicalize()?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupted);
        ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
            .map_err(io::Error::other)?;
        let mut soak = Soak {
            seed,
            tiny: args.tiny,
            parallel: args.parallel.max(1),
            patience: Duration::from_secs(args.patience),
            violations_max: args.violations.max(1),
            without: args.without.clone(),
            place: Place { onefold, work: work.to_path_buf() },
            journal: Journal::create(&work.join("log"))?,
            recent: Vec::new(),
            stores: Vec::new(),
            sources: Vec::new(),
            pool: Pool::default(),
            running: Vec::new(),
            chosen: 0,
            number: 0,
            moment: 0,
            ended: 0,
            violations: Vec::new(),
            interrupted,
        };
        soak.log(&format!("seed {seed}"));
        soak.make_sources()?;
        soak.make_stores()?;
        Ok(soak)
    }

    fn leaves_out(&self, part: &str) -> bool {
        self.without.iter().any(|one| one == part)
    }

    fn log(&mut self, line: &str) {
        self.journal.write(line);
        self.recent.push(line.to_owned());
        let surplus = self.recent.len().saturating_sub(TOLD);
        self.recent.drain(..surplus);
    }

    fn make_sources(&mut self) -> io::Result<()> {
        let mut shapes = vec![
            ("mixed", Shape::Mixed),
            ("tiny", Shape::Tiny),
            ("copies", Shape::Copies),
            ("deep", Shape::Deep),
            ("more", Shape::Mixed),
        ];
        if !self.tiny && !self.leaves_out("dust") {
            shapes.push(("dust", Shape::Dust));
        }
        let parent = self.place.work.join("sources");
        for (index, (name, shape)) in (0..).zip(shapes) {
            let mut random = Random::new(self.seed, FOR_SOURCES + index);
            let source = Source::create(&parent, name, shape, &mut random, &mut self.pool)?;
            self.sources.push(source);
        }
        Ok(())
    }

    fn make_stores(&mut self) -> io::Result<()> {
        let sealed = ["--container-size", "64KiB", "--chunk-size", "2KiB"];
        let open = ["--encryption", "none", "--container-size", "256KiB", "--hash", "sha256"];
        self.make_store("sealed", &sealed, None)?;
        self.make_store("open", &open, None)?;
        if !self.tiny {
            self.make_store("usual", &["--chunker", "fastcdc"], None)?;
        }
        if self.leaves_out("device") {
            return Ok(());
        }
        match Device::mount(&self.place.work, "small", self.seed % 2 == 1) {
            Ok(device) => {
                let options = ["--encryption", "none", "--container-size", "64KiB"];
                self.make_store("small", &options, Some(device))
            }
            Err(error) => {
                let line = format!("SKIPPED: full devices, nothing can be mounted here: {error}");
                eprintln!("{line}");
                self.log(&line);
                self.journal.count("SKIPPED, no device could be mounted", 1);
                Ok(())
            }
        }
    }

    fn make_store(
        &mut self,
        name: &str,
        options: &[&str],
        device: Option<Device>,
    ) -> io::Result<()> {
        let parent = device.as_ref().map_or(&self.place.work, |device| &device.path);
        let path = parent.join(format!("store-{name}"));
        let encrypted = !options.contains(&"none");
        let first = self.place.work.join("passwords/first");
        fs::write(&first, "the first password\n")?;
        let mut store = Store {
            name: name.to_owned(),
            path,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            device,
            encrypted,
            takes_dust: name == "usual",
            passwords: vec![Password { file: first, key: None, sure: true, touched: 0 }],
            snapshots: BTreeMap::new(),
            reaches: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            attempts: BTreeMap::new(),
            in_place: BTreeMap::new(),
            changes: Vec::new(),
            hidden_early: BTreeSet::new(),
            holding: BTreeMap::new(),
            unsure_holds: BTreeSet::new(),
            rotating: BTreeSet::new(),
            rotated: None,
            rotations: 0,
            full: false,
            spoilt: false,
        };
        store.passwords.truncate(if encrypted { 1 } else { 0 });
        self.stores.push(store);
        self.initialize(self.stores.len() - 1)
    }

    fn initialize(&mut self, index: usize) -> io::Result<()> {
        let store = &self.stores[index];
        let mut arguments = store.access(&store.path, 0);
        arguments.push("init".to_owned());
        arguments.extend(store.options.iter().cloned());
        let finished = self.run_now("init", arguments)?;
        match finished.code {
            Some(0) => Ok(()),
            _ => Err(io::Error::other(format!("init: {}", judge::failed(&finished)))),
        }
    }

    /// Runs commands until there were enough.
    fn drive(&mut self, commands: u64, until: Option<Instant>) -> io::Result<()> {
        let mut rest_at = self.next_rest();
        let goes_on = |soak: &Soak| {
            soak.chosen < commands
                && until.is_none_or(|until| Instant::now() < until)
                && soak.violations.len() < soak.violations_max
                && !soak.interrupted.load(Ordering::Relaxed)
        };
        while goes_on(self) {
            if self.chosen >= rest_at {
                self.drain()?;
                self.rest()?;
                rest_at = self.next_rest();
                continue;
            }
            self.poll(false)?;
            let frozen = self.running.iter().filter(|one| one.frozen.is_some()).count();
            match self.running.len() - frozen < self.parallel {
                true => self.start()?,
                false => thread::sleep(TICK),
            }
        }
        self.drain()?;
        let is_over = self.violations.len() >= self.violations_max;
        if !is_over && !self.interrupted.load(Ordering::Relaxed) {
            self.finish()?;
            if !self.tiny && !self.leaves_out("dust") {
                self.flood()?;
            }
        }
        Ok(())
    }

    fn next_rest(&self) -> u64 {
        let mut random = Random::new(self.seed, FOR_REST + self.chosen);
        let span = if self.tiny { 25 } else { 40 };
        self.chosen + (span + random.below(span)) as u64
    }

    /// Starts one more command.
    fn start(&mut self) -> io::Result<()> {
        self.number += 1;
        self.chosen += 1;
        let mut random = Random::new(self.seed, self.chosen);
        let index = random.below(self.stores.len());
        if random.chance(60)
            && let Some(source) = self.sources.get_mut(random.below(7))
            && source.readers == 0
            && (source.shape != Shape::Dust || random.chance(25))
        {
            source.change(&mut random, &mut self.pool)?;
        }
        let mut chance = random.clone();
        let store = &self.stores[index];
        if let Some(device) = &store.device
            && random.chance(6)
        {
            device.shift(&mut random)?;
        }
        let frozen = self.running.iter().filter(|one| one.frozen.is_some()).count();
        let (sources, work) = (&self.sources, self.place.work.as_path());
        let mut choice = Choice { number: self.number, random, store, sources, work };
        let Some(draft) = choice.next(&self.without)? else { return Ok(()) };
        // Anywhere in the time that the command is likely to take, and somewhat beyond.
        let span = self.journal.typical(draft.kind).mul_f64(1.2);
        let mut disturbance = disturbance(&mut chance, span);
        let left_out = match disturbance {
            process::Disturbance::None => false,
            process::Disturbance::Signal { .. } => self.leaves_out("signals"),
            process::Disturbance::Freeze { .. } => frozen >= FROZEN || self.leaves_out("freezing"),
        };
        if left_out {
            disturbance = process::Disturbance::None;
        }
        let plan = choice.complete(draft, index, disturbance);
        self.begin(plan)
    }

    fn begin(&mut self, plan: Plan) -> io::Result<()> {
        self.moment += 1;
        let mut random = Random::new(self.seed, FOR_LEASES + self.number);
        for source in &plan.sources {
            let source = &mut self.sources[*source];
            source.readers += 1;
            if random.chance(LEASED_PERCENT)
                && let Some(file) = source.any_file(&mut random)
            {
                lease::hold(file, random.moment(LEASE_SPAN));
            }
        }
        if let Some(store) = plan.store {
            self.stores[store].begin(self.number, self.moment, &plan.subject);
        }
        self.log(&format!("{} begins {:?}: {}", self.number, plan.disturbance, plan.line()));
        let running = self.place.start(self.number, self.moment, plan)?;
        self.running.push(running);
        Ok(())
    }

    /// Looks at all processes once. `hurry` lets those go on that are stopped.
    fn poll(&mut self, hurry: bool) -> io::Result<()> {
        let mut index = 0;
        while index < self.running.len() {
            let running = &mut self.running[index];
            running.disturb(self.ended, hurry);
            if running.frozen.is_none() && running.elapsed() > self.patience {
                let places = running.whereabouts();
                running.kill();
                let line = format!("{} hangs; its threads: {places}", running.number);
                let store = running.plan.store;
                self.patience += self.patience;
                self.violation(store, &line)?;
                continue;
            }
            match running.poll()? {
                Some(finished) => {
                    let running = self.running.swap_remove(index);
                    self.end(running, finished)?;
                }
                None => index += 1,
            }
        }
        Ok(())
    }

    fn end(&mut self, running: Running, finished: Finished) -> io::Result<()> {
        self.moment += 1;
        self.ended += 1;
        for source in &running.plan.sources {
            self.sources[*source].readers -= 1;
        }
        let (number, kind) = (running.number, running.plan.kind);
        let elapsed = finished.elapsed.as_secs_f64();
        let words = if finished.code == Some(0) { String::new() } else { finished.words() };
        self.log(&format!("{number} ends with {} after {elapsed:.3}: {words}", finished.how()));
        self.journal.ended(kind, &finished.how());
        if !finished.disturbed {
            self.journal.took(kind, finished.elapsed);
        }
        let _absent = fs::remove_file(self.place.work.join(format!("output/{number}.in")));
        let Some(index) = running.plan.store else { return Ok(()) };
        let judgement = self.stores[index].end(&running, &finished, self.moment)?;
        for (what, count) in judgement.counts {
            self.journal.count(what, count);
        }
        for line in finished.errors.lines().filter(|line| line.contains("\"warning\"")) {
            if !line.contains("in memory") {
                self.journal.count("warnings", 1);
                self.journal.write(&format!("{number} warns: {line}"));
            }
        }
        for complaint in judgement.complaints {
            let line = format!("{number} ({}): {complaint}", running.plan.line());
            if self.stores[index].spoilt {
                self.journal.write(&format!("follows: {line}"));
                continue;
            }
            self.violation(Some(index), &line)?;
        }
        Ok(())
    }

    /// Lets everything end; nothing stays stopped.
    fn drain(&mut self) -> io::Result<()> {
        while !self.running.is_empty() {
            self.poll(true)?;
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Runs a command that nothing disturbs, and waits for it.
    fn run_now(&mut self, kind: &'static str, arguments: Vec<String>) -> io::Result<Finished> {
        self.number += 1;
        self.moment += 1;
        let plan = Plan::plain(kind, arguments);
        self.log(&format!("{} begins: {}", self.number, plan.line()));
        let mut running = self.place.start(self.number, self.moment, plan)?;
        let finished = loop {
            if let Some(finished) = running.poll()? {
                break finished;
            }
            if running.elapsed() > self.patience && running.signals.is_empty() {
                let places = running.whereabouts();
                running.kill();
                self.violation(None, &format!("{} hangs: {places}", self.number))?;
            }
            thread::sleep(TICK);
        };
        let elapsed = finished.elapsed.as_secs_f64();
        let words = if finished.code == Some(0) { String::new() } else { finished.words() };
        self.log(&format!(
            "{} ends with {} after {elapsed:.3}: {words}",
            self.number,
            finished.how()
        ));
        self.journal.ended(kind, &finished.how());
        self.journal.took(kind, finished.elapsed);
        for complaint in judge::general(&running, &finished) {
            self.violation(None, &format!("{}: {complaint}", self.number))?;
        }
        Ok(finished)
    }

    /// Something is not as it must be: tells it, keeps the store, and begins a new one in its
    /// place.
    fn violation(&mut self, store: Option<usize>, line: &str) -> io::Result<()> {
        self.journal.write(&format!("VIOLATION: {line}"));
        eprintln!("VIOLATION (seed {}): {line}", self.seed);
        for line in &self.recent {
            eprintln!("    {line}");
        }
        self.violations.push(line.to_owned());
        let Some(index) = store else { return Ok(()) };
        // A copy may be half of a change that other commands are making; it shows the damage all
        // the same.
        let kept = self.place.work.join(format!("kept/{}", self.violations.len()));
        if let Err(error) = device::copy(&self.stores[index].path, &kept) {
            self.journal.write(&format!("the copy is not whole: {error}"));
        }
        self.stores[index].spoilt = true;
        Ok(())
    }
}
