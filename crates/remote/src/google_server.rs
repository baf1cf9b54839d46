//! Test support: a server that speaks what Google does, as far as a store asks, in memory.
//!
//! No program that can be had speaks it: `fake-gcs-server` knows neither the condition of a put nor
//! uploads in parts where requests are in XML. So this one follows Google's documents of that
//! interface, and a store that works here has shown that it asks what it should, not what Google
//! answers.

use crate::gateway::BUCKET;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What may do everything.
pub const TOKEN: &str = "onefold-token";
/// Names on one page.
const PAGE: usize = 7;

/// A server, until the program ends.
pub struct GoogleServer {
    /// Where it listens.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    held: Mutex<Held>,
    is_gone: AtomicBool,
    replaces: AtomicBool,
}

#[derive(Default)]
struct Held {
    objects: BTreeMap<String, Vec<u8>>,
    /// Parts by number, of uploads by number.
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    begun: u64,
}

struct Request {
    method: String,
    object: Option<String>,
    bucket: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: &'static str,
    headers: String,
    body: Vec<u8>,
}

impl GoogleServer {
    /// Starts one, with one bucket.
    ///
    /// # Errors
    ///
    /// No port is to be had.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let server = Self { port: listener.local_addr()?.port(), state: Arc::default() };
        let state = Arc::clone(&server.state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                thread::spawn(move || serve(&stream, &state));
            }
        });
        Ok(server)
    }

    /// From now on it answers that all is well where an object must not be replaced, and replaces
    /// it, as some servers do.
    pub fn replace_objects(&self) {
        self.state.replaces.store(true, Ordering::Relaxed);
    }

    /// A store in its bucket, as users name it.
    #[must_use]
    pub fn store(&self, prefix: &str) -> String {
        format!("gs://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{}", self.port)
    }

    /// Names of all objects, and how long they are.
    #[must_use]
    pub fn objects(&self) -> Vec<(String, usize)> {
        let held = self.state.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.objects.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect()
    }

    /// From now on it hangs up instead of answering, or answers again.
    pub fn set_gone(&self, is_gone: bool) {
        self.state.is_gone.store(is_gone, Ordering::SeqCst);
    }
}

fn serve(stream: &TcpStream, state: &State) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = read(&mut reader) {
        if state.is_gone.load(Ordering::SeqCst) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        let mut held = state.held.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = held.answer(&request, state.replaces.load(Ordering::Relaxed));
        drop(held);
        let length = answer.body.len();
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Length: {length}\r\n{}\r\n",
            answer.status, answer.headers
        );
        let body = if request.method == "HEAD" { &[][..] } else { &answer.body };
        let mut writer = stream;
        if writer.write_all(&[head.as_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path.trim_start_matches('/');
    let (bucket, object) = path.split_once('/').unwrap_or((path, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some(Request {
        method,
        object: Some(decoded(object)).filter(|object| !object.is_empty()),
        bucket: decoded(bucket),
        query: pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect(),
        headers,
        body,
    }))
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let number = after.get(..2).and_then(|number| std::str::from_utf8(number).ok());
        match number.and_then(|number| u8::from_str_radix(number, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Answer {
    fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let date = "Last-Modified: Wed, 25 Nov 2026 00:00:00 GMT";
        let headers = format!("ETag: \"1\"\r\nx-goog-generation: 1\r\n{date}\r\n");
        Self { status, headers, body: body.into() }
    }

    fn error(status: &'static str, code: &str) -> Self {
        let body = format!("<?xml version='1.0'?><Error><Code>{code}</Code></Error>");
        Self { status, headers: "Content-Type: application/xml\r\n".into(), body: body.into() }
    }
}

impl Held {
    fn answer(&mut self, request: &Request, replaces: bool) -> Answer {
        let is_allowed = request.headers.get("authorization");
        if is_allowed.is_none_or(|said| *said != format!("Bearer {TOKEN}")) {
            return Answer::error("401 Unauthorized", "AuthenticationRequired");
        }
        if request.bucket != BUCKET {
            return Answer::error("404 Not Found", "NoSuchBucket");
        }
        let Some(name) = &request.object else { return self.list(&request.query) };
        let upload = request.query.get("uploadId");
        match (request.method.as_str(), upload) {
            ("GET" | "HEAD", None) => match self.objects.get(name) {
                Some(bytes) => given(bytes, request.headers.get("range")),
                None => Answer::error("404 Not Found", "NoSuchKey"),
            },
            ("PUT", None) => {
                let is_new = request.headers.get("x-goog-if-generation-match");
                let must_be_new = is_new.is_some_and(|only| only == "0") && !replaces;
                if must_be_new && self.objects.contains_key(name) {
                    return Answer::error("412 Precondition Failed", "PreconditionFailed");
                }
                self.objects.insert(name.clone(), request.body.clone());
                Answer::new("200 OK", "")
            }
            ("DELETE", None) => match self.objects.remove(name) {
                Some(_) => Answer::new("204 No Content", ""),
                None => Answer::error("404 Not Found", "NoSuchKey"),
            },
            ("POST", None) if request.query.contains_key("uploads") => {
                self.begun += 1;
                let number = format!("upload-{}", self.begun);
                self.uploads.insert(number.clone(), BTreeMap::new());
                let body = format!("<UploadId>{number}</UploadId>");
                Answer::new("200 OK", in_element("InitiateMultipartUploadResult", &body))
            }
            (method, Some(upload)) => self.go_on(method, name, upload, request),
            _ => Answer::error("400 Bad Request", "InvalidArgument"),
        }
    }

    fn go_on(&mut self, method: &str, name: &str, upload: &str, request: &Request) -> Answer {
        let Some(mut parts) = self.uploads.remove(upload) else {
            return Answer::error("404 Not Found", "NoSuchUpload");
        };
        let number = request.query.get("partNumber").and_then(|number| number.parse().ok());
        match (method, number) {
            ("PUT", Some(number)) => {
                parts.insert(number, request.body.clone());
                self.uploads.insert(upload.to_owned(), parts);
                Answer::new("200 OK", "")
            }
            ("POST", None) => {
                self.objects.insert(name.to_owned(), parts.into_values().flatten().collect());
                let body = in_element("CompleteMultipartUploadResult", "<ETag>\"1\"</ETag>");
                Answer::new("200 OK", body)
            }
            _ => Answer::new("204 No Content", ""),
        }
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Answer {
        let said = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        let (prefix, after) = (said("prefix"), said("continuation-token"));
        let found = self.objects.iter();
        let mut found = found.filter(|(name, _)| name.starts_with(prefix) && name.as_str() > after);
        let (mut body, mut last) = (String::new(), "");
        for (name, bytes) in found.by_ref().take(PAGE) {
            body += &format!(
                "<Contents><Key>{name}</Key><Size>{}</Size><ETag>\"1\"</ETag>\
                 <LastModified>2026-11-25T00:00:00.000Z</LastModified></Contents>",
                bytes.len()
            );
            last = name;
        }
        if found.next().is_some() {
            body += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        Answer::new("200 OK", in_element("ListBucketResult", &body))
    }
}

fn in_element(name: &str, body: &str) -> String {
    format!("<?xml version='1.0' encoding='UTF-8'?><{name}>{body}</{name}>")
}

/// An object, or what is asked of it.
fn given(bytes: &[u8], range: Option<&String>) -> Answer {
    let Some(range) = range else { return Answer::new("200 OK", bytes) };
    match range_of(range, bytes.len()).and_then(|range| Some((bytes.get(range.clone())?, range))) {
        Some((part, Range { start, end })) if !part.is_empty() => {
            let mut answer = Answer::new("206 Partial Content", part);
            let (last, all) = (end - 1, bytes.len());
            answer.headers += &format!("Content-Range: bytes {start}-{last}/{all}\r\n");
            answer
        }
        _ => Answer::error("416 Requested Range Not Satisfiable", "InvalidRange"),
    }
}

fn range_of(text: &str, length: usize) -> Option<Range<usize>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    match first.is_empty() {
        true => Some(length.saturating_sub(last.parse().ok()?)..length),
        false => Some(first.parse().ok()?..length.min(last.parse::<usize>().ok()? + 1)),
    }
}
