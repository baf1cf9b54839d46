//! Marking as a store fills up: Fig. 6a of FAST'17.

use super::{Experiment, Setting};
use crate::collection::bench::{Bench, Measured};
use crate::collection::load::Load;
use crate::collection::tables::{WAYS, mark_all, marks_rows, marks_table, of, ratio};
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::source::generator::{Parameters, Preset};
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    Two rounds are nearly two marks for LGC and PGC: 1.65 to 1.95 times one. PGC+ costs a scan of \
    the index and a perfect hash more than PGC in one round, and saves the filter phase, which \
    scans the index as well; together they come to 1 %. LGC grows faster than the store, because \
    its walk through all snapshots is beyond the small cache of nodes: four times as many nodes \
    take 25 times as many reads of containers; see gc-compression. It was 9 times in a report of \
    21 November; the least memory leaves that cache less now, likely because others take their \
    part first. In the emptiest store, where the nodes fit into the cache (likely), it takes as \
    long as PGC+.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "gc-fullness",
        claim: "At constant compression marking takes as long as much is stored; PGC+ in its one \
                round takes about half as long as the others in two.",
        items: "S3.37, S3.40, S3.41",
        tolerance: "From a quarter of the lineages to all, each way's time grows 3 to 5.5 times \
                    (tiny: not asked); PGC+ takes at most 1.2 times PGC in one round, and LGC and \
                    PGC in two rounds take at least 1.5 times PGC+, in CPU and device time without \
                    records.",
        explanation: EXPLANATION,
    },
    run,
};

/// Lineages that fill a fifth of the store.
const LINEAGES: u32 = 1;

struct Step {
    percent: u32,
    compression: f64,
    marks: Vec<Measured>,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let steps = (1..=4).map(|fifths| step(fifths, setting.tiny)).collect::<Result<Vec<_>>>()?;
    checks(report, &steps, setting.tiny);
    report.table(times(&steps));
    let series = WAYS.iter().enumerate().map(|(place, way)| {
        let seconds = |step: &Step| step.marks.get(place).map_or(0.0, Measured::mark_seconds);
        let points = steps.iter().map(|step| (f64::from(step.percent), seconds(step)));
        Series::new(way.name(), points.collect())
    });
    let title = "Mark time by space in use (Fig. 6a)";
    let chart = LineChart::new(title, "full, %", "CPU and device, seconds", series.collect());
    report.lines("mark", &chart)?;
    let mut table = marks_table("marks", "Every way of marking", "full, %");
    for step in &steps {
        marks_rows(&mut table, &Cell::count(u64::from(step.percent)), &step.marks);
    }
    report.table(table);
    Ok(())
}

/// A store that is so many fifths full.
fn step(fifths: u32, tiny: bool) -> Result<Step> {
    let chunks = if tiny { 2_000 } else { 16_000 };
    let parameters = Parameters {
        streams: LINEAGES * fifths,
        generations: 10,
        generations_min: 10,
        self_reference: 0.0,
        chunk_min_bytes: 512,
        chunk_max_bytes: 1536,
        compression_ratio: 3.0,
        deletion: None,
        ..Parameters::preset(Preset::Scattered, chunks)
    };
    let generations = parameters.generations;
    let bench = Bench::new(limits::MEMORY_LIMIT_MIN_BYTES)?;
    let mut load = Load::new(parameters, 16)?;
    // No collection in between, as in the paper: nothing was reorganised.
    for _ in 0..generations {
        load.generation(&bench)?;
    }
    let marks = mark_all(&bench)?;
    let stored = marks.first().map_or(1, |mark| mark.report.stored_bytes).max(1);
    let compression = load.logical_bytes() as f64 / stored as f64;
    Ok(Step { percent: 20 * fifths, compression, marks })
}

fn checks(report: &mut Report, steps: &[Step], tiny: bool) {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return };
    let seconds =
        |step: &Step, name: &str| of(&step.marks, name).map_or(f64::NAN, Measured::mark_seconds);
    for way in WAYS {
        let name = way.name();
        let growth = seconds(last, &name) / seconds(first, &name);
        report.check(
            format!("{name}: four times as full is about four times as long"),
            tiny || (3.0..=5.5).contains(&growth),
            format!("{growth:.2} times"),
        );
    }
    let all = |one: &str, other: &str| {
        steps.iter().map(|step| ratio(&step.marks, one, other, Measured::mark_seconds)).collect()
    };
    let listed = |ratios: &[f64]| {
        ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ")
    };
    let single: Vec<f64> = all("PGC+", "PGC-1");
    report.check(
        "PGC+ takes at most 1.2 times PGC in one round",
        single.iter().all(|ratio| *ratio <= 1.2),
        listed(&single),
    );
    for way in ["LGC-2", "PGC-2"] {
        let double: Vec<f64> = all(way, "PGC+");
        report.check(
            format!("{way} takes at least 1.5 times PGC+"),
            double.iter().all(|ratio| *ratio >= 1.5),
            listed(&double),
        );
    }
}

fn times(steps: &[Step]) -> Table {
    let mut columns = vec!["full, %".to_owned(), "total compression".into()];
    columns.extend(WAYS.iter().map(|way| format!("{}, s", way.name())));
    columns.extend(["LGC-2 / PGC+".into(), "PGC-2 / PGC+".into(), "paper".into()]);
    let caption = "CPU and device, seconds, records left out";
    let mut table = Table::new("times", caption, columns);
    for step in steps {
        let mut row = vec![Cell::count(u64::from(step.percent)), Cell::real(step.compression, 1)];
        row.extend(step.marks.iter().map(|mark| Cell::real(mark.mark_seconds(), 2)));
        let times = |way| Cell::real(ratio(&step.marks, way, "PGC+", Measured::mark_seconds), 2);
        row.extend([times("LGC-2"), times("PGC-2"), Cell::text("at least 2")]);
        table.row(row);
    }
    table
}
