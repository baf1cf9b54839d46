//! `snapshots`: the list of snapshots.

use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::machine_notes::MachineNotes;
use crate::options::FilterArguments;
use crate::reference::Snapshots;
use crate::size::{counted, human};
use crate::table::Table;
use crate::time;
use clap::Args;
use onefold_engine::Repository;
use onefold_engine::placement::Overview;
use onefold_engine::retention::candidate;
use onefold_engine::session::{Snapshot, epoch};
use onefold_policy::retention::{GroupBy, GroupKey};
use onefold_types::Result;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Paths of a snapshot that have lines of their own below its first one.
const PATHS_SHOWN: usize = 9;

/// Arguments of `snapshots`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  onefold snapshots\n  onefold snapshots --host web1 --latest 3")]
pub struct SnapshotsArguments {
    #[command(flatten)]
    filter: FilterArguments,
    /// Show groups of snapshots with the same host, paths or tags
    #[arg(short, long, value_name = "host,paths,tags")]
    group_by: Option<GroupBy>,
    /// Only the newest N of each group (by default of each host and paths)
    #[arg(long, value_name = "N")]
    latest: Option<usize>,
    /// Also those that 'forget' has hidden
    #[arg(short, long)]
    all: bool,
}

/// Runs the command.
pub fn run(context: &Context, arguments: &SnapshotsArguments) -> Result<Outcome> {
    let repository = context.open_near(Access::Read)?;
    let snapshots = Snapshots::load(&repository, &context.output)?;
    let notes = MachineNotes::load(&repository);
    let filter = arguments.filter.filter();
    let wanted = snapshots.list.snapshots.iter().filter(|snapshot| {
        !snapshot.is_manifest()
            && (arguments.all || !snapshot.hidden)
            && filter.matches(&candidate(snapshot))
    });
    let wanted: Vec<&Snapshot> = wanted.collect();
    snapshots.warn_of_clocks(&filter);
    let groups = grouped(&wanted, arguments);
    for (key, members) in &groups {
        if arguments.group_by.is_some() {
            context.output.row(&format!("\n{}:", describe(key)))?;
        }
        print_table(context, &repository, members, &notes)?;
    }
    for snapshot in groups.iter().flat_map(|(_, members)| members) {
        let mut fields = fields(snapshot);
        let overview = Overview::of(&snapshot.record.summary);
        let predicted = overview.and_then(|it| predicted(&repository, &it, &notes));
        fields["speed_factor"] = overview.map(|it| it.speed_factor()).into();
        fields["predicted_restore_seconds"] = predicted.map(|it| it.as_secs_f64()).into();
        context.output.message("snapshot", fields)?;
    }
    let shown: usize = groups.iter().map(|(_, members)| members.len()).sum();
    context.output.note(&counted(shown as u64, "snapshot"))?;
    note_moves(context, &repository)?;
    let hidden = snapshots.list.snapshots.iter().filter(|s| s.hidden).count();
    if hidden > 0 && !arguments.all {
        let line =
            format!("{} hidden by forget; --all shows them", counted(hidden as u64, "snapshot"));
        context.output.note(&line)?;
    }
    Ok(Outcome::Complete)
}

type Group<'a> = (GroupKey, Vec<&'a Snapshot>);

/// The snapshots in the groups asked for; one group if none are. Oldest first.
fn grouped<'a>(wanted: &[&'a Snapshot], arguments: &SnapshotsArguments) -> Vec<Group<'a>> {
    let divide = |by: GroupBy| {
        let mut groups: BTreeMap<GroupKey, Vec<&'a Snapshot>> = BTreeMap::new();
        for snapshot in wanted {
            let key = group_key(snapshot, by);
            groups.entry(key).or_default().push(snapshot);
        }
        if let Some(latest) = arguments.latest {
            for members in groups.values_mut() {
                let extra = members.len().saturating_sub(latest);
                members.drain(..extra);
            }
        }
        groups.into_iter().collect::<Vec<_>>()
    };
    if let Some(by) = arguments.group_by {
        return divide(by);
    }
    let mut members: Vec<&Snapshot> = match arguments.latest {
        Some(_) => {
            divide(GroupBy::default()).into_iter().flat_map(|(_, members)| members).collect()
        }
        None => wanted.to_vec(),
    };
    members.sort_by_key(|snapshot| (snapshot.record.started_ns, snapshot.id));
    let everything = GroupKey { host: None, paths: None, tags: None };
    vec![(everything, members)]
}

fn group_key(snapshot: &Snapshot, by: GroupBy) -> GroupKey {
    let set = |names: &[String]| {
        let names: BTreeSet<String> = names.iter().cloned().collect();
        names.into_iter().collect()
    };
    let record = &snapshot.record;
    GroupKey {
        host: by.host.then(|| record.host.clone()),
        paths: by.paths.then(|| set(&record.paths)),
        tags: by.tags.then(|| set(&record.tags)),
    }
}

/// A group in words.
#[must_use]
pub fn describe(key: &GroupKey) -> String {
    let mut conditions = Vec::new();
    conditions.extend(key.host.as_ref().map(|host| format!("host {host}")));
    let list = |noun: &str, names: &[String]| match names {
        [] => format!("no {noun}"),
        names => format!("{noun} {}", names.join(", ")),
    };
    conditions.extend(key.paths.as_ref().map(|paths| list("paths", paths)));
    conditions.extend(key.tags.as_ref().map(|tags| list("tags", tags)));
    match conditions.is_empty() {
        true => "all snapshots".to_owned(),
        false => conditions.join(", "),
    }
}

/// Says, once chunks may have been moved, that restores are described as of the backups.
pub fn note_moves(context: &Context, repository: &Repository) -> Result<()> {
    if epoch::newest_number(repository)? == 0 {
        return Ok(());
    }
    context.output.note(
        "containers, factor and time are those at the time of the backup; 'restore --plan' shows \
         what a restore takes since chunks were moved by a collection",
    )
}

/// How long restoring a snapshot takes, as far as this machine knows.
pub fn predicted(
    repository: &Repository,
    overview: &Overview,
    notes: &MachineNotes,
) -> Option<Duration> {
    let container_size_bytes = repository.configuration().container_size_bytes;
    let opened = overview.opened_bytes(container_size_bytes).max(1);
    notes.predicted_restore_ns(overview.container_reads, opened).map(Duration::from_nanos)
}

fn print_table(
    context: &Context,
    repository: &Repository,
    members: &[&Snapshot],
    notes: &MachineNotes,
) -> Result<()> {
    let columns =
        ["ID", "Time", "Host", "Tags", "Paths", "Size", "Containers", "Factor", "Restore"];
    let has_notes = members.iter().any(|snapshot| !snapshot.record.description.is_empty());
    let notes_column: &[&str] = if has_notes { &["Description"] } else { &[] };
    let mut table = Table::new(&[&columns, notes_column].concat());
    for snapshot in members {
        let record = &snapshot.record;
        let mut tags = record.tags.join(",");
        let marks = [
            (snapshot.hidden, "(hidden)"),
            (record.hold, "(hold)"),
            (snapshot.is_partial(), "(partial)"),
        ];
        for (applies, mark) in marks {
            if applies {
                tags.push_str(if tags.is_empty() { "" } else { " " });
                tags.push_str(mark);
            }
        }
        let overview = Overview::of(&record.summary);
        let unknown = || "-".to_owned();
        let mut paths = record.paths.iter();
        table.row(vec![
            snapshot.id.short(),
            time::local(record.started_ns),
            record.host.clone(),
            tags,
            paths.next().cloned().unwrap_or_default(),
            human(record.summary.bytes),
            overview.map_or_else(unknown, |it| it.containers.to_string()),
            overview.map_or_else(unknown, |it| format!("{:.2}", it.speed_factor())),
            overview
                .and_then(|it| predicted(repository, &it, notes))
                .map_or_else(unknown, time::span),
            record.description.clone(),
        ]);
        let more = paths.len().saturating_sub(PATHS_SHOWN);
        let more = (more > 0).then(|| format!("and {more} more"));
        for path in paths.take(PATHS_SHOWN).cloned().chain(more) {
            let mut cells = vec![String::new(); columns.len()];
            cells[4] = path;
            table.row(cells);
        }
    }
    table.print(&context.output)
}

/// A snapshot as JSON fields.
#[must_use]
pub fn fields(snapshot: &Snapshot) -> Value {
    let record = &snapshot.record;
    json!({
        "id": snapshot.id.to_string(),
        "short_id": snapshot.id.short(),
        "time": time::universal(record.started_ns),
        "finished": time::universal(record.finished_ns),
        "host": record.host,
        "user": record.user,
        "paths": record.paths,
        "tags": record.tags,
        "description": record.description,
        "hold": record.hold,
        "hidden": snapshot.hidden,
        "partial": snapshot.is_partial(),
        "kind": record.kind,
        "parent": record.parent.map(|id| id.to_string()),
        "program": record.program,
        "original": record.original,
        "summary": record.summary,
    })
}
