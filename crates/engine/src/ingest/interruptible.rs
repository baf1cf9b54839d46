//! Reads what may be silent for long, and stops when that is asked for.

use crate::job::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read};
use std::os::fd::AsFd;

/// How long a read waits before it looks whether it is to stop.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Reads, and looks now and then whether it is to stop, so that a silent source does not keep a
/// signal from being heard.
pub struct InterruptibleReader<R> {
    from: R,
    interrupt: Interrupt,
    /// Whether nothing is read before there is something.
    waits: bool,
}

impl<R> InterruptibleReader<R> {
    /// Reads from `from` until a stop is asked for.
    pub const fn new(from: R, interrupt: Interrupt) -> Self {
        Self { from, interrupt, waits: true }
    }

    /// Reads from a source that may be over already: it reads first, and waits only if told to.
    pub const fn without_waiting(from: R, interrupt: Interrupt) -> Self {
        Self { from, interrupt, waits: false }
    }
}

impl<R: Read + AsFd> Read for InterruptibleReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupt.is_requested() {
                return Err(io::Error::other("interrupted"));
            }
            if !self.waits {
                match self.from.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
            }
            let mut waited = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut waited, Some(&POLL_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if !self.waits => {}
                Ok(_) => return self.from.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_reader_stops_though_nothing_comes() {
        let (silent, _writer) = io::pipe().unwrap();
        let interrupt = Interrupt::default();
        interrupt.request();
        let mut reader = InterruptibleReader::new(silent, interrupt);
        assert!(reader.read(&mut [0; 8]).is_err());
    }
}
