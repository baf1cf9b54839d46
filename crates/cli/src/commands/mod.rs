//! The commands: each maps its options onto engine calls and the results onto lines.

pub mod backup;
pub mod cat;
pub mod check;
pub mod completion;
pub mod copy_snapshot;
pub mod describe;
pub mod diff;
pub mod dump;
pub mod find;
pub mod forget;
pub mod gc;
pub mod hold;
pub mod init;
pub mod key;
pub mod ls;
pub mod maintain;
pub mod recover;
pub mod restore;
pub mod saying;
pub mod snapshots;
pub mod stats;
pub mod synthesize;
pub mod tag;
pub mod undelete;
pub mod version;

use crate::context::Context;
use crate::exit::Outcome;
use crate::options::Command;
use onefold_types::{ErrorKind, Result};

/// Runs a command.
pub fn run(context: &Context, command: Command) -> Result<Outcome> {
    let result = dispatch(context, command);
    context.tell_uncopied();
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
        Command::Stats(arguments) => stats::run(context, &arguments),
        Command::Key(arguments) => key::run(context, &arguments),
        Command::Cat(arguments) => cat::run(context, &arguments),
        Command::Completion(arguments) => completion::run(&arguments, &context.output),
        Command::Version => version::run(&context.output),
    }
}
