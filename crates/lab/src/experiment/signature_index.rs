//! The index of two-byte signatures: memory and false signatures (ATC'12), beside the project's
//! other kinds.

use super::{Experiment, Setting};
use crate::index_memory::{self, IndexMemory};
use crate::parallel;
use crate::report::{Cell, Claim, Report, Table};
use crate::simulation::{IndexSetup, Setup};
use crate::source::generator::Preset;
use crate::workload::{Workload, eager};
use onefold_chunking::ChunkerKind;
use onefold_engine::index::IndexMode;
use onefold_format::index_run::IndexKind;
use onefold_types::Result;

const EXPLANATION: &str = "\
    Six bytes are two of signature and four of pointer; here a pointer names a container, in as \
    many bits as there are containers, so that the table takes less. The paper's factor of 24 is \
    8 for the entry and 3 for partitions of which one is in memory at a time; a static filter \
    over sorted runs reaches it without partitions and stays exact. False signatures follow the \
    formula (8 slots of 16 bits, 95 % full); each costs one read of a container. \"Of the \
    process\" is what a process of its own grew by when it opened the index and asked it until \
    all of it was loaded.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "signature-index",
        claim: "Signatures take 6 bytes for each chunk where a plain index takes 48, static \
                filters 1.5 and hooks 0.2; about 1 % of look-ups read the device.",
        items: "S4.13, S4.14, S4.15, S4.16, S4.28",
        tolerance: "At most 6.0, 1.5 and 0.2 bytes for each chunk, measured; with the default kind \
                    the memory is at least 24 times below the 48-byte baseline; at most 1.5 % of \
                    look-ups read the device with 100,000 mappings cached.",
        explanation: EXPLANATION,
    },
    run,
};

/// Bytes of an entry of a plain index in memory (S4.28).
const BASELINE_BYTES: f64 = 48.0;
/// Mappings in the cache (S4.15), which take 5 MB.
const CACHED_MAPPINGS: usize = 100_000;

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    memory(setting, report)?;
    let mut workloads = vec![
        Workload::generated(Preset::Primary, setting.tiny)?,
        Workload::generated(Preset::Mirror, setting.tiny)?,
        Workload::generated(Preset::Engineering, setting.tiny)?,
    ];
    if let Some(data) = &setting.data {
        workloads.push(Workload::real(data, ChunkerKind::Regression, 65_536)?);
    }
    let columns = [
        "workload",
        "kind",
        "look-ups",
        "duplicates, %",
        "read the device, %",
        "index pages read",
        "log reads",
        "false signatures",
        "by the formula",
    ];
    let caption = "Look-ups with 100,000 mappings cached and groups of 1000 (S4.15)";
    let mut table = Table::new("reads", caption, columns);
    for workload in &workloads {
        reads(report, workload, &mut table)?;
    }
    report.table(table);
    Ok(())
}

fn memory(setting: &Setting, report: &mut Report) -> Result<()> {
    // One run of more entries would be larger than an object may be; the product merges into
    // several.
    let chunks: u64 = if setting.tiny { 200_000 } else { 30_000_000 };
    let cases = [
        ("signatures", IndexKind::Signature, IndexMode::Exact, Some(6.0), "6 (S4.14)"),
        ("Bloom filter", IndexKind::Bloom, IndexMode::Exact, None, "1 (S1.13)"),
        ("fuse filter (default)", IndexKind::Fuse, IndexMode::Exact, Some(1.5), ""),
        ("hooks (sampled)", IndexKind::Fuse, IndexMode::Sampled, Some(0.2), ""),
    ];
    let columns = [
        "kind",
        "chunks",
        "bytes for each chunk",
        "of the process",
        "paper's",
        "times below 48 bytes",
        "passes for a new chunk, %",
    ];
    let caption = "Memory of an index that is wholly loaded";
    let mut table = Table::new("memory", caption, columns);
    for (name, kind, mode, bound, paper) in cases {
        let measured = measure(setting, kind, mode, chunks)?;
        let bytes = measured.counted_bytes as f64 / chunks as f64;
        let resident = measured.resident_bytes as f64 / chunks as f64;
        table.row([
            Cell::text(name),
            Cell::count(chunks),
            Cell::real(bytes, 3),
            // A few pages more or less drown the figure of a small index.
            if setting.tiny { Cell::Missing } else { Cell::real(resident, 3) },
            Cell::text(paper),
            Cell::real(BASELINE_BYTES / bytes, 1),
            Cell::percent(measured.passed as f64 / measured.asked.max(1) as f64, 3),
        ]);
        if let Some(bound) = bound {
            // What the process took counts, where it was measured.
            let most = if setting.tiny { bytes } else { bytes.max(resident) };
            report.check(
                format!("{name}: at most {bound} bytes for each chunk"),
                most <= bound,
                format!("{most:.3}"),
            );
        }
        if kind == IndexKind::Fuse && mode == IndexMode::Exact {
            report.check(
                "the default kind is 24 times below 48 bytes",
                BASELINE_BYTES / bytes >= 24.0,
                format!("{:.1} times", BASELINE_BYTES / bytes),
            );
        }
    }
    report.table(table);
    Ok(())
}

/// Memory of one index, from this process or from one of its own.
fn measure(
    setting: &Setting,
    kind: IndexKind,
    mode: IndexMode,
    chunks: u64,
) -> Result<IndexMemory> {
    match &setting.program {
        Some(program) if !setting.tiny => index_memory::measure_apart(program, kind, mode, chunks),
        _ => index_memory::measure(kind, mode, chunks),
    }
}

fn reads(report: &mut Report, workload: &Workload, table: &mut Table) -> Result<()> {
    let [(_, filter_first), _] = eager();
    let kinds = [IndexKind::Signature, IndexKind::Fuse];
    let setups = kinds.map(|kind| {
        let setup = workload.setup(filter_first);
        let index = IndexSetup { kind, ..setup.index };
        let group = workload.container_chunks.min(1000);
        let cached = CACHED_MAPPINGS.min(workload.cache_fingerprints);
        let cache_bytes = workload.cache_bytes(cached);
        Setup { index, container_chunks: group, cache_bytes, ..setup }
    });
    let run = |setup: &Setup| setup.run(&*workload.trace);
    let outcomes = parallel::map(&setups, parallel::threads(), run)?;
    for (kind, outcome) in kinds.iter().zip(&outcomes) {
        let total = outcome.total();
        let counters = total.counters;
        let share = counters.device_reads() as f64 / total.chunks.max(1) as f64;
        // Four slots in each of two buckets, with signatures of 16 bits.
        let by_formula = 8.0 * 0.95 / 65_536.0 * total.chunks_new as f64;
        let is_signature = *kind == IndexKind::Signature;
        table.row([
            Cell::text(workload.name.clone()),
            Cell::text(kind.to_string()),
            Cell::count(total.chunks),
            Cell::percent(total.duplicates() as f64 / total.chunks.max(1) as f64, 1),
            Cell::percent(share, 3),
            Cell::count(counters.index_page_reads),
            Cell::count(counters.containers_prefetched + counters.verification_reads),
            Cell::count(counters.false_prefix_matches),
            if is_signature { Cell::real(by_formula, 1) } else { Cell::Missing },
        ]);
        if is_signature {
            report.check(
                format!("{}: at most 1.5 % of look-ups read the device", workload.name),
                share <= 0.015,
                format!("{:.3} %, paper about 1 %", share * 100.0),
            );
            report.check(
                format!("{}: no index page is read and no verdict is wrong", workload.name),
                counters.index_page_reads == 0 && total.missed + total.false_duplicates == 0,
                format!("{} pages", counters.index_page_reads),
            );
        }
    }
    Ok(())
}
