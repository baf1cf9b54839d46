//! What our own server takes at most, crossed by one through the real binary.

use crate::serving::{Server, client, prepared};
use crate::serving_requests::{Answer, Asking, CREATE};
use onefold_server::limits::{
    ADDRESS_CONNECTIONS_MAX, CLIENT_REQUESTS_MAX, CLIENT_UPLOADS_MAX, CLIENT_UPLOADS_OVER_MAX,
    CLIENT_WRITERS_MAX, CONNECTIONS_MAX, PART_MAX_BYTES, UPLOADS_MAX, WHOLE_MAX_BYTES, WRITERS_MAX,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a client needs to put objects that have no name of a store.
const ALL: &str = "read,append,collect";

/// Time for a server to take notice of something.
const PATIENCE: Duration = Duration::from_secs(20);

/// A put whose body does not come; it is under way, for the server waits for the body.
fn stalled(asking: &Asking, name: &str, length: u64) -> TcpStream {
    stalled_as(asking, &asking.token, name, length)
}

fn stalled_as(asking: &Asking, token: &str, name: &str, length: u64) -> TcpStream {
    let mut stream = asking.open();
    let head = format!(
        "PUT /store/{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n\
         Expect: 100-continue\r\n{CREATE}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut told = *b"HTTP/1.1 100 Continue\r\n\r\n";
    stream.read_exact(&mut told).unwrap();
    assert_eq!(told, *b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

/// Asks until the answer is this one.
fn until(status: u16, mut ask: impl FnMut() -> Answer) -> Answer {
    let began = Instant::now();
    loop {
        let answer = ask();
        if answer.status == status {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{status} does not come: {}", answer.head);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_client_has_no_more_requests_under_way_than_it_may() {
    let asking = Asking::new();
    let other = client(&asking.sandbox, "other", "read", &[]);
    let get = || asking.ask("GET /store/none", "", b"");
    let mut waiting: Vec<_> = (1..CLIENT_REQUESTS_MAX)
        .map(|number| stalled(&asking, &format!("object-{number}"), 1))
        .collect();
    // The last one that may be is this one, again and again.
    assert_eq!(get().status, 404);
    waiting.push(stalled(&asking, "object-0", 1));
    let refused = get();
    assert_eq!(refused.status, 503, "{}", refused.head);
    assert!(refused.body.contains("requests of 'all'"), "{}", refused.body);
    until(404, || asking.ask_as(&other, "GET /store/none", "", b""));
    // Those before it go on.
    for mut stream in waiting {
        stream.write_all(b"x").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
    until(404, get);
    assert_eq!(asking.files().len(), CLIENT_REQUESTS_MAX);
}

/// A client has its part of them, and leaves the rest to others.
#[test]
fn r132_no_more_long_bodies_pass_through_at_once_than_may() {
    let asking = Asking::new();
    let length = WHOLE_MAX_BYTES + 1;
    let long = vec![3; length as usize];
    let put = |token: &str, name: &str, bytes: &[u8]| {
        let headers = format!("{CREATE}Content-Length: {}\r\n", bytes.len());
        asking.ask_as(token, &format!("PUT /store/{name}"), &headers, bytes)
    };
    let tokens: Vec<_> = (0..WRITERS_MAX / CLIENT_WRITERS_MAX)
        .map(|number| client(&asking.sandbox, &format!("client-{number}"), ALL, &[]))
        .collect();
    let other = client(&asking.sandbox, "other", ALL, &[]);
    until(412, || {
        let headers = format!("{CREATE}Content-Length: 1\r\n");
        asking.ask_as(&other, "PUT /store/known", &headers, b"x")
    });
    let mut waiting = Vec::new();
    for (client, token) in tokens.iter().enumerate() {
        for number in 0..CLIENT_WRITERS_MAX {
            waiting.push(stalled_as(&asking, token, &format!("run-{client}-{number}"), length));
        }
        if client == 0 {
            let refused = put(token, "long", &long);
            assert_eq!(refused.status, 503, "{}", refused.head);
            assert!(refused.body.contains("of 'client-0'"), "{}", refused.body);
            assert_eq!(put(&other, "of-another", &long).status, 200);
        }
    }
    let refused = put(&other, "long", &long);
    assert_eq!(refused.status, 503, "{}", refused.head);
    assert!(refused.body.contains("long objects"), "{}", refused.body);
    // What is held whole is none of them, and the place of one that gives up is free.
    assert_eq!(put(&other, "short", &long[..WHOLE_MAX_BYTES as usize]).status, 200);
    let last = waiting.pop().unwrap();
    last.shutdown(Shutdown::Both).unwrap();
    until(200, || put(&other, "long", &long));
}

/// More than all room for bodies is asked for by one client, and nothing of it comes.
#[test]
fn r132_one_client_leaves_room_for_the_bodies_of_others() {
    let (sandbox, token) = prepared(&["store"]);
    let asking = Asking::at(sandbox, token, |sandbox| {
        let usual = ["--memory", "64MiB", "--listen", "127.0.0.1:0", "--plain", "store"];
        Server::start(sandbox, &usual)
    });
    let other = client(&asking.sandbox, "other", ALL, &[]);
    let first = stalled(&asking, "slow", WHOLE_MAX_BYTES);
    let waiting: Vec<_> = (1..CLIENT_REQUESTS_MAX)
        .map(|number| {
            let mut stream = asking.open();
            let head = format!(
                "PUT /store/slow-{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
                 {CREATE}Content-Length: {WHOLE_MAX_BYTES}\r\n\r\nx",
                asking.token
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let longest = vec![1; WHOLE_MAX_BYTES as usize];
    let headers = format!("{CREATE}Content-Length: {WHOLE_MAX_BYTES}\r\n");
    until(200, || asking.ask_as(&other, "PUT /store/honest", &headers, &longest));
    drop((first, waiting));
}

/// One client has no more, all together have no more, and those that are open go on.
#[test]
fn there_are_no_more_uploads_at_once_than_a_server_holds() {
    let asking = Asking::new();
    let clients = UPLOADS_MAX / CLIENT_UPLOADS_MAX + 1;
    let tokens: Vec<_> = (0..clients)
        .map(|number| client(&asking.sandbox, &format!("client-{number}"), ALL, &[]))
        .collect();
    let begin = |token: &str, number: usize| {
        let request = format!("POST /store/run-{number}?uploads");
        asking.ask_as(token, &request, "Content-Length: 0\r\n", b"")
    };
    let begun: Vec<_> =
        (0..CLIENT_UPLOADS_MAX).map(|number| until(200, || begin(&tokens[0], number))).collect();
    assert_eq!(begin(&tokens[0], CLIENT_UPLOADS_MAX).status, 503);
    for number in CLIENT_UPLOADS_MAX..UPLOADS_MAX {
        until(200, || begin(&tokens[number / CLIENT_UPLOADS_MAX], number));
    }
    assert_eq!(begin(&tokens[clients - 1], UPLOADS_MAX).status, 503);
    let longest = vec![1; PART_MAX_BYTES as usize];
    for (number, answer) in begun.iter().enumerate() {
        let id = answer.body.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
        let part = format!("PUT /store/run-{number}?partNumber=1&uploadId={id}");
        let put = |body: &[u8]| {
            let length = format!("Content-Length: {}\r\n", body.len());
            asking.ask_as(&tokens[0], &part, &length, body).status
        };
        if number == 0 {
            assert_eq!(put(&[&longest[..], b"x"].concat()), 400);
            assert_eq!(put(&longest), 200);
        } else {
            assert_eq!(put(b"x"), 200);
        }
        let complete = format!("POST /store/run-{number}?uploadId={id}");
        assert_eq!(asking.ask_as(&tokens[0], &complete, "Content-Length: 0\r\n", b"").status, 200);
    }
    let named = asking.files().into_iter().filter(|name| name.starts_with("run-"));
    assert_eq!(named.count(), CLIENT_UPLOADS_MAX);
    assert_eq!(begin(&tokens[clients - 1], UPLOADS_MAX).status, 200);
}

#[test]
fn r133_no_upload_begins_under_a_name_that_is_taken() {
    let asking = Asking::new();
    assert_eq!(asking.ask("PUT /store/run", CREATE, b"bytes").status, 200);
    for _ in 0..=CLIENT_UPLOADS_MAX {
        let refused = asking.ask("POST /store/run?uploads", "", b"");
        assert_eq!(refused.status, 412, "{}", refused.body);
    }
    assert_eq!(asking.ask("POST /store/other?uploads", "", b"").status, 200);
}

#[test]
fn r133_of_uploads_that_are_over_the_newest_are_known() {
    let asking = Asking::new();
    let complete = |(number, id): &(usize, String)| {
        asking.ask(&format!("POST /store/run-{number}?uploadId={id}"), "", b"").status
    };
    let mut all = Vec::new();
    for number in 0..=CLIENT_UPLOADS_OVER_MAX {
        let begun = asking.ask(&format!("POST /store/run-{number}?uploads"), "", b"").body;
        let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
        all.push((number, id.to_owned()));
        assert_eq!(complete(&all[number]), 200);
    }
    // Whose answer was lost asks again.
    all[1..].iter().for_each(|upload| assert_eq!(complete(upload), 200));
    assert_eq!(complete(&all[0]), 404);
}

/// As many requests as there are connections are carried out, each with a file of its own.
#[test]
fn r131_a_server_of_few_files_takes_no_more_connections_than_it_can_serve() {
    let (sandbox, token) = prepared(&["store"]);
    let errors = sandbox.path("errors");
    let asking = Asking::at(sandbox, token, |sandbox| {
        let usual = ["--json", "serve", "--clients", "clients.toml", "--listen", "127.0.0.1:0"];
        let like = sandbox.command(&[&usual[..], &["--plain", "store"]].concat());
        let mut command = Command::new("sh");
        let limited = "ulimit -n 96 && exec \"$0\" \"$@\"";
        command.args(["-c", limited]).arg(like.get_program()).args(like.get_args()).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(like.get_current_dir().unwrap()).stdout(Stdio::piped());
        Server::start_command(command.stderr(File::create(&errors).unwrap()))
    });
    let most = asking.server.connections.unwrap();
    assert!((1..CONNECTIONS_MAX as u64).contains(&most), "{most}");
    let said = std::fs::read_to_string(&errors).unwrap();
    assert!(said.contains("96 files") && said.contains("ulimit -n"), "{said}");
    let mut waiting: Vec<_> =
        (0..most).map(|number| stalled(&asking, &format!("run-{number}/object"), 2)).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(b"xx").unwrap());
    for mut stream in waiting {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
    until(404, || asking.ask("GET /store/none", "", b""));
}

#[test]
fn no_more_connections_are_taken_than_may_be() {
    let limit = getrlimit(Resource::Nofile);
    let needed = CONNECTIONS_MAX as u64 + 200;
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if limit.maximum.is_some_and(|most| most < needed)
            || setrlimit(Resource::Nofile, raised).is_err()
        {
            eprintln!("SKIPPED: connections: this process may not open {needed} files");
            return;
        }
    }
    let asking = Asking::new();
    let get = || asking.ask("GET /store/none", "", b"");
    let mut waiting: Vec<_> = (1..CONNECTIONS_MAX).map(|_| asking.open()).collect();
    until(404, get);
    waiting.push(asking.open());
    // It is closed without an answer.
    until(0, get);
    waiting.pop();
    until(404, get);
}

/// One address has its part of the connections, and no more until one of them ends.
#[test]
fn r131_one_address_takes_no_more_connections_than_its_part_of_a_server() {
    let (sandbox, _) = prepared(&["store"]);
    let server = Server::with_certificate(&sandbox, &["store"]);
    let open = || TcpStream::connect(&server.address).unwrap();
    // The server closes at once what it does not take.
    let is_taken = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let mut held: Vec<_> = (0..ADDRESS_CONNECTIONS_MAX).map(|_| open()).collect();
    assert!(is_taken(held.last_mut().unwrap()));
    assert!(!is_taken(&mut open()));
    held.pop();
    let began = Instant::now();
    while !is_taken(&mut open()) {
        assert!(began.elapsed() < PATIENCE, "a place that was given up is not given to others");
    }
}
