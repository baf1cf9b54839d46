//! `share create`, `share move` and `share remove`.

use super::lost;
use crate::bounds::Period;
use crate::context::{Access, Context, user_at_host};
use crate::exit::Outcome;
use crate::size::ByteSize;
use crate::store_path;
use clap::Args;
use onefold_engine::patterns::Patterns;
use onefold_engine::primary::addresses::Standing;
use onefold_engine::primary::{Share, manifests, status};
use onefold_engine::session::SnapshotList;
use onefold_format::share::SharePolicy;
use onefold_types::{Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `share create`.
#[derive(Args, Debug)]
pub struct CreateArguments {
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Leave files alone that were changed within this span
    #[arg(long, value_name = "SPAN", default_value = "3d")]
    min_age: Period,
    /// Leave files below this size alone
    #[arg(long, value_name = "SIZE", default_value = "32KiB")]
    min_size: ByteSize,
    /// Leave alone what matches a pattern (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
}

/// Makes a directory a share.
pub fn create(context: &Context, arguments: &CreateArguments) -> Result<Outcome> {
    let directory = &arguments.directory;
    let shown = directory.display().to_string();
    let store = context.store_directory()?;
    if let Some(store) = &store {
        store_path::refuse_inside(directory, store)?;
    }
    refuse_store_in(directory, store.as_deref())?;
    Patterns::build(&arguments.exclude, &[])?;
    let repository = context.open(Access::Write)?;
    if Share::look_at(directory).is_err() {
        manifests::refuse_used(&SnapshotList::load(&repository)?, directory)?;
    }
    let policy = SharePolicy {
        age_min_seconds: arguments.min_age.0.as_secs(),
        size_min_bytes: arguments.min_size.0,
        excludes: arguments.exclude.clone(),
    };
    // What the system says names no more than what is Onefold's in it.
    let share = Share::create(&repository, directory, policy).map_err(|error| {
        let is_of_system = error.os_code().is_some();
        if is_of_system { error.context(format!("making '{shown}' a share")) } else { error }
    })?;
    context.output.note(&format!(
        "'{shown}' is share {}; nothing in it has changed. Next: 'onefold share mount {shown}', \
         then 'onefold share optimize {shown}'",
        share.id.short()
    ))?;
    context
        .output
        .message("share_created", json!({ "directory": shown, "share": share.id.to_string() }))?;
    Ok(Outcome::Complete)
}

/// Refuses a directory in which the store itself lies.
pub fn refuse_store_in(directory: &PathBuf, store: Option<&Path>) -> Result<()> {
    if let Some(store) = store
        && store_path::is_store_among(std::slice::from_ref(directory), store)?
    {
        return Err(Error::invalid(format!(
            "the store '{}' lies in '{}': its own files cannot be moved into it",
            store.display(),
            directory.display()
        )));
    }
    Ok(())
}

/// Makes a share an ordinary directory again.
pub fn remove(context: &Context, directory: &Path) -> Result<Outcome> {
    let repository = context.open(Access::Read)?;
    let shown = directory.display().to_string();
    if Share::clear(directory)? {
        context.output.note(&format!("'{shown}' is an ordinary directory"))?;
        return Ok(Outcome::Complete);
    }
    let share = Share::open(directory)?;
    if share.is_mounted() {
        return Err(Error::invalid(format!(
            "'{shown}' is mounted; 'onefold share unmount {shown}' first"
        )));
    }
    let _job = share.lock_job()?;
    let running = context.start_job("looking at files")?;
    let found = status::status(&repository, &share, &running.job);
    let problems = running.finish();
    let found = found?;
    let stubs = found.stubs + found.foreign.len() as u64;
    if stubs + problems > 0 || !found.manifests.is_empty() {
        return Err(Error::invalid(format!(
            "'{shown}' still has data in the store: {stubs} files; bring it back with 'onefold \
             share rehydrate {shown}' first; a file whose data is lost has to be deleted, or \
             restored from a backup"
        )));
    }
    share.remove()?;
    lost::warn_of_others(context, &found.elsewhere);
    context.output.note(&format!("'{shown}' is an ordinary directory"))?;
    Ok(Outcome::Complete)
}

/// Says that a share was moved here.
pub fn move_here(context: &Context, directory: &Path) -> Result<Outcome> {
    let share = Share::look_at(directory)?;
    let before = share.addresses().first().map(ToString::to_string).unwrap_or_default();
    let shown = directory.display().to_string();
    if *share.standing() == Standing::Own {
        context.output.note(&format!("'{shown}' is used here already; nothing was changed"))?;
        return Ok(Outcome::Complete);
    }
    let repository = context.open(Access::Write)?;
    let share = share.move_here(&repository)?;
    let address = share.here().to_string();
    if let Err(error) = manifests::note_move(&repository, &share, &user_at_host()) {
        context.output.warning(&format!(
            "'onefold share list' shows where it was until its next job: {error}"
        ));
    }
    context.output.note(&format!(
        "the share {} is used at '{address}' from now on, and not at '{before}' any more",
        share.id.short()
    ))?;
    let fields = json!({ "share": share.id.to_string(), "from": before, "to": address });
    context.output.message("share_moved", fields)?;
    Ok(Outcome::Complete)
}
