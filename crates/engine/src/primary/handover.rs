//! The directory below a mounted share, handed to whoever may have it.
//!
//! The mount covers the directory, and only its process has it open from before. It listens on a
//! socket without a file (*abstract*), whose random name is in the kernel's list of mounts
//! ([`super::mounts`]), and which the mount tells at its top.
//!
//! # Order
//! 1. Whoever asks reads the name and connects; he has nothing to say.
//! 2. The mount's process asks the kernel who that is. Root and its own user are sent one byte and
//!    with it the open directory; to anybody else the connection is closed.
//! 3. Whoever asked looks who has answered, and what he was given: root's word counts, his own
//!    user's, and the owner's for a directory of his. So nobody is led to files of others by
//!    somebody who mounts something of his own and calls it a share.
//!
//! # Invariants
//! - A descriptor gives no right but to pass what covers the directory: permissions count as ever.
//! - Nothing waits for ever: the process reads nothing of whoever asks, and sends what the kernel
//!   keeps for him. Whoever asks waits for some seconds, and makes no request of the mount.
//!
//! # Concurrency
//! One thread hands over. The socket is gone with its process, however that ends.

use onefold_types::environment::Randomness;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{FileType, Uid};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Of what the name is made.
const NAME_BYTES: usize = 32;
/// Of the name, in hexadecimal digits.
pub const NAME_DIGITS: usize = 2 * NAME_BYTES;
/// Who may wait while another one is served; each takes a moment.
const WAITING_MAX: i32 = 64;
/// How long either side waits for the other one.
const PATIENCE: Duration = Duration::from_secs(4);
/// Before it is tried again when the process or the system has too many files open.
const REST: Duration = Duration::from_millis(100);
/// What comes with the directory: the kernel sends no descriptor alone.
const GIVEN: [u8; 1] = [1];

/// Hands a directory over until it goes.
pub struct Handover {
    name: String,
    socket: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Handover {
    /// Begins to hand a directory over.
    pub fn begin(randomness: &dyn Randomness, directory: OwnedFd) -> Result<Self> {
        let mut bytes = [0; NAME_BYTES];
        randomness.fill(&mut bytes);
        let name = hex::encode(bytes);
        let failed = |errno: Errno| Error::io("listening for the share's jobs", errno.into());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
        let socket = Arc::new(socket().map_err(failed)?);
        rustix::net::bind(&*socket, &address).map_err(failed)?;
        rustix::net::listen(&*socket, WAITING_MAX).map_err(failed)?;
        let listening = Arc::clone(&socket);
        let thread = Builder::new().name("handover".to_owned());
        let thread = thread.spawn(move || serve(&listening, directory.as_fd()));
        Ok(Self { name, socket, thread: Some(thread.context(|| "starting a thread")?) })
    }

    /// What it is asked by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // Whoever waits for somebody who asks hears of that.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        self.thread.take().map(JoinHandle::join);
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(unix, kind, SocketFlags::CLOEXEC, None)
}

fn serve(listening: &OwnedFd, directory: BorrowedFd<'_>) {
    loop {
        match rustix::net::accept_with(listening, SocketFlags::CLOEXEC) {
            Ok(asking) => {
                // Whoever does not get it hears that the connection is closed.
                let _ = hand_over(&asking, directory);
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::INVAL | Errno::BADF) => return,
            Err(_) => std::thread::sleep(REST),
        }
    }
}

fn hand_over(asking: &OwnedFd, directory: BorrowedFd<'_>) -> rustix::io::Result<()> {
    if !may_have(socket_peercred(asking)?.uid, rustix::process::geteuid()) {
        return Ok(());
    }
    set_socket_timeout(asking, Timeout::Send, Some(PATIENCE))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let given = [directory];
    control.push(SendAncillaryMessage::ScmRights(&given));
    rustix::net::sendmsg(asking, &[IoSlice::new(&GIVEN)], &mut control, SendFlags::NOSIGNAL)
        .map(drop)
}

/// Who may have the directory.
fn may_have(asking: Uid, serving: Uid) -> bool {
    asking.is_root() || asking == serving
}

/// Whose word counts for a directory.
fn is_believed(serving: Uid, asking: Uid, owner: Uid) -> bool {
    serving.is_root() || serving == asking || serving == owner
}

/// Asks the process that a name belongs to for its directory.
///
/// Errors: `NotPermitted` if this user may not have it, or its user is not believed; `NotFound` if
/// there is no such process; `Unavailable` if it does not answer.
pub fn ask(name: &str) -> Result<OwnedFd> {
    let failed = |errno: Errno| match errno {
        Errno::AGAIN | Errno::CONNRESET => Error::new(
            ErrorKind::Unavailable,
            "the process that serves its mount does not answer; if it hangs, end it, and mount \
             the share again",
        ),
        Errno::CONNREFUSED => Error::new(
            ErrorKind::NotFound,
            "the process that serves its mount cannot be asked from here; run this on the same \
             machine, and in no other container than the mount",
        ),
        _ => Error::io("asking the process that serves the mount", errno.into()),
    };
    let socket = connected(name).map_err(failed)?;
    // Of a process that this one cannot name the kernel does not tell in a form that can be taken.
    let serving = socket_peercred(&socket).map_err(|_| failed(Errno::CONNREFUSED))?.uid;
    let Some(directory) = receive(&socket).map_err(failed)? else {
        return Err(Error::new(
            ErrorKind::NotPermitted,
            format!(
                "it is mounted by user {}: nobody but him and root may look below the mount",
                serving.as_raw()
            ),
        ));
    };
    let stat = rustix::fs::fstat(&directory).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Error::invalid("what the mount says is below it is no directory"));
    }
    let owner = Uid::from_raw(stat.st_uid);
    match is_believed(serving, rustix::process::geteuid(), owner) {
        true => Ok(directory),
        false => Err(Error::new(
            ErrorKind::NotPermitted,
            format!(
                "it is mounted by user {}, who is not its owner, user {}: unmount it",
                serving.as_raw(),
                owner.as_raw()
            ),
        )),
    }
}

/// Whether there is the process that a name belongs to, though it may hang.
#[must_use]
pub fn is_there(name: &str) -> bool {
    matches!(connected(name), Ok(_) | Err(Errno::AGAIN))
}

fn connected(name: &str) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket = socket()?;
    for which in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, which, Some(PATIENCE))?;
    }
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// What comes with the answer; `None` if the connection is closed without one.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = GIVEN;
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
    })?;
    let given = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut given) => given.next(),
        _ => None,
    });
    match (received.bytes, given) {
        (0, _) => Ok(None),
        // The kernel leaves out what this process may not have open any more.
        (_, None) => Err(Errno::MFILE),
        (_, given) => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_crypto::OsRandomness;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    fn begun() -> (tempfile::TempDir, Handover) {
        let directory = tempfile::tempdir().unwrap();
        let open = OwnedFd::from(File::open(directory.path()).unwrap());
        (directory, Handover::begin(&OsRandomness, open).unwrap())
    }

    #[test]
    fn its_own_user_is_handed_the_directory_until_it_ends() {
        let (directory, handover) = begun();
        let name = handover.name().to_owned();
        assert_eq!(name.len(), NAME_DIGITS);
        let given = File::from(ask(&name).unwrap()).metadata().unwrap();
        assert_eq!(given.ino(), directory.path().metadata().unwrap().ino());
        drop(handover);
        assert_eq!(ask(&name).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!is_there(&name));
    }

    #[test]
    fn who_asks_and_neither_speaks_nor_listens_holds_up_nobody() {
        let (_directory, handover) = begun();
        let address = SocketAddrUnix::new_abstract_name(handover.name().as_bytes()).unwrap();
        let silent: Vec<OwnedFd> = (0..8)
            .map(|_| {
                let silent = socket().unwrap();
                rustix::net::connect(&silent, &address).unwrap();
                silent
            })
            .collect();
        for _ in 0..3 {
            ask(handover.name()).unwrap();
        }
        drop(silent);
    }

    #[test]
    fn who_is_not_answered_does_not_wait_for_ever() {
        let address = SocketAddrUnix::new_abstract_name(begun().1.name().as_bytes()).unwrap();
        // Somebody who listens and never looks who is there.
        let mute = socket().unwrap();
        rustix::net::bind(&mute, &address).unwrap();
        rustix::net::listen(&mute, 1).unwrap();
        let name = String::from_utf8(address.abstract_name().unwrap().to_vec()).unwrap();
        assert_eq!(ask(&name).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(is_there(&name));
    }

    #[test]
    fn one_more_than_may_wait_is_served_by_whoever_serves_and_told_by_whoever_hangs() {
        let (_directory, handover) = begun();
        std::thread::scope(|scope| {
            let asking = |_| scope.spawn(|| ask(handover.name()));
            let all: Vec<_> = (0..WAITING_MAX + 2).map(asking).collect();
            all.into_iter().for_each(|one| drop(one.join().unwrap().unwrap()));
        });
        drop(handover);
        let address = SocketAddrUnix::new_abstract_name(begun().1.name().as_bytes()).unwrap();
        let mute = socket().unwrap();
        rustix::net::bind(&mute, &address).unwrap();
        rustix::net::listen(&mute, WAITING_MAX).unwrap();
        let name = String::from_utf8(address.abstract_name().unwrap().to_vec()).unwrap();
        // The kernel has one beside those that may wait.
        let _waiting: Vec<_> = (0..=WAITING_MAX).map(|_| connected(&name).unwrap()).collect();
        assert_eq!(connected(&name).unwrap_err(), Errno::AGAIN);
        assert_eq!(ask(&name).unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn what_is_no_directory_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let file = OwnedFd::from(File::create(directory.path().join("file")).unwrap());
        let handover = Handover::begin(&OsRandomness, file).unwrap();
        assert_eq!(ask(handover.name()).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn users_have_what_is_theirs_and_believe_whom_they_must() {
        let [root, one, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(may_have(root, one) && may_have(one, one));
        assert!(!may_have(one, root) && !may_have(one, other));
        assert!(is_believed(root, one, other) && is_believed(one, one, root));
        assert!(is_believed(one, root, one));
        assert!(!is_believed(one, root, root) && !is_believed(one, other, root));
    }
}
