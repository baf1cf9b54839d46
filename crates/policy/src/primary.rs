//! Primary deduplication: decisions about files that stay where they are (ATC'12).
//!
//! | module | decides |
//! | --- | --- |
//! | [`cold_files`] | which files are worth it |
//! | [`recall`] | in which granules data comes back into a file that is written to |

pub mod cold_files;
pub mod recall;
