//! `copy`: snapshots of one store in another.

use crate::config_file::CopyTarget;
use crate::context::{Context, OtherStore, program};
use crate::exit::Outcome;
use crate::options::FilterArguments;
use crate::password::CredentialSource;
use crate::reference::Snapshots;
use crate::size::{counted, human};
use clap::Args;
use onefold_engine::copy::{self, Copied, CopyOptions, Fate, Known, Standing};
use onefold_engine::session::{Snapshot, SnapshotList};
use onefold_engine::{Job, Repository};
use onefold_format::codec::Compression;
use onefold_policy::selection::SnapshotReference;
use onefold_remote::Location;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

const AFTER_HELP: &str = "\
Without names all snapshots that are not hidden are copied, or those that the filters select. What
is there already is passed over, so the same command may be run again at any time. The store that is
copied from is only read. What is held there is not held as a copy, and what was said of snapshots
or hidden after they were copied stays as it is in each store: it is told. Two stores take a memory
limit of at least 96 MiB.

The password of the other one comes from --to-password-file, --to-password-command,
ONEFOLD_TO_PASSWORD, ONEFOLD_TO_PASSWORD_FILE, ONEFOLD_TO_PASSWORD_COMMAND, or a question at the
terminal; --to-key-file or ONEFOLD_TO_KEY_FILE names a key file instead.

EXAMPLES
  onefold -r /mnt/backup copy --to /mnt/disk/backup
  onefold -r /mnt/backup copy --to s3://bucket/backup --to-password-file password.txt latest
  onefold copy                  # into each store that the profile names";

/// Arguments of `copy`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CopyArguments {
    /// Snapshots to copy
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<SnapshotReference>,
    /// The store to copy to [default: those of the profile]
    #[arg(long, value_name = "STORE", env = "ONEFOLD_TO_REPOSITORY")]
    to: Option<PathBuf>,
    /// Read the password of that store from this file
    #[arg(long, value_name = "FILE", conflicts_with = "to_password_command")]
    to_password_file: Option<PathBuf>,
    /// Read the password of that store from what this shell command prints
    #[arg(long, value_name = "COMMAND")]
    to_password_command: Option<String>,
    /// Open that store by this key file
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["to_password_file", "to_password_command"])]
    to_key_file: Option<PathBuf>,
    /// What to compress with there [default: as that store says]
    #[arg(long, value_name = "CODEC")]
    compression: Option<Compression>,
    /// Say what would be copied, write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    filter: FilterArguments,
}

/// What became of how many.
#[derive(Default)]
struct Sums {
    copied: u64,
    present: u64,
    hidden: u64,
    said_otherwise: u64,
    damaged: u64,
    forgotten: u64,
    bytes_read: u64,
    chunks_new: u64,
    bytes_stored: u64,
}

impl Sums {
    fn add(&mut self, copied: &Copied) {
        self.bytes_read += copied.bytes_read;
        self.chunks_new += copied.summary.chunks_new;
        self.bytes_stored += copied.summary.bytes_stored;
    }

    fn add_present(&mut self, standing: Standing) {
        self.present += 1;
        self.hidden += u64::from(standing.hidden);
        self.said_otherwise += u64::from(standing.is_said_otherwise());
    }
}

/// What a line says of a copy that is there.
fn described(standing: Standing) -> String {
    let others: Vec<&str> = [
        (standing.tags, "other tags"),
        (standing.description, "another note"),
        (standing.hold, "another hold"),
    ]
    .into_iter()
    .filter_map(|(differs, what)| differs.then_some(what))
    .collect();
    let with = match others.as_slice() {
        [] => String::new(),
        others => format!(", with {}", others.join(", ")),
    };
    let hidden = if standing.hidden { ", but hidden" } else { "" };
    format!("{hidden}{with}")
}

/// Runs the command.
pub fn run(context: &Context, arguments: &CopyArguments) -> Result<Outcome> {
    let given = CredentialSource::from_settings(
        arguments.to_password_file.clone(),
        arguments.to_password_command.clone(),
        arguments.to_key_file.clone(),
    )?;
    let targets = context.profile.copy.as_slice();
    match (&arguments.to, targets) {
        (Some(to), _) => copy_to(context, arguments, &Location::parse(to)?, given.as_ref()),
        (None, []) => Err(Error::invalid(
            "no store to copy to: give --to, set ONEFOLD_TO_REPOSITORY, or name some as \
             [[profile.NAME.copy]]",
        )),
        (None, _) if given.is_some() && targets.len() > 1 => Err(Error::invalid(
            "the profile has several stores to copy to, and one password or key file was given: \
             use --to",
        )),
        (None, _) => copy_to_all(context, arguments, targets, given.as_ref()),
    }
}

/// Copies into one store after another; one that cannot be copied to keeps the others waiting for
/// nothing. The first error is that of the command.
fn copy_to_all(
    context: &Context,
    arguments: &CopyArguments,
    targets: &[CopyTarget],
    given: Option<&CredentialSource>,
) -> Result<Outcome> {
    let mut outcome = Outcome::Complete;
    let mut failed = None;
    for target in targets {
        let to = Location::parse(&target.to)?;
        let own = target.credential_source()?;
        context.output.note(&format!("to '{to}':"))?;
        match copy_to(context, arguments, &to, given.or(own.as_ref())) {
            Ok(Outcome::Complete) => {}
            Ok(other) => outcome = other,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) if failed.is_none() => failed = Some(error.context(to.to_string())),
            Err(error) => context.output.problem(&to.to_string(), &error),
        }
    }
    failed.map_or(Ok(outcome), Err)
}

/// Copies into one store.
fn copy_to(
    context: &Context,
    arguments: &CopyArguments,
    to: &Location,
    credential: Option<&CredentialSource>,
) -> Result<Outcome> {
    let (source, target) = context.open_two(to, credential, OtherStore::CopyTo)?;
    copy::refuse_same(&source, &target)?;
    if !arguments.dry_run {
        context.leave_what_reserve_lacks(&target)?;
    }
    let snapshots = Snapshots::load(&source, &context.output)?;
    let filter = arguments.filter.filter();
    let wanted: Vec<&Snapshot> = match arguments.snapshots.as_slice() {
        [] => snapshots.selected(&filter),
        references => references
            .iter()
            .map(|reference| snapshots.resolve(reference, &filter))
            .collect::<Result<_>>()?,
    };
    if arguments.dry_run {
        return tell(context, (&source, &target), to, &wanted);
    }
    let options = CopyOptions {
        threads: context.threads_of_two()?,
        compression: arguments.compression,
        lookup: onefold_engine::look_up::LookupChoice::default(),
        reach: context.reach(),
        program: program(),
    };
    let ids: Vec<SessionId> = wanted.iter().map(|snapshot| snapshot.id).collect();
    let running = context.start_job("copying")?;
    let sums = transfer(context, (&source, &target, to), &ids, (&options, &running.job))?;
    let problems = running.finish();
    summarize(context, to, &sums)?;
    warn_of_standing(context, to, &sums);
    let damaged = if sums.present > 0 { copy::damaged_containers(&target)? } else { 0 };
    if damaged > 0 {
        context.output.warning(&format!(
            "{} of the store to copy to are damaged or lost: what was there already was looked at, \
             and what was not whole was copied again; check that store",
            counted(damaged, "container")
        ));
    }
    match sums.damaged + damaged {
        0 => Ok(Outcome::with_problems(problems)),
        _ => Ok(Outcome::Partial),
    }
}

fn transfer(
    context: &Context,
    (source, target, to): (&Arc<Repository>, &Arc<Repository>, &Location),
    ids: &[SessionId],
    (options, job): (&CopyOptions, &Job),
) -> Result<Sums> {
    let mut sums = Sums::default();
    copy::copy((source, target), ids, options, job, &mut |snapshot, fate| {
        let short = snapshot.id.short();
        let (line, name, id) = match fate {
            Fate::Copied(id, copied) => {
                sums.copied += 1;
                sums.add(&copied);
                let bytes = human(copied.summary.bytes_stored);
                let line = format!("snapshot {short} is copied as {}, {bytes} added", id.short());
                (line, "copied", Some(id))
            }
            Fate::Present(id, standing) => {
                sums.add_present(standing);
                let line = format!("snapshot {short} is there as {}", id.short());
                (line + &described(standing), "present", Some(id))
            }
            Fate::Damaged(items, copied) => {
                sums.damaged += 1;
                sums.add(&copied);
                let items = counted(items, "item");
                (format!("snapshot {short} is damaged ({items}) and not copied"), "damaged", None)
            }
            Fate::Forgotten => {
                sums.forgotten += 1;
                (format!("snapshot {short} was forgotten meanwhile"), "forgotten", None)
            }
        };
        context.output.note(&line)?;
        let standing = match fate {
            Fate::Present(_, standing) => standing,
            _ => Standing::default(),
        };
        let fields = json!({
            "snapshot": snapshot.id.to_string(),
            "state": name,
            "copy": id.map(|id| id.to_string()),
            "hidden": standing.hidden,
            "said_otherwise": standing.is_said_otherwise(),
            "to": to.to_string(),
        });
        context.output.message("snapshot", fields)
    })?;
    Ok(sums)
}

/// What would be copied.
fn tell(
    context: &Context,
    (source, target): (&Repository, &Repository),
    to: &Location,
    wanted: &[&Snapshot],
) -> Result<Outcome> {
    let copies = SnapshotList::load(target)?;
    let known = Known::of(&copies, target.store_id());
    let (mut sums, mut missing) = (Sums::default(), 0u64);
    for snapshot in wanted {
        let id = known.name_of(source.store_id(), snapshot);
        let standing = id.map(|id| Standing::of(&copies, id, snapshot));
        if let Some(standing) = standing {
            sums.add_present(standing);
        }
        let standing = standing.unwrap_or_default();
        let (short, summary) = (snapshot.id.short(), &snapshot.record.summary);
        let line = match id {
            Some(id) => {
                format!("snapshot {short} is there as {}{}", id.short(), described(standing))
            }
            None => format!(
                "snapshot {short} would be copied: {}, {}",
                counted(summary.files, "file"),
                human(summary.bytes)
            ),
        };
        missing += u64::from(id.is_none());
        context.output.note(&line)?;
        let fields = json!({
            "snapshot": snapshot.id.to_string(),
            "state": if id.is_some() { "present" } else { "would-be-copied" },
            "copy": id.map(|id| id.to_string()),
            "hidden": standing.hidden,
            "said_otherwise": standing.is_said_otherwise(),
            "to": to.to_string(),
        });
        context.output.message("snapshot", fields)?;
    }
    warn_of_standing(context, to, &sums);
    let fields = json!({
        "dry_run": true,
        "would_be_copied": missing,
        "present": sums.present,
        "hidden": sums.hidden,
        "said_otherwise": sums.said_otherwise,
        "to": to.to_string(),
    });
    context.output.message("summary", fields)?;
    Ok(Outcome::Complete)
}

/// Says how copies that are there stand to their originals: nothing of that is changed here.
fn warn_of_standing(context: &Context, to: &Location, sums: &Sums) {
    if sums.hidden > 0 {
        let (are, them) = if sums.hidden == 1 { ("is", "it") } else { ("are", "them") };
        context.output.warning(&format!(
            "{} there already {are} hidden there, and 'gc' may forget {them} for good: 'onefold -r \
             {to} undelete ID' brings {them} back",
            counted(sums.hidden, "snapshot")
        ));
    }
    if sums.said_otherwise > 0 {
        let have = if sums.said_otherwise == 1 { "has" } else { "have" };
        context.output.warning(&format!(
            "{} there already {have} other tags, notes or holds there than here, by which 'forget' \
             goes: 'onefold -r {to} tag', 'describe' and 'hold' change these",
            counted(sums.said_otherwise, "snapshot")
        ));
    }
}

fn summarize(context: &Context, to: &Location, sums: &Sums) -> Result<()> {
    let output = &context.output;
    output.set_done(format!("{} copied", counted(sums.copied, "snapshot")));
    let not_copied = match sums.damaged {
        0 => String::new(),
        damaged => format!(", {damaged} damaged and not copied"),
    };
    let forgotten = match sums.forgotten {
        0 => String::new(),
        forgotten => format!(", {forgotten} forgotten meanwhile"),
    };
    output.note(&format!(
        "{} copied, {} there already{not_copied}{forgotten}; {} read, {} stored ({} added)",
        counted(sums.copied, "snapshot"),
        sums.present,
        human(sums.bytes_read),
        counted(sums.chunks_new, "new chunk"),
        human(sums.bytes_stored)
    ))?;
    output.message(
        "summary",
        json!({
            "copied": sums.copied,
            "present": sums.present,
            "hidden": sums.hidden,
            "said_otherwise": sums.said_otherwise,
            "damaged": sums.damaged,
            "forgotten": sums.forgotten,
            "bytes_read": sums.bytes_read,
            "chunks_new": sums.chunks_new,
            "bytes_stored": sums.bytes_stored,
            "to": to.to_string(),
        }),
    )
}
