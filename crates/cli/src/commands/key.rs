//! `key`: the passwords and key files of a store.

mod fresh;

use crate::context::{Access, Context, user_at_host};
use crate::exit::Outcome;
use crate::options::KdfArguments;
use crate::reference::the_one;
use crate::table::Table;
use crate::time;
use clap::{Args, Subcommand};
use fresh::FreshArguments;
use onefold_crypto::{KeySlot, SecretKind};
use onefold_engine::Repository;
use onefold_engine::repository::{Credential, NamedSlot};
use onefold_types::{Error, KeyId, Result};
use serde_json::json;

const AFTER_HELP: &str = "\
Each password and each key file opens the same keys, so changing one does not touch the data.
Whoever has seen the keys, or has a copy of the store with an old password or key file, can read
what was saved until then, and what is saved later as well until 'rotate' has made new keys. 'gc
--reseal' moves what there is into new containers under these.

A key file holds 256 random bits in a line of text. Whoever has it opens the store, and trying it
takes no time: it is for backups that nobody attends. Keep it where the store is not, and a password
beside it.

EXAMPLES
  onefold key list
  onefold key add --label laptop
  onefold key add --generate /etc/onefold/backup.key --label nightly
  onefold --key-file /etc/onefold/backup.key backup /home
  onefold key passwd
  onefold key upgrade --kdf-memory 256MiB
  onefold key rotate --remove-others";

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
    /// Add a password or a key file
    Add(NewKeyArguments),
    /// Remove a password or key file; neither the last nor the one in use
    Remove {
        /// The key's id or its beginning
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Replace the password or key file in use
    Passwd(NewKeyArguments),
    /// Seal everything that is new under new keys, which nobody can tell from the old ones
    Rotate {
        /// Remove all other passwords and key files, which cannot learn the new keys
        #[arg(long)]
        remove_others: bool,
    },
    /// Keep the password in use, and make it as costly to guess as new ones are
    Upgrade {
        #[command(flatten)]
        kdf: KdfArguments,
        /// Whom the password belongs to (if not named: user@host)
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
    },
}

#[derive(Args, Debug)]
struct NewKeyArguments {
    #[command(flatten)]
    fresh: FreshArguments,
    /// Whom the key belongs to (if not named: user@host)
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

fn label_or_own(label: Option<&String>) -> String {
    label.cloned().unwrap_or_else(user_at_host)
}

/// Runs the command.
pub fn run(context: &Context, arguments: &KeyArguments) -> Result<Outcome> {
    match &arguments.action {
        KeyAction::List => list(context)?,
        KeyAction::Add(arguments) => {
            let repository = open_encrypted(context)?;
            let label = label_or_own(arguments.label.as_ref());
            let id = arguments.fresh.store(context, |credential, cost| {
                repository.add_key(credential.secret(), cost, &label)
            })?;
            report(context, id, "key_added", "added")?;
        }
        KeyAction::Remove { key } => {
            let repository = open_encrypted(context)?;
            let id = the_one(repository.key_names()?, "key", key, |id| *id)?;
            context.with_reserve(&repository, || repository.remove_key(id))?;
            report(context, id, "key_removed", "removed")?;
        }
        KeyAction::Passwd(arguments) => {
            let repository = open_encrypted(context)?;
            let label = label_or_own(arguments.label.as_ref());
            let id = arguments.fresh.store(context, |credential, cost| {
                repository.change_key(credential.secret(), cost, &label)
            })?;
            report(context, id, "key_changed", "replaces the one used so far")?;
        }
        KeyAction::Rotate { remove_others } => rotate(context, *remove_others)?,
        KeyAction::Upgrade { kdf, label } => {
            let cost = kdf.cost(context.memory.limit_bytes)?;
            let (repository, credential) = context.open_with_credential()?;
            if matches!(credential, Credential::KeyFile(_)) {
                return Err(Error::invalid(
                    "the store was opened by a key file, which nobody guesses whatever trying it \
                     costs; open it by the password that is to cost more",
                ));
            }
            let label = label_or_own(label.as_ref());
            let id = repository.change_key(credential.secret(), cost, &label)?;
            report(context, id, "key_changed", "has the same password and replaces the old one")?;
        }
    }
    Ok(Outcome::Complete)
}

fn rotate(context: &Context, remove_others: bool) -> Result<()> {
    let (repository, credential) = context.open_with_credential()?;
    let rotation = repository.rotate_keys(credential.secret(), remove_others)?;
    let output = &context.output;
    output.set_done("the keys are rotated");
    for (id, error) in &rotation.left {
        output.warning(&format!(
            "the keys were rotated, but the old key {} was not removed: {error}; remove it with \
             'onefold key remove {}'",
            id.short(),
            id.short()
        ));
    }
    output.note(&format!(
        "what is saved from now on is sealed under new keys; key {} holds them and has the same {}",
        rotation.key.short(),
        match credential {
            Credential::Password(_) => "password",
            Credential::KeyFile(_) => "key file",
        }
    ))?;
    let names = |ids: &[KeyId]| ids.iter().map(KeyId::short).collect::<Vec<_>>().join(", ");
    if !rotation.removed.is_empty() {
        output.note(&format!(
            "removed with the old keys: {}; add others anew with 'onefold key add'",
            names(&rotation.removed)
        ))?;
    }
    output.note("what was saved before is as it was; 'onefold gc --reseal' moves it")?;
    let all = |ids: &mut dyn Iterator<Item = &KeyId>| ids.map(KeyId::to_string).collect::<Vec<_>>();
    output.message(
        "keys_rotated",
        json!({
            "key": rotation.key.to_string(),
            "generations": rotation.generations,
            "removed": all(&mut rotation.removed.iter()),
            "left": all(&mut rotation.left.iter().map(|(id, _)| id)),
        }),
    )
}

/// Opens the store for a change of keys; says early that a store has none.
fn open_encrypted(context: &Context) -> Result<std::sync::Arc<Repository>> {
    let repository = context.open(Access::Write)?;
    match repository.configuration().encryption.as_str() {
        "none" => Err(Error::invalid("the store is not encrypted, so it has no keys")),
        _ => Ok(repository),
    }
}

/// The key whose id begins like this.
pub fn find(repository: &Repository, beginning: &str) -> Result<NamedSlot> {
    the_one(repository.keys()?, "key", beginning, |named| named.id)
}

fn report(context: &Context, id: KeyId, message_type: &str, what: &str) -> Result<()> {
    let line = format!("key {} {what}", id.short());
    context.output.set_done(line.as_str());
    context.output.note(&line)?;
    let fields = json!({ "key": id.to_string() });
    context.output.message(message_type, fields)
}

fn list(context: &Context) -> Result<()> {
    let repository = context.open(Access::Read)?;
    let mut table = Table::new(&["", "ID", "Created", "Kind", "To guess", "Label"]);
    for named in repository.keys()? {
        let mut notes = Vec::new();
        if named.being_removed {
            notes.push("(being removed)");
        }
        if named.has_other_keys {
            notes.push("(not the newest keys)");
        }
        let (created_ns, label) = match &named.slot {
            Ok(slot) => (Some(slot.created_ns), slot.label.as_str()),
            Err(problem) => {
                context.output.warning(&problem.to_string());
                notes.push("(cannot be read)");
                (None, "")
            }
        };
        let kind = named.slot.as_ref().ok().and_then(KeySlot::kind);
        let cost = named.slot.as_ref().ok().map(KeySlot::cost);
        let cost = cost.filter(|_| kind == Some(SecretKind::Password));
        let (kind_shown, kind_named) = match kind {
            Some(SecretKind::Password) => ("password", Some("password")),
            Some(SecretKind::KeyFile) => ("key file", Some("key-file")),
            None => ("", None),
        };
        let label_shown = [&[label], notes.as_slice()].concat().join(" ");
        table.row(vec![
            if named.current { "*" } else { "" }.to_owned(),
            named.id.short(),
            created_ns.map(time::local).unwrap_or_default(),
            kind_shown.to_owned(),
            cost.map(|it| format!("{} MiB x {}", it.memory_kib / 1024, it.passes))
                .unwrap_or_default(),
            label_shown.trim().to_owned(),
        ]);
        let fields = json!({
            "key": named.id.to_string(),
            "created": created_ns.map(time::universal),
            "label": label,
            "kind": kind_named,
            "kdf_memory_kib": cost.map(|cost| cost.memory_kib),
            "kdf_passes": cost.map(|cost| cost.passes),
            "current": named.current,
            "readable": named.slot.is_ok(),
            "being_removed": named.being_removed,
            "has_newest_keys": named.slot.is_ok() && !named.has_other_keys,
        });
        context.output.message("key", fields)?;
    }
    table.print(&context.output)
}
