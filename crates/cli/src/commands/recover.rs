//! `recover`: a snapshot of a tree whose record is lost.

use super::copy_snapshot::{options, report};
use crate::context::{Access, Context, host_name};
use crate::exit::Outcome;
use crate::options::RecordArguments;
use clap::Args;
use onefold_engine::synthesis::{self, SynthesisOptions};
use onefold_types::{Fingerprint, Result};

const AFTER_HELP: &str = "\
If records of snapshots are lost, 'onefold check' looks for trees that nothing refers to and names
them. What is recovered is a snapshot as any other; nothing is copied. When all that is wanted is
back, 'onefold forget --give-up' lets go of the lost records.

EXAMPLES
  onefold check
  onefold recover 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Arguments of `recover`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct RecoverArguments {
    /// The tree, as 'check' names it
    #[arg(value_name = "TREE")]
    tree: Fingerprint,
    #[command(flatten)]
    record: RecordArguments,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &RecoverArguments) -> Result<Outcome> {
    let repository = context.open(Access::Write)?;
    context.leave_what_reserve_lacks(&repository)?;
    let running = context.start_job("recovering")?;
    let options = options(&arguments.record);
    let options = SynthesisOptions { host: options.host.or_else(|| Some(host_name())), ..options };
    let id = synthesis::recover(&repository, &arguments.tree, &options, &running.job)?;
    running.finish();
    report(context, id)
}
