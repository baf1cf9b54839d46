//! All of S0's pictures on one configuration, as published: the index is one table of blocks, each
//! block is a bucket, and the whole ring is looked for after every hit. Bits, buckets, thresholds
//! and rings are swept, each with several seeds.

use super::sweep::device;
use super::{Experiment, Setting, seconds_per_million};
use crate::device::Device;
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::simulation::{IndexSetup, Outcome, Setup};
use crate::workload::{Workload, eager};
use onefold_policy::lookup::LookupStrategy;
use onefold_types::Result;

const EXPLANATION: &str = "\
    The paper's pictures come out together once the two things are as it has them: a bucket is \
    one block of the index, so that there are as many buckets as blocks, and every hit sends the \
    whole ring through the cache. Lazy look-up then takes 0.47 of eager's time on the hard disk \
    (paper 0.50), 1.05 on Optane (1.25) and 1.20 on PM (1.49), with three seeds within 2 %; PM \
    takes 0.8 % of the hard disk's time; the best ring is 2048 on the hard disk, 512 on Optane \
    and 64 on PM (512, 64, 32). On the hard disk 512 is within 3 % of 2048. What the paper does \
    not say decides the factor: the bits of its filter and how many buckets there are. With an \
    eighth of the buckets lazy takes 0.19 on the hard disk and wins on Optane, with eight times \
    as many 0.84; with 4 bits 0.10, with the paper's own 0.7 bits 0.07, and there it wins on PM \
    too. So its figures cannot come from the 1 MB that it gives its filter (S0.29). From 64 on \
    the threshold changes nothing: buckets of a block do not fill, and it is the buffer that is \
    full. Post-lookups within reach of the container (S0.7), as the product has them, are a \
    fifth of the whole ring's and find less: 0.66 on the hard disk, and 1.14 on PM, where they \
    cost less. The product as shipped lets 1,728 chunks wait, in stream order and with their \
    data, instead of 36,000 fingerprints: on the hard disk it takes 1.08 of what eager takes \
    with this filter, but no chunk waits for more than 35 others on average and 984 until those \
    before it have gone, where as published it is 8,800.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "published-lookup",
        claim: "As published and with a bucket for each block of the index, lazy look-up wins on a \
                hard disk and loses on fast devices, and the best ring is shorter the faster the \
                device.",
        items: "S0.4, S0.5, S0.16, S0.21, S0.22, S0.25, S0.26, S0.27, S0.28, S0.31, S0.33",
        tolerance: "With each seed: lazy takes 0.3 to 0.7 of eager's time on the HDD (paper 0.50) \
                    and more than eager's on Optane and PM (paper 1.25, 1.49); PM takes at most \
                    10 % of the HDD's time, and saves at most 1 % of it beyond Optane; the \
                    best ring on PM is shorter than on the HDD; longer rings take fewer device \
                    accesses and more post-lookups.",
        explanation: EXPLANATION,
    },
    run,
};

/// The configuration around which everything is swept: a filter as in FAST'08 (S1.13), and the
/// threshold of the product.
const BITS: f64 = 8.0;
const THRESHOLD: usize = 16;

const ALL_BITS: [f64; 3] = [0.7, 4.0, 8.0];
const THRESHOLDS: [usize; 6] = [1, 4, 16, 64, 256, 512];
/// S0.21, and 1, which is lazy look-up without post-lookups (S0.16).
pub(super) const RINGS: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 256, 512, 1024, 2048];
const TINY_RINGS: [usize; 5] = [1, 4, 8, 32, 256];
/// Buckets, in eighths of the index's blocks.
const EIGHTHS: [u32; 4] = [1, 4, 8, 64];
const SEEDS: [u64; 3] = [1, 2, 3];
/// The chunks of an image and of a container in the tiny form: smaller ones do not fill buckets.
const TINY_IMAGES: (usize, usize) = (5000, 512);

/// S0.22 to S0.28: device, lazy over eager, the best ring, its time over eager's.
const PAPERS: [(&str, f64, u64, f64); 3] =
    [("HDD", 0.502, 512, 0.383), ("Optane SSD", 1.248, 64, 1.053), ("PM", 1.488, 32, 1.187)];

/// What is run with a seed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Shipped(usize),
    Eager { bits: f64 },
    Published { bits: f64, eighths: u32, threshold: usize, ring: usize },
    WithinReach { ring: usize },
}

/// As published, at the centre of all sweeps.
const CENTRE: Way =
    Way::Published { bits: BITS, eighths: 8, threshold: THRESHOLD, ring: usize::MAX };

/// Everything that was run.
struct Runs {
    ways: Vec<Way>,
    /// For each seed, what came of each.
    outcomes: Vec<Vec<Outcome>>,
}

impl Runs {
    /// Seconds for a million look-ups on a device, with each seed.
    fn seconds(&self, way: Way, device: &Device) -> Vec<f64> {
        let of = |outcome: &Outcome| {
            seconds_per_million(outcome.stages(device).total_ns(), outcome.total().chunks)
        };
        self.each(way, of)
    }

    /// Something of a run, with each seed.
    fn each<T>(&self, way: Way, of: impl Fn(&Outcome) -> T) -> Vec<T> {
        let place = self.ways.iter().position(|one| *one == way);
        let outcomes = self.outcomes.iter();
        outcomes.filter_map(|seed| seed.get(place?)).map(of).collect()
    }

    /// Time in parts of eager's with as many bits.
    fn ratios(&self, way: Way, device: &Device) -> Vec<f64> {
        let bits = match way {
            Way::Published { bits, .. } | Way::Eager { bits } => bits,
            Way::Shipped(_) | Way::WithinReach { .. } => BITS,
        };
        let eager = self.seconds(Way::Eager { bits }, device);
        self.seconds(way, device).iter().zip(eager).map(|(one, eager)| one / eager).collect()
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let size = if setting.tiny { TINY_IMAGES } else { Workload::IMAGES };
    let longest = size.1;
    let is_run = |ring: &usize| *ring < longest && (!setting.tiny || TINY_RINGS.contains(ring));
    let rings: Vec<usize> = RINGS.into_iter().filter(is_run).collect();
    let ways = ways(setting, &rings);
    let runs = Runs { outcomes: run_all(setting, size, &ways)?, ways };
    devices(setting, report, &runs);
    let bits = ALL_BITS.map(|bits| (bits.to_string(), published(bits, 8, THRESHOLD, usize::MAX)));
    sweep(setting, report, &runs, ("bits", "bits for each unique chunk"), &bits);
    let buckets = EIGHTHS.map(|eighths| {
        let name = format!("{}", f64::from(eighths) / 8.0);
        (name, published(BITS, eighths, THRESHOLD, usize::MAX))
    });
    sweep(setting, report, &runs, ("buckets", "buckets for each block of the index"), &buckets);
    let thresholds = THRESHOLDS.map(|one| (one.to_string(), published(BITS, 8, one, usize::MAX)));
    sweep(setting, report, &runs, ("thresholds", "bucket threshold"), &thresholds);
    ring_tables(setting, report, &runs, &rings, longest)?;
    waiting(report, setting, &runs);
    checks(setting, report, &runs, &rings)
}

/// What comes of each way, for each seed.
fn run_all(setting: &Setting, size: (usize, usize), ways: &[Way]) -> Result<Vec<Vec<Outcome>>> {
    let seeds = if setting.tiny { &SEEDS[..1] } else { &SEEDS };
    let mut workloads = Vec::new();
    for seed in seeds {
        for bits in ALL_BITS {
            workloads.push((*seed, bits, Workload::images_of(size, bits, *seed)?));
        }
    }
    let mut tasks = Vec::new();
    for seed in seeds {
        for way in ways {
            let suits = |of: &&(u64, f64, _)| of.0 == *seed && of.1 == bits_of(*way);
            tasks.extend(workloads.iter().find(suits).map(|(.., workload)| (workload, *way)));
        }
    }
    let one = |(workload, way): &(&Workload, Way)| outcome(setting, workload, *way);
    let found = parallel::map(&tasks, parallel::threads(), one)?;
    Ok(found.chunks(ways.len()).map(<[Outcome]>::to_vec).collect())
}

const fn published(bits: f64, eighths: u32, threshold: usize, ring: usize) -> Way {
    Way::Published { bits, eighths, threshold, ring }
}

fn bits_of(way: Way) -> f64 {
    match way {
        Way::Eager { bits } | Way::Published { bits, .. } => bits,
        Way::Shipped(_) | Way::WithinReach { .. } => BITS,
    }
}

fn ways(setting: &Setting, rings: &[usize]) -> Vec<Way> {
    let mut ways: Vec<Way> = (0..setting.devices().len()).map(Way::Shipped).collect();
    let mut add = |way| {
        if !ways.contains(&way) {
            ways.push(way);
        }
    };
    ALL_BITS.iter().for_each(|bits| add(Way::Eager { bits: *bits }));
    ALL_BITS.iter().for_each(|bits| add(published(*bits, 8, THRESHOLD, usize::MAX)));
    EIGHTHS.iter().for_each(|one| add(published(BITS, *one, THRESHOLD, usize::MAX)));
    THRESHOLDS.iter().for_each(|one| add(published(BITS, 8, *one, usize::MAX)));
    rings.iter().for_each(|one| add(published(BITS, 8, THRESHOLD, *one)));
    rings.iter().for_each(|one| add(Way::WithinReach { ring: *one }));
    add(Way::WithinReach { ring: usize::MAX });
    ways
}

fn outcome(setting: &Setting, workload: &Workload, way: Way) -> Result<Outcome> {
    let ring = |ring: usize| ring.min(workload.container_chunks);
    let buckets = |strategy: LookupStrategy, eighths: u32| {
        let setup = workload.setup(strategy);
        let buckets = (workload.blocks() * eighths).div_ceil(8);
        Setup { index: IndexSetup { buckets: Some(buckets), ..setup.index }, ..setup }
    };
    let setup = match way {
        Way::Shipped(place) => {
            let devices = setting.devices();
            let device = devices.get(place).unwrap_or_else(|| unreachable!("it was counted"));
            workload.as_shipped(device)?
        }
        Way::Eager { .. } => workload.setup(eager()[0].1),
        Way::Published { eighths, threshold: wanted, ring: length, .. } => {
            buckets(workload.published(ring(length), wanted), eighths)
        }
        Way::WithinReach { ring: length } => {
            buckets(workload.lazy_with(ring(length), THRESHOLD), 8)
        }
    };
    setup.run(&*workload.trace)
}

/// The middle of these, and the least and the most.
fn spread(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    [at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1))]
}

/// The same in a cell.
fn spread_cell(values: &[f64]) -> Cell {
    let [middle, least, most] = spread(values);
    Cell::text(format!("{middle:.3} ({least:.3} to {most:.3})"))
}

/// Figures 5 and 6 and Table 4 in ratios, with what the product does.
fn devices(setting: &Setting, report: &mut Report, runs: &Runs) {
    let columns = [
        "device",
        "as shipped / eager",
        "whole ring / eager",
        "within reach / eager",
        "paper's lazy / eager",
        "eager s",
        "eager / HDD's",
    ];
    let caption = format!(
        "{BITS} bits, a bucket for each block: middle, least and most of the seeds, {}",
        runs.outcomes.len()
    );
    let mut table = Table::new("devices", caption, columns);
    let eager = Way::Eager { bits: BITS };
    let hdd = setting.devices().first().map(|one| spread(&runs.seconds(eager, one))[0]);
    for (place, device) in setting.devices().iter().enumerate() {
        let paper = PAPERS.iter().find(|(name, ..)| *name == device.name);
        let seconds = spread(&runs.seconds(eager, device))[0];
        table.row([
            Cell::text(device.name.clone()),
            spread_cell(&runs.ratios(Way::Shipped(place), device)),
            spread_cell(&runs.ratios(CENTRE, device)),
            spread_cell(&runs.ratios(Way::WithinReach { ring: usize::MAX }, device)),
            paper.map_or(Cell::Missing, |(_, ratio, ..)| Cell::real(*ratio, 3)),
            Cell::real(seconds, 4),
            Cell::real(seconds / hdd.unwrap_or(f64::NAN), 4),
        ]);
    }
    report.table(table);
}

/// What a sweep does to the time as published, on each device.
fn sweep(
    setting: &Setting,
    report: &mut Report,
    runs: &Runs,
    (file, parameter): (&str, &str),
    values: &[(String, Way)],
) {
    let mut columns = vec![parameter.to_owned()];
    columns.extend(setting.devices().iter().map(|device| format!("{} / eager", device.name)));
    columns.extend(["device accesses".to_owned(), "post-lookups".to_owned()]);
    let caption = format!("As published, by {parameter}: time in parts of eager's");
    let mut table = Table::new(file, caption, columns);
    for (name, way) in values {
        let mut row = vec![Cell::text(name.clone())];
        let ratios = |device: &Device| spread_cell(&runs.ratios(*way, device));
        row.extend(setting.devices().iter().map(ratios));
        row.extend(counts(runs, *way).map(Cell::count));
        table.row(row);
    }
    report.table(table);
}

/// Device accesses and post-lookups, the middle of all seeds.
fn counts(runs: &Runs, way: Way) -> [u64; 2] {
    let middle = |of: fn(&Outcome) -> u64| {
        let mut all = runs.each(way, of);
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    [
        middle(|outcome| outcome.total().counters.device_reads()),
        middle(|outcome| outcome.total().counters.post_lookups),
    ]
}

/// The time with each ring on a device as published, in parts of eager's: the middle of all seeds.
fn by_ring(runs: &Runs, device: &Device, rings: &[usize]) -> Vec<(usize, f64)> {
    let of = |ring: &usize| {
        let way = published(BITS, 8, THRESHOLD, *ring);
        (*ring, spread(&runs.ratios(way, device))[0])
    };
    rings.iter().map(of).collect()
}

/// The best of them; of equal ones the shortest.
fn best(values: &[(usize, f64)]) -> (usize, f64) {
    let best = values.iter().copied();
    best.reduce(|best, one| if one.1 < best.1 { one } else { best }).unwrap_or_default()
}

/// Figures 7 and 8 and Table 5.
fn ring_tables(
    setting: &Setting,
    report: &mut Report,
    runs: &Runs,
    rings: &[usize],
    longest: usize,
) -> Result<()> {
    let columns = [
        "device",
        "best ring",
        "its time / eager",
        "longest / best",
        "paper's best ring",
        "paper's time / eager",
    ];
    let caption = format!("The best ring on each device (Table 5); the longest is {longest}");
    let mut table = Table::new("best-rings", caption, columns);
    let with_longest: Vec<usize> = rings.iter().copied().chain([usize::MAX]).collect();
    let mut series = Vec::new();
    for device in setting.devices() {
        let times = by_ring(runs, &device, &with_longest);
        let (ring, time) = best(&times);
        let paper = PAPERS.iter().find(|(name, ..)| *name == device.name);
        table.row([
            Cell::text(device.name.clone()),
            Cell::count(ring.min(longest) as u64),
            Cell::real(time, 3),
            Cell::real(times.last().map_or(f64::NAN, |(_, last)| last / time), 3),
            paper.map_or(Cell::Missing, |(_, _, ring, _)| Cell::count(*ring)),
            paper.map_or(Cell::Missing, |(_, _, _, time)| Cell::real(*time, 3)),
        ]);
        let points = times.iter().map(|(ring, time)| ((*ring).min(longest) as f64, *time));
        series.push(Series::new(device.name.clone(), points.collect()));
    }
    report.table(table);
    let values: Vec<(String, Way)> = with_longest
        .iter()
        .map(|ring| ((*ring).min(longest).to_string(), published(BITS, 8, THRESHOLD, *ring)))
        .collect();
    sweep(setting, report, runs, ("rings", "ring"), &values);
    let reach: Vec<(String, Way)> = with_longest
        .iter()
        .map(|ring| ((*ring).min(longest).to_string(), Way::WithinReach { ring: *ring }))
        .collect();
    sweep(setting, report, runs, ("rings-within-reach", "ring, within reach"), &reach);
    let title = "Lazy look-up as published, by length of the ring (Fig. 7b, 8a)";
    let chart = LineChart::new(title, "ring length", "lazy time / eager time", series);
    report.lines("rings", &chart.scaled(Scale::Log, Scale::Log))
}

/// S0.33: how long a chunk waits, in chunks of its stream.
fn waiting(report: &mut Report, setting: &Setting, runs: &Runs) {
    let columns = [
        "strategy",
        "chunks between it and its verdict, mean",
        "until it goes on in stream order, mean",
        "waiting at most",
    ];
    let caption = "How long chunks wait (S0.33), in chunks that come meanwhile; as published, none \
                   holds back those behind it";
    let mut table = Table::new("waiting", caption, columns);
    let mut row = |name: String, way: Way| {
        let delay = |which: usize| {
            let delays = runs.each(way, |outcome| outcome.total().delays_chunks()[which]);
            Cell::real(spread(&delays)[0], 1)
        };
        let most = runs.each(way, |outcome| outcome.total().waiting_max);
        let most = Cell::count(most.into_iter().max().unwrap_or_default());
        let is_ordered = matches!(way, Way::Shipped(_) | Way::Eager { .. });
        let in_order = if is_ordered { delay(1) } else { Cell::Missing };
        table.row([Cell::text(name), delay(0), in_order, most]);
    };
    for (place, device) in setting.devices().iter().enumerate() {
        row(format!("as shipped, {}", device.name), Way::Shipped(place));
    }
    row("eager".to_owned(), Way::Eager { bits: BITS });
    for one in THRESHOLDS {
        let way = published(BITS, 8, one, usize::MAX);
        row(format!("whole ring, threshold {one}"), way);
    }
    row("within reach".to_owned(), Way::WithinReach { ring: usize::MAX });
    report.table(table);
}

fn checks(setting: &Setting, report: &mut Report, runs: &Runs, rings: &[usize]) -> Result<()> {
    let hdd = device(setting, "HDD")?;
    let (optane, pm) = (device(setting, "Optane SSD")?, device(setting, "PM")?);
    let show = |[middle, least, most]: [f64; 3]| format!("{middle:.3}, {least:.3} to {most:.3}");
    let on_hdd = spread(&runs.ratios(CENTRE, &hdd));
    report.check(
        "lazy look-up takes 0.3 to 0.7 of eager's time on the hard disk",
        on_hdd[1] >= 0.3 && on_hdd[2] <= 0.7,
        format!("{}; paper 0.502", show(on_hdd)),
    );
    for (one, paper) in [(&optane, 1.248), (&pm, 1.488)] {
        let ratio = spread(&runs.ratios(CENTRE, one));
        report.check(
            format!("it takes more than eager's on {}", one.name),
            ratio[1] > 1.0,
            format!("{}; paper {paper}", show(ratio)),
        );
    }
    let eager = Way::Eager { bits: BITS };
    let on_hdd_s = runs.seconds(eager, &hdd);
    let share = spread(&runs.seconds(eager, &pm))[2] / spread(&on_hdd_s)[1];
    report.check(
        "persistent memory takes at most 10 % of the hard disk's time",
        share <= 0.1,
        format!("{:.2} %", share * 100.0),
    );
    let [of_optane, of_pm] =
        [&optane, &pm].map(|one| spread(&runs.seconds(eager, one))[0] / spread(&on_hdd_s)[0]);
    report.check(
        "Optane is enough: persistent memory saves at most 1 % of the hard disk's time beyond it",
        of_optane <= 0.1 && of_optane - of_pm <= 0.01,
        format!("{:.2} % and {:.2} %", of_optane * 100.0, of_pm * 100.0),
    );
    let all: Vec<usize> = rings.iter().copied().chain([usize::MAX]).collect();
    let bests = [&hdd, &optane, &pm].map(|one| best(&by_ring(runs, one, &all)).0);
    report.check(
        "the best ring is shorter the faster the device, and shortest on PM",
        bests[0] >= bests[1] && bests[1] >= bests[2] && bests[0] > bests[2],
        format!("{bests:?}").replace(&usize::MAX.to_string(), "the longest"),
    );
    let of: Vec<[u64; 2]> =
        all.iter().map(|ring| counts(runs, published(BITS, 8, THRESHOLD, *ring))).collect();
    let falls = of.windows(2).all(|pair| pair[1][0] <= pair[0][0] + pair[0][0] / 100);
    let rises = of.windows(2).all(|pair| pair[1][1] >= pair[0][1]);
    report.check(
        "each longer ring takes fewer device accesses (within 1 %) and more post-lookups",
        falls && rises,
        of.iter().map(|[reads, posts]| format!("{reads}/{posts}")).collect::<Vec<_>>().join(", "),
    );
    Ok(())
}
