//! `share optimize`, `share rehydrate` and `share repair`.

use super::creating::refuse_store_in;
use super::lost;
use super::partitions::{self, PartitionArguments};
use crate::bounds::Period;
use crate::commands::gc;
use crate::commands::look_up::{self, LookUpArguments};
use crate::context::{Access, Context, host_name, program, user_at_host, user_name};
use crate::exit::Outcome;
use crate::size::{counted, human};
use clap::Args;
use onefold_engine::collection::{self, CollectOptions, SpaceGoal};
use onefold_engine::ingest::BackupOptions;
use onefold_engine::primary::addresses::Standing;
use onefold_engine::primary::emptying::Left;
use onefold_engine::primary::optimize::{OptimizeOptions, OptimizeReport};
use onefold_engine::primary::repair::{CopyReport, RepairReport};
use onefold_engine::primary::second_copies::Kept;
use onefold_engine::primary::turns::Partitions;
use onefold_engine::primary::{Share, optimize, rehydrate, repair};
use onefold_engine::{Job, Repository};
use onefold_format::delta::DeltaChoice;
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_types::{Error, ErrorKind, Result};
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
    /// Also of a share that was mounted before and is not now
    #[arg(long)]
    unmounted: bool,
    #[command(flatten)]
    partitions: PartitionArguments,
    #[command(flatten)]
    look_up: LookUpArguments,
}

/// Arguments of `share rehydrate`.
#[derive(Args, Debug)]
pub struct RehydrateArguments {
    /// The share
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// How to optimise.
pub fn options(
    context: &Context,
    repository: &Repository,
    dry_run: bool,
    look_up: &LookUpArguments,
) -> OptimizeOptions {
    let mut backup = BackupOptions {
        host: host_name(),
        user: user_name(),
        compression: context.profile.compression,
        // What is read at any offset at any time is not to need two reads.
        delta: Some(DeltaChoice::Off),
        threads: context.threads,
        dry_run,
        program: program(),
        ..BackupOptions::default()
    };
    look_up.apply(context, repository, &mut backup);
    OptimizeOptions {
        backup,
        cold: None,
        partitions: Partitions::None,
        by: user_at_host(),
        forgets_at_once: false,
        shares_disk: true,
    }
}

/// Optimises the cold files of a share.
pub fn optimize(context: &Context, arguments: &OptimizeArguments) -> Result<Outcome> {
    let partitions = arguments.partitions.partitions()?;
    let share = Share::open(&arguments.directory)?;
    refuse_store_in(&arguments.directory, context.store_directory()?.as_deref())?;
    if !arguments.unmounted && !arguments.dry_run {
        share.refuse_unmounted()?;
    }
    let access = if arguments.dry_run { Access::Read } else { Access::Write };
    let repository = context.open(access)?;
    let mut options = options(context, &repository, arguments.dry_run, &arguments.look_up);
    options.partitions = partitions;
    options.shares_disk = is_on_disk_of(&share, context.store_directory()?.as_deref());
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
    if report.backup.snapshot.is_some() {
        look_up::remember(&repository, &report.backup);
    }
    if !share.is_mounted() && report.emptied.files > 0 {
        let shown = arguments.directory.display().to_string();
        context.output.warning(&not_mounted(&shown));
    }
    tell(context, &report, arguments.dry_run)?;
    context.output.message("optimized", fields(&report))?;
    Ok(Outcome::with_problems(problems + report.files_put_off))
}

/// What to say of stubs that nobody sees whole.
pub fn not_mounted(shown: &str) -> String {
    format!("'{shown}' is not mounted: its files show zeros until 'onefold share mount {shown}'")
}

/// Says what a run has done, or would have done.
pub fn tell(context: &Context, report: &OptimizeReport, dry_run: bool) -> Result<()> {
    let OptimizeReport { backup, emptied, left, .. } = report;
    let summary = &backup.summary;
    let of = |why| left.get(&why).copied().unwrap_or_default();
    context.output.row(&format!(
        "read        {} of {}",
        human(summary.bytes_read),
        counted(summary.files_new + summary.files_changed, "file")
    ))?;
    context.output.row(&match dry_run {
        true => format!("would store {}, less what compression saves", human(summary.bytes_new)),
        false => format!("stored      {}", human(summary.bytes_stored)),
    })?;
    partitions::tell(context, report)?;
    if !dry_run {
        context.output.row(&format!(
            "optimised   {}, {}; {} of the disk freed",
            counted(emptied.files, "file"),
            human(emptied.bytes),
            human(emptied.freed_bytes)
        ))?;
    }
    if report.second_copies.are_new {
        let Kept { chunks, bytes, .. } = report.second_copies;
        let shown = counted(chunks, "chunk");
        context
            .output
            .row(&format!("kept twice  {shown} that very many files have, {}", human(bytes)))?;
    }
    for (why, what) in [(Left::Open, "open"), (Left::Changed, "changed meanwhile")] {
        if of(why) > 0 {
            context.output.row(&format!("left alone  {}, {what}", counted(of(why), "file")))?;
        }
    }
    if report.files_put_off > 0 {
        context.output.row(&format!(
            "left alone  {}, for whose data the disk has no room now; 'onefold gc' may make some",
            counted(report.files_put_off, "file")
        ))?;
    }
    if report.files_linked > 0 {
        context.output.row(&format!(
            "left alone  {}, with names outside the share, left out, or made meanwhile",
            counted(report.files_linked, "file")
        ))?;
    }
    for (files, what) in [
        (report.written_below, "written into without the mount; what was written was kept"),
        (report.lost.files(), "stubs that lost their attribute; 'onefold share repair' mends them"),
        (report.moved_here, "moved here out of other shares without the mount; kept here now"),
    ] {
        if files > 0 {
            context.output.row(&format!("found       {}, {what}", counted(files, "file")))?;
        }
    }
    let damaged = backup.damaged_stubs.files;
    if damaged > 0 {
        context
            .output
            .row(&format!("damaged     {}, kept as they are", counted(damaged, "file")))?;
    }
    if report.manifests_kept > 0 {
        context.output.note(
            "files were moved meanwhile, or could not be looked at: what earlier runs stored stays \
             until a later one",
        )?;
    }
    lost::warn_of_others(context, &report.elsewhere);
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
        "bytes_new": summary.bytes_new,
        "bytes_stored": summary.bytes_stored,
        "chunks": summary.chunks,
        "chunks_new": summary.chunks_new,
        "files_optimized": emptied.files,
        "bytes_optimized": emptied.bytes,
        "bytes_freed": emptied.freed_bytes,
        "files_open": of(Left::Open),
        "files_changed": of(Left::Changed),
        "files_linked": report.files_linked,
        "files_put_off": report.files_put_off,
        "files_written_below": report.written_below,
        "files_moved_here": report.moved_here,
        "files_lost": report.lost.files(),
        "files_damaged": backup.damaged_stubs.files,
        "errors": report.errors + summary.errors,
        "manifests_forgotten": report.manifests_forgotten,
        "manifests_kept": report.manifests_kept,
        "chunks_kept_twice": report.second_copies.chunks,
        "bytes_kept_twice": report.second_copies.bytes,
        "manifests_elsewhere":
            report.elsewhere.iter().map(|other| other.id.to_string()).collect::<Vec<_>>(),
        "lookups": look_up::fields(backup),
        "partitions": partitions::fields(&report.turns),
        "in_common": partitions::in_common(report),
        "worth_reconciling": report.worth_reconciling(),
        "chunks_stored_twice": report.chunks_stored_twice(),
    })
}

/// Brings all data of a share back.
pub fn rehydrate(context: &Context, arguments: &RehydrateArguments) -> Result<Outcome> {
    let share = Share::open(&arguments.directory)?;
    let repository = context.open(Access::Write)?;
    let mut options = options(context, &repository, false, &LookUpArguments::default());
    options.shares_disk = is_on_disk_of(&share, context.store_directory()?.as_deref());
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
    if report.manifests_kept > 0 {
        context.output.warning(
            "something was moved all the time, so files may have been missed; their data stays in \
             the store; run this again",
        );
    }
    context.output.message(
        "rehydrated",
        json!({
            "files": report.files,
            "bytes": report.bytes,
            "files_open": report.open,
            "errors": report.errors,
            "collections": report.collections,
            "manifests_kept": report.manifests_kept,
        }),
    )?;
    Ok(Outcome::with_problems(problems + report.open + report.manifests_kept))
}

/// Whether a store is on the disk of a share, or may be: file systems with parts of their own have
/// several numbers, and one size.
pub fn is_on_disk_of(share: &Share, store: Option<&Path>) -> bool {
    let Some(store) = store else { return false };
    match (rustix::fs::statvfs(share.below()), rustix::fs::statvfs(store)) {
        (Ok(share), Ok(store)) => {
            (share.f_blocks, share.f_frsize) == (store.f_blocks, store.f_frsize)
        }
        _ => true,
    }
}

/// Brings the data back into copies of stubs, or into a copy of a share.
pub fn repair(context: &Context, directory: &Path) -> Result<Outcome> {
    let share = match Share::look_at(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound && directory.is_dir() => {
            return repair_copied_files(context, directory);
        }
        share => share?,
    };
    match share.standing() {
        Standing::Own => {}
        Standing::Elsewhere | Standing::Copy => return repair_copy(context, share),
        Standing::Alias(_) => return Err(Error::invalid(share.complaint().unwrap_or_default())),
    }
    let repository = context.open(Access::Read)?;
    let running = context.start_job("looking at files")?;
    let report = repair::repair(&repository, &share, &running.job);
    tell_repaired(context, report, running.finish())
}

/// Brings the data back into what was copied out of shares.
fn repair_copied_files(context: &Context, directory: &Path) -> Result<Outcome> {
    let repository = context.open(Access::Read)?;
    let running = context.start_job("looking at files")?;
    let report = repair::repair_copied_files(&repository, directory, &running.job);
    tell_repaired(context, report, running.finish())
}

fn tell_repaired(
    context: &Context,
    report: Result<RepairReport>,
    problems: u64,
) -> Result<Outcome> {
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

/// Makes a copy of a share an ordinary directory.
fn repair_copy(context: &Context, copy: Share) -> Result<Outcome> {
    let repository = context.open(Access::Read)?;
    let shown = copy.shown.display().to_string();
    let running = context.start_job("bringing back")?;
    let report = repair::repair_copy(&repository, copy, &running.job);
    let problems = running.finish();
    let CopyReport { files, is_ordinary } = report?;
    context.output.row(&format!(
        "brought back  {}, {}",
        counted(files.files, "file"),
        human(files.bytes)
    ))?;
    match is_ordinary {
        true => context.output.note(&format!("'{shown}' is an ordinary directory"))?,
        false => context.output.warning(&format!(
            "not all files of '{shown}' came back, {} of them open; mend that and run this again",
            files.open
        )),
    }
    let fields = json!({
        "files": files.files,
        "bytes": files.bytes,
        "errors": problems,
        "files_open": files.open,
        "ordinary": is_ordinary,
    });
    context.output.message("repaired", fields)?;
    Ok(Outcome::with_problems(problems + files.open))
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
