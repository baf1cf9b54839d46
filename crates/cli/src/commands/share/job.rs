//! `share optimize` and `share rehydrate`.

use super::partitions::{self, PartitionArguments};
use crate::bounds::Period;
use crate::commands::gc;
use crate::context::{Access, Context, host_name, program, user_at_host, user_name};
use crate::exit::Outcome;
use crate::machine_notes::MachineNotes;
use crate::size::{counted, human};
use clap::Args;
use onefold_engine::collection::{self, CollectOptions, SpaceGoal};
use onefold_engine::ingest::BackupOptions;
use onefold_engine::primary::emptying::Left;
use onefold_engine::primary::optimize::{OptimizeOptions, OptimizeReport};
use onefold_engine::primary::turns::Partitions;
use onefold_engine::primary::{Share, optimize, rehydrate, repair};
use onefold_engine::{Job, Repository};
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_types::Result;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `share optimize`.
#[derive(Args, Debug)]
pub struct OptimizeArguments {
    /// The share
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Only show what would be stored
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Leave files alone that were changed within this span, whatever the share says
    #[arg(long, value_name = "SPAN")]
    min_age: Option<Period>,
    #[command(flatten)]
    partitions: PartitionArguments,
}

/// Arguments of `share rehydrate`.
#[derive(Args, Debug)]
pub struct RehydrateArguments {
    /// The share
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// How to optimise.
pub fn options(context: &Context, repository: &Repository, dry_run: bool) -> OptimizeOptions {
    let backup = BackupOptions {
        host: host_name(),
        user: user_name(),
        compression: context.profile.compression,
        threads: context.threads,
        dry_run,
        device_costs: MachineNotes::load(repository).costs(),
        program: program(),
        ..BackupOptions::default()
    };
    OptimizeOptions { backup, cold: None, partitions: Partitions::None, by: user_at_host() }
}

/// Optimises the cold files of a share.
pub fn optimize(context: &Context, arguments: &OptimizeArguments) -> Result<Outcome> {
    let partitions = arguments.partitions.partitions()?;
    let share = Share::open(&arguments.directory)?;
    let access = if arguments.dry_run { Access::Read } else { Access::Write };
    let repository = context.open(access)?;
    let mut options = options(context, &repository, arguments.dry_run);
    options.partitions = partitions;
    if let Some(Period(age)) = arguments.min_age {
        let now_ns = repository.environment().clock.now_ns();
        let age_ns = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        options.cold = Some(ColdFiles {
            modified_before_ns: now_ns.saturating_sub(age_ns),
            size_min_bytes: share.policy.size_min_bytes,
        });
    }
    let running = context.start_job("optimising")?;
    let report = optimize::optimize(&repository, &share, &options, &running.job);
    let problems = running.finish();
    let report = report?;
    if !share.is_mounted() && report.emptied.files > 0 {
        let shown = arguments.directory.display().to_string();
        context.output.warning(&not_mounted(&shown));
    }
    tell(context, &report)?;
    context.output.message("optimized", fields(&report))?;
    Ok(Outcome::with_problems(problems))
}

/// What to say of stubs that nobody sees whole.
pub fn not_mounted(shown: &str) -> String {
    format!("'{shown}' is not mounted: its files show zeros until 'onefold share mount {shown}'")
}

/// Says what a run has done.
pub fn tell(context: &Context, report: &OptimizeReport) -> Result<()> {
    let OptimizeReport { backup, emptied, left, .. } = report;
    let summary = &backup.summary;
    let of = |why| left.get(&why).copied().unwrap_or_default();
    context.output.row(&format!(
        "read        {} of {}",
        human(summary.bytes_read),
        counted(summary.files_new + summary.files_changed, "file")
    ))?;
    context.output.row(&format!("stored      {}", human(summary.bytes_stored)))?;
    partitions::tell(context, report)?;
    context.output.row(&format!(
        "optimised   {}, {}; {} of the disk freed",
        counted(emptied.files, "file"),
        human(emptied.bytes),
        human(emptied.freed_bytes)
    ))?;
    for (why, what) in [(Left::Open, "open"), (Left::Changed, "changed meanwhile")] {
        if of(why) > 0 {
            context.output.row(&format!("left alone  {}, {what}", counted(of(why), "file")))?;
        }
    }
    if report.manifests_kept > 0 {
        context
            .output
            .note("files were moved meanwhile: what earlier runs stored stays until a later one")?;
    }
    Ok(())
}

/// The same for programs.
pub fn fields(report: &OptimizeReport) -> serde_json::Value {
    let OptimizeReport { backup, emptied, left, .. } = report;
    let summary = &backup.summary;
    let of = |why| left.get(&why).copied().unwrap_or_default();
    json!({
        "manifest": backup.snapshot.or(backup.parent).map(|id| id.to_string()),
        "files_read": summary.files_new + summary.files_changed,
        "bytes_read": summary.bytes_read,
        "bytes_stored": summary.bytes_stored,
        "chunks": summary.chunks,
        "chunks_new": summary.chunks_new,
        "files_optimized": emptied.files,
        "bytes_optimized": emptied.bytes,
        "bytes_freed": emptied.freed_bytes,
        "files_open": of(Left::Open),
        "files_changed": of(Left::Changed),
        "errors": report.errors + summary.errors,
        "manifests_forgotten": report.manifests_forgotten,
        "manifests_kept": report.manifests_kept,
        "partitions": partitions::fields(&report.turns),
        "in_common": partitions::in_common(report),
    })
}

/// Brings all data of a share back.
pub fn rehydrate(context: &Context, arguments: &RehydrateArguments) -> Result<Outcome> {
    let share = Share::open(&arguments.directory)?;
    let repository = context.open(Access::Write)?;
    let options = options(context, &repository, false);
    let running = context.start_job("bringing back")?;
    let mut collect = || collect(&repository, &running.job);
    let report = rehydrate::rehydrate(&repository, &share, &options, &mut collect, &running.job);
    let problems = running.finish();
    let report = report?;
    context.output.row(&format!(
        "brought back  {}, {}",
        counted(report.files, "file"),
        human(report.bytes)
    ))?;
    if report.open > 0 {
        context.output.warning(&format!(
            "{} open and left as they are; close them and run this again",
            counted(report.open, "file")
        ));
    }
    context.output.message(
        "rehydrated",
        json!({
            "files": report.files,
            "bytes": report.bytes,
            "files_open": report.open,
            "errors": report.errors,
            "collections": report.collections,
        }),
    )?;
    Ok(Outcome::with_problems(problems + report.open))
}

/// Brings the data back into copies of stubs.
pub fn repair(context: &Context, directory: &Path) -> Result<Outcome> {
    let share = Share::open(directory)?;
    let repository = context.open(Access::Read)?;
    let running = context.start_job("looking at files")?;
    let report = repair::repair(&repository, &share, &running.job);
    let problems = running.finish();
    let report = report?;
    context.output.row(&format!(
        "brought back  {}, {}",
        counted(report.files, "file"),
        human(report.bytes)
    ))?;
    let fields = json!({ "files": report.files, "bytes": report.bytes, "errors": problems });
    context.output.message("repaired", fields)?;
    Ok(Outcome::with_problems(problems))
}

/// Frees what nobody needs any more, on a full disk.
fn collect(repository: &Arc<Repository>, job: &Job) -> Result<()> {
    let options = CollectOptions {
        goal: SpaceGoal::Everything,
        scratch: gc::scratch(),
        ..CollectOptions::default()
    };
    collection::collect(repository, &options, job).map(drop)
}
