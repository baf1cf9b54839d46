//! The size of the Bloom filter: S0 gives it 1 MB for 26 million chunks, less than one bit for each
//! unique one (S0.29). What would more have changed?

use super::sweep::device;
use super::{Experiment, Setting, seconds_per_million};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::simulation::index::Summary;
use crate::simulation::{IndexSetup, Outcome, Setup};
use crate::trace::Summary as Totals;
use crate::workload::{Workload, eager};
use onefold_policy::lookup::LookupStrategy;
use onefold_types::Result;

const EXPLANATION: &str = "\
    The 1 MB that S0 gives its Bloom filter is 0.7 bits for each unique chunk: about 60 % of the \
    new chunks pass (S0.29). Every one of them is an access for eager look-up and a sixteenth of \
    one for lazy, which is why lazy look-up wins by a factor of 16 there. With 8 bits the filter \
    has done most of the work: 4,506 accesses become 1,057; with 16 bits 1,108 become 814; \
    with the whole ring looked for after each hit 900 and 695. An \
    earlier report said that from 8 bits on lazy look-up reads more than eager; that is \
    **withdrawn** (see lookup-devices). Bits are cheaper than batches all the same: eager with 16 \
    bits reads as much as lazy with 8, and nothing waits.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "filter-size-sweep",
        claim: "Below about four bits for each unique chunk the filter lets most new chunks pass, \
                and each of them is an access of the device.",
        items: "S0.29, S1.12, S1.13",
        tolerance: "False positives follow (1 - e^(-kn/m))^k averaged over the growing store, \
                    within a tenth of all new chunks; at 8 bits they are below 3 %; device \
                    accesses fall with every doubling.",
        explanation: EXPLANATION,
    },
    run,
};

const BITS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
const HASHES: u32 = 4;
/// The devices of the table.
const SHOWN: [&str; 2] = ["HDD", "SATA SSD"];

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut setups = Vec::new();
    let workload = Workload::papers_images(setting.tiny, 8.0)?;
    let unique = Totals::of(&*workload.trace)?.total().chunks_new;
    let [(_, eager), _] = eager();
    let published = workload.published(workload.container_chunks, workload.bucket_threshold);
    for strategy in [eager, workload.lazy(), published] {
        setups.extend(BITS.map(|bits| with_filter(&workload, strategy, bits)));
    }
    for name in SHOWN {
        setups.push(workload.as_shipped(&device(setting, name)?)?);
    }
    let run = |setup: &Setup| setup.run(&*workload.trace);
    let outcomes = parallel::map(&setups, parallel::threads(), run)?;
    let (eager, others) = outcomes.split_at(BITS.len());
    let (lazy, others) = others.split_at(BITS.len());
    let (published, shipped) = others.split_at(BITS.len());
    tables(setting, report, unique, [eager, lazy, published], shipped)?;
    checks(report, unique, eager);
    let devices = ["HDD", "SATA SSD", "Optane SSD"];
    let mut series = Vec::new();
    for name in devices {
        let device = device(setting, name)?;
        for (what, outcomes) in [("eager", eager), ("lazy", lazy)] {
            let time = |outcome: &Outcome| {
                seconds_per_million(outcome.stages(&device).total_ns(), outcome.total().chunks)
            };
            let points = BITS.into_iter().zip(outcomes.iter().map(time)).collect();
            series.push(Series::new(format!("{name}, {what}"), points));
        }
    }
    let title = "Look-up time by size of the Bloom filter";
    let chart = LineChart::new(title, "bits for each unique chunk", "s / million look-ups", series);
    report.lines("time", &chart.scaled(Scale::Log, Scale::Log))
}

/// The filter has its final size from the start, as in the paper.
fn with_filter(workload: &Workload, strategy: LookupStrategy, bits_per_key: f64) -> Setup {
    let setup = workload.setup(strategy);
    let summary = setup.index.summary.map(|summary| Summary { bits_per_key, ..summary });
    Setup { index: IndexSetup { summary, ..setup.index }, ..setup }
}

/// The share of new chunks that a filter lets pass, averaged while it fills from none to all keys.
fn expected_share(bits_per_key: f64) -> f64 {
    const STEPS: u32 = 1000;
    let hashes = f64::from(HASHES);
    let sum: f64 = (0..STEPS)
        .map(|step| (f64::from(step) + 0.5) / f64::from(STEPS))
        .map(|filled| (1.0 - (-hashes * filled / bits_per_key).exp()).powf(hashes))
        .sum();
    sum / f64::from(STEPS)
}

fn tables(
    setting: &Setting,
    report: &mut Report,
    unique: u64,
    [eager, lazy, published]: [&[Outcome]; 3],
    shipped: &[Outcome],
) -> Result<()> {
    let columns = [
        "bits for each unique chunk",
        "new chunks let pass, %",
        "by the formula, %",
        "eager: device accesses",
        "lazy: device accesses",
        "whole ring: device accesses",
        "eager on HDD, s",
        "lazy on HDD, s",
        "whole ring on HDD, s",
        "eager on SATA SSD, s",
        "lazy on SATA SSD, s",
        "whole ring on SATA SSD, s",
    ];
    let caption = "Times in seconds for each million look-ups; as shipped, on the hard disk";
    let mut table = Table::new("filters", caption, columns);
    let devices = [device(setting, SHOWN[0])?, device(setting, SHOWN[1])?];
    let seconds = |outcome: &Outcome, device| {
        let total = outcome.total();
        Cell::real(seconds_per_million(outcome.stages(device).total_ns(), total.chunks), 3)
    };
    if let [on_hdd, on_sata] = shipped {
        let counters = on_hdd.total().counters;
        let passed = counters.summary_false_positives as f64 / unique.max(1) as f64;
        let mut row = vec![Cell::text("as shipped"), Cell::percent(passed, 2)];
        row.extend([Cell::Missing, Cell::Missing, Cell::count(counters.device_reads())]);
        row.extend([Cell::Missing, Cell::Missing, seconds(on_hdd, &devices[0]), Cell::Missing]);
        row.extend([Cell::Missing, seconds(on_sata, &devices[1]), Cell::Missing]);
        table.row(row);
    }
    let all = BITS.iter().zip(eager).zip(lazy).zip(published);
    for (((bits, eager), lazy), published) in all {
        let passed = eager.total().counters.summary_false_positives;
        let mut row = vec![
            Cell::real(*bits, 2),
            Cell::percent(passed as f64 / unique.max(1) as f64, 2),
            Cell::percent(expected_share(*bits), 2),
        ];
        let ways = [eager, lazy, published];
        row.extend(ways.map(|one| Cell::count(one.total().counters.device_reads())));
        row.extend(devices.iter().flat_map(|device| ways.map(|one| seconds(one, device))));
        table.row(row);
    }
    report.table(table);
    Ok(())
}

fn checks(report: &mut Report, unique: u64, eager: &[Outcome]) {
    let passed: Vec<f64> = eager
        .iter()
        .map(|one| one.total().counters.summary_false_positives as f64 / unique.max(1) as f64)
        .collect();
    let worst = BITS.iter().zip(&passed).map(|(bits, share)| (share - expected_share(*bits)).abs());
    let worst = worst.fold(0.0, f64::max);
    report.check(
        "false positives follow the formula",
        worst < 0.1,
        format!("off by {:.1} points at most", worst * 100.0),
    );
    let at_eight = BITS.iter().zip(&passed).find(|(bits, _)| **bits == 8.0);
    let at_eight = at_eight.map_or(1.0, |(_, share)| *share);
    report.check(
        "at 8 bits less than 3 % of new chunks pass",
        at_eight < 0.03,
        format!("{:.2} %", at_eight * 100.0),
    );
    let reads: Vec<u64> = eager.iter().map(|one| one.total().counters.device_reads()).collect();
    report.check(
        "device accesses fall with every doubling",
        reads.is_sorted_by(|a, b| a >= b) && reads.first() > reads.last(),
        reads.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    );
}
