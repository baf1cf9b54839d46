//! What a run over a share did, and what its partitions have in common (ATC'12, "reconciliation").

use super::super::emptying::{Emptied, Left};
use super::super::lost_stubs::LostStubs;
use super::super::manifests::Elsewhere;
use super::super::second_copies;
use super::super::turns::Turn;
use crate::index::partition::PartitionIndexReport;
use crate::ingest::{BackupReport, publish};
use onefold_format::record::Summary;
use onefold_policy::primary::overlap::{Overlap, SAMPLE_BITS};
use onefold_types::SessionId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Partitions are worth reconciling if two store so much of the smaller one twice.
const WORTH_SHARE_MIN: f64 = 0.1;

/// And so many of the sampled chunks: one may be the directory that all of them have, which would
/// be all that a partition without files has.
const WORTH_SAMPLED_MIN: usize = 2;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct OptimizeReport {
    /// The backup of the cold files; of several turns the last one, with the sums of all.
    pub backup: BackupReport,
    /// The turns, one for each partition; none if the share was not divided.
    pub turns: Vec<TurnReport>,
    /// What became stubs.
    pub emptied: Emptied,
    /// Files that were left alone, by reason.
    pub left: BTreeMap<Left, u64>,
    /// Files that were left alone because the disk has no room for their data in the store.
    pub files_put_off: u64,
    /// Files that were left alone because a name of theirs is outside the share or left out.
    pub files_linked: u64,
    /// Stubs that were written into without the mount.
    pub written_below: u64,
    /// Stubs that were moved here out of another share without the mount.
    pub moved_here: u64,
    /// Stubs that lost their attribute, and are left as they are.
    pub lost: LostStubs,
    /// Files that could not be emptied.
    pub errors: u64,
    /// Second copies of what very many files have; none if nothing was stored.
    pub second_copies: second_copies::Kept,
    /// Manifests that were forgotten.
    pub manifests_forgotten: u64,
    /// Manifests that stay until a later run because something was moved.
    pub manifests_kept: u64,
    /// Manifests of the share that stay because another directory has made them.
    pub elsewhere: Vec<Elsewhere>,
}

/// What a turn did.
#[derive(Clone, Debug)]
pub struct TurnReport {
    /// The partition.
    pub name: String,
    /// Its manifest; `None` after a dry run that has nothing to compare with.
    pub manifest: Option<SessionId>,
    /// What was backed up.
    pub summary: Summary,
    /// What the index of the partition took.
    pub index: PartitionIndexReport,
}

impl OptimizeReport {
    /// Pairs of partitions and how many chunks they have in common, about, most first (S4.18).
    #[must_use]
    pub fn in_common(&self) -> Vec<([&str; 2], u64)> {
        let overlap = self.overlap(|_| true);
        let mut pairs = Vec::new();
        for (number, one) in (0..).zip(&self.turns) {
            for (other_number, other) in (0..).zip(&self.turns).skip(number as usize + 1) {
                let chunks = overlap.common_chunks(number, other_number);
                pairs.push(([one.name.as_str(), other.name.as_str()], chunks));
            }
        }
        pairs.retain(|(_, chunks)| *chunks > 0);
        pairs.sort_by_key(|(names, chunks)| (Reverse(*chunks), *names));
        pairs
    }

    /// Partitions of which so much is stored several times that it is worth reconciling them, those
    /// with most first (S4.18).
    #[must_use]
    pub fn worth_reconciling(&self) -> Vec<&str> {
        self.worth().iter().map(|turn| turn.name.as_str()).collect()
    }

    /// Chunks that these partitions need not hold several times, about.
    #[must_use]
    pub fn chunks_stored_twice(&self) -> u64 {
        let held: BTreeSet<_> = self.worth().iter().flat_map(|turn| &turn.index.sample).collect();
        let chunks: BTreeSet<u64> = held.iter().map(|(prefix, _)| *prefix).collect();
        ((held.len() - chunks.len()) as u64) << SAMPLE_BITS
    }

    fn worth(&self) -> Vec<&TurnReport> {
        let (mut holders, mut stored_twice) = (BTreeMap::new(), BTreeSet::new());
        for (prefix, holder) in self.turns.iter().flat_map(|turn| &turn.index.sample) {
            if holders.insert(*prefix, *holder).is_some_and(|other| other != *holder) {
                stored_twice.insert(*prefix);
            }
        }
        // What is stored once is there for whichever has it first.
        let mut met = BTreeSet::new();
        let overlap = self.overlap(|prefix| stored_twice.contains(prefix) || met.insert(*prefix));
        let selected = overlap.select(WORTH_SHARE_MIN, WORTH_SAMPLED_MIN).into_iter();
        selected.filter_map(|number| self.turns.get(number as usize)).collect()
    }

    /// Of the samples of the turns' chunks, as far as they count.
    fn overlap(&self, mut counts: impl FnMut(&u64) -> bool) -> Overlap {
        let mut samples = Vec::with_capacity(self.turns.len());
        for (number, turn) in (0..).zip(&self.turns) {
            let mut sample: BTreeSet<u64> =
                turn.index.sample.iter().map(|(prefix, _)| *prefix).collect();
            sample.retain(&mut counts);
            samples.push((number, sample));
        }
        Overlap::of(SAMPLE_BITS, samples)
    }

    /// Takes off errors that were met again: each was counted where it was told.
    pub(super) fn count_once(&mut self, again: u64) {
        let of_walks = &mut self.backup.summary.errors;
        let of_job = again.saturating_sub(*of_walks);
        *of_walks = of_walks.saturating_sub(again);
        self.errors = self.errors.saturating_sub(of_job);
    }

    /// Adds what a turn has backed up, or a further part of it.
    pub(super) fn note(&mut self, turn: &Turn, backup: BackupReport) {
        if let Some(name) = &turn.name {
            let manifest = backup.snapshot.or(backup.parent);
            let (name, mut summary) = (name.clone(), backup.summary);
            let index = backup.part_index.clone().unwrap_or_default();
            if let Some(before) = self.turns.pop_if(|before| before.name == name) {
                publish::add(&mut summary, &before.summary);
            }
            self.turns.push(TurnReport { name, manifest, summary, index });
        }
        let before = std::mem::replace(&mut self.backup, backup);
        let sum = &mut self.backup;
        publish::add(&mut sum.summary, &before.summary);
        sum.left_out.add(&before.left_out);
        sum.damaged_stubs.add(before.damaged_stubs);
        sum.fenced += before.fenced;
        sum.strays = sum.strays.max(before.strays);
        sum.elapsed += before.elapsed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_partitions_share_does_not_make_them_worth_reconciling() {
        let turn = |name: &str, chunks: &[u64], holder: u8| {
            let holder = onefold_types::ContainerId([holder; 16]);
            let sample = chunks.iter().map(|chunk| (*chunk << SAMPLE_BITS, holder)).collect();
            let index = PartitionIndexReport { sample, ..PartitionIndexReport::default() };
            TurnReport { name: name.into(), manifest: None, summary: Summary::default(), index }
        };
        let directory = 1;
        let mut turns =
            vec![turn("text", &[directory, 5, 6, 7], 1), turn("no ending", &[directory], 2)];
        let of =
            |turns: &[TurnReport]| OptimizeReport { turns: turns.to_vec(), ..Default::default() };
        assert!(of(&turns).worth_reconciling().is_empty());
        assert_eq!(of(&turns).chunks_stored_twice(), 0);
        turns.push(turn("media", &[directory, 6, 7], 3));
        assert_eq!(of(&turns).worth_reconciling(), ["text", "media"]);
        assert_eq!(of(&turns).chunks_stored_twice(), 3 << SAMPLE_BITS);
    }
}
