//! A place for a new store: that nothing is there, that it is in no other store, and that it can
//! keep one.
//!
//! # Algorithm
//! One page of a listing shows whether anything is below the prefix but what an earlier attempt
//! has left. Then the configurations are looked for that a store above would have, all at once: two
//! names for each beginning of the prefix, [`PREFIX_PARTS_MAX`] of them at most.
//!
//! # Invariants
//! Objects of others are no store because of their names: what is read there must be a
//! configuration. What may not be read above is none of this user's: it is passed over, since a
//! user whose rights begin at the prefix could make no store else.

use super::BucketStore;
use crate::conditional::{self, Proof};
use crate::failure::is_absence;
use futures_util::StreamExt;
use futures_util::future::join_all;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectStore as _};
use onefold_format::configuration::{CONFIGURATION_MAX_BYTES, Configuration};
use onefold_format::layout;
use onefold_types::{Error, ErrorKind, Result};

/// Parts of a prefix below which stores are made: for each of them a store above is looked for.
pub const PREFIX_PARTS_MAX: usize = 16;

impl BucketStore {
    /// Makes sure that nothing is there yet, and that a store can be.
    ///
    /// # Errors
    ///
    /// Those of [`BucketStore::claim_place`] and of [`BucketStore::prove`].
    pub fn claim(&self) -> Result<()> {
        self.claim_place()?;
        self.prove(Proof::First)
    }

    /// Makes sure that nothing is there yet.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if there is an object below the prefix, or a store above it; `LimitExceeded`
    /// for more than [`PREFIX_PARTS_MAX`] parts.
    pub fn claim_place(&self) -> Result<()> {
        let parts = self.prefix.parts().count();
        if parts > PREFIX_PARTS_MAX {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "'{}' has a prefix of {parts} parts; a store needs one of at most \
                     {PREFIX_PARTS_MAX}",
                    self.name
                ),
            ));
        }
        if let Some(found) = self.first_below()? {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!(
                    "'{}' is not empty (there is '{found}'): a store needs a place of its own",
                    self.name
                ),
            ));
        }
        if let Some(found) = self.store_above()? {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!(
                    "'{}' lies inside another store (there is '{found}'): a store needs a place \
                     of its own, beside the other one",
                    self.name
                ),
            ));
        }
        Ok(())
    }

    /// Something that is below the prefix already.
    fn first_below(&self) -> Result<Option<ObjectPath>> {
        let all = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let first = self.wait(0, async {
            let mut objects = self.objects.list(all);
            while let Some(found) = objects.next().await.transpose()? {
                // What an earlier attempt has left to prove itself is no store.
                if !self.is_own(&found.location) {
                    return Ok(Some(found.location));
                }
            }
            Ok(None)
        });
        first.map_err(|answer| self.failed("listing", &answer))
    }

    /// Whether an object is one by which the bucket was proved.
    pub(super) fn is_own(&self, path: &ObjectPath) -> bool {
        let Some(mut rest) = path.prefix_match(&self.prefix) else { return false };
        let names = (rest.next(), rest.next(), rest.next());
        let (Some(first), Some(second), None) = names else { return false };
        first.as_ref() == conditional::DIRECTORY && conditional::is_own(second.as_ref())
    }

    /// The configuration of a store in which the prefix lies.
    fn store_above(&self) -> Result<Option<ObjectPath>> {
        let parts: Vec<_> = self.prefix.parts().collect();
        let above = (0..parts.len())
            .map(|length| ObjectPath::from_iter(parts.iter().take(length).cloned()));
        let names = above.flat_map(|path| {
            [layout::CONFIGURATION, layout::CONFIGURATION_COPY].map(|name| path.clone().join(name))
        });
        let looked = names.map(|path| async {
            let begins = self.begins_as_configuration(&path).await;
            (path, begins)
        });
        let found = self.wait(0, async { Ok(join_all(looked).await) });
        for (path, is_configuration) in found.map_err(|answer| self.failed("looking", &answer))? {
            match is_configuration {
                Ok(true) => return Ok(Some(path)),
                Ok(false) => {}
                Err(answer) => {
                    let error = self.failed(&format!("looking for '{path}'"), &answer);
                    if error.kind() != ErrorKind::NotPermitted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(None)
    }

    async fn begins_as_configuration(&self, path: &ObjectPath) -> object_store::Result<bool> {
        let bytes = match self.objects.get_opts(path, GetOptions::default()).await {
            Ok(found) if found.meta.size <= CONFIGURATION_MAX_BYTES as u64 => found.bytes().await?,
            // Nothing of it is read.
            Ok(_) => return Ok(false),
            Err(answer) if is_absence(&answer) => return Ok(false),
            Err(answer) => return Err(answer),
        };
        Ok(match Configuration::decode(&bytes) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::NewerFormat,
        })
    }
}
