//! `completion`: a script that teaches a shell our options.

use super::Cli;
use crate::exit::Outcome;
use crate::output::{Output, RawStdout};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use std::io::Write;

/// Arguments of `completion`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLE\n  onefold completion bash > /etc/bash_completion.d/onefold")]
pub struct CompletionArguments {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub fn run(arguments: &CompletionArguments, output: &Output) -> Result<Outcome> {
    if output.style().json {
        return Err(Error::invalid("a completion script cannot be printed as JSON"));
    }
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "onefold", &mut script);
    RawStdout(output).write_all(&script).context(|| "writing the script")?;
    Ok(Outcome::Complete)
}
