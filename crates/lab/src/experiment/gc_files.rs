//! Marking as the number of files grows: Fig. 4 and Fig. 7b of FAST'17.

use super::{Experiment, Setting};
use crate::collection::bench::{Bench, Measured};
use crate::collection::load::Load;
use crate::collection::tables::{mark_all, marks_rows, marks_table, of, ratio};
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::source::generator::{Parameters, Preset};
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    Ours keeps no node for a file of one chunk: some hundreds of such files are one node, a leaf \
    of a directory, and LGC walks hardly more nodes than PGC+; with a million of them it takes \
    0.73 times as long. A file of several chunks has a node, as in the paper. In a fresh tree \
    those lie in the order of the walk, and a request brings hundreds of them. Where files came at \
    many times and the tree leads from container to container, LGC reads nine nodes with a \
    request, PGC+ 80; that is likely the paper's case. The modelled disk has no cache, the memory \
    limit is 64 MiB; marks get as much as they need. The paper has 900 million files, of which the \
    tree is far beyond any cache; here the ratio grows with the number of files, likely until \
    frames and sections are beyond the caches too.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "gc-files",
        claim: "With many small files, walking them one by one is slower than level by level.",
        items: "S3.33, S3.38, S3.43",
        tolerance: "For files of several chunks in an aged tree, at the largest number: LGC takes \
                    at least 13.8 times as long as PGC+ in one round and 27.8 times in two (tiny: \
                    more than once), in CPU and device time without records; and LGC's time for \
                    each file is no less than with the fewest files.",
        explanation: EXPLANATION,
    },
    run,
};

/// Fig. 7b: 900 million files.
const PAPER: [(&str, f64); 2] = [("LGC-1", 13.8), ("LGC-2", 27.8)];
const MEMORY_BYTES: usize = 64 * limits::MIB;
/// Files of a directory.
const DIRECTORY_FILES: usize = 200;

/// What the files are like.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// The mean number of chunks in a file; one needs no node.
    file_chunks: f64,
    /// Generations; all but the last two are forgotten.
    generations: u32,
    sizes: &'static [usize],
    tiny_sizes: &'static [usize],
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "one chunk each",
        file_chunks: 1.0,
        generations: 2,
        sizes: &[3_000, 30_000, 150_000, 1_000_000],
        tiny_sizes: &[500, 2_000],
    },
    Kind {
        name: "several chunks each",
        file_chunks: 3.0,
        generations: 2,
        sizes: &[3_000, 15_000, 50_000, 330_000],
        tiny_sizes: &[500, 2_000],
    },
    Kind {
        name: "several chunks each, aged",
        file_chunks: 3.0,
        generations: 16,
        sizes: &[2_000, 7_000, 24_000],
        tiny_sizes: &[500, 2_000],
    },
];

struct Step {
    files: usize,
    compression: f64,
    marks: Vec<Measured>,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut all = Vec::new();
    for kind in KINDS {
        let sizes = if setting.tiny { kind.tiny_sizes } else { kind.sizes };
        let steps = sizes.iter().map(|files| step(kind, *files)).collect::<Result<Vec<_>>>()?;
        all.push((kind, steps));
    }
    checks(report, &all, setting.tiny);
    report.table(ratios(&all));
    for (name, value) in [("LGC-1", "lgc"), ("PGC+", "pgc-plus")] {
        let series = all.iter().map(|(kind, steps)| {
            let point =
                |step: &Step| Some((step.files as f64, of(&step.marks, name)?.mark_seconds()));
            Series::new(kind.name, steps.iter().filter_map(point).collect())
        });
        let title = format!("{name}: mark time by number of files (Fig. 7b)");
        let chart = LineChart::new(&title, "files", "CPU and device, seconds", series.collect());
        report.lines(value, &chart.scaled(Scale::Log, Scale::Log))?;
    }
    for (place, (kind, steps)) in all.iter().enumerate() {
        let mut table = marks_table(&format!("marks-{place}"), kind.name, "files");
        for step in steps {
            marks_rows(&mut table, &Cell::count(step.files as u64), &step.marks);
        }
        report.table(table);
    }
    Ok(())
}

/// A store of so many files in the last two generations.
fn step(kind: Kind, files: usize) -> Result<Step> {
    // In two generations that differ by a third, and by compression: 2.3 in all.
    let share = if kind.generations > 2 { 0.10 } else { 0.15 };
    let parameters = Parameters {
        streams: 1,
        generations: kind.generations,
        generations_min: kind.generations,
        file_chunks: kind.file_chunks,
        deleted_share: share,
        added_share: share,
        moved_share: 0.0,
        changed_share: 0.0,
        self_reference: 0.0,
        cluster_files: 2.0,
        chunk_min_bytes: 64,
        chunk_max_bytes: 448,
        compression_ratio: 1.5,
        deletion: None,
        ..Parameters::preset(Preset::Scattered, (files as f64 * kind.file_chunks) as usize)
    };
    let bench = Bench::new(MEMORY_BYTES)?;
    let mut load = Load::new(parameters, (files / DIRECTORY_FILES) as u64)?;
    for _ in 0..kind.generations {
        load.generation(&bench)?;
    }
    let old = load.snapshots.len().saturating_sub(2);
    load.forget(&bench, old, |_| true)?;
    let marks = mark_all(&bench)?;
    let stored = marks.first().map_or(1, |mark| mark.report.stored_bytes).max(1);
    Ok(Step { files, compression: load.logical_bytes() as f64 / stored as f64, marks })
}

fn checks(report: &mut Report, all: &[(Kind, Vec<Step>)], tiny: bool) {
    let Some((_, aged)) = all.last() else { return };
    let (Some(first), Some(last)) = (aged.first(), aged.last()) else { return };
    for (way, paper) in PAPER {
        let least = if tiny { 1.0 } else { paper };
        let times = ratio(&last.marks, way, "PGC+", Measured::mark_seconds);
        report.check(
            format!("{} files, aged: {way} takes at least {least} times PGC+", last.files),
            times >= least,
            format!("{times:.1} times"),
        );
    }
    let each = |step: &Step| {
        let seconds = of(&step.marks, "LGC-1").map_or(f64::NAN, Measured::mark_seconds);
        seconds / step.files as f64 * 1e3
    };
    report.check(
        "LGC's time for each file does not fall as there are more",
        tiny || each(last) >= each(first),
        format!("{:.2} and {:.2} ms", each(first), each(last)),
    );
    let is_linear = |(kind, steps): &(Kind, Vec<Step>)| {
        let nodes = |step: &Step| of(&step.marks, "PGC+").map_or(0, Measured::nodes);
        let known = |step: &Step| of(&step.marks, "LGC-1").map_or(0, Measured::nodes);
        (kind.name, steps.iter().all(|step| nodes(step) <= known(step)))
    };
    let held: Vec<_> = all.iter().map(is_linear).collect();
    report.check(
        "PGC+ never walks more nodes than LGC",
        held.iter().all(|(_, holds)| *holds),
        format!("{} kinds of files", held.len()),
    );
}

fn ratios(all: &[(Kind, Vec<Step>)]) -> Table {
    let columns = [
        "files",
        "number",
        "total compression",
        "LGC-1, ms a file",
        "PGC+, ms a file",
        "LGC-1 / PGC+, CPU",
        "device without records",
        "both",
        "LGC-2 / PGC+, both",
        "LGC-1 / PGC+, container reads",
        "paper, LGC-1 (900 M files)",
        "paper, LGC-2",
    ];
    let mut table = Table::new("ratios", "How many times as long as PGC+", columns);
    for (kind, steps) in all {
        for step in steps {
            let marks = &step.marks;
            let times = |way, value| Cell::real(ratio(marks, way, "PGC+", value), 2);
            let each = |way| {
                let seconds = of(marks, way).map_or(f64::NAN, Measured::mark_seconds);
                Cell::real(seconds * 1e3 / step.files as f64, 3)
            };
            table.row([
                Cell::text(kind.name),
                Cell::count(step.files as u64),
                Cell::real(step.compression, 2),
                each("LGC-1"),
                each("PGC+"),
                times("LGC-1", |m| m.cpu_seconds),
                times("LGC-1", |m| m.device_seconds - m.record_seconds),
                times("LGC-1", Measured::mark_seconds),
                times("LGC-2", Measured::mark_seconds),
                times("LGC-1", |m| m.container_reads as f64),
                Cell::real(13.8, 1),
                Cell::real(27.8, 1),
            ]);
        }
    }
    table
}
