//! Reconciliation: memory against passes as k grows, what each iteration finds, and what selecting
//! partitions or waiting costs (ATC'12, data partitioning and reconciliation).

use super::{Experiment, Setting};
use crate::primary::dataset::{DataSet, Roots};
use crate::primary::logs::Logs;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use onefold_policy::primary::chunk_table::TableForm;
use onefold_policy::primary::overlap::{Overlap, SAMPLE_BITS};
use onefold_policy::primary::partition::Partitioning;
use onefold_policy::primary::reconcile::{
    CACHED_CHUNKS, Iteration, PartitionId, Reconciler, Timing,
};
use onefold_types::Result;

const EXPLANATION: &str = "\
    Every k finds the same duplicates, which are those of one global index. With n partitions \
    there are n / k iterations; each reads its own logs twice and those of all reconciled \
    partitions once, so k = 1 reads up to n / 4 times as much as k = n, from logs that are a \
    two-thousandth of the data. Memory is that of the largest k partitions together: less than 1 \
    / n of all cannot be had where one partition is larger than the others, as types are. The \
    paper names selective and delayed reconciliation and gives no figures. Here one fingerprint \
    in 32 is looked at. To ask for a least share of chunks in common (worth) leaves out what has \
    nothing in common, but no single bound suits types, which all have little in common, and \
    sub-trees; asking for a share of what there is to find (yield) suits both, but it is a share \
    of the chunks, and 90 % of these may be fewer of the bytes, as by path here. Waiting for \
    quiet hours costs the space of the duplicates meanwhile, and the memory of all that waited if \
    it is taken at once; it saves passes.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "reconciliation",
        claim: "Reconciling k partitions an iteration finds all duplicates between partitions, \
                whatever k; k trades memory for passes; selecting and delaying cost little.",
        items: "S4.17, S4.18",
        tolerance: "For every k and both forms of the index the duplicates are those of the \
                    global comparison; by path k = 1 takes at most a third of the memory of k = \
                    all, and more reading; signatures take at most an eighth of the baseline's \
                    memory; selection for a yield of 90 % finds at least 80 % of the duplicate \
                    bytes.",
        explanation: EXPLANATION,
    },
    run,
};

/// Partitions whose logs were all written, and what a global index would find.
struct Case {
    name: String,
    logs: Logs,
    order: Vec<PartitionId>,
    expected_bytes: u64,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sets = Roots::of(setting)?.read()?;
    let all = DataSet::together("all together", &sets);
    let cases = [("by type", Partitioning::Type), ("by path", all.by_path())];
    let cases = cases.map(|(name, partitioning)| case(name, &all, &partitioning));
    let columns = [
        "partitions",
        "index",
        "k",
        "iterations",
        "index memory, KB",
        "fingerprints read in order",
        "logs read, times",
        "reads to verify",
        "duplicates found",
        "MB",
    ];
    let mut table = Table::new("k", "Reconciliation of all data sets together", columns);
    // Of few chunks one in 32 is none.
    let bits = if setting.tiny { 2 } else { SAMPLE_BITS };
    let mut series = Vec::new();
    for case in &cases {
        by_k(report, case, &mut table)?;
        series.extend(curves(case, bits)?);
    }
    report.table(table);
    let mut curve = Table::new("curve", "The same, as figures", ["partitions", "iteration", "%"]);
    for one in &series {
        for (iteration, found) in &one.points {
            let name = Cell::text(one.name.clone());
            curve.row([name, Cell::count(*iteration as u64), Cell::real(*found, 1)]);
        }
    }
    let chart = LineChart::new(
        "Duplicate bytes found after each iteration, k = 1",
        "iterations",
        "share of all between partitions, %",
        series,
    );
    report.lines("curve", &chart)?;
    report.table(curve);
    selection(report, &cases, bits)?;
    delays(report, &cases)
}

fn case(name: &str, set: &DataSet, partitioning: &Partitioning) -> Case {
    let logs = Logs::of(set, partitioning);
    let saved = set.saved_within(&Partitioning::Whole) - set.saved_within(partitioning);
    let expected_bytes = (saved * set.bytes() as f64).round() as u64;
    Case { name: name.to_owned(), order: logs.partitions(), logs, expected_bytes }
}

/// Iterations of k partitions each, with what had been found after each.
fn reconcile(
    logs: &mut Logs,
    order: &[PartitionId],
    k: usize,
    form: TableForm,
) -> Result<Vec<(Iteration, u64)>> {
    let mut reconciler = Reconciler::new(logs, order, form, CACHED_CHUNKS)?;
    let mut done = Vec::new();
    for group in order.chunks(k.max(1)) {
        let iteration = reconciler.iterate(logs, group)?;
        done.push((iteration, logs.duplicate_bytes));
    }
    Ok(done)
}

fn scanned(iterations: &[(Iteration, u64)]) -> u64 {
    iterations.iter().map(|(iteration, _)| iteration.chunks_scanned).sum()
}

fn memory(iterations: &[(Iteration, u64)]) -> u64 {
    iterations.iter().map(|(iteration, _)| iteration.memory_bytes).max().unwrap_or(0)
}

fn by_k(report: &mut Report, case: &Case, table: &mut Table) -> Result<()> {
    let all = case.order.len();
    let mut peaks = Vec::new();
    for form in [TableForm::Whole, TableForm::Signatures] {
        let is_whole = form == TableForm::Whole;
        for (name, k) in [("1", 1), ("2", 2), ("4", 4), ("all", all)] {
            let mut logs = case.logs.clone();
            let done = reconcile(&mut logs, &case.order, k, form)?;
            let reads = done.iter().map(|(iteration, _)| iteration.page_reads).sum();
            table.row([
                Cell::text(format!("{}, {all}", case.name)),
                Cell::text(if is_whole { "48 bytes" } else { "signatures" }),
                Cell::text(name),
                Cell::count(done.len() as u64),
                Cell::real(memory(&done) as f64 / 1000.0, 1),
                Cell::count(scanned(&done)),
                Cell::real(scanned(&done) as f64 / logs.all_chunks().max(1) as f64, 2),
                Cell::count(reads),
                Cell::count(logs.duplicates),
                Cell::real(logs.duplicate_bytes as f64 / 1e6, 2),
            ]);
            let off = logs.duplicate_bytes.abs_diff(case.expected_bytes);
            report.check(
                format!("{}, {form:?}, k = {name}: all duplicates are found", case.name),
                off <= 1,
                format!("{} of {} bytes", logs.duplicate_bytes, case.expected_bytes),
            );
            peaks.push((is_whole, k, memory(&done), scanned(&done)));
        }
    }
    let of = |whole, k| peaks.iter().find(|peak| (peak.0, peak.1) == (whole, k));
    let ends = of(false, 1).zip(of(false, all)).zip(of(true, 1));
    // Types are of very different size.
    let divisor = if case.name == "by path" { 3 } else { 1 };
    if let Some(((one, whole), baseline)) = ends {
        report.check(
            format!("{}: k = 1 takes less memory and more reading than k = all", case.name),
            one.2 <= whole.2 / divisor && one.3 > whole.3,
            format!(
                "{:.0} % of the memory, {:.1} times the reading",
                one.2 as f64 / whole.2 as f64 * 100.0,
                one.3 as f64 / whole.3 as f64
            ),
        );
        report.check(
            format!("{}: signatures take an eighth of the baseline's memory", case.name),
            one.2 * 8 <= baseline.2,
            format!("1 / {:.1}", baseline.2 as f64 / one.2 as f64),
        );
    }
    Ok(())
}

/// What is found after each iteration: in the order of the partitions, and selected.
fn curves(case: &Case, bits: u32) -> Result<Vec<Series>> {
    let mut logs = case.logs.clone();
    let selected = Overlap::sample(&mut logs, &case.order, bits)?.select(0.0, 1);
    let mut series = Vec::new();
    for (name, order) in [("in order", &case.order), ("most in common first", &selected)] {
        let mut logs = case.logs.clone();
        let done = reconcile(&mut logs, order, 1, TableForm::Signatures)?;
        let all = case.expected_bytes.max(1) as f64;
        let points = (1..)
            .zip(&done)
            .map(|(number, (_, found))| (f64::from(number), *found as f64 / all * 100.0));
        series.push(Series::new(format!("{}, {name}", case.name), points.collect()));
    }
    Ok(series)
}

fn selection(report: &mut Report, cases: &[Case], bits: u32) -> Result<()> {
    let columns = [
        "partitions",
        "selected by",
        "at least, %",
        "selected",
        "index memory, KB",
        "reading, % of that for all",
        "duplicate bytes found, %",
    ];
    let mut table = Table::new("selective", "Selective reconciliation, signatures, k = 1", columns);
    for case in cases {
        let mut logs = case.logs.clone();
        let overlap = Overlap::sample(&mut logs, &case.order, bits)?;
        let whole = reconcile(&mut case.logs.clone(), &case.order, 1, TableForm::Signatures)?;
        let by_worth = [0.0, 0.001, 0.01, 0.05].map(|share| (share, overlap.select(share, 1)));
        let by_yield = [0.5, 0.8, 0.9, 0.99].map(|share| (share, overlap.select_yield(share)));
        let ways = by_worth.iter().map(|way| ("worth", way));
        for (name, (share, order)) in ways.chain(by_yield.iter().map(|way| ("yield", way))) {
            let mut logs = case.logs.clone();
            let done = reconcile(&mut logs, order, 1, TableForm::Signatures)?;
            let found = logs.duplicate_bytes as f64 / case.expected_bytes.max(1) as f64;
            table.row([
                Cell::text(format!("{}, {}", case.name, case.order.len())),
                Cell::text(name),
                Cell::percent(*share, 1),
                Cell::count(order.len() as u64),
                Cell::real(memory(&done) as f64 / 1000.0, 1),
                Cell::percent(scanned(&done) as f64 / scanned(&whole).max(1) as f64, 1),
                Cell::percent(found, 1),
            ]);
            // Nothing can be missed where nothing is.
            if name == "yield" && *share == 0.9 && case.expected_bytes > 0 {
                let (selected, all) = (order.len(), case.order.len());
                report.check(
                    format!("{}: selection for 90 % finds at least 80 %", case.name),
                    found >= 0.8,
                    format!("{:.1} % by {selected} of {all} partitions", found * 100.0),
                );
            }
        }
    }
    report.table(table);
    Ok(())
}

/// One partition an hour is deduplicated; every eighth hour is quiet.
fn delays(report: &mut Report, cases: &[Case]) -> Result<()> {
    let columns = [
        "partitions",
        "timing",
        "iterations",
        "in quiet hours",
        "index memory, KB",
        "logs read, times",
        "not found yet, mean % of all",
    ];
    let caption = "Delayed reconciliation: a partition an hour, every eighth hour is quiet";
    let mut table = Table::new("delayed", caption, columns);
    let timings = [
        ("at once", Timing::AtOnce),
        ("delayed, 4 may wait", Timing::Delayed { waiting_max: 4 }),
        ("delayed, any may wait", Timing::Delayed { waiting_max: usize::MAX }),
    ];
    for case in cases {
        let known = reconcile(&mut case.logs.clone(), &case.order, 1, TableForm::Signatures)?;
        for (name, timing) in timings {
            let outcome = delayed(case, timing, &known)?;
            table.row([
                Cell::text(format!("{}, {}", case.name, case.order.len())),
                Cell::text(name),
                Cell::count(outcome.iterations.len() as u64),
                Cell::count(outcome.quiet),
                Cell::real(memory(&outcome.iterations) as f64 / 1000.0, 1),
                Cell::real(
                    scanned(&outcome.iterations) as f64 / case.logs.all_chunks().max(1) as f64,
                    2,
                ),
                Cell::percent(outcome.missing, 1),
            ]);
            report.check(
                format!("{}, {name}: all duplicates are found in the end", case.name),
                outcome.found.abs_diff(case.expected_bytes) <= 1,
                format!("{} bytes", outcome.found),
            );
        }
    }
    report.table(table);
    Ok(())
}

struct Delayed {
    iterations: Vec<(Iteration, u64)>,
    quiet: u64,
    missing: f64,
    found: u64,
}

fn delayed(case: &Case, timing: Timing, known: &[(Iteration, u64)]) -> Result<Delayed> {
    let mut logs = case.logs.clone();
    let form = TableForm::Signatures;
    let mut reconciler = Reconciler::new(&mut logs, &case.order, form, CACHED_CHUNKS)?;
    let mut outcome = Delayed { iterations: Vec::new(), quiet: 0, missing: 0.0, found: 0 };
    let mut waiting = Vec::new();
    let hours = case.order.len().next_multiple_of(8);
    for hour in 1..=hours {
        waiting.extend(case.order.get(hour - 1));
        let is_quiet = hour % 8 == 0;
        if timing.is_due(waiting.len(), is_quiet) {
            let iteration = reconciler.iterate(&mut logs, &waiting)?;
            outcome.iterations.push((iteration, logs.duplicate_bytes));
            outcome.quiet += u64::from(is_quiet);
            waiting.clear();
        }
        // What could have been found by now: what reconciling at once has found.
        let could = known.get(hour.min(known.len()) - 1).map_or(0, |(_, found)| *found);
        let missing = could.saturating_sub(logs.duplicate_bytes) as f64;
        outcome.missing += missing / case.expected_bytes.max(1) as f64 / hours as f64;
    }
    outcome.found = logs.duplicate_bytes;
    Ok(outcome)
}
