//! The command line: its commands. Each maps its options onto engine calls and the results onto
//! lines.

pub mod backup;
pub mod cat;
pub mod check;
pub mod client;
pub mod completion;
pub mod copy;
pub mod copy_snapshot;
pub mod database;
pub mod describe;
pub mod diff;
pub mod dump;
pub mod find;
pub mod forget;
pub mod gc;
pub mod hold;
pub mod info;
pub mod init;
pub mod key;
mod look_up;
pub mod ls;
pub mod maintain;
pub mod mount;
pub mod recover;
pub mod restore;
pub mod saying;
pub mod serve;
mod share;
pub mod snapshots;
pub mod stats;
pub mod synthesize;
pub mod tag;
pub mod undelete;
pub mod version;

use crate::context::Context;
use crate::exit::Outcome;
use crate::options::GlobalOptions;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use onefold_types::{ErrorKind, Result};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

const AFTER_HELP: &str = "\
EXAMPLES
  onefold -r /mnt/backup init
  onefold -r /mnt/backup backup ~/documents
  onefold -r /mnt/backup snapshots
  onefold -r /mnt/backup restore latest --target /tmp/restored
  onefold -r /mnt/backup check

The password comes from --password-file, --password-command, ONEFOLD_PASSWORD,
ONEFOLD_PASSWORD_FILE, ONEFOLD_PASSWORD_COMMAND, the profile, or a question at the terminal; a key
file in its place from --key-file, ONEFOLD_KEY_FILE or the profile.
Snapshots are named by their id, its beginning, 'latest' or 'latest~N'.

EXIT CODES
  0 done; 1 failed; 3 done in part; 10 no store; 11 not permitted, or store cannot be written;
  12 wrong password; 13 others are in the way, try again later; 130 interrupted";

/// A deduplicating store of snapshots.
#[derive(Parser, Debug)]
#[command(name = "onefold", version, styles = STYLES, after_help = AFTER_HELP)]
#[command(propagate_version = false, max_term_width = 100, subcommand_required = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalOptions,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
#[command(disable_help_subcommand = true)]
pub enum Command {
    /// Make a new store
    Init(init::InitArguments),
    /// Save files, directories or a stream as a snapshot
    Backup(backup::BackupArguments),
    /// List snapshots
    #[command(visible_alias = "list")]
    Snapshots(snapshots::SnapshotsArguments),
    /// List what a snapshot holds
    Ls(ls::LsArguments),
    /// Find files by name in all snapshots
    Find(find::FindArguments),
    /// Show what differs between two snapshots
    Diff(diff::DiffArguments),
    /// Restore files and directories
    Restore(restore::RestoreArguments),
    /// Write a file of a snapshot to standard output
    Dump(dump::DumpArguments),
    /// Show all snapshots as a directory
    Mount(mount::MountArguments),
    /// Deduplicate live directories where they are
    Share(share::ShareArguments),
    /// Copy snapshots into another store
    Copy(copy::CopyArguments),
    /// Make a new snapshot of the content of another, without copying data
    #[command(visible_alias = "fastcopy")]
    CopySnapshot(copy_snapshot::CopySnapshotArguments),
    /// Make a new snapshot from parts of others, without copying data
    Synthesize(synthesize::SynthesizeArguments),
    /// Hide snapshots, by name or by policy; 'undelete' brings them back
    Forget(forget::ForgetArguments),
    /// Bring hidden snapshots back
    Undelete(undelete::UndeleteArguments),
    /// Keep snapshots whatever 'forget' is told, until 'release'
    Hold(hold::HoldArguments),
    /// Let 'forget' have snapshots that are on hold
    Release(hold::HoldArguments),
    /// Change the tags of snapshots
    Tag(tag::TagArguments),
    /// Change the note of a snapshot
    Describe(describe::DescribeArguments),
    /// Make a snapshot of a tree whose record is lost
    Recover(recover::RecoverArguments),
    /// Free the space of what no snapshot needs any more
    #[command(visible_aliases = ["collect", "prune"])]
    Gc(gc::GcArguments),
    /// Do whatever is due: collect, merge the index, verify a sample
    Maintain(maintain::MaintainArguments),
    /// Verify the store
    Check(check::CheckArguments),
    /// Show how the store is made, and what the place where it is can do
    #[command(after_help = info::AFTER_HELP)]
    Info,
    /// Show sizes and ratios
    Stats(stats::StatsArguments),
    /// Manage passwords and key files
    Key(key::KeyArguments),
    /// Show an object of the store
    Cat(cat::CatArguments),
    /// Serve stores in directories to other machines
    Serve(serve::ServeArguments),
    /// Say who may do what at a server
    Client(client::ClientArguments),
    /// Look after the database beside a store
    Database(database::DatabaseArguments),
    /// Print a completion script for a shell
    Completion(completion::CompletionArguments),
    /// Print the version, or the licences of what the program contains
    Version(version::VersionArguments),
}

/// Runs a command.
pub fn run(context: &Context, command: Command) -> Result<Outcome> {
    let result = dispatch(context, command);
    context.tell_uncopied();
    context.tell_trouble();
    match result {
        // Whatever broke off while the command was stopping, the signal is why it ended.
        Err(error) if context.is_interrupted() && error.kind() != ErrorKind::Interrupted => {
            Err(error.context("interrupted").with_kind(ErrorKind::Interrupted))
        }
        result => result,
    }
}

fn dispatch(context: &Context, command: Command) -> Result<Outcome> {
    match command {
        Command::Init(arguments) => init::run(context, &arguments),
        Command::Backup(arguments) => backup::run(context, &arguments),
        Command::Snapshots(arguments) => snapshots::run(context, &arguments),
        Command::Ls(arguments) => ls::run(context, &arguments),
        Command::Find(arguments) => find::run(context, &arguments),
        Command::Diff(arguments) => diff::run(context, &arguments),
        Command::Restore(arguments) => restore::run(context, &arguments),
        Command::Dump(arguments) => dump::run(context, &arguments),
        Command::Mount(arguments) => mount::run(context, &arguments),
        Command::Share(arguments) => share::run(context, &arguments),
        Command::Copy(arguments) => copy::run(context, &arguments),
        Command::CopySnapshot(arguments) => copy_snapshot::run(context, &arguments),
        Command::Synthesize(arguments) => synthesize::run(context, &arguments),
        Command::Forget(arguments) => forget::run(context, &arguments),
        Command::Undelete(arguments) => undelete::run(context, &arguments),
        Command::Hold(arguments) => hold::run(context, &arguments, true),
        Command::Release(arguments) => hold::run(context, &arguments, false),
        Command::Tag(arguments) => tag::run(context, &arguments),
        Command::Describe(arguments) => describe::run(context, &arguments),
        Command::Recover(arguments) => recover::run(context, &arguments),
        Command::Gc(arguments) => gc::run(context, &arguments),
        Command::Maintain(arguments) => maintain::run(context, &arguments),
        Command::Check(arguments) => check::run(context, &arguments),
        Command::Info => info::run(context),
        Command::Stats(arguments) => stats::run(context, &arguments),
        Command::Key(arguments) => key::run(context, &arguments),
        Command::Cat(arguments) => cat::run(context, &arguments),
        Command::Serve(arguments) => serve::run(context, &arguments),
        Command::Client(arguments) => client::run(context, &arguments),
        Command::Database(arguments) => database::run(context, &arguments),
        Command::Completion(arguments) => completion::run(&arguments, &context.output),
        Command::Version(arguments) => version::run(&arguments, &context.output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_that_does_something_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let example = command.get_after_help().map(ToString::to_string);
            let has_example = example.is_some_and(|text| text.contains("EXAMPLE"));
            assert!(has_example, "{}", command.get_name());
        }
    }
}
