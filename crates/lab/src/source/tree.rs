//! Real directories as a trace: each directory is one generation, cut by the product's chunkers.
//!
//! A directory is read in one of two layouts: file by file, as Onefold does it, or as one archive
//! in which a header of 512 bytes precedes each file and files are padded to 512 bytes. The archive
//! is what FAST'08 saw: backup software that does not align files, so that one inserted file shifts
//! all that follow.

use crate::parallel;
use crate::trace::{Chunk, Recorded};
use ignore::WalkBuilder;
use onefold_chunking::{Chunker, ChunkerParameters, Piece, Segmenter};
use onefold_crypto::{Fingerprinter, HashKind};
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const ARCHIVE_BLOCK_BYTES: usize = 512;
/// Bytes handed to the chunker at once, beside its window.
const READ_BYTES: usize = 1 << 20;

/// How a directory becomes a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Each file is cut for itself.
    Files,
    /// All files are cut as one archive.
    Archive,
}

/// The versions below a directory: its subdirectories in the order of their names, hidden ones
/// left out.
///
/// # Errors
/// It cannot be read, or has none.
pub fn versions(parent: &Path) -> Result<Vec<PathBuf>> {
    let what = || format!("listing {}", parent.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent).context(what)? {
        let entry = entry.context(what)?;
        let hidden = entry.file_name().as_bytes().starts_with(b".");
        if !hidden && entry.file_type().context(what)?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    if found.is_empty() {
        return Err(Error::invalid(format!(
            "{} holds no directories; it must hold one for each version of the data",
            parent.display()
        )));
    }
    Ok(found)
}

/// The regular files below a directory with their paths relative to it, in the order of a walk by
/// name.
///
/// # Errors
/// A directory cannot be read.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let walk = WalkBuilder::new(root).standard_filters(false).sort_by_file_name(Ord::cmp).build();
    for entry in walk {
        let entry = entry
            .map_err(|error| Error::invalid(format!("walking {}: {error}", root.display())))?;
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            found.push(entry.path().strip_prefix(root).unwrap_or(entry.path()).to_path_buf());
        }
    }
    Ok(found)
}

/// Cuts a stream and shows every chunk's bytes; holes are left out.
///
/// # Errors
/// Those of the input and of `each`.
pub fn cut(
    input: &mut dyn Read,
    chunker: &dyn Chunker,
    each: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let window = Segmenter::window_bytes(chunker);
    let mut segmenter = Segmenter::new(false);
    let mut buffer = Vec::with_capacity(window + READ_BYTES);
    let mut pieces = Vec::new();
    loop {
        let room = (window + READ_BYTES - buffer.len()) as u64;
        let read = (&mut *input).take(room).read_to_end(&mut buffer).context(|| "reading")?;
        let end = (read as u64) < room;
        pieces.clear();
        let used = segmenter.advance(chunker, &buffer, end, &mut |piece| pieces.push(piece));
        let mut rest = buffer.as_slice();
        for piece in &pieces {
            let (Piece::Data { length } | Piece::Hole { length }) = *piece;
            let (bytes, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            if matches!(piece, Piece::Data { .. }) {
                each(bytes)?;
            }
        }
        buffer.drain(..used);
        if end {
            return Ok(());
        }
    }
}

/// Cuts streams and names the chunks.
pub struct Reader {
    chunker: Box<dyn Chunker>,
    fingerprinter: Fingerprinter,
}

impl Reader {
    /// A reader with this chunker.
    ///
    /// # Errors
    /// The parameters are impossible.
    pub fn new(parameters: &ChunkerParameters) -> Result<Self> {
        let chunker = parameters.build(None)?;
        Ok(Self { chunker, fingerprinter: Fingerprinter::new(HashKind::Blake3, None) })
    }

    /// The chunks of a stream.
    ///
    /// # Errors
    /// Those of the input.
    pub fn chunks(&self, input: &mut dyn Read) -> Result<Vec<Chunk>> {
        let mut chunks = Vec::new();
        cut(input, &*self.chunker, &mut |bytes| {
            let length_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            chunks.push(Chunk { fingerprint: self.fingerprinter.data(bytes), length_bytes });
            Ok(())
        })?;
        Ok(chunks)
    }

    fn files(&self, root: &Path) -> Result<Vec<Chunk>> {
        let paths = files(root)?;
        let chunks = parallel::map(&paths, parallel::threads(), |path| {
            let path = root.join(path);
            let what = || path.display().to_string();
            self.chunks(&mut File::open(&path).context(what)?).context(what)
        })?;
        Ok(chunks.concat())
    }

    fn archive(&self, root: &Path) -> Result<Vec<Chunk>> {
        let mut archive = Archive { root, files: files(root)?.into(), state: State::Between };
        self.chunks(&mut archive).context(|| root.display())
    }
}

/// Reads directories as consecutive generations of one stream.
///
/// # Errors
/// The parameters are impossible, or a file cannot be read.
pub fn read_versions(
    name: &str,
    directories: &[PathBuf],
    parameters: &ChunkerParameters,
    layout: Layout,
) -> Result<Recorded> {
    let reader = Reader::new(parameters)?;
    let mut trace = Recorded::new(name);
    let generations = match layout {
        Layout::Files => directories.iter().map(|root| reader.files(root)).collect(),
        Layout::Archive => {
            parallel::map(directories, parallel::threads(), |root| reader.archive(root))
        }
    };
    let generations: Vec<Vec<Chunk>> = generations?;
    for (generation, chunks) in (0..).zip(&generations) {
        trace.push_generation(0, generation, chunks);
    }
    Ok(trace)
}

/// All files of a directory as one stream.
struct Archive<'a> {
    root: &'a Path,
    files: VecDeque<PathBuf>,
    state: State,
}

enum State {
    Between,
    /// Bytes that come before the file's.
    Header(Vec<u8>, File),
    /// The file, and how much of it was read.
    Inside(File, usize),
    Padding(Vec<u8>),
}

impl Archive<'_> {
    fn header(path: &Path) -> Vec<u8> {
        let mut header = path.as_os_str().as_bytes().to_vec();
        header.resize(header.len().next_multiple_of(ARCHIVE_BLOCK_BYTES), 0);
        header
    }
}

impl Read for Archive<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, State::Between) {
                State::Between => {
                    let Some(path) = self.files.pop_front() else {
                        return Ok(0);
                    };
                    let file = File::open(self.root.join(&path))?;
                    self.state = State::Header(Self::header(&path), file);
                }
                State::Header(header, file) if header.is_empty() => {
                    self.state = State::Inside(file, 0);
                }
                State::Header(header, file) => {
                    let (count, rest) = hand_out(&header, out);
                    self.state = State::Header(rest, file);
                    return Ok(count);
                }
                State::Inside(mut file, before) => {
                    let count = file.read(out)?;
                    if count == 0 {
                        let padding = before.next_multiple_of(ARCHIVE_BLOCK_BYTES) - before;
                        self.state = State::Padding(vec![0; padding]);
                    } else {
                        self.state = State::Inside(file, before + count);
                        return Ok(count);
                    }
                }
                State::Padding(padding) if padding.is_empty() => {}
                State::Padding(padding) => {
                    let (count, rest) = hand_out(&padding, out);
                    self.state = State::Padding(rest);
                    return Ok(count);
                }
            }
        }
    }
}

/// Copies as much as there is room for; returns how much, and what is left.
fn hand_out(bytes: &[u8], out: &mut [u8]) -> (usize, Vec<u8>) {
    let count = bytes.len().min(out.len());
    let (now, later) = bytes.split_at(count);
    if let Some(room) = out.get_mut(..count) {
        room.copy_from_slice(now);
    }
    (count, later.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Summary;
    use onefold_chunking::ChunkerKind;
    use std::fs;

    fn parameters(kind: ChunkerKind) -> ChunkerParameters {
        ChunkerParameters::with_average(kind, 1024).unwrap()
    }

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        crate::source::content::append(seed, length, 1.0, &mut bytes).unwrap();
        bytes
    }

    /// Two versions of three files; in the second a file has come in front.
    fn two_versions() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for (number, version) in ["v1", "v2"].iter().enumerate() {
            let root = place.path().join(version);
            fs::create_dir_all(root.join("d")).unwrap();
            fs::write(root.join("d/b"), noise(1, 300_000)).unwrap();
            fs::write(root.join("c"), noise(2, 100_001)).unwrap();
            fs::write(root.join("empty"), "").unwrap();
            if number == 1 {
                fs::write(root.join("a"), noise(3, 777)).unwrap();
            }
        }
        fs::create_dir(place.path().join(".hidden")).unwrap();
        fs::write(place.path().join("notes"), "x").unwrap();
        place
    }

    #[test]
    fn versions_and_files_are_found_in_order() {
        let place = two_versions();
        let roots = versions(place.path()).unwrap();
        assert_eq!(roots.len(), 2);
        assert!(roots[0].ends_with("v1") && roots[1].ends_with("v2"));
        let names = files(&roots[1]).unwrap();
        assert_eq!(names, ["a", "c", "d/b", "empty"].map(PathBuf::from));
        let message = versions(&roots[0].join("d")).unwrap_err().to_string();
        assert!(message.contains("one for each version"), "{message}");
        assert!(versions(&place.path().join("absent")).is_err());
    }

    #[test]
    fn every_byte_is_in_a_chunk_and_equal_files_give_equal_chunks() {
        let place = two_versions();
        let roots = versions(place.path()).unwrap();
        for kind in ChunkerKind::ALL {
            let trace = read_versions("t", &roots, &parameters(kind), Layout::Files).unwrap();
            let summary = Summary::of(&trace).unwrap();
            assert_eq!(summary.generations[&0].bytes, 400_001, "{kind}");
            assert_eq!(summary.generations[&1].bytes_new, 777, "{kind}");
        }
    }

    #[test]
    fn in_an_archive_an_insertion_shifts_fixed_chunks_only() {
        let place = two_versions();
        let roots = versions(place.path()).unwrap();
        let new_share = |kind| {
            let trace = read_versions("t", &roots, &parameters(kind), Layout::Archive).unwrap();
            let second = Summary::of(&trace).unwrap().generations[&1];
            // Three or four headers, and files padded to 512 bytes.
            assert_eq!(second.bytes, 4 * 512 + 300_032 + 100_352 + 1024, "{kind}");
            second.new_share()
        };
        assert!(new_share(ChunkerKind::Fixed) > 0.99);
        for kind in [ChunkerKind::Rabin, ChunkerKind::Regression, ChunkerKind::MinCdc] {
            assert!(new_share(kind) < 0.05, "{kind}");
        }
    }

    #[test]
    fn holes_are_no_chunks() {
        let mut bytes = noise(1, 1 << 16);
        bytes.resize(1 << 20, 0);
        bytes.extend(noise(2, 1000));
        let reader = Reader::new(&parameters(ChunkerKind::MinCdc)).unwrap();
        let chunks = reader.chunks(&mut bytes.as_slice()).unwrap();
        let sum: u32 = chunks.iter().map(|chunk| chunk.length_bytes).sum();
        assert_eq!(sum, (1 << 16) + 1000);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let place = two_versions();
        let roots = [place.path().join("absent")];
        let parameters = parameters(ChunkerKind::Rabin);
        for layout in [Layout::Files, Layout::Archive] {
            let message = read_versions("t", &roots, &parameters, layout).unwrap_err().to_string();
            assert!(message.contains("absent"), "{message}");
        }
    }
}
