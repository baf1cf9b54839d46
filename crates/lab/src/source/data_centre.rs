//! Data centres that begin to back up into an empty store: FAST'08, section 5.1, as a trace.
//!
//! Model: a data centre has clients, each with one lineage ([`super::generator`]). They join on the
//! first six days (the paper's seeding phase), two a day. From day to day every client's data
//! change, on days without a backup too, by its own share times the day's activity, which all
//! clients have in common. Two sites:
//!
//! - A backs up databases, all of them in full every day, for 31 days; none on day 18.
//! - B backs up databases in full on four days of the week, and file systems in full on one day and
//!   incrementally on the others, for 48 days; none on days 8, 12 to 14 and 35.
//!
//! A client's first backup is full. A day is one generation of one stream; the clients follow each
//! other in a fixed order. The customers' data cannot be had: sizes are the paper's divided by
//! [`SCALE`], shares of change are chosen for the averages of its Tables 1 and 2.
//!
//! Invariants: clients share no chunk; a day without a backup is no generation; one seed is one
//! trace.

use super::content::{self, scatter};
use super::generator::{Generator, Lineage, Parameters, Preset};
use crate::trace::{BATCH_CHUNKS, Chunk, Event, Sink, Trace};
use onefold_types::Result;
use onefold_types::environment::SeededRandomness;

/// The paper's bytes for one of ours.
pub const SCALE: usize = 1000;
/// How much smaller the tiny form is than that.
const TINY_SCALE: usize = 10;
/// The last day of seeding.
pub const SEEDING_DAYS: u32 = 6;
/// Clients that join on a day of seeding.
const JOINING: usize = 2;
/// The mean length of a chunk.
const CHUNK_BYTES: usize = 8192;
/// The standard deviation of the logarithm of a day's activity: Table 1 has a third of the mean.
const ACTIVITY_DEVIATION: f64 = 0.3;

/// A data centre of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// Daily full backups of databases.
    A,
    /// Full and incremental backups of databases and file systems.
    B,
}

impl Site {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// Its letter.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    /// How long it was watched.
    #[must_use]
    pub fn days(self) -> u32 {
        match self {
            Self::A => 31,
            Self::B => 48,
        }
    }

    /// Days without a backup.
    #[must_use]
    pub fn missed(self) -> &'static [u32] {
        match self {
            Self::A => &[18],
            Self::B => &[8, 12, 13, 14, 35],
        }
    }
}

/// What a client holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Few large files, changed in many places.
    Database,
    /// Many small files, of which a day changes few.
    FileSystem,
}

/// Whether a backup holds everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// It does.
    Full,
    /// It holds the files changed since the backup before.
    Incremental,
}

/// One client's backup of one day.
#[derive(Clone, Debug)]
pub struct Backup {
    /// The client.
    pub client: usize,
    /// What it holds.
    pub kind: Kind,
    /// How much of it is backed up.
    pub extent: Extent,
    /// The chunks, by number.
    pub numbers: Vec<u64>,
}

/// Takes a day and its backups.
pub type EachDay<'a> = dyn FnMut(u32, &[Backup]) -> Result<()> + 'a;

struct Client {
    kind: Kind,
    first_day: u32,
    generator: Generator,
}

/// A data centre.
pub struct DataCentre {
    name: String,
    site: Site,
    clients: Vec<Client>,
    /// For each day from the first on, what the shares of change are multiplied with.
    activity: Vec<f64>,
}

impl DataCentre {
    /// The data centre of a seed.
    ///
    /// # Errors
    /// None that the parameters do not rule out.
    pub fn new(site: Site, seed: u64, tiny: bool) -> Result<Self> {
        let seed = scatter(seed ^ scatter(u64::from(site.days())));
        let random = SeededRandomness::new(scatter(seed));
        let mut clients = Vec::new();
        for (place, kind) in kinds(site).into_iter().enumerate() {
            let parameters = parameters(site, kind, seed, unit(&random), tiny);
            let generator = Generator::new(parameters)?;
            clients.push(Client { kind, first_day: (place / JOINING) as u32 + 1, generator });
        }
        let activity = (0..site.days()).map(|_| activity(&random)).collect();
        let name = format!("data centre {}", site.letter());
        Ok(Self { name, site, clients, activity })
    }

    /// Shows every day that has a backup, from day 1 on.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn each_day(&self, each: &mut EachDay<'_>) -> Result<()> {
        let mut lineages: Vec<Lineage> = (0..)
            .zip(&self.clients)
            .map(|(number, client)| Lineage::new(client.generator.parameters(), number))
            .collect();
        for (day, activity) in (1..).zip(&self.activity) {
            let is_missed = self.site.missed().contains(&day);
            let mut backups = Vec::new();
            for (place, (client, lineage)) in self.clients.iter().zip(&mut lineages).enumerate() {
                if day < client.first_day {
                    continue;
                }
                lineage.evolve(&on_a_day(client.generator.parameters(), *activity));
                let first = day == client.first_day;
                let Some(extent) = extent(self.site, client.kind, day, first) else { continue };
                if !is_missed {
                    let numbers = lineage.back_up(extent == Extent::Full).flatten();
                    let numbers = numbers.copied().collect();
                    backups.push(Backup { client: place, kind: client.kind, extent, numbers });
                }
            }
            if !is_missed {
                each(day, &backups)?;
            }
        }
        Ok(())
    }

    /// The chunk of a client that a number stands for.
    #[must_use]
    pub fn chunk(&self, client: usize, number: u64) -> Option<Chunk> {
        self.clients.get(client).map(|client| client.generator.chunk(number))
    }

    /// Appends that chunk's bytes.
    ///
    /// # Errors
    /// None that the parameters do not rule out.
    pub fn append_bytes(&self, client: usize, number: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let client = self.clients.get(client);
        client.map_or(Ok(()), |client| client.generator.append_bytes(number, bytes))
    }
}

impl Trace for DataCentre {
    fn name(&self) -> &str {
        &self.name
    }

    fn replay(&self, sink: &mut Sink<'_>) -> Result<()> {
        let stream = 0;
        self.each_day(&mut |generation, backups| {
            sink(Event::Begin { stream, generation })?;
            let mut batch = Vec::with_capacity(BATCH_CHUNKS);
            for backup in backups {
                for numbers in backup.numbers.chunks(BATCH_CHUNKS) {
                    batch.clear();
                    let chunk = |number: &u64| self.chunk(backup.client, *number);
                    batch.extend(numbers.iter().filter_map(chunk));
                    sink(Event::Chunks { stream, chunks: &batch })?;
                }
            }
            sink(Event::End { stream, generation })
        })
    }
}

/// The clients in the order in which they join.
fn kinds(site: Site) -> Vec<Kind> {
    match site {
        Site::A => vec![Kind::Database; 12],
        // Four databases among eight file systems.
        Site::B => [Kind::Database, Kind::FileSystem, Kind::FileSystem].repeat(4),
    }
}

/// What is backed up on a day that is not missed.
fn extent(site: Site, kind: Kind, day: u32, first: bool) -> Option<Extent> {
    let full = match (site, kind) {
        _ if first => true,
        (Site::A, _) => true,
        (Site::B, Kind::Database) => matches!(day % 7, 0 | 2 | 4 | 5),
        (Site::B, Kind::FileSystem) => day % 7 == 2,
    };
    match kind {
        _ if full => Some(Extent::Full),
        Kind::Database => None,
        Kind::FileSystem => Some(Extent::Incremental),
    }
}

/// A client's parameters; `draw`, from 0 to 1, is how well its content compresses.
fn parameters(site: Site, kind: Kind, seed: u64, draw: f64, tiny: bool) -> Parameters {
    // The paper's bytes of a client, the share that changes in a day, and the range of ratios. All
    // clients of A have 600 GB; of B about 2.1 TB, which is the largest day.
    let (bytes, changed, ratios) = match (site, kind) {
        (Site::A, _) => (50_000_000_000, 0.026, 1.55..1.90),
        (Site::B, Kind::Database) => (250_000_000_000, 0.04, 1.5..2.0),
        (Site::B, Kind::FileSystem) => (137_500_000_000, 0.02, 1.5..4.2),
    };
    let scale = if tiny { SCALE * TINY_SCALE } else { SCALE };
    let (file_chunks, run_chunks) = match kind {
        Kind::Database => (128.0, 16.0),
        Kind::FileSystem => (32.0, 8.0),
    };
    Parameters {
        name: format!("client of {}", site.letter()),
        seed,
        streams: 1,
        lineages: 1,
        file_chunks,
        deleted_share: changed * 0.2,
        added_share: changed * 0.2,
        moved_share: changed * 0.1,
        cluster_files: 2.0,
        changed_share: changed * 0.8,
        run_chunks,
        self_reference: 0.0,
        compression_ratio: (ratios.start + draw * (ratios.end - ratios.start))
            .clamp(*content::RATIO_RANGE.start(), *content::RATIO_RANGE.end()),
        deletion: None,
        ..Parameters::preset(Preset::Exchange, bytes / scale / CHUNK_BYTES)
    }
}

fn on_a_day(parameters: &Parameters, activity: f64) -> Parameters {
    Parameters {
        deleted_share: parameters.deleted_share * activity,
        added_share: parameters.added_share * activity,
        moved_share: parameters.moved_share * activity,
        changed_share: parameters.changed_share * activity,
        ..parameters.clone()
    }
}

/// A number from 0 to 1.
fn unit(random: &SeededRandomness) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Log-normal with mean 1; the sum of twelve draws stands for a normal one.
fn activity(random: &SeededRandomness) -> f64 {
    let normal = (0..12).map(|_| unit(random)).sum::<f64>() - 6.0;
    (ACTIVITY_DEVIATION * (normal - ACTIVITY_DEVIATION / 2.0)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Summary;
    use std::collections::BTreeSet;

    #[test]
    fn days_without_a_backup_are_no_generations_but_data_change_on_them() {
        for site in Site::ALL {
            let summary = Summary::of(&DataCentre::new(site, 1, true).unwrap()).unwrap();
            let days: Vec<u32> = summary.generations.keys().copied().collect();
            let all = 1..=site.days();
            assert!(all.filter(|day| !site.missed().contains(day)).eq(days), "{site:?}");
        }
        let new = |day: u32| {
            let mut centre = DataCentre::new(Site::A, 1, true).unwrap();
            centre.activity.fill(1.0);
            Summary::of(&centre).unwrap().generations[&day].new_share()
        };
        let (after, usual) = (new(19), new(20));
        assert!((after / usual - 2.0).abs() < 0.4, "{after} after a missed day, else {usual}");
    }

    #[test]
    fn clients_join_on_the_days_of_seeding_and_share_nothing() {
        for site in Site::ALL {
            let centre = DataCentre::new(site, 1, true).unwrap();
            let mut seen: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); centre.clients.len()];
            let mut joined = Vec::new();
            let each = &mut |day: u32, backups: &[Backup]| {
                for backup in backups {
                    if seen[backup.client].is_empty() {
                        assert_eq!(backup.extent, Extent::Full);
                        joined.push(day);
                    }
                    seen[backup.client].extend(&backup.numbers);
                }
                Ok(())
            };
            centre.each_day(each).unwrap();
            assert_eq!(joined, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], "{site:?}");
            let all: BTreeSet<u64> = seen.iter().flatten().copied().collect();
            assert_eq!(all.len(), seen.iter().map(BTreeSet::len).sum::<usize>());
        }
    }

    #[test]
    fn seeds_differ_and_one_seed_is_one_data_centre() {
        let total =
            |seed| Summary::of(&DataCentre::new(Site::A, seed, true).unwrap()).unwrap().total();
        assert_eq!(total(1), total(1));
        assert_ne!(total(1), total(2));
    }
}
