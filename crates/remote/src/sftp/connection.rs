//! One connection to an SFTP server: requests with time limits, so many at once, and open files.
//!
//! # Invariants
//! - At most [`REQUESTS_MAX`] requests are under way, each with at most [`REQUEST_BYTES`] of an
//!   object; a longer packet than [`PACKET_MAX_BYTES`] ends the connection. So a connection holds
//!   at most 2 MiB of what it sends, and as much of what an honest server sends.
//! - At most [`HANDLES_MAX`] files are open: servers bound them, and the crate takes handles for
//!   text, which those of OpenSSH are as long as there are fewer than 128.
//! - A request without an answer ends the connection: nothing later is taken for its answer.
//!
//! # Concurrency
//! Any number of tasks.

use super::dial::{Line, Process};
use crate::patience::Patience;
use crate::requests::transfer_max;
use futures_util::future::try_join_all;
use futures_util::{TryStreamExt, stream};
use onefold_types::Error;
use russh_sftp::client::error::Error as Answer;
use russh_sftp::client::rawsession::SftpResult;
use russh_sftp::client::{Config, RawSftpSession};
use russh_sftp::extensions;
use russh_sftp::protocol::{FileAttributes, OpenFlags, StatusCode};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Requests under way at once.
pub const REQUESTS_MAX: usize = 64;
/// Bytes of an object in one request: what every server takes.
pub const REQUEST_BYTES: usize = 32 << 10;
/// Files open at once.
pub const HANDLES_MAX: usize = 96;
/// The longest packet that is read.
pub const PACKET_MAX_BYTES: u32 = 256 << 10;
/// A disk slower than this is taken for one that stands still.
const SLOWEST_DISK_BYTES_PER_SECOND: u64 = 1 << 20;
/// More than any request takes, which has limits of its own.
const UNLIMITED_SECONDS: u64 = 1 << 20;

/// Why a request has no result.
#[derive(Debug)]
pub enum Fault {
    /// The server says no.
    Refused(StatusCode, String),
    /// There is no answer: nobody knows what was done.
    Lost(String),
    /// It is not about a request.
    Other(Error),
}

impl Fault {
    /// Whether there is no such name.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Refused(StatusCode::NoSuchFile, _))
    }
}

/// What a request gives.
pub type Done<T> = Result<T, Fault>;

/// What the server can do beyond the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// `hardlink@openssh.com`
    pub link: bool,
    /// `fsync@openssh.com`
    pub sync: bool,
    /// `statvfs@openssh.com`
    pub room: bool,
}

/// A connection; see the module.
pub struct Connection {
    pub(super) session: RawSftpSession,
    pub(super) can: Abilities,
    process: Mutex<Option<Process>>,
    requests: Semaphore,
    handles: Arc<Semaphore>,
    runtime: Handle,
    gone: watch::Receiver<bool>,
    lost: AtomicBool,
    sending_bytes: AtomicU64,
    answer_max: Duration,
    /// Who works with it.
    pub(super) users: AtomicUsize,
}

/// Bytes that are on their way, until this is dropped, which may be before there is an answer.
struct Sending<'a> {
    counter: &'a AtomicU64,
    bytes: u64,
    /// With what was on its way before.
    all: u64,
}

impl<'a> Sending<'a> {
    fn begin(counter: &'a AtomicU64, bytes: u64) -> Self {
        let before = counter.fetch_add(bytes, Ordering::SeqCst);
        Self { counter, bytes, all: before + bytes }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// The stream; says when nobody reads or writes it any more.
struct Watched {
    stream: tokio::net::UnixStream,
    gone: watch::Sender<bool>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.gone.send_replace(true);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A file that the server holds open, until this is dropped.
pub struct Opened {
    pub(super) connection: Arc<Connection>,
    handle: String,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let (connection, permit) = (Arc::clone(&self.connection), self.permit.take());
        let handle = std::mem::take(&mut self.handle);
        // Nobody waits for it.
        self.connection.runtime.spawn(async move {
            let _ = connection.ask(connection.session.close(handle)).await;
            drop(permit);
        });
    }
}

impl Connection {
    /// Agrees with the server on the protocol. On failure the program that leads there is given
    /// back, which may have said why.
    pub async fn begin(line: Line, patience: Patience) -> Result<Self, (Option<Process>, String)> {
        let Line { stream, process } = line;
        let (sender, gone) = watch::channel(false);
        let made = stream
            .set_nonblocking(true)
            .and_then(|()| tokio::net::UnixStream::from_std(stream))
            .map(|stream| Watched { stream, gone: sender });
        let stream = match made {
            Ok(stream) => stream,
            Err(error) => return Err((process, error.to_string())),
        };
        let configuration = Config {
            max_packet_len: PACKET_MAX_BYTES,
            request_timeout_secs: UNLIMITED_SECONDS,
            ..Config::default()
        };
        let session = RawSftpSession::new_with_config(stream, configuration);
        let version = match tokio::time::timeout(patience.answer, session.init()).await {
            Ok(Ok(version)) if version.version >= 3 => version,
            Ok(Ok(version)) => {
                return Err((process, format!("it speaks version {}", version.version)));
            }
            Ok(Err(_)) => return Err((process, "it does not speak SFTP".into())),
            Err(_) => {
                return Err((process, format!("no answer within {:.0?}", patience.answer)));
            }
        };
        let has = |name: &str| version.extensions.contains_key(name);
        Ok(Self {
            can: Abilities {
                link: has(extensions::HARDLINK),
                sync: has(extensions::FSYNC),
                room: has(extensions::STATVFS),
            },
            session,
            process: Mutex::new(process),
            requests: Semaphore::new(REQUESTS_MAX),
            handles: Arc::new(Semaphore::new(HANDLES_MAX)),
            runtime: Handle::current(),
            gone,
            lost: AtomicBool::new(false),
            sending_bytes: AtomicU64::new(0),
            answer_max: patience.answer,
            users: AtomicUsize::new(0),
        })
    }

    /// Whether nothing more can be asked.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst) || *self.gone.borrow()
    }

    /// Ends it, and the program that leads there; the last thing that one said.
    pub fn lose(&self) -> Option<String> {
        self.lost.store(true, Ordering::SeqCst);
        let _ = self.session.close_session();
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.take()?.said().pop()
    }

    /// Ends it in order: asks the program to end, which is then waited for by [`Connection::end`].
    pub fn close(&self) {
        let _ = self.session.close_session();
    }

    /// Waits for the program's end for a moment.
    pub fn end(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = process.as_mut() {
            process.end();
        }
    }

    /// Waits for an answer.
    pub async fn ask<T>(&self, request: impl Future<Output = SftpResult<T>>) -> Done<T> {
        self.ask_within(0, Duration::ZERO, request).await
    }

    /// The same for what carries so many bytes, or takes longer for a reason.
    async fn ask_within<T>(
        &self,
        bytes: usize,
        more: Duration,
        request: impl Future<Output = SftpResult<T>>,
    ) -> Done<T> {
        let lost = |why: String| match self.lose() {
            Some(said) => Fault::Lost(format!("{why} (it said: {said})")),
            None => Fault::Lost(why),
        };
        let Ok(_permit) = self.requests.acquire().await else {
            return Err(lost("the connection was closed".into()));
        };
        if self.is_lost() {
            return Err(lost("the connection broke".into()));
        }
        let bytes = bytes as u64;
        let sending = Sending::begin(&self.sending_bytes, bytes);
        let limit = self.answer_max + transfer_max(sending.all) + more;
        let mut gone = self.gone.clone();
        let answer = tokio::select! {
            biased;
            answer = request => Some(answer),
            _ = gone.wait_for(|gone| *gone) => None,
            () = tokio::time::sleep(limit) => {
                return Err(lost(format!("there was no answer within {limit:.0?}")));
            }
        };
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(Answer::Status(status))) => {
                Err(Fault::Refused(status.status_code, status.error_message))
            }
            Some(Err(_)) | None => Err(lost("the connection broke".into())),
        }
    }

    /// Opens a file.
    pub async fn open(self: &Arc<Self>, path: &str, flags: OpenFlags) -> Done<Opened> {
        let attributes = match flags.contains(OpenFlags::CREATE) {
            true => FileAttributes { permissions: Some(0o600), ..FileAttributes::empty() },
            false => FileAttributes::empty(),
        };
        let permit = Arc::clone(&self.handles).acquire_owned().await.ok();
        let opened = self.ask(self.session.open(path, flags, attributes)).await?;
        self.hold(opened.handle, permit)
    }

    /// Opens a directory to be listed.
    pub async fn open_directory(self: &Arc<Self>, path: &str) -> Done<Opened> {
        let permit = Arc::clone(&self.handles).acquire_owned().await.ok();
        let opened = self.ask(self.session.opendir(path)).await?;
        self.hold(opened.handle, permit)
    }

    fn hold(
        self: &Arc<Self>,
        handle: String,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Done<Opened> {
        if handle.contains(char::REPLACEMENT_CHARACTER) {
            return Err(Fault::Other(Error::invalid(
                "the server names open files by bytes that are no text, which is not understood",
            )));
        }
        Ok(Opened { connection: Arc::clone(self), handle, permit })
    }

    /// Everything that is known of a name, which is no link that is followed.
    pub async fn look_at(&self, path: &str) -> Done<FileAttributes> {
        Ok(self.ask(self.session.lstat(path)).await?.attrs)
    }

    /// Whether nothing has that name.
    pub async fn is_absent(&self, path: &str) -> Done<bool> {
        match self.look_at(path).await {
            Ok(_) => Ok(false),
            Err(fault) if fault.is_absence() => Ok(true),
            Err(fault) => Err(fault),
        }
    }
}

impl Opened {
    /// Fills the buffer from an offset on; how far that went, which is less only at the end.
    pub async fn read(&self, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        let length = buffer.len();
        let mut pieces = Vec::new();
        for (number, piece) in buffer.chunks_mut(REQUEST_BYTES).enumerate() {
            pieces.push(self.read_piece(offset, number * REQUEST_BYTES, piece));
        }
        let filled = try_join_all(pieces).await?;
        // Up to the first piece that was not filled.
        let mut read = 0;
        for count in filled {
            read += count;
            if count < REQUEST_BYTES {
                break;
            }
        }
        Ok(read.min(length))
    }

    async fn read_piece(&self, offset: u64, start: usize, piece: &mut [u8]) -> Done<usize> {
        let mut filled = 0;
        while let Some(room) = piece.get_mut(filled..).filter(|room| !room.is_empty()) {
            let at = offset.saturating_add((start + filled) as u64);
            let wanted = room.len();
            let session = &self.connection.session;
            let request = session.read(self.handle.as_str(), at, wanted as u32);
            let data = match self.connection.ask_within(wanted, Duration::ZERO, request).await {
                Ok(answer) => answer.data,
                Err(Fault::Refused(StatusCode::Eof, _)) => return Ok(filled),
                Err(fault) => return Err(fault),
            };
            match (data.len(), room.get_mut(..data.len())) {
                (0, _) => return Ok(filled),
                (count, Some(room)) => {
                    room.copy_from_slice(&data);
                    filled += count;
                }
                (_, None) => {
                    let said = "the server gave more bytes than were asked for";
                    return Err(Fault::Other(Error::damaged(said)));
                }
            }
        }
        Ok(filled)
    }

    /// Writes all of it.
    pub async fn write(&self, offset: u64, bytes: &[u8]) -> Done<()> {
        let pieces = bytes.chunks(REQUEST_BYTES).enumerate();
        stream::iter(pieces.map(Ok))
            .try_for_each_concurrent(REQUESTS_MAX, async |(number, piece)| {
                let at = offset + (number * REQUEST_BYTES) as u64;
                let session = &self.connection.session;
                let request = async {
                    // Copied when it is its turn.
                    session.write(self.handle.as_str(), at, piece.to_vec()).await
                };
                let written = self.connection.ask_within(piece.len(), Duration::ZERO, request);
                written.await.map(drop)
            })
            .await
    }

    /// Makes it durable; so many bytes may have to be written for that.
    pub async fn sync(&self, bytes: u64) -> Done<()> {
        let more = Duration::from_secs(bytes / SLOWEST_DISK_BYTES_PER_SECOND);
        let request = self.connection.session.fsync(self.handle.as_str());
        self.connection.ask_within(0, more, request).await.map(drop)
    }

    /// Its size.
    pub async fn size(&self) -> Done<Option<u64>> {
        let request = self.connection.session.fstat(self.handle.as_str());
        Ok(self.connection.ask(request).await?.attrs.size)
    }

    /// Some more names of a directory; `None` at its end.
    pub async fn names(&self) -> Done<Option<Vec<(String, FileAttributes)>>> {
        let request = self.connection.session.readdir(self.handle.as_str());
        match self.connection.ask(request).await {
            Ok(names) => {
                Ok(Some(names.files.into_iter().map(|file| (file.filename, file.attrs)).collect()))
            }
            Err(Fault::Refused(StatusCode::Eof, _)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}
