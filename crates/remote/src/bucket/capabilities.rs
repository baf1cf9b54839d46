//! What a bucket does of what a store asks of it, found out by trying, for whoever wants to know.
//!
//! The store itself rests on the first of these alone, and proves it whenever it is opened for
//! writing ([`crate::conditional`]). What is tried lies below `tmp`, beside the store's objects,
//! and goes afterwards if it may be deleted.

use super::{BucketStore, Put};
use crate::conditional::{self, Proof};
use futures_util::TryStreamExt;
use object_store::ObjectStore as _;
use object_store::path::Path as ObjectPath;
use onefold_types::{Error, ErrorKind, Result};

/// Whether something works; if not, why.
pub type Trial = std::result::Result<(), Error>;

/// What was tried.
#[derive(Debug)]
pub struct Capabilities {
    /// What was put first stays, whoever puts it again, also of several at once.
    pub conditional_put: Trial,
    /// A part of an object is read as that part.
    pub ranged_reads: Trial,
    /// What was just put is listed.
    pub lists_at_once: Trial,
    /// What is deleted is gone. Only collections need that.
    pub deletes: Trial,
}

impl BucketStore {
    /// Tries everything, with about thirty requests.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let conditional_put = self.prove(Proof::First);
        let object = conditional::trial().and_then(|(name, bytes)| {
            match self.put_own_at(&name, bytes.clone())? {
                Put::Made => Ok((name, bytes)),
                Put::Taken => Err(Error::damaged("a new name is taken")),
            }
        });
        let (name, bytes) = match object {
            Ok(object) => object,
            Err(error) => {
                let same = || Err(Error::new(error.kind(), error.to_string()));
                let (ranged_reads, lists_at_once, deletes) = (same(), same(), same());
                return Capabilities { conditional_put, ranged_reads, lists_at_once, deletes };
            }
        };
        let path = self.below(conditional::DIRECTORY).join(name.as_str());
        let ranged_reads = self.reads_part(&path, &bytes);
        let lists_at_once = self.lists(&path).and_then(|is_listed| match is_listed {
            true => Ok(()),
            false => Err(Error::damaged("an object that was just put is not listed")),
        });
        let deletes = self.delete_at(&name).and_then(|()| match self.size_at(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::damaged("an object that was just deleted is there")),
        });
        Capabilities { conditional_put, ranged_reads, lists_at_once, deletes }
    }

    fn reads_part(&self, path: &ObjectPath, bytes: &[u8]) -> Result<()> {
        let (first, last) = (bytes.len() / 4, bytes.len() / 2);
        let mut part = vec![0; last - first];
        let found = self.range(path, first as u64..last as u64)?;
        self.collect(path, found, &mut part)?;
        match part == bytes[first..last] {
            true => Ok(()),
            false => Err(Error::damaged("a part of an object is not that part")),
        }
    }

    fn lists(&self, path: &ObjectPath) -> Result<bool> {
        let below = self.below(conditional::DIRECTORY);
        let mut names = self.objects.list(Some(&below));
        loop {
            let next = self.wait(0, names.try_next());
            match next.map_err(|answer| self.failed("listing", &answer))? {
                Some(found) if found.location == *path => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }
}
