//! `database`: the database beside a store.

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::opening;
use crate::size::counted;
use clap::{Args, Subcommand};
use onefold_database::filling;
use onefold_database::filling::together::{self, PATIENCE};
use onefold_remote::Location;
use onefold_store::arbiter;
use onefold_store::layers::ThrottleLimits;
use onefold_types::{Error, Result};
use serde_json::json;

const AFTER_HELP: &str = "\
A bucket whose server replaces objects can hold a store if a database decides beside it; such a
store is made with the database in its name, and named so for ever. The database also tells each
machine what others have stored just now. All that it decided is in the bucket as well: restoring
does not need it, and 'register' has another one take its place if it is lost. End all processes
that write to the store first.

EXAMPLES
  onefold -r 's3://bucket/store?database=postgres://user@host/onefold' init
  onefold -r 's3://bucket/store?database=cassandra://host/onefold' database fill
  onefold -r 's3://bucket/store?database=postgres://other/onefold' database register";

/// Arguments of `database`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DatabaseArguments {
    #[command(subcommand)]
    action: DatabaseAction,
}

#[derive(Subcommand, Debug)]
#[command(disable_help_subcommand = true)]
enum DatabaseAction {
    /// Have the database that the store's name says decide for it from now on, and no other
    Register,
    /// Tell the database all that the store's index knows, and have it forget the rest
    Fill {
        /// Share the work with all others that run this command now, on whatever machines
        #[arg(long)]
        together: bool,
    },
}

/// Runs the command.
pub fn run(context: &Context, arguments: &DatabaseArguments) -> Result<Outcome> {
    match arguments.action {
        DatabaseAction::Register => register(context),
        DatabaseAction::Fill { together } => fill(context, together),
    }
}

fn register(context: &Context) -> Result<Outcome> {
    let Location::Bucket(place) = context.location()? else { return Err(none()) };
    let name = place.database.as_ref().ok_or_else(none)?;
    if context.reads_only() {
        return Err(Error::invalid(
            "'register' writes into the database, and --read-only is given",
        ));
    }
    // Whoever reads asks no database.
    let repository = context.open(Access::Read)?;
    if repository.configuration().decisions.is_empty() {
        return Err(Error::invalid(
            "the store decides for itself, which holds for ever: leave 'database' out of its name",
        ));
    }
    let database = opening::connect_database(name, &context.means())?;
    arbiter::appoint(repository.store(), &database, repository.store_id())?;
    context.output.row("this database decides for the store from now on, and no other")?;
    context.output.message("registered", json!({ "store": repository.store_id().to_string() }))?;
    Ok(Outcome::Complete)
}

fn fill(context: &Context, together: bool) -> Result<Outcome> {
    let (repository, opened) = context.open_reached(Access::Write, ThrottleLimits::default())?;
    let database = opened.database().ok_or_else(none)?;
    let running = context.start_job("filling the database")?;
    let filled = match together {
        true => together::fill_with_others(&repository, database, PATIENCE, &running.job)?,
        false => filling::fill(&repository, database, &running.job)?,
    };
    running.finish();
    context.output.row(&format!("told {}", counted(filled.entries, "entry")))?;
    context.output.message(
        "filled",
        json!({ "entries": filled.entries, "generation": filled.generation.number }),
    )?;
    Ok(Outcome::Complete)
}

fn none() -> Error {
    Error::invalid(
        "the store's name says no database: write \
         's3://BUCKET/PREFIX?database=postgres://USER@HOST/DATABASE'",
    )
}
