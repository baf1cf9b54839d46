//! `serve`: stores in directories for other machines, until it is ended.

use crate::bounds::Period;
use crate::context::Context;
use crate::exit::Outcome;
use crate::size::ByteSize;
use clap::Args;
use onefold_server::served::Rules;
use onefold_server::{Identity, Options, Patience, Running};
use onefold_types::{Error, ErrorKind, Result};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const AFTER_HELP: &str = "\
Each directory is a store, or empty for one to be made in it with 'init'. Its name is the last part
of the store's name: https://HOST:PORT/NAME. The server needs no password, and cannot read what is
saved. It never replaces anything, whoever asks; who may do what stands in the file of clients
('onefold client'), which is read again when it changes.

With --keep-deleted what a collection deletes is kept beside the store, in DIR.deleted, by its name:
linked back within that time ('cp -aln DIR.deleted/. DIR/ && sync'), nothing was lost. That time is
one in which the server runs, so no clock that is wrong ends it.

EXAMPLES
  onefold client add laptop --clients /etc/onefold/clients.toml --rights read,append \\
      --token-file laptop.token
  onefold serve /srv/backup --clients /etc/onefold/clients.toml --own-certificate backup.example \\
      --listen 0.0.0.0:8377 --keep-deleted 30d
  ONEFOLD_TOKEN_FILE=~/.onefold-token onefold \\
      -r 'https://backup.example:8377/backup?certificate=/etc/onefold/certificate.pem' backup ~";

/// How long somebody waits at the most until a signal is noticed.
const NOTICED: Duration = Duration::from_millis(50);
/// The part of the memory limit that bodies of requests may take.
const BODIES_PART: u64 = 2;

/// Arguments of `serve`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ServeArguments {
    /// Directories of stores, or empty ones
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// The file of clients, which 'onefold client add' makes
    #[arg(long, value_name = "FILE")]
    clients: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8377")]
    listen: SocketAddr,
    /// The server's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Make a certificate for these names once, beside the file of clients
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "certificate")]
    own_certificate: Vec<String>,
    /// Without a certificate, for this machine only: a proxy before it has one
    #[arg(long, conflicts_with_all = ["certificate", "own_certificate"])]
    plain: bool,
    /// Keep what is deleted until the server has run for so long
    #[arg(long, value_name = "TIME")]
    keep_deleted: Option<Period>,
    /// How much each store may hold
    #[arg(long, value_name = "SIZE")]
    quota: Option<ByteSize>,
}

impl ServeArguments {
    fn identity(&self) -> Result<Identity> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Ok(Identity::Given { certificate: certificate.clone(), key: key.clone() })
            }
            _ if !self.own_certificate.is_empty() => {
                Ok(Identity::Own(self.own_certificate.clone()))
            }
            _ if self.plain => Ok(Identity::Plain),
            _ => Err(Error::invalid(
                "clients must know whom they send their tokens to: give --certificate and --key, \
                 --own-certificate NAME, or --plain behind a proxy on this machine",
            )),
        }
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &ServeArguments) -> Result<Outcome> {
    let options = Options {
        directories: arguments.directories.clone(),
        clients: arguments.clients.clone(),
        address: arguments.listen,
        identity: arguments.identity()?,
        rules: Rules {
            keep_deleted: arguments.keep_deleted.map(|it| it.0),
            quota_bytes: arguments.quota.map(|it| it.0),
        },
        bodies_bytes: context.memory.limit_bytes as u64 / BODIES_PART,
        patience: Patience::USUAL,
    };
    let running = context.start_job("serving")?;
    let interrupt = running.job.interrupt.clone();
    running.finish();
    let output = Arc::clone(&context.output);
    let mut server = Running::start(&options, Arc::new(move |problem| output.warning(problem)))?;
    let scheme = if arguments.plain { "http" } else { "https" };
    for store in &server.stores {
        context.output.note(&format!("serving {scheme}://{}/{store}", server.address))?;
    }
    if let Some(certificate) = &server.own_certificate {
        let shown = certificate.display();
        context.output.note(&format!(
            "clients trust the certificate in '{shown}': give it to them, and \
             '?certificate=FILE' behind the store's name"
        ))?;
    }
    context.output.message(
        "serving",
        json!({
            "address": server.address.to_string(),
            "stores": server.stores,
            "certificate": server.own_certificate,
            "connections": server.connections_max,
        }),
    )?;
    context.output.flush()?;
    while !interrupt.is_requested() {
        if let Some(why) = server.has_ended() {
            return Err(Error::new(ErrorKind::Io, format!("the server has ended: {why}")));
        }
        std::thread::sleep(NOTICED);
    }
    server.end()?;
    Ok(Outcome::Complete)
}
