//! `copy-snapshot`: a new name for the same tree (fastcopy; FAST'17, section 2.3).

use crate::context::{Access, Context, program, user_name};
use crate::exit::Outcome;
use crate::options::RecordArguments;
use crate::reference::Snapshots;
use clap::Args;
use onefold_engine::synthesis::{self, SynthesisOptions};
use onefold_policy::selection::{SnapshotFilter, SnapshotReference};
use onefold_types::{Result, SessionId};
use serde_json::json;

/// Arguments of `copy-snapshot`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLE\n  onefold copy-snapshot latest --tag before-upgrade")]
pub struct CopySnapshotArguments {
    /// The snapshot to copy
    #[arg(value_name = "SNAPSHOT")]
    snapshot: SnapshotReference,
    #[command(flatten)]
    record: RecordArguments,
}

/// What the record of a snapshot made from others says.
#[must_use]
pub fn options(record: &RecordArguments) -> SynthesisOptions {
    SynthesisOptions {
        tags: (!record.tags.is_empty()).then(|| record.tags.clone()),
        description: record.description.clone(),
        host: record.host.clone(),
        user: user_name(),
        time_ns: record.time,
        program: program(),
    }
}

/// Tells about a snapshot made from others.
pub fn report(context: &Context, id: SessionId) -> Result<Outcome> {
    let output = &context.output;
    output.set_done(format!("snapshot {} is saved", id.short()));
    output.note(&format!("snapshot {} saved", id.short()))?;
    output.message("summary", json!({ "snapshot": id.to_string() }))?;
    Ok(Outcome::Complete)
}

/// Runs the command.
pub fn run(context: &Context, arguments: &CopySnapshotArguments) -> Result<Outcome> {
    let repository = context.open(Access::Write)?;
    context.leave_what_reserve_lacks(&repository)?;
    let snapshots = Snapshots::load(&repository, &context.output)?;
    let source = snapshots.resolve(&arguments.snapshot, &SnapshotFilter::default())?;
    let running = context.start_job("copying")?;
    let options = options(&arguments.record);
    let id = synthesis::fastcopy(&repository, source.id, &options, &running.job)?;
    running.finish();
    report(context, id)
}
