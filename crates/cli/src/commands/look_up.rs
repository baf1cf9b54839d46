//! How `backup` and `share optimize` look chunks up: their options, what they remember, and what
//! they tell of it.

use crate::context::Context;
use crate::machine_notes::MachineNotes;
use clap::Args;
use onefold_engine::Repository;
use onefold_engine::ingest::{BackupOptions, BackupReport};
use onefold_engine::look_up::LookupChoice;
use onefold_format::index_run::IndexKind;
use onefold_policy::accelerated_filter::FilterConfiguration;
use serde_json::json;

/// How chunks are looked up.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Experiments")]
pub struct LookUpArguments {
    /// auto, eager, eager,filter-first, lazy, lazy,ring=N,bucket=N,whole-ring, sampled,
    /// sampled,segment=N, or none: store every chunk anew, so that what is added tells nothing of
    /// what is there
    #[arg(long, value_name = "HOW")]
    lookup: Option<LookupChoice>,
    /// The kind of index runs written: bloom, fuse or signature [default: as those that are there]
    #[arg(long, value_name = "KIND")]
    index: Option<IndexKind>,
    /// Look chunks up without the summary vector, to see what it saves
    #[arg(long)]
    no_summary_vector: bool,
    /// Look chunks up without the locality-preserved cache, to see what it saves
    #[arg(long)]
    no_locality_cache: bool,
}

impl LookUpArguments {
    /// Puts what was said into the options of a backup.
    pub fn apply(&self, context: &Context, repository: &Repository, options: &mut BackupOptions) {
        let profile = &context.profile.backup;
        options.filter = FilterConfiguration {
            summary_vector: !self.no_summary_vector,
            locality_cache: !self.no_locality_cache,
            ..FilterConfiguration::default()
        };
        options.lookup = self.lookup.or(profile.lookup).unwrap_or_default();
        options.index_kind = self.index.or(profile.index);
        options.device_costs = MachineNotes::load(repository).costs();
    }
}

/// Remembers what a backup learnt of the store's device and why it looked up as it did.
pub fn remember(repository: &Repository, report: &BackupReport) {
    let mut notes = MachineNotes::load(repository);
    notes.remember(report.device_costs, report.lookup.timing.believed_ns());
    if !report.lookup.explanation.is_empty() {
        notes.explanation = Some(report.lookup.explanation.clone());
    }
    notes.save(repository);
}

/// Every step of the look-ups, and what reached the device.
pub fn fields(report: &BackupReport) -> serde_json::Value {
    let counters = &report.lookup.counters;
    json!({
        "chunks": counters.lookups,
        "cache_hits": counters.cache_hits,
        "summary_negatives": counters.summary_negatives,
        "summary_false_positives": counters.summary_false_positives,
        "chunks_waited": counters.fingerprints_buffered,
        "post_lookups": counters.post_lookups,
        "post_lookup_hits": counters.post_lookup_hits,
        "repeats": counters.repeats,
        "index_lookups": counters.index_lookups,
        "index_page_reads": counters.index_page_reads,
        "containers_prefetched": counters.containers_prefetched,
        "verification_reads": counters.verification_reads,
        "proof_reads": counters.proof_reads,
        "sections_kept": counters.sections_kept,
        "stale_index_hits": counters.stale_index_hits,
        "false_prefix_matches": counters.false_prefix_matches,
        "buckets_resolved": counters.buckets_resolved,
        "strategy_switches": counters.strategy_switches,
        "device_reads": counters.device_reads(),
        "seconds": report.lookup.elapsed.as_secs_f64(),
        "device_seconds": report.lookup.timing.elapsed.as_secs_f64(),
        "device_read_mean_ns": report.lookup.timing.mean_ns(),
        "explanation": report.lookup.explanation,
    })
}
