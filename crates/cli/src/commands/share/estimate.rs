//! `share estimate`: what deduplicating a directory would cost and give.

mod report;

use crate::bounds::{Period, Rate, Share};
use crate::context::Context;
use crate::exit::Outcome;
use crate::size::ByteSize;
use crate::{files, store_path};
use clap::Args;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::patterns::Patterns;
use onefold_engine::primary::estimate::{self, EstimateOptions, Selection};
use onefold_engine::primary::share::CONTROL;
use onefold_format::codec::Compression;
use onefold_store::layers::ThrottleLimits;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const AFTER_HELP: &str = "\
Every file is read once and nothing is changed, not even a time of access where this user may ask
for that. Links are not followed, and a file with several names counts once. If the fingerprints
of all chunks do not fit into the memory limit, one in so many is looked at, and that is said.
What cannot be read is listed, and the exit code is 3.

EXAMPLES
  onefold share estimate /srv/files
  onefold share estimate /srv/files --min-age 30d --min-size 64KiB --exclude '*.tmp'
  onefold share estimate /srv/files --state /var/tmp/files.estimate --max-io 20MiB";

/// How often the state is saved on the way.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Arguments of `share estimate`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct EstimateArguments {
    /// The directory to read
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    policy: PolicyArguments,
    /// Means of chunk sizes, separated by commas
    #[arg(help_heading = "How", long, value_name = "SIZE,..", value_delimiter = ',')]
    #[arg(default_values = ["16KiB", "64KiB", "128KiB"], hide_default_value = true)]
    #[arg(long_help = "Means of chunk sizes, separated by commas [default: 16KiB,64KiB,128KiB]")]
    chunk_size: Vec<ByteSize>,
    /// How files are cut: fixed, rabin, regression, fastcdc or mincdc
    #[arg(help_heading = "How", long, value_name = "KIND")]
    #[arg(default_value_t = ChunkerKind::Regression)]
    chunker: ChunkerKind,
    /// How chunks would be compressed: none, lz4, zstd or zstd,LEVEL
    #[arg(help_heading = "How", long, value_name = "METHOD")]
    compression: Option<Compression>,
    /// Keep in this file what was read, and go on from it the next time: what is unchanged is not
    /// read again
    #[arg(help_heading = "How", long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Bytes to read a second, at most
    #[arg(help_heading = "How", long, value_name = "SIZE")]
    max_io: Option<Rate>,
    /// Share of the time to work, at most, such as 25%
    #[arg(help_heading = "How", long, value_name = "PERCENT%")]
    max_cpu: Option<Share>,
}

/// Which files would be taken.
#[derive(Args, Debug)]
#[command(next_help_heading = "What to leave alone")]
struct PolicyArguments {
    /// Leave files alone that were modified since, such as 30d
    #[arg(long, value_name = "DURATION")]
    min_age: Option<Period>,
    /// Leave files alone that are smaller
    #[arg(long, value_name = "SIZE")]
    min_size: Option<ByteSize>,
    /// Take only what matches (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    include: Vec<OsString>,
    /// The same, whatever the case
    #[arg(long, value_name = "PATTERN")]
    iinclude: Vec<OsString>,
    /// Leave alone what matches (may be repeated)
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// The same, whatever the case
    #[arg(long, value_name = "PATTERN")]
    iexclude: Vec<OsString>,
    /// Leave alone what matches a pattern in this file (may be repeated)
    #[arg(long, value_name = "FILE")]
    exclude_file: Vec<PathBuf>,
    /// Look into directories of other file systems as well
    #[arg(long)]
    other_file_systems: bool,
}

impl PolicyArguments {
    fn selection(&self) -> Result<Selection> {
        let mut exclude = store_path::as_given(&self.exclude);
        for file in &self.exclude_file {
            exclude.extend(files::read_lines(file).context(|| "exclude file")?);
        }
        let set = |exact: Vec<Vec<u8>>, any_case: &[OsString]| {
            let any_case = store_path::with_home(store_path::as_given(any_case))?;
            Patterns::build(&store_path::with_home(exact)?, &any_case)
        };
        let has_includes = !self.include.is_empty() || !self.iinclude.is_empty();
        let includes = set(store_path::as_given(&self.include), &self.iinclude)?;
        Ok(Selection {
            excludes: set(exclude, &self.iexclude)?,
            includes: has_includes.then_some(includes),
            modified_before_ns: self.min_age.map(|age| before_ns(age.0)),
            size_min_bytes: self.min_size.map_or(0, |size| size.0),
            one_file_system: !self.other_file_systems,
        })
    }
}

/// The moment so long ago.
fn before_ns(age: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ns = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    ns(now).saturating_sub(ns(age))
}

impl EstimateArguments {
    fn options(&self, context: &Context) -> Result<EstimateOptions> {
        let chunker = |size: &ByteSize| {
            ChunkerParameters::with_average(self.chunker, size.in_memory()?)
                .context(|| format!("--chunk-size {size}"))
        };
        let mut sizes = self.chunk_size.clone();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() > estimate::SIZES_MAX {
            return Err(Error::invalid(format!(
                "{} chunk sizes are too many at once: at most {}",
                sizes.len(),
                estimate::SIZES_MAX
            )));
        }
        Ok(EstimateOptions {
            chunkers: sizes.iter().map(chunker).collect::<Result<_>>()?,
            compression: self.compression.or(context.profile.compression).unwrap_or_default(),
            selection: self.policy.selection()?,
            limits: ThrottleLimits {
                bytes_per_second: self.max_io.map(|rate| rate.0),
                work_share: self.max_cpu.map(|share| share.0),
            },
            memory_bytes: context.memory.limit_bytes,
            state: self.state.clone(),
            save_interval: SAVE_INTERVAL,
        })
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &EstimateArguments) -> Result<Outcome> {
    let options = arguments.options(context)?;
    if arguments.directory.join(CONTROL).exists() {
        context.output.warning(&format!(
            "{} is a share already, and not mounted: what was optimised counts as holes",
            arguments.directory.display()
        ));
    }
    let running = context.start_job("reading")?;
    let found = estimate::estimate(&arguments.directory, &options, &running.job)?;
    let problems = running.finish().max(found.unreadable);
    if let Some(state) = &options.state {
        context.output.set_done(format!("the state {} is saved", state.display()));
    }
    if let Some(includes) = &options.selection.includes {
        store_path::warn_of_unmatched(&context.output, includes);
    }
    store_path::warn_of_unmatched(&context.output, &options.selection.excludes);
    report::print(context, &found, options.compression)?;
    Ok(Outcome::with_problems(problems))
}
