//! Small stores built by hand, for trees that no backup would write.

pub use crate::steps::random_bytes;
use onefold_crypto::{KdfCost, Suite};
use onefold_engine::chunk_store::{ChunkBatch, ChunkStore, ChunkStoreOptions, StreamWriter};
use onefold_engine::index::FingerprintIndex;
use onefold_engine::tree::directory::{DirectoryBuilder, NoNames, OwnerNames};
use onefold_engine::tree::file_map::FileMapBuilder;
use onefold_engine::{Environment, InitOptions, MemoryPlan, Repository};
use onefold_format::codec::Compression;
use onefold_format::node::{Entry, EntryKind, Extent, Listing, Reference, Time};
use onefold_policy::accelerated_filter::{FilterConfiguration, FilterOrder};
use onefold_policy::lookup::LookupStrategy;
use onefold_store::{MemoryStore, Store};
use onefold_types::{ContainerId, limits};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The length of all chunks but the last of a file.
pub const CHUNK_BYTES: usize = 8 * limits::KIB;

/// A store without encryption whose containers are small.
pub fn repository_on(store: Arc<dyn Store>) -> Arc<Repository> {
    repository_with_memory(store, 64 * limits::MIB)
}

/// The same with another memory limit.
pub fn repository_with_memory(store: Arc<dyn Store>, memory_bytes: usize) -> Arc<Repository> {
    repository_of_containers(store, memory_bytes, 512 * limits::KIB)
}

/// The same with containers of another size.
pub fn repository_of_containers(
    store: Arc<dyn Store>,
    memory_bytes: usize,
    container_size_bytes: usize,
) -> Arc<Repository> {
    let options = InitOptions {
        suite: Suite::None,
        container_size_bytes,
        kdf_cost: KdfCost { memory_kib: 8, passes: 1, lanes: 1 },
        ..InitOptions::standard().unwrap().with_chunks_of(8 << 10).unwrap()
    };
    let memory = MemoryPlan::new(memory_bytes).unwrap();
    let made = Repository::create(store, &options, None, Environment::system(), memory);
    Arc::new(made.unwrap())
}

/// A store in memory, and a handle for tampering with it.
pub fn in_memory() -> (MemoryStore, Arc<Repository>) {
    let memory = MemoryStore::new();
    let repository = repository_on(Arc::new(memory.clone()));
    (memory, repository)
}

/// A part of a file's content.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes, cut into chunks of [`CHUNK_BYTES`].
    Bytes(Vec<u8>),
    /// Bytes, cut into chunks of that length.
    Chunks(Vec<u8>, usize),
    /// That many zeros, as a hole.
    Hole(u64),
}

/// An item of a tree to be stored.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its entry; content, size and totals are filled in.
    pub entry: Entry,
    /// A file's content.
    pub parts: Vec<Part>,
    /// A directory's items, in any order.
    pub items: Vec<Item>,
}

impl Item {
    fn new(name: &[u8], kind: EntryKind, mode: u32) -> Self {
        let entry = Entry {
            name: name.to_vec(),
            kind,
            mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            links: 1,
            modified: Time { seconds: 1_600_000_000, nanoseconds: 123_456_789 },
            ..Entry::default()
        };
        Self { entry, parts: Vec::new(), items: Vec::new() }
    }

    /// A file.
    pub fn file(name: impl AsRef<[u8]>, bytes: impl Into<Vec<u8>>) -> Self {
        Self::parts(name, vec![Part::Bytes(bytes.into())])
    }

    /// A file of several parts.
    pub fn parts(name: impl AsRef<[u8]>, parts: Vec<Part>) -> Self {
        let mut item = Self::new(name.as_ref(), EntryKind::File, 0o644);
        item.parts = parts;
        item
    }

    /// A directory that was saved whole.
    pub fn directory(name: impl AsRef<[u8]>, items: Vec<Item>) -> Self {
        let mut item = Self::new(name.as_ref(), EntryKind::Directory, 0o755);
        item.items = items;
        item.listed(Listing::Whole)
    }

    /// The directory with another listing.
    pub fn listed(self, listing: Listing) -> Self {
        self.edit(|entry| entry.listing = listing)
    }

    /// A symbolic link.
    pub fn symlink(name: impl AsRef<[u8]>, target: &str) -> Self {
        let item = Self::new(name.as_ref(), EntryKind::Symlink, 0o777);
        item.edit(|entry| entry.target = target.as_bytes().to_vec())
    }

    /// An item of any other kind.
    pub fn special(name: impl AsRef<[u8]>, kind: EntryKind) -> Self {
        Self::new(name.as_ref(), kind, 0o640)
    }

    /// The same item with a changed entry.
    pub fn edit(mut self, change: impl FnOnce(&mut Entry)) -> Self {
        change(&mut self.entry);
        self
    }
}

/// Stores a tree and returns the entry of its root, whose name is empty.
pub fn store_tree(repository: &Arc<Repository>, items: Vec<Item>) -> Entry {
    store_tree_avoiding(repository, items, BTreeSet::new(), &NoNames)
}

/// Stores a tree without relying on some containers, so that chunks in them are stored again.
pub fn store_tree_avoiding(
    repository: &Arc<Repository>,
    items: Vec<Item>,
    avoid: BTreeSet<ContainerId>,
    names: &dyn OwnerNames,
) -> Entry {
    let options = ChunkStoreOptions {
        compression: Compression::Zstd(1),
        threads: 1,
        filter: FilterConfiguration::ALL[3],
        lookup: LookupStrategy::Eager(FilterOrder::CacheFirst),
        index_kind: None,
        rewrite: onefold_engine::chunk_store::RewriteOptions::none(),
        delta: onefold_format::delta::DeltaChoice::Off,
        dry_run: false,
        session: None,
    };
    let index = FingerprintIndex::open(repository).unwrap();
    let store = ChunkStore::open(repository, std::sync::Arc::new(index), avoid, options).unwrap();
    let mut stream = store.stream().unwrap();
    let mut root = Item::directory(b"", items);
    store_item(&mut root, repository, names, &mut stream);
    stream.finish().unwrap();
    store.finish().unwrap();
    root.entry
}

fn store_item(
    item: &mut Item,
    repository: &Repository,
    names: &dyn OwnerNames,
    stream: &mut StreamWriter,
) {
    match item.entry.kind {
        EntryKind::File => {
            (item.entry.content, item.entry.size) = store_file(&item.parts, repository, stream);
        }
        EntryKind::Directory => {
            let mut builder = DirectoryBuilder::default();
            item.items.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
            for child in &mut item.items {
                store_item(child, repository, names, stream);
                builder.push(child.entry.clone(), names, stream).unwrap();
            }
            let directory = builder.finish(names, stream).unwrap();
            item.entry.content = Some(directory.reference);
            item.entry.totals = directory.totals;
        }
        _ => {}
    }
}

fn store_file(
    parts: &[Part],
    repository: &Repository,
    stream: &mut StreamWriter,
) -> (Option<Reference>, u64) {
    let mut map = FileMapBuilder::default();
    for part in parts {
        let (bytes, chunk_bytes) = match part {
            Part::Hole(length) => {
                map.push(Extent::hole(*length), stream).unwrap();
                continue;
            }
            Part::Bytes(bytes) => (bytes, CHUNK_BYTES),
            Part::Chunks(bytes, length) => (bytes, *length),
        };
        for chunk in bytes.chunks(chunk_bytes) {
            let fingerprint = repository.fingerprinter().data(chunk);
            let batch = ChunkBatch {
                buffer: chunk.to_vec(),
                ranges: std::iter::once(0..chunk.len()).collect(),
                fingerprints: vec![fingerprint],
                ..ChunkBatch::default()
            };
            stream.put_data(batch, &mut |_| {}).unwrap();
            let length = chunk.len() as u64;
            let extent = Extent { fingerprint, length };
            map.push(extent, stream).unwrap();
        }
    }
    let size = map.length();
    (map.finish(stream).unwrap(), size)
}
