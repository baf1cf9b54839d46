//! Every bound of the system, with the relations between them checked at compile time.
//!
//! Decoders refuse what exceeds these bounds before they allocate, so that no stored byte can make
//! a process take more memory than the bound names.

/// One kibibyte.
pub const KIB: usize = 1024;
/// One mebibyte.
pub const MIB: usize = 1024 * KIB;

/// The largest chunk that any chunker may cut and any descriptor may name.
pub const CHUNK_SIZE_MAX_BYTES: usize = MIB;
/// The smallest minimum size a chunker accepts.
pub const CHUNK_SIZE_MIN_BYTES: usize = 64;

/// Plain bytes collected into one compressed, sealed frame before it is closed.
pub const FRAME_PLAIN_TARGET_BYTES: usize = 256 * KIB;
/// The largest plain frame: a frame of the target size that takes one more chunk. Nor do the chunks
/// of a frame have more bytes together where differences stand for them.
pub const FRAME_PLAIN_MAX_BYTES: usize = 4 * MIB + CHUNK_SIZE_MAX_BYTES;

/// Stored bytes after which a container is closed, unless the store says otherwise.
pub const CONTAINER_TARGET_BYTES: usize = 4 * MIB;
/// The largest container target a store may be created with.
pub const CONTAINER_TARGET_MAX_BYTES: usize = 256 * MIB;
/// Chunks that a container holds at most, whatever its size. As no frame is empty, it bounds its
/// frames as well, so that their numbers fit into sixteen bits.
pub const CONTAINER_CHUNKS_MAX: usize = 1 << 16;
/// Chunks after which a writer finishes a container, so that a process with little memory can hold
/// what it lists.
pub const CONTAINER_CHUNKS_TARGET: usize = CONTAINER_CHUNKS_MAX / 2;
/// The largest metadata section, before compression.
pub const METADATA_SECTION_MAX_BYTES: usize = 16 * MIB;

/// Generations of sealing secrets that a ring of keys holds, the master key among them.
pub const SEALING_GENERATIONS_MAX: usize = 64;

/// The largest encoded tree node.
pub const NODE_MAX_BYTES: usize = CHUNK_SIZE_MAX_BYTES;
/// Encoded directory bytes after which a directory spills into another leaf.
pub const DIRECTORY_LEAF_TARGET_BYTES: usize = 64 * KIB;
/// The longest file name accepted, in bytes.
pub const NAME_MAX_BYTES: usize = 4096;
/// The longest symbolic link target accepted, in bytes.
pub const SYMLINK_TARGET_MAX_BYTES: usize = 64 * KIB;
/// Extended attributes of one entry, names and values together, in bytes.
pub const XATTRS_MAX_BYTES: usize = 512 * KIB;
/// Directories deeper than this are refused at restore, listing and backup.
pub const DEPTH_MAX: usize = 4096;

/// Logarithms of the bytes in which data of a stub comes back into the file.
pub const RECALL_GRANULE_LOG2: std::ops::RangeInclusive<u8> = 16..=50;
/// Granules of a stub: their bits must fit into an attribute, of which ext4 takes 4 KiB for all
/// attributes of a file together.
pub const RECALL_GRANULES_MAX: usize = 16 * KIB;

/// The longest tag of a snapshot.
pub const TAG_MAX_BYTES: usize = KIB;
/// Tags of a snapshot.
pub const TAGS_MAX: usize = 1024;
/// The longest description of a snapshot.
pub const DESCRIPTION_MAX_BYTES: usize = 64 * KIB;
/// The longest name of a host.
pub const HOST_MAX_BYTES: usize = KIB;
/// The longest label of a key.
pub const KEY_LABEL_MAX_BYTES: usize = KIB;

/// The largest small record: snapshot, plan, mark, key slot or configuration.
pub const RECORD_MAX_BYTES: usize = 64 * MIB;
/// The largest checkpoint, before it is sealed: one is read at once.
pub const CHECKPOINT_MAX_BYTES: usize = 2 * MIB;
/// The largest record of a snapshot that a checkpoint repeats.
pub const CHECKPOINT_RECORD_MAX_BYTES: usize = 64 * KIB;
/// The largest table of an index run, as stored.
pub const RUN_TABLE_MAX_BYTES: usize = 256 * MIB;

/// The smallest memory limit a process accepts.
pub const MEMORY_LIMIT_MIN_BYTES: usize = 48 * MIB;
/// The memory limit where the user names none.
pub const MEMORY_LIMIT_DEFAULT_BYTES: usize = 256 * MIB;

const _: () = assert!(FRAME_PLAIN_TARGET_BYTES + CHUNK_SIZE_MAX_BYTES <= FRAME_PLAIN_MAX_BYTES);
const _: () = assert!(CONTAINER_CHUNKS_MAX - 1 <= u16::MAX as usize);
// In a section, a chunk takes at most 41 bytes and a frame, of which there are no more, at most 14.
const _: () = assert!(CONTAINER_CHUNKS_MAX * 64 <= METADATA_SECTION_MAX_BYTES / 2);
const _: () = assert!(CHECKPOINT_RECORD_MAX_BYTES * 4 <= CHECKPOINT_MAX_BYTES);
const _: () = assert!(CONTAINER_TARGET_BYTES <= CONTAINER_TARGET_MAX_BYTES);
const _: () = assert!(
    DIRECTORY_LEAF_TARGET_BYTES + XATTRS_MAX_BYTES + 2 * SYMLINK_TARGET_MAX_BYTES <= NODE_MAX_BYTES
);
const _: () = assert!(TAG_MAX_BYTES * TAGS_MAX + DESCRIPTION_MAX_BYTES < RECORD_MAX_BYTES / 8);
const _: () = assert!(MEMORY_LIMIT_MIN_BYTES <= MEMORY_LIMIT_DEFAULT_BYTES);
