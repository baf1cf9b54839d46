//! `diff`: what differs between two snapshots.

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::output::put_path;
use crate::reference::{Location, Snapshots, directory_of};
use crate::size::human;
use clap::Args;
use onefold_engine::difference::{self, Change, DifferenceTotals};
use onefold_engine::tree::path;
use onefold_types::Result;
use serde_json::json;
use std::ffi::OsString;

const AFTER_HELP: &str = "\
  +  only the second has it      M  its content differs     T  it is of another kind
  -  only the first has it       U  only its metadata differs

EXAMPLES
  onefold diff latest~1 latest
  onefold diff 1a2b3c4d:/etc 5e6f7a8b:/etc";

/// Arguments of `diff`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DiffArguments {
    /// The first snapshot, or a directory in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    first: OsString,
    /// The second
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    second: OsString,
    /// Leave out what differs in metadata only
    #[arg(long)]
    no_metadata: bool,
    #[command(flatten)]
    filter: FilterArguments,
}

fn marker(change: Change) -> &'static str {
    match change {
        Change::Added => "+",
        Change::Removed => "-",
        Change::Modified => "M",
        Change::Metadata => "U",
        Change::Kind => "T",
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &DiffArguments) -> Result<Outcome> {
    let locations = [Location::parse(&arguments.first)?, Location::parse(&arguments.second)?];
    let repository = context.open_near(Access::Read)?;
    let output = &context.output;
    let snapshots = Snapshots::load(&repository, output)?;
    let filter = arguments.filter.filter();
    let directory = |location: &Location| {
        let (_, entry) = snapshots.locate(&repository, location, &filter)?;
        directory_of(&entry, location)
    };
    let (first, second) = (directory(&locations[0])?, directory(&locations[1])?);
    let running = context.start_job("comparing")?;
    let mut each = |below: &[u8], change: Change| {
        output.still_wanted()?;
        if arguments.no_metadata && change == Change::Metadata {
            return Ok(());
        }
        let full_path = super::ls::clean(below);
        output.row(&format!("{:<4} {}", marker(change), path::display(&full_path)))?;
        if output.style().json {
            let mut fields = json!({ "modifier": marker(change) });
            put_path(&mut fields, "path", &full_path);
            output.message("change", fields)?;
        }
        Ok(())
    };
    let totals = difference::difference(&repository, first, second, &running.job, &mut each)?;
    let problems = running.finish();
    report(context, &totals)?;
    Ok(Outcome::with_problems(problems))
}

fn report(context: &Context, totals: &DifferenceTotals) -> Result<()> {
    let output = &context.output;
    output.note(&format!(
        "\n{} added, {} removed, {} modified, {} with other metadata",
        totals.added, totals.removed, totals.modified, totals.metadata
    ))?;
    output.note(&format!(
        "bytes of files: {} added, {} removed",
        human(totals.bytes_added),
        human(totals.bytes_removed)
    ))?;
    output.message(
        "statistics",
        json!({
            "added": totals.added,
            "removed": totals.removed,
            "modified": totals.modified,
            "metadata": totals.metadata,
            "bytes_added": totals.bytes_added,
            "bytes_removed": totals.bytes_removed,
        }),
    )
}
