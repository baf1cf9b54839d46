//! `undelete`: brings hidden snapshots back.

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::reference::Snapshots;
use clap::Args;
use onefold_engine::session::marks;
use onefold_policy::selection::SnapshotReference;
use onefold_types::{Error, Result, SessionId};
use serde_json::json;

/// Arguments of `undelete`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLE\n  onefold snapshots --all\n  onefold undelete 1a2b3c4d")]
pub struct UndeleteArguments {
    /// Snapshots that 'forget' has hidden
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<SnapshotReference>,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &UndeleteArguments) -> Result<Outcome> {
    let repository = context.open(Access::Write)?;
    let output = &context.output;
    let all = Snapshots::load(&repository, output)?;
    // All are looked up before the first is touched.
    let wanted: Vec<SessionId> = arguments
        .snapshots
        .iter()
        .map(|reference| {
            if let SnapshotReference::Latest { .. } = reference {
                return Err(Error::invalid("name hidden snapshots by their ids"));
            }
            all.resolve_any(reference).map(|snapshot| snapshot.id)
        })
        .collect::<Result<_>>()?;
    let mut problems = 0;
    for id in wanted {
        if marks::take_back(&repository, id)? {
            output.set_done(format!("snapshot {} is back", id.short()));
            output.note(&format!("snapshot {} is back", id.short()))?;
            output.message("undeleted", json!({ "snapshot": id.to_string() }))?;
        } else {
            problems += 1;
            let error = Error::invalid("it is not hidden");
            output.problem(&format!("snapshot {}", id.short()), &error);
        }
    }
    Ok(Outcome::with_problems(problems))
}
