//! `backup`: saves files, directories or a stream as a snapshot.

mod left_out;
mod mount_points;
mod nothing;
mod rewriting;
mod sources;

use crate::commands::look_up;
use crate::commands::tag::refuse_bad;
use crate::context::{Access, Context, bounded, host_name, program, user_name};
use crate::exit::Outcome;
use crate::known_stores;
use crate::reference::Snapshots;
use crate::size::{ByteSize, counted, human};
use crate::time;
use clap::Args;
use mount_points::MountPoints;
use onefold_engine::Repository;
use onefold_engine::ingest::{self, BackupOptions, BackupReport, ParentChoice, Selection};
use onefold_engine::job::Interrupt;
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_policy::retention::is_dated_before;
use onefold_policy::selection::{SnapshotFilter, SnapshotReference};
use onefold_types::{Error, Result};
use serde_json::json;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Patterns follow the rules of gitignore files and are compared with paths as the snapshot has them
and with absolute ones; '~/' stands for the home directory. What cannot be read is listed, the
rest is saved, and the exit code is 3. A stream is saved whole or not at all.

EXAMPLES
  onefold backup ~/documents /etc --exclude '*.tmp' --tag nightly
  pg_dump shop | onefold backup --stdin --stdin-filename shop.sql
  onefold backup --stdin-filename shop.sql --stdin-from-command -- pg_dump shop";

/// Each stream has threads and buffers of its own.
const STREAMS_MAX: usize = 256;

/// Arguments of `backup`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct BackupArguments {
    /// What to save; after --stdin-from-command the command and its arguments
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    selection: SelectionArguments,
    /// Save the paths listed in this file, one a line; '-' is standard input (may be repeated)
    #[arg(long, value_name = "FILE", help_heading = "Sources")]
    files_from: Vec<PathBuf>,
    /// The same, each path ended by a zero byte
    #[arg(long, value_name = "FILE", help_heading = "Sources")]
    files_from0: Vec<PathBuf>,
    /// Save standard input as one file
    #[arg(long, help_heading = "Sources")]
    #[arg(conflicts_with_all = ["stdin_from_command", "files_from", "files_from0", "paths"])]
    stdin: bool,
    /// Save what a command prints as one file; nothing is saved if it fails
    #[arg(long, help_heading = "Sources", requires = "paths")]
    #[arg(conflicts_with_all = ["files_from", "files_from0"])]
    stdin_from_command: bool,
    /// The name of that file in the snapshot [default: stdin]
    #[arg(long, value_name = "NAME", help_heading = "Sources")]
    stdin_filename: Option<OsString>,
    #[command(flatten)]
    record: BackupRecordArguments,
    /// Compare with this snapshot instead of the one of the same host and paths that was saved last
    #[arg(help_heading = "How", long, value_name = "SNAPSHOT", conflicts_with = "force")]
    parent: Option<SnapshotReference>,
    /// Compare with no snapshot: read every file
    #[arg(help_heading = "How", short, long)]
    force: bool,
    /// Save no snapshot if nothing changed, and the one before has these tags, this note and hold
    #[arg(help_heading = "How", long)]
    skip_if_unchanged: bool,
    /// End with exit code 0 also if there was nothing in what was to be saved
    #[arg(help_heading = "How", long)]
    allow_empty: bool,
    /// Only say what would be saved
    #[arg(help_heading = "How", short = 'n', long)]
    dry_run: bool,
    /// none, lz4, zstd, zstd,LEVEL or zstd,LEVEL,selective, instead of the store's choice
    #[arg(help_heading = "How", long, value_name = "METHOD")]
    compression: Option<Compression>,
    /// Whether new chunks that are like stored ones are stored as differences: on, off, or depth=N
    /// with up to N differences behind one another, instead of the store's choice
    #[arg(help_heading = "How", long, value_name = "HOW")]
    delta: Option<DeltaChoice>,
    /// Sources saved at the same time, at most 256, and no more than the memory limit allows: 20
    /// MiB for each but the first [default: 1]
    #[arg(help_heading = "How", long, value_name = "N")]
    streams: Option<NonZeroUsize>,
    #[command(flatten)]
    look_up: look_up::LookUpArguments,
    #[command(flatten)]
    rewriting: rewriting::RewriteArguments,
}

/// What to leave out.
#[derive(Args, Debug)]
#[command(next_help_heading = "What to leave out")]
struct SelectionArguments {
    /// Leave out what matches (may be repeated)
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// The same, whatever the case
    #[arg(long, value_name = "PATTERN")]
    iexclude: Vec<OsString>,
    /// Leave out what matches a pattern in this file (may be repeated)
    #[arg(long, value_name = "FILE")]
    exclude_file: Vec<PathBuf>,
    /// Leave out directories marked with CACHEDIR.TAG
    #[arg(long)]
    exclude_caches: bool,
    /// Leave out directories that hold a file of this name (may be repeated)
    #[arg(long, value_name = "NAME")]
    exclude_if_present: Vec<String>,
    /// Leave out files above this size
    #[arg(long, value_name = "SIZE")]
    exclude_larger_than: Option<ByteSize>,
    /// Stay on the file systems of the sources
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Read devices and pipes that are given as sources, and save what comes from them as files
    #[arg(long, help_heading = "Sources")]
    read_special: bool,
}

/// What the snapshot's record says.
#[derive(Args, Debug)]
#[command(next_help_heading = "Snapshot")]
struct BackupRecordArguments {
    /// Tags, separated by commas (may be repeated)
    #[arg(long = "tag", value_name = "TAG,..", value_delimiter = ',')]
    tags: Vec<String>,
    /// The machine's name, instead of its own
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The time of the snapshot instead of now, such as '2026-01-31 18:30:00'
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    time: Option<i64>,
    /// A note
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Keep the snapshot whatever 'forget' is told, until 'release'
    #[arg(long)]
    hold: bool,
}

impl BackupArguments {
    fn is_stream(&self) -> bool {
        self.stdin || self.stdin_from_command
    }

    fn options(&self, context: &Context, repository: &Repository) -> Result<BackupOptions> {
        let profile = &context.profile.backup;
        let tags = match self.record.tags.is_empty() {
            true => profile.tags.clone(),
            false => self.record.tags.clone(),
        };
        refuse_bad(&tags)?;
        let streams = self.streams.or(profile.streams).map_or(1, usize::from);
        bounded("streams", streams, STREAMS_MAX)?;
        let host = self.record.host.clone().or_else(|| profile.host.clone());
        let host = host.unwrap_or_else(host_name);
        if host.is_empty() {
            return Err(Error::invalid("the name of the host is empty"));
        }
        let mut options = BackupOptions {
            host,
            user: user_name(),
            tags,
            description: self
                .record
                .description
                .clone()
                .or_else(|| profile.description.clone())
                .unwrap_or_default(),
            hold: self.record.hold,
            time_ns: self.record.time,
            parent: self.parent_choice(context, repository)?,
            compression: self.compression.or(context.profile.compression),
            delta: self.delta.or(profile.delta),
            threads: context.threads,
            streams,
            dry_run: self.dry_run,
            skip_if_unchanged: self.skip_if_unchanged || profile.skip_if_unchanged,
            program: program(),
            ..BackupOptions::default()
        };
        self.look_up.apply(context, repository, &mut options);
        self.rewriting.apply(context, &mut options);
        Ok(options)
    }

    fn parent_choice(&self, context: &Context, repository: &Repository) -> Result<ParentChoice> {
        match (&self.parent, self.force) {
            (_, true) => Ok(ParentChoice::None),
            (None, _) => {
                if !self.is_stream() && known_stores::remembered_in().is_none() {
                    context.output.warning(
                        "this backup reads all files, as there is no place to remember what this \
                         machine has saved: set ONEFOLD_STATE_DIR or HOME",
                    );
                }
                Ok(ParentChoice::Newest)
            }
            (Some(reference), _) => {
                let snapshots = Snapshots::load(repository, &context.output)?;
                let found = snapshots.resolve(reference, &SnapshotFilter::default())?;
                Ok(ParentChoice::Snapshot(found.id))
            }
        }
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &BackupArguments) -> Result<Outcome> {
    if arguments.stdin_filename.is_some() && !arguments.is_stream() {
        return Err(Error::invalid("--stdin-filename needs --stdin or --stdin-from-command"));
    }
    // What is wrong with the sources is said before a password is asked for.
    let paths = match arguments.is_stream() {
        true => Vec::new(),
        false => sources::paths(context, arguments)?,
    };
    let selection = match arguments.is_stream() {
        true => None,
        false => Some(sources::selection(context, arguments, &paths)?),
    };
    let asked = selection.clone();
    let access = match arguments.dry_run {
        true => Access::Read,
        false => Access::Write,
    };
    let repository = context.open_near(access)?;
    if access == Access::Write {
        context.leave_what_reserve_lacks(&repository)?;
    }
    let options = arguments.options(context, &repository)?;
    let running = context.start_job("saving")?;
    let interrupt: &Interrupt = &running.job.interrupt;
    let source = match selection {
        Some(selection) => ingest::Source::Paths { paths, selection: Box::new(selection) },
        None => sources::stream(arguments, interrupt)?,
    };
    let wanted = match &source {
        ingest::Source::Paths { paths, .. } => options.streams.min(paths.len()),
        ingest::Source::Stream { .. } | ingest::Source::Root { .. } => 1,
    };
    let named = nothing::Named::of(&source);
    named.warn(context);
    let mount_points = MountPoints::of(&source, &repository);
    if !arguments.allow_empty {
        mount_points.warn(context);
    }
    let report = ingest::backup(&repository, source, &options, &running.job)?;
    let changed = running.warnings();
    let problems = running.finish().max(report.summary.errors);
    if let Some(id) = report.snapshot {
        context.output.set_done(format!("snapshot {} is saved", id.short()));
        look_up::remember(&repository, &report);
        mount_points.note(&repository, arguments.allow_empty);
    }
    if let Some(asked) = &asked {
        left_out::warn_of_unmet(context, asked, &report.left_out);
    }
    warn_of_strays(context, &report);
    warn_of_clock(context, repository.environment().clock.now_ns(), &report);
    if report.streams < wanted {
        context.output.warning(&format!(
            "saved with {} at a time: the memory limit allows no more",
            counted(report.streams as u64, "stream")
        ));
    }
    nothing::warn_of_emptied(context, &report, arguments.allow_empty);
    describe(context, arguments, &report, asked.as_ref(), (changed, problems))?;
    if named.gave_nothing(&report) && !arguments.allow_empty {
        context.output.warning(nothing::GAVE_NOTHING);
        return Ok(Outcome::Partial);
    }
    Ok(Outcome::with_problems(problems))
}

/// Says so if there were containers, and no record of any snapshot.
fn warn_of_strays(context: &Context, report: &BackupReport) {
    if report.strays > 0 && report.snapshot.is_some() {
        context.output.warning(&format!(
            "the store holds {}, and before this snapshot no record of any. If there were \
             snapshots, their records were lost: bring the directory 'outcomes' back from a copy \
             of the store, or see what 'onefold check' finds. Nothing is collected until then",
            counted(report.strays, "container")
        ));
    }
}

/// Says so if the snapshot is not the one that dates take for the newest.
fn warn_of_clock(context: &Context, now_ns: i64, report: &BackupReport) {
    if report.snapshot.is_none() {
        return;
    }
    let date = time::local(report.started_ns);
    if is_dated_before(now_ns, report.started_ns) {
        context.output.warning(&format!(
            "this snapshot is dated {date}, in the future: 'latest' means it until then, and no \
             policy counts it"
        ));
    } else if let Some((id, date_ns)) = report.dated_later {
        context.output.warning(&format!(
            "this snapshot is dated {date}, before snapshot {} of {}, which was saved earlier: \
             'latest' means that one, and policies take this one for older. If a clock was wrong, \
             set it; 'onefold forget {}' hides what is dated in the future",
            id.short(),
            time::local(date_ns),
            id.short()
        ));
    }
}

/// Tells what was found and done.
fn describe(
    context: &Context,
    arguments: &BackupArguments,
    report: &BackupReport,
    asked: Option<&Selection>,
    (changed, problems): (u64, u64),
) -> Result<()> {
    let output = &context.output;
    let found = &report.summary;
    output.note(&format!(
        "files: {} new, {} changed, {} unchanged; {}, {}",
        found.files_new,
        found.files_changed,
        found.files_unchanged,
        counted(found.directories, "directory"),
        counted(found.others, "other item")
    ))?;
    output.note(&format!(
        "looked at {} ({} read) in {}",
        human(found.bytes),
        human(found.bytes_read),
        counted(found.chunks, "chunk")
    ))?;
    output.note(&format!(
        "added {} in {} (tree nodes included), stored as {}",
        human(found.bytes_new),
        counted(found.chunks_new, "new chunk"),
        human(found.bytes_stored)
    ))?;
    if report.deltas.chunks > 0 {
        output.note(&format!(
            "{} of {} {} stored as differences of {}, before compression",
            counted(report.deltas.chunks, "new chunk"),
            human(report.deltas.bytes),
            if report.deltas.chunks == 1 { "is" } else { "are" },
            human(report.deltas.payload_bytes)
        ))?;
    }
    rewriting::describe(context, report)?;
    if let Some(asked) = asked {
        left_out::describe(context, asked, &report.left_out)?;
    }
    if let Some(parent) = report.parent {
        output.note(&format!("compared with snapshot {}", parent.short()))?;
    }
    if changed > 0 {
        output.row(&format!(
            "{} changed while {} read; what was read is saved",
            counted(changed, "file"),
            if changed == 1 { "it was" } else { "they were" }
        ))?;
    }
    if problems > 0 {
        output.row(&format!("{} could not be read", counted(problems, "item")))?;
    }
    let elapsed = time::span(report.elapsed);
    match (report.snapshot, arguments.dry_run) {
        (Some(id), _) => output.note(&format!("snapshot {} saved in {elapsed}", id.short()))?,
        (None, true) => output.note(&format!("dry run, nothing saved ({elapsed})"))?,
        (None, false) => output.note(&format!("nothing changed, no snapshot saved ({elapsed})"))?,
    }
    output.message("summary", fields(arguments, report, asked, (changed, problems)))
}

/// The same in numbers.
fn fields(
    arguments: &BackupArguments,
    report: &BackupReport,
    asked: Option<&Selection>,
    (changed, problems): (u64, u64),
) -> serde_json::Value {
    let found = &report.summary;
    json!({
        "snapshot": report.snapshot.map(|id| id.to_string()),
        "parent": report.parent.map(|id| id.to_string()),
        "dry_run": arguments.dry_run,
        "files": found.files,
        "directories": found.directories,
        "others": found.others,
        "bytes": found.bytes,
        "files_new": found.files_new,
        "files_changed": found.files_changed,
        "files_unchanged": found.files_unchanged,
        "bytes_read": found.bytes_read,
        "streams": report.streams,
        "chunks": found.chunks,
        "chunks_new": found.chunks_new,
        "bytes_new": found.bytes_new,
        "bytes_stored": found.bytes_stored,
        "deltas": {
            "chunks": report.deltas.chunks,
            "bytes": report.deltas.bytes,
            "payload_bytes": report.deltas.payload_bytes,
            "bases_tried": report.deltas.bases_tried,
            "chunks_by_place": report.deltas.chunks_by_place,
            "chunks_by_features": report.deltas.chunks_by_features,
        },
        "excludes": asked.map(|asked| asked.excludes.counts().collect::<Vec<_>>()),
        "left_out": asked.map(|asked| left_out::fields(asked, &report.left_out)),
        "changed_while_read": changed,
        "errors": problems,
        "restarts": report.fenced,
        "stray_containers": report.strays,
        "lookups": look_up::fields(report),
        "rewriting": rewriting::fields(report),
        "seconds": report.elapsed.as_secs_f64(),
    })
}
