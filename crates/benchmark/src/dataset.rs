//! The data that is stored: generations `g00`, `g01`, ... of the same tree, side by side.
//!
//! Data set A is made by the script beside the experiment, which is part of this program so that it
//! runs from anywhere. The tiny data set is synthetic and serves to prove that everything works,
//! not to compare anything.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

const MAKER: &str = include_str!("../../../experiments/peers/make-dataset-a.sh");
/// The data sets that are known by name, with the digests of the first and the last generation as
/// their makers record them.
const KNOWN: [(&str, [&str; 2]); 2] = [
    (
        "data set A",
        [
            "g00 files=4633 bytes=231761544 digest=ab30982b3c5addf4",
            "g11 files=5161 bytes=257027868 digest=0bd1702cc1d23f77",
        ],
    ),
    (
        "data set B",
        [
            "g00 files=831 bytes=188886152 digest=fe113ac403636f59",
            "g09 files=900 bytes=226344546 digest=1c454312026dbec3",
        ],
    ),
];
/// What the maker keeps while it is at work.
const DOWNLOADS: &str = ".dl";
/// What the maker writes when it is done.
const DIGESTS: &str = "digests.txt";
const FEWEST_GENERATIONS: usize = 2;

/// One state of the tree.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The directory's name, as `g03`.
    pub name: String,
    /// The directory, absolute.
    pub path: PathBuf,
    /// Regular files in it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// All states, oldest first; never fewer than two.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The name in reports.
    pub name: &'static str,
    /// The directory that holds the generations, absolute.
    pub directory: PathBuf,
    /// The generations.
    pub generations: Vec<Generation>,
}

impl Dataset {
    /// Opens the data set in `directory`, and reads it once, which also brings it into memory.
    pub fn open(directory: &Path) -> io::Result<Dataset> {
        let directory = directory.canonicalize()?;
        let mut generations = Vec::new();
        for name in generation_names(&directory)? {
            let path = directory.join(&name);
            let (mut files, mut bytes) = (0, 0);
            read_all(&path, &mut files, &mut bytes)?;
            generations.push(Generation { name, path, files, bytes });
        }
        if generations.len() < FEWEST_GENERATIONS {
            let message = "the data directory needs at least two generations (g00, g01, ...)";
            return Err(io::Error::other(message));
        }
        let digests = fs::read_to_string(directory.join(DIGESTS)).unwrap_or_default();
        let name = known_name(&digests).unwrap_or("a data set of its own");
        Ok(Dataset { name, directory, generations })
    }

    /// The oldest generation.
    pub fn first(&self) -> &Generation {
        &self.generations[0]
    }

    /// All generations but the oldest.
    pub fn increments(&self) -> &[Generation] {
        &self.generations[1..]
    }

    /// The newest generation.
    pub fn last(&self) -> &Generation {
        &self.generations[self.generations.len() - 1]
    }

    /// Bytes in all increments.
    pub fn increment_bytes(&self) -> u64 {
        self.increments().iter().map(|generation| generation.bytes).sum()
    }

    /// Bytes in all generations.
    pub fn total_bytes(&self) -> u64 {
        self.generations.iter().map(|generation| generation.bytes).sum()
    }

    /// Starts `tar`, which writes all generations as one stream.
    pub fn tar(&self) -> Command {
        let mut command = Command::new("tar");
        command.args(["--sort=name", "--owner=0", "--group=0", "-cf", "-"]);
        command.args(self.generations.iter().map(|generation| &generation.name));
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// Makes data set A in `directory` if there is nothing yet, or completes it if its making was cut
/// short. Takes long, and needs `npm` and `pip`.
pub fn ensure_data_set_a(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let unfinished = directory.join(DOWNLOADS).exists() && !directory.join(DIGESTS).exists();
    if !generation_names(directory)?.is_empty() && !unfinished {
        return Ok(());
    }
    let status = Command::new("bash")
        .args(["-c", MAKER, "make-dataset-a"])
        .arg(directory.canonicalize()?)
        .stdin(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("making data set A failed: {status}")));
    }
    Ok(())
}

fn known_name(digests: &str) -> Option<&'static str> {
    let has = |wanted: &&str| digests.lines().any(|line| line == *wanted);
    KNOWN.iter().find(|(_, ends)| ends.iter().all(has)).map(|(name, _)| *name)
}

fn generation_names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if is_generation(&name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn is_generation(name: &str) -> bool {
    name.strip_prefix('g')
        .is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn read_all(directory: &Path, files: &mut u64, bytes: &mut u64) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_all(&entry.path(), files, bytes)?;
        } else if kind.is_file() {
            *files += 1;
            *bytes += io::copy(&mut File::open(entry.path())?, &mut io::sink())?;
        }
    }
    Ok(())
}

/// Makes three small generations in `directory`: text, noise, a link, an empty file, and changes.
pub fn make_tiny(directory: &Path) -> io::Result<Dataset> {
    for generation in 0..3_u64 {
        let top = directory.join(format!("g{generation:02}"));
        fs::create_dir_all(top.join("text/deeper"))?;
        fs::create_dir_all(top.join("noise"))?;
        for file in generation..60 {
            // Every tenth file changes with every generation; one goes and one comes each time.
            let edition = if file % 10 == 0 { generation } else { 0 };
            let folder = if file % 2 == 0 { "text" } else { "text/deeper" };
            let name = top.join(folder).join(format!("{file:02}.txt"));
            write_file(&name, &words(file * 100 + edition, 60_000), 0o644)?;
        }
        for file in 0..4 + generation {
            let name = top.join("noise").join(format!("{file}.bin"));
            write_file(&name, &noise(file + 1, 300_000), 0o755)?;
        }
        write_file(&top.join("empty"), &[], 0o600)?;
        symlink("text/deeper", top.join("link"))?;
        for folder in ["text/deeper", "text", "noise"] {
            set_time(&top.join(folder))?;
        }
    }
    let data = Dataset::open(directory)?;
    Ok(Dataset { name: "the tiny synthetic data set", ..data })
}

fn write_file(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    fs::write(path, contents)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    set_time(path)
}

fn set_time(path: &Path) -> io::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 500_000_000);
    File::open(path)?.set_modified(time)
}

/// A reproducible sequence of numbers (xorshift).
fn sequence(seed: u64) -> impl Iterator<Item = u64> {
    let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |x: &u64| {
        let x = x ^ (x << 13);
        let x = x ^ (x >> 7);
        Some(x ^ (x << 17))
    };
    std::iter::successors(Some(start), step).skip(8)
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    sequence(seed).flat_map(u64::to_le_bytes).take(length).collect()
}

fn words(seed: u64, length: usize) -> Vec<u8> {
    const WORDS: [&str; 8] =
        ["store ", "chunk ", "of ", "the\n", "container ", "index ", "and ", "fingerprint "];
    sequence(seed)
        .flat_map(|number| WORDS[(number >> 20) as usize % WORDS.len()].bytes())
        .take(length)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_told_by_name() {
        assert!(is_generation("g00") && is_generation("g11"));
        for name in ["g0", "g000", "h00", "g0a", "digests.txt", ".dl", "g00.t"] {
            assert!(!is_generation(name), "{name}");
        }
    }

    #[test]
    fn known_data_sets_are_told_by_their_digests() {
        for (name, [first, last]) in KNOWN {
            let both = format!("{first}\n{last}\n");
            assert_eq!(known_name(&both), Some(name));
            assert_eq!(known_name(&both.replace("digest=", "digest=0")), None);
            assert_eq!(known_name(first), None);
        }
        let mixed = format!("{}\n{}\n", KNOWN[0].1[0], KNOWN[1].1[1]);
        assert_eq!(known_name(&mixed), None);
    }

    #[test]
    fn the_tiny_data_set_changes_from_generation_to_generation() {
        let place = tempfile::tempdir().unwrap();
        let data = make_tiny(place.path()).unwrap();
        assert_eq!(data.generations.len(), 3);
        assert_eq!(data.increments().len(), 2);
        assert_eq!(data.first().name, "g00");
        assert_eq!(data.last().name, "g02");
        assert!(data.total_bytes() > 10_000_000);
        assert_eq!(data.increment_bytes(), data.total_bytes() - data.first().bytes);
        let changes = crate::compare::differences(&data.first().path, &data.last().path).unwrap();
        assert!(changes.iter().any(|line| line == "text/10.txt: contents differ"), "{changes:?}");
        assert!(changes.iter().any(|line| line == "text/00.txt: missing"), "{changes:?}");
        assert!(changes.iter().any(|line| line == "noise/5.bin: extra"), "{changes:?}");
    }

    #[test]
    fn data_that_are_there_are_left_alone() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("g00")).unwrap();
        ensure_data_set_a(place.path()).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn too_few_generations_are_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("g00")).unwrap();
        assert!(Dataset::open(place.path()).is_err());
    }
}
