//! `restore`: files and directories of a snapshot, back on disk.

mod plan;
mod sources;

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::machine_notes::MachineNotes;
use crate::options::FilterArguments;
use crate::reference::{self, Location, Snapshots};
use crate::size::{counted, human};
use crate::store_path;
use crate::time;
use clap::{Args, ValueEnum};
use onefold_engine::Repository;
use onefold_engine::patterns::Patterns;
use onefold_engine::restore::{
    self, Delete, Overwrite, RestoreOptions, RestoreReport, Shown, Unkept, UnkeptAttributes,
    Without,
};
use onefold_engine::session::outcome;
use onefold_engine::session::tombstones;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::Result;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const AFTER_HELP: &str = "\
Patterns follow the rules of gitignore files and are compared with paths from the snapshot's root.
A target may contain the store: nothing is restored into its directory, or deleted there.

EXAMPLES
  onefold restore latest --target /tmp/restored
  onefold restore latest:/home/alice --target ~alice --overwrite if-newer
  onefold restore 1a2b3c4d --target out --include '*.ods' --verify

Whoever could write to a source, or has the key of the store, decides what a snapshot holds. As
root, restore what others have saved with --no-setuid --no-special.";

/// Arguments of `restore`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct RestoreArguments {
    /// The snapshot, or a place in it: SNAPSHOT:PATH
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    location: OsString,
    /// The directory to restore into; made if it does not exist
    #[arg(short, long, value_name = "DIR", required_unless_present = "plan")]
    target: Option<PathBuf>,
    /// Restore only what matches (may be repeated)
    #[arg(short, long, value_name = "PATTERN")]
    include: Vec<OsString>,
    /// The same, whatever the case
    #[arg(long, value_name = "PATTERN")]
    iinclude: Vec<OsString>,
    /// Leave out what matches (may be repeated)
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// The same, whatever the case
    #[arg(long, value_name = "PATTERN")]
    iexclude: Vec<OsString>,
    /// When to replace files that are there already
    #[arg(long, value_name = "WHEN", default_value = "always")]
    overwrite: OverwriteWhen,
    /// Rewrite files that are there where they differ, instead of putting others in their place
    #[arg(long)]
    in_place: bool,
    /// Delete what is not in the snapshot, in directories that it has whole
    #[arg(long)]
    delete: bool,
    /// Delete also in directories of which something was left out or could not be read
    #[arg(long)]
    delete_unknown: bool,
    /// Write runs of zeros as holes
    #[arg(long)]
    sparse: bool,
    /// Read every restored file again and compare, and those that if-changed takes as right
    #[arg(long)]
    verify: bool,
    /// Let everything belong to whoever restores
    #[arg(long)]
    no_owner: bool,
    /// Take owners by their numbers, not by their names
    #[arg(long, conflicts_with = "no_owner")]
    numeric_owner: bool,
    /// Restore no set-user-id and set-group-id bits and no capabilities
    #[arg(long)]
    no_setuid: bool,
    /// Leave out devices, pipes and sockets
    #[arg(long)]
    no_special: bool,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Only say what would be read: containers, frames, bytes, and how long it will take
    #[arg(long)]
    plan: bool,
    /// What is read when: direct (each container once), or as for outputs written in order:
    /// forward, adaptive, container-cache, chunk-cache, optimal, optimal-chunks, each with
    /// ,memory=BYTES [default: direct]
    #[arg(long, value_name = "ENGINE", help_heading = "Experiments")]
    engine: Option<RestoreEngine>,
    #[command(flatten)]
    filter: FilterArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OverwriteWhen {
    /// Always: the content is compared, and what differs is written
    #[value(alias = "if-different")]
    Always,
    /// Unless size and modification time are equal: such files are not read (but for --verify)
    IfChanged,
    /// If the snapshot's file was modified later
    IfNewer,
    /// Never
    Never,
}

impl RestoreArguments {
    fn options(&self, threads: usize) -> Result<RestoreOptions> {
        Ok(RestoreOptions {
            target: self.target.clone().unwrap_or_default(),
            overwrite: match self.overwrite {
                OverwriteWhen::IfChanged => Overwrite::IfChanged,
                OverwriteWhen::Always => Overwrite::IfDifferent,
                OverwriteWhen::IfNewer => Overwrite::IfNewer,
                OverwriteWhen::Never => Overwrite::Never,
            },
            in_place: self.in_place,
            delete: match (self.delete, self.delete_unknown) {
                (_, true) => Delete::Unknown,
                (true, false) => Delete::Known,
                (false, false) => Delete::Nothing,
            },
            saved_within_ns: 0..0,
            sparse: self.sparse,
            verify: self.verify,
            dry_run: self.dry_run,
            include: patterns(&self.include, &self.iinclude)?,
            exclude: patterns(&self.exclude, &self.iexclude)?,
            threads,
            engine: self.engine.unwrap_or(RestoreEngine::Direct),
            placed: None,
            reach: None,
            sources: None,
            follows_out: false,
            without: Without {
                owners: self.no_owner,
                owner_names: self.numeric_owner,
                set_ids: self.no_setuid,
                special: self.no_special,
            },
            spared: None,
        })
    }
}

/// Patterns and those whose case does not matter.
fn patterns(exact: &[OsString], any_case: &[OsString]) -> Result<Patterns> {
    Patterns::build(
        &store_path::with_home(store_path::as_given(exact))?,
        &store_path::with_home(store_path::as_given(any_case))?,
    )
}

/// The longest time for which a system gives files the same time.
const TICK_MAX_NS: i64 = 20_000_000;

/// Runs the command.
pub fn run(context: &Context, arguments: &RestoreArguments) -> Result<Outcome> {
    let mut location = Location::parse(&arguments.location)?;
    let mut options = arguments.options(context.reading_threads())?;
    options.reach = context.reach();
    if let Some(store) = context.store_directory()?.filter(|_| !arguments.plan) {
        store_path::refuse_inside(&options.target, &store)?;
        options.spared = store_path::identity(&store);
    }
    let repository = context.open_near(Access::Read)?;
    let snapshots = Snapshots::load(&repository, &context.output)?;
    let snapshot = snapshots.resolve(&location.snapshot, &arguments.filter.filter())?;
    // In place everything is restored to where it was.
    if options.target != Path::new("/")
        && let Some(base) = reference::base(&repository, snapshot, &location.path)
    {
        options.include = options.include.below(&base);
        options.exclude = options.exclude.below(&base);
        location.path = base;
    }
    let (root, placed) = reference::placed(&repository, snapshot, &location.path)?;
    options.placed = placed;
    options.sources = sources::of(&repository, snapshot, &location, &root)?;
    options.follows_out = sources::is_at(snapshot, &location, &options.target);
    if arguments.plan {
        return plan::run(context, &repository, snapshot, &root, &options);
    }
    snapshots.warn_if_partial(snapshot);
    // Times of files lag behind the clock by up to a tick.
    let finished_ns = snapshot.record.finished_ns.saturating_sub(TICK_MAX_NS);
    options.saved_within_ns = snapshot.record.started_ns..finished_ns;
    let (begun, running) = (Instant::now(), context.start_job("restoring")?);
    let report = restore::restore(&repository, &root, &options, &running.job)?;
    let problems = running.finish().max(report.errors);
    if problems == 0 && !options.dry_run && !options.verify {
        remember(&repository, &report, begun.elapsed());
    }
    store_path::warn_of_unmatched(&context.output, &options.include);
    store_path::warn_of_unmatched(&context.output, &options.exclude);
    describe(context, &report, &options, begun.elapsed())?;
    describe_surplus(context, &report, &options)?;
    warn_of_unkept(context, &report.unkept);
    if problems > 0 && tombstones::is_forgotten(&repository, snapshot.id)? {
        let error = outcome::forgotten(snapshot.id);
        context.output.warning(&format!("{error}: what is missing was collected"));
    }
    let mut fields = summary(&report, problems, begun.elapsed());
    fields["snapshot"] = json!(snapshot.id.to_string());
    fields["target"] = json!(options.target.display().to_string());
    fields["dry_run"] = json!(options.dry_run);
    context.output.message("summary", fields)?;
    // What others may do decides like what cannot be set at all; a time does not.
    let rights = report.unkept.modes.count + report.unkept.owners.count;
    Ok(Outcome::with_problems(problems + report.surplus.kept + rights))
}

/// What programs are told of a restore, but for what was asked for.
fn summary(report: &RestoreReport, problems: u64, elapsed: Duration) -> Value {
    json!({
        "files": report.files,
        "directories": report.directories,
        "others": report.others,
        "bytes": report.bytes,
        "files_unchanged": report.files_unchanged,
        "files_skipped": report.files_skipped,
        "files_in_place": report.files_in_place,
        "links_copied": report.links_copied,
        "modes_not_kept": report.unkept.modes.count,
        "owners_not_kept": report.unkept.owners.count,
        "times_not_kept": report.unkept.times.count,
        "bytes_written": report.bytes_written,
        "deleted": report.surplus.deleted,
        "kept": report.surplus.kept,
        "errors": problems,
        "containers": report.containers,
        "container_reads": report.container_reads,
        "bytes_opened": report.bytes_opened,
        "chunks_guided": report.chunks_guided,
        "chunks_looked_up": report.chunks_looked_up,
        "bytes_read": report.bytes_read,
        "seconds": elapsed.as_secs_f64(),
    })
}

/// Notes how quick this machine is with this store.
fn remember(repository: &Repository, report: &RestoreReport, elapsed: Duration) {
    let mut notes = MachineNotes::load(repository);
    let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    notes.remember_restore(report.bytes_opened, elapsed_ns);
    notes.save(repository);
}

fn describe(
    context: &Context,
    report: &RestoreReport,
    options: &RestoreOptions,
    elapsed: Duration,
) -> Result<()> {
    let output = &context.output;
    let verb = match options.dry_run {
        true => "would restore",
        false if report.errors > 0 => "was to restore",
        false => "restored",
    };
    output.note(&format!(
        "{verb} {}, {} and {} ({}) in '{}'",
        counted(report.files, "file"),
        counted(report.directories, "directory"),
        counted(report.others, "other item"),
        human(report.bytes),
        options.target.display()
    ))?;
    let deleted = report.surplus.deleted;
    if report.files_unchanged + report.files_skipped + deleted > 0 {
        let right = match options.overwrite == Overwrite::IfChanged && !options.verify {
            true => "taken as right by size and time, not compared",
            false => "right already",
        };
        let verb = if options.dry_run { "to be deleted" } else { "deleted" };
        output.note(&format!(
            "{} {right}, {} left alone, {deleted} {verb}",
            report.files_unchanged, report.files_skipped
        ))?;
    }
    if report.files_in_place > 0 && !options.in_place {
        let files = counted(report.files_in_place, "file");
        output.note(&format!("rewrote {files} in place: no other could be made beside it"))?;
    }
    if report.links_copied > 0 {
        let links = counted(report.links_copied, "hard link");
        output.note(&format!("copied {links} that the target cannot make"))?;
    }
    output.note(&format!(
        "wrote {}, read {} from {} in {}",
        human(report.bytes_written),
        human(report.bytes_read),
        counted(report.containers, "container"),
        time::span(elapsed)
    ))?;
    if report.errors > 0 {
        output.row(&format!("{} could not be restored", counted(report.errors, "item")))?;
    }
    Ok(())
}

/// Says what would be deleted, what is kept although it is not in the snapshot, and whose owners
/// are others here.
fn describe_surplus(
    context: &Context,
    report: &RestoreReport,
    options: &RestoreOptions,
) -> Result<()> {
    let (output, surplus) = (&context.output, &report.surplus);
    if options.dry_run {
        show(context, "would delete", &surplus.deleted_paths)?;
    }
    if surplus.kept > 0 {
        show(context, "kept", &surplus.kept_paths)?;
        let kept = counted(surplus.kept, "item");
        let more = match options.delete {
            Delete::Unknown => "",
            _ => "; --delete-unknown deletes them as well, but for those on other mounts",
        };
        let are = if surplus.kept == 1 { "is" } else { "are" };
        output.warning(&format!(
            "{kept} {are} kept that {are} not in the snapshot: it cannot know whether they were \
             there, since their directories were not saved whole or something is mounted there\
             {more}"
        ));
    }
    let elsewhere = &report.owners_elsewhere;
    if elsewhere.count > 0 {
        output.warning(&format!(
            "{} of the snapshot {} not the same by name and by number here: {}; names count, \
             --numeric-owner takes the numbers",
            counted(elsewhere.count, "owner"),
            if elsewhere.count == 1 { "is" } else { "are" },
            elsewhere.example
        ));
    }
    Ok(())
}

/// Says what the target did not keep of what was set, with one example of each kind.
fn warn_of_unkept(context: &Context, unkept: &UnkeptAttributes) {
    fn warn<T>(context: &Context, what: &str, unkept: &Unkept<T>, show: impl Fn(&T) -> String) {
        if let Some((path, has, was)) = &unkept.example {
            context.output.warning(&format!(
                "the target does not keep the {what} of {}: '{path}' has {} and had {}",
                counted(unkept.count, "item"),
                show(has),
                show(was)
            ));
        }
    }
    warn(context, "mode", &unkept.modes, |mode| format!("{mode:03o}"));
    warn(context, "owner", &unkept.owners, |(user, group)| format!("{user}:{group}"));
    warn(context, "modification time", &unkept.times, |time| time::local_of_file(*time));
}

/// Lists the first of several paths, unless each was told already.
fn show(context: &Context, verb: &str, shown: &Shown) -> Result<()> {
    let output = &context.output;
    if output.style().verbose {
        return Ok(());
    }
    shown.paths.iter().try_for_each(|path| output.row(&format!("{verb} {path}")))?;
    match shown.more {
        0 => Ok(()),
        more => output.row(&format!("{verb} {more} more, which --verbose shows")),
    }
}
