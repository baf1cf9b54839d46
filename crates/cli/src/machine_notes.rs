//! What this machine remembers of a store: what its device costs, how the last backup looked
//! chunks up, and how far samples have verified it.
//!
//! Notes are a convenience. They lie in the user's cache directory, one small JSON file for each
//! store; losing them costs a measurement of a few milliseconds. A note that cannot be read or
//! written is passed over in silence: no backup fails or warns for it.
//!
//! The directory is `$ONEFOLD_CACHE_DIR`, else `$XDG_CACHE_HOME/onefold`, else
//! `~/.cache/onefold`.

use crate::own_files;
use onefold_engine::Repository;
use onefold_engine::check::{CheckReport, ReadData};
use onefold_engine::device::HELD_CHUNK_NS;
use onefold_policy::lookup::DeviceCosts;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where notes are kept instead of the usual place.
pub const VARIABLE: &str = "ONEFOLD_CACHE_DIR";
/// Bytes from which on a restore is believed.
const RESTORE_BYTES_MIN: u64 = 16 << 20;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNotes {
    /// What one read of the device takes.
    pub device_read_ns: Option<u64>,
    /// What one access of memory takes.
    pub memory_access_ns: Option<u64>,
    /// Nanoseconds that the last restores took for each MiB of opened frames, reads included.
    pub restore_mib_ns: Option<u64>,
    /// The last container of the last sample that was verified.
    pub sampled_until: Option<String>,
    /// How the last backup looked chunks up and why, in one paragraph.
    pub explanation: Option<String>,
}

impl MachineNotes {
    /// The notes on a store; empty ones if there are none.
    pub fn load(repository: &Repository) -> Self {
        path_of(repository).and_then(|path| own_files::read(&path)).unwrap_or_default()
    }

    /// Keeps the notes.
    pub fn save(&self, repository: &Repository) {
        if let Some(path) = path_of(repository) {
            // What is not remembered is measured again next time.
            let _ = own_files::write(&path, self);
        }
    }

    /// The costs, if both are known.
    pub fn costs(&self) -> Option<DeviceCosts> {
        match (self.device_read_ns, self.memory_access_ns) {
            (Some(device_read_ns), Some(memory_access_ns)) => {
                Some(DeviceCosts::new(device_read_ns, memory_access_ns).holding(HELD_CHUNK_NS))
            }
            _ => None,
        }
    }

    /// What a restore should take that reads containers so many times and opens frames of so many
    /// bytes; `None` before the first restore. Reads of a slow device come on top of what was seen
    /// of a cached one only where they take longer than opening.
    #[must_use]
    pub fn predicted_restore_ns(&self, container_reads: u64, bytes_opened: u64) -> Option<u64> {
        let opening = (bytes_opened >> 20).saturating_mul(self.restore_mib_ns?);
        let reading = container_reads.saturating_mul(self.device_read_ns.unwrap_or(0));
        Some(opening.max(reading))
    }

    /// A sample that goes on where the last one ended.
    #[must_use]
    pub fn sample(&self, percent: f64) -> ReadData {
        match self.sampled_until.as_ref().and_then(|id| id.parse().ok()) {
            Some(after) => ReadData::SampleAfter { percent, after },
            None => ReadData::Sample(percent),
        }
    }

    /// Notes where a sample has ended.
    pub fn remember_sample(repository: &Repository, report: &CheckReport) {
        if let Some(end) = report.sample_end {
            // Read again: the check took its time, and others may have noted something.
            let mut notes = Self::load(repository);
            notes.sampled_until = Some(end.to_string());
            notes.save(repository);
        }
    }

    /// Takes over what a restore took.
    pub fn remember_restore(&mut self, bytes: u64, elapsed_ns: u64) {
        // A small restore says more about starting up.
        if bytes >= RESTORE_BYTES_MIN {
            self.restore_mib_ns = Some((elapsed_ns / (bytes >> 20)).max(1));
        }
    }

    /// Takes over the costs that a backup has measured or known; what it saw of the device while it
    /// looked chunks up counts more. What nobody has measured is not remembered.
    pub fn remember(&mut self, measured: Option<DeviceCosts>, seen_ns: Option<u64>) {
        let device = seen_ns.or(measured.map(|costs| costs.device_read_ns));
        self.device_read_ns = device.map(|ns| ns.max(1)).or(self.device_read_ns);
        let memory = measured.map(|costs| costs.memory_access_ns.max(1));
        self.memory_access_ns = memory.or(self.memory_access_ns);
    }
}

fn path_of(repository: &Repository) -> Option<PathBuf> {
    Some(directory()?.join(format!("{}.json", repository.store_id())))
}

/// The directory of this user's caches, whether there is one or not yet.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    own_files::directory(VARIABLE, "XDG_CACHE_HOME", ".cache")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_remembered_and_what_a_backup_saw_counts_more() {
        let measured = DeviceCosts::new(100, 5).holding(HELD_CHUNK_NS);
        let mut notes = MachineNotes::default();
        assert_eq!(notes.costs(), None);
        // Nothing was measured, so nothing is remembered, and the next backup measures.
        notes.remember(None, None);
        assert_eq!(notes.costs(), None);
        notes.remember(Some(measured), None);
        assert_eq!(notes.costs(), Some(measured));
        notes.remember(Some(measured), Some(900));
        assert_eq!(notes.device_read_ns, Some(900));
        notes.remember(None, None);
        assert_eq!(notes.device_read_ns, Some(900));
    }
}
