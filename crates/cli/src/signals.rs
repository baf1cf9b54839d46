//! Signals that ask the program to stop: SIGINT, SIGTERM and SIGHUP.
//!
//! One that is ignored when the program starts stays ignored: that is how `nohup`, and a shell that
//! starts something in the background, ask for going on.
//!
//! Concurrency: handlers run on a thread of their own, never inside a signal handler.

use crate::exit::INTERRUPTED;
use crate::output::Output;
use onefold_types::{Error, ErrorKind, Result};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

static IS_CAUGHT: AtomicBool = AtomicBool::new(false);

/// Has `handler` called for each such signal, from the first call on; later calls change nothing.
pub fn catch(handler: impl Fn() + Send + 'static) -> Result<()> {
    if IS_CAUGHT.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let failed = |cause| Error::io("catching signals", cause).with_kind(ErrorKind::Io);
    let mut signals = Signals::new(heard()).map_err(failed)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(|_| handler()))
        .map_err(failed)?;
    Ok(())
}

/// The terminal at which a password is typed, and how it was before.
static ASKING: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// Does something that may leave the terminal without echo if a signal ends the program meanwhile:
/// it is put right then, and the program ends as if it had been interrupted at work.
pub fn guarding_terminal<T>(work: impl FnOnce() -> T) -> T {
    let terminal = File::open("/dev/tty").ok();
    let asking = terminal.and_then(|tty| Some((tcgetattr(&tty).ok()?, tty)));
    if let Some((before, tty)) = asking {
        *lock() = Some((tty, before));
        IS_WATCHED.call_once(watch);
    }
    let done = work();
    *lock() = None;
    done
}

static IS_WATCHED: Once = Once::new();
/// Where it is said that the program was interrupted.
static OUTPUT: OnceLock<Arc<Output>> = OnceLock::new();

/// Ends the program as one that was interrupted, with a message and the code for that, whenever a
/// signal comes before there is work that could be stopped at a safe point.
pub fn end_until_caught(output: &Arc<Output>) {
    let _ = OUTPUT.set(Arc::clone(output));
    survive_file_limits();
    IS_WATCHED.call_once(watch);
}

fn lock() -> MutexGuard<'static, Option<(File, Termios)>> {
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that grows over the limit that a shell has set is an error like any other, and no end of
/// the program in the middle of it.
fn survive_file_limits() {
    // If there can be no handler the signal ends the program, as before.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
}

/// From now on signals end the program here, until [`catch`] has taken them over. If there can be
/// no thread for that they are left as they are.
fn watch() {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let watching = std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
        let Ok(mut signals) = Signals::new(heard()) else { return };
        let _ = ready.send(());
        for _ in signals.forever() {
            if let Some((tty, before)) = lock().take() {
                let _ = tcsetattr(&tty, OptionalActions::Now, &before);
                eprintln!();
            } else if IS_CAUGHT.load(Ordering::Relaxed) {
                continue;
            }
            end();
        }
    });
    if watching.is_ok() {
        // An error: the thread has ended and taken over nothing.
        let _ = is_ready.recv();
    }
}

/// Ends the program as one that was interrupted; says so once, whichever threads get here.
pub fn end() -> ! {
    static ENDING: Mutex<()> = Mutex::new(());
    let _first = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    match OUTPUT.get() {
        Some(output) => output.error(&Error::new(ErrorKind::Interrupted, "interrupted")),
        None => eprintln!("error: interrupted"),
    }
    std::process::exit(i32::from(INTERRUPTED));
}

/// The signals that are not ignored.
fn heard() -> Vec<i32> {
    let ignored = std::fs::read_to_string("/proc/self/status")
        .map_or(0, |status| ignored_of(&status).unwrap_or(0));
    let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
    all.filter(|signal| ignored & (1u64 << (signal - 1)) == 0).collect()
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
