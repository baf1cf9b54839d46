//! Onefold measured against its peers, on the same data, in the same run.
//!
//! `peers` measures, `kernels` measures the engine alone, `index` its index at any size,
//! `databases` what may be beside it, `install-peers` brings the peers to this machine. `soak`
//! measures nothing: it looks for failures of the whole program under everything at once
//! (docs/TESTING.md). The method and the meaning of the figures of the first are in
//! `experiments/peers/README.md`.

mod compare;
mod databases;
mod dataset;
mod index;
mod install;
mod kernels;
mod machine;
mod measure;
mod plot;
mod report;
mod results;
mod run;
mod soak;
mod space;
mod targets;
mod tools;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dataset::Dataset;
use machine::Machine;
use report::{Context, REPORT_FILE};
use results::{Recorder, Results};
use run::Plan;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};
use tempfile::TempDir;
use tools::{Found, Search};

/// Where restored trees go if it is a file system in memory.
const MEMORY: &str = "/dev/shm";
const RUNS: &str = "experiments/peers/runs";

#[derive(Parser)]
#[command(version, about = "Measures Onefold against its peers, and soaks it")]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Runs the same backups with every tool found, and writes a report
    Peers(PeersArgs),
    /// Measures what one core does on the main paths, in memory
    Kernels {
        /// Files to take the data from [default: generated text]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Measures how many entries a second a database beside a store takes and gives
    Databases(databases::DatabasesArgs),
    /// Measures the fingerprint index: memory, look-ups, opening a large store
    Index(index::IndexArgs),
    /// Runs thousands of commands at once on stores that it disturbs, and compares what is restored
    Soak(soak::SoakArgs),
    /// Installs the peers through this machine's package managers
    InstallPeers {
        /// Where programs go if the package manager lets one choose
        #[arg(long, value_name = "DIR", default_value = "/usr/local")]
        prefix: PathBuf,
    },
}

#[derive(Args)]
struct PeersArgs {
    /// The data, in g00, g01, ...; data set A is made there if there is none (may be repeated)
    #[arg(long, value_name = "DIR", required_unless_present = "tiny")]
    data: Vec<PathBuf>,
    /// Makes a small synthetic data set itself and runs in seconds: shows that all works, no more
    #[arg(long, conflicts_with = "data")]
    tiny: bool,
    /// The onefold binary [default: the one in PATH]
    #[arg(long, value_name = "FILE")]
    onefold: Option<PathBuf>,
    /// How often everything is run [default: 3, with --tiny 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// The tools that take part, by binary [default: every one that is found]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Vec<String>,
    /// All variants of each tool, such as levels of compression, not its standard ones only
    #[arg(long)]
    variants: bool,
    /// Only one way to store the data [default: both]
    #[arg(long, value_name = "HOW")]
    only: Option<Way>,
    /// Where the report goes [default: a new directory in experiments/peers/runs; with --tiny the
    /// report is printed]; of several data sets each has a directory of its name there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where repositories and caches are kept while they are needed
    #[arg(long, value_name = "DIR", default_value = ".")]
    work: PathBuf,
}

/// How the data are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Generation by generation, and everything that is done with snapshots
    Trees,
    /// As one tar stream
    Stream,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Commands::Peers(args) => peers(&args),
        Commands::Kernels { data } => kernels::run(data.as_deref())
            .map(|table| {
                print!("{table}");
                true
            })
            .map_err(io::Error::other),
        Commands::Index(args) => index::run(&args).map(|table| {
            print!("{table}");
            true
        }),
        Commands::Databases(args) => databases::run(&args)
            .map(|table| {
                print!("{table}");
                true
            })
            .map_err(io::Error::other),
        Commands::Soak(args) => soak::run(&args),
        Commands::InstallPeers { prefix } => {
            let outcomes = install::install_peers(&prefix);
            outcomes.iter().for_each(|line| println!("{line}"));
            Ok(true)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("onefold-benchmark: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and reports. False if the project's own tool failed at anything.
fn peers(args: &PeersArgs) -> io::Result<bool> {
    let mut search = tools::search(&args.tools, args.onefold.as_deref(), args.variants)?;
    if search.found.is_empty() {
        return Err(io::Error::other("none of the tools is installed; see install-peers"));
    }
    std::fs::create_dir_all(&args.work)?;
    let place = TempDir::with_prefix_in("onefold-benchmark-", args.work.canonicalize()?)?;
    let work = place.path();
    tools::pin_own(&mut search.found, work)?;
    if args.tiny {
        let data = dataset::make_tiny(&work.join("data"))?;
        let out = args.out.clone().unwrap_or_else(|| work.join("report"));
        let file = measure_data_set(args, &search, &data, work, &out)?;
        return print_report(&file.0, args.out.is_none()).map(|()| file.1);
    }
    for directory in &args.data {
        dataset::ensure_data_set_a(directory)?;
    }
    let names = names_of(&args.data)?;
    let out = match &args.out {
        Some(directory) => directory.clone(),
        None => next_directory(Path::new(RUNS), &machine::today())?,
    };
    let mut right = true;
    for (directory, name) in args.data.iter().zip(&names) {
        let out = if names.len() == 1 { out.clone() } else { out.join(name) };
        // Opened when it is its turn, for opening brings it into memory.
        let data = Dataset::open(directory)?;
        let (file, own) = measure_data_set(args, &search, &data, work, &out)?;
        print_report(&file, false)?;
        right &= own;
    }
    Ok(right)
}

/// Performs all runs on one data set. Returns the report's file, and whether the project's own tool
/// did everything right.
fn measure_data_set(
    args: &PeersArgs,
    search: &Search,
    data: &Dataset,
    work: &Path,
    out: &Path,
) -> io::Result<(PathBuf, bool)> {
    let restores = restores(work);
    let context = Context {
        date: machine::today(),
        commit: machine::commit(),
        machine: Machine::describe(work, &restores)?,
        tools: &search.found,
        missing: &search.missing,
        data,
        runs: args.runs.map_or(if args.tiny { 1 } else { 3 }, usize::from),
    };
    let mut recorder = Recorder::start(out, &raw_head(&context))?;
    let plan = Plan {
        tools: &search.found,
        trees: args.only != Some(Way::Stream),
        stream: args.only != Some(Way::Trees),
        data,
        work,
        restores: &restores,
    };
    let file = out.join(REPORT_FILE);
    for number in 1..=context.runs {
        run::perform(&plan, number, &mut recorder)?;
        // Written after every run, so that a later one cut short loses nothing.
        fs::write(&file, report::render(&context, &recorder.results))?;
        for (name, svg) in space::plots(&context, &recorder.results) {
            fs::write(out.join(name).with_extension("svg"), svg)?;
        }
    }
    let right = own_tool_is_right(&search.found, &recorder.results);
    Ok((file, right))
}

fn print_report(file: &Path, whole: bool) -> io::Result<()> {
    if whole {
        print!("{}", fs::read_to_string(file)?);
    } else {
        println!("{}", file.display());
    }
    Ok(())
}

/// The names of directories, by which their reports are told apart.
fn names_of(directories: &[PathBuf]) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for directory in directories {
        let whole = directory.canonicalize()?;
        let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if names.contains(&name) {
            let message = format!("two data directories are called {name:?}; rename one");
            return Err(io::Error::other(message));
        }
        names.push(name);
    }
    Ok(names)
}

/// In memory if this machine has a place for it, so that restores are not measured by the disk.
fn restores(work: &Path) -> PathBuf {
    match machine::file_system_of(Path::new(MEMORY)) {
        Ok(kind) if kind == "tmpfs" => PathBuf::from(MEMORY),
        _ => work.to_path_buf(),
    }
}

/// Makes the first directory `<date>-<n>` that does not exist yet.
fn next_directory(parent: &Path, date: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(parent)?;
    for n in 1_u32.. {
        let directory = parent.join(format!("{date}-{n}"));
        match fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("there are too many runs of today"))
}

/// The first line of the raw data.
fn raw_head(context: &Context<'_>) -> serde_json::Value {
    let Context { date, commit, machine, data, .. } = context;
    let versions: serde_json::Map<_, _> = context
        .tools
        .iter()
        .map(|found| (found.label().to_string(), found.version.clone().into()))
        .collect();
    serde_json::json!({
        "kind": "head",
        "date": date,
        "commit": commit,
        "processor": machine.processor,
        "cores": machine.cores,
        "memory_mib": machine.memory_mib,
        "kernel": machine.kernel,
        "repositories": machine.repositories,
        "restores": machine.restores,
        "data": data.name,
        "generations": data.generations.len(),
        "bytes": data.total_bytes(),
        "increment_bytes": data.increment_bytes(),
        "versions": versions,
    })
}

fn own_tool_is_right(tools: &[Found], results: &Results) -> bool {
    let own: Vec<&str> = tools.iter().filter(|f| f.is_own()).map(Found::label).collect();
    results.failures.iter().all(|failure| !own.contains(&failure.tool))
        && results.verifications.iter().all(|v| !own.contains(&v.tool) || v.differences.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn tools_are_separated_by_commas() {
        let line = ["onefold-benchmark", "peers", "--tiny", "--tools", "restic,borg"];
        let Commands::Peers(args) = Cli::parse_from(line).command else { panic!("not peers") };
        assert_eq!(args.tools, ["restic", "borg"]);
        assert!(args.tiny && args.runs.is_none());
        assert!(Cli::try_parse_from(["onefold-benchmark", "peers"]).is_err());
    }

    #[test]
    fn every_report_gets_a_directory_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let first = next_directory(place.path(), "2026-11-21").unwrap();
        let second = next_directory(place.path(), "2026-11-21").unwrap();
        assert!(first.ends_with("2026-11-21-1") && second.ends_with("2026-11-21-2"));
    }

    #[test]
    fn reports_of_data_sets_are_told_apart_by_name() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let directory = place.path().join(name);
            fs::create_dir_all(&directory).unwrap();
            directory
        };
        let (a, b, other) = (make("a"), make("b"), make("other/a"));
        assert_eq!(names_of(&[a.clone(), b]).unwrap(), ["a", "b"]);
        assert!(names_of(&[a, other]).unwrap_err().to_string().contains("two data directories"));
    }

    #[test]
    fn only_variants_of_the_own_tool_decide_the_exit_code() {
        let any = Path::new("/bin/true");
        let own = tools::search(&["onefold".to_string()], Some(any), true).unwrap().found;
        let differences = vec!["a: missing".to_string()];
        let of = |tool| results::Verification { run: 1, tool, differences: differences.clone() };
        let right = |tools: &[&'static str]| {
            let verifications = tools.iter().copied().map(of).collect();
            own_tool_is_right(&own, &Results { verifications, ..Results::default() })
        };
        assert!(right(&[]) && right(&["restic", "restic max"]));
        for found in &own {
            assert!(!right(&["restic", found.label()]), "{}", found.label());
        }
    }
}
