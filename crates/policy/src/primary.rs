//! Primary deduplication: what the live files of a share ask for beyond a backup (ATC'12).

pub mod chunk_table;
pub mod overlap;
pub mod partition;
pub mod path_partitions;
pub mod reconcile;
