//! `gc`: frees the space of what no snapshot needs, beside running backups and restores.

use crate::bounds::{BoundArguments, Bounds, Goal};
use crate::context::{Access, Context, user_at_host};
use crate::exit::Outcome;
use crate::hidden::Hidden;
use crate::machine_notes;
use crate::reserve;
use crate::size::{counted, human};
use crate::table::Table;
use crate::time;
use clap::Args;
use onefold_engine::collection::{self, CollectOptions, CollectReport, MarkAlgorithm, SpaceGoal};
use onefold_engine::container::unreadable::WAY_OUT;
use onefold_engine::{Job, Repository, retention};
use onefold_policy::collection::select::{CLASS_NAMES, UNUSED_SHARE_DEFAULT};
use onefold_store::layers::ThrottleLimits;
use onefold_types::{ErrorKind, Result};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const AFTER_HELP: &str = "\
Backups, restores and forgets may run meanwhile and come first; so may other collections. What
'forget' has hidden stays until it is forgotten with --final. A collection that is stopped is taken
over by the next one; nothing is lost.

GOALS
  5%      leave at most that much unused beside what is in use (the default)
  10GiB   free that much, if there is that much
  dead    delete only what needs no copying
  all     free everything

EXAMPLES
  onefold gc --dry-run
  onefold gc --max-io 50MiB --max-duration 2h
  onefold gc --forget-hidden 30d
  onefold gc --reseal --max-io 20MiB --max-duration 4h
  onefold gc --repack=19 --max-cpu 25% --max-duration 4h
  onefold forget --keep-daily 7 --prune";

/// The priority of who can wait.
const LEAST_PRIORITY: i32 = 19;

/// Arguments of `gc`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct GcArguments {
    /// Only show what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Find what is live and stop there: shows what marking costs
    #[arg(long, conflicts_with = "dry_run", help_heading = "Experiments")]
    mark_only: bool,
    /// How much to free [default: 5%]
    #[arg(long, value_name = "GOAL")]
    space_goal: Option<Goal>,
    /// How what is live is found: auto, exact, lgc, partitioned, pgc or pgc+
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "Experiments")]
    mark: MarkAlgorithm,
    /// Move everything that is sealed under older keys into new containers ('onefold key rotate')
    #[arg(long)]
    reseal: bool,
    /// Empty a store that has no record of any snapshot, not even of a forgotten one
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    bounds: BoundArguments,
}

/// Forgets for good what has been hidden for longer than the arguments allow.
pub fn forget_hidden(context: &Context, bounds: &Bounds) -> Result<()> {
    let Some(span) = bounds.forget_hidden else {
        return Ok(());
    };
    let repository = context.open(Access::Write)?;
    let by = user_at_host();
    let span_ns = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    let moment_ns = repository.environment().clock.now_ns().saturating_sub(span_ns);
    context.with_reserve(&repository, || {
        let forgotten = retention::forget_hidden_before(&repository, moment_ns, &by)?;
        if forgotten > 0 {
            context.output.set_done(format!("{} forgotten", counted(forgotten, "snapshot")));
        }
        match forgotten {
            0 => Ok(()),
            _ => context.output.note(&format!(
                "forgot {} for good that had been hidden",
                counted(forgotten, "snapshot")
            )),
        }
    })
}

/// Runs the command.
pub fn run(context: &Context, arguments: &GcArguments) -> Result<Outcome> {
    step_back();
    let looks_only = arguments.dry_run || arguments.mark_only;
    let bounds = arguments.bounds.or(&context.profile.gc.bounds);
    let goal = arguments
        .space_goal
        .or(context.profile.gc.space_goal)
        .map_or_else(SpaceGoal::default, |goal| goal.0);
    let options = CollectOptions {
        goal,
        algorithm: arguments.mark,
        mark_only: looks_only,
        reseal: arguments.reseal,
        allow_empty: arguments.allow_empty,
        ..options(context, &bounds)
    };
    if !looks_only {
        forget_hidden(context, &bounds)?;
    }
    let access = if looks_only { Access::Read } else { Access::Write };
    let repository = open(context, access, &bounds)?;
    let report = collect(context, &repository, access, &options)?;
    if arguments.dry_run {
        print_plan(context, &report, goal)?;
    } else {
        summarize(context, &report, arguments.mark_only)?;
    }
    let hidden = Hidden::find(&repository)?;
    if !arguments.mark_only {
        hidden.tell(context)?;
    }
    let mut fields = fields(&report, looks_only);
    fields["hidden"] = hidden.fields();
    context.output.message("summary", fields)?;
    Ok(outcome_of(&report))
}

/// How to collect within bounds.
pub fn options(context: &Context, bounds: &Bounds) -> CollectOptions {
    CollectOptions {
        grace: bounds.wait,
        threads: context.threads,
        duration_max: bounds.duration_max,
        repack_level: bounds.repack_level,
        scratch: scratch(),
        ..CollectOptions::default()
    }
}

/// Opens the store within bounds.
pub fn open(context: &Context, access: Access, bounds: &Bounds) -> Result<Arc<Repository>> {
    if bounds.limits != ThrottleLimits::default() {
        context.expect_sleep()?;
    }
    context.open_throttled(access, bounds.limits)
}

/// Partial if something stays that was to go.
pub fn outcome_of(report: &CollectReport) -> Outcome {
    match report.kept.is_empty() && report.left.is_none() {
        true => Outcome::Complete,
        false => Outcome::Partial,
    }
}

/// Scratch files go beside this user's caches, which are more likely on a disk than what the system
/// has for temporary files; without caches they go there.
pub fn scratch() -> Option<PathBuf> {
    machine_notes::directory().filter(|directory| directory.is_dir())
}

/// Steps back behind everything else that wants the processor: threads started later do the same.
pub fn step_back() {
    // Where it is not allowed the collection is merely less polite.
    let _ = rustix::process::setpriority_process(None, LEAST_PRIORITY);
}

/// Collects; works at zero bytes free: whenever it cannot go on for lack of room it gets a piece of
/// what is set aside, until there is no more.
pub fn collect(
    context: &Context,
    repository: &Arc<Repository>,
    access: Access,
    options: &CollectOptions,
) -> Result<CollectReport> {
    let running = context.start_job("collecting")?;
    let report = collect_as(context, repository, access, options, &running.job)?;
    running.finish();
    if access == Access::Write {
        context.output.set_done("the collection is over");
    }
    Ok(report)
}

/// The same as a part of another command.
pub fn collect_as(
    context: &Context,
    repository: &Arc<Repository>,
    access: Access,
    options: &CollectOptions,
    job: &Job,
) -> Result<CollectReport> {
    let mut done: Option<CollectReport> = None;
    loop {
        let problem = match collection::collect(repository, options, job) {
            Ok(mut report) => {
                report.add_earlier(done.as_ref());
                let is_over = report.left.is_none();
                done = Some(report);
                if is_over {
                    break;
                }
                None
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => Some(error),
            Err(error) => return Err(error),
        };
        let may_go_on = access == Access::Write
            && context.give_up_reserve(repository, reserve::User::Collecting)?;
        match (may_go_on, problem) {
            (true, _) => {}
            // What was freed before is not undone; that something is left is said in the report.
            (false, Some(error)) if done.as_ref().is_none_or(|done| done.left.is_none()) => {
                return Err(error);
            }
            (false, _) => break,
        }
    }
    Ok(done.unwrap_or_default())
}

fn print_plan(context: &Context, report: &CollectReport, goal: SpaceGoal) -> Result<()> {
    let output = &context.output;
    if let Some(epoch) = report.taken_over {
        output.note(&format!("epoch {epoch} is open; a collection would finish it first"))?;
    }
    let Some(selection) = &report.selection else {
        return Ok(());
    };
    let mut table = Table::new(&["CONTAINERS", "COUNT", "STORED", "UNUSED"]);
    for (name, class) in CLASS_NAMES.iter().zip(&selection.classes) {
        table.row(vec![
            (*name).to_owned(),
            class.containers.to_string(),
            human(class.stored_bytes),
            human(class.dead_bytes_stored),
        ]);
    }
    if !output.style().quiet {
        table.print(output)?;
    }
    if report.repacked_containers > 0 {
        let containers = counted(report.repacked_containers, "container");
        output.note(&format!("{containers} would be packed anew"))?;
    }
    let left = match goal {
        SpaceGoal::Unused(share) if (share - UNUSED_SHARE_DEFAULT).abs() < 1e-9 => " (goal: 5%)",
        _ => "",
    };
    output.note(&format!(
        "\nwould delete {} ({}) and copy up to about {} of them{left}; nothing was changed",
        counted(report.deleted_containers, "container"),
        human(report.deleted_bytes),
        human(report.copied_bytes),
    ))
}

/// Says what a collection did.
pub fn summarize(context: &Context, report: &CollectReport, mark_only: bool) -> Result<()> {
    let output = &context.output;
    for (id, problem) in &report.kept {
        output.warning(&format!("container {id} was kept: {problem}"));
    }
    if report.unread_chunks > 0 {
        output.warning(&format!("something cannot be read: {WAY_OUT}"));
    }
    if output.style().verbose || mark_only {
        print_phases(context, report)?;
    }
    if mark_only {
        return Ok(());
    }
    if let Some(epoch) = report.taken_over {
        output.note(&format!("finished epoch {epoch} for a collection that had stopped"))?;
    }
    if report.fenced > 0 {
        let fenced = counted(report.fenced, "session");
        output.note(&format!("{fenced} that had stopped or took too long must start over"))?;
    }
    if report.containers_in_use > 0 {
        let in_use = counted(report.containers_in_use, "container");
        output.note(&format!("{in_use} may be in use by a running backup and were left alone"))?;
    }
    if report.older_left_alone > 0 {
        output.note(&format!(
            "{} of older keys stay as they are, in use or damaged; repeat 'onefold gc --reseal'",
            counted(report.older_left_alone, "container")
        ))?;
    }
    if report.out_of_time {
        output.note("the time was over before all was done; the next collection goes on")?;
    }
    if let Some(left) = report.left {
        output.warning(&format!(
            "the device is full: {} of {} ({} unused) could not be collected; make room on it and \
             collect again",
            counted(left.containers, "container"),
            human(left.stored_bytes),
            human(left.dead_bytes),
        ));
    } else if report.deleted_containers == 0 {
        return output.note("nothing to collect");
    }
    let outcome = match report.grown_bytes() {
        0 => format!("{} freed", human(report.freed_bytes())),
        grown => format!("{} more than before", human(grown)),
    };
    output.note(&format!(
        "deleted {} ({}), copied {} of them: {outcome}",
        counted(report.deleted_containers, "container"),
        human(report.deleted_bytes),
        human(report.copied_bytes),
    ))?;
    if report.repacked_containers > 0 {
        output.note(&format!(
            "packed {} anew, {} as differences",
            counted(report.repacked_containers, "container"),
            counted(report.deltas_made, "chunk"),
        ))?;
    }
    Ok(())
}

fn print_phases(context: &Context, report: &CollectReport) -> Result<()> {
    let output = &context.output;
    let mark = &report.mark;
    output.note(&format!(
        "marked {} in {} of {} by {} ({} of memory, {} spilled, {})",
        counted(mark.enumeration.nodes, "tree node"),
        counted(mark.snapshots, "root"),
        counted(report.snapshots, "snapshot"),
        mark.algorithm.name(),
        human(mark.memory_bytes),
        human(mark.spilled_bytes),
        counted(u64::from(mark.rounds), "round"),
    ))?;
    for (phase, elapsed) in mark.phases.iter().chain(&report.phases) {
        output.note(&format!("  {phase:<12} {}", time::span(*elapsed)))?;
    }
    Ok(())
}

/// The same for programs.
pub fn fields(report: &CollectReport, looks_only: bool) -> serde_json::Value {
    let milliseconds = |phases: &[(&'static str, Duration)]| {
        phases
            .iter()
            .map(|(name, elapsed)| json!([name, elapsed.as_secs_f64() * 1e3]))
            .collect::<Vec<_>>()
    };
    let classes = report.selection.iter().flat_map(|selection| {
        CLASS_NAMES.iter().zip(&selection.classes).map(|(name, class)| {
            json!({
                "class": name,
                "containers": class.containers,
                "bytes_stored": class.stored_bytes,
                "bytes_unused": class.dead_bytes_stored,
            })
        })
    });
    let mark = &report.mark;
    json!({
        "dry_run": looks_only,
        "snapshots": report.snapshots,
        "containers": report.containers,
        "bytes_stored": report.stored_bytes,
        "classes": classes.collect::<Vec<_>>(),
        "liveness_tenths": report.selection.as_ref().map(|selection| selection.histogram),
        "deleted_containers": report.deleted_containers,
        "deleted_bytes": report.deleted_bytes,
        "copied_chunks": report.copied_chunks,
        "frames_carried": report.frames_carried,
        "repacked_containers": report.repacked_containers,
        "deltas_made": report.deltas_made,
        "copied_bytes": report.copied_bytes,
        "freed_bytes": report.freed_bytes(),
        "grown_bytes": report.grown_bytes(),
        "epochs": report.epochs,
        "taken_over": report.taken_over,
        "fenced_sessions": report.fenced,
        "containers_in_use": report.containers_in_use,
        "older_left_alone": report.older_left_alone,
        "kept": report.kept.iter().map(|(id, why)| json!([id.to_string(), why]))
            .collect::<Vec<_>>(),
        "out_of_time": report.out_of_time,
        "left_for_lack_of_room": report.left.map(|left| json!({
            "containers": left.containers,
            "bytes_stored": left.stored_bytes,
            "bytes_unused": left.dead_bytes,
        })),
        "mark": {
            "algorithm": mark.algorithm.name(),
            "rounds": mark.rounds,
            "nodes": mark.enumeration.nodes,
            "references": mark.enumeration.references,
            "sections_read": mark.enumeration.sections + mark.scan.sections,
            "frames_read": mark.enumeration.frames,
            "packs_read": mark.scan.packs,
            "index_entries": mark.index_entries,
            "memory_bytes": mark.memory_bytes,
            "spilled_bytes": mark.spilled_bytes,
            "phases_ms": milliseconds(&mark.phases),
        },
        "phases_ms": milliseconds(&report.phases),
    })
}
