//! Whoever writes for programs waits for a job that is at the file.
//!
//! The kernel makes who opens a file wait for the holder of its lease, and takes the lease from one
//! who is stalled. He may still be about to change the file, by what he has seen of it before. So
//! nobody writes into it for a program before he has the lock that goes with leases.
//!
//! The lock is asked for again and again: a wait in the kernel has no end.

use onefold_types::{Error, ErrorKind, Result};
use std::fs::File;
use std::time::{Duration, Instant};

/// How long a program that writes waits for a job.
pub const JOB_WAIT: Duration = Duration::from_secs(120);
/// How often the lock is asked for.
const ASKED_PERIOD: Duration = Duration::from_millis(20);

/// Waits until no job is at an open file; none gets at it until the file is closed.
///
/// Errors: `Unavailable` if one is at it for longer than that.
pub fn wait_for_job(file: &File, wait: Duration) -> Result<()> {
    let begun = Instant::now();
    while !onefold_lease::share(file)? {
        if begun.elapsed() >= wait {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "a job of the share has been at it for very long; see whether it is stopped, and \
                 write again",
            ));
        }
        std::thread::sleep(ASKED_PERIOD.min(wait));
    }
    Ok(())
}
