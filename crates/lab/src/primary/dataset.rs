//! Data sets: the files of a directory and the chunks of each.
//!
//! With real data each directory below the given one is a data set, and stands for a volume.
//! Without, a small file server is made up (`synthetic.rs`).

use super::synthetic;
use crate::experiment::Setting;
use crate::parallel;
use crate::source::tree::{self, Reader};
use crate::trace::Chunk;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_policy::primary::partition::{FileFacts, Partitioning};
use onefold_policy::primary::path_partitions::{PathPartitions, SHARE_MAX};
use onefold_types::Result;
use onefold_types::error::Context;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The average that S4.6 names.
const AVERAGE_BYTES: usize = 65_536;
/// The average for data sets that are made up.
const AVERAGE_TINY_BYTES: usize = 2048;

/// A file.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Its path in its data set.
    pub path: Vec<u8>,
    /// The data set's number, which stands for its device.
    pub volume: u64,
    /// Its chunks, holes left out.
    pub chunks: Vec<Chunk>,
}

impl DataFile {
    /// What partitions go by.
    #[must_use]
    pub fn facts(&self) -> FileFacts<'_> {
        FileFacts { path: &self.path, volume: self.volume }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.length_bytes)).sum()
    }
}

/// A data set.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// Its name.
    pub name: String,
    /// Its files, in the order of a walk by name.
    pub files: Vec<DataFile>,
}

impl DataSet {
    /// Reads and cuts all files below a directory.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(
        name: &str,
        volume: u64,
        root: &Path,
        parameters: &ChunkerParameters,
    ) -> Result<Self> {
        let reader = Reader::new(parameters)?;
        let paths = files(root)?;
        let files = parallel::map(&paths, parallel::threads(), |path| {
            let whole = root.join(path);
            let what = || whole.display().to_string();
            let mut file = File::open(&whole).context(what)?;
            let chunks = reader.chunks(&mut file).context(what)?;
            let path = path.as_os_str().as_bytes().to_vec();
            Ok::<_, onefold_types::Error>(DataFile { path, volume, chunks })
        })?;
        Ok(Self { name: name.to_owned(), files })
    }

    /// Several data sets as one.
    #[must_use]
    pub fn together(name: &str, sets: &[Self]) -> Self {
        let files = sets.iter().flat_map(|set| {
            set.files.iter().map(|file| {
                let path = [set.name.as_bytes(), b"/", &file.path].concat();
                DataFile { path, ..file.clone() }
            })
        });
        Self { name: name.to_owned(), files: files.collect() }
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(DataFile::bytes).sum()
    }

    /// Its division into sub-trees of at most a tenth of the bytes.
    #[must_use]
    pub fn by_path(&self) -> Partitioning {
        let sized: Vec<(&[u8], u64)> =
            self.files.iter().map(|file| (&file.path[..], file.bytes())).collect();
        Partitioning::Path(PathPartitions::divide(&sized, SHARE_MAX))
    }

    /// The share of bytes saved if chunks are compared only within what `group` makes of a file.
    pub fn saved(&self, group: impl Fn(&DataFile) -> u64) -> f64 {
        let mut known = HashSet::new();
        let mut unique = 0;
        for file in &self.files {
            let group = group(file);
            for chunk in &file.chunks {
                if known.insert((group, chunk.fingerprint.prefix())) {
                    unique += u64::from(chunk.length_bytes);
                }
            }
        }
        1.0 - unique as f64 / self.bytes().max(1) as f64
    }

    /// The same for a division.
    #[must_use]
    pub fn saved_within(&self, partitioning: &Partitioning) -> f64 {
        self.saved(|file| partitioning.partition_of(file.facts()) as u64)
    }
}

/// The files below a directory, each once however many names it has.
///
/// # Errors
/// They cannot be listed.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut known = HashSet::new();
    let mut files = Vec::new();
    for path in tree::files(root)? {
        let whole = root.join(&path);
        let metadata = whole.symlink_metadata().context(|| whole.display())?;
        if known.insert((metadata.dev(), metadata.ino())) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Where data sets are.
pub struct Roots {
    /// Names and directories.
    pub sets: Vec<(String, PathBuf)>,
    /// How they are cut.
    pub parameters: ChunkerParameters,
    /// What was made up, removed in the end.
    _place: Option<tempfile::TempDir>,
}

impl Roots {
    /// Those of a setting.
    ///
    /// # Errors
    /// There are none, or nothing can be made up.
    pub fn of(setting: &Setting) -> Result<Self> {
        let kind = ChunkerKind::Regression;
        let Some(data) = &setting.data else {
            let place = tempfile::tempdir().context(|| "making a temporary directory")?;
            synthetic::write(place.path(), if setting.tiny { 1 } else { 8 })?;
            let sets = ["file-server", "machines"]
                .map(|name| (name.to_owned(), place.path().join(name)))
                .to_vec();
            let parameters = ChunkerParameters::with_average(kind, AVERAGE_TINY_BYTES)?;
            return Ok(Self { sets, parameters, _place: Some(place) });
        };
        let named = |root: PathBuf| {
            let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, root)
        };
        let sets = tree::versions(data)?.into_iter().map(named).collect();
        let parameters = ChunkerParameters::with_average(kind, AVERAGE_BYTES)?;
        Ok(Self { sets, parameters, _place: None })
    }

    /// All data sets, cut.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(&self) -> Result<Vec<DataSet>> {
        let numbered = (0..).zip(&self.sets);
        numbered
            .map(|(volume, (name, root))| DataSet::read(name, volume, root, &self.parameters))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_is_one_file() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("b"), "x").unwrap();
        std::fs::hard_link(place.path().join("b"), place.path().join("a")).unwrap();
        std::fs::write(place.path().join("c"), "x").unwrap();
        assert_eq!(files(place.path()).unwrap(), [PathBuf::from("a"), PathBuf::from("c")]);
    }

    #[test]
    fn what_is_compared_within_groups_saves_less_than_all_together() {
        let setting = Setting { tiny: true, ..Setting::default() };
        let sets = Roots::of(&setting).unwrap().read().unwrap();
        assert_eq!(sets.iter().map(|set| set.name.as_str()).collect::<Vec<_>>()[0], "file-server");
        let all = DataSet::together("all", &sets);
        assert_eq!(all.bytes(), sets.iter().map(DataSet::bytes).sum::<u64>());
        let volumes = Partitioning::by_volume(vec![0, 1]);
        let unique: f64 =
            sets.iter().map(|set| set.bytes() as f64 * (1.0 - set.saved(|_| 0))).sum();
        let by_volume = 1.0 - unique / all.bytes() as f64;
        assert!((all.saved_within(&volumes) - by_volume).abs() < 1e-9);
        let global = all.saved_within(&Partitioning::Whole);
        assert!(global >= by_volume && global > all.saved_within(&all.by_path()));
        assert!(global < 1.0 && all.saved(|file| file.path.len() as u64) < global);
    }
}
