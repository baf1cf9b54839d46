//! `version`: which program this is, and the licences of what it contains.

use crate::exit::Outcome;
use crate::output::Output;
use clap::Args;
use onefold_format::FORMAT_VERSION;
use onefold_types::Result;
use serde_json::json;

/// The texts go wherever the program goes, as the licences ask.
const LICENCES: &str = include_str!("../../../../THIRD-PARTY-LICENSES.txt");

/// Arguments of `version`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  onefold version\n  onefold version --licences | less")]
pub struct VersionArguments {
    /// Print the licences of what the program contains instead
    #[arg(long, alias = "licenses")]
    licences: bool,
}

/// Runs the command.
pub fn run(arguments: &VersionArguments, output: &Output) -> Result<Outcome> {
    let version = env!("CARGO_PKG_VERSION");
    match arguments.licences {
        true => output.block(LICENCES.trim_end())?,
        false => output.row(&format!("onefold {version} (store format {FORMAT_VERSION})"))?,
    }
    let fields = json!({
        "version": version,
        "format_version": FORMAT_VERSION,
        "licences": arguments.licences.then_some(LICENCES),
    });
    output.message("version", fields)?;
    Ok(Outcome::Complete)
}
