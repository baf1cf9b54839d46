//! How long is waited for what, and what is asked for before it is wanted.

use super::faults::{first, is_link, over};
use super::scripted::{Act, Dialer, Server};
use super::{key, patience};
use onefold_engine::Interrupt;
use onefold_remote::stopping::STOP_MAX;
use onefold_remote::{Patience, SftpStore};
use onefold_store::{Asked, Blobs, Decisions, foresee};
use onefold_types::ErrorKind;
use russh_sftp::protocol::Packet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn with(server: &Arc<Server>, patience: Patience) -> SftpStore {
    let dial = Box::new(Dialer(Arc::clone(server)));
    SftpStore::over(dial, "sftp://memory/s", "/s", patience).unwrap()
}

/// Waits until nothing more is asked.
fn settled(server: &Server) -> usize {
    let mut before = usize::MAX;
    loop {
        let now = server.asked.lock().unwrap().len();
        if now == before {
            return now;
        }
        before = now;
        thread::sleep(Duration::from_millis(150));
    }
}

fn names(store: &SftpStore, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    let each = &mut |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    store.list_names(prefix, each).unwrap();
    names.sort();
    names
}

#[test]
fn what_was_foreseen_is_given_out_once() {
    let server = Arc::new(Server::new(|_| Act::Answer));
    let (store, other) = (over(&server), over(&server));
    other.put(&key("a/1"), b"one").unwrap();
    other.put(&key("a/b/1"), b"deep").unwrap();
    let next = vec![
        Asked::Names("a".into()),
        Asked::Object(key("a/1")),
        Asked::Tail(key("a/1"), 2),
        Asked::Object(key("a/9")),
    ];
    let foresight = foresee(&store, next.clone());
    settled(&server);
    other.put(&key("a/2"), b"two").unwrap();
    other.delete(&key("a/1")).unwrap();
    let before = settled(&server);
    assert_eq!(names(&store, "a"), ["a/1", "a/b/1"]);
    assert_eq!(store.get_tail(&key("a/1"), 2).unwrap(), (3, b"ne".to_vec()));
    assert_eq!(store.get(&key("a/1")).unwrap(), b"one");
    assert_eq!(store.decided(&key("a/9")).unwrap(), None);
    assert_eq!(settled(&server), before, "something was asked for again");
    assert_eq!(names(&store, "a"), ["a/2", "a/b/1"]);
    assert_eq!(store.get(&key("a/1")).unwrap_err().kind(), ErrorKind::NotFound);
    drop(foresight);
    // Not after it was written here, nor when its time is over.
    let foresight = foresee(&store, next.clone());
    settled(&server);
    store.put(&key("a/1"), b"new").unwrap();
    store.decide(&key("a/9"), b"won").unwrap();
    assert_eq!(names(&store, "a"), ["a/1", "a/2", "a/9", "a/b/1"]);
    assert_eq!(store.get(&key("a/1")).unwrap(), b"new");
    assert_eq!(store.decided(&key("a/9")).unwrap().unwrap(), b"won");
    drop(foresight);
    drop(foresee(&store, next));
    other.delete(&key("a/1")).unwrap();
    assert_eq!(store.get(&key("a/1")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn all_that_is_foreseen_is_asked_for_before_anything_is_answered() {
    let server = Arc::new(Server::new(|_| Act::Answer));
    let other = over(&server);
    (0..4).for_each(|at| other.put(&key(&format!("a/{at}")), b"x").unwrap());
    let store = over(&server);
    store.get(&key("a/0")).unwrap();
    let looks = |packet: &Packet| matches!(packet, Packet::Lstat(_) | Packet::Open(_));
    let silent = move |packet: &Packet| if looks(packet) { Act::Silence } else { Act::Answer };
    *server.script.lock().unwrap() = Box::new(silent);
    let before = server.count("Open(");
    let next = (0..4).map(|at| Asked::Object(key(&format!("a/{at}"))));
    let _foresight = foresee(&store, next.collect());
    thread::sleep(Duration::from_millis(300));
    assert_eq!(server.count("Open(") - before, 4);
}

/// STOP_MAX: reads end at once, and puts a little later.
#[test]
fn a_stop_ends_what_is_waited_for() {
    let server = Arc::new(Server::new(|_| Act::Answer));
    over(&server).put(&key("a"), b"x").unwrap();
    let silent = |packet: &Packet| match packet {
        Packet::Read(_) | Packet::Write(_) => Act::Silence,
        _ => Act::Answer,
    };
    *server.script.lock().unwrap() = Box::new(silent);
    let stop = Interrupt::default();
    let endless = Patience { answer: Duration::from_secs(60), ..patience() };
    let store = with(&server, endless).stopped_by(stop.clone());
    thread::scope(|scope| {
        let reading = scope.spawn(|| store.get(&key("a")).unwrap_err());
        let writing = scope.spawn(|| store.put(&key("b"), b"x").unwrap_err());
        thread::sleep(Duration::from_millis(300));
        stop.request();
        let began = Instant::now();
        assert_eq!(reading.join().unwrap().kind(), ErrorKind::Interrupted);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(writing.join().unwrap().kind(), ErrorKind::Interrupted);
        let took = began.elapsed();
        let second = Duration::from_secs(1);
        assert!((STOP_MAX - second..STOP_MAX + 2 * second).contains(&took), "{took:?}");
    });
}

/// What had gone well for longer than is tried again for has another try all the same.
#[test]
fn what_takes_long_and_breaks_is_done_again() {
    let slow = |packet: &Packet| {
        let is_it = is_link(packet);
        if is_it {
            thread::sleep(Duration::from_millis(900));
        }
        is_it
    };
    let server = Arc::new(Server::new(first(1, Act::HangUp, slow)));
    let hasty = Patience { retry: Duration::from_millis(600), ..Patience::USUAL };
    let store = with(&server, hasty);
    store.put(&key("a"), b"x").unwrap();
    assert_eq!(store.get(&key("a")).unwrap(), b"x");
}

/// A server that greets and then stands still is given up sooner each time, until it answers.
#[test]
fn a_server_that_greets_and_stands_still_is_not_waited_for_each_time() {
    let server = Arc::new(Server::new(|packet| match packet {
        Packet::Init(_) => Act::Answer,
        _ => Act::Silence,
    }));
    let times = Patience {
        answer: Duration::from_secs(3),
        retry: Duration::from_secs(1),
        trouble: Duration::from_millis(400),
        trouble_age: Duration::from_secs(60),
        ..patience()
    };
    let store = with(&server, times);
    let timed = || {
        let began = Instant::now();
        let error = store.get(&key("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        began.elapsed()
    };
    let (second, one) = (Duration::from_secs(1), timed());
    assert!(one >= 3 * second, "{one:?}");
    let at_once = timed();
    assert!(at_once < second / 5, "{at_once:?}");
    thread::sleep(Duration::from_millis(500));
    let sooner = timed();
    assert!(sooner < 2 * second, "{sooner:?}");
    *server.script.lock().unwrap() = Box::new(|_| Act::Answer);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(store.get(&key("a")).unwrap_err().kind(), ErrorKind::NotFound);
}
