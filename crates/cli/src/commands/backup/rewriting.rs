//! What `backup` is told about rewriting, and what it tells of it.

use crate::context::Context;
use crate::size::{counted, human};
use clap::Args;
use onefold_engine::ingest::{BackupOptions, BackupReport};
use onefold_engine::placement::Overview;
use onefold_policy::rewrite::{RewriteChoice, RewriteCounters};
use onefold_types::Result;
use serde_json::json;

/// Which duplicates are stored again.
#[derive(Args, Debug)]
#[command(next_help_heading = "Experiments")]
pub struct RewriteArguments {
    /// Store duplicates again where restores would otherwise have to collect them: none, capping,
    /// flexible, window, history or auto, with limits as in auto,loss=5 (per cent of the
    /// deduplication ratio) or window,reads=20 (old containers for each 20 MiB) [default: auto,
    /// which without a limit is nothing in stores where reads are quick]
    #[arg(long, value_name = "HOW")]
    rewrite: Option<RewriteChoice>,
}

impl RewriteArguments {
    /// Puts what was said into the options of a backup.
    pub fn apply(&self, context: &Context, options: &mut BackupOptions) {
        options.rewrite = self.rewrite.or(context.profile.backup.rewrite).unwrap_or_default();
    }
}

/// Tells what rewriting cost and what restoring will take.
pub fn describe(context: &Context, report: &BackupReport) -> Result<()> {
    let found = &report.summary;
    if found.chunks_rewritten > 0 {
        context.output.note(&format!(
            "stored {} again ({}), so that restores read less",
            counted(found.chunks_rewritten, "duplicate"),
            human(found.bytes_rewritten)
        ))?;
    }
    Ok(())
}

/// What rewriting did, in numbers.
pub fn fields(report: &BackupReport) -> serde_json::Value {
    let overview = Overview::of(&report.summary);
    let sum =
        |of: fn(&RewriteCounters) -> u64| -> u64 { report.rewrite.streams.iter().map(of).sum() };
    let last = report.rewrite.streams.last().copied().unwrap_or_default();
    json!({
        "policy": report.rewrite.choice.map(|choice| choice.to_string()),
        "chunks": report.summary.chunks_rewritten,
        "bytes": report.summary.bytes_rewritten,
        "duplicates": sum(|counters| counters.duplicates),
        "kept": sum(|counters| counters.kept),
        "kept_by_limit": sum(|counters| counters.kept_by_limit),
        "decided_early": sum(|counters| counters.forced),
        "candidates_bytes_peak": sum(|counters| counters.candidates_bytes_peak),
        "threshold": last.threshold,
        "containers": overview.map(|it| it.containers),
        "container_reads": overview.map(|it| it.container_reads),
        "speed_factor": overview.map(|it| it.speed_factor()),
    })
}
