//! What holds for every policy on every stream: random streams against an owner that checks.

use crate::support::{all_choices, container, fingerprint, fixed};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::rewrite::UnitId;
use onefold_policy::rewrite::{
    Before, Candidate, ContainerUse, Decided, Decision, Expected, RewriteChoice, RewriteCounters,
    RewriteLimits, RewriteParameters, StreamChunk, StreamRewriter, Usage,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A step of a stream.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A chunk of a small population, with its size.
    Chunk(u64, u32),
    /// Everything that waits is decided, and the stream goes on.
    Finish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (0..300u64, 1..40u32).prop_map(|(number, size)| Step::Chunk(number, size)),
        1 => Just(Step::Finish),
    ];
    prop::collection::vec(step, 1..600)
}

fn parameters() -> impl Strategy<Value = RewriteParameters> {
    let sizes = (1..300u64, 1..6usize, 1..9usize, prop_oneof![Just(u64::MAX), 1..2000u64]);
    let versions = (any::<bool>(), any::<bool>(), any::<bool>(), 1..500u64, 0..500u64);
    (sizes, versions).prop_map(|(sizes, (expects, remembers, adds, chunks, unique_chunks))| {
        let history: ContainerUse = (0..40)
            .map(|number| {
                let referred_bytes = number * number;
                let usage = Usage { referred_bytes, payload_bytes: 900, spans: number as u32 % 4 };
                (container(number), usage)
            })
            .collect();
        RewriteParameters {
            container_bytes: sizes.0,
            segment_containers: sizes.1,
            window_containers: sizes.2,
            candidates_bytes_max: sizes.3,
            expected: expects.then_some(Expected { chunks, unique_chunks }),
            before: adds.then_some(Before { unique_chunks: chunks, rewritten_chunks: 3 }),
            history: remembers.then(|| Arc::new(history)),
            ..RewriteParameters::default()
        }
    })
}

/// Where a chunk of the population is: new, or in one to three old containers.
fn instances_of(number: u64) -> Vec<UnitId> {
    let kinds = number % 5;
    (1..kinds).map(|instance| container((number / 5 * 7 * instance) % 40)).collect()
}

/// An owner, as a session would be one.
struct Owner {
    rewriter: StreamRewriter,
    pushed: Vec<(u64, Vec<UnitId>)>,
    open: BTreeSet<u64>,
    stored: BTreeSet<u64>,
    /// Chunks whose bytes a session would hold, and the undecided tickets of each.
    held: BTreeMap<u32, (bool, BTreeSet<u64>)>,
    slots: BTreeMap<u64, u32>,
    log: Vec<Decided>,
}

impl Owner {
    fn run(choice: &RewriteChoice, parameters: &RewriteParameters, steps: &[Step]) -> Self {
        let rewriter = StreamRewriter::new(choice, parameters.clone()).unwrap();
        let (open, stored) = (BTreeSet::new(), BTreeSet::new());
        let (held, slots) = (BTreeMap::new(), BTreeMap::new());
        let mut owner =
            Self { rewriter, pushed: Vec::new(), open, stored, held, slots, log: Vec::new() };
        for step in steps {
            let mut decided = Vec::new();
            match *step {
                Step::Chunk(number, size_bytes) => owner.push(number, size_bytes, &mut decided),
                Step::Finish => owner.rewriter.finish(&mut decided),
            }
            owner.check(decided);
        }
        let mut decided = Vec::new();
        owner.rewriter.finish(&mut decided);
        owner.check(decided);
        assert!(owner.open.is_empty(), "all are decided");
        owner
    }

    fn push(&mut self, number: u64, size_bytes: u32, decided: &mut Vec<Decided>) {
        let ticket = self.pushed.len() as u64;
        let instances = instances_of(number);
        let status = if self.stored.contains(&number) {
            DuplicateStatus::Fresh(())
        } else if instances.is_empty() {
            self.stored.insert(number);
            DuplicateStatus::Unique
        } else {
            self.open.insert(ticket);
            DuplicateStatus::Old(instances.as_slice())
        };
        let chunk = StreamChunk { ticket, fingerprint: fingerprint(number), size_bytes, status };
        let candidate = self.rewriter.push(&chunk, decided);
        self.pushed.push((number, instances));
        if let Some(Candidate { slot, is_open }) = candidate {
            self.slots.insert(ticket, slot);
            let (is_held, tickets) = self.held.entry(slot).or_default();
            *is_held |= is_open;
            let equals = |other: &u64| self.pushed[*other as usize].0 == number;
            assert!(tickets.iter().all(equals), "only equal chunks share a slot");
            tickets.insert(ticket);
        }
    }

    /// A decision, and whether the bytes were held until then.
    fn let_go(&mut self, ticket: u64) -> bool {
        let Some(slot) = self.slots.remove(&ticket) else {
            return true;
        };
        let (is_held, tickets) = self.held.get_mut(&slot).expect("a slot that is in use");
        let was_held = *is_held;
        tickets.remove(&ticket);
        if tickets.is_empty() {
            self.held.remove(&slot);
        }
        was_held
    }

    fn check(&mut self, decided: Vec<Decided>) {
        for Decided { ticket, decision } in decided {
            assert!(self.open.remove(&ticket), "decided once, and only if it was open");
            let was_held = self.let_go(ticket);
            assert!(was_held || decision != Decision::Rewrite, "bytes to store");
            let (number, instances) = &self.pushed[ticket as usize];
            match decision {
                Decision::Keep(id) => assert!(instances.contains(&id)),
                Decision::Rewrite => assert!(self.stored.insert(*number), "one copy"),
                Decision::Share => assert!(self.stored.contains(number), "a copy to share"),
            }
            self.log.push(Decided { ticket, decision });
        }
        assert_eq!(self.rewriter.waiting(), self.open.len() as u64);
    }

    fn counters(&self) -> RewriteCounters {
        *self.rewriter.counters()
    }
}

fn check_counters(owner: &Owner, parameters: &RewriteParameters) {
    let counters = owner.counters();
    let mut counts = BTreeMap::new();
    for Decided { decision, .. } in &owner.log {
        let name = match decision {
            Decision::Keep(_) => "kept",
            Decision::Rewrite => "rewritten",
            Decision::Share => "shared",
        };
        *counts.entry(name).or_insert(0u64) += 1;
    }
    let count = |name| counts.get(name).copied().unwrap_or(0);
    assert_eq!(counters.kept, count("kept"));
    assert_eq!(counters.rewritten, count("rewritten"));
    assert_eq!(counters.shared, count("shared"));
    assert_eq!(counters.duplicates, owner.log.len() as u64);
    assert_eq!(counters.chunks, counters.unique + counters.fresh + counters.duplicates);
    let most = parameters.candidates_bytes_max.saturating_add(40);
    assert!(counters.candidates_bytes_peak <= most, "one chunk more at most");
}

/// What the loss allows for the larger one of the expected and the actual number of new chunks.
fn allowed(parameters: &RewriteParameters, counters: &RewriteCounters, loss: f64) -> f64 {
    let unique = match (parameters.before, parameters.expected) {
        (Some(before), _) => counters.unique + before.unique_chunks,
        (None, Some(expected)) => counters.unique.max(expected.unique_chunks),
        (None, None) => counters.unique,
    };
    loss / (1.0 - loss) * unique as f64 + 1e-3
}

proptest! {
    #[test]
    fn every_duplicate_is_decided_once_and_well(
        parameters in parameters(),
        steps in steps(),
        loss in 0.0..0.6f64,
    ) {
        for choice in all_choices(loss) {
            let owner = Owner::run(&choice, &parameters, &steps);
            check_counters(&owner, &parameters);
            let counters = owner.counters();
            if !matches!(choice, RewriteChoice::None | RewriteChoice::Capping { .. }) {
                prop_assert!(counters.rewritten as f64 <= allowed(&parameters, &counters, loss));
            }
            let again = Owner::run(&choice, &parameters, &steps);
            prop_assert_eq!(owner.log, again.log);
        }
    }

    #[test]
    fn s2_35_a_threshold_of_zero_is_none_and_a_high_one_rewrites_every_duplicate(
        sizes in parameters(),
        steps in steps(),
    ) {
        let parameters = RewriteParameters { candidates_bytes_max: u64::MAX, ..sizes };
        let none = Owner::run(&RewriteChoice::None, &parameters, &steps);
        prop_assert_eq!(none.counters().rewritten, 0);
        for make in [RewriteChoice::Flexible, RewriteChoice::Window] {
            let lowest = Owner::run(&make(fixed(0)), &parameters, &steps).counters();
            prop_assert_eq!((lowest.kept, lowest.rewritten), (none.counters().kept, 0));
            let highest = Owner::run(&make(fixed(1 << 20)), &parameters, &steps).counters();
            prop_assert_eq!(highest.kept, 0);
        }
        let lossless = RewriteChoice::Auto(RewriteLimits::loss(0.0));
        let nothing = Owner::run(&lossless, &parameters, &steps);
        prop_assert_eq!(nothing.counters().rewritten, 0);
    }

    #[test]
    fn s2_7_capping_refers_to_no_more_containers_than_its_level(
        parameters in parameters(),
        steps in steps(),
        level in 0..6u32,
    ) {
        let choice = RewriteChoice::Capping { level: Some(level) };
        let counters = Owner::run(&choice, &parameters, &steps).counters();
        prop_assert!(counters.containers_referred <= u64::from(level) * counters.segments);
    }
}
