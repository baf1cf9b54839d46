//! What random reads cost on this machine.
//!
//! A file of random bytes is written into a directory, and blocks of 4 KiB at drawn places are read
//! one after the other past the page cache (`O_DIRECT`), as a look-up reads index pages. Where the
//! file system does not have it (memory file systems often do not), reads go through the cache,
//! and the result says so. The median stands for the device: a mean would tell of other programs.

use super::Device;
use crate::source::content;
use onefold_types::environment::SeededRandomness;
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

/// Bytes read at once.
pub const BLOCK_BYTES: usize = 4096;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The median of a read, in nanoseconds.
    pub median_ns: u64,
    /// The 99th percentile.
    pub high_ns: u64,
    /// Reads made.
    pub reads: usize,
    /// Whether they went past the page cache.
    pub direct: bool,
}

impl Measurement {
    /// The measurement as a device.
    ///
    /// # Errors
    /// The median is out of range.
    pub fn device(&self, name: &str) -> Result<Device> {
        Device::new(name, self.median_ns.max(1))
    }
}

/// Measures `reads` reads over a file of `file_bytes` in `directory`; the file is gone afterwards.
///
/// # Errors
/// The numbers are impossible, or the directory cannot be used.
pub fn random_reads(directory: &Path, file_bytes: usize, reads: usize) -> Result<Measurement> {
    let blocks = file_bytes / BLOCK_BYTES;
    if !(16..=1 << 24).contains(&blocks) || !(1..=1_000_000).contains(&reads) {
        return Err(Error::invalid(format!(
            "{reads} reads over {file_bytes} bytes cannot be measured; there must be 1 to 1000000 \
             over 65536 to 68719476736 bytes"
        )));
    }
    let what = || format!("measuring reads in {}", directory.display());
    let file = tempfile::NamedTempFile::new_in(directory).context(what)?;
    fill(file.as_file(), blocks).context(what)?;
    let open = |flags| rustix::fs::open(file.path(), OFlags::RDONLY | flags, Mode::empty());
    // Room to begin at an aligned address, which reads past the cache require.
    let mut room = vec![0; 2 * BLOCK_BYTES];
    let skip = room.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
    let buffer = room.get_mut(skip..skip + BLOCK_BYTES).unwrap_or_default();
    let direct =
        open(OFlags::DIRECT).ok().filter(|fd| rustix::io::pread(fd, &mut *buffer, 0).is_ok());
    let is_direct = direct.is_some();
    let fd = match direct {
        Some(fd) => fd,
        None => open(OFlags::empty()).map_err(std::io::Error::from).context(what)?,
    };
    let mut times = timed(&fd, blocks, reads, buffer).context(what)?;
    times.sort_unstable();
    let at = |share: f64| {
        let place = (share * (times.len() - 1) as f64).round() as usize;
        times.get(place).copied().unwrap_or_default()
    };
    Ok(Measurement { median_ns: at(0.5), high_ns: at(0.99), reads, direct: is_direct })
}

fn fill(mut file: &std::fs::File, blocks: usize) -> std::io::Result<()> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    for number in 0..blocks as u64 {
        block.clear();
        // Random bytes, so that no layer below can compress or share them; the ratio is valid.
        let _ = content::append(number, BLOCK_BYTES, 1.0, &mut block);
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn timed(
    fd: &OwnedFd,
    blocks: usize,
    reads: usize,
    buffer: &mut [u8],
) -> std::io::Result<Vec<u64>> {
    let random = SeededRandomness::new(blocks as u64);
    let mut times = Vec::with_capacity(reads);
    for _ in 0..reads {
        let offset = random.below(blocks as u64) * BLOCK_BYTES as u64;
        let start = Instant::now();
        let count = rustix::io::pread(fd, &mut *buffer, offset)?;
        let elapsed = start.elapsed().as_nanos();
        if count != BLOCK_BYTES {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        times.push(u64::try_from(elapsed).unwrap_or(u64::MAX));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_measured_and_nothing_is_left() {
        let place = tempfile::tempdir().unwrap();
        let measured = random_reads(place.path(), 1 << 20, 50).unwrap();
        assert!(measured.median_ns > 0 && measured.high_ns >= measured.median_ns);
        assert_eq!(measured.reads, 50);
        assert_eq!(measured.device("disk").unwrap().read_ns, measured.median_ns);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn impossible_numbers_are_refused_with_the_range() {
        let place = tempfile::tempdir().unwrap();
        for (bytes, reads) in [(0, 1), (1 << 20, 0), (1 << 20, 1_000_001), (usize::MAX, 1)] {
            let message = random_reads(place.path(), bytes, reads).unwrap_err().to_string();
            assert!(message.contains("1 to 1000000"), "{message}");
        }
        let absent = place.path().join("absent");
        assert!(random_reads(&absent, 1 << 20, 1).unwrap_err().to_string().contains("absent"));
    }
}
