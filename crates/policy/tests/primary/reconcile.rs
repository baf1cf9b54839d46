//! Reconciliation against its definition: a chunk is a duplicate of its first instance.

use onefold_policy::primary::chunk_table::TableForm;
use onefold_policy::primary::overlap::Overlap;
use onefold_policy::primary::reconcile::{
    ChunkAddress, Iteration, PartitionId, PartitionPort, Reconciler, Timing,
};
use onefold_types::environment::SeededRandomness;
use onefold_types::{Error, Fingerprint, Result};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Partitions as lists; duplicates are written down.
#[derive(Default)]
struct Lists {
    logs: Vec<Vec<Fingerprint>>,
    duplicates: BTreeMap<ChunkAddress, ChunkAddress>,
    reads: u64,
    /// After so many reads, none succeeds.
    reads_max: Option<u64>,
}

impl PartitionPort for Lists {
    fn chunks(&mut self, partition: PartitionId) -> Result<u64> {
        let log = self.logs.get(partition as usize);
        log.map(|log| log.len() as u64).ok_or_else(|| Error::invalid("no such partition"))
    }

    fn fingerprints(
        &mut self,
        first: ChunkAddress,
        limit: usize,
        found: &mut Vec<Fingerprint>,
    ) -> Result<()> {
        self.reads += 1;
        if self.reads_max.is_some_and(|most| self.reads > most) {
            return Err(Error::damaged("the log cannot be read"));
        }
        let log = &self.logs[first.partition as usize];
        found.extend(log.iter().skip(first.ordinal as usize).take(limit));
        Ok(())
    }

    fn duplicate(&mut self, chunk: ChunkAddress, original: ChunkAddress) -> Result<()> {
        assert_eq!(self.fingerprint(chunk), self.fingerprint(original));
        assert_eq!(self.duplicates.insert(chunk, original), None, "told once");
        Ok(())
    }
}

impl Lists {
    fn fingerprint(&self, address: ChunkAddress) -> Fingerprint {
        self.logs[address.partition as usize][address.ordinal as usize]
    }

    /// The definition: a chunk is a duplicate of its first instance in this order.
    fn oracle(&self, order: &[PartitionId]) -> BTreeMap<ChunkAddress, ChunkAddress> {
        let (mut first, mut duplicates) = (BTreeMap::new(), BTreeMap::new());
        for partition in order {
            for (ordinal, fingerprint) in (0..).zip(&self.logs[*partition as usize]) {
                let address = ChunkAddress { partition: *partition, ordinal };
                let original = *first.entry(*fingerprint).or_insert(address);
                if original != address {
                    duplicates.insert(address, original);
                }
            }
        }
        duplicates
    }
}

fn fingerprint(number: u64) -> Fingerprint {
    let randomness = SeededRandomness::new(number);
    let mut fingerprint = Fingerprint::ZERO;
    fingerprint.0[..8].copy_from_slice(&randomness.next_u64().to_le_bytes());
    fingerprint.0[24..].copy_from_slice(&number.to_le_bytes());
    fingerprint
}

fn of_numbers(logs: &[Vec<u64>]) -> Lists {
    let logs = logs.iter().map(|log| log.iter().map(|number| fingerprint(*number)).collect());
    Lists { logs: logs.collect(), ..Lists::default() }
}

/// `partitions` of 3000 chunks, of which each has a third in common with the one before it and some
/// with all.
fn chained(partitions: u64) -> Lists {
    let log = |number: u64| (number * 2000..number * 2000 + 2900).chain(1 << 40..(1 << 40) + 100);
    of_numbers(&(0..partitions).map(|number| log(number).collect()).collect::<Vec<_>>())
}

fn reconcile(
    lists: &mut Lists,
    order: &[PartitionId],
    k: usize,
    form: TableForm,
) -> Vec<Iteration> {
    let mut reconciler = Reconciler::new(lists, order, form, 5000).unwrap();
    let bounds: Vec<u64> = order.chunks(k).map(|group| reconciler.memory_bytes(group)).collect();
    let groups = order.chunks(k);
    let iterations: Vec<Iteration> =
        groups.map(|group| reconciler.iterate(lists, group).unwrap()).collect();
    for (iteration, bound) in iterations.iter().zip(bounds) {
        assert!(iteration.memory_bytes <= bound, "{iteration:?} {bound}");
    }
    assert_eq!(reconciler.reconciled(), order);
    iterations
}

#[test]
fn any_k_and_form_finds_the_same_duplicates_and_trades_memory_for_passes() {
    let order = [2, 0, 5, 1, 4, 3];
    let expected = chained(6).oracle(&order);
    assert!(expected.len() > 4500, "{}", expected.len());
    for form in [TableForm::Whole, TableForm::Signatures] {
        let (mut scanned, mut memory) = (u64::MAX, 0);
        for k in [1, 2, 3, 6] {
            let mut lists = chained(6);
            let iterations = reconcile(&mut lists, &order, k, form);
            assert!(lists.duplicates == expected, "{form:?} {k}");
            let found: u64 = iterations.iter().map(|iteration| iteration.duplicates).sum();
            assert_eq!(found, expected.len() as u64);
            // n / k iterations: each reads the group twice, and all that is reconciled once.
            let passes: u64 = iterations.iter().map(|iteration| iteration.chunks_scanned).sum();
            let rounds = (6 / k) as u64;
            assert_eq!(passes, 3000 * (2 * 6 + k as u64 * (rounds * (rounds - 1) / 2)));
            let most = iterations.iter().map(|iteration| iteration.memory_bytes).max().unwrap();
            assert!(passes < scanned && most > memory, "{k}");
            (scanned, memory) = (passes, most);
        }
    }
}

#[test]
fn memory_is_that_of_the_partitions_at_hand() {
    let order: Vec<PartitionId> = (0..6).collect();
    for (form, least, most) in [(TableForm::Whole, 48.0, 48.0), (TableForm::Signatures, 4.0, 6.0)] {
        for k in [1, 2] {
            for iteration in reconcile(&mut chained(6), &order, k, form) {
                let bytes = iteration.memory_bytes as f64 / iteration.chunks_indexed as f64;
                assert!((least..=most * 1.3).contains(&bytes), "{form:?} {k} {bytes}");
                assert!(iteration.chunks_indexed <= 3000 * k as u64);
            }
        }
    }
    let mut lists = chained(6);
    let reconciler = Reconciler::new(&mut lists, &order, TableForm::Whole, 0).unwrap();
    let limit = reconciler.memory_bytes(&order[..3]);
    assert_eq!(reconciler.partitions_within(&order, limit), 3);
    assert_eq!(reconciler.partitions_within(&order, limit - 1), 2);
    assert_eq!(reconciler.partitions_within(&order, 0), 1);
}

#[test]
fn neighbours_are_verified_with_one_read() {
    let mut lists = of_numbers(&[(0..5000).collect(), (0..5000).collect()]);
    let iterations = reconcile(&mut lists, &[0, 1], 1, TableForm::Signatures);
    // Two steps verify all 5000 chunks, out of five pages each time; the cache holds five.
    assert!(iterations[1].verified >= 10_000);
    assert!(iterations[1].page_reads <= 12, "{:?}", iterations[1]);
    assert_eq!(iterations[1].duplicates, 5000);
}

#[test]
fn equal_signatures_are_no_duplicates() {
    let alike = |number: u8| {
        let mut fingerprint = Fingerprint::ZERO;
        fingerprint.0[31] = number;
        fingerprint
    };
    let logs = vec![vec![alike(1), alike(2)], vec![alike(3), alike(2)], vec![alike(3)]];
    for k in [1, 2, 3] {
        let mut lists = Lists { logs: logs.clone(), ..Lists::default() };
        reconcile(&mut lists, &[0, 1, 2], k, TableForm::Signatures);
        assert_eq!(lists.duplicates, lists.oracle(&[0, 1, 2]));
        assert_eq!(lists.duplicates.len(), 2);
    }
}

#[test]
fn an_iteration_that_fails_changes_nothing_and_can_be_repeated() {
    let order = [0, 1, 2];
    let expected = chained(3).oracle(&order);
    let mut reads = 0;
    loop {
        let mut lists = chained(3);
        let mut reconciler = Reconciler::new(&mut lists, &order, TableForm::Signatures, 0).unwrap();
        reconciler.iterate(&mut lists, &[0]).unwrap();
        (lists.reads, lists.reads_max) = (0, Some(reads));
        let failed = reconciler.iterate(&mut lists, &[1, 2]).is_err();
        lists.reads_max = None;
        if failed {
            assert_eq!(reconciler.reconciled(), [0]);
            lists.duplicates.clear();
            // Another process goes on.
            let mut next = Reconciler::new(&mut lists, &order, TableForm::Whole, 0).unwrap();
            next.resume(reconciler.reconciled());
            next.iterate(&mut lists, &[1, 2]).unwrap();
        }
        assert!(lists.duplicates == expected, "{reads}");
        if !failed {
            break;
        }
        reads += 1;
    }
    assert!(reads > 6, "{reads}");
}

#[test]
fn impossible_requests_are_refused() {
    let mut lists = chained(2);
    let form = TableForm::Whole;
    assert!(Reconciler::new(&mut lists, &[0, 0], form, 0).is_err());
    assert!(Reconciler::new(&mut lists, &[7], form, 0).is_err());
    let mut reconciler = Reconciler::new(&mut lists, &[0, 1], form, 0).unwrap();
    assert!(reconciler.iterate(&mut lists, &[5]).is_err());
    assert!(reconciler.iterate(&mut lists, &[1, 1]).is_err());
    reconciler.iterate(&mut lists, &[1]).unwrap();
    assert!(reconciler.iterate(&mut lists, &[1]).is_err());
    lists.logs[0].pop();
    let message = reconciler.iterate(&mut lists, &[0]).unwrap_err().to_string();
    assert!(message.contains("ends after 2999 of 3000"), "{message}");
}

#[test]
fn delayed_reconciliation_waits_for_quiet_hours_but_not_for_ever() {
    let delayed = Timing::Delayed { waiting_max: 3 };
    let cases = [(0, true), (1, false), (1, true), (3, false), (4, false)];
    let due = cases.map(|(waiting, off_peak)| delayed.is_due(waiting, off_peak));
    assert_eq!(due, [false, false, true, false, true]);
    assert!(Timing::AtOnce.is_due(1, false) && !Timing::AtOnce.is_due(0, true));
}

#[test]
fn what_has_nothing_in_common_is_not_selected_and_most_comes_first() {
    // 0 and 3 are alike, 1 has a tenth of 0, 2 nothing.
    let logs = [0..20_000, 18_000..38_000, 50_000..70_000, 0..20_000].map(Iterator::collect);
    let mut lists = of_numbers(&logs);
    let overlap = Overlap::sample(&mut lists, &[0, 1, 2, 3], 5).unwrap();
    assert!((300..3000).contains(&overlap.samples()));
    assert!((18_000..22_000).contains(&overlap.common_chunks(0, 3)));
    assert_eq!((overlap.common_chunks(0, 2), overlap.common_chunks(0, 9)), (0, 0));
    assert_eq!(overlap.select(0.5, 1), [0, 3]);
    assert_eq!(overlap.select(0.02, 1), [0, 3, 1]);
    assert_eq!(overlap.select(0.0, 1), [0, 3, 1, 2]);
    // 10 % of what is common is between 0 and 1, as much between 1 and 3.
    assert_eq!(overlap.select_yield(0.5), [0, 3]);
    assert_eq!(overlap.select_yield(0.99), [0, 3, 1]);
    assert_eq!(overlap.select_yield(1.0), [0, 3, 1]);
    assert!(overlap.select_yield(0.0).is_empty());
    // A small partition that is all in a large one is worth it, and the large one with it.
    let mut unequal = of_numbers(&[(0..40_000).collect(), (0..2000).collect()]);
    let both = Overlap::sample(&mut unequal, &[0, 1], 5).unwrap();
    assert_eq!(both.select(0.5, 1).len(), 2);
    let sampled = usize::try_from(both.common_chunks(0, 1) >> 5).unwrap();
    assert_eq!(both.select(0.5, sampled).len(), 2);
    assert!(both.select(0.5, sampled + 1).is_empty());
    // What was selected is reconciled as if there were nothing else.
    let order = overlap.select(0.5, 1);
    reconcile(&mut lists, &order, 1, TableForm::Signatures);
    assert!(lists.duplicates == lists.oracle(&[0, 3]));
}

#[test]
fn samples_that_others_took_count_for_as_many_as_they_stand_for() {
    let samples = vec![(4, [4, 8, 12].into()), (7, [8, 12, 16].into())];
    let overlap = Overlap::of(2, samples);
    assert_eq!((overlap.samples(), overlap.common_chunks(4, 7)), (6, 2 * 4));
}

proptest! {
    #[test]
    fn reconciling_finds_exactly_the_duplicates_of_the_definition(
        logs in proptest::collection::vec(proptest::collection::vec(0u64..60, 0..50), 1..7),
        k in 1usize..8, cached in 0usize..3, signatures: bool, rotated in 0usize..7,
    ) {
        let mut lists = of_numbers(&logs);
        let mut order: Vec<PartitionId> = (0..logs.len() as u32).collect();
        order.rotate_left(rotated % logs.len());
        let form = if signatures { TableForm::Signatures } else { TableForm::Whole };
        let mut reconciler = Reconciler::new(&mut lists, &order, form, cached * 40).unwrap();
        for group in order.chunks(k) {
            reconciler.iterate(&mut lists, group).unwrap();
        }
        prop_assert_eq!(&lists.duplicates, &lists.oracle(&order));
    }
}
