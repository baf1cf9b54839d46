//! What a store would make of a trace: savings by duplicates, by kind of file, and by compression.
//!
//! The figures of ATC'12's study (S4.1 to S4.4, S4.24): which bytes are duplicates and how often
//! they occur, what compression adds, and how unevenly it does. Several traces are analysed as one,
//! as if all of them were stored.

use crate::report::{Cell, Table};
use crate::source::fsl::{FslTrace, Reader};
use onefold_engine::primary::estimate::kind::{NO_ENDING, kind_of};
use onefold_engine::primary::estimate::{Savings, Tally};
use onefold_types::Result;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Kinds of file shown by name; the rest are one row.
const KINDS_SHOWN: usize = 12;

/// The analysis of one or several traces.
#[derive(Debug, Default)]
pub struct Analysis {
    tally: Tally,
    /// The kinds of file, and how many there are of each, by the numbers that the tally knows.
    kinds: Vec<(String, u64)>,
    numbers: HashMap<String, usize>,
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
            let kind = self.kind(&file.path);
            while let Some(chunk) = reader.next_chunk()? {
                let bytes = u32::try_from(chunk.size_bytes).unwrap_or(u32::MAX);
                let prefix = namer.fingerprint(&chunk.hash, chunk.size_bytes).prefix();
                let left = compressed(bytes, chunk.ratio_tenths);
                self.tally.meet(kind, prefix, bytes, &mut || Ok(Some(left)))?;
            }
        }
        Ok(())
    }

    /// The number of a file's kind; counts the file.
    fn kind(&mut self, path: &[u8]) -> usize {
        let name = kind_of(path).unwrap_or_else(|| NO_ENDING.to_owned());
        let next = self.kinds.len();
        let number = *self.numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.kinds.push((name, 0));
        }
        if let Some((_, files)) = self.kinds.get_mut(number) {
            *files += 1;
        }
        number
    }

    /// What all chunks come to.
    #[must_use]
    pub fn total(&self) -> Savings {
        self.tally.total()
    }

    fn files(&self) -> u64 {
        self.kinds.iter().map(|(_, files)| files).sum()
    }

    /// The share of compression's savings that the best-compressing half of the unique bytes gives
    /// (S4.24: 86 % of them), and the share of unique bytes that do not compress at all (31 %).
    #[must_use]
    pub fn compressibility(&self) -> (f64, f64) {
        self.tally.compressibility()
    }

    /// Savings by kind of file, the kinds with most bytes first.
    #[must_use]
    pub fn kinds(&self) -> Table {
        let columns =
            ["kind", "files", "MB", "chunks", "saved by duplicates, %", "with compression, %"];
        let mut table = Table::new("kinds", "Savings by kind of file", columns);
        let of = |(number, (name, files)): (usize, &(String, u64))| {
            (name.clone(), *files, self.tally.kind(number))
        };
        let mut kinds: Vec<(String, u64, Savings)> =
            self.kinds.iter().enumerate().map(of).collect();
        kinds.sort_by_key(|(_, _, savings)| std::cmp::Reverse(savings.bytes));
        let rest = kinds.split_off(kinds.len().min(KINDS_SHOWN));
        if !rest.is_empty() {
            let mut other = ("all others".to_owned(), 0, Savings::default());
            for (_, files, savings) in &rest {
                other.1 += files;
                other.2.add(savings);
            }
            kinds.push(other);
        }
        kinds.push(("total".to_owned(), self.files(), self.total()));
        for (kind, files, savings) in kinds {
            table.row([
                Cell::text(kind),
                Cell::count(files),
                Cell::real(savings.bytes as f64 / 1e6, 1),
                Cell::count(savings.chunks),
                Cell::percent(savings.saved(), 2),
                Cell::percent(savings.saved_compressed(), 2),
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
        for class in self.tally.occurrences() {
            table.row([
                Cell::text(match class.least == class.most {
                    true => class.most.to_string(),
                    false => format!("{} to {}", class.least, class.most),
                }),
                Cell::count(class.chunks),
                Cell::percent(class.bytes_share, 2),
                Cell::percent(class.duplicates_share, 2),
            ]);
        }
        table
    }
}

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let Savings { chunks, bytes, unique_chunks, .. } = total;
        writeln!(
            f,
            "{} files, {bytes} bytes, {chunks} chunks of {:.0} bytes on average, \
             {unique_chunks} of them unique.",
            self.files(),
            total.mean_chunk_bytes()
        )?;
        writeln!(
            f,
            "Duplicates save {:.2} %, duplicates and compression together {:.2} %.",
            total.saved() * 100.0,
            total.saved_compressed() * 100.0
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
        let total = analysis.total();
        assert_eq!((analysis.files(), total.chunks, total.bytes), (3, 5, 410));
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
        assert!((total.mean_chunk_bytes() - 82.0).abs() < 1e-9);
        let text = analysis.to_string();
        assert!(text.contains("3 files, 410 bytes, 5 chunks of 82 bytes"), "{text}");
        assert!(text.contains("Duplicates save 48.78 %") && text.contains("| txt |"), "{text}");
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
