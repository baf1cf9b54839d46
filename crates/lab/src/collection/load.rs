//! The load generator of FAST'17, section 4.2, writing into the product (S3.33, S3.34).
//!
//! The lineages are those of [`crate::source::generator`]: each generation keeps most of the last
//! one, deletes and adds; lineages share nothing; chunks are partly random and partly predictable.
//! The engine's own chunk store, file maps, directories and sessions make a snapshot of each
//! generation of each lineage. Chunks come cut, as the trace says. A file that is as it was in the
//! parent keeps its content unread, as in a backup; nothing is recorded about placement.
//!
//! Files have names, which the trace has not: a name follows from the file's first chunk. Those
//! that came together are neighbours in one of several directories, and between others that came
//! at other times. So an aged tree leads from container to container.

use super::bench::{Bench, PLENTY_BYTES, options};
use crate::source::content::scatter;
use crate::source::generator::{Generator, Lineage, Parameters};
use onefold_engine::chunk_store::{
    ChunkBatch, ChunkStore, ChunkStoreOptions, RewriteOptions, StreamWriter,
};
use onefold_engine::collection::MarkAlgorithm;
use onefold_engine::index::FingerprintIndex;
use onefold_engine::job::Job;
use onefold_engine::repository::Repository;
use onefold_engine::retention;
use onefold_engine::session::{Commit, WriterSession};
use onefold_engine::synthesis::{SynthesisOptions, fastcopy};
use onefold_engine::tree::directory::{Directory, DirectoryBuilder, NoNames};
use onefold_engine::tree::file_map::FileMapBuilder;
use onefold_format::node::{Entry, EntryKind, Extent, Listing, Reference};
use onefold_format::record::{RECORD_VERSION, SnapshotKind, SnapshotRecord, Summary};
use onefold_policy::accelerated_filter::{FilterConfiguration, FilterOrder};
use onefold_policy::lookup::LookupStrategy;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Threads that compress while a load is written.
const THREADS: usize = 2;
/// The name of a generation's image, behind all directories.
pub const IMAGE: &str = "image";
/// Chunk numbers whose files stand together in a directory.
const NEIGHBOURS: u64 = 64;

/// A load, generation by generation.
pub struct Load {
    generator: Generator,
    lineages: Vec<Client>,
    directories: u64,
    generation: u32,
    /// Live snapshots, oldest generation first, each with its plain bytes.
    pub snapshots: Vec<(SessionId, u64)>,
}

/// One lineage and what its last snapshot holds.
struct Client {
    number: u32,
    lineage: Lineage,
    parent: Option<SessionId>,
    known: HashMap<Vec<u64>, Content>,
    /// Where images are wanted: every chunk that was ever stored.
    image: Option<HashMap<u64, Extent>>,
}

/// A file's content in the store.
#[derive(Clone, Copy)]
struct Content {
    reference: Option<Reference>,
    bytes: u64,
}

/// How a store is aged.
#[derive(Clone, Copy, Debug)]
pub struct Ageing {
    /// Generations between two collections.
    pub every: u32,
    /// Generations of all lineages that are forgotten before each.
    pub forget: usize,
}

impl Load {
    /// A load whose streams are lineages, each of so many directories.
    ///
    /// # Errors
    /// The parameters are impossible.
    pub fn new(parameters: Parameters, directories: u64) -> Result<Self> {
        let streams = parameters.streams;
        let generator = Generator::new(parameters)?;
        let lineages = (0..streams)
            .map(|number| Client {
                number,
                lineage: Lineage::new(generator.parameters(), u64::from(number)),
                parent: None,
                known: HashMap::new(),
                image: None,
            })
            .collect();
        let directories = directories.max(1);
        Ok(Self { generator, lineages, directories, generation: 0, snapshots: Vec::new() })
    }

    /// Adds to every snapshot a file that holds the bytes of all others, in their order: a disk's
    /// image, for what is about one long stream.
    #[must_use]
    pub fn with_images(mut self) -> Self {
        self.lineages.iter_mut().for_each(|client| client.image = Some(HashMap::new()));
        self
    }

    /// Plain bytes of all live snapshots.
    #[must_use]
    pub fn logical_bytes(&self) -> u64 {
        self.snapshots.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Writes the next generation of every lineage.
    ///
    /// # Errors
    /// Those of the store.
    pub fn generation(&mut self, bench: &Bench) -> Result<()> {
        let Self { generator, lineages, directories, generation, snapshots } = self;
        for client in lineages {
            let saved = client.back_up(&bench.repository, generator, *directories, *generation)?;
            snapshots.push(saved);
        }
        *generation += 1;
        Ok(())
    }

    /// Writes generations, forgetting and collecting in between (S3.34).
    ///
    /// # Errors
    /// Those of the store.
    pub fn age(&mut self, bench: &Bench, generations: u32, ageing: Ageing) -> Result<()> {
        for _ in 0..generations {
            self.generation(bench)?;
            if ageing.every > 0 && self.generation.is_multiple_of(ageing.every) {
                self.forget(bench, ageing.forget * self.lineages.len(), |_| true)?;
                bench.collect(&options(MarkAlgorithm::Auto, PLENTY_BYTES))?;
            }
        }
        Ok(())
    }

    /// Forgets for good the oldest `most` snapshots whose place `which` names; the last generation
    /// always stays, because the next one builds upon it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn forget(
        &mut self,
        bench: &Bench,
        most: usize,
        which: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let old = self.snapshots.len().saturating_sub(self.lineages.len());
        let places: Vec<usize> = (0..old).filter(|place| which(*place)).take(most).collect();
        let chosen = |place: &usize| self.snapshots.get(*place).map(|(id, _)| *id);
        let ids: Vec<SessionId> = places.iter().filter_map(chosen).collect();
        retention::forget_final(&bench.repository, &ids, "lab")?;
        self.snapshots.retain(|(id, _)| !ids.contains(id));
        Ok(())
    }

    /// Copies every live snapshot once: twice the compression (S3.36).
    ///
    /// # Errors
    /// Those of the store.
    pub fn fastcopy_all(&mut self, bench: &Bench) -> Result<()> {
        let (job, _) = Job::unattended();
        let options = SynthesisOptions { program: "onefold-lab".into(), ..Default::default() };
        for place in 0..self.snapshots.len() {
            let Some((id, bytes)) = self.snapshots.get(place).copied() else { break };
            let copy = fastcopy(&bench.repository, id, &options, &job)?;
            self.snapshots.push((copy, bytes));
        }
        Ok(())
    }
}

impl Client {
    /// One generation in a session of its own; the snapshot and its plain bytes.
    fn back_up(
        &mut self,
        repository: &Arc<Repository>,
        generator: &Generator,
        directories: u64,
        generation: u32,
    ) -> Result<(SessionId, u64)> {
        self.lineage.evolve(generator.parameters());
        let session = WriterSession::begin(repository)?;
        if let Some(parent) = self.parent
            && !session.check_parent(parent)?
        {
            self.known.clear();
        }
        let store = ChunkStore::open(
            repository,
            FingerprintIndex::shared(repository)?,
            session.avoid().clone(),
            ChunkStoreOptions {
                compression: repository.compression()?,
                threads: THREADS,
                filter: FilterConfiguration::default(),
                lookup: LookupStrategy::Eager(FilterOrder::CacheFirst),
                index_kind: None,
                rewrite: RewriteOptions::none(),
                delta: onefold_format::delta::DeltaChoice::Off,
                dry_run: false,
                session: Some(session.id()),
            },
        )?;
        let mut stream = store.stream()?;
        let root = self.write(repository, generator, directories, &mut stream)?;
        stream.finish()?;
        store.finish()?;
        let bytes = root.totals.bytes;
        let record = SnapshotRecord {
            version: RECORD_VERSION,
            kind: SnapshotKind::Backup,
            root: root.reference,
            started_ns: repository.environment().clock.now_ns(),
            finished_ns: repository.environment().clock.now_ns(),
            host: format!("lineage-{}", self.number),
            user: String::new(),
            paths: vec!["/load".into()],
            base: None,
            listing: Listing::Partial,
            tags: Vec::new(),
            description: format!("generation {generation}"),
            hold: false,
            parent: self.parent,
            predecessors: self.parent.into_iter().collect(),
            program: "onefold-lab".into(),
            summary: Summary { bytes, ..Summary::default() },
            placement: None,
            doubts: Vec::new(),
            strays: 0,
            share: None,
            original: None,
        };
        match session.commit(record)? {
            Commit::Saved(id) => {
                self.parent = Some(id);
                Ok((id, bytes))
            }
            Commit::Fenced => Err(Error::new(ErrorKind::Fenced, "nothing else is at work here")),
        }
    }

    /// The tree of one generation: directories below the root, files in them.
    fn write(
        &mut self,
        repository: &Repository,
        generator: &Generator,
        directories: u64,
        stream: &mut StreamWriter,
    ) -> Result<Directory> {
        let mut known = HashMap::with_capacity(self.known.len());
        let mut root = DirectoryBuilder::default();
        let mut open: Option<(u64, DirectoryBuilder)> = None;
        let mut image = FileMapBuilder::default();
        let mut image_chunks = 0;
        for ((directory, name), chunks) in named(&mut self.lineage, directories) {
            if open.as_ref().is_none_or(|(number, _)| *number != directory) {
                close(open.take(), &mut root, stream)?;
                open = Some((directory, DirectoryBuilder::default()));
            }
            let content = match self.known.remove(&chunks) {
                Some(content) => content,
                None => file(repository, generator, &chunks, stream, self.image.as_mut())?,
            };
            for extent in chunks.iter().filter_map(|number| self.image.as_ref()?.get(number)) {
                image.push(*extent, stream)?;
                image_chunks += 1;
            }
            let inode = chunks.first().copied().unwrap_or_default();
            let entry = file_entry(name, inode, content, chunks.len() as u64);
            known.insert(chunks, content);
            if let Some((_, builder)) = &mut open {
                builder.push(entry, &NoNames, stream)?;
            }
        }
        close(open, &mut root, stream)?;
        if self.image.is_some() {
            let bytes = image.length();
            let content = Content { reference: image.finish(stream)?, bytes };
            root.push(file_entry(IMAGE.into(), u64::MAX, content, image_chunks), &NoNames, stream)?;
        }
        self.known = known;
        root.finish(&NoNames, stream)
    }
}

/// The files of a generation by directory and name.
fn named(lineage: &mut Lineage, directories: u64) -> BTreeMap<(u64, String), Vec<u64>> {
    let mut files = BTreeMap::new();
    for chunks in lineage.back_up(true) {
        let Some(first) = chunks.first() else { continue };
        let place = scatter(first / NEIGHBOURS);
        let name = format!("{place:016x}-{:x}", first % NEIGHBOURS);
        files.insert((place % directories, name), chunks.to_vec());
    }
    files
}

fn file_entry(name: String, inode: u64, content: Content, chunks: u64) -> Entry {
    Entry {
        name: name.into_bytes(),
        kind: EntryKind::File,
        mode: 0o644,
        links: 1,
        inode,
        size: content.bytes,
        chunks,
        content: content.reference,
        ..Entry::default()
    }
}

fn close(
    open: Option<(u64, DirectoryBuilder)>,
    root: &mut DirectoryBuilder,
    stream: &mut StreamWriter,
) -> Result<()> {
    let Some((number, builder)) = open else {
        return Ok(());
    };
    let directory = builder.finish(&NoNames, stream)?;
    let entry = Entry {
        name: format!("{number:08x}").into_bytes(),
        kind: EntryKind::Directory,
        mode: 0o755,
        links: 1,
        content: Some(directory.reference),
        totals: directory.totals,
        ..Entry::default()
    };
    root.push(entry, &NoNames, stream)
}

/// Stores a file's chunks and its maps; remembers the chunks where images are wanted.
fn file(
    repository: &Repository,
    generator: &Generator,
    chunks: &[u64],
    stream: &mut StreamWriter,
    mut extents: Option<&mut HashMap<u64, Extent>>,
) -> Result<Content> {
    let mut map = FileMapBuilder::default();
    let mut batch = ChunkBatch::default();
    for number in chunks {
        let start = batch.buffer.len();
        generator.append_bytes(*number, &mut batch.buffer)?;
        let bytes = batch.buffer.get(start..).unwrap_or_default();
        let fingerprint = repository.fingerprinter().data(bytes);
        let extent = Extent { fingerprint, length: bytes.len() as u64 };
        map.push(extent, stream)?;
        if let Some(extents) = &mut extents {
            extents.insert(*number, extent);
        }
        batch.ranges.push(start..batch.buffer.len());
        batch.fingerprints.push(fingerprint);
    }
    stream.put_data(batch, &mut |_| {})?;
    let bytes = map.length();
    Ok(Content { reference: map.finish(stream)?, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::generator::Preset;
    use onefold_engine::session::SnapshotList;
    use onefold_format::layout;
    use onefold_store::{Blobs, Listed};
    use onefold_types::{ContainerId, limits};

    const GENERATIONS: usize = 3;

    /// So many lineages, and the bytes of all containers after each generation.
    fn loaded(streams: u32) -> (Bench, Load, Vec<u64>) {
        let bench = Bench::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
        let parameters =
            Parameters { streams, deletion: None, ..Parameters::preset(Preset::Aged, 400) };
        let mut load = Load::new(parameters, 4).unwrap();
        let sizes = (0..GENERATIONS).map(|_| {
            load.generation(&bench).unwrap();
            let mut bytes = 0;
            for last in 0..=u8::MAX {
                let place = layout::container_directory(ContainerId([last; 16]));
                let mut add = |listed: Listed| {
                    bytes += listed.size_bytes;
                    Ok(())
                };
                bench.parts().0.list(&place, &mut add).unwrap();
            }
            bytes
        });
        let sizes = sizes.collect();
        (bench, load, sizes)
    }

    #[test]
    fn s3_33_lineages_take_turns_generation_by_generation() {
        let (bench, load, _) = loaded(3);
        let list = SnapshotList::load(&bench.repository).unwrap();
        let told = |(id, bytes): &(SessionId, u64)| {
            let record = &list.get(*id).unwrap().record;
            assert_eq!(record.summary.bytes, *bytes);
            format!("{} {}", record.host, record.description)
        };
        let turns: Vec<String> = load.snapshots.iter().map(told).collect();
        let expected: Vec<String> = (0..GENERATIONS)
            .flat_map(|generation| (0..3).map(move |one| (one, generation)))
            .map(|(lineage, generation)| format!("lineage-{lineage} generation {generation}"))
            .collect();
        assert_eq!(turns, expected);
    }

    #[test]
    fn s3_33_lineages_share_nothing_and_generations_most() {
        let (alone, together) = (loaded(1).2, loaded(3).2);
        for (alone, together) in alone.iter().zip(&together) {
            let times = *together as f64 / *alone as f64;
            assert!((2.8..3.2).contains(&times), "{times} times what one lineage takes");
        }
        let [first, .., last] = together[..] else { panic!("{together:?}") };
        assert!(last > first && last < 2 * first, "three generations: {together:?}");
    }
}
