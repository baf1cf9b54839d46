//! The experiments: one file each, with the claim, the run and the explanation.
//!
//! An experiment takes a [`Setting`] and fills a [`Report`]. Its tiny form makes the same
//! statements about smaller traces and runs in a second or two; it is there to show that the
//! statements still hold, not to be quoted.

mod aged;
mod auto;
mod bucket_threshold_sweep;
mod chunking;
mod data_centres;
mod deltas;
mod duplicate_locality;
mod filter_size_sweep;
mod four_configurations;
mod fresh_chunks;
mod gc_compression;
mod gc_files;
mod gc_fullness;
mod gc_liveness;
mod gc_locality;
mod gc_memory;
mod gc_phases;
mod generations_restore;
mod lookup_clock;
mod lookup_devices;
mod partition_savings;
mod primary_index;
mod primary_references;
mod primary_savings;
mod product_report;
mod product_throughput;
mod published_lookup;
mod ratio_curves;
mod reconciliation;
mod regression_chunking;
mod requests;
mod restore_devices;
mod rewrite_grid;
mod rewriting_devices;
mod ring_sweep;
mod sampled;
mod selective_compression;
mod signature_index;
mod sweep;
mod threshold_sweep;
mod versions_restore;
mod window_size;

use crate::device::Device;
use crate::report::{Claim, Report};
use onefold_types::{Error, Result};
use std::path::PathBuf;

/// Under which conditions experiments are run.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Whether in seconds.
    pub tiny: bool,
    /// Directories of real data, one for each version.
    pub data: Option<PathBuf>,
    /// Devices of this machine, measured.
    pub measured: Vec<Device>,
    /// This program, for measurements that need a process of their own.
    pub program: Option<PathBuf>,
}

impl Setting {
    /// All devices, slowest first.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let mut devices = Device::modelled();
        devices.extend(self.measured.iter().cloned());
        devices.sort_by_key(|device| std::cmp::Reverse(device.read_ns));
        devices
    }
}

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// What it claims.
    pub claim: Claim,
    run: fn(&Setting, &mut Report) -> Result<()>,
}

impl Experiment {
    /// Every experiment.
    pub const ALL: [Self; 41] = [
        lookup_devices::EXPERIMENT,
        published_lookup::EXPERIMENT,
        lookup_clock::EXPERIMENT,
        product_throughput::EXPERIMENT,
        product_report::EXPERIMENT,
        ring_sweep::EXPERIMENT,
        bucket_threshold_sweep::EXPERIMENT,
        filter_size_sweep::EXPERIMENT,
        four_configurations::EXPERIMENT,
        chunking::EXPERIMENT,
        data_centres::EXPERIMENT,
        duplicate_locality::EXPERIMENT,
        signature_index::EXPERIMENT,
        sampled::EXPERIMENT,
        aged::EXPERIMENT,
        auto::EXPERIMENT,
        window_size::EXPERIMENT,
        threshold_sweep::EXPERIMENT,
        ratio_curves::EXPERIMENT,
        rewrite_grid::EXPERIMENT,
        versions_restore::EXPERIMENT,
        generations_restore::EXPERIMENT,
        fresh_chunks::EXPERIMENT,
        restore_devices::EXPERIMENT,
        rewriting_devices::EXPERIMENT,
        gc_compression::EXPERIMENT,
        gc_files::EXPERIMENT,
        gc_fullness::EXPERIMENT,
        gc_phases::EXPERIMENT,
        gc_liveness::EXPERIMENT,
        gc_memory::EXPERIMENT,
        gc_locality::EXPERIMENT,
        partition_savings::EXPERIMENT,
        reconciliation::EXPERIMENT,
        regression_chunking::EXPERIMENT,
        primary_index::EXPERIMENT,
        primary_savings::EXPERIMENT,
        primary_references::EXPERIMENT,
        selective_compression::EXPERIMENT,
        deltas::EXPERIMENT,
        requests::EXPERIMENT,
    ];

    /// Those about files in use.
    const PRIMARY: [Self; 3] = [
        primary_savings::EXPERIMENT,
        primary_references::EXPERIMENT,
        selective_compression::EXPERIMENT,
    ];

    /// Those about collecting garbage.
    const COLLECTION: [Self; 7] = [
        gc_compression::EXPERIMENT,
        gc_files::EXPERIMENT,
        gc_fullness::EXPERIMENT,
        gc_phases::EXPERIMENT,
        gc_liveness::EXPERIMENT,
        gc_memory::EXPERIMENT,
        gc_locality::EXPERIMENT,
    ];

    /// Those about dividing files in use, and indexing them.
    const PARTITIONS: [Self; 4] = [
        partition_savings::EXPERIMENT,
        reconciliation::EXPERIMENT,
        regression_chunking::EXPERIMENT,
        primary_index::EXPERIMENT,
    ];

    /// Those about rewriting and restoring.
    const RESTORE: [Self; 9] = [
        window_size::EXPERIMENT,
        threshold_sweep::EXPERIMENT,
        ratio_curves::EXPERIMENT,
        rewrite_grid::EXPERIMENT,
        versions_restore::EXPERIMENT,
        generations_restore::EXPERIMENT,
        fresh_chunks::EXPERIMENT,
        restore_devices::EXPERIMENT,
        rewriting_devices::EXPERIMENT,
    ];

    /// Where its report goes if nobody says otherwise.
    #[must_use]
    pub fn reports(&self) -> &'static str {
        let is_named = |one: &Self| one.claim.name == self.claim.name;
        if Self::RESTORE.iter().any(is_named) {
            "experiments/restore"
        } else if Self::COLLECTION.iter().any(is_named) {
            "experiments/collection"
        } else if Self::PRIMARY.iter().any(is_named) {
            "experiments/primary"
        } else if Self::PARTITIONS.iter().any(is_named) {
            "experiments/primary-partitions"
        } else if is_named(&deltas::EXPERIMENT) {
            "experiments/space"
        } else if is_named(&requests::EXPERIMENT) {
            "experiments/remote"
        } else {
            "experiments/lookup"
        }
    }

    /// The experiments that a name means: one, or all of them.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn named(name: &str) -> Result<Vec<Self>> {
        if name == "all" {
            return Ok(Self::ALL.to_vec());
        }
        let found = Self::ALL.into_iter().find(|experiment| experiment.claim.name == name);
        found.map(|experiment| vec![experiment]).ok_or_else(|| {
            let names = Self::ALL.map(|experiment| experiment.claim.name).join(", ");
            Error::invalid(format!("'{name}' is not an experiment; choose all or one of {names}"))
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// It could not be run; that a claim does not hold is no error.
    pub fn run(&self, setting: &Setting) -> Result<Report> {
        let mut report = Report::new(self.claim, setting.tiny, setting.data.is_some());
        (self.run)(setting, &mut report)?;
        Ok(report)
    }
}

/// Nanoseconds as seconds for each million look-ups, which is how results of different sizes
/// compare.
fn seconds_per_million(nanoseconds: u64, lookups: u64) -> f64 {
    nanoseconds as f64 / 1e9 / (lookups.max(1) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_found_by_name() {
        assert_eq!(Experiment::named("all").unwrap().len(), Experiment::ALL.len());
        let one = Experiment::named("ring-sweep").unwrap();
        assert_eq!((one.len(), one[0].claim.name), (1, "ring-sweep"));
        let message = Experiment::named("nothing").map(|_| ()).unwrap_err().to_string();
        let names = Experiment::ALL.map(|experiment| experiment.claim.name);
        assert!(names.iter().all(|name| message.contains(name)), "{message}");
    }

    #[test]
    fn reports_go_where_their_question_is_answered() {
        let reports = |name| Experiment::named(name).unwrap()[0].reports();
        assert_eq!(reports("ring-sweep"), "experiments/lookup");
        assert_eq!(reports("product-report"), "experiments/lookup");
        assert_eq!(reports("rewrite-grid"), "experiments/restore");
        assert_eq!(reports("gc-memory"), "experiments/collection");
        assert_eq!(reports("reconciliation"), "experiments/primary-partitions");
        let restore = Experiment::ALL.iter().filter(|one| one.reports().ends_with("restore"));
        assert_eq!(restore.count(), Experiment::RESTORE.len());
    }

    #[test]
    fn devices_come_slowest_first() {
        let measured = vec![Device::new("this machine's disk", 200_000).unwrap()];
        let setting = Setting { measured, ..Setting::default() };
        let names: Vec<String> = setting.devices().into_iter().map(|device| device.name).collect();
        assert_eq!(names[..3], ["HDD", "remote store", "this machine's disk"]);
    }
}
