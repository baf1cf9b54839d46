//! `share list`, `share remove`, and what is told of manifests that another directory has made.

use super::creating;
use crate::context::{Access, Context, user_at_host};
use crate::exit::Outcome;
use crate::size::{counted, human};
use crate::table::Table;
use crate::time;
use clap::{ArgGroup, Args};
use onefold_engine::primary::manifests::{self, Elsewhere, KnownShare};
use onefold_engine::session::SnapshotList;
use onefold_types::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `share remove`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["directory", "lost"])))]
pub struct RemoveArguments {
    /// The share
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Forget what keeps the data of a share whose directory is gone; says what that is, and does
    /// it with --final
    #[arg(long, value_name = "ID")]
    lost: Option<String>,
    /// Only what was made at this address, as 'share list' shows it
    #[arg(long, value_name = "HOST:PATH", requires = "lost")]
    at: Option<String>,
    /// Forget for good: the files cannot be had back
    #[arg(long = "final", requires = "lost")]
    for_good: bool,
}

/// Makes a share an ordinary directory again, or forgets one that is lost.
pub fn remove(context: &Context, arguments: &RemoveArguments) -> Result<Outcome> {
    match (&arguments.lost, &arguments.directory) {
        (Some(beginning), _) => forget(context, beginning, arguments),
        (None, Some(directory)) => creating::remove(context, directory),
        (None, None) => Err(Error::invalid("no share is given")),
    }
}

fn forget(context: &Context, beginning: &str, arguments: &RemoveArguments) -> Result<Outcome> {
    let access = if arguments.for_good { Access::Write } else { Access::Read };
    let repository = context.open(access)?;
    let mut lost = manifests::known(&SnapshotList::load(&repository)?);
    lost.retain(|known| known.share.to_string().starts_with(beginning));
    if lost.iter().any(|known| known.share != lost[0].share) || beginning.is_empty() {
        return Err(Error::invalid(format!(
            "several shares have ids that begin with '{beginning}'; nothing was forgotten"
        )));
    }
    let is_meant = |known: &KnownShare| {
        arguments.at.as_ref().is_none_or(|at| *at == known.used_at().to_string())
    };
    lost.retain(is_meant);
    let Some(first) = lost.first() else {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "the store has no data of a share with an id that begins with '{beginning}'; \
                 'onefold share list' shows those that it has"
            ),
        ));
    };
    let share = first.share;
    manifests::refuse_unless_lost(&lost)?;
    print(context, &lost)?;
    let count: usize = lost.iter().map(|known| known.manifests.len()).sum();
    let count = counted(count as u64, "manifest");
    if arguments.for_good {
        let by = user_at_host();
        context.with_reserve(&repository, || manifests::forget_lost(&repository, &lost, &by))?;
        context.output.set_done(format!("{count} forgotten for good"));
        context.output.note(&format!(
            "forgot {count} of the share {} for good; a later collection frees the space",
            share.short()
        ))?;
    } else {
        context.output.note(&format!(
            "would forget {count} of the share {}; nothing was changed. If no directory uses the \
             share any more, --final does it; its files cannot be had back then",
            share.short()
        ))?;
    }
    let ids = lost.iter().flat_map(|known| &known.manifests).map(ToString::to_string);
    context.output.message(
        "share_forgotten",
        json!({
            "share": share.to_string(),
            "manifests": ids.collect::<Vec<_>>(),
            "final": arguments.for_good,
        }),
    )?;
    Ok(Outcome::Complete)
}

/// Lists the shares that the store has data of.
pub fn list(context: &Context) -> Result<Outcome> {
    let repository = context.open(Access::Read)?;
    let known = manifests::known(&SnapshotList::load(&repository)?);
    print(context, &known)?;
    for share in &known {
        context.output.message("share", fields(share))?;
    }
    Ok(Outcome::Complete)
}

fn print(context: &Context, known: &[KnownShare]) -> Result<()> {
    let mut table = Table::new(&["Share", "Address", "Manifests", "Newest", "Size"]);
    for share in known {
        table.row(vec![
            share.share.to_string(),
            share.used_at().to_string(),
            share.manifests.len().to_string(),
            time::local(share.newest_ns),
            human(share.bytes),
        ]);
    }
    table.print(&context.output)
}

fn fields(known: &KnownShare) -> Value {
    json!({
        "share": known.share.to_string(),
        "host": known.used_at().host,
        "path": known.used_at().path,
        "manifests": known.manifests.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "newest": time::universal(known.newest_ns),
        "bytes": known.bytes,
    })
}

/// Tells of manifests that another directory has made.
pub fn warn_of_others(context: &Context, others: &[Elsewhere]) {
    for Elsewhere { id, address, is_newer } in others {
        let id = id.short();
        context.output.warning(&match is_newer {
            true => format!(
                "another directory uses this share: '{address}' has made the manifest {id} since, \
                 which stays; bring the files of this one back with 'onefold share rehydrate', \
                 then remove it and create it anew"
            ),
            false => format!(
                "the manifest {id} of this share was made at '{address}' and stays; if that \
                 directory is gone, 'onefold share remove --lost' forgets it"
            ),
        });
    }
}
