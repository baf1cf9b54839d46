//! `key`: the passwords of a store.

use crate::context::{Access, Context, host_name, user_name};
use crate::exit::Outcome;
use crate::options::NewPasswordArguments;
use crate::table::Table;
use crate::time;
use clap::{Args, Subcommand};
use onefold_crypto::KdfCost;
use onefold_engine::Repository;
use onefold_engine::repository::NamedSlot;
use onefold_types::{Error, ErrorKind, KeyId, Result};
use serde_json::json;

const AFTER_HELP: &str = "\
Each password opens the same master key, so changing one does not touch the data. Whoever has
seen the master key, or a copy of the store with an old password, can still read that copy.

EXAMPLES
  onefold key list
  onefold key add --label laptop
  onefold key passwd";

/// Arguments of `key`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct KeyArguments {
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Subcommand, Debug)]
#[command(disable_help_subcommand = true)]
enum KeyAction {
    /// List the keys
    List,
    /// Add a password
    Add(NewKeyArguments),
    /// Remove a password; neither the last nor the one in use
    Remove {
        /// The key's id or its beginning
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Replace the password in use
    Passwd(NewKeyArguments),
}

#[derive(Args, Debug)]
struct NewKeyArguments {
    #[command(flatten)]
    password: NewPasswordArguments,
    /// Whom the password belongs to (if not named: user@host)
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

impl NewKeyArguments {
    fn label(&self) -> String {
        self.label.clone().unwrap_or_else(|| format!("{}@{}", user_name(), host_name()))
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &KeyArguments) -> Result<Outcome> {
    match &arguments.action {
        KeyAction::List => list(context)?,
        KeyAction::Add(arguments) => {
            let repository = open_encrypted(context)?;
            let password = context.additional_password(&arguments.password)?;
            let id = repository.add_key(&password, KdfCost::default(), &arguments.label())?;
            report(context, id, "key_added", "added")?;
        }
        KeyAction::Remove { key } => {
            let repository = open_encrypted(context)?;
            let id = find(&repository, key)?.id;
            repository.remove_key(id)?;
            report(context, id, "key_removed", "removed")?;
        }
        KeyAction::Passwd(arguments) => {
            let repository = open_encrypted(context)?;
            let password = context.additional_password(&arguments.password)?;
            let id = repository.change_key(&password, KdfCost::default(), &arguments.label())?;
            report(context, id, "key_changed", "replaces the password used so far")?;
        }
    }
    Ok(Outcome::Complete)
}

/// Opens the store for a change of passwords; says early that a store has none.
fn open_encrypted(context: &Context) -> Result<std::sync::Arc<Repository>> {
    let repository = context.open(Access::Write)?;
    match repository.configuration().encryption.as_str() {
        "none" => Err(Error::invalid("the store is not encrypted, so it has no passwords")),
        _ => Ok(repository),
    }
}

/// The key whose id begins like this.
pub fn find(repository: &Repository, beginning: &str) -> Result<NamedSlot> {
    let mut found = repository.keys()?;
    found.retain(|named| !beginning.is_empty() && named.id.to_string().starts_with(beginning));
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Error::new(ErrorKind::NotFound, format!("there is no key '{beginning}'"))),
        count => Err(Error::invalid(format!("'{beginning}' begins the names of {count} keys"))),
    }
}

fn report(context: &Context, id: KeyId, message_type: &str, what: &str) -> Result<()> {
    let line = format!("key {} {what}", id.short());
    context.output.note(&line)?;
    let fields = json!({ "key": id.to_string() });
    context.output.message(message_type, fields)
}

fn list(context: &Context) -> Result<()> {
    let repository = context.open(Access::Read)?;
    let mut table = Table::new(&["", "ID", "Created", "Label"]);
    for named in repository.keys()? {
        table.row(vec![
            if named.current { "*" } else { "" }.to_owned(),
            named.id.short(),
            time::local(named.slot.created_ns),
            named.slot.label.clone(),
        ]);
        let fields = json!({
            "key": named.id.to_string(),
            "created": time::universal(named.slot.created_ns),
            "label": named.slot.label,
            "current": named.current,
        });
        context.output.message("key", fields)?;
    }
    table.print(&context.output)
}
