//! What is saved if chunks are compared within partitions only: ATC'12's table of global savings
//! and savings by file type and by path.

use super::{Experiment, Setting};
use crate::primary::dataset::{DataFile, DataSet, Roots};
use crate::report::{Cell, Claim, Report, Table};
use onefold_engine::primary::estimate::kind::kind_of;
use onefold_policy::primary::partition::{FileClass, Partitioning};
use onefold_policy::primary::path_partitions::SHARE_MAX;
use onefold_types::Result;
use std::collections::BTreeMap;

const EXPLANATION: &str = "\
    By type costs little everywhere, as in the paper: a copy of a file has its ending. The paper \
    does not say what a type is. With every ending as a type of its own more is lost where many \
    files have odd endings, as in a system: versions in names, copies under another ending. By \
    path is not worse by nature: what counts is how far apart copies lie. Where they lie in \
    different sub-trees (generations, users, machines) it loses nearly all savings, more than on \
    the paper's worst server; where versions of one thing are neighbours it loses little. So the \
    paper's 63 to 90 % that sub-trees keep are a trait of its servers and not of the method. What \
    partitions lose is not lost for good: reconciliation finds all of it (see reconciliation). \
    Files with several names count once.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "partition-savings",
        claim: "Comparing chunks only among files of one type saves nearly as much as comparing \
                all of them; among sub-trees of at most 10 % of the bytes it saves less.",
        items: "S4.19, S4.20",
        tolerance: "On every data set types keep at least 90 % of the global savings, and no less \
                    than sub-trees keep; no sub-tree of more than one file exceeds 10 %.",
        explanation: EXPLANATION,
    },
    run,
};

/// The paper's table: global, by type, by path, in percent.
const PAPER: [(&str, [f64; 3]); 6] = [
    ("GFS-US", [36.7, 35.6, 24.3]),
    ("GFS-Japan-1", [41.1, 38.9, 32.3]),
    ("GFS-Japan-2", [39.1, 36.7, 24.8]),
    ("HF-Amsterdam", [15.2, 14.7, 13.6]),
    ("HF-Dublin", [16.8, 16.2, 14.6]),
    ("HF-Japan", [19.6, 19.0, 12.9]),
];

/// What a data set saves under each division.
struct Savings {
    global: f64,
    by_class: f64,
    by_ending: f64,
    by_path: f64,
    by_volume: Option<f64>,
}

impl Savings {
    fn of(set: &DataSet, volumes: &[u64], paths: &Partitioning) -> Self {
        let endings = Endings::of(set);
        let by_volume = Partitioning::by_volume(volumes.to_vec());
        Self {
            global: set.saved_within(&Partitioning::Whole),
            by_class: set.saved_within(&Partitioning::Type),
            by_ending: set.saved(|file| endings.number(file)),
            by_path: set.saved_within(paths),
            by_volume: (volumes.len() > 1).then(|| set.saved_within(&by_volume)),
        }
    }
}

/// Every ending as a partition of its own.
struct Endings(BTreeMap<Option<String>, u64>);

impl Endings {
    fn of(set: &DataSet) -> Self {
        let endings = set.files.iter().map(|file| (kind_of(&file.path), 0));
        let mut numbers: BTreeMap<Option<String>, u64> = endings.collect();
        (0..).zip(numbers.values_mut()).for_each(|(number, value)| *value = number);
        Self(numbers)
    }

    fn number(&self, file: &DataFile) -> u64 {
        self.0.get(&kind_of(&file.path)).copied().unwrap_or(u64::MAX)
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut sets = Roots::of(setting)?.read()?;
    let volumes: Vec<u64> = (0..sets.len() as u64).collect();
    sets.push(DataSet::together("all together", &sets));
    let columns = [
        "data",
        "files",
        "MB",
        "global, %",
        "by class of type, %",
        "by ending, %",
        "by path, %",
        "by volume, %",
        "kept by class",
        "kept by path",
        "partitions by path",
    ];
    let caption = "Bytes saved by duplicates, before compression; regression chunking";
    let mut table = Table::new("savings", caption, columns);
    for (number, set) in sets.iter().enumerate() {
        let volumes = if number + 1 == sets.len() { &volumes[..] } else { &[] };
        let paths = set.by_path();
        let savings = Savings::of(set, volumes, &paths);
        table.row([
            Cell::text(set.name.clone()),
            Cell::count(set.files.len() as u64),
            Cell::real(set.bytes() as f64 / 1e6, 1),
            Cell::percent(savings.global, 2),
            Cell::percent(savings.by_class, 2),
            Cell::percent(savings.by_ending, 2),
            Cell::percent(savings.by_path, 2),
            savings.by_volume.map_or(Cell::Missing, |saved| Cell::percent(saved, 2)),
            Cell::real(savings.by_class / savings.global, 3),
            Cell::real(savings.by_path / savings.global, 3),
            Cell::count(paths.count() as u64),
        ]);
        checks(report, set, &savings, &paths);
    }
    for (name, [global, by_type, by_path]) in PAPER {
        let mut row = vec![Cell::text(format!("paper's {name}")), Cell::Missing, Cell::Missing];
        row.extend([Cell::real(global, 2), Cell::real(by_type, 2), Cell::Missing]);
        row.extend([Cell::real(by_path, 2), Cell::Missing]);
        row.extend([by_type / global, by_path / global].map(|kept| Cell::real(kept, 3)));
        table.row(row);
    }
    report.table(table);
    classes(report, &sets);
    Ok(())
}

fn checks(report: &mut Report, set: &DataSet, savings: &Savings, paths: &Partitioning) {
    // What hardly has duplicates cannot show which of them are lost.
    if savings.global >= 0.005 {
        let kept = savings.by_class / savings.global;
        report.check(
            format!("{}: types keep at least 90 % of the savings", set.name),
            kept >= 0.9,
            format!("{:.1} %, paper 94 to 97 %", kept * 100.0),
        );
        report.check(
            format!("{}: types keep no less than sub-trees", set.name),
            savings.by_class >= savings.by_path,
            format!("{:.2} and {:.2} %", savings.by_class * 100.0, savings.by_path * 100.0),
        );
    }
    let mut partitions: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for file in &set.files {
        let (files, bytes) = partitions.entry(paths.partition_of(file.facts())).or_default();
        *files += u64::from(file.bytes() > 0);
        *bytes += file.bytes();
    }
    let several = partitions.values().filter(|(files, _)| *files > 1).map(|(_, bytes)| *bytes);
    let most = several.max().unwrap_or(0) as f64 / set.bytes().max(1) as f64;
    report.check(
        format!("{}: sub-trees have at most 10 % of the bytes", set.name),
        most <= SHARE_MAX,
        format!("{:.1} % at most", most * 100.0),
    );
}

/// Savings within each class, all data sets together.
fn classes(report: &mut Report, sets: &[DataSet]) {
    let columns = ["class", "files", "MB", "saved within, %"];
    let mut table = Table::new("classes", "Classes of types, all data sets together", columns);
    let Some(all) = sets.last() else {
        return;
    };
    for class in FileClass::ALL {
        let of_class = all.files.iter().filter(|file| FileClass::of(&file.path) == class);
        let part = DataSet { name: class.name().to_owned(), files: of_class.cloned().collect() };
        if part.files.is_empty() {
            continue;
        }
        table.row([
            Cell::text(class.name()),
            Cell::count(part.files.len() as u64),
            Cell::real(part.bytes() as f64 / 1e6, 1),
            Cell::percent(part.saved_within(&Partitioning::Whole), 2),
        ]);
    }
    report.table(table);
}
