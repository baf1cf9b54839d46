//! Sessions tell each other what they are about to store, so that of several that reach the same
//! new data at the same time one stores it; whatever goes wrong there costs room or time only.

use crate::steps::{backup_options, environment, job, memory_plan, open_in, random_bytes};
use onefold_crypto::Suite;
use onefold_engine::common_index::{Claim, ClaimOrder, CommonIndex, NewContainer};
use onefold_engine::index::Claims;
use onefold_engine::index::claims::{
    CLAIM_PREFIXES_MAX, COMPANY_NS, OWN_MAX, PASSED_OVER_MAX, PATIENCE,
};
use onefold_engine::ingest::{BackupReport, backup};
use onefold_engine::{Environment, Interrupt, MemoryPlan, Repository};
use onefold_store::{MemoryStore, Store};
use onefold_types::environment::ManualClock;
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SECOND_NS: i64 = 1_000_000_000;

/// What several machines have in common, in memory.
#[derive(Default)]
struct Board {
    entries: Mutex<BTreeMap<u64, Vec<ContainerId>>>,
    news: Mutex<Vec<NewContainer>>,
    claims: Mutex<Vec<Claim>>,
    /// Of claims, those that say nothing not counted.
    made: AtomicU64,
    is_gone: AtomicBool,
}

/// One machine's way to it.
struct Seat {
    board: Arc<Board>,
    read: Mutex<(usize, usize)>,
    answers_after: Duration,
}

impl Board {
    fn seat(self: &Arc<Self>) -> Arc<Seat> {
        self.slow_seat(Duration::ZERO)
    }

    fn slow_seat(self: &Arc<Self>, answers_after: Duration) -> Arc<Seat> {
        Arc::new(Seat { board: Arc::clone(self), read: Mutex::default(), answers_after })
    }

    /// As somebody else claims.
    fn push(&self, by: SessionId, prefixes: impl IntoIterator<Item = u64>) -> ClaimOrder {
        let mut claims = self.claims.lock().unwrap();
        let order = ClaimOrder(claims.len() as i64, by);
        claims.push((order, prefixes.into_iter().collect()));
        order
    }
}

impl CommonIndex for Seat {
    fn add(&self, container: ContainerId, prefixes: &[u64]) -> Result<()> {
        let mut entries = self.board.entries.lock().unwrap();
        prefixes.iter().for_each(|prefix| entries.entry(*prefix).or_default().push(container));
        self.board.news.lock().unwrap().push((container, prefixes.to_vec()));
        Ok(())
    }

    fn locate(&self, prefixes: &[u64], found: &mut Vec<Vec<ContainerId>>) -> Result<()> {
        let entries = self.board.entries.lock().unwrap();
        let of = |prefix: &u64| entries.get(prefix).cloned().unwrap_or_default();
        found.extend(prefixes.iter().map(of));
        Ok(())
    }

    fn news(&self) -> Result<Vec<NewContainer>> {
        let news = self.board.news.lock().unwrap();
        let mut read = self.read.lock().unwrap();
        Ok(news[std::mem::replace(&mut read.0, news.len())..].to_vec())
    }

    fn claim(&self, by: SessionId, prefixes: &[u64]) -> Result<(ClaimOrder, Vec<Claim>)> {
        self.board.made.fetch_add(u64::from(!prefixes.is_empty()), Ordering::Relaxed);
        let order = self.board.push(by, prefixes.iter().copied());
        Ok((order, self.claims()?))
    }

    fn claims(&self) -> Result<Vec<Claim>> {
        thread::sleep(self.answers_after);
        if self.board.is_gone.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "it is gone"));
        }
        let claims = self.board.claims.lock().unwrap();
        let mut read = self.read.lock().unwrap();
        Ok(claims[std::mem::replace(&mut read.1, claims.len())..].to_vec())
    }
}

fn session(number: u64) -> SessionId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    SessionId(id)
}

/// The claims of session 0, whose clock is told.
struct Told {
    claims: Claims,
    clock: Arc<ManualClock>,
    now_ns: i64,
    board: Arc<Board>,
}

fn told() -> Told {
    told_within(MemoryPlan::new(512 << 20).unwrap())
}

fn told_within(memory: MemoryPlan) -> Told {
    let board = Arc::new(Board::default());
    let now_ns = 1_800_000_000 * SECOND_NS;
    let clock = Arc::new(ManualClock::new(now_ns));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    drop(crate::steps::create_on(Arc::clone(&store), Suite::Aes256Gcm));
    let environment = Environment { clock: clock.clone(), ..environment(2) };
    let repository = open_in(store, environment, memory).unwrap();
    let claims = Claims::new(&repository, board.seat(), session(0), Interrupt::default());
    Told { claims, clock, now_ns, board }
}

impl Told {
    fn pass(&mut self, ns: i64) {
        self.now_ns += ns;
        self.clock.set(self.now_ns);
    }
}

#[test]
fn what_others_claimed_before_is_theirs_and_what_they_claim_later_is_not() {
    let told = told();
    told.board.push(session(1), [1, 2]);
    assert_eq!(told.claims.claim(&[2, 3]), HashSet::from([2]));
    told.board.push(session(2), [3, 4]);
    assert_eq!(told.claims.claim(&[3, 4, 1]), HashSet::from([3, 4, 1]));
    // One that is heard of, and came later by the order that all go by, waits for this session.
    let later = (ClaimOrder(1000, session(1)), vec![6, 7]);
    told.board.claims.lock().unwrap().push(later);
    assert_eq!(told.claims.claim(&[6]), HashSet::new());
    // Own claims are nobody else's, however often they come.
    assert_eq!(told.claims.claim(&[5]), HashSet::new());
    assert_eq!(told.claims.claim(&[5]), HashSet::new());
}

#[test]
fn a_session_that_is_alone_claims_nothing_after_its_first_seconds() {
    let mut told = told();
    assert!(told.claims.has_company());
    told.claims.catch_up();
    told.pass(2 * SECOND_NS - 1);
    assert!(told.claims.has_company());
    told.pass(1);
    assert!(!told.claims.has_company());
    // It says three times a minute that it is there.
    let said = |told: &Told| told.board.claims.lock().unwrap().len();
    assert_eq!(said(&told), 1);
    told.pass(18 * SECOND_NS - 1);
    told.claims.catch_up();
    assert_eq!(said(&told), 1);
    told.pass(1);
    told.claims.catch_up();
    assert_eq!(said(&told), 2);
    // Another one that is there is enough, for a minute.
    told.board.push(session(1), []);
    told.claims.catch_up();
    told.pass(COMPANY_NS - 1);
    assert!(told.claims.has_company());
    told.pass(1);
    assert!(!told.claims.has_company());
}

/// Each claim has at most so many prefixes.
#[test]
fn what_is_claimed_at_once_is_bounded() {
    let told = told();
    let many: Vec<u64> = (0..=CLAIM_PREFIXES_MAX as u64).collect();
    told.board.push(session(1), [0, CLAIM_PREFIXES_MAX as u64]);
    let theirs = HashSet::from([0, CLAIM_PREFIXES_MAX as u64]);
    assert_eq!(told.claims.claim(&many), theirs);
    let claims = told.board.claims.lock().unwrap();
    let lengths: Vec<usize> = claims.iter().map(|(_, prefixes)| prefixes.len()).collect();
    assert_eq!(lengths, [2, CLAIM_PREFIXES_MAX, 1]);
}

/// Others' claims take four megabytes, of which each takes 80 bytes: the oldest is forgotten.
#[test]
fn no_more_claims_are_kept_than_there_is_memory_for() {
    let told = told();
    let most = (4 << 20) / 80;
    told.board.push(session(1), 0..most);
    assert_eq!(told.claims.claim(&[0, most - 1]), HashSet::from([0, most - 1]));
    told.board.push(session(1), [most]);
    assert_eq!(told.claims.claim(&[0, 1, most]), HashSet::from([1, most]));
}

/// With the least memory nearly all of it is left to the caches.
#[test]
fn little_memory_is_not_taken_for_claims() {
    let least = MemoryPlan::new(48 << 20).unwrap();
    let told = told_within(least);
    // Eight megabytes are divided there; a sixteenth of them holds 6,553 claims.
    let most = (8 << 20) / 16 / 80;
    told.board.push(session(1), 0..=most);
    assert_eq!(told.claims.claim(&[0, 1, most]), HashSet::from([1, most]));
}

#[test]
fn own_chunks_that_others_want_are_let_go_after_half_a_second() {
    let mut told = told();
    told.claims.claim(&[1, 2]);
    assert!(!told.claims.is_wanted());
    told.board.push(session(1), [2, 3]);
    told.claims.catch_up();
    told.pass(SECOND_NS / 2 - 1);
    assert!(!told.claims.is_wanted());
    told.pass(1);
    assert!(told.claims.is_wanted());
    assert!(!told.claims.is_wanted(), "it was let go");
    told.pass(SECOND_NS);
    assert!(told.claims.is_wanted(), "it is not durable yet");
    told.claims.note_durable(&[2]);
    told.pass(SECOND_NS);
    assert!(!told.claims.is_wanted());
}

/// What was claimed and then found elsewhere is never stored, and nobody is told.
#[test]
fn containers_are_not_closed_for_ever_for_what_is_never_stored() {
    let mut told = told();
    told.claims.claim(&[1]);
    told.board.push(session(1), [1]);
    told.claims.catch_up();
    told.pass(COMPANY_NS - 1);
    assert!(told.claims.is_wanted());
    told.pass(SECOND_NS);
    assert!(!told.claims.is_wanted());
    told.board.push(session(1), [1]);
    told.claims.catch_up();
    told.pass(SECOND_NS);
    assert!(!told.claims.is_wanted());
}

/// Beyond OWN_MAX it is not remembered that somebody wants a chunk.
#[test]
fn own_chunks_on_their_way_are_remembered_up_to_a_bound() {
    let mut told = told();
    let many: Vec<u64> = (0..=OWN_MAX as u64).collect();
    told.claims.claim(&many);
    told.board.push(session(1), [OWN_MAX as u64]);
    told.claims.catch_up();
    told.pass(SECOND_NS);
    assert!(!told.claims.is_wanted());
    told.board.push(session(1), [OWN_MAX as u64 - 1]);
    told.claims.catch_up();
    told.pass(SECOND_NS);
    assert!(told.claims.is_wanted());
}

/// Of more than PASSED_OVER_MAX sessions that were waited for in vain nobody is waited for any
/// more.
#[test]
fn who_was_waited_for_in_vain_is_waited_for_no_more() {
    let told = told();
    for number in 1..=PASSED_OVER_MAX as u64 {
        told.board.push(session(number), [number, 1000 + number]);
        assert_eq!(told.claims.claim(&[number]), HashSet::from([number]));
        told.claims.pass_over([number].into_iter());
        assert_eq!(told.claims.claim(&[1000 + number]), HashSet::new());
    }
    assert!(told.claims.has_company());
    told.board.push(session(2000), [2000, 2001]);
    assert_eq!(told.claims.claim(&[2000]), HashSet::from([2000]));
    told.claims.pass_over([2000].into_iter());
    assert!(!told.claims.has_company());
}

#[test]
fn one_that_fails_is_not_asked_for_a_minute() {
    let mut told = told();
    told.board.push(session(1), [1]);
    told.board.is_gone.store(true, Ordering::Relaxed);
    assert_eq!(told.claims.claim(&[1]), HashSet::new());
    assert!(!told.claims.has_company());
    told.board.is_gone.store(false, Ordering::Relaxed);
    told.pass(60 * SECOND_NS - 1);
    told.claims.catch_up();
    assert!(!told.claims.has_company());
    told.pass(1);
    told.claims.catch_up();
    assert!(told.claims.has_company());
}

/// Machines with clocks of their own that run.
fn machines(board: &Arc<Board>, answers_after: &[Duration]) -> Vec<Arc<Repository>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    drop(crate::steps::create_on(Arc::clone(&store), Suite::Aes256Gcm));
    let machine = |(number, after): (u64, &Duration)| {
        let clock = Environment::system().clock;
        let environment = Environment { clock, ..environment(number) };
        let own = open_in(Arc::clone(&store), environment, memory_plan()).unwrap();
        Arc::new(own.with_common_index(board.slow_seat(*after)))
    };
    (2..).zip(answers_after).map(machine).collect()
}

/// Each machine saves its stream, all at the same time.
fn save_together(machines: &[Arc<Repository>], streams: &[Vec<u8>]) -> Vec<BackupReport> {
    let barrier = Barrier::new(machines.len());
    thread::scope(|scope| {
        let mut under_way = Vec::new();
        for (machine, bytes) in machines.iter().zip(streams) {
            let barrier = &barrier;
            under_way.push(scope.spawn(move || {
                let source = crate::ingest::stream("stream", bytes);
                barrier.wait();
                backup(machine, source, &backup_options(), &job()).unwrap()
            }));
        }
        under_way.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn bytes_new(reports: &[BackupReport]) -> u64 {
    reports.iter().map(|report| report.summary.bytes_new).sum()
}

#[test]
fn of_machines_that_save_the_same_at_the_same_time_one_stores_it() {
    let board = Arc::new(Board::default());
    let machines = machines(&board, &[Duration::ZERO; 4]);
    let bytes = random_bytes(5, 24_000_000);
    let reports = save_together(&machines, &vec![bytes; 4]);
    let stored = bytes_new(&reports);
    // Each has directories of its own; on a busy machine one may wait in vain for a chunk.
    assert!((24_000_000..30_000_000).contains(&stored), "{stored} bytes were stored");
}

/// Neither has a full container, and each wants what the other one has.
#[test]
fn machines_that_want_of_each_other_do_not_wait_in_a_circle() {
    let board = Arc::new(Board::default());
    let machines = machines(&board, &[Duration::ZERO; 2]);
    let (one, other) = (random_bytes(5, 3_000_000), random_bytes(6, 3_000_000));
    let streams = [[&one[..], &other[..]].concat(), [&other[..], &one[..]].concat()];
    let began = Instant::now();
    let reports = save_together(&machines, &streams);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let stored = bytes_new(&reports);
    // Where the two halves meet each cuts its own chunk.
    assert!(stored < 7_000_000, "{stored} bytes were stored");
}

#[test]
fn whoever_claims_and_does_not_store_is_waited_for_once() {
    let board = Arc::new(Board::default());
    let machines = machines(&board, &[Duration::ZERO; 2]);
    let bytes = random_bytes(5, 4_000_000);
    // What one saved was claimed, and its containers were never told of.
    let source = || crate::ingest::stream("stream", &bytes);
    let first = backup(&machines[0], source(), &backup_options(), &job()).unwrap();
    assert!(first.summary.bytes_new >= 4_000_000);
    board.news.lock().unwrap().clear();
    board.entries.lock().unwrap().clear();
    let claims = board.claims.lock().unwrap().clone();
    let elsewhere = self::machines(&board, &[Duration::ZERO; 2]);
    let began = Instant::now();
    let second = backup(&elsewhere[1], source(), &backup_options(), &job()).unwrap();
    let took = began.elapsed();
    assert!(second.summary.bytes_new >= 4_000_000);
    let claimed: usize = claims.iter().map(|(_, prefixes)| prefixes.len()).sum();
    assert!(claimed > 0, "nothing was claimed");
    assert!((PATIENCE..PATIENCE * 2).contains(&took), "{took:?}");
}

/// A database that takes long to answer is not asked about each batch.
#[test]
fn claims_that_take_long_are_not_made() {
    let board = Arc::new(Board::default());
    let machines = machines(&board, &[Duration::from_millis(600)]);
    let bytes = random_bytes(5, 40_000_000);
    let source = crate::ingest::stream("stream", &bytes);
    backup(&machines[0], source, &backup_options(), &job()).unwrap();
    let made = board.made.load(Ordering::Relaxed);
    assert!(made <= 1, "{made} claims were made");
}
