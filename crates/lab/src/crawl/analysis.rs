//! What a store would make of a trace: savings by duplicates, by kind of file, and by compression.
//!
//! The figures of ATC'12's study (S4.1 to S4.4, S4.24): which bytes are duplicates and how often
//! they occur, what compression adds, and how unevenly it does. Several traces are analysed as one,
//! as if all of them were stored.

use crate::report::{Cell, Table};
use crate::source::fsl::{FslTrace, Reader};
use onefold_engine::chunk_store::prefix_hasher::PrefixHasher;
use onefold_types::Result;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::BuildHasherDefault;
use std::path::{Path, PathBuf};

/// Kinds of file shown by name; the rest are one row.
const KINDS_SHOWN: usize = 12;
/// The longest ending that counts as a kind of file.
const KIND_CHARS_MAX: usize = 8;

/// Chunks and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes.
    pub bytes: u64,
    /// Chunks that had not occurred before.
    pub unique_chunks: u64,
    /// Their bytes.
    pub unique_bytes: u64,
    /// What a compressor leaves of those.
    pub compressed_bytes: u64,
}

impl Amount {
    /// The share of bytes that deduplication saves.
    #[must_use]
    pub fn saved(&self) -> f64 {
        1.0 - self.unique_bytes as f64 / self.bytes.max(1) as f64
    }

    /// The share of bytes that deduplication and compression save together.
    #[must_use]
    pub fn saved_compressed(&self) -> f64 {
        1.0 - self.compressed_bytes as f64 / self.bytes.max(1) as f64
    }
}

#[derive(Clone, Copy)]
struct Known {
    count: u32,
    bytes: u32,
    compressed_bytes: u32,
}

/// The analysis of one or several traces.
#[derive(Default)]
pub struct Analysis {
    /// Everything.
    pub total: Amount,
    kinds: BTreeMap<String, Amount>,
    known: HashMap<u64, Known, BuildHasherDefault<PrefixHasher>>,
}

/// A file's kind: its ending in lower case, if it has a short one.
#[must_use]
pub fn kind_of(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let kind = name.get(dot + 1..)?;
    let is_short = (1..=KIND_CHARS_MAX).contains(&kind.len());
    let is_plain = kind.iter().all(u8::is_ascii_alphanumeric);
    (dot > 0 && is_short && is_plain).then(|| String::from_utf8_lossy(kind).to_ascii_lowercase())
}

impl Analysis {
    /// Adds trace files.
    ///
    /// # Errors
    /// A trace is damaged or cannot be read.
    pub fn add_all(&mut self, paths: &[PathBuf]) -> Result<()> {
        paths.iter().try_for_each(|path| self.add(path))
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let namer = FslTrace::new("", Vec::new());
        let mut reader = Reader::open(path)?;
        while let Some(file) = reader.next_file()? {
            let mut amount = Amount { files: 1, bytes: file.size_bytes, ..Amount::default() };
            while let Some(chunk) = reader.next_chunk()? {
                amount.chunks += 1;
                let bytes = u32::try_from(chunk.size_bytes).unwrap_or(u32::MAX);
                let prefix = namer.fingerprint(&chunk.hash, chunk.size_bytes).prefix();
                let known = self.known.entry(prefix).or_insert(Known {
                    count: 0,
                    bytes,
                    compressed_bytes: compressed(bytes, chunk.ratio_tenths),
                });
                known.count = known.count.saturating_add(1);
                if known.count == 1 {
                    amount.unique_chunks += 1;
                    amount.unique_bytes += u64::from(known.bytes);
                    amount.compressed_bytes += u64::from(known.compressed_bytes);
                }
            }
            let kind = kind_of(&file.path).unwrap_or_else(|| "no ending".to_owned());
            add(self.kinds.entry(kind).or_default(), &amount);
            add(&mut self.total, &amount);
        }
        Ok(())
    }

    /// The mean of all chunks, in bytes.
    #[must_use]
    pub fn mean_chunk_bytes(&self) -> f64 {
        self.total.bytes as f64 / self.total.chunks.max(1) as f64
    }

    /// The share of compression's savings that the best-compressing half of the unique bytes gives
    /// (S4.24: 86 % of them), and the share of unique bytes that do not compress at all (31 %).
    #[must_use]
    pub fn compressibility(&self) -> (f64, f64) {
        let mut chunks: Vec<&Known> = self.known.values().collect();
        let gain =
            |known: &Known| 1.0 - f64::from(known.compressed_bytes) / f64::from(known.bytes.max(1));
        chunks.sort_unstable_by(|a, b| gain(b).total_cmp(&gain(a)));
        let saved = |known: &Known| u64::from(known.bytes.saturating_sub(known.compressed_bytes));
        let all: u64 = chunks.iter().map(|known| saved(known)).sum();
        let (mut bytes, mut from_half) = (0, 0);
        for known in &chunks {
            if bytes * 2 >= self.total.unique_bytes {
                break;
            }
            bytes += u64::from(known.bytes);
            from_half += saved(known);
        }
        let stiff: u64 = chunks.iter().filter(|k| saved(k) == 0).map(|k| u64::from(k.bytes)).sum();
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        (share(from_half, all), share(stiff, self.total.unique_bytes))
    }

    /// Savings by kind of file, the kinds with most bytes first.
    #[must_use]
    pub fn kinds(&self) -> Table {
        let columns =
            ["kind", "files", "MB", "chunks", "saved by duplicates, %", "with compression, %"];
        let mut table = Table::new("kinds", "Savings by kind of file", columns);
        let mut kinds: Vec<(&str, Amount)> =
            self.kinds.iter().map(|(kind, amount)| (kind.as_str(), *amount)).collect();
        kinds.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.bytes));
        let rest = kinds.split_off(kinds.len().min(KINDS_SHOWN));
        if !rest.is_empty() {
            let mut other = Amount::default();
            rest.iter().for_each(|(_, amount)| add(&mut other, amount));
            kinds.push(("all others", other));
        }
        kinds.push(("total", self.total));
        for (kind, amount) in kinds {
            table.row([
                Cell::text(kind),
                Cell::count(amount.files),
                Cell::real(amount.bytes as f64 / 1e6, 1),
                Cell::count(amount.chunks),
                Cell::percent(amount.saved(), 2),
                Cell::percent(amount.saved_compressed(), 2),
            ]);
        }
        table
    }

    /// Where the bytes lie by how often their chunk occurs (S4.3).
    #[must_use]
    pub fn occurrences(&self) -> Table {
        let columns = ["occurrences", "unique chunks", "bytes handed in, %", "bytes saved, %"];
        let caption = "Bytes by how often their chunk occurs (S4.3)";
        let mut table = Table::new("occurrences", caption, columns);
        let mut rows: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
        for known in self.known.values() {
            let row = rows.entry(known.count.next_power_of_two()).or_default();
            row.0 += 1;
            row.1 += u64::from(known.bytes) * u64::from(known.count);
            row.2 += u64::from(known.bytes) * u64::from(known.count - 1);
        }
        let all: u64 = rows.values().map(|row| row.1).sum();
        let saved: u64 = rows.values().map(|row| row.2).sum();
        for (most, (chunks, bytes, spared)) in rows {
            let name = match most {
                0..=2 => most.to_string(),
                _ => format!("{} to {most}", most / 2 + 1),
            };
            table.row([
                Cell::text(name),
                Cell::count(chunks),
                Cell::percent(bytes as f64 / all.max(1) as f64, 2),
                Cell::percent(spared as f64 / saved.max(1) as f64, 2),
            ]);
        }
        table
    }
}

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Amount { files, chunks, bytes, unique_chunks, .. } = self.total;
        writeln!(
            f,
            "{files} files, {bytes} bytes, {chunks} chunks of {:.0} bytes on average, \
             {unique_chunks} of them unique.",
            self.mean_chunk_bytes()
        )?;
        writeln!(
            f,
            "Duplicates save {:.2} %, duplicates and compression together {:.2} %.",
            self.total.saved() * 100.0,
            self.total.saved_compressed() * 100.0
        )?;
        let (half, stiff) = self.compressibility();
        writeln!(
            f,
            "The half of the unique bytes that compresses best gives {:.1} % of what compression \
             saves; {:.1} % do not compress.\n",
            half * 100.0,
            stiff * 100.0
        )?;
        writeln!(f, "{}\n{}", self.kinds(), self.occurrences())
    }
}

fn add(sum: &mut Amount, one: &Amount) {
    sum.files += one.files;
    sum.chunks += one.chunks;
    sum.bytes += one.bytes;
    sum.unique_chunks += one.unique_chunks;
    sum.unique_bytes += one.unique_bytes;
    sum.compressed_bytes += one.compressed_bytes;
}

/// What a compressor leaves of a chunk with this ratio in tenths; below one, it is stored as it is.
fn compressed(bytes: u32, ratio_tenths: u8) -> u32 {
    match ratio_tenths {
        0..=10 => bytes,
        tenths => (u64::from(bytes) * 10 / u64::from(tenths)) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fsl::{Chunking, File, FslChunk, HashMethod, Header, Version, Writer};

    /// A file's name and its chunks: length, number, compression ratio.
    type NamedFile<'a> = (&'a str, &'a [(u64, u8, u8)]);

    fn write(path: &Path, files: &[NamedFile<'_>]) {
        let header =
            Header::new(Version::NEWEST, Chunking::by_content(1, 100), HashMethod::Md5To48, 6);
        let mut writer = Writer::new(std::fs::File::create(path).unwrap(), header).unwrap();
        for (name, chunks) in files {
            let chunks: Vec<FslChunk> = chunks
                .iter()
                .map(|&(size_bytes, id, ratio_tenths)| FslChunk {
                    size_bytes,
                    hash: vec![id; 6],
                    ratio_tenths,
                })
                .collect();
            let size_bytes = chunks.iter().map(|chunk| chunk.size_bytes).sum();
            let file = File { size_bytes, path: name.as_bytes().to_vec(), ..File::default() };
            writer.file(&file, &chunks).unwrap();
        }
        writer.finish(0).unwrap();
    }

    #[test]
    fn savings_are_counted_once() {
        let place = tempfile::tempdir().unwrap();
        let paths = [place.path().join("1"), place.path().join("2")];
        write(&paths[0], &[("a.txt", &[(100, 1, 40), (50, 2, 10)]), ("b", &[(100, 1, 40)])]);
        // The same hash with another size is another chunk.
        write(&paths[1], &[("d.x/c.TXT", &[(100, 1, 40), (60, 2, 0)])]);
        let mut analysis = Analysis::default();
        analysis.add_all(&paths).unwrap();
        let total = analysis.total;
        assert_eq!((total.files, total.chunks, total.bytes), (3, 5, 410));
        assert_eq!((total.unique_chunks, total.unique_bytes), (3, 210));
        assert_eq!(total.compressed_bytes, 25 + 50 + 60);
        assert!((total.saved() - 200.0 / 410.0).abs() < 1e-9);
        let (half, stiff) = analysis.compressibility();
        assert!((half - 1.0).abs() < 1e-9 && (stiff - 110.0 / 210.0).abs() < 1e-9);
        let kinds = analysis.kinds().csv();
        assert!(kinds.contains("txt,2,") && kinds.contains("no ending,1,"), "{kinds}");
        assert!(kinds.contains("total,3,"), "{kinds}");
        let occurrences = analysis.occurrences().csv();
        assert!(occurrences.contains("3 to 4,1,"), "{occurrences}");
        assert!((analysis.mean_chunk_bytes() - 82.0).abs() < 1e-9);
        let text = analysis.to_string();
        assert!(text.contains("3 files, 410 bytes, 5 chunks of 82 bytes"), "{text}");
        assert!(text.contains("Duplicates save 48.78 %") && text.contains("| txt |"), "{text}");
    }

    #[test]
    fn kinds_are_short_endings() {
        let kind = |path: &str| kind_of(path.as_bytes());
        assert_eq!(kind("a/b.TXT").as_deref(), Some("txt"));
        for path in ["a.b/c", ".hidden", "a.", "a.toolongending", "a.b~"] {
            assert_eq!(kind(path), None, "{path}");
        }
    }

    #[test]
    fn damage_is_reported_with_its_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("t");
        std::fs::write(&path, b"nonsense").unwrap();
        let message = Analysis::default().add_all(&[path]).unwrap_err().to_string();
        assert!(message.contains("at byte 0, expected the magic number"), "{message}");
    }
}
