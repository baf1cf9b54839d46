//! Copies parts of files that are there into others.
//!
//! The kernel copies, and shares blocks where the file system can; bytes go through this process
//! only where it cannot. What is a hole stays one.

use crate::job::Interrupt;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// How much is copied between two looks at whether to stop.
const STEP_BYTES: u64 = 16 * limits::MIB as u64;
const BUFFER_BYTES: usize = 256 * limits::KIB;

/// Copies a range to the same place in another file, of whose length nothing is said.
pub fn copy_range(from: &File, to: &File, range: Range<u64>, interrupt: &Interrupt) -> Result<()> {
    let mut position = range.start;
    while position < range.end {
        interrupt.check()?;
        let data = match rustix::fs::seek(from, SeekFrom::Data(position)) {
            Ok(data) => data.max(position),
            // Nothing but a hole up to the end of the file.
            Err(Errno::NXIO) => return expect_within(from, range.end),
            Err(_) => position,
        };
        if data >= range.end {
            return Ok(());
        }
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(range.end);
        let end = range.end.min(data.saturating_add(STEP_BYTES));
        let end = if hole > data { end.min(hole) } else { end };
        copy_data(from, to, data..end)?;
        position = end;
    }
    Ok(())
}

fn expect_within(from: &File, end: u64) -> Result<()> {
    let length = from.metadata().context(|| "looking at the file that is there")?.len();
    match end <= length {
        true => Ok(()),
        false => Err(cut()),
    }
}

fn copy_data(from: &File, to: &File, range: Range<u64>) -> Result<()> {
    let (mut read, mut written) = (range.start, range.start);
    while read < range.end {
        let left = usize::try_from(range.end - read).unwrap_or(usize::MAX);
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), left);
        match copied {
            Ok(0) => break,
            Ok(_) => {}
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => {
                return Err(Error::io("copying what stays the same", errno.into()));
            }
            Err(_) => break,
        }
    }
    copy_by_hand(from, to, read..range.end)
}

fn copy_by_hand(from: &File, to: &File, range: Range<u64>) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES.min((range.end - range.start) as usize)];
    let mut position = range.start;
    while position < range.end {
        let left = (range.end - position).min(buffer.len() as u64) as usize;
        let read = from.read_at(&mut buffer[..left], position);
        let read = read.context(|| "reading the file that is there")?;
        if read == 0 {
            return Err(cut());
        }
        to.write_all_at(&buffer[..read], position).context(|| "writing the file")?;
        position += read as u64;
    }
    Ok(())
}

fn cut() -> Error {
    Error::new(ErrorKind::Io, "the file was cut while it was copied; restore it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_copied_with_their_holes_and_nothing_else_is() {
        let [from, to] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        from.set_len(10 << 20).unwrap();
        from.write_all_at(&[7; 100_000], 3 << 20).unwrap();
        from.write_all_at(&[8; 100_000], 6 << 20).unwrap();
        let (start, end) = ((3 << 20) + 10, (9 << 20) + 5);
        copy_range(&from, &to, start..end, &Interrupt::default()).unwrap();
        to.set_len(10 << 20).unwrap();
        let read = |file: &File| {
            let mut bytes = vec![0; 10 << 20];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let mut expected = read(&from);
        expected[..start as usize].fill(0);
        expected[end as usize..].fill(0);
        assert!(read(&to) == expected);
        copy_by_hand(&from, &to, 0..10 << 20).unwrap();
        assert!(read(&to) == read(&from));
        for beyond in [0..(10 << 20) + 1, (11 << 20)..(12 << 20)] {
            let copied = copy_range(&from, &to, beyond, &Interrupt::default());
            assert_eq!(copied.unwrap_err().kind(), ErrorKind::Io);
        }
        let stopped = Interrupt::default();
        stopped.request();
        let copied = copy_range(&from, &to, 0..1, &stopped);
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
