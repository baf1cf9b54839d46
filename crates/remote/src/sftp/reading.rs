//! Reading objects, and removing them.
//!
//! # Invariants
//! A name is looked at and opened at the same time, so what is read in one round trip more is known
//! to be a file and how long it is. Only ranges are read from files kept open, which proves nothing
//! about existence; none is kept that was deleted here.

use super::connection::{Connection, Done, Fault, Opened};
use super::kind::Kind;
use super::{OpenObject, SftpStore, lock, too_large};
use crate::read_ahead::PartialRanges;
use crate::stopping::Effect;
use onefold_store::{Key, OBJECT_MAX_BYTES};
use onefold_types::{Error, ErrorKind, Result};
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a name leads to.
pub enum Whole {
    Bytes(Vec<u8>),
    /// Nothing has that name.
    Absent,
    /// Something that is no file.
    Foreign,
}

pub(super) enum Found {
    Object(OpenObject),
    Absent,
    Foreign,
}

/// What is known of a file that is one.
fn size_of_file(name: &str, found: &FileAttributes) -> Done<Option<u64>> {
    let kind = Kind::of(found);
    if kind == Kind::Link {
        return Err(Fault::Other(Error::new(
            ErrorKind::Io,
            format!(
                "'{name}' is a symbolic link, and none is followed inside a store; remove it, and \
                 put what belongs there in its place"
            ),
        )));
    }
    match found.size {
        // Servers that say nothing of kinds are believed to show files.
        Some(size) if matches!(kind, Kind::File | Kind::Unknown) => Ok(Some(size)),
        _ => Ok(None),
    }
}

pub(super) async fn open(connection: &Arc<Connection>, name: &str, path: &str) -> Done<Found> {
    let opening = connection.open(path, OpenFlags::READ);
    let (looked, opened) = futures_util::future::join(connection.look_at(path), opening).await;
    let found = match looked {
        Ok(found) => found,
        Err(fault) if fault.is_absence() => return Ok(Found::Absent),
        Err(fault) => return Err(fault),
    };
    let Some(size_bytes) = size_of_file(name, &found)? else { return Ok(Found::Foreign) };
    match opened {
        Ok(file) => Ok(Found::Object(OpenObject { file, size_bytes })),
        Err(fault) if fault.is_absence() => Ok(Found::Absent),
        Err(fault) => Err(fault),
    }
}

pub(super) async fn fill(name: &str, file: &Opened, offset: u64, buffer: &mut [u8]) -> Done<()> {
    let wanted = buffer.len();
    match file.read(offset, buffer).await? {
        read if read == wanted => Ok(()),
        _ => Err(Fault::Other(Error::damaged(format!("'{name}' is shorter than its size says")))),
    }
}

impl SftpStore {
    pub(super) fn whole(&self, key: &Key) -> Result<Whole> {
        let path = self.at(key.as_str());
        self.wait(&format!("reading '{key}'"), Effect::Read, async |connection| {
            let object = match open(connection, key.as_str(), &path).await? {
                Found::Object(object) => object,
                Found::Absent => return Ok(Whole::Absent),
                Found::Foreign => return Ok(Whole::Foreign),
            };
            if object.size_bytes > OBJECT_MAX_BYTES as u64 {
                return Err(Fault::Other(too_large(key, object.size_bytes)));
            }
            let mut bytes = vec![0; object.size_bytes as usize];
            fill(key.as_str(), &object.file, 0, &mut bytes).await?;
            Ok(Whole::Bytes(bytes))
        })
    }

    /// Opens an object, and keeps it open for ranges.
    async fn open_kept(&self, connection: &Arc<Connection>, key: &Key) -> Done<Arc<OpenObject>> {
        let deletions = self.deletions.load(Ordering::SeqCst);
        let Found::Object(object) = open(connection, key.as_str(), &self.at(key.as_str())).await?
        else {
            return Err(Fault::Other(self.absent(key)));
        };
        let object = Arc::new(object);
        let mut files = lock(&self.files);
        if self.deletions.load(Ordering::SeqCst) == deletions {
            files.put(key.clone(), Arc::clone(&object));
        }
        Ok(object)
    }

    /// How much of the buffer there was, and the object's size.
    pub(super) fn read_range(
        &self,
        key: &Key,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, u64)> {
        self.wait(&format!("reading '{key}'"), Effect::Read, async |connection| {
            let kept = lock(&self.files).get(key).cloned();
            let object = match kept.filter(|kept| !kept.file.connection.is_lost()) {
                Some(kept) => kept,
                None => self.open_kept(connection, key).await?,
            };
            let there = object.size_bytes.saturating_sub(offset).min(buffer.len() as u64);
            let there = usize::try_from(there).unwrap_or(usize::MAX);
            let room = buffer.get_mut(..there).unwrap_or_default();
            fill(key.as_str(), &object.file, offset, room).await?;
            Ok((there, object.size_bytes))
        })
    }

    pub(super) fn tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.wait(&format!("reading '{key}'"), Effect::Read, async |connection| {
            let object = self.open_kept(connection, key).await?;
            let length = object.size_bytes.min(length_bytes as u64);
            if length > OBJECT_MAX_BYTES as u64 {
                return Err(Fault::Other(too_large(key, object.size_bytes)));
            }
            let mut bytes = vec![0; length as usize];
            fill(key.as_str(), &object.file, object.size_bytes - length, &mut bytes).await?;
            Ok((object.size_bytes, bytes))
        })
    }

    pub(super) fn size_of(&self, key: &Key) -> Result<u64> {
        let path = self.at(key.as_str());
        self.wait(&format!("looking at '{key}'"), Effect::Read, async |connection| {
            let found = connection.look_at(&path).await?;
            let size = size_of_file(key.as_str(), &found)?;
            size.ok_or_else(|| Fault::Other(self.absent(key)))
        })
    }

    pub(super) fn remove(&self, key: &Key) -> Result<()> {
        self.refuse_writing()?;
        let path = self.at(key.as_str());
        let removed = self.wait(&format!("deleting '{key}'"), Effect::Write, async |connection| {
            let session = &connection.session;
            let removing = connection.ask(session.remove(&path));
            let removed = match key.as_str().rsplit_once('/') {
                // Directories below the second level belong to sessions and the like: they go when
                // they are empty.
                Some((directory, _)) if directory.contains('/') => {
                    let emptied = connection.ask(session.rmdir(self.at(directory)));
                    futures_util::future::join(removing, emptied).await.0
                }
                _ => removing.await,
            };
            match removed {
                Ok(_) => Ok(()),
                Err(fault) if fault.is_absence() => Ok(()),
                // No object has that name, but a directory.
                Err(fault @ Fault::Refused(..)) => match connection.look_at(&path).await {
                    Ok(found) if Kind::is_directory(&found) => Ok(()),
                    Err(lost @ Fault::Lost(_)) => Err(lost),
                    _ => Err(fault),
                },
                Err(fault) => Err(fault),
            }
        });
        self.deletions.fetch_add(1, Ordering::SeqCst);
        lock(&self.files).pop(key);
        removed
    }
}

impl PartialRanges for SftpStore {
    fn get_up_to(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_range(key, offset, buffer).map(|(read, _)| read)
    }
}
