//! Writes a trace of a directory: what is there, cut and hashed, without its content.
//!
//! The crawler of S4.1 (ATC'12: a log of hash, size, compressed size, offset and file for every
//! chunk) writes the form that other tools read ([`crate::source::fsl`]). [`analysis`] says what a
//! store would make of it. With `anonymous`, names are replaced by keyed digests that keep the
//! directory structure and the kind of file, as the published traces do.
//!
//! Concurrency: files are read by several threads, a bounded number at a time, and written in the
//! order of the walk; the trace does not depend on the number of threads.

pub mod analysis;

use crate::parallel;
use crate::source::fsl::{Chunking, File, FslChunk, HashMethod, Header, Version, Writer};
use crate::source::tree;
use onefold_chunking::{Chunker, ChunkerKind, ChunkerParameters};
use onefold_crypto::{Fingerprinter, HashKind};
use onefold_engine::primary::estimate::kind::kind_of;
use onefold_format::codec::{Compression, Compressor};
use onefold_types::environment::Clock;
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::io::{BufWriter, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

/// Files read before any of them is written.
const WINDOW_FILES: usize = 256;

/// How a directory is crawled.
#[derive(Clone, Debug)]
pub struct Options {
    /// How files are cut.
    pub chunker: ChunkerParameters,
    /// The version to write; from 6 on, chunks say how well they compress.
    pub version: Version,
    /// The hash of chunks: SHA-256 (32 bytes) or SHA-1 (20).
    pub hash: HashMethod,
    /// Bytes of it that are kept; published traces keep 6.
    pub hash_bytes: usize,
    /// Whether names are replaced.
    pub anonymous: bool,
}

impl Options {
    /// Chunks of about `average` bytes, version 7, whole SHA-256.
    ///
    /// # Errors
    /// The average is out of range.
    pub fn new(kind: ChunkerKind, average: usize) -> Result<Self> {
        Ok(Self {
            chunker: ChunkerParameters::with_average(kind, average)?,
            version: Version::NEWEST,
            hash: HashMethod::Sha256,
            hash_bytes: 32,
            anonymous: false,
        })
    }

    fn hash_kind(&self) -> Result<HashKind> {
        let (kind, most) = match self.hash {
            HashMethod::Sha256 => (HashKind::Sha256, 32),
            HashMethod::Sha1 => (HashKind::Sha1, 20),
            other => {
                return Err(Error::invalid(format!(
                    "a crawl cannot use {other:?}; choose Sha256 or Sha1"
                )));
            }
        };
        if !(4..=most).contains(&self.hash_bytes) {
            return Err(Error::invalid(format!(
                "{} bytes of {:?} cannot be kept; it must be 4 to {most}",
                self.hash_bytes, self.hash
            )));
        }
        Ok(kind)
    }

    fn header(&self) -> Header {
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let ChunkerParameters { kind, size_min_bytes: min, size_max_bytes: max, .. } = self.chunker;
        let chunking = match kind {
            ChunkerKind::Fixed => Chunking::Fixed { size_bytes: size(max) },
            _ => Chunking::by_content(size(min), size(max)),
        };
        Header::new(self.version, chunking, self.hash, self.hash_bytes)
    }
}

/// What a crawl wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crawled {
    /// Files.
    pub files: u64,
    /// Their chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Crawls the regular files below `root` into a new trace file.
///
/// # Errors
/// The options are impossible, `root` cannot be read, or `out` exists or cannot be written.
pub fn crawl(root: &Path, out: &Path, options: &Options, clock: &dyn Clock) -> Result<Crawled> {
    let what = || format!("writing the trace {}", out.display());
    let file = std::fs::File::create_new(out).context(what)?;
    let crawled = crawl_into(root, BufWriter::new(file), options, clock);
    if crawled.is_err() {
        // Half a trace is worse than none; that it failed is what matters.
        let _ = std::fs::remove_file(out);
    }
    crawled
}

fn crawl_into<W: Write + Seek>(
    root: &Path,
    out: W,
    options: &Options,
    clock: &dyn Clock,
) -> Result<Crawled> {
    let seconds = || u64::try_from(clock.now_ns() / 1_000_000_000).unwrap_or(0);
    let scanner = Scanner::new(root, options)?;
    let mut header = options.header();
    if options.version.number() >= 3 {
        header.start_seconds = seconds();
    }
    let mut writer = Writer::new(out, header)?;
    let mut crawled = Crawled::default();
    for window in tree::files(root)?.chunks(WINDOW_FILES) {
        let scanned = parallel::map(window, parallel::threads(), |path| scanner.scan(path))?;
        for (file, chunks) in scanned {
            crawled.files += 1;
            crawled.chunks += chunks.len() as u64;
            crawled.bytes += file.size_bytes;
            writer.file(&file, &chunks)?;
        }
    }
    writer.finish(seconds())?;
    Ok(crawled)
}

struct Scanner<'a> {
    root: &'a Path,
    options: &'a Options,
    chunker: Box<dyn Chunker>,
    fingerprinter: Fingerprinter,
    names: Fingerprinter,
}

impl<'a> Scanner<'a> {
    fn new(root: &'a Path, options: &'a Options) -> Result<Self> {
        Ok(Self {
            root,
            options,
            chunker: options.chunker.build(None)?,
            fingerprinter: Fingerprinter::new(options.hash_kind()?, None),
            names: Fingerprinter::new(HashKind::Blake3, None),
        })
    }

    fn scan(&self, path: &Path) -> Result<(File, Vec<FslChunk>)> {
        let whole = self.root.join(path);
        let what = || whole.display().to_string();
        let mut input = std::fs::File::open(&whole).context(what)?;
        let metadata = input.metadata().context(what)?;
        let mut compressor = Compressor::new(Compression::Zstd(1))?;
        let (mut chunks, mut coded, mut size_bytes) = (Vec::new(), Vec::new(), 0);
        let has_ratio = self.options.version.number() >= 6;
        tree::cut(&mut input, &*self.chunker, &mut |bytes| {
            let digest = self.fingerprinter.data(bytes);
            let mut ratio_tenths = 0;
            if has_ratio {
                coded.clear();
                compressor.compress(bytes, &mut coded)?;
                let tenths = bytes.len() * 10 / coded.len().max(1);
                ratio_tenths = u8::try_from(tenths).unwrap_or(u8::MAX);
            }
            let hash = digest.0.get(..self.options.hash_bytes).unwrap_or_default().to_vec();
            size_bytes += bytes.len() as u64;
            chunks.push(FslChunk { size_bytes: bytes.len() as u64, hash, ratio_tenths });
            Ok(())
        })
        .context(what)?;
        let mut file = File { size_bytes, path: self.name(path), ..File::default() };
        if self.options.version.number() >= 4 {
            self.attributes(&mut file, &metadata);
        }
        Ok((file, chunks))
    }

    fn attributes(&self, file: &mut File, metadata: &std::fs::Metadata) {
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        file.mode = u64::from(metadata.mode());
        file.modified_seconds = seconds(metadata.mtime());
        file.changed_seconds = seconds(metadata.ctime());
        file.accessed_seconds = seconds(metadata.atime());
        file.links = metadata.nlink();
        if self.options.version.number() >= 5 {
            file.blocks = metadata.blocks();
        }
        if !self.options.anonymous {
            (file.user, file.group) = (metadata.uid(), metadata.gid());
            (file.device, file.inode) = (metadata.dev(), metadata.ino());
        }
    }

    /// The path as recorded: each component by itself, so that the tree keeps its form.
    fn name(&self, path: &Path) -> Vec<u8> {
        if !self.options.anonymous {
            return path.as_os_str().as_bytes().to_vec();
        }
        let mut name = String::new();
        for component in path.components() {
            let Component::Normal(part) = component else {
                continue;
            };
            if !name.is_empty() {
                name.push('/');
            }
            let digest = self.names.node(part.as_bytes()).to_string();
            name.push_str(digest.get(..16).unwrap_or_default());
        }
        if let Some(kind) = kind_of(path.as_os_str().as_bytes()) {
            name.push('.');
            name.push_str(&kind);
        }
        name.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::content;
    use crate::source::fsl::Reader;
    use onefold_types::environment::ManualClock;
    use std::fs;

    fn data() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("d")).unwrap();
        for (name, seed, ratio) in [("a.txt", 1, 4.0), ("d/b.txt", 1, 4.0), ("d/c.bin", 2, 1.0)] {
            let mut bytes = Vec::new();
            content::append(seed, 60_000, ratio, &mut bytes).unwrap();
            fs::write(place.path().join(name), bytes).unwrap();
        }
        fs::write(place.path().join("empty"), "").unwrap();
        place
    }

    fn options(version: u32) -> Options {
        let version = Version::new(version).unwrap();
        Options { version, ..Options::new(ChunkerKind::Regression, 4096).unwrap() }
    }

    fn paths(file: &Path) -> Vec<String> {
        let mut reader = Reader::open(file).unwrap();
        let mut paths = Vec::new();
        while let Some(file) = reader.next_file().unwrap() {
            paths.push(String::from_utf8(file.path).unwrap());
        }
        paths
    }

    #[test]
    fn every_version_can_be_written_and_read() {
        let (data, place) = (data(), tempfile::tempdir().unwrap());
        for version in 1..=7 {
            let out = place.path().join(version.to_string());
            let clock = ManualClock::new(5_000_000_000);
            let crawled = crawl(data.path(), &out, &options(version), &clock).unwrap();
            assert_eq!((crawled.files, crawled.bytes), (4, 180_000));
            let mut reader = Reader::open(&out).unwrap();
            assert_eq!(reader.header().chunks, crawled.chunks);
            let seconds = if version >= 3 { 5 } else { 0 };
            assert_eq!(
                (reader.header().start_seconds, reader.header().end_seconds),
                (seconds, seconds)
            );
            let first = reader.next_file().unwrap().unwrap();
            assert_eq!((&first.path[..], first.size_bytes), (&b"a.txt"[..], 60_000));
            let mut chunks = Vec::new();
            chunks.extend(std::iter::from_fn(|| reader.next_chunk().unwrap()));
            assert_eq!(chunks.iter().map(|chunk| chunk.size_bytes).sum::<u64>(), 60_000);
            // The file begins with random bytes and ends with predictable ones.
            let ends = [&chunks[0], &chunks[chunks.len() - 1]].map(|chunk| chunk.ratio_tenths);
            assert_eq!(ends, if version >= 6 { [10, 255] } else { [0, 0] });
            assert_eq!(paths(&out), ["a.txt", "d/b.txt", "d/c.bin", "empty"]);
        }
    }

    #[test]
    fn an_anonymous_trace_keeps_structure_and_kind_only() {
        let (data, place) = (data(), tempfile::tempdir().unwrap());
        let out = place.path().join("t");
        let options = Options { anonymous: true, hash_bytes: 6, ..options(7) };
        crawl(data.path(), &out, &options, &ManualClock::new(0)).unwrap();
        let paths = paths(&out);
        assert!(paths[0].ends_with(".txt") && !paths[0].contains("a."), "{paths:?}");
        let directory = |path: &str| path.split_once('/').map(|(first, _)| first.to_owned());
        assert!(directory(&paths[1]).is_some() && directory(&paths[1]) == directory(&paths[2]));
        assert_eq!(Reader::open(&out).unwrap().header().hash_bytes, 6);
    }

    #[test]
    fn a_failed_crawl_leaves_no_trace() {
        let (data, place) = (data(), tempfile::tempdir().unwrap());
        let clock = ManualClock::new(0);
        let out = place.path().join("t");
        let absent = data.path().join("absent");
        assert!(crawl(&absent, &out, &options(7), &clock).is_err() && !out.exists());
        for wrong in [
            Options { hash: HashMethod::Murmur, ..options(7) },
            Options { hash_bytes: 33, ..options(7) },
            Options { hash_bytes: 3, ..options(7) },
        ] {
            let message = crawl(data.path(), &out, &wrong, &clock).unwrap_err().to_string();
            assert!(message.contains("4 to 32") || message.contains("Sha1"), "{message}");
        }
        fs::write(&out, "mine").unwrap();
        assert!(crawl(data.path(), &out, &options(7), &clock).is_err());
        assert_eq!(fs::read(&out).unwrap(), b"mine");
    }
}
