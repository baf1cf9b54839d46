//! How often chunks of files in use occur: where the duplicate bytes are, and what is unique.

use super::{Experiment, Setting};
use crate::primary::file_server::FileServer;
use crate::report::{Cell, Claim, Report, Table};
use onefold_engine::primary::estimate::SizeEstimate;
use onefold_format::codec::Compression;
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    The paper's distribution (GFS-Japan-1) reaches from 2 to many thousands of occurrences, and \
    its middle is tens to hundreds. Few files of a few owners have few copies, so here the middle \
    is 2 to 4. What follows is the same: an index of the chunks that occur often would miss most \
    of what there is to be found.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "primary-references",
        claim: "Most duplicate bytes are in chunks that occur few times, and most bytes occur \
                once.",
        items: "S4.3, S4.4",
        tolerance: "At 64 KiB chunks that occur more than 32 times have less than a quarter of the \
                    duplicate bytes; more than half of the bytes are in chunks that occur once.",
        explanation: EXPLANATION,
    },
    run,
};

const SIZES_KIB: [usize; 3] = [8, 64, 128];
/// Chunks that occur more often are those that a small index would hold.
const OFTEN: u32 = 32;

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let server = FileServer::new(setting.data.as_deref(), if setting.tiny { 60 } else { 600 })?;
    let averages = SIZES_KIB.map(|size| size * limits::KIB);
    let found = server.estimate(&averages, Compression::None)?;
    let columns = ["chunks of, KiB", "occurrences", "chunks", "bytes, %", "duplicate bytes, %"];
    let mut table = Table::new("occurrences", "Bytes by how often their chunk occurs", columns);
    for size in &found.sizes {
        for class in &size.occurrences {
            table.row([
                Cell::count((size.chunker.size_avg_bytes / limits::KIB) as u64),
                Cell::text(match class.least == class.most {
                    true => class.most.to_string(),
                    false => format!("{} to {}", class.least, class.most),
                }),
                Cell::count(class.chunks),
                Cell::percent(class.bytes_share, 2),
                Cell::percent(class.duplicates_share, 2),
            ]);
        }
    }
    report.table(table);
    let Some(size) = found.sizes.iter().find(|size| size.chunker.size_avg_bytes == 64 << 10) else {
        return Ok(());
    };
    let often = often_share(size);
    report.check(
        format!("chunks that occur more than {OFTEN} times have less than a quarter (S4.3)"),
        often < 0.25,
        format!("{:.2} % of the duplicate bytes", often * 100.0),
    );
    report.check(
        "more than half of the bytes are in chunks that occur once (S4.4)",
        size.unique_share() > 0.5,
        format!("{:.2} % of {:.1} MB", size.unique_share() * 100.0, size.total.bytes as f64 / 1e6),
    );
    Ok(())
}

fn often_share(size: &SizeEstimate) -> f64 {
    let often = size.occurrences.iter().filter(|class| class.least > OFTEN);
    often.fold(0.0, |sum, class| sum + class.duplicates_share)
}
