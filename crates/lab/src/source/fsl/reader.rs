//! Reads a trace file, one file and one chunk at a time.
//!
//! Memory: one path, one link target and one hash, whatever the trace says about itself. A count in
//! a header is compared with what was read, and never allocated from.

use super::header::{self, Fields, Mismatch};
use super::model::{
    Chunking, File, FslChunk, HashMethod, Header, PATH_FIELD_BYTES, PATH_MAX_BYTES, Progress,
    Version,
};
use onefold_types::{Error, Result};
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Bytes of the file header of version 4.
const ATTRIBUTES_BYTES: usize = 88;

/// A trace file being read.
pub struct Reader<R> {
    input: R,
    name: String,
    offset: u64,
    header: Header,
    files_read: u64,
    chunks_read: u64,
    /// Of the file whose chunks are being read.
    current: Progress,
    buffer: Vec<u8>,
}

impl Reader<BufReader<std::fs::File>> {
    /// Opens a trace file.
    ///
    /// # Errors
    /// It cannot be read, or is no trace.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = std::fs::File::open(path)
            .map_err(|cause| Error::io(format!("opening the trace {name}"), cause))?;
        Self::new(BufReader::with_capacity(1 << 20, file), name)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header; `name` stands for the input in messages.
    ///
    /// # Errors
    /// The input is no trace, or cannot be read.
    pub fn new(input: R, name: impl Into<String>) -> Result<Self> {
        let chunking = Chunking::Fixed { size_bytes: 1 };
        let placeholder = Header::new(Version::NEWEST, chunking, HashMethod::Md5, 1);
        let mut reader = Self {
            input,
            name: name.into(),
            offset: 0,
            header: placeholder,
            files_read: 0,
            chunks_read: 0,
            current: Progress::default(),
            buffer: Vec::new(),
        };
        reader.fill(8, "a header")?;
        let version = reader.decoded(header::decode_version(&reader.buffer), 8)?;
        let rest = header::rest_bytes(version);
        reader.fill(rest, "the rest of the header")?;
        reader.header = reader.decoded(header::decode_rest(version, &reader.buffer), rest)?;
        Ok(reader)
    }

    /// What the trace says about itself.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next file; chunks of the one before that were not read are passed over.
    ///
    /// # Errors
    /// The trace is damaged or cannot be read.
    pub fn next_file(&mut self) -> Result<Option<File>> {
        while self.next_chunk()?.is_some() {}
        if self.files_read == self.header.files {
            self.check_end()?;
            return Ok(None);
        }
        let what = format!("file {} of {}", self.files_read + 1, self.header.files);
        let file = match self.header.version.number() {
            1 => self.file_v1(&what)?,
            2 | 3 => self.file_v2(&what)?,
            _ => self.file_v4(&what)?,
        };
        let left = self.header.chunks - self.chunks_read;
        if file.chunks > left {
            let expected = format!("at most {left} more chunks, not {}", file.chunks);
            return Err(self.damaged(self.offset, &expected));
        }
        self.files_read += 1;
        self.current = Progress::begin(&file);
        Ok(Some(file))
    }

    /// The next chunk of the current file.
    ///
    /// # Errors
    /// The trace is damaged or cannot be read.
    pub fn next_chunk(&mut self) -> Result<Option<FslChunk>> {
        if self.current.is_complete() {
            return Ok(None);
        }
        let version = self.header.version;
        let is_variable = matches!(self.header.chunking, Chunking::Variable(_));
        let size_length = if is_variable { version.size_bytes() } else { 0 };
        let hash_length = self.header.hash_bytes;
        let ratio_length = usize::from(version.has_ratio());
        self.fill(size_length + hash_length + ratio_length, "a chunk")?;
        let decoded = (|| {
            let mut fields = Fields::new(&self.buffer);
            let size_bytes = match size_length {
                0 => self.current.implied_size(self.header.chunking),
                4 => u64::from(fields.u32()?),
                _ => fields.u64()?,
            };
            let hash = fields.take(hash_length)?.to_vec();
            let ratio = fields.take(ratio_length)?.first().copied();
            Ok(FslChunk { size_bytes, hash, ratio_tenths: ratio.unwrap_or(0) })
        })();
        let chunk = self.decoded(decoded, size_length + hash_length + ratio_length)?;
        self.current.advance();
        self.chunks_read += 1;
        Ok(Some(chunk))
    }

    /// Where the next byte is read, from the start of the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The input's name, as messages give it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn file_v1(&mut self, what: &str) -> Result<File> {
        let length = PATH_FIELD_BYTES + 16;
        self.fill(length, what)?;
        let decoded = (|| {
            let mut fields = Fields::new(&self.buffer);
            let path = fields.text()?;
            let (size_bytes, chunks) = (fields.u64()?, fields.u64()?);
            Ok(File { size_bytes, chunks, path, ..File::default() })
        })();
        self.decoded(decoded, length)
    }

    fn file_v2(&mut self, what: &str) -> Result<File> {
        self.fill(20, what)?;
        let decoded = (|| {
            let mut fields = Fields::new(&self.buffer);
            Ok((fields.u64()?, fields.u64()?, fields.u32()?))
        })();
        let (size_bytes, chunks, length) = self.decoded(decoded, 20)?;
        let path = self.text(length, 4, "a path")?;
        Ok(File { size_bytes, chunks, path, ..File::default() })
    }

    fn file_v4(&mut self, what: &str) -> Result<File> {
        let has_blocks = self.header.version.has_blocks();
        let length = ATTRIBUTES_BYTES + if has_blocks { 8 } else { 0 };
        self.fill(length, what)?;
        let decoded = (|| {
            let mut fields = Fields::new(&self.buffer);
            let file = File {
                size_bytes: fields.u64()?,
                blocks: if has_blocks { fields.u64()? } else { 0 },
                user: fields.u32()?,
                group: fields.u32()?,
                mode: fields.u64()?,
                accessed_seconds: fields.u64()?,
                modified_seconds: fields.u64()?,
                changed_seconds: fields.u64()?,
                links: fields.u64()?,
                device: fields.u64()?,
                inode: fields.u64()?,
                chunks: fields.u64()?,
                ..File::default()
            };
            Ok((file, fields.u32()?, fields.u32()?))
        })();
        let (mut file, path, target) = self.decoded(decoded, length)?;
        file.path = self.text(path, 8, "a path")?;
        if file.is_symlink() {
            file.target = self.text(target, 4, "the target of a link")?;
        }
        Ok(file)
    }

    /// Text whose length was read `back` bytes before.
    fn text(&mut self, length: u32, back: u64, what: &str) -> Result<Vec<u8>> {
        let length = length as usize;
        if length > PATH_MAX_BYTES {
            let expected = format!("{what} of at most {PATH_MAX_BYTES} bytes, not {length}");
            return Err(self.damaged(self.offset.saturating_sub(back), &expected));
        }
        self.fill(length, what)?;
        Ok(self.buffer.clone())
    }

    fn check_end(&mut self) -> Result<()> {
        if self.chunks_read != self.header.chunks {
            let expected = format!(
                "{} chunks as the header says, not {}",
                self.header.chunks, self.chunks_read
            );
            return Err(self.damaged(self.offset, &expected));
        }
        let mut one = [0];
        loop {
            match self.input.read(&mut one) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(self.damaged(self.offset, "the end of the file")),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(self.failed(cause)),
            }
        }
    }

    /// Reads exactly `count` bytes, which the caller has bounded, into the buffer.
    fn fill(&mut self, count: usize, what: &str) -> Result<()> {
        self.buffer.resize(count, 0);
        match self.input.read_exact(&mut self.buffer) {
            Ok(()) => {
                self.offset += count as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(self.offset, &format!("{what}: {count} bytes, not the end")))
            }
            Err(cause) => Err(self.failed(cause)),
        }
    }

    fn decoded<T>(&self, decoded: Result<T, Mismatch>, length: usize) -> Result<T> {
        decoded.map_err(|Mismatch { offset, expected }| {
            self.damaged(self.offset - length as u64 + offset as u64, &expected)
        })
    }

    fn damaged(&self, offset: u64, expected: &str) -> Error {
        Error::damaged(format!("{}: at byte {offset}, expected {expected}", self.name))
    }

    fn failed(&self, cause: io::Error) -> Error {
        Error::io(format!("{}: reading at byte {}", self.name, self.offset), cause)
    }
}
