//! `hold` and `release`: whether `forget` leaves a snapshot alone.

use crate::commands::saying::{Saying, SubjectArguments};
use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::reference::Snapshots;
use clap::Args;
use onefold_types::Result;

const AFTER_HELP: &str = "\
A snapshot on hold stays, whatever 'forget' and 'gc --forget-hidden' are told, until 'onefold
release'. One that is hidden is named by its id; it stays hidden, and is not forgotten for good.

EXAMPLES
  onefold hold latest
  onefold hold --tag before-upgrade
  onefold release 1a2b3c4d";

/// Arguments of `hold` and `release`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct HoldArguments {
    #[command(flatten)]
    subjects: SubjectArguments,
}

/// Runs `hold`, or `release`.
pub fn run(context: &Context, arguments: &HoldArguments, hold: bool) -> Result<Outcome> {
    let dry_run = arguments.subjects.dry_run;
    let repository = context.open(access(dry_run))?;
    let all = Snapshots::load(&repository, &context.output)?;
    let snapshots = arguments.subjects.resolve(&all, true)?;
    let (done, said) = match hold {
        true => ("on hold", "is on hold already"),
        false => ("released", "is not on hold"),
    };
    let saying = Saying {
        snapshots: &snapshots,
        apply: &|attributes| attributes.hold = hold,
        done: &|_| done.to_owned(),
        said,
        dry_run,
        relieves: !hold,
    };
    saying.run(context, &repository, &all)
}

/// What a command that changes snapshots does with the store.
#[must_use]
pub fn access(dry_run: bool) -> Access {
    match dry_run {
        true => Access::Read,
        false => Access::Write,
    }
}
