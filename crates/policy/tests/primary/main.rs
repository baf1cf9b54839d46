//! Partitions of live files, what they have in common, and jobs over them.

mod chunk_table;
mod job_schedule;
mod path_partitions;
mod reconcile;
