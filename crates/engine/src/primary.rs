//! Files in use, deduplicated where they are (El-Shimi et al., ATC'12).
//!
//! | module | holds |
//! | --- | --- |
//! | [`estimate`] | what deduplicating a directory would cost and give |

pub mod estimate;
