//! One lineage: the data of one client, from generation to generation.
//!
//! Files are lists of chunk numbers. A generation is made from the one before in one pass: clusters
//! of files go or are taken out to be put elsewhere, runs of chunks inside files are overwritten,
//! or taken out with as many new ones put in elsewhere, and clusters of new files come in. A number
//! is never used for two different chunks. New chunks may repeat others of the lineage
//! (self-reference), run by run.

use super::Parameters;
use crate::source::content::scatter;
use onefold_types::environment::SeededRandomness;

/// Numbers of two lineages never meet: the upper bits name the lineage.
const NUMBER_BITS: u32 = 40;

#[derive(Clone, Debug)]
struct File {
    chunks: Vec<u64>,
    /// Changed often.
    hot: bool,
    /// Since the last backup.
    changed: bool,
}

/// The state of one lineage.
#[derive(Debug)]
pub struct Lineage {
    files: Vec<File>,
    next: u64,
    random: SeededRandomness,
}

/// What becomes of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    Moves,
}

impl Lineage {
    /// Lineage number `number`, which holds nothing before its first generation.
    #[must_use]
    pub fn new(parameters: &Parameters, number: u64) -> Self {
        Self {
            files: Vec::new(),
            next: number << NUMBER_BITS,
            random: SeededRandomness::new(scatter(parameters.seed ^ scatter(number))),
        }
    }

    /// Whether there has been no generation yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Chunks in all files.
    #[must_use]
    pub fn chunk_count(&self) -> usize {
        self.files.iter().map(|file| file.chunks.len()).sum()
    }

    /// Makes the next generation.
    pub fn evolve(&mut self, parameters: &Parameters) {
        if self.is_empty() {
            let files = self.new_files(parameters, parameters.chunks, f64::INFINITY);
            self.files = files.into_iter().flatten().collect();
            return;
        }
        let count = self.chunk_count();
        let of = |share: f64| (share * count as f64).round() as usize;
        let mut fates = vec![Fate::Stays; self.files.len()];
        self.choose(&mut fates, Fate::Goes, of(parameters.deleted_share), parameters);
        self.choose(&mut fates, Fate::Moves, of(parameters.moved_share), parameters);
        self.change(parameters, of(parameters.changed_share));
        let added = of(parameters.added_share);
        let mut arriving = self.new_files(parameters, added, parameters.cluster_files);
        let mut staying = Vec::with_capacity(self.files.len());
        let mut moving: Vec<File> = Vec::new();
        for (file, fate) in std::mem::take(&mut self.files).into_iter().zip(fates) {
            match fate {
                Fate::Stays => {
                    if !moving.is_empty() {
                        arriving.push(std::mem::take(&mut moving));
                    }
                    staying.push(file);
                }
                Fate::Moves => moving.push(file),
                Fate::Goes => {}
            }
        }
        arriving.push(moving);
        self.files = self.insert(staying, arriving);
    }

    /// The files that a backup holds, in their order; the next one knows them as unchanged.
    pub fn back_up(&mut self, full: bool) -> impl Iterator<Item = &[u64]> {
        self.files.iter_mut().filter_map(move |file| {
            let is_held = std::mem::take(&mut file.changed) || full;
            is_held.then_some(file.chunks.as_slice())
        })
    }

    /// Gives clusters of files a fate until they hold `chunks` chunks.
    fn choose(&self, fates: &mut [Fate], fate: Fate, chunks: usize, parameters: &Parameters) {
        let mut chosen = 0;
        // Drawn places may be taken already; the bound ends the search when nearly all are.
        for _ in 0..16 * fates.len() {
            if chosen >= chunks {
                return;
            }
            let start = self.random.below(fates.len() as u64) as usize;
            let cluster = self.geometric(parameters.cluster_files);
            for place in start..(start + cluster).min(fates.len()) {
                let (Some(old), Some(file)) = (fates.get_mut(place), self.files.get(place)) else {
                    break;
                };
                if *old != Fate::Stays || chosen >= chunks {
                    continue;
                }
                // The last file may be larger than what is left to choose: it is taken so often
                // that the mean is right, or data would shrink from generation to generation.
                let (length, left) = (file.chunks.len(), chunks - chosen);
                if length <= left || self.chance(left as f64 / length as f64) {
                    *old = fate;
                }
                chosen += length;
            }
        }
    }

    /// Changes runs inside files until `chunks` chunks have changed.
    fn change(&mut self, parameters: &Parameters, chunks: usize) {
        let hot = (chunks as f64 * parameters.hot_changes).round() as usize;
        self.change_some(parameters, hot, |file| file.hot);
        self.change_some(parameters, chunks - hot.min(chunks), |file| {
            parameters.hot_changes == 0.0 || !file.hot
        });
    }

    /// Changes runs inside those files that are meant.
    fn change_some(
        &mut self,
        parameters: &Parameters,
        chunks: usize,
        is_meant: impl Fn(&File) -> bool,
    ) {
        let mut ends = Vec::with_capacity(self.files.len());
        let mut end = 0_u64;
        for file in &self.files {
            end += if is_meant(file) { file.chunks.len() as u64 } else { 0 };
            ends.push(end);
        }
        let mut changed = 0;
        while changed < chunks && end > 0 {
            // Large files are hit more often.
            let drawn = self.random.below(end);
            let place = ends.partition_point(|&end| end <= drawn);
            let run = self.geometric(parameters.run_chunks).min(chunks - changed);
            changed += self.change_file(parameters, place, run);
        }
    }

    /// Changes one run of at most `run` chunks; returns how many.
    fn change_file(&mut self, parameters: &Parameters, place: usize, run: usize) -> usize {
        let length = self.files.get(place).map_or(0, |file| file.chunks.len());
        let start = self.random.below(length as u64) as usize;
        let run = run.min(length - start).max(1);
        let fresh = self.new_chunks(parameters, run);
        let target = match self.chance(parameters.shifting_share) {
            true => self.random.below((length - run) as u64 + 1) as usize,
            false => start,
        };
        if let Some(file) = self.files.get_mut(place) {
            file.chunks.drain(start..start + run);
            file.chunks.splice(target..target, fresh);
            file.changed = true;
        }
        run
    }

    /// New files with `chunks` chunks together, in clusters.
    fn new_files(
        &mut self,
        parameters: &Parameters,
        chunks: usize,
        cluster: f64,
    ) -> Vec<Vec<File>> {
        let mut clusters: Vec<Vec<File>> = Vec::new();
        let (mut made, mut room) = (0, 0);
        while made < chunks {
            if room == 0 {
                room = if cluster.is_finite() { self.geometric(cluster) } else { usize::MAX };
                clusters.push(Vec::new());
            }
            let length = self.geometric(parameters.file_chunks).min(chunks - made);
            let chunks = self.new_chunks(parameters, length);
            let hot = self.chance(parameters.hot_files);
            if let Some(last) = clusters.last_mut() {
                last.push(File { chunks, hot, changed: true });
            }
            made += length;
            room -= 1;
        }
        clusters
    }

    /// Chunks for one place: never seen before, or a run of what is there already.
    fn new_chunks(&mut self, parameters: &Parameters, count: usize) -> Vec<u64> {
        if !self.files.is_empty() && self.chance(parameters.self_reference) {
            let place = self.random.below(self.files.len() as u64) as usize;
            let other = self.files.get(place).map_or(&[][..], |file| &file.chunks);
            if !other.is_empty() {
                return other.iter().copied().cycle().take(count).collect();
            }
        }
        let first = self.next;
        self.next += count as u64;
        (first..self.next).collect()
    }

    /// Puts each cluster of `arriving` at a place of its own.
    fn insert(&self, staying: Vec<File>, arriving: Vec<Vec<File>>) -> Vec<File> {
        let places = staying.len() as u64 + 1;
        let mut arriving: Vec<(u64, Vec<File>)> =
            arriving.into_iter().map(|files| (self.random.below(places), files)).collect();
        arriving.sort_by_key(|(place, _)| *place);
        let mut arriving = arriving.into_iter().peekable();
        let mut files = Vec::with_capacity(staying.len());
        let mut staying = staying.into_iter();
        for place in 0..places {
            while let Some((_, cluster)) = arriving.next_if(|(other, _)| *other == place) {
                files.extend(cluster);
            }
            files.extend(staying.next());
        }
        files
    }

    fn chance(&self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number from 0 to 1.
    fn unit(&self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number from 1 on with the given mean, geometrically distributed.
    fn geometric(&self, mean: f64) -> usize {
        if mean <= 1.0 {
            return 1;
        }
        let steps = (1.0 - self.unit()).ln() / (1.0 - 1.0 / mean).ln();
        1 + steps as usize
    }
}
