//! What an object store is asked for a backup, a restore, a check and a collection: requests, bytes
//! and money.
//!
//! Whole operations of the product on a store in memory are counted, for versions of two lengths
//! and containers of several. What grows with the length is a slope, what does not a constant; a
//! third length, longer than both, says whether that line tells the truth. From the lines follow
//! requests and prices of a terabyte, a petabyte and an exabyte. What grows slower than lengths
//! (merges of index runs, longer listings) is in the constant of the lengths that were counted: of
//! the largest stores the figures are a floor.

use super::deltas::container_bytes;
use super::{Experiment, Setting};
use crate::collection::restores::{CLASSES, Output, restore};
use crate::report::{Cell, Claim, Report, Table};
use crate::source::edits::{Change, Edits};
use crate::source::versions::Versions;
use onefold_crypto::Suite;
use onefold_engine::check::{CheckOptions, ReadData, check};
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::environment::Environment;
use onefold_engine::ingest::{self, BackupOptions};
use onefold_engine::job::Job;
use onefold_engine::memory::MemoryPlan;
use onefold_engine::repository::{InitOptions, Repository};
use onefold_engine::retention;
use onefold_policy::collection::select::SpaceGoal;
use onefold_store::layers::{Counting, Counts, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::{Error, Result, limits};
use std::sync::Arc;
use std::time::Duration;

const EXPLANATION: &str = "\
    Puts follow from bytes and the length of containers alone. A later version asks for the frames \
    of bases, once for each of its chunks that is like a stored one, which is most of what it \
    asks: longer containers do not make that less. Restores and \
    collections are no lines: what a version needs, and what a collection copies, lies in more \
    pieces the more was stored between them, so that the longest length asks two to four times as \
    much as the shorter ones tell; the table takes the first and the last. What is asked \
    for an exabyte is told by stores of half a gigabyte: a floor.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "requests",
        claim: "What a store in a bucket costs in requests is known beforehand: so many for each \
                container, and a few for each command; the longer containers are, the fewer.",
        items: "issue 17; beyond the papers",
        tolerance: "A line through the requests of two lengths tells those of a third, twice as \
                    long as the longer one, within a fifth or ten requests: of backups that find \
                    something new, and of checks. With containers four times as long a first \
                    backup puts at most half as often for each byte. A backup that finds nothing \
                    new asks at most a quarter more often for four times the length.",
        explanation: EXPLANATION,
    },
    run,
};

/// Prices in dollars, as Amazon lists them for S3 Standard in us-east-1 (2025,
/// aws.amazon.com/s3/pricing): a thousand puts, posts and lists; a thousand gets; a gigabyte for a
/// month.
const PUT_THOUSAND: f64 = 0.005;
const GET_THOUSAND: f64 = 0.0004;
const MONTH_GB: f64 = 0.023;
/// Names on a page of a listing.
const PAGE_NAMES: u64 = 1000;
/// Lengths of a file.
const FILE_BYTES: usize = 400_000;
const THREADS: usize = 2;
const TERABYTE: f64 = 1e12;

const RESTORE: &str = "restore";
const COLLECTION: &str = "collection";
const NOTHING: &str = "nothing new";
/// Those whose requests do not grow as lengths do: some hardly, some faster.
const BENT: [&str; 3] = [NOTHING, RESTORE, COLLECTION];

/// What is done, in this order.
const OPERATIONS: [&str; 7] = [
    "first backup",
    "a later version",
    NOTHING,
    RESTORE,
    "check",
    "check with all data",
    COLLECTION,
];

/// What a store was asked.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    puts: u64,
    gets: u64,
    lists: u64,
    deletes: u64,
    bytes: u64,
}

impl Asked {
    fn of(counts: &Counts) -> Self {
        let mut asked = Self::default();
        for (_, operation, count) in counts.iter() {
            match operation {
                Operation::Put | Operation::Decide => asked.puts += count.calls,
                Operation::Delete => asked.deletes += count.calls,
                Operation::Settle => {}
                listing if listing.is_listing() => {
                    asked.lists += count.calls + count.names / PAGE_NAMES;
                }
                _ => asked.gets += count.calls,
            }
            asked.bytes += count.bytes;
        }
        asked
    }

    fn all(self) -> u64 {
        self.puts + self.gets + self.lists + self.deletes
    }
}

/// What operations on versions of one length ask.
struct Counted {
    /// Plain bytes of a version.
    bytes: u64,
    stored_bytes: u64,
    asked: [Asked; OPERATIONS.len()],
}

/// How often an operation asks: `each` for a command, and for each byte of a version.
#[derive(Clone, Copy)]
struct Line {
    constant: f64,
    per_byte: f64,
}

impl Line {
    fn through(one: &Counted, other: &Counted, of: impl Fn(&Counted) -> u64) -> Self {
        let (from, to) = (of(one) as f64, of(other) as f64);
        let per_byte = (to - from) / (other.bytes as f64 - one.bytes as f64);
        Self { constant: from - per_byte * one.bytes as f64, per_byte }
    }

    fn at(self, bytes: f64) -> f64 {
        self.constant + self.per_byte * bytes
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let (files, containers): (usize, &[usize]) =
        if setting.tiny { (40, &[1, 4]) } else { (300, &[4, 16, 64]) };
    let mut puts = Vec::new();
    for container_mib in containers {
        let counted = [1, 2, 4].map(|times| count(files * times, *container_mib));
        let [one, two, four] = counted;
        let (one, two, four) = (one?, two?, four?);
        let mut worst = (0.0, String::new());
        for (at, name) in OPERATIONS.iter().enumerate().filter(|(_, name)| !BENT.contains(name)) {
            let asked = |counted: &Counted| counted.asked[at].all();
            let told = Line::through(&one, &two, asked).at(four.bytes as f64);
            let away = (told - asked(&four) as f64).abs();
            let share = if away <= 10.0 { 0.0 } else { away / asked(&four) as f64 };
            if share >= worst.0 {
                worst = (share, format!("{name}: {told:.0} for {}", asked(&four)));
            }
        }
        let what = format!("containers of {container_mib} MiB: a line tells what is asked");
        report.check(what, worst.0 <= 0.2, worst.1);
        let nothing = [&one, &two, &four].map(|counted| counted.asked[2].all());
        let [least, most] =
            [nothing.iter().min(), nothing.iter().max()].map(|it| it.copied().unwrap_or_default());
        report.check(
            format!("containers of {container_mib} MiB: nothing new asks nearly the same"),
            most as f64 <= 1.25 * least as f64,
            format!("{least} to {most} requests"),
        );
        puts.push(Line::through(&one, &four, |it| it.asked[0].puts).per_byte);
        report.table(table(*container_mib, &one, &four));
    }
    if let [first, second, ..] = puts[..] {
        report.check(
            "longer containers are put less often",
            second * 2.0 <= first,
            format!("{:.3} times for each byte", second / first),
        );
    }
    Ok(())
}

/// Counts all operations on two versions of so many files.
fn count(files: usize, container_mib: usize) -> Result<Counted> {
    let objects = MemoryStore::new();
    let device = Arc::new(Counting::new(objects.clone()));
    let environment = Environment::system();
    let memory = MemoryPlan::new(4 * limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let container_size_bytes = container_mib * limits::MIB;
    let standard = InitOptions::standard()?;
    let options = InitOptions { suite: Suite::None, container_size_bytes, ..standard };
    let store: Arc<dyn Store> = Arc::clone(&device) as _;
    drop(Repository::create(store, &options, None, environment.clone(), memory)?);
    let open = || -> Result<Arc<Repository>> {
        device.take();
        let store: Arc<dyn Store> = Arc::clone(&device) as _;
        let password = || Ok(Vec::new().into());
        Ok(Arc::new(Repository::open(store, password, environment.clone(), memory)?))
    };
    let job = || Job::unattended().0;
    let (mut asked, mut snapshots) = (Vec::new(), Vec::new());
    let edits = Edits { change: Change::Edited, files, file_bytes: FILE_BYTES, versions: 2 };
    let mut bytes = 0;
    // A directory that is backed up once more is one in which nothing is new.
    Versions::Edited(edits).each(&mut |source| {
        let times = if snapshots.is_empty() { 1 } else { 2 };
        let onefold_engine::ingest::Source::Paths { paths, .. } = &source else { return Ok(()) };
        for _ in 0..times {
            let source = ingest::Source::Paths { paths: paths.clone(), selection: Box::default() };
            let repository = open()?;
            let options = BackupOptions { threads: THREADS, ..BackupOptions::default() };
            let done = ingest::backup(&repository, source, &options, &job())?;
            asked.push(Asked::of(&device.take()));
            snapshots.extend(done.snapshot);
            bytes = (files * FILE_BYTES) as u64;
        }
        Ok(())
    })?;
    let newest = snapshots.last().copied();
    let newest = newest.ok_or_else(|| Error::invalid("nothing was backed up"))?;
    let reach = CLASSES[0].reach();
    let restored = restore(&objects, &environment, memory, newest, Output::Files, None, reach)?;
    let (gets, read) = (restored.reads, restored.bytes_read);
    asked.push(Asked { gets, bytes: read, ..Asked::default() });
    for read_data in [ReadData::None, ReadData::All] {
        let options = CheckOptions { read_data, threads: THREADS, record_quarantine: false };
        check(&open()?, options, &job())?;
        asked.push(Asked::of(&device.take()));
    }
    let stored_bytes = container_bytes(&objects)?;
    let repository = open()?;
    retention::forget_final(&repository, snapshots.get(..1).unwrap_or_default(), "lab")?;
    let repository = open()?;
    let options = CollectOptions {
        grace: Duration::ZERO,
        goal: SpaceGoal::Everything,
        ..CollectOptions::default()
    };
    collect(&repository, &options, &job())?;
    asked.push(Asked::of(&device.take()));
    let mut all = [Asked::default(); OPERATIONS.len()];
    all.iter_mut().zip(asked).for_each(|(into, asked)| *into = asked);
    Ok(Counted { bytes, stored_bytes, asked: all })
}

/// Requests and prices of a terabyte with containers of a length.
fn table(container_mib: usize, one: &Counted, four: &Counted) -> Table {
    let columns = [
        "",
        "requests of a command",
        "puts for 1 TB",
        "gets for 1 TB",
        "lists for 1 TB",
        "deletes for 1 TB",
        "bytes moved for each",
        "$ for 1 TB",
        "$ for 1 PB",
        "$ for 1 EB",
    ];
    let share = four.stored_bytes as f64 / four.bytes as f64;
    let month = MONTH_GB * share * TERABYTE / 1e9;
    let caption = format!(
        "containers of {container_mib} MiB: a terabyte as read, of which {:.2} are stored for two \
         versions ({month:.2} $ a month)",
        share
    );
    let mut table = Table::new(format!("containers-{container_mib}"), caption, columns);
    for (at, name) in OPERATIONS.iter().enumerate() {
        let line = |of: fn(&Asked) -> u64| Line::through(one, four, |it| of(&it.asked[at]));
        let (puts, gets) = (line(|it| it.puts), line(|it| it.gets));
        let (lists, deletes) = (line(|it| it.lists), line(|it| it.deletes));
        let bytes = line(|it| it.bytes);
        let constant = [puts, gets, lists, deletes].map(|line| line.constant.max(0.0));
        let dollars = |bytes: f64| {
            let dear = puts.at(bytes) + lists.at(bytes);
            Cell::real((dear * PUT_THOUSAND + gets.at(bytes) * GET_THOUSAND) / 1e3, 2)
        };
        let requests = |line: Line| Cell::count(line.at(TERABYTE).max(0.0) as u64);
        table.row([
            Cell::text(*name),
            Cell::count(constant.iter().sum::<f64>() as u64),
            requests(puts),
            requests(gets),
            requests(lists),
            requests(deletes),
            Cell::real(bytes.per_byte, 3),
            dollars(TERABYTE),
            dollars(1e3 * TERABYTE),
            dollars(1e6 * TERABYTE),
        ]);
    }
    table
}
