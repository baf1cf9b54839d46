//! What the reports about collections have in common.

use super::bench::{Bench, Measured, PLENTY_BYTES};
use crate::report::{Cell, Table};
use onefold_engine::collection::MarkAlgorithm;
use onefold_types::Result;

/// An algorithm with the memory that it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The algorithm.
    pub algorithm: MarkAlgorithm,
    /// Whether memory is so short that a filter needs two rounds.
    pub short: bool,
}

/// Every way of marking that the paper measures, and the exact set.
pub const WAYS: [Way; 6] = [
    Way { algorithm: MarkAlgorithm::Logical, short: false },
    Way { algorithm: MarkAlgorithm::Logical, short: true },
    Way { algorithm: MarkAlgorithm::Physical, short: false },
    Way { algorithm: MarkAlgorithm::Physical, short: true },
    Way { algorithm: MarkAlgorithm::PhysicalPlus, short: true },
    Way { algorithm: MarkAlgorithm::Exact, short: false },
];

impl Way {
    /// Its name in tables; the paper's, where it has one.
    #[must_use]
    pub fn name(self) -> String {
        match (self.algorithm, self.short) {
            (MarkAlgorithm::Logical, short) => format!("LGC-{}", 1 + u8::from(short)),
            (MarkAlgorithm::Physical, short) => format!("PGC-{}", 1 + u8::from(short)),
            (MarkAlgorithm::PhysicalPlus, _) => "PGC+".into(),
            (other, _) => other.name().into(),
        }
    }

    /// Marks a store of so many index entries: a byte for each is half of what two filters take,
    /// and enough for a bit for each fingerprint (S3.15, S3.23).
    ///
    /// # Errors
    /// Those of a collection.
    pub fn mark(self, bench: &Bench, entries: u64) -> Result<Measured> {
        let bytes = if self.short { entries as usize } else { PLENTY_BYTES };
        bench.mark(self.algorithm, bytes)
    }
}

/// All ways of marking one store, in the order of [`WAYS`].
///
/// # Errors
/// Those of a collection.
pub fn mark_all(bench: &Bench) -> Result<Vec<Measured>> {
    let entries = bench.mark(MarkAlgorithm::Exact, PLENTY_BYTES)?.report.mark.index_entries;
    WAYS.iter().map(|way| way.mark(bench, entries)).collect()
}

/// The result of one of the ways.
#[must_use]
pub fn of<'m>(marks: &'m [Measured], name: &str) -> Option<&'m Measured> {
    WAYS.iter().zip(marks).find(|(way, _)| way.name() == name).map(|(_, measured)| measured)
}

/// `value` of one way over `value` of another; not a number if one was not run.
pub fn ratio(marks: &[Measured], one: &str, other: &str, value: fn(&Measured) -> f64) -> f64 {
    match (of(marks, one), of(marks, other)) {
        (Some(one), Some(other)) => value(one) / value(other),
        _ => f64::NAN,
    }
}

/// A table with a row for each way of marking each store.
#[must_use]
pub fn marks_table(file: &str, caption: &str, first: &str) -> Table {
    let columns = [
        first,
        "way",
        "rounds",
        "nodes",
        "references",
        "container reads",
        "index reads",
        "CPU, s",
        "device, s",
        "of which records, s",
        "marks, MiB",
    ];
    Table::new(file, caption, columns)
}

/// Appends a row for each way.
pub fn marks_rows(table: &mut Table, first: &Cell, marks: &[Measured]) {
    for (way, measured) in WAYS.iter().zip(marks) {
        let mark = &measured.report.mark;
        table.row([
            first.clone(),
            Cell::text(way.name()),
            Cell::count(u64::from(mark.rounds)),
            Cell::count(mark.enumeration.nodes),
            Cell::count(mark.enumeration.references),
            Cell::count(measured.container_reads),
            Cell::count(measured.index_reads),
            Cell::real(measured.cpu_seconds, 3),
            Cell::real(measured.device_seconds, 1),
            Cell::real(measured.record_seconds, 1),
            Cell::real(mark.memory_bytes as f64 / (1 << 20) as f64, 2),
        ]);
    }
}

/// Seconds of a phase, over all times that it was run.
#[must_use]
pub fn phase(measured: &Measured, name: &str) -> f64 {
    let report = &measured.report;
    let phases = report.mark.phases.iter().chain(&report.phases);
    phases.filter(|(known, _)| *known == name).map(|(_, took)| took.as_secs_f64()).sum()
}
