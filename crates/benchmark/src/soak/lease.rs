//! Leases of files that are being saved, as file servers hold them for their clients.

use onefold_lease::Lease;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long it holds a lease that nobody asks for.
const UNASKED: Duration = Duration::from_secs(2);
/// How often it is asked whether somebody waits.
const ASKING_INTERVAL: Duration = Duration::from_millis(2);

/// Takes the write lease of a file, and gives it back so long after somebody asks for the file. A
/// file that somebody has open has none.
pub fn hold(path: PathBuf, waits: Duration) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let opened = File::options().read(true).append(true).open(path);
        let lease = opened.as_ref().ok().and_then(|file| Lease::take(file).ok().flatten());
        // The caller may be gone.
        let _ = tell.send(());
        let Some(lease) = lease else { return };
        let began = Instant::now();
        while lease.is_held().unwrap_or(false) {
            if began.elapsed() > UNASKED {
                return;
            }
            thread::sleep(ASKING_INTERVAL);
        }
        thread::sleep(waits);
    });
    let _ = told.recv();
}
