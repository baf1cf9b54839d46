//! The file that an estimate goes on from: what was read, as a log of files and chunks.
//!
//! ```text
//! head        "onefold estimate", u32 version, u32 length of the settings, u32 sections,
//!             u64 length of each section, settings, BLAKE3 of all of the head before
//! section 0   for each file, in the order of the walk: counted path, varint inode, varint size,
//!             signed time of modification and signed time of change in ns, varint allocated bytes
//! section n   for each file in the same order, cut by the n-th chunker: chunks (1, u64 first bytes
//!             of the fingerprint, varint length, varint compressed length plus one or 0: not
//!             known) and zeros (2, varint length), and an end (0)
//! ```
//!
//! Groups of sections are verified ([`super::section`]); numbers are little-endian. A second run
//! walks the directory and the log beside each other, both in the order of paths, so that neither
//! needs a table of files: what is unchanged is taken over from the log, what is not is read. So a
//! run that goes on counts exactly what one run would count.
//!
//! The file is replaced as a whole: a new one is written beside it, made durable and renamed. It
//! holds paths and beginnings of fingerprints, so that only its owner may read it.

use super::section::{SectionReader, SectionWriter};
use onefold_chunking::ChunkerParameters;
use onefold_crypto::{Fingerprinter, HashKind};
use onefold_format::wire::{Reader as Wire, Writer as WireWriter};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use std::cmp::Ordering;
use std::fs::File;
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 16] = b"onefold estimate";
const VERSION: u32 = 1;
const SETTINGS_MAX_BYTES: usize = 64 << 10;
const SECTIONS_MAX: usize = 64;
/// The longest path of a file below the root.
const PATH_MAX_BYTES: usize = 2 << 20;
/// A time that no file has: it is read again the next time.
pub const READ_AGAIN_NS: i64 = i64::MIN;

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileRecord {
    /// Where it is, below the root.
    pub path: Vec<u8>,
    /// Its number.
    pub inode: u64,
    /// Its length.
    pub size_bytes: u64,
    /// When its content was changed.
    pub modified_ns: i64,
    /// When anything of it was changed, or [`READ_AGAIN_NS`].
    pub changed_ns: i64,
    /// What it takes of the disk.
    pub allocated_bytes: u64,
}

impl FileRecord {
    fn encode(&self, wire: &mut WireWriter) {
        wire.counted(&self.path);
        wire.varint(self.inode);
        wire.varint(self.size_bytes);
        wire.signed(self.modified_ns);
        wire.signed(self.changed_ns);
        wire.varint(self.allocated_bytes);
    }

    fn decode(wire: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            path: wire.counted(PATH_MAX_BYTES)?.to_vec(),
            inode: wire.varint()?,
            size_bytes: wire.varint()?,
            modified_ns: wire.signed()?,
            changed_ns: wire.signed()?,
            allocated_bytes: wire.varint()?,
        })
    }

    /// Whether this is the same state of the same file.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |file: &Self| (file.inode, file.size_bytes, file.modified_ns, file.changed_ns);
        self.path == other.path && of(self) == of(other) && self.changed_ns != READ_AGAIN_NS
    }
}

/// A part of a file as a chunker cut it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// The file ends.
    End,
    /// A chunk.
    Chunk {
        /// The first bytes of its fingerprint.
        prefix: u64,
        /// Its length.
        bytes: u32,
        /// What a compressor leaves of it, if that is known.
        compressed: Option<u32>,
    },
    /// Zeros.
    Zeros(u64),
}

impl Piece {
    /// Appends it.
    pub fn encode(&self, wire: &mut WireWriter) {
        match *self {
            Self::End => wire.u8(0),
            Self::Chunk { prefix, bytes, compressed } => {
                wire.u8(1);
                wire.u64(prefix);
                wire.varint(bytes.into());
                wire.varint(compressed.map_or(0, |left| u64::from(left) + 1));
            }
            Self::Zeros(bytes) => {
                wire.u8(2);
                wire.varint(bytes);
            }
        }
    }

    /// Takes the next one off.
    pub fn decode(wire: &mut Wire<'_>) -> Result<Self> {
        Ok(match wire.u8()? {
            0 => Self::End,
            1 => Self::Chunk {
                prefix: wire.u64()?,
                bytes: wire.varint_u32()?,
                compressed: match wire.varint_max(u64::from(u32::MAX))? {
                    0 => None,
                    more => Some((more - 1) as u32),
                },
            },
            2 => Self::Zeros(wire.varint()?),
            other => return Err(wire.damaged(&format!("{other} is no piece of a file"))),
        })
    }
}

/// What two states must have in common to be of one estimate.
#[must_use]
pub fn settings(root: &Path, chunkers: &[ChunkerParameters], compression: &str) -> String {
    let mut text = format!("directory {}\ncompression {compression}\n", root.display());
    for chunker in chunkers {
        text.push_str(&format!(
            "chunks {} {} {} {} {}\n",
            chunker.kind,
            chunker.size_min_bytes,
            chunker.size_avg_bytes,
            chunker.size_max_bytes,
            chunker.regression_depth
        ));
    }
    text
}

/// An earlier state, at the first file that was not passed yet.
#[derive(Clone)]
pub struct Earlier {
    files: SectionReader,
    next: Option<FileRecord>,
    /// How many files come before that.
    ordinal: u64,
}

/// The order of a walk: by names, directory by directory.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    a.split(|byte| *byte == b'/').cmp(b.split(|byte| *byte == b'/'))
}

impl Earlier {
    fn new(mut files: SectionReader) -> Result<Self> {
        let next = files.next(FileRecord::decode)?;
        Ok(Self { files, next, ordinal: 0 })
    }

    fn advance(&mut self) -> Result<()> {
        self.next = self.files.next(FileRecord::decode)?;
        self.ordinal += 1;
        Ok(())
    }

    /// The number of the file that is this one in the same state, if there is one. Files are asked
    /// for in the order of the walk.
    pub fn find(&mut self, file: &FileRecord) -> Result<Option<u64>> {
        while let Some(next) = &self.next {
            match order(&next.path, &file.path) {
                Ordering::Less => self.advance()?,
                Ordering::Equal => {
                    let same = next.is_same(file).then_some(self.ordinal);
                    self.advance()?;
                    return Ok(same);
                }
                Ordering::Greater => break,
            }
        }
        Ok(None)
    }

    fn copy_rest(&mut self, writer: &mut SectionWriter) -> Result<()> {
        while let Some(next) = &self.next {
            next.encode(writer.item());
            writer.close_if_full()?;
            self.advance()?;
        }
        Ok(())
    }
}

/// The lists of chunks of an earlier state that one chunker cut.
#[derive(Clone)]
pub struct EarlierLists {
    reader: SectionReader,
    ordinal: u64,
}

impl EarlierLists {
    /// Shows the pieces of the file with this number, the end among them. Files are asked for in
    /// order.
    pub fn list(&mut self, ordinal: u64, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
        loop {
            let Some(piece) = self.reader.next(Piece::decode)? else {
                return Err(Error::damaged("the state lists more files than it holds"));
            };
            if self.ordinal == ordinal {
                each(piece)?;
            }
            if piece == Piece::End {
                self.ordinal += 1;
                if self.ordinal > ordinal {
                    return Ok(());
                }
            }
        }
    }

    fn copy_rest(&mut self, from: u64, writer: &mut SectionWriter) -> Result<()> {
        while let Some(piece) = self.reader.next(Piece::decode)? {
            if self.ordinal >= from {
                piece.encode(writer.item());
                writer.close_if_full()?;
            }
            self.ordinal += u64::from(piece == Piece::End);
        }
        Ok(())
    }
}

/// The lists that one chunker has written, all complete, and what is left of the earlier ones.
pub struct Lists {
    /// What was written.
    pub written: SectionReader,
    /// What was not passed yet.
    pub rest: Option<EarlierLists>,
}

/// The log of files, and where the whole is kept.
pub struct State {
    path: PathBuf,
    settings: String,
    files: SectionWriter,
    earlier: Option<Earlier>,
}

impl State {
    /// Opens the state that an earlier run has left, or begins one. Gives the lists of each chunker
    /// as well, of which there are `chunkers`.
    pub fn open(
        path: &Path,
        settings: String,
        chunkers: usize,
    ) -> Result<(Self, Option<Vec<EarlierLists>>)> {
        let files = SectionWriter::new(scratch(path)?, 0);
        let mut state = Self { path: path.to_path_buf(), settings, files, earlier: None };
        let file = match File::open(path) {
            Err(cause) if cause.kind() == IoKind::NotFound => return Ok((state, None)),
            file => file.context(|| format!("the state {}", path.display()))?,
        };
        let advice = |error: Error| {
            let advice = "name another file, or remove it to begin anew";
            Error::new(error.kind(), format!("the state {}: {error}; {advice}", path.display()))
        };
        let mut sections = open_sections(file, &state.settings, chunkers).map_err(advice)?;
        state.earlier = Some(Earlier::new(sections.remove(0)).map_err(advice)?);
        let lists = |reader| EarlierLists { reader, ordinal: 0 };
        Ok((state, Some(sections.into_iter().map(lists).collect())))
    }

    /// The number of the file that is this one in the same state in the earlier run.
    pub fn find(&mut self, file: &FileRecord) -> Result<Option<u64>> {
        self.earlier.as_mut().map_or(Ok(None), |earlier| earlier.find(file))
    }

    /// Writes down a file, whose lists the chunkers have.
    pub fn add(&mut self, file: &FileRecord) -> Result<()> {
        file.encode(self.files.item());
        self.files.close_if_full()
    }

    /// Replaces the file by what is known now; with what the earlier run knew of files that were
    /// not met yet, if they may still be.
    pub fn save(&mut self, lists: Vec<Lists>, goes_on: bool) -> Result<()> {
        self.write(lists, goes_on).context(|| format!("saving the state {}", self.path.display()))
    }

    fn write(&mut self, lists: Vec<Lists>, goes_on: bool) -> Result<()> {
        let directory = directory_of(&self.path);
        let named = tempfile::Builder::new().prefix(".onefold-estimate-").tempfile_in(directory);
        let named = named.context(|| "making a new one")?;
        let head = self.head(&vec![0; lists.len() + 1]);
        let mut offset = head.len() as u64;
        let mut lengths = Vec::new();
        let earlier = self.earlier.as_ref().filter(|_| goes_on);
        let passed = earlier.map_or(0, |earlier| earlier.ordinal);
        self.files.flush()?;
        let mut written = self.files.reader(0)?;
        let mut writer = SectionWriter::new(named.reopen().context(|| "opening it")?, offset);
        while let Some(file) = written.next(FileRecord::decode)? {
            file.encode(writer.item());
            writer.close_if_full()?;
        }
        if let Some(earlier) = earlier {
            earlier.clone().copy_rest(&mut writer)?;
        }
        let mut end = writer.flush()?;
        lengths.push(end - offset);
        for mut list in lists {
            offset = end;
            while let Some(piece) = list.written.next(Piece::decode)? {
                piece.encode(writer.item());
                writer.close_if_full()?;
            }
            if let Some(mut rest) = list.rest.filter(|_| goes_on) {
                rest.copy_rest(passed, &mut writer)?;
            }
            end = writer.flush()?;
            lengths.push(end - offset);
        }
        let what = || "making it durable";
        named.as_file().write_all_at(&self.head(&lengths), 0).context(what)?;
        named.as_file().sync_all().context(what)?;
        named.persist(&self.path).map_err(|error| error.error).context(|| "putting it in place")?;
        File::open(directory).and_then(|directory| directory.sync_all()).context(what)
    }

    fn head(&self, lengths: &[u64]) -> Vec<u8> {
        let mut wire = WireWriter::new();
        wire.raw(MAGIC);
        wire.u32(VERSION);
        wire.u32(self.settings.len() as u32);
        wire.u32(lengths.len() as u32);
        lengths.iter().for_each(|length| wire.u64(*length));
        wire.raw(self.settings.as_bytes());
        let mut head = wire.into_bytes();
        let digest = digest(&head);
        head.extend_from_slice(&digest);
        head
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Fingerprinter::new(HashKind::Blake3, None).data(bytes).0
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file without a name beside the state, which vanishes with the process.
pub fn scratch(path: &Path) -> Result<File> {
    let directory = directory_of(path);
    tempfile::tempfile_in(directory).map_err(|cause| {
        Error::io(format!("a state cannot be written in {}", directory.display()), cause)
    })
}

/// Opens a state: its head must be of these settings, and every group as it was written.
fn open_sections(file: File, settings: &str, chunkers: usize) -> Result<Vec<SectionReader>> {
    let length = file.metadata().context(|| "its length")?.len();
    let mut fixed = [0; 28];
    let foreign = || Error::invalid("it is not the state of an estimate");
    let damaged = || Error::damaged("it is damaged");
    match file.read_exact_at(&mut fixed, 0) {
        Err(cause) if cause.kind() == IoKind::UnexpectedEof => return Err(foreign()),
        other => other.context(|| "reading it")?,
    }
    let mut wire = Wire::new(&fixed, "the head");
    if wire.raw(MAGIC.len())? != MAGIC {
        return Err(foreign());
    }
    if wire.u32()? != VERSION {
        let newer = "it was written by another version of onefold";
        return Err(Error::new(ErrorKind::NewerFormat, newer));
    }
    let (settings_bytes, sections) = (wire.u32()? as usize, wire.u32()? as usize);
    if settings_bytes > SETTINGS_MAX_BYTES || sections > SECTIONS_MAX {
        return Err(damaged());
    }
    let mut head = vec![0; fixed.len() + sections * 8 + settings_bytes + 32];
    file.read_exact_at(&mut head, 0).map_err(|_| damaged())?;
    let (head, found) = head.split_at(head.len() - 32);
    if found != digest(head) {
        return Err(damaged());
    }
    let mut wire = Wire::new(head.get(fixed.len()..).unwrap_or_default(), "the head");
    let lengths: Vec<u64> = (0..sections).map(|_| wire.u64()).collect::<Result<_>>()?;
    if wire.raw(settings_bytes)? != settings.as_bytes() || sections != chunkers + 1 {
        return Err(Error::invalid(
            "it is of another directory, of other chunk sizes or of another compression",
        ));
    }
    let file = Arc::new(file);
    let mut offset = (head.len() + 32) as u64;
    let mut readers = Vec::new();
    for section in lengths {
        let end = offset.checked_add(section).filter(|end| *end <= length).ok_or_else(damaged)?;
        readers.push(SectionReader::new(Arc::clone(&file), offset, end));
        offset = end;
    }
    if offset != length {
        return Err(damaged());
    }
    readers.iter().try_for_each(SectionReader::verify)?;
    Ok(readers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_in_the_order_of_a_walk() {
        let mut paths = ["b", "a-b", "a/z", "a/b/c", "a.c", "a/b-c"].map(str::as_bytes);
        paths.sort_by(|a, b| order(a, b));
        assert_eq!(paths, ["a/b/c", "a/b-c", "a/z", "a-b", "a.c", "b"].map(str::as_bytes));
    }

    fn record(path: &str, size_bytes: u64) -> FileRecord {
        FileRecord { path: path.into(), size_bytes, ..FileRecord::default() }
    }

    /// A writer of lists that holds a list for each of the numbers.
    fn lists(numbers: &[u64]) -> SectionWriter {
        let mut writer = SectionWriter::new(tempfile::tempfile().unwrap(), 0);
        for number in numbers {
            Piece::Zeros(*number).encode(writer.item());
            Piece::End.encode(writer.item());
        }
        writer.flush().unwrap();
        writer
    }

    /// What the earlier run had of the file with this number.
    fn pieces(earlier: &mut EarlierLists, number: u64) -> Vec<Piece> {
        let mut seen = Vec::new();
        let mut see = |piece| {
            seen.push(piece);
            Ok(())
        };
        earlier.list(number, &mut see).unwrap();
        seen
    }

    #[test]
    fn a_run_that_stopped_leaves_what_it_knows_and_what_it_did_not_reach() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let open = || State::open(&path, "s".into(), 1).unwrap();
        let (mut state, none) = open();
        assert!(none.is_none());
        for (name, size) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
            state.add(&record(name, size)).unwrap();
        }
        let written = lists(&[1, 2, 3, 4]);
        let save = |state: &mut State, written: &SectionWriter, rest, goes_on| {
            let written = written.reader(0).unwrap();
            state.save(vec![Lists { written, rest }], goes_on).unwrap();
        };
        save(&mut state, &written, None, false);

        // The second run meets that 'b' has changed, and stops before 'd'; 'a' is gone.
        let (mut state, earlier) = open();
        let mut earlier = earlier.unwrap().remove(0);
        assert_eq!(state.find(&record("b", 20)).unwrap(), None);
        state.add(&record("b", 20)).unwrap();
        assert_eq!(state.find(&record("c", 3)).unwrap(), Some(2));
        state.add(&record("c", 3)).unwrap();
        assert_eq!(pieces(&mut earlier, 2), [Piece::Zeros(3), Piece::End]);
        save(&mut state, &lists(&[20, 3]), Some(earlier), true);

        let (mut state, earlier) = open();
        let mut earlier = earlier.unwrap().remove(0);
        for (number, (name, size)) in [("b", 20), ("c", 3), ("d", 4)].into_iter().enumerate() {
            let number = number as u64;
            assert_eq!(state.find(&record(name, size)).unwrap(), Some(number), "{name}");
            assert_eq!(pieces(&mut earlier, number), [Piece::Zeros(size), Piece::End], "{name}");
        }
        let names = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 1, "something was left beside the state");
    }

    #[test]
    fn what_is_damaged_foreign_or_of_other_settings_is_refused_with_advice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (mut state, _) = State::open(&path, "s".into(), 1).unwrap();
        (0..100).for_each(|number| state.add(&record("a", number)).unwrap());
        let written = lists(&[1; 100]).reader(0).unwrap();
        state.save(vec![Lists { written, rest: None }], false).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8], settings: &str, chunkers| {
            std::fs::write(&path, bytes).unwrap();
            let error = State::open(&path, settings.into(), chunkers).err();
            let message = error.expect("it was taken").to_string();
            assert!(message.contains("remove it to begin anew"), "{message}");
        };
        refused(&whole, "t", 1);
        refused(&whole, "s", 2);
        refused(b"", "s", 1);
        refused(&[b"onefold estimate".as_slice(), &[0xff; 100]].concat(), "s", 1);
        for length in 0..whole.len() {
            refused(&whole[..length], "s", 1);
        }
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 0x10;
            refused(&other, "s", 1);
        }
        refused(&[&whole[..], b"x"].concat(), "s", 1);
    }
}
