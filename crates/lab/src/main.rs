//! The laboratory's program: runs the experiments, crawls, analyses and replays traces, measures.

use clap::{Args, Parser, Subcommand};
use onefold_chunking::ChunkerKind;
use onefold_engine::environment::SystemClock;
use onefold_engine::index::IndexMode;
use onefold_format::index_run::IndexKind;
use onefold_lab::crawl::analysis::Analysis;
use onefold_lab::crawl::{self, Options};
use onefold_lab::device::{Device, measure};
use onefold_lab::experiment::{Experiment, Setting};
use onefold_lab::points::{self, Labels};
use onefold_lab::report::Report;
use onefold_lab::source::fsl::{FslTrace, Version};
use onefold_lab::{index_memory, replay};
use onefold_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A file system in memory, where there is one.
const MEMORY: &str = "/dev/shm";
/// What is measured of a device: bytes to read from, and reads.
const MEASURED_BYTES: usize = 256 << 20;
const MEASURED_READS: usize = 2000;

#[derive(Parser)]
#[command(version, about = "Runs Onefold's policies and index on traces and modelled devices")]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Names the experiments with their claims
    List,
    /// Runs an experiment, or all of them; fails if a claim does not hold
    Run(RunArgs),
    /// Writes a trace of a directory: files, chunk sizes, hashes, compressibility
    Crawl(CrawlArgs),
    /// Says what a store would make of traces
    Analyse {
        /// Traces (.hash.anon), analysed as if all were stored
        #[arg(value_name = "TRACE", required = true)]
        traces: Vec<PathBuf>,
    },
    /// Looks traces up with every strategy, on every modelled device
    Replay {
        /// Traces (.hash.anon) of consecutive versions, oldest first
        #[arg(value_name = "TRACE", required = true)]
        traces: Vec<PathBuf>,
    },
    /// Measures random reads of 4 KiB in a directory
    Measure {
        /// A directory on the device
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Draws points, one line for each series
    Plot(PlotArgs),
    /// Measures the memory of an index, in bytes: counted, grown by; asked, passed; ms to open
    IndexMemory {
        /// What the index keeps in memory
        #[arg(long, value_name = "KIND", default_value = "fuse")]
        kind: IndexKind,
        /// Hooks only
        #[arg(long)]
        sampled: bool,
        /// Entries
        #[arg(long, value_name = "N")]
        chunks: u64,
    },
}

#[derive(Args)]
struct RunArgs {
    /// The experiment, or all
    #[arg(value_name = "NAME")]
    name: String,
    /// Small traces, seconds in all, no real data: shows that the claims still hold
    #[arg(long, conflicts_with = "data")]
    tiny: bool,
    /// Real data: a directory with one directory, or (rewriting and restoring) one trace
    /// (.hash.anon), for each version, or (primary deduplication) one directory for each data set,
    /// or one of any form
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where reports go, each in a directory of its own [default: experiments/lookup,
    /// experiments/restore, experiments/collection or experiments/primary*; with --tiny
    /// no report is written]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct CrawlArgs {
    /// The directory to crawl
    #[arg(value_name = "DIR")]
    root: PathBuf,
    /// The trace to write; must not exist
    #[arg(value_name = "TRACE")]
    out: PathBuf,
    /// How files are cut: fixed, rabin, regression, fastcdc, mincdc
    #[arg(long, value_name = "KIND", default_value = "regression")]
    chunker: ChunkerKind,
    /// The mean size of chunks
    #[arg(long, value_name = "BYTES", default_value_t = 65_536)]
    average: usize,
    /// The version of the format, 1 to 7
    #[arg(long, value_name = "N", default_value_t = 7)]
    version: u32,
    /// Bytes kept of each SHA-256, 4 to 32; published traces keep 6
    #[arg(long, value_name = "N", default_value_t = 32)]
    hash_bytes: usize,
    /// Replaces names by digests
    #[arg(long)]
    anonymous: bool,
}

#[derive(Args)]
struct PlotArgs {
    /// Lines of x, series and y; what follows in a line is passed over
    #[arg(value_name = "FILE")]
    points: PathBuf,
    /// The title
    #[arg(long)]
    title: String,
    /// The name of the horizontal axis
    #[arg(long, value_name = "LABEL")]
    x: String,
    /// The name of the vertical axis
    #[arg(long, value_name = "LABEL")]
    y: String,
    /// The plot to write
    #[arg(long, value_name = "FILE.svg")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match perform(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("onefold-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// False if a claim does not hold.
fn perform(command: Commands) -> Result<bool> {
    match command {
        Commands::List => {
            for experiment in Experiment::ALL {
                println!("{:24}{}", experiment.claim.name, experiment.claim.claim);
            }
        }
        Commands::Run(args) => return run(&args),
        Commands::Crawl(args) => {
            let options = Options {
                version: Version::new(args.version)?,
                hash_bytes: args.hash_bytes,
                anonymous: args.anonymous,
                ..Options::new(args.chunker, args.average)?
            };
            let crawled = crawl::crawl(&args.root, &args.out, &options, &SystemClock)?;
            let crawl::Crawled { files, chunks, bytes } = crawled;
            println!("{files} files, {chunks} chunks, {bytes} bytes");
        }
        Commands::Analyse { traces } => print!("{}", analyse(&traces)?),
        Commands::Replay { traces } => {
            print!("{}", replay::compare(&FslTrace::new("trace", traces), &Device::modelled())?);
        }
        Commands::Measure { directory } => {
            let measured = measure::random_reads(&directory, MEASURED_BYTES, MEASURED_READS)?;
            let way =
                if measured.direct { "past the page cache" } else { "through the page cache" };
            println!(
                "median {} ns, 99th percentile {} ns, {} reads {way}",
                measured.median_ns, measured.high_ns, measured.reads
            );
        }
        Commands::Plot(args) => {
            let labels = Labels { title: &args.title, x: &args.x, y: &args.y };
            points::plot(&args.points, labels, &args.out)?;
        }
        Commands::IndexMemory { kind, sampled, chunks } => {
            let mode = if sampled { IndexMode::Sampled } else { IndexMode::Exact };
            println!("{}", index_memory::measure(kind, mode, chunks)?.line());
        }
    }
    Ok(true)
}

fn run(args: &RunArgs) -> Result<bool> {
    let experiments = Experiment::named(&args.name)?;
    let setting = Setting {
        tiny: args.tiny,
        data: args.data.clone(),
        measured: if args.tiny { Vec::new() } else { measured()? },
        program: std::env::current_exe().ok(),
    };
    let mut all_hold = true;
    for experiment in experiments {
        let report = experiment.run(&setting)?;
        show(&report);
        all_hold &= report.holds();
        let out = match &args.out {
            None if args.tiny => continue,
            None => Path::new(experiment.reports()),
            Some(directory) => directory,
        };
        report.write(&out.join(report.name()))?;
    }
    Ok(all_hold)
}

/// This machine's disk and its memory file system, if it has one.
fn measured() -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    let places = [("local disk, measured", "."), ("tmpfs, measured", MEMORY)];
    for (name, place) in places.into_iter().filter(|(_, place)| Path::new(place).is_dir()) {
        let measured = measure::random_reads(Path::new(place), MEASURED_BYTES, MEASURED_READS)?;
        devices.push(measured.device(name)?);
    }
    Ok(devices)
}

fn show(report: &Report) {
    let outcome = if report.holds() { "holds" } else { "DOES NOT HOLD" };
    println!("{}: {outcome}", report.name());
    for check in report.checks() {
        let mark = if check.holds { "  " } else { "! " };
        println!("  {mark}{}: {}", check.what, check.figures);
    }
}

fn analyse(traces: &[PathBuf]) -> Result<String> {
    let mut analysis = Analysis::default();
    analysis.add_all(traces)?;
    if analysis.total().chunks == 0 {
        return Err(Error::invalid("the traces hold no chunks"));
    }
    Ok(analysis.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn impossible_arguments_are_refused() {
        let refused: [&[&str]; 7] = [
            &["run"],
            &["run", "auto", "--tiny", "--data", "x"],
            &["analyse"],
            &["crawl", "only-one"],
            &["crawl", "a", "b", "--chunker", "magic"],
            &["plot", "points", "--title", "t", "--x", "x", "--y", "y"],
            &["index-memory", "--kind", "magic", "--chunks", "1"],
        ];
        for line in refused {
            let line = std::iter::once(&"onefold-lab").chain(line);
            assert!(Cli::try_parse_from(line.clone()).is_err(), "{:?}", line.collect::<Vec<_>>());
        }
    }

    #[test]
    fn unknown_experiments_are_refused() {
        let args = RunArgs { name: "magic".into(), tiny: true, data: None, out: None };
        assert!(run(&args).unwrap_err().to_string().contains("lookup-devices"));
    }
}
