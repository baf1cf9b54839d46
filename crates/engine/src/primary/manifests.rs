//! The manifests of a store's shares: whose they are, and those of shares that are lost.
//!
//! # Invariants
//! A manifest is the share's that it names and of the address that it was made at. A directory
//! relies on, and forgets, those that it has made ([`Share::has_made`]). Others stay until somebody
//! says that their share is lost.

use super::addresses;
use super::second_copies;
use super::share::Share;
use super::turns;
use crate::repository::Repository;
use crate::session::{Snapshot, SnapshotList, tombstones};
use onefold_format::share::ShareAddress;
use onefold_types::{Error, ErrorKind, Result, SessionId, ShareId};
use std::io;
use std::path::Path;

/// Manifests of one share, the newest last.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Those that the directory has made.
    pub own: Vec<Snapshot>,
    /// The others.
    pub elsewhere: Vec<Elsewhere>,
}

/// A manifest of a share that another directory has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// Its name.
    pub id: SessionId,
    /// Where it was made.
    pub address: ShareAddress,
    /// Whether it is newer than what this directory has made: two use the name of one share.
    pub is_newer: bool,
}

impl Manifests {
    /// Those of a share.
    #[must_use]
    pub fn of(list: &SnapshotList, share: &Share) -> Self {
        let mut manifests = Self::default();
        for manifest in list.manifests(share.id) {
            if share.has_made(manifest) {
                manifests.elsewhere.iter_mut().for_each(|other| other.is_newer = false);
                manifests.own.push(manifest.clone());
            } else {
                let address = addresses::made_at(manifest);
                manifests.elsewhere.push(Elsewhere { id: manifest.id, address, is_newer: true });
            }
        }
        manifests
    }
}

/// A share that the store has data of, as used at one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownShare {
    /// Its name.
    pub share: ShareId,
    /// Where it was used.
    pub address: ShareAddress,
    /// Its manifests, the newest last.
    pub manifests: Vec<SessionId>,
    /// When the newest was begun, in nanoseconds since 1970.
    pub newest_ns: i64,
    /// The bytes of the files that it holds.
    pub bytes: u64,
}

/// All shares of a store, by name and address.
#[must_use]
pub fn known(list: &SnapshotList) -> Vec<KnownShare> {
    let mut known: Vec<KnownShare> = Vec::new();
    for manifest in list.snapshots.iter().filter(|one| !one.holds_second_copies()) {
        let Some(share) = manifest.record.share else { continue };
        let address = addresses::made_at(manifest);
        let is_same = |one: &&mut KnownShare| one.share == share && one.address.is_same(&address);
        let of = KnownShare {
            share,
            address: address.clone(),
            manifests: vec![manifest.id],
            newest_ns: manifest.record.started_ns,
            bytes: 0,
        };
        match known.iter_mut().find(is_same) {
            Some(one) => {
                let earlier = std::mem::replace(one, of).manifests;
                one.manifests.splice(0..0, earlier);
            }
            None => known.push(of),
        }
    }
    for one in &mut known {
        let manifests = one.manifests.iter().filter_map(|id| list.get(*id).cloned());
        let manifests: Vec<Snapshot> = manifests.collect();
        let current = turns::current(&manifests).into_iter();
        one.bytes = current.map(|manifest| manifest.record.summary.bytes).sum();
    }
    known.sort_by_key(|one| one.share);
    known
}

/// Refuses to call a share lost that is where it was used, as far as this machine can see.
///
/// Errors: `Invalid` if it is there; others if that cannot be told.
pub fn refuse_unless_lost(lost: &[KnownShare]) -> Result<()> {
    let is_directory = |path: &Path| match path.metadata() {
        Ok(found) => found.is_dir(),
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    };
    for known in lost {
        let directory = addresses::directory_of(&known.address);
        // The path of another machine is another directory here.
        let machine = addresses::here(&directory).machine;
        if machine != known.address.machine || !is_directory(&directory) {
            continue;
        }
        let is_there = match Share::look_at(&directory) {
            Ok(share) => share.id == known.share,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => {
                return Err(error.context(format!(
                    "it cannot be told whether the share is still at '{}', so it is not called \
                     lost",
                    directory.display()
                )));
            }
        };
        if is_there {
            return Err(Error::invalid(format!(
                "the share {} is not lost, it is at '{1}'; 'onefold share rehydrate {1}' brings \
                 its files back, then 'onefold share remove {1}' makes it an ordinary directory",
                known.share.short(),
                directory.display()
            )));
        }
    }
    Ok(())
}

/// Forgets all manifests of a share that is lost. Whoever is stopped goes on later.
pub fn forget_lost(repository: &Repository, lost: &[KnownShare], by: &str) -> Result<()> {
    for id in lost.iter().flat_map(|known| &known.manifests) {
        tombstones::forget(repository, *id, by, "its share is lost")?;
    }
    for known in lost {
        second_copies::forget(repository, known.share, &[addresses::mark(&known.address)], by)?;
    }
    Ok(())
}
