//! How long a server waits for what: each time limit crossed, over real connections.

use onefold_server::served::Rules;
use onefold_server::{Clients, Identity, Options, Patience, Right, Running};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(400);
/// Longer than the longest of them, in which nothing may end by itself.
const LONG: Duration = Duration::from_secs(60);
const PATIENT: Patience = Patience {
    head: LONG,
    idle: LONG,
    answer: LONG,
    drain: LONG,
    pause: LONG,
    durable: LONG,
    end: LONG,
};

struct Server {
    running: Running,
    token: String,
    place: tempfile::TempDir,
}

impl Server {
    fn start(patience: Patience, rights: Vec<Right>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let (store, clients) = (place.path().join("store"), place.path().join("clients.toml"));
        fs::create_dir(&store).unwrap();
        let token = Clients::change(&clients, |all| all.add("a", rights, None, None)).unwrap();
        let options = Options {
            directories: vec![store],
            clients,
            address: "127.0.0.1:0".parse().unwrap(),
            identity: Identity::Plain,
            rules: Rules::default(),
            bodies_bytes: 0,
            patience,
        };
        Self { running: Running::start(&options, Arc::new(|_| {})).unwrap(), token, place }
    }

    fn send(&self, request: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.running.address).unwrap();
        stream.set_read_timeout(Some(LONG / 2)).unwrap();
        let token = &self.token;
        let head = format!(
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n{headers}\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        stream
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(self.place.path().join("store/tmp"))
            .map_or(true, |mut left| left.next().is_none())
            && !self.place.path().join("store/a").exists()
    }
}

/// What a server says until it closes, and how long that took.
fn answer(mut stream: TcpStream) -> (String, Duration) {
    let (began, mut text) = (Instant::now(), Vec::new());
    let _ = stream.read_to_end(&mut text);
    (String::from_utf8_lossy(&text).into_owned(), began.elapsed())
}

fn is_short(took: Duration) {
    assert!(took >= SHORT / 2 && took < LONG / 4, "{took:?}");
}

#[test]
fn a_head_that_does_not_come_ends_a_connection() {
    let server = Server::start(Patience { head: SHORT, ..PATIENT }, vec![Right::Read]);
    for begun in ["", "GET /store/a HTTP/1.1\r\nHost:"] {
        let mut stream = TcpStream::connect(server.running.address).unwrap();
        stream.set_read_timeout(Some(LONG / 2)).unwrap();
        stream.write_all(begun.as_bytes()).unwrap();
        is_short(answer(stream).1);
    }
}

#[test]
fn a_body_that_stands_still_is_given_up_and_leaves_nothing() {
    let server =
        Server::start(Patience { idle: SHORT, ..PATIENT }, vec![Right::Append, Right::Collect]);
    // One that is held whole, and one that passes through.
    for length in [2, (8 << 20) + 1] {
        let headers = format!("If-None-Match: *\r\nContent-Length: {length}\r\n");
        let (said, took) = answer(server.send("PUT /store/a", &headers, b"x"));
        assert!(said.contains("stands still"), "{said}");
        is_short(took);
    }
    thread::sleep(SHORT);
    assert!(server.is_empty());
}

#[test]
fn who_is_refused_and_sends_no_more_hears_why() {
    let server = Server::start(Patience { drain: SHORT, ..PATIENT }, vec![Right::Read]);
    let headers = "If-None-Match: *\r\nContent-Length: 9\r\n";
    let (said, took) = answer(server.send("PUT /store/a", headers, b"x"));
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
    is_short(took);
    // Who sends all hears it at once.
    let (said, took) = answer(server.send("PUT /store/a", headers, b"123456789"));
    assert!(said.starts_with("HTTP/1.1 403") && took < SHORT / 2, "{said} {took:?}");
}

#[test]
fn an_upload_that_pauses_too_long_is_over() {
    let server =
        Server::start(Patience { pause: SHORT, ..PATIENT }, vec![Right::Append, Right::Collect]);
    let begin = || {
        let (said, _) = answer(server.send("POST /store/a?uploads", "Content-Length: 0\r\n", b""));
        said.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned()
    };
    let part = |id: &str, number: u32| {
        let request = format!("PUT /store/a?partNumber={number}&uploadId={id}");
        answer(server.send(&request, "Content-Length: 1\r\n", b"x")).0
    };
    let id = begin();
    assert!(part(&id, 1).starts_with("HTTP/1.1 200"));
    thread::sleep(2 * SHORT);
    let late = part(&id, 2);
    assert!(!late.starts_with("HTTP/1.1 200"), "{late}");
    thread::sleep(SHORT);
    assert!(server.is_empty());
}

#[test]
fn the_end_does_not_wait_longer_than_it_may() {
    let server =
        Server::start(Patience { end: SHORT, ..PATIENT }, vec![Right::Append, Right::Collect]);
    let headers = "If-None-Match: *\r\nContent-Length: 2\r\n";
    let stalled = server.send("PUT /store/a", headers, b"x");
    thread::sleep(SHORT / 2);
    let began = Instant::now();
    let Server { running, place, .. } = server;
    running.end().unwrap();
    is_short(began.elapsed());
    assert!(!answer(stalled).0.starts_with("HTTP/1.1 200"));
    assert!(!place.path().join("store/a").exists());
}

/// Requests without a token and with one, whose answers are not read: of those that have none the
/// first answer ends it all.
#[test]
fn r131_answers_that_nobody_takes_end_a_connection() {
    let server = Server::start(Patience { answer: SHORT, ..PATIENT }, vec![Right::Read]);
    fs::write(server.place.path().join("store/a"), vec![1; 1 << 20]).unwrap();
    let token = &server.token;
    let request =
        format!("GET /store/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    let mut stream = TcpStream::connect(server.running.address).unwrap();
    stream.set_write_timeout(Some(LONG / 2)).unwrap();
    let began = Instant::now();
    // More answers than any buffer on the way holds; the server ends it.
    let error = loop {
        if let Err(error) = stream.write_all(request.repeat(500).as_bytes()) {
            break error;
        }
        assert!(began.elapsed() < LONG / 2, "it goes on");
    };
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    // Who takes what comes is answered, however long that takes in all.
    let mut patient = server.send("GET /store/a", "", b"");
    let mut piece = vec![0; 1 << 18];
    let mut taken = 0;
    loop {
        thread::sleep(SHORT / 4);
        match patient.read(&mut piece).unwrap() {
            0 => break,
            more => taken += more,
        }
    }
    assert!(taken > 1 << 20, "{taken}");
}

#[test]
fn r131_who_has_no_token_holds_no_connection() {
    let server = Server::start(PATIENT, vec![Right::Read]);
    let mut stream = TcpStream::connect(server.running.address).unwrap();
    stream.set_read_timeout(Some(LONG / 2)).unwrap();
    stream.write_all(b"GET /store/a HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (said, took) = answer(stream);
    assert!(said.starts_with("HTTP/1.1 401") && took < LONG / 4, "{said} {took:?}");
}
