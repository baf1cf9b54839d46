//! Real databases: what they decide is decided once, and what they know is a hint.

use onefold_crypto::Suite;
use onefold_database::cassandra::CLOCKS_DIFFER_MAX;
use onefold_database::database::Database;
use onefold_database::engine::{
    CLAIMS_AGE_MAX, CLAIMS_MAX, Cursor, Generation, NEWS_AGE_MAX, NEWS_MAX,
};
use onefold_database::filling::together::{FILLING_AGE_MAX, FILLINGS_MAX, fill_with_others};
use onefold_database::server::{CassandraServer, PASSWORD, PostgresServer};
use onefold_database::{DatabaseLocation, Settings};
use onefold_engine::common_index::{Claim, CommonIndex};
use onefold_engine::index::claims::CLAIM_PREFIXES_MAX;
use onefold_engine::{Environment, InitOptions, Job, MemoryPlan, Repository};
use onefold_store::arbiter::INLINE_MAX_BYTES;
use onefold_store::{
    Arbiter, Arbitrated, Blobs as _, Decisions, Key, MemoryStore, Store, conformance,
};
use onefold_types::environment::Clock;
use onefold_types::{ContainerId, ErrorKind, Result, SessionId, StoreId};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn connect_as(url: &str, password: &str) -> Database {
    let location = DatabaseLocation::parse(url).unwrap();
    let variable = |name: &str| (name == "PGPASSWORD").then(|| password.to_owned());
    let settings = Settings::find(&location, &variable, None).unwrap();
    Database::new(&location, settings).unwrap()
}

fn connect(url: &str) -> Database {
    connect_as(url, PASSWORD)
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn store_id(number: u8) -> StoreId {
    StoreId([number; 16])
}

/// What every database does, whichever it is.
fn does_what_is_asked(url: &str) {
    unknown_stores_are_refused(url);
    with_it_a_store_is_one(url);
    one_of_eight_machines_wins(url);
    the_index_is_kept_by_generation(url);
    what_is_new_is_told_to_all(url);
    what_is_claimed_is_told_to_all(url);
}

/// By which number stores are known here.
const INCARNATION: [u8; 16] = [3; 16];

fn unknown_stores_are_refused(url: &str) {
    let (database, id) = (connect(url), store_id(1));
    let refused = |incarnation| {
        let unknown = database.open(id, &incarnation).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Invalid);
        assert!(unknown.to_string().contains("database register"), "{unknown}");
    };
    refused(INCARNATION);
    database.register(id, &INCARNATION).unwrap();
    refused([4; 16]);
    database.open(id, &INCARNATION).unwrap();
    assert_eq!(database.decide(id, &key("outcomes/a"), b"a").unwrap(), b"a");
    // Another number takes the place of this one, and its index stays.
    connect(url).register(id, &[4; 16]).unwrap();
    refused(INCARNATION);
    // Whoever had opened it before decides nothing any more.
    let late = database.decide(id, &key("outcomes/b"), b"b").unwrap_err();
    assert!(late.to_string().contains("database register"), "{late}");
    connect(url).open(id, &[4; 16]).unwrap();
}

fn with_it_a_store_is_one(url: &str) {
    let number = Mutex::new(10_u8);
    conformance::run(&|| {
        let mut number = number.lock().unwrap();
        *number += 1;
        let memory = MemoryStore::new();
        let store = Arbitrated::new(memory.clone(), Arc::new(connect(url)) as _);
        store.open_as(store_id(*number), true).unwrap();
        // The suite expects to find nothing.
        memory.delete(&key("arbiters/1")).unwrap();
        Box::new(store)
    })
    .unwrap();
}

/// Each machine has a connection of its own, and half of them break off in between.
fn one_of_eight_machines_wins(url: &str) {
    let id = store_id(2);
    connect(url).register(id, &INCARNATION).unwrap();
    let machines: Vec<Database> = (0..8).map(|_| connect(url)).collect();
    machines.iter().for_each(|machine| machine.open(id, &INCARNATION).unwrap());
    for (round, length) in [1, 1000, INLINE_MAX_BYTES + 1].into_iter().cycle().take(30).enumerate()
    {
        let name = key(&format!("outcomes/{round}"));
        let (barrier, told) = (Barrier::new(machines.len()), Mutex::new(BTreeSet::new()));
        thread::scope(|scope| {
            for (number, machine) in machines.iter().enumerate() {
                let (barrier, told, name) = (&barrier, &told, &name);
                scope.spawn(move || {
                    let own = vec![number as u8; length];
                    barrier.wait();
                    told.lock().unwrap().insert(machine.decide(id, name, &own).unwrap());
                });
            }
        });
        let told = told.into_inner().unwrap();
        assert_eq!(told.len(), 1, "round {round}: {} won", told.len());
        assert_eq!(
            connect_once(url, id).decide(id, &name, b"late").unwrap(),
            *told.first().unwrap()
        );
    }
    // The same name in another store is another name.
    connect(url).register(store_id(3), &INCARNATION).unwrap();
    let other = connect_once(url, store_id(3));
    assert_eq!(other.decide(store_id(3), &key("outcomes/0"), b"own").unwrap(), b"own");
}

fn connect_once(url: &str, id: StoreId) -> Database {
    let database = connect(url);
    database.open(id, &INCARNATION).unwrap();
    database
}

fn the_index_is_kept_by_generation(url: &str) {
    let id = store_id(4);
    connect(url).register(id, &INCARNATION).unwrap();
    let database = connect_once(url, id);
    let engine = database.engine();
    let first = engine.known(id).unwrap().unwrap().generation;
    assert_eq!(first, Generation::FIRST);
    // More than fit into one request, in one bucket and in many; some prefixes twice.
    let container = |number: u64| ContainerId((u128::from(number) + 1).to_le_bytes());
    let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut entries: Vec<_> = (0..6000).map(|number| (number, container(number % 7))).collect();
    entries.extend((0..6000).map(|number| (spread(number), container(number % 5))));
    entries.extend((0..50).map(|number| (spread(number), container(6))));
    entries.push((u64::MAX, container(0)));
    entries.sort_unstable();
    entries.dedup();
    engine.insert(id, first, &entries).unwrap();
    engine.insert(id, first, &entries[..100]).unwrap();
    let prefixes: Vec<u64> = {
        let known: BTreeSet<u64> = entries.iter().map(|(prefix, _)| *prefix).collect();
        known.into_iter().chain((1 << 40)..(1 << 40) + 500).collect()
    };
    let mut found = engine.locate(id, first, &prefixes).unwrap();
    found.sort_unstable();
    assert!(found == entries, "{} entries of {}", found.len(), entries.len());
    let mut named = vec![vec![container(99)]];
    database.locate(&[spread(1), 1 << 41, spread(1)], &mut named).unwrap();
    named[1].sort_unstable();
    assert_eq!(named[0], [container(99)]);
    assert_eq!(named[1], [container(1), container(6)]);
    assert_eq!((named[2].len(), named[3].len()), (0, 2));

    let next = first.next_for(1000, 0);
    engine.insert(id, next, &[(5, container(1))]).unwrap();
    assert!(engine.switch(id, first, next).unwrap());
    // Whoever filled beside it and comes later has not won.
    assert!(!engine.switch(id, first, first.next_for(1000, 1)).unwrap());
    engine.drop_generation(id, first).unwrap();
    assert!(engine.locate(id, first, &prefixes).unwrap().is_empty());
    assert_eq!(engine.known(id).unwrap().unwrap().generation, next);
    // Whoever had it open learns of it with the news.
    database.news().unwrap();
    let mut named = Vec::new();
    database.locate(&[5, spread(1)], &mut named).unwrap();
    assert_eq!(named, [vec![container(1)], vec![]]);
}

fn what_is_new_is_told_to_all(url: &str) {
    let id = store_id(5);
    connect(url).register(id, &INCARNATION).unwrap();
    let (teller, hearer) = (connect_once(url, id), connect_once(url, id));
    let container = |number: u32| ContainerId((u128::from(number) + 1).to_le_bytes());
    assert!(hearer.news().unwrap().is_empty());
    teller.add(container(1), &[7, u64::MAX, 7]).unwrap();
    let told = hearer.news().unwrap();
    assert_eq!(told, [(container(1), vec![7, u64::MAX, 7])]);
    let mut named = Vec::new();
    hearer.locate(&[7, 8], &mut named).unwrap();
    assert_eq!(named, [vec![container(1)], vec![]]);
    // Whoever comes later hears of it as well, and of no more than so many.
    assert_eq!(connect_once(url, id).news().unwrap().len(), 1);
    for number in 2..=NEWS_MAX as u32 + 1 {
        teller.engine().announce(id, container(number), &[1]).unwrap();
    }
    let (news, cursor) = teller.engine().news(id, Cursor(None)).unwrap();
    let distinct: BTreeSet<_> = news.iter().map(|(container, _)| *container).collect();
    assert_eq!((news.len(), distinct.len()), (NEWS_MAX, NEWS_MAX));
    assert!(cursor.0.is_some());
    assert!(hearer.trouble().is_none());
}

fn session(number: u32) -> SessionId {
    SessionId(u128::from(number).to_le_bytes())
}

fn what_is_claimed_is_told_to_all(url: &str) {
    let id = store_id(12);
    connect(url).register(id, &INCARNATION).unwrap();
    let (one, other) = (connect_once(url, id), connect_once(url, id));
    let by_others = |claims: Vec<Claim>, own: u32| -> Vec<Claim> {
        claims.into_iter().filter(|(order, _)| order.by() != session(own)).collect()
    };
    let (first, claims) = one.claim(session(1), &[7, u64::MAX]).unwrap();
    assert_eq!(by_others(claims, 1), []);
    // Clocks of machines tell milliseconds.
    thread::sleep(Duration::from_millis(2));
    let (second, claims) = other.claim(session(2), &[7]).unwrap();
    assert_eq!(by_others(claims, 2), [(first, vec![7, u64::MAX])]);
    assert!(first < second && second.by() == session(2));
    assert_eq!(by_others(one.claims().unwrap(), 1), [(second, vec![7])]);
    // Another store's are none of these, and one that says nothing is told as well.
    let elsewhere = connect_once(url, store_id(5));
    assert_eq!(by_others(elsewhere.claims().unwrap(), 1), []);
    let (third, _) = one.claim(session(1), &[]).unwrap();
    assert!(by_others(other.claims().unwrap(), 2).contains(&(third, vec![])));
    // The longest there may be, and no more than so many at once.
    let longest: Vec<u64> = (0..CLAIM_PREFIXES_MAX as u64).collect();
    let (order, _) = one.claim(session(1), &longest).unwrap();
    assert!(by_others(other.claims().unwrap(), 2).contains(&(order, longest)));
    for number in 0..=CLAIMS_MAX as u32 {
        one.engine().claim(id, session(100 + number), &[1]).unwrap();
    }
    let (claims, cursor) = one.engine().claims(id, Cursor(None)).unwrap();
    let distinct: BTreeSet<_> = claims.iter().map(|(order, _)| order.by()).collect();
    assert_eq!((claims.len(), distinct.len()), (CLAIMS_MAX, CLAIMS_MAX));
    assert!(!distinct.contains(&session(100)) && cursor.0.is_some());
    assert!(one.trouble().is_none() && other.trouble().is_none());
}

/// Eight sessions claim the same at the same time: how many take it for theirs, each time.
fn first_of_those_that_claim_at_once(url: &str, id: StoreId) -> Vec<usize> {
    connect(url).register(id, &INCARNATION).unwrap();
    let machines: Vec<Database> = (0..8).map(|_| connect_once(url, id)).collect();
    let known: Vec<Mutex<Vec<Claim>>> = machines.iter().map(|_| Mutex::default()).collect();
    let mut firsts = Vec::new();
    for round in 0..50_u64 {
        let (barrier, first) = (Barrier::new(machines.len()), Mutex::new(0));
        thread::scope(|scope| {
            for ((number, machine), known) in (0..).zip(&machines).zip(&known) {
                let (barrier, first) = (&barrier, &first);
                scope.spawn(move || {
                    barrier.wait();
                    let (own, claims) = machine.claim(session(number), &[round]).unwrap();
                    let mut known = known.lock().unwrap();
                    known.extend(claims);
                    let is_before = |(order, prefixes): &Claim| {
                        *order < own && order.by() != own.by() && prefixes.contains(&round)
                    };
                    *first.lock().unwrap() += usize::from(!known.iter().any(is_before));
                });
            }
        });
        firsts.push(first.into_inner().unwrap());
    }
    firsts
}

/// A clock that stands still.
struct Standing(i64);

impl Clock for Standing {
    fn now_ns(&self) -> i64 {
        self.0 * 1_000_000
    }
}

const NOW_MS: i64 = 1_800_000_000_000;

/// Fills the index of an empty store together with whoever began it so many milliseconds ago, as
/// often as that: the generation that it has then.
fn filled_after(url: &str, begun_ms_ago: &[i64]) -> Result<i32> {
    let clock = Arc::new(Standing(NOW_MS));
    let environment = Environment { clock, ..Environment::system() };
    let options = InitOptions { suite: Suite::None, ..InitOptions::standard().unwrap() };
    let memory = MemoryPlan::new(96 << 20).unwrap();
    let store = Arc::new(MemoryStore::new());
    let repository = Repository::create(store, &options, None, environment, memory).unwrap();
    let id = repository.store_id();
    connect(url).register(id, &INCARNATION).unwrap();
    let database = connect_once(url, id);
    for (number, ago_ms) in (1..).zip(begun_ms_ago) {
        let begun = [&7_i32.to_le_bytes()[..], &[9], &(NOW_MS - ago_ms).to_le_bytes()].concat();
        database.engine().decide(id, &format!("fillings/1/{number}"), &begun).unwrap();
    }
    let (job, _) = Job::unattended();
    let filled = fill_with_others(&repository, &database, Duration::from_millis(10), &job)?;
    let known = database.engine().known(id).unwrap().unwrap();
    assert_eq!(known.generation, filled.generation);
    Ok(filled.generation.number)
}

/// FILLING_AGE_MAX and FILLINGS_MAX: a filling that is old is begun anew, and not for ever.
fn old_fillings_are_begun_anew(url: &str) {
    let age_max = FILLING_AGE_MAX.as_millis() as i64;
    assert_eq!(filled_after(url, &[age_max]).unwrap(), 7);
    assert_ne!(filled_after(url, &[age_max + 1]).unwrap(), 7);
    // A clock that is ahead is no newer.
    assert_ne!(filled_after(url, &[-age_max - 1]).unwrap(), 7);
    let old = vec![age_max + 1; FILLINGS_MAX as usize];
    assert_ne!(filled_after(url, &old[1..]).unwrap(), 7);
    let refused = filled_after(url, &old).unwrap_err();
    assert!(refused.to_string().contains("too often"), "{refused}");
}

#[test]
fn postgresql_does_what_is_asked() {
    let Some(server) = PostgresServer::start() else { return };
    does_what_is_asked(&server.url());
    let firsts = first_of_those_that_claim_at_once(&server.url(), store_id(13));
    assert!(firsts.iter().all(|first| *first == 1), "{firsts:?}");
    old_fillings_are_begun_anew(&server.url());
    let wrong =
        connect_as(&server.url(), "another one").open(store_id(1), &INCARNATION).unwrap_err();
    assert!(wrong.to_string().contains("password authentication failed"), "{wrong}");
    assert!(!wrong.to_string().contains("another one"), "{wrong}");
    assert_eq!(wrong.kind(), ErrorKind::NotPermitted);
    let nowhere = connect(&format!("{}_not", server.url())).open(store_id(1), &INCARNATION);
    assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::Invalid);
}

/// The server's name for a client that knows no `PGPASSWORD`.
fn with_password(server: &PostgresServer) -> String {
    server.url().replace("onefold@", &format!("onefold:{}@", PASSWORD.replace(' ', "%20")))
}

/// News are told for a day, and deleted by whoever asks first.
#[test]
fn news_of_postgresql_are_as_old_as_they_may_be_and_no_older() {
    let Some(server) = PostgresServer::start() else { return };
    let id = store_id(9);
    connect(&server.url()).register(id, &INCARNATION).unwrap();
    let database = connect_once(&server.url(), id);
    for number in 1..=2 {
        database.engine().announce(id, ContainerId([number; 16]), &[1]).unwrap();
    }
    let most = NEWS_AGE_MAX.as_secs();
    let url = with_password(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (client, task) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(task);
        // One is a second too old, the other one a minute younger than that.
        for (number, age) in [(1, most + 1), (2, most - 60)] {
            let set = format!(
                "UPDATE onefold_news SET added = now() - make_interval(secs => {age}) \
                 WHERE container = decode('{}', 'hex')",
                format!("{number:02}").repeat(16)
            );
            assert_eq!(client.execute(&set, &[]).await.unwrap(), 1);
        }
    });
    let told = connect_once(&server.url(), id).news().unwrap();
    assert_eq!(told, [(ContainerId([2; 16]), vec![1])]);
}

/// CLAIMS_AGE_MAX: older claims are told to nobody, and deleted by whoever asks first.
#[test]
fn claims_of_postgresql_are_told_for_a_minute() {
    let Some(server) = PostgresServer::start() else { return };
    let id = store_id(9);
    connect(&server.url()).register(id, &INCARNATION).unwrap();
    let database = connect_once(&server.url(), id);
    for number in 1..=2 {
        database.engine().claim(id, session(number), &[1]).unwrap();
    }
    let most = CLAIMS_AGE_MAX.as_secs();
    let url = with_password(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left = runtime.block_on(async {
        let (client, task) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(task);
        for (number, age) in [(1, most + 1), (2, most - 20)] {
            let set = format!(
                "UPDATE onefold_claims SET added = now() - make_interval(secs => {age}) \
                 WHERE get_byte(session, 0) = {number}"
            );
            assert_eq!(client.execute(&set, &[]).await.unwrap(), 1);
        }
        let told = tokio::task::spawn_blocking({
            let url = server.url();
            move || connect_once(&url, id).claims().unwrap()
        });
        let told: Vec<_> = told.await.unwrap().iter().map(|(order, _)| order.by()).collect();
        assert_eq!(told, [session(2)]);
        client.query("SELECT 1 FROM onefold_claims", &[]).await.unwrap().len()
    });
    assert_eq!(left, 1);
}

/// Killed with whatever is under way, again and again: nobody is ever told two things.
#[test]
fn what_postgresql_answered_is_there_after_it_was_killed() {
    let Some(mut server) = PostgresServer::start() else { return };
    let (url, id) = (server.url(), store_id(6));
    connect(&url).register(id, &INCARNATION).unwrap();
    let told: Mutex<Vec<(usize, Vec<u8>)>> = Mutex::default();
    let until = Instant::now() + Duration::from_secs(8);
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let (told, url) = (&told, &url);
            scope.spawn(move || {
                let database = connect_once(url, id);
                for name in 0.. {
                    if Instant::now() > until {
                        return;
                    }
                    let value = database.decide(id, &key(&format!("a/{name}")), &[writer; 9]);
                    told.lock().unwrap().push((name, value.unwrap()));
                }
            });
        }
        for _ in 0..2 {
            thread::sleep(Duration::from_secs(2));
            server.kill_and_start();
        }
    });
    let told = told.into_inner().unwrap();
    let database = connect_once(&url, id);
    let names: BTreeSet<usize> = told.iter().map(|(name, _)| *name).collect();
    assert!(names.len() > 100, "{} were decided", names.len());
    for (name, value) in &told {
        let decided = database.decide(id, &key(&format!("a/{name}")), b"late").unwrap();
        assert_eq!(decided, *value, "name {name}");
    }
}

/// What is not there is told within the time that is said, and is no reason to fail where it is
/// not needed.
#[test]
fn a_database_that_is_gone_is_told() {
    let Some(mut server) = PostgresServer::start() else { return };
    let id = store_id(7);
    connect(&server.url()).register(id, &INCARNATION).unwrap();
    let database = connect_once(&server.url(), id);
    server.kill();
    let error = database.add(ContainerId([1; 16]), &[1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(database.trouble().is_some_and(|trouble| trouble.contains("postgres://")));
    let error = connect(&server.url()).open(id, &INCARNATION).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

#[test]
fn cassandra_does_what_is_asked() {
    let Some(server) = CassandraServer::start(1) else { return };
    let missing = connect(&server.url()).open(store_id(1), &INCARNATION).unwrap_err();
    assert!(missing.to_string().contains("CREATE KEYSPACE"), "{missing}");
    server.make_keyspace(1);
    does_what_is_asked(&server.url());
    // Of those that were first by different clocks both may think so.
    let firsts = first_of_those_that_claim_at_once(&server.url(), store_id(13));
    assert!(firsts.iter().all(|first| (1..=4).contains(first)), "{firsts:?}");
    machines_whose_clocks_differ_hear_of_each_other(&server);
}

/// What was added by a clock that is behind by as much as clocks may differ is told still, and a
/// clock that is ahead has nothing of others passed over.
fn machines_whose_clocks_differ_hear_of_each_other(server: &CassandraServer) {
    let (url, id) = (server.url(), store_id(9));
    connect(&url).register(id, &INCARNATION).unwrap();
    let database = connect_once(&url, id);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    let behind = i64::try_from(CLOCKS_DIFFER_MAX.as_millis()).unwrap();
    let add = |number: u8, added: i64| server.add_news(id.0, added, [number; 16]);
    let told = |since: i64| -> BTreeSet<ContainerId> {
        let (news, _) = database.engine().news(id, Cursor(Some(since))).unwrap();
        news.into_iter().map(|(container, _)| container).collect()
    };
    add(1, now - behind + 1);
    add(2, now - behind);
    assert_eq!(told(now), BTreeSet::from([ContainerId([1; 16])]));
    // Ahead, within the minute that is asked for.
    add(3, now + behind - 1000);
    let (news, cursor) = database.engine().news(id, Cursor(Some(now))).unwrap();
    assert_eq!(news.len(), 2);
    let asked = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(cursor.0.unwrap() <= i64::try_from(asked.as_millis()).unwrap());
}

/// A decision that was put into the store is read from there, whatever became of the database.
#[test]
fn a_store_is_read_without_its_database() {
    let Some(mut server) = PostgresServer::start() else { return };
    let (memory, id) = (MemoryStore::new(), store_id(8));
    let store = Arbitrated::new(memory.clone(), Arc::new(connect(&server.url())) as _);
    store.open_as(id, true).unwrap();
    store.decide(&key("outcomes/a"), b"first").unwrap();
    server.kill();
    assert_eq!(memory.decided(&key("outcomes/a")).unwrap().as_deref(), Some(&b"first"[..]));
    assert_eq!(store.decide(&key("outcomes/a"), b"second").unwrap(), b"first");
}
