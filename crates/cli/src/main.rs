//! The command line of Onefold.
//!
//! | module | holds |
//! | --- | --- |
//! | [`options`], [`config_file`] | what the user may say, and where |
//! | [`context`], [`password`] | settings put together, the store opened |
//! | [`commands`] | one file per command: options to engine calls, results to lines |
//! | [`output`], [`progress`], [`table`], [`entry`] | what the program says |
//! | `reference`, [`store_path`], [`files`], [`size`], [`time`] | what the user's words mean |
//! | [`bounds`], [`hidden`] | what a collection may use, and what it leaves |
//! | [`machine_notes`] | what this machine remembers of a store |
//! | [`exit`], [`signals`], [`descendants`] | exit codes, requests to stop, what is stopped with it
//! |
//!
//! Only this crate knows terminals, environment variables and names of options; the engine is
//! handed values.

mod access;
mod bounds;
mod clocks;
mod commands;
mod config_file;
mod context;
mod descendants;
mod entry;
mod exit;
mod files;
mod hidden;
mod known_stores;
mod machine_notes;
mod making;
mod opening;
mod options;
mod output;
mod own_files;
mod password;
mod progress;
mod reference;
mod reserve;
mod signals;
mod size;
mod store_path;
mod table;
mod text_values;
mod time;
mod visible;

#[cfg(test)]
mod tests_parsers;

use clap::Parser;
use clap::error::ErrorKind as UsageKind;
use commands::{Cli, Command};
use context::Context;
use exit::Outcome;
use onefold_types::{Error, Result};
use output::{Output, Style};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    allow_open_files();
    forbid_core_dumps();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return explain(&usage),
    };
    let output = Arc::new(Output::new(Style {
        json: cli.global.json,
        quiet: cli.global.quiet,
        verbose: cli.global.verbose > 0,
        colour: !cli.global.no_color && !no_color_wanted(),
    }));
    signals::end_until_caught(&output);
    let result = run(cli, &output).and_then(|outcome| match output.flush() {
        // A bad answer is not made better by nobody hearing it.
        Err(error) if outcome != Outcome::Failed => Err(error),
        _ => Ok(outcome),
    });
    match result {
        Ok(outcome) => outcome.into(),
        // Whoever reads our output has seen enough.
        Err(_) if output.was_stopped() => Outcome::Complete.into(),
        Err(error) => match output.untold(&error) {
            // What was done is done: a failure would have it done once more.
            Some(done) => {
                output.problem(&done, &error);
                Outcome::Unheard.into()
            }
            None => {
                output.error(&error);
                ExitCode::from(exit::code_of(&error))
            }
        },
    }
}

fn run(cli: Cli, output: &Arc<Output>) -> Result<Outcome> {
    let Cli { global, command } = cli;
    // These two need no settings, so wrong ones must not stop them.
    match command {
        Command::Completion(arguments) => commands::completion::run(&arguments, output),
        Command::Version(arguments) => commands::version::run(&arguments, output),
        command => commands::run(&Context::new(global, Arc::clone(output))?, command),
    }
}

/// Raises the number of files that may be open to what the administrator allows. The low default
/// protects programs that wait with `select`, and costs a restore time.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, the work goes on with the number there is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Keys and passwords must not be written to a disk because the program crashed, nor be read by
/// other programs of the same user.
fn forbid_core_dumps() {
    // Where it is refused, what is in memory is as safe as that of other programs.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn no_color_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Help that was asked for, or what is wrong with the command line.
fn explain(usage: &clap::Error) -> ExitCode {
    let asked_for = matches!(usage.kind(), UsageKind::DisplayHelp | UsageKind::DisplayVersion);
    if asked_for {
        // Nothing is wrong if nobody reads the help to its end.
        let _ = usage.print();
        return Outcome::Complete.into();
    }
    // The command line could not be understood, so what it says about JSON is guessed.
    let json = std::env::args_os()
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json");
    if json {
        let message = usage.render().to_string();
        let message = message.trim().strip_prefix("error: ").unwrap_or(message.trim());
        let output = Output::new(Style { json, ..Style::default() });
        output.error(&Error::invalid(message));
    } else {
        let _ = usage.print();
    }
    Outcome::Failed.into()
}
