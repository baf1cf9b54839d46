//! Compares the chunkers on files of yours.
//!
//! `cargo run --release --example chunker_table -- PATH...` reads every file below the paths into
//! memory and cuts each one for itself, with every kind of chunker at average sizes from 2 to 128
//! KiB, without a secret. It prints a Markdown table: speed of `cut` alone on one thread (median of
//! three passes), share of bytes saved by deduplication, mean and standard deviation of the sizes,
//! and the share of chunks at the maximum among those that do not end a file. Fixed chunks are cut
//! without reading the data, so their speed says nothing.

use onefold_chunking::{Chunker, ChunkerKind, ChunkerParameters};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Instant;

/// The content of all files, one after the other, and where each one ends.
#[derive(Default)]
struct Corpus {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Corpus {
    fn add(&mut self, path: &Path) -> io::Result<()> {
        let kind = std::fs::symlink_metadata(path)?;
        if kind.is_dir() {
            let mut entries =
                std::fs::read_dir(path)?.collect::<io::Result<Vec<std::fs::DirEntry>>>()?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                self.add(&entry.path())?;
            }
        } else if kind.is_file() {
            self.data.extend(std::fs::read(path)?);
            self.ends.push(self.data.len());
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let file = &self.data[start..end];
            start = end;
            file
        })
    }
}

/// Cuts every file; calls `chunk` with each chunk and whether it ends its file.
fn cut_all(chunker: &dyn Chunker, corpus: &Corpus, mut chunk: impl FnMut(&[u8], bool)) {
    for file in corpus.files() {
        let mut rest = file;
        while !rest.is_empty() {
            let (first, after) = rest.split_at(chunker.cut(rest));
            chunk(first, after.is_empty());
            rest = after;
        }
    }
}

fn median_seconds(chunker: &dyn Chunker, corpus: &Corpus) -> f64 {
    let mut seconds = [0.0; 3];
    for pass in &mut seconds {
        let start = Instant::now();
        let mut count = 0_usize;
        cut_all(chunker, corpus, |_, _| count += 1);
        std::hint::black_box(count);
        *pass = start.elapsed().as_secs_f64();
    }
    seconds.sort_by(f64::total_cmp);
    seconds[1]
}

fn row(kind: ChunkerKind, average: usize, corpus: &Corpus) -> onefold_types::Result<String> {
    let chunker = ChunkerParameters::with_average(kind, average)?.build(None)?;
    let speed = corpus.data.len() as f64 / median_seconds(&*chunker, corpus) / 1e9;
    let mut seen = HashSet::new();
    let (mut unique_bytes, mut inner, mut forced) = (0, 0_usize, 0_usize);
    let (mut count, mut sum, mut squares) = (0_usize, 0.0, 0.0);
    cut_all(&*chunker, corpus, |chunk, ends_file| {
        let identity = *blake3::hash(chunk).as_bytes();
        if seen.insert(identity) {
            unique_bytes += chunk.len();
        }
        if !ends_file {
            inner += 1;
            forced += usize::from(chunk.len() == chunker.size_max_bytes());
        }
        count += 1;
        sum += chunk.len() as f64;
        squares += (chunk.len() as f64).powi(2);
    });
    let mean = sum / count as f64;
    Ok(format!(
        "| {kind} | {} | {speed:.2} | {:.2} | {count} | {mean:.0} | {:.0} | {:.2} |",
        average / 1024,
        100.0 * (1.0 - unique_bytes as f64 / corpus.data.len() as f64),
        (squares / count as f64 - mean * mean).max(0.0).sqrt(),
        100.0 * forced as f64 / inner.max(1) as f64,
    ))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut corpus = Corpus::default();
    for path in std::env::args_os().skip(1) {
        corpus.add(Path::new(&path))?;
    }
    if corpus.data.is_empty() {
        return Err("name files or directories that hold some bytes".into());
    }
    println!("{} files, {} bytes\n", corpus.ends.len(), corpus.data.len());
    println!("| chunker | average KiB | GB/s | saved % | chunks | mean | deviation | forced % |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for kind in ChunkerKind::ALL {
        for average in [2, 4, 8, 16, 32, 64, 128].map(|kib| kib * 1024) {
            println!("{}", row(kind, average, &corpus)?);
        }
    }
    Ok(())
}
