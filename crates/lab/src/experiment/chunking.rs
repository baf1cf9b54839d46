//! Fixed against content-defined chunks, on data that shifts, on data that is aligned, and on real
//! directories: the side remark at the end of FAST'08.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, Report, Table};
use crate::simulation::Setup;
use crate::source::generator::{Generator, Parameters, Preset};
use crate::source::tree::{self, Layout, Reader};
use crate::trace::{Chunk, Recorded, Summary};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_policy::FilterOrder;
use onefold_policy::lookup::LookupStrategy;
use onefold_types::Result;

const EXPLANATION: &str = "\
    As in the paper, files that an insertion shifts have nothing in common at fixed boundaries, \
    and data aligned at mailboxes keeps about two thirds of its duplicates. The paper's ratios \
    are higher because its backups were many more (135 and 100). Real trees read file by file \
    hold little that shifts, so fixed chunks come closer there than in an archive. The look-up \
    techniques do not care how chunks were cut (S1.40): the share of look-ups that read the \
    device is the same within a factor of two.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "chunking",
        claim: "Where an insertion shifts what follows, fixed chunks deduplicate next to nothing; \
                where data is aligned they come close to content-defined ones, and the look-up \
                techniques work for them as well.",
        items: "S1.39, S1.40, S4.7",
        tolerance: "On shifted data fixed chunks stay below 1.3 : 1 and every content-defined \
                    chunker above 3 : 1; on aligned data fixed chunks reach at least half of the \
                    best; look-ups that read the device stay below 2 % with every chunker.",
        explanation: EXPLANATION,
    },
    run,
};

const AVERAGE_BYTES: usize = 8192;
/// Mailboxes begin at multiples of this.
const ALIGNMENT_BYTES: usize = 8192;

/// The stream of one generation, or where it is read from.
enum Data {
    /// A generated stream; files padded or not.
    Generated { generator: Generator, aligned: bool },
    /// Directories.
    Real { versions: Vec<std::path::PathBuf>, layout: Layout },
}

struct Case {
    name: &'static str,
    /// Deduplication in the paper: fixed, content-defined.
    paper: Option<(f64, f64)>,
    data: Data,
}

struct Row {
    kind: ChunkerKind,
    chunks: u64,
    mean_bytes: f64,
    ratio: f64,
    read_share: f64,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let columns = [
        "data",
        "chunker",
        "chunks",
        "mean bytes",
        "deduplication",
        "paper's",
        "look-ups that read the device, %",
    ];
    let caption = "Chunks of 8 KiB on average; both helpers, product's index";
    let mut table = Table::new("chunkers", caption, columns);
    for case in cases(setting)? {
        let rows = parallel::map(&ChunkerKind::ALL, parallel::threads(), |kind| {
            measure(&case.data, *kind, setting.tiny)
        })?;
        for row in &rows {
            let paper = case.paper.map(|(fixed, content)| match row.kind {
                ChunkerKind::Fixed => fixed,
                _ => content,
            });
            table.row([
                Cell::text(case.name),
                Cell::text(row.kind.to_string()),
                Cell::count(row.chunks),
                Cell::real(row.mean_bytes, 0),
                Cell::real(row.ratio, 2),
                paper.map_or(Cell::Missing, |paper| Cell::real(paper, 2)),
                Cell::percent(row.read_share, 3),
            ]);
        }
        checks(report, &case, &rows);
    }
    report.table(table);
    Ok(())
}

fn cases(setting: &Setting) -> Result<Vec<Case>> {
    let generated = |preset, aligned| -> Result<Data> {
        let chunks = if setting.tiny { 300 } else { 4000 };
        let mut parameters = Parameters::preset(preset, chunks);
        parameters.generations = if setting.tiny { 8 } else { 30 };
        parameters.generations_min = parameters.generations;
        parameters.schedule = crate::source::generator::Schedule::Full;
        // As many chunks as in the paper's mailboxes cannot be changed within so few generations.
        if aligned {
            parameters.file_chunks = 12.0;
            parameters.shifting_share = 0.4;
            (parameters.added_share, parameters.deleted_share) = (0.01, 0.01);
            (parameters.changed_share, parameters.moved_share) = (0.05, 0.0);
            parameters.run_chunks = 4.0;
        }
        Ok(Data::Generated { generator: Generator::new(parameters)?, aligned })
    };
    let mut cases = vec![
        Case {
            name: "shifted (engineering)",
            paper: Some((1.01, 6.39)),
            data: generated(Preset::Engineering, false)?,
        },
        Case {
            name: "aligned (exchange)",
            paper: Some((6.61, 10.28)),
            data: generated(Preset::Exchange, true)?,
        },
    ];
    if let Some(data) = &setting.data {
        let versions = tree::versions(data)?;
        let real = |layout| Data::Real { versions: versions.clone(), layout };
        let archive = ("real data, as an archive", Layout::Archive);
        for (name, layout) in [archive, ("real data, file by file", Layout::Files)] {
            cases.push(Case { name, paper: None, data: real(layout) });
        }
    }
    Ok(cases)
}

fn measure(data: &Data, kind: ChunkerKind, tiny: bool) -> Result<Row> {
    let parameters = ChunkerParameters::with_average(kind, AVERAGE_BYTES)?;
    let trace = match data {
        Data::Real { versions, layout } => {
            tree::read_versions("real data", versions, &parameters, *layout)?
        }
        Data::Generated { generator, aligned } => cut(generator, *aligned, &parameters)?,
    };
    let total = Summary::of(&trace)?.total();
    let strategy = LookupStrategy::Eager(FilterOrder::CacheFirst);
    let container_chunks = if tiny { 128 } else { 1024 };
    // Memory for the fingerprints of two generations or more, as FAST'08 had.
    let setup = Setup { container_chunks, ..Setup::new(strategy, 32 << 20) };
    let looked_up = setup.run(&trace)?.total();
    Ok(Row {
        kind,
        chunks: total.chunks,
        mean_bytes: total.bytes as f64 / total.chunks.max(1) as f64,
        ratio: total.ratio(),
        read_share: looked_up.counters.device_reads() as f64 / looked_up.chunks.max(1) as f64,
    })
}

/// Makes the bytes of every generation and cuts them.
fn cut(generator: &Generator, aligned: bool, parameters: &ChunkerParameters) -> Result<Recorded> {
    let reader = Reader::new(parameters)?;
    let mut trace = Recorded::new("generated");
    generator.replay_files(0, &mut |generation, files| {
        let mut bytes = Vec::new();
        for file in files {
            file.iter().try_for_each(|number| generator.append_bytes(*number, &mut bytes))?;
            if aligned {
                bytes.resize(bytes.len().next_multiple_of(ALIGNMENT_BYTES), 0);
            }
        }
        let chunks: Vec<Chunk> = reader.chunks(&mut bytes.as_slice())?;
        trace.push_generation(0, generation, &chunks);
        Ok(())
    })?;
    Ok(trace)
}

fn checks(report: &mut Report, case: &Case, rows: &[Row]) {
    let ratio = |kind| rows.iter().find(|row| row.kind == kind).map_or(0.0, |row| row.ratio);
    let by_content = rows.iter().filter(|row| row.kind != ChunkerKind::Fixed);
    let least = by_content.clone().map(|row| row.ratio).fold(f64::INFINITY, f64::min);
    let best = by_content.map(|row| row.ratio).fold(0.0, f64::max);
    let fixed = ratio(ChunkerKind::Fixed);
    let figures = format!("fixed {fixed:.2}, by content {least:.2} to {best:.2}");
    let name = case.name;
    match &case.data {
        Data::Generated { aligned: false, .. } => {
            let holds = fixed < 1.3 && least > 3.0;
            report.check(format!("{name}: fixed chunks find nothing"), holds, figures);
        }
        Data::Generated { aligned: true, .. } => {
            let holds = fixed >= best / 2.0;
            report.check(format!("{name}: fixed chunks find at least half"), holds, figures);
        }
        Data::Real { .. } => {
            let holds = least > fixed;
            report.check(format!("{name}: content-defined chunks find more"), holds, figures);
        }
    }
    let most = rows.iter().map(|row| row.read_share).fold(0.0, f64::max);
    report.check(
        format!("{name}: look-ups read the device for less than 2 % of chunks"),
        most < 0.02,
        format!("{:.3} % at most", most * 100.0),
    );
}
