//! `client audit`: what a client has put and what is still there, with what to do about each kind.
//!
//! Invariant: nothing is removed but what costs time only ([`Kind::costs_time_only`]). On all else
//! honest snapshots may rely, or other commands take it back with the password, which a server has
//! not.

use crate::context::Context;
use crate::size::{counted, human};
use crate::table::Table;
use crate::time;
use clap::Args;
use onefold_format::layout::Kind;
use onefold_server::audit::{self, Put};
use onefold_types::Result;
use onefold_types::error::Context as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `client audit`.
#[derive(Args, Debug)]
pub struct AuditArguments {
    /// The client's name, also of one that was removed
    #[arg(value_name = "NAME")]
    name: String,
    /// Directories of stores that are served
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Only what was put since then, such as '2026-01-31 18:30:00'
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    since: Option<i64>,
    /// Remove what costs time only: index runs, metadata packs, checkpoints, and that sessions are
    /// ready
    #[arg(long)]
    remove: bool,
    /// Only show what would be removed
    #[arg(short = 'n', long, requires = "remove")]
    dry_run: bool,
}

/// What there is of a kind.
#[derive(Default)]
struct Sum {
    objects: u64,
    bytes: u64,
}

impl Sum {
    fn of<'a>(puts: impl Iterator<Item = &'a Put>) -> Self {
        puts.fold(Self::default(), |sum, put| Self {
            objects: sum.objects + 1,
            bytes: sum.bytes.saturating_add(put.size_bytes),
        })
    }

    fn shown(&self) -> String {
        format!("{}, {}", counted(self.objects, "object"), human(self.bytes))
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &AuditArguments) -> Result<()> {
    let mut stores = Vec::new();
    for directory in &arguments.directories {
        let puts = audit::puts_of(directory, &arguments.name, arguments.since)
            .context(|| format!("'{}'", directory.display()))?;
        stores.push((directory, puts));
    }
    let all = || stores.iter().flat_map(|(_, puts)| puts);
    list(context, &stores)?;
    let mut kinds: BTreeMap<&str, (Kind, Vec<&Put>)> = BTreeMap::new();
    for put in all() {
        kinds.entry(put.kind.name()).or_insert((put.kind, Vec::new())).1.push(put);
    }
    let kinds: Vec<(Kind, Sum)> =
        kinds.into_values().map(|(kind, puts)| (kind, Sum::of(puts.into_iter()))).collect();
    tell_kinds(context, &kinds)?;
    let going = || all().filter(|put| put.kind.costs_time_only());
    let removes = arguments.remove && !arguments.dry_run;
    if removes {
        for (directory, puts) in &stores {
            audit::remove(directory, puts).context(|| format!("'{}'", directory.display()))?;
        }
    }
    let output = &context.output;
    let (total, gone) = (Sum::of(all()), Sum::of(going()));
    output.note(&match (total.objects, arguments.remove, arguments.dry_run) {
        (0, ..) => format!("of what '{}' has put nothing is there", arguments.name),
        (_, false, _) => format!("there: {}", total.shown()),
        (_, true, true) => format!("there: {}; would be removed: {}", total.shown(), gone.shown()),
        (_, true, false) => format!("there: {}; removed: {}", total.shown(), gone.shown()),
    })?;
    let of_kind = |(kind, sum): &(Kind, Sum)| {
        json!({
            "kind": named(*kind),
            "objects": sum.objects,
            "bytes": sum.bytes,
            "removable": kind.costs_time_only(),
        })
    };
    output.message(
        "summary",
        json!({
            "client": arguments.name,
            "objects": total.objects,
            "bytes": total.bytes,
            "kinds": kinds.iter().map(of_kind).collect::<Vec<_>>(),
            "removed": if arguments.remove { gone.objects } else { 0 },
            "dry_run": arguments.dry_run,
        }),
    )
}

fn list(context: &Context, stores: &[(&PathBuf, Vec<Put>)]) -> Result<()> {
    let mut table = Table::new(&["Put", "Size", "Kind", "Name"]);
    for (directory, puts) in stores {
        let mut puts: Vec<&Put> = puts.iter().collect();
        puts.sort_by_key(|put| (put.kind.name(), put.time_ns));
        for put in puts {
            let name = match stores {
                [_] => put.key.to_string(),
                _ => format!("{}/{}", directory.display(), put.key),
            };
            table.row(vec![
                time::local(put.time_ns),
                human(put.size_bytes),
                put.kind.name().to_owned(),
                name,
            ]);
            context.output.message(
                "put",
                json!({
                    "store": directory,
                    "key": put.key.to_string(),
                    "kind": named(put.kind),
                    "time": time::universal(put.time_ns),
                    "size_bytes": put.size_bytes,
                    "removable": put.kind.costs_time_only(),
                }),
            )?;
        }
    }
    table.print(&context.output)
}

fn tell_kinds(context: &Context, kinds: &[(Kind, Sum)]) -> Result<()> {
    let mut table = Table::new(&["Kind", "Objects", "Size", "What to do"]);
    for (kind, sum) in kinds {
        table.row(vec![
            kind.name().to_owned(),
            sum.objects.to_string(),
            human(sum.bytes),
            remedy(*kind).to_owned(),
        ]);
    }
    context.output.row("")?;
    table.print(&context.output)
}

/// A kind as programs read it.
fn named(kind: Kind) -> String {
    kind.name().replace(' ', "-")
}

/// What an owner does about objects of a kind that he does not trust (docs/PROTOCOL.md, section
/// 11).
fn remedy(kind: Kind) -> &'static str {
    match kind {
        Kind::MetadataPack | Kind::IndexRun | Kind::Ready(_) | Kind::Checkpoint => {
            "--remove: it costs time only"
        }
        Kind::Container => {
            "stays, for others may rely on it; 'check --read-data' finds those that lie, 'gc' \
             deletes what no snapshot needs"
        }
        Kind::Outcome(_) => "'forget ID'; 'forget --give-up ID' if it is no snapshot",
        Kind::Announced(_) => "stays; the next 'gc' fences it or removes it",
        Kind::Mark => "'snapshots --all' shows what is hidden, 'undelete' shows it again",
        Kind::Fate => "'forget' hides again what is shown again",
        Kind::Change => "'hold', 'release', 'tag' and 'describe' say it anew",
        Kind::Damage | Kind::Doubt => {
            "stays, for it may be true; 'check --read-data' removes it once all is sound"
        }
        Kind::Tombstone | Kind::Final => {
            "stays; what was forgotten for good is in other copies only"
        }
        Kind::Key | Kind::Generation => "'key list' shows it, 'key remove' removes it",
        Kind::Configuration => "stays; its tag proves it when the store is opened",
        Kind::Collection => "stays; the next 'gc' goes on with it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::SessionId;

    #[test]
    fn what_is_said_to_go_is_what_goes() {
        let session = SessionId([1; 16]);
        for kind in [
            Kind::Configuration,
            Kind::Key,
            Kind::Generation,
            Kind::Container,
            Kind::MetadataPack,
            Kind::IndexRun,
            Kind::Announced(session),
            Kind::Ready(session),
            Kind::Outcome(session),
            Kind::Tombstone,
            Kind::Mark,
            Kind::Fate,
            Kind::Change,
            Kind::Final,
            Kind::Checkpoint,
            Kind::Damage,
            Kind::Doubt,
            Kind::Collection,
        ] {
            assert_eq!(remedy(kind).contains("--remove"), kind.costs_time_only(), "{kind:?}");
        }
    }
}
