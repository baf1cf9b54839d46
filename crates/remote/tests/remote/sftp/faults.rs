//! Answers that are lost, late, short or untrue.

use super::scripted::{Act, Dialer, Server};
use super::{key, patience};
use onefold_remote::SftpStore;
use onefold_remote::sftp::connection::REQUESTS_MAX;
use onefold_store::{Blobs, Decisions, OBJECT_MAX_BYTES, conformance};
use onefold_types::ErrorKind;
use russh_sftp::protocol::{Packet, StatusCode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub fn over(server: &Arc<Server>) -> SftpStore {
    let dial = Box::new(Dialer(Arc::clone(server)));
    SftpStore::over(dial, "sftp://memory/s", "/s", patience()).unwrap()
}

pub fn is_link(packet: &Packet) -> bool {
    matches!(packet, Packet::Extended(extended) if extended.request.starts_with("hardlink"))
}

/// Does this with the first so many packets of a kind.
pub fn first(
    many: usize,
    act: Act,
    is_one: impl Fn(&Packet) -> bool + Send + 'static,
) -> impl FnMut(&Packet) -> Act + Send + 'static {
    let mut left = many;
    move |packet| match left > 0 && is_one(packet) {
        true => {
            left -= 1;
            act
        }
        false => Act::Answer,
    }
}

#[test]
fn conforms() {
    conformance::run(&|| {
        let store = over(&Arc::new(Server::new(|_| Act::Answer)));
        store.claim().unwrap();
        store.prove().unwrap();
        Box::new(store)
    })
    .unwrap();
}

#[test]
fn a_server_without_hard_links_can_be_read_and_is_told_that_it_holds_no_store() {
    let server = Arc::new(Server::new(|_| Act::Answer));
    over(&server).put(&key("a"), b"x").unwrap();
    let nodes = Mutex::new(server.nodes.lock().unwrap().clone());
    let server = Arc::new(Server { links: false, nodes, ..Server::new(|_| Act::Answer) });
    let store = over(&server);
    assert_eq!(store.get(&key("a")).unwrap(), b"x");
    for error in [
        store.put(&key("b"), b"x").unwrap_err(),
        store.decide(&key("c"), b"x").unwrap_err(),
        store.prove().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("offers no hard links"), "{error}");
    }
    for name in ["b", "c"] {
        assert_eq!(store.get(&key(name)).unwrap_err().kind(), ErrorKind::NotFound);
    }
    // Nothing is left behind either.
    assert!(!server.nodes.lock().unwrap().keys().any(|path| path.contains("/tmp/sftp-")));
}

/// A link that was made and not told of is found to be one's own; one that was not is made again.
#[test]
fn a_name_whose_answer_was_lost_is_looked_at() {
    for act in [Act::LoseAnswer, Act::HangUp] {
        let script = first(2, act, is_link);
        let server = Arc::new(Server::new(script));
        let store = over(&server);
        store.put(&key("a"), b"one").unwrap();
        assert_eq!(store.get(&key("a")).unwrap(), b"one", "{act:?}");
        let error = store.put(&key("a"), b"one").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{act:?}");
    }
}

#[test]
fn who_lost_against_another_and_the_answer_too_is_told() {
    let server = Arc::new(Server::new(|_| Act::Answer));
    let (ours, theirs) = (over(&server), over(&server));
    theirs.put(&key("outcomes/a"), b"theirs").unwrap();
    *server.script.lock().unwrap() = Box::new(first(1, Act::LoseAnswer, is_link));
    let error = ours.put(&key("outcomes/a"), b"ours!!").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(ours.decide(&key("outcomes/a"), b"ours").unwrap(), b"theirs");
}

/// Whichever request of a put loses its answer, or its connection, or is not answered.
#[test]
fn a_put_survives_the_loss_of_any_answer() {
    for act in [Act::LoseAnswer, Act::HangUp, Act::Silence, Act::Endless] {
        for at in 0..30 {
            let mut number = 0;
            let script = move |_: &Packet| {
                number += 1;
                if number == at + 1 { act } else { Act::Answer }
            };
            let server = Arc::new(Server::new(script));
            let store = over(&server);
            let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 251) as u8).collect();
            store.put(&key("containers/aa/1"), &bytes).unwrap();
            assert!(store.get(&key("containers/aa/1")).unwrap() == bytes, "{act:?} {at}");
            assert_eq!(store.decide(&key("epochs/1"), b"v").unwrap(), b"v");
            assert_eq!(store.decided(&key("epochs/1")).unwrap().unwrap(), b"v");
            if act != Act::LoseAnswer && act != Act::HangUp && at > 4 {
                break;
            }
        }
    }
}

#[test]
fn pieces_are_written_again_from_where_they_were_durable() {
    // Three parts and a bit; the connection breaks in each.
    let mut number = 0;
    let script = move |packet: &Packet| match packet {
        Packet::Write(_) => {
            number += 1;
            if number % 300 == 299 { Act::HangUp } else { Act::Answer }
        }
        _ => Act::Answer,
    };
    let server = Arc::new(Server::new(script));
    let store = over(&server);
    let whole: Vec<u8> = (0..26_000_001_u32).map(|at| (at / 7 + at / 1000) as u8).collect();
    let mut left = whole.as_slice();
    let mut next = |piece: &mut Vec<u8>| {
        let (now, later) = left.split_at(left.len().min(700_001));
        piece.extend_from_slice(now);
        left = later;
        Ok(!later.is_empty())
    };
    store.put_pieces(&key("index/run"), &mut next).unwrap();
    assert!(store.get(&key("index/run")).unwrap() == whole);
}

#[test]
fn short_reads_are_read_on() {
    let reads = |packet: &Packet| matches!(packet, Packet::Read(_));
    let server = Arc::new(Server::new(first(50, Act::Short, reads)));
    let store = over(&server);
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 251) as u8).collect();
    store.put(&key("a"), &bytes).unwrap();
    assert!(store.get(&key("a")).unwrap() == bytes);
}

#[test]
fn a_server_that_replaces_or_lies_is_refused() {
    let server = Server { replaces: true, ..Server::new(|_| Act::Answer) };
    let error = over(&Arc::new(server)).claim().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("cannot hold a store"), "{error}");
    // One that began to do so later.
    let server = Arc::new(Server::new(|_| Act::Answer));
    over(&server).claim().unwrap();
    let before = server.asked.lock().unwrap().len();
    over(&server).prove().unwrap();
    // The greeting, and one request.
    assert_eq!(server.asked.lock().unwrap().len() - before, 2);
    *server.script.lock().unwrap() =
        Box::new(|packet| if is_link(packet) { Act::Lie } else { Act::Answer });
    assert_eq!(over(&server).prove().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_refusal_without_a_cause_is_no_lost_race() {
    let refuse = |packet: &Packet| match is_link(packet) {
        true => Act::Refuse(StatusCode::Failure),
        false => Act::Answer,
    };
    let server = Arc::new(Server::new(refuse));
    let store = over(&server);
    let error = store.put(&key("a"), b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(store.decide(&key("a"), b"x").unwrap_err().kind(), ErrorKind::Io);
    assert!(store.decided(&key("a")).unwrap().is_none());
}

/// REQUESTS_MAX, and so the memory that is in flight.
#[test]
fn so_many_requests_are_under_way_and_no_more() {
    let silent = Arc::new(AtomicBool::new(false));
    let (waiting, is_silent) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&silent));
    let counted = Arc::clone(&waiting);
    let script = move |packet: &Packet| match packet {
        Packet::Read(_) if is_silent.load(Ordering::SeqCst) => {
            counted.fetch_add(1, Ordering::SeqCst);
            Act::Silence
        }
        _ => Act::Answer,
    };
    let server = Arc::new(Server::new(script));
    let store = over(&server);
    store.put(&key("a"), &vec![1; 4 << 20]).unwrap();
    silent.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| store.get(&key("a")));
        let began = Instant::now();
        while waiting.load(Ordering::SeqCst) < REQUESTS_MAX {
            assert!(began.elapsed() < Duration::from_secs(5));
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(200));
        assert_eq!(waiting.load(Ordering::SeqCst), REQUESTS_MAX);
        silent.store(false, Ordering::SeqCst);
    });
    let error = store.put(&key("b"), &vec![0; OBJECT_MAX_BYTES + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_server_that_never_answers_is_given_up_and_then_at_once() {
    let server = Arc::new(Server::new(|packet| match packet {
        Packet::Init(_) => Act::HangUp,
        _ => Act::Answer,
    }));
    let store = over(&server);
    let began = Instant::now();
    assert_eq!(store.get(&key("a")).unwrap_err().kind(), ErrorKind::Unavailable);
    let first = began.elapsed();
    assert!(first < Duration::from_secs(6), "{first:?}");
    let tries = server.count("Init");
    assert!(tries > 3, "{tries}");
    assert_eq!(store.get(&key("a")).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(server.count("Init"), tries);
}

#[test]
fn after_a_directory_was_not_made_durable_nothing_is_written() {
    let server = Arc::new(Server::new(|_| Act::Answer));
    let store = over(&server);
    store.put(&key("a/b"), b"x").unwrap();
    let mut number = 0;
    *server.script.lock().unwrap() = Box::new(move |packet| match packet {
        Packet::Extended(extended) if extended.request.starts_with("fsync") => {
            number += 1;
            // The file is; then a directory is not.
            if number == 2 { Act::Refuse(StatusCode::Failure) } else { Act::Answer }
        }
        _ => Act::Answer,
    });
    assert_eq!(store.put(&key("a/c"), b"x").unwrap_err().kind(), ErrorKind::Io);
    for error in [
        store.put(&key("a/d"), b"x").unwrap_err(),
        store.decide(&key("a/e"), b"x").unwrap_err(),
        store.delete(&key("a/b")).unwrap_err(),
    ] {
        assert!(error.to_string().contains("earlier sync"), "{error}");
    }
    assert_eq!(store.get(&key("a/b")).unwrap(), b"x");
}
