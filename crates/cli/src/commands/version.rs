//! `version`: which program this is.

use crate::exit::Outcome;
use crate::output::Output;
use onefold_format::FORMAT_VERSION;
use onefold_types::Result;
use serde_json::json;

/// Runs the command.
pub fn run(output: &Output) -> Result<Outcome> {
    let version = env!("CARGO_PKG_VERSION");
    output.row(&format!("onefold {version} (store format {FORMAT_VERSION})"))?;
    let fields = json!({ "version": version, "format_version": FORMAT_VERSION });
    output.message("version", fields)?;
    Ok(Outcome::Complete)
}
