//! Partitions of live files, and what they have in common.

mod chunk_table;
mod path_partitions;
mod reconcile;
