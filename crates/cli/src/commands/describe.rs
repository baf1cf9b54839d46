//! `describe`: the note of a snapshot that was saved before.

use crate::commands::hold::access;
use crate::commands::saying::Saying;
use crate::context::Context;
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::reference::Snapshots;
use clap::Args;
use onefold_policy::selection::SnapshotReference;
use onefold_types::Result;

const AFTER_HELP: &str = "\
EXAMPLES
  onefold describe latest 'the last one before the move'
  onefold describe 1a2b3c4d ''";

/// Arguments of `describe`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DescribeArguments {
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: SnapshotReference,
    /// The note; '' for none
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
    #[command(flatten)]
    filter: FilterArguments,
    /// Only show what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &DescribeArguments) -> Result<Outcome> {
    let repository = context.open(access(arguments.dry_run))?;
    let all = Snapshots::load(&repository, &context.output)?;
    let snapshot = all.resolve(&arguments.snapshot, &arguments.filter.filter())?.id;
    let saying = Saying {
        snapshots: &[snapshot],
        apply: &|attributes| attributes.description.clone_from(&arguments.text),
        done: &|attributes| match attributes.description.is_empty() {
            true => "no description".to_owned(),
            false => format!("described as '{}'", attributes.description),
        },
        said: "is described so already",
        dry_run: arguments.dry_run,
        relieves: false,
    };
    saying.run(context, &repository, &all)
}
