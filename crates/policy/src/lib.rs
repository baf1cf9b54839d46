//! Decisions without deeds.
//!
//! A policy looks at what it is given, asks the world through the narrow batched port of
//! [`ports`], and answers. It opens no file, starts no thread, reads no clock and draws no
//! randomness (`clippy.toml` refuses all four), so the same code runs in production, in
//! measurements and in simulations, and the same questions get the same answers every time.
//!
//! One file is one algorithm with one citation:
//!
//! | module | decides | after |
//! | --- | --- | --- |
//! | [`ports`] | nothing: what a policy may ask | FAST'08, section 3.3 |
//! | [`summary_vector`] | whether a chunk is certainly new | FAST'08, section 4.1 |
//! | [`fuse_filter`] | the same, in a static filter | binary fuse filters (2022) |
//! | [`signature_table`] | the same, and where a chunk may be | ATC'12, RAM frugal chunk hash index
//! |
//! | [`locality_cache`] | which containers' fingerprints stay in memory | FAST'08, section 4.3 |
//! | [`accelerated_filter`] | whether a chunk is a duplicate | FAST'08, section 4.4 |
//! | [`lookup`] | when a chunk is judged: at once, late in batches, by samples, or whatever costs
//! least | S0, sections 2 to 4 |
//! | [`stream`] | what becomes of each chunk of a stream, from its verdict until it is stored or
//! referred to | FAST'08, section 3.2; FAST'19, section 4 |
//! | [`duplicate_status`] | nothing: what a verdict makes of a chunk | FAST'19, section 2.1 |
//! | [`cost_model`] | what that costs, and which way costs less | S0, section 4 |
//! | [`collection`] | which chunks are live, and which containers are cleaned | FAST'17, section 3
//! |
//! | [`primary`] | which live files are worth emptying, how they are divided, and what the
//! divisions have in common | ATC'12 |
//! | [`restore_plan`] | which containers a restore reads when, and what each read serves | FAST'13,
//! FAST'18, Belady |
//! | [`rewrite`] | which duplicates are stored again | FAST'19 |
//! | [`retention`] | which snapshots are kept | the `keep` rules of restic's `forget` |
//! | [`selection`] | which snapshot a reference means | the reference forms of restic |
//! | [`selective_compression`] | which frames are worth compressing | ATC'12 |
//! | [`similarity`] | which stored chunk a new one is similar to | FAST'12, ICDE'21, Broder |
//! | [`tag_list`] | whether a snapshot carries the tags that these two ask for | comma lists, as in
//! restic |

#![forbid(unsafe_code)]

pub mod accelerated_filter;
pub mod collection;
pub mod cost_model;
pub mod duplicate_status;
mod filter_counters;
pub mod fuse_filter;
pub mod locality_cache;
pub mod lookup;
pub mod ports;
pub mod primary;
pub mod restore_plan;
pub mod retention;
pub mod rewrite;
pub mod selection;
pub mod selective_compression;
pub mod signature_table;
pub mod similarity;
mod slot_table;
pub mod stream;
pub mod summary_vector;
pub mod tag_list;

pub use accelerated_filter::{
    AcceleratedFilter, FilterConfiguration, FilterCounters, FilterOrder, Verdict,
};
pub use locality_cache::LocalityCache;
pub use ports::{BucketCounts, IndexPort, Instance};
pub use summary_vector::SummaryVector;
