//! Traces in the binary form of fs-hasher (`.hash.anon`), versions 1 to 7: read and written.
//!
//! The File systems and Storage Lab's archive holds years of snapshots of home directories in this
//! form; other tools read it as well. All numbers are little-endian, nothing is padded. A header is
//! followed by the files; a file's header by its path, by the target if it is a symbolic link, and
//! by its chunks. What each version has:
//!
//! | header field | offset | versions |
//! | --- | --- | --- |
//! | magic 0xDEADDEAD, u32 | 0 | all |
//! | version, u32 | 4 | all |
//! | files, u64 | 8 | all |
//! | root path, 4096 bytes, ended by NUL | 16 | all |
//! | chunks, u64 | 4112 | all |
//! | chunking: 1 fixed, 2 variable, i32 | 4120 | all |
//! | fixed: size, u32; variable: algorithm, i32, 32 bytes, minimum, maximum, u32 | 4124 | all |
//! | hash, i32 | 4168 | all |
//! | bits in a hash, u32 | 4172 | all |
//! | system, 4096 bytes, ended by NUL | 4176 | 3 and later |
//! | start, end, u64 | 8272 | 3 and later |
//! | bytes, u64 | 8288 | 5 and later |
//!
//! | file header | versions |
//! | --- | --- |
//! | path, 4096 bytes; size, chunks, u64 | 1 |
//! | size, chunks, u64; length of the path, u32 | 2, 3 |
//! | size, (blocks, 5 and later), u64; user, group, u32; mode, times of access, modification and
//! change, links, device, inode, chunks, u64; lengths of path and target, u32 | 4 and later |
//!
//! | chunk | versions |
//! | --- | --- |
//! | size, if variable: u64 | 3 to 6 |
//! | size, if variable: u32 | 7 |
//! | hash | all |
//! | compression ratio in tenths, u8 | 6 and later |
//!
//! The description is our own, made from the published layout; versions 1 and 2 do not record the
//! sizes of variable chunks, which are then the mean of the file's.
//!
//! Invariants: the decoder is total; it never panics, allocates nothing from a length it has not
//! checked, and names file, byte offset and what it expected there. What else a version cannot
//! express the writer refuses, and drops nothing.

mod header;
mod model;
mod reader;
#[cfg(test)]
mod tests;
mod trace;
mod writer;

pub use model::{Chunking, File, FslChunk, HashMethod, Header, Variable, Version};
pub use reader::Reader;
pub use trace::FslTrace;
pub use writer::Writer;
