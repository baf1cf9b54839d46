//! One index run: an immutable, sorted list of (fingerprint prefix, container).
//!
//! The layout is [`onefold_format::index_run`]'s. A look-up costs one page: the fences (the first
//! prefix of every page, 0.024 bytes an entry) are kept in memory, pages are read when needed. The
//! run's summary vector is the checkpoint of S1.14: it is stored with the run and loaded with it;
//! what no run covers is replayed from the containers.

use crate::repository::Repository;
use onefold_crypto::{ObjectSealer, Purpose, TAG_BYTES};
use onefold_format::index_run::{
    self, Entry, FILTER_PART, FILTER_PIECE_WORDS, FOOTER_BYTES, Footer, PAGE_ENTRIES,
    PAGE_PLAIN_BYTES, PAGE_STORED_BYTES, TABLE_PART, Table,
};
use onefold_format::layout;
use onefold_policy::summary_vector::{SummaryParameters, SummaryVector};
use onefold_store::Key;
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, Result, RunId, limits};

/// Bytes read from the tail at first.
const TAIL_GUESS_BYTES: usize = 32 * limits::KIB;
/// Bits of summary vector for each entry (S1.13).
const FILTER_BITS_PER_ENTRY: u32 = 8;
/// Hash positions for each entry (S1.13).
const FILTER_HASHES: u32 = 4;

/// An open run.
pub struct Run {
    /// Its name.
    pub id: RunId,
    /// What it says about itself.
    pub table: Table,
    /// Its length as stored.
    pub stored_bytes: u64,
    key: Key,
    sealer: ObjectSealer,
    footer: Footer,
    filter: Option<SummaryVector>,
}

impl Run {
    /// Opens a run: footer, table and fences, but not the summary vector.
    pub fn open(repository: &Repository, id: RunId) -> Result<Self> {
        let what = || format!("index run {id}");
        let key = Key::new(layout::index_run(id))?;
        let (size, tail) = repository.store().get_tail(&key, TAIL_GUESS_BYTES)?;
        let footer = Footer::decode(&tail, size).context(what)?;
        let length = usize::try_from(footer.table_length)
            .ok()
            .filter(|&length| length <= limits::RECORD_MAX_BYTES * 4)
            .ok_or_else(|| Error::damaged(format!("index run {id}: its table is too long")))?;
        let end = tail.len().saturating_sub(FOOTER_BYTES);
        let mut sealed = match end.checked_sub(length) {
            Some(start) => tail[start..end].to_vec(),
            None => {
                let offset = size - FOOTER_BYTES as u64 - footer.table_length;
                let mut sealed = vec![0; length];
                repository.store().get_range(&key, offset, &mut sealed)?;
                sealed
            }
        };
        let sealer = repository.vault().object(Purpose::IndexRun, &id.0)?;
        let length = sealer.open(TABLE_PART, &mut sealed).context(what)?;
        let table = Table::decode(&sealed[..length]).context(what)?;
        if table.fences.len() != footer.pages as usize {
            return Err(Error::damaged(format!("index run {id}: pages are missing")));
        }
        Ok(Self { id, table, stored_bytes: size, key, sealer, footer, filter: None })
    }

    /// Bytes of memory that the summary vector takes once loaded.
    #[must_use]
    pub fn filter_bytes(&self) -> usize {
        usize::try_from(self.table.filter_words.saturating_mul(8)).unwrap_or(usize::MAX)
    }

    /// Loads the summary vector.
    pub fn load_filter(&mut self, repository: &Repository) -> Result<()> {
        let what = || format!("the summary vector of index run {}", self.id);
        let words_total = self.filter_bytes() / 8;
        let pieces = words_total.div_ceil(FILTER_PIECE_WORDS);
        if (self.filter_bytes() + pieces * TAG_BYTES) as u64 != self.footer.filter_length {
            return Err(Error::damaged("its length is wrong").context(what()));
        }
        let mut words = Vec::with_capacity(words_total);
        let mut sealed = Vec::new();
        let mut offset = u64::from(self.footer.pages) * PAGE_STORED_BYTES as u64;
        for piece in 0..pieces {
            let count = (words_total - words.len()).min(FILTER_PIECE_WORDS);
            sealed.resize(count * 8 + TAG_BYTES, 0);
            repository.store().get_range(&self.key, offset, &mut sealed)?;
            let length = self.sealer.open(FILTER_PART - piece as u32, &mut sealed).context(what)?;
            let (chunks, _) = sealed[..length].as_chunks::<8>();
            words.extend(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)));
            offset += sealed.len() as u64;
        }
        let parameters = SummaryParameters {
            words: self.table.filter_words,
            hashes: u32::from(self.table.filter_hashes),
        };
        self.filter = Some(SummaryVector::from_words(parameters, words).context(what)?);
        Ok(())
    }

    /// Whether the run may hold the prefix; `false` is certain.
    #[must_use]
    pub fn may_contain(&self, prefix: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.contains(prefix))
    }

    /// Appends the containers of all entries with this prefix; counts pages read in `reads`.
    pub fn locate(
        &self,
        repository: &Repository,
        prefix: u64,
        found: &mut Vec<ContainerId>,
        reads: &mut u64,
    ) -> Result<()> {
        // The prefix may begin on the last page whose fence is smaller, and go on from there.
        let above = self.table.fences.partition_point(|&fence| fence < prefix);
        let mut page = above.saturating_sub(1);
        let mut entries = Vec::with_capacity(PAGE_ENTRIES);
        while page < self.table.fences.len() && self.table.fences[page] <= prefix {
            entries.clear();
            self.read_page(repository, page, &mut entries)?;
            *reads += 1;
            let start = entries.partition_point(|entry| entry.prefix < prefix);
            for entry in entries[start..].iter().take_while(|entry| entry.prefix == prefix) {
                found.push(self.container(*entry)?);
            }
            page += 1;
        }
        Ok(())
    }

    /// Appends the entries of a page.
    pub fn read_page(
        &self,
        repository: &Repository,
        page: usize,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let what = || format!("page {page} of index run {}", self.id);
        let mut sealed = vec![0; PAGE_STORED_BYTES];
        let offset = page as u64 * PAGE_STORED_BYTES as u64;
        repository.store().get_range(&self.key, offset, &mut sealed).context(what)?;
        self.sealer.open(page as u32, &mut sealed).context(what)?;
        let count = self.table.entries_in_page(page);
        index_run::decode_page(&sealed[..PAGE_PLAIN_BYTES], count, entries).context(what)
    }

    /// The container that an entry names.
    pub fn container(&self, entry: Entry) -> Result<ContainerId> {
        self.table
            .containers
            .get(entry.container as usize)
            .copied()
            .ok_or_else(|| Error::damaged(format!("index run {}: an entry is stray", self.id)))
    }
}

/// Writes a run out of containers and the prefixes of the chunks in them, in any order.
pub fn write_run_of(
    repository: &Repository,
    mut containers: Vec<(ContainerId, Vec<u64>)>,
) -> Result<RunId> {
    containers.sort_unstable_by_key(|(id, _)| *id);
    let mut entries = Vec::with_capacity(containers.iter().map(|(_, all)| all.len()).sum());
    for (container, (_, prefixes)) in (0..).zip(&containers) {
        entries.extend(prefixes.iter().map(|&prefix| Entry { prefix, container }));
    }
    entries.sort_unstable();
    let containers = containers.into_iter().map(|(id, _)| id).collect();
    let count = entries.len() as u64;
    let mut entries = entries.into_iter();
    write_run(repository, containers, Vec::new(), count, &mut || Ok(entries.next()))
}

/// Pages handed to the store at once.
const PAGES_PER_PIECE: usize = 64;

/// Writes a run that covers `containers`, which must rise, and takes over from `replaced`. `next`
/// gives its entries in rising order, at most `entries_max`; repeats are dropped. When it returns,
/// the run is durable. Memory: the summary vector, the table and one piece, whatever its size.
pub fn write_run(
    repository: &Repository,
    containers: Vec<ContainerId>,
    replaced: Vec<RunId>,
    entries_max: u64,
    next: &mut dyn FnMut() -> Result<Option<Entry>>,
) -> Result<RunId> {
    // Entries of one prefix then stand in the order of their containers' names in every run, which
    // is what lets runs be merged page by page.
    if !containers.is_sorted() {
        return Err(Error::invalid("the containers of an index run are not in order"));
    }
    let id = RunId::random(&*repository.environment().randomness);
    // A vector that no process with this limit could load need not be sharp.
    let bits_max = repository.memory().summary_vector_bytes as u64 * 8 / entries_max.max(1);
    let bits = bits_max.clamp(1, u64::from(FILTER_BITS_PER_ENTRY)) as u32;
    let filter = SummaryVector::with_capacity(entries_max.max(1), bits, FILTER_HASHES)?;
    let parameters = filter.parameters();
    let mut writer = RunWriter {
        sealer: repository.vault().object(Purpose::IndexRun, &id.0)?,
        stage: Stage::Pages,
        page: Vec::with_capacity(PAGE_ENTRIES),
        table: Table {
            containers,
            replaced,
            filter_words: parameters.words,
            filter_hashes: parameters.hashes as u8,
            ..Table::default()
        },
        filter,
        filter_length: 0,
        last: None,
    };
    let key = Key::new(layout::index_run(id))?;
    repository.store().put_pieces(&key, &mut |piece| writer.write(piece, next))?;
    Ok(id)
}

/// What of a run is written next.
enum Stage {
    Pages,
    Filter { piece: usize },
    Table,
}

struct RunWriter {
    sealer: ObjectSealer,
    stage: Stage,
    page: Vec<Entry>,
    table: Table,
    filter: SummaryVector,
    filter_length: u64,
    last: Option<Entry>,
}

impl RunWriter {
    /// Appends the next piece of the object; tells whether more follow.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        next: &mut dyn FnMut() -> Result<Option<Entry>>,
    ) -> Result<bool> {
        match self.stage {
            Stage::Pages => {
                while out.len() < PAGES_PER_PIECE * PAGE_STORED_BYTES {
                    match next()? {
                        Some(entry) => self.push(entry, out)?,
                        None => {
                            self.flush_page(out)?;
                            self.stage = Stage::Filter { piece: 0 };
                            break;
                        }
                    }
                }
                Ok(true)
            }
            Stage::Filter { piece } => {
                let pieces = self.filter.words().chunks(FILTER_PIECE_WORDS);
                let Some(words) = pieces.clone().nth(piece) else {
                    self.stage = Stage::Table;
                    return Ok(true);
                };
                words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
                self.sealer.seal(FILTER_PART - piece as u32, out, 0)?;
                self.filter_length += out.len() as u64;
                self.stage = Stage::Filter { piece: piece + 1 };
                Ok(true)
            }
            Stage::Table => {
                out.extend_from_slice(&self.table.encode());
                self.sealer.seal(TABLE_PART, out, 0)?;
                let footer = Footer {
                    pages: self.table.fences.len() as u32,
                    filter_length: self.filter_length,
                    table_length: out.len() as u64,
                };
                out.extend_from_slice(&footer.encode());
                Ok(false)
            }
        }
    }

    fn push(&mut self, entry: Entry, out: &mut Vec<u8>) -> Result<()> {
        if self.last == Some(entry) {
            return Ok(());
        }
        if self.last > Some(entry) {
            return Err(Error::invalid("index entries are not in order"));
        }
        self.last = Some(entry);
        self.filter.insert(entry.prefix);
        self.page.push(entry);
        self.table.entries += 1;
        if self.page.len() == PAGE_ENTRIES { self.flush_page(out) } else { Ok(()) }
    }

    fn flush_page(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(first) = self.page.first() else {
            return Ok(());
        };
        let part = self.table.fences.len() as u32;
        self.table.fences.push(first.prefix);
        let start = out.len();
        out.extend_from_slice(&index_run::encode_page(&self.page));
        self.sealer.seal(part, out, start)?;
        self.page.clear();
        Ok(())
    }
}
