//! Writes a trace file. The counts in the header are put in at the end, so the output must be able
//! to seek.

use super::header;
use super::model::{Chunking, File, FslChunk, Header, PATH_MAX_BYTES, Progress};
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::io::{Seek, SeekFrom, Write};

/// A trace file being written.
pub struct Writer<W> {
    output: W,
    header: Header,
    buffer: Vec<u8>,
    /// Of the current file.
    current: Progress,
}

impl<W: Write + Seek> Writer<W> {
    /// Writes a header whose counts are not known yet; those given are ignored.
    ///
    /// # Errors
    /// The output cannot be written, or the version cannot express the header.
    pub fn new(output: W, header: Header) -> Result<Self> {
        let header = Header { files: 0, chunks: 0, bytes: 0, ..header };
        let plain =
            Header { system: Vec::new(), start_seconds: 0, end_seconds: 0, ..header.clone() };
        if !header.version.has_system() && plain != header {
            return Err(inexpressible(&header, "a system and times"));
        }
        let mut writer = Self { output, header, buffer: Vec::new(), current: Progress::default() };
        header::encode(&writer.header, &mut writer.buffer)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Writes a file with its chunks. The size of fixed chunks follows from the file's and is only
    /// checked; that of variable ones in versions 1 and 2 is lost.
    ///
    /// # Errors
    /// The output cannot be written, or the version cannot express the file.
    pub fn file(&mut self, file: &File, chunks: &[FslChunk]) -> Result<()> {
        let file = File { chunks: chunks.len() as u64, ..file.clone() };
        self.begin(&file)?;
        chunks.iter().try_for_each(|chunk| self.chunk(chunk))
    }

    /// Writes a file's header; as many chunks as it says must follow.
    ///
    /// # Errors
    /// The output cannot be written, or the version cannot express the file, or the file before
    /// has not had all its chunks.
    pub fn begin(&mut self, file: &File) -> Result<()> {
        self.check_due()?;
        let version = self.header.version;
        if file.path.len() > PATH_MAX_BYTES || file.target.len() > PATH_MAX_BYTES {
            return Err(Error::invalid(format!(
                "a path or link target of more than {PATH_MAX_BYTES} bytes cannot be written"
            )));
        }
        let File { size_bytes, blocks, chunks, path, target, .. } = file;
        let expressible = match version.has_attributes() {
            true => {
                (version.has_blocks() || *blocks == 0) && (file.is_symlink() || target.is_empty())
            }
            false => {
                let bare = File {
                    size_bytes: *size_bytes,
                    chunks: *chunks,
                    path: path.clone(),
                    ..File::default()
                };
                bare == *file
            }
        };
        if !expressible {
            return Err(inexpressible(&self.header, "all attributes of a file"));
        }
        match version.number() {
            1 => {
                header::encode_text("path", path, &mut self.buffer)?;
                self.numbers(&[*size_bytes, *chunks]);
            }
            2 | 3 => {
                self.numbers(&[*size_bytes, *chunks]);
                self.buffer.extend_from_slice(&(path.len() as u32).to_le_bytes());
                self.buffer.extend_from_slice(path);
            }
            _ => self.attributes(file),
        }
        self.header.files += 1;
        self.header.bytes = self.header.bytes.saturating_add(*size_bytes);
        self.current = Progress::begin(file);
        self.flush()
    }

    /// Writes a chunk of the current file.
    ///
    /// # Errors
    /// The output cannot be written, the file has had all its chunks, or the version cannot
    /// express the chunk.
    pub fn chunk(&mut self, chunk: &FslChunk) -> Result<()> {
        let version = self.header.version;
        if self.current.is_complete() {
            return Err(Error::invalid("a file has more chunks than its header says"));
        }
        if chunk.hash.len() != self.header.hash_bytes {
            return Err(Error::invalid(format!(
                "a hash of {} bytes cannot be written; it must have {}",
                chunk.hash.len(),
                self.header.hash_bytes
            )));
        }
        let implied = self.current.implied_size(self.header.chunking);
        match self.header.chunking {
            Chunking::Fixed { .. } if chunk.size_bytes != implied => {
                return Err(Error::invalid(format!(
                    "a fixed chunk of {} bytes cannot be written where {implied} must follow",
                    chunk.size_bytes
                )));
            }
            Chunking::Fixed { .. } => {}
            Chunking::Variable(_) => match version.size_bytes() {
                0 => {}
                4 => {
                    let size = u32::try_from(chunk.size_bytes)
                        .map_err(|_| inexpressible(&self.header, "chunks above 4 GiB"))?;
                    self.buffer.extend_from_slice(&size.to_le_bytes());
                }
                _ => self.buffer.extend_from_slice(&chunk.size_bytes.to_le_bytes()),
            },
        }
        self.buffer.extend_from_slice(&chunk.hash);
        if version.has_ratio() {
            self.buffer.push(chunk.ratio_tenths);
        } else if chunk.ratio_tenths != 0 {
            self.buffer.clear();
            return Err(inexpressible(&self.header, "compression ratios"));
        }
        self.header.chunks += 1;
        self.current.advance();
        self.flush()
    }

    /// Puts the counts and the time of the end into the header and gives the output back.
    ///
    /// # Errors
    /// The output cannot be written, or the last file lacks chunks.
    pub fn finish(mut self, end_seconds: u64) -> Result<W> {
        self.check_due()?;
        if self.header.version.has_system() {
            self.header.end_seconds = end_seconds;
        }
        header::encode(&self.header, &mut self.buffer)?;
        self.output.seek(SeekFrom::Start(0)).context(|| "writing the trace's header")?;
        self.flush()?;
        self.output.flush().context(|| "writing the trace")?;
        Ok(self.output)
    }

    fn attributes(&mut self, file: &File) {
        self.numbers(&[file.size_bytes]);
        if self.header.version.has_blocks() {
            self.numbers(&[file.blocks]);
        }
        self.buffer.extend_from_slice(&file.user.to_le_bytes());
        self.buffer.extend_from_slice(&file.group.to_le_bytes());
        self.numbers(&[
            file.mode,
            file.accessed_seconds,
            file.modified_seconds,
            file.changed_seconds,
            file.links,
            file.device,
            file.inode,
            file.chunks,
        ]);
        self.buffer.extend_from_slice(&(file.path.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&(file.target.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&file.path);
        self.buffer.extend_from_slice(&file.target);
    }

    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.buffer.extend_from_slice(&number.to_le_bytes()));
    }

    fn check_due(&self) -> Result<()> {
        match self.current.left() {
            0 => Ok(()),
            due => Err(Error::invalid(format!("a file still lacks {due} chunks"))),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let written = self.output.write_all(&self.buffer).context(|| "writing the trace");
        self.buffer.clear();
        written
    }
}

fn inexpressible(header: &Header, what: &str) -> Error {
    let version = header.version.number();
    Error::invalid(format!("version {version} of the trace format has no place for {what}"))
}
