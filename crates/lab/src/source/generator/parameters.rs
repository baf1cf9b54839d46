//! What a generated workload is like, with the presets that stand for the papers' data.

use crate::source::content::{RATIO_RANGE, scatter};
use onefold_types::limits::CHUNK_SIZE_MAX_BYTES;
use onefold_types::{Error, Result};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Which backups are full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// All of them.
    Full,
    /// One in `days`; the others hold the files changed since the backup before.
    WeeklyFull {
        /// Backups from one full one to the next.
        days: u32,
    },
}

/// Which generation goes once a stream has too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeletionOrder {
    /// The oldest one.
    Oldest,
    /// The newest one but the last.
    Newest,
    /// Any but the last.
    Random,
}

/// How many generations of a stream are kept, and which go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// Generations kept of each stream.
    pub keep: u32,
    /// Which go.
    pub order: DeletionOrder,
}

/// A workload. Shares are shares of the chunks of a lineage, from one generation to the next.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// Its name in tables.
    pub name: String,
    /// Everything follows from it.
    pub seed: u64,
    /// Streams that are written at the same time.
    pub streams: u32,
    /// Lineages of each stream.
    pub lineages: u32,
    /// Generations.
    pub generations: u32,
    /// The least generations that a lineage takes part in; the last lineage takes part in all. With
    /// fewer than all, its generations are spread evenly.
    pub generations_min: u32,
    /// Chunks of a lineage at first.
    pub chunks: usize,
    /// The mean number of chunks in a file.
    pub file_chunks: f64,
    /// Chunks in files that go.
    pub deleted_share: f64,
    /// Chunks in files that come.
    pub added_share: f64,
    /// Chunks in files that move to another place in the order.
    pub moved_share: f64,
    /// Files that go, come or move together, on average.
    pub cluster_files: f64,
    /// Chunks changed inside files.
    pub changed_share: f64,
    /// The share of files that are changed often; of those that come, as many are.
    pub hot_files: f64,
    /// The share of changes that hit those; without skew, it equals `hot_files`.
    pub hot_changes: f64,
    /// The mean number of chunks changed in one place.
    pub run_chunks: f64,
    /// Of the changes inside files, the share that takes chunks out in one place and puts new ones
    /// in at another, which shifts what lies between; the others overwrite.
    pub shifting_share: f64,
    /// The share of new chunks that repeat others of the same lineage (15 to 20 % in images of
    /// virtual machines, next to none in source code: FAST'15).
    pub self_reference: f64,
    /// Lengths are spread evenly from here
    pub chunk_min_bytes: u32,
    /// to here.
    pub chunk_max_bytes: u32,
    /// What a compressor makes of a chunk's bytes.
    pub compression_ratio: f64,
    /// Which backups are full.
    pub schedule: Schedule,
    /// Which generations are deleted.
    pub deletion: Option<Deletion>,
}

/// Workloads that stand for the papers' data sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// FAST'08, Table 4, left: a mail server, 135 daily full backups.
    Exchange,
    /// FAST'08, Table 4, right: source code and builds, 100 days, weekly full, else incremental.
    Engineering,
    /// S0.20: images of six systems, 5 to 20 versions each, 56 % duplicate, chunks of 4 KiB.
    Mirror,
    /// Four streams at once, 120 generations, 20 kept, any of them deleted; most changes hit few
    /// files.
    Aged,
    /// The same with short changes anywhere: as fragmented as can be.
    Scattered,
    /// A file server on its first days: half of the data unique (S4.4).
    Primary,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 6] = [
        Self::Exchange,
        Self::Engineering,
        Self::Mirror,
        Self::Aged,
        Self::Scattered,
        Self::Primary,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::Engineering => "engineering",
            Self::Mirror => "mirror",
            Self::Aged => "aged",
            Self::Scattered => "scattered",
            Self::Primary => "primary",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("'{text}' is not a workload; choose one of {names}"))
        })
    }
}

/// The share of full backups that must be new for the whole to deduplicate by `ratio`: with `n`
/// generations of equal size, `ratio = n / (1 + (n - 1) share)`.
#[must_use]
pub fn new_share_for(ratio: f64, generations: u32) -> f64 {
    let generations = f64::from(generations);
    ((generations / ratio - 1.0) / (generations - 1.0)).clamp(0.0, 1.0)
}

impl Parameters {
    /// A preset with `chunks` chunks in a lineage's first generation.
    #[must_use]
    pub fn preset(preset: Preset, chunks: usize) -> Self {
        let name = preset.to_string();
        let base = Self {
            name,
            seed: scatter(preset as u64),
            streams: 1,
            lineages: 1,
            generations: 10,
            generations_min: 10,
            chunks,
            file_chunks: 16.0,
            deleted_share: 0.01,
            added_share: 0.01,
            moved_share: 0.005,
            cluster_files: 4.0,
            changed_share: 0.02,
            hot_files: 0.0,
            hot_changes: 0.0,
            run_chunks: 8.0,
            shifting_share: 0.5,
            self_reference: 0.0,
            chunk_min_bytes: 4096,
            chunk_max_bytes: 12_288,
            compression_ratio: 2.0,
            schedule: Schedule::Full,
            deletion: None,
        };
        match preset {
            Preset::Exchange => Self::exchange(base),
            Preset::Engineering => Self::engineering(base),
            Preset::Mirror => Self::mirror(base),
            Preset::Aged => Self::aged(base),
            Preset::Scattered => Self::scattered(base),
            Preset::Primary => Self::primary(base),
        }
    }

    /// Table 3: 5.69 : 1 before compression, which takes 17 % of each backup to be new, and 2.17 :
    /// 1 by it. A mail database: few large files, changed in many places.
    fn exchange(base: Self) -> Self {
        let new = new_share_for(5.69, 135);
        Self {
            generations: 135,
            generations_min: 135,
            file_chunks: 512.0,
            deleted_share: 0.25 * new,
            added_share: 0.25 * new,
            moved_share: 0.01,
            cluster_files: 1.0,
            changed_share: 0.75 * new,
            run_chunks: 32.0,
            shifting_share: 0.5,
            compression_ratio: 2.17,
            ..base
        }
    }

    /// Table 3: 5.04 : 1 and 1.93 : 1. An incremental backup repeats what has not changed in a
    /// file that has, which is most of it; 5.04 then follows from 3.7 % new a day.
    fn engineering(base: Self) -> Self {
        Self {
            generations: 100,
            generations_min: 100,
            file_chunks: 16.0,
            deleted_share: 0.021,
            added_share: 0.021,
            moved_share: 0.002,
            cluster_files: 8.0,
            changed_share: 0.016,
            run_chunks: 8.0,
            compression_ratio: 1.93,
            schedule: Schedule::WeeklyFull { days: 7 },
            ..base
        }
    }

    /// Table 3 of S0: 56.38 % duplicate over 75 versions of six systems. A new version replaces
    /// 40 % of the packages and reorders some.
    fn mirror(base: Self) -> Self {
        Self {
            lineages: 6,
            generations: 20,
            generations_min: 5,
            file_chunks: 64.0,
            deleted_share: 0.34,
            added_share: 0.36,
            moved_share: 0.05,
            cluster_files: 3.0,
            changed_share: 0.08,
            run_chunks: 16.0,
            self_reference: 0.02,
            chunk_min_bytes: 2048,
            chunk_max_bytes: 6144,
            compression_ratio: 1.05,
            ..base
        }
    }

    /// 4 % new in each generation: whole files, and changes of which 85 % hit a tenth of the files.
    fn aged(base: Self) -> Self {
        Self {
            deleted_share: 0.02,
            added_share: 0.02,
            moved_share: 0.005,
            cluster_files: 8.0,
            changed_share: 0.02,
            hot_files: 0.10,
            hot_changes: 0.85,
            run_chunks: 16.0,
            ..Self::scattered(base)
        }
    }

    /// 4 % new in each generation, most of it in places of about six chunks, anywhere.
    fn scattered(base: Self) -> Self {
        Self {
            streams: 4,
            generations: 120,
            generations_min: 120,
            deleted_share: 0.01,
            added_share: 0.01,
            moved_share: 0.01,
            changed_share: 0.03,
            run_chunks: 6.0,
            self_reference: 0.02,
            deletion: Some(Deletion { keep: 20, order: DeletionOrder::Random }),
            ..base
        }
    }

    fn primary(base: Self) -> Self {
        Self {
            generations: 3,
            generations_min: 3,
            lineages: 4,
            file_chunks: 6.0,
            added_share: 0.10,
            deleted_share: 0.02,
            changed_share: 0.05,
            run_chunks: 3.0,
            self_reference: 0.15,
            chunk_min_bytes: 32_768,
            chunk_max_bytes: 131_072,
            ..base
        }
    }

    /// In which generations lineage `number` takes part.
    #[must_use]
    pub fn calendar(&self, number: u32) -> Vec<bool> {
        let steps = u64::from(self.lineages.saturating_sub(1).max(1));
        let extra = u64::from(self.generations - self.generations_min);
        let own = match self.lineages {
            1 => self.generations,
            _ => self.generations_min + (extra * u64::from(number) / steps) as u32,
        };
        let mut calendar = vec![false; self.generations as usize];
        for version in 0..u64::from(own) {
            let place = version * u64::from(self.generations) / u64::from(own.max(1));
            if let Some(day) = calendar.get_mut(place as usize) {
                *day = true;
            }
        }
        calendar
    }

    /// Refuses impossible values with the range of possible ones.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<()> {
        whole("streams", self.streams, 1..=256)?;
        whole("lineages", self.lineages, 1..=256)?;
        whole("generations", self.generations, 1..=100_000)?;
        whole("fewest generations of a lineage", self.generations_min, 1..=self.generations)?;
        let chunks = u32::try_from(self.chunks).unwrap_or(u32::MAX);
        whole("chunks of a lineage", chunks, 1..=1 << 28)?;
        let largest = CHUNK_SIZE_MAX_BYTES as u32;
        whole("largest chunk", self.chunk_max_bytes, 1..=largest)?;
        whole("smallest chunk", self.chunk_min_bytes, 1..=self.chunk_max_bytes)?;
        let shares = [
            ("deleted share", self.deleted_share, 0.9),
            ("added share", self.added_share, 2.0),
            ("moved share", self.moved_share, 0.9),
            ("changed share", self.changed_share, 0.9),
            ("share of hot files", self.hot_files, 1.0),
            ("share of changes in hot files", self.hot_changes, 1.0),
            ("shifting share", self.shifting_share, 1.0),
            ("self-reference", self.self_reference, 1.0),
        ];
        for (what, share, most) in shares {
            real(what, share, 0.0..=most)?;
        }
        real("mean chunks of a file", self.file_chunks, 1.0..=1e6)?;
        real("mean files of a cluster", self.cluster_files, 1.0..=1e6)?;
        real("mean chunks of a change", self.run_chunks, 1.0..=1e6)?;
        real("compression ratio", self.compression_ratio, RATIO_RANGE)?;
        if let Schedule::WeeklyFull { days } = self.schedule {
            whole("days between full backups", days, 1..=self.generations)?;
        }
        match self.deletion {
            Some(Deletion { keep, .. }) => whole("generations kept", keep, 1..=100_000),
            None => Ok(()),
        }
    }
}

fn whole(what: &str, value: u32, range: RangeInclusive<u32>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what}: {value} is impossible; it must be {} to {}",
        range.start(),
        range.end()
    )))
}

fn real(what: &str, value: f64, range: RangeInclusive<f64>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what}: {value} is impossible; it must be {} to {}",
        range.start(),
        range.end()
    )))
}
