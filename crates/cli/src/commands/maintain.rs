//! `maintain`: does whatever is due, in one command for a timer.
//!
//! Safe to run from several machines at once: each step is, and what another has done is not due
//! any more.

use crate::bounds::{BoundArguments, Bounds, Sample};
use crate::commands::gc;
use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::hidden::Hidden;
use crate::machine_notes::MachineNotes;
use crate::size::{counted, human};
use clap::Args;
use onefold_engine::Repository;
use onefold_engine::check::{self, CheckOptions, ReadData};
use onefold_engine::collection::{self, Due};
use onefold_engine::index::merge;
use onefold_types::Result;
use serde_json::json;
use std::sync::Arc;

const AFTER_HELP: &str = "\
A collection is due if snapshots were forgotten for good since the last one, if that has left more
unused than it would now, if one was stopped, or if a backup or a copy was and has left something.
Start it from as many machines as you like.

EXAMPLES
  onefold maintain
  onefold maintain --max-io 20MiB --check-sample 5%
  onefold maintain --repack --max-cpu 25% --max-duration 4h";

/// How much of the data is verified each time.
const SAMPLE_DEFAULT_PERCENT: f64 = 2.0;

/// Arguments of `maintain`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct MaintainArguments {
    /// How much of the data to read and verify; 0% for structure only [default: 2%]
    #[arg(long, value_name = "PERCENT%")]
    check_sample: Option<Sample>,
    #[command(flatten)]
    bounds: BoundArguments,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &MaintainArguments) -> Result<Outcome> {
    gc::step_back();
    let output = &context.output;
    let bounds = arguments.bounds.or(&context.profile.maintain);
    gc::forget_hidden(context, &bounds)?;
    let repository = gc::open(context, Access::Write, &bounds)?;
    let due = collection::due(&repository)?;
    let mut outcome = Outcome::Complete;
    let repacks = bounds.repack_level.is_some();
    match due.map(reason).or_else(|| repacks.then(|| "to pack anew".to_owned())) {
        None => output.note("collection: not due")?,
        Some(reason) => {
            outcome = collect(context, &repository, &bounds, &reason)?;
        }
    }
    let hidden = Hidden::find(&repository)?;
    hidden.tell(context)?;
    let merged = merge::merge_if_due(&repository, None)?;
    output.note(&match merged {
        0 => "index: not due".to_owned(),
        runs => format!("index: merged {}", counted(runs as u64, "run")),
    })?;
    let found = check_sample(context, arguments, &repository)?;
    let needs_collection = found == Found::DamagedCopies;
    if needs_collection {
        let mended = collect(context, &repository, &bounds, "to mend copies of metadata")?;
        // What the first collection left undone is still to be told.
        outcome = if outcome == Outcome::Complete { mended } else { outcome };
    }
    let is_sound = found != Found::Damage;
    output.message(
        "summary",
        json!({
            "collected": due.is_some() || repacks || needs_collection,
            "index_runs_merged": merged,
            "check_clean": is_sound,
            "hidden": hidden.fields(),
        }),
    )?;
    Ok(if is_sound { outcome } else { Outcome::Failed })
}

/// What a check has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// What a collection mends, and nothing else.
    DamagedCopies,
    Damage,
}

fn collect(
    context: &Context,
    repository: &Arc<Repository>,
    bounds: &Bounds,
    reason: &str,
) -> Result<Outcome> {
    context.output.note(&format!("collection: {reason}"))?;
    let options = gc::options(context, bounds);
    let report = gc::collect(context, repository, Access::Write, &options)?;
    gc::summarize(context, &report, false)?;
    context.output.message("collection", gc::fields(&report, false))?;
    Ok(gc::outcome_of(&report))
}

/// Why a collection is due.
pub fn reason(due: Due) -> String {
    match due {
        Due::Unfinished { epoch } => format!("epoch {epoch} was not finished"),
        Due::Forgotten { snapshots } => {
            format!("{} forgotten since the last one", counted(snapshots, "snapshot"))
        }
        Due::Unused { unused_bytes, stored_bytes } => format!(
            "{} of {} may be unused since the last one",
            human(unused_bytes),
            human(stored_bytes)
        ),
        Due::Kept { containers } => {
            format!("the last one kept {} that it was to delete", counted(containers, "container"))
        }
        Due::Abandoned { sessions } => {
            format!("{} stopped without an end", counted(sessions, "backup"))
        }
        Due::Left { containers } => {
            let containers = counted(containers, "container");
            format!("{containers} of what was stopped belong to no snapshot")
        }
    }
}

fn check_sample(
    context: &Context,
    arguments: &MaintainArguments,
    repository: &Arc<Repository>,
) -> Result<Found> {
    let sample = arguments.check_sample.or(context.profile.maintain.check_sample);
    let read_data = match sample.map_or(SAMPLE_DEFAULT_PERCENT, |sample| sample.0) {
        none if none <= 0.0 => ReadData::None,
        all if all >= 100.0 => ReadData::All,
        percent => MachineNotes::load(repository).sample(percent),
    };
    let options =
        CheckOptions { read_data, threads: context.reading_threads(), record_quarantine: true };
    let running = context.start_job("checking")?;
    let report = check::check(repository, options, &running.job)?;
    let problems = running.finish();
    MachineNotes::remember_sample(repository, &report);
    let containers = counted(report.containers, "container");
    let looked_at = format!("{containers}, {} of them read whole", report.containers_read);
    let (found, says) = match problems {
        0 if report.is_clean() => (Found::Nothing, "no problems found"),
        0 if report.needs_collection_only() => {
            (Found::DamagedCopies, "copies of metadata are damaged")
        }
        _ => {
            context.output.warning("check: the store is damaged; run 'onefold check'");
            return Ok(Found::Damage);
        }
    };
    context.output.note(&format!("check: {looked_at}, {says}"))?;
    Ok(found)
}
