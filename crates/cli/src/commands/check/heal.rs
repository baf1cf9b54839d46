//! `check --heal-from`: what is missing or damaged is stored again, out of another store's copies.
//!
//! The store is checked first, which puts into quarantine what is damaged; then it is healed; then
//! its structure is checked again, with all that is in quarantine read, so that what is told in the
//! end is what there is then. Whether all is well says that second check and nothing else.

use super::{CheckArguments, look, repair_index, tell};
use crate::context::{Context, OtherStore};
use crate::exit::Outcome;
use crate::machine_notes::MachineNotes;
use crate::password::CredentialSource;
use crate::size::{counted, human};
use onefold_engine::Repository;
use onefold_engine::check::{CheckOptions, CheckReport, ReadData};
use onefold_engine::copy;
use onefold_engine::heal::{self, HealOptions, Healing};
use onefold_remote::Location;
use onefold_types::Result;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub fn run(context: &Context, arguments: &CheckArguments, from: &Path) -> Result<Outcome> {
    let location = Location::parse(from)?;
    let credential = credential(context, arguments, from)?;
    let (own, other) = context.open_two(&location, credential.as_ref(), OtherStore::HealFrom)?;
    copy::refuse_same(&own, &other)?;
    let options = CheckOptions {
        threads: context.threads_of_two()?,
        ..arguments.options(context, &MachineNotes::load(&own))?
    };
    if arguments.repair_index {
        repair_index(context, &own, arguments.index)?;
    }
    let (before, problems) = look(context, &own, options)?;
    if before.is_clean() {
        context.output.note("there is nothing to heal")?;
        return tell(context, &before, problems);
    }
    let healing = heal(context, (&own, &other), options.threads)?;
    print(context, &location, &healing)?;
    // All that the first one found is in quarantine, and read again because of that.
    let again = CheckOptions { read_data: ReadData::None, ..options };
    let (after, problems_after) = look(context, &own, again)?;
    tell(context, &together(before, after), problems + problems_after)
}

/// Where what opens the other store comes from: the command line, or the profile if that copies to
/// it.
fn credential(
    context: &Context,
    arguments: &CheckArguments,
    from: &Path,
) -> Result<Option<CredentialSource>> {
    let given = CredentialSource::from_settings(
        arguments.to_password_file.clone(),
        arguments.to_password_command.clone(),
        arguments.to_key_file.clone(),
    )?;
    let named = context.profile.copy.iter().find(|target| target.to == from);
    match (given, named) {
        (None, Some(target)) => target.credential_source(),
        (given, _) => Ok(given),
    }
}

fn heal(
    context: &Context,
    stores: (&Arc<Repository>, &Arc<Repository>),
    threads: usize,
) -> Result<Healing> {
    let options = HealOptions { threads, reach: context.reach() };
    let running = context.start_job("healing")?;
    let healing = heal::heal(stores, &options, &running.job)?;
    // What cannot be healed is told once more by the check, which decides.
    running.finish();
    Ok(healing)
}

/// What is there now, and how much was read to know it.
fn together(before: CheckReport, after: CheckReport) -> CheckReport {
    let mut notes = before.notes;
    for note in after.notes {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    CheckReport {
        notes,
        containers_read: before.containers_read,
        chunks_verified: before.chunks_verified,
        bytes_verified: before.bytes_verified,
        ..after
    }
}

fn print(context: &Context, from: &Location, healing: &Healing) -> Result<()> {
    let output = &context.output;
    let Healing { snapshots, healed, left, chunks, bytes, bytes_stored, bytes_from_copy, .. } =
        healing;
    output.note(&format!(
        "healed out of '{from}': {} made whole, {} still not, of {}; {} stored again ({}), {} \
         read there",
        counted(*healed, "item"),
        left,
        counted(*snapshots, "damaged snapshot"),
        counted(*chunks, "chunk"),
        human(*bytes),
        human(*bytes_from_copy)
    ))?;
    let without: Vec<String> = healing.without_copy.iter().map(ToString::to_string).collect();
    if !without.is_empty() {
        output.note(&format!(
            "of {} there is no copy there; only what they share with others was healed",
            counted(without.len() as u64, "damaged snapshot")
        ))?;
    }
    output.message(
        "healing",
        json!({
            "from": from.to_string(),
            "snapshots": snapshots,
            "without_copy": without,
            "items_healed": healed,
            "items_left": left,
            "chunks": chunks,
            "bytes": bytes,
            "bytes_stored": bytes_stored,
            "bytes_from_copy": bytes_from_copy,
        }),
    )
}
