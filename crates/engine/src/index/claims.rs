//! Claims: what sessions are about to store, told to each other through what machines have in
//! common ([`crate::common_index`]), so that of several that reach the same new data together one
//! stores it and the others wait for that.
//!
//! # Algorithm
//! - Before a session stores new chunks it claims them, and learns what others have claimed. What
//!   somebody claimed before it waits for, until it hears that it is durable; then it is a
//!   duplicate.
//! - Claims are in one order for all ([`ClaimOrder`]), and a batch of chunks is claimed as a whole.
//!   So whoever made the first of all claims that are waited for waits for none of them itself,
//!   and nobody waits in a circle.
//! - What was claimed before is durable only once its container is full. A session that hears that
//!   others want such a chunk puts all that it was handed into containers and closes these, after
//!   half a second ([`Claims::is_wanted`]); whoever waits hears of it as well.
//! - Who waits in vain ([`PATIENCE`]) stores everything itself from then on that this session
//!   claims.
//! - A session that has heard of no other one for a minute claims nothing, but for its first two
//!   seconds. It says three times a minute that it is there.
//!
//! # Invariants
//! Hints: all that goes wrong here, a claim that is missed, never kept or made up, costs room or
//! some seconds. What was waited for counts as any duplicate does, once its container was seen
//! (W5).
//!
//! Memory: four megabytes of the limit for others' claims, the oldest forgotten first; the own
//! ones on their way in its fixed part.
//!
//! Concurrency: shared by a session's streams and by those that tell of containers; one lock, never
//! held while somebody is asked.

use crate::common_index::{Claim, ClaimOrder, CommonIndex};
use crate::job::Interrupt;
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_types::environment::Clock;
use onefold_types::{Result, SessionId};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Prefixes in one claim, at most.
pub const CLAIM_PREFIXES_MAX: usize = 4096;
/// How long whoever waits for another session's chunks waits while none of them becomes durable.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long a session that was heard of counts as being at work.
pub const COMPANY_NS: i64 = 60 * SECOND_NS;
/// Sessions that were waited for in vain up to which others are still waited for.
pub const PASSED_OVER_MAX: usize = 64;
/// Own chunks on their way of which it is remembered that others want them.
pub const OWN_MAX: usize = 1 << 16;
/// Memory for what others claim.
const CLAIMED_BYTES: usize = 4 << 20;
/// Of what is left of the memory limit no more than this part is taken for them.
const LEASE_PART: usize = 16;
/// What one takes: a map's entry, at the worst that a map is filled, and its place in the order.
const CLAIMED_CHUNK_BYTES: usize = 80;
/// How long a session claims without having heard of another one: both may have just begun.
const FIRST_NS: i64 = 2 * SECOND_NS;
/// How often a session says that it is at work.
const TELL_NS: i64 = 20 * SECOND_NS;
/// How long after others want a chunk its container is closed.
const WANTED_NS: i64 = SECOND_NS / 2;
/// An answer that takes longer than this, as a rule, is not worth waiting for.
const SLOW_NS: i64 = 50_000_000;
/// How long nothing is claimed after that.
const SLOW_PAUSE_NS: i64 = 5 * SECOND_NS;
/// How long nothing is claimed after a failure.
const PAUSE_NS: i64 = 60 * SECOND_NS;
const SECOND_NS: i64 = 1_000_000_000;

/// The claims of one session, and those of others as it hears of them.
pub struct Claims {
    common: Arc<dyn CommonIndex>,
    clock: Arc<dyn Clock>,
    session: SessionId,
    state: Mutex<State>,
    claimed_max: usize,
    interrupt: Interrupt,
    _lease: Lease,
}

#[derive(Default)]
struct State {
    /// Who claimed a chunk first, of the others.
    theirs: HashMap<u64, ClaimOrder>,
    /// The same, in the order in which it was heard of.
    in_order: VecDeque<u64>,
    /// Own claims on their way into the store, and those of them that others want.
    own: HashSet<u64>,
    wanted: HashSet<u64>,
    /// Since when there are any, and when containers were closed for them last.
    wanted_since_ns: i64,
    wanted_ns: i64,
    passed_over: BTreeSet<SessionId>,
    began_ns: Option<i64>,
    told_ns: Option<i64>,
    heard_ns: Option<i64>,
    paused_until_ns: Option<i64>,
    /// What an answer takes lately.
    answer_ns: i64,
}

/// Whether less than so long has passed; a clock that was set back makes nothing longer.
fn is_within(since_ns: Option<i64>, now_ns: i64, most_ns: i64) -> bool {
    since_ns.is_some_and(|since_ns| (0..most_ns).contains(&now_ns.saturating_sub(since_ns)))
}

impl State {
    fn may_ask(&self, now_ns: i64) -> bool {
        // A clock that was set back makes nothing longer.
        let is_paused = |until_ns: i64| (1..=PAUSE_NS).contains(&until_ns.saturating_sub(now_ns));
        self.passed_over.len() <= PASSED_OVER_MAX && !self.paused_until_ns.is_some_and(is_paused)
    }

    fn has_company(&self, now_ns: i64) -> bool {
        is_within(self.heard_ns, now_ns, COMPANY_NS) || is_within(self.began_ns, now_ns, FIRST_NS)
    }

    /// Takes notice of what others have claimed.
    fn note(&mut self, claims: Vec<Claim>, own: SessionId, now_ns: i64, claimed_max: usize) {
        for (order, prefixes) in claims.into_iter().filter(|(order, _)| order.by() != own) {
            self.heard_ns = Some(now_ns);
            for prefix in prefixes {
                if self.own.contains(&prefix) {
                    if self.wanted.is_empty() {
                        (self.wanted_since_ns, self.wanted_ns) = (now_ns, now_ns);
                    }
                    self.wanted.insert(prefix);
                }
                if let Some(known) = self.theirs.get_mut(&prefix) {
                    *known = order.min(*known);
                } else if claimed_max > 0 {
                    if self.in_order.len() >= claimed_max
                        && let Some(oldest) = self.in_order.pop_front()
                    {
                        self.theirs.remove(&oldest);
                    }
                    self.theirs.insert(prefix, order);
                    self.in_order.push_back(prefix);
                }
            }
        }
    }

    /// Whether somebody who may be waited for claimed the chunk before.
    fn is_theirs(&self, prefix: u64, order: ClaimOrder) -> bool {
        let first = self.theirs.get(&prefix).filter(|first| **first < order);
        first.is_some_and(|first| !self.passed_over.contains(&first.by()))
    }
}

impl Claims {
    /// Those of a session, which waits no more once this is requested.
    #[must_use]
    pub fn new(
        repository: &Repository,
        common: Arc<dyn CommonIndex>,
        session: SessionId,
        interrupt: Interrupt,
    ) -> Self {
        // Caches have more use for memory where there is little.
        let share = repository.purse().left_bytes() / LEASE_PART;
        let lease = repository.purse().take(CLAIMED_BYTES.min(share));
        let claimed_max = lease.bytes() / CLAIMED_CHUNK_BYTES;
        let clock = Arc::clone(&repository.environment().clock);
        let state = Mutex::default();
        Self { common, clock, session, state, claimed_max, interrupt, _lease: lease }
    }

    /// Fails if whoever waits is to end.
    pub fn check_interrupt(&self) -> Result<()> {
        self.interrupt.check()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody is there to claim anything from.
    pub fn has_company(&self) -> bool {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        state.began_ns.get_or_insert(now_ns);
        state.may_ask(now_ns) && state.has_company(now_ns)
    }

    /// Claims chunks, and gives those of them that others claimed before, which are to be waited
    /// for; nothing where nobody can be asked.
    pub fn claim(&self, prefixes: &[u64]) -> HashSet<u64> {
        let mut theirs = HashSet::new();
        for some in prefixes.chunks(CLAIM_PREFIXES_MAX) {
            let Some((order, claims)) = self.ask(|common| common.claim(self.session, some)) else {
                return HashSet::new();
            };
            let now_ns = self.clock.now_ns();
            let mut state = self.state();
            state.told_ns = Some(now_ns);
            state.note(claims, self.session, now_ns, self.claimed_max);
            for prefix in some {
                if state.is_theirs(*prefix, order) {
                    theirs.insert(*prefix);
                } else if state.own.len() < OWN_MAX {
                    state.own.insert(*prefix);
                }
            }
        }
        theirs
    }

    /// Hears what others have claimed, and says now and then that this session is at work: what is
    /// to be done about once a second.
    pub fn catch_up(&self) {
        let now_ns = self.clock.now_ns();
        let (may_ask, is_known) = {
            let mut state = self.state();
            state.began_ns.get_or_insert(now_ns);
            (state.may_ask(now_ns), is_within(state.told_ns, now_ns, TELL_NS))
        };
        if !may_ask {
            return;
        }
        let claims = match is_known {
            true => self.ask(|common| common.claims()),
            false => self.ask(|common| common.claim(self.session, &[])).map(|(_, claims)| claims),
        };
        let Some(claims) = claims else { return };
        let mut state = self.state();
        if !is_known {
            state.told_ns = Some(now_ns);
        }
        state.note(claims, self.session, now_ns, self.claimed_max);
    }

    fn ask<T>(&self, ask: impl FnOnce(&dyn CommonIndex) -> Result<T>) -> Option<T> {
        let began_ns = self.clock.now_ns();
        let answer = ask(&*self.common).ok();
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        state.answer_ns = (state.answer_ns * 7 + now_ns.saturating_sub(began_ns).max(0)) / 8;
        let pause_ns = match &answer {
            None => Some(PAUSE_NS),
            Some(_) => (state.answer_ns > SLOW_NS).then_some(SLOW_PAUSE_NS),
        };
        if let Some(pause_ns) = pause_ns {
            (state.paused_until_ns, state.answer_ns) = (Some(now_ns.saturating_add(pause_ns)), 0);
        }
        answer
    }

    /// Others wait for chunks that are in containers which are not full yet, and do so for some
    /// time: these should be closed. Asked again at once it says no.
    pub fn is_wanted(&self) -> bool {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        if !is_within(Some(state.wanted_since_ns), now_ns, COMPANY_NS) {
            // What is not durable by now was found elsewhere, and is never stored.
            for prefix in std::mem::take(&mut state.wanted) {
                state.own.remove(&prefix);
            }
        }
        let is_due = !is_within(Some(state.wanted_ns), now_ns, WANTED_NS);
        let is_wanted = !state.wanted.is_empty() && is_due;
        if is_wanted {
            state.wanted_ns = now_ns;
        }
        is_wanted
    }

    /// Own chunks are durable, and everybody was told.
    pub fn note_durable(&self, prefixes: &[u64]) {
        let mut state = self.state();
        for prefix in prefixes {
            state.own.remove(prefix);
            state.wanted.remove(prefix);
        }
    }

    /// Waits no more for whoever claimed these: they were waited for in vain.
    pub fn pass_over(&self, prefixes: impl Iterator<Item = u64>) {
        let mut state = self.state();
        for prefix in prefixes {
            if let Some(by) = state.theirs.get(&prefix).map(|order| order.by()) {
                state.passed_over.insert(by);
            }
        }
    }
}
