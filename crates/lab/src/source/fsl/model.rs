//! What a trace file says, free of how each version spells it.

use onefold_types::{Error, Result};

/// The first four bytes, as a number.
pub const MAGIC: u32 = 0xdead_dead;
/// The room for a path in headers of fixed size, its final NUL included.
pub const PATH_FIELD_BYTES: usize = 4096;
/// The longest path or link target accepted where the length is stored.
pub const PATH_MAX_BYTES: usize = 64 * 1024;
/// The longest hash.
pub const HASH_MAX_BYTES: usize = 64;

/// A version of the format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(u32);

impl Version {
    /// All versions.
    pub const ALL: [Self; 7] = [Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7)];
    /// The newest one.
    pub const NEWEST: Self = Self(7);

    /// The version of a number.
    ///
    /// # Errors
    /// There is no such version.
    pub fn new(number: u32) -> Result<Self> {
        match number {
            1..=7 => Ok(Self(number)),
            _ => Err(Error::invalid(format!(
                "{number} is not a version of fs-hasher traces; it must be 1 to 7"
            ))),
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// Whether the header names the system and the times.
    pub(super) fn has_system(self) -> bool {
        self.0 >= 3
    }

    /// Whether the header counts bytes.
    pub(super) fn has_bytes(self) -> bool {
        self.0 >= 5
    }

    /// Whether files have attributes and link targets.
    pub(super) fn has_attributes(self) -> bool {
        self.0 >= 4
    }

    /// Whether files count blocks.
    pub(super) fn has_blocks(self) -> bool {
        self.0 >= 5
    }

    /// Bytes of the size of a variable chunk; zero if it is not recorded.
    pub(super) fn size_bytes(self) -> usize {
        match self.0 {
            1..=2 => 0,
            3..=6 => 8,
            _ => 4,
        }
    }

    /// Whether chunks say how well they compress.
    pub(super) fn has_ratio(self) -> bool {
        self.0 >= 6
    }

    /// Whether chunks of a variable chunker have their sizes recorded.
    #[must_use]
    pub fn records_sizes(self) -> bool {
        self.size_bytes() > 0
    }
}

/// How chunks were hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashMethod {
    /// MD5, 16 bytes.
    Md5,
    /// SHA-256, 32 bytes.
    Sha256,
    /// The first 6 bytes of MD5.
    Md5To48,
    /// Murmur.
    Murmur,
    /// The first 8 bytes of MD5.
    Md5To64,
    /// SHA-1, 20 bytes.
    Sha1,
}

impl HashMethod {
    /// Every method; its code is its place, from one.
    pub const ALL: [Self; 6] =
        [Self::Md5, Self::Sha256, Self::Md5To48, Self::Murmur, Self::Md5To64, Self::Sha1];

    pub(super) fn code(self) -> i32 {
        (1..).zip(Self::ALL).find(|(_, method)| *method == self).map_or(0, |(code, _)| code)
    }

    pub(super) fn from_code(code: i32) -> Option<Self> {
        let place = usize::try_from(code.checked_sub(1)?).ok()?;
        Self::ALL.get(place).copied()
    }
}

/// A variable chunker, as recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// 1 random, 2 simple match, 3 Rabin.
    pub algorithm: i32,
    /// Its parameters. Rabin: window u32, prime u64, module u64, bits u32, pattern u64.
    pub parameters: [u8; 32],
    /// The smallest chunk in bytes.
    pub size_min_bytes: u32,
    /// The largest chunk in bytes.
    pub size_max_bytes: u32,
}

/// How files were cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunking {
    /// Every so many bytes.
    Fixed {
        /// The size of all chunks of a file but the last.
        size_bytes: u32,
    },
    /// By content.
    Variable(Variable),
}

impl Chunking {
    /// A chunker by content that is none of the format's own.
    #[must_use]
    pub fn by_content(size_min_bytes: u32, size_max_bytes: u32) -> Self {
        const SIMPLE_MATCH: i32 = 2;
        let parameters = [0; 32];
        Self::Variable(Variable {
            algorithm: SIMPLE_MATCH,
            parameters,
            size_min_bytes,
            size_max_bytes,
        })
    }
}

/// What a trace file says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The version.
    pub version: Version,
    /// Files in the trace.
    pub files: u64,
    /// The directory that was crawled.
    pub root: Vec<u8>,
    /// Chunks in the trace.
    pub chunks: u64,
    /// How files were cut.
    pub chunking: Chunking,
    /// How chunks were hashed.
    pub hash: HashMethod,
    /// Bytes in a hash.
    pub hash_bytes: usize,
    /// The machine, from version 3 on.
    pub system: Vec<u8>,
    /// When the crawl began, in seconds since 1970, from version 3 on.
    pub start_seconds: u64,
    /// When it ended.
    pub end_seconds: u64,
    /// Bytes in all files, from version 5 on.
    pub bytes: u64,
}

impl Header {
    /// A header for a crawl that begins; the writer fills in the counts.
    #[must_use]
    pub fn new(version: Version, chunking: Chunking, hash: HashMethod, hash_bytes: usize) -> Self {
        Self {
            version,
            files: 0,
            root: Vec::new(),
            chunks: 0,
            chunking,
            hash,
            hash_bytes,
            system: Vec::new(),
            start_seconds: 0,
            end_seconds: 0,
            bytes: 0,
        }
    }
}

/// A file of a trace. Fields that the version does not record are zero or empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct File {
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Blocks of 512 bytes that it occupies, from version 5 on.
    pub blocks: u64,
    /// Owner, from version 4 on, like all that follows but the path and the chunks.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Mode, with the kind of file.
    pub mode: u64,
    /// Time of the last access, in seconds since 1970.
    pub accessed_seconds: u64,
    /// Time of the last modification.
    pub modified_seconds: u64,
    /// Time of the last change of status.
    pub changed_seconds: u64,
    /// Hard links.
    pub links: u64,
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Its chunks.
    pub chunks: u64,
    /// Its path.
    pub path: Vec<u8>,
    /// What it points to, if it is a symbolic link.
    pub target: Vec<u8>,
}

impl File {
    /// Whether the mode says symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        const KIND: u64 = 0o170_000;
        const SYMLINK: u64 = 0o120_000;
        self.mode & KIND == SYMLINK
    }
}

/// A chunk of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FslChunk {
    /// Its length in bytes; for variable chunks of versions 1 and 2 the mean of the file's.
    pub size_bytes: u64,
    /// Its hash.
    pub hash: Vec<u8>,
    /// Its compression ratio in tenths, from version 6 on; zero if not known.
    pub ratio_tenths: u8,
}

/// How far a file's chunks have come, from which the sizes follow that are not recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    size_bytes: u64,
    chunks: u64,
    done: u64,
}

impl Progress {
    pub fn begin(file: &File) -> Self {
        Self { size_bytes: file.size_bytes, chunks: file.chunks, done: 0 }
    }

    pub fn is_complete(&self) -> bool {
        self.done == self.chunks
    }

    pub fn left(&self) -> u64 {
        self.chunks - self.done
    }

    pub fn advance(&mut self) {
        self.done += 1;
    }

    /// The size of the next chunk. All fixed chunks but the last have the same; of variable ones
    /// only the mean is known.
    pub fn implied_size(&self, chunking: Chunking) -> u64 {
        match chunking {
            Chunking::Fixed { size_bytes } => {
                let size = u64::from(size_bytes);
                self.size_bytes.saturating_sub(self.done.saturating_mul(size)).min(size)
            }
            // The first ones take the remainder, so that the sum is right.
            Chunking::Variable(_) => {
                let chunks = self.chunks.max(1);
                self.size_bytes / chunks + u64::from(self.done < self.size_bytes % chunks)
            }
        }
    }
}
