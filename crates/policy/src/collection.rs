//! Garbage collection: which chunks are live, and which containers are worth cleaning.
//!
//! | module | decides | after |
//! | --- | --- | --- |
//! | [`perfect_hash`] | which bit belongs to a chunk | FAST'17, sections 3.2 and 3.4; PHast (2025)
//! |
//! | [`mark_vector`] | nothing: it holds those bits | FAST'17, section 3.2 |
//! | [`live_filter`] | which chunks, or instances, are certainly dead | FAST'17, section 3.1 |
//! | [`focus`] | what is looked at when memory is short | FAST'17, section 3.1.2 |
//! | [`level_checksums`] | whether a node was missed | FAST'17, section 3.2.2 |
//! | [`duplicates`] | how much of a container is live nowhere newer | FAST'17, section 3.4.2 |
//! | [`select`] | which containers are cleaned | FAST'17, section 3.1 |

pub mod duplicates;
pub mod focus;
pub mod level_checksums;
pub mod live_filter;
pub mod mark_vector;
mod mix;
pub mod perfect_hash;
pub mod select;
