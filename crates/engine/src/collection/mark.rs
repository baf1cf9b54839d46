//! Marking: which chunks are live, and how live every container is.
//!
//! | algorithm | live chunks in | walks | of several instances the newest, by |
//! | --- | --- | --- | --- |
//! | `lgc` (S3.8 to S3.15) | a Bloom filter | every snapshot, depth first | a second filter |
//! | `pgc` (S3.17 to S3.21) | a Bloom filter | levels, breadth first | a second filter |
//! | `pgc+` (S3.22 to S3.27) | a bit for each fingerprint, by a perfect hash | levels | counters |
//! | `exact` | the prefixes themselves | levels | the order of the scan |
//! | `partitioned` | the prefixes, in scratch files | levels | the order of the index |
//!
//! `auto` takes `exact` while that fits into the memory for marks, then `partitioned`, which always
//! fits and takes less of the processor than `pgc+`; that has its turn where it fits and scratch
//! files cannot be written. `lgc` and `pgc` that do not fit take two rounds: a sample of the
//! fingerprints chooses candidates, and only their chunks are attended to in the second round
//! (S3.15, S3.23).
//! All that walk by levels have a table of the nodes in memory but `partitioned`, which takes the
//! place of whatever was asked for if there are too many.
//! What is live never depends on the choice; how much that is dead is taken for live does.

use super::MarkAlgorithm;
use super::analysis::{self, NODE_TABLE_BYTES_PER_NODE, NodeTable};
use super::bases::{self, Links};
use super::enumeration::{self, EnumerationCounters};
use super::inventory::{Inventory, InventoryItem, ScanCounters};
use super::live_set::{Attention, EXACT_BYTES_PER_CHUNK, LiveSet, Marks};
use super::losses::Losses;
use super::partitioned::Partitioned;
use super::spill::Scratch;
use crate::container::unreadable::WAY_OUT;
use crate::index::ChunkIndex;
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::container::MetadataSection;
use onefold_format::node::Reference;
use onefold_policy::collection::duplicates::{
    ContainerCounts, DeadFilter, DuplicateCounters, unique_live_chunks,
};
use onefold_policy::collection::focus::{CandidateFilter, Focus, candidate_chunks_max};
use onefold_policy::collection::live_filter::{LiveFilter, LiveInstances};
use onefold_policy::collection::mark_vector::MarkVector;
use onefold_policy::collection::select::ContainerLiveness;
use onefold_types::{ContainerId, Error, ErrorKind, Result, bug};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Marks have so much, however little is left of the memory limit: with nothing they could not end.
pub const MARKS_MIN_BYTES: usize = 1 << 20;

/// As many nodes are held in a table, however little memory marks have.
pub const TABLE_NODES_MIN: usize = 1 << 16;

/// Bits that the Live and the Live Instance filter take for a chunk together.
const FILTER_BITS_PER_CHUNK: f64 = 16.0;
/// Bits that a perfect hash, its vector and the Dead filter take for a chunk, about: 2.8, and eight
/// for each dead one.
const PERFECT_BITS_PER_CHUNK: f64 = 2.8 + 8.0 / DEAD_SHARE as f64;
/// Dead chunks that the Dead filter is made for, of all: "the ratio is 1 to 10" (section 3.4.2). If
/// there are more, it errs more often, in an estimate only.
const DEAD_SHARE: u64 = 10;

/// The part of the memory for marks that links of deltas to their bases may take.
const LINKS_PART: usize = 8;

/// What marking took.
#[derive(Clone, Debug, Default)]
pub struct MarkReport {
    /// Which algorithm.
    pub algorithm: MarkAlgorithm,
    /// Rounds: two if memory was short.
    pub rounds: u32,
    /// The phases in order, and how long each took.
    pub phases: Vec<(&'static str, Duration)>,
    /// Snapshots walked.
    pub snapshots: u64,
    /// What enumerating took.
    pub enumeration: EnumerationCounters,
    /// How metadata sections were read.
    pub scan: ScanCounters,
    /// Entries of the index.
    pub index_entries: u64,
    /// Chunks that only deltas need, as far as known.
    pub bases_pinned: u64,
    /// Memory of what was marked in, at its largest.
    pub memory_bytes: u64,
    /// Bytes written to scratch files.
    pub spilled_bytes: u64,
}

/// Marks what the roots need.
pub struct Marker<'a> {
    /// The store.
    pub repository: &'a Arc<Repository>,
    /// Its index, as it was when the inventory was taken.
    pub index: &'a dyn ChunkIndex,
    /// Its containers.
    pub inventory: &'a Inventory,
    /// Threads.
    pub threads: usize,
    /// Makes the filters of this run others than those of the last (S3.13).
    pub seed: u64,
    /// Bytes for marks.
    pub memory_bytes: usize,
    /// Where scratch files are, if any are needed.
    pub scratch: PathBuf,
    /// Stops it, and shows how far it is.
    pub job: &'a Job,
    /// What it took.
    pub report: MarkReport,
}

/// What of several instances of a live chunk is kept, as far as known.
enum Instances {
    /// What the filter has (S3.10).
    Filter(LiveInstances),
    /// Estimated from counters (S3.24).
    Counters(DuplicateCounters),
    /// The first that a scan meets.
    FirstMet,
}

impl Marker<'_> {
    /// The algorithm that fits, if the choice is left open: of those that fit the one that takes
    /// least of the processor (decision 0018).
    #[must_use]
    pub fn resolve(&self, wanted: MarkAlgorithm) -> MarkAlgorithm {
        let entries = self.index.entries() as usize;
        match wanted {
            MarkAlgorithm::Auto if entries * EXACT_BYTES_PER_CHUNK <= self.memory_bytes => {
                MarkAlgorithm::Exact
            }
            MarkAlgorithm::Auto => MarkAlgorithm::Partitioned,
            MarkAlgorithm::PhysicalPlus if !self.fits_perfect() => MarkAlgorithm::Physical,
            other => other,
        }
    }

    fn fits_perfect(&self) -> bool {
        let bytes = self.index.entries() as f64 * PERFECT_BITS_PER_CHUNK / 8.0;
        bytes <= self.memory_bytes as f64 * 0.75
    }

    /// Marks, and tells how live every eligible container is.
    pub fn run(
        &mut self,
        wanted: MarkAlgorithm,
        roots: &[Reference],
    ) -> Result<(Marks, Vec<ContainerLiveness>)> {
        let mut algorithm = self.resolve(wanted);
        self.report.index_entries = self.index.entries();
        self.report.snapshots = roots.len() as u64;
        let repository = self.repository;
        let losses = Arc::new(Losses::find(repository, self.index, self.inventory, self.job)?);
        let mut made = self.whole_or_focused(algorithm, roots, &losses);
        if algorithm != MarkAlgorithm::Partitioned
            && made.as_ref().is_err_and(|error| error.kind() == ErrorKind::LimitExceeded)
        {
            // Too many nodes for a table of them.
            algorithm = MarkAlgorithm::Partitioned;
            made = self.whole_or_focused(algorithm, roots, &losses);
        }
        if wanted == MarkAlgorithm::Auto
            && algorithm == MarkAlgorithm::Partitioned
            && made.as_ref().is_err_and(|error| may_be_scratch(error.kind()))
            && self.fits_perfect()
        {
            // Nobody asked for scratch files. Where it is the store that fails, it fails again.
            algorithm = MarkAlgorithm::PhysicalPlus;
            made = self.whole_or_focused(algorithm, roots, &losses);
        }
        self.report.algorithm = algorithm;
        made
    }

    fn whole_or_focused(
        &mut self,
        algorithm: MarkAlgorithm,
        roots: &[Reference],
        losses: &Arc<Losses>,
    ) -> Result<(Marks, Vec<ContainerLiveness>)> {
        if algorithm == MarkAlgorithm::Partitioned {
            return self.partitioned(roots, losses);
        }
        let filters = matches!(algorithm, MarkAlgorithm::Logical | MarkAlgorithm::Physical);
        let entries = self.index.entries();
        let focus = Focus::plan(entries, FILTER_BITS_PER_CHUNK, self.memory_bytes, self.seed);
        if !filters || focus.is_whole() {
            self.report.rounds = 1;
            let (marks, instances) = self.mark(algorithm, roots, Attention::Whole, losses)?;
            return self.judge(marks, instances, &|container| container.eligible);
        }
        self.report.rounds = 2;
        let (marks, instances) = self.mark(algorithm, roots, Attention::Sample(focus), losses)?;
        let (_, sampled) = self.judge(marks, instances, &|container| container.eligible)?;
        let candidates = self.candidates(sampled)?;
        let is_candidate = |container: &InventoryItem| {
            candidates.binary_search(&container.id).is_ok() && container.eligible
        };
        let chunks = candidate_chunks_max(self.memory_bytes);
        let mut filter = CandidateFilter::with_memory(chunks, self.memory_bytes, self.seed)?;
        let add = &mut |_, section: &MetadataSection| {
            section.chunks.iter().for_each(|chunk| filter.insert(chunk.fingerprint.prefix()));
            Ok(())
        };
        self.inventory.scan(self.repository, &is_candidate, self.job, add)?;
        let attention = Attention::Candidates(filter);
        let (marks, instances) = self.mark(algorithm, roots, attention, losses)?;
        self.judge(marks, instances, &is_candidate)
    }

    /// Everything in scratch files.
    fn partitioned(
        &mut self,
        roots: &[Reference],
        losses: &Arc<Losses>,
    ) -> Result<(Marks, Vec<ContainerLiveness>)> {
        self.report.rounds = 1;
        let scratch = Scratch::new(self.scratch.clone());
        let (repository, index, inventory, job) =
            (self.repository, self.index, self.inventory, self.job);
        let bytes = self.memory_bytes;
        let mut partitioned = Partitioned::new(repository, index, inventory, job, &scratch, bytes);
        let analysis = Instant::now();
        self.job.progress.set_current("metadata sections");
        self.job.progress.set_totals(self.inventory.containers.len() as u64, 0);
        let mut links = Links::with_memory(bytes / LINKS_PART, losses);
        let (nodes, scan) = partitioned.scan(&mut links)?;
        let _links = scratch.hold(links.bytes_used());
        self.count_scan(scan);
        self.phase("analysis", analysis);
        let enumeration = Instant::now();
        self.job.progress.set_current("snapshots");
        let mut marks = partitioned.marks(losses);
        let walked = partitioned.walk(&nodes, roots, &mut marks)?;
        drop(nodes);
        self.report.bases_pinned +=
            bases::mark(repository, inventory, Some(links), &mut marks, job)?;
        self.report.enumeration.add(&walked);
        self.phase("enumeration", enumeration);
        if marks.lost_references > 0 {
            return Err(self.lost_error(marks.lost_references));
        }
        let select = Instant::now();
        self.job.progress.set_current("instances");
        let liveness = partitioned.judge(&mut marks)?;
        self.phase("select", select);
        self.report.memory_bytes = self.report.memory_bytes.max(scratch.peak_bytes() as u64);
        self.report.spilled_bytes += scratch.spilled_bytes();
        Ok((marks, liveness))
    }

    /// The containers that are most dead by the sample, as many as memory allows, rising.
    fn candidates(&self, mut sampled: Vec<ContainerLiveness>) -> Result<Vec<ContainerId>> {
        sampled.retain(|container| !container.is_wholly_live());
        sampled.sort_by(|a, b| a.live_share().total_cmp(&b.live_share()));
        // A sample knows a share of the chunks; a container has so many on average.
        let containers = self.inventory.containers.len().max(1) as u64;
        let chunks_each = self.index.entries().div_ceil(containers).max(1);
        let count = candidate_chunks_max(self.memory_bytes) / chunks_each;
        sampled.truncate(usize::try_from(count).unwrap_or(usize::MAX).max(1));
        let mut ids: Vec<_> = sampled.into_iter().map(|container| container.container).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn mark(
        &mut self,
        algorithm: MarkAlgorithm,
        roots: &[Reference],
        attention: Attention,
        losses: &Arc<Losses>,
    ) -> Result<(Marks, Instances)> {
        let analysis = Instant::now();
        let (set, counters) = self.empty_set(algorithm, attention)?;
        let (table, links) = match algorithm {
            MarkAlgorithm::Logical => (None, None),
            _ => {
                let mut links = Links::with_memory(self.memory_bytes / LINKS_PART, losses);
                (Some(self.node_table(&mut links)?), Some(links))
            }
        };
        self.phase("analysis", analysis);
        let enumeration = Instant::now();
        let mut marks = Marks::new(set, losses);
        self.job.progress.set_current("snapshots");
        let walked = match &table {
            Some(table) => enumeration::physical(
                self.repository,
                self.inventory,
                table,
                roots,
                &mut marks,
                self.threads,
                self.job,
            )?,
            None => {
                self.job.progress.set_totals(roots.len() as u64, 0);
                let (threads, job) = (self.threads, self.job);
                enumeration::logical_into(self.repository, roots, &mut marks, threads, job)?
            }
        };
        let links_bytes = links.as_ref().map_or(0, Links::bytes_used);
        let (repository, inventory, job) = (self.repository, self.inventory, self.job);
        self.report.bases_pinned += bases::mark(repository, inventory, links, &mut marks, job)?;
        self.report.enumeration.add(&walked);
        self.phase("enumeration", enumeration);
        let walked_bytes =
            links_bytes + table.as_ref().map_or(0, NodeTable::bytes_used) + marks.set.bytes_used();
        drop(table);
        marks.set.drop_candidates();
        let instances = match (&marks.set, counters) {
            (LiveSet::Filter { .. }, _) => Instances::Filter(self.filter(&marks)?),
            (_, Some(counters)) => Instances::Counters(counters),
            _ => Instances::FirstMet,
        };
        let instance_bytes = match &instances {
            Instances::Filter(filter) => filter.bytes_used(),
            Instances::Counters(counters) => counters.bytes_used(),
            Instances::FirstMet => 0,
        };
        let bytes = walked_bytes.max(marks.set.bytes_used() + instance_bytes);
        self.report.memory_bytes = self.report.memory_bytes.max(bytes as u64);
        Ok((marks, instances))
    }

    fn empty_set(
        &self,
        algorithm: MarkAlgorithm,
        attention: Attention,
    ) -> Result<(LiveSet, Option<DuplicateCounters>)> {
        self.job.progress.set_current("the index");
        match algorithm {
            MarkAlgorithm::PhysicalPlus => {
                let (hash, counters) = analysis::hash_index(
                    self.repository,
                    self.index,
                    self.inventory,
                    self.threads,
                    self.job,
                )?;
                let bits = MarkVector::new(hash.positions())?;
                Ok((LiveSet::Perfect { hash, bits }, Some(counters)))
            }
            // That in scratch files has sets of its own.
            MarkAlgorithm::Exact | MarkAlgorithm::Auto | MarkAlgorithm::Partitioned => {
                Ok((LiveSet::Exact(Default::default()), None))
            }
            MarkAlgorithm::Logical | MarkAlgorithm::Physical => {
                let entries = self.index.entries();
                let filter = LiveFilter::with_memory(entries, self.memory_bytes / 2, self.seed)?;
                Ok((LiveSet::Filter { filter, attention }, None))
            }
        }
    }

    fn node_table(&mut self, links: &mut Links) -> Result<NodeTable> {
        self.job.progress.set_current("metadata sections");
        let nodes_max = self.memory_bytes / 2 / NODE_TABLE_BYTES_PER_NODE;
        let nodes_max = nodes_max.max(TABLE_NODES_MIN);
        let (table, scan) =
            NodeTable::build(self.repository, self.inventory, (nodes_max, links), self.job)?;
        self.count_scan(scan);
        Ok(table)
    }

    /// The Filter phase: of the instances of each live chunk, the one in the newest container
    /// (S3.10).
    fn filter(&mut self, marks: &Marks) -> Result<LiveInstances> {
        let started = Instant::now();
        self.job.progress.set_current("instances");
        let ids = self.inventory.ids();
        let containers = &self.inventory.containers;
        let is_sound = |at: u32| containers.get(at as usize).is_some_and(|one| one.sound);
        let entries = self.index.entries();
        let mut instances =
            LiveInstances::with_memory(entries, self.memory_bytes / 2, self.seed.rotate_left(32))?;
        let mut scan = self.index.scan(self.repository, &ids, 0)?;
        let mut group = Vec::new();
        while let Some(prefix) = scan.next_group(self.repository, None, &mut group)? {
            // What is damaged holds nothing for sure, however new it is called.
            let sound = group.iter().rev().find(|ordinal| is_sound(**ordinal));
            if let Some(newest) = sound.and_then(|ordinal| ids.get(*ordinal as usize))
                && marks.contains(prefix)
            {
                instances.insert(prefix, *newest);
            }
        }
        self.phase("filter", started);
        Ok(instances)
    }

    /// The first half of the Select phase: the liveness of every container wanted (S3.11, S3.24).
    fn judge(
        &mut self,
        mut marks: Marks,
        instances: Instances,
        wanted: &dyn Fn(&InventoryItem) -> bool,
    ) -> Result<(Marks, Vec<ContainerLiveness>)> {
        if marks.lost_references > 0 {
            return Err(self.lost_error(marks.lost_references));
        }
        let started = Instant::now();
        // What is dead is told apart from second instances by those who count them only.
        let (dead_expected, counters_bytes) = match &instances {
            Instances::Counters(counters) => {
                (self.index.entries() / DEAD_SHARE, counters.bytes_used())
            }
            Instances::Filter(_) | Instances::FirstMet => (0, 0),
        };
        let dead = DeadFilter::new(dead_expected)?;
        if counters_bytes > 0 {
            let bytes = marks.set.bytes_used() + counters_bytes + dead.bytes_used();
            self.report.memory_bytes = self.report.memory_bytes.max(bytes as u64);
        }
        let mut judge = Judge {
            dead,
            inventory: self.inventory,
            liveness: Vec::with_capacity(self.inventory.containers.len()),
        };
        self.job.progress.set_current("containers");
        self.job.progress.set_totals(self.inventory.containers.len() as u64, 0);
        let scan =
            self.inventory.scan(self.repository, wanted, self.job, &mut |ordinal, section| {
                judge.container(ordinal, section, &mut marks, &instances)
            })?;
        self.count_scan(scan);
        let mut liveness = judge.liveness;
        liveness.sort_unstable_by_key(|container| container.container);
        self.phase("select", started);
        Ok((marks, liveness))
    }

    fn lost_error(&self, references: u64) -> Error {
        let gone = self.inventory.gone(&self.index.covered());
        let names: Vec<String> = gone.iter().take(5).map(ToString::to_string).collect();
        Error::damaged(format!(
            "snapshots refer {references} times to chunks of containers that are missing or cannot \
             be read ({}{}); nothing was collected: {WAY_OUT}",
            names.join(", "),
            if gone.len() > names.len() { ", ..." } else { "" }
        ))
    }

    fn phase(&mut self, name: &'static str, started: Instant) {
        self.report.phases.push((name, started.elapsed()));
    }

    fn count_scan(&mut self, scan: ScanCounters) {
        self.report.scan.packs += scan.packs;
        self.report.scan.sections += scan.sections;
    }
}

/// Whether scratch files may have failed like this ([`super::spill`]).
fn may_be_scratch(kind: ErrorKind) -> bool {
    use ErrorKind::{Exhausted, Io, NoSpace, NotPermitted, ReadOnly};
    matches!(kind, Exhausted | Io | NoSpace | NotPermitted | ReadOnly)
}

/// Judges containers, newest first.
struct Judge<'a> {
    dead: DeadFilter,
    inventory: &'a Inventory,
    liveness: Vec<ContainerLiveness>,
}

impl Judge<'_> {
    fn container(
        &mut self,
        ordinal: usize,
        section: &MetadataSection,
        marks: &mut Marks,
        instances: &Instances,
    ) -> Result<()> {
        let unknown = || bug!("a container is not in the inventory", ordinal);
        let container = self.inventory.containers.get(ordinal).ok_or_else(unknown)?;
        let mut judged = ContainerLiveness {
            container: container.id,
            stored_bytes: container.stored_bytes,
            plain_bytes: 0,
            live_bytes: 0,
            chunks: 0,
            live_chunks: 0,
        };
        let mut counts = ContainerCounts::default();
        for chunk in &section.chunks {
            let prefix = chunk.fingerprint.prefix();
            if let LiveSet::Filter { attention: attention @ Attention::Sample(_), .. } = &marks.set
                && !attention.admits(prefix)
            {
                continue;
            }
            judged.chunks += 1;
            judged.plain_bytes += u64::from(chunk.length);
            let is_kept = match (instances, &mut marks.set) {
                (Instances::Filter(filter), _) => filter.contains(prefix, container.id),
                (Instances::FirstMet, LiveSet::Exact(prefixes)) => {
                    prefixes.get_mut(&prefix).is_some_and(|met| !std::mem::replace(met, true))
                }
                (_, set) => {
                    let is_live = set.contains(prefix);
                    if !is_live {
                        counts.dead += 1;
                        counts.dead_duplicates += u32::from(self.dead.note_dead(prefix));
                    }
                    is_live
                }
            };
            if is_kept {
                judged.live_chunks += 1;
                judged.live_bytes += u64::from(chunk.length);
            }
        }
        if let Instances::Counters(duplicates) = instances {
            counts.chunks = judged.chunks;
            let superseded = duplicates.superseded(ordinal as u32);
            let unique = unique_live_chunks(counts, superseded);
            let share = f64::from(unique) / f64::from(judged.live_chunks.max(1));
            judged.live_bytes = (judged.live_bytes as f64 * share) as u64;
            judged.live_chunks = unique;
        }
        self.liveness.push(judged);
        Ok(())
    }
}
