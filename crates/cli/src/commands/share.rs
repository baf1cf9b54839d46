//! `share`: directories whose files are deduplicated where they are.

mod creating;
mod estimate;
mod job;
mod lost;
mod mounting;
mod partitions;
mod run;
mod status;
mod window;

use crate::context::Context;
use crate::exit::Outcome;
use clap::{Args, Subcommand};
use onefold_types::Result;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
A share is a directory of live files. 'optimize' moves the data of those that nobody changes any
more into the store, where equal data is kept once; the files stay where they are, with their names,
sizes, owners and times. Programs read and write them through 'mount', which covers the directory
itself. Without the mount such a file shows zeros where its data was. 'estimate' says what that
would give; it reads any directory, changes nothing and needs no store.

EXAMPLES
  onefold share estimate /srv/files --min-age 30d
  onefold share create --min-age 30d /srv/files
  onefold share mount /srv/files &
  onefold share optimize /srv/files
  onefold share run /srv/files /srv/projects --window 22:00-06:00
  onefold share status /srv/files
  onefold share rehydrate /srv/files";

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
    Estimate(Box<estimate::EstimateArguments>),
    /// Make a directory a share; nothing in it changes
    Create(creating::CreateArguments),
    /// Show a share's files whole, on the directory itself, until it is unmounted
    Mount(mounting::ShareMountArguments),
    /// Take the mount of a share away
    Unmount(DirectoryArgument),
    /// Move the data of files that nobody changes any more into the store
    Optimize(job::OptimizeArguments),
    /// Do what is due for shares, while nobody else needs the machine
    Run(Box<run::RunArguments>),
    /// Bring the data of all files back into the directory
    Rehydrate(job::RehydrateArguments),
    /// Bring the data back into copies that were made without the mount, and into stubs that lost
    /// their attribute; a copy of a whole share becomes an ordinary directory
    Repair(DirectoryArgument),
    /// Say that a share was moved here, and is not used any more where it was
    Move(DirectoryArgument),
    /// Say what is optimised, saved, recalled
    Status(DirectoryArgument),
    /// List the shares that the store has data of
    List,
    /// Make a share an ordinary directory again; its files were brought back before
    Remove(lost::RemoveArguments),
}

#[derive(Args, Debug)]
struct DirectoryArgument {
    /// The share
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &ShareArguments) -> Result<Outcome> {
    match &arguments.action {
        ShareAction::Estimate(arguments) => estimate::run(context, arguments),
        ShareAction::Create(arguments) => creating::create(context, arguments),
        ShareAction::Mount(arguments) => mounting::mount(context, arguments),
        ShareAction::Unmount(arguments) => mounting::unmount(context, &arguments.directory),
        ShareAction::Optimize(arguments) => job::optimize(context, arguments),
        ShareAction::Run(arguments) => run::run(context, arguments),
        ShareAction::Rehydrate(arguments) => job::rehydrate(context, arguments),
        ShareAction::Repair(arguments) => job::repair(context, &arguments.directory),
        ShareAction::Status(arguments) => status::status(context, &arguments.directory),
        ShareAction::Move(arguments) => creating::move_here(context, &arguments.directory),
        ShareAction::List => lost::list(context),
        ShareAction::Remove(arguments) => lost::remove(context, arguments),
    }
}
