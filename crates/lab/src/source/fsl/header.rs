//! The header's bytes; the one place that knows its offsets.

use super::model::{
    Chunking, HASH_MAX_BYTES, HashMethod, Header, MAGIC, PATH_FIELD_BYTES, Variable, Version,
};
use onefold_types::{Error, Result};

const UNION_BYTES: usize = 44;
const FIXED: i32 = 1;
const VARIABLE: i32 = 2;

/// A place in a file and what was expected there.
pub(super) struct Mismatch {
    /// Bytes from where decoding began.
    pub offset: usize,
    /// What should have been there, and what was.
    pub expected: String,
}

/// Takes fields off the front of bytes.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    fn mismatch<T>(&self, back: usize, expected: String) -> Result<T, Mismatch> {
        Err(Mismatch { offset: self.offset.saturating_sub(back), expected })
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Mismatch> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                self.offset += count;
                Ok(taken)
            }
            None => self.mismatch(0, format!("{count} more bytes")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Mismatch> {
        let taken = self.take(N)?;
        taken.first_chunk::<N>().copied().map_or_else(|| self.mismatch(0, String::new()), Ok)
    }

    pub fn u32(&mut self) -> Result<u32, Mismatch> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Mismatch> {
        self.array().map(u64::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, Mismatch> {
        self.array().map(i32::from_le_bytes)
    }

    /// A field of fixed size that NUL ends.
    pub fn text(&mut self) -> Result<Vec<u8>, Mismatch> {
        let field = self.take(PATH_FIELD_BYTES)?;
        match field.iter().position(|byte| *byte == 0) {
            Some(end) => Ok(field.get(..end).unwrap_or_default().to_vec()),
            None => {
                self.mismatch(PATH_FIELD_BYTES, format!("a NUL within {PATH_FIELD_BYTES} bytes"))
            }
        }
    }
}

/// Bytes of a header after magic and version.
pub(super) fn rest_bytes(version: Version) -> usize {
    let mut bytes = 4176 - 8;
    if version.has_system() {
        bytes += PATH_FIELD_BYTES + 16;
    }
    if version.has_bytes() {
        bytes += 8;
    }
    bytes
}

/// Decodes magic and version.
pub(super) fn decode_version(bytes: &[u8]) -> Result<Version, Mismatch> {
    let mut fields = Fields::new(bytes);
    let magic = fields.u32()?;
    if magic != MAGIC {
        return fields.mismatch(4, format!("the magic number {MAGIC:#010x}, not {magic:#010x}"));
    }
    let version = fields.u32()?;
    Version::new(version)
        .or_else(|_| fields.mismatch(4, format!("a version from 1 to 7, not {version}")))
}

/// Decodes what follows magic and version; offsets count from there.
pub(super) fn decode_rest(version: Version, bytes: &[u8]) -> Result<Header, Mismatch> {
    let mut fields = Fields::new(bytes);
    let files = fields.u64()?;
    let root = fields.text()?;
    let chunks = fields.u64()?;
    let chunking = decode_chunking(&mut fields)?;
    let code = fields.i32()?;
    let Some(hash) = HashMethod::from_code(code) else {
        return fields.mismatch(4, format!("a hash method from 1 to 6, not {code}"));
    };
    let bits = fields.u32()?;
    let hash_bytes = (bits / 8) as usize;
    if bits % 8 != 0 || !(1..=HASH_MAX_BYTES).contains(&hash_bytes) {
        let most = HASH_MAX_BYTES * 8;
        return fields.mismatch(4, format!("8 to {most} bits in a hash by eights, not {bits}"));
    }
    let mut header =
        Header { files, root, chunks, ..Header::new(version, chunking, hash, hash_bytes) };
    if version.has_system() {
        header.system = fields.text()?;
        header.start_seconds = fields.u64()?;
        header.end_seconds = fields.u64()?;
    }
    if version.has_bytes() {
        header.bytes = fields.u64()?;
    }
    Ok(header)
}

fn decode_chunking(fields: &mut Fields<'_>) -> Result<Chunking, Mismatch> {
    let method = fields.i32()?;
    match method {
        FIXED => {
            let size_bytes = fields.u32()?;
            if size_bytes == 0 {
                return fields.mismatch(4, "a size of fixed chunks above 0".to_owned());
            }
            fields.take(UNION_BYTES - 4)?;
            Ok(Chunking::Fixed { size_bytes })
        }
        VARIABLE => {
            let algorithm = fields.i32()?;
            let parameters = fields.array()?;
            let (size_min_bytes, size_max_bytes) = (fields.u32()?, fields.u32()?);
            Ok(Chunking::Variable(Variable {
                algorithm,
                parameters,
                size_min_bytes,
                size_max_bytes,
            }))
        }
        _ => fields.mismatch(4, format!("a chunking method of 1 or 2, not {method}")),
    }
}

/// Appends a header.
pub(super) fn encode(header: &Header, out: &mut Vec<u8>) -> Result<()> {
    let version = header.version;
    if !(1..=HASH_MAX_BYTES).contains(&header.hash_bytes) {
        return Err(Error::invalid(format!(
            "hashes of {} bytes cannot be written; they must have 1 to {HASH_MAX_BYTES}",
            header.hash_bytes
        )));
    }
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&version.number().to_le_bytes());
    out.extend_from_slice(&header.files.to_le_bytes());
    encode_text("root path", &header.root, out)?;
    out.extend_from_slice(&header.chunks.to_le_bytes());
    let union_end = out.len() + 4 + UNION_BYTES;
    match header.chunking {
        Chunking::Fixed { size_bytes } => {
            out.extend_from_slice(&FIXED.to_le_bytes());
            out.extend_from_slice(&size_bytes.to_le_bytes());
        }
        Chunking::Variable(variable) => {
            out.extend_from_slice(&VARIABLE.to_le_bytes());
            out.extend_from_slice(&variable.algorithm.to_le_bytes());
            out.extend_from_slice(&variable.parameters);
            out.extend_from_slice(&variable.size_min_bytes.to_le_bytes());
            out.extend_from_slice(&variable.size_max_bytes.to_le_bytes());
        }
    }
    out.resize(union_end, 0);
    out.extend_from_slice(&header.hash.code().to_le_bytes());
    out.extend_from_slice(&(header.hash_bytes as u32 * 8).to_le_bytes());
    if version.has_system() {
        encode_text("name of the system", &header.system, out)?;
        out.extend_from_slice(&header.start_seconds.to_le_bytes());
        out.extend_from_slice(&header.end_seconds.to_le_bytes());
    }
    if version.has_bytes() {
        out.extend_from_slice(&header.bytes.to_le_bytes());
    }
    Ok(())
}

/// Appends a field of fixed size that NUL ends.
pub(super) fn encode_text(what: &str, text: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if text.len() >= PATH_FIELD_BYTES || text.contains(&0) {
        return Err(Error::invalid(format!(
            "the {what} cannot be written: it must be shorter than {PATH_FIELD_BYTES} bytes and \
             hold no NUL"
        )));
    }
    let end = out.len() + PATH_FIELD_BYTES;
    out.extend_from_slice(text);
    out.resize(end, 0);
    Ok(())
}
