//! When a stub's file was changed last, while somebody works on it.
//!
//! Whoever punches data out or brings it back changes the file's time, and puts it back in the end.
//! In between, and for good if he is stopped, the file says when he was there. So the stub holds
//! the right time, and that it counts: it is *pending*.
//!
//! Invariant: a time that somebody else has set since is his, and stays. A time that writing has
//! set is followed closely by the file's last change; any other was set by a call that sets times.

use onefold_format::node::Time;
use onefold_format::stub::Stub;
use onefold_types::{Error, Result};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
use std::os::fd::AsFd;

/// The longest that writing a piece, making it durable and saying so takes.
const PIECE_NS: i128 = 3_600_000_000_000;
/// How far the clock of files may be behind that of programs, and more.
const BEHIND_NS: i128 = 1_000_000_000;

/// The time of a file that says it was modified and changed then, if its stub knows it better.
#[must_use]
pub fn pending(stub: &Stub, modified: Time, changed: Time) -> Option<Time> {
    (stub.are_times_pending && is_by_writing(modified, changed)).then_some(stub.modified)
}

/// Puts back when the file had been changed last.
pub fn put_back(file: impl AsFd, modified: Time) -> Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    };
    rustix::fs::futimens(file, &times)
        .map_err(|errno| Error::io("putting its times back", errno.into()))
}

fn is_by_writing(modified: Time, changed: Time) -> bool {
    (-BEHIND_NS..=PIECE_NS).contains(&(nanoseconds(changed) - nanoseconds(modified)))
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}
