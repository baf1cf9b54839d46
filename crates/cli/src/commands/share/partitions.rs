//! How a run divides the files of a share, as users say it and are told.

use crate::bounds::Share as BytesShare;
use crate::context::Context;
use crate::size::{counted, human};
use clap::{Args, ValueEnum};
use onefold_engine::primary::optimize::{OptimizeReport, TurnReport};
use onefold_engine::primary::turns::Partitions;
use onefold_policy::primary::path_partitions::SHARE_MAX;
use onefold_types::{Error, Result};
use serde_json::json;

/// Each partition is a session of its own: there are at most two hundred.
const MAX_SHARE_LEAST: f64 = 0.01;
/// Pairs of parts with most in common that people are told of.
const PAIRS_TOLD: usize = 3;

/// What divides files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    /// Nothing: the index of the whole store is asked
    None,
    /// Directories: sub-trees with at most a share of the bytes
    Path,
    /// What their names promise: text, documents, media and so on
    Type,
    /// Shares: each is one part, apart from backups and other shares
    Volume,
}

/// Arguments of commands that optimise.
#[derive(Args, Debug)]
pub struct PartitionArguments {
    /// Deduplicate parts of the share one after the other, each for itself, with the index of only
    /// one in memory; what they have in common is freed by collections
    #[arg(long, value_name = "HOW", default_value = "none")]
    partitions: Kind,
    /// With --partitions path: the share of all bytes that a part has at most, 1% or more; 10% if
    /// not given
    #[arg(long, value_name = "PERCENT%")]
    partition_max_share: Option<BytesShare>,
}

impl PartitionArguments {
    /// What they say.
    ///
    /// Errors: `Invalid` if there would be very many partitions, or they are not by path and are
    /// said to have a greatest size.
    pub fn partitions(&self) -> Result<Partitions> {
        if self.partition_max_share.is_some() && self.partitions != Kind::Path {
            return Err(Error::invalid(
                "--partition-max-share says how large a part may be, and only --partitions path \
                 goes by that: write both, or neither",
            ));
        }
        let share_max = self.partition_max_share.as_ref().map_or(SHARE_MAX, |share| share.0);
        Ok(match self.partitions {
            Kind::None => Partitions::None,
            Kind::Type => Partitions::Type,
            Kind::Volume => Partitions::Volume,
            Kind::Path if share_max >= MAX_SHARE_LEAST => Partitions::Path { share_max },
            Kind::Path => {
                return Err(Error::invalid(
                    "--partition-max-share is below 1%: each part takes a session of its own; \
                     write 1% or more",
                ));
            }
        })
    }
}

/// Says what dividing took and what it cost.
pub fn tell(context: &Context, report: &OptimizeReport) -> Result<()> {
    let Some(most) = report.turns.iter().map(|turn| turn.index.memory_bytes).max() else {
        return Ok(());
    };
    let parts = counted(report.turns.len() as u64, "part");
    context.output.row(&format!("divided     {parts}, an index of at most {}", human(most)))?;
    warn_of_memory(context, report);
    for ([one, other], chunks) in report.in_common().into_iter().take(PAIRS_TOLD) {
        let chunks = counted(chunks, "chunk");
        context.output.row(&format!("in common   {one} and {other}, about {chunks}"))?;
    }
    let worth = report.worth_reconciling();
    if !worth.is_empty() {
        let worth = worth.join(", ");
        let chunks = counted(report.chunks_stored_twice(), "chunk");
        context
            .output
            .row(&format!("twice       about {chunks} of {worth}, until a collection"))?;
    }
    Ok(())
}

/// Says which parts had too little memory, and whose fault that is.
fn warn_of_memory(context: &Context, report: &OptimizeReport) {
    let names = |is_memory_taken| {
        let beyond = report.turns.iter().filter(|turn| turn.index.is_beyond_memory);
        let these = beyond.filter(|turn| turn.index.is_memory_taken == is_memory_taken);
        these.map(|turn| turn.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    for (is_memory_taken, why, remedy) in [
        (false, "does not fit into the memory", "divide by smaller parts"),
        (true, "did not fit into the memory that other jobs had left", "run fewer jobs at once"),
    ] {
        let names = names(is_memory_taken);
        if !names.is_empty() {
            context.output.warning(&format!(
                "the index of these parts {why}, so that of the whole store was asked: {names}; \
                 set a larger --memory, or {remedy}"
            ));
        }
    }
}

/// What two parts have in common, about, for programs.
pub fn in_common(report: &OptimizeReport) -> Vec<serde_json::Value> {
    let pairs = report.in_common().into_iter();
    pairs.map(|(names, chunks)| json!({ "partitions": names, "chunks": chunks })).collect()
}

/// What turns did, for programs.
pub fn fields(turns: &[TurnReport]) -> Vec<serde_json::Value> {
    let fields = turns.iter().map(|turn| {
        json!({
            "partition": turn.name,
            "manifest": turn.manifest.map(|id| id.to_string()),
            "files": turn.summary.files,
            "bytes": turn.summary.bytes,
            "chunks": turn.summary.chunks,
            "chunks_new": turn.summary.chunks_new,
            "bytes_stored": turn.summary.bytes_stored,
            "index_chunks": turn.index.chunks,
            "index_bytes": turn.index.memory_bytes,
            "index_beyond_memory": turn.index.is_beyond_memory,
        })
    });
    fields.collect()
}
