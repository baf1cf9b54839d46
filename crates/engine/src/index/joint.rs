//! The index of a session whose store has a common index beside its own: both, as one.
//!
//! # Algorithm
//! - What others have stored since the session began is asked for once a second at most, when a
//!   chunk is looked up, and kept in memory: the *fresh* chunks, within a bound. A chunk may be
//!   there if the summary vectors of the runs say so or it is fresh.
//! - A chunk is looked for among the fresh ones, then in the common index, many at once; the pages
//!   of the runs are read for what neither names.
//! - Of what the common index names only containers count that were in the store when the session
//!   began, or are fresh: it may remember many that collections have deleted since.
//!
//! # Invariants
//! Nothing is committed that rests on containers which only the common index knows: their sessions
//! may never write a run, and whoever reads later need not ask anybody. Those that chunks were
//! found in are indexed before the commit, whoever stored them ([`ChunkIndex::cover`]).
//!
//! What others have stored is kept newest first: beyond the bound the oldest is forgotten, which is
//! what a session that keeps up with others needs least, and costs room only.
//!
//! A common index that fails is left alone for a while (`PAUSE_NS`); until then the runs answer.
//!
//! Concurrency: as all indexes. One lock around what is fresh, never held while somebody is asked,
//! and one thread at a time asks for news; the others go on with what is known.

use super::chunk_index::{ChunkIndex, PrefixScan};
use super::claims::Claims;
use super::fingerprint_index::FingerprintIndex;
use super::run_writer;
use crate::common_index::{CommonIndex, NewContainer};
use crate::container::log::DurableContainer;
use crate::container::reader;
use crate::job::Interrupt;
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_policy::BucketCounts;
use onefold_types::environment::Clock;
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result, RunId, SessionId};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often others are asked what is new.
const NEWS_PERIOD_NS: i64 = 1_000_000_000;
/// How long a common index is left alone that has failed: an attempt may take a quarter of it.
const PAUSE_NS: i64 = 60_000_000_000;
/// What a fresh chunk takes: a map's entry, at the worst that a map is filled, and its place in the
/// order.
const FRESH_CHUNK_BYTES: usize = 72;
/// Memory for fresh chunks: a hundred thousand, of three gigabytes.
const FRESH_BYTES: usize = 8 << 20;

/// Of what is left of the memory limit no more than this part is taken for them.
const LEASE_PART: usize = 8;

/// Entries of one run that is written for containers of others: bounds its memory.
const COVERED_AT_ONCE: usize = 1 << 18;

/// Both indexes of a store; see the module.
pub struct JointIndex {
    runs: Arc<FingerprintIndex>,
    common: Arc<dyn CommonIndex>,
    clock: Arc<dyn Clock>,
    /// All containers of the store when the session began, rising.
    present: Arc<[ContainerId]>,
    fresh: Mutex<Fresh>,
    fresh_max: usize,
    /// `None`: nothing is stored.
    claims: Option<Arc<Claims>>,
    _lease: Lease,
}

/// What others have stored since.
#[derive(Default)]
struct Fresh {
    chunks: HashMap<u64, ContainerId>,
    containers: BTreeSet<ContainerId>,
    /// The same by container, in the order in which it was heard of.
    in_order: VecDeque<NewContainer>,
    /// The generation of the runs whose containers are not fresh any more.
    generation: u64,
    asked_ns: Option<i64>,
    is_asking: bool,
    failed_ns: Option<i64>,
}

impl Fresh {
    /// Whether the common index may be asked.
    fn may_ask(&self, now_ns: i64) -> bool {
        // A clock that was set back does not make it longer.
        let is_over = |failed: i64| !(0..PAUSE_NS).contains(&now_ns.saturating_sub(failed));
        self.failed_ns.is_none_or(is_over)
    }

    fn is_due(&self, now_ns: i64, period_ns: i64) -> bool {
        let is_over = |asked: i64| !(0..period_ns).contains(&now_ns.saturating_sub(asked));
        let is_old = self.asked_ns.is_none_or(is_over);
        is_old && !self.is_asking && self.may_ask(now_ns)
    }

    /// Forgets what the runs know by now.
    fn forget_covered(&mut self, covered: &[ContainerId]) {
        let is_covered = |id: &ContainerId| covered.binary_search(id).is_ok();
        self.containers.retain(|id| !is_covered(id));
        self.chunks.retain(|_, id| !is_covered(id));
        self.in_order.retain(|(id, _)| !is_covered(id));
    }

    /// Keeps what a container holds, and forgets the oldest for it.
    fn keep(&mut self, (container, prefixes): NewContainer, kept_max: usize) {
        if prefixes.len() >= kept_max || !self.containers.insert(container) {
            return;
        }
        while self.chunks.len() + self.containers.len() + prefixes.len() > kept_max {
            let Some((oldest, its)) = self.in_order.pop_front() else { break };
            self.containers.remove(&oldest);
            for prefix in its {
                if self.chunks.get(&prefix) == Some(&oldest) {
                    self.chunks.remove(&prefix);
                }
            }
        }
        self.chunks.extend(prefixes.iter().map(|prefix| (*prefix, container)));
        self.in_order.push_back((container, prefixes));
    }
}

impl JointIndex {
    /// The runs, and what its machines have in common, of a store that has these containers, for a
    /// session, if it stores anything, and what ends its waiting.
    #[must_use]
    pub fn new(
        repository: &Repository,
        runs: Arc<FingerprintIndex>,
        common: Arc<dyn CommonIndex>,
        present: Arc<[ContainerId]>,
        session: Option<(SessionId, Interrupt)>,
    ) -> Self {
        let claims = session.map(|(session, interrupt)| {
            Arc::new(Claims::new(repository, Arc::clone(&common), session, interrupt))
        });
        // Caches have more use for memory where there is little.
        let share = repository.purse().left_bytes() / LEASE_PART;
        let lease = repository.purse().take(FRESH_BYTES.min(share));
        let fresh_max = lease.bytes() / FRESH_CHUNK_BYTES;
        let clock = Arc::clone(&repository.environment().clock);
        let fresh = Mutex::default();
        Self { runs, common, clock, present, fresh, fresh_max, claims, _lease: lease }
    }

    /// Those that no run knows.
    fn uncovered(&self, found: &BTreeSet<ContainerId>) -> Vec<ContainerId> {
        let covered = self.runs.covered();
        let is_unknown = |id: &&ContainerId| covered.binary_search(id).is_err();
        found.iter().filter(is_unknown).copied().collect()
    }

    fn fresh(&self) -> MutexGuard<'_, Fresh> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks what others have stored, if that was long ago.
    fn catch_news(&self) {
        self.catch_news_after(NEWS_PERIOD_NS);
    }

    fn catch_news_after(&self, period_ns: i64) {
        let now_ns = self.clock.now_ns();
        {
            let mut fresh = self.fresh();
            if !fresh.is_due(now_ns, period_ns) {
                return;
            }
            fresh.is_asking = true;
        }
        if let Some(claims) = &self.claims {
            claims.catch_up();
        }
        let news = self.common.news();
        let generation = self.runs.generation();
        let covered = (self.fresh().generation != generation).then(|| self.runs.covered());
        let mut fresh = self.fresh();
        fresh.is_asking = false;
        fresh.asked_ns = Some(now_ns);
        if let Some(covered) = &covered {
            fresh.forget_covered(covered);
            fresh.generation = generation;
        }
        let is_covered = |id: &ContainerId| {
            covered.as_ref().is_some_and(|covered| covered.binary_search(id).is_ok())
        };
        match news {
            Ok(news) => {
                for one in news.into_iter().filter(|(id, _)| !is_covered(id)) {
                    fresh.keep(one, self.fresh_max);
                }
            }
            Err(_) => fresh.failed_ns = Some(self.clock.now_ns()),
        }
    }

    /// What the common index names for these, as far as it counts; nothing where it fails.
    fn ask_common(&self, prefixes: &[u64]) -> Vec<Vec<ContainerId>> {
        let now_ns = self.clock.now_ns();
        let mut found = Vec::with_capacity(prefixes.len());
        let may_ask = self.fresh().may_ask(now_ns);
        if may_ask && self.common.locate(prefixes, &mut found).is_err() {
            found.clear();
            self.fresh().failed_ns = Some(self.clock.now_ns());
        }
        found.resize_with(prefixes.len(), Vec::new);
        let fresh = self.fresh();
        let counts = |id: &ContainerId| {
            self.present.binary_search(id).is_ok() || fresh.containers.contains(id)
        };
        for containers in &mut found {
            containers.retain(counts);
            // The newest first, as the runs give them.
            containers.sort_unstable_by(|a, b| b.cmp(a));
        }
        found
    }
}

fn set(
    found: &mut [Vec<ContainerId>],
    start: usize,
    asked: &[usize],
    answers: Vec<Vec<ContainerId>>,
) {
    for (number, answer) in asked.iter().zip(answers) {
        if let Some(place) = found.get_mut(start + number) {
            *place = answer;
        }
    }
}

impl ChunkIndex for JointIndex {
    /// All that the runs name, and what is fresh.
    fn locate_many(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.catch_news();
        let start = found.len();
        self.runs.locate_many(repository, fingerprints, found, reads)?;
        let fresh = self.fresh();
        for (fingerprint, containers) in fingerprints.iter().zip(found.iter_mut().skip(start)) {
            if let Some(container) = fresh.chunks.get(&fingerprint.prefix())
                && !containers.contains(container)
            {
                containers.insert(0, *container);
            }
        }
        Ok(())
    }

    /// What is fresh first, then what the common index names, then the runs.
    fn locate_newest(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.catch_news();
        let start = found.len();
        {
            let fresh = self.fresh();
            let of = |one: &Fingerprint| fresh.chunks.get(&one.prefix()).copied();
            found.extend(fingerprints.iter().map(|one| of(one).into_iter().collect::<Vec<_>>()));
        }
        let unknown = |found: &[Vec<ContainerId>]| -> Vec<usize> {
            let appended = found.iter().skip(start).enumerate();
            appended.filter(|(_, one)| one.is_empty()).map(|(number, _)| number).collect()
        };
        let of = |asked: &[usize]| -> Vec<Fingerprint> {
            asked.iter().filter_map(|number| fingerprints.get(*number)).copied().collect()
        };
        let asked = unknown(found);
        if !asked.is_empty() {
            let prefixes: Vec<u64> = of(&asked).iter().map(Fingerprint::prefix).collect();
            set(found, start, &asked, self.ask_common(&prefixes));
        }
        let left = unknown(found);
        if !left.is_empty() {
            let mut of_runs = Vec::with_capacity(left.len());
            self.runs.locate_newest(repository, &of(&left), &mut of_runs, reads)?;
            set(found, start, &left, of_runs);
        }
        Ok(())
    }

    /// What was fresh or named by the common index may be condemned, and what collections have
    /// copied elsewhere is in the runs alone.
    fn locate_instead(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        found: &mut Vec<ContainerId>,
        reads: &mut u64,
    ) -> Result<()> {
        for container in self.runs.locate(repository, fingerprint, reads)? {
            if !found.contains(&container) {
                found.push(container);
            }
        }
        Ok(())
    }

    fn locate_where_readable(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
    ) -> Result<Vec<ContainerId>> {
        ChunkIndex::locate_where_readable(&*self.runs, repository, fingerprint)
    }

    fn may_hold(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        self.catch_news();
        if self.fresh().chunks.contains_key(&fingerprint.prefix()) {
            return Ok(true);
        }
        self.runs.may_hold(repository, fingerprint)
    }

    fn bucket_counts(&self) -> BucketCounts {
        ChunkIndex::bucket_counts(&*self.runs)
    }

    fn covered(&self) -> Vec<ContainerId> {
        ChunkIndex::covered(&*self.runs)
    }

    fn entries(&self) -> u64 {
        ChunkIndex::entries(&*self.runs)
    }

    fn chunks(&self) -> u64 {
        ChunkIndex::chunks(&*self.runs)
    }

    fn scan(
        &self,
        repository: &Repository,
        containers: &[ContainerId],
        from: u64,
    ) -> Result<Box<dyn PrefixScan>> {
        self.runs.scan(repository, containers, from)
    }

    fn generation(&self) -> u64 {
        self.runs.generation()
    }

    fn refresh(&self, repository: &Repository) -> Result<bool> {
        ChunkIndex::refresh(&*self.runs, repository)
    }

    /// Others store the same again if they cannot be told, which costs room only; who reaches them
    /// says so.
    fn note_durable(&self, container: ContainerId, fingerprints: &[Fingerprint]) {
        let now_ns = self.clock.now_ns();
        let may_ask = self.fresh().may_ask(now_ns);
        let prefixes: Vec<u64> = fingerprints.iter().map(Fingerprint::prefix).collect();
        if may_ask && self.common.add(container, &prefixes).is_err() {
            self.fresh().failed_ns = Some(self.clock.now_ns());
        }
        if let Some(claims) = &self.claims {
            claims.note_durable(&prefixes);
        }
    }

    fn claims(&self) -> Option<Arc<Claims>> {
        self.claims.clone()
    }

    fn hear(&self) {
        self.catch_news_after(0);
    }

    fn cover(&self, repository: &Repository, found: &BTreeSet<ContainerId>) -> Result<()> {
        if self.uncovered(found).is_empty() {
            return Ok(());
        }
        self.runs.refresh_if_changed(repository)?;
        let (mut containers, mut entries, kind) = (Vec::new(), 0, self.runs.kind());
        for id in self.uncovered(found) {
            let section = match reader::read_section(repository, id) {
                Ok(section) => section,
                // A collection took it: the commit finds out what that means.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries += section.chunks.len();
            let prefixes = section.chunks.iter().map(|chunk| chunk.fingerprint.prefix());
            containers.push((id, prefixes.collect()));
            if entries >= COVERED_AT_ONCE {
                entries = 0;
                run_writer::write_run_of(repository, Some(kind), std::mem::take(&mut containers))?;
            }
        }
        if !containers.is_empty() {
            run_writer::write_run_of(repository, Some(kind), containers)?;
        }
        self.runs.refresh_if_changed(repository).map(drop)
    }

    fn note_added(
        &self,
        repository: &Repository,
        added: &[DurableContainer],
        run: RunId,
    ) -> Result<()> {
        self.runs.note_added(repository, added, run)
    }

    fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool> {
        ChunkIndex::catch_up(&*self.runs, repository, missed_in)
    }
}
