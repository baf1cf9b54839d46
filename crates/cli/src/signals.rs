//! Signals that ask the program to stop: SIGINT, SIGTERM and SIGHUP.
//!
//! One that is ignored when the program starts stays ignored: that is how `nohup`, and a shell that
//! starts something in the background, ask for going on.
//!
//! Concurrency: handlers run on a thread of their own, never inside a signal handler.

use onefold_types::{Error, ErrorKind, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CAUGHT: AtomicBool = AtomicBool::new(false);

/// Has `handler` called for each such signal, from the first call on; later calls change nothing.
pub fn catch(handler: impl Fn() + Send + 'static) -> Result<()> {
    if IS_CAUGHT.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let failed = |cause| Error::io("catching signals", cause).with_kind(ErrorKind::Io);
    let ignored = std::fs::read_to_string("/proc/self/status")
        .map_or(0, |status| ignored_of(&status).unwrap_or(0));
    let heard = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| ignored & (1u64 << (signal - 1)) == 0);
    let mut signals = Signals::new(heard.collect::<Vec<_>>()).map_err(failed)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(|_| handler()))
        .map_err(failed)?;
    Ok(())
}

/// The mask of ignored signals in what the kernel says of a process.
fn ignored_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r88_the_mask_of_ignored_signals_is_understood() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001003\n";
        assert_eq!(ignored_of(status), Some(0x1003));
        assert_eq!(ignored_of("Name:\tx\n"), None);
    }
}
