//! `info`: how a store is made, and what the place where it is can do.
//!
//! Of a store in a bucket or behind an SFTP server the latter is found out by trying, beside the
//! store's objects; with `--read-only` it is not.

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::opening::OpenedStore;
use crate::size::human;
use crate::time;
use onefold_engine::Repository;
use onefold_remote::bucket::about::About;
use onefold_remote::bucket::capabilities::{Capabilities, Trial};
use onefold_remote::{BucketStore, CredentialSource, SftpStore};
use onefold_store::layers::ThrottleLimits;
use onefold_types::{ErrorKind, Result};
use serde_json::{Value, json};

/// More in the help.
pub const AFTER_HELP: &str = "\
Of a bucket it tries what that can do, with about thirty requests beside the store's objects; with
--read-only it does not.

EXAMPLES
  onefold -r /mnt/backup info
  onefold -r s3://bucket/backup --json info";

/// What is known of the place: a line each, and the same for programs.
#[derive(Default)]
struct Place {
    kind: &'static str,
    lines: Vec<(&'static str, String)>,
    fields: serde_json::Map<String, Value>,
    /// Whether something does not work that a store needs.
    is_unfit: bool,
}

/// Runs the command.
pub fn run(context: &Context) -> Result<Outcome> {
    let location = context.location()?;
    let (repository, opened) = context.open_reached(Access::Read, ThrottleLimits::default())?;
    let tries = !context.reads_only();
    // Where a database decides, the bucket need not be able to.
    let decides = repository.configuration().decisions.is_empty();
    let place = match &opened {
        OpenedStore::Local(_) => Place { kind: "directory", ..Place::default() },
        OpenedStore::Bucket(store, _) => of_bucket(store.inner(), decides, tries),
        OpenedStore::Sftp(store) => of_sftp(store.inner(), tries),
    };
    let output = &context.output;
    let configuration = repository.configuration();
    let chunker = &configuration.chunker;
    let delta = repository.delta()?.to_string();
    let mut lines = vec![
        ("store", configuration.store_id.clone()),
        ("where", location.to_string()),
        ("made", time::local(configuration.created_ns)),
        ("format", format!("version {}", configuration.format_version)),
        ("encryption", configuration.encryption.clone()),
        ("names", configuration.hash.clone()),
        ("chunks", chunks(&repository)),
        ("compression", configuration.compression.clone()),
        ("differences", delta.clone()),
        ("containers", human(configuration.container_size_bytes as u64)),
    ];
    if !decides {
        lines.push(("decisions", "by a database beside the store".to_owned()));
    }
    lines.extend(place.lines);
    for (name, value) in lines {
        output.row(&format!("{name:<18} {value}"))?;
    }
    output.message(
        "info",
        json!({
            "store": configuration.store_id,
            "location": location.to_string(),
            "kind": place.kind,
            "created": time::universal(configuration.created_ns),
            "format_version": configuration.format_version,
            "encryption": configuration.encryption,
            "hash": configuration.hash,
            "chunker": chunker.kind,
            "chunk_size_min_bytes": chunker.size_min_bytes,
            "chunk_size_avg_bytes": chunker.size_avg_bytes,
            "chunk_size_max_bytes": chunker.size_max_bytes,
            "compression": configuration.compression,
            "delta": delta,
            "container_size_bytes": configuration.container_size_bytes,
            "decisions": if decides { "store" } else { "database" },
            "place": place.fields,
        }),
    )?;
    Ok(if place.is_unfit { Outcome::Failed } else { Outcome::Complete })
}

fn chunks(repository: &Repository) -> String {
    let chunker = &repository.configuration().chunker;
    let [min, avg, max] = [chunker.size_min_bytes, chunker.size_avg_bytes, chunker.size_max_bytes]
        .map(|bytes| human(bytes as u64));
    format!("{}, {avg} on average ({min} to {max})", chunker.kind)
}

impl Place {
    fn say(&mut self, name: &'static str, key: &str, value: &str) {
        self.lines.push((name, value.to_owned()));
        self.fields.insert(key.to_owned(), value.into());
    }

    /// What was tried; `needs` if no store can be without it.
    fn tell(&mut self, name: &'static str, key: &str, trial: &Trial, needs: bool) {
        let (word, line) = match trial {
            Ok(()) => ("yes", "yes, tried just now".to_owned()),
            Err(error) if is_unknown(error.kind()) => ("unknown", format!("unknown: {error}")),
            Err(error) => {
                self.is_unfit |= needs;
                ("no", format!("no: {error}"))
            }
        };
        self.lines.push((name, line));
        self.fields.insert(key.to_owned(), word.into());
    }
}

/// Whether a failed trial says nothing of the place: it was not to be tried, or not to be reached.
fn is_unknown(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ReadOnly
            | ErrorKind::NotPermitted
            | ErrorKind::Unavailable
            | ErrorKind::Interrupted
    )
}

fn of_bucket(store: &BucketStore, decides: bool, tries: bool) -> Place {
    let mut place = Place { kind: "bucket", ..Place::default() };
    if let Some(way) = store.way() {
        place.fields.insert("service".to_owned(), way.service.name().into());
        place.say("server", "endpoint", way.endpoint.as_deref().unwrap_or(way.service.owner()));
        if let Some(account) = &way.account {
            place.say("account", "account", account);
        }
        if let Some(region) = &way.region {
            place.say("region", "region", region);
        }
        if let Some(path_style) = way.path_style {
            let style = if path_style { "in the path" } else { "in the server's name" };
            place.lines.push(("bucket is", style.to_owned()));
            place.fields.insert("path_style".to_owned(), path_style.into());
        }
        place.lines.push(("credentials", way.credentials.to_string()));
        place.fields.insert("credentials".to_owned(), way.credentials.name().into());
        if let CredentialSource::Profile(name) | CredentialSource::Process(name) = &way.credentials
        {
            place.fields.insert("profile".to_owned(), name.as_str().into());
        }
    }
    match store.about() {
        Ok(None) => {}
        Ok(Some(about)) => return of_server(about, place),
        Err(error) => {
            place.say("client", "about", &format!("unknown: {error}"));
            return place;
        }
    }
    if tries {
        let Capabilities { conditional_put, ranged_reads, lists_at_once, deletes } =
            store.capabilities();
        match (&conditional_put, decides) {
            // That it may replace objects is why there is one.
            (Err(error), false) if !is_unknown(error.kind()) => {
                place.lines.push(("what is first stays", "no; the database decides".to_owned()));
                place.fields.insert("conditional_put".to_owned(), "no".into());
            }
            _ => place.tell("what is first stays", "conditional_put", &conditional_put, decides),
        }
        place.tell("ranges", "ranged_reads", &ranged_reads, true);
        place.tell("lists at once", "lists_at_once", &lists_at_once, false);
        place.tell("deletes", "deletes", &deletes, false);
    }
    place
}

/// Onefold's own server says what its client may.
fn of_server(about: About, mut place: Place) -> Place {
    place.kind = "server";
    place.say("client", "client", &about.client);
    place.lines.push(("rights", about.rights.join(", ")));
    place.fields.insert("rights".to_owned(), about.rights.into());
    if let Some(bytes) = about.free_bytes {
        place.lines.push(("room", human(bytes)));
        place.fields.insert("free_bytes".to_owned(), bytes.into());
    }
    // A bucket's ways are none of a server's.
    place.lines.retain(|(name, _)| *name != "bucket is");
    place
}

fn of_sftp(store: &SftpStore, tries: bool) -> Place {
    let mut place = Place { kind: "sftp", ..Place::default() };
    if tries {
        place.tell("what is first stays", "hard_links", &store.prove(), true);
    }
    place
}
