//! Putting: a file is written under a name that nobody else uses, and then given its own.
//!
//! # Algorithm
//! What is put is written in parts of at most [`PART_BYTES`] where it comes in pieces. A part whose
//! connection broke is written again from its beginning: what was made durable before stays. Then a
//! hard link gives the file its name, which the proof (`proof.rs`) has seen to refuse names that
//! are taken. Last, the directories on the way to the name are made durable, which also makes those
//! durable that were made here.
//!
//! Each step waits for an answer, so what need not wait for another goes with it: the directory of
//! the name is asked for when the file is opened, whatever comes of it, and the temporary name is
//! removed when directories are opened.
//!
//! # Invariants
//! A refusal is looked into: SFTP has one code for most of them. If the name is there, it was
//! taken; after a request without an answer perhaps by this very file, which is compared then.

use super::SftpStore;
use super::connection::{Connection, Done, Fault};
use super::kind::Kind;
use super::settling::parents;
use super::{TEMPORARY_DIRECTORY, lock, too_large};
use crate::stopping::Effect;
use onefold_store::{Key, OBJECT_MAX_BYTES};
use onefold_types::{Error, ErrorKind, Result};
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use std::sync::Arc;

/// Bytes of pieces that are held, and written together.
pub const PART_BYTES: usize = 8 << 20;
/// Names of directories that were asked for and are kept.
const DIRECTORIES_MAX: usize = 1 << 12;
/// How often a directory may vanish while a file in it is named.
const NAMING_ATTEMPTS: usize = 16;
/// What is compared at once.
const COMPARED_BYTES: usize = 256 << 10;

/// What became of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It is there now.
    Made,
    /// The name was taken.
    Taken,
}

/// Attributes of a directory that is made.
pub(super) fn directory_attributes() -> FileAttributes {
    FileAttributes { permissions: Some(0o700), ..FileAttributes::empty() }
}

/// A name for a file that is being written; never used twice.
pub(super) fn temporary_name() -> Result<String> {
    let mut number = [0; 16];
    getrandom::fill(&mut number)
        .map_err(|error| Error::invalid(format!("the system gives no random bytes: {error}")))?;
    Ok(format!("{TEMPORARY_DIRECTORY}/sftp-{}", hex::encode(number)))
}

impl SftpStore {
    /// Puts an object that nothing may replace.
    pub(super) fn put_new(&self, key: &Key, bytes: &[u8]) -> Result<Put> {
        self.refuse_writing()?;
        if bytes.len() > OBJECT_MAX_BYTES {
            return Err(too_large(key, bytes.len() as u64));
        }
        let temporary = temporary_name()?;
        let (directory, _) = key.as_str().rsplit_once('/').unwrap_or_default();
        let written = self.write_beside(&temporary, 0, bytes, directory);
        self.name_or_remove(written, &temporary, key, bytes.len() as u64)
    }

    /// The same for what comes in pieces.
    pub(super) fn put_in_parts(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<Put> {
        self.refuse_writing()?;
        let temporary = temporary_name()?;
        let mut offset = 0;
        let mut write = || -> Result<()> {
            let (mut part, mut piece) = (Vec::new(), Vec::new());
            loop {
                piece.clear();
                let more = next(&mut piece)?;
                part.extend_from_slice(&piece);
                if !more || part.len() >= PART_BYTES {
                    self.write_part(&temporary, offset, &part)?;
                    offset += part.len() as u64;
                    part.clear();
                }
                if !more {
                    return Ok(());
                }
            }
        };
        let written = write();
        self.name_or_remove(written, &temporary, key, offset)
    }

    fn name_or_remove(
        &self,
        written: Result<()>,
        temporary: &str,
        key: &Key,
        bytes: u64,
    ) -> Result<Put> {
        let named = written.and_then(|()| self.name(temporary, key));
        // What is not removed is removed by a later cleaning.
        match named {
            Ok(Put::Made) => {
                let what = format!("making '{key}' durable");
                let (directory, _) = key.as_str().rsplit_once('/').unwrap_or_default();
                let (directories, path) = (parents(directory), self.at(temporary));
                self.wait(&what, Effect::Write, async |connection| {
                    let removing = connection.ask(connection.session.remove(&path));
                    let syncing = self.sync_all(connection, &directories);
                    futures_util::future::join(removing, syncing).await.1
                })?;
                Ok(Put::Made)
            }
            Ok(Put::Taken) => {
                self.discard(temporary);
                Ok(Put::Taken)
            }
            Err(error) => {
                if error.kind() != ErrorKind::Unavailable {
                    self.discard(temporary);
                }
                Err(self.explained(error, bytes))
            }
        }
    }

    /// Writes a part of a file that becomes as long as the part reaches, and makes it durable.
    pub(super) fn write_part(&self, temporary: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_beside(temporary, offset, bytes, "")
    }

    /// The same, and asks for a directory that will be needed then.
    fn write_beside(
        &self,
        temporary: &str,
        offset: u64,
        bytes: &[u8],
        directory: &str,
    ) -> Result<()> {
        let path = self.at(temporary);
        let end = offset + bytes.len() as u64;
        self.wait(&format!("writing '{temporary}'"), Effect::Write, async |connection| {
            // Again if the connection broke, so not exclusively: the name is nobody else's.
            let create = if offset == 0 { OpenFlags::CREATE } else { OpenFlags::empty() };
            let flags = OpenFlags::WRITE | create;
            let opening = connection.open(&path, flags);
            let beside = self.ask_for_directory(connection, directory);
            let file = match futures_util::future::join(opening, beside).await.0 {
                Err(fault) if fault.is_absence() && offset == 0 => {
                    self.make_directory(connection, TEMPORARY_DIRECTORY).await?;
                    connection.open(&path, flags).await?
                }
                opened => opened?,
            };
            file.write(offset, bytes).await?;
            let size = match connection.can.sync {
                true => {
                    let (synced, size) =
                        futures_util::future::join(file.sync(bytes.len() as u64), file.size())
                            .await;
                    synced?;
                    size?
                }
                false => file.size().await?,
            };
            match size {
                Some(size) if size != end => Err(Fault::Other(Error::damaged(format!(
                    "the server took {end} bytes and has {size}"
                )))),
                _ => Ok(()),
            }
        })
    }

    /// Asks for a directory once; whoever needs it sees what came of that.
    async fn ask_for_directory(&self, connection: &Arc<Connection>, directory: &str) {
        if directory.is_empty() || lock(&self.directories).contains(directory) {
            return;
        }
        let making = connection.session.mkdir(self.at(directory), directory_attributes());
        let _ = connection.ask(making).await;
        let mut directories = lock(&self.directories);
        if directories.len() >= DIRECTORIES_MAX {
            directories.clear();
        }
        directories.insert(directory.to_owned());
    }

    /// Gives a file its name, if nothing has it.
    pub(super) fn name(&self, temporary: &str, key: &Key) -> Result<Put> {
        let target = self.at(key.as_str());
        let mut is_unknown = false;
        self.wait(&format!("naming '{key}'"), Effect::Write, async |connection| {
            // From the second time on.
            let was_asked = std::mem::replace(&mut is_unknown, true);
            for _ in 0..NAMING_ATTEMPTS {
                let fault = match self.take_name(connection, temporary, &target).await {
                    Ok(()) => return Ok(Put::Made),
                    Err(fault @ Fault::Refused(..)) => fault,
                    Err(fault) => return Err(fault),
                };
                let ours = self.at(temporary);
                let looking = futures_util::future::join(
                    connection.is_absent(&target),
                    connection.is_absent(&ours),
                );
                let (is_free, is_gone) = looking.await;
                if !is_free? {
                    let is_own = was_asked && self.is_same(connection, temporary, &target).await?;
                    return Ok(if is_own { Put::Made } else { Put::Taken });
                }
                if !fault.is_absence() || is_gone? {
                    return Err(fault);
                }
                let (directory, _) = key.as_str().rsplit_once('/').unwrap_or_default();
                // One after the other: each needs the one above.
                for parent in parents(directory).iter().filter(|name| !name.is_empty()) {
                    self.make_directory(connection, parent).await?;
                }
            }
            let said = format!("the directory of '{key}' vanishes again and again");
            Err(Fault::Other(Error::new(ErrorKind::Io, said)))
        })
    }

    /// The one request that must fail where the name is taken.
    pub(super) async fn take_name(
        &self,
        connection: &Arc<Connection>,
        temporary: &str,
        target: &str,
    ) -> Done<()> {
        if !connection.can.link {
            let said = "the server offers no hard links, as none does that lets nobody write";
            return Err(Fault::Other(self.unfit(said)));
        }
        let link = connection.session.hardlink(self.at(temporary), target);
        connection.ask(link).await.map(drop)
    }

    pub(super) async fn make_directory(
        &self,
        connection: &Arc<Connection>,
        name: &str,
    ) -> Done<()> {
        let path = self.at(name);
        let made = connection.ask(connection.session.mkdir(&path, directory_attributes())).await;
        let Err(fault @ Fault::Refused(..)) = made else { return made.map(drop) };
        match connection.look_at(&path).await {
            Ok(found) if Kind::is_directory(&found) => Ok(()),
            Ok(_) => {
                Err(Fault::Other(Error::invalid(format!("'{name}' is an object, not a directory"))))
            }
            Err(lost @ Fault::Lost(_)) => Err(lost),
            Err(_) => Err(fault),
        }
    }

    /// Whether a name leads to the file that was to have it.
    pub(super) async fn is_same(
        &self,
        connection: &Arc<Connection>,
        temporary: &str,
        target: &str,
    ) -> Done<bool> {
        let ours = match connection.open(&self.at(temporary), OpenFlags::READ).await {
            Ok(ours) => ours,
            // Removed by somebody's cleaning, which takes it for one that was given up.
            Err(fault) if fault.is_absence() => return Ok(false),
            Err(fault) => return Err(fault),
        };
        let theirs = connection.open(target, OpenFlags::READ).await?;
        let mut offset = 0;
        loop {
            let (mut one, mut other) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
            let read = futures_util::future::try_join(
                ours.read(offset, &mut one),
                theirs.read(offset, &mut other),
            );
            let (first, second) = read.await?;
            if first != second || one != other {
                return Ok(false);
            }
            if first < COMPARED_BYTES {
                return Ok(true);
            }
            offset += first as u64;
        }
    }
}
