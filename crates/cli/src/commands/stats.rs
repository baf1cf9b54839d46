//! `stats`: sizes, ratios, and what the index costs.

use super::{gc, snapshots};
use crate::context::{Access, Context};
use crate::exit::Outcome;
use crate::hidden::Hidden;
use crate::machine_notes::MachineNotes;
use crate::reference::Snapshots;
use crate::size::{counted, human};
use crate::time;
use clap::Args;
use onefold_engine::Repository;
use onefold_engine::collection::CollectOptions;
use onefold_engine::placement::Overview;
use onefold_engine::session::Snapshot;
use onefold_engine::statistics::{self, Statistics};
use onefold_types::Result;
use onefold_types::SessionId;
use serde_json::json;
use std::time::Duration;

/// Arguments of `stats`.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  onefold stats --json\n  onefold stats --hidden")]
pub struct StatsArguments {
    /// Also find out what only hidden snapshots need: marks all chunks twice, as a collection does
    #[arg(long)]
    hidden: bool,
}

/// What follows from the figures; a ratio over nothing is none.
struct Ratios {
    deduplication: Option<f64>,
    delta: Option<f64>,
    compression: Option<f64>,
    total: Option<f64>,
    chunk_mean_bytes: Option<f64>,
    index_memory_per_chunk_bytes: Option<f64>,
    bytes_stored: u64,
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Ratios {
    fn of(found: &Statistics) -> Self {
        let bytes_stored =
            found.bytes_containers + found.bytes_metadata + found.bytes_index + found.bytes_other;
        let chunks = found.chunks_data + found.chunks_nodes;
        let plain_bytes = found.bytes_data + found.bytes_nodes;
        // What frames hold before they are compressed.
        let framed_bytes =
            plain_bytes.saturating_sub(found.bytes_delta) + found.payload_bytes_delta;
        Self {
            deduplication: ratio(found.bytes_logical, found.bytes_data),
            delta: ratio(plain_bytes, framed_bytes),
            compression: ratio(framed_bytes, found.bytes_containers),
            total: ratio(found.bytes_logical, bytes_stored),
            chunk_mean_bytes: ratio(found.bytes_data, found.chunks_data),
            index_memory_per_chunk_bytes: ratio(found.bytes_summary_vectors, chunks),
            bytes_stored,
        }
    }
}

/// Runs the command.
pub fn run(context: &Context, arguments: &StatsArguments) -> Result<Outcome> {
    let repository = context.open(Access::Read)?;
    let running = context.start_job("counting")?;
    let found = statistics::statistics(&repository, &running.job)?;
    let mut hidden = Hidden::find(&repository)?;
    if arguments.hidden {
        let options = CollectOptions {
            threads: context.reading_threads(),
            scratch: gc::scratch(),
            ..CollectOptions::default()
        };
        hidden.find_only(&repository, &options, &running.job)?;
    }
    let problems = running.finish();
    let ratios = Ratios::of(&found);
    let notes = MachineNotes::load(&repository);
    describe(context, &found, &ratios)?;
    let snapshots = Snapshots::load(&repository, &context.output)?;
    let restores = restores(&repository, &snapshots, &notes);
    describe_restores(context, &restores)?;
    snapshots::note_moves(context, &repository)?;
    hidden.tell(context)?;
    if let Some(explanation) = &notes.explanation {
        context.output.row("")?;
        context.output.block(explanation)?;
    }
    let mut fields = fields(&found, &ratios, &notes);
    fields["restores"] = restores.iter().map(Restore::fields).collect();
    fields["hidden"] = hidden.fields();
    context.output.message("statistics", fields)?;
    Ok(Outcome::with_problems(problems))
}

/// What restoring a snapshot takes.
struct Restore {
    snapshot: SessionId,
    overview: Overview,
    predicted: Option<Duration>,
}

impl Restore {
    fn fields(&self) -> serde_json::Value {
        json!({
            "snapshot": self.snapshot.to_string(),
            "containers": self.overview.containers,
            "container_reads": self.overview.container_reads,
            "speed_factor": self.overview.speed_factor(),
            "predicted_restore_seconds": self.predicted.map(|it| it.as_secs_f64()),
        })
    }
}

/// Restores of the snapshots whose placement was recorded, oldest first.
fn restores(repository: &Repository, snapshots: &Snapshots, notes: &MachineNotes) -> Vec<Restore> {
    let of = |snapshot: &Snapshot| {
        let overview = Overview::of(&snapshot.record.summary)?;
        let predicted = snapshots::predicted(repository, &overview, notes);
        Some(Restore { snapshot: snapshot.id, overview, predicted })
    };
    snapshots.list.visible().filter_map(of).collect()
}

/// The oldest and the newest, which show whether restores age.
fn describe_restores(context: &Context, restores: &[Restore]) -> Result<()> {
    let ends = match restores {
        [] => return Ok(()),
        [only] => vec![only],
        [oldest, .., newest] => vec![oldest, newest],
    };
    for restore in ends {
        let Restore { overview, predicted, .. } = restore;
        let time = predicted.map_or(String::new(), |it| format!(", about {}", time::span(it)));
        context.output.row(&format!(
            "{:<28} {} in {}, speed factor {:.2}{time}",
            format!("restoring {}", restore.snapshot.short()),
            human(overview.bytes),
            counted(overview.containers, "container"),
            overview.speed_factor(),
        ))?;
    }
    Ok(())
}

fn describe(context: &Context, found: &Statistics, ratios: &Ratios) -> Result<()> {
    let row = |name: &str, value: String| context.output.row(&format!("{name:<28} {value}"));
    let times = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2} x"));
    let bytes = |mean: Option<f64>| mean.map_or("-".to_owned(), |mean| format!("{mean:.1} B"));
    row("snapshots", found.snapshots.to_string())?;
    row("files in all snapshots", human(found.bytes_logical))?;
    row("different chunks", human(found.bytes_data))?;
    row("stored", human(ratios.bytes_stored))?;
    row("  containers", format!("{} in {}", human(found.bytes_containers), found.containers))?;
    if found.containers_of_older_keys > 0 {
        let of_older = human(found.bytes_of_older_keys);
        row(
            "    sealed under older keys",
            format!("{of_older} in {}", found.containers_of_older_keys),
        )?;
    }
    row("  metadata packs", human(found.bytes_metadata))?;
    row(
        "  index",
        format!("{} in {}", human(found.bytes_index), counted(found.index_runs, "run")),
    )?;
    row("  other", human(found.bytes_other))?;
    row("deduplication", times(ratios.deduplication))?;
    row("differences", times(ratios.delta))?;
    row("compression", times(ratios.compression))?;
    row("all three", times(ratios.total))?;
    row("data chunks", format!("{}, mean {}", found.chunks_data, bytes(ratios.chunk_mean_bytes)))?;
    let of_deltas = format!(
        "{}, {} stored as {} before compression",
        found.chunks_delta,
        human(found.bytes_delta),
        human(found.payload_bytes_delta)
    );
    row("  stored as differences", of_deltas)?;
    row("tree nodes", format!("{}, {}", found.chunks_nodes, human(found.bytes_nodes)))?;
    row("index entries", found.index_entries.to_string())?;
    row(
        "index memory",
        format!(
            "{}, {} a chunk",
            human(found.bytes_summary_vectors),
            bytes(ratios.index_memory_per_chunk_bytes)
        ),
    )
}

fn fields(found: &Statistics, ratios: &Ratios, notes: &MachineNotes) -> serde_json::Value {
    json!({
        "snapshots": found.snapshots,
        "bytes_logical": found.bytes_logical,
        "containers": found.containers,
        "bytes_containers": found.bytes_containers,
        "containers_of_older_keys": found.containers_of_older_keys,
        "bytes_of_older_keys": found.bytes_of_older_keys,
        "bytes_metadata": found.bytes_metadata,
        "bytes_index": found.bytes_index,
        "bytes_other": found.bytes_other,
        "bytes_stored": ratios.bytes_stored,
        "chunks_data": found.chunks_data,
        "chunks_nodes": found.chunks_nodes,
        "bytes_data": found.bytes_data,
        "bytes_nodes": found.bytes_nodes,
        "chunks_delta": found.chunks_delta,
        "bytes_delta": found.bytes_delta,
        "payload_bytes_delta": found.payload_bytes_delta,
        "index_runs": found.index_runs,
        "index_entries": found.index_entries,
        "bytes_summary_vectors": found.bytes_summary_vectors,
        "ratio_deduplication": ratios.deduplication,
        "ratio_delta": ratios.delta,
        "ratio_compression": ratios.compression,
        "ratio_total": ratios.total,
        "chunk_mean_bytes": ratios.chunk_mean_bytes,
        "index_memory_per_chunk_bytes": ratios.index_memory_per_chunk_bytes,
        "device_read_ns": notes.device_read_ns,
        "memory_access_ns": notes.memory_access_ns,
        "lookup_explanation": notes.explanation,
    })
}
