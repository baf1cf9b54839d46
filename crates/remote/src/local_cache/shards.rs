//! Parts of objects in files of this machine, within a bound.
//!
//! ```text
//! DIRECTORY/CACHEDIR.TAG      so that backups of this machine pass it over
//! DIRECTORY/<digit>/<name>    one part of one object
//! DIRECTORY/<digit>/<name>.written    one that was written and not read back yet
//!
//! name:   the first 16 bytes of BLAKE3 of what it is part of, in hexadecimal digits
//! digit:  the first of them
//! file:   32 bytes   BLAKE3 of all of that name's 32 bytes and of what follows here
//!          8 bytes   the whole object's size, little-endian; 0 for a range
//!         and its bytes
//!
//! A whole object, of which parts are read: the checksum is over the name, the size and these
//!         16 bytes   the beginning of BLAKE3 of each block of 64 KiB, one after the other
//!         and its bytes
//! ```
//!
//! # Algorithm
//! The bound is divided among sixteen shards, since names are spread evenly. A process adds up what
//! is in a shard when it has kept an eighth of its bound there, and for the first time by chance,
//! as likely as what it keeps is large: many that keep little look as often together. Above the
//! bound the files that were not used for longest go, until a quarter of it is free. When one was
//! used is its time of modification, which is brought up to date once in an hour at most.
//!
//! # Invariants
//! A file is whole or does not fit its checksum; after a loss of power there may be some of these,
//! which are passed over and written again. Processes that work at the same time may each exceed
//! the bound by an eighth, until they look again.
//!
//! # Concurrency
//! One lock for each shard, held while it is looked through. Files appear whole, by a rename.

use onefold_store::{Key, open_own};
use onefold_types::StoreId;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How many shards there are.
pub const SHARDS: usize = 16;
/// What stands in a file before its bytes.
const HEAD_BYTES: usize = 32 + 8;
/// Of what a shard may hold, the part that one file may take.
pub const PART_MAX: u64 = 4;
/// Of what a shard may hold, the part after which it is looked through again.
const LOOK_PART: u64 = 8;
/// How exactly it is known when a file was used.
const USED_PERIOD: Duration = Duration::from_secs(3600);
/// Bytes of a whole object that are verified together.
pub const BLOCK_BYTES: usize = 64 << 10;
/// What is written of a block's checksum.
const BLOCK_CHECK_BYTES: usize = 16;
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
    Whole { key: &'a Key },
}

impl Extent<'_> {
    /// The object that it is part of.
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Range { key, .. } | Self::Tail { key, .. } | Self::Whole { key } => key,
        }
    }

    /// As many bytes as were asked for; of a whole object nobody asks for a number.
    pub(super) fn wanted_bytes(&self) -> usize {
        match self {
            Self::Range { length_bytes, .. } | Self::Tail { length_bytes, .. } => *length_bytes,
            Self::Whole { .. } => usize::MAX,
        }
    }

    /// What tells it from all others.
    fn name(&self, store: StoreId) -> [u8; 32] {
        let (kind, offset) = match self {
            Self::Range { offset, .. } => (0, *offset),
            Self::Tail { .. } => (1, 0),
            Self::Whole { .. } => (2, 0),
        };
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&store.0);
        hasher.update(&[kind]);
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
            Self::Whole { .. } => size.saturating_add(block_checks_bytes(size)),
        }
    }
}

/// The files; see the module.
pub(super) struct Shards {
    directory: PathBuf,
    store: StoreId,
    shard_max_bytes: u64,
    /// What each holds, as far as this process knows; `None` before it has looked.
    sizes: [Mutex<Option<Size>>; SHARDS],
}

/// What a shard held when it was looked through, and what this process has kept there since.
#[derive(Clone, Copy)]
struct Size {
    /// Both together.
    held: u64,
    added: u64,
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

    /// Fills the buffer with a range, if it is kept. What the buffer holds otherwise is nothing.
    pub(super) fn read_range(&self, extent: &Extent<'_>, buffer: &mut [u8]) -> bool {
        self.open(extent, |mut file, head, length| {
            let is_whole = length == buffer.len() as u64 && file.read_exact(buffer).is_ok();
            (is_whole && head.fits(buffer)).then_some(())
        })
        .is_some()
    }

    /// A tail and the size of its object, if it is kept.
    pub(super) fn read_tail(&self, extent: &Extent<'_>) -> Option<(u64, Vec<u8>)> {
        self.open(extent, |mut file, head, length| {
            let mut tail = vec![0; usize::try_from(length).ok()?];
            file.read_exact(&mut tail).ok()?;
            head.fits(&tail).then_some((head.size, tail))
        })
    }

    /// What `read` makes of an object that is kept as a whole.
    pub(super) fn read_whole<T>(
        &self,
        key: &Key,
        read: impl FnOnce(&Whole<'_>) -> Option<T>,
    ) -> Option<T> {
        self.open(&Extent::Whole { key }, |mut file, head, _| {
            let mut checks = vec![0; usize::try_from(block_checks_bytes(head.size)).ok()?];
            file.read_exact(&mut checks).ok()?;
            read(&Whole { file, checks: &checks, size: head.size }).filter(|_| head.fits(&checks))
        })
    }

    /// Whether an object of this size can be kept as a whole.
    pub(super) fn has_room_for(&self, size: u64) -> bool {
        let file_bytes = size.saturating_add(block_checks_bytes(size) + HEAD_BYTES as u64);
        file_bytes <= self.shard_max_bytes / PART_MAX
    }

    /// Keeps a whole object, if there is room for it, out of everybody's sight.
    pub(super) fn keep_whole(&self, key: &Key, bytes: &[u8]) {
        let checks: Vec<u8> = bytes.chunks(BLOCK_BYTES).flat_map(block_check).collect();
        self.keep_file(&Extent::Whole { key }, bytes.len() as u64, (&checks, bytes));
    }

    /// What is kept of this object as a whole is given out from now on.
    pub(super) fn trust_whole(&self, key: &Key) {
        let path = self.path(&Extent::Whole { key }.name(self.store));
        // There may be none.
        let _ = fs::rename(untrusted(&path), path);
    }

    /// Keeps an object as a whole no longer.
    pub(super) fn drop_whole(&self, key: &Key) {
        let path = self.path(&Extent::Whole { key }.name(self.store));
        // There is seldom one.
        let _ = fs::remove_file(untrusted(&path));
        let _ = fs::remove_file(path);
    }

    /// Opens the file of a part; `read` is told how many bytes follow its head.
    fn open<T>(
        &self,
        extent: &Extent<'_>,
        read: impl FnOnce(&File, &Head, u64) -> Option<T>,
    ) -> Option<T> {
        let name = extent.name(self.store);
        let mut file = open_own(&self.path(&name)).ok()?;
        let found = file.metadata().ok()?;
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head).ok()?;
        let (check, size) = head.split_first_chunk::<32>()?;
        let size = u64::from_le_bytes(size.try_into().ok()?);
        let length = found.len().checked_sub(HEAD_BYTES as u64)?;
        // Nothing longer was kept, whatever lies there.
        if length != extent.length_bytes(size) || found.len() > self.shard_max_bytes / PART_MAX {
            return None;
        }
        let read = read(&file, &Head { name, check: *check, size }, length)?;
        let age = found.modified().ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > USED_PERIOD) {
            // It may be somebody else's; then it goes earlier than it could.
            let _ = file.set_modified(SystemTime::now());
        }
        Some(read)
    }

    /// Keeps a part, if there is room for it. Whatever fails is passed over.
    pub(super) fn keep(&self, extent: &Extent<'_>, size: u64, bytes: &[u8]) {
        self.keep_file(extent, size, (bytes, &[]));
    }

    /// Keeps a part, of which the checksum covers the first bytes.
    fn keep_file(&self, extent: &Extent<'_>, size: u64, (covered, rest): (&[u8], &[u8])) {
        let bytes = (covered.len() + rest.len()) as u64;
        let file_bytes = HEAD_BYTES as u64 + bytes;
        if file_bytes > self.shard_max_bytes / PART_MAX || bytes != extent.length_bytes(size) {
            return;
        }
        let name = extent.name(self.store);
        let mut path = self.path(&name);
        if matches!(extent, Extent::Whole { .. }) {
            path = untrusted(&path);
        }
        let Some(directory) = path.parent() else { return };
        let check = checksum(&name, size, covered);
        let parts = [&check[..], &size.to_le_bytes(), covered, rest];
        let _ = self.write(directory, &path, &parts);
        let Some(slot) = self.sizes.get(self.shard(&name)) else { return };
        let mut size = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = taken_bytes(file_bytes);
        let often = self.shard_max_bytes / LOOK_PART;
        let held = match *size {
            Some(Size { held, added }) if added + taken <= often => {
                Size { held: held + taken, added: added + taken }
            }
            // Of processes that keep little few need to look.
            None if draw(&name) % often.max(1) >= taken => return,
            _ => Size { held: total(&look_through(directory)), added: 0 },
        };
        let is_full = held.held > self.shard_max_bytes;
        *size = Some(match is_full {
            true => Size { held: make_room(directory, self.shard_max_bytes), added: 0 },
            false => held,
        });
    }

    fn write(&self, directory: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            // There may be one.
            let _ = create(&self.directory.join("CACHEDIR.TAG"))
                .and_then(|mut tag| tag.write_all(TAG.as_bytes()));
        }
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_extension(format!("{}-{number}", std::process::id()));
        let write = || {
            let mut file = create(&draft)?;
            parts.iter().try_for_each(|part| file.write_all(part))
        };
        write()
            .and_then(|()| fs::rename(&draft, path))
            .inspect_err(|_| drop(fs::remove_file(&draft)))
    }
}

/// Where an object lies that was not read back yet.
fn untrusted(path: &Path) -> PathBuf {
    path.with_extension("written")
}

/// Makes a file that only its user can read, where there is none, nor a link.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// About what a file of so many bytes takes.
fn taken_bytes(file_bytes: u64) -> u64 {
    file_bytes.next_multiple_of(4096)
}

/// A number by chance, the same for the same part.
fn draw(name: &[u8; 32]) -> u64 {
    name.last_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// What stands before the bytes of a part.
struct Head {
    name: [u8; 32],
    check: [u8; 32],
    size: u64,
}

impl Head {
    fn fits(&self, bytes: &[u8]) -> bool {
        self.check == checksum(&self.name, self.size, bytes)
    }
}

/// The checksums of the blocks of an object of this size.
fn block_checks_bytes(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES as u64) * BLOCK_CHECK_BYTES as u64
}

fn block_check(block: &[u8]) -> [u8; BLOCK_CHECK_BYTES] {
    let mut check = [0; BLOCK_CHECK_BYTES];
    check.copy_from_slice(&blake3::hash(block).as_bytes()[..BLOCK_CHECK_BYTES]);
    check
}

/// An object that is kept as a whole.
pub(super) struct Whole<'a> {
    file: &'a File,
    checks: &'a [u8],
    pub(super) size: u64,
}

impl Whole<'_> {
    /// Fills the buffer from an offset on; `None` if there is less, or it is damaged.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.size)?;
        let block_bytes = BLOCK_BYTES as u64;
        let begin = offset - offset % block_bytes;
        let end = end.next_multiple_of(block_bytes).min(self.size);
        let mut blocks = vec![0; usize::try_from(end - begin).ok()?];
        let before = HEAD_BYTES as u64 + block_checks_bytes(self.size);
        self.file.read_exact_at(&mut blocks, before + begin).ok()?;
        let first = usize::try_from(begin / block_bytes).ok()?;
        let checks = self.checks.chunks(BLOCK_CHECK_BYTES).skip(first);
        let mut are_whole = blocks.chunks(BLOCK_BYTES).zip(checks);
        if !are_whole.all(|(block, check)| block_check(block) == check) {
            return None;
        }
        let start = usize::try_from(offset - begin).ok()?;
        buffer.copy_from_slice(blocks.get(start..start + buffer.len())?);
        Some(())
    }

    /// The last bytes, or all.
    pub(super) fn tail(&self, length_bytes: usize) -> Option<(u64, Vec<u8>)> {
        let length = self.size.min(length_bytes as u64);
        let mut tail = vec![0; usize::try_from(length).ok()?];
        self.read(self.size - length, &mut tail)?;
        Some((self.size, tail))
    }
}

fn checksum(name: &[u8; 32], size: u64, bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(name);
    hasher.update(&size.to_le_bytes());
    hasher.update(bytes);
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
        Some(Kept { used, path: entry.path(), bytes: taken_bytes(found.len()) })
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
