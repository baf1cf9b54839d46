//! The turns of a run over a share: one for each partition of its files (ATC'12, "partitioning").
//!
//! # Algorithm
//! By type the partitions are known beforehand; by path they are drawn so that none has more than a
//! given share of the bytes, from what the share holds now. Either way the files are met once
//! before, so that there are no turns without any. Files of a directory that stand together count
//! as one where they are small against the bound, so memory is that of the directories. By volume
//! there is one turn, of all files.
//!
//! Each turn makes a manifest of its own, which bears the partition's name as a tag. Drawn anew, a
//! partition by path may be another one under the same name: so names choose only what a turn is
//! compared with, and never what may be forgotten ([`super::optimize`]).
//!
//! Invariants: every file belongs to exactly one of the partitions; of one that has files, or may
//! have stubs that were deleted while they were open, there is a turn.

use super::crawl;
use super::share::{CONTROL, OPEN, Share};
use crate::ingest::ParentChoice;
use crate::ingest::selecting::Part;
use crate::job::Job;
use crate::session::Snapshot;
use crate::tree::path;
use onefold_policy::primary::partition::{FileClass, FileFacts, Partitioning};
use onefold_policy::primary::path_partitions::PathPartitions;
use onefold_types::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a manifest's tag with the name of its partition begins with.
const TAG: &str = "partition=";
/// The name of the partition that is all of a share.
const VOLUME: &str = "volume";
/// Files of a directory count as one up to this part of a partition.
const PILES_OF_A_PARTITION: u64 = 64;
/// What a file counts at most: files with holes can be longer than any disk.
pub const FILE_BYTES_MAX: u64 = 1 << 40;

/// How the files of a share are divided.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Partitions {
    /// Not at all.
    #[default]
    None,
    /// By type.
    Type,
    /// By sub-tree.
    Path {
        /// The share of all bytes that a partition has at most.
        share_max: f64,
    },
    /// By volume: a share lies within one, so it is one partition, apart from the rest of a store.
    Volume,
}

/// A turn: a partition of the share, or all of it.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// The partition's name, as manifests of parts bear it; `None`: all files.
    pub name: Option<String>,
    part: Option<(Arc<Partitioning>, usize)>,
}

impl Turn {
    /// The tag of its manifests; none if they hold all files.
    #[must_use]
    pub fn tag(&self) -> Option<String> {
        let has_all = matches!(&self.part, Some((whole, _)) if **whole == Partitioning::Whole);
        self.name.as_ref().filter(|_| !has_all).map(|name| format!("{TAG}{name}"))
    }

    /// What it is compared with, and that if it is of the same partition.
    #[must_use]
    pub fn parent<'a>(&self, manifests: &'a [Snapshot]) -> (ParentChoice, Option<&'a Snapshot>) {
        let tag = self.tag();
        let mut same = manifests.iter().rev().filter(|one| tag_of(one) == tag.as_deref());
        match (same.next(), manifests.last()) {
            (Some(same), _) => (ParentChoice::Snapshot(same.id), Some(same)),
            (None, Some(other)) => (ParentChoice::Snapshot(other.id), None),
            (None, None) => (ParentChoice::None, None),
        }
    }

    /// Its files, and which of the directory's manifests may hold their chunks: where the
    /// partitions are always the same ones, not those of the others.
    #[must_use]
    pub fn part(&self, manifests: &[Snapshot]) -> Option<Part> {
        let (partitioning, number) = self.part.clone()?;
        let tag = self.tag();
        let may_hold = |one: &&Snapshot| match &*partitioning {
            Partitioning::Type => {
                let of_types = format!("{TAG}type:");
                let other = tag_of(one);
                other == tag.as_deref() || other.is_none_or(|other| !other.starts_with(&of_types))
            }
            _ => true,
        };
        let earlier = manifests.iter().filter(may_hold).map(|one| one.id).collect();
        Some(Part { partitioning, number, earlier })
    }
}

/// The tag with the name of a manifest's partition; `None`: it is of the whole share.
#[must_use]
pub fn tag_of(manifest: &Snapshot) -> Option<&str> {
    manifest.record.tags.iter().find(|tag| tag.starts_with(TAG)).map(String::as_str)
}

/// The manifests that say what a share holds now: the newest, and, if it is of a partition, those
/// before it down to one of the whole share. What several hold is what the newest says.
#[must_use]
pub fn current(manifests: &[Snapshot]) -> Vec<&Snapshot> {
    let mut current = Vec::new();
    for manifest in manifests.iter().rev() {
        current.push(manifest);
        if tag_of(manifest).is_none() {
            break;
        }
    }
    current
}

/// How many of the last manifests, the newest last, nothing has taken the place of: they are of
/// partitions that differ, or one of the whole share. Some of a run before may be among them.
#[must_use]
pub fn newest(manifests: &[Snapshot]) -> usize {
    let mut seen = BTreeSet::new();
    let is_new = |tag: Option<&str>| match tag {
        None => seen.is_empty() && seen.insert(None),
        Some(_) => !seen.contains(&None) && seen.insert(tag.map(str::to_owned)),
    };
    manifests.iter().rev().map(tag_of).map(is_new).take_while(|is_new| *is_new).count()
}

/// The turns of a run, and how much could not be looked at.
pub fn plan(share: &Share, partitions: Partitions, job: &Job) -> Result<(Vec<Turn>, u64)> {
    let mut errors = 0;
    let partitioning = match partitions {
        Partitions::None => return Ok((vec![Turn::default()], 0)),
        Partitions::Volume => {
            let part = Some((Arc::new(Partitioning::Whole), 0));
            return Ok((vec![Turn { name: Some(VOLUME.to_owned()), part }], 0));
        }
        Partitions::Type => Partitioning::Type,
        Partitions::Path { share_max } => Partitioning::Path(divide(share, share_max, job)?),
    };
    let mut numbers = BTreeSet::new();
    let mut note = |path: &[u8], volume| {
        _ = numbers.insert(partitioning.partition_of(FileFacts { path, volume }));
    };
    // What was deleted while it was open is not met.
    note(format!("/{CONTROL}/{OPEN}/1").as_bytes(), 0);
    let mut problem = |path: &[u8], error: &Error| {
        errors += 1;
        job.observer.problem(&path::display(path), error);
    };
    files(share, job, &mut |path, met| note(path, met.entry.device), &mut problem)?;
    let name = |number: usize| match FileClass::ALL.get(number) {
        Some(class) if partitioning == Partitioning::Type => format!("type:{}", class.name()),
        _ => format!("path:{}", number + 1),
    };
    let names: Vec<_> = numbers.iter().map(|number| (*number, name(*number))).collect();
    let partitioning = Arc::new(partitioning);
    let turn =
        |(number, name)| Turn { name: Some(name), part: Some((Arc::clone(&partitioning), number)) };
    Ok((names.into_iter().map(turn).collect(), errors))
}

/// Draws partitions by path. What cannot be looked at is told by whoever looks next.
fn divide(share: &Share, share_max: f64, job: &Job) -> Result<PathPartitions> {
    let mut all_bytes: u64 = 0;
    let size_of = |met: &crawl::Met<'_>| met.entry.size.min(FILE_BYTES_MAX);
    files(share, job, &mut |_, met| all_bytes += size_of(met), &mut |_, _| ())?;
    let pile_bytes = (all_bytes as f64 * share_max) as u64 / PILES_OF_A_PARTITION;
    let mut piles: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut last = None;
    let mut each = |path: &[u8], met: &crawl::Met<'_>| {
        let above = path.strip_suffix(met.entry.name.as_slice()).map(<[u8]>::to_vec);
        let size = size_of(met);
        match piles.last_mut() {
            Some((_, bytes)) if last == above && *bytes + size <= pile_bytes => *bytes += size,
            _ => piles.push((path.to_vec(), size)),
        }
        last = above;
    };
    files(share, job, &mut each, &mut |_, _| ())?;
    let sized: Vec<_> = piles.iter().map(|(path, bytes)| (path.as_slice(), *bytes)).collect();
    Ok(PathPartitions::divide(&sized, share_max))
}

/// Shows all files of a share.
fn files(
    share: &Share,
    job: &Job,
    each: &mut dyn FnMut(&[u8], &crawl::Met<'_>),
    problem: &mut dyn FnMut(&[u8], &Error),
) -> Result<()> {
    crawl::files(
        share.directory(),
        &mut |met| {
            job.interrupt.check()?;
            each(met.path, &met);
            Ok(())
        },
        problem,
    )
}
