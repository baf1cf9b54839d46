//! `restore --plan`: what a restore would read, and how long that takes on this machine.

use crate::context::Context;
use crate::exit::Outcome;
use crate::machine_notes::MachineNotes;
use crate::size::{counted, human};
use crate::time;
use onefold_engine::Repository;
use onefold_engine::restore::{self, PlanReport, RestoreOptions};
use onefold_engine::session::Snapshot;
use onefold_format::node::Entry;
use onefold_types::Result;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Plans and prints.
pub fn run(
    context: &Context,
    repository: &Arc<Repository>,
    snapshot: &Snapshot,
    root: &Entry,
    options: &RestoreOptions,
) -> Result<Outcome> {
    let running = context.start_job("planning")?;
    let report = restore::plan(repository, root, options, &running.job)?;
    running.finish();
    let predicted = MachineNotes::load(repository)
        .predicted_restore_ns(report.container_reads, report.bytes_opened)
        .map(Duration::from_nanos);
    describe(context, &report, options, predicted)?;
    let engines = report
        .engines
        .iter()
        .map(|(engine, reads)| json!({ "engine": engine.to_string(), "container_reads": reads }));
    let fields = json!({
        "snapshot": snapshot.id.to_string(),
        "engine": options.engine.to_string(),
        "files": report.files,
        "bytes": report.bytes,
        "chunks": report.chunks,
        "containers": report.containers,
        "container_reads": report.container_reads,
        "frames": report.frames,
        "bytes_read": report.bytes_read,
        "bytes_opened": report.bytes_opened,
        "speed_factor": report.speed_factor(),
        "chunks_guided": report.chunks_guided,
        "chunks_missing": report.chunks_missing,
        "engines": engines.collect::<Vec<_>>(),
        "predicted_seconds": predicted.map(|it| it.as_secs_f64()),
    });
    context.output.message("summary", fields)?;
    report.check()?;
    Ok(Outcome::Complete)
}

fn describe(
    context: &Context,
    report: &PlanReport,
    options: &RestoreOptions,
    predicted: Option<Duration>,
) -> Result<()> {
    let output = &context.output;
    output.row(&format!(
        "{} ({}) in {}",
        counted(report.files, "file"),
        human(report.bytes),
        counted(report.chunks, "chunk")
    ))?;
    output.row(&format!(
        "{} to read from {}: {} in {}, {} of them plain",
        counted(report.container_reads, "time"),
        counted(report.containers, "container"),
        human(report.bytes_read),
        counted(report.frames, "frame"),
        human(report.bytes_opened)
    ))?;
    output.row(&format!(
        "speed factor {:.2} (MB for each read of a container) by {}",
        report.speed_factor(),
        options.engine
    ))?;
    output.row(&format!(
        "{} of {} found where the placement says",
        report.chunks_guided,
        counted(report.chunks, "chunk")
    ))?;
    for (engine, reads) in &report.engines {
        output.row(&format!("  {reads:>9} reads by {engine}"))?;
    }
    match predicted {
        Some(predicted) => output.row(&format!("about {} on this machine", time::span(predicted))),
        None => output.row("how long it takes is known after the first restore on this machine"),
    }
}
