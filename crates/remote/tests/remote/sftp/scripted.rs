//! An SFTP server in memory, which loses answers, falls silent or lies when it is told to.

#![expect(clippy::big_endian_bytes, reason = "SFTP's own order")]

use bytes::Bytes;
use onefold_remote::sftp::dial::{Dial, Line};
use russh_sftp::protocol::{
    Attrs, Data, File, FileAttributes, Handle, Name, OpenFlags, Packet, StatusCode, Version,
};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;

/// What the server does with a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Act {
    /// What it should.
    Answer,
    /// It hangs up before.
    HangUp,
    /// It does it, and hangs up before it answers.
    LoseAnswer,
    /// It does nothing, and does not answer.
    Silence,
    /// It says no, without doing it.
    Refuse(StatusCode),
    /// It says that all is well, without doing it.
    Lie,
    /// Gives one byte of what is read.
    Short,
    /// Answers with a packet longer than any may be.
    Endless,
}

type Nodes = BTreeMap<String, Option<Arc<Mutex<Vec<u8>>>>>;
type Script = Box<dyn FnMut(&Packet) -> Act + Send>;

/// The server's state, which all connections share.
pub struct Server {
    /// Files with their bytes, and directories.
    pub nodes: Mutex<Nodes>,
    pub script: Mutex<Script>,
    /// Whether it offers hard links.
    pub links: bool,
    /// A link replaces what has the name.
    pub replaces: bool,
    pub asked: Mutex<Vec<String>>,
}

impl Server {
    pub fn new(script: impl FnMut(&Packet) -> Act + Send + 'static) -> Self {
        Self {
            nodes: Mutex::new(BTreeMap::from([("".to_owned(), None), ("/s".to_owned(), None)])),
            script: Mutex::new(Box::new(script)),
            links: true,
            replaces: false,
            asked: Mutex::default(),
        }
    }

    pub fn count(&self, what: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.starts_with(what)).count()
    }
}

pub struct Dialer(pub Arc<Server>);

impl Dial for Dialer {
    fn dial(&self) -> io::Result<Line> {
        let (stream, theirs) = UnixStream::pair()?;
        let server = Arc::clone(&self.0);
        thread::spawn(move || {
            let _ = serve(&server, theirs);
        });
        Ok(Line { stream, process: None })
    }
}

struct Session<'a> {
    server: &'a Server,
    files: HashMap<String, Arc<Mutex<Vec<u8>>>>,
    listings: HashMap<String, Vec<File>>,
    next: usize,
}

fn serve(server: &Server, mut stream: UnixStream) -> io::Result<()> {
    let (files, listings) = (HashMap::new(), HashMap::new());
    let mut session = Session { server, files, listings, next: 0 };
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body)?;
        let packet = Packet::try_from(&mut Bytes::from(body)).unwrap();
        let act = (server.script.lock().unwrap())(&packet);
        let text = format!("{packet:?}");
        server.asked.lock().unwrap().push(text.chars().take(200).collect());
        let id = packet.get_request_id();
        let answer = match act {
            Act::HangUp => return Ok(()),
            Act::Silence => continue,
            Act::Refuse(code) => Packet::error(id, code),
            Act::Lie => Packet::error(id, StatusCode::Ok),
            Act::Endless => {
                stream.write_all(&(1_u32 << 20).to_be_bytes())?;
                continue;
            }
            Act::LoseAnswer => {
                session.answer(packet);
                return Ok(());
            }
            Act::Answer => session.answer(packet),
            Act::Short => match session.answer(packet) {
                Packet::Data(data) => Packet::Data(Data { data: data.data[..1].to_vec(), ..data }),
                other => other,
            },
        };
        stream.write_all(&Bytes::try_from(answer).unwrap())?;
    }
}

fn attributes(node: &Option<Arc<Mutex<Vec<u8>>>>) -> FileAttributes {
    let (size, kind) = match node {
        Some(bytes) => (bytes.lock().unwrap().len() as u64, 0o100_600),
        None => (0, 0o040_700),
    };
    FileAttributes { size: Some(size), permissions: Some(kind), ..FileAttributes::empty() }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// As OpenSSH answers: one code for what is absent and for what is below a file.
fn is_directory(nodes: &Nodes, path: &str) -> Result<(), StatusCode> {
    match nodes.get(path) {
        Some(None) => Ok(()),
        _ => Err(StatusCode::NoSuchFile),
    }
}

impl Session<'_> {
    fn answer(&mut self, packet: Packet) -> Packet {
        let id = packet.get_request_id();
        match self.try_answer(packet) {
            Ok(answer) => answer,
            Err(code) => Packet::error(id, code),
        }
    }

    fn handle(&mut self) -> String {
        self.next += 1;
        self.next.to_string()
    }

    fn try_answer(&mut self, packet: Packet) -> Result<Packet, StatusCode> {
        match packet {
            Packet::Init(_) => {
                let mut version = Version::new();
                let mut has = |name: &str| version.extensions.insert(name.into(), "1".into());
                has("fsync@openssh.com");
                if self.server.links {
                    has("hardlink@openssh.com");
                }
                Ok(Packet::Version(version))
            }
            Packet::Open(_)
            | Packet::Close(_)
            | Packet::Read(_)
            | Packet::Write(_)
            | Packet::Fstat(_) => self.of_file(packet),
            Packet::OpenDir(_) | Packet::ReadDir(_) => self.of_listing(packet),
            _ => self.of_name(packet),
        }
    }

    /// What is about an open file.
    fn of_file(&mut self, packet: Packet) -> Result<Packet, StatusCode> {
        let id = packet.get_request_id();
        let mut nodes = self.server.nodes.lock().unwrap();
        let done = Packet::error(id, StatusCode::Ok);
        match packet {
            Packet::Open(open) => {
                if !nodes.contains_key(&open.filename) {
                    if !open.pflags.contains(OpenFlags::CREATE)
                        || nodes.get(parent(&open.filename)).is_none_or(Option::is_some)
                    {
                        return Err(StatusCode::NoSuchFile);
                    }
                    nodes.insert(open.filename.clone(), Some(Arc::default()));
                }
                let node = nodes[&open.filename].clone();
                drop(nodes);
                let handle = self.handle();
                self.files.insert(handle.clone(), node.unwrap_or_default());
                Ok(Packet::Handle(Handle { id, handle }))
            }
            Packet::Close(close) => {
                self.files.remove(&close.handle);
                Ok(done)
            }
            Packet::Read(read) => {
                let file = self.files.get(&read.handle).ok_or(StatusCode::Failure)?;
                let file = file.lock().unwrap();
                let rest = file.get(read.offset as usize..).filter(|rest| !rest.is_empty());
                let rest = rest.ok_or(StatusCode::Eof)?;
                let data = rest[..rest.len().min(read.len as usize)].to_vec();
                Ok(Packet::Data(Data { id, data }))
            }
            Packet::Write(write) => {
                let file = self.files.get(&write.handle).ok_or(StatusCode::Failure)?;
                let (mut file, at) = (file.lock().unwrap(), write.offset as usize);
                let end = at + write.data.len();
                let length = file.len().max(end);
                file.resize(length, 0);
                file[at..end].copy_from_slice(&write.data);
                Ok(done)
            }
            Packet::Fstat(stat) => {
                let file = self.files.get(&stat.handle).ok_or(StatusCode::Failure)?;
                Ok(Packet::Attrs(Attrs { id, attrs: attributes(&Some(Arc::clone(file))) }))
            }
            _ => Err(StatusCode::OpUnsupported),
        }
    }

    /// What is about the names of a directory.
    fn of_listing(&mut self, packet: Packet) -> Result<Packet, StatusCode> {
        let id = packet.get_request_id();
        let nodes = self.server.nodes.lock().unwrap();
        match packet {
            Packet::OpenDir(open) => {
                match nodes.get(&open.path) {
                    Some(None) => {}
                    _ => return Err(StatusCode::NoSuchFile),
                }
                let inside =
                    nodes.iter().filter(|(path, _)| !path.is_empty() && parent(path) == open.path);
                let files = inside.map(|(path, node)| {
                    let name = path.rsplit('/').next().unwrap_or_default();
                    File::new(name, attributes(node))
                });
                let files = files.collect();
                drop(nodes);
                let handle = self.handle();
                self.listings.insert(handle.clone(), files);
                Ok(Packet::Handle(Handle { id, handle }))
            }
            Packet::ReadDir(read) => {
                let left = self.listings.get_mut(&read.handle).ok_or(StatusCode::Failure)?;
                let page = left.split_off(left.len().saturating_sub(7));
                match page.is_empty() {
                    true => Err(StatusCode::Eof),
                    false => Ok(Packet::Name(Name { id, files: page })),
                }
            }
            _ => Err(StatusCode::OpUnsupported),
        }
    }

    /// What is about one name, or two.
    fn of_name(&self, packet: Packet) -> Result<Packet, StatusCode> {
        let id = packet.get_request_id();
        let mut nodes = self.server.nodes.lock().unwrap();
        let done = Packet::error(id, StatusCode::Ok);
        match packet {
            Packet::Lstat(stat) => {
                let node = nodes.get(&stat.path).ok_or(StatusCode::NoSuchFile)?;
                Ok(Packet::Attrs(Attrs { id, attrs: attributes(node) }))
            }
            Packet::MkDir(made) => {
                if nodes.contains_key(&made.path) {
                    return Err(StatusCode::Failure);
                }
                is_directory(&nodes, parent(&made.path))?;
                nodes.insert(made.path, None);
                Ok(done)
            }
            Packet::RmDir(removed) => {
                let is_used = nodes.keys().any(|path| parent(path) == removed.path);
                if is_used || !matches!(nodes.get(&removed.path), Some(None)) {
                    return Err(StatusCode::Failure);
                }
                nodes.remove(&removed.path);
                Ok(done)
            }
            Packet::Remove(removed) => match nodes.get(&removed.filename) {
                Some(Some(_)) => {
                    nodes.remove(&removed.filename);
                    Ok(done)
                }
                Some(None) => Err(StatusCode::Failure),
                None => Err(StatusCode::NoSuchFile),
            },
            Packet::Extended(extended) if extended.request == "hardlink@openssh.com" => {
                let (old, new) = two_texts(&extended.data);
                let node = nodes.get(&old).cloned().ok_or(StatusCode::NoSuchFile)?;
                is_directory(&nodes, parent(&new))?;
                if nodes.contains_key(&new) && !self.server.replaces {
                    return Err(StatusCode::Failure);
                }
                nodes.insert(new, node);
                Ok(done)
            }
            Packet::Extended(extended) if extended.request == "fsync@openssh.com" => Ok(done),
            _ => Err(StatusCode::OpUnsupported),
        }
    }
}

fn two_texts(data: &[u8]) -> (String, String) {
    let text = |at: usize| {
        let length = u32::from_be_bytes(data[at..at + 4].try_into().unwrap()) as usize;
        (String::from_utf8(data[at + 4..at + 4 + length].to_vec()).unwrap(), at + 4 + length)
    };
    let (first, at) = text(0);
    (first, text(at).0)
}
