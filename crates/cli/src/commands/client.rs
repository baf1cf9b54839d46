//! `client`: who may do what at a server, and who has put what.

mod audit;

use crate::context::Context;
use crate::exit::Outcome;
use crate::size::{ByteSize, human};
use crate::table::Table;
use audit::AuditArguments;
use clap::{Args, Subcommand};
use onefold_server::{Clients, Right};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
A client has a token, which is shown once or written to a file of its own, and rights:
  read     read everything: restore, mount, check
  append   save: put what is not there yet, and read what is no container
  collect  delete: gc and maintain, with 'read' and 'append'
  metrics  see the server's counters at /metrics
Who has 'append' alone can save with 'backup --lookup none --force', and can read no data of any
snapshot, nor delete any. A server that runs takes notice of changes within a second.

'audit' reads the log beside each store that is served, and tells what a client has put and what is
still there: after its token was stolen, say. It reads while a server runs; --remove needs the
server ended. What others may rely on is named and left, with what to do about it.

EXAMPLES
  onefold client add laptop --clients clients.toml --rights read,append --quota 500GB \\
      --token-file laptop.token
  onefold client add keeper --clients clients.toml --rights read,append,collect
  onefold client list --clients clients.toml
  onefold client remove laptop --clients clients.toml
  onefold client audit laptop /srv/backup --since '2026-01-31 18:30:00'
  onefold client audit laptop /srv/backup --remove --dry-run";

/// Arguments of `client`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ClientArguments {
    #[command(subcommand)]
    action: ClientAction,
    /// The file of clients
    #[arg(long, value_name = "FILE", global = true)]
    clients: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
#[command(disable_help_subcommand = true)]
enum ClientAction {
    /// Add a client, and print its token or write it to a file
    Add {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// What it may do
        #[arg(long, value_name = "RIGHT", value_delimiter = ',', required = true)]
        rights: Vec<Right>,
        /// In which stores (if none is named: in all)
        #[arg(long, value_name = "NAME")]
        store: Vec<String>,
        /// How much it may put in all
        #[arg(long, value_name = "SIZE")]
        quota: Option<ByteSize>,
        /// Write its token to this file, which is made so that others cannot read it, and print
        /// none
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// List the clients
    List,
    /// List what a client has put into stores and is still there
    Audit(AuditArguments),
    /// Take a client's rights away
    Remove {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Runs the command.
pub fn run(context: &Context, arguments: &ClientArguments) -> Result<Outcome> {
    let path = || {
        let path = arguments.clients.as_deref();
        path.ok_or_else(|| Error::invalid("name the file of clients: --clients FILE"))
    };
    match &arguments.action {
        ClientAction::Add { name, rights, store, quota, token_file } => {
            let path = path()?;
            let mut rights = rights.clone();
            rights.sort_unstable();
            rights.dedup();
            let stores = Some(store.clone()).filter(|stores| !stores.is_empty());
            let add =
                |clients: &mut Clients| clients.add(name, rights, stores, quota.map(|it| it.0));
            let Some(file) = token_file else {
                let token = Clients::change(path, add)?;
                context.output.row(&token)?;
                let told = json!({ "client": name, "token": token });
                return context.output.message("client_added", told).map(|()| Outcome::Complete);
            };
            into_file(file, |written| Clients::change(path, |clients| written(&add(clients)?)))?;
            context.output.row(&format!("added {name}: its token is in '{}'", file.display()))?;
            let told = json!({ "client": name, "token_file": file });
            context.output.message("client_added", told)?;
        }
        ClientAction::Audit(arguments) => audit::run(context, arguments)?,
        ClientAction::List => list(context, path()?)?,
        ClientAction::Remove { name } => {
            let path = path()?;
            Clients::change(path, |clients| match clients.remove(name) {
                true => Ok(()),
                false => {
                    let what = format!("there is no client '{name}' in '{}'", path.display());
                    Err(Error::new(ErrorKind::NotFound, what))
                }
            })?;
            context.output.row(&format!("removed {name}"))?;
            context.output.message("client_removed", json!({ "client": name }))?;
        }
    }
    Ok(Outcome::Complete)
}

/// Makes a file that others cannot read, for a token that `add` hands over; without one there is no
/// file afterwards.
fn into_file(
    path: &Path,
    add: impl FnOnce(&dyn Fn(&str) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let writing = || format!("writing the token to '{}'", path.display());
    // What is there is not replaced: it may be another client's.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let file = file.context(writing)?;
    let written = |token: &str| {
        (&file).write_all(format!("{token}\n").as_bytes()).context(writing)?;
        file.sync_all().context(writing)
    };
    add(&written).inspect_err(|_| drop(fs::remove_file(path)))
}

fn list(context: &Context, path: &Path) -> Result<()> {
    let clients = Clients::read(path)?;
    let mut table = Table::new(&["client", "rights", "stores", "quota"]);
    for (name, client) in clients.iter() {
        let rights: Vec<_> = client.rights.iter().map(|right| right.name()).collect();
        let stores = client.stores.as_ref().map_or("all".to_owned(), |it| it.join(","));
        let quota = client.quota_bytes.map_or("-".to_owned(), human);
        table.row(vec![name.to_owned(), rights.join(","), stores, quota]);
        context.output.message(
            "client",
            json!({
                "client": name,
                "rights": rights,
                "stores": client.stores,
                "quota_bytes": client.quota_bytes,
            }),
        )?;
    }
    table.print(&context.output)
}
