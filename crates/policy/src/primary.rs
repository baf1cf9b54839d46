//! Primary deduplication: decisions about files that stay where they are (ATC'12).
//!
//! | module | decides |
//! | --- | --- |
//! | [`cold_files`] | which files are worth it |
//! | [`recall`] | in which granules data comes back into a file that is written to |
//! | [`partition`], [`path_partitions`] | which files' chunks are compared with each other first |
//! | [`chunk_table`] | what of a partition's chunks is in memory, and where a chunk may be |
//! | [`reconcile`] | which chunks partitions have in common |
//! | [`overlap`] | which partitions are worth reconciling |
//! | [`job_schedule`] | which background job starts, waits, goes on or is cancelled |

pub mod chunk_table;
pub mod cold_files;
pub mod job_schedule;
pub mod overlap;
pub mod partition;
pub mod path_partitions;
pub mod recall;
pub mod reconcile;
