//! Marking as total compression grows: Fig. 3 and Fig. 7a of FAST'17.

use super::{Experiment, Setting};
use crate::collection::bench::{Bench, Measured};
use crate::collection::load::{Ageing, Load};
use crate::collection::tables::{WAYS, Way, mark_all, marks_rows, marks_table, of, ratio};
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::source::generator::{Parameters, Preset};
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    The walk of LGC reads each snapshot's nodes again; the memory limit is 48 MiB, of which 2 \
    MiB are for frames of nodes, so that what one snapshot read is likely gone when the next one \
    needs it. PGC+ reads every node once. At the canonical compression LGC is slower already, \
    which it is not in the paper, and at the top it is 80 times as far behind as there: likely \
    because a PGC+ mark of billions of fingerprints is ruled by these, while here nodes rule. \
    Records are the price of ours: each snapshot, a fastcopy too, is a record of its own that \
    every collection reads, 10 ms each on this disk, whatever the algorithm; the paper's \
    namespace is a tree that is read in long requests. Both ratios are given. To make fastcopies \
    takes time in the square of their number, since each reads all records there are.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "gc-compression",
        claim: "Enumerating snapshot by snapshot takes as much longer as more is shared; level by \
                level it takes the same.",
        items: "S3.33, S3.34, S3.36, S3.38, S3.42",
        tolerance: "At 64 times the canonical compression LGC takes at least 47 times as long as \
                    PGC+ in one round and 99 times in two, \
                    in CPU and device time without records (not asked of the tiny form, whose \
                    nodes all fit into the cache); PGC+ walks the same nodes and stays \
                    within 10 % in device time without records and in container reads.",
        explanation: EXPLANATION,
    },
    run,
};

/// Fig. 7a: doubling from 36.6 to 2340.
const PAPER_TOP: [(&str, f64); 2] = [("LGC-1", 47.0), ("LGC-2", 99.0)];

struct Step {
    compression: f64,
    marks: Vec<Measured>,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let doublings = if setting.tiny { 3 } else { 6 };
    let (bench, mut load) = canonical(setting.tiny)?;
    let mut steps = Vec::new();
    for doubling in 0..=doublings {
        if doubling > 0 {
            load.fastcopy_all(&bench)?;
        }
        let marks = mark_all(&bench)?;
        let stored = marks.first().map_or(1, |mark| mark.report.stored_bytes).max(1);
        steps.push(Step { compression: load.logical_bytes() as f64 / stored as f64, marks });
    }
    checks(report, &steps, setting.tiny);
    let mut table = marks_table("marks", "Every way of marking", "total compression");
    for step in &steps {
        marks_rows(&mut table, &Cell::real(step.compression, 1), &step.marks);
    }
    report.table(ratios(&steps));
    plots(report, &steps)?;
    report.table(table);
    Ok(())
}

/// The canonical set: lineages of many generations, aged by collections; at least the paper's 36.6
/// times, for which less may change from one generation to the next than in the preset.
pub(super) fn canonical(tiny: bool) -> Result<(Bench, Load)> {
    let chunks = if tiny { 1_500 } else { 8_000 };
    let parameters = Parameters {
        streams: 2,
        generations: 42,
        generations_min: 42,
        file_chunks: 6.0,
        changed_share: 0.02,
        self_reference: 0.0,
        chunk_min_bytes: 512,
        chunk_max_bytes: 1536,
        compression_ratio: 6.0,
        deletion: None,
        ..Parameters::preset(Preset::Scattered, chunks)
    };
    let generations = parameters.generations;
    let bench = Bench::new(limits::MEMORY_LIMIT_MIN_BYTES)?;
    let mut load = Load::new(parameters, 16)?;
    load.age(&bench, generations, Ageing { every: 7, forget: 2 })?;
    Ok((bench, load))
}

fn checks(report: &mut Report, steps: &[Step], tiny: bool) {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return };
    for (way, least) in PAPER_TOP.into_iter().filter(|_| !tiny) {
        let at = |step: &Step| ratio(&step.marks, way, "PGC+", Measured::mark_seconds);
        let grown = at(last) >= 3.0 * at(first);
        report.check(
            format!("{way} takes at least {least} times PGC+ at the top, more than at first"),
            at(last) >= least && grown,
            format!("{:.1} times at first, {:.1} at the top", at(first), at(last)),
        );
    }
    let nodes = |step: &Step| of(&step.marks, "PGC+").map_or(0, Measured::nodes);
    report.check(
        "PGC+ walks the same nodes at every step",
        steps.iter().all(|step| nodes(step) == nodes(first)),
        format!("{} and {}", nodes(first), nodes(last)),
    );
    let flat = |value: fn(&Measured) -> f64| {
        let of = |step: &Step| of(&step.marks, "PGC+").map_or(f64::NAN, value);
        (of(last) / of(first) - 1.0) * 100.0
    };
    let reads = flat(|measured| measured.container_reads as f64);
    let device = flat(|measured| measured.device_seconds - measured.record_seconds);
    report.check(
        "PGC+ stays within 10 % in container reads and device time without records",
        reads.abs() <= 10.0 && device.abs() <= 10.0,
        format!("{reads:+.1} % and {device:+.1} %"),
    );
    let logical = |step: &Step| of(&step.marks, "LGC-1").map_or(0, Measured::nodes);
    let factor = logical(last) as f64 / logical(first).max(1) as f64;
    let copies = last.compression / first.compression;
    report.check(
        "LGC walks as many more nodes as there are more snapshots",
        (factor / copies - 1.0).abs() < 0.01,
        format!("{factor:.1} times the nodes for {copies:.1} times the compression"),
    );
}

fn ratios(steps: &[Step]) -> Table {
    let columns = [
        "total compression",
        "snapshots",
        "LGC-1 / PGC+, CPU",
        "device without records",
        "both",
        "both with records",
        "LGC-2 / PGC+, both",
        "PGC-2 / PGC+, both",
        "LGC-1 / PGC+, nodes",
        "paper, LGC-1",
        "paper, LGC-2",
    ];
    let caption = "How many times as long as PGC+";
    let mut table = Table::new("ratios", caption, columns);
    for (place, step) in steps.iter().enumerate() {
        let marks = &step.marks;
        let times = |way, value| Cell::real(ratio(marks, way, "PGC+", value), 1);
        let device = |m: &Measured| m.device_seconds - m.record_seconds;
        let paper = |at: usize| match place + 1 == steps.len() && steps.len() == 7 {
            true => PAPER_TOP.get(at).map_or(Cell::Missing, |(_, top)| Cell::real(*top, 0)),
            false => Cell::Missing,
        };
        table.row([
            Cell::real(step.compression, 1),
            Cell::count(marks.first().map_or(0, |mark| mark.report.snapshots)),
            times("LGC-1", |m| m.cpu_seconds),
            times("LGC-1", device),
            times("LGC-1", Measured::mark_seconds),
            times("LGC-1", Measured::total_seconds),
            times("LGC-2", Measured::mark_seconds),
            times("PGC-2", Measured::mark_seconds),
            times("LGC-1", |m| m.nodes() as f64),
            paper(0),
            paper(1),
        ]);
    }
    table
}

fn plots(report: &mut Report, steps: &[Step]) -> Result<()> {
    let lines = |value: fn(&Measured) -> f64| {
        let series = |(place, way): (usize, &Way)| {
            let point = |step: &Step| Some((step.compression, value(step.marks.get(place)?)));
            Series::new(way.name(), steps.iter().filter_map(point).collect())
        };
        WAYS.iter().enumerate().map(series).collect::<Vec<_>>()
    };
    let title = "Mark time by total compression, records left out (Fig. 7a)";
    let chart = LineChart::new(
        title,
        "total compression",
        "CPU and device, seconds",
        lines(Measured::mark_seconds),
    );
    report.lines("mark", &chart.scaled(Scale::Log, Scale::Log))?;
    // GB/s of what is stored, as in Fig. 3.
    let speed = |m: &Measured| m.report.stored_bytes as f64 / 1e6 / m.mark_seconds().max(1e-9);
    let chart = LineChart::new(
        "Throughput by total compression (Fig. 3)",
        "total compression",
        "MB stored a second",
        lines(speed),
    );
    report.lines("throughput", &chart.scaled(Scale::Log, Scale::Log))
}
