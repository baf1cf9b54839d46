//! What our own server takes of what anybody may send: requests byte by byte.

use crate::serving::{Server, client};
use crate::support::Sandbox;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub struct Asking {
    pub sandbox: Sandbox,
    pub server: Server,
    pub token: String,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Asking {
    pub fn new() -> Self {
        let sandbox = Sandbox::empty();
        fs::create_dir(sandbox.path("store")).unwrap();
        let token = client(&sandbox, "all", "read,append,collect,metrics", &[]);
        Self::at(sandbox, token, |sandbox| {
            Server::start(sandbox, &["--listen", "127.0.0.1:0", "--plain", "store"])
        })
    }

    /// One of a server that is started in another way.
    pub fn at(sandbox: Sandbox, token: String, start: impl FnOnce(&Sandbox) -> Server) -> Self {
        let server = start(&sandbox);
        Self { sandbox, server, token }
    }

    pub fn open(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    pub fn ask(&self, request: &str, headers: &str, body: &[u8]) -> Answer {
        let headers = format!("{headers}Content-Length: {}\r\n", body.len());
        self.ask_as(&self.token, request, &headers, body)
    }

    pub fn ask_as(&self, token: &str, request: &str, headers: &str, body: &[u8]) -> Answer {
        self.send(token, request, headers, body, false)
    }

    /// Sends what is given, and then nothing more if that is less than was said.
    fn send(
        &self,
        token: &str,
        request: &str,
        headers: &str,
        body: &[u8],
        is_short: bool,
    ) -> Answer {
        let mut stream = self.open();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n{headers}\r\n"
        );
        // Who is refused before it has sent all may find that nobody listens.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        if is_short {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Answer { status: status.unwrap_or(0), head: head.to_owned(), body: body.to_owned() }
    }

    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut below = vec![self.sandbox.path("store")];
        while let Some(directory) = below.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => below.push(path),
                    false => files.push(path.file_name().unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        files
    }
}

pub const CREATE: &str = "If-None-Match: *\r\n";

#[test]
fn nothing_is_put_but_what_is_new_and_whole() {
    let asking = Asking::new();
    assert_eq!(asking.ask("PUT /store/a/b", "", b"bytes").status, 400);
    assert_eq!(asking.ask("PUT /store/a/b", "If-Match: \"0\"\r\n", b"bytes").status, 400);
    let token = &asking.token;
    let chunked = format!("{CREATE}Transfer-Encoding: chunked\r\n");
    let answer = asking.ask_as(token, "PUT /store/a/b", &chunked, b"5\r\nbytes\r\n0\r\n\r\n");
    assert_eq!(answer.status, 411);
    // Less than was said arrives: of what is held whole, and of what passes through.
    for length in [6, (8 << 20) + 1] {
        let headers = format!("{CREATE}Content-Length: {length}\r\n");
        let answer = asking.send(token, "PUT /store/a/b", &headers, b"bytes", true);
        assert!(matches!(answer.status, 0 | 400), "{}", answer.head);
        assert_eq!(asking.ask("GET /store/tmp/about", "", b"").status, 200);
    }
    let headers = format!("{CREATE}Content-Length: {}\r\n", (512_u64 << 20) + 1);
    let answer = asking.ask_as(token, "PUT /store/a/b", &headers, &vec![0; 9 << 20]);
    assert!(answer.status == 400 && answer.body.contains("EntityTooLarge"), "{}", answer.head);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(asking.files(), [""; 0]);
    assert_eq!(asking.ask("PUT /store/a/b", CREATE, b"bytes").status, 200);
    assert_eq!(asking.ask("PUT /store/a/b", CREATE, b"other").status, 412);
    assert_eq!(asking.ask("GET /store/a/b", "", b"").body, "bytes");
    assert_eq!(asking.files(), ["b"]);
}

#[test]
fn names_that_no_key_has_are_refused_and_lead_nowhere() {
    let asking = Asking::new();
    asking.sandbox.write("secret", b"secret");
    asking.sandbox.write("store/tmp/secret", b"secret");
    for name in [
        "../secret",
        "..%2fsecret",
        "%2e%2e/secret",
        "a/../../secret",
        "/secret",
        "tmp/secret",
        "reserve",
        "A",
        "a/b/c/d/e",
        "a%00",
        "config%20",
    ] {
        for method in ["GET", "HEAD", "DELETE", "PUT"] {
            let answer = asking.ask(&format!("{method} /store/{name}"), CREATE, b"");
            assert!(matches!(answer.status, 400 | 404), "{method} {name}: {}", answer.head);
            assert!(!answer.body.ends_with("secret"), "{method} {name}: {}", answer.body);
        }
    }
    for request in ["GET /", "GET /store", "PUT /store", "DELETE /store", "POST /store?delete"] {
        assert!(matches!(asking.ask(request, "", b"").status, 400 | 404), "{request}");
    }
    for request in ["PATCH /store/a", "POST /store/a", "OPTIONS /store/a"] {
        assert_eq!(asking.ask(request, "", b"").status, 405, "{request}");
    }
    assert!(asking.sandbox.path("secret").exists());
    assert!(asking.sandbox.path("store/tmp/secret").exists());
}

#[test]
fn whoever_has_no_token_learns_nothing() {
    let asking = Asking::new();
    asking.ask("PUT /store/a", CREATE, b"bytes");
    for token in ["", "onefold-", "all", &asking.token[..asking.token.len() - 1], "\u{fe}"] {
        for request in [
            "GET /store/a",
            "GET /nowhere/a",
            "GET /metrics",
            "GET /store/tmp/about",
            "DELETE /store/a",
        ] {
            let answer = asking.ask_as(token, request, "", b"");
            assert_eq!(answer.status, 401, "{token} {request}");
            assert!(answer.body.contains("no client has this token"), "{}", answer.body);
        }
    }
    // Neither is one taken from elsewhere.
    let query = format!("GET /store/a?token={}", asking.token);
    assert_eq!(asking.ask_as("", &query, "", b"").status, 401);
    assert_eq!(asking.files(), ["a"]);
}

#[test]
fn parts_follow_each_other_and_belong_to_who_began() {
    let asking = Asking::new();
    let begun = asking.ask("POST /store/run?uploads", "", b"").body;
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    let part = |number: u32, body: &[u8]| {
        asking.ask(&format!("PUT /store/run?partNumber={number}&uploadId={id}"), "", body).status
    };
    assert_eq!(part(2, b"two"), 400);
    assert_eq!(part(1, b"one"), 200);
    // The answer was lost.
    assert_eq!(part(1, b"one"), 200);
    assert_eq!(part(1, b"eno"), 400);
    assert_eq!(part(2, b"two"), 200);
    let other = client(&asking.sandbox, "other", "append", &[]);
    std::thread::sleep(Duration::from_secs(2));
    let complete = format!("POST /store/run?uploadId={id}");
    let headers = "Content-Length: 0\r\n";
    assert_eq!(asking.ask_as(&other, &complete, headers, b"").status, 404);
    assert_eq!(asking.ask("POST /store/nur?uploadId=x", "", b"").status, 404);
    assert!(!asking.sandbox.path("store/run").exists());
    assert_eq!(asking.ask(&complete, "", b"").status, 200);
    assert_eq!(asking.ask(&complete, "", b"").status, 200);
    assert_eq!(fs::read(asking.sandbox.path("store/run")).unwrap(), b"onetwo");
    // One that is given up leaves nothing.
    let begun = asking.ask("POST /store/gone?uploads", "", b"").body;
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    let query = format!("/store/gone?partNumber=1&uploadId={id}");
    assert_eq!(asking.ask(&format!("PUT {query}"), "", b"one").status, 200);
    assert_eq!(asking.ask(&format!("DELETE /store/gone?uploadId={id}"), "", b"").status, 204);
    assert_eq!(asking.ask(&format!("POST /store/gone?uploadId={id}"), "", b"").status, 404);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(asking.files(), ["run"]);
}

#[test]
fn what_happened_is_counted() {
    let asking = Asking::new();
    asking.ask("PUT /store/a", CREATE, b"bytes");
    asking.ask("GET /store/a", "Range: bytes=1-2\r\n", b"");
    asking.ask("GET /store/b", "", b"");
    asking.ask_as("", "GET /store/a", "", b"");
    let text = asking.ask("GET /metrics", "", b"").body;
    for line in [
        "onefold_requests_total{client=\"all\",kind=\"Put\",status=\"200\"} 1",
        "onefold_requests_total{client=\"all\",kind=\"Get\",status=\"206\"} 1",
        "onefold_requests_total{client=\"all\",kind=\"Get\",status=\"404\"} 1",
        "onefold_requests_total{client=\"\",kind=\"Other\",status=\"401\"} 1",
        "onefold_received_bytes_total{client=\"all\"} 5",
        "onefold_sent_bytes_total{client=\"all\"} 2",
        "onefold_used_bytes{client=\"all\"} 4096",
        "onefold_free_bytes{store=\"store\"} ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let reader = client(&asking.sandbox, "reader", "read", &[]);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(asking.ask_as(&reader, "GET /metrics", "", b"").status, 403);
}

/// Neither an upload that is never ended nor a put that loses hides what is there.
#[test]
fn nobody_hides_an_object_by_putting_it_again() {
    let asking = Asking::new();
    let begun = asking.ask("POST /store/a/b?uploads", "", b"").body;
    assert_eq!(asking.ask("PUT /store/a/b", CREATE, b"bytes").status, 200);
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    asking.ask(&format!("PUT /store/a/b?partNumber=1&uploadId={id}"), "", b"other");
    let listed = asking.ask("GET /store?list-type=2&prefix=a%2F", "", b"").body;
    assert!(listed.contains("<Key>a/b</Key>"), "{listed}");
    assert_eq!(asking.ask("GET /store/a/b", "", b"").body, "bytes");
    assert_eq!(
        asking.ask("PUT /store/a/b", CREATE, b"bytes").body.matches("SameObject").count(),
        1
    );
    let other = asking.ask("PUT /store/a/b", CREATE, b"other");
    assert!(other.status == 412 && !other.body.contains("SameObject"), "{}", other.body);
    let complete = asking.ask(&format!("POST /store/a/b?uploadId={id}"), "", b"");
    assert_eq!(complete.status, 412, "{}", complete.body);
    assert_eq!(asking.ask("GET /store/a/b", "", b"").body, "bytes");
}

/// What a client put counts, also if it does not wait for the answer.
#[test]
fn a_quota_counts_what_nobody_waited_for() {
    let asking = Asking::new();
    let token = client(&asking.sandbox, "small", "append", &["--quota", "100KB"]);
    std::thread::sleep(Duration::from_secs(2));
    for number in 0..8 {
        let mut stream = asking.open();
        let head = format!(
            "PUT /store/object-{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
             {CREATE}Content-Length: 30000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&[1; 30_000]).unwrap();
        drop(stream);
        std::thread::sleep(Duration::from_millis(100));
    }
    let files = asking.files().len();
    assert!(files <= 3, "{files} objects of 30 kB in 100");
    let headers = format!("{CREATE}Content-Length: {}\r\n", 100_001 - 30_000 * files);
    let answer =
        asking.ask_as(&token, "PUT /store/more", &headers, &vec![1; 100_001 - 30_000 * files]);
    assert_eq!(answer.status, 403, "{}", answer.body);
}

/// Who reads nothing of what it asked for holds nobody up.
#[test]
fn slow_readers_hold_nobody_up() {
    let asking = Asking::new();
    asking.ask("PUT /store/a", CREATE, &vec![7; 4 << 20]);
    let waiting: Vec<_> = (0..120)
        .map(|_| {
            let mut stream = asking.open();
            let head = format!(
                "GET /store/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
                asking.token
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    assert_eq!(asking.ask("GET /store/a", "Range: bytes=0-0\r\n", b"").status, 206);
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(waiting);
}

#[test]
fn only_collectors_decide_what_is_condemned() {
    let asking = Asking::new();
    let token = client(&asking.sandbox, "appender", "read,append", &[]);
    std::thread::sleep(Duration::from_secs(2));
    let headers = format!("{CREATE}Content-Length: 1\r\n");
    for name in
        ["tombstones/a", "plans/a", "epochs/a", "sweeps/a", "finished/a", "copies/tombstones/a"]
    {
        let request = format!("PUT /store/{name}");
        assert_eq!(asking.ask_as(&token, &request, &headers, b"x").status, 403, "{name}");
        let request = format!("POST /store/{name}?uploads");
        assert_eq!(asking.ask_as(&token, &request, "Content-Length: 0\r\n", b"").status, 403);
    }
    // Of a session that it has announced itself it says more, and of no other one.
    let (own, other) = ("0".repeat(32), "1".repeat(32));
    let announced = asking.ask(&format!("PUT /store/sessions/{other}/announced"), CREATE, b"x");
    assert_eq!(announced.status, 200);
    for (name, status) in [
        (format!("outcomes/{own}"), 403),
        (format!("sessions/{own}/announced"), 200),
        (format!("sessions/{own}/ready-1"), 200),
        (format!("outcomes/{own}"), 200),
        (format!("copies/outcomes/{own}"), 200),
        (format!("sessions/{other}/ready-1"), 403),
        (format!("outcomes/{other}"), 403),
        (format!("checkpoints/{own}"), 403),
        (format!("finals/{own}.1"), 403),
        (format!("changes/{own}.1"), 200),
        ("generations/2".to_owned(), 403),
        ("generations".to_owned(), 403),
        ("containers/00".to_owned(), 403),
    ] {
        let request = format!("PUT /store/{name}");
        assert_eq!(asking.ask_as(&token, &request, &headers, b"x").status, status, "{name}");
    }
    assert_eq!(asking.ask("PUT /store/tombstones/a", CREATE, b"x").status, 200);
}
