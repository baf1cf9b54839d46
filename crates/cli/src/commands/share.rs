//! `share`: directories whose files are deduplicated where they are.

mod estimate;

use crate::context::Context;
use crate::exit::Outcome;
use clap::{Args, Subcommand};
use onefold_types::Result;

const AFTER_HELP: &str = "\
'estimate' reads a directory and changes nothing; it needs no store.

EXAMPLE
  onefold share estimate /srv/files --min-age 30d --state /var/tmp/files.estimate";

/// Arguments of `share`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ShareArguments {
    #[command(subcommand)]
    action: ShareAction,
}

#[derive(Subcommand, Debug)]
#[command(disable_help_subcommand = true)]
enum ShareAction {
    /// Say what deduplicating a directory would cost and give
    Estimate(estimate::EstimateArguments),
}

/// Runs the command.
pub fn run(context: &Context, arguments: &ShareArguments) -> Result<Outcome> {
    match &arguments.action {
        ShareAction::Estimate(arguments) => estimate::run(context, arguments),
    }
}
