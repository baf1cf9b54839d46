//! Answers of a server by the letter: which request is made how often, and what it is taken for.

use crate::{location, with_credentials};
use onefold_remote::{BucketStore, Patience};
use onefold_store::{Blobs, Decisions, Key};
use onefold_types::ErrorKind;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What the server does with the next request.
#[derive(Clone)]
pub enum Reply {
    /// Reads it, and hangs up.
    HangUp,
    /// Answers: a status line, headers, a body.
    Answer(&'static str, &'static [&'static str], &'static [u8]),
    /// The same, but announces more than it sends.
    Truncated(&'static [u8], usize),
    /// Waits so long, and goes on with the next reply for the same request.
    After(Duration),
    /// Announces more than it sends, and sends no more for so long.
    Stalled(&'static [u8], usize, Duration),
}

/// A server that answers as it was told, request by request, and notes what was asked.
pub struct Server {
    pub port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

impl Server {
    pub fn new(replies: &[Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            asked: Arc::default(),
            replies: Arc::new(Mutex::new(replies.iter().cloned().collect())),
        };
        let (asked, replies) = (Arc::clone(&server.asked), Arc::clone(&server.replies));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (asked, replies) = (Arc::clone(&asked), Arc::clone(&replies));
                thread::spawn(move || serve(&stream.unwrap(), &asked, &replies));
            }
        });
        server
    }

    pub fn store(&self) -> BucketStore {
        self.store_with(Patience::USUAL)
    }

    pub fn store_with(&self, patience: Patience) -> BucketStore {
        let around = with_credentials("key", "secret");
        BucketStore::connect(&location(self.port, "p"), &around, patience).unwrap()
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, asked: &Mutex<Vec<String>>, replies: &Mutex<VecDeque<Reply>>) {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let request: Vec<&str> = line.split(' ').take(2).collect();
        let mut noted = request.join(" ");
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            let header = header.trim().to_ascii_lowercase();
            match header.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("if-none-match", value)) => noted = format!("{noted} unless {value}"),
                Some(("x-goog-if-generation-match", value)) => {
                    noted = format!("{noted} if-generation {value}");
                }
                Some(("range", value)) => noted = format!("{noted} {value}"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        asked.lock().unwrap().push(noted);
        let next = || replies.lock().unwrap().pop_front().unwrap_or(BUSY);
        let mut reply = next();
        while let Reply::After(time) = reply {
            thread::sleep(time);
            reply = next();
        }
        match reply {
            Reply::HangUp => return,
            Reply::After(_) => unreachable!(),
            Reply::Answer(status, headers, body) => {
                let headers =
                    headers.iter().fold(String::new(), |all, one| format!("{all}{one}\r\n"));
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n");
                writer.write_all(head.as_bytes()).unwrap();
                writer.write_all(body).unwrap();
            }
            Reply::Truncated(body, length) | Reply::Stalled(body, length, _) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{DATE}\r\n{TAG}\r\n\r\n"
                );
                writer.write_all(head.as_bytes()).unwrap();
                writer.write_all(body).unwrap();
                if let Reply::Stalled(_, _, time) = reply {
                    thread::sleep(time);
                }
                return;
            }
        }
    }
}

const DATE: &str = "Last-Modified: Wed, 25 Nov 2026 00:00:00 GMT";
const TAG: &str = "ETag: \"1\"";
const MADE: Reply = Reply::Answer("200 OK", &[TAG], b"");
const TAKEN: Reply = Reply::Answer("412 Precondition Failed", &[], b"");
pub const BUSY: Reply =
    Reply::Answer("503 Slow Down", &[], b"<Error><Code>SlowDown</Code></Error>");

pub fn holding(bytes: &'static [u8]) -> Reply {
    Reply::Answer("200 OK", &[TAG, DATE], bytes)
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

const PUT: &str = "PUT /bucket/p/a unless *";
const GET: &str = "GET /bucket/p/a";

#[test]
fn a_put_is_one_request_that_must_not_replace_anything() {
    let server = Server::new(&[MADE]);
    server.store().put(&key("a"), b"one").unwrap();
    assert_eq!(server.asked(), [PUT]);
}

#[test]
fn a_name_that_is_taken_is_not_looked_at_unless_an_answer_was_lost() {
    let server = Server::new(&[TAKEN]);
    let error = server.store().put(&key("a"), b"one").unwrap_err();
    assert_eq!((error.kind(), server.asked()), (ErrorKind::AlreadyExists, vec![PUT.to_owned()]));
    for (lost, found, is_own) in [
        (BUSY, holding(b"one"), true),
        (BUSY, holding(b"two"), false),
        (Reply::HangUp, holding(b"one"), true),
        (Reply::HangUp, holding(b"two"), false),
    ] {
        let server = Server::new(&[lost, TAKEN, found]);
        let put = server.store().put(&key("a"), b"one");
        assert_eq!(put.is_ok(), is_own, "{put:?}");
        assert_eq!(server.asked(), [PUT, PUT, GET]);
    }
}

#[test]
fn a_decision_whose_answer_was_lost_is_what_is_there() {
    for winner in [&b"one"[..], b"two"] {
        let found = if winner == b"one" { holding(b"one") } else { holding(b"two") };
        let server = Server::new(&[Reply::HangUp, TAKEN, found.clone(), found]);
        assert_eq!(server.store().decide(&key("a"), b"one").unwrap(), winner);
    }
}

#[test]
fn a_busy_server_is_asked_again_and_a_refusal_is_not() {
    let server = Server::new(&[BUSY, BUSY, holding(b"one")]);
    assert_eq!(server.store().get(&key("a")).unwrap(), b"one");
    assert_eq!(server.asked(), [GET, GET, GET]);
    let text = b"<Error><Code>SignatureDoesNotMatch</Code></Error>";
    for refusal in ["400 Bad Request", "403 Forbidden"] {
        let server = Server::new(&[Reply::Answer(refusal, &[], text)]);
        let error = server.store().put(&key("a"), b"one").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
        assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
        assert_eq!(server.asked(), [PUT]);
    }
    let no_bucket = b"<Error><Code>NoSuchBucket</Code></Error>";
    let server = Server::new(&[Reply::Answer("404 Not Found", &[], no_bucket)]);
    let error = server.store().get(&key("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoStore, "{error}");
}

#[test]
fn what_arrives_cut_off_is_never_taken_for_the_object() {
    let cut = Reply::Truncated(b"on", 3);
    let server = Server::new(&[cut.clone(), cut.clone(), cut.clone(), cut.clone(), cut]);
    let error = server.store().get(&key("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let mut buffer = [0; 3];
    let short =
        Reply::Answer("206 Partial Content", &[TAG, DATE, "Content-Range: bytes 5-6/7"], b"on");
    let server = Server::new(&[short]);
    let error = server.store().get_range(&key("a"), 5, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(server.asked(), [format!("{GET} bytes=5-7")]);
}

#[test]
fn a_tail_is_one_request() {
    let tail = Reply::Answer(
        "206 Partial Content",
        &[TAG, DATE, "Content-Range: bytes 97-99/100"],
        b"end",
    );
    let server = Server::new(&[tail]);
    assert_eq!(server.store().get_tail(&key("a"), 3).unwrap(), (100, b"end".to_vec()));
    assert_eq!(server.asked(), [format!("{GET} bytes=-3")]);
}

/// Of nothing there is no part: some servers say so, some give the whole. Where a server gives the
/// whole of something, that is said, and not taken for a part.
#[test]
fn a_whole_object_is_not_taken_for_a_part() {
    let whole = |bytes| Reply::Answer("200 OK", &[TAG, DATE], bytes);
    let refused = Reply::Answer("416 Range Not Satisfiable", &[], b"");
    for first in [whole(b""), refused] {
        let server = Server::new(&[first, whole(b"")]);
        assert_eq!(server.store().get_tail(&key("a"), 3).unwrap(), (0, Vec::new()));
        assert_eq!(server.asked(), [format!("{GET} bytes=-3"), GET.replacen("GET", "HEAD", 1)]);
    }
    let server = Server::new(&[whole(b"whole"), whole(b"whole"), whole(b"whole")]);
    let error = server.store().get_tail(&key("a"), 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let error = server.store().get_range(&key("a"), 1, &mut [0; 3]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("ranges"), "{error}");
}

#[test]
fn a_store_that_was_opened_for_reading_asks_for_nothing_else() {
    let server = Server::new(&[]);
    let store = server.store().reading_only();
    let kinds = [
        store.put(&key("a"), b"one").unwrap_err().kind(),
        store.decide(&key("a"), b"one").unwrap_err().kind(),
        store.delete(&key("a")).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::ReadOnly; 3]);
    assert!(server.asked().is_empty());
}

const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(2);

/// A patience that is soon at its end.
pub fn short(change: impl FnOnce(&mut Patience)) -> Patience {
    let mut patience = Patience { trouble: Duration::from_secs(60), ..Patience::USUAL };
    change(&mut patience);
    patience
}

/// ANSWER_MAX and RETRY_MAX: an answer that comes in time is taken, a later one asked for again.
#[test]
fn an_answer_that_is_late_is_asked_for_again_until_patience_is_at_its_end() {
    let patience = short(|patience| (patience.answer, patience.retry) = (SHORT, LONG));
    let server = Server::new(&[Reply::After(SHORT / 8), holding(b"one")]);
    assert_eq!(server.store_with(patience).get(&key("a")).unwrap(), b"one");
    assert_eq!(server.asked().len(), 1);
    let server = Server::new(&[Reply::After(SHORT * 2), holding(b"late"), holding(b"one")]);
    assert!(server.store_with(patience).get(&key("a")).is_ok());
    assert!(server.asked().len() > 1, "{:?}", server.asked());
    // It never has anything else to say than that it is busy.
    let server = Server::new(&[]);
    let began = Instant::now();
    let error = server.store_with(patience).get(&key("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() < LONG * 5, "{:?}", began.elapsed());
    assert!(server.asked().len() > 1);
}

/// OPERATION_MAX: a body that stops arriving.
#[test]
fn what_stops_arriving_is_not_waited_for_for_ever() {
    let patience = short(|patience| patience.operation = SHORT);
    let server = Server::new(&[Reply::Stalled(b"on", 3, LONG)]);
    let began = Instant::now();
    let error = server.store_with(patience).get(&key("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("not done within"), "{error}");
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

/// TROUBLE_MIN and TROUBLE_AGE_MAX.
#[test]
fn a_server_that_did_not_answer_is_left_alone_for_a_moment() {
    let patience = short(|patience| {
        (patience.retry, patience.operation) = (LONG, SHORT * 4);
        (patience.trouble, patience.trouble_age) = (SHORT, SHORT * 3);
    });
    let server = Server::new(&[Reply::After(SHORT * 6), holding(b"late")]);
    let store = server.store_with(patience);
    store.list_names("", &mut |_| Ok(())).unwrap_err();
    let asked = server.asked().len();
    let error = store.get(&key("a")).unwrap_err();
    assert!(error.to_string().contains("a moment ago"), "{error}");
    assert_eq!(server.asked().len(), asked, "nothing is asked for");
    thread::sleep(SHORT * 3);
    // Now it has as much time as ever.
    let slow = [Reply::After(SHORT * 2), holding(b"one"), Reply::After(SHORT * 2), holding(b"two")];
    *server.replies.lock().unwrap() = slow.into();
    assert_eq!(store.get(&key("a")).unwrap(), b"one");
    assert_eq!(store.get(&key("a")).unwrap(), b"two", "and what succeeds ends the trouble");
}

/// CONNECT_MAX: a server whose queue of connections is full lets nobody in.
#[test]
fn a_connection_that_is_not_made_is_given_up() {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&address, SHORT).ok();
    let waiting: Vec<TcpStream> = std::iter::from_fn(connect).collect();
    let patience = short(|patience| (patience.connect, patience.retry) = (SHORT, LONG));
    let around = with_credentials("key", "secret");
    let store = BucketStore::connect(&location(address.port(), "p"), &around, patience).unwrap();
    let began = Instant::now();
    let error = store.get(&key("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!((SHORT..LONG * 4).contains(&began.elapsed()), "{:?}", began.elapsed());
    drop(waiting);
}
