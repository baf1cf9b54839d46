//! A machine's own memory of a store: the snapshots that it saved, and the packs that it proved.
//!
//! A client with the password that may only append can put objects that lie: a snapshot that this
//! machine never saved, whose files look unchanged, or a pack that empties a container. So a backup
//! skips a file, and a collection believes a pack, only by this memory (docs/PROTOCOL.md, section
//! 11).
//!
//! # Layout
//! One file for each store, among the user's own: a record sealed under the store's id. It holds a
//! varint count and the ids of snapshots, in the order in which they were saved; then a varint
//! count and the hashes of packs; then likewise the hashes of the paths of sources that were mount
//! points.
//!
//! # Invariants
//! - The engine looks again at everything that is not here: it reads files, and compares packs.
//! - A memory that is missing, damaged or forged by another store costs time, and no data.
//!
//! # Concurrency
//! Processes of a machine take turns: each locks the directory, reads the file again, adds its news
//! and replaces the file.

use onefold_crypto::{Purpose, Vault};
use onefold_format::wire::{Reader, Writer};
use onefold_store::open_own;
use onefold_types::environment::Randomness;
use onefold_types::error::Context;
use onefold_types::{Error, Fingerprint, Result, SessionId, StoreId};
use rustix::fs::FlockOperation;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Snapshots that are remembered, those that were saved last.
pub const SNAPSHOTS_MAX: usize = 1 << 12;
/// Packs that are remembered.
pub const PACKS_MAX: usize = 1 << 16;
/// Mount points that are remembered.
pub const MOUNT_POINTS_MAX: usize = 1 << 10;
/// A file that has as much as it may have.
const LENGTH_MAX_BYTES: u64 =
    (SNAPSHOTS_MAX * 16 + (PACKS_MAX + MOUNT_POINTS_MAX) * 32 + 4096) as u64;

/// What a machine remembers of one store.
pub struct Remembered {
    directory: Option<PathBuf>,
    store: StoreId,
    vault: Arc<Vault>,
    randomness: Arc<dyn Randomness>,
    facts: Mutex<Facts>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Facts {
    /// Saved by this machine, in that order.
    snapshots: Vec<SessionId>,
    /// Hashes of packs whose sections are those of their containers.
    packs: BTreeSet<Fingerprint>,
    /// Hashes of the paths of sources on which something was mounted.
    mount_points: BTreeSet<Fingerprint>,
}

impl Remembered {
    /// What is remembered of a store in a directory, which need not exist yet; without one nothing
    /// is, but by this process.
    #[must_use]
    pub fn load(
        directory: Option<PathBuf>,
        store: StoreId,
        vault: Arc<Vault>,
        randomness: Arc<dyn Randomness>,
    ) -> Self {
        let remembered = Self { directory, store, vault, randomness, facts: Mutex::default() };
        let read = remembered.directory.as_deref().map(|directory| remembered.read(directory));
        if let Some(Ok(facts)) = read {
            *remembered.facts() = facts;
        }
        remembered
    }

    /// Whether this machine has saved a snapshot.
    #[must_use]
    pub fn has_saved(&self, snapshot: SessionId) -> bool {
        self.facts().snapshots.contains(&snapshot)
    }

    /// Whether a pack of this hash was compared with its containers.
    #[must_use]
    pub fn is_proved(&self, pack: &Fingerprint) -> bool {
        self.facts().packs.contains(pack)
    }

    /// Notes a snapshot that was saved. Where that cannot be noted, the next backup reads files
    /// again.
    pub fn note_saved(&self, snapshot: SessionId) {
        let _ = self.note(|facts| facts.note_saved(snapshot));
    }

    /// Notes the packs that were proved, of all that there are. Where that cannot be noted, they
    /// are proved again.
    pub fn set_packs(&self, packs: BTreeSet<Fingerprint>) {
        if self.facts().packs != packs {
            let _ = self.note(|facts| facts.packs = packs);
        }
    }

    /// Notes a pack that was made of sections that were proved.
    pub fn note_pack(&self, pack: Fingerprint) {
        let _ = self.note(|facts| facts.packs.extend([pack]));
    }

    /// Whether something was mounted on a source when this machine saved it.
    #[must_use]
    pub fn was_mount_point(&self, source: &Fingerprint) -> bool {
        self.facts().mount_points.contains(source)
    }

    /// Notes sources on which something is mounted, and forgets others. Where that cannot be noted,
    /// nobody is told when nothing is mounted there any more.
    pub fn note_mount_points(
        &self,
        mounted: &BTreeSet<Fingerprint>,
        forgotten: &BTreeSet<Fingerprint>,
    ) {
        let known = self.facts().mount_points.clone();
        if !mounted.is_subset(&known) || !forgotten.is_disjoint(&known) {
            let _ = self.note(|facts| {
                facts.mount_points.extend(mounted);
                facts.mount_points.retain(|source| !forgotten.contains(source));
            });
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, directory: &Path) -> Result<Facts> {
        let file = open_own(&self.file_in(directory)).context(|| "opening it")?;
        let mut sealed = Vec::new();
        file.take(LENGTH_MAX_BYTES).read_to_end(&mut sealed).context(|| "reading it")?;
        Facts::decode(&self.vault.open_record(Purpose::Session, &self.store.0, &sealed)?)
    }

    fn file_in(&self, directory: &Path) -> PathBuf {
        directory.join(self.store.to_string())
    }

    fn note(&self, note: impl FnOnce(&mut Facts)) -> Result<()> {
        let Some(directory) = &self.directory else {
            note(&mut self.facts());
            return Ok(());
        };
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.context(|| "making its directory")?;
        let open = File::open(directory).context(|| "opening its directory")?;
        rustix::fs::flock(&open, FlockOperation::LockExclusive)
            .map_err(|errno| Error::io("locking its directory", errno.into()))?;
        let mut facts = self.read(directory).unwrap_or_default();
        note(&mut facts);
        let (name, encoded) = (&self.store.0, facts.encode());
        let sealed = self.vault.seal_record(Purpose::Session, name, &encoded, &*self.randomness)?;
        *self.facts() = facts;
        let mut draft = tempfile::NamedTempFile::new_in(directory).context(|| "a draft")?;
        draft.write_all(&sealed).context(|| "writing it")?;
        draft
            .persist(self.file_in(directory))
            .map_err(|error| error.error)
            .context(|| "naming it")?;
        Ok(())
    }
}

impl Facts {
    fn note_saved(&mut self, snapshot: SessionId) {
        self.snapshots.push(snapshot);
        let over = self.snapshots.len().saturating_sub(SNAPSHOTS_MAX);
        self.snapshots.drain(..over);
    }

    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.varint(self.snapshots.len() as u64);
        self.snapshots.iter().for_each(|snapshot| writer.raw(&snapshot.0));
        for (hashes, max) in [(&self.packs, PACKS_MAX), (&self.mount_points, MOUNT_POINTS_MAX)] {
            let hashes = hashes.iter().take(max);
            writer.varint(hashes.len() as u64);
            hashes.for_each(|hash| writer.raw(&hash.0));
        }
        writer.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "what is remembered of a store");
        let mut facts = Self::default();
        for _ in 0..reader.count(16)? {
            facts.snapshots.push(SessionId(reader.id()?));
        }
        for hashes in [&mut facts.packs, &mut facts.mount_points] {
            for _ in 0..reader.count(32)? {
                hashes.insert(reader.fingerprint()?);
            }
        }
        reader.finish()?;
        Ok(facts)
    }
}
