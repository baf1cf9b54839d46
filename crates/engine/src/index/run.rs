//! One index run: an immutable, sorted list of (fingerprint prefix, container).
//!
//! The layout is [`onefold_format::index_run`]'s. A look-up costs one page: the fences (first prefix
//! of every page, 0.024 bytes an entry) are kept in memory, pages are read when needed. The run's
//! summary vector is the checkpoint of S1.14: it is stored with the run and loaded with it; what no
//! run covers is replayed from the containers.

use crate::repository::Repository;
use onefold_crypto::{ObjectSealer, Purpose, TAG_BYTES};
use onefold_format::index_run::{
    self, Entry, FILTER_PART, FOOTER_BYTES, Footer, PAGE_ENTRIES, PAGE_PLAIN_BYTES,
    PAGE_STORED_BYTES, TABLE_PART, Table,
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
        Ok(Self {
            id,
            table,
            stored_bytes: size,
            key,
            sealer,
            footer,
            filter: None,
        })
    }

    /// Bytes of memory that the summary vector takes once loaded.
    #[must_use]
    pub fn filter_bytes(&self) -> usize {
        usize::try_from(self.table.filter_words.saturating_mul(8)).unwrap_or(usize::MAX)
    }

    /// Loads the summary vector.
    pub fn load_filter(&mut self, repository: &Repository) -> Result<()> {
        let what = || format!("the summary vector of index run {}", self.id);
        let length = self.filter_bytes();
        if length as u64 + TAG_BYTES as u64 != self.footer.filter_length {
            return Err(Error::damaged("its length is wrong").context(what()));
        }
        let mut sealed = vec![0; length + TAG_BYTES];
        let offset = u64::from(self.footer.pages) * PAGE_STORED_BYTES as u64;
        repository
            .store()
            .get_range(&self.key, offset, &mut sealed)?;
        self.sealer.open(FILTER_PART, &mut sealed).context(what)?;
        let parameters = SummaryParameters {
            words: self.table.filter_words,
            hashes: u32::from(self.table.filter_hashes),
        };
        self.filter = Some(SummaryVector::from_bytes(parameters, &sealed[..length])?);
        Ok(())
    }

    /// Whether the run may hold the prefix; `false` is certain.
    #[must_use]
    pub fn may_contain(&self, prefix: u64) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| filter.contains(prefix))
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
            for entry in entries[start..]
                .iter()
                .take_while(|entry| entry.prefix == prefix)
            {
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
        repository
            .store()
            .get_range(&self.key, offset, &mut sealed)
            .context(what)?;
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

/// Builds a run from entries in rising order.
pub struct RunWriter {
    id: RunId,
    sealer: ObjectSealer,
    bytes: Vec<u8>,
    page: Vec<Entry>,
    table: Table,
    filter: SummaryVector,
    last: Option<Entry>,
}

impl RunWriter {
    /// A run that covers `containers` and takes over from `replaced`; at most `entries_max`.
    pub fn new(
        repository: &Repository,
        containers: Vec<ContainerId>,
        replaced: Vec<RunId>,
        entries_max: u64,
    ) -> Result<Self> {
        let id = RunId::random(&*repository.environment().randomness);
        let filter =
            SummaryVector::with_capacity(entries_max.max(1), FILTER_BITS_PER_ENTRY, FILTER_HASHES)?;
        let parameters = filter.parameters();
        Ok(Self {
            id,
            sealer: repository.vault().object(Purpose::IndexRun, &id.0)?,
            bytes: Vec::new(),
            page: Vec::with_capacity(PAGE_ENTRIES),
            table: Table {
                containers,
                replaced,
                filter_words: parameters.words,
                filter_hashes: parameters.hashes as u8,
                ..Table::default()
            },
            filter,
            last: None,
        })
    }

    /// Appends an entry; repeats of the entry before are dropped.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
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
        if self.page.len() == PAGE_ENTRIES {
            self.flush_page()?;
        }
        Ok(())
    }

    fn flush_page(&mut self) -> Result<()> {
        let Some(first) = self.page.first() else {
            return Ok(());
        };
        let part = self.table.fences.len() as u32;
        self.table.fences.push(first.prefix);
        let start = self.bytes.len();
        self.bytes
            .extend_from_slice(&index_run::encode_page(&self.page));
        self.sealer.seal(part, &mut self.bytes, start)?;
        self.page.clear();
        Ok(())
    }

    /// Stores the run. When this returns, the run is durable.
    pub fn finish(mut self, repository: &Repository) -> Result<RunId> {
        self.flush_page()?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&self.filter.to_bytes());
        self.sealer.seal(FILTER_PART, &mut self.bytes, start)?;
        let filter_length = (self.bytes.len() - start) as u64;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&self.table.encode());
        self.sealer.seal(TABLE_PART, &mut self.bytes, start)?;
        let table_length = (self.bytes.len() - start) as u64;
        let pages = self.table.fences.len() as u32;
        self.bytes.extend_from_slice(
            &Footer {
                pages,
                filter_length,
                table_length,
            }
            .encode(),
        );
        repository
            .store()
            .put(&Key::new(layout::index_run(self.id))?, &self.bytes)?;
        Ok(self.id)
    }
}
