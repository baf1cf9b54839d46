//! Tar archives as a sequence of segments, so that a file inside an archive gives the same chunks
//! as the file itself.
//!
//! A tar archive is a chain of 512-byte blocks: a header, the content of the file, padding up to
//! the next block, the next header (POSIX pax, GNU tar). A chunker that does not know this mixes
//! headers, which hold times and owners, into the first and last chunk of every file. The scanner
//! gives each part a segment of its own:
//!
//! - *structure*: the padding after a file, then headers, up to and including the first header
//!   whose entry has content, or until 8 KiB are full. The records of pax and GNU for long names
//!   count as structure with their content if they fit a segment; larger ones are taken for files.
//! - *zeros*: zero blocks where a header might be (not at the very start), up to 64 KiB. They end
//!   an archive, but another may follow, so the scan goes on.
//! - *file*: exactly the bytes that the header (or its pax record) announces.
//! - *rest*: everything from the first block that is neither a header nor zero. If that is the
//!   first block of the stream, the stream is no archive and the rest is all of it.
//!
//! Nothing is believed: a wrong size only moves boundaries, since segments say how a stream is cut,
//! not what it holds. No position is added up, so no size overflows.
//!
//! Invariant: segments depend on the stream's bytes only, not on how much of it is visible, and at
//! most 64 KiB must be visible to tell the next one.

use crate::segmenter::{HOLE_BLOCK_BYTES, is_zero};

const BLOCK_BYTES: usize = 512;

/// Structure is cut after so many bytes, at the end of the block that reaches it.
const STRUCTURE_TARGET_BYTES: usize = 8 * 1024;

/// A part of a stream, by its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Padding and headers, or zero blocks.
    Structure {
        /// Length of the segment.
        length: usize,
    },
    /// The content of one entry; the stream may end earlier.
    File {
        /// Length of the segment; never zero.
        length: u64,
    },
    /// No archive, or none any more: all that follows.
    Rest,
}

/// What the next byte of the stream belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The first block, which decides whether this is an archive.
    Start,
    /// Padding of so many bytes, then headers; `announced` is the size that a pax record gave for
    /// the next entry.
    Structure { padding: usize, announced: Option<u64> },
    /// Content that a header announced.
    Content { length: u64 },
    /// Not an archive, or none any more.
    Rest,
}

/// Tells the segments of a stream from its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TarScanner {
    state: State,
}

impl Default for TarScanner {
    fn default() -> Self {
        Self::new()
    }
}

impl TarScanner {
    /// A scanner at the first byte of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self { state: State::Start }
    }

    /// The segment that begins at the start of `bytes`, which must be where the previous segment
    /// ended; `end` says that nothing follows `bytes`. `None`: more bytes must be visible. With
    /// 64 KiB visible there always is an answer. `bytes` must not be empty.
    pub fn next(&mut self, bytes: &[u8], end: bool) -> Option<Segment> {
        match self.state {
            State::Rest => Some(Segment::Rest),
            State::Content { length } => {
                let over = (length % BLOCK_BYTES as u64) as usize;
                let padding = (BLOCK_BYTES - over) % BLOCK_BYTES;
                self.state = State::Structure { padding, announced: None };
                Some(Segment::File { length })
            }
            State::Structure { padding, announced } => {
                self.structure(bytes, padding, announced, end)
            }
            // A file that begins with zeros is a sparse file rather than an empty archive.
            State::Start => match bytes.get(..BLOCK_BYTES) {
                None if !end => None,
                Some(block) if Header::parse(block).is_some() => {
                    self.structure(bytes, 0, None, end)
                }
                _ => self.stop(0),
            },
        }
    }

    fn structure(
        &mut self,
        bytes: &[u8],
        padding: usize,
        mut announced: Option<u64>,
        end: bool,
    ) -> Option<Segment> {
        let mut length = padding;
        while length < STRUCTURE_TARGET_BYTES {
            let Some(block) = bytes.get(length..length + BLOCK_BYTES) else {
                return if end { self.stop(length.min(bytes.len())) } else { None };
            };
            if is_zero(block) {
                if length > 0 {
                    break;
                }
                return zero_blocks(bytes, end);
            }
            let Some(header) = Header::parse(block) else {
                return self.stop(length);
            };
            let room = STRUCTURE_TARGET_BYTES.saturating_sub(length + BLOCK_BYTES);
            if header.is_record() && !header.fits(room) && length > padding {
                // It may fit a segment of its own, where what it says about sizes can be read.
                break;
            }
            length += BLOCK_BYTES;
            let after = bytes.get(length..).unwrap_or_default();
            match header.what_follows(after, room) {
                Follows::Record { whole, size } => {
                    announced = size.or(announced);
                    length += whole;
                }
                Follows::Content { blocks } => {
                    length += blocks;
                    let size = match announced.take() {
                        Some(size) if !header.is_record() => size,
                        _ => header.size,
                    };
                    if size > 0 {
                        self.state = State::Content { length: size };
                        return Some(Segment::Structure { length });
                    }
                }
                Follows::Header => announced = None,
                Follows::Hidden if !end => return None,
                Follows::Hidden => return self.stop(bytes.len()),
                Follows::Nonsense => return self.stop(length),
            }
        }
        self.state = State::Structure { padding: 0, announced };
        Some(Segment::Structure { length })
    }

    /// Gives up after `length` bytes of structure.
    fn stop(&mut self, length: usize) -> Option<Segment> {
        self.state = State::Rest;
        Some(if length == 0 { Segment::Rest } else { Segment::Structure { length } })
    }
}

/// The zero blocks at the start of `bytes`, as long as they go, up to a hole's size.
fn zero_blocks(bytes: &[u8], end: bool) -> Option<Segment> {
    let blocks = bytes.chunks_exact(BLOCK_BYTES).take(HOLE_BLOCK_BYTES / BLOCK_BYTES);
    let available = blocks.len() * BLOCK_BYTES;
    let length = blocks.take_while(|block| is_zero(block)).count() * BLOCK_BYTES;
    if length == available && length < HOLE_BLOCK_BYTES && !end {
        return None;
    }
    Some(Segment::Structure { length })
}

/// What comes after a header block.
enum Follows {
    /// The content of a record with its padding; `size` is what it says about the next entry.
    Record { whole: usize, size: Option<u64> },
    /// Content, if its size is not zero, after so many bytes that continue the header.
    Content { blocks: usize },
    /// The next header.
    Header,
    /// Something that is not visible yet.
    Hidden,
    /// Nothing an archive would hold.
    Nonsense,
}

/// What a header block says about the bytes after it.
struct Header {
    kind: u8,
    /// An old GNU sparse entry whose list of parts goes on in the next block.
    continues: bool,
    size: u64,
}

impl Header {
    /// Reads a header; `None` if `block` is none.
    fn parse(block: &[u8]) -> Option<Self> {
        const CHECKSUM: std::ops::Range<usize> = 148..156;
        if block.get(257..262)? != b"ustar" {
            return None;
        }
        // The sum of all bytes, with spaces in place of the sum itself. Some old programs took the
        // bytes for signed.
        let is_sum = |index: &usize| CHECKSUM.contains(index);
        let taken = || {
            let bytes = block.iter().enumerate();
            bytes.map(move |(index, &byte)| if is_sum(&index) { b' ' } else { byte })
        };
        let unsigned: u64 = taken().map(u64::from).sum();
        let signed: i64 = taken().map(|byte| i64::from(byte as i8)).sum();
        let stored = octal(block.get(CHECKSUM)?)?;
        if stored != unsigned && i64::try_from(stored) != Ok(signed) {
            return None;
        }
        let kind = *block.get(156)?;
        let continues = kind == b'S' && block.get(482) != Some(&0);
        Some(Self { kind, continues, size: number(block.get(124..136)?)? })
    }

    /// What comes in `after`; a record of more than `room` bytes is taken for content.
    fn what_follows(&self, after: &[u8], room: usize) -> Follows {
        if self.continues {
            return Self::continuation(after);
        }
        // Not for links, devices, directories and pipes.
        if matches!(self.kind, b'1'..=b'6') {
            return Follows::Header;
        }
        if !self.is_record() || !self.fits(room) {
            return Follows::Content { blocks: 0 };
        }
        // It fits, so the conversion loses nothing.
        let size = self.size as usize;
        let Some(record) = after.get(..size) else {
            return Follows::Hidden;
        };
        let announced = if self.kind == b'x' { pax_size(record) } else { None };
        Follows::Record { whole: size.next_multiple_of(BLOCK_BYTES), size: announced }
    }

    /// The blocks that continue a sparse header, up to the first that says it is the last.
    fn continuation(after: &[u8]) -> Follows {
        const BLOCKS_MAX: usize = 16;
        const CONTINUES: usize = 504;
        let mut blocks = after.chunks_exact(BLOCK_BYTES).take(BLOCKS_MAX);
        let available = blocks.len();
        match blocks.position(|block| block.get(CONTINUES) == Some(&0)) {
            Some(index) => Follows::Content { blocks: (index + 1) * BLOCK_BYTES },
            None if available < BLOCKS_MAX => Follows::Hidden,
            None => Follows::Nonsense,
        }
    }

    /// Whether the content, if it is a record's, takes no more than `room`.
    fn fits(&self, room: usize) -> bool {
        self.size <= room as u64
    }

    /// Whether this describes the entry after it, rather than being one.
    fn is_record(&self) -> bool {
        matches!(self.kind, b'x' | b'g' | b'L' | b'K')
    }
}

/// A field in octal digits, with spaces before and spaces or zero bytes after it.
fn octal(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(digits.len());
    digits.get(..end)?.iter().try_fold(0_u64, |value, &byte| match byte {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// A size: octal, or base 256 if the top bit is set (GNU); negative ones are refused.
fn number(field: &[u8]) -> Option<u64> {
    match field.split_first() {
        Some((0x80, digits)) => digits
            .iter()
            .try_fold(0_u64, |value, &byte| value.checked_mul(256)?.checked_add(u64::from(byte))),
        Some((0x81.., _)) => None,
        _ => octal(field),
    }
}

/// The last `size` in a pax record: lines of "length key=value\n", the length counting all of it.
fn pax_size(mut record: &[u8]) -> Option<u64> {
    let decimal = |digits: &[u8]| -> Option<u64> { std::str::from_utf8(digits).ok()?.parse().ok() };
    let mut size = None;
    while let Some(space) = record.iter().position(|&byte| byte == b' ') {
        let Some(length) = record.get(..space).and_then(decimal) else {
            break;
        };
        let Some((line, after)) =
            usize::try_from(length).ok().and_then(|length| record.split_at_checked(length))
        else {
            break;
        };
        // A length that does not reach beyond itself would make no progress.
        let Some(entry) = line.get(space + 1..) else {
            break;
        };
        if let Some(value) = entry.strip_prefix(b"size=") {
            size = value.strip_suffix(b"\n").and_then(decimal).or(size);
        }
        record = after;
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_without_overflow() {
        assert_eq!(number(b"00000001750\0"), Some(0o1750));
        assert_eq!(number(b"       1750 "), Some(0o1750));
        assert_eq!(number(b"777777777777"), Some((1 << 36) - 1));
        assert_eq!(number(&[0; 12]), Some(0));
        assert_eq!(number(b"00000008\0\0\0\0"), None);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]), Some(2 << 32 | 1));
        assert_eq!(
            number(&[0x80, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]),
            Some(u64::MAX)
        );
        assert_eq!(number(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(number(&[0xff; 12]), None);
        assert_eq!(number(&[]), Some(0));
    }

    #[test]
    fn pax_records_are_read_without_trust() {
        assert_eq!(pax_size(b"12 path=abc\n18 size=12345678\n"), None);
        assert_eq!(pax_size(b"12 path=abc\n15 size=123456\n"), Some(123_456));
        assert_eq!(pax_size(b"9 size=1\n9 size=2\n"), Some(2));
        for record in [
            &b""[..],
            b" ",
            b"0 size=1\n",
            b"1 size=1\n",
            b"2 size=1\n",
            b"99999999999999999999999 size=1\n",
            b"18446744073709551615 size=1\n",
            b"10 size=-1\n",
            b"8 size=1",
            b"x size=1\n",
        ] {
            assert_eq!(pax_size(record), None, "{record:?}");
        }
    }

    #[test]
    fn a_stream_that_is_no_archive_is_rest_from_the_first_block() {
        let mut scanner = TarScanner::new();
        assert_eq!(scanner.next(&[1; 511], false), None);
        assert_eq!(scanner.next(&[1; 512], false), Some(Segment::Rest));
        assert_eq!(scanner.next(&[1], false), Some(Segment::Rest));
        assert_eq!(TarScanner::new().next(&[0; 511], true), Some(Segment::Rest));
    }
}
