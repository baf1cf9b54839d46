//! Duplicate locality: whether duplicates come again next to what they stood next to before.
//!
//! This is the premise of stream-informed layout and locality-preserved caching (FAST'08, sections
//! 4.2 and 4.3, S1.19): "segments tend to reappear" in the sequences that they had. Definitions,
//! for each stream:
//!
//! - A *duplicate* is a chunk that any stream handed in before, in the same backup too.
//! - Its *home* is the container into which its first occurrence went: each stream fills containers
//!   of its own in stream order with what is new, and the end of a backup closes them (S1.16).
//! - Its *earlier place* is where it was handed in last: a stream, and a position counted through
//!   all backups of that stream.
//! - Its *predecessor* is the duplicate before it in the same backup of the same stream, whatever
//!   new chunks stand between.
//! - A *pair*, a duplicate and its predecessor, is *at home* if both have one home, and *within k*
//!   if their earlier places lie in one stream, at most k positions apart, in either direction.
//! - A *run* is a stretch of duplicates that directly follow each other, each of which directly
//!   followed the one before it at its earlier place, too.
//!
//! Chance: the probability that two duplicates drawn at random have one home.
//!
//! Invariant: every duplicate is in exactly one run. Deletions are left out.

use crate::rewriting::versions::Versions;
use crate::trace::{Event, Trace};
use onefold_engine::chunk_store::prefix_hasher::PrefixHasher;
use onefold_types::Result;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

/// Distances of earlier places that are told apart.
pub const DISTANCES: [u64; 4] = [1, 8, 64, 1024];

/// Where a chunk was handed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    home: u32,
    stream: u32,
    position: u64,
}

/// One stream.
#[derive(Debug, Default)]
struct Stream {
    /// The container that is being filled, with its chunks.
    open: Option<(u32, usize)>,
    position: u64,
    backup: u32,
    /// Of the last duplicate of this backup.
    predecessor: Option<Place>,
    /// Duplicates of the run that ends with the last chunk; zero after a new one.
    run: u64,
}

/// Pairs of a backup, of all streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pairs {
    /// All.
    pub count: u64,
    /// With one home.
    pub at_home: u64,
    /// With earlier places within each of [`DISTANCES`].
    pub within: [u64; DISTANCES.len()],
}

impl Pairs {
    /// The share with one home; `None` if there are none.
    #[must_use]
    pub fn at_home_share(&self) -> Option<f64> {
        (self.count > 0).then(|| self.at_home as f64 / self.count as f64)
    }
}

/// Counts a workload.
#[derive(Debug)]
pub struct Locality {
    container_chunks: usize,
    places: HashMap<u64, Place, BuildHasherDefault<PrefixHasher>>,
    streams: BTreeMap<u32, Stream>,
    /// Duplicates by home.
    homes: Vec<u64>,
    pairs: BTreeMap<u32, Pairs>,
    /// How many runs have each length.
    runs: BTreeMap<u64, u64>,
    chunks: u64,
}

impl Locality {
    /// Nothing counted yet; containers of so many chunks.
    #[must_use]
    pub fn new(container_chunks: usize) -> Self {
        Self {
            container_chunks,
            places: HashMap::default(),
            streams: BTreeMap::new(),
            homes: Vec::new(),
            pairs: BTreeMap::new(),
            runs: BTreeMap::new(),
            chunks: 0,
        }
    }

    /// Counts a trace.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn of(trace: &dyn Trace, container_chunks: usize) -> Result<Self> {
        let mut locality = Self::new(container_chunks);
        trace.replay(&mut |event| {
            match event {
                Event::Begin { stream, generation } => locality.begin(stream, generation),
                Event::Chunks { stream, chunks } => {
                    for chunk in chunks {
                        locality.take(stream, chunk.fingerprint.prefix());
                    }
                }
                Event::End { stream, .. } => locality.end(stream),
                Event::Delete { .. } => {}
            }
            Ok(())
        })?;
        Ok(locality)
    }

    /// Counts versions, one after the other.
    #[must_use]
    pub fn of_versions(versions: &Versions, container_chunks: usize) -> Self {
        let mut locality = Self::new(container_chunks);
        for version in &versions.versions {
            locality.begin(version.stream, version.generation);
            for chunk in &version.chunks {
                locality.take(version.stream, u64::from(*chunk));
            }
            locality.end(version.stream);
        }
        locality
    }

    fn begin(&mut self, stream: u32, backup: u32) {
        self.streams.entry(stream).or_default().backup = backup;
    }

    fn take(&mut self, number: u32, chunk: u64) {
        let Self { streams, places, homes, pairs, runs, .. } = self;
        self.chunks += 1;
        let stream = streams.entry(number).or_default();
        let position = stream.position;
        stream.position += 1;
        let Some(place) = places.get_mut(&chunk) else {
            let home = match stream.open {
                Some((home, filled)) if filled < self.container_chunks => home,
                _ => {
                    homes.push(0);
                    stream.open = Some((homes.len() as u32 - 1, 0));
                    homes.len() as u32 - 1
                }
            };
            stream.open = stream.open.map(|(home, filled)| (home, filled + 1));
            places.insert(chunk, Place { home, stream: number, position });
            close_run(stream, runs);
            return;
        };
        let earlier = *place;
        (place.stream, place.position) = (number, position);
        if let Some(count) = homes.get_mut(earlier.home as usize) {
            *count += 1;
        }
        let mut follows = false;
        if let Some(before) = stream.predecessor.replace(earlier) {
            let pairs = pairs.entry(stream.backup).or_default();
            pairs.count += 1;
            pairs.at_home += u64::from(before.home == earlier.home);
            if before.stream == earlier.stream {
                let apart = before.position.abs_diff(earlier.position);
                for (count, distance) in pairs.within.iter_mut().zip(DISTANCES) {
                    *count += u64::from(apart <= distance);
                }
                follows = earlier.position == before.position + 1;
            }
        }
        if !follows {
            close_run(stream, runs);
        }
        stream.run += 1;
    }

    fn end(&mut self, stream: u32) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            close_run(stream, &mut self.runs);
            (stream.open, stream.predecessor) = (None, None);
        }
    }

    /// Pairs by backup.
    #[must_use]
    pub fn backups(&self) -> &BTreeMap<u32, Pairs> {
        &self.pairs
    }

    /// Pairs of all backups.
    #[must_use]
    pub fn pairs(&self) -> Pairs {
        let mut sum = Pairs::default();
        for one in self.pairs.values() {
            sum.count += one.count;
            sum.at_home += one.at_home;
            sum.within.iter_mut().zip(one.within).for_each(|(sum, one)| *sum += one);
        }
        sum
    }

    /// The probability that two duplicates drawn at random have one home.
    #[must_use]
    pub fn chance(&self) -> f64 {
        let all = self.homes.iter().sum::<u64>().max(1) as f64;
        self.homes.iter().map(|count| (*count as f64 / all).powi(2)).sum()
    }

    /// The share of chunks that are duplicates.
    #[must_use]
    pub fn duplicate_share(&self) -> f64 {
        self.homes.iter().sum::<u64>() as f64 / self.chunks.max(1) as f64
    }

    /// The mean length of runs.
    #[must_use]
    pub fn mean_run(&self) -> f64 {
        let runs = self.runs.values().sum::<u64>().max(1) as f64;
        self.runs.iter().map(|(length, count)| length * count).sum::<u64>() as f64 / runs
    }

    /// The length that this share of runs does not exceed.
    #[must_use]
    pub fn run_quantile(&self, share: f64) -> u64 {
        quantile(self.runs.iter().map(|(length, count)| (*length, *count)), share)
    }

    /// The length of the run in which the median duplicate stands.
    #[must_use]
    pub fn run_of_median_duplicate(&self) -> u64 {
        quantile(self.runs.iter().map(|(length, count)| (*length, length * count)), 0.5)
    }
}

fn close_run(stream: &mut Stream, runs: &mut BTreeMap<u64, u64>) {
    let length = std::mem::take(&mut stream.run);
    if length > 0 {
        *runs.entry(length).or_default() += 1;
    }
}

/// The least value up to which this share of the weights lies; values ascend.
fn quantile(values: impl Iterator<Item = (u64, u64)> + Clone, share: f64) -> u64 {
    let all: u64 = values.clone().map(|(_, weight)| weight).sum();
    let mut below = 0;
    for (value, weight) in values {
        below += weight;
        if below as f64 >= share * all as f64 {
            return value;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::generator::{Generator, Parameters, Preset};

    fn count(container_chunks: usize, backups: &[&[u64]]) -> Locality {
        let mut locality = Locality::new(container_chunks);
        for (backup, chunks) in (0..).zip(backups) {
            locality.begin(0, backup);
            chunks.iter().for_each(|chunk| locality.take(0, *chunk));
            locality.end(0);
        }
        locality
    }

    #[test]
    fn pairs_and_runs_are_as_defined() {
        // Containers: 1 2 3, 4 5 6. In the second backup, 9 is new and closes a run.
        let locality = count(3, &[&[1, 2, 3, 4, 5, 6], &[1, 2, 3, 4, 9, 5, 6, 1]]);
        assert!((locality.duplicate_share() - 7.0 / 14.0).abs() < 1e-9);
        // 1-2, 2-3, 3-4, 4-5, 5-6, 6-1: all but 3-4 and 6-1 at home; the last is out of order.
        let pairs = locality.pairs();
        assert_eq!((pairs.count, pairs.at_home), (6, 4));
        // The last 1 was handed in at position 6, and 6 at position 5: next to each other, as the
        // latest occurrence counts.
        assert_eq!(pairs.within, [6, 6, 6, 6]);
        assert_eq!(locality.runs, BTreeMap::from([(3, 1), (4, 1)]));
        assert!((locality.mean_run() - 3.5).abs() < 1e-9);
        assert_eq!((locality.run_quantile(0.5), locality.run_quantile(0.9)), (3, 4));
        assert_eq!(locality.run_of_median_duplicate(), 4);
        assert!((locality.chance() - (16.0 + 9.0) / 49.0).abs() < 1e-9);
    }

    #[test]
    fn order_that_is_lost_is_no_run() {
        let backwards = count(2, &[&[1, 2, 3, 4], &[4, 3, 2, 1]]);
        assert_eq!(backwards.runs, BTreeMap::from([(1, 4)]));
        assert_eq!((backwards.pairs().at_home, backwards.pairs().within[0]), (2, 3));
        let apart = count(2, &[&[1, 2, 3, 4], &[1, 3]]);
        assert_eq!((apart.pairs().at_home, apart.pairs().within), (0, [0, 1, 1, 1]));
        // The end of a backup closes containers and takes the predecessor along.
        let ends = count(8, &[&[1], &[2], &[1], &[2]]);
        assert_eq!((ends.pairs().count, ends.homes.len()), (0, 2));
    }

    #[test]
    fn streams_have_containers_and_neighbours_of_their_own() {
        let mut locality = Locality::new(8);
        for stream in [0, 1] {
            locality.begin(stream, 0);
        }
        for chunk in 0..4 {
            locality.take((chunk % 2) as u32, chunk);
        }
        for chunk in 0..4 {
            locality.take(0, chunk);
        }
        // 0-1 and so on have two homes, and their earlier places are in two streams.
        let pairs = locality.pairs();
        assert_eq!((pairs.count, pairs.at_home, pairs.within[3]), (3, 0, 0));
    }

    #[test]
    fn chunks_in_random_order_have_no_locality() {
        let parameters = Parameters::preset(Preset::Exchange, 4000);
        let generator =
            Generator::new(Parameters { generations: 5, generations_min: 5, ..parameters });
        let generator = generator.unwrap();
        let [mut kept, mut sorted] = [Locality::new(256), Locality::new(256)];
        generator
            .replay_files(0, &mut |backup, files| {
                let mut chunks = files.concat();
                for locality in [&mut kept, &mut sorted] {
                    locality.begin(0, backup);
                    chunks.iter().for_each(|chunk| locality.take(0, *chunk));
                    locality.end(0);
                    // Another order in each backup.
                    let key = u64::from(backup);
                    chunks.sort_by_key(|chunk| crate::source::content::scatter(chunk ^ key << 50));
                }
                Ok(())
            })
            .unwrap();
        let share = |one: &Locality| one.pairs().at_home_share().unwrap();
        assert!(share(&kept) > 0.9 && kept.mean_run() > 50.0, "{}", kept.mean_run());
        assert!(share(&sorted) < 2.0 * sorted.chance() && sorted.mean_run() < 1.1);
    }
}
