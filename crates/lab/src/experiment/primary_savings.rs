//! What chunk size costs with and without compression: the first figure of ATC'12's study.

use super::{Experiment, Setting};
use crate::primary::file_server::FileServer;
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use onefold_engine::primary::estimate::SizeEstimate;
use onefold_format::codec::Compression;
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    Chunks are compressed one by one, as the paper does it: a large chunk gives the compressor \
    more to refer to, and has less beside it that says where it is. What small chunks find in \
    duplicates they lose there. A store of ours compresses 256 KiB at once whatever the size of \
    chunks, so that small chunks lose less in it than here. Where files are small, most chunks \
    end with them and are far smaller than was asked for; the metadata falls less then.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "primary-savings",
        claim: "With compression, chunks of 64 KiB save as much as small ones, with a fraction of \
                the metadata.",
        items: "S4.2",
        tolerance: "Without compression savings fall from each size to the next; with it chunks \
                    of 64 KiB save at most one point less than the best size of 4 to 32 KiB; the \
                    metadata of 64 KiB is at most a quarter of that of 8 KiB.",
        explanation: EXPLANATION,
    },
    run,
};

const SIZES_KIB: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let server = FileServer::new(setting.data.as_deref(), if setting.tiny { 60 } else { 600 })?;
    let averages = SIZES_KIB.map(|size| size * limits::KIB);
    let found = server.estimate(&averages, Compression::default())?;
    report.text(format!(
        "{} files, {:.1} MB, {:.1} MB on the disk.",
        found.counted.files,
        found.counted.bytes as f64 / 1e6,
        found.allocated_bytes as f64 / 1e6
    ));
    let columns = [
        "mean asked for, KiB",
        "mean, KiB",
        "chunks",
        "saved by duplicates, %",
        "and compression, %",
        "metadata, % of the data",
        "all together, %",
    ];
    let mut table = Table::new("savings", "Savings by chunk size", columns);
    for size in &found.sizes {
        table.row([
            Cell::count((size.chunker.size_avg_bytes / limits::KIB) as u64),
            Cell::real(size.total.mean_chunk_bytes() / 1024.0, 1),
            Cell::count(size.total.chunks),
            Cell::percent(size.total.saved(), 2),
            Cell::percent(size.total.saved_compressed(), 2),
            Cell::percent(metadata_share(size), 3),
            Cell::percent(size.total.saved_compressed() - metadata_share(size), 2),
        ]);
    }
    report.table(table);
    let series = |name: &str, value: fn(&SizeEstimate) -> f64| {
        let point = |size: &SizeEstimate| {
            (size.chunker.size_avg_bytes as f64 / 1024.0, value(size) * 100.0)
        };
        Series::new(name, found.sizes.iter().map(point).collect())
    };
    let lines = vec![
        series("duplicates", |size| size.total.saved()),
        series("duplicates and compression", |size| size.total.saved_compressed()),
    ];
    let chart = LineChart::new("Savings by chunk size", "mean chunk size, KiB", "saved, %", lines);
    report.lines("savings", &chart.scaled(Scale::Log, Scale::Linear))?;
    checks(report, &found.sizes);
    Ok(())
}

/// What says where chunks are, in parts of the data.
fn metadata_share(size: &SizeEstimate) -> f64 {
    let bytes = size.stored_bytes() - size.total.compressed_bytes;
    bytes as f64 / size.total.bytes.max(1) as f64
}

fn checks(report: &mut Report, sizes: &[SizeEstimate]) {
    let at = |kib: usize| sizes.iter().find(|size| size.chunker.size_avg_bytes == kib << 10);
    let (Some(small), Some(large)) = (at(8), at(64)) else { return };
    let falls = sizes.is_sorted_by(|a, b| a.total.saved() >= b.total.saved());
    report.check(
        "every figure is exact",
        sizes.iter().all(|size| size.sampled_one_in == 1),
        format!(
            "{} chunks in tables",
            sizes.iter().map(|size| size.tally.entries()).sum::<usize>()
        ),
    );
    report.check(
        "without compression larger chunks save less",
        falls,
        format!(
            "{:.2} % at 8 KiB, {:.2} % at 64 KiB",
            small.total.saved() * 100.0,
            large.total.saved() * 100.0
        ),
    );
    let up_to_32 = sizes.iter().filter(|size| size.chunker.size_avg_bytes < 64 << 10);
    let best = up_to_32.map(|size| size.total.saved_compressed()).fold(0.0, f64::max);
    let own = large.total.saved_compressed();
    report.check(
        "with compression 64 KiB saves at most a point less than the best of 4 to 32 KiB",
        own >= best - 0.01,
        format!("{:.2} % against {:.2} %", own * 100.0, best * 100.0),
    );
    report.check(
        "the metadata of 64 KiB is at most a quarter of that of 8 KiB",
        metadata_share(large) * 4.0 <= metadata_share(small),
        format!(
            "{:.3} % against {:.3} %",
            metadata_share(large) * 100.0,
            metadata_share(small) * 100.0
        ),
    );
}
