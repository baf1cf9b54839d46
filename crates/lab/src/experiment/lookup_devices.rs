//! Eager against lazy look-up on every device: Table 4, Figures 5 and 6 and inequality (8) of S0,
//! with the SATA SSD that the paper left out.

use super::{Experiment, Setting, seconds_per_million};
use crate::device::Device;
use crate::parallel;
use crate::report::{BarChart, Cell, Claim, Report, Table};
use crate::simulation::{Outcome, Setup};
use crate::workload::{Workload, eager, file_name};
use onefold_chunking::ChunkerKind;
use onefold_policy::cost_model::{CorrectedTerms, ModelTerms};
use onefold_policy::lookup::DeviceCosts;
use onefold_types::Result;

const EXPLANATION: &str = "\
    What lazy look-up merges is above all what the filter lets pass: new chunks that the index \
    does not know. The blunter the filter, the more it gains: as published, with the whole ring \
    looked for after each hit, it takes 0.06 of eager's time on the hard disk with the paper's \
    0.7 bits for each unique chunk, 0.08 with 4 and 0.21 with 8 (paper: 0.50); with post-lookups \
    within reach of the container, as the product has them, 0.06, 0.09 and 0.24. Buckets are \
    here as many as fill; published-lookup has one for each block of the index, which is what \
    the paper's figures need. Earlier reports said that with 8 bits lazy look-up reads more than \
    eager (1.17), and that (8) is wrong on every device. **Both are withdrawn**: a bucket was \
    then a span of pages of the largest run, numbered when a chunk began to wait, and the index \
    grew meanwhile, so that 663 buckets took 4,865 accesses. On real data most chunks are found \
    in the cache and few wait: as published it takes 0.68 of eager's time on the hard disk, \
    within reach 0.89, with a second look, which the paper does not have, 0.72, and from Optane \
    on none of them gains more than 2 %. Accesses of buckets are longer than eager's, which S0's \
    model does not count; the tables of lengths do. The product as shipped has a sharper filter \
    of its own, several runs and 1,728 waiting chunks: on real data on the hard disk it takes \
    0.34 of eager's time; on the images with 8 bits 1.06, where more chunks would have to wait. \
    The paper's seconds do not fit its own parameters: 1 MB of Bloom filter for 11.9 million \
    unique chunks lets half of the new ones pass, which would be millions of accesses and a day \
    on its hard disk, not 167.63 s, which are 14,584; its index must have been in the page cache \
    of its 48 GB. Here every access costs the latency of the device. Inequality (8) leaves out \
    the look-ups that miss, filling the buffer and the cache, the prefetches, and the sign of \
    its denominator: with lazy as published it names the wrong winner on PM with 4 bits, where \
    the two are 1.1 % apart, and in memory with 0.7. That the corrected model is never wrong here \
    proves nothing about devices: it adds up what the virtual clock adds up.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "lookup-devices",
        claim: "Lazy look-up wins on a hard disk if the filter lets new chunks pass, and loses on \
                fast devices if it does not; where inequality (8) names the wrong winner, the \
                corrected model names the right one.",
        items: "S0.15, S0.22, S0.23, S0.24, S0.25, S0.28c, S0.28d, S0.31, S0.32",
        tolerance: "Lazy takes at most 0.7 of eager's time on the HDD with a filter of 4 bits for \
                    each unique chunk (paper: 0.50) and more than eager's on PM with one of 8 \
                    (paper: 1.49); PM takes at most 10 % of the HDD's time; the corrected model \
                    names the winner on every device.",
        explanation: EXPLANATION,
    },
    run,
};

/// Seconds of Table 4: device; eager's filter, cache and disk; lazy's filter, pre-lookup, disk and
/// post-lookup.
const TABLE_4: [(&str, [f64; 3], [f64; 4]); 3] = [
    ("HDD", [8.81, 3.05, 167.63], [10.53, 1.57, 69.36, 8.72]),
    ("Optane SSD", [13.68, 3.57, 1.0], [11.74, 1.72, 0.62, 8.69]),
    ("PM", [11.26, 3.28, 0.998], [11.37, 1.73, 0.993, 9.03]),
];
/// The right side of (8) as the paper measured it (S0.24).
const PAPERS_RIGHT_SIDE: f64 = 554.06;
/// Bits of the filter for each unique chunk: the design point of FAST'08 (S1.13), 1 MB for the 11.9
/// million unique chunks of S0 (S0.19, S0.29), and what lies between.
const SHARP_BITS: f64 = 8.0;
const PAPERS_BITS: f64 = 0.7;
const MIDDLE_BITS: f64 = 4.0;
/// Bytes that devices move in a second, for the table in which an access does not cost the same
/// whatever it reads.
const MOVING: [(&str, u64); 3] =
    [("HDD", 150_000_000), ("remote store", 100_000_000), ("SATA SSD", 500_000_000)];
/// Which of the strategies is eager as S0 has it, which lazy as published, and which lazy as here.
const EAGER: usize = 0;
const PUBLISHED: usize = 2;
const LAZY: usize = 3;
/// What names begin with where only the run for a device means something on it.
const SHIPPED: &str = "as shipped on ";
const AUTO: &str = "auto on ";

/// Lazy time over eager time in Table 4.
fn papers_ratio(device: &Device) -> Option<f64> {
    let (_, eager, lazy) = TABLE_4.iter().find(|(name, ..)| *name == device.name)?;
    Some(lazy.iter().sum::<f64>() / eager.iter().sum::<f64>())
}

struct Compared {
    workload: String,
    names: Vec<String>,
    outcomes: Vec<Outcome>,
}

impl Compared {
    fn seconds(&self, place: usize, device: &Device) -> f64 {
        self.outcomes.get(place).map_or(f64::NAN, |outcome| {
            seconds_per_million(outcome.stages(device).total_ns(), outcome.total().chunks)
        })
    }

    fn over_eager(&self, place: usize, device: &Device) -> f64 {
        self.seconds(place, device) / self.seconds(EAGER, device)
    }

    /// The places of all strategies, the product as it is first.
    fn product_first(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.names.len()).collect();
        places.sort_by_key(|place| !self.names[*place].starts_with(SHIPPED));
        places
    }

    fn lazy_over_eager(&self, device: &Device) -> f64 {
        self.over_eager(LAZY, device)
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut workloads = vec![
        Workload::papers_images(setting.tiny, MIDDLE_BITS)?,
        Workload::papers_images(setting.tiny, SHARP_BITS)?,
        Workload::papers_images(setting.tiny, PAPERS_BITS)?,
    ];
    if let Some(data) = &setting.data {
        workloads.push(Workload::real(data, ChunkerKind::Rabin, 4096)?);
    }
    let mut compared = Vec::new();
    for workload in &workloads {
        compared.push(compare(setting, workload)?);
    }
    for one in &compared {
        winners(setting, report, one);
        model(setting, report, one);
    }
    if let [middle, sharp, papers, ..] = &compared[..] {
        checks(setting, report, [middle, sharp, papers]);
        plot(report, middle)?;
    }
    compared.iter().for_each(|one| stages(setting, report, one));
    compared.iter().for_each(|one| lengths(report, one));
    compared.iter().for_each(|one| counters(report, one));
    Ok(())
}

fn compare(setting: &Setting, workload: &Workload) -> Result<Compared> {
    let (ring, threshold) = (workload.container_chunks, workload.bucket_threshold);
    let [first, second] = eager().map(|(name, strategy)| (name.to_owned(), strategy));
    let strategies = [
        first,
        second,
        ("lazy, whole ring".to_owned(), workload.published(ring, threshold)),
        ("lazy".to_owned(), workload.lazy()),
        ("lazy, second look".to_owned(), workload.second_look(threshold)),
    ];
    let mut setups: Vec<(String, Setup)> =
        strategies.map(|(name, strategy)| (name, workload.setup(strategy))).into();
    // Which device it believes in changes what it does: one run for each.
    for device in setting.devices() {
        let auto = workload.setup(workload.auto(&device));
        setups.push((format!("{AUTO}{}", device.name), auto));
        setups.push((format!("{SHIPPED}{}", device.name), workload.as_shipped(&device)?));
    }
    let run = |(_, setup): &(String, Setup)| setup.run(&*workload.trace);
    let outcomes = parallel::map(&setups, parallel::threads(), run)?;
    let names = setups.into_iter().map(|(name, _)| name).collect();
    Ok(Compared { workload: workload.name.clone(), names, outcomes })
}

/// The strategies whose results mean something on a device, the product as it is first.
fn shown<'a>(one: &'a Compared, device: &Device) -> Vec<(usize, &'a str)> {
    let names = || one.names.iter().map(String::as_str).enumerate();
    let for_device = |beginning: &'static str| {
        names().filter_map(move |(place, name)| {
            let of_device = name.strip_prefix(beginning)?;
            (of_device == device.name).then_some((place, name))
        })
    };
    let any = names().filter(|(_, name)| !name.starts_with(AUTO) && !name.starts_with(SHIPPED));
    for_device(SHIPPED).chain(any).chain(for_device(AUTO)).collect()
}

fn winners(setting: &Setting, report: &mut Report, one: &Compared) {
    let columns = [
        "device",
        "as shipped s",
        "eager s",
        "eager, cache first s",
        "lazy, whole ring s",
        "lazy s",
        "second look s",
        "auto s",
        "lazy, whole ring / eager",
        "lazy / eager",
        "paper's lazy / eager",
        "time / HDD's, eager",
    ];
    let file = format!("winners-{}", file_name(&one.workload));
    let caption = format!("{}: virtual seconds for each million look-ups", one.workload);
    let mut table = Table::new(file, caption, columns);
    let devices = setting.devices();
    let hdd = devices.first().map_or(f64::NAN, |device| one.seconds(EAGER, device));
    for device in &devices {
        let mut row = vec![Cell::text(device.name.clone())];
        let seconds = |(place, _): (usize, &str)| Cell::real(one.seconds(place, device), 4);
        row.extend(shown(one, device).into_iter().map(seconds));
        row.extend([
            Cell::real(one.over_eager(PUBLISHED, device), 3),
            Cell::real(one.lazy_over_eager(device), 3),
            papers_ratio(device).map_or(Cell::Missing, |ratio| Cell::real(ratio, 3)),
            Cell::real(one.seconds(EAGER, device) / hdd, 4),
        ]);
        table.row(row);
    }
    report.table(table);
}

/// (8) with its terms, and the corrected model, against what really costs less.
fn model(setting: &Setting, report: &mut Report, one: &Compared) {
    let (Some(eager), Some(lazy)) = (one.outcomes.get(EAGER), one.outcomes.get(PUBLISHED)) else {
        return;
    };
    let (eager, lazy) = (eager.total().counters, lazy.total().counters);
    let terms = ModelTerms::new(&eager, &lazy);
    let file = format!("terms-{}", file_name(&one.workload));
    let caption = format!("{}: the terms of inequality (8), live, lazy as published", one.workload);
    let mut table = Table::new(file, caption, ["term", "value", "paper's"]);
    let values = [
        ("F_Dup", terms.duplicates, 0),
        ("R_cache, eager", terms.cache_rate_eager(), 4),
        ("R_first, lazy", terms.first_cache_rate_lazy(), 4),
        ("R_second, lazy", terms.second_cache_rate_lazy(), 4),
        ("F_cache^post", terms.post_lookups, 0),
        ("F_disk, eager", terms.device_accesses_eager, 0),
        ("F_disk, lazy", terms.device_accesses_lazy, 0),
    ];
    for (name, value, decimals) in values {
        table.row([Cell::text(name), Cell::real(value, decimals)]);
    }
    let right = terms.right_side().unwrap_or(f64::NAN);
    table.row([
        Cell::text("right side of (8)"),
        Cell::real(right, 2),
        Cell::real(PAPERS_RIGHT_SIDE, 2),
    ]);
    let corrected = [CorrectedTerms::new(&eager), CorrectedTerms::new(&lazy)];
    let [eager_terms, lazy_terms] = &corrected;
    let even = lazy_terms.break_even_ratio(eager_terms, &DeviceCosts::MEMORY).unwrap_or(f64::NAN);
    table.row([Cell::text("break-even ratio, corrected model"), Cell::real(even, 2)]);
    report.table(table);
    predictions(setting, report, one, &terms, &corrected);
}

fn predictions(
    setting: &Setting,
    report: &mut Report,
    one: &Compared,
    terms: &ModelTerms,
    [eager, lazy]: &[CorrectedTerms; 2],
) {
    let columns = [
        "device",
        "V_disk / V_DRAM",
        "(8) as printed",
        "(8) without division",
        "corrected model",
        "really",
        "(8) is",
    ];
    let file = format!("predictions-{}", file_name(&one.workload));
    let caption = format!("{}: who wins, lazy as published or eager", one.workload);
    let mut table = Table::new(file, caption, columns);
    let name = |lazy: bool| Cell::text(if lazy { "lazy" } else { "eager" });
    let mut wrong = Vec::new();
    for device in setting.devices() {
        let costs = device.costs();
        let printed = terms.lazy_wins_as_printed(&costs);
        let corrected = lazy.time_ns(&costs) < eager.time_ns(&costs);
        let really = one.over_eager(PUBLISHED, &device) < 1.0;
        if corrected != really {
            wrong.push(device.name.clone());
        }
        table.row([
            Cell::text(device.name.clone()),
            Cell::real(device.ratio(), 2),
            name(printed),
            name(terms.lazy_wins(&costs)),
            name(corrected),
            name(really),
            Cell::text(if printed == really { "right" } else { "**wrong**" }),
        ]);
    }
    report.table(table);
    report.check(
        format!("{}: the corrected model names the winner on every device", one.workload),
        wrong.is_empty(),
        if wrong.is_empty() { "all right".to_owned() } else { format!("wrong: {wrong:?}") },
    );
}

fn checks(setting: &Setting, report: &mut Report, [middle, sharp, papers]: [&Compared; 3]) {
    let devices = setting.devices();
    let on = |name: &str| devices.iter().find(|device| device.name == name);
    let ratio = |one: &Compared, name| on(name).map_or(f64::NAN, |d| one.over_eager(PUBLISHED, d));
    let hdd = ratio(middle, "HDD");
    report.check(
        format!("lazy look-up wins on the hard disk where the filter has {MIDDLE_BITS} bits"),
        hdd <= 0.7,
        format!("{hdd:.3} of eager's time, paper 0.502"),
    );
    let (sharper, blunter) = (ratio(sharp, "HDD"), ratio(papers, "HDD"));
    report.check(
        "it wins by the more, the more new chunks the filter lets pass",
        blunter < hdd && hdd < sharper,
        format!("{blunter:.3} with {PAPERS_BITS} bits, {sharper:.3} with {SHARP_BITS} bits"),
    );
    let pm = ratio(sharp, "PM");
    report.check(
        format!("lazy look-up loses on persistent memory where it has {SHARP_BITS} bits"),
        pm > 1.0,
        format!("{pm:.3} of eager's time, paper 1.488"),
    );
    let seconds = |name| on(name).map_or(f64::NAN, |device| middle.seconds(EAGER, device));
    let share = seconds("PM") / seconds("HDD");
    report.check(
        "persistent memory takes at most 10 % of the hard disk's time",
        share <= 0.1,
        format!("{:.2} %", share * 100.0),
    );
}

/// Table 4, with the SATA SSD and the strategies that the paper did not have.
fn stages(setting: &Setting, report: &mut Report, one: &Compared) {
    let columns = [
        "device",
        "strategy",
        "filter s",
        "cache s",
        "device s",
        "post-lookup s",
        "upkeep s",
        "total s",
        "paper's total s",
    ];
    let file = format!("stages-{}", file_name(&one.workload));
    let caption = format!(
        "{}: seconds of each stage for a million look-ups (Table 4; the paper's seconds are for \
         its 26 million)",
        one.workload
    );
    let mut table = Table::new(file, caption, columns);
    for device in setting.devices() {
        let paper = TABLE_4.iter().find(|(name, ..)| *name == device.name);
        for (place, name) in shown(one, &device) {
            let Some(outcome) = one.outcomes.get(place) else {
                continue;
            };
            let chunks = outcome.total().chunks;
            let stages = outcome.stages(&device);
            let seconds = |ns| Cell::real(seconds_per_million(ns, chunks), 4);
            let papers = paper.and_then(|(_, eager, lazy)| match place {
                EAGER => Some(eager.iter().sum::<f64>()),
                PUBLISHED | LAZY => Some(lazy.iter().sum::<f64>()),
                _ => None,
            });
            table.row([
                Cell::text(device.name.clone()),
                Cell::text(name),
                seconds(stages.filter_ns),
                seconds(stages.cache_ns),
                seconds(stages.device_ns),
                seconds(stages.post_ns),
                seconds(stages.upkeep_ns),
                seconds(stages.total_ns()),
                papers.map_or(Cell::Missing, |papers| Cell::real(papers, 2)),
            ]);
        }
    }
    report.table(table);
}

/// What the accesses of the index read, and what lazy look-up gains where bytes take time too.
fn lengths(report: &mut Report, one: &Compared) {
    let mut columns = vec![
        "strategy".to_owned(),
        "index accesses".to_owned(),
        "buckets".to_owned(),
        "KiB an access".to_owned(),
    ];
    columns.extend(MOVING.map(|(name, speed)| format!("{name} of {} MB/s", speed / 1_000_000)));
    let file = format!("lengths-{}", file_name(&one.workload));
    let caption = format!(
        "{}: how long accesses of the index are (filters that were loaded included), and the time \
         in parts of eager's where bytes count",
        one.workload
    );
    let mut table = Table::new(file, caption, columns);
    for place in one.product_first() {
        let (Some(name), Some(outcome)) = (one.names.get(place), one.outcomes.get(place)) else {
            continue;
        };
        let total = outcome.total();
        let accesses = total.counters.index_page_reads;
        let length = total.index_bytes as f64 / 1024.0 / accesses.max(1) as f64;
        let mut row = vec![
            Cell::text(name.clone()),
            Cell::count(accesses),
            Cell::count(total.counters.buckets_resolved),
            Cell::real(length, 1),
        ];
        for (device, speed) in MOVING {
            let device = Device::modelled().into_iter().find(|one| one.name == device);
            let ratio = device.map_or(f64::NAN, |device| {
                let device = Device { bytes_per_second: Some(speed), ..device };
                one.seconds(place, &device) / one.seconds(EAGER, &device)
            });
            row.push(Cell::real(ratio, 3));
        }
        table.row(row);
    }
    report.table(table);
}

fn plot(report: &mut Report, one: &Compared) -> Result<()> {
    for device in Device::modelled() {
        let bars = shown(one, &device).into_iter().filter_map(|(place, name)| {
            let outcome = one.outcomes.get(place)?;
            let chunks = outcome.total().chunks;
            let stages = outcome.stages(&device);
            let parts = [
                stages.filter_ns,
                stages.cache_ns,
                stages.device_ns,
                stages.post_ns,
                stages.upkeep_ns,
            ];
            let name = name.split(" on ").next().unwrap_or(name);
            Some((name.to_owned(), parts.map(|ns| seconds_per_million(ns, chunks)).into()))
        });
        let parts = ["filter", "cache", "device", "post-lookup", "upkeep"];
        let chart = BarChart {
            title: format!("Look-up time by stage, {} (Fig. 6)", device.name),
            y_label: "seconds for a million look-ups".into(),
            parts: parts.map(str::to_owned).into(),
            bars: bars.collect(),
        };
        report.bars(&format!("stages-{}", device.name.to_lowercase().replace(' ', "-")), &chart)?;
    }
    Ok(())
}

/// Everything that was counted, so that other questions can be put to the same run.
fn counters(report: &mut Report, one: &Compared) {
    let mut columns = vec!["counter".to_owned()];
    let places = one.product_first();
    columns.extend(places.iter().filter_map(|place| one.names.get(*place).cloned()));
    let file = format!("counters-{}", file_name(&one.workload));
    let mut table = Table::new(file, format!("{}: all counters", one.workload), columns);
    let outcomes = places.iter().filter_map(|place| one.outcomes.get(*place));
    let all: Vec<_> = outcomes.map(|one| one.total().counters.named()).collect();
    let names = all.first().map(|first| first.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (place, name) in names.unwrap_or_default().into_iter().enumerate() {
        let mut row = vec![Cell::text(name)];
        row.extend(
            all.iter().map(|named| {
                named.get(place).map_or(Cell::Missing, |(_, value)| Cell::count(*value))
            }),
        );
        table.row(row);
    }
    report.table(table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s0_23_the_papers_seconds_are_those_of_table_4() {
        let sums = TABLE_4
            .map(|(name, eager, lazy)| (name, eager.iter().sum::<f64>(), lazy.iter().sum::<f64>()));
        let published =
            [("HDD", 179.49, 90.18), ("Optane SSD", 18.25, 22.77), ("PM", 15.54, 23.12)];
        for ((name, eager, lazy), (device, eager_published, lazy_published)) in
            sums.into_iter().zip(published)
        {
            assert_eq!(name, device);
            // The paper adds up seconds that it rounds.
            assert!((eager - eager_published).abs() < 0.011, "{name}: {eager}");
            assert!((lazy - lazy_published).abs() < 0.011, "{name}: {lazy}");
        }
        let ratio = |name: &str| {
            let devices = Device::modelled();
            papers_ratio(devices.iter().find(|device| device.name == name).unwrap())
        };
        assert!((ratio("HDD").unwrap() - 0.502).abs() < 0.001);
        assert_eq!(ratio("SATA SSD"), None);
    }
}
