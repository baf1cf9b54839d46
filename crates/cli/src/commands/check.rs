//! `check`: is everything there, and is it what was written?

mod heal;

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::machine_notes::MachineNotes;
use crate::size::{counted, human};
use clap::Args;
use onefold_engine::Repository;
use onefold_engine::check::{self, CheckOptions, CheckReport, ReadData};
use onefold_format::index_run::IndexKind;
use onefold_types::{Error, Result};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

const AFTER_HELP: &str = "\
Without --read-data the structure is checked: that every chunk of every snapshot is listed by a
container that exists. Damage that is found is noted in the store, so that the next backup stores
the damaged chunks again from the source; --no-quarantine only looks.

With --heal-from, what was found missing or damaged is stored again from another store, into which
snapshots were copied before with 'onefold copy'. Only what has the very name that was lost is
taken; what is not there, or damaged there as well, is named as without it. Damage of data is found
by reading it: add --read-data, unless an earlier check has found it. The other store is only read.
Its password comes from --to-password-file, --to-password-command, ONEFOLD_TO_PASSWORD,
ONEFOLD_TO_PASSWORD_FILE, ONEFOLD_TO_PASSWORD_COMMAND, the profile if that copies to it, or a
question at the terminal; --to-key-file or ONEFOLD_TO_KEY_FILE names a key file instead. Two
stores take a memory limit of at least 96 MiB.

EXAMPLES
  onefold check
  onefold check --read-data-part 1/7     (a seventh each day: all in a week)
  onefold check --read-data --heal-from /mnt/disk/backup
  onefold check --heal-from s3://bucket/backup --to-password-file password.txt";

/// Arguments of `check`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CheckArguments {
    /// Read and verify all data
    #[arg(long, conflicts_with_all = ["read_data_sample", "read_data_part"])]
    read_data: bool,
    /// Read and verify a share, such as 2.5%, of one container at least; the next time on this
    /// machine goes on from there
    #[arg(long, value_name = "PERCENT%", value_parser = parse_sample)]
    #[arg(conflicts_with = "read_data_part")]
    read_data_sample: Option<f64>,
    /// Read and verify part N of M equal parts
    #[arg(long, value_name = "N/M", value_parser = parse_part)]
    read_data_part: Option<(u32, u32)>,
    /// Do not note damage in the store
    #[arg(long, conflicts_with = "heal_from")]
    no_quarantine: bool,
    /// Build the index anew from the containers first
    #[arg(long)]
    repair_index: bool,
    /// The kind of the new index: bloom, fuse or signature [default: that of the old one]
    #[arg(long, value_name = "KIND", requires = "repair_index")]
    index: Option<IndexKind>,
    /// Store what is missing or damaged again, out of the copies in this store
    #[arg(long, value_name = "STORE")]
    heal_from: Option<PathBuf>,
    /// Read the password of that store from this file
    #[arg(long, value_name = "FILE", conflicts_with = "to_password_command")]
    #[arg(requires = "heal_from")]
    to_password_file: Option<PathBuf>,
    /// Read the password of that store from what this shell command prints
    #[arg(long, value_name = "COMMAND", requires = "heal_from")]
    to_password_command: Option<String>,
    /// Open that store by this key file
    #[arg(long, value_name = "FILE", requires = "heal_from")]
    #[arg(conflicts_with_all = ["to_password_file", "to_password_command"])]
    to_key_file: Option<PathBuf>,
}

fn parse_sample(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err(Error::invalid(format!(
            "'{text}' is not a share; write it like 5% (above 0, up to 100)"
        ))),
    }
}

fn parse_part(text: &str) -> Result<(u32, u32)> {
    let wrong = || Error::invalid(format!("'{text}' is not a part; write it like 1/7"));
    let (part, of) = text.split_once('/').ok_or_else(wrong)?;
    let part: u32 = part.trim().parse().map_err(|_| wrong())?;
    let of: u32 = of.trim().parse().map_err(|_| wrong())?;
    if part == 0 || part > of {
        return Err(wrong());
    }
    Ok((part, of))
}

impl CheckArguments {
    fn options(&self, context: &Context, notes: &MachineNotes) -> Result<CheckOptions> {
        let read_data = match (self.read_data, self.read_data_sample, self.read_data_part) {
            (true, _, _) => ReadData::All,
            (_, Some(percent), _) => notes.sample(percent),
            (_, _, Some((part, of))) => ReadData::Part { part, of },
            _ => ReadData::None,
        };
        Ok(CheckOptions {
            read_data,
            threads: context.reading_threads(),
            record_quarantine: !self.no_quarantine && !context.is_read_only()?,
        })
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &CheckArguments) -> Result<Outcome> {
    if let Some(from) = &arguments.heal_from {
        return heal::run(context, arguments, from);
    }
    let access = match arguments.repair_index {
        true => Access::Write,
        false => Access::Read,
    };
    let repository = context.open(access)?;
    let options = arguments.options(context, &MachineNotes::load(&repository))?;
    if arguments.repair_index {
        repair_index(context, &repository, arguments.index)?;
    }
    let (report, problems) = look(context, &repository, options)?;
    tell(context, &report, problems)
}

/// Checks; with the report come problems that were told meanwhile.
fn look(
    context: &Context,
    repository: &Arc<Repository>,
    options: CheckOptions,
) -> Result<(CheckReport, u64)> {
    let running = context.start_job("checking")?;
    let report = check::check(repository, options, &running.job)?;
    let problems = running.finish();
    MachineNotes::remember_sample(repository, &report);
    Ok((report, problems))
}

fn tell(context: &Context, report: &CheckReport, problems: u64) -> Result<Outcome> {
    print_verdicts(context, report)?;
    print_problems(context, report)?;
    summarize(context, report)?;
    match report.is_clean() && problems == 0 {
        true => Ok(Outcome::Complete),
        false => Ok(Outcome::Failed),
    }
}

fn repair_index(
    context: &Context,
    repository: &Arc<Repository>,
    kind: Option<IndexKind>,
) -> Result<()> {
    let running = context.start_job("indexing")?;
    let repaired = check::repair_index(repository, kind, &running.job)?;
    running.finish();
    context.output.note(&format!(
        "replaced {} by a new index of {} ({} entries)",
        counted(repaired.runs_replaced, "index run"),
        counted(repaired.containers, "container"),
        repaired.entries
    ))?;
    if repaired.unreadable > 0 {
        let unreadable = counted(repaired.unreadable, "container");
        let text = format!("{unreadable} could not be read and are not in the index");
        context.output.warning(&text);
    }
    context.output.message(
        "index_repaired",
        json!({
            "runs_replaced": repaired.runs_replaced,
            "containers": repaired.containers,
            "entries": repaired.entries,
            "unreadable": repaired.unreadable,
        }),
    )
}

/// Which snapshots can be restored, before anything in detail. A line each only if one cannot.
fn print_verdicts(context: &Context, report: &CheckReport) -> Result<()> {
    let output = &context.output;
    let is_all_whole = report.verdicts.iter().all(|verdict| verdict.damaged_paths == 0);
    for verdict in &report.verdicts {
        let state = match verdict.damaged_paths {
            0 => "whole".to_owned(),
            paths => format!("DAMAGED, {} cannot be restored whole", counted(paths, "path")),
        };
        if !is_all_whole {
            output.row(&format!("snapshot {}: {state}", verdict.snapshot.short()))?;
        }
        let fields = json!({
            "snapshot": verdict.snapshot.to_string(),
            "whole": verdict.damaged_paths == 0,
            "damaged_paths": verdict.damaged_paths,
        });
        output.message("verdict", fields)?;
    }
    Ok(())
}

fn print_problems(context: &Context, report: &CheckReport) -> Result<()> {
    let output = &context.output;
    for (id, problem) in &report.damaged_containers {
        output.row(&format!("container {id}: {problem}"))?;
        let fields =
            json!({ "what": "container", "container": id.to_string(), "message": problem });
        output.message("problem", fields)?;
    }
    for problem in &report.problems {
        output.row(problem)?;
        output.message("problem", json!({ "what": "store", "message": problem }))?;
    }
    if report.problems_more > 0 {
        output.row(&format!("and {} more of the same kinds", report.problems_more))?;
    }
    for damaged in &report.damaged_paths {
        let short = damaged.snapshot.short();
        output.row(&format!("snapshot {short}: {}: {}", damaged.path, damaged.problem))?;
        let fields = json!({
            "what": "path",
            "snapshot": damaged.snapshot.to_string(),
            "path": damaged.path,
            "message": damaged.problem,
        });
        output.message("problem", fields)?;
    }
    if report.damaged_paths_more > 0 {
        let more = counted(report.damaged_paths_more, "more path");
        output.row(&format!("and {more} that cannot be restored whole"))?;
    }
    for found in &report.roots {
        let (tree, totals) = (found.root.fingerprint, found.totals);
        let state = match found.is_whole {
            true => "whole",
            false => "damaged",
        };
        output.row(&format!(
            "tree {tree} ({}, {}, {state}) is in no record that can be read; 'onefold recover \
             {tree}' makes a snapshot of it",
            counted(totals.entries, "item"),
            human(totals.bytes)
        ))?;
        let fields = json!({
            "tree": tree.to_string(),
            "items": totals.entries,
            "bytes": totals.bytes,
            "whole": found.is_whole,
        });
        output.message("lost_tree", fields)?;
    }
    for id in &report.healed_containers {
        output
            .note(&format!("container {id} was damaged; all it is needed for is stored again"))?;
        output.message("healed", json!({ "container": id.to_string() }))?;
    }
    for note in &report.notes {
        output.note(&format!("note: {note}"))?;
        output.message("note", json!({ "message": note }))?;
    }
    Ok(())
}

fn summarize(context: &Context, report: &CheckReport) -> Result<()> {
    let output = &context.output;
    output.note(&format!(
        "looked at {} and {}; read {} whole, verified {} ({})",
        counted(report.snapshots, "snapshot"),
        counted(report.containers, "container"),
        report.containers_read,
        counted(report.chunks_verified, "chunk"),
        human(report.bytes_verified)
    ))?;
    let paths = report.damaged_paths.len() as u64 + report.damaged_paths_more;
    let problems = report.problems.len() as u64 + report.problems_more;
    match report.is_clean() {
        true => output.note("no problems found")?,
        false => output.row(&format!(
            "PROBLEMS: {} damaged or missing, {} cannot be restored whole, {} else",
            counted(report.damaged_containers.len() as u64, "container"),
            counted(paths, "path"),
            problems
        ))?,
    }
    output.message(
        "summary",
        json!({
            "clean": report.is_clean(),
            "snapshots": report.snapshots,
            "containers": report.containers,
            "containers_read": report.containers_read,
            "chunks_verified": report.chunks_verified,
            "bytes_verified": report.bytes_verified,
            "damaged_containers": report.damaged_containers.len(),
            "damaged_paths": paths,
            "healed_containers": report.healed_containers.len(),
            "other_problems": problems,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_parts_are_checked() {
        assert_eq!(parse_sample("5%").unwrap(), 5.0);
        assert_eq!(parse_sample("0.5").unwrap(), 0.5);
        for text in ["0%", "101%", "NaN", "x", ""] {
            assert!(parse_sample(text).is_err(), "{text}");
        }
        assert_eq!(parse_part("1/7").unwrap(), (1, 7));
        for text in ["0/7", "8/7", "1", "1/0", "-1/2"] {
            assert!(parse_part(text).is_err(), "{text}");
        }
    }
}
