//! Parts of objects in files of this machine, within a bound.
//!
//! ```text
//! DIRECTORY/CACHEDIR.TAG      so that backups of this machine pass it over
//! DIRECTORY/<digit>/<name>    one part of one object
//!
//! name:   the first 16 bytes of BLAKE3 of what it is part of, in hexadecimal digits
//! digit:  the first of them
//! file:   32 bytes   BLAKE3 of all of that name's 32 bytes and of what follows here
//!          8 bytes   the whole object's size, little-endian; 0 for a range
//!         and its bytes
//! ```
//!
//! # Algorithm
//! The bound is divided among sixteen shards, since names are spread evenly. A process that first
//! keeps something in a shard adds up what is there, and from then on what it keeps itself; above
//! the bound the files that were not used for longest go, until a quarter of it is free. When one
//! was used is its time of modification, which is brought up to date once in an hour at most.
//!
//! # Invariants
//! A file is whole or does not fit its checksum; after a loss of power there may be some of these,
//! which are passed over and written again. Several processes together may exceed the bound by what
//! they keep until each looks again.
//!
//! # Concurrency
//! One lock for each shard, held while it is looked through. Files appear whole, by a rename.

use onefold_store::Key;
use onefold_types::StoreId;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How many shards there are.
pub const SHARDS: usize = 16;
/// What stands in a file before its bytes.
const HEAD_BYTES: usize = 32 + 8;
/// Of what a shard may hold, the part that one file may take.
const PART_MAX: u64 = 4;
/// How exactly it is known when a file was used.
const USED_PERIOD: Duration = Duration::from_secs(3600);
/// What names and checksums are derived for.
const CONTEXT: &str = "onefold 1 local cache of parts of objects";
/// The convention of directories that backups pass over.
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
                   # Parts of objects of Onefold stores that are elsewhere; may be deleted.\n";

/// Number of drafts that this process has made.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// A part of an object.
pub(super) enum Extent<'a> {
    Range { key: &'a Key, offset: u64, length_bytes: usize },
    Tail { key: &'a Key, length_bytes: usize },
}

impl Extent<'_> {
    /// The object that it is part of.
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Range { key, .. } | Self::Tail { key, .. } => key,
        }
    }

    /// As many bytes as were asked for.
    pub(super) fn wanted_bytes(&self) -> usize {
        match self {
            Self::Range { length_bytes, .. } | Self::Tail { length_bytes, .. } => *length_bytes,
        }
    }

    /// What tells it from all others.
    fn name(&self, store: StoreId) -> [u8; 32] {
        let (is_tail, offset) = match self {
            Self::Range { offset, .. } => (false, *offset),
            Self::Tail { .. } => (true, 0),
        };
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&store.0);
        hasher.update(&[u8::from(is_tail)]);
        hasher.update(&offset.to_le_bytes());
        hasher.update(&(self.wanted_bytes() as u64).to_le_bytes());
        hasher.update(self.key().as_str().as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// How many bytes it has, of an object of this size.
    fn length_bytes(&self, size: u64) -> u64 {
        match self {
            Self::Range { length_bytes, .. } => *length_bytes as u64,
            Self::Tail { length_bytes, .. } => size.min(*length_bytes as u64),
        }
    }
}

/// The files; see the module.
pub(super) struct Shards {
    directory: PathBuf,
    store: StoreId,
    shard_max_bytes: u64,
    /// What each holds, as far as this process knows; `None` before it has looked.
    sizes: [Mutex<Option<u64>>; SHARDS],
}

impl Shards {
    pub(super) fn new(directory: PathBuf, store: StoreId, size_max_bytes: u64) -> Self {
        let shard_max_bytes = size_max_bytes / SHARDS as u64;
        Self { directory, store, shard_max_bytes, sizes: Default::default() }
    }

    fn shard(&self, name: &[u8; 32]) -> usize {
        usize::from(name[0] >> 4)
    }

    fn path(&self, name: &[u8; 32]) -> PathBuf {
        let shard = format!("{:x}", self.shard(name));
        self.directory.join(shard).join(hex::encode(&name[..16]))
    }

    /// Whether there seems to be a part.
    pub(super) fn holds(&self, extent: &Extent<'_>) -> bool {
        self.path(&extent.name(self.store)).exists()
    }

    /// A part and the size of its object, if it is kept.
    pub(super) fn read(&self, extent: &Extent<'_>) -> Option<(u64, Vec<u8>)> {
        let name = extent.name(self.store);
        let mut file = File::open(self.path(&name)).ok()?;
        let found = file.metadata().ok()?;
        if found.len() > (HEAD_BYTES as u64).saturating_add(extent.length_bytes(u64::MAX)) {
            return None;
        }
        let mut all = Vec::with_capacity(usize::try_from(found.len()).ok()?);
        file.read_to_end(&mut all).ok()?;
        let (check, rest) = all.split_first_chunk::<32>()?;
        if *check != checksum(&name, rest) {
            return None;
        }
        let (size, bytes) = rest.split_first_chunk::<8>()?;
        let size = u64::from_le_bytes(*size);
        if bytes.len() as u64 != extent.length_bytes(size) {
            return None;
        }
        let is_old = found.modified().ok().and_then(|at| at.elapsed().ok());
        if is_old.is_some_and(|age| age > USED_PERIOD) {
            // It may be somebody else's; then it goes earlier than it could.
            let _ = file.set_modified(SystemTime::now());
        }
        all.drain(..HEAD_BYTES);
        Some((size, all))
    }

    /// Keeps a part, if there is room for it. Whatever fails is passed over.
    pub(super) fn keep(&self, extent: &Extent<'_>, size: u64, bytes: &[u8]) {
        let file_bytes = (HEAD_BYTES + bytes.len()) as u64;
        if file_bytes > self.shard_max_bytes / PART_MAX
            || bytes.len() as u64 != extent.length_bytes(size)
        {
            return;
        }
        let name = extent.name(self.store);
        let path = self.path(&name);
        let Some(directory) = path.parent() else { return };
        let _ = self.write(directory, &path, &name, (size, bytes));
        let Some(slot) = self.sizes.get(self.shard(&name)) else { return };
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let held = match *known {
            Some(held) => held + file_bytes,
            None => total(&look_through(directory)),
        };
        let is_full = held > self.shard_max_bytes;
        *known = Some(if is_full { make_room(directory, self.shard_max_bytes) } else { held });
    }

    fn write(
        &self,
        directory: &Path,
        path: &Path,
        name: &[u8; 32],
        (size, bytes): (u64, &[u8]),
    ) -> io::Result<()> {
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            fs::write(self.directory.join("CACHEDIR.TAG"), TAG)?;
        }
        let mut all = Vec::with_capacity(HEAD_BYTES + bytes.len());
        all.extend_from_slice(&[0; 32]);
        all.extend_from_slice(&size.to_le_bytes());
        all.extend_from_slice(bytes);
        let (check, rest) = all.split_at_mut(32);
        check.copy_from_slice(&checksum(name, rest));
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_extension(format!("{}-{number}", std::process::id()));
        fs::write(&draft, &all)
            .and_then(|()| fs::rename(&draft, path))
            .inspect_err(|_| drop(fs::remove_file(&draft)))
    }
}

fn checksum(name: &[u8; 32], rest: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(name);
    hasher.update(rest);
    *hasher.finalize().as_bytes()
}

/// A file of a shard: when it was used, and what it takes.
struct Kept {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// What there is; what cannot be looked at is passed over.
fn look_through(directory: &Path) -> Vec<Kept> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Some(Kept { used, path: entry.path(), bytes: found.len() })
    });
    files.collect()
}

fn total(files: &[Kept]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

/// Removes what was not used for longest, until a quarter of the bound is free; what is left.
fn make_room(directory: &Path, max_bytes: u64) -> u64 {
    let mut files = look_through(directory);
    files.sort_by_key(|file| file.used);
    let mut left = total(&files);
    for file in files {
        if left <= max_bytes - max_bytes / 4 {
            break;
        }
        if fs::remove_file(&file.path).is_ok() {
            left -= file.bytes;
        }
    }
    left
}
