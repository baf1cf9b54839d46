//! The preallocated file that is room for a full device (R28).
//!
//! It is allocated in pieces: some filesystems give back what was allocated at once only as a
//! whole, and the file is to be cut piece by piece. Where room cannot be allocated, zeros are
//! written.

use super::RESERVE;
use super::disk::Disk;
use super::objects::{Objects, is_absence, is_unsupported};
use onefold_types::Result;
use std::io;

/// The size of a piece.
const PIECE_BYTES: u64 = 128 * 1024;

impl<D: Disk> Objects<D> {
    pub(super) fn ensure_reserve(&self, size_bytes: u64) -> Result<()> {
        self.refuse_unless_writable(RESERVE)?;
        if self.disk.size(RESERVE).is_ok_and(|size| size >= size_bytes) {
            return Ok(());
        }
        let fill = || -> io::Result<()> {
            let file = self.disk.open_or_create(RESERVE)?;
            // Piece by piece: some filesystems free what was allocated at once only as a whole.
            let mut allocated_bytes = self.disk.size(RESERVE).unwrap_or(0);
            while allocated_bytes < size_bytes {
                allocated_bytes = (allocated_bytes + PIECE_BYTES).min(size_bytes);
                match self.disk.allocate(&file, allocated_bytes) {
                    Err(error) if is_unsupported(&error) => {
                        self.write_zeros(&file, size_bytes)?;
                        break;
                    }
                    result => result?,
                }
            }
            self.disk.sync_file(&file)?;
            self.sync_directory(&*self.settled_directory("")?)
        };
        fill().map_err(|error| self.error("setting room aside in", RESERVE, error))
    }

    pub(super) fn reserve_bytes(&self) -> Result<u64> {
        match self.disk.size(RESERVE) {
            Ok(size) => Ok(size),
            Err(error) if is_absence(&error) => Ok(0),
            Err(error) => Err(self.error("reading", RESERVE, error)),
        }
    }

    /// Cuts the reserve to a length; removes it if that is zero.
    pub(super) fn shrink_reserve(&self, size_bytes: u64) -> Result<()> {
        self.refuse_unless_writable(RESERVE)?;
        if self.reserve_bytes()? <= size_bytes {
            return Ok(());
        }
        let shrink = || -> io::Result<()> {
            let file = self.disk.open_or_create(RESERVE)?;
            self.disk.truncate(&file, size_bytes)?;
            self.disk.sync_file(&file)?;
            if size_bytes == 0 {
                self.disk.remove(RESERVE)?;
            }
            // Some filesystems free the blocks only once that is durable.
            self.sync_directory(&*self.settled_directory("")?)
        };
        match shrink() {
            Err(error) if is_absence(&error) => Ok(()),
            other => other.map_err(|error| self.error("releasing", RESERVE, error)),
        }
    }

    fn write_zeros(&self, file: &D::File, size_bytes: u64) -> io::Result<()> {
        let zeros = [0; 1 << 16];
        let mut offset = 0;
        while offset < size_bytes {
            let length = (size_bytes - offset).min(zeros.len() as u64);
            self.write_all(file, &zeros[..usize::try_from(length).unwrap_or(0)], offset)?;
            offset += length;
        }
        Ok(())
    }
}
