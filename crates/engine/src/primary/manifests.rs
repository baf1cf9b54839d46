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
use crate::session::{Snapshot, SnapshotList, changes, tombstones};
use onefold_format::share::ShareAddress;
use onefold_types::{Error, ErrorKind, Result, SessionId, ShareId};
use std::io;
use std::path::Path;

/// How the note in a manifest begins whose share was moved since.
const MOVED_TO: &str = "moved to ";

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

/// Whether the store has data of other shares of this machine: files can be moved between them
/// without a mount.
#[must_use]
pub fn has_neighbours(list: &SnapshotList, share: &Share) -> bool {
    let here = &share.here().machine;
    let is_other = |one: &Snapshot| one.record.share.is_some_and(|id| id != share.id);
    list.snapshots.iter().any(|one| is_other(one) && addresses::made_at(one).machine == *here)
}

/// A share that the store has data of, as used at one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownShare {
    /// Its name.
    pub share: ShareId,
    /// Where it was used when they were made.
    pub address: ShareAddress,
    /// Where somebody has said since that it is used.
    pub moved_to: Option<ShareAddress>,
    /// Its manifests, the newest last.
    pub manifests: Vec<SessionId>,
    /// When the newest was begun, in nanoseconds since 1970.
    pub newest_ns: i64,
    /// The bytes of the files that it holds.
    pub bytes: u64,
}

impl KnownShare {
    /// Where it is used, as far as the store knows.
    #[must_use]
    pub fn used_at(&self) -> &ShareAddress {
        self.moved_to.as_ref().unwrap_or(&self.address)
    }
}

/// Notes in the manifests of a share that it is used where it is now. That is for whoever looks at
/// the store; what a job relies on is where they were made.
pub fn note_move(repository: &Repository, share: &Share, by: &str) -> Result<()> {
    let list = SnapshotList::load(repository)?;
    let here = share.here();
    for manifest in Manifests::of(&list, share).own {
        let note = match addresses::made_at(&manifest).is_same(here) {
            true => String::new(),
            false => format!("{MOVED_TO}{} {} {}", here.machine, here.host, here.path),
        };
        let known = list.changes.of(manifest.id);
        changes::edit(repository, manifest.id, known, by, &|said| {
            said.description.clone_from(&note)
        })?;
    }
    Ok(())
}

fn moved_to(manifest: &Snapshot) -> Option<ShareAddress> {
    let mut words = manifest.record.description.strip_prefix(MOVED_TO)?.splitn(3, ' ');
    let mut word = || words.next().map(str::to_owned);
    Some(ShareAddress { machine: word()?, host: word()?, path: word()? })
}

/// All shares of a store, by name and address.
#[must_use]
pub fn known(list: &SnapshotList) -> Vec<KnownShare> {
    let mut known: Vec<KnownShare> = Vec::new();
    let of_shares = list.snapshots.iter().filter(|one| !one.holds_second_copies());
    let mut of_shares: Vec<&Snapshot> = of_shares.collect();
    of_shares.sort_unstable_by_key(|one| one.saved_order());
    for manifest in of_shares {
        let Some(share) = manifest.record.share else { continue };
        let address = addresses::made_at(manifest);
        let is_same = |one: &&mut KnownShare| one.share == share && one.address.is_same(&address);
        let of = KnownShare {
            share,
            address: address.clone(),
            moved_to: moved_to(manifest),
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

/// The shares of a store that are used at an address, as far as the store knows.
#[must_use]
pub fn used_at(list: &SnapshotList, address: &ShareAddress) -> Vec<KnownShare> {
    known(list).into_iter().filter(|known| known.used_at().is_same(address)).collect()
}

/// Refuses a directory as a share where another one was that has data in the store: what it shows
/// may be the zeros of that one's stubs.
///
/// Errors: `AlreadyExists`, with what to do.
pub fn refuse_used(list: &SnapshotList, directory: &Path) -> Result<()> {
    let Ok(directory) = directory.canonicalize() else { return Ok(()) };
    let Some(known) = used_at(list, &addresses::here(&directory)).pop() else { return Ok(()) };
    let (shown, share) = (directory.display(), known.share);
    Err(Error::new(
        ErrorKind::AlreadyExists,
        format!(
            "the store has data of the share {} at '{shown}'; 'onefold share repair {shown}' \
             brings it back into files that show zeros in its place; then 'onefold share remove \
             --lost {share} --final' gives up what is left of it",
            share.short()
        ),
    ))
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
    let addresses = |known| {
        let KnownShare { address, moved_to, .. }: &KnownShare = known;
        std::iter::once(address).chain(moved_to).map(move |address| (known, address))
    };
    for (known, address) in lost.iter().flat_map(addresses) {
        let directory = addresses::directory_of(address);
        // The path of another machine is another directory here.
        let machine = addresses::here(&directory).machine;
        if machine != address.machine || !is_directory(&directory) {
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
